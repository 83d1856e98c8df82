// SPDX-License-Identifier: Apache-2.0
//! The usage journal in Redis: for each interval a hash of what each subject has used. A script adds to it; operators' commands read it
//! with this.

use super::records::JOURNAL;
use crate::resp;
use crate::time::Micros;

const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/lua/usage.lua"));

/// The usage of a subject. Both are negative where more was refunded than charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The units that it was charged.
    pub units: i64,
    /// The number of its requests that were charged.
    pub requests: i64,
}

impl Used {
    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            units: self.units.saturating_add(other.units),
            requests: self.requests.saturating_add(other.requests),
        }
    }

    /// Reads the value of a subject in the hash of an interval; `None` if the script would ignore it.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let (units, requests) = core::str::from_utf8(value).ok()?.split_once(' ')?;
        Some(Self { units: units.parse().ok()?, requests: requests.parse().ok()? })
    }
}

/// A time span whose usage is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interval {
    /// Its beginning, in seconds since 1970.
    pub start: u64,
    /// Its length in seconds.
    pub length: u64,
}

impl Interval {
    /// The interval of a time, if intervals have this length: the first began in 1970.
    #[must_use]
    pub const fn of(time: Micros, length: Micros) -> Self {
        let (seconds, length) = (time.0 / 1_000_000, length.0 / 1_000_000);
        let into = match seconds.checked_rem(length) {
            Some(into) => into,
            None => 0,
        };
        Self { start: seconds.saturating_sub(into), length }
    }

    /// Reads its name, `START:LENGTH`.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        let (start, length) = name.split_once(':')?;
        Some(Self { start: start.parse().ok()?, length: length.parse().ok()? })
    }

    /// The key of its hash.
    #[must_use]
    pub fn key(self, prefix: &str) -> String {
        format!("{}:{}:{}", index_key(prefix), self.start, self.length)
    }
}

/// The key of the intervals that there are.
#[must_use]
pub fn index_key(prefix: &str) -> String {
    format!("{prefix}:{JOURNAL}:usage")
}

/// The tag under which a policy's subjects beyond `max_subjects` are counted together.
#[must_use]
pub fn others(tag: &[u8]) -> Vec<u8> {
    let policy = tag.iter().take_while(|byte| !b"|}".contains(byte));
    policy.chain(b"}").copied().collect()
}

/// A write of a worker to the journal.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The prefix of keys, without the colon.
    pub prefix: &'a str,
    /// A number that no other worker has.
    pub worker: u64,
    /// The writes of a worker have growing numbers, from 1.
    pub number: u64,
    /// The interval to which it is added.
    pub interval: Interval,
    /// The time for which an interval is kept after its end.
    pub keep: Micros,
    /// The most subjects of an interval.
    pub max_subjects: u32,
    /// The usage of each tag.
    pub used: &'a [(Vec<u8>, Used)],
}

impl Write<'_> {
    /// Appends its command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Interval { start, length } = self.interval;
        let arguments = self.used.len().saturating_mul(3).saturating_add(5);
        resp::array_header(out, arguments.saturating_add(6));
        resp::bulk(out, b"EVAL");
        resp::bulk(out, SCRIPT.as_bytes());
        resp::bulk(out, b"3");
        let index = index_key(self.prefix);
        resp::bulk(out, self.interval.key(self.prefix).as_bytes());
        resp::bulk(out, format!("{index}:worker:{:016x}", self.worker).as_bytes());
        resp::bulk(out, index.as_bytes());
        for number in [self.number, start, length, self.keep.0 / 1_000_000, self.max_subjects.into()] {
            resp::bulk_int(out, number.cast_signed());
        }
        for (tag, used) in self.used {
            resp::bulk(out, tag);
            resp::bulk_int(out, used.units);
            resp::bulk_int(out, used.requests);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_the_script_writes_it() {
        let used = |units, requests| Some(Used { units, requests });
        let rows: [(&[u8], _); 6] = [
            (b"12 3", used(12, 3)),
            (b"-12 0", used(-12, 0)),
            (b"9007199254740992 1", used(1 << 53, 1)),
            (b"12", None),
            (b"1.5 3", None),
            (b"", None),
        ];
        for (value, wanted) in rows {
            assert_eq!(Used::read(value), wanted);
        }
    }

    #[test]
    fn intervals_begin_where_the_day_does() {
        let (hour, day) = (Micros::from_secs(3_600), Micros::from_secs(86_400));
        let rows = [
            (1_800_000_000, hour, "1800000000:3600"),
            (1_800_003_599, hour, "1800000000:3600"),
            (1_800_003_600, hour, "1800003600:3600"),
            (1_800_003_600, day, "1799971200:86400"),
            (0, day, "0:86400"),
        ];
        for (time, length, wanted) in rows {
            let interval = Interval::of(Micros::from_secs(time), length);
            assert_eq!(Interval::read(wanted), Some(interval), "{time}");
            assert_eq!(interval.key("weir"), format!("weir:{{journal}}:usage:{wanted}"));
        }
    }

    #[test]
    fn the_others_of_a_policy_have_its_name() {
        for (tag, wanted) in [("{api|192.0.2.1}", "{api}"), ("{api|}", "{api}"), ("{api}", "{api}")] {
            assert_eq!(others(tag.as_bytes()), wanted.as_bytes());
        }
    }
}
