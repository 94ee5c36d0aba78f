//! A run that has no end of its own: nodes that stay empty until their maintenance ends.
//!
//! A maintenance lasts until its object is deleted. Meanwhile pods may come that tolerate the cordon, a right may be granted
//! that was missing, a server may recover. So what ended well is opened again when something new is there, and what
//! failed is tried again after a while.

use crate::drain::assess::{Fate, assess};
use crate::drain::look::Look;
use crate::drain::node::Draining;
use crate::drain::pod::PodState;
use crate::drain::run::{End, NodePhase, Run};
use crate::drain::step::Step;

/// Opens again what is not over after all.
pub(crate) fn renew(look: Look<'_>, run: &mut Run, step: &mut Step) {
    let Look { index, policy, now } = look;
    for node in &mut run.nodes {
        if let Some(End::Drained { .. }) = node.end() {
            let verdicts = assess(index, policy, &node.name, now).verdicts;
            if verdicts.iter().any(|verdict| verdict.fate != Fate::Leave) {
                node.phase = NodePhase::Draining(Draining::since(now));
            }
        }
    }
    for pod in run.pods.values_mut() {
        match pod.state {
            PodState::Failed { until } if until > now => step.look_at(until),
            PodState::Failed { .. } => pod.try_again(),
            _ => {}
        }
    }
}
