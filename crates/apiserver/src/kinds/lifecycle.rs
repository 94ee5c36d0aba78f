//! `lifecycle.k8s.io`: requests to evict, and evictions under way.

use evac_apimachinery::validation;
use serde_json::Value;

use super::meta;
use super::read::{is_set, text};
use super::strategy::Strategy;
use crate::status::FieldError;

type Errors = Vec<FieldError>;

const BASE: Strategy =
    Strategy { status_keeps_metadata: true, unconditional_update: false, ..Strategy::SPEC_AND_STATUS };

pub(super) const EVICTION_REQUEST: Strategy = Strategy {
    validate: |object, errors| {
        target(object, errors);
        for field in ["requester", "intent"] {
            if text(object.get("spec").unwrap_or(&Value::Null), field).is_empty() {
                errors.push(FieldError::required(format!("spec.{field}"), ""));
            }
        }
    },
    validate_update: |old, new, _, errors| {
        target(new, errors);
        meta::immutable(old, new, "/spec/target", "spec.target", errors);
    },
    ..BASE
};

pub(super) const EVICTION: Strategy = Strategy {
    validate: |object, errors| target(object, errors),
    validate_update: |old, new, _, errors| {
        meta::immutable(old, new, "/spec", "spec", errors);
    },
    ..BASE
};

/// Exactly one thing is to be evicted, and it is named.
fn target(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let target = object.pointer("/spec/target").unwrap_or(&none);
    let Some(pod) = target.get("pod").filter(|p| p.is_object()) else {
        errors.push(FieldError::invalid("spec.target", "", "must specify one of: `pod`"));
        return;
    };
    let name = text(pod, "name");
    if name.is_empty() {
        errors.push(FieldError::required("spec.target.pod.name", ""));
    } else {
        for complaint in validation::dns1123_subdomain(name) {
            errors.push(FieldError::invalid("spec.target.pod.name", name, complaint));
        }
    }
    if !is_set(pod, "uid") || text(pod, "uid").is_empty() {
        errors.push(FieldError::required("spec.target.pod.uid", ""));
    }
}
