//! A node that is being emptied: what each pod on it waits for, and whether the work is over.

use std::collections::BTreeSet;

use crate::cluster::fact::{Key, Pod, Uid, VmRole};
use crate::cluster::index::Index;
use crate::cluster::tenant::TenantProgress;
use crate::drain::action::{Action, Own};
use crate::drain::assess::{Fate, Verdict, given_up_at};
use crate::drain::begin::{foretell, tell_foretold};
use crate::drain::explain::waiting_for;
use crate::drain::forecast::Forecast;
use crate::drain::look::{Look, NodeLook};
use crate::drain::migrations;
use crate::drain::node::{Draining, Reading};
use crate::drain::ownership::MarkState;
use crate::drain::pod::{PodRun, PodState};
use crate::drain::policy::DryRun;
use crate::drain::proof::prove;
use crate::drain::run::{Blocker, End, Left, NodePhase, Run, after};
use crate::drain::step::{Event, NAMED_AFTER, Step, end};
use crate::reasons::{AnswerReason, GuestReason, NodeReason, OwnerReason, Reason, Severity};

/// Takes stock of a node being emptied and decides whether that is over.
pub(crate) fn advance(view: &NodeLook<'_>, run: &mut Run, position: usize, step: &mut Step) {
    let NodeLook { look, assessment, since, .. } = *view;
    let Look { index, policy, now } = look;
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
            step.look_at(at);
        }
    }
    if rehearsal {
        return rehearse(view, run, position, &remaining, step);
    }
    migrations::follow(view, run, step);
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
        let NodePhase::Draining(draining) = run.nodes[position].phase else { return };
        if let Some(at) = draining.readings.rests(now) {
            return step.look_at(at);
        }
        let reading = Reading::Asked(draining.readings);
        run.nodes[position].phase = NodePhase::Proving { since, reading };
        step.actions.push(Action::Own(Own::Prove { node: name }));
        return;
    }
    if let Some(timeout) = policy.timeout {
        let deadline = after(since, timeout);
        if now >= deadline {
            migrations::call_off(view, run);
            return end(run, position, End::TimedOut { after: timeout, blockers }, step);
        }
        step.look_at(deadline);
    }
    if policy.standing {
        return;
    }
    end_if_stuck(look, run, position, &remaining, &blockers, step);
    if run.nodes[position].end().is_some() {
        migrations::call_off(view, run);
    }
}

/// All that is left cannot leave: after a pause in which the world may change its mind, say so and end.
fn end_if_stuck(
    look: Look<'_>,
    run: &mut Run,
    position: usize,
    remaining: &[&Pod],
    blockers: &[Blocker],
    step: &mut Step,
) {
    let Look { policy, now, .. } = look;
    let name = run.nodes[position].name.clone();
    let has_failed = |pod: &Pod| run.pods.get(&pod.uid).is_some_and(|known| known.state.is_failed());
    let is_idle = |pod: &Pod| run.pods.get(&pod.uid).is_none_or(|known| known.state.is_idle());
    let never = |pod: &Pod| {
        blockers.iter().any(|blocker| blocker.pod == pod.key && blocker.reason.severity() == Severity::Never)
    };
    let has_its_try_before_it = |pod: &Pod| run.pods.get(&pod.uid).is_some_and(PodRun::has_its_try_before_it);
    // The volumes of a guest wait for the guest, whatever that waits for.
    let mut decisive = remaining.iter().filter(|pod| pod.vm != VmRole::Hotplug).peekable();
    let stuck = decisive.peek().is_some()
        && decisive.all(|pod| has_failed(pod) || (is_idle(pod) && never(pod) && !has_its_try_before_it(pod)));
    if !stuck {
        run.never_since.remove(&name);
        return;
    }
    if let Some(failed) = remaining.iter().find(|pod| has_failed(pod)) {
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
        step.look_at(believed);
    }
}

