//! One node with its lease, the server that compares versions, and the drains that work on the node.

use evac_api::wire;
use evac_core::action::LeaseOf;
use evac_core::cluster::fact::{Lease, Node, Uid};
use evac_core::cluster::index::{Index, ListedAt, VmVisibility};
use evac_core::cluster::version::Version;
use evac_core::drain::action::Own;
use evac_core::drain::claim::{self, Holder};
use evac_core::drain::ownership::MarkState;
use evac_core::drain::run::NodePhase;
use evac_core::{Action, Fact, Outcome, Pod, Policy, Run, step};
use jiff::Timestamp;
use serde_json::json;

use super::at;

pub const NODE: &str = "n";

/// Milliseconds since the history began, as a time.
pub fn time(millis: i64) -> Timestamp {
    at(0).checked_add(jiff::SignedDuration::from_millis(millis)).unwrap_or(Timestamp::MAX)
}

/// What the server does not compare where a flaw is planted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blind {
    pub to_node: bool,
    pub to_lease: bool,
}

/// What the server has.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub node: Node,
    pub lease: Option<Lease>,
    /// How often the node and the lease were written: each counts for itself, so that histories that differ in nothing else meet.
    node_versions: u32,
    lease_versions: u32,
}

impl Cluster {
    pub fn new() -> Self {
        let node = json!({"metadata": {"name": NODE, "uid": "node", "resourceVersion": "1"}});
        let node = serde_json::from_value::<wire::Node>(node).map(Node::from);
        // The text above is a node.
        let Ok(node) = node else { unreachable!("a node that cannot be read") };
        Self { node, lease: None, node_versions: 1, lease_versions: 0 }
    }

    pub fn node_version(&mut self) -> Version {
        self.node_versions += 1;
        self.node_versions.to_string().into()
    }

    fn lease_version(&mut self) -> Version {
        self.lease_versions += 1;
        self.lease_versions.to_string().into()
    }

    /// Who marked the node.
    pub fn marked_by(&self) -> Option<&str> {
        match &self.node.mark {
            Some(MarkState::Valid(mark)) => Some(&mark.owner),
            _ => None,
        }
    }

    /// Who holds the lease.
    pub fn holder(&self) -> Option<Holder> {
        let holder = &self.lease.as_ref()?.holder;
        (!holder.is_empty()).then(|| Holder::parse(holder))
    }

    /// Carries out what a drain asks for, as the server would.
    pub fn carry(&mut self, action: &Action, blind: Blind) -> (Outcome, Vec<Fact>) {
        let conflict = || Outcome::Conflict { message: "the object has been modified".into() };
        match action {
            Action::Cordon { resource_version, mark, taints, .. } => {
                if *resource_version != self.node.resource_version && !blind.to_node {
                    return (conflict(), Vec::new());
                }
                self.node.resource_version = self.node_version();
                self.node.unschedulable = true;
                self.node.mark = Some(MarkState::Valid(mark.clone()));
                if let Some(taints) = taints {
                    self.node.taints.clone_from(taints);
                }
                (Outcome::Done, vec![self.node()])
            }
            Action::Hold { lease: LeaseOf::Drain, .. } => self.hold(action, blind),
            Action::Release { resource_version, keep, .. } => {
                let Some(lease) = &mut self.lease else { return (Outcome::Gone, Vec::new()) };
                let named = !resource_version.is_empty();
                if named && lease.resource_version != *resource_version && !blind.to_lease {
                    let now = self.lease();
                    return (conflict(), vec![now]);
                }
                if *keep && named {
                    lease.holder.clear();
                    (lease.asked, lease.answered) = (None, None);
                    let version = self.lease_version();
                    self.lease.iter_mut().for_each(|lease| lease.resource_version = version.clone());
                } else {
                    self.lease = None;
                }
                (Outcome::Done, Vec::new())
            }
            Action::Own(Own::Ask { at, .. }) => {
                let version = self.lease_version();
                let Some(lease) = &mut self.lease else { return (Outcome::Gone, vec![self.lease()]) };
                (lease.asked, lease.resource_version) = (Some(*at), version);
                (Outcome::Done, Vec::new())
            }
            // A reading.
            _ => (Outcome::Done, vec![self.node()]),
        }
    }

    fn hold(&mut self, action: &Action, blind: Blind) -> (Outcome, Vec<Fact>) {
        let Action::Hold { holder, at, seconds, answered, over, record, .. } = action else {
            return (Outcome::Done, Vec::new());
        };
        let conflict = Outcome::Conflict { message: "the lease has been modified".into() };
        let known = match (&self.lease, over) {
            (None, Some(_)) => return (Outcome::Gone, vec![self.lease()]),
            (Some(_), None) => return (conflict, vec![self.lease()]),
            (Some(there), Some(over))
                if there.resource_version != over.resource_version && !blind.to_lease =>
            {
                return (conflict, vec![self.lease()]);
            }
            (there, _) => there.clone(),
        };
        let version = self.lease_version();
        self.lease = Some(Lease {
            key: claim::key(NODE),
            uid: known
                .as_ref()
                .map_or_else(|| Uid::from(format!("lease-{version}")), |known| known.uid.clone()),
            holder: holder.clone(),
            renewed: Some(*at),
            duration_seconds: *seconds as i64,
            resource_version: version,
            transitions: 0,
            asked: known.as_ref().and_then(|known| known.asked),
            answered: *answered,
            record: record.clone().or_else(|| known.and_then(|known| known.record)),
        });
        (Outcome::Done, vec![self.lease()])
    }

