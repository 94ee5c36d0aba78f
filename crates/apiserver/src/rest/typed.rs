//! Bodies that are not an object of the path's kind: options, evictions, bindings, scales, token requests.

use std::sync::OnceLock;

use k8s_openapi::api::{authentication, autoscaling, core, policy};
use k8s_openapi::apimachinery::pkg::apis::meta;
use serde_json::Value;

use super::call::Call;
use super::negotiate::{BodyForm, body_form};
use super::write::validation;
use crate::schema::SchemaRef;
use crate::schema::builtin::Types;
use crate::schema::decode::{self, Decoded, FieldValidation, Media, Target};
use crate::status::ApiError;

struct Described {
    binding: SchemaRef,
    eviction: SchemaRef,
    scale: SchemaRef,
    token_request: SchemaRef,
    delete_options: SchemaRef,
}

fn described() -> &'static Described {
    static TYPES: OnceLock<Described> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut types = Types::new();
        Described {
            binding: types.load::<core::v1::Binding>(),
            eviction: types.load::<policy::v1::Eviction>(),
            scale: types.load::<autoscaling::v1::Scale>(),
            token_request: types.load::<authentication::v1::TokenRequest>(),
            delete_options: types.load::<meta::v1::DeleteOptions>(),
        }
    })
}

fn media(call: &Call) -> Result<Media, ApiError> {
    Ok(match body_form(&call.headers)? {
        BodyForm::Json => Media::Json,
        BodyForm::Yaml => Media::Yaml,
    })
}

pub fn binding(call: &Call) -> Result<Decoded, ApiError> {
    body(call, "", "v1", "Binding", &described().binding)
}

pub fn scale(call: &Call) -> Result<Decoded, ApiError> {
    body(call, "autoscaling", "v1", "Scale", &described().scale)
}

pub fn token_request_schema() -> &'static SchemaRef {
    &described().token_request
}

pub fn token_request(call: &Call) -> Result<Decoded, ApiError> {
    body(call, "authentication.k8s.io", "v1", "TokenRequest", &described().token_request)
}

/// An eviction may come in the version it had when it was young.
pub fn eviction(call: &Call) -> Result<Decoded, ApiError> {
    let young = decode::free_document(&call.body, media(call)?)
        .is_ok_and(|(value, _)| value["apiVersion"] == "policy/v1beta1");
    let version = if young { "v1beta1" } else { "v1" };
    body(call, "policy", version, "Eviction", &described().eviction)
}

fn body(
    call: &Call,
    group: &str,
    version: &str,
    kind: &str,
    schema: &SchemaRef,
) -> Result<Decoded, ApiError> {
    let target = Target { group, version, kind, schema, custom: false };
    decode::decode(&call.body, media(call)?, &target, validation(call))
}

/// Options are read leniently, and complaints come without a frame.
pub fn delete_options(call: &Call) -> Result<Value, ApiError> {
    let (value, _) = decode::free_document(&call.body, media(call)?).map_err(|error| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    })?;
    let kind = value["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "DeleteOptions") {
        let version = crate::status::quoted(value["apiVersion"].as_str().unwrap_or_default());
        return Err(ApiError::bad_request(format!(
            "no kind {} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\"",
            crate::status::quoted(kind)
        )));
    }
    // Whatever version the options claim to be of, there is only one.
    let mut value = value;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    let schema = &described().delete_options;
    let target = Target { group: "", version: "v1", kind: "DeleteOptions", schema, custom: false };
    decode::check(value, &target, FieldValidation::Ignore, Vec::new())
        .map(|decoded| decoded.object)
        .map_err(|error| ApiError::bad_request(error.to_string()))
}
