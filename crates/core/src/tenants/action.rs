//! What should be done about one instance of a tenant.

use jiff::Timestamp;

use super::Member;
use super::deadline::First;
use crate::cluster::fact::{Key, Uid};
use crate::cluster::tenant::TenantProgress;
use crate::machines::{Kind, Tree};

/// The object that remembers that a node was cordoned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub kind: Kind,
    pub key: Key,
    pub uid: Uid,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reads what the Secret of the cluster says about timeouts.
    Look {
        member: Member,
    },
    /// Keeps, outside the instance, when its eviction was first seen.
    KeepFirst {
        first: First,
    },
    /// The eviction was taken back.
    ForgetFirst,
    /// Writes the deadline on the instance.
    Anchor {
        deadline: Timestamp,
    },
    /// Remembers, or forgets, that the node of the instance was cordoned.
    Remember {
        at: Record,
        instance: Option<Uid>,
    },
    /// Writes how far the drain is.
    Note {
        progress: TenantProgress,
    },
    /// Removes deadline and progress from the instance.
    Clear,
    /// Writes the conditions of the instance as they were seen at this version, changed.
    Conditions {
        version: String,
        list: Tree,
    },
    /// Begins to drain the node.
    Begin {
        member: Member,
    },
    /// Ends the drain that runs; what was asked to leave may still leave.
    Stop,
    /// Makes the node schedulable again, as far as we had cordoned it.
    Uncordon {
        member: Member,
    },
    Migrate {
        name: String,
        node: String,
        /// KubeVirt lets nobody but its own controllers give one.
        priority: Option<&'static str>,
    },
    /// Deletes the instance in the foreground, if it is still to go when it is looked at once more.
    Delete,
    Tell {
        warning: bool,
        reason: &'static str,
        message: String,
    },
}

impl Action {
    /// It is work that goes on, not a request.
    pub fn is_work(&self) -> bool {
        matches!(self, Self::Begin { .. } | Self::Stop | Self::Uncordon { .. })
    }
}

/// What to do now, and when to look again even if nothing is heard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub look_again: Option<Timestamp>,
}

impl Decision {
    pub fn of(actions: impl IntoIterator<Item = Action>) -> Self {
        Self { actions: actions.into_iter().collect(), look_again: None }
    }

    pub(super) fn look_at(mut self, at: Timestamp) -> Self {
        self.look_again = Some(self.look_again.map_or(at, |known| known.min(at)));
        self
    }
}
