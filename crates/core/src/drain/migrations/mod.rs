//! When and which migrations a drain starts, and what it tells of them.
//!
//! ```text
//!  nothing ─▶ asked ─▶ queued (Pending) ─▶ under way ─▶ moved: the pod has ended, the guest runs elsewhere
//!     ▲                    │                    │
//!     └──── back-off ◀─────┴────── failed ──────┘        after FAILURES in a row: named, and left running here
//! ```
//!
//! All of it can be read from the cluster; what is kept here is only what has been told already. How many are asked for at once is in [`crate::drain::migrations::limit`], who
//! moves a guest in [`crate::drain::migrations::mover`]. The largest guests go first, because the last to finish decides how long it takes; those for whom there is no place
//! go last ([`crate::drain::migrations::unschedulable`]).

pub(crate) mod abort;
mod limit;
pub(crate) mod mover;
mod unschedulable;

use std::cmp::Reverse;
use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use jiff::{SignedDuration, Timestamp};

use crate::action::{Asker, Outcome};
use crate::cluster::fact::{Key, Pod, Uid};
use crate::cluster::index::Index;
use crate::cluster::subject::{Kind, ObjectRef};
use crate::drain::action::{Action, Own};
use crate::drain::assess::Fate;
use crate::drain::context::{Context, NodeContext};
use crate::drain::node::NodePhase;
use crate::drain::pod::{PodRun, PodState};
use crate::drain::policy::DryRun;
use crate::drain::run::{Run, after, failure_text};
use crate::drain::step::{Event, Step};
use crate::drain::transfer::Copying;
use crate::machines::line::{target_of, under_way};
use crate::machines::slots::{self, Ledger};
use crate::machines::{Instance, Migration, MigrationPhase, condition, names, retries};
use crate::reasons::component::{self, SilentHook};
use crate::reasons::{AnswerReason, InLine, MigrationReason, Reason};
use limit::Room;
use unschedulable::{GivesWay, LOOK_AT_TARGET, Placing, Words};

/// Failures in a row, in one drain, after which a guest is named as one that cannot be moved.
const FAILURES: u32 = 5;
/// A controller that works takes note of a migration at once. After this long it is named.
const PICKED_UP_AFTER: Duration = Duration::from_secs(5);

/// The pause between two looks at the pods of a guest whose copy does not come up.
const LOOK_AGAIN: Backoff = Backoff::new(Duration::from_secs(12), Duration::from_secs(60));

/// What was seen and told of one guest's move.
#[derive(Debug, Clone)]
pub(crate) struct MigrationProgress {
    pub instance: Key,
    pub migration: Option<Uid>,
    pub phase: MigrationPhase,
    pub began: Timestamp,
    pub phase_since: Timestamp,
    pub target: String,
    /// The memory of the guest in bytes; 0 if it is not known.
    pub memory: u64,
    /// Which migration of this guest it is that this drain sees.
    pub attempt: u32,
    /// When it left the queue, when its memory began to be copied, and when its guest was gone from here.
    pub under_way_since: Option<Timestamp>,
    pub copied_since: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    pub copying: Option<Copying>,
    /// When the last sample of that came, by our own clock, and whether the guest was faster than its copy then. That goes for the next try, too.
    pub sampled: Option<Timestamp>,
    pub outran: bool,
    /// How many guests of the node were being copied then.
    pub beside: usize,
    failure_told: Option<Uid>,
    /// When its pods are to be read, and how often that was done.
    look_at: Option<Timestamp>,
    looks: u32,
    pub placing: Placing,
    /// KubeVirt's evacuation controller moves it, and since when that could have begun.
    pub by_kubevirt: bool,
    pub kubevirt_idle_since: Option<Timestamp>,
}

impl MigrationProgress {
    /// A move of this guest has failed in this drain.
    pub(crate) fn has_failed(&self) -> bool {
        self.attempt > 1 || self.failure_told.is_some()
    }

    fn new(instance: Key, now: Timestamp) -> Self {
        Self {
            instance,
            migration: None,
            phase: MigrationPhase::Unset,
            began: now,
            phase_since: now,
            target: String::new(),
            memory: 0,
            attempt: 0,
            under_way_since: None,
            copied_since: None,
            ended: None,
            copying: None,
            sampled: None,
            outran: false,
            beside: 1,
            failure_told: None,
            look_at: None,
            looks: 0,
            placing: Placing::default(),
            by_kubevirt: false,
            kubevirt_idle_since: None,
        }
    }
}

