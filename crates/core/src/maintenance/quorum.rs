//! Whether the control plane can spare a node: what remains of etcd must still be a majority.

use serde::{Deserialize, Serialize};

use crate::fact::Pod;

/// One member of etcd, as its pod shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node: String,
    pub healthy: bool,
}

impl From<&Pod> for Member {
    /// A member that is about to end is as good as gone.
    fn from(pod: &Pod) -> Self {
        Self { node: pod.node.clone().unwrap_or_default(), healthy: pod.ready && pod.deletion.is_none() }
    }
}

/// The budget by which OpenShift guards etcd, and the guard on the node in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// This cluster has no such thing.
    NotUsed,
    /// The number of budgets in the namespace of etcd where exactly one is expected.
    Budgets(usize),
    Budget {
        allowed: i32,
        /// Whether the guard pod on the node is ready or may be; nothing if there is none.
        guard_up: Option<bool>,
    },
}

/// What was found out about etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    pub members: Vec<Member>,
    pub guard: Guard,
}

impl Etcd {
    /// As it would be without the members on these nodes, which may be switched off at any time.
    #[must_use]
    pub fn without<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) -> Self {
        let mut left = self.clone();
        for node in nodes {
            left.members
                .iter_mut()
                .filter(|member| member.node == node)
                .for_each(|member| member.healthy = false);
        }
        left
    }
}

/// Judges a node of the control plane; the error is a sentence. What is not known counts as no.
pub fn spare(node: &str, etcd: &Etcd) -> Result<(), String> {
    match etcd.guard {
        Guard::Budget { allowed, .. } if allowed > 0 => return Ok(()),
        Guard::Budget { guard_up: Some(true), .. } => {
            return Err(format!(
                "can not put control-plane node {node} into maintenance: etcd could not lose another member, its budget allows no disruption"
            ));
        }
        // The member on this node is down already.
        Guard::Budget { .. } => return Ok(()),
        Guard::Budgets(count) => {
            return Err(format!(
                "can not put control-plane node {node} into maintenance: {count} disruption budgets guard etcd where one is expected, so its quorum is unknown"
            ));
        }
        Guard::NotUsed => {}
    }
    let all = etcd.members.len();
    if all == 0 {
        return Err(format!(
            "can not put control-plane node {node} into maintenance: no etcd members are seen, so the quorum is unknown; if etcd does not run on this node, annotate the object with {}=true",
            super::ALLOW_CONTROL_PLANE
        ));
    }
    let healthy = etcd.members.iter().filter(|member| member.healthy).count();
    let loses = etcd.members.iter().any(|member| member.node == node && member.healthy);
    let left = healthy - usize::from(loses);
    let majority = all / 2 + 1;
    if !loses || left >= majority {
        return Ok(());
    }
    Err(format!(
        "can not put control-plane node {node} into maintenance: {left} of {all} etcd members would be left, and {majority} are needed"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(health: &[bool]) -> Etcd {
        let members = health
            .iter()
            .enumerate()
            .map(|(at, healthy)| Member { node: format!("cp-{at}"), healthy: *healthy })
            .collect();
        Etcd { members, guard: Guard::NotUsed }
    }

    #[test]
    fn a_majority_has_to_be_left() {
        assert!(spare("cp-0", &plain(&[true, true, true])).is_ok());
        let said = spare("cp-0", &plain(&[true, true, false])).unwrap_err();
        assert!(said.ends_with("1 of 3 etcd members would be left, and 2 are needed"), "{said}");
        assert!(spare("cp-2", &plain(&[true, true, false])).is_ok(), "its member is down already");
        assert!(spare("cp-0", &plain(&[true])).is_err(), "the only one");
        assert!(spare("cp-0", &plain(&[true, true])).is_err(), "two cannot lose one");
        assert!(spare("cp-0", &plain(&[])).unwrap_err().contains("unknown"));
        assert!(spare("other", &plain(&[true])).is_ok(), "no member of etcd is there");
    }

    #[test]
    fn b16_b17_b18_b19_openshift_guards_etcd_by_a_budget() {
        let with = |guard| spare("cp-0", &Etcd { members: Vec::new(), guard });
        assert!(with(Guard::Budget { allowed: 0, guard_up: Some(true) }).is_err());
        assert!(with(Guard::Budget { allowed: 0, guard_up: Some(false) }).is_ok());
        assert!(with(Guard::Budget { allowed: 0, guard_up: None }).is_ok());
        assert!(with(Guard::Budget { allowed: 1, guard_up: Some(true) }).is_ok());
        assert!(with(Guard::Budgets(0)).is_err());
        assert!(with(Guard::Budgets(2)).is_err());
    }
}
