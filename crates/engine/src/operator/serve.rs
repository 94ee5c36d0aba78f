//! The operator's HTTPS server: admission reviews, the API `subresources.kubevirt.io`, and signs of health.
//!
//! ```text
//!   API server ──▶ /review/<tag>/…-validate, …       who knows the tag is the API server; marks are written for it alone
//!   anybody    ──▶ /…-validate, /…-mutate            advice on what the review itself says; nothing is looked up or written
//!              ──▶ /apis/subresources.kubevirt.io/…  front proxy only, on behalf of a user who may do this
//!   kubelet    ──▶ /healthz, /readyz                 anybody
//! ```
//!
//! All callers together are bounded ([`super::bounds`]), every stage has a time limit, and what cannot be understood is answered with
//! one sentence.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evac_api::kubevirt::review::{hide, is_advice, split};
use evac_clock::Clock;
use evac_listen::Listening;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::admission::{Reviewer, STRANGER};
use super::bounds::{
    Budget, Connections, HEADER_BYTES, HEADERS, NoRoom, Place, REVIEW_LIMIT, Room, SMALL_LIMIT, STREAMS,
    WINDOW, Who,
};
use super::caller::{Callers, ResourceAttributes};
use super::certificates::Keeper;
use super::index_reader::IndexReader;
use super::power;
use super::tls;
use crate::http::Http;

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS_READ: Duration = Duration::from_secs(10);
/// The API server gives up on a review after ten seconds.
const ANSWER: Duration = Duration::from_secs(30);

/// How much of a wrong path is shown to whoever asked for it.
const PATH_SHOWN: usize = 200;
/// The identifier of a review comes back in its answer.
const UID_LIMIT: usize = 128;

#[derive(Debug, Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ServeError {
    address: SocketAddr,
    source: io::Error,
}

/// What the handlers of requests share.
struct Handlers {
    http: Http,
    reviewer: Reviewer,
    view: IndexReader,
    callers: Callers,
    keeper: Keeper,
    clock: Clock,
    budget: Budget,
    connections: Arc<Connections>,
}

/// An open server.
pub struct Server {
    pub address: SocketAddr,
    handlers: Arc<Handlers>,
    listening: Listening,
}

impl Server {
    /// Opens a server that is called by these names, and starts to answer. Until there are certificates callers wait.
    pub async fn open(
        http: &Http,
        view: IndexReader,
        address: SocketAddr,
        names: BTreeSet<String>,
    ) -> Result<Self, ServeError> {
        let failed = |source| ServeError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let handlers = Arc::new(Handlers {
            http: http.clone(),
            reviewer: Reviewer::new(http.clone(), view.clone()),
            view,
            callers: Callers::follow(http),
            keeper: Keeper::start(http, names),
            clock: http.clock(),
            budget: Budget::new(http.clock()),
            connections: Arc::default(),
        });
        let acceptor =
            tls::acceptor(handlers.keeper.identity()).map_err(|error| failed(io::Error::other(error)))?;
        let shared = handlers.clone();
        let listening = Listening::start(listener, http.clock(), move |stream, stop| {
            let place = shared.connections.admit()?;
            Some(converse(stream, acceptor.clone(), shared.clone(), place, stop))
        });
        Ok(Self { address, handlers, listening })
    }

    /// The bundle of authorities callers should trust; it changes when certificates do.
    pub fn identity(&self) -> watch::Receiver<Option<super::certificates::Identity>> {
        self.handlers.keeper.identity()
    }

    /// Says what is still missing to answer everything.
    pub fn waiting(&self) -> super::health::Waiting {
        let handlers = self.handlers.clone();
        Box::new(move || handlers.waiting_for())
    }

    /// Stops listening, lets answers that are under way go out, and closes.
    pub async fn close(self) {
        self.listening.close().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listening.stop();
    }
}

