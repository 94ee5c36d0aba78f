//! A VirtualMachine.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::key::{Key, Uid};
use super::table::object;
use super::text::Texts;
use super::version::Version;

/// When a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStrategy {
    /// It always runs: what ends is started again.
    Always,
    /// It runs until its guest ends in good order; after a failure it is started again.
    RerunOnFailure,
    /// Only requests start and stop it.
    Manual,
    /// It is off.
    Halted,
    /// It is started once and not again.
    Once,
    /// It waits for a guest from another namespace or cluster.
    WaitAsReceiver,
}

impl RunStrategy {
    /// Reads `spec.runStrategy`; `None` for a word that is not known.
    pub fn of(text: &str) -> Option<Self> {
        Some(match text {
            "Always" => Self::Always,
            "RerunOnFailure" => Self::RerunOnFailure,
            "Manual" => Self::Manual,
            "Halted" => Self::Halted,
            "Once" => Self::Once,
            "WaitAsReceiver" => Self::WaitAsReceiver,
            _ => return None,
        })
    }
}

impl fmt::Display for RunStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How a machine says whether it should run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// The old way: `spec.running`.
    Running(bool),
    /// `spec.runStrategy`.
    Strategy(RunStrategy),
    /// Neither, both or an unknown word: nothing is done.
    Unclear,
}

impl Power {
    /// The run strategy that this amounts to; `None` where it is unclear.
    pub fn strategy(self) -> Option<RunStrategy> {
        match self {
            Self::Running(true) => Some(RunStrategy::Always),
            Self::Running(false) => Some(RunStrategy::Halted),
            Self::Strategy(strategy) => Some(strategy),
            Self::Unclear => None,
        }
    }
}

/// An entry of `status.stateChangeRequests`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// `Start` or `Stop`.
    pub action: String,
    /// The incarnation of the instance that a stop is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Further wishes: `paused` of a start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
}

impl Request {
    /// The request to start it, with the guest paused on request.
    pub fn start(paused: bool) -> Self {
        let data = if paused { [("paused".to_owned(), "true".to_owned())].into() } else { BTreeMap::new() };
        Self { action: "Start".into(), uid: None, data }
    }

    /// The request to stop this incarnation of its instance.
    pub fn stop(uid: &Uid) -> Self {
        Self { action: "Stop".into(), uid: Some(uid.to_string()), data: BTreeMap::new() }
    }

    /// Whether it asks for a start.
    pub fn is_start(&self) -> bool {
        self.action == "Start"
    }

    /// Whether it asks for a stop.
    pub fn is_stop(&self) -> bool {
        self.action == "Stop"
    }

    /// Whether the guest is to be started paused.
    pub fn wants_pause(&self) -> bool {
        self.data.get("paused").is_some_and(|value| value == "true")
    }
}

/// How often starting it failed in a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartFailure {
    /// `consecutiveFailCount`.
    pub count: i64,
    /// The instance that failed last, so that none is counted twice.
    pub last_uid: String,
    /// Before this it is not started again.
    pub retry_after: Option<Timestamp>,
}

/// A VirtualMachine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Namespace and name; its instance has the same.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`, on which changes are written.
    pub version: Version,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Deleted with its instance left behind.
    pub orphaning: bool,
    /// `metadata.finalizers`, in the order written.
    pub finalizers: Texts,
    /// When it should run.
    pub power: Power,
    /// What the controller wrote on it last.
    pub status: MachineStatus,
    /// The eviction strategy in its template.
    pub template_strategy: Option<String>,
    /// The instance for which its node in a tenant cluster was cordoned; see [`crate::tenants`].
    pub tenant_cordoned: Option<Uid>,
}

/// What is written about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineStatus {
    /// There is an instance of it.
    pub created: bool,
    /// Its instance is ready.
    pub ready: bool,
    /// `status.printableStatus`: the word that `kubectl get vm` shows.
    pub printable: String,
    /// `status.runStrategy`: the strategy that the controller saw last.
    pub strategy: String,
    /// `status.stateChangeRequests` that wait, the first one first.
    pub requests: Vec<Request>,
    /// `status.startFailure`; `None` when the last start did not fail.
    pub start_failure: Option<StartFailure>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
}

object!(Machine, Key, key, version, |object| object.deleting && object.finalizers.is_empty());
