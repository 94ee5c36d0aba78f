//! Checks on the volumes of a pod.

use std::collections::BTreeSet;

use evac_apimachinery::quantity::Quantity;
use evac_apimachinery::validation;
use serde_json::Value;

use super::containers::Volumes;
use crate::kinds::quantities;
use crate::kinds::read::{int, is_set, list, text};
use crate::status::FieldError;

type Errors = Vec<FieldError>;

/// The kinds of volume, in the order in which a second one is complained about.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Checks all volumes and gives those that are well formed.
pub(super) fn all<'a>(volumes: &'a [Value], pod_name: &str, path: &str, errors: &mut Errors) -> Volumes<'a> {
    let mut good = Volumes::new();
    let created: BTreeSet<String> = volumes
        .iter()
        .filter(|v| !pod_name.is_empty() && is_set(v, "ephemeral"))
        .map(|v| format!("{pod_name}-{}", text(v, "name")))
        .collect();
    for (i, volume) in volumes.iter().enumerate() {
        let at = format!("{path}[{i}]");
        let before = errors.len();
        source(volume, &at, errors);
        let name = text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        } else {
            for complaint in validation::dns1123_label(name) {
                errors.push(FieldError::invalid(format!("{at}.name"), name, complaint));
            }
        }
        if good.contains_key(name) {
            errors.push(FieldError::duplicate(format!("{at}.name"), name));
        }
        if errors.len() == before {
            good.insert(name, volume);
        }
        let claim = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str);
        if let Some(claim) = claim.filter(|c| created.contains(*c)) {
            errors.push(FieldError::invalid(
                format!("{at}.persistentVolumeClaim.claimName"),
                claim,
                "must not reference a PVC that gets created for an ephemeral volume",
            ));
        }
    }
    good
}

fn source(volume: &Value, path: &str, errors: &mut Errors) {
    let mut given = 0;
    for name in SOURCES {
        let Some(source) = volume.get(name).filter(|s| s.is_object()) else { continue };
        let at = format!("{path}.{name}");
        given += 1;
        if given > 1 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 volume type"));
            continue;
        }
        match name {
            "emptyDir" => {
                let limit = source.get("sizeLimit").and_then(|l| quantities::read(l).ok());
                if limit.is_some_and(Quantity::is_negative) {
                    errors.push(FieldError::forbidden(
                        format!("{at}.sizeLimit"),
                        "SizeLimit field must be a valid resource quantity",
                    ));
                }
            }
            "hostPath" => host_path(source, &at, errors),
            "secret" => files(source, "secretName", &at, errors),
            "configMap" => files(source, "name", &at, errors),
            "persistentVolumeClaim" => required(source, &["claimName"], &at, errors),
            "nfs" => required(source, &["server", "path"], &at, errors),
            "csi" => required(source, &["driver"], &at, errors),
            "ephemeral" if !is_set(source, "volumeClaimTemplate") => {
                errors.push(FieldError::required(format!("{at}.volumeClaimTemplate"), ""));
            }
            "image" => required(source, &["reference"], &at, errors),
            "projected" | "downwardAPI" => mode(source, "defaultMode", &at, errors),
            _ => {}
        }
    }
    if given == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

fn required(source: &Value, fields: &[&str], path: &str, errors: &mut Errors) {
    for field in fields {
        if text(source, field).is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    }
}

fn mode(source: &Value, field: &str, path: &str, errors: &mut Errors) {
    if let Some(mode) = int(source, field)
        && !(0..=0o777).contains(&mode)
    {
        errors.push(FieldError::invalid(format!("{path}.{field}"), mode, MODE));
    }
}

fn files(source: &Value, name: &str, path: &str, errors: &mut Errors) {
    required(source, &[name], path, errors);
    mode(source, "defaultMode", path, errors);
    for (i, item) in list(source, "items").iter().enumerate() {
        let at = format!("{path}.items[{i}]");
        required(item, &["key", "path"], &at, errors);
        mode(item, "mode", &at, errors);
    }
}

/// What may be expected at the path; empty means anything.
const TYPES: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

fn host_path(source: &Value, path: &str, errors: &mut Errors) {
    let target = text(source, "path");
    if target.is_empty() {
        errors.push(FieldError::required(format!("{path}.path"), ""));
        return;
    }
    if target.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(format!("{path}.path"), target, "must not contain '..'"));
    }
    let kind = text(source, "type");
    if !TYPES.contains(&kind) {
        let mut sorted = TYPES;
        sorted.sort_unstable();
        errors.push(FieldError::not_supported(format!("{path}.type"), kind, &sorted));
    }
}
