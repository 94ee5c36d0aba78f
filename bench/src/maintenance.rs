//! Twenty maintenances at once on a real Kubernetes API server with simulated nodes: twenty nodes with fourteen pods each, which take
//! one second to stop. Once they are plain pods that end there, once the pods of a Deployment that are replaced on twenty more nodes
//! meanwhile; then the server has the replacements to do in the same seconds.
//!
//! The floor is measured in the same run: the nodes are cordoned and every pod is asked to leave, 64 at once, with no objects, plan,
//! proof or status. When nodes are cordoned and maintenances have succeeded is seen by watches from outside.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::operator::Operator;
use crate::process::Tree;
use crate::report::median;

const NODES: usize = 20;
const PODS: usize = 14;
const AT_ONCE: usize = 64;
const WEB: &str = "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb";
const OBJECTS: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";

pub async fn run(rounds: usize) -> Result<()> {
    let program = |name: &str| -> Result<PathBuf> {
        Ok(std::env::var_os(name).with_context(|| format!("{name} is not set; use bench/run.sh"))?.into())
    };
    let stage = Stage::set(&program("EVAC_KUBERNETES")?).await?;
    let operator = stage.operate(&program("EVAC")?).await?;
    println!("| {NODES} nodes, {PODS} pods each | | last node cordoned, s | last one empty, s | requests |");
    println!("|---|---|---|---|---|");
    for owner in OWNERS {
        let (mut floors, mut results) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            floors.push(stage.bare(owner).await?);
            results.push(stage.maintain(owner).await?);
        }
        let all = |part: fn(&Measured) -> f64| -> Vec<f64> { results.iter().map(part).collect() };
        let what = owner.words();
        println!("| {what} | bare cordons and evictions, {AT_ONCE} at once |  | {:.2} |  |", median(&floors));
        println!(
            "| {what} | NodeMaintenance objects, evac operator | {:.2} | {:.2} | {:.0} |",
            median(&all(|one| one.cordoned)),
            median(&all(|one| one.empty)),
            median(&all(|one| one.requests)),
        );
    }
    operator.stop().await?;
    stage.strike().await;
    Ok(())
}

/// Whose pods they are.
#[derive(Clone, Copy, PartialEq)]
pub enum Owner {
    Nobody,
    Deployment,
}

pub const OWNERS: [Owner; 2] = [Owner::Nobody, Owner::Deployment];

impl Owner {
    pub fn words(self) -> &'static str {
        match self {
            Self::Nobody => "plain pods",
            Self::Deployment => "pods of a Deployment",
        }
    }
}

pub struct Measured {
    /// Since the last object was there.
    cordoned: f64,
    /// Since the first object was asked for.
    pub empty: f64,
    pub requests: f64,
}

/// A real control plane and simulated nodes; an operator is started on it.
pub struct Stage {
    tree: Tree,
    world: World,
    cluster: Cluster,
    audit: PathBuf,
    dir: PathBuf,
}

fn pod_metadata() -> Value {
    json!({"labels": {"app": "web"}, "annotations": {"evac.dev/stop-seconds": "1"}})
}

fn containers() -> Value {
    json!([{"name": "main", "image": "example/web"}])
}

fn plain_pod(node: usize, number: usize) -> Value {
    let mut metadata = pod_metadata();
    metadata["name"] = format!("web-{node}-{number}").into();
    json!({"metadata": metadata, "spec": {"nodeName": format!("node-{node}"), "containers": containers()}})
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": NODES * PODS,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": pod_metadata(),
                "spec": {
                    "containers": containers(),
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }],
                },
            },
        },
    })
}

fn now() -> Timestamp {
    Clock::real().now()
}

fn since(from: Timestamp) -> f64 {
    now().duration_since(from).as_secs_f64()
}

