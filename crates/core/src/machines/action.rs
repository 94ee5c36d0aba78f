//! What a controller wants done.
//!
//! Patches are written as trees of fields and always name the incarnation, and the version that was looked at, so that a
//! decision made on an old view fails instead of overwriting.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::slots::Slot;
use crate::cluster::fact::{Key, Uid};
use crate::cluster::fact::{MigrationPhase, Phase};
pub use crate::cluster::subject::{Kind, Subject};
use crate::cluster::version::Version;

/// A value in a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Tree {
    /// Removes the field.
    Null(()),
    Bool(bool),
    Int(i64),
    Text(String),
    List(Vec<Tree>),
    Map(BTreeMap<String, Tree>),
}

impl Tree {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn null() -> Self {
        Self::Null(())
    }

    pub fn map<K: Into<String>>(fields: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(fields.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// Puts a value at a path, making maps on the way.
    pub fn put(&mut self, path: &[&str], value: Self) {
        let Some((first, rest)) = path.split_first() else {
            *self = value;
            return;
        };
        if !matches!(self, Self::Map(_)) {
            *self = Self::Map(BTreeMap::new());
        }
        if let Self::Map(fields) = self {
            fields.entry((*first).to_owned()).or_insert_with(|| Self::Map(BTreeMap::new())).put(rest, value);
        }
    }

    pub fn get(&self, path: &[&str]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match self {
            Self::Map(fields) => fields.get(*first)?.get(rest),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Map(fields) if fields.is_empty())
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::Map(BTreeMap::new())
    }
}

/// Which face of an object a patch is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
}

/// The migration a launcher is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub name: String,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Renders the launcher from the instance as it is now and creates it.
    CreateLauncher {
        instance: Key,
        uid: Uid,
        name: String,
        job: Option<Job>,
    },
    /// Renders an instance from the machine's template; it has the machine's name.
    CreateInstance {
        machine: Key,
        uid: Uid,
        paused: bool,
    },
    CreateReplica {
        set: Key,
        uid: Uid,
        name: String,
    },
    /// Asks for a migration because the node of the instance is wanted.
    CreateMigration {
        instance: Key,
        uid: Uid,
        name: String,
        node: String,
        priority: &'static str,
    },
    CreateBudget {
        instance: Key,
        uid: Uid,
        name: String,
    },
    Delete {
        kind: Kind,
        key: Key,
        uid: Uid,
        grace_seconds: Option<i64>,
    },
    Patch {
        kind: Kind,
        key: Key,
        uid: Uid,
        version: Version,
        part: Part,
        fields: Tree,
    },
    Event {
        kind: Kind,
        key: Key,
        uid: Uid,
        warning: bool,
        reason: &'static str,
        message: String,
    },
}

impl Action {
    /// The entry in the ledger that has to be written first.
    pub fn slot(&self) -> Option<&Slot> {
        match self {
            Self::CreateLauncher { job, .. } => job.as_ref()?.slot.as_ref(),
            _ => None,
        }
    }
}

/// What to do now, and when to look again even if nothing is heard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub look_again: Option<Timestamp>,
}

impl Decision {
    pub fn nothing() -> Self {
        Self::default()
    }

    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub fn look_at(&mut self, at: Timestamp) {
        self.look_again = Some(self.look_again.map_or(at, |known| known.min(at)));
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
