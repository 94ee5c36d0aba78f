//! ReplicaSets and ReplicationControllers: so many pods of one template, no more and no fewer.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, ReplicationController, ReplicationControllerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::pods::{Owner, claim, create, delete, from_template, removal_order};
use crate::actor::{Out, View};
use crate::effects::Write;
use crate::kinds::Kind;
use crate::objects::{Key, active, available_at, deleting, finished, name, ready};
use crate::random::Streams;

/// How the pods of a controller are doing.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub struct Counts {
    pub replicas: i32,
    pub labelled: i32,
    pub ready: i32,
    pub available: i32,
    pub terminating: i32,
}

/// Counts pods; tells `out` when a ready pod will have been ready for long enough.
pub fn count(
    pods: &[Arc<Pod>],
    template: Option<&PodTemplateSpec>,
    min_ready: i32,
    now: Timestamp,
    out: &mut Out,
) -> Counts {
    let mut counts = Counts::default();
    let labels = template.and_then(|t| t.metadata.as_ref()).and_then(|m| m.labels.as_ref());
    for pod in pods {
        if deleting(&pod.metadata) && !finished(pod) {
            counts.terminating += 1;
        }
        if !active(pod) {
            continue;
        }
        counts.replicas += 1;
        let has = |k: &String, v: &String| pod.metadata.labels.as_ref().and_then(|l| l.get(k)) == Some(v);
        counts.labelled += i32::from(labels.iter().copied().flatten().all(|(k, v)| has(k, v)));
        counts.ready += i32::from(ready(pod));
        match available_at(pod, min_ready) {
            Some(at) if at <= now => counts.available += 1,
            Some(at) => out.again_at(at),
            None => {}
        }
    }
    counts
}

/// So many pods of one template.
struct Wanted<'a> {
    owner: &'a Owner<'a>,
    template: &'a PodTemplateSpec,
    replicas: i32,
}

/// Creates what is missing, deletes what is too much.
fn even_out(view: View<'_>, streams: &mut Streams, wanted: &Wanted<'_>, pods: &[Arc<Pod>], out: &mut Out) {
    let Wanted { owner, template, replicas } = *wanted;
    let mut live: Vec<Arc<Pod>> = pods.iter().filter(|p| active(p)).cloned().collect();
    let missing = replicas - live.len() as i32;
    if missing > 0 {
        let entity = format!("{}/{}", owner.namespace(), name(owner.meta));
        for _ in 0..missing {
            let pod_name = loop {
                let candidate = format!("{}-{}", name(owner.meta), streams.suffix(&entity));
                if view.mirror.pods.get(&Key::new(owner.namespace(), candidate.clone())).is_none() {
                    break candidate;
                }
            };
            create(owner, &from_template(owner, template, &pod_name, true), view.now, out);
        }
    } else if missing < 0 {
        removal_order(&mut live);
        for pod in live.iter().take((-missing) as usize) {
            delete(owner, pod, view.now, out);
        }
    }
}

pub fn sync(view: View<'_>, streams: &mut Streams, key: &Key, out: &mut Out) {
    let Some(set) = view.mirror.replica_sets.get(key) else { return };
    let spec = &set.spec;
    let owner = Owner { kind: Kind::ReplicaSet, meta: &set.metadata, component: "replicaset-controller" };
    let pods = claim(view, &owner, Some(&spec.selector), out);
    if !deleting(&set.metadata)
        && let Some(template) = &spec.template
    {
        let wanted = Wanted { owner: &owner, template, replicas: spec.replicas.unwrap_or(1) };
        even_out(view, streams, &wanted, &pods, out);
    }
    let counts = count(&pods, spec.template.as_ref(), spec.min_ready_seconds.unwrap_or(0), view.now, out);
    if out.writes.is_empty() {
        set_status(set, key, counts, out);
    }
}

fn some(n: i32) -> Option<i32> {
    (n != 0).then_some(n)
}

fn set_status(set: &ReplicaSet, key: &Key, counts: Counts, out: &mut Out) {
    let held = set.status.clone().unwrap_or_default();
    let wanted = ReplicaSetStatus {
        replicas: counts.replicas,
        fully_labeled_replicas: some(counts.labelled),
        ready_replicas: some(counts.ready),
        available_replicas: some(counts.available),
        terminating_replicas: Some(counts.terminating),
        observed_generation: set.metadata.generation,
        conditions: held.conditions.clone(),
    };
    let same = wanted
        == ReplicaSetStatus { terminating_replicas: wanted.terminating_replicas, ..held.clone() }
        && held.terminating_replicas.unwrap_or(0) == counts.terminating;
    if !same {
        let next = ReplicaSet { status: Some(wanted), ..ReplicaSet::clone(set) };
        out.write(Write::status(Kind::ReplicaSet, key.clone(), &next));
    }
}

