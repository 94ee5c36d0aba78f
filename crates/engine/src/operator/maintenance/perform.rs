//! Carries out the actions of one object, one after the other, and says what was learned. The first that fails ends it: what follows
//! depends on it.

use std::sync::Arc;

use evac_api::maintenance::request;
use evac_api::wire::Lease;
use evac_api::{Answer, Call};
use evac_clock::Clock;
use evac_core::Lease as Judged;
use evac_core::drain::give_back::{Cordon, Evidence, GiveBack, Giver, OfGuests, OfNode, Whose};
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::drain::record::Record;
use evac_core::machines::remains::Remains;
use evac_core::maintenance::{Action, Id, OWNER, Seen, cannot_spare, named};
use serde_json::json;

use super::feeds;
use super::quorum;
use super::review;
use crate::drain::service::{Service, Wanted};
use crate::give_back::{Told, give_back};
use crate::http::{Http, HttpError, parse};
use crate::nodes::NodeError;
use crate::operator::agenda::Ending;

pub(super) struct Done {
    pub id: Id,
    pub learned: Vec<Seen>,
    pub ending: Ending,
    /// Something may have changed by it; telling people changes nothing.
    pub effective: bool,
}

pub(super) struct Performer {
    pub http: Http,
    pub service: Arc<Service>,
}

impl Performer {
    pub async fn carry_out(&self, id: Id, actions: Vec<Action>) -> Done {
        let effective = actions.iter().any(|action| !matches!(action, Action::Tell { .. }));
        let mut done = Done { id, learned: Vec::new(), ending: Ending::Done, effective };
        for action in actions {
            if let Err(ending) = self.perform(&action, &mut done.learned).await {
                done.ending = ending;
                break;
            }
        }
        done
    }

    async fn perform(&self, action: &Action, learned: &mut Vec<Seen>) -> Result<(), Ending> {
        match action {
            Action::Finalize { id, uid, resource_version, others, held } => {
                let call = request::finalizers(id, uid, resource_version, others, *held);
                let answer = self.send(&call).await?;
                if answer.status == 404 {
                    learned.push(feeds::gone(id, uid));
                    return Ok(());
                }
                let answer = succeeded(answer)?;
                // Without its last finalizer an object that is being deleted is gone.
                learned.extend(match feeds::object(id.family, &answer.body, self.http.clock()) {
                    Some(Seen::Object(object)) if object.deleting && !held && others.is_empty() => {
                        Some(feeds::gone(id, uid))
                    }
                    other => other,
                });
                Ok(())
            }
            Action::WriteStatus { id, uid, status } => {
                let clock = self.http.clock();
                let written = status.as_ref().clone().shifted(clock.ahead());
                let answer = self.send(&request::status(id, uid, &written)).await;
                let refused = |answer: &Answer| !answer.is_success() && !matches!(answer.status, 404 | 409);
                if answer.as_ref().map_or(true, refused) {
                    self.http.metrics().status_unwritten("NodeMaintenance");
                }
                let answer = answer?;
                if answer.status == 404 {
                    learned.push(feeds::gone(id, uid));
                    return Err(Ending::Conflict);
                }
                learned.extend(feeds::object(id.family, &succeeded(answer)?.body, clock));
                Ok(())
            }
            Action::TakeLease { node, uid, at, over, holder, record } => {
                let at = self.http.clock().on_calendar(*at);
                let call = request::take_lease((node, uid), holder, record.as_deref(), at, over.as_deref());
                let mut answer = self.send(&call).await?;
                if answer.status == 404 && over.is_none() {
                    self.make_namespace().await?;
                    answer = self.send(&call).await?;
                }
                let lease: Lease = parse(&succeeded(answer)?).map_err(|error| failed(&error))?;
                learned.push(Seen::Lease(measured(lease, self.http.clock())));
                Ok(())
            }
            Action::ReturnLease { lease, resource_version } => {
                let answer = self.send(&request::return_lease(lease, resource_version)).await?;
                if answer.status != 404 {
                    succeeded(answer)?;
                }
                learned.push(Seen::LeaseGone(lease.clone(), self.http.clock().now()));
                Ok(())
            }
            Action::Begin { node, attire, may_shut_down, .. } => {
                let wanted = Wanted { attire: attire.clone(), may_shut_down: *may_shut_down };
                self.service.begin(node, wanted);
                Ok(())
            }
            Action::End { node } => {
                self.service.end(node).await;
                learned.push(Seen::Ended(node.clone()));
                Ok(())
            }
            Action::Ascertain { node } => {
                let others = review::others_for(&self.http, node).await.map_err(|error| failed(&error))?;
                if others.is_empty() { Ok(()) } else { Err(Ending::Conflict) }
            }
            Action::GiveBack { node, keep_cordon, record } => {
                self.give_back(node, *keep_cordon, record.as_deref(), learned).await
            }
            Action::AskQuorum { node } => {
                let verdict = quorum::ask(&self.http, node).await;
                let verdict = verdict.map_err(|shortage| cannot_spare(node, &shortage));
                learned.push(Seen::Quorum(node.clone(), verdict, self.http.clock().now()));
                Ok(())
            }
            Action::Tell { about, warning, reason, message } => {
                let call = request::event(about, *warning, reason, message, self.http.clock().calendar());
                // Events are for people; losing one changes nothing.
                if let Err(error) = self.http.send(&call).await {
                    tracing::debug!(%error, reason, "event was lost");
                }
                Ok(())
            }
        }
    }

