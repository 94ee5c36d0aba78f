//! The role `tenants`: asks the core about instances that were touched, and keeps one visit per tenant node under way.
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

use evac_api::kubevirt::request;
use evac_core::action::Event;
use evac_core::cluster::subject::ObjectRef;
use evac_core::drain::unread::{Unread, Word};
use evac_core::machines::{Kind, Subject};
use evac_core::tenants::{Action, Decision, Limits, Own, Report, Stage, View, Work, decide, say_unread};
use evac_core::{Fact, Index, Key, Uid};
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::feeds::{Feed, Input};
use super::hands::Hands;
use crate::http::Http;
use crate::metrics::Queues;
use firsts::Firsts;
use perform::{Done, Wanted, carry_out};
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

/// What the role's own tasks tell it.
pub(super) enum Told {
    Done(Key, Uid, Done),
    Reported(Key, Uid, Report),
    /// When evictions were first seen.
    Firsts(Firsts),
}

impl Told {
    /// What was learned of the cluster, which is everybody's to know.
    pub fn take_learned(&mut self) -> Vec<Fact> {
        match self {
            Self::Done(_, _, done) => std::mem::take(&mut done.learned),
            Self::Reported(..) | Self::Firsts(_) => Vec::new(),
        }
    }
}

/// What is done about one incarnation of an instance. When this is dropped, its visit ends.
struct Job {
    key: Key,
    work: Work,
    busy: bool,
    visit: Option<DropGuard>,
}

pub(super) struct Tenants {
    http: Http,
    settings: Settings,
    visits: Visits,
    jobs: BTreeMap<Uid, Job>,
    /// Read anew by every leader; without it nothing is decided.
    firsts: Option<Firsts>,
    reading: bool,
    dirty: BTreeSet<Key>,
    alarms: BTreeMap<Key, Timestamp>,
    /// How far the calendar was ahead of the steady time when we last looked.
    ahead: SignedDuration,
    /// Lists that cannot be read, and what is said about that now.
    unread: Unread,
    word: Word,
    /// Any instance may say that something cannot be read although it can.
    stale: bool,
}

/// The longest sleep after which the time of day is looked at again.
const LOOK_AT_CALENDAR: Duration = Duration::from_secs(60);

/// What a list is called in statuses.
fn name(feed: Feed) -> String {
    match feed {
        Feed::Of(kind) => request::plural(kind).to_owned(),
        other => other.words(),
    }
}

impl Tenants {
    pub fn new(http: Http, settings: Settings) -> Self {
        Self {
            settings,
            visits: Visits::new(),
            jobs: BTreeMap::new(),
            firsts: None,
            reading: false,
            dirty: BTreeSet::new(),
            alarms: BTreeMap::new(),
            ahead: http.clock().ahead(),
            unread: Unread::default(),
            word: Word::Nothing,
            stale: true,
            http,
        }
    }

    pub fn queues(&self) -> Queues {
        Queues {
            touched: self.dirty.len(),
            acting: self.jobs.values().filter(|job| job.busy || job.visit.is_some()).count(),
            resting: 0,
            scheduled: self.alarms.len(),
        }
    }

    /// This operator leads from now on.
    pub fn lead(&mut self, index: &Index) {
        self.stale = true;
        self.dirty.extend(index.instances().map(|instance| instance.key.clone()));
    }

    /// Another operator leads; it visits now, and what was begun here is forgotten.
    pub fn follow(&mut self) {
        self.follow_calendar();
        self.jobs.clear();
        self.firsts = None;
    }

    pub fn can_read(&mut self, feed: Feed) {
        self.unread.read(&name(feed));
    }