/// One connection, from handshake to goodbye.
async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    handlers: Arc<Handlers>,
    place: Place,
    stop: CancellationToken,
) {
    let cut = place.cut.clone();
    let place = Arc::new(place);
    let stream = tokio::select! {
        accepted = acceptor.accept(stream) => match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a handshake failed");
                return;
            }
        },
        () = handlers.clock.sleep(HANDSHAKE) => return,
        () = cut.cancelled() => return,
        () = stop.cancelled() => return,
    };
    let chain: Arc<[CertificateDer<'static>]> =
        stream.get_ref().1.peer_certificates().unwrap_or_default().iter().cloned().collect();
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_READ)
        .max_headers(HEADERS)
        .max_buf_size(WINDOW as usize);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let service = service_fn(move |request| {
        let (handlers, chain, place) = (handlers.clone(), chain.clone(), place.clone());
        async move { Ok::<_, std::convert::Infallible>(handlers.answer(request, &chain, &place).await) }
    });
    let connection = server.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = cut.cancelled() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

type Reply = Response<Full<Bytes>>;

impl Handlers {
    async fn answer(
        &self,
        request: Request<Incoming>,
        chain: &[CertificateDer<'static>],
        place: &Place,
    ) -> Reply {
        tokio::select! {
            biased;
            reply = self.route(request, chain, place) => reply,
            () = self.clock.sleep(ANSWER) => {
                failure(504, "Timeout", &format!("no answer could be given within {} s", ANSWER.as_secs()))
            }
        }
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        chain: &[CertificateDer<'static>],
        place: &Place,
    ) -> Reply {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/healthz" | "/livez" => return text(200, "ok"),
            "/readyz" => return self.readiness(),
            _ => {}
        }
        if let Some(&path) = Reviewer::paths().iter().find(|&&known| known == path) {
            return self.review(Who::Stranger, path, request).await;
        }
        if let Some((tag, path)) = split(&path) {
            let known = Reviewer::paths().iter().find(|&&known| known == path);
            let Some(&path) = known.filter(|path| self.admits(tag, path)) else {
                return failure(403, "Forbidden", STRANGER);
            };
            place.prove();
            return self.review(Who::ApiServer, path, request).await;
        }
        if let Some(document) = super::discovery::document(&path) {
            return json_reply(200, &document);
        }
        if path.strip_prefix("/apis/").is_some_and(|rest| rest.starts_with(power::GROUP)) {
            return self.command(&path, request, chain, place).await;
        }
        let path: String = hide(&path).chars().take(PATH_SHOWN).collect();
        failure(404, "NotFound", &format!("nothing is served at {path}"))
    }

    /// Whether this tag makes `path` one that the API server was told.
    fn admits(&self, tag: &str, path: &str) -> bool {
        let identity = self.keeper.identity();
        let known = identity.borrow();
        known.as_ref().is_some_and(|identity| identity.pass.admits(tag, path, self.clock.now()))
    }

    fn waiting_for(&self) -> Vec<&'static str> {
        let certificates = self.keeper.identity().borrow().is_some();
        let needed =
            [(certificates, "certificates"), (self.callers.is_ready(), "front proxy of the API server")];
        needed.into_iter().filter(|(there, _)| !there).map(|(_, name)| name).collect()
    }

    fn readiness(&self) -> Reply {
        let missing = self.waiting_for();
        if missing.is_empty() {
            return text(200, "ok");
        }
        text(503, &format!("waiting for: {}", missing.join(", ")))
    }

    async fn review(&self, who: Who, path: &str, request: Request<Incoming>) -> Reply {
        if request.method() != http::Method::POST {
            return failure(405, "MethodNotAllowed", "reviews are sent by POST");
        }
        if who == Who::Stranger && !is_advice(path) {
            return failure(403, "Forbidden", STRANGER);
        }
        let limit = if who == Who::ApiServer { REVIEW_LIMIT } else { SMALL_LIMIT };
        let (body, _held) = match self.read(who, request, limit).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let _parsed = match self.budget.parsed(who, &body).await {
            Ok(room) => room,
            Err(NoRoom::Busy) => return busy(),
            Err(NoRoom::TooLarge) => {
                return failure(413, "RequestEntityTooLarge", "the review has too many parts");
            }
        };
        let review = match understand(&body) {
            Ok(review) => review,
            Err(why) => {
                return failure(400, "BadRequest", &format!("this is not an admission review: {why}"));
            }
        };
        match self.reviewer.review(who, path, &review).await {
            Ok(answer) => json_reply(200, &answer),
            Err(why) => failure(500, "InternalError", &format!("the request could not be reviewed: {why}")),
        }
    }

