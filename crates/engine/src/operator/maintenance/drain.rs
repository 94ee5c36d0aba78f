//! A drain without an end: nodes are given to it and taken from it while it runs, and it keeps them empty meanwhile.
//!
//! ```text
//!   begin ─▶ its pods are listed ─▶ joins the run ─▶ progress … ─▶ end: forgotten at once
//!                  ▲                     │
//!                  └── cannot be read ◀──┘
//! ```
//!
//! All nodes are in one run, so that budgets and limits are shared out once. When the pods of a node cannot be read, or something happens that
//! must not, it begins anew with what is written on the node. Requests under way are never cut off: one whose answer nobody hears may
//! still be carried out, after the node was given back. They are waited for, and with them whoever waits for an end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_core::drain::ownership::NodeChanges;
use evac_core::drain::progress::{DrainProgress, progress};
use evac_core::machines::{Kind, Subject};
use evac_core::maintenance::MaintenanceFact;
use evac_core::{Fact, Index, Pod, Policy, Run, VmVisibility};
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::Told;
use crate::act;
use crate::drain::DrainRequest;
use crate::drain::drainer::{Drainer, read_daemon_sets};
use crate::guests;
use crate::http::Http;
use crate::operator::feeds::{Feed, Feeds, Input, Sender, WatchStates};

/// How long to wait before beginning anew after a decision that must not be.
const ANEW: Duration = Duration::from_secs(2);

/// One node to be emptied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::operator) struct Wanted {
    pub changes: NodeChanges,
    /// Virtual machines on it may be shut down although they would not come back.
    pub may_shut_down: bool,
}

/// What the role's actions ask of its drain.
pub(in crate::operator) enum Order {
    /// Empties the node and keeps it empty; one that is known already begins anew.
    Begin(String, Wanted),
    /// Starts nothing more on the node, and answers when every request about it was answered. What is written on it stays.
    End(String, oneshot::Sender<()>),
}

pub(super) struct Drain {
    http: Http,
    /// Which drain of this process it is: what an earlier one still hears is not about this one.
    term: u64,
    drainer: Drainer,
    wanted: BTreeMap<String, Wanted>,
    watches: BTreeMap<String, AbortHandle>,
    /// Nodes whose pods are not known.
    unlisted: BTreeSet<String>,
    /// Nodes that are not in the run yet, each with the last request that has to be answered before.
    joining: BTreeMap<String, u64>,
    told: BTreeMap<String, DrainProgress>,
    /// Those who wait for the answers to all requests up to a number.
    ending: Vec<(u64, oneshot::Sender<()>)>,
    /// What is being read and has to be known before the next decision.
    reading: usize,
    rests_until: Option<Timestamp>,
    alarm: Option<Timestamp>,
}

