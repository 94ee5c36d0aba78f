//! Answers in protobuf form, as the JSON they stand for.
//!
//! Go's types write zero values, this server does not, and no reader can tell: they are left out.

use evac_apiserver::protobuf;
use serde_json::{Value, json};

/// A whole answer.
pub fn object(bytes: &[u8]) -> Value {
    match protobuf::to_json(bytes) {
        Ok(mut object) => {
            drop_zeros(&mut object);
            object
        }
        Err(error) => json!(format!("not readable: {error}")),
    }
}

/// Takes one event of a watch from the beginning of what was read: four bytes of length, then a message with
/// its type (1) and its object (2), which is wrapped once more.
pub fn event(read: &mut Vec<u8>) -> Option<Value> {
    let length = u32::from_be_bytes(read.first_chunk::<4>().copied()?) as usize;
    if read.len() < 4 + length {
        return None;
    }
    let frame: Vec<u8> = read.drain(..4 + length).skip(4).collect();
    let kind = field(&frame, 1).unwrap_or_default();
    let raw = field(&frame, 2).and_then(|object| field(object, 1)).unwrap_or_default();
    Some(json!({"type": String::from_utf8_lossy(kind), "object": object(raw)}))
}

/// The content of a field of a message whose fields are all of variable length.
fn field(message: &[u8], wanted: u64) -> Option<&[u8]> {
    let mut rest = message;
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let (content, after) = rest.split_at_checked(length)?;
        rest = after;
        if tag >> 3 == wanted {
            return Some(content);
        }
    }
    None
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn drop_zeros(value: &mut Value) {
    let is_zero = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    };
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_zeros);
            fields.retain(|_, value| !is_zero(value));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_zeros),
        _ => {}
    }
}
