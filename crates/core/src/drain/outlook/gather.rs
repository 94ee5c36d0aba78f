//! What is known about a node that is being emptied, as the estimates need it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::guests::{Measured, Moved, Past, Staying, guests};
use super::pods::{Budgeted, Gone, Stopping, budgeted, stopping};
use super::{Outlook, Unknown};
use crate::cluster::fact::{Key, Pod, VmRole};
use crate::cluster::index::Index;
use crate::drain::assess::{Assessment, Fate, Verdict};
use crate::drain::budget::{Charges, Gate, gate};
use crate::drain::look::{Look, NodeLook};
use crate::drain::migrations::unfinished;
use crate::drain::pod::{PodRun, PodState};
use crate::drain::policy::Policy;
use crate::drain::run::{Run, after};
use crate::drain::step::NAMED_AFTER;
use crate::machines::MigrationPhase;
use crate::reasons::{AnswerReason, BudgetReason, MigrationReason, Reason, Severity};

/// Pods of one controller with the same grace period stop alike.
type Kind = (Option<String>, Option<i64>);

/// What is kept of one pod for the estimate of those that leave after it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trail {
    kind: Kind,
    /// Since when it is stopping, and when it was gone.
    pub stopping: Option<Timestamp>,
    pub gone: Option<Timestamp>,
    /// The budget from which its eviction takes a disruption.
    pub charged: Option<Key>,
}

impl Trail {
    pub fn of(pod: &Pod) -> Self {
        let owner = pod.controller.as_ref().map(ToString::to_string);
        Self { kind: (owner, pod.grace_seconds), ..Self::default() }
    }

