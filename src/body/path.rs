// SPDX-License-Identifier: Apache-2.0
//! The paths of wanted values, compiled once and shared by all streams.
//!
//! A path is a part of JSONPath (RFC 9535), without its leading `$.`:
//!
//! | segment | example | leads to |
//! |---|---|---|
//! | a key | `usage.total_tokens` | a member of an object; ASCII letters and digits, `_` and `-`, and any other letters beyond ASCII |
//! | a quoted key | `labels['a.b']`, `["a b"]` | a member with any key; `\'`, `\"` and `\\` stand for these characters |
//! | an index | `choices[0].text` | an item of an array, counted from 0 |
//! | any index | `[*].usage`, `items[*].n` | all items of an array |
//!
//! A key matches the same characters and nothing else, however the document spells them: `"us\u0065r"` is `user`, `"User"` is not. In a body
//! that a client has written, [`Scanner::only`](super::Scanner::only) does not choose between such two.

use super::search::Search;

/// The most paths in a table of [`Paths::new`].
pub const MAX_PATHS: usize = 20;
/// The most values that a table of [`Paths::grouped`] leads to.
pub const MAX_VALUES: usize = 24;
/// The most paths in a table of [`Paths::grouped`].
pub const MAX_GROUPED: usize = 64;
/// The most segments of a path. Wanted values are never deeper.
pub const MAX_DEPTH: usize = 32;
/// The longest path, in bytes.
pub const MAX_PATH_LENGTH: usize = 512;

/// A set of paths: bit `n` is path `n`. Packed, because a document has many beside 32-bit numbers.
#[repr(Rust, packed(4))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(u64);

impl Set {
    pub(super) const EMPTY: Self = Self(0);

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The first 32 paths of the set, as bits.
    #[expect(clippy::cast_possible_truncation, reason = "it is what is wanted")]
    pub(super) const fn low(self) -> u32 {
        self.0 as u32
    }

    pub(super) const fn from_low(bits: u32) -> Self {
        Self(bits as u64)
    }

    pub(super) const fn of(path: usize) -> Self {
        Self(1 << (path % MAX_GROUPED))
    }

    pub(super) const fn contains(self, path: usize) -> bool {
        path < MAX_GROUPED && !self.and(Self::of(path)).is_empty()
    }

    pub(super) fn paths(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let path = left.trailing_zeros() as usize;
            left &= left.checked_sub(1)?;
            Some(path)
        })
    }

    /// The paths that pass.
    pub(super) fn filter(self, pass: impl Fn(usize) -> bool) -> Self {
        self.paths().filter(|path| pass(*path)).map(Self::of).fold(Self::EMPTY, Self::with)
    }
}

/// One step into the document.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Key(Box<[u8]>),
    Index(u32),
    AnyIndex,
}

impl Segment {
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Key(key) => Some(key),
            Self::Index(_) | Self::AnyIndex => None,
        }
    }
}

/// The paths that begin with one kind of segment, by the number of segments before it.
type ByDepth = [Set; MAX_DEPTH];

/// Compiled paths. The values that they lead to are numbered in the order in which the paths, or their groups, were given.
#[derive(Clone, Debug)]
pub struct Paths {
    paths: Vec<Vec<Segment>>,
    /// The value that each path leads to; empty if each leads to one of its own.
    values: Vec<u8>,
    all: Set,
    keys: ByDepth,
    /// The same by key, because many paths have a key in common.
    by_key: [Vec<(Box<[u8]>, Set)>; MAX_DEPTH],
    any_index: ByDepth,
    indexes: ByDepth,
    /// The paths with this many segments, minus one.
    ends: ByDepth,
    /// True if a client has written the bodies: see [`Paths::of_clients`].
    of_clients: bool,
    /// Finds where a value may stand. `None`: some path has no key, so each document has to be read.
    search: Option<Search>,
}

impl Paths {
    /// Compiles up to [`MAX_PATHS`] paths; the module's documentation has their syntax.
    ///
    /// # Errors
    /// [`PathError`] for the first path that is wrong.
    pub fn new(paths: &[&str]) -> Result<Self, PathError> {
        if paths.len() > MAX_PATHS {
            return Err((0, "at most 20 paths"));
        }
        let mut table = Self::compiled(paths)?;
        let keys = table.paths.iter().filter_map(|path| path.iter().rev().find_map(Segment::key));
        let search = (keys.clone().count() == table.paths.len()).then(|| Search::new(b"\"", keys));
        table.search = search;
        Ok(table)
    }

