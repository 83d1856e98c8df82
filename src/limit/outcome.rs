// SPDX-License-Identifier: Apache-2.0
//! A check of several limits: the question ([`Ask`]), and its [`Outcome`], with a [`LimitOutcome`] for each limit. Counts are
//! units or requests as said; times are microseconds.

use std::rc::Rc;

use super::{Limit, Member};
use crate::inline_vec::InlineVec;
use crate::time::Micros;

/// A check with a request count: may `requests` requests pass at a cost of `cost` units each?
///
/// Waiting requests of one subject share a check; as many as fit are granted. A cost of 0 asks without charging: such a request passes when
/// one of cost 1 would. With 0 requests, the check only says what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The number of requests.
    pub requests: u32,
    /// The cost of each, in units. `concurrency` ignores it: each request needs one permit. For `distinct`, a request of cost 0 adds no value.
    pub cost: u64,
    /// The percentage of each limit that is kept for other requests, at most 99: see [`Limit::kept`].
    pub kept_percent: u8,
    /// The value of all of them that `distinct` limits count.
    pub member: Member,
}

impl Ask {
    /// A check for this many requests of this cost. Nothing is kept for others.
    #[must_use]
    pub const fn new(requests: u32, cost: u64) -> Self {
        Self { requests, cost, kept_percent: 0, member: Member::NONE }
    }

    /// The units that must be left for one request in a limit of this quota: its cost, but at least one unit, and what is kept for other
    /// requests.
    pub(super) fn need(self, quota: u64) -> u64 {
        self.cost.max(1).saturating_add(self.kept(quota))
    }

    /// The same for a bucket with an overdraft. The request may use the overdraft, unless units are kept for other requests.
    pub(super) fn need_with_overdraft(self, quota: u64, overdraft: u64) -> u64 {
        match self.kept(quota) {
            0 => self.cost.saturating_sub(overdraft).max(1),
            _ => self.need(quota),
        }
    }

    /// The units of a limit of this quota that are kept for other requests: rounded up, but one unit is for all requests.
    pub(crate) fn kept(self, quota: u64) -> u64 {
        match self.kept_percent.into() {
            // Most limits keep nothing, and then this costs nothing.
            0 => 0,
            percent => quota.saturating_mul(percent).div_ceil(100).min(quota.saturating_sub(1)),
        }
    }

    /// The units of a limit of this quota that such requests may use.
    #[must_use]
    pub fn open(self, quota: u64) -> u64 {
        quota.saturating_sub(self.kept(quota))
    }

    /// The number of requests that pass with `left` units, if each needs `need` and is charged its cost.
    pub(super) fn fit(self, left: i64, need: u64) -> u32 {
        let Some(spare) = u64::try_from(left).ok().and_then(|left| left.checked_sub(need)) else { return 0 };
        match spare.checked_div(self.cost) {
            Some(more) => self.requests.min(u32::try_from(more.saturating_add(1)).unwrap_or(u32::MAX)),
            None => self.requests,
        }
    }

    /// The cost of `requests` requests.
    pub(super) fn units(self, requests: u32) -> u64 {
        u64::from(requests).saturating_mul(self.cost)
    }

    /// The same requests to a limit that counts requests.
    pub(super) const fn in_flight(self) -> Self {
        Self { cost: 1, ..self }
    }
}

/// The time until one more request of the same cost would pass, if no other request comes. It would be denied at every microsecond
/// before, and granted at that time.
///
/// Of several limits the greatest counts. So a request that can never pass one limit can never pass, and if one time is
/// unknown, the time is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    /// It would pass now.
    #[default]
    Now,
    /// It would pass after this span.
    After(Micros),
    /// It may pass at a time that is not known: the client gets no time.
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
    /// Units left; of a concurrency limit, permits left; of a distinct limit, values. Negative: an overdraft, or used when the limit was larger.
    pub remaining: i64,
    /// The time until one more request would pass this limit.
    pub retry_after: RetryAfter,
    /// The time until the limit is full again, if no other request comes.
    pub reset: Micros,
    /// Microseconds until the first granted request may pass. Negative: it could have passed that much earlier, and the requests after it
    /// may use that time. Always 0 without a `max_delay`.
    pub first_delay: i64,
    /// The time at which the permits of a concurrency limit expire. The release names them by it. Otherwise 0.
    pub permit_expiry: u64,
    /// The total that this limit had refunded until then, modulo 2^52. The refund of a grant compares it with the total at that time: the
    /// difference was refunded in between. In microseconds for a bucket that refills evenly, in tokens for one that refills in steps. For
    /// other limits 0, because they refund to the window that was charged. For a distinct limit it names the value that the check has added,
    /// and is 0 if it has added none, or for several requests.
    pub refunded: u64,
}

