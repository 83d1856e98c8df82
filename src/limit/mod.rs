// SPDX-License-Identifier: Apache-2.0
//! The limits: the algorithms as pure functions, one file each. The caller passes the time, in microseconds. Limits count
//! units, and a request takes as many as it costs.
//!
//! The same algorithms run in Redis, in Lua (`lua/`). The tests compare the scripts with these functions. They also decide
//! while Redis is unavailable (`on_failure: local`), and in `weir replay`. They use integers only and panic for no input.
//!
//! ```
//! use weir::limit::{Ask, LeakyBucket, Limit, RetryAfter, Subject};
//! use weir::time::Micros;
//!
//! // Two units a second, four at once.
//! let limits = [Limit::from(LeakyBucket::new(2, Micros::from_secs(1), 4, Micros::ZERO)?)];
//! let mut alice = Subject::default();
//!
//! // Seven requests asked for together: those that fit are granted.
//! let now = Micros::from_secs(1_700_000_000);
//! let outcome = alice.check(&limits, None, now, Ask::new(7, 1));
//! assert_eq!(outcome.granted, 4);
//! assert_eq!(outcome.retry_after(), RetryAfter::After(Micros::from_millis(500)));
//! # Ok::<(), weir::limit::Invalid>(())
//! ```

mod ban;
mod bucket;
mod calendar;
mod concurrency;
mod debt;
mod distinct;
mod effective_window;
mod fixed_window;
mod leaky_bucket;
mod local_share;
mod outcome;
mod sliding_log;
mod sliding_window;
mod subject;
mod token_bucket;

use core::fmt;

pub use ban::{Ban, MAX_DENIALS, MAX_FACTOR};
pub(crate) use bucket::Bucket;
pub use calendar::{Period, UtcOffset};
pub use concurrency::Concurrency;
pub use debt::MAX_DEBT;
pub use distinct::{Distinct, MAX_MEMBERS, Member};
pub use fixed_window::{Align, FixedWindow};
pub use leaky_bucket::LeakyBucket;
pub use outcome::{Allotment, Ask, LimitOutcome, Outcome, Permits, RetryAfter};
pub use sliding_log::{MAX_LOG, SlidingLog};
pub use sliding_window::{MAX_SLOTS, SlidingWindow};
pub use subject::Subject;
pub(crate) use token_bucket::Kind;
pub use token_bucket::{Refill, TokenBucket};

use crate::time::Micros;

/// The largest limit, capacity, burst or refill: 10^12 units. A cost above it can never pass.
pub const MAX_UNITS: u64 = 1_000_000_000_000;
/// The largest cost: larger ones count as this. No limit can grant it.
pub const MAX_COST: u64 = 2 * MAX_UNITS + 1;
/// The shortest window, interval or period.
pub const MIN_WINDOW: Micros = Micros::from_millis(1);
/// The longest window, interval or period: 366 days.
pub const MAX_WINDOW: Micros = Micros::from_secs(366 * 24 * 60 * 60);
/// The longest time in which a bucket may fill up: ten years of 366 days.
pub const MAX_SPAN: Micros = Micros::from_secs(10 * 366 * 24 * 60 * 60);

/// A parameter outside of what is allowed. No limit exists with such a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The parameter's name, as in the configuration.
    pub parameter: &'static str,
    /// The value.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, allowed is {}", self.parameter, self.value, self.allowed)
    }
}

impl core::error::Error for Invalid {}

/// Holds a count of units to `min..=MAX_UNITS`.
fn units(parameter: &'static str, value: u64, min: u64) -> Result<u64, Invalid> {
    if (min..=MAX_UNITS).contains(&value) {
        return Ok(value);
    }
    Err(Invalid { parameter, value: value.to_string(), allowed: format!("{min} to {MAX_UNITS}") })
}

