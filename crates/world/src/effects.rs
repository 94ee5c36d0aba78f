//! Wanted writes, and how they are carried out.
//!
//! Actors only say what they want. A [`Write`] is one request; the writes of one decision run in order and
//! stop at the first failure, after which the decision is taken again on fresh facts.

use http::{Method, Request, header};
use serde::Serialize;
use serde_json::Value;

use crate::kinds::{Kind, Resource};
use crate::objects::Key;

/// One request that changes something.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    pub resource: Resource,
    pub key: Key,
    pub subresource: &'static str,
    pub verb: Verb,
    /// Failing does not stop the decision it belongs to.
    pub optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    Create(Value),
    /// With the resource version that was read, so a foreign change in between is a conflict.
    Replace(Value),
    MergePatch(Value),
    /// Operations in order. The one form in which a list keeps the nulls of its entries.
    JsonPatch(Value),
    /// Lists of conditions and the like merge by their keys.
    StrategicPatch(Value),
    Delete(Deletion),
    /// A pod to a node.
    Bind {
        node: String,
        uid: String,
    },
    /// A merge patch; where there is nothing to patch, a new object.
    Upsert {
        patch: Value,
        create: Value,
    },
    /// Empty the namespace of everything, then let it go.
    EmptyNamespace,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Deletion {
    /// Only this object, not a namesake that took its place.
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub grace_seconds: Option<i64>,
    pub propagation: Option<&'static str>,
}

impl Write {
    fn of(kind: Kind, key: Key, subresource: &'static str, verb: Verb) -> Self {
        Self { resource: kind.resource(), key, subresource, verb, optional: false }
    }

    pub fn create<T: Serialize>(kind: Kind, key: Key, object: &T) -> Self {
        Self::of(kind, key, "", Verb::Create(as_value(object)))
    }

    pub fn replace<T: Serialize>(kind: Kind, key: Key, object: &T) -> Self {
        Self::of(kind, key, "", Verb::Replace(as_value(object)))
    }

    pub fn status<T: Serialize>(kind: Kind, key: Key, object: &T) -> Self {
        Self::of(kind, key, "status", Verb::Replace(as_value(object)))
    }

    pub fn patch_status(kind: Kind, key: Key, patch: Value) -> Self {
        Self::of(kind, key, "status", Verb::StrategicPatch(patch))
    }

    pub fn merge(kind: Kind, key: Key, patch: Value) -> Self {
        Self::of(kind, key, "", Verb::MergePatch(patch))
    }

    pub fn json_patch(kind: Kind, key: Key, operations: Vec<Value>) -> Self {
        Self::of(kind, key, "", Verb::JsonPatch(Value::Array(operations)))
    }

    pub fn strategic(kind: Kind, key: Key, patch: Value) -> Self {
        Self::of(kind, key, "", Verb::StrategicPatch(patch))
    }

    pub fn delete(kind: Kind, key: Key, deletion: Deletion) -> Self {
        Self::of(kind, key, "", Verb::Delete(deletion))
    }

    pub fn bind(key: Key, node: &str, uid: &str) -> Self {
        Self::of(Kind::Pod, key, "binding", Verb::Bind { node: node.to_owned(), uid: uid.to_owned() })
    }

    /// For people; nothing depends on it.
    pub fn is_event(&self) -> bool {
        self.resource.plural == "events"
    }

    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

pub fn as_value<T: Serialize>(object: &T) -> Value {
    // Kubernetes types always have string keys, the one thing that could make this fail.
    serde_json::to_value(object).unwrap_or(Value::Null)
}

/// What came back from a write.
#[derive(Debug)]
pub enum Answer {
    /// The object as it is now.
    Object(Value),
    /// Done, and the object is no more.
    Gone,
    /// Done; the answer carries no object.
    Done,
}

#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    #[error("{method} {path}: {source}")]
    Api { method: &'static str, path: String, source: kube::Error },
    #[error("cannot build the request: {0}")]
    Request(#[from] http::Error),
    #[error("{0} is not empty yet: {1}")]
    NamespaceBusy(String, String),
}

impl EffectError {
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source: kube::Error::Api(status), .. } => Some(status.code),
            _ => None,
        }
    }

    pub fn not_found(&self) -> bool {
        self.code() == Some(404)
    }

    pub fn conflict(&self) -> bool {
        self.code() == Some(409)
    }
}

/// A client that speaks paths and JSON.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
}

impl Api {
    pub fn new(client: kube::Client) -> Self {
        Self { client }
    }

    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content: &'static str,
        body: Option<&Value>,
    ) -> Result<Value, EffectError> {
        let name = match method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            _ => "DELETE",
        };
        let bytes = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        let mut request =
            Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, content);
        }
        let request = request.body(bytes)?;
        self.client.request::<Value>(request).await.map_err(|source| EffectError::Api {
            method: name,
            path: path.to_owned(),
            source,
        })
    }

    pub async fn get(&self, path: &str) -> Result<Value, EffectError> {
        self.send(Method::GET, path, "", None).await
    }
}
