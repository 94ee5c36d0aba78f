//! What nodes have to offer to pods, and what pods ask of them, from API objects.
//!
//! Pods are reduced one by one as they arrive: what many of them ask for alike is kept once. Whom the affinity of a pod means is looked up at the end, among all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evac_core::cluster::company::Company;
use evac_core::cluster::place::{Amounts, Expression, ONE, Place, Places, Term, Toleration, Wants};
use evac_core::cluster::selector::Selector;
use evac_core::{Key, Taint};
use serde::Deserialize;

use crate::kubevirt::wire::Quantity;
use crate::quantity::{Requests, parse};
use crate::wire::{LabelSelector, Meta, nullable};

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
    scheduler_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    topology_spread_constraints: Vec<Spread>,
    #[serde(deserialize_with = "nullable")]
    resource_claims: Vec<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spread {
    when_unsatisfiable: String,
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

#[allow(clippy::struct_field_names, reason = "the fields are those of the API")]
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    #[serde(deserialize_with = "nullable")]
    node_affinity: NodeAffinity,
    #[serde(deserialize_with = "nullable")]
    pod_affinity: PodAffinity,
    #[serde(deserialize_with = "nullable")]
    pod_anti_affinity: PodAffinity,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodAffinity {
    #[serde(deserialize_with = "nullable")]
    required_during_scheduling_ignored_during_execution: Vec<PodTerm>,
}

/// A required term of affinity to other pods, or of anti-affinity.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodTerm {
    topology_key: String,
    label_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    namespaces: Vec<String>,
    namespace_selector: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "nullable")]
    match_label_keys: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    mismatch_label_keys: Vec<String>,
}

impl PodTerm {
    /// Whether it can be judged from labels of pods alone, without those of namespaces.
    fn is_plain(&self) -> bool {
        self.namespace_selector.is_none()
            && self.match_label_keys.is_empty()
            && self.mismatch_label_keys.is_empty()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
    #[serde(deserialize_with = "nullable")]
    preferred_during_scheduling_ignored_during_execution: Vec<Preferred>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Preferred {
    weight: i64,
    preference: WireTerm,
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
        let of_nodes = &self.affinity.node_affinity;
        let required = &of_nodes.required_during_scheduling_ignored_during_execution;
        let preferred = &of_nodes.preferred_during_scheduling_ignored_during_execution;
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
            preferred: preferred.iter().map(|one| (one.weight, term(&one.preference))).collect(),
            near: Vec::new(),
            apart: Vec::new(),
            unjudged: self.unjudged(),
            scheduler: self.scheduler_name.clone().filter(|name| name != SCHEDULER).unwrap_or_default(),
        }
    }

    /// What it asks of nodes that is not judged here.
    fn unjudged(&self) -> Vec<String> {
        let hard = |one: &Spread| one.when_unsatisfiable == "DoNotSchedule";
        let spread = self.topology_spread_constraints.iter().any(hard);
        let not_plain = self.near().chain(self.apart()).any(|term| !term.is_plain());
        let all = [
            (spread, "its topology spread constraints"),
            (!self.resource_claims.is_empty(), "its resource claims"),
            (not_plain, "the namespaces or label keys of its affinity to other pods"),
        ];
        all.into_iter().filter(|(there, _)| *there).map(|(_, what)| what.to_owned()).collect()
    }

    fn near(&self) -> impl Iterator<Item = &PodTerm> {
        self.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.iter()
    }

    fn apart(&self) -> impl Iterator<Item = &PodTerm> {
        self.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.iter()
    }
}

/// The name of the cluster's own scheduler.
const SCHEDULER: &str = "default-scheduler";

/// Takes in nodes and pods, and says at the end what there is for pods that leave.
#[derive(Debug, Default)]
pub struct PlacesReader {
    places: Places,
    /// Whose pods are to leave; `None` for those of any node.
    from: Option<BTreeSet<String>>,
    known: BTreeSet<Arc<Wants>>,
    residents: Vec<Resident>,
}

/// A pod on a node, as the affinity of others looks at it.
#[derive(Debug)]
struct Resident {
    key: Key,
    node: String,
    labels: BTreeMap<String, String>,
    near: Vec<Meant>,
    apart: Vec<Meant>,
}

/// Which pods a term means.
#[derive(Debug, Clone)]
struct Meant {
    topology: String,
    namespaces: Vec<String>,
    selector: Selector,
}

