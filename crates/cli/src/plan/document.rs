//! A plan for programs: one document, described in `docs/planning.md`.

use evac_core::plan::{Plan, Survey};
use evac_engine::whole::Unread;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The name and version of the document of a plan.
const PLAN: &str = "evac.dev/plan/v1";
/// The same of a survey of all nodes.
const SURVEY: &str = "evac.dev/plan-all/v1";

pub fn plan(plan: &Plan, unread: &[Unread], now: Timestamp) -> Value {
    let mut document = json!(plan);
    document["schema"] = json!(PLAN);
    document["kind"] = json!("Plan");
    document["drainable"] = json!(plan.is_drainable());
    document["missing"] = json!(unread);
    document["room"]["message"] = json!(plan.room.sentence());
    for (at, node) in plan.nodes.iter().enumerate() {
        for (pod_at, pod) in node.pods.iter().enumerate() {
            document["nodes"][at]["pods"][pod_at]["message"] = json!(pod.forecast.sentence(now));
        }
    }
    document
}

pub fn survey(survey: &Survey, unread: &[Unread]) -> Value {
    let mut document = json!(survey);
    document["schema"] = json!(SURVEY);
    document["kind"] = json!("Survey");
    document["drainable"] = json!(survey.is_drainable());
    document["missing"] = json!(unread);
    for (at, node) in survey.nodes.iter().enumerate() {
        for (reason_at, one) in node.in_the_way.iter().enumerate() {
            document["nodes"][at]["inTheWay"][reason_at]["message"] = json!(one.reason.message());
        }
    }
    document
}

pub fn yaml(document: &Value) -> String {
    serde_saphyr::to_string(document).unwrap_or_else(|_| document.to_string())
}
