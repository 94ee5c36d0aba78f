//! Who may begin: the migrations that wait, those that are under way, and the line between them.
//!
//! The line is looked at whenever one of those who wait is, so it must not cost much per head: who is on a full node is passed over before anything
//! else is asked about them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::action::{Kind, Subject};
use super::slots::{self, Ledger, Room, Slot, Waiting};
use super::{names, retries};
use crate::cluster::fact::{Instance, Key, Migration, MigrationPhase, MigrationState, Phase, Pod};
use crate::cluster::index::Index;

/// The pod that a migration moves its guest to.
pub(crate) fn target_of<'a>(index: &'a Index, migration: &Migration, instance: &Instance) -> Option<&'a Pod> {
    index.any_launchers_of(&instance.uid).find(|pod| pod.job() == Some(&migration.uid))
}

/// Nothing is copied any more: it is over, or the node agents have said so and it is going to be.
pub(super) fn has_ended(index: &Index, migration: &Migration) -> bool {
    migration.phase.is_final() || account(index, migration).is_some_and(MigrationState::is_over)
}

fn account<'a>(index: &'a Index, migration: &Migration) -> Option<&'a MigrationState> {
    index.instance(&migration.instance)?.account_of(migration)
}

/// The migrations that need no slot any more.
pub fn ended(index: &Index) -> impl Iterator<Item = &Migration> {
    index.migrations().filter(|one| has_ended(index, one))
}

/// Whether a migration has a slot and is not being copied yet.
pub(super) fn is_filling(index: &Index) -> bool {
    let holding = index.ledger().slots.iter().filter_map(|slot| index.migration(&slot.migration));
    let is_copied = |one: &Migration| account(index, one).is_some_and(|state| state.started);
    holding.into_iter().any(|one| !has_ended(index, one) && !is_copied(one))
}

/// The ledger as far as this view knows which entries are over.
pub(super) fn live_ledger(index: &Index) -> Ledger {
    let mut ledger = index.ledger().without(|slot| {
        index.migration(&slot.migration).is_none_or(|known| known.uid != slot.uid || has_ended(index, known))
    });
    ledger.acknowledge(under_way(index));
    ledger
}

/// When a waiting migration may try again after earlier failures, if it has to wait.
pub fn backoff(index: &Index, migration: &Migration) -> Option<Timestamp> {
    if !migration.is_automatic() || migration.annotations.contains_key(names::IGNORE_BACKOFF) {
        return None;
    }
    let all = index.migrations_of(&migration.instance);
    let position = all.iter().position(|one| one.key == migration.key)?;
    let before = &all[..position];
    let failed_at = retries::automatic(before).next()?.entered(MigrationPhase::Failed)?;
    Some(retries::BACKOFF.until(failed_at, retries::earlier(&retries::failed_in_a_row(before))))
}

/// Nothing but a free slot is missing.
pub(super) fn is_eligible(index: &Index, migration: &Migration, now: Timestamp) -> bool {
    if migration.phase != MigrationPhase::Pending || migration.deleting {
        return false;
    }
    let Some(instance) = index.instance(&migration.instance) else { return false };
    instance.phase == Phase::Running
        && !instance.deleting
        && active_pods(index, instance) <= 1
        && backoff(index, migration).is_none_or(|until| until <= now)
}

/// The migrations under way as this view knows them, each with the node it leaves.
pub fn under_way(index: &Index) -> Vec<Slot> {
    index
        .unfinished()
        .filter_map(|one| {
            let instance = index.instance(&one.instance);
            let state = instance.and_then(|vmi| vmi.account_of(one));
            let copied = state.is_some_and(MigrationState::is_over);
            let has_target = || instance.is_some_and(|vmi| target_of(index, one, vmi).is_some());
            let begun = !copied && (one.phase.is_under_way() || state.is_some() || has_target());
            let node = match state {
                Some(state) => state.source_node.clone(),
                None => instance.map(|instance| instance.node.to_string()).unwrap_or_default(),
            };
            begun.then(|| Slot { uid: one.uid.clone(), migration: one.key.clone(), node })
        })
        .collect()
}

/// Whether a migration waits for a slot, so that it matters whose turn it is.
pub fn waits(index: &Index, key: &Key) -> bool {
    let pending = index.migration(key).filter(|one| one.phase == MigrationPhase::Pending);
    pending.is_some_and(|one| !index.ledger().holds(&one.uid))
}

/// Who has to be looked at when slots were taken or became free: those whose turn it is, and those who hold one. The others wait on.
pub fn called(index: &Index, now: Timestamp) -> BTreeSet<Subject> {
    let ledger = live_ledger(index);
    let next = in_line(index, &ledger, now);
    let holding = index.ledger().slots.iter().chain(&ledger.slots).map(|slot| &slot.migration);
    next.into_iter().chain(holding).map(|key| Subject::new(Kind::Migration, key.clone())).collect()
}

/// Those of the waiting that the free slots go to.
pub fn next_in_line(index: &Index, now: Timestamp) -> BTreeSet<Key> {
    let ledger = live_ledger(index);
    in_line(index, &ledger, now).into_iter().cloned().collect()
}

pub(super) fn in_line<'a>(index: &'a Index, ledger: &Ledger, now: Timestamp) -> Vec<&'a Key> {
    let waiting = index
        .unfinished()
        .filter_map(|one| Some((one, index.instance(&one.instance)?)))
        .filter(|(one, vmi)| {
            ledger.room(&index.config, &vmi.node) == Room::Free
                && !ledger.holds(&one.uid)
                && is_eligible(index, one, now)
        })
        .map(|(one, instance)| {
            let automatic = one.is_automatic();
            Waiting {
                key: &one.key,
                node: instance.node.as_str(),
                rank: one.rank(),
                failures: if automatic {
                    retries::failed_in_a_row(&index.migrations_of(&one.instance)).len()
                } else {
                    0
                },
                size: if automatic { instance.memory } else { 0 },
                created: one.created,
            }
        })
        .collect();
    slots::admitted(ledger, &index.config, waiting)
}

pub(super) fn active_pods(index: &Index, instance: &Instance) -> usize {
    index.any_launchers_of(&instance.uid).filter(|pod| !pod.is_finished()).count()
}
