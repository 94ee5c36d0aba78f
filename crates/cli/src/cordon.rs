//! `evac cordon` and `evac uncordon`.

use clap::Args;
use evac_core::Node;
use evac_core::maintenance::refusal::GiveBackRequest;
use evac_engine::{Http, nodes};

use crate::cluster::ClusterArgs;
use crate::dry_run::{DryRunArg, DryRunFlag};
use crate::exit::{Exit, Failure};
use crate::holder::{self, GiveBackArgs};
use crate::output;
use crate::select::{NodeArgs, from_server};

#[derive(Debug, Clone, Args)]
pub struct CordonArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    #[command(flatten)]
    pub dry_run: DryRunFlag,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Make nodes schedulable again, and remove what a drain left on them
///
/// A node that another owner drains or holds is refused (exit code 5), and so is one under a NodeMaintenance, which
/// would cordon it again.
#[derive(Debug, Clone, Args)]
pub struct UncordonArgs {
    #[command(flatten)]
    pub back: GiveBackArgs,
}

pub async fn cordon(args: &CordonArgs) -> Result<Exit, Failure> {
    args.nodes.check("cordon")?;
    let dry_run = args.dry_run.how();
    let (http, _) = args.cluster.connect().await?;
    let mut ends = Vec::new();
    for node in args.nodes.resolve(&http, 500).await? {
        let sent = match dry_run {
            DryRunArg::Client => Ok(()),
            how => nodes::set_schedulable(&http, &node, false, how == DryRunArg::Server)
                .await
                .map(|_| ())
                .map_err(Into::into),
        };
        ends.push(tell(&node, "cordon", node.unschedulable, dry_run, sent));
    }
    Ok(Exit::worst(ends))
}

pub async fn uncordon(args: &UncordonArgs) -> Result<Exit, Failure> {
    let args = &args.back;
    args.nodes.check("uncordon")?;
    let (http, _) = args.cluster.connect().await?;
    let mut ends = Vec::new();
    for node in args.nodes.resolve(&http, 500).await? {
        ends.push(uncordon_one(&http, args, &node).await?);
    }
    Ok(Exit::worst(ends))
}

async fn uncordon_one(http: &Http, args: &GiveBackArgs, node: &Node) -> Result<Exit, Failure> {
    let dry_run = args.dry_run.how();
    let judges_only = dry_run != DryRunArg::None;
    let owner = args.owner.name();
    let request =
        GiveBackRequest { owner: &owner, verb: "uncordon it", force: args.force, after_failover: true };
    if let Some(refusal) = holder::look(http, node, request, judges_only).await?.refusal {
        output::error(&refusal);
        return Ok(Exit::Refused);
    }
    // A node that was given up for dead must not get new guests while an old one may run on it.
    if !crate::failover::may_return(http, &node.name, judges_only).await? {
        return Ok(Exit::Refused);
    }
    let already = !node.unschedulable;
    let sent = match dry_run {
        DryRunArg::Client => Ok(()),
        _ if already && node.mark.is_none() => Ok(()),
        how => nodes::undo(http, &node.name, true, how == DryRunArg::Server).await.map(|undone| {
            if let Some(left) = &undone.left {
                output::warning(left);
            }
        }),
    };
    Ok(tell(node, "uncordon", already, dry_run, sent))
}

/// Says what became of a node, in kubectl's words.
fn tell(
    node: &Node,
    verb: &str,
    already: bool,
    dry_run: DryRunArg,
    sent: Result<(), nodes::NodeError>,
) -> Exit {
    match sent {
        Ok(()) => {
            let already = if already { "already " } else { "" };
            output::data(&format!("node/{} {already}{verb}ed{}", node.name, dry_run.suffix()));
            Exit::Done
        }
        Err(error) => {
            let why = match &error {
                nodes::NodeError::Http(error) => from_server(error).message,
                other => other.to_string(),
            };
            output::error(&format!("unable to {verb} node \"{}\": {why}", node.name));
            Exit::Error
        }
    }
}
