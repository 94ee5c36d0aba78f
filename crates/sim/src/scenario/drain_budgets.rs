//! Two people drain two nodes at once, and the pods on both share a disruption budget.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_core::Policy;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::common::{all_over, budget, deploy, leases, only_firsts, pods_on, ready, served};
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
        Cast::of(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            ready(stage, NODES).await?;
            only_firsts(stage, 2, NODES, true).await?;
            deploy(stage, "web", PODS).await?;
            budget(stage, "web", 1).await?;
            only_firsts(stage, 2, NODES, false).await?;
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
            all_over(&mut self.ran).await
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
