//! A snapshot becomes a cluster: which objects are stored, with what in the place of that which a snapshot has not.
//!
//! | of the snapshot | in the rehearsal |
//! |---|---|
//! | nodes | as they are; those that are Ready are simulated, on others nothing moves |
//! | pods | as they are, with a placeholder for their image and without volumes but scratch space; who was not Ready stays so |
//! | ReplicaSets and the like | as they are, but for what owned them: no roll-out is under way |
//! | guests | ask for what their launcher asks for; one that could not be migrated still cannot, for the reason that was given |
//! | migrations that are over | left out |
//! | migrations under way | left out with their target pods, and named: such guests begin anew |
//! | NodeMaintenances, quotas | left out |

use std::collections::{BTreeMap, BTreeSet};

use evac_api::kubevirt::launcher;
use evac_api::quantity;
use evac_core::cluster::place::Wants;
use evac_world::NodeSpec;
use evac_world::handler::plan::NOT_MIGRATABLE;
use serde_json::{Map, Value, json};

use super::guess;
use super::objects::{Objects, condition, is_true, text};

/// What the rehearsed cluster begins with.
#[derive(Debug)]
pub struct Poured {
    /// In the order in which they are stored.
    pub objects: Vec<Value>,
    pub nodes: Vec<NodeSpec>,
    /// What is not as it was, in sentences.
    pub notes: Vec<String>,
}

/// Kinds that are stored before pods. Budgets come with them: an eviction is never judged without.
const BEFORE_PODS: [&str; 12] = [
    "namespaces",
    "priorityclasses",
    "nodes",
    "hyperconvergeds",
    "replicasets",
    "replicationcontrollers",
    "statefulsets",
    "daemonsets",
    "jobs",
    "virtualmachineinstancereplicasets",
    "virtualmachines",
    "poddisruptionbudgets",
];
const AFTER_PODS: [&str; 2] = ["claims of drains", "leases of maintenances"];

/// An image is asked for where a pod is made. None is pulled.
const IMAGE: &str = "rehearsal";
/// Pods of Jobs do not end by themselves within a rehearsal: when they would is not known.
const NEVER: &str = "100000000";

pub fn pour(snapshot: &Objects, seed: u64) -> Poured {
    let mut notes = Vec::new();
    let mut objects = Vec::new();
    let left_out = under_way(snapshot, &mut notes);
    let classes = snapshot.of("priorityclasses").iter().map(|class| text(class, "/metadata/name")).collect();
    for kind in BEFORE_PODS {
        objects.extend(snapshot.of(kind).iter().map(|object| prepared(kind, object, &classes)));
    }
    let launchers = launchers(snapshot);
    let hosts: BTreeMap<&str, &Value> =
        snapshot.of("nodes").iter().map(|node| (text(node, "/metadata/name"), node)).collect();
    for instance in snapshot.of("virtualmachineinstances") {
        let launcher = launchers.get(text(instance, "/metadata/uid")).copied();
        let node = hosts.get(text(instance, "/status/nodeName")).copied();
        let mut instance = instance.clone();
        hardware(&mut instance["spec"], &classes);
        objects.push(guest(instance, launcher, node, seed));
    }
    let is_left_out = |pod: &&Value| {
        let job = text(pod, "/metadata/labels/kubevirt.io~1migrationJobUID");
        !job.is_empty() && left_out.contains(job)
    };
    let pods = snapshot.of("pods").iter().filter(|pod| !is_left_out(pod));
    objects.extend(pods.map(|one| pod(one, seed)));
    for kind in AFTER_PODS {
        objects.extend(snapshot.of(kind).iter().cloned());
    }
    let ready = snapshot.of("nodes").iter().filter(|node| is_true(node, "Ready"));
    let silent: Vec<&str> = snapshot
        .of("nodes")
        .iter()
        .filter(|node| !is_true(node, "Ready"))
        .map(|node| text(node, "/metadata/name"))
        .collect();
    if !silent.is_empty() {
        notes.push(format!("nothing moves on nodes that were not Ready: {}", silent.join(", ")));
    }
    if !snapshot.of("resourcequotas").is_empty() {
        notes.push("quotas are not enforced".into());
    }
    let simulated = ready.map(|node| NodeSpec::new(text(node, "/metadata/name"))).collect();
    Poured { objects, nodes: simulated, notes }
}

