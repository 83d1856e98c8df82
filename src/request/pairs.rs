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
use crate::body::{begin_differently, has_late_equals, has_odd_brackets, is_clear, is_taken_for};
use crate::inline_vec::InlineVec;

/// The most pairs of a query or of a cookie header that are read. A string with more is ambiguous.
pub const MAX_PAIRS: usize = 256;

/// The bytes of a query, of a cookie header, or of a header on several lines that are read. A longer one is ambiguous.
pub const LONGEST_PAIRS: usize = 16 * 1024;

/// A value as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent<'t> {
    /// Without quotes around it, or the `=` of a cookie behind it.
    raw: &'t [u8],
    /// With them, if it has any.
    whole: &'t [u8],
    /// The meaning of `+`, if the value is percent-encoded.
    escaped: Option<Plus>,
    /// True if it is known to be ASCII without escapes and zero bytes. Then all servers read the same value.
    is_simple: bool,
}

impl<'t> Sent<'t> {
    /// A value without escapes.
    #[must_use]
    pub const fn plain(raw: &'t [u8]) -> Self {
        Self { raw, whole: raw, escaped: None, is_simple: false }
    }

    /// A name or a value of a query: it is percent-encoded, with `+` for a space.
    const fn of_query(raw: &'t [u8], is_simple: bool) -> Self {
        Self { raw, whole: raw, escaped: if is_simple { None } else { Some(Plus::IsSpace) }, is_simple }
    }

    /// The value of a cookie. Some servers remove quotes around it and decode it, others do neither. Undertow ends it before the `=` of
    /// base64, unless in quotes.
    fn of_cookie(whole: &'t [u8]) -> Result<Self, Unreadable> {
        let bare = Some(without_padding(whole)).filter(|bare| !bare.contains(&b'%')).unwrap_or(whole);
        let (raw, first, ends) = match whole.strip_prefix(b"\"") {
            Some(begun) => (begun.strip_suffix(b"\"").ok_or(Unreadable)?, b' ', class::GAP),
            None if is_cut_at_equals(bare) => return Err(Unreadable),
            None => (bare, b'!', class::GAP | class::SEPARATOR),
        };
        // Some servers end a value, or all cookies, at any other byte, or drop it.
        let is_octet = |byte: &u8| class::of(*byte) & ends == 0 || *byte == first;
        let escaped = raw.contains(&b'%').then_some(Plus::IsPlus);
        let sent = Self { raw, whole, escaped, is_simple: false };
        // Express reads what follows this as JSON.
        if !raw.iter().all(is_octet) || sent.begins_with(b"j:") { Err(Unreadable) } else { sent.clear() }
    }

    /// The value, if it is clear.
    fn clear(self) -> Result<Self, Unreadable> {
        if self.is_clear() { Ok(self) } else { Err(Unreadable) }
    }

