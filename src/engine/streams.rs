// SPDX-License-Identifier: Apache-2.0
//! The streams of one worker to the bridge: which stream carries which batch, and when a new stream replaces an old one.
//!
//! ```text
//!            a batch finds no idle stream          the bridge answers (headers, marked)
//!  (none) ───────────────────────────────▶ opening ───────────────────────────────────▶ idle ⇄ busy
//!            an old stream needs a successor           its batch is sent                  │
//!                                                                                         │ 5 s old, and its successor
//!                                                     closed ◀── retiring, while busy ◀───┘ has answered a batch
//! ```
//!
//! A stream is a connection of its own to the store, and carries one batch at a time. It stays open between batches, so that
//! a batch costs no more than its bytes. When it was closed, by either side, the next batch opens a new one.
//!
//! **An open connection stays with the address that it was opened to.** When the store's name moves, a stream that stayed
//! open would go on counting at the old Redis. So a stream that is [`AGE`] old gets a successor, make before break: the
//! worker opens the successor beside it, and sends the next batch on the successor. When the store has answered that batch,
//! the worker closes the old stream. No batch waits for a successor to open. The old stream stays if the successor does not
//! open, if the store refuses the login on it, or if it leads to a replica. Without traffic no stream is opened.
//!
//! Four rules about Envoy's side of a stream, each learned from a crash:
//!
//! - Do not cancel a stream from the callback that reports its headers or a message: Envoy uses the stream afterwards.
//! - Cancel a stream that Envoy has closed from the callback that reports the close, and not later: Envoy frees its memory then.
//! - Send nothing before the headers are there: a stream that fails while its first message is sent reports its headers in the
//!   middle of that call, and this VM cannot be entered twice.
//! - Send nothing on a stream from the callback of its last message. If one read returns the last reply and the end of the connection, Envoy
//!   has no connection any more when it reports the message. Envoy loses what is sent then, and up to 1.38.2 it crashes. The bridge marks
//!   that message, and the worker [ends](Streams::end) the stream. Older bridges mark nothing: on their streams, the worker sends
//!   nothing from the callback of any message, and the batch leaves with the next wake-up.
//!
//! **A callback of the root's timer or queue opens one stream at most, before it sends anything; other callbacks open
//! none.** Otherwise a worker's thread spins for ever. When a stream fails while it is opened (there is no endpoint), Envoy
//! queues the stream's close until the callback has returned, and reports its headers at once. After it has reported
//! headers, Envoy empties that queue. If the close of another stream is in it, Envoy takes the close out, cannot report it
//! yet, and puts it back, without end.

use super::{BatchId, Outgoing, StoreFailure};
use crate::bridge::{MARK, MARKS_LAST};
use crate::time::Micros;

/// gRPC's UNAVAILABLE: what the host makes of a connection that could not be opened.
const UNAVAILABLE: u32 = 14;

/// A stream of this age gets a successor as soon as there is traffic.
const AGE: Micros = Micros::from_secs(5);

/// After this time, a successor that could not be opened is tried again, and a stream that has not opened is closed. A
/// successor on which the store answered badly has cost a batch, so another is tried only after [`AGE`].
const RETRY: Micros = Micros::from_secs(1);

/// The delay after which a stream that is no longer needed is cancelled.
const CLEAR: Micros = Micros::from_millis(5);

/// The host's name for a stream.
pub type Token = u32;

/// The operations of a host on streams to the bridge.
pub trait Transport {
    /// Opens a stream.
    fn open(&self) -> Option<Token>;

    /// Sends a message. Returns whether it could.
    fn message(&self, stream: Token, commands: &[u8]) -> bool;

    /// Closes a stream, and forgets it.
    fn cancel(&self, stream: Token);

    /// A header of the stream that Envoy reports in the current callback.
    fn header(&self, name: &str) -> Option<Vec<u8>>;
}

/// The streams to the bridge of one worker.
#[derive(Debug)]
pub struct Streams<T> {
    transport: T,
    /// In the order in which they were opened.
    open: Vec<Stream>,
    /// Streams that are no longer needed. They are cancelled when none of their callbacks runs.
    done: Vec<Token>,
    /// When a new stream last failed, and for how long no other is tried beside those that are open.
    failed: Option<(Micros, Micros)>,
    /// Batches that were not sent yet. They wait until an open stream is idle, or for a callback that may open a stream.
    waiting: Vec<BatchId>,
    /// True if a stream may still be opened in this callback.
    may_open: bool,
    /// The stream whose message Envoy reports in this callback, if that may be its last: nothing is sent on it.
    in_doubt: Option<Token>,
}

