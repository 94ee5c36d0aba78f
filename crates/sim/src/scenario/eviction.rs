//! A person evicts the pods of guests again and again, as `kubectl drain` does: each guest is moved once, and then its pod may go.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::common::{self, Guests, hosts, leases, machine, only_first, pods_on};
use super::{Play, Scenario};
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "evacuate-eviction",
    about: "evictions of the pods of guests, as kubectl drain sends them, move the guests",
    make: || Box::<Eviction>::default(),
};

const NODES: usize = 3;
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Eviction {
    guests: Guests,
}

impl Play for Eviction {
    fn cast(&self) -> Cast {
        Cast::operated(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            only_first(stage, NODES, true).await?;
            for n in 1..=3 {
                machine(stage, &format!("vm-{n}"), 4).await?;
            }
            only_first(stage, NODES, false).await?;
            stage.pass(Duration::from_secs(10)).await;
            self.guests = Guests::seen(stage).await?;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            stage.patch(&format!("{}/node-1", common::NODES), &json!({"spec": {"unschedulable": true}})).await?;
            loop {
                let pods = pods_on(stage, "node-1").await?;
                if pods.is_empty() {
                    break;
                }
                for pod in pods {
                    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}});
                    // Refused with 429 until the guest has left, and with 500 while no operator answers.
                    let path = format!("{}/{pod}/eviction", common::PODS);
                    stage.try_send("POST", &path, "application/json", &body).await?;
                }
                stage.pass(AGAIN).await;
            }
            stage.patch(&format!("{}/node-1", common::NODES), &json!({"spec": {"unschedulable": Value::Null}})).await?;
            Ok(())
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = self.guests.wrong(stage, Some("node-1")).await?;
            wrong.extend(leases(stage, true).await?);
            Ok(wrong)
        }
        .boxed()
    }
}