pub fn sync_replication_controller(view: View<'_>, streams: &mut Streams, key: &Key, out: &mut Out) {
    let Some(set) = view.mirror.replication_controllers.get(key) else { return };
    let Some(spec) = &set.spec else { return };
    let owner =
        Owner { kind: Kind::ReplicationController, meta: &set.metadata, component: "replication-controller" };
    let selector = spec.selector.clone().filter(|s| !s.is_empty());
    let selector = selector.map(|s| LabelSelector { match_labels: Some(s), match_expressions: None });
    let pods = claim(view, &owner, selector.as_ref(), out);
    if !deleting(&set.metadata)
        && let Some(template) = &spec.template
    {
        let wanted = Wanted { owner: &owner, template, replicas: spec.replicas.unwrap_or(1) };
        even_out(view, streams, &wanted, &pods, out);
    }
    let counts = count(&pods, spec.template.as_ref(), spec.min_ready_seconds.unwrap_or(0), view.now, out);
    let held = set.status.clone().unwrap_or_default();
    let status = ReplicationControllerStatus {
        replicas: counts.replicas,
        fully_labeled_replicas: some(counts.labelled),
        ready_replicas: some(counts.ready),
        available_replicas: some(counts.available),
        observed_generation: set.metadata.generation,
        conditions: held.conditions.clone(),
    };
    if out.writes.is_empty() && status != held {
        let next = ReplicationController { status: Some(status), ..ReplicationController::clone(set) };
        out.write(Write::status(Kind::ReplicationController, key.clone(), &next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Answers;
    use crate::build::{at, labels, meta, pod, selector};
    use crate::effects::Verb;
    use crate::kinds::Object;
    use crate::mirror::Mirror;
    use k8s_openapi::api::apps::v1::ReplicaSetSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn set(replicas: i32) -> ReplicaSet {
        ReplicaSet {
            metadata: meta("ns", "web"),
            spec: ReplicaSetSpec {
                replicas: Some(replicas),
                selector: selector(&[("app", "web")]),
                template: Some(PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: Some(labels(&[("app", "web")])),
                        ..Default::default()
                    }),
                    spec: None,
                }),
                ..Default::default()
            },
            status: None,
        }
    }

    fn decide(mirror: &Mirror) -> Out {
        let mut out = Out::default();
        let answers = Answers::new();
        sync(
            View { mirror, now: at(100), answers: &answers },
            &mut Streams::new(1),
            &Key::new("ns", "web"),
            &mut out,
        );
        out.writes.retain(|w| !w.optional);
        out
    }

    fn with(set: ReplicaSet, pods: Vec<Pod>) -> Mirror {
        let mut mirror = Mirror::default();
        mirror.put(Object::ReplicaSet(Arc::new(set)));
        for pod in pods {
            mirror.put(Object::Pod(Arc::new(pod)));
        }
        mirror
    }

    fn mine(name: &str) -> crate::build::PodBuilder {
        pod("ns", name).labels(&[("app", "web")]).owner("apps/v1", "ReplicaSet", "web", "uid-web")
    }

    #[test]
    fn missing_pods_are_created_with_distinct_names() {
        let out = decide(&with(set(3), vec![mine("a").make()]));
        let mut names: Vec<_> = out.writes.iter().map(|w| w.key.name.clone()).collect();
        assert_eq!(names.len(), 2);
        names.dedup();
        assert_eq!(names.len(), 2);
        assert!(out.writes.iter().all(|w| matches!(w.verb, Verb::Create(_))));
    }

    #[test]
    fn dying_and_finished_pods_are_replaced() {
        let out =
            decide(&with(set(1), vec![mine("a").deleting(30).make(), mine("b").phase("Failed").make()]));
        assert_eq!(out.writes.len(), 1);
    }

    #[test]
    fn an_orphan_that_matches_is_adopted_instead_of_a_new_pod() {
        let orphan = pod("ns", "orphan").labels(&[("app", "web")]).make();
        let out = decide(&with(set(1), vec![orphan]));
        assert_eq!(out.writes.len(), 1);
        assert!(matches!(out.writes[0].verb, Verb::StrategicPatch(_)));
    }

    #[test]
    fn a_pod_that_no_longer_matches_is_released_and_replaced() {
        let stray = mine("a").labels(&[("app", "other")]).make();
        let out = decide(&with(set(1), vec![stray]));
        assert!(matches!(out.writes[0].verb, Verb::StrategicPatch(_)));
        assert!(matches!(out.writes[1].verb, Verb::Create(_)));
    }

    #[test]
    fn the_status_is_written_once_the_number_is_right_and_only_when_it_changes() {
        let out = decide(&with(set(1), vec![mine("a").on("n").ready().make()]));
        let Verb::Replace(body) = &out.writes[0].verb else { panic!("{:?}", out.writes) };
        assert_eq!(body["status"]["readyReplicas"], 1);
        assert_eq!(body["status"]["availableReplicas"], 1);
        let written: ReplicaSet = serde_json::from_value(body.clone()).unwrap();
        assert!(decide(&with(written, vec![mine("a").on("n").ready().make()])).writes.is_empty());
    }

    #[test]
    fn a_deleted_set_creates_nothing() {
        let mut dying = set(3);
        dying.metadata.deletion_timestamp = Some(crate::objects::time(at(0)));
        let out = decide(&with(dying, vec![]));
        assert!(out.writes.iter().all(|w| w.resource != Kind::Pod.resource()));
    }
}
