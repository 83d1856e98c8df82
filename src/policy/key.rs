// SPDX-License-Identifier: Apache-2.0
//! Keys. All limits of a subject share one hash tag, `{policy|part|part}`, and so one Redis Cluster slot:
//! `weir:{policy|part|part}:limit`.
//!
//! Parts are data that clients write. Bytes other than letters, digits and a few marks are percent-encoded, so no part can end
//! the tag, reach another policy's keys or look like several parts: the encoding is injective. A part longer than
//! [`LONGEST_SUBJECT`] bytes is replaced by its SHA-1, and so is a subject that is still longer when its parts are joined. Among
//! a thousand million such subjects of one policy, the odds that any two collide by chance are below 10⁻³⁰ (n²/2¹⁶¹). A client
//! that makes two colliding subjects on purpose gains nothing: both are its own, and share one limit.
//!
//! A part that must not be in Redis in clear is replaced by its hash, whatever its length: see [`ValueHasher`].

use core::fmt;
use std::io::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1_smol::Sha1;
use sha2::digest::InvalidLength;
use sha2::digest::consts::U16;
use sha2::{Digest as _, Sha256};

use crate::limit::Member;
use crate::request::Digest;

/// The longest subject that a key contains unchanged, in bytes.
pub const LONGEST_SUBJECT: usize = 128;

/// The longest value that is hashed because it must not be in keys in clear, in bytes. SHA-256 takes five times as long as SHA-1, so a
/// longer value, which no key and no token has, would make an expensive request.
pub const LONGEST_HIDDEN: usize = 8 * 1024;

/// The longest hash tag, in bytes: braces, a policy's name (64), `|`, and a subject.
pub const LONGEST_TAG: usize = 2 + 64 + 1 + LONGEST_SUBJECT;

/// The longest prefix of keys, in bytes.
pub const LONGEST_PREFIX: usize = 32;

/// The longest key, in bytes: a prefix, `:`, a hash tag, `:`, and a limit's name (64) after that of its tier (64) and
/// `/`.
pub const LONGEST_KEY: usize = LONGEST_PREFIX + 1 + LONGEST_TAG + 1 + 64 + 1 + 64;

pub use crate::script::records::JOURNAL;

/// Stands for a missing part. No value is encoded to it, because two hexadecimal digits follow each `%` of a value.
const ABSENT: &str = "%-";

/// Precedes the SHA-1 of a long part or subject. No value begins with it, for the same reason.
const HASHED: &str = "%~";

/// Precedes the hash of a part that must not be there in clear. No value begins with it, for the same reason.
const HIDDEN: &str = "%+";

/// Is hashed before the bytes of a long part. No subject begins with it, so no part has the hash of a subject.
const OF_A_PART: &[u8] = b"\0";

/// The digest that replaces a part longer than [`LONGEST_SUBJECT`].
#[must_use]
pub fn digest(value: &[u8]) -> Digest {
    let mut sha1 = Sha1::new();
    sha1.update(OF_A_PART);
    sha1.update(value);
    Digest::Long(sha1.digest().bytes())
}

/// The hash of a value that `distinct` limits count: the first 96 bits of the SHA-1 of a tag, which has the subject too. So one value has
/// another hash for each subject.
#[must_use]
pub fn member(tag: &[u8]) -> Member {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = Sha1::from(tag).digest().bytes();
    Member([a, b, c, d, e, f, g, h, i, j, k, l])
}

/// Hashes values that must not be in keys in clear: HMAC-SHA-256 (RFC 2104) under a secret, or SHA-256 where there is none; the first
/// 128 bits. Without the secret, a guess of a value cannot be tested against its HMAC.
#[derive(Clone, Default)]
pub struct ValueHasher {
    /// The hashes of the padded secret, the inner and the outer: the same for every value.
    keyed: Option<Hmac<Sha256>>,
}

impl ValueHasher {
    /// Hashes under this secret.
    #[must_use]
    pub fn with_secret(secret: &[u8]) -> Self {
        match Hmac::new_from_slice(secret) {
            Ok(keyed) => Self { keyed: Some(keyed) },
            Err(InvalidLength) => unreachable!("HMAC takes secrets of any length"),
        }
    }

    /// True if it hashes under a secret.
    #[must_use]
    pub const fn has_secret(&self) -> bool {
        self.keyed.is_some()
    }

    /// True if both have the same secret, or none.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.digest(&[]) == other.digest(&[])
    }

    /// The digest that replaces a value.
    #[must_use]
    pub fn digest(&self, value: &[u8]) -> Digest {
        let hash = match &self.keyed {
            Some(keyed) => keyed.clone().chain_update(value).finalize().into_bytes(),
            None => Sha256::digest(value),
        };
        let (first, _) = hash.split::<U16>();
        Digest::Hidden(first.into())
    }
}

