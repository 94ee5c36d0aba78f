//! The operator: one task that owns what is known, looks at what changed, and has the wanted changes carried out.
//!
//! ```text
//!   feeds ─▶ inbox ─▶ index ─▶ subjects touched ─▶ machines · tenants · maintenance ─▶ actions in tasks
//!               ▲                                                                          │
//!               └────────────── what was learned, and how it ended ◀───────────────────────┘
//! ```
//!
//! Each kind is watched once, whichever roles ask for it ([`feeds`]). Each role keeps only what is not in the cluster, and asks the core about
//! every subject of its own that was touched; the actions of one subject run one after the other in a task of their own, and what the server
//! answered comes back as a fact before that subject is looked at again. So the operator never acts twice on a view that lacks its own
//! writes. Where several operators run, the gate of its client is open for the leader only: the others keep their view fresh and wait.

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
mod hands;
pub mod health;
pub mod install;
pub mod leader;
mod machines;
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
use std::time::Duration;

use evac_api::kubevirt::settings::Sources;
use evac_clock::Clock;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::machines::{Config, Kind, Role, Roles, Subject, line};
use evac_core::maintenance::queue::Limits;
use evac_core::{Fact, Index, Lease};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use admission::Reviewer;
pub use bounds::Who;
use feeds::{Feed, Feeds, Input, Setting, Word};
use hands::Hands;
use machines::Machines;
use maintenance::Maintenance;
use pulse::{Condition, Pulse, Question};
use tenants::Tenants;
use view::{Asking, View};

use crate::http::Http;
use crate::metrics::Queues;

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
        let failovers = roles.has(Role::Failover).then(|| {
            let agents = failover::programs(fence_agents);
            tokio::spawn(failover::run(http.clone(), agents, stop.clone(), questions()))
        });
        let (view, asked) = View::new(config, clock);
        let state = Loop::new(http, roles, (tenants, maintenance), publish);
        let task = tokio::spawn(state.run(stop.clone(), questions(), asked));
        let tasks = failovers.into_iter().chain([task]).collect();
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

/// What every operator watches, and the roles it has taken on.
struct Loop {
    http: Http,
    roles: Roles,
    clock: Clock,
    index: Index,
    sources: Sources,
    publish: watch::Sender<Config>,
    /// Feeds whose first list is still missing.
    missing: BTreeSet<Feed>,
    /// Those of them that the server does not know: there is nothing to wait for.
    absent: BTreeSet<Feed>,
    /// Places of settings that were not read yet.
    unread: BTreeSet<&'static str>,
    machines: Option<Machines>,
    tenants: Option<Tenants>,
    maintenance: Option<Maintenance>,
}

