// SPDX-License-Identifier: Apache-2.0
//! gRPC messages ⇄ RESP: what the filter of the cluster `weir-bridge` sends in either direction. Sizes are in bytes.
//!
//! A wasm filter can open gRPC streams but cannot speak RESP to Redis. The bridge stands between them, one [`Bridge`]
//! per stream, and passes bytes on under another envelope. There is no HTTP on the way: the cluster hands the body of a
//! stream to a plain connection (`upstream_config`), and of gRPC only the five bytes before each message remain.
//!
//! ```text
//!  limiter                    Bridge                        Redis
//!     │   message, k commands   │                             │
//!     ├────────────────────────▶│ on_downstream ── commands ─▶│      k replies are owed
//!     │                         │                             │
//!     │◀─── message, replies ───│ on_upstream ◀─── replies ───┤      answered when all k are in
//! ```
//!
//! - **The last answer of a stream is marked** ([`LAST`]): Redis has ended the connection together with these replies. If the limiter sent
//!   the next message on that stream, Envoy would lose it.
//!
//! - **One message at a time**: the limiter opens another stream to ask more. So replies need no mark of the batch they answer.
//! - **Redis receives whole messages of whole commands only**: of a message that is wrong halfway, no command runs.
//! - **Unexpected input closes the stream**: a message that is not of commands, another before the first is answered, replies
//!   that are malformed, longer than those of weir's scripts, or not owed. Otherwise one could pass for a reply to the next message.
//! - **It does not matter how either side's bytes are cut.** So bytes after a whole message, or after the last reply to it, do
//!   not invalidate it: they close the stream at the next call.
//! - **Memory is bounded**: at most one message, and the replies to one.
//!
//! ```
//! use weir::bridge::{self, Bridge, Output};
//!
//! let mut bridge = Bridge::new();
//! let commands = b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nTIME\r\n";
//! assert_eq!(bridge.on_downstream(b"\0\0\0\0\x1c"), Output::Send(b"".into()), "the head says: 28 bytes");
//! assert_eq!(bridge.on_downstream(commands), Output::Send(commands.into()));
//!
//! assert_eq!(bridge.on_upstream(b"+PONG\r\n*2\r\n", false), Output::Send(b"".into()), "the rest is awaited");
//! let answer = b"\0\0\0\0\x16+PONG\r\n*2\r\n$1\r\n1\r\n:2\r\n";
//! assert_eq!(bridge.on_upstream(b"$1\r\n1\r\n:2\r\n", false), Output::Send(answer.into()));
//! assert_eq!(bridge::replies(&answer[5..]), (&answer[5..], false), "the stream can carry another message");
//! ```
//!
//! Source of the envelope: Length-Prefixed-Message in
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::borrow::Cow;
use std::mem;

use crate::resp::{self, Bounds, Scanner};

/// The response header that marks a stream as the bridge's.
pub const MARK: &str = "x-weir-bridge";
/// The value of [`MARK`] by which the limiter knows that the bridge marks the last answer of a stream. Older bridges say `1`.
pub const MARKS_LAST: &str = "2";
/// The byte behind the replies of the last answer of a stream. Each reply ends with a line feed, so no answer without this mark ends with
/// it. Older limiters ignore the byte: they read one reply for each command, and nothing behind that.
pub const LAST: u8 = b'.';

/// The head of a message: whether it is compressed, which it never is, and its length in four bytes, big-endian.
pub const HEAD: usize = 5;
/// The longest message, its head not counted.
pub const MAX_BODY: usize = 4 * 1024 * 1024;
/// The most commands in one message.
pub const MAX_COMMANDS: usize = 4096;
/// The longest replies, together, that answer one message.
pub const MAX_REPLIES: u32 = 8 * 1024 * 1024;
/// The most subjects that a command asks about, and the most items of one reply.
pub const MAX_ITEMS: usize = 64;
/// The bounds of one reply. weir's scripts reply with a packed string or an integer, and Redis with an error in one line. A server in the
/// place of Redis cannot make a worker read more than that for each command, or than an array of such replies.
pub const REPLY: Bounds = Bounds { line: 4096, bulk: 4096, items: MAX_ITEMS, depth: 1 };

/// The answers' buffer is reused up to this capacity, and given back beyond it.
const KEPT: usize = 64 * 1024;

