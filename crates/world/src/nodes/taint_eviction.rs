//! Pods leave a node with a NoExecute taint that they do not tolerate, or tolerate only for a time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use serde_json::json;

use crate::actor::{Out, View};
use crate::effects::{Deletion, Write};
use crate::events::{Notice, event};
use crate::kinds::Kind;
use crate::objects::{Key, deleting, finished, later, node_of, time};
use crate::scheduler::fit::{taints, tolerates, tolerations};

const COMPONENT: &str = "taint-eviction-controller";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// Something is not tolerated.
    No,
    Seconds(i64),
    Forever,
}

/// How long a pod with these tolerations may stay under these taints: the shortest of those that are used.
pub fn stay(taints: &[&Taint], tolerations: &[Toleration]) -> Stay {
    let mut used: Vec<&Toleration> = Vec::new();
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|t| tolerates(t, taint)) else { return Stay::No };
        used.push(toleration);
    }
    shortest(&used)
}

pub fn shortest(used: &[&Toleration]) -> Stay {
    if used.is_empty() {
        return Stay::Seconds(0);
    }
    match used.iter().filter_map(|t| t.toleration_seconds).min() {
        None => Stay::Forever,
        Some(seconds) => Stay::Seconds(seconds.max(0)),
    }
}

#[derive(Debug, Default)]
pub struct TaintEviction {
    /// Pods that will be deleted, and when. A longer toleration set later does not move the time.
    due: BTreeMap<Key, Timestamp>,
}

impl TaintEviction {
    pub fn forget(&mut self, key: &Key) {
        self.due.remove(key);
    }

    pub fn sync(&mut self, view: View<'_>, key: &Key, out: &mut Out) {
        let Some(pod) = view.mirror.pods.get(key).filter(|p| !deleting(&p.metadata) && !finished(p)) else {
            self.due.remove(key);
            return;
        };
        let node = node_of(pod).and_then(|n| view.mirror.nodes.named(n));
        let evicting: Vec<&Taint> =
            node.iter().flat_map(|n| taints(n)).filter(|t| t.effect == "NoExecute").collect();
        let at = if evicting.is_empty() {
            None
        } else {
            match stay(&evicting, tolerations(pod)) {
                Stay::No => Some(view.now),
                Stay::Forever => None,
                Stay::Seconds(seconds) => {
                    Some(self.due.get(key).copied().unwrap_or_else(|| later(view.now, seconds)))
                }
            }
        };
        let Some(at) = at else {
            if self.due.remove(key).is_some() {
                let text = format!("Cancelling deletion of Pod {key}");
                let about = &pod.metadata;
                out.write(event(
                    Kind::Pod,
                    about,
                    Notice::normal(COMPONENT, "TaintManagerEviction", &text),
                    view.now,
                ));
            }
            return;
        };
        self.due.insert(key.clone(), at);
        if at > view.now {
            out.again_at(at);
            return;
        }
        let text = format!("Marking for deletion Pod {key}");
        out.write(event(
            Kind::Pod,
            &pod.metadata,
            Notice::normal(COMPONENT, "TaintManagerEviction", &text),
            view.now,
        ));
        let patch = json!({
            "metadata": { "uid": pod.metadata.uid },
            "status": { "conditions": [{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": time(view.now),
            }]},
        });
        out.write(Write::patch_status(Kind::Pod, key.clone(), patch));
        let deletion = Deletion { uid: pod.metadata.uid.clone(), ..Deletion::default() };
        out.write(Write::delete(Kind::Pod, key.clone(), deletion));
    }
}
