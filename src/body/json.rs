// SPDX-License-Identifier: Apache-2.0
//! A JSON document (RFC 8259), byte by byte. Its syntax is checked everywhere; values are kept only at wanted paths.
//!
//! ```text
//!  Value ──▶ Text ⇄ Escape, Unicode, Surrogate   ──▶ Next ──▶ Value, Key, Done
//!        ──▶ Number, Word                        ──▶ Next
//!        ──▶ `[` FirstItem, `{` FirstKey ──▶ Text ──▶ Colon ──▶ Value
//! ```
//!
//! There is no recursion. A bit for each open object or array says which of them it is. For the outermost 32 of them, a level
//! says which paths lead into it; nothing deeper is wanted.

use super::number::Decimal;
use super::path::{MAX_DEPTH, Paths, Set};
use super::run;
use super::scan::Unreadable;
use super::values::{Found, Values};

/// The maximum nesting of objects and arrays: `[[1]]` is 2. A deeper document is unreadable.
pub const MAX_NESTING: usize = 1024;

/// The next expected input.
#[derive(Clone, Copy, Debug)]
enum At {
    /// A value.
    Value,
    /// The first item of an array, or its end.
    FirstItem,
    /// The first key of an object, or its end.
    FirstKey,
    /// A key.
    Key,
    /// The colon after a key.
    Colon,
    /// A comma, or the end of the object or array.
    Next,
    /// Nothing but white space.
    Done,
    /// More of a string, or its end.
    Text,
    /// The rest of a character beyond ASCII.
    Unicode(Unicode),
    /// The character after a backslash.
    Escape,
    /// `left` more digits of `\u`. `high` is the surrogate before it, or 0.
    Hex { left: u8, code: u16, high: u16 },
    /// The backslash before the second surrogate of a pair; then its `u`.
    Surrogate { high: u16, backslash: bool },
    /// More of a number, or its end.
    Number(NumberPart),
    /// The rest of a word; this many of its bytes have passed.
    Word(Word, u8),
    /// Nothing: the document is unreadable.
    Failed(Unreadable),
}

/// The values that are words.
#[derive(Clone, Copy, Debug)]
enum Word {
    True,
    False,
    Null,
}

impl Word {
    const fn text(self) -> &'static [u8] {
        match self {
            Self::True => b"true",
            Self::False => b"false",
            Self::Null => b"null",
        }
    }
}

/// The part of a number that was read last.
#[derive(Clone, Copy, Debug)]
enum NumberPart {
    Minus,
    /// A zero that is the whole integer: no digit may follow.
    Zero,
    Integer,
    Point,
    Fraction,
    /// `e` or `E`
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// The number of missing bytes of a character, and the bounds of the next one (Unicode, table 3-7).
#[derive(Clone, Copy, Debug)]
struct Unicode {
    left: u8,
    min: u8,
    max: u8,
}

/// The use of the string that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It is only checked.
    Nothing,
    /// It is a key on the way of a path.
    Key,
    /// It is a value at the end of a path.
    Value,
}

/// An open object or array.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// The paths that lead further into it.
    paths: Set,
    /// In an object: the paths whose key has occurred. In an array: the index of the item.
    seen: u32,
}

/// The state of a document.
#[derive(Clone, Debug)]
pub(super) struct Document {
    at: At,
    /// The number of open objects and arrays.
    depth: usize,
    /// The depth at which paths begin: 1, or 2 if that is in the items of the outermost array.
    begin: usize,
    /// Bit `n` is set if the open one with `n` around it is an object.
    objects: [u64; MAX_NESTING / 64],
    /// The innermost one is an object.
    in_object: bool,
    levels: [Level; MAX_DEPTH],
    /// The paths that lead to the value that comes next.
    here: Set,
    /// The paths that end at the value that is being read.
    ends: Set,
    in_key: bool,
    string: Use,
    /// In a key: the paths that it may still match, and how many of its bytes have matched.
    matching: Set,
    matched: usize,
    /// The same for a server that ignores case and a `_` between letters, with the letters of the path's key.
    similar: Set,
    similar_matched: usize,
    /// In a key that is a number so far: the paths that have an index here, and the number.
    indexed: Set,
    index: Option<u32>,
    decimal: Decimal,
}

