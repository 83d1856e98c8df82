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
        Ok(Self { rate, per, burst, max_delay, bucket })
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
