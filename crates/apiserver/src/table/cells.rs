//! Cells that many kinds share.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::age;
use crate::selector::label_selector;

pub(super) fn name(object: &Value) -> Value {
    text(object, "/metadata/name")
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    Value::String(age::since(object.pointer("/metadata/creationTimestamp"), now))
}

/// Text at a pointer, empty when absent.
pub(super) fn text(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).filter(|v| !v.is_null()).cloned().unwrap_or_else(|| json!(""))
}

pub(super) fn str_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

pub(super) fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn truth(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// A condition's status is `True`.
pub(super) fn has_condition(object: &Value, kind: &str) -> bool {
    list(object, "/status/conditions")
        .iter()
        .find(|c| str_at(c, "/type") == kind)
        .is_some_and(|c| str_at(c, "/status") == "True")
}

/// Names and images of containers, joined with commas.
pub(super) fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    let all = list(object, pointer);
    let joined = |field: &str| all.iter().map(|c| str_at(c, field)).collect::<Vec<_>>().join(",");
    [json!(joined("/name")), json!(joined("/image"))]
}

/// A `LabelSelector` object in its text form; `<none>` when it is empty.
pub(super) fn selector(object: &Value, pointer: &str) -> Value {
    match label_selector(object.pointer(pointer)) {
        Err(_) => json!("<error>"),
        Ok(selector) => json!(or(&selector.to_string(), "<none>")),
    }
}

/// A plain map of labels; `<none>` when it is empty.
pub(super) fn labels(labels: Option<&Map<String, Value>>) -> Value {
    let text = labels
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or("")))
        .collect::<Vec<_>>()
        .join(",");
    json!(or(&text, "<none>"))
}

pub(super) fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}

/// The first few of a list, and how many more there are.
pub(super) fn with_more(shown: &[String], count: usize, max: usize) -> String {
    let text = shown.join(",");
    if count > max {
        return format!("{text} + {} more...", count - max);
    }
    or(&text, "<unset>").to_owned()
}
