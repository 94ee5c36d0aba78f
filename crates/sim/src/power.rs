//! The power supply of the simulated machines, and controllers of it that are slow, broken, or say what is not so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use evac_engine::failover::{PowerError, PowerState, PowerSwitch};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::draw;
use crate::stage::Stage;

/// Which machines are off, as their controllers know it.
#[derive(Default)]
pub struct Power {
    off: Mutex<BTreeSet<String>>,
    /// How often a controller was told to switch something off.
    told: Mutex<u64>,
    /// Nodes that are cut off, and since when others answer again, in milliseconds.
    silent: Mutex<BTreeSet<String>>,
    back: Mutex<BTreeMap<String, i64>>,
}

/// Who has answered for longer than this is not switched off: a kubelet says within some seconds that its node is Ready.
const SEEN: i64 = 60_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Power {
    pub fn is_off(&self, node: &str) -> bool {
        lock(&self.off).contains(node)
    }

    /// Somebody has switched the machine off by hand.
    pub fn unplug(&self, node: &str) {
        lock(&self.off).insert(node.to_owned());
    }

    /// The kubelet of a node is not heard of from now on.
    pub fn cut_off(&self, node: &str) {
        lock(&self.silent).insert(node.to_owned());
    }

    /// The kubelet of a node answers from now on.
    pub fn answers(&self, node: &str, at: i64) {
        lock(&self.silent).remove(node);
        lock(&self.back).insert(node.to_owned(), at);
    }

    /// How long a node has answered.
    fn answered_for(&self, node: &str, at: i64) -> Option<i64> {
        let silent = lock(&self.silent).contains(node);
        (!silent).then(|| at - lock(&self.back).get(node).copied().unwrap_or_default())
    }

    /// Somebody has repaired the machine and switches it on.
    pub fn on(&self, node: &str) {
        lock(&self.off).remove(node);
    }
}

/// The controller that a fence agent speaks to.
pub struct Controller {
    stage: Weak<Stage>,
}

impl Controller {
    pub fn of(stage: &Arc<Stage>) -> Arc<dyn PowerSwitch> {
        Arc::new(Self { stage: Arc::downgrade(stage) })
    }

    async fn switch_off(&self, node: &str) -> Result<(), PowerError> {
        let Some(stage) = self.stage.upgrade() else { return Ok(()) };
        let told = {
            let mut told = lock(&stage.power().told);
            *told += 1;
            told.to_string()
        };
        if let Some(long) = stage.power().answered_for(node, stage.book.millis()).filter(|long| *long > SEEN)
        {
            let words = format!("{node} is switched off although it has answered for {} s", long / 1000);
            stage.book.violate("I1", words);
        }
        let draw = |what: &str| draw::share(stage.seed, &["power", &told, what]);
        let slow = if draw("slow") < 0.4 { 25.0 * draw("seconds") } else { 0.1 };
        stage.pass(Duration::from_secs_f64(slow)).await;
        let faulty = !stage.field.calm();
        if faulty && draw("broken") < 0.3 {
            let program = self.name();
            return Err(PowerError::Failed { program, action: "off", code: 1, said: String::new() });
        }
        // It says that it has done it, and has not; asked for the state, it says so.
        if faulty && draw("idle") < 0.2 {
            return Ok(());
        }
        stage.book.note(&format!("{node} is switched off"));
        stage.world.kubelet(node).power_off();
        lock(&stage.power().off).insert(node.to_owned());
        Ok(())
    }
}

impl PowerSwitch for Controller {
    fn name(&self) -> String {
        "controller".into()
    }

    fn off<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), PowerError>> {
        self.switch_off(node).boxed()
    }

    fn state<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PowerState, PowerError>> {
        let off = self.stage.upgrade().is_some_and(|stage| stage.power().is_off(node));
        async move { Ok(if off { PowerState::Off } else { PowerState::On }) }.boxed()
    }
}
