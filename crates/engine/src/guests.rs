//! What has to be known of virtual machines before a node can be judged: instances, migrations, and how the cluster is set up.
//!
//! Nothing is asked that is not needed: settings that only matter to instances without a strategy of their own are read when
//! there is such an instance, machines when one of their instances would be shut down.

use std::collections::BTreeSet;

use evac_api::Call;
use evac_api::Project;
use evac_api::call::labelled;
use evac_api::kubevirt::settings::{HyperConverged, Sources, upstream};
use evac_api::kubevirt::{NAMESPACE, request, wire};
use evac_api::wire::{List, Named};
use evac_core::cluster::index::ListedAt;
use evac_core::machines::strategy::{Course, course};
use evac_core::machines::{Config, Kind, names};
use evac_core::{Fact, Index, Key, VmRole, VmVisibility};
use serde_json::Value;

use crate::http::{Http, HttpError};
use crate::watch::{Source, facts, list};

pub const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
pub const MIGRATIONS: &str = "/apis/kubevirt.io/v1/virtualmachineinstancemigrations";
/// Up to this many machines are read one by one.
const MACHINES_BY_NAME: usize = 2;
/// More nodes than these do not fit into a selector; then all instances are read.
const SELECTED_NODES: usize = 50;

/// The query for the instances on these nodes.
pub fn on_nodes(nodes: &[String]) -> String {
    match nodes {
        [node] => labelled(&format!("{}={node}", names::NODE_NAME)),
        some if some.len() <= SELECTED_NODES => {
            let selector = format!("{} in ({})", names::NODE_NAME, some.join(","));
            labelled(&selector)
        }
        _ => String::new(),
    }
}

/// Whether one of these nodes has a pod that runs a guest, or ran one.
pub fn are_on(index: &Index, nodes: &[String]) -> bool {
    nodes.iter().flat_map(|node| index.pods_on(node)).any(|pod| matches!(pod.vm, VmRole::Launcher(_)))
}

/// What a failed reading of instances or migrations means for the rest.
pub fn vm_visibility_after(error: &HttpError) -> VmVisibility {
    if error.is_not_found() { VmVisibility::NotInstalled } else { VmVisibility::Denied(error.to_string()) }
}

/// How the cluster is set up, as far as it bears on the instances in the index.
pub async fn settings(http: &Http, index: &Index) -> Result<Config, HttpError> {
    let undecided = index.instances().any(|instance| instance.eviction_strategy.is_none());
    read_settings(http, undecided, false).await
}

/// The same with where the default strategy comes from, whether it matters to anybody or not.
pub async fn settings_with_origin(http: &Http) -> Result<Config, HttpError> {
    read_settings(http, true, true).await
}

async fn read_settings(http: &Http, undecided: bool, origin: bool) -> Result<Config, HttpError> {
    let mut sources = Sources::default();
    match http.read::<List<wire::KubeVirt>>(&Call::get("/apis/kubevirt.io/v1/kubevirts")).await {
        Ok(list) => {
            sources.upstream = upstream(&list.items);
            sources.kubevirt = list.items.into_iter().next().map(|object| object.spec.configuration);
        }
        Err(error) if error.is_not_found() => {}
        // Limits have defaults, and running migrations show better ones; a strategy is not guessed.
        Err(error) if error.is_forbidden() && !undecided => return Ok(Config::default()),
        Err(error) => return Err(error),
    }
    if sources.kubevirt.is_none() {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/kubevirt-config");
        if let Ok(map) = http.read::<wire::ConfigMap>(&Call::get(path)).await {
            let text = map.data.get("migrations");
            sources.legacy = text.and_then(|text| serde_saphyr::from_str(text).ok());
        }
    }
    let says = sources.kubevirt.as_ref().is_some_and(|kubevirt| kubevirt.eviction_strategy.is_some());
    if undecided && (!says || origin) {
        let path = "/apis/hco.kubevirt.io/v1beta1/hyperconvergeds";
        match http.read::<List<Value>>(&Call::get(path)).await {
            Ok(list) => sources.hyperconverged = HyperConverged::of(list.items.first()),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        if sources.hyperconverged == HyperConverged::Silent {
            let two: List<Named> = http.read(&Call::get("/api/v1/nodes?limit=2")).await?;
            sources.nodes = two.items.len();
        }
    }
    Ok(sources.config())
}

/// Machines whose instances on these nodes would be shut down, so that it matters what they do then.
pub fn machines_that_matter(index: &Index, nodes: &[String]) -> BTreeSet<Key> {
    nodes
        .iter()
        .flat_map(|node| index.instances_on(node))
        .filter(|instance| course(instance, &index.config) == Course::ShutDown)
        .filter_map(|instance| {
            let owner = instance.owner.as_ref().filter(|owner| owner.kind == "VirtualMachine")?;
            Some(Key::new(instance.key.namespace.clone(), owner.name.clone()))
        })
        .collect()
}

/// Reads these machines: a few by name, many with one list. One that cannot be read stays unknown.
pub async fn read_machines(http: &Http, wanted: &BTreeSet<Key>) -> Vec<Fact> {
    if wanted.len() > MACHINES_BY_NAME {
        let source =
            Source { path: "/apis/kubevirt.io/v1/virtualmachines".into(), query: String::new(), page: 500 };
        let if_wanted = |machine: wire::VirtualMachine| {
            let meta = &machine.metadata;
            let key = Key::new(&meta.namespace, &meta.name);
            wanted.contains(&key).then(|| machine.seen())
        };
        if let Ok((found, _)) = list(http, &source, if_wanted).await {
            return found;
        }
    }
    let mut found = Vec::new();
    for key in wanted {
        let call = Call::get(request::object_path(Kind::Machine, key));
        if let Ok(machine) = http.read::<wire::VirtualMachine>(&call).await {
            found.push(machine.seen());
        }
    }
    found
}

/// One reading of everything about the guests on these nodes, for those who only look.
pub async fn look(http: &Http, index: &mut Index, nodes: &[String]) -> Result<(), HttpError> {
    if !are_on(index, nodes) {
        return Ok(());
    }
    let instances = Source { path: INSTANCES.into(), query: on_nodes(nodes), page: 500 };
    let migrations = Source { path: MIGRATIONS.into(), query: String::new(), page: 500 };
    let (instances, migrations) = futures::join!(
        list(http, &instances, facts::<wire::VirtualMachineInstance>()),
        list(http, &migrations, facts::<wire::Migration>())
    );
    match (instances, migrations) {
        (Ok((instances, first)), Ok((migrations, second))) => {
            let at = |version| ListedAt { version, rewound: false };
            index.reset(Kind::Instance, instances, &at(first));
            index.reset(Kind::Migration, migrations, &at(second));
        }
        (Err(error), _) | (_, Err(error)) => {
            index.set_vm_visibility(vm_visibility_after(&error));
            return Ok(());
        }
    }
    index.configure(settings(http, index).await?);
    for fact in read_machines(http, &machines_that_matter(index, nodes)).await {
        index.apply(fact);
    }
    index.set_vm_visibility(VmVisibility::Readable);
    Ok(())
}
