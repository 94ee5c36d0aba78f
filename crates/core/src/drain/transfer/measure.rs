//! When the metrics of a node agent are read, and what is told of them.
//!
//! Only while memory of a guest on the node is being copied, at the pace the policy allows, one reading at a time for each node. What cannot
//! be read is left alone: the drain neither waits for it nor tells it.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Copying, Sample};
use crate::action::Outcome;
use crate::cluster::fact::{Pod, PodPhase, Uid};
use crate::cluster::index::Index;
use crate::drain::action::{Action, Own};
use crate::drain::assess::{Assessment, Fate};
use crate::drain::look::{Look, NodeLook};
use crate::drain::migrations::{Move, unfinished};
use crate::drain::outlook::gather::{note_stopping, outlook};
use crate::drain::outlook::{Outlook, Telling};
use crate::drain::pod::PodRun;
use crate::drain::run::{Run, after};
use crate::drain::step::{Event, Step};
use crate::machines::{Instance, Migration, MigrationPhase};

/// A copy that has just begun has nothing to show yet.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// What was read and told of one node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    /// A reading is on its way.
    reading: bool,
    pause: Duration,
    not_before: Option<Timestamp>,
}

/// What must not be read again in this run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unreadable {
    /// We may not read metrics at all.
    all: bool,
    pods: BTreeSet<Uid>,
}

/// Looks after one node that is being emptied.
pub(crate) fn measure(view: &NodeLook<'_>, run: &mut Run, step: &mut Step) {
    let policy = view.look.policy;
    if policy.foretells().is_none() {
        return;
    }
    tell_copies(view, run, step);
    tell_outlook(view, run, step);
    // Without a person who looks on, the time left is told from what the drain sees anyway.
    if let Some(pause) = policy.measure {
        read(view, run, pause, step);
    }
}

/// The guests of a node that are to be moved, with what is known of their way.
fn guests<'a>(
    index: &'a Index,
    assessment: &'a Assessment,
) -> impl Iterator<Item = (&'a Uid, &'a Instance, Option<&'a Migration>)> {
    assessment.of_fate(Fate::Migrate).filter_map(|verdict| {
        let instance = index.pod(&verdict.pod).and_then(|pod| index.instance_of(pod))?;
        Some((&verdict.uid, instance, unfinished(index, &instance.key)))
    })
}

fn tell_copies(view: &NodeLook<'_>, run: &mut Run, step: &mut Step) {
    let NodeLook { look: Look { index, now, .. }, assessment, .. } = *view;
    let copied = guests(index, assessment)
        .filter(|(.., migration)| migration.is_some_and(|one| one.phase == MigrationPhase::Running))
        .count();
    for (pod, instance, migration) in guests(index, assessment) {
        let Some(migration) = migration.filter(|one| one.phase == MigrationPhase::Running) else { continue };
        let Some(sample) = index.transfer(&instance.key).filter(|one| belongs(one, instance, migration))
        else {
            continue;
        };
        let Some(PodRun { key, moving: Some(moving), .. }) = run.pods.get_mut(pod) else { continue };
        if !moving.take(*sample) {
            continue;
        }
        moving.sampled = Some(now);
        moving.beside = copied;
        moving.outran = moving.copying.as_ref().is_some_and(Copying::outruns);
        step.events.extend(moving.copying.as_ref().map(|copying| Event::Copying {
            instance: instance.key.clone(),
            pod: key.clone(),
            node: assessment.node.clone(),
            migration: migration.key.name.to_string(),
            attempt: moving.attempt,
            copied: copying.told(),
        }));
    }
}

/// An agent may still hold samples of an earlier attempt. Its clock wrote both the samples and the start, in whole seconds.
fn belongs(sample: &Sample, instance: &Instance, migration: &Migration) -> bool {
    let Some(state) = instance.account_of(migration) else { return false };
    let Ok(start) = state.start.parse::<Timestamp>() else { return true };
    let start = start.checked_sub(SignedDuration::from_secs(1)).unwrap_or(start);
    sample.at.is_none_or(|at| at >= start)
}

