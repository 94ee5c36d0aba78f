//! What a drain wants done.

use jiff::Timestamp;

use crate::cluster::fact::{Key, Uid};

/// What only a drain asks for: readings, and whether another drain is still at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// Reads all pods of an instance whose migration does not get on: its target, and what others left.
    ReadLaunchers { instance: Key, uid: Uid },
    /// Reads from the metrics of this node agent how far the guests of its node have been copied.
    ReadTransfers { node: String, pod: Key, uid: Uid },
    /// Asks on its lease whether the drain of a node is still at work.
    Ask { node: String, at: Timestamp },
    /// Reads the node and its pods from the store itself, for the proof at the end.
    Prove { node: String },
    /// Reads the node from the store itself, because the answer to its cordon was lost and what is on it is to be told.
    LookUp { node: String },
}

/// One wanted change or reading.
pub type Action = crate::action::Action<Own>;
