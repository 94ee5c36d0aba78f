//! Deployments and ReplicaSets.

use serde_json::{Value, json};

use super::{
    Errors, always_restarts, at_most_100_percent, default_spec_template, int_or_percent,
    int_or_percent_value, non_negative, selector, template_matches,
};
use crate::kinds::meta;
use crate::kinds::pod::validate_template;
use crate::kinds::read::{as_map, int, set_default, text};
use crate::kinds::strategy::{Generation, Strategy};
use crate::status::{FieldError, FieldErrorKind};

pub(in crate::kinds) const DEPLOYMENT: Strategy = Strategy {
    default: default_deployment,
    generation: Generation::SpecAndAnnotations,
    validate: deployment,
    validate_update: |old, new, _, errors| {
        deployment(new, errors);
        meta::immutable(old, new, "/spec/selector", "spec.selector", errors);
    },
    validate_status: |old, new, errors| super::status::check(old, new, &super::status::DEPLOYMENT, errors),
    ..Strategy::SPEC_AND_STATUS
};

pub(in crate::kinds) const REPLICA_SET: Strategy = Strategy {
    default: |object| set_default(default_spec_template(object), "replicas", 1),
    prepare_create: |object, _| {
        as_map(object).insert("status".into(), json!({"replicas": 0}));
    },
    validate: replica_set,
    validate_update: |old, new, _, errors| {
        replica_set(new, errors);
        meta::immutable(old, new, "/spec/selector", "spec.selector", errors);
    },
    validate_status: |old, new, errors| super::status::check(old, new, &super::status::REPLICA_SET, errors),
    ..Strategy::SPEC_AND_STATUS
};

fn default_deployment(object: &mut Value) {
    let spec = default_spec_template(object);
    set_default(spec, "replicas", 1);
    let strategy = as_map(spec.entry("strategy").or_insert_with(|| json!({})));
    set_default(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
        let rolling = as_map(strategy.entry("rollingUpdate").or_insert_with(|| json!({})));
        set_default(rolling, "maxUnavailable", "25%");
        set_default(rolling, "maxSurge", "25%");
    }
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
}

fn deployment(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    non_negative(spec, "replicas", errors);
    if let Some(selector) = selector(spec, "deployment", errors) {
        let template = spec.get("template").unwrap_or(&none);
        template_matches(&selector, template, errors);
        validate_template(template, "spec.template", errors);
        always_restarts(template, "ReplicaSet", errors);
    }
    rollout(spec.get("strategy").unwrap_or(&none), errors);
    non_negative(spec, "minReadySeconds", errors);
    non_negative(spec, "revisionHistoryLimit", errors);
    non_negative(spec, "progressDeadlineSeconds", errors);
    if let Some(deadline) = int(spec, "progressDeadlineSeconds")
        && deadline <= int(spec, "minReadySeconds").unwrap_or(0)
    {
        errors.push(FieldError::invalid(
            "spec.progressDeadlineSeconds",
            deadline,
            "must be greater than minReadySeconds",
        ));
    }
}

const UNAVAILABLE: &str = "spec.strategy.rollingUpdate.maxUnavailable";

fn rollout(strategy: &Value, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate").filter(|r| r.is_object());
    match text(strategy, "type") {
        "Recreate" => {
            if rolling.is_some() {
                errors.push(FieldError::forbidden(
                    "spec.strategy.rollingUpdate",
                    "may not be specified when strategy `type` is 'Recreate'",
                ));
            }
        }
        "RollingUpdate" => match rolling {
            None => errors.push(FieldError::required(
                "spec.strategy.rollingUpdate",
                "this should be defaulted and never be nil",
            )),
            Some(rolling) => {
                let zero = json!(0);
                let unavailable = rolling.get("maxUnavailable").unwrap_or(&zero);
                let surge = rolling.get("maxSurge").unwrap_or(&zero);
                int_or_percent(unavailable, UNAVAILABLE, errors);
                int_or_percent(surge, "spec.strategy.rollingUpdate.maxSurge", errors);
                if int_or_percent_value(unavailable) == 0 && int_or_percent_value(surge) == 0 {
                    errors.push(FieldError::invalid(
                        UNAVAILABLE,
                        unavailable.clone(),
                        "may not be 0 when `maxSurge` is 0",
                    ));
                }
                at_most_100_percent(unavailable, UNAVAILABLE, errors);
            }
        },
        _ => errors.push(FieldError::new(
            FieldErrorKind::NotSupported,
            "spec.strategy",
            Some(strategy.clone()),
            "supported values: \"Recreate\", \"RollingUpdate\"",
        )),
    }
}

fn replica_set(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    non_negative(spec, "replicas", errors);
    non_negative(spec, "minReadySeconds", errors);
    if let Some(selector) = selector(spec, "deployment", errors) {
        let template = spec.get("template").unwrap_or(&none);
        template_matches(&selector, template, errors);
        validate_template(template, "spec.template", errors);
        always_restarts(template, "ReplicaSet", errors);
    }
}