#[derive(Debug)]
struct Stream {
    token: Token,
    opened: Micros,
    /// True if the answer came from the bridge; `None` while there is no answer.
    marked: Option<bool>,
    /// The bridge marks the last answer.
    marks_last: bool,
    batch: Option<BatchId>,
    /// It is a successor on which no batch was answered yet.
    succeeds: bool,
    /// Its successor is in use: it closes when its batch is answered.
    retiring: bool,
    /// When it last got a batch.
    used: Micros,
}

impl Stream {
    const fn is_idle(&self) -> bool {
        self.batch.is_none() && self.is_open()
    }

    const fn is_open(&self) -> bool {
        !self.retiring && matches!(self.marked, Some(true))
    }

    const fn is_opening(&self) -> bool {
        self.marked.is_none() && self.batch.is_none()
    }

    /// If the clock was set back, its age is unknown, and it counts as old.
    fn is_old(&self, now: Micros) -> bool {
        self.is_open() && passed(self.opened, AGE, now)
    }
}

fn passed(since: Micros, span: Micros, now: Micros) -> bool {
    now < since || now.since(since) >= span
}

/// The result of sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Now,
    /// A connection is being opened for it. Nothing was sent. When the connection is open, the batch is made anew.
    Connecting,
}

/// The consequence of a stream's headers for the batch that waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Began {
    /// The stream can carry this batch now.
    Connected(BatchId),
    /// The other end is not the bridge: this batch is not sent.
    Failed(BatchId, StoreFailure),
}

/// The consequence of a stream's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It carried no batch.
    Idle,
    /// It never opened. Others are open; its batch waits for them.
    NeverOpened,
    /// It carried this batch.
    Lost(BatchId, StoreFailure),
}

impl<T: Transport> Streams<T> {
    /// No stream is open yet.
    pub const fn new(transport: T) -> Self {
        Self {
            transport,
            open: Vec::new(),
            done: Vec::new(),
            failed: None,
            waiting: Vec::new(),
            may_open: false,
            in_doubt: None,
        }
    }

    /// The callback before this one is over.
    pub const fn leave_callback(&mut self) {
        self.in_doubt = None;
    }

    /// True if a batch can be sent on this stream now.
    fn is_ready(in_doubt: Option<Token>, stream: &Stream) -> bool {
        stream.is_idle() && in_doubt != Some(stream.token)
    }

    /// A callback begins, and `may_open` a stream: one at most, before it sends anything. The head of this file says why.
    pub const fn begin_callback(&mut self, may_open: bool) {
        self.may_open = may_open;
    }

    /// True if a stream may still be opened in this callback.
    #[must_use]
    pub const fn may_open(&self) -> bool {
        self.may_open
    }

    /// True if this is one of its streams.
    #[must_use]
    pub fn has(&self, token: Token) -> bool {
        self.open.iter().any(|stream| stream.token == token) || self.done.contains(&token)
    }

    /// Sends a batch at once on an idle stream. Without an idle stream, the batch gets one that is opening anyway, or a new
    /// one. While new streams fail, it waits for one that is open.
    ///
    /// # Errors
    /// The host cannot open a stream, or send on the one it has.
    pub fn send(&mut self, Outgoing { id, body, .. }: Outgoing, now: Micros) -> Result<Sent, StoreFailure> {
        let in_doubt = self.in_doubt;
        if let Some(idle) = self.open.iter_mut().rfind(|stream| Self::is_ready(in_doubt, stream)) {
            (idle.batch, idle.used) = (Some(id), now);
            let token = idle.token;
            self.may_open = false;
            let sent = self.transport.message(token, &body);
            return if sent { Ok(Sent::Now) } else { Err(self.unsent(token)) };
        }
        let is_opening = self.open.iter().any(Stream::is_opening);
        let is_open = self.open.iter().any(Stream::is_open);
        if !is_opening
            && self.may_open
            && !(is_open && self.open_fails(now))
            && self.begin(false, now).is_none()
        {
            if !is_open {
                return Err(StoreFailure::NotSent);
            }
            self.failed = Some((now, RETRY));
        }
        match self.open.iter_mut().rfind(|stream| stream.is_opening()) {
            Some(opening) => (opening.batch, opening.used) = (Some(id), now),
            None => self.waiting.push(id),
        }
        Ok(Sent::Connecting)
    }

