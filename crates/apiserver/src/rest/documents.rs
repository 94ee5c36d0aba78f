//! What is not a resource: discovery, OpenAPI, health, version.

use http::header::{HOST, IF_NONE_MATCH};
use http::{HeaderMap, Method, Uri};

use super::negotiate::{Form, Offer, accepted, must_read_json, reads_json};
use crate::aggregated as others;
use crate::discovery;
use crate::openapi;
use crate::path::Route;
use crate::reply::{Caching, Reply};
use crate::server::Api;
use crate::server::documents::Document;
use crate::status::ApiError;

const DISCOVERY_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PRIVATE: &str = "no-cache, private";

pub fn serve(
    api: &Api,
    method: &Method,
    uri: &Uri,
    route: &Route,
    headers: &HeaderMap,
) -> Result<Reply, ApiError> {
    if *route == Route::Unknown {
        return Err(ApiError::no_such_page());
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    match route {
        Route::LegacyGroup | Route::Groups | Route::Group(_) | Route::Resources { .. } => {
            discover(api, uri, route, headers)
        }
        Route::OpenApiV2 | Route::OpenApiV3(_) => Ok(describe(api, uri, route, headers)),
        Route::Version => {
            must_read_json(headers)?;
            Ok(Reply::json(200, &discovery::version()))
        }
        Route::Health(_) => Ok(Reply::plain("ok")),
        Route::Resource(_) | Route::Unknown => Err(ApiError::no_such_page()),
    }
}

/// What groups, versions and resources there are.
fn discover(api: &Api, uri: &Uri, route: &Route, headers: &HeaderMap) -> Result<Reply, ApiError> {
    let served = api.served();
    let kinds = || served.kinds.iter().map(|k| &**k);
    let (documents, announced) = (&served.documents, &served.announced);
    let legacy = *route == Route::LegacyGroup;
    let found = match route {
        Route::Group(group) => documents.get(&format!("group {group}"), || {
            discovery::group(kinds(), group).or_else(|| others::group(announced, group))
        }),
        Route::Resources { group, version } => documents.get(&format!("resources {group}/{version}"), || {
            discovery::resource_list(kinds(), group, version)
                .or_else(|| others::resource_list(announced, group, version))
        }),
        Route::Groups => {
            documents.get("groups", || Some(others::join_groups(discovery::group_list(kinds()), announced)))
        }
        _ => documents.get(&format!("legacy {}", address(uri, headers)), || {
            Some(discovery::core_versions(&address(uri, headers)))
        }),
    };
    let found = found.ok_or_else(|| match route {
        // A router knows the group, and that it has no such version.
        Route::Resources { group, .. } if kinds().any(|k| k.is_builtin() && k.group == *group) => {
            ApiError::no_such_path()
        }
        _ => ApiError::no_such_page(),
    })?;
    let top = legacy || *route == Route::Groups;
    let built_in = match route {
        Route::Resources { group, version } => {
            kinds().any(|k| k.is_builtin() && k.group == *group && k.version == *version)
        }
        _ => legacy,
    };
    let (form, media) = accepted(headers, &Offer::discovery(top, built_in))?;
    if form == Form::AggregatedDiscovery {
        let key = if legacy { "aggregated legacy" } else { "aggregated" };
        let document = documents.get(key, || {
            let own = discovery::aggregated(kinds(), legacy);
            Some(if legacy { own } else { others::join_everything(own, announced) })
        });
        let document = document.ok_or_else(ApiError::no_such_page)?;
        let reply = cached(&document, headers, "Accept", "public");
        return Ok(if reply.code == 200 { Reply { content_type: DISCOVERY_V2, ..reply } } else { reply });
    }
    Ok(Reply { media, ..Reply::text(200, found.text.clone()) })
}

/// Where the client found this server.
fn address(uri: &Uri, headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    host.or_else(|| uri.authority().map(http::uri::Authority::as_str)).unwrap_or("127.0.0.1").to_owned()
}

/// What objects look like. These documents are refused without a word.
fn describe(api: &Api, uri: &Uri, route: &Route, headers: &HeaderMap) -> Reply {
    let served = api.served();
    let (kinds, documents) = (&served.kinds, &served.documents);
    let (found, vary) = match route {
        Route::OpenApiV3(path) if path.is_empty() => {
            let index = documents.get("openapi v3", || Some(openapi::v3_index(kinds)));
            let text = index.map(|index| index.text.clone()).unwrap_or_default();
            return Reply { content_type: "text/plain; charset=utf-8", ..Reply::text(200, text) };
        }
        Route::OpenApiV3(path) => {
            (documents.get(&format!("openapi v3 {path}"), || openapi::v3(kinds, path)), "Accept")
        }
        _ => (documents.get("openapi v2", || Some(openapi::v2(kinds))), "Accept-Encoding, Accept"),
    };
    let Some(found) = found else { return Reply::empty(404) };
    if !reads_json(headers) {
        let caching = Caching { etag: String::new(), vary, control: PRIVATE };
        return Reply { caching: Some(caching), ..Reply::empty(406) };
    }
    // An address with a mark of the content never shows another content.
    let marked = uri.query().is_some_and(|query| query.starts_with("hash="));
    cached(&found, headers, vary, if marked { "public, immutable" } else { PRIVATE })
}

/// A document for a client that may have it already.
fn cached(document: &Document, headers: &HeaderMap, vary: &'static str, control: &'static str) -> Reply {
    let known = headers.get(IF_NONE_MATCH).and_then(|mark| mark.to_str().ok());
    let reply = if known == Some(document.etag.as_str()) {
        Reply::empty(304)
    } else {
        Reply::text(200, document.text.clone())
    };
    Reply { caching: Some(Caching { etag: document.etag.clone(), vary, control }), ..reply }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use evac_clock::Clock;

    use super::*;
    use crate::reply::Body;
    use crate::server::Settings;

    fn groups(api: &Api) -> Bytes {
        let (uri, route) = (Uri::from_static("/apis"), Route::Groups);
        match discover(api, &uri, &route, &HeaderMap::new()).expect("there are groups").body {
            Body::Whole(Some(text)) => text,
            _ => panic!("a document is whole"),
        }
    }

    fn names_budgets(text: &[u8]) -> bool {
        String::from_utf8_lossy(text).contains("\"policy\"")
    }

    #[test]
    fn a_document_built_while_the_kinds_changed_is_not_shown_afterwards() {
        let api = Api::new(Clock::real(), Settings::default());
        let before = api.served();
        api.change_kinds(|kinds| drop(kinds.remove("policy", "v1", "poddisruptionbudgets")));
        let late = before
            .documents
            .get("groups", || Some(discovery::group_list(before.kinds.iter().map(|kind| &**kind))));
        assert!(late.is_some_and(|document| names_budgets(&document.text)), "who asked before is answered");
        assert!(!names_budgets(&groups(&api)), "who asks afterwards sees what is served now");
    }
}
