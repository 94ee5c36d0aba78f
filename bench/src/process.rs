//! A server as a process tree: started, measured, stopped.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running server and everything it started.
pub struct Tree {
    child: Child,
    pub kubeconfig: String,
}

/// What a process tree has used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    pub cpu: Duration,
    /// Resident memory; shared pages are counted once per process, so this favours single processes only
    /// by their number of binaries.
    pub resident_kib: u64,
}

impl Tree {
    /// Starts a program and waits for its `ready: export KUBECONFIG=…` line.
    pub async fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = child.stdout.take().context("no output")?;
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some(path) = line.strip_prefix("ready: export KUBECONFIG=") {
                return Ok(Self { child, kubeconfig: path.to_owned() });
            }
        }
        bail!("{} ended before it was ready", program.display())
    }

    pub async fn stop(mut self) {
        if let Some(pid) = self.child.id() {
            let _ = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
        }
        let _ = self.child.wait().await;
    }

    /// CPU time and memory of the process and its descendants.
    pub fn used(&self) -> Result<Used> {
        let root = self.child.id().context("the server has ended")?;
        let mut used = Used::default();
        for pid in descendants(root)? {
            used.cpu += cpu(pid).unwrap_or_default();
            used.resident_kib += proportional_kib(pid).unwrap_or_default();
        }
        Ok(used)
    }
}

fn descendants(root: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Some(parent) = stat(pid).and_then(|fields| fields.get(1).and_then(|f| f.parse::<u32>().ok())) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    Ok(found)
}

/// The fields of `/proc/PID/stat` behind the command name, which may contain anything.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// The CPU time that one process has used.
pub fn cpu(pid: u32) -> Option<Duration> {
    ticks(pid, 11)
}

/// The CPU time of all programs that this one has started and that have ended.
pub fn cpu_of_ended() -> Option<Duration> {
    ticks(std::process::id(), 13)
}

/// Time in user and in system mode, which are beside each other.
fn ticks(pid: u32, at: usize) -> Option<Duration> {
    let fields = stat(pid)?;
    let ticks: u64 = fields.get(at)?.parse::<u64>().ok()? + fields.get(at + 1)?.parse::<u64>().ok()?;
    // Linux reports in hundredths of a second on every platform we run on.
    Some(Duration::from_millis(ticks * 10))
}

/// How the machine's cores have spent their time since it was started.
#[derive(Debug, Clone, Copy)]
pub struct Cores {
    all: u64,
    idle: u64,
}

impl Cores {
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let first = text.lines().next().context("/proc/stat is empty")?;
        let ticks: Vec<u64> =
            first.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        // user, nice, system, idle, waiting for a disk, interrupts, soft interrupts, taken away by the host
        let [_, _, _, idle, waiting, ..] = ticks.as_slice() else { bail!("/proc/stat says {first:?}") };
        Ok(Self { all: ticks.iter().sum(), idle: idle + waiting })
    }

    /// The share of their time since then in which they were not idle.
    pub fn busy_since(&self, then: &Self) -> f64 {
        let all = self.all.saturating_sub(then.all).max(1);
        1.0 - self.idle.saturating_sub(then.idle) as f64 / all as f64
    }
}

/// The most memory that one process has had at a time.
pub fn peak_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The proportional share of memory, so that pages of one binary run twice are not counted twice.
pub fn proportional_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find(|line| line.starts_with("Pss:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
