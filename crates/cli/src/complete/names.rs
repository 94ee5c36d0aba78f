//! Names of what is in the cluster that the command line means so far.
//!
//! A shell waits for the answer, so a cluster that is slow or away offers nothing.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{Command, CommandFactory, FromArgMatches};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use evac_api::kubevirt::request;
use evac_api::wire::Named;
use evac_core::cluster::natural::natural;
use evac_core::machines::Kind;
use evac_engine::watch::{Source, list};

use crate::Cli;
use crate::cluster::ClusterArgs;

/// Nobody waits longer for a shell.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
enum What {
    Nodes,
    Vms,
    Namespaces,
}

/// Nodes, also as `node/NAME`.
pub fn nodes() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| of_node(&typed.to_string_lossy()))
}

/// Nodes and machines, as `evac explain` takes them.
pub fn subjects() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let typed = typed.to_string_lossy();
        if typed.starts_with(VM) {
            return candidates(&typed, VM, &of_cluster(What::Vms));
        }
        let mut all = of_node(&typed);
        all.extend(VM.starts_with(&*typed).then(|| CompletionCandidate::new(VM)));
        all
    })
}

/// Virtual machines in the namespace.
pub fn vms() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| candidates(&typed.to_string_lossy(), "", &of_cluster(What::Vms)))
}

pub fn namespaces() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        candidates(&typed.to_string_lossy(), "", &of_cluster(What::Namespaces))
    })
}

const NODE: &str = "node/";
const VM: &str = "vm/";

fn of_node(typed: &str) -> Vec<CompletionCandidate> {
    let prefix = if typed.starts_with(NODE) { NODE } else { "" };
    candidates(typed, prefix, &of_cluster(What::Nodes))
}

/// The names that go on from what was typed, in natural order.
fn candidates(typed: &str, prefix: &str, names: &[String]) -> Vec<CompletionCandidate> {
    let Some(begin) = typed.strip_prefix(prefix) else { return Vec::new() };
    let mut fitting: Vec<&String> = names.iter().filter(|name| name.starts_with(begin)).collect();
    fitting.sort_by(|one, other| natural(one, other));
    let candidate = |(order, name): (usize, &String)| {
        CompletionCandidate::new(format!("{prefix}{name}")).display_order(Some(order))
    };
    fitting.into_iter().enumerate().map(candidate).collect()
}

/// All names of a kind, or none if the cluster does not answer.
fn of_cluster(what: What) -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let cluster = meant(Cli::command(), words);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let read = async {
        let (http, namespace) = cluster.connect().await.ok()?;
        let path = match what {
            What::Nodes => "/api/v1/nodes".to_owned(),
            What::Namespaces => "/api/v1/namespaces".to_owned(),
            What::Vms => request::in_namespace(Kind::Machine, &namespace),
        };
        let source = Source { path: path.into(), query: String::new(), page: 500 };
        let name = |object: Named| Some(object.metadata.name);
        Some(list(&http, &source, name).await.ok()?.0)
    };
    let names = runtime.block_on(async { tokio::time::timeout(PATIENCE, read).await });
    names.ok().flatten().unwrap_or_default()
}

/// The connection flags among the words, which need not be a whole command yet.
fn meant(command: Command, words: impl IntoIterator<Item = std::ffi::OsString>) -> ClusterArgs {
    let words = crate::leading::arranged(&command, words);
    let Ok(matches) = command.ignore_errors(true).try_get_matches_from(words) else {
        return ClusterArgs::default();
    };
    let mut innermost = &matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    if innermost.try_contains_id("tls_server_name").is_err() {
        return ClusterArgs::default();
    }
    ClusterArgs::from_arg_matches(innermost).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant_by(line: &str) -> ClusterArgs {
        meant(Cli::command(), line.split(' ').map(std::ffi::OsString::from))
    }

    #[test]
    fn the_cluster_is_the_one_that_the_words_so_far_mean() {
        for line in
            ["evac drain --context x no", "evac --context x drain -n y no", "evac vm --context x stop "]
        {
            assert_eq!(meant_by(line).context.as_deref(), Some("x"), "{line}");
        }
        assert_eq!(meant_by("evac --context x drain -n y no").namespace.as_deref(), Some("y"));
        assert_eq!(meant_by("evac dr").context, None);
        assert_eq!(meant_by("evac sandbox up ").context, None, "it has no such flags");
    }

    #[test]
    fn names_are_offered_that_go_on_from_what_was_typed() {
        let names = ["node-10", "node-2", "gpu-1"].map(str::to_owned);
        let offered = |typed: &str, prefix: &str| {
            let all = candidates(typed, prefix, &names);
            all.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(offered("no", ""), ["node-2", "node-10"]);
        assert_eq!(offered("node/g", "node/"), ["node/gpu-1"]);
        assert_eq!(offered("x", ""), [] as [String; 0]);
    }
}
