//! `evac taint`: kubectl's taint, with its words.

use clap::{Args, ValueEnum};
use evac_core::taints;
use evac_engine::nodes::{self, NodeError};

use crate::cluster::ClusterArgs;
use crate::drain::DryRunArg;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::{from_server, parse_selector};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Validate {
    #[value(alias = "true")]
    Strict,
    Warn,
    #[value(alias = "false")]
    Ignore,
}

/// Add, change or remove taints of nodes
///
/// KEY=VALUE:EFFECT adds, KEY:EFFECT- removes one effect, KEY- removes all effects of a key.
#[derive(Debug, Clone, Args)]
pub struct TaintArgs {
    /// node NAME... TAINT...
    #[arg(value_name = "ARG", required = true, allow_hyphen_values = false)]
    pub words: Vec<String>,
    /// All nodes
    #[arg(long)]
    pub all: bool,
    /// Change a taint that exists
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL")]
    pub overwrite: bool,
    /// Select nodes by label
    #[arg(long, short = 'l', default_value = "")]
    pub selector: String,
    /// The name under which the change is recorded
    #[arg(long, default_value = "kubectl-taint")]
    pub field_manager: String,
    /// How the server treats unknown fields
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "strict", default_value = "strict")]
    pub validate: Validate,
    /// Try without changing anything
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "client", default_value = "none", value_name = "HOW")]
    pub dry_run: DryRunArg,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Names first, then taints: the first word that looks like a taint ends the names.
fn split(words: &[String]) -> Result<(Vec<String>, Vec<String>), Failure> {
    let is_taint = |word: &String| word.contains('=') || word.contains(':') || word.ends_with('-');
    let first = words.iter().position(is_taint).unwrap_or(words.len());
    let (names, taints) = words.split_at(first);
    if let Some(stray) = taints.iter().find(|word| !is_taint(word)) {
        return Err(Failure::usage(format!("all resources must be specified before taint changes: {stray}")));
    }
    Ok((names.to_vec(), taints.to_vec()))
}

pub async fn run(args: &TaintArgs) -> Result<Exit, Failure> {
    let (mut names, words) = split(&args.words)?;
    if names.is_empty() {
        return Err(Failure::usage("one or more resources must be specified as <resource> <name>"));
    }
    match names.remove(0).as_str() {
        "node" | "nodes" | "no" => {}
        other => match other.split_once('/') {
            Some(("node" | "nodes" | "no", name)) => names.insert(0, name.to_owned()),
            _ => {
                return Err(Failure::usage(format!(
                    "invalid resource type {other}, only node types are supported"
                )));
            }
        },
    }
    if args.all && !args.selector.is_empty() {
        return Err(Failure::usage("setting 'all' parameter with a non empty selector is prohibited"));
    }
    if !args.all && args.selector.is_empty() && names.is_empty() {
        return Err(Failure::usage(
            "at least one resource name must be specified since 'all' parameter is not set",
        ));
    }
    if words.is_empty() {
        return Err(Failure::usage("at least one taint update is required"));
    }
    parse_selector("--selector", &args.selector)?;
    let change = taints::parse(&words).map_err(|error| Failure::usage(error.to_string()))?;
    let (http, _) = args.cluster.connect().await?;
    if args.all || !args.selector.is_empty() {
        let chosen =
            nodes::by_selector(&http, &args.selector, 500).await.map_err(|error| from_server(&error))?;
        names = chosen.into_iter().map(|node| node.name).collect();
    }
    let mut exit = Exit::Done;
    for name in names {
        let trial = args.dry_run == DryRunArg::Server;
        let send = args.dry_run != DryRunArg::Client;
        match nodes::taint(&http, &name, &change, args.overwrite, &args.field_manager, trial, send).await {
            Ok(word) => output::data(&format!("node/{name} {}{}", word.word(), args.dry_run.suffix())),
            Err(NodeError::Http(error)) => {
                output::error(&from_server(&error).message);
                exit = Exit::Error;
            }
            Err(error) => {
                output::error(&error.to_string());
                exit = Exit::Error;
            }
        }
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn names_come_before_taints() {
        let (names, taints) = split(&words(&["node", "a", "b", "x=y:NoSchedule", "z-"])).unwrap();
        assert_eq!((names, taints), (words(&["node", "a", "b"]), words(&["x=y:NoSchedule", "z-"])));
        assert!(split(&words(&["node", "a", "x-", "b"])).is_err());
    }
}
