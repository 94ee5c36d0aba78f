//! What is to be done about one object now.

use std::time::Duration;

use evac_apimachinery::backoff::Backoff;
use jiff::{SignedDuration, Timestamp};

use super::queue::Turns;
use super::status::{PERMISSION_IGNORED, Status, YIELDED, named_at, whole_seconds};
use super::vouched::{Granted, granted};
use super::{Action, Decision, Id, LEASE_SECONDS, Maintenance, OnUncordon, Own, Phase, Registry};
use crate::action::{Event, LeaseOf};
use crate::cluster::fact::{Lease, Node};
use crate::cluster::index::Index;
use crate::drain::give_back::{Undo, undo_of};
use crate::drain::ownership;
use crate::drain::quorum::is_control_plane;
use crate::drain::record::{self, Record};
use crate::drain::run::{End, after};
use crate::drain::survey::Standing;
use crate::reasons::{NodeReason, OwnerReason, Reason};

/// A lease is renewed when this much of its time is left.
const RENEW_WHEN_LEFT: SignedDuration = SignedDuration::from_secs(LEASE_SECONDS / 2);
/// How often a lease may be found with another holder, once the maintenance had begun, before it stops.
const LEASE_PATIENCE: i64 = 3;
/// The pause between two looks at a lease that was taken from us.
const LEASE_PAUSE: Duration = Duration::from_secs(5);
/// The pause before a drain that ended without being done is ordered again.
const ORDER_AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Numbers are written at most this often; what people wait for is written at once.
const WRITE_EVERY: SignedDuration = SignedDuration::from_secs(2);
/// How long an answer about the quorum holds.
const QUORUM_HOLDS: SignedDuration = SignedDuration::from_secs(10);

/// What is to be done about one object. `id` may also stand for a stray node, or for an object that is gone but whose node is still drained.
pub fn decide(index: &Index, registry: &Registry, turns: &Turns, id: &Id, now: Timestamp) -> Decision {
    let mut case = Case { index, registry, now, decision: Decision::default() };
    match registry.object(id) {
        // Two installations may watch the same objects; the one that holds the lease acts.
        Some(object) if registry.is_served_elsewhere(index, &object.node, now) => case.leave(object),
        Some(object) if object.deleting => case.give_back(object),
        Some(object) => case.pursue(object, turns),
        None => match registry.stray(index, id) {
            Some(node) => case.sweep(node),
            None => case.end_drain_of(id),
        },
    }
    case.decision
}

/// While something is unread that every decision rests on, all that can be done is to say so.
pub fn decide_unread(index: &Index, registry: &Registry, id: &Id, now: Timestamp) -> Decision {
    let mut case = Case { index, registry, now, decision: Decision::default() };
    if let Some(object) = registry.object(id).filter(|object| object.held && !object.deleting) {
        let mut status = object.status.clone();
        case.say_what_is_unread(&object.node, true, &mut status);
        case.write(object, status);
    }
    case.decision
}

struct Case<'a> {
    index: &'a Index,
    registry: &'a Registry,
    now: Timestamp,
    decision: Decision,
}

impl<'a> Case<'a> {
    fn act(&mut self, own: Own) {
        self.decision.push(Action::Own(own));
    }

    fn look_again(&mut self, at: Timestamp) {
        self.decision.look_at(at);
    }

    fn tell(&mut self, event: Event) {
        self.decision.tell(event);
    }

    fn finalize(&mut self, object: &Maintenance, held: bool) {
        self.act(Own::Finalize {
            id: object.id.clone(),
            uid: object.uid.clone(),
            resource_version: object.resource_version.clone(),
            others: object.other_finalizers.clone(),
            held,
        });
    }

