//! Why a migration cannot go on.

use super::Look;
use crate::cluster::fact::{MigrationPhase, Pod};

/// Why a migration ended without its guest having moved.
pub(super) struct Failure {
    pub text: String,
    /// Its deletion was asked for.
    pub aborted: bool,
}

impl Failure {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), aborted: false }
    }
}

impl Look<'_> {
    /// The first reason for which this cannot go on.
    pub(super) fn failure(&self) -> Option<Failure> {
        let migration = self.migration;
        if migration.phase == MigrationPhase::Unset {
            let other = self.index.migrations_of(&migration.instance).into_iter().find(|other| {
                other.key != migration.key
                    && !other.phase.is_final()
                    && self.instance.account_of(other).is_some()
            });
            return other.map(|other| {
                Failure::new(format!("VMI is already being migrated by migration {}", other.key.name))
            });
        }
        if self.instance.is_final() {
            return Some(Failure::new("Migration failed because vmi shutdown during migration."));
        }
        if migration.deleting && !self.is_handed_over() {
            return Some(Failure { text: "Migration canceled".into(), aborted: true });
        }
        if self.target.is_some_and(Pod::is_finished) && !self.is_completed() {
            return Some(Failure::new("Migration failed because target pod shutdown during migration"));
        }
        let begun = migration.phase > MigrationPhase::Pending || self.state().is_some();
        if self.target.is_none() && begun && !self.is_completed() {
            return Some(Failure::new("Migration target pod was removed during active migration."));
        }
        if migration.phase.is_handed_over() {
            match &self.instance.migration {
                None => {
                    return Some(Failure::new(
                        "VMI's migration state was cleared during the active migration.",
                    ));
                }
                Some(state) if migration.uid != *state.uid => {
                    return Some(Failure::new(
                        "VMI's migration state was taken over by another migration job during active migration.",
                    ));
                }
                Some(_) => {}
            }
        }
        self.state().filter(|state| state.failed).map(|state| {
            let why = if state.failure_reason.is_empty() {
                String::new()
            } else {
                format!(": {}", state.failure_reason)
            };
            Failure::new(format!("source node reported migration failed{why}"))
        })
    }
}
