//! The role `failover`: asks the core about nodes and policies, and keeps one failover per node under way.
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

use evac_api::failover::KUBELET_LEASES;
use evac_api::failover::policy::PolicyObject;
use evac_api::wire;
use evac_clock::Clock;
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::drain::quorum::is_control_plane;
use evac_core::drain::unread::{Unread, Word};
use evac_core::failover::leftovers::is_back;
use evac_core::failover::policy::Agent as AgentPolicy;
use evac_core::failover::watchman::{Standing, Verdict, View, Watchman};
use evac_core::failover::{AgentError, FailoverPolicy, KubeletLease, PolicyError, Proof, Silence, Suspect};
use evac_core::machines::{Kind, Role, Roles, Subject};
use evac_core::{Index, Lease};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::job::Job;
pub use self::programs::programs;
use super::control_loop::{Loop, Means};
use super::feeds::{Feed, Input, Sender, forever};
use super::hands::Hands;
use super::pulse::Question;
use crate::failover::PowerSwitch;
use crate::http::Http;
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

/// What the role's own tasks and watches tell it.
#[allow(clippy::large_enum_variant, reason = "each lives for a moment")]
pub(in crate::operator) enum Told {
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
    Sent {
        policy: String,
        taken: bool,
    },
}

/// A policy as it was read.
struct Known {
    object: PolicyObject,
    policy: Result<FailoverPolicy, PolicyError>,
}

pub(in crate::operator) struct Failover {
    http: Http,
    switches: Switches,
    stop: CancellationToken,
    nodes: BTreeMap<String, Suspect>,
    /// What was seen of them, by our own clock.
    silences: BTreeMap<String, Silence>,
    policies: BTreeMap<String, Known>,
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
    /// Ends the watch of the kubelets' leases when it is dropped.
    listening: Option<DropGuard>,
    members: etcd::Members,
    book: status::Book,
    alarm: Option<Timestamp>,
    /// Something of what is judged has changed since the last look, or how much of it is known, or who leads.
    touched: bool,
    looked: (bool, bool),
}

/// Runs an operator that has no other role until `stop`, with these switches. Acts while the gate of `http` is open.
pub async fn run(
    http: Http,
    switches: Switches,
    stop: CancellationToken,
    questions: mpsc::Receiver<Question>,
) {
    let state =
        Loop::new(http, Roles::of([Role::Failover]), Means { switches, ..Means::default() }, stop.clone());
    state.run(stop, questions, mpsc::channel(1).1).await;
}

fn source(path: &'static str) -> Source {
    Source { path: path.into(), query: String::new(), page: 500 }
}

fn lease_version(lease: &wire::Lease) -> String {
    lease.metadata.resource_version.clone()
}

impl Failover {
    pub fn new(http: Http, switches: Switches, stop: CancellationToken) -> Self {
        Self {
            http,
            switches,
            stop,
            nodes: BTreeMap::new(),
            silences: BTreeMap::new(),
            policies: BTreeMap::new(),
            unread: None,
            unread_lists: Unread::default(),
            watchman: Watchman::default(),
            active: BTreeSet::new(),
            returning: BTreeSet::new(),
            resting: BTreeMap::new(),
            left: BTreeMap::new(),
            listening: None,
            members: etcd::Members::default(),
            book: status::Book::default(),
            alarm: None,
            touched: true,
            looked: (false, false),
        }
    }

