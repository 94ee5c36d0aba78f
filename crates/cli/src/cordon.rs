//! `evac cordon` and `evac uncordon`.

use clap::Args;
use evac_core::ownership::MarkState;
use evac_engine::nodes;

use crate::cluster::{ClusterArgs, OwnerArgs};
use crate::dry_run::{DryRunArg, DryRunFlag};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::select::{NodeArgs, from_server};

/// Make nodes unschedulable, or schedulable again
#[derive(Debug, Clone, Args)]
pub struct CordonArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    #[command(flatten)]
    pub dry_run: DryRunFlag,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

pub async fn cordon(args: &CordonArgs) -> Result<Exit, Failure> {
    change(args, "cordon", false).await
}

/// Makes nodes schedulable and removes what a drain of ours left on them.
pub async fn uncordon(args: &CordonArgs) -> Result<Exit, Failure> {
    change(args, "uncordon", true).await
}

async fn change(args: &CordonArgs, verb: &str, schedulable: bool) -> Result<Exit, Failure> {
    args.nodes.check(verb)?;
    let dry_run = args.dry_run.how();
    let (http, _) = args.cluster.connect().await?;
    let chosen = args.nodes.resolve(&http, 500).await?;
    let mut exit = Exit::Done;
    for node in chosen {
        if schedulable
            && let Some(MarkState::Valid(mark)) = &node.mark
            && mark.owner != OwnerArgs::default().name()
        {
            output::warning(&format!("this ends the drain of node {} by {}", node.name, mark.owner));
        }
        // A node that was given up for dead must not get new guests while an old one may run on it.
        if schedulable && !crate::failover::may_return(&http, &node.name, dry_run != DryRunArg::None).await? {
            exit = Exit::worst([exit, Exit::Refused]);
            continue;
        }
        let already = node.unschedulable != schedulable;
        let result = match dry_run {
            DryRunArg::Client => Ok(()),
            how => {
                let trial = how == DryRunArg::Server;
                if schedulable && (!already || node.mark.is_some()) {
                    nodes::undo(&http, &node.name, true, trial).await.map(|undone| {
                        if let Some(left) = &undone.left {
                            output::warning(left);
                        }
                    })
                } else {
                    nodes::set_schedulable(&http, &node, schedulable, trial)
                        .await
                        .map(|_| ())
                        .map_err(Into::into)
                }
            }
        };
        let suffix = dry_run.suffix();
        match result {
            Ok(()) if already => output::data(&format!("node/{} already {verb}ed{suffix}", node.name)),
            Ok(()) => output::data(&format!("node/{} {verb}ed{suffix}", node.name)),
            Err(error) => {
                let why = match &error {
                    nodes::NodeError::Http(error) => from_server(error).message,
                    other => other.to_string(),
                };
                output::error(&format!("unable to {verb} node \"{}\": {why}", node.name));
                exit = Exit::worst([exit, Exit::Error]);
            }
        }
    }
    Ok(exit)
}
