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

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::action::{Action, Decision, Job, Kind, Part, Tree};
use super::condition::{Condition, Conditions, seconds};
use super::fact::{Instance, Launcher, Migration, MigrationPhase, MigrationState, Phase};
use super::instance::phase_times;
use super::line::{backoff, in_line, is_eligible, live_ledger, next_in_line, target_of};
use super::names;
use super::slots::Slot;
use super::store::Machines;
use crate::fact::Key;

/// Finished migrations kept per instance.
const KEPT: usize = 5;
const UNSCHEDULABLE_SECONDS: i64 = 300;
const PENDING_SECONDS: i64 = 900;
const OVER_QUOTA: &str = "migrationRejectedByResourceQuota";
/// How long a target that fits nowhere may keep a slot that others wait for.
const CROWDED_SECONDS: i64 = 1;
/// How long a step of the preparation may take before its phase is written. Times in the cluster are in whole seconds.
const PASSING: SignedDuration = SignedDuration::from_secs(2);
/// An instance may be heard of after its migration; only then is it missing.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

pub fn decide(machines: &Machines, key: &Key, now: Timestamp) -> Decision {
    decide_in_line(machines, key, now, None)
}

/// As [`decide`], with [`next_in_line`] already known: it is the same for all who wait.
pub fn decide_in_line(
    machines: &Machines,
    key: &Key,
    now: Timestamp,
    next: Option<&BTreeSet<Key>>,
) -> Decision {
    let mut decision = Decision::nothing();
    let Some(migration) = machines.migration(key) else { return decision };
    let Some(instance) = machines.instance(&migration.instance) else {
        without_instance(migration, &mut decision, now);
        return decision;
    };
    let target = target_of(machines, migration, instance);
    let look = Look { machines, migration, instance, target, now, next };
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
        decision.push(Action::Delete {
            kind: Kind::Migration,
            key: migration.key.clone(),
            uid: migration.uid.clone(),
            grace_seconds: None,
        });
    }
    release(migration, decision);
}

fn release(migration: &Migration, decision: &mut Decision) {
    if migration.finalizers.iter().any(|name| name == names::MIGRATION_FINALIZER) {
        let left = migration.finalizers.iter().map(String::as_str);
        let mut fields = Tree::default();
        fields.put(
            &["metadata", "finalizers"],
            Tree::texts(left.filter(|name| *name != names::MIGRATION_FINALIZER)),
        );
        decision.push(patch(migration, Part::Main, fields));
    }
}

fn patch(migration: &Migration, part: Part, fields: Tree) -> Action {
    Action::Patch {
        kind: Kind::Migration,
        key: migration.key.clone(),
        uid: migration.uid.clone(),
        version: migration.version.clone(),
        part,
        fields,
    }
}

fn abort_condition() -> Condition {
    Condition::new("migrationAbortRequested", true, "", "Migration abort was requested")
}

