//! HTTP/1.1 ⇄ RESP: what the network filter on the internal listener says to either side. Sizes are in bytes.
//!
//! A wasm filter can make HTTP calls but cannot speak to Redis; `redis_proxy` can, but speaks RESP. The bridge stands
//! between them, one [`Bridge`] per connection, and passes bytes on under another envelope: the body of a `POST` is
//! the pipelined commands, the body of the `200` is their raw replies. `x-weir-commands` says how many there are,
//! `x-weir-bridge` marks an answer as the bridge's own, so that nothing Envoy makes up passes for replies.
//!
//! ```text
//!  limiter                    Bridge                     redis_proxy
//!     │   POST, k commands      │                             │
//!     ├────────────────────────▶│ on_downstream ── commands ─▶│      one reply is owed per command passed on
//!     │                         │                             │
//!     │◀── 200, k replies ──────│ on_upstream ◀─── replies ───┤      answered when all k are in
//!
//!  Head ── head complete ──▶ Body ── its end, all k commands passed on ──▶ Head
//!   │                         │
//!   └──────── not ours ───────┴──▶ Refused ── QUIT answered: 400 ──▶ Closed
//!
//!  any ── replies malformed or too long: 502 ─────▶ Closed
//!  any ── a reply that is not owed ───────────────▶ Closed
//! ```
//!
//! - **The two directions never wait for each other.** Commands go on as they arrive; what the reply side needs to
//!   know stands in a short queue. So requests may be pipelined, and a filter that cannot write to Redis while
//!   it handles a reply never has to.
//! - **`redis_proxy` only ever sees whole commands**, so a request that turns out wrong halfway still ends in order.
//! - **A refusal waits its turn.** The filter cannot answer from the request direction either. So the bridge passes on
//!   `QUIT`, which `redis_proxy` answers itself, after all replies before it, and then closes; the `400` takes the
//!   place of that answer.
//! - **Memory is bounded**: at most one head, one command, and the replies to one request twice, as they come and as
//!   they leave.
//! - **No reply is ever taken for the next request's**: one that is not owed closes the connection.
//!
//! ```
//! use weir::bridge::{Bridge, Onward};
//!
//! let mut bridge = Bridge::new();
//! let head = b"POST / HTTP/1.1\r\nhost: weir-bridge\r\nx-weir-commands: 2\r\ncontent-length: 28\r\n\r\n";
//! let commands = b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nTIME\r\n";
//! assert_eq!(bridge.on_downstream(head), Onward::Send(b"".into()));
//! assert_eq!(bridge.on_downstream(commands), Onward::Send(commands.into()));
//!
//! assert_eq!(bridge.on_upstream(b"+PONG\r\n*2\r\n"), Onward::Send(b"".into()), "the rest is awaited");
//! let answer = b"HTTP/1.1 200 OK\r\nx-weir-bridge: 1\r\ncontent-length: 22\r\n\r\n\
//!                +PONG\r\n*2\r\n$1\r\n1\r\n:2\r\n";
//! assert_eq!(bridge.on_upstream(b"$1\r\n1\r\n:2\r\n"), Onward::Send(answer.into()));
//! ```
//!
//! Sources: RFC 9112 for the envelope, and for what `QUIT` does, Envoy's `redis_proxy/proxy_filter.cc`.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::resp::Scanner;

/// The longest request head, its empty line included.
pub const MAX_HEAD: usize = 8 * 1024;
/// The longest request body.
pub const MAX_BODY: usize = 4 * 1024 * 1024;
/// The most commands in one request.
pub const MAX_COMMANDS: usize = 4096;
/// The longest replies, together, that answer one request.
pub const MAX_REPLIES: usize = 8 * 1024 * 1024;
/// The most requests that one connection may have under way. Envoy's own client sends one at a time.
pub const MAX_IN_FLIGHT: usize = 16;

/// The request header that says how many commands the body holds.
pub const COMMANDS_HEADER: &str = "x-weir-commands";
/// The response header that marks an answer as the bridge's own; its value is the version of what it says.
pub const BRIDGE_HEADER: &str = "x-weir-bridge";

