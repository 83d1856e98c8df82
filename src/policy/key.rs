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
//! A part that must not stand in Redis in clear is replaced by its HMAC, whatever its length: see [`HashKey`].

use core::fmt::{self, Write as _};

use sha1_smol::Sha1;

/// The longest subject that a key contains unchanged, in bytes.
pub const LONGEST_SUBJECT: usize = 128;

/// The longest hash tag, in bytes: braces, a policy's name (64), `|`, and a subject.
pub const LONGEST_TAG: usize = 2 + 64 + 1 + LONGEST_SUBJECT;

/// The longest prefix of keys, in bytes.
pub const LONGEST_PREFIX: usize = 32;

/// The longest key, in bytes: a prefix, `:`, a hash tag, `:`, and a limit's name (64) after that of its tier (64) and
/// `/`.
pub const LONGEST_KEY: usize = LONGEST_PREFIX + 1 + LONGEST_TAG + 1 + 64 + 1 + 64;

/// The hash tag of the journal's key. No subject has it: the tag of a subject contains a `|`.
pub const JOURNAL: &str = "{journal}";

/// Stands for a missing part. No value is encoded to it, because two hexadecimal digits follow each `%` of a value.
const ABSENT: &str = "%-";

/// Precedes the SHA-1 of a long part or subject. No value begins with it, for the same reason.
const HASHED: &str = "%~";

/// Precedes the HMAC of a part that is hashed with a [`HashKey`]. No value begins with it, for the same reason.
const KEYED: &str = "%+";

/// Is hashed before the bytes of a long part. No subject begins with it, so no part has the hash of a subject.
const OF_A_PART: &[u8] = b"\0";

/// The SHA-1 that stands for a part longer than [`LONGEST_SUBJECT`].
#[must_use]
pub fn digest(value: &[u8]) -> [u8; 20] {
    let mut sha1 = Sha1::new();
    sha1.update(OF_A_PART);
    sha1.update(value);
    sha1.digest().bytes()
}

/// Hashes values with a secret: HMAC-SHA-1 (RFC 2104). Without the secret, a guess of a value cannot be tested against its hash.
#[derive(Clone)]
pub struct HashKey {
    /// The inner and the outer hash, each after its padded secret: the same for every value.
    inner: Sha1,
    outer: Sha1,
}

impl HashKey {
    /// The key made of this secret.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        const BLOCK: usize = 64;
        let short = Sha1::from(secret).digest().bytes();
        let secret = if secret.len() > BLOCK { &short } else { secret };
        let mut block = [0; BLOCK];
        block.iter_mut().zip(secret).for_each(|(byte, secret)| *byte = *secret);
        let padded = |pad: u8| Sha1::from(block.map(|byte| byte ^ pad));
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    /// The hash of a value.
    #[must_use]
    pub fn digest(&self, value: &[u8]) -> [u8; 20] {
        let (mut inner, mut outer) = (self.inner.clone(), self.outer.clone());
        inner.update(value);
        outer.update(&inner.digest().bytes());
        outer.digest().bytes()
    }
}

/// Does not show the secret.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// Builds a hash tag, part by part.
pub struct Tag {
    text: String,
    subject: usize,
    parts: usize,
}

impl Tag {
    /// The tag of a subject of `policy`, a valid name.
    #[must_use]
    pub fn new(policy: &str) -> Self {
        let mut text = String::with_capacity(64);
        text.push('{');
        text.push_str(policy);
        text.push('|');
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
        let Some(value) = value else { return self.text.push_str(ABSENT) };
        for run in value.chunk_by(|one, other| plain(*one) && plain(*other)) {
            match (run, core::str::from_utf8(run)) {
                ([first, ..], Ok(run)) if plain(*first) => self.text.push_str(run),
                // Writing to a string cannot fail.
                (run, _) => run.iter().for_each(|byte| write!(self.text, "%{byte:02X}").unwrap_or_default()),
            }
        }
    }

    /// Adds a part longer than [`LONGEST_SUBJECT`], which has this [`digest`].
    pub fn hashed(&mut self, digest: &[u8; 20]) {
        self.digest(HASHED, digest);
    }

    /// Adds a part that has this digest under a [`HashKey`].
    pub fn keyed(&mut self, digest: &[u8; 20]) {
        self.digest(KEYED, digest);
    }

    fn digest(&mut self, kind: &str, digest: &[u8; 20]) {
        self.separate();
        self.text.push_str(kind);
        digest.iter().for_each(|byte| write!(self.text, "{byte:02x}").unwrap_or_default());
    }

    fn separate(&mut self) {
        if self.parts > 0 {
            self.text.push('|');
        }
        self.parts = self.parts.saturating_add(1);
    }

    /// The tag, braces and all; at most [`LONGEST_TAG`] bytes of ASCII.
    #[must_use]
    pub fn finish(mut self) -> String {
        let subject = self.text.get(self.subject..).unwrap_or_default();
        if subject.len() > LONGEST_SUBJECT {
            let digest = Sha1::from(subject).digest();
            self.text.truncate(self.subject);
            let _ = write!(self.text, "{HASHED}{digest}");
        }
        self.text.push('}');
        self.text
    }
}

/// The hash tag in a key, braces and all.
#[must_use]
pub fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let tag = key.get(key.iter().position(|byte| *byte == b'{')?..)?;
    tag.get(..=tag.iter().position(|byte| *byte == b'}')?)
}

/// Whether a subject in a key may contain this byte: one that needs no escape, `%` of an escape, or `|` between parts.
#[must_use]
pub const fn is_of_subject(byte: u8) -> bool {
    plain(byte) || matches!(byte, b'%' | b'|')
}

/// Whether a key contains this byte unchanged.
const fn plain(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b'@' | b'+' | b'=' | b',')
}

/// A number from 0 to 99 that stays the same for a subject, evenly spread over subjects.
#[must_use]
pub fn percentile(tag: &str) -> u8 {
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
        assert_eq!(format!("{:?}", HashKey::new(b"secret")), "HashKey");
    }
}
