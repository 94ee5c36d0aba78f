//! DaemonSets: one pod on each node that is meant to have one.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
    PodTemplateSpec, Toleration,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pods::{Owner, claim, create, delete, from_template};
use super::revisions::{HASH_LABEL, History, record};
use crate::actor::{Out, View};
use crate::effects::Write;
use crate::kinds::Kind;
use crate::objects::{Key, available_at, deleting, label, name, node_of, phase, ready, scaled};
use crate::random::Streams;
use crate::scheduler::fit::{tolerations, untolerated, wants_node};

fn toleration(key: &str, effect: &str) -> Toleration {
    Toleration {
        key: Some(format!("node.kubernetes.io/{key}")),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        ..Default::default()
    }
}

/// What every daemon pod tolerates, whatever its template says.
fn daemon_tolerations(host_network: bool) -> Vec<Toleration> {
    let mut all = vec![
        toleration("not-ready", "NoExecute"),
        toleration("unreachable", "NoExecute"),
        toleration("disk-pressure", "NoSchedule"),
        toleration("memory-pressure", "NoSchedule"),
        toleration("pid-pressure", "NoSchedule"),
        toleration("unschedulable", "NoSchedule"),
    ];
    if host_network {
        all.push(toleration("network-unavailable", "NoSchedule"));
    }
    all
}

/// The pod this set would put on a node.
fn pod_for(owner: &Owner<'_>, template: &PodTemplateSpec, node: &str, pod_name: &str, hash: &str) -> Pod {
    let mut pod = from_template(owner, template, pod_name, true);
    pod.metadata.labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.to_owned());
    let spec = pod.spec.get_or_insert_default();
    let here = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let node_affinity = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    let selector = node_affinity
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(|| NodeSelector { node_selector_terms: vec![] });
    if selector.node_selector_terms.is_empty() {
        selector.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut selector.node_selector_terms {
        term.match_fields = Some(vec![here.clone()]);
    }
    let host_network = spec.host_network == Some(true);
    let list = spec.tolerations.get_or_insert_default();
    for extra in daemon_tolerations(host_network) {
        if !list.contains(&extra) {
            list.push(extra);
        }
    }
    pod
}

/// A node, and whether a pod of the set may start and stay on it.
#[derive(Clone, Copy)]
struct Place<'a> {
    node: &'a str,
    start: bool,
    stay: bool,
}

fn places<'a>(view: View<'a>, owner: &Owner<'_>, template: &PodTemplateSpec) -> Vec<Place<'a>> {
    let mut probe = from_template(owner, template, "probe", false);
    let spec = probe.spec.get_or_insert_default();
    let extra = daemon_tolerations(spec.host_network == Some(true));
    spec.tolerations.get_or_insert_default().extend(extra);
    let place = |node: &'a Arc<Node>| {
        let wanted = wants_node(&probe, node);
        let stay = wanted && untolerated(node, tolerations(&probe), &["NoExecute"]).is_none();
        let start = stay && untolerated(node, tolerations(&probe), &["NoSchedule"]).is_none();
        Place { node: name(&node.metadata), start, stay }
    };
    view.mirror.nodes.values().map(place).collect()
}

/// The node a daemon pod is on, or is meant for.
fn target(pod: &Pod) -> Option<&str> {
    if let Some(node) = node_of(pod) {
        return Some(node);
    }
    pod.spec
        .as_ref()?
        .affinity
        .as_ref()?
        .node_affinity
        .as_ref()?
        .required_during_scheduling_ignored_during_execution
        .as_ref()?
        .node_selector_terms
        .iter()
        .flat_map(|t| t.match_fields.iter().flatten())
        .find(|r| r.key == "metadata.name")
        .and_then(|r| r.values.as_ref()?.first().map(String::as_str))
}

