//! A VirtualMachineInstanceReplicaSet is scaled while the node of its members is emptied: in the end there are as many as were wanted last.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::common::{self, INSTANCES, hosts, template, unfinished};
use super::{Play, Scenario};
use crate::draw;
use crate::stage::{Cast, Stage};

pub const SCENARIO: Scenario = Scenario {
    name: "replica-set",
    about: "a replica set of guests is scaled while a node is emptied by a taint",
    make: || Box::<ReplicaSet>::default(),
};

const NODES: usize = 3;
const SETS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets";
const KEY: &str = "kubevirt.io/drain";

#[derive(Default)]
struct ReplicaSet {
    wanted: u64,
}

impl Play for ReplicaSet {
    fn cast(&self) -> Cast {
        Cast::operated(NODES)
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            self.wanted = 3;
            let set = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": {"name": "farm"},
                "spec": {"replicas": self.wanted, "selector": {"matchLabels": {"app": "guest"}}, "template": template(4)},
            });
            stage.create(SETS, &set).await?;
            let ready = |set: &Value| set["status"]["readyReplicas"] == 3;
            stage.until(&format!("{SETS}/farm"), Duration::from_secs(300), ready).await?;
            stage.pass(Duration::from_secs(10)).await;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            let node = format!("{}/node-1", common::NODES);
            common::taint(stage, &node, KEY, Some("NoSchedule")).await?;
            for step in 0..4 {
                let step = step.to_string();
                let draw = |what: &str, high: u64| draw::between(stage.seed, &["farm", &step, what], 0, high);
                stage.pass(Duration::from_millis(draw("pause", 20_000))).await;
                self.wanted = draw("replicas", 6);
                stage.patch(&format!("{SETS}/farm"), &json!({"spec": {"replicas": self.wanted}})).await?;
            }
            common::taint(stage, &node, KEY, None).await
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = unfinished(stage).await?;
            let all = stage.items(INSTANCES).await?.len() as u64;
            if all != self.wanted {
                wrong.push(format!("{} members are wanted, and there are {all}", self.wanted));
            }
            let set = stage.get(&format!("{SETS}/farm")).await?.unwrap_or_default();
            let ready = set["status"]["readyReplicas"].as_u64().unwrap_or_default();
            if ready != self.wanted {
                wrong.push(format!("{} members are wanted, and {ready} are said to be ready", self.wanted));
            }
            Ok(wrong)
        }
        .boxed()
    }
}