/// Holds a span of time to `MIN_WINDOW..=MAX_WINDOW`.
fn window(parameter: &'static str, value: Micros) -> Result<Micros, Invalid> {
    if (MIN_WINDOW..=MAX_WINDOW).contains(&value) {
        return Ok(value);
    }
    Err(Invalid { parameter, value: value.to_string(), allowed: "1 ms to 366 days".to_owned() })
}

/// True if `left` units are enough for a request's need.
fn fits(left: i64, need: u64) -> bool {
    u64::try_from(left).is_ok_and(|left| left >= need)
}

/// One limit: an algorithm and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// See [`Concurrency`].
    Concurrency(Concurrency),
    /// See [`Distinct`].
    Distinct(Distinct),
}

/// The time in which `units` come back at `count` per `per`.
pub(crate) fn time_for(units: u64, count: u64, per: Micros) -> Micros {
    let time = u128::from(units).saturating_mul(u128::from(per.0)).div_ceil(u128::from(count.max(1)));
    Micros(u64::try_from(time).unwrap_or(u64::MAX))
}

impl Limit {
    /// The most that can ever be left, in units (for concurrency, permits; for distinct, values): what a new subject has.
    #[must_use]
    pub fn quota(&self) -> u64 {
        match self {
            Self::FixedWindow(limit) => limit.limit(),
            Self::SlidingLog(limit) => limit.limit(),
            Self::SlidingWindow(limit) => limit.limit(),
            Self::TokenBucket(limit) => limit.capacity(),
            Self::LeakyBucket(limit) => limit.bucket.capacity(),
            Self::Concurrency(limit) => limit.limit(),
            Self::Distinct(limit) => limit.limit(),
        }
    }

    /// The counts that a subject's override may replace: the limit; of a bucket the rate or refill, the burst or capacity,
    /// and the overdraft.
    #[must_use]
    pub fn counts(&self) -> [u64; 3] {
        match self {
            Self::FixedWindow(of) => [of.limit(), 0, 0],
            Self::SlidingLog(of) => [of.limit(), 0, 0],
            Self::SlidingWindow(of) => [of.limit(), 0, 0],
            Self::TokenBucket(of) => [of.refill(), of.capacity(), of.overdraft()],
            Self::LeakyBucket(of) => [of.rate(), of.burst(), 0],
            Self::Concurrency(of) => [of.limit(), 0, 0],
            Self::Distinct(of) => [of.limit(), 0, 0],
        }
    }

    /// The same limit with other [`Limit::counts`]; its windows, intervals and delays stay, and its [`Limit::debt`].
    ///
    /// # Errors
    /// [`Invalid`], as in the constructor of the limit.
    pub fn with_counts(&self, [first, second, third]: [u64; 3]) -> Result<Self, Invalid> {
        let limit: Self = match self {
            Self::FixedWindow(of) => of.with_limit(first)?.into(),
            Self::SlidingLog(of) => SlidingLog::new(first, of.window())?.into(),
            Self::SlidingWindow(of) => SlidingWindow::new(first, of.window(), of.precision())?.into(),
            Self::TokenBucket(of) => TokenBucket::new(second, first, of.interval(), of.how(), third)?.into(),
            Self::LeakyBucket(of) => LeakyBucket::new(first, of.per(), second, of.max_delay())?.into(),
            Self::Concurrency(of) => Concurrency::new(first, of.ttl())?.into(),
            Self::Distinct(of) => Distinct::new(first, of.window())?.into(),
        };
        Ok(limit.with_debt(self.debt()))
    }

    /// The same limit, this many times as large: its rate, burst and overdraft too. Its windows, intervals and delays stay.
    ///
    /// # Errors
    /// [`Invalid`], as in the constructor of the limit.
    pub fn scaled(&self, scale: u64) -> Result<Self, Invalid> {
        self.with_counts(self.counts().map(|count| count.saturating_mul(scale)))
    }

