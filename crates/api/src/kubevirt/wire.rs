//! The parts of KubeVirt's objects that are read. Unknown fields are skipped while parsing.

use std::collections::BTreeMap;

use evac_core::machines::{Condition, Request};
use serde::Deserialize;

use crate::wire::{LabelSelector, Meta, nullable};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VirtualMachine {
    pub metadata: Meta,
    pub spec: VirtualMachineSpec,
    pub status: VirtualMachineStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSpec {
    pub running: Option<bool>,
    pub run_strategy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub template: MachineTemplate,
}

/// Of the template only what its instances are told to do on evictions.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct MachineTemplate {
    #[serde(deserialize_with = "nullable")]
    pub spec: MachineTemplateSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineTemplateSpec {
    pub eviction_strategy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineStatus {
    pub created: bool,
    pub ready: bool,
    pub printable_status: String,
    pub run_strategy: String,
    #[serde(deserialize_with = "nullable")]
    pub state_change_requests: Vec<Request>,
    pub start_failure: Option<StartFailure>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartFailure {
    pub consecutive_fail_count: i64,
    #[serde(rename = "lastFailedVMIUID")]
    pub last_failed_vmi_uid: String,
    pub retry_after_timestamp: Option<jiff::Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VirtualMachineInstance {
    pub metadata: Meta,
    pub spec: InstanceSpec,
    pub status: InstanceStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceSpec {
    pub eviction_strategy: Option<String>,
    pub termination_grace_period_seconds: Option<i64>,
    pub domain: Domain,
    /// Whether it has a node selector.
    #[serde(deserialize_with = "holds_something")]
    pub node_selector: bool,
    #[serde(deserialize_with = "nullable")]
    pub affinity: InstanceAffinity,
}

/// Of a map only whether there is anything in it.
fn holds_something<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let map = Option::<BTreeMap<String, String>>::deserialize(deserializer)?;
    Ok(map.is_some_and(|map| !map.is_empty()))
}

/// Of the affinity whether it is about nodes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceAffinity {
    pub node_affinity: Option<serde::de::IgnoredAny>,
}

/// Of the hardware the model of the CPU, and how much memory there is, in the two places where that may be written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Domain {
    pub cpu: Option<Cpu>,
    pub memory: Option<GuestMemory>,
    pub resources: DomainResources,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Cpu {
    pub model: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct GuestMemory {
    pub guest: Option<Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DomainResources {
    #[serde(deserialize_with = "nullable")]
    pub requests: BTreeMap<String, Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryStatus {
    pub guest_current: Option<Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStatus {
    pub phase: String,
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    pub phase_transition_timestamps: Vec<PhaseTime>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub active_pods: BTreeMap<String, String>,
    pub evacuation_node_name: String,
    pub memory: Option<MemoryStatus>,
    #[serde(deserialize_with = "nullable")]
    pub interfaces: Vec<Interface>,
    pub migration_state: Option<MigrationState>,
    #[serde(deserialize_with = "nullable")]
    pub changed_block_tracking: ChangedBlockTracking,
}

/// Of the tracking of changed blocks the backup that was last made by it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedBlockTracking {
    #[serde(deserialize_with = "nullable")]
    pub backup_status: BackupStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupStatus {
    pub backup_name: String,
    pub end_timestamp: Option<String>,
    pub completed: bool,
    pub failed: bool,
}

impl BackupStatus {
    /// The backup, if it is under way.
    pub fn under_way(self) -> Option<String> {
        let over = self.completed || self.failed || self.end_timestamp.is_some();
        Some(self.backup_name).filter(|name| !over && !name.is_empty())
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    pub ip_address: String,
    #[serde(deserialize_with = "nullable")]
    pub ip_addresses: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PhaseTime {
    pub phase: String,
    pub phase_transition_timestamp: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationState {
    pub migration_uid: String,
    pub source_node: String,
    pub source_pod: String,
    pub target_node: String,
    pub target_pod: String,
    pub target_node_address: String,
    pub start_timestamp: Option<String>,
    pub end_timestamp: Option<String>,
    pub completed: bool,
    pub failed: bool,
    pub abort_requested: bool,
    pub failure_reason: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    pub metadata: Meta,
    pub spec: ReplicaSetSpec,
    pub status: ReplicaSetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaSetSpec {
    pub replicas: Option<i64>,
    pub paused: bool,
    pub selector: Option<LabelSelector>,
    pub template: Option<Template>,
}

/// Of a template only what it is called and labelled.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Template {
    pub metadata: TemplateMeta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMeta {
    pub name: String,
    pub generate_name: String,
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    pub replicas: i64,
    pub ready_replicas: i64,
    pub label_selector: String,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Migration {
    pub metadata: Meta,
    pub spec: MigrationSpec,
    pub status: MigrationStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct MigrationSpec {
    #[serde(rename = "vmiName")]
    pub vmi_name: String,
    pub priority: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationStatus {
    pub phase: String,
    #[serde(deserialize_with = "nullable")]
    pub phase_transition_timestamps: Vec<PhaseTime>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    pub migration_state: Option<MigrationState>,
}

/// The KubeVirt object: what of its configuration is used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct KubeVirt {
    pub metadata: Meta,
    pub spec: KubeVirtSpec,
    pub status: KubeVirtStatus,
}

/// What virt-operator says of its work.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtStatus {
    pub phase: String,
    pub observed_kube_virt_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct KubeVirtSpec {
    pub configuration: Configuration,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    pub eviction_strategy: Option<String>,
    pub migrations: Option<Migrations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Migrations {
    pub node_drain_taint_key: Option<String>,
    pub parallel_migrations_per_cluster: Option<i64>,
    pub parallel_outbound_migrations_per_node: Option<i64>,
    #[serde(rename = "completionTimeoutPerGiB")]
    pub completion_timeout_per_gib: Option<i64>,
    pub progress_timeout: Option<i64>,
    pub utility_volumes_timeout: Option<i64>,
    pub allow_auto_converge: Option<bool>,
    pub allow_post_copy: Option<bool>,
    pub allow_workload_disruption: Option<bool>,
    pub unsafe_migration_override: Option<bool>,
    pub bandwidth_per_migration: Option<Quantity>,
    pub max_downtime_ms: Option<i64>,
}

/// A quantity, written as text or as a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    Text(String),
    Number(serde_json::Number),
}

impl Quantity {
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
        }
    }

    pub fn bytes(&self) -> Option<u64> {
        crate::quantity::bytes(&self.text())
    }
}

/// A ConfigMap of which the entries matter.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    pub metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    pub data: BTreeMap<String, String>,
}
