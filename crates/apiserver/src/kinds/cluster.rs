//! Namespaces, nodes, configuration and quotas.

use std::collections::BTreeSet;

use base64::Engine as _;
use evac_apimachinery::validation::{self, NameRule};
use serde_json::{Map, Value, json};

use super::fields::{self, Unsupported};
use super::meta;
use super::pod::{validate_quantity_value, validate_taints};
use super::read::{as_map, each, list_at, obj, obj_mut, semantic_eq, set_default, text, text_at, truth};
use super::strategy::{Part, Strategy};
use crate::status::FieldError;

type Errors = Vec<FieldError>;

pub(super) const NAMESPACE: Strategy = Strategy {
    default: |object| {
        let name = meta::name_of(object).to_owned();
        if !name.is_empty() {
            let metadata = obj_mut(object, "metadata");
            let labels = as_map(metadata.entry("labels").or_insert_with(|| json!({})));
            labels.insert("kubernetes.io/metadata.name".into(), json!(name));
        }
        set_default(obj_mut(object, "status"), "phase", "Active");
    },
    prepare_create: |object, _| {
        as_map(object).insert("status".into(), json!({"phase": "Active"}));
        let spec = obj_mut(object, "spec");
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.contains(&json!("kubernetes"))
        {
            list.push(json!("kubernetes"));
        }
    },
    prepare_update: |old, new, part, _| {
        // What holds a namespace back is changed through `finalize` only.
        if part != Part::Finalize {
            match old.get("spec") {
                Some(spec) => as_map(new).insert("spec".into(), spec.clone()),
                None => as_map(new).remove("spec"),
            };
        } else if let Some(status) = old.get("status") {
            as_map(new).insert("status".into(), status.clone());
        }
    },
    validate_update: |_, new, part, errors| {
        if part == Part::Finalize {
            for (i, name) in list_at(new, "/spec/finalizers").iter().filter_map(Value::as_str).enumerate() {
                for complaint in validation::qualified_name(name) {
                    errors.push(FieldError::invalid(format!("spec.finalizers[{i}]"), name, complaint));
                }
                if !name.contains('/') && name != "kubernetes" {
                    errors.push(FieldError::invalid(
                        format!("spec.finalizers[{i}]"),
                        name,
                        "name is neither a standard finalizer name nor is it fully qualified",
                    ));
                }
            }
        }
    },
    validate_status: |_, new, errors| {
        let phase = text_at(new, "/status/phase");
        let deleting = new.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null());
        if !deleting && phase != "Active" {
            errors.push(FieldError::invalid(
                "status.Phase",
                phase,
                "may only be 'Active' if `deletionTimestamp` is empty",
            ));
        }
        if deleting && phase != "Terminating" {
            errors.push(FieldError::invalid(
                "status.Phase",
                phase,
                "may only be 'Terminating' if `deletionTimestamp` is not empty",
            ));
        }
    },
    name: NameRule::Label,
    fields: fields::NAMESPACE,
    unsupported: Unsupported::Label,
    ..Strategy::STATUS
};

pub(super) const NODE: Strategy = Strategy {
    default: |object| {
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
            && !status.contains_key("allocatable")
            && let Some(capacity) = status.get("capacity").cloned()
        {
            status.insert("allocatable".into(), capacity);
        }
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            keep_pod_networks_in_step(spec);
        }
    },
    validate: |object, errors| {
        // The server complains about taints of a new node under `metadata`; clients know it that way.
        validate_taints(list_at(object, "/spec/taints"), "metadata.taints", errors);
        node_resources(object, errors);
    },
    validate_update: |old, new, _, errors| node_update(old, new, errors),
    validate_status: node_update,
    status_on_create: true,
    fields: fields::NODE,
    unsupported: Unsupported::Label,
    ..Strategy::STATUS
};

/// `podCIDR` is the first of `podCIDRs`.
fn keep_pod_networks_in_step(spec: &mut Map<String, Value>) {
    let single = spec.get("podCIDR").and_then(Value::as_str).unwrap_or("").to_owned();
    let first =
        spec.get("podCIDRs").and_then(|l| l.pointer("/0")).and_then(Value::as_str).unwrap_or("").to_owned();
    if single.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".into(), json!(first));
    } else if !single.is_empty() && first != single {
        spec.insert("podCIDRs".into(), json!([single]));
    }
}

