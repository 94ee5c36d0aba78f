//! What controllers look after, and what they are told to look at again.

use super::key::Key;

/// A kind of object that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Machine,
    Instance,
    ReplicaSet,
    Migration,
    Pod,
    Node,
    Budget,
    Lease,
}

/// One object a controller looks after. The key of a node has no namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub kind: Kind,
    pub key: Key,
}

impl Subject {
    pub fn new(kind: Kind, key: Key) -> Self {
        Self { kind, key }
    }

    pub fn node(name: &str) -> Self {
        Self::new(Kind::Node, Key::new("", name))
    }
}

/// What the server answered when something could not be done for a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word: `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    pub message: String,
}
