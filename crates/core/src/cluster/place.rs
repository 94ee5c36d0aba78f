//! Would another node take this guest?
//!
//! The rules of kube-scheduler that depend on one pod and one node alone: cordon, taints, node selector, node affinity and room. CPU models are among
//! them, because KubeVirt states those as labels of nodes. What depends on other pods or on volumes is not judged here, so "yes" means "as far as
//! can be seen"; "no" is what the scheduler would say, too.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::fact::{Key, Taint};
use crate::cluster::selector::Operator;

/// Resource name → amount, in thousandths of its unit.
pub type Amounts = BTreeMap<String, i128>;

/// A node as the scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`: it is cordoned.
    pub unschedulable: bool,
    /// What pods have not asked for yet.
    pub free: Amounts,
    /// What it has for pods in all.
    pub size: Amounts,
}

/// An entry of a pod's `spec.tolerations`; what is left out there is empty here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Toleration {
    /// The taint's key; empty for all keys.
    pub key: String,
    /// `Exists`, `Equal` or empty, which means the same, `Lt` or `Gt`.
    pub operator: String,
    /// What the value of the taint is compared with.
    pub value: String,
    /// The taint's effect; empty for all effects.
    pub effect: String,
}

impl Toleration {
    fn covers(&self, taint: &Taint) -> bool {
        let value = taint.value.as_deref().unwrap_or_default();
        let numbers = || Some((value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => !self.key.is_empty() && self.value == value,
                "Lt" => numbers().is_some_and(|(has, limit)| has < limit),
                "Gt" => numbers().is_some_and(|(has, limit)| has > limit),
                _ => false,
            }
    }
}

/// An entry of `matchExpressions` or `matchFields` of a node selector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expression {
    /// A label, or `metadata.name` among the fields.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`; any other word matches nothing.
    pub operator: String,
    /// What the operator compares with.
    pub values: Vec<String>,
}

impl Expression {
    fn holds(&self, value: Option<&str>) -> bool {
        Operator::of_node_selector(&self.operator).is_some_and(|operator| operator.holds(&self.values, value))
    }
}

/// One of several ways to please a required node affinity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Term {
    /// `matchExpressions`; all of them have to hold.
    pub labels: Vec<Expression>,
    /// `matchFields`; only `metadata.name` is known.
    pub fields: Vec<Expression>,
}

impl Term {
    fn holds(&self, name: &str, place: &Place) -> bool {
        // One without any expression matches no node.
        (!self.labels.is_empty() || !self.fields.is_empty())
            && self.labels.iter().all(|one| one.holds(place.labels.get(&one.key).map(String::as_str)))
            && self.fields.iter().all(|one| one.key == "metadata.name" && one.holds(Some(name)))
    }
}

/// What a guest's pod asks of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    /// `spec.nodeSelector`.
    pub selector: BTreeMap<String, String>,
    /// The required node affinity; without it any node will do.
    pub affinity: Option<Vec<Term>>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// What the pod takes of a node, overhead included.
    pub requests: Amounts,
}

impl Wants {
    /// Whether its required affinity keeps it off a node.
    fn excludes(&self, name: &str, place: &Place) -> bool {
        self.affinity.as_ref().is_some_and(|terms| !terms.iter().any(|term| term.holds(name, place)))
    }

    /// The copy of a guest with the CPU of its host must find the same model, features and vendor: KubeVirt reads them from the labels of the node that
    /// the guest leaves, unless its pod has them from an earlier move.
    pub fn keep_host_model(&mut self, source: &BTreeMap<String, String>) {
        const FROM: [(&str, &str); 3] = [
            ("host-model-cpu.node.kubevirt.io/", "cpu-model-migration.node.kubevirt.io/"),
            ("host-model-required-features.node.kubevirt.io/", "cpu-feature.node.kubevirt.io/"),
            ("cpu-vendor.node.kubevirt.io/", "cpu-vendor.node.kubevirt.io/"),
        ];
        let moved_before =
            self.selector.keys().any(|key| key.starts_with("cpu-model-migration.node.kubevirt.io/"));
        for (key, value) in source {
            for (from, to) in FROM {
                if let Some(name) = key.strip_prefix(from)
                    && (!moved_before || from == to)
                {
                    self.selector.insert(format!("{to}{name}"), value.clone());
                }
            }
        }
    }
}