const NOT_JSON: At = At::Failed(Unreadable::NotJson);

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The bytes of a key without each `_` behind the first byte.
fn letters(key: &[u8]) -> impl Iterator<Item = &u8> {
    key.iter().enumerate().filter(|(at, byte)| *at == 0 || **byte != b'_').map(|(_, byte)| byte)
}

impl Document {
    pub(super) fn new(paths: &Paths) -> Self {
        Self {
            at: At::Value,
            depth: 0,
            begin: 1,
            objects: [0; MAX_NESTING / 64],
            in_object: false,
            levels: [Level::default(); MAX_DEPTH],
            here: paths.all(),
            ends: Set::EMPTY,
            in_key: false,
            string: Use::Nothing,
            matching: Set::EMPTY,
            matched: 0,
            similar: Set::EMPTY,
            similar_matched: 0,
            indexed: Set::EMPTY,
            index: None,
            decimal: Decimal::default(),
        }
    }

    /// Another document begins.
    pub(super) fn restart(&mut self, paths: &Paths) {
        self.at = At::Value;
        self.depth = 0;
        self.here = paths.all();
    }

    /// Nothing but white space has been read.
    pub(super) fn is_blank(&self) -> bool {
        self.depth == 0 && matches!(self.at, At::Value)
    }

    /// True if the outermost value is an array, if it is an array or an object.
    pub(super) const fn is_array(&self) -> bool {
        let [objects, ..] = self.objects;
        objects & 1 == 0
    }

