// SPDX-License-Identifier: Apache-2.0
//! HTML forms as `multipart/form-data`: a part for each field.
//!
//! Only the form that clients write is read, byte by byte. Servers differ in what they make of everything that the standards allow beside it:
//! text before the first part and after the last, lines that end with LF or are folded, a boundary within a line, escapes in a name. So
//! none of the fields of such a form can be read.
//!
//! Sources: <https://www.rfc-editor.org/rfc/rfc7578>, <https://www.rfc-editor.org/rfc/rfc2046#section-5.1>.

use super::fields::Table;
use super::form::{OF_ASCII, UTF_8, contains, is_plain, is_plain_text};
use super::values::MAX_TEXT;

/// The longest line of a part's head. The names of a field and a file are in one.
const MAX_LINE: usize = 3 * 1024;

/// The element to which the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The first delimiter, which is all that may come.
    Start,
    /// The bytes after a delimiter: a line's end and a part, or two hyphens and the end.
    Delimiter,
    DelimiterCr,
    DelimiterHyphen,
    Head,
    Body,
    /// Lines' ends may follow the last delimiter, and nothing else.
    Closed,
    ClosedCr,
    Ended,
}

/// The part that is being read.
#[derive(Debug, Default)]
struct BodyPart {
    /// The lines that its head has.
    lines: [bool; LINES.len()],
    name: String,
    /// It is a file, or coded, or of another type than text: no server, or not each, reads its bytes as the value of a field.
    is_unclear: bool,
    /// Its charset is none of UTF-8, but has ASCII.
    is_ascii: bool,
    is_wanted: bool,
    /// The length that its head states, if it does.
    told_length: Option<usize>,
    /// The length of its body and the delimiter, so far.
    length: usize,
}

/// Reads the parts of a form, in chunks that may be cut anywhere.
#[derive(Debug)]
pub(super) struct Multipart {
    delimiter: Delimiter,
    at: At,
    part: BodyPart,
    /// A line of the head, or as much of a wanted body as shows that it is too long.
    kept: Vec<u8>,
    /// The number of bytes since the last line's end, or since the form began.
    column: usize,
    after_cr: bool,
}

impl Multipart {
    pub(super) fn new(boundary: &[u8]) -> Self {
        Self {
            delimiter: Delimiter::new(boundary),
            at: At::Start,
            part: BodyPart::default(),
            kept: vec![],
            column: 0,
            after_cr: false,
        }
    }

    /// More of it.
    pub(super) fn feed(&mut self, chunk: &[u8], table: &mut Table) {
        if !chunk.iter().all(|&byte| self.next(byte, table)) {
            table.refuse();
        }
    }

    /// It ends here.
    pub(super) const fn end(&self, table: &mut Table) {
        if !matches!(self.at, At::Closed | At::Ended) {
            table.refuse();
        }
    }

    /// Returns `false` if servers differ in what the form is.
    fn next(&mut self, byte: u8, table: &mut Table) -> bool {
        self.at = match (self.at, byte) {
            (At::Delimiter, b'\r') => At::DelimiterCr,
            (At::DelimiterCr, b'\n') => {
                self.part = BodyPart::default();
                (self.column, self.after_cr) = (0, false);
                At::Head
            }
            (At::Delimiter, b'-') => At::DelimiterHyphen,
            (At::DelimiterHyphen, b'-') => At::Closed,
            (At::Closed | At::Ended, b'\r') => At::ClosedCr,
            (At::ClosedCr, b'\n') => At::Ended,
            (At::Start | At::Head | At::Body, _) => return self.within(byte, table),
            _ => return false,
        };
        true
    }

    fn within(&mut self, byte: u8, table: &mut Table) -> bool {
        let after_cr = core::mem::replace(&mut self.after_cr, byte == b'\r');
        let ends_line = after_cr && byte == b'\n';
        self.column = if ends_line { 0 } else { self.column.saturating_add(1) };
        let is_delimiter = self.delimiter.next(byte);
        // Some servers find it anywhere, others only where a line begins.
        if is_delimiter && (self.at == At::Head || self.column != self.delimiter.text.len()) {
            return false;
        }
        let fits = match self.at {
            At::Head if ends_line => return self.end_line(table),
            At::Head => self.keep_of_head(byte, after_cr),
            At::Body => {
                self.keep_of_body(byte);
                !is_delimiter || self.end_part(table)
            }
            _ => is_delimiter || self.delimiter.matched == self.column,
        };
        if is_delimiter {
            self.at = At::Delimiter;
        }
        fits
    }

    fn keep_of_head(&mut self, byte: u8, after_cr: bool) -> bool {
        if byte == b'\r' {
            return !after_cr;
        }
        self.kept.push(byte);
        !after_cr && !byte.is_ascii_control() && self.kept.len() <= MAX_LINE
    }

    fn keep_of_body(&mut self, byte: u8) {
        self.part.length = self.part.length.saturating_add(1);
        if self.part.is_wanted && self.kept.len() <= MAX_TEXT.saturating_add(self.tail()) {
            self.kept.push(byte);
        }
    }

    /// The number of bytes from the end of a part's body to the end of the delimiter.
    const fn tail(&self) -> usize {
        self.delimiter.text.len().saturating_add(2)
    }

    /// A line of the head ends here; an empty one ends the head.
    fn end_line(&mut self, table: &Table) -> bool {
        if !self.kept.is_empty() {
            let line = core::mem::take(&mut self.kept);
            return core::str::from_utf8(&line).ok().and_then(|line| self.part.read(line)).is_some();
        }
        self.at = At::Body;
        // The line's end before a delimiter is none of the head's: some servers miss a delimiter that follows the head.
        self.column = usize::MAX;
        self.part.is_wanted = table.wants(self.part.name.as_bytes());
        self.part.lines.first() == Some(&true)
    }