impl Stage {
    pub async fn set(kubernetes: &Path) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("evac-bench-maintenance-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let audit = dir.join("audit.log");
        let (data, log) = (dir.join("data").display().to_string(), audit.display().to_string());
        let tree = Tree::start(kubernetes, &["up", "--dir", &data, "--audit-log", &log]).await?;
        let cluster = Cluster::connect(&tree.kubeconfig).await?;
        let read = Kubeconfig::read_from(&tree.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let options = Options { parallel_writes: 32, ..Options::kubelets_only(NodeSpec::workers(2 * NODES)) };
        let world = World::start(kube::Client::try_from(config)?, Clock::real(), options);
        world.idle().await;
        Ok(Self { tree, world, cluster, audit, dir })
    }

    /// Starts an operator and waits until it acts.
    pub async fn operate(&self, evac: &Path) -> Result<Operator> {
        let log = fs::File::create(self.dir.join("operator.log"))?;
        let arguments = ["--install", "--roles", "maintenance"];
        let mut operator = Operator::start(evac, &self.tree.kubeconfig, log, &arguments)?;
        operator.leads(&self.cluster).await?;
        Ok(operator)
    }

    /// Every pod is there and ready: what a round begins with.
    async fn populate(&self, owner: Owner) -> Result<()> {
        let pods = self.pods().await?.0.len();
        match owner {
            Owner::Nobody => {
                let all = (1..=NODES).flat_map(|node| (1..=PODS).map(move |number| plain_pod(node, number)));
                let created = futures::stream::iter(all).map(|pod| async move {
                    self.cluster.create("/api/v1/namespaces/default/pods", &pod).await
                });
                created.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
            }
            Owner::Deployment if pods == 0 => {
                let spare: Vec<String> =
                    (NODES + 1..=2 * NODES).map(|number| format!("node-{number}")).collect();
                for node in &spare {
                    self.cluster.cordon(node, true).await?;
                }
                self.cluster.create("/apis/apps/v1/namespaces/default/deployments", &deployment()).await?;
                self.all_ready().await?;
                for node in &spare {
                    self.cluster.cordon(node, false).await?;
                }
            }
            Owner::Deployment => {}
        }
        self.all_ready().await
    }

    async fn all_ready(&self) -> Result<()> {
        let ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions
                .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
        };
        self.cluster.until(WEB, |all| all.len() == NODES * PODS && all.values().all(ready)).await
    }

