// SPDX-License-Identifier: Apache-2.0
//! A connection that speaks RESP to the store, and carries several batches: which replies answer which batch.
//!
//! Redis answers commands in their order. So it is enough to count: the first replies answer the batch that was sent first, as
//! many as it has commands. Nothing else on the connection separates batches.
//!
//! - **Bytes that are not expected end the connection**: replies that are malformed, longer than those of weir's scripts, or owed to
//!   no batch. Otherwise one could pass for the reply to another batch.
//! - **It does not matter how the bytes are cut.**
//! - **Memory is bounded**: the replies to one batch.
//!
//! ```
//! use weir::engine::Pipeline;
//!
//! let mut pipeline = Pipeline::new();
//! pipeline.sent("first", 2);
//! pipeline.sent("second", 1);
//! let mut bytes = b":1\r\n:2\r\n+O".as_slice();
//! assert_eq!(pipeline.next(&mut bytes), Ok(Some(("first", b":1\r\n:2\r\n".to_vec()))));
//! assert_eq!(pipeline.next(&mut bytes), Ok(None), "the rest is awaited");
//! assert_eq!(pipeline.next(&mut b"K\r\n".as_slice()), Ok(Some(("second", b"+OK\r\n".to_vec()))));
//! ```

use std::collections::VecDeque;
use std::mem;

use crate::bridge::{MAX_REPLIES, REPLY};
use crate::resp::Scanner;

/// The store sent something unexpected: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected;

/// The batches in flight on one connection; `B` names one.
#[derive(Debug)]
pub struct Pipeline<B> {
    /// In the order in which they were sent, and how many replies each still lacks.
    owed: VecDeque<(B, usize)>,
    scanner: Scanner,
    /// The replies to the first batch so far.
    replies: Vec<u8>,
}

impl<B> Default for Pipeline<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Pipeline<B> {
    /// A fresh connection.
    #[must_use]
    pub const fn new() -> Self {
        Self { owed: VecDeque::new(), scanner: Scanner::within(REPLY), replies: Vec::new() }
    }

    /// A batch of this many commands was sent.
    pub fn sent(&mut self, batch: B, commands: usize) {
        self.owed.push_back((batch, commands));
    }

    /// Takes bytes from the store up to the end of the first batch's replies, and returns these. Call it again until it returns
    /// `None`: then all bytes are taken.
    ///
    /// # Errors
    /// [`Unexpected`], and at every call from then on.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<(B, Vec<u8>)>, Unexpected> {
        while !bytes.is_empty() {
            let (_, owed) = self.owed.front_mut().ok_or(Unexpected)?;
            let end = self.scanner.scan(bytes).map_err(|_| Unexpected)?;
            let (reply, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            *bytes = rest;
            self.replies.extend_from_slice(reply);
            if u32::try_from(self.replies.len()).map_or(true, |length| length > MAX_REPLIES) {
                return Err(Unexpected);
            }
            *owed = owed.saturating_sub(usize::from(end.is_some()));
            if *owed == 0 {
                let replies = mem::take(&mut self.replies);
                return Ok(self.pop().map(|batch| (batch, replies)));
            }
        }
        Ok(None)
    }

    /// Removes the first batch: its replies have come in one piece, without their bytes.
    pub fn pop(&mut self) -> Option<B> {
        self.owed.pop_front().map(|(batch, _)| batch)
    }

    /// The batches in flight, in the order in which they were sent.
    pub fn in_flight(&self) -> impl ExactSizeIterator<Item = &B> {
        self.owed.iter().map(|(batch, _)| batch)
    }