pub fn sync(view: View<'_>, streams: &mut Streams, key: &Key, out: &mut Out) {
    let Some(set) = view.mirror.daemon_sets.get(key) else { return };
    let spec = &set.spec;
    let owner = Owner { kind: Kind::DaemonSet, meta: &set.metadata, component: "daemonset-controller" };
    let pods = claim(view, &owner, Some(&spec.selector), out);
    if deleting(&set.metadata) {
        return;
    }
    let in_use: Vec<String> =
        pods.iter().filter_map(|p| label(&p.metadata, HASH_LABEL).map(str::to_owned)).collect();
    let history = History {
        template: &spec.template,
        selector: &spec.selector,
        limit: spec.revision_history_limit.unwrap_or(10),
        in_use: &in_use,
    };
    let hash = record(view, &owner, &history, out);
    let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in &pods {
        by_node.entry(target(pod).unwrap_or_default().to_owned()).or_default().push(pod.clone());
    }
    let entity = format!("{}/{}", owner.namespace(), name(owner.meta));
    let nodes = places(view, &owner, &spec.template);
    for Place { node: node_name, start, stay } in nodes.iter().copied() {
        let here = by_node.get(node_name).map(Vec::as_slice).unwrap_or_default();
        let mut live: Vec<&Arc<Pod>> = here.iter().filter(|p| !deleting(&p.metadata)).collect();
        if !stay {
            for pod in live {
                delete(&owner, pod, view.now, out);
            }
            continue;
        }
        live.retain(|pod| {
            let ended = matches!(phase(pod), "Failed" | "Succeeded");
            if ended {
                delete(&owner, pod, view.now, out);
            }
            !ended
        });
        live.sort_by_key(|p| (!ready(p), p.metadata.creation_timestamp.clone(), p.metadata.name.clone()));
        for surplus in live.iter().skip(1) {
            delete(&owner, surplus, view.now, out);
        }
        // A pod that still stops holds its place.
        if here.is_empty() && start {
            let pod_name = format!("{}-{}", name(owner.meta), streams.suffix(&entity));
            create(&owner, &pod_for(&owner, &spec.template, node_name, &pod_name, &hash), view.now, out);
        }
    }
    let daemons = Daemons { view, owner, set, nodes, by_node, hash };
    if out.writes.iter().all(|w| w.optional) {
        daemons.roll(out);
    }
    if out.writes.iter().all(|w| w.optional) {
        daemons.status(key, out);
    }
}

/// A set whose pods are where they are meant to be.
struct Daemons<'a> {
    view: View<'a>,
    owner: Owner<'a>,
    set: &'a DaemonSet,
    nodes: Vec<Place<'a>>,
    by_node: BTreeMap<String, Vec<Arc<Pod>>>,
    /// The revision of the template as it is.
    hash: String,
}

