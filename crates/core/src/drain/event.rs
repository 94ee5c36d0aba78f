//! What a drain has to tell, in the order in which it happens.

use jiff::Timestamp;
use serde::Serialize;

use crate::action::Outcome;
use crate::cluster::fact::Key;
use crate::cluster::tenant::TenantProgress;
use crate::drain::assess::Assessment;
use crate::drain::forecast::Forecast;
use crate::drain::outlook::Unknown;
use crate::drain::run::{Blocker, End, Left};
use crate::drain::transfer::Copied;
use crate::reasons::Reason;

/// Something worth telling the person who waits. Also the lines of `-o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    Planned {
        node: String,
        assessment: Assessment,
    },
    /// A trial: what a drain would do, and how it would end.
    Forecast {
        #[serde(flatten)]
        forecast: Forecast,
    },
    Noted {
        node: String,
        reason: Reason,
    },
    AlreadyCordoned {
        node: String,
    },
    Cordoned {
        node: String,
    },
    /// The drain fails, and this is what it leaves on the node.
    Leaves {
        node: String,
        #[serde(flatten)]
        left: Left,
    },
    Evicting {
        pod: Key,
        node: String,
        attempt: u32,
        deleting: bool,
        /// It has ended already and is only cleared away.
        finished: bool,
    },
    /// A live migration of a guest is asked for.
    Moving {
        instance: Key,
        pod: Key,
        node: String,
        migration: String,
        attempt: u32,
    },
    /// A migration of a guest that this drain did not ask for. It is waited for, and no other is asked for beside it.
    Adopted {
        instance: Key,
        pod: Key,
        node: String,
        migration: String,
    },
    MovePhase {
        instance: Key,
        pod: Key,
        node: String,
        migration: String,
        phase: String,
    },
    /// How far the memory of a guest has been copied, where that can be measured.
    Copying {
        instance: Key,
        pod: Key,
        node: String,
        migration: String,
        /// Which migration of this guest it is, in this drain. Each begins from nothing.
        attempt: u32,
        #[serde(flatten)]
        copied: Copied,
    },
    /// How long it takes until the node is empty, as far as what was seen so far tells.
    Outlook {
        node: String,
        /// Guests that are still to be moved.
        guests: usize,
        /// Missing where nothing is known, or only the ends of grace periods.
        at_least_seconds: Option<u64>,
        at_most_seconds: Option<u64>,
        /// Why nothing is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        unknown: Option<Unknown>,
    },
    /// The guest runs on another node and its pod here has ended.
    Moved {
        instance: Key,
        pod: Key,
        node: String,
        to: String,
        seconds: i64,
    },
    MoveFailed {
        instance: Key,
        pod: Key,
        node: String,
        failures: u32,
        message: String,
        /// Missing when it is not tried again.
        retry_at: Option<Timestamp>,
    },
    /// The node of a tenant cluster that a guest here is has come further with being emptied.
    Tenant {
        instance: Key,
        pod: Key,
        node: String,
        tenant: TenantProgress,
    },
    /// Something is in the way of a pod, and in the same way of others.
    Waiting {
        node: String,
        blocker: Blocker,
        also: Vec<Key>,
    },
    Left {
        pod: Key,
        node: String,
        by_us: bool,
        deleting: bool,
    },
    Rehearsed {
        pod: Key,
        node: String,
        outcome: Outcome,
    },
    Progress {
        node: String,
        left: usize,
        total: usize,
        /// Of those, pods that run virtual machines.
        vms_left: usize,
        vms_total: usize,
    },
    Ended {
        node: String,
        #[serde(flatten)]
        end: End,
    },
}
