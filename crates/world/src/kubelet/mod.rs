//! Kubelets: they register nodes, keep them alive, and run the pods bound to them.
//!
//! A stopped kubelet is a dead node: no heartbeat, and its pods do not change. Its containers are
//! remembered, so that a kubelet that comes back finds them as they were.

pub mod behaviour;
pub mod life;
pub mod node;
pub mod power;
pub mod status;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use self::behaviour::{Behaviour, Fail, behaviour};
use self::life::{Run, Stage};
use crate::actor::{Out, View};
use crate::effects::{Deletion, Verb, Write, as_value};
use crate::events::{Notice, event};
use crate::kinds::Kind;
use crate::objects::{Key, deleting, finished, later, node_of, phase, uid};
use crate::options::NodeSpec;
use crate::quantity::amounts;

pub const HEARTBEAT_SECONDS: i64 = 10;
const STATUS_SECONDS: i64 = 300;
const COMPONENT: &str = "kubelet";

#[derive(Debug)]
struct Kubelet {
    spec: NodeSpec,
    index: usize,
    alive: bool,
    registered: bool,
    /// How often the machine was started.
    boots: u32,
    ips: BTreeSet<u32>,
}

impl Kubelet {
    fn address(&self) -> String {
        format!("172.18.{}.{}", self.index / 250, self.index % 250 + 2)
    }

    fn take_ip(&mut self) -> String {
        let free = (0..=self.ips.len() as u32).find(|n| !self.ips.contains(n)).unwrap_or(0);
        self.ips.insert(free);
        // A /24 per node in 10.64.0.0/10, and a second octet's worth more where a node holds many pods.
        let n = self.index as u32;
        format!("10.{}.{}.{}", 64 + (n / 256 + (free / 250) * 32) % 128, n % 256, free % 250 + 2)
    }
}

/// What knows the processes in containers that a kubelet only starts and stops: guests are looked after by another agent of the node.
pub trait Guests {
    /// Shapes how the containers of a launcher behave by what its guest does. Other pods are left alone.
    fn shape(&mut self, view: View<'_>, pod: &Pod, run: &Run, how: &mut Behaviour, out: &mut Out);

    /// The containers are over: a guest that was still on is not any more.
    fn containers_ended(&mut self, pod: &Pod, now: Timestamp);
}

#[derive(Debug, Default)]
pub struct Kubelets {
    seed: u64,
    nodes: BTreeMap<String, Kubelet>,
    runs: BTreeMap<String, Run>,
}

impl Kubelets {
    pub fn new(seed: u64, specs: &[NodeSpec]) -> Self {
        let mut kubelets = Self { seed, ..Self::default() };
        for spec in specs {
            kubelets.add(spec.clone());
        }
        kubelets
    }

    pub fn add(&mut self, spec: NodeSpec) {
        let index = self.nodes.len();
        let kubelet = Kubelet { spec, index, alive: true, registered: false, boots: 1, ips: BTreeSet::new() };
        self.nodes.insert(kubelet.spec.name.clone(), kubelet);
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    pub fn hosts(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// One of ours, and switched on.
    pub fn alive(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|k| k.alive)
    }

    pub fn address(&self, node: &str) -> Option<String> {
        self.nodes.get(node).map(Kubelet::address)
    }

    /// Switches a kubelet on or off. Coming on, it registers its node again if that is gone.
    pub fn set_alive(&mut self, node: &str, alive: bool) {
        if let Some(kubelet) = self.nodes.get_mut(node) {
            kubelet.alive = alive;
            kubelet.registered &= !alive;
        }
    }

    /// The machine went down and came up: nothing that ran on it runs any more.
    pub fn reboot(&mut self, view: View<'_>, node: &str) {
        if let Some(kubelet) = self.nodes.get_mut(node) {
            kubelet.boots += 1;
        }
        for pod in view.mirror.pods_on(node) {
            if let Some(run) = self.runs.get_mut(uid(&pod.metadata))
                && !matches!(run.stage, Stage::Done { .. })
            {
                let never = pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()) == Some("Never");
                run.stage = match run.stage {
                    Stage::Running { since } if never => Stage::Done { since, ended: view.now, code: 137 },
                    stage => {
                        run.restarts += i32::from(!matches!(stage, Stage::Creating));
                        run.seen = view.now;
                        Stage::Creating
                    }
                };
            }
        }
    }

