// SPDX-License-Identifier: Apache-2.0
//! `fixed_window`: `limit` units in each window. Units at microseconds.
//!
//! Windows follow the clock (a minute begins at :00), the calendar (a month begins on its first day, or on another one) or the first request.
//! Either way up to twice the limit may pass around the end of a window.

use super::calendar::{Period, UtcOffset};
use super::subject::{Algorithm, Receipt};
use super::{Ask, Invalid, LimitOutcome, RetryAfter, debt, fits, units, window};
use crate::time::Micros;

/// The beginning of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Align {
    /// At multiples of the window since the Unix epoch, in UTC: a minute at :00, a day at 00:00.
    Clock,
    /// With the first request granted after the last window's end.
    First,
    /// With each such period of the calendar, at this offset from UTC.
    Calendar(Period, UtcOffset),
}

/// A limit, a window and where windows begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window: Micros,
    align: Align,
    /// The largest limit that counts in the same state, if that is known: see [`FixedWindow::up_to`].
    largest: u64,
    /// See [`Limit::debt`](super::Limit::debt).
    pub(super) debt: u32,
}

/// The window, and the units used in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowState {
    start: u64,
    used: u64,
}

/// The same in one number, `2 × start + used`, so that one `INCRBY` both reads and charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkState(u64);

/// The difference in one number between windows that begin a second apart.
const SECOND: u64 = 2_000_000;

impl FixedWindow {
    /// At most `limit` units in each window. Windows that follow the calendar have its length, whatever `window` is.
    ///
    /// # Errors
    /// [`Invalid`] unless `limit` is 1 to 10^12 and `window` 1 ms to 366 days.
    pub fn new(limit: u64, window: Micros, align: Align) -> Result<Self, Invalid> {
        let window = match align {
            Align::Calendar(period, _) => period.longest(),
            Align::Clock | Align::First => window,
        };
        let (limit, window) = (units("limit", limit, 1)?, self::window("window", window)?);
        Ok(Self { limit, window, align, largest: 0, debt: 0 })
    }

    /// The same with another limit.
    pub(super) fn with_limit(&self, limit: u64) -> Result<Self, Invalid> {
        Self::new(limit, self.window, self.align).map(|same| Self { largest: self.largest, ..same })
    }

    /// The same, if a limit up to this many times as large counts in the same state. The grants of that limit count as used.
    pub(super) fn up_to(&self, scale: u64) -> Self {
        let largest = self.largest.max(self.limit.saturating_mul(scale));
        Self { largest, ..self.clone() }
    }

    /// Units in each window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of a window; of months, the longest.
    #[must_use]
    pub const fn window(&self) -> Micros {
        self.window
    }

    /// The beginning of windows.
    #[must_use]
    pub const fn align(&self) -> Align {
        self.align
    }

