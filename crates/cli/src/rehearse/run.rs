//! One rehearsal: a cluster in one thread and in virtual time, made of a snapshot, and in it the drain that a person would run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evac_api::kubevirt::{NAMESPACE, crds, request};
use evac_apiserver::server::{Api, Settings};
use evac_clock::Clock;
use evac_core::Policy;
use evac_core::drain::run::End;
use evac_core::drain::step::Event;
use evac_core::machines::{Role, Roles};
use evac_engine::http::parse;
use evac_engine::operator::install;
use evac_engine::{DrainRequest, Http, HttpError, drain, nodes};
use evac_world::{Options, World};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::objects::{Objects, key, text};
use super::pour::{pour, settings};
use super::record::Record;
use crate::in_process;
use crate::sandbox::client;

/// Until everything that was poured has come to itself: agents have found their guests, budgets are counted.
const SETTLE: Duration = Duration::from_secs(20);
/// How long a drain may go on after its own time limit.
const LEEWAY: Duration = Duration::from_secs(600);

/// What is rehearsed.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    pub nodes: Vec<String>,
    /// Each is given back before the next one begins.
    pub one_by_one: bool,
    /// With the time limit of the drain.
    pub policy: Policy,
    pub owner: String,
    /// MiB per second that a node can send for migrations.
    pub bandwidth: f64,
}

/// What came of one run.
#[derive(Debug, Clone)]
pub struct Ran {
    pub seed: u64,
    pub began: Timestamp,
    pub over: Timestamp,
    /// Each node with when and how the work on it ended.
    pub ends: Vec<(String, Timestamp, End)>,
    pub record: Record,
    /// What is not as it would be in the cluster.
    pub notes: Vec<String>,
}

impl Ran {
    pub fn seconds(&self) -> i64 {
        self.over.duration_since(self.began).as_secs()
    }
}

/// Runs it in this thread. The error is a sentence.
pub fn rehearse(snapshot: &Objects, rehearsal: &Rehearsal, seed: u64) -> Result<Ran, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(|error| error.to_string())?.block_on(run(snapshot, rehearsal, seed))
}

async fn run(snapshot: &Objects, rehearsal: &Rehearsal, seed: u64) -> Result<Ran, String> {
    let clock = Clock::starting_at(snapshot.header.captured);
    let api = Api::new(clock, Settings { seed, ..Settings::default() });
    let http = Http::new(client(&api), clock, Duration::ZERO);
    let poured = pour(snapshot, seed);
    fill(&api, &http, snapshot, &poured.objects).await.map_err(|error| error.to_string())?;
    let options = Options {
        seed,
        as_found: true,
        migration_bandwidth: rehearsal.bandwidth,
        // Owners that are not in the snapshot are not gone, and nodes that send no heartbeats have not failed.
        gc: false,
        node_lifecycle: false,
        pod_gc: false,
        volumes: false,
        ..Options::cluster(poured.nodes)
    };
    let world = World::start(client(&api), clock, options);
    world.answer_for_agents(&api);
    let operator = in_process::machines(&api, client(&api), Roles::of(Role::KUBEVIRT)).await;
    let operator = operator.map_err(|error| error.to_string())?;
    clock.sleep(SETTLE).await;
    let mut notes = poured.notes;
    notes.extend(differences(&http, snapshot).await.map_err(|error| error.to_string())?);

    let guests = items(&http, "/apis/kubevirt.io/v1/virtualmachineinstances").await;
    let pods = items(&http, "/api/v1/pods").await;
    let record = match (guests, pods) {
        (Ok(guests), Ok(pods)) => Arc::new(Mutex::new(Record::begin(&guests, &pods))),
        (Err(error), _) | (_, Err(error)) => return Err(error.to_string()),
    };
    let began = clock.now();
    api.store.observe({
        let record = record.clone();
        move |resource, change| {
            record.lock().unwrap_or_else(PoisonError::into_inner).see(resource, change, clock.now());
        }
    });
    let mut ends: Vec<(String, Timestamp, End)> = Vec::new();
    let drained = drains(&http, rehearsal, &mut ends).await;
    let over = ends.iter().map(|(_, at, _)| *at).max().unwrap_or_else(|| clock.now());
    notes.extend(lacking(&http).await.map_err(|error| error.to_string())?);
    operator.stop().await;
    world.stop().await;
    drained?;
    let record = record.lock().unwrap_or_else(PoisonError::into_inner).clone();
    notes.extend(record.refused().map(|why| format!("a pod could not be made here: {why}")));
    Ok(Ran { seed, began, over, ends, record, notes })
}

