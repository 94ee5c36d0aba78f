//! List, then watch, for ever: one loop per kind, each event projected while it is parsed.
//!
//! A loop ends only when its receiver is gone. A list replaces what was known; an expired watch lists again; a broken
//! one goes on from the last position it saw.

use std::collections::BTreeMap;
use std::time::Duration;

use evac_api::call::escape;
use evac_api::wire::{List, ListMeta};
use evac_api::{Call, Project};
use evac_core::Fact;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::http::{Http, HttpError};

/// What a watch loop reports.
#[derive(Debug)]
pub enum Report<T> {
    /// The whole state as of now.
    Listed(Vec<T>),
    Seen(T),
    Gone(T),
    /// The list failed; the loop tries again unless it makes no sense.
    Failed {
        error: HttpError,
        final_: bool,
    },
}

impl<T: Project> Report<T> {
    /// The fact in an event; `None` for lists and failures.
    pub fn into_fact(self) -> Option<Fact> {
        match self {
            Self::Seen(object) => Some(object.seen()),
            Self::Gone(object) => Some(object.gone()),
            Self::Listed(_) | Self::Failed { .. } => None,
        }
    }
}

/// What to watch: a collection's path and selectors in query form (`fieldSelector=…`), and the size of list pages.
#[derive(Debug, Clone)]
pub struct Source {
    pub path: &'static str,
    pub query: String,
    pub page: u32,
}

impl Source {
    fn list_path(&self, next: Option<&str>) -> String {
        let limit = if self.page > 0 { format!("&limit={}", self.page) } else { String::new() };
        let next = next.map_or(String::new(), |next| format!("&continue={}", escape(next)));
        let path = format!("{}?{}{limit}{next}", self.path, self.query);
        path.replace("?&", "?")
    }

    /// Asks for the state and then for what changes, in one answer.
    fn stream_path(&self) -> String {
        format!(
            "{}?{}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            self.path, self.query
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

/// How long the server is asked to keep one watch.
const WATCH_SECONDS: u64 = 1740;
/// Servers send a bookmark about every minute; a stream that is silent for much longer is dead.
const SILENCE: Duration = Duration::from_secs(300);
/// Servers that do not know streamed lists send the objects but never say that these were all.
const STREAMED_WITHIN: Duration = Duration::from_secs(5);
/// What the bookmark behind the last object of a streamed list carries.
const INITIAL_END: &str = "k8s.io/initial-events-end";

type Events<T> = BoxStream<'static, Result<WatchEvent<T>, kube::Error>>;

/// Reads a whole collection, page by page.
pub async fn list<T: DeserializeOwned>(http: &Http, source: &Source) -> Result<(Vec<T>, String), HttpError> {
    let mut items = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let page: List<T> = http.read(&Call::get(source.list_path(next.as_deref()))).await?;
        items.extend(page.items);
        let ListMeta { resource_version, next: more } = page.metadata;
        match more.filter(|token| !token.is_empty()) {
            Some(token) => next = Some(token),
            None => return Ok((items, resource_version)),
        }
    }
}

/// Runs until `reports` is closed.
pub async fn follow<T, M>(
    http: Http,
    source: Source,
    reports: mpsc::UnboundedSender<M>,
    wrap: impl Fn(Report<T>) -> M,
) where
    T: Project + DeserializeOwned + Clone + Send + 'static,
{
    follow_by(http, source, reports, wrap, |object: &T| object.metadata().resource_version.clone()).await;
}

/// As [`follow`], with one request for the list and the watch. Where the server does not do that, it is two.
pub async fn follow_streamed<T, M>(
    http: Http,
    source: Source,
    reports: mpsc::UnboundedSender<M>,
    wrap: impl Fn(Report<T>) -> M,
) where
    T: Project + DeserializeOwned + Clone + Send + 'static,
{
    let version_of = |object: &T| object.metadata().resource_version.clone();
    if let Some((items, version, events)) = streamed::<T>(&http, &source).await {
        if reports.send(wrap(Report::Listed(items))).is_err() {
            return;
        }
        let open = Some(events);
        if watch_from(&http, &source, version, open, &reports, &wrap, &version_of).await.is_err() {
            return;
        }
    }
    follow_by(http, source, reports, wrap, version_of).await;
}

/// The state as the beginning of a watch, and the rest of that watch.
async fn streamed<T>(http: &Http, source: &Source) -> Option<(Vec<T>, String, Events<T>)>
where
    T: Project + DeserializeOwned + Clone + Send + 'static,
{
    let request = http::Request::get(source.stream_path()).body(Vec::new()).ok()?;
    let reading = async {
        let mut events: Events<T> = http.client().request_events::<T>(request).await.ok()?.boxed();
        let mut items: BTreeMap<(String, String), T> = BTreeMap::new();
        loop {
            let key = |object: &T| (object.metadata().namespace.clone(), object.metadata().name.clone());
            match events.next().await?.ok()? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    items.insert(key(&object), object);
                }
                WatchEvent::Deleted(object) => {
                    items.remove(&key(&object));
                }
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.get(INITIAL_END).is_some_and(|end| end == "true") {
                        let version = bookmark.metadata.resource_version;
                        return Some((items.into_values().collect(), version, events));
                    }
                }
                WatchEvent::Error(_) => return None,
            }
        }
    };
    let clock = http.clock();
    tokio::select! {
        biased;
        state = reading => state,
        () = clock.sleep(STREAMED_WITHIN) => None,
    }
}

