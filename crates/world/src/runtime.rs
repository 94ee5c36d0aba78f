//! The one loop: facts in, decisions, writes out, and their answers as facts again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evac_clock::Clock;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::actor::{Actor, Answers, Out, View};
use crate::actors::Actors;
use crate::asks;
use crate::discovery::Discovery;
use crate::effects::{Answer, Api, EffectError, Verb, Write};
use crate::handler::metrics;
use crate::hypervisor::Violation;
use crate::instance::{VirtualMachineInstance, instance_of};
use crate::kinds::{Kind, Object, Resource};
use crate::kubelet::node::LEASE_NAMESPACE;
use crate::kubelet::power::{Switch, switch};
use crate::mirror::{Change, Mirror};
use crate::objects::{Key, uid};
use crate::options::{NodeSpec, Options};
use crate::perform::carry_out;
use crate::queue::{Queue, Task};
use crate::truth::Truth;
use crate::watch::{self, News};

/// What a test or a user does to the world from outside.
#[derive(Debug)]
pub enum Command {
    KubeletAlive(String, bool),
    Reboot(String),
    PowerOff(String),
    AddNode(Box<NodeSpec>),
    Violations(oneshot::Sender<Vec<Violation>>),
    Truth(oneshot::Sender<Truth>),
    /// What the agent of a node tells about guests that leave it; nothing from one that cannot be reached.
    Metrics(String, oneshot::Sender<Option<String>>),
    /// Answered once nothing is due at this moment.
    WhenIdle(oneshot::Sender<()>),
}

/// Kinds come and go with these.
const DEFINITIONS: &str = "customresourcedefinitions";

struct Outcome {
    task: Task,
    again: Option<Timestamp>,
    results: Vec<(Write, Result<Answer, EffectError>)>,
    answers: Answers,
    /// What nobody waits for: it is sent when the rest is known.
    afterwards: Vec<Write>,
}

pub struct Runtime {
    api: Api,
    clock: Clock,
    mirror: Mirror,
    actors: Actors,
    queue: Queue,
    discovery: Discovery,
    answers: BTreeMap<Task, Answers>,
    waiting_for: BTreeSet<Kind>,
    watched: BTreeSet<Kind>,
    parallel: usize,
    gc: bool,
    hypervisors: bool,
    /// The watch on instances, while they are served.
    instance_watch: Option<tokio::task::JoinHandle<()>>,
    metadata_watches: BTreeMap<Arc<Resource>, tokio::task::JoinHandle<()>>,
    news_sender: mpsc::UnboundedSender<News>,
    watches: JoinSet<()>,
    idle_waiters: Vec<oneshot::Sender<()>>,
}

