//! Pods that nobody else will ever remove: their node is gone, was never found, or is out of service.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::taints::OUT_OF_SERVICE;
use crate::actor::{Ask, Out, Reply, View};
use crate::effects::{Deletion, Write};
use crate::kinds::Kind;
use crate::objects::{Key, deleting, finished, later, node_of, node_ready, time};
use crate::scheduler::fit::taints;

const PERIOD_SECONDS: i64 = 20;
const QUARANTINE_SECONDS: i64 = 40;
/// Finished pods beyond this number are deleted, the oldest first.
const FINISHED_LIMIT: usize = 12_500;

#[derive(Debug, Default)]
pub struct PodGc {
    /// Nodes that pods name and that do not exist, since when.
    missing: BTreeMap<String, Timestamp>,
    next: Option<Timestamp>,
}

impl PodGc {
    pub fn sync(&mut self, view: View<'_>, out: &mut Out) {
        // The answers to our own questions bring us back before the period is over.
        let again = self.next.filter(|at| *at > view.now).unwrap_or_else(|| later(view.now, PERIOD_SECONDS));
        self.next = Some(again);
        out.again_at(again);
        self.orphans(view, out);
        if !out.asks.is_empty() {
            return;
        }
        for pod in view.mirror.pods.values() {
            if deleting(&pod.metadata) && (node_of(pod).is_none() || out_of_service(view, pod)) {
                remove(pod, None, out);
            }
        }
        let mut finished_pods: Vec<_> =
            view.mirror.pods.values().filter(|p| finished(p) && !deleting(&p.metadata)).collect();
        if finished_pods.len() > FINISHED_LIMIT {
            finished_pods.sort_by_key(|p| (p.metadata.creation_timestamp.clone(), Key::of(&p.metadata)));
            for pod in finished_pods.iter().take(finished_pods.len() - FINISHED_LIMIT) {
                remove(pod, None, out);
            }
        }
    }

    fn orphans(&mut self, view: View<'_>, out: &mut Out) {
        let absent: Vec<String> =
            view.mirror.nodes_with_pods().filter(|n| view.mirror.nodes.named(n).is_none()).cloned().collect();
        self.missing.retain(|node, _| absent.contains(node));
        for node in absent {
            let since = *self.missing.entry(node.clone()).or_insert(view.now);
            if view.now < later(since, QUARANTINE_SECONDS) {
                continue;
            }
            let ask = Ask::Object {
                api_version: "v1".into(),
                kind: "Node".into(),
                key: Key::cluster(node.clone()),
            };
            match view.answers.get(&ask) {
                None => out.ask(ask),
                Some(Reply::NotFound) => {
                    let mark = json!({
                        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                        "message": "PodGC: node no longer exists", "lastTransitionTime": time(view.now),
                    });
                    for pod in view.mirror.pods_on(&node) {
                        remove(pod, Some(mark.clone()), out);
                    }
                }
                // It exists after all, or nobody knows.
                Some(_) => {}
            }
        }
    }
}

fn out_of_service(view: View<'_>, pod: &Pod) -> bool {
    let Some(node) = node_of(pod).and_then(|n| view.mirror.nodes.named(n)) else { return false };
    !node_ready(node) && taints(node).iter().any(|t| t.key == OUT_OF_SERVICE)
}

/// Says that the pod has failed, then removes it at once.
fn remove(pod: &Pod, mark: Option<Value>, out: &mut Out) {
    let key = Key::of(&pod.metadata);
    if !finished(pod) {
        let mut status = json!({ "phase": "Failed" });
        if let Some(mark) = mark {
            status["conditions"] = json!([mark]);
        }
        let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
        // One pod that cannot be written must not keep the others.
        out.write(Write::patch_status(Kind::Pod, key.clone(), patch).optional());
    }
    let deletion = Deletion { uid: pod.metadata.uid.clone(), grace_seconds: Some(0), ..Deletion::default() };
    out.write(Write::delete(Kind::Pod, key, deletion).optional());
}
