//! `evac demo`: the whole story in a minute, on a cluster inside this process.
//!
//! Every command shown is really run, with the same code as from the command line; only the cluster is
//! simulated.

use std::time::Duration;

use clap::Args;
use evac_apiserver::front::Front;
use evac_core::machines::Roles;
use evac_world::NodeSpec;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output;
use crate::sandbox::{Sandbox, client, write_private};

/// Show what evac does, on a cluster inside this process: no questions, under a minute
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// How many seconds of the cluster pass in one second of yours
    #[arg(long, default_value_t = 1.0, value_parser = crate::sandbox::speed)]
    pub speed: f64,
}

pub async fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let mut sandbox = Sandbox::start(NodeSpec::workers(3), args.speed, 1).await;
    sandbox.operate(&Roles::all()).await?;
    let front =
        Front::open(sandbox.api.clone(), 0).await.map_err(|error| Failure::error(error.to_string()))?;
    let path = std::env::temp_dir().join(format!("evac-demo-{}.kubeconfig", std::process::id()));
    write_private(&path, &front.kubeconfig)?;
    let ended = tell(&client(&sandbox.api), &path.display().to_string()).await;
    front.close().await;
    sandbox.stop().await;
    let _ = std::fs::remove_file(&path);
    ended
}

async fn tell(cluster: &kube::Client, kubeconfig: &str) -> Result<Exit, Failure> {
    say("A cluster of three nodes, in this process. Six web servers (at least five must stay up), a");
    say("database of three (at least two), an agent on every node, and three virtual machines.");
    for object in workloads() {
        apply(cluster, &object).await?;
    }
    ready(cluster, "web").await?;
    ready(cluster, "database").await?;
    for name in ["billing", "ledger", "reports"] {
        running(cluster, name).await?;
    }

    say("");
    say("What would happen to node-1? Nothing is changed yet.");
    shell(kubeconfig, &["explain", "node-1", "--ignore-daemonsets"]).await?;

    say("");
    say("Empty it. Machines that must not stop are moved while they run; evictions follow the budgets as");
    say("they change; nothing is polled.");
    let drained = shell(kubeconfig, &["drain", "node-1", "--ignore-daemonsets"]).await?;

    say("");
    say("Now there is a budget that can never be met. The drain says so instead of hanging.");
    apply(cluster, &budget("database", 3)).await?;
    let blocked = shell(kubeconfig, &["drain", "node-2", "--ignore-daemonsets", "--timeout", "4s"]).await?;

    say("");
    say("Change of plan: cancel gives the node back as it was.");
    let cancelled = shell(kubeconfig, &["cancel", "node-2"]).await?;

    say("");
    say("node-1 was serviced; back to work.");
    let uncordoned = shell(kubeconfig, &["uncordon", "node-1"]).await?;

    say("");
    say("The same by an object, which the operator carries out: kubectl can create it, too.");
    apply(cluster, &budget("database", 2)).await?;
    let maintained = shell(kubeconfig, &["maintenance", "start", "node-3", "--reason", "new fans"]).await?;
    let listed = shell(kubeconfig, &["maintenance", "list"]).await?;
    let ended = shell(kubeconfig, &["maintenance", "end", "node-3"]).await?;
    let maintained = [maintained, listed, ended].iter().all(|exit| *exit == Exit::Done);
    let as_told = maintained
        && drained == Exit::Done
        && blocked != Exit::Done
        && cancelled == Exit::Done
        && uncordoned == Exit::Done;
    if as_told {
        say("");
        say("That was all. On a cluster of yours: evac drain NODE. More: evac --help");
        return Ok(Exit::Done);
    }
    Err(Failure::error("the demo did not go as told; please report it"))
}

fn say(line: &str) {
    if line.is_empty() {
        output::talk("");
    } else {
        output::remark(&format!("# {line}"));
    }
}

