//! Pods: what the STATUS column says about a pod is a story of its own.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cells::{self, list, number, or, str_at, truth};
use super::{AGE, Column, Layout, NAME, shown, wide};

const COLUMNS: &[Column] = &[
    NAME,
    shown("Ready", "Containers that are ready, of those that should be."),
    shown("Status", "What the pod is doing, from its phase and its containers."),
    shown("Restarts", "How often containers were restarted, and when last."),
    AGE,
    wide("IP", "Address of the pod."),
    wide("Node", "Node the pod is bound to."),
    wide("Nominated Node", "Node on which room is being made for the pod."),
    wide("Readiness Gates", "Additional conditions that hold, of those asked for."),
];

pub(super) static LAYOUT: Layout = Layout { columns: COLUMNS, cells: row };

/// Finished pods are marked so that clients can hide them.
pub(super) fn row_conditions(pod: &Value) -> Option<Value> {
    let message = match str_at(pod, "/status/phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{
        "type": "Completed",
        "status": "True",
        "reason": str_at(pod, "/status/phase"),
        "message": message,
    }]))
}

/// What is learned from the containers one after another.
#[derive(Default)]
struct Tally {
    reason: String,
    ready: i64,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Tally {
    fn count_restarts(&mut self, status: &Value) {
        self.restarts += number(status, "/restartCount");
        let finished = age::parse(status.pointer("/lastState/terminated/finishedAt"));
        self.last_restart = self.last_restart.max(finished);
    }
}

fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let sidecars: Vec<&str> = list(pod, "/spec/initContainers")
        .iter()
        .filter(|c| str_at(c, "/restartPolicy") == "Always")
        .map(|c| str_at(c, "/name"))
        .collect();
    let total = list(pod, "/spec/containers").len() + sidecars.len();
    let tally = tally(pod, &sidecars);
    let restarts = match tally.last_restart.filter(|_| tally.restarts != 0) {
        Some(at) => format!("{} ({} ago)", tally.restarts, age::human_duration(now.duration_since(at))),
        None => tally.restarts.to_string(),
    };
    vec![
        cells::name(pod),
        json!(format!("{}/{total}", tally.ready)),
        json!(tally.reason),
        json!(restarts),
        cells::age(pod, now),
        json!(or(str_at(pod, "/status/podIPs/0/ip"), or(str_at(pod, "/status/podIP"), "<none>"))),
        json!(or(str_at(pod, "/spec/nodeName"), "<none>")),
        json!(or(str_at(pod, "/status/nominatedNodeName"), "<none>")),
        readiness_gates(pod),
    ]
}

fn tally(pod: &Value, sidecars: &[&str]) -> Tally {
    let phase = str_at(pod, "/status/phase");
    let given = str_at(pod, "/status/reason");
    let mut tally = Tally { reason: or(given, phase).to_owned(), ..Tally::default() };
    let gated = list(pod, "/status/conditions")
        .iter()
        .any(|c| str_at(c, "/type") == "PodScheduled" && str_at(c, "/reason") == "SchedulingGated");
    if gated {
        "SchedulingGated".clone_into(&mut tally.reason);
    }
    let mut of_sidecars = Tally::default();
    let initializing = init_containers(pod, sidecars, &mut tally, &mut of_sidecars);
    if !initializing || cells::has_condition(pod, "Initialized") {
        tally.restarts = of_sidecars.restarts;
        tally.last_restart = of_sidecars.last_restart;
        containers(pod, &mut tally);
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null()) {
        if given == "NodeLost" {
            "Unknown".clone_into(&mut tally.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut tally.reason);
        }
    }
    tally
}

/// Stops at the first init container that is not done; true if there is one.
fn init_containers(pod: &Value, sidecars: &[&str], tally: &mut Tally, of_sidecars: &mut Tally) -> bool {
    for (i, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
        let is_sidecar = sidecars.contains(&str_at(status, "/name"));
        tally.count_restarts(status);
        if is_sidecar {
            of_sidecars.count_restarts(status);
        }
        let terminated = status.pointer("/state/terminated").filter(|t| !t.is_null());
        if terminated.is_some_and(|t| number(t, "/exitCode") == 0) {
            continue;
        }
        if is_sidecar && truth(status, "/started") {
            tally.ready += i64::from(truth(status, "/ready"));
            continue;
        }
        let waiting = str_at(status, "/state/waiting/reason");
        tally.reason = match terminated {
            Some(end) => format!("Init:{}", ended(end)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{i}/{}", list(pod, "/spec/initContainers").len()),
        };
        return true;
    }
    false
}

/// How a container ended: a reason, a signal or an exit code.
fn ended(terminated: &Value) -> String {
    let reason = str_at(terminated, "/reason");
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match number(terminated, "/signal") {
        0 => format!("ExitCode:{}", number(terminated, "/exitCode")),
        signal => format!("Signal:{signal}"),
    }
}

fn containers(pod: &Value, tally: &mut Tally) {
    let mut running = false;
    let mut error = String::new();
    // From the last to the first: the first container has the last word.
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        tally.count_restarts(status);
        let waiting = str_at(status, "/state/waiting/reason");
        let terminated = status.pointer("/state/terminated").filter(|t| !t.is_null());
        if !waiting.is_empty() {
            waiting.clone_into(&mut tally.reason);
        } else if let Some(end) = terminated {
            tally.reason = ended(end);
            if number(end, "/exitCode") != 0 {
                error.clone_from(&tally.reason);
            }
        } else if truth(status, "/ready") && status.pointer("/state/running").is_some_and(|r| !r.is_null()) {
            running = true;
            tally.ready += 1;
        }
    }
    if tally.reason == "Completed" {
        if running && cells::has_condition(pod, "Ready") {
            "Running".clone_into(&mut tally.reason);
        } else if !error.is_empty() {
            tally.reason = error;
        } else if running {
            "NotReady".clone_into(&mut tally.reason);
        }
    }
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return json!("<none>");
    }
    let open = gates.iter().filter(|g| cells::has_condition(pod, str_at(g, "/conditionType"))).count();
    json!(format!("{open}/{}", gates.len()))
}
