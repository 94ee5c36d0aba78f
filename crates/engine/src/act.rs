//! Performs actions: the requests that several roles ask for, and the readings of a drain.

use std::time::Duration;

use evac_api::kubevirt::project::Follow;
use evac_api::kubevirt::wire as kubevirt;
use evac_api::wire::{self, List};
use evac_api::{Answer, Call, Project, call, call_for, classify};
use evac_core::action;
use evac_core::cluster::index::ListedAt;
use evac_core::cluster::subject::{Kind, ObjectRef};
use evac_core::drain::action::Own;
use evac_core::drain::claim;
use evac_core::drain::transfer::exposition;
use evac_core::{Action, Fact, Outcome, Pod};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http::{Http, HttpError, parse};
use crate::life;

/// An agent with hundreds of guests writes a few megabytes.
const METRICS_SIZE: usize = 16 << 20;
/// Later they would tell of the past.
const METRICS_WITHIN: Duration = Duration::from_secs(5);

/// Sends an action that several roles ask for. What only one role asks for is no request.
pub async fn send<O>(http: &Http, action: &action::Action<O>) -> Result<Answer, HttpError> {
    match call_for(action) {
        Some(call) => http.send(&call).await,
        None => Err(HttpError::Transport("this is not one request".into())),
    }
}

/// What an answer to such an action tells of the cluster.
pub fn learned<O>(action: &action::Action<O>, outcome: &Outcome, answer: &Answer) -> Option<Fact> {
    use action::Action;
    match (action, outcome) {
        (Action::Cordon { dry_run: false, .. }, Outcome::Done) => {
            parse::<wire::Node>(answer).ok().map(|node| Fact::Node(Box::new(node.into())))
        }
        (Action::Evict { object, .. } | Action::Delete { object, .. }, Outcome::Gone | Outcome::Replaced) => {
            gone(object)
        }
        (Action::Patch { object, .. }, Outcome::Gone) => gone(object),
        (Action::Delete { object, dry_run: false, .. } | Action::Patch { object, .. }, Outcome::Done) => {
            shown(object, answer)
        }
        (Action::Evict { object, .. }, Outcome::NamespaceTerminating) => {
            Some(Fact::NamespaceTerminating(object.key.namespace.to_string()))
        }
        (Action::Migrate { dry_run: false, .. }, Outcome::Done) => {
            parse::<kubevirt::Migration>(answer).ok().map(Project::seen)
        }
        (Action::Hold { .. }, Outcome::Done) => {
            parse::<wire::Lease>(answer).ok().map(|lease| Fact::Lease(Box::new(lease.into())))
        }
        (Action::Hold { lease, node, .. }, Outcome::Gone) => {
            Some(Fact::LeaseAbsent(call::key_of(*lease, node)))
        }
        _ => None,
    }
}

/// That this incarnation is gone.
fn gone(object: &ObjectRef) -> Option<Fact> {
    let (key, uid) = (object.key.clone(), object.uid.clone());
    Some(match object.kind {
        Kind::Machine => Fact::MachineGone(key, uid),
        Kind::Instance => Fact::InstanceGone(key, uid),
        Kind::ReplicaSet => Fact::ReplicaSetGone(key, uid),
        Kind::Migration => Fact::MigrationGone(key, uid),
        Kind::Budget => Fact::BudgetGone(key, uid),
        Kind::Lease => Fact::LeaseGone(key, uid),
        Kind::Pod => Fact::PodGone(key, uid),
        Kind::Node => Fact::NodeGone(key.name.to_string(), uid),
        Kind::Maintenance(_) | Kind::Policy => return None,
    })
}

/// The object in an answer; a deletion that is complete answers with a status instead.
pub fn shown(object: &ObjectRef, answer: &Answer) -> Option<Fact> {
    fn seen<T: Follow + DeserializeOwned>(object: Value) -> Option<Fact> {
        serde_json::from_value::<T>(object).ok().map(Project::seen)
    }
    let found: Value = serde_json::from_slice(&answer.body).ok()?;
    if found["kind"] == "Status" {
        return gone(object);
    }
    match object.kind {
        Kind::Machine => seen::<kubevirt::VirtualMachine>(found),
        Kind::Instance => seen::<kubevirt::VirtualMachineInstance>(found),
        Kind::ReplicaSet => seen::<kubevirt::ReplicaSet>(found),
        Kind::Migration => seen::<kubevirt::Migration>(found),
        Kind::Pod => seen::<wire::Pod>(found),
        Kind::Budget => seen::<wire::Budget>(found),
        Kind::Node | Kind::Lease | Kind::Maintenance(_) | Kind::Policy => None,
    }
}

