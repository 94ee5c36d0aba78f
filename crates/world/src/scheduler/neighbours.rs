//! Whether one pod may go to one node because of the other pods: affinity, anti-affinity, spreading. What affinity comes down to is the rule of
//! `evac_core::cluster::company`; here the pods are found that it is about.

use std::collections::{BTreeMap, BTreeSet};

use evac_core::cluster::company::{self, KeptOff};

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::fit::{Refusal, repels, tolerations, wants_node};
use crate::mirror::Mirror;
use crate::objects::{deleting, finished, label, node_of, required_anti_affinity, selects};

type Counts = BTreeMap<String, i32>;

/// What must be known of the whole cluster before nodes are judged one by one.
pub struct Neighbours<'a> {
    pod: &'a Pod,
    others: company::Neighbours<'a>,
    spread: Vec<Spread<'a>>,
}

struct Spread<'a> {
    constraint: &'a TopologySpreadConstraint,
    counts: Counts,
    matches_self: bool,
}

fn domain<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    label(&node.metadata, key)
}

/// Which namespaces a term speaks of: those named, those selected, or the pod's own.
fn speaks_of(mirror: &Mirror, term: &PodAffinityTerm, own: &str, other: &str) -> bool {
    let named = term.namespaces.as_deref().unwrap_or_default();
    match &term.namespace_selector {
        None if named.is_empty() => own == other,
        None => named.iter().any(|n| n == other),
        Some(selector) => {
            named.iter().any(|n| n == other)
                || selects(
                    Some(selector),
                    mirror.namespaces.named(other).and_then(|n| n.metadata.labels.as_ref()),
                )
        }
    }
}

fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

fn term_matches(mirror: &Mirror, term: &PodAffinityTerm, owner: &Pod, other: &Pod) -> bool {
    speaks_of(mirror, term, namespace(&owner.metadata), namespace(&other.metadata))
        && selects(term.label_selector.as_ref(), other.metadata.labels.as_ref())
}

/// The values of the term's label where there are pods that it means.
fn taken<'a>(mirror: &Mirror, term: &'a PodAffinityTerm, owner: &Pod) -> (&'a str, BTreeSet<String>) {
    let meant = mirror.pods.values().filter(|p| !finished(p) && term_matches(mirror, term, owner, p));
    let nodes = meant.filter_map(|other| mirror.nodes.named(node_of(other)?));
    let values = nodes.filter_map(|node| domain(node, &term.topology_key)).map(str::to_owned).collect();
    (term.topology_key.as_str(), values)
}

