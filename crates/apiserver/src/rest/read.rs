//! Reading: one object, or a list at a revision, whole or in chunks.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call::Call;
use super::continuation::Continuation;
use super::negotiate::Form;
use super::query::VersionMatch;
use super::selection::Selection;
use super::show::Shower;
use crate::reply::Reply;
use crate::server::{Api, not_found};
use crate::status::ApiError;
use crate::store::{Listing, Page, Unavailable};

pub fn get(api: &Api, call: &Call) -> Result<Reply, ApiError> {
    if !call.query.resource_version.is_empty() {
        must_have_reached(api, parsed(&call.query.resource_version).map_err(ApiError::unexplained)?)?;
    }
    let object =
        api.store.get(&call.storage(), &call.key()).ok_or_else(|| not_found(&call.kind, &call.path.name))?;
    Ok(Reply::text(200, Shower::new(call).one(&object, api.now())))
}

pub fn list(api: &Arc<Api>, call: &Call) -> Result<Reply, ApiError> {
    let selection = Selection::of(call, &api.kinds())?;
    let listing = select(api, call, &selection)?;
    let more = listing.more.as_ref().map(|(from, left)| {
        let revision = (!inconsistent(call)).then_some(listing.revision);
        (Continuation { revision, from: from.clone() }.encode(), *left)
    });
    let remaining = more.as_ref().and_then(|(_, left)| *left);
    let mut metadata = json!({"resourceVersion": listing.revision.to_string()});
    if let Some((token, _)) = more {
        metadata["continue"] = json!(token);
    } else if call.kind.custom.is_some() && call.form == Form::Object {
        // Lists of custom resources spell out that there is no more.
        metadata["continue"] = json!("");
    }
    if let Some(left) = remaining {
        metadata["remainingItemCount"] = json!(left);
    }
    let mut shower = Shower::new(call);
    Ok(Reply::text(
        200,
        match call.form {
            Form::Table => serde_json::to_vec(&shower.table(&listing.objects, metadata, api.now()))
                .unwrap_or_default()
                .into(),
            form => {
                let (kind, api_version) = match form {
                    Form::Metadata => ("PartialObjectMetadataList".into(), "meta.k8s.io/v1".into()),
                    _ => (call.kind.list_kind.to_string(), call.kind.api_version()),
                };
                let head = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
                shower.list(&head, &listing.objects)
            }
        },
    ))
}

/// The objects a list or a collection delete is about.
pub fn select(api: &Api, call: &Call, selection: &Selection) -> Result<Listing, ApiError> {
    let query = &call.query;
    query.check_read(false)?;
    let (at, from, limit) = if query.continue_token.is_empty() {
        let at = list_revision(api, query.version_match, &query.resource_version, query.limit.is_some())?;
        // A list "at any revision" comes from a cache that does not chunk.
        let limit = query.limit.filter(|_| query.resource_version != "0");
        (at, None, limit)
    } else {
        if !query.resource_version.is_empty() && query.resource_version != "0" {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = Continuation::decode(&query.continue_token)?;
        (token.revision, Some(token.from), query.limit)
    };
    // The count would be wrong with a selector: what remains is not known to match.
    let counted = selection.is_everything();
    let page = Page { namespace: &call.path.namespace, at, from: from.as_ref(), limit, counted };
    let result = api.store.list(&call.storage(), &page, |meta| selection.selects(meta));
    match (result, from) {
        (Ok(listing), _) => Ok(listing),
        (Err(Unavailable::Future { current }), _) => Err(too_large(at.unwrap_or_default(), current)),
        (Err(Unavailable::Compacted { .. }), None) => {
            Err(ApiError::expired("The resourceVersion for the provided list is too old."))
        }
        (Err(Unavailable::Compacted { .. }), Some(from)) => {
            // The client may go on with what is there now, if it can live with a mixed list.
            let token = Continuation { revision: None, from }.encode();
            let mut error = ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can \
                 start a new list without the continue parameter, or use the continue token in this \
                 response to retrieve the remainder of the results. Continuing with the provided token \
                 results in an inconsistent list - objects that were created, modified, or deleted between \
                 the time the first chunk was returned and now may show up in the list.",
            );
            error.continue_token = Some(token);
            Err(error)
        }
    }
}

fn inconsistent(call: &Call) -> bool {
    Continuation::decode(&call.query.continue_token).is_ok_and(|c| c.revision.is_none())
}

/// At which revision a list is made; `None` for now.
fn list_revision(
    api: &Api,
    matching: VersionMatch,
    given: &str,
    limited: bool,
) -> Result<Option<u64>, ApiError> {
    match (matching, given) {
        (VersionMatch::Unset | VersionMatch::NotOlderThan, "0") | (_, "") => Ok(None),
        (VersionMatch::Exact, given) => Ok(Some(revision(given)?)),
        (VersionMatch::Unset, given) if limited => Ok(Some(revision(given)?)),
        (VersionMatch::Unset | VersionMatch::NotOlderThan, given) => {
            must_have_reached(api, revision(given)?)?;
            Ok(None)
        }
    }
}

/// Parses a resource version.
pub fn revision(text: &str) -> Result<u64, ApiError> {
    parsed(text).map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))
}

/// Parses a resource version; the complaint is for the caller to wrap.
pub fn parsed(text: &str) -> Result<u64, String> {
    let quoted = crate::status::quoted(text);
    let complaint =
        |why| format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {why}");
    if text.starts_with('+') {
        return Err(complaint("invalid syntax"));
    }
    text.parse().map_err(|error| complaint(super::query::unreadable(&error)))
}

pub fn must_have_reached(api: &Api, wanted: u64) -> Result<(), ApiError> {
    let current = api.store.revision();
    if wanted > current { Err(too_large(wanted, current)) } else { Ok(()) }
}

/// The caller has seen a later revision than this server has.
pub fn too_large(wanted: u64, current: u64) -> ApiError {
    ApiError::timeout(format!("Too large resource version: {wanted}, current: {current}"), 1).with_cause(
        "ResourceVersionTooLarge",
        "Too large resource version",
        "",
    )
}

/// The parts of an object that a metadata-only client sees.
pub fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}
