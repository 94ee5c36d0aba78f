//! Disruption budgets, leases and priority classes.

use serde_json::{Value, json};

use super::meta;
use super::pod::validate_label_selector;
use super::read::{int, is_set, obj_mut, set_default, text};
use super::strategy::Strategy;
use super::workloads::{at_most_100_percent, int_or_percent};
use crate::status::FieldError;

type Errors = Vec<FieldError>;

pub(super) const POD_DISRUPTION_BUDGET: Strategy = Strategy {
    validate: budget,
    validate_update: |_, new, _, errors| budget(new, errors),
    validate_status: |_, new, errors| {
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            meta::non_negative(new, &format!("/status/{field}"), &format!("status.{field}"), errors);
        }
    },
    unconditional_update: false,
    ..Strategy::SPEC_AND_STATUS
};

fn budget(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    if is_set(spec, "minAvailable") && is_set(spec, "maxUnavailable") {
        errors.push(FieldError::invalid(
            "spec",
            spec.clone(),
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = spec.get(field).filter(|v| !v.is_null()) {
            let path = format!("spec.{field}");
            int_or_percent(value, &path, errors);
            at_most_100_percent(value, &path, errors);
        }
    }
    validate_label_selector(spec.get("selector"), "spec.selector", errors);
    let policy = text(spec, "unhealthyPodEvictionPolicy");
    if !["", "AlwaysAllow", "IfHealthyBudget"].contains(&policy) {
        errors.push(FieldError::not_supported(
            "spec.unhealthyPodEvictionPolicy",
            policy,
            &["AlwaysAllow", "IfHealthyBudget"],
        ));
    }
}

pub(super) const LEASE: Strategy = Strategy {
    validate: lease,
    validate_update: |_, new, _, errors| lease(new, errors),
    create_on_update: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

fn lease(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|s| *s <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    if let Some(count) = int(spec, "leaseTransitions").filter(|n| *n < 0) {
        errors.push(FieldError::invalid("spec.leaseTransitions", count, meta::NON_NEGATIVE));
    }
    if !text(spec, "preferredHolder").is_empty() && text(spec, "strategy").is_empty() {
        errors.push(FieldError::forbidden(
            "spec.preferredHolder",
            "may only be specified if `strategy` is defined",
        ));
    }
}

/// What users may give; above it is the system's.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

pub(super) const PRIORITY_CLASS: Strategy = Strategy {
    default: |object| {
        if let Some(map) = object.as_object_mut() {
            set_default(map, "preemptionPolicy", "PreemptLowerPriority");
        }
    },
    prepare_create: |object, _| {
        obj_mut(object, "metadata").insert("generation".into(), json!(1));
    },
    validate: priority_class,
    validate_update: |old, new, _, errors| {
        if int(old, "value") != int(new, "value") {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        meta::immutable(old, new, "/preemptionPolicy", "preemptionPolicy", errors);
    },
    ..Strategy::PLAIN
};

fn priority_class(object: &Value, errors: &mut Errors) {
    let name = meta::name_of(object);
    let value = int(object, "value").unwrap_or(0);
    if name.starts_with("system-") {
        let known = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
        match known.iter().find(|(n, _)| *n == name) {
            Some((_, wanted)) if *wanted == value => {}
            found => {
                let why = match found {
                    Some((_, wanted)) => format!("value of {name} PriorityClass must be {wanted}"),
                    None => format!("{name} is not a known system priority class"),
                };
                errors.push(FieldError::forbidden(
                    "metadata.name",
                    format!(
                        "priority class names with 'system-' prefix are reserved for system use only. \
                         error: {why}"
                    ),
                ));
            }
        }
    } else if value > HIGHEST_USER_PRIORITY {
        errors.push(FieldError::forbidden(
            "value",
            format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"),
        ));
    }
    let policy = text(object, "preemptionPolicy");
    if !["", "Never", "PreemptLowerPriority"].contains(&policy) {
        errors.push(FieldError::not_supported(
            "preemptionPolicy",
            policy,
            &["PreemptLowerPriority", "Never"],
        ));
    }
}
