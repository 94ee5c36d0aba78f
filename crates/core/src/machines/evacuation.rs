//! Moves guests off a node that is to be emptied: by the drain taint on the node, or by a mark on the instance.
//!
//! ```text
//!  taint or mark ─▶ migration created ─▶ waits for a slot ─▶ runs ─▶ moved: the mark is gone
//!                        ▲                    │                │
//!                        │                    │ no longer wanted: deleted
//!                        └── back-off ◀───────┴── failed ◀─────┘
//! ```
//!
//! The ladder for a guest that does not arrive: each failure doubles the pause before the next try (from 20 s), the next try
//! avoids the nodes where earlier ones failed, guests never tried go first, and what the cluster allows (auto-converge,
//! post-copy) is up to the node agent. It is never given up silently and never shut down: the condition
//! `EvacuationBlocked` says what stands in the way.

use jiff::Timestamp;

use super::action::{Action, Decision, Event, Part, Tree};
use super::condition::{self, Condition, Conditions};
use super::line::active_pods;
use super::strategy::{Course, course};
use super::{names, retries};
use crate::action::Asker;
use crate::cluster::fact::{Instance, Key, MigrationPhase};
use crate::cluster::index::Index;

/// Says that a guest should leave its node and cannot.
pub const BLOCKED: &str = "EvacuationBlocked";
const NO_PLACE: &str = "Unschedulable";
const NO_NODE: &str = "no node can take it: ";
/// Failures in a row after which a guest is called blocked, though it is still tried again.
const MANY_FAILURES: usize = 3;

/// Whether an instance is to leave its node.
pub fn is_wanted(index: &Index, instance: &Instance) -> bool {
    let tainted =
        index.node(&instance.node).is_some_and(|node| node.is_to_be_drained(&index.config.drain_taint_key));
    tainted || instance.evacuation_node.as_ref().is_some_and(|node| *node == instance.node)
}

/// What the scheduler says of the target of the newest migration, or said of the one before while the next waits its turn.
fn fits_nowhere(index: &Index, instance: &Instance) -> Option<String> {
    let launchers = index.launchers_of(&instance.uid);
    let mut targets =
        launchers.into_iter().filter(|pod| pod.job().is_some() && !pod.is_finished()).peekable();
    if targets.peek().is_some() {
        let lost = targets.find(|pod| pod.is_unschedulable() && pod.node_name().is_empty())?;
        let said = condition::find(lost.launcher_conditions(), "PodScheduled")?.message.clone();
        return Some(said.map(String::from).unwrap_or_default());
    }
    let known = condition::find(&instance.conditions, BLOCKED)?;
    let waits = index.migrations_of(&instance.key).iter().any(|one| !one.phase.is_final());
    let before = known.message.as_deref().and_then(|message| message.strip_prefix(NO_NODE));
    before.filter(|_| waits && known.reason.as_deref() == Some(NO_PLACE)).map(str::to_owned)
}

/// What is done about an instance whose node is wanted: a migration, and a condition while it cannot be moved. When the node is
/// wanted no more, migrations that have not begun are called off.
pub fn decide(index: &Index, key: &Key, now: Timestamp) -> Decision {
    let mut decision = Decision::nothing();
    let Some(instance) = index.instance(key) else { return decision };
    if instance.is_final() || instance.deleting || instance.node.is_empty() {
        return decision;
    }
    let wanted = is_wanted(index, instance);
    let course = course(instance, &index.config);
    say_what_blocks(index, instance, wanted, course, now, &mut decision);
    let migrations = index.migrations_of(key);
    if !wanted {
        // Those that have not begun are called off; a guest that is half way arrives.
        let waiting = migrations.iter().filter(|one| {
            one.phase <= MigrationPhase::Pending
                && !one.deleting
                && one.key.name.starts_with(names::EVACUATION_PREFIX)
                && !index.ledger().holds(&one.uid)
        });
        for one in waiting {
            decision.delete(*one);
        }
        return decision;
    }
    let under_way = migrations.iter().any(|one| !one.phase.is_final()) || instance.is_migrating();
    if course != Course::Migrate || under_way || active_pods(index, instance) > 1 {
        return decision;
    }
    let last = migrations.last().map_or("first", |one| one.uid.0.as_str());
    let priority = match instance.eviction_source.as_deref() {
        Some("descheduler") => "system-maintenance",
        _ => "system-critical",
    };
    decision.push(Action::Migrate {
        instance: key.clone(),
        uid: instance.uid.clone(),
        name: names::evacuation(&key.name, &instance.uid.0, last),
        node: instance.node.to_string(),
        asker: Asker::Evacuation(priority),
        dry_run: false,
    });
    decision
}

/// Keeps the condition true to what is known, and tells people when it changes.
fn say_what_blocks(
    index: &Index,
    instance: &Instance,
    wanted: bool,
    course: Course,
    now: Timestamp,
    decision: &mut Decision,
) {
    let failed = retries::failed_in_a_row(&index.migrations_of(&instance.key)).len();
    let fits_nowhere = (course == Course::Migrate).then(|| fits_nowhere(index, instance)).flatten();
    let blocked = match course {
        _ if !wanted => None,
        _ if fits_nowhere.is_some() => {
            Some((NO_PLACE, format!("{NO_NODE}{}", fits_nowhere.unwrap_or_default())))
        }
        Course::Stuck => {
            let why = condition::find(&instance.conditions, "LiveMigratable")
                .and_then(|known| known.message.clone())
                .filter(|message| !message.is_empty())
                .unwrap_or_else(|| "the node agent has not said that it is".into());
            Some((
                "NotLiveMigratable",
                format!("it must be moved off {} and is not live-migratable: {why}", instance.node),
            ))
        }
        Course::Migrate if failed >= MANY_FAILURES => {
            let why = instance
                .migration
                .as_ref()
                .map(|state| state.failure_reason.as_str())
                .filter(|why| !why.is_empty());
            let why = why.map(|why| format!("; the last said: {why}")).unwrap_or_default();
            Some((
                "MigrationsFailed",
                format!("{failed} migrations off {} failed in a row{why}", instance.node),
            ))
        }
        _ => None,
    };
    let mut conditions = Conditions::of(&instance.conditions);
    match &blocked {
        Some((reason, message)) => conditions.set(Condition::new(BLOCKED, true, reason, message), now),
        None => conditions.remove(BLOCKED),
    }
    let Some(list) = conditions.changed() else { return };
    decision.patch(instance, Part::Main, Tree::at(&["status", "conditions"], list));
    if let Some((_, message)) = blocked {
        decision.tell(Event::warning(instance, BLOCKED, message));
    }
}

#[cfg(test)]
#[path = "evacuation_tests.rs"]
mod tests;
