//! Patches: the four ways a client may change part of an object, and who owns which field afterwards.
//!
//! The functions here compute the changed object. [`finish`] then checks it against the kind as decoding
//! would, because a patch may have written anything.

mod json_patch;
pub mod managed;
mod merge_patch;
mod strategic;

use serde_json::Value;

pub use self::json_patch::json_patch;
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
            PatchError::DoesNotApply(_) => {
                Self::new(422, "Invalid", "the server rejected our request due to an error in our request")
            }
            PatchError::TooManyOperations { .. } => {
                Self::new(413, "RequestEntityTooLarge", format!("Request entity is too large: {error}"))
            }
            PatchError::Unmergeable(why) => Self::new(500, "", why),
        }
    }
}

/// Reads the body of a merge or strategic merge patch; with it come complaints about duplicate fields.
pub fn read(body: &[u8]) -> Result<(Value, Vec<String>), PatchError> {
    match decode::free_document(body, Media::Json) {
        Ok((patch, complaints)) if patch.is_object() => Ok((patch, complaints)),
        Ok((other, _)) => {
            let found = match other {
                Value::Null => "null",
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) | Value::Object(_) => "array",
            };
            Err(PatchError::Malformed(format!(
                "error decoding patch: json: cannot unmarshal {found} into Go value of type \
                 map[string]interface {{}}"
            )))
        }
        Err(error) => Err(PatchError::Malformed(format!("error decoding patch: {error}"))),
    }
}

/// Checks a patched object as decoding would. `complaints` were found while reading the patch.
pub fn finish(
    patched: Value,
    target: &Target<'_>,
    validation: FieldValidation,
    complaints: Vec<String>,
) -> Result<Decoded, ApiError> {
    let shown = patched.to_string();
    decode::check(patched, target, validation, complaints).map_err(|error| {
        let nobody = About { group: "", kind: "", name: "" };
        match error {
            DecodeError::Unreadable(_) | DecodeError::Strict(_) => {
                ApiError::invalid(nobody, &[FieldError::invalid("patch", shown, error.to_string())])
            }
        }
    })
}
