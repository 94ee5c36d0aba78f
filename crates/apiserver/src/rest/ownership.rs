//! Who owns the fields that a request writes.

use jiff::Timestamp;
use serde_json::Value;

use super::call::Call;
use crate::kinds::{Kind, Part};
use crate::patch::managed::{self, FieldSet, Writer};
use crate::schema::SchemaRef;
use crate::status::ApiError;

/// The owner that a request stands for.
pub struct Owner {
    schema: SchemaRef,
    manager: String,
    api_version: String,
    subresource: String,
    now: Timestamp,
    /// What this endpoint leaves as it is, so nobody comes to own it here.
    ignored: Option<FieldSet>,
}

impl Owner {
    pub fn of(call: &Call, part: Part, now: Timestamp) -> Self {
        let ignored = match part {
            Part::Finalize => Some(FieldSet::of_fields(&[&["status"]])),
            Part::Main if call.kind.strategy.has_status => Some(FieldSet::of_fields(&[&["status"]])),
            Part::Status => Some(FieldSet::of_fields(&[&["spec"]])),
            _ => None,
        };
        Self {
            schema: call.kind.schema.clone(),
            manager: call.manager(),
            api_version: call.kind.api_version(),
            subresource: call.path.subresource.clone(),
            now,
            ignored,
        }
    }

    /// The server itself, where it writes the status of an object on its own account.
    pub fn server(kind: &Kind, now: Timestamp) -> Self {
        Self {
            schema: kind.schema.clone(),
            manager: "kube-apiserver".to_owned(),
            api_version: kind.api_version(),
            subresource: "status".to_owned(),
            now,
            ignored: Some(FieldSet::of_fields(&[&["spec"]])),
        }
    }

    /// The writer of a body that is not of the path's kind, such as a token request.
    pub fn of_body(call: &Call, schema: &SchemaRef, api_version: &str, now: Timestamp) -> Self {
        Self {
            schema: schema.clone(),
            api_version: api_version.to_owned(),
            ignored: Some(FieldSet::of_fields(&[&["status"]])),
            ..Self::of(call, Part::Main, now)
        }
    }

    fn writer(&self) -> Writer<'_> {
        Writer {
            manager: &self.manager,
            api_version: &self.api_version,
            subresource: &self.subresource,
            now: self.now,
            ignored: self.ignored.as_ref(),
        }
    }

    /// Records what an ordinary write changed.
    pub fn track(&self, old: Option<&Value>, new: &mut Value) {
        let unowned =
            |object: &Value| object["metadata"]["managedFields"].as_array().is_none_or(Vec::is_empty);
        // Nobody keeps books for an object that came without any, until somebody applies it.
        if old.is_some_and(unowned) && unowned(new) {
            return;
        }
        managed::track(&self.schema, old, new, &self.writer());
    }

    /// Lays a configuration over the live object.
    pub fn apply(&self, live: Option<&Value>, config: &Value, force: bool) -> Result<Value, ApiError> {
        Ok(managed::apply(&self.schema, live, config, force, &self.writer())?)
    }
}

pub use managed::same_but_for_times;
