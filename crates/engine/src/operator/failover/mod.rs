//! The role `failover`: watches nodes and policies, asks the core, and keeps one failover per node under way.
//!
//! The rules are in [`evac_core::failover::watchman`]; a failover itself is the same that the command line runs
//! ([`crate::failover`]). The leases of kubelets are watched only while a node of a policy is not Ready: they change every ten seconds
//! for every node, and nobody needs them before.

mod back;
mod etcd;
mod job;
mod programs;
pub(super) mod review;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evac_api::failover::policy::PolicyObject;
use evac_api::failover::{KUBELET_LEASES, MAINTENANCE_LEASES, POLICIES, SuspectNode};
use evac_api::wire;
use evac_clock::Clock;
use evac_core::Lease;
use evac_core::drain::quorum::is_control_plane;
use evac_core::drain::unread::{Unread, Word};
use evac_core::failover::leftovers::is_back;
use evac_core::failover::policy::Agent as AgentPolicy;
use evac_core::failover::watchman::{Standing, Verdict, View, Watchman};
use evac_core::failover::{AgentError, FailoverPolicy, KubeletLease, PolicyError, Proof, Silence, Suspect};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::job::Job;
pub use self::programs::programs;
use super::feeds::forever;
use super::pulse::{Condition, Question};
use super::sleep_until;
use crate::failover::PowerSwitch;
use crate::http::{Http, HttpError};
use crate::metrics::Queues;
use crate::watch::{Report, Source};

/// The name under which this role marks nodes, in the installation that goes by bare names.
pub const OWNER: &str = evac_core::drain::ownership::FAILOVER;

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
pub type Switches = Arc<dyn Fn(&AgentPolicy, BTreeMap<String, String>, Clock) -> Switch + Send + Sync>;
/// A switch, or why there is none. Nothing runs before it is used.
pub type Switch = Result<Arc<dyn PowerSwitch>, AgentError>;

