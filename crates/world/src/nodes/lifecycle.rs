//! Which nodes have gone silent, and the taints that make their pods leave.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use serde_json::json;

use super::taints::{NOT_READY, UNREACHABLE, taint, write};
use super::zones::{Lines, ZoneState, rate, zone_state};
use crate::actor::{Out, View};
use crate::effects::Write;
use crate::events::{Notice, event};
use crate::kinds::Kind;
use crate::kubelet::node::{last_heartbeat, lease_key};
use crate::objects::{Key, deleting, finished, label, later, name, node_condition, ready, time};
use crate::scheduler::fit::taints;

const PERIOD_SECONDS: i64 = 5;
const GRACE_SECONDS: i64 = 50;
const STARTUP_SECONDS: i64 = 60;
const COMPONENT: &str = "node-controller";
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// The last sign of life, by our own clock.
#[derive(Debug, Clone, PartialEq)]
struct Pulse {
    at: Timestamp,
    heartbeat: Option<Timestamp>,
    renewed: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub struct Lifecycle {
    pulses: BTreeMap<String, Pulse>,
    lines: Lines,
    states: BTreeMap<String, ZoneState>,
    /// Everything was down when we last looked.
    cut_off: bool,
}

fn zone(node: &Node) -> String {
    let region = label(&node.metadata, "topology.kubernetes.io/region").unwrap_or_default();
    let zone = label(&node.metadata, "topology.kubernetes.io/zone").unwrap_or_default();
    format!("{region}:{zone}")
}

impl Lifecycle {
    pub fn forget(&mut self, node: &str) {
        self.pulses.remove(node);
        for line in self.lines.values_mut() {
            line.leave(node);
        }
    }

    pub fn monitor(&mut self, view: View<'_>, out: &mut Out) {
        out.again_at(later(view.now, PERIOD_SECONDS));
        let nodes: Vec<_> = view.mirror.nodes.values().cloned().collect();
        for node in &nodes {
            self.feel(view, node);
            if self.silent(view, node) {
                report_unknown(view, node, out);
            }
            if node_condition(node, "Ready").is_some_and(|s| s != "True") {
                mark_pods(view, node, out);
            }
        }
        // Statuses first: zones are judged on what the API will say, at the latest in the next round.
        self.judge_zones(view, &nodes, out);
        self.taint(view, &nodes, out);
    }

    fn feel(&mut self, view: View<'_>, node: &Node) {
        let heartbeat = node.status.as_ref().and_then(last_heartbeat);
        let lease = view.mirror.leases.get(&lease_key(name(&node.metadata)));
        let renewed = lease.and_then(|l| l.spec.as_ref()?.renew_time.as_ref()).map(|t| t.0);
        let fresh = Pulse { at: view.now, heartbeat, renewed };
        match self.pulses.get_mut(name(&node.metadata)) {
            Some(pulse) if pulse.renewed == renewed && pulse.heartbeat == heartbeat => {}
            // Our own report of silence is no sign of life: it leaves the heartbeat time as it was.
            Some(pulse) => *pulse = fresh,
            None => {
                self.pulses.insert(name(&node.metadata).to_owned(), fresh);
            }
        }
    }

    fn silent(&self, view: View<'_>, node: &Node) -> bool {
        let grace = if node_condition(node, "Ready").is_none() { STARTUP_SECONDS } else { GRACE_SECONDS };
        self.pulses.get(name(&node.metadata)).is_some_and(|p| view.now > later(p.at, grace))
    }

    fn judge_zones(&mut self, view: View<'_>, nodes: &[std::sync::Arc<Node>], out: &mut Out) {
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for node in nodes.iter().filter(|n| label(&n.metadata, EXCLUDED).is_none()) {
            let (up, down) = counts.entry(zone(node)).or_default();
            if node_condition(node, "Ready") == Some("True") { *up += 1 } else { *down += 1 }
        }
        self.states = counts.iter().map(|(z, (up, down))| (z.clone(), zone_state(*up, *down))).collect();
        let all_down = !self.states.is_empty() && self.states.values().all(|s| *s == ZoneState::Full);
        if all_down {
            if !self.cut_off {
                for node in nodes {
                    out_of_line(node, out);
                }
            }
        } else if self.cut_off {
            // We can see again; nobody is late yet.
            for pulse in self.pulses.values_mut() {
                pulse.at = view.now;
            }
        }
        self.cut_off = all_down;
        let known: BTreeSet<String> = nodes.iter().map(|n| zone(n)).collect();
        self.lines.retain(|z, _| known.contains(z));
        for (z, (up, down)) in &counts {
            let state = self.states.get(z).copied().unwrap_or(ZoneState::Normal);
            let rate = if all_down { 0.0 } else { rate(state, up + down) };
            self.lines.entry(z.clone()).or_default().set_rate(rate);
        }
    }

