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
    /// The controller has not looked at it yet.
    #[default]
    Unset,
    /// It waits for its turn.
    Pending,
    /// Its target pod was created and is not up yet.
    Scheduling,
    /// Its target pod is up on a node.
    Scheduled,
    /// The node agents have been told and make the target ready.
    PreparingTarget,
    /// The target's agent listens.
    TargetReady,
    /// Memory is being copied.
    Running,
    /// The guest is at its target.
    Succeeded,
    /// The guest is where it was.
    Failed,
}

impl MigrationPhase {
    /// Reads `status.phase`; words that are not known are [`MigrationPhase::Unset`].
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

    /// The word in `status.phase`.
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

    /// It has ended, one way or the other.
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
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`: the node agents know it by this.
    pub uid: Uid,
    /// `metadata.resourceVersion`, on which changes are written.
    pub version: Version,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp` is set: it is to be aborted.
    pub deleting: bool,
    /// `metadata.finalizers`, in the order written.
    pub finalizers: Texts,
    /// It bears the label [`names::MIGRATION_SELECTOR`] with the name of its instance.
    pub labelled: bool,
    /// The annotations that steer it: see [`super::names`].
    pub annotations: BTreeMap<String, String>,
    /// The instance that `spec.vmiName` names, in its own namespace.
    pub instance: Key,
    /// `spec.priority`; empty if it does not say.
    pub priority: String,
    /// `status.phase`.
    pub phase: MigrationPhase,
    /// `status.phaseTransitionTimestamps`.
    pub phase_times: PhaseTimes,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// `status.migrationState` is there: the account of the node agents was copied from the instance.
    pub state_recorded: bool,
    /// Where it went and why it failed, once that is written down.
    pub target_node: String,
    /// Why it failed, as the node agents said; empty without a failure.
    pub failure_reason: String,
}

impl Migration {
    /// Made by the system rather than by a person; failures of such ones are spaced out.
    pub fn is_automatic(&self) -> bool {
        [names::EVACUATION_MIGRATION, names::WORKLOAD_UPDATE_MIGRATION]
            .iter()
            .any(|key| self.annotations.contains_key(*key))
    }

    /// Its place in the order of the waiting, by its priority: the higher, the earlier.
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

    /// When it entered a phase, if that was written down.
    pub fn entered(&self, phase: MigrationPhase) -> Option<Timestamp> {
        self.phase_times.entered(phase.text()).and_then(WrittenTime::timestamp)
    }
}

object!(Migration, Key, key, version, |object| object.deleting && object.finalizers.is_empty());
