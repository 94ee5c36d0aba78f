//! What the verbs have in common that give a node back, `evac cancel` and `evac uncordon`: their arguments, and what is read to find out who holds
//! the node. Who refuses is decided in [`evac_core::maintenance::refusal`].

use clap::Args;
use evac_core::drain::ownership::{is_marked_by_other, lease_key};
use evac_core::maintenance::Maintenance;
use evac_core::maintenance::refusal::{ByObjects, GiveBackRequest, by_holder, by_objects};
use evac_core::{Fact, Index, Node};
use evac_engine::{Http, life, nodes};

use crate::cluster::{ClusterArgs, OwnerArgs};
use crate::dry_run::DryRunFlag;
use crate::exit::Failure;
use crate::look::ask;
use crate::maintenance;
use crate::select::{NodeArgs, from_server};

#[derive(Debug, Clone, Args)]
pub struct GiveBackArgs {
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Do it also to a node that another owner drains or holds
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub owner: OwnerArgs,
    #[command(flatten)]
    pub dry_run: DryRunFlag,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// A node as it was read, with what is known about its drain.
pub struct Held {
    pub index: Index,
    /// One sentence, if the node may not be given back by this wish.
    pub refusal: Option<String>,
}

/// Looks who holds the node. A dry run only reads: it does not ask a drain whether it lives.
pub async fn look(
    http: &Http,
    node: &Node,
    request: GiveBackRequest<'_>,
    dry_run: bool,
) -> Result<Held, Failure> {
    let name = &node.name;
    let mut index = Index::new();
    index.apply(Fact::Node(Box::new(node.clone())));
    let objects = maintenances(http).await?;
    match by_objects(node, objects.as_deref(), &request) {
        ByObjects::Refused(refusal) => {
            return Ok(Held { index, refusal: Some(refusal.words(name, request.verb)) });
        }
        ByObjects::Allowed => return Ok(Held { index, refusal: None }),
        ByObjects::Silent => {}
    }
    let asks = !dry_run && !request.force && is_marked_by_other(node, request.owner);
    if node.mark.is_some() {
        let claim = if asks { ask(http, name).await } else { life::read(http, name).await };
        if let Some(fact) = claim {
            index.apply(fact);
        }
    } else if node.unschedulable && !request.force {
        let key = lease_key(name);
        match nodes::lease(http, &key).await {
            Ok(Some(lease)) => drop(index.apply(Fact::Lease(Box::new(lease)))),
            Ok(None) => {}
            // Without the right to look at them, leases of other operators are not respected; docs/drain.md says so.
            Err(error) if error.is_forbidden() => {}
            Err(error) => return Err(from_server(&error)),
        }
    }
    let refusal = by_holder(&index, node, &request, http.clock().now());
    Ok(Held { index, refusal: refusal.map(|refusal| refusal.words(name, request.verb)) })
}

/// All NodeMaintenance objects, none where the cluster has no such kind; `None` where we may not see them.
async fn maintenances(http: &Http) -> Result<Option<Vec<Maintenance>>, Failure> {
    match maintenance::objects::known(http).await {
        Ok(found) => Ok(Some(found.unwrap_or_default())),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(from_server(&error)),
    }
}
