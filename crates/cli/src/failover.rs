//! `evac failover`: bring the guests of a failed node back elsewhere, once the node is proven to be off.

mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use evac_core::drain::give_back::Giver;
use evac_core::failover::{FailoverSpec, How, ProofFrom, Release, Return, Silence};
use evac_engine::Http;
use evac_engine::failover::{
    Agent, End, Environment, FailoverError, FailoverRequest, Fence, failover, fence_by, forget,
};
use evac_engine::nodes::NodeError;
use tokio_util::sync::CancellationToken;

use crate::cluster::{ClusterArgs, OwnerArgs};
use crate::drain::{Format, on_interrupt};
use crate::dry_run::{DryRunArg, DryRunFlag};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::{NodeArgs, from_server};
use crate::suggest;

const PROOF: &str = "Proof that the machine is off";
const HOW: &str = "How to go about it";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum ReleaseArg {
    /// The taint where the server knows it (Kubernetes 1.28), otherwise deletion of the Node object
    #[default]
    Auto,
    /// The taint node.kubernetes.io/out-of-service
    Taint,
    /// Delete the Node object; it comes back when its kubelet is started
    DeleteNode,
}

/// Bring the guests of a failed node back on other nodes, once it is proven to be off
///
/// First it says what is known: since when the node is silent, which volumes are attached to it, which virtual machines would
/// come back and which would not. Then the node is cordoned. A node that does not answer may still run its guests, so
/// nothing is released until a person, a fence agent or the provider has proven that the machine is off.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct FailoverArgs {
    /// The node that failed; node/NAME works too
    #[arg(value_name = "NODE", add = crate::complete::nodes())]
    pub node: String,
    /// Who states that the machine is off; written on the node
    #[arg(long, value_name = "WHO", requires = "reason", conflicts_with = "fence_agent", help_heading = PROOF)]
    pub fenced_by: Option<String>,
    /// How they know, such as "pulled the power cord"
    #[arg(long, value_name = "TEXT", requires = "fenced_by", help_heading = PROOF)]
    pub reason: Option<String>,
    /// A command of the fence-agents family that switches the machine off and sees it off
    #[arg(long, value_name = "COMMAND", help_heading = PROOF)]
    pub fence_agent: Option<String>,
    /// An option for the agent, such as ip=10.0.0.7; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "fence_agent", help_heading = PROOF)]
    pub fence_option: Vec<String>,
    /// A file with more options, one KEY=VALUE per line; the place for passwords
    #[arg(long, value_name = "FILE", requires = "fence_agent", help_heading = PROOF)]
    pub fence_options_from: Option<PathBuf>,
    /// How long one call of the agent may take
    #[arg(long, value_parser = crate::duration::parse, default_value = "60s", value_name = "DURATION", help_heading = PROOF)]
    pub fence_timeout: Duration,
    /// How often the agent is tried
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = crate::number::between(1_u32, 100), help_heading = PROOF)]
    pub fence_tries: u32,
    /// How the node is released
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW", help_heading = HOW)]
    pub release: ReleaseArg,
    /// Answer yourself for the quorum of etcd, where the node is of the control plane
    #[arg(long, help_heading = HOW)]
    pub allow_control_plane: bool,
    /// How long a node whose kubelet still answers is drained first
    #[arg(long, value_parser = crate::duration::parse, default_value = "30s", value_name = "DURATION", help_heading = HOW)]
    pub drain_timeout: Duration,
    /// Give up waiting after this time, such as 5m; 0 waits for ever
    #[arg(long, value_parser = crate::duration::parse, default_value = "0s", hide_default_value = true, value_name = "DURATION", allow_hyphen_values = true, help_heading = HOW)]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunFlag,
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT", help_heading = HOW)]
    pub output: Format,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

const EXAMPLES: &str = "\
Examples:
  # What is known of worker-1, and what would become of its virtual machines?
  evac failover worker-1 --dry-run=client

  # You have switched it off yourself
  evac failover worker-1 --fenced-by kim --reason 'pulled the power cord'

  # Let a fence agent switch it off; its password is in a file
  evac failover worker-1 --fence-agent fence_ipmilan --fence-option ip=10.0.0.7 --fence-options-from bmc.conf

  # The machine is repaired and Ready again
  evac uncordon worker-1