const QUIT: &[u8] = b"*1\r\n$4\r\nQUIT\r\n";
/// More headers than this are not ours: Envoy adds about ten.
const MAX_HEADERS: usize = 64;
/// Buffers are reused up to this capacity, and given back beyond it.
const KEPT: usize = 64 * 1024;

/// What goes on, in the same direction, in place of the bytes that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Onward<'a> {
    /// These bytes, often none.
    Send(Cow<'a, [u8]>),
    /// Nothing, ever again: close the connection, after what was sent before has left. Every later call says so too.
    Close,
}

/// One connection's transcoder: bytes of either direction go in, in any cut, and the bytes to pass on come out.
#[derive(Debug)]
pub struct Bridge {
    stage: Stage,
    /// The beginning of a head that is not complete yet.
    head: Vec<u8>,
    commands: Scanner,
    /// The beginning of a command that is not complete yet.
    command: Vec<u8>,
    /// What to answer, oldest first.
    pending: VecDeque<Pending>,
    /// Commands passed on that have no reply yet.
    owed: usize,
    replies: Scanner,
    /// The replies so far to the oldest request.
    reply: Vec<u8>,
    answer: Vec<u8>,
}

/// What the request direction reads next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Head,
    /// `left` bytes of body, in which `commands` more commands are announced.
    Body {
        left: usize,
        commands: usize,
    },
    /// Nothing: the rest is dropped while the refusal waits for its turn.
    Refused,
    Closed,
}

/// A request whose replies are awaited.
#[derive(Debug)]
struct Pending {
    /// Replies still to come, those of commands that are themselves still to come included.
    due: usize,
    refusal: Option<Refusal>,
}