    pub fn sync_node(&mut self, view: View<'_>, key: &Key, out: &mut Out) {
        let Some(kubelet) = self.nodes.get_mut(&key.name).filter(|k| k.alive) else { return };
        let address = kubelet.address();
        let Some(held) = view.mirror.nodes.get(key) else {
            // A node that is deleted under a running kubelet stays away until the kubelet starts anew.
            if !kubelet.registered {
                let body = node::registration(&kubelet.spec, &address, kubelet.boots, view.now);
                out.write(Write::create(Kind::Node, key.clone(), &body));
            }
            return;
        };
        kubelet.registered = true;
        let posted = held.status.clone().unwrap_or_default();
        let wanted = node::status(&kubelet.spec, &address, kubelet.boots, Some(&posted), view.now);
        let due = node::last_heartbeat(&posted).map(|at| later(at, STATUS_SECONDS));
        if node::differs(&wanted, &posted) || due.is_none_or(|due| due <= view.now) {
            let patch = json!({ "metadata": { "uid": held.metadata.uid }, "status": wanted });
            out.write(Write::patch_status(Kind::Node, key.clone(), patch));
            out.again_at(later(view.now, STATUS_SECONDS));
        } else if let Some(due) = due {
            out.again_at(due);
        }
    }

    /// Renews the leases of all living kubelets in one go.
    pub fn heartbeat(&mut self, view: View<'_>, out: &mut Out) {
        for (name, kubelet) in self.nodes.iter().filter(|(_, k)| k.alive) {
            if !kubelet.registered {
                continue;
            }
            let Some(node) = view.mirror.nodes.named(name) else { continue };
            let (patch, create) = node::lease(name, uid(&node.metadata), view.now);
            out.write(Write {
                resource: Kind::Lease.resource(),
                key: node::lease_key(name),
                subresource: "",
                verb: Verb::Upsert { patch, create },
                optional: true,
            });
        }
        out.again_at(later(view.now, HEARTBEAT_SECONDS));
    }

    /// The pod is gone from the API.
    pub fn forget(&mut self, pod: &Pod) {
        if let Some(run) = self.runs.remove(uid(&pod.metadata))
            && let Some(kubelet) = node_of(pod).and_then(|n| self.nodes.get_mut(n))
            && let Some(number) = ip_number(&run.ip)
        {
            kubelet.ips.remove(&number);
        }
    }

    pub fn sync_pod(&mut self, view: View<'_>, key: &Key, guests: &mut impl Guests, out: &mut Out) {
        let Some(pod) = view.mirror.pods.get(key) else { return };
        let Some(node) = node_of(pod) else { return };
        if !self.nodes.get(node).is_some_and(|k| k.alive) || view.mirror.nodes.named(node).is_none() {
            return;
        }
        let pod_uid = uid(&pod.metadata).to_owned();
        if !self.runs.contains_key(&pod_uid) && !self.admit(view, key, pod, node, out) {
            return;
        }
        let Some(kubelet) = self.nodes.get(node) else { return };
        let Some(run) = self.runs.get_mut(&pod_uid) else { return };
        let mut how = behaviour(pod, self.seed);
        guests.shape(view, pod, run, &mut how, out);
        let before = run.stage;
        if let Some(next) = run.advance(pod, &how, view.now) {
            out.again_at(next);
        }
        if matches!(run.stage, Stage::Done { .. }) {
            guests.containers_ended(pod, view.now);
        }
        if matches!(before, Stage::Creating) && matches!(run.stage, Stage::Running { .. }) {
            for container in pod.spec.iter().flat_map(|s| &s.containers) {
                let text = format!("Container started: {}", container.name);
                out.write(event(
                    Kind::Pod,
                    &pod.metadata,
                    Notice::normal(COMPONENT, "Started", &text),
                    view.now,
                ));
            }
        }
        // A pod that was turned away, or has ended before, keeps the status it has.
        let mut ended = finished(pod);
        if !ended {
            let wanted = status::status(pod, &how, run, &kubelet.address(), view.now);
            if let Some(patch) = status_patch(pod, &wanted) {
                out.write(Write::patch_status(Kind::Pod, key.clone(), patch));
            }
            ended = matches!(run.stage, Stage::Done { .. });
        }
        let last_word = pod.metadata.deletion_grace_period_seconds == Some(0) && finished(pod);
        if deleting(&pod.metadata) && ended && how.fail != Some(Fail::Stuck) && !last_word {
            let deletion = Deletion { uid: Some(pod_uid), grace_seconds: Some(0), ..Deletion::default() };
            out.write(Write::delete(Kind::Pod, key.clone(), deletion));
        }
    }

