// SPDX-License-Identifier: Apache-2.0
//! The records of a subject in Redis beside the states of its limits: the names of its keys, its ban, and the denials that lead to one. The
//! scripts read and write these; operators' commands read them with this. Times are microseconds.

use super::{BAN, OVERRIDE, Plan};
use crate::time::Micros;

/// The hash tag of the keys of the journals. No subject has it: the tag of a subject contains a `|`.
pub const JOURNAL: &str = "{journal}";

/// The key `name` of a subject: `weir:{policy|subject}:name`, where `prefix` is `weir`.
#[must_use]
pub fn key(prefix: &str, tag: &[u8], name: &str) -> Vec<u8> {
    [prefix.as_bytes(), b":", tag, b":", name.as_bytes()].concat()
}

/// The name of the key of a subject's own counts.
pub const OVERRIDE_NAME: &str = OVERRIDE;
/// The name of the key of a subject's ban.
pub const BAN_NAME: &str = BAN[0];
/// The name of the key of the denials that lead to a ban.
pub const DENIALS_NAME: &str = BAN[1];

impl Plan {
    /// The names of the keys of its limits, in the order of the policy: with tiers `tier/limit`.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let name = |place: usize| {
            let suffix = self.linked.order.iter().position(|of| *of == place);
            let suffix = suffix.and_then(|at| self.linked.suffixes.get(at)?.get(1..));
            suffix.and_then(|name| core::str::from_utf8(name).ok()).unwrap_or_default()
        };
        (0..self.limits.len()).map(name).collect()
    }
}

/// A ban, as its key holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BanRecord {
    /// weir began it, and it ends then.
    Until(Micros),
    /// An operator imposed it, with this text; it ends when the key expires.
    Imposed(Vec<u8>),
}

impl BanRecord {
    /// Reads the key's value.
    #[must_use]
    pub fn read(value: &[u8]) -> Self {
        let digits = value.strip_prefix(b"until ").and_then(|digits| core::str::from_utf8(digits).ok());
        match digits.filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(digits) => Self::Until(Micros(digits.parse().unwrap_or(u64::MAX))),
            None => Self::Imposed(value.to_vec()),
        }
    }
}

/// The denials of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenialsRecord {
    /// The time of the first denial that counts.
    pub since: Micros,
    /// Their number.
    pub denials: u32,
    /// The duration of the last ban; zero: it is forgotten.
    pub last: Micros,
    /// The end of the last ban, in the past or in the future.
    pub ended: Micros,
}

impl DenialsRecord {
    /// Reads the key's value; `None` if the script would ignore it.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let value: [u8; 27] = value.try_into().ok()?;
        let mut at = value.iter().copied();
        let mut number = |bytes: usize| {
            let digits: Vec<u8> = at.by_ref().take(bytes).collect();
            digits.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        Some(Self {
            since: Micros(number(8)),
            denials: u32::try_from(number(4)).ok()?,
            last: Micros(number(7)),
            ended: Micros(number(8)),
        })
    }

    /// The number of denials that count at `now`, if a denial counts for `window`.
    #[must_use]
    pub fn counting(&self, window: Micros, now: Micros) -> u32 {
        if self.since.plus(window) <= now { 0 } else { self.denials }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_of_weir_is_told_from_one_of_an_operator() {
        let rows: [(&[u8], _); 6] = [
            (b"until 99999999999999999999999", BanRecord::Until(Micros(u64::MAX))),
            (b"until 1700000000000000", BanRecord::Until(Micros(1_700_000_000_000_000))),
            (b"until noon", BanRecord::Imposed(b"until noon".to_vec())),
            (b"until ", BanRecord::Imposed(b"until ".to_vec())),
            (b"until +5", BanRecord::Imposed(b"until +5".to_vec())),
            (b"", BanRecord::Imposed(Vec::new())),
        ];
        for (value, wanted) in rows {
            assert_eq!(BanRecord::read(value), wanted);
        }
    }

    #[test]
    fn denials_are_read_as_lua_packs_them() {
        let mut value = Vec::new();
        value.extend(1_700_000_000_000_000_u64.to_le_bytes());
        value.extend(3_u32.to_le_bytes());
        value.extend(&3_600_000_000_u64.to_le_bytes()[..7]);
        value.extend(1_700_000_100_000_000_u64.to_le_bytes());
        let wanted = DenialsRecord {
            since: Micros(1_700_000_000_000_000),
            denials: 3,
            last: Micros(3_600_000_000),
            ended: Micros(1_700_000_100_000_000),
        };
        assert_eq!(DenialsRecord::read(&value), Some(wanted));
        assert_eq!(DenialsRecord::read(&value[1..]), None);
        let second = Micros::from_secs(1);
        assert_eq!(wanted.counting(second, wanted.since.plus(Micros(999_999))), 3);
        assert_eq!(wanted.counting(second, wanted.since.plus(second)), 0);
    }
}
