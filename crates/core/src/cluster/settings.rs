//! The cluster's settings for virtual machines, with KubeVirt's defaults.

use serde::Serialize;

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

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// The instance itself. The default of the cluster is written there when an instance is created.
    Instance,
    KubeVirt,
    HyperConverged,
    /// HyperConverged says nothing, so the number of nodes decides.
    NodeCount,
    #[default]
    BuiltIn,
}

/// What a cluster shows of KubeVirt's own control plane.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Upstream {
    /// What virt-operator wrote on the KubeVirt object. Empty where there is no such object, and on one of ours, which is for settings only.
    pub phase: String,
    /// The version that virt-operator has installed, if it says so.
    pub version: String,
    /// A virt-api that is not evac's starts and stops machines.
    pub virt_api: bool,
}
