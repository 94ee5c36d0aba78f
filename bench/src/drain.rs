//! `evac drain` beside `kubectl drain` on a real Kubernetes API server with simulated nodes.
//!
//! The pods of one node leave for the other, by turns with one tool and then the other, so both see the
//! same cluster. Requests are counted by the server's audit log, which cannot be talked out of anything.
//!
//! The floor is measured, too, because a busy server needs time of its own. Without a budget it is what bare evictions
//! take: a cordon, every eviction, and a watch until the last pod is gone, with no plan and no proof, 16, 32 or 64 at once.
//! With a budget it is an eager client that watches the budget and asks for as many pods as that has room for at the
//! instant it has. And from the outside: how long the budget had room that nobody asked for (see [`crate::unused`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};
use futures::{StreamExt, TryStreamExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::process::{Tree, cpu_of_ended};
use crate::report::{median, spread};
use crate::unused::{Request, Room, unused};

/// How long every pod takes to stop.
const STOP: Duration = Duration::from_secs(1);

pub struct Case {
    pub name: &'static str,
    pods: usize,
    /// How many may be away at once; `None` without a budget.
    budget: Option<usize>,
    daemon_sets: usize,
}

pub const CASES: &[Case] = &[
    Case { name: "40 pods", pods: 40, budget: None, daemon_sets: 0 },
    Case { name: "40 pods, 2 DaemonSets", pods: 40, budget: None, daemon_sets: 2 },
    Case { name: "110 pods", pods: 110, budget: None, daemon_sets: 0 },
    Case { name: "40 pods, 5 at a time", pods: 40, budget: Some(5), daemon_sets: 0 },
];

/// How many bare evictions are under way at once.
const WIDTHS: [usize; 3] = [16, 32, 64];

pub struct Tool {
    pub name: &'static str,
    pub program: PathBuf,
    /// How its requests are found in the audit log.
    pub agent: &'static str,
}

/// One measured drain.
pub struct Measured {
    pub seconds: f64,
    pub requests: f64,
    /// What the program used.
    pub cpu: Duration,
    /// Requests that were refused with 429.
    refused: f64,
    /// What the server took for one eviction.
    eviction_ms: f64,
    /// How long the budget had room that was not asked for.
    unused: Option<f64>,
}

pub async fn run(rounds: usize) -> Result<()> {
    let program = |name: &str| -> Result<PathBuf> {
        Ok(std::env::var_os(name).with_context(|| format!("{name} is not set; use bench/run.sh"))?.into())
    };
    let kubernetes = program("EVAC_KUBERNETES")?;
    let tools = [
        Tool { name: "evac drain", program: program("EVAC")?, agent: "evac/" },
        Tool { name: "kubectl drain", program: kubernetes.with_file_name("kubectl"), agent: "kubectl" },
    ];
    println!(
        "| case | tool | seconds | over the floor | requests | refused | one eviction, ms | room unused, s | kubectl ÷ evac, seconds |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for case in CASES {
        let stage = Stage::set(&kubernetes, case).await?;
        let mut measured: [Vec<Measured>; 2] = [Vec::new(), Vec::new()];
        let mut floors: Vec<(String, Vec<f64>)> = Vec::new();
        for _ in 0..rounds {
            for (at, (name, seconds)) in stage.floors(case, &WIDTHS).await?.into_iter().enumerate() {
                match floors.get_mut(at) {
                    Some((_, all)) => all.push(seconds),
                    None => floors.push((name, vec![seconds])),
                }
            }
            for (tool, results) in tools.iter().zip(&mut measured) {
                results.push(stage.drain(tool, case).await?);
            }
        }
        stage.strike().await;
        report(case, &tools, &measured, &floors);
    }
    Ok(())
}

fn report(case: &Case, tools: &[Tool; 2], measured: &[Vec<Measured>; 2], floors: &[(String, Vec<f64>)]) {
    let seconds = |side: usize| -> Vec<f64> { measured[side].iter().map(|m| m.seconds).collect() };
    let ratios: Vec<f64> = seconds(1).iter().zip(seconds(0)).map(|(theirs, ours)| theirs / ours).collect();
    let mut floor = f64::INFINITY;
    for (name, seconds) in floors {
        floor = floor.min(median(seconds));
        println!("| {} | {name} | {:.2} |  |  |  |  |  |  |", case.name, median(seconds));
    }
    for (side, tool) in tools.iter().enumerate() {
        let requests: Vec<f64> = measured[side].iter().map(|m| m.requests).collect();
        let refused: Vec<f64> = measured[side].iter().map(|m| m.refused).collect();
        let eviction: Vec<f64> = measured[side].iter().map(|m| m.eviction_ms).collect();
        let unused: Vec<f64> = measured[side].iter().filter_map(|m| m.unused).collect();
        let unused = if unused.is_empty() { String::new() } else { format!("{:.2}", median(&unused)) };
        let ratio = if side == 0 { spread(&ratios) } else { String::new() };
        println!(
            "| {} | {} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {unused} | {ratio} |",
            case.name,
            tool.name,
            median(&seconds(side)),
            median(&seconds(side)) - floor,
            median(&requests),
            median(&refused),
            median(&eviction),
        );
    }
}

/// A real control plane, two simulated nodes, and all pods on the first.
pub struct Stage {
    tree: Tree,
    world: World,
    cluster: Cluster,
    audit: PathBuf,
    dir: PathBuf,
}

impl Stage {
    pub async fn set(kubernetes: &Path, case: &Case) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("evac-bench-drain-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let audit = dir.join("audit.log");
        let (data, log) = (dir.join("data").display().to_string(), audit.display().to_string());
        let tree = Tree::start(kubernetes, &["up", "--dir", &data, "--audit-log", &log]).await?;
        let cluster = Cluster::connect(&tree.kubeconfig).await?;
        let read = Kubeconfig::read_from(&tree.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let client = kube::Client::try_from(config)?;
        let mut nodes = NodeSpec::workers(2);
        for node in &mut nodes {
            node.pods = 250;
        }
        let options = Options { parallel_writes: 32, ..Options::kubelets_only(nodes) };
        let world = World::start(client, Clock::real(), options);
        world.idle().await;
        let stage = Self { tree, world, cluster, audit, dir };
        stage.cluster.cordon("node-2", true).await?;
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        stage.cluster.create(deployments, &deployment(case.pods)).await?;
        if let Some(budget) = case.budget {
            let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
            let spec = json!({"maxUnavailable": budget, "selector": {"matchLabels": {"app": "web"}}});
            stage.cluster.create(budgets, &json!({"metadata": {"name": "web"}, "spec": spec})).await?;
        }
        for number in 0..case.daemon_sets {
            stage.cluster.create("/apis/apps/v1/namespaces/default/daemonsets", &daemon_set(number)).await?;
        }
        stage.all_ready(case.pods).await?;
        stage.cluster.cordon("node-2", false).await?;
        Ok(stage)
    }

    /// What the work takes without a plan and a proof, by the ways to do it.
    pub async fn floors(&self, case: &Case, widths: &[usize]) -> Result<Vec<(String, f64)>> {
        if case.budget.is_some() {
            return Ok(vec![("an eager client".into(), self.eager(case).await?)]);
        }
        let mut floors = Vec::new();
        for width in widths {
            let name = format!("bare evictions, {width} at once");
            floors.push((name, self.bare_evictions(case, *width).await?));
        }
        Ok(floors)
    }

    /// Names of the pods on a node that have to leave, and from where to watch them.
    async fn pods_on(&self, node: &str) -> Result<(Vec<String>, String)> {
        let path = format!(
            "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3D{node}"
        );
        let pods = self.cluster.get(&path).await?;
        let version = pods["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned();
        let items = pods["items"].as_array().context("no list")?;
        let names = items.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned));
        Ok((names.collect(), version))
    }

    /// How long the pods of the busy node take to leave if they are only asked to.
    async fn bare_evictions(&self, case: &Case, width: usize) -> Result<f64> {
        let from = self.busy_node().await?;
        let (names, version) = self.pods_on(&from).await?;
        let began = now();
        self.cluster.cordon(&from, true).await?;
        let asking = futures::stream::iter(&names)
            .map(|name| self.cluster.evict(name))
            .buffer_unordered(width)
            .try_collect::<Vec<()>>();
        futures::try_join!(asking, self.all_left(&from, &version, names.len()))?;
        let seconds = began.elapsed().as_secs_f64();
        self.all_ready(case.pods).await?;
        self.cluster.cordon(&from, false).await?;
        Ok(seconds)
    }

    /// How long they take if somebody who does nothing else asks for as many as the budget has room for, at once.
    async fn eager(&self, case: &Case) -> Result<f64> {
        let from = self.busy_node().await?;
        let (names, version) = self.pods_on(&from).await?;
        let began = now();
        self.cluster.cordon(&from, true).await?;
        let asking = async {
            let mut budget =
                self.cluster.events("/apis/policy/v1/namespaces/default/poddisruptionbudgets").await?;
            let mut to_ask = names.clone();
            let mut under_way = futures::stream::FuturesUnordered::new();
            let mut allowed = 0;
            while !to_ask.is_empty() || !under_way.is_empty() {
                tokio::select! {
                    event = budget.next() => {
                        let event = event.context("the watch ended early")??;
                        allowed = event["object"]["status"]["disruptionsAllowed"].as_u64().unwrap_or(0);
                    }
                    Some((name, answer)) = under_way.next() => {
                        let answer: Result<()> = answer;
                        if let Err(error) = answer {
                            if !error.to_string().contains("429") {
                                return Err(error);
                            }
                            // Too early by a hair: the next event of the budget says more.
                            to_ask.push(name);
                            allowed = 0;
                        }
                    }
                }
                while (under_way.len() as u64) < allowed
                    && let Some(name) = to_ask.pop()
                {
                    under_way.push(async move {
                        let answer = self.cluster.evict(&name).await;
                        (name, answer)
                    });
                }
            }
            anyhow::Ok(())
        };
        futures::try_join!(asking, self.all_left(&from, &version, names.len()))?;
        let seconds = began.elapsed().as_secs_f64();
        self.all_ready(case.pods).await?;
        self.cluster.cordon(&from, false).await?;
        Ok(seconds)
    }

    /// Waits until so many of the pods that have to leave are gone. A busy server cuts off watchers that are too slow for it; then
    /// those that are left are counted anew.
    async fn all_left(&self, node: &str, version: &str, mut left: usize) -> Result<()> {
        let mut version = version.to_owned();
        while left > 0 {
            let path = format!(
                "/api/v1/namespaces/default/pods?resourceVersion={version}&labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3D{node}"
            );
            let mut events = self.cluster.events(&path).await?;
            while left > 0
                && let Some(event) = events.next().await
            {
                left -= usize::from(event?["type"] == "DELETED");
            }
            if left > 0 {
                let (names, newer) = self.pods_on(node).await?;
                (left, version) = (names.len(), newer);
            }
        }
        Ok(())
    }

    /// Notes what a budget allows and when, until it is stopped.
    async fn note_room(&self, notes: &std::sync::Mutex<Vec<Room>>) -> Result<()> {
        let mut events =
            self.cluster.events("/apis/policy/v1/namespaces/default/poddisruptionbudgets").await?;
        while let Some(event) = events.next().await {
            let allowed = event?["object"]["status"]["disruptionsAllowed"].as_u64().unwrap_or(0);
            if let Ok(mut notes) = notes.lock() {
                notes.push(Room { at: Clock::real().now(), allowed });
            }
        }
        bail!("the watch of the budget ended early")
    }

    /// Empties the node that has the pods, and makes the other one ready for the next turn.
    pub async fn drain(&self, tool: &Tool, case: &Case) -> Result<Measured> {
        let from = self.busy_node().await?;
        let before = self.counted(tool)?;
        let notes = std::sync::Mutex::new(Vec::new());
        let draining = async {
            let mut command = tokio::process::Command::new(&tool.program);
            command.args(["drain", &from]).env("KUBECONFIG", &self.tree.kubeconfig);
            if case.daemon_sets > 0 {
                command.arg("--ignore-daemonsets");
            }
            let (began, used) = (now(), cpu_of_ended().context("no account of CPU time")?);
            let output = command.output().await?;
            let seconds = began.elapsed().as_secs_f64();
            let cpu = cpu_of_ended().context("no account of CPU time")?.saturating_sub(used);
            anyhow::Ok((seconds, cpu, output))
        };
        let (seconds, cpu, output) = if case.budget.is_some() {
            tokio::select! {
                done = draining => done?,
                broken = self.note_room(&notes) => return Err(broken.err().context("no watch")?),
            }
        } else {
            draining.await?
        };
        if !output.status.success() {
            bail!("{} failed: {}", tool.name, String::from_utf8_lossy(&output.stderr));
        }
        self.all_ready(case.pods).await?;
        let after = self.counted(tool)?;
        let evictions = after.evictions.get(before.evictions.len()..).unwrap_or_default();
        let durations: Vec<f64> = evictions.iter().map(Request::milliseconds).collect();
        let notes = notes.into_inner().unwrap_or_default();
        let unused = case.budget.map(|_| unused(&notes, evictions));
        let uncordon = tokio::process::Command::new(&tool.program)
            .args(["uncordon", &from])
            .env("KUBECONFIG", &self.tree.kubeconfig)
            .output()
            .await?;
        if !uncordon.status.success() {
            bail!("uncordon failed: {}", String::from_utf8_lossy(&uncordon.stderr));
        }
        Ok(Measured {
            seconds,
            requests: (after.total - before.total) as f64,
            cpu,
            refused: (after.refused - before.refused) as f64,
            eviction_ms: median(&durations),
            unused,
        })
    }

    pub async fn strike(self) {
        self.world.stop().await;
        self.tree.stop().await;
        let _ = fs::remove_dir_all(&self.dir);
    }

    async fn busy_node(&self) -> Result<String> {
        let pods = self.cluster.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb").await?;
        let node = pods["items"][0]["spec"]["nodeName"].as_str().context("no pod")?;
        Ok(node.to_owned())
    }

    /// Waits, by watch, until all replicas are ready.
    async fn all_ready(&self, pods: usize) -> Result<()> {
        let all = |count: &Value| count.as_u64() == Some(pods as u64);
        let ready = |web: &Value| all(&web["status"]["readyReplicas"]) && all(&web["status"]["replicas"]);
        let path = "/apis/apps/v1/namespaces/default/deployments";
        self.cluster.until(path, |found| found.get("web").is_some_and(ready)).await
    }

    /// Finished requests of a tool so far, and how many of them were refused; watches are not requests
    /// but streams, and count once when they begin.
    fn counted(&self, tool: &Tool) -> Result<Counted> {
        let text = fs::read_to_string(&self.audit)?;
        let mut counted = Counted::default();
        for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let is_tool = event["userAgent"].as_str().is_some_and(|agent| agent.starts_with(tool.agent));
            let stage = event["stage"].as_str().unwrap_or_default();
            let is_watch = event["verb"] == "watch";
            let counts = if is_watch { stage == "ResponseStarted" } else { stage == "ResponseComplete" };
            if is_tool && counts {
                counted.total += 1;
                counted.refused += usize::from(event["responseStatus"]["code"] == 429);
                if event["objectRef"]["subresource"] == "eviction" {
                    counted.evictions.extend(Request::of(&event));
                }
            }
        }
        Ok(counted)
    }
}

/// What the audit log says about a tool.
#[derive(Default)]
struct Counted {
    total: usize,
    refused: usize,
    evictions: Vec<Request>,
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures the wall")]
fn now() -> Instant {
    Instant::now()
}

fn daemon_set(number: usize) -> Value {
    let name = format!("agent-{number}");
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example/agent"}]},
            },
        },
    })
}

fn deployment(pods: usize) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {
                    "labels": {"app": "web"},
                    "annotations": {
                        "evac.dev/stop-seconds": STOP.as_secs().to_string(),
                        "evac.dev/start-seconds": "0",
                    },
                },
                "spec": {"containers": [{"name": "main", "image": "example/web"}]},
            },
        },
    })
}
