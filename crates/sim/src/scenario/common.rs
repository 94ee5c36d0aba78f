//! What stories have in common: workloads, guests, and what must be left of evac on a node: nothing.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::people::THEIRS;
use crate::stage::Stage;

pub const NODES: &str = "/api/v1/nodes";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
pub const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub const MIGRATIONS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
pub const MAINTENANCES: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";
/// What has to come about before faults begin comes about within this.
const SOON: Duration = Duration::from_secs(300);

pub async fn ready(stage: &Stage, count: usize) -> Result<()> {
    let ready = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    };
    for n in 1..=count {
        stage.until(&format!("{NODES}/node-{n}"), SOON, ready).await?;
    }
    Ok(())
}

/// Nodes that can host guests.
pub async fn hosts(stage: &Stage, count: usize) -> Result<()> {
    for n in 1..=count {
        let hosts = |node: &Value| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
        stage.until(&format!("{NODES}/node-{n}"), SOON, hosts).await?;
    }
    Ok(())
}

/// Whether what is created now may only start on the first node.
pub async fn only_first(stage: &Stage, count: usize, only: bool) -> Result<()> {
    for n in 2..=count {
        let unschedulable = if only { json!(true) } else { Value::Null };
        stage.patch(&format!("{NODES}/node-{n}"), &json!({"spec": {"unschedulable": unschedulable}})).await?;
    }
    stage.pass(Duration::from_millis(500)).await;
    Ok(())
}

pub async fn deploy(stage: &Stage, name: &str, replicas: usize) -> Result<()> {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example/web"}]},
            },
        },
    });
    stage.create(DEPLOYMENTS, &deployment).await?;
    stage
        .until(&format!("{DEPLOYMENTS}/{name}"), SOON, |one| one["status"]["availableReplicas"] == replicas)
        .await?;
    Ok(())
}

pub async fn budget(stage: &Stage, name: &str, unavailable: u32) -> Result<()> {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"maxUnavailable": unavailable, "selector": {"matchLabels": {"app": name}}},
    });
    stage.create(BUDGETS, &budget).await?;
    stage.until(&format!("{BUDGETS}/{name}"), SOON, |one| one["status"]["observedGeneration"] == 1).await?;
    Ok(())
}

/// A machine that can be moved and writes to a disk of its own.
pub async fn machine(stage: &Stage, name: &str, seconds: u32) -> Result<()> {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {
            "metadata": {"labels": {"app": "guest"}, "annotations": {"evac.dev/migration-seconds": seconds.to_string()}},
            "spec": {
                "evictionStrategy": "LiveMigrate",
                "terminationGracePeriodSeconds": 30,
                "domain": {
                    "resources": {"requests": {"memory": "128Mi"}},
                    "devices": {
                        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "containerDisk": {"image": "example/guest"}}],
            },
        }},
    });
    stage.create(MACHINES, &object).await?;
    let movable = |one: &Value| {
        let conditions = one["status"]["conditions"].as_array();
        let movable = |one: &Value| one["type"] == "LiveMigratable" && one["status"] == "True";
        one["status"]["phase"] == "Running" && conditions.is_some_and(|all| all.iter().any(movable))
    };
    stage.until(&format!("{INSTANCES}/{name}"), SOON, movable).await?;
    Ok(())
}

/// The uids of all instances: a guest that was only moved keeps its own.
pub async fn guests(stage: &Stage) -> Result<Vec<(String, String)>> {
    let all = stage.items(INSTANCES).await?;
    let text = |one: &Value, field: &str| one["metadata"][field].as_str().unwrap_or_default().to_owned();
    Ok(all.iter().map(|one| (text(one, "name"), text(one, "uid"))).collect())
}

/// A node as far as evac may touch it, without what people have written on it meanwhile.
pub async fn image(stage: &Stage, node: &str) -> Result<Value> {
    let mut node = stage.get(&format!("{NODES}/{node}")).await?.unwrap_or_default();
    let theirs = |name: &str| name.starts_with(THEIRS);
    if let Some(map) = node["metadata"]["annotations"].as_object_mut() {
        // Heartbeats of the simulated hypervisor go on.
        map.retain(|name, _| name.starts_with("evac.dev/"));
    }
    if let Some(map) = node["metadata"]["labels"].as_object_mut() {
        map.retain(|name, _| !theirs(name));
    }
    if let Some(taints) = node["spec"]["taints"].as_array_mut() {
        taints.retain(|taint| !taint["key"].as_str().is_some_and(theirs));
    }
    let mut spec = node["spec"].take();
    if spec["taints"] == json!([])
        && let Some(map) = spec.as_object_mut()
    {
        map.remove("taints");
    }
    let annotations = node["metadata"]["annotations"].take();
    let annotations = if annotations == json!({}) { Value::Null } else { annotations };
    Ok(json!({"spec": spec, "labels": node["metadata"]["labels"], "annotations": annotations}))
}

/// Pods that have to leave a node and are still on it.
pub async fn pods_on(stage: &Stage, node: &str) -> Result<Vec<String>> {
    let here = |pod: &&Value| {
        pod["spec"]["nodeName"] == node
            && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    };
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(stage.items(PODS).await?.iter().filter(here).map(name).collect())
}

/// The leases that evac keeps while it works on nodes: those with a holder, and records where `records` counts.
pub async fn leases(stage: &Stage, records: bool) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for namespace in ["medik8s-leases", "kube-node-lease"] {
        for lease in stage.items(&format!("{LEASES}/{namespace}/leases")).await? {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default();
            let ours = namespace == "medik8s-leases" || name.starts_with("evac-");
            let held = lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty());
            if ours && (held || records) {
                left.push(format!("lease {namespace}/{name} of {} is left", lease["spec"]["holderIdentity"]));
            }
        }
    }
    Ok(left)
}

/// Migrations that have not ended, and marks on instances.
pub async fn unfinished(stage: &Stage) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for one in stage.items(MIGRATIONS).await? {
        let phase = one["status"]["phase"].as_str().unwrap_or_default();
        if !matches!(phase, "Succeeded" | "Failed") {
            left.push(format!("migration {} is {phase:?}", one["metadata"]["name"]));
        }
    }
    for one in stage.items(INSTANCES).await? {
        if one["status"]["evacuationNodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            left.push(format!("instance {} is marked to be evacuated", one["metadata"]["name"]));
        }
        if one["status"]["phase"] != "Running" {
            left.push(format!("instance {} is {}", one["metadata"]["name"], one["status"]["phase"]));
        }
    }
    Ok(left)
}

/// How a deployment has to be: all its pods are there.
pub async fn served(stage: &Stage, name: &str, replicas: usize) -> Result<Option<String>> {
    let found = stage.get(&format!("{DEPLOYMENTS}/{name}")).await?.unwrap_or_default();
    let available = &found["status"]["availableReplicas"];
    Ok((*available != replicas).then(|| format!("{available} of {replicas} pods of {name} are available")))
}

/// The difference of two images in words.
pub fn differs(node: &str, before: &Value, after: &Value) -> Option<String> {
    (before != after).then(|| format!("node {node} was {before} and is {after}"))
}
