//! gRPC messages ⇄ RESP: what the network filter on the internal listener says to either side. Sizes are in bytes.
//!
//! A wasm filter can open gRPC streams but cannot speak to Redis; `redis_proxy` can, but speaks RESP. The bridge stands
//! between them, one [`Bridge`] per stream, and passes bytes on under another envelope. There is no HTTP on the
//! way: the cluster in front of the bridge hands the body of a stream to a plain connection (`upstream_config`), so that
//! what is left of gRPC is the five bytes that begin each message.
//!
//! ```text
//!  limiter                    Bridge                     redis_proxy
//!     │   message, k commands   │                             │
//!     ├────────────────────────▶│ on_downstream ── commands ─▶│      k replies are owed
//!     │                         │                             │
//!     │◀─── message, replies ───│ on_upstream ◀─── replies ───┤      answered when all k are in
//! ```
//!
//! - **One message at a time**: who has more to ask opens another stream. So nothing has to say which reply is whose.
//! - **`redis_proxy` only ever sees whole messages**, of whole commands: one that turns out wrong halfway asked nothing.
//! - **Whatever is not as it should be closes the stream**: a message that is not of commands, another before the first is
//!   answered, replies that are malformed, too long, or not owed. No reply is ever taken for the next message's.
//! - **Memory is bounded**: at most one message, and the replies to one.
//!
//! ```
//! use weir::bridge::{Bridge, Onward};
//!
//! let mut bridge = Bridge::new();
//! let commands = b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nTIME\r\n";
//! assert_eq!(bridge.on_downstream(b"\0\0\0\0\x1c"), Onward::Send(b"".into()), "the head says: 28 bytes");
//! assert_eq!(bridge.on_downstream(commands), Onward::Send(commands.into()));
//!
//! assert_eq!(bridge.on_upstream(b"+PONG\r\n*2\r\n"), Onward::Send(b"".into()), "the rest is awaited");
//! let answer = b"\0\0\0\0\x16+PONG\r\n*2\r\n$1\r\n1\r\n:2\r\n";
//! assert_eq!(bridge.on_upstream(b"$1\r\n1\r\n:2\r\n"), Onward::Send(answer.into()));
//! ```
//!
//! Source of the envelope: Length-Prefixed-Message in
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::borrow::Cow;
use std::mem;
use std::ops::Range;

use crate::resp::{self, Scanner};

/// The response header by which the bridge says that it is the bridge.
pub const MARK: &str = "x-weir-bridge";

/// What begins a message: whether it is compressed, which it never is, and its length in four bytes, most significant first.
pub const HEAD: usize = 5;
/// The longest message, its head not counted.
pub const MAX_BODY: usize = 4 * 1024 * 1024;
/// The most commands in one message.
pub const MAX_COMMANDS: usize = 4096;
/// The longest replies, together, that answer one message.
pub const MAX_REPLIES: u32 = 8 * 1024 * 1024;

/// Buffers are reused up to this capacity, and given back beyond it.
const KEPT: usize = 64 * 1024;