    async fn give_back(
        &self,
        node: &str,
        keep_cordon: bool,
        record: Option<&Record>,
        learned: &mut Vec<Seen>,
    ) -> Result<(), Ending> {
        let owner = named(OWNER, self.http.home());
        let cordon = if keep_cordon { Cordon::Keep } else { Cordon::AsBefore };
        let of_node = OfNode { by: Giver::Owner(&owner), cordon, evidence: Evidence::Kept(record) };
        let guests = OfGuests { whose: Whose::Everybody, in_any_case: true, was_draining: false };
        let wish = GiveBack { node: of_node, guests: Some(guests), dry_run: false };
        let mut left = Vec::new();
        let mut hear = |told| match told {
            Told::Guests(Ok(done)) => left = done.left,
            Told::Guests(Err(error)) => {
                left = vec![Remains::Unread { what: "guests and their migrations", why: error.to_string() }];
            }
            Told::Node(_) | Told::NotTheirs => {}
        };
        match give_back(&self.http, node, &wish, &mut hear).await {
            Ok(seen) => learned.extend(seen.map(|node| Seen::Node(Box::new(node)))),
            Err(NodeError::Http(error)) => return Err(failed(&error)),
            Err(_) => return Err(Ending::Conflict),
        }
        if left.is_empty() {
            return Ok(());
        }
        for left in &left {
            tracing::warn!(node, left = left.sentence(), "could not be taken back");
        }
        learned.push(Seen::Left(node.to_owned(), left));
        Err(Ending::Failed)
    }

    async fn send(&self, call: &Call) -> Result<Answer, Ending> {
        self.http.send(call).await.map_err(|error| failed(&error))
    }

    async fn make_namespace(&self) -> Result<(), Ending> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}});
        let call = evac_api::kubevirt::request::create("/api/v1/namespaces", &namespace);
        let answer = self.send(&call).await?;
        if answer.status == 409 { Ok(()) } else { succeeded(answer).map(drop) }
    }
}

/// A lease with its time on the clock by which it is judged. It was written by the calendar, for others to read.
pub(super) fn measured(lease: Lease, clock: Clock) -> Judged {
    let mut lease = Judged::from(lease);
    lease.renewed = lease.renewed.map(|at| clock.steady(at));
    lease
}

fn failed(error: &HttpError) -> Ending {
    tracing::debug!(%error, "not carried out");
    match error {
        HttpError::Status { status: 404 | 409 | 410, .. } => Ending::Conflict,
        _ => Ending::Failed,
    }
}

fn succeeded(answer: Answer) -> Result<Answer, Ending> {
    if answer.is_success() {
        return Ok(answer);
    }
    tracing::debug!(status = answer.status, message = answer.failure().message, "refused");
    Err(if matches!(answer.status, 404 | 409 | 410) { Ending::Conflict } else { Ending::Failed })
}