/// How often in a row moving failed since the drain began, and why the last time.
struct Failures {
    count: u32,
    last: Uid,
    why: String,
    retry_at: Timestamp,
}

/// Reads the newest migrations of an instance. Failures from before the drain decide the pause, not the end of patience.
fn failures(index: &Index, instance: &Key, since: Timestamp, now: Timestamp) -> Option<Failures> {
    let all = index.migrations_of(instance);
    let last = retries::automatic(&all).next().filter(|one| one.phase == MigrationPhase::Failed)?;
    let in_a_row = retries::failed_in_a_row(&all);
    let failed_at = |one: &Migration| one.entered(MigrationPhase::Failed).or(one.created).unwrap_or(now);
    // Times of objects are whole seconds.
    let whole = since.checked_sub(SignedDuration::from_secs(1)).unwrap_or(since);
    let ours = in_a_row.iter().filter(|one| failed_at(one) >= whole).count();
    let why = if last.failure_reason.is_empty() {
        format!("migration {} failed", last.key.name)
    } else {
        last.failure_reason.clone()
    };
    Some(Failures {
        count: u32::try_from(ours).unwrap_or(u32::MAX),
        last: last.uid.clone(),
        why,
        retry_at: retries::BACKOFF.until(failed_at(last), retries::earlier(&in_a_row)),
    })
}

/// The migration of a guest that is not over; of two the one that is further, then the newer one.
pub(crate) fn unfinished<'a>(index: &'a Index, instance: &Key) -> Option<&'a Migration> {
    index
        .migrations_of(instance)
        .into_iter()
        .filter(|one| !one.phase.is_final())
        .max_by_key(|one| (one.phase.is_under_way(), !one.deleting))
}

/// The instance lists more pods than the one that runs the guest. Those may have ended: an earlier move leaves its source behind.
fn has_other_pods(instance: &Instance, pod: &Uid) -> bool {
    instance.active_pods.iter().any(|(uid, _)| uid != pod)
}

/// A pod besides the one that runs the guest that has not ended, before a new copy is made.
pub(crate) fn left_over<'a>(index: &'a Index, instance: &Instance, pod: &Pod) -> Option<&'a Pod> {
    index.launchers_of(&instance.uid).into_iter().find(|launcher| {
        launcher.uid != pod.uid
            && !launcher.is_finished()
            // What was read once may be gone since.
            && instance.active_pod(&launcher.uid).is_some()
    })
}

/// The limit that keeps a waiting migration from beginning, if one does.
pub(crate) fn in_line(index: &Index, node: &str) -> Option<InLine> {
    let config = &index.config;
    let ledger = Ledger { slots: under_way(index), ..Ledger::default() };
    match ledger.room(config, node) {
        slots::Room::Free => None,
        slots::Room::ClusterFull => Some(InLine {
            running: ledger.slots.len(),
            at_most: config.parallel_per_cluster,
            from_node: None,
        }),
        slots::Room::NodeFull => Some(InLine {
            running: ledger.slots.iter().filter(|slot| slot.node == node).count(),
            at_most: config.parallel_outbound_per_node,
            from_node: Some(node.to_owned()),
        }),
    }
}

