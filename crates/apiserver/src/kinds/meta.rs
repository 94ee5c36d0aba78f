//! ObjectMeta: the checks every object passes.

use evac_apimachinery::validation::{self, NameRule};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::read::{int_at, list, list_at, obj, text, text_at, truth};
use crate::status::{FieldError, FieldErrorKind};

/// Labels and annotations together may not be larger than this.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
pub const IMMUTABLE: &str = "field is immutable";

/// The metadata of a new object.
pub fn validate(object: &Value, namespaced: bool, rule: NameRule, errors: &mut Vec<FieldError>) {
    let meta = object.get("metadata").unwrap_or(&Value::Null);
    let generate_name = text(meta, "generateName");
    if !generate_name.is_empty() {
        for complaint in rule.check(generate_name, true) {
            errors.push(FieldError::invalid("metadata.generateName", generate_name, complaint));
        }
    }
    let name = text(meta, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for complaint in rule.check(name, false) {
            errors.push(FieldError::invalid("metadata.name", name, complaint));
        }
    }
    let namespace = text(meta, "namespace");
    if namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        }
        for complaint in validation::dns1123_label(namespace).into_iter().filter(|_| !namespace.is_empty()) {
            errors.push(FieldError::invalid("metadata.namespace", namespace, complaint));
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    common(meta, errors);
    finalizers(meta, errors);
}

/// Metadata of a template inside another object: only labels, annotations and what goes with them.
pub fn validate_template(meta: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(meta) = meta else { return };
    labels(obj(meta, "labels"), &format!("{path}.labels"), errors);
    annotations(obj(meta, "annotations"), &format!("{path}.annotations"), errors);
}

/// The metadata of a changed object.
pub fn validate_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let meta = new.get("metadata").unwrap_or(&Value::Null);
    let stored = old.get("metadata").unwrap_or(&Value::Null);
    if stored.get("deletionTimestamp").is_some() {
        let had = list(stored, "finalizers");
        let mut added: Vec<&str> =
            list(meta, "finalizers").iter().filter(|f| !had.contains(f)).filter_map(Value::as_str).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let shown = added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ");
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers \
                     []string{{{shown}}}"
                ),
            ));
        }
    }
    if text(meta, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid("metadata.resourceVersion", "", "must be specified for an update"));
    }
    if int_at(new, "/metadata/generation") < int_at(old, "/metadata/generation") {
        errors.push(FieldError::invalid(
            "metadata.generation",
            int_at(new, "/metadata/generation"),
            "must not be decremented",
        ));
    }
    for field in ["name", "namespace", "uid"] {
        if text(meta, field) != text(stored, field) {
            errors.push(FieldError::invalid(format!("metadata.{field}"), text(meta, field), IMMUTABLE));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (now, before) = (meta.get(field), stored.get(field));
        if now != before {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                now.cloned().unwrap_or_default(),
                IMMUTABLE,
            ));
        }
    }
    common(meta, errors);
}

fn common(meta: &Value, errors: &mut Vec<FieldError>) {
    labels(obj(meta, "labels"), "metadata.labels", errors);
    annotations(obj(meta, "annotations"), "metadata.annotations", errors);
    owner_references(list(meta, "ownerReferences"), errors);
}

pub fn labels(labels: Option<&Map<String, Value>>, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.into_iter().flatten() {
        for complaint in validation::qualified_name(key) {
            errors.push(FieldError::invalid(path, key.as_str(), complaint));
        }
        let value = value.as_str().unwrap_or("");
        for complaint in validation::label_value(value) {
            errors.push(FieldError::invalid(path, value, complaint));
        }
    }
}

pub fn annotations(annotations: Option<&Map<String, Value>>, path: &str, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or("").len();
        for complaint in validation::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key.as_str(), complaint));
        }
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(path, ANNOTATIONS_LIMIT));
    }
}

fn owner_references(references: &[Value], errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    for (i, reference) in references.iter().enumerate() {
        let path = format!("metadata.ownerReferences[{i}]");
        let api_version = text(reference, "apiVersion");
        if api_version.is_empty() {
            errors.push(FieldError::required(format!("{path}.apiVersion"), "must not be empty"));
        } else if api_version.matches('/').count() > 1 || api_version.ends_with('/') {
            errors.push(FieldError::invalid(
                format!("{path}.apiVersion"),
                api_version,
                "must be <group>/<version> or <version>",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if text(reference, field).is_empty() {
                errors.push(FieldError::required(format!("{path}.{field}"), "must not be empty"));
            }
        }
        if api_version == "v1" && text(reference, "kind") == "Event" {
            errors.push(FieldError::invalid(
                &path[..],
                reference.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if truth(reference, "controller") {
            let this = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
            match &controller {
                Some(first) => errors.push(FieldError::invalid(
                    "metadata.ownerReferences",
                    references.to_vec(),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references \
                         for {first} and {this}"
                    ),
                )),
                None => controller = Some(this),
            }
        }
    }
}

fn finalizers(meta: &Value, errors: &mut Vec<FieldError>) {
    let all = list(meta, "finalizers");
    for name in all.iter().filter_map(Value::as_str) {
        for complaint in validation::qualified_name(name) {
            errors.push(FieldError::invalid("metadata.finalizers", name, complaint));
        }
    }
    let has = |name: &str| all.iter().any(|f| f.as_str() == Some(name));
    if has("orphan") && has("foregroundDeletion") {
        errors.push(FieldError::invalid(
            "metadata.finalizers",
            all.to_vec(),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

/// Finalizers of built-in kinds carry a domain, unless they are the cluster's own.
pub fn finalizer_names(object: &Value, errors: &mut Vec<FieldError>) {
    let all = list_at(object, "/metadata/finalizers");
    for (index, name) in all.iter().filter_map(Value::as_str).enumerate() {
        let standard = matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
        if !name.contains('/') && !standard {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

/// The value of a field must stay as it was.
pub fn immutable(old: &Value, new: &Value, pointer: &str, path: &str, errors: &mut Vec<FieldError>) {
    let (before, now) = (old.pointer(pointer), new.pointer(pointer));
    if !super::read::semantic_eq(before, now) {
        errors.push(FieldError::new(
            FieldErrorKind::Invalid,
            path,
            Some(now.cloned().unwrap_or_default()),
            IMMUTABLE,
        ));
    }
}

/// A number that may not be below zero.
pub fn non_negative(object: &Value, pointer: &str, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(n) = object.pointer(pointer).and_then(Value::as_i64)
        && n < 0
    {
        errors.push(FieldError::invalid(path, n, NON_NEGATIVE));
    }
}

pub const NON_NEGATIVE: &str = "must be greater than or equal to 0";

/// RFC 3339 with whole seconds, as Kubernetes writes times.
pub fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

pub fn name_of(object: &Value) -> &str {
    text_at(object, "/metadata/name")
}

pub fn labels_of(object: &Value) -> Option<&Map<String, Value>> {
    object.pointer("/metadata/labels").and_then(Value::as_object)
}

pub fn owners_of(object: &Value) -> &[Value] {
    list_at(object, "/metadata/ownerReferences")
}