    async fn command(
        &self,
        path: &str,
        request: Request<Incoming>,
        chain: &[CertificateDer<'static>],
        place: &Place,
    ) -> Reply {
        let user = match self.callers.user(chain, request.headers()) {
            Ok(user) => user,
            Err(stranger) => return failure(401, "Unauthorized", &stranger.to_string()),
        };
        place.prove();
        if let Some(attributes) = attributes(request.method().as_str(), path) {
            match self.callers.objection(&user, &attributes).await {
                Ok(None) => {}
                Ok(Some(why)) => return failure(403, "Forbidden", &why),
                Err(error) => {
                    let why = format!("whether {:?} may do this could not be found out: {error}", user.name);
                    return failure(500, "InternalError", &why);
                }
            }
        }
        let method = request.method().clone();
        let (body, _held) = match self.read(Who::ApiServer, request, SMALL_LIMIT).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let config = self.view.config.borrow().clone();
        let reply = power::answer(&self.http, &config, method.as_str(), path, &body).await;
        match reply.body {
            Some(body) => json_reply(reply.code, &body),
            None => text(reply.code, ""),
        }
    }

    /// A body, for which there is room as long as it is kept.
    async fn read(&self, who: Who, request: Request<Incoming>, limit: usize) -> Result<(Bytes, Room), Reply> {
        let too_large =
            || failure(413, "RequestEntityTooLarge", &format!("the request is larger than {limit} bytes"));
        let size = match request.body().size_hint().exact() {
            Some(size) => usize::try_from(size).ok().filter(|size| *size <= limit).ok_or_else(too_large)?,
            None => limit,
        };
        let room = self.budget.body(who, size).await.map_err(|_| busy())?;
        let patience = self.budget.patience(who);
        let body = tokio::select! {
            biased;
            body = Limited::new(request.into_body(), limit).collect() => body,
            () = self.clock.sleep(patience) => {
                let why = format!("the request did not arrive within {} s", patience.as_secs());
                return Err(failure(408, "Timeout", &why));
            }
        };
        match body {
            Ok(body) => Ok((body.to_bytes(), room)),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(error) => Err(failure(400, "BadRequest", &format!("the request broke off: {error}"))),
        }
    }
}

/// There is no room now; the API server and whoever asks it try again.
fn busy() -> Reply {
    let mut reply = failure(503, "ServiceUnavailable", "too much is being read at the moment; try again");
    reply.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    reply
}

/// What a request asks for; `None` for what everybody may see.
fn attributes(method: &str, path: &str) -> Option<ResourceAttributes> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let ["apis", _, version, "namespaces", namespace, resource, name, subresource @ ..] = parts.as_slice()
    else {
        return None;
    };
    let verb = match method {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "update",
    };
    let part = |text: &&str| (*text).to_owned();
    Some(ResourceAttributes {
        verb,
        group: power::GROUP,
        version: part(version),
        namespace: part(namespace),
        resource: part(resource),
        subresource: subresource.join("/"),
        name: part(name),
    })
}

fn understand(body: &[u8]) -> Result<Value, String> {
    let review: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if review["kind"] != "AdmissionReview" || review["apiVersion"] != "admission.k8s.io/v1" {
        return Err("kind AdmissionReview of admission.k8s.io/v1 is expected".into());
    }
    match review["request"]["uid"].as_str() {
        Some(uid) if uid.len() > UID_LIMIT => Err("request.uid is too long".into()),
        Some(uid) if !uid.is_empty() => Ok(review),
        _ => Err("request.uid is missing".into()),
    }
}

fn reply(code: u16, kind: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    reply
}

fn text(code: u16, text: &str) -> Reply {
    reply(code, "text/plain; charset=utf-8", Bytes::copy_from_slice(text.as_bytes()))
}

fn json_reply(code: u16, body: &Value) -> Reply {
    reply(code, "application/json", body.to_string().into())
}

fn failure(code: u16, reason: &str, message: &str) -> Reply {
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    });
    json_reply(code, &body)
}
