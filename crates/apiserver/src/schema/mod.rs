//! What a type looks like: one description for built-in kinds and for custom resources.
//!
//! Everything that must know the shape of an object reads a [`Schema`]: decoding (unknown fields, wrong
//! types), defaulting, pruning, validation, strategic merge, server-side apply, OpenAPI. Built-in kinds are
//! loaded from the published Kubernetes types plus our table of list semantics; custom resources from the
//! `openAPIV3Schema` of their definition.

pub mod builtin;
pub mod canonical;
pub mod crd;
pub mod decode;
pub mod default;
pub mod formats;
mod list_semantics;
pub mod prune;
pub mod rules;
mod structural;
pub mod validate;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

/// A shared node of a type description. Named types may refer to themselves, therefore the node is
/// filled in after it was handed out.
#[derive(Debug, Clone, Default)]
pub struct SchemaRef(Arc<Slot>);

#[derive(Debug, Default)]
struct Slot {
    /// The published name (`io.k8s.api.core.v1.Container`) if the type has one.
    name: Option<Arc<str>>,
    schema: OnceLock<Schema>,
    /// For a copy that a field treats in its own way: the type itself.
    original: Option<SchemaRef>,
}

static ANYTHING: Schema = Schema::anything();

impl SchemaRef {
    pub fn new(schema: Schema) -> Self {
        let slot = Slot::default();
        let _ = slot.schema.set(schema);
        Self(Arc::new(slot))
    }

    /// A named type whose content is given later with [`SchemaRef::fill`].
    pub fn named(name: &str) -> Self {
        Self(Arc::new(Slot { name: Some(name.into()), ..Slot::default() }))
    }

    /// A copy of a named type for a field that treats it in its own way; its content is given later.
    pub fn copy_of(original: &Self) -> Self {
        let name = original.0.name.clone();
        Self(Arc::new(Slot { name, original: Some(original.clone()), ..Slot::default() }))
    }

    /// The type itself, if this is the copy of one.
    pub fn original(&self) -> &Self {
        self.0.original.as_ref().unwrap_or(self)
    }

    /// Gives a named type its content. The first content stays.
    pub fn fill(&self, schema: Schema) {
        let _ = self.0.schema.set(schema);
    }

    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The content; a type that was never filled accepts anything.
    pub fn get(&self) -> &Schema {
        self.0.schema.get().unwrap_or(&ANYTHING)
    }
}

/// One node of a type description.
#[allow(clippy::struct_excessive_bools, reason = "OpenAPI has that many independent flags")]
#[derive(Debug, Clone)]
pub struct Schema {
    pub shape: Shape,
    pub description: Option<Arc<str>>,
    /// OpenAPI `format` (`int32`, `date-time`, `byte`, …).
    pub format: Option<Arc<str>>,
    pub nullable: bool,
    pub default: Option<Value>,
    /// `x-kubernetes-preserve-unknown-fields`: fields not described stay.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`: carries apiVersion, kind and metadata of its own.
    pub embedded_resource: bool,
    /// An undescribed value that server-side apply owns as one piece (`RawExtension`).
    pub opaque: bool,
    /// How strategic merge patch treats an object or map here; lists carry their own strategy.
    pub patch: PatchStrategy,
    /// Value checks; empty for built-in kinds, whose checks are written in code.
    pub checks: Option<Box<Checks>>,
    /// What clients notice of the Go types behind a built-in type.
    pub go: Option<Box<GoFacts>>,
}

/// What clients notice of the Go types behind a built-in type: names in the messages of decoding errors,
/// what becomes of zero values, what the documentation says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoFacts {
    /// The type where it does not follow from the shape (`v1.PullPolicy` for a string).
    pub type_name: Option<Arc<str>>,
    /// For fields of an object that come from an inlined struct: the path of inlined structs.
    pub inlined: BTreeMap<Arc<str>, Arc<str>>,
    /// For fields of an object: what stands there when the value is zero, if it is not the usual.
    pub zero: BTreeMap<Arc<str>, Zero>,
    /// For fields of an object whose type has a name: what is said about the field itself.
    pub described: BTreeMap<Arc<str>, Arc<str>>,
    /// The values it is documented to have. The checks themselves are written in code.
    pub values: Vec<Arc<str>>,
    /// Marked as owned field by field, which is the usual anyway.
    pub granular: bool,
}

