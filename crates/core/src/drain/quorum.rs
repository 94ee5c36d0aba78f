//! Whether the control plane can spare a node: what remains of etcd must still be a majority.
//!
//! One rule for all who take nodes away: a maintenance, a failover by a policy, a person. A member on a node that has failed, is being failed over
//! or is out for maintenance does not count, whichever owner is behind it: two owners who each take the one node that can be spared would
//! take the quorum together. What is not known counts as no.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::fact::{Health, Node, Pod};

const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// By its role label: `control-plane`, or `master` as it was called before.
pub fn is_control_plane(node: &Node) -> bool {
    CONTROL_PLANE.iter().any(|label| node.labels.contains_key(label))
}

/// One member of etcd, as its pod shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node its pod is on.
    pub node: String,
    /// Its pod is ready and not about to be deleted.
    pub healthy: bool,
}

impl From<&Pod> for Member {
    /// A member that is about to end is as good as gone.
    fn from(pod: &Pod) -> Self {
        Self { node: pod.node_name().to_owned(), healthy: pod.ready && pod.deletion.is_none() }
    }
}

/// The budget by which OpenShift guards etcd, and the guard on the node in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// This cluster has no such thing.
    NotUsed,
    /// The number of budgets in the namespace of etcd where exactly one is expected.
    Budgets(usize),
    /// There is one budget, as OpenShift has it.
    Budget {
        /// `status.disruptionsAllowed`.
        allowed: i32,
        /// Whether the guard pod on the node is ready or may be; nothing if there is none.
        guard_up: Option<bool>,
    },
}

/// What was found out about etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    /// The members whose pods are seen; none where etcd does not run as pods, or could not be found.
    pub members: Vec<Member>,
    /// OpenShift's own guard, where there is one.
    pub guard: Guard,
}

/// The nodes of the cluster, and which of them are taken away already or may be at any moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Around {
    nodes: BTreeMap<String, Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    control_plane: bool,
    ready: bool,
    away: bool,
}

impl Place {
    fn is_in_service(&self) -> bool {
        self.ready && !self.away
    }
}

impl Around {
    /// A node is away that is not Ready, is about to be deleted, or carries the mark of a drain, a maintenance or a failover.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let place = |node: &Node| Place {
            control_plane: is_control_plane(node),
            ready: node.health == Health::Ready,
            away: node.mark.is_some() || node.deleting || node.is_out_of_service(),
        };
        Self { nodes: nodes.into_iter().map(|node| (node.name.clone(), place(node))).collect() }
    }

    /// The same, with these nodes away, too: another program is at work on them and left no mark there.
    #[must_use]
    pub fn without<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        for name in names {
            if let Some(place) = self.nodes.get_mut(name) {
                place.away = true;
            }
        }
        self
    }

    /// The nodes of the control plane.
    pub fn control_plane(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter(|(_, place)| place.control_plane).map(|(name, _)| name.as_str())
    }

    fn is_in_service(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(Place::is_in_service)
    }

    /// Its kubelet does not say that it is well, so what still runs there is not known.
    fn is_unseen(&self, name: &str) -> bool {
        self.nodes.get(name).is_none_or(|place| !place.ready)
    }
}

/// Why a node cannot be spared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shortage {
    /// OpenShift's budget for etcd allows no disruption.
    Budget,
    /// So many budgets where one is expected.
    Budgets(usize),
    /// No members are seen.
    Unseen,
    /// What was needed for an answer could not be read.
    Unread(String),
    /// Less than a majority would be left.
    TooFew {
        /// Healthy members on other nodes that are in service.
        left: usize,
        /// Members that are seen, and one for each control-plane node that is away and shows none.
        all: usize,
        /// A majority of `all`.
        needed: usize,
    },
}

impl Shortage {
    /// The reason as a clause that does not name the node.
    pub fn words(&self) -> String {
        match self {
            Self::Budget => "etcd could not lose another member, its budget allows no disruption".into(),
            Self::Budgets(count) => {
                format!(
                    "{count} disruption budgets guard etcd where one is expected, so its quorum is unknown"
                )
            }
            Self::Unseen => "no etcd members are seen, so the quorum is unknown".into(),
            Self::Unread(why) => format!("the quorum of etcd could not be found out: {why}"),
            Self::TooFew { left, all, needed } => {
                format!("{left} of {all} etcd members would be left, and {needed} are needed")
            }
        }
    }
}

