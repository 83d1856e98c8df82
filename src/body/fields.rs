// SPDX-License-Identifier: Apache-2.0
//! Values of HTML forms (`application/x-www-form-urlencoded`), read while the body passes.
//!
//! A client may write a form so that weir and the upstream read different values of it: servers differ in what they make of a field that
//! is there twice, of a wrong escape, of `;`, of spaces before a name. So a field counts only if all servers read the same of it.
//!
//! Source: <https://url.spec.whatwg.org/#application/x-www-form-urlencoded>.

use std::sync::Arc;

use super::values::{MAX_TEXT, MAX_TEXTS};

/// The longest name as it is sent. No configuration has a longer one, and each of its bytes may be an escape.
const MAX_NAME: usize = 3 * 1024;

/// A field by this name changes how some servers decode the others.
const CHARSET: &[u8] = b"_charset_";

/// What a form has under a name.
#[derive(Clone, Debug, Default)]
enum Field {
    #[default]
    Absent,
    Text(String),
    /// It is there twice, or too long, or servers read it in different ways.
    Unclear,
}

/// The wanted fields of a form, of which chunks are read that may be cut anywhere.
#[derive(Debug)]
pub struct Fields {
    names: Arc<[String]>,
    fields: Vec<Field>,
    /// Of the pair that is being read, as they were sent.
    name: Vec<u8>,
    value: Vec<u8>,
    in_value: bool,
    /// How many bytes the texts have together.
    texts: usize,
    unreadable: bool,
}

impl Fields {
    /// A form of which nothing has come yet, and the names of the fields that are wanted.
    #[must_use]
    pub fn new(names: Arc<[String]>) -> Self {
        let fields = vec![Field::default(); names.len()];
        Self { names, fields, name: vec![], value: vec![], in_value: false, texts: 0, unreadable: false }
    }

    /// More of it.
    pub fn feed(&mut self, chunk: &[u8]) {
        for &byte in chunk {
            match byte {
                b'&' => self.end_pair(),
                // Some servers end a pair here. Browsers write it as an escape.
                b';' => self.unreadable = true,
                b'=' if !self.in_value => self.in_value = true,
                // One byte more than may be wanted shows that it is too long.
                _ if self.in_value && self.value.len() <= 3 * MAX_TEXT => self.value.push(byte),
                _ if self.in_value => {}
                _ if self.name.len() < MAX_NAME => self.name.push(byte),
                _ => self.unreadable = true,
            }
        }
    }

    /// It ends here.
    pub fn end(&mut self) {
        self.end_pair();
    }

    /// Whether none of its fields can be read.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    /// The value of a field: `None` if the form does not have it, an error if it is unclear.
    ///
    /// # Errors
    /// `()`
    pub fn only(&self, name: &str) -> Result<Option<&str>, ()> {
        let place = self.names.iter().position(|known| known == name).ok_or(())?;
        match self.fields.get(place) {
            Some(Field::Absent) => Ok(None),
            Some(Field::Text(text)) => Ok(Some(text)),
            Some(Field::Unclear) | None => Err(()),
        }
    }

    fn end_pair(&mut self) {
        let (name, value) = (decoded(&self.name), decoded(&self.value));
        self.name.clear();
        self.value.clear();
        self.in_value = false;
        // Of a wrong escape each server makes another name.
        let Some(name) = name.filter(|name| name != CHARSET) else {
            self.unreadable = true;
            return;
        };
        for (wanted, field) in self.names.iter().zip(&mut self.fields) {
            if name == wanted.as_bytes() {
                let text = value.clone().and_then(|value| String::from_utf8(value).ok());
                let text = text.filter(|text| text.len() <= MAX_TEXT && !text.contains('\0'));
                *field = match (&*field, text) {
                    (Field::Absent, Some(text)) if self.texts.saturating_add(text.len()) <= MAX_TEXTS => {
                        self.texts = self.texts.saturating_add(text.len());
                        Field::Text(text)
                    }
                    _ => Field::Unclear,
                };
            } else if is_taken_for(&name, wanted.as_bytes()) {
                *field = Field::Unclear;
            }
        }
    }
}

/// Without `+` and escapes; `None` if an escape is wrong.
fn decoded(sent: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(sent.len());
    let mut bytes = sent.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high << 4 | low).ok()?
            }
            byte => byte,
        });
    }
    Some(out)
}

/// Whether some server takes a field of this name for the wanted one: PHP drops spaces before a name, ends it at a zero byte, reads `.` and
/// a space as `_`, and makes a list of `user[]`.
fn is_taken_for(name: &[u8], wanted: &[u8]) -> bool {
    let plain = |name: &[u8]| -> Vec<u8> {
        let name = name.trim_ascii_start().split(|byte| *byte == 0).next().unwrap_or_default();
        let list = name.iter().position(|byte| *byte == b'[').unwrap_or(name.len());
        let change = |(place, byte): (usize, &u8)| match byte {
            b'.' | b' ' if place < list => b'_',
            byte => *byte,
        };
        name.iter().enumerate().map(change).collect()
    };
    let (name, wanted) = (plain(name), plain(wanted));
    name.strip_prefix(wanted.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"["))
}