/// What becomes of a zero value (`""`, `0`, `{}`) of a field when an object is written out. Usually objects
/// are kept as given and everything else vanishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zero {
    /// The field always stands there, also when it was not given.
    Always,
    /// As given: a zero is something else than nothing.
    Keep,
    Drop,
}

/// What kind of value stands here.
#[derive(Debug, Clone)]
pub enum Shape {
    /// Not described: any value.
    Any,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
    /// Named fields. `atomic` means that server-side apply owns the object as one value.
    Object {
        fields: BTreeMap<Arc<str>, SchemaRef>,
        required: Vec<Arc<str>>,
        atomic: bool,
    },
    /// Free keys, one type of value (labels, resource lists).
    Map {
        value: SchemaRef,
        atomic: bool,
    },
    List {
        item: SchemaRef,
        kind: ListKind,
        patch: PatchStrategy,
    },
}

/// How server-side apply treats a list (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    Set,
    /// Elements are told apart by these keys.
    Map(Vec<Arc<str>>),
}

/// How strategic merge patch treats a list or an object (`x-kubernetes-patch-strategy`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchStrategy {
    Replace,
    /// Merge; elements are told apart by the key, or by value when there is none.
    Merge {
        key: Option<Arc<str>>,
        retain_keys: bool,
    },
}

impl PatchStrategy {
    /// Merge without a key: the usual way of objects, and of lists that are sets.
    pub const MERGE: Self = Self::Merge { key: None, retain_keys: false };
}

/// Checks of a structural schema on one value.
#[allow(clippy::struct_excessive_bools, reason = "OpenAPI has that many independent flags")]
#[derive(Debug, Clone, Default)]
pub struct Checks {
    pub one_of: Vec<Value>,
    pub pattern: Option<Arc<str>>,
    /// The compiled pattern; `None` inside for one that does not compile.
    pub compiled: OnceLock<Option<regex::Regex>>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    /// `allOf`, `anyOf`, `oneOf`, `not`: value checks only, they never describe fields.
    pub all_of: Vec<SchemaRef>,
    pub any_of: Vec<SchemaRef>,
    pub exactly_one_of: Vec<SchemaRef>,
    pub not: Option<SchemaRef>,
    /// The shape only says where to look: a value of another type passes. So in `allOf` and its kin.
    pub untyped: bool,
    /// `x-kubernetes-validations`, in order.
    pub rules: Vec<Rule>,
}

/// One `x-kubernetes-validations` entry.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    /// The CEL expression.
    pub rule: Arc<str>,
    pub message: Option<Arc<str>>,
    pub message_expression: Option<Arc<str>>,
    /// `FieldValueInvalid`, `FieldValueForbidden`, `FieldValueRequired` or `FieldValueDuplicate`.
    pub reason: Option<Arc<str>>,
    /// Relative path of the field the failure is reported on.
    pub field_path: Option<Arc<str>>,
    pub optional_old_self: bool,
    /// Ready to be evaluated; nothing for a rule with mistakes.
    pub compiled: Option<Arc<rules::Compiled>>,
}

impl Rule {
    /// An entry as it stands in a definition.
    pub fn from_json(entry: &Value) -> Self {
        let text =
            |key: &str| entry.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).map(Arc::from);
        Self {
            rule: text("rule").unwrap_or_default(),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: entry.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            compiled: None,
        }
    }
}

impl Schema {
    pub const fn anything() -> Self {
        Self::of(Shape::Any)
    }

    pub const fn of(shape: Shape) -> Self {
        Self {
            shape,
            description: None,
            format: None,
            nullable: false,
            default: None,
            preserve_unknown: false,
            embedded_resource: false,
            opaque: false,
            patch: PatchStrategy::MERGE,
            checks: None,
            go: None,
        }
    }

    /// A single value, neither object nor list.
    pub fn is_scalar(&self) -> bool {
        matches!(self.shape, Shape::String | Shape::Integer | Shape::Number | Shape::Boolean)
    }

    /// The type of a named field or map value, if it is described.
    pub fn field(&self, name: &str) -> Option<&SchemaRef> {
        match &self.shape {
            Shape::Object { fields, .. } => fields.get(name),
            Shape::Map { value, .. } => Some(value),
            _ => None,
        }
    }
}
