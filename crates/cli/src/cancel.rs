//! `evac cancel`: take back what a drain did to nodes, and nothing else.

use std::time::Duration;

use clap::Args;
use evac_core::drain::claim;
use evac_core::drain::ownership::MarkState;
use evac_core::maintenance::refusal::Wish;
use evac_engine::call_back::{Whose, call_back};
use evac_engine::{Http, nodes};

use crate::dry_run::DryRunArg;
use crate::exit::{Exit, Failure};
use crate::holder::{self, GiveBackArgs};
use crate::output;
use crate::select::{NONE_CHOSEN, from_server};

/// Undo what a drain did to nodes; what others changed meanwhile stays
///
/// A node that was cordoned before the drain stays cordoned. Pods that were already evicted do not come back by themselves;
/// a drain that is still running on the node notices and ends. Live migrations that the drain started are aborted.
#[derive(Debug, Clone, Args)]
pub struct CancelArgs {
    #[command(flatten)]
    pub back: GiveBackArgs,
}

pub async fn run(args: &CancelArgs) -> Result<Exit, Failure> {
    let args = &args.back;
    args.nodes.check("cancel")?;
    let dry_run = args.dry_run.how();
    let (http, _) = args.cluster.connect().await?;
    let me = args.owner.name();
    let chosen = args.nodes.resolve(&http, 500).await?;
    if chosen.is_empty() {
        return Ok(NONE_CHOSEN);
    }
    let mut ends = Vec::new();
    for node in chosen {
        let name = &node.name;
        if node.mark.is_none() {
            output::data(&format!("node/{name} not being drained{}", dry_run.suffix()));
            // A cancel that was cut off may have left something.
            ends.push(take_back(&http, name, (!args.force).then_some(&me), dry_run).await);
            continue;
        }
        let judges_only = dry_run != DryRunArg::None;
        let wish = Wish { owner: &me, verb: "cancel it", force: args.force, after_failover: false };
        let holder::Held { index, refusal } = holder::look(&http, &node, wish, judges_only).await?;
        if let Some(refusal) = refusal {
            output::error(&refusal);
            ends.push(Exit::Refused);
            continue;
        }
        // Giving a failed node back is using it again.
        if !args.force && !crate::failover::may_return(&http, name, judges_only).await? {
            ends.push(Exit::Refused);
            continue;
        }
        if dry_run == DryRunArg::Client {
            output::data(&format!("node/{name} drain cancelled{}", dry_run.suffix()));
            ends.push(Exit::Done);
            continue;
        }
        let drained_until_now = claim::life(&index, name, http.clock().now()).perhaps_alive().is_some();
        let trial = dry_run == DryRunArg::Server;
        // What was judged above is what is taken back: a mark that changed hands since belongs to its new owner.
        let undone = match &node.mark {
            Some(MarkState::Valid(mark)) => nodes::undo_of(&http, name, &mark.owner, trial).await,
            _ => nodes::undo(&http, name, false, trial).await.map(Some),
        };
        match undone {
            Ok(None) => {
                output::error(&format!(
                    "node {name} was given back or taken over by another owner meanwhile; nothing was changed"
                ));
                ends.push(Exit::Refused);
            }
            Ok(Some(undone)) => {
                output::data(&format!("node/{name} drain cancelled{}", dry_run.suffix()));
                if let Some(left) = &undone.left {
                    output::warning(left);
                }
                if undone.uncordoned {
                    output::data(&format!("node/{name} uncordoned{}", dry_run.suffix()));
                } else if let Some(MarkState::Valid(mark)) = &node.mark
                    && mark.before.unschedulable
                {
                    output::talk(&format!("node {name} stays cordoned, as it was before the drain"));
                }
                let owner = match &node.mark {
                    Some(MarkState::Valid(mark)) => Some(&mark.owner),
                    _ => None,
                };
                ends.push(take_back(&http, name, owner, dry_run).await);
                // The drain may have asked for one more migration before it saw that it is over.
                if drained_until_now && dry_run == DryRunArg::None {
                    http.clock().sleep(LAST_REQUESTS).await;
                    ends.push(take_back(&http, name, owner, dry_run).await);
                }
            }
            Err(nodes::NodeError::Http(error)) => {
                output::error(&from_server(&error).message);
                ends.push(Exit::Error);
            }
            Err(error) => {
                output::error(&format!("node {name}: {error}"));
                ends.push(Exit::Error);
            }
        }
    }
    Ok(Exit::worst(ends))
}

/// How long a drain may take to notice that it was cancelled.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

/// Aborts migrations and clears marks, once the node itself is given back.
async fn take_back(http: &Http, node: &str, owner: Option<&String>, dry_run: DryRunArg) -> Exit {
    if dry_run == DryRunArg::Client {
        return Exit::Done;
    }
    let suffix = dry_run.suffix();
    let dry_run = dry_run == DryRunArg::Server;
    let whose = owner.map_or(Whose::Drains, |owner| Whose::Owner(owner.as_str()));
    match call_back(http, node, whose, dry_run).await {
        Ok(done) => {
            for vmi in &done.aborted {
                output::data(&format!("migration of vmi {vmi} aborted{suffix}"));
            }
            for vmi in &done.unmarked {
                output::data(&format!("vmi {vmi} no longer marked for evacuation{suffix}"));
            }
            for left in &done.left {
                output::warning(&left.sentence());
            }
            if done.left.is_empty() { Exit::Done } else { Exit::Error }
        }
        Err(error) => {
            output::error(&from_server(&error).message);
            Exit::Error
        }
    }
}
