//! The watches of the operator: which follow from its roles, each of them once. A kind that does not exist yet is asked for again until it does.
//!
//! Some are followed only once they matter: instances, migrations and budgets for the role maintenance, when there are such things on a node
//! under maintenance. The only objects that are watched twice are launcher pods on such nodes: a maintenance needs all pods of a few nodes, the
//! other roles some pods of all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evac_api::call::{named, on_node};
use evac_api::failover::SuspectNode;
use evac_api::failover::policy::PolicyObject;
use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::settings::HyperConverged;
use evac_api::kubevirt::wire::{self, Migrations};
use evac_api::kubevirt::{NAMESPACE, render, request};
use evac_api::maintenance::{self as wire_maintenance, review};
use evac_api::wire::{Budget, Lease, Node, Pod};
use evac_clock::Clock;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::failover::Suspect;
use evac_core::machines::slots::Ledger;
use evac_core::machines::{Kind, Role, Roles};
use evac_core::maintenance::vouched::{self, Reviewing};
use evac_core::maintenance::{Family, Maintenance, Seen};
use evac_core::{Fact, Sight};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::{failover, machines, maintenance, tenants};
use crate::http::Http;
use crate::watch::{self, Report, Source, follow};

/// What one watch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feed {
    /// All objects of a kind. Of pods those that run guests, of leases those by which nodes are claimed.
    Of(Kind),
    /// The configuration that has NodeMaintenance objects reviewed.
    Reviews,
}

impl Feed {
    /// What a role has to know before it decides anything.
    pub fn of(role: Role) -> &'static [Self] {
        match role {
            Role::Machines | Role::Evacuation | Role::Budget => &[
                Self::Of(Kind::Machine),
                Self::Of(Kind::Instance),
                Self::Of(Kind::ReplicaSet),
                Self::Of(Kind::Migration),
                Self::Of(Kind::Pod),
                Self::Of(Kind::Node),
                Self::Of(Kind::Budget),
            ],
            Role::Tenants => &[Self::Of(Kind::Instance), Self::Of(Kind::Machine), Self::Of(Kind::Migration)],
            Role::Maintenance => &[
                Self::Of(Kind::Maintenance(Family::KubeVirt)),
                Self::Of(Kind::Maintenance(Family::Medik8s)),
                Self::Of(Kind::Node),
                Self::Of(Kind::Lease),
                Self::Reviews,
            ],
            Role::Failover => &[Self::Of(Kind::Node), Self::Of(Kind::Lease), Self::Of(Kind::Policy)],
        }
    }

    /// What an operator with these roles follows. How many nodes there are bears on the settings, which every operator follows.
    pub fn needed(roles: &Roles) -> BTreeSet<Self> {
        let asked =
            Role::every().filter(|role| roles.has(*role)).flat_map(|role| Self::of(role).iter().copied());
        asked.chain([Self::Of(Kind::Node)]).collect()
    }

    /// For people.
    pub fn words(self) -> String {
        match self {
            Self::Of(Kind::Lease) => format!("the list of leases in {LEASE_NAMESPACE}"),
            Self::Of(Kind::Maintenance(family)) => format!("the list of nodemaintenances.{}", family.group()),
            Self::Of(kind) => format!("the list of {}", request::plural(kind)),
            Self::Reviews => format!("the webhook configuration {}", vouched::CONFIGURATION),
        }
    }
}

/// One observation: of the cluster, or of what only one role looks at.
pub(super) enum Word {
    Fact(Fact),
    /// A node with what tells whether it lives.
    Suspect(Box<Suspect>),
    Maintenance(Seen),
    Policy(Box<PolicyObject>),
    PolicyGone(String),
}

impl Word {
    /// What is to be said of something that was last seen so, and is gone.
    fn gone(self) -> Self {
        match self {
            Self::Fact(last) => Self::Fact(last.gone()),
            Self::Suspect(last) => Self::Fact(Fact::NodeGone(last.node.name, last.node.uid)),
            Self::Maintenance(Seen::Object(last)) => Self::Maintenance(Seen::ObjectGone(last.id, last.uid)),
            Self::Maintenance(Seen::Reviewing(_)) => reviewing(Reviewing::Absent),
            Self::Policy(last) => Self::PolicyGone(last.metadata.name),
            other @ (Self::Maintenance(_) | Self::PolicyGone(_)) => other,
        }
    }
}

