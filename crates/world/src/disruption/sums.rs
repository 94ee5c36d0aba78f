//! How many pods a budget expects, and how many of them must stay healthy.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::actor::{Ask, Out, Reply, View};
use crate::objects::{Key, controller_of, name, scaled, uid};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub count: i32,
    pub desired: i32,
    pub unmanaged: Vec<String>,
}

pub enum Expected {
    Sum(Sum),
    /// The scale of an owner is not known yet.
    Ask,
    Failed(String),
}

pub fn expected(view: View<'_>, budget: &PodDisruptionBudget, pods: &[Arc<Pod>], out: &mut Out) -> Expected {
    let spec = budget.spec.clone().unwrap_or_default();
    let share = |value: &IntOrString, count: i32| {
        scaled(value, count, true).ok_or_else(|| match value {
            IntOrString::String(text) => {
                format!("invalid value for IntOrString: invalid type: string is not a percentage: {text:?}")
            }
            IntOrString::Int(n) => n.to_string(),
        })
    };
    match (spec.max_unavailable, spec.min_available) {
        (Some(most), _) => match scale_of_all(view, pods, out) {
            Scales::Known(count, unmanaged) => match share(&most, count) {
                Ok(most) => Expected::Sum(Sum { count, desired: (count - most).max(0), unmanaged }),
                Err(problem) => Expected::Failed(problem),
            },
            Scales::Ask => Expected::Ask,
            Scales::Failed(problem) => Expected::Failed(problem),
        },
        (None, Some(IntOrString::Int(least))) => {
            Expected::Sum(Sum { count: pods.len() as i32, desired: least, unmanaged: Vec::new() })
        }
        (None, Some(least)) => match scale_of_all(view, pods, out) {
            Scales::Known(count, unmanaged) => match share(&least, count) {
                Ok(desired) => Expected::Sum(Sum { count, desired, unmanaged }),
                Err(problem) => Expected::Failed(problem),
            },
            Scales::Ask => Expected::Ask,
            Scales::Failed(problem) => Expected::Failed(problem),
        },
        (None, None) => Expected::Sum(Sum::default()),
    }
}

enum Scales {
    Known(i32, Vec<String>),
    Ask,
    Failed(String),
}

/// The sum of the scales of the distinct controllers of the pods.
fn scale_of_all(view: View<'_>, pods: &[Arc<Pod>], out: &mut Out) -> Scales {
    let mut scales: BTreeMap<String, i32> = BTreeMap::new();
    let mut unmanaged = Vec::new();
    let mut asked = false;
    for pod in pods {
        let Some(owner) = controller_of(&pod.metadata) else {
            unmanaged.push(name(&pod.metadata).to_owned());
            continue;
        };
        if scales.contains_key(&owner.uid) {
            continue;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        match scale_of(view, owner, namespace, out) {
            Found::Scale(controller, scale) => {
                scales.insert(controller, scale);
            }
            Found::Nothing => {
                return Scales::Failed(format!("found no controllers for pod {:?}", name(&pod.metadata)));
            }
            Found::Ask => asked = true,
            Found::Failed(problem) => return Scales::Failed(problem),
        }
    }
    if asked { Scales::Ask } else { Scales::Known(scales.values().sum(), unmanaged) }
}

enum Found {
    Scale(String, i32),
    Nothing,
    Ask,
    Failed(String),
}

fn scale_of(view: View<'_>, owner: &OwnerReference, namespace: &str, out: &mut Out) -> Found {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let key = Key::new(namespace, owner.name.clone());
    let mirror = view.mirror;
    match (group, owner.kind.as_str()) {
        ("", "ReplicationController") => {
            if let Some(found) = mirror.replication_controllers.get(&key)
                && uid(&found.metadata) == owner.uid
            {
                return Found::Scale(
                    owner.uid.clone(),
                    found.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1),
                );
            }
        }
        ("apps" | "extensions", "ReplicaSet") => {
            if let Some(found) = mirror.replica_sets.get(&key)
                && uid(&found.metadata) == owner.uid
            {
                let above = controller_of(&found.metadata);
                match above.filter(|a| a.kind == "Deployment") {
                    None => {
                        let scale = found.spec.replicas.unwrap_or(1);
                        return Found::Scale(owner.uid.clone(), scale);
                    }
                    Some(above) => {
                        if let Some(top) = mirror.deployments.get(&Key::new(namespace, above.name.clone()))
                            && uid(&top.metadata) == above.uid
                        {
                            let scale = top.spec.replicas.unwrap_or(1);
                            return Found::Scale(above.uid.clone(), scale);
                        }
                    }
                }
            }
        }
        ("apps", "StatefulSet") => {
            if let Some(found) = mirror.stateful_sets.get(&key)
                && uid(&found.metadata) == owner.uid
            {
                return Found::Scale(owner.uid.clone(), found.spec.replicas.unwrap_or(1));
            }
        }
        _ => {}
    }
    // Any other kind may still say how large it is.
    let ask = Ask::Scale { api_version: owner.api_version.clone(), kind: owner.kind.clone(), key };
    match view.answers.get(&ask) {
        None => {
            out.ask(ask);
            Found::Ask
        }
        Some(Reply::Found(scale)) if scale["metadata"]["uid"] == owner.uid => {
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            Found::Scale(owner.uid.clone(), replicas as i32)
        }
        Some(Reply::Found(_) | Reply::NotFound) => Found::Nothing,
        Some(Reply::NoScale(resource)) => {
            Found::Failed(format!("{resource} does not implement the scale subresource"))
        }
        Some(Reply::Failed(problem)) => Found::Failed(problem.clone()),
    }
}
