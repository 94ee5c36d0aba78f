//! Webhooks: which ones are registered, and how they are called. When they are asked, and what their answers mean, is up to
//! [`crate::admission`].
//!
//! A webhook is reached over HTTPS at its URL, or, when it names a service, in process: the sandbox has no
//! service network, so programs that run inside it register a handler for their service.

mod tls;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::cel::conditions::Conditions;
use crate::store::Store;

const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";

/// Answers an `AdmissionReview` in process.
pub type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// Knows the registered webhooks and the in-process handlers.
#[derive(Default)]
pub struct Dispatcher {
    /// Handlers by `namespace/service/path`.
    handlers: RwLock<BTreeMap<String, Handler>>,
    cache: Mutex<Option<Arc<Hooks>>>,
    /// Set by the store when a configuration changes.
    stale: Arc<AtomicBool>,
}

/// The registered webhooks, in the order in which they are asked.
#[derive(Default)]
pub(crate) struct Hooks {
    pub mutating: Vec<Hook>,
    pub validating: Vec<Hook>,
}

/// One webhook of a configuration.
pub(crate) struct Hook {
    pub config: Value,
    pub conditions: Conditions,
}

impl Dispatcher {
    /// Watches the store for changed configurations.
    pub fn follow(&self, store: &Store) {
        let stale = self.stale.clone();
        store.observe(move |resource, _| {
            if resource == VALIDATING || resource == MUTATING {
                stale.store(true, Ordering::Release);
            }
        });
    }

    /// Answers calls to a service with a function of this process.
    pub fn register(&self, namespace: &str, service: &str, path: &str, handler: Handler) {
        let key = handler_key(namespace, service, path);
        self.handlers.write().unwrap_or_else(PoisonError::into_inner).insert(key, handler);
    }

    pub fn unregister(&self, namespace: &str, service: &str, path: &str) {
        let key = handler_key(namespace, service, path);
        self.handlers.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// The webhooks that are registered now.
    pub(crate) fn hooks(&self, store: &Store) -> Arc<Hooks> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.stale.swap(false, Ordering::AcqRel)
            && let Some(hooks) = &*cache
        {
            return hooks.clone();
        }
        let read = |resource: &str| {
            store
                .all(resource, "")
                .iter()
                .flat_map(|object| object.value()["webhooks"].as_array().cloned().unwrap_or_default())
                .map(|config| Hook { conditions: Conditions::of(&config), config })
                .collect()
        };
        let hooks = Arc::new(Hooks { mutating: read(MUTATING), validating: read(VALIDATING) });
        *cache = Some(hooks.clone());
        hooks
    }

    /// Asks one webhook, and waits no longer than its configuration says.
    pub(crate) async fn call(&self, hook: &Value, review: Value) -> Result<Value, String> {
        let config = &hook["clientConfig"];
        let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
        let answer: BoxFuture<'_, Result<Value, String>> = if let Some(url) = config["url"].as_str() {
            Box::pin(tls::post(url, config["caBundle"].as_str().unwrap_or_default(), review))
        } else {
            let service = &config["service"];
            let text = |key: &str| service[key].as_str().unwrap_or_default();
            let key = handler_key(text("namespace"), text("name"), text("path"));
            let handler = self.handlers.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
            match handler {
                Some(handler) => handler(review),
                None => {
                    return Err(format!(
                        "service \"{}/{}\" is not served here",
                        text("namespace"),
                        text("name")
                    ));
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(seconds), answer).await {
            Ok(answer) => answer,
            Err(_) => Err("context deadline exceeded".into()),
        }
    }
}

fn handler_key(namespace: &str, service: &str, path: &str) -> String {
    format!("{namespace}/{service}/{}", path.trim_start_matches('/'))
}
