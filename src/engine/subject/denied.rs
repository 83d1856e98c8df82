// SPDX-License-Identifier: Apache-2.0
//! Denied until: when the script denies a request, it says when the next one would pass. Until then the worker denies the
//! subject without asking the store. So a subject over its limit costs the store almost nothing.
//!
//! The answer is exact for this policy, subject and cost, unless units are refunded: then the store would admit somewhat
//! earlier than it said. A worker does not learn that an operator has deleted a key, so it asks the store again after
//! `denial_ttl`. If the store does not answer, the denial holds until the time that the store said. There are three exceptions:
//!
//! - A denial by a `concurrency` limit is not remembered, because permits come back all the time.
//! - If overrides in the store can change a limit, a denial holds for a second at most.
//! - If the policy leases, a denial holds for the duration of a lease at most. By then, unused leases may have been refunded.
//!
//! A denial by a `distinct` limit is for one value. A ban is for all values of its subject. While the store does not answer, it is also for
//! requests of another cost, and a ban with a `scope` closes its policies.
//!
//! If denials may lead to a ban, each of them has to be counted: the store is asked again about each request, until the subject
//! is banned. A ban is a denial like the others, and nothing but time and an operator ends it: no refund, no override.
//!
//! When the clock is set back the worker forgets all denials, because it does not know how old they are.

use std::rc::Rc;

use crate::config::DenialTtl;
use crate::decision::{Decision, LimitStatus};
use crate::engine::generations::Generations;
use crate::engine::generations::Seed;
use crate::inline_vec::InlineVec;
use crate::limit::{Limit, Member, RetryAfter};
use crate::policy::Check;
use crate::time::Micros;

/// At most this many denials are remembered; a banned subject takes two places.
const MAX_REMEMBERED: usize = 65_536;

/// The length of a denial without an end.
const ENDLESS: Micros = Micros(u64::MAX);

/// The worker asks again about a denial without an end after this time.
const ENDLESS_ASKED: Micros = Micros::from_secs(60);

/// The subjects that are denied for now.
#[derive(Debug)]
pub(in crate::engine) struct Denied {
    subjects: Generations<Rc<Check>, Denial>,
    /// The latest time seen: an earlier one means that the clock was set back.
    latest: Micros,
}

#[derive(Clone, Debug)]
struct Denial {
    /// The time from which the worker asks the store again.
    ask_again: Micros,
    /// The end of the denial if the store does not answer.
    until: Micros,
    /// The time at which the store was asked. The times in its answer count from here.
    asked: Micros,
    decision: Decision,
}

impl Denied {
    pub fn new(seed: Seed) -> Self {
        Self { subjects: Generations::new(MAX_REMEMBERED, seed), latest: Micros::ZERO }
    }

    /// Remembers a denial of the store. `asked` is when the batch was sent, so that no request is denied for longer than the
    /// store said.
    pub fn remember(
        &mut self,
        check: &Rc<Check>,
        limits: &[Limit],
        decision: &Decision,
        ttl: DenialTtl,
        (asked, now): (Micros, Micros),
    ) {
        // If the clock was set back meanwhile, the age of the answer is unknown.
        let Some(span) = certain(limits, decision).filter(|_| asked <= now) else { return };
        // Workers must not ask at the same time, nor subjects, and a subject not at regular intervals.
        let hash = self.subjects.hash((check, asked));
        let spread = hash.checked_rem(ttl.max.since(ttl.min).0.saturating_add(1)).unwrap_or(0);
        let known = if span == ENDLESS { ENDLESS_ASKED } else { span };
        let ask_again = asked.plus(known.min(ttl.min.plus(Micros(spread))));
        let until = asked.plus(span.min(ttl.unanswered));
        let denial = |decision| Denial { ask_again, until, asked, decision };
        let mut key = Rc::clone(check);
        if decision.is_banned() {
            let ban = Decision { limits: InlineVec::new(), own: None, ..decision.clone() };
            self.subjects.insert(Rc::new(of_ban(check)), denial(ban));
            key = without_value(check).map_or(key, Rc::new);
        }
        self.subjects.insert(key, denial(decision.clone()));
    }

    /// Returns the store's answer now, if it is certain.
    #[inline]
    pub fn look_up(&mut self, check: &Check, now: Micros) -> Option<Decision> {
        if self.is_empty(now) { None } else { self.remembered(check, now) }
    }

    fn remembered(&self, check: &Check, now: Micros) -> Option<Decision> {
        let found = self.find_any(check, now, |denial| denial.ask_again);
        if found.is_none() && check.ban_only {
            return self.find(&of_ban(check), now, |denial| denial.ask_again);
        }
        found
    }

    /// Returns the store's answer now, as far as it is known. For a store that does not answer.
    pub fn look_up_unanswered(&mut self, check: &Check, now: Micros) -> Option<Decision> {
        if self.is_empty(now) {
            return None;
        }
        // An operator may have lifted a ban since a request of this cost was denied.
        let found = self.find_any(check, now, |denial| denial.until).filter(|denial| !denial.is_banned());
        found.or_else(|| self.find(&of_ban(check), now, |denial| denial.until))
    }

    /// True if no denial is known now. If the host's clock went back, all are forgotten first.
    pub fn is_empty(&mut self, now: Micros) -> bool {
        if now < self.latest {
            self.subjects.clear();
        }
        self.latest = now;
        self.subjects.is_empty()
    }

    fn find_any(&self, check: &Check, now: Micros, end: fn(&Denial) -> Micros) -> Option<Decision> {
        let found = self.find(check, now, end);
        found.or_else(|| without_value(check).and_then(|all_values| self.find(&all_values, now, end)))
    }

