//! Volumes, claims, classes and what CSI drivers publish.

use evac_apimachinery::quantity::Quantity;
use evac_apimachinery::validation;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::meta;
use super::meta::seconds;
use super::pod::{validate_label_selector, validate_node_selector, validate_quantity_value};
use super::quantities;
use super::read::{as_map, is_set, list, list_at, obj, obj_mut, semantic_eq, set_default, text, text_at};
use super::strategy::{Generation, Strategy};
use crate::status::FieldError;

type Errors = Vec<FieldError>;

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// Fields of a volume's spec that are not where the data is.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

pub(super) const PERSISTENT_VOLUME: Strategy = Strategy {
    default: |object| {
        set_default(obj_mut(object, "status"), "phase", "Pending");
        let spec = obj_mut(object, "spec");
        set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
        set_default(spec, "volumeMode", "Filesystem");
        if let Some(path) = spec.get_mut("hostPath").and_then(Value::as_object_mut) {
            path.entry("type").or_insert_with(|| json!(""));
        }
    },
    prepare_create: |object, now: Timestamp| {
        as_map(object)
            .insert("status".into(), json!({"phase": "Pending", "lastPhaseTransitionTime": seconds(now)}));
    },
    prepare_update: |old, new, part, now| {
        let (before, after) = (text_at(old, "/status/phase"), text_at(new, "/status/phase"));
        if part == super::Part::Status && before != after {
            obj_mut(new, "status").insert("lastPhaseTransitionTime".into(), json!(seconds(now)));
        }
    },
    validate: volume,
    validate_update: |old, new, _, errors| {
        volume(new, errors);
        let sources = |object: &Value| {
            let mut spec = object.get("spec").cloned().unwrap_or_default();
            as_map(&mut spec).retain(|key, _| !NOT_SOURCES.contains(&key.as_str()));
            spec
        };
        if !semantic_eq(Some(&sources(old)), Some(&sources(new))) {
            errors.push(FieldError::forbidden(
                "spec.persistentvolumesource",
                "spec.persistentvolumesource is immutable after creation",
            ));
        }
        meta::immutable(old, new, "/spec/volumeMode", "volumeMode", errors);
    },
    ..Strategy::STATUS
};

fn volume(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    access_modes(spec, "", errors);
    match obj(spec, "capacity") {
        Some(capacity) if !capacity.is_empty() => {
            if !capacity.contains_key("storage") || capacity.len() > 1 {
                errors.push(FieldError::not_supported(
                    "spec.capacity",
                    Value::Object(capacity.clone()),
                    &["storage"],
                ));
            }
            for (name, amount) in capacity {
                validate_quantity_value(name, amount, &format!("spec.capacity[{name}]"), errors);
            }
        }
        _ => {
            errors.push(FieldError::required("spec.capacity", ""));
            errors.push(FieldError::not_supported("spec.capacity", Value::Null, &["storage"]));
        }
    }
    one_of(spec, "persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"], errors);
    if let Some(required) = spec.pointer("/nodeAffinity/required").filter(|r| r.is_object()) {
        validate_node_selector(required, "spec.nodeAffinity.required", errors);
    }
    let sources: Vec<&String> = spec
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| !NOT_SOURCES.contains(&key.as_str()) && value.is_object())
        .map(|(key, _)| key)
        .collect();
    for extra in sources.iter().skip(1) {
        errors
            .push(FieldError::forbidden(format!("spec.{extra}"), "may not specify more than 1 volume type"));
    }
    if sources.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    if is_set(spec, "local") && spec.pointer("/nodeAffinity/required").is_none() {
        errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
    }
    class_name(spec, errors);
    one_of(spec, "volumeMode", &["Block", "Filesystem"], errors);
}

fn one_of(spec: &Value, field: &str, valid: &[&str], errors: &mut Errors) {
    let value = text(spec, field);
    if !value.is_empty() && !valid.contains(&value) {
        errors.push(FieldError::not_supported(format!("spec.{field}"), value, valid));
    }
}