fn node_resources(node: &Value, errors: &mut Errors) {
    for field in ["capacity", "allocatable"] {
        let amounts = node.pointer(&format!("/status/{field}")).and_then(Value::as_object);
        for (name, amount) in amounts.into_iter().flatten() {
            validate_quantity_value(name, amount, &format!("status.{field}.{name}"), errors);
        }
    }
}

fn node_update(old: &Value, new: &Value, errors: &mut Errors) {
    node_resources(new, errors);
    let mut seen = BTreeSet::new();
    for (i, address) in list_at(new, "/status/addresses").iter().enumerate() {
        if !seen.insert((text(address, "type"), text(address, "address"))) {
            errors.push(FieldError::duplicate(format!("status.addresses[{i}]"), address.clone()));
        }
    }
    let networks = list_at(old, "/spec/podCIDRs");
    if !networks.is_empty() && networks != list_at(new, "/spec/podCIDRs") {
        errors.push(FieldError::forbidden(
            "spec.podCIDRs",
            "node updates may not change podCIDR except from \"\" to valid",
        ));
    }
    let (before, now) = (text_at(old, "/spec/providerID"), text_at(new, "/spec/providerID"));
    if !before.is_empty() && before != now {
        let detail = if now.is_empty() {
            "field cannot be cleared once set"
        } else {
            "field cannot be modified once set"
        };
        errors.push(FieldError::invalid("spec.providerID", Value::Null, detail));
    }
    validate_taints(list_at(new, "/spec/taints"), "metadata.taints", errors);
}

/// Objects larger than this are refused.
const DATA_LIMIT: usize = 1024 * 1024;
const SEALED: &str = "field is immutable when `immutable` is set";

pub(super) const CONFIG_MAP: Strategy = Strategy {
    validate: config_map,
    validate_update: |old, new, _, errors| {
        if truth(old, "immutable") {
            sealed(old, new, &["data", "binaryData"], errors);
        }
        config_map(new, errors);
    },
    ..Strategy::PLAIN
};

fn sealed(old: &Value, new: &Value, fields: &[&str], errors: &mut Errors) {
    if !truth(new, "immutable") {
        errors.push(FieldError::forbidden("immutable", SEALED));
    }
    for field in fields {
        if !semantic_eq(old.get(*field), new.get(*field)) {
            errors.push(FieldError::forbidden(*field, SEALED));
        }
    }
}

