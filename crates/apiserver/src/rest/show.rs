//! Stored objects in the form and version the client asked for.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::call::Call;
use super::negotiate::Form;
use super::read::metadata_only;
use super::tables::Tables;
use crate::kinds::Kind;
use crate::store::Object;
use crate::table::Include;

/// A stored object as an object of the version that was asked for.
pub fn in_version(kind: &Kind, object: &Object) -> Value {
    convert_from_stored(kind, object.value())
}

pub fn convert_from_stored(kind: &Kind, value: Value) -> Value {
    if let Some(convert) = kind.from_stored() {
        return convert(value);
    }
    let mut value = value;
    if stored_differently(kind) {
        value["apiVersion"] = json!(kind.api_version());
    }
    value
}

/// An object of the served version in the form in which it is stored.
pub fn convert_to_stored(kind: &Kind, value: Value) -> Value {
    if let Some(convert) = kind.to_stored() {
        return convert(value);
    }
    let mut value = value;
    if let Some(custom) = &kind.custom
        && stored_differently(kind)
    {
        value["apiVersion"] = json!(crate::kinds::api_version(&kind.group, &custom.storage_version));
    }
    value
}

fn stored_differently(kind: &Kind) -> bool {
    kind.custom.as_ref().is_some_and(|custom| custom.storage_version != kind.version)
}

/// Turns stored objects into what one client sees.
pub struct Shower {
    kind: std::sync::Arc<Kind>,
    form: Form,
    tables: Tables,
}

impl Shower {
    pub fn new(call: &Call) -> Self {
        let asked = call.query.include_object.as_deref().unwrap_or_default();
        // A wrong wish was refused when the request was understood.
        let include = Include::parse(asked).unwrap_or_default();
        Self { kind: call.kind.clone(), form: call.form, tables: Tables::new(call.kind.clone(), include) }
    }

    pub fn form(&self) -> Form {
        self.form
    }

    /// One object as a whole answer.
    pub fn one(&mut self, object: &Object, now: Timestamp) -> Bytes {
        match self.form {
            Form::Table => {
                let metadata = json!({"resourceVersion": object.revision.to_string()});
                text(&self.table(std::slice::from_ref(object), metadata, now))
            }
            _ => self.item(object),
        }
    }

    /// One object as an element of a list.
    pub fn item(&mut self, object: &Object) -> Bytes {
        match self.form {
            Form::Metadata => text(&metadata_only(&object.value())),
            _ if self.kind.from_stored().is_none() && !stored_differently(&self.kind) => object.json.clone(),
            _ => text(&in_version(&self.kind, object)),
        }
    }

    /// A whole list: its beginning without items, and the items.
    pub fn list(&mut self, head: &Value, objects: &[Object]) -> Bytes {
        let size: usize = objects.iter().map(|o| o.json.len() + 1).sum();
        let mut list = bytes::BytesMut::with_capacity(size + 200);
        let head = text(head);
        list.extend_from_slice(head.strip_suffix(b"}").unwrap_or(&head));
        list.extend_from_slice(b",\"items\":[");
        for (n, object) in objects.iter().enumerate() {
            if n > 0 {
                list.extend_from_slice(b",");
            }
            self.list_item(object, &mut list);
        }
        list.extend_from_slice(b"]}");
        list.freeze()
    }

    /// One object into a list that is being written. Items of built-in kinds do not say what they are, the
    /// list says it for all of them.
    fn list_item(&mut self, object: &Object, list: &mut bytes::BytesMut) {
        let item = self.item(object);
        let anonymous = self.form != Form::Metadata && self.kind.is_builtin();
        match without_type(&item).filter(|_| anonymous) {
            Some(rest) => {
                list.extend_from_slice(b"{");
                list.extend_from_slice(rest);
            }
            None => list.extend_from_slice(&item),
        }
    }

    /// One object as it stands in a watch event of a revision.
    pub fn event_object(&mut self, object: &Object, revision: u64, now: Timestamp) -> Bytes {
        if revision == object.revision {
            return self.one(object, now);
        }
        let mut value = object.value();
        value["metadata"]["resourceVersion"] = json!(revision.to_string());
        let moved = Object { revision, json: text(&value), meta: object.meta.clone() };
        self.one(&moved, now)
    }

    /// Objects as a table for people.
    pub fn table(&mut self, objects: &[Object], metadata: Value, now: Timestamp) -> Value {
        let values: Vec<Value> = objects.iter().map(|object| in_version(&self.kind, object)).collect();
        self.tables.render(&values, metadata, now)
    }

    /// An object of the kind that has nothing but metadata, as a bookmark carries it.
    pub fn hollow(&self, metadata: &Value) -> Value {
        let mut object = if self.kind.is_builtin() {
            crate::patch::managed::nothing(&self.kind.schema)
        } else {
            json!({})
        };
        object["kind"] = json!(self.kind.kind);
        object["apiVersion"] = json!(self.kind.api_version());
        object["metadata"] = metadata.clone();
        object
    }

    pub fn table_bookmark(&mut self, revision: u64, metadata: &Value, now: Timestamp) -> Value {
        self.tables.bookmark(revision, metadata, now)
    }
}

fn text(value: &Value) -> Bytes {
    crate::store::text_of(value)
}

/// What follows `kind` and `apiVersion` in the text of an object, which the store writes first.
fn without_type(json: &[u8]) -> Option<&[u8]> {
    let mut rest = json.strip_prefix(b"{")?;
    for key in [&b"\"kind\":\""[..], &b"\"apiVersion\":\""[..]] {
        rest = rest.strip_prefix(key)?;
        // Neither a kind nor a version can contain a quote.
        let end = rest.iter().position(|byte| *byte == b'"')?;
        rest = rest.get(end + 1..)?.strip_prefix(b",")?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_a_stored_object_can_be_cut_off_its_text() {
        let json =
            text(&json!({"apiVersion": "v1", "data": {"kind": "x"}, "kind": "ConfigMap", "metadata": {}}));
        assert_eq!(without_type(&json), Some(&br#""metadata":{},"data":{"kind":"x"}}"#[..]));
        assert_eq!(without_type(b"{}"), None);
    }
}