/// Runs a command of this program as if it had been typed.
async fn shell(kubeconfig: &str, words: &[&str]) -> Result<Exit, Failure> {
    let typed =
        words.iter().map(|word| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() });
    output::command(&format!("$ evac {}", typed.collect::<Vec<_>>().join(" ")));
    let mut all = vec!["evac"];
    all.extend_from_slice(words);
    all.extend_from_slice(&["--kubeconfig", kubeconfig]);
    let exit = Box::pin(crate::run_words(&all)).await?;
    if exit != Exit::Done {
        output::talk(&format!("(exit {})", exit as u8));
    }
    Ok(exit)
}

async fn apply(cluster: &kube::Client, object: &Value) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::error(format!("the demo's cluster refused an object: {error}"))
    };
    let object: DynamicObject = serde_json::from_value(object.clone()).map_err(|e| failed(&e))?;
    let types = object.types.clone().unwrap_or_default();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let kind = GroupVersionKind::gvk(group, version, &types.kind);
    let resource = kube::core::ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.clone(), &resource);
    let name = object.metadata.name.clone().unwrap_or_default();
    api.patch(&name, &PatchParams::apply("evac-demo").force(), &Patch::Apply(&object))
        .await
        .map(|_| ())
        .map_err(|e| failed(&e))
}

/// Waits, by watch, until a deployment or stateful set has all its replicas.
async fn ready(cluster: &kube::Client, name: &str) -> Result<(), Failure> {
    let full = |found: Option<&Deployment>| {
        found.is_some_and(|d| {
            let wanted = d.spec.replicas;
            wanted.is_some() && d.status.as_ref().and_then(|s| s.ready_replicas) == wanted
        })
    };
    let api: Api<Deployment> = Api::default_namespaced(cluster.clone());
    let waiting = kube::runtime::wait::await_condition(api, name, full);
    match tokio::time::timeout(Duration::from_secs(20), waiting).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(Failure::error(format!("the demo's {name} did not come up; please report it"))),
    }
}

/// Waits, by watch, until a machine runs and can be moved.
async fn running(cluster: &kube::Client, name: &str) -> Result<(), Failure> {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine");
    let resource = kube::core::ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.clone(), &resource);
    let up = |found: Option<&DynamicObject>| {
        let conditions = found.and_then(|vm| vm.data["status"]["conditions"].as_array());
        let said = |kind: &str| {
            let is_true = |c: &Value| c["type"] == kind && c["status"] == "True";
            conditions.is_some_and(|list| list.iter().any(is_true))
        };
        said("Ready") && said("LiveMigratable")
    };
    let waiting = kube::runtime::wait::await_condition(api, name, up);
    match tokio::time::timeout(Duration::from_secs(30), waiting).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(Failure::error(format!("the demo's machine {name} did not come up; please report it"))),
    }
}

/// A machine that would rather be on node-1, so that there is something to move, and next on node-3.
fn machine(name: &str, eviction_strategy: &str) -> Value {
    let wish = |weight: u8, node: &str| {
        json!({"weight": weight, "preference": {"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        ]}})
    };
    let rather = [wish(100, "node-1"), wish(50, "node-3")];
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {
            "runStrategy": "Always",
            "template": {
                "metadata": {"annotations": {
                    "evac.dev/boot-seconds": "1", "evac.dev/shutdown-seconds": "1", "evac.dev/migration-seconds": "2",
                }},
                "spec": {
                    "evictionStrategy": eviction_strategy,
                    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rather}},
                    "domain": {"devices": {}, "resources": {"requests": {"memory": "256Mi"}}},
                },
            },
        },
    })
}

fn workloads() -> Vec<Value> {
    let web = deployment("web", 6);
    let database = deployment("database", 3);
    let mut agent = deployment("agent", 1);
    agent["kind"] = json!("DaemonSet");
    if let Some(spec) = agent["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    let machines =
        [machine("billing", "LiveMigrate"), machine("ledger", "LiveMigrate"), machine("reports", "None")];
    let mut all = vec![web, budget("web", 5), database, budget("database", 2), agent];
    all.extend(machines);
    all
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": {"evac.dev/stop-seconds": "1"}},
                "spec": {"containers": [{"name": "main", "image": format!("example/{name}:1")}]},
            },
        },
    })
}

fn budget(name: &str, available: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": available, "selector": {"matchLabels": {"app": name}}},
    })
}
