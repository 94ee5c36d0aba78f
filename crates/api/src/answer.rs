//! Answers become outcomes.
//!
//! A 429 may come from a budget, an admission webhook or the server's own flow control, and only the first is about
//! the workload. Here they are told apart, once.

use std::time::Duration;

use evac_core::{Outcome, component};

use crate::kubevirt::review::hide;
use crate::wire::Status;

/// What came back over the wire.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub status: u16,
    /// The `Retry-After` header, in seconds.
    pub retry_after: Option<u64>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The failure described in the body; a body of another form becomes the message.
    pub fn failure(&self) -> Status {
        let mut failure = self.described();
        // Our own secret paths may stand in it.
        failure.message = hide(&failure.message);
        failure
    }

    /// The title of the web page that it is, if it is one: no API server sends them, but proxies and login pages do.
    pub fn web_page(&self) -> Option<String> {
        component::web_page(&self.body)
    }

    fn text(&self) -> String {
        let text = || String::from_utf8_lossy(&self.body).trim().to_owned();
        self.web_page().map_or_else(text, |title| component::page_words(&title))
    }

    fn described(&self) -> Status {
        serde_json::from_slice::<Status>(&self.body)
            .ok()
            .filter(|status| status.kind == "Status")
            .unwrap_or_else(|| Status { message: self.text(), code: self.status, ..Status::default() })
    }
}

pub fn classify(answer: &Answer) -> Outcome {
    if answer.web_page().is_some() {
        let (status, message) = (answer.status, answer.failure().message);
        return if status >= 500 {
            Outcome::Server { status, message }
        } else {
            Outcome::Invalid { status, message }
        };
    }
    if answer.is_success() {
        return Outcome::Done;
    }
    let failure = answer.failure();
    let has_cause = |name: &str| {
        failure
            .details
            .as_ref()
            .is_some_and(|details| details.causes.iter().any(|cause| cause.reason == name))
    };
    let retry_after = answer
        .retry_after
        .or(failure.details.as_ref().map(|details| details.retry_after_seconds))
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs);
    let message = message_of(&failure);
    if let Some((webhook, text)) = webhook_denial(&failure.message) {
        return Outcome::Webhook { webhook, message: text };
    }
    match answer.status {
        403 if has_cause("NamespaceTerminating") => Outcome::NamespaceTerminating,
        403 if has_cause("DisruptionBudget") => Outcome::BudgetBroken { message },
        401 | 403 => Outcome::Forbidden { message },
        404 if failure.details.as_ref().is_some_and(|details| !details.name.is_empty()) => Outcome::Gone,
        404 | 405 => Outcome::Unsupported,
        409 if failure.message.contains("UID in precondition")
            || failure.message.contains("UID in the precondition") =>
        {
            Outcome::Replaced
        }
        409 => Outcome::Conflict { message },
        410 => Outcome::Gone,
        429 if has_cause("DisruptionBudget") => Outcome::Budget { retry_after, message },
        429 => Outcome::Throttled { retry_after },
        500 if failure.message.contains("more than one PodDisruptionBudget") => {
            Outcome::ManyBudgets { message }
        }
        // The server gave up waiting; the change may have been made.
        504 => Outcome::Unknown { message },
        status @ 500.. => Outcome::Server { status, message },
        status => Outcome::Invalid { status, message },
    }
}

fn message_of(failure: &Status) -> String {
    let cause = failure
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .find(|cause| cause.reason == "DisruptionBudget" && !cause.message.is_empty());
    match cause {
        Some(cause) => cause.message.clone(),
        None if failure.message.is_empty() => format!("HTTP status {}", failure.code),
        None => failure.message.clone(),
    }
}