impl Meant {
    fn of(term: &PodTerm, own: &str) -> Self {
        let namespaces =
            if term.namespaces.is_empty() { vec![own.to_owned()] } else { term.namespaces.clone() };
        let selector = term.label_selector.as_ref().and_then(|selector| selector.selector().ok());
        let selector = selector.unwrap_or_else(Selector::nothing);
        Self { topology: term.topology_key.clone(), namespaces, selector }
    }

    fn matches(&self, pod: &Resident) -> bool {
        self.namespaces.iter().any(|namespace| pod.key.namespace == **namespace)
            && self.selector.matches(&pod.labels)
    }

    /// Terms that mean the same have the same name.
    fn name(&self) -> (String, Vec<String>, String) {
        (self.topology.clone(), self.namespaces.clone(), self.selector.to_string())
    }
}

impl PlacesReader {
    /// For pods that leave these nodes, or any node.
    pub fn new(from: Option<&[String]>) -> Self {
        Self { from: from.map(|nodes| nodes.iter().cloned().collect()), ..Self::default() }
    }

    /// Takes in a node. Nodes come before pods.
    pub fn node(&mut self, node: Node) {
        let size = amounts(&node.status.allocatable);
        let place = Place {
            labels: node.metadata.labels,
            taints: node.spec.taints,
            unschedulable: node.spec.unschedulable.unwrap_or(false),
            free: size.clone(),
            size,
        };
        self.places.nodes.insert(node.metadata.name, place);
    }

    /// Takes in a pod. One that is over, or has no node yet, takes nothing.
    pub fn pod(&mut self, pod: Pod) {
        let over = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let Some(node) = pod.spec.node_name.clone().filter(|_| !over) else { return };
        if let Some(place) = self.places.nodes.get_mut(&node) {
            for (resource, amount) in pod.spec.takes() {
                *place.free.entry(resource).or_default() -= amount;
            }
            *place.free.entry("pods".into()).or_default() -= ONE;
        }
        let key = Key::new(pod.metadata.namespace.clone(), pod.metadata.name.clone());
        if self.from.as_ref().is_none_or(|from| from.contains(&node)) {
            let wants = self.once(pod.spec.wants());
            self.places.wants.insert(key.clone(), wants);
        }
        let meant = |terms: &mut dyn Iterator<Item = &PodTerm>| -> Vec<Meant> {
            let plain = terms.filter(|term| term.is_plain());
            plain.map(|term| Meant::of(term, &pod.metadata.namespace)).collect()
        };
        let (near, apart) = (meant(&mut pod.spec.near()), meant(&mut pod.spec.apart()));
        self.residents.push(Resident { key, node, labels: pod.metadata.labels, near, apart });
    }

    fn once(&mut self, wants: Wants) -> Arc<Wants> {
        if let Some(known) = self.known.get(&wants) {
            return known.clone();
        }
        let wants = Arc::new(wants);
        self.known.insert(wants.clone());
        wants
    }

    /// The same where only the pods that leave were taken in: whom their affinity means is not known then, and is left out.
    pub fn finish_without_company(self) -> Places {
        self.places
    }

