//! Kubernetes' protobuf form of objects: bodies become the JSON that everything else here reads, and answers
//! are turned back for clients that ask for it.
//!
//! kubectl and the Go clients use it for built-in kinds when they may. `messages.txt` holds the facts: per
//! message its fields with number, JSON name and type (`[]` repeated, `{}` a map with string keys; a field
//! without a JSON name is inlined).

mod encode;
mod wire;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use self::encode::{from_json, watch_frames};
use self::wire::{Field, Payload, fields};

pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The same for the frames of a watch.
pub const WATCH_MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Deeper nesting than any Kubernetes type has; a body beyond it is an attack or garbage.
const DEPTH_LIMIT: usize = 64;

/// Why a body is not a Kubernetes object in protobuf form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("empty data")]
    Empty,
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMark,
    #[error("the body is cut off or damaged")]
    Damaged,
    #[error("{kind} of {api_version} cannot be read in protobuf form by this server; send JSON")]
    UnknownKind { api_version: String, kind: String },
    #[error("the body is nested too deeply")]
    TooDeep,
}

/// One field of a message.
struct FieldType {
    /// Empty when the fields of the message stand in their parent.
    name: &'static str,
    kind: ValueType,
    many: Many,
}

#[derive(Clone, Copy)]
enum ValueType {
    Text,
    Integer,
    Bool,
    Bytes,
    Double,
    Message(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    One,
    List,
    Map,
}

type Messages = BTreeMap<&'static str, BTreeMap<u64, FieldType>>;

fn messages() -> &'static Messages {
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    MESSAGES.get_or_init(|| include_str!("messages.txt").lines().map(parse_message).collect())
}

fn parse_message(line: &'static str) -> (&'static str, BTreeMap<u64, FieldType>) {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let fields = rest
        .split(' ')
        .filter_map(|field| {
            let (head, kind) = field.split_once('=')?;
            let (number, name) = head.split_once(':').unwrap_or((head, ""));
            let (kind, many) = match (kind.strip_suffix("[]"), kind.strip_suffix("{}")) {
                (Some(kind), _) => (kind, Many::List),
                (_, Some(kind)) => (kind, Many::Map),
                _ => (kind, Many::One),
            };
            let kind = match kind {
                "string" => ValueType::Text,
                "int" => ValueType::Integer,
                "bool" => ValueType::Bool,
                "bytes" => ValueType::Bytes,
                "double" => ValueType::Double,
                message => ValueType::Message(message),
            };
            Some((number.parse().ok()?, FieldType { name, kind, many }))
        })
        .collect();
    (name, fields)
}

/// The JSON form of a protobuf body.
pub fn to_json(body: &[u8]) -> Result<Value, ProtobufError> {
    if body.is_empty() {
        return Err(ProtobufError::Empty);
    }
    let body = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMark)?;
    let (mut api_version, mut kind, mut raw): (String, String, &[u8]) = Default::default();
    for field in fields(body) {
        match field? {
            Field { number: 1, payload: Payload::Bytes(types) } => {
                for field in fields(types) {
                    match field? {
                        Field { number: 1, payload: Payload::Bytes(text) } => api_version = text_of(text)?,
                        Field { number: 2, payload: Payload::Bytes(text) } => kind = text_of(text)?,
                        _ => {}
                    }
                }
            }
            Field { number: 2, payload: Payload::Bytes(bytes) } => raw = bytes,
            _ => {}
        }
    }
    let unknown = || ProtobufError::UnknownKind { api_version: api_version.clone(), kind: kind.clone() };
    let message = message_name(&api_version, &kind).ok_or_else(unknown)?;
    let mut object = Map::new();
    read_message(message, raw, &mut object, 0)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Ok(Value::Object(object))
}

/// Whether a kind has a protobuf form here.
pub fn knows(api_version: &str, kind: &str) -> bool {
    message_name(api_version, kind).is_some()
}