impl Drain {
    pub fn new(http: Http, term: u64, owner: &str, policy: Policy) -> Self {
        let request = DrainRequest {
            nodes: Vec::new(),
            policy: Policy { keep_empty: true, ..policy },
            owner: owner.to_owned(),
            instance: None,
            options: Vec::new(),
            page: None,
        };
        let run = Run::new(owner.to_owned(), Vec::new(), []);
        Self {
            drainer: Drainer::new(http.clone(), request, run),
            http,
            term,
            wanted: BTreeMap::new(),
            watches: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            joining: BTreeMap::new(),
            told: BTreeMap::new(),
            ending: Vec::new(),
            reading: 0,
            rests_until: None,
            alarm: None,
        }
    }

    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.alarm
    }

    pub fn watches(&self, node: &str) -> bool {
        self.watches.contains_key(node)
    }

    pub fn obey(&mut self, index: &mut Index, order: Order, feeds: &mut Feeds<'_>) {
        match order {
            Order::Begin(node, how) => {
                if !self.watches.contains_key(&node) {
                    self.watches.insert(node.clone(), feeds.pods_on(&node));
                    self.unlisted.insert(node.clone());
                    self.drainer.request.nodes.push(node.clone());
                }
                self.joining.insert(node.clone(), 0);
                self.told.remove(&node);
                self.wanted.insert(node, how);
            }
            Order::End(node, done) => {
                if let Some(watch) = self.watches.remove(&node) {
                    watch.abort();
                }
                self.wanted.remove(&node);
                self.joining.remove(&node);
                self.told.remove(&node);
                self.unlisted.remove(&node);
                self.drainer.request.nodes.retain(|known| *known != node);
                self.drainer.run.forget(&node);
                forget_pods(index, &node, feeds.watches);
                self.ending.push((self.drainer.sent(), done));
            }
        }
        let may = self.wanted.iter().filter(|(_, how)| how.may_shut_down);
        self.drainer.request.policy.shutdown_on = may.map(|(node, _)| node.clone()).collect();
        self.let_go();
    }

    fn let_go(&mut self) {
        for (number, done) in std::mem::take(&mut self.ending) {
            if self.drainer.is_answered(number) {
                // Whoever waited may have ended.
                let _ = done.send(());
            } else {
                self.ending.push((number, done));
            }
        }
    }

    /// This operator did not lead for a while: what it was emptying may be another's by now.
    pub fn give_up(&mut self, index: &mut Index, watches: &WatchStates) {
        for (node, watch) in std::mem::take(&mut self.watches) {
            watch.abort();
            forget_pods(index, &node, watches);
        }
    }

    /// A request was answered.
    pub fn answered(&mut self, index: &mut Index, answer: Answer) -> BTreeSet<Subject> {
        let mut tell = |_: Timestamp, event: &_| super::log(event);
        let Answer { term, number, done } = answer;
        if term != self.term {
            return learned(index, *done);
        }
        let mut done = *done;
        // Pods of a node that was given back are not followed any more.
        done.learned.retain(|learned| match learned {
            act::Learned::Pods(node, ..) => self.watches.contains_key(node),
            act::Learned::Fact(_) => true,
        });
        let touched = self.drainer.answered(index, number, done, &mut tell);
        self.let_go();
        touched
    }

    /// What was read for this drain is in the index now.
    pub fn has_read(&mut self, term: u64) {
        if term == self.term {
            self.reading = self.reading.saturating_sub(1);
        }
    }

    pub fn pods_listed(&mut self, node: &str) {
        self.unlisted.remove(node);
    }

    /// The pods of a node cannot be read. Where it stood is not where it stands.
    pub fn pods_unread(
        &mut self,
        node: &str,
        why: &str,
        lasting: bool,
        now: Timestamp,
    ) -> Option<MaintenanceFact> {
        if !lasting && !self.unlisted.contains(node) {
            return None;
        }
        self.unlisted.insert(node.to_owned());
        self.joining.insert(node.to_owned(), self.drainer.sent());
        self.told.remove(node);
        self.drainer.run.forget(node);
        Some(MaintenanceFact::Blind(node.to_owned(), format!("could not read pods: {why}"), now))
    }

    /// A list cannot be read that decisions wait for.
    pub fn list_unread(
        &mut self,
        index: &Index,
        feed: Feed,
        why: &str,
        now: Timestamp,
    ) -> Vec<MaintenanceFact> {
        let what = match feed {
            Feed::Of(Kind::Instance) => "virtual machine instances",
            Feed::Of(Kind::Migration) => "migrations",
            _ => return Vec::new(),
        };
        self.guests_unread(index, &format!("could not read {what}: {why}"), now)
    }

    /// Something about guests cannot be read that decisions wait for.
    pub fn guests_unread(&mut self, index: &Index, why: &str, now: Timestamp) -> Vec<MaintenanceFact> {
        let waits = *index.vm_visibility() == VmVisibility::NotYetRead && self.drainer.has_guests(index);
        if waits { self.blind(why, now) } else { Vec::new() }
    }

    fn blind(&mut self, why: &str, now: Timestamp) -> Vec<MaintenanceFact> {
        self.told.clear();
        self.wanted.keys().map(|node| MaintenanceFact::Blind(node.clone(), why.to_owned(), now)).collect()
    }

    /// Decides what to do now, if everything is known that this rests on, and says where each node stands.
    pub fn look(&mut self, index: &Index, feeds: &mut Feeds<'_>) -> Vec<MaintenanceFact> {
        let now = self.http.clock().now();
        self.alarm = None;
        if self.wanted.is_empty() && self.drainer.run.nodes.is_empty() {
            return Vec::new();
        }
        if let Some(until) = self.rests_until.filter(|until| *until > now) {
            self.alarm = Some(until);
            return Vec::new();
        }
        if !self.sees_enough(index, feeds) {
            return Vec::new();
        }
        self.join(index);
        let (sender, term) = (feeds.sender.clone(), self.term);
        let mut tell = |_: Timestamp, event: &_| super::log(event);
        let decided = self.drainer.decide(index, &mut tell, |number, sending| {
            let sender = sender.clone();
            // Never cut off, also when the loop ends.
            tokio::spawn(async move {
                let done = Box::new(sending.carry_out().await);
                let _ = sender.send(Input::Maintenance(Told::Answer(Answer { term, number, done })));
            });
        });
        match decided {
            Ok(look_again) => self.alarm = look_again,
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(why, "the drain of nodes under maintenance begins anew");
                let sent = self.drainer.sent();
                for node in self.wanted.keys() {
                    self.drainer.run.forget(node);
                    self.joining.insert(node.clone(), sent);
                }
                self.rests_until = now.checked_add(ANEW).ok();
                self.alarm = self.rests_until;
                return self.blind(&why, now);
            }
        }
        self.report(index, now)
    }

    /// Whether everything is known that all decisions need, and has the rest followed or read. Pods of nodes that are still joining concern only them.
    fn sees_enough(&mut self, index: &Index, feeds: &mut Feeds<'_>) -> bool {
        let mut needed = Vec::new();
        let has_guests = self.drainer.has_guests(index);
        if has_guests {
            needed.extend([Feed::Of(Kind::Instance), Feed::Of(Kind::Migration)]);
        }
        if self.drainer.needs_budgets(index) {
            needed.push(Feed::Of(Kind::Budget));
        }
        for feed in &needed {
            feeds.follow_once(*feed);
        }
        if !feeds.watches.contains(Feed::Of(Kind::Machine)) {
            let machines = self.drainer.machines_to_read(index);
            if !machines.is_empty() {
                let http = self.http.clone();
                self.read(feeds.sender, async move { guests::read_machines(&http, &machines).await });
            }
        }
        let ready = self.joining.keys().any(|node| !self.unlisted.contains(node));
        let daemon_sets = if ready { self.drainer.daemon_sets_to_read(index) } else { BTreeSet::new() };
        if self.reading == 0 && !daemon_sets.is_empty() {
            let http = self.http.clone();
            self.read(feeds.sender, async move { read_daemon_sets(&http, daemon_sets).await });
        }
        // Without sight of budgets the server still protects them; a drain only has to ask more often.
        let settled = |kind| feeds.watches.is_settled(Feed::Of(kind));
        let knows_budgets = !needed.contains(&Feed::Of(Kind::Budget)) || settled(Kind::Budget);
        let knows_machines =
            !has_guests || *index.vm_visibility() == VmVisibility::NotInstalled || settled(Kind::Machine);
        self.reading == 0
            && knows_budgets
            && knows_machines
            && (!has_guests || *index.vm_visibility() != VmVisibility::NotYetRead)
    }

    fn read(&mut self, sender: &Sender, reading: impl Future<Output = Vec<Fact>> + Send + 'static) {
        self.reading += 1;
        let (sender, term) = (sender.clone(), self.term);
        tokio::spawn(async move {
            let facts = reading.await;
            // The loop may have ended meanwhile.
            let _ = sender.send(Input::Maintenance(Told::Read(term, facts)));
        });
    }

    /// Puts nodes into the run of which everything is known now.
    fn join(&mut self, index: &Index) {
        let unknown = |node: &str| {
            let pods = index.pods_on(node).filter(|pod| !pod.phase.is_finished());
            pods.filter_map(Pod::daemon_set).any(|key| index.daemon_set(&key).is_none())
        };
        let ready: Vec<String> = self
            .joining
            .iter()
            .filter(|(node, number)| !self.unlisted.contains(*node) && self.drainer.is_answered(**number))
            .map(|(node, _)| node.clone())
            .filter(|node| !unknown(node))
            .collect();
        for node in ready {
            self.joining.remove(&node);
            if let Some(how) = self.wanted.get(&node) {
                self.drainer.run.admit(node, how.changes.clone());
            }
        }
    }

    fn report(&mut self, index: &Index, now: Timestamp) -> Vec<MaintenanceFact> {
        let Drainer { request, run, .. } = &self.drainer;
        let mut news = Vec::new();
        for node in &request.nodes {
            let Some(progress) = progress(index, &request.policy, run, node, now) else { continue };
            if self.told.get(node) != Some(&progress) {
                news.push(MaintenanceFact::DrainProgress(progress.clone()));
                self.told.insert(node.clone(), progress);
            }
        }
        news
    }
}

/// The pods of a node are not followed any more, but for those that run guests where a role follows them on every node.
fn forget_pods(index: &mut Index, node: &str, watches: &WatchStates) {
    let follows_launchers = watches.contains(Feed::Of(Kind::Pod));
    index.forget_pods_on(node, |pod| follows_launchers && pod.launcher().is_some());
}

/// What became of a request of a drain.
pub(in crate::operator) struct Answer {
    term: u64,
    number: u64,
    done: Box<act::Done>,
}

/// What an answer to a drain of the past still tells about the cluster.
fn learned(index: &mut Index, done: act::Done) -> BTreeSet<Subject> {
    let mut touched = BTreeSet::new();
    for learned in done.learned {
        if let act::Learned::Fact(fact @ (Fact::Node(_) | Fact::NodeAbsent(_))) = learned {
            touched.extend(index.apply(fact));
        }
    }
    touched
}
