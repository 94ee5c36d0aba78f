//! What every actor has in common: its name, what it may see, and what it may want.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::effects::Write;
use crate::mirror::Mirror;
use crate::objects::Key;

/// The parts of the cluster that decide. Declared in no particular order; the queue is first come, first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// Node objects of our kubelets.
    KubeletNode,
    /// Pods on our kubelets.
    KubeletPod,
    /// Leases of all our kubelets at once.
    Heartbeat,
    Scheduler,
    Deployment,
    ReplicaSet,
    ReplicationController,
    DaemonSet,
    StatefulSet,
    Job,
    Disruption,
    StaleDisruption,
    /// All nodes: who has gone silent, zones, eviction taints.
    NodeMonitor,
    /// One node: taints that follow from its conditions.
    NodeTaints,
    TaintEviction,
    PodGc,
    GarbageCollector,
    Namespace,
    ServiceAccount,
    Volume,
    /// Virtual machine instances on our nodes.
    Instance,
    /// What virtualization adds to the Node objects of our nodes.
    HandlerNode,
}

impl Actor {
    /// It compares the times that the API server writes with the time of day. All others measure by their own clock.
    pub fn goes_by_the_calendar(self) -> bool {
        matches!(self, Self::Disruption | Self::StaleDisruption)
    }

    /// A decision reads all objects of some set, and one change of many calls for it.
    pub fn looks_at_many(self) -> bool {
        matches!(
            self,
            Self::Deployment
                | Self::ReplicaSet
                | Self::ReplicationController
                | Self::DaemonSet
                | Self::StatefulSet
                | Self::Job
                | Self::Disruption
                | Self::NodeMonitor
        )
    }
}

/// What an actor sees when it decides.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub mirror: &'a Mirror,
    pub now: Timestamp,
    /// Answers to what the actor asked when it last looked at this key.
    pub answers: &'a Answers,
}

/// A question that the mirror cannot answer and the server must.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Does this object exist? By the kind named in an owner reference.
    Object { api_version: String, kind: String, key: Key },
    /// The scale of a controller of any kind.
    Scale { api_version: String, kind: String, key: Key },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Found(Value),
    NotFound,
    /// The kind exists but cannot be scaled: names the resource.
    NoScale(String),
    /// The server could not say.
    Failed(String),
}

pub type Answers = BTreeMap<Ask, Reply>;

/// What an actor wants.
#[derive(Debug, Default)]
pub struct Out {
    pub writes: Vec<Write>,
    /// Look at this key again at this time even if nothing changes.
    pub again: Option<Timestamp>,
    /// Others who have to look anew because of what was decided here.
    pub wakes: Vec<(Actor, Key)>,
    /// While there are questions, the writes of this round are not performed; the actor is called again.
    pub asks: Vec<Ask>,
}

impl Out {
    pub fn write(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub fn again_at(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |old| old.min(at)));
    }

    pub fn ask(&mut self, ask: Ask) {
        if !self.asks.contains(&ask) {
            self.asks.push(ask);
        }
    }
}
