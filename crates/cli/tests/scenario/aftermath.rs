//! What a cluster looks like when a scenario has gone wrong in it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cluster::Cluster;

/// Where to look, from the machine down to the pods it lives in.
const LOOKED_AT: &[&str] = &[
    "/api/v1/nodes",
    "/apis/kubevirt.io/v1/virtualmachines",
    "/apis/kubevirt.io/v1/virtualmachineinstances",
    "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
    "/api/v1/pods",
];

/// Every object of these kinds in a line, and the last words of KubeVirt's controllers if they run here.
pub async fn describe(cluster: &Cluster) -> String {
    let mut text = String::new();
    for path in LOOKED_AT {
        let request = http::Request::get(*path).body(Vec::new()).expect("a path");
        // A cluster without machines does not serve their kinds.
        let Ok(list) = cluster.client.request::<Value>(request).await else { continue };
        let objects = list["items"].as_array().into_iter().flatten();
        for object in objects {
            let _ = writeln!(text, "--- {path} {}", brief(object));
        }
    }
    text + &upstream_log(cluster)
}

/// What tells one stage of an object from another.
fn brief(object: &Value) -> Value {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions: Vec<String> = conditions
        .map(|c| [&c["type"], &c["status"], &c["reason"]].map(|v| v.as_str().unwrap_or("")).join(" "))
        .collect();
    let mut brief = json!({
        "name": metadata["name"], "uid": metadata["uid"], "deleted": metadata["deletionTimestamp"],
        "finalizers": metadata["finalizers"], "node": spec["nodeName"].as_str().or(status["nodeName"].as_str()),
        "phase": status["phase"], "shown": status["printableStatus"], "pods": status["activePods"],
        "migration": status["migrationState"], "gates": spec["schedulingGates"], "conditions": conditions,
    });
    if let Some(fields) = brief.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    brief
}

fn upstream_log(cluster: &Cluster) -> String {
    let Ok(text) = std::fs::read_to_string(cluster.kubeconfig.with_file_name("virt-controller.log")) else {
        return String::new();
    };
    let lines: Vec<&str> = text.lines().collect();
    format!("--- virt-controller\n{}", lines[lines.len().saturating_sub(60)..].join("\n"))
}
