// SPDX-License-Identifier: Apache-2.0
//! Names and values inside one string: query parameters and cookies. A string is parsed once per request, into ranges. A
//! name is compared while it is decoded; a value is decoded only when its bytes are needed.
//!
//! Servers differ in how they read unusual spellings. So a value counts only if all servers read the same value; otherwise the value of
//! that name is [`Unreadable`].

use core::cmp::Ordering;
use std::borrow::Cow;

use super::Unreadable;
use super::path::{Decoded, Plus, has_wrong_escape};
pub use crate::body::folded;
use crate::body::{begin_differently, is_taken_for};
use crate::inline_vec::InlineVec;

/// The most pairs of a query or of a cookie header that are read. A string with more is ambiguous.
pub const MAX_PAIRS: usize = 256;

/// The bytes of a query, of a cookie header, or of a header on several lines that are read. A longer one is ambiguous.
pub const LONGEST_PAIRS: usize = 16 * 1024;

/// A value as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent<'t> {
    /// Without quotes around it.
    raw: &'t [u8],
    /// With quotes around it, if it has any.
    whole: &'t [u8],
    /// The meaning of `+`, if the value is percent-encoded.
    escaped: Option<Plus>,
}

impl<'t> Sent<'t> {
    /// A value without escapes.
    #[must_use]
    pub const fn plain(raw: &'t [u8]) -> Self {
        Self { raw, whole: raw, escaped: None }
    }

    /// A value that is percent-encoded, with `+` for a space.
    #[must_use]
    pub const fn escaped(raw: &'t [u8]) -> Self {
        Self { raw, whole: raw, escaped: Some(Plus::IsSpace) }
    }

    /// The value of a cookie. Some servers remove quotes around it and decode it, others do neither.
    fn of_cookie(whole: &'t [u8]) -> Result<Self, Unreadable> {
        let raw = match whole.strip_prefix(b"\"") {
            Some(begun) => begun.strip_suffix(b"\"").filter(|raw| !raw.contains(&b'\\')).ok_or(Unreadable)?,
            None => whole,
        };
        let escaped = raw.contains(&b'%').then_some(Plus::IsPlus);
        // Some servers end a value, or all cookies, at a quote within it.
        if raw.contains(&b'"') { Err(Unreadable) } else { Self { raw, whole, escaped }.clear() }
    }

    /// The value, if all servers that decode it read the same: its escapes are right, and it is UTF-8 without a zero byte, at which some
    /// end it, and without a byte order mark, which some drop. Most values are ASCII without escapes.
    fn clear(self) -> Result<Self, Unreadable> {
        let is_clear = match self.escaped {
            _ if self.raw.iter().all(|byte| matches!(byte, 1..=b'$' | b'&'..=0x7f)) => true,
            Some(_) if has_wrong_escape(self.raw) => false,
            _ if self.decoded().all(|byte| byte.is_ascii() && byte != 0) => true,
            _ => core::str::from_utf8(&self.value())
                .is_ok_and(|text| !text.contains('\0') && !text.starts_with('\u{feff}')),
        };
        if is_clear { Ok(self) } else { Err(Unreadable) }
    }

    /// The readings of servers: the value; for a cookie also those of servers that do not decode it, or keep its quotes.
    pub fn readings(self) -> impl Iterator<Item = Self> {
        let undecoded = (self.escaped == Some(Plus::IsPlus)).then_some(Self::plain(self.raw));
        let quoted = (self.whole.len() > self.raw.len()).then_some(Self::plain(self.whole));
        core::iter::once(self).chain(undecoded).chain(quoted)
    }

    /// True if it is the name `wanted`.
    ///
    /// # Errors
    /// [`Unreadable`] if only some servers read it as that name. Servers also read a name with a wrong escape differently.
    pub fn names(&self, wanted: &[u8]) -> Result<bool, Unreadable> {
        // The first byte tells most names apart.
        if let ([first, ..], [other, ..]) = (self.raw, wanted)
            && begin_differently(*first, *other)
            && !self.raw.contains(&b'%')
        {
            return Ok(false);
        }
        if self.equals(wanted) {
            return Ok(true);
        }
        if self.has_wrong_escape() || is_taken_for(self.decoded(), wanted) {
            Err(Unreadable)
        } else {
            Ok(false)
        }
    }

