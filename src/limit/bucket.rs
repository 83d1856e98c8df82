// SPDX-License-Identifier: Apache-2.0
//! The bucket of `leaky_bucket` and the continuous `token_bucket`: GCRA, the generic cell rate algorithm (ITU-T I.371
//! Annex A, "virtual scheduling"), in exact fractions of a microsecond.
//!
//! The state is the theoretical arrival time (TAT): when the bucket is full again. A request moves it later by an emission
//! interval for each unit of its cost, and passes if the TAT is then at most a tolerance ahead of now. Here the
//! tolerance includes the interval of the request itself, which I.371 does not count.
//!
//! An emission interval is a fraction of microseconds in lowest terms. Its denominator says in how many `parts` a
//! microsecond is divided, so that all spans are whole numbers of parts: 3 a second are 10,800 an hour, and not one more in
//! a year.

use core::num::NonZero;

use super::subject::{Algorithm, REFUNDED, Receipt, more_refunded};
use super::{Ask, Invalid, LimitOutcome, MAX_SPAN, MAX_UNITS, RetryAfter};
use crate::time::Micros;

/// The parameters, precomputed. Spans are in parts of a microsecond, and below 2^90.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Parts in a microsecond.
    pub(crate) parts: NonZero<u128>,
    /// The emission interval: the time in which one unit flows.
    pub(crate) emission: NonZero<u128>,
    /// The maximum by which a request may move the TAT ahead: the burst tolerance and the delay tolerance.
    pub(crate) tolerance: u128,
    /// The maximum time for which a request may be held.
    pub(crate) delay_tolerance: u128,
    /// The maximum by which the TAT may be ahead at all: the tolerance, the overdraft and the debt.
    pub(crate) max_owed: u128,
    /// Units that one request may take beyond the tolerance.
    pub(crate) overdraft: u64,
}

/// The theoretical arrival time: when the bucket is full again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// Whole microseconds, since the epoch.
    pub(crate) tat: u64,
    /// And parts of a microsecond.
    pub(crate) part: u64,
    /// The microseconds by which refunds moved the TAT back in all: see [`LimitOutcome::refunded`].
    pub(crate) refunded: u64,
    /// The part that was cut off of a larger bucket's TAT.
    cut: Option<Box<Cut>>,
}

/// The part of a TAT that a bucket has cut off, because the TAT was too far ahead for it. Either the clock went back, or a larger bucket
/// counts on the same state. In the second case, a denial by the smaller bucket must not make the larger one forget what it has let
/// through. The order in which smaller buckets are asked does not matter: each of them refills from the time of the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// The microseconds by which the whole TAT is later.
    span: u64,
    /// The microseconds by which the whole TAT was ahead at the last cut. It is valid for buckets whose TAT may be so far ahead.
    needed: u64,
    /// The part of a microsecond of the whole TAT.
    part: u64,
}

