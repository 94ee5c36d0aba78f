//! The entries of `metadata.managedFields`: who set which fields, by which kind of request, when.

use std::cmp::Ordering;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::set::FieldSet;

/// More managers that update than this are folded together, oldest first.
const MAX_UPDATERS: usize = 10;
const FOLDED: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
    pub time: Option<String>,
    pub fields: FieldSet,
}

impl Entry {
    /// Whether two entries are about the same manager. Appliers are the same across versions.
    pub fn is_same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The manager as conflicts name it.
    pub fn described(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            let _ = write!(text, " with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            text.push_str(" using ");
            text.push_str(&self.api_version);
        }
        text
    }

    fn seconds(&self) -> i64 {
        self.time.as_deref().and_then(|t| t.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_second)
    }

    fn order(&self, other: &Self) -> Ordering {
        self.operation
            .cmp(&other.operation)
            .then_with(|| self.seconds().cmp(&other.seconds()))
            .then_with(|| self.manager.cmp(&other.manager))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    fn read(value: Value) -> Option<Self> {
        let Value::Object(mut entry) = value else { return None };
        let mut word = |key: &str| match entry.remove(key) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let operation = match word("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let (api_version, fields_type) = (word("apiVersion"), word("fieldsType"));
        if api_version.is_empty() || fields_type != "FieldsV1" {
            return None;
        }
        let (manager, subresource, time) = (word("manager"), word("subresource"), word("time"));
        Some(Self {
            manager,
            operation,
            api_version,
            subresource,
            time: Some(time).filter(|time| !time.is_empty()),
            fields: FieldSet::from_fields_v1(entry.remove("fieldsV1").unwrap_or_default())?,
        })
    }

    fn write(self) -> Value {
        let mut entry = Map::new();
        let mut put = |key: &str, value: String| {
            if !value.is_empty() {
                entry.insert(key.to_owned(), Value::String(value));
            }
        };
        put("apiVersion", self.api_version);
        put("fieldsType", "FieldsV1".to_owned());
        put("manager", self.manager);
        put("operation", self.operation.as_str().to_owned());
        put("subresource", self.subresource);
        put("time", self.time.unwrap_or_default());
        entry.insert("fieldsV1".to_owned(), self.fields.into_fields_v1());
        Value::Object(entry)
    }
}

/// The entries of an object; none if one of them cannot be read.
pub(super) fn of(object: &Value) -> Vec<Entry> {
    let list = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    list.cloned().and_then(read).unwrap_or_default()
}

fn read(list: Value) -> Option<Vec<Entry>> {
    match list {
        Value::Null => Some(Vec::new()),
        Value::Array(entries) => entries.into_iter().map(Entry::read).collect(),
        _ => None,
    }
}

/// The entries a write starts from. A client may send managed fields along (`given`) and so change them; an
/// empty list or one empty entry starts over.
pub(super) fn starting_from(old: Option<&Value>, given: Option<Value>, subresource: bool) -> Vec<Entry> {
    let of_old = || old.map(of).unwrap_or_default();
    if subresource {
        return of_old();
    }
    let starts_over = match &given {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => true,
            [only] => only.as_object().is_some_and(Map::is_empty),
            _ => false,
        },
        _ => false,
    };
    if starts_over {
        return Vec::new();
    }
    match given.and_then(read) {
        Some(entries) if !entries.is_empty() => entries,
        _ => of_old(),
    }
}

/// Takes the list off an object.
pub(super) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts entries into an object, in the order of the server.
pub(super) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    take(object);
    if entries.is_empty() {
        return;
    }
    entries.sort_by(Entry::order);
    let Value::Object(fields) = object else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        let list = entries.into_iter().map(Entry::write).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(list));
    }
}

/// Folds the oldest updaters together until there are not too many.
pub(super) fn fold_oldest(entries: Vec<Entry>) -> Vec<Entry> {
    let (mut updaters, mut kept): (Vec<Entry>, Vec<Entry>) =
        entries.into_iter().partition(|entry| entry.operation == Operation::Update);
    if updaters.len() <= MAX_UPDATERS {
        kept.extend(updaters);
        return kept;
    }
    updaters.sort_by(Entry::order);
    let mut count = updaters.len();
    let mut folded: Vec<Entry> = Vec::new();
    let mut rest = updaters.into_iter();
    while count > MAX_UPDATERS {
        let Some(entry) = rest.next() else { break };
        match folded.iter_mut().find(|bucket| bucket.api_version == entry.api_version) {
            None => folded.push(entry),
            Some(bucket) => {
                FOLDED.clone_into(&mut bucket.manager);
                bucket.subresource.clear();
                bucket.fields.unite(&entry.fields);
                bucket.time = entry.time;
                count -= 1;
            }
        }
    }
    // A bucket of an earlier folding may stand further back.
    for entry in rest {
        match folded.iter_mut().find(|bucket| bucket.is_same_manager(&entry) && bucket.manager == FOLDED) {
            Some(bucket) => bucket.fields.unite(&entry.fields),
            None => kept.push(entry),
        }
    }
    kept.extend(folded);
    kept
}
