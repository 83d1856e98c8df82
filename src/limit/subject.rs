// SPDX-License-Identifier: Apache-2.0
//! A subject in memory: what the scripts do for one subject in Redis, with exactly their replies.

use super::ban::BanState;
use super::bucket::BucketState;
use super::concurrency::PermitsState;
use super::distinct::MembersState;
use super::fixed_window::{MarkState, WindowState};
use super::sliding_log::LogState;
use super::sliding_window::SlotsState;
use super::token_bucket::{Kind, StepsState};
use super::{
    Ask, Ban, Concurrency, LeakyBucket, Limit, LimitOutcome, MAX_COST, Outcome, Permits, RetryAfter,
};
use crate::inline_vec::InlineVec;
use crate::time::Micros;

/// The state of one subject: that of each limit of its policy, and that of its bans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    states: Vec<State>,
    ban: BanState,
}

/// The state of one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Empty,
    Bucket(BucketState),
    Steps(StepsState),
    Mark(MarkState),
    Window(WindowState),
    Log(LogState),
    Slots(SlotsState),
    Permits(PermitsState),
    Members(MembersState),
}

/// The facts about a charge that its refund needs: its time, and the limit's answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receipt {
    pub(super) at: Micros,
    pub(super) answer: LimitOutcome,
}

impl Receipt {
    /// The time at which the limit would have been full again.
    pub(super) fn full_at(&self) -> Micros {
        self.at.plus(self.answer.reset)
    }

    /// The amount that the limit has refunded since the charge, if its total is `refunded` now.
    pub(super) const fn refunded_since(&self, refunded: u64) -> u64 {
        more_refunded(refunded, REFUNDED - self.answer.refunded % REFUNDED)
    }
}

/// Refunds are counted modulo this. Lua holds such numbers exactly.
pub(super) const REFUNDED: u64 = 1 << 52;

/// The count of refunds after one more refund.
pub(super) const fn more_refunded(refunded: u64, more: u64) -> u64 {
    (refunded % REFUNDED + more % REFUNDED) % REFUNDED
}

/// One algorithm, on its state. The state changes exactly as it does in Redis.
pub(super) trait Algorithm<State> {
    /// The number of requests that would pass.
    fn can(&self, state: &mut State, now: Micros, ask: Ask) -> u32;
    /// Charges what `granted` requests cost, which is at most what [`Algorithm::can`] said.
    fn take(&self, state: &mut State, now: Micros, ask: Ask, granted: u32) -> LimitOutcome;
    /// Charges `units` as far as the limit and its debt allow or, if they are negative, refunds them as far as they still count.
    fn settle(&self, state: &mut State, now: Micros, units: i64, receipt: Receipt);
}

impl Subject {
    /// Asks every limit, grants what all of them can, and charges all or none.
    ///
    /// The limits may differ from call to call, as after a new configuration: the state counts under the new ones as far
    /// as it can, and the state of another algorithm counts as none.
    ///
    /// With a `ban`, denials may lead to one. A subject that is banned is granted nothing. A check for no requests changes nothing.
    pub fn check(&mut self, limits: &[Limit], ban: Option<&Ban>, now: Micros, ask: Ask) -> Outcome {
        if ask.requests == 0 {
            return self.clone().answer(limits, ban, now, ask);
        }
        self.answer(limits, ban, now, ask)
    }

    fn answer(&mut self, limits: &[Limit], ban: Option<&Ban>, now: Micros, ask: Ask) -> Outcome {
        self.states.resize_with(limits.len(), State::default);
        let mut banned = self.banned(ban, now);
        let mut granted = if banned == RetryAfter::Now { ask.requests } else { 0 };
        for (limit, state) in limits.iter().zip(&mut self.states) {
            granted = granted.min(limit.can(state, now, ask));
        }
        if let Some(ban) = ban.filter(|_| granted < ask.requests && banned == RetryAfter::Now) {
            banned = ban.count(&mut self.ban, now, ask.requests.saturating_sub(granted));
        }
        let take = |(limit, state): (&Limit, &mut State)| limit.take(state, now, ask, granted);
        let answers = limits.iter().zip(&mut self.states).map(take).collect();
        Outcome { granted, at: now, limits: answers, own: None, ban: banned }
    }