    /// The same limit, where limits up to this many times as large count on the same state.
    #[must_use]
    pub fn up_to(&self, scale: u64) -> Self {
        match self {
            Self::FixedWindow(of) => of.up_to(scale).into(),
            _ => self.clone(),
        }
    }

    /// True if both read and write the same state, and interpret it alike.
    #[must_use]
    pub fn counts_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::LeakyBucket(one), Self::LeakyBucket(other)) => one.counts_like(other),
            // The state is permits and their ends, whatever the limit.
            (Self::Concurrency(one), Self::Concurrency(other)) => one.ttl() == other.ttl(),
            _ => self == other,
        }
    }

    /// The same limit, on a state that `other` counts on, too.
    #[must_use]
    pub fn sharing(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::LeakyBucket(one), Self::LeakyBucket(other)) => one.sharing(other).into(),
            _ => self.clone(),
        }
    }

    /// The number of units that are kept for other requests.
    #[must_use]
    pub fn kept(&self, ask: Ask) -> u64 {
        ask.kept(self.quota())
    }

    /// Within which time the units of a quota come back; `None` if they are requests in flight.
    #[must_use]
    pub fn period(&self) -> Option<Micros> {
        match self {
            Self::FixedWindow(of) => Some(of.window()),
            Self::SlidingLog(of) => Some(of.window()),
            Self::SlidingWindow(of) => Some(of.window()),
            Self::TokenBucket(of) => Some(of.full_within()),
            Self::LeakyBucket(of) => Some(time_for(self.quota(), of.rate(), of.per())),
            Self::Distinct(of) => Some(of.window()),
            Self::Concurrency(_) => None,
        }
    }

    /// The time in which a limit that is used up becomes whole again; of permits, how long they last at most.
    #[must_use]
    pub fn whole_within(&self) -> Micros {
        match self {
            Self::FixedWindow(of) => of.window(),
            Self::SlidingLog(of) => of.window(),
            Self::SlidingWindow(of) => of.window().plus(of.precision()),
            Self::TokenBucket(of) => of.full_within(),
            Self::LeakyBucket(of) => time_for(of.burst(), of.rate(), of.per()).plus(of.max_delay()),
            Self::Concurrency(of) => of.ttl(),
            Self::Distinct(of) => of.window(),
        }
    }

    /// The units that come back within this time at most, of a limit that is used up; of permits none.
    #[must_use]
    pub fn flow(&self, span: Micros) -> u64 {
        let per = match self {
            Self::TokenBucket(of) => of.interval(),
            Self::LeakyBucket(of) => of.per(),
            Self::Concurrency(_) => return 0,
            _ => self.whole_within(),
        };
        let [units, ..] = self.counts();
        units.saturating_mul(span.0).checked_div(per.0).unwrap_or(0)
    }

    /// The cost of one request, in units: for concurrency, one permit; for distinct none, because requests of one check have one value.
    #[must_use]
    pub const fn cost(&self, ask: Ask) -> u64 {
        match self {
            Self::Concurrency(_) => 1,
            Self::Distinct(_) => 0,
            _ => ask.cost,
        }
    }

    /// The names of its [`Limit::counts`], in their order.
    #[must_use]
    pub const fn count_names(&self) -> &'static [&'static str] {
        match self {
            Self::FixedWindow(_)
            | Self::SlidingLog(_)
            | Self::SlidingWindow(_)
            | Self::Concurrency(_)
            | Self::Distinct(_) => &["limit"],
            Self::TokenBucket(_) => &["refill", "capacity", "overdraft"],
            Self::LeakyBucket(_) => &["rate", "burst"],
        }
    }
}

macro_rules! from {
    ($($limit:ident)*) => {
        $(impl From<$limit> for Limit {
            fn from(limit: $limit) -> Self {
                Self::$limit(limit)
            }
        })*
    };
}
from! { FixedWindow SlidingLog SlidingWindow TokenBucket LeakyBucket Concurrency Distinct }