/// What a request should have been.
#[derive(Clone, Copy, Debug)]
struct Refusal(&'static str);

impl Default for Bridge {
    fn default() -> Self {
        Self::new()
    }
}

impl Bridge {
    /// A fresh connection. Allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            stage: Stage::Head,
            head: Vec::new(),
            commands: Scanner::new(),
            command: Vec::new(),
            pending: VecDeque::new(),
            owed: 0,
            replies: Scanner::new(),
            reply: Vec::new(),
            answer: Vec::new(),
        }
    }

    /// Takes bytes of HTTP from the client; the commands in them go on to `redis_proxy`, uncopied where the request
    /// came in one piece.
    pub fn on_downstream<'a>(&mut self, bytes: &'a [u8]) -> Onward<'a> {
        let (mut rest, mut onward) = (bytes, Cow::Borrowed([].as_slice()));
        loop {
            let step = match self.stage {
                Stage::Head if rest.is_empty() => break,
                Stage::Head => self.read_head(&mut rest),
                // An empty body has no bytes to wait for, so this comes before looking whether there are any.
                Stage::Body { left, commands } if left == 0 || commands == 0 => self.end_body(left, commands),
                Stage::Body { .. } if rest.is_empty() => break,
                Stage::Body { left, commands } => self.read_body(left, commands, &mut rest, &mut onward),
                Stage::Refused => break,
                Stage::Closed => return Onward::Close,
            };
            if let Err(refusal) = step {
                self.refuse(refusal);
                append(&mut onward, QUIT);
            }
        }
        Onward::Send(onward)
    }

    /// Takes bytes of RESP from `redis_proxy`; once all replies to a request are in, its answer goes on to the client.
    pub fn on_upstream(&mut self, bytes: &[u8]) -> Onward<'_> {
        if let Stage::Closed = self.stage {
            return Onward::Close;
        }
        clear(&mut self.answer);
        let mut rest = bytes;
        while !rest.is_empty() && !matches!(self.stage, Stage::Closed) {
            self.read_reply(&mut rest);
        }
        if self.answer.is_empty() && matches!(self.stage, Stage::Closed) {
            return Onward::Close;
        }
        Onward::Send(Cow::Borrowed(&self.answer))
    }

    fn read_head(&mut self, rest: &mut &[u8]) -> Result<(), Refusal> {
        let before = self.head.len();
        let head = if before == 0 {
            parse_head(rest)?
        } else {
            let (more, _) = rest.split_at(rest.len().min(MAX_HEAD.saturating_sub(before)));
            self.head.extend_from_slice(more);
            parse_head(&self.head)?
        };
        let Some(head) = head else {
            if before == 0 {
                self.head.extend_from_slice(rest);
            }
            *rest = &[];
            return Ok(());
        };
        *rest = rest.get(head.length.saturating_sub(before)..).unwrap_or_default();
        self.head.clear();
        if self.pending.len() == MAX_IN_FLIGHT {
            return Err(Refusal::IN_FLIGHT);
        }
        self.pending.push_back(Pending { due: head.commands, refusal: None });
        self.stage = Stage::Body { left: head.body, commands: head.commands };
        Ok(())
    }

    /// Reads to the end of the last command or of `rest`; whole commands go on together, so that they go on uncopied.
    fn read_body<'a>(
        &mut self,
        left: usize,
        mut commands: usize,
        rest: &mut &'a [u8],
        onward: &mut Cow<'a, [u8]>,
    ) -> Result<(), Refusal> {
        let (body, _) = rest.split_at(left.min(rest.len()));
        let (mut whole, mut partial) = (0, body);
        let scanned = loop {
            match self.commands.scan(partial) {
                Ok(Some(length)) => {
                    whole += length;
                    partial = partial.split_at(length).1;
                    commands -= 1;
                    self.owed += 1;
                    if commands == 0 {
                        partial = &[];
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(_) => break Err(Refusal::COMMANDS),
            }
        };
        if whole > 0 {
            if !self.command.is_empty() {
                onward.to_mut().extend_from_slice(&self.command);
                clear(&mut self.command);
            }
            append(onward, body.split_at(whole).0);
        }
        self.command.extend_from_slice(partial);
        let read = whole + partial.len();
        *rest = rest.split_at(read).1;
        self.stage = Stage::Body { left: left - read, commands };
        scanned
    }

    /// Comes when the body's bytes or its commands are used up: they must be so together.
    fn end_body(&mut self, left: usize, commands: usize) -> Result<(), Refusal> {
        if (left, commands) != (0, 0) {
            return Err(Refusal::COMMANDS);
        }
        self.stage = Stage::Head;
        Ok(())
    }

    /// Ends the request direction; the caller passes on [`QUIT`], whose reply the refusal takes the place of.
    fn refuse(&mut self, refusal: Refusal) {
        match (self.stage, self.pending.back_mut()) {
            (Stage::Body { commands, .. }, Some(request)) => {
                request.due = request.due - commands + 1;
                request.refusal = Some(refusal);
            }
            _ => self.pending.push_back(Pending { due: 1, refusal: Some(refusal) }),
        }
        self.owed += 1;
        self.stage = Stage::Refused;
        self.head = Vec::new();
        self.command = Vec::new();
    }

    /// Reads to the end of one reply, or of what has come of it.
    fn read_reply(&mut self, rest: &mut &[u8]) {
        let Some(request) = self.pending.front_mut().filter(|_| self.owed > 0) else {
            self.stage = Stage::Closed;
            return;
        };
        let end = self.replies.scan(rest);
        let (part, after) = rest.split_at(end.ok().flatten().unwrap_or(rest.len()));
        *rest = after;
        if end.is_err() || self.reply.len() + part.len() > MAX_REPLIES {
            fail(
                &mut self.answer,
                "502 Bad Gateway",
                "RESP replies of at most 8388608 bytes from redis_proxy",
            );
            self.stage = Stage::Closed;
            return;
        }
        self.reply.extend_from_slice(part);
        if end == Ok(None) {
            return;
        }
        self.owed -= 1;
        request.due -= 1;
        if request.due > 0 {
            return;
        }
        if let Some(Refusal(expected)) = request.refusal {
            fail(&mut self.answer, "400 Bad Request", expected);
            self.stage = Stage::Closed;
        } else {
            respond(&mut self.answer, "200 OK", "", &[&self.reply]);
        }
        clear(&mut self.reply);
        self.pending.pop_front();
    }
}

/// What the bridge needs to know of a request head.
struct Head {
    length: usize,
    body: usize,
    commands: usize,
}

impl Refusal {
    const HTTP: Self = Self("an HTTP/1.1 request");
    const METHOD: Self = Self("the method POST");
    const HEAD: Self = Self("a head of at most 8192 bytes and 64 headers");
    const LENGTH: Self = Self("one content-length of at most 4194304");
    const CODING: Self = Self("a content-length in place of transfer-encoding");
    const EXPECT: Self = Self("no expect header");
    const COUNT: Self = Self("one x-weir-commands from 1 to 4096");
    const COMMANDS: Self = Self("a body of exactly x-weir-commands RESP commands");
    const IN_FLIGHT: Self = Self("at most 16 requests at a time");
}

/// Reads the head that `bytes` begin with; `None` when it is not complete yet.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
    // Never looking past the bound makes what is refused independent of how much came at once.
    let bytes = bytes.get(..MAX_HEAD).unwrap_or(bytes);
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HEAD),
        Err(_) => return Err(Refusal::HTTP),
    };
    if request.version != Some(1) {
        return Err(Refusal::HTTP);
    }
    if request.method != Some("POST") {
        return Err(Refusal::METHOD);
    }
    let (mut body, mut commands) = (None, None);
    for header in request.headers.iter() {
        let named = |name: &str| header.name.eq_ignore_ascii_case(name);
        if named("content-length") {
            once(&mut body, number(header.value, 0, MAX_BODY)).ok_or(Refusal::LENGTH)?;
        } else if named(COMMANDS_HEADER) {
            once(&mut commands, number(header.value, 1, MAX_COMMANDS)).ok_or(Refusal::COUNT)?;
        } else if named("transfer-encoding") {
            return Err(Refusal::CODING);
        } else if named("expect") {
            return Err(Refusal::EXPECT);
        }
    }
    let commands = commands.ok_or(Refusal::COUNT)?;
    let body = body.ok_or(Refusal::LENGTH)?;
    Ok(Some(Head { length, body, commands }))
}

