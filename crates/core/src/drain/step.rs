//! What now? The one function that moves a drain forward.
//!
//! Given everything known, [`step`] says which requests to send, what changed that is worth telling, and when to look again
//! if nothing happens until then. It sends an eviction when the server would grant it; a pod that waits for a budget costs
//! no request and no place. A capped back-off is the safety net under the watch.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::fact::{Key, Node, Pod, Uid, VmRole};
use crate::cluster::index::Index;
use crate::cluster::tenant::TenantProgress;
use crate::drain::action::Action;
use crate::drain::assess::{Assessment, Fate, Verdict, assess, given_up_at};
use crate::drain::budget::Charges;
use crate::drain::claim::{self, Trace, claim, question};
use crate::drain::departures;
pub use crate::drain::event::Event;
use crate::drain::evict::{charges, send};
use crate::drain::explain::waiting_for;
use crate::drain::forecast::{Forecast, forecast};
use crate::drain::keep_empty;
use crate::drain::migrations;
use crate::drain::migrations::abort;
use crate::drain::ownership::{self, MarkState, Ownership};
use crate::drain::policy::{DryRun, Policy};
use crate::drain::proof::prove;
use crate::drain::record::{self, Record};
use crate::drain::run::{Blocker, End, Left, NodePhase, NodeRun, PodRun, PodState, Run, after};
use crate::drain::transfer::measure::measure;
use crate::machines::beside;
use crate::reasons::{AnswerReason, GuestReason, NodeReason, OwnerReason, Reason, Severity};

#[derive(Debug, Clone, Default)]
pub struct Step {
    pub actions: Vec<Action>,
    pub events: Vec<Event>,
    /// When to call again even if nothing happens.
    pub look_again: Option<Timestamp>,
}

impl Step {
    pub(crate) fn wake_at(&mut self, at: Timestamp) {
        self.look_again = Some(self.look_again.map_or(at, |known| known.min(at)));
    }
}

pub fn step(index: &Index, policy: &Policy, run: &mut Run, now: Timestamp) -> Step {
    let mut step = Step::default();
    tell_ends(run, &mut step);
    if policy.standing {
        keep_empty::renew(index, policy, run, now, &mut step);
    }
    for position in 0..run.nodes.len() {
        if run.nodes[position].phase == NodePhase::Waiting {
            begin(index, policy, run, position, now, &mut step);
        }
        let NodeRun { name, phase, .. } = &mut run.nodes[position];
        if let NodePhase::LookingUp { asked, .. } = phase
            && !std::mem::replace(asked, true)
        {
            step.actions.push(Action::LookUp { node: name.clone() });
        }
    }
    // All nodes are cordoned before the first pod leaves: it must not land on the next one to be emptied.
    let preparing = run.nodes.iter().any(|node| {
        // A node that cannot be cordoned must not hold up those who have nothing to do with it.
        let first_try = !policy.standing || node.cordon_failures == 0;
        matches!(node.phase, NodePhase::Waiting | NodePhase::Cordoning | NodePhase::LookingUp { .. })
            && first_try
    });
    if preparing {
        abort::send(run, now, &mut step);
        claim(index, policy.dry_run, run, now, &mut step);
        return step;
    }
    claim::heed(index, run, now);
    departures::note(index, policy, run, now, &mut step);
    let charges = charges(index, run);
    let mut draining = Vec::new();
    for position in 0..run.nodes.len() {
        let NodeRun { name, phase, reading_arrived, .. } = &run.nodes[position];
        let (is_proving, since) = match phase {
            NodePhase::Draining { since } => (false, *since),
            NodePhase::Proving { since } if *reading_arrived => (true, *since),
            _ => continue,
        };
        let assessment = assess(index, policy, name, now);
        let view = View { index, policy, assessment: &assessment, charges: &charges, since, now };
        if is_proving {
            conclude(&view, run, position, &mut step);
        } else {
            advance(&view, run, position, &mut step);
        }
        if matches!(run.nodes[position].phase, NodePhase::Draining { .. }) {
            draining.push((assessment, since));
        }
    }
    if !run.stopping {
        for (assessment, since) in &draining {
            migrations::send(index, policy, run, assessment, *since, now, &mut step);
            measure(index, policy, run, assessment, now, &mut step);
        }
        send(index, policy, run, draining.iter().map(|(assessment, _)| assessment), now, &mut step);
    }
    abort::send(run, now, &mut step);
    claim(index, policy.dry_run, run, now, &mut step);
    step
}

