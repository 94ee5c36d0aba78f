//! `evac rehearse`: the drain of nodes in a cluster made of a snapshot, in virtual time.
//!
//! ```text
//!   snapshot ─▶ what_if ─▶ pour ─▶ embedded server, simulated nodes, the operator's roles ─▶ the same drain as `evac drain`
//!                           ▲ guess (by seed)                       │ every commit
//!                                                                   ▼
//!                                             report ◀─ chart ◀─ record
//! ```

mod chart;
mod guess;
mod objects;
mod picture;
mod pour;
mod record;
mod report;
mod run;
mod what_if;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use evac_core::cluster::natural::natural;
use evac_engine::capture::capture;
use futures::{StreamExt as _, stream};
use serde_json::Value;

use self::chart::Chart;
use self::objects::{Objects, key};
use self::report::Report;
use self::run::{Ran, Rehearsal, rehearse};
use self::what_if::WhatIf;
use crate::capture::{capture_failure, read_snapshot, refuse_gaps, warn_of_gaps};
use crate::cluster::{ClusterArgs, OwnerArgs};
use crate::drain::{PolicyArgs, exit_of};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::{NONE_CHOSEN, NodeArgs, parse_selector};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people
    Text,
    /// One JSON document; see docs/rehearsal.md
    Json,
    /// A picture: who moves when
    Svg,
    /// A web page with that picture, in one file
    Html,
}

/// Try the drain of nodes out on a simulated copy of the cluster: who moves where and when, what is in the way, how long it takes
///
/// The cluster is read once, or a file of `evac capture` is taken, and poured into a simulated one inside this process. There the same drain runs as with
/// `evac drain`, in virtual time. Nothing is changed in the cluster. What no snapshot can tell is drawn anew for each run; see docs/rehearsal.md.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct RehearseArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Take the cluster from a file that `evac capture` wrote
    #[arg(long, value_name = "FILE", help_heading = HOW)]
    pub from: Option<PathBuf>,
    /// One node after the other, each given back before the next one begins
    #[arg(long, help_heading = HOW)]
    pub one_by_one: bool,
    /// How many runs, each with other guesses about what is not known
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = crate::number::between(1_u64, 100), help_heading = HOW)]
    pub seeds: u64,
    /// Up to which time of the simulated cluster the drain may take
    #[arg(long, default_value = "24h", value_name = "DURATION", value_parser = crate::duration::parse, help_heading = HOW)]
    pub within: Duration,
    /// What a node can send for migrations, in MiB per second; the default is a 10 Gbit/s network
    #[arg(long, default_value_t = 1188, value_name = "MIB", value_parser = crate::number::between(1_u32, 1_000_000), help_heading = HOW)]
    pub bandwidth: u32,
    /// Change something first: parallel=N, per-node=N (migrations at once), node-like=NODE (one more), without-budget=NAMESPACE/NAME; may be repeated
    #[arg(long, value_name = "CHANGE", help_heading = HOW)]
    pub what_if: Vec<WhatIf>,
    /// Go on even if something may not be read; it is said what is missing
    #[arg(long, help_heading = HOW)]
    pub allow_partial: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT", help_heading = HOW)]
    pub output: Format,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub owner: OwnerArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

const HOW: &str = "How to go about it";

const EXAMPLES: &str = "\
Examples:
  # What would the drain of worker-1 be like?
  evac rehearse worker-1 --ignore-daemonsets

  # The same from a file, with more migrations at once, as a web page
  evac rehearse worker-1 --from production.evac --what-if parallel=10 -o html > worker-1.html

Exit codes, the worst of all runs:
  0  drained                      3  blocked
  1  error                        4  not ended within the time
  2  wrong usage                  5  the node is held by somebody else";

