//! Who may begin: the migrations that wait, those that are under way, and the line between them.
//!
//! The line is looked at whenever one of those who wait is, so it must not cost much per head: who is on a full node is passed over before anything
//! else is asked about them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::action::{Kind, Subject};
use super::fact::{Instance, Launcher, Migration, MigrationPhase, MigrationState, Phase};
use super::slots::{self, Ledger, Room, Slot, Waiting};
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
    machines.any_launchers_of(&instance.uid).find(|pod| pod.job.as_ref() == Some(&migration.uid))
}

/// Nothing is copied any more: it is over, or the node agents have said so and it is going to be.
pub(super) fn has_ended(machines: &Machines, migration: &Migration) -> bool {
    migration.phase.is_final() || account(machines, migration).is_some_and(MigrationState::is_over)
}

fn account<'a>(machines: &'a Machines, migration: &Migration) -> Option<&'a MigrationState> {
    machines.instance(&migration.instance)?.account_of(migration)
}

/// The migrations that need no slot any more.
pub fn ended(machines: &Machines) -> impl Iterator<Item = &Migration> {
    machines.migrations().filter(|one| has_ended(machines, one))
}

/// Whether somebody has a slot and is not being copied yet.
pub(super) fn is_filling(machines: &Machines) -> bool {
    let holding = machines.ledger().slots.iter().filter_map(|slot| machines.migration(&slot.migration));
    let is_copied = |one: &Migration| account(machines, one).is_some_and(|state| state.started);
    holding.into_iter().any(|one| !has_ended(machines, one) && !is_copied(one))
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
    machines
        .unfinished()
        .filter_map(|one| {
            let instance = machines.instance(&one.instance);
            let state = instance.and_then(|vmi| vmi.account_of(one));
            let copied = state.is_some_and(MigrationState::is_over);
            let has_target = || instance.is_some_and(|vmi| target_of(machines, one, vmi).is_some());
            let begun = !copied && (one.phase.is_under_way() || state.is_some() || has_target());
            let node = match state {
                Some(state) => state.source_node.clone(),
                None => instance.map(|instance| instance.node.clone()).unwrap_or_default(),
            };
            begun.then(|| Slot { uid: one.uid.clone(), migration: one.key.clone(), node })
        })
        .collect()
}

/// Whether a migration waits for a slot, so that it matters whose turn it is.
pub fn waits(machines: &Machines, key: &Key) -> bool {
    let pending = machines.migration(key).filter(|one| one.phase == MigrationPhase::Pending);
    pending.is_some_and(|one| !machines.ledger().holds(&one.uid))
}

/// Who has to be looked at when slots were taken or became free: those whose turn it is, and those who hold one. The others wait on.
pub fn called(machines: &Machines, now: Timestamp) -> BTreeSet<Subject> {
    let ledger = live_ledger(machines);
    let next = in_line(machines, &ledger, now);
    let holding = machines.ledger().slots.iter().chain(&ledger.slots).map(|slot| &slot.migration);
    next.into_iter().chain(holding).map(|key| Subject::new(Kind::Migration, key.clone())).collect()
}

/// Those of the waiting that the free slots go to.
pub fn next_in_line(machines: &Machines, now: Timestamp) -> BTreeSet<Key> {
    let ledger = live_ledger(machines);
    in_line(machines, &ledger, now).into_iter().cloned().collect()
}

pub(super) fn in_line<'a>(machines: &'a Machines, ledger: &Ledger, now: Timestamp) -> Vec<&'a Key> {
    let waiting = machines
        .unfinished()
        .filter_map(|one| Some((one, machines.instance(&one.instance)?)))
        .filter(|(one, vmi)| {
            ledger.room(&machines.config, &vmi.node) == Room::Free
                && !ledger.holds(&one.uid)
                && is_eligible(machines, one, now)
        })
        .map(|(one, instance)| {
            let automatic = one.is_automatic();
            Waiting {
                key: &one.key,
                node: instance.node.as_str(),
                rank: one.rank(),
                failures: if automatic { evacuation::failures(machines, &one.instance) } else { 0 },
                size: if automatic { instance.memory } else { 0 },
                created: one.created,
            }
        })
        .collect();
    slots::admitted(ledger, &machines.config, waiting)
}

pub(super) fn active_pods(machines: &Machines, instance: &Instance) -> usize {
    machines.any_launchers_of(&instance.uid).filter(|pod| !pod.is_finished()).count()
}
