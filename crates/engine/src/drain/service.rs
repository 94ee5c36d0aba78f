//! A drain without an end: nodes are given to it and taken from it while it runs, and it keeps them empty meanwhile.
//!
//! ```text
//!   begin ─▶ its pods are listed ─▶ joins the run ─▶ surveys …  ─▶ end: forgotten at once
//! ```
//!
//! All nodes are in one run, so that budgets and limits are shared out once. When the cluster cannot be read, or something happens that must not,
//! the service starts anew with the same nodes: everything it needs is written on them. Requests under way are never cut off: one whose answer
//! nobody hears may still be carried out, after the node was given back. They are waited for, and with them whoever waits for an end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_api::wire;
use evac_clock::Clock;
use evac_core::drain::ownership::Attire;
use evac_core::drain::step::Event;
use evac_core::drain::survey::{Survey, survey};
use evac_core::{Index, Policy, Run};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{DrainError, DrainRequest, Input, Loop, Missing, Scope, Started, sleep_until};
use crate::http::Http;
use crate::stated::Stated;

/// How long to wait before starting anew.
const ANEW: Duration = Duration::from_secs(2);

/// One node to be emptied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub attire: Attire,
    /// Virtual machines on it may be shut down although they would not come back.
    pub may_shut_down: bool,
}

enum Order {
    Begin(String, Wanted),
    End(String, oneshot::Sender<()>),
}

/// What the service says.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// Something changed about a node.
    Survey(Survey),
    Event(Timestamp, Event),
    /// It could not go on and begins anew; the sentence says why.
    Interrupted(String),
}

/// A running service. Dropping it ends it: what was asked for and not answered stays open.
pub struct Service {
    orders: mpsc::UnboundedSender<Order>,
    stop: CancellationToken,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Service {
    pub fn start(http: Http, owner: &str, policy: Policy, news: mpsc::UnboundedSender<News>) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let request = DrainRequest {
            nodes: Vec::new(),
            policy: Policy { standing: true, ..policy },
            owner: owner.to_owned(),
            instance: None,
            options: Vec::new(),
            page: None,
        };
        tokio::spawn(serve(http, request, inbox, news, stop.clone()));
        Self { orders, stop }
    }

    /// Empties the node and keeps it empty; one that is known already begins anew.
    pub fn begin(&self, node: &str, wanted: Wanted) {
        // A service that ended has been dropped by its owner.
        let _ = self.orders.send(Order::Begin(node.to_owned(), wanted));
    }

    /// Starts nothing more on the node, and returns when every request about it was answered. What is written on it stays.
    pub async fn end(&self, node: &str) {
        let (done, over) = oneshot::channel();
        let _ = self.orders.send(Order::End(node.to_owned(), done));
        let _ = over.await;
    }
}

async fn serve(
    http: Http,
    request: DrainRequest,
    mut orders: mpsc::UnboundedReceiver<Order>,
    news: mpsc::UnboundedSender<News>,
    stop: CancellationToken,
) {
    let mut wanted = BTreeMap::new();
    let mut requests = JoinSet::new();
    loop {
        let events = news.clone();
        let mut tell = move |at: Timestamp, event: &Event| {
            let _ = events.send(News::Event(at, event.clone()));
        };
        let engine = Loop {
            http: http.clone(),
            clock: http.clock(),
            run: Run::new(request.owner.clone(), Vec::new(), []),
            request: request.clone(),
            scope: Scope::Any,
            index: Index::new(),
            stated: Stated::new(http.clock()),
            missing: Missing {
                nodes: true,
                budgets: false,
                pods: BTreeSet::new(),
                instances: false,
                migrations: false,
                claims: false,
            },
            started: Started::default(),
            sent: 0,
            open: BTreeSet::new(),
            tell: &mut tell,
        };
        let mut shift = Shift {
            engine,
            requests,
            watches: BTreeMap::new(),
            joining: BTreeSet::new(),
            told: BTreeMap::new(),
            ending: Vec::new(),
        };
        let result = shift.work(&mut wanted, &mut orders, &news, &stop).await;
        let ending = shift.ending;
        requests = shift.requests;
        if let Err(error) = &result {
            let why = sentence(error);
            tracing::warn!(why, "the drain of nodes under maintenance begins anew");
            let _ = news.send(News::Interrupted(why));
        }
        // Each of them has a time limit of its own.
        while requests.join_next().await.is_some() {}
        for (_, done) in ending {
            let _ = done.send(());
        }
        if result.is_ok() || !pause(http.clock(), &mut wanted, &mut orders, &stop).await {
            return;
        }
    }
}

/// The failure with its cause, which says why.
fn sentence(error: &DrainError) -> String {
    match error {
        DrainError::Read { what, source } => format!("could not read {what}: {source}"),
        other => other.to_string(),
    }
}

/// A moment before the next start, in which nothing is under way: nodes may come and go. False when there is no next start.
async fn pause(
    clock: Clock,
    wanted: &mut BTreeMap<String, Wanted>,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    stop: &CancellationToken,
) -> bool {
    let mut over = std::pin::pin!(clock.sleep(ANEW));
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return false,
            order = orders.recv() => match order {
                None => return false,
                Some(Order::Begin(node, how)) => drop(wanted.insert(node, how)),
                Some(Order::End(node, done)) => {
                    wanted.remove(&node);
                    let _ = done.send(());
                }
            },
            () = &mut over => return true,
        }
    }
}

