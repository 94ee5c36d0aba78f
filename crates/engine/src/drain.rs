//! The one loop of a drain: watch → index → step → act → outcome.
//!
//! One task owns the index and the run. Watch loops and requests run beside it and report through one queue, so decisions are
//! made one after the other on a consistent view. Between events the loop sleeps until the core wants to look again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use evac_api::call::{self, labelled, named, on_node};
use evac_api::wire::{self, List};
use evac_api::{Call, Project};
use evac_clock::Clock;
use evac_core::cluster::fact::Existence;
use evac_core::drain::ownership::lease_key;
use evac_core::drain::run::{End, Left};
use evac_core::drain::step::Event;
use evac_core::machines::Kind;
use evac_core::{DryRun, Fact, Index, Key, Policy, Run, drain::check, step};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::act::{Done, Learned, perform};
use crate::http::{Http, HttpError, parse};
use crate::nodes;
use crate::places::{self, Depth};
use crate::stated::Stated;
use crate::watch::{Feed, Opening, Report, Source, follow};

mod claims;
mod machines;
pub mod service;

#[derive(Debug, Error)]
pub enum DrainError {
    #[error("nodes \"{0}\" not found")]
    NodeNotFound(String),
    #[error("could not read {what}")]
    Read {
        what: &'static str,
        #[source]
        source: HttpError,
    },
    #[error("a decision broke an invariant and was not carried out: {0}")]
    Invariant(String),
}

#[derive(Debug, Clone)]
pub struct DrainRequest {
    pub nodes: Vec<String>,
    pub policy: Policy,
    /// Who drains, in the words that other drainers will read.
    pub owner: String,
    /// Which run of this owner it is, such as `host:process`; without it no lease shows that the drain is alive.
    pub instance: Option<String>,
    /// The command line, for the mark on the node.
    pub options: Vec<String>,
    /// The size of list pages, where 0 asks for everything at once. Without it the server is asked to send each list with its
    /// watch, which is one request instead of several.
    pub page: Option<u32>,
}

enum Input {
    Node(Report<Fact>),
    Pod(String, Report<Fact>),
    Budget(Report<Fact>),
    Claim(Report<Fact>),
    Instance(Report<Fact>),
    Migration(Report<Fact>),
    Done(u64, Box<Done>),
}

/// What has to be known before the first decision.
#[allow(clippy::struct_excessive_bools, reason = "each is one list")]
struct Missing {
    nodes: bool,
    budgets: bool,
    pods: BTreeSet<String>,
    instances: bool,
    migrations: bool,
    claims: bool,
}

impl Missing {
    fn nothing(&self) -> bool {
        !self.nodes
            && !self.budgets
            && self.pods.is_empty()
            && !self.instances
            && !self.migrations
            && !self.claims
    }
}

/// Who is asked about: the nodes of one drain, or any, because more may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Named,
    Any,
}

/// What is only watched once it matters.
#[derive(Default)]
struct Started {
    budgets: bool,
    machines: bool,
    /// Leases may not be watched.
    deaf: bool,
    /// Machines that were asked for.
    asked: BTreeSet<Key>,
}

struct Loop<'a> {
    http: Http,
    clock: Clock,
    request: DrainRequest,
    /// What of the cluster's nodes and instances is looked at.
    scope: Scope,
    index: Index,
    /// The times in leases, as they were read.
    stated: Stated,
    run: Run,
    missing: Missing,
    started: Started,
    /// How many requests were sent, and those without an answer.
    sent: u64,
    open: BTreeSet<u64>,
    tell: &'a mut (dyn FnMut(Timestamp, &Event) + Send),
}

/// Empties the nodes; `tell` hears everything worth telling. When `stop` is cancelled nothing new is started.
pub async fn drain(
    http: Http,
    request: DrainRequest,
    stop: CancellationToken,
    tell: &mut (dyn FnMut(Timestamp, &Event) + Send),
) -> Result<Vec<(String, End)>, DrainError> {
    let mut run = Run::new(request.owner.clone(), request.options.clone(), request.nodes.iter().cloned());
    if let Some(instance) = &request.instance {
        run = run.claiming(instance.clone());
    }
    let missing = Missing {
        nodes: true,
        budgets: false,
        pods: request.nodes.iter().cloned().collect(),
        instances: false,
        migrations: false,
        claims: false,
    };
    let started = Started::default();
    let clock = http.clock();
    let scope = Scope::Named;
    let (sent, open, index) = (0, BTreeSet::new(), Index::new());
    Loop {
        http,
        clock,
        request,
        scope,
        index,
        stated: Stated::new(clock),
        run,
        missing,
        started,
        sent,
        open,
        tell,
    }
    .run(stop)
    .await
}