fn end(run: &mut Run, position: usize, end: End, step: &mut Step) {
    let node = run.nodes[position].name.clone();
    step.events.push(Event::Ended { node, end: end.clone() });
    run.nodes[position].phase = NodePhase::Ended(end);
    run.nodes[position].end_told = true;
}

/// An answer alone can be the end, such as a refused cordon.
fn tell_ends(run: &mut Run, step: &mut Step) {
    for node in run.nodes.iter_mut().filter(|node| !node.end_told) {
        if let NodePhase::Ended(end) = &node.phase {
            step.events.push(Event::Ended { node: node.name.clone(), end: end.clone() });
            node.end_told = true;
        }
    }
}

/// What is foretold of a node, among all that are drained together.
fn foretell(index: &Index, policy: &Policy, run: &Run, name: &str, now: Timestamp) -> Option<Forecast> {
    // Only a trial is about more than whether to begin.
    let nodes: Vec<String> = match policy.dry_run {
        DryRun::None => vec![name.to_owned()],
        DryRun::Client | DryRun::Server => run.nodes.iter().map(|node| node.name.clone()).collect(),
    };
    forecast(index, policy, &nodes, now).into_iter().find(|one| one.node == name)
}

/// Plans before touching: verdicts first, then who owns the node, then the cordon.
fn begin(index: &Index, policy: &Policy, run: &mut Run, position: usize, now: Timestamp, step: &mut Step) {
    let name = run.nodes[position].name.clone();
    if run.stopping {
        if run.nodes[position].cordon_trace == Trace::Unsure {
            run.nodes[position].phase = NodePhase::LookingUp { asked: false, refused: None };
            return;
        }
        let left = Left::on(index.node(&name), &run.owner);
        let stopped = End::Stopped { left, to_leave: Vec::new(), blockers: Vec::new() };
        return end(run, position, stopped, step);
    }
    if let Some(at) = run.nodes[position].cordon_not_before.filter(|at| *at > now) {
        return step.wake_at(at);
    }
    let Some(node) = index.node(&name) else {
        let reason = Reason::Node(NodeReason::NodeMissing);
        return end(run, position, End::Failed { reason, blockers: Vec::new() }, step);
    };
    let assessment = assess(index, policy, &name, now);
    let foretold = foretell(index, policy, run, &name, now);
    let blockers = foretold.as_ref().map(Forecast::refusals).unwrap_or_default();
    let hopeless = !blockers.is_empty() && !policy.standing;
    if !hopeless && question::is_awaited(index, policy, run, position, now, step) {
        return;
    }
    let owner = ownership::ownership(index, node, &run.owner, now);
    let refused = owner.refuses(policy.take_over);
    if !hopeless && !refused && notes_first(node, policy, run, position, now) {
        return;
    }
    if run.nodes[position].cordon_failures == 0 {
        step.events.push(Event::Planned { node: name.clone(), assessment });
    }
    if hopeless {
        tell_foretold(policy, foretold, step);
        return end(run, position, End::NotStarted { blockers }, step);
    }
    match &owner {
        Ownership::Other(reason) if refused => {
            return end(run, position, End::Refused { reason: reason.clone() }, step);
        }
        Ownership::Other(reason) => {
            let owner = match reason {
                Reason::Owner(OwnerReason::OwnedByEvac { owner, .. }) => owner.clone(),
                Reason::Owner(OwnerReason::OwnedByLease { holder, .. }) => holder.clone(),
                _ => "an unreadable mark".into(),
            };
            step.events
                .push(Event::Noted { node: name.clone(), reason: OwnerReason::TakenOver { owner }.into() });
        }
        Ownership::ForeignCordon => {
            step.events.push(Event::Noted { node: name.clone(), reason: NodeReason::ForeignCordon.into() });
        }
        Ownership::Abandoned(reason) => {
            step.events.push(Event::Noted { node: name.clone(), reason: reason.clone() });
        }
        Ownership::Ours(_) => {
            if let Some((holder, seen)) = claim::life(index, &name, now).perhaps_alive()
                && holder.owner == run.owner
                && run.instance.as_ref().is_some_and(|instance| *instance != holder.instance)
            {
                let reason =
                    Reason::Owner(OwnerReason::Continued { instance: holder.instance.clone(), seen });
                step.events.push(Event::Noted { node: name.clone(), reason });
            }
        }
        Ownership::Free => {}
    }
    if run.nodes[position].cordon_failures == 0 {
        tell_of_kubevirt(index, &name, step);
    }
    if node.unschedulable {
        step.events.push(Event::AlreadyCordoned { node: name.clone() });
    }
    if policy.dry_run == DryRun::Client {
        if !node.unschedulable {
            step.events.push(Event::Cordoned { node: name });
        }
        let blockers = foretold.as_ref().map(Forecast::blockers).unwrap_or_default();
        tell_foretold(policy, foretold, step);
        return end(run, position, End::Rehearsed { blockers }, step);
    }
    let attire = &run.nodes[position].attire;
    let known = index.lease(&claim::key(&name)).and_then(|lease| lease.record.clone());
    if matches!(owner, Ownership::Ours(_)) && attire.is_worn_by(node) {
        // Where the answer to our own cordon was lost, what we noted then still holds.
        let noted = run.nodes[position].record.take();
        run.nodes[position].record = known.or(noted);
        run.nodes[position].phase = NodePhase::Draining { since: now };
        return;
    }
    let mark = match &node.mark {
        // Who keeps a record of its own takes over only what is borne out by the one before.
        Some(MarkState::Valid(_)) if run.instance.is_some() => {
            let node = record::borne_out(node, known.as_deref());
            ownership::new_mark(&node, &run.owner, attire, now)
        }
        _ => ownership::new_mark(node, &run.owner, attire, now),
    };
    let noted = Some(Box::new(Record::of(&node.uid, &mark)));
    step.actions.push(Action::Cordon {
        node: name,
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        mark: Box::new(mark),
        taints: attire.taints_on(node),
        dry_run: policy.dry_run == DryRun::Server,
    });
    run.nodes[position].record = noted;
    run.nodes[position].phase = NodePhase::Cordoning;
}

