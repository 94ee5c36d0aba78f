//! Roles and bindings.

use evac_apimachinery::validation::{self, NameRule};
use serde_json::{Map, Value};

use super::meta;
use super::pod::validate_label_selector;
use super::read::{each, list, obj_mut, set_default, text, text_at};
use super::strategy::Strategy;
use crate::status::FieldError;

type Errors = Vec<FieldError>;
const GROUP: &str = "rbac.authorization.k8s.io";

const BASE: Strategy = Strategy { name: NameRule::PathSegment, create_on_update: true, ..Strategy::PLAIN };

pub(super) const ROLE: Strategy =
    Strategy { validate: role, validate_update: |_, new, _, errors| role(new, errors), ..BASE };

pub(super) const ROLE_BINDING: Strategy = Strategy {
    default: default_binding,
    validate: |object, errors| binding(object, true, errors),
    validate_update: |old, new, _, errors| {
        binding(new, true, errors);
        meta::immutable(old, new, "/roleRef", "roleRef", errors);
    },
    ..BASE
};

pub(super) const CLUSTER_ROLE_BINDING: Strategy = Strategy {
    default: default_binding,
    validate: |object, errors| binding(object, false, errors),
    validate_update: |old, new, _, errors| {
        binding(new, false, errors);
        meta::immutable(old, new, "/roleRef", "roleRef", errors);
    },
    ..BASE
};

fn default_binding(object: &mut Value) {
    set_default(obj_mut(object, "roleRef"), "apiGroup", GROUP);
    let subjects = object.as_object_mut().into_iter().flat_map(|map: &mut Map<_, _>| each(map, "subjects"));
    for subject in subjects {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            set_default(subject, "apiGroup", GROUP);
        }
    }
}

fn role(object: &Value, errors: &mut Errors) {
    let mut late = Vec::new();
    let namespaced = text(object, "kind") == "Role";
    for (i, rule) in list(object, "rules").iter().enumerate() {
        let path = format!("rules[{i}]");
        let has = |field: &str| !list(rule, field).is_empty();
        if has("nonResourceURLs") {
            let urls = rule.get("nonResourceURLs").cloned().unwrap_or_default();
            let at = format!("{path}.nonResourceURLs");
            if namespaced {
                errors.push(FieldError::invalid(
                    &at[..],
                    urls.clone(),
                    "namespaced rules cannot apply to non-resource URLs",
                ));
            }
            if has("apiGroups") || has("resources") || has("resourceNames") {
                errors.push(FieldError::invalid(
                    &at[..],
                    urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                ));
            }
            continue;
        }
        if !has("apiGroups") {
            errors.push(FieldError::required(
                format!("{path}.apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if !has("resources") {
            errors.push(FieldError::required(
                format!("{path}.resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
    // Checks that are declared with the type are reported after all others.
    for (i, rule) in list(object, "rules").iter().enumerate() {
        if list(rule, "verbs").is_empty() {
            late.push(FieldError::required(format!("rules[{i}].verbs"), ""));
        }
    }
    if let Some(rule) = object.get("aggregationRule").filter(|r| r.is_object()) {
        let selectors = list(rule, "clusterRoleSelectors");
        if selectors.is_empty() {
            errors.push(FieldError::required(
                "aggregationRule.clusterRoleSelectors",
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            ));
        }
        for (i, selector) in selectors.iter().enumerate() {
            validate_label_selector(
                Some(selector),
                &format!("aggregationRule.clusterRoleSelectors[{i}]"),
                errors,
            );
        }
    }
    errors.append(&mut late);
}

fn binding(object: &Value, namespaced: bool, errors: &mut Errors) {
    let group = text_at(object, "/roleRef/apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", group, &[GROUP]));
    }
    let kind = text_at(object, "/roleRef/kind");
    let valid: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !valid.contains(&kind) {
        errors.push(FieldError::not_supported("roleRef.kind", kind, valid));
    }
    let name = text_at(object, "/roleRef/name");
    let mut late = Vec::new();
    if name.is_empty() {
        late.push(FieldError::required("roleRef.name", ""));
    } else {
        for complaint in validation::path_segment(name) {
            errors.push(FieldError::invalid("roleRef.name", name, complaint));
        }
    }
    for (i, subject) in list(object, "subjects").iter().enumerate() {
        self::subject(subject, namespaced, &format!("subjects[{i}]"), errors);
        if text(subject, "name").is_empty() {
            late.push(FieldError::required(format!("subjects[{i}].name"), ""));
        }
    }
    errors.append(&mut late);
}

fn subject(subject: &Value, namespaced: bool, path: &str, errors: &mut Errors) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                for complaint in validation::dns1123_subdomain(name) {
                    errors.push(FieldError::invalid(format!("{path}.name"), name, complaint));
                }
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), group, &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), group, &[GROUP]));
            }
        }
        other => errors.push(FieldError::not_supported(
            format!("{path}.kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        )),
    }
}