    /// Compiles up to [`MAX_GROUPED`] paths, each with the number of the value that it leads to, below [`MAX_VALUES`]: of the paths to one
    /// value, the last number counts. From [`MAX_PATHS`] on, the numbers of one document add up. A document of a stream has a value only if
    /// one of its keys ends with one of `ends`, so others are not read. In a document that is an array, each path begins at the items.
    ///
    /// # Errors
    /// [`PathError`] for the first path that is wrong.
    pub fn grouped(paths: &[(u8, &str)], ends: &[&str]) -> Result<Self, PathError> {
        let texts: Vec<_> = paths.iter().map(|(_, text)| *text).take(MAX_GROUPED).collect();
        let mut table = Self::compiled(&texts)?;
        table.values = paths.iter().map(|(value, _)| *value).collect();
        table.search = Some(Search::new(b"", ends.iter().map(|end| end.as_bytes())));
        Ok(table)
    }

    /// For bodies that clients write: also a key that only some servers take for the one of a path makes that path ambiguous.
    #[must_use]
    pub fn of_clients(self) -> Self {
        Self { of_clients: true, ..self }
    }

    fn compiled(paths: &[&str]) -> Result<Self, PathError> {
        let no_paths = [Set::EMPTY; MAX_DEPTH];
        let mut table = Self {
            paths: Vec::with_capacity(paths.len()),
            values: Vec::new(),
            all: Set::EMPTY,
            keys: no_paths,
            by_key: [const { Vec::new() }; MAX_DEPTH],
            any_index: no_paths,
            indexes: no_paths,
            ends: no_paths,
            of_clients: false,
            search: None,
        };
        for (path, text) in paths.iter().enumerate() {
            let segments = compile(text)?;
            let this = Set::of(path);
            table.all = table.all.with(this);
            for (depth, segment) in segments.iter().enumerate() {
                let kind = match segment {
                    Segment::Key(_) => &mut table.keys,
                    Segment::Index(_) => &mut table.indexes,
                    Segment::AnyIndex => &mut table.any_index,
                };
                add(kind, depth, this);
                if let Segment::Key(key) = segment {
                    table.add_key(key, depth, this);
                }
            }
            add(&mut table.ends, segments.len().saturating_sub(1), this);
            table.paths.push(segments);
        }
        Ok(table)
    }

    fn add_key(&mut self, key: &[u8], depth: usize, path: Set) {
        let Some(keys) = self.by_key.get_mut(depth) else { return };
        match keys.iter_mut().find(|(other, _)| **other == *key) {
            Some((_, paths)) => *paths = paths.with(path),
            None => keys.push((key.into(), path)),
        }
    }

    /// The key that the path of this number begins with; `None` if it begins with an index.
    pub(crate) fn first_key(&self, path: usize) -> Option<&[u8]> {
        self.paths.get(path)?.first()?.key()
    }

    /// The number of paths.
    #[must_use]
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    pub(super) fn all(&self) -> Set {
        self.all
    }

    /// True if it is a table of [`Paths::grouped`].
    pub(super) const fn is_grouped(&self) -> bool {
        !self.values.is_empty()
    }

    pub(super) const fn search(&self) -> Option<&Search> {
        self.search.as_ref()
    }

    /// The values that the paths among `paths` lead to whose segment after `depth` others is their last.
    pub(super) fn ended(&self, paths: Set, depth: usize) -> Set {
        // Most values are on the way of no path.
        if paths.is_empty() { paths } else { self.values(paths.and(at(&self.ends, depth))) }
    }

    /// The values that these paths lead to.
    pub(super) fn values(&self, paths: Set) -> Set {
        if self.values.is_empty() || paths.is_empty() {
            return paths;
        }
        let value = |path| self.values.get(path).copied().unwrap_or_default();
        paths.paths().map(|path| Set::of(value(path).into())).fold(Set::EMPTY, Set::with)
    }

    /// The paths among `paths` whose segment after `depth` others is a key.
    pub(super) fn with_key(&self, paths: Set, depth: usize) -> Set {
        paths.and(at(&self.keys, depth))
    }

    /// True if a client has written the bodies: some servers may confuse a key with another one.
    pub(super) const fn are_of_clients(&self) -> bool {
        self.of_clients
    }

    /// The paths among `paths` whose next segment is an index: some servers also find that as a key of digits.
    pub(super) fn with_index_as_key(&self, paths: Set, depth: usize) -> Set {
        paths.and(at(&self.indexes, depth).with(at(&self.any_index, depth)))
    }

