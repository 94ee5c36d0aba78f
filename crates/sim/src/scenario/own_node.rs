//! The operators run in pods of the cluster, all of them on the node that is to be emptied: they leave it, and the maintenance goes on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::common::{
    Guests, begin_maintenance, budget, deploy, differs, end_maintenance, hosts, image, leases, machine,
    only_first, pods_on, served,
};
use super::{BOUND, Play, Scenario, WINDOW};
use crate::process::operators_in_pods;
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "own-node",
    about: "the operators' own pods are on the node that is emptied",
    make: || Box::<OwnNode>::default(),
};

const NODES: usize = 3;
const OPERATORS: usize = 2;
const APP: &str = "evac-operator";
const OBJECT: &str = "own";

#[derive(Default)]
struct OwnNode {
    before: Value,
    guests: Guests,
}

impl Play for OwnNode {
    fn cast(&self) -> Cast {
        // They are pods here, and started by them.
        Cast { operators: 0, ..Cast::operated(NODES) }
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            super::common::ready(stage, NODES).await?;
            only_first(stage, NODES, true).await?;
            operators_in_pods(stage, APP, &self.cast());
            deploy(stage, APP, OPERATORS).await?;
            budget(stage, APP, 1).await?;
            hosts(stage, NODES).await?;
            machine(stage, "vm-1", 4).await?;
            only_first(stage, NODES, false).await?;
            stage.pass(Duration::from_secs(20)).await;
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
            let left = pods_on(stage, "node-1").await?;
            if !left.is_empty() {
                stage.book.violate("end", format!("the node is called empty and has {left:?}"));
            }
            end_maintenance(stage, &path).await
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = self.guests.wrong(stage, Some("node-1")).await?;
            wrong.extend(differs("node-1", &self.before, &image(stage, "node-1").await?));
            wrong.extend(served(stage, APP, OPERATORS).await?);
            wrong.extend(leases(stage, true).await?);
            Ok(wrong)
        }
        .boxed()
    }
}
