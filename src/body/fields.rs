// SPDX-License-Identifier: Apache-2.0
//! Values of HTML forms (`application/x-www-form-urlencoded`), read while the body passes.
//!
//! A client may write a form so that weir and the upstream read different values of it: servers differ in what they make of a field that
//! is there twice, of a wrong escape, of `;`, of spaces before a name. So a field counts only if all servers read the same of it.
//!
//! Source: <https://url.spec.whatwg.org/#application/x-www-form-urlencoded>.

use std::sync::Arc;

use super::values::{Ambiguous, MAX_TEXT, MAX_TEXTS};

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
    /// [`Ambiguous`]
    pub fn only(&self, name: &str) -> Result<Option<&str>, Ambiguous> {
        let place = self.names.iter().position(|known| known == name).ok_or(Ambiguous)?;
        match self.fields.get(place) {
            Some(Field::Absent) => Ok(None),
            Some(Field::Text(text)) => Ok(Some(text)),
            Some(Field::Unclear) | None => Err(Ambiguous),
        }
    }

    fn end_pair(&mut self) {
        // Of a wrong escape each server makes another name.
        self.unreadable |= !decode(&mut self.name) || self.name == CHARSET;
        let begun = self.name.trim_ascii_start();
        for (wanted, field) in self.names.iter().zip(&mut self.fields) {
            if self.name == wanted.as_bytes() {
                let text = decode(&mut self.value).then(|| core::str::from_utf8(&self.value).ok()).flatten();
                let text = text.filter(|text| text.len() <= MAX_TEXT && !text.contains('\0'));
                *field = match (&*field, text) {
                    (Field::Absent, Some(text)) if self.texts.saturating_add(text.len()) <= MAX_TEXTS => {
                        self.texts = self.texts.saturating_add(text.len());
                        Field::Text(text.to_owned())
                    }
                    _ => Field::Unclear,
                };
            } else if is_taken_for(begun, wanted.as_bytes()) {
                *field = Field::Unclear;
            }
        }
        self.name.clear();
        self.value.clear();
        self.in_value = false;
    }
}

/// Takes `+` and escapes away; returns `false` if an escape is wrong.
fn decode(text: &mut Vec<u8>) -> bool {
    let (mut from, mut to) = (0, 0);
    while let Some(&byte) = text.get(from) {
        let mut next = from.saturating_add(1);
        let plain = match byte {
            b'+' => b' ',
            b'%' => {
                let digits = text.get(next..next.saturating_add(2));
                let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
                let digits = digits.and_then(|digits| core::str::from_utf8(digits).ok());
                let Some(code) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
                    return false;
                };
                next = next.saturating_add(2);
                code
            }
            byte => byte,
        };
        if let Some(place) = text.get_mut(to) {
            *place = plain;
        }
        (from, to) = (next, to.saturating_add(1));
    }
    text.truncate(to);
    true
}

/// Whether some server takes a field of this name, without spaces before it, for the wanted one: PHP drops them, ends a name at a zero byte,
/// reads `.` and a space as `_`, and makes a list of `user[]`.
fn is_taken_for(name: &[u8], wanted: &[u8]) -> bool {
    fn plain(name: &[u8]) -> impl Iterator<Item = u8> {
        let change = |in_list: &mut bool, byte: &u8| {
            *in_list |= *byte == b'[';
            Some(if matches!(byte, b'.' | b' ') && !*in_list { b'_' } else { *byte })
        };
        name.iter().take_while(|byte| **byte != 0).scan(false, change)
    }
    let mut name = plain(name);
    plain(wanted.trim_ascii_start()).all(|byte| name.next() == Some(byte))
        && matches!(name.next(), None | Some(b'['))
}