    fn taint(&mut self, view: View<'_>, nodes: &[std::sync::Arc<Node>], out: &mut Out) {
        for node in nodes {
            let line = self.lines.entry(zone(node)).or_default();
            match evicting_key(node) {
                None => {
                    line.leave(name(&node.metadata));
                    if node_condition(node, "Ready") == Some("True") {
                        out_of_line(node, out);
                    }
                }
                Some(key) if has(node, key) => line.leave(name(&node.metadata)),
                // From not-ready to unreachable or back: the node has had its turn already.
                Some(key) if has(node, NOT_READY) || has(node, UNREACHABLE) => swap(node, key, view.now, out),
                Some(_) if self.cut_off => {}
                Some(_) => line.join(name(&node.metadata)),
            }
        }
        for line in self.lines.values_mut() {
            while let Some(node_name) = line.take(view.now) {
                let Some(node) = view.mirror.nodes.named(&node_name) else { continue };
                if let Some(key) = evicting_key(node) {
                    swap(node, key, view.now, out);
                }
            }
            if let Some(at) = line.next_at(view.now) {
                out.again_at(at);
            }
        }
    }
}

/// The NoExecute taint that the node's readiness asks for.
fn evicting_key(node: &Node) -> Option<&'static str> {
    match node_condition(node, "Ready") {
        Some("False") => Some(NOT_READY),
        Some("Unknown") => Some(UNREACHABLE),
        _ => None,
    }
}

fn evicts(t: &Taint) -> bool {
    t.effect == "NoExecute" && (t.key == NOT_READY || t.key == UNREACHABLE)
}

fn has(node: &Node, key: &str) -> bool {
    taints(node).iter().any(|t| evicts(t) && t.key == key)
}

fn swap(node: &Node, key: &str, now: Timestamp, out: &mut Out) {
    let mut next: Vec<Taint> = taints(node).iter().filter(|t| !evicts(t)).cloned().collect();
    next.push(taint(key, "NoExecute", now));
    write(node, &next, out);
}

fn out_of_line(node: &Node, out: &mut Out) {
    let rest: Vec<Taint> = taints(node).iter().filter(|t| !evicts(t)).cloned().collect();
    write(node, &rest, out);
}

fn report_unknown(view: View<'_>, node: &Node, out: &mut Out) {
    let held = node.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    let mut changed = Vec::new();
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let old = held.iter().find(|c| c.type_ == kind);
        if old.is_some_and(|c| c.status == "Unknown") {
            continue;
        }
        let (reason, message) = match old {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        let created = node.metadata.creation_timestamp.clone();
        changed.push(NodeCondition {
            type_: kind.to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: old.and_then(|c| c.last_heartbeat_time.clone()).or(created),
            last_transition_time: Some(time(view.now)),
        });
    }
    if changed.is_empty() {
        return;
    }
    let node_name = name(&node.metadata);
    let patch = json!({ "metadata": { "uid": node.metadata.uid }, "status": { "conditions": changed } });
    out.write(Write::patch_status(Kind::Node, Key::of(&node.metadata), patch));
    let text = format!("Node {node_name} status is now: NodeNotReady");
    out.write(event(Kind::Node, &node.metadata, Notice::normal(COMPONENT, "NodeNotReady", &text), view.now));
}

/// Pods on a node that is not ready are not ready either, whatever their kubelet said last.
fn mark_pods(view: View<'_>, node: &Node, out: &mut Out) {
    for pod in view.mirror.pods_on(name(&node.metadata)) {
        if finished(pod) || deleting(&pod.metadata) || !ready(pod) {
            continue;
        }
        out.write(not_ready(view, pod));
        let about = &pod.metadata;
        out.write(event(
            Kind::Pod,
            about,
            Notice::warning(COMPONENT, "NodeNotReady", "Node is not ready"),
            view.now,
        ));
    }
}

fn not_ready(view: View<'_>, pod: &Pod) -> Write {
    let patch = json!({
        "metadata": { "uid": pod.metadata.uid },
        "status": { "conditions": [{
            "type": "Ready", "status": "False", "lastTransitionTime": time(view.now),
            "reason": null, "message": null,
        }]},
    });
    Write::patch_status(Kind::Pod, Key::of(&pod.metadata), patch).optional()
}
