//! The whole cluster at one moment, for a plan: every node, pod, budget and virtual machine, each kind read once.
//!
//! What may not be read is not passed over: it is told with what an answer misses without it. Without nodes or pods there is no answer.

use std::collections::BTreeSet;

use evac_api::kubevirt::wire as kubevirt;
use evac_api::places::{self, PlacesReader, keep_host_models};
use evac_api::snapshot::Gap;
use evac_api::{Project, wire};
use evac_core::cluster::fact::Existence;
use evac_core::cluster::index::ListedAt;
use evac_core::cluster::place::Places;
use evac_core::machines::Kind;
use evac_core::{Fact, Index, Key, Pod, VmRole, VmVisibility};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::guests::{INSTANCES, MIGRATIONS, machines_that_matter, read_machines, settings};
use crate::http::{Http, HttpError};
use crate::nodes;
use crate::watch::{Source, facts, list};

/// One object, read for its fact and for what it means for places.
struct Twice<A, B>(A, B);

impl<'de, A: DeserializeOwned, B: DeserializeOwned> Deserialize<'de> for Twice<A, B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let value = serde_json::Value::deserialize(deserializer)?;
        let first = A::deserialize(&value).map_err(D::Error::custom)?;
        let second = B::deserialize(&value).map_err(D::Error::custom)?;
        Ok(Self(first, second))
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("could not read {what}")]
pub struct WholeError {
    /// What could not be read.
    pub what: &'static str,
    /// The answer of the server.
    #[source]
    pub source: HttpError,
}

fn all(path: &'static str) -> Source {
    Source { path: path.into(), query: String::new(), page: 500 }
}

async fn read<W: Project + DeserializeOwned>(
    http: &Http,
    path: &'static str,
) -> Result<(Vec<Fact>, ListedAt), HttpError> {
    let (found, version) = list(http, &all(path), facts::<W>()).await?;
    Ok((found, ListedAt { version, rewound: false }))
}

/// Everything that a plan looks at. With `leaving` only what pods on these nodes ask for is kept: others do not move.
pub async fn look(http: &Http, leaving: Option<&[String]>) -> Result<(Index, Vec<Gap>), WholeError> {
    let mut index = Index::new();
    let mut unread = Vec::new();
    let places = nodes_and_pods(http, &mut index, leaving).await?;
    match read::<wire::Budget>(http, "/apis/policy/v1/poddisruptionbudgets").await {
        Ok((budgets, at)) => drop(index.reset(Kind::Budget, budgets, &at)),
        Err(source) if source.is_forbidden() => unread.push(Gap::new(
            "poddisruptionbudgets",
            "whether a budget keeps a pod, and which can never be met",
            source.to_string(),
        )),
        Err(source) => return Err(WholeError { what: "poddisruptionbudgets", source }),
    }
    daemon_sets(http, &mut index, &mut unread).await;
    guests(http, &mut index, &mut unread).await?;
    with_places(&mut index, places);
    Ok((index, unread))
}

fn with_places(index: &mut Index, mut places: Places) {
    keep_host_models(&mut places, index, index.launchers());
    index.set_places(places);
}

async fn nodes_and_pods(
    http: &Http,
    index: &mut Index,
    leaving: Option<&[String]>,
) -> Result<Places, WholeError> {
    let mut reader = PlacesReader::new(leaving);
    let no = |what| move |source| WholeError { what, source };
    let fact = facts::<wire::Node>();
    let both = |Twice(node, place): Twice<wire::Node, places::Node>| Some((fact(node)?, place));
    let (nodes, version) = list(http, &all("/api/v1/nodes"), both).await.map_err(no("nodes"))?;
    let mut seen = Vec::new();
    for (node, place) in nodes {
        reader.node(place);
        seen.push(node);
    }
    index.reset(Kind::Node, seen, &ListedAt { version, rewound: false });
    let fact = facts::<wire::Pod>();
    // What is asked of nodes goes to the reader while the list arrives.
    let reading = std::sync::Mutex::new(reader);
    let both = |Twice(pod, place): Twice<wire::Pod, places::Pod>| {
        reading.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pod(place);
        fact(pod)
    };
    let (pods, _) = list(http, &all("/api/v1/pods"), both).await.map_err(no("pods"))?;
    for pod in pods {
        index.apply(pod);
    }
    Ok(reading.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).finish())
}

/// Which of the DaemonSets exist that pods belong to.
async fn daemon_sets(http: &Http, index: &mut Index, unread: &mut Vec<Gap>) {
    let wanted: BTreeSet<Key> = index.pods().filter_map(Pod::daemon_set).collect();
    let mut unreadable = None;
    for key in wanted {
        let existence = nodes::daemon_set(http, &key).await;
        if let Existence::Unreadable(message) = &existence {
            unreadable.get_or_insert_with(|| message.clone());
        }
        index.apply(Fact::DaemonSet(key, existence));
    }
    unread.extend(unreadable.map(|message| {
        Gap::new("daemonsets", "whether the DaemonSets still exist that pods belong to", message)
    }));
}

/// Everything about virtual machines, where there are any.
async fn guests(http: &Http, index: &mut Index, unread: &mut Vec<Gap>) -> Result<(), WholeError> {
    if !index.pods().any(|pod| matches!(pod.vm, VmRole::Launcher(_))) {
        return Ok(());
    }
    let (instances, migrations) = futures::join!(
        read::<kubevirt::VirtualMachineInstance>(http, INSTANCES),
        read::<kubevirt::Migration>(http, MIGRATIONS)
    );
    let denied = |index: &mut Index, unread: &mut Vec<Gap>, what, source: HttpError| {
        let misses = "how any virtual machine may leave, and whether it can be moved";
        unread.push(Gap::new(what, misses, source.to_string()));
        index.set_vm_visibility(VmVisibility::Denied(source.to_string()));
    };
    match (instances, migrations) {
        (Ok((instances, first)), Ok((migrations, second))) => {
            index.reset(Kind::Instance, instances, &first);
            index.reset(Kind::Migration, migrations, &second);
        }
        (Err(source), _) | (_, Err(source)) if source.is_not_found() => {
            index.set_vm_visibility(VmVisibility::NotInstalled);
            return Ok(());
        }
        (Err(source), _) => {
            denied(index, unread, "virtualmachineinstances", source);
            return Ok(());
        }
        (_, Err(source)) => {
            denied(index, unread, "virtualmachineinstancemigrations", source);
            return Ok(());
        }
    }
    match settings(http, index).await {
        Ok(config) => drop(index.configure(config)),
        Err(source) => return Err(WholeError { what: "the settings of KubeVirt", source }),
    }
    match read::<kubevirt::VirtualMachine>(http, "/apis/kubevirt.io/v1/virtualmachines").await {
        Ok((machines, at)) => drop(index.reset(Kind::Machine, machines, &at)),
        Err(source) if source.is_not_found() => {}
        // Whoever may read them one by one gets those that matter.
        Err(source) if source.is_forbidden() => {
            let nodes: Vec<String> = index.nodes().map(|node| node.name.clone()).collect();
            let wanted = machines_that_matter(index, &nodes);
            let found = read_machines(http, &wanted).await;
            if found.len() < wanted.len() {
                unread.push(Gap::new(
                    "virtualmachines",
                    "whether machines that are shut down come back",
                    source.to_string(),
                ));
            }
            for machine in found {
                index.apply(machine);
            }
        }
        Err(source) => return Err(WholeError { what: "virtualmachines", source }),
    }
    index.set_vm_visibility(VmVisibility::Readable);
    Ok(())
}
