//! Reads from the index of the loop, for the handlers of reviews.
//!
//! The index may be a moment old, so it is good for answers that do no harm if they are: a refusal, which costs the asker
//! another try, or the permission of something that the loop looks at again before it acts. What could cost a
//! guest is read from the server. An operator that has not seen everything yet, or is too busy, does not answer.

use std::time::Duration;

use evac_clock::Clock;
use evac_core::machines::admission::Denial;
use evac_core::machines::{Config, Instance, eviction};
use evac_core::{Index, Key};
use tokio::sync::{mpsc, oneshot, watch};

/// Reading from the server takes no longer than this.
const PATIENCE: Duration = Duration::from_millis(100);

/// A question to the loop, with the way back.
pub(super) enum IndexQuery {
    /// Why a pod cannot be evicted, as far as that is known.
    Refusal(Key, oneshot::Sender<Option<Denial>>),
    Instance(Key, oneshot::Sender<Option<Instance>>),
}

impl IndexQuery {
    pub fn answer(self, index: &Index) {
        // The handler may have given up.
        match self {
            Self::Refusal(pod, reply) => drop(reply.send(eviction::known_refusal(index, &pod))),
            Self::Instance(key, reply) => drop(reply.send(index.instance(&key).cloned())),
        }
    }
}

/// Reaches the loop; clones reach the same.
#[derive(Clone)]
pub struct IndexReader {
    /// The cluster's settings as they are now.
    pub config: watch::Receiver<Config>,
    sender: mpsc::Sender<IndexQuery>,
    clock: Clock,
}

impl IndexReader {
    pub(super) fn new(config: watch::Receiver<Config>, clock: Clock) -> (Self, mpsc::Receiver<IndexQuery>) {
        let (sender, receiver) = mpsc::channel(64);
        (Self { config, sender, clock }, receiver)
    }

    /// Knows the settings and nothing else.
    pub fn of_settings(config: watch::Receiver<Config>, clock: Clock) -> Self {
        Self::new(config, clock).0
    }

    pub async fn refusal(&self, pod: Key) -> Option<Denial> {
        self.ask(|reply| IndexQuery::Refusal(pod, reply)).await
    }

    pub async fn instance(&self, key: Key) -> Option<Instance> {
        self.ask(|reply| IndexQuery::Instance(key, reply)).await
    }

    async fn ask<T>(&self, asking: impl FnOnce(oneshot::Sender<Option<T>>) -> IndexQuery) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(asking(reply)).ok()?;
        tokio::select! {
            biased;
            known = answer => known.ok()?,
            () = self.clock.sleep(PATIENCE) => None,
        }
    }
}
