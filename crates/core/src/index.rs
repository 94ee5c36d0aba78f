//! All facts, arranged for the questions decisions ask.
//!
//! The index is a value: tests and the engine change it only through [`Index::apply`] and the `reset_*` functions,
//! which replace what a fresh list contradicts. Every change gets a number, so that a decision can tell whether
//! anything it depends on moved since it was last made.

use std::collections::{BTreeMap, BTreeSet};

use crate::fact::{Budget, Existence, Fact, Key, Lease, Node, Pod, Uid, VmRole};
use crate::machines::{Instance, Kind, Machines, Seen};
use crate::place::Places;
use crate::transfer::Sample;
use crate::version;

/// A position in the order of changes this index has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Revision(u64);

/// What can be seen of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sight {
    /// Nobody has looked yet.
    #[default]
    Unlooked,
    /// The cluster knows no such kinds.
    Absent,
    Clear,
    /// We may not look, or cannot.
    Denied(String),
}

#[derive(Debug, Clone, Default)]
pub struct Index {
    revision: Revision,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<Key, (Revision, Pod)>,
    pods_by_node: BTreeMap<String, BTreeSet<Key>>,
    budgets: BTreeMap<Key, (Revision, Budget)>,
    daemon_sets: BTreeMap<Key, Existence>,
    terminating_namespaces: BTreeSet<String>,
    leases: BTreeMap<Key, Lease>,
    budgets_visible: bool,
    machines: Machines,
    sight: Sight,
    transfers: BTreeMap<Key, Sample>,
    places: Option<Box<Places>>,
}

impl Index {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    fn advance(&mut self) -> Revision {
        self.revision.0 += 1;
        self.revision
    }

    pub fn apply(&mut self, fact: Fact) {
        let revision = self.advance();
        match fact {
            Fact::Node(node) => {
                if self.nodes.get(&node.name).is_none_or(|known| !is_older(&node, known)) {
                    self.nodes.insert(node.name.clone(), *node);
                }
            }
            Fact::NodeGone(name) => {
                self.nodes.remove(&name);
            }
            Fact::Pod(pod) => self.insert_pod(*pod, revision),
            Fact::PodGone(key, uid) => self.remove_pod(&key, &uid),
            Fact::Budget(budget) => self.insert_budget(*budget, revision),
            Fact::BudgetGone(key) => {
                self.budgets.remove(&key);
            }
            Fact::DaemonSet(key, existence) => {
                self.daemon_sets.insert(key, existence);
            }
            Fact::NamespaceTerminating(name) => {
                self.terminating_namespaces.insert(name);
            }
            Fact::Lease(lease) => {
                let known = self.leases.get(&lease.key).map(|known| known.resource_version.as_str());
                if known.is_none_or(|known| !version::is_older(&lease.resource_version, known)) {
                    self.leases.insert(lease.key.clone(), lease);
                }
            }
            Fact::LeaseGone(key) => {
                self.leases.remove(&key);
            }
            Fact::Machine(seen) => {
                self.machines.apply(seen);
            }
            Fact::Transfers(samples) => self.transfers.extend(samples),
        }
    }

    fn insert_pod(&mut self, pod: Pod, revision: Revision) {
        if let Some((_, known)) = self.pods.get(&pod.key) {
            if *known == pod {
                return;
            }
            if known.node != pod.node {
                let left = known.node.clone();
                self.unlink(&pod.key, left.as_deref());
            }
        }
        if let Some(node) = &pod.node {
            self.pods_by_node.entry(node.clone()).or_default().insert(pod.key.clone());
        }
        self.pods.insert(pod.key.clone(), (revision, pod));
    }

    fn remove_pod(&mut self, key: &Key, uid: &Uid) {
        // A late "gone" of an earlier incarnation must not remove its successor.
        if self.pods.get(key).is_some_and(|(_, pod)| pod.uid == *uid)
            && let Some((_, pod)) = self.pods.remove(key)
        {
            self.unlink(key, pod.node.as_deref());
        }
    }

