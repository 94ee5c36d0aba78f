//! What controllers look after, and what they are told to look at again.

use super::fact::{Budget, Instance, Lease, Machine, Migration, Node, Pod, ReplicaSet};
use super::key::{Key, Uid};

/// A kind of object that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// VirtualMachine.
    Machine,
    /// VirtualMachineInstance.
    Instance,
    /// VirtualMachineInstanceReplicaSet.
    ReplicaSet,
    /// VirtualMachineInstanceMigration.
    Migration,
    /// Pod; a list of this kind holds those that run guests.
    Pod,
    /// Node.
    Node,
    /// PodDisruptionBudget.
    Budget,
    /// Lease.
    Lease,
    /// A NodeMaintenance of one of the two groups.
    Maintenance(Family),
    /// A FailoverPolicy.
    Policy,
}

/// In which of the two groups a NodeMaintenance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// `kubevirt.io/v1alpha1`, the first one.
    KubeVirt,
    /// `nodemaintenance.medik8s.io/v1beta1`, today's.
    Medik8s,
}

impl Family {
    /// Both groups.
    pub const ALL: [Self; 2] = [Self::KubeVirt, Self::Medik8s];

    /// The group and the version, as objects name them.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::KubeVirt => "kubevirt.io/v1alpha1",
            Self::Medik8s => "nodemaintenance.medik8s.io/v1beta1",
        }
    }

    /// The version.
    pub fn version(self) -> &'static str {
        self.api_version().split('/').nth(1).unwrap_or_default()
    }

    /// The group.
    pub fn group(self) -> &'static str {
        self.api_version().split('/').next().unwrap_or_default()
    }
}

/// One incarnation of one object. The key of what is in no namespace has an empty one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: Key,
    /// Which incarnation of that name it is.
    pub uid: Uid,
}

impl ObjectRef {
    /// The incarnation of the object of this kind.
    pub fn new(kind: Kind, key: Key, uid: Uid) -> Self {
        Self { kind, key, uid }
    }

    /// The incarnation of what is in no namespace.
    pub fn cluster(kind: Kind, name: &str, uid: &Uid) -> Self {
        Self::new(kind, Key::new("", name), uid.clone())
    }
}

/// Objects can be meant by actions and events.
macro_rules! meant {
    ($($kind:ident),*) => {$(
        impl From<&$kind> for ObjectRef {
            fn from(object: &$kind) -> Self {
                Self::new(Kind::$kind, object.key.clone(), object.uid.clone())
            }
        }
    )*};
}
meant!(Machine, Instance, ReplicaSet, Migration, Pod, Budget, Lease);

impl From<&Node> for ObjectRef {
    fn from(node: &Node) -> Self {
        Self::cluster(Kind::Node, &node.name, &node.uid)
    }
}

/// One object a controller looks after. The key of a node has no namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Of which kind it is.
    pub kind: Kind,
    /// What it is called; see above for nodes.
    pub key: Key,
}

impl Subject {
    /// The object of this kind and name.
    pub fn new(kind: Kind, key: Key) -> Self {
        Self { kind, key }
    }

    /// The node of this name.
    pub fn node(name: &str) -> Self {
        Self::new(Kind::Node, Key::new("", name))
    }
}

/// What the server answered when something could not be done for a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one word: `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    /// The answer as a sentence.
    pub message: String,
}
