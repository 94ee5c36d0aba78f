//! Checks on what steers scheduling: affinity, tolerations, spread, gates, taints.

use std::collections::BTreeSet;

use evac_apimachinery::validation;
use serde_json::Value;

use super::validate::unique;
use crate::kinds::meta;
use crate::kinds::read::{int, is_set, list, obj, text};
use crate::status::{FieldError, FieldErrorKind};

type Errors = Vec<FieldError>;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn label_key(key: &str, path: &str, errors: &mut Errors) {
    for complaint in validation::qualified_name(key) {
        errors.push(FieldError::invalid(path, key, complaint));
    }
}

/// A `LabelSelector` object.
pub(in crate::kinds) fn label_selector(selector: Option<&Value>, path: &str, errors: &mut Errors) {
    let Some(selector) = selector.filter(|s| s.is_object()) else { return };
    meta::labels(obj(selector, "matchLabels"), &format!("{path}.matchLabels"), errors);
    for (i, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let at = format!("{path}.matchExpressions[{i}]");
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.push(FieldError::required(
                        format!("{at}.values"),
                        "must be specified when `operator` is 'In' or 'NotIn'",
                    ));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.push(FieldError::forbidden(
                        format!("{at}.values"),
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    ));
                }
            }
            other => errors.push(FieldError::invalid(
                format!("{at}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
        label_key(text(expression, "key"), &format!("{at}.key"), errors);
        label_values(values, &at, errors);
    }
}

fn label_values(values: &[Value], path: &str, errors: &mut Errors) {
    for (i, value) in values.iter().filter_map(Value::as_str).enumerate() {
        for complaint in validation::label_value(value) {
            errors.push(FieldError::invalid(format!("{path}.values[{i}]"), value, complaint));
        }
    }
}

/// A `NodeSelector` object (required node affinity of pods and of volumes).
pub(in crate::kinds) fn node_selector(selector: &Value, path: &str, errors: &mut Errors) {
    let terms = list(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(
            format!("{path}.nodeSelectorTerms"),
            "must have at least one node selector term",
        ));
    }
    for (i, term) in terms.iter().enumerate() {
        node_selector_term(term, &format!("{path}.nodeSelectorTerms[{i}]"), true, errors);
    }
}

