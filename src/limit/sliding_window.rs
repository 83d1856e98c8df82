// SPDX-License-Identifier: Apache-2.0
//! `sliding_window`: about `limit` units in any window, in little memory. Units at microseconds.
//!
//! Units are counted in slots, which begin at multiples of `precision` since the epoch. The window covers the
//! current slot, the whole slots before it, and a part of one more; that one counts in proportion to the part,
//! as if its units had come evenly. The proportion is compared as a fraction, unrounded. With `precision` =
//! `window` this is the well-known two-window counter
//! (<https://blog.cloudflare.com/counting-things-a-lot-of-different-things/>).

use super::subject::{Algorithm, Receipt};
use super::{Ask, Invalid, LimitOutcome, RetryAfter, debt, fits, units, window};
use crate::time::Micros;

/// The most slots in a window.
pub const MAX_SLOTS: u64 = 100;

/// A limit, a window and the slots in which it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    window: Micros,
    slot: Micros,
    slots: usize,
    /// See [`Limit::debt`](super::Limit::debt).
    pub(super) debt: u32,
}

/// Units in each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotsState {
    /// The start of the newest slot.
    start: u64,
    /// Newest first; the last is the partly covered one. Another number of slots is another window's state, or none.
    counts: Vec<u64>,
}

impl SlidingWindow {
    /// At most `limit` units in any window, by count of slots of length `precision`.
    ///
    /// Requests that come evenly within each slot are limited exactly. At worst, when a slot's units all came
    /// at its end, one window may see the limit and one slot's units more.
    ///
    /// # Errors
    /// [`Invalid`] unless `limit` is 1 to 10^12, `window` 1 ms to 366 days, and `precision` divides the
    /// window into 1 to 100 slots.
    pub fn new(limit: u64, window: Micros, precision: Micros) -> Result<Self, Invalid> {
        let (limit, window) = (units("limit", limit, 1)?, self::window("window", window)?);
        let slots =
            window.0.checked_div(precision.0).filter(|slots| slots.saturating_mul(precision.0) == window.0);
        match slots
            .filter(|slots| (1..=MAX_SLOTS).contains(slots))
            .and_then(|slots| usize::try_from(slots).ok())
        {
            Some(slots) => Ok(Self { limit, window, slot: precision, slots, debt: 0 }),
            None => Err(Invalid {
                parameter: "precision",
                value: precision.to_string(),
                allowed: format!("the window divided by a whole number from 1 to {MAX_SLOTS}"),
            }),
        }
    }

    /// Units in any window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of the window.
    #[must_use]
    pub const fn window(&self) -> Micros {
        self.window
    }

    /// The length of a slot.
    #[must_use]
    pub const fn precision(&self) -> Micros {
        self.slot
    }

    /// The slots as of now; whether the state must be corrected even if nothing is granted.
    fn view(&self, state: &SlotsState, now: Micros) -> (SlotsState, bool) {
        let slot = self.slot.0.max(1);
        let start = now.0 - now.0 % slot;
        let mut view = SlotsState { start, counts: vec![0; self.slots + 1] };
        if state.counts.len() != view.counts.len() || !state.start.is_multiple_of(slot) {
            return (view, false);
        }
        let passed = usize::try_from(start.saturating_sub(state.start) / slot).unwrap_or(usize::MAX);
        for (count, &before) in view.counts.iter_mut().skip(passed).zip(&state.counts) {
            *count = before;
        }
        if state.start > start {
            // The clock went back: the newest slot counts as the next one, because the current one may end in a
            // moment.
            view.start = start.saturating_add(slot);
        }
        (view, state.start > start.saturating_add(slot))
    }

    /// The units of a slot that count, if `covered` microseconds of it are in the window; rounded up.
    fn part(&self, count: u64, covered: u64) -> u64 {
        let part = (u128::from(count) * u128::from(covered)).div_ceil(u128::from(self.slot.0.max(1)));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    fn left(&self, view: &SlotsState, now: Micros) -> i64 {
        let Some((&oldest, whole)) = view.counts.split_last() else { return 0 };
        let covered = self.slot.0 - now.0.saturating_sub(view.start).min(self.slot.0);
        let used = whole.iter().fold(self.part(oldest, covered), |sum, &count| sum.saturating_add(count));
        0i64.saturating_add_unsigned(self.limit).saturating_sub_unsigned(used)
    }

    /// The first microsecond at which `need` units are left. The oldest slots leave whole. If part of a slot is enough, the time is inside
    /// that slot.
    fn free(&self, view: &SlotsState, need: u64) -> Micros {
        let spare = self.limit.saturating_sub(need);
        let mut slide = Micros(view.start);
        let mut whole = view.counts.iter().fold(0, |sum: u64, &count| sum.saturating_add(count));
        for &oldest in view.counts.iter().rev() {
            whole = whole.saturating_sub(oldest);
            if let Some(spare) = spare.checked_sub(whole) {
                if spare < oldest {
                    let stays = u128::from(spare) * u128::from(self.slot.0) / u128::from(oldest.max(1));
                    slide = slide.plus(self.slot).since(Micros(u64::try_from(stays).unwrap_or(0)));
                }
                return slide;
            }
            slide = slide.plus(self.slot);
        }
        slide
    }
}

impl Algorithm<SlotsState> for SlidingWindow {
    fn can(&self, state: &mut SlotsState, now: Micros, ask: Ask) -> u32 {
        ask.fit(self.left(&self.view(state, now).0, now), ask.need(self.limit))
    }

    fn take(&self, state: &mut SlotsState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (mut view, changed) = self.view(state, now);
        if let Some(newest) = view.counts.first_mut() {
            *newest = newest.saturating_add(ask.units(granted));
        }
        let remaining = self.left(&view, now);
        let retry_after = match ask.need(self.limit) {
            need if need > self.limit => RetryAfter::Never,
            need if fits(remaining, need) => RetryAfter::Now,
            need => RetryAfter::after(self.free(&view, need).since(now).0),
        };
        let reset = match view.counts.iter().position(|&count| count > 0) {
            Some(place) => {
                let slots = u64::try_from(self.slots + 1 - place).unwrap_or(u64::MAX);
                Micros(self.slot.0.saturating_mul(slots)).plus(Micros(view.start)).since(now)
            }
            None => Micros::ZERO,
        };
        if (changed && reset > Micros::ZERO) || ask.units(granted) > 0 {
            *state = view;
        }
        LimitOutcome { remaining, retry_after, reset, ..LimitOutcome::default() }
    }

    /// Refunds to the slot of the time of the charge.
    fn settle(&self, state: &mut SlotsState, now: Micros, units: i64, receipt: Receipt) {
        let (mut view, mut changed) = self.view(state, now);
        let slot = self.slot.0.max(1);
        if let Ok(units) = u64::try_from(units) {
            let debt = debt::units(self.limit, self.debt);
            let units = debt::charged(units, self.left(&view, now), debt);
            if let Some(newest) = view.counts.first_mut() {
                (*newest, changed) = (newest.saturating_add(units), changed || units > 0);
            }
        } else if let Some(age) = view.start.checked_sub(receipt.at.0 - receipt.at.0 % slot) {
            let place = usize::try_from(age / slot).unwrap_or(usize::MAX);
            if let Some(count) = view.counts.get_mut(place) {
                (*count, changed) = (count.saturating_sub(units.unsigned_abs()), changed || *count > 0);
            }
        }
        if changed {
            *state = if view.counts.iter().any(|&count| count > 0) { view } else { SlotsState::default() };
        }
    }
}