    /// The remaining time of the subject's ban.
    fn banned(&mut self, ban: Option<&Ban>, now: Micros) -> RetryAfter {
        ban.map_or(RetryAfter::Now, |ban| ban.rest(&mut self.ban, now))
    }

    /// Charges `units` more than was asked for or, if they are negative, refunds them from what `receipt` charged.
    ///
    /// A charge empties a limit at most (a bucket: to its overdraft), or takes it into debt (see [`Limit::indebted`]). Refunds conserve the quota: after refunds in any
    /// parts, at any times, in any order, no limit has more left than if it had never been charged what was refunded. So
    /// a refund does not give back what has come back with time since the charge, nor what another refund has given back.
    /// Permits stay as they are. A settlement changes nothing about a ban, and counts for none. The outcome is what is left now.
    pub fn settle(
        &mut self,
        limits: &[Limit],
        ban: Option<&Ban>,
        now: Micros,
        units: i64,
        receipt: &Outcome,
    ) -> Outcome {
        let most = i64::try_from(MAX_COST).unwrap_or(i64::MAX);
        let units = units.clamp(-most, most);
        self.states.resize_with(limits.len(), State::default);
        let mut answers = InlineVec::with_capacity(limits.len());
        for (i, (limit, state)) in limits.iter().zip(&mut self.states).enumerate() {
            let answer = receipt.limits.get(i).copied().unwrap_or_default();
            limit.settle(state, now, units, Receipt { at: receipt.at, answer });
            answers.push(limit.take(state, now, Ask::new(0, 0), 0));
        }
        Outcome { granted: 0, at: now, limits: answers, own: None, ban: self.banned(ban, now) }
    }

    /// Merges the entries of its logs, so that they are at most `most` (but one for each log). Units of a merged entry count as long as the
    /// newest of them: so no more passes. Returns the number of entries that this has removed.
    pub(crate) fn condense(&mut self, limits: &[Limit], now: Micros, most: usize) -> u64 {
        let logs = limits.iter().zip(&mut self.states).filter_map(|pair| match pair {
            (Limit::SlidingLog(limit), State::Log(state)) => Some((limit, state)),
            _ => None,
        });
        let share = most / limits.len().max(1);
        logs.fold(0, |sum, (limit, state)| sum.saturating_add(limit.condense(state, now, share)))
    }

    /// The number of entries of its logs.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        let of = |state: &State| if let State::Log(log) = state { log.len() } else { 0 };
        self.states.iter().map(of).sum()
    }

    /// Releases permits.
    pub fn release(&mut self, permits: &[Permits]) {
        for &Permits { limit, expiry, count } in permits {
            if let Some(State::Permits(state)) = self.states.get_mut(limit) {
                Concurrency::release(state, expiry, count);
            }
        }
    }

    /// Renews permits of requests that still run. Returns their new expiries.
    pub fn renew(&mut self, limits: &[Limit], permits: &[Permits], now: Micros) -> Vec<u64> {
        self.states.resize_with(limits.len(), State::default);
        let renew = |&Permits { limit, expiry, count }: &Permits| {
            let (Some(limit), Some(state)) = (limits.get(limit), self.states.get_mut(limit)) else {
                return expiry;
            };
            limit.with(state, |state| match (limit, state) {
                (Limit::Concurrency(limit), State::Permits(state)) => {
                    limit.renew(state, (expiry, count), now)
                }
                _ => expiry,
            })
        };
        permits.iter().map(renew).collect()
    }
}

