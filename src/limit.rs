//! Stand-in for the algorithms until they are merged: the parameters as the operator gave them.
#![allow(missing_docs)]

use crate::time::Micros;

/// A limit's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// See the configuration.
    FixedWindow { limit: u64, window: Micros, first: bool },
    /// See the configuration.
    SlidingLog { limit: u64, window: Micros },
    /// See the configuration.
    SlidingWindow { limit: u64, window: Micros, precision: Micros },
    /// See the configuration.
    TokenBucket { capacity: u64, refill: u64, interval: Micros, stepwise: bool, overdraft: u64 },
    /// See the configuration.
    LeakyBucket { count: u64, per: Micros, burst: u64, max_delay: Micros },
    /// See the configuration.
    Concurrency { limit: u64, ttl: Micros },
}

/// When one more request of the same cost would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// At once.
    Now,
    /// This long from now.
    After(Micros),
    /// Never.
    Never,
}
