//! Where the work on one node stands, for a status that is written without having heard every event.

use jiff::Timestamp;

use crate::cluster::fact::Key;
use crate::cluster::index::Index;
use crate::drain::assess::assess;
use crate::drain::outlook::{Foretold, Telling};
use crate::drain::ownership::MarkState;
use crate::drain::policy::Policy;
use crate::drain::run::{Blocker, End, NodePhase, Run};

/// How far the work on a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainStage {
    /// Nothing has been written on the node yet.
    Preparing,
    /// It is cordoned, and pods leave or the final look is under way.
    Draining,
    /// It is over; a drain without an end may open it again.
    Ended(End),
}

/// One node, as its drain sees it at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainProgress {
    /// The node.
    pub node: String,
    /// How far the work on it is.
    pub stage: DrainStage,
    /// What was written on the node is still there, in the view that the rest was seen in.
    pub still_applied: bool,
    /// All pods on the node.
    pub total: usize,
    /// Those that still have to leave.
    pub pending: Vec<Key>,
    /// What pending pods wait for, as the drain last found; pods that just leave have none.
    pub blockers: Vec<Blocker>,
    /// When the node will be empty, as far as the drain has told it.
    pub end: Option<Foretold>,
}

/// Looks at one node of a drain; none if the drain does not know the node.
pub fn progress(
    index: &Index,
    policy: &Policy,
    run: &Run,
    node: &str,
    now: Timestamp,
) -> Option<DrainProgress> {
    let work = run.nodes.iter().find(|known| known.name == node)?;
    let assessment = assess(index, policy, node, now);
    let mut pending = Vec::new();
    let mut blockers = Vec::new();
    for verdict in assessment.to_leave() {
        pending.push(verdict.pod.clone());
        let known = run.pods.get(&verdict.uid);
        if let Some((reason, since)) = known.and_then(|known| known.told.blocked.clone()) {
            let pod = index.pod(&verdict.pod);
            let owner = pod.and_then(|pod| pod.controller.as_ref()).map(ToString::to_string);
            blockers.push(Blocker { pod: verdict.pod.clone(), owner, reason, since });
        }
    }
    let stage = match &work.phase {
        NodePhase::Waiting(_) | NodePhase::Cordoning(_) | NodePhase::LookingUp { .. } => {
            DrainStage::Preparing
        }
        NodePhase::Draining(_) | NodePhase::Proving { .. } => DrainStage::Draining,
        NodePhase::Ended(ended) => DrainStage::Ended(ended.end.clone()),
    };
    let still_applied = index.node(node).is_some_and(|node| {
        let ours = matches!(&node.mark, Some(MarkState::Valid(mark)) if mark.owner == run.owner);
        ours && work.changes.are_on(node)
    });
    let told = matches!(work.phase, NodePhase::Draining(_)).then(|| run.tellings.get(node)).flatten();
    Some(DrainProgress {
        node: node.to_owned(),
        stage,
        still_applied,
        total: assessment.verdicts.len(),
        pending,
        blockers,
        end: told.and_then(Telling::foretold),
    })
}
