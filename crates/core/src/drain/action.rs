//! What a drain wants done.

use jiff::Timestamp;

use crate::cluster::fact::{Key, Uid};

/// What only a drain asks for: readings, and whether another drain is still at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// Reads all pods of an instance whose migration does not get on: its target, and what others left.
    ReadLaunchers {
        /// The instance.
        instance: Key,
        /// The incarnation that is meant.
        uid: Uid,
    },
    /// Reads from the metrics of this node agent how far the guests of its node have been copied.
    ReadTransfers {
        /// The node that the guests leave.
        node: String,
        /// The pod of the node agent.
        pod: Key,
        /// The incarnation of that pod.
        uid: Uid,
    },
    /// Asks on its lease whether the drain of a node is still at work.
    Ask {
        /// The node.
        node: String,
        /// The time that stands for the question.
        at: Timestamp,
    },
    /// Reads the node and its pods from the store itself, for the proof at the end.
    Prove {
        /// The node.
        node: String,
    },
    /// Reads the node from the store itself, because the answer to its cordon was lost and what is on it is to be told.
    LookUp {
        /// The node.
        node: String,
    },
}

/// One wanted change or reading.
pub type Action = crate::action::Action<Own>;
