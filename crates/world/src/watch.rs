//! List, then watch, for ever. No jitter and no hidden state: the same server gives the same sequence.

use std::sync::Arc;
use std::time::Duration;

use evac_clock::Clock;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{Request, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::WatchEvent;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;

use crate::discovery::Discovery;
use crate::effects::Api;
use crate::kinds::{Kind, Object, Resource, Tracked};
use crate::objects::{Key, uid};

/// How long to wait after a failure before asking again.
const PAUSE: Duration = Duration::from_secs(1);
/// A resource that is not served may appear later.
const ABSENT: Duration = Duration::from_secs(30);
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Only the metadata of an object of any kind.
#[derive(Debug, Clone, Deserialize)]
pub struct AnyObject {
    #[serde(default)]
    pub metadata: ObjectMeta,
}

/// News from one watch.
#[derive(Debug)]
pub enum News {
    Listed(Kind, Vec<Object>, u64),
    Put(Object),
    Deleted(Kind, Key, String),
    MetaListed(Arc<Resource>, Vec<ObjectMeta>),
    MetaPut(Arc<Resource>, Box<ObjectMeta>),
    MetaDeleted(Arc<Resource>, String),
    Discovered(Discovery),
}

/// How one watch reports what it sees.
trait Report: Send + Sync + 'static {
    type Item: DeserializeOwned + Clone + Send + 'static;
    fn listed(&self, items: Vec<Self::Item>, at: u64) -> News;
    fn put(&self, item: Self::Item) -> News;
    fn deleted(&self, item: Self::Item) -> News;
    fn meta(item: &Self::Item) -> &ObjectMeta;
    fn metadata_only(&self) -> bool;
}

struct Typed<K>(std::marker::PhantomData<fn() -> K>);

impl<K: Tracked> Report for Typed<K> {
    type Item = K;
    fn listed(&self, items: Vec<K>, at: u64) -> News {
        News::Listed(K::KIND, items.into_iter().map(|o| K::wrap(Arc::new(o))).collect(), at)
    }
    fn put(&self, item: K) -> News {
        News::Put(K::wrap(Arc::new(item)))
    }
    fn deleted(&self, item: K) -> News {
        News::Deleted(K::KIND, Key::of(item.meta()), uid(item.meta()).to_owned())
    }
    fn meta(item: &K) -> &ObjectMeta {
        item.meta()
    }
    fn metadata_only(&self) -> bool {
        false
    }
}

struct Untyped(Arc<Resource>);

impl Report for Untyped {
    type Item = AnyObject;
    fn listed(&self, items: Vec<AnyObject>, _at: u64) -> News {
        News::MetaListed(self.0.clone(), items.into_iter().map(|o| o.metadata).collect())
    }
    fn put(&self, item: AnyObject) -> News {
        News::MetaPut(self.0.clone(), Box::new(item.metadata))
    }
    fn deleted(&self, item: AnyObject) -> News {
        News::MetaDeleted(self.0.clone(), uid(&item.metadata).to_owned())
    }
    fn meta(item: &AnyObject) -> &ObjectMeta {
        &item.metadata
    }
    fn metadata_only(&self) -> bool {
        true
    }
}

#[derive(Deserialize)]
struct List<T> {
    metadata: ListMeta,
    /// `null` when a server has nothing to list.
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
}

/// Watches a tracked kind until the receiver is gone.
pub async fn typed<K: Tracked>(api: Api, clock: Clock, namespace: &'static str, to: UnboundedSender<News>) {
    let path = K::KIND.resource().collection(namespace);
    follow(Typed::<K>(std::marker::PhantomData), path, api, clock, to).await;
}

/// Watches the metadata of any resource.
pub async fn metadata(api: Api, clock: Clock, resource: Arc<Resource>, to: UnboundedSender<News>) {
    let path = resource.collection("");
    follow(Untyped(resource), path, api, clock, to).await;
}

