//! The disruption controller: how many pods each budget allows to be evicted now.

pub mod stale;
mod sums;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};

use self::sums::Expected;
use crate::actor::{Out, View};
use crate::effects::Write;
use crate::events::{Notice, event};
use crate::kinds::Kind;
use crate::objects::{Key, deleting, later, name, ready, selector_problem, selects, time};

/// How long an eviction that was granted is taken to be under way.
pub const DELETION_SECONDS: i64 = 120;
const COMPONENT: &str = "controllermanager";
const CONDITION: &str = "DisruptionAllowed";

pub fn sync(view: View<'_>, key: &Key, out: &mut Out) {
    let Some(budget) = view.mirror.budgets.get(key) else { return };
    let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
    let about = |out: &mut Out, warning: bool, reason: &str, message: &str| {
        let notice = Notice { component: COMPONENT, warning, reason, message };
        out.write(event(Kind::PodDisruptionBudget, &budget.metadata, notice, view.now));
    };
    if let Some(problem) = selector.and_then(selector_problem) {
        about(out, true, "NoPods", &format!("Failed to get pods: {problem}"));
        fail_safe(view, key, budget, &problem, out);
        return;
    }
    let pods = matching(view, key, selector);
    if pods.is_empty() {
        about(out, false, "NoPods", "No matching pods found");
    }
    let expected = match sums::expected(view, budget, &pods, out) {
        Expected::Ask => return,
        Expected::Sum(sum) => sum,
        Expected::Failed(problem) => {
            let text = format!("Failed to calculate the number of expected pods: {problem}");
            about(out, true, "CalculateExpectedPodCountFailed", &text);
            fail_safe(view, key, budget, &problem, out);
            return;
        }
    };
    if !expected.unmanaged.is_empty() {
        let text = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
             status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
             for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
            show(selector)
        );
        about(out, true, "UnmanagedPods", &text);
    }
    let disrupted = under_way(view, budget, &pods, out);
    let healthy = pods
        .iter()
        .filter(|p| !deleting(&p.metadata) && !disrupted.contains_key(name(&p.metadata)) && ready(p))
        .count() as i32;
    let mut allowed = healthy - expected.desired;
    if expected.count <= 0 || allowed <= 0 {
        allowed = 0;
    }
    write_status(
        view,
        key,
        budget,
        &Numbers { healthy, allowed, expected: expected.count, desired: expected.desired },
        disrupted,
        out,
    );
}

fn show(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: Vec<String> =
        selector.match_labels.iter().flatten().map(|(k, v)| format!("{k}:{v}")).collect();
    let expressions: Vec<String> = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|r| {
            let values = r.values.as_deref().unwrap_or_default().join(" ");
            format!("{{Key:{},Operator:{},Values:[{values}],}}", r.key, r.operator)
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.iter().map(|l| l.replacen(':', ": ", 1) + ",").collect::<String>(),
        expressions.iter().map(|e| e.clone() + ",").collect::<String>(),
    )
}

fn matching(view: View<'_>, key: &Key, selector: Option<&LabelSelector>) -> Vec<Arc<Pod>> {
    view.mirror
        .pods
        .in_namespace(&key.namespace)
        .filter(|p| selects(selector, p.metadata.labels.as_ref()))
        .cloned()
        .collect()
}

/// Evictions that were granted and have not become deletions yet. Entries that lapsed are dropped.
fn under_way(
    view: View<'_>,
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    out: &mut Out,
) -> BTreeMap<String, Time> {
    let mut live = BTreeMap::new();
    let held = budget.status.as_ref().and_then(|s| s.disrupted_pods.as_ref());
    for pod in pods.iter().filter(|p| !deleting(&p.metadata)) {
        let Some(since) = held.and_then(|h| h.get(name(&pod.metadata))) else { continue };
        let lapses = later(since.0, DELETION_SECONDS);
        if lapses < view.now {
            let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
            let text = format!(
                "Pod was expected by PDB {namespace}/{} to be deleted but it wasn't",
                name(&budget.metadata)
            );
            out.write(event(
                Kind::Pod,
                &pod.metadata,
                Notice::warning(COMPONENT, "NotDeleted", &text),
                view.now,
            ));
        } else {
            out.again_at(later(since.0, DELETION_SECONDS + 1));
            live.insert(name(&pod.metadata).to_owned(), since.clone());
        }
    }
    live
}

struct Numbers {
    healthy: i32,
    desired: i32,
    expected: i32,
    allowed: i32,
}

/// Sets one condition and leaves the others as they are.
fn set_condition(
    held: Option<&Vec<Condition>>,
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> Vec<Condition> {
    let mut conditions = held.cloned().unwrap_or_default();
    let old = conditions.iter().position(|c| c.type_ == CONDITION);
    let since =
        old.map(|i| &conditions[i]).filter(|c| c.status == status).map(|c| c.last_transition_time.clone());
    let next = Condition {
        type_: CONDITION.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since.unwrap_or_else(|| time(now)),
    };
    match old {
        Some(i) => conditions[i] = next,
        None => conditions.push(next),
    }
    conditions
}

fn write_status(
    view: View<'_>,
    key: &Key,
    budget: &PodDisruptionBudget,
    numbers: &Numbers,
    disrupted: BTreeMap<String, Time>,
    out: &mut Out,
) {
    let held = budget.status.clone().unwrap_or_default();
    let (status, reason) =
        if numbers.allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let generation = budget.metadata.generation;
    let next = PodDisruptionBudgetStatus {
        current_healthy: Some(numbers.healthy),
        desired_healthy: Some(numbers.desired),
        expected_pods: Some(numbers.expected),
        disruptions_allowed: Some(numbers.allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: generation,
        conditions: Some(set_condition(held.conditions.as_ref(), status, reason, "", generation, view.now)),
    };
    let held =
        PodDisruptionBudgetStatus { disrupted_pods: held.disrupted_pods.filter(|d| !d.is_empty()), ..held };
    if next == held {
        // Nothing to say: events repeat only what has been said before.
        out.writes.retain(|w| !w.optional);
    } else {
        let body = PodDisruptionBudget { status: Some(next), ..PodDisruptionBudget::clone(budget) };
        out.write(Write::status(Kind::PodDisruptionBudget, key.clone(), &body));
    }
}

/// When the sums cannot be made, nothing is allowed; the rest of the status stays as it was.
fn fail_safe(view: View<'_>, key: &Key, budget: &PodDisruptionBudget, problem: &str, out: &mut Out) {
    let held = budget.status.clone().unwrap_or_default();
    let observed = Some(held.observed_generation.unwrap_or(0));
    let next = PodDisruptionBudgetStatus {
        disruptions_allowed: Some(0),
        current_healthy: Some(held.current_healthy.unwrap_or(0)),
        desired_healthy: Some(held.desired_healthy.unwrap_or(0)),
        expected_pods: Some(held.expected_pods.unwrap_or(0)),
        conditions: Some(set_condition(
            held.conditions.as_ref(),
            "False",
            "SyncFailed",
            problem,
            observed,
            view.now,
        )),
        ..held.clone()
    };
    if next == held {
        out.writes.retain(|w| !w.optional);
    } else {
        let body = PodDisruptionBudget { status: Some(next), ..PodDisruptionBudget::clone(budget) };
        out.write(Write::status(Kind::PodDisruptionBudget, key.clone(), &body));
    }
    out.again_at(later(view.now, RETRY_SECONDS));
}

/// Owners and their scale are not watched, so a failed sum is tried again.
const RETRY_SECONDS: i64 = 30;

#[cfg(test)]
mod tests;
