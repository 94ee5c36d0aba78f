//! The parts of API objects that are read. Unknown fields are skipped while parsing.

use std::collections::BTreeMap;

use evac_core::cluster::condition::Condition;
use evac_core::cluster::selector::{Selector, SelectorError};
use evac_core::cluster::written_time::WrittenTime;
use serde::{Deserialize, Deserializer};

/// Go writes empty lists and maps as `null`; read those as empty.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
    #[serde(deserialize_with = "nullable")]
    pub finalizers: Vec<String>,
    pub deletion_timestamp: Option<jiff::Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub creation_timestamp: Option<jiff::Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: Meta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    pub unschedulable: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<evac_core::Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<NodeCondition>,
    pub node_info: NodeInfo,
    #[serde(deserialize_with = "nullable")]
    pub volumes_attached: Vec<AttachedVolume>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub last_transition_time: Option<WrittenTime>,
    pub last_heartbeat_time: Option<jiff::Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    #[serde(rename = "bootID")]
    pub boot_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AttachedVolume {
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub volumes: Vec<Volume>,
    pub priority_class_name: Option<String>,
    pub termination_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub empty_dir: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    pub name: String,
    pub ready: bool,
    pub state: ContainerState,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub running: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Budget {
    pub metadata: Meta,
    pub spec: BudgetSpec,
    pub status: BudgetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    pub selector: Option<LabelSelector>,
    pub min_available: Option<IntOrString>,
    pub max_unavailable: Option<IntOrString>,
    pub unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    pub observed_generation: i64,
    pub disruptions_allowed: i32,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    pub expected_pods: i32,
    #[serde(deserialize_with = "nullable")]
    pub disrupted_pods: BTreeMap<String, Option<jiff::Timestamp>>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(deserialize_with = "nullable")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<Expression>,
}

impl LabelSelector {
    pub fn selector(&self) -> Result<Selector, SelectorError> {
        let labels = self.match_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let expressions = self.match_expressions.iter().cloned();
        Selector::from_parts(labels, expressions.map(|one| (one.key, one.operator, one.values)))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Expression {
    pub key: String,
    pub operator: String,
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub metadata: Meta,
    pub spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    pub holder_identity: Option<String>,
    pub renew_time: Option<jiff::Timestamp>,
    pub lease_duration_seconds: Option<i64>,
    pub lease_transitions: Option<i64>,
}

/// An object of which only the name matters.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Named {
    pub metadata: Meta,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct List<T> {
    #[serde(default)]
    pub metadata: ListMeta,
    #[serde(default = "Vec::new", deserialize_with = "nullable_items")]
    pub items: Vec<T>,
}

fn nullable_items<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    pub resource_version: String,
    #[serde(rename = "continue")]
    pub next: Option<String>,
}

/// A failure as the API describes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub kind: String,
    pub status: String,
    pub message: String,
    pub reason: String,
    pub code: u16,
    pub details: Option<StatusDetails>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    pub name: String,
    pub kind: String,
    #[serde(deserialize_with = "nullable")]
    pub causes: Vec<StatusCause>,
    pub retry_after_seconds: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    pub reason: String,
    pub message: String,
}
