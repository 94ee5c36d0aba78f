//! The tables of one answer: a list, or the events of a watch.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::table::{self, Include, Options};

/// Renders tables; of several only the first explains its columns.
pub struct Tables {
    kind: Arc<Kind>,
    include: Include,
    explained: bool,
}

impl Tables {
    pub fn new(kind: Arc<Kind>, include: Include) -> Self {
        Self { kind, include, explained: false }
    }

    pub fn render(&mut self, objects: &[Value], metadata: Value, now: Timestamp) -> Value {
        let headers = !std::mem::replace(&mut self.explained, true);
        let options = Options { include: self.include, headers, now };
        table::render(&self.kind, objects, metadata, options)
    }

    /// A bookmark in a watch of tables: a row that holds nothing but the revision.
    pub fn bookmark(&mut self, revision: u64, metadata: &Value, now: Timestamp) -> Value {
        let object = json!({
            "kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata,
        });
        self.render(&[object], json!({"resourceVersion": revision.to_string()}), now)
    }
}
