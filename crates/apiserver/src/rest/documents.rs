//! What is not a resource: discovery, OpenAPI, health, version.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::negotiate::{Form, accepted};
use super::path::Route;
use super::reply::Reply;
use crate::aggregated as others;
use crate::discovery;
use crate::openapi;
use crate::server::Api;
use crate::status::ApiError;

/// Documents that are costly to build and change only when kinds do.
#[derive(Default)]
pub struct Documents {
    cache: Mutex<BTreeMap<String, Bytes>>,
}

impl Documents {
    pub fn forget(&self) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn get(&self, key: &str, build: impl FnOnce() -> Option<Value>) -> Option<Bytes> {
        if let Some(found) = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Some(found.clone());
        }
        let text: Bytes = serde_json::to_vec(&build()?).unwrap_or_default().into();
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), text.clone());
        Some(text)
    }
}

const DISCOVERY_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub fn serve(api: &Api, method: &Method, route: &Route, headers: &HeaderMap) -> Result<Reply, ApiError> {
    if *route == Route::Unknown {
        return Err(ApiError::no_such_page());
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let kinds = api.kinds();
    let documents = &api.documents;
    let aggregated = accepted(headers).is_ok_and(|form| form == Form::AggregatedDiscovery);
    let found = match route {
        Route::LegacyGroup | Route::Groups if aggregated => {
            let legacy = *route == Route::LegacyGroup;
            let key = if legacy { "aggregated legacy" } else { "aggregated" };
            let text = documents.get(key, || {
                let own = discovery::aggregated(kinds.iter().map(|k| &**k), legacy);
                Some(if legacy { own } else { others::join_everything(own, &api.announced()) })
            });
            let mut reply = Reply::text(200, text.unwrap_or_default());
            reply.content_type = DISCOVERY_V2;
            return Ok(reply);
        }
        Route::LegacyGroup => documents.get("legacy", || Some(discovery::core_versions("127.0.0.1"))),
        Route::Groups => documents.get("groups", || {
            let own = discovery::group_list(kinds.iter().map(|k| &**k));
            Some(others::join_groups(own, &api.announced()))
        }),
        Route::Group(group) => documents.get(&format!("group {group}"), || {
            discovery::group(kinds.iter().map(|k| &**k), group)
                .or_else(|| others::group(&api.announced(), group))
        }),
        Route::Resources { group, version } => documents.get(&format!("resources {group}/{version}"), || {
            discovery::resource_list(kinds.iter().map(|k| &**k), group, version)
                .or_else(|| others::resource_list(&api.announced(), group, version))
        }),
        Route::OpenApiV2 => {
            if !openapi_v2_readable(headers) {
                return Err(ApiError::new(
                    406,
                    "NotAcceptable",
                    "only the following media types are accepted: application/json",
                ));
            }
            documents.get("openapi v2", || Some(openapi::v2(&kinds)))
        }
        Route::OpenApiV3(path) if path.is_empty() => {
            documents.get("openapi v3", || Some(openapi::v3_index(&kinds)))
        }
        Route::OpenApiV3(path) => documents.get(&format!("openapi v3 {path}"), || openapi::v3(&kinds, path)),
        Route::Version => Some(serde_json::to_vec(&discovery::version()).unwrap_or_default().into()),
        Route::Health(_) => return Ok(Reply::plain("ok")),
        Route::Resource(_) | Route::Unknown => None,
    };
    found.map(|text| Reply::text(200, text)).ok_or_else(ApiError::no_such_page)
}

fn openapi_v2_readable(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|h| h.to_str().ok()).unwrap_or_default();
    accept.is_empty() || accept.contains("application/json") || accept.contains("*/*")
}
