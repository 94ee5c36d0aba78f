//! Two people drain two nodes at once, and the pods on both share a disruption budget.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_core::Policy;
use evac_core::machines::Roles;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::watch;

use super::common::{self, budget, deploy, leases, pods_on, ready, served};
use super::{Play, Scenario};
use crate::process::{Ran, drainer};
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "drain-budgets",
    about: "two drains of two nodes share a disruption budget",
    make: || Box::<DrainBudgets>::default(),
};

const PODS: usize = 4;
const NODES: usize = 4;

#[derive(Default)]
struct DrainBudgets {
    ran: Vec<watch::Receiver<Ran>>,
}

impl Play for DrainBudgets {
    fn cast(&self) -> Cast {
        Cast { nodes: NODES, roles: Roles::of([]), operators: 0, fences: false }
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            ready(stage, NODES).await?;
            for n in 3..=NODES {
                stage
                    .patch(&format!("{}/node-{n}", common::NODES), &json!({"spec": {"unschedulable": true}}))
                    .await?;
            }
            stage.pass(Duration::from_millis(500)).await;
            deploy(stage, "web", PODS).await?;
            budget(stage, "web", 1).await?;
            for n in 3..=NODES {
                stage
                    .patch(&format!("{}/node-{n}", common::NODES), &json!({"spec": {"unschedulable": null}}))
                    .await?;
            }
            stage.pass(Duration::from_secs(5)).await;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            for (name, node) in [("drain-kim", "node-1"), ("drain-lee", "node-2")] {
                self.ran.push(drainer(stage, name, &[node], Policy::default()));
            }
            for ran in &mut self.ran {
                ran.wait_for(|ran| ran.over).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong: Vec<String> =
                self.ran.iter().filter_map(|ran| ran.borrow().in_the_way()).collect();
            for node in ["node-1", "node-2"] {
                wrong.extend(pods_on(stage, node).await?.iter().map(|pod| format!("pod {pod} is on {node}")));
            }
            wrong.extend(served(stage, "web", PODS).await?);
            wrong.extend(leases(stage, false).await?);
            Ok(wrong)
        }
        .boxed()
    }
}
