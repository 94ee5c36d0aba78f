//! One request, one answer, no hidden retries.
//!
//! The kube client's own retry layer would hide a blocked eviction for minutes; [`connect`] leaves it out, and every
//! failure comes back typed so that the core decides what to do about it.

use std::sync::Arc;
use std::time::Duration;

use evac_api::wire::{List, ListMeta};
use evac_api::{Answer, Call};
use evac_apimachinery::backoff::Backoff;
use evac_clock::Clock;
use evac_core::tenants::quota::Usage;
use evac_core::{Outcome, component};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use kube::client::Body;
use serde::de::{DeserializeOwned, IgnoredAny};
use thiserror::Error;

use crate::gate::Gate;
use crate::items::Items;
use crate::meter::Meter;
use crate::metrics::{Metrics, verb};

#[derive(Debug, Error)]
pub enum HttpError {
    /// The request did not reach the server.
    #[error("{0}")]
    Transport(String),
    /// The answer was lost after the request was sent.
    #[error("{0}")]
    Lost(String),
    /// The server answered with a failure.
    #[error("{message}")]
    Status { status: u16, reason: String, message: String },
    /// The answer is not one of an API server.
    #[error("{}", component::strange_words(component::SERVER, *status, message))]
    Strange { status: u16, message: String },
    #[error("the answer of the server could not be read: {0}")]
    Body(#[source] serde_json::Error),
}

impl HttpError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { status: 404, .. })
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Status { status: 401 | 403, .. })
    }

    /// What was written upon has changed or is gone: the view was old, or another client was faster.
    pub fn is_outdated(&self) -> bool {
        matches!(self, Self::Status { status: 404 | 409 | 410, .. })
    }

    /// Asking again later may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport(_) | Self::Lost(_) => true,
            Self::Status { status, .. } | Self::Strange { status, .. } => *status == 429 || *status >= 500,
            Self::Body(_) => false,
        }
    }
}

impl From<&HttpError> for Outcome {
    fn from(error: &HttpError) -> Self {
        match error {
            HttpError::Transport(message) => Self::Transport { message: message.clone() },
            HttpError::Lost(message) => Self::Unknown { message: message.clone() },
            HttpError::Status { status: 401 | 403, message, .. } => {
                Self::Forbidden { message: message.clone() }
            }
            HttpError::Status { status: 404, .. } => Self::Gone,
            HttpError::Status { status, message, .. } => {
                Self::Server { status: *status, message: message.clone() }
            }
            HttpError::Strange { status, message } if *status >= 500 => {
                Self::Server { status: *status, message: message.clone() }
            }
            HttpError::Strange { status, message } => {
                Self::Invalid { status: *status, message: message.clone() }
            }
            HttpError::Body(source) => Self::Invalid { status: 200, message: source.to_string() },
        }
    }
}

/// A client for acting: without the retry layer, so that each refusal is seen.
pub fn connect(mut config: kube::Config) -> Result<kube::Client, kube::Error> {
    config.default_retry = false;
    let agent = http::HeaderValue::from_static(concat!("evac/", env!("CARGO_PKG_VERSION")));
    config.headers.push((http::header::USER_AGENT, agent));
    kube::Client::try_from(config)
}

/// Sends calls and reads answers, each within a time limit.
#[derive(Clone)]
pub struct Http {
    client: kube::Client,
    clock: Clock,
    limit: Duration,
    gate: Gate,
    home: Arc<str>,
    /// The address in messages for people; empty for a server in this process.
    server: Arc<str>,
    metrics: Metrics,
    meter: Option<Arc<Meter>>,
}

impl Http {
    /// `limit` bounds one request; zero means the default of half a minute.
    pub fn new(client: kube::Client, clock: Clock, limit: Duration) -> Self {
        let limit = if limit.is_zero() { Duration::from_secs(30) } else { limit };
        Self {
            client,
            clock,
            limit,
            gate: Gate::always_open(),
            home: evac_api::kubevirt::NAMESPACE.into(),
            server: "".into(),
            metrics: Metrics::new(),
            meter: None,
        }
    }

    /// The same, with the address of the server for messages.
    #[must_use]
    pub fn at(mut self, server: &str) -> Self {
        self.server = server.trim_end_matches('/').into();
        self
    }