fn class_name(spec: &Value, errors: &mut Errors) {
    let name = text(spec, "storageClassName");
    if !name.is_empty() {
        for complaint in validation::dns1123_subdomain(name) {
            errors.push(FieldError::invalid("spec.storageClassName", name, complaint));
        }
    }
}

fn access_modes(spec: &Value, missing: &str, errors: &mut Errors) {
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required("spec.accessModes", missing));
    }
    for mode in modes.iter().filter_map(Value::as_str).filter(|m| !MODES.contains(m)) {
        errors.push(FieldError::not_supported("spec.accessModes", mode, &MODES));
    }
    let exclusive = modes.iter().any(|m| m == "ReadWriteOncePod");
    if exclusive && modes.len() > 1 {
        errors.push(FieldError::forbidden(
            "spec.accessModes",
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
}

pub(super) const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy {
    default: |object| {
        set_default(obj_mut(object, "status"), "phase", "Pending");
        set_default(obj_mut(object, "spec"), "volumeMode", "Filesystem");
    },
    prepare_create: |object, _| {
        as_map(object).insert("status".into(), json!({"phase": "Pending"}));
    },
    validate: claim,
    validate_update: |old, new, _, errors| claim_update(old, new, errors),
    ..Strategy::STATUS
};

const STORAGE_REQUEST: &str = "spec.resources[storage]";

fn claim(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    access_modes(spec, "at least 1 access mode is required", errors);
    validate_label_selector(spec.get("selector"), "spec.selector", errors);
    match spec.pointer("/resources/requests/storage") {
        None => errors.push(FieldError::required(STORAGE_REQUEST, "")),
        Some(amount) => match quantities::read(amount) {
            Ok(size) if size <= Quantity::ZERO => {
                errors.push(FieldError::invalid(
                    STORAGE_REQUEST,
                    size.to_string(),
                    "must be greater than zero",
                ));
            }
            _ => validate_quantity_value("storage", amount, STORAGE_REQUEST, errors),
        },
    }
    class_name(spec, errors);
    one_of(spec, "volumeMode", &["Block", "Filesystem"], errors);
}

fn claim_update(old: &Value, new: &Value, errors: &mut Errors) {
    claim(new, errors);
    let bound = text_at(new, "/status/phase") == "Bound";
    let (mut before, mut now) =
        (old.get("spec").cloned().unwrap_or_default(), new.get("spec").cloned().unwrap_or_default());
    for field in ["volumeName", "storageClassName"] {
        if !is_set(&before, field) || (field == "volumeName" && text(&before, field).is_empty()) {
            as_map(&mut before).remove(field);
            as_map(&mut now).remove(field);
        }
    }
    if bound {
        for spec in [&mut before, &mut now] {
            as_map(spec).remove("volumeAttributesClassName");
            if let Some(requests) = spec.pointer_mut("/resources/requests").and_then(Value::as_object_mut) {
                requests.remove("storage");
            }
        }
    }
    if !semantic_eq(Some(&before), Some(&now)) {
        errors.push(FieldError::forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
             bound claims",
        ));
    }
    let size = |object: &Value, pointer: &str| {
        object.pointer(pointer).and_then(|v| quantities::read(v).ok()).unwrap_or(Quantity::ZERO)
    };
    let wanted = size(new, "/spec/resources/requests/storage");
    if wanted < size(old, "/spec/resources/requests/storage")
        && wanted <= size(old, "/status/capacity/storage")
    {
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
}

pub(super) const STORAGE_CLASS: Strategy = Strategy {
    default: |object| {
        set_default(as_map(object), "reclaimPolicy", "Delete");
        set_default(as_map(object), "volumeBindingMode", "Immediate");
    },
    validate: |object, errors| {
        for (field, valid) in [
            ("reclaimPolicy", ["Delete", "Retain"]),
            ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
        ] {
            let value = text(object, field);
            if !value.is_empty() && !valid.contains(&value) {
                errors.push(FieldError::not_supported(field, value, &valid));
            }
        }
        let provisioner = text(object, "provisioner");
        if provisioner.is_empty() {
            errors.push(FieldError::required("provisioner", ""));
        } else {
            for complaint in validation::qualified_name(&provisioner.to_lowercase()) {
                errors.push(FieldError::invalid("provisioner", provisioner, complaint));
            }
        }
    },
    validate_update: |old, new, _, errors| {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if !semantic_eq(old.get(field), new.get(field)) {
                errors.push(FieldError::invalid(field, Value::Null, "field is immutable"));
            }
        }
    },
    ..Strategy::PLAIN
};

pub(super) const VOLUME_ATTACHMENT: Strategy = Strategy {
    prepare_create: |object, _| {
        as_map(object).insert("status".into(), json!({"attached": false}));
    },
    validate: |object, errors| {
        let none = Value::Null;
        let spec = object.get("spec").unwrap_or(&none);
        let source = spec.get("source").unwrap_or(&none);
        match (is_set(source, "persistentVolumeName"), is_set(source, "inlineVolumeSpec")) {
            (false, false) => errors.push(FieldError::required(
                "spec.source",
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            )),
            (true, true) => errors.push(FieldError::forbidden(
                "spec.source",
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            )),
            _ => {}
        }
        let node = text(spec, "nodeName");
        for complaint in validation::dns1123_subdomain(node) {
            errors.push(FieldError::invalid("spec.nodeName", node, complaint));
        }
        if text(spec, "attacher").is_empty() {
            errors.push(FieldError::required("spec.attacher", ""));
        }
    },
    validate_update: |old, new, _, errors| {
        if !semantic_eq(old.get("spec"), new.get("spec")) {
            errors.push(FieldError::invalid(
                "spec",
                new.get("spec").cloned().unwrap_or_default(),
                meta::IMMUTABLE,
            ));
        }
    },
    status_keeps_metadata: true,
    unconditional_update: false,
    ..Strategy::STATUS
};

pub(super) const CSI_NODE: Strategy = Strategy {
    validate: csi_node,
    validate_update: |_, new, _, errors| csi_node(new, errors),
    unconditional_update: false,
    has_status: true,
    status_keeps_metadata: true,
    ..Strategy::PLAIN
};

fn csi_node(object: &Value, errors: &mut Errors) {
    let mut seen = std::collections::BTreeSet::new();
    for (i, driver) in list_at(object, "/spec/drivers").iter().enumerate() {
        let path = format!("spec.drivers[{i}]");
        for field in ["name", "nodeID"] {
            if text(driver, field).is_empty() {
                errors.push(FieldError::required(format!("{path}.{field}"), ""));
            }
        }
        if !seen.insert(text(driver, "name")) {
            errors.push(FieldError::duplicate(format!("{path}.name"), text(driver, "name")));
        }
    }
}

pub(super) const CSI_DRIVER: Strategy = Strategy {
    default: |object| {
        let spec = obj_mut(object, "spec");
        set_default(spec, "attachRequired", true);
        for field in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
            "preventPodSchedulingIfMissing",
        ] {
            set_default(spec, field, false);
        }
        set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
        }
    },
    generation: Generation::None,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(super) const CSI_STORAGE_CAPACITY: Strategy = Strategy {
    validate: |object, errors| {
        let name = text(object, "storageClassName");
        for complaint in validation::dns1123_subdomain(name) {
            errors.push(FieldError::invalid("storageClassName", name, complaint));
        }
        validate_label_selector(object.get("nodeTopology"), "nodeTopology", errors);
    },
    validate_update: |old, new, _, errors| {
        meta::immutable(old, new, "/nodeTopology", "nodeTopology", errors);
        meta::immutable(old, new, "/storageClassName", "storageClassName", errors);
    },
    unconditional_update: false,
    ..Strategy::PLAIN
};
