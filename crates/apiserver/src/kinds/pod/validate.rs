//! Checks on a pod, and on the template of one.

use std::collections::BTreeSet;

use evac_apimachinery::validation;
use serde_json::{Map, Value};

use super::{containers, scheduling, volumes};
use crate::kinds::meta;
use crate::kinds::quantities;
use crate::kinds::read::{int, is_set, list, obj, text, truth};
use crate::status::{FieldError, FieldErrorKind};

type Errors = Vec<FieldError>;

pub(super) fn pod(pod: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = pod.get("spec").unwrap_or(&none);
    self::spec(spec, meta::name_of(pod), "spec", true, errors);
    if text(spec, "serviceAccountName").is_empty() {
        for (i, volume) in list(spec, "volumes").iter().enumerate() {
            let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
            for (j, source) in sources.into_iter().flatten().enumerate() {
                if is_set(source, "serviceAccountToken") {
                    errors.push(FieldError::forbidden(
                        format!("spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"),
                        "must not be specified when serviceAccountName is not set",
                    ));
                }
            }
        }
    }
    meta::non_negative(spec, "/terminationGracePeriodSeconds", "spec.terminationGracePeriodSeconds", errors);
    for field in ["containers", "initContainers"] {
        for (i, container) in list(spec, field).iter().enumerate() {
            let image = text(container, "image");
            if image != image.trim() {
                errors.push(FieldError::invalid(
                    format!("spec.{field}[{i}].image"),
                    image,
                    "must not have leading or trailing whitespace",
                ));
            }
        }
    }
}

