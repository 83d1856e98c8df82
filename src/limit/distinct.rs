// SPDX-License-Identifier: Apache-2.0
//! `distinct`: at most `limit` different values are in use. A value counts from its first use, for one window. Further uses of it pass, and
//! do not make that longer: so when a value ends is known, and only a first use writes it.

use super::subject::{Algorithm, Receipt};
use super::{Ask, Invalid, LimitOutcome, RetryAfter, fits, window};
use crate::time::Micros;

/// The most values of one subject: 20 bytes of Redis each.
pub const MAX_MEMBERS: u64 = 1_000;

/// The hash of a value: 96 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Member(pub [u8; 12]);

impl Member {
    /// No value: for limits of other algorithms, and for checks that only ask what is left.
    pub const NONE: Self = Self([0; 12]);

    /// Its halves, as the scripts unpack them: the first and the last 48 bits.
    #[must_use]
    pub const fn halves(self) -> [u64; 2] {
        let Self([a, b, c, d, e, f, g, h, i, j, k, l]) = self;
        [u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), u64::from_le_bytes([g, h, i, j, k, l, 0, 0])]
    }
}

/// A limit, and how long a value counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distinct {
    limit: u64,
    window: Micros,
}

/// The values, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MembersState {
    values: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    /// The time of its first use.
    at: Micros,
    /// True if several requests have used it: then a refund of one does not remove it.
    is_shared: bool,
    member: Member,
}

impl Distinct {
    /// At most `limit` different values in use, each for `window` from its first use.
    ///
    /// # Errors
    /// [`Invalid`] unless `limit` is 1 to [`MAX_MEMBERS`] and `window` 1 ms to 366 days.
    pub fn new(limit: u64, window: Micros) -> Result<Self, Invalid> {
        if !(1..=MAX_MEMBERS).contains(&limit) {
            let allowed = format!("1 to {MAX_MEMBERS}");
            return Err(Invalid { parameter: "limit", value: limit.to_string(), allowed });
        }
        Ok(Self { limit, window: self::window("window", window)? })
    }

    /// Different values.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The time for which a value counts.
    #[must_use]
    pub const fn window(&self) -> Micros {
        self.window
    }

    /// The values that count, and the place of this one among them. If the clock went back, values of the future count as used now.
    fn view<'a>(
        &self,
        state: &'a mut MembersState,
        now: Micros,
        member: Member,
    ) -> (&'a [Value], Option<usize>) {
        state.values.iter_mut().rev().take_while(|value| value.at > now).for_each(|value| value.at = now);
        let ended = state.values.partition_point(|value| value.at.plus(self.window) <= now);
        let values = state.values.get(ended..).unwrap_or_default();
        (values, values.iter().position(|value| value.member == member))
    }

    /// The number of further values that may be used.
    fn left(&self, values: &[Value]) -> i64 {
        0i64.saturating_add_unsigned(self.limit).saturating_sub_unsigned(values.len() as u64)
    }
}

impl Algorithm<MembersState> for Distinct {
    fn can(&self, state: &mut MembersState, now: Micros, ask: Ask) -> u32 {
        let (values, known) = self.view(state, now, ask.member);
        let passes = known.is_some() || fits(self.left(values), ask.in_flight().need(self.limit));
        if passes { ask.requests } else { 0 }
    }

    fn take(&self, state: &mut MembersState, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        let (values, mut known) = self.view(state, now, ask.member);
        let (counting, mut refunded) = (values.len(), 0);
        if granted > 0 && ask.cost > 0 {
            let ended = state.values.len().saturating_sub(counting);
            match known.and_then(|place| state.values.get_mut(ended.saturating_add(place))) {
                Some(value) => value.is_shared = true,
                None => {
                    state.values.drain(..ended);
                    known = Some(state.values.len());
                    state.values.push(Value { at: now, is_shared: granted > 1, member: ask.member });
                    let [_, low] = ask.member.halves();
                    refunded = if granted > 1 { 0 } else { low };
                }
            }
        }
        let (values, _) = self.view(state, now, ask.member);
        let (remaining, need) = (self.left(values), ask.in_flight().need(self.limit));
        let ends = |value: &Value| value.at.plus(self.window).since(now);
        let retry_after = if known.is_some() || fits(remaining, need) {
            RetryAfter::Now
        } else {
            // As many of the oldest values have to end.
            let missing = need.saturating_add_signed(remaining.saturating_neg()).saturating_sub(1);
            let last = usize::try_from(missing).ok().and_then(|last| values.get(last));
            last.map_or(RetryAfter::Now, |value| RetryAfter::after(ends(value).0))
        };
        let reset = values.last().map_or(Micros::ZERO, ends);
        LimitOutcome { remaining, retry_after, reset, refunded, ..LimitOutcome::default() }
    }

    /// A refund removes the value, if the request has added it, and no other has used it.
    fn settle(&self, state: &mut MembersState, now: Micros, units: i64, receipt: Receipt) {
        let (low, counting) = (receipt.answer.refunded, self.view(state, now, Member::NONE).0.len());
        let ended = state.values.len().saturating_sub(counting);
        let is_added = |value: &Value| {
            let [_, of_value] = value.member.halves();
            value.at == receipt.at && !value.is_shared && of_value == low
        };
        let added = state.values.iter().skip(ended).position(is_added);
        if let Some(place) = added.filter(|_| units < 0 && low > 0) {
            state.values.remove(ended.saturating_add(place));
            if counting == 1 {
                // The key is deleted, and what it has of values that have ended.
                state.values.clear();
            }
        }
    }
}
