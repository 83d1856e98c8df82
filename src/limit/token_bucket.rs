// SPDX-License-Identifier: Apache-2.0
//! `token_bucket`: a bucket of `capacity` tokens, full at first. Every request takes what it costs.
//!
//! It fills up continuously, a token at a time, or stepwise, `refill` tokens at the end of each `interval`,
//! which begins with the first request that takes from a full bucket.
//!
//! With an `overdraft` a request may take tokens in advance ("pre-consumption", as Guava's `RateLimiter` does): one token
//! is enough for it to pass. It leaves a debt of at most `overdraft` tokens, and the next requests wait until that is paid.

use super::bucket::Bucket;
use super::subject::{Algorithm, Receipt, more_refunded};
use super::{
    Ask, Invalid, LimitOutcome, MAX_SPAN, MAX_UNITS, RetryAfter, debt, fits, time_for, units, window,
};
use crate::time::Micros;

/// The way in which a bucket refills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refill {
    /// Evenly over the interval.
    Continuous,
    /// All at once, at the end of the interval.
    Stepwise,
}

/// A capacity, what refills it, and an overdraft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    refill: u64,
    interval: Micros,
    overdraft: u64,
    /// See [`Limit::debt`](super::Limit::debt).
    pub(super) debt: u32,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Continuous(Bucket),
    Stepwise,
}

/// The tokens missing in a bucket that fills up in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepsState {
    /// The start of the interval.
    start: u64,
    /// Tokens.
    missing: u64,
    /// The total number of tokens refunded: see [`LimitOutcome::refunded`].
    refunded: u64,
}

impl TokenBucket {
    /// A bucket of `capacity` tokens; `refill` tokens come every `interval`; a request may leave a debt of
    /// `overdraft`.
    ///
    /// In any time t at most `capacity + overdraft + refill × t / interval` tokens are taken.
    ///
    /// # Errors
    /// [`Invalid`] unless `capacity` and `refill` are 1 to 10^12, `overdraft` is at most 10^12, `interval` is
    /// 1 ms to 366 days, and the bucket fills up within ten years.
    pub fn new(
        capacity: u64,
        refill: u64,
        interval: Micros,
        how: Refill,
        overdraft: u64,
    ) -> Result<Self, Invalid> {
        let (capacity, refill) = (units("capacity", capacity, 1)?, units("refill", refill, 1)?);
        let (interval, overdraft) = (window("interval", interval)?, units("overdraft", overdraft, 0)?);
        let kind = match how {
            Refill::Continuous => {
                let rate = (refill, interval);
                Kind::Continuous(Bucket::new(rate, ("capacity", capacity), Micros::ZERO, overdraft)?)
            }
            Refill::Stepwise => {
                let steps = (capacity + overdraft).div_ceil(refill);
                if steps.saturating_mul(interval.0) > MAX_SPAN.0 {
                    let allowed = "what fills up within 3660 days (with the overdraft)".to_owned();
                    return Err(Invalid { parameter: "capacity", value: capacity.to_string(), allowed });
                }
                Kind::Stepwise
            }
        };
        Ok(Self { capacity, refill, interval, overdraft, debt: 0, kind })
    }