    /// Everything, once all nodes and pods were taken in.
    pub fn finish(mut self) -> Places {
        let residents = std::mem::take(&mut self.residents);
        let mut by_namespace: BTreeMap<&str, Vec<&Resident>> = BTreeMap::new();
        for pod in &residents {
            by_namespace.entry(&pod.key.namespace).or_default().push(pod);
        }
        let meant_by = |term: &Meant| -> Vec<&Resident> {
            let all = term.namespaces.iter().filter_map(|namespace| by_namespace.get(namespace.as_str()));
            all.flatten().copied().filter(|pod| term.matches(pod)).collect()
        };
        let company = |topology: &str, pods: &[&Resident]| Company {
            topology: topology.to_owned(),
            members: pods.iter().map(|pod| (pod.key.clone(), pod.node.clone())).collect(),
        };
        let mut changed: BTreeMap<Key, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        let mut groups: BTreeMap<_, usize> = BTreeMap::new();
        // Whom pods that leave have to be near to, or apart from.
        for pod in residents.iter().filter(|pod| self.places.wants.contains_key(&pod.key)) {
            let mut positions = |terms: &[Meant]| -> Vec<usize> {
                let position = |term: &Meant| {
                    *groups.entry(term.name()).or_insert_with(|| {
                        self.places.companies.push(company(&term.topology, &meant_by(term)));
                        self.places.companies.len() - 1
                    })
                };
                terms.iter().map(position).collect()
            };
            let (near, apart) = (positions(&pod.near), positions(&pod.apart));
            if !near.is_empty() || !apart.is_empty() {
                changed.insert(pod.key.clone(), (near, apart));
            }
        }
        // Who keeps them away.
        let mut repelling: BTreeMap<_, (&Meant, Vec<&Resident>)> = BTreeMap::new();
        for pod in &residents {
            for term in &pod.apart {
                repelling.entry(term.name()).or_insert_with(|| (term, Vec::new())).1.push(pod);
            }
        }
        for (term, owners) in repelling.into_values() {
            let leaving = meant_by(term).into_iter().filter(|pod| self.places.wants.contains_key(&pod.key));
            let leaving: Vec<&Resident> = leaving.collect();
            if !leaving.is_empty() {
                self.places.companies.push(company(&term.topology, &owners));
                let position = self.places.companies.len() - 1;
                for pod in leaving {
                    changed.entry(pod.key.clone()).or_default().1.push(position);
                }
            }
        }
        for (key, (near, apart)) in changed {
            if let Some(wants) = self.places.wants.get(&key) {
                let wants = Wants { near, apart, ..Wants::clone(wants) };
                let wants = self.once(wants);
                self.places.wants.insert(key, wants);
            }
        }
        self.places
    }
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
        let mut reader = PlacesReader::new(Some(&["a".to_owned()]));
        for name in ["a", "b", "c"] {
            reader.node(node(name));
        }
        for pod in pods {
            reader.pod(pod);
        }
        let places = reader.finish();
        let guest = Key::new("d", "guest");
        assert_eq!(places.targets(&guest, &["a".to_owned()]), Some(Ok(vec!["c".to_owned()])));
        assert_eq!(places.wants.len(), 1, "what is not on the node does not move");
        assert_eq!(places.wants[&guest].tolerations[0].key, "a");
    }

    #[test]
    fn affinity_between_pods_is_read_both_ways_and_what_is_not_judged_is_said() {
        let node = |name: &str| {
            read::<Node>(json!({
                "metadata": {"name": name, "labels": {"host": name}},
                "status": {"allocatable": {"pods": "10"}},
            }))
        };
        let pod = |name: &str, node: &str, app: &str, affinity: Value| {
            read::<Pod>(json!({
                "metadata": {"name": name, "namespace": "d", "labels": {"app": app}},
                "spec": {"nodeName": node, "affinity": affinity},
            }))
        };
        let term = |app: &str| {
            json!({"requiredDuringSchedulingIgnoredDuringExecution":
                [{"topologyKey": "host", "labelSelector": {"matchLabels": {"app": app}}}]})
        };
        let mut reader = PlacesReader::new(None);
        for name in ["a", "b", "c"] {
            reader.node(node(name));
        }
        reader.pod(pod("follower", "a", "web", json!({"podAffinity": term("db")})));
        reader.pod(pod("db", "b", "db", json!({})));
        reader.pod(pod("shy", "c", "shy", json!({"podAntiAffinity": term("web")})));
        let mut odd = pod("odd", "a", "odd", json!({}));
        odd.spec.topology_spread_constraints = vec![Spread { when_unsatisfiable: "DoNotSchedule".into() }];
        reader.pod(odd);
        let places = reader.finish();
        let targets = |name: &str| places.targets(&Key::new("d", name), &["a".to_owned()]).unwrap();
        assert_eq!(targets("follower"), Ok(vec!["b".to_owned()]));
        // It keeps away from the pods that it means, and these keep away from it.
        assert_eq!(targets("db"), Ok(vec!["b".to_owned(), "c".to_owned()]));
        assert_eq!(targets("odd"), Ok(vec!["b".to_owned(), "c".to_owned()]));
        let follower = &places.wants[&Key::new("d", "follower")];
        assert_eq!((follower.near.len(), follower.apart.len()), (1, 1), "{follower:?}");
        assert_eq!(places.wants[&Key::new("d", "odd")].unjudged, ["its topology spread constraints"]);
    }
}
