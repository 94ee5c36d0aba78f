//! Facts: what was observed in the cluster, reduced to what decisions need.
//!
//! A fact is made from an API object at the border and never looks back at it. Each kind has one struct; a [`Fact`]
//! says that such a thing was seen or is gone.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::selector::Selector;

/// Namespace and name of a namespaced object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The identity of one incarnation of an object: a pod re-created under its old name has another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(pub String);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

impl Taint {
    /// Kubernetes treats key and effect as a taint's identity.
    pub fn same_as(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) if !value.is_empty() => write!(f, "{}={}:{}", self.key, value, self.effect),
            _ => write!(f, "{}:{}", self.key, self.effect),
        }
    }
}

/// What a node says about its own health. `Silent` means it never reported a Ready condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    Ready,
    NotReady,
    Unknown,
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub uid: Uid,
    pub resource_version: String,
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
    pub labels: BTreeMap<String, String>,
    pub health: Health,
    pub health_since: Option<Timestamp>,
    /// The text of our ownership annotation, read by [`crate::ownership`].
    pub mark: Option<crate::ownership::MarkState>,
    pub deleting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl PodPhase {
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A deletion that was asked for. The API's timestamp lies at the end of the grace period, so both are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    pub ends: Timestamp,
    pub grace_seconds: i64,
}

impl Deletion {
    pub fn requested(&self) -> Timestamp {
        self.ends.checked_sub(jiff::SignedDuration::from_secs(self.grace_seconds)).unwrap_or(self.ends)
    }
}

/// A controlling owner reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: Uid,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Which part of a virtual machine a pod is, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VmRole {
    None,
    /// Runs the guest. Holds the name of the virtual machine instance when the pod says it.
    Launcher(Option<String>),
    /// Holds a volume that was plugged into a running guest; lives and dies with its launcher.
    Hotplug,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub key: Key,
    pub uid: Uid,
    pub node: Option<String>,
    pub phase: PodPhase,
    pub ready: bool,
    pub deletion: Option<Deletion>,
    pub controller: Option<Owner>,
    pub mirror: bool,
    pub empty_dir: bool,
    pub labels: BTreeMap<String, String>,
    pub finalizers: Vec<String>,
    pub vm: VmRole,
    pub priority_class: Option<String>,
    pub grace_seconds: Option<i64>,
    pub created: Option<Timestamp>,
}

impl Pod {
    pub fn daemon_set(&self) -> Option<Key> {
        let owner = self.controller.as_ref()?;
        (owner.kind == "DaemonSet" && owner.api_version == "apps/v1")
            .then(|| Key::new(self.key.namespace.clone(), owner.name.clone()))
    }

    /// Pods that keep the cluster itself working: they should leave after the pods that may need them.
    pub fn is_critical(&self) -> bool {
        self.priority_class.as_deref().is_some_and(|class| class.starts_with("system-"))
            || self.labels.get("app.kubernetes.io/part-of").is_some_and(|part| part == "kubevirt")
            || self.labels.get("kubevirt.io").is_some_and(|part| {
                matches!(part.as_str(), "virt-api" | "virt-controller" | "virt-handler" | "virt-operator")
            })
    }
}

/// A number of pods or a share of them, as budgets state it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amount {
    Count(i32),
    Percent(String),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(text) => f.write_str(text),
        }
    }
}

/// Whether a pod that is not ready may leave without being charged to its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnhealthyPolicy {
    IfHealthyBudget,
    AlwaysAllow,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub key: Key,
    pub selector: Selector,
    pub min_available: Option<Amount>,
    pub max_unavailable: Option<Amount>,
    pub unhealthy: UnhealthyPolicy,
    pub generation: i64,
    pub observed_generation: i64,
    pub allowed: i32,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    pub expected: i32,
    /// Pods whose eviction was granted but whose deletion the budget's controller has not seen yet, with the time of
    /// the grant.
    pub disrupted: BTreeMap<String, Timestamp>,
    /// The disruption controller could not compute this budget, and says why.
    pub sync_failed: Option<String>,
}

/// Whether an owner is there, as far as we could find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existence {
    Found,
    Gone(String),
    Unreadable(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub key: Key,
    pub holder: String,
    pub renewed: Option<Timestamp>,
    pub duration_seconds: i64,
    pub resource_version: String,
    /// How often the holder changed.
    pub transitions: i64,
    /// When somebody last asked whether the holder is still at work, by the clock of the asker.
    pub asked: Option<Timestamp>,
    /// The last question that was answered. Only holders that watch their lease have this, and have it from the beginning.
    pub answered: Option<Timestamp>,
    /// What the holder noted about the node before it wrote on it, where only those with the right to write leases can change it.
    pub record: Option<Box<crate::record::Record>>,
}

impl Lease {
    /// The question that a holder who answers has not answered yet.
    pub fn open_question(&self) -> Option<Timestamp> {
        self.asked.filter(|asked| self.answered.is_some_and(|answered| answered != *asked))
    }

    /// When it lapses by the times written in it.
    pub fn ends(&self) -> Option<Timestamp> {
        self.renewed?.checked_add(SignedDuration::from_secs(self.duration_seconds)).ok()
    }

    /// When nobody has to respect it any more, as far as that can be told from outside: its holder's clock may be late, and a lease must not be
    /// shorter for that. One whose holder's clock is ahead lasts longer.
    pub fn protects_until(&self) -> Option<Timestamp> {
        self.ends()?.checked_add(CLOCK_SKEW).ok()
    }

    /// Whether others than its holder have to respect it.
    pub fn protects(&self, now: Timestamp) -> bool {
        let held = !self.holder.is_empty() && self.renewed.is_some();
        // A moment that cannot be computed is too far in the future.
        held && self.protects_until().is_none_or(|until| now < until)
    }
}

/// By how much the clocks of two machines of a cluster may differ. Further apart than that, its tokens and certificates do not work either.
pub const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    Node(Box<Node>),
    NodeGone(String),
    Pod(Box<Pod>),
    /// Gone is a statement about one incarnation, never about a name.
    PodGone(Key, Uid),
    Budget(Box<Budget>),
    BudgetGone(Key),
    DaemonSet(Key, Existence),
    NamespaceTerminating(String),
    Lease(Lease),
    LeaseGone(Key),
    /// Something around virtual machines.
    Machine(crate::machines::Seen),
    /// How far guests have been copied, by the agent of the node they leave.
    Transfers(BTreeMap<Key, crate::transfer::Sample>),
}
