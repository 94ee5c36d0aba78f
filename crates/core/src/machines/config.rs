//! The cluster's settings for virtual machines, with KubeVirt's defaults.

use super::beside::Upstream;
use super::strategy::Origin;

/// Effective settings. [`Config::default`] is what an empty KubeVirt object means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub eviction_strategy: Option<String>,
    /// Where the default strategy comes from.
    pub strategy_origin: Origin,
    pub drain_taint_key: String,
    pub parallel_per_cluster: u32,
    pub parallel_outbound_per_node: u32,
    pub completion_seconds_per_gib: i64,
    pub progress_timeout_seconds: i64,
    pub utility_volumes_seconds: i64,
    pub allow_auto_converge: bool,
    pub allow_post_copy: bool,
    pub allow_workload_disruption: Option<bool>,
    pub unsafe_override: bool,
    pub bandwidth_per_migration: String,
    pub max_downtime_ms: i64,
    /// What is known of KubeVirt's own control plane.
    pub upstream: Upstream,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eviction_strategy: None,
            strategy_origin: Origin::BuiltIn,
            drain_taint_key: "kubevirt.io/drain".into(),
            parallel_per_cluster: 5,
            parallel_outbound_per_node: 2,
            completion_seconds_per_gib: 150,
            progress_timeout_seconds: 150,
            utility_volumes_seconds: 150,
            allow_auto_converge: false,
            allow_post_copy: false,
            allow_workload_disruption: None,
            unsafe_override: false,
            bandwidth_per_migration: "0".into(),
            max_downtime_ms: 900,
            upstream: Upstream::default(),
        }
    }
}

impl Config {
    /// How many migrations from one node can run at the same time, if no other node has any.
    pub fn at_once_from_a_node(&self) -> usize {
        self.parallel_outbound_per_node.min(self.parallel_per_cluster) as usize
    }

    /// The strategy of an instance that names none.
    pub fn default_strategy(&self) -> &str {
        self.eviction_strategy.as_deref().unwrap_or("None")
    }
}