pub async fn run(
    client: kube::Client,
    clock: Clock,
    options: Options,
    mut commands: mpsc::UnboundedReceiver<Command>,
    stop: CancellationToken,
) {
    let (sender, mut news) = mpsc::unbounded_channel();
    let actors = Actors::new(&options);
    let kinds: BTreeSet<Kind> = actors.kinds().into_iter().collect();
    let mut runtime = Runtime {
        api: Api::new(client),
        clock,
        mirror: Mirror::default(),
        queue: Queue::default(),
        discovery: Discovery::default(),
        answers: BTreeMap::new(),
        waiting_for: kinds.clone(),
        watched: kinds,
        parallel: options.parallel_writes.max(1),
        gc: options.gc,
        hypervisors: options.hypervisors && options.kubelets,
        instance_watch: None,
        metadata_watches: BTreeMap::new(),
        news_sender: sender,
        watches: JoinSet::new(),
        idle_waiters: Vec::new(),
        actors,
    };
    runtime.start_watches();
    let mut in_flight: JoinSet<Outcome> = JoinSet::new();
    let mut telling: JoinSet<()> = JoinSet::new();
    loop {
        while let Ok(command) = commands.try_recv() {
            runtime.obey(command);
        }
        while let Ok(item) = news.try_recv() {
            runtime.learn(item);
        }
        runtime.queue.ring(clock.now());
        let due = if runtime.waiting_for.is_empty() && in_flight.len() < runtime.parallel {
            runtime.next_step()
        } else {
            None
        };
        if let Some(decision) = due {
            let work = perform(runtime.api.clone(), runtime.discovery.clone(), decision);
            if runtime.parallel == 1 {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    outcome = work => {
                        let afterwards = runtime.absorb(outcome);
                        tell(runtime.api.clone(), afterwards).await;
                    }
                }
            } else {
                in_flight.spawn(work);
            }
            continue;
        }
        let at_work = !in_flight.is_empty() || !telling.is_empty();
        if runtime.queue.idle() && !at_work && runtime.waiting_for.is_empty() {
            for waiter in runtime.idle_waiters.drain(..) {
                // Nobody may be waiting any more; that is fine.
                let _ = waiter.send(());
            }
        }
        let timer = runtime.queue.next_timer();
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(command) = commands.recv() => runtime.obey(command),
            Some(item) = news.recv() => runtime.learn(item),
            Some(Ok(outcome)) = in_flight.join_next(), if !in_flight.is_empty() => {
                let afterwards = runtime.absorb(outcome);
                if !afterwards.is_empty() {
                    telling.spawn(tell(runtime.api.clone(), afterwards));
                }
            }
            Some(_) = telling.join_next(), if !telling.is_empty() => {}
            () = sleep_until(clock, timer), if timer.is_some() => {}
        }
    }
    runtime.watches.shutdown().await;
    for handle in runtime.metadata_watches.into_values().chain(runtime.instance_watch) {
        handle.abort();
    }
}

async fn sleep_until(clock: Clock, at: Option<Timestamp>) {
    if let Some(at) = at {
        clock.sleep_until(at).await;
    }
}

struct Step {
    task: Task,
    out: Out,
}

async fn perform(api: Api, discovery: Discovery, step: Step) -> Outcome {
    let Step { task, out: wanted } = step;
    let mut outcome = Outcome {
        task,
        again: wanted.again,
        results: Vec::new(),
        answers: Answers::new(),
        afterwards: Vec::new(),
    };
    if !wanted.asks.is_empty() {
        for ask in wanted.asks {
            let reply = asks::answer(&api, &discovery, &ask).await;
            outcome.answers.insert(ask, reply);
        }
        return outcome;
    }
    for write in wanted.writes {
        if write.is_event() {
            outcome.afterwards.push(write);
            continue;
        }
        let result = carry_out(&api, &write).await;
        if let Err(error) = &result {
            tracing::debug!(key = %write.key, %error, "write failed");
        }
        let ends = result.is_err() && !write.optional;
        outcome.results.push((write, result));
        // What was to be told after this has not happened.
        if ends {
            break;
        }
    }
    outcome
}

/// Events are for people; losing one changes nothing.
async fn tell(api: Api, writes: Vec<Write>) {
    for write in writes {
        if let Err(error) = carry_out(&api, &write).await {
            tracing::trace!(key = %write.key, %error, "an event was lost");
        }
    }
}

impl Runtime {
    fn start_watches(&mut self) {
        macro_rules! start {
            ($($kind:ident: $ty:ty),* $(,)?) => {
                $(if self.watched.contains(&Kind::$kind) {
                    let namespace = if Kind::$kind == Kind::Lease { LEASE_NAMESPACE } else { "" };
                    self.watches.spawn(watch::typed::<$ty>(
                        self.api.clone(), self.clock, namespace, self.news_sender.clone(),
                    ));
                })*
            };
        }
        use k8s_openapi::api::{apps::v1 as apps, batch, coordination, core::v1 as core, policy, storage};
        start! {
            Namespace: core::Namespace, Node: core::Node, Lease: coordination::v1::Lease, Pod: core::Pod,
            ReplicaSet: apps::ReplicaSet, Deployment: apps::Deployment, DaemonSet: apps::DaemonSet,
            StatefulSet: apps::StatefulSet, ControllerRevision: apps::ControllerRevision, Job: batch::v1::Job,
            ReplicationController: core::ReplicationController,
            PodDisruptionBudget: policy::v1::PodDisruptionBudget,
            PersistentVolumeClaim: core::PersistentVolumeClaim, PersistentVolume: core::PersistentVolume,
            StorageClass: storage::v1::StorageClass, ServiceAccount: core::ServiceAccount,
        }
    }

