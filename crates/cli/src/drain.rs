//! `evac drain`: empty nodes, and prove it.

use std::time::Duration;

use clap::{Args, ValueEnum};
use evac_core::drain::run::End;
use evac_core::{DryRun, Policy};
use evac_engine::{DrainError, DrainRequest};
use tokio_util::sync::CancellationToken;

use crate::cluster::{ClusterArgs, OwnerArgs, instance};
use crate::dry_run::{DryRunArg, DryRunFlag};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::render::Renderer;
use crate::select::{NONE_CHOSEN, NodeArgs, from_server, parse_selector};
use crate::suggest;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum Format {
    /// Lines for people and scripts, as kubectl writes them
    #[default]
    Text,
    /// One JSON object per line; see docs/events.md
    Json,
}

/// What may happen to pods. Shared by the verbs that judge a node.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "What may happen to pods")]
#[allow(clippy::struct_excessive_bools, reason = "each is one flag")]
pub struct PolicyArgs {
    /// Let pods without a controller go, though nothing starts them again
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub force: bool,
    /// Leave DaemonSet pods where they are
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub ignore_daemonsets: bool,
    /// Let pods with emptyDir volumes go, though their data is lost
    #[arg(long, alias = "delete-local-data", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub delete_emptydir_data: bool,
    /// Consider only pods with these labels
    #[arg(long, default_value = "", hide_default_value = true, value_name = "SELECTOR")]
    pub pod_selector: String,
    /// Seconds given to each pod to stop; negative: its own value
    #[arg(long, default_value_t = -1, hide_default_value = true, allow_negative_numbers = true, value_name = "SECONDS", value_parser = crate::number::any)]
    pub grace_period: i64,
    /// Delete pods instead of evicting them: disruption budgets are not asked. Use with caution
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub disable_eviction: bool,
    /// Do not wait for pods whose grace period ended more than this many seconds ago
    #[arg(
        long,
        default_value_t = 0,
        hide_default_value = true,
        allow_negative_numbers = true,
        value_name = "SECONDS",
        value_parser = crate::number::any
    )]
    pub skip_wait_for_delete_timeout: i64,
    /// Shut virtual machines down even if they would not come back
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub allow_shutdown: bool,
    /// Let pods that keep the cluster working leave after all others
    #[arg(long)]
    pub critical_last: bool,
}

impl PolicyArgs {
    pub fn policy(&self) -> Result<Policy, Failure> {
        if self.skip_wait_for_delete_timeout < 0 {
            return Err(Failure::usage("--skip-wait-for-delete-timeout must not be negative"));
        }
        let skip = Duration::from_secs(self.skip_wait_for_delete_timeout.unsigned_abs());
        Ok(Policy {
            force: self.force,
            ignore_daemonsets: self.ignore_daemonsets,
            delete_emptydir_data: self.delete_emptydir_data,
            pod_selector: parse_selector("--pod-selector", &self.pod_selector)?,
            grace_seconds: (self.grace_period >= 0).then_some(self.grace_period),
            disable_eviction: self.disable_eviction,
            skip_wait_for_delete: (!skip.is_zero()).then_some(skip),
            critical_last: self.critical_last,
            allow_shutdown: self.allow_shutdown,
            ..Policy::default()
        })
    }
}

/// Empty nodes of their pods and virtual machines, and prove it
///
/// Every pod gets a verdict before anything is changed. Then the nodes are cordoned, and pods are evicted as fast as
/// their disruption budgets allow. What is in the way is named within seconds. At the end the nodes are read again, and
/// the answer to "safe to power off?" is yes, no or unknown.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct DrainArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Give up on a node after this time, such as 5m; 0 waits for ever
    #[arg(long, value_parser = crate::duration::parse, default_value = "0s", hide_default_value = true, value_name = "DURATION", allow_hyphen_values = true, help_heading = HOW)]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunFlag,
    /// Read lists in pages of this size, 0 reads them whole; without it each list comes with its watch
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = crate::number::any, help_heading = HOW)]
    pub chunk_size: Option<i64>,
    /// Drain a node that another owner is draining
    #[arg(long, help_heading = HOW)]
    pub take_over: bool,
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Requests under way at the same time
    #[arg(long, default_value_t = Policy::default().parallel, value_parser = crate::number::from(1_usize), value_name = "N", allow_negative_numbers = true, help_heading = HOW)]
    pub parallel: usize,
    /// Output format
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT", help_heading = HOW)]
    pub output: Format,
    /// Begin each line of text with the time
    #[arg(long, help_heading = HOW)]
    pub timestamps: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

