//! DaemonSets.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Errors, always_restarts, at_most_100_percent, default_spec_template, int_or_percent,
    int_or_percent_value, non_negative,
};
use crate::kinds::meta;
use crate::kinds::pod::{validate_label_selector, validate_template};
use crate::kinds::read::{as_map, obj_mut, semantic_eq, set_default, text};
use crate::kinds::strategy::{Part, Strategy};
use crate::selector::{label_selector, selects};
use crate::status::{FieldError, FieldErrorKind};

/// How often the template changed; old clients read it from here.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(in crate::kinds) const DAEMON_SET: Strategy = Strategy {
    default,
    prepare_create: |object, _| {
        let metadata = obj_mut(object, "metadata");
        let annotations = as_map(metadata.entry("annotations").or_insert_with(|| json!({})));
        annotations.insert(TEMPLATE_GENERATION.into(), json!("1"));
        as_map(object).insert(
            "status".into(),
            json!({
                "currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                "numberMisscheduled": 0, "numberReady": 0,
            }),
        );
    },
    prepare_update: count_template_changes,
    validate: daemon_set,
    validate_update: |old, new, _, errors| {
        meta::immutable(old, new, "/spec/selector", "spec.selector", errors);
        daemon_set(new, errors);
    },
    validate_status: |old, new, errors| super::status::check(old, new, &super::status::DAEMON_SET, errors),
    ..Strategy::SPEC_AND_STATUS
};

fn default(object: &mut Value) {
    // Present from the first moment, so that whoever creates the set owns it.
    let metadata = obj_mut(object, "metadata");
    let annotations = as_map(metadata.entry("annotations").or_insert_with(|| json!({})));
    annotations.entry(TEMPLATE_GENERATION).or_insert_with(|| json!("0"));
    let spec = default_spec_template(object);
    let strategy = as_map(spec.entry("updateStrategy").or_insert_with(|| json!({})));
    set_default(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
        let rolling = as_map(strategy.entry("rollingUpdate").or_insert_with(|| json!({})));
        set_default(rolling, "maxUnavailable", 1);
        set_default(rolling, "maxSurge", 0);
    }
    set_default(spec, "revisionHistoryLimit", 10);
}

fn count_template_changes(old: &Value, new: &mut Value, part: Part, _: Timestamp) {
    if part != Part::Main {
        return;
    }
    let pointer = format!("/metadata/annotations/{TEMPLATE_GENERATION}");
    let before: i64 = old.pointer(&pointer).and_then(Value::as_str).and_then(|s| s.parse().ok()).unwrap_or(1);
    let moved = !semantic_eq(old.pointer("/spec/template"), new.pointer("/spec/template"));
    let now = if moved { before + 1 } else { before };
    let metadata = obj_mut(new, "metadata");
    let annotations = as_map(metadata.entry("annotations").or_insert_with(|| json!({})));
    annotations.insert(TEMPLATE_GENERATION.into(), json!(now.to_string()));
}

fn daemon_set(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    let template = spec.get("template").unwrap_or(&none);
    let selector = spec.get("selector").filter(|s| s.is_object());
    validate_label_selector(selector, "spec.selector", errors);
    let labels = template.pointer("/metadata/labels");
    if let Ok(parsed) = label_selector(selector)
        && !selects(&parsed, labels.and_then(Value::as_object))
    {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels.cloned().unwrap_or_default(),
            "`selector` does not match template `labels`",
        ));
    }
    if let Some(selector) = selector
        && label_selector(Some(selector)).is_ok_and(|s| s.is_everything())
    {
        errors.push(FieldError::invalid(
            "spec.selector",
            selector.clone(),
            "empty selector is invalid for daemonset",
        ));
    }
    validate_template(template, "spec.template", errors);
    always_restarts(template, "DaemonSet", errors);
    non_negative(spec, "minReadySeconds", errors);
    update_strategy(spec.get("updateStrategy").unwrap_or(&none), errors);
    non_negative(spec, "revisionHistoryLimit", errors);
}

fn update_strategy(strategy: &Value, errors: &mut Errors) {
    const PATH: &str = "spec.updateStrategy";
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let Some(rolling) = strategy.get("rollingUpdate").filter(|r| r.is_object()) else {
                errors.push(FieldError::required(format!("{PATH}.rollingUpdate"), ""));
                return;
            };
            let zero = json!(0);
            let unavailable = rolling.get("maxUnavailable").unwrap_or(&zero);
            let surge = rolling.get("maxSurge").unwrap_or(&zero);
            let (at_unavailable, at_surge) =
                (format!("{PATH}.rollingUpdate.maxUnavailable"), format!("{PATH}.rollingUpdate.maxSurge"));
            int_or_percent(unavailable, &at_unavailable, errors);
            int_or_percent(surge, &at_surge, errors);
            at_most_100_percent(unavailable, &at_unavailable, errors);
            at_most_100_percent(surge, &at_surge, errors);
            match (int_or_percent_value(unavailable) != 0, int_or_percent_value(surge) != 0) {
                (true, true) => errors.push(FieldError::invalid(
                    at_surge,
                    surge.clone(),
                    "may not be set when maxUnavailable is non-zero",
                )),
                (false, false) => {
                    errors.push(FieldError::required(at_unavailable, "cannot be 0 when maxSurge is 0"));
                }
                _ => {}
            }
        }
        _ => errors.push(FieldError::new(
            FieldErrorKind::NotSupported,
            PATH,
            Some(strategy.clone()),
            "supported values: \"RollingUpdate\", \"OnDelete\"",
        )),
    }
}