impl Move {
    fn take(&mut self, sample: Sample) -> bool {
        if let Some(copying) = &mut self.copying {
            return copying.take(sample);
        }
        self.copying = Some(Copying::begin(sample));
        true
    }
}

/// Told at a pace that goes with what is left: often towards the end, seldom before.
fn tell_outlook(view: &NodeLook<'_>, run: &mut Run, step: &mut Step) {
    let NodeLook { look: Look { policy, now, .. }, assessment, .. } = *view;
    note_stopping(view, run);
    let told = if run.tellings.entry(assessment.node.clone()).or_default().is_due(now) {
        let raw = outlook(view, run);
        let pause = policy.foretells().unwrap_or_default();
        run.tellings.entry(assessment.node.clone()).or_default().tell(raw, pause, now)
    } else {
        None
    };
    let next = run.tellings.get(&assessment.node).and_then(Telling::next);
    next.filter(|at| *at > now).into_iter().for_each(|at| step.look_at(at));
    let Some(told) = told else { return };
    let (at_least_seconds, at_most_seconds, unknown) = match told {
        Outlook::Within(range) => (Some(range.at_least as u64), Some(range.at_most.ceil() as u64), None),
        Outlook::AtMost(seconds) => (None, Some(seconds.ceil() as u64), None),
        Outlook::Unknown(why) => (None, None, Some(why)),
    };
    step.events.push(Event::Outlook {
        node: assessment.node.clone(),
        guests: assessment.of_fate(Fate::Migrate).count(),
        at_least_seconds,
        at_most_seconds,
        unknown,
    });
}

/// Asks for a reading if one is due.
fn read(view: &NodeLook<'_>, run: &mut Run, pause: Duration, step: &mut Step) {
    let NodeLook { look: Look { index, now, .. }, assessment, .. } = *view;
    if run.unreadable.all {
        return;
    }
    let copied_since = guests(index, assessment)
        .filter(|(_, _, migration)| migration.is_some_and(|one| one.phase == MigrationPhase::Running))
        .filter_map(|(pod, ..)| Some(run.pods.get(pod)?.moving.as_ref()?.phase_since))
        .min();
    let Some(since) = copied_since else { return };
    let Some(agent) = agent(index, run, &assessment.node) else { return };
    let meter = run.meters.entry(assessment.node.clone()).or_default();
    if meter.reading {
        return;
    }
    let due = meter.not_before.unwrap_or(since).max(after(since, FIRST_LOOK));
    if due > now {
        return step.look_at(due);
    }
    meter.reading = true;
    meter.pause = pause;
    meter.not_before = Some(after(now, pause));
    step.actions.push(Action::Own(Own::ReadTransfers {
        node: assessment.node.clone(),
        pod: agent.key.clone(),
        uid: agent.uid.clone(),
    }));
}

/// The pod that knows about the guests of a node. Every user who creates pods may label one so, which is why what it says is shown and nothing more.
fn agent<'a>(index: &'a Index, run: &Run, node: &str) -> Option<&'a Pod> {
    index.pods_on(node).find(|pod| {
        pod.labels.get("kubevirt.io").is_some_and(|part| part == "virt-handler")
            && pod.daemon_set().is_some()
            && pod.phase == PodPhase::Running
            && pod.deletion.is_none()
            && !run.unreadable.pods.contains(&pod.uid)
    })
}

impl Run {
    /// Takes in how a reading went. What was read is in the index.
    pub(crate) fn record_measurement(&mut self, node: &str, pod: &Uid, outcome: &Outcome, now: Timestamp) {
        if let Some(meter) = self.meters.get_mut(node) {
            meter.reading = false;
            if *outcome != Outcome::Done {
                // However long it took to fail: there is a pause before the next.
                meter.not_before = Some(after(now, meter.pause));
            }
        }
        match outcome {
            // Neither becomes better by asking again.
            Outcome::Forbidden { .. } => self.unreadable.all = true,
            Outcome::Gone => {
                self.unreadable.pods.insert(pod.clone());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
