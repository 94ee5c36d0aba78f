//! What field selectors may ask of a kind, and reading it from an object.

use std::borrow::Cow;

use serde_json::Value;

use super::{Kind, Text};
use crate::selector::FieldSelector;
use crate::status::ApiError;

/// A field that a selector may name.
#[derive(Debug, Clone)]
pub struct Field {
    pub label: Text,
    /// JSON pointers; the first that holds a non-empty value counts.
    pub at: &'static [&'static str],
    /// What an absent value compares as.
    pub absent: &'static str,
}

/// How an unknown field label is refused: the words depend on whether the kind has labels of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsupported {
    OnlyMeta,
    Label,
}

const fn text(label: &'static str, at: &'static [&'static str]) -> Field {
    Field { label: Cow::Borrowed(label), at, absent: "" }
}

const fn other(label: &'static str, at: &'static [&'static str], absent: &'static str) -> Field {
    Field { label: Cow::Borrowed(label), at, absent }
}

pub(super) const POD: &[Field] = &[
    text("spec.nodeName", &["/spec/nodeName"]),
    text("spec.host", &["/spec/nodeName"]),
    text("spec.restartPolicy", &["/spec/restartPolicy"]),
    text("spec.schedulerName", &["/spec/schedulerName"]),
    text("spec.serviceAccountName", &["/spec/serviceAccountName"]),
    other("spec.hostNetwork", &["/spec/hostNetwork"], "false"),
    text("status.phase", &["/status/phase"]),
    text("status.podIP", &["/status/podIPs/0/ip", "/status/podIP"]),
    text("status.podIPs", &[]),
    text("status.nominatedNodeName", &["/status/nominatedNodeName"]),
];
pub(super) const NODE: &[Field] = &[other("spec.unschedulable", &["/spec/unschedulable"], "false")];
pub(super) const NAMESPACE: &[Field] =
    &[text("status.phase", &["/status/phase"]), text("name", &["/metadata/name"])];
pub(super) const SECRET: &[Field] = &[text("type", &["/type"])];
pub(super) const SERVICE: &[Field] =
    &[text("spec.clusterIP", &["/spec/clusterIP"]), text("spec.type", &["/spec/type"])];
pub(super) const REPLICATION_CONTROLLER: &[Field] = &[other("status.replicas", &["/status/replicas"], "0")];
pub(super) const JOB: &[Field] = &[other("status.successful", &["/status/succeeded"], "0")];
pub(super) const EVENT: &[Field] = &[
    text("involvedObject.kind", &["/involvedObject/kind"]),
    text("involvedObject.namespace", &["/involvedObject/namespace"]),
    text("involvedObject.name", &["/involvedObject/name"]),
    text("involvedObject.uid", &["/involvedObject/uid"]),
    text("involvedObject.apiVersion", &["/involvedObject/apiVersion"]),
    text("involvedObject.resourceVersion", &["/involvedObject/resourceVersion"]),
    text("involvedObject.fieldPath", &["/involvedObject/fieldPath"]),
    text("reason", &["/reason"]),
    text("reportingComponent", &["/reportingComponent"]),
    text("source", &["/source/component", "/reportingComponent"]),
    text("type", &["/type"]),
];
/// The names that `events.k8s.io` has for the same fields of the stored form.
pub(super) const EVENT_V1: &[Field] = &[
    text("regarding.kind", &["/involvedObject/kind"]),
    text("regarding.namespace", &["/involvedObject/namespace"]),
    text("regarding.name", &["/involvedObject/name"]),
    text("regarding.uid", &["/involvedObject/uid"]),
    text("regarding.apiVersion", &["/involvedObject/apiVersion"]),
    text("regarding.resourceVersion", &["/involvedObject/resourceVersion"]),
    text("regarding.fieldPath", &["/involvedObject/fieldPath"]),
    text("reason", &["/reason"]),
    text("reportingController", &["/reportingComponent"]),
    text("type", &["/type"]),
];

impl Kind {
    /// Refuses selectors that name a field this kind cannot be selected by.
    #[allow(clippy::result_large_err, reason = "the error is the answer")]
    pub fn check_field_selector(&self, selector: &FieldSelector) -> Result<(), ApiError> {
        for label in selector.labels() {
            if !self.supports_field(label) {
                return Err(ApiError::bad_request(match self.strategy.unsupported {
                    Unsupported::Label => format!("field label not supported: {label}"),
                    Unsupported::OnlyMeta => format!(
                        "\"{label}\" is not a known field selector: only \"metadata.name\", \
                         \"metadata.namespace\""
                    ),
                }));
            }
        }
        Ok(())
    }

    fn supports_field(&self, label: &str) -> bool {
        label == "metadata.name"
            || (label == "metadata.namespace" && (self.namespaced || self.strategy.fields.is_empty()))
            || self.strategy.fields.iter().any(|f| f.label == label)
            || self.custom.as_ref().is_some_and(|c| c.selectable.iter().any(|f| f.label == label))
    }

    /// The value of a selectable field of a stored object.
    pub fn field<'a>(&self, object: &'a Value, label: &str) -> Option<Cow<'a, str>> {
        match label {
            "metadata.name" => return Some(shown(object.pointer("/metadata/name"), "")),
            "metadata.namespace" => return Some(shown(object.pointer("/metadata/namespace"), "")),
            _ => {}
        }
        if let Some(field) = self.strategy.fields.iter().find(|f| f.label == label) {
            let found = field
                .at
                .iter()
                .filter_map(|p| object.pointer(p))
                .find(|v| !v.is_null() && v.as_str() != Some(""));
            return Some(shown(found, field.absent));
        }
        let custom = self.custom.as_ref()?;
        let field = custom.selectable.iter().find(|f| f.label == label)?;
        Some(shown(field.path.iter().try_fold(object, |v, key| v.get(key)), ""))
    }

    /// Does a stored object match? Labels that the kind does not know match nothing.
    pub fn matches_fields(&self, selector: &FieldSelector, object: &Value) -> bool {
        selector.matches(|label| self.field(object, label))
    }

    /// All selectable fields of an object with their values, in the order of declaration.
    pub fn fields<'a>(&self, object: &'a Value) -> Vec<(String, Cow<'a, str>)> {
        let mut labels: Vec<&str> = vec!["metadata.name"];
        if self.namespaced {
            labels.push("metadata.namespace");
        }
        labels.extend(self.strategy.fields.iter().map(|f| f.label.as_ref()));
        if let Some(custom) = &self.custom {
            labels.extend(custom.selectable.iter().map(|f| f.label.as_str()));
        }
        labels
            .into_iter()
            .filter_map(|label| self.field(object, label).map(|value| (label.to_owned(), value)))
            .collect()
    }
}

fn shown<'a>(value: Option<&'a Value>, absent: &'static str) -> Cow<'a, str> {
    match value {
        None | Some(Value::Null) => Cow::Borrowed(absent),
        Some(Value::String(s)) => Cow::Borrowed(s),
        Some(other) => Cow::Owned(other.to_string()),
    }
}
