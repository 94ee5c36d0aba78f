//! Machines that are nodes of tenant clusters: such a node is emptied from the inside before its machine goes.
//!
//! The strategy External leaves an instance to an external controller; an eviction only marks it. For instances with the labels of a
//! Cluster API machine that is us. A tenant is asked to let go and is never able to hold the host: the deadline is written on the
//! instance before anything else happens, and it is looked at before anything else is.
//!
//! ```text
//!          marked, External, a cluster's machine
//!  at rest ─────────────────────────────────────▶ anchored (the deadline is on the instance)
//!     ▲                                               │
//!     │ mark or strategy gone: the drain stops,       ├─ policy migrate-first ─▶ moving ─▶ moved: the mark is gone
//!     │ the node is uncordoned, notes are removed     │                            │ failed twice
//!     │                                               ▼                            ▼
//!     ├◀─────────────────────────────────────────  draining ◀──── back-off ──── in trouble
//!     │                                               │ proven empty               │
//!     │ the next incarnation runs: uncordoned         ▼                            ▼
//!     └◀────────────────────────────────────────── deleted ◀───────────────── the deadline
//! ```
//!
//! [`decide`] is the whole machine. What it must remember over restarts is on the objects: the deadline on the instance, when the eviction was
//! first seen in a ConfigMap that only the operator writes, and on the machine that owns it (else on the instance) that its node was cordoned. [`Work`] is what this process is doing meanwhile.

pub mod action;
pub mod deadline;
mod decide;
pub mod member;
pub mod ration;
pub mod tally;
pub mod terms;
pub mod trouble;
pub mod work;

#[cfg(test)]
mod tests;

pub use crate::cluster::tenant::Marks;
pub use action::{Action, Decision, Own};
pub use deadline::{First, Limits};
pub use decide::{View, decide, is_wanted, say_unread};
pub use member::{Machine, Member, member};
pub use tally::Tally;
pub use trouble::Trouble;
pub use work::{Count, Report, Stage, Work};

/// When the instance is deleted at the latest, RFC 3339. Every user who may edit the instance may move it, within the limit, which counts from the moment
/// when the eviction was first seen.
pub const DEADLINE: &str = "evac.dev/tenant-deadline";
/// The same as Cluster API's provider for KubeVirt writes it; honoured where there is none of ours.
pub const CAPK_DEADLINE: &str = "capk.cluster.x-k8s.io/vmi-deletion-grace-time";
/// On an instance, or on the Secret of a cluster's kubeconfig: how long the tenant gets, such as `30m`.
pub const TIMEOUT: &str = "evac.dev/tenant-timeout";
/// On an instance: `migrate-first`, or `drain` as without it.
pub const POLICY: &str = "evac.dev/tenant-policy";
/// On an instance: how far the drain of its node is, as JSON.
pub const PROGRESS: &str = "evac.dev/tenant-drain";
/// On the machine of an instance, else on the instance: the uid of the instance for which its node was cordoned.
pub const CORDONED: &str = "evac.dev/tenant-cordoned";
/// On the Secret of a cluster's kubeconfig: in which other namespaces instances may be its machines, separated by commas.
pub const NAMESPACES: &str = "evac.dev/tenant-namespaces";

/// Says on an instance that the drain of its node cannot go on.
pub const BLOCKED: &str = "TenantBlocked";
/// By whom nodes of tenants are drained, in the words that others read there.
pub const OWNER: &str = "evac-tenants";

impl Marks {
    /// Its policy annotation asks for a live migration before the node is drained.
    pub fn migrates_first(&self) -> bool {
        self.policy.as_deref() == Some("migrate-first")
    }

    /// Something of an evacuation is left on the instance.
    fn are_left(&self) -> bool {
        self.deadline.is_some() || self.capk_deadline.is_some() || self.has_progress
    }
}