    /// True if it has ended.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.at, At::Done)
    }

    /// The number of items in the outermost array of a document that has ended; 1 for an empty one, and for any other value.
    pub(super) const fn items(&self) -> u64 {
        let [outermost, ..] = self.levels;
        if self.is_array() { outermost.seen as u64 + 1 } else { 1 }
    }

    /// The reason for which the document is unreadable already.
    pub(super) fn failed(&self) -> Option<Unreadable> {
        match self.at {
            At::Failed(why) => Some(why),
            _ => None,
        }
    }

    /// The document ends here.
    pub(super) fn end(&mut self, values: &mut Values) -> Result<(), Unreadable> {
        // Inside an object or array the number itself may be cut off: it is no value.
        if let (At::Number(part), 0) = (self.at, self.depth) {
            self.end_number(part, values);
        }
        match self.at {
            At::Done => Ok(()),
            At::Failed(why) => Err(why),
            _ => Err(Unreadable::NotJson),
        }
    }

    /// More of the document.
    pub(super) fn feed(&mut self, paths: &Paths, values: &mut Values, chunk: &[u8]) {
        let mut rest = chunk;
        while let Some((&byte, after)) = rest.split_first() {
            self.at = match self.at {
                At::Text => {
                    rest = self.text(paths, values, rest);
                    continue;
                }
                At::Number(part) => {
                    rest = self.number(part, values, rest);
                    continue;
                }
                At::Word(word, read) => {
                    rest = self.word(word, read, values, rest);
                    continue;
                }
                At::Failed(_) => return,
                At::Next => self.after_value(paths, byte),
                At::FirstItem if byte == b']' => self.close(),
                At::Value | At::FirstItem if !is_space(byte) => self.value(paths, values, byte),
                At::FirstKey if byte == b'}' => self.close(),
                At::Key | At::FirstKey if byte == b'"' => self.key(paths),
                At::Colon if byte == b':' => At::Value,
                At::Value | At::FirstItem | At::Key | At::FirstKey | At::Colon | At::Done => self.space(byte),
                At::Unicode(_) | At::Escape | At::Hex { .. } | At::Surrogate { .. } => {
                    self.within(paths, values, byte)
                }
            };
            rest = after;
        }
    }

    /// White space between two parts of the document. Any other byte is wrong here.
    fn space(&self, byte: u8) -> At {
        if is_space(byte) { self.at } else { NOT_JSON }
    }

    /// A byte after a value inside an object or array.
    fn after_value(&mut self, paths: &Paths, byte: u8) -> At {
        match byte {
            b',' if self.in_object => At::Key,
            b',' => {
                if let Some(level) = self.level() {
                    level.seen = level.seen.saturating_add(1);
                }
                self.item(paths);
                At::Value
            }
            b'}' if self.in_object => self.close(),
            b']' if !self.in_object => self.close(),
            _ => self.space(byte),
        }
    }

    /// The first byte of a value.
    fn value(&mut self, paths: &Paths, values: &mut Values, byte: u8) -> At {
        self.ends = paths.ended(self.here, self.segments());
        let mut number = |part| {
            // Most numbers are only checked.
            if !self.ends.is_empty() {
                self.decimal = Decimal::default();
                match part {
                    NumberPart::Minus => self.decimal.negative(),
                    _ => self.decimal.integer(byte),
                }
            }
            At::Number(part)
        };
        match byte {
            b'{' | b'[' => {
                if !self.ends.is_empty() {
                    values.put(self.ends, Found::Nested);
                }
                self.open(paths, byte == b'{')
            }
            b'"' => {
                self.in_key = false;
                // Of a body of a client, one value too many is enough.
                let is_known = paths.are_of_clients() && values.are_ambiguous(self.ends);
                self.string = if self.ends.is_empty() || is_known { Use::Nothing } else { Use::Value };
                if self.string == Use::Value {
                    values.begin_text();
                }
                At::Text
            }
            b'-' => number(NumberPart::Minus),
            b'0' => number(NumberPart::Zero),
            b'1'..=b'9' => number(NumberPart::Integer),
            b't' => At::Word(Word::True, 1),
            b'f' => At::Word(Word::False, 1),
            b'n' => At::Word(Word::Null, 1),
            _ => NOT_JSON,
        }
    }

    /// The state after a value.
    fn next(&self) -> At {
        if self.depth == 0 { At::Done } else { At::Next }
    }

    fn open(&mut self, paths: &Paths, object: bool) -> At {
        let Some(bits) = self.objects.get_mut(self.depth / 64) else {
            return At::Failed(Unreadable::TooDeep);
        };
        let bit = 1 << (self.depth % 64);
        *bits = if object { *bits | bit } else { *bits & !bit };
        if self.depth == 0 {
            self.begin = if !object && paths.is_grouped() { 2 } else { 1 };
        }
        self.depth += 1;
        self.in_object = object;
        let further = self.here;
        if let Some(level) = self.level() {
            *level = Level { paths: further, ..Level::default() };
        }
        if object {
            At::FirstKey
        } else {
            self.item(paths);
            At::FirstItem
        }
    }

    fn close(&mut self) -> At {
        self.depth -= 1;
        self.in_object = self.depth.checked_sub(1).is_some_and(|index| {
            self.objects.get(index / 64).is_some_and(|bits| bits & (1 << (index % 64)) != 0)
        });
        self.next()
    }

    /// The number of segments of the paths that lead to the innermost object or array.
    const fn segments(&self) -> usize {
        self.depth.wrapping_sub(self.begin)
    }

    /// The innermost object or array, if it is not too deep for paths.
    fn level(&mut self) -> Option<&mut Level> {
        self.levels.get_mut(self.depth.wrapping_sub(1))
    }

    /// An item of an array begins.
    fn item(&mut self, paths: &Paths) {
        let Level { paths: among, seen } = self.level().copied().unwrap_or_default();
        self.here = if among.is_empty() || self.depth < self.begin {
            among
        } else {
            paths.with_index(among, self.segments(), seen)
        };
    }

    /// A key begins.
    fn key(&mut self, paths: &Paths) -> At {
        self.in_key = true;
        self.string = Use::Nothing;
        let among = self.level().map_or(Set::EMPTY, |level| level.paths);
        // Most objects are on the way of no path.
        if among.is_empty() {
            return At::Text;
        }
        let depth = self.segments();
        self.matching = paths.with_key(among, depth);
        self.matched = 0;
        if paths.are_of_clients() {
            self.similar = self.matching;
            self.similar_matched = 0;
            self.indexed = paths.with_index_as_key(among, depth);
            self.index = None;
        }
        if !(self.matching.is_empty() && self.indexed.is_empty()) {
            self.string = Use::Key;
        }
        At::Text
    }

    /// More of a string, up to what ends it or needs a closer look.
    fn text<'a>(&mut self, paths: &Paths, values: &mut Values, bytes: &'a [u8]) -> &'a [u8] {
        let (length, ascii) = run::of_string(bytes);
        let (run, rest) = bytes.split_at(length);
        if !ascii && let Err(error) = core::str::from_utf8(run) {
            let (valid, other) = run.split_at(error.valid_up_to());
            self.piece(paths, values, valid);
            // The chunk has cut a character, or its bytes are no UTF-8. Byte by byte, it shows which.
            self.at = At::Unicode(Unicode { left: 0, min: 0, max: 0 });
            for &byte in other {
                if self.failed().is_none() {
                    self.at = self.within(paths, values, byte);
                }
            }
            return rest;
        }
        self.piece(paths, values, run);
        let Some((&byte, after)) = rest.split_first() else { return rest };
        self.at = match byte {
            b'"' => self.end_text(paths, values),
            b'\\' => At::Escape,
            _ => NOT_JSON,
        };
        after
    }

    /// The string has ended.
    fn end_text(&mut self, paths: &Paths, values: &mut Values) -> At {
        if !self.in_key {
            if self.string == Use::Value {
                values.end_text(self.ends);
            }
            return self.next();
        }
        self.here = Set::EMPTY;
        if self.string == Use::Key {
            let here = self.with_length(paths, self.matching, self.matched);
            self.here = here;
            if let Some(index) = self.index {
                let depth = self.segments();
                values.ambiguous(paths.values(paths.with_index(self.indexed, depth, index)));
            }
            if !self.similar.is_empty() {
                let similar = self.similar_here(paths);
                // If the configuration names both `userId` and `user_id`, each is what it is.
                let similar =
                    if here.is_empty() { similar } else { self.with_length(paths, similar, self.matched) };
                values.ambiguous(paths.values(similar.without(here)));
            }
            if let Some(level) = self.level() {
                let again = Set::from_low(level.seen).and(here);
                level.seen |= here.low();
                values.ambiguous(paths.values(again));
            }
        }
        At::Colon
    }

    /// The paths whose key some servers take the current key for, as far as it has been read.
    fn similar_here(&self, paths: &Paths) -> Set {
        let is_whole = |key: &[u8]| letters(key).count() == self.similar_matched;
        paths.whose_key(self.similar, self.segments(), is_whole)
    }

    /// The paths among these whose key has this length.
    #[inline(never)]
    fn with_length(&self, paths: &Paths, among: Set, length: usize) -> Set {
        paths.whose_key(among, self.segments(), |key| key.len() == length)
    }

    /// A zero character in a string. Servers in C end the string before it.
    fn zero(&self, paths: &Paths, values: &mut Values) {
        match self.string {
            Use::Nothing => {}
            Use::Key => values.ambiguous(paths.values(self.similar_here(paths))),
            Use::Value => values.ambiguous(self.ends),
        }
    }

    /// A byte of a key, for a server that ignores case. Go also takes `ſ` for an `s`, and the sign of Kelvin for a `k`. Protobuf takes
    /// `userId` for `user_id`.
    fn similar(&mut self, paths: &Paths, byte: u8) {
        let folded = match byte {
            b'_' if self.similar_matched > 0 => return,
            0xc5 => self.similar_with(paths, b's'),
            0xe2 => self.similar_with(paths, b'k'),
            // The rest of such a letter.
            0x84 | 0xaa | 0xbf if self.similar_with(paths, byte).is_empty() => return,
            _ => Set::EMPTY,
        };
        self.similar = if folded.is_empty() { self.similar_with(paths, byte) } else { folded };
        self.similar_matched += 1;
    }

    /// The paths whose key goes on with this letter for such a server.
    #[inline(never)]
    fn similar_with(&self, paths: &Paths, letter: u8) -> Set {
        let (depth, at) = (self.segments(), self.similar_matched);
        let is_next =
            |key: &[u8]| letters(key).nth(at).is_some_and(|next| next.eq_ignore_ascii_case(&letter));
        paths.whose_key(self.similar, depth, is_next)
    }

    /// Characters of a string.
    fn piece(&mut self, paths: &Paths, values: &mut Values, bytes: &[u8]) {
        // Most strings are only checked.
        if self.string != Use::Nothing {
            self.wanted_piece(paths, values, bytes);
        }
    }

    #[inline(never)]
    fn wanted_piece(&mut self, paths: &Paths, values: &mut Values, bytes: &[u8]) {
        if self.string == Use::Value {
            return values.text(bytes);
        }
        let (depth, from) = (self.segments(), self.matched);
        // Most keys differ in the first byte, and to compare all of them is a call.
        let Some(first) = bytes.first() else { return };
        let goes_on = |key: &[u8]| {
            key.get(from..).is_some_and(|rest| rest.first() == Some(first) && rest.starts_with(bytes))
        };
        self.matching = paths.whose_key(self.matching, depth, goes_on);
        self.matched += bytes.len();
        if paths.are_of_clients() {
            self.doubtful_piece(paths, bytes);
        }
        if self.matching.with(self.similar).with(self.indexed).is_empty() {
            self.string = Use::Nothing;
        }
    }

    /// Characters of a key that some servers take for another key, or for an index.
    fn doubtful_piece(&mut self, paths: &Paths, bytes: &[u8]) {
        for &byte in bytes {
            if self.indexed.is_empty() {
                break;
            }
            let digit = char::from(byte).to_digit(10);
            // `00` is no index.
            let index = match self.index {
                None => digit,
                Some(0) => None,
                Some(index) => digit.and_then(|digit| index.checked_mul(10)?.checked_add(digit)),
            };
            self.index = index;
            if index.is_none() {
                self.indexed = Set::EMPTY;
            }
        }
        for &byte in bytes {
            if self.similar.is_empty() {
                break;
            }
            self.similar(paths, byte);
        }
    }

    /// A byte within an escape, or a character beyond ASCII.
    fn within(&mut self, paths: &Paths, values: &mut Values, byte: u8) -> At {
        match self.at {
            At::Escape => {
                let character = match byte {
                    b'"' | b'\\' | b'/' => byte,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'u' => return At::Hex { left: 4, code: 0, high: 0 },
                    _ => return NOT_JSON,
                };
                self.piece(paths, values, &[character]);
                At::Text
            }
            At::Hex { left, code, high } => {
                let Some(digit) = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok())
                else {
                    return NOT_JSON;
                };
                let code = (code << 4) | digit;
                if left > 1 {
                    return At::Hex { left: left - 1, code, high };
                }
                if high == 0 && (0xd800..0xdc00).contains(&code) {
                    return At::Surrogate { high: code, backslash: false };
                }
                let units = [high, code];
                let units = if high == 0 { units.get(1..) } else { units.get(..) };
                match char::decode_utf16(units.unwrap_or_default().iter().copied()).next() {
                    Some(Ok(character)) => {
                        if character == '\0' {
                            self.zero(paths, values);
                        }
                        self.piece(paths, values, character.encode_utf8(&mut [0; 4]).as_bytes());
                        At::Text
                    }
                    // A surrogate alone is no character.
                    _ => NOT_JSON,
                }
            }
            At::Surrogate { high, backslash: false } if byte == b'\\' => {
                At::Surrogate { high, backslash: true }
            }
            At::Surrogate { high, backslash: true } if byte == b'u' => At::Hex { left: 4, code: 0, high },
            At::Unicode(Unicode { left: 0, .. }) => {
                self.piece(paths, values, &[byte]);
                let (left, min, max) = match byte {
                    0xc2..=0xdf => (1, 0x80, 0xbf),
                    0xe0 => (2, 0xa0, 0xbf),
                    0xed => (2, 0x80, 0x9f),
                    0xe1..=0xef => (2, 0x80, 0xbf),
                    0xf0 => (3, 0x90, 0xbf),
                    0xf1..=0xf3 => (3, 0x80, 0xbf),
                    0xf4 => (3, 0x80, 0x8f),
                    _ => return NOT_JSON,
                };
                At::Unicode(Unicode { left, min, max })
            }
            At::Unicode(Unicode { left, min, max }) if (min..=max).contains(&byte) => {
                self.piece(paths, values, &[byte]);
                match left {
                    1 => At::Text,
                    _ => At::Unicode(Unicode { left: left - 1, min: 0x80, max: 0xbf }),
                }
            }
            _ => NOT_JSON,
        }
    }

    /// More of a word. `read` of its bytes have passed.
    fn word<'a>(&mut self, word: Word, read: u8, values: &mut Values, bytes: &'a [u8]) -> &'a [u8] {
        let expected = word.text().get(usize::from(read)..).unwrap_or_default();
        let (part, rest) = bytes.split_at(expected.len().min(bytes.len()));
        self.at = if part == expected {
            match word {
                _ if self.ends.is_empty() => {}
                Word::True => values.put(self.ends, Found::Bool(true)),
                Word::False => values.put(self.ends, Found::Bool(false)),
                Word::Null => {}
            }
            self.next()
        } else if expected.starts_with(part) {
            At::Word(word, read + u8::try_from(part.len()).unwrap_or_default())
        } else {
            NOT_JSON
        };
        rest
    }

    /// More of a number, up to the byte after it.
    fn number<'a>(&mut self, mut part: NumberPart, values: &mut Values, bytes: &'a [u8]) -> &'a [u8] {
        let wanted = !self.ends.is_empty();
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            part = match (part, byte) {
                (NumberPart::Minus, b'0') => NumberPart::Zero,
                (NumberPart::Minus, b'1'..=b'9') | (NumberPart::Integer, b'0'..=b'9') => {
                    if wanted {
                        self.decimal.integer(byte);
                    }
                    NumberPart::Integer
                }
                (NumberPart::Zero | NumberPart::Integer, b'.') => NumberPart::Point,
                (NumberPart::Point | NumberPart::Fraction, b'0'..=b'9') => {
                    if wanted {
                        self.decimal.fraction(byte);
                    }
                    NumberPart::Fraction
                }
                (NumberPart::Zero | NumberPart::Integer | NumberPart::Fraction, b'e' | b'E') => {
                    NumberPart::Exponent
                }
                (NumberPart::Exponent, b'+') => NumberPart::ExponentSign,
                (NumberPart::Exponent, b'-') => {
                    self.decimal.negative_exponent();
                    NumberPart::ExponentSign
                }
                (
                    NumberPart::Exponent | NumberPart::ExponentSign | NumberPart::ExponentDigits,
                    b'0'..=b'9',
                ) => {
                    if wanted {
                        self.decimal.exponent(byte);
                    }
                    NumberPart::ExponentDigits
                }
                (_, b' ' | b'\t' | b'\n' | b'\r' | b',' | b'}' | b']') => {
                    self.end_number(part, values);
                    return rest;
                }
                // Of `012` or `1_000` the beginning would be a number.
                _ => {
                    self.at = NOT_JSON;
                    return rest;
                }
            };
            rest = after;
        }
        self.at = At::Number(part);
        rest
    }

    /// The number has ended, if it may end after this part.
    fn end_number(&mut self, part: NumberPart, values: &mut Values) {
        self.at = match part {
            NumberPart::Zero | NumberPart::Integer | NumberPart::Fraction | NumberPart::ExponentDigits => {
                if !self.ends.is_empty() {
                    values.put(self.ends, Found::Number(self.decimal.number()));
                }
                self.next()
            }
            NumberPart::Minus | NumberPart::Point | NumberPart::Exponent | NumberPart::ExponentSign => {
                NOT_JSON
            }
        };
    }
}