    /// Takes the pod in, or turns it away for lack of room. `true` when it runs here.
    fn admit(&mut self, view: View<'_>, key: &Key, pod: &Pod, node: &str, out: &mut Out) -> bool {
        let known = phase(pod) != "Pending";
        if !known
            && !deleting(&pod.metadata)
            && let Some((reason, message)) = self.no_room(view, key, node)
        {
            let status = status::rejected(&reason, &message, view.now);
            let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
            out.write(Write::patch_status(Kind::Pod, key.clone(), patch));
            out.write(event(
                Kind::Pod,
                &pod.metadata,
                Notice::warning(COMPONENT, &reason, &message),
                view.now,
            ));
            return false;
        }
        let host_network = pod.spec.as_ref().and_then(|s| s.host_network) == Some(true);
        let Some(kubelet) = self.nodes.get_mut(node) else { return false };
        let ip = if host_network { kubelet.address() } else { kubelet.take_ip() };
        let run = if known { Run::adopt(pod, view.now, ip) } else { Run::begin(view.now, ip) };
        self.runs.insert(uid(&pod.metadata).to_owned(), run);
        true
    }

    fn no_room(&self, view: View<'_>, key: &Key, node: &str) -> Option<(String, String)> {
        let held = view.mirror.nodes.named(node)?;
        let allocatable = amounts(held.status.as_ref().and_then(|s| s.allocatable.as_ref()));
        let others: Vec<_> = view
            .mirror
            .pods_on(node)
            .filter(|p| !finished(p) && self.runs.contains_key(uid(&p.metadata)))
            .map(|p| Key::of(&p.metadata))
            .filter(|k| k != key)
            .collect();
        let turn_away = |resource: &str, requested: i128, used: i128, capacity: i128| {
            let message = format!(
                "Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            (format!("OutOf{resource}"), message)
        };
        let room = allocatable.get("pods").map_or(110, |m| m / 1000);
        if others.len() as i128 + 1 > room {
            return Some(turn_away("pods", 1, others.len() as i128, room));
        }
        for (resource, wanted) in view.mirror.requests(key)? {
            let used: i128 = others.iter().filter_map(|k| view.mirror.requests(k)?.get(resource)).sum();
            let capacity = allocatable.get(resource).copied().unwrap_or(0);
            if *wanted > 0 && used + wanted > capacity {
                let unit = if resource == "cpu" { 1 } else { 1000 };
                return Some(turn_away(resource, wanted / unit, used / unit, capacity / unit));
            }
        }
        None
    }
}

fn ip_number(ip: &str) -> Option<u32> {
    let mut parts = ip.split('.').map(|p| p.parse::<u32>().ok());
    let (first, second) = (parts.next()??, parts.next()??);
    let last = parts.nth(1)??;
    (first == 10).then(|| ((second - 64) / 32) * 250 + last.saturating_sub(2))
}

/// The part of the status that the kubelet owns, when it is not what the API holds already.
fn status_patch(pod: &Pod, wanted: &PodStatus) -> Option<Value> {
    let held = as_value(&pod.status.clone().unwrap_or_default());
    let mut next = as_value(wanted);
    let conditions_hold = wanted.conditions.iter().flatten().all(|c| {
        pod.status.as_ref().and_then(|s| s.conditions.as_ref()).is_some_and(|held| held.contains(c))
    });
    let fields = next.as_object_mut()?;
    fields.retain(
        |field, value| if field == "conditions" { !conditions_hold } else { held.get(field) != Some(value) },
    );
    if fields.is_empty() {
        return None;
    }
    // Conditions are merged field by field: what a condition no longer says is taken back.
    for condition in fields.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let mut told = held["conditions"].as_array().into_iter().flatten();
        let before = told.find(|c| c["type"] == condition["type"]).and_then(Value::as_object);
        if let (Some(before), Some(fields)) = (before, condition.as_object_mut()) {
            for field in before.keys() {
                fields.entry(field.as_str()).or_insert(Value::Null);
            }
        }
    }
    Some(json!({ "metadata": { "uid": pod.metadata.uid }, "status": next }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pod_that_became_ready_no_longer_says_why_it_was_not() {
        let held = status(json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "wait"},
            {"type": "DisruptionTarget", "status": "True", "reason": "Other"}]}));
        let pod = Pod { status: Some(held), ..Pod::default() };
        let wanted = status(json!({"conditions": [{"type": "Ready", "status": "True"}]}));
        let patch = status_patch(&pod, &wanted).unwrap();
        assert_eq!(
            patch["status"]["conditions"],
            json!([{"type": "Ready", "status": "True", "reason": null, "message": null}])
        );
        let settled = Pod { status: Some(wanted.clone()), ..Pod::default() };
        assert_eq!(status_patch(&settled, &wanted), None);
    }
}