/// Takes note of how the guests of a node that are being moved get on, and tells what is new.
pub(crate) fn follow(node_context: &NodeContext<'_>, run: &mut Run, step: &mut Step) {
    let NodeContext { context: Context { index, now, .. }, assessment, since, .. } = *node_context;
    let tainted = run.node_mut(&assessment.node).is_some_and(|node| mover::is_tainted(index, node));
    let owner = run.owner.clone();
    for verdict in assessment.of_fate(Fate::Migrate) {
        let Some(pod) = index.pod(&verdict.pod) else { continue };
        let Some(instance) = index.instance_of(pod) else { continue };
        let Some(known) = run.pods.get_mut(&verdict.uid) else { continue };
        let moving =
            known.moving.get_or_insert_with(|| Box::new(MigrationProgress::new(instance.key.clone(), now)));
        moving.placing.judge(index, pod);
        let moves = mover::is_kubevirt(index, tainted, instance);
        moving.watch_kubevirt(index, &assessment.node, moves, now);
        if let Some(state) = &instance.migration
            && moving.migration.as_ref().is_some_and(|uid| *uid == *state.uid)
            && !state.failed
        {
            moving.target.clone_from(&state.target_node);
        }
        if let Some(migration) = unfinished(index, &instance.key) {
            let scheduling_since = moving.phase_since;
            moving.placing.listen(index, instance, migration, scheduling_since);
            if moving.migration.as_ref() != Some(&migration.uid) {
                **moving = MigrationProgress {
                    placing: std::mem::take(&mut moving.placing),
                    by_kubevirt: moving.by_kubevirt,
                    outran: moving.outran,
                    attempt: moving.attempt + 1,
                    memory: instance.memory,
                    ..MigrationProgress::new(instance.key.clone(), now)
                };
                moving.migration = Some(migration.uid.clone());
                if migration.annotations.get(names::DRAIN) != Some(&owner) {
                    step.events.push(Event::Adopted {
                        instance: instance.key.clone(),
                        pod: verdict.pod.clone(),
                        node: assessment.node.clone(),
                        migration: migration.key.name.to_string(),
                    });
                }
            } else if moving.phase == migration.phase {
                continue;
            }
            moving.phase = migration.phase;
            moving.phase_since = now;
            if migration.phase.is_under_way() {
                moving.under_way_since.get_or_insert(now);
            }
            if migration.phase == MigrationPhase::Running {
                moving.copied_since.get_or_insert(now);
            }
            moving.look_at = (migration.phase == MigrationPhase::Scheduling)
                .then(|| after(now, moving.placing.look_after()));
            if migration.phase == MigrationPhase::Unset {
                continue;
            }
            step.events.push(Event::MovePhase {
                instance: instance.key.clone(),
                pod: verdict.pod.clone(),
                node: assessment.node.clone(),
                migration: migration.key.name.to_string(),
                phase: migration.phase.text().to_owned(),
            });
        } else if let Some(failed) = failures(index, &instance.key, since, now)
            && failed.count > 0
            && moving.failure_told.as_ref() != Some(&failed.last)
        {
            let message = moving.why_failed(&failed);
            moving.failure_told = Some(failed.last);
            moving.target.clear();
            step.events.push(Event::MoveFailed {
                instance: instance.key.clone(),
                pod: verdict.pod.clone(),
                node: assessment.node.clone(),
                failures: failed.count,
                message,
                retry_at: (failed.count < FAILURES).then_some(failed.retry_at),
            });
        }
    }
}

impl MigrationProgress {
    /// Why a migration failed: the words of the scheduler, if it was for them.
    fn why_failed(&self, failed: &Failures) -> String {
        match self.placing.words_about(&failed.last) {
            Some(known) => format!("its copy found no place: {}", known.message),
            None => failed.why.clone(),
        }
    }
}

