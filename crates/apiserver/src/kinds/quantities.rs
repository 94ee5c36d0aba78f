//! Quantities in objects: written the way the server writes them back.

use std::borrow::Cow;

use evac_apimachinery::quantity::{Quantity, QuantityError, canonical};
use serde_json::Value;

use crate::schema::builtin::QUANTITY;
use crate::schema::{SchemaRef, Shape};

/// How a quantity was written in an object: as text, or as a number.
fn text(value: &Value) -> Result<Cow<'_, str>, QuantityError> {
    match value {
        Value::String(text) => Ok(text.into()),
        Value::Number(number) => Ok(number.to_string().into()),
        _ => Err(QuantityError::Format),
    }
}

pub(super) fn read(value: &Value) -> Result<Quantity, QuantityError> {
    text(value)?.parse()
}

/// Rewrites every quantity of an object in canonical form. Text that is no quantity stays: validation
/// or decoding complains about it.
pub(super) fn canonicalise(schema: &SchemaRef, value: &mut Value) {
    if schema.name() == Some(QUANTITY) {
        if let Ok(canonical) = text(value).and_then(|text| canonical(&text)) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_quantities_too() {
        assert_eq!(read(&json!(2)), "2".parse());
        assert_eq!(read(&json!(0.5)), "500m".parse());
        assert_eq!(read(&json!("1Gi")), "1024Mi".parse());
        assert_eq!(read(&json!([])), Err(QuantityError::Format));
    }
}
