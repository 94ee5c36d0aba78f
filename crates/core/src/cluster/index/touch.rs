//! Who has to be looked at again when something around them has changed.

use std::collections::BTreeSet;

use super::Index;
use crate::cluster::fact::{Key, MigrationPhase, Pod, Uid};
use crate::cluster::subject::{Kind, Subject};

impl Index {
    /// The guests on a node.
    pub(super) fn touch_on(&self, node: &str, touched: &mut BTreeSet<Subject>) {
        let there = self.links.instances_on.of(node);
        touched.extend(there.map(|key| Subject::new(Kind::Instance, key.clone())));
    }

    /// The instance of a machine, which has its name.
    pub(super) fn touch_owned(&self, machine: &Key, uid: &Uid, touched: &mut BTreeSet<Subject>) {
        let theirs = self.instances.get(machine).filter(|instance| instance.is_owned_by(uid));
        touched.extend(theirs.map(|instance| Subject::new(Kind::Instance, instance.key.clone())));
    }

    /// The guest that a pod runs, and those around it.
    pub(super) fn touch_around_pod(&self, pod: &Pod, touched: &mut BTreeSet<Subject>) {
        if let Some(launcher) = pod.launcher() {
            // A launcher that does not say its instance's name still tells which incarnation it runs.
            let name = launcher.instance_name.clone().unwrap_or_default();
            self.touch_around_instance(&Key::new(pod.key.namespace.clone(), name), touched);
        }
    }

    /// An instance, its machine or set, and its migrations.
    pub(super) fn touch_around_instance(&self, key: &Key, touched: &mut BTreeSet<Subject>) {
        touched.insert(Subject::new(Kind::Instance, key.clone()));
        if self.machines.contains(key) {
            touched.insert(Subject::new(Kind::Machine, key.clone()));
        }
        for migration in self.links.migrations_of.of(key) {
            touched.insert(Subject::new(Kind::Migration, migration.clone()));
        }
        let owner = self.instances.get(key).and_then(|instance| instance.owner.as_ref());
        match owner {
            Some(owner) if owner.kind == "VirtualMachineInstanceReplicaSet" => {
                let set = Key::new(key.namespace.clone(), owner.name.clone());
                touched.insert(Subject::new(Kind::ReplicaSet, set));
            }
            Some(_) => {}
            // An instance without an owner may be one a set wants to adopt.
            None => touched.extend(
                self.replica_sets
                    .ids()
                    .filter(|set| set.namespace == key.namespace)
                    .map(|set| Subject::new(Kind::ReplicaSet, set.clone())),
            ),
        }
    }

    /// A migration that finds no place for its target gives way when others wait.
    pub(super) fn touch_scheduling(&self, touched: &mut BTreeSet<Subject>) {
        let scheduling = self.unfinished().filter(|one| one.phase == MigrationPhase::Scheduling);
        touched.extend(scheduling.map(|one| Subject::new(Kind::Migration, one.key.clone())));
    }
}