    /// True if the state is one number: windows follow the clock, fewer than two units come a microsecond, and none are owed. In one
    /// number, more units would be those of a later window.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.align == Align::Clock && self.limit < self.window.0.saturating_mul(2) && self.debt == 0
    }

    /// The largest number that this window can have stored. A window of another length stores a larger one: lengths are mostly whole seconds,
    /// so it began at least a second earlier or later.
    pub(crate) fn most_marked(&self) -> u64 {
        self.limit.saturating_mul(64).max(self.largest).max(SECOND)
    }

    /// The beginning of the window that contains `now`. With `Align::First`, it is the beginning of a new window.
    fn start(&self, now: Micros) -> u64 {
        match self.align {
            Align::Clock => now.0 - now.0 % self.window.0.max(1),
            Align::First => now.0,
            Align::Calendar(period, offset) => period.around(now, offset).0,
        }
    }

    /// The end of the window that begins at `start`.
    pub(super) fn end(&self, start: u64) -> Micros {
        match self.align {
            Align::Clock | Align::First => Micros(start).plus(self.window),
            Align::Calendar(period, offset) => Micros(period.around(Micros(start), offset).1),
        }
    }

    /// The current window and the units used in it; whether the state must be corrected even if nothing is
    /// granted.
    fn view(&self, state: WindowState, now: Micros) -> (WindowState, bool) {
        let start = self.start(now);
        if state.start > now.0 {
            // The clock went back. With `first`, the used units count in a window that begins now; otherwise in
            // the next window, because the current one may end in a moment.
            let next = self.end(start).0;
            return match self.align {
                Align::Clock if state.start <= next => (state, false),
                Align::Clock => (WindowState { start: next, ..state }, true),
                Align::Calendar(..) => (WindowState { start: next, ..state }, state.start != next),
                Align::First => (WindowState { start, ..state }, true),
            };
        }
        let current = match self.align {
            Align::Clock | Align::Calendar(..) if state.start >= start => WindowState { start, ..state },
            Align::First if self.end(state.start) > now && state.used > 0 => state,
            _ => WindowState { start, used: 0 },
        };
        (current, false)
    }

    /// The same from one number.
    fn view_mark(&self, MarkState(mark): MarkState, now: Micros) -> (WindowState, bool) {
        let start = now.0 - now.0 % self.window.0.max(1);
        let range = self.window.0.saturating_mul(2).max(1);
        let ahead = mark.saturating_sub(start.saturating_mul(2));
        let used = ahead % range;
        if used > self.most_marked() {
            return (WindowState { start, used: 0 }, false);
        }
        let start = if ahead >= range { self.end(start).0 } else { start };
        (WindowState { start, used }, ahead >= range.saturating_mul(2))
    }

    fn left(&self, used: u64) -> i64 {
        0i64.saturating_add_unsigned(self.limit).saturating_sub_unsigned(used)
    }

    fn answer(&self, WindowState { start, used }: WindowState, now: Micros, ask: Ask) -> LimitOutcome {
        let (remaining, until_end) = (self.left(used), self.end(start).since(now));
        let retry_after = match ask.need(self.limit) {
            need if need > self.limit => RetryAfter::Never,
            need if fits(remaining, need) => RetryAfter::Now,
            _ => RetryAfter::after(until_end.0),
        };
        let reset = if used > 0 { until_end } else { Micros::ZERO };
        LimitOutcome { remaining, retry_after, reset, ..LimitOutcome::default() }
    }

    /// The units used after a charge, or after a refund if the same window was charged.
    fn settled(&self, WindowState { start, used }: WindowState, units: i64, receipt: Receipt) -> u64 {
        match u64::try_from(units) {
            Ok(units) => {
                let debt = debt::units(self.limit, self.debt);
                used.saturating_add(debt::charged(units, self.left(used), debt))
            }
            Err(_) if receipt.full_at() == self.end(start) => used.saturating_sub(units.unsigned_abs()),
            Err(_) => used,
        }
    }
}

impl Algorithm<WindowState> for FixedWindow {
    fn can(&self, state: &mut WindowState, now: Micros, ask: Ask) -> u32 {
        ask.fit(self.left(self.view(*state, now).0.used), ask.need(self.limit))
    }

    fn take(&self, state: &mut WindowState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (mut view, changed) = self.view(*state, now);
        view.used = view.used.saturating_add(ask.units(granted));
        if changed || ask.units(granted) > 0 {
            *state = view;
        }
        self.answer(view, now, ask)
    }

    fn settle(&self, state: &mut WindowState, now: Micros, units: i64, receipt: Receipt) {
        let (view, changed) = self.view(*state, now);
        let used = self.settled(view, units, receipt);
        if changed || view.used > 0 || used > 0 {
            *state = if used > 0 { WindowState { used, ..view } } else { WindowState::default() };
        }
    }
}

impl Algorithm<MarkState> for FixedWindow {
    fn can(&self, state: &mut MarkState, now: Micros, ask: Ask) -> u32 {
        ask.fit(self.left(self.view_mark(*state, now).0.used), ask.need(self.limit))
    }

    fn take(&self, state: &mut MarkState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (mut view, changed) = self.view_mark(*state, now);
        view.used = view.used.saturating_add(ask.units(granted));
        if changed || ask.units(granted) > 0 {
            *state = MarkState::from(view);
        }
        self.answer(view, now, ask)
    }

    fn settle(&self, state: &mut MarkState, now: Micros, units: i64, receipt: Receipt) {
        let (view, changed) = self.view_mark(*state, now);
        let used = self.settled(view, units, receipt);
        if changed || view.used > 0 || used > 0 {
            *state = if used > 0 { WindowState { used, ..view }.into() } else { MarkState::default() };
        }
    }
}

impl From<WindowState> for MarkState {
    fn from(WindowState { start, used }: WindowState) -> Self {
        Self(start.saturating_mul(2).saturating_add(used))
    }
}
