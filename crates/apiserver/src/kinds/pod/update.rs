//! What may change on a pod that exists.

use std::fmt::Write as _;

use evac_apimachinery::validation;
use serde_json::{Value, json};

use super::{scheduling, validate};
use crate::kinds::meta;
use crate::kinds::read::{as_map, int, list, list_at, obj, obj_mut, semantic_eq, text, text_at};
use crate::kinds::strategy::Part;
use crate::status::FieldError;

type Errors = Vec<FieldError>;

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,\
     `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
     `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn pod(old: &Value, new: &Value, part: Part, errors: &mut Errors) {
    match part {
        // The server's own writes (binding, marking before an eviction) are not limited.
        Part::Internal => return,
        Part::EphemeralContainers => return ephemeral(old, new, errors),
        Part::Resize => return resize(old, new, errors),
        Part::Main | Part::Status | Part::Finalize => {}
    }
    validate::pod(new, errors);
    let none = Value::Null;
    let (before, now) = (old.get("spec").unwrap_or(&none), new.get("spec").unwrap_or(&none));
    for field in ["containers", "initContainers"] {
        if list(before, field).len() != list(now, field).len() {
            errors.push(FieldError::forbidden(
                format!("spec.{field}"),
                "pod updates may not add or remove containers",
            ));
            return;
        }
    }
    if !active_deadline(before, now, errors) {
        return;
    }
    only_added_tolerations(before, now, errors);
    only_removed_gates(before, now, errors);
    if semantic_eq(Some(before), Some(now)) {
        return;
    }
    let comparable = with_changeable_fields_of(before, now, errors);
    if !semantic_eq(Some(&comparable), Some(before)) {
        let mut difference = String::new();
        describe(before, &comparable, "", &mut difference);
        errors.push(FieldError::forbidden(
            "spec",
            format!("pod updates may not change fields other than {UPDATABLE}\n{difference}"),
        ));
    }
}

fn active_deadline(before: &Value, now: &Value, errors: &mut Errors) -> bool {
    const PATH: &str = "spec.activeDeadlineSeconds";
    match (int(before, "activeDeadlineSeconds"), int(now, "activeDeadlineSeconds")) {
        (_, Some(n)) if !(0..=i64::from(i32::MAX)).contains(&n) => {
            errors.extend(
                validation::in_range(n, 0, i64::from(i32::MAX))
                    .into_iter()
                    .map(|c| FieldError::invalid(PATH, n, c)),
            );
            false
        }
        (Some(was), Some(n)) if was < n => {
            errors.push(FieldError::invalid(PATH, n, "must be less than or equal to previous value"));
            false
        }
        (Some(_), None) => {
            errors.push(FieldError::invalid(
                PATH,
                Value::Null,
                "must not update from a positive integer to nil value",
            ));
            true
        }
        _ => true,
    }
}

