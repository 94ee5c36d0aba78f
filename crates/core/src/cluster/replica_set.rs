//! A VirtualMachineInstanceReplicaSet.

use super::condition::Condition;
use super::key::{Key, Uid};
use super::selector::Selector;
use super::table::object;
use super::version::Version;

/// A VirtualMachineInstanceReplicaSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSet {
    pub key: Key,
    pub uid: Uid,
    pub version: Version,
    pub deleting: bool,
    pub replicas: i64,
    pub paused: bool,
    /// Missing or not matching its own template: nothing is done.
    pub selector: Option<Selector>,
    pub selector_text: String,
    /// What names of instances begin with.
    pub prefix: String,
    pub status: ReplicaSetStatus,
}

/// What is written about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaSetStatus {
    pub replicas: i64,
    pub ready: i64,
    pub selector: String,
    pub conditions: Vec<Condition>,
}

object!(ReplicaSet, Key, key, version);