/// `admission webhook "name" denied the request: text`
fn webhook_denial(message: &str) -> Option<(String, String)> {
    let rest = message.strip_prefix("admission webhook \"")?;
    let (name, rest) = rest.split_once('"')?;
    let text = rest.trim_start().strip_prefix("denied the request")?;
    let text = text.trim_start_matches(':').trim();
    let text = if text.is_empty() { "no reason given" } else { text };
    Some((name.to_owned(), text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(status: u16, retry_after: Option<u64>, body: &serde_json::Value) -> Outcome {
        let mut body = body.clone();
        if let Some(object) = body.as_object_mut() {
            object.insert("kind".into(), "Status".into());
        }
        classify(&Answer { status, retry_after, body: body.to_string().into_bytes() })
    }

    #[test]
    fn the_three_kinds_of_429_are_told_apart() {
        let budget = json!({
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 2 and has 2"}]}
        });
        assert_eq!(
            outcome(429, None, &budget),
            Outcome::Budget { retry_after: None, message: "needs 2 and has 2".into() }
        );
        let behind = outcome(429, Some(10), &budget);
        assert!(matches!(behind, Outcome::Budget { retry_after: Some(wait), .. } if wait.as_secs() == 10));
        let webhook =
            json!({"message": "admission webhook \"x.kubevirt.io\" denied the request: VMI a is moving"});
        assert_eq!(
            outcome(429, None, &webhook),
            Outcome::Webhook { webhook: "x.kubevirt.io".into(), message: "VMI a is moving".into() }
        );
        let flow =
            json!({"message": "too many requests, please try again later", "reason": "TooManyRequests"});
        assert_eq!(
            outcome(429, Some(1), &flow),
            Outcome::Throttled { retry_after: Some(Duration::from_secs(1)) }
        );
    }

    #[test]
    fn a_web_page_is_no_answer_whatever_its_status() {
        let page = |status| {
            let body = b"<!DOCTYPE html><title>Sign in</title>".to_vec();
            classify(&Answer { status, retry_after: None, body })
        };
        let message = || "a web page, \"Sign in\"".to_owned();
        for status in [200, 404, 403] {
            assert_eq!(page(status), Outcome::Invalid { status, message: message() });
        }
        assert_eq!(page(502), Outcome::Server { status: 502, message: message() });
    }

    #[test]
    fn a_wait_is_read_from_the_header_or_else_from_the_body() {
        let body = json!({"message": "busy", "details": {"retryAfterSeconds": 4}});
        let wait = |seconds| Outcome::Throttled { retry_after: Some(Duration::from_secs(seconds)) };
        assert_eq!(outcome(429, None, &body), wait(4));
        assert_eq!(outcome(429, Some(9), &body), wait(9));
        assert_eq!(
            outcome(429, Some(0), &json!({"message": "busy"})),
            Outcome::Throttled { retry_after: None }
        );
    }

    #[test]
    fn a_missing_pod_is_gone_and_a_missing_endpoint_is_unsupported() {
        let pod = json!({"message": "pods \"a\" not found", "details": {"name": "a", "kind": "pods"}});
        assert_eq!(outcome(404, None, &pod), Outcome::Gone);
        assert_eq!(
            classify(&Answer { status: 404, retry_after: None, body: b"404 page not found".to_vec() }),
            Outcome::Unsupported
        );
    }

    #[test]
    fn another_incarnation_is_replaced_and_other_conflicts_are_conflicts() {
        let uid = json!({"message": "Operation cannot be fulfilled on pods \"a\": the UID in the precondition (x) does not match the UID in record (y)."});
        assert_eq!(outcome(409, None, &uid), Outcome::Replaced);
        let stored = json!({"message": "Precondition failed: UID in precondition: x, UID in object meta: y"});
        assert_eq!(outcome(409, None, &stored), Outcome::Replaced);
        assert!(matches!(outcome(409, None, &json!({"message": "modified"})), Outcome::Conflict { .. }));
    }

    #[test]
    fn refusals_by_namespace_budget_and_rights_differ() {
        let cause =
            |name: &str| json!({"message": "no", "details": {"causes": [{"reason": name, "message": "m"}]}});
        assert_eq!(outcome(403, None, &cause("NamespaceTerminating")), Outcome::NamespaceTerminating);
        assert!(matches!(outcome(403, None, &cause("DisruptionBudget")), Outcome::BudgetBroken { .. }));
        assert!(matches!(outcome(403, None, &json!({"message": "no"})), Outcome::Forbidden { .. }));
    }

    #[test]
    fn several_budgets_are_not_just_any_500() {
        let many = json!({"message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."});
        assert!(matches!(outcome(500, None, &many), Outcome::ManyBudgets { .. }));
        assert!(matches!(
            outcome(500, None, &json!({"message": "EOF"})),
            Outcome::Server { status: 500, .. }
        ));
        assert!(matches!(outcome(504, None, &json!({"message": "timeout"})), Outcome::Unknown { .. }));
    }
}