/// `spec.template` of a workload: labels, annotations and the pod spec.
pub(in crate::kinds) fn template(template: &Value, path: &str, errors: &mut Errors) {
    let none = Value::Null;
    let metadata = template.get("metadata").unwrap_or(&none);
    meta::labels(obj(metadata, "labels"), &format!("{path}.labels"), errors);
    meta::annotations(obj(metadata, "annotations"), &format!("{path}.annotations"), errors);
    let spec_path = format!("{path}.spec");
    let spec = template.get("spec").unwrap_or(&none);
    self::spec(spec, "", &spec_path, false, errors);
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(
            format!("{spec_path}.ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
}

fn spec(spec: &Value, pod_name: &str, path: &str, is_pod: bool, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    if !is_set(spec, "terminationGracePeriodSeconds") {
        errors.push(FieldError::required(at("terminationGracePeriodSeconds"), ""));
    }
    let volumes = volumes::all(list(spec, "volumes"), pod_name, &at("volumes"), errors);
    containers::regular(spec, &volumes, path, errors);
    containers::init(spec, &volumes, path, errors);
    containers::ephemeral(spec, &volumes, path, errors);
    host_network_ports(spec, path, is_pod, errors);
    one_of(spec, "restartPolicy", path, &["Always", "OnFailure", "Never"], errors);
    one_of(spec, "dnsPolicy", path, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], errors);
    meta::labels(obj(spec, "nodeSelector"), &at("nodeSelector"), errors);
    security_context(spec.get("securityContext"), &at("securityContext"), errors);
    if truth(spec, "hostPID") && truth(spec, "shareProcessNamespace") {
        errors.push(FieldError::invalid(
            at("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        ));
    }
    for (i, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.imagePullSecrets[{i}].name"), ""));
        }
    }
    scheduling::affinity(spec.get("affinity"), &at("affinity"), errors);
    if text(spec, "dnsPolicy") == "None"
        && spec.pointer("/dnsConfig/nameservers").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        errors.push(FieldError::required(
            at("dnsConfig.nameservers"),
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        ));
    }
    for (i, gate) in list(spec, "readinessGates").iter().enumerate() {
        let name = text(gate, "conditionType");
        for complaint in validation::qualified_name(name) {
            errors.push(FieldError::invalid(
                format!("{path}.readinessGates[{i}].conditionType"),
                name,
                complaint,
            ));
        }
    }
    scheduling::gates(list(spec, "schedulingGates"), &at("schedulingGates"), errors);
    scheduling::spread(list(spec, "topologySpreadConstraints"), &at("topologySpreadConstraints"), errors);
    for (field, check) in [
        ("serviceAccountName", validation::dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", validation::dns1123_subdomain),
    ] {
        named(spec, field, path, check, errors);
    }
    if let Some(seconds) = int(spec, "activeDeadlineSeconds") {
        for complaint in validation::in_range(seconds, 1, i64::from(i32::MAX)) {
            errors.push(FieldError::invalid(at("activeDeadlineSeconds"), seconds, complaint));
        }
    }
    named(spec, "hostname", path, validation::dns1123_label, errors);
    named(spec, "subdomain", path, validation::dns1123_label, errors);
    scheduling::tolerations(list(spec, "tolerations"), &at("tolerations"), errors);
    named(spec, "priorityClassName", path, validation::dns1123_subdomain, errors);
    named(spec, "runtimeClassName", path, validation::dns1123_subdomain, errors);
    if is_set(spec, "preemptionPolicy") {
        one_of(spec, "preemptionPolicy", path, &["PreemptLowerPriority", "Never"], errors);
    }
    if let Some(overhead) = obj(spec, "overhead") {
        for (name, quantity) in overhead {
            quantity_value(name, quantity, &format!("{path}.overhead[{name}]"), errors);
        }
    }
    if let Some(resources) = spec.get("resources").filter(|r| r.is_object()) {
        resource_requirements(resources, &at("resources"), errors);
    }
}

/// User and group ids of the pod as a whole.
fn security_context(context: Option<&Value>, path: &str, errors: &mut Errors) {
    let Some(context) = context.filter(|c| c.is_object()) else { return };
    let mut check = |at: String, id: i64| {
        for complaint in validation::in_range(id, 0, i64::from(i32::MAX)) {
            errors.push(FieldError::invalid(&at[..], id, complaint));
        }
    };
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        if let Some(id) = int(context, field) {
            check(format!("{path}.{field}"), id);
        }
    }
    for (i, id) in list(context, "supplementalGroups").iter().filter_map(Value::as_i64).enumerate() {
        check(format!("{path}.supplementalGroups[{i}]"), id);
    }
}

/// An optional name that must follow a rule.
fn named(spec: &Value, field: &str, path: &str, check: fn(&str) -> Vec<String>, errors: &mut Errors) {
    let name = text(spec, field);
    if !name.is_empty() {
        for complaint in check(name) {
            errors.push(FieldError::invalid(format!("{path}.{field}"), name, complaint));
        }
    }
}

/// A field with a closed list of values; empty is not one of them.
pub(super) fn one_of(object: &Value, field: &str, path: &str, valid: &[&str], errors: &mut Errors) {
    match text(object, field) {
        "" => errors.push(FieldError::required(format!("{path}.{field}"), "")),
        value if valid.contains(&value) => {}
        value => errors.push(FieldError::not_supported(format!("{path}.{field}"), value, valid)),
    }
}

fn host_network_ports(spec: &Value, path: &str, is_pod: bool, errors: &mut Errors) {
    if !truth(spec, "hostNetwork") {
        return;
    }
    for (i, container) in list(spec, "containers").iter().enumerate() {
        for (j, port) in list(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or(0);
            if (is_pod || host != 0) && host != int(port, "containerPort").unwrap_or(0) {
                errors.push(FieldError::invalid(
                    format!("{path}.containers[{i}].ports[{j}].hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                ));
            }
        }
    }
}

const STANDARD_RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_container_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

fn resource_name(name: &str, path: &str, errors: &mut Errors) {
    let complaints = validation::qualified_name(name);
    if !complaints.is_empty() {
        errors.extend(complaints.into_iter().map(|c| FieldError::invalid(path, name, c)));
        return;
    }
    if !name.contains('/') {
        if !STANDARD_RESOURCES.contains(&name) && !name.starts_with("hugepages-") {
            errors.push(FieldError::invalid(
                path,
                name,
                "must be a standard resource type or fully qualified",
            ));
        }
        if !is_container_resource(name) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !name.starts_with("kubernetes.io/") && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

fn is_extended(name: &str) -> bool {
    !name.starts_with("requests.") && validation::qualified_name(&format!("requests.{name}")).is_empty()
}

/// May a request be below the limit? Not for huge pages and devices.
fn is_overcommit_allowed(name: &str) -> bool {
    (!name.contains('/') || name.contains("kubernetes.io/")) && !name.starts_with("hugepages-")
}

const INTEGER_RESOURCES: &[&str] = &[
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// An amount of a resource: not negative, whole where only whole ones exist.
pub(in crate::kinds) fn quantity_value(name: &str, value: &Value, path: &str, errors: &mut Errors) {
    let Ok(quantity) = quantities::read(value) else {
        errors.push(FieldError::invalid(path, value.clone(), "must be a valid resource quantity"));
        return;
    };
    if quantity.is_negative() {
        errors.push(FieldError::invalid(path, quantity.to_string(), meta::NON_NEGATIVE));
    }
    let whole = INTEGER_RESOURCES.contains(&name) || (name.contains('/') && is_extended(name));
    if whole && quantity.milli_value() % 1000 != 0 {
        errors.push(FieldError::invalid(path, quantity.to_string(), "must be an integer"));
    }
}

pub(super) fn resource_requirements(resources: &Value, path: &str, errors: &mut Errors) {
    let empty = Map::new();
    let limits = obj(resources, "limits").unwrap_or(&empty);
    let requests = obj(resources, "requests").unwrap_or(&empty);
    for (name, limit) in limits {
        let at = format!("{path}.limits[{name}]");
        resource_name(name, &at, errors);
        quantity_value(name, limit, &at, errors);
    }
    for (name, request) in requests {
        let at = format!("{path}.requests[{name}]");
        resource_name(name, &at, errors);
        quantity_value(name, request, &at, errors);
        let Ok(asked) = quantities::read(request) else { continue };
        match limits.get(name).and_then(|l| quantities::read(l).ok()) {
            Some(limit) if asked != limit && !is_overcommit_allowed(name) => {
                errors.push(FieldError::invalid(
                    format!("{path}.requests"),
                    asked.to_string(),
                    format!("must be equal to {name} limit of {limit}"),
                ));
            }
            Some(limit) if asked > limit => errors.push(FieldError::invalid(
                format!("{path}.requests"),
                asked.to_string(),
                format!("must be less than or equal to {name} limit of {limit}"),
            )),
            None if !is_overcommit_allowed(name) => errors.push(FieldError::required(
                format!("{path}.limits"),
                "Limit must be set for non overcommitable resources",
            )),
            _ => {}
        }
    }
    let has = |wanted: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|n| wanted(n));
    if has(|n| n.starts_with("hugepages-")) && !has(|n| n == "cpu" || n == "memory") {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

/// Complains about the second of two equal names.
pub(super) fn unique<'a>(
    seen: &mut BTreeSet<&'a str>,
    name: &'a str,
    path: impl Into<String>,
    errors: &mut Errors,
) {
    if !seen.insert(name) {
        errors.push(FieldError::new(FieldErrorKind::Duplicate, path, Some(name.into()), ""));
    }
}
