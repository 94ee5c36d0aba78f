//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Merges a patch: objects are merged, `null` deletes, everything else replaces.
pub fn merge_patch(current: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut merged = match current {
        Value::Object(fields) => fields.clone(),
        _ => Map::new(),
    };
    merge_into(&mut merged, changes);
    Value::Object(merged)
}

fn merge_into(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, change) in patch {
        match change {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(changes) => {
                if let Some(Value::Object(fields)) = target.get_mut(name) {
                    merge_into(fields, changes);
                } else {
                    let mut fresh = Map::new();
                    merge_into(&mut fresh, changes);
                    target.insert(name.clone(), Value::Object(fresh));
                }
            }
            other => {
                let mut value = other.clone();
                without_nulls(&mut value);
                target.insert(name.clone(), value);
            }
        }
    }
}

/// Objects inside a list that is put in place lose their nulls, too.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn objects_merge_nulls_delete_and_lists_replace() {
        let current = json!({"a": {"b": 1, "c": 2}, "list": [1, 2], "gone": true});
        let patch = json!({"a": {"c": null, "d": {"e": null, "f": 1}}, "list": [{"x": null}], "gone": null});
        assert_eq!(merge_patch(&current, &patch), json!({"a": {"b": 1, "d": {"f": 1}}, "list": [{}]}));
    }

    proptest! {
        #[test]
        fn an_empty_patch_changes_nothing_and_a_patch_twice_is_a_patch_once(
            current in super::super::strategic::tests::object(),
            patch in super::super::strategic::tests::object(),
        ) {
            prop_assert_eq!(&merge_patch(&current, &json!({})), &current);
            let once = merge_patch(&current, &patch);
            prop_assert_eq!(merge_patch(&once, &patch), once);
        }
    }
}
