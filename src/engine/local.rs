//! Limits kept by this worker alone, while the store is away: each worker lets through its share.
//!
//! They begin whole when the store fails, and are forgotten when it answers: what was let through meanwhile is not put
//! on the store's account, and the next failure begins anew.

use std::collections::HashMap;
use std::rc::Rc;

use super::batch::Taken;
use super::seed::Seed;
use crate::limit::{Answer, Ask, Limit, Outcome, RetryAfter, Subject};
use crate::policy::Check;
use crate::time::Micros;

/// At most this many subjects are counted, in two generations: when the younger is full the older is forgotten.
const MAX_COUNTED: usize = 65_536;

/// A subject, whatever its requests cost.
type Name = (usize, Vec<u8>);

/// The subjects that asked since the store failed.
#[derive(Debug)]
pub(super) struct Local {
    young: HashMap<Name, Subject, Seed>,
    old: HashMap<Name, Subject, Seed>,
}

impl Local {
    pub fn new(seed: Seed) -> Self {
        Self { young: HashMap::with_hasher(seed), old: HashMap::with_hasher(seed) }
    }

    /// Asks this worker's share of the limits about one request.
    ///
    /// What only the share cannot hold passes when the store is back: nobody knows when, but not never.
    pub fn check(&mut self, check: &Check, shares: &[Limit], whole: &[Limit], now: Micros) -> Rc<Outcome> {
        let ask = Ask { requests: 1, cost: check.cost };
        let mut outcome = self.subject(check).check(shares, now, ask);
        let never = |answer: &Answer| answer.retry_after == RetryAfter::Never;
        if outcome.limits.iter().any(never) {
            let fresh = Subject::default().check(whole, now, Ask { requests: 0, ..ask });
            let both = outcome.limits.iter_mut().zip(&fresh.limits);
            for (answer, _) in both.filter(|(answer, fresh)| never(answer) && !never(fresh)) {
                answer.retry_after = RetryAfter::Unknown;
            }
        }
        Rc::new(outcome)
    }

    /// Gives back what a request has taken here.
    pub fn give_back(&mut self, check: &Check, shares: &[Limit], what: Taken, paid: &Outcome, now: Micros) {
        let units = i64::try_from(check.cost).unwrap_or(i64::MAX).saturating_neg();
        let subject = self.subject(check);
        match what {
            Taken::Units => {
                subject.settle(shares, now, units, paid);
            }
            Taken::Places => subject.release(&paid.permits(1).collect::<Vec<_>>()),
        }
    }

    /// The store is back.
    pub fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    fn subject(&mut self, check: &Check) -> &mut Subject {
        let name = (check.tier, check.tag.clone());
        if self.young.len() >= MAX_COUNTED / 2 && !self.young.contains_key(&name) {
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
        let old = self.old.remove(&name);
        self.young.entry(name).or_insert_with(|| old.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Concurrency, LeakyBucket};
    use crate::policy::Mode;

    const NOW: Micros = Micros::from_secs(1_700_000_000);

    fn check(subject: usize) -> Check {
        Check { policy: 0, tier: 0, tag: subject.to_string().into_bytes(), cost: 2, mode: Mode::Enforce }
    }

    /// Two units at once, and no more within the test.
    fn units() -> [Limit; 1] {
        [LeakyBucket::new(1, Micros::from_secs(3_600), 2, Micros::ZERO).unwrap().into()]
    }

    #[test]
    fn what_a_request_gives_back_is_there_for_the_next() {
        let place = [Concurrency::new(1, Micros::from_secs(3_600)).unwrap().into()];
        for (limits, what) in [(units(), Taken::Units), (place, Taken::Places)] {
            let mut local = Local::new(Seed(1));
            let paid = local.check(&check(1), &limits, &limits, NOW);
            assert_eq!(
                (paid.granted, local.check(&check(1), &limits, &limits, NOW).granted),
                (1, 0),
                "{limits:?}"
            );
            local.give_back(&check(1), &limits, what, &paid, NOW);
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