const EXAMPLES: &str = "\
Examples:
  # What would happen to the pods of worker-1, and what is in the way?
  evac drain worker-1 --dry-run=client

  # Empty it; DaemonSet pods stay, emptyDir data may go
  evac drain worker-1 --ignore-daemonsets --delete-emptydir-data

  # Empty a whole zone within its disruption budgets, give up after ten minutes
  evac drain -l topology.kubernetes.io/zone=a --ignore-daemonsets --timeout=10m

  # Undo what the drain did to the node
  evac cancel worker-1

Exit codes:
  0  drained and proven           4  timed out
  1  error                        5  owned by someone else, or refused
  2  wrong usage                  6  cancelled
  3  blocked, waiting will not help";

const HOW: &str = "How to go about it";

pub async fn run(args: &DrainArgs) -> Result<Exit, Failure> {
    args.nodes.check("drain")?;
    if args.timestamps {
        output::begin_lines_with_time();
    }
    let mut policy = args.policy.policy()?;
    policy.timeout = (!args.timeout.is_zero()).then_some(args.timeout);
    policy.take_over = args.take_over;
    policy.parallel = args.parallel;
    let dry_run = args.dry_run.how();
    policy.dry_run = match dry_run {
        DryRunArg::None => DryRun::None,
        DryRunArg::Client => DryRun::Client,
        DryRunArg::Server => DryRun::Server,
    };
    let page = args.chunk_size.map(u32::try_from).transpose();
    let page = page.map_err(|_| Failure::usage("--chunk-size must not be negative"))?;

    let (http, _) = args.cluster.connect().await?;
    let nodes = if args.nodes.selector.is_some() {
        args.nodes.resolve(&http, page.unwrap_or(500)).await?.into_iter().map(|node| node.name).collect()
    } else {
        args.nodes.plain_names()?
    };
    if nodes.is_empty() {
        return Ok(NONE_CHOSEN);
    }
    let mut renderer = Renderer::new(args.output, dry_run, &nodes, http.clock());
    policy.measure = renderer.measure();
    let request = DrainRequest {
        nodes,
        policy,
        owner: args.owner.name(),
        instance: Some(instance()),
        options: command_line(),
        page,
    };
    let stop = CancellationToken::new();
    let interrupts = tokio::spawn(on_interrupt(stop.clone()));
    let ends =
        evac_engine::drain(http.clone(), request, stop, &mut |at, event| renderer.event(at, event)).await;
    interrupts.abort();
    renderer.finish();
    let ends = match ends {
        Err(DrainError::NodeNotFound(node)) => {
            let hint = suggest::node(&http, &node).await;
            return Err(failure(&DrainError::NodeNotFound(node)).with_hint(hint));
        }
        ends => ends.map_err(|error| failure(&error))?,
    };
    if ends.is_empty() {
        return Ok(Exit::Cancelled);
    }
    renderer.summary(&ends);
    Ok(Exit::worst(ends.iter().map(|(_, end)| exit_of(end))))
}

fn failure(error: &DrainError) -> Failure {
    match error {
        DrainError::NodeNotFound(_) => Failure::error(format!("Error from server (NotFound): {error}")),
        DrainError::Read { what, source } => {
            let inner = from_server(source);
            Failure::error(format!("{} (while reading {what})", inner.message))
        }
        DrainError::Invariant(_) => Failure::error(error.to_string()),
    }
}

