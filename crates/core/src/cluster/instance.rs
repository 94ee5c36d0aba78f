//! A VirtualMachineInstance.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::condition::{self, Condition};
use super::key::{Key, Owner, Uid};
use super::migration::{Migration, MigrationPhase};
use super::table::object;
use super::tenant::Marks;
use super::text::{Text, Texts};
use super::text_map::TextMap;
use super::version::Version;
use super::written_time::WrittenTime;

/// The phase of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Nothing is written: the controller has not looked at it yet.
    #[default]
    Unset,
    /// The controller knows it; there is no launcher yet.
    Pending,
    /// Its launcher was created and is not up yet.
    Scheduling,
    /// Its launcher is up on a node, and the node agent makes the guest.
    Scheduled,
    /// The guest runs.
    Running,
    /// The guest has ended in good order.
    Succeeded,
    /// The guest has crashed, or could not be started.
    Failed,
    /// It is the empty receiver of a guest from another namespace or cluster.
    WaitingForSync,
    /// A phase that evac does not know, or `Unknown`: the node agent does not answer.
    Unknown,
}

impl Phase {
    /// Reads `status.phase`; words that are not known are [`Phase::Unknown`].
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

    /// The word in `status.phase`.
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

    /// The guest has ended and does not come back under this incarnation.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// The node agent speaks for the guest from here on.
    pub fn is_handed_over(self) -> bool {
        matches!(self, Self::Scheduled | Self::Running)
    }
}

/// When each phase was entered first, as written. The names of the phases are apart, because those of many objects are the same.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PhaseTimes {
    pub(super) phases: Texts,
    times: Box<[WrittenTime]>,
}

impl PhaseTimes {
    /// All of them, in the order in which they were entered.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &WrittenTime)> {
        self.phases.iter().zip(&self.times)
    }

    /// When this phase was entered.
    pub fn entered(&self, phase: &str) -> Option<&WrittenTime> {
        self.iter().find(|(name, _)| *name == phase).map(|(_, at)| at)
    }

    /// Adds one. Everything is copied: this is for what is about to be written.
    pub fn push(&mut self, (phase, at): (Text, WrittenTime)) {
        let known = self.iter().map(|(phase, at)| (phase.clone(), at.clone()));
        *self = known.chain([(phase, at)]).collect();
    }
}

impl FromIterator<(Text, WrittenTime)> for PhaseTimes {
    fn from_iter<I: IntoIterator<Item = (Text, WrittenTime)>>(entered: I) -> Self {
        let (phases, times): (Vec<_>, Vec<_>) = entered.into_iter().unzip();
        Self { phases: phases.into(), times: times.into() }
    }
}

impl fmt::Debug for PhaseTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// What the node agents say on an instance about its migration.
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the API")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigrationState {
    /// The migration that this is about, by identity.
    pub uid: String,
    /// The node that the guest leaves.
    pub source_node: String,
    /// The launcher that the guest is to leave, by name.
    pub source_pod: String,
    /// The node that the guest moves to; empty before it is handed over.
    pub target_node: String,
    /// The launcher that the guest moves to, by name.
    pub target_pod: String,
    /// Where the target's agent listens; empty until it does.
    pub target_address: String,
    /// `startTimestamp` is set: memory is being copied.
    pub started: bool,
    /// `endTimestamp` is set: nothing is copied any more.
    pub ended: bool,
    /// When, as written.
    pub start: String,
    /// `endTimestamp` as written; empty without it.
    pub end: String,
    /// The node agents have closed their account, whether it succeeded or not.
    pub completed: bool,
    /// It did not succeed; the guest is still where it was.
    pub failed: bool,
    /// A controller has asked the agents to stop.
    pub abort_requested: bool,
    /// Why it failed, in the words of the agent; empty without a failure.
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
    /// Namespace and name; its machine has the same.
    pub key: Key,
    /// `metadata.uid`: a restart of the machine makes another incarnation.
    pub uid: Uid,
    /// `metadata.resourceVersion`, on which changes are written.
    pub version: Version,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.labels`; its launchers bear them, too.
    pub labels: TextMap,
    /// The controller that made it: a machine, a set, or `None` for one that a person made.
    pub owner: Option<Owner>,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.phaseTransitionTimestamps`.
    pub phase_times: PhaseTimes,
    /// `status.nodeName`: where the guest runs; empty before a launcher is bound.
    pub node: Text,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// Its launchers, by their identities, and their nodes.
    pub active_pods: Box<[(Uid, Text)]>,
    /// `status.migrationState`: the account of its last migration; `None` if it was never moved.
    pub migration: Option<Box<MigrationState>>,
    /// What many instances have alike.
    pub common: Arc<Common>,
}

