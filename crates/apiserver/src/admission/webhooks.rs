//! Admission webhooks: which of the registered ones are asked about a request, and what their answers mean.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Review;
use crate::cel::conditions::{Conditions, Verdict};
use crate::kinds::Kind;
use crate::patch::webhook_patch;
use crate::schema::decode::{self, FieldValidation};
use crate::selector::{label_selector, selects};
use crate::server::Api;
use crate::status::{About, ApiError};
use crate::webhooks::Hook;

pub(super) async fn mutate(
    api: &Arc<Api>,
    review: &Review<'_>,
    object: &mut Value,
) -> Result<Vec<String>, ApiError> {
    let hooks = api.webhooks.hooks(&api.store);
    let mut warnings = Vec::new();
    for hook in &hooks.mutating {
        let Some(answer) = ask(api, hook, review, Some(object), &mut warnings).await? else { continue };
        let Some(patch) = answer["patch"].as_str() else { continue };
        let patch = STANDARD.decode(patch).map_err(ApiError::internal)?;
        *object = webhook_patch(object, &patch).map_err(ApiError::internal)?;
        // Other subresources have a kind of their own.
        if matches!(review.subresource, "" | "status") {
            let patched =
                decode::check(object.take(), &review.kind.target(), FieldValidation::Ignore, Vec::new());
            *object = patched.map_err(ApiError::internal)?.object;
        }
        // What a webhook left out is filled in again before the next one looks.
        review.kind.default(object);
    }
    Ok(warnings)
}

pub(super) async fn validate(
    api: &Arc<Api>,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<Vec<String>, ApiError> {
    let hooks = api.webhooks.hooks(&api.store);
    let mut warnings = Vec::new();
    for hook in &hooks.validating {
        ask(api, hook, review, object, &mut warnings).await?;
    }
    Ok(warnings)
}

/// Calls one webhook if it wants to be called; the answer's `response` when it allowed the request.
async fn ask(
    api: &Arc<Api>,
    Hook { config: hook, conditions }: &Hook,
    review: &Review<'_>,
    object: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<Option<Value>, ApiError> {
    if !wants(api, hook, review, object) || !conditions_hold(hook, conditions, review, object)? {
        return Ok(None);
    }
    let name = hook["name"].as_str().unwrap_or_default();
    if review.dry_run && !matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")) {
        return Err(ApiError::bad_request(format!("admission webhook \"{name}\" does not support dry run")));
    }
    let uid = api.ids.uid();
    let request = request(&uid, review, object);
    match api.webhooks.call(hook, request).await {
        Ok(answer) if !is_review(&answer, &uid) && hook["failurePolicy"] == "Ignore" => {
            tracing::warn!(webhook = name, "webhook gave no review and is ignored");
            Ok(None)
        }
        Ok(answer) if !is_review(&answer, &uid) => {
            let part = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
            Err(failed(
                name,
                &format!(
                    "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
                    part("apiVersion"),
                    part("kind")
                ),
            ))
        }
        Ok(answer) => {
            let response = answer["response"].clone();
            for warning in response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                warnings.push(warning.to_owned());
            }
            if response["allowed"] == true {
                return Ok(Some(response));
            }
            Err(denied(name, &response["status"]))
        }
        Err(why) if hook["failurePolicy"] == "Ignore" => {
            tracing::warn!(webhook = name, why, "webhook failed and is ignored");
            Ok(None)
        }
        Err(why) => Err(failed(name, &format!("failed to call webhook: {why}"))),
    }
}

/// Whether the conditions of a webhook let a request through to it. Where that cannot be told, the failure
/// policy decides between refusing the request and not asking.
fn conditions_hold(
    hook: &Value,
    conditions: &Conditions,
    review: &Review<'_>,
    object: Option<&Value>,
) -> Result<bool, ApiError> {
    if conditions.is_empty() {
        return Ok(true);
    }
    match conditions.judge(&request("", review, object)["request"]) {
        Verdict::Wanted => Ok(true),
        Verdict::Unwanted => Ok(false),
        Verdict::Failed(_) if hook["failurePolicy"] == "Ignore" => Ok(false),
        Verdict::Failed(why) => {
            let kind = review.kind;
            let about = About { group: &kind.group, kind: &kind.plural, name: review.name };
            Err(ApiError::forbidden(about, &why))
        }
    }
}

/// Whether an answer is one, and to this request.
fn is_review(answer: &Value, uid: &str) -> bool {
    answer["kind"] == "AdmissionReview"
        && answer["apiVersion"] == "admission.k8s.io/v1"
        && answer["response"]["uid"] == uid
}

fn failed(name: &str, why: &str) -> ApiError {
    ApiError::internal(format!("failed calling webhook \"{name}\": {why}"))
}

/// The refusal of a webhook, with its own status where it gave one.
fn denied(name: &str, status: &Value) -> ApiError {
    let by = format!("admission webhook \"{name}\" denied the request");
    let text = |key: &str| status[key].as_str().unwrap_or_default();
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok()).filter(|c| *c >= 400);
    let mut error = ApiError::new(code.unwrap_or(400), "", message);
    error.reason = text("reason").to_owned().into();
    let details = &status["details"];
    for cause in details["causes"].as_array().into_iter().flatten() {
        let part = |key: &str| cause[key].as_str().unwrap_or_default();
        error = error.with_cause(part("reason"), part("message"), part("field"));
    }
    if let Some(seconds) = details["retryAfterSeconds"].as_u64() {
        error = error.retry_after(seconds as u32);
    }
    error
}

