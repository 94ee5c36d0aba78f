//! The controller of migrations: one target pod, one hand-over, one end.
//!
//! A migration waits in `Pending` until the ledger of [`super::slots`] has an entry for it. From the hand-over on the node agents do the
//! work and this controller only follows what they write into the instance.
//!
//! ```text
//! Pending ─slot, target pod─▶ Scheduling ─target up─▶ Scheduled ─hand-over─▶ PreparingTarget ─address─▶ TargetReady ─start─▶ Running ─▶ end
//! ```
//!
//! Where it stands between `Pending` and `Running` shows in its target and in the instance. Those phases are for people, so one
//! that passes at once is not written on its own: that would cost more than the step itself, at the moment when a slot lies idle.

mod ending;
mod failing;
mod hand_over;
mod waiting;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::action::{Decision, Event, Part, Tree};
use super::condition::{Condition, Conditions, seconds};
use super::instance::phase_times;
use super::line::target_of;
use super::names;
use crate::cluster::fact::Key;
use crate::cluster::fact::{Instance, Migration, MigrationPhase, MigrationState, Pod};
use crate::cluster::index::Index;
use crate::cluster::text::Text;
use failing::Failure;

const OVER_QUOTA: &str = "migrationRejectedByResourceQuota";
/// How long a step of the preparation may take before its phase is written. Times in the cluster are in whole seconds.
const PASSING: SignedDuration = SignedDuration::from_secs(2);
/// An instance may be heard of after its migration; only then is it missing.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// What is done about a migration: its slot, its target pod, its phases and its end.
pub fn decide(index: &Index, key: &Key, now: Timestamp) -> Decision {
    decide_in_line(index, key, now, None)
}

/// As [`decide`], with [`super::line::next_in_line`] already known: it is the same for all who wait.
pub fn decide_in_line(index: &Index, key: &Key, now: Timestamp, next: Option<&BTreeSet<Key>>) -> Decision {
    let mut decision = Decision::nothing();
    let Some(migration) = index.migration(key) else { return decision };
    let Some(instance) = index.instance(&migration.instance) else {
        without_instance(migration, &mut decision, now);
        return decision;
    };
    let target = target_of(index, migration, instance);
    let look = Look { index, migration, instance, target, now, next };
    if migration.phase.is_final() {
        look.wind_up(&mut decision);
    } else if let Some(failure) = look.failure() {
        look.fail(&failure, &mut decision);
    } else if migration.deleting && !look.abort_is_noted() {
        look.patch_status(None, Some(abort_condition()), &mut decision);
    } else {
        look.advance(&mut decision);
    }
    decision
}

fn without_instance(migration: &Migration, decision: &mut Decision, now: Timestamp) {
    let known_for = migration.created.map(|created| now.duration_since(created));
    if let (Some(age), Some(created)) = (known_for, migration.created)
        && age < PATIENCE
    {
        decision.look_at(created.checked_add(PATIENCE).unwrap_or(now));
        return;
    }
    if !migration.deleting {
        decision.delete(migration);
    }
    release(migration, decision);
}

fn release(migration: &Migration, decision: &mut Decision) {
    if let Some(fields) = Tree::without_finalizer(&migration.finalizers, names::MIGRATION_FINALIZER) {
        decision.patch(migration, Part::Main, fields);
    }
}

fn abort_condition() -> Condition {
    Condition::new("migrationAbortRequested", true, "", "Migration abort was requested")
}

struct Look<'a> {
    index: &'a Index,
    migration: &'a Migration,
    instance: &'a Instance,
    target: Option<&'a Pod>,
    now: Timestamp,
    next: Option<&'a BTreeSet<Key>>,
}

