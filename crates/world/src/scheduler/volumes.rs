//! What a pod's claims say about where it may run.

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};

use super::fit::{Refusal, node_selector_holds};
use crate::mirror::Mirror;
use crate::objects::{Key, deleting, name};

/// The claims a pod mounts, by name; those of ephemeral volumes are named after pod and volume.
pub fn claim_names(pod: &Pod) -> Vec<String> {
    pod.spec
        .iter()
        .flat_map(|s| s.volumes.iter().flatten())
        .filter_map(|v| match (&v.persistent_volume_claim, &v.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{}-{}", name(&pod.metadata), v.name)),
            (None, None) => None,
        })
        .collect()
}

fn bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound")
}

/// Something about the claims that no node can mend.
pub fn problem(mirror: &Mirror, pod: &Pod) -> Option<String> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    for claim_name in claim_names(pod) {
        let Some(claim) = mirror.claims.get(&Key::new(namespace.clone(), claim_name.clone())) else {
            return Some(format!("persistentvolumeclaim \"{claim_name}\" not found"));
        };
        if deleting(&claim.metadata) {
            return Some(format!("persistentvolumeclaim \"{claim_name}\" is being deleted"));
        }
        if !bound(claim) {
            return Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
    }
    None
}

/// A bound volume that cannot be reached from the node.
pub fn refusal(mirror: &Mirror, pod: &Pod, node: &Node) -> Option<Refusal> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    for claim_name in claim_names(pod) {
        let claim = mirror.claims.get(&Key::new(namespace.clone(), claim_name))?;
        let volume =
            claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).and_then(|v| mirror.volumes.named(v));
        let required =
            volume.and_then(|v| v.spec.as_ref()?.node_affinity.as_ref()).and_then(|a| a.required.as_ref());
        if required.is_some_and(|r| !node_selector_holds(r, node)) {
            return Some(Refusal::fixed("node(s) didn't match PersistentVolume's node affinity"));
        }
    }
    None
}
