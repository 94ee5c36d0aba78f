//! Workloads, budgets, events and what belongs to them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{self, containers, list, map, number, or, selector, str_at, with_more};
use super::{AGE, Column, Layout, NAME, age, of_type, pods, shown, wide};

const CONTAINERS: Column = wide("Containers", "Names of the containers in the template.");
const IMAGES: Column = wide("Images", "Images of the containers in the template.");
const SELECTOR: Column = wide("Selector", "Which pods belong to it.");
const DESIRED: Column = of_type("integer", shown("Desired", "How many pods are wanted."));
const CURRENT: Column = of_type("integer", shown("Current", "How many pods there are."));
const READY: Column = of_type("integer", shown("Ready", "How many pods are ready."));

pub(super) fn layout(group: &str, plural: &str) -> Option<&'static Layout> {
    Some(match (group, plural) {
        ("", "pods") => &pods::LAYOUT,
        ("", "podtemplates") => &POD_TEMPLATES,
        ("", "replicationcontrollers") => &REPLICATION_CONTROLLERS,
        ("" | "events.k8s.io", "events") => &EVENTS,
        ("apps", "deployments") => &DEPLOYMENTS,
        ("apps", "replicasets") => &REPLICA_SETS,
        ("apps", "daemonsets") => &DAEMON_SETS,
        ("apps", "statefulsets") => &STATEFUL_SETS,
        ("apps", "controllerrevisions") => &CONTROLLER_REVISIONS,
        ("batch", "jobs") => &JOBS,
        ("batch", "cronjobs") => &CRON_JOBS,
        ("policy", "poddisruptionbudgets") => &BUDGETS,
        ("lifecycle.k8s.io", "evictionrequests") => &EVICTION_REQUESTS,
        ("lifecycle.k8s.io", "evictions") => &EVICTIONS,
        _ => return None,
    })
}

fn cells(parts: impl IntoIterator<Item = Value>) -> Vec<Value> {
    parts.into_iter().collect()
}

fn ratio(object: &Value, part: &str, whole: &str) -> Value {
    json!(format!("{}/{}", number(object, part), number(object, whole)))
}

const TEMPLATE: &str = "/spec/template/spec/containers";

static DEPLOYMENTS: Layout = Layout {
    columns: &[
        NAME,
        shown("Ready", "Ready pods, of those wanted."),
        shown("Up-to-date", "Pods made from the current template."),
        shown("Available", "Pods that have been ready for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let [names, images] = containers(object, TEMPLATE);
        let selector = crate::selector::label_selector(object.pointer("/spec/selector"));
        vec![
            cells::name(object),
            ratio(object, "/status/readyReplicas", "/spec/replicas"),
            json!(number(object, "/status/updatedReplicas")),
            json!(number(object, "/status/availableReplicas")),
            cells::age(object, now),
            names,
            images,
            json!(selector.map_or("<invalid>".to_owned(), |s| s.to_string())),
        ]
    },
};

fn replicas(object: &Value, now: Timestamp, selector: Value) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE);
    vec![
        cells::name(object),
        json!(number(object, "/spec/replicas")),
        json!(number(object, "/status/replicas")),
        json!(number(object, "/status/readyReplicas")),
        cells::age(object, now),
        names,
        images,
        selector,
    ]
}

static REPLICA_SETS: Layout = Layout {
    columns: &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR],
    cells: |object, now| replicas(object, now, selector(object, "/spec/selector")),
};

static REPLICATION_CONTROLLERS: Layout = Layout {
    columns: &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR],
    cells: |object, now| replicas(object, now, cells::labels(map(object, "/spec/selector"))),
};

