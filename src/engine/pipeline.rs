// SPDX-License-Identifier: Apache-2.0
//! A connection that speaks RESP to the store, and carries several batches: where the replies to each end.
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
//! let mut pipeline = Pipeline::default();
//! pipeline.sent(2);
//! pipeline.sent(1);
//! let mut bytes = b":1\r\n:2\r\n+O".as_slice();
//! assert_eq!(pipeline.next(&mut bytes), Ok(Some(b":1\r\n:2\r\n".to_vec())));
//! assert_eq!(pipeline.next(&mut bytes), Ok(None), "the rest is awaited");
//! assert_eq!(pipeline.next(&mut b"K\r\n".as_slice()), Ok(Some(b"+OK\r\n".to_vec())));
//! ```

use std::collections::VecDeque;
use std::mem;

use crate::bridge::{MAX_REPLIES, REPLY};
use crate::resp::Scanner;

/// The store sent something unexpected: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected;

/// The replies that the store owes on one connection.
#[derive(Debug)]
pub struct Pipeline {
    /// The number of replies that each batch still lacks, in the order in which the batches were sent.
    owed: VecDeque<usize>,
    scanner: Scanner,
    /// The replies to the first batch so far.
    replies: Vec<u8>,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self { owed: VecDeque::new(), scanner: Scanner::within(REPLY), replies: Vec::new() }
    }
}

impl Pipeline {
    /// A batch of this many commands was sent.
    pub fn sent(&mut self, commands: usize) {
        self.owed.push_back(commands);
    }

    /// Takes bytes from the store up to the end of the first batch's replies, and returns these. Call it again until it returns
    /// `None`: then all bytes are taken.
    ///
    /// # Errors
    /// [`Unexpected`], and at every call from then on.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, Unexpected> {
        while !bytes.is_empty() {
            let owed = self.owed.front_mut().ok_or(Unexpected)?;
            let end = self.scanner.scan(bytes).map_err(|_| Unexpected)?;
            let (reply, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            *bytes = rest;
            self.replies.extend_from_slice(reply);
            if u32::try_from(self.replies.len()).map_or(true, |length| length > MAX_REPLIES) {
                return Err(Unexpected);
            }
            *owed = owed.saturating_sub(usize::from(end.is_some()));
            if *owed == 0 {
                self.owed.pop_front();
                return Ok(Some(mem::take(&mut self.replies)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a pipeline answers to these bytes, cut into pieces of this length.
    fn answers(batches: &[usize], bytes: &[u8], length: usize) -> Result<Vec<Vec<u8>>, Unexpected> {
        let mut pipeline = Pipeline::default();
        batches.iter().for_each(|commands| pipeline.sent(*commands));
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
        let expected: Vec<Vec<u8>> =
            vec![b"+PONG\r\n".to_vec(), b"*2\r\n$3\r\na\r\n\r\n:5\r\n-ERR\r\n".to_vec(), b":7\r\n".to_vec()];
        for length in 1..=bytes.len() {
            assert_eq!(answers(&[1, 2, 1], bytes, length), Ok(expected.clone()), "{length}");
        }
    }

    #[test]
    fn what_is_not_expected_ends_the_connection() {
        let long = [b"$4097\r\n".as_slice(), &[b'x'; 4097], b"\r\n"].concat();
        type Case<'a> = (&'a str, &'a [usize], &'a [u8]);
        let cases: [Case<'_>; 5] = [
            ("a reply that is owed to no batch", &[], b"+OK\r\n"),
            ("one reply too many", &[1], b"+OK\r\n+OK\r\n"),
            ("no RESP", &[1], b"HTTP/1.1 200 OK\r\n"),
            ("a reply longer than those of the scripts", &[1], &long),
            ("arrays within an array", &[1], b"*1\r\n*1\r\n:1\r\n"),
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
        let mut pipeline = Pipeline::default();
        pipeline.sent(2 * fit);
        let mut taken = 0;
        let refused = (0..2 * fit).find(|_| {
            taken += reply.len();
            pipeline.next(&mut reply.as_slice()).is_err()
        });
        assert_eq!(refused, Some(fit), "after {taken} of {MAX_REPLIES} bytes");
        // Exactly as many as are allowed.
        let mut pipeline = Pipeline::default();
        pipeline.sent(fit + 2);
        (0..fit).for_each(|_| assert_eq!(pipeline.next(&mut reply.as_slice()), Ok(None)));
        let rest = MAX_REPLIES as usize - fit * reply.len();
        let last = [format!("+{}", "x".repeat(rest - 3)).as_bytes(), b"\r\n"].concat();
        assert_eq!(pipeline.next(&mut last.as_slice()), Ok(None));
        assert_eq!(pipeline.next(&mut b":1\r\n".as_slice()), Err(Unexpected));
    }
}