fn required_affinity(pod: &Pod) -> &[PodAffinityTerm] {
    pod.spec
        .as_ref()
        .and_then(|s| s.affinity.as_ref()?.pod_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default()
}

fn constraints(pod: &Pod) -> &[TopologySpreadConstraint] {
    pod.spec.as_ref().and_then(|s| s.topology_spread_constraints.as_deref()).unwrap_or_default()
}

/// The pod's place depends on where others are.
pub fn depends_on_others(pod: &Pod) -> bool {
    !required_affinity(pod).is_empty()
        || !required_anti_affinity(pod).is_empty()
        || !constraints(pod).is_empty()
}

impl<'a> Neighbours<'a> {
    pub fn of(mirror: &'a Mirror, pod: &'a Pod) -> Self {
        let near: Vec<_> = required_affinity(pod).iter().map(|t| taken(mirror, t, pod)).collect();
        // Nothing in the cluster matches, but the pod itself does.
        let first_of_group = !near.is_empty()
            && near.iter().all(|(_, values)| values.is_empty())
            && required_affinity(pod).iter().all(|term| term_matches(mirror, term, pod, pod));
        let apart = required_anti_affinity(pod).iter().map(|t| taken(mirror, t, pod)).collect();
        let mut repelled: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for other in mirror.repelling_pods() {
            let Some(node) = node_of(other).and_then(|n| mirror.nodes.named(n)) else { continue };
            for term in required_anti_affinity(other) {
                if let Some(value) = domain(node, &term.topology_key)
                    && term_matches(mirror, term, other, pod)
                {
                    repelled.entry(&term.topology_key).or_default().insert(value.to_owned());
                }
            }
        }
        let repelled = repelled.into_iter().collect();
        let others = company::Neighbours { near, first_of_group, apart, repelled };
        let spread = constraints(pod)
            .iter()
            .filter(|c| c.when_unsatisfiable == "DoNotSchedule")
            .map(|constraint| Spread::of(mirror, pod, constraint))
            .collect();
        Self { pod, others, spread }
    }

    pub fn refusal(&self, node: &Node) -> Option<Refusal> {
        for spread in &self.spread {
            let Some(value) = domain(node, &spread.constraint.topology_key) else {
                return Some(Refusal::fixed(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            if spread.too_many(value) {
                return Some(Refusal::movable("node(s) didn't match pod topology spread constraints"));
            }
        }
        let empty = BTreeMap::new();
        self.others.against(node.metadata.labels.as_ref().unwrap_or(&empty)).map(|rule| match rule {
            KeptOff::NotNear => Refusal::fixed("node(s) didn't match pod affinity rules"),
            KeptOff::NotApart => Refusal::movable("node(s) didn't match pod anti-affinity rules"),
            KeptOff::Repelled => Refusal::movable("node(s) didn't satisfy existing pods anti-affinity rules"),
        })
    }

    pub fn pod(&self) -> &Pod {
        self.pod
    }
}

impl<'a> Spread<'a> {
    fn of(mirror: &Mirror, pod: &Pod, constraint: &'a TopologySpreadConstraint) -> Self {
        let mut counts = Counts::new();
        let honour_affinity = constraint.node_affinity_policy.as_deref() != Some("Ignore");
        let honour_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
        for node in mirror.nodes.values() {
            let eligible = (!honour_affinity || wants_node(pod, node))
                && (!honour_taints || !repels(node, tolerations(pod)));
            let Some(value) = domain(node, &constraint.topology_key).filter(|_| eligible) else { continue };
            let here = mirror
                .pods_on(node.metadata.name.as_deref().unwrap_or_default())
                .filter(|p| !finished(p) && !deleting(&p.metadata))
                .filter(|p| p.metadata.namespace == pod.metadata.namespace)
                .filter(|p| selects(constraint.label_selector.as_ref(), p.metadata.labels.as_ref()))
                .count();
            *counts.entry(value.to_owned()).or_default() += here as i32;
        }
        let matches_self = selects(constraint.label_selector.as_ref(), pod.metadata.labels.as_ref());
        Self { constraint, counts, matches_self }
    }

    fn too_many(&self, value: &str) -> bool {
        let here = self.counts.get(value).copied().unwrap_or(0) + i32::from(self.matches_self);
        let domains = self.counts.len() as i32;
        let least = if self.constraint.min_domains.is_some_and(|min| domains < min) {
            0
        } else {
            self.counts.values().copied().min().unwrap_or(0)
        };
        here - least > self.constraint.max_skew
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{labels, node, pod, selector};
    use crate::kinds::Object;
    use k8s_openapi::api::core::v1::{Affinity, PodAffinity, PodAntiAffinity};
    use std::sync::Arc;

    fn cluster(pods: Vec<Pod>) -> Mirror {
        let mut mirror = Mirror::default();
        for (name, zone) in [("n1", "a"), ("n2", "b"), ("n3", "b")] {
            mirror.put(Object::Node(Arc::new(node(name, zone))));
        }
        for pod in pods {
            mirror.put(Object::Pod(Arc::new(pod)));
        }
        mirror
    }

    fn term(key: &str) -> PodAffinityTerm {
        PodAffinityTerm {
            label_selector: Some(selector(&[("app", "web")])),
            topology_key: key.into(),
            ..Default::default()
        }
    }

    fn anti(pod: &mut Pod, key: &str) {
        pod.spec.as_mut().unwrap().affinity = Some(Affinity {
            pod_anti_affinity: Some(PodAntiAffinity {
                required_during_scheduling_ignored_during_execution: Some(vec![term(key)]),
                ..Default::default()
            }),
            ..Default::default()
        });
    }

    fn near(pod: &mut Pod, key: &str) {
        pod.spec.as_mut().unwrap().affinity = Some(Affinity {
            pod_affinity: Some(PodAffinity {
                required_during_scheduling_ignored_during_execution: Some(vec![term(key)]),
                ..Default::default()
            }),
            ..Default::default()
        });
    }

    fn allowed(mirror: &Mirror, pod: &Pod) -> Vec<String> {
        let neighbours = Neighbours::of(mirror, pod);
        mirror
            .nodes
            .values()
            .filter(|n| neighbours.refusal(n).is_none())
            .map(|n| n.metadata.name.clone().unwrap())
            .collect()
    }

    fn web(name: &str) -> crate::build::PodBuilder {
        pod("ns", name).labels(&[("app", "web")])
    }

    #[test]
    fn anti_affinity_by_zone_excludes_the_whole_zone() {
        let mirror = cluster(vec![web("old").on("n2").make()]);
        let new = web("new").with(|p| anti(p, "topology.kubernetes.io/zone")).make();
        assert_eq!(allowed(&mirror, &new), ["n1"]);
    }

    #[test]
    fn a_running_pod_with_anti_affinity_keeps_others_away() {
        let old = web("old").on("n1").with(|p| anti(p, "kubernetes.io/hostname")).make();
        let mirror = cluster(vec![old]);
        assert_eq!(allowed(&mirror, &web("new").make()), ["n2", "n3"]);
        let other_namespace = pod("other", "new").labels(&[("app", "web")]).make();
        assert_eq!(allowed(&mirror, &other_namespace), ["n1", "n2", "n3"]);
    }

    #[test]
    fn the_first_of_a_group_may_go_anywhere_and_the_second_follows() {
        let new = web("new").with(|p| near(p, "topology.kubernetes.io/zone")).make();
        assert_eq!(allowed(&cluster(vec![]), &new).len(), 3);
        assert_eq!(allowed(&cluster(vec![web("old").on("n3").make()]), &new), ["n2", "n3"]);
        let stranger =
            pod("ns", "x").labels(&[("app", "db")]).with(|p| near(p, "kubernetes.io/hostname")).make();
        assert!(allowed(&cluster(vec![]), &stranger).is_empty());
    }

    #[test]
    fn hard_spreading_keeps_the_skew_within_its_limit() {
        let mirror = cluster(vec![web("one").on("n2").make()]);
        let new = web("new")
            .with(|p| {
                p.metadata.labels = Some(labels(&[("app", "web")]));
                p.spec.as_mut().unwrap().topology_spread_constraints = Some(vec![TopologySpreadConstraint {
                    max_skew: 1,
                    topology_key: "topology.kubernetes.io/zone".into(),
                    when_unsatisfiable: "DoNotSchedule".into(),
                    label_selector: Some(selector(&[("app", "web")])),
                    ..Default::default()
                }]);
            })
            .make();
        assert_eq!(allowed(&mirror, &new), ["n1"]);
    }
}