    /// True if all servers that decode the value read the same: bytes beyond ASCII are escapes, because some servers take others for Latin-1,
    /// its escapes are right, and what they decode to [is clear](is_clear). See [`Sent::names`] for names.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.is_simple || self.is_clear_text()
    }

    /// The same, byte by byte. Most of these values are ASCII without escapes, too. Express may find another name before a
    /// [late](has_late_equals) `=`.
    #[inline(never)]
    fn is_clear_text(&self) -> bool {
        let is_plain = |byte| matches!(byte, b' '..=0x7f);
        self.raw.iter().all(|&byte| is_plain(byte) && !matches!(byte, b'%' | b'='))
            || self.raw.is_ascii()
                && !has_wrong_escape(self.raw)
                && !(self.escaped == Some(Plus::IsSpace) && has_late_equals(self.raw))
                && (self.decoded().all(is_plain) || core::str::from_utf8(&self.value()).is_ok_and(is_clear))
    }

    /// True if it is known to have one of the [readings](Sent::readings) only, as most values of queries have.
    #[must_use]
    pub const fn has_one_reading(&self) -> bool {
        self.is_simple
    }

    /// The readings of servers: the value; for a cookie also those of servers that do not decode it, or keep its quotes or the `=` behind it.
    pub fn readings(self) -> impl Iterator<Item = Self> {
        let undecoded = (self.escaped == Some(Plus::IsPlus)).then_some(Self::plain(self.raw));
        let quoted = (self.whole.len() > self.raw.len()).then_some(Self::plain(self.whole));
        core::iter::once(self).chain(undecoded).chain(quoted)
    }

    /// True if it is the name `wanted`.
    ///
    /// # Errors
    /// [`Unreadable`] if only some servers read it as that name. Servers also read a name with a wrong escape differently.
    #[inline]
    pub fn names(&self, wanted: &[u8]) -> Result<bool, Unreadable> {
        if self.is_simple && self.raw == wanted {
            return Ok(true);
        }
        // The first byte tells most names apart.
        if let ([first, ..], [other, ..]) = (self.raw, wanted)
            && begin_differently(*first, *other)
            && (self.is_simple || !self.raw.contains(&b'%'))
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
        !self.is_simple && has_wrong_escape(self.raw)
    }

    /// True if servers make different lists of it as a name: see [`has_odd_brackets`].
    #[must_use]
    pub fn has_odd_brackets(&self) -> bool {
        let may_have = !self.is_simple || self.raw.iter().any(|byte| matches!(byte, b'[' | b']'));
        may_have && has_odd_brackets(self.decoded())
    }

    /// Its bytes as a name: see [`folded`].
    pub fn folded(self) -> impl Iterator<Item = u8> + use<'t> {
        folded(self.decoded())
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
        if self.escaped.is_none() {
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

/// A value without the `=` that base64 ends with.
fn without_padding(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text)
}

/// True if Undertow ends this value at an `=`. The `=` before a `|` are no doubt: oauth2-proxy writes them, and reads its cookie itself.
fn is_cut_at_equals(value: &[u8]) -> bool {
    let mut parts = value.rsplit(|&byte| byte == b'|');
    let last = parts.next().unwrap_or_default();
    last.contains(&b'=') || parts.any(|part| without_padding(part).contains(&b'='))
}

/// The classes of each byte. Most bytes have none.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    classes[b'&' as usize] = class::AMPERSAND;
    classes[b';' as usize] = class::SEMICOLON;
    classes[b',' as usize] = class::COMMA;
    classes[b'=' as usize] = class::EQUALS;
    classes[b'%' as usize] = class::NOT_SIMPLE;
    classes[b'+' as usize] = class::NOT_SIMPLE;
    classes[b'"' as usize] = class::GAP;
    classes[b' ' as usize] = class::GAP;
    classes[b'[' as usize] = class::GAP;
    classes[b']' as usize] = class::GAP;
    classes[b'\\' as usize] = class::GAP;
    let (separators, mut byte) = (b"()<>?@{}", 0);
    while byte < separators.len() {
        classes[separators[byte] as usize] = class::SEPARATOR;
        byte += 1;
    }
    byte = 0;
    while byte < classes.len() {
        if byte < b' ' as usize || byte > b'~' as usize {
            classes[byte] = class::NOT_SIMPLE | class::GAP;
        }
        byte += 1;
    }
    classes
};

/// The classes of bytes. Each is a bit.
mod class {
    /// The classes of this byte.
    pub(super) fn of(byte: u8) -> u8 {
        super::CLASSES.get(usize::from(byte)).copied().unwrap_or_default()
    }

    pub(super) const AMPERSAND: u8 = 1;
    pub(super) const SEMICOLON: u8 = 1 << 1;
    pub(super) const COMMA: u8 = 1 << 2;
    pub(super) const EQUALS: u8 = 1 << 3;
    /// A server may read it as something else.
    pub(super) const NOT_SIMPLE: u8 = 1 << 4;
    /// In a cookie, some servers end a value at it, and find another cookie behind it.
    pub(super) const GAP: u8 = 1 << 5;
    /// No byte has it: a value in quotes has a `;`.
    pub(super) const UNCLEAR: u8 = 1 << 6;
    /// In a cookie, Undertow ends a value at it, unless in quotes.
    pub(super) const SEPARATOR: u8 = 1 << 7;
}

