//! Emptying a node of virtual machines on a real Kubernetes API server with simulated nodes and hypervisors, by `evac drain` and by
//! `kubectl drain` against the operator's roles.
//!
//! Every migration takes five seconds and two run at once, so the floor is the number of guests, divided by two, times five.
//! Requests are counted by the server's audit log, by whose they are. When migrations begin and end is seen by a watch from outside.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use evac_clock::Clock;
use evac_world::{NodeSpec, Options, World};
use futures::StreamExt;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::cluster::Cluster;
use crate::process::{Tree, cpu};
use crate::report::median;

const MIGRATION_SECONDS: f64 = 5.0;
/// How many may leave a node at once, by KubeVirt's default.
const AT_ONCE: usize = 2;
const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
/// As whom `evac drain` works, so that its requests are told from the operator's.
const DRAINER: &str = "bench-drainer";
/// Nobody has asked about guests for so long: everybody has come to rest. The garbage collector tries again later and later what it does not know yet.
const QUIET: Duration = Duration::from_secs(45);

pub async fn run(guests: &[usize]) -> Result<()> {
    let program = |name: &str| -> Result<PathBuf> {
        Ok(std::env::var_os(name).with_context(|| format!("{name} is not set; use bench/run.sh"))?.into())
    };
    let (kubernetes, evac) = (program("EVAC_KUBERNETES")?, program("EVAC")?);
    println!(
        "| guests | tool | seconds | ÷ floor | slot refill p50, s | copy to copy p50, s | tool's requests | refused | requests per guest: all = tool + operator + nodes + Kubernetes | operator's CPU per guest, ms | pod gone → ended, s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for count in guests {
        for tool in [Tool::Evac, Tool::Kubectl] {
            let stage = Stage::set(&kubernetes, &evac, *count).await?;
            let measured = stage.empty(tool, &kubernetes, &evac).await;
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Evac,
    Kubectl,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Evac => "evac drain",
            Self::Kubectl => "kubectl drain",
        }
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

/// What was seen of migrations and of the pods that left.
#[derive(Default)]
struct Seen {
    prepared: BTreeMap<String, Timestamp>,
    began: BTreeMap<String, Timestamp>,
    ended: BTreeMap<String, Timestamp>,
    left: BTreeMap<String, Timestamp>,
}

struct Stage {
    tree: Tree,
    world: World,
    operator: Child,
    cluster: Cluster,
    audit: PathBuf,
    dir: PathBuf,
    count: usize,
}

fn machine(number: usize) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": format!("vm-{number}")},
        "spec": {"runStrategy": "Always", "template": {
            // The simulated kubelet starts pods at once: its time is nobody's, and the floor does not know it.
            "metadata": {"annotations": {
                "evac.dev/migration-seconds": MIGRATION_SECONDS.to_string(), "evac.dev/start-seconds": "0",
            }},
            "spec": {
                "evictionStrategy": "LiveMigrate",
                "domain": {"devices": {}, "resources": {"requests": {"memory": "32Mi", "cpu": "10m"}}},
            },
        }},
    })
}

