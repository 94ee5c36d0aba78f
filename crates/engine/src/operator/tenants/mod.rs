//! The role `tenants`: one loop that watches instances, asks the core, and keeps one visit per tenant node under way.
//!
//! The rules are in [`evac_core::tenants`]. Requests of one decision run one after the other, and what the server answered is known
//! before the next decision about that instance. A drain runs beside that and reports; nothing ever waits for it.

mod firsts;
pub mod kubeconfig;
mod perform;
pub mod reach;
mod visit;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::{request, wire};
use evac_core::cluster::index::ListedAt;
use evac_core::drain::unread::{Unread, Word};
use evac_core::machines::{Config, Kind, Subject};
use evac_core::tenants::{Action, Limits, Outcome, Stage, View, Work, decide, say_unread};
use evac_core::{Fact, Index, Key, Uid};
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::feeds::follow_forever;
use super::pulse::{Condition, Question};
use super::sleep_until;
use crate::guests::{INSTANCES, MIGRATIONS};
use crate::http::Http;
use crate::metrics::Queues;
use crate::watch::{Feed, Report, Source};
use firsts::Firsts;
use perform::{Done, carry_out};
use visit::{Visit, Visits};

#[derive(Debug, Clone)]
pub struct Settings {
    pub limits: Limits,
    /// Whether a tenant may be on this machine: so it is where the host's own API server is.
    pub loopback: bool,
    /// Which process this is, for the leases in tenants' clusters.
    pub instance: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), loopback: false, instance: "operator".into() }
    }
}

enum Input {
    Listed(Kind, Vec<Fact>, ListedAt),
    /// The server does not know this kind.
    Absent(Kind),
    Seen(Kind, Fact),
    /// It could not be read; it is asked again.
    /// It cannot be read now, and why.
    Unread(Kind, String),
    Done(Key, Uid, Done),
    Reported(Key, Uid, Outcome),
    /// When evictions were first seen.
    Firsts(Firsts),
}

/// What is done about one incarnation of an instance. When this is dropped, its visit ends.
struct Job {
    key: Key,
    work: Work,
    busy: bool,
    visit: Option<DropGuard>,
}

struct Loop {
    http: Http,
    settings: Settings,
    visits: Visits,
    index: Index,
    jobs: BTreeMap<Uid, Job>,
    /// Read anew by every leader; without it nothing is decided.
    firsts: Option<Firsts>,
    reading: bool,
    missing: BTreeSet<Kind>,
    /// Those of them that the server does not know: there is nothing to wait for.
    absent: BTreeSet<Kind>,
    dirty: BTreeSet<Key>,
    alarms: BTreeMap<Key, Timestamp>,
    /// How far the calendar was ahead of the steady time when we last looked.
    ahead: SignedDuration,
    /// Lists that cannot be read, and what is said about that now.
    unread: Unread,
    word: Word,
}

const WATCHED: [Kind; 3] = [Kind::Instance, Kind::Machine, Kind::Migration];
const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachines";
const PAGE: u32 = 500;
/// The longest sleep after which the time of day is looked at again.
const LOOK_AT_CALENDAR: Duration = Duration::from_secs(60);

/// Runs until `stop`. Acts while the gate of `http` is open.
pub(super) async fn run(
    http: Http,
    mut config: watch::Receiver<Config>,
    settings: Settings,
    stop: CancellationToken,
    mut questions: mpsc::Receiver<Question>,
) {
    let (sender, mut inbox) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    follow::<wire::VirtualMachineInstance>(&http, &sender, &mut tasks, INSTANCES);
    follow::<wire::VirtualMachine>(&http, &sender, &mut tasks, MACHINES);
    follow::<wire::Migration>(&http, &sender, &mut tasks, MIGRATIONS);
    let mut openings = http.gate().openings();
    let mut state = Loop {
        index: Index::with(config.borrow_and_update().clone()),
        settings,
        visits: Visits::new(),
        jobs: BTreeMap::new(),
        firsts: None,
        reading: false,
        missing: WATCHED.into(),
        absent: BTreeSet::new(),
        dirty: BTreeSet::new(),
        alarms: BTreeMap::new(),
        ahead: http.clock().ahead(),
        unread: Unread::default(),
        word: Word::Nothing,
        http,
    };
    loop {
        state.look(&sender, &mut tasks);
        let alarm = state.next_alarm();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            input = inbox.recv() => {
                let Some(input) = input else { return };
                state.take(input);
                // Everything that has arrived is one view.
                while let Ok(input) = inbox.try_recv() {
                    state.take(input);
                }
            }
            Some(question) = questions.recv() => {
                // Whoever asked may have given up.
                let _ = question.send(state.condition());
            }
            Ok(()) = config.changed() => {
                let config = config.borrow_and_update().clone();
                let touched = state.index.configure(config);
                state.touch(touched);
            }
            Ok(()) = openings.changed() => {
                state.dirty.extend(state.index.instances().map(|instance| instance.key.clone()));
            }
            () = sleep_until(state.http.clock(), alarm) => {}
        }
        while tasks.try_join_next().is_some() {}
    }
}