/// What a guest that is to be moved waits for, since when if not since now, and when that may change by time alone.
pub(crate) fn waiting_for(
    node_context: &NodeContext<'_>,
    pod: &Pod,
    known: &PodRun,
) -> (Option<Reason>, Option<Timestamp>) {
    let NodeContext { context: Context { index, now, .. }, since, .. } = *node_context;
    let Some(instance) = index.instance_of(pod) else { return (None, None) };
    let moving = known.moving.as_deref();
    let nowhere = moving.and_then(|moving| moving.placing.nowhere(instance));
    if let Some(migration) = unfinished(index, &instance.key) {
        let ours = migration.annotations.contains_key(names::DRAIN);
        let name = migration.key.name.to_string();
        let copy = target_of(index, migration, instance);
        let seen = known.moving.as_deref().filter(|moving| moving.migration.as_ref() == Some(&migration.uid));
        let unnoticed = seen.filter(|_| migration.phase == MigrationPhase::Unset);
        let named_at = unnoticed.map(|moving| after(moving.phase_since, PICKED_UP_AFTER));
        // A pod that was left is what it waits for, and says more.
        if named_at.is_some_and(|at| at <= now) && left_over(index, instance, pod).is_none() {
            return (Some(MigrationReason::VmNotPickedUp { migration: name }.into()), None);
        }
        let reason = match migration.phase {
            MigrationPhase::Unset | MigrationPhase::Pending => match left_over(index, instance, pod) {
                Some(other) => {
                    MigrationReason::VmPodLeft { migration: Some(name), node: other.node_name().to_owned() }
                }
                None => MigrationReason::VmQueued { migration: name, limit: in_line(index, &instance.node) },
            },
            MigrationPhase::Scheduling if copy.is_some_and(Pod::is_unschedulable) => {
                // A migration of ours is called off first.
                if let Some(nowhere) = nowhere.filter(|_| !ours) {
                    return (Some(nowhere), None);
                }
                let said = copy.and_then(|pod| condition::find(pod.launcher_conditions(), "PodScheduled"));
                let message =
                    said.and_then(|said| said.message.as_ref()).map(String::from).unwrap_or_default();
                MigrationReason::VmNoPlace { migration: name, message }
            }
            phase => MigrationReason::VmMigrating { migration: name, phase: phase.text().into() },
        };
        return (Some(reason.into()), named_at.filter(|at| *at > now));
    }
    if nowhere.is_some() {
        return (nowhere, None);
    }
    if let Some((reason, at)) =
        moving.and_then(|moving| moving.waits_for_kubevirt(index, &instance.node, now))
    {
        return (Some(reason), at);
    }
    if let Some(failed) = failures(index, &instance.key, since, now) {
        let no_place = moving.and_then(|moving| moving.placing.words_about(&failed.last));
        if failed.count >= FAILURES {
            let message = moving.map_or_else(|| failed.why.clone(), |moving| moving.why_failed(&failed));
            let reason = MigrationReason::VmMoveGivenUp { failures: failed.count, message };
            return (Some(reason.into()), None);
        }
        if failed.retry_at > now {
            let reason = match no_place {
                Some(words) => words.reason(),
                None => MigrationReason::VmMoveFailed {
                    failures: failed.count.max(1),
                    message: failed.why,
                    retry_at: Some(failed.retry_at),
                }
                .into(),
            };
            return (Some(reason), Some(failed.retry_at));
        }
    }
    if let Some(refused) = known.last().and_then(refusal) {
        return (Some(refused), None);
    }
    // It gave way to others, and what it lacks has not changed because of that.
    let words = moving.and_then(|moving| moving.placing.words());
    (Some(words.map_or_else(|| MigrationReason::VmNotAsked.into(), Words::reason)), None)
}

/// Since when something holds that was found out later: a copy without a place has had none since it was made, and KubeVirt is called idle when it has been so for a while.
pub(crate) fn began(known: &PodRun, reason: &Reason) -> Option<Timestamp> {
    match reason {
        Reason::Migration(MigrationReason::VmKubeVirtIdle) => known.moving.as_ref()?.kubevirt_idle_since,
        Reason::Migration(MigrationReason::VmNoPlace { .. }) => {
            let moving = known.moving.as_ref()?;
            Some(moving.placing.words().map_or(moving.phase_since, |known| known.since))
        }
        Reason::Migration(MigrationReason::VmNotPickedUp { .. }) => Some(known.moving.as_ref()?.phase_since),
        _ => None,
    }
}

/// Why a migration could not be asked for.
pub(crate) fn refusal(outcome: &Outcome) -> Option<Reason> {
    Some(match outcome {
        Outcome::Done => return None,
        Outcome::Forbidden { message } => {
            MigrationReason::VmMoveForbidden { message: message.clone() }.into()
        }
        Outcome::Webhook { message, .. } => {
            MigrationReason::VmMoveRefused { message: message.clone() }.into()
        }
        Outcome::Throttled { .. } => AnswerReason::Throttled.into(),
        Outcome::Invalid { status, message } | Outcome::Server { status, message }
            if component::is_strange(*status, message) =>
        {
            Reason::Answer(AnswerReason::StrangeAnswer { status: *status, message: message.clone() })
        }
        Outcome::Server { message, .. } if SilentHook::in_message(message).is_some() => {
            MigrationReason::VmMoveUnanswered { hook: SilentHook::in_message(message)? }.into()
        }
        other => MigrationReason::VmMoveRefused { message: failure_text(other) }.into(),
    })
}