    /// The same, for a server that is not trusted: what comes from it is counted there.
    #[must_use]
    pub fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = Some(meter);
        self
    }

    /// Counts what came, and refuses to go on where that was too much.
    pub(crate) fn take(&self, pages: usize, objects: usize) -> Result<(), HttpError> {
        let Some(meter) = &self.meter else { return Ok(()) };
        let taken = Usage { bytes: 0, objects, pages };
        meter.take(taken).map_err(|excess| HttpError::Lost(format!("the server sends {excess}")))
    }

    /// The same, except that writes pass only while the gate is open.
    #[must_use]
    pub fn behind(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// The same, for an operator that keeps its own objects (lease, certificates, service) in another namespace.
    #[must_use]
    pub fn at_home_in(mut self, namespace: &str) -> Self {
        self.home = namespace.into();
        self
    }

    /// The namespace of the operator's own objects.
    pub fn home(&self) -> &str {
        &self.home
    }

    /// Where this client and everything that uses it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    pub async fn send(&self, call: &Call) -> Result<Answer, HttpError> {
        self.send_accepting(call, OBJECTS).await
    }

    pub async fn send_accepting(&self, call: &Call, accept: &'static str) -> Result<Answer, HttpError> {
        self.exchange(call, accept, usize::MAX, self.limit).await
    }

    /// What is not an object: no more than `size` bytes of it, and not later than `within`.
    pub async fn read_text(&self, call: &Call, size: usize, within: Duration) -> Result<String, HttpError> {
        let answer = self.exchange(call, "text/plain", size, within.min(self.limit)).await?;
        refused(&answer)?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    async fn exchange(
        &self,
        call: &Call,
        accept: &'static str,
        size: usize,
        mut limit: Duration,
    ) -> Result<Answer, HttpError> {
        if call.method == "GET" {
            return self.transfer(call, accept, size, limit).await;
        }
        let pass = self.gate.pass(self.clock.now()).ok_or_else(not_leading)?;
        let Some(left) = pass.left else {
            let answer = self.transfer(call, accept, size, limit).await;
            drop(pass);
            return answer;
        };
        limit = limit.min(left);
        // A leader's write that is under way is never cut off by the end of the task that sent it: the server may carry it out all the same,
        // and who waits for what has passed the gate has to wait for this.
        let (http, call) = (self.clone(), call.clone());
        let sent = tokio::spawn(async move {
            let answer = http.transfer(&call, accept, size, limit).await;
            drop(pass);
            answer
        });
        sent.await.unwrap_or_else(|error| Err(HttpError::Lost(error.to_string())))
    }

    async fn transfer(
        &self,
        call: &Call,
        accept: &'static str,
        size: usize,
        limit: Duration,
    ) -> Result<Answer, HttpError> {
        let exchange = async {
            let (parts, body) = self.open(call, accept).await?.into_parts();
            let body = Limited::new(body, size).collect().await;
            let body = body.map_err(|error| HttpError::Lost(error.to_string()))?.to_bytes();
            let retry_after = parts
                .headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok())
                .and_then(|value| value.trim().parse().ok());
            let status = parts.status.as_u16();
            Ok((status, Answer { status, retry_after, body: body.to_vec() }))
        };
        self.within(limit, call, exchange).await
    }

    async fn open(&self, call: &Call, accept: &'static str) -> Result<http::Response<Body>, HttpError> {
        let mut request = http::Request::builder().method(call.method).uri(&call.path).header(ACCEPT, accept);
        if let Some(content_type) = call.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request
            .body(Body::from(call.body.clone()))
            .map_err(|error| HttpError::Transport(error.to_string()))?;
        self.client.send(request).await.map_err(|error| self.lost_or_unsent(&error))
    }

    /// Carries an exchange out within a time limit, and counts it with the status of its answer.
    async fn within<T>(
        &self,
        limit: Duration,
        call: &Call,
        exchange: impl Future<Output = Result<(u16, T), HttpError>>,
    ) -> Result<T, HttpError> {
        let began = self.clock.now();
        let answer = tokio::select! {
            biased;
            answer = exchange => answer,
            () = self.clock.sleep(limit) => {
                Err(HttpError::Lost(format!("no answer within {} s", limit.as_secs())))
            }
        };
        let status = answer.as_ref().ok().map(|(status, _)| *status);
        self.metrics.request(verb(call.method), status);
        self.trace(call.method, &call.path, status, began);
        answer.map(|(_, answer)| answer)
    }

    /// Reads a list. Each of its objects is handed over as soon as it has come, and neither they nor the text of the list are kept.
    pub(crate) async fn read_list<T: DeserializeOwned>(
        &self,
        call: &Call,
        mut each: impl FnMut(T) -> Result<(), HttpError>,
    ) -> Result<ListMeta, HttpError> {
        let exchange = async {
            let (parts, mut body) = self.open(call, OBJECTS).await?.into_parts();
            let status = parts.status.as_u16();
            let mut items = Items::new();
            // What is no list of a server that agreed is small, and said in full.
            let mut answer = Answer { status, ..Answer::default() };
            let mut is_list = None;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| HttpError::Lost(error.to_string()))?;
                let Ok(data) = frame.into_data() else { continue };
                let begins =
                    || data.iter().find(|byte| !byte.is_ascii_whitespace()).map(|byte| *byte == b'{');
                is_list = is_list.or_else(begins).map(|is_object| is_object && answer.is_success());
                if is_list == Some(true) {
                    let taken = items.take(&data, |element| {
                        each(serde_json::from_slice(element).map_err(HttpError::Body)?)
                    });
                    if let Err(error) = taken {
                        return Ok((status, Err(error)));
                    }
                } else {
                    answer.body.extend_from_slice(&data);
                }
            }
            if is_list == Some(true) {
                answer.body = items.rest();
            }
            Ok((status, parse::<List<IgnoredAny>>(&answer).map(|list| list.metadata)))
        };
        self.within(self.limit, call, exchange).await?
    }

    /// One record for each answer, in the words of kubectl's own log, which `-v=6` shows.
    pub(crate) fn trace(&self, verb: &str, path: &str, status: Option<u16>, began: Timestamp) {
        let code = status.and_then(|status| http::StatusCode::from_u16(status).ok());
        let milliseconds = self.clock.now().duration_since(began).as_millis();
        let status = code.map_or_else(|| "no answer".to_owned(), |code| code.to_string());
        let url = format!("{}{path}", self.server);
        tracing::debug!(target: REQUESTS, verb, url, status, milliseconds, "Response");
    }

    /// Only a failure to connect proves that nothing was carried out.
    pub(crate) fn lost_or_unsent(&self, error: &kube::Error) -> HttpError {
        let (text, cause) = causes(error);
        let unsent = ["connect", "Connect", "dns error", "refused", "certificate"]
            .iter()
            .any(|word| text.contains(word));
        let said = if self.server.is_empty() { cause } else { format!("{}: {cause}", self.server) };
        if unsent { HttpError::Transport(said) } else { HttpError::Lost(said) }
    }

    pub async fn read<T: DeserializeOwned>(&self, call: &Call) -> Result<T, HttpError> {
        let answer = self.send(call).await?;
        parse(&answer)
    }

    /// As [`Self::read`], for what is read once and then decided on: one failure of the server is no answer yet.
    pub async fn read_patiently<T: DeserializeOwned>(&self, call: &Call) -> Result<T, HttpError> {
        let passes = |read: &Result<T, HttpError>| read.as_ref().is_err_and(HttpError::is_transient);
        self.try_again(READ_PATIENCE, || self.read(call), passes).await
    }

    /// Tries until the result is not one that passes, or patience ends; gives the last result.
    pub(crate) async fn try_again<T, F>(
        &self,
        patience: Patience,
        attempt: impl Fn() -> F,
        passes: impl Fn(&T) -> bool,
    ) -> T
    where
        F: Future<Output = T>,
    {
        for earlier in 0..patience.tries - 1 {
            let result = attempt().await;
            if !passes(&result) {
                return result;
            }
            self.clock.sleep(patience.backoff.pause(earlier)).await;
        }
        attempt().await
    }
}

