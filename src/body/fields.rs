// SPDX-License-Identifier: Apache-2.0
//! Fields of HTML forms, read while the body passes.
//!
//! A client may write a form so that weir and the upstream read different values of it: servers differ in what they make of a field that
//! is there twice, of a wrong escape, of spaces before a name. So a field counts only if all servers read the same of it.

use std::rc::Rc;

use super::form::HtmlForm;
use super::multipart::Multipart;
use super::urlencoded::Urlencoded;
use super::values::{Ambiguous, MAX_TEXT, MAX_TEXTS};

/// A field by this name changes how some servers decode the others.
const CHARSET: &[u8] = b"_charset_";

/// The most fields of a form. PHP reads no more (`max_input_vars`), and says nothing.
const MAX_FIELDS: usize = 1000;

/// The value of a form under a name.
#[derive(Clone, Debug, Default)]
enum Field {
    #[default]
    Absent,
    Text(String),
    /// The field is there twice, or too long, or servers read it in different ways.
    Unclear,
}

/// The fields that are wanted, and what the form has of them.
#[derive(Debug)]
pub(super) struct Table {
    names: Rc<[String]>,
    fields: Vec<Field>,
    /// The total length of the texts in bytes.
    texts: usize,
    /// The number of fields of the form.
    count: usize,
    unreadable: bool,
}

impl Table {
    fn new(names: Rc<[String]>) -> Self {
        Self { fields: vec![Field::default(); names.len()], names, texts: 0, count: 0, unreadable: false }
    }

    /// Makes all fields unreadable, because servers differ in how they read this form.
    pub(super) const fn refuse(&mut self) {
        self.unreadable = true;
    }

    /// True if a field has one of the names.
    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.names.iter().any(|wanted| wanted.as_bytes() == name)
    }

    /// Adds a field of the form, with its name decoded. `None`: servers differ in its value, or it is too long.
    pub(super) fn put(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.count = self.count.saturating_add(1);
        self.unreadable |= self.count > MAX_FIELDS;
        self.read(name, value);
    }

    /// Some server reads this name and this value of a field that was added.
    pub(super) fn read(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.unreadable |= name == CHARSET;
        // Some servers drop spaces around a name, and some drop a byte order mark.
        let trimmed = core::str::from_utf8(name).map_or(name, |name| {
            name.trim_matches(|letter: char| letter.is_whitespace() || letter == BYTE_ORDER_MARK).as_bytes()
        });
        for (wanted, field) in self.names.iter().zip(&mut self.fields) {
            if name == wanted.as_bytes() {
                let text = value.and_then(|value| core::str::from_utf8(value).ok());
                let text = text.filter(|text| text.len() <= MAX_TEXT && is_clear(text));
                *field = match (&*field, text) {
                    (Field::Absent, Some(text)) if self.texts.saturating_add(text.len()) <= MAX_TEXTS => {
                        self.texts = self.texts.saturating_add(text.len());
                        Field::Text(text.to_owned())
                    }
                    _ => Field::Unclear,
                };
            } else if is_taken_for(trimmed.iter().copied(), wanted.as_bytes()) {
                *field = Field::Unclear;
            }
        }
    }

    /// Makes fields unclear that a longer name may have. This is its beginning, and some server drops so much of it that less is left than
    /// a field's name has.
    pub(super) fn doubt(&mut self, begin: &[u8]) {
        let left = begun(begin.iter().copied()).count();
        for (wanted, field) in self.names.iter().zip(&mut self.fields) {
            if left < wanted.len() {
                *field = Field::Unclear;
            }
        }
    }

    /// True if the form has none of the fields, and nothing that a server takes for one.
    fn is_empty(&self) -> bool {
        self.fields.iter().all(|field| matches!(field, Field::Absent))
    }
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The wanted fields of a form. Its chunks may be cut anywhere.
#[derive(Debug)]
pub struct Fields {
    table: Table,
    syntax: Syntax,
}

