//! What a cluster looks like after a scenario: whether everything that is said in it is true, and, if the scenario has gone wrong, all of it.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use evac_clock::Clock;
use evac_world::aftermath::{Picture, at_rest, picture};
use serde_json::{Value, json};
use tokio::process::Command;

use super::cluster::Cluster;

/// Longer than anything takes that is about to be written.
const LIMIT: Duration = Duration::from_secs(20);

/// Compares every status that evac wrote, and what it shows, with what kubelets and hypervisors know.
pub async fn check(cluster: &Cluster) -> Result<(), String> {
    let mut wrong = at_rest(cluster.world(), &cluster.client, Clock::real(), LIMIT)
        .await
        .map_err(|error| error.to_string())?;
    wrong.extend(told_otherwise(cluster).await?);
    if let Some(tenant) = &cluster.tenant {
        wrong.extend(Box::pin(check(tenant)).await.err().map(|wrong| format!("in the tenant: {wrong}")));
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("what is said is not true:\n{}", wrong.join("\n"))) }
}

/// What `evac vm list` and `evac status` show and is not so.
///
/// A command reads the cluster a moment after we did, so a difference counts only if nothing was written between our looks before and after it.
async fn told_otherwise(cluster: &Cluster) -> Result<Vec<String>, String> {
    let look =
        async || picture(&cluster.client).await.map(|(seen, _)| seen).map_err(|error| error.to_string());
    let clock = Clock::real();
    let end = clock.now().checked_add(LIMIT).map_err(|error| error.to_string())?;
    let mut seen = look().await?;
    loop {
        let wrong = compare(cluster, &seen).await?;
        if wrong.is_empty() {
            return Ok(wrong);
        }
        let now = look().await?;
        if now == seen || clock.now() >= end {
            return Ok(wrong);
        }
        seen = now;
    }
}

/// Runs the commands that show something of this cluster, and compares them with what was seen.
async fn compare(cluster: &Cluster, seen: &Picture) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    if !seen.machines.is_empty() || !seen.instances.is_empty() {
        let shown = evac(cluster, &["vm", "list", "--all-namespaces", "--output=json"]).await?;
        wrong.extend(lists_otherwise(seen, &shown));
    }
    let is_shown = |node: &Value| {
        node["spec"]["unschedulable"] == true
            || node["metadata"]["annotations"].get("evac.dev/drain").is_some()
    };
    if seen.nodes.iter().any(is_shown) {
        let shown = evac(cluster, &["status", "--output=json"]).await?;
        wrong.extend(shows_otherwise(seen, &shown));
    }
    Ok(wrong)
}

/// What a command of evac shows.
async fn evac(cluster: &Cluster, words: &[&str]) -> Result<Value, String> {
    let command = Command::new(env!("CARGO_BIN_EXE_evac"))
        .args(words)
        .env("KUBECONFIG", &cluster.kubeconfig)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&command.stderr).into_owned();
    serde_json::from_slice(&command.stdout)
        .map_err(|error| format!("evac {}: {error}: {said}", words.join(" ")))
}

fn same<'a>(list: &'a [Value], row: &Value) -> Option<&'a Value> {
    list.iter().find(|one| {
        one["metadata"]["name"] == row["name"] && one["metadata"]["namespace"] == row["namespace"]
    })
}

