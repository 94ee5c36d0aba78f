//! What a role wants: the one vocabulary of decisions.
//!
//! Each role decides in the same form: a [`Decision`] names the [`Action`]s to carry out now, the [`Event`]s to publish, and when to look again.
//! The requests that several roles make are variants of [`Action`]; what only one role asks for is its own small enum, carried by
//! [`Action::Own`]. What the server answered is one [`Outcome`] for all roles.

pub mod decision;
pub mod outcome;
pub mod tree;

pub use decision::{Decision, Event};
pub use outcome::Outcome;
pub use tree::{Part, Tree};

use jiff::Timestamp;

use crate::cluster::fact::{Lease, Taint, Uid};
use crate::cluster::mark::{DrainMark, Record};
use crate::cluster::subject::{Kind, ObjectRef};
use crate::cluster::version::Version;

/// One wanted change or reading. Actions leave no choice open: the engine performs them, or reports. `O` is what only one role asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<O> {
    /// Makes the node unschedulable and writes who did it, with the state before, in one request.
    Cordon {
        /// The name of the node.
        node: String,
        /// Which incarnation of the node was looked at.
        uid: Uid,
        /// The version of the node that was looked at.
        resource_version: Version,
        /// Who cordons the node, and how it was before.
        mark: Box<DrainMark>,
        /// All taints the node shall have, where some are to be added.
        taints: Option<Vec<Taint>>,
        /// The server is asked and changes nothing.
        dry_run: bool,
    },
    /// Asks for an eviction of exactly this incarnation.
    Evict {
        /// The pod.
        object: ObjectRef,
        /// How long the pod gets to stop; without it as long as the pod says.
        grace_seconds: Option<i64>,
        /// The server is asked and changes nothing.
        dry_run: bool,
    },
    /// Deletes exactly this incarnation; a pod past all budgets.
    Delete {
        /// What is deleted.
        object: ObjectRef,
        /// How long a pod gets to stop; without it as long as the pod says.
        grace_seconds: Option<i64>,
        /// The server is asked and changes nothing.
        dry_run: bool,
    },
    /// Changes fields of exactly this incarnation, if it still is in the version that was looked at.
    Patch {
        /// What is changed.
        object: ObjectRef,
        /// The version that was looked at.
        version: Version,
        /// To which face of the object the patch is sent.
        part: Part,
        /// The fields as they shall be.
        fields: Tree,
    },
    /// Asks for a live migration of exactly this instance. The name follows from what is known of the instance.
    Migrate {
        /// The instance.
        instance: ObjectRef,
        /// The name of the migration.
        name: String,
        /// The node that is to become empty.
        node: String,
        /// Who asks for the migration.
        asker: Asker,
        /// The server is asked and changes nothing.
        dry_run: bool,
    },
    /// Creates, renews or takes over a lease about a node.
    Hold {
        /// Which of the node's leases it is.
        lease: LeaseOf,
        /// The name of the node.
        node: String,
        /// The incarnation of the node.
        uid: Uid,
        /// Who holds the lease from now on.
        holder: String,
        /// The time of the renewal.
        at: Timestamp,
        /// For how long the lease holds.
        seconds: u64,
        /// The question that this answers, where the holder watches for questions.
        answered: Option<Timestamp>,
        /// The lease as it was last seen.
        over: Option<Box<Lease>>,
        /// How the node was before it was written on, to be noted on the lease.
        record: Option<Box<Record>>,
    },
    /// Gives a lease back, if it is still as it was seen.
    Release {
        /// Which of the node's leases it is.
        lease: LeaseOf,
        /// The name of the node.
        node: String,
        /// The version that was seen; empty where none was.
        resource_version: Version,
        /// The lease is kept without a holder, while the mark it is the record of is on the node.
        keep: bool,
    },
    /// What only one role asks for.
    Own(O),
}

impl<O> Action<O> {
    /// Whether it changes fields of an object of this kind.
    pub fn patches(&self, kind: Kind) -> bool {
        matches!(self, Self::Patch { object, .. } if object.kind == kind)
    }
}

/// On whose behalf a guest is migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asker {
    /// A drain, which finds its migrations by their owner, and counts them on the pod of the guest.
    Drain {
        /// The owner of the drain.
        owner: String,
        /// The pod of the guest.
        pod: Uid,
    },
    /// An evacuation, at which priority. Beside KubeVirt there is none: it lets only its own controllers give one.
    Evacuation(Option<&'static str>),
}

/// The leases by which a node is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseOf {
    /// That a drain of the node is alive.
    Drain,
    /// That a remediation operator works on the node.
    Remediation,
}
