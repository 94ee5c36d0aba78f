//! What should be done, with the conditions under which it is still right, and what became of it.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::fact::{Key, Lease, Taint, Uid};
use crate::cluster::version::Version;
use crate::drain::ownership::DrainMark;

/// One wanted change or reading. Actions leave no choice open: whoever performs them obeys, or reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Action {
    /// Makes the node unschedulable and writes who did it, with the state before, in one request.
    /// `taints` are all taints the node shall have, where some are to be added.
    Cordon {
        node: String,
        uid: Uid,
        resource_version: Version,
        mark: Box<DrainMark>,
        #[serde(skip_serializing_if = "Option::is_none")]
        taints: Option<Vec<Taint>>,
        dry_run: bool,
    },
    /// Asks for an eviction of exactly this incarnation.
    Evict { pod: Key, uid: Uid, grace_seconds: Option<i64>, dry_run: bool },
    /// Deletes exactly this incarnation, past all budgets.
    Delete { pod: Key, uid: Uid, grace_seconds: Option<i64>, dry_run: bool },
    /// Asks for a live migration of exactly this instance. The name follows from what is known of it.
    Migrate { instance: Key, uid: Uid, pod: Uid, name: String, node: String, owner: String, dry_run: bool },
    /// Takes back a migration that we asked for.
    Abort { migration: Key, uid: Uid },
    /// Reads all pods of an instance whose migration does not get on: its target, and what others left.
    ReadLaunchers { instance: Key, uid: Uid },
    /// Reads from the metrics of this node agent how far the guests of its node have been copied.
    ReadTransfers { node: String, pod: Key, uid: Uid },
    /// Writes or renews the lease that shows that this drain is alive; `over` is the lease as it was last seen, `answered` the
    /// question that this answers, where we watch for questions.
    Hold {
        node: String,
        uid: Uid,
        holder: String,
        at: Timestamp,
        seconds: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        answered: Option<Timestamp>,
        #[serde(skip)]
        over: Option<Box<Lease>>,
        /// What is noted on the lease about the node, unless it stands there already.
        #[serde(skip)]
        record: Option<Box<crate::drain::record::Record>>,
    },
    /// Asks on its lease whether the drain of a node is still at work.
    Ask { node: String, at: Timestamp },
    /// Gives our lease back, if it is still as we left it. It is kept without a holder while the mark it is the record of is on the node.
    Release { node: String, resource_version: Version, keep: bool },
    /// Reads the node and its pods from the store itself, for the proof at the end.
    Prove { node: String },
    /// Reads the node from the store itself, because the answer to its cordon was lost and what is on it is to be told.
    LookUp { node: String },
}

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
