// SPDX-License-Identifier: Apache-2.0
//! `leaky_bucket`: `burst` requests at once, then one every `per / rate`. Units at microseconds.
//!
//! With a `max_delay` it queues: what comes faster is held until its turn, at most that long (nginx
//! `limit_req` with a burst; a `max_delay` of zero is its `nodelay`). The bucket itself is GCRA.

use super::bucket::Bucket;
use super::{Invalid, MAX_WINDOW, units, window};
use crate::time::Micros;

/// A rate, a burst and the longest time to hold a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: u64,
    per: Micros,
    burst: u64,
    max_delay: Micros,
    /// See [`Limit::debt`](super::Limit::debt).
    pub(super) debt: u32,
    /// The units by which the TAT may be further ahead than by its own parameters: see [`LeakyBucket::sharing`].
    spare: u64,
    pub(crate) bucket: Bucket,
}

impl LeakyBucket {
    /// `rate` units flow every `per`; `burst` of them may go at once, the first included.
    ///
    /// In any time t at most `burst + rate × t / per` units pass; a request held for its turn counts when it
    /// passes, not when it is granted.
    ///
    /// # Errors
    /// [`Invalid`] unless `rate` and `burst` are 1 to 10^12, `per` is 1 ms to 366 days, `max_delay` is at
    /// most 366 days, and the whole burst and `max_delay` flow within ten years.
    pub fn new(rate: u64, per: Micros, burst: u64, max_delay: Micros) -> Result<Self, Invalid> {
        let (rate, burst, per) = (units("rate", rate, 1)?, units("burst", burst, 1)?, window("per", per)?);
        if max_delay > MAX_WINDOW {
            let allowed = "0 to 366 days".to_owned();
            return Err(Invalid { parameter: "max_delay", value: max_delay.to_string(), allowed });
        }
        let bucket = Bucket::new((rate, per), ("burst", burst), max_delay, 0)?;
        Ok(Self { rate, per, burst, max_delay, debt: 0, spare: 0, bucket })
    }

    /// True if both can count on one state: they have the same rate and the same debt. Bursts and delays may differ, because the state is a
    /// time that does not depend on them.
    #[must_use]
    pub fn counts_like(&self, other: &Self) -> bool {
        (self.rate, self.per, self.debt) == (other.rate, other.per, other.debt)
    }

    /// The same, on a state that `other` counts on, too. The grants of `other` beyond the burst of this one count as used, and not as a
    /// sign of a clock that went back.
    #[must_use]
    pub fn sharing(&self, other: &Self) -> Self {
        let further = other.bucket.max_owed.saturating_sub(self.bucket.tolerance);
        let spare = u64::try_from(further.div_ceil(self.bucket.emission.get())).unwrap_or(u64::MAX);
        self.with_spare(self.spare.max(spare))
    }

    /// The same, with a TAT that may lie this many units further ahead.
    pub(super) fn with_spare(&self, spare: u64) -> Self {
        let mut same = self.clone();
        same.spare = spare;
        let spare = u128::from(spare).saturating_mul(self.bucket.emission.get());
        same.bucket.max_owed = self.bucket.max_owed.max(self.bucket.tolerance.saturating_add(spare));
        same
    }

    pub(super) const fn spare(&self) -> u64 {
        self.spare
    }

    /// Units that flow every [`LeakyBucket::per`].
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// The span of time that the rate is for.
    #[must_use]
    pub const fn per(&self) -> Micros {
        self.per
    }

    /// Units that may go at once.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// The longest time for which a request is held.
    #[must_use]
    pub const fn max_delay(&self) -> Micros {
        self.max_delay
    }

    pub(super) fn spacing(&self, count: u32, cost: u64) -> u64 {
        if self.max_delay == Micros::ZERO { 0 } else { self.bucket.spacing(count, cost) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ask, Limit, Subject};
    use super::*;

    const NOW: Micros = Micros::from_secs(1_700_000_000);

    /// A large and a small bucket of one a minute, on one state.
    fn pair() -> [[Limit; 1]; 2] {
        let minute = Micros::from_secs(60);
        let [large, small] = [(20, Micros::ZERO), (2, Micros::from_secs(90))]
            .map(|(burst, delay)| LeakyBucket::new(1, minute, burst, delay).unwrap());
        [[large.sharing(&small).into()], [small.sharing(&large).into()]]
    }

    #[test]
    fn a_smaller_bucket_on_the_same_state_takes_nothing_back() {
        let [large, small] = pair();
        let mut subject = Subject::default();
        let mut ask =
            |limits: &[Limit], requests| subject.check(limits, None, NOW, Ask::new(requests, 1)).granted;
        assert_eq!(ask(&large, 18), 18);
        assert_eq!(ask(&small, 1), 0, "more than its burst is used");
        assert_eq!(ask(&large, 9), 2, "what the small one denies leaves what the large one has granted");
        assert_eq!(ask(&small, 1), 0);
    }

    #[test]
    fn each_counts_what_the_other_grants() {
        let [large, small] = pair();
        let mut subject = Subject::default();
        let mut ask =
            |limits: &[Limit], requests| subject.check(limits, None, NOW, Ask::new(requests, 1)).granted;
        assert_eq!([ask(&small, 9), ask(&large, 30), ask(&small, 1)], [3, 17, 0]);
    }

    #[test]
    fn a_share_of_one_worker_knows_of_the_others_too() {
        let [large, small] = pair().map(|[limit]| [limit.local_share(2)]);
        let mut subject = Subject::default();
        let mut ask =
            |limits: &[Limit], requests| subject.check(limits, None, NOW, Ask::new(requests, 1)).granted;
        assert_eq!([ask(&large, 9), ask(&small, 9), ask(&large, 9)], [9, 0, 1]);
    }

    #[test]
    fn a_clock_that_went_back_is_still_noticed() {
        let [large, small] = pair();
        for limits in [&large, &small] {
            let mut subject = Subject::default();
            assert_eq!(subject.check(&large, None, NOW, Ask::new(20, 1)).granted, 20);
            let earlier = NOW.since(Micros::from_secs(30 * 86_400));
            let outcome = subject.check(limits, None, earlier, Ask::new(1, 1));
            let wait = outcome.limits[0].reset;
            assert!(wait <= Micros::from_secs(21 * 60), "{limits:?}: {wait:?}");
        }
    }
}
