//! Performs one action and says what became of it.

use std::time::Duration;

use evac_api::Project;
use evac_api::kubevirt::wire::Migration;
use evac_api::wire::{self, List};
use evac_api::{Call, call, call_for, classify};
use evac_core::cluster::index::ListedAt;
use evac_core::drain::claim;
use evac_core::drain::transfer::exposition;
use evac_core::{Action, Fact, Outcome, Pod};

use crate::http::{Http, HttpError, parse};
use crate::life;

/// An agent with hundreds of guests writes a few megabytes.
const METRICS_SIZE: usize = 16 << 20;
/// Later they would tell of the past.
const METRICS_WITHIN: Duration = Duration::from_secs(5);

/// What came back: the outcome for the run, and what was learned on the way for the index.
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

pub async fn perform(http: &Http, action: Action) -> Done {
    if let Action::Prove { node } = &action {
        let (outcome, learned) = match read_node(http, node).await {
            Ok(learned) => (Outcome::Done, learned),
            Err(error) if error.is_not_found() => {
                (Outcome::Done, vec![Learned::Fact(Fact::NodeAbsent(node.clone()))])
            }
            Err(error) => (Outcome::from(&error), Vec::new()),
        };
        return Done { action, outcome, learned };
    }
    if let Action::LookUp { node } = &action {
        let (outcome, fact) = match http.read_patiently::<wire::Node>(&Call::get(call::node_path(node))).await
        {
            Ok(found) => (Outcome::Done, Some(Fact::Node(Box::new(found.into())))),
            Err(error) if error.is_not_found() => (Outcome::Done, Some(Fact::NodeAbsent(node.clone()))),
            Err(error) => (Outcome::from(&error), None),
        };
        return Done { action, outcome, learned: fact.into_iter().map(Learned::Fact).collect() };
    }
    if let Action::ReadLaunchers { instance, uid } = &action {
        let call = Call::get(call::launchers_path(&instance.namespace, uid));
        let (outcome, learned) = match http.read::<List<wire::Pod>>(&call).await {
            Ok(list) => {
                let pods = list.items.into_iter().map(|pod| Learned::Fact(pod.seen()));
                (Outcome::Done, pods.collect())
            }
            Err(error) => (Outcome::from(&error), Vec::new()),
        };
        return Done { action, outcome, learned };
    }
    if let Action::ReadTransfers { pod, .. } = &action {
        let call = Call::get(call::agent_metrics_path(pod));
        let (outcome, learned) = match http.read_text(&call, METRICS_SIZE, METRICS_WITHIN).await {
            Ok(text) => (Outcome::Done, vec![Learned::Fact(Fact::Transfers(exposition::parse(&text)))]),
            Err(error) => (Outcome::from(&error), Vec::new()),
        };
        return Done { action, outcome, learned };
    }
    let Some(call) = call_for(&action) else {
        return Done { action, outcome: Outcome::Unsupported, learned: Vec::new() };
    };
    let mut learned = Vec::new();
    let outcome = match http.send(&call).await {
        Err(error) => Outcome::from(&error),
        Ok(answer) => {
            let outcome = classify(&answer);
            match (&action, &outcome) {
                (Action::Cordon { dry_run: false, .. }, Outcome::Done) => {
                    if let Ok(node) = parse::<wire::Node>(&answer) {
                        learned.push(Learned::Fact(Fact::Node(Box::new(node.into()))));
                    }
                }
                (
                    Action::Evict { pod, uid, .. } | Action::Delete { pod, uid, .. },
                    Outcome::Gone | Outcome::Replaced,
                ) => learned.push(Learned::Fact(Fact::PodGone(pod.clone(), uid.clone()))),
                (Action::Evict { pod, .. }, Outcome::NamespaceTerminating) => {
                    learned.push(Learned::Fact(Fact::NamespaceTerminating(pod.namespace.to_string())));
                }
                (Action::Migrate { dry_run: false, .. }, Outcome::Done) => {
                    if let Ok(migration) = parse::<Migration>(&answer) {
                        learned.push(Learned::Fact(migration.seen()));
                    }
                }
                (Action::Hold { .. }, Outcome::Done) => {
                    if let Ok(lease) = parse::<wire::Lease>(&answer) {
                        learned.push(Learned::Fact(Fact::Lease(Box::new(lease.into()))));
                    }
                }
                (Action::Hold { node, .. } | Action::Ask { node, .. }, Outcome::Gone) => {
                    learned.push(Learned::Fact(Fact::LeaseAbsent(claim::key(node))));
                }
                (Action::Hold { node, .. } | Action::Release { node, .. }, Outcome::Conflict { .. }) => {
                    learned.extend(life::read(http, node).await.map(Learned::Fact));
                }
                _ => {}
            }
            outcome
        }
    };
    Done { action, outcome, learned }
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
