//! The API server as a value: the store, the kinds it serves, its clock, and who may use it.

pub mod backend;
mod bootstrap;
pub mod credentials;
pub(crate) mod documents;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use evac_clock::Clock;
use futures::future::BoxFuture;
use http::Request;
use jiff::Timestamp;
use serde_json::Value;

use self::backend::Backend;
use self::credentials::Credentials;
use self::documents::Documents;
use crate::ids::Ids;
use crate::kinds::{Kind, Kinds};
use crate::reply::Reply;
use crate::status::{About, ApiError};
use crate::store::{Expect, Key, Meta, Object, Stale, Store};
use crate::webhooks::Dispatcher;

/// What distinguishes one server from another.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names and uids are made from this.
    pub seed: u64,
    /// The largest request body that is read; kube-apiserver's limit.
    pub body_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 0, body_limit: 3 * 1024 * 1024 }
    }
}

/// The server. Share it by `Arc`; [`crate::Service`] makes it answer requests.
pub struct Api {
    pub store: Store,
    pub clock: Clock,
    pub settings: Settings,
    pub(crate) ids: Ids,
    served: RwLock<Arc<Served>>,
    pub(crate) webhooks: Dispatcher,
    pub(crate) credentials: Credentials,
    /// Other servers that answer for whole groups, by group and version.
    aggregated: RwLock<BTreeMap<(String, String), Aggregated>>,
    /// Who answers for pods with a label, by its key and value.
    backends: RwLock<Vec<(String, String, Backend)>>,
}

/// What can be asked for, and the documents that clients read about it. A change makes a new one of these,
/// so a document built while it happened is kept with the old one and never read again.
pub(crate) struct Served {
    pub kinds: Arc<Kinds>,
    pub announced: Vec<crate::aggregated::Announced>,
    pub documents: Documents,
}

impl Served {
    fn new(kinds: Kinds, announced: Vec<crate::aggregated::Announced>) -> Self {
        Self { kinds: Arc::new(kinds), announced, documents: Documents::default() }
    }
}

/// Answers the requests of a group that this server does not store. The caller's [`Identity`] is among
/// the request's extensions.
pub type Aggregated = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Reply> + Send + Sync>;

impl Api {
    /// An empty cluster: the system namespaces, roles and priority classes, and nothing that runs.
    pub fn new(clock: Clock, settings: Settings) -> Arc<Self> {
        let api = Arc::new(Self {
            store: Store::new(),
            clock,
            ids: Ids::seeded(settings.seed),
            settings,
            served: RwLock::new(Arc::new(Served::new(Kinds::builtin(), Vec::new()))),
            webhooks: Dispatcher::default(),
            credentials: Credentials::default(),
            aggregated: RwLock::default(),
            backends: RwLock::default(),
        });
        bootstrap::fill(&api);
        api
    }

    /// The time of day. Everything the server does with it is written for others to read, or compared with what they wrote.
    pub fn now(&self) -> Timestamp {
        self.clock.on_calendar(self.clock.now())
    }

    /// The kinds served right now. Custom ones come and go.
    pub fn kinds(&self) -> Arc<Kinds> {
        self.served().kinds.clone()
    }