/// All nodes at once, or one after the other.
async fn drains(
    http: &Http,
    rehearsal: &Rehearsal,
    ends: &mut Vec<(String, Timestamp, End)>,
) -> Result<(), String> {
    if !rehearsal.one_by_one {
        return one_drain(http, rehearsal, rehearsal.nodes.clone(), ends).await;
    }
    for node in &rehearsal.nodes {
        one_drain(http, rehearsal, vec![node.clone()], ends).await?;
        nodes::undo(http, node, false, false).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

async fn one_drain(
    http: &Http,
    rehearsal: &Rehearsal,
    nodes: Vec<String>,
    ends: &mut Vec<(String, Timestamp, End)>,
) -> Result<(), String> {
    let request = DrainRequest {
        nodes,
        policy: rehearsal.policy.clone(),
        owner: rehearsal.owner.clone(),
        instance: Some("rehearsal".into()),
        options: Vec::new(),
        page: None,
    };
    let mut hear = |at: Timestamp, event: &Event| {
        if let Event::Ended { node, end } = event {
            ends.push((node.clone(), at, end.clone()));
        }
    };
    let limit = rehearsal.policy.timeout.unwrap_or_default() + LEEWAY;
    let draining = drain(http.clone(), request, CancellationToken::new(), &mut hear);
    match tokio::time::timeout(limit, draining).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("the drain did not end within {} s", limit.as_secs())),
    }
}

/// Stores what was poured, before anybody looks at it.
async fn fill(api: &Arc<Api>, http: &Http, snapshot: &Objects, objects: &[Value]) -> Result<(), HttpError> {
    install::kinds(http).await?;
    install::define(http, &[crds::hyperconverged()]).await?;
    let path = format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/kubevirts/kubevirt");
    let body = json!({"spec": settings(snapshot)});
    let answer = http.send(&request::send("PATCH", path, evac_api::call::MERGE_PATCH, &body)).await?;
    parse::<Value>(&answer)?;
    let kinds = api.kinds();
    for object in objects {
        let (group, version) = match text(object, "/apiVersion").split_once('/') {
            Some(parts) => parts,
            None => ("", text(object, "/apiVersion")),
        };
        if let Some(kind) = kinds.by_kind(group, version, text(object, "/kind")) {
            let mut object = object.clone();
            kind.default(&mut object);
            // What the server has already, such as its system namespaces, is not stored a second time.
            let _ = api.store_as_is(kind, object);
        }
    }
    Ok(())
}

async fn items(http: &Http, path: &str) -> Result<Vec<Value>, HttpError> {
    let list: Value = http.read(&evac_api::Call::get(path)).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// Sets of pods that have fewer than they want, at the end: those that are missing could not be made, which says more about the copy than about the cluster.
async fn lacking(http: &Http) -> Result<Vec<String>, HttpError> {
    let mut notes = Vec::new();
    for path in ["/apis/apps/v1/replicasets", "/api/v1/replicationcontrollers", "/apis/apps/v1/statefulsets"]
    {
        for set in items(http, path).await? {
            let number = |pointer| set.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
            let (is, wanted) = (number("/status/replicas"), number("/spec/replicas"));
            if is < wanted {
                notes.push(format!("{} has {is} of {wanted} pods here at the end", key(&set)));
            }
        }
    }
    Ok(notes)
}

/// What became otherwise by itself, before the drain began: it says how far the rehearsed cluster is that of the snapshot.
async fn differences(http: &Http, snapshot: &Objects) -> Result<Vec<String>, HttpError> {
    let mut notes = Vec::new();
    let budgets = items(http, "/apis/policy/v1/poddisruptionbudgets").await?;
    for was in snapshot.of("poddisruptionbudgets") {
        let name = key(was);
        let Some(is) = budgets.iter().find(|one| key(one) == name) else { continue };
        let allowed = |budget: &Value| budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64);
        if allowed(was) != allowed(is) {
            let number =
                |budget: &Value| allowed(budget).map_or("no".to_owned(), |number| number.to_string());
            notes.push(format!(
                "PodDisruptionBudget {name} allows {} disruption(s) here and allowed {} in the cluster",
                number(is),
                number(was)
            ));
        }
    }
    let instances = items(http, "/apis/kubevirt.io/v1/virtualmachineinstances").await?;
    for was in snapshot.of("virtualmachineinstances") {
        let name = key(was);
        let place = |one: &Value| format!("{} {}", text(one, "/status/phase"), text(one, "/status/nodeName"));
        let is = instances.iter().find(|one| key(one) == name).map_or("gone".into(), place);
        if is != place(was) {
            notes.push(format!(
                "guest {name} is {} here and was {} in the cluster",
                is.trim(),
                place(was).trim()
            ));
        }
    }
    Ok(notes)
}