    /// True if servers read it differently as a name, because a `%` in it begins no escape.
    #[must_use]
    pub fn has_wrong_escape(&self) -> bool {
        has_wrong_escape(self.raw)
    }

    /// Its bytes as a name: see [`folded`].
    pub fn folded(self) -> impl Iterator<Item = u8> + use<'t> {
        folded(self.decoded())
    }

    /// True if its value is clear: see [`Sent::names`] for names.
    #[must_use]
    pub fn is_clear(self) -> bool {
        self.clear().is_ok()
    }

    /// The length as it was sent; decoded it is at most as long.
    #[must_use]
    pub const fn sent_length(&self) -> usize {
        self.raw.len()
    }

    /// True if its value is `wanted`. Allocates nothing.
    #[must_use]
    pub fn equals(&self, wanted: &[u8]) -> bool {
        if self.escaped.is_none() {
            return self.raw == wanted;
        }
        // An escape has three bytes.
        let possible = wanted.len()..=wanted.len().saturating_mul(3);
        possible.contains(&self.raw.len()) && self.decoded().eq(wanted.iter().copied())
    }

    /// Compares its value with `other`. Allocates nothing.
    #[must_use]
    pub fn compare(&self, other: &[u8]) -> Ordering {
        if self.escaped.is_none() {
            return self.raw.cmp(other);
        }
        self.decoded().cmp(other.iter().copied())
    }

    /// True if its value begins with `prefix`. Allocates nothing.
    #[must_use]
    pub fn begins_with(&self, prefix: &[u8]) -> bool {
        if self.escaped.is_none() {
            return self.raw.starts_with(prefix);
        }
        let mut decoded = self.decoded();
        prefix.iter().all(|&byte| decoded.next() == Some(byte))
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> Cow<'t, [u8]> {
        if self.escaped.is_none() || !self.raw.iter().any(|byte| matches!(byte, b'%' | b'+')) {
            return Cow::Borrowed(self.raw);
        }
        let mut value = Vec::with_capacity(self.raw.len());
        value.extend(self.decoded());
        Cow::Owned(value)
    }

    fn decoded(&self) -> Decoded<'t> {
        Decoded::new(self.raw, self.escaped)
    }
}

/// The places of the pairs of a string, in order. Pairs without any byte are left out.
#[derive(Debug, Default)]
pub struct Pairs {
    pairs: Vec<Pair>,
    truncated: bool,
}

/// A name from `begin` to `equals`, and a value from after `equals`, where an `=` is, to `end`.
#[derive(Clone, Copy, Debug)]
struct Pair {
    begin: usize,
    equals: usize,
    end: usize,
}

impl Pairs {
    /// The pairs of `text`, each ended by a byte that `ends` says.
    fn parse(text: &[u8], ends: impl Fn(u8) -> bool) -> Self {
        let mut pairs = Self { pairs: Vec::new(), truncated: text.len() > LONGEST_PAIRS };
        let mut begin = 0_usize;
        for pair in text.get(..LONGEST_PAIRS).unwrap_or(text).split(|&byte| ends(byte)) {
            let end = begin.saturating_add(pair.len());
            let equals = pair.iter().position(|&byte| byte == b'=');
            pairs.push(begin, equals.map(|at| begin.saturating_add(at)), end);
            if pairs.truncated {
                break;
            }
            begin = end.saturating_add(1);
        }
        pairs
    }

    fn push(&mut self, begin: usize, equals: Option<usize>, end: usize) {
        if begin >= end {
            return;
        }
        if self.pairs.len() >= MAX_PAIRS {
            self.truncated = true;
            return;
        }
        self.pairs.push(Pair { begin, equals: equals.unwrap_or(end), end });
    }