/// The migrations that are left out although they were under way, by uid.
fn under_way<'a>(snapshot: &'a Objects, notes: &mut Vec<String>) -> BTreeSet<&'a str> {
    let runs = |one: &&Value| !matches!(text(one, "/status/phase"), "Succeeded" | "Failed");
    let all: Vec<&Value> = snapshot.of("virtualmachineinstancemigrations").iter().filter(runs).collect();
    if !all.is_empty() {
        let guests: Vec<String> = all
            .iter()
            .map(|one| format!("{}/{}", text(one, "/metadata/namespace"), text(one, "/spec/vmiName")))
            .collect();
        notes.push(format!(
            "migrations that were under way are rehearsed from their beginning: {}",
            guests.join(", ")
        ));
    }
    all.into_iter().map(|one| text(one, "/metadata/uid")).collect()
}

/// The launcher in which each guest runs, by the uid of its instance.
fn launchers(snapshot: &Objects) -> BTreeMap<&str, &Value> {
    let runs = |pod: &&Value| {
        text(pod, "/metadata/labels/kubevirt.io") == "virt-launcher"
            && text(pod, "/status/phase") == "Running"
    };
    let hosts: BTreeMap<&str, &str> = snapshot
        .of("virtualmachineinstances")
        .iter()
        .map(|instance| (text(instance, "/metadata/uid"), text(instance, "/status/nodeName")))
        .collect();
    let of = |pod: &'_ Value| hosts.get_key_value(text(pod, "/metadata/labels/kubevirt.io~1created-by"));
    let here =
        |pod| of(pod).filter(|(_, node)| text(pod, "/spec/nodeName") == **node).map(|(uid, _)| (*uid, pod));
    snapshot.of("pods").iter().filter(runs).filter_map(here).collect()
}

/// The names of the priority classes that there are.
type Classes<'a> = BTreeSet<&'a str>;

fn prepared(kind: &str, object: &Value, classes: &Classes<'_>) -> Value {
    let mut object = object.clone();
    let on_delete = json!({"type": "OnDelete"});
    match kind {
        "replicasets" | "replicationcontrollers" => {
            template(&mut object["spec"]["template"], classes);
            disown(&mut object);
        }
        "statefulsets" | "daemonsets" => {
            template(&mut object["spec"]["template"], classes);
            // The template has fewer fields than the one the pods were made of; that is no reason to replace them.
            object["spec"]["updateStrategy"] = on_delete;
            disown(&mut object);
        }
        "jobs" => {
            template(&mut object["spec"]["template"], classes);
            object["spec"]["template"]["metadata"]["annotations"]["evac.dev/run-seconds"] = json!(NEVER);
            disown(&mut object);
        }
        "virtualmachines" | "virtualmachineinstancereplicasets" => {
            hardware(&mut object["spec"]["template"]["spec"], classes);
        }
        _ => {}
    }
    object
}

/// Deployments and CronJobs are not there to look after it.
fn disown(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
}

fn template(template: &mut Value, classes: &Classes<'_>) {
    containers(&mut template["spec"]);
    rank(&mut template["spec"], classes);
    if let Some(spec) = template["spec"].as_object_mut() {
        spec.remove("nodeName");
        spec.remove("priority");
    }
}

/// No pod is made with a class that is not there.
fn rank(spec: &mut Value, classes: &Classes<'_>) {
    if !classes.contains(text(spec, "/priorityClassName"))
        && let Some(spec) = spec.as_object_mut()
    {
        spec.remove("priorityClassName");
    }
}

/// What a pod needs to be one, and a snapshot does not have.
fn containers(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        let all = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in all.into_iter().flatten() {
            container["image"] = json!(IMAGE);
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("resourceClaims");
    }
    if !spec["volumes"].is_null() {
        let scratch = |volume: &&Value| !volume["emptyDir"].is_null();
        let volumes: Vec<Value> =
            spec["volumes"].as_array().into_iter().flatten().filter(scratch).cloned().collect();
        spec["volumes"] = json!(volumes);
    }
}

