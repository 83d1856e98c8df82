// SPDX-License-Identifier: Apache-2.0
//! The ids of the calls of JSON-RPC in a body: of one call, or of each call of a batch, which is an array.
//!
//! Ids are kept as the body has them, with their escapes, so what names them again needs none. Only of a body that a
//! [`Scanner`](super::Scanner) has read to its end does this mean anything: what is no JSON is not noticed here.

use super::run;

/// The most ids of a batch that are kept.
pub const MAX_IDS: usize = 64;

/// The bytes of all ids together, with a line feed after each.
pub const MAX_ID_BYTES: usize = 2048;

/// The calls that a response in JSON-RPC names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// One call, by its id in JSON.
    One(Box<str>),
    /// The calls of a batch: the id of each in JSON, and a line feed. Notifications have none.
    Batch(Box<str>),
}

/// The place of a byte.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Between values.
    Between,
    /// In a string.
    Text { escaped: bool },
    /// In a number or a word.
    Scalar,
}

/// The use of the string, number or word that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Nothing,
    /// It is the key of a member of a call.
    Key,
    /// It is the id of a call.
    Id,
}

/// The id of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    /// No id: it is a notification.
    Missing,
    /// A string or a number.
    Known,
    /// Something else, or several.
    Null,
}

/// The spellings of the key with which a call names its id.
const KEYS: [&[u8]; 4] = [b"\"id\"", b"\"\\u0069d\"", b"\"i\\u0064\"", b"\"\\u0069\\u0064\""];
const LONGEST_KEY: usize = 14;

/// Reads the ids of a body, in chunks that may be cut anywhere.
#[derive(Debug)]
pub struct IdScanner {
    at: At,
    token: Use,
    /// The number of open objects and arrays.
    depth: usize,
    is_batch: bool,
    /// The body, or the item of the batch that is open, is an object.
    in_call: bool,
    expects_key: bool,
    key: [u8; LONGEST_KEY],
    key_length: usize,
    /// The value that comes next has the key of an id.
    is_id: bool,
    id: Id,
    ids: Vec<u8>,
    /// The beginning of the open call's id.
    begun: usize,
    items: usize,
    count: usize,
    is_full: bool,
}

impl Default for IdScanner {
    fn default() -> Self {
        Self {
            at: At::Between,
            token: Use::Nothing,
            depth: 0,
            is_batch: false,
            in_call: false,
            expects_key: false,
            key: [0; LONGEST_KEY],
            key_length: 0,
            is_id: false,
            id: Id::Missing,
            ids: Vec::new(),
            begun: 0,
            items: 0,
            count: 0,
            is_full: false,
        }
    }
}

impl IdScanner {
    /// The ids of a body that has ended. `None` if it is no call and no batch, if its call has no id that can be named, or if the ids of its batch
    /// are too many or too long.
    #[must_use]
    pub fn ids(&self) -> Option<Ids> {
        if self.is_full || self.items == 0 || (!self.is_batch && self.id != Id::Known) {
            return None;
        }
        let ids = Box::from(core::str::from_utf8(&self.ids).ok()?);
        Some(if self.is_batch { Ids::Batch(ids) } else { Ids::One(ids) })
    }

    /// More of the body.
    pub fn feed(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while !self.is_full {
            if let (At::Text { escaped: false }, Use::Nothing) = (self.at, self.token) {
                let (length, _) = run::of_string(rest);
                rest = rest.get(length..).unwrap_or_default();
            }
            let Some((&byte, after)) = rest.split_first() else { return };
            rest = after;
            match self.at {
                At::Text { escaped } => self.text(byte, escaped),
                At::Scalar if matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r') => {
                    self.end_token();
                    self.between(byte);
                }
                At::Scalar => self.keep(byte),
                At::Between => self.between(byte),
            }
        }
    }

    /// A byte of a string.
    fn text(&mut self, byte: u8, escaped: bool) {
        self.keep(byte);
        match byte {
            b'"' if !escaped => self.end_token(),
            _ => self.at = At::Text { escaped: byte == b'\\' && !escaped },
        }
    }

    /// A byte between values, or the first of one.
    fn between(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b',' => self.expects_key = true,
            b':' => self.expects_key = false,
            b'{' | b'[' => {
                self.begin(byte);
                self.depth = self.depth.saturating_add(1);
            }
            b'}' | b']' => {
                if self.is_in_members() {
                    self.end_call();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            _ => {
                self.token = self.begin(byte);
                self.at = if byte == b'"' { At::Text { escaped: false } } else { At::Scalar };
                self.keep(byte);
            }
        }
    }

    /// True if the members of a call are here, and not those of a value in it.
    const fn is_in_members(&self) -> bool {
        self.in_call && self.depth == 1 + self.is_batch as usize
    }

    /// A value or a key begins with this byte.
    fn begin(&mut self, byte: u8) -> Use {
        if self.is_in_members() {
            let is_simple = !matches!(byte, b'{' | b'[');
            return match (self.expects_key, self.is_id) {
                (true, _) => {
                    self.key_length = 0;
                    Use::Key
                }
                (false, true) if is_simple && self.id == Id::Missing => Use::Id,
                (false, true) => {
                    self.id = Id::Null;
                    Use::Nothing
                }
                (false, false) => Use::Nothing,
            };
        }
        match (self.depth, byte) {
            (0, b'[') => self.is_batch = true,
            (0, b'{') => self.begin_call(),
            (1, b'{') if self.is_batch => self.begin_call(),
            // An item that is not a call is answered, too, as one whose id is not known.
            (1, _) if self.is_batch => {
                self.begin_call();
                self.id = Id::Null;
                self.end_call();
            }
            _ => {}
        }
        Use::Nothing
    }

    fn begin_call(&mut self) {
        self.items = self.items.saturating_add(1);
        self.in_call = true;
        self.expects_key = true;
        self.is_id = false;
        self.id = Id::Missing;
        self.begun = self.ids.len();
    }

    fn end_call(&mut self) {
        self.in_call = false;
        if self.id != Id::Known {
            self.ids.truncate(self.begun);
        }
        if !self.is_batch || self.id == Id::Missing {
            return;
        }
        if self.id == Id::Null {
            self.ids.extend_from_slice(b"null");
        }
        self.ids.push(b'\n');
        self.count = self.count.saturating_add(1);
        self.is_full = self.count > MAX_IDS || self.ids.len() > MAX_ID_BYTES;
    }

    /// A byte of a string, number or word.
    fn keep(&mut self, byte: u8) {
        match self.token {
            Use::Nothing => {}
            Use::Key => {
                if let Some(kept) = self.key.get_mut(self.key_length) {
                    *kept = byte;
                }
                self.key_length = self.key_length.saturating_add(1);
            }
            Use::Id if self.ids.len() < MAX_ID_BYTES => self.ids.push(byte),
            Use::Id => self.is_full = true,
        }
    }

    /// A string, number or word has ended.
    fn end_token(&mut self) {
        self.at = At::Between;
        match self.token {
            Use::Nothing => {}
            Use::Key => {
                let key = self.key.get(..self.key_length);
                self.is_id = KEYS.iter().any(|spelled| key == Some(*spelled));
            }
            Use::Id => {
                let is_word = self.ids.get(self.begun).is_some_and(u8::is_ascii_lowercase);
                self.id = if is_word { Id::Null } else { Id::Known };
            }
        }
        self.token = Use::Nothing;
    }
}
