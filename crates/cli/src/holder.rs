//! Who holds a node, for the verbs that give it back: `evac cancel` and `evac uncordon` refuse the same.

use evac_core::maintenance::{Maintenance, Uncordoned};
use evac_core::ownership::{
    FAILOVER, MAINTENANCE, MarkState, Ownership, is_marked_by_other, is_role, lease_key, ownership,
};
use evac_core::{Fact, Index, Node, Reason};
use evac_engine::{Http, life, nodes};

use crate::exit::Failure;
use crate::look::ask;
use crate::maintenance;
use crate::select::from_server;

/// What a verb may do to a node that another holds.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    pub owner: &'a str,
    /// The words of the verb in "use --force to … all the same".
    pub verb: &'a str,
    pub force: bool,
    pub dry_run: bool,
    /// This verb is how a repaired node comes back after a failover.
    pub after_failover: bool,
}

/// A node as it was read, with what is known about its drain.
pub struct Held {
    pub index: Index,
    /// One sentence, if the node may not be given back by this wish.
    pub refusal: Option<String>,
}

/// Looks who holds the node.
///
/// A NodeMaintenance that would cordon the node again is not overruled by `--force`: the node would be in use for seconds, while the operator
/// goes on to empty it.
pub async fn look(http: &Http, node: &Node, wish: Wish<'_>) -> Result<Held, Failure> {
    let name = &node.name;
    let mut index = Index::new();
    index.reset_nodes(vec![node.clone()]);
    let objects = maintenances(http).await?;
    if objects.is_none() && owner_is(node, MAINTENANCE) {
        let refusal = format!(
            "node {name} is under maintenance, and you may not list NodeMaintenance objects to see by which one; end it with `evac maintenance end {name}`, or ask who may"
        );
        return Ok(Held { index, refusal: Some(refusal) });
    }
    for object in objects.iter().flatten().filter(|object| object.node == *name) {
        let under = format!("node {name} is under maintenance by NodeMaintenance {}", object.id.name);
        let refusal = match object.when_uncordoned() {
            Uncordoned::CordonsAgain => Some(format!("{under}; end it with `evac maintenance end {name}`")),
            Uncordoned::GivesBack if wish.force => None,
            Uncordoned::GivesBack => Some(format!(
                "{under}, which is being ended; wait for its operator, or use --force to {} if that is gone",
                wish.verb
            )),
            Uncordoned::GivesWay => None,
        };
        if refusal.is_some() || object.when_uncordoned() == Uncordoned::GivesWay {
            return Ok(Held { index, refusal });
        }
    }
    let asks = !wish.dry_run && !wish.force && is_marked_by_other(node, wish.owner);
    if node.mark.is_some() {
        let claim = if asks { ask(http, name).await } else { life::read(http, name).await };
        if let Some(fact) = claim {
            index.apply(fact);
        }
    } else if node.unschedulable && !wish.force {
        let key = lease_key(name);
        match nodes::lease(http, &key).await {
            Ok(Some(lease)) => index.apply(Fact::Lease(lease)),
            Ok(None) => {}
            // Without the right to look at them, leases of other operators are not respected; docs/drain.md says so.
            Err(error) if error.is_forbidden() => {}
            Err(error) => return Err(from_server(&error)),
        }
    }
    let held = ownership(&index, node, wish.owner, http.clock().now());
    let refusal = match held {
        Ownership::Other(_) if wish.force => None,
        // Whether a failed node may be used again is asked of the node, see `failover::may_return`.
        Ownership::Other(Reason::OwnedByEvac { instance: None, .. })
            if wish.after_failover && owner_is(node, FAILOVER) =>
        {
            None
        }
        Ownership::Other(reason) if owner_is(node, MAINTENANCE) => Some(format!(
            "node {name} {}, and no NodeMaintenance object for it is seen; if its operator is gone, use --force to {} all the same",
            reason.message(),
            wish.verb
        )),
        Ownership::Other(reason) => {
            Some(format!("node {name} {}; use --force to {} all the same", reason.message(), wish.verb))
        }
        _ => None,
    };
    Ok(Held { index, refusal })
}

fn owner_is(node: &Node, role: &str) -> bool {
    matches!(&node.mark, Some(MarkState::Valid(mark)) if is_role(&mark.owner, role))
}

/// All NodeMaintenance objects, none where the cluster has no such kind; `None` where we may not see them.
async fn maintenances(http: &Http) -> Result<Option<Vec<Maintenance>>, Failure> {
    match maintenance::objects::known(http).await {
        Ok(found) => Ok(Some(found.unwrap_or_default())),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(from_server(&error)),
    }
}
