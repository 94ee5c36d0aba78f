//! Quantities in objects: written the way the server writes them back.

use serde_json::Value;

use crate::schema::builtin::QUANTITY;
use crate::schema::{SchemaRef, Shape};

/// Rewrites every quantity of an object in canonical form. Text that is no quantity stays: validation
/// or decoding complains about it.
pub(super) fn canonicalise(schema: &SchemaRef, value: &mut Value) {
    if schema.name() == Some(QUANTITY) {
        if let Some(canonical) = crate::quantity::canonical(value) {
            *value = Value::String(canonical);
        }
        return;
    }
    match (&schema.get().shape, value) {
        (Shape::Object { fields, .. }, Value::Object(map)) => {
            for (key, value) in map.iter_mut().filter(|(_, v)| !v.is_null()) {
                if let Some(field) = fields.get(key.as_str()) {
                    canonicalise(field, value);
                }
            }
        }
        (Shape::Map { value: item, .. }, Value::Object(map)) => {
            for value in map.values_mut() {
                canonicalise(item, value);
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            for value in items {
                canonicalise(item, value);
            }
        }
        _ => {}
    }
}
