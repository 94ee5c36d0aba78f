//! The disks of an instance: which it writes to alone, and which keep it from moving.

use serde_json::Value;

use crate::instance::VirtualMachineInstance;
use crate::mirror::Mirror;
use crate::objects::Key;

fn disk<'a>(vmi: &'a VirtualMachineInstance, volume: &str) -> Option<&'a Value> {
    vmi.spec["domain"]["devices"]["disks"].as_array()?.iter().find(|d| d["name"] == volume)
}

/// The claim behind a volume.
pub fn claim(volume: &Value) -> Option<&str> {
    volume["persistentVolumeClaim"]["claimName"].as_str().or_else(|| volume["dataVolume"]["name"].as_str())
}

pub fn volumes(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &Value> {
    vmi.spec["volumes"].as_array().into_iter().flatten()
}

/// Claims that nobody else may write to while this guest runs.
pub fn exclusive(vmi: &VirtualMachineInstance) -> impl Iterator<Item = String> {
    let namespace = vmi.metadata.namespace.clone().unwrap_or_default();
    volumes(vmi).filter_map(move |volume| {
        let device = disk(vmi, volume["name"].as_str()?)?;
        let reads_only = device["cdrom"].is_object()
            || device["disk"]["readonly"] == true
            || device["lun"]["readonly"] == true
            || volume["persistentVolumeClaim"]["readOnly"] == true;
        if reads_only || device["shareable"] == true {
            return None;
        }
        Some(format!("{namespace}/{}", claim(volume)?))
    })
}

/// Written to the node's own storage, so a migration has to copy it.
fn local(volume: &Value) -> bool {
    ["containerDisk", "emptyDisk", "ephemeral", "hostDisk"].iter().any(|kind| volume[kind].is_object())
}

/// `BlockMigration` where disks have to be copied along, and why disks keep the instance from moving at all.
pub fn movable(vmi: &VirtualMachineInstance, mirror: &Mirror) -> (bool, Option<String>) {
    const RULE: &str =
        "live migration requires that all PVCs must be shared (using ReadWriteMany access mode)";
    let mut block = false;
    for volume in volumes(vmi) {
        let name = volume["name"].as_str().unwrap_or_default();
        if let Some(claim) = claim(volume) {
            match access_modes(vmi, mirror, name, claim) {
                None => {
                    let text =
                        format!("cannot migrate VMI: Unable to determine if PVC {claim} is shared, {RULE}");
                    return (true, Some(text));
                }
                Some(modes) if !modes.iter().any(|m| m == "ReadWriteMany") => {
                    return (true, Some(format!("cannot migrate VMI: PVC {claim} is not shared, {RULE}")));
                }
                Some(_) => {}
            }
        } else if volume["hostDisk"].is_object() && volume["hostDisk"]["shared"] != true {
            return (true, Some("cannot migrate VMI with non-shared HostDisk".to_owned()));
        } else if local(volume) && disk(vmi, name).is_some_and(|d| !d["cdrom"].is_object()) {
            block = true;
        }
    }
    (block, None)
}

/// What the control plane says in the volume's status, or else the claim itself.
fn access_modes(
    vmi: &VirtualMachineInstance,
    mirror: &Mirror,
    volume: &str,
    claim: &str,
) -> Option<Vec<String>> {
    let statuses = vmi.status["volumeStatus"].as_array().into_iter().flatten();
    let told = statuses
        .filter(|s| s["name"] == volume)
        .find_map(|s| s["persistentVolumeClaimInfo"]["accessModes"].as_array())
        .map(|modes| modes.iter().filter_map(|m| m.as_str().map(str::to_owned)).collect());
    told.or_else(|| {
        let key = Key::new(vmi.metadata.namespace.clone().unwrap_or_default(), claim);
        mirror.claims.get(&key)?.spec.as_ref()?.access_modes.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn instance(disks: &Value, volumes: &Value, status: Value) -> VirtualMachineInstance {
        VirtualMachineInstance {
            metadata: crate::build::meta("ns", "vm"),
            spec: json!({ "domain": { "devices": { "disks": disks } }, "volumes": volumes }),
            status,
        }
    }

    #[test]
    fn writable_unshared_claims_are_exclusive_and_others_are_not() {
        let vmi = instance(
            &json!([{ "name": "root", "disk": {} }, { "name": "iso", "cdrom": {} },
                   { "name": "both", "disk": {}, "shareable": true }, { "name": "image", "disk": {} }]),
            &json!([{ "name": "root", "dataVolume": { "name": "root-dv" } },
                   { "name": "iso", "persistentVolumeClaim": { "claimName": "iso" } },
                   { "name": "both", "persistentVolumeClaim": { "claimName": "both" } },
                   { "name": "image", "containerDisk": { "image": "x" } }]),
            json!({}),
        );
        assert_eq!(exclusive(&vmi).collect::<Vec<_>>(), ["ns/root-dv"]);
    }

    #[test]
    fn a_claim_for_one_node_or_an_unknown_one_keeps_the_machine_from_moving() {
        let mirror = Mirror::default();
        let volumes = json!([{ "name": "root", "persistentVolumeClaim": { "claimName": "data" } }]);
        let status = |mode: &str| json!({ "volumeStatus": [{ "name": "root", "persistentVolumeClaimInfo": { "accessModes": [mode] } }] });
        let disks = json!([{ "name": "root", "disk": {} }]);
        let rwo = instance(&disks, &volumes, status("ReadWriteOnce"));
        assert_eq!(
            movable(&rwo, &mirror).1.unwrap(),
            "cannot migrate VMI: PVC data is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"
        );
        let rwx = instance(&disks, &volumes, status("ReadWriteMany"));
        assert_eq!(movable(&rwx, &mirror), (false, None));
        let unknown = instance(&disks, &volumes, json!({}));
        assert!(movable(&unknown, &mirror).1.unwrap().contains("Unable to determine"));
    }

    #[test]
    fn local_disks_are_copied_along() {
        let vmi = instance(
            &json!([{ "name": "image", "disk": {} }]),
            &json!([{ "name": "image", "containerDisk": { "image": "x" } }]),
            json!({}),
        );
        assert_eq!(movable(&vmi, &Mirror::default()), (true, None));
    }
}
