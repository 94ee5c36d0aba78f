//! Gives nodes back: carries out what [`plan`] says, in its order, and tells what became of it.

use evac_api::{Call, call, wire};
use evac_core::Node;
use evac_core::drain::claim;
pub use evac_core::drain::give_back::Whose;
use evac_core::drain::give_back::{Evidence, GiveBack, OfGuests, Undo, Undoing, plan};
use evac_core::drain::ownership::{MarkState, lease_key};
use evac_core::drain::record::Record;

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
    wish: &GiveBack<'_>,
    tell: &mut (dyn FnMut(Told) + Send),
) -> Result<Option<Node>, NodeError> {
    for _ in 0..TRIES {
        let mut node = match nodes::get(http, name).await {
            Err(error) if error.is_not_found() && wish.guests_in_any_case() => None,
            found => Some(found?),
        };
        let on_lease = match &node {
            Some(node) if wish.node.evidence == Evidence::OnLease => record_of(http, node).await?,
            _ => None,
        };
        let Ok(steps) = plan(node.as_ref(), wish, on_lease.as_deref()) else {
            tell(Told::NotTheirs);
            return Ok(node);
        };
        if let Some(Undoing::Node(undo)) = steps.first()
            && let Some(found) = &node
        {
            let written = write(http, found, undo, wish.dry_run).await;
            node = match written {
                Err(HttpError::Status { status: 409, .. }) => continue,
                Err(error) if error.is_not_found() && wish.guests_in_any_case() => None,
                written => Some(written?),
            };
            tell(Told::Node(Undone::by(undo, name)));
        }
        finish(http, name, steps, wish.dry_run, tell).await;
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
    finish(http, node, guests.plan(dry_run), dry_run, &mut hear).await;
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

/// What follows the node.
async fn finish(
    http: &Http,
    name: &str,
    steps: Vec<Undoing<'_>>,
    dry_run: bool,
    tell: &mut (dyn FnMut(Told) + Send),
) {
    let mut round = Ok(CalledBack::default());
    for step in steps {
        match step {
            Undoing::Node(_) => {}
            Undoing::Record => drop(http.send(&call::release(&claim::key(name), None)).await),
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

/// What was noted outside the node about the drain whose mark it carries. Without the right to look there is none; a server that fails
/// has not said that there is none.
pub(crate) async fn record_of(http: &Http, node: &Node) -> Result<Option<Box<Record>>, HttpError> {
    let Some(MarkState::Valid(mark)) = &node.mark else { return Ok(None) };
    for key in [claim::key(&node.name), lease_key(&node.name)] {
        match http.read_patiently::<wire::Lease>(&Call::get(call::lease_path(&key))).await {
            Ok(lease) => {
                let record = evac_core::Lease::from(lease).record;
                if let Some(record) = record.filter(|record| record.owner == mark.owner) {
                    return Ok(Some(record));
                }
            }
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(None)
}
