//! Watchers of one resource and what each of them is told.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Change, ChangeKind, Meta, Object};

/// A watcher that does not read is cut off after this many events; it will list again, as it must after
/// any lost connection.
const QUEUE_LIMIT: usize = 100_000;

/// What a watcher is told.
#[derive(Debug, Clone)]
pub enum WatchEvent {
    Changed {
        kind: ChangeKind,
        object: Object,
        /// The revision of the commit. It differs from the object's own when the object left the
        /// selection: then the last selected state is sent at the revision of the change.
        revision: u64,
    },
    /// Everything up to here was sent.
    Bookmark { revision: u64 },
    /// The end of the initial objects of a streaming list.
    InitialEnd { revision: u64 },
}

/// Which objects a watch is about.
#[derive(Clone)]
pub struct WatchFilter {
    /// `""` for all namespaces.
    pub namespace: String,
    pub selects: Arc<dyn Fn(&Meta) -> bool + Send + Sync>,
    /// Tell when the initial objects are over.
    pub initial_end: bool,
}

impl WatchFilter {
    pub fn everything() -> Self {
        Self { namespace: String::new(), selects: Arc::new(|_| true), initial_end: false }
    }

    pub(super) fn matches(&self, meta: &Meta) -> bool {
        (self.namespace.is_empty() || *self.namespace == *meta.namespace) && (self.selects)(meta)
    }
}

/// A running watch. It ends when it is dropped, or when the sender gives up on it.
#[derive(Debug)]
pub struct Watching {
    id: u64,
    events: mpsc::Receiver<WatchEvent>,
}

impl Watching {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The next event; `None` when the watch was ended by the server.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.events.recv().await
    }

    /// The next event if one is there already.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        self.events.try_recv().ok()
    }

    /// Polls for the next event.
    pub fn poll_next(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<WatchEvent>> {
        self.events.poll_recv(context)
    }
}

struct Watcher {
    id: u64,
    filter: WatchFilter,
    /// Only what comes after this revision is told.
    after: u64,
    queue: mpsc::Sender<WatchEvent>,
}

#[derive(Default)]
pub(super) struct Watchers {
    next_id: u64,
    list: Vec<Watcher>,
}

impl Watchers {
    /// Adds a watcher and tells it what it missed; `initial` objects come first.
    pub(super) fn add(
        &mut self,
        filter: WatchFilter,
        after: u64,
        initial: Vec<Object>,
        missed: &[Change],
    ) -> Watching {
        let (queue, events) = mpsc::channel(QUEUE_LIMIT.max(initial.len() + missed.len() + 2));
        let id = self.next_id;
        self.next_id += 1;
        let mut watcher = Watcher { id, filter, after, queue };
        for object in initial {
            let revision = object.revision;
            watcher.tell(WatchEvent::Changed { kind: ChangeKind::Added, object, revision });
        }
        if watcher.filter.initial_end {
            watcher.tell(WatchEvent::InitialEnd { revision: after });
        }
        for change in missed {
            watcher.see(change);
        }
        self.list.push(watcher);
        Watching { id, events }
    }

    pub(super) fn dispatch(&mut self, change: &Change) {
        self.list.retain_mut(|watcher| watcher.see(change));
    }

    pub(super) fn bookmark(&mut self, id: u64, revision: u64) {
        self.list.retain_mut(|w| w.id != id || w.tell(WatchEvent::Bookmark { revision }));
    }
}

impl Watcher {
    /// Tells a change if it concerns this watcher; false when the watcher is gone or too slow.
    fn see(&mut self, change: &Change) -> bool {
        if change.object.revision <= self.after {
            return !self.queue.is_closed();
        }
        let revision = change.object.revision;
        let now = change.kind != ChangeKind::Deleted && self.filter.matches(&change.object.meta);
        let before = change.previous.as_ref().filter(|p| self.filter.matches(&p.meta));
        let (kind, object) = match (before, now) {
            (None, false) => return !self.queue.is_closed(),
            (None, true) => (ChangeKind::Added, &change.object),
            (Some(_), true) => (ChangeKind::Modified, &change.object),
            (Some(_), false) if change.kind == ChangeKind::Deleted => (ChangeKind::Deleted, &change.object),
            (Some(last_selected), false) => (ChangeKind::Deleted, last_selected),
        };
        self.tell(WatchEvent::Changed { kind, object: object.clone(), revision })
    }

    fn tell(&mut self, event: WatchEvent) -> bool {
        self.queue.try_send(event).is_ok()
    }
}
