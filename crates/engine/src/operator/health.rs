//! What kubelets and Prometheus ask for, over plain HTTP: `/healthz`, `/readyz`, `/metrics`. See `docs/metrics.md`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use evac_clock::Clock;
use evac_listen::Listening;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::bounds::{Connections, HEADER_BYTES, Place};
use super::loop_health::{HealthClient, LoopHealth};
use crate::metrics::{CONTENT_TYPE, Metrics};

const HEADERS: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
#[error("cannot listen on {address} for probes: {source}")]
pub struct HealthError {
    address: SocketAddr,
    source: io::Error,
}

/// Says what a part still waits for; empty when it can work.
pub type Waiting = Box<dyn Fn() -> Vec<&'static str> + Send + Sync>;

/// What the answers are made from.
pub struct Vitals {
    pub metrics: Metrics,
    /// The loops; none where no role is taken on.
    pub health_clients: Vec<HealthClient>,
    /// The HTTPS server, which is set once it is open, if there is to be one.
    pub front: Option<OnceLock<Waiting>>,
}

impl Vitals {
    /// How all loops are together; none if one of them does not answer.
    async fn condition(&self) -> Option<LoopHealth> {
        let mut all = LoopHealth::default();
        for client in &self.health_clients {
            all.add(client.ask().await?);
        }
        Some(all)
    }

    async fn missing(&self) -> Vec<String> {
        let Some(condition) = self.condition().await else { return vec!["the loop".into()] };
        let mut missing = condition.missing;
        match &self.front {
            None => {}
            Some(front) => match front.get() {
                Some(waiting) => missing.extend(waiting().into_iter().map(str::to_owned)),
                None => missing.push("HTTPS server".into()),
            },
        }
        missing
    }

    async fn page(&self) -> Option<String> {
        let condition = self.condition().await?;
        self.metrics.queues(condition.queues);
        self.metrics.migrations(condition.migrations);
        self.metrics.leader(condition.leads);
        Some(self.metrics.render())
    }

    async fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here");
        }
        match path {
            "/healthz" | "/livez" => match self.condition().await {
                Some(_) => text(StatusCode::OK, "ok"),
                None => text(StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer"),
            },
            "/readyz" => {
                let missing = self.missing().await;
                if missing.is_empty() {
                    return text(StatusCode::OK, "ok");
                }
                text(StatusCode::SERVICE_UNAVAILABLE, &format!("waiting for: {}", missing.join(", ")))
            }
            "/metrics" => match self.page().await {
                Some(page) => reply(StatusCode::OK, CONTENT_TYPE, &page),
                None => text(StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer"),
            },
            _ => text(StatusCode::NOT_FOUND, "served here: /healthz, /livez, /readyz, /metrics"),
        }
    }
}

/// An open server.
pub struct Health {
    pub address: SocketAddr,
    vitals: Arc<Vitals>,
    listening: Listening,
}

impl Health {
    pub async fn open(address: SocketAddr, vitals: Vitals, clock: Clock) -> Result<Self, HealthError> {
        let failed = |source| HealthError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (vitals, connections) = (Arc::new(vitals), Arc::new(Connections::default()));
        let shared = vitals.clone();
        let listening = Listening::start(listener, clock, move |stream, stop| {
            // The newest is never turned away, so that kubelets get through whoever holds the others.
            let place = connections.admit()?;
            Some(converse(stream, shared.clone(), place, stop))
        });
        Ok(Self { address, vitals, listening })
    }

    /// The HTTPS server is open; from now on it is asked what it waits for.
    pub fn front(&self, waiting: Waiting) {
        if let Some(front) = &self.vitals.front {
            // A second one would be the same server.
            let _ = front.set(waiting);
        }
    }

    pub async fn close(self) {
        self.listening.close().await;
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.listening.stop();
    }
}

async fn converse(stream: TcpStream, vitals: Arc<Vitals>, place: Place, stop: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let vitals = vitals.clone();
        async move { Ok::<_, Infallible>(vitals.answer(request.method(), request.uri().path()).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(HEADER_BYTES as usize);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = place.cut.cancelled() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection for probes ended early");
    }
}

fn text(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    reply(code, "text/plain; charset=utf-8", text)
}

fn reply(code: StatusCode, kind: &'static str, body: &str) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *reply.status_mut() = code;
    reply.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(vitals: &Vitals, path: &str) -> (u16, String) {
        let answer = vitals.answer(&Method::GET, path).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// A loop that answers with this, or never.
    fn vitals(condition: Option<LoopHealth>, front: Option<OnceLock<Waiting>>) -> Vitals {
        let (client, mut questions) = HealthClient::new(Clock::real());
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Some(question) = questions.recv().await {
                match &condition {
                    Some(condition) => drop(question.send(condition.clone())),
                    None => kept.push(question),
                }
            }
        });
        Vitals { metrics: Metrics::new(), health_clients: vec![client], front }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_stuck_is_neither_alive_nor_ready() {
        let vitals = vitals(None, None);
        assert_eq!(ask(&vitals, "/healthz").await.0, 503);
        assert_eq!(ask(&vitals, "/readyz").await, (503, "waiting for: the loop".into()));
        assert_eq!(ask(&vitals, "/metrics").await.0, 503);
    }

    #[tokio::test]
    async fn it_is_ready_when_everything_was_read_and_the_server_can_answer() {
        let condition = LoopHealth { missing: vec!["pods".into()], ..LoopHealth::default() };
        let (code, said) = ask(&vitals(Some(condition), None), "/readyz").await;
        assert_eq!((code, said.as_str()), (503, "waiting for: pods"));
        let alive = vitals(Some(LoopHealth::default()), Some(OnceLock::new()));
        assert_eq!(ask(&alive, "/healthz").await.0, 200);
        assert_eq!(ask(&alive, "/readyz").await, (503, "waiting for: HTTPS server".into()));
        let _ = alive.front.as_ref().unwrap().set(Box::new(Vec::new));
        assert_eq!(ask(&alive, "/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn the_page_shows_how_the_loop_is_now() {
        let condition = LoopHealth { migrations: 2, leads: true, ..LoopHealth::default() };
        let (code, page) = ask(&vitals(Some(condition), None), "/metrics").await;
        assert_eq!(code, 200);
        assert!(page.contains("\nevac_migrations 2\n") && page.contains("\nevac_leader 1\n"), "{page}");
    }
}
