//! The operator: one task that owns what is known, looks at what changed, and has the wanted changes carried out.
//!
//! Watches feed it. For each subject that was touched it asks the core what to do; the actions of one subject run one after the
//! other in a task of their own, and what the server answered comes back as a fact before that subject is
//! looked at again. So the operator never acts twice on a view that lacks its own writes. Where several operators run, the
//! gate of its client is open for the leader only: the others keep their view fresh and wait.

mod access;
mod admission;
mod agenda;
mod bounds;
mod caller;
pub mod certificates;
mod discovery;
pub mod failover;
mod feeds;
pub mod front;
pub mod health;
pub mod install;
pub mod leader;
pub mod maintenance;
pub mod pass;
mod perform;
pub mod power;
pub mod publish;
pub mod pulse;
pub mod serve;
pub mod tenants;
mod tls;
pub mod view;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evac_api::kubevirt::request;
use evac_api::kubevirt::settings::Sources;
use evac_clock::Clock;
use evac_core::Index;
use evac_core::machines::{Config, Decision, Kind, Role, Roles, Subject, decide, line, put_off};
use evac_core::maintenance::queue::Limits;
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use admission::Reviewer;
use agenda::{Agenda, Ending};
pub use bounds::Who;
use feeds::{Input, Setting};
use perform::{Done, Performer};
use pulse::{Condition, Pulse, Question};
use view::{Asking, View};

use crate::http::Http;

/// How many subjects are acted upon at the same time.
const PARALLEL: usize = 32;
/// How many subjects are told about at the same time, and how much later. Events are for people, and often arise when one guest has arrived and the
/// next one is waited for: the server has more urgent things to do then.
const TELLING: usize = 4;
const TELL_AFTER: Duration = Duration::from_millis(500);

/// A running operator, and its settings for those who answer requests.
pub struct Operator {
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    view: View,
    pulses: Vec<Pulse>,
}

/// How the roles are to work, where that is not said in the cluster.
#[derive(Default)]
pub struct Settings {
    pub tenants: tenants::Settings,
    /// How many nodes may be under maintenance at once.
    pub maintenance: Limits,
    /// Where the fence agents of policies are.
    pub fence_agents: Vec<PathBuf>,
}

impl Operator {
    /// Starts all roles on the current runtime. They act while the gate of `http` is open.
    pub fn start(http: Http) -> Self {
        Self::start_roles(http, Roles::all())
    }

    pub fn start_roles(http: Http, roles: Roles) -> Self {
        Self::start_set(http, roles, Settings::default())
    }

    pub fn start_set(http: Http, roles: Roles, settings: Settings) -> Self {
        let Settings { tenants, maintenance, fence_agents } = settings;
        let stop = CancellationToken::new();
        let (publish, config) = watch::channel(Config::default());
        let mut pulses = Vec::new();
        let clock = http.clock();
        let mut questions = || {
            let (pulse, questions) = Pulse::new(clock);
            pulses.push(pulse);
            questions
        };
        let visits = roles.has(Role::Tenants).then(|| {
            tokio::spawn(tenants::run(http.clone(), config.clone(), tenants, stop.clone(), questions()))
        });
        let failovers = roles.has(Role::Failover).then(|| {
            let agents = failover::programs(fence_agents);
            tokio::spawn(failover::run(http.clone(), agents, stop.clone(), questions()))
        });
        let upkeep = roles
            .has(Role::Maintenance)
            .then(|| tokio::spawn(maintenance::run(http.clone(), maintenance, stop.clone(), questions())));
        let (view, asked) = View::new(config, clock);
        let state = Loop::new(http, roles, publish);
        let task = tokio::spawn(state.run(stop.clone(), questions(), asked));
        let tasks = visits.into_iter().chain(upkeep).chain(failovers).chain([task]).collect();
        Self { stop, tasks, view, pulses }
    }

    /// The cluster's settings as they are now.
    pub fn config(&self) -> watch::Receiver<Config> {
        self.view.config.clone()
    }

    /// What is known, for those who answer requests.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// To ask the loops how they are.
    pub fn pulses(&self) -> Vec<Pulse> {
        self.pulses.clone()
    }