/// Before the first guest is moved, what there is to know about KubeVirt's control plane.
fn tell_of_kubevirt(index: &Index, name: &str, step: &mut Step) {
    if !index.pods_on(name).any(|pod| matches!(pod.vm, VmRole::Launcher(_)) && !pod.phase.is_finished()) {
        return;
    }
    for note in beside::notes(&index.config.upstream) {
        step.events.push(Event::Noted { node: name.to_owned(), reason: note });
    }
}

/// A trial tells what it is for.
fn tell_foretold(policy: &Policy, foretold: Option<Forecast>, step: &mut Step) {
    if policy.dry_run != DryRun::None
        && let Some(forecast) = foretold
    {
        step.events.push(Event::Forecast { forecast });
    }
}

/// Whether the record of a node that nobody has marked is still to be written. It comes before the cordon, so that a run that dies right after that leaves
/// nothing that cannot be taken back. Without the right to write leases, or where that fails, the drain goes on all the same.
fn notes_first(node: &Node, policy: &Policy, run: &mut Run, position: usize, now: Timestamp) -> bool {
    let claims = run.instance.is_some() && policy.dry_run == DryRun::None;
    if !claims || node.mark.is_some() || !run.nodes[position].claim.is_first_try() {
        return false;
    }
    let mark = ownership::new_mark(node, &run.owner, &run.nodes[position].attire, now);
    run.nodes[position].record = Some(Box::new(Record::of(&node.uid, &mark)));
    true
}

