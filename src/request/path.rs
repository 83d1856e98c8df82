// SPDX-License-Identifier: Apache-2.0
//! Paths, whatever their spelling. A path has two readings: *literal*, percent-decoded once and otherwise as
//! it was sent, and *resolved*, as a lenient upstream may see it. Policies test both and take the stricter
//! result, so that `/a/../login`, `//login`, `/%6cogin` or `/x/..;/login` do not evade a policy on `/login`.
//!
//! An upstream that does only some of what resolves a path may see a third one: `/api/..;/../login` is `/api/login` to one that
//! resolves `..` and keeps `;parameters`. Such a path is not read: it may be any path.

use core::ops::Range;

use super::pairs::LONGEST_PAIRS;

/// The relation between a path with a slash at its end and the one without: the same path or another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrailingSlash {
    /// Upstreams differ: the path has both readings.
    #[default]
    Ambiguous,
    /// It is another path.
    Distinct,
}

/// The result of decoding a path without its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedPath {
    resolved: Vec<u8>,
    /// `None` when it is the same as `resolved`.
    literal: Option<Vec<u8>>,
    /// See [`DecodedPath::may_be_any`].
    may_be_any: bool,
}

impl DecodedPath {
    /// `None` when nothing in `raw` is decoded or resolved, as in nearly every request.
    #[must_use]
    pub fn new(raw: &[u8]) -> Option<Self> {
        if is_plain(raw) {
            return None;
        }
        let literal = percent_decode(raw, Plus::IsPlus);
        let resolved = resolve(&literal);
        // `$` of Python and PCRE also stands before a line's end: `/login%0a` is `/login` to Starlette, and to locations of nginx.
        let ends_line = literal.last() == Some(&b'\n');
        let literal = Some(literal).filter(|literal| *literal != resolved);
        Some(Self { resolved, literal, may_be_any: ends_line || may_be_any(raw) })
    }

    /// True if upstreams may see a path that is neither of the two readings.
    #[must_use]
    pub const fn may_be_any(&self) -> bool {
        self.may_be_any
    }
}

/// A request path in its two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<'r> {
    resolved: &'r [u8],
    /// `None` when it is the same as `resolved`.
    literal: Option<&'r [u8]>,
}

impl<'r> Path<'r> {
    /// Both readings of `raw`, a path without its query, which is decoded to this.
    #[must_use]
    pub fn new(raw: &'r [u8], decoded: Option<&'r DecodedPath>) -> Self {
        let resolved = decoded.map_or(raw, |decoded| &decoded.resolved);
        Self { resolved, literal: decoded.and_then(|decoded| decoded.literal.as_deref()) }
    }

    /// The path that subjects are made of: decoded once, `\` as `/`, no empty segments, `.` and `..` resolved,
    /// `;parameters` of segments dropped; always begins with `/`.
    #[must_use]
    pub const fn resolved(self) -> &'r [u8] {
        self.resolved
    }

    /// The decoded path as it was sent, when it differs from [`Path::resolved`].
    #[must_use]
    pub const fn literal(self) -> Option<&'r [u8]> {
        self.literal
    }

    /// The resolved path, and the literal one when it differs.
    pub fn readings(self) -> impl Iterator<Item = &'r [u8]> {
        core::iter::once(self.resolved).chain(self.literal)
    }

    /// The resolved path without the slash at its end, if it has one and is not `/`: `/login/` is `/login` to many upstreams.
    #[must_use]
    pub const fn without_slash(self) -> &'r [u8] {
        match self.resolved {
            root @ [_] => root,
            [path @ .., b'/'] => path,
            path => path,
        }
    }

    /// The `index`-th segment of the resolved path, from 1; `None` past the end.
    #[must_use]
    pub fn segment(self, index: usize) -> Option<&'r [u8]> {
        self.resolved.split(|&byte| byte == b'/').nth(index).filter(|segment| !segment.is_empty())
    }
}

/// The treatment of each byte of a path, by its number. Most bytes need none.
#[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
static TREATED: [u8; 256] = {
    let mut treated = [0; 256];
    treated[b'%' as usize] = treated::ALWAYS;
    treated[b'\\' as usize] = treated::ALWAYS;
    treated[b';' as usize] = treated::ALWAYS;
    treated[b'/' as usize] = treated::AFTER_SLASH;
    treated[b'.' as usize] = treated::AFTER_SLASH;
    treated
};

/// The places at which a byte is decoded or resolved. Each is a bit.
mod treated {
    /// Wherever it stands.
    pub(super) const ALWAYS: u8 = 1;
    /// Behind a slash.
    pub(super) const AFTER_SLASH: u8 = 1 << 1;
}

