//! A place between a drainer and the server where requests can be counted, refused or lost.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use evac_api::call::MERGE_PATCH;
use evac_apiserver::Service;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// What happens to a request instead of being carried out.
#[derive(Clone)]
pub enum Fault {
    /// This status and message, without asking the server.
    Answer(u16, Value),
    /// The server does it, but the answer does not arrive.
    Lost,
    /// The connection breaks before the request is sent.
    Unsent,
    /// The connection breaks before the server does anything, and nobody can tell.
    Dropped,
    /// A server of before streamed lists: it watches and takes no notice of what it does not know.
    Older,
    /// 429 by flow control, in the words and the header of a busy server.
    Busy { seconds: u64 },
    /// Others are faster: these requests, given as method, path and body, get through before it.
    Overtaken(Vec<(&'static str, String, Value)>),
    /// It takes this many seconds until the server carries it out, whether anybody still waits for the answer or not.
    Slow(u64),
    /// The drainer dies here: before the request is sent, or after the server has carried it out.
    Crash { after: bool, died: CancellationToken },
}

impl Fault {
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({"kind": "Status", "message": message, "reason": reason, "code": code});
        Self::Answer(code, body)
    }

    pub fn forbidden(what: &str) -> Self {
        Self::status(403, "Forbidden", &format!("{what} is forbidden"))
    }

    pub fn namespace_terminating() -> Self {
        let body = json!({
            "kind": "Status", "message": "being terminated", "reason": "Forbidden", "code": 403,
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "x"}]}
        });
        Self::Answer(403, body)
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;
type Hear = dyn Fn(&str, u16) + Send;
type Decide = dyn FnMut(&str, &str) -> Option<Fault> + Send;

#[derive(Clone)]
pub struct Wire {
    log: Arc<Mutex<Vec<String>>>,
    faults: Arc<Mutex<Box<Decide>>>,
    heard: Arc<Mutex<Box<Hear>>>,
}

impl Wire {
    pub fn new() -> Self {
        Self {
            log: Arc::default(),
            faults: Arc::new(Mutex::new(Box::new(|_, _| None))),
            heard: Arc::new(Mutex::new(Box::new(|_, _| ()))),
        }
    }

    /// Method and path of every request of the drainer so far.
    pub fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub fn count(&self, part: &str) -> usize {
        self.requests().iter().filter(|line| line.contains(part)).count()
    }

    pub fn fail(&self, decide: impl FnMut(&str, &str) -> Option<Fault> + Send + 'static) {
        *self.faults.lock().unwrap() = Box::new(decide);
    }

    /// Is told each request that is carried out, as in the log, with the status of its answer.
    #[allow(dead_code, reason = "some tests look at answers")]
    pub fn hear(&self, heard: impl Fn(&str, u16) + Send + 'static) {
        *self.heard.lock().unwrap() = Box::new(heard);
    }

    pub fn client(&self, service: Service) -> kube::Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let wire = wire.clone();
            let service = service.clone();
            async move {
                let mut request = request;
                let path = request.uri().to_string();
                let method = request.method().to_string();
                wire.log.lock().unwrap().push(format!("{method} {path}"));
                let fault = (wire.faults.lock().unwrap())(&method, &path);
                let answer: Result<Answer, BoxError> = match fault {
                    None => {
                        let answer = service.oneshot(request).await?;
                        (wire.heard.lock().unwrap())(&format!("{method} {path}"), answer.status().as_u16());
                        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
                    }
                    Some(Fault::Answer(status, body)) => Ok(Response::builder()
                        .status(StatusCode::from_u16(status)?)
                        .body(Full::from(body.to_string()).map_err(Into::into).boxed_unsync())?),
                    Some(Fault::Lost) => {
                        let _ = service.oneshot(request).await?;
                        Err("broken pipe".into())
                    }
                    Some(Fault::Unsent) => Err("connection refused".into()),
                    Some(Fault::Dropped) => Err("broken pipe".into()),
                    Some(Fault::Older) => {
                        let known = path
                            .replace("&sendInitialEvents=true", "")
                            .replace("&resourceVersionMatch=NotOlderThan", "");
                        *request.uri_mut() = known.parse()?;
                        let answer = service.oneshot(request).await?;
                        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
                    }
                    Some(Fault::Busy { seconds }) => Ok(Response::builder()
                        .status(StatusCode::TOO_MANY_REQUESTS)
                        .header(RETRY_AFTER, seconds)
                        .body(Full::from("Too many requests.\n").map_err(Into::into).boxed_unsync())?),
                    Some(Fault::Overtaken(others)) => {
                        for (method, path, body) in others {
                            let kind = if method == "PATCH" { MERGE_PATCH } else { "application/json" };
                            let other = Request::builder().method(method).uri(&path);
                            let body = Body::from(body.to_string().into_bytes());
                            let other = other.header(CONTENT_TYPE, kind).body(body)?;
                            let answer = service.clone().oneshot(other).await?;
                            assert!(answer.status().is_success(), "{method} {path}: {}", answer.status());
                        }
                        let answer = service.oneshot(request).await?;
                        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
                    }
                    Some(Fault::Slow(seconds)) => {
                        let late = tokio::spawn(async move {
                            tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
                            service.oneshot(request).await
                        });
                        Ok(late.await??.map(|body| body.map_err(Into::into).boxed_unsync()))
                    }
                    Some(Fault::Crash { after, died }) => {
                        if after {
                            let _ = service.oneshot(request).await?;
                        }
                        died.cancel();
                        std::future::pending().await
                    }
                };
                answer
            }
        });
        kube::Client::new(service, "default")
    }
}
