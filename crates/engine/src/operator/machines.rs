//! The roles `machines`, `evacuation` and `budget`: what the core wants done about machines, instances, replica sets and migrations.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use evac_clock::Clock;
use evac_core::Index;
use evac_core::machines::{Decision, Kind, Roles, Subject, decide, line, put_off};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::agenda::{Agenda, Ending};
use super::feeds::Input;
use super::hands::Hands;
pub(super) use super::perform::Done;
use super::perform::{self, Performer};
use crate::events::publish;
use crate::http::Http;
use crate::metrics::Queues;

/// How many subjects are acted upon at the same time.
const PARALLEL: usize = 32;
/// How many subjects are told about at the same time, and how much later. Events are for people, and often arise when one guest has arrived and the
/// next one is waited for: the server has more urgent things to do then.
const TELLING: usize = 4;
const TELL_AFTER: Duration = Duration::from_millis(500);

pub(super) struct Machines {
    roles: Roles,
    clock: Clock,
    agenda: Agenda<Subject>,
    performer: Arc<Performer>,
    room: Arc<Semaphore>,
    telling: Arc<Semaphore>,
}

impl Machines {
    pub fn new(http: Http, roles: Roles) -> Self {
        Self {
            roles,
            clock: http.clock(),
            agenda: Agenda::default(),
            performer: Arc::new(Performer::new(http)),
            room: Arc::new(Semaphore::new(PARALLEL)),
            telling: Arc::new(Semaphore::new(TELLING)),
        }
    }

    pub fn hear(&mut self, touched: &BTreeSet<Subject>) {
        let looked_after = |subject: &&Subject| {
            matches!(subject.kind, Kind::Machine | Kind::Instance | Kind::ReplicaSet | Kind::Migration)
        };
        self.agenda.touch(touched.iter().filter(looked_after).cloned());
    }

    /// The actions of a subject ended; what was learned by them is in the index already.
    pub fn finish(&mut self, index: &mut Index, done: Done) {
        let Done { subject, ending, trouble, effective, .. } = done;
        let news = match trouble {
            None => ending == Ending::Done && index.note(&subject, None),
            some => index.note(&subject, some),
        };
        let news = news || (ending == Ending::Done && effective);
        self.agenda.finish(subject, ending, news, self.clock.now());
    }

    /// Asks the core about everybody who was touched and can be acted upon now.
    pub fn look(&mut self, index: &mut Index, hands: &mut Hands<'_>) {
        let now = self.clock.now();
        // The times that are written on machines, and those that are read there, are of the calendar; when to look is measured.
        let calendar = self.clock.on_calendar(now);
        if index.take_line_moved() {
            self.agenda.touch(line::called(index, calendar));
        }
        let ready = self.agenda.ready(now);
        let waits = |subject: &Subject| subject.kind == Kind::Migration && line::waits(index, &subject.key);
        let next =
            if ready.iter().any(waits) { line::next_in_line(index, calendar) } else { BTreeSet::new() };
        for subject in ready {
            let decision = decide(index, &self.roles, &subject, calendar, &next);
            if let Some(at) = decision.look_again {
                self.agenda.wake(&subject, self.clock.steady(at));
            }
            if decision.is_idle() {
                self.agenda.settle(&subject);
                continue;
            }
            let since = self.agenda.wanted_since(&subject, now);
            if let Some(until) = put_off(index, &subject, &decision, since, now) {
                self.agenda.wake(&subject, until);
                continue;
            }
            self.act(index, subject, decision, hands);
        }
    }

    fn act(&mut self, index: &Index, subject: Subject, decision: Decision, hands: &mut Hands<'_>) {
        self.agenda.begin(&subject);
        let performer = self.performer.clone();
        let over = line::ended(index).map(|one| one.uid.clone());
        let wants_slot = decision.actions.iter().any(|action| action.slot().is_some());
        let slots = perform::Slots {
            over: if wants_slot { over.collect() } else { BTreeSet::new() },
            under_way: if wants_slot { line::under_way(index) } else { Vec::new() },
            config: index.config.clone(),
            ledger: index.ledger().clone(),
            rewinds: index.rewinds(),
        };
        let (sender, clock) = (hands.sender.clone(), self.clock);
        let (room, telling) = (self.room.clone(), self.telling.clone());
        hands.tasks.spawn(async move {
            let place = room.acquire_owned().await;
            let (done, events) = performer.carry_out(subject, decision, &slots).await;
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Machines(done));
            drop(place);
            if !events.is_empty() {
                let at = clock.calendar();
                clock.sleep(TELL_AFTER).await;
                let _turn = telling.acquire_owned().await;
                publish(&performer.http, events, at).await;
            }
        });
    }

    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.agenda.next_alarm()
    }

    pub fn queues(&self) -> Queues {
        self.agenda.queues(self.clock.now())
    }
}