    /// The body of a part, and a delimiter, end here.
    fn end_part(&mut self, table: &mut Table) -> bool {
        let Some(length) = self.part.length.checked_sub(self.tail()) else { return false };
        let kept = core::mem::take(&mut self.kept);
        let is_clear = |value: &&[u8]| !self.part.is_unclear && (!self.part.is_ascii || value.is_ascii());
        let name = self.part.name.as_bytes();
        table.put(name, kept.get(..length).filter(is_clear));
        // aiohttp drops slashes before a name, and Netty takes four marks for spaces.
        let space = |&byte: &u8| if matches!(byte, b':' | b',' | b'=' | b';') { b' ' } else { byte };
        let spaced: Vec<_> = name.iter().map(space).collect();
        let slashes = name.iter().take_while(|byte| **byte == b'/').count();
        for other in [name.get(slashes..).unwrap_or_default(), &spaced] {
            if other != name {
                table.read(other, None);
            }
        }
        self.part.told_length.is_none_or(|told| told == length)
    }
}

/// The lines that a part's head may have, each once, as they stand here or in small letters. The first one has to be there.
const LINES: [&str; 4] =
    ["Content-Disposition", "Content-Type", "Content-Transfer-Encoding", "Content-Length"];

impl BodyPart {
    /// Reads a line of its head. `None`: servers differ in what it means.
    fn read(&mut self, line: &str) -> Option<()> {
        let (name, value) = line.split_once(": ")?;
        let kind = LINES.iter().position(|known| name == *known || name == known.to_ascii_lowercase())?;
        if core::mem::replace(self.lines.get_mut(kind)?, true) {
            return None;
        }
        match kind {
            0 => {
                let (name, is_file) = disposition(value)?;
                name.clone_into(&mut self.name);
                self.is_unclear |= is_file;
            }
            1 => {
                // Parts, a message or pairs within a part are fields for some servers, and a type may have a name.
                let value = value.as_bytes();
                if ["multipart/", "message/", "form-urlencoded", "name="]
                    .iter()
                    .any(|word| contains(value, word.as_bytes()))
                {
                    return None;
                }
                self.is_unclear |= !is_plain_text(value, &OF_ASCII);
                self.is_ascii = !is_plain_text(value, &UTF_8);
            }
            2 => {
                let mut plain = ["7bit", "8bit", "binary"].iter();
                self.is_unclear |= !plain.any(|plain| value.eq_ignore_ascii_case(plain));
            }
            // Some servers read this many bytes, whatever they are.
            _ => {
                self.told_length =
                    Some(value.parse().ok().filter(|length: &usize| length.to_string() == value)?);
            }
        }
        Some(())
    }
}

/// The name in a `content-disposition`, and whether there is one of a file. Only the form `form-data; name="user"; filename="a.txt"` is read;
/// some clients leave the quotes out, or add a `filename*`.
fn disposition(value: &str) -> Option<(&str, bool)> {
    let (name, mut rest) = parameter(value.strip_prefix("form-data; name=")?)?;
    // Browsers write a quote as `%22`. Some servers take single quotes away, or decode the encoded words of mail (`=?`).
    if name.contains(['%', '\'']) || name.contains("=?") {
        return None;
    }
    let mut is_file = false;
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix("; ")?.split_once('=')?;
        if !matches!(key, "filename" | "filename*") {
            return None;
        }
        is_file = true;
        (_, rest) = parameter(after)?;
    }
    Some((name, is_file))
}

/// The value of a parameter, and what follows it. A server that looks at no quotes may find no further parameter in it.
fn parameter(text: &str) -> Option<(&str, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, after) = text.split_at(text.find(';').unwrap_or(text.len()));
        return is_plain(&value.replace(['\'', '%'], "")).then_some((value, after));
    };
    let (value, after) = quoted.split_once('"')?;
    let is_unclear = value.contains('\\') || value.contains(';') && value.contains('=');
    (!is_unclear).then_some((value, after))
}

/// Finds two hyphens and the boundary in a form.
#[derive(Debug)]
struct Delimiter {
    text: Vec<u8>,
    /// For each beginning of the text, the length of the longest shorter one that it ends with (Knuth, Morris and Pratt). A form may
    /// repeat a part of the boundary, which has bytes of its own repeated.
    borders: Vec<usize>,
    matched: usize,
}

impl Delimiter {
    fn new(boundary: &[u8]) -> Self {
        let text = [b"--", boundary].concat();
        let mut new = Self { borders: vec![0], matched: 0, text };
        for place in 1..new.text.len() {
            let byte = new.text.get(place).copied().unwrap_or_default();
            new.step(byte);
            new.borders.push(new.matched);
        }
        new.matched = 0;
        new
    }

    /// Adds a byte. True if the delimiter ends with it.
    fn next(&mut self, byte: u8) -> bool {
        self.step(byte);
        let is_whole = self.matched == self.text.len();
        if is_whole {
            self.matched = 0;
        }
        is_whole
    }

    fn step(&mut self, byte: u8) {
        while self.matched > 0 && self.text.get(self.matched) != Some(&byte) {
            let shorter = self.borders.get(self.matched.saturating_sub(1));
            self.matched = shorter.copied().unwrap_or_default();
        }
        if self.text.get(self.matched) == Some(&byte) {
            self.matched = self.matched.saturating_add(1);
        }
    }
}
