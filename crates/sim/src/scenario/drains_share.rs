//! Two people drain two nodes full of guests at once: the limits of migrations hold for both together.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_core::Policy;
use evac_core::machines::Roles;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::watch;

use super::common::{self, Guests, hosts, leases, machine};
use super::{Play, Scenario};
use crate::process::{Ran, drainer};
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "drains-share",
    about: "two drains of two nodes with guests share the limits of migrations",
    make: || Box::<DrainsShare>::default(),
};

const NODES: usize = 4;
const GUESTS: usize = 4;

#[derive(Default)]
struct DrainsShare {
    guests: Guests,
    ran: Vec<watch::Receiver<Ran>>,
}

impl Play for DrainsShare {
    fn cast(&self) -> Cast {
        Cast { nodes: NODES, roles: Roles::all(), operators: 2, fences: false }
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            cordon(stage, true).await?;
            for n in 1..=GUESTS {
                machine(stage, &format!("vm-{n}"), 6).await?;
            }
            cordon(stage, false).await?;
            stage.pass(Duration::from_secs(10)).await;
            self.guests = Guests::seen(stage).await?;
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
                wrong.extend(self.guests.wrong(stage, Some(node)).await?);
            }
            wrong.extend(leases(stage, false).await?);
            Ok(wrong)
        }
        .boxed()
    }
}

/// Guests start on the first two nodes only.
async fn cordon(stage: &Stage, closed: bool) -> Result<()> {
    for n in 3..=NODES {
        let closed = if closed { json!(true) } else { serde_json::Value::Null };
        stage
            .patch(&format!("{}/node-{n}", common::NODES), &json!({"spec": {"unschedulable": closed}}))
            .await?;
    }
    stage.pass(Duration::from_millis(500)).await;
    Ok(())
}
