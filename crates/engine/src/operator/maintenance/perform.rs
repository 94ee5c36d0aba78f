//! Carries out the actions of one object, one after the other, and says what was learned. The first that fails ends it: what follows
//! depends on it.

use evac_api::call::key_of;
use evac_api::maintenance::{Object, request};
use evac_api::wire::Lease;
use evac_api::{Answer, Call};
use evac_clock::Clock;
use evac_core::Fact;
use evac_core::drain::give_back::{Cordon, Evidence, GiveBack, Giver, OfGuests, OfNode, Whose};
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::drain::record::Record;
use evac_core::machines::remains::Remains;
use evac_core::maintenance::{Action, Decision, Family, Id, OWNER, Own, Seen, cannot_spare, named};
use serde_json::json;
use tokio::sync::oneshot;

use super::Told;
use super::drain::{Order, Wanted};
use super::quorum;
use super::review;
use crate::act;
use crate::events::publish;
use crate::give_back::{Told as Undone, give_back};
use crate::http::{Http, HttpError, parse};
use crate::nodes::NodeError;
use crate::operator::agenda::Ending;
use crate::operator::feeds::{Input, Sender, Word, measured, observed};

pub(in crate::operator) struct Done {
    pub id: Id,
    pub learned: Vec<Word>,
    pub ending: Ending,
    /// Something may have changed by it; telling people changes nothing.
    pub effective: bool,
}

pub(super) struct Performer {
    pub http: Http,
    /// In which term as leader it was decided.
    pub term: u64,
    pub sender: Sender,
}

impl Performer {
    pub async fn carry_out(&self, id: Id, decision: Decision) -> Done {
        let Decision { actions, events, .. } = decision;
        let effective = !actions.is_empty();
        let mut done = Done { id, learned: Vec::new(), ending: Ending::Done, effective };
        let mut carried_out = 0;
        for action in &actions {
            let result = match action {
                Action::Own(own) => self.perform(own, &mut done.learned).await,
                action => self.request(action, &mut done.learned).await,
            };
            if let Err(ending) = result {
                done.ending = ending;
                break;
            }
            carried_out += 1;
        }
        let due = events.into_iter().filter(|event| event.after <= carried_out);
        publish(&self.http, due, self.http.clock().calendar()).await;
        done
    }

    /// Takes a lease, or gives it back.
    async fn request(&self, action: &Action, learned: &mut Vec<Word>) -> Result<(), Ending> {
        let clock = self.http.clock();
        let mut action = action.clone();
        let mut is_new = false;
        if let Action::Hold { at, over, .. } = &mut action {
            *at = clock.on_calendar(*at);
            is_new = over.is_none();
        }
        let mut answer = self.sent(act::send(&self.http, &action).await)?;
        if answer.status == 404 && is_new {
            self.make_namespace().await?;
            answer = self.sent(act::send(&self.http, &action).await)?;
        }
        if let Action::Release { lease, node, .. } = &action {
            if answer.status != 404 {
                succeeded(answer)?;
            }
            learned.push(Word::Fact(Fact::LeaseAbsent(key_of(*lease, node))));
            return Ok(());
        }
        let lease: Lease = parse(&succeeded(answer)?).map_err(|error| failed(&error))?;
        learned.push(Word::Fact(Fact::Lease(Box::new(measured(lease, clock)))));
        Ok(())
    }

