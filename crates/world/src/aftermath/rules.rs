//! What each status may say, given what is true.

use std::collections::BTreeMap;

use serde_json::Value;

use super::maintenance;
use crate::truth::{Doing, Resident, Truth};

/// All that is said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Picture {
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    pub machines: Vec<Value>,
    pub instances: Vec<Value>,
    pub migrations: Vec<Value>,
    pub maintenances: Vec<Value>,
}

/// Everything that is said and not so, each in a sentence.
pub fn untrue(truth: &Truth, picture: &Picture) -> Vec<String> {
    let mut wrong = truth.violations.clone();
    if truth.hosts_machines {
        let pods = Pods::of(&picture.pods);
        for vmi in &picture.instances {
            let say = |what: String| format!("instance {}: {what}", name(vmi));
            wrong.extend(instance(truth, &pods, vmi).into_iter().map(say));
        }
        for vm in &picture.machines {
            let say = |what: String| format!("machine {}: {what}", name(vm));
            wrong.extend(machine(truth, picture, vm).into_iter().map(say));
        }
        for one in &picture.migrations {
            let say = |what: String| format!("migration {}: {what}", name(one));
            wrong.extend(migration(truth, picture, one).into_iter().map(say));
        }
        wrong.extend(strangers(truth, picture));
    }
    wrong.extend(maintenance::untrue(picture));
    wrong
}

pub(super) fn name(object: &Value) -> String {
    let part = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    if part("namespace").is_empty() {
        part("name").to_owned()
    } else {
        format!("{}/{}", part("namespace"), part("name"))
    }
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub(super) fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(super) fn is_final(object: &Value) -> bool {
    matches!(phase(object), "Succeeded" | "Failed")
}

pub(super) fn has(object: &Value, condition: &str) -> bool {
    let list = object["status"]["conditions"].as_array();
    list.is_some_and(|list| list.iter().any(|one| one["type"] == condition && one["status"] == "True"))
}

pub(super) fn owner<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["kind"] == kind)?["uid"].as_str()
}

/// Launchers by the instance they were made for.
struct Pods<'a>(BTreeMap<&'a str, Vec<&'a Value>>);

impl<'a> Pods<'a> {
    fn of(pods: &'a [Value]) -> Self {
        let mut all: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| pod["metadata"]["labels"]["kubevirt.io"] == "virt-launcher") {
            if let Some(instance) = owner(pod, "VirtualMachineInstance") {
                all.entry(instance).or_default().push(pod);
            }
        }
        Self(all)
    }

    fn launchers(&self, instance: &str) -> &[&'a Value] {
        self.0.get(instance).map_or(&[], Vec::as_slice)
    }
}

fn instance(truth: &Truth, pods: &Pods<'_>, vmi: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let launchers = pods.launchers(uid(vmi));
    let node = vmi["status"]["nodeName"].as_str().unwrap_or_default();
    let guest = truth.guest(uid(vmi));
    for (pod, on) in vmi["status"]["activePods"].as_object().into_iter().flatten() {
        match launchers.iter().find(|launcher| uid(launcher) == pod) {
            // KubeVirt lists a target that has no place yet, with an empty name for its node.
            Some(launcher) if launcher["spec"]["nodeName"].as_str().unwrap_or_default() == *on => {}
            Some(_) => wrong.push(format!("its active pod {pod} is not on {on}")),
            None => wrong.push(format!("its active pod {pod} is not there")),
        }
    }
    if !is_final(vmi) && !node.is_empty() && launchers.iter().all(|pod| is_final(pod)) {
        // Whoever ends is said to have ended by the agent of its node, if that can be reached.
        wrong.push(format!("is {} on {node} without a live pod", phase(vmi)));
    }
    if !node.is_empty() && !truth.reachable.contains(node) {
        // What became of it there cannot be known, unless it runs elsewhere at the same time.
        wrong.extend(guest.filter(|guest| guest.node != node).map(|guest| elsewhere(vmi, node, guest)));
        return wrong;
    }
    match (phase(vmi), guest) {
        ("Running", Some(guest)) if guest.node != node => wrong.push(elsewhere(vmi, node, guest)),
        ("Running", Some(guest)) => {
            if vmi["status"]["activePods"][&guest.pod_uid] != *node {
                wrong.push(format!("runs in pod {}, which is not among its active pods", guest.pod_uid));
            }
            if has(vmi, "Paused") != (guest.doing == Doing::Paused) {
                wrong.push(format!("is paused: {}, and its guest is {:?}", has(vmi, "Paused"), guest.doing));
            }
        }
        ("Running", None) => wrong.push(format!("is Running on {node}, and no guest is")),
        ("Scheduled", Some(guest)) if guest.doing != Doing::Starting => {
            wrong.push(format!("is Scheduled, and its guest is {:?}", guest.doing));
        }
        ("Succeeded" | "Failed" | "Pending" | "Scheduling", Some(guest)) => {
            wrong.push(format!("is {}, and its guest is {:?} on {}", phase(vmi), guest.doing, guest.node));
        }
        _ => {}
    }
    if has(vmi, "Ready") && guest.is_none() {
        wrong.push("is Ready, and no guest runs".into());
    }
    wrong.extend(account(truth, vmi, node));
    wrong
}