/// Takes stock of a node being emptied and decides whether that is over.
fn advance(view: &View<'_>, run: &mut Run, position: usize, step: &mut Step) {
    let View { index, policy, assessment, since, now, .. } = *view;
    let name = run.nodes[position].name.clone();
    let rehearsal = policy.dry_run == DryRun::Server;
    if !rehearsal && let Some(reason) = lost_ownership(index, run, &name) {
        return end(run, position, End::Refused { reason }, step);
    }
    if let Some(lost) = run.end_of_lost_claim(position) {
        return end(run, position, lost, step);
    }
    let remaining: Vec<&Pod> = assessment.to_leave().filter_map(|verdict| index.pod(&verdict.pod)).collect();
    for pod in &remaining {
        run.pods.entry(pod.uid.clone()).or_insert_with(|| PodRun::new(pod, &name));
        // Nothing else may happen until then.
        if let Some(at) = given_up_at(policy, pod).filter(|at| *at > now) {
            step.wake_at(at);
        }
    }
    if rehearsal {
        return rehearse(view, run, position, &remaining, step);
    }
    migrations::follow(index, run, assessment, since, now, step);
    let mut blockers = Vec::new();
    let mut news = Vec::new();
    for verdict in assessment.to_leave() {
        let Some(pod) = index.pod(&verdict.pod) else { continue };
        if let Some((blocker, is_news)) = watch_over(view, run, pod, verdict, step) {
            if is_news {
                news.push(blocker.clone());
            }
            blockers.push(blocker);
        }
    }
    tell_together(&name, news, step);
    if run.stopping {
        if run.requests_under_way() == 0 {
            let to_leave = assessment.to_leave().map(|verdict| verdict.pod.clone()).collect();
            end(run, position, End::Stopped { left: Left::Cordoned, to_leave, blockers }, step);
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
            migrations::call_off(index, run, assessment);
            return end(run, position, End::TimedOut { after: timeout, blockers }, step);
        }
        step.wake_at(deadline);
    }
    if policy.standing {
        return;
    }
    end_if_stuck(policy, run, position, &remaining, &blockers, now, step);
    if matches!(run.nodes[position].phase, NodePhase::Ended(_)) {
        migrations::call_off(index, run, assessment);
    }
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
    let has_its_try_before_it = |pod: &Pod| run.pods.get(&pod.uid).is_some_and(PodRun::has_its_try_before_it);
    // The volumes of a guest wait for the guest, whatever that waits for.
    let mut decisive = remaining.iter().filter(|pod| pod.vm != VmRole::Hotplug).peekable();
    let stuck = decisive.peek().is_some()
        && decisive.all(|pod| {
            state(pod) == PodState::Failed
                || (state(pod) == PodState::Idle && never(pod) && !has_its_try_before_it(pod))
        });
    if !stuck {
        run.never_since.remove(&name);
        return;
    }
    if let Some(failed) = remaining.iter().find(|pod| state(pod) == PodState::Failed) {
        let reason = blockers
            .iter()
            .find(|blocker| blocker.pod == failed.key)
            .map_or(Reason::Answer(AnswerReason::EvictionUnsupported), |blocker| blocker.reason.clone());
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
    let Some(node) = index.node(name) else { return Some(Reason::Node(NodeReason::NodeMissing)) };
    match &node.mark {
        Some(MarkState::Valid(mark)) if mark.owner == run.owner => {
            (!node.unschedulable).then_some(Reason::Node(NodeReason::UncordonedMeanwhile))
        }
        _ => Some(Reason::Owner(OwnerReason::CancelledElsewhere)),
    }
}

/// A trial: every pod is asked once, and what was foretold together with the answers is the result.
fn rehearse(view: &View<'_>, run: &mut Run, position: usize, remaining: &[&Pod], step: &mut Step) {
    let View { index, policy, assessment, now, .. } = *view;
    let asked: BTreeSet<&Uid> = assessment
        .verdicts
        .iter()
        .filter(|verdict| matches!(verdict.fate, Fate::Evict | Fate::Migrate))
        .map(|verdict| &verdict.uid)
        .collect();
    let pending = remaining.iter().filter(|pod| asked.contains(&pod.uid)).any(|pod| {
        run.pods.get(&pod.uid).is_some_and(|known| known.last.is_none() || known.state == PodState::InFlight)
    });
    if pending && !run.stopping {
        return;
    }
    let foretold = foretell(index, policy, run, &assessment.node, now).map(|forecast| {
        forecast.with_answers(|uid| run.pods.get(uid).and_then(|known| known.last.as_ref()), index)
    });
    let blockers = foretold.as_ref().map(Forecast::blockers).unwrap_or_default();
    tell_foretold(policy, foretold, step);
    end(run, position, End::Rehearsed { blockers }, step);
}

/// How long something that may clear by itself is left alone before it is named.
pub(crate) const NAMED_AFTER: Duration = Duration::from_secs(3);

/// What is known while a node is looked over.
#[derive(Clone, Copy)]
struct View<'a> {
    index: &'a Index,
    policy: &'a Policy,
    assessment: &'a Assessment,
    charges: &'a Charges,
    /// When the drain of the node began.
    since: Timestamp,
    now: Timestamp,
}

