//! StatefulSets: pods with numbers, started in order, stopped in reverse, each with claims of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::pods::{Owner, claim, create, delete, from_template};
use super::revisions::{HASH_LABEL, History, record};
use crate::actor::{Out, View};
use crate::effects::Write;
use crate::kinds::Kind;
use crate::objects::{Key, available_at, deleting, finished, label, name, ready};

struct Set<'a> {
    view: View<'a>,
    object: &'a StatefulSet,
    owner: Owner<'a>,
    /// Ordinal → pod.
    pods: BTreeMap<i32, Arc<Pod>>,
    first: i32,
    replicas: i32,
    in_order: bool,
    update_revision: String,
    current_revision: String,
}

fn ordinal(set: &str, pod: &str) -> Option<i32> {
    pod.strip_prefix(set)?.strip_prefix('-')?.parse().ok()
}

pub fn sync(view: View<'_>, key: &Key, out: &mut Out) {
    let Some(set) = view.mirror.stateful_sets.get(key) else { return };
    let spec = &set.spec;
    let owner = Owner { kind: Kind::StatefulSet, meta: &set.metadata, component: "statefulset-controller" };
    let claimed = claim(view, &owner, Some(&spec.selector), out);
    if deleting(&set.metadata) {
        return;
    }
    let held = set.status.clone().unwrap_or_default();
    let mut in_use: Vec<String> =
        claimed.iter().filter_map(|p| label(&p.metadata, HASH_LABEL)).filter_map(hash_of).collect();
    in_use.extend(held.current_revision.as_deref().and_then(hash_of));
    let history = History {
        template: &spec.template,
        selector: &spec.selector,
        limit: spec.revision_history_limit.unwrap_or(10),
        in_use: &in_use,
    };
    let hash = record(view, &owner, &history, out);
    let update_revision = format!("{}-{hash}", name(&set.metadata));
    let pods = claimed
        .into_iter()
        .filter_map(|p| Some((ordinal(name(&set.metadata), name(&p.metadata))?, p)))
        .collect();
    let set = Set {
        view,
        object: set,
        owner,
        pods,
        first: spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or(0),
        replicas: spec.replicas.unwrap_or(1),
        in_order: spec.pod_management_policy.as_deref() != Some("Parallel"),
        current_revision: held.current_revision.clone().unwrap_or_else(|| update_revision.clone()),
        update_revision,
    };
    let before = out.writes.iter().filter(|w| !w.optional).count();
    set.act(out);
    if out.writes.iter().filter(|w| !w.optional).count() == before {
        set.status(key, &held, out);
    }
}

/// The hash at the end of a revision's name.
fn hash_of(revision: &str) -> Option<String> {
    revision.rsplit_once('-').map(|(_, hash)| hash.to_owned())
}

