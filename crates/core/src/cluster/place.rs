//! Would this node take this pod?
//!
//! The rules of kube-scheduler that depend on one pod and one node: cordon, taints, node selector, node affinity and room. CPU models are among
//! them, because KubeVirt states those as labels of nodes. What depends on other pods is in [`super::company`], which of the nodes that fit is preferred in
//! [`super::score`]; [`super::board`] asks all of these of a whole cluster. Volumes and ports of hosts are not judged here, so "yes" means "as far as can be seen"; "no" is what the
//! scheduler would say, too. The sandbox's scheduler goes by the same functions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::board::Board;
use super::company::Company;
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
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
    /// Its words, for the rule.
    pub fn words(&self) -> Tolerates<'_> {
        Tolerates { key: &self.key, operator: &self.operator, value: &self.value, effect: &self.effect }
    }
}

/// The words of a toleration, wherever they are kept.
#[derive(Debug, Clone, Copy)]
pub struct Tolerates<'a> {
    /// The taint's key; empty for all keys.
    pub key: &'a str,
    /// `Exists`, `Equal` or empty, which means the same, `Lt` or `Gt`.
    pub operator: &'a str,
    /// What the value of the taint is compared with.
    pub value: &'a str,
    /// The taint's effect; empty for all effects.
    pub effect: &'a str,
}

impl Tolerates<'_> {
    /// Whether a taint with these words is tolerated by it.
    pub fn covers(self, key: &str, value: &str, effect: &str) -> bool {
        let numbers = || Some((value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        (self.effect.is_empty() || self.effect == effect)
            && (self.key.is_empty() || self.key == key)
            && match self.operator {
                "Exists" => true,
                "" | "Equal" => !self.key.is_empty() && self.value == value,
                "Lt" => numbers().is_some_and(|(has, limit)| has < limit),
                "Gt" => numbers().is_some_and(|(has, limit)| has > limit),
                _ => false,
            }
    }
}

/// The taint that stands for a cordon, by key and effect: who tolerates it may go to a cordoned node.
pub const CORDON: (&str, &str) = ("node.kubernetes.io/unschedulable", "NoSchedule");

/// Whether a taint with this effect keeps a new pod off its node.
pub fn keeps_off(effect: &str) -> bool {
    matches!(effect, "NoSchedule" | "NoExecute")
}

/// An entry of `matchExpressions` or `matchFields` of a node selector.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Expression {
    /// A label, or `metadata.name` among the fields.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`; any other word matches nothing.
    pub operator: String,
    /// What the operator compares with.
    pub values: Vec<String>,
}

impl Expression {
    /// Its words, for the rule.
    pub fn words(&self) -> Asks<'_> {
        Asks { key: &self.key, operator: &self.operator, values: &self.values }
    }
}

/// The words of an expression, wherever they are kept.
#[derive(Debug, Clone, Copy)]
pub struct Asks<'a> {
    /// A label, or `metadata.name` among the fields.
    pub key: &'a str,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`; any other word matches nothing.
    pub operator: &'a str,
    /// What the operator compares with.
    pub values: &'a [String],
}

impl Asks<'_> {
    fn holds(self, value: Option<&str>) -> bool {
        Operator::of_node_selector(self.operator).is_some_and(|operator| operator.holds(self.values, value))
    }
}

/// Whether a term of a node selector, which is its expressions about labels and about fields, takes a node. One without any expression takes none.
pub fn term_holds<'a>(
    mut labels: impl Iterator<Item = Asks<'a>>,
    mut fields: impl Iterator<Item = Asks<'a>>,
    name: &str,
    has: &BTreeMap<String, String>,
) -> bool {
    let mut some = false;
    labels.all(|one| {
        some = true;
        one.holds(has.get(one.key).map(String::as_str))
    }) && fields.all(|one| {
        some = true;
        one.key == "metadata.name" && one.holds(Some(name))
    }) && some
}

/// One of several ways to please a required node affinity, or what a preferred one asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Term {
    /// `matchExpressions`; all of them have to hold.
    pub labels: Vec<Expression>,
    /// `matchFields`; only `metadata.name` is known.
    pub fields: Vec<Expression>,
}

impl Term {
    /// Whether it takes a node.
    pub fn holds(&self, name: &str, has: &BTreeMap<String, String>) -> bool {
        let (labels, fields) = (self.labels.iter(), self.fields.iter());
        term_holds(labels.map(Expression::words), fields.map(Expression::words), name, has)
    }
}

/// What a pod asks of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Wants {
    /// `spec.nodeSelector`.
    pub selector: BTreeMap<String, String>,
    /// The required node affinity; without it any node will do.
    pub affinity: Option<Vec<Term>>,
    /// The preferred node affinity: weights and terms.
    pub preferred: Vec<(i64, Term)>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// What the pod takes of a node, overhead included.
    pub requests: Amounts,
    /// Required affinity to other pods, as positions in [`Places::companies`]: it goes only where all of these have a pod.
    pub near: Vec<usize>,
    /// Required anti-affinity, its own and that of others against it, likewise: it goes nowhere where one of these has a pod.
    pub apart: Vec<usize>,
    /// What it asks besides and is not judged here, each in a few words such as "its topology spread constraints".
    pub unjudged: Vec<String>,
    /// The scheduler that places it; empty for the cluster's own.
    pub scheduler: String,
}