/// The places of the pairs of a string, in order. Pairs without any byte are left out.
#[derive(Debug, Default)]
pub struct Pairs {
    pairs: Vec<Pair>,
    truncated: bool,
    /// The classes of the bytes that were read, except of those that end pairs.
    classes: u8,
}

/// A name from `begin` to `equals`, and a value from after `equals`, where an `=` is, to `end`.
#[derive(Clone, Copy, Debug)]
struct Pair {
    begin: usize,
    equals: usize,
    end: usize,
    /// The classes of the bytes of its name, and of its value.
    classes: (u8, u8),
}

impl Pairs {
    /// The pairs of `text`, each ended by a byte of these classes. Looks at each byte once.
    fn parse(text: &[u8], ends: u8) -> Self {
        let mut pairs = Self { truncated: text.len() > LONGEST_PAIRS, ..Self::default() };
        let text = text.get(..LONGEST_PAIRS).unwrap_or(text);
        // The place of the `=` and the classes of the name before it; the classes since then.
        let (mut begin, mut name, mut seen) = (0, None, 0);
        for (at, &byte) in text.iter().enumerate() {
            let class = class::of(byte);
            if class & (ends | class::EQUALS) == 0 {
                seen |= class;
            } else if class & ends > 0 {
                pairs.push(begin, name, (at, seen));
                if pairs.truncated {
                    return pairs;
                }
                (begin, name, seen) = (at.saturating_add(1), None, 0);
            } else if name.is_none() {
                (name, seen) = (Some((at, seen)), 0);
            } else {
                seen |= class::NOT_SIMPLE;
            }
        }
        pairs.push(begin, name, (text.len(), seen));
        pairs
    }

    fn push(&mut self, begin: usize, name: Option<(usize, u8)>, (end, seen): (usize, u8)) {
        if begin >= end {
            return;
        }
        if self.pairs.len() >= MAX_PAIRS {
            self.truncated = true;
            return;
        }
        // Without `=`, all of it is the name.
        let ((equals, of_name), of_value) = name.map_or(((end, seen), 0), |name| (name, seen));
        self.classes |= of_name | of_value;
        self.pairs.push(Pair { begin, equals, end, classes: (of_name, of_value) });
    }

    /// Adds the names of cookies that only some servers find within others: those with `=` behind a space or another [gap](class::GAP).
    /// Without a value, none of them is clear.
    fn add_hidden(&mut self, text: &[u8]) {
        for place in 0..self.pairs.len() {
            let Some(pair) = self.pairs.get(place) else { return };
            let (begin, end) = (pair.begin, pair.end);
            let bytes = text.get(begin..end).unwrap_or_default();
            let spaces = bytes.iter().take_while(|&&byte| byte == b' ').count();
            let (name, value) = pair.halves(text);
            let is_gap = |byte: u8| class::of(byte) & class::GAP > 0;
            let name = name.get(spaces..).unwrap_or_default();
            if pair.classes.1 & class::GAP == 0 && !name.iter().any(|&byte| is_gap(byte)) {
                continue;
            }
            if quotes_semicolon(text.get(end.saturating_sub(value.len())..).unwrap_or_default()) {
                self.classes |= class::UNCLEAR;
            }
            let (mut after_gap, mut hidden) = (false, None);
            for (at, &byte) in bytes.iter().enumerate().skip(spaces) {
                match byte {
                    b'=' => {
                        if let Some(hidden) = hidden.take() {
                            self.push(begin.saturating_add(hidden), None, (begin.saturating_add(at), 0));
                        }
                    }
                    byte if is_gap(byte) => {
                        after_gap = true;
                        hidden = hidden.filter(|_| byte.is_ascii_whitespace());
                    }
                    _ if after_gap => (after_gap, hidden) = (false, Some(at)),
                    _ => {}
                }
            }
        }
    }

    /// True if any name or value may have a bracket.
    #[must_use]
    pub const fn may_have_brackets(&self) -> bool {
        self.classes & (class::GAP | class::NOT_SIMPLE) > 0
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
}

impl Pair {
    /// True if a comma is before it or behind it.
    fn is_beside_comma(self, text: &[u8]) -> bool {
        let before = self.begin.checked_sub(1).and_then(|before| text.get(before));
        before == Some(&b',') || text.get(self.end) == Some(&b',')
    }

