//! Events in both of their versions: one storage, two ways to say it.

use evac_apimachinery::validation::{self, NameRule};
use serde_json::{Map, Value};

use super::fields::{self, Unsupported};
use super::meta;
use super::read::{int_at, is_set, text, text_at};
use super::strategy::{Convert, Strategy};
use crate::status::FieldError;

type Errors = Vec<FieldError>;

pub(super) const CORE: Strategy = Strategy {
    validate: |object, errors| common(object, "involvedObject", "reportingComponent", errors),
    validate_update: |_, new, _, errors| common(new, "involvedObject", "reportingComponent", errors),
    name: NameRule::PathSegment,
    create_on_update: true,
    fields: fields::EVENT,
    unsupported: Unsupported::Label,
    ..Strategy::PLAIN
};

pub(super) const V1: Strategy = Strategy {
    validate: v1,
    validate_update: |old, new, _, errors| {
        common(new, "regarding", "reportingController", errors);
        for (field, shown) in [
            ("regarding", "involvedObject"),
            ("reason", "reason"),
            ("note", "message"),
            ("type", "type"),
            ("action", "action"),
            ("related", "related"),
            ("reportingController", "reportingController"),
            ("reportingInstance", "reportingInstance"),
            ("eventTime", "eventTime"),
        ] {
            meta::immutable(old, new, &format!("/{field}"), shown, errors);
        }
    },
    name: NameRule::Subdomain,
    create_on_update: true,
    fields: fields::EVENT_V1,
    unsupported: Unsupported::Label,
    convert: Some(Convert {
        to_stored: |event| rename(event, "v1", true),
        from_stored: |event| rename(event, "events.k8s.io/v1", false),
    }),
    ..Strategy::PLAIN
};

/// (name in `events.k8s.io`, name in the core group)
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// The same event under the field names of the other version.
fn rename(event: Value, api_version: &str, to_core: bool) -> Value {
    let Value::Object(fields) = event else { return event };
    let mut out = Map::new();
    for (key, value) in fields {
        let found = NAMES.iter().find(|(new, core)| key == if to_core { *new } else { *core });
        let name = match found {
            Some((new, core)) => (if to_core { *core } else { *new }).to_owned(),
            None => key,
        };
        // The newer version leaves out who reported it where nobody did.
        let vain = !to_core && name.starts_with("reporting") && value == "";
        if !vain {
            out.insert(name, value);
        }
    }
    out.insert("apiVersion".into(), api_version.into());
    Value::Object(out)
}

fn common(event: &Value, object: &str, controller: &str, errors: &mut Errors) {
    let namespace = text_at(event, "/metadata/namespace");
    let about = event.get(object).map_or("", |o| text(o, "namespace"));
    let mismatch = |errors: &mut Errors| {
        errors.push(FieldError::invalid("involvedObject.namespace", about, "does not match event.namespace"));
    };
    if !is_set(event, "eventTime") {
        let ok = if about.is_empty() { ["", "default"].contains(&namespace) } else { namespace == about };
        if !ok {
            mismatch(errors);
        }
        return;
    }
    if about.is_empty() && !["default", "kube-system"].contains(&namespace) {
        mismatch(errors);
    }
    let reporter = text(event, controller);
    if reporter.is_empty() {
        errors.push(FieldError::required(controller, ""));
    }
    for complaint in validation::qualified_name(reporter) {
        errors.push(FieldError::invalid(controller, reporter, complaint));
    }
    for field in ["reportingInstance", "action", "reason"] {
        let value = text(event, field);
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        if value.len() > 128 {
            errors.push(FieldError::invalid(field, "", "can have at most 128 characters"));
        }
    }
    let message = if controller == "reportingComponent" { "message" } else { "note" };
    if text(event, message).len() > 1024 {
        errors.push(FieldError::invalid("message", "", "can have at most 1024 characters"));
    }
}

fn v1(event: &Value, errors: &mut Errors) {
    common(event, "regarding", "reportingController", errors);
    if let Some(series) = event.get("series").filter(|s| s.is_object()) {
        if int_at(series, "/count") < 2 {
            errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
        }
        if !is_set(series, "lastObservedTime") {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    if !is_set(event, "eventTime") {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    for (field, shown) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedSource", "source"),
    ] {
        let given =
            event.get(field).is_some_and(|v| !v.is_null() && v.as_object().is_none_or(|m| !m.is_empty()));
        if given {
            errors.push(FieldError::invalid(shown, "", "needs to be unset"));
        }
    }
    if int_at(event, "/deprecatedCount") != 0 {
        errors.push(FieldError::invalid("count", "", "needs to be unset"));
    }
}