    /// The next decision that wants something done.
    fn next_step(&mut self) -> Option<Step> {
        while let Some(task) = self.queue.pop() {
            let mut out = Out::default();
            let answers = self.answers.remove(&task).unwrap_or_default();
            let now = if task.0.goes_by_the_calendar() {
                self.clock.on_calendar(self.clock.now())
            } else {
                self.clock.now()
            };
            let view = View { mirror: &self.mirror, now, answers: &answers };
            self.actors.decide(task.0, &task.1, view, &mut out);
            for (actor, key) in out.wakes.drain(..) {
                self.queue.push(actor, key);
            }
            if !out.writes.is_empty() || !out.asks.is_empty() {
                return Some(Step { task, out });
            }
            self.settle(&task, out.again);
        }
        None
    }

    fn settle(&mut self, task: &Task, again: Option<Timestamp>) {
        self.queue.done(task);
        if let Some(at) = again {
            let measured = if task.0.goes_by_the_calendar() { self.clock.steady(at) } else { at };
            self.queue.at(task, measured);
        }
        if task.0 == Actor::Scheduler {
            self.actors.schedule(&mut self.queue);
        }
    }

    /// Takes in how a decision went, and says what is to be sent now.
    fn absorb(&mut self, outcome: Outcome) -> Vec<Write> {
        let Outcome { task, again, results, answers, afterwards } = outcome;
        if !answers.is_empty() {
            self.answers.insert(task.clone(), answers);
            self.queue.done(&task);
            self.queue.push(task.0, task.1);
            return Vec::new();
        }
        let mut failed = false;
        for (write, result) in results {
            match result {
                Ok(answer) => self.take_answer(&write, answer),
                Err(error) if write.optional => tracing::trace!(%error, "optional write failed"),
                Err(error) => {
                    failed = true;
                    // What we meant to change is gone: the watch may be late, the fact is not.
                    if error.not_found()
                        && !matches!(write.verb, Verb::Create(_))
                        && let Some(kind) = Kind::of(&write.resource)
                        && self.watched.contains(&kind)
                    {
                        let change = self.mirror.deleted(kind, &write.key, "");
                        self.announce(change);
                    }
                }
            }
        }
        if failed {
            self.queue.failed(&task, self.clock.now());
            if task.0 == Actor::Scheduler {
                let answers = Answers::new();
                let view = View { mirror: &self.mirror, now: self.clock.now(), answers: &answers };
                self.actors.scheduler.failed(view);
            }
        } else {
            self.settle(&task, again);
        }
        afterwards
    }

    fn take_answer(&mut self, write: &Write, answer: Answer) {
        let Some(kind) = Kind::of(&write.resource).filter(|k| self.watched.contains(k)) else { return };
        let change = match (answer, &write.verb) {
            (Answer::Object(value), _) => match kind.parse(value) {
                Ok(object) => self.mirror.put(object),
                Err(error) => {
                    tracing::warn!(key = %write.key, %error, "an answer that is not what was written");
                    None
                }
            },
            (Answer::Done, Verb::Bind { node, .. }) => self.mirror.assume_bound(&write.key, node),
            (Answer::Gone, Verb::Delete(deletion)) => {
                self.mirror.we_deleted(kind, &write.key, deletion.uid.as_deref().unwrap_or_default())
            }
            _ => None,
        };
        self.announce(change);
    }

    fn announce(&mut self, change: Option<Change>) {
        if let Some(change) = change {
            let answers = Answers::new();
            let view = View { mirror: &self.mirror, now: self.clock.now(), answers: &answers };
            self.actors.notice(view, &change, &mut self.queue);
            self.simulate(&change);
        }
    }

