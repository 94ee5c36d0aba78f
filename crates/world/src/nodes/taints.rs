//! Taints that follow from a node's conditions.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::json;

use crate::actor::{Out, View};
use crate::effects::Write;
use crate::kinds::Kind;
use crate::objects::{Key, node_condition, time};
use crate::scheduler::fit::taints;

pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Condition, the status that taints, the taint.
const BY_CONDITION: &[(&str, &str, &str)] = &[
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// The NoSchedule taints this node should have, of those that are ours to set.
pub fn wanted(node: &Node) -> Vec<&'static str> {
    let mut keys: Vec<&'static str> = BY_CONDITION
        .iter()
        .filter(|(condition, status, _)| node_condition(node, condition) == Some(*status))
        .map(|(_, _, key)| *key)
        .collect();
    if node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true) {
        keys.push(UNSCHEDULABLE);
    }
    keys
}

fn ours(taint: &Taint) -> bool {
    taint.effect == "NoSchedule"
        && (taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| taint.key == *key))
}

pub fn sync(view: View<'_>, key: &Key, out: &mut Out) {
    let Some(node) = view.mirror.nodes.get(key) else { return };
    // A node that has never spoken keeps the taint it was born with.
    if node_condition(node, "Ready").is_none() && !unschedulable_changed(node) {
        return;
    }
    let wanted = wanted(node);
    let mut next: Vec<Taint> = taints(node)
        .iter()
        .filter(|t| {
            !ours(t)
                || wanted.contains(&t.key.as_str())
                || (t.key == NOT_READY && node_condition(node, "Ready").is_none())
        })
        .cloned()
        .collect();
    for taint_key in wanted {
        if !next.iter().any(|t| t.key == taint_key && t.effect == "NoSchedule") {
            next.push(taint(taint_key, "NoSchedule", view.now));
        }
    }
    write(node, &next, out);
}

fn unschedulable_changed(node: &Node) -> bool {
    let closed = node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
    closed != taints(node).iter().any(|t| t.key == UNSCHEDULABLE && t.effect == "NoSchedule")
}

pub fn taint(key: &str, effect: &str, now: Timestamp) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), value: None, time_added: Some(time(now)) }
}

/// Writes a new list of taints, on the node as it was read.
pub fn write(node: &Node, next: &[Taint], out: &mut Out) {
    if next == taints(node) {
        return;
    }
    let patch = json!({
        "metadata": { "uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version },
        "spec": { "taints": next },
    });
    out.write(Write::merge(Kind::Node, Key::of(&node.metadata), patch));
}
