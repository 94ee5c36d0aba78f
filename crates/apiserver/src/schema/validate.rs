//! Validation of custom resources against their schema, in the words of kube-apiserver.
//!
//! On update, what did not change is not checked again, so that a tightened schema does not lock objects
//! out. `x-kubernetes-validations` come afterwards ([`crate::schema::rules`]).

use std::collections::BTreeSet;

use serde_json::{Number, Value};

use super::{Checks, ListKind, Schema, SchemaRef, Shape, formats};
use crate::status::{FieldError, FieldErrorKind};

/// Everything that is wrong with an object. `old` is what it was before an update.
pub fn validate(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut path = String::new();
    visit(schema, object, old, &mut path, true, &mut errors);
    list_keys(schema, object, &mut path, true, &mut errors);
    errors
}

type Visit<'v> = dyn FnMut(&SchemaRef, &Value, Option<&Value>, &mut String) + 'v;

/// The described children of a value with their old selves, which list elements have only by key.
fn children(schema: &Schema, value: &Value, old: Option<&Value>, path: &mut String, visit: &mut Visit<'_>) {
    use std::fmt::Write as _;
    let length = path.len();
    match (&schema.shape, value) {
        (Shape::Object { .. } | Shape::Map { .. }, Value::Object(object)) => {
            for (name, child) in object {
                let Some(field) = schema.field(name) else { continue };
                if length > 0 {
                    path.push('.');
                }
                path.push_str(name);
                visit(field, child, old.and_then(|o| o.get(name)), path);
                path.truncate(length);
            }
        }
        (Shape::List { item, kind, .. }, Value::Array(list)) => {
            let before = old.and_then(Value::as_array);
            for (index, child) in list.iter().enumerate() {
                let _ = write!(path, "[{index}]");
                let old = match kind {
                    ListKind::Map(keys) => before.and_then(|before| {
                        before
                            .iter()
                            .find(|o| keys.iter().all(|k| o.get(k.as_ref()) == child.get(k.as_ref())))
                    }),
                    _ => None,
                };
                visit(item, child, old, path);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn shown(path: &str) -> String {
    format!("{path} in body")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(number: &Number) -> bool {
    number.as_f64().is_some_and(|n| n.fract() == 0.0)
}

fn visit(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &mut String,
    resource: bool,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    let checks = schema.checks.as_deref();
    if value.is_null() && schema.nullable {
        return;
    }
    if !checks.is_some_and(|c| c.untyped) {
        type_errors(schema, value, path, errors);
    }
    range_errors(schema, value, path, errors);
    if let Some(checks) = checks {
        junctors(checks, value, path, errors);
    }
    if let (Some(format), Value::String(text)) = (schema.format.as_deref(), value)
        && matches!(schema.shape, Shape::String)
        && !formats::holds(format, text)
    {
        errors.push(FieldError::new(
            FieldErrorKind::TypeInvalid,
            path.as_str(),
            Some(value.clone()),
            format!("{} must be of type {format}: {text:?}", shown(path)),
        ));
    }
    if let Some(checks) = checks {
        value_checks(checks, value, path, errors);
    }
    children(schema, value, old, path, &mut |field, child, old, path| {
        let meta = (resource || schema.embedded_resource) && is_meta(path);
        if !meta {
            visit(field.get(), child, old, path, false, errors);
        }
    });
    if let (Shape::Object { required, .. }, Value::Object(object)) = (&schema.shape, value) {
        for name in required.iter().filter(|name| !object.contains_key(name.as_ref())) {
            let dot = if path.is_empty() { "" } else { "." };
            errors.push(FieldError::required(format!("{path}{dot}{name}"), ""));
        }
    }
}

fn is_meta(path: &str) -> bool {
    matches!(path.rsplit('.').next(), Some("apiVersion" | "kind" | "metadata"))
}

fn type_errors(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (fits, wanted) = match &schema.shape {
        Shape::Any => return,
        Shape::String => (value.is_string(), "string"),
        Shape::Boolean => (value.is_boolean(), "boolean"),
        Shape::Number => (value.is_number(), "number"),
        Shape::Integer => (value.as_number().is_some_and(is_whole), "integer"),
        Shape::IntOrString => {
            (value.is_string() || value.as_number().is_some_and(is_whole), "integer,string")
        }
        Shape::Object { .. } | Shape::Map { .. } => (value.is_object(), "object"),
        Shape::List { .. } => (value.is_array(), "array"),
    };
    if !fits {
        let found = kind_of(value);
        errors.push(FieldError::new(
            FieldErrorKind::TypeInvalid,
            path,
            Some(found.into()),
            format!("{} must be of type {wanted}: {found:?}", shown(path)),
        ));
    }
}

/// A number must fit what its schema calls it.
fn range_errors(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (Shape::Integer, Value::Number(number)) = (&schema.shape, value) else { return };
    let fits = match schema.format.as_deref() {
        Some("int32") => {
            number.as_f64().is_some_and(|n| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&n))
        }
        _ => true,
    };
    if !fits || !is_whole(number) {
        let form = match schema.format.as_deref() {
            Some(format) => format!(" with format {format}"),
            None => " (default format)".to_owned(),
        };
        errors.push(composite(format!("Checked value must be of type integer{form} in {path}")));
    }
}

fn passes(schema: &SchemaRef, value: &Value, path: &str) -> bool {
    let mut errors = Vec::new();
    visit(schema.get(), value, None, &mut path.to_owned(), false, &mut errors);
    errors.is_empty()
}

/// Why the first alternative does not fit.
fn explain(clause: Option<&SchemaRef>, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(clause) = clause {
        visit(clause.get(), value, None, &mut path.to_owned(), false, errors);
    }
}

/// Composite checks do not belong to a field in kube-apiserver's answers.
fn composite(why: String) -> FieldError {
    FieldError::invalid("<nil>", "", why)
}

fn junctors(checks: &Checks, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !checks.any_of.is_empty() && !checks.any_of.iter().any(|s| passes(s, value, path)) {
        errors.push(composite(format!("{path:?} must validate at least one schema (anyOf)")));
        explain(checks.any_of.first(), value, path, errors);
    }
    if !checks.exactly_one_of.is_empty() {
        let fitting = checks.exactly_one_of.iter().filter(|s| passes(s, value, path)).count();
        if fitting != 1 {
            let found = if fitting == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {fitting} valid alternatives")
            };
            let why = format!("{path:?} must validate one and only one schema (oneOf). {found}");
            errors.push(composite(why));
            if fitting == 0 {
                explain(checks.exactly_one_of.first(), value, path, errors);
            }
        }
    }
    if !checks.all_of.is_empty() {
        let before = errors.len();
        for clause in &checks.all_of {
            visit(clause.get(), value, None, &mut path.to_owned(), false, errors);
        }
        if errors.len() > before {
            let none = checks.all_of.iter().all(|s| !passes(s, value, path));
            let found = if none { ". None validated" } else { "" };
            errors
                .insert(before, composite(format!("{path:?} must validate all the schemas (allOf){found}")));
        }
    }
    if let Some(not) = &checks.not
        && passes(not, value, path)
    {
        errors.push(composite(format!("{path:?} must not validate the schema (not)")));
    }
}

fn value_checks(checks: &Checks, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(text) => text_checks(checks, text, path, errors),
        Value::Number(number) => number_checks(checks, number, path, errors),
        Value::Array(list) => {
            let count = list.len() as u64;
            if let Some(min) = checks.min_items.filter(|min| count < *min) {
                let why = format!("{} should have at least {min} items", shown(path));
                errors.push(FieldError::invalid(path, count, why));
            }
            if let Some(max) = checks.max_items.filter(|max| count > *max) {
                errors.push(too_many(path, count, max));
            }
        }
        Value::Object(object) => {
            let count = object.len() as u64;
            if let Some(min) = checks.min_properties.filter(|min| count < *min) {
                let why = format!("{} should have at least {min} properties", shown(path));
                errors.push(FieldError::invalid(path, count, why));
            }
            if let Some(max) = checks.max_properties.filter(|max| count > *max) {
                errors.push(too_many(path, count, max));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    if !checks.one_of.is_empty() && !checks.one_of.iter().any(|allowed| same(allowed, value)) {
        let words: Vec<String> =
            checks.one_of.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value.clone(), &words));
    }
}

/// Equality in which `1` and `1.0` are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn too_many(path: &str, count: u64, max: u64) -> FieldError {
    let unit = if max == 1 { "item" } else { "items" };
    let why = format!("must have at most {max} {unit}");
    FieldError::new(FieldErrorKind::TooMany, path, Some(count.into()), why)
}

/// Of several things wrong with a text only the first is told.
fn text_checks(checks: &Checks, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        errors.push(FieldError::too_long(path, max as usize));
        return;
    }
    if let Some(min) = checks.min_length.filter(|min| length < *min) {
        let why = format!("{} should be at least {min} chars long", shown(path));
        errors.push(FieldError::invalid(path, text, why));
        return;
    }
    if let Some(pattern) = &checks.pattern {
        let regex = checks.compiled.get_or_init(|| regex::Regex::new(pattern).ok());
        if regex.as_ref().is_some_and(|regex| !regex.is_match(text)) {
            let why = format!("{} should match '{pattern}'", shown(path));
            errors.push(FieldError::invalid(path, text, why));
        }
    }
}

fn number_checks(checks: &Checks, number: &Number, path: &str, errors: &mut Vec<FieldError>) {
    let Some(n) = number.as_f64() else { return };
    let mut complain = |why: String| {
        errors.push(FieldError::invalid(path, Value::Number(number.clone()), why));
    };
    // Whole numbers are divided by a whole factor, whatever the schema says.
    let factor = checks.multiple_of.map(|f| if number.is_f64() { f } else { f.trunc() });
    if let Some(factor) = factor {
        if factor <= 0.0 {
            complain(format!("factor MultipleOf declared for {path} must be positive: {factor}"));
        } else if (n / factor).fract() != 0.0 {
            complain(format!("{} should be a multiple of {factor}", shown(path)));
        }
    }
    if let Some(max) = checks.maximum {
        if checks.exclusive_maximum && n >= max {
            complain(format!("{} should be less than {max}", shown(path)));
        } else if !checks.exclusive_maximum && n > max {
            complain(format!("{} should be less than or equal to {max}", shown(path)));
        }
    }
    if let Some(min) = checks.minimum {
        if checks.exclusive_minimum && n <= min {
            complain(format!("{} should be greater than {min}", shown(path)));
        } else if !checks.exclusive_minimum && n < min {
            complain(format!("{} should be greater than or equal to {min}", shown(path)));
        }
    }
}

/// Sets and list-maps must not hold the same element twice, and embedded resources must say what they are.
fn list_keys(
    schema: &Schema,
    value: &Value,
    path: &mut String,
    resource: bool,
    errors: &mut Vec<FieldError>,
) {
    if let (Shape::List { kind, .. }, Value::Array(list)) = (&schema.shape, value) {
        match kind {
            ListKind::Atomic => {}
            ListKind::Set => duplicates(list.iter().cloned(), path, errors),
            ListKind::Map(keys) => {
                if let Some((index, odd)) =
                    list.iter().enumerate().find(|(_, v)| !v.is_null() && !v.is_object())
                {
                    errors.push(FieldError::invalid(
                        format!("{path}[{index}]"),
                        odd.clone(),
                        "must be an object for an array of list-type map",
                    ));
                } else {
                    let identity = |item: &Value| {
                        let pairs = keys
                            .iter()
                            .filter_map(|k| item.get(k.as_ref()).map(|v| (k.as_ref().to_owned(), v.clone())));
                        Value::Object(pairs.collect())
                    };
                    duplicates(list.iter().map(identity), path, errors);
                }
            }
        }
    }
    if let (true, Value::Object(object)) = (schema.embedded_resource, value) {
        for name in ["apiVersion", "kind"] {
            if object.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                errors.push(FieldError::required(format!("{path}.{name}"), ""));
            }
        }
    }
    let is_resource = resource || schema.embedded_resource;
    children(schema, value, None, path, &mut |field, child, _, path| {
        if !(is_resource && is_meta(path)) {
            list_keys(field.get(), child, path, false, errors);
        }
    });
}

