//! A NodeMaintenance of a node that was cordoned before is deleted at any moment: the node is as it was, and nothing is begun any more.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::common::{
    self, Guests, begin_maintenance, deploy, differs, end_maintenance, hosts, image, leases, machine,
    only_first, served,
};
use super::{Play, Scenario};
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
        Cast::operated(NODES)
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
            let path = begin_maintenance(stage, OBJECT, "node-1").await?;
            let after = draw::between(stage.seed, &["cancel", "after"], 0, 40_000);
            stage.pass(Duration::from_millis(after)).await;
            end_maintenance(stage, &path).await
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
