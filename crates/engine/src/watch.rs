//! List, then watch, for ever: one loop per kind, each event projected while it is parsed.
//!
//! A loop ends only when its receiver is gone. A list replaces what was known; an expired watch lists again, and so does one that
//! is silent for too long; a broken one goes on from the last position it saw.
//!
//! Servers since 1.34 send the list at the beginning of the watch, which is one request instead of two ([`Opening::Stream`]). Others
//! refuse that, and are asked in the old way from then on.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evac_api::call::escape;
use evac_api::wire::ListMeta;
use evac_api::{Call, Project};
use evac_apimachinery::backoff::Backoff;
use evac_core::Fact;
use evac_core::cluster::index::ListedAt;
use evac_core::cluster::pool::Pool;
use evac_core::cluster::version::is_older;
use evac_core::component;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::http::{Http, HttpError};

/// What a watch loop reports: of each object what its [`Feed`] keeps, never the object itself.
#[derive(Debug)]
pub enum Report<T> {
    /// The whole state, and of which moment.
    Listed(Vec<T>, ListedAt),
    Seen(T),
    /// What it was when it went.
    Gone(T),
    /// The list failed, or it may be listed and not watched; the loop tries again unless it makes no sense.
    Failed {
        error: HttpError,
        final_: bool,
    },
}

impl Report<Fact> {
    /// The fact in an event; `None` for lists and failures.
    pub fn into_fact(self) -> Option<Fact> {
        match self {
            Self::Seen(fact) => Some(fact),
            Self::Gone(last) => Some(last.gone()),
            Self::Listed(..) | Self::Failed { .. } => None,
        }
    }
}

/// What to watch: a collection's path and selectors in query form (`fieldSelector=…`), and the size of list pages.
#[derive(Debug, Clone)]
pub struct Source {
    pub path: Cow<'static, str>,
    pub query: String,
    pub page: u32,
}

impl Source {
    fn list_path(&self, next: Option<&str>) -> String {
        let limit = if self.page > 0 { format!("&limit={}", self.page) } else { String::new() };
        // In the order of kubectl's own requests, so that both look the same in an audit log.
        let next = next.map_or(String::new(), |next| format!("continue={}&", escape(next)));
        let path = format!("{}?{next}{}{limit}", self.path, self.query);
        path.replace("?&", "?").replace("&&", "&")
    }

    /// The list as the beginning of a watch.
    fn stream_path(&self) -> String {
        format!(
            "{}?{}&watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds={}",
            self.path, self.query, WATCH_SECONDS,
        )
        .replace("?&", "?")
    }

    fn watch_path(&self, version: &str) -> String {
        format!(
            "{}?{}&watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            self.path,
            self.query,
            WATCH_SECONDS,
            escape(version)
        )
        .replace("?&", "?")
    }
}

/// How the state at the beginning is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// By a list, in pages of the source's size.
    List,
    /// As the first events of the watch, where the server can do that.
    Stream,
}

/// How long the server is asked to keep one watch.
const WATCH_SECONDS: u64 = 1740;
/// Servers send a bookmark about every minute; a stream that is silent for much longer is dead. Or its position lies in the future, because etcd was
/// restored from a backup: then nothing comes until the new history is as long as the old, so what follows is a list.
const SILENCE: Duration = Duration::from_secs(300);

/// Reads a whole collection, page by page: what is kept of each object, and of which moment the list is. The objects themselves are not kept.
pub async fn list<W: DeserializeOwned, T>(
    http: &Http,
    source: &Source,
    keep: impl Fn(W) -> Option<T>,
) -> Result<(Vec<T>, String), HttpError> {
    let mut kept = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let each = |object| -> Result<(), HttpError> {
            http.take(0, 1)?;
            kept.extend(keep(object));
            Ok(())
        };
        let page = http.read_list(&Call::get(source.list_path(next.as_deref())), each).await?;
        http.take(1, 0)?;
        let ListMeta { resource_version, next: more } = page;
        match more.filter(|token| !token.is_empty()) {
            Some(token) => next = Some(token),
            None => return Ok((kept, resource_version)),
        }
    }
}