    pub fn queues(&self) -> Queues {
        Queues { acting: self.active.len() + self.returning.len(), ..Queues::default() }
    }

    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.alarm
    }

    pub fn can_read(&mut self, feed: Feed) {
        self.touched = true;
        match feed {
            Feed::Of(Kind::Lease) => self.unread = None,
            Feed::Of(Kind::Node) => drop(self.unread_lists.read("nodes")),
            Feed::Of(Kind::Policy) => drop(self.unread_lists.read("failoverpolicies")),
            _ => {}
        }
    }

    /// A list cannot be read; `lasting` where the server said so for good.
    pub fn cannot_read(&mut self, feed: Feed, why: &str, lasting: bool) {
        self.touched = true;
        let now = self.http.clock().now();
        match feed {
            // Where there is no right to see who claims nodes, nobody knows.
            Feed::Of(Kind::Lease) if lasting => self.unread = Some(why.to_owned()),
            Feed::Of(Kind::Node) => self.unread_lists.failed("nodes", why, now),
            Feed::Of(Kind::Policy) => self.unread_lists.failed("failoverpolicies", why, now),
            _ => {}
        }
    }

    /// A fresh list of nodes.
    pub fn list_nodes(&mut self, list: Vec<Suspect>) {
        let mut before = std::mem::take(&mut self.nodes);
        for suspect in list {
            let lease = before.remove(&suspect.node.name).and_then(|node| node.lease);
            self.put(suspect, lease);
        }
        self.silences.retain(|name, _| self.nodes.contains_key(name));
    }

    pub fn see_node(&mut self, suspect: Suspect) {
        let lease = self.nodes.get(&suspect.node.name).and_then(|node| node.lease.clone());
        self.put(suspect, lease);
    }

    /// Nodes that are not in the index any more are gone.
    pub fn hear(&mut self, index: &Index, touched: &BTreeSet<Subject>) {
        for Subject { kind, key } in touched {
            self.touched |= matches!(kind, Kind::Node | Kind::Lease);
            if *kind == Kind::Node && index.node(&key.name).is_none() {
                self.nodes.remove(key.name.as_str());
                self.silences.remove(key.name.as_str());
            }
        }
    }

    pub fn list_policies(&mut self, list: Vec<PolicyObject>) {
        self.policies.clear();
        for object in list {
            self.learn(object);
        }
    }

    pub fn end_policy(&mut self, name: &str) {
        self.policies.remove(name);
        self.book.forget(name);
    }

    /// Takes note of whether the kubelets' leases can be read.
    fn note_reading(&mut self, report: &Report<wire::Lease>, now: Timestamp) {
        let what = "leases of kubelets";
        match report {
            Report::Failed { error, .. } if !error.is_not_found() => {
                tracing::warn!(what, %error, "cannot be read");
                self.unread_lists.failed(what, &error.to_string(), now);
            }
            _ => drop(self.unread_lists.read(what)),
        }
    }

    pub fn take(&mut self, told: Told) {
        self.touched = true;
        let now = self.http.clock().now();
        if let Told::Kubelet(report) = &told {
            self.note_reading(report, now);
        }
        match told {
            Told::Kubelet(Report::Listed(list, _)) => {
                for lease in list {
                    self.renew(lease, now);
                }
                // From now on the leases are watched, also of nodes that have none yet.
                for (name, node) in &self.nodes {
                    self.silences.entry(name.clone()).or_default().see_lease(node, now);
                }
            }
            Told::Kubelet(Report::Seen(lease)) => {
                if self.renew(lease, now) {
                    self.watchman.sight.sign(now);
                }
            }
            Told::Kubelet(Report::Gone(_) | Report::Failed { .. }) => {}
            Told::Etcd { round, place, report } => self.members.take(round, place, report),
            Told::Ended { node, rest, left } => {
                self.active.remove(&node);
                self.returning.remove(&node);
                match left {
                    Some(left) => drop(self.left.insert(node.clone(), left)),
                    None => drop(self.left.remove(&node)),
                }
                self.resting.insert(node, now.checked_add(rest).unwrap_or(Timestamp::MAX));
            }
            Told::Sent { policy, taken } => self.book.sent(&policy, taken),
        }
    }

    fn put(&mut self, suspect: Suspect, lease: Option<KubeletLease>) {
        let suspect = Suspect { lease, ..suspect };
        let name = suspect.node.name.clone();
        let now = self.http.clock().now();
        self.silences.entry(name.clone()).or_default().see_node(&suspect, now);
        self.nodes.insert(name, suspect);
    }

    pub fn learn(&mut self, object: PolicyObject) {
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

    /// Asks the core about everything and begins what is to be begun.
    pub fn look(&mut self, index: &Index, knows: bool, hands: &mut Hands<'_>) {
        let now = self.http.clock().now();
        let looked = std::mem::replace(&mut self.looked, (knows, self.http.gate().is_open(now)));
        let is_due = self.alarm.is_some_and(|at| at <= now);
        if std::mem::take(&mut self.touched) || is_due || looked != self.looked {
            self.alarm = self.judge(index, knows, hands);
        }
    }

    /// Says when to look again.
    fn judge(&mut self, index: &Index, knows: bool, hands: &mut Hands<'_>) -> Option<Timestamp> {
        let now = self.http.clock().now();
        let (unread, told_at) = match self.unread_lists.word(now, self.http.clock().ahead()) {
            Word::Nothing => (None, None),
            Word::Later(at) => (None, Some(at)),
            Word::Now(words) => (Some(words), None),
        };
        if !knows {
            if let Some(words) = unread.filter(|_| self.http.gate().is_open(now)) {
                self.tell_unread(&words, hands);
            }
            return told_at;
        }
        self.listen(hands.sender);
        let plane_is_down = self.down().any(|node| is_control_plane(&node.node));
        self.members.follow(&self.http, plane_is_down, hands.sender);
        if !self.http.gate().is_open(now) {
            return None;
        }
        let ahead = self.http.clock().ahead();
        self.silences.values_mut().for_each(|silence| silence.ahead = ahead);
        let policies: BTreeMap<String, Result<FailoverPolicy, PolicyError>> =
            self.policies.iter().map(|(name, known)| (name.clone(), self.usable(known))).collect();
        let etcd = self.members.etcd();
        let owner = owner(&self.http);
        let leases = claimed(index);
        let view = View {
            nodes: &self.nodes,
            silences: &self.silences,
            policies: &policies,
            leases: &leases,
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
            self.begin(standing, hands);
            self.tell(&standing.on_calendar(ahead), hands);
        }
        self.give_back(hands, now);
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
    fn listen(&mut self, sender: &Sender) {
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
                |report| Input::Failover(Told::Kubelet(report)),
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

    fn begin(&mut self, standing: &Standing, hands: &mut Hands<'_>) {
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
            let (sender, stop, node) = (hands.sender.clone(), self.stop.clone(), node.clone());
            hands.tasks.spawn(async move {
                let (rest, left) = Box::pin(job.carry_out(&stop)).await;
                // The loop may have ended meanwhile.
                let _ = sender.send(Input::Failover(Told::Ended { node, rest, left }));
            });
        }
    }

    /// Has what is new about a policy sent. Nothing waits for it: a server that is slow to take a status must not keep a guest from coming back.
    fn tell(&mut self, standing: &Standing, hands: &mut Hands<'_>) {
        let Some(known) = self.policies.get(&standing.policy) else { return };
        let now = self.http.clock().calendar();
        if let Some(news) = self.book.enter(&known.object, standing, now) {
            self.send(news, hands);
        }
    }

    /// Says on every policy that is known what is not: without it nothing can be judged.
    fn tell_unread(&mut self, words: &str, hands: &mut Hands<'_>) {
        let now = self.http.clock().calendar();
        let entered =
            self.policies.values().filter_map(|known| self.book.enter_unread(&known.object, words, now));
        let news: Vec<status::News> = entered.collect();
        for news in news {
            self.send(news, hands);
        }
    }

    fn send(&self, news: status::News, hands: &mut Hands<'_>) {
        let (http, sender) = (self.http.clone(), hands.sender.clone());
        hands.tasks.spawn(async move {
            let taken = news.send(&http).await;
            if !taken {
                http.clock().sleep(TELL_AGAIN).await;
            }
            let _ = sender.send(Input::Failover(Told::Sent { policy: news.policy, taken }));
        });
    }

    /// Nodes of ours that are Ready again are looked at, and given back if nothing speaks against it.
    fn give_back(&mut self, hands: &mut Hands<'_>, now: Timestamp) {
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
            let (http, sender) = (self.http.clone(), hands.sender.clone());
            hands.tasks.spawn(async move {
                let done = back::give_back(&http, &suspect).await;
                // What was just written is in the view a moment later.
                let rest = if done { SHORT_REST } else { REST };
                let _ = sender.send(Input::Failover(Told::Ended { node, rest, left: None }));
            });
        }
    }
}

/// The leases of remediation operators, by the node that each is about.
fn claimed(index: &Index) -> BTreeMap<String, Lease> {
    let leases = index.leases().filter(|lease| lease.key.namespace == LEASE_NAMESPACE);
    leases
        .filter_map(|lease| Some((lease.key.name.strip_prefix("node-")?.to_owned(), lease.clone())))
        .collect()
}
