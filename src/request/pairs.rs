// SPDX-License-Identifier: Apache-2.0
//! Names and values inside one string: query parameters and cookies. A string is parsed once per request, into ranges. A
//! name is compared while it is decoded; a value is decoded only when its bytes are needed.

use core::cmp::Ordering;
use std::borrow::Cow;

use super::path::{Decoded, Plus};
use crate::inline_vec::InlineVec;

/// The most pairs of a query or of a cookie header that are read. A string with more is ambiguous.
pub const MAX_PAIRS: usize = 256;

/// How many bytes of a query, of a cookie header, or of a header on several lines are read. A longer one is ambiguous.
pub const LONGEST_PAIRS: usize = 16 * 1024;

/// A value as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent<'t> {
    raw: &'t [u8],
    escaped: bool,
}

impl<'t> Sent<'t> {
    /// A value without escapes.
    #[must_use]
    pub const fn plain(raw: &'t [u8]) -> Self {
        Self { raw, escaped: false }
    }

    /// A value that is percent-encoded, with `+` for a space.
    #[must_use]
    pub const fn escaped(raw: &'t [u8]) -> Self {
        Self { raw, escaped: true }
    }

    /// How long it is as it was sent; decoded it is at most as long.
    #[must_use]
    pub const fn sent_length(&self) -> usize {
        self.raw.len()
    }

    /// Whether its value is `wanted`. Allocates nothing.
    #[must_use]
    pub fn equals(&self, wanted: &[u8]) -> bool {
        if !self.escaped {
            return self.raw == wanted;
        }
        // An escape has three bytes.
        let possible = wanted.len()..=wanted.len().saturating_mul(3);
        possible.contains(&self.raw.len()) && self.decoded().eq(wanted.iter().copied())
    }

    /// How its value and `other` are ordered. Allocates nothing.
    #[must_use]
    pub fn compare(&self, other: &[u8]) -> Ordering {
        if !self.escaped {
            return self.raw.cmp(other);
        }
        self.decoded().cmp(other.iter().copied())
    }

    /// Whether its value begins with `prefix`. Allocates nothing.
    #[must_use]
    pub fn begins_with(&self, prefix: &[u8]) -> bool {
        if !self.escaped {
            return self.raw.starts_with(prefix);
        }
        let mut decoded = self.decoded();
        prefix.iter().all(|&byte| decoded.next() == Some(byte))
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> Cow<'t, [u8]> {
        if !self.escaped || !self.raw.iter().any(|byte| matches!(byte, b'%' | b'+')) {
            return Cow::Borrowed(self.raw);
        }
        let mut value = Vec::with_capacity(self.raw.len());
        value.extend(self.decoded());
        Cow::Owned(value)
    }

    const fn decoded(&self) -> Decoded<'t> {
        Decoded::new(self.raw, Plus::IsSpace)
    }
}

/// Where the pairs of a string are, in order. Pairs without any byte are left out.
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
    fn parse(text: &[u8], ends: fn(u8) -> bool) -> Self {
        let mut pairs = Self { pairs: Vec::new(), truncated: text.len() > LONGEST_PAIRS };
        let (mut begin, mut equals) = (0, None);
        let read = text.iter().copied().take(LONGEST_PAIRS).enumerate();
        for (at, byte) in read {
            if ends(byte) {
                pairs.push(begin, equals, at);
                if pairs.truncated {
                    return pairs;
                }
                (begin, equals) = (at.saturating_add(1), None);
            } else if byte == b'=' && equals.is_none() {
                equals = Some(at);
            }
        }
        pairs.push(begin, equals, text.len().min(LONGEST_PAIRS));
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

    /// Whether there are more bytes or pairs than are read. Then a name that was not found may still be there.
    #[must_use]
    pub const fn truncated(&self) -> bool {
        self.truncated
    }

    /// How many pairs were read; at most [`MAX_PAIRS`].
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

/// A query, as a server reads it that ends parameters at `&`, and as one does that ends them at `;` too.
#[derive(Debug)]
pub struct Query {
    ampersand: Pairs,
    /// `None` when no `;` is there, so that it is the same.
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

    /// The readings: parameters end at `&`; and also at `;`, where that is to be told apart.
    pub fn readings(&self, semicolon: Semicolon) -> impl Iterator<Item = &Pairs> + Clone {
        let second = self.semicolon.as_ref().filter(|_| semicolon == Semicolon::Ambiguous);
        core::iter::once(&self.ampersand).chain(second)
    }
}

/// What a `;` in a query means.
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
pub fn parameters<'t>(pairs: &Pairs, text: &'t [u8], name: &[u8]) -> Values<'t> {
    let named = pairs.halves(text).filter(|(key, _)| Sent::escaped(key).equals(name));
    named.map(|(_, value)| Sent::escaped(value)).collect()
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

/// The values of the cookie `name` in the `pairs` of the header `text`, without the quotes around them.
pub fn cookie<'t>(pairs: &Pairs, text: &'t [u8], name: &[u8]) -> Values<'t> {
    let named = pairs.halves(text).filter(|(key, _)| key.trim_ascii() == name);
    let unquoted = named.map(|(_, value)| {
        let value = value.trim_ascii();
        Sent::plain(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
    });
    unquoted.collect()
}