/// A guest that may be moved now.
struct Candidate {
    /// It has no place, as far as is known.
    is_last: bool,
    order: (Reverse<u64>, Key),
    pod: Uid,
    instance: Uid,
    newest: Option<Uid>,
}

/// Starts as many migrations of a node's guests as there is room for, and looks after those without a place.
pub(crate) fn send(node_context: &NodeContext<'_>, run: &mut Run, step: &mut Step) {
    let NodeContext { context: Context { index, policy, now }, assessment, .. } = *node_context;
    let node = &assessment.node;
    let trial = policy.dry_run == DryRun::Server;
    let mut candidates = Vec::new();
    let mut asked = 0;
    // Guests with a place that hold no slot yet.
    let mut waiting = 0;
    for verdict in assessment.of_fate(Fate::Migrate) {
        let Some(pod) = index.pod(&verdict.pod) else { continue };
        let Some(instance) = index.instance_of(pod) else { continue };
        let Some(known) = run.pods.get_mut(&verdict.uid) else { continue };
        let is_last = known.moving.as_ref().is_some_and(|moving| moving.placing.is_last());
        if let Some(migration) = unfinished(index, &instance.key) {
            waiting += usize::from(!is_last && migration.phase <= MigrationPhase::Pending);
            continue;
        }
        let newest = index.migrations_of(&instance.key).last().copied();
        if newest.is_some_and(|newest| known.left_by(newest)) {
            continue;
        }
        asked += usize::from(known.state == PodState::InFlight);
        waiting += usize::from(!is_last && known.state == PodState::InFlight);
        if may_ask(node_context, instance, known, step) {
            waiting += usize::from(!is_last);
            candidates.push(Candidate {
                is_last,
                order: (Reverse(instance.memory), instance.key.clone()),
                pod: verdict.uid.clone(),
                instance: instance.uid.clone(),
                newest: newest.map(|one| one.uid.clone()),
            });
        }
    }
    if !trial {
        candidates.retain(|candidate| !candidate.is_last || waiting == 0);
    }
    let mut room = if trial { Room::ENDLESS } else { Room::of(index, node).less(asked) };
    room = room.at_most(policy.parallel.saturating_sub(run.requests_under_way()));
    candidates.sort_by(|a, b| a.order.cmp(&b.order));
    let Some(node_run) = run.node_mut(node) else { return };
    let tainted = mover::is_tainted(index, node_run);
    let NodePhase::Draining(draining) = &mut node_run.phase else { return };
    let room = room.now(&mut draining.ask_ahead_at, candidates.len(), now, step);
    for candidate in candidates.into_iter().take(room) {
        let (_, instance) = candidate.order;
        let Some(known) = run.pods.get_mut(&candidate.pod) else { continue };
        known.state = PodState::InFlight;
        let newest = candidate.newest.as_ref().map(Uid::text);
        let newest = newest.as_deref();
        // Where the taint asks the control plane to move guests, too, the second request must find the name taken.
        let name = if tainted {
            names::evacuation(&instance.name, &candidate.instance.text(), newest.unwrap_or("first"))
        } else {
            names::drain(&instance.name, &candidate.instance.text(), newest)
        };
        let attempt = known.attempt();
        step.events.push(Event::Moving {
            instance: instance.clone(),
            pod: known.key.clone(),
            node: node.clone(),
            migration: name.clone(),
            attempt,
        });
        step.actions.push(Action::Migrate {
            instance: ObjectRef::new(Kind::Instance, instance, candidate.instance),
            name,
            node: node.clone(),
            asker: Asker::Drain { owner: run.owner.clone(), pod: candidate.pod },
            dry_run: trial,
        });
    }
    if !trial {
        look_after(node_context, run, waiting > 0, step);
    }
}