    pub fn node(&self) -> Fact {
        Fact::Node(Box::new(self.node.clone()))
    }

    pub fn lease(&self) -> Fact {
        let gone = || Fact::LeaseAbsent(claim::key(NODE));
        self.lease.clone().map_or_else(gone, |lease| Fact::Lease(Box::new(lease)))
    }
}

/// A run of `evac drain`, with what it has seen.
#[derive(Debug, Clone)]
pub struct Worker {
    pub owner: &'static str,
    pub number: u8,
    pub alive: bool,
    pub run: Run,
    pub node: Option<Node>,
    pub lease: Option<Lease>,
    /// What it has sent and not been answered.
    pub sent: Vec<Action>,
    pub look_again: Option<Timestamp>,
    /// Something has befallen it: a request of it was lost or late, or it stood still.
    pub suffered: bool,
    pub frozen: bool,
}

impl Worker {
    /// One that has read what there is and not decided yet.
    pub fn begin(owner: &'static str, number: u8, cluster: &Cluster) -> Self {
        let mut run = Run::new(owner, Vec::new(), [NODE.to_owned()]).claiming(format!("box:{number}"));
        run.answer(true);
        Self {
            owner,
            number,
            alive: true,
            run,
            node: Some(cluster.node.clone()),
            lease: cluster.lease.clone(),
            sent: Vec::new(),
            look_again: None,
            suffered: false,
            frozen: false,
        }
    }

    pub fn holder(&self) -> Holder {
        Holder { owner: self.owner.to_owned(), instance: format!("box:{}", self.number) }
    }

    /// It is awake and knows how things are.
    pub fn knows(&self, cluster: &Cluster) -> bool {
        self.node.as_ref() == Some(&cluster.node) && self.lease == cluster.lease
    }

    /// Pods leave the node because of it.
    pub fn works(&self) -> bool {
        let phase = self.run.nodes.first().map(|node| &node.phase);
        self.alive && matches!(phase, Some(NodePhase::Draining(_) | NodePhase::Proving { .. }))
    }

    pub fn is_over(&self) -> bool {
        !self.alive || self.run.is_over()
    }

    /// What it knows, with the lease as it is shown to it.
    fn index(&self, lease: Option<Lease>) -> Index {
        let mut index = Index::new();
        index.reset_nodes(self.node.iter().cloned().collect(), &ListedAt::default());
        index.reset_pods(NODE, stuck().into_iter().collect(), &ListedAt::default());
        index.set_vm_visibility(VmVisibility::NotInstalled);
        if let Some(lease) = lease {
            index.apply(Fact::Lease(Box::new(lease)));
        }
        index
    }

    /// One look at everything it knows; what it wants is sent.
    pub fn decide(&mut self, now: Timestamp, show: impl Fn(&Self) -> Option<Lease>) {
        let index = self.index(show(self));
        let next = step(&index, &Policy::default(), &mut self.run, now);
        self.sent.extend(next.actions);
        self.look_again = next.look_again.filter(|_| !self.run.is_over());
    }

    /// Takes in an answer.
    pub fn hear(&mut self, action: &Action, outcome: Outcome, learned: Vec<Fact>, now: Timestamp) {
        for fact in learned {
            match fact {
                Fact::Node(node) => self.node = Some(*node),
                Fact::Lease(lease) => self.lease = Some(*lease),
                Fact::LeaseAbsent(_) => self.lease = None,
                _ => {}
            }
        }
        let index = self.index(self.lease.clone());
        self.run.record(&index, action, outcome, now);
    }
}

/// A pod that is being deleted and does not go, so that nobody comes to the end of emptying the node.
fn stuck() -> Option<Pod> {
    let pod = json!({
        "metadata": {
            "name": "web", "namespace": "d", "uid": "web", "resourceVersion": "1",
            "deletionTimestamp": "2027-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1,
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true}
            ],
        },
        "spec": {"nodeName": NODE},
        "status": {"phase": "Running"},
    });
    serde_json::from_value::<wire::Pod>(pod).ok().map(Pod::from)
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Carried,
    RequestLost,
    AnswerLost,
    /// It is carried out some time after its sender gave it up.
    Late,
    /// It is carried out, and once more some time later.
    Twice,
}

/// What can become of a request as long as faults are left, and when there are none.
pub fn fates(faults: u8) -> &'static [Fate] {
    match faults {
        0 => &[Fate::Carried],
        _ => &[Fate::Carried, Fate::RequestLost, Fate::AnswerLost, Fate::Late, Fate::Twice],
    }
}

impl Fate {
    pub fn arrives(self) -> bool {
        matches!(self, Self::Carried | Self::AnswerLost | Self::Twice)
    }

    /// A copy of the request is still on its way.
    pub fn strays(self) -> bool {
        matches!(self, Self::Late | Self::Twice)
    }

    /// What the sender hears in place of the answer.
    pub fn in_place_of(self, outcome: Outcome) -> Outcome {
        match self {
            Self::Carried | Self::Twice => outcome,
            Self::RequestLost => Outcome::Transport { message: "connection refused".into() },
            Self::AnswerLost | Self::Late => Outcome::Unknown { message: "no answer".into() },
        }
    }

    pub fn is_fault(self) -> bool {
        self != Self::Carried
    }
}
