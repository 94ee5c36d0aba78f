//! The role `maintenance`: NodeMaintenance objects, both kinds of them.
//!
//! One task owns the registry and asks the core about each object that was touched. A second one, the drain service, empties the nodes it
//! is given and reports where each stands. Leadership gates both: a follower watches and waits, and whoever takes over begins from
//! what is written in the cluster.

mod feeds;
mod perform;
mod quorum;
pub mod review;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evac_clock::Clock;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::drain::step::Event;
use evac_core::machines::Kind;
use evac_core::maintenance::queue::{Limits, Turns};
use evac_core::maintenance::vouched::Reviewing;
use evac_core::maintenance::{
    Action, Decision, Id, OWNER, Registry, Seen, Touched, decide, decide_unread, named,
};
use evac_core::{Fact, Index, Lease, Policy};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::feeds::{Input, What, Word};
use self::perform::{Done, Performer};
use super::agenda::Agenda;
use super::pulse::{Condition, Question};
use super::sleep_until;
use crate::drain::service::{News, Service};
use crate::http::Http;

/// How many objects are acted upon at the same time, and how many pods are asked to leave.
const PARALLEL: usize = 64;

/// Runs the role until it is stopped. It acts while the gate of `http` is open.
pub(super) async fn run(
    http: Http,
    limits: Limits,
    stop: CancellationToken,
    questions: mpsc::Receiver<Question>,
) {
    Loop::new(http, limits).run(stop, questions).await;
}

struct Loop {
    http: Http,
    clock: Clock,
    limits: Limits,
    index: Index,
    registry: Registry,
    missing: BTreeSet<What>,
    agenda: Agenda<Id>,
    /// Empties nodes while we lead.
    service: Option<Arc<Service>>,
    room: Arc<Semaphore>,
}

impl Loop {
    fn new(http: Http, limits: Limits) -> Self {
        let registry = Registry::of(named(OWNER, http.home()));
        Self {
            clock: http.clock(),
            http,
            limits,
            index: Index::new(),
            registry,
            missing: What::ALL.into(),
            agenda: Agenda::default(),
            service: None,
            room: Arc::new(Semaphore::new(PARALLEL)),
        }
    }

