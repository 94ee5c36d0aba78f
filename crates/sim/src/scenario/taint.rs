//! A person puts the drain taint on a node: its guests are moved, once each, and stay as they are.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::common::{self, Guests, differs, hosts, image, leases, machine, only_first};
use super::{BOUND, Play, Scenario, WINDOW};
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "evacuate-taint",
    about: "a taint of a person has the guests of a node moved away, and is taken off again",
    make: || Box::<Taint>::default(),
};

const NODES: usize = 3;
const KEY: &str = "kubevirt.io/drain";

#[derive(Default)]
struct Taint {
    before: Value,
    guests: Guests,
}

impl Play for Taint {
    fn cast(&self) -> Cast {
        Cast::operated(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            only_first(stage, NODES, true).await?;
            for n in 1..=4 {
                machine(stage, &format!("vm-{n}"), 4).await?;
            }
            only_first(stage, NODES, false).await?;
            stage.pass(Duration::from_secs(10)).await;
            self.before = image(stage, "node-1").await?;
            self.guests = Guests::seen(stage).await?;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            let path = format!("{}/node-1", common::NODES);
            common::taint(stage, &path, KEY, Some("NoSchedule")).await?;
            for (name, _) in self.guests.all() {
                let elsewhere = |vmi: &Value| {
                    vmi["status"]["phase"] == "Running" && vmi["status"]["nodeName"] != "node-1"
                };
                stage.until(&format!("{}/{name}", common::INSTANCES), WINDOW + BOUND, elsewhere).await?;
            }
            common::taint(stage, &path, KEY, None).await
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = self.guests.wrong(stage, Some("node-1")).await?;
            wrong.extend(differs("node-1", &self.before, &image(stage, "node-1").await?));
            wrong.extend(leases(stage, true).await?);
            Ok(wrong)
        }
        .boxed()
    }
}