fn follow<T>(http: &Http, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>, path: &'static str)
where
    T: Follow + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let source = Source { path: path.into(), query: String::new(), page: PAGE };
    let wrap = move |report: Report<Fact>| match report {
        Report::Listed(list, at) => Input::Listed(T::KIND, list, at),
        Report::Seen(fact) => Input::Seen(T::KIND, fact),
        Report::Gone(last) => Input::Seen(T::KIND, last.gone()),
        Report::Failed { error, .. } if error.is_not_found() => Input::Absent(T::KIND),
        Report::Failed { error, .. } => {
            tracing::warn!(path, %error, "cannot be read");
            Input::Unread(T::KIND, error.to_string())
        }
    };
    tasks.spawn(follow_forever(http.clone(), Feed::<T, Fact>::facts(source), sender.clone(), wrap));
}

impl Loop {
    fn condition(&self) -> Condition {
        let now = self.http.clock().now();
        let missing = self.missing.difference(&self.absent);
        Condition {
            queues: Queues {
                touched: self.dirty.len(),
                acting: self.jobs.values().filter(|job| job.busy || job.visit.is_some()).count(),
                resting: 0,
                scheduled: self.alarms.len(),
            },
            migrations: 0,
            leads: self.http.gate().is_open(now),
            missing: missing.map(|kind| format!("list of {} of tenants", request::plural(*kind))).collect(),
        }
    }

    /// Pauses last as long as they last, also if the system's clock is stepped meanwhile. Deadlines are times of day and stay what they are.
    fn follow_calendar(&mut self) {
        let ahead = self.http.clock().ahead();
        let step = ahead - std::mem::replace(&mut self.ahead, ahead);
        if step.is_zero() {
            return;
        }
        for job in self.jobs.values_mut() {
            job.work.shift(step);
        }
        self.dirty.extend(std::mem::take(&mut self.alarms).into_keys());
    }

    fn take(&mut self, input: Input) {
        self.follow_calendar();
        let now = self.http.clock().calendar();
        match input {
            Input::Unread(kind, why) => {
                self.unread.failed(request::plural(kind), &why, self.http.clock().now());
            }
            Input::Firsts(firsts) => {
                self.reading = false;
                self.firsts = Some(firsts);
            }
            Input::Absent(kind) => {
                self.unread.read(request::plural(kind));
                self.absent.insert(kind);
            }
            Input::Listed(kind, list, at) => {
                self.missing.remove(&kind);
                self.unread.read(request::plural(kind));
                let touched = self.index.reset(kind, list, &at);
                self.touch(touched);
            }
            Input::Seen(kind, seen) => {
                self.unread.read(request::plural(kind));
                let touched = self.index.apply(seen);
                self.touch(touched);
            }
            Input::Done(key, uid, done) => {
                for seen in done.learned {
                    let touched = self.index.apply(seen);
                    self.touch(touched);
                }
                for outcome in &done.outcomes {
                    match (outcome, &mut self.firsts) {
                        (Outcome::FirstKept(first), Some(firsts)) => drop(firsts.insert(uid.clone(), *first)),
                        (Outcome::FirstForgotten, Some(firsts)) => drop(firsts.remove(&uid)),
                        _ => {}
                    }
                }
                if let Some(job) = self.jobs.get_mut(&uid) {
                    job.busy = false;
                    for outcome in done.outcomes {
                        job.work.record(outcome, now);
                    }
                }
                self.dirty.insert(key);
            }
            Input::Reported(key, uid, outcome) => {
                if let Some(job) = self.jobs.get_mut(&uid) {
                    if !matches!(outcome, Outcome::Counted(_) | Outcome::Waits(_)) {
                        job.visit = None;
                    }
                    job.work.record(outcome, now);
                }
                self.dirty.insert(key);
            }
        }
    }