/// The output for some bytes of input, in the same direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// These bytes, often none.
    Send(Cow<'a, [u8]>),
    /// Nothing: close the stream. Says what was expected instead; every later call returns the same.
    Close(&'static str),
}

/// One stream's transcoder: bytes of either direction go in, in any cut, and the bytes to pass on come out.
pub struct Bridge {
    closed: Option<&'static str>,
    /// A command that goes before the first message.
    greeting: Vec<u8>,
    /// The reply to it has not arrived. It is not passed on.
    greeting_owed: bool,
    /// The beginning of a message that is not complete yet.
    message: Vec<u8>,
    /// The number of commands that were passed on and have no reply yet.
    owed: usize,
    replies: Scanner,
    /// The head, and the replies so far.
    answer: Vec<u8>,
}

const MESSAGE: &str = "a gRPC message of 1 to 4194304 bytes: has the cluster its upstream_config?";
const COMMANDS: &str = "a message of 1 to 4096 RESP commands and nothing else";
const ONE: &str = "one message at a time";
const OWED: &str = "as many replies as commands";
const PASSWORD: &str = "the password of Redis";
const REPLIES: &str =
    "RESP replies from Redis of at most 64 items, of at most 4096 bytes each, and 8388608 bytes together";

/// The error with which Redis refuses a password.
const REFUSED: &[u8] = b"-WRONGPASS";

impl Default for Bridge {
    fn default() -> Self {
        Self::new()
    }
}

impl Bridge {
    /// A fresh stream. Allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            closed: None,
            greeting: Vec::new(),
            greeting_owed: false,
            message: Vec::new(),
            owed: 0,
            replies: Scanner::within(REPLY),
            answer: Vec::new(),
        }
    }

    /// A fresh stream that begins with the [`login`] of these credentials.
    ///
    /// If Redis refuses the password, that is the reply to each command of the first message, and the stream closes: Redis
    /// itself replies once to a long message of a client that has not logged in, and closes. Other replies to `AUTH` are
    /// dropped.
    #[must_use]
    pub fn authenticating(credentials: &[u8]) -> Self {
        Self { greeting: login(credentials), ..Self::new() }
    }

    /// Takes bytes of a message from the limiter; the commands of a whole one go on to Redis, uncopied where it came in
    /// one piece.
    pub fn on_downstream<'a>(&mut self, bytes: &'a [u8]) -> Output<'a> {
        match self.message(bytes) {
            Ok(commands) => Output::Send(commands),
            Err(expected) => self.close(expected),
        }
    }

    /// Takes bytes of RESP from Redis; once all replies to a message are in, its answer goes on to the limiter. `ends` says that Redis
    /// has ended the connection with these bytes.
    pub fn on_upstream(&mut self, bytes: &[u8], ends: bool) -> Output<'_> {
        match self.replies(bytes) {
            Ok(true) => {
                if ends {
                    self.answer.push(LAST);
                }
                self.write_head();
                Output::Send(Cow::Borrowed(&self.answer))
            }
            Ok(false) => Output::Send(Cow::default()),
            Err(expected) => self.close(expected),
        }
    }

    fn message<'a>(&mut self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, &'static str> {
        self.open()?;
        if self.owed > 0 && !bytes.is_empty() {
            return Err(ONE);
        }
        let mut message = Cow::Borrowed(bytes);
        if !self.message.is_empty() {
            let mut begun = mem::take(&mut self.message);
            begun.extend_from_slice(bytes);
            message = Cow::Owned(begun);
        }
        let Some(end) = end(&message)? else {
            self.message = message.into_owned();
            return Ok(Cow::default());
        };
        self.owed = message.get(HEAD..end).and_then(count).ok_or(COMMANDS)?;
        if end < message.len() {
            self.closed = Some(ONE);
        }
        // The last answer has left.
        self.answer.clear();
        self.answer.shrink_to(KEPT);
        self.answer.reserve(HEAD + REFUSED.len());
        self.answer.extend_from_slice(&[0; HEAD]);
        let mut commands = match message {
            Cow::Borrowed(bytes) => Cow::Borrowed(bytes.get(HEAD..end).unwrap_or_default()),
            Cow::Owned(mut bytes) => {
                bytes.truncate(end);
                bytes.drain(..HEAD);
                Cow::Owned(bytes)
            }
        };
        if !self.greeting.is_empty() {
            commands.to_mut().splice(..0, mem::take(&mut self.greeting));
            self.greeting_owed = true;
        }
        Ok(commands)
    }

    /// Adds bytes of a reply. True if the answer is complete now.
    fn replies(&mut self, mut bytes: &[u8]) -> Result<bool, &'static str> {
        self.open()?;
        if self.greeting_owed {
            let end = self.replies.scan(bytes).map_err(|_| REPLIES)?;
            let (reply, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            // Its beginning is enough to know a refusal.
            let kept = self.answer.len() - HEAD;
            let begin = reply.len().min(REFUSED.len().saturating_sub(kept));
            self.answer.extend_from_slice(reply.split_at(begin).0);
            if end.is_none() {
                return Ok(false);
            }
            self.greeting_owed = false;
            if self.answer.split_off(HEAD) == REFUSED {
                self.closed = Some(PASSWORD);
                for _ in 0..mem::take(&mut self.owed) {
                    self.answer.extend_from_slice(REFUSED);
                    self.answer.extend_from_slice(b" the user or the password\r\n");
                }
                return self.check_length().map(|()| true);
            }
            bytes = rest;
        }
        if bytes.is_empty() {
            return Ok(false);
        }
        if self.owed == 0 {
            return Err(OWED);
        }
        let mut read = 0;
        while self.owed > 0 && read < bytes.len() {
            let rest = bytes.get(read..).unwrap_or_default();
            let end = self.replies.scan(rest).map_err(|_| REPLIES)?;
            self.owed -= usize::from(end.is_some());
            read += end.unwrap_or(rest.len());
        }
        if read < bytes.len() {
            self.closed = Some(OWED);
        }
        self.answer.extend_from_slice(bytes.get(..read).unwrap_or_default());
        self.check_length()?;
        Ok(self.owed == 0)
    }

    fn check_length(&self) -> Result<(), &'static str> {
        if self.length() <= MAX_REPLIES { Ok(()) } else { Err(REPLIES) }
    }

    fn length(&self) -> u32 {
        u32::try_from(self.answer.len() - HEAD).unwrap_or(u32::MAX)
    }

    fn write_head(&mut self) {
        let [a, b, c, d] = self.length().to_be_bytes();
        if let Some(head) = self.answer.first_chunk_mut() {
            *head = [0, a, b, c, d];
        }
    }

    fn open(&self) -> Result<(), &'static str> {
        self.closed.map_or(Ok(()), Err)
    }

    fn close(&mut self, expected: &'static str) -> Output<'static> {
        *self = Self { closed: Some(expected), ..Self::new() };
        Output::Close(expected)
    }
}

