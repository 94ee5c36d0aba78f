//! All facts, arranged for the questions decisions ask.
//!
//! The index is a value: tests and the engine change it only through [`Index::apply`] and the `reset` functions, which take in
//! fresh lists. Every change says which subjects have to be looked at again, so a burst of events costs as many decisions as there are
//! subjects touched; and it gets a number, so that a decision can tell whether anything it depends on moved since it was last made.

mod links;
mod lookup;
mod reset;
#[cfg(test)]
mod tests;
mod touch;

use std::collections::{BTreeMap, BTreeSet};

use self::links::Links;
use super::fact::{
    Budget, Existence, Fact, Instance, Key, Lease, Machine, Migration, MigrationPhase, Node, Pod, ReplicaSet,
    Uid,
};
use super::ledger::Ledger;
use super::place::Places;
use super::settings::Config;
use super::subject::{Kind, Subject, Trouble};
use super::table::{Kept, Object, Table};
pub use super::table::{ListedAt, Revision};
use super::transfer::Sample;
use super::version;

/// What can be seen of virtual machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum VmVisibility {
    /// Their kinds were not asked for yet.
    #[default]
    NotYetRead,
    /// The cluster knows no such kinds.
    NotInstalled,
    /// Their objects are followed.
    Readable,
    /// We may not look, or cannot.
    Denied(String),
}

/// All that is known of the cluster.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// The cluster's settings for virtual machines.
    pub config: Config,
    revision: Revision,
    nodes: Table<Node>,
    pods: Table<Pod>,
    budgets: Table<Budget>,
    machines: Table<Machine>,
    instances: Table<Instance>,
    replica_sets: Table<ReplicaSet>,
    migrations: Table<Migration>,
    links: Links,
    leases: Table<Lease>,
    daemon_sets: BTreeMap<Key, Existence>,
    terminating_namespaces: BTreeSet<String>,
    budgets_visible: bool,
    vm_visibility: VmVisibility,
    transfers: BTreeMap<Key, Sample>,
    places: Option<Box<Places>>,
    ledger: Ledger,
    rewinds: u64,
    /// A slot for migrations was taken or became free, or there are more or fewer of them.
    line_moved: bool,
    troubles: BTreeMap<Subject, Trouble>,
}

impl Index {
    /// An index that knows nothing, with KubeVirt's default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// An index that knows nothing but the settings of the cluster.
    pub fn with(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// The number of the last change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    fn advance(&mut self) -> Revision {
        self.revision.0 += 1;
        self.revision
    }

    /// Takes in one observation and says who has to be looked at again.
    pub fn apply(&mut self, fact: Fact) -> BTreeSet<Subject> {
        let now = self.advance();
        let mut touched = BTreeSet::new();
        match fact {
            Fact::Machine(object) if object.is_ending() => {
                self.end_machine(&object.key, &object.uid, &mut touched);
            }
            Fact::Instance(object) if object.is_ending() => {
                self.end_instance(&object.key, &object.uid, &mut touched);
            }
            Fact::Migration(object) if object.is_ending() => {
                self.end_migration(&object.key, &object.uid, &mut touched);
            }
            Fact::Node(node) => self.keep_node(node, now, &mut touched),
            Fact::NodeGone(name, uid) => self.end_node(&name, &uid, &mut touched),
            Fact::NodeAbsent(name) => {
                if let Some(uid) = self.node(&name).map(|node| node.uid.clone()) {
                    self.end_node(&name, &uid, &mut touched);
                }
            }
            Fact::Pod(pod) => self.keep_pod(pod, now, &mut touched),
            Fact::PodGone(key, uid) => {
                if let Some(gone) = self.pods.remove(&key, &uid) {
                    self.links.remove_pod(&gone);
                    self.touch_around_pod(&gone, &mut touched);
                }
            }
            Fact::Budget(budget) => self.keep_budget(budget, now, &mut touched),
            Fact::BudgetGone(key, uid) => {
                if let Some(gone) = self.budgets.remove(&key, &uid) {
                    self.links.remove_budget(&gone);
                    touch_protected(&gone, &mut touched);
                }
            }
            Fact::Machine(machine) => self.keep_machine(machine, now, &mut touched),
            Fact::MachineGone(key, uid) => self.end_machine(&key, &uid, &mut touched),
            Fact::Instance(instance) => self.keep_instance(instance, now, &mut touched),
            Fact::InstanceGone(key, uid) => self.end_instance(&key, &uid, &mut touched),
            Fact::ReplicaSet(set) => {
                let key = set.key.clone();
                if self.replica_sets.keep(set, now) != Kept::Unchanged {
                    touched.insert(Subject::new(Kind::ReplicaSet, key));
                }
            }
            Fact::ReplicaSetGone(key, uid) => drop(self.replica_sets.remove(&key, &uid)),
            Fact::Migration(migration) => self.keep_migration(migration, now, &mut touched),
            Fact::MigrationGone(key, uid) => self.end_migration(&key, &uid, &mut touched),
            Fact::DaemonSet(key, existence) => drop(self.daemon_sets.insert(key, existence)),
            Fact::NamespaceTerminating(name) => drop(self.terminating_namespaces.insert(name)),
            Fact::Lease(lease) => {
                let key = lease.key.clone();
                if self.leases.keep(lease, now) != Kept::Unchanged {
                    touched.insert(Subject::new(Kind::Lease, key));
                }
            }
            Fact::LeaseGone(key, uid) => self.end_lease(key, &uid, &mut touched),
            Fact::LeaseAbsent(key) => {
                if let Some(uid) = self.lease(&key).map(|lease| lease.uid.clone()) {
                    self.end_lease(key, &uid, &mut touched);
                }
            }
            Fact::Transfers(samples) => self.transfers.extend(samples),
        }
        touched
    }

