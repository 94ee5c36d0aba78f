//! Custom resource definitions and API services as objects: defaults and checks.

use std::collections::BTreeSet;

use evac_apimachinery::validation;
use serde_json::{Value, json};

use super::meta;
use super::read::{as_map, child, each, is_set, list, list_at, obj_mut, set_default, text, text_at, truth};
use super::strategy::Strategy;
use crate::status::FieldError;

type Errors = Vec<FieldError>;

pub(super) const DEFINITION: Strategy = Strategy {
    default: |object| {
        let spec = obj_mut(object, "spec");
        let names = as_map(spec.entry("names").or_insert_with(|| json!({})));
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
        set_default(names, "singular", kind.to_lowercase());
        if !kind.is_empty() {
            set_default(names, "listKind", format!("{kind}List"));
        }
        let conversion = as_map(spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"})));
        let service = child(conversion, "webhook")
            .and_then(|w| child(w, "clientConfig"))
            .and_then(|c| child(c, "service"));
        if let Some(service) = service {
            set_default(service, "port", 443);
        }
        for version in each(spec, "versions") {
            for flag in ["served", "storage"] {
                set_default(version, flag, false);
            }
        }
        if list_at(object, "/status/storedVersions").is_empty() && object.get("status").is_some() {
            remember_stored_version(object);
        }
    },
    prepare_create: |object, _| {
        as_map(object).insert("status".into(), json!({}));
        remember_stored_version(object);
    },
    prepare_update: |_, new, part, _| {
        if part == super::Part::Main {
            remember_stored_version(new);
        }
    },
    validate: |object, errors| {
        let wanted = format!("{}.{}", text_at(object, "/spec/names/plural"), text_at(object, "/spec/group"));
        if meta::name_of(object) != wanted {
            errors.push(FieldError::invalid(
                "metadata.name",
                meta::name_of(object),
                "must be spec.names.plural+\".\"+spec.group",
            ));
        }
        definition(object, errors);
        stored_versions(object, errors);
    },
    validate_update: |old, new, _, errors| {
        definition(new, errors);
        let established = list_at(old, "/status/conditions")
            .iter()
            .any(|c| text(c, "type") == "Established" && text(c, "status") == "True");
        if established {
            meta::immutable(old, new, "/spec/scope", "spec.scope", errors);
            meta::immutable(old, new, "/spec/names/kind", "spec.names.kind", errors);
        }
        meta::immutable(old, new, "/spec/group", "spec.group", errors);
        meta::immutable(old, new, "/spec/names/plural", "spec.names.plural", errors);
    },
    unconditional_update: false,
    ..Strategy::SPEC_AND_STATUS
};

/// `status.storedVersions` names every version that objects may still be stored in.
fn remember_stored_version(object: &mut Value) {
    let stored = list_at(object, "/spec/versions")
        .iter()
        .find(|v| truth(v, "storage"))
        .map(|v| text(v, "name").to_owned());
    if let Some(version) = stored {
        let versions = obj_mut(object, "status").entry("storedVersions").or_insert_with(|| json!([]));
        if let Some(versions) = versions.as_array_mut()
            && !versions.contains(&json!(version))
        {
            versions.push(json!(version));
        }
    }
}

fn definition(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    let group = text(spec, "group");
    let complaints = validation::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !complaints.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, complaints.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    match text(spec, "scope") {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            errors.push(FieldError::not_supported("spec.scope", other, &["Cluster", "Namespaced"]));
        }
    }
    let versions = list(spec, "versions");
    for (i, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            errors.push(FieldError::required(format!("spec.versions[{i}].schema.openAPIV3Schema"), ""));
        }
    }
    let mut seen = BTreeSet::new();
    let mut repeated = false;
    for (i, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{i}]");
        let name = text(version, "name");
        repeated |= !seen.insert(name);
        let complaints = validation::dns1035_label(name);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.name"), name, complaints.join(",")));
        }
        // What a single version says counts as said for the whole definition.
        let path = if versions.len() == 1 { "spec" } else { &path };
        scale(version.pointer("/subresources/scale"), &format!("{path}.subresources"), errors);
        for (j, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
            self::column(column, &format!("{path}.additionalPrinterColumns[{j}]"), errors);
        }
    }
    let all = || spec.get("versions").cloned().unwrap_or_default();
    if repeated {
        errors.push(FieldError::invalid("spec.versions", all(), "must contain unique version names"));
    }
    if versions.iter().filter(|v| truth(v, "storage")).count() != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            all(),
            "must have exactly one version marked as storage version",
        ));
    }
    resource_names(spec.get("names").unwrap_or(&none), errors);
    match spec.pointer("/conversion/strategy").and_then(Value::as_str).unwrap_or("") {
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        "None" | "Webhook" => {}
        other => {
            errors.push(FieldError::not_supported("spec.conversion.strategy", other, &["None", "Webhook"]));
        }
    }
    if truth(spec, "preserveUnknownFields") {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
             spec.versions[*].schema instead",
        ));
    }
}

