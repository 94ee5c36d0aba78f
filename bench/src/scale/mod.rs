//! What an operator costs in a large cluster in which nothing happens: memory, time and CPU until it is ready, and CPU while it waits.
//!
//! The cluster is in the store of the sandbox's API server, in a process of its own; the operator is started on it once for each set of
//! roles, and for all roles on clusters of a tenth and a hundredth of the size, which says how its costs grow. There are no kubelets:
//! nothing changes, and that nothing was written but the operator's own lease is checked.

pub mod objects;
mod server;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use evac_clock::Clock;

use crate::cluster::Cluster;
use crate::operator::Operator;
use crate::process::{Tree, peak_kib, proportional_kib};

pub use server::serve;

/// All that can be asked for; failover has to be named.
const ALL: &str = "all,failover";
const ROLES: [&str; 5] = ["maintenance", "machines,evacuation,budget", "tenants", "failover", ALL];
/// How long an operator is watched while it has nothing to do.
const IDLE: Duration = Duration::from_secs(20);
/// An operator is at rest when it has used no more than so much CPU time within a second.
const AT_REST: Duration = Duration::from_millis(20);
/// It does not come to rest: what is measured then is no idle operator.
const RESTLESS: usize = 60;

/// How large a cluster is.
#[derive(Clone, Copy)]
pub struct Size {
    nodes: usize,
    instances: usize,
    pods: usize,
    budgets: usize,
}

impl Size {
    /// Everything in proportion: 5,000 nodes, 50,000 other pods and 10,000 budgets for 100,000 instances.
    pub fn of(instances: usize) -> Self {
        Self { nodes: instances / 20, instances, pods: instances / 2, budgets: instances / 10 }
    }
}

struct Measured {
    ready: f64,
    cpu: f64,
    /// CPU time of the server meanwhile, which shares the machine.
    server_cpu: f64,
    peak_mib: f64,
    steady_mib: f64,
    /// The share of one core, in percent.
    idle: f64,
    /// Changes of the cluster; the operator's own lease is renewed.
    writes: u64,
}