fn may_ask(node_context: &NodeContext<'_>, instance: &Instance, known: &mut PodRun, step: &mut Step) -> bool {
    let NodeContext { context: Context { index, policy, now }, since, .. } = *node_context;
    let PodState::Idle(next) = known.state else { return false };
    if policy.dry_run == DryRun::Server {
        return known.answer.is_none();
    }
    if known.has_failed_for_good(policy.patience) {
        known.give_up(now);
        return false;
    }
    let moving = known.moving.as_ref();
    let in_vain = !policy.keep_empty && moving.is_some_and(|moving| moving.was_tried_in_vain());
    if in_vain || moving.is_some_and(|moving| moving.by_kubevirt) {
        return false;
    }
    let failed = failures(index, &instance.key, since, now);
    if !policy.keep_empty && failed.as_ref().is_some_and(|failed| failed.count >= FAILURES) {
        return false;
    }
    let held = [next.not_before, failed.map(|failed| failed.retry_at)].into_iter().flatten().max();
    if let Some(at) = held.filter(|at| *at > now) {
        step.look_at(at);
        return false;
    }
    true
}

/// Finds out why copies do not come up, and calls off what no longer helps: copies without a place, and second migrations of one guest.
fn look_after(node_context: &NodeContext<'_>, run: &mut Run, others_wait: bool, step: &mut Step) {
    let NodeContext { context: Context { index, now, .. }, assessment, .. } = *node_context;
    let owner = run.owner.clone();
    for verdict in assessment.of_fate(Fate::Migrate) {
        let Some(instance) = index.pod(&verdict.pod).and_then(|pod| index.instance_of(pod)) else { continue };
        for second in mover::superfluous(index, instance, &owner) {
            run.call_off(second, &assessment.node);
        }
        let Some(known) = run.pods.get_mut(&verdict.uid) else { continue };
        let Some(moving) = known.moving.as_mut() else { continue };
        let Some(migration) = unfinished(index, &instance.key) else { continue };
        let waits = migration.phase <= MigrationPhase::Pending
            && has_other_pods(instance, &verdict.uid)
            && in_line(index, &assessment.node).is_none();
        if (migration.phase != MigrationPhase::Scheduling && !waits) || migration.deleting {
            continue;
        }
        if waits {
            moving.look_at.get_or_insert(after(now, LOOK_AT_TARGET));
        }
        if let Some(at) = moving.look_at {
            if at <= now {
                moving.look_at = Some(LOOK_AGAIN.until(now, moving.looks));
                moving.looks += 1;
                step.actions.push(Action::Own(Own::ReadLaunchers {
                    instance: instance.key.clone(),
                    uid: instance.uid.clone(),
                }));
            }
            moving.look_at.into_iter().for_each(|at| step.look_at(at));
        }
        match known.gives_way(migration, &owner, others_wait, now) {
            GivesWay::No => {}
            GivesWay::At(at) => step.look_at(at),
            GivesWay::Now => run.call_off(migration, &assessment.node),
        }
    }
}

/// Calls off the migrations of a drain that ends without being done, as far as nothing is being copied yet: they would move guests after the drain has given up.
pub(crate) fn call_off(node_context: &NodeContext<'_>, run: &mut Run) {
    let NodeContext { context: Context { index, .. }, assessment, .. } = *node_context;
    let owner = run.owner.clone();
    for verdict in assessment.of_fate(Fate::Migrate) {
        let Some(instance) = index.pod(&verdict.pod).and_then(|pod| index.instance_of(pod)) else { continue };
        for one in index.migrations_of(&instance.key) {
            let waits = !one.phase.is_final() && !one.phase.is_handed_over() && !one.deleting;
            if waits && one.annotations.get(names::DRAIN) == Some(&owner) {
                run.call_off(one, &assessment.node);
            }
        }
    }
}

impl PodRun {
    /// Whether its guest has left by this migration. Instances and migrations are watched apart, so it may still be seen here; a second one would move it on.
    fn left_by(&self, migration: &Migration) -> bool {
        let followed = self.moving.as_ref().and_then(|moving| moving.migration.as_ref());
        migration.phase == MigrationPhase::Succeeded && followed == Some(&migration.uid)
    }

    /// Where the guest of this pod went, if it left by a migration.
    pub(crate) fn went_to(&self) -> Option<(&Key, &str, Timestamp)> {
        let moving = self.moving.as_ref().filter(|moving| !moving.target.is_empty())?;
        Some((&moving.instance, &moving.target, moving.began))
    }
}

#[cfg(test)]
pub(crate) mod tests;

#[cfg(test)]
mod words_tests;
