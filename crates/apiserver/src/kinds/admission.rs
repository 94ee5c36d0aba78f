//! Webhook configurations and admission policies.

use std::collections::BTreeSet;

use evac_apimachinery::validation;
use serde_json::{Map, Value, json};

use super::pod::validate_label_selector;
use super::read::{as_map, child, each, int, is_set, list, obj_mut, set_default, text};
use super::strategy::{Generation, Strategy};
use crate::cel::conditions::{self, Complaint};
use crate::status::{FieldError, FieldErrorKind};

type Errors = Vec<FieldError>;

const BASE: Strategy = Strategy {
    generation: Generation::Fields(&["webhooks"]),
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(super) const VALIDATING: Strategy = Strategy {
    default: |object| default_webhooks(object, false),
    validate: webhooks,
    validate_update: |_, new, _, errors| webhooks(new, errors),
    ..BASE
};

pub(super) const MUTATING: Strategy = Strategy {
    default: |object| default_webhooks(object, true),
    validate: webhooks,
    validate_update: |_, new, _, errors| webhooks(new, errors),
    ..BASE
};

pub(super) const POLICY: Strategy = Strategy {
    default: |object| {
        let spec = obj_mut(object, "spec");
        set_default(spec, "failurePolicy", "Fail");
        if let Some(resources) = child(spec, "matchConstraints") {
            default_match_resources(resources);
        }
    },
    status_keeps_metadata: true,
    unconditional_update: false,
    ..Strategy::SPEC_AND_STATUS
};

pub(super) const POLICY_BINDING: Strategy = Strategy {
    default: |object| {
        if let Some(resources) = child(obj_mut(object, "spec"), "matchResources") {
            default_match_resources(resources);
        }
    },
    generation: Generation::Fields(&["spec"]),
    unconditional_update: false,
    ..Strategy::PLAIN
};

fn default_match_resources(resources: &mut Map<String, Value>) {
    set_default(resources, "matchPolicy", "Equivalent");
    set_default(resources, "namespaceSelector", json!({}));
    set_default(resources, "objectSelector", json!({}));
    for rules in ["resourceRules", "excludeResourceRules"] {
        for rule in each(resources, rules) {
            set_default(rule, "scope", "*");
        }
    }
}

fn default_webhooks(object: &mut Value, mutating: bool) {
    for hook in each(as_map(object), "webhooks") {
        set_default(hook, "failurePolicy", "Fail");
        set_default(hook, "matchPolicy", "Equivalent");
        set_default(hook, "namespaceSelector", json!({}));
        set_default(hook, "objectSelector", json!({}));
        set_default(hook, "timeoutSeconds", 10);
        if mutating {
            set_default(hook, "reinvocationPolicy", "Never");
        }
        if let Some(service) = child(hook, "clientConfig").and_then(|c| child(c, "service")) {
            set_default(service, "port", 443);
        }
        for rule in each(hook, "rules") {
            set_default(rule, "scope", "*");
        }
    }
}

fn webhooks(object: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, hook) in list(object, "webhooks").iter().enumerate() {
        let path = format!("webhooks[{i}]");
        webhook(hook, &path, errors);
        review_versions(hook, &format!("{path}.admissionReviewVersions"), errors);
        let name = text(hook, "name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
    }
}

fn webhook(hook: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let name = text(hook, "name");
    if name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    } else {
        let complaints = validation::dns1123_subdomain(name);
        if complaints.is_empty() && name.split('.').count() < 3 {
            errors.push(FieldError::invalid(
                at("name"),
                name,
                "should be a domain with at least three segments separated by dots",
            ));
        }
        errors.extend(complaints.into_iter().map(|c| FieldError::invalid(at("name"), name, c)));
    }
    for (i, rule) in list(hook, "rules").iter().enumerate() {
        self::rule(rule, &format!("{path}.rules[{i}]"), errors);
    }
    for (field, valid) in [
        ("failurePolicy", ["Fail", "Ignore"]),
        ("matchPolicy", ["Equivalent", "Exact"]),
        ("reinvocationPolicy", ["IfNeeded", "Never"]),
    ] {
        let value = text(hook, field);
        if !value.is_empty() && !valid.contains(&value) {
            errors.push(FieldError::not_supported(at(field), value, &valid));
        }
    }
    match text(hook, "sideEffects") {
        "" => errors.push(FieldError::required(at("sideEffects"), "must specify one of None, NoneOnDryRun")),
        "None" | "NoneOnDryRun" => {}
        other => {
            errors.push(FieldError::not_supported(at("sideEffects"), other, &["None", "NoneOnDryRun"]));
        }
    }
    if let Some(seconds) = int(hook, "timeoutSeconds").filter(|s| !(1..=30).contains(s)) {
        errors.push(FieldError::invalid(
            at("timeoutSeconds"),
            seconds,
            "the timeout value must be between 1 and 30 seconds",
        ));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        validate_label_selector(hook.get(field), &at(field), errors);
    }
    conditions(hook, &at("matchConditions"), errors);
    client(hook.get("clientConfig").unwrap_or(&Value::Null), &at("clientConfig"), errors);
}

