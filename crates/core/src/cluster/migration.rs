//! A VirtualMachineInstanceMigration.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::condition::Condition;
use super::instance::PhaseTimes;
use super::key::{Key, Uid};
use super::names;
use super::table::object;
use super::text::Texts;
use super::version::Version;
use super::written_time::WrittenTime;

/// How far a migration is.
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
    pub version: Version,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    pub finalizers: Texts,
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
        [names::EVACUATION_MIGRATION, names::WORKLOAD_UPDATE_MIGRATION]
            .iter()
            .any(|key| self.annotations.contains_key(*key))
    }

    pub fn rank(&self) -> u32 {
        match self.priority.as_str() {
            "system-critical" => 100,
            "user-triggered" => 50,
            "system-maintenance" => 20,
            // Those who empty a node may not state a priority beside KubeVirt's own control plane.
            "" if self.annotations.contains_key(names::EVACUATION_MIGRATION) => 100,
            _ => 0,
        }
    }

    pub fn entered(&self, phase: MigrationPhase) -> Option<Timestamp> {
        self.phase_times.entered(phase.text()).and_then(WrittenTime::timestamp)
    }
}

object!(Migration, Key, key, version, |object| object.deleting && object.finalizers.is_empty());