/// `evac vm list` beside the objects, which are true.
fn lists_otherwise(seen: &Picture, shown: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let rows = shown["machines"].as_array().map(Vec::as_slice).unwrap_or_default();
    let missing = |one: &&Value| {
        !rows.iter().any(|row| {
            row["name"] == one["metadata"]["name"] && row["namespace"] == one["metadata"]["namespace"]
        })
    };
    let all = seen.machines.iter().chain(&seen.instances);
    wrong
        .extend(all.filter(missing).map(|one| format!("vm list has no row for {}", one["metadata"]["name"])));
    for row in rows {
        let vmi = same(&seen.instances, row);
        let is_over = |vmi: &&Value| matches!(vmi["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let node = vmi.filter(|vmi| !is_over(vmi)).and_then(|vmi| vmi["status"]["nodeName"].as_str());
        let status = match same(&seen.machines, row) {
            Some(vm) => vm["status"]["printableStatus"].clone(),
            None => vmi.map_or(Value::Null, |vmi| vmi["status"]["phase"].clone()),
        };
        let expected = json!([status, node]);
        let found = json!([row["status"], row["node"]]);
        if expected != found {
            wrong.push(format!("vm list shows {} as {found}, and it is {expected}", row["name"]));
        }
    }
    wrong
}

/// `evac status` beside the pods that kubelets run.
fn shows_otherwise(seen: &Picture, shown: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in shown["nodes"].as_array().into_iter().flatten() {
        let mut say = |what: String| wrong.push(format!("status of {}: {what}", row["node"]));
        let number = |field: &str| row[field].as_u64().unwrap_or(u64::MAX);
        let (ended, there): (Vec<&Value>, Vec<&Value>) = seen
            .pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"] == row["node"])
            .partition(|pod| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
        // A finished pod goes with the drain. One that held a guest's volume is left to that guest's controller.
        let is_volume = |pod: &&&Value| pod["metadata"]["labels"]["kubevirt.io"] == "hotplug-disk";
        let to_go = ended.iter().filter(|pod| !is_volume(pod)).count();
        let expected = (there.len() + to_go) as u64;
        let counted = number("podsToLeave").saturating_add(number("podsStaying"));
        if counted != expected {
            say(format!("{counted} pods are to leave or stay, and {expected} are there"));
        }
        let state = row["state"].as_str().unwrap_or_default();
        let lost = row["drainer"]["alive"] == false;
        if lost != (state == "abandoned") {
            say(format!("it is {state}, and its drain is lost: {lost}"));
        }
        if state == "drained" && number("podsToLeave") > 0 {
            say(format!("it is drained, and {} pods are to leave", row["podsToLeave"]));
        }
        let node = seen.nodes.iter().find(|node| node["metadata"]["name"] == row["node"]);
        let cordoned = node.is_some_and(|node| node["spec"]["unschedulable"] == true);
        if cordoned == matches!(state, "uncordoned meanwhile" | "in use") {
            say(format!("it is {state}, and cordoned: {cordoned}"));
        }
    }
    wrong
}

/// Where to look, from the machine down to the pods it lives in.
const LOOKED_AT: &[&str] = &[
    "/api/v1/nodes",
    "/apis/kubevirt.io/v1/virtualmachines",
    "/apis/kubevirt.io/v1/virtualmachineinstances",
    "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
    "/api/v1/pods",
];

/// Every object of these kinds in a line, and the last words of KubeVirt's programs if they run here.
pub async fn describe(cluster: &Cluster) -> String {
    let mut text = String::new();
    for path in LOOKED_AT {
        let request = http::Request::get(*path).body(Vec::new()).expect("a path");
        // A cluster without machines does not serve their kinds.
        let Ok(list) = cluster.client.request::<Value>(request).await else { continue };
        let objects = list["items"].as_array().into_iter().flatten();
        for object in objects {
            let _ = writeln!(text, "--- {path} {}", brief(object));
        }
    }
    text + &upstream_log(cluster)
}

/// What tells one stage of an object from another.
fn brief(object: &Value) -> Value {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions: Vec<String> = conditions
        .map(|c| [&c["type"], &c["status"], &c["reason"]].map(|v| v.as_str().unwrap_or("")).join(" "))
        .collect();
    let mut brief = json!({
        "name": metadata["name"], "uid": metadata["uid"], "deleted": metadata["deletionTimestamp"],
        "finalizers": metadata["finalizers"], "node": spec["nodeName"].as_str().or(status["nodeName"].as_str()),
        "phase": status["phase"], "shown": status["printableStatus"], "pods": status["activePods"],
        "migration": status["migrationState"], "gates": spec["schedulingGates"], "conditions": conditions,
    });
    if let Some(fields) = brief.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    brief
}

fn upstream_log(cluster: &Cluster) -> String {
    let mut words = String::new();
    for name in ["virt-controller", "virt-api"] {
        if let Ok(text) = std::fs::read_to_string(evac_upstream::kubevirt::log(&cluster.kubeconfig, name)) {
            let lines: Vec<&str> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(40)..];
            let _ = writeln!(words, "--- {name}\n{}", last.join("\n"));
        }
    }
    words
}
