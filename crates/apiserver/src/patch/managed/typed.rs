//! Values seen through their type: which fields they have, how two of them differ, how they merge, and what
//! is left when fields are taken away.
//!
//! Objects and maps are taken apart unless their type says atomic; lists only when their elements have an
//! identity (sets and list-maps). Values without a type are taken apart as objects, and their lists are
//! atomic.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::set::{Below, Branch, FieldSet};
use crate::schema::{ListKind, Schema, SchemaRef, Shape};

/// How a value is owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// As one.
    Leaf,
    /// Field by field.
    Fields,
    /// Element by element.
    Elements,
}

fn free() -> &'static SchemaRef {
    static FREE: OnceLock<SchemaRef> = OnceLock::new();
    FREE.get_or_init(|| SchemaRef::new(Schema::anything()))
}

fn manner(schema: &Schema, value: &Value) -> Manner {
    match (&schema.shape, value) {
        (Shape::Any, Value::Object(_)) if !schema.opaque => Manner::Fields,
        (Shape::Object { atomic: false, .. } | Shape::Map { atomic: false, .. }, Value::Object(_)) => {
            Manner::Fields
        }
        (Shape::List { kind: ListKind::Set | ListKind::Map(_), .. }, Value::Array(_)) => Manner::Elements,
        _ => Manner::Leaf,
    }
}

fn child<'s>(schema: &'s Schema, name: &str) -> &'s Schema {
    schema.field(name).unwrap_or_else(|| free()).get()
}

/// Whether a name is a declared field and not a key of a map.
fn is_declared(schema: &Schema, name: &str) -> bool {
    matches!(&schema.shape, Shape::Object { fields, .. } if fields.contains_key(name))
}

fn item_schema(schema: &Schema) -> &Schema {
    match &schema.shape {
        Shape::List { item, .. } => item.get(),
        _ => free().get(),
    }
}

/// What tells an element of a set or list-map from the others, in wire form.
pub(super) fn element(schema: &Schema, item: &Value) -> Result<String, String> {
    let Shape::List { item: item_schema, kind, .. } = &schema.shape else {
        return Err("invalid indexing of non-associative list".to_owned());
    };
    match kind {
        ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListKind::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            plain => Ok(format!("v:{plain}")),
        },
        ListKind::Map(keys) => {
            let fields = match item {
                Value::Object(fields) => fields,
                Value::Null => {
                    return Err("associative list with keys may not have a null element".to_owned());
                }
                _ => return Err("associative list with keys may not have non-map elements".to_owned()),
            };
            let mut identity = BTreeMap::new();
            for key in keys {
                let value = fields
                    .get(key.as_ref())
                    .or_else(|| item_schema.get().field(key).and_then(|field| field.get().default.as_ref()));
                if let Some(value) = value {
                    identity.insert(key.as_ref(), value);
                }
            }
            if identity.is_empty() {
                let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have \
                     default values for any key fields)",
                    keys.join(" ")
                ));
            }
            let text = serde_json::to_string(&identity).unwrap_or_default();
            Ok(format!("k:{text}"))
        }
    }
}

/// The fields a value has.
pub(super) fn fields_of(schema: &Schema, value: &Value) -> FieldSet {
    branch_of(schema, value).below
}

fn branch_of(schema: &Schema, value: &Value) -> Branch {
    let mut branch = Branch::default();
    match (manner(schema, value), value) {
        (Manner::Fields, Value::Object(fields)) => {
            for (name, value) in fields {
                let mut below = branch_of(child(schema, name), value);
                let hollow = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                below.member |= hollow || !is_declared(schema, name);
                branch.below.attach(|| format!("f:{name}"), below);
            }
        }
        (Manner::Elements, Value::Array(items)) => {
            let item = item_schema(schema);
            let mut seen: BTreeMap<String, Option<&Value>> = BTreeMap::new();
            for value in items {
                if let Ok(element) = element(schema, value) {
                    // An element that is there twice is owned as one.
                    seen.entry(element).and_modify(|v| *v = None).or_insert(Some(value));
                }
            }
            for (element, value) in seen {
                let mut below = value.map_or_else(Branch::leaf, |value| branch_of(item, value));
                below.member = true;
                branch.below.attach(|| element, below);
            }
        }
        _ => branch.member = true,
    }
    branch
}

/// How one value differs from another.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub removed: FieldSet,
    pub modified: FieldSet,
    pub added: FieldSet,
}

