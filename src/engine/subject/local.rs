// SPDX-License-Identifier: Apache-2.0
//! The local shares of the limits. While the store is unavailable, each worker counts alone and admits its share.
//!
//! The shares begin unused when the store fails, and are forgotten when it recovers. Requests admitted meanwhile are never charged in the
//! store.

use std::rc::Rc;

use crate::engine::generations::Generations;
use crate::engine::generations::Seed;
use crate::engine::store::Due;
use crate::limit::{Ask, Limit, LimitOutcome, Outcome, RetryAfter, Subject};
use crate::policy::Check;
use crate::time::Micros;

/// At most this many subjects are counted.
const MAX_COUNTED: usize = 65_536;
/// The maximum number of log entries of all subjects together: each gets its share of them when it is counted. The shares become smaller as
/// subjects come, so all logs hold at most twelve times as many entries of 16 bytes, which are 25 MB.
const MAX_ENTRIES: usize = 1 << 17;

/// A subject, without the cost of a request.
type Name = (usize, Vec<u8>);

/// The subjects of requests since the store failed.
#[derive(Debug)]
pub(in crate::engine) struct Local {
    subjects: Generations<Name, Subject>,
    /// Entries of logs that count together with later ones, because there was no room.
    pub merged: u64,
}

impl Local {
    pub fn new(seed: Seed) -> Self {
        Self { subjects: Generations::new(MAX_COUNTED, seed), merged: 0 }
    }

    /// Asks this worker's shares about one request. `whole` are the limits of all workers together.
    ///
    /// A request may fit the whole limit but never the share. It passes when the store recovers, and that time is unknown.
    pub fn check(&mut self, check: &Check, shares: &[Limit], whole: &[Limit], now: Micros) -> Rc<Outcome> {
        let ask = check.ask(1);
        let most = self.most_entries();
        let subject = self.subject(check);
        let mut outcome = subject.check(shares, None, now, ask);
        let merged = subject.condense(shares, now, most);
        self.merged = self.merged.saturating_add(merged);
        let never = |answer: &LimitOutcome| answer.retry_after == RetryAfter::Never;
        if outcome.limits.iter().any(never) {
            let fresh = Subject::default().check(whole, None, now, Ask { requests: 0, ..ask });
            let both = outcome.limits.iter_mut().zip(&fresh.limits);
            for (answer, _) in both.filter(|(answer, fresh)| never(answer) && !never(fresh)) {
                answer.retry_after = RetryAfter::Unknown;
            }
        }
        Rc::new(outcome)
    }

    /// Settles what a request was charged here.
    pub fn settle(&mut self, check: &Check, shares: &[Limit], due: Due, receipt: &Outcome, now: Micros) {
        let most = self.most_entries();
        let subject = self.subject(check);
        let signed = |units| i64::try_from(units).unwrap_or(i64::MAX);
        let units = match due {
            Due::Refund(units) => signed(units).saturating_neg(),
            Due::Charge(units) => signed(units),
            Due::Release(requests) => {
                return subject.release(&receipt.permits(requests).collect::<Vec<_>>());
            }
            // See `Self::renew`.
            Due::Renew(_) => return,
        };
        subject.settle(shares, None, now, units, receipt);
        let merged = subject.condense(shares, now, most);
        self.merged = self.merged.saturating_add(merged);
    }

    /// Renews the permits of a request that still runs. Returns the receipt for it from then on.
    pub fn renew(&mut self, check: &Check, shares: &[Limit], receipt: &Outcome, now: Micros) -> Rc<Outcome> {
        let permits: Vec<_> = receipt.permits(1).collect();
        let expiries = self.subject(check).renew(shares, &permits, now);
        Rc::new(receipt.with_expiries(expiries))
    }

    /// The store has recovered.
    pub fn forget(&mut self) {
        self.subjects.clear();
    }

    /// The number of entries that the logs of one subject may have now.
    fn most_entries(&self) -> usize {
        MAX_ENTRIES / self.subjects.len().max(1)
    }

    fn subject(&mut self, check: &Check) -> &mut Subject {
        self.subjects.get_or_default((check.tier, check.tag.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Concurrency, LeakyBucket, SlidingLog};

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
    fn logs_of_many_subjects_take_a_bounded_memory_and_let_no_more_through() {
        const SUBJECTS: usize = 2_048;
        const UNITS: u64 = 40;
        let day = Micros::from_secs(86_400);
        let logs = || -> [Limit; 2] { [(); 2].map(|()| SlidingLog::new(UNITS, day).unwrap().into()) };
        let (mut local, limits) = (Local::new(Seed(1)), logs());
        let one = |subject: usize| Check { cost: 1, ..check(subject) };
        let at = |unit: u64| Micros(NOW.0 + unit * 1_000_000);
        // One subject alone has all of its entries.
        for unit in 0..=UNITS {
            let granted = local.check(&one(0), &limits, &limits, at(unit)).granted;
            assert_eq!((granted, local.merged), (u32::from(unit < UNITS), 0));
        }
        for unit in 0..=UNITS {
            for subject in 1..SUBJECTS {
                let granted = local.check(&one(subject), &limits, &limits, at(unit)).granted;
                assert_eq!(granted, u32::from(unit < UNITS), "{unit}");
            }
        }
        let entries: usize = (1..SUBJECTS).map(|subject| local.subject(&one(subject)).entries()).sum();
        assert!(
            (SUBJECTS..=MAX_ENTRIES).contains(&entries),
            "{entries} entries, of {} grants",
            2 * 2_047 * UNITS
        );
        assert!(local.merged > 0, "it is counted");
        // A unit counts as long as the newest that it was merged with, and no longer.
        let (mut passed, mut now) = (0, NOW.plus(day));
        for _ in 0..=UNITS {
            passed += local.check(&one(1), &limits, &limits, now).granted;
            assert!(
                u64::from(passed) <= (now.0 - NOW.0 - day.0) / 1_000_000 + 1,
                "no earlier than a whole log"
            );
            now = now.plus(Micros::from_secs(1));
        }
        assert!(passed > 30, "{passed}");
        assert_eq!(
            local.check(&one(1), &limits, &limits, now.plus(Micros(2 * day.0))).limits[0].remaining,
            UNITS.cast_signed() - 1
        );
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
