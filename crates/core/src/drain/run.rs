//! The state of one drain, of one or many nodes: [`NodeRun`] for each node, a `PodRun` for each pod that has to leave.
//!
//! Only [`crate::drain::step`] and [`Run::record`] move it. Nothing here must survive a crash: the mark on the node and the pods
//! themselves say all that a new run has to know.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::action::{Asker, Outcome};
use crate::cluster::fact::Uid;
use crate::cluster::index::Index;
use crate::cluster::subject::Kind;
use crate::drain::action::{Action, Own};
pub use crate::drain::end::{Blocker, End, Left};
use crate::drain::migrations::abort::Aborts;
pub use crate::drain::node::{NodePhase, NodeRun};
use crate::drain::outlook::Telling;
use crate::drain::ownership::Attire;
use crate::drain::pod::{PodRun, PodState};
use crate::drain::transfer::measure::{Meter, Unreadable};

/// One drain: of the nodes of one `evac drain`, or of all nodes under maintenance.
#[derive(Debug, Clone)]
pub struct Run {
    /// The owner in the marks that it writes.
    pub owner: String,
    /// Which run of this owner it is; without it no signs of life are given.
    pub(crate) instance: Option<String>,
    /// Leases are watched, so questions on ours are answered, and answers of others are heard.
    pub(crate) answers: bool,
    /// In the order in which they were named or admitted.
    pub nodes: Vec<NodeRun>,
    pub(crate) pods: BTreeMap<Uid, PodRun>,
    pub(crate) stopping: bool,
    pub(crate) never_since: BTreeMap<String, Timestamp>,
    pub(crate) claim_refusal_told: bool,
    pub(crate) meters: BTreeMap<String, Meter>,
    pub(crate) unreadable: Unreadable,
    pub(crate) aborts: Aborts,
    /// What was foretold of each node.
    pub(crate) tellings: BTreeMap<String, Telling>,
}

impl Run {
    /// A drain that has not begun. `options` go into the marks; without [`Run::claiming`] it holds no leases.
    pub fn new(
        owner: impl Into<String>,
        options: Vec<String>,
        nodes: impl IntoIterator<Item = String>,
    ) -> Self {
        let attire = Attire { options, ..Attire::default() };
        let nodes = nodes.into_iter().map(|name| NodeRun::new(name, attire.clone())).collect();
        Self {
            owner: owner.into(),
            instance: None,
            answers: false,
            nodes,
            pods: BTreeMap::new(),
            stopping: false,
            never_since: BTreeMap::new(),
            claim_refusal_told: false,
            meters: BTreeMap::new(),
            unreadable: Unreadable::default(),
            aborts: Aborts::default(),
            tellings: BTreeMap::new(),
        }
    }

    /// One more node; one that is known already begins anew.
    pub fn admit(&mut self, node: String, attire: Attire) {
        self.forget(&node);
        self.nodes.push(NodeRun::new(node, attire));
    }

    /// Nothing is done about this node any more. Answers that are still on the way are no news then.
    pub fn forget(&mut self, node: &str) {
        self.nodes.retain(|known| known.name != node);
        self.pods.retain(|_, pod| pod.node != node);
        self.never_since.remove(node);
        self.meters.remove(node);
        self.tellings.remove(node);
    }

    /// From now on nothing new is started.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// [`Run::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// All nodes have ended, their leases are given back and the migrations that were called off are answered.
    pub fn is_over(&self) -> bool {
        // Our own claims are given back before we go, and what we called off is answered.
        let ended = |node: &NodeRun| node.end().is_some() && node.claim.is_settled();
        self.nodes.iter().all(ended) && self.aborts.is_settled()
    }

    /// Evictions, deletions and migrations that were sent and are not answered yet.
    pub fn requests_under_way(&self) -> usize {
        self.pods.values().filter(|pod| pod.state == PodState::InFlight).count()
    }

    pub(crate) fn node_mut(&mut self, name: &str) -> Option<&mut NodeRun> {
        self.nodes.iter_mut().find(|node| node.name == name)
    }

    /// Takes in what became of an action. Facts that came with the answer are applied to the index before this.
    pub fn record(&mut self, index: &Index, action: &Action, outcome: Outcome, now: Timestamp) {
        let seen = index.revision();
        match action {
            Action::Cordon { node, .. } => self.on_node(node, |node| node.record_cordon(&outcome, now)),
            Action::Own(Own::Prove { node }) => self.on_node(node, |node| node.record_reading(&outcome, now)),
            Action::Own(Own::LookUp { node }) => {
                let owner = self.owner.clone();
                self.on_node(node, |node| node.record_look_up(index, &owner, &outcome));
            }
            Action::Hold { node, .. } | Action::Release { node, .. } | Action::Own(Own::Ask { node, .. }) => {
                self.record_claim(index, node, action, &outcome, now);
            }
            Action::Migrate { asker: Asker::Drain { pod, .. }, .. } => {
                self.on_pod(pod, |pod| pod.record_migration(outcome, seen, now))
            }
            Action::Delete { object, .. } if object.kind == Kind::Migration => {
                self.record_abort(&object.uid, &outcome, now);
            }
            Action::Evict { object, .. } | Action::Delete { object, .. } => {
                self.on_pod(&object.uid, |pod| pod.record_eviction(outcome, seen, now));
            }
            Action::Own(Own::ReadTransfers { node, uid, .. }) => {
                self.record_measurement(node, uid, &outcome, now)
            }
            // What comes of the others is seen in the cluster.
            _ => {}
        }
    }

    fn on_node(&mut self, name: &str, record: impl FnOnce(&mut NodeRun)) {
        if let Some(node) = self.node_mut(name) {
            record(node);
        }
    }

    fn on_pod(&mut self, uid: &Uid, record: impl FnOnce(&mut PodRun)) {
        if let Some(pod) = self.pods.get_mut(uid) {
            record(pod);
        }
    }

    /// Nodes on which something of this run may be: a cordon was sent, or the drain of it goes on.
    pub fn touched(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter(|node| node.is_touched()).map(|node| node.name.as_str())
    }
}

pub(crate) fn after(now: Timestamp, pause: Duration) -> Timestamp {
    SignedDuration::try_from(pause)
        .ok()
        .and_then(|pause| now.checked_add(pause).ok())
        .unwrap_or(Timestamp::MAX)
}

pub(crate) fn failure_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Budget { message, .. }
        | Outcome::Webhook { message, .. }
        | Outcome::ManyBudgets { message }
        | Outcome::BudgetBroken { message }
        | Outcome::Forbidden { message }
        | Outcome::Conflict { message }
        | Outcome::Unknown { message }
        | Outcome::Transport { message }
        | Outcome::Invalid { message, .. } => message.clone(),
        Outcome::Server { status, message } => format!("{status}: {message}"),
        Outcome::Throttled { .. } => "too many requests".into(),
        Outcome::NamespaceTerminating => "the namespace is being deleted".into(),
        Outcome::Unsupported => "the server does not know this request".into(),
        Outcome::Done => "done".into(),
        Outcome::Gone => "not found".into(),
        Outcome::Replaced => "replaced by another object of the same name".into(),
    }
}