    /// Switches a machine of ours on or off when its node says so.
    fn simulate(&mut self, change: &Change) {
        let Some(Object::Node(new)) = &change.new else { return };
        let old = match &change.old {
            Some(Object::Node(old)) => Some(old.as_ref()),
            _ => None,
        };
        let node = change.key.name.clone();
        if !self.actors.kubelets.hosts(&node) {
            return;
        }
        match switch(old, new) {
            None => {}
            Some(Switch::CutOff) => self.obey(Command::KubeletAlive(node, false)),
            Some(Switch::PowerOff) => self.obey(Command::PowerOff(node)),
            Some(Switch::Connect) => self.obey(Command::KubeletAlive(node, true)),
            Some(Switch::Boot) => {
                self.obey(Command::Reboot(node.clone()));
                self.obey(Command::KubeletAlive(node, true));
            }
        }
    }

    fn learn(&mut self, news: News) {
        match news {
            News::Put(object) => {
                let change = self.mirror.put(object);
                self.announce(change);
            }
            News::Deleted(kind, key, object_uid) => {
                let change = self.mirror.deleted(kind, &key, &object_uid);
                self.announce(change);
            }
            News::Listed(kind, objects, at) => {
                for change in self.mirror.listed(kind, objects, at) {
                    self.announce(Some(change));
                }
                if self.waiting_for.remove(&kind) && self.waiting_for.is_empty() {
                    self.actors.start(&mut self.queue);
                    self.refresh_discovery();
                }
            }
            News::MetaListed(resource, metas) => {
                let held: Vec<String> = metas.iter().map(|m| uid(m).to_owned()).collect();
                let mut touched = self.actors.graph.keep_only(&resource, &held);
                for meta in &metas {
                    touched.extend(self.actors.graph.put(&resource, meta));
                }
                self.collect(touched);
                if resource.plural == DEFINITIONS && !metas.is_empty() {
                    self.refresh_discovery();
                }
            }
            News::MetaPut(resource, meta) => {
                let touched = self.actors.graph.put(&resource, &meta);
                self.collect(touched);
                if resource.plural == DEFINITIONS {
                    self.refresh_discovery();
                }
            }
            News::MetaDeleted(resource, object_uid) => {
                let touched = self.actors.graph.remove(&object_uid);
                self.collect(touched);
                if resource.plural == DEFINITIONS {
                    self.refresh_discovery();
                }
            }
            News::Discovered(discovery) => self.discovered(discovery),
        }
    }

    fn collect(&mut self, uids: Vec<String>) {
        if !self.gc {
            return;
        }
        for object_uid in uids {
            self.queue.push(Actor::GarbageCollector, Key::cluster(object_uid));
        }
    }

    /// Asks the server what it serves, beside the loop.
    fn refresh_discovery(&mut self) {
        let (api, sender, clock) = (self.api.clone(), self.news_sender.clone(), self.clock);
        self.watches.spawn(async move {
            loop {
                match Discovery::ask(&api).await {
                    Ok(discovery) => {
                        // The loop may have ended; then nobody needs it.
                        let _ = sender.send(News::Discovered(discovery));
                        return;
                    }
                    Err(error) => tracing::debug!(%error, "discovery failed"),
                }
                clock.sleep(std::time::Duration::from_secs(1)).await;
            }
        });
    }

    /// Starts to watch instances when they are served, and stops when they no longer are.
    fn follow_instances(&mut self, discovery: &Discovery) {
        let kind = Kind::VirtualMachineInstance;
        let resource = kind.resource();
        let found = discovery.resource(&resource.api_version(), &resource.kind);
        let served = found.is_some_and(|r| r.version == resource.version);
        if served && self.instance_watch.is_none() {
            self.watched.insert(kind);
            let sender = self.news_sender.clone();
            let watch = watch::typed::<VirtualMachineInstance>(self.api.clone(), self.clock, "", sender);
            self.instance_watch = Some(tokio::spawn(watch));
            self.actors.serve_instances(true, &mut self.queue);
        } else if !served && let Some(watch) = self.instance_watch.take() {
            watch.abort();
            for change in self.mirror.listed(kind, Vec::new(), u64::MAX) {
                self.announce(Some(change));
            }
            self.watched.remove(&kind);
            self.actors.serve_instances(false, &mut self.queue);
        }
        if !self.gc {
            let definitions = discovery.resource("apiextensions.k8s.io/v1", "CustomResourceDefinition");
            if let Some(resource) = definitions.map(Arc::new)
                && !self.metadata_watches.contains_key(&resource)
            {
                self.watch_metadata(resource);
            }
        }
    }

