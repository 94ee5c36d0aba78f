//! Reading and writing JSON objects by name, with Kubernetes' idea of "not set".

use serde_json::{Map, Value};

static EMPTY: Vec<Value> = Vec::new();

pub(crate) fn obj<'a>(value: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    value.get(field).and_then(Value::as_object)
}

/// The object in a field, made when it is not there. On a value that is no object it becomes one.
pub(crate) fn obj_mut<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    as_map(as_map(value).entry(field.to_owned()).or_insert(Value::Null))
}

/// The value as an object; anything else is replaced by an empty one.
#[allow(clippy::missing_panics_doc)]
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("set one line above"),
    }
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

/// Text at a JSON pointer; empty when absent.
pub(crate) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn int(value: &Value, field: &str) -> Option<i64> {
    value.get(field).and_then(Value::as_i64)
}

pub(crate) fn int_at(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(crate) fn truth(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or(false)
}

pub(crate) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).unwrap_or(&EMPTY)
}

pub(crate) fn list_at<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).unwrap_or(&EMPTY)
}

pub(crate) fn is_set(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|v| !v.is_null())
}

/// Sets a field that is absent, null or (for text) empty.
pub(crate) fn set_default(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    let unset = match map.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(s)) => s.is_empty(),
        Some(_) => false,
    };
    if unset {
        map.insert(field.to_owned(), value.into());
    }
}

/// Sets a number that is absent or zero.
pub(crate) fn set_number(map: &mut Map<String, Value>, field: &str, value: i64) {
    if map.get(field).and_then(Value::as_i64).unwrap_or(0) == 0 {
        map.insert(field.to_owned(), value.into());
    }
}

/// The elements of a list field, for changing them.
pub(crate) fn each<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> + use<'a> {
    map.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

pub(crate) fn child<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(field).and_then(Value::as_object_mut)
}

fn is_nothing(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(m)) => m.values().all(|v| is_nothing(Some(v))),
        Some(Value::Array(a)) => a.is_empty(),
        Some(_) => false,
    }
}

/// Equal in the sense of the API: absent, null and empty are the same.
pub(crate) fn semantic_eq(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Object(x)), Some(Value::Object(y))) => {
            x.iter().all(|(k, v)| semantic_eq(Some(v), y.get(k)))
                && y.iter().all(|(k, v)| x.contains_key(k) || is_nothing(Some(v)))
        }
        (Some(Value::Array(x)), Some(Value::Array(y))) => {
            x.len() == y.len() && x.iter().zip(y).all(|(p, q)| semantic_eq(Some(p), Some(q)))
        }
        (a, b) => a == b || (is_nothing(a) && is_nothing(b)),
    }
}