/// What an answer may be. KubeVirt's virt-api answers its subresources only to those who take anything, as virtctl and client-go do.
const OBJECTS: &str = "application/json, */*";

/// How often something is tried in one go, and the pauses in between.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub tries: u32,
    pub backoff: Backoff,
}

/// How often something is read before its failure is believed.
const READ_PATIENCE: Patience =
    Patience { tries: 3, backoff: Backoff::new(Duration::from_millis(250), Duration::from_secs(1)) };

fn not_leading() -> HttpError {
    HttpError::Transport("not sent: another operator may be leading".into())
}

pub fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, HttpError> {
    refused(answer)?;
    serde_json::from_slice(&answer.body).map_err(HttpError::Body)
}

/// The failure that the server answered with, if it did.
pub(crate) fn refused(answer: &Answer) -> Result<(), HttpError> {
    let is_page = answer.web_page().is_some();
    if answer.is_success() && !is_page {
        return Ok(());
    }
    let failure = answer.failure();
    if is_page || component::is_strange(answer.status, &failure.message) {
        return Err(HttpError::Strange { status: answer.status, message: failure.message });
    }
    let message =
        if failure.message.is_empty() { format!("HTTP status {}", answer.status) } else { failure.message };
    Err(HttpError::Status { status: answer.status, reason: failure.reason, message })
}

/// All that an error says, and of that what a person can do something with: the innermost cause. What is around it ("ServiceError: client error
/// (Connect)") names parts of the program.
fn causes(error: &kube::Error) -> (String, String) {
    let mut text = error.to_string();
    let mut innermost = text.clone();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        innermost = cause.to_string();
        if !text.contains(&innermost) {
            text.push_str(": ");
            text.push_str(&innermost);
        }
        source = cause.source();
    }
    (text, innermost)
}