fn only_added_tolerations(before: &Value, now: &Value, errors: &mut Errors) {
    let bare = |toleration: &Value| {
        let mut bare = toleration.clone();
        as_map(&mut bare).remove("tolerationSeconds");
        bare
    };
    let present: Vec<Value> = list(now, "tolerations").iter().map(bare).collect();
    if list(before, "tolerations").iter().any(|t| !present.contains(&bare(t))) {
        errors.push(FieldError::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
        return;
    }
    scheduling::tolerations(list(now, "tolerations"), "spec.tolerations", errors);
}

fn only_removed_gates(before: &Value, now: &Value, errors: &mut Errors) {
    for (i, gate) in list(now, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !list(before, "schedulingGates").iter().any(|g| text(g, "name") == name) {
            errors.push(FieldError::forbidden(
                format!("spec.schedulingGates[{i}].name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
}

/// The new spec with everything that may change put back: what still differs is not allowed.
fn with_changeable_fields_of(before: &Value, now: &Value, errors: &mut Errors) -> Value {
    let mut spec = now.clone();
    for field in ["containers", "initContainers"] {
        let images: Vec<Option<Value>> =
            list(before, field).iter().map(|c| c.get("image").cloned()).collect();
        let containers = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, image) in containers.zip(images) {
            if let Some(image) = image {
                as_map(container).insert("image".into(), image);
            }
        }
    }
    let mut put_back = |field: &str| match before.get(field) {
        Some(value) => {
            as_map(&mut spec).insert(field.to_owned(), value.clone());
        }
        None => {
            as_map(&mut spec).remove(field);
        }
    };
    put_back("activeDeadlineSeconds");
    put_back("schedulingGates");
    put_back("tolerations");
    let was_negative = int(before, "terminationGracePeriodSeconds").is_some_and(|s| s < 0);
    if was_negative && int(now, "terminationGracePeriodSeconds") == Some(1) {
        put_back("terminationGracePeriodSeconds");
    }
    if !list(before, "schedulingGates").is_empty() {
        // A gated pod may still be narrowed down to fewer nodes.
        let kept = obj(before, "nodeSelector").into_iter().flatten();
        if kept.clone().any(|(k, v)| obj(now, "nodeSelector").and_then(|s| s.get(k)) != Some(v)) {
            errors.push(FieldError::invalid(
                "spec.nodeSelector",
                now.get("nodeSelector").cloned().unwrap_or_default(),
                "only additions are allowed (no mutations or deletions)",
            ));
        }
        put_back("nodeSelector");
        let affinity = before.pointer("/affinity/nodeAffinity").cloned();
        match affinity {
            Some(node) => {
                obj_mut(&mut spec, "affinity").insert("nodeAffinity".into(), node);
            }
            None if spec.get("affinity").is_some() => {
                obj_mut(&mut spec, "affinity").remove("nodeAffinity");
            }
            None => {}
        }
    }
    spec
}

/// One line per difference: what was there, what was wanted.
fn describe(before: &Value, now: &Value, path: &str, out: &mut String) {
    match (before, now) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let missing = Value::Null;
                let (x, y) = (a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing));
                if !semantic_eq(Some(x), Some(y)) {
                    describe(x, y, &format!("{path}.{key}"), out);
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate().filter(|(_, (x, y))| x != y) {
                describe(x, y, &format!("{path}[{i}]"), out);
            }
        }
        _ => {
            let _ = writeln!(out, "- spec{path}: {before}\n+ spec{path}: {now}");
        }
    }
}

fn ephemeral(old: &Value, new: &Value, errors: &mut Errors) {
    validate::pod(new, errors);
    let before = list_at(old, "/spec/ephemeralContainers");
    let now = list_at(new, "/spec/ephemeralContainers");
    for container in before {
        let name = text(container, "name");
        match now.iter().find(|c| text(c, "name") == name) {
            None => errors.push(FieldError::forbidden(
                "spec.ephemeralContainers",
                format!("existing ephemeral containers \"{name}\" may not be removed\n"),
            )),
            Some(same) if !semantic_eq(Some(same), Some(container)) => {
                errors.push(FieldError::forbidden(
                    "spec.ephemeralContainers",
                    format!("existing ephemeral containers \"{name}\" may not be changed\n"),
                ));
            }
            Some(_) => {}
        }
    }
}

/// Only resources of containers may change.
/// A request to resize changes sizes; whatever else it says is not heard. Containers that do not match are
/// left for validation to refuse.
pub(super) fn keep_all_but_size(old: &Value, new: &mut Value) {
    let mut spec = old.get("spec").cloned().unwrap_or_default();
    for field in ["containers", "initContainers"] {
        let wanted = list_at(new, &format!("/spec/{field}")).to_vec();
        let mut kept = list_at(old, &format!("/spec/{field}")).to_vec();
        let same_names = wanted.len() == kept.len()
            && wanted.iter().zip(&kept).all(|(a, b)| text_at(a, "/name") == text_at(b, "/name"));
        if !same_names {
            return;
        }
        for (container, wish) in kept.iter_mut().zip(&wanted) {
            for part in ["resources", "resizePolicy"] {
                match wish.get(part) {
                    Some(value) => as_map(container).insert(part.into(), value.clone()),
                    None => as_map(container).remove(part),
                };
            }
        }
        if !kept.is_empty() {
            as_map(&mut spec).insert(field.into(), json!(kept));
        }
    }
    if let Some(resources) = new.pointer("/spec/resources") {
        as_map(&mut spec).insert("resources".into(), resources.clone());
    }
    as_map(new).insert("spec".into(), spec);
}

fn resize(old: &Value, new: &Value, errors: &mut Errors) {
    validate::pod(new, errors);
    let stripped = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        for field in ["containers", "initContainers"] {
            for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
                as_map(container).insert("resources".into(), json!({}));
                as_map(container).remove("resizePolicy");
            }
        }
        as_map(&mut spec).remove("resources");
        spec
    };
    if !semantic_eq(Some(&stripped(old)), Some(&stripped(new))) {
        errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable"));
    }
    if super::qos::class(old) != super::qos::class(new) {
        errors.push(FieldError::invalid(
            "spec",
            super::qos::class(new),
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
}

pub(super) fn status(old: &Value, new: &Value, errors: &mut Errors) {
    for (i, condition) in list_at(new, "/status/conditions").iter().enumerate() {
        let generation = int(condition, "observedGeneration").unwrap_or(0);
        if generation < 0 {
            errors.push(FieldError::invalid(
                format!("status.conditions[{i}].observedGeneration"),
                generation,
                "must be a non-negative integer",
            ));
        }
    }
    let nominated = text_at(new, "/status/nominatedNodeName");
    if !nominated.is_empty() && nominated != text_at(old, "/status/nominatedNodeName") {
        for complaint in validation::dns1123_subdomain(nominated) {
            errors.push(FieldError::invalid("status.nominatedNodeName", nominated, complaint));
        }
        if !text_at(old, "/spec/nodeName").is_empty() {
            errors.push(FieldError::forbidden(
                "status.nominatedNodeName",
                "may not be set on pods that are already bound to a node",
            ));
        }
    }
    meta::immutable(old, new, "/status/qosClass", "status.qosClass", errors);
    if text_at(old, "/spec/restartPolicy") != "Always" {
        terminated_stays_terminated(old, new, errors);
    }
}

/// A container that will not be restarted cannot come back to life.
fn terminated_stays_terminated(old: &Value, new: &Value, errors: &mut Errors) {
    let on_failure = text_at(old, "/spec/restartPolicy") == "OnFailure";
    for status in list_at(old, "/status/containerStatuses") {
        let Some(terminated) = status.pointer("/state/terminated").filter(|t| !t.is_null()) else { continue };
        if on_failure && int(terminated, "exitCode").unwrap_or(0) != 0 {
            continue;
        }
        let name = text(status, "name");
        let now = list_at(new, "/status/containerStatuses").iter().find(|s| text(s, "name") == name);
        if let Some(now) = now
            && now.pointer("/state/terminated").is_none_or(Value::is_null)
        {
            errors.push(FieldError::forbidden(
                format!("status.containerStatuses[{name}].state"),
                "may not be transitioned to non-terminated state",
            ));
        }
    }
}
