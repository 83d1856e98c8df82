// SPDX-License-Identifier: Apache-2.0
//! The local shares of the limits. While the store is unavailable, each worker counts alone and admits its share.
//!
//! The shares begin unused when the store fails, and are forgotten when it recovers. What was admitted meanwhile is never
//! charged in the store.

use std::rc::Rc;

use crate::engine::dispatch::Due;
use crate::engine::generations::Generations;
use crate::engine::seed::Seed;
use crate::limit::{Ask, Limit, LimitOutcome, Outcome, RetryAfter, Subject};
use crate::policy::Check;
use crate::time::Micros;

/// At most this many subjects are counted.
const MAX_COUNTED: usize = 65_536;

/// A subject, without the cost of a request.
type Name = (usize, Vec<u8>);

/// The subjects of requests since the store failed.
#[derive(Debug)]
pub(super) struct Local {
    subjects: Generations<Name, Subject>,
}

impl Local {
    pub fn new(seed: Seed) -> Self {
        Self { subjects: Generations::new(MAX_COUNTED, seed) }
    }

    /// Asks this worker's shares about one request. `whole` are the limits of all workers together.
    ///
    /// A request may fit the whole limit but never the share. It passes when the store recovers, and that time is unknown.
    pub fn check(&mut self, check: &Check, shares: &[Limit], whole: &[Limit], now: Micros) -> Rc<Outcome> {
        let ask = check.ask(1);
        let mut outcome = self.subject(check).check(shares, now, ask);
        let never = |answer: &LimitOutcome| answer.retry_after == RetryAfter::Never;
        if outcome.limits.iter().any(never) {
            let fresh = Subject::default().check(whole, now, Ask { requests: 0, ..ask });
            let both = outcome.limits.iter_mut().zip(&fresh.limits);
            for (answer, _) in both.filter(|(answer, fresh)| never(answer) && !never(fresh)) {
                answer.retry_after = RetryAfter::Unknown;
            }
        }
        Rc::new(outcome)
    }

    /// Settles what a request was charged here.
    pub fn settle(&mut self, check: &Check, shares: &[Limit], due: Due, receipt: &Outcome, now: Micros) {
        let subject = self.subject(check);
        let signed = |units| i64::try_from(units).unwrap_or(i64::MAX);
        let units = match due {
            Due::Refund(units) => signed(units).saturating_neg(),
            Due::Charge(units) => signed(units),
            Due::Release(requests) => {
                return subject.release(&receipt.permits(requests).collect::<Vec<_>>());
            }
        };
        subject.settle(shares, now, units, receipt);
    }

    /// The store has recovered.
    pub fn forget(&mut self) {
        self.subjects.clear();
    }

    fn subject(&mut self, check: &Check) -> &mut Subject {
        self.subjects.get_or_default((check.tier, check.tag.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Concurrency, LeakyBucket};

    const NOW: Micros = Micros::from_secs(1_700_000_000);

    fn check(subject: usize) -> Check {
        Check { cost: 2, ..Check::one(0, subject.to_string()) }
    }

    /// Two units at once, and no more within the test.
    fn units() -> [Limit; 1] {
        [LeakyBucket::new(1, Micros::from_secs(3_600), 2, Micros::ZERO).unwrap().into()]
    }

    #[test]
    fn what_is_refunded_is_there_for_the_next_request() {
        let place = [Concurrency::new(1, Micros::from_secs(3_600)).unwrap().into()];
        for (limits, due) in [(units(), Due::Refund(2)), (place, Due::Release(1))] {
            let mut local = Local::new(Seed(1));
            let receipt = local.check(&check(1), &limits, &limits, NOW);
            assert_eq!(
                (receipt.granted, local.check(&check(1), &limits, &limits, NOW).granted),
                (1, 0),
                "{limits:?}"
            );
            local.settle(&check(1), &limits, due, &receipt, NOW);
            let granted = [(); 2].map(|()| local.check(&check(1), &limits, &limits, NOW).granted);
            assert_eq!(granted, [1, 0], "{limits:?}: all of it, and no more");
        }
    }

    #[test]
    fn a_subject_is_forgotten_when_as_many_others_were_counted_as_fit() {
        let (mut local, limits) = (Local::new(Seed(1)), units());
        let mut granted = |subject| local.check(&check(subject), &limits, &limits, NOW).granted;
        assert_eq!(granted(0), 1);
        // It moves to the older generation and back to the younger one, which holds half of them.
        for others in [1..MAX_COUNTED / 2 + 10, MAX_COUNTED..MAX_COUNTED * 3 / 2 - 10] {
            others.for_each(|other| assert_eq!(granted(other), 1));
            assert_eq!(granted(0), 0, "it has used up its units, and is remembered");
        }
        (MAX_COUNTED * 2..MAX_COUNTED * 3 + 10).for_each(|other| assert_eq!(granted(other), 1));
        assert_eq!(granted(0), 1, "it is forgotten, or the table would grow without bound");
    }

    #[test]
    fn what_a_share_can_never_hold_says_no_time_and_the_other_limits_theirs() {
        let hour = Micros::from_secs(3_600);
        let bucket = |capacity| Limit::from(LeakyBucket::new(1, hour, capacity, Micros::ZERO).unwrap());
        // For a request of two units: what only the share cannot hold, what the whole cannot, and what has one unit left.
        let (shares, whole) = ([bucket(1), bucket(1), bucket(2)], [bucket(2), bucket(1), bucket(9)]);
        let mut local = Local::new(Seed(1));
        let granted = local.check(&Check { cost: 1, ..check(1) }, &shares, &whole, NOW).granted;
        let outcome = local.check(&check(1), &shares, &whole, NOW);
        assert_eq!((granted, outcome.granted), (1, 0));
        let told: Vec<_> = outcome.limits.iter().map(|answer| answer.retry_after).collect();
        assert_eq!(told, [RetryAfter::Unknown, RetryAfter::Never, RetryAfter::After(hour)]);
    }
}
