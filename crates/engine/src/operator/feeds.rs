//! The watches of the operator: which follow from its roles, each of them once. A kind that does not exist yet is asked for again until it does.

use std::collections::BTreeSet;
use std::time::Duration;

use evac_api::call::named;
use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::settings::HyperConverged;
use evac_api::kubevirt::wire::{self, Configuration, Migrations};
use evac_api::kubevirt::{NAMESPACE, render, request};
use evac_api::maintenance::{self as wire_maintenance, review};
use evac_api::wire::{Budget, Lease, Node, Pod};
use evac_clock::Clock;
use evac_core::Fact;
use evac_core::cluster::index::ListedAt;
use evac_core::drain::ownership::LEASE_NAMESPACE;
use evac_core::machines::slots::Ledger;
use evac_core::machines::{Kind, Role, Roles};
use evac_core::maintenance::vouched::{self, Reviewing};
use evac_core::maintenance::{Family, Maintenance, Seen};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{machines, maintenance, tenants};
use crate::http::Http;
use crate::watch::{self, Report, Source, follow};

/// What one watch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Feed {
    /// All objects of a kind. Of pods those that run guests, of leases those by which nodes are claimed.
    Of(Kind),
    /// NodeMaintenance objects.
    Objects(Family),
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
                Self::Objects(Family::KubeVirt),
                Self::Objects(Family::Medik8s),
                Self::Of(Kind::Node),
                Self::Of(Kind::Lease),
                Self::Reviews,
            ],
            Role::Failover => &[],
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
            Self::Of(kind) => format!("the list of {}", request::plural(kind)),
            Self::Objects(family) => format!("the list of nodemaintenances.{}", family.group()),
            Self::Reviews => format!("the webhook configuration {}", vouched::CONFIGURATION),
        }
    }
}

/// One observation: of the cluster, or of what only the role maintenance looks at.
pub(super) enum Word {
    Fact(Fact),
    Maintenance(Seen),
}

impl Word {
    /// What is to be said of something that was last seen so, and is gone.
    fn gone(self) -> Self {
        match self {
            Self::Fact(last) => Self::Fact(last.gone()),
            Self::Maintenance(Seen::Object(last)) => Self::Maintenance(Seen::ObjectGone(last.id, last.uid)),
            Self::Maintenance(Seen::Reviewing(_)) => reviewing(Reviewing::Absent),
            other => other,
        }
    }
}

pub(super) enum Input {
    Listed(Feed, Vec<Word>, ListedAt),
    Seen(Feed, Word),
    /// The server does not know this kind.
    Absent(Feed),
    /// It cannot be read now, and why; it is asked again.
    Unread(Feed, String),
    Ledger(Ledger),
    /// The ledger as a list shows it.
    LedgerListed(Ledger),
    Setting(Setting),
    Machines(machines::Done),
    Tenants(tenants::Told),
    Maintenance(maintenance::Told),
}

/// One place that says how the cluster is set up.
pub(super) enum Setting {
    KubeVirt(Option<Configuration>),
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

/// Starts the watches.
pub(super) struct Feeds<'a> {
    pub http: &'a Http,
    pub sender: &'a Sender,
    pub tasks: &'a mut JoinSet<()>,
}

impl Feeds<'_> {
    pub fn start(&mut self, roles: &Roles) {
        for feed in Feed::needed(roles) {
            self.follow(feed);
        }
        self.settings();
        if Role::KUBEVIRT.iter().any(|role| roles.has(*role)) {
            self.ledger();
        }
    }

    fn follow(&mut self, feed: Feed) {
        let clock = self.http.clock();
        match feed {
            Feed::Of(Kind::Machine) => self.objects::<wire::VirtualMachine>(""),
            Feed::Of(Kind::Instance) => self.objects::<wire::VirtualMachineInstance>(""),
            Feed::Of(Kind::ReplicaSet) => self.objects::<wire::ReplicaSet>(""),
            Feed::Of(Kind::Migration) => self.objects::<wire::Migration>(""),
            Feed::Of(Kind::Pod) => self.objects::<Pod>("labelSelector=kubevirt.io%3Dvirt-launcher"),
            Feed::Of(Kind::Node) => self.objects::<Node>(""),
            Feed::Of(Kind::Budget) => self.objects::<Budget>(""),
            Feed::Of(Kind::Lease) => self.words(
                feed,
                whole(request::in_namespace(Kind::Lease, LEASE_NAMESPACE)),
                |lease: &Lease| lease.metadata.resource_version.clone(),
                move |lease: Lease| Some(Word::Fact(Fact::Lease(Box::new(measured(lease, clock))))),
            ),
            Feed::Objects(family) => self.words(
                feed,
                whole(wire_maintenance::request::collection(family)),
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
        let source = Source { query: query.to_owned(), ..whole(request::collection(T::KIND)) };
        let fact = watch::facts::<T>();
        let seen = move |object: T| if object.concerns_us() { fact(object).map(Word::Fact) } else { None };
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
            Report::Failed { error, .. } => {
                tracing::warn!(what = feed.words(), %error, "cannot be read");
                Some(Input::Unread(feed, error.to_string()))
            }
        };
        self.pass_on(watch::Feed::kept(source, version_of, seen), wrap);
    }

    /// Follows a value of which the last state counts: seen, or gone.
    fn last_word<T>(
        &mut self,
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
            Report::Failed { .. } => None,
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
        self.last_word(
            whole("/apis/kubevirt.io/v1/kubevirts".into()),
            |object: &wire::KubeVirt| object.metadata.resource_version.clone(),
            |object: Option<&wire::KubeVirt>, _| {
                Input::Setting(Setting::KubeVirt(object.map(|object| object.spec.configuration.clone())))
            },
        );
        self.last_word(one_map("kubevirt-config"), map_version, |map: Option<&wire::ConfigMap>, _| {
            let text = map.and_then(|map| map.data.get("migrations"));
            // An unreadable text is ignored, as an unknown setting is.
            Input::Setting(Setting::Legacy(text.and_then(|text| serde_saphyr::from_str(text).ok())))
        });
        self.last_word(
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
        self.last_word(one_map(render::LEDGER), map_version, |map: Option<&wire::ConfigMap>, how| {
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
