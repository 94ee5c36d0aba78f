//! The line between a process and the server, where faults happen.
//!
//! A line belongs to one life of a process. What the process sent before it died may still be carried out; nothing reaches it any more. A process
//! that stands still neither sends nor hears, and what it had sent arrives when it goes on.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use evac_api::call::MERGE_PATCH;
use evac_apiserver::Service;
use evac_apiserver::identity::Identity;
use evac_apiserver::server::Api;
use evac_clock::Clock;
use futures::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::book::{Book, Class};
use crate::draw;
use crate::fault::Kind;
use crate::mutant::Bug;
use crate::mutant::send::{Instead, Sent};
use crate::mutant::show::Shown;
use crate::plan::{Plan, Point};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The annotation by which somebody else's writes are seen.
pub const RIVAL: &str = "rival.example.com/was-here";

/// Who sends more than this in one run sends without end. What is stopped there does not stop the run.
const MOST: usize = 6000;

/// What all lines of a run have in common.
pub struct Field {
    pub api: Arc<Api>,
    pub book: Book,
    pub clock: Clock,
    pub seed: u64,
    pub plan: Plan,
    /// Since when faults may happen, and whether they still may.
    span: Mutex<(Option<Instant>, bool)>,
    rivals: AtomicU64,
}

impl Field {
    pub fn new(api: Arc<Api>, book: Book, seed: u64, plan: Plan) -> Arc<Self> {
        let clock = api.clock;
        Arc::new(Self { api, book, clock, seed, plan, span: Mutex::default(), rivals: AtomicU64::new(0) })
    }

    fn span(&self) -> (Option<Instant>, bool) {
        *self.span.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on faults happen.
    pub fn begin(&self) {
        self.book.begin();
        self.book.note("faults may begin");
        *self.span.lock().unwrap_or_else(PoisonError::into_inner) = (Some(Instant::now()), false);
    }

    /// From now on there are none. What was late is still on its way.
    pub fn end(&self) {
        self.book.note("no more faults");
        self.span.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
    }

    pub fn calm(&self) -> bool {
        !matches!(self.span(), (Some(_), false))
    }

    /// The bug that is planted; before anything is attacked there is none.
    fn bug(&self) -> Option<Bug> {
        self.plan.bug.filter(|_| self.span().0.is_some())
    }

    fn fault(&self, actor: &str, number: usize, class: Class) -> Option<Kind> {
        let (Some(began), false) = self.span() else { return None };
        let kind = self.plan.at(self.seed, actor, number, class, began.elapsed())?;
        self.book.activate(Point { actor: actor.to_owned(), request: number, kind });
        Some(kind)
    }

    /// A client without faults, whose writes are known by this name.
    pub fn client_of(&self, name: &str) -> kube::Client {
        let (api, book, name) = (self.api.clone(), self.book.clone(), Arc::<str>::from(name));
        let service = tower::service_fn(move |request: Request<Body>| {
            let service = Service::trusted(api.clone(), Identity::admin());
            let carried =
                By { name: name.clone(), book: book.clone(), inner: Box::pin(service.oneshot(request)) };
            async move {
                let answer = carried.await?;
                Ok::<Answer, BoxError>(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
        });
        kube::Client::new(service, "default")
    }
}

/// A future whose commits are written down as those of an actor.
struct By<F> {
    name: Arc<str>,
    book: Book,
    inner: Pin<Box<F>>,
}

impl<F: Future> Future for By<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let before = self.book.author(Some(self.name.clone()));
        let polled = self.inner.as_mut().poll(context);
        self.book.author(before);
        polled
    }
}

/// One life of a process.
#[derive(Clone)]
pub struct Line {
    field: Arc<Field>,
    actor: Arc<str>,
    dead: CancellationToken,
    frozen: Arc<Mutex<Option<Instant>>>,
}

impl Line {
    pub fn new(field: &Arc<Field>, actor: &str) -> Self {
        Self {
            field: field.clone(),
            actor: actor.into(),
            dead: CancellationToken::new(),
            frozen: Arc::default(),
        }
    }