#[derive(Debug)]
enum Syntax {
    Urlencoded(Urlencoded),
    Multipart {
        parts: Box<Multipart>,
        /// The pairs that a server reads if it ignores the type of the form. None of them may be a wanted field.
        pairs: Urlencoded,
        of_pairs: Table,
    },
}

impl Fields {
    /// A form before any of it has arrived, and the names of the fields that are wanted.
    #[must_use]
    pub fn new(form: &HtmlForm, names: Rc<[String]>) -> Self {
        let syntax = match form {
            HtmlForm::Urlencoded => Syntax::Urlencoded(Urlencoded::new()),
            HtmlForm::Multipart { boundary } => Syntax::Multipart {
                parts: Box::new(Multipart::new(boundary)),
                pairs: Urlencoded::names(),
                of_pairs: Table::new(Rc::clone(&names)),
            },
        };
        Self { table: Table::new(names), syntax }
    }

    /// The pairs that Rack finds in the body of a POST without a type. Each of these fields among them is unclear.
    #[must_use]
    pub fn stray(names: Rc<[String]>) -> Self {
        Self { table: Table::new(names), syntax: Syntax::Urlencoded(Urlencoded::names()) }
    }

    /// Reads the next chunk of the form.
    pub fn feed(&mut self, chunk: &[u8]) {
        match &mut self.syntax {
            Syntax::Urlencoded(pairs) => pairs.feed(chunk, &mut self.table),
            Syntax::Multipart { parts, pairs, of_pairs } => {
                parts.feed(chunk, &mut self.table);
                pairs.feed(chunk, of_pairs);
            }
        }
    }

    /// Ends the form.
    pub fn end(&mut self) {
        match &mut self.syntax {
            Syntax::Urlencoded(pairs) => pairs.end(&mut self.table),
            Syntax::Multipart { parts, pairs, of_pairs } => {
                parts.end(&mut self.table);
                pairs.end(of_pairs);
                self.table.unreadable |= !of_pairs.is_empty();
            }
        }
    }

    /// True if none of its fields can be read.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        self.table.unreadable
    }

    /// The value of a field: `None` if the form does not have it, an error if it is unclear.
    ///
    /// # Errors
    /// [`Ambiguous`]
    pub fn only(&self, name: &str) -> Result<Option<&str>, Ambiguous> {
        let Table { names, fields, .. } = &self.table;
        let place = names.iter().position(|known| known == name).ok_or(Ambiguous)?;
        match fields.get(place) {
            Some(Field::Absent) => Ok(None),
            Some(Field::Text(text)) => Ok(Some(text)),
            Some(Field::Unclear) | None => Err(Ambiguous),
        }
    }
}