fn elsewhere(vmi: &Value, node: &str, guest: &Resident) -> String {
    format!("is {} on {node}, and its guest runs on {}", phase(vmi), guest.node)
}

/// What the instance says of its last migration.
fn account(truth: &Truth, vmi: &Value, node: &str) -> Option<String> {
    let state = vmi["status"].get("migrationState").filter(|state| state.is_object())?;
    let id = state["migrationUid"].as_str().unwrap_or_default();
    let over = state["completed"] == true || state["endTimestamp"].is_string();
    let started = state["startTimestamp"].is_string();
    if over && truth.moves.contains(id) {
        return Some(format!("its migration {id} is over, and its guest is being copied"));
    }
    if started && !over && !is_final(vmi) && !truth.moves.contains(id) {
        return Some(format!("its migration {id} goes on, and nothing is copied"));
    }
    if over && state["failed"] != true && !is_final(vmi) && state["targetNode"] != *node {
        return Some(format!("its migration {id} went to {}, and it is on {node}", state["targetNode"]));
    }
    None
}

fn machine(truth: &Truth, picture: &Picture, vm: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let vmi = picture.instances.iter().find(|vmi| owner(vmi, "VirtualMachine") == Some(uid(vm)));
    let said = |field: &str| vm["status"][field] == true;
    if said("created") != vmi.is_some() {
        wrong.push(format!("created: {}, and it has an instance: {}", said("created"), vmi.is_some()));
    }
    let ready = vmi.is_some_and(|vmi| has(vmi, "Ready"));
    if said("ready") != ready {
        wrong.push(format!("ready: {}, and its instance is ready: {ready}", said("ready")));
    }
    let node = vmi.and_then(|vmi| vmi["status"]["nodeName"].as_str()).unwrap_or_default();
    if !node.is_empty() && !truth.reachable.contains(node) {
        return wrong;
    }
    let shown = vm["status"]["printableStatus"].as_str().unwrap_or_default();
    let words = words_for(truth, picture, vm, vmi);
    if !words.contains(&shown) {
        wrong.push(format!("is shown as {shown:?}, and is {}", words.join(" or ")));
    }
    wrong
}

/// What a machine may be shown as.
fn words_for(truth: &Truth, picture: &Picture, vm: &Value, vmi: Option<&Value>) -> Vec<&'static str> {
    if is_deleting(vm) {
        return vec!["Terminating"];
    }
    let Some(vmi) = vmi.filter(|vmi| !is_final(vmi)) else {
        return vec!["Stopped", "CrashLoopBackOff"];
    };
    if is_deleting(vmi) {
        return vec!["Stopping"];
    }
    let theirs = picture.migrations.iter().filter(|one| one["spec"]["vmiName"] == vmi["metadata"]["name"]);
    let mut unfinished = theirs
        .filter(|one| one["metadata"]["namespace"] == vmi["metadata"]["namespace"] && !is_final(one))
        .peekable();
    let waits = unfinished.peek().is_some();
    let copied = unfinished.any(|one| truth.moves.contains(uid(one)));
    match truth.guest(uid(vmi)).map(|guest| guest.doing) {
        Some(Doing::Running | Doing::Paused) if copied => vec!["Migrating"],
        Some(Doing::Running) if waits => vec!["Running", "Migrating"],
        Some(Doing::Paused) if waits => vec!["Paused", "Migrating"],
        Some(Doing::Running) => vec!["Running"],
        Some(Doing::Paused) => vec!["Paused"],
        Some(Doing::Starting) => vec!["Starting"],
        None => vec!["Starting", "ErrorUnschedulable", "WaitingForReceiver"],
    }
}

fn migration(truth: &Truth, picture: &Picture, one: &Value) -> Option<String> {
    let copied = truth.moves.contains(uid(one));
    if is_final(one) && copied {
        return Some(format!("is {}, and its guest is being copied", phase(one)));
    }
    let of_ours = |vmi: &&Value| {
        vmi["metadata"]["namespace"] == one["metadata"]["namespace"]
            && vmi["metadata"]["name"] == one["spec"]["vmiName"]
    };
    let vmi = picture.instances.iter().find(of_ours)?;
    let nodes = [&vmi["status"]["nodeName"], &vmi["status"]["migrationState"]["targetNode"]];
    let reachable = nodes.iter().filter_map(|node| node.as_str()).all(|node| truth.reachable.contains(node));
    (phase(one) == "Running" && !copied && reachable).then(|| "is Running, and nothing is copied".to_owned())
}

/// Guests that nobody speaks of.
fn strangers(truth: &Truth, picture: &Picture) -> Vec<String> {
    let known = |guest: &&Resident| picture.instances.iter().any(|vmi| uid(vmi) == guest.instance_uid);
    let reachable = |guest: &&Resident| truth.reachable.contains(&guest.node);
    let strangers = truth.residents.iter().filter(|guest| !known(guest) && reachable(guest));
    strangers
        .map(|guest| format!("guest {} runs on {}, and no instance says so", guest.instance, guest.node))
        .collect()
}
