//! `evac cancel`: take back what a drain did to nodes, and nothing else.

use clap::Args;
use evac_core::Node;
use evac_core::drain::claim;
use evac_core::drain::give_back::{CordonAfter, Evidence, GiveBack, Giver, OfGuests, OfNode, Whose};
use evac_core::drain::ownership::MarkState;
use evac_core::maintenance::refusal::GiveBackRequest;
use evac_engine::give_back::{Told, call_back, give_back};
use evac_engine::nodes::NodeError;

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
            if dry_run != DryRunArg::Client {
                let whose = if args.force { Whose::Drains } else { Whose::Owner(&me) };
                let done = call_back(&http, name, whose, dry_run == DryRunArg::Server).await;
                ends.push(tell(&node, Told::Guests(done), dry_run));
            }
            continue;
        }
        let judges_only = dry_run != DryRunArg::None;
        let request =
            GiveBackRequest { owner: &me, verb: "cancel it", force: args.force, after_failover: false };
        let holder::Held { index, refusal } = holder::look(&http, &node, request, judges_only).await?;
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
        let was_draining = claim::life(&index, name, http.clock().now()).perhaps_alive().is_some();
        // What was judged above is what is taken back: a mark that changed hands since belongs to its new owner.
        let (by, whose) = match &node.mark {
            Some(MarkState::Valid(mark)) => (Giver::Owner(&mark.owner), Whose::Owner(&mark.owner)),
            _ => (Giver::Anyone, Whose::Drains),
        };
        let request = GiveBack {
            node: OfNode { by, cordon: CordonAfter::AsBefore, evidence: Evidence::OnLease },
            guests: Some(OfGuests { whose, in_any_case: false, was_draining }),
            dry_run: dry_run == DryRunArg::Server,
        };
        let given = give_back(&http, name, &request, &mut |told| ends.push(tell(&node, told, dry_run))).await;
        match given {
            Ok(_) => {}
            Err(NodeError::Http(error)) => {
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

/// Says what became of the node, or of what was asked for about its guests.
fn tell(node: &Node, told: Told, dry_run: DryRunArg) -> Exit {
    let (name, suffix) = (&node.name, dry_run.suffix());
    match told {
        Told::NotTheirs => {
            output::error(&format!(
                "node {name} was given back or taken over by another owner meanwhile; nothing was changed"
            ));
            Exit::Refused
        }
        Told::Node(undone) => {
            output::data(&format!("node/{name} drain cancelled{suffix}"));
            if let Some(left) = &undone.left {
                output::warning(left);
            }
            if undone.uncordoned {
                output::data(&format!("node/{name} uncordoned{suffix}"));
            } else if let Some(MarkState::Valid(mark)) = &node.mark
                && mark.before.unschedulable
            {
                output::talk(&format!("node {name} stays cordoned, as it was before the drain"));
            }
            Exit::Done
        }
        Told::Guests(Ok(done)) => {
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
        Told::Guests(Err(error)) => {
            output::error(&from_server(&error).message);
            Exit::Error
        }
    }
}
