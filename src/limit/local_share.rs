// SPDX-License-Identifier: Apache-2.0
//! The local share of a limit: what one of several workers admits by itself while Redis is unavailable, so that all of
//! them together admit about the limit.

use super::{
    Concurrency, Distinct, LeakyBucket, Limit, MAX_WINDOW, Refill, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::time::Micros;

impl Limit {
    /// One of `workers` equal shares of this limit. Counts are divided and rounded down, but to 1 at least: with more
    /// workers than units, all of them together admit more than the limit, up to one unit each.
    #[must_use]
    pub fn local_share(&self, workers: u32) -> Self {
        let workers = u64::from(workers.max(1));
        let part = |count: u64| (count / workers).max(1);
        // A rate is divided by making its period longer, which is exact, unless that becomes too long.
        let slower = |count: u64, per: Micros| match per.0.checked_mul(workers) {
            Some(longer) if longer <= MAX_WINDOW.0 => (count, Micros(longer)),
            _ => (part(count), per),
        };
        let share = match self {
            Self::FixedWindow(of) => of.with_limit(part(of.limit())).map(Self::from),
            Self::SlidingLog(of) => SlidingLog::new(part(of.limit()), of.window()).map(Self::from),
            Self::SlidingWindow(of) => {
                SlidingWindow::new(part(of.limit()), of.window(), of.precision()).map(Self::from)
            }
            Self::TokenBucket(of) => {
                // A step that is larger than the share would not fit into it.
                let is_cut = of.how() == Refill::Stepwise && of.refill() > part(of.capacity());
                let (refill, interval) = match is_cut {
                    true => {
                        // Rounded up, it comes less often.
                        let steps = workers.div_ceil(of.refill().max(1));
                        let interval = of.interval().0.saturating_mul(steps).min(MAX_WINDOW.0);
                        (part(of.refill()), Micros(interval))
                    }
                    false => slower(of.refill(), of.interval()),
                };
                TokenBucket::new(part(of.capacity()), refill, interval, of.how(), of.overdraft() / workers)
                    .map(Self::from)
            }
            Self::LeakyBucket(of) => {
                let (rate, per) = slower(of.rate(), of.per());
                LeakyBucket::new(rate, per, part(of.burst()), of.max_delay()).map(Self::from)
            }
            Self::Concurrency(of) => Concurrency::new(part(of.limit()), of.ttl()).map(Self::from),
            Self::Distinct(of) => Distinct::new(part(of.limit()), of.window()).map(Self::from),
        };
        // A share is smaller than the limit, so its parameters are in bounds. The whole limit is the next best answer.
        let share = share.map_or_else(|_| self.clone(), |share| share.with_debt(self.debt()));
        match (self, share) {
            // Last, because it is a bound that everything else moves.
            (Self::LeakyBucket(of), Self::LeakyBucket(share)) => share.with_spare(of.spare()).into(),
            (_, share) => share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Align, Ask, FixedWindow, Subject};
    use super::*;

    /// A state that larger limits count in, too, is read as theirs by a share as well.
    #[test]
    fn a_share_knows_the_larger_limits_of_its_state() {
        let second = Micros::from_secs(1);
        let leaky = |burst| Limit::from(LeakyBucket::new(1, second, burst, Micros::ZERO).unwrap());
        let window = FixedWindow::new(100, second, Align::Clock).map(Limit::from).unwrap();
        let rows = [(leaky(10), leaky(10).sharing(&leaky(1_000))), (window.clone(), window.up_to(50_000))];
        for (alone, sharing) in rows {
            assert_ne!(alone, sharing);
            assert_ne!(alone.local_share(2), sharing.local_share(2), "{alone:?}");
        }
    }

    #[test]
    fn shares_add_up_to_about_the_limit() {
        let day = Micros::from_secs(86_400);
        let limits: [Limit; 4] = [
            LeakyBucket::new(1, day, 100, Micros::ZERO).unwrap().into(),
            TokenBucket::new(100, 1, day, Refill::Continuous, 0).unwrap().into(),
            SlidingLog::new(100, day).unwrap().into(),
            Concurrency::new(100, day).unwrap().into(),
        ];
        for limit in limits {
            for (workers, expected) in [(0, 100), (1, 100), (3, 33), (8, 12), (1_000, 1)] {
                let share = [limit.local_share(workers)];
                let outcome = Subject::default().check(
                    &share,
                    None,
                    Micros::from_secs(1_700_000_000),
                    Ask::new(1_000, 1),
                );
                assert_eq!(outcome.granted, expected, "{limit:?} among {workers}");
            }
        }
    }

    #[test]
    fn a_share_of_a_rate_is_exact() {
        let limit = Limit::from(LeakyBucket::new(10, Micros::from_secs(1), 10, Micros::ZERO).unwrap());
        let expected = LeakyBucket::new(10, Micros::from_secs(4), 2, Micros::ZERO).unwrap();
        assert_eq!(limit.local_share(4), expected.into());
        let stepwise = |capacity, refill, secs| {
            let interval = Micros::from_secs(secs);
            Limit::from(TokenBucket::new(capacity, refill, interval, Refill::Stepwise, 0).unwrap())
        };
        let rows = [
            // All of a step has to fit into the share.
            (stepwise(100, 100, 1), stepwise(25, 25, 1)),
            (stepwise(100, 26, 1), stepwise(25, 6, 1)),
            (stepwise(100, 25, 1), stepwise(25, 25, 4)),
            (stepwise(100, 5, 1), stepwise(25, 5, 4)),
            (stepwise(3, 3, 1), stepwise(1, 1, 2)),
            (stepwise(5, 2, 3600), stepwise(1, 1, 7200)),
        ];
        for (whole, share) in rows {
            assert_eq!(whole.local_share(4), share);
        }
    }

    /// Whatever is rounded: with `regions: share` all regions together must not get more than the limit.
    #[test]
    fn shares_of_steps_bring_no_more_than_the_whole() {
        for (capacity, refill) in (1..=24).flat_map(|capacity| (1..=24).map(move |refill| (capacity, refill)))
        {
            let hour = Micros::from_secs(3_600);
            let whole = TokenBucket::new(capacity, refill, hour, Refill::Stepwise, 0).unwrap();
            for workers in 1..=16_u32 {
                let Limit::TokenBucket(share) = Limit::from(whole.clone()).local_share(workers) else {
                    panic!("another algorithm")
                };
                let all = u64::from(workers) * share.refill() * hour.0;
                assert!(
                    all <= refill * share.interval().0,
                    "{capacity}, {refill} among {workers}: {share:?}"
                );
            }
        }
    }
}
