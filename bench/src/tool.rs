//! The tools that empty a node, run by turns and watched from outside.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use evac_clock::Clock;
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;
use tokio::process::Command;

use crate::audit::Audit;
use crate::cluster::Cluster;
use crate::guests::{INSTANCES, NODE};
use crate::process::{Cores, cpu_of_ended};

/// As whom `evac drain` works, so that its requests are told from the operator's.
const DRAINER: &str = "bench-drainer";

/// Where the programs are.
pub struct Programs {
    pub kubernetes: PathBuf,
    pub evac: PathBuf,
}

impl Programs {
    pub fn find() -> Result<Self> {
        let program = |name: &str| -> Result<PathBuf> {
            let path =
                std::env::var_os(name).with_context(|| format!("{name} is not set; use bench/run.sh"))?;
            Ok(path.into())
        };
        Ok(Self { kubernetes: program("EVAC_KUBERNETES")?, evac: program("EVAC")? })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Evac,
    Kubectl,
}

/// What is drained, and by whose account it is known what happens.
pub struct Ground<'a> {
    pub programs: &'a Programs,
    pub kubeconfig: &'a Path,
    pub cluster: &'a Cluster,
    pub audit: &'a Audit,
}

/// One drain, as it was seen.
pub struct Drained {
    pub began: Timestamp,
    pub ended: Timestamp,
    pub output: Output,
    pub seen: Seen,
    /// The lines of the audit log about it.
    pub lines: Range<usize>,
    /// What the tool itself used.
    pub cpu: Duration,
    /// The share of time in which the machine's cores were busy: near one it is the machine that sets the pace.
    pub busy: f64,
}

impl Tool {
    pub fn name(self) -> &'static str {
        match self {
            Self::Evac => "evac drain",
            Self::Kubectl => "kubectl drain",
        }
    }

    /// Empties the first node; `flags` go to either tool.
    pub async fn drain(self, ground: &Ground<'_>, flags: &[String]) -> Result<Drained> {
        let mut command = match self {
            Self::Evac => {
                let mut command = Command::new(&ground.programs.evac);
                command.args(["drain", NODE, "--as", DRAINER, "--as-group", "system:masters"]);
                command
            }
            Self::Kubectl => {
                let mut command = Command::new(ground.programs.kubernetes.with_file_name("kubectl"));
                command.args(["drain", NODE, "--delete-emptydir-data", "--force"]);
                command
            }
        };
        command.args(flags).env("KUBECONFIG", ground.kubeconfig);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let used = || cpu_of_ended().context("no account of CPU time");
        let (first, before, cores) = (ground.audit.lines()?, used()?, Cores::now()?);
        let began = Clock::real().now();
        let output = tokio::select! {
            output = command.output() => output?,
            broken = note(ground.cluster, seen.clone()) => return Err(broken.err().context("no watch")?),
        };
        let ended = Clock::real().now();
        let (cpu, busy) = (used()?.saturating_sub(before), Cores::now()?.busy_since(&cores));
        let lines = first..ground.audit.lines()?;
        let seen = std::mem::take(&mut *seen.lock().map_err(|_| anyhow::anyhow!("no notes were taken"))?);
        Ok(Drained { began, ended, output, seen, lines, cpu, busy })
    }

    /// Whether a request is one of this tool's.
    pub fn sent(self, request: &Value) -> bool {
        match self {
            Self::Evac => request["impersonatedUser"]["username"] == DRAINER,
            Self::Kubectl => agent(request).starts_with("kubectl"),
        }
    }
}

/// The name that a client gives itself.
pub fn agent(request: &Value) -> &str {
    request["userAgent"].as_str().unwrap_or_default()
}

/// Who sent a request, for people.
pub fn sender(request: &Value) -> &str {
    if Tool::Evac.sent(request) {
        return Tool::Evac.name();
    }
    agent(request).split(['/', ' ']).next().unwrap_or_default()
}

/// What was seen of migrations and of the pods that left.
#[derive(Default)]
pub struct Seen {
    pub prepared: BTreeMap<String, Timestamp>,
    pub began: BTreeMap<String, Timestamp>,
    pub ended: BTreeMap<String, Timestamp>,
    pub left: BTreeMap<String, Timestamp>,
}

impl Seen {
    /// How long each slot waited from the end of a copy to what came in its place, if so many run at once.
    pub fn pauses(&self, starts: &BTreeMap<String, Timestamp>, at_once: usize) -> Vec<f64> {
        let ends = in_order(&self.ended);
        in_order(starts).iter().skip(at_once).zip(&ends).map(|(start, end)| seconds(*end, *start)).collect()
    }
}

pub fn in_order(times: &BTreeMap<String, Timestamp>) -> Vec<Timestamp> {
    let mut times: Vec<Timestamp> = times.values().copied().collect();
    times.sort_unstable();
    times
}

pub fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// Notes when the copying of a guest begins and ends, by the account of the node agents, and when pods of guests end.
async fn note(cluster: &Cluster, seen: Arc<Mutex<Seen>>) -> Result<()> {
    let mut guests = cluster.events(INSTANCES).await?;
    let mut pods = cluster.events("/api/v1/pods?labelSelector=kubevirt.io%3Dvirt-launcher").await?;
    loop {
        let (event, is_pod) = tokio::select! {
            Some(event) = guests.next() => (event?, false),
            Some(event) = pods.next() => (event?, true),
            else => bail!("the watches ended early"),
        };
        let now = Clock::real().now();
        let (object, status) = (&event["object"], &event["object"]["status"]);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let Ok(mut seen) = seen.lock() else { bail!("no notes can be taken") };
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
