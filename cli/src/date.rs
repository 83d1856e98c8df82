// SPDX-License-Identifier: Apache-2.0
//! Dates as texts, in logs and in output, and durations of arguments. Days, months, time zones and leap seconds are `jiff`'s: it is maintained, exact to the
//! nanosecond, checks each field of a date, and reads both the dates of RFC 3339 and those of a pattern.

use core::ops::RangeInclusive;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::fmt::temporal::DateTimePrinter;

use weir::time::Micros;

/// The end of the time that a log can have: 9999-12-30T22:00:00Z, the last hour that is in the year 9999 in each time zone. Greater
/// numbers are in another unit than they are said to be.
pub(super) const LAST: Micros = Micros::from_secs(253_402_207_200);

/// Reads `2016-04-15T20:17:00.310Z` (RFC 3339). A leap second is the second before it.
pub(super) fn rfc3339(text: &str) -> Option<Micros> {
    micros(text.parse().ok()?)
}

/// Reads, for an argument, `2026-11-01`, which is 0:00 UTC, or a time of RFC 3339.
pub(super) fn time(text: &str) -> Result<Micros, String> {
    let time = rfc3339(text).or_else(|| rfc3339(&format!("{text}T00:00:00Z")));
    time.ok_or_else(|| {
        String::from(
            "allowed is a day from 1970 to 9999 such as 2026-11-01, which begins at 0:00 UTC, or a time such as 2026-11-01T12:00:00Z",
        )
    })
}

/// Reads the duration of an argument. If it is no duration, or outside of `bounds`, the error is `allowed`.
pub(super) fn duration(text: &str, bounds: RangeInclusive<Micros>, allowed: &str) -> Result<Micros, String> {
    weir::config::duration(text).filter(|span| bounds.contains(span)).ok_or_else(|| allowed.to_owned())
}

/// Reads `10/Oct/2000:13:55:36 -0700`, the time of nginx and Apache.
pub(super) fn common_log(text: &str) -> Option<Micros> {
    micros(strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?.to_timestamp().ok()?)
}

fn micros(time: Timestamp) -> Option<Micros> {
    u64::try_from(time.as_microsecond()).ok().map(Micros).filter(|time| *time <= LAST)
}

/// A time in RFC 3339, in UTC, to the millisecond.
pub(super) fn text(time: Micros) -> String {
    let time =
        Timestamp::from_microsecond(i64::try_from(time.0).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
    DateTimePrinter::new().precision(Some(3)).timestamp_to_string(&time)
}

pub(super) fn now() -> Micros {
    micros(Timestamp::now()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let rows = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599_001, "2024-12-31T23:59:59.001Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (millis, wanted) in rows {
            assert_eq!(text(Micros::from_millis(millis)), wanted);
            assert_eq!(rfc3339(wanted), Some(Micros::from_millis(millis)));
        }
        assert_eq!(text(LAST), "9999-12-30T22:00:00.000Z");
        assert_eq!(rfc3339("9999-12-30T22:00:01Z"), None);
    }

    #[test]
    fn dates_in_logs() {
        let rows = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2016-12-31T23:59:60Z", Some(1_483_228_799_000)),
            ("2016-12-31T23:59:60.999Z", Some(1_483_228_799_999)),
            ("2024-02-29T01:00:00+01:00", Some(1_709_164_800_000)),
            ("2024-02-28T19:00:00.5-05:00", Some(1_709_164_800_500)),
            ("2023-02-29T00:00:00Z", None),
            ("1969-12-31T23:59:59Z", None),
            ("2024-02-29T01:00:00", None),
            ("2024-02-29", None),
            ("", None),
        ];
        for (written, wanted) in rows {
            assert_eq!(rfc3339(written), wanted.map(Micros::from_millis), "{written}");
        }
        let rows = [
            ("10/Oct/2000:13:55:36 -0700", Some(971_211_336_000)),
            ("29/Feb/2024:00:00:00 +0100", Some(1_709_161_200_000)),
            ("29/Feb/2023:00:00:00 +0100", None),
            ("31/Dec/2016:23:59:60 +0000", Some(1_483_228_799_000)),
            ("31/Dec/2016:24:00:00 +0000", None),
            ("10/October/2000:13:55:36 -0700", None),
            ("10/Oct/2000:13:55:36", None),
            ("10/Oct/2000:13:55:36 UTC", None),
        ];
        for (written, wanted) in rows {
            assert_eq!(common_log(written), wanted.map(Micros::from_millis), "{written}");
        }
    }
}
