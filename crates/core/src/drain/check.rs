//! A second opinion on what a drain asks for, made from invariants alone.
//!
//! It shares no code with [`crate::drain::step`] beyond the facts, so that a mistake there does not excuse itself here.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cluster::fact::{Key, Pod, VmRole};
use crate::cluster::index::{Index, Sight};
use crate::cluster::subject::{Kind, ObjectRef};
use crate::drain::action::Action;

/// An invariant that an action would break, with the object it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Violation {
    /// The request names an incarnation that is not the one on the node, or none.
    WrongIncarnation(Key),
    /// A pod would leave a node that takes new pods.
    NotCordoned(Key),
    /// A DaemonSet's or kubelet's own pod would be evicted only to come back.
    Pointless(Key),
    /// More evictions at once than a budget has to give.
    OverBudget(Key),
    /// The pod of a running virtual machine would be deleted past its protection.
    MachineDeleted(Key),
    /// A guest that has to be moved would be shut down, or one of which nothing is known.
    MachineShutDown(Key),
    /// A migration of an instance that is not there, or that is being migrated.
    PointlessMigration(Key),
    /// The pre-image would be taken from a node we already changed.
    LatePreImage(String),
}

/// Checks a batch of actions against the facts they were decided on.
pub fn check(index: &Index, actions: &[Action]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut asked: BTreeMap<Key, i32> = BTreeMap::new();
    for action in actions {
        match action {
            Action::Evict { object, dry_run, .. } | Action::Delete { object, dry_run, .. }
                if object.kind == Kind::Pod =>
            {
                let ObjectRef { key: pod, uid, .. } = object;
                let Some(found) = index.pod(pod).filter(|found| found.uid == *uid) else {
                    violations.push(Violation::WrongIncarnation(pod.clone()));
                    continue;
                };
                let cordoned = found
                    .node
                    .as_deref()
                    .and_then(|node| index.node(node))
                    .is_some_and(|node| node.unschedulable);
                if !cordoned && !dry_run {
                    violations.push(Violation::NotCordoned(pod.clone()));
                }
                if found.mirror {
                    violations.push(Violation::Pointless(pod.clone()));
                }
                if matches!(action, Action::Delete { .. })
                    && matches!(found.vm, VmRole::Launcher(_))
                    && !found.phase.is_finished()
                {
                    violations.push(Violation::MachineDeleted(pod.clone()));
                }
                if !found.phase.is_finished() && may_not_be_shut_down(index, found) {
                    violations.push(Violation::MachineShutDown(pod.clone()));
                }
                let running = !found.phase.is_finished() && found.deletion.is_none() && found.ready;
                if matches!(action, Action::Evict { .. }) && running && !dry_run {
                    for budget in index.budgets_of(found) {
                        *asked.entry(budget.key.clone()).or_default() += 1;
                    }
                }
            }
            Action::Cordon { node, mark, .. } => {
                let already_marked = index.node(node).is_some_and(|found| found.mark.is_some());
                let says_free = !mark.before.unschedulable;
                let is_cordoned = index.node(node).is_some_and(|found| found.unschedulable);
                if !already_marked && says_free && is_cordoned {
                    violations.push(Violation::LatePreImage(node.clone()));
                }
            }
            Action::Migrate { instance, uid, node, .. } => {
                let there = index
                    .instance(instance)
                    .is_some_and(|found| found.uid == *uid && found.node == *node && !found.is_final());
                let under_way =
                    index.migrations().any(|other| other.instance == *instance && !other.phase.is_final());
                if !there || under_way {
                    violations.push(Violation::PointlessMigration(instance.clone()));
                }
            }
            _ => {}
        }
    }
    for (key, count) in asked {
        // One request past the visible room is the safety net's probe; the server decides about that one.
        if index.budget(&key).is_some_and(|budget| count > budget.allowed.max(0) + 1) {
            violations.push(Violation::OverBudget(key));
        }
    }
    violations
}

/// Whether an unfinished pod holds a guest that a drain must not end: one that has to be moved, one of which nothing is
/// known though machines can be seen, or the volumes of one that still runs.
fn may_not_be_shut_down(index: &Index, pod: &Pod) -> bool {
    if *index.sight() == Sight::Absent {
        return false;
    }
    if pod.vm == VmRole::None {
        return false;
    }
    let instance = pod.instance_key().and_then(|key| index.instance(&key));
    instance.is_none_or(|instance| {
        let says = instance.eviction_strategy.as_deref().unwrap_or(index.config.default_strategy());
        says == "LiveMigrate" || (says == "LiveMigrateIfPossible" && instance.is_migratable())
    })
}