fn conditions(hook: &Value, path: &str, errors: &mut Errors) {
    let conditions = list(hook, "matchConditions");
    if conditions.len() > 64 {
        let many = FieldErrorKind::TooMany;
        let detail = "must have at most 64 items";
        errors.push(FieldError::new(many, path, Some(conditions.len().into()), detail));
    }
    let mut seen = BTreeSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let at = |field: &str| format!("{path}[{i}].{field}");
        let expression = text(condition, "expression").trim();
        if expression.is_empty() {
            errors.push(FieldError::required(at("expression"), ""));
        } else if let Err(Complaint::Invalid(why)) = conditions::check(expression) {
            errors.push(FieldError::invalid(at("expression"), expression, why));
        }
        let name = text(condition, "name");
        if name.is_empty() {
            errors.push(FieldError::required(at("name"), ""));
            continue;
        }
        let complaints = validation::qualified_name(name);
        errors.extend(complaints.into_iter().map(|c| FieldError::invalid(at("name"), name, c)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(at("name"), name));
        }
    }
}

/// What the match conditions of a configuration need that this server does not have.
pub fn missing_for_conditions(object: &Value) -> Option<String> {
    let hooks = list(object, "webhooks").iter();
    let mut conditions = hooks.flat_map(|hook| list(hook, "matchConditions"));
    conditions.find_map(|condition| match conditions::check(text(condition, "expression").trim()) {
        Err(Complaint::Missing(what)) => Some(what),
        _ => None,
    })
}

fn client(config: &Value, path: &str, errors: &mut Errors) {
    match (is_set(config, "url"), config.get("service").filter(|s| s.is_object())) {
        (true, None) => {
            let url = text(config, "url");
            if !url.starts_with("https://") {
                errors.push(FieldError::invalid(
                    format!("{path}.url"),
                    url.split("://").next().unwrap_or(""),
                    "'https' is the only allowed URL scheme; desired format: https://host[/path]",
                ));
            }
        }
        (false, Some(service)) => {
            for (field, wording) in
                [("name", "service name is required"), ("namespace", "service namespace is required")]
            {
                if text(service, field).is_empty() {
                    errors.push(FieldError::required(format!("{path}.service.{field}"), wording));
                }
            }
            let port = int(service, "port").unwrap_or(443);
            if !validation::port_number(port).is_empty() {
                errors.push(FieldError::invalid(
                    format!("{path}.service.port"),
                    port,
                    "port is not valid: must be between 1 and 65535, inclusive",
                ));
            }
        }
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn review_versions(hook: &Value, path: &str, errors: &mut Errors) {
    let versions = list(hook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, version) in versions.iter().filter_map(Value::as_str).enumerate() {
        if !seen.insert(version) {
            errors.push(FieldError::invalid(format!("{path}[{i}]"), version, "duplicate version"));
            continue;
        }
        for complaint in validation::dns1035_label(version) {
            errors.push(FieldError::invalid(format!("{path}[{i}]"), version, complaint));
        }
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        errors.push(FieldError::invalid(path, versions.to_vec(), "must include at least one of v1, v1beta1"));
    }
}

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

fn rule(rule: &Value, path: &str, errors: &mut Errors) {
    let wildcard = |values: &[Value]| values.len() > 1 && values.iter().any(|v| v == "*");
    for (field, what) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let values = list(rule, field);
        let at = format!("{path}.{field}");
        if values.is_empty() {
            errors.push(FieldError::required(&at[..], ""));
        }
        if wildcard(values) {
            errors.push(FieldError::invalid(
                &at[..],
                values.to_vec(),
                format!("if '*' is present, must not specify other {what}"),
            ));
        }
        if field == "operations" {
            for (i, operation) in values.iter().filter_map(Value::as_str).enumerate() {
                if !OPERATIONS.contains(&operation) {
                    errors.push(FieldError::not_supported(format!("{at}[{i}]"), operation, &OPERATIONS));
                }
            }
        }
    }
    if list(rule, "resources").is_empty() {
        errors.push(FieldError::required(format!("{path}.resources"), ""));
    }
    let scope = text(rule, "scope");
    if !["", "*", "Cluster", "Namespaced"].contains(&scope) {
        errors.push(FieldError::not_supported(
            format!("{path}.scope"),
            scope,
            &["*", "Cluster", "Namespaced"],
        ));
    }
}