    /// The paths among `paths` whose segment after `depth` others is this index, or any.
    pub(super) fn with_index(&self, paths: Set, depth: usize, index: u32) -> Set {
        let exact = paths.and(at(&self.indexes, depth));
        let exact = exact.filter(|path| self.segment(path, depth) == Some(&Segment::Index(index)));
        exact.with(paths.and(at(&self.any_index, depth)))
    }

    /// The paths among `paths` whose key after `depth` other segments passes.
    pub(super) fn whose_key(&self, paths: Set, depth: usize, pass: impl Fn(&[u8]) -> bool) -> Set {
        let keys = self.by_key.get(depth).map_or(&[][..], Vec::as_slice);
        let passing = keys.iter().filter(|(key, of)| !of.and(paths).is_empty() && pass(key));
        passing.map(|(_, of)| of.and(paths)).fold(Set::EMPTY, Set::with)
    }

    fn segment(&self, path: usize, depth: usize) -> Option<&Segment> {
        self.paths.get(path)?.get(depth)
    }
}

fn at(by_depth: &ByDepth, depth: usize) -> Set {
    by_depth.get(depth).copied().unwrap_or_default()
}

fn add(by_depth: &mut ByDepth, depth: usize, path: Set) {
    if let Some(paths) = by_depth.get_mut(depth) {
        *paths = paths.with(path);
    }
}

/// The place at which a path cannot be compiled, in bytes, and the syntax that is allowed there.
pub type PathError = (usize, &'static str);

fn compile(text: &str) -> Result<Vec<Segment>, PathError> {
    if text.len() > MAX_PATH_LENGTH {
        return Err((MAX_PATH_LENGTH, "at most 512 bytes"));
    }
    let mut segments = Vec::new();
    let mut rest = text;
    loop {
        let byte = text.len() - rest.len();
        if segments.len() == MAX_DEPTH {
            return Err((byte, "at most 32 segments"));
        }
        let (segment, after) = match rest.strip_prefix('[') {
            Some(inner) => bracket(inner, byte + 1)?,
            None => key(rest, byte)?,
        };
        segments.push(segment);
        rest = match after.strip_prefix('.') {
            Some(next) if !next.starts_with('[') => next,
            None if after.starts_with('[') => after,
            None if after.is_empty() => return Ok(segments),
            _ => return Err((text.len() - after.len(), "the end, `.key`, `[0]`, `[*]` or `['key']`")),
        };
    }
}

fn key(text: &str, byte: usize) -> Result<(Segment, &str), PathError> {
    let is_plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || (!c.is_ascii() && c.is_alphanumeric())
    };
    let (key, rest) = text.split_at(text.find(|c| !is_plain(c)).unwrap_or(text.len()));
    if key.is_empty() {
        return Err((
            byte,
            "a key of letters, digits, `_` and `-`; `['key']` for any other, `[*]` for all items of an array",
        ));
    }
    if key.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err((byte, "an index in brackets, as `[0]`; a key of digits in quotes, as `['0']`"));
    }
    Ok((Segment::Key(key.as_bytes().into()), rest))
}

/// Reads the segment in brackets, and returns it with what follows them.
fn bracket(text: &str, byte: usize) -> Result<(Segment, &str), PathError> {
    const ALLOWED: &str = "`[0]`, `[*]` or `['key']`; an index is at most 4294967295";
    let (segment, rest) = if let Some(rest) = text.strip_prefix('*') {
        (Segment::AnyIndex, rest)
    } else if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        quoted(text, quote, byte)?
    } else {
        let (digits, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let leading_zero = digits.len() > 1 && digits.starts_with('0');
        let index = digits.parse().ok().filter(|_| !leading_zero).ok_or((byte, ALLOWED))?;
        (Segment::Index(index), rest)
    };
    match rest.strip_prefix(']') {
        Some(rest) => Ok((segment, rest)),
        None => Err((byte + text.len() - rest.len(), "`]`")),
    }
}

/// A key in quotes, and what follows it.
fn quoted(text: &str, quote: char, byte: usize) -> Result<(Segment, &str), PathError> {
    let mut key = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => {
                let rest = text.get(at + 1..).unwrap_or_default();
                return Ok((Segment::Key(key.into_bytes().into()), rest));
            }
            '\\' => match chars.next() {
                Some((_, c @ ('\\' | '"' | '\''))) => key.push(c),
                _ => return Err((byte + at, r#"`\\`, `\"` or `\'`"#)),
            },
            c => key.push(c),
        }
    }
    Err((byte + text.len(), "the quote that ends the key"))
}