    fn keep_node(&mut self, node: Box<Node>, now: Revision, touched: &mut BTreeSet<Subject>) {
        let name = node.name.clone();
        let before = match self.nodes.keep(node, now) {
            Kept::Unchanged => return,
            Kept::Added => None,
            Kept::Replaced(before) => Some(before),
        };
        touched.insert(Subject::node(&name));
        // Guests are moved away by what is on their node; its health and labels are nothing to them.
        let on_it = |node: &Node| (node.unschedulable, node.taints.clone());
        if before.as_ref().map(on_it) != self.nodes.get(&name).map(on_it) {
            self.touch_on(&name, touched);
        }
    }

    fn end_node(&mut self, name: &String, uid: &Uid, touched: &mut BTreeSet<Subject>) {
        if self.nodes.remove(name, uid).is_some() {
            touched.insert(Subject::node(name));
            self.touch_on(name, touched);
        }
    }

    fn end_lease(&mut self, key: Key, uid: &Uid, touched: &mut BTreeSet<Subject>) {
        if self.leases.remove(&key, uid).is_some() {
            touched.insert(Subject::new(Kind::Lease, key));
        }
    }

    fn keep_pod(&mut self, pod: Box<Pod>, now: Revision, touched: &mut BTreeSet<Subject>) {
        let key = pod.key.clone();
        match self.pods.keep(pod, now) {
            Kept::Unchanged => return,
            Kept::Added => {}
            Kept::Replaced(before) => self.links.remove_pod(&before),
        }
        if let Some(pod) = self.pods.get(&key) {
            self.links.add_pod(pod);
            self.touch_around_pod(pod, touched);
        }
    }

    fn keep_budget(&mut self, budget: Box<Budget>, now: Revision, touched: &mut BTreeSet<Subject>) {
        let key = budget.key.clone();
        match self.budgets.keep(budget, now) {
            Kept::Unchanged => return,
            Kept::Added => {}
            Kept::Replaced(before) => {
                self.links.remove_budget(&before);
                touch_protected(&before, touched);
            }
        }
        if let Some(budget) = self.budgets.get(&key) {
            self.links.add_budget(budget);
            touch_protected(budget, touched);
        }
    }

    fn keep_machine(&mut self, machine: Box<Machine>, now: Revision, touched: &mut BTreeSet<Subject>) {
        let (key, uid) = (machine.key.clone(), machine.uid.clone());
        match self.machines.keep(machine, now) {
            Kept::Unchanged => return,
            // Its instances may have been heard of before, and were taken for orphans.
            Kept::Added => self.touch_owned(&uid, touched),
            Kept::Replaced(_) => {}
        }
        touched.insert(Subject::new(Kind::Machine, key));
    }

    fn end_machine(&mut self, key: &Key, uid: &Uid, touched: &mut BTreeSet<Subject>) {
        if self.machines.remove(key, uid).is_some() {
            self.troubles.remove(&Subject::new(Kind::Machine, key.clone()));
            self.touch_owned(uid, touched);
        }
    }

    fn keep_instance(&mut self, instance: Box<Instance>, now: Revision, touched: &mut BTreeSet<Subject>) {
        let key = instance.key.clone();
        let is_over = instance.is_copied();
        let was_over = match self.instances.keep(instance, now) {
            Kept::Unchanged => return,
            Kept::Added => false,
            Kept::Replaced(before) => {
                self.links.remove_instance(&before);
                before.is_copied()
            }
        };
        self.line_moved |= is_over && !was_over;
        if let Some(instance) = self.instances.get(&key) {
            self.links.add_instance(instance);
        }
        self.touch_around_instance(&key, touched);
    }

