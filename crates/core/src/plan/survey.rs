//! Can any one node be lost? Each node by itself, those with the most trouble first.

use serde::Serialize;

use super::{Plan, Takes};
use crate::cluster::fact::Key;
use crate::cluster::natural::natural;
use crate::drain::forecast::{Expected, Prospect};
use crate::reasons::{GuestReason, Reason};

/// Whether a node can be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Something is in the way.
    Blocked,
    /// Machines on it find no place elsewhere, and nothing else is in the way.
    NoRoom,
    /// It depends on what cannot be seen or may still change.
    Unknown,
    /// Yes.
    Drainable,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SurveyedNode {
    /// The node.
    pub node: String,
    /// Whether it can be emptied.
    pub verdict: Verdict,
    /// How many pods on it run a virtual machine.
    pub machines: usize,
    /// How many do not.
    pub pods: usize,
    /// How many guests would move.
    pub moves: usize,
    /// How long it would take until all have gone that can go.
    pub takes: Takes,
    /// Bytes of memory that would be left on the other nodes that take new pods.
    pub spare_memory: Option<u64>,
    /// How many pods something is in the way of.
    pub blocked: usize,
    /// What that is: each reason once, with the first pod that it is about.
    pub in_the_way: Vec<InTheWay>,
}

/// Something that is in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InTheWay {
    /// The first pod that it is in the way of, or the machine in it.
    pub of: Key,
    /// How many pods it is in the way of.
    pub pods: usize,
    /// What it is.
    pub reason: Reason,
}

/// All nodes of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Survey {
    /// Those with the most trouble first.
    pub nodes: Vec<SurveyedNode>,
}

impl Survey {
    pub(super) fn of(plans: impl Iterator<Item = Plan>) -> Self {
        let mut nodes: Vec<SurveyedNode> = plans.flat_map(surveyed).collect();
        nodes.sort_by(|a, b| {
            let trouble = |node: &SurveyedNode| (node.verdict, std::cmp::Reverse(node.blocked));
            trouble(a).cmp(&trouble(b)).then_with(|| natural(&a.node, &b.node))
        });
        Self { nodes }
    }

    /// Whether nothing that can be seen is in the way on any node.
    pub fn is_drainable(&self) -> bool {
        self.nodes.iter().all(|node| matches!(node.verdict, Verdict::Drainable | Verdict::Unknown))
    }
}

fn surveyed(plan: Plan) -> Vec<SurveyedNode> {
    let Plan { nodes, room, .. } = plan;
    nodes
        .into_iter()
        .map(|node| {
            let mut in_the_way: Vec<InTheWay> = Vec::new();
            let mut blocked = 0;
            for (pod, reason) in node.blocked().filter_map(|pod| Some((pod, pod.forecast.reason()?))) {
                blocked += 1;
                match in_the_way.iter_mut().find(|known| known.reason.code() == reason.code()) {
                    Some(known) => known.pods += 1,
                    None => in_the_way.push(InTheWay {
                        of: pod.forecast.instance.clone().unwrap_or_else(|| pod.forecast.pod.clone()),
                        pods: 1,
                        reason: reason.clone(),
                    }),
                }
            }
            let no_room =
                |one: &InTheWay| matches!(one.reason, Reason::Guest(GuestReason::VmFitsNowhere { .. }));
            let verdict = if !in_the_way.is_empty() && !in_the_way.iter().all(no_room) {
                Verdict::Blocked
            } else if !in_the_way.is_empty() || !room.without_place.is_empty() {
                Verdict::NoRoom
            } else if node.expected == Expected::Drained
                || node.pods.iter().all(|pod| !matches!(pod.forecast.prospect, Prospect::Unknown { .. }))
            {
                Verdict::Drainable
            } else {
                Verdict::Unknown
            };
            let machines = node.pods.iter().filter(|pod| pod.forecast.instance.is_some()).count();
            SurveyedNode {
                verdict,
                machines,
                pods: node.pods.len() - machines,
                moves: node.moves,
                takes: node.takes,
                spare_memory: room.spare_memory,
                blocked,
                in_the_way,
                node: node.node,
            }
        })
        .collect()
}