#[allow(clippy::large_enum_variant, reason = "each lives for a moment")]
pub(super) enum Input {
    Listed(Feed, Vec<Word>, ListedAt),
    /// The pods of one node, which is under maintenance.
    PodsOn(String, Report<Fact>),
    Seen(Feed, Word),
    /// The server does not know this kind.
    Absent(Feed),
    /// It cannot be read now, and why; it is asked again. The server may have said so for good (`lasting`).
    Unread {
        feed: Feed,
        why: String,
        lasting: bool,
        /// There is no right to.
        denied: bool,
    },
    /// Settings cannot be read now, and why; `denied` where there is no right to.
    SettingUnread {
        place: &'static str,
        why: String,
        denied: bool,
    },
    Ledger(Ledger),
    /// The ledger as a list shows it.
    LedgerListed(Ledger),
    Setting(Setting),
    Machines(machines::Done),
    Tenants(tenants::Told),
    Maintenance(maintenance::Told),
    Failover(failover::Told),
}

/// One place that says how the cluster is set up.
pub(super) enum Setting {
    KubeVirt(Option<Box<wire::KubeVirt>>),
    Legacy(Option<Migrations>),
    HyperConverged(HyperConverged),
}

impl Setting {
    pub const PLACES: [&str; 3] = ["KubeVirt", "ConfigMap kubevirt-config", "HyperConverged"];

    pub fn place(&self) -> &'static str {
        let [kubevirt, legacy, hyperconverged] = Self::PLACES;
        match self {
            Self::KubeVirt(_) => kubevirt,
            Self::Legacy(_) => legacy,
            Self::HyperConverged(_) => hyperconverged,
        }
    }
}

/// How long to wait before asking again for a kind the server does not know.
const ABSENT: Duration = Duration::from_secs(5);
const PAGE: u32 = 500;

pub(super) type Sender = mpsc::UnboundedSender<Input>;

/// What is followed, and how much of it is known.
#[derive(Default)]
pub(super) struct Followed {
    following: BTreeSet<Feed>,
    /// Those whose first list is still missing.
    missing: BTreeSet<Feed>,
    /// Those that the server does not know: there is nothing to wait for.
    absent: BTreeSet<Feed>,
    /// Those that may not be read, and what the server said.
    denied: BTreeMap<Feed, String>,
}

impl Followed {
    pub fn contains(&self, feed: Feed) -> bool {
        self.following.contains(&feed)
    }

    /// Whether everything is there that a role decides on.
    pub fn suffices(&self, role: Role) -> bool {
        Feed::of(role).iter().all(|feed| !self.missing.contains(feed))
    }

    pub fn is_known(&self, feed: Feed) -> bool {
        self.contains(feed) && !self.missing.contains(&feed)
    }

    /// Whether as much is known as will be.
    pub fn is_settled(&self, feed: Feed) -> bool {
        !self.missing.contains(&feed) || self.denied.contains_key(&feed)
    }

    /// What the first decision waits for.
    pub fn awaited(&self) -> impl Iterator<Item = &Feed> {
        self.missing.difference(&self.absent)
    }

    pub fn listed(&mut self, feed: Feed) {
        self.missing.remove(&feed);
        self.absent.remove(&feed);
        self.denied.remove(&feed);
    }

    pub fn is_absent(&mut self, feed: Feed) {
        self.absent.insert(feed);
        self.denied.remove(&feed);
    }

    pub fn is_denied(&mut self, feed: Feed, why: &str) {
        self.denied.insert(feed, why.to_owned());
    }