/// True if a path has one reading only, as nearly all have: nothing in it is decoded or resolved. Looks at each byte once: most paths are
/// too short for a search that looks at many at a time.
fn is_plain(raw: &[u8]) -> bool {
    let mut here = treated::ALWAYS;
    let is_left = |&byte: &u8| {
        let is_left = TREATED.get(usize::from(byte)).is_some_and(|treated| treated & here == 0);
        here = if byte == b'/' { treated::ALWAYS | treated::AFTER_SLASH } else { treated::ALWAYS };
        is_left
    };
    raw.first() == Some(&b'/') && raw.iter().all(is_left)
}

/// The changes that upstreams may or may not make to a path before they resolve its `..`. Each is a bit.
mod kind {
    /// Resolve `.` and `..` at all.
    pub(super) const DOTS: u8 = 1;
    /// Decode `%2e`.
    pub(super) const ESCAPED_DOTS: u8 = 1 << 1;
    /// Drop `;parameters`.
    pub(super) const PARAMETERS: u8 = 1 << 2;
    /// Decode `%3b`, and drop what follows.
    pub(super) const ESCAPED_PARAMETERS: u8 = 1 << 3;
    /// Drop empty segments.
    pub(super) const EMPTY: u8 = 1 << 4;
    /// Take `\` for `/`.
    pub(super) const BACKSLASH: u8 = 1 << 5;
    /// Decode `%2f`.
    pub(super) const ESCAPED_SLASH: u8 = 1 << 6;
    /// Decode `%5c`, and take it for `/`.
    pub(super) const ESCAPED_BACKSLASH: u8 = 1 << 7;
}

/// True if a path has a `..` whose result depends on more than one change that upstreams may or may not make, or a `%u`. With one change
/// only, there are two results, which are the two readings.
fn may_be_any(raw: &[u8]) -> bool {
    let (mut kinds, mut climbs) = (0, false);
    let mut segment = Segment::default();
    let mut decoded = Decoded::new(raw, Some(Plus::IsPlus));
    // The slash that a path begins with ends no segment.
    if raw.first() == Some(&b'/') {
        decoded.next();
    }
    loop {
        let before = decoded.rest.len();
        let byte = decoded.next();
        let escaped = before.saturating_sub(decoded.rest.len()) > 1;
        let separator = match (byte, escaped) {
            (None | Some(b'/'), false) => 0,
            (Some(b'/'), _) => kind::ESCAPED_SLASH,
            (Some(b'\\'), false) => kind::BACKSLASH,
            (Some(b'\\'), true) => kind::ESCAPED_BACKSLASH,
            // IIS decodes `%u0061`.
            (Some(b'%'), false) if matches!(decoded.rest, [b'u' | b'U', ..]) => return true,
            (byte, escaped) => {
                segment.add(byte.unwrap_or_default(), escaped);
                continue;
            }
        };
        kinds |= separator | segment.kinds(separator == 0, byte.is_none());
        climbs |= segment.climbs();
        if byte.is_none() {
            return climbs && kinds.count_ones() > 1;
        }
        segment = Segment { after_slash: separator == 0, ..Segment::default() };
    }
}

/// The properties of a segment of a path that decide how it is resolved.
struct Segment {
    /// True if a plain `/` is before it.
    after_slash: bool,
    /// The number of dots in its name.
    dots: usize,
    /// True if its name has anything else.
    named: bool,
    /// The notation of the dots and the `;` in it.
    kinds: u8,
}

impl Default for Segment {
    fn default() -> Self {
        Self { after_slash: true, dots: 0, named: false, kinds: 0 }
    }
}

impl Segment {
    const fn add(&mut self, byte: u8, escaped: bool) {
        match byte {
            _ if self.kinds & (kind::PARAMETERS | kind::ESCAPED_PARAMETERS) != 0 => {}
            b';' if escaped => self.kinds |= kind::ESCAPED_PARAMETERS,
            b';' => self.kinds |= kind::PARAMETERS,
            b'.' => {
                self.dots = self.dots.saturating_add(1);
                if escaped {
                    self.kinds |= kind::ESCAPED_DOTS;
                }
            }
            _ => self.named = true,
        }
    }

    const fn climbs(&self) -> bool {
        !self.named && self.dots == 2
    }

    /// The changes that this segment depends on, if a plain `/` or nothing follows, and if it is the last.
    const fn kinds(&self, before_slash: bool, last: bool) -> u8 {
        match self.dots {
            _ if self.named => 0,
            0 if self.kinds == 0 && last => 0,
            0 => self.kinds | kind::EMPTY,
            // Between other separators they are dots only if these are separators.
            1 | 2 if self.kinds == 0 && self.after_slash && before_slash => kind::DOTS,
            1 | 2 => self.kinds,
            _ => 0,
        }
    }
}

