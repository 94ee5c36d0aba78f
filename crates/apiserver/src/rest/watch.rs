//! Watches: a stream of events as lines of JSON, with bookmarks, until the time is over.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream;
use serde_json::{Value, json};

use super::call::Call;
use super::negotiate::Form;
use super::selection::Selection;
use super::show::Shower;
use crate::reply::{Body, Reply};
use crate::server::Api;
use crate::status::ApiError;
use crate::store::{ChangeKind, Unavailable, WatchEvent, WatchFilter, WatchFrom, Watching};

/// How long a watch lasts when the client names no time; kube-apiserver picks 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Events that are ready together are sent together, up to about this size.
const CHUNK: usize = 64 * 1024;

pub fn watch(api: &Arc<Api>, call: &Call) -> Result<Reply, ApiError> {
    let query = &call.query;
    query.check_read(true)?;
    let streaming_list = query.send_initial_events.unwrap_or(false) && query.allow_bookmarks;
    let from = match (query.resource_version.as_str(), query.send_initial_events) {
        ("" | "0", None) | (_, Some(true)) => WatchFrom::Now { initial_events: true },
        ("" | "0", Some(false)) => WatchFrom::Now { initial_events: false },
        (given, _) => WatchFrom::After(revision(given)?),
    };
    if let (Some(true), given) = (query.send_initial_events, query.resource_version.as_str())
        && !given.is_empty()
    {
        super::read::must_have_reached(api, revision(given)?)?;
    }
    let selection = Selection::of(call, &api.kinds())?;
    let name = call.path.name.clone();
    let filter = WatchFilter {
        namespace: call.path.namespace.clone(),
        selects: Arc::new(move |meta| (name.is_empty() || *meta.name == *name) && selection.selects(meta)),
        initial_end: streaming_list,
    };
    let storage = call.storage();
    let watching = match api.store.watch(&storage, filter, from) {
        Ok(watching) => watching,
        // A watch that begins in the lost past is answered with an event, as the connection is a watch.
        Err(Unavailable::Compacted { oldest }) => {
            let error = too_old(&query.resource_version, oldest);
            let line = event_line("ERROR", &serde_json::to_vec(&error.body()).unwrap_or_default());
            return Ok(stream_reply(stream::iter([line])));
        }
        Err(Unavailable::Future { current }) => {
            return Err(super::read::too_large(revision(&query.resource_version)?, current));
        }
    };
    let timeout = query.timeout_seconds.filter(|s| *s > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let state = Stream {
        api: api.clone(),
        storage,
        watching,
        shower: Shower::new(call),
        bookmarks: query.allow_bookmarks,
        ends: Box::pin(tokio::time::sleep(api.clock.wall(timeout))),
        next_bookmark: Box::pin(tokio::time::sleep(api.clock.wall(BOOKMARK_EVERY))),
    };
    Ok(stream_reply(stream::unfold(state, Stream::next)))
}

/// Unlike a list, a watch does not translate the complaint about a version.
fn revision(given: &str) -> Result<u64, ApiError> {
    super::read::parsed(given).map_err(ApiError::unexplained)
}

pub fn too_old(asked: &str, oldest: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
}

fn stream_reply(lines: impl futures::Stream<Item = Bytes> + Send + 'static) -> Reply {
    Reply { body: Body::Stream(Box::pin(lines)), ..Reply::text(200, Bytes::new()) }
}

struct Stream {
    api: Arc<Api>,
    storage: Arc<str>,
    watching: Watching,
    shower: Shower,
    bookmarks: bool,
    ends: std::pin::Pin<Box<tokio::time::Sleep>>,
    next_bookmark: std::pin::Pin<Box<tokio::time::Sleep>>,
}

impl Stream {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            tokio::select! {
                biased;
                event = self.watching.next() => {
                    let mut chunk = BytesMut::new();
                    self.write(&event?, &mut chunk);
                    while chunk.len() < CHUNK && let Some(event) = self.watching.try_next() {
                        self.write(&event, &mut chunk);
                    }
                    return Some((chunk.freeze(), self));
                }
                () = &mut self.ends => return None,
                () = &mut self.next_bookmark, if self.bookmarks => {
                    self.api.store.bookmark(&self.storage, &self.watching);
                    let again = tokio::time::Instant::now() + self.api.clock.wall(BOOKMARK_EVERY);
                    self.next_bookmark.as_mut().reset(again);
                }
            }
        }
    }

    fn write(&mut self, event: &WatchEvent, chunk: &mut BytesMut) {
        match event {
            WatchEvent::Changed { kind, object, revision } => {
                let word = match kind {
                    ChangeKind::Added => "ADDED",
                    ChangeKind::Modified => "MODIFIED",
                    ChangeKind::Deleted => "DELETED",
                };
                let shown = self.shower.event_object(object, *revision, self.api.now());
                chunk.extend_from_slice(&event_line(word, &shown));
            }
            WatchEvent::Bookmark { revision } => self.write_bookmark(*revision, false, chunk),
            WatchEvent::InitialEnd { revision } => self.write_bookmark(*revision, true, chunk),
        }
    }

    fn write_bookmark(&mut self, revision: u64, initial_end: bool, chunk: &mut BytesMut) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let bookmark = match self.shower.form() {
            Form::Table => self.shower.table_bookmark(revision, &metadata, self.api.now()),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            }),
            _ => self.shower.hollow(&metadata),
        };
        chunk.extend_from_slice(&event_line("BOOKMARK", &text(&bookmark)));
    }
}

fn text(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn event_line(word: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(word.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.freeze()
}
