// SPDX-License-Identifier: Apache-2.0
//! RESP2, the Redis serialization protocol, as bytes in and values out. Sizes are in bytes unless said otherwise.
//!
//! Three tools, all sans-IO: writers for commands ([`array_header`], [`bulk`], [`bulk_int`]); [`decode`], which reads a
//! [`Reply`] in one pass and borrows it from its input; and a [`Scanner`], which finds where values end in a stream that is cut
//! anywhere. The limiter decodes, the bridge scans: no byte of a reply is read twice in one VM.
//!
//! ```
//! use weir::resp::{self, Reply};
//!
//! let mut command = Vec::new();
//! resp::array_header(&mut command, 3);
//! resp::bulk(&mut command, b"INCRBY");
//! resp::bulk(&mut command, b"a key, of any\r\nbytes");
//! resp::bulk_int(&mut command, -7);
//!
//! assert_eq!(resp::decode(b":-7\r\n+next"), Ok(Some((Reply::Integer(-7), 5))));
//! assert_eq!(resp::decode(b":-7\r"), Ok(None), "the rest has not arrived: not an error");
//! assert!(resp::decode(b"HTTP/1.1 200 OK\r\n").is_err());
//! ```
//!
//! Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/>. RESP3 types are malformed here, because
//! nothing weir talks to sends them without a `HELLO 3`.

/// The longest simple string or error line, without its type byte and CRLF. Redis itself stops at this length.
pub const MAX_LINE: usize = 64 * 1024;
/// The longest bulk string.
pub const MAX_BULK: usize = 8 * 1024 * 1024;
/// The most items in one array.
pub const MAX_ITEMS: usize = 1024 * 1024;
/// The maximum nesting of arrays: `[[1]]` is 2.
pub const MAX_DEPTH: usize = 8;

/// The largest values that a reader accepts. A larger one is malformed as soon as its first line has stated the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest simple string or error line.
    pub line: usize,
    /// The longest bulk string.
    pub bulk: usize,
    /// The most items in one array.
    pub items: usize,
    /// The deepest nesting of arrays, at most [`MAX_DEPTH`].
    pub depth: usize,
}

impl Bounds {
    /// The widest bounds that this module can read.
    pub const WIDEST: Self = Self { line: MAX_LINE, bulk: MAX_BULK, items: MAX_ITEMS, depth: MAX_DEPTH };
}

/// The end of a line, and of a bulk string.
pub const CRLF: &[u8] = b"\r\n";

/// The longest text of an `i64`: `-9223372036854775808`.
const MAX_DIGITS: usize = 20;

/// Begins an array of `items` values; a command is an array of bulk strings. The caller appends the items.
pub fn array_header(out: &mut Vec<u8>, items: usize) {
    header(out, b'*', items);
}

/// Appends one bulk string. Any bytes are safe: the length frames them, nothing is quoted.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk_of(out, &[bytes]);
}

/// Appends one bulk string that is made of parts, without joining them first.
pub fn bulk_of(out: &mut Vec<u8>, parts: &[&[u8]]) {
    bulk_header(out, parts.iter().map(|part| part.len()).sum());
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(CRLF);
}

/// Begins a bulk string of `length` bytes. The caller appends these, and [`CRLF`].
pub fn bulk_header(out: &mut Vec<u8>, length: usize) {
    header(out, b'$', length);
}

/// Appends `number` as a bulk string of its decimal digits, which is how commands carry integers.
pub fn bulk_int(out: &mut Vec<u8>, number: i64) {
    bulk(out, itoa::Buffer::new().format(number).as_bytes());
}

