//! Decoding: a body becomes an object of a kind, or the answer kube-apiserver gives when it cannot.
//!
//! A value of a wrong type is a refusal. Unknown and duplicate fields are dropped, and refused or reported
//! as warnings when the client asks for it (`fieldValidation`). Field names are case-sensitive. For built-in
//! kinds `null` is the same as absence; custom resources are pruned here and keep their nulls for defaulting.

mod go_json;
mod text;
mod walk;

use std::sync::OnceLock;

use serde_json::Value;

use self::walk::Walk;
use super::builtin::Types;
use super::{GoFacts, Schema, SchemaRef, canonical, list_semantics, prune};
use crate::status::{About, ApiError, FieldError};
pub use text::{Media, summary};

/// What to do about unknown and duplicate fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// What a body is to become.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub schema: &'a SchemaRef,
    /// A custom resource: only metadata is checked here, the rest is pruned and left to validation.
    pub custom: bool,
}

impl Target<'_> {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// An object, and what the client should be warned of.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub object: Value,
    pub warnings: Vec<String>,
}

/// Why a value is not an object of a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not a document, or a value of a wrong type.
    #[error("{0}")]
    Unreadable(String),
    /// Only unknown or duplicate fields stand in the way.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

/// Decodes a request body. `apiVersion` and `kind` that are not given are filled in.
pub fn decode(
    body: &[u8],
    media: Media,
    target: &Target<'_>,
    validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    let (group_version, kind) = match type_of(body, media) {
        Ok(found) => found,
        Err(why) => {
            let summary = text::summary(body);
            let wanted = target.kind;
            // The text of a YAML document is complained about before anyone looks for a version.
            let step =
                if media == Media::Json { "couldn't get version/kind; json parse error: " } else { "" };
            let why = why.strip_prefix("error converting YAML to JSON: ").unwrap_or(&why);
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {wanted}): {step}{why} ({summary})"
            )));
        }
    };
    if group_version.matches('/').count() > 1 {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): unexpected GroupVersion string: \
             {group_version} ({})",
            target.kind,
            text::summary(body)
        )));
    }
    if target.custom {
        check_custom_type(body, (&group_version, &kind), target)?;
    }
    let version = group_version.rsplit('/').next().unwrap_or_default();
    let found_kind = if kind.is_empty() { target.kind } else { &kind };
    let found_version = if version.is_empty() { target.version } else { version };
    let wrap = |why: &dyn std::fmt::Display| {
        ApiError::bad_request(format!(
            "{found_kind} in version {found_version:?} cannot be handled as a {}: {why}",
            target.kind
        ))
    };
    let group = group_version.rsplit_once('/').map_or("", |(group, _)| group);
    let is_given = !group_version.is_empty();
    if (is_given && group_version != target.api_version()) || found_kind != target.kind {
        let found_group = if is_given { group } else { target.group };
        if found_group == target.group && found_kind == target.kind && is_former(found_group, found_version) {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({group_version}) does not match the expected API version ({})",
                target.api_version()
            )));
        }
        return Err(wrap(&mismatch((found_group, found_version, found_kind), target)));
    }
    let mut walk = if target.custom { Walk::free() } else { Walk::described() };
    let schema = if target.custom { free() } else { target.schema };
    let read = text::read(body, media, schema, &mut walk);
    settle(read, walk, target, validation).map_err(|error| wrap(&error))
}

/// Custom resources say what they are, and other words are found when they do not.
fn check_custom_type(
    body: &[u8],
    (group_version, kind): (&str, &str),
    target: &Target<'_>,
) -> Result<(), ApiError> {
    if kind.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{}' ({})",
            target.kind,
            String::from_utf8_lossy(body),
            text::summary(body)
        )));
    }
    if group_version != target.api_version() {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({group_version}) does not match the expected API version ({})",
            target.api_version()
        )));
    }
    if kind != target.kind {
        let (value, _) = free_document(body, Media::Yaml).unwrap_or_default();
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let error = FieldError::invalid("kind", kind, format!("must be {}", target.kind));
        return Err(ApiError::invalid(About { group: target.group, kind, name }, &[error]));
    }
    Ok(())
}

/// Versions that are no longer served but still understood, so that the answer can name both.
fn is_former(group: &str, version: &str) -> bool {
    match group {
        "apps" => matches!(version, "v1beta1" | "v1beta2"),
        "batch" | "coordination.k8s.io" | "events.k8s.io" | "policy" => version == "v1beta1",
        "admissionregistration.k8s.io"
        | "rbac.authorization.k8s.io"
        | "scheduling.k8s.io"
        | "storage.k8s.io" => matches!(version, "v1alpha1" | "v1beta1"),
        _ => false,
    }
}