/// The `AdmissionReview` that a webhook gets.
fn request(uid: &str, review: &Review<'_>, object: Option<&Value>) -> Value {
    let kind = review.kind;
    let object_kind = if review.subresource.is_empty() {
        json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
    } else {
        kind.subresource(review.subresource).map_or_else(
            || json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
            |sub| json!({"group": sub.group, "version": sub.version, "kind": sub.kind}),
        )
    };
    let resource = json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
    let mut request = json!({
        "uid": uid,
        "kind": object_kind,
        "resource": resource,
        "requestKind": object_kind,
        "requestResource": resource,
        "operation": review.operation.word(),
        "userInfo": review.identity.user_info(),
        "object": object,
        "oldObject": review.old,
        "dryRun": review.dry_run,
        "options": review.options,
    });
    if !review.name.is_empty() {
        request["name"] = json!(review.name);
    }
    if !review.subresource.is_empty() {
        request["subResource"] = json!(review.subresource);
        request["requestSubResource"] = json!(review.subresource);
    }
    if kind.namespaced {
        request["namespace"] = json!(review.namespace);
    }
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
}

/// Does a webhook want to hear of this?
fn wants(api: &Api, hook: &Value, review: &Review<'_>, object: Option<&Value>) -> bool {
    // Webhook configurations themselves are never reviewed: a broken webhook could not be removed.
    if review.kind.group == "admissionregistration.k8s.io" {
        return false;
    }
    let rules = hook["rules"].as_array();
    rules.is_some_and(|rules| rules.iter().any(|rule| rule_matches(rule, review)))
        && namespace_matches(api, &hook["namespaceSelector"], review, object)
        && object_matches(&hook["objectSelector"], review.old, object)
}

fn rule_matches(rule: &Value, review: &Review<'_>) -> bool {
    let contains = |key: &str, wanted: &str| {
        rule[key].as_array().is_some_and(|list| list.iter().any(|item| item == "*" || item == wanted))
    };
    contains("operations", review.operation.word())
        && contains("apiGroups", &review.kind.group)
        && contains("apiVersions", &review.kind.version)
        && scope_matches(rule["scope"].as_str().unwrap_or("*"), review.kind)
        && rule["resources"].as_array().is_some_and(|list| {
            list.iter()
                .filter_map(Value::as_str)
                .any(|resource| resource_matches(resource, &review.kind.plural, review.subresource))
        })
}

fn scope_matches(scope: &str, kind: &Kind) -> bool {
    match scope {
        "Namespaced" => kind.namespaced,
        "Cluster" => !kind.namespaced,
        _ => true,
    }
}

/// `pods`, `pods/eviction`, `pods/*`, `*/eviction`, `*` (no subresources), `*/*`.
fn resource_matches(rule: &str, plural: &str, subresource: &str) -> bool {
    let (resource, sub) = rule.split_once('/').unwrap_or((rule, ""));
    (resource == "*" || resource == plural) && (sub == subresource || sub == "*")
}

fn namespace_matches(api: &Api, selector: &Value, review: &Review<'_>, object: Option<&Value>) -> bool {
    let Ok(selector) = label_selector(Some(selector).filter(|s| !s.is_null())) else {
        return false;
    };
    // For webhooks an absent selector means everything.
    if selector.is_everything() || selector.is_nothing() {
        return true;
    }
    let is_namespace = review.kind.group.is_empty() && review.kind.plural == "namespaces";
    if is_namespace {
        return selects(&selector, object.or(review.old).and_then(|o| o["metadata"]["labels"].as_object()));
    }
    if !review.kind.namespaced {
        return true;
    }
    let namespace = api.read("namespaces", "", review.namespace).map(|n| n.value()).unwrap_or_default();
    selects(&selector, namespace["metadata"]["labels"].as_object())
}

fn object_matches(selector: &Value, old: Option<&Value>, object: Option<&Value>) -> bool {
    let Ok(selector) = label_selector(Some(selector).filter(|s| !s.is_null())) else {
        return false;
    };
    if selector.is_everything() || selector.is_nothing() {
        return true;
    }
    [old, object].into_iter().flatten().any(|o| selects(&selector, o["metadata"]["labels"].as_object()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_does_not_include_subresources() {
        assert!(resource_matches("*", "pods", ""));
        assert!(!resource_matches("*", "pods", "eviction"));
        assert!(resource_matches("*/*", "pods", "eviction"));
        assert!(resource_matches("pods/eviction", "pods", "eviction"));
        assert!(!resource_matches("pods", "pods", "eviction"));
    }

    #[test]
    fn a_refusal_keeps_the_code_and_says_who_refused() {
        let error = denied("guard.example.com", &json!({"code": 429, "message": "migrating"}));
        assert_eq!((error.code, error.reason.as_ref()), (429, ""));
        assert_eq!(error.message, "admission webhook \"guard.example.com\" denied the request: migrating");
        assert_eq!(denied("x", &Value::Null).code, 400);
    }
}
