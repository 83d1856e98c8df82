// SPDX-License-Identifier: Apache-2.0
//! The decision of one policy's limits about one request, and the source of that decision.
//!
//! ```text
//!  limit::Outcome   of several requests with one check
//!        │ Decision::new, for the request of one index
//!        ▼
//!  Decision         granted or denied, the delay, and the LimitStatus of each limit
//!        │ with its source
//!        ▼
//!  CheckAnswer      what `response` makes a verdict of
//! ```

use std::rc::Rc;

use crate::inline_vec::InlineVec;
use crate::limit::{Ask, Limit, LimitOutcome, Outcome, RetryAfter};
use crate::time::Micros;

/// The decision of one policy's limits about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// True if the request may pass.
    pub granted: bool,
    /// The time for which it is held before it passes; zero if it may not pass.
    pub delay: Micros,
    /// The status of each limit, in the plan's order.
    pub limits: InlineVec<LimitStatus>,
    /// The remaining time of a ban, if one denies the request; otherwise `Now`.
    pub ban: RetryAfter,
    /// The subject's own limits, if an override replaces the configured ones.
    pub own: Option<Rc<Vec<Limit>>>,
    /// The time of the decision, by the clock of the store or of the worker that made it.
    pub at: Micros,
}

impl Decision {
    /// The decision about request `index` of those asked about together; see [`Outcome::allotment`].
    #[must_use]
    pub fn new(outcome: &Outcome, limits: &[Limit], index: u32, ask: Ask) -> Self {
        let allotment = outcome.allotment(limits, index, ask);
        let is_last = index.saturating_add(1) >= outcome.granted;
        let status = |(place, of): (usize, &LimitOutcome)| {
            let remaining = outcome.remaining(limits, place, index, ask);
            let limit = outcome.in_force(limits).get(place);
            LimitStatus {
                remaining,
                // A grant to the next request of the batch would have been available to this one as well.
                retry_after: if is_last { of.retry_after } else { RetryAfter::Now },
                reset: of.reset,
                window: limit.map_or(Micros::ZERO, |limit| {
                    limit.effective_window(remaining, limit.kept(ask), of, outcome.at)
                }),
            }
        };
        let limits = outcome.limits.iter().enumerate().map(status).collect();
        // The request that begins a ban may have been asked about together with others that are granted.
        let ban = if allotment.granted { RetryAfter::Now } else { outcome.ban };
        Self {
            granted: allotment.granted,
            delay: allotment.delay,
            limits,
            ban,
            own: outcome.own.clone(),
            at: outcome.at,
        }
    }

    /// The decision by the subject's ban alone.
    #[must_use]
    pub fn by_ban(outcome: &Outcome) -> Self {
        let (granted, limits) = (outcome.ban == RetryAfter::Now, InlineVec::new());
        Self { granted, delay: Micros::ZERO, limits, ban: outcome.ban, own: None, at: outcome.at }
    }

    /// The limits that deny the next request do so for this long at least.
    pub fn denies_for(&mut self, span: Micros) {
        for status in self.limits.iter_mut().filter(|status| status.retry_after != RetryAfter::Now) {
            status.retry_after = status.retry_after.max(RetryAfter::After(span));
        }
    }

    /// True if a ban denies the request.
    #[must_use]
    pub fn is_banned(&self) -> bool {
        self.ban != RetryAfter::Now
    }
}

/// The status of one limit at the moment that it decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// The units that were left for such requests.
    pub remaining: u64,
    /// The time until one more request of the same cost would pass.
    pub retry_after: RetryAfter,
    /// The time until the limit is full again.
    pub reset: Micros,
    /// Within which time no more than what is left may be taken; see [`Limit::effective_window`].
    pub window: Micros,
}

/// The answer to one check, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckAnswer {
    /// The store decided.
    Store(Decision),
    /// A lease of this worker covered the request.
    Lease(Decision),
    /// An earlier answer of the store denies the subject until a time that has not come.
    DeniedUntil(Decision),
    /// The store did not answer: this worker decided by its share of the limits.
    Local(Decision),
    /// The store did not answer, and nothing else decided: the policy's `on_failure` does.
    Unavailable,
}

impl CheckAnswer {
    /// The decision; `None` when there is none.
    #[must_use]
    pub const fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Store(decision)
            | Self::Lease(decision)
            | Self::DeniedUntil(decision)
            | Self::Local(decision) => Some(decision),
            Self::Unavailable => None,
        }
    }

    /// The source of the answer: `redis`, `lease`, `denied-until` or `fallback`.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        match self {
            Self::Store(_) => "redis",
            Self::Lease(_) => "lease",
            Self::DeniedUntil(_) => "denied-until",
            Self::Local(_) | Self::Unavailable => "fallback",
        }
    }
}
