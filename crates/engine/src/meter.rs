//! Counts what comes from a server that is not trusted, and says when it is enough. The rule is [`evac_core::tenants::ration`].

use std::sync::{Mutex, OnceLock, PoisonError};

use evac_core::tenants::ration::{Excess, Ration, Taken};
use tokio_util::sync::CancellationToken;

/// The count of one visit; everybody who reads for it shares it.
pub struct Meter {
    ration: Ration,
    taken: Mutex<Taken>,
    excess: OnceLock<Excess>,
    spent: CancellationToken,
}

impl Meter {
    pub fn new(ration: Ration) -> Self {
        Self { ration, taken: Mutex::default(), excess: OnceLock::new(), spent: CancellationToken::new() }
    }

    /// Counts what came; nothing more is to be read if that was too much.
    pub fn take(&self, more: Taken) -> Result<(), Excess> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.add(more, &self.ration) {
            None => Ok(()),
            Some(excess) => {
                let first = *self.excess.get_or_init(|| excess);
                self.spent.cancel();
                Err(first)
            }
        }
    }

    /// What there was too much of.
    pub fn excess(&self) -> Option<Excess> {
        self.excess.get().copied()
    }

    /// Waits until it is enough.
    pub async fn spent(&self) {
        self.spent.cancelled().await;
    }
}
