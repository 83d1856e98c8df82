// SPDX-License-Identifier: Apache-2.0
//! Days, weeks and months of the calendar, at a fixed offset from UTC. Times are microseconds since the Unix epoch; local
//! times are ahead of them by the offset. `lua/month.lua` is the twin of [`month`].

use crate::time::{Date, Micros};

/// A day, in microseconds.
const DAY: i64 = 86_400_000_000;
/// From Monday to Thursday: the Unix epoch is a Thursday, and weeks begin on Monday.
const SINCE_MONDAY: i64 = 3 * DAY;

/// A window that follows the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From Monday.
    Week,
    /// From a day of the month; in a shorter month from its last day.
    Month {
        /// The day, up to 31.
        anchor: u8,
    },
}

/// The offset of local time from UTC, in minutes; negative if it is behind. Without daylight saving time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UtcOffset(i16);

impl UtcOffset {
    /// UTC itself.
    pub const UTC: Self = Self(0);

    /// An offset of whole minutes, at most a day either way.
    #[must_use]
    pub fn from_minutes(minutes: i16) -> Self {
        Self(minutes.clamp(-1_440, 1_440))
    }

    /// In minutes.
    #[must_use]
    pub const fn minutes(self) -> i16 {
        self.0
    }

    fn micros(self) -> i64 {
        i64::from(self.0).saturating_mul(60_000_000)
    }
}

impl Period {
    /// From the first of the month.
    pub const MONTH: Self = Self::Month { anchor: 1 };

    /// The longest such window.
    #[must_use]
    pub const fn longest(self) -> Micros {
        match self {
            Self::Day => Micros::from_secs(86_400),
            Self::Week => Micros::from_secs(7 * 86_400),
            Self::Month { .. } => Micros::from_secs(31 * 86_400),
        }
    }

    /// The beginning and the end of the window that contains `now`. A window that contains the epoch begins with it.
    #[must_use]
    pub(super) fn around(self, now: Micros, offset: UtcOffset) -> (u64, u64) {
        let (length, shift) = self.length_and_shift(offset);
        let local = i64::try_from(now.0).unwrap_or(i64::MAX).saturating_add(shift);
        let (start, end) = if length > 0 {
            let start = local.saturating_sub(local.rem_euclid(length));
            (start, start.saturating_add(length))
        } else {
            let start = month(local, length.saturating_neg());
            // No such window has more than 31 days or less than 28, so this is in the next one.
            (start, month(start.saturating_add(31 * DAY), length.saturating_neg()))
        };
        let utc = |local: i64| u64::try_from(local.saturating_sub(shift)).unwrap_or(0);
        (utc(start), utc(end))
    }

    /// The length of the windows, and how far ahead of `now` the time is by which they are counted. Months differ in length: they have the
    /// number of days before their anchor in its place, below zero. The script has both as parameters.
    pub(crate) fn length_and_shift(self, offset: UtcOffset) -> (i64, i64) {
        let offset = offset.micros();
        match self {
            Self::Day => (DAY, offset.rem_euclid(DAY)),
            Self::Week => (7 * DAY, offset.saturating_add(SINCE_MONDAY)),
            Self::Month { anchor } => (1_i64.saturating_sub(anchor.into()), offset),
        }
    }
}

/// The beginning of the month that contains `local`, both in microseconds of local time since the epoch. Months begin so many days later than
/// on the first, or on their last day.
fn month(local: i64, later: i64) -> i64 {
    let days = local.div_euclid(DAY);
    let mut first = first_of_month(days);
    if later > 0 {
        // The 31 days after the first of a month end in the next month.
        let length = first_of_month(first.saturating_add(31)).saturating_sub(first);
        let begin = first.saturating_add(later.min(length.saturating_sub(1)));
        first = if days < begin {
            let before = first_of_month(first.saturating_sub(1));
            before.saturating_add(later.min(first.saturating_sub(before).saturating_sub(1)))
        } else {
            begin
        };
    }
    first.saturating_mul(DAY)
}

/// The first day of the month that contains a day, both since the epoch.
fn first_of_month(day: i64) -> i64 {
    day.saturating_sub(Date::of_day(day).day.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days from the epoch to the first of each month, counted by the lengths of months and by the rule of leap years.
    fn firsts() -> Vec<i64> {
        let mut firsts = vec![0];
        for year in 1970..2400 {
            let leap = i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
            for length in [31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                firsts.push(firsts[firsts.len() - 1] + length);
            }
        }
        firsts
    }

    #[test]
    fn a_month_begins_on_its_first_day_from_its_first_to_its_last_microsecond() {
        for two in firsts().windows(2) {
            let (first, next) = (two[0] * DAY, two[1] * DAY);
            for at in [first, first + 1, first + 15 * DAY, next - DAY, next - 1] {
                assert_eq!(month(at, 0), first, "{at}");
            }
        }
    }

    #[test]
    fn a_month_from_another_day_begins_on_its_last_one_if_it_is_shorter() {
        let firsts = firsts();
        for anchor in 2..=31_u8 {
            let begins = firsts.windows(2).map(|two| (two[0] + i64::from(anchor) - 1).min(two[1] - 1) * DAY);
            let begins: Vec<_> = begins.collect();
            for two in begins.windows(2) {
                for at in [two[0], two[0] + DAY, two[1] - DAY, two[1] - 1] {
                    let now = Micros(at.try_into().unwrap());
                    let wanted = (two[0] as u64, two[1] as u64);
                    assert_eq!(
                        Period::Month { anchor }.around(now, UtcOffset::UTC),
                        wanted,
                        "{anchor}: {at}"
                    );
                }
            }
        }
    }

    #[test]
    fn windows_follow_each_other() {
        let offsets = [0, 60, -60, 345, 840, -720, 1_440, -1_440].map(UtcOffset::from_minutes);
        for (period, offset) in [Period::Day, Period::Week, Period::MONTH, Period::Month { anchor: 31 }]
            .into_iter()
            .flat_map(|period| offsets.map(|offset| (period, offset)))
        {
            let mut now = 1_500_000_000_000_000;
            for _ in 0..100 {
                let (start, end) = period.around(Micros(now), offset);
                assert!(
                    start <= now && now < end && end - start <= period.longest().0,
                    "{period:?} {offset:?}"
                );
                assert_eq!(period.around(Micros(start), offset), (start, end));
                assert_eq!(period.around(Micros(end - 1), offset), (start, end));
                assert_eq!(period.around(Micros(end), offset).0, end);
                now = end;
            }
        }
    }

    #[test]
    fn no_time_is_too_early_or_too_late() {
        for period in [Period::Day, Period::Week, Period::MONTH, Period::Month { anchor: 30 }] {
            for minutes in [i16::MIN, 0, i16::MAX] {
                for now in [0, 1, u64::MAX / 2, u64::MAX] {
                    let (start, end) = period.around(Micros(now), UtcOffset::from_minutes(minutes));
                    assert!(start <= end);
                }
            }
        }
    }
}
