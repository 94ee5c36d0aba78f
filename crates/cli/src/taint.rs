//! `evac taint`: kubectl's taint, with its words.

use clap::{Args, ValueEnum};
use evac_core::cluster::taints;
use evac_engine::nodes::{self, NodeError, TaintRequest};
use serde_json::Value;

use crate::cluster::ClusterArgs;
use crate::dry_run::{DryRunArg, DryRunFlag};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::{self, from_server, parse_selector};
use crate::suggest;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Validate {
    #[value(alias = "true")]
    Strict,
    Warn,
    #[value(alias = "false")]
    Ignore,
}

impl Validate {
    fn directive(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Warn => "Warn",
            Self::Ignore => "Ignore",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TaintFormat {
    Json,
    Yaml,
    Name,
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
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub overwrite: bool,
    /// Select nodes by label
    #[arg(long, short = 'l', default_value = "")]
    pub selector: String,
    /// The name under which the change is recorded; kubectl's own, so that taints of both belong together
    #[arg(long, default_value = "kubectl-taint")]
    pub field_manager: String,
    /// How the server treats unknown fields
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "strict", default_value = "strict")]
    pub validate: Validate,
    /// Print the node instead of what happened to it
    #[arg(long, short, value_enum)]
    pub output: Option<TaintFormat>,
    #[command(flatten)]
    pub dry_run: DryRunFlag,
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

impl TaintArgs {
    /// Everything that can be checked without a cluster: the names and the taints.
    fn check(&self) -> Result<(Vec<String>, Vec<String>), Failure> {
        let (mut names, words) = split(&self.words)?;
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
        if self.all && !self.selector.is_empty() {
            return Err(Failure::usage("setting 'all' parameter with a non empty selector is prohibited"));
        }
        if !self.all && self.selector.is_empty() && names.is_empty() {
            return Err(Failure::usage(
                "at least one resource name must be specified since 'all' parameter is not set",
            ));
        }
        if words.is_empty() {
            return Err(Failure::usage("at least one taint update is required"));
        }
        parse_selector("--selector", &self.selector)?;
        Ok((names, words))
    }
}

pub async fn run(args: &TaintArgs) -> Result<Exit, Failure> {
    let (mut names, words) = args.check()?;
    let change = taints::parse(&words).map_err(|error| Failure::usage(error.to_string()))?;
    let (http, _) = args.cluster.connect().await?;
    if args.all || !args.selector.is_empty() {
        let chosen = select::nodes(&http, &args.selector, 500).await?;
        names = chosen.into_iter().map(|node| node.name).collect();
        if names.is_empty() {
            output::talk("no nodes matched");
        }
    }
    let dry_run = args.dry_run.how();
    let request = TaintRequest {
        change,
        overwrite: args.overwrite,
        manager: args.field_manager.clone(),
        validation: args.validate.directive(),
        dry_run: dry_run == DryRunArg::Server,
        send: dry_run != DryRunArg::Client,
    };
    let mut exit = Exit::Done;
    for name in names {
        match nodes::taint(&http, &name, &request).await {
            Ok((word, node)) => match args.output {
                None => output::data(&format!("node/{name} {}{}", word.word(), dry_run.suffix())),
                Some(format) => print(format, &name, node)?,
            },
            Err(NodeError::Http(error)) => {
                output::error(&from_server(&error).message);
                if error.is_not_found()
                    && let Some(hint) = suggest::node(&http, &name).await
                {
                    output::talk(&hint);
                }
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

/// The node in the words of `-o`; like kubectl without the bookkeeping of field owners.
fn print(format: TaintFormat, name: &str, mut node: Value) -> Result<(), Failure> {
    if let Some(metadata) = node.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    match format {
        TaintFormat::Name => output::data(&format!("node/{name}")),
        TaintFormat::Json => {
            let text = serde_json::to_string_pretty(&node)
                .map_err(|error| Failure::error(format!("cannot print the node: {error}")))?;
            output::document(&text);
        }
        TaintFormat::Yaml => {
            let text = serde_saphyr::to_string(&node)
                .map_err(|error| Failure::error(format!("cannot print the node: {error}")))?;
            output::document(&text);
        }
    }
    Ok(())
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

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: TaintArgs,
    }

    fn checked(line: &str) -> Result<(Vec<String>, Vec<String>), Failure> {
        let words = std::iter::once("taint").chain(line.split(' '));
        <Line as clap::Parser>::try_parse_from(words).unwrap().args.check()
    }

    #[test]
    fn a064_a_selector_all_or_names_are_needed_and_the_first_two_not_together() {
        let taint = "a=b:NoSchedule";
        assert!(checked(&format!("node -l x=y {taint}")).is_ok());
        assert!(checked(&format!("node --all {taint}")).is_ok());
        assert!(checked(&format!("node --all -l x=y {taint}")).is_err());
        assert!(checked(&format!("node {taint}")).is_err());
        assert!(checked(&format!("node n1 {taint}")).is_ok());
        assert!(checked(&format!("node/n1 {taint}")).is_ok());
        assert!(checked(&format!("pod n1 {taint}")).is_err());
        assert!(checked("node n1").is_err(), "nothing to change");
    }

    #[test]
    fn a062_words_that_are_no_taints_are_refused_before_anything_is_sent() {
        for bad in ["a=b:Sometimes", "=b:NoSchedule", "a=b"] {
            let (_, words) = checked(&format!("node n1 {bad}")).unwrap();
            assert!(taints::parse(&words).is_err(), "{bad}");
        }
    }
}
