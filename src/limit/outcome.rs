//! A check of several limits: the question ([`Ask`]), and its [`Outcome`], with a [`LimitOutcome`] for each limit. Counts are
//! units or requests as said; times are microseconds.

use super::Limit;
use crate::time::Micros;

/// A question: may `requests` requests pass, each of which costs `cost` units?
///
/// Requests that wait for the same subject are asked for together; as many as fit are granted. A cost of 0
/// asks without taking: such a request passes when a request of cost 1 would. No request at all asks how
/// things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How many requests.
    pub requests: u32,
    /// What each costs, in units. Concurrency does not look at it: a request in flight is one request in
    /// flight.
    pub cost: u64,
}

impl Ask {
    /// What one request needs to pass: what it costs, but at least one unit.
    pub(super) const fn need(self) -> u64 {
        if self.cost == 0 { 1 } else { self.cost }
    }

    /// How many of the requests pass with `left` units, if each needs `need` and takes its cost.
    pub(super) fn fit(self, left: i64, need: u64) -> u32 {
        let Some(spare) = u64::try_from(left).ok().and_then(|left| left.checked_sub(need)) else { return 0 };
        match spare.checked_div(self.cost) {
            Some(more) => self.requests.min(u32::try_from(more.saturating_add(1)).unwrap_or(u32::MAX)),
            None => self.requests,
        }
    }

    /// What `requests` requests take.
    pub(super) fn units(self, requests: u32) -> u64 {
        u64::from(requests).saturating_mul(self.cost)
    }

    /// The same requests to a limit that counts requests.
    pub(super) const fn in_flight(self) -> Self {
        Self { cost: 1, ..self }
    }
}

/// When one more request of the same cost would pass, if nobody else asks: denied at every microsecond
/// before, granted at it.
///
/// The order is that of several limits together, which say the greatest: one that never passes makes the whole
/// never pass, and one that is not known makes the rest unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    /// It would pass now.
    #[default]
    Now,
    /// It would pass after this span.
    After(Micros),
    /// It may pass, at a time that nobody here knows: the client is told no time.
    Unknown,
    /// It costs more than the limit can ever give.
    Never,
}

impl RetryAfter {
    pub(crate) const fn after(span: u64) -> Self {
        if span == 0 { Self::Now } else { Self::After(Micros(span)) }
    }
}

/// The state of one limit after the grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitOutcome {
    /// Units left; requests left for a concurrency limit. Negative: taken in advance, or carried over from a
    /// larger limit.
    pub remaining: i64,
    /// When one more request would pass this limit.
    pub retry_after: RetryAfter,
    /// When the limit is whole again, if nobody asks.
    pub reset: Micros,
    /// Microseconds until the first request granted may go. Negative: it could have gone that much earlier,
    /// which is what the next ones may use up. Always 0 unless the limit has a `max_delay`.
    pub turn: i64,
    /// What names the places taken in a concurrency limit, to give them back. Otherwise 0.
    pub lease: u64,
    /// How much this limit had refunded until then, modulo 2^52: what is refunded between a grant and its own refund is
    /// told by the difference. Microseconds of a bucket that refills evenly, tokens of one that refills in steps; of other
    /// limits 0, because they refund to the very window that was charged.
    pub refunded: u64,
}

/// What the limits of a policy grant one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How many of the requests pass: the least that any limit could grant. All limits are charged for these
    /// and for no others.
    pub granted: u32,
    /// The store's time.
    pub at: Micros,
    /// The state of each limit, in the order of the policy.
    pub limits: Vec<LimitOutcome>,
    /// The subject's own limits, if it has any.
    pub own: Option<Vec<Limit>>,
}

/// Places taken in one concurrency limit, to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The limit's place in its policy.
    pub limit: usize,
    /// What names them, from [`LimitOutcome::lease`].
    pub lease: u64,
    /// How many.
    pub requests: u32,
}

impl Outcome {
    /// What `requests` of the requests granted here hold in the policy's concurrency limits.
    pub fn leases(&self, requests: u32) -> impl Iterator<Item = Lease> {
        let held = self.limits.iter().enumerate().filter(|(_, answer)| answer.lease > 0);
        held.map(move |(limit, answer)| Lease { limit, lease: answer.lease, requests })
    }

    /// When one more request would pass all limits.
    #[must_use]
    pub fn retry_after(&self) -> RetryAfter {
        self.limits.iter().map(|answer| answer.retry_after).max().unwrap_or(RetryAfter::Now)
    }
}

/// What one of several requests that were asked for together is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whether it may pass.
    pub granted: bool,
    /// How long to hold it before it passes. Zero when it may not.
    pub delay: Micros,
    /// When a request that may not pass should come again; for one that may, when the next may.
    pub retry_after: RetryAfter,
}

impl Outcome {
    /// The limits that were asked: the subject's own, or the `configured` ones.
    #[must_use]
    pub fn in_force<'a>(&'a self, configured: &'a [Limit]) -> &'a [Limit] {
        self.own.as_deref().unwrap_or(configured)
    }

    /// What request `index` (from 0, in the order they came) of those asked for together is told.
    #[must_use]
    pub fn share(&self, limits: &[Limit], index: u32, ask: Ask) -> Share {
        let granted = index < self.granted;
        let mut delay = 0;
        if granted {
            for (limit, answer) in self.in_force(limits).iter().zip(&self.limits) {
                if let Limit::LeakyBucket(bucket) = limit {
                    delay = delay.max(answer.turn.saturating_add_unsigned(bucket.spacing(index, ask.cost)));
                }
            }
        }
        let delay = Micros(u64::try_from(delay).unwrap_or(0));
        let retry_after =
            if index.saturating_add(1) < self.granted { RetryAfter::Now } else { self.retry_after() };
        Share { granted, delay, retry_after }
    }

    /// What limit `limit` (its place in the policy) had left when it was the turn of request `index`: each
    /// one granted sees less than the one before.
    #[must_use]
    pub fn remaining(&self, limits: &[Limit], limit: usize, index: u32, ask: Ask) -> u64 {
        let Some((of, answer)) = self.in_force(limits).get(limit).zip(self.limits.get(limit)) else {
            return 0;
        };
        let later = self.granted.saturating_sub(index.saturating_add(1));
        let taken = u64::from(later).saturating_mul(of.cost(ask));
        u64::try_from(answer.remaining.saturating_add_unsigned(taken)).unwrap_or(0)
    }
}