/// All nodes of the cluster, and what the guests that are to be moved ask of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    /// By name.
    pub nodes: BTreeMap<String, Place>,
    /// By launcher pod.
    pub wants: BTreeMap<Key, Wants>,
}

impl Places {
    /// The nodes that would take a pod, or in one sentence why none does. Nodes that are `closed` are emptied, too.
    pub fn targets(&self, pod: &Key, closed: &[String]) -> Option<Result<Vec<String>, String>> {
        let wants = self.wants.get(pod)?;
        let others: Vec<(&String, &Place)> =
            self.nodes.iter().filter(|(name, _)| !closed.contains(name)).collect();
        let mut fitting = Vec::new();
        let mut against: BTreeMap<String, usize> = BTreeMap::new();
        for (name, place) in &others {
            match refusal(wants, name, place) {
                None => fitting.push((*name).clone()),
                Some(why) => *against.entry(why).or_default() += 1,
            }
        }
        if !fitting.is_empty() {
            return Some(Ok(fitting));
        }
        let nodes = match others.len() {
            0 => return Some(Err("there is no other node".into())),
            1 => "1 other node".into(),
            more => format!("{more} other nodes"),
        };
        let rules: Vec<String> = against.iter().map(|(why, count)| format!("{count} {why}")).collect();
        Some(Err(format!("{nodes}: {}", rules.join(", "))))
    }

    /// Why no other node can ever take a pod, as long as nodes keep their labels and their size. Cordons, taints and full nodes are not counted: those clear.
    pub fn never(&self, pod: &Key, node: &str) -> Option<String> {
        let wants = self.wants.get(pod)?;
        let mut rules = BTreeSet::new();
        for (name, place) in self.nodes.iter().filter(|(name, _)| *name != node) {
            rules.insert(lasting(wants, name, place)?);
        }
        let matches_here = self.nodes.get(node).is_some_and(|place| lasting(wants, node, place).is_none());
        let only = if matches_here { format!("only {node}") } else { "no node".to_owned() };
        Some(match rules.into_iter().collect::<Vec<_>>().as_slice() {
            [] => "there is no other node".into(),
            [Lasting::Selector] => format!("{only} matches its nodeSelector"),
            [Lasting::CpuModel] => format!("{only} has the CPU model it needs"),
            [Lasting::Affinity] => format!("{only} matches its node affinity"),
            [Lasting::Size] => format!("{only} is large enough for it"),
            _ => self.targets(pod, &[node.to_owned()])?.err()?,
        })
    }

    /// Takes the room that a pod will need on the first of these nodes that still has it.
    pub fn book(&mut self, pod: &Key, targets: &[String]) -> bool {
        let Some(wants) = self.wants.get(pod) else { return false };
        for target in targets {
            let Some(place) = self.nodes.get_mut(target) else { continue };
            if lacking(&wants.requests, place).is_none() {
                for (resource, amount) in &wants.requests {
                    *place.free.entry(resource.clone()).or_default() -= amount;
                }
                *place.free.entry("pods".into()).or_default() -= ONE;
                return true;
            }
        }
        false
    }
}

const ONE: i128 = 1000;

/// A rule that keeps a pod off a node until the node or the machine is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lasting {
    Selector,
    CpuModel,
    Affinity,
    Size,
}

fn lasting(wants: &Wants, name: &str, place: &Place) -> Option<Lasting> {
    if let Some(key) = missing_label(wants, place) {
        return Some(if is_cpu(key) { Lasting::CpuModel } else { Lasting::Selector });
    }
    if wants.excludes(name, place) {
        return Some(Lasting::Affinity);
    }
    let size = |resource: &str| place.size.get(resource).copied().unwrap_or(0);
    let too_small = wants.requests.iter().any(|(resource, amount)| *amount > 0 && size(resource) < *amount);
    too_small.then_some(Lasting::Size)
}

/// The first label that the selector asks for and the node has not.
fn missing_label<'a>(wants: &'a Wants, place: &Place) -> Option<&'a str> {
    let missing = wants.selector.iter().find(|(key, value)| place.labels.get(*key) != Some(*value));
    missing.map(|(key, _)| key.as_str())
}