/// The message of a kind: `apps/v1 Deployment` is `apps.v1.Deployment`; options belong to every group.
fn message_name(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = group.split('.').next().unwrap_or_default();
    [format!("{package}.{version}.{kind}"), format!("meta.v1.{kind}")]
        .iter()
        .find_map(|name| messages().get_key_value(name.as_str()).map(|(name, _)| *name))
}

fn read_message(
    message: &str,
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > DEPTH_LIMIT {
        return Err(ProtobufError::TooDeep);
    }
    let Some(types) = messages().get(message) else { return Ok(()) };
    for field in fields(bytes) {
        let field = field?;
        // A field that is newer than our facts is unknown to us, as it would be to an older server.
        let Some(kind) = types.get(&field.number) else { continue };
        if kind.name.is_empty() {
            if let (ValueType::Message(inner), Payload::Bytes(bytes)) = (kind.kind, field.payload) {
                read_message(inner, bytes, object, depth + 1)?;
            }
            continue;
        }
        match kind.many {
            Many::One => {
                object.insert(kind.name.to_owned(), value(kind.kind, field.payload, depth)?);
            }
            Many::List => {
                let item = value(kind.kind, field.payload, depth)?;
                let list = object.entry(kind.name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(item);
                }
            }
            Many::Map => {
                let Payload::Bytes(entry) = field.payload else { return Err(ProtobufError::Damaged) };
                let (key, item) = map_entry(kind.kind, entry, depth)?;
                let map = object.entry(kind.name).or_insert_with(|| json!({}));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key, item);
                }
            }
        }
    }
    Ok(())
}

fn map_entry(kind: ValueType, entry: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let mut key = String::new();
    // An absent value is the empty value of its type.
    let mut item = match kind {
        ValueType::Text | ValueType::Bytes => json!(""),
        ValueType::Integer | ValueType::Double => json!(0),
        ValueType::Bool => json!(false),
        ValueType::Message(message) => message_value(message, &[], depth)?,
    };
    for field in fields(entry) {
        match field? {
            Field { number: 1, payload: Payload::Bytes(text) } => key = text_of(text)?,
            Field { number: 2, payload } => item = value(kind, payload, depth)?,
            _ => {}
        }
    }
    Ok((key, item))
}

fn value(kind: ValueType, payload: Payload<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match (kind, payload) {
        (ValueType::Text, Payload::Bytes(bytes)) => json!(text_of(bytes)?),
        (ValueType::Integer, Payload::Varint(number)) => json!(number as i64),
        (ValueType::Bool, Payload::Varint(number)) => json!(number != 0),
        (ValueType::Bytes, Payload::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (ValueType::Double, Payload::Fixed64(bits)) => json!(f64::from_bits(bits)),
        (ValueType::Message(message), Payload::Bytes(bytes)) => message_value(message, bytes, depth)?,
        _ => return Err(ProtobufError::Damaged),
    })
}

