//! `evac plan`: what a drain would do, as a whole, before anything is changed.

mod document;
mod show;

use clap::{Args, ValueEnum};
use evac_core::plan::Planner;
use evac_core::{Index, Policy};
use evac_engine::Http;
use evac_engine::whole::{self, Unread};
use jiff::Timestamp;

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

Exit codes:
  0  can be emptied, as far as can be seen    2  wrong usage
  1  error, or a part could not be read       3  something is in the way";

/// What a plan is made from.
struct Source {
    index: Index,
    unread: Vec<Unread>,
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

pub async fn run(args: &PlanArgs) -> Result<Exit, Failure> {
    if !args.all {
        args.nodes.check("plan")?;
    }
    let policy = args.policy.policy()?;
    let names = args.nodes.plain_names()?;
    let (http, _) = args.cluster.connect().await?;
    let source = read(&http, (!names.is_empty()).then_some(names.as_slice())).await?;
    for part in &source.unread {
        output::warning(&format!(
            "{} could not be read, so this is not known: {} ({})",
            part.what, part.misses, part.message
        ));
    }
    if args.all {
        return Ok(survey(&source, &policy, args.output));
    }
    let names = chosen(&source.index, &args.nodes, names)?;
    if names.is_empty() {
        return Ok(NONE_CHOSEN);
    }
    Ok(plan(&source, &policy, &names, args.output))
}

/// The nodes that are meant; each of them is there.
fn chosen(index: &Index, nodes: &NodeArgs, names: Vec<String>) -> Result<Vec<String>, Failure> {
    if let Some(text) = nodes.selector.as_ref().filter(|text| !text.is_empty()) {
        let selector = parse_selector("--selector", text)?;
        let found = index.nodes().filter(|node| node.labels.satisfies(&selector));
        let found: Vec<String> = found.map(|node| node.name.clone()).collect();
        if found.is_empty() {
            output::talk(&format!("no nodes matched the selector '{text}'"));
        }
        return Ok(found);
    }
    match names.iter().find(|name| index.node(name).is_none()) {
        Some(missing) => {
            Err(Failure::error(format!("Error from server (NotFound): nodes \"{missing}\" not found")))
        }
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
fn exit(drainable: bool, unread: &[Unread]) -> Exit {
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
        let part = || Unread { what: "poddisruptionbudgets", message: "no".into(), misses: "budgets" };
        assert_eq!(exit(true, &[]), Exit::Done);
        assert_eq!(exit(true, &[part()]), Exit::Error);
        assert_eq!((exit(false, &[part()]), exit(false, &[])), (Exit::Blocked, Exit::Blocked));
    }
}
