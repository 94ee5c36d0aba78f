//! Type descriptions as JSON schemas.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Kinds, Subresource};
use crate::schema::builtin::{FIELDS_V1, INT_OR_STRING, MICRO_TIME, QUANTITY, RAW_EXTENSION, Types, is_free};
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

pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// Types that are not kinds of their own: bodies of subresources, options, refusals.
fn bodies() -> &'static BTreeMap<String, SchemaRef> {
    static TYPES: OnceLock<BTreeMap<String, SchemaRef>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut types = Types::new();
        types.load::<api::autoscaling::v1::Scale>();
        types.load::<api::policy::v1::Eviction>();
        types.load::<api::core::v1::Binding>();
        types.load::<api::authentication::v1::TokenRequest>();
        types.load::<meta::DeleteOptions>();
        types.load::<meta::ListMeta>();
        types.load::<meta::Status>();
        types.iter().map(|(name, schema)| (name.to_owned(), schema.clone())).collect()
    })
}

/// The published name of the type of a subresource's body, if it is not the object itself.
pub(super) fn body_name(sub: &Subresource) -> Option<&'static str> {
    Some(match (sub.group.as_ref(), sub.kind.as_ref()) {
        ("autoscaling", "Scale") => "io.k8s.api.autoscaling.v1.Scale",
        ("policy", "Eviction") => "io.k8s.api.policy.v1.Eviction",
        ("", "Binding") => "io.k8s.api.core.v1.Binding",
        ("authentication.k8s.io", "TokenRequest") => "io.k8s.api.authentication.v1.TokenRequest",
        _ => return None,
    })
}

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
        let schema = if kind.custom.is_some() {
            self.custom(kind, kinds)
        } else {
            self.named(&kind.schema);
            self.done.get(&name).cloned().unwrap_or_default()
        };
        self.done.insert(name.clone(), schema);
        self.mark(&name, &kind.group, &kind.version, &kind.kind);
        if kind.is_stored() {
            self.add_list(kind, &name);
        }
        for sub in &kind.subresources {
            if let Some(body) = body_name(sub) {
                self.body(body);
                self.mark(body, &sub.group, &sub.version, &sub.kind);
            }
        }
        if kind.allows(crate::kinds::PATCH) {
            self.done.entry(PATCH.to_owned()).or_insert_with(|| {
                json!({"description": "A change to an object, in one of the patch formats.", "type": "object"})
            });
        }
        if kind.allows(crate::kinds::DELETE) {
            self.body(STATUS);
            self.mark(STATUS, "", "v1", "Status");
            self.body(DELETE_OPTIONS);
            self.mark(DELETE_OPTIONS, "", "v1", "DeleteOptions");
            self.mark(DELETE_OPTIONS, &kind.group, &kind.version, "DeleteOptions");
        }
    }

    /// A type that is no kind of its own.
    fn body(&mut self, name: &str) {
        if let Some(schema) = bodies().get(name) {
            self.named(schema);
        }
    }

    /// Says what objects of a type call themselves.
    fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        let mark = json!({"group": group, "kind": kind, "version": version});
        let Some(Value::Object(schema)) = self.done.get_mut(name) else { return };
        let marks = schema.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
        if let Some(marks) = marks.as_array_mut()
            && !marks.contains(&mark)
        {
            marks.push(mark);
        }
    }

    fn add_list(&mut self, kind: &Kind, item: &str) {
        let list_name = match item.strip_suffix(kind.kind.as_ref()) {
            Some(prefix) => format!("{prefix}{}", kind.list_kind),
            None => format!("{item}List"),
        };
        self.body(LIST_META);
        let metadata = match self.dialect {
            Dialect::V2 => self.dialect.reference(LIST_META),
            Dialect::V3 => json!({
                "description": "What the list says about itself.",
                "allOf": [self.dialect.reference(LIST_META)],
            }),
        };
        let list = json!({
            "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": own_type("apiVersion"),
                "kind": own_type("kind"),
                "metadata": metadata,
                "items": {
                    "description": format!("List of {}.", kind.plural),
                    "type": "array",
                    "items": self.dialect.reference(item),
                },
            },
        });
        self.done.insert(list_name.clone(), list);
        self.mark(&list_name, &kind.group, &kind.version, &kind.list_kind);
    }

    /// Kinds of other groups that these refer to.
    pub(super) fn mark_kinds(&mut self, kinds: &Kinds) {
        for kind in kinds.iter().filter(|kind| kind.is_builtin()) {
            self.mark(&type_name(kind), &kind.group, &kind.version, &kind.kind);
        }
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
        let object = kinds.by_kind("", "v1", "Namespace").map(|n| n.schema.clone()).unwrap_or_default();
        let metadata = self.field("metadata", object.get());
        if let Some(fields) = schema.as_object_mut() {
            let properties = fields.entry("properties").or_insert_with(|| json!({}));
            for name in ["apiVersion", "kind"] {
                let described = properties.get(name).and_then(|p| p.get("description")).is_some();
                if !described {
                    properties[name] = own_type(name);
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
        // Types refer to themselves: the place is taken before the content is made. A field that treats
        // its type in its own way says so itself.
        self.done.insert(name.to_owned(), Value::Null);
        let schema = schema.original();
        let mut content = match name {
            QUANTITY if self.dialect == Dialect::V3 => {
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
            }
            QUANTITY => json!({"type": "string"}),
            INT_OR_STRING if self.dialect == Dialect::V3 => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            INT_OR_STRING => json!({"type": "string", "format": "int-or-string"}),
            MICRO_TIME => json!({"type": "string", "format": "date-time"}),
            RAW_EXTENSION | FIELDS_V1 => json!({"type": "object"}),
            _ if is_free(name) => json!({}),
            _ => self.content(schema.get()),
        };
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

    /// A field of an object. References are wrapped where something is said about the field itself.
    fn field(&mut self, name: &str, parent: &Schema) -> Value {
        let Some(schema) = parent.field(name) else { return json!({}) };
        let value = self.value(schema);
        if schema.name().is_none() {
            return value;
        }
        let mut wrapped = Map::new();
        if let Some(text) = parent.go.as_ref().and_then(|go| go.described.get(name)) {
            wrapped.insert("description".into(), json!(&**text));
        }
        patch_strategy(&schema.get().patch, false, &mut wrapped);
        let is_copy = schema.original().get().go != schema.get().go;
        if is_copy && schema.get().go.as_ref().is_some_and(|go| go.granular) {
            wrapped.insert("x-kubernetes-map-type".into(), json!("granular"));
        }
        if wrapped.is_empty() {
            return value;
        }
        match (self.dialect, value) {
            (Dialect::V2, Value::Object(reference)) => wrapped.extend(reference),
            (_, value) => {
                wrapped.insert("allOf".into(), json!([value]));
            }
        }
        Value::Object(wrapped)
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
                if self.dialect == Dialect::V3 {
                    out.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
                }
            }
            Shape::Object { fields, required, atomic } => {
                out.insert("type".into(), json!("object"));
                if !fields.is_empty() {
                    let properties: Map<String, Value> =
                        fields.keys().map(|k| (k.to_string(), self.field(k, schema))).collect();
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
        // The older dialect cannot say that anything goes, or that nothing does.
        if self.dialect == Dialect::V2 && (schema.nullable || schema.preserve_unknown) {
            out.remove("type");
        }
        if schema.embedded_resource {
            out.insert("x-kubernetes-embedded-resource".into(), json!(true));
        }
        if let Some(go) = &schema.go {
            if !go.values.is_empty() {
                out.insert("enum".into(), json!(go.values.iter().map(|v| &**v).collect::<Vec<_>>()));
            }
            if go.granular {
                out.insert("x-kubernetes-map-type".into(), json!("granular"));
            }
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

/// The two fields by which an object says what it is.
fn own_type(name: &str) -> Value {
    let text = match name {
        "kind" => "What kind of object this is, in CamelCase.",
        _ => "The group and version of the API in which the object is written.",
    };
    json!({"description": text, "type": "string"})
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