impl Look<'_> {
    /// The instance's account of this migration.
    fn state(&self) -> Option<&MigrationState> {
        self.instance.account_of(self.migration)
    }

    fn is_handed_over(&self) -> bool {
        self.migration.phase.is_handed_over() || self.state().is_some()
    }

    fn abort_is_noted(&self) -> bool {
        super::condition::is_true(&self.migration.conditions, "migrationAbortRequested")
    }

    fn is_completed(&self) -> bool {
        self.state().is_some_and(MigrationState::is_over)
    }

    fn fail(&self, failure: &Failure, decision: &mut Decision) {
        let condition = (failure.aborted && !self.abort_is_noted()).then(abort_condition);
        self.patch_status(Some(MigrationPhase::Failed), condition, decision);
        decision.tell(Event::warning(self.migration, "FailedMigration", failure.text.clone()));
    }

    fn delete_target(&self, target: &Pod, message: String, decision: &mut Decision) {
        decision.delete(target);
        decision.tell(Event::normal(self.migration, "SuccessfulDelete", message));
    }

    fn patch_status(
        &self,
        phase: Option<MigrationPhase>,
        condition: Option<Condition>,
        decision: &mut Decision,
    ) {
        let mut fields = Tree::default();
        if let Some(phase) = phase {
            fields.put(&["status", "phase"], Tree::text(phase.text()));
            let mut times = self.migration.phase_times.clone();
            for entered in self.passed_on_the_way_to(phase).chain([phase]) {
                if !times.iter().any(|(name, _)| name == entered.text()) {
                    times.push((entered.text().into(), seconds(self.now).into()));
                }
            }
            fields.put(&["status", "phaseTransitionTimestamps"], phase_times(&times));
            // The end and the account of it are one write, unless the account is still to be closed.
            if phase.is_final()
                && let Some(record) = self.record().filter(|_| self.is_completed())
            {
                fields.put(&["status", "migrationState"], record);
            }
        }
        let mut conditions = Conditions::of(&self.migration.conditions);
        if phase > Some(MigrationPhase::Pending) {
            conditions.remove(OVER_QUOTA);
        }
        if let Some(condition) = condition {
            conditions.set(condition, self.now);
        }
        if let Some(list) = conditions.changed() {
            fields.put(&["status", "conditions"], list);
        }
        if !fields.is_empty() {
            decision.patch(self.migration, Part::Status, fields);
        }
    }

    fn enter(&self, phase: MigrationPhase, decision: &mut Decision) {
        self.patch_status(Some(phase), None, decision);
    }

    /// The steps that were passed without being written.
    fn passed_on_the_way_to(&self, phase: MigrationPhase) -> impl Iterator<Item = MigrationPhase> {
        let from = self.migration.phase;
        let steps = PREPARATION.iter().copied().filter(move |step| *step > from && *step < phase);
        steps.filter(move |_| phase != MigrationPhase::Failed)
    }

    fn advance(&self, decision: &mut Decision) {
        match self.migration.phase {
            MigrationPhase::Unset => self.accept(decision),
            MigrationPhase::Running => self.follow(decision),
            MigrationPhase::Succeeded | MigrationPhase::Failed => {}
            _ => match (self.state(), self.target) {
                (Some(state), _) => self.note_step(state.reached(), decision),
                (None, Some(target)) if target.is_up() && !target.node_name().is_empty() => {
                    self.hand_over(target, decision);
                }
                (None, Some(target)) => {
                    self.note_step(MigrationPhase::Scheduling, decision);
                    self.watch_over(target, decision);
                }
                (None, None) => self.wait(decision),
            },
        }
    }

    /// Writes that a step was reached: the start of the copying at once, what leads to it if it takes its time.
    fn note_step(&self, reached: MigrationPhase, decision: &mut Decision) {
        if reached <= self.migration.phase {
            return;
        }
        let tells_something = reached == MigrationPhase::Running
            || self.target.is_some_and(Pod::is_unschedulable)
            || super::condition::is_true(&self.migration.conditions, OVER_QUOTA);
        let steps = PREPARATION.iter().filter_map(|step| self.migration.entered(*step));
        let last_step = steps.chain(self.target.and_then(|target| target.created)).max();
        let passing = last_step.and_then(|at| at.checked_add(PASSING).ok()).filter(|until| *until > self.now);
        match passing.filter(|_| !tells_something) {
            Some(until) => decision.look_at(until),
            None => self.enter(reached, decision),
        }
    }

    fn accept(&self, decision: &mut Decision) {
        let mut fields = Tree::default();
        let finalizers = &self.migration.finalizers;
        if !finalizers.iter().any(|name| name == names::MIGRATION_FINALIZER) {
            let all = finalizers.iter().map(Text::as_str).chain([names::MIGRATION_FINALIZER]);
            fields.put(&["metadata", "finalizers"], Tree::texts(all));
        }
        if !self.migration.labelled {
            let name = Tree::text(&self.instance.key.name);
            fields.put(&["metadata", "labels", names::MIGRATION_SELECTOR], name);
        }
        if fields.is_empty() {
            self.enter(MigrationPhase::Pending, decision);
        } else {
            decision.patch(self.migration, Part::Main, fields);
        }
    }
}

/// The steps between the wait for a slot and the copying.
const PREPARATION: &[MigrationPhase] = &[
    MigrationPhase::Scheduling,
    MigrationPhase::Scheduled,
    MigrationPhase::PreparingTarget,
    MigrationPhase::TargetReady,
];

#[cfg(test)]
mod tests;
