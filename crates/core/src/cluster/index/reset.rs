//! Fresh lists: what they leave out is gone; see [`crate::cluster::table`] for what counts as newer than a list.

use std::borrow::Borrow;
use std::collections::BTreeSet;

use super::Index;
use crate::cluster::fact::{Budget, Fact, Key, Lease, Node, Pod, Uid};
use crate::cluster::ledger::Ledger;
use crate::cluster::subject::{Kind, Subject};
use crate::cluster::table::{ListedAt, Object, Table};
use crate::cluster::version::is_older;

/// Which table a list is about, how the end of one of its objects is told, and how its state is.
struct Of<T: Object> {
    table: fn(&mut Index) -> &mut Table<T>,
    seen: fn(Box<T>) -> Fact,
    gone: fn(T::Id, Uid) -> Fact,
}

macro_rules! of {
    ($table:ident, $seen:ident, $gone:ident) => {
        Of { table: |index| &mut index.$table, seen: Fact::$seen, gone: Fact::$gone }
    };
}

/// The objects in facts of one kind.
macro_rules! only {
    ($list:expr, $seen:ident) => {
        $list
            .into_iter()
            .filter_map(|fact| if let Fact::$seen(object) = fact { Some(object) } else { None })
            .collect::<Vec<_>>()
    };
}

impl Index {
    fn take_list<T: Object, B: Borrow<T> + Into<Box<T>>>(
        &mut self,
        of: &Of<T>,
        list: Vec<B>,
        at: &ListedAt,
        about: impl Fn(&T) -> bool,
    ) -> BTreeSet<Subject> {
        let mut touched = BTreeSet::new();
        for (id, uid) in (of.table)(self).contradicted(&list, at, about) {
            touched.extend(self.apply((of.gone)(id, uid)));
        }
        (of.table)(self).recall(&list, at);
        for object in list {
            touched.extend(self.apply((of.seen)(object.into())));
        }
        touched
    }

    /// A fresh list of one kind; of pods, the list of those that run guests.
    pub fn reset(&mut self, kind: Kind, list: Vec<Fact>, at: &ListedAt) -> BTreeSet<Subject> {
        match kind {
            Kind::Machine => {
                self.take_list(&of!(machines, Machine, MachineGone), only!(list, Machine), at, |_| true)
            }
            Kind::Instance => {
                self.take_list(&of!(instances, Instance, InstanceGone), only!(list, Instance), at, |_| true)
            }
            Kind::ReplicaSet => self.take_list(
                &of!(replica_sets, ReplicaSet, ReplicaSetGone),
                only!(list, ReplicaSet),
                at,
                |_| true,
            ),
            Kind::Migration => {
                self.take_list(&of!(migrations, Migration, MigrationGone), only!(list, Migration), at, |_| {
                    true
                })
            }
            Kind::Pod => {
                let is_launcher = |pod: &Pod| pod.launcher().is_some();
                self.take_list(&of!(pods, Pod, PodGone), only!(list, Pod), at, is_launcher)
            }
            Kind::Node => self.take_list(&of!(nodes, Node, NodeGone), only!(list, Node), at, |_| true),
            Kind::Budget => {
                self.budgets_visible = true;
                self.take_list(&of!(budgets, Budget, BudgetGone), only!(list, Budget), at, |_| true)
            }
            Kind::Lease => self.take_list(&of!(leases, Lease, LeaseGone), only!(list, Lease), at, |_| true),
            // Not in the index.
            Kind::Maintenance(_) | Kind::Policy => BTreeSet::new(),
        }
    }

    /// A fresh list of a node's pods.
    pub fn reset_pods(&mut self, node: &str, pods: Vec<Pod>, at: &ListedAt) -> BTreeSet<Subject> {
        self.take_list(&of!(pods, Pod, PodGone), pods, at, |pod| pod.node.as_deref() == Some(node))
    }

    /// The same, from facts.
    pub fn reset_on(&mut self, node: &str, pods: Vec<Fact>, at: &ListedAt) -> BTreeSet<Subject> {
        self.take_list(&of!(pods, Pod, PodGone), only!(pods, Pod), at, |pod| {
            pod.node.as_deref() == Some(node)
        })
    }

    /// The pods of a node are not followed any more, but for those that `stay`; whether the others are still there is not known.
    pub fn forget_pods_on(&mut self, node: &str, stay: impl Fn(&Pod) -> bool) {
        let keys: Vec<Key> = self.pods_on(node).filter(|pod| !stay(pod)).map(|pod| pod.key.clone()).collect();
        for key in keys {
            if let Some(pod) = self.pods.forget(&key) {
                self.links.remove_pod(&pod);
            }
        }
    }

    /// A fresh list of all nodes that are followed.
    pub fn reset_nodes(&mut self, nodes: Vec<Node>, at: &ListedAt) -> BTreeSet<Subject> {
        self.take_list(&of!(nodes, Node, NodeGone), nodes, at, |_| true)
    }

    /// A fresh list of all budgets.
    pub fn reset_budgets(&mut self, budgets: Vec<Budget>, at: &ListedAt) -> BTreeSet<Subject> {
        self.budgets_visible = true;
        self.take_list(&of!(budgets, Budget, BudgetGone), budgets, at, |_| true)
    }

    /// A fresh list of leases that covers those about which `about` says so.
    pub fn reset_leases(
        &mut self,
        leases: Vec<Box<Lease>>,
        at: &ListedAt,
        about: impl Fn(&Lease) -> bool,
    ) -> BTreeSet<Subject> {
        self.take_list(&of!(leases, Lease, LeaseGone), leases, at, about)
    }

    /// The ledger of running migrations as a list shows it.
    pub fn reset_ledger(&mut self, ledger: Ledger) {
        if is_older(&ledger.version, &self.ledger.version) {
            self.rewinds += 1;
        }
        if ledger != self.ledger {
            self.ledger = ledger;
            self.line_moved = true;
        }
    }
}
