//! A NodeMaintenance of a node that was cordoned before is deleted at any moment: the node is as it was, and nothing is begun any more.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_core::machines::Roles;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::common::{
    self, Guests, MAINTENANCES, deploy, differs, hosts, image, leases, machine, only_first, served,
};
use super::{BOUND, Play, Scenario, WINDOW};
use crate::draw;
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "cancel",
    about: "a NodeMaintenance is deleted at any moment; the node had a cordon of its own in half of the runs",
    make: || Box::<Cancel>::default(),
};

const NODES: usize = 3;
const PODS: usize = 3;
const OBJECT: &str = "mistake";

#[derive(Default)]
struct Cancel {
    before: Value,
    guests: Guests,
}

impl Play for Cancel {
    fn cast(&self) -> Cast {
        Cast { nodes: NODES, roles: Roles::all(), operators: 2, fences: false }
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            only_first(stage, NODES, true).await?;
            deploy(stage, "web", PODS).await?;
            for n in 1..=3 {
                machine(stage, &format!("vm-{n}"), 8).await?;
            }
            only_first(stage, NODES, false).await?;
            if draw::share(stage.seed, &["cancel", "cordoned before"]) < 0.5 {
                stage
                    .patch(&format!("{}/node-1", common::NODES), &json!({"spec": {"unschedulable": true}}))
                    .await?;
            }
            stage.pass(Duration::from_secs(10)).await;
            self.before = image(stage, "node-1").await?;
            self.guests = Guests::seen(stage).await?;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            let object = json!({
                "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                "metadata": {"name": OBJECT}, "spec": {"nodeName": "node-1", "reason": "none"},
            });
            stage.create(MAINTENANCES, &object).await?;
            let after = draw::between(stage.seed, &["cancel", "after"], 0, 40_000);
            stage.pass(Duration::from_millis(after)).await;
            let path = format!("{MAINTENANCES}/{OBJECT}");
            stage.delete(&path).await?;
            stage.until(&path, WINDOW + BOUND, Value::is_null).await?;
            Ok(())
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = self.guests.wrong(stage, None).await?;
            wrong.extend(differs("node-1", &self.before, &image(stage, "node-1").await?));
            wrong.extend(served(stage, "web", PODS).await?);
            wrong.extend(leases(stage, true).await?);
            Ok(wrong)
        }
        .boxed()
    }
}
