//! Who is working on a node, and the mark by which it is known.
//!
//! A drain writes its mark into an annotation of the node in the same request as the cordon. The mark holds the state
//! before the first change, so that exactly what a drain did can be undone ([`give_back`](super::give_back)).

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::cluster::fact::{Key, Node, Taint};
use crate::cluster::index::Index;
pub use crate::cluster::mark::{DrainMark, MARK_SIZE, MARK_VERSION, MarkState, PreImage};
use crate::drain::claim::{self, Life};
use crate::reasons::{OwnerReason, Reason};

/// The annotation that carries a [`DrainMark`] as JSON.
pub const ANNOTATION: &str = "evac.dev/drain";
/// The namespace and the name prefix of the leases by which remediation operators claim a node.
pub const LEASE_NAMESPACE: &str = "medik8s-leases";

/// The owner in the marks of NodeMaintenance objects: what puts the node right again is the object, not the mark.
pub const MAINTENANCE: &str = "node-maintenance";

/// The owner in the marks of failovers that an operator began by a policy. Whether such a node may be used again is a question about the node.
pub const FAILOVER: &str = "evac-operator";

/// Whether this is the name of an operator's role, of whichever installation.
pub fn is_role(name: &str, role: &str) -> bool {
    name.strip_prefix(role).is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
}

/// Where the remediation operators' lease for a node lives.
pub fn lease_key(node: &str) -> Key {
    Key::new(LEASE_NAMESPACE, format!("node-{}", node.to_lowercase()))
}

/// Who holds a node, seen by `owner`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// No mark and no lease that protects the node, and it is schedulable.
    Free,
    /// Cordoned by a person or a program that left no mark.
    ForeignCordon,
    /// Our own earlier or interrupted drain.
    Ours(Box<DrainMark>),
    /// Another owner's mark, a mark that cannot be read, or a lease of a remediation operator that holds. Says which.
    Other(Reason),
    /// The drain of another owner was killed; this drain may go on in its place.
    Abandoned(Reason),
}

impl Ownership {
    /// Whether a drain must keep off the node. It may be told to take over from another drain, but not from a maintenance: the operator
    /// that serves the NodeMaintenance would fight for the node, and its end would leave the node with the drain.
    pub fn refuses(&self, take_over: bool) -> bool {
        match self {
            Self::Other(Reason::Owner(OwnerReason::OwnedByEvac { by_maintenance: true, .. })) => true,
            Self::Other(_) => !take_over,
            _ => false,
        }
    }
}

/// Whether another owner drains or drained the node, so that it matters whether that drain is still at work.
pub fn is_marked_by_other(node: &Node, owner: &str) -> bool {
    matches!(&node.mark, Some(MarkState::Valid(mark)) if mark.owner != owner)
}

/// By the mark if there is one; only a node without a mark is judged by the remediation operators' lease and its cordon.
pub fn ownership(index: &Index, node: &Node, owner: &str, now: Timestamp) -> Ownership {
    match &node.mark {
        Some(MarkState::Valid(mark)) if mark.owner == owner => return Ownership::Ours(mark.clone()),
        Some(MarkState::Valid(mark)) => return owned_by_other(mark, &claim::life(index, &node.name, now)),
        Some(MarkState::Unreadable(text)) => {
            return Ownership::Other(OwnerReason::MarkUnreadable { text: text.clone() }.into());
        }
        None => {}
    }
    let lease = lease_key(&node.name);
    if let Some(found) = index.lease(&lease)
        && found.holder != owner
        && found.protects(now)
    {
        return Ownership::Other(OwnerReason::OwnedByLease { lease, holder: found.holder.clone() }.into());
    }
    if node.unschedulable { Ownership::ForeignCordon } else { Ownership::Free }
}

fn owned_by_other(mark: &DrainMark, life: &Life) -> Ownership {
    let owner = mark.owner.clone();
    if let Life::Dead { holder, seen } = life
        && holder.owner == owner
    {
        let (instance, seen) = (holder.instance.clone(), *seen);
        return Ownership::Abandoned(OwnerReason::Abandoned { owner, instance, seen }.into());
    }
    let run = life.perhaps_alive().filter(|(holder, _)| holder.owner == owner);
    let (instance, seen) = run.map(|(holder, seen)| (holder.instance.clone(), seen)).unzip();
    Ownership::Other(held_by(mark, instance, seen))
}

