//! Defaulting of custom resources: missing fields get the default of their schema, and nulls that the
//! schema does not allow vanish or are replaced.

use serde_json::Value;

use super::{Schema, Shape};

/// Removes nulls that are neither allowed nor have a default, then fills in defaults.
pub fn default_object(schema: &Schema, object: &mut Value) {
    prune_nulls(schema, object, true);
    fill(schema, object, true);
}

fn is_meta(name: &str, resource: bool) -> bool {
    resource && matches!(name, "apiVersion" | "kind" | "metadata")
}

fn prune_nulls(schema: &Schema, value: &mut Value, resource: bool) {
    let resource = resource || schema.embedded_resource;
    match value {
        Value::Object(object) => object.retain(|name, child| {
            if is_meta(name, resource) {
                return true;
            }
            let Some(field) = schema.field(name) else { return true };
            if child.is_null() {
                return field.get().nullable || field.get().default.is_some();
            }
            prune_nulls(field.get(), child, false);
            true
        }),
        Value::Array(list) => {
            if let Shape::List { item, .. } = &schema.shape {
                for child in list {
                    prune_nulls(item.get(), child, false);
                }
            }
        }
        _ => {}
    }
}

fn fill(schema: &Schema, value: &mut Value, resource: bool) {
    let resource = resource || schema.embedded_resource;
    match (value, &schema.shape) {
        (Value::Object(object), Shape::Object { fields, .. }) => {
            for (name, field) in fields {
                if is_meta(name, resource) {
                    continue;
                }
                let field = field.get();
                if let Some(default) = &field.default
                    && object.get(name.as_ref()).is_none_or(|v| v.is_null() && !field.nullable)
                {
                    object.insert(name.as_ref().to_owned(), default.clone());
                }
                if let Some(child) = object.get_mut(name.as_ref()) {
                    fill(field, child, false);
                }
            }
        }
        (Value::Object(object), Shape::Map { value: item, .. }) => {
            for child in object.values_mut() {
                fill_element(item.get(), child);
            }
        }
        (Value::Array(list), Shape::List { item, .. }) => {
            for child in list {
                fill_element(item.get(), child);
            }
        }
        _ => {}
    }
}

fn fill_element(schema: &Schema, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
    fill(schema, value, false);
}

#[cfg(test)]
mod tests {
    use super::super::crd::from_openapi;
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_filled_deeply_and_nulls_follow_the_nullable_rule() {
        let schema = from_openapi(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
                "size": {"type": "integer", "default": 3},
                "mode": {"type": "string", "nullable": true, "default": "fast"},
                "note": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object",
                    "properties": {"on": {"type": "boolean", "default": true}}}},
            }}}}),
            "schema",
        )
        .expect("structural");
        let mut object = json!({"metadata": {"name": "x"}});
        default_object(schema.get(), &mut object);
        assert_eq!(object, json!({"metadata": {"name": "x"}, "spec": {"size": 3, "mode": "fast"}}));

        let mut object =
            json!({"spec": {"size": null, "mode": null, "note": null, "list": [{}, {"on": false}]}});
        default_object(schema.get(), &mut object);
        assert_eq!(object, json!({"spec": {"size": 3, "mode": null, "list": [{"on": true}, {"on": false}]}}));
    }
}