pub async fn run(instances: usize) -> Result<()> {
    let evac: PathBuf = std::env::var_os("EVAC").context("EVAC is not set; use bench/run.sh")?.into();
    println!(
        "| instances | roles | peak, MiB | steady, MiB | ready, s | CPU until ready, s | server's CPU meanwhile, s | idle, % of a core | writes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut growth = Vec::new();
    for part in [100, 10, 1] {
        let size = Size::of(instances / part);
        let stage = Stage::set(size).await?;
        for roles in ROLES.into_iter().filter(|roles| part == 1 || *roles == ALL) {
            let measured = stage.measure(&evac, roles).await?;
            print(size, roles, &measured);
            if roles == ALL {
                growth.push((size.instances as f64, measured));
            }
        }
        stage.strike().await;
    }
    let exponent = |part: fn(&Measured) -> f64| {
        exponent(&growth.iter().map(|(size, measured)| (*size, part(measured))).collect::<Vec<_>>())
    };
    println!();
    println!(
        "All roles grow with the number of instances to the power of: peak {:.2}, steady {:.2}, ready {:.2}, CPU until ready {:.2}.",
        exponent(|one| one.peak_mib),
        exponent(|one| one.steady_mib),
        exponent(|one| one.ready),
        exponent(|one| one.cpu),
    );
    Ok(())
}

fn print(size: Size, roles: &str, measured: &Measured) {
    println!(
        "| {} | {roles} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {:.2} | {} |",
        size.instances,
        measured.peak_mib,
        measured.steady_mib,
        measured.ready,
        measured.cpu,
        measured.server_cpu,
        measured.idle,
        measured.writes,
    );
}

/// The slope of the straight line through the logarithms that fits best.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(size, cost)| (size.ln(), cost.ln())).collect();
    let count = logs.len() as f64;
    let (x, y) = logs.iter().fold((0.0, 0.0), |sum, log| (sum.0 + log.0 / count, sum.1 + log.1 / count));
    let along: f64 = logs.iter().map(|log| (log.0 - x) * (log.1 - y)).sum();
    along / logs.iter().map(|log| (log.0 - x).powi(2)).sum::<f64>()
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures the wall")]
fn now() -> Instant {
    Instant::now()
}

/// A server with a cluster in its store.
struct Stage {
    tree: Tree,
    cluster: Cluster,
    dir: PathBuf,
}

impl Stage {
    async fn set(size: Size) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("evac-bench-scale-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let kubeconfig = dir.join("kubeconfig").display().to_string();
        let arguments = ["scale-server", &size.instances.to_string(), &kubeconfig];
        let tree = Tree::start(&std::env::current_exe()?, &arguments).await?;
        let cluster = Cluster::connect(&kubeconfig).await?;
        Ok(Self { tree, cluster, dir })
    }

    async fn measure(&self, evac: &Path, roles: &str) -> Result<Measured> {
        let log = File::create(self.dir.join("operator.log"))?;
        let (version, server_cpu) = (self.version().await?, self.tree.used()?.cpu);
        let began = now();
        let mut operator = Operator::start(evac, &self.tree.kubeconfig, log, &["--roles", roles])?;
        operator.ready().await?;
        let ready = began.elapsed().as_secs_f64();
        let cpu = operator.cpu()?.as_secs_f64();
        let server_cpu = self.tree.used()?.cpu.saturating_sub(server_cpu).as_secs_f64();
        rest(&operator).await?;
        let (began, used) = (now(), operator.cpu()?);
        Clock::real().sleep(IDLE).await;
        let idle = operator.cpu()?.saturating_sub(used).as_secs_f64() / began.elapsed().as_secs_f64();
        let mib = |kib: Option<u64>| kib.map(|kib| kib as f64 / 1024.0).context("the operator has ended");
        let pid = operator.pid()?;
        let measured = Measured {
            ready,
            cpu,
            server_cpu,
            peak_mib: mib(peak_kib(pid))?,
            steady_mib: mib(proportional_kib(pid))?,
            idle: idle * 100.0,
            writes: self.version().await? - version,
        };
        operator.stop().await?;
        Ok(measured)
    }

    /// How often the cluster has been changed.
    async fn version(&self) -> Result<u64> {
        let list = self.cluster.get("/api/v1/namespaces?limit=1").await?;
        list["metadata"]["resourceVersion"].as_str().context("no version")?.parse().context("no number")
    }

    async fn strike(self) {
        self.tree.stop().await;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Waits until an operator has done what it does after its start.
async fn rest(operator: &Operator) -> Result<()> {
    for _ in 0..RESTLESS {
        let used = operator.cpu()?;
        Clock::real().sleep(Duration::from_secs(1)).await;
        if operator.cpu()?.saturating_sub(used) <= AT_REST {
            return Ok(());
        }
    }
    anyhow::bail!("the operator has not come to rest within {RESTLESS} s although nothing changes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_in_proportion_have_the_exponent_one_and_constant_ones_zero() {
        let linear = [(1.0, 3.0), (10.0, 30.0), (100.0, 300.0)];
        assert!((exponent(&linear) - 1.0).abs() < 1e-9);
        assert!(exponent(&linear.map(|(size, _)| (size, 5.0))).abs() < 1e-9);
        let square = linear.map(|(size, cost)| (size, cost * cost));
        assert!((exponent(&square) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn objects_are_as_large_as_those_of_a_real_cluster() {
        for (object, least, most) in [
            (objects::node(7), 8_000, 20_000),
            (objects::instance(7, 10), 5_000, 10_000),
            (objects::launcher(7, 10), 7_000, 14_000),
            (objects::pod(7, 10), 4_000, 8_000),
            (objects::guard(20), 1_000, 2_500),
            (objects::budget(20), 800, 2_500),
        ] {
            let size = object.to_string().len();
            assert!((least..=most).contains(&size), "{} bytes: {}", size, object["kind"]);
        }
    }
}
