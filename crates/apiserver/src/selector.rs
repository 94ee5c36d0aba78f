//! Selectors of requests and objects: label selectors in the objects the server holds, and field selectors, which only servers have.

use std::borrow::Cow;
use std::fmt;

use evac_apimachinery::labels::{Selector, SelectorError};
use serde_json::{Map, Value};

/// A `LabelSelector` object. Absent selects nothing, empty selects everything.
pub fn label_selector(object: Option<&Value>) -> Result<Selector, SelectorError> {
    let Some(object) = object.filter(|object| !object.is_null()) else { return Ok(Selector::nothing()) };
    let labels = object.get("matchLabels").and_then(Value::as_object);
    let expressions = object.get("matchExpressions").and_then(Value::as_array);
    let expression = |one: &Value| {
        let text = |field: &str| one.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let values = one.get("values").and_then(Value::as_array).into_iter().flatten();
        (text("key"), text("operator"), values.filter_map(Value::as_str).map(str::to_owned).collect())
    };
    Selector::from_parts(pairs(labels), expressions.into_iter().flatten().map(expression))
}

/// A plain map of labels (`spec.selector` of services and replication controllers).
pub fn plain_selector(labels: Option<&Map<String, Value>>) -> Selector {
    Selector::from_labels(pairs(labels))
}

fn pairs(labels: Option<&Map<String, Value>>) -> impl Iterator<Item = (&str, &str)> {
    let labels = labels.into_iter().flatten();
    labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// Whether a selector matches the labels of an object.
pub fn selects(selector: &Selector, labels: Option<&Map<String, Value>>) -> bool {
    selector.matches_with(|key| labels?.get(key)?.as_str())
}

/// Why a field selector was not understood; the text is what clients see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldSelectorError(String);

/// A field selector: `spec.nodeName=node-1,status.phase!=Failed`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    label: String,
    value: String,
    negated: bool,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut parts = split_unescaped(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let Some((label, operator, value)) = split_term(part) else {
                return Err(FieldSelectorError(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            terms.push(FieldTerm {
                label: label.to_owned(),
                value: unescape(value)?,
                negated: operator == "!=",
            });
        }
        Ok(Self { terms })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|t| t.label.as_str())
    }

    /// The value a label must equal, if the selector demands one: lets a list by name be a get.
    pub fn required(&self, label: &str) -> Option<&str> {
        self.terms.iter().find(|t| !t.negated && t.label == label).map(|t| t.value.as_str())
    }

    /// `field` gives the value of a label; a label without value matches no equality.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.terms.iter().all(|term| {
            let equal = field(&term.label).is_some_and(|v| v == term.value.as_str());
            equal != term.negated
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}{}{}", term.label, if term.negated { "!=" } else { "=" }, escape(&term.value))?;
        }
        Ok(())
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn split_term(term: &str) -> Option<(&str, &str, &str)> {
    let (at, operator) = term.char_indices().find_map(|(i, _)| {
        ["!=", "==", "="].into_iter().find(|op| term[i..].starts_with(op)).map(|op| (i, op))
    })?;
    Some((&term[..at], operator, &term[at + operator.len()..]))
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(value.to_owned());
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(next) => {
                    return Err(FieldSelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{next}"
                    )));
                }
                None => {
                    return Err(FieldSelectorError(
                        "invalid field selector: invalid escape sequence: \\".to_owned(),
                    ));
                }
            },
            ',' | '=' => {
                return Err(FieldSelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_absent_selector_object_selects_nothing_and_an_empty_one_everything() {
        assert!(!selects(&label_selector(None).unwrap(), None));
        assert!(selects(&label_selector(Some(&json!({}))).unwrap(), None));
    }

    #[test]
    fn selector_objects_combine_labels_and_expressions() {
        let selector = label_selector(Some(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["test"]},
                {"key": "x", "operator": "DoesNotExist"},
            ],
        })))
        .unwrap();
        let selects = |labels: Value| selects(&selector, labels.as_object());
        assert!(selects(json!({"app": "web"})));
        assert!(!selects(json!({"app": "web", "tier": "test"})));
        assert!(!selects(json!({"app": "web", "x": ""})));
        assert_eq!(selector.to_string(), "app=web,tier notin (test),!x");
    }

    #[test]
    fn field_selectors_compare_exactly_and_understand_escapes() {
        let selector = FieldSelector::parse("spec.nodeName=a\\,b,status.phase!=Failed").unwrap();
        let field = |phase: &'static str| {
            move |label: &str| Some(Cow::Borrowed(if label == "spec.nodeName" { "a,b" } else { phase }))
        };
        assert!(selector.matches(field("Running")));
        assert!(!selector.matches(field("Failed")));
        assert_eq!(selector.required("spec.nodeName"), Some("a,b"));
        assert_eq!(selector.to_string(), "spec.nodeName=a\\,b,status.phase!=Failed");
        assert_eq!(
            FieldSelector::parse("metadata.name").unwrap_err().to_string(),
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
