//! The operator's one loop: one index, one inbox, one set of watches, whichever roles there are.
//!
//! ```text
//!   feeds ─▶ inbox ─▶ index ─▶ subjects touched ─▶ roles: machines · … ─▶ actions in tasks
//!               ▲                                                                          │
//!               └────────────── what was learned, and how it ended ◀───────────────────────┘
//! ```
//!
//! Each kind is watched once, whichever roles ask for it (`feeds.rs`). Each role keeps only what is not in the cluster, and asks the core about
//! every subject of its own that was touched; the actions of one subject run one after the other in a task of their own, and what the server
//! answered comes back as a fact before that subject is looked at again. So the operator never acts twice on a view that lacks its own
//! writes. Where several operators run, the gate of its client is open for the leader only: the others keep their view fresh and wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_api::kubevirt::settings::{Sources, upstream};
use evac_clock::Clock;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::machines::{Config, Kind, Role, Roles, Subject, line};
use evac_core::maintenance::queue::Limits;
use evac_core::{Fact, Index, Lease, Sight};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::failover::Failover;
use super::feeds::{Feed, Feeds, Followed, Input, Sender, Setting, Word};
use super::hands::Hands;
use super::machines::Machines;
use super::maintenance::Maintenance;
use super::pulse::{Condition, Question};
use super::tenants::Tenants;
use super::view::Asking;
use super::{failover, tenants};

use crate::http::Http;
use crate::metrics::Queues;
use crate::watch::Report;

/// What every operator watches, and the roles it has taken on.
pub(super) struct Loop {
    http: Http,
    roles: Roles,
    clock: Clock,
    index: Index,
    sources: Sources,
    publish: watch::Sender<Config>,
    followed: Followed,
    /// Places of settings that were not read yet.
    unread: BTreeSet<&'static str>,
    /// Those that may not be read, and what the server said.
    denied: BTreeMap<&'static str, String>,
    machines: Option<Machines>,
    tenants: Option<Tenants>,
    maintenance: Option<Maintenance>,
    failover: Option<Failover>,
}

/// What the roles work with, apart from the cluster.
pub(super) struct Means {
    pub tenants: tenants::Settings,
    pub maintenance: Limits,
    pub switches: failover::Switches,
    /// Who is told how the cluster is set up.
    pub publish: watch::Sender<Config>,
}

impl Default for Means {
    fn default() -> Self {
        Self {
            tenants: tenants::Settings::default(),
            maintenance: Limits::default(),
            switches: failover::programs(Vec::new()),
            publish: watch::Sender::new(Config::default()),
        }
    }
}

impl Loop {
    pub fn new(http: Http, roles: Roles, means: Means, stop: CancellationToken) -> Self {
        let Means { tenants, maintenance, switches, publish } = means;
        let looks_after_machines = Role::KUBEVIRT.iter().any(|role| roles.has(*role));
        let failover = || Failover::new(http.clone(), switches, stop);
        Self {
            clock: http.clock(),
            index: Index::new(),
            sources: Sources::default(),
            publish,
            followed: Followed::default(),
            unread: Setting::PLACES.into(),
            denied: BTreeMap::new(),
            machines: looks_after_machines.then(|| Machines::new(http.clone(), roles.clone())),
            tenants: roles.has(Role::Tenants).then(|| Tenants::new(http.clone(), tenants)),
            maintenance: roles.has(Role::Maintenance).then(|| Maintenance::new(http.clone(), maintenance)),
            failover: roles.has(Role::Failover).then(failover),
            http,
            roles,
        }
    }

    pub async fn run(
        mut self,
        stop: CancellationToken,
        mut questions: mpsc::Receiver<Question>,
        mut asked: mpsc::Receiver<Asking>,
    ) {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        self.feeds(&sender, &mut tasks).start();
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
                    self.take(input, &sender, &mut tasks);
                    // Everything that has arrived is one view.
                    while let Ok(input) = inbox.try_recv() {
                        self.take(input, &sender, &mut tasks);
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

    fn feeds<'a>(&'a mut self, sender: &'a Sender, tasks: &'a mut JoinSet<()>) -> Feeds<'a> {
        Feeds { http: &self.http, roles: &self.roles, followed: &mut self.followed, sender, tasks }
    }

    /// Whether everything is there that decisions about machines rest on.
    fn sees_machines(&self) -> bool {
        self.machines.is_some() && self.followed.suffices(Role::Machines)
    }