    /// Tokens in a full bucket.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Tokens that come every interval.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill
    }

    /// The span of time that the refill is for.
    #[must_use]
    pub const fn interval(&self) -> Micros {
        self.interval
    }

    /// The time in which an empty bucket becomes full.
    #[must_use]
    pub fn full_within(&self) -> Micros {
        match self.how() {
            Refill::Continuous => time_for(self.capacity(), self.refill(), self.interval()),
            Refill::Stepwise => {
                Micros(self.interval().0.saturating_mul(self.capacity().div_ceil(self.refill().max(1))))
            }
        }
    }

    /// The way in which it refills.
    #[must_use]
    pub const fn how(&self) -> Refill {
        match self.kind {
            Kind::Continuous(_) => Refill::Continuous,
            Kind::Stepwise => Refill::Stepwise,
        }
    }

    /// Tokens that may be owed.
    #[must_use]
    pub const fn overdraft(&self) -> u64 {
        self.overdraft
    }

    pub(crate) const fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The most tokens that may be missing: the capacity, the overdraft and the debt.
    fn max_missing(&self) -> u64 {
        self.capacity.saturating_add(self.overdraft).saturating_add(self.max_debt())
    }

    /// The tokens by which charges may take it below zero: with all others, what comes in [`MAX_SPAN`].
    pub(super) fn max_debt(&self) -> u64 {
        let most = self.comes().saturating_sub(self.capacity.saturating_add(self.overdraft));
        debt::units(self.capacity, self.debt).min(most)
    }

    /// It goes into as much of this debt as its bounds allow.
    pub(super) fn set_debt(&mut self, debt: u32) {
        self.debt = debt;
        if let Kind::Continuous(bucket) = &mut self.kind {
            bucket.set_debt(debt);
        }
    }

    /// True if it has its whole debt.
    pub(super) fn holds_debt(&self) -> bool {
        match &self.kind {
            Kind::Continuous(bucket) => bucket.holds_debt(self.debt),
            Kind::Stepwise => self.max_debt() == debt::units(self.capacity, self.debt),
        }
    }

    /// The tokens missing now, since the newest step, or now if none is missing; whether the state must be corrected even if nothing is granted.
    fn view(&self, state: StepsState, now: Micros) -> (StepsState, bool) {
        let StepsState { mut start, mut missing, mut refunded } = state;
        let most = self.max_missing();
        if start > now.0 {
            // The clock went back: the interval begins again. The tokens of the steps that are in the future now count
            // as refunded, because they will come a second time.
            let steps = (start - now.0).div_ceil(self.interval.0.max(1));
            refunded = more_refunded(refunded, steps.saturating_mul(self.refill).min(most));
            refunded = more_refunded(refunded, missing.saturating_sub(most));
            return (StepsState { start: now.0, missing: missing.min(most), refunded }, true);
        }
        let steps = (now.0 - start) / self.interval.0.max(1);
        missing = missing.saturating_sub(steps.saturating_mul(self.refill));
        start = if missing > 0 { start.saturating_add(steps.saturating_mul(self.interval.0)) } else { now.0 };
        // More is missing where a larger bucket has counted in this state. All of it counts: what this one denies must not make the
        // larger one forget what it has let through.
        (StepsState { start, missing: missing.min(self.comes()), refunded }, false)
    }

    /// The tokens that come in [`MAX_SPAN`].
    fn comes(&self) -> u64 {
        (MAX_SPAN.0 / self.interval.0.max(1)).saturating_mul(self.refill)
    }

    fn left(&self, view: StepsState) -> i64 {
        0i64.saturating_add_unsigned(self.capacity).saturating_sub_unsigned(view.missing)
    }

    fn need(&self, ask: Ask) -> u64 {
        ask.need_with_overdraft(self.capacity, self.overdraft)
    }

    /// The time at which this many more tokens have come.
    fn filled(&self, view: StepsState, tokens: u64) -> Micros {
        let steps = tokens.div_ceil(self.refill.max(1));
        Micros(view.start.saturating_add(steps.saturating_mul(self.interval.0)))
    }
}

impl Algorithm<StepsState> for TokenBucket {
    fn can(&self, state: &mut StepsState, now: Micros, ask: Ask) -> u32 {
        ask.fit(self.left(self.view(*state, now).0), self.need(ask))
    }

    fn take(&self, state: &mut StepsState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (mut view, changed) = self.view(*state, now);
        view.missing = view.missing.saturating_add(ask.units(granted));
        if changed || ask.units(granted) > 0 {
            *state = view;
        }
        let remaining = self.left(view);
        let retry_after = match self.need(ask) {
            need if need > self.capacity => RetryAfter::Never,
            need if fits(remaining, need) => RetryAfter::Now,
            need => {
                let lacking = 0i64.saturating_add_unsigned(need).abs_diff(remaining);
                RetryAfter::after(self.filled(view, lacking).since(now).0)
            }
        };
        let reset = self.filled(view, view.missing).since(now);
        LimitOutcome { remaining, retry_after, reset, refunded: view.refunded, ..LimitOutcome::default() }
    }

    /// Refunds at most what was missing at the grant, less what the steps have brought since and what has been refunded
    /// since, to this grant or another.
    fn settle(&self, state: &mut StepsState, now: Micros, units: i64, receipt: Receipt) {
        let (mut view, changed) = self.view(*state, now);
        if !changed && view.missing == 0 && units <= 0 {
            return;
        }
        let units = if view.missing == 0 { units.max(0) } else { units };
        match u64::try_from(units) {
            Ok(units) => {
                let most = self.max_missing().max(view.missing);
                view.missing = view.missing.saturating_add(units).min(most);
            }
            Err(_) => {
                let steps = view.start.saturating_sub(receipt.at.0).div_ceil(self.interval.0.max(1));
                let missed =
                    0i64.saturating_add_unsigned(self.capacity).saturating_sub(receipt.answer.remaining);
                let came =
                    steps.saturating_mul(self.refill).saturating_add(receipt.refunded_since(view.refunded));
                let left = u64::try_from(missed).unwrap_or(0).saturating_sub(came);
                let back = units.unsigned_abs().min(left);
                view.missing = view.missing.saturating_sub(back);
                view.refunded = more_refunded(view.refunded, back);
            }
        }
        *state = view;
    }
}

const _: () = assert!(MAX_UNITS < 1 << 40);