/// What goes on, in the same direction, in place of the bytes that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Onward<'a> {
    /// These bytes, often none.
    Send(Cow<'a, [u8]>),
    /// Nothing, ever again: close the connection. What was expected instead; every later call says so too.
    Close(&'static str),
}

/// One stream's transcoder: bytes of either direction go in, in any cut, and the bytes to pass on come out.
#[derive(Default)]
pub struct Bridge {
    closed: Option<&'static str>,
    /// A command that goes before the first message.
    greeting: Vec<u8>,
    /// The reply to it is not in yet. It answers nobody.
    greeted: bool,
    /// The beginning of a message that is not complete yet.
    message: Vec<u8>,
    /// Commands passed on that have no reply yet.
    owed: usize,
    replies: Scanner,
    /// Room for a head, and the replies so far.
    answer: Vec<u8>,
}

const MESSAGE: &str =
    "a gRPC message of 1 to 4194304 bytes: has the cluster before the bridge its upstream_config?";
const COMMANDS: &str = "a message of 1 to 4096 RESP commands and nothing else";
const ONE: &str = "one message at a time";
const OWED: &str = "as many replies as commands";
const REPLIES: &str = "RESP replies of at most 8388608 bytes from redis_proxy";

impl Bridge {
    /// A fresh stream. Allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            closed: None,
            greeting: Vec::new(),
            greeted: false,
            message: Vec::new(),
            owed: 0,
            replies: Scanner::new(),
            answer: Vec::new(),
        }
    }

    /// A fresh stream that begins with `AUTH`. The credentials are `user:password`, or a password alone that has no colon
    /// in it, as they stand in a file: a line end after them is not part of them.
    ///
    /// What Redis says to it is told nobody: if it refuses, every command gets `NOAUTH` for an answer.
    #[must_use]
    pub fn authenticating(credentials: &[u8]) -> Self {
        let credentials = credentials.strip_suffix(b"\n").unwrap_or(credentials);
        let credentials = credentials.strip_suffix(b"\r").unwrap_or(credentials);
        let mut colon = credentials.splitn(2, |byte| *byte == b':');
        let words = [Some(b"AUTH".as_slice()), colon.next().filter(|user| !user.is_empty()), colon.next()];
        let mut greeting = Vec::new();
        resp::array_header(&mut greeting, words.iter().flatten().count());
        words.iter().flatten().for_each(|word| resp::bulk(&mut greeting, word));
        Self { greeting, ..Self::new() }
    }

    /// Takes bytes of a message from the limiter; the commands of a whole one go on to `redis_proxy`, uncopied where it
    /// came in one piece.
    pub fn on_downstream<'a>(&mut self, bytes: &'a [u8]) -> Onward<'a> {
        match self.message(bytes) {
            Ok(commands) => Onward::Send(commands),
            Err(expected) => self.close(expected),
        }
    }

    /// Takes bytes of RESP from `redis_proxy`; once all replies to a message are in, its answer goes on to the limiter.
    pub fn on_upstream(&mut self, bytes: &[u8]) -> Onward<'_> {
        if bytes.is_empty() {
            return self.closed.map_or(Onward::Send(Cow::default()), Onward::Close);
        }
        match self.replies(bytes) {
            Ok(()) if self.owed == 0 && !self.answer.is_empty() => Onward::Send(Cow::Borrowed(&self.answer)),
            Ok(()) => Onward::Send(Cow::default()),
            Err(expected) => self.close(expected),
        }
    }

    fn message<'a>(&mut self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, &'static str> {
        if let Some(expected) = self.closed {
            return Err(expected);
        }
        if self.owed > 0 && !bytes.is_empty() {
            return Err(ONE);
        }
        let mut message = Cow::Borrowed(bytes);
        if !self.message.is_empty() {
            let mut begun = mem::take(&mut self.message);
            begun.extend_from_slice(bytes);
            message = Cow::Owned(begun);
        }
        let Some(body) = body(&message)? else {
            self.message = message.into_owned();
            return Ok(Cow::default());
        };
        self.owed = message.get(body.clone()).and_then(count).ok_or(COMMANDS)?;
        // The last one has left.
        self.answer.clear();
        self.answer.shrink_to(KEPT);
        if body.end < message.len() {
            // This one goes its way; whoever sent more finds the stream closed.
            self.closed = Some(ONE);
        }
        let mut commands = match message {
            Cow::Borrowed(bytes) => Cow::Borrowed(bytes.get(body).unwrap_or_default()),
            Cow::Owned(mut bytes) => {
                bytes.truncate(body.end);
                bytes.drain(..body.start);
                Cow::Owned(bytes)
            }
        };
        if !self.greeting.is_empty() {
            commands.to_mut().splice(..0, mem::take(&mut self.greeting));
            self.greeted = true;
        }
        Ok(commands)
    }

    fn replies(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if let Some(expected) = self.closed {
            return Err(expected);
        }
        let mut bytes = bytes;
        if self.greeted {
            let Some(end) = self.replies.scan(bytes).map_err(|_| REPLIES)? else { return Ok(()) };
            self.greeted = false;
            bytes = bytes.get(end..).unwrap_or_default();
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = self.owed.checked_sub(1).ok_or(OWED)?;
            let Some(end) = self.replies.scan(rest).map_err(|_| REPLIES)? else { break };
            self.owed = left;
            rest = rest.get(end..).unwrap_or_default();
        }
        if self.answer.is_empty() {
            self.answer.extend_from_slice(&[0; HEAD]);
        }
        self.answer.extend_from_slice(bytes);
        let length = u32::try_from(self.answer.len() - HEAD).ok().filter(|length| *length <= MAX_REPLIES);
        let [a, b, c, d] = length.ok_or(REPLIES)?.to_be_bytes();
        if let Some(head) = self.answer.first_chunk_mut() {
            *head = [0, a, b, c, d];
        }
        Ok(())
    }

    fn close(&mut self, expected: &'static str) -> Onward<'static> {
        *self = Self { closed: Some(expected), ..Self::new() };
        Onward::Close(expected)
    }
}

/// Where the body of the message is that these bytes begin with; `None` while it is not complete.
fn body(message: &[u8]) -> Result<Option<Range<usize>>, &'static str> {
    let Some((&[compressed, length @ ..], _)) = message.split_first_chunk::<HEAD>() else {
        // What is no message should not be waited for.
        return if matches!(message, [] | [0, ..]) { Ok(None) } else { Err(MESSAGE) };
    };
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if compressed != 0 || !(1..=MAX_BODY).contains(&length) {
        return Err(MESSAGE);
    }
    let body = HEAD..HEAD + length;
    Ok((body.end <= message.len()).then_some(body))
}

/// How many commands these are; `None` when they are not, or too many.
fn count(mut commands: &[u8]) -> Option<usize> {
    let (mut scanner, mut count) = (Scanner::new(), 0);
    while !commands.is_empty() {
        let end = scanner.scan(commands).ok()??;
        commands = commands.get(end..)?;
        count += 1;
    }
    (1..=MAX_COMMANDS).contains(&count).then_some(count)
}
