//! JSON patch (RFC 6902), with the habits of the library kube-apiserver uses: negative indices count from
//! the end, and `replace` sets a field of an object even if it was missing. The crate `json-patch` follows the letter of the RFC and has other
//! words, so it would refuse what a real server takes.

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::decode::FieldValidation;

/// A patch may not hold more operations than this.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a patch; with the result come complaints about fields that no operation has.
pub fn json_patch(
    current: &Value,
    body: &[u8],
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), PatchError> {
    let (patch, _) = super::document(body)?;
    let Value::Array(operations) = patch else {
        return Err(PatchError::Malformed(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
                .to_owned(),
        ));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations { allowed: MAX_OPERATIONS, given: operations.len() });
    }
    let mut document = current.clone();
    let mut complaints = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        let Value::Object(operation) = operation else {
            return Err(PatchError::Malformed(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                if operation.is_string() { "string" } else { "value" }
            )));
        };
        if validation != FieldValidation::Ignore {
            for name in operation.keys().filter(|k| !matches!(k.as_str(), "op" | "path" | "from" | "value")) {
                complaints.push(format!("json patch unknown field \"[{index}].{name}\""));
            }
        }
        apply(&mut document, operation).map_err(PatchError::DoesNotApply)?;
    }
    Ok((document, complaints))
}

/// Applies the patch that a webhook answered with. Fields that no operation has are passed over there.
pub fn webhook_patch(object: &Value, patch: &[u8]) -> Result<Value, String> {
    let operations: Vec<Map<String, Value>> = serde_json::from_slice(patch).map_err(|e| e.to_string())?;
    let mut document = object.clone();
    operations.iter().try_for_each(|operation| apply(&mut document, operation))?;
    Ok(document)
}

fn word<'a>(operation: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    operation.get(name).and_then(Value::as_str)
}