fn config_map(object: &Value, errors: &mut Errors) {
    let mut size = 0;
    let binary = obj(object, "binaryData");
    for (key, value) in obj(object, "data").into_iter().flatten() {
        config_key("data", key, errors);
        if binary.is_some_and(|b| b.contains_key(key)) {
            errors.push(FieldError::invalid(
                format!("data[{key}]"),
                key.as_str(),
                "duplicate of key present in binaryData",
            ));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in binary.into_iter().flatten() {
        config_key("binaryData", key, errors);
        size += decoded_length(value);
    }
    if size > DATA_LIMIT {
        errors.push(FieldError::too_long("", DATA_LIMIT));
    }
}

fn config_key(field: &str, key: &str, errors: &mut Errors) {
    for complaint in validation::config_key(key) {
        errors.push(FieldError::invalid(format!("{field}[{key}]"), key, complaint));
    }
}

fn decoded_length(value: &Value) -> usize {
    value.as_str().map_or(0, |s| s.len() / 4 * 3)
}

pub(super) const SECRET: Strategy = Strategy {
    default: |object| {
        let map = as_map(object);
        // `stringData` is a convenience for writing; it is never stored.
        if let Some(Value::Object(plain)) = map.remove("stringData") {
            let data = as_map(map.entry("data").or_insert_with(|| json!({})));
            for (key, value) in plain {
                let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or(""));
                data.insert(key, json!(encoded));
            }
        }
        set_default(map, "type", "Opaque");
    },
    validate: secret,
    validate_update: |old, new, _, errors| {
        meta::immutable(old, new, "/type", "type", errors);
        if truth(old, "immutable") {
            sealed(old, new, &["data"], errors);
        }
        secret(new, errors);
    },
    fields: fields::SECRET,
    unsupported: Unsupported::Label,
    ..Strategy::PLAIN
};

/// A key whose bytes are a JSON document. What they are is not shown.
fn must_be_json(data: &serde_json::Map<String, Value>, key: &str, errors: &mut Vec<FieldError>) {
    use base64::Engine as _;
    let Some(encoded) = data.get(key).and_then(Value::as_str) else { return };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    if let Err(error) = crate::schema::decode::free_document(&bytes, crate::schema::decode::Media::Json) {
        let hidden = "<secret contents redacted>";
        errors.push(FieldError::invalid(format!("data[{key}]"), hidden, error.to_string()));
    }
}

fn secret(object: &Value, errors: &mut Errors) {
    let empty = Map::new();
    let data = obj(object, "data").unwrap_or(&empty);
    let mut size = 0;
    for (key, value) in data {
        config_key("data", key, errors);
        size += decoded_length(value);
    }
    if size > DATA_LIMIT {
        errors.push(FieldError::too_long("data", DATA_LIMIT));
    }
    let mut need = |key: &str| {
        if !data.contains_key(key) {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    };
    match text(object, "type") {
        "kubernetes.io/dockercfg" => {
            need(".dockercfg");
            must_be_json(data, ".dockercfg", errors);
        }
        "kubernetes.io/dockerconfigjson" => {
            need(".dockerconfigjson");
            must_be_json(data, ".dockerconfigjson", errors);
        }
        "kubernetes.io/basic-auth" if !data.contains_key("username") && !data.contains_key("password") => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" => need("ssh-privatekey"),
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        "kubernetes.io/service-account-token" => {
            let name = obj(object.get("metadata").unwrap_or(&Value::Null), "annotations")
                .and_then(|a| a.get("kubernetes.io/service-account.name"))
                .and_then(Value::as_str)
                .unwrap_or("");
            if name.is_empty() {
                errors.push(FieldError::required(
                    "metadata.annotations[kubernetes.io/service-account.name]",
                    "",
                ));
            }
        }
        _ => {}
    }
}

pub(super) const SERVICE_ACCOUNT: Strategy = Strategy::PLAIN;

pub(super) const RESOURCE_QUOTA: Strategy = Strategy {
    validate: resource_quota,
    validate_update: |_, new, _, errors| resource_quota(new, errors),
    ..Strategy::STATUS
};

fn resource_quota(object: &Value, errors: &mut Errors) {
    let hard = object.pointer("/spec/hard").and_then(Value::as_object);
    for (name, amount) in hard.into_iter().flatten() {
        let path = format!("spec.hard[{name}]");
        for complaint in validation::qualified_name(name) {
            errors.push(FieldError::invalid(&path[..], name.as_str(), complaint));
        }
        validate_quantity_value(name, amount, &path, errors);
    }
}

pub(super) const LIMIT_RANGE: Strategy = Strategy {
    default: |object| {
        for item in each(obj_mut(object, "spec"), "limits") {
            if item.get("type").and_then(Value::as_str) == Some("Container") {
                default_limits(item);
            }
        }
    },
    validate: limit_range,
    validate_update: |_, new, _, errors| limit_range(new, errors),
    create_on_update: true,
    ..Strategy::PLAIN
};

/// Default limit ← maximum; default request ← default limit, then minimum.
fn default_limits(item: &mut Map<String, Value>) {
    let copy = |from: &str, to: &str, item: &mut Map<String, Value>| {
        let source = item.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
        let target = as_map(item.entry(to).or_insert_with(|| json!({})));
        for (key, value) in source {
            target.entry(key).or_insert(value);
        }
    };
    copy("max", "default", item);
    copy("default", "defaultRequest", item);
    copy("min", "defaultRequest", item);
}

fn limit_range(object: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, item) in list_at(object, "/spec/limits").iter().enumerate() {
        let path = format!("spec.limits[{i}]");
        let kind = text(item, "type");
        if !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            errors.push(FieldError::invalid(
                format!("{path}.type"),
                kind,
                "must be a standard limit type or fully qualified",
            ));
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), kind));
        }
        if kind == "Pod" {
            for field in ["default", "defaultRequest"] {
                if obj(item, field).is_some_and(|m| !m.is_empty()) {
                    errors.push(FieldError::forbidden(
                        format!("{path}.{field}"),
                        "may not be specified when `type` is 'Pod'",
                    ));
                }
            }
        }
        for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            for (name, amount) in obj(item, field).into_iter().flatten() {
                validate_quantity_value(name, amount, &format!("{path}.{field}[{name}]"), errors);
            }
        }
    }
}