/// Keeps the fact in each object. What several of them say alike is in memory once.
pub fn facts<W: Project>() -> impl Fn(W) -> Option<Fact> + Send + Sync {
    let pool = Mutex::new(Pool::new());
    move |object: W| {
        let mut fact = object.seen();
        pool.lock().unwrap_or_else(PoisonError::into_inner).share(&mut fact);
        Some(fact)
    }
}

/// A collection that is followed, and what is kept of each of its objects.
pub struct Feed<W, T> {
    source: Source,
    opening: Opening,
    version_of: fn(&W) -> String,
    keep: Arc<dyn Fn(W) -> Option<T> + Send + Sync>,
}

impl<W, T> Clone for Feed<W, T> {
    fn clone(&self) -> Self {
        let Self { source, opening, version_of, keep } = self;
        Self { source: source.clone(), opening: *opening, version_of: *version_of, keep: keep.clone() }
    }
}

impl<W, T> Feed<W, T> {
    /// Of each object what `keep` makes of it; nothing is said about those of which it makes nothing.
    pub fn kept(
        source: Source,
        version_of: fn(&W) -> String,
        keep: impl Fn(W) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        Self { source, opening: Opening::List, version_of, keep: Arc::new(keep) }
    }

    /// The same, with its state at the beginning read in another way than by a list.
    #[must_use]
    pub fn opened(self, opening: Opening) -> Self {
        Self { opening, ..self }
    }
}

impl<O: 'static> Feed<O, O> {
    /// The objects as they are: for few, or small ones.
    pub fn whole(source: Source, version_of: fn(&O) -> String) -> Self {
        Self::kept(source, version_of, Some)
    }
}

impl<W: Project + 'static> Feed<W, Fact> {
    /// The facts in all objects.
    pub fn facts(source: Source) -> Self {
        Self::facts_where(source, |_| true)
    }

    /// The facts in those objects that matter.
    pub fn facts_where(source: Source, matters: fn(&W) -> bool) -> Self {
        let fact = facts();
        let keep = move |object: W| if matters(&object) { fact(object) } else { None };
        Self::kept(source, |object| object.metadata().resource_version.clone(), keep)
    }
}

/// Runs until `reports` is closed.
pub async fn follow<W, T, M>(
    http: Http,
    mut feed: Feed<W, T>,
    reports: mpsc::UnboundedSender<M>,
    wrap: impl Fn(Report<T>) -> M,
) where
    W: DeserializeOwned + Clone + Send + 'static,
{
    let mut failures = 0_u32;
    let mut position = String::new();
    loop {
        let mut opened = None;
        if feed.opening == Opening::Stream {
            match stream(&http, &feed, &reports).await {
                Ok(streamed) => opened = Some(Ok(streamed)),
                Err(NoStream::Closed) => return,
                Err(NoStream::Refused) => feed.opening = Opening::List,
                // A broken stream says nothing about the server, and the list is the right that people know.
                Err(NoStream::Failed(error)) if error.is_transient() || error.is_forbidden() => {}
                Err(NoStream::Failed(error)) => opened = Some(Err(error)),
            }
        }
        let opened = match opened {
            Some(opened) => opened,
            None => list(&http, &feed.source, &*feed.keep).await.map(Opened::listed),
        };
        let Opened { items, changes, version, rest } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let final_ = !error.is_transient();
                if reports.send(wrap(Report::Failed { error, final_ })).is_err() || final_ {
                    return;
                }
                pause(&http, &mut failures).await;
                continue;
            }
        };
        failures = 0;
        // A list is asked for after the last event has come: if it is older than that, etcd was restored from a backup.
        let at = ListedAt { rewound: is_older(&version, &position), version: version.clone() };
        for report in std::iter::once(Report::Listed(items, at)).chain(changes) {
            if reports.send(wrap(report)).is_err() {
                return;
            }
        }
        match watch_from(&http, &feed, version, rest, &reports, &wrap).await {
            Ok(last) => position = last,
            Err(Closed) => return,
        }
    }
}

