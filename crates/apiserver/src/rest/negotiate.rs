//! What form of answer the client can read, and what form of body it sent.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::kinds::Kind;
use crate::protobuf;
use crate::reply::Media;
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

/// The encodings that clients are told of.
const REPRESENTATIONS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The same on paths that can be watched.
const WATCHABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf, \
                         application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// What can be had on a path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offer {
    /// Objects as a table or as metadata alone.
    pub views: bool,
    /// Everything about all groups in one document.
    pub aggregated: bool,
    /// Whole objects in protobuf form.
    pub protobuf: bool,
    /// Whether a router looks at the encodings before anybody else does, and its list of them. Custom
    /// resources and groups are served by handlers without one.
    pub routed: Option<&'static str>,
}

impl Offer {
    /// Objects of a kind, one or (`many`) a list of them.
    pub fn objects(kind: &Kind, many: bool) -> Self {
        let routed = if many && kind.allows(crate::kinds::WATCH) { WATCHABLE } else { REPRESENTATIONS };
        Self {
            views: true,
            aggregated: false,
            protobuf: kind.is_builtin() && protobuf::knows(&kind.api_version(), &kind.kind),
            routed: kind.is_builtin().then_some(routed),
        }
    }

    /// A document about groups or resources.
    pub fn discovery(aggregated: bool, routed: bool) -> Self {
        Self { views: false, aggregated, protobuf: true, routed: routed.then_some(REPRESENTATIONS) }
    }
}

/// One entry of an `Accept` header.
struct Choice<'a> {
    media: &'a str,
    form: &'a str,
    version: &'a str,
    group: &'a str,
}

fn choices(headers: &HeaderMap) -> impl Iterator<Item = Choice<'_>> {
    let all = headers.get_all(ACCEPT).iter().flat_map(|h| h.to_str().unwrap_or_default().split(','));
    all.filter_map(|text| {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().filter(|media| !media.is_empty())?;
        let mut choice = Choice { media, form: "", version: "", group: "" };
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => choice.form = value,
                Some(("v", value)) => choice.version = value,
                Some(("g", value)) => choice.group = value,
                _ => {}
            }
        }
        Some(choice)
    })
}

/// The first choice in the `Accept` header that can be had.
pub fn accepted(headers: &HeaderMap, offer: &Offer) -> Result<(Form, Media), ApiError> {
    let mut asked = false;
    let mut readable = false;
    for choice in choices(headers) {
        asked = true;
        let Some(media) = Media::of(choice.media) else { continue };
        readable = true;
        let form = match (choice.form, choice.version, choice.group) {
            ("", ..) if media != Media::Protobuf || offer.protobuf => Form::Object,
            ("Table", "v1", "meta.k8s.io") if offer.views && media != Media::Protobuf => Form::Table,
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1", "meta.k8s.io") if offer.views => {
                Form::Metadata
            }
            ("APIGroupDiscoveryList", "v2", "apidiscovery.k8s.io")
                if offer.aggregated && media == Media::Json =>
            {
                Form::AggregatedDiscovery
            }
            _ => continue,
        };
        return Ok((form, media));
    }
    if !asked {
        return Ok((Form::Object, Media::Json));
    }
    match offer.routed {
        Some(known) if !readable => {
            let message = format!("406: Not Acceptable\n\nAvailable representations: {known}");
            Err(ApiError::routing(406, "NotAcceptable", message))
        }
        _ => {
            let message = format!("only the following media types are accepted: {REPRESENTATIONS}");
            Err(ApiError::new(406, "NotAcceptable", message))
        }
    }
}

/// The encoding of an answer that has no other form than its own: a refusal, for example.
pub fn plainly_accepted(headers: &HeaderMap) -> Media {
    choices(headers).filter(|c| c.form.is_empty()).find_map(|c| Media::of(c.media)).unwrap_or_default()
}

/// What `/version` says to those who cannot read JSON.
pub fn must_read_json(headers: &HeaderMap) -> Result<(), ApiError> {
    if reads_json(headers) {
        return Ok(());
    }
    let message = "406: Not Acceptable\n\nAvailable representations: application/json";
    Err(ApiError::routing(406, "NotAcceptable", message))
}

/// Whether the client reads JSON; for documents that are refused without a word when it does not.
pub fn reads_json(headers: &HeaderMap) -> bool {
    let mut all = choices(headers).peekable();
    all.peek().is_none() || all.any(|c| Media::of(c.media) == Some(Media::Json))
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

    fn accept(text: &str, offer: &Offer) -> Result<(Form, Media), ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, text.parse().unwrap());
        accepted(&headers, offer)
    }

    const OBJECTS: Offer = Offer { views: true, aggregated: false, protobuf: true, routed: None };

    #[test]
    fn the_first_choice_that_can_be_had_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(accept(kubectl, &OBJECTS), Ok((Form::Table, Media::Json)));
        let old = "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accept(old, &OBJECTS), Ok((Form::Object, Media::Json)));
        let typed = "application/vnd.kubernetes.protobuf, application/json";
        assert_eq!(accept(typed, &OBJECTS), Ok((Form::Object, Media::Protobuf)));
    }

    #[test]
    fn what_has_no_protobuf_form_comes_as_the_next_choice() {
        let custom = Offer { protobuf: false, ..OBJECTS };
        let typed = "application/vnd.kubernetes.protobuf, */*";
        assert_eq!(accept(typed, &custom), Ok((Form::Object, Media::Json)));
        assert_eq!(accept("application/vnd.kubernetes.protobuf", &custom).unwrap_err().code, 406);
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(accept(metadata, &custom), Ok((Form::Metadata, Media::Protobuf)));
    }
}
