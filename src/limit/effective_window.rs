// SPDX-License-Identifier: Apache-2.0
//! The effective window: within which time a client may take what is left, and no more.
//!
//! `RateLimit: "name";r=R;t=T` says "no more than R units within T". For R = 0 that is when the next request passes,
//! which the limits answer themselves. This file is for R > 0: T is such that a client which takes all R units now
//! finds as many again after T. A shorter time would invite requests that are denied; a longer one lets units lie idle.
//! The time until the limit is full again is neither: it depends on what others took, and a bucket gives a request back
//! long before.

use super::token_bucket::Kind;
use super::{Align, FixedWindow, Limit, LimitOutcome, SlidingWindow, TokenBucket};
use crate::time::Micros;

impl Limit {
    /// After which time `remaining` units are left again, if all of them are taken at `at`, when the limit said
    /// `answer`. `kept` units of the limit are kept for other requests, and are not among those that are left. Zero for
    /// `concurrency`: there, no time brings anything back.
    #[must_use]
    pub fn effective_window(&self, remaining: u64, kept: u64, answer: &LimitOutcome, at: Micros) -> Micros {
        match self {
            Self::FixedWindow(of) => of.rest(answer, at),
            Self::SlidingLog(of) => gone(of.limit(), of.window(), remaining, kept, answer),
            Self::Distinct(of) => gone(of.limit(), of.window(), remaining, kept, answer),
            Self::SlidingWindow(of) => of.outweighed(remaining, kept, at),
            Self::TokenBucket(of) => match of.kind() {
                Kind::Continuous(bucket) => Micros(bucket.spacing(1, remaining)),
                Kind::Stepwise => of.steps(remaining, answer),
            },
            // The time in which as many units flow: what is sent at that pace is never denied, and wastes nothing.
            Self::LeakyBucket(of) => Micros(of.bucket.spacing(1, remaining)),
            Self::Concurrency(_) => Micros::ZERO,
        }
    }
}

impl FixedWindow {
    /// The rest of the window: the next one has the whole limit.
    fn rest(&self, answer: &LimitOutcome, at: Micros) -> Micros {
        match self.align() {
            // Nothing is used: only the clock says which window it is, or the next request begins one.
            Align::Clock if answer.reset == Micros::ZERO => {
                Micros(self.window().0.saturating_sub(at.0 % self.window().0.max(1)))
            }
            Align::Calendar(..) if answer.reset == Micros::ZERO => self.end(at.0).since(at),
            Align::First if answer.reset == Micros::ZERO => self.window(),
            _ => answer.reset,
        }
    }
}

/// Units taken now leave after a window. Where what was used before is as much, it is enough that this leaves.
fn gone(limit: u64, window: Micros, remaining: u64, kept: u64, answer: &LimitOutcome) -> Micros {
    let used = limit.saturating_sub(kept).saturating_sub(remaining);
    if remaining <= used { answer.reset } else { window }
}

impl SlidingWindow {
    /// Units used now count in full until the window has passed their slot's beginning, then in proportion. At worst all usage is in this
    /// slot too: then as many are left when that part of the slot has passed.
    fn outweighed(&self, remaining: u64, kept: u64, at: Micros) -> Micros {
        let slot = self.precision().0;
        let limit = u128::from(self.limit().saturating_sub(kept).max(1));
        let part = (u128::from(slot) * u128::from(remaining)).div_ceil(limit);
        let part = u64::try_from(part).unwrap_or(slot).min(slot);
        self.window().plus(Micros(part)).since(Micros(at.0 % slot.max(1)))
    }
}

impl TokenBucket {
    /// The time for the steps that bring these tokens. The time to the next step is the time to the last step, which fills the bucket, less
    /// whole intervals.
    fn steps(&self, remaining: u64, answer: &LimitOutcome) -> Micros {
        let interval = self.interval().0.max(1);
        let next = match answer.reset.0.checked_sub(1) {
            Some(before) => before % interval + 1,
            None => interval,
        };
        let more = remaining.div_ceil(self.refill().max(1)).saturating_sub(1);
        Micros(more.saturating_mul(interval).saturating_add(next))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Refill, SlidingLog};
    use super::*;

    #[test]
    fn what_is_taken_now_is_there_again_then_and_no_earlier() {
        let second = Micros::from_secs(1);
        let steps = || Limit::from(TokenBucket::new(9, 2, second, Refill::Stepwise, 0).unwrap());
        let sliding = || Limit::from(SlidingWindow::new(3, Micros(3_000_000), second).unwrap());
        let log = || Limit::from(SlidingLog::new(9, second).unwrap());
        let window = |align| Limit::from(FixedWindow::new(9, second, align).unwrap());
        // The units left, those kept for others, the time until the limit is whole, the time of day, and the result; times in microseconds.
        let rows = [
            ("the rest of a window", window(Align::Clock), 4, 0, 250_000, 750_000, 250_000),
            ("of one by the clock, unused", window(Align::Clock), 9, 0, 0, 750_000, 250_000),
            ("of one that has not begun", window(Align::First), 9, 0, 0, 750_000, 1_000_000),
            ("a log with more used than left", log(), 4, 0, 250_000, 0, 250_000),
            ("a log with more left than used", log(), 5, 0, 250_000, 0, 1_000_000),
            ("a log with as much used as is left for the class", log(), 3, 3, 250_000, 0, 250_000),
            ("a log with less used than is left for the class", log(), 4, 3, 250_000, 0, 1_000_000),
            ("slots, of which one unit is kept", sliding(), 1, 1, 9, 7_000_000, 3_500_000),
            ("slots, from a slot's beginning", sliding(), 1, 0, 9, 7_000_000, 3_333_334),
            ("slots, from within a slot", sliding(), 3, 0, 9, 7_400_000, 3_600_000),
            ("steps, of a full bucket", steps(), 9, 0, 0, 0, 5_000_000),
            ("steps, the next of which is near", steps(), 3, 0, 3_250_000, 0, 1_250_000),
            ("one step, a whole interval away", steps(), 2, 0, 4_000_000, 0, 1_000_000),
        ];
        for (row, limit, left, kept, reset, at, expected) in rows {
            let answer = LimitOutcome { reset: Micros(reset), ..LimitOutcome::default() };
            assert_eq!(limit.effective_window(left, kept, &answer, Micros(at)), Micros(expected), "{row}");
        }
    }
}
