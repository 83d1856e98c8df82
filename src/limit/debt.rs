// SPDX-License-Identifier: Apache-2.0
//! Debt: how far charges may take a limit below zero.
//!
//! A charge that arrives late has been spent already, as one from another region. It has to count although the limit is
//! exhausted, or more would pass than the limit allows. A limit without debt is emptied by it at most. One that goes into debt
//! holds up to `times` its quota more, and grants nothing until that has flowed back.
//!
//! Debt needs no state of its own: a state counts what is used, and in debt that is more than the quota. So what a
//! state counts is at most `(1 + 32) × 10^12` units, and the overdraft of a bucket. The scripts keep such numbers in 6
//! bytes (windows and slots) or 7 (steps), and divide by them in `muldiv`, which takes divisors below 2^45.

use super::{Invalid, Limit, MAX_LOG, MAX_UNITS};

/// The largest debt of a limit: this many times its quota.
pub const MAX_DEBT: u32 = 32;

/// The allowed size of a bucket with its debt.
const FLOWS_BACK: &str = "what flows back within 3660 days (with the quota and the overdraft)";

/// The most units that a state counts, without the overdraft.
const MOST_COUNTED: u64 = (1 + MAX_DEBT as u64) * MAX_UNITS;
const _: () = assert!(MOST_COUNTED < 1 << 45, "muldiv divides by the units of a slot");
const _: () = assert!(MOST_COUNTED < 1 << 48, "six bytes");
const _: () =
    assert!(MOST_COUNTED + MAX_UNITS < 1 << 53, "seven bytes, of which Lua holds less than all exactly");

/// The units by which charges may take a limit of this quota below zero.
pub(super) const fn units(quota: u64, times: u32) -> u64 {
    quota.saturating_mul(times as u64)
}

/// Returns how many of `units` a charge subtracts, if `left` remain and the limit may go into a debt of `debt`.
pub(super) fn charged(units: u64, left: i64, debt: u64) -> u64 {
    units.min(u64::try_from(left.saturating_add_unsigned(debt)).unwrap_or(0))
}

impl Limit {
    /// The same limit, which charges ([`Subject::settle`](super::Subject::settle)) may take below zero: by up to `times` its
    /// [`Limit::quota`], and the overdraft. In debt nothing is granted, what remains is negative, and the times in an
    /// answer say when the debt has flowed back. With 0 times, a charge empties the limit at most.
    ///
    /// The limit keeps its debt in [`Limit::with_counts`], [`Limit::scaled`] and [`Limit::local_share`]. If these
    /// make a log or a bucket so large that the whole debt is out of the bounds below, its debt is as large as they allow.
    ///
    /// # Errors
    /// [`Invalid`] if `times` is above [`MAX_DEBT`]; if a log, with its debt, counts more than [`MAX_LOG`] units; if a bucket, with
    /// its debt, takes more than ten years to fill up; and for `concurrency` and `distinct`, which no charge takes from.
    pub fn indebted(self, times: u32) -> Result<Self, Invalid> {
        let invalid = |allowed: &str| {
            Err(Invalid { parameter: "debt", value: times.to_string(), allowed: allowed.to_owned() })
        };
        if times > MAX_DEBT {
            return invalid(&format!("0 to {MAX_DEBT}"));
        }
        let limit = self.with_debt(times);
        match &limit {
            Self::SlidingLog(of) if of.max_debt() < units(of.limit(), times) => {
                let most = (MAX_LOG / of.limit().max(1)).saturating_sub(1);
                let why = format!("a sliding_log keeps at most {MAX_LOG} units (sliding_window allows more)");
                invalid(&format!("0 to {most}, because {why}"))
            }
            Self::TokenBucket(of) if !of.holds_debt() => invalid(FLOWS_BACK),
            Self::LeakyBucket(of) if !of.bucket.holds_debt(times) => invalid(FLOWS_BACK),
            Self::Distinct(_) if times > 0 => invalid("0, because no charge adds a value"),
            Self::Concurrency(_) if times > 0 => {
                invalid("0, because a request holds a permit, and no charge takes one")
            }
            _ => Ok(limit),
        }
    }

    /// The maximum debt of this limit, as a multiple of its quota.
    #[must_use]
    pub const fn debt(&self) -> u32 {
        match self {
            Self::FixedWindow(of) => of.debt,
            Self::SlidingLog(of) => of.debt,
            Self::SlidingWindow(of) => of.debt,
            Self::TokenBucket(of) => of.debt,
            Self::LeakyBucket(of) => of.debt,
            Self::Concurrency(_) | Self::Distinct(_) => 0,
        }
    }

    /// The units by which charges may take it below zero; of a bucket that fills evenly, its most owed time says so.
    pub(crate) fn debt_units(&self) -> u64 {
        match self {
            Self::FixedWindow(of) => units(of.limit(), of.debt),
            Self::SlidingLog(of) => of.max_debt(),
            Self::SlidingWindow(of) => units(of.limit(), of.debt),
            Self::TokenBucket(of) => of.max_debt(),
            Self::LeakyBucket(_) | Self::Concurrency(_) | Self::Distinct(_) => 0,
        }
    }

    /// The same limit with as much of this debt as its bounds allow.
    pub(super) fn with_debt(mut self, debt: u32) -> Self {
        match &mut self {
            Self::FixedWindow(of) => of.debt = debt,
            Self::SlidingLog(of) => of.debt = debt,
            Self::SlidingWindow(of) => of.debt = debt,
            Self::TokenBucket(of) => of.set_debt(debt),
            Self::LeakyBucket(of) => {
                of.debt = debt;
                of.bucket.set_debt(debt);
            }
            Self::Concurrency(_) | Self::Distinct(_) => {}
        }
        self
    }
}