/// The longest path that is read, in bytes. A longer one is ambiguous: it may be any path.
pub const LONGEST_PATH: usize = 8 * 1024;

/// The places of path and query in a request target. A fragment, which a client should not send, belongs to neither; the scheme and
/// authority of an absolute target are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// `None` when the path is longer than [`LONGEST_PATH`] or unreadable: then nothing is known of the query either.
    pub path: Option<Range<usize>>,
    /// The query, without its `?`; one byte more than is read when it is longer than that.
    pub query: Range<usize>,
}

impl Split {
    /// The result for a target whose path is not known.
    pub(super) const UNREADABLE: Self = Self { path: None, query: 0..0 };

    /// Path and query of `target`. Looks at no more bytes than are read of the two.
    #[must_use]
    pub fn new(target: &[u8]) -> Self {
        let head = target.get(..LONGEST_PATH.saturating_add(1)).unwrap_or(target);
        let path = match head.iter().position(|byte| matches!(byte, b'?' | b'#')) {
            None if target.len() > LONGEST_PATH => return Self::UNREADABLE,
            found => found.unwrap_or(target.len()),
        };
        let query = path.saturating_add(1).min(target.len());
        let rest = match target.get(path) {
            Some(b'?') => target.get(query..).unwrap_or_default(),
            _ => &[],
        };
        let rest = rest.get(..LONGEST_PAIRS.saturating_add(1)).unwrap_or(rest);
        let length = rest.iter().position(|&byte| byte == b'#').unwrap_or(rest.len());
        let begin = authority(target.get(..path).unwrap_or_default());
        Self { path: Some(begin..path), query: query..query.saturating_add(length) }
    }
}

/// The length of scheme and authority before a path.
fn authority(path: &[u8]) -> usize {
    if path.first() == Some(&b'/') {
        return 0;
    }
    let Some(scheme) = path.windows(3).position(|window| window == b"://") else { return 0 };
    let after = scheme.saturating_add(3);
    let rest = path.get(after..).unwrap_or_default();
    after.saturating_add(rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len()))
}

/// The meaning of `+`: a space in a query, itself in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plus {
    IsPlus,
    IsSpace,
}

/// `%41` becomes `A`; a `%` that begins no escape stays as it is. Once only: what an escape hides stays hidden. `None`: nothing is decoded.
#[derive(Clone)]
pub(crate) struct Decoded<'t> {
    rest: &'t [u8],
    escaped: Option<Plus>,
}

impl<'t> Decoded<'t> {
    pub(crate) const fn new(text: &'t [u8], escaped: Option<Plus>) -> Self {
        Self { rest: text, escaped }
    }
}

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&byte, after) = self.rest.split_first()?;
        self.rest = after;
        Some(match (byte, after) {
            (b'%', [high, low, rest @ ..]) if self.escaped.is_some() => match hex(*high).zip(hex(*low)) {
                Some((high, low)) => {
                    self.rest = rest;
                    high << 4 | low
                }
                None => byte,
            },
            (b'+', _) if self.escaped == Some(Plus::IsSpace) => b' ',
            (byte, _) => byte,
        })
    }
}

/// True if a `%` in it begins no escape.
pub(crate) fn has_wrong_escape(text: &[u8]) -> bool {
    let is_right = |after: &[u8]| matches!(after, [high, low, ..] if hex(*high).and(hex(*low)).is_some());
    text.split(|&byte| byte == b'%').skip(1).any(|after| !is_right(after))
}

fn percent_decode(text: &[u8], plus: Plus) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    out.extend(Decoded::new(text, Some(plus)));
    out
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
        b'A'..=b'F' => Some(digit.wrapping_sub(b'A').wrapping_add(10)),
        _ => None,
    }
}

/// The path a lenient upstream may see in a decoded path.
fn resolve(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len().saturating_add(1));
    out.push(b'/');
    let mut segments = path.split(|&byte| byte == b'/' || byte == b'\\').peekable();
    while let Some(segment) = segments.next() {
        let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
        match name {
            b"" | b"." => {}
            b".." => {
                out.pop();
                let parent = out.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                out.truncate(parent.saturating_add(1));
                if out.is_empty() {
                    out.push(b'/');
                }
            }
            name => {
                out.extend_from_slice(name);
                if segments.peek().is_some() {
                    out.push(b'/');
                }
            }
        }
    }
    out
}
