//! Guests in tests: made, found, evicted, and their nodes tainted and cordoned.

use serde_json::{Value, json};

use crate::cluster::{Cluster, VMIS, VMS};
use crate::is_running;

pub const JSON: &str = "application/json";
pub const MERGE: &str = "application/merge-patch+json";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
pub const HOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/virt-api-validator";

pub fn has(object: &Value, condition: &str) -> bool {
    object["status"]["conditions"]
        .as_array()
        .is_some_and(|list| list.iter().any(|c| c["type"] == condition && c["status"] == "True"))
}

pub async fn settled(cluster: &Cluster, name: &str) -> Value {
    let judged = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array();
        is_running(vmi) && conditions.is_some_and(|list| list.iter().any(|c| c["type"] == "LiveMigratable"))
    };
    cluster.until(&format!("{VMIS}/{name}"), judged).await
}

pub fn node_of(vmi: &Value) -> String {
    vmi["status"]["nodeName"].as_str().unwrap_or_default().to_owned()
}

/// The name of the pod in which an instance runs now.
pub async fn launcher_of(cluster: &Cluster, name: &str) -> String {
    let vmi = cluster.get(&format!("{VMIS}/{name}")).await.unwrap();
    let pods = cluster.get(PODS).await.unwrap();
    let pods = pods["items"].as_array().unwrap().clone();
    let mine = pods.iter().find(|pod| {
        pod["metadata"]["annotations"]["kubevirt.io/domain"] == name
            && pod["spec"]["nodeName"] == vmi["status"]["nodeName"]
            && pod["status"]["phase"] == "Running"
    });
    mine.expect("it runs in a pod")["metadata"]["name"].as_str().unwrap().to_owned()
}

pub async fn evict(cluster: &Cluster, pod: &str, more: Value) -> (u16, String) {
    let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let (code, answer) = cluster.create(&format!("{PODS}/{pod}/eviction"), &body).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

pub async fn taint(cluster: &Cluster, node: &str, key: Option<&str>) {
    let taints: Vec<Value> =
        key.map(|key| json!({"key": key, "value": "draining", "effect": "NoSchedule"})).into_iter().collect();
    let body = json!({"spec": {"taints": taints}});
    let (code, answer) = cluster.send("PATCH", &format!("/api/v1/nodes/{node}"), MERGE, &body).await;
    assert_eq!(code, 200, "{answer}");
}

pub async fn cordon(cluster: &Cluster, node: &str) {
    let body = json!({"spec": {"unschedulable": true}});
    let (code, answer) = cluster.send("PATCH", &format!("/api/v1/nodes/{node}"), MERGE, &body).await;
    assert_eq!(code, 200, "{answer}");
}

pub async fn create_vm(cluster: &Cluster, object: &Value) {
    let (code, body) = cluster.create(VMS, object).await;
    assert_eq!(code, 201, "{body}");
}

pub fn with_strategy(mut object: Value, strategy: Option<&str>) -> Value {
    let spec = object.pointer_mut("/spec/template/spec").unwrap().as_object_mut().unwrap();
    match strategy {
        Some(word) => spec.insert("evictionStrategy".into(), json!(word)),
        None => spec.remove("evictionStrategy"),
    };
    object
}

/// A local disk cannot follow its guest.
pub fn pinned(mut object: Value) -> Value {
    let spec = object.pointer_mut("/spec/template/spec").unwrap();
    spec["domain"]["devices"]["disks"] = json!([{"name": "root", "disk": {}}, {"name": "local", "disk": {}}]);
    spec["volumes"] = json!([
        {"name": "root", "containerDisk": {"image": "example/guest"}},
        {"name": "local", "hostDisk": {"path": "/data/disk.img", "type": "DiskOrCreate", "capacity": "1Gi"}},
    ]);
    object
}
