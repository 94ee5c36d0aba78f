//! The REST front: from an HTTP request to a verb on a resource, and back.

pub mod allocate;
pub mod call;
pub mod continuation;
pub mod crds;
pub mod delete;
pub mod deletion;
pub mod documents;
pub mod eviction;
pub mod negotiate;
pub mod ownership;
pub mod profile;
pub mod proxy;
pub mod query;
pub mod read;
pub mod reviews;
pub mod scale;
pub mod selection;
pub mod show;
pub mod subresources;
pub mod tables;
pub mod typed;
pub mod watch;
pub mod write;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};

use self::call::Call;
use self::query::Query;
use crate::auth::{self, Attributes};
use crate::identity::Identity;
use crate::kinds::{Kind, Part};
use crate::path::{ResourcePath, Route};
use crate::protobuf;
use crate::reply::{Body, Reply};
use crate::schema::decode::summary;
use crate::server::Api;
use crate::status::ApiError;

/// Answers one request. `trusted` is the caller's identity when the transport vouches for it.
pub async fn answer(api: &Arc<Api>, request: Request<Bytes>, trusted: Option<&Identity>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let plain = negotiate::plainly_accepted(&parts.headers);
    let reply = match handle(api, &parts.method, &parts.uri, parts.headers, body, trusted).await {
        Ok(reply) => reply,
        Err(error) => Reply { media: plain, ..Reply::failure(&error) },
    };
    reply.encoded().into()
}

async fn handle(
    api: &Arc<Api>,
    method: &Method,
    uri: &http::Uri,
    headers: HeaderMap,
    body: Bytes,
    trusted: Option<&Identity>,
) -> Result<Reply, ApiError> {
    let caller = auth::identify(api, &headers, trusted)?;
    let mut path = match Route::of(uri.path()) {
        Route::Resource(path) => path,
        // Discovery, health and version are open to everybody; the rest of the paths to the authenticated.
        other => {
            let verb = method.as_str().to_ascii_lowercase();
            let asked = Attributes::Path { verb: &verb, path: uri.path() };
            let identity = auth::impersonated(api, &headers, caller, &asked)?;
            auth::allow(api, &identity, &asked)?;
            return documents::serve(api, method, uri, &other, &headers);
        }
    };
    if body.len() > api.settings.body_limit {
        return Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {}", api.settings.body_limit),
        ));
    }
    let query = Query::parse(uri.query())?;
    let verb = verb(method, &path, &query);
    let named = auth::named(&path, &query.field_selector);
    let asked = auth::attributes(verb.as_ref().map_or("", |verb| *verb), &named);
    let identity = auth::impersonated(api, &headers, caller, &asked)?;
    if verb.is_ok() {
        auth::allow(api, &identity, &asked)?;
    }
    let kinds = api.kinds();
    let (headers, body) = match kinds.by_plural(&path.group, &path.version, &path.resource) {
        Some(kind)
            if matches!(*method, Method::POST | Method::PUT)
                || !body.is_empty() && *method == Method::DELETE =>
        {
            as_json(kind, &path.subresource, headers, body)?
        }
        _ => (headers, body),
    };
    if is_binding_collection(&path) && *method == Method::POST {
        // The older way to bind a pod: its name is in the body.
        let binding: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        path.resource = "pods".into();
        write::name_of(&binding).clone_into(&mut path.name);
        path.subresource = "binding".into();
    }
    let Some(kind) = kinds.by_plural(&path.group, &path.version, &path.resource).cloned() else {
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers;
        return aggregated(api, &path, &identity, request).await;
    };
    let verb = verb?;
    if kind.group.is_empty() && kind.plural == "pods" && path.subresource == "proxy" && *method == Method::GET
    {
        return proxy::get(api, &kind, &path).await;
    }
    must_exist_here(&kind, &path, verb)?;
    let many = path.name.is_empty() && *method == Method::GET;
    let (form, media) = negotiate::accepted(&headers, &negotiate::Offer::objects(&kind, many))?;
    let wish = query.include_object.as_deref().unwrap_or_default();
    if form == negotiate::Form::Table && crate::table::Include::parse(wish).is_none() {
        return Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
             'Object', 'None', or empty",
            crate::status::quoted(wish)
        )));
    }
    let call = Call { kind, path, query, identity, form, headers, body };
    let warning = match &call.kind.custom {
        Some(custom) => custom.deprecation_warning.clone(),
        None => deprecation(&call.kind).map(str::to_owned),
    };
    let mut reply = perform(api, &call, verb).await?;
    reply.warnings.extend(warning);
    reply.media = media;
    Ok(reply)
}

