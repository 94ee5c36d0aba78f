//! After the release: waits until everyone who returns runs elsewhere and nothing of the old is left on the node, and then takes the taint away.
//! A guest that will not return is told and let go ([`recovery`](super::recovery)).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::event::{End, Event};
use super::guests::{ReturnState, return_state};
use super::next_step::Release;
use super::recovery::{LetGo, Missing, Pending, Recovery};
use super::run::{AfterRelease, Answer, FailoverRun, Fault, Own, Phase, TRIES};
use super::step::{StepContext, Turn};
use super::suspect::out_of_service;
use crate::cluster::fact::{Key, Pod};
use crate::cluster::index::Index;

/// The wait, and what was told of it so far.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    after: Recovery,
    how: Release,
    back: BTreeSet<Key>,
    let_go: BTreeMap<Key, LetGo>,
    remains: Option<Pending>,
}

pub(super) fn begin(run: &FailoverRun, at: Timestamp, how: Release, context: &mut StepContext<'_>) -> Turn {
    let Some(found) = &context.facts.snapshot else { return Turn::Rest(Phase::Released { at, how }, None) };
    let after = Recovery::new(&run.spec.node, found.guests.clone(), &found.pods, at, how);
    for guest in after.stay_off() {
        context.events.push(Event::StaysOff { instance: guest.instance.clone(), why: guest.fate.words() });
    }
    let guests = after.guests.iter().any(|guest| guest.fate.returns());
    let waiting = Waiting { after, how, back: BTreeSet::new(), let_go: BTreeMap::new(), remains: None };
    Turn::ask(Own::Follow { guests }, Phase::Waiting(Box::new(waiting)))
}

pub(super) fn go_on(run: &mut FailoverRun, mut waiting: Box<Waiting>, context: &mut StepContext<'_>) -> Turn {
    let (seen, now) = (&context.facts.after, context.now);
    let remains = waiting.look(seen, now);
    if seen.is_whole {
        waiting.tell(&seen.index, &remains, context.events);
        if remains.is_nothing() {
            let (how, end) = (waiting.how, waiting.end());
            return match how {
                Release::Taint => Turn::ask(Own::Read { holder: false }, Phase::Restoring { tries: 0, end }),
                Release::DeleteNode => Turn::end(end),
            };
        }
    }
    let stall = run.spec.stall.and_then(|limit| SignedDuration::try_from(limit).ok());
    let over = run.deadline.into_iter().chain(stall.map(|limit| waiting.after.stalls_at(limit))).min();
    if over.is_some_and(|over| over <= now) {
        return Turn::end(End::TimedOut { remains, released: true });
    }
    if run.stopping {
        return Turn::end(End::Stopped { released: true });
    }
    let again = waiting.after.look_again(now).into_iter().chain(over).min();
    Turn::Rest(Phase::Waiting(waiting), again)
}

impl Waiting {
    fn look(&mut self, seen: &AfterRelease, now: Timestamp) -> Pending {
        if seen.is_whole {
            let pods: Vec<Pod> = seen.index.pods_on(&self.after.node).cloned().collect();
            return self.after.look(&seen.index, &pods, seen.attachments.clone(), now);
        }
        // Who is not seen yet is not gone.
        let guests = self.after.guests.iter().filter(|guest| guest.fate.returns());
        let guests = guests.map(|guest| Missing { instance: guest.instance.clone(), phase: None, why: None });
        Pending { guests: guests.collect(), ..Pending::default() }
    }

    fn tell(&mut self, index: &Index, remains: &Pending, events: &mut Vec<Event>) {
        for guest in self.after.guests.iter().filter(|guest| guest.fate.returns()) {
            if let ReturnState::Returned { on } = return_state(index, guest)
                && self.back.insert(guest.instance.clone())
            {
                events.push(Event::Returned { instance: guest.instance.clone(), on });
            }
        }
        // A guest that was let go and returns all the same is not let go any more.
        self.let_go.retain(|instance, _| remains.let_go.iter().any(|guest| guest.instance == *instance));
        for guest in &remains.let_go {
            if self.let_go.insert(guest.instance.clone(), guest.clone()).is_none() {
                events.push(Event::LetGo(guest.clone()));
            }
        }
        if !remains.is_nothing() && self.remains.as_ref() != Some(remains) {
            events.push(Event::Waiting { remains: remains.clone() });
            self.remains = Some(remains.clone());
        }
    }

    fn end(self) -> End {
        let returned = self.back.iter().filter(|instance| !self.let_go.contains_key(*instance)).count();
        let (guests, unwanted): (Vec<LetGo>, Vec<LetGo>) =
            self.let_go.into_values().partition(|guest| guest.wanted);
        let off = self.after.stay_off().count() + unwanted.len();
        if guests.is_empty() { End::Done { returned, off } } else { End::Left { returned, off, guests } }
    }
}

/// Takes the taint away again: nothing is left for it to do, and the node may come back.
pub(super) fn restore(tries: u32, end: End, outcome: &Answer, context: &StepContext<'_>) -> Turn {
    let node = match (outcome, &context.facts.node) {
        (Answer::Gone, _) | (_, None) => return Turn::end(end),
        (_, Some((suspect, _))) => &suspect.node,
    };
    let taint = out_of_service();
    if !node.taints.iter().any(|there| there.same_as(&taint)) {
        return Turn::end(end);
    }
    let node = Box::new(node.clone());
    Turn::ask(Own::Untaint(node), Phase::Untainting { tries: tries + 1, end })
}

pub(super) fn restored(tries: u32, end: End, outcome: &Answer, context: &mut StepContext<'_>) -> Turn {
    match outcome {
        Answer::Conflict if tries >= TRIES => Turn::Go(Phase::Ended(Err(Fault::Contended))),
        Answer::Conflict => Turn::ask(Own::Read { holder: false }, Phase::Restoring { tries, end }),
        _ => {
            context.tell(Event::Restored);
            Turn::end(end)
        }
    }
}