    async fn run(mut self, stop: CancellationToken, mut questions: mpsc::Receiver<Question>) {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let (news_sender, mut news) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        feeds::start(&self.http, &sender, &mut tasks);
        let mut openings = self.http.gate().openings();
        loop {
            self.look(&sender, &news_sender, &mut tasks);
            let leads = self.http.gate().is_open(self.clock.now());
            let alarm = if leads { self.agenda.next_alarm() } else { None };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                input = inbox.recv() => {
                    let Some(input) = input else { return };
                    self.take(input);
                    // Everything that has arrived is one view.
                    while let Ok(input) = inbox.try_recv() {
                        self.take(input);
                    }
                }
                Some(told) = news.recv() => {
                    self.hear(told);
                    while let Ok(told) = news.try_recv() {
                        self.hear(told);
                    }
                }
                Some(question) = questions.recv() => {
                    // Whoever asked may have given up.
                    let _ = question.send(self.condition());
                }
                // What we had ordered while we led before is history.
                Ok(()) = openings.changed() => {
                    self.service = None;
                    self.registry.forget_orders();
                    self.agenda.touch(self.registry.everybody(&self.index));
                }
                () = sleep_until(self.clock, alarm) => {}
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    fn condition(&self) -> Condition {
        self.count();
        let now = self.clock.now();
        Condition {
            queues: self.agenda.queues(now),
            migrations: 0,
            leads: self.http.gate().is_open(now),
            missing: self.missing.iter().map(|what| format!("list of {what:?} of maintenance")).collect(),
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Listed(what, list, at) => {
                self.missing.remove(&what);
                self.list(what, list, &at);
                self.apply(Seen::Read(what.words()));
                self.agenda.touch(self.registry.everybody(&self.index));
            }
            Input::Seen(what, word) => {
                self.apply(Seen::Read(what.words()));
                self.learn(word);
            }
            Input::Unread(what, why) => {
                self.apply(Seen::Unread(what.words(), why, self.clock.now()));
            }
            Input::Done(Done { id, learned, ending, effective }) => {
                for word in learned {
                    self.learn(word);
                }
                self.agenda.finish(id, ending, effective, self.clock.now());
            }
        }
    }

    fn list(&mut self, what: What, list: Vec<Word>, at: &ListedAt) {
        if what == What::Reviews && list.is_empty() {
            self.apply(Seen::Reviewing(Reviewing::Absent));
        }
        let (mut facts, mut objects) = (Vec::new(), Vec::new());
        for word in list {
            match word {
                Word::Fact(fact) => facts.push(fact),
                Word::Seen(Seen::Object(object)) => objects.push(*object),
                Word::Seen(seen) => self.apply(seen),
            }
        }
        let touched = match what {
            What::Objects(family) => return drop(self.registry.list(family, objects, at)),
            What::Reviews => return,
            What::Nodes => self.index.reset(Kind::Node, facts, at),
            What::Leases => {
                let leases = facts.into_iter().filter_map(|fact| match fact {
                    Fact::Lease(lease) => Some(lease),
                    _ => None,
                });
                let ours = |lease: &Lease| lease.key.namespace == LEASE_NAMESPACE;
                let touched = self.index.reset_leases(leases.collect(), at, ours);
                self.registry.listed_leases(&self.index);
                touched
            }
        };
        self.registry.hear(&self.index, &touched, self.clock.now());
    }

    fn learn(&mut self, word: Word) {
        match word {
            Word::Seen(seen) => self.apply(seen),
            Word::Fact(fact) => {
                let touched = self.index.apply(fact);
                let touched = self.registry.hear(&self.index, &touched, self.clock.now());
                self.touch(touched);
            }
        }
    }

    fn apply(&mut self, seen: Seen) {
        let touched = self.registry.apply(&self.index, seen);
        self.touch(touched);
    }

    fn touch(&mut self, touched: Touched) {
        match touched {
            Touched::Some(ids) => self.agenda.touch(ids),
            Touched::Everybody => self.agenda.touch(self.registry.everybody(&self.index)),
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Survey(survey) => self.apply(Seen::Survey(survey)),
            News::Event(_, event) => log(&event),
            // It goes on by itself, and then says again where each node stands. Until then that is not known.
            News::Interrupted(why) => {
                tracing::warn!(why, "the drain was interrupted");
                let nodes: Vec<String> = self.registry.ordered().cloned().collect();
                for node in nodes {
                    self.apply(Seen::Blind(node, why.clone(), self.clock.now()));
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

    fn look(
        &mut self,
        sender: &mpsc::UnboundedSender<Input>,
        news: &mpsc::UnboundedSender<News>,
        tasks: &mut JoinSet<()>,
    ) {
        let now = self.clock.now();
        if !self.http.gate().is_open(now) {
            return;
        }
        let ready = self.agenda.ready(now);
        if ready.is_empty() {
            return;
        }
        if !self.missing.is_empty() {
            // What is there already can at least be told what it waits for.
            for id in ready {
                let Decision { actions, look_again } = decide_unread(&self.index, &self.registry, &id, now);
                if let Some(at) = look_again {
                    self.agenda.wake(&id, at);
                }
                if !actions.is_empty() {
                    self.act(id, actions, sender, news, tasks);
                }
            }
            return;
        }
        let mut turns = Turns::of(&self.index, &self.registry, &self.limits);
        for id in ready {
            let Decision { actions, look_again } = decide(&self.index, &self.registry, &turns, &id, now);
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
                    self.registry.apply(&self.index, begun);
                }
            }
            if begins {
                turns = Turns::of(&self.index, &self.registry, &self.limits);
            }
            self.act(id, actions, sender, news, tasks);
        }
    }

    fn act(
        &mut self,
        id: Id,
        actions: Vec<Action>,
        sender: &mpsc::UnboundedSender<Input>,
        news: &mpsc::UnboundedSender<News>,
        tasks: &mut JoinSet<()>,
    ) {
        let service = self
            .service
            .get_or_insert_with(|| {
                // Many nodes share these, where a drain by hand has one or a few.
                let policy = Policy { parallel: PARALLEL, ..Policy::thorough() };
                Arc::new(Service::start(self.http.clone(), self.registry.owner(), policy, news.clone()))
            })
            .clone();
        self.agenda.begin(&id);
        let performer = Performer { http: self.http.clone(), service };
        let (sender, room) = (sender.clone(), self.room.clone());
        tasks.spawn(async move {
            let _place = room.acquire_owned().await;
            let done = performer.carry_out(id, actions).await;
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Done(done));
        });
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
