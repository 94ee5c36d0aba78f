//! What the controllers of machines want done.

use super::slots::Slot;
pub use crate::action::{Event, Part, Tree};
use crate::cluster::fact::{Key, Uid};
use crate::cluster::fact::{MigrationPhase, Phase};
pub use crate::cluster::subject::{Kind, Subject};

/// The migration a launcher is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name, in the namespace of the instance.
    pub name: String,
    /// The incarnation that is meant.
    pub uid: Uid,
    /// Nodes where earlier tries failed.
    pub avoid: Vec<String>,
    /// The entry in the ledger of running migrations without which it gets no target, if it has none yet.
    pub slot: Option<Slot>,
}

impl Job {
    /// Whether a launcher is still to be made, judged by objects as they are now and not by those that were decided about: a migration that was
    /// stopped meanwhile must not get a target any more, nor a guest that runs a second home.
    pub fn is_open(instance: Phase, migration: Option<MigrationPhase>) -> bool {
        match migration {
            Some(migration) => migration == MigrationPhase::Pending && instance == Phase::Running,
            None => matches!(instance, Phase::Unset | Phase::Pending),
        }
    }
}

/// What only these controllers ask for: objects that are made from a template, or for an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// Renders the launcher from the instance as it is now and creates it.
    CreateLauncher {
        /// The instance.
        instance: Key,
        /// The incarnation that is meant.
        uid: Uid,
        /// The name of what is created.
        name: String,
        /// The migration it is made for; none for the first home of the guest.
        job: Option<Job>,
    },
    /// Renders an instance from the machine's template; it has the machine's name.
    CreateInstance {
        /// The machine.
        machine: Key,
        /// The incarnation that is meant.
        uid: Uid,
        /// The guest begins paused.
        paused: bool,
    },
    /// Renders an instance from the set's template.
    CreateReplica {
        /// The replica set.
        set: Key,
        /// The incarnation that is meant.
        uid: Uid,
        /// The name of the instance.
        name: String,
    },
    /// Creates the budget that protects the instance.
    CreateBudget {
        /// The instance.
        instance: Key,
        /// The incarnation that is meant.
        uid: Uid,
        /// The name of what is created.
        name: String,
    },
}

/// One wanted change.
pub type Action = crate::action::Action<Own>;
/// What is wanted of one subject.
pub type Decision = crate::action::Decision<Action>;

impl Action {
    /// The entry in the ledger that has to be written first.
    pub fn slot(&self) -> Option<&Slot> {
        match self {
            Self::Own(Own::CreateLauncher { job, .. }) => job.as_ref()?.slot.as_ref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_made_for_a_guest_that_runs_and_a_migration_that_waits_for_it() {
        use MigrationPhase::{Failed, Pending, Scheduling};
        assert!(Job::is_open(Phase::Running, Some(Pending)));
        for migration in [MigrationPhase::Unset, Scheduling, Failed] {
            assert!(!Job::is_open(Phase::Running, Some(migration)));
        }
        assert!(!Job::is_open(Phase::Failed, Some(Pending)));
    }

    #[test]
    fn a_first_home_is_made_only_for_a_guest_that_has_none() {
        assert!(Job::is_open(Phase::Unset, None) && Job::is_open(Phase::Pending, None));
        for phase in [Phase::Scheduling, Phase::Scheduled, Phase::Running, Phase::Succeeded, Phase::Unknown] {
            assert!(!Job::is_open(phase, None));
        }
    }
}