/// Does not show the secret.
impl fmt::Debug for ValueHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueHasher")
    }
}

/// Builds a hash tag, part by part.
pub struct Tag {
    /// Only ASCII.
    text: Vec<u8>,
    subject: usize,
    parts: usize,
}

impl Tag {
    /// The tag of a subject of `policy`, a valid name.
    #[must_use]
    pub fn new(policy: &str) -> Self {
        let mut text = Vec::with_capacity(64);
        text.push(b'{');
        text.extend_from_slice(policy.as_bytes());
        text.push(b'|');
        let subject = text.len();
        Self { text, subject, parts: 0 }
    }

    /// Adds a part: a value, or that it is missing.
    pub fn part(&mut self, value: Option<&[u8]>) {
        let value = match value {
            Some(value) if value.len() > LONGEST_SUBJECT => return self.hashed(&digest(value)),
            value => value,
        };
        self.separate();
        let Some(mut rest) = value else { return self.text.extend_from_slice(ABSENT.as_bytes()) };
        loop {
            let length = rest.iter().position(|byte| !plain(*byte)).unwrap_or(rest.len());
            let (run, after) = rest.split_at(length);
            self.text.extend_from_slice(run);
            let Some((byte, after)) = after.split_first() else { return };
            // Writing to a vector cannot fail.
            write!(self.text, "%{byte:02X}").unwrap_or_default();
            rest = after;
        }
    }

    /// Adds a part that this stands for.
    pub fn hashed(&mut self, digest: &Digest) {
        self.separate();
        let (mark, bytes): (_, &[u8]) = match digest {
            Digest::Long(sha1) => (HASHED, sha1),
            Digest::Hidden(hash) => (HIDDEN, hash),
        };
        self.text.extend_from_slice(mark.as_bytes());
        let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        self.text.extend(halves.filter_map(|half| b"0123456789abcdef".get(usize::from(half))));
    }

    fn separate(&mut self) {
        if self.parts > 0 {
            self.text.push(b'|');
        }
        self.parts = self.parts.saturating_add(1);
    }

    /// The tag with its braces: at most [`LONGEST_TAG`] bytes of ASCII.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let subject = self.text.get(self.subject..).unwrap_or_default();
        if subject.len() > LONGEST_SUBJECT {
            let digest = Sha1::from(subject).digest();
            self.text.truncate(self.subject);
            let _ = write!(self.text, "{HASHED}{digest}");
        }
        self.text.push(b'}');
        self.text
    }
}

/// The hash tag in a key, braces and all.
#[must_use]
pub fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let tag = key.get(key.iter().position(|byte| *byte == b'{')?..)?;
    tag.get(..=tag.iter().position(|byte| *byte == b'}')?)
}

/// True if a subject in a key may contain this byte: one that needs no escape, `%` of an escape, or `|` between parts.
#[must_use]
pub const fn is_of_subject(byte: u8) -> bool {
    plain(byte) || matches!(byte, b'%' | b'|')
}

/// True if a key contains this byte unchanged.
const fn plain(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b'@' | b'+' | b'=' | b',')
}

/// A number from 0 to 99 that stays the same for a subject, evenly spread over subjects.
#[must_use]
pub fn percentile(tag: &[u8]) -> u8 {
    let [a, b, c, d, ..] = Sha1::from(tag).digest().bytes();
    u8::try_from(u32::from_be_bytes([a, b, c, d]) % 100).unwrap_or(0)
}

/// The Redis Cluster slot of a tag's keys: CRC16 (XMODEM) of what is between the braces, modulo 16384.
/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model>
#[must_use]
pub fn slot(tag: &[u8]) -> u16 {
    let inner = tag.strip_prefix(b"{").and_then(|tag| tag.strip_suffix(b"}")).unwrap_or(tag);
    let crc =
        inner.iter().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
    crc & 0x3fff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_key_is_what_redis_hashes() {
        let rows: [(&[u8], Option<&[u8]>); 5] = [
            (b"weir:{p|ann}:l", Some(b"{p|ann}")),
            (b"{journal}", Some(b"{journal}")),
            (b"weir:p|ann:l", None),
            (b"weir:{p|ann:l", None),
            (b"weir:}{", None),
        ];
        for (key, tag) in rows {
            assert_eq!(tag_of(key), tag, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn a_subject_in_a_key_has_bytes_that_need_no_escape_and_those_between() {
        let found: String = (0..128_u8).filter(|byte| is_of_subject(*byte)).map(char::from).collect();
        assert_eq!(found, "%+,-./0123456789:=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz|~");
    }

    #[test]
    fn a_log_does_not_show_the_secret() {
        assert_eq!(format!("{:?}", ValueHasher::with_secret(b"secret")), "ValueHasher");
    }
}
