//! Maintenance of a node by an object: while a `NodeMaintenance` exists its node is kept empty, and when it is deleted the node is
//! given back as it was.
//!
//! ```text
//!  created ─▶ finalizer ─▶ queue ─▶ lease ─▶ cordon, taints, label ─▶ draining ─▶ Succeeded, kept empty
//!               │            │        │                                   │  ▲
//!               │            │        └ held by another: waits            │  └ pods that came later
//!               │            └ no room in the limits: waits               └ uncordoned by hand: put on again, or yield
//!               └ node unknown or under another maintenance: Failed, until that changes
//!
//!  deleted ─▶ drain ended ─▶ migrations called back ─▶ node as before ─▶ lease given back ─▶ finalizer removed
//! ```
//!
//! Everything a successor has to know is in the objects: the finalizer, the mark on the node with its pre-image, the lease, the status.

pub mod admission;
mod decide;
#[cfg(test)]
mod decide_tests;
pub mod queue;
pub mod refusal;
mod registry;
pub mod status;
pub mod vouched;

use std::fmt;

use jiff::Timestamp;

pub use decide::{decide, decide_unread};
pub use registry::{Order, Registry, Seen, Touched, Unread};
pub use status::{Phase, Status};

pub use crate::drain::written_on_nodes::{EXCLUDE_LABEL, labels, taints};

pub use crate::cluster::subject::Family;

use crate::cluster::fact::Uid;
use crate::cluster::subject::{Kind, ObjectRef};
use crate::drain::ownership::Attire;
use crate::drain::quorum::Shortage;
use crate::drain::record::Record;

/// Who writes on nodes for this role: the owner in the mark and of migrations, and the holder of the lease, which is the name other
/// remediation operators know.
pub const OWNER: &str = crate::drain::ownership::MAINTENANCE;
/// The namespace of the installation that goes by the bare name. All others add theirs, so that no two installations share one; what was
/// written under the bare name before that stays with the one installation there was by default.
pub const HOME: &str = "evac";
/// How long a lease lasts; it is renewed long before.
pub const LEASE_SECONDS: i64 = 3600;
/// Kept as it always was, so that objects made under the earlier operator can be deleted under this one.
pub const FINALIZER: &str = "foregroundDeleteNodeMaintenance";
/// Says on an object what to do when another client uncordons its node.
pub const ON_UNCORDON: &str = "evac.dev/on-uncordon";
/// Says on an object that machines which would not come back may be shut down.
pub const ALLOW_SHUTDOWN: &str = "evac.dev/allow-shutdown";
/// Says on an object that the node's part in the control plane was looked after by a person.
pub const ALLOW_CONTROL_PLANE: &str = "evac.dev/allow-control-plane";

/// Why a node of the control plane stays where it is.
pub fn cannot_spare(node: &str, shortage: &Shortage) -> String {
    let hint = match shortage {
        Shortage::Unseen => format!(
            "; if etcd does not run on this node, annotate the object with {ALLOW_CONTROL_PLANE}=true"
        ),
        _ => String::new(),
    };
    // The first words are those of the Node Maintenance Operator, which people's scripts look for.
    format!("can not put master/control-plane node into maintenance: node {node}: {}{hint}", shortage.words())
}

/// The name of an installation's role in marks and leases.
pub fn named(role: &str, namespace: &str) -> String {
    if namespace == HOME { role.to_owned() } else { format!("{role}@{namespace}") }
}

/// Whether this is the name of a maintenance role, of whichever installation.
fn is_maintenance(name: &str) -> bool {
    crate::drain::ownership::is_role(name, OWNER)
}

/// What a maintenance does when a person uncordons its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncordoned {
    /// The object stays: the operator puts the cordon on again.
    CordonsAgain,
    /// It is being deleted, and its operator gives the node back.
    GivesBack,
    /// The object says `yield`: the maintenance fails and leaves the node as it is.
    GivesWay,
}