fn hardware(spec: &mut Value, classes: &Classes<'_>) {
    rank(spec, classes);
    spec["domain"]["devices"] = json!({});
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("volumes");
    }
}

fn pod(pod: &Value, seed: u64) -> Value {
    let mut pod = pod.clone();
    containers(&mut pod["spec"]);
    guess::pod(&mut pod, seed);
    let runs = text(&pod, "/status/phase") == "Running";
    let is_ready = is_true(&pod, "Ready");
    let notes = &mut pod["metadata"]["annotations"];
    if runs && !is_ready && notes["evac.dev/fail"].is_null() {
        notes["evac.dev/fail"] = json!("unready");
    }
    if pod["metadata"]["ownerReferences"][0]["kind"] == "Job" {
        pod["metadata"]["annotations"]["evac.dev/run-seconds"] = json!(NEVER);
    }
    pod
}

/// The guest asks for the node for which the pod asks that it runs in: for what KubeVirt has added, too.
fn guest(mut guest: Value, launcher: Option<&Value>, node: Option<&Value>, seed: u64) -> Value {
    guess::guest(&mut guest, seed);
    if let Some(pod) = launcher {
        let like_host = guest.pointer("/spec/domain/cpu/model").is_some_and(|model| model == "host-model");
        guest["spec"]["nodeSelector"] = json!(selector(pod, node.filter(|_| like_host)));
        requests(&mut guest["spec"]["domain"], pod);
    }
    let against = condition(&guest, "LiveMigratable").filter(|one| one["status"] == "False");
    let against = against.map(|one| format!("{}: {}", text(one, "/reason"), text(one, "/message")));
    if let Some(said) = against {
        guest["metadata"]["annotations"][NOT_MIGRATABLE] = json!(said);
    }
    let is_over = |name: &str| guest["status"]["migrationState"][name] == true;
    if !is_over("completed")
        && !is_over("failed")
        && let Some(status) = guest["status"].as_object_mut()
    {
        status.remove("migrationState");
    }
    guest
}

