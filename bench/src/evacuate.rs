//! Emptying a node of virtual machines on a real Kubernetes API server with simulated nodes and hypervisors, by `evac drain` and by
//! `kubectl drain` against the operator's roles.
//!
//! Every migration takes five seconds and two run at once, so the floor is the number of guests, divided by two, times five.
//! Requests are counted by the server's audit log, by whose they are. When migrations begin and end is seen by a watch from outside.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use evac_clock::Clock;
use evac_world::World;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::process::{Child, Command};

use crate::audit::Audit;
use crate::cluster::Cluster;
use crate::guests::{self, MIGRATION_SECONDS};
use crate::process::{Tree, cpu};
use crate::report::median;
use crate::tool::{Ground, Programs, Tool, agent, in_order, seconds, sender};

/// How many may leave a node at once, by KubeVirt's default.
const AT_ONCE: usize = 2;

pub async fn run(guests: &[usize]) -> Result<()> {
    let programs = Programs::find()?;
    println!(
        "| guests | tool | seconds | ÷ floor | slot refill p50, s | copy to copy p50, s | tool's requests | refused | requests per guest: all = tool + operator + nodes + Kubernetes | operator's CPU per guest, ms | pod gone → ended, s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for count in guests {
        for tool in [Tool::Evac, Tool::Kubectl] {
            let stage = Stage::set(&programs, *count).await?;
            let measured = stage.empty(tool, &programs).await;
            stage.strike().await;
            print(*count, tool, &measured?);
        }
    }
    Ok(())
}

fn print(count: usize, tool: Tool, measured: &Measured) {
    let floor = count as f64 / AT_ONCE as f64 * MIGRATION_SECONDS;
    let per_guest = |amount: usize| amount as f64 / count as f64;
    let parts = Party::ALL.map(|party| measured.by_party.get(&party).copied().unwrap_or(0));
    let sum = parts.map(|part| format!("{:.1}", per_guest(part))).join(" + ");
    println!(
        "| {count} | {} | {:.1} | {:.3} | {:.2} | {:.2} | {} | {} | {:.1} = {sum} | {:.1} | {:.2} |",
        tool.name(),
        measured.seconds,
        measured.seconds / floor,
        median(&measured.refills),
        median(&measured.pauses),
        measured.requests,
        measured.refused,
        per_guest(parts.iter().sum()),
        measured.cpu.as_secs_f64() * 1000.0 / count as f64,
        measured.last,
    );
    for (who, requests) in &measured.by_agent {
        eprintln!("  {count} guests, {}: {requests} requests of {who}", tool.name());
    }
}

/// Whose a request is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Tool,
    Operator,
    /// Kubelets and the agents of hypervisors.
    Nodes,
    /// Scheduler, controller manager and the server itself.
    Kubernetes,
}

impl Party {
    const ALL: [Self; 4] = [Self::Tool, Self::Operator, Self::Nodes, Self::Kubernetes];

    fn of(agent: &str, is_tool: bool) -> Self {
        match agent {
            _ if is_tool => Self::Tool,
            // The simulated nodes of this program give no name.
            "" => Self::Nodes,
            agent if agent.starts_with("evac") => Self::Operator,
            _ => Self::Kubernetes,
        }
    }
}

struct Measured {
    seconds: f64,
    /// From the end of a copy to the target pod of the next guest, and to the begin of its copy.
    refills: Vec<f64>,
    pauses: Vec<f64>,
    requests: usize,
    refused: usize,
    by_party: BTreeMap<Party, usize>,
    by_agent: BTreeMap<String, usize>,
    /// What the operator used.
    cpu: Duration,
    /// From the end of the last guest's pod to the end of the command.
    last: f64,
}

struct Stage {
    tree: Tree,
    world: World,
    operator: Child,
    cluster: Cluster,
    audit: Audit,
    dir: PathBuf,
}

impl Stage {
    /// All guests run on the first of four nodes.
    async fn set(programs: &Programs, count: usize) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("evac-bench-evacuate-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let audit = Audit { path: dir.join("audit.log") };
        let (data, log) = (dir.join("data").display().to_string(), audit.path.display().to_string());
        let tree = Tree::start(&programs.kubernetes, &["up", "--dir", &data, "--audit-log", &log]).await?;
        let cluster = Cluster::connect(&tree.kubeconfig).await?;
        let read = Kubeconfig::read_from(&tree.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let world = World::start(kube::Client::try_from(config)?, Clock::real(), guests::nodes());
        world.idle().await;
        let log = fs::File::create(dir.join("operator.log"))?;
        let operator = Command::new(&programs.evac)
            .args(["operator", "--install", "--listen", "127.0.0.1:0"])
            .env("KUBECONFIG", &tree.kubeconfig)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let stage = Self { tree, world, operator, cluster, audit, dir };
        // The operator has installed the kinds, and its reviews are in force.
        stage
            .cluster
            .until("/apis/apiregistration.k8s.io/v1/apiservices", |all| {
                all.values().any(|service| {
                    service["metadata"]["name"] == "v1.subresources.kubevirt.io"
                        && service["status"]["conditions"][0]["status"] == "True"
                })
            })
            .await?;
        let machines: Vec<_> =
            (0..count).map(|number| guests::machine(number, MIGRATION_SECONDS, false)).collect();
        guests::place(&stage.cluster, &stage.audit, &machines).await?;
        Ok(stage)
    }

    fn operator_cpu(&self) -> Result<Duration> {
        self.operator.id().and_then(cpu).context("the operator has ended")
    }

    async fn empty(&self, tool: Tool, programs: &Programs) -> Result<Measured> {
        let ground = Ground {
            programs,
            kubeconfig: Path::new(&self.tree.kubeconfig),
            cluster: &self.cluster,
            audit: &self.audit,
        };
        let used = self.operator_cpu()?;
        let drained = tool.drain(&ground, &[]).await?;
        let output = &drained.output;
        if !output.status.success() {
            bail!("{} failed: {}", tool.name(), String::from_utf8_lossy(&output.stderr));
        }
        let seen = &drained.seen;
        let mut measured = Measured {
            seconds: seconds(drained.began, drained.ended),
            refills: seen.pauses(&seen.prepared, AT_ONCE),
            pauses: seen.pauses(&seen.began, AT_ONCE),
            requests: 0,
            refused: 0,
            by_party: BTreeMap::new(),
            by_agent: BTreeMap::new(),
            cpu: self.operator_cpu()?.saturating_sub(used),
            last: in_order(&seen.left).last().map_or(f64::NAN, |last| seconds(*last, drained.ended)),
        };
        // Signs of life of nodes and leaders would come without guests, too.
        for request in self.audit.requests(drained.lines)? {
            let is_tool = tool.sent(&request);
            if is_tool {
                measured.requests += 1;
                measured.refused += usize::from(request["responseStatus"]["code"] == 429);
            }
            let resource = request["objectRef"]["resource"].as_str().unwrap_or_default();
            if !is_tool && (resource == "leases" || resource == "nodes") {
                continue;
            }
            *measured.by_party.entry(Party::of(agent(&request), is_tool)).or_default() += 1;
            let verb = request["verb"].as_str().unwrap_or_default();
            *measured.by_agent.entry(format!("{} {verb} {resource}", sender(&request))).or_default() += 1;
        }
        Ok(measured)
    }

    async fn strike(mut self) {
        let _ = self.operator.kill().await;
        self.world.stop().await;
        self.tree.stop().await;
        let _ = fs::remove_dir_all(&self.dir);
    }
}