    fn end_instance(&mut self, key: &Key, uid: &Uid, touched: &mut BTreeSet<Subject>) {
        let mut around = BTreeSet::new();
        self.touch_around_instance(key, &mut around);
        if let Some(gone) = self.instances.remove(key, uid) {
            self.links.remove_instance(&gone);
            self.transfers.remove(key);
            self.troubles.remove(&Subject::new(Kind::Instance, key.clone()));
            touched.extend(around);
        }
    }

    fn keep_migration(&mut self, migration: Box<Migration>, now: Revision, touched: &mut BTreeSet<Subject>) {
        let (key, instance) = (migration.key.clone(), migration.instance.clone());
        let phase = migration.phase;
        let was = match self.migrations.keep(migration, now) {
            Kept::Unchanged => return,
            Kept::Added => None,
            Kept::Replaced(before) => {
                self.links.remove_migration(&before);
                Some(before.phase)
            }
        };
        if let Some(migration) = self.migrations.get(&key) {
            self.links.add_migration(migration);
        }
        touched.insert(Subject::new(Kind::Migration, key));
        // The machine shows whether its guest is on its way, and other migrations of that guest wait for the end of this one.
        self.touch_around_instance(&instance, touched);
        self.line_moved |= phase.is_final() && !was.is_some_and(MigrationPhase::is_final);
        if phase == MigrationPhase::Pending && was != Some(MigrationPhase::Pending) {
            self.touch_scheduling(touched);
        }
    }

    fn end_migration(&mut self, key: &Key, uid: &Uid, touched: &mut BTreeSet<Subject>) {
        if let Some(gone) = self.migrations.remove(key, uid) {
            self.links.remove_migration(&gone);
            self.troubles.remove(&Subject::new(Kind::Migration, key.clone()));
            self.touch_around_instance(&gone.instance, touched);
            self.line_moved = true;
        }
    }

    /// The settings of the cluster changed.
    pub fn configure(&mut self, config: Config) -> BTreeSet<Subject> {
        self.advance();
        let mut touched = BTreeSet::new();
        if self.config != config {
            self.config = config;
            self.line_moved = true;
            // The key of the drain taint or the default strategy may have changed.
            touched.extend(self.instances.ids().map(|key| Subject::new(Kind::Instance, key.clone())));
        }
        touched
    }

    /// The ledger of running migrations was written, or an event showed it.
    pub fn enter(&mut self, ledger: Ledger) {
        if !version::is_older(&ledger.version, &self.ledger.version) && ledger != self.ledger {
            self.ledger = ledger;
            self.line_moved = true;
        }
    }

    /// How the last attempt for a subject ended. True if that is news.
    pub fn note(&mut self, subject: &Subject, trouble: Option<Trouble>) -> bool {
        let known = self.troubles.get(subject);
        if known == trouble.as_ref() {
            return false;
        }
        match trouble {
            Some(trouble) => self.troubles.insert(subject.clone(), trouble),
            None => self.troubles.remove(subject),
        };
        true
    }

    /// Whether something has happened since the last time for which it may be the turn of a waiting migration.
    pub fn take_line_moved(&mut self) -> bool {
        std::mem::take(&mut self.line_moved)
    }

    /// For tests in which what is gone comes back as it was.
    #[cfg(test)]
    pub(crate) fn forget_gone(&mut self) {
        self.nodes.forget_gone();
        self.pods.forget_gone();
        self.budgets.forget_gone();
        self.machines.forget_gone();
        self.instances.forget_gone();
        self.replica_sets.forget_gone();
        self.migrations.forget_gone();
        self.leases.forget_gone();
    }

    /// Notes what can be seen of virtual machines.
    pub fn set_vm_visibility(&mut self, vm_visibility: VmVisibility) {
        self.advance();
        self.vm_visibility = vm_visibility;
    }

    /// What other nodes have to offer to guests, for those who foretell. A drain leaves that to the scheduler.
    pub fn set_places(&mut self, places: Places) {
        self.advance();
        self.places = Some(Box::new(places));
    }
}

/// The guest that a budget protects has to be looked at.
fn touch_protected(budget: &Budget, touched: &mut BTreeSet<Subject>) {
    if let Some(instance) = budget.protected_instance() {
        let key = Key::new(budget.key.namespace.clone(), instance.name.clone());
        touched.insert(Subject::new(Kind::Instance, key));
    }
}
