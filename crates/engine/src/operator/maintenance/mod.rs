//! The role `maintenance`: NodeMaintenance objects, both kinds of them.
//!
//! The role asks the core about each object that was touched. A second task, the drain service, empties the nodes it
//! is given and reports where each stands. Leadership gates both: a follower watches and waits, and whoever takes over begins from
//! what is written in the cluster.

mod perform;
mod quorum;
pub mod review;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evac_clock::Clock;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::step::Event;
use evac_core::machines::{Kind, Subject};
use evac_core::maintenance::queue::{Limits, Turns};
use evac_core::maintenance::vouched::Reviewing;
use evac_core::maintenance::{
    Action, Decision, Id, OWNER, Registry, Seen, Touched, decide, decide_unread, named,
};
use evac_core::{Index, Policy};
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};

use self::perform::{Done, Performer};
use super::agenda::Agenda;
use super::feeds::{Feed, Input, Word};
use super::hands::Hands;
use crate::drain::service::{News, Service};
use crate::http::Http;
use crate::metrics::Queues;

/// How many objects are acted upon at the same time, and how many pods are asked to leave.
const PARALLEL: usize = 64;

pub(super) struct Maintenance {
    http: Http,
    clock: Clock,
    limits: Limits,
    registry: Registry,
    agenda: Agenda<Id>,
    /// Empties nodes while we lead.
    service: Option<Arc<Service>>,
    room: Arc<Semaphore>,
}

impl Maintenance {
    pub fn new(http: Http, limits: Limits) -> Self {
        let registry = Registry::of(named(OWNER, http.home()));
        Self {
            clock: http.clock(),
            http,
            limits,
            registry,
            agenda: Agenda::default(),
            service: None,
            room: Arc::new(Semaphore::new(PARALLEL)),
        }
    }

    /// This operator leads from now on. What it had ordered while it led before is history.
    pub fn lead(&mut self, index: &Index) {
        self.service = None;
        self.registry.forget_orders();
        self.agenda.touch(self.registry.everybody(index));
    }

