//! A run that has no end of its own: nodes that stay empty until somebody says otherwise.
//!
//! A maintenance lasts until its object is deleted. Meanwhile pods may come that tolerate the cordon, a right may be granted
//! that was missing, a server may recover. So what ended well is opened again when something new is there, and what
//! failed is tried again after a while.

use jiff::Timestamp;

use crate::cluster::index::Index;
use crate::drain::assess::{Fate, assess};
use crate::drain::policy::Policy;
use crate::drain::run::{End, NodePhase, PodState, Run};
use crate::drain::step::Step;

/// Opens again what is not over after all.
pub(crate) fn renew(index: &Index, policy: &Policy, run: &mut Run, now: Timestamp, step: &mut Step) {
    for node in &mut run.nodes {
        if let NodePhase::Ended(End::Drained { .. }) = node.phase {
            let verdicts = assess(index, policy, &node.name, now).verdicts;
            if verdicts.iter().any(|verdict| verdict.fate != Fate::Leave) {
                node.phase = NodePhase::Draining { since: now };
                node.end_told = false;
            }
        }
    }
    for pod in run.pods.values_mut().filter(|pod| pod.state == PodState::Failed) {
        if let Some(at) = pod.not_before.filter(|at| *at > now) {
            step.wake_at(at);
        } else {
            pod.state = PodState::Idle;
            pod.row = 0;
            pod.not_before = None;
        }
    }
}
