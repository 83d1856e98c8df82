// SPDX-License-Identifier: Apache-2.0
//! `sliding_log`: never more than `limit` units in any window, wherever it begins. Units at microseconds.
//!
//! It is exact, and costs memory: every grant is one entry for one window, however many requests it was for. A denied
//! request leaves no entry.

use std::collections::VecDeque;

use super::subject::{Algorithm, Receipt};
use super::{Ask, Invalid, LimitOutcome, RetryAfter, debt, fits, window};
use crate::time::Micros;

/// The most units in a window. Each grant is an entry in memory, and Redis searches among all of them.
pub const MAX_LOG: u64 = 100_000;

/// A refund corrects at most this many entries: those of its grant and of all later grants.
const CORRECTED: usize = 64;

/// A limit and a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window: Micros,
    /// See [`Limit::debt`](super::Limit::debt).
    pub(super) debt: u32,
}

/// The grants that still count, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    entries: VecDeque<Entry>,
}

#[cfg(test)]
impl LogState {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Micros,
    units: u64,
}

impl SlidingLog {
    /// At most `limit` units in any window. A grant counts from its microsecond on and has left one window
    /// later.
    ///
    /// # Errors
    /// [`Invalid`] unless `limit` is 1 to [`MAX_LOG`] and `window` 1 ms to 366 days.
    pub fn new(limit: u64, window: Micros) -> Result<Self, Invalid> {
        if !(1..=MAX_LOG).contains(&limit) {
            let allowed =
                format!("1 to {MAX_LOG}, because it keeps every grant (sliding_window allows more)");
            return Err(Invalid { parameter: "limit", value: limit.to_string(), allowed });
        }
        Ok(Self { limit, window: self::window("window", window)?, debt: 0 })
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

    /// The units by which charges may take it below zero. With them it has at most [`MAX_LOG`] entries.
    pub(super) fn max_debt(&self) -> u64 {
        debt::units(self.limit, self.debt).min(MAX_LOG.saturating_sub(self.limit))
    }

    /// The most units, and so the most entries, that it keeps: with its debt.
    pub(crate) fn entries(&self) -> u64 {
        self.limit.saturating_add(self.max_debt())
    }

    /// If the clock went back, entries in the future are dated to now.
    fn observe(state: &mut LogState, now: Micros) {
        let entries = &mut state.entries;
        let mut ahead = 0u64;
        while let Some(entry) = entries.back().filter(|entry| entry.at > now) {
            ahead = ahead.saturating_add(entry.units);
            entries.pop_back();
        }
        if ahead > 0 {
            entries.push_back(Entry { at: now, units: ahead });
        }
    }

    fn remove_gone(&self, state: &mut LogState, now: Micros) {
        while state.entries.front().is_some_and(|entry| entry.at.plus(self.window) <= now) {
            state.entries.pop_front();
        }
    }

    /// See [`Subject::condense`](super::Subject::condense).
    pub(super) fn condense(&self, state: &mut LogState, now: Micros, most: usize) -> u64 {
        if state.entries.len() <= most.max(1) {
            return 0;
        }
        self.remove_gone(state, now);
        let before = state.entries.len();
        while state.entries.len() > most.max(1) {
            let pairs = state.entries.make_contiguous().chunks(2);
            let merged = pairs.filter_map(|pair| {
                let units = pair.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.units));
                Some(Entry { units, ..*pair.last()? })
            });
            state.entries = merged.collect();
        }
        u64::try_from(before - state.entries.len()).unwrap_or(u64::MAX)
    }

    /// The entries that have not left the window.
    fn counting<'a>(&self, state: &'a LogState, now: Micros) -> impl Iterator<Item = &'a Entry> {
        state.entries.iter().filter(move |entry| entry.at.plus(self.window) > now)
    }

    fn used(&self, state: &LogState, now: Micros) -> u64 {
        self.counting(state, now).fold(0, |sum, entry| sum.saturating_add(entry.units))
    }

    fn left(&self, state: &LogState, now: Micros) -> i64 {
        0i64.saturating_add_unsigned(self.limit).saturating_sub_unsigned(self.used(state, now))
    }
}