    pub fn queues(&self) -> Queues {
        self.count();
        self.agenda.queues(self.clock.now())
    }

    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.agenda.next_alarm()
    }

    /// A fresh list of what only this role looks at; the rest of it is in the index.
    pub fn list(&mut self, index: &Index, feed: Feed, list: Vec<Seen>, at: &ListedAt) {
        match feed {
            Feed::Objects(family) => {
                let objects = list.into_iter().filter_map(|seen| match seen {
                    Seen::Object(object) => Some(*object),
                    _ => None,
                });
                self.registry.list(family, objects.collect(), at);
            }
            Feed::Reviews => {
                self.registry.apply(index, Seen::Reviewing(Reviewing::Absent));
                for seen in list {
                    self.registry.apply(index, seen);
                }
            }
            Feed::Of(Kind::Lease) => self.registry.listed_leases(index),
            Feed::Of(_) => {}
        }
        self.agenda.touch(self.registry.everybody(index));
    }

    pub fn can_read(&mut self, index: &Index, feed: Feed) {
        self.apply(index, Seen::Read(feed.words()));
    }

    pub fn cannot_read(&mut self, index: &Index, feed: Feed, why: String) {
        self.apply(index, Seen::Unread(feed.words(), why, self.clock.now()));
    }

    pub fn hear(&mut self, index: &Index, touched: &BTreeSet<Subject>) {
        let touched = self.registry.hear(index, touched, self.clock.now());
        self.touch(index, touched);
    }

    pub fn apply(&mut self, index: &Index, seen: Seen) {
        let touched = self.registry.apply(index, seen);
        self.touch(index, touched);
    }

    fn touch(&mut self, index: &Index, touched: Touched) {
        match touched {
            Touched::Some(ids) => self.agenda.touch(ids),
            Touched::Everybody => self.agenda.touch(self.registry.everybody(index)),
        }
    }

    /// Takes in what its tasks tell; what they learned is known already.
    pub fn take(&mut self, index: &Index, told: Told) {
        match told {
            Told::Done(Done { id, ending, effective, .. }) => {
                self.agenda.finish(id, ending, effective, self.clock.now());
            }
            Told::Drain(News::Survey(survey)) => self.apply(index, Seen::Survey(survey)),
            Told::Drain(News::Event(_, event)) => log(&event),
            // It goes on by itself, and then says again where each node stands. Until then that is not known.
            Told::Drain(News::Interrupted(why)) => {
                tracing::warn!(why, "the drain was interrupted");
                let nodes: Vec<String> = self.registry.ordered().cloned().collect();
                for node in nodes {
                    self.apply(index, Seen::Blind(node, why.clone(), self.clock.now()));
                }
            }
        }
    }

    /// What is shown to whoever reads metrics, counted when somebody asks.
    fn count(&self) {
        let mut phases: BTreeMap<String, usize> = BTreeMap::new();
        let mut codes: BTreeMap<String, usize> = BTreeMap::new();
        for object in self.registry.objects() {
            let phase =
                object.status.phase.map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}"));
            *phases.entry(phase).or_default() += 1;
            for blocker in &object.status.blockers {
                *codes.entry(blocker.code.clone()).or_default() += 1;
            }
        }
        self.http.metrics().maintenances(&phases);
        self.http.metrics().blockers(&codes);
    }

    /// Asks the core about everybody who was touched.
    pub fn look(&mut self, index: &Index, knows: bool, hands: &mut Hands<'_>) {
        let now = self.clock.now();
        let ready = self.agenda.ready(now);
        if ready.is_empty() {
            return;
        }
        if !knows {
            // What is there already can at least be told what it waits for.
            for id in ready {
                let Decision { actions, look_again } = decide_unread(index, &self.registry, &id, now);
                if let Some(at) = look_again {
                    self.agenda.wake(&id, at);
                }
                if !actions.is_empty() {
                    self.act(id, actions, hands);
                }
            }
            return;
        }
        let mut turns = Turns::of(index, &self.registry, &self.limits);
        for id in ready {
            let Decision { actions, look_again } = decide(index, &self.registry, &turns, &id, now);
            if let Some(at) = look_again {
                self.agenda.wake(&id, at);
            }
            if actions.is_empty() {
                continue;
            }
            let mut begins = false;
            for action in &actions {
                if let Action::Begin { node, id, may_shut_down, .. } = action {
                    begins = true;
                    // Known before the first survey of it can arrive.
                    let begun = Seen::Begun(node.clone(), id.clone(), *may_shut_down, now);
                    self.registry.apply(index, begun);
                }
            }
            if begins {
                turns = Turns::of(index, &self.registry, &self.limits);
            }
            self.act(id, actions, hands);
        }
    }

    fn act(&mut self, id: Id, actions: Vec<Action>, hands: &mut Hands<'_>) {
        let service = self
            .service
            .get_or_insert_with(|| {
                // Many nodes share these, where a drain by hand has one or a few.
                let policy = Policy { parallel: PARALLEL, ..Policy::thorough() };
                let (news, mut heard) = mpsc::unbounded_channel();
                let sender = hands.sender.clone();
                hands.tasks.spawn(async move {
                    while let Some(news) = heard.recv().await {
                        // The loop may have ended meanwhile.
                        let _ = sender.send(Input::Maintenance(Told::Drain(news)));
                    }
                });
                Arc::new(Service::start(self.http.clone(), self.registry.owner(), policy, news))
            })
            .clone();
        self.agenda.begin(&id);
        let performer = Performer { http: self.http.clone(), service };
        let (sender, room) = (hands.sender.clone(), self.room.clone());
        hands.tasks.spawn(async move {
            let _place = room.acquire_owned().await;
            let done = performer.carry_out(id, actions).await;
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Maintenance(Told::Done(done)));
        });
    }
}

/// What the role's own tasks tell it.
pub(super) enum Told {
    Done(Done),
    Drain(News),
}

impl Told {
    /// What was learned, which is everybody's to know.
    pub fn take_learned(&mut self) -> Vec<Word> {
        match self {
            Self::Done(done) => std::mem::take(&mut done.learned),
            Self::Drain(_) => Vec::new(),
        }
    }
}

fn log(event: &Event) {
    match event {
        Event::Evicting { pod, node, attempt, .. } => tracing::info!(%pod, node, attempt, "evicting pod"),
        Event::Moving { instance, node, migration, attempt, .. } => {
            tracing::info!(%instance, node, migration, attempt, "moving virtual machine");
        }
        Event::Moved { instance, node, to, seconds, .. } => {
            tracing::info!(%instance, node, to, seconds, "virtual machine moved");
        }
        Event::MoveFailed { instance, node, failures, message, .. } => {
            tracing::warn!(%instance, node, failures, message, "virtual machine could not be moved");
        }
        Event::Waiting { node, blocker, .. } => {
            tracing::info!(node, pod = %blocker.pod, why = blocker.reason.message(), "waiting");
        }
        Event::Cordoned { node } => tracing::info!(node, "cordoned"),
        Event::Ended { node, end } => tracing::info!(node, ?end, "ended"),
        _ => {}
    }
}
