//! A PodDisruptionBudget.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use super::key::{Key, Owner, Uid};
use super::selector::Selector;
use super::table::object;
use super::version::Version;

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

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub key: Key,
    pub uid: Uid,
    pub version: Version,
    pub deleting: bool,
    /// By what it was made, if that looks after it.
    pub controller: Option<Owner>,
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

impl Budget {
    /// The instance whose guest it protects, by the name it has in the budget's namespace.
    pub fn protected_instance(&self) -> Option<&Owner> {
        self.controller.as_ref().filter(|owner| owner.kind == "VirtualMachineInstance")
    }
}

object!(Budget, Key, key, version);