/// The mark or the cordon we wrote is not there any more: another client decided otherwise.
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
fn rehearse(view: &NodeLook<'_>, run: &mut Run, position: usize, remaining: &[&Pod], step: &mut Step) {
    let NodeLook { look, assessment, .. } = *view;
    let Look { index, policy, .. } = look;
    let asked: BTreeSet<&Uid> = assessment
        .verdicts
        .iter()
        .filter(|verdict| matches!(verdict.fate, Fate::Evict | Fate::Migrate))
        .map(|verdict| &verdict.uid)
        .collect();
    let pending = remaining.iter().filter(|pod| asked.contains(&pod.uid)).any(|pod| {
        run.pods
            .get(&pod.uid)
            .is_some_and(|known| known.answer.is_none() || known.state == PodState::InFlight)
    });
    if pending && !run.stopping {
        return;
    }
    let foretold = foretell(look, run, &assessment.node)
        .map(|forecast| forecast.with_answers(|uid| run.pods.get(uid).and_then(PodRun::last), index));
    let blockers = foretold.as_ref().map(Forecast::blockers).unwrap_or_default();
    tell_foretold(policy, foretold, step);
    end(run, position, End::Rehearsed { blockers }, step);
}

/// What one pod waits for now, and whether that should be told; wakes us when it may change by time alone.
fn watch_over(
    view: &NodeLook<'_>,
    run: &mut Run,
    pod: &Pod,
    verdict: &Verdict,
    step: &mut Step,
) -> Option<(Blocker, bool)> {
    let now = view.look.now;
    let known = run.pods.get_mut(&pod.uid)?;
    if known.state == PodState::InFlight {
        // The answer decides whether what held it up still does.
        return None;
    }
    let says = |at_least| verdict.reasons.iter().find(|reason| reason.severity() >= at_least).cloned();
    let (reason, look_again) = match verdict.fate {
        Fate::Blocked => (says(Severity::Never), None),
        Fate::Migrate if pod.deletion.is_none() => migrations::waiting_for(view, pod, known),
        // The drain does not ask for its eviction, so no budget stands in its way.
        Fate::Follow if pod.deletion.is_none() => (says(Severity::Note), None),
        _ => {
            let (reason, at) = waiting_for(view.look, pod, known, view.charges);
            (reason.or_else(|| says(Severity::Slow)), at)
        }
    };
    if let Some(at) = look_again {
        step.look_at(at);
    }
    let Some(reason) = reason else {
        known.told.blocked = None;
        return None;
    };
    tell_of_tenant(known, verdict, &reason, step);
    let since = match &known.told.blocked {
        Some((before, since)) if before.code() == reason.code() => *since,
        _ => migrations::began(known, &reason).unwrap_or(now),
    };
    known.told.blocked = Some((reason.clone(), since));
    let named_at = match reason.severity() {
        Severity::Never => Some(since),
        Severity::Slow => Some(after(since, NAMED_AFTER)),
        Severity::Note | Severity::Warning | Severity::Progress => None,
    };
    let is_news = match named_at {
        Some(at) if known.told.named == Some(reason.code()) || at > now => {
            if at > now {
                step.look_at(at);
            }
            false
        }
        Some(_) => {
            known.told.named = Some(reason.code());
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
    if known.told.tenant.as_ref() == Some(tenant) {
        return;
    }
    known.told.tenant = Some(tenant.clone());
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

pub(crate) fn conclude(view: &NodeLook<'_>, run: &mut Run, position: usize, step: &mut Step) {
    let Look { index, policy, now } = view.look;
    let node = &mut run.nodes[position];
    let proof = prove(index, policy, &node.name, now);
    if view.assessment.to_leave().next().is_some() {
        // Pods that came meanwhile (they tolerate the cordon) have to leave too.
        node.phase = NodePhase::Draining(Draining::since(view.since));
        return advance(view, run, position, step);
    }
    end(run, position, End::Drained { proof }, step);
}