    /// True if it has no `=`: all of it is the name.
    const fn is_name(self) -> bool {
        self.equals == self.end
    }

    fn halves(self, text: &[u8]) -> (&[u8], &[u8]) {
        let name = text.get(self.begin..self.equals).unwrap_or_default();
        (name, text.get(self.equals.saturating_add(1)..self.end).unwrap_or_default())
    }
}

/// The readings of a query: parameters end at `&` only; those that have a `;` are no parameters, as in Go; parameters end at `;`, too.
#[derive(Debug)]
pub struct Query {
    ampersand: Pairs,
    /// The other readings. There are none if the query has no `;`, because all readings are then equal, or if the first is truncated
    /// before a `;`: then it decides.
    others: Option<Box<[Pairs; 2]>>,
}

impl Query {
    /// The parameters of `text`.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let ampersand = Pairs::parse(text, class::AMPERSAND);
        let others = (ampersand.classes & class::SEMICOLON > 0).then(|| {
            let is_kept = |pair: &&Pair| (pair.classes.0 | pair.classes.1) & class::SEMICOLON == 0;
            let pairs = ampersand.pairs.iter().filter(is_kept).copied().collect();
            Box::new([Pairs { pairs, ..ampersand }, Pairs::parse(text, class::AMPERSAND | class::SEMICOLON)])
        });
        Self { ampersand, others }
    }

    /// The readings of the query. Under [`Semicolon::Literal`] only the first.
    pub fn readings(&self, semicolon: Semicolon) -> impl Iterator<Item = &Pairs> + Clone {
        let others = self.others.iter().filter(move |_| semicolon == Semicolon::Ambiguous);
        core::iter::once(&self.ampersand).chain(others.flat_map(|others| others.iter()))
    }
}

/// The meaning of a `;` in a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semicolon {
    /// To some servers the end of a parameter, to others a part of its value. Go drops the parameter.
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
    pairs.pairs.iter().map(move |pair| {
        let (name, value) = pair.halves(text);
        let is_simple = |classes: u8| classes & class::NOT_SIMPLE == 0;
        (Sent::of_query(name, is_simple(pair.classes.0)), Sent::of_query(value, is_simple(pair.classes.1)))
    })
}

/// The pairs of a `cookie` header (RFC 6265 §5.4). A comma also ends a cookie: that is how several header lines arrive as
/// one value. Many servers read it as a part of the value, so what is beside a comma has two readings: see [`cookie`].
#[must_use]
pub fn cookies(header: &[u8]) -> Pairs {
    let mut pairs = Pairs::parse(header, class::SEMICOLON | class::COMMA);
    pairs.add_hidden(header);
    pairs
}

/// True if this begins with a quote, and a `;` comes before the next one. To some servers that `;` ends no cookie.
fn quotes_semicolon(text: &[u8]) -> bool {
    let mut escaped = false;
    let quoted = text.trim_ascii_start().strip_prefix(b"\"").unwrap_or_default();
    let mut quoted = quoted.iter().take_while(|&&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        !ends
    });
    quoted.any(|&byte| byte == b';')
}

/// The values of the cookie `name` in the `pairs` of the header `text`, decoded and without the quotes around them.
///
/// # Errors
/// [`Unreadable`] if servers differ in what they read under this name, or find several values where one stands.
pub fn cookie<'t>(pairs: &Pairs, text: &'t [u8], name: &[u8]) -> Result<Values<'t>, Unreadable> {
    let named = pairs.pairs.iter().filter_map(|pair| {
        let (mut key, value) = pair.halves(text);
        while let [b' ', rest @ ..] = key {
            key = rest;
        }
        if key == name {
            let is_unclear =
                pair.is_beside_comma(text) || pair.is_name() || pairs.classes & class::UNCLEAR > 0;
            return Some(if is_unclear { Err(Unreadable) } else { Sent::of_cookie(value) });
        }
        is_taken_for(Decoded::new(key, Some(Plus::IsSpace)), name).then_some(Err(Unreadable))
    });
    named.collect()
}