    fn watch_metadata(&mut self, resource: Arc<Resource>) {
        let watch = watch::metadata(self.api.clone(), self.clock, resource.clone(), self.news_sender.clone());
        self.metadata_watches.insert(resource, tokio::spawn(watch));
    }

    fn discovered(&mut self, discovery: Discovery) {
        if self.hypervisors {
            self.follow_instances(&discovery);
        }
        if self.gc {
            for resource in discovery.collectable() {
                let typed =
                    Kind::of(&resource).is_some_and(|k| self.watched.contains(&k) && k != Kind::Lease);
                let resource = Arc::new(resource);
                if typed || self.metadata_watches.contains_key(&resource) {
                    continue;
                }
                self.watch_metadata(resource);
            }
            let served: BTreeSet<Resource> = discovery.collectable().into_iter().collect();
            let ended: Vec<_> =
                self.metadata_watches.keys().filter(|r| !served.contains(r.as_ref())).cloned().collect();
            for resource in ended {
                if let Some(handle) = self.metadata_watches.remove(&resource) {
                    handle.abort();
                }
                let touched = self.actors.graph.keep_only(&resource, &[]);
                self.collect(touched);
            }
        }
        self.discovery = discovery;
    }

    fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        let answers = Answers::new();
        let view = View { mirror: &self.mirror, now, answers: &answers };
        match command {
            Command::KubeletAlive(node, alive) => {
                self.actors.kubelets.set_alive(&node, alive);
                if alive {
                    self.actors.handlers.reap(view, &node);
                    self.touch_node(&node);
                } else {
                    self.actors.handlers.hypervisor.cut_off(&node, now);
                }
            }
            Command::Reboot(node) => {
                self.actors.handlers.hypervisor.power_off(&node, now);
                self.actors.kubelets.reboot(view, &node);
                self.touch_node(&node);
            }
            Command::PowerOff(node) => {
                self.actors.kubelets.set_alive(&node, false);
                self.actors.handlers.hypervisor.power_off(&node, now);
                self.actors.kubelets.reboot(view, &node);
            }
            Command::Violations(asker) => {
                self.actors.handlers.hypervisor.advance(now);
                // Who asked may be gone; then nobody needs to know.
                let _ = asker.send(self.actors.handlers.hypervisor.violations().to_vec());
            }
            Command::Truth(asker) => {
                let Actors { handlers, kubelets, .. } = &mut self.actors;
                handlers.hypervisor.advance(now);
                let _ = asker.send(Truth::of(&handlers.hypervisor, kubelets, handlers.serving()));
            }
            Command::Metrics(node, asker) => {
                let alive = self.actors.kubelets.alive(&node) && self.actors.handlers.serving();
                let hypervisor = &mut self.actors.handlers.hypervisor;
                let _ = asker.send(alive.then(|| metrics::write(hypervisor, &node, now)));
            }
            Command::AddNode(spec) => {
                let name = spec.name.clone();
                self.actors.kubelets.add(*spec);
                self.touch_node(&name);
            }
            Command::WhenIdle(waiter) => self.idle_waiters.push(waiter),
        }
        self.actors.handlers.flush(&mut self.queue);
    }

    fn touch_node(&mut self, node: &str) {
        self.queue.push(Actor::KubeletNode, Key::cluster(node));
        self.queue.push(Actor::Heartbeat, Key::default());
        self.queue.push(Actor::HandlerNode, Key::cluster(node));
        for pod in self.mirror.pods_on(node) {
            self.queue.push(Actor::KubeletPod, Key::of(&pod.metadata));
            if let Some(instance) = instance_of(pod) {
                self.queue.push(Actor::Instance, instance);
            }
        }
    }
}
