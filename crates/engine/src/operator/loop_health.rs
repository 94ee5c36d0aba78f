//! The health of the operator's loop, asked for through its inbox. An answer proves that the loop turns; its content is what probes and metrics show.

use std::time::Duration;

use evac_clock::Clock;
use tokio::sync::{mpsc, oneshot};

use crate::metrics::Queues;

/// A loop that takes longer than this to answer is stuck.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the loop is at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoopHealth {
    pub queues: Queues,
    pub migrations: usize,
    pub leads: bool,
    /// What has to be read before the first decision, and was not yet.
    pub missing: Vec<String>,
}

impl LoopHealth {
    /// Takes another loop into account.
    pub(super) fn add(&mut self, other: Self) {
        let Self { queues, migrations, leads, missing } = other;
        self.queues.add(queues);
        self.migrations += migrations;
        self.leads |= leads;
        self.missing.extend(missing);
    }
}

pub(super) type HealthRequest = oneshot::Sender<LoopHealth>;

/// Asks one loop; clones ask the same.
#[derive(Clone)]
pub struct HealthClient {
    sender: mpsc::Sender<HealthRequest>,
    clock: Clock,
}

impl HealthClient {
    pub(super) fn new(clock: Clock) -> (Self, mpsc::Receiver<HealthRequest>) {
        let (sender, receiver) = mpsc::channel(8);
        (Self { sender, clock }, receiver)
    }

    /// `None` when the loop has ended or does not answer in time.
    pub async fn ask(&self) -> Option<LoopHealth> {
        let (reply, answer) = oneshot::channel();
        let asking = async {
            self.sender.send(reply).await.ok()?;
            answer.await.ok()
        };
        tokio::select! {
            biased;
            condition = asking => condition,
            () = self.clock.sleep(PATIENCE) => None,
        }
    }
}