impl Maintenance {
    /// What the annotation [`ON_UNCORDON`] and a deletion lead to.
    pub fn when_uncordoned(&self) -> Uncordoned {
        match self.on_uncordon {
            _ if self.deleting => Uncordoned::GivesBack,
            OnUncordon::Reapply => Uncordoned::CordonsAgain,
            OnUncordon::Yield => Uncordoned::GivesWay,
        }
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Of which kind it is.
    pub family: Family,
    /// Its name; these objects have no namespace.
    pub name: String,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nodemaintenance.{}/{}", self.family.group(), self.name)
    }
}

/// What to do when another client uncordons a node under maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUncordon {
    /// The object says what is wanted: put it on again.
    #[default]
    Reapply,
    /// The person who did it knows better: stop, and say so.
    Yield,
}

/// A NodeMaintenance object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing an object says or not")]
pub struct Maintenance {
    /// Its kind and name.
    pub id: Id,
    /// Its identity.
    pub uid: Uid,
    /// The version that was seen, under which its finalizers are written.
    pub resource_version: String,
    /// `spec.nodeName`.
    pub node: String,
    /// `spec.reason`; may be empty.
    pub reason: String,
    /// When it was created: the older of two goes first.
    pub created: Option<Timestamp>,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// It carries our finalizer.
    pub held: bool,
    /// Finalizers that are not ours, which stay in the list as they are.
    pub other_finalizers: Vec<String>,
    /// What is written there, by this operator or one before.
    pub status: Status,
    /// What [`ON_UNCORDON`] says.
    pub on_uncordon: OnUncordon,
    /// It carries [`ALLOW_SHUTDOWN`]; whether that counts is in [`vouched`].
    pub may_shut_down: bool,
    /// It carries [`ALLOW_CONTROL_PLANE`]; whether that counts is in [`vouched`].
    pub may_touch_control_plane: bool,
}

impl From<&Maintenance> for ObjectRef {
    fn from(object: &Maintenance) -> Self {
        Self::cluster(Kind::Maintenance(object.id.family), &object.id.name, &object.uid)
    }
}

impl Maintenance {
    /// What is written on its node besides the cordon.
    pub fn attire(&self) -> Attire {
        Attire { options: vec![self.id.to_string()], taints: taints(), labels: labels() }
    }
}

/// What only this role asks for. The actions of one decision are carried out in order, and the first that fails ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// Puts our finalizer on the object (`held`), or takes it off: then it may go.
    Finalize {
        /// The object.
        id: Id,
        /// The incarnation that is meant.
        uid: Uid,
        /// The version that was looked at.
        resource_version: String,
        /// The finalizers of others, which stay.
        others: Vec<String>,
        /// Whether the finalizer is on it from now on.
        held: bool,
    },
    /// Has the node emptied and kept empty.
    Begin {
        /// The node.
        node: String,
        /// The object that asks for it.
        id: Id,
        /// What is written on the node besides the cordon.
        attire: Attire,
        /// Machines that would not come back may be shut down.
        may_shut_down: bool,
    },
    /// Nothing more is started on the node.
    End {
        /// The node.
        node: String,
    },
    /// Gives the node back, as far as it is ours to say and the record says it too, and its guests with it: see
    /// [`give_back`](crate::drain::give_back).
    GiveBack {
        /// The node.
        node: String,
        /// The node stays cordoned for another operator that holds the lease.
        keep_cordon: bool,
        /// How the node was before, as its lease says.
        record: Option<Box<Record>>,
    },
    /// Makes sure that no object is about the node: what follows would be wrong otherwise.
    Ascertain {
        /// The node.
        node: String,
    },
    /// Finds out whether the control plane can spare the node.
    AskQuorum {
        /// The node.
        node: String,
    },
    /// Replaces the status of the object.
    WriteStatus {
        /// The object.
        id: Id,
        /// The incarnation that is meant.
        uid: Uid,
        /// The status as it shall be, with its times on the steady line.
        status: Box<Status>,
    },
}

/// One wanted change.
pub type Action = crate::action::Action<Own>;
/// What is wanted of one object.
pub type Decision = crate::action::Decision<Action>;
