//! A pod marked as a target of disruption that is not deleted after all loses the mark.

use serde_json::json;

use crate::actor::{Out, View};
use crate::effects::Write;
use crate::kinds::Kind;
use crate::objects::{Key, deleting, finished, later, pod_condition, time};

const STALE_SECONDS: i64 = 120;

pub fn sync(view: View<'_>, key: &Key, out: &mut Out) {
    let Some(pod) = view.mirror.pods.get(key) else { return };
    let Some(mark) = pod_condition(pod, "DisruptionTarget") else { return };
    let by_kubelet = mark.reason.as_deref() == Some("TerminationByKubelet");
    if mark.status != "True" || by_kubelet || deleting(&pod.metadata) || finished(pod) {
        return;
    }
    let since = mark.last_transition_time.as_ref().map_or(view.now, |t| t.0);
    let stale = later(since, STALE_SECONDS);
    if view.now < stale {
        out.again_at(stale);
        return;
    }
    let patch = json!({
        "metadata": { "uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version },
        "status": { "conditions": [{
            "type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
            "lastTransitionTime": time(view.now),
        }]},
    });
    out.write(Write::patch_status(Kind::Pod, key.clone(), patch));
}
