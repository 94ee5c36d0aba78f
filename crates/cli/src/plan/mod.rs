//! `evac plan`: what a drain would do, as a whole, before anything is changed.

mod document;
mod show;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use evac_api::snapshot::{Gap, load};
use evac_core::cluster::natural::natural;
use evac_core::plan::Planner;
use evac_core::{Index, Policy};
use evac_engine::Http;
use evac_engine::whole;
use jiff::Timestamp;

use crate::capture::{read_snapshot, warn_of_gaps};
use crate::cluster::ClusterArgs;
use crate::drain::PolicyArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::{NONE_CHOSEN, NodeArgs, from_server, parse_selector};

/// Plan the drain of nodes: who goes where, how long it takes, and what is in the way
///
/// Takes the flags of drain and judges as drain would. The cluster is read once and nothing is changed. Several nodes are planned as one drain.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Each node of the cluster by itself: can it be lost?
    #[arg(long, conflicts_with_all = ["names", "selector"])]
    pub all: bool,
    /// Take the cluster from a file that `evac capture` wrote
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum Format {
    /// Groups, for people
    #[default]
    Text,
    /// Every pod on a line of its own
    Wide,
    /// One JSON document; see docs/planning.md
    Json,
    /// The same as YAML
    Yaml,
}

const EXAMPLES: &str = "\
Examples:
  # Where would the machines of worker-3 go, how long does it take, what is in the way?
  evac plan worker-3 --ignore-daemonsets

  # A whole zone at once; no machine moves to a node of that zone
  evac plan -l topology.kubernetes.io/zone=a --ignore-daemonsets

  # Can any one node be lost?
  evac plan --all --ignore-daemonsets

  # The same without the cluster, from a file that evac capture wrote
  evac plan --all --ignore-daemonsets --from production.evac

Exit codes:
  0  can be emptied, as far as can be seen    2  wrong usage
  1  error, or a part could not be read       3  something is in the way";

/// What a plan is made from.
struct Source {
    index: Index,
    unread: Vec<Gap>,
    now: Timestamp,
}

/// Reads everything that a plan looks at. `leaving` are the nodes whose pods move, where those are known.
async fn read(http: &Http, leaving: Option<&[String]>) -> Result<Source, Failure> {
    let now = http.clock().now();
    let (index, unread) = whole::look(http, leaving).await.map_err(|error| {
        let inner = from_server(&error.source);
        Failure::error(format!(
            "{} (while reading {}; without that there is no plan)",
            inner.message, error.what
        ))
    })?;
    Ok(Source { index, unread, now })
}

/// The same from a file that `evac capture` wrote, at the time at which it was.
fn read_file(file: &Path, leaving: Option<&[String]>) -> Result<Source, Failure> {
    let mut loaded = read_snapshot(file, load)?;
    let places = loaded.places(leaving);
    loaded.index.set_places(places);
    Ok(Source { unread: loaded.header.gaps(), now: loaded.header.captured, index: loaded.index })
}

pub async fn run(args: &PlanArgs) -> Result<Exit, Failure> {
    if !args.all {
        args.nodes.check("plan")?;
    }
    let policy = args.policy.policy()?;
    let names = args.nodes.plain_names()?;
    let leaving = (!names.is_empty()).then_some(names.as_slice());
    let source = match &args.from {
        Some(file) => read_file(file, leaving)?,
        None => read(&args.cluster.connect().await?.0, leaving).await?,
    };
    warn_of_gaps(&source.unread);
    if args.all {
        return Ok(survey(&source, &policy, args.output));
    }
    let names = chosen(&source.index, args, names)?;
    if names.is_empty() {
        return Ok(NONE_CHOSEN);
    }
    Ok(plan(&source, &policy, &names, args.output))
}

/// The nodes that are meant; each of them is there.
fn chosen(index: &Index, args: &PlanArgs, names: Vec<String>) -> Result<Vec<String>, Failure> {
    if let Some(text) = args.nodes.selector.as_ref().filter(|text| !text.is_empty()) {
        let selector = parse_selector("--selector", text)?;
        let found = index.nodes().filter(|node| node.labels.satisfies(&selector));
        let mut found: Vec<String> = found.map(|node| node.name.clone()).collect();
        found.sort_by(|one, other| natural(one, other));
        if found.is_empty() {
            output::talk(&format!("no nodes matched the selector '{text}'"));
        }
        return Ok(found);
    }
    match names.iter().find(|name| index.node(name).is_none()) {
        Some(missing) => Err(Failure::error(match &args.from {
            Some(file) => format!("there is no node {missing} in {}", file.display()),
            None => format!("Error from server (NotFound): nodes \"{missing}\" not found"),
        })),
        None => Ok(names),
    }
}

fn plan(source: &Source, policy: &Policy, names: &[String], format: Format) -> Exit {
    let plan = Planner::new(&source.index, policy, source.now).plan(names);
    match format {
        Format::Text => {
            for line in show::plan(&plan) {
                output::data(&line);
            }
        }
        Format::Wide => {
            for line in show::heads(&plan) {
                output::data(&line);
            }
            output::document(&show::every_pod(&plan));
        }
        Format::Json => output::document(&document::plan(&plan, &source.unread, source.now).to_string()),
        Format::Yaml => output::document(&document::yaml(&document::plan(&plan, &source.unread, source.now))),
    }
    exit(plan.is_drainable(), &source.unread)
}

fn survey(source: &Source, policy: &Policy, format: Format) -> Exit {
    let survey = Planner::new(&source.index, policy, source.now).survey();
    match format {
        Format::Text => output::document(&show::survey(&survey, false)),
        Format::Wide => output::document(&show::survey(&survey, true)),
        Format::Json => output::document(&document::survey(&survey, &source.unread).to_string()),
        Format::Yaml => output::document(&document::yaml(&document::survey(&survey, &source.unread))),
    }
    exit(survey.is_drainable(), &source.unread)
}

/// What is in the way is in the way, whatever else could not be read; but where nothing is seen to be, that is no answer before everything was.
fn exit(drainable: bool, unread: &[Gap]) -> Exit {
    match (drainable, unread.is_empty()) {
        (false, _) => Exit::Blocked,
        (true, false) => Exit::Error,
        (true, true) => Exit::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_way_is_no_success_while_a_part_is_unread() {
        let part = || Gap::new("poddisruptionbudgets", "budgets", "no".into());
        assert_eq!(exit(true, &[]), Exit::Done);
        assert_eq!(exit(true, &[part()]), Exit::Error);
        assert_eq!((exit(false, &[part()]), exit(false, &[])), (Exit::Blocked, Exit::Blocked));
    }
}
