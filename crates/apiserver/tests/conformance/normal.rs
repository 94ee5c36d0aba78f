//! Answers without what may differ: uids, times, versions, generated names and addresses.
//!
//! Uids and versions are not blotted out but numbered in the order in which a case meets them, so that
//! "the same object as before" and "not written again" stay visible.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::arm::Answer;

/// What one arm's side of a case has met so far.
#[derive(Default)]
pub struct Normaliser {
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
}

static REPLACED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<microtime>"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (r"kube-api-access-[a-z0-9]{5}\b", "kube-api-access-<suffix>"),
        (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
        (r"too old resource version: (\d+) \(\d+\)", "too old resource version: $1 (<rv>)"),
        (r"Too large resource version: (\d+), current: \d+", "Too large resource version: $1, current: <rv>"),
        (r"in record \(\d+\)", "in record (<rv>)"),
        // What follows is a comparison of Go structs, line by line; no other server can give it.
        (r"(?s)(if it was previously negative\))\n.*", "$1 <comparison>"),
        (
            r"(?s)(except resources.requests and volumeAttributesClassName for bound claims)(\n.*)?",
            "$1 <comparison>",
        ),
        // Objects in messages are Go structs, with names and an order of their own.
        (r"(?s)Invalid value: \[?\{.*?\}\]?: ", "Invalid value: <object>: "),
        // An object in a message lists its fields in the order of Go structs, which we do not keep.
        (r#"(?s)patch: Invalid value: "\{.*\}": "#, "patch: Invalid value: <object>: "),
        (r#"(?s)^Invalid value: "\{.*\}": "#, "Invalid value: <object>: "),
        // The words of the YAML parser.
        (r"(?s)yaml: .*", "yaml: <complaint>"),
        (r"127\.0\.0\.1:\d+(->127\.0\.0\.1:\d+)?", "<loopback>"),
    ]
    .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
    .into()
});

static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d{1,2}s$").unwrap());

static UID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap());

impl Normaliser {
    pub fn answer(&mut self, answer: &Answer, skip: &[String]) -> Value {
        let mut body = answer.body.clone();
        let yaml =
            answer.headers.iter().any(|(name, value)| name == "content-type" && value.contains("yaml"));
        if let Some(parsed) = body.as_str().filter(|_| yaml).and_then(|t| serde_saphyr::from_str(t).ok()) {
            body = parsed;
        }
        for pointer in skip {
            remove(&mut body, pointer);
        }
        self.value(&mut body);
        let headers: Vec<String> =
            answer.headers.iter().map(|(name, value)| self.text(&format!("{name}: {value}"))).collect();
        json!({"code": answer.code, "headers": headers, "body": body})
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(_) => self.object(value),
            _ => {}
        }
    }

    fn object(&mut self, value: &mut Value) {
        let is_list = value["kind"].as_str().is_some_and(|k| k.ends_with("List") || k == "Table");
        let is_bookmark = value["type"] == "BOOKMARK" && value["object"].is_object();
        if is_bookmark {
            value["object"]["metadata"]["resourceVersion"] = json!("<rv>");
        }
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            if let Some(version) = metadata.get_mut("resourceVersion") {
                let text = version.as_str().unwrap_or_default().to_owned();
                if is_list {
                    *version = json!("<rv>");
                } else if !text.starts_with('<') {
                    let next = self.versions.len() + 1;
                    *version = json!(format!("<rv {}>", self.versions.entry(text).or_insert(next)));
                }
            }
            // Entries are ordered by the second in which they were made, which may lie between the servers.
            if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
                let part = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                entries.sort_by_key(|e| (part(e, "operation"), part(e, "manager"), part(e, "subresource")));
            }
            if metadata.get("continue").is_some_and(|c| c.as_str().is_some_and(|c| !c.is_empty())) {
                metadata.insert("continue".into(), json!("<continue>"));
            }
            let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
            let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
            if !prefix.is_empty() && name.starts_with(&prefix) && name.len() == prefix.len() + 5 {
                metadata.insert("name".into(), json!(format!("{prefix}<suffix>")));
            }
        }
        // Uids are also names of fields, where the owner of a reference is told.
        if let Value::Object(fields) = value
            && fields.keys().any(|key| UID.is_match(key))
        {
            *fields = std::mem::take(fields).into_iter().map(|(key, v)| (self.text(&key), v)).collect();
        }
        for (key, inner) in value.as_object_mut().into_iter().flatten() {
            if key == "token" && inner.as_str().is_some_and(|t| t.len() > 20) {
                *inner = json!("<token>");
            } else if key == "columnDefinitions" {
                // The descriptions are help texts for people and in our own words.
                for column in inner.as_array_mut().into_iter().flatten() {
                    column["description"] = json!("<description>");
                }
            } else if key == "cells" {
                self.value(inner);
                // A second may pass between the two servers.
                for cell in inner.as_array_mut().into_iter().flatten() {
                    if cell.as_str().is_some_and(|text| AGE.is_match(text)) {
                        *cell = json!("<age>");
                    }
                }
            } else if key == "nodePort" || key == "healthCheckNodePort" {
                *inner = json!("<port>");
            } else {
                self.value(inner);
            }
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (pattern, with) in REPLACED.iter() {
            if pattern.is_match(&text) {
                text = pattern.replace_all(&text, *with).into_owned();
            }
        }
        if UID.is_match(&text) {
            text = UID
                .replace_all(&text, |found: &regex::Captures<'_>| {
                    let next = self.uids.len() + 1;
                    format!("<uid {}>", self.uids.entry(found[0].to_owned()).or_insert(next))
                })
                .into_owned();
        }
        text
    }
}

fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    match value.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.remove(last);
        }
        Some(Value::Array(items)) => {
            if let Some(item) = last.parse().ok().and_then(|at: usize| items.get_mut(at)) {
                *item = Value::Null;
            }
        }
        _ => {}
    }
}

#[test]
fn the_same_uid_keeps_its_number_and_times_keep_their_form() {
    let uid = "0b3c1a52-7d5e-4f6a-8b9c-0d1e2f3a4b5c";
    let answer = |body: Value| Answer { code: 200, headers: Vec::new(), body };
    let mut normal = Normaliser::default();
    let first = normal.answer(&answer(json!({"a": uid, "t": "2026-01-01T00:00:00Z"})), &[]);
    let second = normal.answer(&answer(json!({"b": uid, "t": "2026-01-01T00:00:00.000000Z"})), &[]);
    assert_eq!((&first["body"]["a"], &second["body"]["b"]), (&json!("<uid 1>"), &json!("<uid 1>")));
    assert_ne!(first["body"]["t"], second["body"]["t"]);
}