/// What is said about an object of another kind.
fn mismatch((group, version, kind): (&str, &str, &str), target: &Target<'_>) -> String {
    let package = |group: &str| match group.split('.').next() {
        None | Some("") => "core".to_owned(),
        Some(first) => first.to_owned(),
    };
    if !target.custom
        && list_semantics::facts(&format!("io.k8s.api.{}.{version}.{kind}", package(group))).is_some()
    {
        let wanted = package(target.group);
        return format!("converting ({version}.{kind}) to ({wanted}.{}): unknown conversion", target.kind);
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    format!(
        "no kind {kind:?} is registered for version {group_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

/// Checks a value that was put together here (by a patch) as if it had been decoded. `before` are
/// complaints that were already found, for instance in the patch itself.
pub fn check(
    value: Value,
    target: &Target<'_>,
    validation: FieldValidation,
    before: Vec<String>,
) -> Result<Decoded, DecodeError> {
    let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (word("apiVersion").to_owned(), word("kind").to_owned());
    let (wanted, described) =
        (target.api_version(), if target.kind.is_empty() { &kind } else { target.kind });
    if !(version.is_empty() || version == wanted) || !(kind.is_empty() || kind == *described) {
        let (group, short) = version.rsplit_once('/').unwrap_or(("", version.as_str()));
        return Err(DecodeError::Unreadable(mismatch((group, short, &kind), target)));
    }
    let mut walk = if target.custom { Walk::free() } else { Walk::described() };
    let schema = if target.custom { free() } else { target.schema };
    let read = walk.over(schema, value).map_err(|error| error.to_string());
    walk.strict.splice(0..0, before);
    settle(read, walk, target, validation)
}

/// Reads a document that has no type (a patch). The complaints are about duplicate fields.
pub fn free_document(body: &[u8], media: Media) -> Result<(Value, Vec<String>), DecodeError> {
    let mut walk = Walk::free();
    let value = text::read(body, media, free(), &mut walk).map_err(DecodeError::Unreadable)?;
    Ok((value, walk.strict))
}

fn settle(
    read: Result<Value, String>,
    mut walk: Walk<'_>,
    target: &Target<'_>,
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    if let Some(why) = walk.refused.take() {
        return Err(DecodeError::Unreadable(why));
    }
    let mut object = read.map_err(DecodeError::Unreadable)?;
    if let Some(why) = walk.wrong_type.take() {
        return Err(DecodeError::Unreadable(why));
    }
    let mut complaints = walk.strict;
    if target.custom {
        complaints.extend(check_metadata(&mut object)?);
        let unknown = prune::prune_object(target.schema.get(), &mut object);
        complaints.extend(unknown.into_iter().map(|path| format!("unknown field {path:?}")));
    } else {
        canonical::drop_zero(target.schema.get(), &mut object);
    }
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), target.api_version().into());
        fields.insert("kind".to_owned(), target.kind.into());
    }
    match validation {
        FieldValidation::Ignore => Ok(Decoded { object, warnings: Vec::new() }),
        FieldValidation::Warn => Ok(Decoded { object, warnings: complaints }),
        FieldValidation::Strict if complaints.is_empty() => Ok(Decoded { object, warnings: Vec::new() }),
        FieldValidation::Strict => Err(DecodeError::Strict(complaints)),
    }
}

/// Metadata of a custom resource has the same type as everyone's.
fn check_metadata(object: &mut Value) -> Result<Vec<String>, DecodeError> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let schema = object_meta();
    let mut walk = Walk::described();
    let read = walk.over(schema, metadata.take()).map_err(|error| error.to_string());
    if let Some(why) = walk.refused.or(walk.wrong_type) {
        return Err(DecodeError::Unreadable(why));
    }
    let mut value = read.map_err(DecodeError::Unreadable)?;
    canonical::drop_zero(schema.get(), &mut value);
    *metadata = value;
    Ok(walk.strict.into_iter().map(|text| text.replacen(" field \"", " field \"metadata.", 1)).collect())
}

/// The type of `metadata`.
pub fn object_meta() -> &'static SchemaRef {
    static META: OnceLock<SchemaRef> = OnceLock::new();
    META.get_or_init(|| Types::new().load::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>())
}

fn free() -> &'static SchemaRef {
    static FREE: OnceLock<SchemaRef> = OnceLock::new();
    FREE.get_or_init(|| SchemaRef::new(Schema::anything()))
}

/// `apiVersion` and `kind` of a body; empty where they are not given.
fn type_of(body: &[u8], media: Media) -> Result<(String, String), String> {
    static HEAD: OnceLock<SchemaRef> = OnceLock::new();
    let head = HEAD.get_or_init(|| {
        let text = || SchemaRef::new(Schema::of(super::Shape::String));
        let mut schema = Schema::of(super::Shape::Object {
            fields: [("apiVersion".into(), text()), ("kind".into(), text())].into(),
            required: Vec::new(),
            atomic: false,
        });
        // Clients see this name when a body is no object at all.
        let name = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        schema.go = Some(Box::new(GoFacts { type_name: Some(name.into()), ..GoFacts::default() }));
        SchemaRef::new(schema)
    });
    let mut walk = Walk::described();
    let value = text::read(body, media, head, &mut walk)?;
    if let Some(why) = walk.wrong_type {
        return Err(why);
    }
    let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok((word("apiVersion"), word("kind")))
}

#[cfg(test)]
mod tests;
