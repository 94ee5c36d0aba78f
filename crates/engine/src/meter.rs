//! Counts what comes from a server that is not trusted, and says when it is enough. The rule is [`evac_core::tenants::quota`].

use std::sync::{Mutex, OnceLock, PoisonError};

use evac_core::tenants::quota::{QuotaExceeded, Usage, VisitQuota};
use tokio_util::sync::CancellationToken;

/// The count of one visit; everybody who reads for it shares it.
pub struct Meter {
    quota: VisitQuota,
    taken: Mutex<Usage>,
    excess: OnceLock<QuotaExceeded>,
    spent: CancellationToken,
}

impl Meter {
    pub fn new(quota: VisitQuota) -> Self {
        Self { quota, taken: Mutex::default(), excess: OnceLock::new(), spent: CancellationToken::new() }
    }

    /// Counts what came; nothing more is to be read if that was too much.
    pub fn take(&self, more: Usage) -> Result<(), QuotaExceeded> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.add(more, &self.quota) {
            None => Ok(()),
            Some(excess) => {
                let first = *self.excess.get_or_init(|| excess);
                self.spent.cancel();
                Err(first)
            }
        }
    }

    /// What there was too much of.
    pub fn excess(&self) -> Option<QuotaExceeded> {
        self.excess.get().copied()
    }

    /// Waits until it is enough.
    pub async fn spent(&self) {
        self.spent.cancelled().await;
    }
}
