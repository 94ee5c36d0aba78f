//! What stories have in common: workloads, guests, and what must be left of evac on a node: nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use tokio::sync::watch;

use super::people::THEIRS;
use super::{BOUND, WINDOW};
use crate::process::Ran;
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

/// Whether a node says that it is Ready.
pub fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

pub async fn ready(stage: &Stage, count: usize) -> Result<()> {
    for n in 1..=count {
        stage.until(&format!("{NODES}/node-{n}"), SOON, is_ready).await?;
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
    only_firsts(stage, 1, count, only).await
}

/// Whether what is created now may only start on so many of the first nodes.
pub async fn only_firsts(stage: &Stage, firsts: usize, count: usize, only: bool) -> Result<()> {
    for n in firsts + 1..=count {
        let unschedulable = if only { json!(true) } else { Value::Null };
        stage.patch(&format!("{NODES}/node-{n}"), &json!({"spec": {"unschedulable": unschedulable}})).await?;
    }
    stage.pass(Duration::from_millis(500)).await;
    Ok(())
}

/// Asks for a maintenance of a node, and gives the path of its object.
pub async fn begin_maintenance(stage: &Stage, name: &str, node: &str) -> Result<String> {
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": name}, "spec": {"nodeName": node, "reason": "disk swap"},
    });
    stage.create(MAINTENANCES, &object).await?;
    Ok(format!("{MAINTENANCES}/{name}"))
}

/// Deletes a maintenance, and waits until it is gone.
pub async fn end_maintenance(stage: &Stage, path: &str) -> Result<()> {
    stage.delete(path).await?;
    stage.until(path, WINDOW + BOUND, Value::is_null).await?;
    Ok(())
}

/// Waits until every drain has succeeded.
pub async fn all_over(ran: &mut [watch::Receiver<Ran>]) -> Result<()> {
    for ran in ran {
        ran.wait_for(|ran| ran.over).await?;
    }
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

/// A guest that can be moved, and takes so many seconds for it.
pub fn template(seconds: u32) -> Value {
    json!({
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
    })
}

/// A machine that runs, and can be moved.
pub async fn machine(stage: &Stage, name: &str, seconds: u32) -> Result<()> {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": template(seconds)},
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

/// Guests that nobody wants to end.
#[derive(Default)]
pub struct Guests(Vec<(String, String)>);

impl Guests {
    /// Those that are there now, with their uids: a guest that was only moved keeps its own.
    pub async fn seen(stage: &Stage) -> Result<Self> {
        let text = |one: &Value, field: &str| one["metadata"][field].as_str().unwrap_or_default().to_owned();
        Ok(Self(
            stage.items(INSTANCES).await?.iter().map(|one| (text(one, "name"), text(one, "uid"))).collect(),
        ))
    }

    pub fn all(&self) -> &[(String, String)] {
        &self.0
    }

    /// They run as they were, none of them on the node that was emptied, nothing about them is under way, and each was moved once at most.
    pub async fn wrong(&self, stage: &Stage, emptied: Option<&str>) -> Result<Vec<String>> {
        let mut wrong = unfinished(stage).await?;
        let now = Self::seen(stage).await?;
        if now.0 != self.0 {
            wrong.push(format!("the guests were {:?} and are {:?}", self.0, now.0));
        }
        for one in stage.items(INSTANCES).await? {
            if emptied.is_some_and(|node| one["status"]["nodeName"] == node) {
                wrong.push(format!("guest {} is on the node that was emptied", one["metadata"]["name"]));
            }
        }
        let mut moves = BTreeMap::<String, u32>::new();
        for one in stage.items(MIGRATIONS).await? {
            if one["status"]["phase"] == "Succeeded" {
                *moves.entry(one["spec"]["vmiName"].to_string()).or_default() += 1;
            }
        }
        let often = moves.into_iter().filter(|(_, count)| *count > 1);
        wrong.extend(often.map(|(guest, count)| format!("I11: guest {guest} was moved {count} times")));
        Ok(wrong)
    }
}

/// Puts a taint of a person on a node, or takes it off, as `kubectl taint` does.
pub async fn taint(stage: &Stage, path: &str, key: &str, effect: Option<&str>) -> Result<()> {
    for _ in 0..20 {
        let node = stage.get(path).await?.unwrap_or_default();
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != key);
        taints.extend(effect.map(|effect| json!({"key": key, "effect": effect})));
        let version = &node["metadata"]["resourceVersion"];
        let body = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        if stage.try_send("PATCH", path, crate::stage::MERGE, &body).await?.0 != 409 {
            return Ok(());
        }
    }
    anyhow::bail!("{path} kept changing")
}

/// A node as far as evac may touch it, without what people have written on it meanwhile.
pub async fn image(stage: &Stage, node: &str) -> Result<Value> {
    let node = stage.get(&format!("{NODES}/{node}")).await?.unwrap_or_default();
    let kept = |pointer: &str, keep: &dyn Fn(&str) -> bool| {
        let map = node.pointer(pointer).and_then(Value::as_object);
        let kept: serde_json::Map<_, _> = map
            .into_iter()
            .flatten()
            .filter(|(name, _)| keep(name))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        Value::Object(kept)
    };
    let theirs = |name: &str| name.starts_with(THEIRS);
    let mut spec = kept("/spec", &|field| field != "taints");
    let taints = node["spec"]["taints"].as_array();
    let taints = taints.into_iter().flatten().filter(|taint| !taint["key"].as_str().is_some_and(theirs));
    spec["taints"] = taints.cloned().collect();
    Ok(json!({
        "spec": spec,
        "labels": kept("/metadata/labels", &|name| !theirs(name)),
        // Heartbeats of the simulated hypervisor go on.
        "annotations": kept("/metadata/annotations", &|name| name.starts_with("evac.dev/")),
    }))
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

/// After so many failures a drain gives up giving its lease back.
const PATIENCE: usize = 4;

/// The leases that evac keeps while it works on nodes: those with a holder, and records where `records` counts.
pub async fn leases(stage: &Stage, records: bool) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for namespace in ["medik8s-leases", "kube-node-lease"] {
        for lease in stage.items(&format!("{LEASES}/{namespace}/leases")).await? {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default();
            let ours = namespace == "medik8s-leases" || name.starts_with("evac-");
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            let held = !holder.is_empty();
            // A drain that has ended does not try for ever: then its lease is left to lapse.
            let owner = holder.split('/').next().unwrap_or_default();
            if stage.book.faults_at(owner, name) >= PATIENCE {
                continue;
            }
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

/// What differs between two images, in words.
pub fn differs(node: &str, before: &Value, after: &Value) -> Option<String> {
    let mut found = Vec::new();
    for (part, was) in before.as_object().into_iter().flatten() {
        let is = &after[part];
        let fields = was.as_object().into_iter().chain(is.as_object()).flatten().map(|(field, _)| field);
        for field in fields.collect::<BTreeSet<_>>() {
            if was[field] != is[field] {
                found.push(format!("{part}.{field} was {} and is {}", was[field], is[field]));
            }
        }
    }
    (!found.is_empty()).then(|| format!("node {node}: {}", found.join("; ")))
}
