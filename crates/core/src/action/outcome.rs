//! What the server answered.

use std::time::Duration;

use serde::Serialize;

/// What became of an action. Every answer of the server has one place here; nothing is "some error".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    Done,
    /// The object is not there any more.
    Gone,
    /// The name now belongs to another incarnation, so ours is gone.
    Replaced,
    /// 429 with the cause DisruptionBudget.
    Budget {
        retry_after: Option<Duration>,
        message: String,
    },
    /// An admission webhook said no.
    Webhook {
        webhook: String,
        message: String,
    },
    /// 429 by the server's flow control.
    Throttled {
        retry_after: Option<Duration>,
    },
    NamespaceTerminating,
    /// Several budgets select the pod, which the eviction API refuses with a 500.
    ManyBudgets {
        message: String,
    },
    /// The budget itself is in a state that allows nothing (403 with the cause DisruptionBudget).
    BudgetBroken {
        message: String,
    },
    Forbidden {
        message: String,
    },
    /// The server knows no evictions.
    Unsupported,
    /// A conflict with a concurrent write; the same request may succeed.
    Conflict {
        message: String,
    },
    Invalid {
        status: u16,
        message: String,
    },
    Server {
        status: u16,
        message: String,
    },
    /// The request was sent and its answer lost: it may or may not have been carried out.
    Unknown {
        message: String,
    },
    /// The request did not reach the server.
    Transport {
        message: String,
    },
}

impl Outcome {
    /// Failures that say nothing about the pod and deserve another try soon.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Server { .. } | Self::Unknown { .. } | Self::Transport { .. } | Self::Conflict { .. }
        )
    }
}