    async fn perform(&self, own: &Own, learned: &mut Vec<Word>) -> Result<(), Ending> {
        match own {
            Own::Finalize { id, uid, resource_version, others, held } => {
                let call = request::finalizers(id, uid, resource_version, others, *held);
                let answer = self.send(&call).await?;
                if answer.status == 404 {
                    learned.push(Word::Maintenance(Seen::ObjectGone(id.clone(), uid.clone())));
                    return Ok(());
                }
                let body = succeeded(answer)?.body;
                learned.extend(object_in(id.family, &body, self.http.clock()).map(Word::Maintenance));
                Ok(())
            }
            Own::WriteStatus { id, uid, status } => {
                let clock = self.http.clock();
                let written = status.as_ref().clone().shifted(clock.ahead());
                let answer = self.send(&request::status(id, uid, &written)).await;
                let refused = |answer: &Answer| !answer.is_success() && !matches!(answer.status, 404 | 409);
                if answer.as_ref().map_or(true, refused) {
                    self.http.metrics().status_unwritten("NodeMaintenance");
                }
                let answer = answer?;
                if answer.status == 404 {
                    learned.push(Word::Maintenance(Seen::ObjectGone(id.clone(), uid.clone())));
                    return Err(Ending::Conflict);
                }
                learned.extend(object_in(id.family, &succeeded(answer)?.body, clock).map(Word::Maintenance));
                Ok(())
            }
            Own::Begin { node, attire, may_shut_down, .. } => {
                let wanted = Wanted { attire: attire.clone(), may_shut_down: *may_shut_down };
                self.order(Order::Begin(node.clone(), wanted));
                Ok(())
            }
            Own::End { node } => {
                let (done, over) = oneshot::channel();
                self.order(Order::End(node.clone(), done));
                // Dropped unanswered where the drain itself was given up.
                let _ = over.await;
                learned.push(Word::Maintenance(Seen::Ended(node.clone())));
                Ok(())
            }
            Own::Ascertain { node } => {
                let others = review::others_for(&self.http, node).await.map_err(|error| failed(&error))?;
                if others.is_empty() { Ok(()) } else { Err(Ending::Conflict) }
            }
            Own::GiveBack { node, keep_cordon, record } => {
                self.give_back(node, *keep_cordon, record.as_deref(), learned).await
            }
            Own::AskQuorum { node } => {
                let verdict = quorum::ask(&self.http, node).await;
                let verdict = verdict.map_err(|shortage| cannot_spare(node, &shortage));
                learned.push(Word::Maintenance(Seen::Quorum(node.clone(), verdict, self.http.clock().now())));
                Ok(())
            }
        }
    }

    async fn give_back(
        &self,
        node: &str,
        keep_cordon: bool,
        record: Option<&Record>,
        learned: &mut Vec<Word>,
    ) -> Result<(), Ending> {
        let owner = named(OWNER, self.http.home());
        let cordon = if keep_cordon { Cordon::Keep } else { Cordon::AsBefore };
        let of_node = OfNode { by: Giver::Owner(&owner), cordon, evidence: Evidence::Kept(record) };
        let guests = OfGuests { whose: Whose::Everybody, in_any_case: true, was_draining: false };
        let wish = GiveBack { node: of_node, guests: Some(guests), dry_run: false };
        let mut left = Vec::new();
        let mut hear = |told| match told {
            Undone::Guests(Ok(done)) => left = done.left,
            Undone::Guests(Err(error)) => {
                left = vec![Remains::Unread { what: "guests and their migrations", why: error.to_string() }];
            }
            Undone::Node(_) | Undone::NotTheirs => {}
        };
        match give_back(&self.http, node, &wish, &mut hear).await {
            Ok(seen) => learned.extend(seen.map(|node| Word::Fact(Fact::Node(Box::new(node))))),
            Err(NodeError::Http(error)) => return Err(failed(&error)),
            Err(_) => return Err(Ending::Conflict),
        }
        if left.is_empty() {
            return Ok(());
        }
        for left in &left {
            tracing::warn!(node, left = left.sentence(), "could not be taken back");
        }
        learned.push(Word::Maintenance(Seen::Left(node.to_owned(), left)));
        Err(Ending::Failed)
    }

    fn order(&self, order: Order) {
        // The loop may have ended meanwhile.
        let _ = self.sender.send(Input::Maintenance(Told::Order(self.term, order)));
    }

    async fn send(&self, call: &Call) -> Result<Answer, Ending> {
        self.sent(self.http.send(call).await)
    }

    fn sent(&self, answer: Result<Answer, HttpError>) -> Result<Answer, Ending> {
        answer.map_err(|error| failed(&error))
    }

    async fn make_namespace(&self) -> Result<(), Ending> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}});
        let call = evac_api::kubevirt::request::create("/api/v1/namespaces", &namespace);
        let answer = self.send(&call).await?;
        if answer.status == 409 { Ok(()) } else { succeeded(answer).map(drop) }
    }
}

/// The object in an answer, as it is known then.
fn object_in(family: Family, body: &[u8], clock: Clock) -> Option<Seen> {
    let object = serde_json::from_slice::<Object>(body).ok()?;
    Some(Seen::Object(Box::new(observed(object, family, clock))))
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
