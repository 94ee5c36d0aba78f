//! Several want the same nodes: two drains one node, and a maintenance one that a remediation operator holds. One of them works, and nothing of another is
//! touched.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_core::Policy;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::common::{
    self, begin_maintenance, budget, deploy, differs, end_maintenance, image, only_first, pods_on, ready,
    served,
};
use super::{Play, Scenario};
use crate::draw;
use crate::process::{Ran, drainer};
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "tug",
    about: "two drains want one node, and a maintenance wants one that a remediation operator holds",
    make: || Box::<Tug>::default(),
};

const NODES: usize = 3;
const PODS: usize = 4;
const OBJECT: &str = "tug";
const NAMESPACES: &str = "/api/v1/namespaces";
const REMEDIATION: &str = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases";

#[derive(Default)]
struct Tug {
    held: Value,
    ran: Vec<watch::Receiver<Ran>>,
}

impl Play for Tug {
    fn cast(&self) -> Cast {
        Cast::operated(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            ready(stage, NODES).await?;
            only_first(stage, NODES, true).await?;
            deploy(stage, "web", PODS).await?;
            budget(stage, "web", 1).await?;
            only_first(stage, NODES, false).await?;
            let path = format!("{}/node-2", common::NODES);
            stage.patch(&path, &json!({"spec": {"unschedulable": true}})).await?;
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "medik8s-leases"}});
            // It may be there already.
            stage.try_send("POST", NAMESPACES, "application/json", &namespace).await?;
            let now = format!("{:.6}", stage.clock.now());
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-node-2"},
                "spec": {
                    "holderIdentity": "node-healthcheck-controller", "leaseDurationSeconds": 7200,
                    "acquireTime": now, "renewTime": now, "leaseTransitions": 0,
                },
            });
            stage.create(REMEDIATION, &lease).await?;
            stage.pass(Duration::from_secs(10)).await;
            self.held = image(stage, "node-2").await?;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            // Who holds a node says so again and again.
            let renewed = json!({"spec": {"renewTime": format!("{:.6}", stage.clock.now())}});
            stage.patch(&format!("{REMEDIATION}/node-node-2"), &renewed).await?;
            let path = begin_maintenance(stage, OBJECT, "node-2").await?;
            for name in ["drain-kim", "drain-lee"] {
                self.ran.push(drainer(stage, name, &["node-1"], Policy::default()));
                let pause = draw::between(stage.seed, &["tug", name], 0, 3_000);
                stage.pass(Duration::from_millis(pause)).await;
            }
            let over =
                self.ran.iter_mut().map(|ran| async { ran.wait_for(|ran| ran.over).await.is_ok() }.boxed());
            futures::future::select_all(over).await;
            end_maintenance(stage, &path).await
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong: Vec<String> = pods_on(stage, "node-1")
                .await?
                .iter()
                .map(|pod| format!("pod {pod} is on the node"))
                .collect();
            let node = image(stage, "node-1").await?;
            let mark = node["annotations"]["evac.dev/drain"].as_str().unwrap_or_default();
            if node["spec"]["unschedulable"] != true || !mark.contains("\"drain-") {
                wrong.push(format!("the node that was drained is {node}"));
            }
            if mark.contains("\"before\":{\"unschedulable\":true") {
                wrong.push(format!("a drain took the cordon of the other for what was there before: {mark}"));
            }
            wrong.extend(served(stage, "web", PODS).await?);
            wrong.extend(differs("node-2", &self.held, &image(stage, "node-2").await?));
            let lease = stage.get(&format!("{REMEDIATION}/node-node-2")).await?.unwrap_or_default();
            if lease["spec"]["holderIdentity"] != "node-healthcheck-controller" {
                wrong.push(format!("the lease of the remediation operator is {lease}"));
            }
            Ok(wrong)
        }
        .boxed()
    }
}