/// What came back to a drain: the outcome for its run, and what was learned on the way for the index.
#[derive(Debug)]
pub struct Done {
    pub action: Action,
    pub outcome: Outcome,
    pub learned: Vec<Learned>,
}

#[derive(Debug)]
pub enum Learned {
    Fact(Fact),
    /// A complete, consistent reading of a node's pods.
    Pods(String, Vec<Pod>, ListedAt),
}

/// Performs an action of a drain.
pub async fn perform(http: &Http, action: Action) -> Done {
    let (outcome, learned) = match attempt(http, &action).await {
        Ok((outcome, learned)) => (outcome, learned),
        Err(error) => (Outcome::from(&error), Vec::new()),
    };
    Done { action, outcome, learned }
}

async fn attempt(http: &Http, action: &Action) -> Result<(Outcome, Vec<Learned>), HttpError> {
    let learned = match action {
        Action::Own(Own::Prove { node }) => or_absent(node, read_node(http, node).await)?,
        Action::Own(Own::LookUp { node }) => {
            let found = http.read_patiently::<wire::Node>(&Call::get(call::node_path(node))).await;
            let fact = found.map(|found| vec![Learned::Fact(Fact::Node(Box::new(found.into())))]);
            or_absent(node, fact)?
        }
        Action::Own(Own::ReadLaunchers { instance, uid }) => {
            let call = Call::get(call::launchers_path(&instance.namespace, uid));
            let list = http.read::<List<wire::Pod>>(&call).await?;
            list.items.into_iter().map(|pod| Learned::Fact(pod.seen())).collect()
        }
        Action::Own(Own::ReadTransfers { pod, .. }) => {
            let call = Call::get(call::agent_metrics_path(pod));
            let text = http.read_text(&call, METRICS_SIZE, METRICS_WITHIN).await?;
            vec![Learned::Fact(Fact::Transfers(exposition::parse(&text)))]
        }
        Action::Own(Own::Ask { node, at }) => {
            let outcome = classify(&http.send(&call::ask(node, *at)).await?);
            let absent = (outcome == Outcome::Gone).then(|| Fact::LeaseAbsent(claim::key(node)));
            return Ok((outcome, absent.into_iter().map(Learned::Fact).collect()));
        }
        action => {
            let answer = send(http, action).await?;
            let outcome = classify(&answer);
            let fact = match (action, &outcome) {
                (Action::Hold { node, .. } | Action::Release { node, .. }, Outcome::Conflict { .. }) => {
                    life::read(http, node).await
                }
                _ => learned(action, &outcome, &answer),
            };
            return Ok((outcome, fact.into_iter().map(Learned::Fact).collect()));
        }
    };
    Ok((Outcome::Done, learned))
}

/// A node that is not there is an answer, too.
fn or_absent(node: &str, read: Result<Vec<Learned>, HttpError>) -> Result<Vec<Learned>, HttpError> {
    match read {
        Err(error) if error.is_not_found() => Ok(vec![Learned::Fact(Fact::NodeAbsent(node.to_owned()))]),
        read => read,
    }
}

/// Reads a node and its pods from the store itself: a request without a resource version is answered consistently.
async fn read_node(http: &Http, node: &str) -> Result<Vec<Learned>, HttpError> {
    let object = Call::get(call::node_path(node));
    let pods = Call::get(call::pods_on_node_path(node));
    let (object, pods) =
        futures::join!(http.read::<wire::Node>(&object), http.read::<List<wire::Pod>>(&pods));
    let pods = pods?;
    let at = ListedAt { version: pods.metadata.resource_version, rewound: false };
    let pods = pods.items.into_iter().map(Pod::from).collect();
    Ok(vec![Learned::Fact(Fact::Node(Box::new(object?.into()))), Learned::Pods(node.to_owned(), pods, at)])
}
