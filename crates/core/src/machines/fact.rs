//! What is known of virtual machines, reduced to what decisions need.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::guard::Guard;
use crate::fact::{Key, Owner, PodPhase, Taint, Uid};
use crate::selector::Selector;
use crate::taints::OUT_OF_SERVICE;
use crate::tenants::Marks;

/// The phase of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    #[default]
    Unset,
    Pending,
    Scheduling,
    Scheduled,
    Running,
    Succeeded,
    Failed,
    WaitingForSync,
    Unknown,
}

impl Phase {
    pub fn of(text: &str) -> Self {
        match text {
            "" => Self::Unset,
            "Pending" => Self::Pending,
            "Scheduling" => Self::Scheduling,
            "Scheduled" => Self::Scheduled,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "WaitingForSync" => Self::WaitingForSync,
            _ => Self::Unknown,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::WaitingForSync => "WaitingForSync",
            Self::Unknown => "Unknown",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// The node agent speaks for the guest from here on.
    pub fn is_handed_over(self) -> bool {
        matches!(self, Self::Scheduled | Self::Running)
    }
}

/// When each phase was entered first, as written.
pub type PhaseTimes = Vec<(String, String)>;

#[allow(clippy::struct_excessive_bools, reason = "each is a field of the API")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigrationState {
    pub uid: String,
    pub source_node: String,
    /// The launcher that the guest is to leave, by name.
    pub source_pod: String,
    pub target_node: String,
    pub target_pod: String,
    pub target_address: String,
    pub started: bool,
    pub ended: bool,
    /// When, as written.
    pub start: String,
    pub end: String,
    pub completed: bool,
    pub failed: bool,
    pub abort_requested: bool,
    pub failure_reason: String,
}

impl MigrationState {
    /// How far the node agents have come with what was handed over to them.
    pub fn reached(&self) -> MigrationPhase {
        if self.started {
            MigrationPhase::Running
        } else if self.target_address.is_empty() {
            MigrationPhase::PreparingTarget
        } else {
            MigrationPhase::TargetReady
        }
    }

    /// Nothing is copied any more. That stays true, whatever is written about it.
    pub fn is_over(&self) -> bool {
        self.ended || self.completed
    }
}

/// A VirtualMachineInstance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub key: Key,
    pub uid: Uid,
    pub version: String,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    pub labels: BTreeMap<String, String>,
    pub finalizers: Vec<String>,
    pub owner: Option<Owner>,
    pub phase: Phase,
    pub phase_times: PhaseTimes,
    pub node: String,
    pub conditions: Vec<Condition>,
    pub active_pods: BTreeMap<String, String>,
    pub eviction_strategy: Option<String>,
    pub grace_seconds: Option<i64>,
    pub evacuation_node: Option<String>,
    pub migration: Option<MigrationState>,
    pub hotplug_change: bool,
    /// The memory of the guest in bytes, as far as it is written down; 0 if it is not.
    pub memory: u64,
    /// The CPU model it asks for; empty if it does not say.
    pub cpu_model: String,
    /// It asks for certain nodes, by selector or affinity.
    pub names_nodes: bool,
    /// Who asked for the eviction, if it was not a person: `descheduler`.
    pub eviction_source: Option<String>,
    /// The addresses of the guest.
    pub addresses: Vec<String>,
    /// What is written on it about the tenant cluster it is a node of.
    pub tenant: Option<Box<Marks>>,
}

impl Instance {
    pub fn is_final(&self) -> bool {
        self.phase.is_final()
    }

    pub fn has_been_running(&self) -> bool {
        self.phase == Phase::Running || self.phase_times.iter().any(|(phase, _)| phase == "Running")
    }

    pub fn is_migratable(&self) -> bool {
        condition::is_true(&self.conditions, "LiveMigratable")
    }

    /// Whether what it asks of a node may leave none but its own: certain nodes, or the CPU of its host.
    pub fn is_choosy(&self) -> bool {
        self.names_nodes || self.cpu_model == "host-model"
    }

    pub fn is_ready(&self) -> bool {
        condition::is_true(&self.conditions, "Ready")
    }

    pub fn is_paused(&self) -> bool {
        condition::is_true(&self.conditions, "Paused")
    }

    /// What the node agents say here about a migration, if it is the one they were last told of.
    pub fn account_of(&self, migration: &Migration) -> Option<&MigrationState> {
        self.migration.as_ref().filter(|state| state.uid == migration.uid.0)
    }

    pub fn is_migrating(&self) -> bool {
        self.migration.as_ref().is_some_and(|state| state.started && !state.ended)
    }

    /// The guest is at its target, and the node agents have not closed their account of it yet.
    pub fn is_arriving(&self) -> bool {
        self.migration.as_ref().is_some_and(|state| state.ended && !state.completed)
    }

    /// Its launcher is on the way out, although the guest still runs.
    pub fn is_losing_its_pod(&self) -> bool {
        condition::find(&self.conditions, "Ready")
            .is_some_and(|ready| ready.status == "False" && ready.reason.as_deref() == Some("PodTerminating"))
    }

    pub fn is_owned_by(&self, uid: &Uid) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.uid == *uid)
    }
}