    /// True if a new stream failed so recently that no other is opened beside the open ones.
    fn open_fails(&self, now: Micros) -> bool {
        self.failed.is_some_and(|(failed, span)| !passed(failed, span, now))
    }

    /// A batch that has waited and can be sent now: a stream is idle, or one may be opened for it.
    pub fn next_ready(&mut self, now: Micros) -> Option<BatchId> {
        let is_ready = self.open.iter().any(|stream| Self::is_ready(self.in_doubt, stream));
        if is_ready || self.may_open && self.can_open(now) { self.waiting.pop() } else { None }
    }

    /// True if a batch waits for a callback in which it can be sent, or a stream may be opened for it.
    #[must_use]
    pub fn waits_for_callback(&self, now: Micros) -> bool {
        !self.waiting.is_empty() && (self.in_doubt.is_some() || self.can_open(now))
    }

    /// True if one more stream may be opened: none is open, or no new one failed a moment ago.
    fn can_open(&self, now: Micros) -> bool {
        !self.open_fails(now) || !self.open.iter().any(Stream::is_open)
    }

    /// Opens a successor if one is due. Called when there is traffic, before anything is sent.
    pub fn rotate(&mut self, now: Micros) {
        self.abandon_openings(now);
        if self.open.iter().any(|stream| stream.succeeds) {
            // One at a time.
            return;
        }
        // A stream that was opened while the store was slow, and has been idle since, needs no successor.
        let others = self.open.iter().filter(|stream| stream.is_idle()).count();
        let unused =
            |stream: &&Stream| stream.is_idle() && stream.is_old(now) && passed(stream.used, AGE, now);
        if others > 1
            && let Some(unused) = self.open.iter().find(unused)
        {
            return self.close(unused.token);
        }
        if self.may_open && !self.open_fails(now) && self.open.iter().any(|stream| stream.is_old(now)) {
            self.failed = None;
            if self.begin(true, now).is_none() {
                self.failed = Some((now, RETRY));
            }
        }
    }

    /// Closes streams that have not opened within [`RETRY`]. Their batches have not been sent, and wait for another stream.
    /// Envoy closes a stream that cannot connect much sooner, but never closes one whose bridge has trapped.
    fn abandon_openings(&mut self, now: Micros) {
        let is_stuck = |stream: &&mut Stream| stream.marked.is_none() && passed(stream.opened, RETRY, now);
        while let Some(stream) = self.open.iter_mut().find(is_stuck) {
            self.waiting.extend(stream.batch.take());
            if stream.succeeds {
                self.failed = Some((now, RETRY));
            }
            let token = stream.token;
            self.close(token);
        }
    }

    /// A stream has an answer to a batch. When the engine has read it, the host calls [`judge`](Self::judge).
    pub fn answered(&mut self, token: Token) -> Option<BatchId> {
        let stream = self.find(token)?;
        let (batch, retiring, marks_last) = (stream.batch.take(), stream.retiring, stream.marks_last);
        if retiring {
            self.close(token);
        } else if !marks_last {
            self.in_doubt = Some(token);
        }
        batch
    }

    /// The answer that was judged is the last of this stream. Envoy reports the close after this callback, or has lost it.
    pub fn end(&mut self, token: Token) {
        if self.find(token).is_some() {
            self.close(token);
        }
    }

    /// Keeps the stream that has just answered if it is good enough (`well`) for the next batch; otherwise closes it.
    pub fn judge(&mut self, token: Token, well: bool, now: Micros) {
        let Some(stream) = self.find(token) else { return };
        let succeeds = std::mem::take(&mut stream.succeeds);
        if !well {
            if succeeds {
                self.failed = Some((now, AGE));
            }
            return self.close(token);
        }
        let old = self.open.iter_mut().find(|stream| stream.is_old(now) && stream.token != token);
        if succeeds && let Some(old) = old {
            old.retiring = true;
            if old.batch.is_none() {
                let old = old.token;
                self.close(old);
            }
        }
    }