    /// Kills the process: nothing reaches it, and it sends nothing more.
    pub fn kill(&self) {
        self.field.book.note(&format!("{} dies", self.actor));
        self.dead.cancel();
    }

    pub fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    /// Waits until a fault has killed the process.
    pub async fn died(&self) {
        self.dead.cancelled().await;
    }

    pub fn client(&self) -> kube::Client {
        let line = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| line.clone().carry(request));
        kube::Client::new(service, "default")
    }

    fn draw(&self, number: usize, what: &str, low: u64, high: u64) -> u64 {
        draw::between(self.field.seed, &[&self.actor, &number.to_string(), what], low, high)
    }

    fn freeze(&self, seconds: u64) {
        let until = Instant::now() + Duration::from_secs(seconds);
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Waits while the process stands still; for ever if it is dead.
    async fn awake(&self) {
        loop {
            if self.dead.is_cancelled() {
                return std::future::pending().await;
            }
            let until = *self.frozen.lock().unwrap_or_else(PoisonError::into_inner);
            match until {
                Some(until) if Instant::now() < until => tokio::time::sleep_until(until).await,
                _ => return,
            }
        }
    }

    async fn carry(self, request: Request<Body>) -> Result<Answer, BoxError> {
        self.awake().await;
        let class = class_of(&request);
        let path = request.uri().path().to_owned();
        let words = format!("{} {}", request.method(), request.uri().path());
        let number = self.field.book.request(&self.actor, class, &words);
        if number > MOST {
            self.field.book.violate("I14", format!("{} has sent {MOST} requests", self.actor));
            return std::future::pending().await;
        }
        let kind = self.field.fault(&self.actor, number, class);
        match kind {
            Some(Kind::DiesBefore) => {
                self.kill();
                return std::future::pending().await;
            }
            Some(Kind::Refused) => return Err("connection refused".into()),
            Some(Kind::Dropped) => return Err("broken pipe".into()),
            Some(Kind::Busy) => return status(429, "TooManyRequests", "Too many requests.", Some(2)),
            Some(Kind::Broken) => return status(500, "InternalError", "the store failed", None),
            Some(Kind::Unavailable) => {
                return status(503, "ServiceUnavailable", "the server is going down", None);
            }
            Some(Kind::Frozen) => self.freeze(self.draw(number, "frozen", 16, 45)),
            _ => {}
        }
        // Once it is sent it travels, whether or not somebody still waits for the answer.
        let travelling = tokio::spawn(self.clone().travel(request, number, kind));
        let answer = travelling.await??;
        if kind == Some(Kind::DiesAfter) {
            self.kill();
        }
        self.awake().await;
        match kind {
            Some(Kind::Lost) if self.field.bug() == Some(Bug::LostIsUnsent) => {
                Err("connection refused".into())
            }
            Some(Kind::Lost) => Err("broken pipe".into()),
            _ if class == Class::Watch => Ok(self.tell(answer, path, number, kind)),
            _ => Ok(answer),
        }
    }

    async fn travel(
        self,
        request: Request<Body>,
        number: usize,
        kind: Option<Kind>,
    ) -> Result<Answer, BoxError> {
        let millis = match kind {
            Some(Kind::Late) => self.draw(number, "late", 8_000, 50_000),
            Some(Kind::Slow) => self.draw(number, "slow", 500, 9_000),
            _ => self.draw(number, "there", 0, 4),
        };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        if kind == Some(Kind::Frozen) {
            self.awake().await;
        }
        if kind == Some(Kind::Rival) {
            self.overtake(request.uri().path().to_owned()).await?;
        }
        let answer = match self.field.bug() {
            Some(bug) if *request.method() != Method::GET => self.send_with(bug, request, number).await?,
            Some(bug) if bug.is_of_seeing() && class_of(&request) == Class::Read => {
                self.read_with(bug, request).await?
            }
            _ => self.send(request).await?,
        };
        let back = match kind {
            Some(Kind::Slow) => self.draw(number, "slow answer", 0, 3_000),
            _ => self.draw(number, "back", 0, 4),
        };
        tokio::time::sleep(Duration::from_millis(back)).await;
        Ok(answer)
    }

    async fn send(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let service = Service::trusted(self.field.api.clone(), Identity::admin());
        let inner = Box::pin(service.oneshot(request));
        let answer = By { name: self.actor.clone(), book: self.field.book.clone(), inner }.await?;
        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    /// What evac would see if it had this bug.
    async fn read_with(&self, bug: Bug, request: Request<Body>) -> Result<Answer, BoxError> {
        let path = request.uri().path().to_owned();
        let answer = self.send(request).await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let (mut parts, body) = answer.into_parts();
        let mut bytes = body.collect().await?.to_bytes();
        if let Ok(mut object) = serde_json::from_slice::<Value>(&bytes) {
            bug.show(&self.actor, &path, &mut object);
            bytes = object.to_string().into();
            parts.headers.remove(CONTENT_LENGTH);
        }
        Ok(Response::from_parts(parts, Full::from(bytes).map_err(Into::into).boxed_unsync()))
    }

    /// What evac would do if it had this bug.
    async fn send_with(&self, bug: Bug, request: Request<Body>, number: usize) -> Result<Answer, BoxError> {
        let (parts, body) = request.into_parts();
        let kind = parts.headers.get(CONTENT_TYPE).cloned();
        let body = body.collect().await?.to_bytes();
        let sent = Sent {
            method: parts.method.to_string(),
            path: parts.uri.to_string(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        let asked = sent.body.clone();
        let request = |sent: &Sent| -> Result<Request<Body>, BoxError> {
            let request = Request::builder().method(sent.method.as_str()).uri(&sent.path);
            let kind = kind.clone().unwrap_or(HeaderValue::from_static("application/json"));
            Ok(request.header(CONTENT_TYPE, kind).body(Body::from(sent.body.to_string().into_bytes()))?)
        };
        match bug.send(sent, number) {
            Instead::Nothing => Ok(done(&asked)),
            Instead::Twice(sent) => {
                let answer = self.send(request(&sent)?).await;
                self.send(request(&sent)?).await?;
                answer
            }
            Instead::Both(sent, more) => {
                let answer = self.send(request(&sent)?).await;
                self.send(request(&more)?).await?;
                answer
            }
            Instead::Send(sent) => {
                let answer = self.send(request(&sent)?).await?;
                if bug == Bug::ConflictIsSuccess && answer.status() == StatusCode::CONFLICT {
                    let read = Request::get(parts.uri.path()).body(Body::empty())?;
                    return self.send(read).await;
                }
                let refused = answer.status() == StatusCode::TOO_MANY_REQUESTS;
                if bug == Bug::RefusalIsSuccess && refused && sent.path.contains("/eviction") {
                    return Ok(done(&asked));
                }
                Ok(answer)
            }
        }
    }

    /// Somebody else changes the object just before, so that the version that was read is not the last one.
    async fn overtake(&self, path: String) -> Result<(), BoxError> {
        let object = |path: &str, part: &str| path.strip_suffix(part).map(ToOwned::to_owned);
        let path = object(&path, "/eviction").or_else(|| object(&path, "/status")).unwrap_or(path);
        let number = self.field.rivals.fetch_add(1, Ordering::Relaxed);
        let body = json!({"metadata": {"annotations": {RIVAL: number.to_string()}}});
        let rival = Request::patch(path)
            .header(CONTENT_TYPE, MERGE_PATCH)
            .body(Body::from(body.to_string().into_bytes()))?;
        let service = Service::trusted(self.field.api.clone(), Identity::admin());
        // What is created has no object yet: then there is nobody to overtake.
        By { name: "rival".into(), book: self.field.book.clone(), inner: Box::pin(service.oneshot(rival)) }
            .await?;
        Ok(())
    }

    /// A watch as it is told: each event on its way for a while, in order, until a fault ends it.
    fn tell(&self, answer: Answer, path: String, number: usize, kind: Option<Kind>) -> Answer {
        if !answer.status().is_success() {
            return answer;
        }
        let (parts, body) = answer.into_parts();
        let (sender, receiver) = mpsc::unbounded_channel();
        let told = Telling {
            line: self.clone(),
            path,
            lag: Duration::from_millis(self.draw(number, "lag", 0, 25)),
            stale: (kind == Some(Kind::Stale))
                .then(|| Duration::from_secs(self.draw(number, "stale", 5, 60))),
            end: kind.filter(|kind| matches!(kind, Kind::Cut | Kind::Torn | Kind::Expired | Kind::Silent)),
            left: self.draw(number, "events", 0, 8),
            opened: Instant::now(),
        };
        tokio::spawn(told.pump(body, sender));
        let line = self.clone();
        let frames = stream::unfold((receiver, line), |(mut receiver, line)| async move {
            let (at, bytes): (Instant, Bytes) = receiver.recv().await?;
            tokio::time::sleep_until(at).await;
            line.awake().await;
            Some((Ok::<_, BoxError>(Frame::data(bytes)), (receiver, line)))
        });
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }
}

/// What becomes of the events of one watch.
struct Telling {
    line: Line,
    path: String,
    lag: Duration,
    stale: Option<Duration>,
    end: Option<Kind>,
    /// Events that still come before the end.
    left: u64,
    opened: Instant,
}

/// The beginning of a watch is its list. A view that is stale has seen that.
const BEGINNING: Duration = Duration::from_secs(1);

impl Telling {
    async fn pump(
        mut self,
        mut body: UnsyncBoxBody<Bytes, BoxError>,
        sender: mpsc::UnboundedSender<(Instant, Bytes)>,
    ) {
        let mut last = Instant::now();
        loop {
            let frame = tokio::select! {
                biased;
                () = sender.closed() => return,
                frame = body.frame() => frame,
            };
            let Some(Ok(frame)) = frame else { return };
            let Ok(bytes) = frame.into_data() else { continue };
            for event in bytes.split_inclusive(|byte| *byte == b'\n') {
                let stale =
                    self.stale.filter(|_| self.opened.elapsed() > BEGINNING && !self.line.field.calm());
                last = last.max(Instant::now() + stale.unwrap_or(self.lag));
                let mut event = bytes.slice_ref(event);
                if let Some(bug) = self.line.field.bug().filter(|bug| bug.is_of_seeing()) {
                    match self.shown(bug, &event) {
                        Some(shown) => event = shown,
                        None => continue,
                    }
                }
                let over = self.end.is_some() && self.opened.elapsed() > BEGINNING && self.take_one();
                if over {
                    match self.end {
                        Some(Kind::Torn) => event = event.slice(..event.len() / 2),
                        Some(Kind::Expired) => event = Bytes::from_static(EXPIRED),
                        Some(Kind::Silent) => return sender.closed().await,
                        _ => return,
                    }
                }
                if sender.send((last, event)).is_err() || over {
                    return;
                }
            }
        }
    }

    /// The event as it is seen with this bug; nothing where it is not seen.
    fn shown(&self, bug: Bug, event: &Bytes) -> Option<Bytes> {
        let Ok(mut told) = serde_json::from_slice::<Value>(event) else { return Some(event.clone()) };
        let shown = bug.show(&self.line.actor, &self.path, &mut told);
        (shown == Shown::Changed).then(|| format!("{told}\n").into())
    }

    /// Whether this was the last event but one.
    fn take_one(&mut self) -> bool {
        let over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        over
    }
}

const EXPIRED: &[u8] = b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version\",\"reason\":\"Expired\",\"code\":410}}\n";

fn class_of(request: &Request<Body>) -> Class {
    let watches = |query: &str| query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"));
    if *request.method() != Method::GET {
        Class::Write
    } else if request.uri().query().is_some_and(watches) {
        Class::Watch
    } else {
        Class::Read
    }
}

fn status(code: u16, reason: &str, message: &str, retry_after: Option<u64>) -> Result<Answer, BoxError> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let mut answer = Response::builder().status(StatusCode::from_u16(code)?);
    if let Some(seconds) = retry_after {
        answer = answer.header(RETRY_AFTER, seconds);
    }
    Ok(answer.body(Full::from(body.to_string()).map_err(Into::into).boxed_unsync())?)
}

/// An answer by which the sender believes that it was done.
fn done(object: &Value) -> Answer {
    Response::new(Full::from(object.to_string()).map_err(Into::into).boxed_unsync())
}
