//! The role `maintenance`: NodeMaintenance objects, both kinds of them.
//!
//! The role asks the core about each object that was touched. Its drain empties the nodes it is given, on the same view, and says where each
//! stands. Leadership gates both: a follower watches and waits, and whoever takes over begins from
//! what is written in the cluster.

mod drain;
mod perform;
mod quorum;
pub mod review;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evac_clock::Clock;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::step::Event;
use evac_core::machines::{Kind, Role, Subject};
use evac_core::maintenance::queue::{Limits, Turns};
use evac_core::maintenance::vouched::Reviewing;
use evac_core::maintenance::{
    Action, Decision, Id, MaintenanceFact, OWNER, Own, Registry, Touched, decide, decide_unread, named,
};
use evac_core::{Fact, Index, Policy};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use self::drain::{Answer, Drain, Order};
use self::perform::{Done, Performer};
use super::feeds::{Feed, Feeds, Input, Observation, WatchStates};
use super::spawner::Spawner;
use super::work_queue::{Ending, WorkQueue};
use crate::http::Http;
use crate::metrics::Queues;

/// How many objects are acted upon at the same time, and how many pods are asked to leave.
const PARALLEL: usize = 64;

pub(super) struct Maintenance {
    http: Http,
    clock: Clock,
    limits: Limits,
    registry: Registry,
    queue: WorkQueue<Id>,
    /// Empties nodes while this operator leads.
    drain: Drain,
    /// How often it has begun to lead.
    term: u64,
    room: Arc<Semaphore>,
}

impl Maintenance {
    pub fn new(http: Http, limits: Limits) -> Self {
        let registry = Registry::of(named(OWNER, http.home()));
        let drain = Drain::new(http.clone(), 0, registry.owner(), policy());
        Self {
            clock: http.clock(),
            http,
            limits,
            registry,
            queue: WorkQueue::default(),
            drain,
            term: 0,
            room: Arc::new(Semaphore::new(PARALLEL)),
        }
    }

    /// This operator leads from now on. What it had ordered while it led before is history.
    pub fn lead(&mut self, index: &mut Index, watches: &WatchStates) {
        self.term += 1;
        self.drain.give_up(index, watches);
        self.drain = Drain::new(self.http.clone(), self.term, self.registry.owner(), policy());
        self.registry.forget_orders();
        self.queue.touch(self.registry.everybody(index));
    }

