//! What a drain did to a node, noted outside the node.
//!
//! The mark is an annotation of the node, and a kubelet may write the annotations of its own node. Who undoes what a mark says would do
//! for a kubelet what a kubelet may not do: remove taints and labels of others. So a mark is believed only as far as two things bear it out:
//! a closed list of what evac ever writes on nodes, and a record on a lease, which no kubelet may write. Both must name it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fact::{Node, Taint, Uid};
use crate::failover::suspect::out_of_service;
use crate::maintenance;
use crate::ownership::{DrainMark, MarkState};

/// The annotation of a lease that carries a [`Record`] as JSON.
pub const ANNOTATION: &str = "evac.dev/record";

/// What a drain found and added on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The incarnation of the node.
    pub uid: Uid,
    /// The owner in the mark.
    pub owner: String,
    /// Whether the node was cordoned before.
    pub unschedulable: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Record {
    /// What a mark that is about to be written says.
    pub fn of(uid: &Uid, mark: &DrainMark) -> Self {
        Self {
            uid: uid.clone(),
            owner: mark.owner.clone(),
            unschedulable: mark.before.unschedulable,
            taints: mark.added_taints.clone(),
            labels: mark.added_labels.clone(),
        }
    }

    /// With taints that the same owner may put on later.
    #[must_use]
    pub fn and_perhaps(mut self, taints: Vec<Taint>) -> Self {
        for taint in taints {
            if !self.taints.iter().any(|known| known.same_as(&taint)) {
                self.taints.push(taint);
            }
        }
        self
    }

    fn is_about(&self, node: &Node, mark: &DrainMark) -> bool {
        self.uid == node.uid && self.owner == mark.owner
    }
}

/// Whether evac ever puts this taint on a node.
fn may_be_ours(taint: &Taint) -> bool {
    let as_ours = |ours: &Taint| ours.same_as(taint) && text(ours) == text(taint);
    maintenance::taints().iter().chain([&out_of_service()]).any(as_ours)
}

fn text(taint: &Taint) -> &str {
    taint.value.as_deref().unwrap_or_default()
}

/// The node with as much of its mark as is borne out, for an owner that goes on from there and notes what it found: what was forged must not become
/// true by being noted.
pub fn borne_out(node: &Node, record: Option<&Record>) -> Node {
    match &node.mark {
        Some(MarkState::Valid(mark)) => {
            let mark = Box::new(vetted(node, mark, record));
            Node { mark: Some(MarkState::Valid(mark)), ..node.clone() }
        }
        _ => node.clone(),
    }
}

/// As much of a mark as the record and the closed list bear out. What is in doubt counts as having been there before.
pub fn vetted(node: &Node, mark: &DrainMark, record: Option<&Record>) -> DrainMark {
    let record = record.filter(|record| record.is_about(node, mark));
    let mut vetted = mark.clone();
    vetted.before.unschedulable = match record {
        Some(record) => record.unschedulable || mark.before.unschedulable,
        None => node.unschedulable,
    };
    vetted.added_taints.retain(|taint| {
        let noted = record.is_some_and(|record| record.taints.iter().any(|known| known.same_as(taint)));
        noted && may_be_ours(taint)
    });
    vetted.added_labels.retain(|name, value| {
        let noted = record.is_some_and(|record| record.labels.get(name) == Some(value));
        noted && maintenance::labels().get(name) == Some(value)
    });
    vetted
}
