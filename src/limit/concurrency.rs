//! `concurrency`: at most `limit` requests in flight. Places at microseconds; what a request costs does not
//! matter.
//!
//! Each request holds a place until it is released, or until its lease ends, so that a proxy that crashed
//! holds nothing for long. Leases that end in the same sixteenth of a ttl end together: what is remembered is
//! a few numbers, however many requests are in flight.

use std::collections::BTreeMap;

use super::subject::{Algorithm, Paid};
use super::{Ask, Invalid, LimitOutcome, RetryAfter, fits, units, window};
use crate::time::Micros;

/// A limit and how long a lease lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    ttl: Micros,
    slot: u64,
}

/// Places by the end of their lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeasesState {
    places: BTreeMap<u64, u64>,
}

impl Concurrency {
    /// At most `limit` requests in flight. A lease lasts at least `ttl`, and at most a sixteenth longer; it
    /// should be longer than any request takes, because a request that outlives it no longer counts.
    ///
    /// # Errors
    /// [`Invalid`] unless `limit` is 1 to 10^12 and `ttl` 1 ms to 366 days.
    pub fn new(limit: u64, ttl: Micros) -> Result<Self, Invalid> {
        let (limit, ttl) = (units("limit", limit, 1)?, window("ttl", ttl)?);
        Ok(Self { limit, ttl, slot: ttl.0 / 16 })
    }

    /// Requests in flight.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a lease lasts at least.
    #[must_use]
    pub const fn ttl(&self) -> Micros {
        self.ttl
    }

    /// Leases end at multiples of this many microseconds.
    pub(crate) const fn slot(&self) -> u64 {
        self.slot
    }

    /// When a lease taken now ends.
    fn lease(&self, now: Micros) -> u64 {
        now.plus(self.ttl).0.div_ceil(self.slot.max(1)).saturating_mul(self.slot)
    }

    /// The leases that have not ended; whether the state must be corrected even if nothing is granted.
    fn view(&self, state: &LeasesState, now: Micros) -> (LeasesState, bool) {
        let (lease, mut view, mut changed) = (self.lease(now), LeasesState::default(), false);
        for (&till, &places) in state.places.range(now.0.saturating_add(1)..) {
            // The clock went back by more than a ttl: these end with the leases of now.
            let ahead = till > lease.saturating_add(self.ttl.0);
            changed |= ahead;
            let all = view.places.entry(if ahead { lease } else { till }).or_default();
            *all = all.saturating_add(places);
        }
        (view, changed)
    }

    fn left(&self, view: &LeasesState) -> i64 {
        let used = view.places.values().fold(0, |sum: u64, &places| sum.saturating_add(places));
        0i64.saturating_add_unsigned(self.limit).saturating_sub_unsigned(used)
    }

    /// Gives back places of leases that end at `lease`; what is not leased is not given back.
    pub(super) fn release(state: &mut LeasesState, lease: u64, requests: u32) {
        if let Some(places) = state.places.get_mut(&lease) {
            *places = places.saturating_sub(u64::from(requests));
        }
        state.places.retain(|_, places| *places > 0);
    }
}

impl Algorithm<LeasesState> for Concurrency {
    fn can(&self, state: &mut LeasesState, now: Micros, ask: Ask) -> u32 {
        ask.in_flight().fit(self.left(&self.view(state, now).0), 1)
    }

    fn take(&self, state: &mut LeasesState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (mut view, changed) = self.view(state, now);
        let lease = if granted > 0 { self.lease(now) } else { 0 };
        if granted > 0 {
            let places = view.places.entry(lease).or_default();
            *places = places.saturating_add(ask.in_flight().units(granted));
        }
        let remaining = self.left(&view);
        let retry_after = if remaining > 0 {
            RetryAfter::Now
        } else {
            let mut free = remaining;
            let enough = view.places.iter().find(|(_, places)| {
                free = free.saturating_add_unsigned(**places);
                fits(free, 1)
            });
            enough.map_or(RetryAfter::Now, |(till, _)| RetryAfter::after(till.saturating_sub(now.0)))
        };
        let reset = view.places.last_key_value().map_or(Micros::ZERO, |(&till, _)| Micros(till).since(now));
        if changed || granted > 0 {
            *state = view;
        }
        LimitOutcome { remaining, retry_after, reset, lease, ..LimitOutcome::default() }
    }

    /// Leaves places alone: they are released, not settled.
    fn settle(&self, _: &mut LeasesState, _: Micros, _: i64, _: Paid) {}
}
