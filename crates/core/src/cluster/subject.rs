//! What controllers look after, and what they are told to look at again.

use super::key::Key;

/// A kind of object that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// VirtualMachine.
    Machine,
    /// VirtualMachineInstance.
    Instance,
    /// VirtualMachineInstanceReplicaSet.
    ReplicaSet,
    /// VirtualMachineInstanceMigration.
    Migration,
    /// Pod; a list of this kind holds those that run guests.
    Pod,
    /// Node.
    Node,
    /// PodDisruptionBudget.
    Budget,
    /// Lease.
    Lease,
}

/// One object a controller looks after. The key of a node has no namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Of which kind it is.
    pub kind: Kind,
    /// What it is called; see above for nodes.
    pub key: Key,
}

impl Subject {
    /// The object of this kind and name.
    pub fn new(kind: Kind, key: Key) -> Self {
        Self { kind, key }
    }

    /// The node of this name.
    pub fn node(name: &str) -> Self {
        Self::new(Kind::Node, Key::new("", name))
    }
}

/// What the server answered when something could not be done for a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word: `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    /// The answer as a sentence.
    pub message: String,
}