/// The grant of a policy's limits to one subject. Later it is the receipt for refunds and releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The number of requests that pass: as many as all limits can grant. All limits are charged for exactly these.
    pub granted: u32,
    /// The store's time.
    pub at: Micros,
    /// The state of each limit, in the order of the policy.
    pub limits: InlineVec<LimitOutcome>,
    /// The subject's own limits, if it has any. Few have: an outcome is moved often, so it is kept small.
    pub own: Option<Rc<Vec<Limit>>>,
    /// The remaining time of the subject's ban; `Now` if there is none, `Never` if it lasts until an operator lifts it.
    pub ban: RetryAfter,
}

impl Outcome {
    /// Nothing was granted, ever. A charge that refers to no grant refers to this.
    pub const NONE: Self =
        Self { granted: 0, at: Micros::ZERO, limits: InlineVec::new(), own: None, ban: RetryAfter::Now };
}

/// Permits of one concurrency limit, to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// The limit's place in its policy.
    pub limit: usize,
    /// The time at which they expire, which names them: [`LimitOutcome::permit_expiry`].
    pub expiry: u64,
    /// Their number.
    pub count: u32,
}

impl Outcome {
    /// The permits that this many of the granted requests hold in the policy's concurrency limits.
    pub fn permits(&self, count: u32) -> impl Iterator<Item = Permits> {
        let held = self.limits.iter().enumerate().filter(|(_, answer)| answer.permit_expiry > 0);
        held.map(move |(limit, answer)| Permits { limit, expiry: answer.permit_expiry, count })
    }

    /// The same with new expiries of its permits.
    #[must_use]
    pub fn with_expiries(&self, expiries: impl IntoIterator<Item = u64>) -> Self {
        let mut renewed = self.clone();
        let permits = renewed.limits.iter_mut().filter(|answer| answer.permit_expiry > 0);
        permits.zip(expiries).for_each(|(answer, expiry)| answer.permit_expiry = expiry);
        renewed
    }

    /// The time until one more request would pass all limits and the ban.
    #[must_use]
    pub fn retry_after(&self) -> RetryAfter {
        self.limits.iter().map(|answer| answer.retry_after).fold(self.ban, RetryAfter::max)
    }
}

/// The share of one request in the answer to a check for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allotment {
    /// True if it may pass.
    pub granted: bool,
    /// The time for which it is held before it passes. Zero if it may not pass.
    pub delay: Micros,
}

impl Outcome {
    /// The limits in force: the subject's own, or the `configured` ones.
    #[must_use]
    pub fn in_force<'a>(&'a self, configured: &'a [Limit]) -> &'a [Limit] {
        self.own.as_ref().map_or(configured, |own| own)
    }

    /// Returns the share of request `index` (from 0, in the order of arrival) in this answer.
    #[must_use]
    pub fn allotment(&self, limits: &[Limit], index: u32, ask: Ask) -> Allotment {
        let granted = index < self.granted;
        let mut delay = 0;
        if granted {
            for (limit, answer) in self.in_force(limits).iter().zip(&self.limits) {
                if let Limit::LeakyBucket(bucket) = limit {
                    delay = delay
                        .max(answer.first_delay.saturating_add_unsigned(bucket.spacing(index, ask.cost)));
                }
            }
        }
        let delay = Micros(u64::try_from(delay).unwrap_or(0));
        Allotment { granted, delay }
    }

    /// Returns what limit `limit` (its place in the policy) has left after request `index`, for such requests: less after each granted one.
    #[must_use]
    pub fn remaining(&self, limits: &[Limit], limit: usize, index: u32, ask: Ask) -> u64 {
        let Some((of, answer)) = self.in_force(limits).get(limit).zip(self.limits.get(limit)) else {
            return 0;
        };
        let later = self.granted.saturating_sub(index.saturating_add(1));
        let taken = u64::from(later).saturating_mul(of.cost(ask));
        let left = answer.remaining.saturating_add_unsigned(taken);
        u64::try_from(left.saturating_sub_unsigned(of.kept(ask))).unwrap_or(0)
    }
}