/// That the owner of a mark holds its node, in which run and with which last sign of life if that is known.
pub(crate) fn held_by(mark: &DrainMark, instance: Option<String>, seen: Option<Timestamp>) -> Reason {
    let (owner, since) = (mark.owner.clone(), mark.since);
    let by_maintenance = is_role(&owner, MAINTENANCE);
    OwnerReason::OwnedByEvac { owner, since, instance, seen, by_maintenance }.into()
}

/// What a drain writes on a node besides the cordon, and in which words it says why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attire {
    /// The words of the command line, or the object, for the mark: people read there why the node is cordoned.
    pub options: Vec<String>,
    /// Taints that are added unless the node has them already.
    pub taints: Vec<Taint>,
    /// Labels that are added unless the node has one of that name, whatever its value.
    pub labels: BTreeMap<String, String>,
}

impl Attire {
    /// The taints the node does not carry yet.
    fn missing_taints(&self, node: &Node) -> Vec<Taint> {
        self.taints
            .iter()
            .filter(|ours| !node.taints.iter().any(|there| there.same_as(ours)))
            .cloned()
            .collect()
    }

    /// Whether the node carries all of it, the cordon included. A label keeps the value that another client gave it.
    pub fn is_worn_by(&self, node: &Node) -> bool {
        node.unschedulable
            && self.missing_taints(node).is_empty()
            && self.labels.keys().all(|name| node.labels.contains_key(name))
    }

    /// All taints of the node with ours, if any of ours is missing.
    pub fn taints_on(&self, node: &Node) -> Option<Vec<Taint>> {
        let missing = self.missing_taints(node);
        (!missing.is_empty()).then(|| node.taints.iter().cloned().chain(missing).collect())
    }
}

