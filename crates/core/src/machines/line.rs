//! Who may begin: the migrations that wait, those that are under way, and the line between them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::fact::{Instance, Launcher, Migration, MigrationPhase, MigrationState, Phase};
use super::slots::{self, Ledger, Slot, Waiting};
use super::store::Machines;
use super::{evacuation, names};
use crate::fact::Key;

const BACKOFF_SECONDS: i64 = 20;

/// The pod that a migration moves its guest to.
pub(crate) fn target_of<'a>(
    machines: &'a Machines,
    migration: &Migration,
    instance: &Instance,
) -> Option<&'a Launcher> {
    let mut launchers = machines.launchers_of(&instance.uid).into_iter();
    launchers.find(|pod| pod.job.as_ref() == Some(&migration.uid))
}

/// Nothing is copied any more: it is over, or the node agents have said so and it is going to be.
fn has_ended(machines: &Machines, migration: &Migration) -> bool {
    migration.phase.is_final() || account(machines, migration).is_some_and(MigrationState::is_over)
}

fn account<'a>(machines: &'a Machines, migration: &Migration) -> Option<&'a MigrationState> {
    machines.instance(&migration.instance)?.account_of(migration)
}

/// The migrations that need no slot any more.
pub fn ended(machines: &Machines) -> impl Iterator<Item = &Migration> {
    machines.migrations().filter(|one| has_ended(machines, one))
}

/// The ledger as far as this view knows which entries are over.
pub(super) fn live_ledger(machines: &Machines) -> Ledger {
    let mut ledger = machines.ledger().without(|slot| {
        machines
            .migration(&slot.migration)
            .is_none_or(|known| known.uid != slot.uid || has_ended(machines, known))
    });
    ledger.acknowledge(under_way(machines));
    ledger
}

/// When a waiting migration may try again after earlier failures, if it has to wait.
pub fn backoff(machines: &Machines, migration: &Migration) -> Option<Timestamp> {
    if !migration.is_automatic() || migration.annotations.contains_key(names::IGNORE_BACKOFF) {
        return None;
    }
    let all = machines.migrations_of(&migration.instance);
    let position = all.iter().position(|one| one.key == migration.key)?;
    let mut earlier =
        all[..position].iter().rev().filter(|one| one.is_automatic() && !one.deleting).peekable();
    let failed_at = earlier.peek()?.entered(MigrationPhase::Failed)?;
    let failures = earlier
        .take_while(|one| one.phase != MigrationPhase::Succeeded)
        .filter(|one| one.phase == MigrationPhase::Failed)
        .count();
    let doublings = u32::try_from(failures.checked_sub(1)?).unwrap_or(u32::MAX).min(16);
    failed_at.checked_add(SignedDuration::from_secs(BACKOFF_SECONDS << doublings)).ok()
}

/// Nothing but a free slot is missing.
pub(super) fn is_eligible(machines: &Machines, migration: &Migration, now: Timestamp) -> bool {
    if migration.phase != MigrationPhase::Pending || migration.deleting {
        return false;
    }
    let Some(instance) = machines.instance(&migration.instance) else { return false };
    instance.phase == Phase::Running
        && !instance.deleting
        && active_pods(machines, instance) <= 1
        && backoff(machines, migration).is_none_or(|until| until <= now)
}

/// The migrations under way as this view knows them, each with the node it leaves.
pub fn under_way(machines: &Machines) -> Vec<Slot> {
    let unfinished = machines.unfinished().filter(|one| !has_ended(machines, one));
    unfinished
        .filter_map(|one| {
            let (state, instance) = (account(machines, one), machines.instance(&one.instance));
            let has_target = || instance.is_some_and(|vmi| target_of(machines, one, vmi).is_some());
            let begun = one.phase.is_under_way() || state.is_some() || has_target();
            let node = match state {
                Some(state) => state.source_node.clone(),
                None => instance.map(|instance| instance.node.clone()).unwrap_or_default(),
            };
            begun.then(|| Slot { uid: one.uid.clone(), migration: one.key.clone(), node })
        })
        .collect()
}

/// Those of the waiting that the free slots go to.
pub fn next_in_line(machines: &Machines, now: Timestamp) -> BTreeSet<Key> {
    let ledger = live_ledger(machines);
    in_line(machines, &ledger, now).into_iter().cloned().collect()
}

pub(super) fn in_line<'a>(machines: &'a Machines, ledger: &Ledger, now: Timestamp) -> Vec<&'a Key> {
    let waiting = machines
        .unfinished()
        .filter(|one| !ledger.holds(&one.uid) && is_eligible(machines, one, now))
        .filter_map(|one| {
            let instance = machines.instance(&one.instance)?;
            let automatic = one.is_automatic();
            Some(Waiting {
                key: &one.key,
                node: instance.node.as_str(),
                rank: one.rank(),
                failures: if automatic { evacuation::failures(machines, &one.instance) } else { 0 },
                size: if automatic { instance.memory } else { 0 },
                created: one.created,
            })
        })
        .collect();
    slots::admitted(ledger, &machines.config, waiting)
}

pub(super) fn active_pods(machines: &Machines, instance: &Instance) -> usize {
    machines.launchers_of(&instance.uid).iter().filter(|pod| !pod.is_finished()).count()
}
