//! From JSON to protobuf: the other direction, for answers.
//!
//! Only what stands in the JSON is written. The Go types write zero values, too; readers cannot tell, because
//! an absent field reads as zero.

use bytes::{BufMut as _, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{MAGIC, Many, STANDARD, ValueType, message_name, messages};
use base64::Engine as _;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// An object in protobuf form, or nothing if its kind has none.
pub fn from_json(object: &Value) -> Option<Vec<u8>> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = message_name(api_version, kind)?;
    let mut types = Vec::new();
    put_bytes(&mut types, 1, api_version.as_bytes());
    put_bytes(&mut types, 2, kind.as_bytes());
    let mut raw = Vec::new();
    write_message(message, object.as_object()?, &mut raw);
    let mut out = MAGIC.to_vec();
    put_bytes(&mut out, 1, &types);
    put_bytes(&mut out, 2, &raw);
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    Some(out)
}

/// Watch events, one per line of JSON, as frames: four bytes of length, then the event, whose object is
/// wrapped as a whole answer would be.
pub fn watch_frames(lines: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
        let Some(object) = event.get("object").and_then(from_json) else { continue };
        let mut frame = Vec::new();
        put_bytes(&mut frame, 1, event.get("type").and_then(Value::as_str).unwrap_or_default().as_bytes());
        let mut raw = Vec::new();
        put_bytes(&mut raw, 1, &object);
        put_bytes(&mut frame, 2, &raw);
        out.put_u32(u32::try_from(frame.len()).unwrap_or(u32::MAX));
        out.extend_from_slice(&frame);
    }
    out.freeze()
}

fn write_message(message: &str, object: &Map<String, Value>, out: &mut Vec<u8>) {
    let Some(types) = messages().get(message) else { return };
    for (number, field) in types {
        if field.name.is_empty() {
            if let ValueType::Message(inlined) = field.kind {
                let mut inner = Vec::new();
                write_message(inlined, object, &mut inner);
                put_bytes(out, *number, &inner);
            }
            continue;
        }
        match (field.many, object.get(field.name)) {
            (_, None | Some(Value::Null)) => {}
            (Many::One, Some(value)) => write_value(field.kind, *number, value, out),
            (Many::List, Some(Value::Array(items))) => {
                for item in items {
                    write_value(field.kind, *number, item, out);
                }
            }
            (Many::Map, Some(Value::Object(entries))) => {
                for (key, value) in entries {
                    let mut entry = Vec::new();
                    put_bytes(&mut entry, 1, key.as_bytes());
                    write_value(field.kind, 2, value, &mut entry);
                    put_bytes(out, *number, &entry);
                }
            }
            // Stored objects have the shape of their type.
            (Many::List | Many::Map, Some(_)) => {}
        }
    }
}

fn write_value(kind: ValueType, number: u64, value: &Value, out: &mut Vec<u8>) {
    match (kind, value) {
        (ValueType::Text, Value::String(text)) => put_bytes(out, number, text.as_bytes()),
        (ValueType::Integer, Value::Number(n)) => {
            put_varint_field(out, number, n.as_i64().unwrap_or_default());
        }
        (ValueType::Bool, Value::Bool(b)) => put_varint_field(out, number, i64::from(*b)),
        (ValueType::Bytes, Value::String(text)) => {
            put_bytes(out, number, &STANDARD.decode(text).unwrap_or_default());
        }
        (ValueType::Double, Value::Number(n)) => {
            put_varint(out, number << 3 | FIXED64);
            out.extend_from_slice(&n.as_f64().unwrap_or_default().to_le_bytes());
        }
        (ValueType::Message(message), value) => {
            let mut inner = Vec::new();
            write_special(message, value, &mut inner);
            put_bytes(out, number, &inner);
        }
        _ => {}
    }
}

/// A message, some of which are not objects in JSON.
fn write_special(message: &str, value: &Value, out: &mut Vec<u8>) {
    match (message, value) {
        ("meta.v1.Time" | "meta.v1.MicroTime", Value::String(text)) => {
            if let Ok(at) = text.parse::<Timestamp>() {
                put_varint_field(out, 1, at.as_second());
                put_varint_field(out, 2, i64::from(at.subsec_nanosecond()));
            }
        }
        ("api.resource.Quantity", Value::String(text)) => put_bytes(out, 1, text.as_bytes()),
        ("api.resource.Quantity", Value::Number(number)) => put_bytes(out, 1, number.to_string().as_bytes()),
        ("util.intstr.IntOrString", Value::String(text)) => {
            put_varint_field(out, 1, 1);
            put_varint_field(out, 2, 0);
            put_bytes(out, 3, text.as_bytes());
        }
        ("util.intstr.IntOrString", number) => {
            put_varint_field(out, 1, 0);
            put_varint_field(out, 2, number.as_i64().unwrap_or_default());
            put_bytes(out, 3, b"");
        }
        ("meta.v1.FieldsV1" | "runtime.RawExtension", value) => {
            put_bytes(out, 1, &serde_json::to_vec(value).unwrap_or_default());
        }
        ("authentication.v1.ExtraValue" | "authorization.v1.ExtraValue" | "meta.v1.Verbs", value) => {
            for item in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
                put_bytes(out, 1, item.as_bytes());
            }
        }
        (message, Value::Object(object)) => write_message(message, object, out),
        _ => {}
    }
}

fn put_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 3 | BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint_field(out: &mut Vec<u8>, number: u64, value: i64) {
    put_varint(out, number << 3 | VARINT);
    put_varint(out, value.cast_unsigned());
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::super::to_json;
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_the_same() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"x": "y", "empty": ""}, "creationTimestamp": "2026-01-02T03:04:05Z",
                         "generation": 3, "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"nodeName": "n", "priority": -7, "volumes": [{"name": "v", "emptyDir": {}}],
                     "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}},
                                     "ports": [{"containerPort": 80}],
                                     "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 1}}],
                     "hostNetwork": true}});
        assert_eq!(to_json(&from_json(&pod).unwrap()).unwrap(), pod);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "AAEC/w=="}});
        assert_eq!(to_json(&from_json(&secret).unwrap()).unwrap(), secret);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "spec": {"renewTime": "2026-01-02T03:04:05.000006Z", "leaseDurationSeconds": 0}});
        assert_eq!(to_json(&from_json(&lease).unwrap()).unwrap(), lease);
    }

    #[test]
    fn a_kind_without_a_protobuf_form_has_none() {
        assert_eq!(from_json(&json!({"apiVersion": "example.com/v1", "kind": "Widget"})), None);
    }

    #[test]
    fn a_frame_begins_with_its_length() {
        let line = br#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod"}}"#;
        let frames = watch_frames(&[&line[..], b"\n", &line[..], b"\n"].concat());
        let length = u32::from_be_bytes(frames[..4].try_into().unwrap()) as usize;
        assert_eq!(frames.len(), 2 * (length + 4));
        assert_eq!(&frames[4..11], b"\x0a\x05ADDED");
    }
}
