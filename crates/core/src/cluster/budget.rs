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
    /// A number of pods.
    Count(i32),
    /// A share of the expected pods, as written: `50%`.
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
    /// Only while as many pods are healthy as the budget asks for; what applies where the budget names no policy.
    IfHealthyBudget,
    /// Always.
    AlwaysAllow,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Version,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// By what it was made, if that looks after it.
    pub controller: Option<Owner>,
    /// The pods of its namespace that it covers. A selector that is missing or does not parse covers none, as for the eviction API.
    pub selector: Selector,
    /// `spec.minAvailable`.
    pub min_available: Option<Amount>,
    /// `spec.maxUnavailable`.
    pub max_unavailable: Option<Amount>,
    /// `spec.unhealthyPodEvictionPolicy`.
    pub unhealthy: UnhealthyPolicy,
    /// `metadata.generation`: the server raises it with every change of the spec.
    pub generation: i64,
    /// `status.observedGeneration`: the numbers below are of this state of the spec.
    pub observed_generation: i64,
    /// `status.disruptionsAllowed`: how many evictions the server would grant now.
    pub allowed: i32,
    /// `status.currentHealthy`: covered pods that are ready.
    pub current_healthy: i32,
    /// `status.desiredHealthy`: how many of them have to be.
    pub desired_healthy: i32,
    /// `status.expectedPods`: how many there should be, by the scale of their owners.
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