/// What one pod waits for now, and whether that should be told; wakes us when it may change by time alone.
fn watch_over(
    view: &View<'_>,
    run: &mut Run,
    pod: &Pod,
    verdict: &Verdict,
    step: &mut Step,
) -> Option<(Blocker, bool)> {
    let View { index, charges, since, now, .. } = *view;
    let node = index.node(pod.node.as_deref()?);
    let known = run.pods.get_mut(&pod.uid)?;
    if known.state == PodState::InFlight {
        // The answer decides whether what held it up still does.
        return None;
    }
    let says = |at_least| verdict.reasons.iter().find(|reason| reason.severity() >= at_least).cloned();
    let (reason, look_again) = match verdict.fate {
        Fate::Blocked => (says(Severity::Never), None),
        Fate::Migrate if pod.deletion.is_none() => migrations::waiting_for(index, pod, known, since, now),
        // Nobody asks for its eviction, so no budget stands in its way.
        Fate::Follow if pod.deletion.is_none() => (says(Severity::Note), None),
        _ => {
            let (reason, at) = waiting_for(index, node, pod, known, charges, now);
            (reason.or_else(|| says(Severity::Slow)), at)
        }
    };
    if let Some(at) = look_again {
        step.wake_at(at);
    }
    let Some(reason) = reason else {
        known.blocked = None;
        return None;
    };
    tell_of_tenant(known, verdict, &reason, step);
    let since = match &known.blocked {
        Some((before, since)) if before.code() == reason.code() => *since,
        _ => migrations::began(known, &reason).unwrap_or(now),
    };
    known.blocked = Some((reason.clone(), since));
    let named_at = match reason.severity() {
        Severity::Never => Some(since),
        Severity::Slow => Some(after(since, NAMED_AFTER)),
        Severity::Note | Severity::Warning | Severity::Progress => None,
    };
    let is_news = match named_at {
        Some(at) if known.named == Some(reason.code()) || at > now => {
            if at > now {
                step.wake_at(at);
            }
            false
        }
        Some(_) => {
            known.named = Some(reason.code());
            true
        }
        None => false,
    };
    let owner = pod.controller.as_ref().map(ToString::to_string);
    Some((Blocker { pod: pod.key.clone(), owner, reason, since }, is_news))
}

/// What a tenant has done since it was last told.
fn tell_of_tenant(known: &mut PodRun, verdict: &Verdict, reason: &Reason, step: &mut Step) {
    let Reason::Guest(GuestReason::VmHandedOver { tenant: Some(tenant), .. }) = reason else { return };
    if known.tenant.as_ref() == Some(tenant) {
        return;
    }
    known.tenant = Some(tenant.clone());
    step.events.push(Event::Tenant {
        instance: verdict.instance.clone().unwrap_or_else(|| verdict.pod.clone()),
        pod: verdict.pod.clone(),
        node: known.node.clone(),
        tenant: TenantProgress::clone(tenant),
    });
}

/// Pods held up by the same thing are told in one event.
fn tell_together(node: &str, news: Vec<Blocker>, step: &mut Step) {
    let mut groups: Vec<(Blocker, Vec<Key>)> = Vec::new();
    for blocker in news {
        match groups.iter_mut().find(|(first, _)| first.reason == blocker.reason) {
            Some((_, also)) => also.push(blocker.pod),
            None => groups.push((blocker, Vec::new())),
        }
    }
    for (blocker, also) in groups {
        step.events.push(Event::Waiting { node: node.to_owned(), blocker, also });
    }
}

fn conclude(view: &View<'_>, run: &mut Run, position: usize, step: &mut Step) {
    let node = &mut run.nodes[position];
    node.reading_arrived = false;
    let proof = prove(view.index, view.policy, &node.name, view.now);
    if view.assessment.to_leave().next().is_some() {
        // Pods that came meanwhile (they tolerate the cordon) have to leave too.
        node.phase = NodePhase::Draining { since: view.since };
        return advance(view, run, position, step);
    }
    end(run, position, End::Drained { proof }, step);
}