    /// What was ordered while this operator led before is history.
    fn lead(&mut self) {
        if let Some(tenants) = &mut self.tenants {
            tenants.lead(&self.index);
        }
        if let Some(maintenance) = &mut self.maintenance {
            maintenance.lead(&mut self.index, &self.followed);
        }
    }

    fn condition(&self) -> Condition {
        let now = self.clock.now();
        let needed = Feed::needed(&self.roles);
        let lists = self.followed.awaited().filter(|feed| needed.contains(*feed)).map(|feed| feed.words());
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
        if let Some(failover) = &self.failover {
            all.queues.add(failover.queues());
        }
        all
    }

    fn take(&mut self, input: Input, sender: &Sender, tasks: &mut JoinSet<()>) {
        match input {
            Input::Listed(feed, list, at) => self.list(feed, list, &at),
            // Of what is not about guests, a kind that the server does not know has no objects.
            Input::Absent(feed) if self.may_be_absent(feed) => {
                self.list(feed, Vec::new(), &ListedAt::default());
            }
            Input::Absent(feed) => {
                self.followed.is_absent(feed);
                self.can_read(feed);
            }
            Input::PodsOn(node, report) => self.take_pods(&node, report),
            Input::Seen(feed, word) => {
                self.can_read(feed);
                self.learn(word);
            }
            Input::Unread { feed, why, lasting, denied } => {
                if let Some(failover) = self.failover.as_mut().filter(|_| asks(Role::Failover, feed)) {
                    failover.cannot_read(feed, &why, lasting || denied);
                }
                if lasting {
                    self.followed.is_denied(feed, &why);
                }
                if let Some(tenants) = self.tenants.as_mut().filter(|_| asks(Role::Tenants, feed)) {
                    tenants.cannot_read(feed, &why);
                }
                if let Some(maintenance) = &mut self.maintenance {
                    maintenance.cannot_read(&self.index, feed, why);
                }
            }
            Input::SettingUnread { place, why, denied } => {
                if let Some(maintenance) = self.maintenance.as_mut().filter(|_| self.unread.contains(place)) {
                    maintenance.cannot_read_settings(&self.index, &why);
                }
                if denied {
                    self.denied.insert(place, why);
                }
            }
            Input::Ledger(ledger) => self.index.enter(ledger),
            Input::LedgerListed(ledger) => self.index.reset_ledger(ledger),
            Input::Setting(setting) => {
                self.unread.remove(setting.place());
                self.denied.remove(setting.place());
                match setting {
                    Setting::KubeVirt(object) => {
                        let objects = object.as_deref().map(std::slice::from_ref).unwrap_or_default();
                        self.sources.upstream = upstream(objects);
                        self.sources.kubevirt = object.map(|object| object.spec.configuration);
                    }
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
            Input::Failover(told) => {
                if let Some(failover) = &mut self.failover {
                    failover.take(told);
                }
            }
            Input::Maintenance(mut told) => {
                for word in told.take_learned() {
                    self.learn(word);
                }
                let Self { http, roles, followed, index, maintenance, .. } = self;
                let mut feeds = Feeds { http, roles, followed, sender, tasks };
                let touched =
                    maintenance.as_mut().map(|maintenance| maintenance.take(index, told, &mut feeds));
                self.hear(&touched.unwrap_or_default());
            }
        }
    }

    /// Whether everything is there that failovers rest on. Where leases may not be read, that is said of each of them.
    fn sees_nodes(&self) -> bool {
        let known = |feed| self.followed.is_known(feed);
        known(Feed::Of(Kind::Node))
            && known(Feed::Of(Kind::Policy))
            && self.followed.is_settled(Feed::Of(Kind::Lease))
    }

    fn take_pods(&mut self, node: &str, report: Report<Fact>) {
        let Some(maintenance) = self.maintenance.as_mut().filter(|one| one.drains(node)) else {
            // A report of a watch that was ended may still have been on the way.
            return;
        };
        let touched = match report {
            Report::Listed(pods, at) => {
                maintenance.pods_listed(node);
                self.index.reset_on(node, pods, &at)
            }
            Report::Seen(fact) => self.index.apply(fact),
            Report::Gone(last) => self.index.apply(last.gone()),
            Report::Failed { error, final_ } => {
                maintenance.pods_unread(&self.index, node, &error.to_string(), final_);
                BTreeSet::new()
            }
        };
        self.hear(&touched);
    }

    /// What can be seen of virtual machines, for drains. Limits have defaults; a strategy is not guessed.
    fn sight(&self) -> Sight {
        match self.followed.sight() {
            Sight::Clear if self.unread.is_empty() => Sight::Clear,
            Sight::Clear => match self.denied.values().next() {
                Some(why) if self.index.instances().any(|one| one.eviction_strategy.is_none()) => {
                    Sight::Denied(why.clone())
                }
                Some(_) => Sight::Clear,
                None => Sight::Unlooked,
            },
            other => other,
        }
    }

    fn may_be_absent(&self, feed: Feed) -> bool {
        feed == Feed::Of(Kind::Lease) || (self.maintenance.is_some() && asks(Role::Maintenance, feed))
    }

    fn list(&mut self, feed: Feed, list: Vec<Word>, at: &ListedAt) {
        self.followed.listed(feed);
        self.can_read(feed);
        let (mut facts, mut seen, mut suspects, mut policies) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
        for word in list {
            match word {
                Word::Fact(fact) => facts.push(fact),
                Word::Maintenance(one) => seen.push(one),
                Word::Suspect(suspect) => {
                    facts.push(Fact::Node(Box::new(suspect.node.clone())));
                    suspects.push(*suspect);
                }
                Word::Policy(policy) => policies.push(*policy),
                Word::PolicyGone(_) => {}
            }
        }
        match (&mut self.failover, feed) {
            (Some(failover), Feed::Of(Kind::Node)) => failover.list_nodes(suspects),
            (Some(failover), Feed::Of(Kind::Policy)) => failover.list_policies(policies),
            _ => {}
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
            Feed::Reviews => BTreeSet::new(),
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
        if let Some(failover) = self.failover.as_mut().filter(|_| asks(Role::Failover, feed)) {
            failover.can_read(feed);
        }
    }

    fn learn(&mut self, word: Word) {
        match word {
            Word::Fact(fact) => self.learn_all(vec![fact]),
            Word::Suspect(suspect) => {
                let node = suspect.node.clone();
                if let Some(failover) = &mut self.failover {
                    failover.see_node(*suspect);
                }
                self.learn_all(vec![Fact::Node(Box::new(node))]);
            }
            Word::Policy(policy) => {
                if let Some(failover) = &mut self.failover {
                    failover.learn(*policy);
                }
            }
            Word::PolicyGone(name) => {
                if let Some(failover) = &mut self.failover {
                    failover.end_policy(&name);
                }
            }
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
        if let Some(failover) = &mut self.failover {
            failover.hear(&self.index, touched);
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

    fn look(&mut self, sender: &Sender, tasks: &mut JoinSet<()>) {
        let leads = self.http.gate().is_open(self.clock.now());
        if self.maintenance.is_some() {
            let sight = self.sight();
            if *self.index.sight() != sight {
                self.index.set_sight(sight);
            }
        }
        let mut hands = Hands { sender, tasks: &mut *tasks };
        let knows_machines = self.sees_machines();
        if let Some(machines) = self.machines.as_mut().filter(|_| leads && knows_machines) {
            machines.look(&mut self.index, &mut hands);
        }
        if let Some(tenants) = &mut self.tenants {
            if leads {
                tenants.look(&self.index, self.followed.suffices(Role::Tenants), &mut hands);
            } else {
                tenants.follow();
            }
        }
        let knows_nodes = self.sees_nodes();
        if let Some(failover) = &mut self.failover {
            failover.look(&self.index, knows_nodes, &mut hands);
        }
        let Self { http, roles, followed, index, maintenance, .. } = self;
        if let Some(maintenance) = maintenance.as_mut().filter(|_| leads) {
            maintenance.look(index, &mut Feeds { http, roles, followed, sender, tasks });
        }
    }

    fn next_alarm(&self) -> Option<Timestamp> {
        if !self.http.gate().is_open(self.clock.now()) {
            return None;
        }
        let machines = self.machines.as_ref().and_then(Machines::next_alarm);
        let tenants = self.tenants.as_ref().and_then(Tenants::next_alarm);
        let maintenance = self.maintenance.as_ref().and_then(Maintenance::next_alarm);
        let failover = self.failover.as_ref().and_then(Failover::next_alarm);
        [machines, tenants, maintenance, failover].into_iter().flatten().min()
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