impl Stage {
    /// All guests run on the first of four nodes.
    async fn set(kubernetes: &Path, evac: &Path, count: usize) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("evac-bench-evacuate-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let audit = dir.join("audit.log");
        let (data, log) = (dir.join("data").display().to_string(), audit.display().to_string());
        let tree = Tree::start(kubernetes, &["up", "--dir", &data, "--audit-log", &log]).await?;
        let cluster = Cluster::connect(&tree.kubeconfig).await?;
        let read = Kubeconfig::read_from(&tree.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let client = kube::Client::try_from(config)?;
        let mut nodes = NodeSpec::workers(4);
        for node in &mut nodes {
            // Room for all guests on any of them.
            node.pods = 500;
            "64".clone_into(&mut node.cpu);
            "256Gi".clone_into(&mut node.memory);
        }
        let options = Options { parallel_writes: 32, ..Options::kubelets_only(nodes) };
        let world = World::start(client, Clock::real(), options);
        world.idle().await;
        let log = fs::File::create(dir.join("operator.log"))?;
        let operator = Command::new(evac)
            .args(["operator", "--install", "--listen", "127.0.0.1:0"])
            .env("KUBECONFIG", &tree.kubeconfig)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let stage = Self { tree, world, operator, cluster, audit, dir, count };
        stage.prepare().await?;
        Ok(stage)
    }

    async fn prepare(&self) -> Result<()> {
        for node in 2..=4 {
            self.cluster.cordon(&format!("node-{node}"), true).await?;
        }
        // The operator has installed the kinds, and its reviews are in force.
        self.cluster
            .until("/apis/apiregistration.k8s.io/v1/apiservices", |all| {
                all.values().any(|service| {
                    service["metadata"]["name"] == "v1.subresources.kubevirt.io"
                        && service["status"]["conditions"][0]["status"] == "True"
                })
            })
            .await?;
        self.cluster
            .until("/api/v1/nodes", |all| {
                all.len() == 4
                    && all
                        .values()
                        .all(|node| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true")
            })
            .await?;
        for number in 0..self.count {
            self.cluster.create(MACHINES, &machine(number)).await?;
        }
        let count = self.count;
        self.cluster
            .until(INSTANCES, |all| {
                let ready = |vmi: &&Value| {
                    let conditions = vmi["status"]["conditions"].as_array();
                    conditions.is_some_and(|list| {
                        list.iter().any(|one| one["type"] == "LiveMigratable" && one["status"] == "True")
                    })
                };
                all.values().filter(ready).count() == count
            })
            .await?;
        for node in 2..=4 {
            self.cluster.cordon(&format!("node-{node}"), false).await?;
        }
        self.settle().await
    }

    /// Waits until the guests have booted and the garbage collector, which looks for new kinds every half minute, has found theirs and verified
    /// what they own. In a cluster that is not seconds old none of that falls into a drain.
    async fn settle(&self) -> Result<()> {
        let collector = |event: &Value| {
            event["verb"] == "watch"
                && event["objectRef"]["resource"] == "virtualmachineinstances"
                && event["userAgent"]
                    .as_str()
                    .is_some_and(|agent| agent.starts_with("kube-controller-manager"))
        };
        let mut seen = 0;
        loop {
            Clock::real().sleep(QUIET).await;
            let text = fs::read_to_string(&self.audit)?;
            let events: Vec<Value> =
                text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let about_guests =
                events.iter().filter(|event| event["objectRef"]["apiGroup"] == "kubevirt.io").count();
            if about_guests == seen && events.iter().any(collector) {
                return Ok(());
            }
            seen = about_guests;
        }
    }

    fn operator_cpu(&self) -> Result<Duration> {
        self.operator.id().and_then(cpu).context("the operator has ended")
    }

    /// Notes when the copying of a guest begins and ends, by the account of the node agents, and when pods of guests end.
    async fn note(&self, seen: Arc<Mutex<Seen>>) -> Result<()> {
        let mut guests = self.cluster.events(INSTANCES).await?;
        let mut pods = self.cluster.events("/api/v1/pods?labelSelector=kubevirt.io%3Dvirt-launcher").await?;
        loop {
            let (event, is_pod) = tokio::select! {
                Some(event) = guests.next() => (event?, false),
                Some(event) = pods.next() => (event?, true),
                else => bail!("the watches ended early"),
            };
            let now = Clock::real().now();
            let (object, status) = (&event["object"], &event["object"]["status"]);
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let Ok(mut seen) = seen.lock() else { bail!("nobody takes notes") };
            if is_pod {
                let is_target = object["metadata"]["labels"]["kubevirt.io/migrationJobUID"].is_string();
                if is_target {
                    seen.prepared.entry(name).or_insert(now);
                } else if event["type"] == "DELETED" || status["phase"] == "Succeeded" {
                    seen.left.entry(name).or_insert(now);
                }
                continue;
            }
            let state = &status["migrationState"];
            if state["startTimestamp"].is_string() {
                seen.began.entry(name.clone()).or_insert(now);
            }
            if state["endTimestamp"].is_string() {
                seen.ended.entry(name).or_insert(now);
            }
        }
    }

    async fn empty(&self, tool: Tool, kubernetes: &Path, evac: &Path) -> Result<Measured> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut command = match tool {
            Tool::Evac => {
                let mut command = Command::new(evac);
                command.args(["drain", "node-1", "--as", DRAINER, "--as-group", "system:masters"]);
                command
            }
            Tool::Kubectl => {
                let mut command = Command::new(kubernetes.with_file_name("kubectl"));
                command.args(["drain", "node-1", "--delete-emptydir-data", "--force"]);
                command
            }
        };
        command.env("KUBECONFIG", &self.tree.kubeconfig);
        let (before, used) = (self.lines()?, self.operator_cpu()?);
        let began = Clock::real().now();
        let output = tokio::select! {
            output = command.output() => output?,
            broken = self.note(seen.clone()) => return Err(broken.err().context("no watch")?),
        };
        let ended = Clock::real().now();
        let after = self.lines()?;
        if !output.status.success() {
            bail!("{} failed: {}", tool.name(), String::from_utf8_lossy(&output.stderr));
        }
        let seen = seen.lock().map_err(|_| anyhow::anyhow!("nobody took notes"))?;
        let sorted = |times: &BTreeMap<String, Timestamp>| {
            let mut times: Vec<Timestamp> = times.values().copied().collect();
            times.sort_unstable();
            times
        };
        let (ends, left) = (sorted(&seen.ended), sorted(&seen.left));
        let gap = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
        let after_ends = |starts: &BTreeMap<String, Timestamp>| -> Vec<f64> {
            let starts = sorted(starts);
            starts.iter().skip(AT_ONCE).zip(&ends).map(|(start, end)| gap(*end, *start)).collect()
        };
        let mut measured = Measured {
            seconds: gap(began, ended),
            refills: after_ends(&seen.prepared),
            pauses: after_ends(&seen.began),
            requests: 0,
            refused: 0,
            by_party: BTreeMap::new(),
            by_agent: BTreeMap::new(),
            cpu: self.operator_cpu()?.saturating_sub(used),
            last: left.last().map_or(f64::NAN, |last| gap(*last, ended)),
        };
        self.count(tool, before..after, &mut measured)?;
        Ok(measured)
    }

    fn lines(&self) -> Result<usize> {
        Ok(fs::read_to_string(&self.audit)?.lines().count())
    }

    /// Counts finished requests and begun watches. Signs of life of nodes and leaders would come without guests, too.
    fn count(&self, tool: Tool, range: std::ops::Range<usize>, measured: &mut Measured) -> Result<()> {
        let text = fs::read_to_string(&self.audit)?;
        for line in text.lines().take(range.end).skip(range.start) {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let wanted = if event["verb"] == "watch" { "ResponseStarted" } else { "ResponseComplete" };
            if event["stage"] != wanted {
                continue;
            }
            let agent = event["userAgent"].as_str().unwrap_or_default();
            let drains = event["impersonatedUser"]["username"] == DRAINER;
            let is_tool = match tool {
                Tool::Evac => drains,
                Tool::Kubectl => agent.starts_with("kubectl"),
            };
            if is_tool {
                measured.requests += 1;
                measured.refused += usize::from(event["responseStatus"]["code"] == 429);
            }
            let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
            if !is_tool && (resource == "leases" || resource == "nodes") {
                continue;
            }
            *measured.by_party.entry(Party::of(agent, is_tool)).or_default() += 1;
            let who = if drains { "evac drain" } else { agent.split(['/', ' ']).next().unwrap_or(agent) };
            let verb = event["verb"].as_str().unwrap_or_default();
            *measured.by_agent.entry(format!("{who} {verb} {resource}")).or_default() += 1;
        }
        Ok(())
    }

    async fn strike(mut self) {
        let _ = self.operator.kill().await;
        self.world.stop().await;
        self.tree.stop().await;
        let _ = fs::remove_dir_all(&self.dir);
    }
}
