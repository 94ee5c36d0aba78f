//! The watches of the operator. A kind that does not exist yet is asked for again until it does.

use std::time::Duration;

use evac_api::call::named;
use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::settings::HyperConverged;
use evac_api::kubevirt::wire::{self, Configuration, Migrations};
use evac_api::kubevirt::{NAMESPACE, render};
use evac_api::wire::{Budget, Node, Pod};
use evac_core::Fact;
use evac_core::cluster::index::ListedAt;
use evac_core::machines::Kind;
use evac_core::machines::slots::Ledger;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::perform::Done;
use crate::http::Http;
use crate::watch::{Feed, Report, Source, follow};

pub(super) enum Input {
    Listed(Kind, Vec<Fact>, ListedAt),
    /// The server does not know this kind.
    Absent(Kind),
    Seen(Fact),
    Ledger(Ledger),
    /// The ledger as a list shows it.
    LedgerListed(Ledger),
    Setting(Setting),
    Done(Done),
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

/// Kinds that have to be known before the first decision.
pub(super) const FOLLOWED: [Kind; 7] =
    [Kind::Machine, Kind::Instance, Kind::ReplicaSet, Kind::Migration, Kind::Pod, Kind::Node, Kind::Budget];

/// How long to wait before asking again for a kind the server does not know.
const ABSENT: Duration = Duration::from_secs(5);
const PAGE: u32 = 500;

type Sender = mpsc::UnboundedSender<Input>;

pub(super) fn start(http: &Http, sender: &Sender, tasks: &mut JoinSet<()>) {
    subjects::<wire::VirtualMachine>(http, sender, tasks, "/apis/kubevirt.io/v1/virtualmachines", "");
    subjects::<wire::VirtualMachineInstance>(
        http,
        sender,
        tasks,
        "/apis/kubevirt.io/v1/virtualmachineinstances",
        "",
    );
    subjects::<wire::ReplicaSet>(
        http,
        sender,
        tasks,
        "/apis/kubevirt.io/v1/virtualmachineinstancereplicasets",
        "",
    );
    subjects::<wire::Migration>(
        http,
        sender,
        tasks,
        "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
        "",
    );
    subjects::<Pod>(http, sender, tasks, "/api/v1/pods", "labelSelector=kubevirt.io%3Dvirt-launcher");
    subjects::<Node>(http, sender, tasks, "/api/v1/nodes", "");
    subjects::<Budget>(http, sender, tasks, "/apis/policy/v1/poddisruptionbudgets", "");
    settings(http, sender, tasks);
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
    follow_forever(http, Feed::whole(source, version_of), sender, wrap).await;
}

/// Watches for ever; `follow` ends when the server says that there is no such kind.
pub(super) async fn follow_forever<W, T, M>(
    http: Http,
    feed: Feed<W, T>,
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

fn subjects<T>(http: &Http, sender: &Sender, tasks: &mut JoinSet<()>, path: &'static str, query: &str)
where
    T: Follow + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let source = Source { path: path.into(), query: query.to_owned(), page: PAGE };
    let (reports, mut inbox) = mpsc::unbounded_channel::<Report<Fact>>();
    let feed = Feed::<T, Fact>::facts_where(source, T::concerns_us);
    tasks.spawn(follow_forever(http.clone(), feed, reports, |report| report));
    let sender = sender.clone();
    tasks.spawn(async move {
        while let Some(report) = inbox.recv().await {
            let input = match report {
                Report::Listed(list, at) => Input::Listed(T::KIND, list, at),
                Report::Seen(fact) => Input::Seen(fact),
                Report::Gone(last) => Input::Seen(last.gone()),
                Report::Failed { error, .. } if error.is_not_found() => Input::Absent(T::KIND),
                Report::Failed { error, .. } => {
                    tracing::debug!(path, %error, "cannot be read yet");
                    continue;
                }
            };
            if sender.send(input).is_err() {
                return;
            }
        }
    });
}

/// How a value came to be known: what a list says holds whatever was known before.
enum Word {
    Listed,
    Event,
}

/// A value of which the last state counts: seen, or gone.
fn last_word<T, R>(
    http: &Http,
    sender: &Sender,
    tasks: &mut JoinSet<()>,
    source: Source,
    version_of: fn(&T) -> String,
    read: R,
) where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
    R: Fn(Option<&T>, Word) -> Input + Send + 'static,
{
    let (reports, mut inbox) = mpsc::unbounded_channel::<Report<T>>();
    let http = http.clone();
    tasks.spawn(async move { forever(http, source, reports, |report| report, version_of).await });
    let sender = sender.clone();
    tasks.spawn(async move {
        while let Some(report) = inbox.recv().await {
            let input = match report {
                Report::Listed(list, _) => read(list.first(), Word::Listed),
                Report::Seen(object) => read(Some(&object), Word::Event),
                Report::Gone(_) => read(None, Word::Event),
                // A kind that is not there says nothing, which is an answer, too.
                Report::Failed { error, .. } if error.is_not_found() => read(None, Word::Listed),
                Report::Failed { .. } => continue,
            };
            if sender.send(input).is_err() {
                return;
            }
        }
    });
}

fn settings(http: &Http, sender: &Sender, tasks: &mut JoinSet<()>) {
    let everything = |path: &'static str| Source { path: path.into(), query: String::new(), page: PAGE };
    let one = |name: &str| Source {
        path: format!("/api/v1/namespaces/{NAMESPACE}/configmaps").into(),
        query: named(name),
        page: 0,
    };
    let version = |map: &wire::ConfigMap| map.metadata.resource_version.clone();
    last_word(
        http,
        sender,
        tasks,
        everything("/apis/kubevirt.io/v1/kubevirts"),
        |object: &wire::KubeVirt| object.metadata.resource_version.clone(),
        |object: Option<&wire::KubeVirt>, _| {
            Input::Setting(Setting::KubeVirt(object.map(|object| object.spec.configuration.clone())))
        },
    );
    last_word(http, sender, tasks, one("kubevirt-config"), version, |map: Option<&wire::ConfigMap>, _| {
        let text = map.and_then(|map| map.data.get("migrations"));
        // An unreadable text is ignored, as an unknown setting is.
        Input::Setting(Setting::Legacy(text.and_then(|text| serde_saphyr::from_str(text).ok())))
    });
    last_word(http, sender, tasks, one(render::LEDGER), version, |map: Option<&wire::ConfigMap>, word| {
        let ledger = map.map(render::read_ledger).unwrap_or_default();
        match word {
            Word::Listed => Input::LedgerListed(ledger),
            Word::Event => Input::Ledger(ledger),
        }
    });
    last_word(
        http,
        sender,
        tasks,
        everything("/apis/hco.kubevirt.io/v1beta1/hyperconvergeds"),
        |object: &Value| {
            object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
        },
        |object: Option<&Value>, _| Input::Setting(Setting::HyperConverged(HyperConverged::of(object))),
    );
}