impl Algorithm<LogState> for SlidingLog {
    fn can(&self, state: &mut LogState, now: Micros, ask: Ask) -> u32 {
        Self::observe(state, now);
        ask.fit(self.left(state, now), ask.need(self.limit))
    }

    fn take(&self, state: &mut LogState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let units = ask.units(granted);
        if units > 0 {
            // Only a grant removes what has left the window: a longer window may still count it.
            self.remove_gone(state, now);
            state.entries.push_back(Entry { at: now, units });
        }
        let remaining = self.left(state, now);
        // At once, if it has left already.
        let leaves = |entry: &Entry| entry.at.plus(self.window).since(now);
        let reset = state.entries.back().map_or(Micros::ZERO, leaves);
        let retry_after = match ask.need(self.limit) {
            need if fits(remaining, need) => RetryAfter::Now,
            need => {
                let mut left = remaining;
                let enough = self.counting(state, now).find(|entry| {
                    left = left.saturating_add_unsigned(entry.units);
                    fits(left, need)
                });
                enough.map_or(RetryAfter::Never, |entry| RetryAfter::after(leaves(entry).0))
            }
        };
        LimitOutcome { remaining, retry_after, reset, ..LimitOutcome::default() }
    }

    /// Refunds to the grants of the time of the charge. If too many later grants would have to be corrected, the units
    /// stay charged until they leave the window.
    fn settle(&self, state: &mut LogState, now: Micros, units: i64, receipt: Receipt) {
        Self::observe(state, now);
        if let Ok(units) = u64::try_from(units) {
            let units = debt::charged(units, self.left(state, now), self.max_debt());
            self.take(state, now, Ask::new(1, units), 1);
            return;
        }
        if self.used(state, now) == 0 || receipt.at.plus(self.window) <= now {
            return;
        }
        let since = state.entries.iter().rev().take_while(|entry| entry.at >= receipt.at);
        if since.take(CORRECTED + 1).count() > CORRECTED {
            return;
        }
        let mut back = units.unsigned_abs();
        for entry in state.entries.iter_mut().rev().filter(|entry| entry.at == receipt.at) {
            let part = back.min(entry.units);
            (entry.units, back) = (entry.units - part, back - part);
        }
        state.entries.retain(|entry| entry.units > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two entries become one, with the time of the later, until few enough are left and no further.
    #[test]
    fn a_log_is_condensed_to_so_many_entries() {
        let log = SlidingLog::new(1_000, Micros::from_secs(60)).unwrap();
        for (entries, most, merged, left) in
            [(4, 4, 0, 4), (4, 2, 2, 2), (5, 2, 3, 2), (6, 3, 3, 3), (4, 1, 3, 1)]
        {
            let mut state = LogState::default();
            for at in 1..=entries {
                log.take(&mut state, Micros(at), Ask::new(1, 1), 1);
            }
            assert_eq!(log.condense(&mut state, Micros(entries), most), merged, "{entries} to {most}");
            assert_eq!(state.entries.len(), left, "{entries} to {most}");
            assert_eq!(state.entries.iter().map(|entry| entry.units).sum::<u64>(), entries);
        }
    }

    /// Each log has the same share of the entries.
    #[test]
    fn the_logs_of_a_subject_are_condensed_together() {
        let logs = [9, 7].map(|limit| SlidingLog::new(limit, Micros::from_secs(60)).unwrap().into());
        let mut subject = crate::limit::Subject::default();
        for at in 1..=6 {
            assert_eq!(subject.check(&logs, None, Micros(at), Ask::new(1, 1)).granted, 1);
        }
        assert_eq!((subject.condense(&logs, Micros(6), 6), subject.entries()), (6, 6));
        assert_eq!((subject.condense(&logs, Micros(6), 6), subject.entries()), (0, 6));
    }
}
