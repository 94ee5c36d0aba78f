//! People stop and start machines of several run strategies: what they wanted last comes about, and no machine ever runs twice.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;

use super::common::{INSTANCES, MACHINES, hosts, machine, unfinished};
use super::{Play, Scenario};
use crate::draw;
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "run-strategy",
    about: "machines are stopped, started and lose their launchers; the last wish comes about",
    make: || Box::<Restart>::default(),
};

const NODES: usize = 2;
const COUNT: usize = 3;
const STEPS: usize = 8;

#[derive(Default)]
struct Restart {
    /// Whether each machine is to run in the end.
    wanted: Vec<bool>,
}

impl Play for Restart {
    fn cast(&self) -> Cast {
        Cast::operated(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            for n in 1..=COUNT {
                machine(stage, &format!("vm-{n}"), 4).await?;
            }
            self.wanted = vec![true; COUNT];
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            for step in 0..STEPS {
                let step = step.to_string();
                let draw =
                    |what: &str, high: u64| draw::between(stage.seed, &["restart", &step, what], 0, high);
                stage.pass(Duration::from_millis(draw("pause", 15_000))).await;
                let number = draw("which", COUNT as u64) as usize;
                let path = format!("{MACHINES}/vm-{}", number + 1);
                match draw("what", 3) {
                    0 => {
                        stage.patch(&path, &json!({"spec": {"runStrategy": "Halted"}})).await?;
                        self.wanted[number] = false;
                    }
                    1 => {
                        stage.patch(&path, &json!({"spec": {"runStrategy": "Always"}})).await?;
                        self.wanted[number] = true;
                    }
                    // The instance is deleted; the machine has to make another one if it is to run.
                    _ => {
                        let instance = format!("{INSTANCES}/vm-{}", number + 1);
                        stage.try_send("DELETE", &instance, "application/json", &json!({})).await?;
                    }
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = unfinished(stage).await?;
            for (number, wanted) in self.wanted.iter().enumerate() {
                let name = format!("vm-{}", number + 1);
                let instance = stage.get(&format!("{INSTANCES}/{name}")).await?;
                if instance.is_some() != *wanted {
                    wrong.push(format!(
                        "{name} is to run: {wanted}, and has an instance: {}",
                        instance.is_some()
                    ));
                }
            }
            Ok(wrong)
        }
        .boxed()
    }
}
