//! The cluster's settings for virtual machines, with KubeVirt's defaults.

use serde::Serialize;

/// Effective settings. [`Config::default`] is what an empty KubeVirt object means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The eviction strategy of instances that name none; without one they are shut down.
    pub eviction_strategy: Option<String>,
    /// Where the default strategy comes from.
    pub strategy_origin: Origin,
    /// `migrations.nodeDrainTaintKey`: the taint with this key moves guests off a node.
    pub drain_taint_key: String,
    /// `migrations.parallelMigrationsPerCluster`.
    pub parallel_per_cluster: u32,
    /// `migrations.parallelOutboundMigrationsPerNode`: as many guests may leave one node at once.
    pub parallel_outbound_per_node: u32,
    /// `migrations.completionTimeoutPerGiB` in seconds; node agents get it with each migration.
    pub completion_seconds_per_gib: i64,
    /// `migrations.progressTimeout` in seconds; node agents get it with each migration.
    pub progress_timeout_seconds: i64,
    /// `migrations.utilityVolumesTimeout` in seconds; nothing is decided by it.
    pub utility_volumes_seconds: i64,
    /// `migrations.allowAutoConverge`: the agents may slow a guest down that changes its memory too fast.
    pub allow_auto_converge: bool,
    /// `migrations.allowPostCopy`: the agents may let the guest run at its target before all of it is there.
    pub allow_post_copy: bool,
    /// `migrations.allowWorkloadDisruption`; unset it follows `allow_post_copy`.
    pub allow_workload_disruption: Option<bool>,
    /// `migrations.unsafeMigrationOverride`: the agents may move what they would refuse to move.
    pub unsafe_override: bool,
    /// `migrations.bandwidthPerMigration` per second, as written; `0` is no limit.
    pub bandwidth_per_migration: String,
    /// `migrations.maxDowntimeMs` in milliseconds; nothing is decided by it.
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
    /// `spec.configuration.evictionStrategy` of the KubeVirt object.
    KubeVirt,
    /// The HyperConverged object.
    HyperConverged,
    /// HyperConverged says nothing, so the number of nodes decides.
    NodeCount,
    /// Nothing in the cluster says it.
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