    /// An instance has the name of its machine; so what touches one touches the other.
    fn touch(&mut self, subjects: BTreeSet<Subject>) {
        for Subject { kind, key } in subjects {
            if matches!(kind, Kind::Instance | Kind::Machine) {
                self.alarms.remove(&key);
                self.dirty.insert(key);
            }
        }
    }

    fn look(&mut self, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>) {
        // Deadlines are times of day that are written on instances, so all of this goes by the calendar; only leadership is measured.
        self.follow_calendar();
        let now = self.http.clock().calendar();
        if !self.http.gate().is_open(self.http.clock().now()) {
            // Another leads; it visits now, and what was begun here is forgotten.
            self.jobs.clear();
            self.firsts = None;
            return;
        }
        self.say_unread(now, sender, tasks);
        if !self.missing.is_empty() {
            return;
        }
        if self.firsts.is_none() {
            self.read_firsts(sender, tasks);
            return;
        }
        let due: Vec<Key> =
            self.alarms.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.alarms.remove(&key);
            self.dirty.insert(key);
        }
        for key in std::mem::take(&mut self.dirty) {
            self.consider(&key, now, sender, tasks);
        }
        // Whoever is gone needs nothing any more; a visit ends with its job.
        let machines = &self.index;
        self.jobs.retain(|uid, job| machines.instance(&job.key).is_some_and(|known| known.uid == *uid));
    }

    /// Says on every instance that it matters to what cannot be read, and takes it back.
    fn say_unread(&mut self, now: Timestamp, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>) {
        let clock = self.http.clock();
        self.word = self.unread.word(clock.now(), clock.ahead());
        let words = match &self.word {
            Word::Now(words) => Some(words.clone()),
            Word::Nothing | Word::Later(_) => None,
        };
        let keys: Vec<Key> = self.index.instances().map(|instance| instance.key.clone()).collect();
        for key in keys {
            let Some(instance) = self.index.instance(&key) else { continue };
            let (uid, idle) = (instance.uid.clone(), Work::default());
            let job = self.jobs.get(&uid);
            if job.is_some_and(|job| job.busy) {
                continue;
            }
            let work = job.map_or(&idle, |job| &job.work);
            let view = View { index: &self.index, work, limits: &self.settings.limits, first: None };
            let decision = say_unread(&view, &key, words.as_deref(), now);
            if let Some(at) = decision.look_again {
                self.alarms.insert(key.clone(), at);
            }
            if !decision.actions.is_empty() {
                self.job(&uid, &key);
                self.request(&key, uid, decision.actions, Vec::new(), sender, tasks);
            }
        }
    }

    fn job(&mut self, uid: &Uid, key: &Key) -> &mut Job {
        self.jobs.entry(uid.clone()).or_insert_with(|| Job {
            key: key.clone(),
            work: Work::default(),
            busy: false,
            visit: None,
        })
    }

    fn request(
        &mut self,
        key: &Key,
        uid: Uid,
        requests: Vec<Action>,
        gone: Vec<Uid>,
        sender: &mpsc::UnboundedSender<Input>,
        tasks: &mut JoinSet<()>,
    ) {
        self.job(&uid, key).busy = true;
        let (http, config, sender, key) =
            (self.http.clone(), self.index.config.clone(), sender.clone(), key.clone());
        tasks.spawn(async move {
            let done = carry_out(&http, &config, &key, &uid, requests, &gone).await;
            let _ = sender.send(Input::Done(key, uid, done));
        });
    }

    fn read_firsts(&mut self, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>) {
        if std::mem::replace(&mut self.reading, true) {
            return;
        }
        let (http, sender) = (self.http.clone(), sender.clone());
        tasks.spawn(async move {
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Firsts(firsts::read_all(&http).await));
        });
    }

    /// Those of whom something is kept although they are gone.
    fn take_gone(&mut self) -> Vec<Uid> {
        let there: BTreeSet<&Uid> = self.index.instances().map(|instance| &instance.uid).collect();
        let Some(firsts) = &mut self.firsts else { return Vec::new() };
        let gone: Vec<Uid> = firsts.keys().filter(|uid| !there.contains(uid)).cloned().collect();
        for uid in &gone {
            firsts.remove(uid);
        }
        gone
    }

    fn consider(
        &mut self,
        key: &Key,
        now: Timestamp,
        sender: &mpsc::UnboundedSender<Input>,
        tasks: &mut JoinSet<()>,
    ) {
        let Some(instance) = self.index.instance(key) else { return };
        let (uid, idle) = (instance.uid.clone(), Work::default());
        let job = self.jobs.get(&uid);
        if job.is_some_and(|job| job.busy) {
            return;
        }
        let work = job.map_or(&idle, |job| &job.work);
        let first = self.firsts.as_ref().and_then(|firsts| firsts.get(&uid).copied());
        let view = View { index: &self.index, work, limits: &self.settings.limits, first };
        let decision = decide(&view, key, now);
        if let Some(at) = decision.look_again {
            self.alarms.insert(key.clone(), at);
        }
        if decision.actions.is_empty() {
            return;
        }
        tracing::debug!(%key, actions = ?decision.actions, "tenant");
        let instance = instance.clone();
        let keeps = decision.actions.iter().any(|action| matches!(action, Action::KeepFirst { .. }));
        let gone = if keeps { self.take_gone() } else { Vec::new() };
        let job = self.jobs.entry(uid.clone()).or_insert_with(|| Job {
            key: key.clone(),
            work: Work::default(),
            busy: false,
            visit: None,
        });
        let (work, requests): (Vec<_>, Vec<_>) = decision.actions.into_iter().partition(Action::is_work);
        for action in work {
            let visit = |member| Visit {
                host: self.http.clone(),
                visits: self.visits.clone(),
                settings: self.settings.clone(),
                member,
                instance: instance.clone(),
            };
            let stop = CancellationToken::new();
            let (sender, key, uid) = (sender.clone(), key.clone(), uid.clone());
            match action {
                Action::Begin { member } => {
                    job.work.begin(Stage::Draining);
                    let (visit, token) = (visit(member), stop.clone());
                    tasks.spawn(async move {
                        let report = |outcome| {
                            // The loop may have ended meanwhile.
                            let _ = sender.send(Input::Reported(key.clone(), uid.clone(), outcome));
                        };
                        let end = visit.drain(token, &mut |outcome| report(outcome)).await;
                        report(end);
                    });
                    job.visit = Some(stop.drop_guard());
                }
                Action::Uncordon { member } => {
                    job.work.begin(Stage::Uncordoning);
                    let visit = visit(member);
                    tasks.spawn(async move {
                        let end = visit.uncordon().await;
                        let _ = sender.send(Input::Reported(key, uid, end));
                    });
                }
                _ => {
                    job.work.begin(Stage::Stopping);
                    job.visit = None;
                }
            }
        }
        if requests.is_empty() {
            return;
        }
        if requests.iter().any(|action| matches!(action, Action::Note { .. })) {
            job.work.noted = Some(now);
        }
        self.request(key, uid, requests, gone, sender, tasks);
    }

    fn next_alarm(&self) -> Option<Timestamp> {
        if !self.http.gate().is_open(self.http.clock().now()) {
            return None;
        }
        let told = match self.word {
            Word::Later(at) => Some(at),
            Word::Nothing | Word::Now(_) => None,
        };
        let Some(next) = self.alarms.values().min().copied() else { return told };
        // The calendar may be stepped while we sleep, so it is looked at again from time to time.
        let clock = self.http.clock();
        let left = Duration::try_from(next.duration_since(clock.calendar())).unwrap_or_default();
        clock.now().checked_add(left.min(LOOK_AT_CALENDAR)).ok().into_iter().chain(told).min()
    }
}