    /// Envoy reports the headers of a stream. The bridge marks its own.
    pub fn began(&mut self, token: Token, now: Micros) -> Option<Began> {
        let mark = self.transport.header(MARK);
        let marked = mark.is_some();
        let stream = self.find(token)?;
        (stream.marked, stream.marks_last) = (Some(marked), mark.as_deref() == Some(MARKS_LAST.as_bytes()));
        if marked {
            return stream.batch.take().map(Began::Connected);
        }
        let (batch, succeeds) = (stream.batch, stream.succeeds);
        if self.transport.header(":status").is_none_or(|status| status != b"200") {
            // Envoy closes a stream whose status is not 200 right after this callback.
            return None;
        }
        if succeeds {
            self.failed = Some((now, RETRY));
        }
        self.close(token);
        Some(Began::Failed(batch?, StoreFailure::NotTheBridge))
    }

    /// Envoy has closed a stream.
    pub fn closed(&mut self, token: Token, status: u32, now: Micros) -> Closed {
        let stream = self.find(token).map(|stream| (stream.batch, stream.marked, stream.succeeds));
        self.cancel(token);
        let Some((batch, marked, succeeds)) = stream else { return Closed::Idle };
        if succeeds {
            self.failed = Some((now, RETRY));
        }
        let not_the_bridge = marked == Some(false) && status != UNAVAILABLE;
        // A batch that has not been sent yet can be sent on another stream.
        let others = marked != Some(true) && self.open.iter().any(Stream::is_open);
        if others {
            self.failed = Some((now, RETRY));
            self.waiting.extend(batch);
            return Closed::NeverOpened;
        }
        match batch {
            Some(batch) if not_the_bridge => Closed::Lost(batch, StoreFailure::NotTheBridge),
            Some(batch) => Closed::Lost(batch, StoreFailure::Refused),
            None => Closed::Idle,
        }
    }

    /// A stream is no longer needed.
    pub fn close(&mut self, token: Token) {
        self.open.retain(|stream| stream.token != token);
        self.done.push(token);
    }

    /// Cancels the streams that are no longer needed. Not called from a stream's own callback.
    pub fn clear(&mut self) {
        for token in std::mem::take(&mut self.done) {
            self.cancel(token);
        }
    }

    /// When [`clear`](Self::clear) is due; `None` while there is nothing to clear.
    #[must_use]
    pub fn next_clear(&self, now: Micros) -> Option<Micros> {
        (!self.done.is_empty()).then(|| now.plus(CLEAR))
    }

    /// The engine has abandoned this batch. Its reply must not be taken for that to the next batch.
    pub fn abandon(&mut self, batch: BatchId, now: Micros) {
        self.waiting.retain(|waiting| *waiting != batch);
        let Some(stream) = self.open.iter_mut().find(|stream| stream.batch == Some(batch)) else { return };
        if stream.marked.is_none() {
            // Nothing was sent on it. When its connection is open it can carry another batch.
            stream.batch = None;
            return;
        }
        if stream.succeeds {
            self.failed = Some((now, AGE));
        }
        let token = stream.token;
        self.close(token);
    }

    fn begin(&mut self, succeeds: bool, now: Micros) -> Option<()> {
        self.may_open = false;
        let token = self.transport.open()?;
        let (marked, marks_last, batch, retiring) = (None, false, None, false);
        self.open.push(Stream {
            token,
            opened: now,
            marked,
            marks_last,
            batch,
            succeeds,
            retiring,
            used: now,
        });
        Some(())
    }

    fn unsent(&mut self, token: Token) -> StoreFailure {
        self.close(token);
        StoreFailure::NotSent
    }

    fn find(&mut self, token: Token) -> Option<&mut Stream> {
        self.open.iter_mut().find(|stream| stream.token == token)
    }

    fn cancel(&mut self, token: Token) {
        self.open.retain(|stream| stream.token != token);
        self.done.retain(|done| *done != token);
        self.transport.cancel(token);
    }
}

#[cfg(test)]
pub(super) mod tests;
