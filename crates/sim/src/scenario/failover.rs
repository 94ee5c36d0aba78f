//! A node is cut off with guests that go on writing: it is switched off by a policy, by a person's agent or by hand, its guests start elsewhere, and it
//! comes back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use evac_core::failover::{How, ProofFrom};
use evac_engine::failover::Fence;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::common::{
    self, INSTANCES, MACHINES, differs, hosts, image, leases, only_first, template, unfinished,
};
use super::{BOUND, Play, Scenario, WINDOW};
use crate::draw;
use crate::power::Controller;
use crate::process::{fail_over, give_back};
use crate::stage::{Cast, Stage};

pub const BY_POLICY: Scenario = Scenario {
    name: "failover-policy",
    about: "a node is cut off, fenced by a policy's agent that may be slow, broken or lie, and comes back",
    make: || Failover::by(By::Policy),
};

pub const BY_AGENT: Scenario = Scenario {
    name: "failover-agent",
    about: "a person fails a node over that is cut off, by an agent that may be slow, broken or lie, and gives it back",
    make: || Failover::by(By::Agent),
};

pub const BY_STATEMENT: Scenario = Scenario {
    name: "failover-statement",
    about: "a person unplugs a node that is cut off, says so, and gives it back when it is repaired",
    make: || Failover::by(By::Statement),
};

/// On whose word the machine is taken for off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Policy,
    Agent,
    Statement,
}

const NODE: &str = "node-1";
/// The person who runs `evac failover`.
const PERSON: &str = "failover-pat";
/// A node that was cut off is called unreachable by then.
const UNREACHABLE: Duration = Duration::from_secs(60);

const NODES: usize = 4;
const GUESTS: usize = 2;
const POLICIES: &str = "/apis/evac.dev/v1alpha1/failoverpolicies";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

struct Failover {
    by: By,
    before: Value,
}

impl Failover {
    fn by(by: By) -> Box<dyn Play> {
        Box::new(Self { by, before: Value::Null })
    }

    /// A person sees that the node is gone, has its machine switched off or does so, and fails it over.
    async fn by_hand(&self, stage: &Arc<Stage>) -> Result<()> {
        stage.pass(UNREACHABLE).await;
        let proof = if self.by == By::Agent {
            let pause = Duration::from_secs(5);
            let fence = Fence { switch: Controller::of(stage), tries: 3, pause };
            (fence.proof(), Some(fence))
        } else {
            stage.world.kubelet(NODE).power_off();
            stage.power().unplug(NODE);
            (ProofFrom::Said(How::Statement { by: "pat".into(), reason: "unplugged".into() }), None)
        };
        fail_over(stage, PERSON, NODE, &proof).boxed().await
    }
}

impl Play for Failover {
    fn cast(&self) -> Cast {
        Cast { fences: self.by == By::Policy, cuts: true, ..Cast::operated(NODES) }
    }

    fn furnish<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            hosts(stage, NODES).await?;
            let class = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
                "provisioner": "disks.example.com",
            });
            stage.create(CLASSES, &class).await?;
            for n in 1..NODES {
                let labels = json!({"metadata": {"labels": {"pool": "vms"}}});
                stage.patch(&format!("{}/node-{n}", common::NODES), &labels).await?;
            }
            only_first(stage, NODES, true).await?;
            for n in 1..=GUESTS {
                guest(stage, &format!("vm-{n}")).await?;
            }
            only_first(stage, NODES, false).await?;
            let policy = json!({
                "apiVersion": "evac.dev/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": "vms"},
                "spec": {
                    "nodeSelector": {"matchLabels": {"pool": "vms"}},
                    "notReadyFor": "1m",
                    "proof": {"agent": {"command": "fence_controller"}},
                    "maxUnhealthy": 1,
                },
            });
            if self.by == By::Policy {
                stage.create(POLICIES, &policy).await?;
            }
            stage.pass(Duration::from_secs(20)).await;
            self.before = image(stage, NODE).await?;
            Ok(())
        }
        .boxed()
    }

    fn act<'a>(&'a mut self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<()>> {
        async move {
            let kubelet = || stage.world.kubelet(NODE);
            kubelet().stop();
            stage.power().cut_off(NODE);
            // Sometimes it is only away for a while, and answers again while it is being judged or switched off.
            let away = draw::between(stage.seed, &["failover", "away"], 20, 400);
            let only_away =
                self.by != By::Statement && draw::share(stage.seed, &["failover", "only away"]) < 0.4;
            if only_away {
                stage.pass(Duration::from_secs(away)).await;
                if !stage.power().is_off(NODE) {
                    kubelet().start();
                    stage.power().answers(NODE, stage.book.millis());
                }
            }
            if self.by != By::Policy {
                self.by_hand(stage).await?;
            }
            // In most runs nobody repairs the machine before its guests are back elsewhere.
            let patient = !only_away && draw::share(stage.seed, &["failover", "patient"]) < 0.7;
            for n in 1..=GUESTS {
                let runs = |vmi: &Value| {
                    vmi["status"]["phase"] == "Running" && (!patient || vmi["status"]["nodeName"] != NODE)
                };
                stage.until(&format!("{INSTANCES}/vm-{n}"), WINDOW + BOUND, runs).await?;
            }
            // Somebody repairs the machine whenever it is found to be off, until it is in use again.
            for _ in 0..80 {
                stage.pass(Duration::from_secs(5)).await;
                if stage.power().is_off(NODE) {
                    stage.power().on(NODE);
                    kubelet().reboot();
                    stage.power().answers(NODE, stage.book.millis());
                    if self.by != By::Policy {
                        let path = format!("{}/{NODE}", common::NODES);
                        stage.until(&path, WINDOW + BOUND, common::is_ready).await?;
                        give_back(stage, PERSON, NODE).await?;
                    }
                } else if stage.field.calm() && image(stage, NODE).await? == self.before {
                    break;
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn wrong<'a>(&'a self, stage: &'a Arc<Stage>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut wrong = unfinished(stage).await?;
            for n in 1..=GUESTS {
                if stage.get(&format!("{INSTANCES}/vm-{n}")).await?.is_none() {
                    wrong.push(format!("vm-{n} has no instance"));
                }
            }
            wrong.extend(differs(NODE, &self.before, &image(stage, NODE).await?));
            wrong.extend(leases(stage, true).await?);
            Ok(wrong)
        }
        .boxed()
    }
}

/// A machine with a disk that others could write to as well.
async fn guest(stage: &Stage, name: &str) -> Result<()> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "disks", "resources": {"requests": {"storage": "1Gi"}}},
    });
    stage.create(CLAIMS, &claim).await?;
    let mut template = template(4);
    template["spec"]["volumes"] = json!([{"name": "root", "persistentVolumeClaim": {"claimName": name}}]);
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": template},
    });
    stage.create(MACHINES, &object).await?;
    let runs = |vmi: &Value| vmi["status"]["phase"] == "Running";
    stage.until(&format!("{INSTANCES}/{name}"), Duration::from_secs(300), runs).await?;
    Ok(())
}