/// As [`follow`], for objects of which only the position in the history has to be known.
pub async fn follow_by<T, M>(
    http: Http,
    source: Source,
    reports: mpsc::UnboundedSender<M>,
    wrap: impl Fn(Report<T>) -> M,
    version_of: impl Fn(&T) -> String,
) where
    T: DeserializeOwned + Clone + Send + 'static,
{
    let mut failures = 0_u32;
    loop {
        let version = match list::<T>(&http, &source).await {
            Ok((items, version)) => {
                failures = 0;
                if reports.send(wrap(Report::Listed(items))).is_err() {
                    return;
                }
                version
            }
            Err(error) => {
                let final_ = !error.is_transient();
                if reports.send(wrap(Report::Failed { error, final_ })).is_err() || final_ {
                    return;
                }
                pause(&http, &mut failures).await;
                continue;
            }
        };
        if watch_from(&http, &source, version, None, &reports, &wrap, &version_of).await.is_err() {
            return;
        }
    }
}

async fn pause(http: &Http, failures: &mut u32) {
    let wait = Duration::from_millis(250).saturating_mul(1 << (*failures).min(6));
    *failures += 1;
    http.clock().sleep(wait).await;
}

struct Closed;

/// Watches from one position, first in the stream that is open already, if any; comes back when a new list is needed.
async fn watch_from<T, M>(
    http: &Http,
    source: &Source,
    mut version: String,
    mut open: Option<Events<T>>,
    reports: &mpsc::UnboundedSender<M>,
    wrap: &impl Fn(Report<T>) -> M,
    version_of: &impl Fn(&T) -> String,
) -> Result<(), Closed>
where
    T: DeserializeOwned + Clone + Send + 'static,
{
    let mut failures = 0;
    let clock = http.clock();
    loop {
        let request = http::Request::get(source.watch_path(&version)).body(Vec::new());
        let Ok(request) = request else { return Ok(()) };
        let opened = match open.take() {
            Some(events) => Ok(events),
            None => http.client().request_events::<T>(request).await.map(StreamExt::boxed),
        };
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(()),
            Err(error) => {
                tracing::debug!(path = source.path, %error, "watch was refused");
                if reports.is_closed() {
                    return Err(Closed);
                }
                pause(http, &mut failures).await;
                if failures > 8 {
                    return Ok(());
                }
                continue;
            }
        };
        loop {
            let event = tokio::select! {
                biased;
                event = stream.next() => event,
                () = reports.closed() => return Err(Closed),
                () = clock.sleep(SILENCE) => None,
            };
            let report = match event {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    version = version_of(&object);
                    Report::Seen(object)
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    version = version_of(&object);
                    Report::Gone(object)
                }
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                Some(Ok(WatchEvent::Error(status))) => {
                    tracing::debug!(path = source.path, code = status.code, "watch ended by the server");
                    if status.code == 410 {
                        return Ok(());
                    }
                    pause(http, &mut failures).await;
                    break;
                }
                Some(Err(error)) => {
                    tracing::debug!(path = source.path, %error, "watch broke");
                    pause(http, &mut failures).await;
                    break;
                }
                None => break,
            };
            failures = 0;
            if reports.send(wrap(report)).is_err() {
                return Err(Closed);
            }
        }
        if failures > 8 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a027_a032_a033_lists_are_paged_by_the_chunk_size() {
        let source =
            Source { path: "/api/v1/pods", query: "fieldSelector=spec.nodeName%3Dn".into(), page: 500 };
        assert_eq!(source.list_path(None), "/api/v1/pods?fieldSelector=spec.nodeName%3Dn&limit=500");
        assert_eq!(
            source.list_path(Some("a b")),
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn&limit=500&continue=a%20b"
        );
        let whole = Source { page: 0, ..source };
        assert_eq!(whole.list_path(None), "/api/v1/pods?fieldSelector=spec.nodeName%3Dn");
    }
}