impl Comparison {
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// What the new value sets: added and modified fields.
    pub fn set(&self) -> FieldSet {
        self.added.clone().union(&self.modified)
    }

    #[must_use]
    pub fn without_trees(self, ignored: &FieldSet) -> Self {
        Self {
            removed: self.removed.without_trees(ignored),
            modified: self.modified.without_trees(ignored),
            added: self.added.without_trees(ignored),
        }
    }
}

#[derive(Debug, Default)]
struct Diff {
    removed: Branch,
    modified: Branch,
    added: Branch,
}

impl Diff {
    fn attach(&mut self, element: impl Fn() -> String, below: Self) {
        for (here, below) in [
            (&mut self.removed, below.removed),
            (&mut self.modified, below.modified),
            (&mut self.added, below.added),
        ] {
            if !below.is_empty() {
                here.below.attach(&element, below);
            }
        }
    }
}

pub(super) fn compare(schema: &Schema, old: &Value, new: &Value) -> Comparison {
    let diff = diff(schema, Some(old), Some(new));
    Comparison { removed: diff.removed.below, modified: diff.modified.below, added: diff.added.below }
}

fn diff(schema: &Schema, old: Option<&Value>, new: Option<&Value>) -> Diff {
    let mut out = Diff::default();
    let old_manner = old.map(|v| manner(schema, v)).filter(|_| !old.is_some_and(Value::is_null));
    let new_manner = new.map(|v| manner(schema, v)).filter(|_| !new.is_some_and(Value::is_null));
    let in_leaf = match (old_manner, new_manner) {
        (Some(a), Some(b)) if a != b => {
            diff_as(a, schema, old, new, &mut out);
            diff_as(b, schema, old, new, &mut out)
        }
        (_, Some(manner)) | (Some(manner), None) => diff_as(manner, schema, old, new, &mut out),
        (None, None) => leaf(old, new, &mut out),
    };
    if !in_leaf {
        out.added.member |= old.is_none();
        out.removed.member |= new.is_none();
    }
    out
}

fn leaf(old: Option<&Value>, new: Option<&Value>, out: &mut Diff) -> bool {
    match (old, new) {
        (None, _) => out.added.member = true,
        (_, None) => out.removed.member = true,
        (Some(old), Some(new)) => out.modified.member |= !same(old, new),
    }
    true
}

/// Equality in which `1` and `1.0` are the same number.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        _ => a == b,
    }
}

/// Compares in one manner; tells whether the value was taken as one.
fn diff_as(
    manner: Manner,
    schema: &Schema,
    old: Option<&Value>,
    new: Option<&Value>,
    out: &mut Diff,
) -> bool {
    match manner {
        Manner::Leaf => leaf(old, new, out),
        Manner::Fields => {
            let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            if before.is_none_or(Map::is_empty) && after.is_none_or(Map::is_empty) {
                return leaf(old, new, out);
            }
            for (name, value) in before.into_iter().flatten() {
                let below = diff(child(schema, name), Some(value), after.and_then(|a| a.get(name)));
                out.attach(|| format!("f:{name}"), below);
            }
            for (name, value) in after.into_iter().flatten() {
                if before.is_none_or(|b| !b.contains_key(name)) {
                    let below = diff(child(schema, name), None, Some(value));
                    out.attach(|| format!("f:{name}"), below);
                }
            }
            false
        }
        Manner::Elements => {
            let (before, after) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            if before.is_none_or(Vec::is_empty) && after.is_none_or(Vec::is_empty) {
                return leaf(old, new, out);
            }
            // Unchanged lists are common and need no identities.
            if before == after {
                return false;
            }
            diff_elements(schema, before, after, out);
            false
        }
    }
}

type Pairs<'v> = BTreeMap<String, (Vec<&'v Value>, Vec<&'v Value>)>;

fn diff_elements(schema: &Schema, before: Option<&Vec<Value>>, after: Option<&Vec<Value>>, out: &mut Diff) {
    let mut pairs: Pairs<'_> = BTreeMap::new();
    for value in before.into_iter().flatten() {
        if let Ok(element) = element(schema, value) {
            pairs.entry(element).or_default().0.push(value);
        }
    }
    for value in after.into_iter().flatten() {
        if let Ok(element) = element(schema, value) {
            pairs.entry(element).or_default().1.push(value);
        }
    }
    let item = item_schema(schema);
    for (element, (old, new)) in pairs {
        let mut below = Diff::default();
        match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => below = diff(item, old.first().copied(), new.first().copied()),
            ([_, _, ..], [_, _, ..]) => below.modified.member = old != new,
            // Elements that are there twice are owned as one.
            ([_, _, ..], rest) => {
                if let Some(only) = rest.first() {
                    below = diff(item, None, Some(only));
                }
                below.removed.member = true;
            }
            (rest, _) => {
                if let Some(only) = rest.first() {
                    below = diff(item, Some(only), None);
                }
                below.added.member = true;
            }
        }
        out.attach(|| element.clone(), below);
    }
}

