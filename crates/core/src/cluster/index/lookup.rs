//! The questions that decisions ask.

use std::collections::BTreeSet;

use super::{Index, Revision, VmVisibility};
use crate::cluster::fact::{
    Budget, Existence, Instance, Key, Lease, Machine, Migration, Node, Pod, ReplicaSet, Uid,
};
use crate::cluster::ledger::Ledger;
use crate::cluster::place::Places;
use crate::cluster::subject::{Kind, Subject, Trouble};
use crate::cluster::transfer::Sample;

fn oldest_first<T>(mut found: Vec<&T>, by: impl Fn(&T) -> (Option<jiff::Timestamp>, &Key)) -> Vec<&T> {
    found.sort_by(|a, b| by(a).cmp(&by(b)));
    found
}

impl Index {
    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(&name.to_owned())
    }

    /// All nodes that are followed, by name.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.nodes.iter()
    }

    /// The pod of this name.
    pub fn pod(&self, key: &Key) -> Option<&Pod> {
        self.pods.get(key)
    }

    /// When the pod under this name last changed.
    pub fn pod_revision(&self, key: &Key) -> Revision {
        self.pods.revision(key)
    }

    /// All pods that are followed, by namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter()
    }

    /// The pods that are bound to a node, as far as they are followed.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Pod> {
        self.links.pods_on.of(node).filter_map(|key| self.pod(key))
    }

    /// The pods that run guests.
    pub fn launchers(&self) -> impl Iterator<Item = &Pod> {
        self.pods().filter(|pod| pod.launcher().is_some())
    }

    /// The pod of this name, if it runs a guest.
    pub fn launcher(&self, key: &Key) -> Option<&Pod> {
        self.pod(key).filter(|pod| pod.launcher().is_some())
    }

    /// The launchers of one incarnation of an instance, in any order.
    pub fn any_launchers_of(&self, instance: &Uid) -> impl Iterator<Item = &Pod> {
        self.links.launchers_of.of(instance).filter_map(|key| self.pod(key))
    }

    /// The launchers of one incarnation of an instance, oldest first.
    pub fn launchers_of(&self, instance: &Uid) -> Vec<&Pod> {
        oldest_first(self.any_launchers_of(instance).collect(), |pod| (pod.created, &pod.key))
    }

    /// The instance a launcher pod runs, if it is known and this is the pod that runs it.
    pub fn instance_of(&self, pod: &Pod) -> Option<&Instance> {
        let instance = self.instance(&pod.instance_key()?)?;
        let same = pod.controller.as_ref().is_none_or(|owner| owner.uid == instance.uid);
        (same && pod.node.as_deref() == Some(instance.node.as_str())).then_some(instance)
    }

    /// The budgets that cover a pod. More than one makes the pod impossible to evict.
    pub fn budgets_of<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Budget> {
        self.budgets
            .starting_at(Key::new(pod.key.namespace.clone(), ""))
            .take_while(move |budget| budget.key.namespace == pod.key.namespace)
            .filter(move |budget| pod.labels.satisfies(&budget.selector))
    }

    /// The budgets that were made to protect the guests of instances of this name, whichever incarnation they belong to.
    pub fn budgets_protecting(&self, instance: &Key) -> impl Iterator<Item = &Budget> {
        self.links.budgets_of.of(instance).filter_map(|key| self.budget(key))
    }

    /// Without the right to read budgets a drain can still go on, but only by trying.
    pub fn budgets_are_visible(&self) -> bool {
        self.budgets_visible
    }

    /// The budget of this name.
    pub fn budget(&self, key: &Key) -> Option<&Budget> {
        self.budgets.get(key)
    }

    /// When the budget under this name last changed.
    pub fn budget_revision(&self, key: &Key) -> Revision {
        self.budgets.revision(key)
    }

    /// The machine of this name.
    pub fn machine(&self, key: &Key) -> Option<&Machine> {
        self.machines.get(key)
    }

    /// All machines, by name.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter()
    }

    /// The instance of this name, of whichever incarnation.
    pub fn instance(&self, key: &Key) -> Option<&Instance> {
        self.instances.get(key)
    }

    /// All instances, by name.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter()
    }

    /// The instances of one namespace.
    pub fn instances_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Instance> {
        self.instances
            .starting_at(Key::new(namespace, ""))
            .take_while(move |instance| instance.key.namespace == namespace)
    }

    /// The instances whose `status.nodeName` is this node.
    pub fn instances_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Instance> {
        self.links.instances_on.of(node).filter_map(|key| self.instance(key))
    }

    /// The replica set of this name.
    pub fn replica_set(&self, key: &Key) -> Option<&ReplicaSet> {
        self.replica_sets.get(key)
    }

    /// The migration of this name.
    pub fn migration(&self, key: &Key) -> Option<&Migration> {
        self.migrations.get(key)
    }

    /// All migrations, finished ones included.
    pub fn migrations(&self) -> impl Iterator<Item = &Migration> {
        self.migrations.iter()
    }

    /// The migrations that are not over.
    pub fn unfinished(&self) -> impl Iterator<Item = &Migration> {
        self.links.unfinished.iter().filter_map(|key| self.migration(key))
    }

    /// The migrations of one instance, oldest first.
    pub fn migrations_of(&self, instance: &Key) -> Vec<&Migration> {
        let keys = self.links.migrations_of.of(instance);
        oldest_first(keys.filter_map(|key| self.migration(key)).collect(), |one| (one.created, &one.key))
    }

    /// The ledger of running migrations.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How often the ledger was seen to go back to an earlier version: what was written before that counts for nothing.
    pub fn rewinds(&self) -> u64 {
        self.rewinds
    }

    /// How the last attempt for a subject failed.
    pub fn trouble(&self, kind: Kind, key: &Key) -> Option<&Trouble> {
        self.troubles.get(&Subject::new(kind, key.clone()))
    }

    /// All subjects of the controllers of virtual machines, for the first look.
    pub fn subjects(&self) -> BTreeSet<Subject> {
        let of = |kind| move |key: &Key| Subject::new(kind, key.clone());
        self.machines
            .ids()
            .map(of(Kind::Machine))
            .chain(self.instances.ids().map(of(Kind::Instance)))
            .chain(self.replica_sets.ids().map(of(Kind::ReplicaSet)))
            .chain(self.migrations.ids().map(of(Kind::Migration)))
            .collect()
    }

    /// What can be seen of virtual machines at all.
    pub fn vm_visibility(&self) -> &VmVisibility {
        &self.vm_visibility
    }

    /// What other nodes have to offer; only where a forecast is made.
    pub fn places(&self) -> Option<&Places> {
        self.places.as_deref()
    }

    /// What was last read about the copy of an instance's memory, of whichever migration.
    pub fn transfer(&self, instance: &Key) -> Option<&Sample> {
        self.transfers.get(instance)
    }

    /// What was found when a DaemonSet was looked up; `None` if that was not done yet.
    pub fn daemon_set(&self, key: &Key) -> Option<&Existence> {
        self.daemon_sets.get(key)
    }

    /// Whether an eviction was refused because this namespace is being deleted. That is never taken back.
    pub fn namespace_is_terminating(&self, name: &str) -> bool {
        self.terminating_namespaces.contains(name)
    }

    /// The lease of this name.
    pub fn lease(&self, key: &Key) -> Option<&Lease> {
        self.leases.get(key)
    }

    /// All leases that are followed, by name.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter()
    }
}
