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
    Always,
    RerunOnFailure,
    Manual,
    Halted,
    Once,
    WaitAsReceiver,
}

impl RunStrategy {
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
    Strategy(RunStrategy),
    /// Neither, both or an unknown word: nothing is done.
    Unclear,
}

impl Power {
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
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
}

impl Request {
    pub fn start(paused: bool) -> Self {
        let data = if paused { [("paused".to_owned(), "true".to_owned())].into() } else { BTreeMap::new() };
        Self { action: "Start".into(), uid: None, data }
    }

    pub fn stop(uid: &Uid) -> Self {
        Self { action: "Stop".into(), uid: Some(uid.to_string()), data: BTreeMap::new() }
    }

    pub fn is_start(&self) -> bool {
        self.action == "Start"
    }

    pub fn is_stop(&self) -> bool {
        self.action == "Stop"
    }

    pub fn wants_pause(&self) -> bool {
        self.data.get("paused").is_some_and(|value| value == "true")
    }
}

/// How often starting it failed in a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartFailure {
    pub count: i64,
    pub last_uid: String,
    pub retry_after: Option<Timestamp>,
}

/// A VirtualMachine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub key: Key,
    pub uid: Uid,
    pub version: Version,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    /// Deleted with its instance left behind.
    pub orphaning: bool,
    pub finalizers: Texts,
    pub power: Power,
    pub status: MachineStatus,
    /// The eviction strategy in its template.
    pub template_strategy: Option<String>,
    /// The instance for which its node in a tenant cluster was cordoned; see [`crate::tenants`].
    pub tenant_cordoned: Option<Uid>,
}

/// What is written about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineStatus {
    pub created: bool,
    pub ready: bool,
    pub printable: String,
    pub strategy: String,
    pub requests: Vec<Request>,
    pub start_failure: Option<StartFailure>,
    pub conditions: Vec<Condition>,
}

object!(Machine, Key, key, version, |object| object.deleting && object.finalizers.is_empty());