fn is_hollow(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Lays a configuration over a live value.
pub(super) fn merge(schema: &Schema, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let (live, config) = match (live, config) {
        (Some(live), Some(config)) => (live, config),
        (one, other) => return other.or(one).cloned(),
    };
    // Nothing laid over fields or elements that others may own takes none of them away.
    if config.is_null() && manner(schema, live) != Manner::Leaf && !is_hollow(live) {
        return Some(live.clone());
    }
    match (manner(schema, config), live, config) {
        (Manner::Fields, Value::Object(before), Value::Object(after)) => {
            if before.is_empty() && after.is_empty() {
                return Some(config.clone());
            }
            let mut merged = Map::new();
            for (name, value) in before {
                if let Some(value) = merge(child(schema, name), Some(value), after.get(name)) {
                    merged.insert(name.clone(), value);
                }
            }
            for (name, value) in after {
                if !before.contains_key(name) {
                    merged.insert(name.clone(), value.clone());
                }
            }
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        (Manner::Elements, Value::Array(before), Value::Array(after)) => {
            if before.is_empty() && after.is_empty() {
                return Some(config.clone());
            }
            let merged = merge_elements(schema, before, after);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        _ => Some(config.clone()),
    }
}

/// Elements of the configuration keep their order; elements only the live list has stay where they were.
fn merge_elements(schema: &Schema, live: &[Value], config: &[Value]) -> Vec<Value> {
    let item = item_schema(schema);
    let index = |list: &[Value]| -> Vec<String> {
        list.iter().map(|value| element(schema, value).unwrap_or_default()).collect()
    };
    let (live_keys, config_keys) = (index(live), index(config));
    let mut found: BTreeMap<&str, Option<&Value>> = BTreeMap::new();
    for (key, value) in live_keys.iter().zip(live) {
        // An element that is there twice cannot be merged with.
        found.entry(key).and_modify(|v| *v = None).or_insert(Some(value));
    }
    let in_config: BTreeMap<&str, &Value> = config_keys.iter().map(String::as_str).zip(config).collect();
    let mut shared = config_keys.iter().filter(|key| found.contains_key(key.as_str()));
    let mut next_shared = shared.next();
    let mut done: std::collections::BTreeSet<&str> = std::collections::BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < config.len() {
        if let (Some(live_key), Some(config_key)) = (live_keys.get(l), config_keys.get(c)) {
            if live_key == config_key {
                done.insert(live_key);
                let old = found.get(live_key.as_str()).copied().flatten();
                out.extend(merge(item, old, Some(&config[c])));
                (l, c) = (l + 1, c + 1);
                next_shared = shared.next();
                continue;
            }
            if in_config.contains_key(live_key.as_str()) && next_shared.is_some_and(|next| next != live_key) {
                // It has its turn later.
                l += 1;
                continue;
            }
        }
        if let Some(live_key) = live_keys.get(l) {
            if !in_config.contains_key(live_key.as_str()) {
                out.push(live[l].clone());
                l += 1;
                continue;
            } else if done.contains(live_key.as_str()) {
                l += 1;
            }
        }
        if let Some(config_key) = config_keys.get(c) {
            done.insert(config_key);
            let old = found.get(config_key.as_str()).copied().flatten();
            out.extend(merge(item, old, Some(&config[c])));
            c += 1;
            if next_shared == Some(config_key) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// Takes fields away. `None` is left of a value that becomes empty by that.
pub(super) fn remove(schema: &Schema, value: &Value, gone: &FieldSet) -> Option<Value> {
    remove_below(schema, value, Below::root(gone))
}

fn remove_below(schema: &Schema, value: &Value, gone: Below<'_>) -> Option<Value> {
    match (manner(schema, value), value) {
        (Manner::Fields, Value::Object(fields)) => {
            let mut left = Map::new();
            for (name, value) in fields {
                let kept = match gone.get(&format!("f:{name}")) {
                    Some(below) if below.is_member() => None,
                    // A field that is emptied by this becomes null; it was not itself taken away.
                    Some(below) if below.has_children() => {
                        Some(remove_below(child(schema, name), value, below).unwrap_or_default())
                    }
                    _ => Some(value.clone()),
                };
                if let Some(kept) = kept {
                    left.insert(name.clone(), kept);
                }
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        (Manner::Elements, Value::Array(items)) => {
            let item = item_schema(schema);
            let mut left = Vec::with_capacity(items.len());
            for value in items {
                let below = element(schema, value).ok().and_then(|element| gone.get(&element));
                match below {
                    Some(below) if below.is_member() => {}
                    Some(below) if below.has_children() => left.extend(remove_below(item, value, below)),
                    _ => left.push(value.clone()),
                }
            }
            (!left.is_empty()).then_some(Value::Array(left))
        }
        // Asked to take something out of a value that is owned as one: all of it goes.
        (_, Value::Object(_) | Value::Array(_)) => None,
        (_, plain) => Some(plain.clone()),
    }
}

/// The set plus every declared field on the way to a member. Taking away `spec.a` then also takes away an
/// empty `spec`.
pub(super) fn with_declared_parents(schema: &Schema, set: &FieldSet) -> FieldSet {
    fn walk(schema: &Schema, below: Below<'_>) -> FieldSet {
        let mut out = FieldSet::default();
        for (element, inner) in below.iter() {
            let (member, next) = match element.strip_prefix("f:") {
                Some(name) => (is_declared(schema, name) && inner.has_children(), child(schema, name)),
                None => (false, item_schema(schema)),
            };
            let branch = Branch { member: member || inner.is_member(), below: walk(next, inner) };
            out.attach(|| element.to_owned(), branch);
        }
        out
    }
    walk(schema, Below::root(set))
}

/// Whether a configuration can be applied at all. Complaints carry the path in front.
pub(super) fn check(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<String>) {
    match (&schema.shape, value) {
        (_, Value::Null) | (Shape::Any, _) => {}
        (Shape::Object { .. } | Shape::Map { .. }, Value::Object(fields)) => {
            // A field that is not known ends the look at its object.
            if let Some(name) = fields.keys().find(|name| schema.field(name).is_none())
                && !schema.preserve_unknown
            {
                errors.push(format!("{path}.{name}: field not declared in schema"));
                return;
            }
            for (name, value) in fields {
                if let Some(field) = schema.field(name) {
                    check(field.get(), value, &format!("{path}.{name}"), errors);
                }
            }
        }
        (Shape::List { item, kind, .. }, Value::Array(items)) => {
            let mut seen = std::collections::BTreeSet::new();
            for (index, value) in items.iter().enumerate() {
                if *kind == ListKind::Atomic {
                    check(item.get(), value, &format!("{path}[{index}]"), errors);
                    continue;
                }
                match element(schema, value) {
                    Err(why) => {
                        errors.push(format!("{path}: element {index}: {why}"));
                        return;
                    }
                    Ok(element) => {
                        let shown = FieldSet::from_fields_v1(serde_json::json!({ element.clone(): {} }))
                            .map(|set| set.paths().concat())
                            .unwrap_or_default();
                        if !seen.insert(element) {
                            errors.push(format!("{path}: duplicate entries for key {shown}"));
                        }
                        check(item.get(), value, &format!("{path}{shown}"), errors);
                    }
                }
            }
        }
        (Shape::Object { .. } | Shape::Map { .. }, other) => {
            errors.push(format!("{path}: expected map, got {}", valued(other)));
        }
        (Shape::List { .. }, other) => errors.push(format!("{path}: expected list, got {}", valued(other))),
        (Shape::String, other) if schema.format.is_none() && !other.is_string() => {
            errors.push(format!("{path}: expected string, got {}", valued(other)));
        }
        (Shape::Integer | Shape::Number, other) if !other.is_number() => {
            errors.push(format!("{path}: expected numeric (int or float), got {}", go_kind(other)));
        }
        (Shape::Boolean, other) if !other.is_boolean() => {
            errors.push(format!("{path}: expected boolean, got {}", valued(other)));
        }
        (_, Value::Object(_) | Value::Array(_)) => {
            errors.push(format!("{path}: expected any scalar, got {}", valued(value)));
        }
        _ => {}
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn valued(value: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{}}}", go_syntax(value))
}

/// A value as Go source would write it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::status::quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(k, v)| format!("{}:{}", crate::status::quoted(k), go_syntax(v)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}