/// Runs `$call` with a limit's algorithm and a state of its kind.
macro_rules! on {
    ($self:expr, $of:expr, |$limit:ident, $state:ident| $call:expr) => {
        match ($self, $of) {
            (Limit::FixedWindow($limit), State::Mark($state)) => $call,
            (Limit::FixedWindow($limit), State::Window($state)) => $call,
            (Limit::SlidingLog($limit), State::Log($state)) => $call,
            (Limit::SlidingWindow($limit), State::Slots($state)) => $call,
            (Limit::TokenBucket($limit), State::Steps($state)) => $call,
            (Limit::TokenBucket(limit), State::Bucket($state)) => match limit.kind() {
                Kind::Continuous($limit) => $call,
                Kind::Stepwise => Default::default(),
            },
            (Limit::LeakyBucket(LeakyBucket { bucket: $limit, .. }), State::Bucket($state)) => $call,
            (Limit::Concurrency($limit), State::Permits($state)) => $call,
            (Limit::Distinct($limit), State::Members($state)) => $call,
            _ => Default::default(),
        }
    };
}

impl Limit {
    /// The state of a new subject.
    fn fresh(&self) -> State {
        match self {
            Self::FixedWindow(limit) if limit.is_marked() => State::Mark(MarkState::default()),
            Self::FixedWindow(_) => State::Window(WindowState::default()),
            Self::SlidingLog(_) => State::Log(LogState::default()),
            Self::SlidingWindow(_) => State::Slots(SlotsState::default()),
            Self::TokenBucket(limit) if *limit.kind() == Kind::Stepwise => {
                State::Steps(StepsState::default())
            }
            Self::TokenBucket(_) | Self::LeakyBucket(_) => State::Bucket(BucketState::default()),
            Self::Concurrency(_) => State::Permits(PermitsState::default()),
            Self::Distinct(_) => State::Members(MembersState::default()),
        }
    }

    /// Runs `call` on the state. If that is another algorithm's, it runs on a fresh state, which replaces the other one
    /// if `call` changes it.
    fn with<T>(&self, state: &mut State, call: impl FnOnce(&mut State) -> T) -> T {
        let mut own = self.fresh();
        if core::mem::discriminant(state) == core::mem::discriminant(&own) {
            return call(state);
        }
        let result = call(&mut own);
        if own != self.fresh() {
            *state = own;
        }
        result
    }

    fn can(&self, state: &mut State, now: Micros, ask: Ask) -> u32 {
        self.with(state, |state| on!(self, state, |limit, state| Algorithm::can(limit, state, now, ask)))
    }

    fn take(&self, state: &mut State, now: Micros, ask: Ask, granted: u32) -> LimitOutcome {
        self.with(state, |state| {
            on!(self, state, |limit, state| Algorithm::take(limit, state, now, ask, granted))
        })
    }

    fn settle(&self, state: &mut State, now: Micros, units: i64, receipt: Receipt) {
        self.with(state, |state| {
            on!(self, state, |limit, state| Algorithm::settle(limit, state, now, units, receipt))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refunds_are_counted_modulo_what_lua_counts_to() {
        let rows = [
            (5, 7, 12),
            (REFUNDED - 1, 1, 0),
            (REFUNDED - 1, 2, 1),
            (3, 5 * REFUNDED + 4, 7),
            (3 * REFUNDED + 4, 5, 9),
            (0, u64::MAX, REFUNDED - 1),
            (u64::MAX, 1, 0),
        ];
        for (refunded, more, wanted) in rows {
            assert_eq!(more_refunded(refunded, more), wanted, "{refunded} and {more} more");
        }
        let rows = [
            (0, 0, 0),
            (10, 10, 0),
            (10, 15, 5),
            (REFUNDED - 3, 4, 7),
            (REFUNDED + 2, 5, 3),
            (1, 0, REFUNDED - 1),
        ];
        for (then, now, wanted) in rows {
            let answer = LimitOutcome { refunded: then, ..LimitOutcome::default() };
            assert_eq!(
                Receipt { at: Micros::ZERO, answer }.refunded_since(now),
                wanted,
                "from {then} to {now}"
            );
        }
    }
}
