//! NodeMaintenance objects, in both groups that have the kind.

pub mod crds;
pub mod request;
pub mod review;

use evac_core::Uid;
use evac_core::maintenance::{
    ALLOW_CONTROL_PLANE, ALLOW_SHUTDOWN, FINALIZER, Family, Id, Maintenance, ON_UNCORDON, OnUncordon, Status,
};
use serde::Deserialize;
use serde_json::Value;

use crate::wire::Meta;

pub const KIND: &str = "NodeMaintenance";
pub const PLURAL: &str = evac_core::maintenance::vouched::RESOURCE;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    pub metadata: Meta,
    pub spec: Spec,
    /// Read leniently: what others wrote there must not hide the object.
    pub status: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub node_name: String,
    pub reason: String,
}

impl Object {
    /// The fact it is, as an object of one of the two groups.
    pub fn of(self, family: Family) -> Maintenance {
        let Meta { name, uid, resource_version, mut finalizers, annotations, .. } = self.metadata;
        let says = |name: &str, word: &str| annotations.get(name).is_some_and(|value| value == word);
        let held = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        Maintenance {
            id: Id { family, name },
            uid: Uid::from(uid),
            resource_version: resource_version.into(),
            node: self.spec.node_name,
            reason: self.spec.reason,
            created: self.metadata.creation_timestamp,
            deleting: self.metadata.deletion_timestamp.is_some(),
            held,
            other_finalizers: finalizers,
            status: status(&self.status),
            on_uncordon: if says(ON_UNCORDON, "yield") { OnUncordon::Yield } else { OnUncordon::Reapply },
            may_shut_down: says(ALLOW_SHUTDOWN, "true"),
            may_touch_control_plane: says(ALLOW_CONTROL_PLANE, "true"),
        }
    }
}

fn status(value: &Value) -> Status {
    Status::deserialize(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use evac_core::maintenance::Phase;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_of_the_earlier_operator_is_understood() {
        let object: Object = serde_json::from_value(json!({
            "metadata": {
                "name": "nodemaintenance-xyz", "uid": "u", "resourceVersion": "5",
                "finalizers": ["foregroundDeleteNodeMaintenance", "other"],
            },
            "spec": {"nodeName": "node02", "reason": "Test node maintenance"},
            "status": {"phase": "Succeeded", "totalpods": 7, "evictionPods": 3, "drainProgress": 100},
        }))
        .unwrap();
        let seen = object.of(Family::KubeVirt);
        assert!(seen.held && seen.other_finalizers == ["other"]);
        assert_eq!((seen.status.phase, seen.status.total_pods), (Some(Phase::Succeeded), 7));
        assert_eq!(status(&json!({"phase": "Dancing"})), Status::default());
    }
}
