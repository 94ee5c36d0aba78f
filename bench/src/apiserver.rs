//! The embedded API server beside kube-apiserver with etcd: requests per CPU-second, start, memory.
//!
//! Both get the same requests from the same client over TLS, by turns, round after round. The CPU of the
//! whole server side is counted (kube-apiserver and etcd; evac), not the client's.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use crate::cluster::{Cluster, MERGE};
use crate::process::Tree;
use crate::report::{median, spread};

pub struct Size {
    rounds: usize,
    requests_per_round: usize,
    starts: usize,
    pods: usize,
}

impl Default for Size {
    fn default() -> Self {
        Self { rounds: 5, requests_per_round: 4000, starts: 3, pods: 50_000 }
    }
}

impl Size {
    pub fn quick() -> Self {
        Self { rounds: 3, requests_per_round: 1000, starts: 1, pods: 5_000 }
    }
}

const CONCURRENCY: usize = 16;

struct Side {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
}

fn sides() -> Result<[Side; 2]> {
    let program = |name: &str| -> Result<PathBuf> {
        Ok(std::env::var_os(name).with_context(|| format!("{name} is not set; use bench/run.sh"))?.into())
    };
    let dir = std::env::temp_dir().join(format!("evac-bench-{}", std::process::id()));
    let arguments = |list: &[&str]| -> Vec<String> { list.iter().map(|word| (*word).to_owned()).collect() };
    Ok([
        Side {
            name: "evac sandbox",
            program: program("EVAC")?,
            arguments: arguments(&["sandbox", "up", "--bare"]),
        },
        Side {
            name: "kube-apiserver + etcd",
            program: program("EVAC_KUBERNETES")?,
            arguments: arguments(&[
                "up",
                "--no-scheduler",
                "--no-controller-manager",
                "--dir",
                &dir.display().to_string(),
            ]),
        },
    ])
}

impl Side {
    async fn start(&self) -> Result<(Tree, Cluster, Duration)> {
        let began = now();
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let tree = Tree::start(&self.program, &arguments).await?;
        let cluster = Cluster::connect(&tree.kubeconfig).await?;
        cluster.get("/api/v1/namespaces").await?;
        Ok((tree, cluster, began.elapsed()))
    }
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures the wall")]
fn now() -> Instant {
    Instant::now()
}

pub async fn run(size: Size) -> Result<()> {
    let sides = sides()?;
    let mut starts = [Vec::new(), Vec::new()];
    for _ in 0..size.starts {
        for (side, times) in sides.iter().zip(&mut starts) {
            let (tree, _, took) = side.start().await?;
            times.push(took.as_secs_f64() * 1000.0);
            tree.stop().await;
        }
    }
    let mut running = Vec::new();
    for side in &sides {
        let (tree, cluster, _) = side.start().await?;
        cluster.namespace("bench").await?;
        running.push((side, tree, cluster));
    }
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=size.rounds {
        for ((side, tree, cluster), rates) in running.iter().zip(&mut rates) {
            let before = tree.used()?.cpu;
            let began = now();
            mixed(cluster, round, size.requests_per_round).await?;
            let wall = began.elapsed();
            let cpu = tree.used()?.cpu.saturating_sub(before);
            // The first round warms both sides up and is not counted.
            if round > 0 {
                let rate = size.requests_per_round as f64 / cpu.as_secs_f64().max(0.01);
                println!(
                    "round {round}: {:<22} {rate:>8.0} requests per CPU-second, {:>6.0} per second",
                    side.name,
                    size.requests_per_round as f64 / wall.as_secs_f64()
                );
                rates.push(rate);
            }
        }
    }
    let mut memory = Vec::new();
    for (side, tree, cluster) in &running {
        fill(cluster, size.pods).await?;
        let mib = tree.used()?.resident_kib as f64 / 1024.0;
        println!("memory: {:<22} {mib:>8.0} MiB at {} pods", side.name, size.pods);
        memory.push(mib);
    }
    for (_, tree, _) in running {
        tree.stop().await;
    }
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(ours, theirs)| ours / theirs).collect();
    let sooner: Vec<f64> = starts[0].iter().zip(&starts[1]).map(|(ours, theirs)| theirs / ours).collect();
    println!();
    println!("| measure | evac sandbox | kube-apiserver + etcd | ratio | goal |");
    println!("|---|---|---|---|---|");
    println!(
        "| requests per CPU-second, mixed | {:.0} | {:.0} | {}× more | ≥ 10 |",
        median(&rates[0]),
        median(&rates[1]),
        spread(&ratios)
    );
    println!(
        "| start to first answer, ms | {:.0} | {:.0} | {}× sooner | ≥ 50 |",
        median(&starts[0]),
        median(&starts[1]),
        spread(&sooner)
    );
    println!(
        "| memory at {} pods, MiB | {:.0} | {:.0} | {:.2} of it | ≤ 0.25 |",
        size.pods,
        memory[0],
        memory[1],
        memory[0] / memory[1]
    );
    Ok(())
}

/// Half gets, the rest creates, patches and lists.
async fn mixed(cluster: &Cluster, round: usize, requests: usize) -> Result<()> {
    let maps = "/api/v1/namespaces/bench/configmaps";
    let pods = "/api/v1/namespaces/bench/pods";
    stream::iter(0..requests / 20)
        .map(|n| async move {
            let name = format!("r{round}-{n}");
            cluster.create(pods, &pod(&name, n)).await?;
            cluster.create(maps, &json!({"metadata": {"name": name}, "data": {"key": "value"}})).await?;
            for step in 0..5 {
                cluster.send(Method::GET, &format!("{pods}/{name}"), "", Vec::new()).await?;
                cluster.send(Method::GET, &format!("{maps}/{name}"), "", Vec::new()).await?;
                let patch = json!({"metadata": {"annotations": {"step": step.to_string()}}}).to_string();
                let target = if step % 2 == 0 { pods } else { maps };
                cluster.send(Method::PATCH, &format!("{target}/{name}"), MERGE, patch.into_bytes()).await?;
            }
            for _ in 0..3 {
                let list = format!("{pods}?limit=20&labelSelector=part%3Dp{}", n % 10);
                cluster.send(Method::GET, &list, "", Vec::new()).await?;
            }
            Ok::<(), anyhow::Error>(())
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect::<()>()
        .await
}

async fn fill(cluster: &Cluster, pods: usize) -> Result<()> {
    let path = "/api/v1/namespaces/bench/pods";
    stream::iter(0..pods)
        .map(|n| async move { cluster.create(path, &pod(&format!("fill-{n}"), n)).await })
        .buffer_unordered(CONCURRENCY * 2)
        .try_collect::<()>()
        .await
}

/// A pod of ordinary size, bound to a node so that nobody waits to schedule it.
fn pod(name: &str, n: usize) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "bench", "part": format!("p{}", n % 10)}},
        "spec": {
            "nodeName": format!("node-{}", n % 100),
            "containers": [{
                "name": "main", "image": "registry.example/app:1.0",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            }],
        },
    })
}
