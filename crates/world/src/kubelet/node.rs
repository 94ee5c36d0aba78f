//! The Node object and the Lease of a simulated kubelet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec as ApiNodeSpec,
    NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::objects::{Key, time};
use crate::options::NodeSpec;
use crate::random::stable_hash;

pub const LEASE_NAMESPACE: &str = "kube-node-lease";
pub const LEASE_SECONDS: i32 = 40;
const VERSION: &str = "v1.37.1";

/// The node at its registration.
pub fn registration(spec: &NodeSpec, address: &str, boots: u32, now: Timestamp) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(spec.name.clone()),
            labels: Some(labels(spec)),
            annotations: (!spec.annotations.is_empty()).then(|| spec.annotations.clone()),
            ..Default::default()
        },
        spec: Some(ApiNodeSpec {
            taints: (!spec.taints.is_empty()).then(|| spec.taints.clone()),
            provider_id: Some(spec.provider_id.clone()),
            ..Default::default()
        }),
        status: Some(status(spec, address, boots, None, now)),
    }
}

fn labels(spec: &NodeSpec) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut set = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    set("kubernetes.io/hostname", &spec.name);
    for (key, value) in [("os", "linux"), ("arch", "amd64")] {
        set(&format!("kubernetes.io/{key}"), value);
        set(&format!("beta.kubernetes.io/{key}"), value);
    }
    if let Some(zone) = &spec.zone {
        set("topology.kubernetes.io/zone", zone);
    }
    for role in &spec.roles {
        set(&format!("node-role.kubernetes.io/{role}"), "");
    }
    labels.extend(spec.labels.clone());
    labels
}

fn capacity(spec: &NodeSpec) -> BTreeMap<String, Quantity> {
    let mut capacity: BTreeMap<String, Quantity> =
        spec.resources.iter().map(|(k, v)| (k.clone(), Quantity(v.clone()))).collect();
    capacity.insert("cpu".to_owned(), Quantity(spec.cpu.clone()));
    capacity.insert("memory".to_owned(), Quantity(spec.memory.clone()));
    capacity.insert("pods".to_owned(), Quantity(spec.pods.to_string()));
    capacity.entry("ephemeral-storage".to_owned()).or_insert_with(|| Quantity("100Gi".to_owned()));
    capacity
}

/// The status a healthy kubelet posts. `held` keeps transition times of conditions that did not change,
/// and resources that others (device plugins) have added.
pub fn status(
    spec: &NodeSpec,
    address: &str,
    boots: u32,
    held: Option<&NodeStatus>,
    now: Timestamp,
) -> NodeStatus {
    let wanted = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    let conditions = wanted
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let old = held.and_then(|h| h.conditions.iter().flatten().find(|c| c.type_ == kind));
            let same = old.filter(|c| c.status == status);
            NodeCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                last_heartbeat_time: Some(time(now)),
                last_transition_time: same
                    .and_then(|c| c.last_transition_time.clone())
                    .or_else(|| Some(time(now))),
            }
        })
        .collect();
    let id = format!("{:032x}", u128::from(stable_hash(&["machine", &spec.name])));
    NodeStatus {
        capacity: Some(capacity(spec)),
        allocatable: Some(capacity(spec)),
        addresses: Some(vec![
            NodeAddress { type_: "InternalIP".to_owned(), address: address.to_owned() },
            NodeAddress { type_: "Hostname".to_owned(), address: spec.name.clone() },
        ]),
        conditions: Some(conditions),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: "amd64".to_owned(),
            boot_id: boot_id(&spec.name, boots),
            container_runtime_version: "containerd://2.1.0".to_owned(),
            kernel_version: "6.12.0".to_owned(),
            kube_proxy_version: String::new(),
            kubelet_version: VERSION.to_owned(),
            machine_id: id.clone(),
            operating_system: "linux".to_owned(),
            os_image: "evac simulated node".to_owned(),
            system_uuid: id,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Another one each time the machine starts, as the kernel makes it.
fn boot_id(node: &str, boots: u32) -> String {
    let half = |salt: &str| stable_hash(&["boot", salt, node, &boots.to_string()]);
    format!("{:016x}{:016x}", half("a"), half("b"))
}

/// The kubelet has something to say: it was reported unhealthy, or its capacity is not what it has.
pub fn differs(wanted: &NodeStatus, held: &NodeStatus) -> bool {
    let condition = |status: &NodeStatus, kind: &str| {
        status.conditions.iter().flatten().find(|c| c.type_ == kind).map(|c| c.status.clone())
    };
    let lacks = |wanted: &Option<BTreeMap<String, Quantity>>, held: &Option<BTreeMap<String, Quantity>>| {
        wanted.iter().flatten().any(|(name, amount)| held.as_ref().and_then(|h| h.get(name)) != Some(amount))
    };
    wanted.conditions.iter().flatten().any(|c| condition(held, &c.type_).as_deref() != Some(&c.status))
        || lacks(&wanted.capacity, &held.capacity)
        || lacks(&wanted.allocatable, &held.allocatable)
        || held.node_info.as_ref().map(|info| &info.boot_id)
            != wanted.node_info.as_ref().map(|info| &info.boot_id)
}

pub fn last_heartbeat(held: &NodeStatus) -> Option<Timestamp> {
    held.conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == "Ready")
        .and_then(|c| c.last_heartbeat_time.as_ref())
        .map(|t| t.0)
}

pub fn lease_key(node: &str) -> Key {
    Key::new(LEASE_NAMESPACE, node)
}

/// The renewal of a lease, and the whole lease for the first time.
pub fn lease(node: &str, node_uid: &str, now: Timestamp) -> (Value, Value) {
    let whole = Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node.to_owned(),
                uid: node_uid.to_owned(),
                ..Default::default()
            }]),
            ..Default::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..Default::default()
        }),
    };
    let create = crate::effects::as_value(&whole);
    let patch = json!({ "spec": {
        "holderIdentity": node,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": create["spec"]["renewTime"],
    }});
    (patch, create)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::at;

    #[test]
    fn a_registered_node_says_where_and_how_large_it_is() {
        let spec = &NodeSpec::workers(3)[1];
        let node = registration(spec, "172.18.0.3", 1, at(0));
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["kubernetes.io/hostname"], "node-2");
        assert_eq!(labels["topology.kubernetes.io/zone"], "b");
        assert!(labels.contains_key("node-role.kubernetes.io/worker"));
        assert_eq!(node.status.unwrap().allocatable.unwrap()["pods"].0, "110");
    }

    #[test]
    fn a_machine_that_was_started_anew_says_so() {
        let spec = NodeSpec::new("n");
        let held = status(&spec, "", 1, None, at(0));
        assert!(differs(&status(&spec, "", 2, Some(&held), at(60)), &held));
    }

    #[test]
    fn an_unknown_node_is_reported_ready_again_with_a_new_transition() {
        let spec = NodeSpec::new("n");
        let mut held = status(&spec, "", 1, None, at(0));
        assert!(!differs(&status(&spec, "", 1, Some(&held), at(60)), &held));
        held.conditions.as_mut().unwrap()[3].status = "Unknown".into();
        let next = status(&spec, "", 1, Some(&held), at(60));
        assert!(differs(&next, &held));
        let conditions = next.conditions.unwrap();
        assert_eq!(conditions[3].last_transition_time.as_ref().unwrap().0, at(60));
        assert_eq!(conditions[0].last_transition_time.as_ref().unwrap().0, at(0));
    }
}