    /// What can be seen of virtual machines, apart from the settings.
    pub fn sight(&self) -> Sight {
        let feeds = [Feed::Of(Kind::Instance), Feed::Of(Kind::Migration)];
        if feeds.iter().any(|feed| self.absent.contains(feed)) {
            return Sight::Absent;
        }
        if let Some(why) = feeds.iter().find_map(|feed| self.denied.get(feed)) {
            return Sight::Denied(why.clone());
        }
        let known = |feed: &Feed| self.following.contains(feed) && !self.missing.contains(feed);
        if feeds.iter().all(known) { Sight::Clear } else { Sight::Unlooked }
    }
}

/// Starts the watches, each of them once.
pub(super) struct Feeds<'a> {
    pub http: &'a Http,
    pub roles: &'a Roles,
    pub followed: &'a mut Followed,
    pub sender: &'a Sender,
    pub tasks: &'a mut JoinSet<()>,
}

impl Feeds<'_> {
    pub fn start(&mut self) {
        let roles = self.roles;
        for feed in Feed::needed(roles) {
            self.follow_once(feed);
        }
        self.settings();
        if Role::KUBEVIRT.iter().any(|role| roles.has(*role)) {
            self.ledger();
        }
    }

    /// Follows it from now on, if it is not followed already.
    pub fn follow_once(&mut self, feed: Feed) {
        if self.followed.following.insert(feed) {
            self.followed.missing.insert(feed);
            self.follow(feed);
        }
    }

    /// Follows the pods of one node until that is ended.
    pub fn pods_on(&mut self, node: &str) -> AbortHandle {
        let source = Source { query: on_node(node), ..whole(request::collection(Kind::Pod)) };
        let name = node.to_owned();
        let wrap = move |report: Report<Fact>| Input::PodsOn(name.clone(), report);
        let feed = watch::Feed::<Pod, Fact>::facts(source);
        self.tasks.spawn(follow_forever(self.http.clone(), feed, self.sender.clone(), wrap))
    }

    fn follow(&mut self, feed: Feed) {
        let clock = self.http.clock();
        match feed {
            Feed::Of(Kind::Machine) => self.objects::<wire::VirtualMachine>(""),
            Feed::Of(Kind::Instance) => self.objects::<wire::VirtualMachineInstance>(""),
            Feed::Of(Kind::ReplicaSet) => self.objects::<wire::ReplicaSet>(""),
            Feed::Of(Kind::Migration) => self.objects::<wire::Migration>(""),
            Feed::Of(Kind::Pod) => self.objects::<Pod>("labelSelector=kubevirt.io%3Dvirt-launcher"),
            Feed::Of(Kind::Node) if self.roles.has(Role::Failover) => self.words(
                feed,
                whole(request::collection(Kind::Node)),
                |node: &SuspectNode| node.metadata.resource_version.clone(),
                |node: SuspectNode| Some(Word::Suspect(Box::new(node.into()))),
            ),
            Feed::Of(Kind::Node) => self.objects::<Node>(""),
            Feed::Of(Kind::Policy) => self.words(
                feed,
                whole(request::collection(Kind::Policy)),
                |policy: &PolicyObject| policy.metadata.resource_version.clone(),
                |policy: PolicyObject| Some(Word::Policy(Box::new(policy))),
            ),
            // A drain asks for all of them, the role budget only for those that protect guests.
            Feed::Of(Kind::Budget) if self.roles.has(Role::Maintenance) => self.every::<Budget>(""),
            Feed::Of(Kind::Budget) => self.objects::<Budget>(""),
            Feed::Of(Kind::Lease) => self.words(
                feed,
                whole(request::in_namespace(Kind::Lease, LEASE_NAMESPACE)),
                |lease: &Lease| lease.metadata.resource_version.clone(),
                move |lease: Lease| Some(Word::Fact(Fact::Lease(Box::new(measured(lease, clock))))),
            ),
            Feed::Of(Kind::Maintenance(family)) => self.words(
                feed,
                whole(request::collection(Kind::Maintenance(family))),
                |object: &wire_maintenance::Object| object.metadata.resource_version.clone(),
                move |object: wire_maintenance::Object| {
                    Some(Word::Maintenance(Seen::Object(Box::new(observed(object, family, clock)))))
                },
            ),
            Feed::Reviews => self.words(
                feed,
                Source {
                    query: named(vouched::CONFIGURATION),
                    ..whole("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations".into())
                },
                |found: &review::Written| found.metadata.resource_version.clone(),
                |found: review::Written| Some(reviewing(Reviewing::By(found.into()))),
            ),
        }
    }

    fn objects<T>(&mut self, query: &str)
    where
        T: Follow + DeserializeOwned + Clone + Send + Sync + 'static,
    {
        let fact = watch::facts::<T>();
        let seen = move |object: T| if object.concerns_us() { fact(object).map(Word::Fact) } else { None };
        self.words_of(query, seen);
    }

    fn every<T>(&mut self, query: &str)
    where
        T: Follow + DeserializeOwned + Clone + Send + Sync + 'static,
    {
        let fact = watch::facts::<T>();
        self.words_of(query, move |object: T| fact(object).map(Word::Fact));
    }

    fn words_of<T>(&mut self, query: &str, seen: impl Fn(T) -> Option<Word> + Send + Sync + 'static)
    where
        T: Follow + DeserializeOwned + Clone + Send + Sync + 'static,
    {
        let source = Source { query: query.to_owned(), ..whole(request::collection(T::KIND)) };
        self.words(Feed::Of(T::KIND), source, |object| object.metadata().resource_version.clone(), seen);
    }

    /// Follows what becomes words of one feed; nothing where an object does not concern us.
    fn words<T>(
        &mut self,
        feed: Feed,
        source: Source,
        version_of: fn(&T) -> String,
        seen: impl Fn(T) -> Option<Word> + Send + Sync + 'static,
    ) where
        T: DeserializeOwned + Clone + Send + Sync + 'static,
    {
        let wrap = move |report: Report<Word>| match report {
            Report::Listed(list, at) => Some(Input::Listed(feed, list, at)),
            Report::Seen(word) => Some(Input::Seen(feed, word)),
            Report::Gone(last) => Some(Input::Seen(feed, last.gone())),
            Report::Failed { error, .. } if error.is_not_found() => Some(Input::Absent(feed)),
            // Without the right to read it the role goes on, and believes no permission.
            Report::Failed { error, .. } if feed == Feed::Reviews && error.is_forbidden() => {
                Some(Input::Listed(feed, vec![reviewing(Reviewing::Unread)], ListedAt::default()))
            }
            Report::Failed { error, final_ } => {
                tracing::warn!(what = feed.words(), %error, "cannot be read");
                let denied = error.is_forbidden();
                Some(Input::Unread { feed, why: error.to_string(), lasting: final_, denied })
            }
        };
        self.pass_on(watch::Feed::kept(source, version_of, seen), wrap);
    }

    /// Follows a value of which the last state counts: seen, or gone.
    fn last_word<T>(
        &mut self,
        place: Option<&'static str>,
        source: Source,
        version_of: fn(&T) -> String,
        read: impl Fn(Option<&T>, How) -> Input + Send + Sync + 'static,
    ) where
        T: DeserializeOwned + Clone + Send + Sync + 'static,
    {
        let wrap = move |report: Report<T>| match report {
            Report::Listed(list, _) => Some(read(list.first(), How::Listed)),
            Report::Seen(object) => Some(read(Some(&object), How::Event)),
            Report::Gone(_) => Some(read(None, How::Event)),
            // A kind that is not there says nothing, which is an answer, too.
            Report::Failed { error, .. } if error.is_not_found() => Some(read(None, How::Listed)),
            Report::Failed { error, .. } => place.map(|place| Input::SettingUnread {
                place,
                why: error.to_string(),
                denied: error.is_forbidden(),
            }),
        };
        self.pass_on(watch::Feed::whole(source, version_of), wrap);
    }

    fn pass_on<W, T>(
        &mut self,
        feed: watch::Feed<W, T>,
        wrap: impl Fn(Report<T>) -> Option<Input> + Send + Sync + 'static,
    ) where
        W: DeserializeOwned + Clone + Send + 'static,
        T: Send + 'static,
    {
        let (reports, mut inbox) = mpsc::unbounded_channel();
        self.tasks.spawn(follow_forever(self.http.clone(), feed, reports, wrap));
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            while let Some(input) = inbox.recv().await {
                if let Some(input) = input
                    && sender.send(input).is_err()
                {
                    return;
                }
            }
        });
    }

    fn settings(&mut self) {
        let [kubevirt, legacy, hyperconverged] = Setting::PLACES.map(Some);
        self.last_word(
            kubevirt,
            whole("/apis/kubevirt.io/v1/kubevirts".into()),
            |object: &wire::KubeVirt| object.metadata.resource_version.clone(),
            |object: Option<&wire::KubeVirt>, _| {
                Input::Setting(Setting::KubeVirt(object.cloned().map(Box::new)))
            },
        );
        self.last_word(
            legacy,
            one_map("kubevirt-config"),
            map_version,
            |map: Option<&wire::ConfigMap>, _| {
                let text = map.and_then(|map| map.data.get("migrations"));
                // An unreadable text is ignored, as an unknown setting is.
                Input::Setting(Setting::Legacy(text.and_then(|text| serde_saphyr::from_str(text).ok())))
            },
        );
        self.last_word(
            hyperconverged,
            whole("/apis/hco.kubevirt.io/v1beta1/hyperconvergeds".into()),
            |object: &Value| {
                object
                    .pointer("/metadata/resourceVersion")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            },
            |object: Option<&Value>, _| Input::Setting(Setting::HyperConverged(HyperConverged::of(object))),
        );
    }

    fn ledger(&mut self) {
        self.last_word(None, one_map(render::LEDGER), map_version, |map: Option<&wire::ConfigMap>, how| {
            let ledger = map.map(render::read_ledger).unwrap_or_default();
            match how {
                How::Listed => Input::LedgerListed(ledger),
                How::Event => Input::Ledger(ledger),
            }
        });
    }
}

