//! The wire format: numbered fields, one after the other.

use super::ProtobufError;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field<'a> {
    pub number: u64,
    pub payload: Payload<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

/// The fields of a message in the order in which they stand there.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = Result<Field<'_>, ProtobufError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let read = next(&mut rest);
        if read.is_none() {
            rest = &[];
        }
        Some(read.ok_or(ProtobufError::Damaged))
    })
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let tag = varint(rest)?;
    let payload = match tag & 7 {
        0 => Payload::Varint(varint(rest)?),
        1 => Payload::Fixed64(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?)),
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Payload::Bytes(take(rest, length)?)
        }
        5 => {
            take(rest, 4)?;
            Payload::Fixed32
        }
        _ => return None,
    };
    Some(Field { number: tag >> 3, payload })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
