//! `pods/eviction`: delete a pod if its disruption budget allows it.
//!
//! ```text
//!  finished, pending or terminating ───────────────────────────────▶ delete (budgets do not matter)
//!  more than one budget ──▶ 500
//!  no budget ──────────────────────────────────────────────────────▶ delete
//!  unready and the policy lets unready pods go ────────────────────▶ delete, not charged
//!  otherwise ──▶ charge the budget ──▶ 429 / 403, or ──────────────▶ delete
//! ```
//! The decision is a pure function of the pod and its budgets; the rest of this file carries it out, with
//! the store's revisions guarding against changes in between.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call::Call;
use super::delete::remove;
use super::deletion::DeleteOptions;
use crate::admission::{Operation, Review};
use crate::kinds::Kind;
use crate::kinds::meta::seconds;
use crate::reply::Reply;
use crate::selector::{label_selector, selects};
use crate::server::{Api, about_kind, meta_of, not_found, storage_of};
use crate::status::{About, ApiError, FieldError};
use crate::store::{Expect, Key, Object};

const BUDGETS: &str = "poddisruptionbudgets.policy";
const BUDGET_CAUSE: &str = "DisruptionBudget";
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// More unconfirmed evictions than this mean that the disruption controller is not at work.
const DISRUPTED_PODS_LIMIT: usize = 2000;
/// How often a commit that lost a race is tried again.
const TRIES: usize = 20;

/// What the eviction of a pod comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Budgets do not matter. `guarded`: only while the pod is as it was read.
    Ignored { guarded: bool },
    /// No budget covers it.
    Free,
    /// An unready pod that its budget lets go without a charge.
    Uncharged,
    /// The budget must pay.
    Charge { budget: usize },
    /// More than one budget.
    Ambiguous,
}

/// Decides about a pod given the budgets that select it.
pub fn verdict(pod: &Value, budgets: &[Value]) -> Verdict {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let ended = matches!(phase, "Succeeded" | "Failed") || pod["metadata"].get("deletionTimestamp").is_some();
    if ended || phase == "Pending" {
        return Verdict::Ignored { guarded: !ended };
    }
    let budget = match budgets {
        [] => return Verdict::Free,
        [budget] => budget,
        _ => return Verdict::Ambiguous,
    };
    if !is_ready(pod) {
        if budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
            return Verdict::Uncharged;
        }
        let healthy = budget["status"]["currentHealthy"].as_i64().unwrap_or(0);
        let desired = budget["status"]["desiredHealthy"].as_i64().unwrap_or(0);
        if healthy >= desired && desired > 0 {
            return Verdict::Uncharged;
        }
    }
    Verdict::Charge { budget: 0 }
}

/// Takes one disruption from a budget, or says why there is none.
pub fn charge(budget: &Value, pod: &str, now: jiff::Timestamp) -> Result<Value, ApiError> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let status = &budget["status"];
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(still_processed(name));
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return Err(forbidden(
            name,
            "pdb disruptions allowed is negative",
            "pdb disruptions allowed is negative",
        ));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_PODS_LIMIT) {
        return Err(forbidden(
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        let cause = why_exhausted(name, status);
        return Err(ApiError::too_many_requests(REFUSED, 0).with_cause(BUDGET_CAUSE, cause, ""));
    }
    let mut charged = budget.clone();
    let status = &mut charged["status"];
    status["disruptionsAllowed"] = json!(allowed - 1);
    if allowed == 1 {
        set_condition(status, "DisruptionAllowed", "False", "InsufficientPods", "", now);
        note_in_condition(
            status,
            "DisruptionAllowed",
            "observedGeneration",
            &budget["metadata"]["generation"],
        );
    }
    if !status["disruptedPods"].is_object() {
        status["disruptedPods"] = json!({});
    }
    status["disruptedPods"][pod] = json!(seconds(now));
    Ok(charged)
}

fn why_exhausted(name: &str, status: &Value) -> String {
    let condition = status["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|c| c["type"] == "DisruptionAllowed" && c["status"] == "False"));
    let part = |key: &str| condition.and_then(|c| c[key].as_str()).unwrap_or_default();
    let (healthy, desired) =
        (status["currentHealthy"].as_i64().unwrap_or(0), status["desiredHealthy"].as_i64().unwrap_or(0));
    if part("reason") == "SyncFailed" {
        let message = part("message");
        format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: \
             {message}"
        )
    } else if healthy <= desired {
        format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
    } else if condition.is_some() {
        format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            part("reason"),
            part("message")
        )
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    }
}

