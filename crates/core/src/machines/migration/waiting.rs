//! From the wait for a slot to a target that is up. A target that finds no place gives its slot to those who would.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::{Look, OVER_QUOTA};
use crate::cluster::fact::{MigrationPhase, Phase, Pod};
use crate::machines::action::{Action, Decision, Event, Job, Kind, Own};
use crate::machines::condition::{self, Condition, seconds};
use crate::machines::line::{backoff, in_line, is_eligible, live_ledger, next_in_line};
use crate::machines::names;
use crate::machines::slots::Slot;

const UNSCHEDULABLE_SECONDS: i64 = 300;
const PENDING_SECONDS: i64 = 900;
/// How long a target that fits nowhere may keep a slot that others wait for.
const CROWDED_SECONDS: i64 = 1;

impl Look<'_> {
    pub(super) fn wait(&self, decision: &mut Decision) {
        if self.index.ledger().holds(&self.migration.uid) {
            self.note_quota(decision);
            if self.instance.phase == Phase::Running {
                self.create_target(None, decision);
            }
            return;
        }
        if let Some(until) = backoff(self.index, self.migration).filter(|until| *until > self.now) {
            decision.tell(Event::warning(
                self.instance,
                "MigrationBackoff",
                format!("backoff migrating vmi {}: next attempt at {}", self.instance.key, seconds(until)),
            ));
            decision.look_at(until);
            return;
        }
        if is_eligible(self.index, self.migration, self.now) && self.is_next() {
            let slot = Slot {
                uid: self.migration.uid.clone(),
                migration: self.migration.key.clone(),
                node: self.instance.node.to_string(),
            };
            self.create_target(Some(slot), decision);
        }
    }

    fn create_target(&self, slot: Option<Slot>, decision: &mut Decision) {
        let (instance, migration) = (self.instance, self.migration);
        decision.push(Action::Own(Own::CreateLauncher {
            instance: instance.key.clone(),
            uid: instance.uid.clone(),
            name: names::launcher(&instance.key.name, &instance.uid.0, Some(&migration.uid.0)),
            job: Some(Job {
                name: migration.key.name.to_string(),
                uid: migration.uid.clone(),
                avoid: self.disappointing_nodes(),
                slot,
            }),
        }));
    }

    /// A target that does not fit into a quota waits, and says so.
    fn note_quota(&self, decision: &mut Decision) {
        let trouble = self.index.trouble(Kind::Migration, &self.migration.key);
        if let Some(trouble) = trouble.filter(|trouble| trouble.message.contains("exceeded quota"))
            && !condition::is_true(&self.migration.conditions, OVER_QUOTA)
        {
            let condition = Condition::new(OVER_QUOTA, true, trouble.reason, &trouble.message);
            self.patch_status(None, Some(condition), decision);
        }
    }

    /// Whether a free slot would go to this one rather than to another that waits.
    fn is_next(&self) -> bool {
        match self.next {
            Some(next) => next.contains(&self.migration.key),
            None => next_in_line(self.index, self.now).contains(&self.migration.key),
        }
    }

    /// Where earlier tries ended in vain: the next one should rather go elsewhere.
    fn disappointing_nodes(&self) -> Vec<String> {
        if !self.migration.is_automatic() {
            return Vec::new();
        }
        let all = self.index.migrations_of(&self.migration.instance);
        let nodes: BTreeSet<String> = all
            .iter()
            .rev()
            .filter(|one| one.is_automatic())
            .skip_while(|one| !one.phase.is_final())
            .take_while(|one| one.phase == MigrationPhase::Failed)
            .map(|one| one.target_node.clone())
            .filter(|node| !node.is_empty())
            .collect();
        nodes.into_iter().collect()
    }

    /// Whether the slot of this one would go to another that waits.
    fn another_could_move(&self) -> bool {
        let ledger = live_ledger(self.index).without(|slot| slot.uid == self.migration.uid);
        in_line(self.index, &ledger, self.now).into_iter().any(|key| *key != self.migration.key)
    }

    /// A target that does not come up is given up after a while, and at once if others could use its slot.
    pub(super) fn watch_over(&self, target: &Pod, decision: &mut Decision) {
        let limit = |annotation: &str, default: i64| {
            self.migration
                .annotations
                .get(annotation)
                .and_then(|text| text.parse::<i64>().ok())
                .unwrap_or(default)
        };
        let mut limits = vec![limit(names::PENDING_TIMEOUT, PENDING_SECONDS)];
        if target.is_unschedulable() {
            limits.push(limit(names::UNSCHEDULABLE_TIMEOUT, UNSCHEDULABLE_SECONDS));
        }
        let Some(created) = target.created else { return };
        let mut allowed = limits.into_iter().min().unwrap_or(PENDING_SECONDS);
        if target.is_unschedulable() && self.migration.is_automatic() && self.another_could_move() {
            allowed = allowed.min(CROWDED_SECONDS);
        }
        let until = created.checked_add(SignedDuration::from_secs(allowed)).unwrap_or(self.now);
        // One whose target is gone before this was written would get another target.
        let is_noted = self.migration.phase == MigrationPhase::Scheduling;
        if is_noted && target.node_name().is_empty() && until <= self.now && !target.is_deleting() {
            let message = format!("Deleted target pod {}: it was pending for {allowed} s", target.key.name);
            self.delete_target(target, message, decision);
        } else if until > self.now {
            decision.look_at(until);
        }
    }
}