    /// The connection is closed: these batches get no answer.
    pub fn close(self) -> impl Iterator<Item = B> {
        self.owed.into_iter().map(|(batch, _)| batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a pipeline answers to these bytes, cut into pieces of this length.
    fn answers(
        batches: &[(u8, usize)],
        bytes: &[u8],
        length: usize,
    ) -> Result<Vec<(u8, Vec<u8>)>, Unexpected> {
        let mut pipeline = Pipeline::new();
        batches.iter().for_each(|(batch, commands)| pipeline.sent(*batch, *commands));
        let mut answers = Vec::new();
        for mut piece in bytes.chunks(length) {
            while let Some(answer) = pipeline.next(&mut piece)? {
                answers.push(answer);
            }
        }
        Ok(answers)
    }

    #[test]
    fn replies_go_to_their_batches_however_the_bytes_are_cut() {
        let bytes = b"+PONG\r\n*2\r\n$3\r\na\r\n\r\n:5\r\n-ERR\r\n:7\r\n";
        let expected: Vec<(u8, Vec<u8>)> = vec![
            (1, b"+PONG\r\n".to_vec()),
            (2, b"*2\r\n$3\r\na\r\n\r\n:5\r\n-ERR\r\n".to_vec()),
            (3, b":7\r\n".to_vec()),
        ];
        for length in 1..=bytes.len() {
            assert_eq!(answers(&[(1, 1), (2, 2), (3, 1)], bytes, length), Ok(expected.clone()), "{length}");
        }
    }

    #[test]
    fn what_is_not_expected_ends_the_connection() {
        let long = [b"$4097\r\n".as_slice(), &[b'x'; 4097], b"\r\n"].concat();
        type Case<'a> = (&'a str, &'a [(u8, usize)], &'a [u8]);
        let cases: [Case<'_>; 5] = [
            ("a reply that is owed to no batch", &[], b"+OK\r\n"),
            ("one reply too many", &[(1, 1)], b"+OK\r\n+OK\r\n"),
            ("no RESP", &[(1, 1)], b"HTTP/1.1 200 OK\r\n"),
            ("a reply longer than those of the scripts", &[(1, 1)], &long),
            ("arrays within an array", &[(1, 1)], b"*1\r\n*1\r\n:1\r\n"),
        ];
        for (name, batches, bytes) in cases {
            for length in [1, bytes.len()] {
                assert_eq!(answers(batches, bytes, length), Err(Unexpected), "{name}, {length}");
            }
        }
    }

    /// Each reply is allowed, but together they are more than any batch has.
    #[test]
    fn the_replies_to_a_batch_have_a_bound() {
        let reply = [b"$4096\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat();
        let fit = MAX_REPLIES as usize / reply.len();
        let mut pipeline = Pipeline::new();
        pipeline.sent(1, 2 * fit);
        let mut taken = 0;
        let refused = (0..2 * fit).find(|_| {
            taken += reply.len();
            pipeline.next(&mut reply.as_slice()).is_err()
        });
        assert_eq!(refused, Some(fit), "after {taken} of {MAX_REPLIES} bytes");
        // Exactly as many as are allowed.
        let mut pipeline = Pipeline::new();
        pipeline.sent(1, fit + 2);
        (0..fit).for_each(|_| assert_eq!(pipeline.next(&mut reply.as_slice()), Ok(None)));
        let rest = MAX_REPLIES as usize - fit * reply.len();
        let last = [format!("+{}", "x".repeat(rest - 3)).as_bytes(), b"\r\n"].concat();
        assert_eq!(pipeline.next(&mut last.as_slice()), Ok(None));
        assert_eq!(pipeline.next(&mut b":1\r\n".as_slice()), Err(Unexpected));
    }

    #[test]
    fn what_is_in_flight_gets_no_answer_when_the_connection_closes() {
        let mut pipeline = Pipeline::new();
        (1..=3).for_each(|batch| pipeline.sent(batch, 1));
        assert_eq!(pipeline.next(&mut b":1\r\n:".as_slice()), Ok(Some((1, b":1\r\n".to_vec()))));
        assert!(pipeline.in_flight().eq(&[2, 3]));
        assert!(pipeline.close().eq([2, 3]));
    }
}