    fn find(&self, check: &Check, now: Micros, end: fn(&Denial) -> Micros) -> Option<Decision> {
        let Denial { decision, asked, .. } = self.subjects.get(check).filter(|denial| now < end(denial))?;
        let elapsed = now.since(*asked);
        Some(Decision {
            granted: decision.granted,
            delay: decision.delay,
            limits: decision.limits.iter().map(|status| later(*status, elapsed)).collect(),
            ban: shorter(decision.ban, elapsed),
            own: decision.own.clone(),
            at: decision.at.plus(elapsed),
        })
    }

    /// The store was asked at this time, and the subject is not banned: an operator may have lifted the ban.
    pub fn lifted(&mut self, check: &Check, asked: Micros) {
        if self.subjects.is_empty() {
            return;
        }
        for key in [Some(of_ban(check)), without_value(check), Some(check.clone())].into_iter().flatten() {
            let is_older = |denial: &Denial| denial.decision.is_banned() && denial.asked < asked;
            if self.subjects.get(&key).is_some_and(is_older) {
                self.subjects.remove(&key);
            }
        }
    }

    /// Units were refunded: the store may admit earlier than it said, unless the subject is banned.
    pub fn forget(&mut self, check: &Check) {
        if self.subjects.get(check).is_some_and(|denial| !denial.decision.is_banned()) {
            self.subjects.remove(check);
        }
    }
}

/// The check of the subject without the value of the request, if it has one.
fn without_value(check: &Check) -> Option<Check> {
    (check.member != Member::NONE).then(|| Check { member: Member::NONE, ..check.clone() })
}

/// The check of the subject's ban alone, whatever the request costs.
fn of_ban(check: &Check) -> Check {
    Check { cost: 0, store: check.store, ban_only: true, ..Check::one(check.policy, check.tag.clone()) }
}

/// The time for which a denial is certain. For a ban, that is the ban alone: refunds may shorten other denials of the request.
fn certain(limits: &[Limit], decision: &Decision) -> Option<Micros> {
    let lasting =
        limits.iter().zip(&decision.limits).filter(|(limit, _)| !matches!(limit, Limit::Concurrency(_)));
    let denied = match decision.ban {
        RetryAfter::Now => lasting.map(|(_, status)| status.retry_after).max()?,
        ban => ban,
    };
    match denied {
        RetryAfter::Now | RetryAfter::Unknown => None,
        RetryAfter::After(span) => Some(span),
        RetryAfter::Never => Some(ENDLESS),
    }
}

/// The same status, `elapsed` later.
pub(in crate::engine) fn later(status: LimitStatus, elapsed: Micros) -> LimitStatus {
    LimitStatus {
        remaining: status.remaining,
        retry_after: shorter(status.retry_after, elapsed),
        reset: status.reset.since(elapsed),
        // Not shortened: the remaining units stay the same here, and a window that is too long promises nothing that is not there.
        window: status.window,
    }
}

/// The same time, `elapsed` later.
fn shorter(retry_after: RetryAfter, elapsed: Micros) -> RetryAfter {
    match retry_after {
        RetryAfter::After(span) => RetryAfter::after(span.since(elapsed).0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::LeakyBucket;

    const NOW: Micros = Micros::from_secs(1_700_000_000);
    const HOUR: Micros = Micros::from_secs(3_600);

    fn check(subject: usize) -> Rc<Check> {
        Rc::new(Check::one(0, subject.to_string()))
    }

    const fn status(retry_after: RetryAfter) -> LimitStatus {
        LimitStatus { remaining: 3, retry_after, reset: Micros(20), window: Micros(30) }
    }

    #[test]
    fn a_subject_is_forgotten_when_as_many_others_were_denied_as_fit() {
        let limits = [LeakyBucket::new(1, HOUR, 2, Micros::ZERO).unwrap().into()];
        let limits_after = [status(RetryAfter::After(HOUR))].into_iter().collect();
        let (limits_of, ban) = (limits_after, RetryAfter::Now);
        let delay = Micros::ZERO;
        let decision = Decision { granted: false, delay, limits: limits_of, ban, own: None, at: NOW };
        let ttl = DenialTtl { min: HOUR, max: HOUR, unanswered: HOUR };
        let mut denied = Denied::new(Seed(1));
        let remember = |denied: &mut Denied, subjects: std::ops::RangeInclusive<usize>| {
            subjects
                .for_each(|subject| denied.remember(&check(subject), &limits, &decision, ttl, (NOW, NOW)));
        };
        remember(&mut denied, 0..=MAX_REMEMBERED / 2);
        assert!(denied.look_up(&check(0), NOW).is_some(), "half as many others fit beside it");
        remember(&mut denied, MAX_REMEMBERED / 2 + 1..=MAX_REMEMBERED);
        assert!(denied.look_up(&check(0), NOW).is_none(), "or the table would grow without bound");
        assert!(
            denied.look_up(&check(MAX_REMEMBERED / 2 + 1), NOW).is_some(),
            "half as many others came later"
        );
    }

    #[test]
    fn a_standing_ages() {
        use RetryAfter::{After, Never, Now, Unknown};
        let rows = [
            (After(Micros(10)), 0, After(Micros(10)), 20),
            (After(Micros(10)), 9, After(Micros(1)), 11),
            (After(Micros(10)), 10, Now, 10),
            (After(Micros(10)), 25, Now, 0),
            (Now, 5, Now, 15),
            (Never, 5, Never, 15),
            (Unknown, 5, Unknown, 15),
        ];
        for (retry_after, elapsed, wanted, reset) in rows {
            let aged = later(status(retry_after), Micros(elapsed));
            let wanted = LimitStatus { reset: Micros(reset), ..status(wanted) };
            assert_eq!(aged, wanted, "{retry_after:?}, {elapsed} later");
        }
    }
}