impl Bucket {
    /// `units` every `period`, `capacity` at once. The caller has checked each alone; this checks them together.
    pub(crate) fn new(
        (units, period): (u64, Micros),
        (parameter, capacity): (&'static str, u64),
        max_delay: Micros,
        overdraft: u64,
    ) -> Result<Self, Invalid> {
        let (period, units) = (u128::from(period.0), u128::from(units));
        let divisor = gcd(period, units);
        let emission = NonZero::new(period / divisor).unwrap_or(NonZero::<u128>::MIN);
        let parts = NonZero::new(units / divisor).unwrap_or(NonZero::<u128>::MIN);
        let delay_tolerance = u128::from(max_delay.0) * parts.get();
        let tolerance = u128::from(capacity) * emission.get() + delay_tolerance;
        let max_owed = tolerance + u128::from(overdraft) * emission.get();
        let bucket = Self { parts, emission, tolerance, delay_tolerance, max_owed, overdraft };
        if max_owed / parts > u128::from(MAX_SPAN.0) {
            let value = capacity.to_string();
            let allowed = "what flows in at most 3660 days (with max_delay and overdraft)".to_owned();
            return Err(Invalid { parameter, value, allowed });
        }
        if tolerance / emission > u128::from(MAX_UNITS) {
            let value = max_delay.to_string();
            let allowed = format!("what lets at most {MAX_UNITS} units wait");
            return Err(Invalid { parameter: "max_delay", value, allowed });
        }
        Ok(bucket)
    }

    /// The maximum by which requests may move the TAT ahead.
    pub(crate) fn max_asked(&self) -> u128 {
        self.tolerance + u128::from(self.overdraft) * self.emission.get()
    }

    /// The debt of this many times the quota.
    fn whole_debt(&self, times: u32) -> u128 {
        u128::from(times) * u128::from(self.capacity()) * self.emission.get()
    }

    /// It goes into as much of this debt as flows back in [`MAX_SPAN`].
    pub(super) fn set_debt(&mut self, times: u32) {
        let asked = self.max_asked();
        let most = (u128::from(MAX_SPAN.0) * self.parts.get()).saturating_sub(asked);
        self.max_owed = asked + self.whole_debt(times).min(most);
    }

    /// True if it has the whole debt of this many times the quota.
    pub(super) fn holds_debt(&self, times: u32) -> bool {
        self.max_owed == self.max_asked() + self.whole_debt(times)
    }

    /// The state as of now, the lead of the TAT, and whether the state must be corrected even if nothing is granted. If the
    /// TAT is too far ahead, it is moved back, or the subject would be denied until the clock is where it was.
    fn view(&self, state: &BucketState, now: Micros) -> (BucketState, u128, bool) {
        let mut view = state.clone();
        let most = narrow(self.max_owed / self.parts);
        if let Some(cut) = view.cut.take_if(|cut| cut.needed <= most) {
            let refunded = more_refunded(view.refunded, REFUNDED - (cut.span + 1));
            view =
                BucketState { tat: view.tat.saturating_add(cut.span), part: cut.part, refunded, cut: None };
        } else if let Some(cut) = &mut view.cut {
            // This one would have cut off less.
            let more = cut.span.saturating_sub(cut.needed.saturating_sub(most));
            if more > 0 {
                cut.span -= more;
                (view.tat, view.part) = (view.tat.saturating_add(more), 0);
                view.refunded = more_refunded(view.refunded, REFUNDED - more % REFUNDED);
            }
        }
        let Some(ahead) = view.tat.checked_sub(now.0) else {
            // While the bucket is full, the TAT that was cut off comes nearer.
            let idle = now.0 - view.tat;
            view.cut = view.cut.filter(|cut| cut.span > idle);
            if let Some(cut) = &mut view.cut {
                cut.span -= idle;
            }
            return (view, 0, false);
        };
        // A former rate divided the microsecond into more parts: all of them are at most one microsecond.
        let part = u128::from(view.part).min(self.parts.get());
        let owed = u128::from(ahead) * self.parts.get() + part;
        if owed <= self.max_owed {
            return (view, owed, false);
        }
        let further = ahead.saturating_sub(most);
        let mut cut =
            view.cut.take().unwrap_or_else(|| Box::new(Cut { span: 0, needed: 0, part: view.part }));
        cut.needed = ahead.saturating_add(cut.span);
        cut.span = cut.span.saturating_add(further);
        // No limit owes more than that: the clock went back. And what is cut off counts as refunded, so that no refund gives it
        // back a second time.
        view.cut = Some(cut).filter(|cut| cut.span <= MAX_SPAN.0);
        self.set_owed(&mut view, now, self.max_owed, further.saturating_add(1));
        (view, self.max_owed, true)
    }

    /// Moves the TAT to `owed` ahead of now, and counts this many microseconds more as refunded.
    fn set_owed(&self, state: &mut BucketState, now: Micros, owed: u128, refunded: u64) {
        state.tat = now.0.saturating_add(narrow(owed / self.parts));
        state.part = narrow(owed % self.parts);
        state.refunded = more_refunded(state.refunded, refunded);
    }

    /// The units that have to be left for a request: its cost, less the overdraft that it may use, but at least one; and the units that are
    /// kept for others.
    fn need(&self, ask: Ask) -> u64 {
        ask.need_with_overdraft(self.capacity(), self.overdraft)
    }

    /// True if the burst is enough for a request's cost, and the bucket for what must be left. If not, the request never passes, held or
    /// not.
    fn can_pass(&self, ask: Ask) -> bool {
        let (need, quota) = (self.need(ask), self.capacity());
        let own = u128::from(need.saturating_sub(ask.kept(quota)));
        own.saturating_mul(self.emission.get()) <= self.tolerance - self.delay_tolerance && need <= quota
    }

    /// Whole units left, rounded down; negative in debt.
    fn left(&self, owed: u128) -> i64 {
        match self.tolerance.checked_sub(owed) {
            Some(free) => narrow_signed(signed(free / self.emission)),
            None => -narrow_signed(signed((owed - self.tolerance).div_ceil(self.emission.get()))),
        }
    }

    /// The most units that can be left.
    pub(crate) fn capacity(&self) -> u64 {
        narrow(self.tolerance / self.emission)
    }

    /// The time that this many requests of this cost take to flow, rounded up, in microseconds.
    pub(crate) fn spacing(&self, count: u32, cost: u64) -> u64 {
        narrow(
            (u128::from(count) * u128::from(cost))
                .saturating_mul(self.emission.get())
                .div_ceil(self.parts.get()),
        )
    }
}

impl Algorithm<BucketState> for Bucket {
    fn can(&self, state: &mut BucketState, now: Micros, ask: Ask) -> u32 {
        let (_, owed, _) = self.view(state, now);
        if self.can_pass(ask) { ask.fit(self.left(owed), self.need(ask)) } else { 0 }
    }

