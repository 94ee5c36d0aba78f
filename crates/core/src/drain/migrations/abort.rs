//! Migrations that a drain calls off, until the server has agreed.
//!
//! A drain does not end before each of them is answered: what it asked for and no longer wants would move a guest when no drain is there to say so.

use std::collections::BTreeMap;

use evac_apimachinery::backoff::Retry;
use jiff::Timestamp;

use crate::action::Outcome;
use crate::cluster::fact::{Key, Uid};
use crate::cluster::subject::{Kind, ObjectRef};
use crate::drain::action::Action;
use crate::drain::policy::SERVER_FAILED;
use crate::drain::run::{Run, failure_text};
use crate::drain::step::{Event, Step};
use crate::machines::Migration;
use crate::reasons::KubeVirtReason;

/// Failures after which a migration is left behind and named.
const PATIENCE: u32 = 5;

#[derive(Debug, Clone, Default)]
pub(crate) struct Aborts {
    open: BTreeMap<Uid, Abort>,
    /// Node, migration and answer of those that were not called off.
    left: Vec<(String, Key, String)>,
}

#[derive(Debug, Clone)]
struct Abort {
    node: String,
    migration: Key,
    is_sent: bool,
    retry: Retry,
}

impl Aborts {
    pub fn is_settled(&self) -> bool {
        self.open.is_empty() && self.left.is_empty()
    }
}

impl Run {
    /// Has a migration called off, once.
    pub(crate) fn call_off(&mut self, migration: &Migration, node: &str) {
        self.aborts.open.entry(migration.uid.clone()).or_insert_with(|| Abort {
            node: node.to_owned(),
            migration: migration.key.clone(),
            is_sent: false,
            retry: Retry::default(),
        });
    }

    pub(crate) fn record_abort(&mut self, uid: &Uid, outcome: &Outcome, now: Timestamp) {
        let Some(abort) = self.aborts.open.get_mut(uid) else { return };
        if matches!(outcome, Outcome::Done | Outcome::Gone | Outcome::Replaced) {
            self.aborts.open.remove(uid);
            return;
        }
        abort.is_sent = false;
        abort.retry.failed(SERVER_FAILED, now);
        let passes = outcome.is_transient() || matches!(outcome, Outcome::Throttled { .. });
        if abort.retry.failures() >= PATIENCE || !passes {
            let left = (abort.node.clone(), abort.migration.clone(), failure_text(outcome));
            self.aborts.open.remove(uid);
            self.aborts.left.push(left);
        }
    }
}

/// Sends what is due, and names what could not be called off.
pub(crate) fn send(run: &mut Run, now: Timestamp, step: &mut Step) {
    for (uid, abort) in run.aborts.open.iter_mut().filter(|(_, abort)| !abort.is_sent) {
        if let Some(at) = abort.retry.rests(now) {
            step.look_at(at);
            continue;
        }
        abort.is_sent = true;
        step.actions.push(Action::Delete {
            object: ObjectRef::new(Kind::Migration, abort.migration.clone(), uid.clone()),
            grace_seconds: None,
            dry_run: false,
        });
    }
    for (node, migration, message) in std::mem::take(&mut run.aborts.left) {
        let reason = KubeVirtReason::VmMigrationLeft { migration: migration.to_string(), message }.into();
        step.events.push(Event::Noted { node, reason });
    }
}
