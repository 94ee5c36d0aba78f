//! The objects of a snapshot, as a rehearsal takes them.

use std::collections::BTreeMap;
use std::io::Read;

use evac_api::snapshot::{self, Header, SnapshotError, SnapshotReader};
use evac_engine::capture::Captured;
use serde_json::Value;

/// All objects of a snapshot by the name of their kind.
#[derive(Debug)]
pub struct Objects {
    pub header: Header,
    by_kind: BTreeMap<&'static str, Vec<Value>>,
}

impl Objects {
    pub fn read(from: impl Read) -> Result<Self, SnapshotError> {
        let mut reader = SnapshotReader::open(from)?;
        let mut by_kind: BTreeMap<&'static str, Vec<Value>> = BTreeMap::new();
        while let Some(line) = reader.next_line()? {
            let object = serde_json::from_slice(line.json).map_err(|error| {
                SnapshotError::Damaged(format!("one of its {} is no object: {error}", line.kind.name))
            })?;
            by_kind.entry(line.kind.name).or_default().push(object);
        }
        Ok(Self { header: reader.header, by_kind })
    }

    /// What was just read, without a file in between.
    pub fn parsed(captured: Captured) -> Result<Self, SnapshotError> {
        let Captured { header, lines } = captured;
        let packed = snapshot::write(Vec::new(), &header, lines.iter().map(String::as_str));
        Self::read(packed.map_err(SnapshotError::Unreadable)?.as_slice())
    }

    pub fn of(&self, kind: &str) -> &[Value] {
        self.by_kind.get(kind).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn of_mut(&mut self, kind: &'static str) -> &mut Vec<Value> {
        self.by_kind.entry(kind).or_default()
    }
}

/// A text in an object, or nothing.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `namespace/name`, or `name`.
pub fn key(object: &Value) -> String {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// The status of a condition, or nothing.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|one| one["type"] == kind)
}

pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|one| one["status"] == "True")
}
