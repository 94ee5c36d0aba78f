//! What policies show of themselves: their status, and events when something is held back.

use std::collections::{BTreeMap, BTreeSet};

use evac_api::failover::policy::{PolicyObject, status, write_status};
use evac_api::failover::{self as requests, About};
use evac_api::wire::Named;
use evac_core::Uid;
use evac_core::failover::FailoverPolicy;
use evac_core::failover::watchman::{Hold, Standing, Verdict};
use jiff::Timestamp;
use serde_json::Value;

use crate::http::{Http, parse};

/// What was written and told already.
#[derive(Default)]
pub(super) struct Book {
    written: BTreeMap<String, Value>,
    told: BTreeMap<String, BTreeSet<(String, &'static str)>>,
}

impl Book {
    pub fn forget(&mut self, policy: &str) {
        self.written.remove(policy);
        self.told.remove(policy);
    }

    /// Writes the status if it says something new, and tells what is newly held back.
    pub async fn write(&mut self, http: &Http, object: &PolicyObject, standing: &Standing, now: Timestamp) {
        let meta = &object.metadata;
        let next = status(standing, meta.generation, object.valid(), now);
        let key = comparable(&next);
        if self.written.get(&meta.name) != Some(&key) {
            let answer = http.send(&write_status(&meta.name, &next)).await;
            match answer.and_then(|answer| parse::<Named>(&answer)) {
                Ok(_) => {
                    self.written.insert(meta.name.clone(), key);
                }
                Err(error) => tracing::debug!(policy = meta.name, %error, "status was not written"),
            }
        }
        let uid = Uid(meta.uid.clone());
        let about = About::policy(&meta.name, &uid);
        let mut current = BTreeSet::new();
        let before = self.told.get(&meta.name).cloned().unwrap_or_default();
        let mut news = Vec::new();
        if let Some(error) = &standing.error {
            note(&mut current, &before, &mut news, (String::new(), "InvalidPolicy"), error.to_string());
        }
        for (node, verdict) in &standing.nodes {
            let Verdict::Hold(hold) = verdict else { continue };
            let reason = match hold {
                Hold::Brake { .. } | Hold::Storm { .. } | Hold::Blind => "FailoverSkipped",
                Hold::Proof { .. } => "ProofNeeded",
                _ => continue,
            };
            note(
                &mut current,
                &before,
                &mut news,
                (node.clone(), reason),
                format!("node {node} {}", hold.words(now)),
            );
        }
        for node in &standing.odd_labels {
            let words = format!(
                "node {node} has the label {} without a value, which means nothing; true would exclude it",
                evac_core::failover::watchman::EXCLUDE
            );
            note(&mut current, &before, &mut news, (node.clone(), "InvalidNodeLabel"), words);
        }
        for (reason, words) in news {
            let call = requests::event(&about, true, reason, &words, now);
            if let Err(error) = http.send(&call).await {
                tracing::debug!(%error, reason, "event was lost");
            }
        }
        self.told.insert(meta.name.clone(), current);
    }
}

fn note(
    current: &mut BTreeSet<(String, &'static str)>,
    before: &BTreeSet<(String, &'static str)>,
    news: &mut Vec<(&'static str, String)>,
    what: (String, &'static str),
    words: String,
) {
    if !before.contains(&what) {
        news.push((what.1, words));
    }
    current.insert(what);
}

/// A status without its times: that a condition has held since another moment is not news.
fn comparable(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastTransitionTime");
        }
    }
    status
}

/// An event about a policy.
pub(super) async fn tell(http: &Http, policy: &FailoverPolicy, warning: bool, reason: &str, message: &str) {
    let about = About::policy(&policy.name, &policy.uid);
    let call = requests::event(&about, warning, reason, message, http.clock().now());
    if let Err(error) = http.send(&call).await {
        tracing::debug!(%error, reason, "event was lost");
    }
}
