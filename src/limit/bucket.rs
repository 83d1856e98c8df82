//! What the leaky and the continuous token bucket have in common: GCRA, the generic cell rate algorithm
//! (ITU-T I.371 Annex A, "virtual scheduling"), in exact fractions of a microsecond.
//!
//! A unit takes `p / l` microseconds to flow, in lowest terms. All that is remembered is when the bucket will
//! be whole again. Until then `owed` is how much of it is missing, as time, in parts of `1 / l` microseconds:
//! an integer, so three per second are 10,800 an hour and not one more in a year.

use core::num::NonZero;

use super::subject::{Algorithm, Paid, more_refunded};
use super::{Ask, Invalid, LimitOutcome, MAX_SPAN, MAX_UNITS, RetryAfter};
use crate::time::Micros;

/// The parameters, precomputed. Spans are in parts of `1 / l` microseconds and below 2^90.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) p: NonZero<u128>,
    pub(crate) l: NonZero<u128>,
    /// What may be owed after a request, `hold` included.
    pub(crate) room: u128,
    /// How much of `room` is there to wait in.
    pub(crate) hold: u128,
    /// What may be owed at all: `room` and the overdraft.
    pub(crate) most: u128,
    /// Units that one request may take beyond `room`.
    pub(crate) overdraft: u64,
}

/// When the bucket is whole again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// Whole microseconds, since the epoch.
    pub(crate) whole: u64,
    /// And parts of `1 / l` microseconds.
    pub(crate) part: u64,
    /// By how many microseconds that moment was moved back in all: see [`LimitOutcome::refunded`].
    pub(crate) refunded: u64,
}

impl Bucket {
    /// `units` every `period`, `capacity` at once. The caller has checked each alone; here they are checked
    /// together.
    pub(crate) fn new(
        (units, period): (u64, Micros),
        (parameter, capacity): (&'static str, u64),
        hold: Micros,
        overdraft: u64,
    ) -> Result<Self, Invalid> {
        let (period, units) = (u128::from(period.0), u128::from(units));
        let divisor = gcd(period, units);
        let p = NonZero::new(period / divisor).unwrap_or(NonZero::<u128>::MIN);
        let l = NonZero::new(units / divisor).unwrap_or(NonZero::<u128>::MIN);
        let hold = u128::from(hold.0) * l.get();
        let room = u128::from(capacity) * p.get() + hold;
        let most = room + u128::from(overdraft) * p.get();
        let bucket = Self { p, l, room, hold, most, overdraft };
        if most / l > u128::from(MAX_SPAN.0) {
            let value = capacity.to_string();
            let allowed = "what flows in at most 3660 days (with max_delay and overdraft)".to_owned();
            return Err(Invalid { parameter, value, allowed });
        }
        if room / p > u128::from(MAX_UNITS) {
            let value = Micros(narrow(hold / l)).to_string();
            let allowed = format!("what lets at most {MAX_UNITS} units wait");
            return Err(Invalid { parameter: "max_delay", value, allowed });
        }
        Ok(bucket)
    }

    /// What is owed. A debt beyond reach means that the clock went back or the limit got smaller: it is cut,
    /// and kept so, or it would stay out of reach for as long as the clock stays behind.
    fn owed(&self, state: &mut BucketState, now: Micros) -> u128 {
        if state.whole < now.0 {
            return 0;
        }
        // Parts of another rate's microsecond: less than one.
        let part = u128::from(state.part).min(self.l.get());
        let owed = u128::from(state.whole - now.0) * self.l.get() + part;
        if owed > self.most {
            // No receipt may take back what is cut off.
            let cut = (state.whole - now.0).saturating_add(1).saturating_sub(narrow(self.most / self.l));
            self.owe(state, now, self.most, cut);
        }
        owed.min(self.most)
    }

    /// Remembers what is owed, and that so many microseconds more have been refunded.
    fn owe(&self, state: &mut BucketState, now: Micros, owed: u128, refunded: u64) {
        let whole = now.0.saturating_add(narrow(owed / self.l));
        let refunded = more_refunded(state.refunded, refunded);
        *state = BucketState { whole, part: narrow(owed % self.l), refunded };
    }

    /// What a request needs: its cost, less what it may take in advance, but at least one unit.
    fn need(&self, ask: Ask) -> u64 {
        ask.cost.saturating_sub(self.overdraft).max(1)
    }

    /// Whether what a request needs may ever go at once, held or not.
    fn may_go(&self, ask: Ask) -> bool {
        u128::from(self.need(ask)).saturating_mul(self.p.get()) <= self.room - self.hold
    }

    /// Whole units left, rounded down; negative in debt.
    fn left(&self, owed: u128) -> i64 {
        match self.room.checked_sub(owed) {
            Some(free) => narrow_signed(signed(free / self.p)),
            None => -narrow_signed(signed((owed - self.room).div_ceil(self.p.get()))),
        }
    }

    /// The most units that can be left.
    pub(crate) fn capacity(&self) -> u64 {
        narrow(self.room / self.p)
    }

    /// The time that the `count` requests of this cost before one take to flow, rounded up.
    pub(crate) fn spacing(&self, count: u32, cost: u64) -> u64 {
        narrow((u128::from(count) * u128::from(cost)).saturating_mul(self.p.get()).div_ceil(self.l.get()))
    }
}

impl Algorithm<BucketState> for Bucket {
    fn can(&self, state: &mut BucketState, now: Micros, ask: Ask) -> u32 {
        let owed = self.owed(state, now);
        if self.may_go(ask) { ask.fit(self.left(owed), self.need(ask)) } else { 0 }
    }