pub fn exit_of(end: &End) -> Exit {
    match end {
        End::Drained { proof } if proof.fulfils_request() => Exit::Done,
        End::Rehearsed { blockers } if blockers.is_empty() => Exit::Done,
        End::Drained { .. } | End::Failed { .. } => Exit::Error,
        End::Rehearsed { .. } | End::NotStarted { .. } | End::Blocked { .. } => Exit::Blocked,
        End::TimedOut { .. } => Exit::TimedOut,
        End::Refused { .. } => Exit::Refused,
        End::Stopped { .. } => Exit::Cancelled,
    }
}

/// The options of this command, for people who find the mark on the node. Secrets are not among drain's own flags,
/// but a token may be on the command line and must not be written down.
fn command_line() -> Vec<String> {
    let mut words = Vec::new();
    let mut skip = false;
    for word in std::env::args().skip(1) {
        if skip {
            skip = false;
        } else if word == "--token" || word == "--client-key" {
            skip = true;
        } else if !word.starts_with("--token=") && !word.starts_with("--client-key=") {
            words.push(word);
        }
    }
    words
}

/// Once: stop starting new things. Twice: leave at once.
pub async fn on_interrupt(stop: CancellationToken) {
    interrupted().await;
    output::talk("stopping: nothing new is started; press Ctrl-C again to leave at once");
    stop.cancel();
    interrupted().await;
    crate::live::end();
    std::process::exit(Exit::Cancelled as i32);
}

/// Ctrl-C, or the polite request to end that service managers send.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evac_core::drain::run::{Blocker, Left};
    use evac_core::reasons::{FilterReason, NodeReason, OwnerReason};
    use evac_core::{Key, Proof, Reason};

    use super::*;

    #[test]
    fn numbers_in_events_are_plain_seconds() {
        let end = End::TimedOut { after: Duration::from_secs(5), blockers: Vec::new() };
        let line = serde_json::to_value(&end).unwrap();
        assert_eq!(line, serde_json::json!({"end": "timedOut", "after": 5, "blockers": []}));
    }

    #[test]
    fn zero_is_for_what_was_done_and_proven_and_for_nothing_else() {
        let proofs = [
            (Proof::Yes, Exit::Done),
            (Proof::No { left: vec![Key::new("a", "b")], by_choice: true }, Exit::Done),
            (Proof::No { left: vec![Key::new("a", "b")], by_choice: false }, Exit::Error),
            (Proof::Unknown { why: "not read".into(), by_choice: false }, Exit::Error),
        ];
        for (proof, exit) in proofs {
            assert_eq!(exit_of(&End::Drained { proof: proof.clone() }), exit, "{proof}");
        }
        let blockers = || {
            let since = jiff::Timestamp::UNIX_EPOCH;
            vec![Blocker {
                pod: Key::new("a", "b"),
                owner: None,
                reason: Reason::Filter(FilterReason::NoController),
                since,
            }]
        };
        let ends = [
            (End::Rehearsed { blockers: Vec::new() }, Exit::Done),
            (End::Rehearsed { blockers: blockers() }, Exit::Blocked),
            (End::NotStarted { blockers: blockers() }, Exit::Blocked),
            (End::Blocked { blockers: blockers() }, Exit::Blocked),
            (End::TimedOut { after: Duration::from_secs(1), blockers: Vec::new() }, Exit::TimedOut),
            (
                End::Failed { reason: Reason::Node(NodeReason::NodeMissing), blockers: Vec::new() },
                Exit::Error,
            ),
            (End::Refused { reason: Reason::Owner(OwnerReason::CancelledElsewhere) }, Exit::Refused),
            (
                End::Stopped { left: Left::Nothing, to_leave: Vec::new(), blockers: Vec::new() },
                Exit::Cancelled,
            ),
        ];
        for (end, exit) in ends {
            assert_eq!(exit_of(&end), exit, "{end:?}");
        }
    }
}
