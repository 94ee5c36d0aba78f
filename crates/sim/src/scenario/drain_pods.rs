//! `evac drain` of a node with pods, then `evac cancel`.

use std::sync::Arc;

use anyhow::Result;
use evac_core::Policy;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;

use super::common::{deploy, differs, image, leases, only_first, pods_on, ready, served};
use super::{Play, Scenario};
use crate::process::{Ran, drainer};
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "drain-pods",
    about: "evac drain empties a node of pods",
    make: || Box::<DrainPods>::default(),
};

const PODS: usize = 4;
const NODES: usize = 3;

#[derive(Default)]
struct DrainPods {
    others: Vec<Value>,
    ran: Option<watch::Receiver<Ran>>,
}

impl Play for DrainPods {
    fn cast(&self) -> Cast {
        Cast::of(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            ready(stage, NODES).await?;
            only_first(stage, NODES, true).await?;
            deploy(stage, "web", PODS).await?;
            only_first(stage, NODES, false).await?;
            stage.pass(std::time::Duration::from_secs(5)).await;
            for n in 2..=NODES {
                self.others.push(image(stage, &format!("node-{n}")).await?);
            }
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            let mut ran = drainer(stage, "drain-kim", &["node-1"], Policy::default());
            self.ran = Some(ran.clone());
            ran.wait_for(|ran| ran.over).await?;
            Ok(())
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong: Vec<String> =
                self.ran.iter().filter_map(|ran| ran.borrow().in_the_way()).collect();
            wrong.extend(
                pods_on(stage, "node-1").await?.iter().map(|pod| format!("pod {pod} is on the node")),
            );
            let node = image(stage, "node-1").await?;
            if node["spec"]["unschedulable"] != true || node["annotations"]["evac.dev/drain"].is_null() {
                wrong.push(format!("the node that was drained is {node}"));
            }
            wrong.extend(served(stage, "web", PODS).await?);
            for (n, before) in self.others.iter().enumerate() {
                let name = format!("node-{}", n + 2);
                wrong.extend(differs(&name, before, &image(stage, &name).await?));
            }
            wrong.extend(leases(stage, false).await?);
            Ok(wrong)
        }
        .boxed()
    }
}
