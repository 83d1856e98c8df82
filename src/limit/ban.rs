// SPDX-License-Identifier: Apache-2.0
//! A ban: a subject that was denied `after` times within a window is denied for a time, whatever its limits have left. Times are
//! microseconds.
//!
//! Only denials by the limits count. A request that is denied during a ban counts for nothing, so it does not extend the ban: a client that
//! waits for the stated time passes. Each ban is `factor` times as long as the one before it, up to `max`. When `max` has passed since the
//! end of a ban without another one, that ban is forgotten. A ban that is lifted is forgotten at once.

use super::{Invalid, MAX_WINDOW, RetryAfter, window};
use crate::time::Micros;

/// The most denials that a ban waits for. The store is asked about each of them.
pub const MAX_DENIALS: u32 = 1_000;
/// The most times that a ban is as long as the one before it.
pub const MAX_FACTOR: u32 = 100;

/// The denials after which a ban begins, and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    after: u32,
    window: Micros,
    duration: Micros,
    factor: u32,
    max: Micros,
}

/// The state of a subject's bans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BanState {
    /// The end of the ban.
    ends: Micros,
    /// The time of the first of the counted denials.
    since: Micros,
    denials: u32,
    /// The duration of the last ban, and its end; zero when it is forgotten.
    last: Micros,
    ended: Micros,
}

impl Ban {
    /// A subject is banned by its `after`th denial within `window`: for `duration`, then for `factor` times as long as the last
    /// time, at most for `max`.
    ///
    /// # Errors
    /// [`Invalid`] unless `after` is 1 to 1,000, `window` and `duration` 1 ms to 366 days, `factor` 1 to 100, and `max` from
    /// `duration` to 366 days.
    pub fn new(
        after: u32,
        window: Micros,
        duration: Micros,
        factor: u32,
        max: Micros,
    ) -> Result<Self, Invalid> {
        let within = |parameter, value: u32, most: u32| {
            let allowed = || format!("1 to {most}");
            let invalid = || Invalid { parameter, value: value.to_string(), allowed: allowed() };
            (1..=most).contains(&value).then_some(value).ok_or_else(invalid)
        };
        let duration = self::window("duration", duration)?;
        if !(duration..=MAX_WINDOW).contains(&max) {
            let allowed = format!("{duration}, which is `duration`, to 366 days");
            return Err(Invalid { parameter: "max", value: max.to_string(), allowed });
        }
        Ok(Self {
            after: within("after", after, MAX_DENIALS)?,
            window: self::window("window", window)?,
            duration,
            factor: within("factor", factor, MAX_FACTOR)?,
            max,
        })
    }

    /// The numbers that the script unpacks.
    pub fn numbers(&self) -> [u64; 5] {
        let Self { after, window, duration, factor, max } = self;
        [(*after).into(), window.0, duration.0, (*factor).into(), max.0]
    }

    /// The remaining time of the subject's ban. The clock may have been set back, and `max` may be shorter now: no ban has more than `max`
    /// left.
    pub(super) fn rest(&self, state: &mut BanState, now: Micros) -> RetryAfter {
        let rest = state.ends.since(now);
        if rest > self.max {
            state.ends = now.plus(self.max);
        }
        RetryAfter::after(rest.min(self.max).0)
    }

    /// Counts denials of a subject that is not banned. Returns for how long it is banned now.
    pub(super) fn count(&self, state: &mut BanState, now: Micros, denials: u32) -> RetryAfter {
        if state.denials == 0 || state.since.plus(self.window) <= now {
            (state.since, state.denials) = (now, 0);
        }
        state.since = state.since.min(now);
        // A ban that would not have ended yet was lifted.
        if state.ended > now || state.ended.plus(self.max) <= now {
            state.last = Micros::ZERO;
        }
        state.denials = state.denials.saturating_add(denials);
        if state.denials < self.after {
            return RetryAfter::Now;
        }
        let longer = Micros(state.last.0.saturating_mul(self.factor.into())).min(self.max);
        state.last = longer.max(self.duration);
        state.ended = now.plus(state.last);
        (state.ends, state.denials) = (state.ended, 0);
        RetryAfter::After(state.last)
    }
}
