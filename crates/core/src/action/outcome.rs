//! What the server answered.

use std::time::Duration;

use serde::{Serialize, Serializer};

#[allow(clippy::ref_option, reason = "it is called so by serde")]
fn whole_seconds<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    span.map(|span| span.as_secs()).serialize(to)
}

/// What became of an action. Every answer of the server has one place here; nothing is "some error".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    /// It was carried out.
    Done,
    /// The object is not there any more.
    Gone,
    /// The name now belongs to another incarnation, so ours is gone.
    Replaced,
    /// 429 with the cause DisruptionBudget.
    Budget {
        /// How long the server asks to wait.
        #[serde(serialize_with = "whole_seconds")]
        retry_after: Option<Duration>,
        /// What the server said.
        message: String,
    },
    /// An admission webhook said no.
    Webhook {
        /// The name of the webhook.
        webhook: String,
        /// What the server said.
        message: String,
    },
    /// 429 by the server's flow control.
    Throttled {
        /// How long the server asks to wait.
        #[serde(serialize_with = "whole_seconds")]
        retry_after: Option<Duration>,
    },
    /// The namespace is being deleted, so nothing can be made in it.
    NamespaceTerminating,
    /// Several budgets select the pod, which the eviction API refuses with a 500.
    ManyBudgets {
        /// What the server said.
        message: String,
    },
    /// The budget itself is in a state that allows nothing (403 with the cause DisruptionBudget).
    BudgetBroken {
        /// What the server said.
        message: String,
    },
    /// There is no right to (401 or 403).
    Forbidden {
        /// What the server said.
        message: String,
    },
    /// The server knows no evictions.
    Unsupported,
    /// A conflict with a concurrent write; the same request may succeed.
    Conflict {
        /// What the server said.
        message: String,
    },
    /// The server does not take the request.
    Invalid {
        /// The HTTP status.
        status: u16,
        /// What the server said.
        message: String,
    },
    /// The server failed.
    Server {
        /// The HTTP status.
        status: u16,
        /// What the server said.
        message: String,
    },
    /// The request was sent and its answer lost: it may or may not have been carried out.
    Unknown {
        /// What the server said.
        message: String,
    },
    /// The request did not reach the server.
    Transport {
        /// What the server said.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_duration_is_told_in_plain_seconds() {
        let told = |retry_after| serde_json::to_value(Outcome::Throttled { retry_after }).unwrap();
        assert_eq!(told(Some(Duration::from_secs(4))), json!({"outcome": "throttled", "retryAfter": 4}));
        assert_eq!(told(None), json!({"outcome": "throttled", "retryAfter": null}));
    }
}