/// How a value came to be known: what a list says holds whatever was known before.
enum How {
    Listed,
    Event,
}

/// Watches whole objects for ever: few, or small ones.
pub(super) async fn forever<T, M>(
    http: Http,
    source: Source,
    sender: mpsc::UnboundedSender<M>,
    wrap: impl Fn(Report<T>) -> M,
    version_of: fn(&T) -> String,
) where
    T: DeserializeOwned + Clone + Send + 'static,
{
    follow_forever(http, watch::Feed::whole(source, version_of), sender, wrap).await;
}

/// Watches for ever; `follow` ends when the server says that there is no such kind.
pub(super) async fn follow_forever<W, T, M>(
    http: Http,
    feed: watch::Feed<W, T>,
    sender: mpsc::UnboundedSender<M>,
    wrap: impl Fn(Report<T>) -> M,
) where
    W: DeserializeOwned + Clone + Send + 'static,
{
    while !sender.is_closed() {
        follow(http.clone(), feed.clone(), sender.clone(), &wrap).await;
        http.clock().sleep(ABSENT).await;
    }
}

fn whole(path: String) -> Source {
    Source { path: path.into(), query: String::new(), page: PAGE }
}

fn one_map(name: &str) -> Source {
    Source { path: format!("/api/v1/namespaces/{NAMESPACE}/configmaps").into(), query: named(name), page: 0 }
}

fn map_version(map: &wire::ConfigMap) -> String {
    map.metadata.resource_version.clone()
}

fn reviewing(how: Reviewing) -> Word {
    Word::Maintenance(Seen::Reviewing(how))
}

/// An object with the times of its status on the clock by which it is judged. They were written by the calendar, for others to read.
pub(super) fn observed(object: wire_maintenance::Object, family: Family, clock: Clock) -> Maintenance {
    let mut seen = object.of(family);
    seen.status = seen.status.shifted(-clock.ahead());
    seen
}

/// A lease with its time on the clock by which it is judged. It was written by the calendar, for others to read.
pub(super) fn measured(lease: Lease, clock: Clock) -> evac_core::Lease {
    let mut lease = evac_core::Lease::from(lease);
    lease.renewed = lease.renewed.map(|at| clock.steady(at));
    lease
}
