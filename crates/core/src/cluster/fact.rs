//! One observation of the cluster, reduced to what decisions need.
//!
//! A fact is made from an API object at the border and never looks back at it. Each kind has one struct; a [`Fact`]
//! says that such a thing was seen or is gone.

use std::collections::BTreeMap;

pub use super::budget::{Amount, Budget, UnhealthyPolicy};
pub use super::instance::{Instance, MigrationState, Phase, PhaseTimes};
pub use super::key::{Key, Owner, Uid};
pub use super::lease::{CLOCK_SKEW, Lease};
pub use super::machine::{Machine, MachineStatus, Power, Request, RunStrategy, StartFailure};
pub use super::migration::{Migration, MigrationPhase};
pub use super::node::{Health, Node, Taint, asks_for_evacuation};
pub use super::pod::{Deletion, Launcher, Pod, PodPhase, VmRole};
pub use super::replica_set::{ReplicaSet, ReplicaSetStatus};
use super::transfer::Sample;

/// Whether an owner is there, as far as we could find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existence {
    /// The server showed it.
    Found,
    /// The server has none of that name; its answer as a sentence.
    Gone(String),
    /// It could not be read, by lack of rights or otherwise; the error as a sentence.
    Unreadable(String),
}

/// One observation. Gone is a statement about one incarnation, never about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A node as it is now.
    Node(Box<Node>),
    /// A node was deleted.
    NodeGone(String, Uid),
    /// The server was asked for a node and has none of that name.
    NodeAbsent(String),
    /// A pod as it is now.
    Pod(Box<Pod>),
    /// A pod is gone from the API.
    PodGone(Key, Uid),
    /// A PodDisruptionBudget as it is now.
    Budget(Box<Budget>),
    /// A budget was deleted.
    BudgetGone(Key, Uid),
    /// A VirtualMachine as it is now.
    Machine(Box<Machine>),
    /// A VirtualMachine is gone from the API.
    MachineGone(Key, Uid),
    /// A VirtualMachineInstance as it is now.
    Instance(Box<Instance>),
    /// An instance is gone from the API.
    InstanceGone(Key, Uid),
    /// A VirtualMachineInstanceReplicaSet as it is now.
    ReplicaSet(Box<ReplicaSet>),
    /// A set of instances is gone from the API.
    ReplicaSetGone(Key, Uid),
    /// A VirtualMachineInstanceMigration as it is now.
    Migration(Box<Migration>),
    /// A migration is gone from the API.
    MigrationGone(Key, Uid),
    /// The DaemonSet that a pod names as its owner was looked up.
    DaemonSet(Key, Existence),
    /// An eviction was refused because this namespace is being deleted.
    NamespaceTerminating(String),
    /// A lease as it is now.
    Lease(Box<Lease>),
    /// A lease was deleted.
    LeaseGone(Key, Uid),
    /// The server was asked for a lease and has none of that name.
    LeaseAbsent(Key),
    /// How far guests have been copied, by the agent of the node they leave.
    Transfers(BTreeMap<Key, Sample>),
}

impl Fact {
    /// The end of what this fact shows; a fact that shows no object stays what it is.
    #[must_use]
    pub fn gone(self) -> Self {
        match self {
            Self::Node(node) => Self::NodeGone(node.name, node.uid),
            Self::Pod(pod) => Self::PodGone(pod.key, pod.uid),
            Self::Budget(budget) => Self::BudgetGone(budget.key, budget.uid),
            Self::Machine(machine) => Self::MachineGone(machine.key, machine.uid),
            Self::Instance(instance) => Self::InstanceGone(instance.key, instance.uid),
            Self::ReplicaSet(set) => Self::ReplicaSetGone(set.key, set.uid),
            Self::Migration(migration) => Self::MigrationGone(migration.key, migration.uid),
            Self::Lease(lease) => Self::LeaseGone(lease.key, lease.uid),
            other => other,
        }
    }
}