    fn take(&self, state: &mut BucketState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (emission, parts) = (self.emission.get(), self.parts.get());
        let (mut view, mut owed, is_cut) = self.view(state, now);
        // A check for no request changes nothing.
        let mut changed = is_cut && ask.requests > 0;
        let mut remaining = self.left(owed);
        let mut first_delay = 0;
        if granted > 0 {
            if self.delay_tolerance > 0 {
                let first = signed(owed + u128::from(ask.cost) * emission + self.delay_tolerance)
                    - signed(self.tolerance);
                first_delay = -narrow_signed((-first).div_euclid(signed(parts)));
            }
            if ask.cost > 0 {
                let units = ask.units(granted);
                owed = owed.saturating_add(u128::from(units).saturating_mul(emission));
                remaining = remaining.saturating_sub_unsigned(units);
                self.set_owed(&mut view, now, owed, 0);
                changed = true;
            }
        }
        let need = u128::from(self.need(ask)).saturating_mul(emission);
        let retry_after = match self.can_pass(ask) {
            true => RetryAfter::after(narrow((owed + need).saturating_sub(self.tolerance).div_ceil(parts))),
            false => RetryAfter::Never,
        };
        let reset = Micros(narrow(owed.div_ceil(parts)));
        let refunded = view.refunded;
        if changed {
            *state = view;
        }
        LimitOutcome { remaining, retry_after, reset, first_delay, permit_expiry: 0, refunded }
    }

    /// Refunds at most what has not come back with time since the grant, and has not been refunded since, to this grant or
    /// another. One microsecond less after the moment of the grant, because its answer was rounded up.
    fn settle(&self, state: &mut BucketState, now: Micros, units: i64, receipt: Receipt) {
        let (view, owed, _) = self.view(state, now);
        if owed == 0 && units <= 0 {
            return;
        }
        *state = view;
        let span = u128::from(units.unsigned_abs()).saturating_mul(self.emission.get());
        if units > 0 {
            self.set_owed(state, now, owed.saturating_add(span).min(self.max_owed), 0);
        } else {
            let since = receipt.refunded_since(state.refunded);
            let rounded = u64::from(now > receipt.at || since > 0);
            let left = receipt.full_at().since(now).since(Micros(since)).since(Micros(rounded));
            let back = span.min(u128::from(left.0) * self.parts.get());
            self.set_owed(state, now, owed.saturating_sub(back), narrow(back.div_ceil(self.parts.get())));
        }
    }
}

const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if a == 0 { 1 } else { a }
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn signed(value: u128) -> i128 {
    i128::try_from(value).unwrap_or(i128::MAX)
}

fn narrow_signed(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
