//! The type of a custom resource: from `openAPIV3Schema` to a [`Schema`].

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::decode::object_meta;
use super::rules::Compiled;
use super::{Checks, ListKind, PatchStrategy, Rule, Schema, SchemaRef, Shape, structural};
use crate::status::FieldError;

/// Reads a schema after checking that it is structural. `path` is where it stands in the definition
/// (`spec.versions[0].schema.openAPIV3Schema`).
pub fn from_openapi(json: &Value, path: &str) -> Result<SchemaRef, Vec<FieldError>> {
    let errors = structural::check(json, path);
    if errors.is_empty() { Ok(SchemaRef::new(read(json, Place::Root))) } else { Err(errors) }
}

/// The type of a custom resource without a schema: metadata is known, everything else is free.
pub fn free_resource() -> SchemaRef {
    let mut schema = Schema::of(Shape::Object { fields: meta_fields(), required: Vec::new(), atomic: false });
    schema.preserve_unknown = true;
    SchemaRef::new(schema)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Described,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`: says nothing about types.
    Junctor,
}

fn read(json: &Value, place: Place) -> Schema {
    let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
    let text = |key: &str| json.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).map(Arc::from);
    let mut schema = Schema::of(shape(json, place));
    schema.description = text("description");
    schema.format = text("format");
    schema.nullable = flag("nullable");
    schema.default = json.get("default").filter(|d| !d.is_null()).cloned();
    schema.preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
    schema.embedded_resource = flag("x-kubernetes-embedded-resource");
    let atomic = json.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
    schema.opaque = atomic && matches!(schema.shape, Shape::Any);
    if (place == Place::Root || schema.embedded_resource)
        && let Shape::Object { fields, .. } = &mut schema.shape
    {
        for (name, node) in meta_fields() {
            fields.insert(name, node);
        }
    }
    let untyped = json.get("type").and_then(Value::as_str).is_none_or(str::is_empty)
        && !matches!(schema.shape, Shape::Any | Shape::IntOrString);
    schema.checks = checks(json, untyped, place == Place::Root || schema.embedded_resource);
    schema
}

fn meta_fields() -> BTreeMap<Arc<str>, SchemaRef> {
    let word = || SchemaRef::new(Schema::of(Shape::String));
    [("apiVersion".into(), word()), ("kind".into(), word()), ("metadata".into(), object_meta().clone())]
        .into()
}

fn shape(json: &Value, place: Place) -> Shape {
    let child = if place == Place::Junctor { Place::Junctor } else { Place::Described };
    if json.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
        return Shape::IntOrString;
    }
    let atomic = json.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
    match json.get("type").and_then(Value::as_str).unwrap_or_default() {
        "string" => Shape::String,
        "integer" => Shape::Integer,
        "number" => Shape::Number,
        "boolean" => Shape::Boolean,
        "array" => list(json, child),
        "object" => object(json, child, atomic),
        _ if json.get("items").is_some() => list(json, child),
        _ if json.get("properties").is_some() || json.get("required").is_some() => {
            object(json, child, atomic)
        }
        _ if json.get("additionalProperties").is_some_and(Value::is_object) => object(json, child, atomic),
        _ => Shape::Any,
    }
}

fn list(json: &Value, child: Place) -> Shape {
    let keys = || {
        let keys = json.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        keys.into_iter().flatten().filter_map(Value::as_str).map(Arc::from).collect()
    };
    Shape::List {
        item: SchemaRef::new(json.get("items").map_or_else(Schema::anything, |item| read(item, child))),
        kind: match json.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(keys()),
            _ => ListKind::Atomic,
        },
        patch: PatchStrategy::Replace,
    }
}

fn object(json: &Value, child: Place, atomic: bool) -> Shape {
    let required: Vec<Arc<str>> = json
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(Arc::from))
        .collect();
    let properties = json.get("properties").and_then(Value::as_object);
    match json.get("additionalProperties") {
        Some(value @ Value::Object(_)) if properties.is_none() => {
            Shape::Map { value: SchemaRef::new(read(value, child)), atomic }
        }
        Some(Value::Bool(true)) if properties.is_none() => {
            let mut free = Schema::anything();
            free.preserve_unknown = true;
            Shape::Map { value: SchemaRef::new(free), atomic }
        }
        _ => Shape::Object {
            fields: properties
                .into_iter()
                .flatten()
                .map(|(name, field)| (Arc::from(name.as_str()), SchemaRef::new(read(field, child))))
                .collect(),
            required,
            atomic,
        },
    }
}

fn checks(json: &Value, untyped: bool, resource: bool) -> Option<Box<Checks>> {
    const WORDS: &[&str] = &[
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "x-kubernetes-validations",
    ];
    if !untyped && !WORDS.iter().any(|word| json.get(word).is_some()) {
        return None;
    }
    let number = |key: &str| json.get(key).and_then(Value::as_f64);
    let count = |key: &str| json.get(key).and_then(Value::as_u64);
    let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
    let each = |key: &str| -> Vec<SchemaRef> {
        let list = json.get(key).and_then(Value::as_array);
        list.into_iter().flatten().map(|s| SchemaRef::new(read(s, Place::Junctor))).collect()
    };
    // `anyOf: [integer, string]` only repeats what int-or-string already says.
    let int_or_string = flag("x-kubernetes-int-or-string");
    let any_of =
        if int_or_string && structural::is_int_or_string_any_of(json) { Vec::new() } else { each("anyOf") };
    Some(Box::new(Checks {
        one_of: json.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        pattern: json.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty()).map(Arc::from),
        compiled: std::sync::OnceLock::new(),
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: each("allOf"),
        any_of,
        exactly_one_of: each("oneOf"),
        not: json.get("not").filter(|n| n.is_object()).map(|n| SchemaRef::new(read(n, Place::Junctor))),
        untyped,
        rules: rules(json, resource),
    }))
}

fn rules(json: &Value, resource: bool) -> Vec<Rule> {
    let list = json.get("x-kubernetes-validations").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map(|entry| {
            let mut rule = Rule::from_json(entry);
            rule.compiled = Compiled::new(json, resource, &rule).map(Arc::new);
            rule
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn list_types_defaults_and_rules_are_kept() {
        let schema = from_openapi(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "size": {"type": "integer", "default": 3,
                    "x-kubernetes-validations": [{"rule": "self > 0", "message": "positive"}]},
            }}}}),
            "schema",
        )
        .expect("structural");
        let spec = schema.get().field("spec").expect("spec").get();
        let Shape::List { kind, .. } = &spec.field("ports").expect("ports").get().shape else {
            panic!("a list")
        };
        assert_eq!(kind, &ListKind::Map(vec!["name".into()]));
        assert!(matches!(spec.field("port").expect("port").get().shape, Shape::IntOrString));
        let size = spec.field("size").expect("size").get();
        assert_eq!(size.default, Some(json!(3)));
        assert_eq!(size.checks.as_ref().expect("checks").rules[0].message.as_deref(), Some("positive"));
        assert!(schema.get().field("metadata").expect("metadata").get().field("finalizers").is_some());
    }
}
