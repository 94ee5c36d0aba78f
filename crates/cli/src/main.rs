//! `evac`: empties Kubernetes nodes of virtual machines and pods, safely and provably.
//!
//! Also found as `kubectl-evac`, which makes it `kubectl evac`.

mod cancel;
mod capture;
mod cluster;
mod complete;
mod cordon;
mod demo;
mod drain;
mod dry_run;
mod duration;
mod exit;
mod explain;
mod failover;
mod holder;
mod in_process;
mod leading;
mod live;
mod log;
mod look;
mod maintenance;
mod man;
mod manifests;
mod number;
mod operator;
mod output;
mod plan;
mod proxy;
mod rehearse;
mod render;
mod sandbox;
mod screen;
mod select;
mod status;
mod suggest;
mod taint;
mod vm;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::{Exit, Failure};

/// Empty Kubernetes nodes of virtual machines and pods, safely and provably
#[derive(Debug, Parser)]
#[command(name = "evac", version, propagate_version = true)]
#[command(
    after_help = "kubectl's connection flags, such as --context, --kubeconfig and -n, may stand before the verb as well."
)]
struct Cli {
    /// How much to log on stderr, as kubectl has it: 6 and more show every request and its answer
    #[arg(long = "v", short = 'v', global = true, default_value_t = 0, hide_default_value = true, value_name = "LEVEL", value_parser = number::between(0_u8, 10), help_heading = "Log")]
    verbosity: u8,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Drain(drain::DrainArgs),
    /// Make nodes unschedulable
    Cordon(cordon::CordonArgs),
    Uncordon(cordon::UncordonArgs),
    Taint(taint::TaintArgs),
    Status(status::StatusArgs),
    Explain(explain::ExplainArgs),
    Plan(plan::PlanArgs),
    Cancel(cancel::CancelArgs),
    Capture(capture::CaptureArgs),
    Failover(failover::FailoverArgs),
    Rehearse(rehearse::RehearseArgs),
    /// Put nodes into maintenance by an object that an operator carries out, and bring them back
    #[command(subcommand)]
    Maintenance(maintenance::MaintenanceCommand),
    Demo(demo::DemoArgs),
    /// The verbs for nodes as `oc adm` spells them
    #[command(subcommand)]
    Adm(AdmVerb),
    /// List, start, stop, restart and migrate virtual machines
    #[command(subcommand)]
    Vm(vm::VmCommand),
    Operator(operator::OperatorArgs),
    Manifests(manifests::ManifestsArgs),
    /// A whole cluster in one process, for trying things out
    #[command(subcommand)]
    Sandbox(sandbox::SandboxCommand),
    Completion(complete::CompletionArgs),
    Man(man::ManArgs),
}

/// What `oc adm` calls the same.
#[derive(Debug, Subcommand)]
enum AdmVerb {
    Drain(drain::DrainArgs),
    /// Make nodes unschedulable
    Cordon(cordon::CordonArgs),
    Uncordon(cordon::UncordonArgs),
    Taint(taint::TaintArgs),
}

fn main() -> ExitCode {
    let _ = rustls::crypto::ring::default_provider().install_default();
    if complete::answer(Cli::command) {
        return Exit::Done.into();
    }
    let called_as = std::env::args().next().unwrap_or_default();
    let plugin = std::path::Path::new(&called_as).file_stem().is_some_and(|name| name == "kubectl-evac");
    let command = if plugin { for_kubectl(Cli::command()) } else { Cli::command() };
    let words = leading::arranged(&command, std::env::args_os());
    let cli = match Cli::from_arg_matches(&command.get_matches_from(words)) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    log::requests(cli.verbosity);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&format!("cannot start: {error}"));
            return Exit::Error.into();
        }
    };
    match runtime.block_on(run(cli.verb)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::error(&failure.message);
            if let Some(hint) = &failure.hint {
                output::talk(hint);
            }
            failure.exit.into()
        }
    }
}

/// The help as people see it who type `kubectl evac`.
fn for_kubectl(command: clap::Command) -> clap::Command {
    command.bin_name("kubectl evac").mut_subcommands(|verb| {
        let Some(text) = verb.get_after_help().map(ToString::to_string) else { return verb };
        verb.after_help(text.replace("\n  evac ", "\n  kubectl evac "))
    })
}

async fn run(verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Drain(args) | Verb::Adm(AdmVerb::Drain(args)) => drain::run(&args).await,
        Verb::Cordon(args) | Verb::Adm(AdmVerb::Cordon(args)) => cordon::cordon(&args).await,
        Verb::Uncordon(args) | Verb::Adm(AdmVerb::Uncordon(args)) => cordon::uncordon(&args).await,
        Verb::Taint(args) | Verb::Adm(AdmVerb::Taint(args)) => taint::run(&args).await,
        Verb::Status(args) => status::run(&args).await,
        Verb::Explain(args) => explain::run(&args).await,
        Verb::Plan(args) => Box::pin(plan::run(&args)).await,
        Verb::Cancel(args) => cancel::run(&args).await,
        Verb::Capture(args) => capture::run(&args).await,
        // Its future is larger than what a stack should carry.
        Verb::Failover(args) => Box::pin(failover::run(&args)).await,
        Verb::Rehearse(args) => Box::pin(rehearse::run(&args)).await,
        Verb::Maintenance(command) => maintenance::run(&command).await,
        Verb::Demo(args) => demo::run(&args).await,
        Verb::Vm(command) => vm::run(&command).await,
        Verb::Operator(args) => operator::run(&args).await,
        Verb::Manifests(args) => manifests::run(&args),
        Verb::Sandbox(command) => sandbox::run(command).await,
        Verb::Completion(args) => complete::run(&args),
        Verb::Man(args) => man::run(Cli::command(), &args),
    }
}

/// Runs words as if they had been typed; for the demo, which shows real commands.
async fn run_words(words: &[&str]) -> Result<Exit, Failure> {
    match Cli::try_parse_from(words) {
        Ok(cli) => Box::pin(run(cli.verb)).await,
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn as_a_plugin_the_examples_say_kubectl() {
        let mut command = for_kubectl(Cli::command());
        let help = command.find_subcommand_mut("drain").unwrap().render_help().to_string();
        assert!(help.contains("\n  kubectl evac drain worker-1"), "{help}");
        assert!(!help.contains("\n  evac "), "{help}");
    }
}
