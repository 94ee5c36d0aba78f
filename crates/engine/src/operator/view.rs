//! What the loop knows, for those who answer reviews.
//!
//! A view may be a moment old, so it is good for answers that hurt nobody if they are: a refusal, which costs the asker
//! another try, or the permission of something that the loop looks at again before it acts. Whatever could cost a
//! guest is read from the server. An operator that has not seen everything yet, or is too busy, has no view.

use std::time::Duration;

use evac_clock::Clock;
use evac_core::machines::admission::Denial;
use evac_core::machines::{Config, Instance, eviction};
use evac_core::{Index, Key};
use tokio::sync::{mpsc, oneshot, watch};

/// Reading from the server takes no longer than this.
const PATIENCE: Duration = Duration::from_millis(100);

/// One who wants to know, and what.
pub(super) enum Asking {
    /// Why a pod cannot be evicted, as far as that is known.
    Refusal(Key, oneshot::Sender<Option<Denial>>),
    Instance(Key, oneshot::Sender<Option<Instance>>),
}

impl Asking {
    pub fn answer(self, index: &Index) {
        // Whoever asked may have given up.
        match self {
            Self::Refusal(pod, reply) => drop(reply.send(eviction::known_refusal(index, &pod))),
            Self::Instance(key, reply) => drop(reply.send(index.instance(&key).cloned())),
        }
    }
}

/// Reaches the loop; clones reach the same.
#[derive(Clone)]
pub struct View {
    /// The cluster's settings as they are now.
    pub config: watch::Receiver<Config>,
    sender: mpsc::Sender<Asking>,
    clock: Clock,
}

impl View {
    pub(super) fn new(config: watch::Receiver<Config>, clock: Clock) -> (Self, mpsc::Receiver<Asking>) {
        let (sender, receiver) = mpsc::channel(64);
        (Self { config, sender, clock }, receiver)
    }

    /// Knows the settings and nothing else.
    pub fn of_settings(config: watch::Receiver<Config>, clock: Clock) -> Self {
        Self::new(config, clock).0
    }

    pub async fn refusal(&self, pod: Key) -> Option<Denial> {
        self.ask(|reply| Asking::Refusal(pod, reply)).await
    }

    pub async fn instance(&self, key: Key) -> Option<Instance> {
        self.ask(|reply| Asking::Instance(key, reply)).await
    }

    async fn ask<T>(&self, asking: impl FnOnce(oneshot::Sender<Option<T>>) -> Asking) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(asking(reply)).ok()?;
        tokio::select! {
            biased;
            known = answer => known.ok()?,
            () = self.clock.sleep(PATIENCE) => None,
        }
    }
}
