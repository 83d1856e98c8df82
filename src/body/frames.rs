// SPDX-License-Identifier: Apache-2.0
//! Amazon's event streams (`application/vnd.amazon.eventstream`): messages in, their payloads out. A stream may be cut anywhere.
//!
//! A message is its length, the length of its headers, a checksum of both, the headers, the payload, and a checksum of all. Numbers have four
//! bytes, the highest first. The payload of each event of Bedrock is a JSON document, so the headers, which name the event, do not matter.
//!
//! The checksums are not looked at: TCP and TLS have checked the bytes already, and a reader that has lost its place finds lengths that no
//! message has.
//!
//! Source: <https://smithy.io/2.0/aws/amazon-eventstream.html>.

/// The most bytes that headers and payloads have, by the limits of Amazon's own clients.
const MAX_HEADERS: u32 = 128 * 1024;
const MAX_PAYLOAD: u32 = 24 * 1024 * 1024;

/// The lengths, and both checksums.
const OVERHEAD: u32 = 16;
const CHECKSUM: u32 = 4;

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A whole payload.
    Whole(&'a [u8]),
    /// Some of the current payload.
    Data(&'a [u8]),
    /// The end of a payload that came as data.
    End,
}

/// Finds the payloads in a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Framing {
    /// The two lengths. `read` bytes of them have arrived.
    lengths: [u8; 8],
    read: usize,
    /// The bytes still to come before the payload, of the payload, and behind it.
    before: u32,
    payload: u32,
    behind: u32,
    /// Some of the payload has come.
    in_payload: bool,
    /// A message has lengths that none has. Where the next one begins is unknown.
    pub(super) is_lost: bool,
}

impl Framing {
    /// More of the stream.
    pub(super) fn feed<'a>(&mut self, chunk: &'a [u8], mut event: impl FnMut(Piece<'a>)) {
        let mut rest = chunk;
        while let Some((&byte, after)) = rest.split_first().filter(|_| !self.is_lost) {
            if let Some(place) = self.lengths.get_mut(self.read) {
                *place = byte;
                self.read = self.read.saturating_add(1);
                rest = after;
                if self.read == self.lengths.len() {
                    self.begin();
                }
            } else if self.before > 0 {
                rest = pass(&mut self.before, rest).1;
            } else if self.payload > 0 {
                let (data, after) = pass(&mut self.payload, rest);
                rest = after;
                let is_first = !core::mem::replace(&mut self.in_payload, self.payload > 0);
                match (is_first, self.in_payload) {
                    (true, false) => event(Piece::Whole(data)),
                    (_, is_part) => {
                        event(Piece::Data(data));
                        if !is_part {
                            event(Piece::End);
                        }
                    }
                }
            } else {
                rest = pass(&mut self.behind, rest).1;
                if self.behind == 0 {
                    self.read = 0;
                }
            }
        }
    }

    /// The lengths of a message have come.
    fn begin(&mut self) {
        let [whole, headers] = [0, 4].map(|at| {
            let bytes = self.lengths.get(at..).and_then(<[u8]>::first_chunk::<4>);
            bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
        });
        let payload = whole.checked_sub(OVERHEAD).and_then(|rest| rest.checked_sub(headers));
        match payload.filter(|payload| *payload <= MAX_PAYLOAD && headers <= MAX_HEADERS) {
            Some(payload) => {
                self.before = headers.saturating_add(CHECKSUM);
                self.payload = payload;
                self.behind = CHECKSUM;
            }
            None => self.is_lost = true,
        }
    }
}

/// Splits off the next bytes: at most `left`, which decreases by their number. Returns them and the rest.
fn pass<'a>(left: &mut u32, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let passed = bytes.len().min(*left as usize);
    *left = left.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX));
    bytes.split_at(passed)
}
