//! The role `failover`: watches nodes and policies, asks the core, and keeps one failover per node under way.
//!
//! The rules are in [`evac_core::failover::watchman`]; a failover itself is the same that the command line runs
//! ([`crate::failover`]). The leases of kubelets are watched only while a node of a policy is not Ready: they change every ten seconds
//! for every node, and nobody needs them before.

mod back;
mod job;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evac_api::failover::policy::PolicyObject;
use evac_api::failover::{KUBELET_LEASES, MAINTENANCE_LEASES, POLICIES, SuspectNode};
use evac_api::wire;
use evac_clock::Clock;
use evac_core::Lease;
use evac_core::failover::policy::Agent as AgentPolicy;
use evac_core::failover::watchman::{Standing, Verdict, View, Watchman};
use evac_core::failover::{FailoverPolicy, PolicyError, Suspect};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::job::Job;
use super::feeds::forever;
use super::pulse::{Condition, Question};
use super::sleep_until;
use crate::failover::{Agent, PowerSwitch};
use crate::http::Http;
use crate::metrics::Queues;
use crate::watch::{Report, Source};

/// The name under which this role marks nodes, in the installation that goes by bare names.
pub const OWNER: &str = "evac-operator";

/// The name under which this installation marks nodes.
fn owner(http: &Http) -> String {
    evac_core::maintenance::named(OWNER, http.home())
}

/// After a failover that did not succeed.
const REST: SignedDuration = SignedDuration::from_secs(60);
/// After something was done: until the view shows it.
const SHORT_REST: SignedDuration = SignedDuration::from_secs(5);
/// After a status that the server did not take.
const TELL_AGAIN: Duration = Duration::from_secs(5);

/// Makes the switch for a policy's agent and its options.
pub type Switches =
    Arc<dyn Fn(&AgentPolicy, BTreeMap<String, String>, Clock) -> Arc<dyn PowerSwitch> + Send + Sync>;

/// Fence agents as programs beside this one.
pub fn programs() -> Switches {
    Arc::new(|policy, options, clock| {
        let timeout = Duration::try_from(policy.timeout).unwrap_or(Duration::from_secs(60));
        Arc::new(Agent { program: policy.command.clone(), options, timeout, clock })
    })
}

#[allow(clippy::large_enum_variant, reason = "each lives for a moment")]
enum Input {
    Node(Report<SuspectNode>),
    Policy(Report<PolicyObject>),
    Maintenance(Report<wire::Lease>),
    Kubelet(Report<wire::Lease>),
    /// A failover, or the return of a node, has ended.
    Ended {
        node: String,
        rest: Option<SignedDuration>,
    },
    /// What was new about a policy has been sent; the server took it or not.
    Told {
        policy: String,
        taken: bool,
    },
}

/// A policy as it was read.
struct Known {
    object: PolicyObject,
    policy: Result<FailoverPolicy, PolicyError>,
}

struct Loop {
    http: Http,
    switches: Switches,
    nodes: BTreeMap<String, Suspect>,
    policies: BTreeMap<String, Known>,
    maintenance: BTreeMap<String, Lease>,
    watchman: Watchman,
    /// Failovers under way.
    active: BTreeSet<String>,
    /// Nodes that are being given back.
    returning: BTreeSet<String>,
    resting: BTreeMap<String, Timestamp>,
    missing: BTreeSet<&'static str>,
    /// Those of them that the server does not know: there is nothing to wait for.
    absent: BTreeSet<&'static str>,
    /// Ends the watch of the kubelets' leases when it is dropped.
    listening: Option<DropGuard>,
    book: status::Book,
}

/// Runs until `stop`. Acts while the gate of `http` is open.
pub async fn run(
    http: Http,
    switches: Switches,
    stop: CancellationToken,
    questions: mpsc::Receiver<Question>,
) {
    let state = Loop {
        http,
        switches,
        nodes: BTreeMap::new(),
        policies: BTreeMap::new(),
        maintenance: BTreeMap::new(),
        watchman: Watchman::default(),
        active: BTreeSet::new(),
        returning: BTreeSet::new(),
        resting: BTreeMap::new(),
        missing: ["nodes", "policies", "leases"].into(),
        absent: BTreeSet::new(),
        listening: None,
        book: status::Book::default(),
    };
    state.run(stop, questions).await;
}

fn source(path: &'static str) -> Source {
    Source { path: path.into(), query: String::new(), page: 500 }
}

fn lease_version(lease: &wire::Lease) -> String {
    lease.metadata.resource_version.clone()
}

