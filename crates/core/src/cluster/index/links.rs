//! Which objects belong to which: pods on nodes, launchers and migrations of instances, instances of machines, budgets of guests.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::fact::{Budget, Instance, Key, Migration, Pod, Uid};
use crate::cluster::text::Text;

/// Sets of names under what they belong to. A set without members is not kept.
#[derive(Debug, Clone)]
pub(super) struct Members<K>(BTreeMap<K, Names>);

/// Names in order. Most sets have one member, and none has so many that inserting into the middle of a vector would be felt.
#[derive(Debug, Clone)]
enum Names {
    One(Key),
    #[allow(clippy::box_collection, reason = "it keeps the sets of one member small")]
    Many(Box<Vec<Key>>),
}

impl Names {
    fn as_slice(&self) -> &[Key] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }

    fn insert(&mut self, name: &Key) {
        let Err(position) = self.as_slice().binary_search(name) else { return };
        match self {
            Self::Many(names) => {
                if names.len() == names.capacity() {
                    // A vector that doubles would leave a quarter of all room unused.
                    names.reserve_exact(names.len() / 4 + 2);
                }
                names.insert(position, name.clone());
            }
            Self::One(known) => {
                let mut names = vec![known.clone()];
                names.insert(position, name.clone());
                *self = Self::Many(Box::new(names));
            }
        }
    }

    /// True if none is left.
    fn remove(&mut self, name: &Key) -> bool {
        let Ok(position) = self.as_slice().binary_search(name) else { return false };
        match self {
            Self::One(_) => return true,
            Self::Many(names) => drop(names.remove(position)),
        }
        if let Self::Many(names) = self
            && let [left] = names.as_slice()
        {
            *self = Self::One(left.clone());
        }
        false
    }
}

impl<K> Default for Members<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Members<K> {
    fn add(&mut self, of: &K, member: &Key) {
        match self.0.get_mut(of) {
            Some(members) => members.insert(member),
            None => drop(self.0.insert(of.clone(), Names::One(member.clone()))),
        }
    }

    fn remove(&mut self, of: &K, member: &Key) {
        if self.0.get_mut(of).is_some_and(|members| members.remove(member)) {
            self.0.remove(of);
        }
    }

    pub fn of<Q>(&self, of: &Q) -> impl Iterator<Item = &Key> + use<'_, K, Q>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.0.get(of).into_iter().flat_map(Names::as_slice)
    }
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Links {
    pub pods_on: Members<Text>,
    /// Launchers by the incarnation of the instance they run.
    pub launchers_of: Members<Uid>,
    pub instances_on: Members<Text>,
    pub migrations_of: Members<Key>,
    /// Migrations that are not over.
    pub unfinished: BTreeSet<Key>,
    /// Budgets by the name of the instance whose guest they protect.
    pub budgets_of: Members<Key>,
}

fn protected(budget: &Budget) -> Option<Key> {
    budget.protected_instance().map(|owner| Key::new(budget.key.namespace.clone(), owner.name.clone()))
}

impl Links {
    pub fn add_pod(&mut self, pod: &Pod) {
        if let Some(node) = &pod.node {
            self.pods_on.add(node, &pod.key);
        }
        if let Some(launcher) = pod.launcher() {
            self.launchers_of.add(&launcher.instance, &pod.key);
        }
    }

    pub fn remove_pod(&mut self, pod: &Pod) {
        if let Some(node) = &pod.node {
            self.pods_on.remove(node, &pod.key);
        }
        if let Some(launcher) = pod.launcher() {
            self.launchers_of.remove(&launcher.instance, &pod.key);
        }
    }

    pub fn add_instance(&mut self, instance: &Instance) {
        if !instance.node.is_empty() {
            self.instances_on.add(&instance.node, &instance.key);
        }
    }

    pub fn remove_instance(&mut self, instance: &Instance) {
        self.instances_on.remove(&instance.node, &instance.key);
    }

    pub fn add_migration(&mut self, migration: &Migration) {
        self.migrations_of.add(&migration.instance, &migration.key);
        if !migration.phase.is_final() {
            self.unfinished.insert(migration.key.clone());
        }
    }

    pub fn remove_migration(&mut self, migration: &Migration) {
        self.migrations_of.remove(&migration.instance, &migration.key);
        self.unfinished.remove(&migration.key);
    }

    pub fn add_budget(&mut self, budget: &Budget) {
        if let Some(instance) = protected(budget) {
            self.budgets_of.add(&instance, &budget.key);
        }
    }

    pub fn remove_budget(&mut self, budget: &Budget) {
        if let Some(instance) = protected(budget) {
            self.budgets_of.remove(&instance, &budget.key);
        }
    }
}
