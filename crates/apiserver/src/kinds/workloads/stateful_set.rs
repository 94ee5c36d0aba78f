//! StatefulSets.

use evac_apimachinery::validation::{self, NameRule};
use serde_json::{Value, json};

use super::{Errors, always_restarts, default_spec_template, non_negative, selector, template_matches};
use crate::kinds::meta;
use crate::kinds::pod::validate_template;
use crate::kinds::read::{as_map, each, int, list, set_default, text};
use crate::kinds::strategy::Strategy;
use crate::status::FieldError;

pub(in crate::kinds) const STATEFUL_SET: Strategy = Strategy {
    default,
    prepare_create: |object, _| {
        as_map(object).insert("status".into(), json!({"replicas": 0, "availableReplicas": 0}));
    },
    validate: stateful_set,
    validate_update: |old, new, _, errors| {
        stateful_set(new, errors);
        for field in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
            meta::immutable(old, new, &format!("/spec/{field}"), &format!("spec.{field}"), errors);
        }
    },
    name: NameRule::Label,
    validate_status: |old, new, errors| super::status::check(old, new, &super::status::STATEFUL_SET, errors),
    ..Strategy::SPEC_AND_STATUS
};

fn default(object: &mut Value) {
    let spec = default_spec_template(object);
    set_default(spec, "podManagementPolicy", "OrderedReady");
    let strategy = as_map(spec.entry("updateStrategy").or_insert_with(|| json!({})));
    if strategy.get("type").and_then(Value::as_str).unwrap_or("").is_empty() {
        strategy.insert("type".into(), json!("RollingUpdate"));
        set_default(strategy, "rollingUpdate", json!({}));
    }
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
        && let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut)
    {
        set_default(rolling, "partition", 0);
        set_default(rolling, "maxUnavailable", 1);
    }
    let retention = as_map(spec.entry("persistentVolumeClaimRetentionPolicy").or_insert_with(|| json!({})));
    set_default(retention, "whenDeleted", "Retain");
    set_default(retention, "whenScaled", "Retain");
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    for claim in each(spec, "volumeClaimTemplates") {
        set_default(claim, "apiVersion", "v1");
        set_default(claim, "kind", "PersistentVolumeClaim");
        let inner = as_map(claim.entry("spec").or_insert_with(|| json!({})));
        set_default(inner, "volumeMode", "Filesystem");
        let status = as_map(claim.entry("status").or_insert_with(|| json!({})));
        set_default(status, "phase", "Pending");
    }
}

fn stateful_set(object: &Value, errors: &mut Errors) {
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    match text(spec, "podManagementPolicy") {
        "" => errors.push(FieldError::required("spec.podManagementPolicy", "")),
        "OrderedReady" | "Parallel" => {}
        other => errors.push(FieldError::invalid(
            "spec.podManagementPolicy",
            other,
            "must be 'OrderedReady' or 'Parallel'",
        )),
    }
    update_strategy(spec.get("updateStrategy").unwrap_or(&none), errors);
    non_negative(spec, "replicas", errors);
    non_negative(spec, "minReadySeconds", errors);
    meta::non_negative(spec, "/ordinals/start", "spec.ordinals.start", errors);
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        for complaint in validation::dns1123_label(service) {
            errors.push(FieldError::invalid("spec.serviceName", service, complaint));
        }
    }
    if let Some(selector) = selector(spec, "statefulset", errors) {
        let template = with_claim_volumes(spec);
        template_matches(&selector, &template, errors);
        validate_template(&template, "spec.template", errors);
    }
    always_restarts(spec.get("template").unwrap_or(&none), "StatefulSet", errors);
}

fn update_strategy(strategy: &Value, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate").filter(|r| r.is_object());
    match text(strategy, "type") {
        "" => errors.push(FieldError::required("spec.updateStrategy", "")),
        "OnDelete" => {
            if let Some(rolling) = rolling {
                errors.push(FieldError::invalid(
                    "spec.updateStrategy.rollingUpdate",
                    rolling.clone(),
                    "only allowed for updateStrategy 'RollingUpdate'",
                ));
            }
        }
        "RollingUpdate" => {
            if let Some(partition) = rolling.and_then(|r| int(r, "partition")).filter(|p| *p < 0) {
                errors.push(FieldError::invalid(
                    "spec.updateStrategy.rollingUpdate.partition",
                    partition,
                    meta::NON_NEGATIVE,
                ));
            }
            if let Some(unavailable) = rolling.and_then(|r| r.get("maxUnavailable")) {
                const PATH: &str = "spec.updateStrategy.rollingUpdate.maxUnavailable";
                super::int_or_percent(unavailable, PATH, errors);
                if super::int_or_percent_value(unavailable) == 0 {
                    errors.push(FieldError::invalid(PATH, unavailable.clone(), "cannot be 0"));
                }
                super::at_most_100_percent(unavailable, PATH, errors);
            }
        }
        _ => errors.push(FieldError::invalid(
            "spec.updateStrategy",
            strategy.clone(),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
}

/// The template with a volume for each claim template, because mounts may name those; host name and
/// subdomain are set by the controller and not checked.
fn with_claim_volumes(spec: &Value) -> Value {
    let mut template = spec.get("template").cloned().unwrap_or_default();
    let claims: Vec<Value> = list(spec, "volumeClaimTemplates")
        .iter()
        .map(|claim| {
            let name = claim.pointer("/metadata/name").cloned().unwrap_or_default();
            json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    let Some(inner) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    inner.remove("hostname");
    inner.remove("subdomain");
    if !claims.is_empty() {
        let mut volumes = claims.clone();
        let own = inner.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        volumes.extend(own.into_iter().filter(|v| !claims.iter().any(|c| c["name"] == v["name"])));
        inner.insert("volumes".into(), Value::Array(volumes));
    }
    template
}