/// The resource of which a node has too little left.
fn lacking<'a>(requests: &'a Amounts, place: &Place) -> Option<&'a str> {
    let free = |resource: &str| place.free.get(resource).copied().unwrap_or(0);
    if free("pods") < ONE {
        return Some("pods");
    }
    let short = requests.iter().find(|(resource, amount)| **amount > 0 && free(resource) < **amount);
    short.map(|(resource, _)| resource.as_str())
}

/// The first rule, in the order in which the scheduler asks them, that keeps a pod off a node.
fn refusal(wants: &Wants, name: &str, place: &Place) -> Option<String> {
    let tolerated = |taint: &Taint| wants.tolerations.iter().any(|one| one.covers(taint));
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: None,
        effect: "NoSchedule".into(),
        time_added: None,
    };
    if place.unschedulable && !tolerated(&cordon) {
        return Some("is cordoned".into());
    }
    let hard = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    if let Some(taint) = place.taints.iter().filter(hard).find(|taint| !tolerated(taint)) {
        return Some(format!("has taint {taint}, which it does not tolerate"));
    }
    if let Some(key) = missing_label(wants, place) {
        let value = wants.selector.get(key).map_or("", String::as_str);
        let asks = if is_cpu(key) { "its CPU model asks for" } else { "its node selector asks for" };
        return Some(format!("lacks label {key}={value}, which {asks}"));
    }
    if wants.excludes(name, place) {
        return Some("does not match its node affinity".into());
    }
    lacking(&wants.requests, place).map(|resource| match resource {
        "pods" => "takes no more pods".into(),
        other => format!("has too little {other} left"),
    })
}