impl Loop {
    async fn run(mut self, stop: CancellationToken, mut questions: mpsc::Receiver<Question>) {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        self.watch(&sender, &mut tasks);
        let clock = self.http.clock();
        let mut openings = self.http.gate().openings();
        loop {
            let alarm = self.look(&sender, &stop, &mut tasks);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                input = inbox.recv() => {
                    let Some(input) = input else { break };
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
                Ok(()) = openings.changed() => {}
                () = sleep_until(clock, alarm) => {}
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    fn condition(&self) -> Condition {
        Condition {
            queues: Queues { acting: self.active.len() + self.returning.len(), ..Queues::default() },
            migrations: 0,
            leads: self.http.gate().is_open(self.http.clock().now()),
            missing: self.missing.difference(&self.absent).map(|what| format!("list of {what}")).collect(),
        }
    }

    fn watch(&self, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>) {
        let http = || self.http.clone();
        let version = |object: &SuspectNode| object.metadata.resource_version.clone();
        tasks.spawn(forever(http(), source("/api/v1/nodes"), sender.clone(), Input::Node, version));
        let version = |object: &PolicyObject| object.metadata.resource_version.clone();
        tasks.spawn(forever(http(), source(POLICIES), sender.clone(), Input::Policy, version));
        let source = source(MAINTENANCE_LEASES);
        tasks.spawn(forever(http(), source, sender.clone(), Input::Maintenance, lease_version));
    }

    fn take(&mut self, input: Input) {
        let now = self.http.clock().now();
        match input {
            Input::Node(Report::Listed(list)) => {
                self.missing.remove("nodes");
                let renewed: BTreeMap<String, Option<Timestamp>> =
                    self.nodes.iter().map(|(name, node)| (name.clone(), node.renewed)).collect();
                self.nodes.clear();
                for object in list {
                    let name = object.metadata.name.clone();
                    self.put(object, renewed.get(&name).copied().flatten());
                }
            }
            Input::Node(Report::Seen(object)) => {
                let renewed = self.nodes.get(&object.metadata.name).and_then(|node| node.renewed);
                self.put(object, renewed);
            }
            Input::Node(Report::Gone(object)) => drop(self.nodes.remove(&object.metadata.name)),
            Input::Policy(Report::Listed(list)) => {
                self.missing.remove("policies");
                self.policies.clear();
                for object in list {
                    self.learn(object);
                }
            }
            Input::Policy(Report::Seen(object)) => self.learn(object),
            Input::Policy(Report::Gone(object)) => {
                self.policies.remove(&object.metadata.name);
                self.book.forget(&object.metadata.name);
            }
            Input::Maintenance(Report::Listed(list)) => {
                self.missing.remove("leases");
                self.maintenance = list.into_iter().filter_map(claimed).collect();
            }
            Input::Maintenance(Report::Seen(object)) => self.maintenance.extend(claimed(object)),
            Input::Maintenance(Report::Gone(object)) => {
                if let Some((node, _)) = claimed(object) {
                    self.maintenance.remove(&node);
                }
            }
            // Where there is no such kind, or no right to see it, nobody claims anything that we could know of.
            Input::Maintenance(Report::Failed { final_: true, .. }) => {
                self.missing.remove("leases");
            }
            Input::Kubelet(Report::Listed(list)) => {
                for lease in list {
                    self.renew(&lease);
                }
            }
            Input::Kubelet(Report::Seen(lease)) => {
                if self.renew(&lease) {
                    self.watchman.sight.sign(now);
                }
            }
            Input::Ended { node, rest } => {
                self.active.remove(&node);
                self.returning.remove(&node);
                match rest.and_then(|rest| now.checked_add(rest).ok()) {
                    Some(until) => drop(self.resting.insert(node, until)),
                    None => drop(self.resting.remove(&node)),
                }
            }
            Input::Told { policy, taken } => self.book.sent(&policy, taken),
            Input::Policy(Report::Failed { error, .. }) if error.is_not_found() => {
                self.absent.insert("policies");
            }
            Input::Kubelet(Report::Gone(_) | Report::Failed { .. })
            | Input::Node(Report::Failed { .. })
            | Input::Policy(Report::Failed { .. })
            | Input::Maintenance(Report::Failed { .. }) => {}
        }
    }

    fn put(&mut self, object: SuspectNode, renewed: Option<Timestamp>) {
        let mut suspect = Suspect::from(object);
        suspect.renewed = renewed;
        self.nodes.insert(suspect.node.name.clone(), suspect);
    }

    fn learn(&mut self, object: PolicyObject) {
        let policy = object.clone().into_policy();
        self.policies.insert(object.metadata.name.clone(), Known { object, policy });
    }

    /// True if the lease of a node is newer than what was known.
    fn renew(&mut self, lease: &wire::Lease) -> bool {
        let Some(node) = self.nodes.get_mut(&lease.metadata.name) else { return false };
        let newer = lease.spec.renew_time > node.renewed;
        node.renewed = node.renewed.max(lease.spec.renew_time);
        newer
    }

    /// Asks the core about everything and begins what is to be begun. Says when to look again.
    fn look(
        &mut self,
        sender: &mpsc::UnboundedSender<Input>,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) -> Option<Timestamp> {
        let now = self.http.clock().now();
        if !self.missing.is_empty() {
            return None;
        }
        self.listen(sender);
        if !self.http.gate().is_open(now) {
            return None;
        }
        let policies: BTreeMap<String, Result<FailoverPolicy, PolicyError>> =
            self.policies.iter().map(|(name, known)| (name.clone(), known.policy.clone())).collect();
        let owner = owner(&self.http);
        let view = View {
            nodes: &self.nodes,
            policies: &policies,
            leases: &self.maintenance,
            active: &self.active,
            resting: &self.resting,
            owner: &owner,
        };
        let (standings, again) = self.watchman.judge(&view, now);
        for standing in &standings {
            self.begin(standing, sender, stop, tasks);
            self.tell(standing, sender, tasks, now);
        }
        self.give_back(sender, tasks, now);
        let rested = self.resting.values().copied().filter(|at| *at > now).min();
        again.into_iter().chain(rested).min()
    }

    /// Listens to the kubelets while somebody's silence may matter.
    fn listen(&mut self, sender: &mpsc::UnboundedSender<Input>) {
        let policies = || self.policies.values().filter_map(|known| known.policy.as_ref().ok());
        let down = self.nodes.values().filter(|node| !node.is_ready());
        let wanted = down.into_iter().any(|node| policies().any(|policy| policy.selects(node)));
        if !wanted {
            self.listening = None;
        } else if self.listening.is_none() {
            let stop = CancellationToken::new();
            let following = forever(
                self.http.clone(),
                source(KUBELET_LEASES),
                sender.clone(),
                Input::Kubelet,
                lease_version,
            );
            let ended = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = following => {}
                }
            });
            self.listening = Some(stop.drop_guard());
        }
    }