/// Reports the second appearance of each element that appears more than once.
fn duplicates(items: impl Iterator<Item = Value>, path: &str, errors: &mut Vec<FieldError>) {
    let (mut seen, mut reported) = (BTreeSet::new(), BTreeSet::new());
    for (index, item) in items.enumerate() {
        let text = item.to_string();
        if !seen.insert(text.clone()) && reported.insert(text) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::crd::from_openapi;
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn schema() -> SchemaRef {
        from_openapi(
            &json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object",
                "required": ["size"], "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10},
                "mode": {"type": "string", "enum": ["fast", "safe"]},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
                "port": {"x-kubernetes-int-or-string": true},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "steps": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {
                        "name": {"type": "string"}, "weight": {"type": "number", "multipleOf": 0.5}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "choice": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            }}}}),
            "schema",
        )
        .expect("structural")
    }

    #[rstest]
    #[case(json!({}), &["spec: Required value"])]
    #[case(json!({"spec": {"size": "x"}}),
        &["spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""])]
    #[case(json!({"spec": {"size": null}}),
        &["spec.size: Invalid value: \"null\": spec.size in body must be of type integer: \"null\""])]
    #[case(json!({"spec": {"size": 0}}),
        &["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"])]
    #[case(json!({"spec": {"size": 2, "mode": "slow"}}),
        &["spec.mode: Unsupported value: \"slow\": supported values: \"fast\", \"safe\""])]
    #[case(json!({"spec": {"size": 2, "name": "ABCDEF"}}),
        &["spec.name: Too long: may not be more than 5 bytes"])]
    #[case(json!({"spec": {"size": 2, "name": "ABC"}}),
        &["spec.name: Invalid value: \"ABC\": spec.name in body should match '^[a-z]+$'"])]
    #[case(json!({"spec": {"size": 2.5}}),
        &["spec.size: Invalid value: \"number\": spec.size in body must be of type integer: \"number\"",
          "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.size"])]
    #[case(json!({"spec": {"size": 2, "port": true}}),
        &["spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\""])]
    #[case(json!({"spec": {"size": 2, "at": "noon"}}),
        &["spec.at: Invalid value: \"noon\": spec.at in body must be of type date-time: \"noon\""])]
    #[case(json!({"spec": {"size": 2, "tags": ["a", "b", "a"]}}),
        &["spec.tags: Too many: 3: must have at most 2 items", "spec.tags[2]: Duplicate value: \"a\""])]
    #[case(json!({"spec": {"size": 2, "steps": [{"name": "a"}, {"name": "a", "weight": 0.3}]}}),
        &["spec.steps[1].weight: Invalid value: 0.3: spec.steps[1].weight in body should be a multiple of 0.5",
          "spec.steps[1]: Duplicate value: {\"name\":\"a\"}"])]
    #[case(json!({"spec": {"size": 2, "labels": {"x": 1}}}),
        &["spec.labels.x: Invalid value: \"integer\": spec.labels.x in body must be of type string: \"integer\""])]
    #[case(json!({"spec": {"size": 2, "choice": {}}}),
        &["<nil>: Invalid value: \"\": \"spec.choice\" must validate one and only one schema (oneOf). Found none valid",
          "spec.choice.a: Required value"])]
    #[case(json!({"spec": {"size": 2.0, "port": "http", "choice": {"a": "x"}}}), &[])]
    fn each_violation_is_told_as_the_server_tells_it(#[case] object: Value, #[case] wanted: &[&str]) {
        let found: Vec<String> =
            validate(schema().get(), &object, None).iter().map(ToString::to_string).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_did_not_change_is_not_checked_again() {
        let old = json!({"spec": {"size": 99, "steps": [{"name": "a", "weight": 0.3}, {"name": "b"}]}});
        let new = json!({"spec": {"size": 99, "mode": "odd", "steps": [{"name": "c"}, {"name": "a", "weight": 0.3}]}});
        let found: Vec<String> =
            validate(schema().get(), &new, Some(&old)).iter().map(|e| e.field.clone()).collect();
        assert_eq!(found, ["spec.mode"]);
    }
}
