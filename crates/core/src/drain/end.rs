//! How the work on a node ends, and what it leaves there.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::fact::{Key, Node};
use crate::drain::ownership::MarkState;
use crate::drain::proof::Proof;
use crate::reasons::Reason;

/// As numbers are written in events: whole seconds.
fn whole_seconds<S: serde::Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(span.as_secs())
}

/// One thing in the way, with the moment it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// The pod that has to leave and does not.
    pub pod: Key,
    /// Its controller as kind and name; none for a pod that stands for itself.
    pub owner: Option<String>,
    /// What it waits for.
    pub reason: Reason,
    /// When the drain first saw this reason, by its own clock.
    pub since: Timestamp,
}

/// How the work on a node ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "end", rename_all = "camelCase")]
pub enum End {
    /// All that has to leave has left, as far as the drain sees.
    Drained {
        /// Whether the machine may be switched off, by a last reading of the node; unknown if that failed.
        proof: Proof,
    },
    /// A trial run: nothing was changed.
    Rehearsed {
        /// What the drain would have to wait for.
        blockers: Vec<Blocker>,
    },
    /// The filters refuse pods, so nothing was touched.
    NotStarted {
        /// The pods that the filters refuse, once for each refusal.
        blockers: Vec<Blocker>,
    },
    /// What is left cannot leave, and that has been so for [`Policy::settle`](crate::drain::policy::Policy::settle).
    Blocked {
        /// One for each pod that is in the way, with those that only wait.
        blockers: Vec<Blocker>,
    },
    /// [`Policy::timeout`](crate::drain::policy::Policy::timeout) is over and pods are left.
    TimedOut {
        /// The timeout; whole seconds in JSON.
        #[serde(serialize_with = "whole_seconds")]
        after: Duration,
        /// What the pods that are left wait for.
        blockers: Vec<Blocker>,
    },
    /// The cordon could not be made, or a pod failed more often than the policy's patience and nothing else is left to do.
    Failed {
        /// Why the cordon was refused, or what the first pod that failed met with.
        reason: Reason,
        /// What is in the way; empty if no pod was asked to leave.
        blockers: Vec<Blocker>,
    },
    /// The node is another's, or the drain has lost it: it was uncordoned, or its mark or its lease was taken over.
    Refused {
        /// Who holds the node, or how it was lost.
        reason: Reason,
    },
    /// We were told to stop; what was asked to leave may still be leaving.
    Stopped {
        /// What was seen on the node at the end.
        #[serde(flatten)]
        left: Left,
        /// All pods that still have to leave, whether they were asked or not.
        #[serde(rename = "toLeave")]
        to_leave: Vec<Key>,
        /// What the pods that are left wait for.
        blockers: Vec<Blocker>,
    },
}

/// What a drain that comes to no end leaves on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "left", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Left {
    /// No cordon and no mark of this owner.
    Nothing,
    /// The cordon with the mark of this owner.
    Cordoned,
    /// The answer to the cordon was lost, and the node could not be read afterwards.
    Unknown {
        /// The error of that reading.
        why: String,
    },
}

impl Left {
    /// What a node shows that was just read.
    pub fn on(node: Option<&Node>, owner: &str) -> Self {
        let ours = |node: &Node| matches!(&node.mark, Some(MarkState::Valid(mark)) if mark.owner == owner);
        if node.is_some_and(|node| node.unschedulable && ours(node)) { Self::Cordoned } else { Self::Nothing }
    }
}
