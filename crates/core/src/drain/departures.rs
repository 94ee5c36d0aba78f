//! Who has left the nodes being emptied since the last look.

use std::collections::BTreeMap;

use crate::cluster::fact::{PodPhase, Uid};
use crate::drain::context::Context;
use crate::drain::pod::{NextTry, PodRun, PodState};
use crate::drain::run::Run;
use crate::drain::step::{Event, Step};

/// What there is to tell about one node.
#[derive(Default)]
struct DepartureCount {
    left: usize,
    total: usize,
    vms_left: usize,
    vms_total: usize,
    departed: Vec<Event>,
}

/// One pass over all pods, however many nodes there are.
pub(crate) fn note(context: Context<'_>, run: &mut Run, step: &mut Step) {
    let mut counts: BTreeMap<&str, DepartureCount> = run
        .nodes
        .iter()
        .filter(|node| node.phase.is_emptied())
        .map(|node| (node.name.as_str(), DepartureCount::default()))
        .collect();
    for (uid, pod) in &mut run.pods {
        if let Some(count) = counts.get_mut(pod.node.as_str()) {
            note_pod(context, uid, pod, count);
        }
    }
    for (node, count) in counts {
        let DepartureCount { left, total, vms_left, vms_total, departed } = count;
        if !departed.is_empty() {
            step.events.extend(departed);
            step.events.push(Event::Progress { node: node.to_owned(), left, total, vms_left, vms_total });
        }
    }
}

fn note_pod(context: Context<'_>, uid: &Uid, pod: &mut PodRun, count: &mut DepartureCount) {
    let Context { index, policy, now } = context;
    count.total += 1;
    count.vms_total += usize::from(pod.guest);
    let found = index
        .pod(&pod.key)
        .filter(|found| found.uid == *uid && found.node.as_deref() == Some(pod.node.as_str()));
    // The ended pod of a guest is still to be cleared away; the guest has left.
    let ended = pod.guest && found.is_some_and(|found| found.phase.is_finished());
    let present = found.is_some() && !ended;
    if pod.state == PodState::InFlight || (present && pod.state != PodState::Gone) {
        count.left += 1;
        count.vms_left += usize::from(pod.guest);
        return;
    }
    if pod.told.left {
        return;
    }
    pod.told.left = true;
    pod.told.blocked = None;
    let by_us = pod.state == PodState::Accepted;
    pod.state = match pod.state {
        PodState::Idle(next) if ended => PodState::Idle(next),
        // What has ended is still to be cleared away.
        _ if ended => PodState::Idle(NextTry::default()),
        _ => PodState::Gone,
    };
    pod.trail.gone = Some(now);
    if let Some(moving) = &mut pod.moving {
        moving.ended = Some(now);
    }
    let died = found.is_some_and(|found| found.phase == PodPhase::Failed);
    let (key, node) = (pod.key.clone(), pod.node.clone());
    count.departed.push(match pod.went_to().filter(|_| !died) {
        Some((instance, to, began)) => Event::Moved {
            instance: instance.clone(),
            pod: key,
            node,
            to: to.to_owned(),
            seconds: now.duration_since(began).as_secs(),
        },
        None => Event::Left { pod: key, node, by_us, deleting: policy.disable_eviction },
    });
}