fn still_processed(name: &str) -> ApiError {
    ApiError::too_many_requests(REFUSED, 10).with_cause(
        BUDGET_CAUSE,
        format!("The disruption budget {name} is still being processed by the server."),
        "",
    )
}

fn forbidden(name: &str, why: &str, cause: &str) -> ApiError {
    let about = About { group: "policy", kind: "poddisruptionbudget", name };
    ApiError::forbidden(about, why).with_cause(
        BUDGET_CAUSE,
        format!("The disruption budget {name} does not allow evicting pods currently: {cause}"),
        "",
    )
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|list| list.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// Sets a condition; the transition time moves only when the status does.
fn set_condition(
    status: &mut Value,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: jiff::Timestamp,
) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    let at = list.iter().position(|c| c["type"] == kind);
    let mut condition = at.map_or_else(|| json!({"type": kind}), |at| list[at].clone());
    if condition["status"] != value {
        condition["lastTransitionTime"] = json!(seconds(now));
    }
    condition["status"] = json!(value);
    condition["reason"] = json!(reason);
    condition["message"] = json!(message);
    match at {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

fn note_in_condition(status: &mut Value, kind: &str, field: &str, value: &Value) {
    let list = status["conditions"].as_array_mut().into_iter().flatten();
    for condition in list.filter(|c| c["type"] == kind) {
        condition[field] = value.clone();
    }
}

pub async fn evict(api: &Arc<Api>, call: &Call) -> Result<Reply, ApiError> {
    call.query.check_write("CreateOptions")?;
    let decoded = super::typed::eviction(call)?;
    let mut body = decoded.object;
    super::write::place(call, &mut body)?;
    if body["metadata"]["name"].as_str().unwrap_or_default() != call.path.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let wishes = &body["deleteOptions"];
    if wishes["ignoreStoreReadErrorWithClusterBreakingPotential"] == true {
        return Err(ApiError::invalid(
            About { group: "policy", kind: "Eviction", name: &call.path.name },
            &[FieldError::invalid(
                "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential",
                true,
                "can not be set for pod eviction, try after removing the option",
            )],
        ));
    }
    let mut options = DeleteOptions::from_body(wishes);
    if options.dry_run.is_empty() {
        options.dry_run = call.query.dry_run_given().to_vec();
    }
    options.validate()?;
    let review = Review {
        kind: &call.kind,
        subresource: "eviction",
        operation: Operation::Create,
        namespace: &call.path.namespace,
        name: &call.path.name,
        identity: &call.identity,
        dry_run: options.is_dry_run(),
        old: None,
        options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
    };
    let mut warnings = decoded.warnings;
    warnings.extend(crate::admission::mutate(api, &review, &mut body).await?);
    warnings.extend(crate::admission::validate(api, &review, Some(&body)).await?);
    carry_out(api, &call.kind, &call.key(), &call.path.name, &options)?;
    Ok(Reply::json(
        201,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        }),
    )
    .with_warnings(warnings))
}

