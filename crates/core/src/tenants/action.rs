//! What should be done about one instance of a tenant.

use jiff::Timestamp;

use super::Member;
use super::deadline::First;
use crate::cluster::fact::Uid;
use crate::cluster::subject::ObjectRef;
use crate::cluster::tenant::TenantProgress;

/// What only this role asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// Reads what the Secret of the cluster says about timeouts.
    Look {
        /// The node of the tenant cluster.
        member: Member,
    },
    /// Keeps, outside the instance, when its eviction was first seen.
    KeepFirst {
        /// When it was first seen, and the deadline that follows.
        first: First,
    },
    /// The eviction was taken back.
    ForgetFirst,
    /// Writes the deadline on the instance.
    Anchor {
        /// When the instance is deleted at the latest.
        deadline: Timestamp,
    },
    /// Remembers, or forgets, that the node of the instance was cordoned.
    Remember {
        /// The object that remembers it.
        at: ObjectRef,
        /// The incarnation whose node was cordoned; none to forget it.
        instance: Option<Uid>,
    },
    /// Writes how far the drain is.
    Note {
        /// How far the drain is.
        progress: TenantProgress,
    },
    /// Removes deadline and progress from the instance.
    Clear,
    /// Begins to drain the node.
    Begin {
        /// The node of the tenant cluster.
        member: Member,
    },
    /// Ends the drain that runs; what was asked to leave may still leave.
    Stop,
    /// Makes the node schedulable again, as far as we had cordoned it.
    Uncordon {
        /// The node of the tenant cluster.
        member: Member,
    },
    /// Deletes the instance in the foreground, if it is still to go when it is looked at once more.
    LetGo,
}

/// One wanted change.
pub type Action = crate::action::Action<Own>;
/// What is wanted of one instance.
pub type Decision = crate::action::Decision<Action>;

impl Own {
    /// It is work that goes on, not a request.
    pub fn is_work(&self) -> bool {
        matches!(self, Self::Begin { .. } | Self::Stop | Self::Uncordon { .. })
    }
}