/// The replies in the message of an answer, and whether they are the last of their stream.
#[must_use]
pub const fn replies(message: &[u8]) -> (&[u8], bool) {
    match message {
        [replies @ .., LAST] => (replies, true),
        _ => (message, false),
    }
}

/// The command `AUTH`. The credentials are `user:password`, or a password alone (`:password` if it has colons in it), as in a file: a line
/// end after them is not part of them.
#[must_use]
pub fn login(credentials: &[u8]) -> Vec<u8> {
    let credentials = credentials.strip_suffix(b"\n").unwrap_or(credentials);
    let credentials = credentials.strip_suffix(b"\r").unwrap_or(credentials);
    let mut parts = credentials.splitn(2, |byte| *byte == b':');
    let words = [Some(b"AUTH".as_slice()), parts.next().filter(|user| !user.is_empty()), parts.next()];
    let mut command = Vec::new();
    resp::array_header(&mut command, words.iter().flatten().count());
    words.iter().flatten().for_each(|word| resp::bulk(&mut command, word));
    command
}

/// Returns the end of the message at the beginning of these bytes; `None` while it is not complete.
fn end(message: &[u8]) -> Result<Option<usize>, &'static str> {
    let Some((&[compressed, length @ ..], _)) = message.split_first_chunk::<HEAD>() else {
        // Do not wait for the rest of what can be no message.
        return if matches!(message, [] | [0, ..]) { Ok(None) } else { Err(MESSAGE) };
    };
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if compressed != 0 || !(1..=MAX_BODY).contains(&length) {
        return Err(MESSAGE);
    }
    Ok(Some(HEAD + length).filter(|end| *end <= message.len()))
}

/// Counts the commands; `None` if they are something else, or too many.
fn count(mut commands: &[u8]) -> Option<usize> {
    let (mut scanner, mut count) = (Scanner::new(), 0);
    while !commands.is_empty() {
        // Redis replies to other values with nothing, or more than once.
        if !matches!(commands, [b'*', b'1'..=b'9', ..]) {
            return None;
        }
        let end = scanner.scan(commands).ok()??;
        commands = commands.get(end..)?;
        count += 1;
    }
    (1..=MAX_COMMANDS).contains(&count).then_some(count)
}
