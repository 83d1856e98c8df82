// SPDX-License-Identifier: Apache-2.0
//! Time as the core sees it: whole microseconds, always passed in, never read from a clock.

use core::fmt;

/// A point in time (since the Unix epoch) or a span of time, in microseconds. Arithmetic saturates, so that an absurdly long
/// duration never makes a limit wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// An empty span; also the Unix epoch.
    pub const ZERO: Self = Self(0);

    /// A span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Whole milliseconds, rounded up, so that no time is reported too early.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Whole seconds, rounded up, so that no time is reported too early.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// The sum, at most `u64::MAX`.
    #[must_use]
    pub const fn plus(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The earliest of these times; `None` if there is none. The largest `Micros` counts as none, too.
    #[must_use]
    pub fn earliest<const N: usize>(times: [Option<Self>; N]) -> Option<Self> {
        // Without branches: this is asked for in each turn.
        let never = Self(u64::MAX);
        let earliest = times.map(|time| time.unwrap_or(never)).into_iter().fold(never, Self::min);
        (earliest < never).then_some(earliest)
    }

    /// The span from `earlier` to `self`; zero when `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// Lets one event through in each interval and counts the others, so that a repeated failure does not fill the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throttle {
    last: Option<Micros>,
    withheld: u64,
}

impl Throttle {
    /// An event happens. Returns `None` if it is withheld. Otherwise returns how many events were withheld since the last
    /// one that was let through. If the clock was set back, the event is let through.
    pub fn admit(&mut self, interval: Micros, now: Micros) -> Option<u64> {
        if self.last.is_some_and(|last| last <= now && now.since(last) < interval) {
            self.withheld = self.withheld.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(core::mem::take(&mut self.withheld))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// The year.
    pub year: i64,
    /// The month, from 1.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
}

impl Date {
    /// The day that is this many days after the Unix epoch, or before it if the number is negative.
    ///
    /// Years are counted from March, so that the leap day is the last of its year, and months have 153 days in every five. The calendar
    /// repeats after 400 years, which are 146,097 days.
    #[must_use]
    pub const fn of_day(days: i64) -> Self {
        let days = days.saturating_add(719_468);
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Self { year: 400 * era + year + next_year, month, day }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_lets_one_event_through_in_each_interval_and_counts_the_others() {
        let (mut throttle, second) = (Throttle::default(), Micros::from_secs(1));
        let at = |millis: u64| Micros::from_millis(5_000 + millis);
        assert_eq!(throttle.admit(second, at(0)), Some(0));
        assert_eq!([1, 500, 999].map(|millis| throttle.admit(second, at(millis))), [None; 3]);
        assert_eq!(throttle.admit(second, at(1_000)), Some(3));
        assert_eq!(throttle.admit(second, at(1_001)), None);
        assert_eq!(throttle.admit(second, Micros::from_secs(1)), Some(1), "the clock was set back");
        assert_eq!(throttle.admit(second, Micros::from_secs(2)), Some(0));
    }
}