type Events<T> = BoxStream<'static, Result<WatchEvent<T>, kube::Error>>;

/// The state at the beginning, and the stream on which changes follow if there is one already.
struct Opened<W: Clone, T> {
    items: Vec<T>,
    /// What happened while the list was sent.
    changes: Vec<Report<T>>,
    version: String,
    rest: Option<Events<W>>,
}

impl<W: Clone, T> Opened<W, T> {
    fn listed((items, version): (Vec<T>, String)) -> Self {
        Self { items, changes: Vec::new(), version, rest: None }
    }
}

enum NoStream {
    Closed,
    /// This server cannot do it.
    Refused,
    Failed(HttpError),
}

/// The annotation of the bookmark after the last object of the list.
const END_OF_LIST: &str = "k8s.io/initial-events-end";
/// A server that says nothing for this long at the beginning does not know what it was asked.
const OPENING_SILENCE: Duration = Duration::from_secs(5);

async fn stream<W, T, M>(
    http: &Http,
    feed: &Feed<W, T>,
    reports: &mpsc::UnboundedSender<M>,
) -> Result<Opened<W, T>, NoStream>
where
    W: DeserializeOwned + Clone + Send + 'static,
{
    let Feed { source, keep, .. } = feed;
    let request = http::Request::get(source.stream_path()).body(Vec::new());
    let request = request.map_err(|_| NoStream::Refused)?;
    let clock = http.clock();
    let began = clock.now();
    let answer = tokio::select! {
        biased;
        answer = http.client().request_events::<W>(request) => answer,
        () = clock.sleep(OPENING_SILENCE) => return Err(NoStream::Refused),
    };
    count(http, &source.stream_path(), answer.as_ref().err(), began);
    let mut events: Events<W> = match answer {
        Ok(events) => Box::pin(events),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => return Err(NoStream::Refused),
        // The list says in full what stands before the server.
        Err(kube::Error::Api(status)) if is_strange(&status) => return Err(NoStream::Refused),
        Err(kube::Error::Api(status)) => return Err(NoStream::Failed(refused(&status))),
        Err(error) => return Err(NoStream::Failed(http.lost_or_unsent(&error))),
    };
    let (mut items, mut changes) = (Vec::new(), Vec::new());
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = reports.closed() => return Err(NoStream::Closed),
            () = clock.sleep(OPENING_SILENCE) => return Err(NoStream::Refused),
        };
        if matches!(event, Some(Ok(_))) {
            http.take(0, 1).map_err(NoStream::Failed)?;
        }
        match event {
            Some(Ok(WatchEvent::Added(object))) => items.extend(keep(object)),
            Some(Ok(WatchEvent::Modified(object))) => changes.extend(keep(object).map(Report::Seen)),
            Some(Ok(WatchEvent::Deleted(object))) => changes.extend(keep(object).map(Report::Gone)),
            Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                if bookmark.metadata.annotations.contains_key(END_OF_LIST) {
                    let version = bookmark.metadata.resource_version;
                    return Ok(Opened { items, changes, version, rest: Some(events) });
                }
            }
            Some(Ok(WatchEvent::Error(status))) => return Err(NoStream::Failed(refused(&status))),
            Some(Err(error)) => return Err(NoStream::Failed(http.lost_or_unsent(&error))),
            None => return Err(NoStream::Failed(HttpError::Lost("the list ended early".into()))),
        }
    }
}

/// No API server answers so; a web page with 404 does not mean that there is no such kind.
fn is_strange(status: &kube::core::Status) -> bool {
    component::is_strange(status.code, "") || component::web_page(status.message.as_bytes()).is_some()
}

fn refused(status: &kube::core::Status) -> HttpError {
    HttpError::Status { status: status.code, reason: status.reason.clone(), message: status.message.clone() }
}

fn count(http: &Http, path: &str, error: Option<&kube::Error>, began: Timestamp) {
    let code = match error {
        None => Some(200),
        Some(kube::Error::Api(status)) => Some(status.code),
        Some(_) => None,
    };
    http.metrics().request("watch", code);
    http.trace("GET", path, code, began);
}

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(16));