impl Wants {
    /// Whether its required affinity keeps it off a node.
    pub(super) fn excludes(&self, name: &str, place: &Place) -> bool {
        self.affinity.as_ref().is_some_and(|terms| !terms.iter().any(|term| term.holds(name, &place.labels)))
    }

    /// Whether it may go to a node with this taint.
    pub(super) fn tolerates(&self, key: &str, value: &str, effect: &str) -> bool {
        self.tolerations.iter().any(|one| one.words().covers(key, value, effect))
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

/// All nodes of the cluster, and what the pods that are to leave ask of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    /// By name.
    pub nodes: BTreeMap<String, Place>,
    /// By pod. What many pods ask for alike is in memory once.
    pub wants: BTreeMap<Key, Arc<Wants>>,
    /// The groups of pods that some of these have to be near to or apart from.
    pub companies: Vec<Company>,
}

impl Places {
    /// The nodes that would take a pod, or in one sentence why none does. Nodes that are `closed` are emptied, too.
    pub fn targets(&self, pod: &Key, closed: &[String]) -> Option<Result<Vec<String>, String>> {
        Board::new(self).targets(pod, closed)
    }

    /// Why no other node can ever take a pod, as long as nodes keep their labels and their size. Cordons, taints and full nodes are not counted: those clear.
    pub fn never(&self, pod: &Key, node: &str) -> Option<String> {
        Board::new(self).never(pod, node)
    }

    /// What the guests in these pods ask for whose CPU is that of their host; see [`Wants::keep_host_model`].
    pub fn keep_host_models<'a>(&mut self, pods: impl Iterator<Item = (&'a Key, &'a str)>) {
        // By where what was wanted is in memory, which is kept meanwhile, and by node; what comes of it is alike for most nodes.
        let mut known: BTreeMap<(usize, &str), Changed> = BTreeMap::new();
        let mut alike: BTreeSet<Arc<Wants>> = BTreeSet::new();
        for (pod, node) in pods {
            let Some(wants) = self.wants.get_mut(pod) else { continue };
            let known = known.entry((Arc::as_ptr(wants).addr(), node)).or_insert_with(|| {
                let mut changed = Wants::clone(wants);
                if let Some(place) = self.nodes.get(node) {
                    changed.keep_host_model(&place.labels);
                }
                let changed = alike.get(&changed).cloned().unwrap_or_else(|| Arc::new(changed));
                alike.insert(changed.clone());
                Changed { _from: wants.clone(), to: changed }
            });
            *wants = known.to.clone();
        }
    }
}

/// What is wanted by a guest with the CPU of its host.
struct Changed {
    /// Kept, so that nothing else comes to lie where it is in memory.
    _from: Arc<Wants>,
    to: Arc<Wants>,
}

/// One whole of a resource, in thousandths.
pub const ONE: i128 = 1000;

/// Whether so much of a resource is left.
pub fn has_room(free: i128, wanted: i128) -> bool {
    wanted <= 0 || free >= wanted
}

/// The resources of which too little is left for a pod; `pods` among them, of which each takes one.
pub fn lacking(requests: &Amounts, free: impl Fn(&str) -> i128) -> impl Iterator<Item = (&str, i128)> {
    let pods = (!has_room(free("pods"), ONE)).then_some(("pods", ONE));
    let short = requests.iter().map(|(resource, amount)| (resource.as_str(), *amount));
    pods.into_iter().chain(short.filter(move |(resource, amount)| !has_room(free(resource), *amount)))
}

/// A rule that keeps a pod off a node until the node or the machine is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lasting {
    Selector,
    CpuModel,
    Affinity,
    Size,
}

pub(super) fn lasting(wants: &Wants, name: &str, place: &Place) -> Option<Lasting> {
    if let Some(key) = missing_label(&wants.selector, &place.labels) {
        return Some(if is_cpu(key) { Lasting::CpuModel } else { Lasting::Selector });
    }
    if wants.excludes(name, place) {
        return Some(Lasting::Affinity);
    }
    let size = |resource: &str| place.size.get(resource).copied().unwrap_or(0);
    let too_small = wants.requests.iter().any(|(resource, amount)| !has_room(size(resource), *amount));
    too_small.then_some(Lasting::Size)
}

/// The first label that a node selector asks for and the node has not.
pub fn missing_label<'a>(
    selector: &'a BTreeMap<String, String>,
    has: &BTreeMap<String, String>,
) -> Option<&'a str> {
    let missing = selector.iter().find(|(key, value)| has.get(*key) != Some(*value));
    missing.map(|(key, _)| key.as_str())
}

/// Whether a label says something about CPUs, as KubeVirt writes it on nodes.
pub(super) fn is_cpu(label: &str) -> bool {
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
        Places { nodes, wants: [(Key::new("d", "p"), Arc::new(wants))].into(), companies: Vec::new() }
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
}