struct Look<'a> {
    machines: &'a Machines,
    migration: &'a Migration,
    instance: &'a Instance,
    target: Option<&'a Launcher>,
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

    /// The first reason for which this cannot go on.
    fn failure(&self) -> Option<Failure> {
        let migration = self.migration;
        if migration.phase == MigrationPhase::Unset {
            let other = self.machines.migrations_of(&migration.instance).into_iter().find(|other| {
                other.key != migration.key
                    && !other.phase.is_final()
                    && self.instance.account_of(other).is_some()
            });
            return other.map(|other| {
                Failure::new(format!("VMI is already being migrated by migration {}", other.key.name))
            });
        }
        if self.instance.is_final() {
            return Some(Failure::new("Migration failed because vmi shutdown during migration."));
        }
        if migration.deleting && !self.is_handed_over() {
            return Some(Failure { text: "Migration canceled".into(), aborted: true });
        }
        if self.target.is_some_and(Launcher::is_finished) && !self.is_completed() {
            return Some(Failure::new("Migration failed because target pod shutdown during migration"));
        }
        let begun = migration.phase > MigrationPhase::Pending || self.state().is_some();
        if self.target.is_none() && begun && !self.is_completed() {
            return Some(Failure::new("Migration target pod was removed during active migration."));
        }
        if migration.phase.is_handed_over() {
            match &self.instance.migration {
                None => {
                    return Some(Failure::new(
                        "VMI's migration state was cleared during the active migration.",
                    ));
                }
                Some(state) if state.uid != migration.uid.0 => {
                    return Some(Failure::new(
                        "VMI's migration state was taken over by another migration job during active migration.",
                    ));
                }
                Some(_) => {}
            }
        }
        self.state().filter(|state| state.failed).map(|state| {
            let why = if state.failure_reason.is_empty() {
                String::new()
            } else {
                format!(": {}", state.failure_reason)
            };
            Failure::new(format!("source node reported migration failed{why}"))
        })
    }

    fn is_completed(&self) -> bool {
        self.state().is_some_and(MigrationState::is_over)
    }

    fn fail(&self, failure: &Failure, decision: &mut Decision) {
        let condition = (failure.aborted && !self.abort_is_noted()).then(abort_condition);
        self.patch_status(Some(MigrationPhase::Failed), condition, decision);
        self.event(true, "FailedMigration", failure.text.clone(), decision);
    }

    fn event(&self, warning: bool, reason: &'static str, message: String, decision: &mut Decision) {
        decision.push(Action::Event {
            kind: Kind::Migration,
            key: self.migration.key.clone(),
            uid: self.migration.uid.clone(),
            warning,
            reason,
            message,
        });
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
                    times.push((entered.text().to_owned(), seconds(self.now)));
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
            decision.push(patch(self.migration, Part::Status, fields));
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
                (None, Some(target)) if target.up && !target.node.is_empty() => {
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
            || self.target.is_some_and(Launcher::is_unschedulable)
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
            let all = finalizers.iter().map(String::as_str).chain([names::MIGRATION_FINALIZER]);
            fields.put(&["metadata", "finalizers"], Tree::texts(all));
        }
        if !self.migration.labelled {
            let name = Tree::text(&self.instance.key.name);
            fields.put(&["metadata", "labels", names::MIGRATION_SELECTOR], name);
        }
        if fields.is_empty() {
            self.enter(MigrationPhase::Pending, decision);
        } else {
            decision.push(patch(self.migration, Part::Main, fields));
        }
    }

    fn wait(&self, decision: &mut Decision) {
        if self.machines.ledger().holds(&self.migration.uid) {
            self.note_quota(decision);
            if self.instance.phase == Phase::Running {
                self.create_target(None, decision);
            }
            return;
        }
        if let Some(until) = backoff(self.machines, self.migration).filter(|until| *until > self.now) {
            decision.push(Action::Event {
                kind: Kind::Instance,
                key: self.instance.key.clone(),
                uid: self.instance.uid.clone(),
                warning: true,
                reason: "MigrationBackoff",
                message: format!(
                    "backoff migrating vmi {}: next attempt at {}",
                    self.instance.key,
                    seconds(until)
                ),
            });
            decision.look_at(until);
            return;
        }
        if is_eligible(self.machines, self.migration, self.now) && self.is_next() {
            let slot = Slot {
                uid: self.migration.uid.clone(),
                migration: self.migration.key.clone(),
                node: self.instance.node.clone(),
            };
            self.create_target(Some(slot), decision);
        }
    }

    fn create_target(&self, slot: Option<Slot>, decision: &mut Decision) {
        let (instance, migration) = (self.instance, self.migration);
        decision.push(Action::CreateLauncher {
            instance: instance.key.clone(),
            uid: instance.uid.clone(),
            name: names::launcher(&instance.key.name, &instance.uid.0, Some(&migration.uid.0)),
            job: Some(Job {
                name: migration.key.name.clone(),
                uid: migration.uid.clone(),
                avoid: self.disappointing_nodes(),
                slot,
            }),
        });
    }

    /// A target that does not fit into a quota waits, and says so.
    fn note_quota(&self, decision: &mut Decision) {
        let trouble = self.machines.trouble(Kind::Migration, &self.migration.key);
        if let Some(trouble) = trouble.filter(|trouble| trouble.message.contains("exceeded quota"))
            && !super::condition::is_true(&self.migration.conditions, OVER_QUOTA)
        {
            let condition = Condition::new(OVER_QUOTA, true, trouble.reason, &trouble.message);
            self.patch_status(None, Some(condition), decision);
        }
    }

    /// Whether a free slot would go to this one rather than to another that waits.
    fn is_next(&self) -> bool {
        match self.next {
            Some(next) => next.contains(&self.migration.key),
            None => next_in_line(self.machines, self.now).contains(&self.migration.key),
        }
    }

    /// Where earlier tries ended in vain: the next one should rather go elsewhere.
    fn disappointing_nodes(&self) -> Vec<String> {
        if !self.migration.is_automatic() {
            return Vec::new();
        }
        let all = self.machines.migrations_of(&self.migration.instance);
        let nodes: BTreeSet<String> = all
            .iter()
            .rev()
            .filter(|one| one.is_automatic())
            .skip_while(|one| !one.phase.is_final())
            .take_while(|one| one.phase == MigrationPhase::Failed)
            .map(|one| one.target_node.clone())
            .filter(|node| !node.is_empty())
            .collect();
        nodes.into_iter().collect()
    }

    /// Whether the slot of this one would go to another that waits.
    fn somebody_else_could_move(&self) -> bool {
        let ledger = live_ledger(self.machines).without(|slot| slot.uid == self.migration.uid);
        in_line(self.machines, &ledger, self.now).into_iter().any(|key| *key != self.migration.key)
    }

    /// A target that does not come up is given up after a while, and at once if others could use its slot.
    fn watch_over(&self, target: &Launcher, decision: &mut Decision) {
        let limit = |annotation: &str, default: i64| {
            self.migration
                .annotations
                .get(annotation)
                .and_then(|text| text.parse::<i64>().ok())
                .unwrap_or(default)
        };
        let mut limits = vec![limit(names::PENDING_TIMEOUT, PENDING_SECONDS)];
        if target.is_unschedulable() {
            limits.push(limit(names::UNSCHEDULABLE_TIMEOUT, UNSCHEDULABLE_SECONDS));
        }
        let Some(created) = target.created else { return };
        let mut allowed = limits.into_iter().min().unwrap_or(PENDING_SECONDS);
        if target.is_unschedulable() && self.migration.is_automatic() && self.somebody_else_could_move() {
            allowed = allowed.min(CROWDED_SECONDS);
        }
        let until = created.checked_add(SignedDuration::from_secs(allowed)).unwrap_or(self.now);
        // One whose target is gone before this was written would get another target.
        let is_noted = self.migration.phase == MigrationPhase::Scheduling;
        if is_noted && target.node.is_empty() && until <= self.now && !target.deleting {
            decision.push(Action::Delete {
                kind: Kind::Pod,
                key: target.key.clone(),
                uid: target.uid.clone(),
                grace_seconds: None,
            });
            let message = format!("Deleted target pod {}: it was pending for {allowed} s", target.key.name);
            self.event(false, "SuccessfulDelete", message, decision);
        } else if until > self.now {
            decision.look_at(until);
        }
    }

    /// Tells the node agents.
    fn hand_over(&self, target: &Launcher, decision: &mut Decision) {
        let launchers = self.machines.launchers_of(&self.instance.uid);
        let source = super::instance::current(self.instance, &launchers);
        let mut state: Vec<(&str, Tree)> = LEFT_OVER.iter().map(|field| (*field, Tree::null())).collect();
        state.extend([
            ("migrationUid", Tree::text(&self.migration.uid.0)),
            ("sourceNode", Tree::text(&self.instance.node)),
            ("targetNode", Tree::text(&target.node)),
            ("targetPod", Tree::text(&target.key.name)),
            ("sourcePod", source.map_or_else(Tree::null, |pod| Tree::text(&pod.key.name))),
            ("migrationConfiguration", self.configuration()),
        ]);
        let mut fields = Tree::default();
        fields.put(&["status", "migrationState"], Tree::map(state));
        fields.put(&["status", "activePods", &target.uid.0], Tree::text(&target.node));
        fields.put(&["metadata", "labels", names::MIGRATION_TARGET_NODE], Tree::text(&target.node));
        self.patch_instance(fields, decision);
        let message = format!(
            "Migration target pod is ready for preparation by virt-handler. Target node: {}",
            target.node
        );
        self.event(false, "SuccessfulHandOver", message, decision);
    }

    fn configuration(&self) -> Tree {
        let config = &self.machines.config;
        Tree::map([
            ("nodeDrainTaintKey", Tree::text(&config.drain_taint_key)),
            ("parallelMigrationsPerCluster", Tree::Int(config.parallel_per_cluster.into())),
            ("parallelOutboundMigrationsPerNode", Tree::Int(config.parallel_outbound_per_node.into())),
            ("allowAutoConverge", Tree::Bool(config.allow_auto_converge)),
            ("allowPostCopy", Tree::Bool(config.allow_post_copy)),
            (
                "allowWorkloadDisruption",
                Tree::Bool(config.allow_workload_disruption.unwrap_or(config.allow_post_copy)),
            ),
            ("bandwidthPerMigration", Tree::text(&config.bandwidth_per_migration)),
            ("completionTimeoutPerGiB", Tree::Int(config.completion_seconds_per_gib)),
            ("progressTimeout", Tree::Int(config.progress_timeout_seconds)),
            ("unsafeMigrationOverride", Tree::Bool(config.unsafe_override)),
            ("disableTLS", Tree::Bool(false)),
        ])
    }

    fn patch_instance(&self, fields: Tree, decision: &mut Decision) {
        decision.push(Action::Patch {
            kind: Kind::Instance,
            key: self.instance.key.clone(),
            uid: self.instance.uid.clone(),
            version: self.instance.version.clone(),
            part: Part::Main,
            fields,
        });
    }

    fn follow(&self, decision: &mut Decision) {
        let Some(state) = self.state() else { return };
        if state.completed && !self.instance.hotplug_change {
            self.enter(MigrationPhase::Succeeded, decision);
            // After the write: one that is refused is decided anew, and would be told twice.
            let message = "Source node reported migration succeeded".into();
            self.event(false, "SuccessfulMigration", message, decision);
        } else if self.migration.deleting && !state.abort_requested && !state.completed {
            let mut fields = Tree::default();
            fields.put(&["status", "migrationState", "abortRequested"], Tree::Bool(true));
            self.patch_instance(fields, decision);
            self.event(false, "SuccessfulAbortMigration", "Migration aborted by user".into(), decision);
        }
    }

    /// The instance's account, as it is kept with the migration: the next one overwrites it there.
    fn record(&self) -> Option<Tree> {
        let state = self.state()?;
        let mut record = vec![
            ("migrationUid", Tree::text(&state.uid)),
            ("sourceNode", Tree::text(&state.source_node)),
            ("targetNode", Tree::text(&state.target_node)),
            ("targetPod", Tree::text(&state.target_pod)),
            ("completed", Tree::Bool(state.completed)),
        ];
        for (field, at) in [("startTimestamp", &state.start), ("endTimestamp", &state.end)] {
            if !at.is_empty() {
                record.push((field, Tree::text(at)));
            }
        }
        if state.failed {
            record.push(("failed", Tree::Bool(true)));
            record.push(("failureReason", Tree::text(&state.failure_reason)));
        }
        Some(Tree::map(record))
    }

    /// After the end: the instance must not wait for it, its pod goes, and old ones are cleared away.
    fn wind_up(&self, decision: &mut Decision) {
        if self.migration.phase == MigrationPhase::Failed {
            if let Some(state) = self.state().filter(|state| !state.completed && !state.started) {
                let at = Tree::text(seconds(self.now));
                let reason = if state.failure_reason.is_empty() {
                    "Target pod is down"
                } else {
                    &state.failure_reason
                };
                let mut fields = Tree::default();
                let ended = [
                    ("failed", Tree::Bool(true)),
                    ("completed", Tree::Bool(true)),
                    ("startTimestamp", at.clone()),
                    ("endTimestamp", at),
                    ("failureReason", Tree::text(reason)),
                ];
                fields.put(&["status", "migrationState"], Tree::map(ended));
                fields.put(&["metadata", "labels", names::MIGRATION_TARGET_NODE], Tree::null());
                self.patch_instance(fields, decision);
            }
            if let Some(target) = self.target.filter(|pod| {
                !pod.deleting && !pod.is_finished() && (pod.node.is_empty() || pod.node != self.instance.node)
            }) {
                decision.push(Action::Delete {
                    kind: Kind::Pod,
                    key: target.key.clone(),
                    uid: target.uid.clone(),
                    grace_seconds: None,
                });
                let message = format!("Deleted migration target pod {}", target.key.name);
                self.event(false, "SuccessfulDelete", message, decision);
            }
        }
        if !self.migration.state_recorded
            && let Some(record) = self.record()
        {
            let mut fields = Tree::default();
            fields.put(&["status", "migrationState"], record);
            decision.push(patch(self.migration, Part::Status, fields));
        } else {
            release(self.migration, decision);
        }
        let all = self.machines.migrations_of(&self.migration.instance);
        let mut finished: Vec<&&Migration> = all.iter().filter(|one| one.phase.is_final()).collect();
        finished.reverse();
        for old in finished.into_iter().skip(KEPT).filter(|old| !old.deleting) {
            decision.push(Action::Delete {
                kind: Kind::Migration,
                key: old.key.clone(),
                uid: old.uid.clone(),
                grace_seconds: None,
            });
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

struct Failure {
    text: String,
    aborted: bool,
}

impl Failure {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), aborted: false }
    }
}

/// What an earlier migration may have left in `status.migrationState`.
const LEFT_OVER: &[&str] = &[
    "startTimestamp",
    "endTimestamp",
    "completed",
    "failed",
    "failureReason",
    "abortRequested",
    "abortStatus",
    "mode",
    "targetNodeAddress",
    "targetDirectMigrationNodePorts",
    "targetNodeDomainDetected",
    "targetNodeDomainReadyTimestamp",
    "targetAttachmentPodUID",
    "targetCPUSet",
    "targetNodeTopology",
    "migrationPolicyName",
    "sourceState",
    "targetState",
];

#[cfg(test)]
#[path = "migration_tests.rs"]
mod tests;
