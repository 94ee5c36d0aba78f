//! Whether one pod may go to one node, by what the two say about themselves: schedulability, name, taints,
//! node affinity, ports and room. The rules are those of `evac_core::cluster::place`, by which a plan foretells what happens here; ports are ours.

use std::collections::BTreeMap;

use evac_core::cluster::place::{self, Asks, CORDON, Tolerates, keeps_off, lacking, missing_label};
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration,
};

use crate::mirror::Mirror;
use crate::objects::{Key, finished, name};
use crate::quantity::Amounts;

/// Why a node was turned down. `Fixed` means that removing other pods would not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reasons: Vec<String>,
    pub fixed: bool,
}

impl Refusal {
    pub fn fixed(reason: &str) -> Self {
        Self { reasons: vec![reason.to_owned()], fixed: true }
    }

    pub fn movable(reason: &str) -> Self {
        Self { reasons: vec![reason.to_owned()], fixed: false }
    }
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    covers(toleration, (&taint.key, taint.value.as_deref().unwrap_or_default(), &taint.effect))
}

/// A taint here is its key, its value and its effect.
fn covers(toleration: &Toleration, (key, value, effect): (&str, &str, &str)) -> bool {
    let words = Tolerates {
        key: toleration.key.as_deref().unwrap_or_default(),
        operator: toleration.operator.as_deref().unwrap_or_default(),
        value: toleration.value.as_deref().unwrap_or_default(),
        effect: toleration.effect.as_deref().unwrap_or_default(),
    };
    words.covers(key, value, effect)
}

pub fn tolerations(pod: &Pod) -> &[Toleration] {
    pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default()
}

pub fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default()
}

/// The first taint with one of these effects that nothing tolerates.
pub fn untolerated<'a>(node: &'a Node, tolerations: &[Toleration], effects: &[&str]) -> Option<&'a Taint> {
    taints(node)
        .iter()
        .filter(|t| effects.contains(&t.effect.as_str()))
        .find(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

/// Whether a taint keeps a new pod off the node.
pub fn repels(node: &Node, tolerations: &[Toleration]) -> bool {
    let hard = taints(node).iter().filter(|taint| keeps_off(&taint.effect));
    hard.into_iter().any(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

fn asks(requirements: Option<&Vec<NodeSelectorRequirement>>) -> impl Iterator<Item = Asks<'_>> {
    requirements.into_iter().flatten().map(|one| Asks {
        key: &one.key,
        operator: &one.operator,
        values: one.values.as_deref().unwrap_or_default(),
    })
}

pub fn term_holds(term: &NodeSelectorTerm, node: &Node) -> bool {
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let (expressions, fields) = (asks(term.match_expressions.as_ref()), asks(term.match_fields.as_ref()));
    place::term_holds(expressions, fields, name(&node.metadata), labels)
}

pub fn node_selector_holds(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_holds(term, node))
}

/// `nodeSelector` and the required part of the node affinity.
pub fn wants_node(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selected = spec.node_selector.as_ref().is_none_or(|asked| missing_label(asked, labels).is_none());
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|r| node_selector_holds(r, node))
}

/// The only nodes the pod could go to, when each term of its node affinity names some (as daemon pods do).
pub fn named_nodes(pod: &Pod) -> Option<Vec<&str>> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut names = Vec::new();
    for term in &required.node_selector_terms {
        let by_name = |r: &&NodeSelectorRequirement| r.key == "metadata.name" && r.operator == "In";
        let field = term.match_fields.iter().flatten().find(by_name)?;
        names.extend(field.values.iter().flatten().map(String::as_str));
    }
    (!names.is_empty()).then_some(names)
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = (i32, &str, &str)> {
    pod.spec.iter().flat_map(|s| &s.containers).flat_map(|c| c.ports.iter().flatten()).filter_map(|p| {
        let protocol = p.protocol.as_deref().unwrap_or("TCP");
        let ip = p.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        p.host_port.filter(|n| *n > 0).map(|n| (n, protocol, ip))
    })
}

fn ports_clash(pod: &Pod, other: &Pod) -> bool {
    host_ports(pod).any(|(port, protocol, ip)| {
        host_ports(other).any(|(taken, theirs, their_ip)| {
            port == taken
                && protocol == theirs
                && (ip == their_ip || ip == "0.0.0.0" || their_ip == "0.0.0.0")
        })
    })
}

