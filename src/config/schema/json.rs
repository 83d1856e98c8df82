// SPDX-License-Identifier: Apache-2.0
//! JSON as the configuration needs it. Numbers are whole. An object keeps a name that it was given twice, so that the check
//! can report it instead of silently using one of the two.

use core::fmt;
use sha1_smol::Sha1;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

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
        let (kind, bytes): (u8, Vec<u8>) = match self {
            Self::Null => (0, Vec::new()),
            Self::Flag(flag) => (1, vec![(*flag).into()]),
            Self::Count(count) => (2, count.to_be_bytes().into()),
            Self::Number(text) => (3, text.clone().into_bytes()),
            Self::Text(text) => (4, text.clone().into_bytes()),
            Self::List(list) => (5, list.iter().flat_map(|item| item.hash().to_be_bytes()).collect()),
            Self::Object(fields) => {
                let name = |name: &String| Self::Text(name.clone()).hash();
                let mut hashes: Vec<_> =
                    fields.iter().map(|(key, value)| [name(key), value.hash()]).collect();
                hashes.sort_unstable();
                (6, hashes.into_iter().flatten().flat_map(u32::to_be_bytes).collect())
            }
        };
        let mut sha1 = Sha1::new();
        sha1.update(&[kind]);
        sha1.update(&bytes);
        let [a, b, c, d, ..] = sha1.digest().bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

impl Json {
    /// Reads a JSON text.
    ///
    /// # Errors
    /// What is wrong with the text, with line and column.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }

    /// The value of `name` in an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// The text of a string; empty for anything else.
    #[must_use]
    pub fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }
}

/// A number of a protobuf `Struct`: always an `f64`. A whole number is a count up to 2^53, beyond which it is not exact.
impl From<f64> for Json {
    fn from(number: f64) -> Self {
        const EXACT: u64 = 1 << 53;
        let text = number.to_string();
        match text.parse() {
            Ok(count) if count <= EXACT => Self::Count(count),
            _ => Self::Number(text),
        }
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
        Ok(Json::Number(format!("{number:?}")))
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
