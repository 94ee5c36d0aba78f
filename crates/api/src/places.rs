//! What nodes have to offer to guests, and what guests ask of them, from API objects.

use std::collections::BTreeMap;

use evac_core::cluster::place::{Amounts, Expression, Place, Places, Term, Toleration, Wants};
use evac_core::{Index, Key, Taint};
use serde::Deserialize;

use crate::kubevirt::wire::Quantity;
use crate::quantity::{Requests, parse};
use crate::wire::{Meta, nullable};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    metadata: Meta,
    spec: NodeSpec,
    status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    #[serde(deserialize_with = "nullable")]
    allocatable: BTreeMap<String, Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    metadata: Meta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    node_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    affinity: Affinity,
    #[serde(deserialize_with = "nullable")]
    tolerations: Vec<WireToleration>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    init_containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    resources: Resources,
    #[serde(deserialize_with = "nullable")]
    overhead: BTreeMap<String, Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    #[serde(deserialize_with = "nullable")]
    resources: Resources,
    restart_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "nullable")]
    requests: BTreeMap<String, Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    #[serde(deserialize_with = "nullable")]
    node_affinity: NodeAffinity,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    #[serde(deserialize_with = "nullable")]
    node_selector_terms: Vec<WireTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerm {
    #[serde(deserialize_with = "nullable")]
    match_expressions: Vec<crate::wire::Expression>,
    #[serde(deserialize_with = "nullable")]
    match_fields: Vec<crate::wire::Expression>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WireToleration {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
}

fn amounts(list: &BTreeMap<String, Quantity>) -> Amounts {
    list.iter().filter_map(|(name, quantity)| Some((name.clone(), parse(&quantity.text())?))).collect()
}

impl PodSpec {
    fn takes(&self) -> Amounts {
        let of = |container: &Container| amounts(&container.resources.requests);
        let init = |one: &Container| (of(one), one.restart_policy.as_deref() == Some("Always"));
        Requests {
            containers: self.containers.iter().map(of).collect(),
            init: self.init_containers.iter().map(init).collect(),
            whole: amounts(&self.resources.requests),
            overhead: amounts(&self.overhead),
        }
        .taken()
    }

    fn wants(&self) -> Wants {
        let expressions = |list: &[crate::wire::Expression]| {
            let one = |from: &crate::wire::Expression| Expression {
                key: from.key.clone(),
                operator: from.operator.clone(),
                values: from.values.clone(),
            };
            list.iter().map(one).collect()
        };
        let required = &self.affinity.node_affinity.required_during_scheduling_ignored_during_execution;
        let term = |from: &WireTerm| Term {
            labels: expressions(&from.match_expressions),
            fields: expressions(&from.match_fields),
        };
        let toleration = |from: &WireToleration| {
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            Toleration {
                key: text(&from.key),
                operator: text(&from.operator),
                value: text(&from.value),
                effect: text(&from.effect),
            }
        };
        Wants {
            selector: self.node_selector.clone(),
            affinity: required.as_ref().map(|from| from.node_selector_terms.iter().map(term).collect()),
            tolerations: self.tolerations.iter().map(toleration).collect(),
            requests: self.takes(),
        }
    }
}

/// The same as [`places`], where guests that have the CPU of their host ask for nodes with the same model.
pub fn around(index: &Index, nodes: Vec<Node>, pods: &[Pod], from: &[String]) -> Places {
    let mut found = places(nodes, pods, from);
    for node in from {
        let labels = found.nodes.get(node).map(|place| place.labels.clone()).unwrap_or_default();
        for pod in index.pods_on(node) {
            let like_host = index.instance_of(pod).is_some_and(|instance| instance.cpu_model == "host-model");
            if let Some(wants) = found.wants.get_mut(&pod.key).filter(|_| like_host) {
                wants.keep_host_model(&labels);
            }
        }
    }
    found
}

/// All nodes with the room that these pods leave, and what the pods on the nodes `from` ask for that run guests.
pub fn places(nodes: Vec<Node>, pods: &[Pod], from: &[String]) -> Places {
    let mut places = Places::default();
    for node in nodes {
        let size = amounts(&node.status.allocatable);
        let place = Place {
            labels: node.metadata.labels,
            taints: node.spec.taints,
            unschedulable: node.spec.unschedulable.unwrap_or(false),
            free: size.clone(),
            size,
        };
        places.nodes.insert(node.metadata.name, place);
    }
    for pod in pods {
        let over = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let Some(node) = pod.spec.node_name.as_ref().filter(|_| !over) else { continue };
        if let Some(place) = places.nodes.get_mut(node) {
            for (resource, amount) in pod.spec.takes() {
                *place.free.entry(resource).or_default() -= amount;
            }
            *place.free.entry("pods".into()).or_default() -= 1000;
        }
        let meta = &pod.metadata;
        if from.contains(node) && meta.labels.get("kubevirt.io").is_some_and(|part| part == "virt-launcher") {
            places.wants.insert(Key::new(meta.namespace.clone(), meta.name.clone()), pod.spec.wants());
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_guest_fits_where_its_pod_would_and_running_pods_take_their_room() {
        let node = |name: &str| {
            read::<Node>(json!({
                "metadata": {"name": name, "labels": {"zone": name}},
                "spec": {"taints": null},
                "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"}},
            }))
        };
        let pod = |name: &str, node: &str, memory: &str, phase: &str| {
            read::<Pod>(json!({
                "metadata": {"name": name, "namespace": "d", "labels": {"kubevirt.io": "virt-launcher"}},
                "spec": {
                    "nodeName": node,
                    "affinity": null,
                    "tolerations": [{"key": "a", "operator": "Exists"}],
                    "containers": [{"resources": {"requests": {"memory": memory}}}],
                },
                "status": {"phase": phase},
            }))
        };
        let pods = [
            pod("guest", "a", "600Mi", "Running"),
            pod("other", "b", "600Mi", "Running"),
            pod("over", "c", "600Mi", "Succeeded"),
        ];
        let places = places(vec![node("a"), node("b"), node("c")], &pods, &["a".to_owned()]);
        let guest = Key::new("d", "guest");
        assert_eq!(places.targets(&guest, &["a".to_owned()]), Some(Ok(vec!["c".to_owned()])));
        assert_eq!(places.wants.len(), 1, "what is not on the node does not move");
        assert_eq!(places.wants[&guest].tolerations[0].key, "a");
    }
}
