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
pub enum Standing {
    /// Nothing has been written on the node yet.
    Preparing,
    /// It is cordoned, and pods leave or the final look is under way.
    Draining,
    /// It is over; a drain without an end may open it again.
    Ended(End),
}

/// One node, as its drain sees it at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The node.
    pub node: String,
    /// How far the work on it is.
    pub standing: Standing,
    /// What was written on the node is still there, in the view that the rest was seen in.
    pub worn: bool,
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
pub fn survey(index: &Index, policy: &Policy, run: &Run, node: &str, now: Timestamp) -> Option<Survey> {
    let state = run.nodes.iter().find(|known| known.name == node)?;
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
    let standing = match &state.phase {
        NodePhase::Waiting(_) | NodePhase::Cordoning(_) | NodePhase::LookingUp { .. } => Standing::Preparing,
        NodePhase::Draining(_) | NodePhase::Proving { .. } => Standing::Draining,
        NodePhase::Ended(ended) => Standing::Ended(ended.end.clone()),
    };
    let worn = index.node(node).is_some_and(|node| {
        let ours = matches!(&node.mark, Some(MarkState::Valid(mark)) if mark.owner == run.owner);
        ours && state.attire.is_worn_by(node)
    });
    let told = matches!(state.phase, NodePhase::Draining(_)).then(|| run.tellings.get(node)).flatten();
    Some(Survey {
        node: node.to_owned(),
        standing,
        worn,
        total: assessment.verdicts.len(),
        pending,
        blockers,
        end: told.and_then(Telling::foretold),
    })
}
