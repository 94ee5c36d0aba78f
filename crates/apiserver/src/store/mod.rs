//! The versioned store: every object of the cluster, one global revision, and the recent past.
//!
//! Synchronous and ordered: a commit takes the lock, raises the revision, writes the object, remembers the
//! change, and hands it to every watcher before the lock is released. So watchers see changes in commit
//! order, and a list and a watch that starts at its revision have neither gap nor overlap.
//!
//! At rest an object is its JSON text, shared by everybody who reads it, plus the few facts that
//! selectors ask for. Nothing here knows what a pod is.

mod history;
mod watch;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;

use history::History;
pub use history::{Change, ChangeKind};
use watch::Watchers;
pub use watch::{WatchEvent, WatchFilter, Watching};

/// How many past changes are kept per resource before a watcher that lags must list again.
pub const HISTORY_LIMIT: usize = 10_000;

/// A key within a resource: `namespace/name`, or `name` for what has no namespace. The order of keys is
/// the order of lists, the same as in etcd.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self(name.into()) } else { Self(format!("{namespace}/{name}").into()) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }
}

/// What selectors and the server itself ask about an object without parsing it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Meta {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the selectable fields, in the order of the stored kind's table.
    pub fields: Box<[Box<str>]>,
}

impl Meta {
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, v)| &**v)
    }
}

/// One version of an object.
#[derive(Debug, Clone)]
pub struct Object {
    pub revision: u64,
    /// The JSON text, with this revision as `metadata.resourceVersion`.
    pub json: Bytes,
    pub meta: Arc<Meta>,
}

impl Object {
    /// The object as a value. The store only holds what it serialised itself, so this does not fail; a
    /// damaged text would read as null and be refused by whoever looks at it.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or(Value::Null)
    }
}

/// What must be true of the stored object for a commit to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    /// Exactly this revision is stored.
    Revision(u64),
}

/// A commit whose expectation did not hold, with what is stored instead.
#[derive(Debug, Clone)]
pub struct Stale {
    pub current: Option<Object>,
}

/// The revision asked for is no longer (or not yet) known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// Older than the remembered past, which begins after `oldest`.
    Compacted { oldest: u64 },
    /// Newer than anything committed.
    Future { current: u64 },
}

/// Objects read at one revision.
#[derive(Debug)]
pub struct Listing {
    pub objects: Vec<Object>,
    pub revision: u64,
    /// The key to continue from, when a limit cut the listing, and how many objects are left, if that was asked for.
    pub more: Option<(Key, Option<usize>)>,
}

type Observer = Box<dyn FnMut(&str, &Change) + Send>;

#[derive(Default)]
struct Inner {
    revision: u64,
    tables: BTreeMap<Arc<str>, Table>,
    observers: Vec<Observer>,
}

#[derive(Default)]
struct Table {
    objects: BTreeMap<Key, Object>,
    history: History,
    watchers: Watchers,
}

/// The store. Share it by `Arc`.
#[derive(Default)]
pub struct Store {
    inner: Mutex<Inner>,
}

impl Store {
    pub fn new() -> Self {
        Self::default()
    }

    /// A panic of another thread while it held the lock cannot leave a half-done commit behind: commits
    /// change the maps only after everything that can fail was done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `observer` for every commit, in order, under the lock: invariants are checked here, where
    /// nothing can be missed.
    pub fn observe(&self, observer: impl FnMut(&str, &Change) + Send + 'static) {
        self.lock().observers.push(Box::new(observer));
    }

    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    pub fn get(&self, resource: &str, key: &Key) -> Option<Object> {
        self.lock().tables.get(resource)?.objects.get(key).cloned()
    }

    /// How many objects a resource has.
    pub fn count(&self, resource: &str) -> usize {
        self.lock().tables.get(resource).map_or(0, |t| t.objects.len())
    }