Exit codes:
  0  every machine that should run runs elsewhere
  1  error
  2  wrong usage
  3  not proven to be off: nothing was released; or released, and a machine cannot start
  4  timed out
  5  the node is Ready, held by another owner, seen alive, or needed for the quorum of etcd
  6  cancelled";

pub async fn run(args: &FailoverArgs) -> Result<Exit, Failure> {
    let names = NodeArgs { names: vec![args.node.clone()], selector: None }.plain_names()?;
    let Some(node) = names.into_iter().next() else { return Err(Failure::usage("name a node")) };
    let options = agent_options(args)?;
    if let Some(program) = &args.fence_agent
        && find(program).is_none()
    {
        return Err(Failure::usage(format!(
            "fence agent '{program}' is not there or is not a program; nothing was changed"
        )));
    }
    let (http, _) = args.cluster.connect().await?;
    let dry_run = args.dry_run.how() != DryRunArg::None;
    let (proof, fence) = proof(args, options, &http);
    let spec = FailoverSpec {
        node: node.clone(),
        owner: args.owner.name(),
        options: vec!["failover".into(), node.clone()],
        proof,
        release: match args.release {
            ReleaseArg::Auto => None,
            ReleaseArg::Taint => Some(Release::Taint),
            ReleaseArg::DeleteNode => Some(Release::DeleteNode),
        },
        allow_control_plane: args.allow_control_plane,
        dry_run,
        timeout: (!args.timeout.is_zero()).then_some(args.timeout),
        // A person waits, or says for how long.
        stall: None,
        drain: args.drain_timeout,
        policy: None,
    };
    let request = FailoverRequest { spec, fence, silence: Silence::default() };
    let stop = CancellationToken::new();
    let interrupts = tokio::spawn(on_interrupt(stop.clone()));
    let mut renderer = render::Renderer::new(args.output, &node, http.clock());
    let end = failover(&http, &request, &stop, &mut |at, event| renderer.event(at, event)).await;
    interrupts.abort();
    let end = match end {
        Err(FailoverError::NodeNotFound(node)) => {
            let hint = suggest::node(&http, &node).await;
            return Err(failure(&FailoverError::NodeNotFound(node)).with_hint(hint));
        }
        end => end.map_err(|error| failure(&error))?,
    };
    renderer.end(http.clock().now(), &end);
    Ok(exit_of(&end))
}

/// Where the proof is to come from, and what switches the machine off for it.
fn proof(args: &FailoverArgs, options: BTreeMap<String, String>, http: &Http) -> (ProofFrom, Option<Fence>) {
    if let Some(program) = &args.fence_agent {
        let agent = Agent {
            program: program.clone(),
            options,
            confidential: BTreeSet::new(),
            environment: Environment::Inherited,
            timeout: args.fence_timeout,
            clock: http.clock(),
        };
        let fence = fence_by(agent, args.fence_tries);
        return (fence.proof(), Some(fence));
    }
    let said = match (&args.fenced_by, &args.reason) {
        (Some(by), Some(reason)) => {
            ProofFrom::Said(How::Statement { by: by.clone(), reason: reason.clone() })
        }
        _ => ProofFrom::Nowhere,
    };
    (said, None)
}

fn exit_of(end: &End) -> Exit {
    match end {
        End::Done { .. } | End::Drained | End::Rehearsed { proven: true, .. } => Exit::Done,
        End::Rehearsed { proven: false, .. } | End::NoProof { .. } | End::Left { .. } => Exit::Blocked,
        End::Refused(_) => Exit::Refused,
        End::TimedOut { .. } => Exit::TimedOut,
        End::Stopped { .. } => Exit::Cancelled,
    }
}

fn failure(error: &FailoverError) -> Failure {
    match error {
        FailoverError::NodeNotFound(_) => Failure::error(format!("Error from server (NotFound): {error}")),
        FailoverError::Http(error) => from_server(error),
        FailoverError::Drain(_) | FailoverError::Version { .. } | FailoverError::Contended { .. } => {
            Failure::error(error.to_string())
        }
    }
}