#[allow(clippy::large_enum_variant, reason = "each lives for a moment")]
enum Input {
    Node(Report<SuspectNode>),
    Policy(Report<PolicyObject>),
    Maintenance(Report<wire::Lease>),
    Kubelet(Report<wire::Lease>),
    /// What one of the watches of etcd's members says, and since when it was begun.
    Etcd {
        round: u64,
        place: usize,
        report: Report<wire::Pod>,
    },
    /// A failover, or the return of a node, has ended.
    Ended {
        node: String,
        /// How long to leave the node alone.
        rest: SignedDuration,
        /// Who did not return, in words.
        left: Option<String>,
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
    /// What was seen of them, by our own clock.
    silences: BTreeMap<String, Silence>,
    policies: BTreeMap<String, Known>,
    maintenance: BTreeMap<String, Lease>,
    /// Why the leases of remediation operators cannot be read.
    unread: Option<String>,
    /// Lists of nodes, policies and kubelets that cannot be read.
    unread_lists: Unread,
    watchman: Watchman,
    /// Failovers under way.
    active: BTreeSet<String>,
    /// Nodes that are being given back.
    returning: BTreeSet<String>,
    resting: BTreeMap<String, Timestamp>,
    /// Who did not return, by the node that was failed over.
    left: BTreeMap<String, String>,
    missing: BTreeSet<&'static str>,
    /// Those of them that the server does not know: there is nothing to wait for.
    absent: BTreeSet<&'static str>,
    /// Ends the watch of the kubelets' leases when it is dropped.
    listening: Option<DropGuard>,
    members: etcd::Members,
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
        silences: BTreeMap::new(),
        policies: BTreeMap::new(),
        maintenance: BTreeMap::new(),
        unread: None,
        unread_lists: Unread::default(),
        watchman: Watchman::default(),
        active: BTreeSet::new(),
        returning: BTreeSet::new(),
        resting: BTreeMap::new(),
        left: BTreeMap::new(),
        missing: ["nodes", "policies", "leases"].into(),
        absent: BTreeSet::new(),
        listening: None,
        members: etcd::Members::default(),
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

    /// Takes note of which lists can be read.
    fn note_reading(&mut self, input: &Input, now: Timestamp) {
        let (what, error) = match input {
            Input::Node(report) => ("nodes", failure(report)),
            Input::Policy(report) => ("failoverpolicies", failure(report)),
            Input::Kubelet(report) => ("leases of kubelets", failure(report)),
            _ => return,
        };
        match error {
            // A kind that the server does not know has no objects.
            Some(error) if !error.is_not_found() => {
                tracing::warn!(what, %error, "cannot be read");
                self.unread_lists.failed(what, &error.to_string(), now);
            }
            _ => drop(self.unread_lists.read(what)),
        }
    }

    fn take(&mut self, input: Input) {
        let now = self.http.clock().now();
        self.note_reading(&input, now);
        match input {
            Input::Node(Report::Listed(list, _)) => {
                self.missing.remove("nodes");
                let mut before = std::mem::take(&mut self.nodes);
                for object in list {
                    let lease = before.remove(&object.metadata.name).and_then(|node| node.lease);
                    self.put(object, lease, now);
                }
                self.silences.retain(|name, _| self.nodes.contains_key(name));
            }
            Input::Node(Report::Seen(object)) => {
                let lease = self.nodes.get(&object.metadata.name).and_then(|node| node.lease.clone());
                self.put(object, lease, now);
            }
            Input::Node(Report::Gone(object)) => {
                self.nodes.remove(&object.metadata.name);
                self.silences.remove(&object.metadata.name);
            }
            Input::Policy(Report::Listed(list, _)) => {
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
            Input::Maintenance(Report::Listed(list, _)) => {
                self.missing.remove("leases");
                self.unread = None;
                let clock = self.http.clock();
                self.maintenance = list.into_iter().filter_map(|lease| claimed(lease, clock)).collect();
            }
            Input::Maintenance(Report::Seen(object)) => {
                self.unread = None;
                self.maintenance.extend(claimed(object, self.http.clock()));
            }
            Input::Maintenance(Report::Gone(object)) => {
                self.unread = None;
                if let Some((node, _)) = claimed(object, self.http.clock()) {
                    self.maintenance.remove(&node);
                }
            }
            // Where there is no such kind nobody claims anything. Where there is no right to see it, nobody knows.
            Input::Maintenance(Report::Failed { error, final_ }) if final_ || error.is_forbidden() => {
                self.missing.remove("leases");
                self.unread = (!error.is_not_found()).then(|| error.to_string());
            }
            Input::Kubelet(Report::Listed(list, _)) => {
                for lease in list {
                    self.renew(lease, now);
                }
                // From now on the leases are watched, also of nodes that have none yet.
                for (name, node) in &self.nodes {
                    self.silences.entry(name.clone()).or_default().see_lease(node, now);
                }
            }
            Input::Kubelet(Report::Seen(lease)) => {
                if self.renew(lease, now) {
                    self.watchman.sight.sign(now);
                }
            }
            Input::Etcd { round, place, report } => self.members.take(round, place, report),
            Input::Ended { node, rest, left } => {
                self.active.remove(&node);
                self.returning.remove(&node);
                match left {
                    Some(left) => drop(self.left.insert(node.clone(), left)),
                    None => drop(self.left.remove(&node)),
                }
                self.resting.insert(node, now.checked_add(rest).unwrap_or(Timestamp::MAX));
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

    fn put(&mut self, object: SuspectNode, lease: Option<KubeletLease>, now: Timestamp) {
        let suspect = Suspect { lease, ..Suspect::from(object) };
        let name = suspect.node.name.clone();
        self.silences.entry(name.clone()).or_default().see_node(&suspect, now);
        self.nodes.insert(name, suspect);
    }

    fn learn(&mut self, object: PolicyObject) {
        let mut policy = object.clone().into_policy();
        if let Ok(policy) = &mut policy {
            // Statuses are written by the calendar.
            policy.storm = policy.storm.shifted(-self.http.clock().ahead());
        }
        self.policies.insert(object.metadata.name.clone(), Known { object, policy });
    }

    /// The policy, if what it needs is at hand. That is looked at each time: programs come and go.
    fn usable(&self, known: &Known) -> Result<FailoverPolicy, PolicyError> {
        let policy = known.policy.clone()?;
        if let Proof::Agent(agent) = &policy.proof {
            agent.check_home(self.http.home())?;
            (self.switches)(agent, BTreeMap::new(), self.http.clock())?;
        }
        Ok(policy)
    }

    /// True if the lease of a node is another than it was. Its time is the node's and says nothing about which is newer.
    fn renew(&mut self, lease: wire::Lease, now: Timestamp) -> bool {
        let Some(node) = self.nodes.get_mut(&lease.metadata.name) else { return false };
        let lease = Some(KubeletLease::from(lease));
        let is_new = lease != node.lease;
        node.lease = lease;
        self.silences.entry(node.node.name.clone()).or_default().see_lease(node, now);
        is_new
    }

    /// Asks the core about everything and begins what is to be begun. Says when to look again.
    fn look(
        &mut self,
        sender: &mpsc::UnboundedSender<Input>,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) -> Option<Timestamp> {
        let now = self.http.clock().now();
        let (unread, told_at) = match self.unread_lists.word(now, self.http.clock().ahead()) {
            Word::Nothing => (None, None),
            Word::Later(at) => (None, Some(at)),
            Word::Now(words) => (Some(words), None),
        };
        if !self.missing.is_empty() {
            if let Some(words) = unread.filter(|_| self.http.gate().is_open(now)) {
                self.tell_unread(&words, sender, tasks);
            }
            return told_at;
        }
        self.listen(sender);
        let plane_is_down = self.down().any(|node| is_control_plane(&node.node));
        self.members.follow(&self.http, plane_is_down, sender);
        if !self.http.gate().is_open(now) {
            return None;
        }
        let ahead = self.http.clock().ahead();
        self.silences.values_mut().for_each(|silence| silence.ahead = ahead);
        let policies: BTreeMap<String, Result<FailoverPolicy, PolicyError>> =
            self.policies.iter().map(|(name, known)| (name.clone(), self.usable(known))).collect();
        let etcd = self.members.etcd();
        let owner = owner(&self.http);
        let view = View {
            nodes: &self.nodes,
            silences: &self.silences,
            policies: &policies,
            leases: &self.maintenance,
            leases_unread: self.unread.as_deref(),
            unread: unread.as_deref(),
            etcd: etcd.as_ref().map_err(String::as_str),
            active: &self.active,
            resting: &self.resting,
            left: &self.left,
            owner: &owner,
        };
        let (standings, again) = self.watchman.judge(&view, now);
        for standing in &standings {
            self.begin(standing, sender, stop, tasks);
            self.tell(&standing.on_calendar(ahead), sender, tasks);
        }
        self.give_back(sender, tasks, now);
        let rested = self.resting.values().copied().filter(|at| *at > now).min();
        again.into_iter().chain(rested).chain(told_at).min()
    }

    /// The nodes of policies that are not Ready.
    fn down(&self) -> impl Iterator<Item = &Suspect> {
        let policies = || self.policies.values().filter_map(|known| known.policy.as_ref().ok());
        let down = self.nodes.values().filter(|node| !node.is_ready());
        down.filter(move |node| policies().any(|policy| policy.selects(node)))
    }

    /// Listens to the kubelets while somebody's silence may matter.
    fn listen(&mut self, sender: &mpsc::UnboundedSender<Input>) {
        if self.down().next().is_none() {
            if self.listening.take().is_some() {
                self.silences.values_mut().for_each(Silence::lose_lease);
            }
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
                silence: self.silences.get(node).cloned().unwrap_or_default(),
            };
            let (sender, stop, node) = (sender.clone(), stop.clone(), node.clone());
            tasks.spawn(async move {
                let (rest, left) = job.carry_out(&stop).await;
                // The loop may have ended meanwhile.
                let _ = sender.send(Input::Ended { node, rest, left });
            });
        }
    }

    /// Has what is new about a policy sent. Nothing waits for it: a server that is slow to take a status must not keep a guest from coming back.
    fn tell(&mut self, standing: &Standing, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>) {
        let Some(known) = self.policies.get(&standing.policy) else { return };
        let now = self.http.clock().calendar();
        if let Some(news) = self.book.enter(&known.object, standing, now) {
            self.send(news, sender, tasks);
        }
    }

    /// Says on every policy that is known what is not: without it nothing can be judged.
    fn tell_unread(&mut self, words: &str, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>) {
        let now = self.http.clock().calendar();
        let entered =
            self.policies.values().filter_map(|known| self.book.enter_unread(&known.object, words, now));
        let news: Vec<status::News> = entered.collect();
        for news in news {
            self.send(news, sender, tasks);
        }
    }

    fn send(&self, news: status::News, sender: &mpsc::UnboundedSender<Input>, tasks: &mut JoinSet<()>) {
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
            .filter(|node| is_back(node, &owner(&self.http)) && !self.active.contains(&node.node.name))
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
                let _ = sender.send(Input::Ended { node, rest, left: None });
            });
        }
    }
}

fn failure<T>(report: &Report<T>) -> Option<&HttpError> {
    match report {
        Report::Failed { error, .. } => Some(error),
        _ => None,
    }
}

/// The node that a lease of a remediation operator is about. Its time is that of the calendar.
fn claimed(object: wire::Lease, clock: Clock) -> Option<(String, Lease)> {
    let node = object.metadata.name.strip_prefix("node-")?.to_owned();
    let mut lease = Lease::from(object);
    lease.renewed = lease.renewed.map(|at| clock.steady(at));
    Some((node, lease))
}
