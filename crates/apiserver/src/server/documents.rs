//! Discovery and OpenAPI documents are built when they are first asked for, and kept as long as what they describe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ring::digest::{SHA512, digest};
use serde_json::Value;

use crate::openapi;

/// Documents that are costly to build, of one [`super::Served`].
#[derive(Default)]
pub struct Documents {
    cache: Mutex<BTreeMap<String, Arc<Document>>>,
}

/// A document, and a mark that changes with its content.
pub struct Document {
    pub text: Bytes,
    pub etag: String,
}

impl Documents {
    pub fn get(&self, key: &str, build: impl FnOnce() -> Option<Value>) -> Option<Arc<Document>> {
        if let Some(found) = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Some(found.clone());
        }
        let text: Bytes = serde_json::to_vec(&build()?).unwrap_or_default().into();
        let mark = openapi::hexadecimal(digest(&SHA512, &text).as_ref());
        let document = Arc::new(Document { text, etag: format!("\"{mark}\"") });
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), document.clone());
        Some(document)
    }
}
