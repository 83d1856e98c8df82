// SPDX-License-Identifier: Apache-2.0
//! `concurrency`: at most `limit` requests in flight. Each takes one permit, whatever it costs.
//!
//! A request holds its permit until the permit is released or expires, so a proxy that crashed holds none for long.
//! Permits that expire in the same sixteenth of a ttl expire together: the state is a few numbers, however many
//! requests are in flight. Expiries are microseconds since the epoch.

use super::subject::{Algorithm, Receipt};
use super::{Ask, Invalid, LimitOutcome, MAX_WINDOW, RetryAfter, fits, units, window};
use crate::sorted_map::SortedMap;
use crate::time::Micros;

/// The most expiries of one subject. One ttl has up to 17 at once.
const MAX_EXPIRIES: usize = 64;

/// No permit lives longer: 366 days and a sixteenth, in microseconds.
const LONGEST: u64 = MAX_WINDOW.0 / 16 * 17;

/// A limit, and how long a permit lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    ttl: Micros,
    slot: u64,
}

/// The number of permits that are held, by their expiry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermitsState {
    permits: SortedMap<u64, u64>,
}

impl PermitsState {
    fn add(&mut self, expiry: u64, count: u64) {
        match self.permits.get_mut(&expiry) {
            Some(held) => *held = held.saturating_add(count),
            None => self.permits.insert(expiry, count),
        }
    }
}

impl Concurrency {
    /// At most `limit` requests in flight. A permit lives at least `ttl`, and at most a sixteenth longer. The ttl should
    /// be longer than any request takes, because a request that outlives its permit no longer counts.
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

    /// The minimum lifetime of a permit.
    #[must_use]
    pub const fn ttl(&self) -> Micros {
        self.ttl
    }

    /// Permits expire at multiples of this many microseconds.
    pub(crate) const fn slot(&self) -> u64 {
        self.slot
    }

    /// The time at which a permit that is granted now expires.
    fn expiry(&self, now: Micros) -> u64 {
        now.plus(self.ttl).0.div_ceil(self.slot.max(1)).saturating_mul(self.slot)
    }

    /// The permits that have not expired; whether the state must be corrected even if nothing is granted. Permits of another ttl, and from
    /// before the clock went back, keep their expiry.
    fn view(&self, state: &PermitsState, now: Micros) -> (PermitsState, bool) {
        let (expiry, mut view, mut changed) = (self.expiry(now), PermitsState::default(), false);
        for &(ends, count) in state.permits.iter().filter(|(ends, _)| *ends > now.0) {
            let ahead = ends > now.0.saturating_add(LONGEST);
            changed |= ahead;
            view.add(if ahead { expiry } else { ends }, count);
        }
        (view, changed)
    }

    /// The permits that are left for requests of now.
    fn left(&self, view: &PermitsState, now: Micros) -> i64 {
        let used = view.permits.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
        let left = 0i64.saturating_add_unsigned(self.limit).saturating_sub_unsigned(used);
        let expiry = self.expiry(now);
        let is_full =
            view.permits.len() >= MAX_EXPIRIES && view.permits.iter().all(|(ends, _)| *ends != expiry);
        if is_full { left.min(0) } else { left }
    }

    /// Releases up to `count` permits that expire at `expiry`.
    pub(super) fn release(state: &mut PermitsState, expiry: u64, count: u32) {
        if let Some(held) = state.permits.get_mut(&expiry) {
            *held = held.saturating_sub(u64::from(count));
        }
        state.permits.retain(|held| *held > 0);
    }

    /// Renews `count` permits that expire at `expiry`, as if requests had taken them now. Their requests still run: they get permits, also
    /// if the old ones have expired, and if the limit is exceeded then. Returns the new expiry.
    pub(super) fn renew(&self, state: &mut PermitsState, (expiry, count): (u64, u32), now: Micros) -> u64 {
        let until = self.expiry(now);
        let mut renewed = PermitsState::default();
        for &(ends, held) in state.permits.iter().filter(|(ends, _)| *ends > now.0) {
            let left = if ends == expiry { held.saturating_sub(count.into()) } else { held };
            if left > 0 {
                renewed.add(ends, left);
            }
        }
        let has_room =
            renewed.permits.len() < MAX_EXPIRIES || renewed.permits.iter().any(|(ends, _)| *ends == until);
        if !has_room {
            return expiry;
        }
        renewed.add(until, count.into());
        *state = renewed;
        until
    }
}

impl Algorithm<PermitsState> for Concurrency {
    fn can(&self, state: &mut PermitsState, now: Micros, ask: Ask) -> u32 {
        let ask = ask.in_flight();
        ask.fit(self.left(&self.view(state, now).0, now), ask.need(self.limit))
    }

    fn take(&self, state: &mut PermitsState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (mut view, changed) = self.view(state, now);
        let mut permit_expiry = 0;
        if granted > 0 {
            permit_expiry = self.expiry(now);
            view.add(permit_expiry, ask.in_flight().units(granted));
        }
        let remaining = self.left(&view, now);
        let need = ask.in_flight().need(self.limit);
        let retry_after = if fits(remaining, need) {
            RetryAfter::Now
        } else {
            let mut free = remaining;
            let enough = view.permits.iter().find(|(_, count)| {
                free = free.saturating_add_unsigned(*count);
                fits(free, need)
            });
            enough.map_or(RetryAfter::Now, |(ends, _)| RetryAfter::after(ends.saturating_sub(now.0)))
        };
        let reset = view.permits.last().map_or(Micros::ZERO, |(ends, _)| Micros(*ends).since(now));
        if changed || granted > 0 {
            *state = view;
        }
        LimitOutcome { remaining, retry_after, reset, permit_expiry, ..LimitOutcome::default() }
    }

    /// Does nothing: permits are released, not settled.
    fn settle(&self, _: &mut PermitsState, _: Micros, _: i64, _: Receipt) {}
}