    fn took(&self) -> Option<f64> {
        Some(seconds(self.stopping?, self.gone?))
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// Takes down which pods are on their way out, whether this drain asked them or not.
pub(crate) fn note_stopping(view: &NodeLook<'_>, run: &mut Run) {
    let NodeLook { look: Look { index, now, .. }, assessment, .. } = *view;
    for verdict in &assessment.verdicts {
        if let Some(known) = run.pods.get_mut(&verdict.uid)
            && index.pod(&verdict.pod).is_some_and(|pod| pod.deletion.is_some())
        {
            known.trail.stopping.get_or_insert(now);
        }
    }
}

/// How long it takes until this node is empty.
pub(crate) fn outlook(view: &NodeLook<'_>, run: &Run) -> Outlook {
    let NodeLook { look: Look { now, .. }, assessment, .. } = *view;
    let staying = || assessment.verdicts.iter().filter(|verdict| verdict.fate != Fate::Leave);
    if staying().any(|verdict| may_stay(run, verdict, now)) {
        return Outlook::Unknown(Unknown::Blocked);
    }
    let mut lanes = vec![all_guests(view, run).map(|range| range.map(Gone::Within))];
    lanes.extend(all_pods(view, run));
    Outlook::of(lanes)
}

/// Whether something is in the way of a pod that clears at an unknown time, or never.
fn may_stay(run: &Run, verdict: &Verdict, now: Timestamp) -> bool {
    let Some(known) = run.pods.get(&verdict.uid) else { return verdict.fate == Fate::Blocked };
    if verdict.fate == Fate::Blocked || known.state.is_failed() {
        return true;
    }
    let Some((reason, since)) = &known.told.blocked else { return false };
    let at_its_pace = matches!(
        reason,
        Reason::Budget(
            BudgetReason::BudgetExhausted { .. }
                | BudgetReason::BudgetGivenOut { .. }
                | BudgetReason::BudgetBehind { .. }
        ) | Reason::Answer(AnswerReason::Throttled)
            | Reason::Migration(MigrationReason::VmMoveFailed { retry_at: Some(_), .. })
    );
    match reason.severity() {
        Severity::Never => true,
        Severity::Slow => !at_its_pace && now >= after(*since, NAMED_AFTER),
        Severity::Note | Severity::Warning | Severity::Progress => false,
    }
}

fn all_guests(view: &NodeLook<'_>, run: &Run) -> Result<Option<super::lane::Range>, Unknown> {
    let NodeLook { look: Look { index, now, .. }, assessment, .. } = *view;
    let mut staying = Vec::new();
    for verdict in assessment.of_fate(Fate::Migrate) {
        let Some(instance) = index.pod(&verdict.pod).and_then(|pod| index.instance_of(pod)) else { continue };
        let Some(known) = run.pods.get(&verdict.uid) else { continue };
        let migration = unfinished(index, &instance.key);
        let moving = known.moving.as_ref().filter(|_| migration.is_some_and(|one| one.phase.is_under_way()));
        let is_copied = migration.is_some_and(|one| one.phase == MigrationPhase::Running);
        let copying = moving.filter(|_| is_copied);
        staying.push(Staying {
            memory: instance.memory,
            again_in: again_in(known, now),
            outran: known.moving.as_ref().is_some_and(|moving| moving.outran),
            under_way: moving.and_then(|moving| Some(seconds(moving.under_way_since?, now))),
            copied_for: copying.and_then(|moving| Some(seconds(moving.copied_since?, now))),
            sample: copying.and_then(|moving| {
                Some(Measured {
                    sample: *moving.copying.as_ref()?.newest(),
                    age: seconds(moving.sampled?, now),
                    beside: moving.beside,
                })
            }),
        });
    }
    let here = run.pods.values().filter(|pod| pod.node == assessment.node);
    let mut past = Past::default();
    for moving in here.filter_map(|pod| pod.moving.as_ref()) {
        past.failed += usize::from(moving.has_failed());
        let Some(began) = moving.under_way_since else { continue };
        past.begun.push(-seconds(began, now));
        if let (Some(copied), Some(gone), false) =
            (moving.copied_since, moving.ended, moving.target.is_empty())
        {
            past.moved.push(Moved {
                memory: moving.memory,
                began: -seconds(began, now),
                copied_since: -seconds(copied, now),
                gone: -seconds(gone, now),
            });
        }
    }
    guests(&staying, &past, places(index, run, assessment))
}

fn again_in(known: &PodRun, now: Timestamp) -> Option<f64> {
    match &known.told.blocked {
        Some((Reason::Migration(MigrationReason::VmMoveFailed { retry_at: Some(at), .. }), _)) => {
            Some(seconds(now, *at))
        }
        _ => None,
    }
}

/// How many guests of a node can be on their way: what the node may send, and its share of what the cluster may.
fn places(index: &Index, run: &Run, assessment: &Assessment) -> usize {
    let config = &index.config;
    let mut under_way: BTreeMap<&str, usize> = BTreeMap::new();
    for one in index.unfinished().filter(|one| one.phase.is_under_way()) {
        if let Some(instance) = index.instance(&one.instance) {
            *under_way.entry(instance.node.as_str()).or_default() += 1;
        }
    }
    let senders = run
        .nodes
        .iter()
        .filter(|node| node.name == assessment.node || under_way.contains_key(node.name.as_str()))
        .count()
        .max(1);
    let share = (config.parallel_per_cluster as usize / senders).max(1);
    let own = under_way.get(assessment.node.as_str()).copied().unwrap_or(0);
    // What runs shows how many may.
    config.at_once_from_a_node().min(share).max(own).max(1)
}

fn all_pods(view: &NodeLook<'_>, run: &Run) -> Vec<Result<Option<Gone>, Unknown>> {
    let NodeLook { look: Look { index, policy, now }, assessment, .. } = *view;
    let mut leaving: Vec<Stopping> = Vec::new();
    let mut lanes: BTreeMap<Key, usize> = BTreeMap::new();
    let mut took: BTreeMap<&Kind, Vec<f64>> = BTreeMap::new();
    for trail in run.pods.values().map(|pod| &pod.trail) {
        if let Some(seconds) = trail.took() {
            took.entry(&trail.kind).or_default().push(seconds);
        }
    }
    for verdict in &assessment.verdicts {
        // What has ended is cleared away in no time.
        let Some(pod) = index.pod(&verdict.pod).filter(|pod| !pod.phase.is_finished()) else { continue };
        let Some(known) = run.pods.get(&verdict.uid) else { continue };
        let stopping = known.trail.stopping;
        if verdict.fate == Fate::Evict && stopping.is_none() && !policy.disable_eviction {
            let budget = match gate(index, pod, &Charges::new()) {
                Gate::Open => None,
                Gate::Charged(budget) => Some(budget),
                Gate::Closed(_) => index.budgets_of(pod).next().map(|budget| budget.key.clone()),
            };
            if let Some(budget) = budget {
                *lanes.entry(budget).or_default() += 1;
                continue;
            }
        }
        // The volumes of a guest go with it.
        let asked = verdict.fate == Fate::Evict
            || (stopping.is_some() && verdict.fate == Fate::Follow && pod.vm != VmRole::Hotplug);
        if asked {
            leaving.push(Stopping {
                since: stopping.map_or(0.0, |since| seconds(since, now)),
                deadline: deadline(policy, pod, known, now),
                others: took.get(&known.trail.kind).cloned().unwrap_or_default(),
            });
        }
    }
    let mut found: Vec<_> =
        lanes.into_iter().map(|(budget, waiting)| lane(index, run, &budget, waiting, now)).collect();
    found.push(stopping(&leaving));
    found
}

/// When its grace period ends, in seconds from now; of one that was not asked yet, if it were asked now.
fn deadline(policy: &Policy, pod: &Pod, known: &PodRun, now: Timestamp) -> Option<f64> {
    let grace = policy.grace_seconds.or(pod.grace_seconds).filter(|grace| *grace >= 0);
    match (pod.deletion, known.trail.stopping) {
        // By our own clock: it was seen to be stopping then.
        (Some(deletion), Some(since)) => Some(deletion.grace_seconds as f64 - seconds(since, now)),
        (Some(deletion), None) => Some(deletion.grace_seconds as f64),
        (None, _) => grace.map(|grace| grace as f64),
    }
}

/// Nodes that are emptied at the same time share a budget, and its pods leave in turn whichever node they are on.
fn lane(index: &Index, run: &Run, key: &Key, here: usize, now: Timestamp) -> Result<Option<Gone>, Unknown> {
    let Some(budget) = index.budget(key) else { return Err(Unknown::NothingMeasured) };
    let charged = || run.pods.values().filter(|pod| pod.trail.charged.as_ref() == Some(key));
    let mut granted: Vec<f64> = charged().filter_map(|pod| Some(seconds(pod.trail.stopping?, now))).collect();
    granted.sort_by(|a, b| b.total_cmp(a));
    let elsewhere = run
        .pods
        .values()
        .filter(|pod| pod.trail.stopping.is_none() && pod.state != PodState::Gone)
        .filter_map(|pod| index.pod(&pod.key))
        .filter(|pod| pod.deletion.is_none() && index.budgets_of(pod).any(|one| one.key == *key))
        .count();
    budgeted(&Budgeted {
        places: usize::try_from(budget.expected - budget.desired_healthy).unwrap_or(0).max(1),
        granted,
        stops: charged().filter_map(|pod| pod.trail.took()).collect(),
        waiting: here.max(elsewhere),
    })
    .map(|range| range.map(Gone::Within))
}
