//! A server under comparison: sends a request, gives back what a client sees.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evac_apiserver::identity::Identity;
use evac_apiserver::protobuf;
use evac_apiserver::server::{Api, Settings};
use evac_apiserver::service::Service;
use evac_clock::Clock;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::Service as _;

use super::binary;

/// How long a watch may take to deliver what a case waits for.
const PATIENCE: Duration = Duration::from_secs(4);

/// A request with everything filled in.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub events: Option<usize>,
}

/// What a client sees of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub code: u16,
    /// The headers that mean something: type, warnings, when to come back.
    pub headers: Vec<(String, String)>,
    /// JSON, a list of events, or a text.
    pub body: Value,
}

/// One of the two servers.
pub enum Arm {
    Embedded { api: Arc<Api>, trusted: Service, guarded: Service },
    Real { admin: kube::Client, nobody: kube::Client },
}

impl Arm {
    pub fn embedded() -> Self {
        let api: Arc<Api> = Api::new(Clock::real(), Settings::default());
        // The same administrator as the real server has.
        let admin = Identity { name: "admin".into(), uid: "admin".into(), ..Identity::admin() };
        let trusted = Service::trusted(api.clone(), admin);
        Self::Embedded { trusted, guarded: Service::guarded(api.clone()), api }
    }

    /// Makes the embedded server lose its past; the real one for such cases does that all the time.
    fn forget(&self) -> Answer {
        if let Self::Embedded { api, .. } = self {
            api.store.compact(api.store.revision());
        }
        Answer { code: 200, headers: Vec::new(), body: Value::Null }
    }

    pub async fn send(&self, ask: &Ask) -> Answer {
        if ask.method == "FORGET" {
            return self.forget();
        }
        let nobody = ask.headers.iter().any(|(n, v)| n == "As" && v == "nobody");
        let mut request = Request::builder().method(ask.method.as_str()).uri(ask.path.as_str());
        if !ask.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("user-agent")) {
            request = request.header("User-Agent", "conformance/1");
        }
        for (name, value) in ask.headers.iter().filter(|(n, _)| n != "As") {
            request = request.header(name.as_str(), value.as_str());
        }
        let body = ask.body.clone();
        match self {
            Self::Embedded { trusted, guarded, .. } => {
                let request = request.body(Full::new(body)).unwrap();
                let mut service = if nobody { guarded.clone() } else { trusted.clone() };
                let response = service.call(request).await.unwrap();
                let (parts, body) = response.into_parts();
                read(parts.status.as_u16(), &parts.headers, body, ask.events).await
            }
            Self::Real { admin, nobody: anonymous } => {
                let request = request.body(kube::client::Body::from(body)).unwrap();
                let client = if nobody { anonymous } else { admin };
                match client.send(request).await {
                    Ok(response) => {
                        let (parts, body) = response.into_parts();
                        read(parts.status.as_u16(), &parts.headers, body, ask.events).await
                    }
                    Err(error) => Answer { code: 0, headers: Vec::new(), body: json!(error.to_string()) },
                }
            }
        }
    }
}

async fn read<B>(code: u16, headers: &HeaderMap, body: B, events: Option<usize>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    let told = ["content-type", "warning", "retry-after", "allow", "vary"];
    let headers: Vec<(String, String)> = told
        .iter()
        .flat_map(|name| headers.get_all(*name).iter().map(move |v| (*name, v)))
        .map(|(name, value)| (name.to_owned(), value.to_str().unwrap_or("?").to_owned()))
        .collect();
    let form =
        headers.iter().find(|(name, _)| name == "content-type").map_or("", |(_, value)| value.as_str());
    let body = match events.filter(|_| code == 200) {
        Some(count) if form == protobuf::WATCH_MEDIA_TYPE => read_events(body, count, binary::event).await,
        Some(count) => read_events(body, count, line).await,
        None => {
            // A request that was taken for a watch would never end.
            match tokio::time::timeout(PATIENCE, body.collect()).await {
                Err(_) => json!("the answer did not end in time"),
                Ok(read) => {
                    let bytes = read.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                    if form == protobuf::MEDIA_TYPE { binary::object(&bytes) } else { text(&bytes) }
                }
            }
        }
    };
    Answer { code, headers, body }
}

fn text(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(bytes)))
}

/// Takes one event, a line of JSON, from the beginning of what was read.
fn line(read: &mut Vec<u8>) -> Option<Value> {
    let end = read.iter().position(|byte| *byte == b'\n')?;
    let line: Vec<u8> = read.drain(..=end).collect();
    Some(text(&line))
}

async fn read_events<B>(mut body: B, count: usize, next: fn(&mut Vec<u8>) -> Option<Value>) -> Value
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    let mut read = Vec::new();
    let mut events = Vec::new();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while events.len() < count {
        if let Some(event) = next(&mut read) {
            events.push(event);
            continue;
        }
        match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => read.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Ok(Some(Err(error))) => {
                events.push(json!(format!("broken: {error:?}")));
                break;
            }
            Ok(None) => {
                events.push(json!("end of the watch"));
                break;
            }
            Err(_) => {
                events.push(json!("no further event in time"));
                break;
            }
        }
    }
    Value::Array(events)
}
