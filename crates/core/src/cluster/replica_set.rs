//! A VirtualMachineInstanceReplicaSet.

use super::condition::Condition;
use super::key::{Key, Uid};
use super::selector::Selector;
use super::table::object;
use super::version::Version;

/// A VirtualMachineInstanceReplicaSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSet {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`, on which its status is written.
    pub version: Version,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.replicas`; one if it does not say.
    pub replicas: i64,
    /// `spec.paused`: nothing is created or deleted.
    pub paused: bool,
    /// Missing or not matching its own template: nothing is done.
    pub selector: Option<Selector>,
    /// The selector as `status.labelSelector` should have it, for the scale subresource; empty if it does not parse.
    pub selector_text: String,
    /// What names of instances begin with.
    pub prefix: String,
    /// What the controller wrote on it last.
    pub status: ReplicaSetStatus,
}

/// What is written about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaSetStatus {
    /// `status.replicas`: instances that count.
    pub replicas: i64,
    /// `status.readyReplicas`.
    pub ready: i64,
    /// `status.labelSelector`, for the scale subresource.
    pub selector: String,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

object!(ReplicaSet, Key, key, version);
