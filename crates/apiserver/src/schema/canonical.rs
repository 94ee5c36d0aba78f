//! The form in which a server writes a built-in object: zero values vanish, are kept or always stand
//! there, as the types behind the kinds do it.
//!
//! [`drop_zero`] runs after decoding, so that `""` and absence are the same thing for everyone;
//! [`complete`] runs after defaulting, so that clients (and field ownership) see `resources: {}`.

use serde_json::{Map, Value};

use super::builtin::{INT_OR_STRING, MICRO_TIME, QUANTITY, TIME};
use super::{Schema, SchemaRef, Shape, Zero};

/// Removes values that are the same as nothing.
pub fn drop_zero(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::Object { fields, .. }, Value::Object(object)) => {
            object.retain(|name, child| {
                let Some(field) = fields.get(name.as_str()) else { return true };
                drop_zero(field.get(), child);
                if child.is_null() {
                    return false;
                }
                !vanishes(schema, name, field, child)
            });
        }
        (Shape::Map { value: item, .. }, Value::Object(object)) => {
            for child in object.values_mut() {
                drop_zero(item.get(), child);
            }
        }
        (Shape::List { item, .. }, Value::Array(list)) => {
            for child in list {
                drop_zero(item.get(), child);
            }
        }
        _ => {}
    }
}

fn vanishes(parent: &Schema, name: &str, field: &SchemaRef, value: &Value) -> bool {
    let rule = parent.go.as_ref().and_then(|go| go.zero.get(name)).copied();
    let schema = field.get();
    match (&schema.shape, value) {
        (Shape::Object { .. }, Value::Object(object)) => rule == Some(Zero::Drop) && object.is_empty(),
        (Shape::Map { .. }, Value::Object(object)) => rule.is_none() && object.is_empty(),
        // Storing forgets the difference between no list and an empty one.
        (Shape::List { .. }, Value::Array(list)) => rule != Some(Zero::Keep) && list.is_empty(),
        (Shape::String, Value::String(text)) => rule != Some(Zero::Keep) && text.is_empty(),
        (Shape::Boolean, Value::Bool(set)) => rule != Some(Zero::Keep) && !set,
        (Shape::Integer | Shape::Number, Value::Number(number)) => {
            rule != Some(Zero::Keep) && number.as_f64() == Some(0.0)
        }
        // A quantity or int-or-string is a struct: only a missing one is nothing.
        _ => false,
    }
}

/// Adds the fields that always stand there.
pub fn complete(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::Object { fields, .. }, Value::Object(object)) => {
            if let Some(go) = &schema.go {
                for (name, rule) in &go.zero {
                    if *rule == Zero::Always
                        && !object.contains_key(name.as_ref())
                        && let Some(zero) = fields.get(name).and_then(zero)
                    {
                        object.insert(name.as_ref().to_owned(), zero);
                    }
                }
            }
            for (name, child) in object.iter_mut() {
                if let Some(field) = fields.get(name.as_str()) {
                    complete(field.get(), child);
                }
            }
        }
        (Shape::Map { value: item, .. }, Value::Object(object)) => {
            for child in object.values_mut() {
                complete(item.get(), child);
            }
        }
        (Shape::List { item, .. }, Value::Array(list)) => {
            for child in list {
                complete(item.get(), child);
            }
        }
        _ => {}
    }
}

/// The zero value that is written for a field that always stands there.
fn zero(field: &SchemaRef) -> Option<Value> {
    match field.name() {
        Some(TIME | MICRO_TIME) => return Some(Value::Null),
        Some(QUANTITY) => return Some("0".into()),
        Some(INT_OR_STRING) => return Some(0.into()),
        _ => {}
    }
    match &field.get().shape {
        Shape::Object { .. } => Some(Value::Object(Map::new())),
        Shape::String => Some("".into()),
        Shape::Integer | Shape::Number => Some(0.into()),
        Shape::Boolean => Some(false.into()),
        Shape::List { .. } | Shape::Map { .. } => Some(Value::Null),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin::Types;
    use super::*;
    use k8s_openapi::api::{apps, core, policy};
    use serde_json::json;

    #[test]
    fn empty_values_vanish_but_pointers_and_objects_stay() {
        let mut types = Types::new();
        let schema = types.load::<apps::v1::Deployment>();
        let mut object = json!({
            "metadata": {"labels": {}, "finalizers": [], "name": "web", "generateName": ""},
            "spec": {"replicas": 0, "paused": false, "minReadySeconds": 0,
                "template": {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}], "nodeName": "",
                    "containers": [{"name": "", "tty": false, "securityContext": {"privileged": false}}]}}},
        });
        drop_zero(schema.get(), &mut object);
        assert_eq!(
            object,
            json!({
                "metadata": {"name": "web"},
                "spec": {"replicas": 0,
                    "template": {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}],
                        "containers": [{"securityContext": {"privileged": false}}]}}},
            })
        );
    }

    #[test]
    fn fields_that_always_stand_there_are_added() {
        let mut types = Types::new();
        let pod = types.load::<core::v1::Pod>();
        let mut object = json!({"metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        complete(pod.get(), &mut object);
        assert_eq!(object["spec"]["containers"][0]["resources"], json!({}));
        assert_eq!(object["status"]["conditions"][0].get("lastProbeTime"), Some(&Value::Null));

        let budget = types.load::<policy::v1::PodDisruptionBudget>();
        let mut object = json!({"metadata": {"name": "a"}, "spec": {}});
        complete(budget.get(), &mut object);
        assert_eq!(
            object["status"],
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
        );
    }
}
