//! Guests for whose copy there is no place: known beforehand from labels and sizes of nodes, or found out by a try.
//!
//! ```text
//!  fits no other node ─▶ last in line ─▶ one try ─▶ no place: called off and named, waiting will not help
//!  no place just now  ─▶ gives way to guests that wait ─▶ last in line ─▶ next try
//! ```
//!
//! The scheduler has the last word, so even a guest that fits nowhere is tried once. It is tried when no other guest of the node waits for a slot: a
//! target pod without a node holds its slot for minutes.

use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use jiff::Timestamp;

use crate::cluster::fact::{Pod, Uid};
use crate::cluster::index::Index;
use crate::drain::migrations::MigrationProgress;
use crate::drain::pod::PodRun;
use crate::drain::run::after;
use crate::machines::line::target_of;
use crate::machines::{Instance, Migration, MigrationPhase, condition, names};
use crate::reasons::{GuestReason, MigrationReason, Reason};

/// The scheduler has spoken of a target pod after this long.
pub(crate) const LOOK_AT_TARGET: Duration = Duration::from_secs(3);
/// The same where it is expected to find no node.
const LOOK_AT_LOST_TARGET: Duration = Duration::from_secs(1);

/// After each time that it gave its slot back.
const PARKED: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(300));

/// What is known about a place for one guest's copy; it outlives the single try.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placing {
    judged: bool,
    /// The rule by which no other node can take it.
    nowhere: Option<String>,
    /// How often it gave its slot back.
    parked: u32,
    /// What the scheduler said of a copy that found no place, until another one comes up.
    words: Option<Words>,
}

/// The words of the scheduler about the copy of one migration.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    pub migration: Uid,
    pub name: String,
    pub message: String,
    pub since: Timestamp,
}

impl Words {
    pub fn reason(&self) -> Reason {
        MigrationReason::VmNoPlace { migration: self.name.clone(), message: self.message.clone() }.into()
    }
}

impl Placing {
    /// Judges once, as soon as other nodes have been looked at.
    pub fn judge(&mut self, index: &Index, pod: &Pod) {
        if self.judged {
            return;
        }
        let Some(places) = index.places() else { return };
        self.judged = true;
        self.nowhere = pod.node.as_deref().and_then(|node| places.never(&pod.key, node));
    }

    /// Keeps what the scheduler says about a copy: the failure that follows from it says less.
    pub fn listen(
        &mut self,
        index: &Index,
        instance: &Instance,
        migration: &Migration,
        scheduling_since: Timestamp,
    ) {
        if migration.phase > MigrationPhase::Scheduling {
            self.words = None;
            return;
        }
        let Some(copy) = target_of(index, migration, instance).filter(|copy| copy.is_unschedulable()) else {
            return;
        };
        let said =
            condition::find(copy.launcher_conditions(), "PodScheduled").and_then(|said| said.message.clone());
        let since = self.words.as_ref().map_or(scheduling_since, |known| known.since);
        self.words = Some(Words {
            migration: migration.uid.clone(),
            name: migration.key.name.to_string(),
            message: said.map(String::from).unwrap_or_default(),
            since,
        });
    }

    pub fn words(&self) -> Option<&Words> {
        self.words.as_ref()
    }

    /// The words of the scheduler, if they are about this migration.
    pub fn words_about(&self, migration: &Uid) -> Option<&Words> {
        self.words.as_ref().filter(|known| known.migration == *migration)
    }

    /// That no other node can take this guest, and why.
    pub fn nowhere(&self, instance: &Instance) -> Option<Reason> {
        let why = self.nowhere.clone()?;
        Some(
            GuestReason::VmFitsNowhere { instance: instance.key.name.to_string(), why, lasting: true }.into(),
        )
    }

    /// It is tried when no other guest waits.
    pub fn is_last(&self) -> bool {
        self.nowhere.is_some() || self.parked > 0
    }

    /// When to look at a target pod that was just made.
    pub fn look_after(&self) -> Duration {
        if self.nowhere.is_some() { LOOK_AT_LOST_TARGET } else { LOOK_AT_TARGET }
    }
}

impl MigrationProgress {
    /// Fits nowhere, and the one try was made.
    pub(crate) fn was_tried_in_vain(&self) -> bool {
        self.placing.nowhere.is_some() && self.attempt > 0
    }
}

impl PodRun {
    /// Fits nowhere, and the one try is still to be made.
    pub(crate) fn has_its_try_before_it(&self) -> bool {
        let Some(moving) = &self.moving else { return false };
        let untried = moving.placing.nowhere.is_some() && moving.attempt == 0 && !moving.by_kubevirt;
        untried && self.state.is_idle() && self.answer.is_none()
    }

    /// Whether a migration of ours without a place is to be called off now; if not yet, when to ask again. A target that fits nowhere has lost its slot at once, another
    /// one when other guests wait for it.
    pub(crate) fn gives_way(
        &mut self,
        migration: &Migration,
        owner: &str,
        others_wait: bool,
        now: Timestamp,
    ) -> GivesWay {
        let Some(moving) = self.moving.as_mut() else { return GivesWay::No };
        let placing = &mut moving.placing;
        let ours = migration.annotations.get(names::DRAIN).is_some_and(|by| by == owner);
        let lost = placing.words_about(&migration.uid).is_some();
        if !ours || !lost || (placing.nowhere.is_none() && !others_wait) {
            return GivesWay::No;
        }
        let at = after(moving.phase_since, LOOK_AT_TARGET);
        if placing.nowhere.is_none() && at > now {
            return GivesWay::At(at);
        }
        let again = PARKED.until(now, placing.parked);
        placing.parked += 1;
        moving.phase_since = now;
        self.put_off(again);
        GivesWay::Now
    }
}

pub(crate) enum GivesWay {
    No,
    At(Timestamp),
    Now,
}

#[cfg(test)]
#[path = "unschedulable_tests.rs"]
mod tests;