/// The agent's options from the command line and the file. One that is given twice could switch off the wrong machine.
fn agent_options(args: &FailoverArgs) -> Result<BTreeMap<String, String>, Failure> {
    let mut lines: Vec<String> = args.fence_option.clone();
    if let Some(path) = &args.fence_options_from {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
        let told = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.extend(told.map(str::to_owned));
    }
    let mut options = BTreeMap::new();
    for line in lines {
        let Some((key, value)) = line.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            // The line may be a secret that lacks its key.
            return Err(Failure::usage("an option of the fence agent is not of the form KEY=VALUE"));
        };
        if matches!(key, "action" | "nodename") {
            return Err(Failure::usage(format!("the fence agent's option {key} is not yours to give")));
        }
        if line.chars().any(char::is_control) {
            let why = "has a line break or another control character";
            let key: String = key.chars().filter(|c| !c.is_control()).collect();
            return Err(Failure::usage(format!("the fence agent's option {key} {why}")));
        }
        if options.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("the fence agent's option {key} is given twice")));
        }
    }
    Ok(options)
}

/// The program as a shell would find it, if there is one that may be run.
fn find(program: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| is_program(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| is_program(path))
}

/// Says what speaks against using a node again. True if nothing does; then the record of its failure is taken back, except in a dry run.
pub async fn may_return(http: &Http, node: &str, dry_run: bool) -> Result<bool, Failure> {
    let doubts = match forget(http, node, Giver::Anyone, dry_run).await {
        Ok(Some(Return::InDoubt(doubts))) => doubts,
        Ok(_) => return Ok(true),
        Err(NodeError::Http(error)) => return Err(from_server(&error)),
        Err(NodeError::Contended(tries)) => {
            return Err(Failure::error(format!("node {node} kept changing, gave up after {tries} tries")));
        }
        Err(error) => return Err(Failure::error(error.to_string())),
    };
    for doubt in doubts {
        output::error(&doubt.words(node));
    }
    output::talk(&format!(
        "To use it all the same, take back the record of its failure: kubectl annotate node {node} {}-",
        evac_core::failover::fencing::ANNOTATION
    ));
    Ok(false)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: FailoverArgs,
    }

    fn parse(words: &[&str]) -> Result<FailoverArgs, clap::Error> {
        Line::try_parse_from([&["failover", "n1"], words].concat()).map(|line| line.args)
    }

    #[test]
    fn a_statement_needs_a_reason_and_does_not_go_with_an_agent() {
        assert!(parse(&["--fenced-by", "kim"]).is_err());
        assert!(parse(&["--reason", "off"]).is_err());
        assert!(parse(&["--fenced-by", "kim", "--reason", "off"]).is_ok());
        assert!(parse(&["--fenced-by", "kim", "--reason", "off", "--fence-agent", "x"]).is_err());
        assert!(parse(&["--fence-option", "ip=1"]).is_err());
    }

    #[test]
    fn options_of_an_agent_are_pairs_given_once() {
        let read = |options: &[&str]| {
            let words: Vec<&str> = ["--fence-agent", "x"]
                .into_iter()
                .chain(options.iter().flat_map(|o| ["--fence-option", o]))
                .collect();
            agent_options(&parse(&words).unwrap())
        };
        assert_eq!(read(&["ip=10.0.0.1", "password=a=b"]).unwrap()["password"], "a=b");
        for bad in
            [&["hunter2"][..], &["=x"], &["ip=1", "ip=2"], &["action=on"], &["password=hunter2\naction=on"]]
        {
            let failure = read(bad).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(!failure.message.contains("hunter2"), "{}", failure.message);
        }
    }

    #[test]
    fn a_guest_that_cannot_start_and_a_node_that_cannot_be_spared_are_not_done() {
        use evac_core::Key;
        use evac_core::drain::quorum::Shortage;
        use evac_core::failover::{LetGo, Refusal};
        let unplaced =
            LetGo { instance: Key::new("default", "a"), why: "finds no place".into(), wanted: true };
        assert_eq!(exit_of(&End::Left { returned: 1, off: 0, guests: vec![unplaced] }), Exit::Blocked);
        assert_eq!(
            exit_of(&End::Done { returned: 1, off: 1 }),
            Exit::Done,
            "the other one is not meant to run"
        );
        assert_eq!(exit_of(&End::Refused(Refusal::Quorum(Shortage::Unseen))), Exit::Refused);
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        assert!(find("sh").is_some());
        assert!(find("/bin/sh").is_some());
        assert!(find("/etc/passwd").is_none(), "not a program");
        assert!(find("no-such-fence-agent").is_none());
    }
}