impl Loop {
    fn new(
        http: Http,
        roles: Roles,
        settings: (tenants::Settings, Limits),
        publish: watch::Sender<Config>,
    ) -> Self {
        let (tenants, limits) = settings;
        let looks_after_machines = Role::KUBEVIRT.iter().any(|role| roles.has(*role));
        Self {
            clock: http.clock(),
            index: Index::new(),
            sources: Sources::default(),
            publish,
            missing: Feed::needed(&roles),
            absent: BTreeSet::new(),
            unread: Setting::PLACES.into(),
            machines: looks_after_machines.then(|| Machines::new(http.clone(), roles.clone())),
            tenants: roles.has(Role::Tenants).then(|| Tenants::new(http.clone(), tenants)),
            maintenance: roles.has(Role::Maintenance).then(|| Maintenance::new(http.clone(), limits)),
            http,
            roles,
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
        Feeds { http: &self.http, sender: &sender, tasks: &mut tasks }.start(&self.roles);
        let mut openings = self.http.gate().openings();
        let mut arrived: Option<Timestamp> = None;
        loop {
            self.look(&mut Hands { sender: &sender, tasks: &mut tasks });
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
                Some(asking) = asked.recv() => if self.sees_machines() { asking.answer(&self.index) },
                // Whatever was touched meanwhile is acted upon now.
                Ok(()) = openings.changed() => self.lead(),
                () = sleep_until(self.clock, alarm) => {}
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    /// Whether everything is there that decisions about machines rest on.
    fn sees_machines(&self) -> bool {
        self.machines.is_some() && Feed::of(Role::Machines).iter().all(|feed| !self.missing.contains(feed))
    }

    /// What was ordered while this operator led before is history.
    fn lead(&mut self) {
        if let Some(tenants) = &mut self.tenants {
            tenants.lead(&self.index);
        }
        if let Some(maintenance) = &mut self.maintenance {
            maintenance.lead(&self.index);
        }
    }

    fn condition(&self) -> Condition {
        let now = self.clock.now();
        let lists = self.missing.difference(&self.absent).map(|feed| feed.words());
        let mut all = Condition {
            migrations: if self.machines.is_some() { line::under_way(&self.index).len() } else { 0 },
            leads: self.http.gate().is_open(now),
            missing: lists.chain(self.unread.iter().map(|name| format!("settings in {name}"))).collect(),
            queues: Queues::default(),
        };
        let queues = self.machines.as_ref().map(Machines::queues).into_iter();
        let queues = queues.chain(self.tenants.as_ref().map(Tenants::queues));
        for one in queues.chain(self.maintenance.as_ref().map(Maintenance::queues)) {
            all.queues.add(one);
        }
        all
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Listed(feed, list, at) => self.list(feed, list, &at),
            // Where only the role maintenance asks, a kind that the server does not know has no objects.
            Input::Absent(feed) if self.is_for_maintenance(feed) => {
                self.list(feed, Vec::new(), &ListedAt::default())
            }
            Input::Absent(feed) => {
                self.absent.insert(feed);
                self.can_read(feed);
            }
            Input::Seen(feed, word) => {
                self.can_read(feed);
                self.learn(word);
            }
            Input::Unread(feed, why) => {
                if let Some(tenants) = self.tenants.as_mut().filter(|_| asks(Role::Tenants, feed)) {
                    tenants.cannot_read(feed, &why);
                }
                if let Some(maintenance) = self.maintenance.as_mut().filter(|_| asks(Role::Maintenance, feed))
                {
                    maintenance.cannot_read(&self.index, feed, why);
                }
            }
            Input::Ledger(ledger) => self.index.enter(ledger),
            Input::LedgerListed(ledger) => self.index.reset_ledger(ledger),
            Input::Setting(setting) => {
                self.unread.remove(setting.place());
                match setting {
                    Setting::KubeVirt(configuration) => self.sources.kubevirt = configuration,
                    Setting::Legacy(migrations) => self.sources.legacy = migrations,
                    Setting::HyperConverged(strategy) => self.sources.hyperconverged = strategy,
                }
                self.configure();
            }
            Input::Machines(mut done) => {
                self.learn_all(std::mem::take(&mut done.learned));
                if let Some(ledger) = done.ledger.take() {
                    self.index.enter(ledger);
                }
                if let Some(machines) = &mut self.machines {
                    machines.finish(&mut self.index, done);
                }
            }
            Input::Tenants(mut told) => {
                self.learn_all(told.take_learned());
                if let Some(tenants) = &mut self.tenants {
                    tenants.take(told);
                }
            }
            Input::Maintenance(mut told) => {
                for word in told.take_learned() {
                    self.learn(word);
                }
                if let Some(maintenance) = &mut self.maintenance {
                    maintenance.take(&self.index, told);
                }
            }
        }
    }

    fn is_for_maintenance(&self, feed: Feed) -> bool {
        self.maintenance.is_some() && asks(Role::Maintenance, feed)
    }

    fn list(&mut self, feed: Feed, list: Vec<Word>, at: &ListedAt) {
        self.missing.remove(&feed);
        self.can_read(feed);
        let (mut facts, mut seen) = (Vec::new(), Vec::new());
        for word in list {
            match word {
                Word::Fact(fact) => facts.push(fact),
                Word::Maintenance(one) => seen.push(one),
            }
        }
        let touched = match feed {
            Feed::Of(Kind::Lease) => {
                let leases = facts.into_iter().filter_map(|fact| match fact {
                    Fact::Lease(lease) => Some(lease),
                    _ => None,
                });
                let covered = |lease: &Lease| lease.key.namespace == LEASE_NAMESPACE;
                self.index.reset_leases(leases.collect(), at, covered)
            }
            Feed::Of(kind) => self.index.reset(kind, facts, at),
            Feed::Objects(_) | Feed::Reviews => BTreeSet::new(),
        };
        self.hear(&touched);
        if let Some(maintenance) = self.maintenance.as_mut().filter(|_| asks(Role::Maintenance, feed)) {
            maintenance.list(&self.index, feed, seen, at);
        }
    }

    fn can_read(&mut self, feed: Feed) {
        if let Some(tenants) = self.tenants.as_mut().filter(|_| asks(Role::Tenants, feed)) {
            tenants.can_read(feed);
        }
        if let Some(maintenance) = self.maintenance.as_mut().filter(|_| asks(Role::Maintenance, feed)) {
            maintenance.can_read(&self.index, feed);
        }
    }

    fn learn(&mut self, word: Word) {
        match word {
            Word::Fact(fact) => self.learn_all(vec![fact]),
            Word::Maintenance(seen) => {
                if let Some(maintenance) = &mut self.maintenance {
                    maintenance.apply(&self.index, seen);
                }
            }
        }
    }

    fn learn_all(&mut self, facts: Vec<Fact>) {
        let mut touched = BTreeSet::new();
        for fact in facts {
            touched.extend(self.index.apply(fact));
        }
        self.hear(&touched);
    }

    /// Tells the roles who has to be looked at again.
    fn hear(&mut self, touched: &BTreeSet<Subject>) {
        if let Some(machines) = &mut self.machines {
            machines.hear(touched);
        }
        if let Some(tenants) = &mut self.tenants {
            tenants.hear(touched);
        }
        if let Some(maintenance) = &mut self.maintenance {
            maintenance.hear(&self.index, touched);
        }
        // The default strategy can depend on how many nodes there are.
        let nodes = self.index.nodes().len();
        if std::mem::replace(&mut self.sources.nodes, nodes) != nodes {
            self.configure();
        }
    }

    fn configure(&mut self) {
        let config = self.sources.config();
        self.publish.send_replace(config.clone());
        let touched = self.index.configure(config);
        self.hear(&touched);
    }

    fn look(&mut self, hands: &mut Hands<'_>) {
        let leads = self.http.gate().is_open(self.clock.now());
        let knows = |role| Feed::of(role).iter().all(|feed| !self.missing.contains(feed));
        if let Some(machines) = self.machines.as_mut().filter(|_| leads && knows(Role::Machines)) {
            machines.look(&mut self.index, hands);
        }
        if let Some(tenants) = &mut self.tenants {
            if leads {
                tenants.look(&self.index, knows(Role::Tenants), hands);
            } else {
                tenants.follow();
            }
        }
        if let Some(maintenance) = self.maintenance.as_mut().filter(|_| leads) {
            maintenance.look(&self.index, knows(Role::Maintenance), hands);
        }
    }

    fn next_alarm(&self) -> Option<Timestamp> {
        if !self.http.gate().is_open(self.clock.now()) {
            return None;
        }
        let machines = self.machines.as_ref().and_then(Machines::next_alarm);
        let tenants = self.tenants.as_ref().and_then(Tenants::next_alarm);
        let maintenance = self.maintenance.as_ref().and_then(Maintenance::next_alarm);
        [machines, tenants, maintenance].into_iter().flatten().min()
    }
}

/// Whether a role decides on what a feed brings.
fn asks(role: Role, feed: Feed) -> bool {
    Feed::of(role).contains(&feed)
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