fn carry_out(api: &Api, kind: &Kind, key: &Key, name: &str, options: &DeleteOptions) -> Result<(), ApiError> {
    let mut last = None;
    for _ in 0..TRIES {
        let stored = api.store.get(&storage_of(kind), key).ok_or_else(|| not_found(kind, name))?;
        let pod = stored.value();
        let budgets = budgets_of(api, &pod);
        let values: Vec<Value> = budgets.iter().map(Object::value).collect();
        let decided = verdict(&pod, &values);
        match decided {
            Verdict::Ambiguous => {
                return Err(ApiError::new(
                    500,
                    "",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
                     support.",
                ));
            }
            Verdict::Charge { budget } => {
                let charged = charge(&values[budget], name, api.now())?;
                if !options.is_dry_run() && !commit_budget(api, &budgets[budget], charged) {
                    continue;
                }
                return condition_and_delete(api, kind, key, name, options, None);
            }
            Verdict::Free => return condition_and_delete(api, kind, key, name, options, None),
            Verdict::Uncharged => {
                let guard = Some(stored.revision);
                return condition_and_delete(api, kind, key, name, options, guard).map_err(|error| {
                    // The pod changed: it may be ready now, and then the budget has a say. Ask again.
                    let ours = options.resource_version.is_none();
                    if error.code == 409 && ours { still_processed(&budgets[0].meta.name) } else { error }
                });
            }
            Verdict::Ignored { guarded } => {
                let guard = (guarded && options.resource_version.is_none()).then_some(stored.revision);
                match condition_and_delete(api, kind, key, name, options, guard) {
                    Err(error) if error.code == 409 && options.resource_version.is_none() && guarded => {
                        last = Some(error);
                    }
                    done => return done,
                }
            }
        }
    }
    Err(last.unwrap_or_else(|| ApiError::modified(about_kind(kind, name))))
}

/// The budgets of the pod's namespace that select it. A selector that cannot be read selects nothing.
fn budgets_of(api: &Api, pod: &Value) -> Vec<Object> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let labels = pod["metadata"]["labels"].as_object();
    api.read_all(BUDGETS, namespace)
        .into_iter()
        .filter(|budget| {
            let value = budget.value();
            let selector = value.pointer("/spec/selector").filter(|s| !s.is_null());
            // A budget without a selector selects nothing; an empty selector selects everything.
            selector.is_some_and(|s| label_selector(Some(s)).is_ok_and(|s| selects(&s, labels)))
        })
        .collect()
}

fn commit_budget(api: &Api, stored: &Object, mut charged: Value) -> bool {
    let kinds = api.kinds();
    let Some(kind) = kinds.by_plural("policy", "v1", "poddisruptionbudgets") else { return false };
    let key = Key::new(&stored.meta.namespace, &stored.meta.name);
    super::ownership::Owner::server(kind, api.now()).track(Some(&stored.value()), &mut charged);
    let meta = meta_of(kind, &charged);
    api.store.put(&storage_of(kind), &key, Expect::Revision(stored.revision), charged, meta).is_ok()
}

/// Marks the pod as a target of disruption and deletes it. `guard`: only at this revision.
fn condition_and_delete(
    api: &Api,
    kind: &Kind,
    key: &Key,
    name: &str,
    options: &DeleteOptions,
    guard: Option<u64>,
) -> Result<(), ApiError> {
    let mut options = options.clone();
    if let Some(revision) = guard {
        options.resource_version = Some(revision.to_string());
    }
    if !options.is_dry_run() {
        let revision = mark_disrupted(api, kind, key, name, &options)?;
        if options.resource_version.is_some() {
            options.resource_version = Some(revision.to_string());
        }
    }
    remove(api, kind, key, &options).map(|_| ())
}

