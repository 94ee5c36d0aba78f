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
    pub pod: Key,
    pub owner: Option<String>,
    pub reason: Reason,
    pub since: Timestamp,
}

/// How the work on a node ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "end", rename_all = "camelCase")]
pub enum End {
    Drained {
        proof: Proof,
    },
    /// A trial run: nothing was changed.
    Rehearsed {
        blockers: Vec<Blocker>,
    },
    /// The filters refuse pods, so nothing was touched.
    NotStarted {
        blockers: Vec<Blocker>,
    },
    Blocked {
        blockers: Vec<Blocker>,
    },
    TimedOut {
        #[serde(serialize_with = "whole_seconds")]
        after: Duration,
        blockers: Vec<Blocker>,
    },
    Failed {
        reason: Reason,
        blockers: Vec<Blocker>,
    },
    Refused {
        reason: Reason,
    },
    /// We were told to stop; what was asked to leave may still be leaving.
    Stopped {
        #[serde(flatten)]
        left: Left,
        /// All pods that still have to leave, whether they were asked or not.
        #[serde(rename = "toLeave")]
        to_leave: Vec<Key>,
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
    Unknown { why: String },
}

impl Left {
    /// What a node shows that was just read.
    pub fn on(node: Option<&Node>, owner: &str) -> Self {
        let ours = |node: &Node| matches!(&node.mark, Some(MarkState::Valid(mark)) if mark.owner == owner);
        if node.is_some_and(|node| node.unschedulable && ours(node)) { Self::Cordoned } else { Self::Nothing }
    }
}
