//! The rest of a cluster, as actors that speak the Kubernetes API: kubelets, scheduler, workload controllers,
//! disruption controller, node lifecycle, garbage collection.
//!
//! There is one loop. It holds a [`mirror::Mirror`] of the objects the actors care about, fed by watches. An actor is a
//! function from what it sees to what it wants: writes, questions, a time to look again. Writes are carried
//! out one after the other, their answers go into the mirror before the next decision, and so nothing is
//! done twice. On a current-thread runtime with a paused clock, the same seed gives the same history.
//!
//! How pods behave on simulated nodes is up to their annotations: see [`kubelet::behaviour`].
//!
//! Which room knows which is in `tests/rooms.rs`: from objects over actors to the loop.

pub mod actor;
mod actors;
pub mod aftermath;
mod asks;
#[cfg(test)]
mod build;
mod discovery;
pub mod disruption;
pub mod effects;
mod events;
pub mod gc;
pub mod handler;
pub mod hypervisor;
pub mod instance;
pub mod kinds;
pub mod kubelet;
pub mod mirror;
pub mod nodes;
pub mod objects;
pub mod options;
mod perform;
pub mod quantity;
mod queue;
pub mod random;
mod runtime;
pub mod scheduler;
pub mod truth;
mod watch;
pub mod workloads;

use std::sync::Arc;

use evac_apiserver::reply::Reply;
use evac_apiserver::server::Api;
use evac_apiserver::server::backend::Asked;
use evac_clock::Clock;
use futures::future::BoxFuture;
use handler::metrics;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use options::{NodeSpec, Options};
use runtime::Command;

/// A running world. Dropping it stops it.
pub struct World {
    commands: mpsc::UnboundedSender<Command>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl World {
    /// Starts the actors on the current runtime.
    pub fn start(client: kube::Client, clock: Clock, options: Options) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let task = tokio::spawn(runtime::run(client, clock, options, receiver, stop.clone()));
        Self { commands, stop, task: Some(task) }
    }

    /// The kubelet of a node, to switch it off and on.
    pub fn kubelet(&self, node: &str) -> KubeletHandle<'_> {
        KubeletHandle { world: self, node: node.to_owned() }
    }

    /// A further node joins.
    pub fn add_node(&self, spec: NodeSpec) {
        self.send(Command::AddNode(Box::new(spec)));
    }

    /// Waits for a moment in which nothing is due. What only time will bring is not waited for.
    pub async fn idle(&self) {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::WhenIdle(sender));
        // An error means that the world has ended, and then nothing is due either.
        let _ = receiver.await;
    }

    /// Lets the simulated node agents answer what is asked of the pods in which KubeVirt would run them.
    pub fn answer_for_agents(&self, api: &Api) {
        let commands = self.commands.clone();
        let backend = move |asked: Asked| -> BoxFuture<'static, Option<Reply>> {
            let commands = commands.clone();
            Box::pin(async move {
                if asked.port != metrics::PORT {
                    return None;
                }
                if asked.path != metrics::PATH {
                    return Some(Reply::words(404, "404 page not found\n"));
                }
                let (sender, receiver) = oneshot::channel();
                commands.send(Command::Metrics(asked.node, sender)).ok()?;
                receiver.await.ok()?.map(|text| Reply::words(200, text))
            })
        };
        api.answer_for_pods("kubevirt.io", "virt-handler", Arc::new(backend));
    }

    /// What must never happen and did: two writers on one disk, one machine in two places.
    pub async fn violations(&self) -> Vec<hypervisor::Violation> {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Violations(sender));
        receiver.await.unwrap_or_default()
    }

    /// What kubelets and hypervisors know at this moment, whatever is written about it.
    pub async fn truth(&self) -> truth::Truth {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Truth(sender));
        receiver.await.unwrap_or_default()
    }

    /// Ends all actors and waits for them.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // A panic of the loop has been reported by the runtime already.
            let _ = task.await;
        }
    }

    fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::debug!("the world has ended");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Control over one simulated kubelet.
pub struct KubeletHandle<'a> {
    world: &'a World,
    node: String,
}

impl KubeletHandle<'_> {
    /// The node is cut off: no heartbeat, and its pods do not change. What runs on it goes on running, which
    /// nobody can see: to be sure that it does not, see [`KubeletHandle::power_off`].
    pub fn stop(&self) {
        self.world.send(Command::KubeletAlive(self.node.clone(), false));
    }

    /// The kubelet comes back and finds its containers as they were.
    pub fn start(&self) {
        self.world.send(Command::KubeletAlive(self.node.clone(), true));
    }

    /// The machine loses its power, as when it is fenced: nothing runs on it any more, and nobody says so.
    pub fn power_off(&self) {
        self.world.send(Command::PowerOff(self.node.clone()));
    }

    /// The machine restarts: containers start anew, with one more restart on their count.
    pub fn reboot(&self) {
        self.world.send(Command::Reboot(self.node.clone()));
        self.start();
    }
}