async fn follow<R: Report>(report: R, path: String, api: Api, clock: Clock, to: UnboundedSender<News>) {
    let mut absent = false;
    loop {
        if to.is_closed() {
            return;
        }
        let mut at = match list(&report, &path, &api).await {
            Ok(list) => {
                absent = false;
                let at = list.metadata.resource_version;
                if to.send(report.listed(list.items.unwrap_or_default(), at.parse().unwrap_or(0))).is_err() {
                    return;
                }
                at
            }
            Err(error) => {
                let code = match &error {
                    kube::Error::Api(status) => status.code,
                    _ => 0,
                };
                let unserved = matches!(code, 404 | 405 | 501);
                // Something that is not served is empty: the others need not wait for it.
                if unserved && !absent && to.send(report.listed(Vec::new(), 0)).is_err() {
                    return;
                }
                absent |= unserved;
                tracing::debug!(path, %error, "list failed");
                clock.sleep(if unserved { ABSENT } else { PAUSE }).await;
                continue;
            }
        };
        while let Next::Continue(pause) = watch(&report, &path, &api, &mut at, &to).await {
            if to.is_closed() {
                return;
            }
            if pause {
                clock.sleep(PAUSE).await;
            }
        }
    }
}

async fn list<R: Report>(report: &R, path: &str, api: &Api) -> Result<List<R::Item>, kube::Error> {
    let accept = if report.metadata_only() { METADATA_LIST } else { "application/json" };
    let request =
        Request::get(path).header(header::ACCEPT, accept).body(Vec::new()).map_err(kube::Error::HttpError)?;
    api.client().request(request).await
}

enum Next {
    /// Watch again from where we are; `true`: after a pause.
    Continue(bool),
    Relist,
}

type Events<T> = BoxStream<'static, Result<WatchEvent<T>, kube::Error>>;

async fn events<T>(api: &Api, request: Request<Vec<u8>>) -> Result<Events<T>, kube::Error>
where
    T: DeserializeOwned + Clone + Send + 'static,
{
    let stream = api.client().request_events::<T>(request).await?;
    Ok(stream.boxed())
}

async fn watch<R: Report>(
    report: &R,
    path: &str,
    api: &Api,
    at: &mut String,
    to: &UnboundedSender<News>,
) -> Next {
    let accept = if report.metadata_only() { METADATA } else { "application/json" };
    let uri = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion={at}");
    let Ok(request) = Request::get(uri).header(header::ACCEPT, accept).body(Vec::new()) else {
        return Next::Relist;
    };
    let stream = match events::<R::Item>(api, request).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 410) => return Next::Relist,
        Err(error) => {
            tracing::debug!(path, %error, "watch failed");
            return Next::Continue(true);
        }
    };
    let mut stream = stream;
    let mut seen = false;
    while let Some(event) = stream.next().await {
        let news = match event {
            Ok(WatchEvent::Added(item) | WatchEvent::Modified(item)) => {
                advance(at, R::meta(&item));
                report.put(item)
            }
            Ok(WatchEvent::Deleted(item)) => {
                advance(at, R::meta(&item));
                report.deleted(item)
            }
            Ok(WatchEvent::Bookmark(mark)) => {
                at.clone_from(&mark.metadata.resource_version);
                continue;
            }
            Ok(WatchEvent::Error(status)) => {
                tracing::debug!(path, code = status.code, "watch ended by the server");
                return if status.code == 410 { Next::Relist } else { Next::Continue(true) };
            }
            Err(error) => {
                tracing::debug!(path, %error, "watch broke");
                return Next::Continue(true);
            }
        };
        seen = true;
        if to.send(news).is_err() {
            return Next::Continue(false);
        }
    }
    // An empty answer that ends at once would spin.
    Next::Continue(!seen)
}

fn advance(at: &mut String, meta: &ObjectMeta) {
    if let Some(version) = &meta.resource_version {
        at.clone_from(version);
    }
}