fn is_cpu(label: &str) -> bool {
    label.starts_with("cpu-") && label.contains(".node.kubevirt.io/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::taint;

    fn amounts(pods: i128, memory: i128) -> Amounts {
        [("pods".to_owned(), pods * ONE), ("memory".to_owned(), memory * ONE)].into()
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn places(nodes: Vec<(&str, Place)>, wants: Wants) -> Places {
        let nodes = nodes.into_iter().map(|(name, place)| (name.to_owned(), place)).collect();
        Places { nodes, wants: [(Key::new("d", "p"), wants)].into() }
    }

    fn roomy() -> Place {
        Place { free: amounts(10, 100), size: amounts(10, 100), ..Place::default() }
    }

    fn said(places: &Places) -> String {
        match places.targets(&Key::new("d", "p"), &["here".to_owned()]) {
            Some(Ok(fitting)) => format!("fits {}", fitting.join(" ")),
            Some(Err(why)) => why,
            None => "unknown".into(),
        }
    }

    #[test]
    fn each_rule_that_keeps_a_guest_off_a_node_is_named_with_the_number_of_nodes() {
        let wants = Wants {
            selector: labels(&[("zone", "a")]),
            requests: [("memory".to_owned(), 50 * ONE)].into(),
            ..Wants::default()
        };
        let zoned = Place { labels: labels(&[("zone", "a")]), ..roomy() };
        let nodes = vec![
            ("here", zoned.clone()),
            ("closed", Place { unschedulable: true, ..zoned.clone() }),
            ("elsewhere", roomy()),
            ("far", roomy()),
            ("full", Place { free: amounts(10, 49), ..zoned.clone() }),
            ("kept", Place { taints: vec![taint("gpu", "NoSchedule")], ..zoned.clone() }),
        ];
        assert_eq!(
            said(&places(nodes, wants.clone())),
            "5 other nodes: 1 has taint gpu:NoSchedule, which it does not tolerate, 1 has too little memory left, \
             1 is cordoned, 2 lacks label zone=a, which its node selector asks for"
        );
        let soft = Place { taints: vec![taint("gpu", "PreferNoSchedule")], ..zoned };
        assert_eq!(said(&places(vec![("soft", soft)], wants.clone())), "fits soft");
        assert_eq!(said(&places(vec![("here", roomy())], wants)), "there is no other node");
        assert_eq!(said(&Places::default()), "unknown");
    }

    #[test]
    fn the_cpu_of_the_host_goes_only_where_the_same_model_is() {
        let mut wants = Wants::default();
        wants.keep_host_model(&labels(&[
            ("host-model-cpu.node.kubevirt.io/Haswell", "true"),
            ("cpu-vendor.node.kubevirt.io/Intel", "true"),
            ("zone", "a"),
        ]));
        let other = Place { labels: labels(&[("cpu-vendor.node.kubevirt.io/Intel", "true")]), ..roomy() };
        assert_eq!(
            said(&places(vec![("other", other)], wants.clone())),
            "1 other node: 1 lacks label cpu-model-migration.node.kubevirt.io/Haswell=true, which its CPU model asks for"
        );
        // After a move its pod has the model it began with, which is not that of the node it is on now.
        wants.keep_host_model(&labels(&[("host-model-cpu.node.kubevirt.io/Skylake", "true")]));
        assert_eq!(wants.selector.len(), 2);
    }

    #[test]
    fn affinity_and_tolerations_are_read_as_the_scheduler_reads_them() {
        let only = |values: &[&str]| Expression {
            key: "zone".into(),
            operator: "In".into(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        let wants = Wants {
            affinity: Some(vec![Term { labels: vec![only(&["a", "b"])], fields: Vec::new() }]),
            tolerations: vec![Toleration { operator: "Exists".into(), ..Toleration::default() }],
            ..Wants::default()
        };
        let tainted = Place { taints: vec![taint("gpu", "NoExecute")], unschedulable: true, ..roomy() };
        let zone = |name: &str| Place { labels: labels(&[("zone", name)]), ..tainted.clone() };
        assert_eq!(said(&places(vec![("b", zone("b")), ("c", zone("c"))], wants.clone())), "fits b");
        let nowhere = Wants { affinity: Some(vec![Term::default()]), ..wants };
        assert_eq!(
            said(&places(vec![("b", zone("b"))], nowhere)),
            "1 other node: 1 does not match its node affinity"
        );
    }

    #[test]
    fn what_cannot_clear_by_itself_is_told_from_what_can() {
        let pinned = Wants { selector: labels(&[("host", "here")]), ..Wants::default() };
        let here = Place { labels: labels(&[("host", "here")]), ..roomy() };
        let never = |nodes: Vec<(&str, Place)>, wants: &Wants| {
            places(nodes, wants.clone()).never(&Key::new("d", "p"), "here")
        };
        assert_eq!(
            never(vec![("here", here.clone()), ("b", roomy())], &pinned).as_deref(),
            Some("only here matches its nodeSelector")
        );
        assert_eq!(
            never(vec![("here", roomy()), ("b", roomy())], &pinned).as_deref(),
            Some("no node matches its nodeSelector")
        );
        // A cordon, a taint and a full node may clear.
        let cordoned = Place { unschedulable: true, ..here.clone() };
        assert_eq!(never(vec![("here", here.clone()), ("b", cordoned)], &pinned), None);
        let tainted = Place { taints: vec![taint("gpu", "NoSchedule")], ..here.clone() };
        assert_eq!(never(vec![("here", here.clone()), ("b", tainted)], &pinned), None);
        let large = Wants { requests: [("memory".to_owned(), 60 * ONE)].into(), ..Wants::default() };
        let full = Place { free: amounts(10, 1), ..roomy() };
        assert_eq!(never(vec![("here", here.clone()), ("b", full)], &large), None);
        let small = Place { size: amounts(10, 50), free: amounts(10, 50), ..Place::default() };
        assert_eq!(
            never(vec![("here", here.clone()), ("b", small)], &large).as_deref(),
            Some("only here is large enough for it")
        );
        let model = Wants {
            selector: labels(&[("cpu-model-migration.node.kubevirt.io/Haswell", "true")]),
            ..Wants::default()
        };
        let haswell =
            Place { labels: labels(&[("cpu-model-migration.node.kubevirt.io/Haswell", "true")]), ..roomy() };
        assert_eq!(
            never(vec![("here", haswell), ("b", roomy())], &model).as_deref(),
            Some("only here has the CPU model it needs")
        );
        assert_eq!(never(vec![("here", here)], &pinned).as_deref(), Some("there is no other node"));
        assert_eq!(Places::default().never(&Key::new("d", "p"), "here"), None, "unknown is not never");
    }

    #[test]
    fn room_is_given_once() {
        let wants = Wants { requests: [("memory".to_owned(), 60 * ONE)].into(), ..Wants::default() };
        let mut places = places(vec![("b", roomy())], wants);
        let pod = Key::new("d", "p");
        assert!(places.book(&pod, &["b".to_owned()]));
        assert!(!places.book(&pod, &["b".to_owned()]));
    }
}