/// May this node of the control plane be taken away now?
pub fn spare(node: &str, etcd: &Etcd, around: &Around) -> Result<(), Shortage> {
    match etcd.guard {
        Guard::Budgets(count) => return Err(Shortage::Budgets(count)),
        Guard::Budget { allowed, guard_up: Some(true) } if allowed <= 0 => return Err(Shortage::Budget),
        // The budget allows it, or the member on this node is down already.
        Guard::Budget { .. } if etcd.members.is_empty() && !around.is_unseen(node) => return Ok(()),
        Guard::Budget { .. } | Guard::NotUsed => {}
    }
    if etcd.members.is_empty() {
        return Err(Shortage::Unseen);
    }
    let has_member = |name: &str| etcd.members.iter().any(|member| member.node == name);
    // A node of the control plane that is away and shows no member may have one all the same.
    let hidden = around.control_plane().filter(|name| !around.is_in_service(name) && !has_member(name));
    let all = etcd.members.len() + hidden.count();
    let others = etcd.members.iter().filter(|member| member.node != node);
    let left = others.filter(|member| member.healthy && around.is_in_service(&member.node)).count();
    // Pods of a silent node are called unready by others; its member may run, and is lost with the machine.
    let loses = etcd.members.iter().any(|member| member.node == node && member.healthy)
        || around.is_unseen(node) && (has_member(node) || around.control_plane().any(|name| name == node));
    let needed = all / 2 + 1;
    if !loses || left >= needed { Ok(()) } else { Err(Shortage::TooFew { left, all, needed }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::taints::OUT_OF_SERVICE;
    use crate::drain::ownership::{Attire, MarkState, new_mark};
    use crate::testing::{at, node, taint};

    fn plane(count: usize) -> Vec<Node> {
        let labelled = |at: usize| {
            let mut node = node(&format!("cp-{at}"));
            node.labels.insert(CONTROL_PLANE[0].into(), "".into());
            node
        };
        (0..count).map(labelled).collect()
    }

    fn silent(mut node: Node) -> Node {
        node.health = Health::Unknown;
        node
    }

    fn marked(mut node: Node, owner: &str) -> Node {
        node.mark = Some(MarkState::Valid(Box::new(new_mark(&node, owner, &Attire::default(), at(0)))));
        node
    }

    fn plain(health: &[bool]) -> Etcd {
        let member = |(at, healthy): (usize, &bool)| Member { node: format!("cp-{at}"), healthy: *healthy };
        Etcd { members: health.iter().enumerate().map(member).collect(), guard: Guard::NotUsed }
    }

    fn too_few(left: usize, all: usize, needed: usize) -> Result<(), Shortage> {
        Err(Shortage::TooFew { left, all, needed })
    }

    #[test]
    fn a_majority_has_to_be_left() {
        let three = Around::of(&plane(3)).without([]);
        assert_eq!(spare("cp-0", &plain(&[true, true, true]), &three), Ok(()));
        let said = spare("cp-0", &plain(&[true, true, false]), &three).unwrap_err();
        assert_eq!(said.words(), "1 of 3 etcd members would be left, and 2 are needed");
        let down = spare("cp-2", &plain(&[true, true, false]), &three);
        assert_eq!(down, Ok(()), "its member is down already");
        assert_eq!(spare("cp-0", &plain(&[true]), &three), too_few(0, 1, 1), "the only one");
        assert_eq!(spare("cp-0", &plain(&[true, true]), &three), too_few(1, 2, 2), "two cannot lose one");
        assert_eq!(spare("cp-0", &plain(&[]), &three), Err(Shortage::Unseen));
        assert_eq!(spare("cp-2", &plain(&[true]), &three), Ok(()), "no member of etcd is there");
    }

    #[test]
    fn failed_failing_and_maintained_nodes_count_together() {
        let five = plain(&[true; 5]);
        let asked = |nodes: Vec<Node>| spare("cp-0", &five, &Around::of(&nodes));
        assert_eq!(asked(plane(5)), Ok(()));
        let with = |change: &dyn Fn(Vec<Node>) -> Vec<Node>| asked(change(plane(5)));
        let one_failed = |mut nodes: Vec<Node>| {
            nodes[1] = silent(nodes[1].clone());
            nodes
        };
        assert_eq!(with(&one_failed), Ok(()), "3 of 5 are left");
        let and_one_maintained = |nodes: Vec<Node>| {
            let mut nodes = one_failed(nodes);
            nodes[2] = marked(nodes[2].clone(), "node-maintenance");
            nodes
        };
        assert_eq!(with(&and_one_maintained), too_few(2, 5, 3));
        let and_one_failed_over = |nodes: Vec<Node>| {
            let mut nodes = one_failed(nodes);
            // Ready again, and not given back yet.
            nodes[2] = marked(nodes[2].clone(), "evac-operator");
            nodes
        };
        assert_eq!(with(&and_one_failed_over), too_few(2, 5, 3));
        let and_one_out_of_service = |nodes: Vec<Node>| {
            let mut nodes = one_failed(nodes);
            nodes[2].taints.push(taint(OUT_OF_SERVICE, "NoExecute"));
            nodes
        };
        assert_eq!(with(&and_one_out_of_service), too_few(2, 5, 3));
        let around = Around::of(&one_failed(plane(5))).without(["cp-3"]);
        assert_eq!(spare("cp-0", &five, &around), too_few(2, 5, 3), "somebody works on it without a mark");
    }

    #[test]
    fn a_silent_node_may_run_a_member_although_its_pod_is_called_unready() {
        let mut nodes = plane(3);
        nodes[0] = silent(nodes[0].clone());
        let seen = plain(&[false, true, true]);
        assert_eq!(spare("cp-0", &seen, &Around::of(&nodes)), Ok(()), "two are left");
        nodes[1] = silent(nodes[1].clone());
        assert_eq!(spare("cp-0", &plain(&[false, false, true]), &Around::of(&nodes)), too_few(1, 3, 2));
    }

    #[test]
    fn a_member_whose_pod_is_gone_with_its_node_still_counts_as_lost() {
        let mut nodes = plane(5);
        for at in [0, 1, 2] {
            nodes[at] = silent(nodes[at].clone());
        }
        // Two were failed over and show no member any more; three of five would be gone.
        let mut etcd = plain(&[true; 5]);
        etcd.members.retain(|member| !matches!(member.node.as_str(), "cp-0" | "cp-1"));
        assert_eq!(spare("cp-2", &etcd, &Around::of(&nodes)), too_few(2, 5, 3));
        // A member on a node that is not in the list is not relied upon.
        let unknown = Around::of(&nodes[1..3]);
        assert_eq!(spare("cp-2", &etcd, &unknown), too_few(0, 4, 3));
    }

    #[test]
    fn b16_b17_b18_b19_openshift_guards_etcd_by_a_budget() {
        let around = Around::of(&plane(3));
        let with = |guard| spare("cp-0", &Etcd { members: Vec::new(), guard }, &around);
        assert_eq!(with(Guard::Budget { allowed: 0, guard_up: Some(true) }), Err(Shortage::Budget));
        assert_eq!(with(Guard::Budget { allowed: 0, guard_up: Some(false) }), Ok(()));
        assert_eq!(with(Guard::Budget { allowed: 0, guard_up: None }), Ok(()));
        assert_eq!(with(Guard::Budget { allowed: 1, guard_up: Some(true) }), Ok(()));
        assert_eq!(with(Guard::Budgets(0)), Err(Shortage::Budgets(0)));
        assert_eq!(with(Guard::Budgets(2)), Err(Shortage::Budgets(2)));
    }

    #[test]
    fn a_guard_that_is_down_with_its_node_says_nothing_of_the_other_members() {
        let mut nodes = plane(3);
        nodes[0] = silent(nodes[0].clone());
        let guard = Guard::Budget { allowed: 0, guard_up: Some(false) };
        let ask = |health: &[bool], nodes: &[Node]| {
            let etcd = Etcd { guard: guard.clone(), ..plain(health) };
            spare("cp-0", &etcd, &Around::of(nodes))
        };
        assert_eq!(ask(&[false, true, true], &nodes), Ok(()));
        assert_eq!(ask(&[false, false, true], &nodes), too_few(1, 3, 2));
        assert_eq!(ask(&[], &nodes), Err(Shortage::Unseen));
    }
}