impl Daemons<'_> {
    fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.by_node.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    fn is_current(&self, pod: &Pod) -> bool {
        label(&pod.metadata, HASH_LABEL) == Some(&self.hash)
    }

    /// Deletes pods of former templates, as many at a time as may be unavailable.
    fn roll(&self, out: &mut Out) {
        let spec = &self.set.spec;
        let strategy = spec.update_strategy.as_ref();
        if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
            return;
        }
        let min_ready = spec.min_ready_seconds.unwrap_or(0);
        let up = |pod: &Pod| {
            !deleting(&pod.metadata) && available_at(pod, min_ready).is_some_and(|at| at <= self.view.now)
        };
        let meant: Vec<&str> = self.nodes.iter().filter(|p| p.start).map(|p| p.node).collect();
        let one = IntOrString::Int(1);
        let most = strategy
            .and_then(|s| s.rolling_update.as_ref())
            .and_then(|r| r.max_unavailable.as_ref())
            .unwrap_or(&one);
        let most = scaled(most, meant.len() as i32, true).unwrap_or(1).max(1);
        let mut down = 0;
        let mut stale_up = Vec::new();
        let mut stale_down = Vec::new();
        for node in meant {
            let here = self.on(node);
            let available = here.iter().any(|p| up(p));
            down += i32::from(!available);
            for pod in here.iter().filter(|p| !deleting(&p.metadata)) {
                if !self.is_current(pod) {
                    if up(pod) { stale_up.push(pod.clone()) } else { stale_down.push(pod.clone()) }
                }
            }
        }
        for pod in stale_down {
            delete(&self.owner, &pod, self.view.now, out);
        }
        for pod in stale_up.iter().take((most - down).max(0) as usize) {
            delete(&self.owner, pod, self.view.now, out);
        }
    }

    fn status(&self, key: &Key, out: &mut Out) {
        let set = self.set;
        let spec = &set.spec;
        let held = set.status.clone().unwrap_or_default();
        let mut next = DaemonSetStatus {
            observed_generation: set.metadata.generation,
            collision_count: held.collision_count,
            conditions: held.conditions.clone(),
            ..Default::default()
        };
        let (mut updated, mut available) = (0, 0);
        for place in &self.nodes {
            let here = self.on(place.node);
            if !place.start {
                next.number_misscheduled += i32::from(!here.is_empty());
                continue;
            }
            next.desired_number_scheduled += 1;
            let Some(pod) = here.iter().find(|p| !deleting(&p.metadata)).or(here.first()) else { continue };
            next.current_number_scheduled += 1;
            updated += i32::from(self.is_current(pod));
            if ready(pod) {
                next.number_ready += 1;
                match available_at(pod, spec.min_ready_seconds.unwrap_or(0)) {
                    Some(at) if at <= self.view.now => available += 1,
                    Some(at) => out.again_at(at),
                    None => {}
                }
            }
        }
        let some = |n: i32| (n != 0).then_some(n);
        next.updated_number_scheduled = some(updated);
        next.number_available = some(available);
        next.number_unavailable = some(next.desired_number_scheduled - available);
        if next != held {
            let body = DaemonSet { status: Some(next), ..DaemonSet::clone(set) };
            out.write(Write::status(Kind::DaemonSet, key.clone(), &body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Answers;
    use crate::build::{at, labels, meta, node, pod, selector, taint};
    use crate::effects::Verb;
    use crate::kinds::Object;
    use crate::mirror::Mirror;
    use k8s_openapi::api::apps::v1::DaemonSetSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn cluster(nodes: Vec<Node>, pods: Vec<Pod>) -> Mirror {
        let mut mirror = Mirror::default();
        let set = DaemonSet {
            metadata: meta("ns", "agent"),
            spec: DaemonSetSpec {
                selector: selector(&[("app", "agent")]),
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: Some(labels(&[("app", "agent")])),
                        ..Default::default()
                    }),
                    spec: None,
                },
                ..Default::default()
            },
            status: None,
        };
        mirror.put(Object::DaemonSet(Arc::new(set)));
        for n in nodes {
            mirror.put(Object::Node(Arc::new(n)));
        }
        for p in pods {
            mirror.put(Object::Pod(Arc::new(p)));
        }
        mirror
    }

    fn pod_writes(mirror: &Mirror) -> Vec<Write> {
        let mut out = Out::default();
        let answers = Answers::new();
        let view = View { mirror, now: at(0), answers: &answers };
        sync(view, &mut Streams::new(1), &Key::new("ns", "agent"), &mut out);
        out.writes.retain(|w| w.resource == Kind::Pod.resource());
        out.writes
    }

    #[test]
    fn each_node_gets_a_pod_also_when_it_is_cordoned_but_not_behind_a_foreign_taint() {
        let mut cordoned = node("n2", "a");
        cordoned.spec.as_mut().unwrap().taints =
            Some(vec![taint("node.kubernetes.io/unschedulable", "NoSchedule")]);
        let mut closed = node("n3", "a");
        closed.spec.as_mut().unwrap().taints = Some(vec![taint("dedicated", "NoSchedule")]);
        let writes = pod_writes(&cluster(vec![node("n1", "a"), cordoned, closed], vec![]));
        let targets: Vec<String> = writes
            .iter()
            .map(|w| {
                let Verb::Create(body) = &w.verb else { panic!() };
                target(&serde_json::from_value(body.clone()).unwrap()).unwrap().to_owned()
            })
            .collect();
        assert_eq!(targets, ["n1", "n2"]);
    }

    #[test]
    fn a_no_execute_taint_removes_the_pod_and_a_no_schedule_taint_does_not() {
        let here = pod("ns", "x")
            .labels(&[("app", "agent")])
            .owner("apps/v1", "DaemonSet", "agent", "uid-agent")
            .on("n1")
            .ready()
            .make();
        let mut n = node("n1", "a");
        n.spec.as_mut().unwrap().taints = Some(vec![taint("dedicated", "NoExecute")]);
        let writes = pod_writes(&cluster(vec![n.clone()], vec![here.clone()]));
        assert!(matches!(writes[0].verb, Verb::Delete(_)));
    }

    #[test]
    fn a_pod_of_a_former_template_is_replaced_only_within_the_budget() {
        let old = |name: &str, node: &str| {
            pod("ns", name)
                .labels(&[("app", "agent"), (HASH_LABEL, "old")])
                .owner("apps/v1", "DaemonSet", "agent", "uid-agent")
                .on(node)
                .ready()
                .make()
        };
        let mut mirror =
            cluster(vec![node("n1", "a"), node("n2", "a")], vec![old("a", "n1"), old("b", "n2")]);
        // The revision must be on record before pods move.
        let answers = Answers::new();
        let mut out = Out::default();
        sync(
            View { mirror: &mirror, now: at(0), answers: &answers },
            &mut Streams::new(1),
            &Key::new("ns", "agent"),
            &mut out,
        );
        let Verb::Create(body) = &out.writes[0].verb else { panic!("{:?}", out.writes) };
        let mut body = body.clone();
        body["metadata"]["uid"] = "r".into();
        mirror.put(Kind::ControllerRevision.parse(body).unwrap());
        let writes = pod_writes(&mirror);
        assert_eq!(writes.len(), 1);
        assert!(matches!(writes[0].verb, Verb::Delete(_)));
    }
}