/// A launcher pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    pub key: Key,
    pub uid: Uid,
    pub version: String,
    pub created: Option<Timestamp>,
    /// The instance it runs, by identity.
    pub instance: Uid,
    pub instance_name: String,
    pub job: Option<Uid>,
    pub node: String,
    pub phase: PodPhase,
    pub deleting: bool,
    /// The compute container is up, and every other one is ready.
    pub up: bool,
    pub conditions: Vec<Condition>,
    pub eviction_marked: bool,
}

impl Launcher {
    pub fn is_finished(&self) -> bool {
        self.phase.is_finished()
    }

    pub fn is_unschedulable(&self) -> bool {
        condition::find(&self.conditions, "PodScheduled").is_some_and(|scheduled| {
            scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable")
        })
    }
}

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
        Self { action: "Stop".into(), uid: Some(uid.0.clone()), data: BTreeMap::new() }
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
    pub version: String,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    /// Deleted with its instance left behind.
    pub orphaning: bool,
    pub finalizers: Vec<String>,
    pub power: Power,
    pub status: MachineStatus,
    /// The eviction strategy in its template.
    pub template_strategy: Option<String>,
    /// The instance for which its node in a tenant cluster was cordoned; see [`crate::tenants`].
    pub tenant_cordoned: Option<Uid>,
}

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

/// A VirtualMachineInstanceReplicaSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSet {
    pub key: Key,
    pub uid: Uid,
    pub version: String,
    pub deleting: bool,
    pub replicas: i64,
    pub paused: bool,
    /// Missing or not matching its own template: nothing is done.
    pub selector: Option<Selector>,
    pub selector_text: String,
    /// What names of instances begin with.
    pub prefix: String,
    pub status: ReplicaSetStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaSetStatus {
    pub replicas: i64,
    pub ready: i64,
    pub selector: String,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum MigrationPhase {
    #[default]
    Unset,
    Pending,
    Scheduling,
    Scheduled,
    PreparingTarget,
    TargetReady,
    Running,
    Succeeded,
    Failed,
}

impl MigrationPhase {
    pub fn of(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Scheduling" => Self::Scheduling,
            "Scheduled" => Self::Scheduled,
            "PreparingTarget" => Self::PreparingTarget,
            "TargetReady" => Self::TargetReady,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unset,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::PreparingTarget => "PreparingTarget",
            Self::TargetReady => "TargetReady",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Occupies a slot.
    pub fn is_under_way(self) -> bool {
        !self.is_final() && self > Self::Pending
    }

    /// The node agents have been told.
    pub fn is_handed_over(self) -> bool {
        matches!(self, Self::PreparingTarget | Self::TargetReady | Self::Running)
    }
}

/// A VirtualMachineInstanceMigration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    pub key: Key,
    pub uid: Uid,
    pub version: String,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    pub finalizers: Vec<String>,
    pub labelled: bool,
    /// The annotations that steer it: see [`super::names`].
    pub annotations: BTreeMap<String, String>,
    pub instance: Key,
    pub priority: String,
    pub phase: MigrationPhase,
    pub phase_times: PhaseTimes,
    pub conditions: Vec<Condition>,
    pub state_recorded: bool,
    /// Where it went and why it failed, once that is written down.
    pub target_node: String,
    pub failure_reason: String,
}

impl Migration {
    /// Made by the system rather than by a person; failures of such ones are spaced out.
    pub fn is_automatic(&self) -> bool {
        [super::names::EVACUATION_MIGRATION, super::names::WORKLOAD_UPDATE_MIGRATION]
            .iter()
            .any(|key| self.annotations.contains_key(*key))
    }

    pub fn rank(&self) -> u32 {
        match self.priority.as_str() {
            "system-critical" => 100,
            "user-triggered" => 50,
            "system-maintenance" => 20,
            // Those who empty a node may not state a priority beside KubeVirt's own control plane.
            "" if self.annotations.contains_key(super::names::EVACUATION_MIGRATION) => 100,
            _ => 0,
        }
    }

    pub fn entered(&self, phase: MigrationPhase) -> Option<Timestamp> {
        self.phase_times.iter().find(|(name, _)| name == phase.text()).and_then(|(_, at)| at.parse().ok())
    }
}

/// What matters of a node to the machines on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    pub name: String,
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
}

/// Whether the taint with this key asks for the evacuation of a node. Only key and effect count.
pub fn asks_for_evacuation(taints: &[Taint], key: &str) -> bool {
    taints.iter().any(|taint| taint.key == key && taint.effect == "NoSchedule")
}

impl Host {
    /// Whether the taint that asks for an evacuation is on it.
    pub fn is_to_be_drained(&self, key: &str) -> bool {
        asks_for_evacuation(&self.taints, key)
    }

    /// Whether it was said of it that it is off and stays off until that is taken back.
    pub fn is_out_of_service(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
    }
}

/// One observation of a thing in this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Machine(Box<Machine>),
    MachineGone(Key, Uid),
    Instance(Box<Instance>),
    InstanceGone(Key, Uid),
    ReplicaSet(Box<ReplicaSet>),
    ReplicaSetGone(Key, Uid),
    Migration(Box<Migration>),
    MigrationGone(Key, Uid),
    Launcher(Box<Launcher>),
    LauncherGone(Key, Uid),
    Host(Box<Host>),
    HostGone(String),
    Guard(Box<Guard>),
    GuardGone(Key, Uid),
}
