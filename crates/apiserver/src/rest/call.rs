//! One request about a resource, understood and allowed, on its way to a verb.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::USER_AGENT;

use super::negotiate::Form;
use super::query::Query;
use crate::identity::Identity;
use crate::kinds::Kind;
use crate::path::ResourcePath;
use crate::server::{about, storage_of};
use crate::status::About;
use crate::store::Key;

/// A request about a resource.
pub struct Call {
    pub kind: Arc<Kind>,
    pub path: ResourcePath,
    pub query: Query,
    pub identity: Identity,
    pub form: Form,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Call {
    pub fn storage(&self) -> Arc<str> {
        storage_of(&self.kind)
    }

    pub fn key(&self) -> Key {
        Key::new(&self.path.namespace, &self.path.name)
    }

    pub fn about(&self) -> About<'_> {
        about(&self.kind, &self.path.name)
    }

    /// Who is recorded as the owner of the fields this request sets: the name given, else the first word
    /// of the user agent.
    pub fn manager(&self) -> String {
        if let Some(manager) = &self.query.field_manager {
            return manager.clone();
        }
        let agent = self.headers.get(USER_AGENT).and_then(|h| h.to_str().ok()).unwrap_or_default();
        let first = agent.split('/').next().unwrap_or_default();
        let printable: String = first.chars().filter(|c| !c.is_control()).take(128).collect();
        if printable.is_empty() { "unknown".into() } else { printable }
    }
}