    /// Ends it without waiting, as a crash would.
    pub fn halt(&self) {
        self.stop.cancel();
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        for task in self.tasks.drain(..) {
            // A panic of the loop has been reported by the runtime already.
            let _ = task.await;
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Loop {
    http: Http,
    roles: Roles,
    clock: Clock,
    index: Index,
    sources: Sources,
    publish: watch::Sender<Config>,
    /// Kinds whose first list is still missing.
    missing: BTreeSet<Kind>,
    /// Those of them that the server does not know: there is nothing to wait for.
    absent: BTreeSet<Kind>,
    /// Places of settings that were not read yet.
    unread: BTreeSet<&'static str>,
    agenda: Agenda<Subject>,
    performer: Arc<Performer>,
    room: Arc<Semaphore>,
    telling: Arc<Semaphore>,
}

impl Loop {
    fn new(http: Http, roles: Roles, publish: watch::Sender<Config>) -> Self {
        Self {
            roles,
            clock: http.clock(),
            performer: Arc::new(Performer::new(http.clone())),
            http,
            index: Index::new(),
            sources: Sources::default(),
            publish,
            missing: feeds::FOLLOWED.into(),
            absent: BTreeSet::new(),
            unread: Setting::PLACES.into(),
            agenda: Agenda::default(),
            room: Arc::new(Semaphore::new(PARALLEL)),
            telling: Arc::new(Semaphore::new(TELLING)),
        }
    }

    async fn run(
        mut self,
        stop: CancellationToken,
        mut questions: mpsc::Receiver<Question>,
        mut asked: mpsc::Receiver<Asking>,
    ) {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        feeds::start(&self.http, &sender, &mut tasks);
        let mut openings = self.http.gate().openings();
        let mut arrived: Option<Timestamp> = None;
        loop {
            self.look(&sender, &mut tasks);
            if let Some(arrived) = arrived.take() {
                self.http.metrics().turn(self.clock.now().duration_since(arrived).unsigned_abs());
            }
            let alarm = self.next_alarm();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                input = inbox.recv() => {
                    let Some(input) = input else { return };
                    arrived = Some(self.clock.now());
                    self.take(input);
                    // Everything that has arrived is one view.
                    while let Ok(input) = inbox.try_recv() {
                        self.take(input);
                    }
                }
                Some(question) = questions.recv() => {
                    // Whoever asked may have given up.
                    let _ = question.send(self.condition());
                }
                Some(asking) = asked.recv() => if self.missing.is_empty() { asking.answer(&self.index) },
                // Whatever was touched meanwhile is acted upon now.
                Ok(()) = openings.changed() => {}
                () = sleep_until(self.clock, alarm) => {}
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    fn condition(&self) -> Condition {
        let now = self.clock.now();
        let kinds =
            self.missing.difference(&self.absent).map(|kind| format!("list of {}", request::plural(*kind)));
        Condition {
            queues: self.agenda.queues(now),
            migrations: line::under_way(&self.index).len(),
            leads: self.http.gate().is_open(now),
            missing: kinds.chain(self.unread.iter().map(|name| format!("settings in {name}"))).collect(),
        }
    }

    fn take(&mut self, input: Input) {
        let touched = match input {
            Input::Absent(kind) => {
                self.absent.insert(kind);
                return;
            }
            Input::Listed(kind, list, at) => {
                self.missing.remove(&kind);
                let mut touched = self.index.reset(kind, list, &at);
                touched.extend(self.count_nodes());
                touched
            }
            Input::Seen(seen) => {
                let mut touched = self.index.apply(seen);
                touched.extend(self.count_nodes());
                touched
            }
            Input::Ledger(ledger) => {
                self.index.enter(ledger);
                return;
            }
            Input::LedgerListed(ledger) => {
                self.index.reset_ledger(ledger);
                return;
            }
            Input::Setting(setting) => {
                self.unread.remove(setting.place());
                match setting {
                    Setting::KubeVirt(configuration) => self.sources.kubevirt = configuration,
                    Setting::Legacy(migrations) => self.sources.legacy = migrations,
                    Setting::HyperConverged(strategy) => self.sources.hyperconverged = strategy,
                }
                self.configure()
            }
            Input::Done(done) => {
                self.finish(done);
                return;
            }
        };
        self.agenda.touch(touched);
    }

    /// The default strategy can depend on how many nodes there are.
    fn count_nodes(&mut self) -> BTreeSet<Subject> {
        let nodes = self.index.nodes().len();
        if nodes == self.sources.nodes {
            return BTreeSet::new();
        }
        self.sources.nodes = nodes;
        self.configure()
    }

    fn configure(&mut self) -> BTreeSet<Subject> {
        let config = self.sources.config();
        self.publish.send_replace(config.clone());
        self.index.configure(config)
    }

    fn finish(&mut self, done: Done) {
        let Done { subject, learned, ledger, ending, trouble, effective, .. } = done;
        let mut touched = BTreeSet::new();
        for seen in learned {
            touched.extend(self.index.apply(seen));
        }
        if let Some(ledger) = ledger {
            self.index.enter(ledger);
        }
        self.agenda.touch(touched);
        let news = match trouble {
            None => ending == Ending::Done && self.index.note(&subject, None),
            some => self.index.note(&subject, some),
        };
        let news = news || (ending == Ending::Done && effective);
        self.agenda.finish(subject, ending, news, self.clock.now());
    }

    /// Asks the core about everybody who was touched and can be acted upon now.
    fn look(&mut self, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>) {
        let now = self.clock.now();
        if !self.missing.is_empty() || !self.http.gate().is_open(now) {
            return;
        }
        // The times that are written on machines, and those that are read there, are of the calendar; when to look is measured.
        let calendar = self.clock.on_calendar(now);
        if self.index.take_line_moved() {
            self.agenda.touch(line::called(&self.index, calendar));
        }
        let ready = self.agenda.ready(now);
        let waits =
            |subject: &Subject| subject.kind == Kind::Migration && line::waits(&self.index, &subject.key);
        let next =
            if ready.iter().any(waits) { line::next_in_line(&self.index, calendar) } else { BTreeSet::new() };
        for subject in ready {
            let decision = decide(&self.index, &self.roles, &subject, calendar, &next);
            if let Some(at) = decision.look_again {
                self.agenda.wake(&subject, self.clock.steady(at));
            }
            if decision.actions.is_empty() {
                self.agenda.settle(&subject);
                continue;
            }
            let since = self.agenda.wanted_since(&subject, now);
            if let Some(until) = put_off(&self.index, &subject, &decision, since, now) {
                self.agenda.wake(&subject, until);
                continue;
            }
            self.act(subject, decision, sender, tasks);
        }
    }

    fn act(
        &mut self,
        subject: Subject,
        decision: Decision,
        sender: &mpsc::UnboundedSender<Input>,
        tasks: &mut JoinSet<()>,
    ) {
        self.agenda.begin(&subject);
        let performer = self.performer.clone();
        let over = line::ended(&self.index).map(|one| one.uid.clone());
        let wants_slot = decision.actions.iter().any(|action| action.slot().is_some());
        let slots = perform::Slots {
            over: if wants_slot { over.collect() } else { BTreeSet::new() },
            under_way: if wants_slot { line::under_way(&self.index) } else { Vec::new() },
            config: self.index.config.clone(),
            ledger: self.index.ledger().clone(),
            rewinds: self.index.rewinds(),
        };
        let (sender, clock) = (sender.clone(), self.clock);
        let (room, telling) = (self.room.clone(), self.telling.clone());
        tasks.spawn(async move {
            let place = room.acquire_owned().await;
            let (done, events) = performer.carry_out(subject, decision.actions, &slots).await;
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Done(done));
            drop(place);
            if !events.is_empty() {
                clock.sleep(TELL_AFTER).await;
                let _turn = telling.acquire_owned().await;
                performer.tell(events).await;
            }
        });
    }

    fn next_alarm(&self) -> Option<Timestamp> {
        if !self.http.gate().is_open(self.clock.now()) {
            return None;
        }
        self.agenda.next_alarm()
    }
}

async fn sleep_until(clock: Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => {
            clock.sleep_until(at).await;
            // Timers are coarse; without this a wake-up a hair early would spin.
            clock.sleep(Duration::from_millis(1)).await;
        }
        None => std::future::pending().await,
    }
}