impl Set<'_> {
    fn healthy(&self, pod: &Pod, out: &mut Out) -> bool {
        let min_ready = self.object.spec.min_ready_seconds.unwrap_or(0);
        if deleting(&pod.metadata) || finished(pod) {
            return false;
        }
        match available_at(pod, min_ready) {
            Some(at) if at <= self.view.now => true,
            Some(at) => {
                out.again_at(at);
                false
            }
            None => false,
        }
    }

    fn act(&self, out: &mut Out) {
        let wanted = self.first..self.first + self.replicas;
        for number in wanted.clone() {
            match self.pods.get(&number) {
                None => {
                    self.create_pod(number, out);
                    if self.in_order {
                        return;
                    }
                }
                Some(pod) if finished(pod) && !deleting(&pod.metadata) => {
                    delete(&self.owner, pod, self.view.now, out);
                    if self.in_order {
                        return;
                    }
                }
                Some(pod) => {
                    if !self.healthy(pod, out) && self.in_order {
                        return;
                    }
                }
            }
        }
        let surplus: Vec<&Arc<Pod>> =
            self.pods.iter().rev().filter(|(n, _)| !wanted.contains(n)).map(|(_, p)| p).collect();
        if self.in_order && surplus.iter().any(|p| deleting(&p.metadata)) {
            return;
        }
        for pod in surplus.iter().filter(|p| !deleting(&p.metadata)) {
            delete(&self.owner, pod, self.view.now, out);
            if self.in_order {
                return;
            }
        }
        let revisions = Kind::ControllerRevision.resource();
        if out.writes.iter().all(|w| w.optional || w.resource == revisions) {
            self.roll(out);
        }
    }

    fn partition(&self) -> i32 {
        let strategy = self.object.spec.update_strategy.as_ref();
        strategy.and_then(|s| s.rolling_update.as_ref()).and_then(|r| r.partition).unwrap_or(0)
    }

    /// Replaces pods of the former revision, the highest number first, one at a time.
    fn roll(&self, out: &mut Out) {
        let strategy = self.object.spec.update_strategy.as_ref();
        if strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete") {
            return;
        }
        let least = self.first + self.partition();
        for (_, pod) in self.pods.iter().rev().filter(|(n, _)| **n >= least) {
            if label(&pod.metadata, HASH_LABEL) != Some(&self.update_revision) && !deleting(&pod.metadata) {
                delete(&self.owner, pod, self.view.now, out);
                return;
            }
            if !self.healthy(pod, out) {
                return;
            }
        }
    }

    /// The template of the revision that the pod of this number should have.
    fn template(&self, number: i32) -> (PodTemplateSpec, String) {
        let own = self.object.spec.template.clone();
        if number >= self.first + self.partition() || self.current_revision == self.update_revision {
            return (own, self.update_revision.clone());
        }
        let key = Key::new(self.owner.namespace(), self.current_revision.clone());
        let recorded = self.view.mirror.revisions.get(&key).and_then(|r| {
            let mut template = r.data.0.get("spec")?.get("template")?.clone();
            template.as_object_mut()?.remove("$patch");
            serde_json::from_value(template).ok()
        });
        match recorded {
            Some(template) => (template, self.current_revision.clone()),
            None => (own, self.update_revision.clone()),
        }
    }

    fn create_pod(&self, number: i32, out: &mut Out) {
        let spec = &self.object.spec;
        let set_name = name(&self.object.metadata);
        let pod_name = format!("{set_name}-{number}");
        let (template, revision) = self.template(number);
        let mut pod = from_template(&self.owner, &template, &pod_name, false);
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), revision);
        labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), pod_name.clone());
        labels.insert("apps.kubernetes.io/pod-index".to_owned(), number.to_string());
        let pod_spec = pod.spec.get_or_insert_default();
        pod_spec.hostname = Some(pod_name.clone());
        pod_spec.subdomain = spec.service_name.clone().filter(|s| !s.is_empty());
        let volumes = pod_spec.volumes.get_or_insert_default();
        for template in spec.volume_claim_templates.iter().flatten() {
            let volume = name(&template.metadata).to_owned();
            let claim_name = format!("{volume}-{set_name}-{number}");
            volumes.retain(|v| v.name != volume);
            volumes.push(Volume {
                name: volume,
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim_name.clone(),
                    read_only: None,
                }),
                ..Default::default()
            });
            let key = Key::new(self.owner.namespace(), claim_name.clone());
            if self.view.mirror.claims.get(&key).is_none() {
                let labels = spec.selector.match_labels.clone().unwrap_or_default();
                let own = template.metadata.labels.clone().unwrap_or_default();
                let claim = PersistentVolumeClaim {
                    metadata: ObjectMeta {
                        name: Some(claim_name),
                        namespace: self.object.metadata.namespace.clone(),
                        labels: Some(own.into_iter().chain(labels).collect()),
                        annotations: template.metadata.annotations.clone(),
                        ..Default::default()
                    },
                    spec: template.spec.clone(),
                    status: None,
                };
                out.write(Write::create(Kind::PersistentVolumeClaim, key, &claim));
            }
        }
        create(&self.owner, &pod, self.view.now, out);
    }

    fn status(&self, key: &Key, held: &StatefulSetStatus, out: &mut Out) {
        let with = |revision: &str| {
            self.pods
                .values()
                .filter(|p| !deleting(&p.metadata) && label(&p.metadata, HASH_LABEL) == Some(revision))
                .count() as i32
        };
        let updated = with(&self.update_revision);
        let available = self.pods.values().filter(|p| self.healthy(p, out)).count() as i32;
        let ready_pods = self.pods.values().filter(|p| !deleting(&p.metadata) && ready(p)).count() as i32;
        let complete = updated == self.replicas && ready_pods == self.replicas;
        let current_revision = if complete { &self.update_revision } else { &self.current_revision };
        let some = |n: i32| (n != 0).then_some(n);
        let next = StatefulSetStatus {
            replicas: self.pods.len() as i32,
            ready_replicas: some(ready_pods),
            available_replicas: Some(available),
            current_replicas: some(with(current_revision)),
            updated_replicas: some(updated),
            current_revision: Some(current_revision.clone()),
            update_revision: Some(self.update_revision.clone()),
            observed_generation: self.object.metadata.generation,
            collision_count: held.collision_count.or(Some(0)),
            conditions: held.conditions.clone(),
        };
        let held = StatefulSetStatus {
            available_replicas: Some(held.available_replicas.unwrap_or(0)),
            collision_count: held.collision_count.or(Some(0)),
            ..held.clone()
        };
        if next != held {
            let body = StatefulSet { status: Some(next), ..StatefulSet::clone(self.object) };
            out.write(Write::status(Kind::StatefulSet, key.clone(), &body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Answers;
    use crate::build::{PodBuilder, at, labels, meta, pod, selector};
    use crate::effects::Verb;
    use crate::kinds::Object;
    use crate::mirror::Mirror;
    use k8s_openapi::api::apps::v1::StatefulSetSpec;

    fn set(replicas: i32, policy: &str) -> StatefulSet {
        StatefulSet {
            metadata: meta("ns", "db"),
            spec: StatefulSetSpec {
                replicas: Some(replicas),
                selector: selector(&[("app", "db")]),
                pod_management_policy: Some(policy.into()),
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: Some(labels(&[("app", "db")])),
                        ..Default::default()
                    }),
                    spec: None,
                },
                volume_claim_templates: Some(vec![PersistentVolumeClaim {
                    metadata: ObjectMeta { name: Some("data".into()), ..Default::default() },
                    ..Default::default()
                }]),
                ..Default::default()
            },
            status: None,
        }
    }

    fn decide(set: StatefulSet, pods: Vec<PodBuilder>) -> Vec<(String, &'static str)> {
        let mut mirror = Mirror::default();
        let revision = super::super::revisions::template_hash(&set.spec.template);
        mirror.put(Object::StatefulSet(Arc::new(set)));
        for p in pods {
            let p = p.owner("apps/v1", "StatefulSet", "db", "uid-db").with(|p| {
                let labels = p.metadata.labels.get_or_insert_default();
                labels.insert("app".into(), "db".into());
                labels.entry(HASH_LABEL.into()).or_insert(format!("db-{revision}"));
            });
            mirror.put(Object::Pod(Arc::new(p.make())));
        }
        let mut out = Out::default();
        let answers = Answers::new();
        sync(View { mirror: &mirror, now: at(10), answers: &answers }, &Key::new("ns", "db"), &mut out);
        out.writes
            .into_iter()
            .filter(|w| w.resource != crate::kinds::EVENTS && w.resource.plural != "controllerrevisions")
            .map(|w| {
                let verb = match w.verb {
                    Verb::Create(_) => "create",
                    Verb::Delete(_) => "delete",
                    _ => "other",
                };
                (w.key.name, verb)
            })
            .collect()
    }

    fn up(name: &str) -> PodBuilder {
        pod("ns", name).ready().on("n")
    }

    #[test]
    fn pods_start_in_order_each_with_its_claim() {
        let first = decide(set(3, "OrderedReady"), vec![]);
        assert_eq!(first, [("data-db-0".into(), "create"), ("db-0".into(), "create")]);
        assert!(
            decide(set(3, "OrderedReady"), vec![pod("ns", "db-0").on("n")]).iter().all(|w| w.1 == "other")
        );
        let second = decide(set(3, "OrderedReady"), vec![up("db-0")]);
        assert_eq!(second[1], ("db-1".into(), "create"));
    }

    #[test]
    fn parallel_sets_start_all_at_once() {
        let names: Vec<_> = decide(set(3, "Parallel"), vec![]).into_iter().map(|w| w.0).collect();
        assert_eq!(names, ["data-db-0", "db-0", "data-db-1", "db-1", "data-db-2", "db-2"]);
    }

    #[test]
    fn scaling_down_takes_the_highest_number_and_waits_for_it() {
        let pods = || vec![up("db-0"), up("db-1"), up("db-2")];
        assert_eq!(decide(set(1, "OrderedReady"), pods()), [("db-2".into(), "delete")]);
        let waiting = vec![up("db-0"), up("db-1"), up("db-2").deleting(30)];
        assert!(decide(set(1, "OrderedReady"), waiting).iter().all(|w| w.1 == "other"));
    }

    #[test]
    fn an_update_goes_from_the_highest_number_down_one_at_a_time() {
        let old = |name: &str| up(name).labels(&[(HASH_LABEL, "db-old")]);
        assert_eq!(
            decide(set(2, "OrderedReady"), vec![old("db-0"), old("db-1")])[0],
            ("db-1".into(), "delete")
        );
        assert_eq!(
            decide(set(2, "OrderedReady"), vec![old("db-0"), up("db-1")])[0],
            ("db-0".into(), "delete")
        );
    }
}
