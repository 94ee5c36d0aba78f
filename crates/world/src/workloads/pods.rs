//! Pods of a controller: making them from a template, claiming them, ranking them for removal.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use serde_json::json;

use crate::actor::{Out, View};
use crate::effects::{Deletion, Write};
use crate::events::{Notice, event};
use crate::kinds::Kind;
use crate::objects::{
    Key, annotation, deleting, name, node_of, owner_reference, phase, ready, ready_since, selects, uid,
};

/// Who creates pods: what its pods and events say about it.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    pub kind: Kind,
    pub meta: &'a ObjectMeta,
    pub component: &'static str,
}

impl Owner<'_> {
    pub fn reference(&self) -> OwnerReference {
        let resource = self.kind.resource();
        owner_reference(&resource.api_version(), &resource.kind, self.meta)
    }

    pub fn namespace(&self) -> String {
        self.meta.namespace.clone().unwrap_or_default()
    }
}

/// A pod from a template, owned and named.
pub fn from_template(owner: &Owner<'_>, template: &PodTemplateSpec, pod_name: &str, generated: bool) -> Pod {
    let from = template.metadata.clone().unwrap_or_default();
    let spec: PodSpec = template.spec.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            name: Some(pod_name.to_owned()),
            generate_name: generated.then(|| format!("{}-", name(owner.meta))),
            namespace: owner.meta.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: Some(vec![owner.reference()]),
            ..Default::default()
        },
        spec: Some(spec),
        status: None,
    }
}

pub fn create(owner: &Owner<'_>, pod: &Pod, now: Timestamp, out: &mut Out) {
    let key = Key::of(&pod.metadata);
    let text = format!("Created pod: {}", key.name);
    out.write(Write::create(Kind::Pod, key, pod));
    out.write(event(owner.kind, owner.meta, Notice::normal(owner.component, "SuccessfulCreate", &text), now));
}

pub fn delete(owner: &Owner<'_>, pod: &Pod, now: Timestamp, out: &mut Out) {
    let key = Key::of(&pod.metadata);
    let text = format!("Deleted pod: {}", key.name);
    let deletion = Deletion { uid: pod.metadata.uid.clone(), ..Deletion::default() };
    out.write(Write::delete(Kind::Pod, key, deletion));
    out.write(event(owner.kind, owner.meta, Notice::normal(owner.component, "SuccessfulDelete", &text), now));
}

/// The pods that belong to the owner now. Orphans that match are adopted and pods that no longer match are
/// released, by writes that come back as changes.
pub fn claim(
    view: View<'_>,
    owner: &Owner<'_>,
    selector: Option<&LabelSelector>,
    out: &mut Out,
) -> Vec<Arc<Pod>> {
    let namespace = owner.namespace();
    let mut mine = Vec::new();
    for pod in view.mirror.pods.controlled_by(uid(owner.meta)) {
        if selects(selector, pod.metadata.labels.as_ref()) {
            mine.push(pod.clone());
        } else if !deleting(&pod.metadata) && !deleting(owner.meta) {
            let patch = json!({ "metadata": {
                "uid": pod.metadata.uid,
                "ownerReferences": [{ "$patch": "delete", "uid": owner.meta.uid }],
            }});
            out.write(Write::strategic(Kind::Pod, Key::of(&pod.metadata), patch));
        }
    }
    if !deleting(owner.meta) {
        for pod in view.mirror.pods.orphans(&namespace) {
            if !deleting(&pod.metadata) && selects(selector, pod.metadata.labels.as_ref()) {
                let patch = json!({ "metadata": {
                    "uid": pod.metadata.uid,
                    "ownerReferences": [owner.reference()],
                }});
                out.write(Write::strategic(Kind::Pod, Key::of(&pod.metadata), patch));
                mine.push(pod.clone());
            }
        }
    }
    mine
}

fn restarts(pod: &Pod) -> i32 {
    pod.status
        .iter()
        .flat_map(|s| s.container_statuses.iter().flatten())
        .map(|c| c.restart_count)
        .max()
        .unwrap_or(0)
}

fn created(pod: &Pod) -> Timestamp {
    pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |t| t.0)
}

/// The order in which pods are given up: those that do least go first.
pub fn removal_order(pods: &mut [Arc<Pod>]) {
    let mut per_node: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter() {
        *per_node.entry(node_of(pod).unwrap_or_default().to_owned()).or_default() += 1;
    }
    let phase_rank = |pod: &Pod| match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let cost = |pod: &Pod| {
        annotation(&pod.metadata, "controller.kubernetes.io/pod-deletion-cost")
            .and_then(|v| v.parse::<i32>().ok())
            .unwrap_or(0)
    };
    pods.sort_by_key(|pod| {
        (
            (node_of(pod).is_some(), phase_rank(pod), ready(pod), cost(pod)),
            Reverse(per_node.get(node_of(pod).unwrap_or_default()).copied().unwrap_or(0)),
            Reverse(ready_since(pod)),
            Reverse(restarts(pod)),
            Reverse(created(pod)),
            Key::of(&pod.metadata),
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{at, pod};

    fn order(pods: Vec<Pod>) -> Vec<String> {
        let mut pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
        removal_order(&mut pods);
        pods.iter().map(|p| p.metadata.name.clone().unwrap()).collect()
    }

    #[test]
    fn unplaced_then_unready_then_cheap_then_crowded_go_first() {
        let pods = vec![
            pod("ns", "lone").on("n2").ready().make(),
            pod("ns", "crowd-1").on("n1").ready().make(),
            pod("ns", "crowd-2").on("n1").ready().make(),
            pod("ns", "cheap")
                .on("n3")
                .ready()
                .annotate("controller.kubernetes.io/pod-deletion-cost", "-5")
                .make(),
            pod("ns", "unready").on("n4").phase("Running").make(),
            pod("ns", "unplaced").make(),
        ];
        assert_eq!(order(pods), ["unplaced", "unready", "cheap", "crowd-1", "crowd-2", "lone"]);
    }

    #[test]
    fn the_pod_that_became_ready_last_goes_first() {
        let pods = vec![
            pod("ns", "old").on("n1").phase("Running").condition("Ready", "True", "", at(0)).make(),
            pod("ns", "new").on("n2").phase("Running").condition("Ready", "True", "", at(50)).make(),
        ];
        assert_eq!(order(pods), ["new", "old"]);
    }
}
