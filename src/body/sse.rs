// SPDX-License-Identifier: Apache-2.0
//! Event streams (server-sent events), <https://html.spec.whatwg.org/multipage/server-sent-events.html>: lines in, the data of
//! events out. A stream may be cut anywhere, also within a CRLF.
//!
//! Only `data` matters here; `event`, `id`, `retry` and comments are skipped. One difference to a browser: the end of the stream
//! ends the last event, also without a blank line, because a cost counts even if the server has closed early.

use super::run;

/// A piece of an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Some of the data of the current event.
    Data(&'a [u8]),
    /// The end of the event.
    End,
}

/// The place of the next byte in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Within a byte order mark; this many of its bytes have passed.
    Mark(usize),
    /// In the name of a field; this many bytes of it match `data`.
    Name(usize),
    /// After the colon of `data`: one space is skipped.
    Space,
    /// In the value of `data`.
    Data,
    /// In a line that does not matter.
    Other,
}

/// Finds the data in an event stream.
#[derive(Clone, Debug)]
pub(super) struct Framing {
    at: At,
    /// The last byte was a CR: an LF belongs to it.
    after_cr: bool,
    /// The event has a line of data, so a further one begins with a line feed.
    has_data: bool,
    /// The lines of data so far.
    pub(super) lines: u64,
}

const NAME: &[u8] = b"data";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Framing {
    pub(super) const fn new() -> Self {
        Self { at: At::Mark(0), after_cr: false, has_data: false, lines: 0 }
    }

    /// True if the next byte begins an event, or a line of one that has no data yet.
    pub(super) const fn is_between_events(&self) -> bool {
        matches!(self.at, At::Mark(0) | At::Name(0)) && !self.after_cr && !self.has_data
    }

    /// The caller passes over these whole events: the next byte begins an event.
    pub(super) fn skip(&mut self, events: &[u8]) {
        let mark = events.strip_prefix(BYTE_ORDER_MARK).filter(|_| self.at == At::Mark(0));
        let mut rest = mark.unwrap_or(events);
        while !rest.is_empty() {
            let (line, after) = rest.split_at(run::of_line(rest));
            self.lines += u64::from(line == NAME || line.starts_with(b"data:"));
            // The end of the line, and empty lines behind it. Most events have one line, so one comparison finds both.
            rest = after.strip_prefix(b"\n\n").unwrap_or(after);
            while let [b'\r' | b'\n', after @ ..] = rest {
                rest = after;
            }
        }
        self.at = At::Name(0);
    }

    /// More of the stream.
    pub(super) fn feed<'a>(&mut self, chunk: &'a [u8], mut event: impl FnMut(Piece<'a>)) {
        let mut rest = chunk;
        while let Some((&byte, after)) = rest.split_first() {
            if core::mem::take(&mut self.after_cr) && byte == b'\n' {
                rest = after;
                continue;
            }
            let ends_line = matches!(byte, b'\r' | b'\n');
            if ends_line {
                self.after_cr = byte == b'\r';
                self.end_line(&mut event);
                rest = after;
                continue;
            }
            rest = match self.at {
                At::Mark(read) if BYTE_ORDER_MARK.get(read) == Some(&byte) => {
                    // Part of a mark is no mark, and no name of a field either.
                    self.at = if read == 2 { At::Name(0) } else { At::Mark(read + 1) };
                    after
                }
                At::Mark(0) => {
                    self.at = At::Name(0);
                    rest
                }
                At::Name(4) if byte == b':' => {
                    self.at = At::Space;
                    self.begin_data(&mut event);
                    after
                }
                At::Name(read) if NAME.get(read) == Some(&byte) => {
                    self.at = At::Name(read + 1);
                    after
                }
                At::Space => {
                    self.at = At::Data;
                    if byte == b' ' { after } else { rest }
                }
                At::Data => {
                    let (data, after) = rest.split_at(run::of_line(rest));
                    event(Piece::Data(data));
                    after
                }
                At::Mark(_) | At::Name(_) | At::Other => {
                    self.at = At::Other;
                    rest.split_at(run::of_line(rest)).1
                }
            };
        }
    }

    /// The stream ends here.
    pub(super) fn end<'a>(&mut self, mut event: impl FnMut(Piece<'a>)) {
        self.end_line(&mut event);
        self.end_event(&mut event);
    }

    fn end_line<'a>(&mut self, event: &mut impl FnMut(Piece<'a>)) {
        match core::mem::replace(&mut self.at, At::Name(0)) {
            At::Mark(0) | At::Name(0) => self.end_event(event),
            // A line without a colon is a field without a value.
            At::Name(4) => self.begin_data(event),
            At::Mark(_) | At::Name(_) | At::Space | At::Data | At::Other => {}
        }
    }

    fn begin_data<'a>(&mut self, event: &mut impl FnMut(Piece<'a>)) {
        self.lines += 1;
        if core::mem::replace(&mut self.has_data, true) {
            event(Piece::Data(b"\n"));
        }
    }

    fn end_event<'a>(&mut self, event: &mut impl FnMut(Piece<'a>)) {
        if core::mem::take(&mut self.has_data) {
            event(Piece::End);
        }
    }
}
