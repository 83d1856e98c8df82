//! Stand-in for the atom until it is merged: the parameters as the operator gave them.

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

/// A limit and its name in keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub limit: Limit,
}

/// The limits checked together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The limits.
    pub limits: Vec<NamedLimit>,
}

/// What one request is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whether it may pass.
    pub granted: bool,
    /// After being held this long.
    pub delay: Micros,
    /// Where each limit stands, in the plan's order.
    pub limits: Vec<Standing>,
}

/// Where one limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How many units are left.
    pub remaining: u64,
    /// When this limit would admit the request.
    pub retry_after: RetryAfter,
    /// How long until the whole quota is back.
    pub reset: Micros,
}

/// When a limit would admit a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// At once.
    Now,
    /// This long from now.
    After(Micros),
    /// Never.
    Never,
}
