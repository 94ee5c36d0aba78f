//! Volumes for claims: each claim of a storage class gets a volume of its own, at once, or with
//! `WaitForFirstConsumer` as soon as a pod wants it. Attaching and detaching are not simulated.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimStatus, PersistentVolumeSpec, PersistentVolumeStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::actor::{Out, View};
use crate::effects::{Deletion, Write};
use crate::kinds::Kind;
use crate::mirror::Mirror;
use crate::objects::{Key, annotation, deleting, finished, name, uid};

const PROTECTION: &str = "kubernetes.io/pvc-protection";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

pub fn sync(view: View<'_>, key: &Key, out: &mut Out) {
    let Some(claim) = view.mirror.claims.get(key) else {
        release(view, key, out);
        return;
    };
    let used = users(view.mirror, key).any(|p| !finished(p));
    if deleting(&claim.metadata) {
        let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
        if !used && finalizers.iter().any(|f| f == PROTECTION) {
            let rest: Vec<_> = finalizers.into_iter().filter(|f| f != PROTECTION).collect();
            let patch = json!({ "metadata": { "uid": claim.metadata.uid, "finalizers": rest } });
            out.write(Write::merge(Kind::PersistentVolumeClaim, key.clone(), patch));
        }
        return;
    }
    if phase(claim) == "Bound" {
        return;
    }
    let spec = claim.spec.clone().unwrap_or_default();
    let Some(volume_name) = spec.volume_name else {
        let Some((class, waits)) = class_of(view.mirror, claim) else { return };
        if !waits || used {
            make_volume(view, claim, key, &class, out);
        }
        return;
    };
    let Some(volume) = view.mirror.volumes.named(&volume_name) else { return };
    bind(claim, key, volume, out);
}

/// A volume for the claim, and its name in the claim.
fn make_volume(view: View<'_>, claim: &PersistentVolumeClaim, key: &Key, class: &str, out: &mut Out) {
    let volume = provision(claim, key, class);
    let volume_name = name(&volume.metadata).to_owned();
    if view.mirror.volumes.named(&volume_name).is_none() {
        out.write(Write::create(Kind::PersistentVolume, Key::cluster(volume_name.clone()), &volume));
    }
    let patch = json!({ "metadata": { "uid": claim.metadata.uid, "annotations": {
        "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
    } }, "spec": { "volumeName": volume_name } });
    out.write(Write::merge(Kind::PersistentVolumeClaim, key.clone(), patch));
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

fn users<'a>(
    mirror: &'a Mirror,
    key: &'a Key,
) -> impl Iterator<Item = &'a std::sync::Arc<k8s_openapi::api::core::v1::Pod>> {
    mirror.pods.in_namespace(&key.namespace).filter(move |p| {
        p.spec
            .iter()
            .flat_map(|s| s.volumes.iter().flatten())
            .any(|v| v.persistent_volume_claim.as_ref().is_some_and(|c| c.claim_name == key.name))
    })
}

/// The class and whether it waits for a pod. A claim that names no class takes the default one.
fn class_of(mirror: &Mirror, claim: &PersistentVolumeClaim) -> Option<(String, bool)> {
    let named = claim.spec.as_ref().and_then(|s| s.storage_class_name.clone());
    let class = match named.as_deref() {
        Some("") => return None,
        Some(class) => mirror.storage_classes.named(class)?,
        None => mirror
            .storage_classes
            .values()
            .find(|c| annotation(&c.metadata, DEFAULT_CLASS) == Some("true"))?,
    };
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    Some((name(&class.metadata).to_owned(), waits))
}

fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        name: claim.metadata.name.clone(),
        namespace: claim.metadata.namespace.clone(),
        uid: claim.metadata.uid.clone(),
        ..Default::default()
    }
}

fn provision(claim: &PersistentVolumeClaim, key: &Key, class: &str) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let volume_name = format!("pvc-{}", uid(&claim.metadata));
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume_name.clone()),
            annotations: Some(BTreeMap::from([(
                "pv.kubernetes.io/provisioned-by".to_owned(),
                "csi.evac.dev".to_owned(),
            )])),
            ..Default::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|r| r.requests),
            claim_ref: Some(reference(claim)),
            csi: Some(CSIPersistentVolumeSource {
                driver: "csi.evac.dev".to_owned(),
                volume_handle: format!("{}/{}", key.namespace, key.name),
                ..Default::default()
            }),
            persistent_volume_reclaim_policy: Some("Delete".to_owned()),
            storage_class_name: Some(class.to_owned()),
            volume_mode: spec.volume_mode,
            ..Default::default()
        }),
        status: None,
    }
}

fn bind(claim: &PersistentVolumeClaim, key: &Key, volume: &PersistentVolume, out: &mut Out) {
    let volume_key = Key::of(&volume.metadata);
    let volume_phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    if volume.spec.as_ref().is_none_or(|s| s.claim_ref.is_none()) {
        let patch = json!({ "spec": { "claimRef": reference(claim) } });
        out.write(Write::merge(Kind::PersistentVolume, volume_key.clone(), patch));
    }
    if volume_phase != Some("Bound") {
        let status = PersistentVolumeStatus { phase: Some("Bound".to_owned()), ..Default::default() };
        out.write(Write::patch_status(Kind::PersistentVolume, volume_key, json!({ "status": status })));
    }
    let spec = volume.spec.clone().unwrap_or_default();
    let status = PersistentVolumeClaimStatus {
        phase: Some("Bound".to_owned()),
        access_modes: spec.access_modes,
        capacity: spec.capacity,
        ..Default::default()
    };
    let patch = json!({ "metadata": { "uid": claim.metadata.uid }, "status": status });
    out.write(Write::patch_status(Kind::PersistentVolumeClaim, key.clone(), patch));
}

/// The claim is gone: a volume made for it goes too, if its policy says so.
fn release(view: View<'_>, key: &Key, out: &mut Out) {
    for volume in view.mirror.volumes.values() {
        let Some(spec) = &volume.spec else { continue };
        let ours = spec.claim_ref.as_ref().is_some_and(|c| {
            c.namespace.as_deref() == Some(&key.namespace) && c.name.as_deref() == Some(&key.name)
        });
        if !ours || deleting(&volume.metadata) {
            continue;
        }
        let volume_key = Key::of(&volume.metadata);
        if spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete") {
            let deletion = Deletion { uid: volume.metadata.uid.clone(), ..Deletion::default() };
            out.write(Write::delete(Kind::PersistentVolume, volume_key.clone(), deletion));
            let finalizers = json!({ "metadata": { "finalizers": null } });
            if volume.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty()) {
                out.write(Write::merge(Kind::PersistentVolume, volume_key, finalizers).optional());
            }
        } else if volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound") {
            let patch = json!({ "status": { "phase": "Released" } });
            out.write(Write::patch_status(Kind::PersistentVolume, volume_key, patch));
        }
    }
}