/// What many instances have alike, because it is written in what they are made from, or is there for few and for a short time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Common {
    /// `metadata.finalizers`, in the order written.
    pub finalizers: Texts,
    /// `spec.evictionStrategy`; `None` leaves it to the cluster's default.
    pub eviction_strategy: Option<Text>,
    /// `spec.terminationGracePeriodSeconds`: how long the guest gets to shut down.
    pub grace_seconds: Option<i64>,
    /// `status.evacuationNodeName`: the node that it is marked to leave.
    pub evacuation_node: Option<Text>,
    /// A change of its CPUs or its memory, or one that needs a move, is under way: its migration is not the end of it.
    pub hotplug_change: bool,
    /// The memory of the guest in bytes, as far as it is written down; 0 if it is not.
    pub memory: u64,
    /// The CPU model it asks for; empty if it does not say.
    pub cpu_model: Text,
    /// It asks for certain nodes, by selector or affinity.
    pub names_nodes: bool,
    /// Who asked for the eviction, if it was not a person: `descheduler`.
    pub eviction_source: Option<Text>,
    /// The addresses of the guest.
    pub addresses: Texts,
    /// The backup of it that is under way, by name.
    pub backup: Option<Text>,
    /// What is written on it about the tenant cluster it is a node of.
    pub tenant: Option<Box<Marks>>,
}

impl Deref for Instance {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl DerefMut for Instance {
    fn deref_mut(&mut self) -> &mut Common {
        Arc::make_mut(&mut self.common)
    }
}

impl Instance {
    /// The guest has ended and does not come back under this incarnation.
    pub fn is_final(&self) -> bool {
        self.phase.is_final()
    }

    /// Whether the guest ever ran, by its phase or the times written of earlier ones.
    pub fn has_been_running(&self) -> bool {
        self.phase == Phase::Running || self.phase_times.entered("Running").is_some()
    }

    /// The node of one of its launchers, if it names that launcher.
    pub fn active_pod(&self, pod: &Uid) -> Option<&Text> {
        self.active_pods.iter().find(|(uid, _)| uid == pod).map(|(_, node)| node)
    }

    /// Whether KubeVirt says that it can be moved.
    pub fn is_migratable(&self) -> bool {
        condition::is_true(&self.conditions, "LiveMigratable")
    }

    /// Whether what it asks of a node may leave none but its own: certain nodes, or the CPU of its host.
    pub fn is_choosy(&self) -> bool {
        self.names_nodes || self.cpu_model == "host-model"
    }

    /// Whether its condition Ready is true.
    pub fn is_ready(&self) -> bool {
        condition::is_true(&self.conditions, "Ready")
    }

    /// Whether its guest stands still on request.
    pub fn is_paused(&self) -> bool {
        condition::is_true(&self.conditions, "Paused")
    }

    /// What the node agents say here about a migration, if it is the one they were last told of.
    pub fn account_of(&self, migration: &Migration) -> Option<&MigrationState> {
        self.migration.as_deref().filter(|state| migration.uid == *state.uid)
    }

    /// Nothing of it is copied any more for the migration that the node agents were last told of.
    pub fn is_copied(&self) -> bool {
        self.migration.as_deref().is_some_and(MigrationState::is_over)
    }

    /// Memory is being copied.
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

    /// Whether its controller is this incarnation of a machine or a set.
    pub fn is_owned_by(&self, uid: &Uid) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.uid == *uid)
    }
}

object!(Instance, Key, key, version, |object| object.deleting && object.finalizers.is_empty());