    fn take(&self, state: &mut BucketState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (p, l) = (self.p.get(), self.l.get());
        let mut owed = self.owed(state, now);
        let mut remaining = self.left(owed);
        let mut turn = 0;
        if granted > 0 {
            if self.hold > 0 {
                let first = signed(owed + u128::from(ask.cost) * p + self.hold) - signed(self.room);
                turn = -narrow_signed((-first).div_euclid(signed(l)));
            }
            if ask.cost > 0 {
                let units = ask.units(granted);
                owed = owed.saturating_add(u128::from(units).saturating_mul(p));
                remaining = remaining.saturating_sub_unsigned(units);
                self.owe(state, now, owed, 0);
            }
        }
        let need = u128::from(self.need(ask)).saturating_mul(p);
        let retry_after = match self.may_go(ask) {
            true => RetryAfter::after(narrow((owed + need).saturating_sub(self.room).div_ceil(l))),
            false => RetryAfter::Never,
        };
        let reset = Micros(narrow(owed.div_ceil(l)));
        LimitOutcome { remaining, retry_after, reset, turn, lease: 0, refunded: state.refunded }
    }

    /// Gives back at most what has not flowed since it was paid, and has not been refunded since, of this
    /// receipt or another: what was owed then is what all of them were charged. After that moment a microsecond
    /// less: the answer was rounded up.
    fn settle(&self, state: &mut BucketState, now: Micros, units: i64, paid: Paid) {
        let owed = self.owed(state, now);
        if owed == 0 && units <= 0 {
            return;
        }
        let part = u128::from(units.unsigned_abs()).saturating_mul(self.p.get());
        if units > 0 {
            self.owe(state, now, owed.saturating_add(part).min(self.most), 0);
        } else {
            let since = paid.refunded_since(state.refunded);
            let rounded = u64::from(now > paid.at || since > 0);
            let left = paid.whole().since(now).since(Micros(since)).since(Micros(rounded));
            let back = part.min(u128::from(left.0) * self.l.get());
            self.owe(state, now, owed.saturating_sub(back), narrow(back.div_ceil(self.l.get())));
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
