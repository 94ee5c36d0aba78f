//! What now? The one function that moves a drain forward.
//!
//! Given everything known, [`step`] says which requests to send, what changed that is worth telling, and when to look again
//! if nothing happens until then. It sends an eviction when the server would grant it; a pod that waits for a budget costs
//! no request and no place. A capped back-off is the safety net under the watch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::action::{Action, Outcome};
use crate::assess::{Assessment, Fate, assess};
use crate::budget::{Charges, Gate, gate};
use crate::explain::waiting_for;
use crate::fact::{Key, Pod, Uid};
use crate::index::Index;
use crate::ownership::{self, MarkState, Ownership};
use crate::policy::{DryRun, Policy, back_off};
use crate::proof::prove;
use crate::reason::{Reason, Severity};
use crate::run::{Blocker, End, NodePhase, PodRun, PodState, Run, after};

/// Something worth telling the person who waits. Also the lines of `-o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    Planned { node: String, assessment: Assessment },
    Noted { node: String, reason: Reason },
    AlreadyCordoned { node: String },
    Cordoned { node: String },
    Evicting { pod: Key, node: String, attempt: u32, deleting: bool },
    Waiting { node: String, blocker: Blocker },
    Left { pod: Key, node: String, by_us: bool, deleting: bool },
    Rehearsed { pod: Key, node: String, outcome: Outcome },
    Progress { node: String, left: usize, total: usize },
    Ended { node: String, #[serde(flatten)] end: End },
}

#[derive(Debug, Clone, Default)]
pub struct Step {
    pub actions: Vec<Action>,
    pub events: Vec<Event>,
    /// When to call again even if nothing happens.
    pub look_again: Option<Timestamp>,
}

impl Step {
    fn wake_at(&mut self, at: Timestamp) {
        self.look_again = Some(self.look_again.map_or(at, |known| known.min(at)));
    }
}

pub fn step(index: &Index, policy: &Policy, run: &mut Run, now: Timestamp) -> Step {
    let mut step = Step::default();
    for position in 0..run.nodes.len() {
        if run.nodes[position].phase == NodePhase::Waiting {
            begin(index, policy, run, position, now, &mut step);
        }
    }
    // All nodes are cordoned before the first pod leaves: it must not land on the next one to be emptied.
    let preparing =
        run.nodes.iter().any(|node| matches!(node.phase, NodePhase::Waiting | NodePhase::Cordoning));
    if preparing {
        return step;
    }
    for position in 0..run.nodes.len() {
        match run.nodes[position].phase {
            NodePhase::Draining { since } => advance(index, policy, run, position, since, now, &mut step),
            NodePhase::Proving { since } => {
                conclude(index, policy, run, position, since, now, &mut step);
            }
            _ => {}
        }
    }
    if !run.stopping {
        send(index, policy, run, now, &mut step);
    }
    step
}

fn end(run: &mut Run, position: usize, end: End, step: &mut Step) {
    let node = run.nodes[position].name.clone();
    step.events.push(Event::Ended { node, end: end.clone() });
    run.nodes[position].phase = NodePhase::Ended(end);
}