    fn unlink(&mut self, key: &Key, node: Option<&str>) {
        if let Some(node) = node
            && let Some(keys) = self.pods_by_node.get_mut(node)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.pods_by_node.remove(node);
            }
        }
    }

    fn insert_budget(&mut self, budget: Budget, revision: Revision) {
        if self.budgets.get(&budget.key).is_none_or(|(_, known)| *known != budget) {
            self.budgets.insert(budget.key.clone(), (revision, budget));
        }
    }

    /// A fresh list of a node's pods: what is not in it is gone from that node.
    pub fn reset_pods(&mut self, node: &str, pods: Vec<Pod>) {
        let listed: BTreeSet<(Key, Uid)> =
            pods.iter().map(|pod| (pod.key.clone(), pod.uid.clone())).collect();
        let stale: Vec<(Key, Uid)> = self
            .pods_on(node)
            .map(|pod| (pod.key.clone(), pod.uid.clone()))
            .filter(|known| !listed.contains(known))
            .collect();
        for (key, uid) in stale {
            self.apply(Fact::PodGone(key, uid));
        }
        for pod in pods {
            self.apply(Fact::Pod(Box::new(pod)));
        }
    }

    pub fn reset_nodes(&mut self, nodes: Vec<Node>) {
        self.advance();
        self.nodes = nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
    }

    pub fn reset_budgets(&mut self, budgets: Vec<Budget>) {
        self.budgets_visible = true;
        let listed: BTreeSet<Key> = budgets.iter().map(|budget| budget.key.clone()).collect();
        self.budgets.retain(|key, _| listed.contains(key));
        for budget in budgets {
            self.apply(Fact::Budget(Box::new(budget)));
        }
    }

    /// Leases as a fresh list shows them: the truth about these keys, whatever was known.
    pub fn reset_leases(&mut self, keys: impl IntoIterator<Item = Key>, leases: &[Lease]) {
        self.advance();
        for key in keys {
            match leases.iter().find(|lease| lease.key == key) {
                Some(lease) => drop(self.leases.insert(key, lease.clone())),
                None => drop(self.leases.remove(&key)),
            }
        }
    }

    /// A fresh list of one kind of things around virtual machines.
    pub fn reset_machines(&mut self, kind: Kind, list: Vec<Seen>) {
        self.advance();
        self.machines.reset(kind, list);
    }

    pub fn configure(&mut self, config: crate::machines::Config) {
        self.advance();
        self.machines.configure(config);
    }

    pub fn set_sight(&mut self, sight: Sight) {
        self.advance();
        self.sight = sight;
    }

    pub fn sight(&self) -> &Sight {
        &self.sight
    }

    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// The instance a launcher pod runs, if it is known and this is the pod that runs it.
    pub fn instance_of(&self, pod: &Pod) -> Option<&Instance> {
        let VmRole::Launcher(Some(name)) = &pod.vm else { return None };
        let instance = self.machines.instance(&Key::new(pod.key.namespace.clone(), name.clone()))?;
        let same = pod.controller.as_ref().is_none_or(|owner| owner.uid == instance.uid);
        (same && pod.node.as_deref() == Some(instance.node.as_str())).then_some(instance)
    }

    /// What other nodes have to offer to guests, for those who foretell. A drain leaves that to the scheduler.
    pub fn set_places(&mut self, places: Places) {
        self.advance();
        self.places = Some(Box::new(places));
    }

    pub fn places(&self) -> Option<&Places> {
        self.places.as_deref()
    }

    /// What was last read about the copy of an instance's memory, of whichever migration.
    pub fn transfer(&self, instance: &Key) -> Option<&Sample> {
        self.transfers.get(instance)
    }

    /// Without the right to read budgets we can still drain, but only by trying.
    pub fn budgets_are_visible(&self) -> bool {
        self.budgets_visible
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn pod(&self, key: &Key) -> Option<&Pod> {
        self.pods.get(key).map(|(_, pod)| pod)
    }

    /// When the pod under this name last changed.
    pub fn pod_revision(&self, key: &Key) -> Revision {
        self.pods.get(key).map_or(Revision::default(), |(revision, _)| *revision)
    }

    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values().map(|(_, pod)| pod)
    }

    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Pod> {
        self.pods_by_node.get(node).into_iter().flatten().filter_map(|key| self.pod(key))
    }

    /// The budgets that cover a pod. More than one makes the pod impossible to evict.
    pub fn budgets_of<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Budget> {
        let from = Key::new(pod.key.namespace.clone(), "");
        self.budgets
            .range(from..)
            .take_while(move |(key, _)| key.namespace == pod.key.namespace)
            .map(|(_, (_, budget))| budget)
            .filter(move |budget| budget.selector.matches(&pod.labels))
    }

    pub fn budget(&self, key: &Key) -> Option<&Budget> {
        self.budgets.get(key).map(|(_, budget)| budget)
    }

    pub fn budget_revision(&self, key: &Key) -> Revision {
        self.budgets.get(key).map_or(Revision::default(), |(revision, _)| *revision)
    }

    pub fn daemon_set(&self, key: &Key) -> Option<&Existence> {
        self.daemon_sets.get(key)
    }

    pub fn namespace_is_terminating(&self, name: &str) -> bool {
        self.terminating_namespaces.contains(name)
    }

    pub fn lease(&self, key: &Key) -> Option<&Lease> {
        self.leases.get(key)
    }
}