fn header(out: &mut Vec<u8>, kind: u8, length: usize) {
    // Each command has several of these, and nearly all lengths have one or two digits: then the header has a constant size.
    let digit = |of: usize| b'0' | u8::try_from(of % 10).unwrap_or(0);
    match length {
        0..10 => out.extend_from_slice(&[kind, digit(length), b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[kind, digit(length / 10), digit(length), b'\r', b'\n']),
        _ => {
            out.push(kind);
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(CRLF);
        }
    }
}

/// One value, borrowed from the bytes it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// `+OK`
    Simple(&'a [u8]),
    /// `-NOSCRIPT No matching script.`, without the `-`
    Error(&'a [u8]),
    /// `:42`
    Integer(i64),
    /// `$3 foo`; `None` is the null bulk string `$-1`
    Bulk(Option<&'a [u8]>),
    /// `*2 …`; `None` is the null array `*-1`
    Array(Option<Vec<Reply<'a>>>),
}

/// These bytes are not RESP2, or exceed [`Bounds`]. Nothing after
/// them can be trusted: it is unknown where the next value begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Decodes the first value of `input`, with its length in bytes. `None`: the value is not complete yet.
///
/// # Errors
/// [`Malformed`], at the latest at the end of the line with the error.
pub fn decode(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    decode_within(input, Bounds::WIDEST)
}

/// As [`decode`], with narrower bounds.
///
/// # Errors
/// [`Malformed`], at the latest at the end of the line with the error.
pub fn decode_within(input: &[u8], bounds: Bounds) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let mut decoder = Decoder { rest: input, bounds };
    match decoder.value(0) {
        Ok(reply) => Ok(Some((reply, input.len().saturating_sub(decoder.rest.len())))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed(malformed)) => Err(malformed),
    }
}

/// Reads values in one pass, each byte once.
struct Decoder<'a> {
    rest: &'a [u8],
    bounds: Bounds,
}

/// The reason for which there is no value.
enum Stop {
    /// The input ends within it.
    Incomplete,
    Malformed(Malformed),
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl<'a> Decoder<'a> {
    /// The next value, which `depth` arrays enclose.
    fn value(&mut self, depth: usize) -> Result<Reply<'a>, Stop> {
        let &[kind] = self.take(1)? else { return Err(Stop::Incomplete) };
        let max = match kind {
            b'+' | b'-' => self.bounds.line,
            b':' | b'$' | b'*' => MAX_DIGITS,
            _ => return Err(Malformed.into()),
        };
        let line = self.line(max)?;
        Ok(match kind {
            b'+' => Reply::Simple(line),
            b'-' => Reply::Error(line),
            b':' => Reply::Integer(integer(line)?),
            b'$' => match length(line, self.bounds.bulk)? {
                None => Reply::Bulk(None),
                Some(n) => {
                    let bytes = self.take(n)?;
                    self.end_of_line()?;
                    Reply::Bulk(Some(bytes))
                }
            },
            _ => match length(line, self.bounds.items)? {
                None => Reply::Array(None),
                Some(n) => {
                    if n > 0 && depth >= self.bounds.depth.min(MAX_DEPTH) {
                        return Err(Malformed.into());
                    }
                    // The shortest value has three bytes: allocate nothing for items that the input cannot have.
                    let mut items = Vec::with_capacity(n.min(self.rest.len() / 3));
                    for _ in 0..n {
                        items.push(self.value(depth.saturating_add(1))?);
                    }
                    Reply::Array(Some(items))
                }
            },
        })
    }

    /// Reads the rest of a line of at most `max` bytes, and returns it without its CRLF.
    fn line(&mut self, max: usize) -> Result<&'a [u8], Stop> {
        let within = self.rest.get(..=max).unwrap_or(self.rest);
        match within.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            Some(end) => {
                let line = self.take(end)?;
                self.end_of_line()?;
                Ok(line)
            }
            None if within.len() > max => Err(Malformed.into()),
            None => Err(Stop::Incomplete),
        }
    }

    fn end_of_line(&mut self) -> Result<(), Stop> {
        match self.rest {
            [b'\r', b'\n', rest @ ..] => {
                self.rest = rest;
                Ok(())
            }
            [] | [b'\r'] => Err(Stop::Incomplete),
            _ => Err(Malformed.into()),
        }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Stop> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(Stop::Incomplete)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn integer(line: &[u8]) -> Result<i64, Malformed> {
    // The standard parser accepts exactly RESP's grammar: an optional sign and at least one digit, in range.
    let number = core::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.ok_or(Malformed)
}

/// A length of at most `max`; `None` is the `-1` of the null bulk string and the null array.
fn length(line: &[u8], max: usize) -> Result<Option<usize>, Malformed> {
    match integer(line)? {
        -1 => Ok(None),
        n => match usize::try_from(n) {
            Ok(n) if n <= max => Ok(Some(n)),
            _ => Err(Malformed),
        },
    }
}

/// Finds where values end in a stream that arrives in chunks. Every byte is looked at once at most (bulk strings are
/// stepped over), nothing is kept but a few counters, and nothing is allocated.
///
/// ```
/// use weir::resp::Scanner;
///
/// let mut scanner = Scanner::new();
/// assert_eq!(scanner.scan(b"*2\r\n:1\r\n$3\r\nf"), Ok(None), "one array, begun");
/// assert_eq!(scanner.scan(b"oo\r\n+OK\r\n"), Ok(Some(4)), "it ends 4 bytes into this chunk");
/// assert_eq!(scanner.scan(b"+OK\r\n"), Ok(Some(5)));
/// ```
#[derive(Clone, Debug)]
pub struct Scanner {
    at: At,
    /// The number of items still to come in each open array, outermost first; the first `depth` entries count.
    open: [usize; MAX_DEPTH],
    depth: usize,
    /// The text of the number being read, which a chunk may have cut.
    digits: [u8; MAX_DIGITS],
    bounds: Bounds,
}

/// The element that the scanner expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Kind,
    /// The line of a value of type `kind`, after `read` bytes of it.
    Line {
        kind: u8,
        read: usize,
    },
    /// The LF that ends such a line.
    LineFeed {
        kind: u8,
        read: usize,
    },
    /// The rest of a bulk string, its CRLF included.
    Bulk {
        left: usize,
    },
    /// Nothing: the stream was malformed.
    Lost,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner at the beginning of a value.
    #[must_use]
    pub const fn new() -> Self {
        Self::within(Bounds::WIDEST)
    }

    /// A scanner at the beginning of a value, with narrower bounds.
    #[must_use]
    pub const fn within(bounds: Bounds) -> Self {
        Self { at: At::Kind, open: [0; MAX_DEPTH], depth: 0, digits: [0; MAX_DIGITS], bounds }
    }

    /// Reads on through `chunk` to the end of the current top-level value. `Some(n)`: it ends after the first `n`
    /// bytes of `chunk`; pass the rest to the next call. `None`: all of `chunk` was read and the value goes on.
    ///
    /// # Errors
    /// [`Malformed`], at the latest at the end of the line with the error, and at each later byte.
    pub fn scan(&mut self, chunk: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut rest = chunk;
        while let Some((&byte, after)) = rest.split_first() {
            let complete = match self.at {
                At::Bulk { left } if left > 2 => {
                    let step = rest.len().min(left - 2);
                    self.at = At::Bulk { left: left - step };
                    rest = rest.get(step..).unwrap_or_default();
                    continue;
                }
                _ => self.byte(byte).inspect_err(|_| self.at = At::Lost)?,
            };
            rest = after;
            if complete && self.close() {
                return Ok(Some(chunk.len() - rest.len()));
            }
        }
        Ok(None)
    }

    /// Reads one byte of framing. Returns whether it completes a value other than an array with items.
    fn byte(&mut self, byte: u8) -> Result<bool, Malformed> {
        self.at = match (self.at, byte) {
            (At::Kind, b'+' | b'-' | b':' | b'$' | b'*') => At::Line { kind: byte, read: 0 },
            (At::Kind, _) => return Err(Malformed),
            (At::Line { kind, read }, b'\r') => At::LineFeed { kind, read },
            (At::Line { .. }, b'\n') => return Err(Malformed),
            (At::Line { kind, read }, _) => {
                let fits = match kind {
                    b'+' | b'-' => read < self.bounds.line,
                    _ => self.digits.get_mut(read).map(|digit| *digit = byte).is_some(),
                };
                if !fits {
                    return Err(Malformed);
                }
                At::Line { kind, read: read + 1 }
            }
            (At::LineFeed { kind, read }, b'\n') => return self.line(kind, read),
            (At::Bulk { left: 2 }, b'\r') => At::Bulk { left: 1 },
            (At::Bulk { left: 1 }, b'\n') => {
                self.at = At::Kind;
                return Ok(true);
            }
            (At::LineFeed { .. } | At::Bulk { .. } | At::Lost, _) => return Err(Malformed),
        };
        Ok(false)
    }

    /// Reads a complete line. Returns whether it is a complete value.
    fn line(&mut self, kind: u8, read: usize) -> Result<bool, Malformed> {
        self.at = At::Kind;
        let digits = self.digits.get(..read).unwrap_or_default();
        match kind {
            b':' => {
                integer(digits)?;
            }
            b'$' => {
                if let Some(n) = length(digits, self.bounds.bulk)? {
                    self.at = At::Bulk { left: n + 2 };
                    return Ok(false);
                }
            }
            b'*' => {
                if let Some(n @ 1..) = length(digits, self.bounds.items)? {
                    let open =
                        self.open.get_mut(..self.bounds.depth).and_then(|open| open.get_mut(self.depth));
                    let open = open.ok_or(Malformed)?;
                    *open = n;
                    self.depth += 1;
                    return Ok(false);
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Counts one complete value against the open arrays. Returns whether a top-level value is now complete.
    fn close(&mut self) -> bool {
        while let Some(open) = self.depth.checked_sub(1).and_then(|top| self.open.get_mut(top)) {
            *open -= 1;
            if *open > 0 {
                return false;
            }
            self.depth -= 1;
        }
        true
    }
}
