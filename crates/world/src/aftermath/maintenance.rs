//! What a NodeMaintenance may say of its node, and what a node may carry of a maintenance.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rules::{Picture, has, is_deleting, is_final, name, owner, phase};

/// What a node carries as long as a maintenance has it.
const TAINTS: [&str; 2] = ["kubevirt.io/drain", "medik8s.io/drain"];
const MARK: &str = "evac.dev/drain";
/// The owner in the marks of maintenances; installations elsewhere add their namespace.
const OWNER: &str = "node-maintenance";
/// More names than this are not listed.
const NAMED: usize = 200;

pub(super) fn untrue(picture: &Picture) -> Vec<String> {
    let mut wrong = Vec::new();
    for one in &picture.maintenances {
        let say = |what: String| format!("maintenance {}: {what}", name(one));
        wrong.extend(of_object(picture, one).into_iter().map(say));
    }
    for node in &picture.nodes {
        let say = |what: String| format!("node {}: {what}", name(node));
        wrong.extend(of_node(picture, node).map(say));
    }
    wrong
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["status"][field].as_str().unwrap_or_default()
}

fn number(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or_default()
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object["status"][field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The pods that have to leave a node.
fn to_leave<'a>(picture: &'a Picture, node: &Value) -> Vec<&'a Value> {
    let leaves = |pod: &&Value| {
        let mirror = pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some();
        pod["spec"]["nodeName"] == *node && !is_final(pod) && !mirror && owner(pod, "DaemonSet").is_none()
    };
    picture.pods.iter().filter(leaves).collect()
}

fn of_object(picture: &Picture, one: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if is_deleting(one) {
        return wrong;
    }
    let of = &one["spec"]["nodeName"];
    let node = picture.nodes.iter().find(|node| node["metadata"]["name"] == *of);
    let ends = one["status"].get("estimatedEnd").is_some();
    match phase(one) {
        "Succeeded" => {
            wrong.extend(worn(of, node));
            let left = to_leave(picture, of);
            wrong.extend(
                left.iter().map(|pod| format!("has emptied node {of}, and pod {} is on it", name(pod))),
            );
            let named = list(one, "pendingPods").len() + list(one, "pendingPodsRefs").len();
            if named + list(one, "blockers").len() > 0 || !text(one, "lastError").is_empty() {
                wrong.push("is Succeeded, and names what is left or in the way".into());
            }
            if number(one, "drainProgress") != 100 || !has(one, "Drained") || ends {
                wrong.push(
                    "is Succeeded, and its progress, its condition or its estimate says otherwise".into(),
                );
            }
        }
        "Failed" => {
            if text(one, "lastError").is_empty() {
                wrong.push("is Failed, and does not say why".into());
            }
            if text(one, "lastError").ends_with("not found") && node.is_some() {
                wrong.push(format!("has not found node {of}, which is there"));
            }
            if ends {
                wrong.push("is Failed, and foretells its end".into());
            }
        }
        // What it says then is from before, and it says so.
        "Running" if has(one, "Unread") => {
            let says = ends || number(one, "drainProgress") != 0;
            wrong.extend(says.then(|| "cannot read its node, and says how far it is".to_owned()));
        }
        "Running" if has(one, "Waiting") => {
            let silent = ends || text(one, "lastError").is_empty();
            wrong.extend(silent.then(|| "waits, and does not say for what, or says for how long".to_owned()));
        }
        "Running" => wrong.extend(running(picture, one, node)),
        _ => {}
    }
    wrong
}

/// A drain that goes on: what it names is on the node, all of it and nothing else.
fn running(picture: &Picture, one: &Value, node: Option<&Value>) -> Vec<String> {
    let of = &one["spec"]["nodeName"];
    let mut wrong: Vec<String> = worn(of, node).into_iter().collect();
    let left: BTreeSet<String> = to_leave(picture, of).into_iter().map(name).collect();
    let part = |pod: &Value, field: &str| pod[field].as_str().unwrap_or_default().to_owned();
    let said: BTreeSet<String> = list(one, "pendingPodsRefs")
        .iter()
        .map(|pod| format!("{}/{}", part(pod, "namespace"), part(pod, "name")))
        .collect();
    if left.is_empty() {
        wrong.push(format!("is Running, and nothing is left on node {of}"));
    }
    wrong.extend(
        said.difference(&left).map(|pod| format!("waits for pod {pod}, which need not leave node {of}")),
    );
    if said.len() < NAMED {
        wrong
            .extend(left.difference(&said).map(|pod| format!("does not name pod {pod}, which has to leave")));
    }
    if list(one, "pendingPods").len() != said.len() {
        wrong.push("lists its pods in two ways that differ".into());
    }
    let (all, pending) = (number(one, "evictionPods"), i64::try_from(left.len()).unwrap_or(i64::MAX));
    let done = if all == 0 { 0 } else { (all - pending) * 100 / all };
    let progress = number(one, "drainProgress");
    if all < pending || progress < done.min(99) || progress > 99 {
        wrong.push(format!("is at {progress} per cent of {all} pods, and {pending} are left"));
    }
    if has(one, "Drained") {
        wrong.push("is Running and Drained".into());
    }
    wrong.extend(blockers(one, &left));
    wrong
}

fn blockers(one: &Value, left: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for blocker in list(one, "blockers") {
        let object = blocker["object"].as_str().unwrap_or_default();
        if object.strip_prefix("pod ").is_some_and(|pod| !left.contains(pod)) {
            wrong.push(format!("is held up by {object}, which need not leave"));
        }
    }
    let first = list(one, "blockers").first();
    let word = |field: &str| first.and_then(|first| first[field].as_str()).unwrap_or_default();
    let expected =
        if first.is_some() { format!("{}: {}", word("object"), word("message")) } else { String::new() };
    if text(one, "lastError") != expected {
        wrong.push(format!(
            "has the error {:?}, and its first blocker is {expected:?}",
            text(one, "lastError")
        ));
    }
    wrong
}

/// Whether the node carries all that a maintenance writes on it.
fn worn(of: &Value, node: Option<&Value>) -> Option<String> {
    let Some(node) = node else { return Some(format!("has begun on node {of}, which is not there")) };
    if node["spec"]["unschedulable"] != true {
        return Some(format!("has begun on node {of}, which is not cordoned"));
    }
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let missing = TAINTS.into_iter().find(|key| !taints.iter().any(|taint| taint["key"] == **key));
    missing.map(|key| format!("has begun on node {of}, which lacks the taint {key}"))
}

/// The mark of a maintenance is on a node as long as there is an object about it, and no longer.
fn of_node(picture: &Picture, node: &Value) -> Option<String> {
    let mark: Value = serde_json::from_str(node["metadata"]["annotations"][MARK].as_str()?).ok()?;
    let owner = mark["owner"].as_str()?;
    let rest = owner.strip_prefix(OWNER)?;
    let theirs = rest.is_empty() || rest.starts_with('@');
    let about = |one: &Value| one["spec"]["nodeName"] == node["metadata"]["name"];
    (theirs && !picture.maintenances.iter().any(about))
        .then(|| format!("carries the mark of {owner}, and no NodeMaintenance is about it"))
}
