//! Among nodes that fit: the emptier one, the preferred one, the one with fewer of the pod's own kind. What depends on the pod and the node alone is scored by
//! `evac_core::cluster::score`.

use std::sync::Arc;

use evac_core::cluster::score::{self, Stock, UNSAID_CPU, UNSAID_MEMORY};

use k8s_openapi::api::core::v1::{Node, Pod, WeightedPodAffinityTerm};

use super::fit::{taints, term_holds, tolerates, tolerations};
use crate::mirror::Mirror;
use crate::objects::{Key, controlled_by, controller_of, finished, label, name, node_of, selects};
use crate::random::tie_break;

pub fn best<'a>(
    mirror: &Mirror,
    seed: u64,
    key: &Key,
    pod: &Pod,
    fitting: &[&'a Arc<Node>],
) -> Option<&'a Arc<Node>> {
    let siblings = controller_of(&pod.metadata).map(|o| o.uid.clone());
    let entity = key.to_string();
    fitting.iter().copied().max_by_key(|node| {
        let alone =
            score::together(emptiness(mirror, key, node), preference(pod, node), soft_taints(pod, node));
        let score = alone + 2 * company(mirror, pod, node) + 2 * apart(mirror, siblings.as_deref(), node);
        (score, tie_break(seed, &entity, name(&node.metadata)))
    })
}

fn emptiness(mirror: &Mirror, key: &Key, node: &Node) -> i64 {
    let allocatable = mirror.allocatable(name(&node.metadata));
    let load = mirror.load(name(&node.metadata));
    let wanted = |resource: &str| mirror.requests(key).and_then(|w| w.get(resource)).copied();
    let stock = |resource: &str, unsaid| Stock {
        capacity: allocatable.and_then(|a| a.get(resource)).copied().unwrap_or(0),
        said: load.and_then(|l| l.requested.get(resource)).copied().unwrap_or(0),
        unsaid,
    };
    let pods = load.map_or(0, |l| i128::from(l.pods));
    let (cpu, memory) = (stock("cpu", UNSAID_CPU), stock("memory", UNSAID_MEMORY));
    score::emptiness(cpu, memory, pods, (wanted("cpu"), wanted("memory")))
}

fn preference(pod: &Pod, node: &Node) -> i64 {
    let terms = pod
        .spec
        .as_ref()
        .and_then(|s| s.affinity.as_ref()?.node_affinity.as_ref())
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default();
    score::preference(terms.iter().map(|t| (i64::from(t.weight), term_holds(&t.preference, node))))
}

/// Preferred pod affinity and anti-affinity: weights of the terms that hold here.
fn company(mirror: &Mirror, pod: &Pod, node: &Node) -> i64 {
    let Some(affinity) = pod.spec.as_ref().and_then(|s| s.affinity.as_ref()) else { return 0 };
    let near = affinity.pod_affinity.as_ref();
    let away = affinity.pod_anti_affinity.as_ref();
    let near = near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref());
    let away = away.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref());
    let weigh = |terms: Option<&[WeightedPodAffinityTerm]>| -> i64 {
        terms.unwrap_or_default().iter().map(|t| i64::from(t.weight) * matching(mirror, pod, node, t)).sum()
    };
    (weigh(near) - weigh(away)).clamp(-200, 200)
}

fn matching(mirror: &Mirror, pod: &Pod, node: &Node, term: &WeightedPodAffinityTerm) -> i64 {
    let term = &term.pod_affinity_term;
    let Some(here) = label(&node.metadata, &term.topology_key) else { return 0 };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let named = term.namespaces.as_deref().unwrap_or_default();
    let spoken =
        |other: &str| if named.is_empty() { other == namespace } else { named.iter().any(|n| n == other) };
    mirror
        .pods
        .values()
        .filter(|p| !finished(p) && spoken(p.metadata.namespace.as_deref().unwrap_or_default()))
        .filter(|p| selects(term.label_selector.as_ref(), p.metadata.labels.as_ref()))
        .filter_map(|p| mirror.nodes.named(node_of(p)?))
        .filter(|n| label(&n.metadata, &term.topology_key) == Some(here))
        .count() as i64
}

fn soft_taints(pod: &Pod, node: &Node) -> i64 {
    let disliked = taints(node)
        .iter()
        .filter(|t| t.effect == "PreferNoSchedule")
        .filter(|taint| !tolerations(pod).iter().any(|t| tolerates(t, taint)))
        .count();
    score::soft_taints(disliked)
}

/// 100 on a node without pods of the same controller, less with each.
fn apart(mirror: &Mirror, controller: Option<&str>, node: &Node) -> i64 {
    let Some(controller) = controller else { return 0 };
    let same = mirror
        .pods_on(name(&node.metadata))
        .filter(|p| !finished(p) && controlled_by(&p.metadata, controller))
        .count() as i64;
    100 / (1 + same)
}