/// Answers to our own writes may overtake the watch: an older state of the same node must not come back after them.
fn is_older(seen: &Node, known: &Node) -> bool {
    seen.uid == known.uid && version::is_older(&seen.resource_version, &known.resource_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{budget, pod};

    #[test]
    fn a_late_deletion_of_an_earlier_incarnation_leaves_the_new_pod() {
        let mut index = Index::new();
        let old = pod("a").on("n1");
        let new = pod("a").on("n2").uid("second");
        index.apply(Fact::Pod(Box::new(old.clone())));
        index.apply(Fact::Pod(Box::new(new.clone())));
        index.apply(Fact::PodGone(old.key.clone(), old.uid.clone()));
        assert_eq!(index.pod(&new.key), Some(&new));
        assert_eq!(index.pods_on("n1").count(), 0);
        assert_eq!(index.pods_on("n2").count(), 1);
    }

    #[test]
    fn a_fresh_list_removes_what_it_does_not_contain_and_touches_no_other_node() {
        let mut index = Index::new();
        for known in [pod("a").on("n1"), pod("b").on("n1"), pod("c").on("n2")] {
            index.apply(Fact::Pod(Box::new(known)));
        }
        index.reset_pods("n1", vec![pod("b").on("n1")]);
        let left: Vec<_> = index.pods().map(|pod| pod.key.name.as_str()).collect();
        assert_eq!(left, ["b", "c"]);
    }

    #[test]
    fn an_event_that_changes_nothing_does_not_move_the_pods_revision() {
        let mut index = Index::new();
        let pod = pod("a").on("n1");
        index.apply(Fact::Pod(Box::new(pod.clone())));
        let before = index.pod_revision(&pod.key);
        index.apply(Fact::Pod(Box::new(pod.clone())));
        assert_eq!(index.pod_revision(&pod.key), before);
    }

    #[test]
    fn budgets_cover_pods_of_their_own_namespace_only() {
        let mut index = Index::new();
        index.reset_budgets(vec![budget("web"), {
            let mut other = budget("other");
            other.key.namespace = "elsewhere".into();
            other
        }]);
        let pod = pod("a").labelled("app", "web");
        let names: Vec<_> = index.budgets_of(&pod).map(|budget| budget.key.name.as_str()).collect();
        assert_eq!(names, ["web"]);
    }
}