fn apply(document: &mut Value, operation: &Map<String, Value>) -> Result<(), String> {
    let kind = word(operation, "op").unwrap_or("unknown");
    let path = word(operation, "path")
        .ok_or_else(|| format!("{kind} operation failed to decode path: missing value"));
    let from = word(operation, "from")
        .ok_or_else(|| format!("{kind} operation failed to decode from: missing value"));
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match kind {
        "add" => add(document, path?, value()),
        "remove" => remove(document, path?).map(drop),
        "replace" => replace(document, path?, value()),
        "test" => test(document, path?, &value()),
        "move" => {
            let taken = remove(document, from?)?;
            add(document, path?, taken)
        }
        "copy" => {
            let from = from?;
            // What is not there is copied as nothing, as long as there is a place where it could be.
            let missing = || format!("copy operation does not apply: doc is missing from path: {from}");
            let copied = match find(document, from) {
                Some(found) => found.clone(),
                None => parent(document, from)
                    .filter(|(c, _)| c.is_object())
                    .map(|_| Value::Null)
                    .ok_or_else(missing)?,
            };
            add(document, path?, copied)
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The steps of a path. Whatever stands before the first slash is not looked at.
fn steps(path: &str) -> Option<std::str::Split<'_, char>> {
    path.split_once('/').map(|(_, steps)| steps.split('/'))
}

/// The container a path leads into, and the last step.
fn parent<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let mut parts: Vec<&str> = steps(path)?.collect();
    let last = unescape(parts.pop()?);
    let mut at = document;
    for part in parts {
        let part = unescape(part);
        at = match at {
            Value::Object(fields) => fields.get_mut(&part)?,
            Value::Array(items) => {
                let index = position(&part, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then_some((at, last))
}

/// An index into a list; negative ones count from the end.
fn position(text: &str, length: usize) -> Option<usize> {
    let index: i64 = text.parse().ok()?;
    let index = if index < 0 { index + length as i64 } else { index };
    usize::try_from(index).ok()
}

fn find<'d>(document: &'d Value, path: &str) -> Option<&'d Value> {
    let mut at = document;
    if path.is_empty() {
        return Some(at);
    }
    for part in steps(path)? {
        at = match at {
            Value::Object(fields) => fields.get(&unescape(part))?,
            Value::Array(items) => items.get(position(part, items.len())?)?,
            _ => return None,
        };
    }
    Some(at)
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let missing = || format!("add operation does not apply: doc is missing path: {path:?}: missing value");
    let (container, key) = parent(document, path).ok_or_else(missing)?;
    match container {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = position(&key, items.len() + 1).filter(|index| *index <= items.len());
            let wrong = || format!("error in add for path: '{path}': Unable to access invalid index: {key}");
            items.insert(index.ok_or_else(wrong)?, value);
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let missing = || format!("remove operation does not apply: doc is missing path: {path:?}: missing value");
    let (container, key) = parent(document, path).ok_or_else(missing)?;
    match container {
        Value::Object(fields) => fields.remove(&key).ok_or_else(|| {
            format!(
                "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
            )
        }),
        Value::Array(items) => {
            let index = position(&key, items.len()).filter(|index| *index < items.len());
            let wrong =
                || format!("error in remove for path: '{path}': Unable to access invalid index: {key}");
            Ok(items.remove(index.ok_or_else(wrong)?))
        }
        _ => Err(missing()),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let missing = || format!("replace operation does not apply: doc is missing path: {path}: missing value");
    let (container, key) = parent(document, path).ok_or_else(missing)?;
    match container {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let place = position(&key, items.len()).and_then(|index| items.get_mut(index));
            let wrong =
                || format!("replace operation does not apply: doc is missing key: {path}: missing value");
            *place.ok_or_else(wrong)? = value;
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn test(document: &Value, path: &str, wanted: &Value) -> Result<(), String> {
    let found = find(document, path);
    if found.is_none_or(Value::is_null) && wanted.is_null() {
        return Ok(());
    }
    if found.is_some_and(|found| equal(found, wanted)) {
        return Ok(());
    }
    Err(format!("testing value {path} failed: test failed"))
}

/// Equality in which `1` and `1.0` are the same number.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| equal(v, w)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ApiError;
    use proptest::prelude::*;
    use serde_json::json;

    fn patched(current: &Value, patch: &Value) -> Result<Value, PatchError> {
        json_patch(current, patch.to_string().as_bytes(), FieldValidation::Warn).map(|(value, _)| value)
    }

    #[test]
    fn operations_are_applied_in_order() {
        let current = json!({"a/b": 1, "list": [1, 2, 3], "x": {"y": 1}});
        let patch = json!([
            {"op": "test", "path": "/a~1b", "value": 1},
            {"op": "add", "path": "/list/-", "value": 4},
            {"op": "add", "path": "/list/0", "value": 0},
            {"op": "remove", "path": "/list/-1"},
            {"op": "replace", "path": "/x/new", "value": true},
            {"op": "copy", "from": "/x", "path": "/copy"},
            {"op": "move", "from": "/x/y", "path": "/moved"},
        ]);
        assert_eq!(
            patched(&current, &patch),
            Ok(json!({"a/b": 1, "list": [0, 1, 2, 3], "x": {"new": true}, "copy": {"new": true, "y": 1},
                "moved": 1}))
        );
    }

    #[test]
    fn a_failed_test_is_unprocessable() {
        let error =
            patched(&json!({"a": 1}), &json!([{"op": "test", "path": "/a", "value": 2}])).unwrap_err();
        assert_eq!(error, PatchError::DoesNotApply("testing value /a failed: test failed".to_owned()));
        let answer = ApiError::from(error);
        assert_eq!((answer.code, answer.reason.as_ref()), (422, "Invalid"));
    }

    #[test]
    fn what_does_not_exist_cannot_be_removed() {
        for path in ["/b", "/a/b", "/list/7", "nonsense"] {
            let patch = json!([{"op": "remove", "path": path}]);
            assert!(patched(&json!({"a": 1, "list": [1]}), &patch).is_err(), "{path}");
        }
    }

    #[test]
    fn a_body_that_is_no_patch_is_a_bad_request() {
        let error = json_patch(&json!({}), b"{}", FieldValidation::Warn).unwrap_err();
        assert_eq!(ApiError::from(error).code, 400);
        let (_, complaints) = json_patch(
            &json!({}),
            br#"[{"op":"add","path":"/a","value":1,"vale":2}]"#,
            FieldValidation::Warn,
        )
        .unwrap();
        assert_eq!(complaints, ["json patch unknown field \"[0].vale\""]);
    }

    #[test]
    fn a_webhook_may_replace_what_was_missing_and_count_from_the_end() {
        let object = json!({"spec": {"list": [1, 2]}});
        let patch = json!([
            {"op": "replace", "path": "/spec/new", "value": true},
            {"op": "remove", "path": "/spec/list/-1", "note": "unknown fields do not matter"},
        ]);
        let patched = webhook_patch(&object, patch.to_string().as_bytes());
        assert_eq!(patched, Ok(json!({"spec": {"list": [1], "new": true}})));
        let spoilt = json!([{"op": "remove", "path": "/spec/nowhere"}]).to_string();
        assert_eq!(
            webhook_patch(&object, spoilt.as_bytes()).unwrap_err(),
            "error in remove for path: '/spec/nowhere': Unable to remove nonexistent key: nowhere: missing value"
        );
        assert!(webhook_patch(&object, b"{}").is_err());
    }

    proptest! {
        #[test]
        fn no_patch_panics(
            current in super::super::strategic::tests::object(),
            path in "(/[a-z0-9~-]{0,2}){0,3}",
            from in "(/[a-z0-9-]{0,2}){0,3}",
            op in prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "?"]),
        ) {
            let _ = patched(&current, &json!([{"op": op, "path": path, "from": from, "value": {"a": [1]}}]));
        }
    }
}
