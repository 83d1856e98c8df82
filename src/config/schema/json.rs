// SPDX-License-Identifier: Apache-2.0
//! JSON as the configuration needs it. Numbers are whole. An object keeps a name that it was given twice, so that the check
//! can report it instead of silently using one of the two.

use core::fmt;
use sha1_smol::Sha1;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::sorted_map::sorted;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Flag(bool),
    /// A whole number that is not negative.
    Count(u64),
    /// Any other number, as it would be written.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object: names and values, in the order written.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// A number that names this value, whatever the order of its names: the first 32 bits of a SHA-1.
    pub fn hash(&self) -> u32 {
        let of_all =
            |hashes: &mut dyn Iterator<Item = u32>| hashes.flat_map(u32::to_be_bytes).collect::<Vec<_>>();
        match self {
            Self::Null => hash_of(0, &[]),
            Self::Flag(flag) => hash_of(1, &[(*flag).into()]),
            Self::Count(count) => hash_of(2, &count.to_be_bytes()),
            Self::Number(text) => hash_of(3, text.as_bytes()),
            Self::Text(text) => hash_of(4, text.as_bytes()),
            Self::List(list) => hash_of(5, &of_all(&mut list.iter().map(Self::hash))),
            Self::Object(fields) => {
                let hashes = fields.iter().map(|(name, value)| [hash_of(4, name.as_bytes()), value.hash()]);
                hash_of(6, &of_all(&mut sorted(hashes.collect()).into_iter().flatten()))
            }
        }
    }

    /// The maximum nesting of objects and lists in it.
    pub fn nesting(&self) -> usize {
        match self {
            Self::List(items) => items.iter().map(Self::nesting).max().unwrap_or_default().saturating_add(1),
            Self::Object(fields) => {
                fields.iter().map(|(_, value)| value.nesting()).max().unwrap_or_default().saturating_add(1)
            }
            _ => 0,
        }
    }

    /// Reads a JSON text.
    ///
    /// # Errors
    /// The mistake in the text, with line and column.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }

    /// The value of `name` in an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.fields().iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// The names and values of an object; none for anything else.
    #[must_use]
    pub fn fields(&self) -> &[(String, Self)] {
        if let Self::Object(fields) = self { fields } else { &[] }
    }

    /// The items of a list; none for anything else.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        if let Self::List(items) = self { items } else { &[] }
    }

    /// The text of a string; empty for anything else.
    #[must_use]
    pub fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }
}

/// The first 32 bits of the SHA-1 of a kind of value and its bytes.
fn hash_of(kind: u8, bytes: &[u8]) -> u32 {
    let mut sha1 = Sha1::new();
    sha1.update(&[kind]);
    sha1.update(bytes);
    let [a, b, c, d, ..] = sha1.digest().bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// A number of a protobuf `Struct`: always an `f64`. A whole number is a count up to 2^53, beyond which it is not exact.
impl From<f64> for Json {
    fn from(number: f64) -> Self {
        const EXACT: u64 = 1 << 53;
        let text = decimal(number);
        match text.parse() {
            Ok(count) if count <= EXACT => Self::Count(count),
            _ => Self::Number(text),
        }
    }
}

/// The shortest decimal that is this number, if it has up to 15 digits after its point; else the nearest one. Fields hold numbers
/// with up to six. It is a tenth of the code with which the standard library prints an `f64`.
#[expect(
    clippy::float_arithmetic,
    reason = "a whole number and a power of ten are exact, so their quotient is the nearest `f64`"
)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is not negative, and a cast saturates"
)]
fn decimal(number: f64) -> String {
    /// The least `f64` from which on all are whole.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    /// 2^64.
    const LARGEST: f64 = 18_446_744_073_709_551_616.0;
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let number = number.abs();
    if number.is_nan() || number >= LARGEST {
        return String::from("a number of more than 64 bits");
    }
    let (mut digits, mut power) = (0, 1_u64);
    loop {
        let scaled = number * power as f64;
        let units = (scaled + 0.5) as u64;
        if scaled >= WHOLE || digits == 15 || units as f64 / power as f64 == number {
            let whole = units.checked_div(power).unwrap_or_default();
            let rest = units.checked_rem(power).unwrap_or_default();
            return if digits == 0 {
                format!("{sign}{whole}")
            } else {
                format!("{sign}{whole}.{rest:0digits$}")
            };
        }
        digits = digits.saturating_add(1);
        power = power.saturating_mul(10);
    }
}

/// The value for messages: as JSON, cut short where it is long.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Count(count) => write!(f, "{count}"),
            Self::Number(number) => f.write_str(number),
            Self::Text(text) => match text.char_indices().nth(64) {
                Some((end, _)) => write!(f, "{:?}…", text.get(..end).unwrap_or_default()),
                None => write!(f, "{text:?}"),
            },
            Self::List(items) => write!(f, "a list of {}", items.len()),
            Self::Object(_) => f.write_str("an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
        Ok(Json::Flag(flag))
    }

    fn visit_u64<E>(self, count: u64) -> Result<Json, E> {
        Ok(Json::Count(count))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(u64::try_from(number).map_or_else(|_| Json::Number(number.to_string()), Json::Count))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        let text = decimal(number);
        // As it would be written, so that an error about `1000.0` does not say `1000`.
        let is_whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        Ok(Json::Number(if is_whole { format!("{text}.0") } else { text }))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(field) = fields.next_entry()? {
            object.push(field);
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_decimal_is_the_shortest(units in 0..1_000_000_000_000_000_u64, digits in 0..16_u32, is_negative: bool) {
            let text = format!("{}{units}e-{digits}", if is_negative { "-" } else { "" });
            let number: f64 = text.parse().unwrap();
            prop_assert_eq!(decimal(number), number.to_string());
        }
    }

    #[test]
    fn other_numbers_are_near_or_named() {
        let rows = [
            (1.0 / 3.0, "0.333333333333333"),
            (f64::from(1_u32 << 31) * 4_194_304.0, "9007199254740992"),
            (1e300, "a number of more than 64 bits"),
            (-0.0, "-0"),
            (f64::MIN_POSITIVE, "0.000000000000000"),
            (f64::NAN, "a number of more than 64 bits"),
            (f64::NEG_INFINITY, "a number of more than 64 bits"),
        ];
        for (number, wanted) in rows {
            assert_eq!(decimal(number), wanted, "{number:?}");
        }
    }
}