    /// The pods, and from where to watch them.
    async fn pods(&self) -> Result<(Vec<Value>, String)> {
        let mut list = self.cluster.get(WEB).await?;
        let version = list["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned();
        let Value::Array(items) = list["items"].take() else { bail!("no list") };
        Ok((items, version))
    }

    /// The nodes with pods, the pods, and from where to watch them.
    async fn busy(&self) -> Result<(BTreeSet<String>, BTreeSet<String>, String)> {
        let (items, version) = self.pods().await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let nodes: BTreeSet<String> = items.iter().filter_map(|pod| text(&pod["spec"]["nodeName"])).collect();
        if nodes.len() != NODES {
            bail!("{} nodes have pods, not {NODES}", nodes.len());
        }
        Ok((nodes, items.iter().filter_map(|pod| text(&pod["metadata"]["name"])).collect(), version))
    }

    /// Waits until none of these pods is left. Whoever is cut off by the server looks what there is and goes on from there.
    async fn all_left(&self, pods: &BTreeSet<String>, version: &str) -> Result<()> {
        let (mut left, mut version) = (pods.clone(), version.to_owned());
        while !left.is_empty() {
            let path = format!("{WEB}&resourceVersion={version}");
            let mut events = self.cluster.events(&path).await?;
            while let Some(event) = events.next().await {
                let event = event?;
                if event["type"] == "DELETED" {
                    left.remove(event["object"]["metadata"]["name"].as_str().unwrap_or_default());
                }
                if left.is_empty() {
                    return Ok(());
                }
            }
            let (there, now) = self.pods().await?;
            let names: BTreeSet<&str> =
                there.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
            left.retain(|name| names.contains(name.as_str()));
            version = now;
        }
        Ok(())
    }

    /// Waits until no object is left: the operator takes its finalizer off last, and the next turn makes objects of the same names.
    async fn all_ended(&self) -> Result<()> {
        loop {
            let list = self.cluster.get(OBJECTS).await?;
            if list["items"].as_array().is_none_or(Vec::is_empty) {
                return Ok(());
            }
            let version = list["metadata"]["resourceVersion"].as_str().context("no version")?;
            let mut events = self.cluster.events(&format!("{OBJECTS}?resourceVersion={version}")).await?;
            while let Some(event) = events.next().await {
                if event?["type"] == "DELETED" {
                    break;
                }
            }
        }
    }

    /// Plain pods do not come back.
    async fn all_back(&self, owner: Owner) -> Result<()> {
        if owner == Owner::Deployment { self.all_ready().await } else { Ok(()) }
    }

    pub async fn bare(&self, owner: Owner) -> Result<f64> {
        self.populate(owner).await?;
        let (nodes, pods, version) = self.busy().await?;
        let began = now();
        let asking = async {
            let cordons = futures::stream::iter(&nodes).map(|node| self.cluster.cordon(node, true));
            cordons.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
            let evictions = futures::stream::iter(&pods).map(|pod| self.cluster.evict(pod));
            evictions.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await
        };
        futures::try_join!(asking, self.all_left(&pods, &version))?;
        let seconds = since(began);
        self.all_back(owner).await?;
        for node in &nodes {
            self.cluster.cordon(node, false).await?;
        }
        Ok(seconds)
    }

    pub async fn maintain(&self, owner: Owner) -> Result<Measured> {
        self.populate(owner).await?;
        let (nodes, ..) = self.busy().await?;
        let before = self.requests()?;
        let began = now();
        let asking = async {
            let objects = futures::stream::iter(&nodes).map(|node| {
                let object = json!({
                    "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                    "metadata": {"name": node}, "spec": {"nodeName": node, "reason": "bench"},
                });
                async move { self.cluster.create(OBJECTS, &object).await }
            });
            objects.buffer_unordered(NODES).try_collect::<Vec<()>>().await?;
            anyhow::Ok(now())
        };
        let cordoned = async {
            let all = |seen: &std::collections::BTreeMap<String, Value>| {
                nodes
                    .iter()
                    .all(|node| seen.get(node).is_some_and(|node| node["spec"]["unschedulable"] == true))
            };
            self.cluster.until("/api/v1/nodes", all).await?;
            anyhow::Ok(now())
        };
        let empty = async {
            let all = |seen: &std::collections::BTreeMap<String, Value>| {
                nodes
                    .iter()
                    .all(|node| seen.get(node).is_some_and(|object| object["status"]["phase"] == "Succeeded"))
            };
            self.cluster.until(OBJECTS, all).await?;
            anyhow::Ok(now())
        };
        let (there, cordoned, empty) = futures::try_join!(asking, cordoned, empty)?;
        let requests = self.requests()? - before;
        for node in &nodes {
            let path = format!("{OBJECTS}/{node}");
            self.cluster.send(http::Method::DELETE, &path, "", Vec::new()).await?;
        }
        self.cluster
            .until("/api/v1/nodes", |seen| {
                seen.len() == 2 * NODES && seen.values().all(|node| node["spec"]["unschedulable"] != true)
            })
            .await?;
        self.all_ended().await?;
        self.all_back(owner).await?;
        Ok(Measured {
            cordoned: cordoned.duration_since(there).as_secs_f64(),
            empty: empty.duration_since(began).as_secs_f64(),
            requests: requests as f64,
        })
    }

    /// Requests of the operator so far.
    fn requests(&self) -> Result<usize> {
        let text = fs::read_to_string(&self.audit)?;
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(events
            .filter(|event| {
                let stage = event["stage"].as_str().unwrap_or_default();
                let counts = if event["verb"] == "watch" { "ResponseStarted" } else { "ResponseComplete" };
                stage == counts
                    && event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("evac/"))
                    && event["objectRef"]["name"] != "evac-operator"
            })
            .count())
    }

    pub async fn strike(self) {
        self.world.stop().await;
        self.tree.stop().await;
        let _ = fs::remove_dir_all(&self.dir);
    }
}