/// What is stored must be served by some version, above all by the one that is marked for it.
fn stored_versions(object: &Value, errors: &mut Errors) {
    const PATH: &str = "status.storedVersions";
    let stored = list_at(object, "/status/storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(PATH, Value::Null, "must have at least one stored version"));
        return;
    }
    let versions = list_at(object, "/spec/versions");
    for version in versions.iter().filter(|v| truth(v, "storage")) {
        let name = text(version, "name");
        if !stored.iter().any(|s| s == name) {
            errors.push(FieldError::invalid(
                PATH,
                stored.to_vec(),
                format!("must have the storage version {name}"),
            ));
        }
    }
    for (i, name) in stored.iter().enumerate() {
        if !versions.iter().any(|v| v.get("name") == Some(name)) {
            errors.push(FieldError::invalid(
                format!("{PATH}[{i}]"),
                name.clone(),
                "missing from spec.versions; must be present in spec.versions",
            ));
        }
    }
}

fn resource_names(given: &Value, errors: &mut Errors) {
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(given, field).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    for field in ["plural", "singular"] {
        let value = text(given, field);
        let complaints = validation::dns1035_label(value);
        if !value.is_empty() && !complaints.is_empty() {
            errors.push(FieldError::invalid(format!("spec.names.{field}"), value, complaints.join(",")));
        }
    }
    for field in ["kind", "listKind"] {
        let value = text(given, field);
        let complaints = validation::dns1035_label(&value.to_lowercase());
        if !value.is_empty() && !complaints.is_empty() {
            errors.push(FieldError::invalid(
                format!("spec.names.{field}"),
                value,
                format!("may have mixed case, but should otherwise match: {}", complaints.join(",")),
            ));
        }
    }
    for field in ["shortNames", "categories"] {
        for (i, value) in list(given, field).iter().filter_map(Value::as_str).enumerate() {
            let complaints = validation::dns1035_label(value);
            if !complaints.is_empty() {
                errors.push(FieldError::invalid(
                    format!("spec.names.{field}[{i}]"),
                    value,
                    complaints.join(","),
                ));
            }
        }
    }
    let kind = text(given, "kind");
    if !kind.is_empty() && kind == text(given, "listKind") {
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            kind,
            "kind and listKind may not be the same",
        ));
    }
}

fn scale(scale: Option<&Value>, path: &str, errors: &mut Errors) {
    let Some(scale) = scale.filter(|s| s.is_object()) else { return };
    for (field, prefix) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let value = text(scale, field);
        let at = format!("{path}.scale.{field}");
        if value.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if !value.starts_with('.') {
            errors.push(FieldError::invalid(at, value, "must be a simple json path starting with ."));
        } else if !value.starts_with(&format!("{prefix}.")) {
            errors.push(FieldError::invalid(at, value, format!("should be a json path under {prefix}")));
        }
    }
}

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];

fn column(column: &Value, path: &str, errors: &mut Errors) {
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let kind = text(column, "type");
    let wording = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(FieldError::required(format!("{path}.type"), wording));
    } else if !COLUMN_TYPES.contains(&kind) {
        errors.push(FieldError::invalid(format!("{path}.type"), kind, wording));
    }
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        errors.push(FieldError::required(format!("{path}.JSONPath"), ""));
    } else if crate::jsonpath::JsonPath::parse(json_path).is_err() {
        errors.push(FieldError::invalid(format!("{path}.JSONPath"), json_path, "is not a valid JSON path"));
    }
}

pub(super) const API_SERVICE: Strategy = Strategy {
    default: |object| {
        if let Some(service) = child(obj_mut(object, "spec"), "service") {
            set_default(service, "port", 443);
        }
    },
    prepare_create: |object, now| {
        // Without a service behind it the version is served by this server itself.
        let local = object.pointer("/spec/service").is_none_or(Value::is_null);
        let status = if local {
            json!({"conditions": [{
                "type": "Available", "status": "True", "reason": "Local",
                "message": "Local APIServices are always available",
                "lastTransitionTime": super::meta::seconds(now),
            }]})
        } else {
            json!({})
        };
        as_map(object).insert("status".into(), status);
    },
    validate: api_service,
    validate_update: |_, new, _, errors| api_service(new, errors),
    unconditional_update: false,
    ..Strategy::STATUS
};

fn api_service(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    let wanted = format!("{}.{}", text(spec, "version"), text(spec, "group"));
    if meta::name_of(object) != wanted {
        errors.push(FieldError::invalid(
            "metadata.name",
            meta::name_of(object),
            format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"),
        ));
    }
    if text(spec, "version").is_empty() {
        errors.push(FieldError::required("spec.version", ""));
    }
    for field in ["groupPriorityMinimum", "versionPriority"] {
        let value = spec.get(field).and_then(Value::as_i64).unwrap_or(0);
        let limit = if field == "versionPriority" { 1000 } else { 20_000 };
        if value <= 0 || value > limit {
            errors.push(FieldError::invalid(
                format!("spec.{field}"),
                value,
                format!("must be positive and less than {limit}"),
            ));
        }
    }
    if !is_set(spec, "service") && !list(spec, "caBundle").is_empty() {
        errors.push(FieldError::invalid("spec.caBundle", "", "local APIServices may not have a caBundle"));
    }
}