/// The service from one start to the next.
struct Shift<'a> {
    engine: Loop<'a>,
    /// What was sent and not answered yet, also by the shift before.
    requests: JoinSet<()>,
    watches: BTreeMap<String, AbortHandle>,
    /// Nodes of which not everything is known yet.
    joining: BTreeSet<String>,
    told: BTreeMap<String, Survey>,
    /// Those who wait for the answers to all requests up to a number.
    ending: Vec<(u64, oneshot::Sender<()>)>,
}

impl Shift<'_> {
    async fn work(
        &mut self,
        wanted: &mut BTreeMap<String, Wanted>,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        news: &mpsc::UnboundedSender<News>,
        stop: &CancellationToken,
    ) -> Result<(), DrainError> {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        self.engine.follow::<wire::Node>(&mut tasks, &sender, "/api/v1/nodes", String::new(), Input::Node);
        for node in wanted.keys() {
            self.watch(node, &mut tasks, &sender);
        }
        self.allow(wanted);
        loop {
            self.engine.look_further(&mut tasks, &sender).await?;
            let mut look_again = None;
            if self.sees_enough() {
                self.join(wanted).await;
                look_again = self.engine.decide(&mut self.requests, &sender)?;
                self.report(news);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                order = orders.recv() => {
                    let Some(order) = order else { return Ok(()) };
                    self.obey(order, wanted, &mut tasks, &sender);
                    // Nodes that come together are cordoned together.
                    while let Ok(order) = orders.try_recv() {
                        self.obey(order, wanted, &mut tasks, &sender);
                    }
                    self.allow(wanted);
                }
                input = inbox.recv() => if let Some(input) = input {
                    self.take(input)?;
                    while let Ok(input) = inbox.try_recv() {
                        self.take(input)?;
                    }
                },
                () = sleep_until(self.engine.clock, look_again) => {}
            }
            self.let_go();
            while tasks.try_join_next().is_some() {}
            while self.requests.try_join_next().is_some() {}
        }
    }

    /// What all decisions need; pods of nodes that are still joining concern nobody else.
    fn sees_enough(&self) -> bool {
        let missing = &self.engine.missing;
        !missing.nodes && !missing.budgets && !missing.instances && !missing.migrations
    }

    fn watch(&mut self, node: &str, tasks: &mut JoinSet<()>, sender: &mpsc::UnboundedSender<Input>) {
        if self.watches.contains_key(node) {
            return;
        }
        let handle = self.engine.watch_pods(tasks, sender, node);
        self.watches.insert(node.to_owned(), handle);
        self.engine.missing.pods.insert(node.to_owned());
        self.engine.request.nodes.push(node.to_owned());
        self.joining.insert(node.to_owned());
    }

    fn obey(
        &mut self,
        order: Order,
        wanted: &mut BTreeMap<String, Wanted>,
        tasks: &mut JoinSet<()>,
        sender: &mpsc::UnboundedSender<Input>,
    ) {
        match order {
            Order::Begin(node, how) => {
                self.watch(&node, tasks, sender);
                self.joining.insert(node.clone());
                self.told.remove(&node);
                wanted.insert(node, how);
            }
            Order::End(node, done) => {
                if let Some(watch) = self.watches.remove(&node) {
                    watch.abort();
                }
                wanted.remove(&node);
                self.joining.remove(&node);
                self.told.remove(&node);
                self.engine.missing.pods.remove(&node);
                self.engine.request.nodes.retain(|known| *known != node);
                self.engine.run.forget(&node);
                self.engine.index.forget_pods_on(&node);
                self.ending.push((self.engine.sent, done));
            }
        }
    }

    fn let_go(&mut self) {
        let oldest = self.engine.open.first().copied().unwrap_or(u64::MAX);
        for (number, done) in std::mem::take(&mut self.ending) {
            if oldest > number {
                let _ = done.send(());
            } else {
                self.ending.push((number, done));
            }
        }
    }

    /// Reports of a watch that was ended may still be on the way.
    fn take(&mut self, input: Input) -> Result<(), DrainError> {
        match &input {
            Input::Pod(node, _) if !self.watches.contains_key(node) => Ok(()),
            _ => self.engine.take(input),
        }
    }

    fn allow(&mut self, wanted: &BTreeMap<String, Wanted>) {
        let may = wanted.iter().filter(|(_, how)| how.may_shut_down);
        self.engine.request.policy.shutdown_on = may.map(|(node, _)| node.clone()).collect();
    }

    /// Puts nodes into the run of which everything is known now.
    async fn join(&mut self, wanted: &BTreeMap<String, Wanted>) {
        let missing = &self.engine.missing.pods;
        let ready: Vec<String> =
            self.joining.iter().filter(|node| !missing.contains(*node)).cloned().collect();
        if ready.is_empty() {
            return;
        }
        self.engine.read_daemon_sets().await;
        for node in ready {
            self.joining.remove(&node);
            if let Some(how) = wanted.get(&node) {
                self.engine.run.admit(node, how.attire.clone());
            }
        }
    }

    fn report(&mut self, news: &mpsc::UnboundedSender<News>) {
        let Loop { index, run, request, clock, .. } = &self.engine;
        let now = clock.now();
        for node in &request.nodes {
            let Some(survey) = survey(index, &request.policy, run, node, now) else { continue };
            if self.told.get(node) != Some(&survey) {
                let _ = news.send(News::Survey(survey.clone()));
                self.told.insert(node.clone(), survey);
            }
        }
    }
}
