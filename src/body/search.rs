// SPDX-License-Identifier: Apache-2.0
//! Finds the places in a stream of documents that may have a wanted value. The documents before that need no reading.
//!
//! A document has a value at a path only if it contains the path's last key: as the path spells it, in quotes, or with an escape. So a
//! document that has neither these bytes nor an escape that may replace a character of a key has no wanted value.

use memchr::memmem::Finder;

use super::path::MAX_PATHS;
use super::run;

/// The most bytes of a needle. Keys that end in the same bytes share one, as those of tokens do: each needle costs a search.
const MAX_NEEDLE: usize = 8;

/// The needles: the end of the last key of each path, and the escapes.
#[derive(Clone, Debug)]
pub(super) struct Search {
    needles: Vec<Finder<'static>>,
}

impl Search {
    /// A search for these keys; with an empty `quote`, for keys that end so.
    pub(super) fn new<'a>(quote: &[u8], keys: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        // Characters that JSON may also write, or must write, as a backslash and one character.
        let is_short = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\' | b'/');
        let escape: &[u8] =
            match keys.clone().flatten().fold((false, true), |(short, ascii), byte| {
                (short || is_short(byte), ascii && byte.is_ascii())
            }) {
                (true, _) => b"\\",
                (false, true) => b"\\u00",
                (false, false) => b"\\u",
            };
        let mut needles = vec![escape.to_vec()];
        for key in keys {
            let quoted = [quote, key, b"\""].concat();
            let end = quoted.last_chunk::<MAX_NEEDLE>().map_or(&*quoted, |end| end);
            if !needles.iter().any(|needle| needle == end) {
                needles.push(end.to_vec());
            }
        }
        Self { needles: needles.iter().map(|needle| Finder::new(needle).into_owned()).collect() }
    }

    /// True if a document may have a wanted value.
    pub(super) fn finds(&self, document: &[u8]) -> bool {
        self.needles.iter().any(|needle| find(needle, document).is_some())
    }
}

/// Finds a needle by its first byte first: most chunks have no backslash, and one byte is found sooner than several.
#[inline(never)]
fn find(needle: &Finder<'_>, bytes: &[u8]) -> Option<usize> {
    let begin = run::first(*needle.needle().first()?, bytes)?;
    Some(begin + needle.find(bytes.get(begin..)?)?)
}

/// A search of one chunk, from its beginning to its end. Each needle passes over each byte once.
pub(super) struct Hits<'a> {
    search: &'a Search,
    chunk: &'a [u8],
    /// The next occurrence of each needle: the end of the chunk, if there is none.
    next: [Option<usize>; MAX_PATHS + 1],
}

impl<'a> Hits<'a> {
    pub(super) const fn new(search: &'a Search, chunk: &'a [u8]) -> Self {
        Self { search, chunk, next: [None; MAX_PATHS + 1] }
    }

    /// Finds the first needle that begins at `from` or later; the end of the chunk, if there is none.
    pub(super) fn first(&mut self, from: usize) -> usize {
        let mut first = self.chunk.len();
        let rest = self.chunk.get(from..).unwrap_or_default();
        for (needle, next) in self.search.needles.iter().zip(&mut self.next) {
            if next.is_none_or(|next| next < from) {
                *next = Some(find(needle, rest).map_or(self.chunk.len(), |place| from + place));
            }
            first = first.min(next.unwrap_or(first));
        }
        first
    }
}

/// The end of a document in a stream. If a chunk cuts the end of a document, or lines end with a CR alone, it is not seen here: the
/// document is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    /// A line feed.
    Line,
    /// A line feed and an empty line.
    EmptyLine,
}

impl Separator {
    /// The length up to the end of the last document that ends in `bytes`; 0 if none does.
    pub(super) fn last(self, bytes: &[u8]) -> usize {
        let mut end = bytes.len();
        while let Some(place) = run::last(b'\n', bytes.get(..end).unwrap_or_default()) {
            if self.ends_at(bytes, place) {
                return place + 1;
            }
            end = place;
        }
        0
    }

    /// The length up to the end of the first document that ends in `bytes`: all of them, if none does.
    pub(super) fn first(self, bytes: &[u8]) -> usize {
        let mut from = 0;
        while let Some(place) = run::first(b'\n', bytes.get(from..).unwrap_or_default()) {
            if self.ends_at(bytes, from + place) {
                return from + place + 1;
            }
            from += place + 1;
        }
        bytes.len()
    }

    /// True if the line feed at `place` ends a document.
    fn ends_at(self, bytes: &[u8], place: usize) -> bool {
        let before = bytes.get(..place).unwrap_or_default();
        match self {
            Self::Line => true,
            Self::EmptyLine => before.strip_suffix(b"\r").unwrap_or(before).ends_with(b"\n"),
        }
    }
}