fn texts(map: Option<&Value>) -> BTreeMap<String, String> {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    pairs.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// What a target of this launcher has to match, on a node with the same processor if the guest has that of its host.
fn selector(pod: &Value, host: Option<&Value>) -> BTreeMap<String, String> {
    let mut wants = Wants { selector: texts(pod.pointer("/spec/nodeSelector")), ..Wants::default() };
    if let Some(node) = host {
        wants.keep_host_model(&texts(node.pointer("/metadata/labels")));
    }
    wants.selector
}

/// Sets what the guest asks for, so that its next launcher asks for the same as this one.
fn requests(domain: &mut Value, pod: &Value) {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let compute = containers.into_iter().flatten().find(|one| one["name"] == "compute");
    let Some(Value::Object(asked)) = compute.and_then(|one| one.pointer("/resources/requests")) else {
        return;
    };
    let mut requests: Map<String, Value> = asked.clone();
    let bytes = |value: Option<&Value>| value.and_then(Value::as_str).and_then(quantity::bytes);
    if domain["memory"]["guest"].is_null()
        && let Some(memory) = domain.pointer("/resources/requests/memory").cloned()
    {
        domain["memory"]["guest"] = memory;
    }
    if let Some(taken) = bytes(asked.get("memory")) {
        let guest = bytes(domain.pointer("/memory/guest")).unwrap_or(taken);
        let count = |name: &str| domain["cpu"][name].as_u64().unwrap_or(1).max(1);
        let over = launcher::overhead(guest, count("cores") * count("sockets") * count("threads"));
        requests.insert("memory".into(), json!(taken.saturating_sub(over).max(1).to_string()));
    }
    domain["resources"]["requests"] = Value::Object(requests);
}

/// What the object KubeVirt says of migrations and eviction strategies, wherever the cluster has it.
pub fn settings(snapshot: &Objects) -> Value {
    if let Some(object) = snapshot.of("kubevirts").first() {
        return json!({"configuration": object.pointer("/spec/configuration").cloned().unwrap_or(json!({}))});
    }
    let legacy = snapshot.of("kubevirt-config").first().map(|map| text(map, "/data/migrations"));
    let migrations = legacy.and_then(|text| serde_json::from_str::<Value>(text).ok());
    json!({"configuration": {"migrations": migrations.unwrap_or(json!({}))}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher_of(memory: &str) -> Value {
        json!({
            "metadata": {"name": "p", "uid": "up"},
            "spec": {
                "nodeSelector": {"kubevirt.io/schedulable": "true", "zone": "a"},
                "containers": [{"name": "compute", "resources": {"requests": {
                    "memory": memory, "cpu": "250m", "devices.kubevirt.io/kvm": "1"
                }}}],
            },
        })
    }

    fn instance() -> Value {
        json!({
            "metadata": {"name": "vm", "namespace": "d", "uid": "u"},
            "spec": {"domain": {"cpu": {"cores": 2, "model": "host-model"}, "memory": {"guest": "2Gi"}}},
            "status": {"migrationState": {"migrationUid": "m"}},
        })
    }

    #[test]
    fn the_next_launcher_of_a_guest_asks_for_what_this_one_asks_for() {
        let poured = guest(instance(), Some(&launcher_of("2500Mi")), None, 1);
        let next = launcher::render(&poured, "next", None);
        let asked = &next["spec"]["containers"][0]["resources"]["requests"];
        assert_eq!(asked["memory"], (2500_u64 << 20).to_string());
        assert_eq!(asked["cpu"], "250m");
        assert_eq!(asked["devices.kubevirt.io/kvm"], "1");
        assert_eq!(next["spec"]["nodeSelector"]["zone"], "a");
    }

    #[test]
    fn a_guest_with_the_processor_of_its_host_asks_for_nodes_with_the_same() {
        let node = json!({"metadata": {"labels": {"host-model-cpu.node.kubevirt.io/Skylake": "true"}}});
        let poured = guest(instance(), Some(&launcher_of("2500Mi")), Some(&node), 1);
        let wanted = "cpu-model-migration.node.kubevirt.io/Skylake";
        assert_eq!(poured["spec"]["nodeSelector"][wanted], "true");
        let mut other = instance();
        other["spec"]["domain"]["cpu"]["model"] = json!("Skylake");
        let poured = guest(other, Some(&launcher_of("2500Mi")), Some(&node), 1);
        assert!(poured["spec"]["nodeSelector"][wanted].is_null());
    }

    #[test]
    fn a_migration_that_was_not_over_has_left_no_trace_on_its_guest() {
        assert!(guest(instance(), None, None, 1)["status"]["migrationState"].is_null());
        let mut moved = instance();
        moved["status"]["migrationState"]["completed"] = json!(true);
        assert!(!guest(moved, None, None, 1)["status"]["migrationState"].is_null());
    }

    #[test]
    fn a_pod_that_was_not_ready_stays_so_and_keeps_scratch_space_alone() {
        let object = json!({
            "metadata": {"name": "web", "namespace": "d"},
            "spec": {"containers": [{"name": "a"}], "volumes": [{"name": "s", "emptyDir": {}}, {"name": "k"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
        });
        let poured = pod(&object, 1);
        assert_eq!(poured["metadata"]["annotations"]["evac.dev/fail"], "unready");
        assert_eq!(poured["spec"]["volumes"], json!([{"name": "s", "emptyDir": {}}]));
        assert_eq!(poured["spec"]["containers"][0]["image"], IMAGE);
        let mut ready = object;
        ready["status"]["conditions"][0]["status"] = json!("True");
        assert!(pod(&ready, 1)["metadata"]["annotations"]["evac.dev/fail"].is_null());
    }

    #[test]
    fn no_pod_is_made_with_a_priority_class_that_is_not_there() {
        let set = json!({"spec": {"template": {"spec": {"priorityClassName": "high", "priority": 9, "nodeName": "n"}}}});
        let with = |classes: &[&str]| prepared("replicasets", &set, &classes.iter().copied().collect());
        assert_eq!(with(&["high"])["spec"]["template"]["spec"], json!({"priorityClassName": "high"}));
        assert_eq!(with(&[])["spec"]["template"]["spec"], json!({}));
    }
}
