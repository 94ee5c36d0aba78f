//! Emptying a node of virtual machines beside KubeVirt's own virt-api and virt-controller, each with its own account, on a real Kubernetes API
//! server; the node agents are simulated. `evac drain` and `kubectl drain` by turns, each on a cluster of its own.
//!
//! Every migration takes five seconds, or twenty where that is said: the floor is the number of guests that can leave, divided by how many may leave a node at once, times that.
//! Requests and migrations are counted by the server's audit log; when copies begin and end and pods leave is seen by a watch from outside.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use evac_clock::Clock;
use evac_engine::Http;
use evac_upstream::{kubernetes, kubevirt};
use evac_world::World;
use http::Method;
use serde_json::{Value, json};
use tokio::process::Child;

use crate::audit::Audit;
use crate::cluster::{Cluster, MERGE};
use crate::guests::{self, INSTANCES, MIGRATION_SECONDS, NODE};
use crate::report::median;
use crate::tool::{Drained, Ground, Programs, Tool, in_order, seconds, sender};

const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
const MIGRATIONS: &str = "virtualmachineinstancemigrations";
/// How long a drain may take of which not all guests can leave: kubectl would never end.
const PATIENCE: &str = "--timeout=120s";

/// What is measured, and how it is looked at.
#[derive(Default)]
pub struct Plan {
    cases: Vec<Case>,
    only_evac: bool,
    /// The logs stay, and virt-controller says more.
    keep: bool,
}

/// Guests on one node, of whom some can run nowhere else.
#[derive(Clone, Copy)]
struct Case {
    guests: usize,
    pinned: usize,
    per_cluster: usize,
    per_node: usize,
    /// How long each migration takes.
    seconds: f64,
}

impl Case {
    const FIFTY: Self =
        Self { guests: 50, pinned: 0, per_cluster: 5, per_node: 2, seconds: MIGRATION_SECONDS };
    const MANY: Self =
        Self { guests: 200, pinned: 0, per_cluster: 20, per_node: 20, seconds: MIGRATION_SECONDS };
    /// As many as before, and slow enough for the machine to have time for all that is written about them.
    const MANY_SLOW: Self = Self { seconds: 20.0, ..Self::MANY };
    const PINNED: Self =
        Self { guests: 22, pinned: 2, per_cluster: 5, per_node: 2, seconds: MIGRATION_SECONDS };
    const SMALL: Self =
        Self { guests: 10, pinned: 2, per_cluster: 5, per_node: 2, seconds: MIGRATION_SECONDS };

    fn movers(self) -> usize {
        self.guests - self.pinned
    }

    fn floor(self) -> f64 {
        self.movers() as f64 / self.per_node.min(self.per_cluster) as f64 * self.seconds
    }

    fn name(self) -> String {
        match self.pinned {
            0 => self.guests.to_string(),
            pinned => format!("{} and {pinned} pinned", self.movers()),
        }
    }
}

impl Plan {
    /// `--quick`, or guests by their number; `--evac` leaves kubectl out, `--keep` keeps the logs.
    pub fn read(words: &[&str]) -> Result<Self> {
        let mut plan = Self::default();
        for word in words {
            match *word {
                "--quick" => plan.cases.push(Case::SMALL),
                "--evac" => plan.only_evac = true,
                "--keep" => plan.keep = true,
                "50" => plan.cases.push(Case::FIFTY),
                "200" => plan.cases.push(Case::MANY),
                "200-slow" => plan.cases.push(Case::MANY_SLOW),
                "22" => plan.cases.push(Case::PINNED),
                other => {
                    bail!("beside takes --quick, --evac, --keep and 50, 200, 200-slow and 22, not {other:?}")
                }
            }
        }
        if plan.cases.is_empty() {
            plan.cases = vec![Case::FIFTY, Case::MANY, Case::MANY_SLOW, Case::PINNED];
        }
        Ok(plan)
    }
}

