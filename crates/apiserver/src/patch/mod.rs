//! Patches: the four ways a client may change part of an object, and who owns which field afterwards.
//!
//! The functions here compute the changed object. [`finish`] then checks it against the kind as decoding
//! would, because a patch may have written anything.

mod json_patch;
pub mod managed;
mod merge_patch;
mod strategic;

use serde_json::Value;

pub use self::json_patch::{json_patch, webhook_patch};
pub use self::merge_patch::merge_patch;
pub use self::strategic::strategic_merge;
use crate::schema::decode::{self, DecodeError, Decoded, FieldValidation, Media, Target};
use crate::status::{About, ApiError, FieldError};

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is broken.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object. Clients get a general sentence, the reason is for our log.
    #[error("{0}")]
    DoesNotApply(String),
    #[error("The allowed maximum operations in a JSON patch is {allowed}, got {given}")]
    TooManyOperations { allowed: usize, given: usize },
    /// What kube-apiserver answers with an internal error, for instance a missing merge key.
    #[error("{0}")]
    Unmergeable(String),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(why) => Self::bad_request(why),
            PatchError::DoesNotApply(_) => Self::routing(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
            ),
            PatchError::TooManyOperations { .. } => {
                Self::new(413, "RequestEntityTooLarge", format!("Request entity is too large: {error}"))
            }
            PatchError::Unmergeable(why) => Self::new(500, "", why),
        }
    }
}

/// Reads the body of a merge patch; with it come complaints about duplicate fields.
pub fn read(body: &[u8]) -> Result<(Value, Vec<String>), PatchError> {
    let (patch, complaints) = document(body)?;
    match &patch {
        Value::Object(_) => Ok((patch, complaints)),
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => Err(PatchError::Malformed(format!("error decoding patch: {}", no_object(other)))),
    }
}

/// Reads the body of a strategic merge patch; with it come complaints about duplicate fields.
pub fn read_strategic(body: &[u8]) -> Result<(Value, Vec<String>), PatchError> {
    let (patch, complaints) = document(body)?;
    if patch.is_object() {
        return Ok((patch, complaints));
    }
    Err(PatchError::Malformed(no_object(&patch)))
}

/// What every patch must be in the first place.
fn document(body: &[u8]) -> Result<(Value, Vec<String>), PatchError> {
    decode::free_document(body, Media::Json)
        .map_err(|_| PatchError::Malformed("invalid JSON patch".to_owned()))
}

fn no_object(patch: &Value) -> String {
    let found = match patch {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
}

/// Checks an object after a JSON or merge patch as decoding would. `complaints` were found while reading
/// the patch.
pub fn finish(
    patched: Value,
    target: &Target<'_>,
    validation: FieldValidation,
    complaints: Vec<String>,
) -> Result<Decoded, ApiError> {
    let shown = patched.clone();
    decode::check(patched, target, validation, complaints)
        .map_err(|error| refused(shown.to_string(), error.to_string()))
}

/// Checks an object after a strategic merge patch as decoding would. The answer shows the patch.
pub fn finish_strategic(
    patched: Value,
    patch: &Value,
    target: &Target<'_>,
    validation: FieldValidation,
    complaints: Vec<String>,
) -> Result<Decoded, ApiError> {
    decode::check(patched, target, validation, complaints).map_err(|error| {
        let why = match &error {
            DecodeError::Unreadable(why) => unrestorable(why),
            DecodeError::Strict(_) => error.to_string(),
        };
        refused(strategic::go_format(patch), why)
    })
}

fn refused(shown: String, why: String) -> ApiError {
    let nobody = About { group: "", kind: "", name: "" };
    ApiError::invalid(nobody, &[FieldError::invalid("patch", shown, why)])
}

/// After a strategic merge patch a value of a wrong type is told in other words than in a body.
fn unrestorable(why: &str) -> String {
    let Some((what, wanted)) =
        why.strip_prefix("json: cannot unmarshal ").and_then(|rest| rest.split_once(" into Go "))
    else {
        return why.to_owned();
    };
    let what = match what.split(' ').next().unwrap_or_default() {
        "number" => "int64",
        "array" => "slice",
        "object" => "map",
        other => other,
    };
    match wanted.rsplit_once(" of type ").map_or(wanted, |(_, wanted)| wanted) {
        "string" => format!("cannot convert {what} to string"),
        plain @ ("int32" | "int64" | "bool" | "float64") => format!("unrecognized type: {plain}"),
        list if list.starts_with("[]") => format!("cannot restore slice from {what}"),
        map if map.starts_with("map[") => format!("cannot restore map from {what}"),
        _ => format!("cannot restore struct from: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin::Types;
    use k8s_openapi::api::apps;
    use serde_json::json;

    #[test]
    fn a_patched_object_is_checked_like_a_body_and_the_answer_shows_what_was_wrong() {
        let schema = Types::new().load::<apps::v1::Deployment>();
        let target =
            Target { group: "apps", version: "v1", kind: "Deployment", schema: &schema, custom: false };
        let patch = json!({"spec": {"foo": 1}});
        let merged = strategic_merge(schema.get(), &json!({"spec": {"replicas": 1}}), &patch).unwrap();
        let error = finish_strategic(merged.clone(), &patch, &target, FieldValidation::Strict, Vec::new())
            .unwrap_err();
        assert_eq!(
            error.message,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[foo:1]]\": strict decoding error: unknown \
             field \"spec.foo\""
        );
        let decoded = finish(merged, &target, FieldValidation::Warn, vec!["before".to_owned()]).unwrap();
        assert_eq!(decoded.warnings, ["before", "unknown field \"spec.foo\""]);
        assert_eq!(decoded.object["spec"], json!({"replicas": 1}));

        let patch = json!({"spec": {"replicas": "x"}});
        let merged = strategic_merge(schema.get(), &json!({}), &patch).unwrap();
        let error =
            finish_strategic(merged, &patch, &target, FieldValidation::Ignore, Vec::new()).unwrap_err();
        assert!(error.message.ends_with("\"map[spec:map[replicas:x]]\": unrecognized type: int32"));
    }

    #[test]
    fn a_patch_that_is_no_object_is_a_bad_request() {
        let error = read(b"[1]").unwrap_err();
        assert_eq!(
            error.to_string(),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
        assert_eq!(ApiError::from(read_strategic(b"{").unwrap_err()).message, "invalid JSON patch");
        let (_, complaints) = read(br#"{"a":{"b":1,"b":2}}"#).unwrap();
        assert_eq!(complaints, ["duplicate field \"a.b\""]);
    }
}