/// The mark of a drain that begins now on a node, or of one that has to be put on again.
///
/// A mark taken over keeps its pre-image: the node's state before the *first* drainer is the one to return to. What another
/// client had written before is not this drain's to take away.
pub fn new_mark(node: &Node, owner: &str, attire: &Attire, now: Timestamp) -> DrainMark {
    let (before, mut added_taints, mut added_labels) = match &node.mark {
        Some(MarkState::Valid(mark)) => {
            (mark.before.clone(), mark.added_taints.clone(), mark.added_labels.clone())
        }
        _ => (
            PreImage { unschedulable: node.unschedulable, taints: node.taints.clone() },
            Vec::new(),
            BTreeMap::new(),
        ),
    };
    for taint in attire.missing_taints(node) {
        if !added_taints.iter().any(|known: &Taint| known.same_as(&taint)) {
            added_taints.push(taint);
        }
    }
    for (name, value) in &attire.labels {
        if !node.labels.contains_key(name) {
            added_labels.insert(name.clone(), value.clone());
        }
    }
    let options = attire.options.clone();
    let owner = owner.to_owned();
    DrainMark { version: MARK_VERSION, owner, since: now, before, added_taints, added_labels, options }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fact::{Fact, Lease};
    use crate::testing::{at, node};

    fn marked(mut node: Node, owner: &str) -> Node {
        let mark = new_mark(&node, owner, &Attire::default(), at(0));
        node.unschedulable = true;
        node.mark = Some(MarkState::Valid(Box::new(mark)));
        node
    }

    #[test]
    fn the_way_out_of_a_maintenance_is_to_end_it() {
        let fix = |owner: &str| match ownership(&Index::new(), &marked(node("n"), owner), "me", at(9)) {
            Ownership::Other(reason) => reason.fix().unwrap(),
            other => panic!("{other:?}"),
        };
        for owner in [MAINTENANCE, "node-maintenance@blue"] {
            let fix = fix(owner);
            assert!(fix.contains("evac maintenance end") && !fix.contains("--take-over"), "{fix}");
        }
        for owner in ["kim@desk", "node-maintenance-of-kim"] {
            assert!(fix(owner).contains("--take-over"), "{owner}");
        }
    }

    #[test]
    fn a_drain_is_taken_over_from_and_a_maintenance_is_not() {
        let held = |owner: &str| ownership(&Index::new(), &marked(node("n"), owner), "me", at(9));
        assert!(held("kim@desk").refuses(false) && !held("kim@desk").refuses(true));
        for owner in [MAINTENANCE, "node-maintenance@blue"] {
            assert!(held(owner).refuses(false) && held(owner).refuses(true), "{owner}");
        }
        assert!(!held("me").refuses(false) && !Ownership::Free.refuses(false));
    }

    #[test]
    fn taking_over_keeps_the_first_pre_image() {
        let theirs = marked(node("n"), "them");
        let mark = new_mark(&theirs, "me", &Attire::default(), at(9));
        assert!(!mark.before.unschedulable);
    }

    #[test]
    fn another_drainer_a_remediation_lease_and_a_bare_cordon_are_told_apart() {
        let mut index = Index::new();
        let now = at(100);
        assert_eq!(ownership(&index, &node("n"), "me", now), Ownership::Free);
        assert!(matches!(ownership(&index, &marked(node("n"), "me"), "me", now), Ownership::Ours(_)));
        assert!(matches!(
            ownership(&index, &marked(node("n"), "them"), "me", now),
            Ownership::Other(Reason::Owner(OwnerReason::OwnedByEvac { owner, .. })) if owner == "them"
        ));
        let mut cordoned = node("n");
        cordoned.unschedulable = true;
        assert_eq!(ownership(&index, &cordoned, "me", now), Ownership::ForeignCordon);

        let lease = Lease {
            key: lease_key("n"),
            uid: crate::cluster::fact::Uid("lease".into()),
            holder: "node-maintenance".into(),
            renewed: Some(at(50)),
            duration_seconds: 60,
            resource_version: "1".into(),
            transitions: 0,
            asked: None,
            answered: None,
            record: None,
        };
        index.apply(Fact::Lease(Box::new(lease)));
        assert!(matches!(
            ownership(&index, &node("n"), "me", now),
            Ownership::Other(Reason::Owner(OwnerReason::OwnedByLease { .. }))
        ));
        assert_eq!(
            ownership(&index, &node("n"), "me", at(110 + 300)),
            Ownership::Free,
            "a lapsed lease protects nobody"
        );
        for (renewed, what) in [(130, "a clock that is ahead"), (50 - 299, "a clock that is late")] {
            let Some(mut lease) = index.lease(&lease_key("n")).cloned() else { panic!("it is there") };
            (lease.renewed, lease.resource_version) = (Some(at(renewed)), "2".into());
            index.apply(Fact::Lease(Box::new(lease)));
            assert!(
                matches!(
                    ownership(&index, &node("n"), "me", now),
                    Ownership::Other(Reason::Owner(OwnerReason::OwnedByLease { .. }))
                ),
                "its holder has {what} and still holds it"
            );
        }
    }

    #[test]
    fn a_mark_with_a_living_lease_refuses_and_with_a_lapsed_one_invites() {
        let mut index = Index::new();
        let theirs = marked(node("n"), "them");
        let claimed = |renewed| Lease {
            key: claim::key("n"),
            uid: crate::cluster::fact::Uid("lease".into()),
            holder: "them/box:7".into(),
            renewed: Some(at(renewed)),
            duration_seconds: 90,
            resource_version: "1".into(),
            transitions: 0,
            asked: None,
            answered: None,
            record: None,
        };
        index.apply(Fact::Lease(Box::new(claimed(50))));
        assert!(matches!(
            ownership(&index, &theirs, "me", at(100)),
            Ownership::Other(Reason::Owner(OwnerReason::OwnedByEvac { instance: Some(run), .. })) if run == "box:7"
        ));
        assert!(matches!(ownership(&index, &theirs, "me", at(200)), Ownership::Abandoned(_)));
        let mut finished = claimed(50);
        finished.holder = "someone-else/x".into();
        index.apply(Fact::Lease(Box::new(finished)));
        assert!(
            matches!(ownership(&index, &theirs, "me", at(200)), Ownership::Other(_)),
            "a lease of a third party says nothing about this mark"
        );
    }
}
