//! Failed nodes at the border: what is read of a node, the requests that record a proof and release what the node held, and the
//! kind `FailoverPolicy`.

pub mod definition;
pub mod policy;
pub mod review;

use evac_core::cluster::condition::{Condition, Said};
use evac_core::drain::ownership::{self, DrainMark};
use evac_core::failover::fencing::{ANNOTATION, Fenced};
use evac_core::failover::{FencedState, KubeletLease, Suspect};
use evac_core::{Node, Taint};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, FIELD_MANAGER, MERGE_PATCH, node_path};
use crate::kubevirt::request::send;
use crate::wire::{self, Meta, NodeSpec, NodeStatus};

/// Where kubelets show that they live, each by a lease with the name of its node.
pub const KUBELET_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// Where remediation operators claim nodes.
pub const MAINTENANCE_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases";
pub const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
/// The agent of virtual machines writes the time here.
const HEARTBEAT: &str = "kubevirt.io/heartbeat";

/// A node with the parts that tell whether it lives.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SuspectNode {
    pub metadata: Meta,
    pub spec: NodeSpec,
    pub status: SuspectStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuspectStatus {
    conditions: Option<Vec<Reported>>,
    node_info: NodeInfo,
    volumes_attached: Option<Vec<Attached>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reported {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<String>,
    last_heartbeat_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Attached {
    name: String,
}

impl From<SuspectNode> for Suspect {
    fn from(object: SuspectNode) -> Self {
        let SuspectNode { metadata, spec, status } = object;
        let fenced = metadata.annotations.get(ANNOTATION).map(|text| {
            serde_json::from_str::<Fenced>(text).map_or_else(
                |_| FencedState::Unreadable(text.clone()),
                |record| FencedState::Valid(Box::new(record)),
            )
        });
        let heartbeat = metadata.annotations.get(HEARTBEAT).and_then(|text| text.parse().ok());
        let conditions = status.conditions.unwrap_or_default();
        let reported = conditions
            .iter()
            .find(|condition| condition.kind == "Ready")
            .and_then(|it| it.last_heartbeat_time);
        let conditions = conditions
            .into_iter()
            .map(|reported| {
                let (kind, status) = (reported.kind.into(), reported.status.into());
                let mut condition = Condition::from(Said { kind, status, ..Said::default() });
                condition.last_transition_time = reported.last_transition_time.map(Into::into);
                condition
            })
            .collect();
        let attached =
            status.volumes_attached.unwrap_or_default().into_iter().map(|volume| volume.name).collect();
        Self {
            node: Node::from(wire::Node { metadata, spec, status: NodeStatus { conditions } }),
            boot: Some(status.node_info.boot_id).filter(|boot| !boot.is_empty()),
            reported,
            lease: None,
            heartbeat,
            fenced,
            attached,
        }
    }
}

impl From<wire::Lease> for KubeletLease {
    fn from(object: wire::Lease) -> Self {
        Self {
            renewed: object.spec.renew_time,
            holder: object.spec.holder_identity.unwrap_or_default(),
            version: object.metadata.resource_version,
            seconds: object.spec.lease_duration_seconds.unwrap_or_default(),
        }
    }
}

/// A volume that is attached to a node, or is about to be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Attachment {
    pub metadata: Meta,
    pub spec: AttachmentSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSpec {
    pub node_name: String,
    pub source: AttachmentSource,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSource {
    pub persistent_volume_name: Option<String>,
}

impl Attachment {
    /// The volume's name where it has one.
    pub fn volume(&self) -> &str {
        self.spec.source.persistent_volume_name.as_deref().unwrap_or(&self.metadata.name)
    }
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ServerVersion {
    major: String,
    minor: String,
}

impl ServerVersion {
    /// Some providers write `28+`.
    pub fn numbers(&self) -> Option<(u32, u32)> {
        let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        Some((number(&self.major)?, number(&self.minor)?))
    }

    /// As the server wrote it.
    pub fn text(&self) -> String {
        format!("major '{}' minor '{}'", self.major, self.minor)
    }
}

fn patch(node: &str, body: &Value) -> Call {
    let path = format!("{}?fieldManager={FIELD_MANAGER}", node_path(node));
    send("PATCH", path, MERGE_PATCH, body)
}

fn metadata(node: &Node) -> Value {
    json!({"uid": node.uid, "resourceVersion": node.resource_version})
}

/// Writes the proof onto the node it was made for, if that is still as it was seen.
pub fn record(node: &Node, proof: &Fenced) -> Call {
    let mut metadata = metadata(node);
    metadata["annotations"] = json!({ANNOTATION: serde_json::to_string(proof).unwrap_or_default()});
    patch(&node.name, &json!({"metadata": metadata}))
}

/// Puts a taint on the node and notes on the proof that this was done, in one request that fails if the node has shown
/// anything new since it was seen. The mark keeps the taint, so that it is taken away with the rest.
pub fn taint(node: &Node, proof: &Fenced, mark: Option<&DrainMark>, taint: &Taint) -> Call {
    let mut metadata = metadata(node);
    let released = Fenced { released: true, ..proof.clone() };
    metadata["annotations"] = json!({ANNOTATION: serde_json::to_string(&released).unwrap_or_default()});
    if let Some(mark) = mark {
        let mut mark = mark.clone();
        if !mark.added_taints.iter().any(|added| added.same_as(taint)) {
            mark.added_taints.push(taint.clone());
        }
        metadata["annotations"][ownership::ANNOTATION] =
            json!(serde_json::to_string(&mark).unwrap_or_default());
    }
    let mut taints: Vec<&Taint> = node.taints.iter().filter(|there| !there.same_as(taint)).collect();
    taints.push(taint);
    patch(&node.name, &json!({"metadata": metadata, "spec": {"taints": taints}}))
}

/// Takes the taint away again.
pub fn untaint(node: &Node, taint: &Taint) -> Call {
    let left: Vec<&Taint> = node.taints.iter().filter(|there| !there.same_as(taint)).collect();
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    patch(&node.name, &json!({"metadata": metadata(node), "spec": {"taints": left}}))
}

/// Forgets the proof: the node is back and above suspicion, exactly as it was seen.
pub fn forget(node: &Node) -> Call {
    let mut metadata = metadata(node);
    metadata["annotations"] = json!({ANNOTATION: null});
    patch(&node.name, &json!({"metadata": metadata}))
}

/// Deletes exactly this node, as it was seen.
pub fn delete(node: &Node) -> Call {
    let body = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": {"uid": node.uid, "resourceVersion": node.resource_version},
    });
    send("DELETE", node_path(&node.name), "application/json", &body)
}

#[cfg(test)]
mod tests {
    use evac_core::Uid;
    use evac_core::cluster::fact::Health;
    use evac_core::failover::suspect::out_of_service;
    use evac_core::failover::{How, PolicyRef};

    use super::*;

    fn suspect() -> Suspect {
        let object = json!({
            "metadata": {
                "name": "n", "uid": "u", "resourceVersion": "7",
                "annotations": {"kubevirt.io/heartbeat": "2026-01-01T00:00:00Z", "evac.dev/fenced": "yes"},
            },
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [{
                    "type": "Ready", "status": "Unknown",
                    "lastHeartbeatTime": "2026-01-01T00:01:00Z", "lastTransitionTime": "2026-01-01T00:02:00Z",
                }],
                "nodeInfo": {"bootID": "b"},
                "volumesAttached": [{"name": "csi^vol", "devicePath": ""}],
            },
        });
        serde_json::from_value::<SuspectNode>(object).unwrap().into()
    }

    fn body(call: &Call) -> Value {
        serde_json::from_slice(&call.body).unwrap()
    }

    #[test]
    fn everything_that_tells_of_life_is_read() {
        let suspect = suspect();
        assert_eq!(suspect.node.health, Health::Unknown);
        assert_eq!(suspect.node.health_since, Some("2026-01-01T00:02:00Z".parse().unwrap()));
        assert_eq!(suspect.reported, Some("2026-01-01T00:01:00Z".parse().unwrap()));
        assert_eq!(suspect.heartbeat, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(suspect.boot.as_deref(), Some("b"));
        assert_eq!(suspect.attached, ["csi^vol"]);
        assert_eq!(suspect.fenced, Some(FencedState::Unreadable("yes".into())));
    }

    #[test]
    fn a_release_is_one_request_on_the_node_as_it_was_seen() {
        let suspect = suspect();
        let how = How::Agent { program: "fence_x".into() };
        let proof = Fenced::new(&suspect, how, "kim", "2026-01-01T01:00:00Z".parse().unwrap());
        let body = body(&taint(&suspect.node, &proof, None, &out_of_service()));
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(body["metadata"]["uid"], "u");
        assert_eq!(body["spec"]["taints"][0]["key"], "a");
        assert_eq!(
            body["spec"]["taints"][1],
            json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"})
        );
        let written: Fenced =
            serde_json::from_str(body["metadata"]["annotations"]["evac.dev/fenced"].as_str().unwrap())
                .unwrap();
        assert!(written.released);
        assert_eq!(written.how, proof.how);
    }

    #[test]
    fn a_record_carries_the_signs_of_life_and_records_of_earlier_versions_are_read_without() {
        let how = How::Agent { program: "fence_x".into() };
        let mut proof = Fenced::new(&suspect(), how, "kim", "2026-01-01T01:00:00Z".parse().unwrap());
        proof.refuted = Some(evac_core::failover::suspect::Sign::Lease);
        let text = serde_json::to_string(&proof).unwrap();
        assert!(text.contains(r#""signs":{"report":"2026-01-01T00:01:00Z""#), "{text}");
        assert!(text.contains(r#""refuted":"lease""#), "{text}");
        assert_eq!(serde_json::from_str::<Fenced>(&text).unwrap(), proof);
        let policy = PolicyRef { name: "p".into(), uid: Uid("v".into()), generation: 3 };
        for how in [
            How::Statement { by: "kim".into(), reason: "off".into() },
            How::Provider { signal: "x".into() },
            How::Time { seconds: 180, policy: "p".into() },
        ] {
            let proof = Fenced { how, policy: Some(policy.clone()), ..proof.clone() };
            let text = serde_json::to_string(&proof).unwrap();
            assert_eq!(serde_json::from_str::<Fenced>(&text).unwrap(), proof, "{text}");
        }
        let earlier = r#"{"version":1,"nodeUid":"u","boot":"b","at":"2026-01-01T01:00:00Z","owner":"kim",
            "how":"agent","program":"fence_x","released":true}"#;
        let earlier: Fenced = serde_json::from_str(earlier).unwrap();
        assert_eq!((earlier.signs, earlier.policy, earlier.refuted), (None, None, None));
        assert!(earlier.released);
    }

    #[test]
    fn the_taint_is_taken_away_without_the_others() {
        let mut node = suspect().node;
        node.taints.push(out_of_service());
        assert_eq!(
            body(&untaint(&node, &out_of_service()))["spec"]["taints"],
            json!([{"key": "a", "effect": "NoSchedule"}])
        );
    }

    #[test]
    fn versions_of_servers_may_have_a_plus() {
        let version = ServerVersion { major: "1".into(), minor: "27+".into() };
        assert_eq!(version.numbers(), Some((1, 27)));
        assert_eq!(ServerVersion::default().numbers(), None);
    }
}