async fn pause(http: &Http, failures: &mut u32) {
    let wait = BACKOFF.pause(*failures);
    *failures += 1;
    http.clock().sleep(wait).await;
}

struct Closed;

async fn watch<W>(http: &Http, source: &Source, version: &str) -> Result<Events<W>, kube::Error>
where
    W: DeserializeOwned + Clone + Send + 'static,
{
    let request = http::Request::get(source.watch_path(version)).body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    let began = http.clock().now();
    let answer = http.client().request_events::<W>(request).await;
    count(http, &source.watch_path(version), answer.as_ref().err(), began);
    Ok(Box::pin(answer?))
}

/// Watches from one position; comes back with the last one when a new list is needed.
async fn watch_from<W, T, M>(
    http: &Http,
    feed: &Feed<W, T>,
    mut version: String,
    mut open: Option<Events<W>>,
    reports: &mpsc::UnboundedSender<M>,
    wrap: &impl Fn(Report<T>) -> M,
) -> Result<String, Closed>
where
    W: DeserializeOwned + Clone + Send + 'static,
{
    let Feed { source, version_of, keep, .. } = feed;
    let mut failures = 0;
    let mut refused_before = false;
    let clock = http.clock();
    loop {
        let mut stream = match open.take() {
            Some(events) => events,
            None => match watch(http, source, &version).await {
                // It was said that this cannot be read. A list says that it can, also where nothing happens.
                Ok(_) if refused_before => return Ok(version),
                Ok(events) => events,
                Err(kube::Error::Api(status)) if status.code == 410 => return Ok(version),
                Err(error) => {
                    tracing::debug!(path = %source.path, %error, "watch was refused");
                    if let kube::Error::Api(status) = &error
                        && status.code == 403
                    {
                        refused_before = true;
                        let failed = Report::Failed { error: refused(status), final_: false };
                        // Whether anybody hears it is seen next.
                        let _ = reports.send(wrap(failed));
                    }
                    if reports.is_closed() {
                        return Err(Closed);
                    }
                    pause(http, &mut failures).await;
                    if failures > 8 {
                        return Ok(version);
                    }
                    continue;
                }
            },
        };
        loop {
            let event = tokio::select! {
                biased;
                event = stream.next() => event,
                () = reports.closed() => return Err(Closed),
                () = clock.sleep(SILENCE) => return Ok(version),
            };
            if matches!(event, Some(Ok(_))) && http.take(0, 1).is_err() {
                return Err(Closed);
            }
            let report = match event {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    version = version_of(&object);
                    keep(object).map(Report::Seen)
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    version = version_of(&object);
                    keep(object).map(Report::Gone)
                }
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                Some(Ok(WatchEvent::Error(status))) => {
                    tracing::debug!(path = %source.path, code = status.code, "watch ended by the server");
                    if status.code == 410 {
                        return Ok(version);
                    }
                    pause(http, &mut failures).await;
                    break;
                }
                Some(Err(error)) => {
                    tracing::debug!(path = %source.path, %error, "watch broke");
                    pause(http, &mut failures).await;
                    break;
                }
                None => break,
            };
            failures = 0;
            if let Some(report) = report
                && reports.send(wrap(report)).is_err()
            {
                return Err(Closed);
            }
        }
        if failures > 8 {
            return Ok(version);
        }
        http.metrics().watch_restart(&source.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a027_a032_a033_lists_are_paged_by_the_chunk_size() {
        let source = Source {
            path: "/api/v1/pods".into(),
            query: "fieldSelector=spec.nodeName%3Dn".into(),
            page: 500,
        };
        assert_eq!(source.list_path(None), "/api/v1/pods?fieldSelector=spec.nodeName%3Dn&limit=500");
        assert_eq!(
            source.list_path(Some("a b")),
            "/api/v1/pods?continue=a%20b&fieldSelector=spec.nodeName%3Dn&limit=500"
        );
        let whole = Source { page: 0, ..source };
        assert_eq!(whole.list_path(None), "/api/v1/pods?fieldSelector=spec.nodeName%3Dn");
    }
}