fn room(mirror: &Mirror, wanted: &Amounts, node: &Node) -> Option<Refusal> {
    let nothing = Amounts::new();
    let allocatable = mirror.allocatable(name(&node.metadata)).unwrap_or(&nothing);
    let load = mirror.load(name(&node.metadata));
    let capacity = |resource: &str| allocatable.get(resource).copied().unwrap_or(0);
    let free = |resource: &str| match resource {
        "pods" => capacity("pods") - load.map_or(0, |l| i128::from(l.pods)) * place::ONE,
        other => capacity(other) - load.and_then(|l| l.requested.get(other)).copied().unwrap_or(0),
    };
    let (mut reasons, mut fixed) = (Vec::new(), false);
    for (resource, amount) in lacking(wanted, free) {
        if resource == "pods" {
            reasons.push("Too many pods".to_owned());
        } else {
            reasons.push(format!("Insufficient {resource}"));
            fixed |= amount > capacity(resource);
        }
    }
    (!reasons.is_empty()).then_some(Refusal { reasons, fixed })
}

/// The first rule, in the order kube-scheduler asks them, that keeps the pod off the node.
pub fn refusal(mirror: &Mirror, pod: &Pod, key: &Key, node: &Node) -> Option<Refusal> {
    let tolerations = tolerations(pod);
    let closed = node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
    if closed && !tolerations.iter().any(|t| covers(t, (CORDON.0, "", CORDON.1))) {
        return Some(Refusal::fixed("node(s) were unschedulable"));
    }
    if repels(node, tolerations) {
        return Some(Refusal::fixed("node(s) had untolerated taint(s)"));
    }
    if !wants_node(pod, node) {
        return Some(Refusal::fixed("node(s) didn't match Pod's node affinity/selector"));
    }
    if host_ports(pod).next().is_some()
        && mirror.pods_on(name(&node.metadata)).any(|other| !finished(other) && ports_clash(pod, other))
    {
        return Some(Refusal::movable("node(s) didn't have free ports for the requested pod ports"));
    }
    let nothing = Amounts::new();
    room(mirror, mirror.requests(key).unwrap_or(&nothing), node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{node, pod, taint};
    use crate::kinds::Object;
    use std::sync::Arc;

    fn refused(pod: &Pod, node: &Node) -> Option<Refusal> {
        let key = Key::of(&pod.metadata);
        let mut mirror = Mirror::default();
        mirror.put(Object::Pod(Arc::new(pod.clone())));
        mirror.put(Object::Node(Arc::new(node.clone())));
        refusal(&mirror, pod, &key, node)
    }

    #[test]
    fn a_cordoned_node_takes_only_who_tolerates_it() {
        let mut n = node("n", "a");
        n.spec.as_mut().unwrap().unschedulable = Some(true);
        n.spec.as_mut().unwrap().taints = Some(vec![taint(CORDON.0, CORDON.1)]);
        assert_eq!(refused(&pod("ns", "p").make(), &n), Some(Refusal::fixed("node(s) were unschedulable")));
        let daemon = pod("ns", "p").tolerate("node.kubernetes.io/unschedulable", "NoSchedule", None).make();
        assert_eq!(refused(&daemon, &n), None);
    }

    #[test]
    fn a_soft_taint_refuses_nobody() {
        let mut n = node("n", "a");
        n.spec.as_mut().unwrap().taints = Some(vec![taint("x", "PreferNoSchedule")]);
        assert_eq!(refused(&pod("ns", "p").make(), &n), None);
        n.spec.as_mut().unwrap().taints = Some(vec![taint("x", "NoExecute")]);
        assert_eq!(
            refused(&pod("ns", "p").make(), &n),
            Some(Refusal::fixed("node(s) had untolerated taint(s)"))
        );
    }

    #[test]
    fn more_than_the_node_has_is_insufficient_for_good() {
        let refusal = refused(&pod("ns", "p").cpu("9").make(), &node("n", "a")).unwrap();
        assert_eq!(refusal.reasons, ["Insufficient cpu"]);
        assert!(refusal.fixed);
        assert_eq!(refused(&pod("ns", "p").cpu("8").make(), &node("n", "a")), None);
    }

    #[test]
    fn a_toleration_needs_key_value_and_effect_to_fit() {
        let t = Taint {
            key: "k".into(),
            value: Some("v".into()),
            effect: "NoSchedule".into(),
            ..Default::default()
        };
        let toleration = |key: &str, operator: &str, value: &str, effect: &str| Toleration {
            key: Some(key.into()),
            operator: Some(operator.into()),
            value: Some(value.into()),
            effect: Some(effect.into()),
            toleration_seconds: None,
        };
        assert!(tolerates(&toleration("k", "Equal", "v", "NoSchedule"), &t));
        assert!(tolerates(&toleration("k", "Exists", "", ""), &t));
        assert!(tolerates(&toleration("", "Exists", "", ""), &t));
        assert!(!tolerates(&toleration("k", "Equal", "w", "NoSchedule"), &t));
        assert!(!tolerates(&toleration("k", "Exists", "", "NoExecute"), &t));
        assert!(!tolerates(&toleration("", "Equal", "v", ""), &t));
    }
}