fn node_selector_term(term: &Value, path: &str, check_values: bool, errors: &mut Errors) {
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        let at = format!("{path}.matchExpressions[{i}]");
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{at}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{at}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::required(
                format!("{at}.values"),
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.push(FieldError::invalid(
                format!("{at}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
        label_key(text(expression, "key"), &format!("{at}.key"), errors);
        if check_values {
            label_values(values, &at, errors);
        }
    }
    for (i, expression) in list(term, "matchFields").iter().enumerate() {
        let at = format!("{path}.matchFields[{i}]");
        match text(expression, "operator") {
            "In" | "NotIn" => {
                if list(expression, "values").len() != 1 {
                    errors.push(FieldError::required(
                        format!("{at}.values"),
                        "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                    ));
                }
            }
            other => errors.push(FieldError::invalid(
                format!("{at}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = text(expression, "key");
        if key != "metadata.name" {
            errors.push(FieldError::invalid(format!("{at}.key"), key, "not a valid field selector key"));
        }
    }
}

fn weight(term: &Value, path: &str, errors: &mut Errors) {
    let weight = int(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(format!("{path}.weight"), weight, "must be in the range 1-100"));
    }
}

pub(super) fn affinity(affinity: Option<&Value>, path: &str, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let Some(affinity) = affinity.filter(|a| a.is_object()) else { return };
    if let Some(node) = affinity.get("nodeAffinity").filter(|n| n.is_object()) {
        let at = format!("{path}.nodeAffinity");
        if let Some(required) = node.get(REQUIRED).filter(|r| r.is_object()) {
            node_selector(required, &format!("{at}.{REQUIRED}"), errors);
        }
        for (i, term) in list(node, PREFERRED).iter().enumerate() {
            let at = format!("{at}.{PREFERRED}[{i}]");
            weight(term, &at, errors);
            if let Some(preference) = term.get("preference") {
                node_selector_term(preference, &format!("{at}.preference"), false, errors);
            }
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.get(kind).filter(|p| p.is_object()) else { continue };
        for (i, term) in list(pods, REQUIRED).iter().enumerate() {
            pod_affinity_term(term, &format!("{path}.{kind}.{REQUIRED}[{i}]"), errors);
        }
        for (i, term) in list(pods, PREFERRED).iter().enumerate() {
            let at = format!("{path}.{kind}.{PREFERRED}[{i}]");
            weight(term, &at, errors);
            let none = Value::Null;
            let inner = term.get("podAffinityTerm").unwrap_or(&none);
            pod_affinity_term(inner, &format!("{at}.podAffinityTerm"), errors);
        }
    }
}

fn pod_affinity_term(term: &Value, path: &str, errors: &mut Errors) {
    label_selector(term.get("labelSelector"), &format!("{path}.labelSelector"), errors);
    label_selector(term.get("namespaceSelector"), &format!("{path}.namespaceSelector"), errors);
    for namespace in list(term, "namespaces").iter().filter_map(Value::as_str) {
        for complaint in validation::dns1123_label(namespace) {
            errors.push(FieldError::invalid(format!("{path}.namespace"), namespace, complaint));
        }
    }
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
    }
    label_key(key, &format!("{path}.topologyKey"), errors);
}

pub(super) fn tolerations(tolerations: &[Value], path: &str, errors: &mut Errors) {
    for (i, toleration) in tolerations.iter().enumerate() {
        let at = |field: &str| format!("{path}[{i}].{field}");
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            label_key(key, &at("key"), errors);
        } else if operator != "Exists" {
            errors.push(FieldError::invalid(
                at("operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
        if is_set(toleration, "tolerationSeconds") && effect != "NoExecute" {
            errors.push(FieldError::invalid(
                at("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            ));
        }
        match operator {
            "Equal" | "" => {
                let complaints = validation::label_value(value);
                if !complaints.is_empty() {
                    errors.push(FieldError::invalid(at("operator"), value, complaints.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    errors.push(FieldError::invalid(
                        at("operator"),
                        value,
                        "value must be empty when `operator` is 'Exists'",
                    ));
                }
            }
            other => {
                errors.push(FieldError::not_supported(at("operator"), other, &["Equal", "Exists"]));
            }
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(at("effect"), effect, &EFFECTS));
        }
    }
}

pub(in crate::kinds) fn taints(taints: &[Value], path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, taint) in taints.iter().enumerate() {
        let at = |field: &str| format!("{path}[{i}].{field}");
        let (key, effect, value) = (text(taint, "key"), text(taint, "effect"), text(taint, "value"));
        label_key(key, &at("key"), errors);
        let complaints = validation::label_value(value);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(at("value"), value, complaints.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(at("effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(at("effect"), effect, &EFFECTS));
        }
        if !seen.insert((key, effect)) {
            errors.push(FieldError::new(
                FieldErrorKind::Duplicate,
                format!("{path}[{i}]"),
                Some(taint.clone()),
                "taints must be unique by key and effect pair",
            ));
        }
    }
}

pub(super) fn spread(constraints: &[Value], path: &str, errors: &mut Errors) {
    for (i, constraint) in constraints.iter().enumerate() {
        let at = |field: &str| format!("{path}[{i}].{field}");
        let skew = int(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.push(FieldError::invalid(at("maxSkew"), skew, "must be greater than zero"));
        }
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.push(FieldError::required(at("topologyKey"), "can not be empty"));
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
            errors.push(FieldError::not_supported(
                at("whenUnsatisfiable"),
                action,
                &["DoNotSchedule", "ScheduleAnyway"],
            ));
        }
        let again = constraints[i + 1..]
            .iter()
            .any(|c| text(c, "topologyKey") == key && text(c, "whenUnsatisfiable") == action);
        if again {
            errors.push(FieldError::duplicate(
                at("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {action}}}"),
            ));
        }
        if let Some(domains) = int(constraint, "minDomains") {
            if domains <= 0 {
                errors.push(FieldError::invalid(at("minDomains"), domains, "must be greater than zero"));
            }
            if action != "DoNotSchedule" {
                errors.push(FieldError::invalid(
                    at("minDomains"),
                    domains,
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"),
                ));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let policy = text(constraint, field);
            if !["", "Honor", "Ignore"].contains(&policy) {
                errors.push(FieldError::not_supported(at(field), policy, &["Honor", "Ignore"]));
            }
        }
        label_selector(constraint.get("labelSelector"), &at("labelSelector"), errors);
    }
}

pub(super) fn gates(gates: &[Value], path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, gate) in gates.iter().enumerate() {
        let name = text(gate, "name");
        label_key(name, &format!("{path}[{i}]"), errors);
        unique(&mut seen, name, format!("{path}[{i}]"), errors);
    }
}
