//! Type descriptions as JSON schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Kinds};
use crate::schema::builtin::{INT_OR_STRING, QUANTITY};
use crate::schema::{Checks, ListKind, PatchStrategy, Schema, SchemaRef, Shape};

/// The two versions of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    pub(super) fn reference(self, name: &str) -> Value {
        let prefix = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{prefix}{name}")})
    }
}

/// The published name of a kind: that of its type, or one made from the group of a custom resource.
pub(super) fn type_name(kind: &Kind) -> String {
    if let Some(name) = kind.schema.name() {
        return name.to_owned();
    }
    let reversed: Vec<&str> = kind.group.split('.').rev().collect();
    format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind)
}

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// The named types of a document.
pub(super) struct Schemas {
    dialect: Dialect,
    done: BTreeMap<String, Value>,
}

impl Schemas {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, done: BTreeMap::new() }
    }

    /// A kind, its list, and everything they refer to.
    pub(super) fn add_kind(&mut self, kind: &Kind, kinds: &Kinds) {
        let name = type_name(kind);
        let mut schema = if kind.custom.is_some() {
            self.custom(kind, kinds)
        } else {
            self.named(&kind.schema);
            self.done.get(&name).cloned().unwrap_or_default()
        };
        let mark = json!([{"group": kind.group, "kind": kind.kind, "version": kind.version}]);
        schema["x-kubernetes-group-version-kind"] = mark;
        self.done.insert(name.clone(), schema);
        if kind.is_stored() {
            self.add_list(kind, &name);
        }
        self.done.entry(PATCH.to_owned()).or_insert_with(|| {
            json!({"description": "A change to an object, in one of the patch formats.", "type": "object"})
        });
    }

    fn add_list(&mut self, kind: &Kind, item: &str) {
        let list_name = match item.strip_suffix(kind.kind.as_ref()) {
            Some(prefix) => format!("{prefix}{}", kind.list_kind),
            None => format!("{item}List"),
        };
        self.done.entry(LIST_META.to_owned()).or_insert_with(|| {
            json!({
                "description": "What a list says about itself.",
                "type": "object",
                "properties": {
                    "continue": {"type": "string"},
                    "remainingItemCount": {"type": "integer", "format": "int64"},
                    "resourceVersion": {"type": "string"},
                    "selfLink": {"type": "string"},
                },
            })
        });
        let list = json!({
            "description": format!("A list of {}.", kind.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": self.dialect.reference(LIST_META),
                "items": {"type": "array", "items": self.dialect.reference(item)},
            },
            "x-kubernetes-group-version-kind":
                [{"group": kind.group, "kind": kind.list_kind, "version": kind.version}],
        });
        self.done.insert(list_name, list);
    }

    /// What a deletion may carry.
    pub(super) fn add_options(&mut self, group: &str, version: &str) {
        self.done.insert(
            DELETE_OPTIONS.to_owned(),
            json!({
                "description": "How an object is to be deleted.",
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "dryRun": {"type": "array", "items": {"type": "string"}},
                    "gracePeriodSeconds": {"type": "integer", "format": "int64"},
                    "orphanDependents": {"type": "boolean"},
                    "propagationPolicy": {"type": "string"},
                    "preconditions": {
                        "type": "object",
                        "properties": {"resourceVersion": {"type": "string"}, "uid": {"type": "string"}},
                    },
                },
                "x-kubernetes-group-version-kind":
                    [{"group": group, "kind": "DeleteOptions", "version": version}],
            }),
        );
    }

    pub(super) fn finish(self) -> Value {
        Value::Object(self.done.into_iter().collect())
    }

    /// A custom resource: its schema with the fields every object has.
    fn custom(&mut self, kind: &Kind, kinds: &Kinds) -> Value {
        let mut schema = self.content(kind.schema.get());
        if !schema.is_object() || schema.get("type").is_none() {
            schema["type"] = json!("object");
        }
        let metadata = kinds
            .by_kind("", "v1", "Namespace")
            .and_then(|n| n.schema.get().field("metadata").cloned())
            .map_or_else(|| json!({"type": "object"}), |meta| self.value(&meta));
        if let Some(fields) = schema.as_object_mut() {
            let properties = fields.entry("properties").or_insert_with(|| json!({}));
            for name in ["apiVersion", "kind"] {
                let described = properties.get(name).and_then(|p| p.get("description")).is_some();
                if !described {
                    properties[name] = json!({"type": "string"});
                }
            }
            properties["metadata"] = metadata;
        }
        schema
    }

    /// Makes sure that a named type is in the document.
    fn named(&mut self, schema: &SchemaRef) {
        let Some(name) = schema.name() else { return };
        if self.done.contains_key(name) {
            return;
        }
        // Types refer to themselves: the place is taken before the content is made.
        self.done.insert(name.to_owned(), Value::Null);
        let content = match name {
            QUANTITY if self.dialect == Dialect::V3 => {
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
            }
            QUANTITY => json!({"type": "string"}),
            INT_OR_STRING if self.dialect == Dialect::V3 => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            INT_OR_STRING => json!({"type": "string", "format": "int-or-string"}),
            _ => self.content(schema.get()),
        };
        let mut content = content;
        // How a patch treats it is a matter of the field that has this type.
        if let Some(map) = content.as_object_mut() {
            map.remove("x-kubernetes-patch-strategy");
        }
        if content.get("description").is_none()
            && let Some(text) = &schema.get().description
        {
            content["description"] = json!(&**text);
        }
        self.done.insert(name.to_owned(), content);
    }

    /// A value somewhere in a type: a reference for named types, the schema itself for others.
    fn value(&mut self, schema: &SchemaRef) -> Value {
        match schema.name() {
            Some(name) => {
                self.named(schema);
                self.dialect.reference(name)
            }
            None => self.content(schema.get()),
        }
    }

    /// A field: references are wrapped where something is said about the field itself.
    fn field(&mut self, schema: &SchemaRef) -> Value {
        let mut value = self.value(schema);
        if schema.name().is_some() && self.dialect == Dialect::V3 {
            let mut wrapped = Map::new();
            wrapped.insert("allOf".into(), json!([value]));
            patch_strategy(&schema.get().patch, false, &mut wrapped);
            value = Value::Object(wrapped);
        }
        value
    }

    fn content(&mut self, schema: &Schema) -> Value {
        let mut out = Map::new();
        if let Some(text) = &schema.description {
            out.insert("description".into(), json!(&**text));
        }
        match &schema.shape {
            Shape::Any => {
                if schema.preserve_unknown || schema.embedded_resource {
                    out.insert("type".into(), json!("object"));
                }
            }
            Shape::String => {
                out.insert("type".into(), json!("string"));
            }
            Shape::Integer => {
                out.insert("type".into(), json!("integer"));
            }
            Shape::Number => {
                out.insert("type".into(), json!("number"));
            }
            Shape::Boolean => {
                out.insert("type".into(), json!("boolean"));
            }
            Shape::IntOrString => {
                out.insert("x-kubernetes-int-or-string".into(), json!(true));
            }
            Shape::Object { fields, required, atomic } => {
                out.insert("type".into(), json!("object"));
                if !fields.is_empty() {
                    let properties: Map<String, Value> =
                        fields.iter().map(|(k, v)| (k.to_string(), self.field(v))).collect();
                    out.insert("properties".into(), Value::Object(properties));
                }
                if !required.is_empty() {
                    out.insert("required".into(), json!(required.iter().map(|r| &**r).collect::<Vec<_>>()));
                }
                if *atomic {
                    out.insert("x-kubernetes-map-type".into(), json!("atomic"));
                }
                patch_strategy(&schema.patch, false, &mut out);
            }
            Shape::Map { value, atomic } => {
                out.insert("type".into(), json!("object"));
                out.insert("additionalProperties".into(), self.value(value));
                if *atomic {
                    out.insert("x-kubernetes-map-type".into(), json!("atomic"));
                }
            }
            Shape::List { item, kind, patch } => {
                out.insert("type".into(), json!("array"));
                out.insert("items".into(), self.value(item));
                match kind {
                    ListKind::Atomic => out.insert("x-kubernetes-list-type".into(), json!("atomic")),
                    ListKind::Set => out.insert("x-kubernetes-list-type".into(), json!("set")),
                    ListKind::Map(keys) => {
                        let keys: Vec<&str> = keys.iter().map(|k| &**k).collect();
                        out.insert("x-kubernetes-list-map-keys".into(), json!(keys));
                        out.insert("x-kubernetes-list-type".into(), json!("map"))
                    }
                };
                patch_strategy(patch, true, &mut out);
            }
        }
        if let Some(format) = &schema.format {
            out.insert("format".into(), json!(&**format));
        }
        if let Some(default) = &schema.default {
            out.insert("default".into(), default.clone());
        }
        if schema.nullable && self.dialect == Dialect::V3 {
            out.insert("nullable".into(), json!(true));
        }
        if schema.preserve_unknown {
            out.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
        }
        if schema.embedded_resource {
            out.insert("x-kubernetes-embedded-resource".into(), json!(true));
        }
        if let Some(checks) = &schema.checks {
            self.checks(checks, &mut out);
        }
        Value::Object(out)
    }

    fn checks(&mut self, checks: &Checks, out: &mut Map<String, Value>) {
        if !checks.one_of.is_empty() {
            out.insert("enum".into(), json!(checks.one_of));
        }
        if let Some(pattern) = &checks.pattern {
            out.insert("pattern".into(), json!(&**pattern));
        }
        for (name, limit) in
            [("minimum", checks.minimum), ("maximum", checks.maximum), ("multipleOf", checks.multiple_of)]
        {
            if let Some(limit) = limit {
                out.insert(name.into(), number(limit));
            }
        }
        for (name, limit) in [
            ("minLength", checks.min_length),
            ("maxLength", checks.max_length),
            ("minItems", checks.min_items),
            ("maxItems", checks.max_items),
            ("minProperties", checks.min_properties),
            ("maxProperties", checks.max_properties),
        ] {
            if let Some(limit) = limit {
                out.insert(name.into(), json!(limit));
            }
        }
        for (name, set) in [
            ("exclusiveMinimum", checks.exclusive_minimum),
            ("exclusiveMaximum", checks.exclusive_maximum),
            ("uniqueItems", checks.unique_items),
        ] {
            if set {
                out.insert(name.into(), json!(true));
            }
        }
        if self.dialect == Dialect::V3 {
            for (name, parts) in
                [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.exactly_one_of)]
            {
                if !parts.is_empty() {
                    let parts: Vec<Value> = parts.iter().map(|p| self.value(p)).collect();
                    out.insert(name.into(), Value::Array(parts));
                }
            }
            if let Some(not) = &checks.not {
                let not = self.value(not);
                out.insert("not".into(), not);
            }
        }
    }
}

/// Whole limits without a fraction.
fn number(limit: f64) -> Value {
    if limit.fract() == 0.0 && limit.abs() < 9e15 { json!(limit as i64) } else { json!(limit) }
}

fn patch_strategy(strategy: &PatchStrategy, list: bool, out: &mut Map<String, Value>) {
    let PatchStrategy::Merge { key, retain_keys } = strategy else {
        // Lists are replaced anyway; for an object it is worth saying.
        if !list {
            out.insert("x-kubernetes-patch-strategy".into(), json!("replace"));
        }
        return;
    };
    if let Some(key) = key {
        out.insert("x-kubernetes-patch-merge-key".into(), json!(&**key));
    }
    let text = match (list, retain_keys) {
        (true, true) => "merge,retainKeys",
        (true, false) => "merge",
        (false, true) => "retainKeys",
        // Merging is what objects do anyway.
        (false, false) => return,
    };
    out.insert("x-kubernetes-patch-strategy".into(), json!(text));
}

/// A schema as it stands, for telling whether it changed.
pub(super) fn inline(schema: &SchemaRef, dialect: Dialect) -> Value {
    Schemas::new(dialect).content(schema.get())
}
