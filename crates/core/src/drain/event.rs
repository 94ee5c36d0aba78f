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
    /// All pods of a node were judged, before anything is done to it.
    Planned {
        /// The node.
        node: String,
        /// What would become of each of its pods.
        assessment: Assessment,
    },
    /// A trial: what a drain would do, and how it would end.
    Forecast {
        /// One node, as judged by the index and, with `--dry-run=server`, by the server's answers.
        #[serde(flatten)]
        forecast: Forecast,
    },
    /// Something about a node that is worth knowing and stops nothing, such as a lease that cannot be written.
    Noted {
        /// The node.
        node: String,
        /// What there is to know.
        reason: Reason,
    },
    /// The node was cordoned when the drain came to it, by this owner or another.
    AlreadyCordoned {
        /// The node.
        node: String,
    },
    /// The server has taken the cordon; with `--dry-run=client` it would be sent.
    Cordoned {
        /// The node.
        node: String,
    },
    /// The drain fails, and this is what it leaves on the node.
    Leaves {
        /// The node.
        node: String,
        /// What was found there, or that it could not be read.
        #[serde(flatten)]
        left: Left,
    },
    /// The eviction of a pod, or its deletion, is being sent.
    Evicting {
        /// The pod.
        pod: Key,
        /// The node it is on.
        node: String,
        /// Which request about this pod it is, counted from 1.
        attempt: u32,
        /// It is deleted instead of evicted (`--disable-eviction`).
        deleting: bool,
        /// It has ended already and is only cleared away.
        finished: bool,
    },
    /// A live migration of a guest is asked for.
    Moving {
        /// The guest.
        instance: Key,
        /// Its launcher pod here.
        pod: Key,
        /// The node it is to leave.
        node: String,
        /// The name of the VirtualMachineInstanceMigration.
        migration: String,
        /// Which request for a migration of this guest it is, counted from 1.
        attempt: u32,
    },
    /// A migration of a guest that this drain did not ask for. It is waited for, and no other is asked for beside it.
    Adopted {
        /// The guest.
        instance: Key,
        /// Its launcher pod here.
        pod: Key,
        /// The node it is to leave.
        node: String,
        /// The name of the VirtualMachineInstanceMigration.
        migration: String,
    },
    /// A migration was seen to enter another phase.
    MovePhase {
        /// The guest.
        instance: Key,
        /// Its launcher pod here.
        pod: Key,
        /// The node it is to leave.
        node: String,
        /// The name of the VirtualMachineInstanceMigration.
        migration: String,
        /// Its `status.phase`.
        phase: String,
    },
    /// How far the memory of a guest has been copied, where that can be measured.
    Copying {
        /// The guest.
        instance: Key,
        /// Its launcher pod here.
        pod: Key,
        /// The node it is to leave.
        node: String,
        /// The name of the VirtualMachineInstanceMigration.
        migration: String,
        /// Which migration of this guest it is, in this drain. Each begins from nothing.
        attempt: u32,
        /// The numbers of the last sample and the share made from them.
        #[serde(flatten)]
        copied: Copied,
    },
    /// How long it takes until the node is empty, as far as what was seen so far tells.
    Outlook {
        /// The node.
        node: String,
        /// Guests that are still to be moved.
        guests: usize,
        /// Missing where nothing is known, or only the ends of grace periods.
        at_least_seconds: Option<u64>,
        /// Missing where nothing is known.
        at_most_seconds: Option<u64>,
        /// Why nothing is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        unknown: Option<Unknown>,
    },
    /// The guest runs on another node and its pod here has ended.
    Moved {
        /// The guest.
        instance: Key,
        /// The launcher pod that has ended.
        pod: Key,
        /// The node it has left.
        node: String,
        /// The node it runs on now.
        to: String,
        /// From the first sight of this guest's move to the end of its pod.
        seconds: i64,
    },
    /// A migration of a guest has failed, and it still runs here.
    MoveFailed {
        /// The guest.
        instance: Key,
        /// Its launcher pod here.
        pod: Key,
        /// The node it is to leave.
        node: String,
        /// Failures in a row since the drain began.
        failures: u32,
        /// The `failureReason` of the last one, or its name where there is none.
        message: String,
        /// Missing when it is not tried again.
        retry_at: Option<Timestamp>,
    },
    /// The node of a tenant cluster that a guest here is has come further with being emptied.
    Tenant {
        /// The guest that is a machine of the tenant's cluster.
        instance: Key,
        /// Its launcher pod here.
        pod: Key,
        /// The node of the host it is to leave.
        node: String,
        /// What the role `tenants` has written on the instance.
        tenant: TenantProgress,
    },
    /// Something is in the way of a pod, and in the same way of others.
    Waiting {
        /// The node.
        node: String,
        /// The first of the pods, and what it waits for.
        blocker: Blocker,
        /// The other pods that wait for exactly the same.
        also: Vec<Key>,
    },
    /// A pod is gone from its node, and not by a migration.
    Left {
        /// The pod.
        pod: Key,
        /// The node it has left.
        node: String,
        /// This drain's eviction or deletion was granted before that.
        by_us: bool,
        /// The drain deletes instead of evicting.
        deleting: bool,
    },
    /// What the server answered to a request that was marked as a trial (`--dry-run=server`).
    Rehearsed {
        /// The pod that was asked about.
        pod: Key,
        /// The node it is on.
        node: String,
        /// The answer.
        outcome: Outcome,
    },
    /// How much is left, told whenever a pod has left.
    Progress {
        /// The node.
        node: String,
        /// Pods that still have to leave.
        left: usize,
        /// Pods that had to leave since the drain began, with those that came later.
        total: usize,
        /// Of those, pods that run virtual machines.
        vms_left: usize,
        /// Of all that had to leave, pods that run virtual machines.
        vms_total: usize,
    },
    /// The work on a node is over.
    Ended {
        /// The node.
        node: String,
        /// How.
        #[serde(flatten)]
        end: End,
    },
}
