//! The one loop of a drain: watch → index → step → act → outcome.
//!
//! One task owns the index and the drain (`drainer.rs`); the operator's has other work besides, and the same drain. Watch loops and requests run beside it and report through one queue, so decisions are
//! made one after the other on a consistent view. Between events the loop sleeps until the core wants to look again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use evac_api::call::{self, labelled, named, on_node};
use evac_api::{Call, Project, wire};
use evac_clock::Clock;
use evac_core::drain::ownership::lease_key;
use evac_core::drain::run::{End, Left};
use evac_core::drain::step::Event;
use evac_core::machines::Kind;
use evac_core::{DryRun, Fact, Index, Policy, Run};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use self::drainer::{Drainer, Tell, read_daemon_sets};
use crate::act::Done;
use crate::http::{Http, HttpError};
use crate::places::{self, Depth};
use crate::watch::{Feed, Opening, Report, Source, follow};

mod claims;
pub(crate) mod drainer;
mod machines;

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

/// What is only watched once it matters.
#[derive(Default)]
struct Started {
    budgets: bool,
    machines: bool,
    /// Leases may not be watched.
    deaf: bool,
}

struct Loop<'a> {
    http: Http,
    clock: Clock,
    index: Index,
    drainer: Drainer,
    missing: Missing,
    started: Started,
    tell: Tell<'a>,
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
    let clock = http.clock();
    let drainer = Drainer::new(http.clone(), request, run);
    let started = Started::default();
    Loop { http, clock, index: Index::new(), drainer, missing, started, tell }.run(stop).await
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
        for node in &self.drainer.request.nodes {
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
            if self.drainer.run.is_over() {
                return Ok(());
            }
            let stopping = self.drainer.run.is_stopping();
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopping => self.drainer.run.stop(),
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
        if self.drainer.request.policy.dry_run != DryRun::None {
            return;
        }
        // Each of them has a time limit of its own.
        while !self.drainer.is_answered(self.drainer.sent()) {
            match inbox.recv().await {
                Some(Input::Done(number, _)) => self.drainer.forget_answer(number),
                Some(_) => {}
                None => break,
            }
        }
        let touched: Vec<String> = self.drainer.run.touched().map(ToOwned::to_owned).collect();
        for node in touched {
            let left = match self.http.read_patiently::<wire::Node>(&Call::get(call::node_path(&node))).await
            {
                Ok(found) => Left::on(Some(&found.into()), &self.drainer.request.owner),
                Err(error) if error.is_not_found() => Left::Nothing,
                Err(error) => Left::Unknown { why: error.to_string() },
            };
            (self.tell)(self.clock.now(), &Event::Leaves { node, left });
        }
    }

    fn start_watches(&mut self, tasks: &mut JoinSet<()>, sender: &mpsc::UnboundedSender<Input>) {
        let one_node = match self.drainer.request.nodes.as_slice() {
            [node] => named(node),
            _ => String::new(),
        };
        self.follow::<wire::Node>(tasks, sender, "/api/v1/nodes", one_node, Input::Node);
        for node in &self.drainer.request.nodes {
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
        let policy = &self.drainer.request.policy;
        if policy.dry_run == DryRun::Client && !policy.pod_selector.is_everything() {
            let _ = write!(query, "&{}", labelled(&policy.pod_selector.to_string()));
        }
        let name = node.to_owned();
        self.follow::<wire::Pod>(tasks, sender, "/api/v1/pods", query, move |report| {
            Input::Pod(name.clone(), report)
        })
    }

    fn source(&self, path: &'static str, query: String) -> (Source, Opening) {
        match self.drainer.request.page {
            Some(page) => (Source { path: path.into(), query, page }, Opening::List),
            None if self.drainer.request.policy.dry_run == DryRun::Client => {
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
                self.drainer.answered(&mut self.index, number, *done, self.tell);
            }
        }
        Ok(())
    }

    /// Puts a fact into the index that may have times to be compared with ours.
    fn learn(&mut self, fact: Fact) {
        self.drainer.learn(&mut self.index, fact);
    }

    fn is_ours(&self, fact: &Fact) -> bool {
        match fact {
            Fact::Node(node) => self.concerns_us(&node.name),
            _ => true,
        }
    }

    fn concerns_us(&self, node: &String) -> bool {
        self.drainer.request.nodes.contains(node)
    }

    fn decide(
        &mut self,
        tasks: &mut JoinSet<()>,
        sender: &mpsc::UnboundedSender<Input>,
    ) -> Result<Option<Timestamp>, DrainError> {
        self.drainer.decide(&self.index, self.tell, |number, sending| {
            let sender = sender.clone();
            tasks.spawn(async move {
                let done = sending.carry_out().await;
                // The loop may have ended meanwhile; then nobody needs the answer.
                let _ = sender.send(Input::Done(number, Box::new(done)));
            });
        })
    }

    fn ends(&self) -> Vec<(String, End)> {
        let ended = |node: &evac_core::drain::run::NodeRun| Some((node.name.clone(), node.end()?.clone()));
        self.drainer.run.nodes.iter().filter_map(ended).collect()
    }

    /// Remediation operators claim nodes by leases. Clusters without them answer 404, and where looking is not allowed nobody is
    /// seen; but a server that fails has not said that the node is free.
    async fn read_leases(&mut self) -> Result<(), DrainError> {
        for node in self.drainer.request.nodes.clone() {
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
        let DrainRequest { policy, nodes, .. } = &self.drainer.request;
        let depth = match policy.dry_run {
            DryRun::None => Depth::Nodes,
            DryRun::Client | DryRun::Server => Depth::Room,
        };
        if let Err(error) = places::look(&self.http, &mut self.index, policy, nodes, depth).await {
            tracing::debug!(%error, "could not look at other nodes");
        }
    }

    /// Finds out which DaemonSets exist.
    async fn read_daemon_sets(&mut self) {
        let wanted = self.drainer.daemon_sets_to_read(&self.index);
        for fact in read_daemon_sets(&self.http, wanted).await {
            self.index.apply(fact);
        }
    }
}

/// The size of list pages where lists cannot be streamed.
const PAGE: u32 = 500;

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
