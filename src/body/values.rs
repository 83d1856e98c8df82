// SPDX-License-Identifier: Apache-2.0
//! The values that a scanner has found.

use super::number::Number;
use super::path::{MAX_PATHS, MAX_VALUES, Set};

/// The longest text that is kept, in bytes after its escapes are decoded.
pub const MAX_TEXT: usize = 1024;
/// The bytes of all texts of a stream together.
pub const MAX_TEXTS: usize = 3072;

/// The value at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string, with its escapes decoded.
    Text(&'a str),
    /// A string that is longer than [`MAX_TEXT`], or that found no room in [`MAX_TEXTS`].
    TooLong,
    /// An object or an array.
    Nested,
}

/// A path leads to several values, or a key on it occurs twice in one object, or servers differ in how they read it. Another reader may see
/// another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// The value at a path, without its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Found {
    #[default]
    Nothing,
    Bool(bool),
    Number(Number),
    Text {
        start: u16,
        length: u16,
    },
    TooLong,
    Nested,
}

/// The values at all paths. Texts stand one after the other in `texts`; the one that is being read is the last.
#[derive(Debug, Default)]
pub(super) struct Values {
    found: [Found; MAX_VALUES],
    ambiguous: Set,
    /// The values that the current document has, and those that it had when the last number that counts came.
    document: Set,
    at_number: Option<Set>,
    /// The values of the last document that had such a number.
    counting: Set,
    texts: Vec<u8>,
    /// The start of the text that is being read.
    begun: usize,
    too_long: bool,
}

impl Values {
    pub(super) fn get(&self, path: usize) -> Option<Value<'_>> {
        Some(match *self.found.get(path)? {
            Found::Nothing => return None,
            Found::Bool(value) => Value::Bool(value),
            Found::Number(value) => Value::Number(value),
            Found::Text { start, length } => {
                let (start, length) = (usize::from(start), usize::from(length));
                let text = self.texts.get(start..start + length).unwrap_or_default();
                Value::Text(core::str::from_utf8(text).unwrap_or_default())
            }
            Found::TooLong => Value::TooLong,
            Found::Nested => Value::Nested,
        })
    }

    pub(super) fn is_ambiguous(&self, path: usize) -> bool {
        self.ambiguous.contains(path)
    }

    /// These paths lead through a key that occurs twice.
    pub(super) fn ambiguous(&mut self, paths: Set) {
        self.ambiguous = self.ambiguous.with(paths);
    }

    /// True if no further value at these paths can change what is known of them.
    pub(super) const fn are_ambiguous(&self, paths: Set) -> bool {
        paths.without(self.ambiguous).is_empty()
    }

    /// Ends a document. If it was cut off, the values beside its last number are unknown, except in an array, whose items have ended.
    pub(super) fn end_document(&mut self, is_whole: bool, is_array: bool) {
        let document = core::mem::take(&mut self.document);
        if let Some(at_number) = self.at_number.take() {
            self.counting = match (is_whole, is_array) {
                (true, _) => document,
                (false, true) => at_number,
                (false, false) => Set::EMPTY,
            };
        }
    }

    /// True if the newest document with a number also has a value at this path.
    pub(super) fn is_in_counting(&self, path: usize) -> bool {
        self.counting.contains(path)
    }

    /// A value at each of these paths. One that counts nothing does not hide a number before it.
    pub(super) fn put(&mut self, paths: Set, value: Found) {
        let before = self.document;
        self.document = before.with(paths);
        if value.counts() {
            self.at_number = Some(self.document);
        }
        for path in paths.paths() {
            let Some(found) = self.found.get_mut(path) else { continue };
            if *found != Found::Nothing {
                self.ambiguous = self.ambiguous.with(Set::of(path));
            }
            if value.counts() || !found.counts() {
                *found = match (*found, value) {
                    (Found::Number(sum), Found::Number(number))
                        if path >= MAX_PATHS && before.contains(path) && found.counts() && value.counts() =>
                    {
                        Found::Number(sum.plus(number))
                    }
                    _ => value,
                };
            }
        }
    }

    /// Text begins.
    pub(super) fn begin_text(&mut self) {
        self.texts.truncate(self.begun);
        if self.begun + MAX_TEXT > MAX_TEXTS {
            self.compact();
        }
        self.too_long = false;
    }

    /// More of the text.
    pub(super) fn text(&mut self, bytes: &[u8]) {
        let length = self.texts.len() + bytes.len();
        if length > MAX_TEXTS || length - self.begun > MAX_TEXT {
            self.too_long = true;
        }
        if self.too_long {
            return;
        }
        if length > self.texts.capacity() {
            let capacity = length.next_power_of_two().clamp(128, MAX_TEXTS);
            self.texts.reserve_exact(capacity - self.texts.len());
        }
        self.texts.extend_from_slice(bytes);
    }

    /// The text has ended.
    pub(super) fn end_text(&mut self, paths: Set) {
        let length = self.texts.len() - self.begun;
        let range = u16::try_from(self.begun).ok().zip(u16::try_from(length).ok());
        match range.filter(|_| !self.too_long) {
            Some((start, length)) => {
                self.begun = self.texts.len();
                self.put(paths, Found::Text { start, length });
            }
            None => self.put(paths, Found::TooLong),
        }
    }

    /// Frees the texts that other values have replaced.
    fn compact(&mut self) {
        let mut end = 0;
        // An empty text has no place of its own: `end` passes it without a change.
        while let Some((start, length)) = self.found.iter().filter_map(|it| it.text_from(end)).min() {
            self.texts.drain(end..start);
            for found in &mut self.found {
                if found.text_from(end).is_some()
                    && let Found::Text { start: moved, .. } = found
                {
                    *moved -= u16::try_from(start - end).unwrap_or_default();
                }
            }
            end += length;
        }
        self.texts.truncate(end);
        self.begun = end;
    }

    /// The bytes on the heap.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.texts.capacity()
    }
}

impl Found {
    fn counts(self) -> bool {
        matches!(self, Self::Number(number) if number.counted().is_some())
    }

    /// The place and length of the text, if it is not empty and starts at `end` or later.
    fn text_from(self, end: usize) -> Option<(usize, usize)> {
        match self {
            Self::Text { start, length } if length > 0 && usize::from(start) >= end => {
                Some((start.into(), length.into()))
            }
            _ => None,
        }
    }
}