    /// What is served right now, with the documents that say so.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn change_kinds(&self, change: impl FnOnce(&mut Kinds)) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let mut kinds = (*served.kinds).clone();
        change(&mut kinds);
        *served = Arc::new(Served::new(kinds, served.announced.clone()));
    }

    /// Lets a function of this process answer for a group and version, as an APIService would.
    pub fn aggregate(&self, group: &str, version: &str, handler: Aggregated) {
        let key = (group.to_owned(), version.to_owned());
        self.aggregated.write().unwrap_or_else(PoisonError::into_inner).insert(key, handler);
    }

    /// Lists the resources of an aggregated group version in discovery.
    pub fn announce(&self, group: &str, version: &str, resources: Value) {
        let one =
            crate::aggregated::Announced { group: group.to_owned(), version: version.to_owned(), resources };
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let mut announced = served.announced.clone();
        announced.push(one);
        *served =
            Arc::new(Served { kinds: served.kinds.clone(), announced, documents: Documents::default() });
    }

    pub(crate) fn aggregated(&self, group: &str, version: &str) -> Option<Aggregated> {
        let key = (group.to_owned(), version.to_owned());
        self.aggregated.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Lets a function of this process answer what pods with a label are asked through the server.
    pub fn answer_for_pods(&self, label: &str, value: &str, backend: Backend) {
        let one = (label.to_owned(), value.to_owned(), backend);
        self.backends.write().unwrap_or_else(PoisonError::into_inner).push(one);
    }

    /// Who answers for a pod with these labels; the last to offer it.
    pub(crate) fn backend(&self, label: impl Fn(&str) -> Option<String>) -> Option<Backend> {
        let backends = self.backends.read().unwrap_or_else(PoisonError::into_inner);
        let found = backends.iter().rev().find(|(key, value, _)| label(key).as_ref() == Some(value));
        found.map(|(_, _, backend)| backend.clone())
    }

    /// In-process answers to admission webhooks that name a service.
    pub fn webhooks(&self) -> &Dispatcher {
        &self.webhooks
    }

    /// Stores a new object as it is, past admission, defaults and validation: for what is known to be right, such as a whole cluster made at once.
    pub fn store_as_is(&self, kind: &Kind, object: Value) -> Result<Object, Stale> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = Key::new(text("namespace"), text("name"));
        let meta = meta_of(kind, &object);
        self.store.put(&storage_of(kind), &key, Expect::Absent, object, meta)
    }

    /// Reads a stored object of a built-in kind by its storage name.
    pub(crate) fn read(&self, resource: &str, namespace: &str, name: &str) -> Option<Object> {
        self.store.get(resource, &Key::new(namespace, name))
    }

    /// Everything stored of a resource in a namespace, now.
    pub(crate) fn read_all(&self, resource: &str, namespace: &str) -> Vec<Object> {
        self.store.all(resource, namespace)
    }
}

/// The name under which the objects of a kind are stored: `pods`, `deployments.apps`.
pub(crate) fn storage_of(kind: &Kind) -> Arc<str> {
    let (group, plural) = &kind.storage;
    if group.is_empty() { (**plural).into() } else { format!("{plural}.{group}").into() }
}

/// The facts about an object that selectors ask for.
pub(crate) fn meta_of(kind: &Kind, object: &Value) -> Meta {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().into();
    let labels = metadata["labels"]
        .as_object()
        .map(|labels| {
            labels.iter().map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into())).collect()
        })
        .unwrap_or_default();
    Meta {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        labels,
        fields: field_values(kind, object),
    }
}

/// The selectable fields in the order of the kind's table, custom ones last.
fn field_values(kind: &Kind, object: &Value) -> Box<[Box<str>]> {
    selectable_labels(kind)
        .map(|label| kind.field(object, label).map(|value| (*value).into()).unwrap_or_default())
        .collect()
}

/// The labels a field selector may use, in the order in which [`Meta::fields`] holds their values.
pub(crate) fn selectable_labels(kind: &Kind) -> impl Iterator<Item = &str> {
    let custom = kind.custom.iter().flat_map(|custom| custom.selectable.iter().map(|f| f.label.as_ref()));
    kind.strategy.fields.iter().map(|f| f.label.as_ref()).chain(custom)
}

/// How errors speak of one object of a kind.
pub(crate) fn about<'a>(kind: &'a Kind, name: &'a str) -> About<'a> {
    About { group: &kind.group, kind: &kind.plural, name }
}

/// How validation errors speak of it: by kind, not by resource.
pub(crate) fn about_kind<'a>(kind: &'a Kind, name: &'a str) -> About<'a> {
    // Events are checked as what they are stored as, whichever group they came through.
    let group = if kind.group == "events.k8s.io" { "" } else { &kind.group };
    About { group, kind: &kind.kind, name }
}

/// The selectable facts of an object in its stored form. Two kinds may share a storage; the facts follow
/// the kind that it is named after.
pub(crate) fn stored_meta(api: &Api, kind: &Kind, stored: &Value) -> Meta {
    if kind.to_stored().is_none() {
        return meta_of(kind, stored);
    }
    let kinds = api.kinds();
    let (group, plural) = &kind.storage;
    let owner = kinds.iter().find(|k| k.group == *group && k.plural == *plural);
    meta_of(owner.map_or(kind, |owner| owner), stored)
}

pub(crate) fn not_found(kind: &Kind, name: &str) -> ApiError {
    ApiError::not_found(about(kind, name))
}
