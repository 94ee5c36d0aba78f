//! Gives nodes back: carries out what [`plan`] says, in its order, and tells what became of it.

use evac_api::{Call, call, wire};
use evac_core::drain::claim;
pub use evac_core::drain::give_back::Whose;
use evac_core::drain::give_back::{Evidence, GiveBack, OfGuests, Undo, Undoing, goes_with_mark, plan};
use evac_core::drain::ownership::{MarkState, lease_key};
use evac_core::drain::record::Record;
use evac_core::{Lease, Node};

use crate::call_back::{CalledBack, abort_migrations, clear_marks};
use crate::http::{Http, HttpError, parse};
use crate::nodes::{self, NodeError, TRIES};

/// What was changed on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undone {
    pub uncordoned: bool,
    pub taints_removed: bool,
    pub mark_removed: bool,
    /// What stays although the mark names it, in one sentence.
    pub left: Option<String>,
}

impl Undone {
    fn by(undo: &Undo, node: &str) -> Self {
        Self {
            uncordoned: undo.unschedulable == Some(false),
            taints_removed: undo.taints.is_some(),
            mark_removed: undo.remove_mark,
            left: undo.words(node),
        }
    }
}

/// What became of a part of it.
#[derive(Debug)]
pub enum Told {
    /// The node is given back.
    Node(Undone),
    /// The node was not touched: its mark is not that of the owner who gives it back.
    NotTheirs,
    /// Marks and migrations of its guests were looked at once.
    Guests(Result<CalledBack, HttpError>),
}

/// Gives a node back; `tell` hears how that goes. Answers with the node as it is then, none if it is gone.
pub async fn give_back(
    http: &Http,
    name: &str,
    request: &GiveBack<'_>,
    tell: &mut (dyn FnMut(Told) + Send),
) -> Result<Option<Node>, NodeError> {
    for _ in 0..TRIES {
        let mut node = match nodes::get(http, name).await {
            Err(error) if error.is_not_found() && request.guests_in_any_case() => None,
            found => Some(found?),
        };
        let noted = match &node {
            Some(node) if request.node.evidence == Evidence::OnLease => noted(http, node).await?,
            _ => Noted::default(),
        };
        let Ok(steps) = plan(node.as_ref(), request, noted.record.as_deref()) else {
            tell(Told::NotTheirs);
            return Ok(node);
        };
        let owner = node.as_ref().and_then(|node| node.mark.as_ref()).and_then(owner_of);
        if let Some(Undoing::Node(undo)) = steps.first()
            && let Some(found) = &node
        {
            let written = write(http, found, undo, request.dry_run).await;
            node = match written {
                Err(HttpError::Status { status: 409, .. }) => continue,
                Err(error) if error.is_not_found() && request.guests_in_any_case() => None,
                written => Some(written?),
            };
            tell(Told::Node(Undone::by(undo, name)));
        }
        let left = Left { node: name, owner, claim: noted.claim, dry_run: request.dry_run };
        finish(http, left, steps, tell).await;
        return Ok(node);
    }
    Err(NodeError::Contended(TRIES))
}

/// Undoes what is left on the guests of a node, once, and nothing on the node.
pub async fn call_back(
    http: &Http,
    node: &str,
    whose: Whose<'_>,
    dry_run: bool,
) -> Result<CalledBack, HttpError> {
    let guests = OfGuests { whose, in_any_case: true, was_draining: false };
    let mut done = Ok(CalledBack::default());
    let mut hear = |told| {
        if let Told::Guests(what) = told {
            done = what;
        }
    };
    let left = Left { node, owner: None, claim: None, dry_run };
    finish(http, left, guests.plan(dry_run), &mut hear).await;
    done
}

/// The node as it is after it.
async fn write(http: &Http, node: &Node, undo: &Undo, dry_run: bool) -> Result<Node, HttpError> {
    if undo.is_nothing() {
        return Ok(node.clone());
    }
    let call = call::undo(&node.name, &node.resource_version, undo, dry_run);
    parse::<wire::Node>(&http.send(&call).await?).map(Into::into)
}

/// What is left to do when the node is given back.
struct Left<'a> {
    node: &'a str,
    /// Whose mark it was.
    owner: Option<String>,
    /// The lease of the node's drain as it was read.
    claim: Option<Lease>,
    dry_run: bool,
}

fn owner_of(mark: &MarkState) -> Option<String> {
    match mark {
        MarkState::Valid(mark) => Some(mark.owner.clone()),
        MarkState::Unreadable(_) => None,
    }
}

/// What follows the node.
async fn finish(http: &Http, left: Left<'_>, steps: Vec<Undoing<'_>>, tell: &mut (dyn FnMut(Told) + Send)) {
    let Left { node: name, owner, mut claim, dry_run } = left;
    let mut round = Ok(CalledBack::default());
    for step in steps {
        match step {
            Undoing::Node(_) => {}
            Undoing::Record => remove_record(http, name, owner.as_deref(), claim.take()).await,
            Undoing::Wait(span) => http.clock().sleep(span).await,
            Undoing::Marks => round = clear_marks(http, name, dry_run).await,
            Undoing::Migrations(whose) => {
                let before = std::mem::replace(&mut round, Ok(CalledBack::default()));
                let done = match before {
                    Ok(marks) => abort_migrations(http, name, whose, dry_run, marks).await,
                    Err(error) => Err(error),
                };
                tell(Told::Guests(done));
            }
        }
    }
}

/// Removes the lease with the record, unless another drain has begun and holds it by now: what is noted there then is about its own mark.
async fn remove_record(http: &Http, node: &str, owner: Option<&str>, mut known: Option<Lease>) {
    let key = claim::key(node);
    for _ in 0..TRIES {
        let lease = match known.take() {
            Some(lease) => lease,
            None => match http.read::<wire::Lease>(&Call::get(call::lease_path(&key))).await {
                Ok(lease) => lease.into(),
                // Where there is none, or no right, nothing is lost.
                Err(_) => return,
            },
        };
        if !goes_with_mark(&lease, owner) {
            return;
        }
        match http.send(&call::release(&key, Some(&lease.resource_version))).await {
            Ok(answer) if answer.status == 409 => {}
            _ => return,
        }
    }
}

/// What leases of a node say about the drain whose mark it carries.
#[derive(Default)]
struct Noted {
    record: Option<Box<Record>>,
    /// The lease of the node's drain.
    claim: Option<Lease>,
}

/// What was noted outside the node about the drain whose mark it carries.
pub(crate) async fn record_of(http: &Http, node: &Node) -> Result<Option<Box<Record>>, HttpError> {
    Ok(noted(http, node).await?.record)
}

/// Without the right to look there is no record; a server that fails has not said that there is none.
async fn noted(http: &Http, node: &Node) -> Result<Noted, HttpError> {
    let mut noted = Noted::default();
    let Some(owner) = node.mark.as_ref().and_then(owner_of) else { return Ok(noted) };
    for key in [claim::key(&node.name), lease_key(&node.name)] {
        let lease = match http.read_patiently::<wire::Lease>(&Call::get(call::lease_path(&key))).await {
            Ok(lease) => Lease::from(lease),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => continue,
        };
        noted.record = lease.record.clone().filter(|record| record.owner == owner);
        if key == claim::key(&node.name) {
            noted.claim = Some(lease);
        }
        if noted.record.is_some() {
            break;
        }
    }
    Ok(noted)
}
