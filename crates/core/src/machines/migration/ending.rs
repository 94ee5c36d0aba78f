//! The end of a migration: what the node agents say of it, the account that is kept, and what is cleared away.

use super::{Look, release};
use crate::cluster::fact::{Migration, MigrationPhase};
use crate::machines::action::{Decision, Event, Part, Tree};
use crate::machines::condition::seconds;
use crate::machines::names;

/// Finished migrations kept per instance.
const KEPT: usize = 5;

impl Look<'_> {
    pub(super) fn follow(&self, decision: &mut Decision) {
        let Some(state) = self.state() else { return };
        if state.completed && !self.instance.hotplug_change {
            self.enter(MigrationPhase::Succeeded, decision);
            // After the write: one that is refused is decided anew, and would be told twice.
            let message = "Source node reported migration succeeded";
            decision.tell(Event::normal(self.migration, "SuccessfulMigration", message));
        } else if self.migration.deleting && !state.abort_requested && !state.completed {
            let path = ["status", "migrationState", "abortRequested"];
            decision.patch(self.instance, Part::Main, Tree::at(&path, Tree::Bool(true)));
            let message = "Migration aborted by user";
            decision.tell(Event::normal(self.migration, "SuccessfulAbortMigration", message));
        }
    }

    /// The instance's account, as it is kept with the migration: the next one overwrites it there.
    pub(super) fn record(&self) -> Option<Tree> {
        let state = self.state()?;
        let mut record = vec![
            ("migrationUid", Tree::text(&state.uid)),
            ("sourceNode", Tree::text(&state.source_node)),
            ("targetNode", Tree::text(&state.target_node)),
            ("targetPod", Tree::text(&state.target_pod)),
            ("completed", Tree::Bool(state.completed)),
        ];
        for (field, at) in [("startTimestamp", &state.start), ("endTimestamp", &state.end)] {
            if !at.is_empty() {
                record.push((field, Tree::text(at)));
            }
        }
        if state.failed {
            record.push(("failed", Tree::Bool(true)));
            record.push(("failureReason", Tree::text(&state.failure_reason)));
        }
        Some(Tree::map(record))
    }

    /// After the end: the instance must not wait for it, its pod goes, and old ones are cleared away.
    pub(super) fn wind_up(&self, decision: &mut Decision) {
        if self.migration.phase == MigrationPhase::Failed {
            if let Some(state) = self.state().filter(|state| !state.completed && !state.started) {
                let at = Tree::text(seconds(self.now));
                let reason = if state.failure_reason.is_empty() {
                    "Target pod is down"
                } else {
                    &state.failure_reason
                };
                let mut fields = Tree::default();
                let ended = [
                    ("failed", Tree::Bool(true)),
                    ("completed", Tree::Bool(true)),
                    ("startTimestamp", at.clone()),
                    ("endTimestamp", at),
                    ("failureReason", Tree::text(reason)),
                ];
                fields.put(&["status", "migrationState"], Tree::map(ended));
                fields.put(&["metadata", "labels", names::MIGRATION_TARGET_NODE], Tree::null());
                decision.patch(self.instance, Part::Main, fields);
            }
            if let Some(target) = self.target.filter(|pod| {
                !pod.is_deleting()
                    && !pod.is_finished()
                    && (pod.node_name().is_empty() || pod.node_name() != self.instance.node)
            }) {
                let message = format!("Deleted migration target pod {}", target.key.name);
                self.delete_target(target, message, decision);
            }
        }
        if !self.migration.state_recorded
            && let Some(record) = self.record()
        {
            decision.patch(self.migration, Part::Status, Tree::at(&["status", "migrationState"], record));
        } else {
            release(self.migration, decision);
        }
        let all = self.index.migrations_of(&self.migration.instance);
        let mut finished: Vec<&&Migration> = all.iter().filter(|one| one.phase.is_final()).collect();
        finished.reverse();
        for old in finished.into_iter().skip(KEPT).filter(|old| !old.deleting) {
            decision.delete(*old);
        }
    }
}