/// A message as the value its JSON form has; a few types are not objects there.
fn message_value(message: &str, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    let numbers = || -> Result<BTreeMap<u64, i64>, ProtobufError> {
        let mut numbers = BTreeMap::new();
        for field in fields(bytes) {
            if let Field { number, payload: Payload::Varint(value) } = field? {
                numbers.insert(number, value as i64);
            }
        }
        Ok(numbers)
    };
    let content = |wanted: u64| -> Result<&[u8], ProtobufError> {
        let mut found: &[u8] = &[];
        for field in fields(bytes) {
            if let Field { number, payload: Payload::Bytes(value) } = field?
                && number == wanted
            {
                found = value;
            }
        }
        Ok(found)
    };
    Ok(match message {
        // The zero time is written as an empty message and reads as absent.
        "meta.v1.Time" | "meta.v1.MicroTime" if bytes.is_empty() => Value::Null,
        "meta.v1.Time" | "meta.v1.MicroTime" => {
            let numbers = numbers()?;
            let part = |number: u64| numbers.get(&number).copied().unwrap_or(0);
            let nanos = i32::try_from(part(2)).map_err(|_| ProtobufError::Damaged)?;
            let at = Timestamp::new(part(1), nanos).map_err(|_| ProtobufError::Damaged)?;
            match message {
                "meta.v1.Time" => json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
                _ => json!(at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()),
            }
        }
        "api.resource.Quantity" => json!(text_of(content(1)?)?),
        "util.intstr.IntOrString" => {
            let numbers = numbers()?;
            if numbers.get(&1) == Some(&1) {
                json!(text_of(content(3)?)?)
            } else {
                json!(numbers.get(&2).copied().unwrap_or(0))
            }
        }
        "meta.v1.FieldsV1" | "runtime.RawExtension" => {
            serde_json::from_slice(content(1)?).unwrap_or(Value::Null)
        }
        "authentication.v1.ExtraValue" | "authorization.v1.ExtraValue" | "meta.v1.Verbs" => {
            let mut object = Map::new();
            read_message(message, bytes, &mut object, depth + 1)?;
            object.remove("items").unwrap_or_else(|| json!([]))
        }
        _ => {
            let mut object = Map::new();
            read_message(message, bytes, &mut object, depth + 1)?;
            Value::Object(object)
        }
    })
}

fn text_of(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Damaged)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &types), field(2, raw)].concat()
    }

    #[test]
    fn an_eviction_keeps_its_preconditions() {
        let metadata = [field(1, b"web-0"), field(3, b"default")].concat();
        let options = [vec![1 << 3, 30], field(2, &field(1, b"uid-1"))].concat();
        let raw = [field(1, &metadata), field(2, &options)].concat();
        assert_eq!(
            to_json(&body("policy/v1", "Eviction", &raw)).unwrap(),
            json!({"apiVersion": "policy/v1", "kind": "Eviction",
                   "metadata": {"name": "web-0", "namespace": "default"},
                   "deleteOptions": {"gracePeriodSeconds": 30, "preconditions": {"uid": "uid-1"}}})
        );
    }

    #[test]
    fn a_volume_source_stands_in_its_volume_as_in_json() {
        let empty_dir = field(2, &field(1, b"Memory"));
        let volume = [field(1, b"tmp"), field(2, &empty_dir)].concat();
        let raw = field(2, &field(1, &volume));
        let pod = to_json(&body("v1", "Pod", &raw)).unwrap();
        assert_eq!(pod["spec"]["volumes"], json!([{"name": "tmp", "emptyDir": {"medium": "Memory"}}]));
    }

    #[test]
    fn options_are_the_same_in_every_group() {
        let read = to_json(&body("apps/v1", "DeleteOptions", &field(4, b"Orphan"))).unwrap();
        assert_eq!(read["propagationPolicy"], "Orphan");
    }

    #[test]
    fn a_kind_without_facts_is_refused_with_what_to_do() {
        let error = to_json(&body("example.com/v1", "Widget", &[])).unwrap_err();
        assert!(error.to_string().ends_with("send JSON"));
        assert_eq!(to_json(b"{}").unwrap_err(), ProtobufError::NoMark);
    }

    #[test]
    fn every_referred_message_is_known_or_special() {
        let special = [
            "meta.v1.Time",
            "meta.v1.MicroTime",
            "meta.v1.FieldsV1",
            "runtime.RawExtension",
            "api.resource.Quantity",
            "util.intstr.IntOrString",
        ];
        for (message, fields) in messages() {
            for field in fields.values() {
                if let ValueType::Message(name) = field.kind {
                    assert!(messages().contains_key(name) || special.contains(&name), "{message}: {name}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_body_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = to_json(&[MAGIC, &bytes].concat());
            let _ = to_json(&body("v1", "Pod", &bytes[..bytes.len().min(100)]));
        }
    }
}
