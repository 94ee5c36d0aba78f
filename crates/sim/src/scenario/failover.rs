//! A node is cut off with guests that go on writing: a policy has it switched off, its guests start elsewhere, and it comes back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_core::machines::Roles;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::common::{
    self, INSTANCES, MACHINES, differs, hosts, image, leases, only_first, template, unfinished,
};
use super::{BOUND, Play, Scenario, WINDOW};
use crate::draw;
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "failover",
    about: "a node is cut off, fenced by a policy's agent that may be slow, broken or lie, and comes back",
    make: || Box::<Failover>::default(),
};

const NODES: usize = 4;
const GUESTS: usize = 2;
const POLICIES: &str = "/apis/evac.dev/v1alpha1/failoverpolicies";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

#[derive(Default)]
struct Failover {
    before: Value,
}

impl Play for Failover {
    fn cast(&self) -> Cast {
        Cast { nodes: NODES, roles: Roles::all(), operators: 2, fences: true }
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            let class = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
                "provisioner": "disks.example.com",
            });
            stage.create(CLASSES, &class).await?;
            for n in 1..NODES {
                let labels = json!({"metadata": {"labels": {"pool": "vms"}}});
                stage.patch(&format!("{}/node-{n}", common::NODES), &labels).await?;
            }
            only_first(stage, NODES, true).await?;
            for n in 1..=GUESTS {
                guest(stage, &format!("vm-{n}")).await?;
            }
            only_first(stage, NODES, false).await?;
            let policy = json!({
                "apiVersion": "evac.dev/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": "vms"},
                "spec": {
                    "nodeSelector": {"matchLabels": {"pool": "vms"}},
                    "notReadyFor": "1m",
                    "proof": {"agent": {"command": "fence_controller"}},
                    "maxUnhealthy": 1,
                },
            });
            stage.create(POLICIES, &policy).await?;
            stage.pass(Duration::from_secs(20)).await;
            self.before = image(stage, "node-1").await?;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            let kubelet = || stage.world.kubelet("node-1");
            kubelet().stop();
            // Sometimes it is only away for a while, and answers again while it is being judged or switched off.
            let away = draw::between(stage.seed, &["failover", "away"], 20, 400);
            if draw::share(stage.seed, &["failover", "only away"]) < 0.4 {
                stage.pass(Duration::from_secs(away)).await;
                if !stage.power().is_off("node-1") {
                    kubelet().start();
                }
            }
            for n in 1..=GUESTS {
                let runs = |vmi: &Value| vmi["status"]["phase"] == "Running";
                stage.until(&format!("{INSTANCES}/vm-{n}"), WINDOW + BOUND, runs).await?;
            }
            // Somebody repairs the machine whenever it is found to be off, until it is in use again.
            for _ in 0..80 {
                stage.pass(Duration::from_secs(5)).await;
                if stage.power().is_off("node-1") {
                    stage.power().on("node-1");
                    kubelet().reboot();
                } else if stage.field.calm() && image(stage, "node-1").await? == self.before {
                    break;
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = unfinished(stage).await?;
            for n in 1..=GUESTS {
                if stage.get(&format!("{INSTANCES}/vm-{n}")).await?.is_none() {
                    wrong.push(format!("vm-{n} has no instance"));
                }
            }
            wrong.extend(differs("node-1", &self.before, &image(stage, "node-1").await?));
            wrong.extend(leases(stage, true).await?);
            Ok(wrong)
        }
        .boxed()
    }
}

/// A machine with a disk that others could write to as well.
async fn guest(stage: &Stage, name: &str) -> Result<()> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "disks", "resources": {"requests": {"storage": "1Gi"}}},
    });
    stage.create(CLAIMS, &claim).await?;
    let mut template = template(4);
    template["spec"]["volumes"] = json!([{"name": "root", "persistentVolumeClaim": {"claimName": name}}]);
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": template},
    });
    stage.create(MACHINES, &object).await?;
    let runs = |vmi: &Value| vmi["status"]["phase"] == "Running";
    stage.until(&format!("{INSTANCES}/{name}"), Duration::from_secs(300), runs).await?;
    Ok(())
}