fn refusals(index: &Index, assessment: &Assessment, now: Timestamp) -> Vec<Blocker> {
    assessment
        .of_fate(Fate::Blocked)
        .flat_map(|verdict| {
            let owner = index.pod(&verdict.pod).and_then(|pod| pod.controller.as_ref()).map(ToString::to_string);
            verdict
                .reasons
                .iter()
                .filter(|reason| reason.severity() == Severity::Never)
                .map(move |reason| Blocker {
                    pod: verdict.pod.clone(),
                    owner: owner.clone(),
                    reason: reason.clone(),
                    since: now,
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Plans before touching: verdicts first, then who owns the node, then the cordon.
fn begin(index: &Index, policy: &Policy, run: &mut Run, position: usize, now: Timestamp, step: &mut Step) {
    let name = run.nodes[position].name.clone();
    if run.stopping {
        return end(run, position, End::Stopped { blockers: Vec::new() }, step);
    }
    if let Some(at) = run.nodes[position].cordon_not_before.filter(|at| *at > now) {
        return step.wake_at(at);
    }
    let Some(node) = index.node(&name) else {
        let reason = Reason::NodeMissing;
        return end(run, position, End::Failed { reason, blockers: Vec::new() }, step);
    };
    let assessment = assess(index, policy, &name, now);
    let blockers = refusals(index, &assessment, now);
    if run.nodes[position].cordon_failures == 0 {
        step.events.push(Event::Planned { node: name.clone(), assessment });
    }
    if !blockers.is_empty() {
        return end(run, position, End::NotStarted { blockers }, step);
    }
    let owner = ownership::ownership(index, node, &run.owner, now);
    match &owner {
        Ownership::Other(reason) if !policy.take_over => {
            return end(run, position, End::Refused { reason: reason.clone() }, step);
        }
        Ownership::Other(reason) => {
            let owner = match reason {
                Reason::OwnedByEvac { owner, .. } => owner.clone(),
                Reason::OwnedByLease { holder, .. } => holder.clone(),
                _ => "an unreadable mark".into(),
            };
            step.events.push(Event::Noted { node: name.clone(), reason: Reason::TakenOver { owner } });
        }
        Ownership::ForeignCordon => {
            step.events.push(Event::Noted { node: name.clone(), reason: Reason::ForeignCordon });
        }
        Ownership::Free | Ownership::Ours(_) => {}
    }
    if policy.dry_run == DryRun::Client {
        return end(run, position, End::Rehearsed { blockers: Vec::new() }, step);
    }
    if node.unschedulable {
        step.events.push(Event::AlreadyCordoned { node: name.clone() });
    }
    if node.unschedulable && matches!(owner, Ownership::Ours(_)) {
        run.nodes[position].phase = NodePhase::Draining { since: now };
        return;
    }
    run.nodes[position].phase = NodePhase::Cordoning;
    step.actions.push(Action::Cordon {
        node: name,
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        mark: Box::new(ownership::new_mark(node, &run.owner, run.options.clone(), now)),
        dry_run: policy.dry_run == DryRun::Server,
    });
}

/// Takes stock of a node being emptied and decides whether that is over.
fn advance(
    index: &Index,
    policy: &Policy,
    run: &mut Run,
    position: usize,
    since: Timestamp,
    now: Timestamp,
    step: &mut Step,
) {
    let name = run.nodes[position].name.clone();
    note_departures(index, policy, run, &name, step);
    let rehearsal = policy.dry_run == DryRun::Server;
    if !rehearsal && let Some(reason) = lost_ownership(index, run, &name) {
        return end(run, position, End::Refused { reason }, step);
    }
    let assessment = assess(index, policy, &name, now);
    let remaining: Vec<&Pod> = assessment
        .verdicts
        .iter()
        .filter(|verdict| verdict.fate != Fate::Leave)
        .filter_map(|verdict| index.pod(&verdict.pod))
        .collect();
    for pod in &remaining {
        run.pods.entry(pod.uid.clone()).or_insert_with(|| PodRun::new(pod.key.clone(), name.clone()));
    }
    if rehearsal {
        return rehearse(run, position, &remaining, step);
    }
    let mut blockers = refusals(index, &assessment, now);
    let refused: BTreeSet<Key> = blockers.iter().map(|blocker| blocker.pod.clone()).collect();
    let charges = charges(index, run);
    for pod in remaining.iter().filter(|pod| !refused.contains(&pod.key)) {
        if let Some(blocker) = watch_over(index, run, pod, &charges, now, step) {
            blockers.push(blocker);
        }
    }
    if run.stopping {
        if run.requests_under_way() == 0 {
            end(run, position, End::Stopped { blockers }, step);
        }
        return;
    }
    if remaining.is_empty() {
        if let Some(at) = run.nodes[position].prove_not_before.filter(|at| *at > now) {
            return step.wake_at(at);
        }
        run.nodes[position].phase = NodePhase::Proving { since };
        step.actions.push(Action::Prove { node: name });
        return;
    }
    if let Some(timeout) = policy.timeout {
        let deadline = after(since, timeout);
        if now >= deadline {
            return end(run, position, End::TimedOut { after: timeout, blockers }, step);
        }
        step.wake_at(deadline);
    }
    end_if_stuck(policy, run, position, &remaining, &blockers, now, step);
}

/// All that is left cannot leave: after a pause in which the world may change its mind, say so and end.
fn end_if_stuck(
    policy: &Policy,
    run: &mut Run,
    position: usize,
    remaining: &[&Pod],
    blockers: &[Blocker],
    now: Timestamp,
    step: &mut Step,
) {
    let name = run.nodes[position].name.clone();
    let state = |pod: &Pod| run.pods.get(&pod.uid).map_or(PodState::Idle, |known| known.state);
    let never = |pod: &Pod| {
        blockers.iter().any(|blocker| blocker.pod == pod.key && blocker.reason.severity() == Severity::Never)
    };
    let stuck = remaining.iter().all(|pod| state(pod) == PodState::Failed || (state(pod) == PodState::Idle && never(pod)));
    if !stuck {
        run.never_since.remove(&name);
        return;
    }
    if let Some(failed) = remaining.iter().find(|pod| state(pod) == PodState::Failed) {
        let reason = blockers
            .iter()
            .find(|blocker| blocker.pod == failed.key)
            .map_or(Reason::EvictionUnsupported, |blocker| blocker.reason.clone());
        return end(run, position, End::Failed { reason, blockers: blockers.to_vec() }, step);
    }
    let believed = after(*run.never_since.entry(name).or_insert(now), policy.settle);
    if now >= believed {
        end(run, position, End::Blocked { blockers: blockers.to_vec() }, step);
    } else {
        step.wake_at(believed);
    }
}

/// The mark or the cordon we wrote is not there any more: somebody else decided otherwise.
fn lost_ownership(index: &Index, run: &Run, name: &str) -> Option<Reason> {
    let Some(node) = index.node(name) else { return Some(Reason::NodeMissing) };
    match &node.mark {
        Some(MarkState::Valid(mark)) if mark.owner == run.owner => {
            (!node.unschedulable).then_some(Reason::UncordonedMeanwhile)
        }
        _ => Some(Reason::CancelledElsewhere),
    }
}

fn note_departures(index: &Index, policy: &Policy, run: &mut Run, node: &str, step: &mut Step) {
    let mut left = 0;
    let mut total = 0;
    let mut changed = false;
    for (uid, pod) in run.pods.iter_mut().filter(|(_, pod)| pod.node == node) {
        total += 1;
        let present =
            index.pod(&pod.key).is_some_and(|found| found.uid == *uid && found.node.as_deref() == Some(node));
        if pod.state == PodState::InFlight || (present && pod.state != PodState::Gone) {
            left += 1;
        } else if !pod.told {
            pod.told = true;
            pod.state = PodState::Gone;
            pod.blocked = None;
            changed = true;
            step.events.push(Event::Left {
                pod: pod.key.clone(),
                node: node.to_owned(),
                by_us: pod.evicted_by_us,
                deleting: policy.disable_eviction,
            });
        }
    }
    if changed {
        step.events.push(Event::Progress { node: node.to_owned(), left, total });
    }
}

/// A trial: every pod is asked once, and the answers are the result.
fn rehearse(run: &mut Run, position: usize, remaining: &[&Pod], step: &mut Step) {
    let pending = remaining.iter().any(|pod| {
        run.pods.get(&pod.uid).is_some_and(|known| known.last.is_none() || known.state == PodState::InFlight)
    });
    if pending && !run.stopping {
        return;
    }
    let blockers = remaining
        .iter()
        .filter_map(|pod| {
            let known = run.pods.get(&pod.uid)?;
            let reason = crate::explain::refusal(pod, known.last.as_ref()?)?;
            let since = known.not_before.unwrap_or(Timestamp::UNIX_EPOCH);
            Some(Blocker {
                pod: pod.key.clone(),
                owner: pod.controller.as_ref().map(ToString::to_string),
                reason,
                since,
            })
        })
        .collect();
    end(run, position, End::Rehearsed { blockers }, step);
}

/// What one pod waits for now; tells it when that changed, and wakes us when it may change by time alone.
fn watch_over(
    index: &Index,
    run: &mut Run,
    pod: &Pod,
    charges: &Charges,
    now: Timestamp,
    step: &mut Step,
) -> Option<Blocker> {
    let node = index.node(pod.node.as_deref()?);
    let known = run.pods.get_mut(&pod.uid)?;
    let (reason, look_again) = waiting_for(index, node, pod, known, charges, now);
    if let Some(at) = look_again {
        step.wake_at(at);
    }
    let Some(reason) = reason else {
        known.blocked = None;
        return None;
    };
    let told = known.blocked.as_ref().is_some_and(|(before, _)| before.code() == reason.code());
    let since = if told { known.blocked.as_ref().map_or(now, |(_, since)| *since) } else { now };
    known.blocked = Some((reason.clone(), since));
    let blocker = Blocker {
        pod: pod.key.clone(),
        owner: pod.controller.as_ref().map(ToString::to_string),
        reason,
        since,
    };
    if !told && blocker.reason.severity() >= Severity::Slow {
        let node = known.node.clone();
        step.events.push(Event::Waiting { node, blocker: blocker.clone() });
    }
    Some(blocker)
}

fn charges(index: &Index, run: &Run) -> Charges {
    let mut charges = Charges::new();
    for (uid, known) in &run.pods {
        let Some(budget) = &known.charged else { continue };
        let under_way = matches!(known.state, PodState::InFlight | PodState::Accepted);
        let visible = index.pod(&known.key).is_none_or(|pod| pod.uid != *uid || pod.deletion.is_some())
            || index.budget(budget).is_none_or(|found| found.disrupted.contains(&known.key.name));
        if under_way && !visible {
            *charges.entry(budget.clone()).or_default() += 1;
        }
    }
    charges
}

/// Chooses the pods that are asked to leave now: free ones first, then as many as each budget has room for.
fn send(index: &Index, policy: &Policy, run: &mut Run, now: Timestamp, step: &mut Step) {
    let mut room = policy.parallel.saturating_sub(run.requests_under_way());
    let mut charges = charges(index, run);
    let mut candidates: Vec<(bool, Key, Uid, String)> = Vec::new();
    let mut later: BTreeMap<String, Vec<(bool, Key, Uid, String)>> = BTreeMap::new();
    for node in run.nodes.iter().filter(|node| matches!(node.phase, NodePhase::Draining { .. })) {
        for verdict in assess(index, policy, &node.name, now).of_fate(Fate::Evict) {
            let Some(pod) = index.pod(&verdict.pod) else { continue };
            let budgeted = index.budgets_of(pod).next().is_some();
            let entry = (budgeted, pod.key.clone(), pod.uid.clone(), node.name.clone());
            if policy.critical_last && pod.is_critical() {
                later.entry(node.name.clone()).or_default().push(entry);
            } else {
                candidates.push(entry);
            }
        }
    }
    for (node, entries) in later {
        // Those that can never leave do not hold back the last wave; nothing else may be left.
        let waits = candidates.iter().any(|(_, _, uid, on)| {
            *on == node
                && run.pods.get(uid).is_some_and(|known| {
                    known.blocked.as_ref().is_none_or(|(reason, _)| reason.severity() != Severity::Never)
                })
        });
        if !waits {
            candidates.extend(entries);
        }
    }
    candidates.sort();
    for (_, key, uid, node) in candidates {
        if room == 0 {
            break;
        }
        let Some(pod) = index.pod(&key) else { continue };
        let known = run.pods.entry(uid.clone()).or_insert_with(|| PodRun::new(key.clone(), node.clone()));
        let asked = match may_ask(index, policy, pod, known, &charges, now) {
            Ask::Free => Some(None),
            Ask::Charge(budget) => Some(Some(budget)),
            // One look behind a closed door is enough: its answer holds for all who wait there.
            Ask::Probe(budget) if charges.get(&budget).is_none_or(|count| *count == 0) => Some(Some(budget)),
            Ask::Probe(_) => {
                known.probe_at = Some(after(now, SAFETY_NET));
                None
            }
            Ask::NotNow => None,
        };
        if let Some(charged) = asked {
            if let Some(budget) = &charged {
                *charges.entry(budget.clone()).or_default() += 1;
            }
            known.charged = charged;
            known.state = PodState::InFlight;
            let attempt = if known.last.is_some() { known.row + 2 } else { 1 };
            let dry_run = policy.dry_run == DryRun::Server;
            let grace_seconds = policy.grace_seconds;
            step.events.push(Event::Evicting {
                pod: key.clone(),
                node,
                attempt,
                deleting: policy.disable_eviction,
            });
            step.actions.push(if policy.disable_eviction {
                Action::Delete { pod: key, uid, grace_seconds, dry_run }
            } else {
                Action::Evict { pod: key, uid, grace_seconds, dry_run }
            });
            room -= 1;
        } else if known.state == PodState::Idle && pod.deletion.is_none() {
            for at in [known.not_before, known.probe_at].into_iter().flatten().filter(|at| *at > now) {
                step.wake_at(at);
            }
        }
    }
}

/// Whether to ask for a pod now.
enum Ask {
    NotNow,
    Free,
    Charge(Key),
    /// What we see says no, but we have believed that for long.
    Probe(Key),
}

fn when(condition: bool, ask: Ask) -> Ask {
    if condition { ask } else { Ask::NotNow }
}

fn may_ask(
    index: &Index,
    policy: &Policy,
    pod: &Pod,
    known: &mut PodRun,
    charges: &Charges,
    now: Timestamp,
) -> Ask {
    if known.state != PodState::Idle {
        return Ask::NotNow;
    }
    if policy.dry_run == DryRun::Server {
        return when(known.last.is_none(), Ask::Free);
    }
    if let Some(deletion) = pod.deletion {
        // It is leaving already. Ask again only to shorten its grace period, and only once.
        let shorter = policy.grace_seconds.is_some_and(|grace| grace < deletion.grace_seconds);
        return when(shorter && known.last.is_none(), Ask::Free);
    }
    if known.last.as_ref().is_some_and(Outcome::is_transient) && known.row >= policy.patience {
        known.state = PodState::Failed;
        return Ask::NotNow;
    }
    let due = known.not_before.is_none_or(|at| at <= now);
    if policy.disable_eviction {
        return when(due, Ask::Free);
    }
    let held = known.held_until.is_some_and(|at| at > now);
    let changed = index.pod_revision(&pod.key) > known.seen
        || index.budgets_of(pod).any(|budget| index.budget_revision(&budget.key) > known.seen);
    let refused_by_budget = matches!(
        known.last,
        Some(Outcome::Budget { .. } | Outcome::ManyBudgets { .. } | Outcome::BudgetBroken { .. })
    );
    let free_to_ask = due || (refused_by_budget && changed && !held);
    match gate(index, pod, charges) {
        Gate::Open => when(free_to_ask, Ask::Free),
        Gate::Charged(budget) => when(free_to_ask, Ask::Charge(budget)),
        Gate::Closed(reason) if reason.severity() < Severity::Never => {
            let pause = back_off(SAFETY_NET, Duration::from_secs(300), known.row);
            let at = *known.probe_at.get_or_insert(after(now, pause));
            match index.budgets_of(pod).next() {
                Some(budget) => when(at <= now && !held, Ask::Probe(budget.key.clone())),
                None => Ask::NotNow,
            }
        }
        Gate::Closed(_) => Ask::NotNow,
    }
}

/// How long a closed budget is believed before the server is asked directly for the first time.
const SAFETY_NET: Duration = Duration::from_secs(60);

fn conclude(
    index: &Index,
    policy: &Policy,
    run: &mut Run,
    position: usize,
    since: Timestamp,
    now: Timestamp,
    step: &mut Step,
) {
    let name = run.nodes[position].name.clone();
    if !run.nodes[position].reading_arrived {
        return;
    }
    run.nodes[position].reading_arrived = false;
    let proof = prove(index, policy, &name, now);
    let something_new = assess(index, policy, &name, now).verdicts.iter().any(|verdict| verdict.fate != Fate::Leave);
    if something_new {
        // Pods that came meanwhile (they tolerate the cordon) have to leave too.
        run.nodes[position].phase = NodePhase::Draining { since };
        return advance(index, policy, run, position, since, now, step);
    }
    end(run, position, End::Drained { proof }, step);
}
