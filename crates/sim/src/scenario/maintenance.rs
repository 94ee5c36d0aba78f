//! A NodeMaintenance empties a node of pods and guests, keeps it so, and gives it back when it is deleted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::common::{
    self, Guests, begin_maintenance, deploy, differs, end_maintenance, hosts, image, leases, machine,
    only_first, pods_on, served,
};
use super::{BOUND, Play, Scenario, WINDOW};
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "maintenance",
    about: "a NodeMaintenance empties a node with guests and pods, and gives it back",
    make: || Box::<Maintenance>::default(),
};

const NODES: usize = 3;
const PODS: usize = 3;
const OBJECT: &str = "disk-swap";

#[derive(Default)]
struct Maintenance {
    before: Value,
    guests: Guests,
    emptied: bool,
}

impl Play for Maintenance {
    fn cast(&self) -> Cast {
        Cast::operated(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            only_first(stage, NODES, true).await?;
            deploy(stage, "web", PODS).await?;
            for n in 1..=2 {
                machine(stage, &format!("vm-{n}"), 3).await?;
            }
            only_first(stage, NODES, false).await?;
            stage.pass(Duration::from_secs(10)).await;
            let path = format!("{}/node-1", common::NODES);
            common::taint(stage, &path, "example.com/pool", Some("PreferNoSchedule")).await?;
            self.before = image(stage, "node-1").await?;
            self.guests = Guests::seen(stage).await?;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            let path = begin_maintenance(stage, OBJECT, "node-1").await?;
            stage.until(&path, WINDOW + BOUND, |one| one["status"]["phase"] == "Succeeded").await?;
            self.emptied = pods_on(stage, "node-1").await?.is_empty();
            end_maintenance(stage, &path).await
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = Vec::new();
            if !self.emptied {
                wrong.push("the maintenance called a node empty on which there was a pod".into());
            }
            wrong.extend(differs("node-1", &self.before, &image(stage, "node-1").await?));
            wrong.extend(served(stage, "web", PODS).await?);
            wrong.extend(leases(stage, true).await?);
            wrong.extend(self.guests.wrong(stage, Some("node-1")).await?);
            Ok(wrong)
        }
        .boxed()
    }
}
