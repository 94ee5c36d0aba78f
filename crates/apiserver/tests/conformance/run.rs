//! Runs a case on both arms, step by step, and notes where they part.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use evac_apiserver::protobuf;
use serde_json::Value;

use super::arm::{Answer, Arm, Ask};
use super::compare::differences;
use super::hook::Hooks;
use super::normal::Normaliser;
use super::script::{Case, Step};

/// How often and how long a step marked `until` is repeated.
const PAUSE: Duration = Duration::from_millis(50);
const TRIES: usize = 200;

/// More than a server reads: `$big` in a case.
const BIG: usize = 3 * 1024 * 1024 + 1;

/// What became of a case.
pub struct Outcome {
    pub title: String,
    pub differences: Vec<String>,
}

impl Outcome {
    pub fn report(&self) -> String {
        format!("--- {}\n{}\n", self.title, self.differences.join("\n"))
    }
}

/// One arm's side of a case: what it has kept and met.
struct Side<'a> {
    arm: &'a Arm,
    values: BTreeMap<String, String>,
    normal: Normaliser,
}

impl<'a> Side<'a> {
    fn new(arm: &'a Arm, namespace: &str, hooks: &Hooks) -> Self {
        let mut values = hooks.values();
        values.insert("ns".into(), namespace.into());
        values.insert("big".into(), "x".repeat(BIG));
        Self { arm, values, normal: Normaliser::default() }
    }

    async fn take(&mut self, step: &Step) -> Answer {
        let ask = Ask {
            method: step.method.clone(),
            path: self.filled(&step.path),
            headers: step.headers.iter().map(|(n, v)| (n.clone(), self.filled(v))).collect(),
            body: self.body(step),
            events: step.events,
        };
        let mut answer = self.arm.send(&ask).await;
        for _ in 0..TRIES {
            if step.until.is_none_or(|code| code == answer.code) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            answer = self.arm.send(&ask).await;
        }
        for (name, pointer) in &step.keep {
            let value = match answer.body.pointer(pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            };
            self.values.insert(name.clone(), value);
        }
        answer
    }

    fn body(&self, step: &Step) -> Bytes {
        let text = self.filled(&step.body);
        if !step.protobuf {
            return text.into();
        }
        let object = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", step.line()));
        protobuf::from_json(&object).unwrap_or_else(|| panic!("{}: no protobuf form", step.line())).into()
    }

    /// Replaces `$name` by what was kept; other dollars (`$patch`) stay.
    fn filled(&self, text: &str) -> String {
        let mut done = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            done.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
            match self.values.get(&after[..end]) {
                Some(value) => done.push_str(value),
                None => done.push_str(&rest[at..=at + end]),
            }
            rest = &after[end..];
        }
        done.push_str(rest);
        done
    }
}

pub async fn run(
    case: Case,
    namespace: String,
    embedded: &Arm,
    real: Option<&Arm>,
    hooks: &Hooks,
) -> Outcome {
    let mut ours = Side::new(embedded, &namespace, hooks);
    let mut theirs = real.map(|arm| Side::new(arm, &namespace, hooks));
    let mut found = Vec::new();
    for step in &ground() {
        ours.take(step).await;
        if let Some(theirs) = &mut theirs {
            theirs.take(step).await;
        }
    }
    for (number, step) in case.steps.iter().enumerate() {
        let answer = ours.take(step).await;
        let Some(theirs) = &mut theirs else {
            if answer.code >= 500 && !allowed_alone(answer.code) {
                found.push(format!(
                    "  step {}: {}\n    {} {}",
                    number + 1,
                    step.line(),
                    answer.code,
                    answer.body
                ));
            }
            continue;
        };
        let expected = theirs.take(step).await;
        let a = ours.normal.answer(&answer, &step.skip);
        let b = theirs.normal.answer(&expected, &step.skip);
        if a != b {
            let lines = differences(&a, &b);
            found.push(format!("  step {}: {}\n{}", number + 1, step.line(), lines.join("\n")));
        }
    }
    Outcome { title: case.title(), differences: found }
}

/// Failing webhooks and deadlines are 500 and 504 on any server.
fn allowed_alone(code: u16) -> bool {
    matches!(code, 500 | 504)
}

/// Every case has a namespace of its own, with the account that a controller would make.
fn ground() -> [Step; 2] {
    let namespace = r#"{"metadata":{"name":"$ns","labels":{"case":"$ns"}}}"#;
    [
        Step::request("POST", "/api/v1/namespaces", namespace),
        Step::request("POST", "serviceaccounts", r#"{"metadata":{"name":"default"}}"#),
    ]
}