    fn lease(&self, node: &str) -> Option<&'a Lease> {
        self.index.lease(&ownership::lease_key(node))
    }

    fn end_drain_of(&mut self, id: &Id) {
        if let Some(node) = self.registry.ordered_by(id) {
            self.act(Own::End { node: node.to_owned() });
        }
    }

    /// The object is to go: first everything it caused.
    fn give_back(&mut self, object: &'a Maintenance) {
        self.end_drain_of(&object.id);
        if !object.held {
            // A finalizer of another controller keeps it; this operator is done with it.
            return;
        }
        let ours = self.registry.first_for(self.index, &object.node) == Some(&object.id);
        // Another object wants the node empty: it goes on with the mark, the pre-image and the lease.
        if ours && !self.registry.has_successor(object) {
            if self.says_what_is_left(object) {
                return;
            }
            self.restore(object);
        }
        self.finalize(object, false);
        let message = format!("Removed maintenance of node {}", object.node);
        self.tell(Event::normal(object, "RemovedMaintenance", message));
    }

    /// What could not be undone so far is told before it is tried again; the object stays until it is.
    fn says_what_is_left(&mut self, object: &'a Maintenance) -> bool {
        let left = self.registry.left_on(&object.node);
        if left.is_empty() {
            return false;
        }
        let before = self.decision.actions.len();
        let mut status = object.status.clone();
        status.not_taken_back(left, self.now);
        self.write(object, status);
        self.decision.actions.len() > before
    }

    fn restore(&mut self, object: &'a Maintenance) {
        let lease = self.lease(&object.node);
        if let Some(node) = self.index.node(&object.node) {
            self.restore_node(node);
        }
        if let Some(lease) = lease.filter(|lease| lease.holder == self.registry.owner()) {
            self.decision.push(Action::Release {
                lease: LeaseOf::Remediation,
                node: object.node.clone(),
                resource_version: lease.resource_version.clone(),
                keep: false,
            });
        }
    }

    fn restore_node(&mut self, node: &Node) {
        let other = self.lease(&node.name).filter(|lease| self.is_foreign(lease));
        let record = self.registry.record(self.index, &node.name, self.now);
        // Even if no mark of ours is seen: it may have been written a moment ago.
        self.act(Own::GiveBack {
            node: node.name.clone(),
            keep_cordon: other.is_some(),
            record: record.cloned().map(Box::new),
        });
        if let Some(undo) = undo_of(node, self.registry.owner(), other.is_some(), record) {
            self.tell_about_node(node, other, &undo);
        }
    }

    /// Our mark without an object: the request that wrote it came through after we had given up on it, or it was forged. Either
    /// way it has to go, and what goes with it is what the record says.
    fn sweep(&mut self, node: &Node) {
        self.act(Own::Ascertain { node: node.name.clone() });
        self.restore_node(node);
    }

    fn leave(&mut self, object: &Maintenance) {
        self.end_drain_of(&object.id);
        if let Some(at) = self.lease(&object.node).and_then(Lease::protects_until) {
            self.look_again(at);
        }
    }

    fn is_foreign(&self, lease: &Lease) -> bool {
        lease.holder != self.registry.owner() && lease.protects(self.now)
    }

    fn tell_about_node(&mut self, node: &Node, other: Option<&Lease>, undo: &Undo) {
        let words = undo.words(&node.name);
        let (reason, message) = match (other, &words) {
            (Some(lease), _) => (
                "KeptCordon",
                format!("Left the node cordoned because {} holds the lease {}", lease.holder, lease.key),
            ),
            (None, Some(words)) => ("KeptUnconfirmed", words.clone()),
            (None, None) if undo.unschedulable.is_none() && node.unschedulable => {
                ("KeptCordon", "Left the node cordoned, as it was before the maintenance".to_owned())
            }
            (None, None) => ("UncordonNode", "Uncordoned the node at the end of its maintenance".to_owned()),
        };
        let warning = other.is_some() || words.is_some();
        self.tell(Event { warning, ..Event::normal(node, reason, message) });
    }

    /// The object is there to stay: bring its node where it says.
    fn pursue(&mut self, object: &'a Maintenance, turns: &Turns) {
        if !object.held {
            self.finalize(object, true);
            let reason =
                if object.reason.is_empty() { String::new() } else { format!(": {}", object.reason) };
            let message = format!("Begin maintenance of node {}{reason}", object.node);
            return self.tell(Event::normal(object, "BeginMaintenance", message));
        }
        let mut status = object.status.clone();
        self.situation(object, turns, &mut status);
        let ignored = self.granted(object).ignored;
        let (reason, said) = (ignored.as_ref().map_or("Reviewed", |_| "NotReviewed"), ignored.clone());
        status.state(PERMISSION_IGNORED, said.is_some(), reason, said.unwrap_or_default(), self.now);
        self.say_what_is_unread(&object.node, false, &mut status);
        self.write(object, status);
        if let Some(said) = ignored.filter(|_| !object.status.says(PERMISSION_IGNORED)) {
            self.tell(Event::warning(object, PERMISSION_IGNORED, said));
        }
    }

    fn granted(&self, object: &Maintenance) -> Granted {
        granted(object, self.registry.reviewing())
    }

    /// What is not known is said, and what was known before is not shown as if it were now.
    fn say_what_is_unread(&mut self, node: &str, blind: bool, status: &mut Status) {
        let Some(mut unread) = self.registry.unread_for(node) else { return status.can_read(self.now) };
        unread.blind |= blind;
        let told = after(unread.since, crate::drain::unread::PATIENCE);
        if told > self.now {
            return self.look_again(told);
        }
        status.cannot_read(&unread, self.now);
    }

    fn situation(&mut self, object: &'a Maintenance, turns: &Turns, status: &mut Status) {
        let name = &object.node;
        if status.says(YIELDED) || status.error_on_lease_count > LEASE_PATIENCE {
            // Given up for good; only deleting the object goes on from here.
            return self.end_drain_of(&object.id);
        }
        let Some(node) = self.index.node(name) else {
            self.end_drain_of(&object.id);
            return status.fail(format!("nodes \"{name}\" not found"));
        };
        if let Some(first) = self.registry.first_for(self.index, name).filter(|first| **first != object.id) {
            return status.fail(format!("node {name} is under maintenance by {first}"));
        }
        if !self.registry.has_begun(self.index, object) && !self.may_begin(object, node, turns, status) {
            return;
        }
        if !self.has_lease(object, node, status) {
            return;
        }
        self.drain(object, node, status);
    }

    fn may_begin(&mut self, object: &Maintenance, node: &Node, turns: &Turns, status: &mut Status) -> bool {
        if let Some(wait) = turns.wait_of(&object.id) {
            status.wait(wait.reason, &wait.message, self.now);
            return false;
        }
        if !is_control_plane(node) || self.granted(object).control_plane {
            return true;
        }
        let known =
            self.registry.quorum(&node.name).filter(|(_, at)| self.now.duration_since(*at) < QUORUM_HOLDS);
        match known {
            Some((Ok(()), _)) => true,
            Some((Err(why), at)) => {
                status.wait("Quorum", why, self.now);
                self.look_again(at.checked_add(QUORUM_HOLDS).unwrap_or(*at));
                false
            }
            None => {
                self.act(Own::AskQuorum { node: node.name.clone() });
                false
            }
        }
    }

    /// Takes or renews the node's lease; false while it is not ours.
    fn has_lease(&mut self, object: &Maintenance, node: &Node, status: &mut Status) -> bool {
        let lease = self.lease(&node.name);
        if let Some(other) = lease.filter(|lease| self.is_foreign(lease)) {
            self.lease_is_away(object, other, status);
            return false;
        }
        status.error_on_lease_count = 0;
        let ours =
            lease.filter(|lease| lease.holder == self.registry.owner() && lease.ends() > Some(self.now));
        // How the node is now can be noted only until we write on it.
        let untouched = !self.registry.has_begun(self.index, object) && !self.registry.is_marked(node);
        let record = untouched.then(|| {
            // Of a mark of another owner nothing is known from elsewhere here.
            let node = record::borne_out(node, None);
            let mark = ownership::new_mark(&node, self.registry.owner(), &object.attire(), self.now);
            Box::new(Record::of(&node.uid, &mark))
        });
        let noted = record.is_none() || ours.is_some_and(|lease| lease.record == record);
        let renew_at = ours.and_then(|lease| lease.ends()?.checked_sub(RENEW_WHEN_LEFT).ok());
        if let Some(at) = renew_at.filter(|at| *at > self.now && noted) {
            self.look_again(at);
            return true;
        }
        self.decision.push(Action::Hold {
            lease: LeaseOf::Remediation,
            node: node.name.clone(),
            uid: node.uid.clone(),
            holder: self.registry.owner().to_owned(),
            at: self.now,
            seconds: LEASE_SECONDS.unsigned_abs(),
            answered: None,
            over: lease.cloned().map(Box::new),
            record,
        });
        ours.is_some() && noted
    }

    fn lease_is_away(&mut self, object: &Maintenance, other: &Lease, status: &mut Status) {
        let message = format!("the lease {} of node {} is held by {}", other.key, object.node, other.holder);
        if let Some(at) = other.protects_until() {
            self.look_again(at);
        }
        if !self.registry.has_begun(self.index, object) {
            return status.wait("Leased", &message, self.now);
        }
        // It was ours and is not any more: nothing is done to the node, and after a few looks we believe it.
        self.end_drain_of(&object.id);
        let looked = status.last_update.filter(|_| status.error_on_lease_count > 0);
        let next = looked.map_or(self.now, |at| after(at, LEASE_PAUSE));
        if next > self.now {
            return self.look_again(next);
        }
        status.error_on_lease_count += 1;
        status.estimated_end = None;
        status.last_error.clone_from(&message);
        if status.error_on_lease_count > LEASE_PATIENCE {
            status.fail(format!("{message}; it could not be extended {} times", status.error_on_lease_count));
        } else {
            self.look_again(after(self.now, LEASE_PAUSE));
        }
    }

    fn begin(&mut self, object: &Maintenance) {
        self.act(Own::Begin {
            node: object.node.clone(),
            id: object.id.clone(),
            attire: object.attire(),
            may_shut_down: self.granted(object).shut_down,
        });
    }

    fn drain(&mut self, object: &'a Maintenance, node: &Node, status: &mut Status) {
        let Some(order) = self.registry.order(&node.name) else {
            if self.registry.is_marked(node) && !node.unschedulable {
                self.uncordoned(object, status);
                if status.says(YIELDED) {
                    return;
                }
            }
            if status.phase == Some(Phase::Failed) {
                status.phase = Some(Phase::Running);
                status.last_error.clear();
            }
            return self.begin(object);
        };
        // A permission was given, or taken back, or it was found out only now that no review has seen it.
        if order.may_shut_down != self.granted(object).shut_down {
            return self.begin(object);
        }
        let Some(survey) = self.registry.survey(&node.name) else { return };
        // How often it had to be ordered decides how soon it is ordered again.
        let again = ORDER_AGAIN.until(order.at, order.times - 1);
        match &survey.standing {
            // As it was when the drain ended: what has become of the node since is the drain's to see first.
            Standing::Ended(End::Drained { .. }) if !survey.worn => {
                self.put_on_again(object, again, status);
            }
            Standing::Ended(End::Refused {
                reason:
                    Reason::Node(NodeReason::UncordonedMeanwhile) | Reason::Owner(OwnerReason::CancelledElsewhere),
            }) => self.put_on_again(object, again, status),
            Standing::Ended(End::Drained { .. }) => {
                status.take(survey, true, self.now);
            }
            Standing::Ended(End::Refused { reason } | End::Failed { reason, .. }) => {
                status.wait("Refused", &format!("node {} {}", node.name, reason.message()), self.now);
                if again > self.now { self.look_again(again) } else { self.begin(object) }
            }
            Standing::Preparing | Standing::Draining | Standing::Ended(_) => {
                // A successor looks again at what was empty already; that is no news until it finds something.
                let was_empty = status.phase == Some(Phase::Succeeded) && survey.pending.is_empty();
                status.take(survey, was_empty, self.now);
                let now = self.now;
                let unnamed = survey.blockers.iter().filter_map(named_at).filter(|at| *at > now).min();
                if let Some(at) = unnamed {
                    self.look_again(at);
                }
            }
        }
    }

    fn put_on_again(&mut self, object: &'a Maintenance, again: Timestamp, status: &mut Status) {
        if object.on_uncordon == OnUncordon::Yield {
            return self.uncordoned(object, status);
        }
        if again > self.now {
            return self.look_again(again);
        }
        self.uncordoned(object, status);
        self.begin(object);
    }

    fn uncordoned(&mut self, object: &'a Maintenance, status: &mut Status) {
        let name = &object.node;
        if object.on_uncordon == OnUncordon::Reapply {
            let message =
                format!("Somebody uncordoned node {name} or took our marks off; they are put on again");
            return self.tell(Event::warning(object, "Uncordoned", message));
        }
        let message = format!(
            "somebody uncordoned node {name}, so this maintenance gave way; delete it, or create another one"
        );
        self.end_drain_of(&object.id);
        status.fail(message.clone());
        status.state(YIELDED, true, "Uncordoned", message, self.now);
    }

    /// Writes what changed: at once what people wait for, numbers now and then.
    fn write(&mut self, object: &'a Maintenance, mut status: Status) {
        let before = &object.status;
        if !status.differs(before, self.now) {
            return;
        }
        if !status.is_urgent(before)
            // A time in the future was written before the system's clock was set back.
            && let Some(next) = before.last_update.and_then(|at| at.min(self.now).checked_add(WRITE_EVERY).ok())
            && next > self.now
        {
            return self.look_again(next);
        }
        status.last_update = Some(whole_seconds(self.now));
        let news = (status.phase != before.phase).then_some(status.phase).flatten();
        let (failed, error) = (status.last_error.clone(), object.node.clone());
        // What is written precedes what depends on it having been written.
        let write =
            Own::WriteStatus { id: object.id.clone(), uid: object.uid.clone(), status: Box::new(status) };
        self.act(write);
        match news {
            Some(Phase::Succeeded) => {
                self.tell(Event::normal(object, "SucceedMaintenance", format!("Node {error} is empty")));
            }
            Some(Phase::Failed) => self.tell(Event::warning(object, "FailedMaintenance", failed)),
            Some(Phase::Running) | None => {}
        }
    }
}