pub async fn run(plan: Plan) -> Result<()> {
    let programs = Programs::find()?;
    println!(
        "| guests | limits | a copy takes, s | tool | seconds | ÷ floor | tool's requests | refused | tool's CPU, s | cores busy | migrations created | slot idle p50, s | how it ends |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let tools: &[Tool] = if plan.only_evac { &[Tool::Evac] } else { &[Tool::Evac, Tool::Kubectl] };
    for case in &plan.cases {
        for tool in tools {
            let stage = Stage::set(*case, plan.keep).await?;
            let row = stage.empty(*tool, &programs).await;
            stage.strike(plan.keep).await;
            println!("{}", row?);
        }
    }
    Ok(())
}

struct Stage {
    case: Case,
    kubernetes: Child,
    kubevirt: Vec<Child>,
    world: World,
    cluster: Cluster,
    kubeconfig: PathBuf,
    audit: Audit,
}

impl Stage {
    async fn set(case: Case, verbose: bool) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("evac-bench-beside-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let (kubeconfig, audit) = (dir.join("kubeconfig"), Audit { path: dir.join("audit.log") });
        let flags = [OsStr::new("--audit-log"), audit.path.as_os_str()];
        let kubernetes = kubernetes::start(&kubeconfig, &flags).await;
        let cluster = Cluster::connect(&kubeconfig.display().to_string()).await?;
        let world = World::start(kubevirt::agents(&kubeconfig).await, Clock::real(), guests::nodes());
        world.idle().await;
        let client = kube::Client::try_from(kubernetes::config(&kubeconfig).await)?;
        let http = Http::new(client, Clock::real(), Duration::ZERO);
        let kubevirt = kubevirt::start(&http, &kubeconfig).await;
        let limits = json!({
            "parallelMigrationsPerCluster": case.per_cluster,
            "parallelOutboundMigrationsPerNode": case.per_node,
        });
        let words = json!({"logVerbosity": {"virtController": if verbose { 4 } else { 2 }}});
        let configuration = json!({"migrations": limits, "developerConfiguration": words});
        let patch = json!({"spec": {"configuration": configuration}}).to_string();
        cluster.send(Method::PATCH, KUBEVIRT, MERGE, patch.into_bytes()).await?;
        let machines: Vec<_> = (0..case.guests)
            .map(|number| guests::machine(number, case.seconds, number < case.pinned))
            .collect();
        guests::place(&cluster, &audit, &machines).await?;
        Ok(Self { case, kubernetes, kubevirt, world, cluster, kubeconfig, audit })
    }

    /// Lets a tool empty the first node, and gives the row of the table.
    async fn empty(&self, tool: Tool, programs: &Programs) -> Result<String> {
        let ground =
            Ground { programs, kubeconfig: &self.kubeconfig, cluster: &self.cluster, audit: &self.audit };
        let flags: &[String] = if self.case.pinned > 0 { &[PATIENCE.to_owned()] } else { &[] };
        let drained = tool.drain(&ground, flags).await?;
        let end = self.end(&drained).await?;
        let (case, seen) = (self.case, &drained.seen);
        let left = in_order(&seen.left);
        // Where some never leave, the others are what is measured.
        let lasted = match (case.pinned, left.get(case.movers() - 1)) {
            (0, _) => Some(seconds(drained.began, drained.ended)),
            (_, last) => last.map(|last| seconds(drained.began, *last)),
        };
        let (time, ratio) = lasted.map_or_else(
            || (format!("{} have left", left.len()), "–".to_owned()),
            |lasted| (format!("{lasted:.1}"), format!("{:.3}", lasted / case.floor())),
        );
        let (mut requests, mut refused, mut created) = (0, 0, 0);
        let mut by_sender: BTreeMap<String, usize> = BTreeMap::new();
        for request in self.audit.requests(drained.lines.clone())? {
            let resource = request["objectRef"]["resource"].as_str().unwrap_or_default();
            if tool.sent(&request) {
                requests += 1;
                refused += usize::from(request["responseStatus"]["code"] == 429);
            }
            let is_new = request["verb"] == "create" && request["responseStatus"]["code"] == 201;
            created += usize::from(is_new && resource == MIGRATIONS);
            let verb = request["verb"].as_str().unwrap_or_default();
            *by_sender.entry(format!("{} {verb} {resource}", sender(&request))).or_default() += 1;
        }
        for (who, requests) in by_sender {
            eprintln!("  {} guests, {}: {requests} requests of {who}", case.name(), tool.name());
        }
        Ok(format!(
            "| {} | {}/{} | {} | {} | {time} | {ratio} | {requests} | {refused} | {:.2} | {:.0} % | {created} | {:.2} | {end} |",
            case.name(),
            case.per_cluster,
            case.per_node,
            case.seconds,
            tool.name(),
            drained.cpu.as_secs_f64(),
            drained.busy * 100.0,
            median(&seen.pauses(&seen.began, case.per_node)),
        ))
    }

    /// With which code, after how long, and what is left behind then.
    async fn end(&self, drained: &Drained) -> Result<String> {
        let code = drained.output.status.code().context("the tool was killed")?;
        if self.case.pinned == 0 && code != 0 {
            bail!("the drain failed: {}", String::from_utf8_lossy(&drained.output.stderr));
        }
        let instances = self.items(INSTANCES).await?;
        let here = instances.iter().filter(|one| one["status"]["nodeName"] == NODE).count();
        let marks = instances.iter().filter(|one| one["status"]["evacuationNodeName"].is_string()).count();
        let migrations = self.items(&format!("/apis/kubevirt.io/v1/{MIGRATIONS}")).await?;
        let is_over =
            |one: &&Value| one["status"]["phase"] == "Succeeded" || one["status"]["phase"] == "Failed";
        let open = migrations.len() - migrations.iter().filter(is_over).count();
        Ok(format!(
            "exit {code} after {:.1} s; left: {here} guests, {open} migrations, {marks} marks",
            seconds(drained.began, drained.ended)
        ))
    }

    async fn items(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.cluster.get(path).await?;
        list["items"].as_array().cloned().context("the server sent no list")
    }

    async fn strike(mut self, keep: bool) {
        for mut program in self.kubevirt {
            let _ = program.kill().await;
        }
        self.world.stop().await;
        let _ = self.kubernetes.kill().await;
        let Some(dir) = self.kubeconfig.parent() else { return };
        if keep {
            let kept =
                dir.with_extension(format!("{}-{}", self.case.guests, Clock::real().now().as_second()));
            if fs::rename(dir, &kept).is_ok() {
                eprintln!("the logs are in {}", kept.display());
            }
        } else {
            let _ = fs::remove_dir_all(dir);
        }
    }
}