/// True if all servers read the same of a decoded text: it has no byte order mark at its beginning, which some drop, no zero byte, at which
/// some end it, and no other control character, which Tornado takes for a space.
pub fn is_clear(text: &str) -> bool {
    !text.starts_with(BYTE_ORDER_MARK)
        && text.bytes().all(|byte| byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r'))
}

/// Takes what some server drops at the ends of a name from the beginning of these bytes: a space or a byte order mark, in UTF-8 or Latin-1,
/// or a control character that is a space to Python. Returns whether there was one.
fn take_blank(bytes: &mut (impl Iterator<Item = u8> + Clone)) -> bool {
    let mut ahead = bytes.clone();
    let mut next = || ahead.next().unwrap_or_default();
    let last = match next() {
        b'\t'..=b'\r' | 0x1c..=b' ' | 0x85 | 0xa0 => 0,
        0xc2 if matches!(next(), 0x85 | 0xa0) => 1,
        first @ (0xe1..=0xe3 | 0xef) => match (first, next(), next()) {
            (0xe1, 0x9a, 0x80)
            | (0xe2, 0x80, 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf)
            | (0xe2, 0x81, 0x9f)
            | (0xe3, 0x80, 0x80)
            | (0xef, 0xbb, 0xbf) => 2,
            _ => return false,
        },
        _ => return false,
    };
    bytes.nth(last).is_some()
}

/// A name without what some server drops before it. `URLSearchParams` drops a `?` before the first one, and Spring a `!`.
fn begun<N: Iterator<Item = u8> + Clone>(mut name: N) -> N {
    loop {
        let mut rest = name.clone();
        match rest.next() {
            Some(b'[' | b']' | b'?' | b'!') => name = rest,
            Some(b'!'..=b'~') => return name,
            _ if take_blank(&mut name) => {}
            _ => return name,
        }
    }
}

/// A name without what some server drops of it.
fn plain(name: impl Iterator<Item = u8> + Clone) -> impl Iterator<Item = u8> + Clone {
    begun(name).take_while(|&byte| byte != 0).filter(|&byte| byte != b']')
}

const fn is_bracket(byte: u8) -> bool {
    matches!(byte, b'[' | b']')
}

/// True if servers make different lists of a name: PHP and Express drop what stands between a `]` and the next `[`, Rack all but one of
/// several brackets. Such a name may be any list of what stands before its first bracket.
pub fn has_odd_brackets(name: impl Iterator<Item = u8>) -> bool {
    let mut last = 0;
    let mut pairs = name.map(move |byte| (core::mem::replace(&mut last, byte), byte));
    pairs.any(|(last, byte)| last == b']' && !is_bracket(byte) || (last, byte) == (b'[', b'['))
}

/// True if Express takes what stands before an `=` of this value, as it was sent, for a part of the name: `user=a]=b` is `user=a]` to it.
pub fn has_late_equals(value: &[u8]) -> bool {
    let mut before = value.rsplit(|&byte| byte == b'=').skip(1);
    before.any(|before| matches!(before, [.., b']'] | [.., b'%', b'5', b'D' | b'd']))
}

/// One byte for all that some server reads alike.
const fn loosely(byte: u8) -> u8 {
    if matches!(byte, b'.' | b' ' | b'[') { b'_' } else { byte.to_ascii_lowercase() }
}

/// True if a name that begins with the one letter or digit is never [taken for](is_taken_for) a name that begins with the other.
pub const fn begin_differently(one: u8, other: u8) -> bool {
    one.is_ascii_alphanumeric() && other.is_ascii_alphanumeric() && !one.eq_ignore_ascii_case(&other)
}

/// The bytes of a name, alike for all that are [taken for](is_taken_for) each other: the wanted name's are the first of the other's, and
/// behind them is nothing, a `_` or a blank.
pub fn folded(name: impl Iterator<Item = u8> + Clone) -> impl Iterator<Item = u8> {
    plain(name).map(loosely)
}

/// True if some server takes a parameter, a cookie or a field of this other name, decoded, for the wanted one. PHP ends a name at a zero
/// byte, drops spaces before it, makes a list of `user[]`, and reads `.`, a space and a `[` without its end as `_`. Rails and Express read
/// `[user]` as `user`. ASP.NET ignores the case of names. Some servers drop a byte order mark, or spaces after a name. A name with
/// [odd brackets](has_odd_brackets) is taken for each list of what stands before them.
pub fn is_taken_for(name: impl Iterator<Item = u8> + Clone, wanted: &[u8]) -> bool {
    let mut rest = plain(name.clone());
    let is_alike = plain(wanted.iter().copied()).all(|byte| rest.next().map(loosely) == Some(loosely(byte)))
        && {
            let is_list = rest.clone().next() == Some(b'[');
            while take_blank(&mut rest) {}
            is_list || rest.next().is_none()
        };
    is_alike || {
        let mut wanted = begun(wanted.iter().copied()).map(loosely);
        let mut begin = begun(name.clone()).take_while(|&byte| !is_bracket(byte)).map(loosely);
        begin.all(|byte| wanted.next() == Some(byte))
            && wanted.next().is_none_or(|next| next == b'_')
            && has_odd_brackets(name)
    }
}