    pub fn cannot_read(&mut self, feed: Feed, why: &str) {
        self.unread.failed(&name(feed), why, self.http.clock().now());
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

    /// Takes in what its tasks tell; what they learned is in the index already.
    pub fn take(&mut self, told: Told) {
        self.follow_calendar();
        let now = self.http.clock().calendar();
        match told {
            Told::Firsts(firsts) => {
                self.reading = false;
                self.firsts = Some(firsts);
            }
            Told::Done(key, uid, done) => {
                for outcome in &done.outcomes {
                    match (outcome, &mut self.firsts) {
                        (Report::FirstKept(first), Some(firsts)) => drop(firsts.insert(uid.clone(), *first)),
                        (Report::FirstForgotten, Some(firsts)) => drop(firsts.remove(&uid)),
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
            Told::Reported(key, uid, outcome) => {
                if let Some(job) = self.jobs.get_mut(&uid) {
                    if !matches!(outcome, Report::Counted(_) | Report::Waits(_)) {
                        job.visit = None;
                    }
                    job.work.record(outcome, now);
                }
                self.dirty.insert(key);
            }
        }
    }

    /// An instance has the name of its machine; so what touches one touches the other.
    pub fn hear(&mut self, touched: &BTreeSet<Subject>) {
        for Subject { kind, key } in touched {
            if matches!(kind, Kind::Instance | Kind::Machine) {
                self.alarms.remove(key);
                self.dirty.insert(key.clone());
            }
        }
    }

    /// Asks the core about everybody who was touched, once everything is known that decisions rest on.
    pub fn look(&mut self, index: &Index, knows: bool, hands: &mut Hands<'_>) {
        // Deadlines are times of day that are written on instances, so all of this goes by the calendar; only leadership is measured.
        self.follow_calendar();
        let now = self.http.clock().calendar();
        self.say_unread(index, now, hands);
        if !knows {
            return;
        }
        if self.firsts.is_none() {
            self.read_firsts(hands);
            return;
        }
        let due: Vec<Key> =
            self.alarms.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.alarms.remove(&key);
            self.dirty.insert(key);
        }
        for key in std::mem::take(&mut self.dirty) {
            self.consider(index, &key, now, hands);
        }
        // Whoever is gone needs nothing any more; a visit ends with its job.
        self.jobs.retain(|uid, job| index.instance(&job.key).is_some_and(|known| known.uid == *uid));
    }

    /// Says on every instance that it matters to what cannot be read, and takes it back.
    fn say_unread(&mut self, index: &Index, now: Timestamp, hands: &mut Hands<'_>) {
        let clock = self.http.clock();
        self.word = self.unread.word(clock.now(), clock.ahead());
        let words = match &self.word {
            Word::Now(words) => Some(words.clone()),
            Word::Nothing | Word::Later(_) => None,
        };
        // Who has nothing of that on it can be passed over while everything can be read.
        let everybody = words.is_some() || self.stale;
        self.stale = words.is_some();
        let keys: Vec<Key> = if everybody {
            index.instances().map(|instance| instance.key.clone()).collect()
        } else {
            self.dirty.iter().cloned().collect()
        };
        for key in keys {
            let Some(instance) = index.instance(&key) else { continue };
            let (uid, idle) = (instance.uid.clone(), Work::default());
            let job = self.jobs.get(&uid);
            if job.is_some_and(|job| job.busy) {
                continue;
            }
            let work = job.map_or(&idle, |job| &job.work);
            let view = View { index, work, limits: &self.settings.limits, first: None };
            let decision = say_unread(&view, &key, words.as_deref(), now);
            if let Some(at) = decision.look_again {
                self.alarms.insert(key.clone(), at);
            }
            if !decision.is_idle() {
                let Decision { actions, events, .. } = decision;
                let wanted = Wanted { instance: instance.into(), actions, events, gone: Vec::new() };
                self.request(wanted, index, hands);
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

    fn request(&mut self, wanted: Wanted, index: &Index, hands: &mut Hands<'_>) {
        let ObjectRef { key, uid, .. } = wanted.instance.clone();
        self.job(&uid, &key).busy = true;
        let (http, config, sender) = (self.http.clone(), index.config.clone(), hands.sender.clone());
        hands.tasks.spawn(async move {
            let done = carry_out(&http, &config, wanted).await;
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Tenants(Told::Done(key, uid, done)));
        });
    }

    fn read_firsts(&mut self, hands: &mut Hands<'_>) {
        if std::mem::replace(&mut self.reading, true) {
            return;
        }
        let (http, sender) = (self.http.clone(), hands.sender.clone());
        hands.tasks.spawn(async move {
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Tenants(Told::Firsts(firsts::read_all(&http).await)));
        });
    }

    /// Those of whom something is kept although they are gone.
    fn take_gone(&mut self, index: &Index) -> Vec<Uid> {
        let there: BTreeSet<&Uid> = index.instances().map(|instance| &instance.uid).collect();
        let Some(firsts) = &mut self.firsts else { return Vec::new() };
        let gone: Vec<Uid> = firsts.keys().filter(|uid| !there.contains(uid)).cloned().collect();
        for uid in &gone {
            firsts.remove(uid);
        }
        gone
    }

    fn consider(&mut self, index: &Index, key: &Key, now: Timestamp, hands: &mut Hands<'_>) {
        let Some(instance) = index.instance(key) else { return };
        let (uid, idle) = (instance.uid.clone(), Work::default());
        let job = self.jobs.get(&uid);
        if job.is_some_and(|job| job.busy) {
            return;
        }
        let work = job.map_or(&idle, |job| &job.work);
        let first = self.firsts.as_ref().and_then(|firsts| firsts.get(&uid).copied());
        let view = View { index, work, limits: &self.settings.limits, first };
        let decision = decide(&view, key, now);
        if let Some(at) = decision.look_again {
            self.alarms.insert(key.clone(), at);
        }
        if decision.is_idle() {
            return;
        }
        tracing::debug!(%key, actions = ?decision.actions, "tenant");
        let instance = instance.clone();
        let keeps =
            decision.actions.iter().any(|action| matches!(action, Action::Own(Own::KeepFirst { .. })));
        let gone = if keeps { self.take_gone(index) } else { Vec::new() };
        let (http, visits, settings) = (self.http.clone(), self.visits.clone(), self.settings.clone());
        let job = self.job(&uid, key);
        let is_work = |action: &Action| matches!(action, Action::Own(own) if own.is_work());
        let (work, actions): (Vec<_>, Vec<_>) = decision.actions.into_iter().partition(is_work);
        // Work is begun here and now, so what comes after it is due as well.
        let events = decision.events.into_iter();
        let events = events.map(|event| Event { after: event.after.saturating_sub(work.len()), ..event });
        let events: Vec<Event> = events.collect();
        for action in work {
            let visit = |member| Visit {
                host: http.clone(),
                visits: visits.clone(),
                settings: settings.clone(),
                member,
                instance: instance.clone(),
            };
            let stop = CancellationToken::new();
            let (sender, key, uid) = (hands.sender.clone(), key.clone(), uid.clone());
            match action {
                Action::Own(Own::Begin { member }) => {
                    job.work.begin(Stage::Draining);
                    let (visit, token) = (visit(member), stop.clone());
                    hands.tasks.spawn(async move {
                        let report = |outcome| {
                            // The loop may have ended meanwhile.
                            let _ = sender.send(Input::Tenants(Told::Reported(
                                key.clone(),
                                uid.clone(),
                                outcome,
                            )));
                        };
                        let end = visit.drain(token, &mut |outcome| report(outcome)).await;
                        report(end);
                    });
                    job.visit = Some(stop.drop_guard());
                }
                Action::Own(Own::Uncordon { member }) => {
                    job.work.begin(Stage::Uncordoning);
                    let visit = visit(member);
                    hands.tasks.spawn(async move {
                        let end = visit.uncordon().await;
                        let _ = sender.send(Input::Tenants(Told::Reported(key, uid, end)));
                    });
                }
                _ => {
                    job.work.begin(Stage::Stopping);
                    job.visit = None;
                }
            }
        }
        if actions.is_empty() && events.is_empty() {
            return;
        }
        if actions.iter().any(|action| matches!(action, Action::Own(Own::Note { .. }))) {
            job.work.noted = Some(now);
        }
        self.request(Wanted { instance: (&instance).into(), actions, events, gone }, index, hands);
    }

    pub fn next_alarm(&self) -> Option<Timestamp> {
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