pub async fn run(args: &RehearseArgs) -> Result<Exit, Failure> {
    args.nodes.check("rehearse")?;
    if args.within.is_zero() {
        return Err(Failure::usage("--within must be longer than 0s"));
    }
    let mut policy = args.policy.policy()?;
    policy.timeout = Some(args.within);
    let (mut snapshot, source) = source(args).await?;
    warn_of_gaps(&snapshot.header.gaps());
    for change in &args.what_if {
        change.apply(&mut snapshot).map_err(|why| Failure::usage(format!("--what-if: {why}")))?;
    }
    let nodes = chosen(&args.nodes, &snapshot)?;
    if nodes.is_empty() {
        output::talk("no nodes matched the selector");
        return Ok(NONE_CHOSEN);
    }
    let owner = args.owner.name();
    let one_by_one = args.one_by_one;
    let rehearsal = Rehearsal { nodes, one_by_one, policy, owner, bandwidth: f64::from(args.bandwidth) };
    let runs = all(Arc::new(snapshot), Arc::new(rehearsal), args.seeds, &source).await?;
    show(args, &runs, &source);
    Ok(Exit::worst(runs.iter().flat_map(|run| &run.ends).map(|(_, _, end)| exit_of(end))))
}

/// The snapshot to go by, and where it is from.
async fn source(args: &RehearseArgs) -> Result<(Objects, String), Failure> {
    if let Some(file) = &args.from {
        let snapshot = read_snapshot(file, Objects::read)?;
        let source = format!("{}, captured {}", file.display(), snapshot.header.captured);
        return Ok((snapshot, source));
    }
    let (http, _) = args.cluster.connect().await?;
    let captured =
        capture(&http, env!("CARGO_PKG_VERSION")).await.map_err(|error| capture_failure(&error))?;
    refuse_gaps(
        &captured.header,
        args.allow_partial,
        "nothing is rehearsed, because the answer would be incomplete",
    )?;
    let source = format!("the cluster as it was at {}", captured.header.captured);
    Ok((Objects::parsed(captured).map_err(|error| Failure::error(format!("what was read {error}")))?, source))
}

/// The names of the nodes, each of which is in the snapshot.
fn chosen(args: &NodeArgs, snapshot: &Objects) -> Result<Vec<String>, Failure> {
    let nodes = snapshot.of("nodes");
    if let Some(selector) = args.selector.as_ref().filter(|selector| !selector.is_empty()) {
        let selector = parse_selector("--selector", selector)?;
        let labels = |node: &Value| -> BTreeMap<String, String> {
            serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default()
        };
        let mut found: Vec<String> =
            nodes.iter().filter(|node| selector.matches(&labels(node))).map(key).collect();
        found.sort_by(|one, other| natural(one, other));
        return Ok(found);
    }
    let names = args.plain_names()?;
    match names.iter().find(|name| !nodes.iter().any(|node| key(node) == **name)) {
        Some(missing) => Err(Failure::error(format!("there is no node {missing} in the snapshot"))),
        None => Ok(names),
    }
}

/// All runs, as many at a time as there are processors, in the order of their seeds.
async fn all(
    snapshot: Arc<Objects>,
    rehearsal: Arc<Rehearsal>,
    seeds: u64,
    source: &str,
) -> Result<Vec<Ran>, Failure> {
    output::talk(&format!("rehearsing {seeds} time(s) with {source}"));
    let at_once = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let one = |seed| {
        let (snapshot, rehearsal) = (snapshot.clone(), rehearsal.clone());
        tokio::task::spawn_blocking(move || rehearse(&snapshot, &rehearsal, seed))
    };
    let mut results = stream::iter(1..=seeds).map(one).buffered(at_once);
    let mut runs = Vec::new();
    while let Some(result) = results.next().await {
        let run = result.map_err(|error| error.to_string()).flatten();
        runs.push(run.map_err(|why| Failure::error(format!("the rehearsal failed: {why}")))?);
    }
    Ok(runs)
}

fn show(args: &RehearseArgs, runs: &[Ran], source: &str) {
    let report = Report::of(runs, source);
    let Some(first) = runs.first() else { return };
    match args.output {
        Format::Json => output::document(&report.json(runs).to_string()),
        Format::Svg => output::document(&picture::svg(&Chart::of(first), &report.title)),
        Format::Html => {
            let said: Vec<String> =
                report.lines.iter().chain(&report.notes).chain(&report.guesses).cloned().collect();
            output::document(&picture::html(&Chart::of(first), &report.title, &said));
        }
        Format::Text => {
            let columns = if output::is_interactive() { output::size().0 } else { 120 };
            for line in report.lines.iter().chain(&picture::lines(&Chart::of(first), columns)) {
                output::data(line);
            }
            for note in &report.notes {
                output::warning(note);
            }
            for guess in &report.guesses {
                output::talk(&format!("assumed: {guess}"));
            }
        }
    }
}
