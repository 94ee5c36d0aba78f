//! Workloads: what makes pods from a template.

use evac_apimachinery::labels::Selector;
use evac_apimachinery::validation;
use serde_json::{Map, Value, json};

use super::fields::{self, Unsupported};
use super::meta;
use super::pod::{default_template, validate_label_selector, validate_template};
use super::read::{as_map, int, is_set, obj, obj_mut, set_default, text_at};
use super::strategy::{Generation, Strategy};
use crate::selector::{label_selector, plain_selector, selects};
use crate::status::FieldError;

mod daemon_set;
mod deployment;
mod job;
mod stateful_set;
mod status;
#[cfg(test)]
mod tests;

pub(super) use daemon_set::DAEMON_SET;
pub(super) use deployment::{DEPLOYMENT, REPLICA_SET};
pub(super) use job::{CRON_JOB, JOB};
pub(super) use stateful_set::STATEFUL_SET;

type Errors = Vec<FieldError>;

pub(super) const POD_TEMPLATE: Strategy = Strategy {
    default: |object| default_template(as_map(object).entry("template").or_insert_with(|| json!({}))),
    generation: Generation::Fields(&["template"]),
    validate: |object, errors| {
        validate_template(object.get("template").unwrap_or(&Value::Null), "template", errors);
    },
    validate_update: |_, new, _, errors| {
        validate_template(new.get("template").unwrap_or(&Value::Null), "template", errors);
    },
    ..Strategy::PLAIN
};

pub(super) const CONTROLLER_REVISION: Strategy = Strategy {
    validate: |object, errors| {
        meta::non_negative(object, "/revision", "revision", errors);
        if !is_set(object, "data") {
            errors.push(FieldError::required("data", "data is mandatory"));
        }
    },
    validate_update: |old, new, _, errors| {
        meta::non_negative(new, "/revision", "revision", errors);
        meta::immutable(old, new, "/data", "data", errors);
    },
    ..Strategy::PLAIN
};

pub(super) const REPLICATION_CONTROLLER: Strategy = Strategy {
    default: |object| {
        let labels = object.pointer("/spec/template/metadata/labels").cloned();
        if let Some(labels) = labels.filter(|l| l.as_object().is_some_and(|l| !l.is_empty())) {
            let is_empty = |v: Option<&Value>| v.and_then(Value::as_object).is_none_or(Map::is_empty);
            if is_empty(object.pointer("/spec/selector")) {
                obj_mut(object, "spec").insert("selector".into(), labels.clone());
            }
            if is_empty(object.pointer("/metadata/labels")) {
                obj_mut(object, "metadata").insert("labels".into(), labels);
            }
        }
        set_default(obj_mut(object, "spec"), "replicas", 1);
        if let Some(template) = object.pointer_mut("/spec/template") {
            default_template(template);
        }
    },
    prepare_create: |object, _| {
        as_map(object).insert("status".into(), json!({"replicas": 0}));
    },
    validate: replication_controller,
    validate_update: |_, new, _, errors| replication_controller(new, errors),
    fields: fields::REPLICATION_CONTROLLER,
    unsupported: Unsupported::Label,
    validate_status: |old, new, errors| status::check(old, new, &status::REPLICA_SET, errors),
    ..Strategy::SPEC_AND_STATUS
};

fn replication_controller(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    meta::non_negative(spec, "/minReadySeconds", "spec.minReadySeconds", errors);
    meta::non_negative(spec, "/replicas", "spec.replicas", errors);
    if obj(spec, "selector").is_none_or(Map::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    match spec.get("template").filter(|t| t.is_object()) {
        None => errors.push(FieldError::required("spec.template", "")),
        Some(template) => {
            let selector = plain_selector(obj(spec, "selector"));
            template_matches(&selector, template, errors);
            validate_template(template, "spec.template", errors);
            always_restarts(template, "ReplicationController", errors);
        }
    }
}

/// Defaults of the template at `spec.template`.
fn default_spec_template(object: &mut Value) -> &mut Map<String, Value> {
    let spec = obj_mut(object, "spec");
    default_template(spec.entry("template").or_insert_with(|| json!({})));
    spec
}

/// `spec.selector` must be there, be well formed and not be empty; gives it for matching.
fn selector(spec: &Value, empty: &str, errors: &mut Errors) -> Option<Selector> {
    match spec.get("selector").filter(|s| s.is_object()) {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => {
            validate_label_selector(Some(selector), "spec.selector", errors);
            let size = |field| {
                obj(selector, field).map_or(0, Map::len)
                    + selector.get(field).and_then(Value::as_array).map_or(0, Vec::len)
            };
            if size("matchLabels") + size("matchExpressions") == 0 {
                errors.push(FieldError::invalid(
                    "spec.selector",
                    selector.clone(),
                    format!("empty selector is invalid for {empty}"),
                ));
            }
        }
    }
    let Ok(parsed) = label_selector(spec.get("selector")) else {
        errors.push(FieldError::invalid(
            "spec.selector",
            spec.get("selector").cloned().unwrap_or_default(),
            "invalid label selector",
        ));
        return None;
    };
    Some(parsed)
}

fn template_matches(selector: &Selector, template: &Value, errors: &mut Errors) {
    let labels = template.pointer("/metadata/labels");
    if !selector.is_everything() && !selects(selector, labels.and_then(Value::as_object)) {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels.cloned().unwrap_or_default(),
            "`selector` does not match template `labels`",
        ));
    }
}

/// Pods of a controller that keeps a number of them running are always restarted.
fn always_restarts(template: &Value, kind: &str, errors: &mut Errors) {
    let policy = text_at(template, "/spec/restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    if template.pointer("/spec/activeDeadlineSeconds").is_some_and(|v| !v.is_null()) {
        errors.push(FieldError::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        ));
    }
}

/// A number that is not negative, or a percentage.
pub(super) fn int_or_percent(value: &Value, path: &str, errors: &mut Errors) {
    match value {
        Value::String(text) => {
            for complaint in validation::percent(text) {
                errors.push(FieldError::invalid(path, text.as_str(), complaint));
            }
        }
        number => {
            if let Some(n) = number.as_i64().filter(|n| *n < 0) {
                errors.push(FieldError::invalid(path, n, meta::NON_NEGATIVE));
            }
        }
    }
}

pub(super) fn at_most_100_percent(value: &Value, path: &str, errors: &mut Errors) {
    if let Some(percent) = percent_of(value)
        && percent > 100
    {
        errors.push(FieldError::invalid(path, value.clone(), "must not be greater than 100%"));
    }
}

fn percent_of(value: &Value) -> Option<i64> {
    let text = value.as_str()?;
    if validation::percent(text).is_empty() { text.strip_suffix('%')?.parse().ok() } else { None }
}

/// The number itself or the number before the percent sign.
fn int_or_percent_value(value: &Value) -> i64 {
    percent_of(value).or_else(|| value.as_i64()).unwrap_or(0)
}

fn non_negative(spec: &Value, field: &str, errors: &mut Errors) {
    if let Some(n) = int(spec, field).filter(|n| *n < 0) {
        errors.push(FieldError::invalid(format!("spec.{field}"), n, meta::NON_NEGATIVE));
    }
}