/// A protobuf body becomes JSON before anybody looks at it.
fn as_json(
    kind: &Kind,
    subresource: &str,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<(HeaderMap, Bytes), ApiError> {
    let is_protobuf = headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|h| h.to_str().ok())
        .is_some_and(|text| text.starts_with(protobuf::MEDIA_TYPE));
    if !is_protobuf {
        return Ok((headers, body));
    }
    let object = protobuf::to_json(&body).map_err(|error| {
        if matches!(error, protobuf::ProtobufError::UnknownKind { .. }) {
            return ApiError::new(415, "UnsupportedMediaType", error.to_string());
        }
        let wanted = kind.subresource(subresource).map_or(&kind.kind, |sub| &sub.kind);
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {wanted}): {error} ({})",
            summary(&body)
        ))
    })?;
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok((headers, serde_json::to_vec(&object).unwrap_or_default().into()))
}

/// What users of an old kind are told.
fn deprecation(kind: &Kind) -> Option<&'static str> {
    (kind.group.is_empty() && kind.plural == "endpoints")
        .then_some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
}

fn is_binding_collection(path: &ResourcePath) -> bool {
    path.group.is_empty() && path.resource == "bindings" && path.name.is_empty() && !path.namespace.is_empty()
}

/// A group that another server answers for, or nothing.
async fn aggregated(
    api: &Arc<Api>,
    path: &ResourcePath,
    identity: &Identity,
    mut request: Request<Bytes>,
) -> Result<Reply, ApiError> {
    let Some(handler) = api.aggregated(&path.group, &path.version) else {
        return Err(match api.kinds().iter().find(|k| k.group == path.group) {
            _ if is_binding_collection(path) => ApiError::method_not_allowed(),
            Some(kind) if kind.is_builtin() => ApiError::no_such_path(),
            _ => ApiError::no_such_page(),
        });
    };
    let verb = verb(request.method(), path, &Query::parse(request.uri().query())?)?;
    auth::allow(api, identity, &auth::attributes(verb, path))?;
    request.extensions_mut().insert(identity.clone());
    let media = negotiate::plainly_accepted(request.headers());
    Ok(Reply { media, ..handler(request).await })
}

fn verb(method: &Method, path: &ResourcePath, query: &Query) -> Result<&'static str, ApiError> {
    let named = !path.name.is_empty();
    Ok(match *method {
        Method::GET | Method::HEAD if path.watch || (query.watch && !named) => "watch",
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT if named => "update",
        Method::PATCH if named => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => return Err(ApiError::method_not_allowed()),
    })
}

/// Paths that are well formed but lead nowhere for this kind.
fn must_exist_here(kind: &Kind, path: &ResourcePath, verb: &str) -> Result<(), ApiError> {
    if !kind.namespaced && !path.namespace.is_empty() {
        return Err(if kind.is_builtin() { ApiError::no_such_path() } else { ApiError::no_such_page() });
    }
    if path.subresource.is_empty() {
        let has_place = !kind.namespaced || !path.namespace.is_empty();
        let across_namespaces = path.name.is_empty() && matches!(verb, "list" | "watch");
        if !kind.allows(verb) || (!has_place && !across_namespaces) {
            return Err(ApiError::method_not_allowed());
        }
        if verb == "create" && !path.name.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        if matches!(verb, "create" | "update" | "patch") {
            profile::must_be_enforced(kind)?;
        }
        return Ok(());
    }
    match kind.subresource(&path.subresource) {
        None if kind.group.is_empty() && kind.plural == "pods" && is_streaming(&path.subresource) => {
            Err(ApiError::not_implemented(format!(
                "pods/{} is outside the profile of this server: its containers are simulated and have \
                 neither processes nor logs",
                path.subresource
            )))
        }
        None if !kind.is_builtin() => Err(ApiError::no_such_page()),
        None => Err(ApiError::no_such_path()),
        Some(sub) if sub.verbs.contains(&verb) => Ok(()),
        Some(_) => Err(ApiError::method_not_allowed()),
    }
}

fn is_streaming(subresource: &str) -> bool {
    let first = subresource.split('/').next().unwrap_or_default();
    matches!(first, "log" | "exec" | "attach" | "portforward" | "proxy")
}

async fn perform(api: &Arc<Api>, call: &Call, verb: &str) -> Result<Reply, ApiError> {
    match (call.path.subresource.as_str(), verb) {
        ("", "create") if !call.kind.is_stored() => reviews::answer(api, call),
        ("", "list") => read::list(api, call),
        ("", "watch") => watch::watch(api, call),
        ("", "create") => write::create(api, call).await,
        ("", "update") => write::update(api, call, Part::Main).await,
        ("", "patch") => write::patch(api, call, Part::Main).await,
        ("", "delete") => delete::delete(api, call).await,
        ("", "deletecollection") => delete::delete_collection(api, call).await,
        ("scale", verb) => scale::serve(api, call, verb),
        ("eviction", "create") => eviction::evict(api, call).await,
        ("binding", "create") => subresources::bind(api, call).await,
        ("token", "create") => subresources::token(api, call),
        (_, "get") => read::get(api, call),
        (name, verb) => {
            let part = subresources::part(name).ok_or_else(ApiError::method_not_allowed)?;
            match verb {
                "update" => write::update(api, call, part).await,
                "patch" => write::patch(api, call, part).await,
                _ => Err(ApiError::method_not_allowed()),
            }
        }
    }
}
