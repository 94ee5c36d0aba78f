//! The questions that controllers ask.

use super::Machines;
use crate::fact::{Key, Uid};
use crate::machines::fact::{Host, Instance, Launcher, Machine, Migration, ReplicaSet};
use crate::machines::guard::Guard;
use crate::machines::slots::Ledger;

impl Machines {
    pub fn machine(&self, key: &Key) -> Option<&Machine> {
        self.machines.get(key)
    }

    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values()
    }

    pub fn instance(&self, key: &Key) -> Option<&Instance> {
        self.instances.get(key)
    }

    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    pub fn instances_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Instance> {
        self.instances
            .range(Key::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, instance)| instance)
    }

    pub fn instances_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Instance> + use<'a> {
        self.instances_on.get(node).into_iter().flatten().filter_map(|key| self.instances.get(key))
    }

    /// The budgets of instances of this name, whichever incarnation they belong to.
    pub fn guards_of(&self, instance: &Key) -> impl Iterator<Item = &Guard> {
        self.guards_of.get(instance).into_iter().flatten().filter_map(|key| self.guards.get(key))
    }

    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name)
    }

    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &Host> {
        self.hosts.values()
    }

    pub fn replica_set(&self, key: &Key) -> Option<&ReplicaSet> {
        self.sets.get(key)
    }

    pub fn migration(&self, key: &Key) -> Option<&Migration> {
        self.migrations.get(key)
    }

    pub fn migrations(&self) -> impl Iterator<Item = &Migration> {
        self.migrations.values()
    }

    pub fn unfinished(&self) -> impl Iterator<Item = &Migration> {
        self.unfinished.iter().filter_map(|key| self.migrations.get(key))
    }

    /// The migrations of one instance, oldest first.
    pub fn migrations_of(&self, instance: &Key) -> Vec<&Migration> {
        let keys = self.migrations_of.get(instance).into_iter().flatten();
        let mut found: Vec<_> = keys.filter_map(|key| self.migrations.get(key)).collect();
        found.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        found
    }

    pub fn launcher(&self, key: &Key) -> Option<&Launcher> {
        self.launchers.get(key)
    }

    /// The launchers of one incarnation of an instance, in any order.
    pub fn any_launchers_of(&self, instance: &Uid) -> impl Iterator<Item = &Launcher> {
        let keys = self.launchers_of.get(instance).into_iter().flatten();
        keys.filter_map(|key| self.launchers.get(key))
    }

    /// The launchers of one incarnation of an instance, oldest first.
    pub fn launchers_of(&self, instance: &Uid) -> Vec<&Launcher> {
        let mut found: Vec<_> = self.any_launchers_of(instance).collect();
        found.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        found
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
