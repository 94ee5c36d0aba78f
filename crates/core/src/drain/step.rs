//! What now? The one function that moves a drain forward.
//!
//! Given everything known, [`step`] says which requests to send, what changed that is worth telling, and when to look again
//! if nothing happens until then. It sends an eviction when the server would grant it; a pod that waits for a budget costs
//! no request and no place. A capped back-off is the safety net under the watch.

use std::time::Duration;

use jiff::Timestamp;

use crate::action::Decision;
use crate::cluster::index::Index;
use crate::drain::action::{Action, Own};
use crate::drain::assess::assess;
use crate::drain::begin::begin;
use crate::drain::claim::{self, claim};
use crate::drain::departures;
use crate::drain::emptying::{advance, conclude};
pub use crate::drain::event::Event;
use crate::drain::evict::{charges, send};
use crate::drain::keep_empty;
use crate::drain::look::{Look, NodeLook};
use crate::drain::migrations;
use crate::drain::migrations::abort;
use crate::drain::node::{Cordon, Ended, Reading};
use crate::drain::policy::Policy;
use crate::drain::run::{End, NodePhase, NodeRun, Run};
use crate::drain::transfer::measure::measure;

/// How long something that may clear by itself is left alone before it is named.
pub(crate) const NAMED_AFTER: Duration = Duration::from_secs(3);

/// What is to be done and told now.
pub type Step = Decision<Action, Event>;

/// One look at a drain: what to send, what to tell, when to look again.
pub fn step(index: &Index, policy: &Policy, run: &mut Run, now: Timestamp) -> Step {
    let look = Look { index, policy, now };
    let mut step = Step::default();
    tell_ends(run, &mut step);
    if policy.standing {
        keep_empty::renew(look, run, &mut step);
    }
    for position in 0..run.nodes.len() {
        if matches!(run.nodes[position].phase, NodePhase::Waiting(_)) {
            begin(look, run, position, &mut step);
        }
        let NodeRun { name, phase, .. } = &mut run.nodes[position];
        if let NodePhase::LookingUp { asked, .. } = phase
            && !std::mem::replace(asked, true)
        {
            step.actions.push(Action::Own(Own::LookUp { node: name.clone() }));
        }
    }
    // All nodes are cordoned before the first pod leaves: it must not land on the next one to be emptied. A node that cannot be
    // cordoned must not hold up the others.
    let holds_up = |cordon: Cordon| !policy.standing || cordon.retry.failures() == 0;
    if !run.nodes.iter().filter_map(|node| node.phase.cordon()).any(holds_up) {
        empty(look, run, &mut step);
    }
    abort::send(run, now, &mut step);
    claim(look, run, &mut step);
    step
}

/// Looks after the nodes that are being emptied.
fn empty(look: Look<'_>, run: &mut Run, step: &mut Step) {
    let Look { index, policy, now } = look;
    claim::notice(index, run, now);
    departures::note(look, run, step);
    let charges = charges(index, run);
    let mut draining = Vec::new();
    for position in 0..run.nodes.len() {
        let NodeRun { name, phase, .. } = &run.nodes[position];
        let (is_proving, since) = match phase {
            NodePhase::Draining(draining) => (false, draining.since),
            NodePhase::Proving { since, reading: Reading::Arrived } => (true, *since),
            _ => continue,
        };
        let assessment = assess(index, policy, name, now);
        let view = NodeLook { look, assessment: &assessment, charges: &charges, since };
        if is_proving {
            conclude(&view, run, position, step);
        } else {
            advance(&view, run, position, step);
        }
        if matches!(run.nodes[position].phase, NodePhase::Draining(_)) {
            draining.push((assessment, since));
        }
    }
    if run.stopping {
        return;
    }
    for (assessment, since) in &draining {
        let view = NodeLook { look, assessment, charges: &charges, since: *since };
        migrations::send(&view, run, step);
        measure(&view, run, step);
    }
    send(look, run, draining.iter().map(|(assessment, _)| assessment), step);
}

/// The work on a node is over, which is told.
pub(crate) fn end(run: &mut Run, position: usize, end: End, step: &mut Step) {
    let node = &mut run.nodes[position];
    node.phase = node.phase.ended(end);
    tell_end(node, step);
}

/// An answer alone can be the end, such as a refused cordon.
fn tell_ends(run: &mut Run, step: &mut Step) {
    run.nodes.iter_mut().for_each(|node| tell_end(node, step));
}

fn tell_end(node: &mut NodeRun, step: &mut Step) {
    if let NodePhase::Ended(Ended { end, told, .. }) = &mut node.phase
        && !std::mem::replace(told, true)
    {
        step.events.push(Event::Ended { node: node.name.clone(), end: end.clone() });
    }
}
