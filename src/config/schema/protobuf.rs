// SPDX-License-Identifier: Apache-2.0
//! A configuration that Envoy was given as a `google.protobuf.Struct`. Envoy hands it on in protobuf's wire format, not as
//! JSON. This file reads that format, as far as a `Struct` needs it.
//! <https://protobuf.dev/programming-guides/encoding/>

use super::json::Json;

/// The deepest nesting of values; the same as in JSON text.
const MAX_DEPTH: usize = 128;

/// Reads a serialized `Struct`; `None` when `bytes` are not one.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Json> {
    object(bytes, MAX_DEPTH)
}

/// The value of a field, as the wire has it.
enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
}

/// Removes the next field from `bytes`: its number and its value.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = varint(bytes)?;
    let field = match key & 7 {
        0 => Field::Varint(varint(bytes)?),
        1 => {
            let (fixed, rest) = bytes.split_first_chunk::<8>()?;
            *bytes = rest;
            Field::Fixed64(*fixed)
        }
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            let (inner, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Field::Bytes(inner)
        }
        _ => return None,
    };
    Some((key >> 3, field))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// `Struct`: entries of a map from names to values.
fn object(mut bytes: &[u8], depth: usize) -> Option<Json> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (1, Field::Bytes(mut entry)) = field(&mut bytes)? else { return None };
        let (mut name, mut value) = (String::new(), Json::Null);
        while !entry.is_empty() {
            match field(&mut entry)? {
                (1, Field::Bytes(text)) => name = String::from_utf8(text.to_vec()).ok()?,
                (2, Field::Bytes(bytes)) => value = self::value(bytes, depth.checked_sub(1)?)?,
                _ => return None,
            }
        }
        fields.push((name, value));
    }
    Some(Json::Object(fields))
}

/// `Value`: when several fields are given, the last counts.
fn value(mut bytes: &[u8], depth: usize) -> Option<Json> {
    let mut value = Json::Null;
    while !bytes.is_empty() {
        value = match field(&mut bytes)? {
            (1, Field::Varint(_)) => Json::Null,
            (2, Field::Fixed64(bits)) => Json::from(f64::from_le_bytes(bits)),
            (3, Field::Bytes(text)) => Json::Text(String::from_utf8(text.to_vec()).ok()?),
            (4, Field::Varint(flag)) => Json::Flag(flag != 0),
            (5, Field::Bytes(fields)) => object(fields, depth.checked_sub(1)?)?,
            (6, Field::Bytes(items)) => list(items, depth.checked_sub(1)?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// `ListValue`.
fn list(mut bytes: &[u8], depth: usize) -> Option<Json> {
    let mut items = Vec::new();
    while !bytes.is_empty() {
        let (1, Field::Bytes(item)) = field(&mut bytes)? else { return None };
        items.push(value(item, depth)?);
    }
    Some(Json::List(items))
}