    /// True if there are more bytes or pairs than are read. Then a name that was not found may still be there.
    #[must_use]
    pub const fn truncated(&self) -> bool {
        self.truncated
    }

    /// The number of pairs that were read; at most [`MAX_PAIRS`].
    #[must_use]
    pub const fn count(&self) -> usize {
        self.pairs.len()
    }

    fn halves<'t>(&self, text: &'t [u8]) -> impl Iterator<Item = (&'t [u8], &'t [u8])> {
        self.pairs.iter().map(move |pair| {
            let name = text.get(pair.begin..pair.equals).unwrap_or_default();
            (name, text.get(pair.equals.saturating_add(1)..pair.end).unwrap_or_default())
        })
    }
}

/// The two readings of a query: parameters end at `&` only, or also at `;`.
#[derive(Debug)]
pub struct Query {
    ampersand: Pairs,
    /// The second reading; `None` if the query has no `;`, because both readings are then equal.
    semicolon: Option<Pairs>,
}

impl Query {
    /// The parameters of `text`.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let both = text.iter().take(LONGEST_PAIRS).any(|&byte| byte == b';');
        Self {
            ampersand: Pairs::parse(text, |byte| byte == b'&'),
            semicolon: both.then(|| Pairs::parse(text, |byte| byte == b'&' || byte == b';')),
        }
    }

    /// The readings of the query. Under [`Semicolon::Literal`] only the first.
    pub fn readings(&self, semicolon: Semicolon) -> impl Iterator<Item = &Pairs> + Clone {
        let second = self.semicolon.as_ref().filter(|_| semicolon == Semicolon::Ambiguous);
        core::iter::once(&self.ampersand).chain(second)
    }
}

/// The meaning of a `;` in a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semicolon {
    /// To some servers the end of a parameter, to others a part of its value.
    #[default]
    Ambiguous,
    /// A part of the value.
    Literal,
}

/// The values of one name.
pub type Values<'t> = InlineVec<Sent<'t>>;

/// The values of the parameter `name` in the `pairs` of the query `text`.
///
/// # Errors
/// [`Unreadable`] if servers differ in what they read under this name.
pub fn parameters<'t>(pairs: &Pairs, text: &'t [u8], name: &[u8]) -> Result<Values<'t>, Unreadable> {
    let named = all_parameters(pairs, text).filter_map(|(key, value)| match key.names(name) {
        Ok(true) => Some(value.clear()),
        Ok(false) => None,
        Err(Unreadable) => Some(Err(Unreadable)),
    });
    named.collect()
}

/// The names and values of all parameters in the `pairs` of the query `text`.
pub fn all_parameters<'t>(pairs: &Pairs, text: &'t [u8]) -> impl Iterator<Item = (Sent<'t>, Sent<'t>)> {
    pairs.halves(text).map(|(name, value)| (Sent::escaped(name), Sent::escaped(value)))
}

/// The pairs of a `cookie` header (RFC 6265 §5.4). A comma also ends a cookie: that is how several header lines arrive as
/// one value.
#[must_use]
pub fn cookies(header: &[u8]) -> Pairs {
    Pairs::parse(header, |byte| byte == b';' || byte == b',')
}

/// The values of the cookie `name` in the `pairs` of the header `text`, decoded and without the quotes around them.
///
/// # Errors
/// [`Unreadable`] if servers differ in what they read under this name, or find several values where one stands.
pub fn cookie<'t>(pairs: &Pairs, text: &'t [u8], name: &[u8]) -> Result<Values<'t>, Unreadable> {
    let named = pairs.halves(text).filter_map(|(key, value)| {
        let key = key.trim_ascii();
        if key == name {
            return Some(Sent::of_cookie(value.trim_ascii()));
        }
        is_taken_for(Decoded::new(key, Some(Plus::IsSpace)), name).then_some(Err(Unreadable))
    });
    named.collect()
}
