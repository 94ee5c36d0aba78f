//! What a drain did to a node, noted outside the node.
//!
//! The mark is an annotation of the node, and a kubelet may write the annotations of its own node. Who undoes what a mark says would do
//! for a kubelet what a kubelet may not do: remove taints and labels of others. So a mark is believed only as far as two things bear it out:
//! a closed list of what evac ever writes on nodes, and a record on a lease, which no kubelet may write. Both must name it.

use crate::cluster::fact::{Node, Taint, Uid};
pub use crate::cluster::mark::Record;
use crate::drain::ownership::{DrainMark, MarkState};
use crate::drain::written_on_nodes::{self, out_of_service};

/// The annotation of a lease that carries a [`Record`] as JSON.
pub const ANNOTATION: &str = "evac.dev/record";

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
    written_on_nodes::taints().iter().chain([&out_of_service()]).any(as_ours)
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
        noted && written_on_nodes::labels().get(name) == Some(value)
    });
    vetted
}