/// Sets `slot` to a value that must be there and must not be set twice.
fn once(slot: &mut Option<usize>, value: Option<usize>) -> Option<()> {
    slot.replace(value?).is_none().then_some(())
}

/// Decimal digits and nothing else, from `min` to `max`.
fn number(value: &[u8], min: usize, max: usize) -> Option<usize> {
    // The standard parser would take a plus sign as well.
    let digits =
        core::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|number| (min..=max).contains(number))
}

fn fail(out: &mut Vec<u8>, status: &str, expected: &str) {
    let headers = "connection: close\r\ncontent-type: text/plain\r\n";
    respond(out, status, headers, &[b"weir bridge: expected ", expected.as_bytes(), b"\n"]);
}

fn respond(out: &mut Vec<u8>, status: &str, headers: &str, body: &[&[u8]]) {
    let length = body.iter().map(|part| part.len()).sum::<usize>();
    let mut digits = itoa::Buffer::new();
    let head = [
        ["HTTP/1.1 ", status, "\r\n"],
        [BRIDGE_HEADER, ": 1\r\n", headers],
        ["content-length: ", digits.format(length), "\r\n\r\n"],
    ];
    head.as_flattened().iter().for_each(|text| out.extend_from_slice(text.as_bytes()));
    body.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends without copying where `out` was empty.
fn append<'a>(out: &mut Cow<'a, [u8]>, bytes: &'a [u8]) {
    if out.is_empty() {
        *out = Cow::Borrowed(bytes);
    } else {
        out.to_mut().extend_from_slice(bytes);
    }
}

/// Empties `buffer`, and gives back what one unusually long message made of it.
fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT);
}
