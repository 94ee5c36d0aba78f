//! Two people drain two nodes full of guests at once: the limits of migrations hold for both together.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_core::Policy;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::common::{Guests, all_over, hosts, leases, machine, only_firsts};
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
        Cast::operated(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            only_firsts(stage, 2, NODES, true).await?;
            for n in 1..=GUESTS {
                machine(stage, &format!("vm-{n}"), 6).await?;
            }
            only_firsts(stage, 2, NODES, false).await?;
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
            all_over(&mut self.ran).await
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