static DAEMON_SETS: Layout = Layout {
    columns: &[
        NAME,
        DESIRED,
        CURRENT,
        READY,
        of_type("integer", shown("Up-to-date", "Nodes with a pod made from the current template.")),
        of_type("integer", shown("Available", "Nodes with a pod that is available.")),
        shown("Node Selector", "Nodes that get a pod."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let [names, images] = containers(object, TEMPLATE);
        vec![
            cells::name(object),
            json!(number(object, "/status/desiredNumberScheduled")),
            json!(number(object, "/status/currentNumberScheduled")),
            json!(number(object, "/status/numberReady")),
            json!(number(object, "/status/updatedNumberScheduled")),
            json!(number(object, "/status/numberAvailable")),
            cells::labels(map(object, "/spec/template/spec/nodeSelector")),
            cells::age(object, now),
            names,
            images,
            selector(object, "/spec/selector"),
        ]
    },
};

static STATEFUL_SETS: Layout = Layout {
    columns: &[NAME, shown("Ready", "Ready pods, of those wanted."), AGE, CONTAINERS, IMAGES],
    cells: |object, now| {
        let [names, images] = containers(object, TEMPLATE);
        vec![
            cells::name(object),
            ratio(object, "/status/readyReplicas", "/spec/replicas"),
            cells::age(object, now),
            names,
            images,
        ]
    },
};

static CONTROLLER_REVISIONS: Layout = Layout {
    columns: &[
        NAME,
        shown("Controller", "Object the revision belongs to."),
        shown("Revision", "Number of the revision."),
        AGE,
    ],
    cells: |object, now| {
        let owner = list(object, "/metadata/ownerReferences").iter().find(|o| cells::truth(o, "/controller"));
        let controller = owner.map_or("<none>".to_owned(), |o| {
            let (group, _) = crate::kinds::split_api_version(str_at(o, "/apiVersion"));
            let kind = str_at(o, "/kind").to_lowercase();
            let resource = if group.is_empty() { kind } else { format!("{kind}.{group}") };
            format!("{resource}/{}", str_at(o, "/name"))
        });
        cells([
            cells::name(object),
            json!(controller),
            json!(number(object, "/revision")),
            cells::age(object, now),
        ])
    },
};

static POD_TEMPLATES: Layout = Layout {
    columns: &[
        NAME,
        shown("Containers", "Names of the containers."),
        shown("Images", "Images of the containers."),
        shown("Pod Labels", "Labels the pods get."),
    ],
    cells: |object, _| {
        let [names, images] = containers(object, "/template/spec/containers");
        cells([cells::name(object), names, images, cells::labels(map(object, "/template/metadata/labels"))])
    },
};

static JOBS: Layout = Layout {
    columns: &[
        NAME,
        shown("Status", "How far the job is."),
        shown("Completions", "Pods that succeeded, of those wanted."),
        shown("Duration", "How long the job ran, or runs."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: job,
};

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = number(object, "/status/succeeded");
    let wanted = object.pointer("/spec/completions").and_then(Value::as_i64);
    let parallelism = number(object, "/spec/parallelism");
    let completions = match wanted {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let started = age::parse(object.pointer("/status/startTime"));
    let ended = age::parse(object.pointer("/status/completionTime")).unwrap_or(now);
    let duration = started.map_or(String::new(), |s| age::human_duration(ended.duration_since(s)));
    let is = |condition: &str| cells::has_condition(object, condition);
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null());
    let status = match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if deleting => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let [names, images] = containers(object, TEMPLATE);
    vec![
        cells::name(object),
        json!(status),
        json!(completions),
        json!(duration),
        cells::age(object, now),
        names,
        images,
        selector(object, "/spec/selector"),
    ]
}

static CRON_JOBS: Layout = Layout {
    columns: &[
        NAME,
        shown("Schedule", "When jobs are made."),
        shown("Timezone", "Time zone of the schedule."),
        of_type("boolean", shown("Suspend", "No new jobs are made.")),
        of_type("integer", shown("Active", "Jobs that are running.")),
        shown("Last Schedule", "When a job was last made."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec/containers");
        let last = object.pointer("/status/lastScheduleTime").filter(|t| !t.is_null());
        let suspend = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        vec![
            cells::name(object),
            cells::text(object, "/spec/schedule"),
            json!(or(str_at(object, "/spec/timeZone"), "<none>")),
            json!(suspend),
            json!(list(object, "/status/active").len()),
            json!(last.map_or("<none>".to_owned(), |t| age::since(Some(t), now))),
            cells::age(object, now),
            names,
            images,
            selector(object, "/spec/jobTemplate/spec/selector"),
        ]
    },
};

static BUDGETS: Layout = Layout {
    columns: &[
        NAME,
        shown("Min Available", "How many pods must stay available."),
        shown("Max Unavailable", "How many pods may be unavailable."),
        of_type("integer", shown("Allowed Disruptions", "How many pods may be disrupted now.")),
        AGE,
    ],
    cells: |object, now| {
        let amount = |pointer: &str| match object.pointer(pointer) {
            Some(Value::String(s)) => json!(s),
            Some(Value::Number(n)) => json!(n.to_string()),
            _ => json!("N/A"),
        };
        vec![
            cells::name(object),
            amount("/spec/minAvailable"),
            amount("/spec/maxUnavailable"),
            json!(number(object, "/status/disruptionsAllowed")),
            cells::age(object, now),
        ]
    },
};

static EVENTS: Layout = Layout {
    columns: &[
        shown("Last Seen", "When it happened last."),
        shown("Type", "Normal or Warning."),
        shown("Reason", "Why, in one word."),
        shown("Object", "What it happened to."),
        wide("Subobject", "Part of the object."),
        wide("Source", "Who reported it."),
        shown("Message", "What happened."),
        wide("First Seen", "When it happened first."),
        wide("Count", "How often it happened."),
        Column { priority: 1, ..NAME },
    ],
    cells: event,
};

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let set = |pointer: &str| event.pointer(pointer).filter(|t| !t.is_null());
    let first = age::since(set("/firstTimestamp").or_else(|| set("/eventTime")), now);
    let mut last = set("/lastTimestamp").map_or_else(|| first.clone(), |t| age::since(Some(t), now));
    let mut count = number(event, "/count");
    if set("/series").is_some() {
        last = age::since(set("/series/lastObservedTime"), now);
        count = number(event, "/series/count");
    } else if count == 0 {
        count = 1;
    }
    let kind = str_at(event, "/involvedObject/kind").to_lowercase();
    let name = str_at(event, "/involvedObject/name");
    let target = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    let component = or(str_at(event, "/source/component"), str_at(event, "/reportingComponent"));
    let instance = or(str_at(event, "/source/host"), str_at(event, "/reportingInstance"));
    let source = if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") };
    vec![
        json!(last),
        cells::text(event, "/type"),
        cells::text(event, "/reason"),
        json!(target),
        cells::text(event, "/involvedObject/fieldPath"),
        json!(source),
        json!(str_at(event, "/message").trim()),
        json!(first),
        json!(count),
        cells::name(event),
    ]
}

const TARGET: Column = shown("Target", "What is to be evicted.");
const TARGET_TYPE: Column = shown("Target Type", "Kind of the target.");
const EVICTION_STATUS: Column = shown("Status", "How far the eviction is.");

fn eviction_target(object: &Value) -> [Value; 2] {
    match object.pointer("/spec/target/pod").filter(|p| p.is_object()) {
        Some(pod) => [cells::text(pod, "/name"), json!("Pod")],
        None => [json!("<unset>"), json!("<unset>")],
    }
}

fn eviction_status(object: &Value) -> String {
    for kind in ["TargetEvicted", "Failed"] {
        let found = list(object, "/status/conditions")
            .iter()
            .find(|c| str_at(c, "/type") == kind && str_at(c, "/status") == "True");
        if let Some(condition) = found {
            return format!("{kind} ({})", str_at(condition, "/reason"));
        }
    }
    if number(object, "/status/observedGeneration") > 0 { "Progressing" } else { "Pending" }.to_owned()
}

static EVICTION_REQUESTS: Layout = Layout {
    columns: &[
        NAME,
        TARGET,
        TARGET_TYPE,
        EVICTION_STATUS,
        shown("Requester", "Who asked."),
        shown("Intent", "Whether it is still wanted."),
        AGE,
    ],
    cells: |object, now| {
        let [target, kind] = eviction_target(object);
        vec![
            cells::name(object),
            target,
            kind,
            json!(eviction_status(object)),
            cells::text(object, "/spec/requester"),
            cells::text(object, "/spec/intent"),
            cells::age(object, now),
        ]
    },
};

static EVICTIONS: Layout = Layout {
    columns: &[
        NAME,
        TARGET,
        TARGET_TYPE,
        EVICTION_STATUS,
        shown("Active Responder", "Who is at work, and how many of the responders had their turn."),
        shown("Responder Status", "What the responder reports."),
        shown("Responder Expected Finish", "When the responder expects to be done."),
        shown("Requesters", "Who asked."),
        AGE,
        wide("Responder Heartbeat", "When the responder was last heard of."),
        wide("Responder Status Message", "What the responder says."),
    ],
    cells: eviction,
};

fn eviction(object: &Value, now: Timestamp) -> Vec<Value> {
    let [target, kind] = eviction_target(object);
    let responders = list(object, "/status/targetResponders");
    let in_state = |r: &&Value, states: &[&str]| states.contains(&str_at(r, "/state"));
    let done = ["Canceled", "Interrupted", "Completed"];
    let processed = responders.iter().filter(|r| in_state(r, &done) || in_state(r, &["Active"])).count();
    let active = responders
        .iter()
        .rev()
        .find(|r| in_state(r, &["Active"]))
        .or_else(|| responders.iter().rev().find(|r| in_state(r, &done)));
    let name = active.map_or("<unset>", |r| str_at(r, "/name"));
    let (mut status, mut finish) = ("<unset>".to_owned(), "<unknown>".to_owned());
    let (mut heartbeat, mut message) = ("<unset>".to_owned(), "<unset>".to_owned());
    let report = list(object, "/status/responders").iter().find(|r| str_at(r, "/name") == name);
    if let (Some(active), Some(report)) = (active, report) {
        let state = str_at(active, "/state");
        state.clone_into(&mut status);
        let time = |pointer: &str| report.pointer(pointer).filter(|t| !t.is_null());
        match state {
            "Active" => {
                if let Some(start) = time("/startTime") {
                    status = format!("Started ({} ago)", age::since(Some(start), now));
                    if let Some(expected) = age::parse(time("/expectedCompletionTime")) {
                        finish = if expected > now {
                            format!("in {}", age::human_duration(expected.duration_since(now)))
                        } else {
                            format!("{} ago", age::human_duration(now.duration_since(expected)))
                        };
                    }
                }
            }
            "Completed" => {
                if let Some(end) = time("/completionTime") {
                    status = format!("{state} ({} ago)", age::since(Some(end), now));
                }
                "-".clone_into(&mut finish);
            }
            _ => "-".clone_into(&mut finish),
        }
        if let Some(beat) = time("/heartbeatTime") {
            heartbeat = format!("{} ago", age::since(Some(beat), now));
        }
        let said = str_at(report, "/message").trim();
        if !said.is_empty() {
            said.clone_into(&mut message);
        }
    }
    let all = list(object, "/status/requesters");
    let mut asking: Vec<String> = all
        .iter()
        .filter(|r| str_at(r, "/intent") != "Withdrawn")
        .map(|r| str_at(r, "/name").to_owned())
        .collect();
    asking.sort_unstable();
    let requesters = match (asking.first(), all.is_empty()) {
        (Some(first), _) => with_more(std::slice::from_ref(first), asking.len(), 1),
        (None, true) => "<none>".to_owned(),
        (None, false) => "<withdrawn>".to_owned(),
    };
    vec![
        cells::name(object),
        target,
        kind,
        json!(eviction_status(object)),
        json!(format!("{name} ({processed}/{})", responders.len())),
        json!(status),
        json!(finish),
        json!(requesters),
        cells::age(object, now),
        json!(heartbeat),
        json!(message),
    ]
}
