//! What form of answer the client can read, and what form of body it sent.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::status::ApiError;

/// How objects are shown in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The whole object.
    Object,
    /// `meta.k8s.io/v1 Table`, for people.
    Table,
    /// `meta.k8s.io/v1 PartialObjectMetadata(List)`.
    Metadata,
    /// `apidiscovery.k8s.io/v2 APIGroupDiscoveryList`.
    AggregatedDiscovery,
}

/// The forms that clients are told of. Those of a real server; see `docs/profile.md` about the last one.
const REPRESENTATIONS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Whether the first form that can be produced is YAML.
pub fn wants_yaml(headers: &HeaderMap) -> bool {
    let choices = headers.get_all(ACCEPT).iter().filter_map(|h| h.to_str().ok()).flat_map(|h| h.split(','));
    choices
        .map(|choice| choice.split(';').next().unwrap_or_default().trim())
        .find(|media| matches!(*media, "application/json" | "*/*" | "application/yaml"))
        == Some("application/yaml")
}

/// The first form in the `Accept` header that this server can produce.
pub fn accepted(headers: &HeaderMap) -> Result<Form, ApiError> {
    let mut asked = false;
    let mut readable = false;
    for header in headers.get_all(ACCEPT) {
        for choice in header.to_str().unwrap_or_default().split(',') {
            let mut parts = choice.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if media.is_empty() {
                continue;
            }
            asked = true;
            if !matches!(media, "application/json" | "*/*" | "application/yaml") {
                continue;
            }
            readable = true;
            let (mut form, mut version, mut group) = ("", "", "");
            for part in parts {
                match part.split_once('=') {
                    Some(("as", v)) => form = v,
                    Some(("v", v)) => version = v,
                    Some(("g", v)) => group = v,
                    _ => {}
                }
            }
            match (form, version, group) {
                ("", ..) => return Ok(Form::Object),
                ("Table", "v1", "meta.k8s.io") => return Ok(Form::Table),
                ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1", "meta.k8s.io") => {
                    return Ok(Form::Metadata);
                }
                ("APIGroupDiscoveryList", "v2", "apidiscovery.k8s.io") => {
                    return Ok(Form::AggregatedDiscovery);
                }
                _ => {}
            }
        }
    }
    if readable {
        let message = format!("only the following media types are accepted: {REPRESENTATIONS}");
        return Err(ApiError::new(406, "NotAcceptable", message));
    }
    if asked {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {REPRESENTATIONS}");
        return Err(ApiError::routing(406, "NotAcceptable", message));
    }
    Ok(Form::Object)
}

/// The form of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyForm {
    Json,
    Yaml,
}

/// The form of a create or update body.
pub fn body_form(headers: &HeaderMap) -> Result<BodyForm, ApiError> {
    match media(headers) {
        "" | "*/*" | "application/json" => Ok(BodyForm::Json),
        "application/yaml" => Ok(BodyForm::Yaml),
        _ => Err(ApiError::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {REPRESENTATIONS}"
            ),
        )),
    }
}

/// The four kinds of patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchForm {
    Json,
    Merge,
    Strategic,
    Apply,
}

pub fn patch_form(headers: &HeaderMap) -> Result<PatchForm, ApiError> {
    match media(headers) {
        "application/json-patch+json" => Ok(PatchForm::Json),
        "application/merge-patch+json" => Ok(PatchForm::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchForm::Strategic),
        "application/apply-patch+yaml" => Ok(PatchForm::Apply),
        _ => Err(ApiError::routing(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
    }
}

fn media(headers: &HeaderMap) -> &str {
    let header = headers.get(CONTENT_TYPE).and_then(|h| h.to_str().ok()).unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &str) -> Result<Form, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, text.parse().unwrap());
        accepted(&headers)
    }

    #[test]
    fn the_first_form_that_can_be_produced_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(accept(kubectl), Ok(Form::Table));
        let old = "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accept(old), Ok(Form::Object));
        assert_eq!(accept("application/vnd.kubernetes.protobuf, */*"), Ok(Form::Object));
    }

    #[test]
    fn a_client_that_reads_only_protobuf_is_told_so() {
        assert_eq!(accept("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
    }
}