impl Loop<'_> {
    async fn run(mut self, stop: CancellationToken) -> Result<Vec<(String, End)>, DrainError> {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        self.start_watches(&mut tasks, &sender);
        self.read_leases().await?;
        // What is on the nodes decides what else has to be known.
        loop {
            while !self.missing.nothing() {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(Vec::new()),
                    input = inbox.recv() => if let Some(input) = input { self.take(input)? },
                }
            }
            if !self.look_further(&mut tasks, &sender).await? {
                break;
            }
        }
        for node in &self.request.nodes {
            if self.index.node(node).is_none() {
                return Err(DrainError::NodeNotFound(node.clone()));
            }
        }
        self.read_claims().await;
        self.read_daemon_sets().await;
        self.look_at_places().await;
        let result = self.work(&stop, &mut tasks, &sender, &mut inbox).await;
        if result.is_err() {
            self.tell_what_is_left(&mut inbox).await;
        }
        result.map(|()| self.ends())
    }

    async fn work(
        &mut self,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
        sender: &mpsc::UnboundedSender<Input>,
        inbox: &mut mpsc::UnboundedReceiver<Input>,
    ) -> Result<(), DrainError> {
        loop {
            self.look_further(tasks, sender).await?;
            let look_again = self.decide(tasks, sender)?;
            if self.run.is_over() {
                return Ok(());
            }
            let stopping = self.run.is_stopping();
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopping => self.run.stop(),
                input = inbox.recv() => if let Some(input) = input {
                    self.take(input)?;
                    // Everything that has arrived is one view; deciding in between would only repeat work.
                    while let Ok(input) = inbox.try_recv() {
                        self.take(input)?;
                    }
                },
                () = sleep_until(self.clock, look_again) => {}
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    /// A drain that fails leaves its nodes as they are. What was asked for is waited for, so that nothing lands afterwards, and then each node that may
    /// have something of ours on it is read once more.
    async fn tell_what_is_left(&mut self, inbox: &mut mpsc::UnboundedReceiver<Input>) {
        if self.request.policy.dry_run != DryRun::None {
            return;
        }
        // Each of them has a time limit of its own.
        while !self.open.is_empty() {
            match inbox.recv().await {
                Some(Input::Done(number, _)) => drop(self.open.remove(&number)),
                Some(_) => {}
                None => break,
            }
        }
        let touched: Vec<String> = self.run.touched().map(ToOwned::to_owned).collect();
        for node in touched {
            let left = match self.http.read_patiently::<wire::Node>(&Call::get(call::node_path(&node))).await
            {
                Ok(found) => Left::on(Some(&found.into()), &self.request.owner),
                Err(error) if error.is_not_found() => Left::Nothing,
                Err(error) => Left::Unknown { why: error.to_string() },
            };
            (self.tell)(self.clock.now(), &Event::Leaves { node, left });
        }
    }

    fn start_watches(&mut self, tasks: &mut JoinSet<()>, sender: &mpsc::UnboundedSender<Input>) {
        let one_node = match self.request.nodes.as_slice() {
            [node] => named(node),
            _ => String::new(),
        };
        self.follow::<wire::Node>(tasks, sender, "/api/v1/nodes", one_node, Input::Node);
        for node in &self.request.nodes {
            self.watch_pods(tasks, sender, node);
        }
        self.watch_claims(tasks, sender);
    }

    fn watch_pods(
        &self,
        tasks: &mut JoinSet<()>,
        sender: &mpsc::UnboundedSender<Input>,
        node: &str,
    ) -> AbortHandle {
        let mut query = on_node(node);
        // A rehearsal proves nothing about the node, so pods that are not meant need not be read; kubectl asks the same.
        let policy = &self.request.policy;
        if policy.dry_run == DryRun::Client && !policy.pod_selector.is_everything() {
            let _ = write!(query, "&{}", labelled(&policy.pod_selector.to_string()));
        }
        let name = node.to_owned();
        self.follow::<wire::Pod>(tasks, sender, "/api/v1/pods", query, move |report| {
            Input::Pod(name.clone(), report)
        })
    }

    fn source(&self, path: &'static str, query: String) -> (Source, Opening) {
        match self.request.page {
            Some(page) => (Source { path: path.into(), query, page }, Opening::List),
            None if self.request.policy.dry_run == DryRun::Client => {
                (Source { path: path.into(), query, page: PAGE }, Opening::List)
            }
            None => (Source { path: path.into(), query, page: PAGE }, Opening::Stream),
        }
    }

    fn follow<W>(
        &self,
        tasks: &mut JoinSet<()>,
        sender: &mpsc::UnboundedSender<Input>,
        path: &'static str,
        query: String,
        wrap: impl Fn(Report<Fact>) -> Input + Send + Sync + 'static,
    ) -> AbortHandle
    where
        W: Project + DeserializeOwned + Clone + Send + Sync + 'static,
    {
        let (source, opening) = self.source(path, query);
        let feed = Feed::<W, Fact>::facts(source).opened(opening);
        tasks.spawn(follow(self.http.clone(), feed, sender.clone(), wrap))
    }

    /// Puts one report into the index and, if it is an answer, into the run.
    fn take(&mut self, input: Input) -> Result<(), DrainError> {
        match input {
            Input::Node(Report::Listed(nodes, at)) => {
                let wanted = nodes.into_iter().filter(|node| self.is_ours(node)).collect();
                self.index.reset(Kind::Node, wanted, &at);
                self.missing.nodes = false;
            }
            Input::Node(Report::Failed { error, final_ }) => {
                tracing::debug!(%error, "could not list nodes");
                if final_ || self.missing.nodes {
                    return Err(DrainError::Read { what: "nodes", source: error });
                }
            }
            Input::Node(report) => {
                if let Some(fact) = report.into_fact()
                    && self.is_ours(&fact)
                {
                    self.index.apply(fact);
                }
            }
            Input::Pod(node, Report::Listed(pods, at)) => {
                self.index.reset_on(&node, pods, &at);
                self.missing.pods.remove(&node);
            }
            Input::Pod(node, Report::Failed { error, final_ }) => {
                tracing::debug!(%error, "could not list pods");
                if final_ || self.missing.pods.contains(&node) {
                    return Err(DrainError::Read { what: "pods", source: error });
                }
            }
            Input::Budget(Report::Listed(budgets, at)) => {
                self.index.reset(Kind::Budget, budgets, &at);
                self.missing.budgets = false;
            }
            Input::Budget(Report::Failed { error, final_ }) => {
                // Without sight of budgets the server still protects them; we only have to ask more often.
                tracing::debug!(%error, "could not list disruption budgets");
                if final_ {
                    self.missing.budgets = false;
                }
            }
            Input::Pod(_, report) | Input::Budget(report) => {
                if let Some(fact) = report.into_fact() {
                    self.index.apply(fact);
                }
            }
            Input::Claim(report) => self.take_claims(report),
            Input::Instance(report) => self.take_instances(report)?,
            Input::Migration(report) => self.take_migrations(report)?,
            Input::Done(number, done) => {
                self.open.remove(&number);
                let Done { action, outcome, learned } = *done;
                for learned in learned {
                    match learned {
                        Learned::Fact(fact) => self.learn(fact),
                        Learned::Pods(node, pods, at) => drop(self.index.reset_pods(&node, pods, &at)),
                    }
                }
                let now = self.clock.now();
                self.announce_answer(&action, &outcome, now);
                self.run.record(&self.index, &action, outcome, now);
            }
        }
        Ok(())
    }

    /// Puts a fact into the index that may have times to be compared with ours.
    fn learn(&mut self, fact: Fact) {
        let fact = self.stated.fact(fact);
        self.index.apply(fact);
    }

    fn is_ours(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Node(node) => self.concerns_us(&node.name),
            _ => true,
        }
    }

    fn concerns_us(&self, node: &String) -> bool {
        self.scope == Scope::Any || self.request.nodes.contains(node)
    }

    fn announce_answer(&mut self, action: &evac_core::Action, outcome: &evac_core::Outcome, now: Timestamp) {
        use evac_core::{Action, Outcome};
        match (action, outcome) {
            (Action::Cordon { node, .. }, Outcome::Done) => {
                (self.tell)(now, &Event::Cordoned { node: node.clone() });
            }
            (
                Action::Evict { pod, dry_run: true, .. } | Action::Delete { pod, dry_run: true, .. },
                outcome,
            ) => {
                let node = self.index.pod(pod).map(|pod| pod.node_name().to_owned()).unwrap_or_default();
                let event = Event::Rehearsed { pod: pod.clone(), node, outcome: outcome.clone() };
                (self.tell)(now, &event);
            }
            _ => {}
        }
    }

    /// Steps until nothing more is to be done at this instant, and starts what the core asks for.
    fn decide(
        &mut self,
        tasks: &mut JoinSet<()>,
        sender: &mpsc::UnboundedSender<Input>,
    ) -> Result<Option<Timestamp>, DrainError> {
        let now = self.clock.now();
        let next = step(&self.index, &self.request.policy, &mut self.run, now);
        for event in &next.events {
            (self.tell)(now, event);
        }
        let violations = check::check(&self.index, &next.actions);
        if let Some(violation) = violations.first() {
            return Err(DrainError::Invariant(format!("{violation:?}")));
        }
        for action in next.actions {
            let http = self.http.clone();
            let sender = sender.clone();
            self.sent += 1;
            let number = self.sent;
            self.open.insert(number);
            let action = self.stated.written(action);
            tasks.spawn(async move {
                let done = perform(&http, action).await;
                // The loop may have ended meanwhile; then nobody needs the answer.
                let _ = sender.send(Input::Done(number, Box::new(done)));
            });
        }
        Ok(next.look_again)
    }

    fn ends(&self) -> Vec<(String, End)> {
        self.run.nodes.iter().filter_map(|node| Some((node.name.clone(), node.end()?.clone()))).collect()
    }

    /// Remediation operators claim nodes by leases. Clusters without them answer 404, and where looking is not allowed nobody is
    /// seen; but a server that fails has not said that the node is free.
    async fn read_leases(&mut self) -> Result<(), DrainError> {
        for node in self.request.nodes.clone() {
            let key = lease_key(&node);
            match self.http.read_patiently::<wire::Lease>(&Call::get(call::lease_path(&key))).await {
                Ok(lease) => self.learn(Fact::Lease(Box::new(lease.into()))),
                Err(source) if source.is_transient() => {
                    return Err(DrainError::Read { what: "leases", source });
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// A trial foretells who finds a place elsewhere. A drain wants to know who never will, and leaves the rest to the scheduler. What cannot be read is said to be
    /// unknown.
    async fn look_at_places(&mut self) {
        let DrainRequest { policy, nodes, .. } = &self.request;
        let depth = match policy.dry_run {
            DryRun::None => Depth::Nodes,
            DryRun::Client | DryRun::Server => Depth::Room,
        };
        if let Err(error) = places::look(&self.http, &mut self.index, policy, nodes, depth).await {
            tracing::debug!(%error, "could not look at other nodes");
        }
    }

    /// Finds out which DaemonSets exist: a few by name, many with one list.
    async fn read_daemon_sets(&mut self) {
        let wanted: BTreeSet<Key> = self
            .request
            .nodes
            .iter()
            .flat_map(|node| self.index.pods_on(node))
            .filter(|pod| !pod.phase.is_finished())
            .filter_map(evac_core::Pod::daemon_set)
            .filter(|key| self.index.daemon_set(key).is_none())
            .collect();
        if wanted.len() > DAEMON_SETS_BY_NAME
            && let Ok(found) = Self::list_daemon_sets(&self.http).await
        {
            for key in wanted {
                let existence = if found.contains(&key) {
                    Existence::Found
                } else {
                    Existence::Gone(format!("daemonsets.apps \"{}\" not found", key.name))
                };
                self.index.apply(Fact::DaemonSet(key, existence));
            }
            return;
        }
        for key in wanted {
            let existence = nodes::daemon_set(&self.http, &key).await;
            self.index.apply(Fact::DaemonSet(key, existence));
        }
    }

    async fn list_daemon_sets(http: &Http) -> Result<BTreeSet<Key>, HttpError> {
        let names_only = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        let answer = http.send_accepting(&Call::get("/apis/apps/v1/daemonsets"), names_only).await?;
        let list: List<wire::Named> = parse(&answer)?;
        Ok(list.items.into_iter().map(|item| Key::new(item.metadata.namespace, item.metadata.name)).collect())
    }
}

/// The size of list pages where lists cannot be streamed.
const PAGE: u32 = 500;
/// Up to this many DaemonSets are read one by one.
const DAEMON_SETS_BY_NAME: usize = 1;

async fn sleep_until(clock: Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => {
            clock.sleep_until(at).await;
            // Calendar time has a coarser grain than timers; without this a wake-up could come a hair too early.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        None => std::future::pending().await,
    }
}