    fn begin(
        &mut self,
        standing: &Standing,
        sender: &mpsc::UnboundedSender<Input>,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) {
        let Some(Ok(policy)) = self.policies.get(&standing.policy).map(|known| &known.policy) else { return };
        for (node, verdict) in &standing.nodes {
            if *verdict != Verdict::Act || !self.active.insert(node.clone()) {
                continue;
            }
            let job = Job {
                http: self.http.clone(),
                switches: self.switches.clone(),
                policy: policy.clone(),
                node: node.clone(),
            };
            let (sender, stop, node) = (sender.clone(), stop.clone(), node.clone());
            tasks.spawn(async move {
                let rest = job.carry_out(&stop).await;
                // The loop may have ended meanwhile.
                let _ = sender.send(Input::Ended { node, rest });
            });
        }
    }

    /// Has what is new about a policy sent. Nothing waits for it: a server that is slow to take a status must not keep a guest from coming back.
    fn tell(
        &mut self,
        standing: &Standing,
        sender: &mpsc::UnboundedSender<Input>,
        tasks: &mut JoinSet<()>,
        now: Timestamp,
    ) {
        let Some(known) = self.policies.get(&standing.policy) else { return };
        let Some(news) = self.book.enter(&known.object, standing, now) else { return };
        let (http, sender) = (self.http.clone(), sender.clone());
        tasks.spawn(async move {
            let taken = news.send(&http).await;
            if !taken {
                http.clock().sleep(TELL_AGAIN).await;
            }
            let _ = sender.send(Input::Told { policy: news.policy, taken });
        });
    }

    /// Nodes of ours that are Ready again are looked at, and given back if nothing speaks against it.
    fn give_back(&mut self, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>, now: Timestamp) {
        let rests = |name: &String| self.resting.get(name).is_some_and(|until| *until > now);
        let back: Vec<Suspect> = self
            .nodes
            .values()
            .filter(|node| back::is_ours(node, &owner(&self.http)) && !self.active.contains(&node.node.name))
            .filter(|node| !rests(&node.node.name))
            .cloned()
            .collect();
        for suspect in back {
            let node = suspect.node.name.clone();
            if !self.returning.insert(node.clone()) {
                continue;
            }
            let (http, sender) = (self.http.clone(), sender.clone());
            tasks.spawn(async move {
                let done = back::give_back(&http, &suspect).await;
                // What was just written is in the view a moment later.
                let rest = if done { SHORT_REST } else { REST };
                let _ = sender.send(Input::Ended { node, rest: Some(rest) });
            });
        }
    }
}

/// The node that a lease of a remediation operator is about.
fn claimed(object: wire::Lease) -> Option<(String, Lease)> {
    let node = object.metadata.name.strip_prefix("node-")?.to_owned();
    Some((node, object.into()))
}