/// The target of the records about requests.
pub const REQUESTS: &str = "evac::requests";

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use evac_api::wire::Named;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// Answers as KubeVirt's virt-api does: 406 to those who do not take anything.
    async fn virt_api(request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
        let takes = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let anything = takes.split(',').any(|kind| kind.trim() == "*/*");
        let status = if anything { 202 } else { 406 };
        Ok(http::Response::builder().status(status).body(Body::empty()).unwrap())
    }

    #[tokio::test]
    async fn a_subresource_of_virt_api_is_not_refused_for_what_is_accepted() {
        let client = kube::Client::new(tower::service_fn(virt_api), "default");
        let http = Http::new(client, Clock::real(), Duration::ZERO);
        let answer = http.send(&Call::get("/apis/subresources.kubevirt.io/v1/version")).await.unwrap();
        assert_eq!(answer.status, 202);
    }

    /// A server that answers with this, in parts of seven bytes.
    fn in_parts(status: u16, text: &'static str) -> Http {
        let answer = move |_: http::Request<Body>| async move {
            let parts = text.as_bytes().chunks(7);
            let frames = parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part))));
            let body = StreamBody::new(futures::stream::iter(frames));
            Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap())
        };
        Http::new(kube::Client::new(tower::service_fn(answer), "default"), Clock::real(), Duration::ZERO)
    }

    async fn read_list(http: &Http) -> Result<(Vec<Named>, ListMeta), HttpError> {
        let mut found = Vec::new();
        let each = |object| {
            found.push(object);
            Ok(())
        };
        let meta = http.read_list(&Call::get("/api/v1/nodes"), each).await?;
        Ok((found, meta))
    }

    #[tokio::test]
    async fn a_list_is_read_in_the_parts_in_which_it_comes() {
        let text = r#" {"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}], "metadata": {"resourceVersion": "7", "continue": "next"}}"#;
        let (found, meta) = read_list(&in_parts(200, text)).await.unwrap();
        assert_eq!(found.iter().map(|one| one.metadata.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((meta.resource_version.as_str(), meta.next.as_deref()), ("7", Some("next")));
    }

    #[tokio::test]
    async fn a_list_that_cannot_be_read_is_refused_as_any_other_answer_is() {
        for (status, text) in [
            (200, "<!DOCTYPE html><html><title>Sign in</title></html>"),
            (200, ""),
            (200, "nonsense"),
            (200, r#"{"items": [{"metadata": {"name": 1}}]}"#),
            (200, r#"{"items": [{"metadata": {}"#),
            (200, r#"{"items": {}}"#),
            (200, r#"{"items": [], "metadata": 7}"#),
            (
                403,
                r#"{"kind": "Status", "reason": "Forbidden", "message": "nodes is forbidden", "code": 403}"#,
            ),
            (404, "404 page not found"),
            (406, "only protobuf here"),
            (500, r#"{"items": [{"metadata": {"name": "a"}}]}"#),
        ] {
            let http = in_parts(status, text);
            let whole = http.read::<List<Named>>(&Call::get("/api/v1/nodes")).await.unwrap_err();
            let error = read_list(&http).await.unwrap_err();
            match (&whole, &error) {
                // Where in the text it went wrong is counted from the beginning of the object.
                (HttpError::Body(_), HttpError::Body(_)) => {}
                _ => assert_eq!(error.to_string(), whole.to_string(), "{status} {text}"),
            }
        }
    }

    /// A login page in place of the server, whatever is asked for.
    async fn login_page(request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
        let status = if request.uri().path() == "/missing" { 404 } else { 200 };
        let page = Body::from(b"<!DOCTYPE html><html><title>Sign in</title></html>".to_vec());
        Ok(http::Response::builder().status(status).body(page).unwrap())
    }

    #[tokio::test]
    async fn a_web_page_is_neither_an_object_nor_a_sign_that_there_is_none() {
        let client = kube::Client::new(tower::service_fn(login_page), "default");
        let http = Http::new(client, Clock::real(), Duration::ZERO);
        for path in ["/api/v1/nodes", "/missing"] {
            let error = http.read::<serde_json::Value>(&Call::get(path)).await.unwrap_err();
            assert!(!error.is_not_found() && !error.is_transient(), "{error:?}");
            let said = error.to_string();
            assert!(said.starts_with("the API server or a proxy before it answered"), "{said}");
            assert!(said.contains("a web page, \"Sign in\", instead of Kubernetes' JSON"), "{said}");
        }
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_named_with_the_cause_and_nothing_else() {
        let config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http =
            Http::new(connect(config).unwrap(), Clock::real(), Duration::ZERO).at("https://127.0.0.1:1/");
        let error = http.send(&Call::get("/version")).await.unwrap_err();
        let HttpError::Transport(said) = error else { panic!("{error:?}") };
        assert!(said.starts_with("https://127.0.0.1:1: Connection refused"), "{said}");
        assert!(!said.contains("ServiceError") && !said.contains("client error"), "{said}");
    }
}