    /// Writes an object. `value` gets its resource version here; its revision is in the answer.
    pub fn put(
        &self,
        resource: &Arc<str>,
        key: &Key,
        expect: Expect,
        mut value: Value,
        meta: Meta,
    ) -> Result<Object, Stale> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let table = inner.tables.entry(resource.clone()).or_default();
        let previous = expected(table.objects.get(key), expect)?;
        let revision = inner.revision + 1;
        let json = text_at(&mut value, revision);
        let object = Object { revision, json, meta: Arc::new(meta) };
        inner.revision = revision;
        table.objects.insert(key.clone(), object.clone());
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        table.record(
            &mut inner.observers,
            resource,
            Change { kind, key: key.clone(), object: object.clone(), previous },
        );
        Ok(object)
    }

    /// Removes an object; the answer is its last state at the revision of the removal.
    pub fn remove(&self, resource: &Arc<str>, key: &Key, expect: Expect) -> Result<Object, Stale> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let table = inner.tables.entry(resource.clone()).or_default();
        let Some(previous) = expected(table.objects.get(key), expect)? else {
            return Err(Stale { current: None });
        };
        let revision = inner.revision + 1;
        let json = text_at(&mut previous.value(), revision);
        let object = Object { revision, json, meta: previous.meta.clone() };
        inner.revision = revision;
        table.objects.remove(key);
        table.record(
            &mut inner.observers,
            resource,
            Change {
                kind: ChangeKind::Deleted,
                key: key.clone(),
                object: object.clone(),
                previous: Some(previous),
            },
        );
        Ok(object)
    }

    /// Everything there is of a resource in a namespace (`""`: in all), now.
    pub fn all(&self, resource: &str, namespace: &str) -> Vec<Object> {
        let page = Page { namespace, ..Page::default() };
        self.list(resource, &page, |_| true).map(|listing| listing.objects).unwrap_or_default()
    }

    /// Lists a part of a resource; `keep` filters.
    pub fn list(
        &self,
        resource: &str,
        page: &Page<'_>,
        mut keep: impl FnMut(&Meta) -> bool,
    ) -> Result<Listing, Unavailable> {
        let Page { namespace, at, from, limit, counted } = *page;
        let inner = self.lock();
        let revision = at.unwrap_or(inner.revision);
        if revision > inner.revision {
            return Err(Unavailable::Future { current: inner.revision });
        }
        let empty = Table::default();
        let table = inner.tables.get(resource).unwrap_or(&empty);
        let objects = match at {
            None => Cow::Borrowed(&table.objects),
            Some(revision) => table.history.state_at(&table.objects, revision)?,
        };
        let mut listing = Listing { objects: Vec::new(), revision, more: None };
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let start = from.cloned().unwrap_or_else(|| Key::from_text(&prefix));
        let mut rest = objects.range(start..).take_while(|(key, _)| key.as_str().starts_with(&prefix));
        while let Some((key, object)) = rest.next() {
            if !keep(&object.meta) {
                continue;
            }
            if limit.is_some_and(|limit| listing.objects.len() == limit) {
                listing.more = Some((key.clone(), counted.then(|| 1 + rest.count())));
                break;
            }
            listing.objects.push(object.clone());
        }
        Ok(listing)
    }

    /// Starts a watch. See [`WatchFrom`] for where it begins.
    pub fn watch(
        &self,
        resource: &Arc<str>,
        filter: WatchFilter,
        from: WatchFrom,
    ) -> Result<Watching, Unavailable> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let revision = inner.revision;
        let table = inner.tables.entry(resource.clone()).or_default();
        match from {
            WatchFrom::Now { initial_events } => {
                let initial: Vec<_> = if initial_events {
                    table.objects.values().filter(|o| filter.matches(&o.meta)).cloned().collect()
                } else {
                    Vec::new()
                };
                Ok(table.watchers.add(filter, revision, initial, &[]))
            }
            WatchFrom::After(after) => {
                let missed = table.history.since(after)?;
                Ok(table.watchers.add(filter, after, Vec::new(), &missed))
            }
        }
    }

    /// Puts a bookmark into a watch: everything up to the bookmark's revision was sent before it.
    pub fn bookmark(&self, resource: &str, watching: &Watching) {
        let mut inner = self.lock();
        let revision = inner.revision;
        if let Some(table) = inner.tables.get_mut(resource) {
            table.watchers.bookmark(watching.id(), revision);
        }
    }

    /// Forgets the past up to a revision, as etcd's compaction does.
    pub fn compact(&self, revision: u64) {
        for table in self.lock().tables.values_mut() {
            table.history.compact(revision);
        }
    }

    /// Ends every watch of a resource (a custom resource definition was removed or changed).
    pub fn end_watches(&self, resource: &str) {
        if let Some(table) = self.lock().tables.get_mut(resource) {
            table.watchers = Watchers::default();
        }
    }
}

/// Which part of a resource is listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page<'a> {
    /// Empty for all.
    pub namespace: &'a str,
    /// The revision that is shown; `None` for now.
    pub at: Option<u64>,
    /// The first key that is looked at.
    pub from: Option<&'a Key>,
    /// How many objects are returned at most, of those that are kept.
    pub limit: Option<usize>,
    /// Say how many are left. Whether those are kept is not looked at.
    pub counted: bool,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFrom {
    /// With what comes from now on, and before it, if asked, with everything that is there.
    Now { initial_events: bool },
    /// With the first change after a revision.
    After(u64),
}

impl Table {
    fn record(&mut self, observers: &mut [Observer], resource: &str, change: Change) {
        for observer in observers {
            observer(resource, &change);
        }
        self.watchers.dispatch(&change);
        self.history.push(change, HISTORY_LIMIT);
    }
}

fn expected(current: Option<&Object>, expect: Expect) -> Result<Option<Object>, Stale> {
    match (current, expect) {
        (None, Expect::Absent) => Ok(None),
        (Some(object), Expect::Revision(revision)) if object.revision == revision => Ok(Some(object.clone())),
        (current, _) => Err(Stale { current: current.cloned() }),
    }
}

/// The text of an object at a revision.
fn text_at(value: &mut Value, revision: u64) -> Bytes {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
    }
    text_of(value)
}

/// The text of an object: what it is and its metadata first, so that a reader can tell by the beginning.
pub fn text_of(value: &Value) -> Bytes {
    const FIRST: [&str; 3] = ["kind", "apiVersion", "metadata"];
    let Value::Object(fields) = value else {
        return serde_json::to_vec(value).unwrap_or_default().into();
    };
    let first = FIRST.iter().filter_map(|key| fields.get_key_value(*key));
    let rest = fields.iter().filter(|(key, _)| !FIRST.contains(&key.as_str()));
    let mut text = Vec::with_capacity(512);
    text.push(b'{');
    for (key, value) in first.chain(rest) {
        if text.len() > 1 {
            text.push(b',');
        }
        // A `Value` has string keys only, so writing it out cannot fail.
        let _ = serde_json::to_writer(&mut text, key);
        text.push(b':');
        let _ = serde_json::to_writer(&mut text, value);
    }
    text.push(b'}');
    text.into()
}

#[cfg(test)]
mod tests;
