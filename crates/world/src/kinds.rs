//! The kinds of object the actors reason about, and how each is addressed in the API.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use crate::instance::VirtualMachineInstance;
use crate::objects::Key;

/// A resource of the API: enough to build its paths.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub plural: Cow<'static, str>,
    pub kind: Cow<'static, str>,
    pub namespaced: bool,
}

impl Resource {
    pub const fn fixed(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            kind: Cow::Borrowed(kind),
            namespaced,
        }
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    fn root(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// All objects of the resource, or those of one namespace.
    pub fn collection(&self, namespace: &str) -> String {
        if self.namespaced && !namespace.is_empty() {
            format!("{}/namespaces/{namespace}/{}", self.root(), self.plural)
        } else {
            format!("{}/{}", self.root(), self.plural)
        }
    }

    pub fn object(&self, key: &Key, subresource: &str) -> String {
        let path = format!("{}/{}", self.collection(&key.namespace), key.name);
        if subresource.is_empty() { path } else { format!("{path}/{subresource}") }
    }
}

pub const CONFIG_MAPS: Resource = Resource::fixed("", "v1", "configmaps", "ConfigMap", true);
pub const EVENTS: Resource = Resource::fixed("", "v1", "events", "Event", true);

/// A kind that the mirror holds with its full type.
pub trait Tracked: DeserializeOwned + Clone + Send + Sync + 'static {
    const KIND: Kind;
    fn meta(&self) -> &ObjectMeta;
    fn wrap(object: Arc<Self>) -> Object;
}

macro_rules! tracked {
    ($($variant:ident: $ty:ty => $group:literal $version:literal $plural:literal $namespaced:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($variant),* }

        impl Kind {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub const fn resource(self) -> Resource {
                match self {
                    $(Self::$variant =>
                        Resource::fixed($group, $version, $plural, stringify!($variant), $namespaced),)*
                }
            }

            pub fn parse(self, value: serde_json::Value) -> Result<Object, serde_json::Error> {
                match self {
                    $(Self::$variant => Ok(Object::$variant(Arc::new(serde_json::from_value(value)?))),)*
                }
            }
        }

        /// One object of a tracked kind.
        #[derive(Debug, Clone)]
        pub enum Object { $($variant(Arc<$ty>)),* }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self { $(Self::$variant(_) => Kind::$variant),* }
            }

            pub fn meta(&self) -> &ObjectMeta {
                match self { $(Self::$variant(o) => &o.metadata),* }
            }

            pub fn key(&self) -> Key {
                Key::of(self.meta())
            }
        }

        $(impl Tracked for $ty {
            const KIND: Kind = Kind::$variant;
            fn meta(&self) -> &ObjectMeta { &self.metadata }
            fn wrap(object: Arc<Self>) -> Object { Object::$variant(object) }
        })*
    };
}

tracked! {
    Namespace: Namespace => "" "v1" "namespaces" false;
    Node: Node => "" "v1" "nodes" false;
    Lease: Lease => "coordination.k8s.io" "v1" "leases" true;
    Pod: Pod => "" "v1" "pods" true;
    ReplicaSet: ReplicaSet => "apps" "v1" "replicasets" true;
    Deployment: Deployment => "apps" "v1" "deployments" true;
    DaemonSet: DaemonSet => "apps" "v1" "daemonsets" true;
    StatefulSet: StatefulSet => "apps" "v1" "statefulsets" true;
    ControllerRevision: ControllerRevision => "apps" "v1" "controllerrevisions" true;
    Job: Job => "batch" "v1" "jobs" true;
    ReplicationController: ReplicationController => "" "v1" "replicationcontrollers" true;
    PodDisruptionBudget: PodDisruptionBudget => "policy" "v1" "poddisruptionbudgets" true;
    PersistentVolumeClaim: PersistentVolumeClaim => "" "v1" "persistentvolumeclaims" true;
    PersistentVolume: PersistentVolume => "" "v1" "persistentvolumes" false;
    StorageClass: StorageClass => "storage.k8s.io" "v1" "storageclasses" false;
    ServiceAccount: ServiceAccount => "" "v1" "serviceaccounts" true;
    VirtualMachineInstance: VirtualMachineInstance => "kubevirt.io" "v1" "virtualmachineinstances" true;
}

impl Kind {
    pub fn of(resource: &Resource) -> Option<Self> {
        Self::ALL.iter().copied().find(|k| {
            let own = k.resource();
            own.group == resource.group && own.plural == resource.plural
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_scope_and_subresource() {
        let pods = Kind::Pod.resource();
        assert_eq!(pods.collection(""), "/api/v1/pods");
        assert_eq!(pods.object(&Key::new("a", "b"), "status"), "/api/v1/namespaces/a/pods/b/status");
        let sets = Kind::ReplicaSet.resource();
        assert_eq!(sets.collection("x"), "/apis/apps/v1/namespaces/x/replicasets");
        assert_eq!(Kind::Node.resource().object(&Key::cluster("n"), ""), "/api/v1/nodes/n");
    }
}
