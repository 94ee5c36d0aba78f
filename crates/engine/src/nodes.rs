//! Reading and changing nodes outside a drain: cordon, uncordon, cancel, taint, and finding nodes.

use evac_api::call::{self, labelled};
use evac_api::{Call, wire};
use evac_core::cluster::fact::Existence;
use evac_core::cluster::taints::{self, Changed, TaintChange, TaintError};
use evac_core::drain::give_back::{CordonAfter, Evidence, GiveBack, Giver, OfNode};
use evac_core::drain::ownership::{self, MarkState, NodeChanges};
use evac_core::drain::record::{self, Record};
use evac_core::{Key, Node, Taint, drain::claim};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::give_back::{Told, Undone, give_back, record_of};
use crate::http::{Http, HttpError, parse};
use crate::watch::{Source, list};

#[derive(Debug, Error)]
pub enum NodeError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Taint(#[from] TaintError),
    #[error("the node kept changing, gave up after {0} tries")]
    Contended(u32),
}

/// Conflicts with concurrent writers that are tried again.
pub(crate) const TRIES: u32 = 10;

pub async fn get(http: &Http, name: &str) -> Result<Node, HttpError> {
    http.read::<wire::Node>(&Call::get(call::node_path(name))).await.map(Into::into)
}

pub async fn by_selector(http: &Http, selector: &str, page: u32) -> Result<Vec<Node>, HttpError> {
    let query = if selector.is_empty() { String::new() } else { labelled(selector) };
    let source = Source { path: "/api/v1/nodes".into(), query, page };
    Ok(list(http, &source, |node: wire::Node| Some(node.into())).await?.0)
}

/// Cordons or uncordons; `Ok(false)` when the node already was as wanted and nothing was sent.
pub async fn set_schedulable(
    http: &Http,
    node: &Node,
    schedulable: bool,
    dry_run: bool,
) -> Result<bool, HttpError> {
    if node.unschedulable != schedulable {
        return Ok(false);
    }
    let answer = http.send(&call::set_schedulable(&node.name, schedulable, dry_run)).await?;
    parse::<wire::Named>(&answer).map(|_| true)
}

/// Takes back what a drain did to the node, whosever it was, by three-way merge with what others did since.
///
/// With `uncordon` the node becomes schedulable even if it had been cordoned before the drain.
pub async fn undo(http: &Http, name: &str, uncordon: bool, dry_run: bool) -> Result<Undone, NodeError> {
    let cordon = if uncordon { CordonAfter::Lift } else { CordonAfter::AsBefore };
    let node = OfNode { by: Giver::Anyone, cordon, evidence: Evidence::OnLease };
    let wish = GiveBack { node, guests: None, dry_run };
    Ok(undo_node(http, name, &wish).await?.unwrap_or_default())
}

/// The same for what `owner` did: nothing is done to a node that has changed hands.
pub async fn undo_of(
    http: &Http,
    name: &str,
    owner: &str,
    dry_run: bool,
) -> Result<Option<Undone>, NodeError> {
    let node = OfNode { by: Giver::Owner(owner), cordon: CordonAfter::AsBefore, evidence: Evidence::OnLease };
    undo_node(http, name, &GiveBack { node, guests: None, dry_run }).await
}

async fn undo_node(http: &Http, name: &str, wish: &GiveBack<'_>) -> Result<Option<Undone>, NodeError> {
    let mut undone = None;
    let mut hear = |told| {
        if let Told::Node(what) = told {
            undone = Some(what);
        }
    };
    give_back(http, name, wish, &mut hear).await?;
    Ok(undone)
}

/// Notes outside the node how it is before `owner` writes on it, with what the owner may add, so that it can be given back. Where that is not allowed
/// nothing is noted, and the node is later left as it is then.
pub async fn keep_record(
    http: &Http,
    node: &Node,
    owner: &str,
    perhaps: Vec<Taint>,
) -> Result<(), HttpError> {
    let mut known = None;
    for _ in 0..TRIES {
        let mark = match &node.mark {
            Some(MarkState::Valid(_)) => {
                let before = record_of(http, node).await?;
                let node = record::borne_out(node, before.as_deref());
                ownership::new_mark(&node, owner, &NodeChanges::default(), http.clock().calendar())
            }
            _ => ownership::new_mark(node, owner, &NodeChanges::default(), http.clock().calendar()),
        };
        let missing = perhaps.iter().filter(|taint| !node.taints.iter().any(|there| there.same_as(taint)));
        let record = Record::of(&node.uid, &mark).and_perhaps(missing.cloned().collect());
        let call = call::note((&node.name, &node.uid), &record, http.clock().calendar(), known.as_ref());
        match parse::<wire::Named>(&http.send(&call).await?) {
            Ok(_) => return Ok(()),
            Err(HttpError::Status { status: 404 | 409, .. }) => {}
            Err(error) if error.is_forbidden() => {
                tracing::warn!(node = node.name, %error, "no record of the node could be kept: its cordon will have to be lifted by hand");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let path = call::lease_path(&claim::key(&node.name));
        known = match http.read::<wire::Lease>(&Call::get(path)).await {
            Ok(lease) => Some(lease.into()),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// A change of taints and how it is to be written down.
#[derive(Debug, Clone)]
pub struct TaintRequest {
    pub change: TaintChange,
    pub overwrite: bool,
    pub manager: String,
    /// `Strict`, `Warn` or `Ignore`, as the API spells them.
    pub validation: &'static str,
    pub dry_run: bool,
    /// False judges only.
    pub send: bool,
}

/// Changes taints; says what kubectl calls that, and gives the node as it is then.
pub async fn taint(http: &Http, name: &str, request: &TaintRequest) -> Result<(Changed, Value), NodeError> {
    for _ in 0..TRIES {
        let mut found: Value = http.read(&Call::get(call::node_path(name))).await?;
        let node = Node::from(wire::Node::deserialize(&found).map_err(HttpError::Body)?);
        let (wanted, word) = taints::apply(name, &node.taints, &request.change, request.overwrite)?;
        if !request.send {
            found["spec"]["taints"] = json!(wanted);
            return Ok((word, found));
        }
        let written = call::TaintWrite {
            manager: &request.manager,
            validation: request.validation,
            dry_run: request.dry_run,
        };
        let answer = http.send(&call::set_taints(name, &node.resource_version, &wanted, &written)).await?;
        match parse::<Value>(&answer) {
            Ok(node) => return Ok((word, node)),
            Err(HttpError::Status { status: 409, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(NodeError::Contended(TRIES))
}

/// The lease of a remediation operator, if there is one. One that cannot be read is not one that nobody holds.
pub async fn lease(http: &Http, key: &evac_core::Key) -> Result<Option<evac_core::Lease>, HttpError> {
    match http.read_patiently::<wire::Lease>(&Call::get(call::lease_path(key))).await {
        Ok(lease) => Ok(Some(lease.into())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a DaemonSet exists, as far as we may know.
pub async fn daemon_set(http: &Http, key: &Key) -> Existence {
    match http.read_patiently::<wire::Named>(&Call::get(call::daemon_set_path(key))).await {
        Ok(_) => Existence::Found,
        Err(error) if error.is_not_found() => Existence::Gone(error.to_string()),
        Err(error) => Existence::Unreadable(error.to_string()),
    }
}

pub async fn pod(http: &Http, key: &evac_core::Key) -> Result<evac_core::Pod, HttpError> {
    http.read::<wire::Pod>(&Call::get(call::pod_path(key))).await.map(Into::into)
}