    pub fn queues(&self) -> Queues {
        self.count();
        self.queue.queues(self.clock.now())
    }

    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.queue.next_alarm().into_iter().chain(self.drain.next_alarm()).min()
    }

    /// Whether the pods of a node are followed for its drain.
    pub fn drains(&self, node: &str) -> bool {
        self.drain.watches(node)
    }

    pub fn pods_listed(&mut self, node: &str) {
        self.drain.pods_listed(node);
    }

    pub fn pods_unread(&mut self, index: &Index, node: &str, why: &str, lasting: bool) {
        let now = self.clock.now();
        if let Some(seen) = self.drain.pods_unread(node, why, lasting, now) {
            self.apply(index, seen);
        }
    }

    /// A fresh list of what only this role looks at; the rest of it is in the index.
    pub fn list(&mut self, index: &Index, feed: Feed, list: Vec<MaintenanceFact>, at: &ListedAt) {
        match feed {
            Feed::Of(Kind::Maintenance(family)) => {
                let objects = list.into_iter().filter_map(|seen| match seen {
                    MaintenanceFact::Object(object) => Some(*object),
                    _ => None,
                });
                self.registry.list(family, objects.collect(), at);
            }
            Feed::Reviews => {
                self.registry.apply(index, MaintenanceFact::Reviewing(Reviewing::Absent));
                for seen in list {
                    self.registry.apply(index, seen);
                }
            }
            Feed::Of(Kind::Lease) => self.registry.listed_leases(index),
            Feed::Of(_) => {}
        }
        self.queue.touch(self.registry.everybody(index));
    }

    pub fn can_read(&mut self, index: &Index, feed: Feed) {
        self.apply(index, MaintenanceFact::Read(feed.words()));
    }

    pub fn cannot_read(&mut self, index: &Index, feed: Feed, why: String) {
        let now = self.clock.now();
        for seen in self.drain.list_unread(index, feed, &why, now) {
            self.apply(index, seen);
        }
        if Feed::of(Role::Maintenance).contains(&feed) {
            self.apply(index, MaintenanceFact::Unread(feed.words(), why, now));
        }
    }

    pub fn cannot_read_settings(&mut self, index: &Index, why: &str) {
        let why = format!("could not read the settings of KubeVirt: {why}");
        for seen in self.drain.guests_unread(index, &why, self.clock.now()) {
            self.apply(index, seen);
        }
    }

    pub fn hear(&mut self, index: &Index, touched: &BTreeSet<Subject>) {
        let touched = self.registry.hear(index, touched, self.clock.now());
        self.touch(index, touched);
    }

    pub fn apply(&mut self, index: &Index, seen: MaintenanceFact) {
        let touched = self.registry.apply(index, seen);
        self.touch(index, touched);
    }

    fn touch(&mut self, index: &Index, touched: Touched) {
        match touched {
            Touched::Some(ids) => self.queue.touch(ids),
            Touched::Everybody => self.queue.touch(self.registry.everybody(index)),
        }
    }

    /// Takes in what its tasks tell; what they learned is known already. Says who else has to be looked at again.
    pub fn take(&mut self, index: &mut Index, told: Told, feeds: &mut Feeds<'_>) -> BTreeSet<Subject> {
        match told {
            Told::Done(Done { id, ending, effective, .. }) => {
                // A mark that was taken off and is there again is put back by another writer: against that it helps only to rest, longer each time.
                let comes_back = ending == Ending::Done && self.registry.stray(index, &id).is_some();
                let ending = if comes_back { Ending::Failed } else { ending };
                self.queue.finish(id, ending, effective, self.clock.now());
            }
            Told::Order(term, order) if term == self.term => self.drain.obey(index, order, feeds),
            // Who waits for its end hears of it by this being dropped.
            Told::Order(..) => {}
            Told::Answer(answer) => return self.drain.answered(index, answer),
            Told::Read(term, _) => self.drain.has_read(term),
        }
        BTreeSet::new()
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

    /// Asks the core about everybody who was touched, after the drain has said where each node stands.
    pub fn look(&mut self, index: &Index, feeds: &mut Feeds<'_>) {
        let knows = feeds.watches.suffices(Role::Maintenance);
        if knows {
            for seen in self.drain.look(index, feeds) {
                self.apply(index, seen);
            }
        }
        // Nothing of what the drain has said is of a later moment.
        let now = self.clock.now();
        let spawner = &mut Spawner { sender: feeds.sender, tasks: &mut *feeds.tasks };
        let ready = self.queue.ready(now);
        if ready.is_empty() {
            return;
        }
        if !knows {
            // What is there already can at least be told what it waits for.
            for id in ready {
                let decision = decide_unread(index, &self.registry, &id, now);
                self.act(id, decision, spawner);
            }
            return;
        }
        let mut turns = Turns::of(index, &self.registry, &self.limits);
        for id in ready {
            let decision = decide(index, &self.registry, &turns, &id, now);
            let mut begins = false;
            for action in &decision.actions {
                if let Action::Own(Own::Begin { node, id, may_shut_down, .. }) = action {
                    begins = true;
                    // Known before its first progress can arrive.
                    let begun = MaintenanceFact::Begun(node.clone(), id.clone(), *may_shut_down, now);
                    self.registry.apply(index, begun);
                }
            }
            if begins {
                turns = Turns::of(index, &self.registry, &self.limits);
            }
            self.act(id, decision, spawner);
        }
    }

    fn act(&mut self, id: Id, decision: Decision, spawner: &mut Spawner<'_>) {
        if let Some(at) = decision.look_again {
            self.queue.wake(&id, at);
        }
        if decision.is_idle() {
            return;
        }
        self.queue.begin(&id);
        let (sender, room) = (spawner.sender.clone(), self.room.clone());
        let performer = Performer { http: self.http.clone(), term: self.term, sender: sender.clone() };
        spawner.tasks.spawn(async move {
            let _place = room.acquire_owned().await;
            let done = performer.carry_out(id, decision).await;
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Maintenance(Told::Done(done)));
        });
    }
}

/// Many nodes share these, where a drain by hand has one or a few.
fn policy() -> Policy {
    Policy { parallel: PARALLEL, ..Policy::thorough() }
}

/// What the role's own tasks tell it. Orders and readings are of one term as leader.
pub(super) enum Told {
    Done(Done),
    Order(u64, Order),
    Answer(Answer),
    Read(u64, Vec<Fact>),
}

impl Told {
    /// What was learned, which is everybody's to know.
    pub fn take_learned(&mut self) -> Vec<Observation> {
        match self {
            Self::Done(done) => std::mem::take(&mut done.learned),
            Self::Read(_, facts) => std::mem::take(facts).into_iter().map(Observation::Fact).collect(),
            Self::Order(..) | Self::Answer(_) => Vec::new(),
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