/// Writes the `DisruptionTarget` condition; the answer is the revision of the pod that carries it.
fn mark_disrupted(
    api: &Api,
    kind: &Kind,
    key: &Key,
    name: &str,
    options: &DeleteOptions,
) -> Result<u64, ApiError> {
    loop {
        let stored = api.store.get(&storage_of(kind), key).ok_or_else(|| not_found(kind, name))?;
        let mut pod = stored.value();
        super::deletion::check_preconditions(options, &pod, about_kind(kind, name))?;
        set_condition(
            &mut pod["status"],
            "DisruptionTarget",
            "True",
            "EvictionByEvictionAPI",
            "Eviction API: evicting",
            api.now(),
        );
        note_in_condition(&mut pod["status"], "DisruptionTarget", "lastProbeTime", &Value::Null);
        let meta = meta_of(kind, &pod);
        let expect = Expect::Revision(stored.revision);
        match api.store.put(&storage_of(kind), key, expect, pod, meta) {
            Ok(written) => return Ok(written.revision),
            Err(_) if options.resource_version.is_some() => {
                return Err(ApiError::modified(about_kind(kind, name)));
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        json!({"metadata": {"name": "p"},
               "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn budget(allowed: i64, healthy: i64, desired: i64) -> Value {
        json!({"metadata": {"name": "b", "generation": 1}, "spec": {},
               "status": {"observedGeneration": 1, "disruptionsAllowed": allowed,
                          "currentHealthy": healthy, "desiredHealthy": desired}})
    }

    fn now() -> jiff::Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn finished_and_pending_pods_ignore_budgets() {
        let none = [budget(0, 0, 1)];
        for phase in ["Succeeded", "Failed"] {
            assert_eq!(verdict(&pod(phase, false), &none), Verdict::Ignored { guarded: false });
        }
        assert_eq!(verdict(&pod("Pending", false), &none), Verdict::Ignored { guarded: true });
    }

    #[test]
    fn two_budgets_on_a_pod_are_more_than_the_api_can_do() {
        let two = [budget(1, 2, 1), budget(1, 2, 1)];
        assert_eq!(verdict(&pod("Running", true), &two), Verdict::Ambiguous);
    }

    #[test]
    fn an_unready_pod_goes_free_when_the_rest_is_healthy_enough() {
        assert_eq!(verdict(&pod("Running", false), &[budget(0, 2, 2)]), Verdict::Uncharged);
        assert_eq!(verdict(&pod("Running", false), &[budget(0, 1, 2)]), Verdict::Charge { budget: 0 });
        assert_eq!(verdict(&pod("Running", false), &[budget(0, 0, 0)]), Verdict::Charge { budget: 0 });
        let mut always = budget(0, 0, 2);
        always["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        assert_eq!(verdict(&pod("Running", false), &[always]), Verdict::Uncharged);
    }

    #[test]
    fn a_charge_takes_one_and_remembers_the_pod() {
        let charged = charge(&budget(1, 3, 2), "p", now()).unwrap();
        assert_eq!(charged["status"]["disruptionsAllowed"], 0);
        assert_eq!(charged["status"]["disruptedPods"]["p"], "2026-01-01T00:00:00Z");
        assert_eq!(charged["status"]["conditions"][0]["reason"], "InsufficientPods");
    }

    #[test]
    fn an_exhausted_budget_says_what_it_needs_and_asks_for_no_delay() {
        let error = charge(&budget(0, 2, 2), "p", now()).unwrap_err();
        assert_eq!((error.code, error.details.retry_after_seconds), (429, 0));
        assert_eq!(
            error.details.causes[0].message,
            "The disruption budget b needs 2 healthy pods and has 2 currently"
        );
    }

    #[test]
    fn a_budget_the_controller_has_not_seen_asks_to_come_back() {
        let mut unseen = budget(1, 2, 1);
        unseen["metadata"]["generation"] = json!(2);
        assert_eq!(charge(&unseen, "p", now()).unwrap_err().details.retry_after_seconds, 10);
    }

    #[test]
    fn a_failed_sync_is_quoted() {
        let mut failed = budget(0, 0, 0);
        failed["status"]["conditions"] = json!([{"type": "DisruptionAllowed", "status": "False",
            "reason": "SyncFailed", "message": "no scale"}]);
        let error = charge(&failed, "p", now()).unwrap_err();
        assert!(error.details.causes[0].message.ends_with("failed sync: no scale"));
    }

    #[test]
    fn impossible_budgets_are_forbidden_not_retried() {
        assert_eq!(charge(&budget(-1, 0, 0), "p", now()).unwrap_err().code, 403);
        let mut full = budget(1, 2, 1);
        let many: serde_json::Map<String, Value> =
            (0..=DISRUPTED_PODS_LIMIT).map(|n| (format!("p{n}"), json!("2026-01-01T00:00:00Z"))).collect();
        full["status"]["disruptedPods"] = Value::Object(many);
        assert_eq!(charge(&full, "p", now()).unwrap_err().code, 403);
    }
}
