//! Denied until: when the script denies a request it says when the next one would pass, and until then the answer is
//! known here. A subject that is over its limit costs the store nothing.
//!
//! What is known is exact for this policy, subject and cost, as long as nobody gives units back: then the store would
//! have admitted somewhat earlier than it said. Places in a `concurrency` limit come back all the time, so a denial
//! by one is never remembered. And nobody tells a worker that an operator has deleted a key: so the store is asked again
//! after `denial_ttl`, long before a window of a day ends. Only if it cannot be asked does a denial hold until the time
//! that the store said. What can change in other ways (an override in the store) is relied on for a second; and where
//! workers lease, for as long as a lease lasts: what others held may have come back by then.
//!
//! When the clock is set back all is forgotten: nobody knows how old it is.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::rc::Rc;

use super::seed::Seed;
use crate::config::DenialTtl;
use crate::decision::{Decision, LimitStatus};
use crate::limit::{Limit, RetryAfter};
use crate::policy::Check;
use crate::time::Micros;

/// At most this many subjects are remembered, in two generations: when the younger is full the older is forgotten.
const MAX_REMEMBERED: usize = 65_536;

/// What can never pass is asked about again after this long.
const NEVER: Micros = Micros::from_secs(60);

/// The subjects that are denied for now.
#[derive(Debug)]
pub(super) struct Denied {
    young: HashMap<Rc<Check>, Denial, Seed>,
    old: HashMap<Rc<Check>, Denial, Seed>,
    /// The latest time seen: an earlier one means that the clock was set back.
    latest: Micros,
}

#[derive(Clone, Debug)]
struct Denial {
    /// When the store is asked again…
    ask_again: Micros,
    /// …and until when it is relied on if the store does not answer.
    until: Micros,
    /// When the store was asked: what it said counts from there.
    asked: Micros,
    finding: Decision,
}

impl Denied {
    pub fn new(seed: Seed) -> Self {
        Self { young: HashMap::with_hasher(seed), old: HashMap::with_hasher(seed), latest: Micros::ZERO }
    }

    /// Remembers what the store said of a request that it denied. `asked` is when the question left, so that no
    /// request is denied for longer than the store said.
    pub fn remember(
        &mut self,
        check: &Rc<Check>,
        limits: &[Limit],
        finding: &Decision,
        ttl: DenialTtl,
        (asked, now): (Micros, Micros),
    ) {
        // If the clock was set back meanwhile nobody knows how old the answer is.
        let Some(span) = certain(limits, finding).filter(|_| asked <= now) else { return };
        if self.young.len() >= MAX_REMEMBERED / 2 {
            std::mem::swap(&mut self.old, &mut self.young);
            self.young.clear();
        }
        // Neither workers nor subjects ask in step, nor one subject at the same pace each time.
        let hash = self.young.hasher().hash_one((check, asked));
        let spread = hash.checked_rem(ttl.max.since(ttl.min).0.saturating_add(1)).unwrap_or(0);
        let ask_again = asked.plus(span.min(ttl.min.plus(Micros(spread))));
        let until = asked.plus(span.min(ttl.unanswered));
        self.young.insert(Rc::clone(check), Denial { ask_again, until, asked, finding: finding.clone() });
    }

    /// What the store would say now, if that is certain enough not to ask it.
    pub fn look_up(&mut self, check: &Check, now: Micros) -> Option<Decision> {
        self.find(check, now, |denial| denial.ask_again)
    }

    /// What the store would say now, given that it does not answer.
    pub fn look_up_unanswered(&mut self, check: &Check, now: Micros) -> Option<Decision> {
        self.find(check, now, |denial| denial.until)
    }

    fn find(&mut self, check: &Check, now: Micros, end: impl Fn(&Denial) -> Micros) -> Option<Decision> {
        if now < self.latest {
            self.young.clear();
            self.old.clear();
        }
        self.latest = now;
        let denial = self.young.get(check).or_else(|| self.old.get(check))?;
        let elapsed = now.since(denial.asked);
        let aged = || denial.finding.limits.iter().map(|standing| later(*standing, elapsed)).collect();
        (now < end(denial)).then(|| Decision { limits: aged(), ..denial.finding.clone() })
    }

    /// Units were given back: what was known is not certain any more.
    pub fn forget(&mut self, check: &Check) {
        self.young.remove(check);
        self.old.remove(check);
    }
}

/// For how long a denial is certain.
fn certain(limits: &[Limit], finding: &Decision) -> Option<Micros> {
    let lasting =
        limits.iter().zip(&finding.limits).filter(|(limit, _)| !matches!(limit, Limit::Concurrency(_)));
    match lasting.map(|(_, standing)| standing.retry_after).max()? {
        RetryAfter::Now | RetryAfter::Unknown => None,
        RetryAfter::After(span) => Some(span),
        RetryAfter::Never => Some(NEVER),
    }
}

/// The same standing, `elapsed` later.
pub(super) fn later(standing: LimitStatus, elapsed: Micros) -> LimitStatus {
    LimitStatus {
        remaining: standing.remaining,
        retry_after: match standing.retry_after {
            RetryAfter::After(span) if span > elapsed => RetryAfter::After(span.since(elapsed)),
            RetryAfter::After(_) => RetryAfter::Now,
            other => other,
        },
        reset: standing.reset.since(elapsed),
        // Counted from now it is true as well; counted from then it might not be: a full bucket gains nothing.
        window: standing.window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::LeakyBucket;
    use crate::policy::Mode;

    const NOW: Micros = Micros::from_secs(1_700_000_000);
    const HOUR: Micros = Micros::from_secs(3_600);

    fn check(subject: usize) -> Rc<Check> {
        Rc::new(Check {
            policy: 0,
            tier: 0,
            tag: subject.to_string().into_bytes(),
            cost: 1,
            mode: Mode::Enforce,
        })
    }

    const fn standing(retry_after: RetryAfter) -> LimitStatus {
        LimitStatus { remaining: 3, retry_after, reset: Micros(20), window: Micros(30) }
    }

    #[test]
    fn a_subject_is_forgotten_when_as_many_others_were_denied_as_fit() {
        let limits = [LeakyBucket::new(1, HOUR, 2, Micros::ZERO).unwrap().into()];
        let limits_after = [standing(RetryAfter::After(HOUR))].into_iter().collect();
        let finding = Decision { granted: false, delay: Micros::ZERO, limits: limits_after };
        let ttl = DenialTtl { min: HOUR, max: HOUR, unanswered: HOUR };
        let mut denied = Denied::new(Seed(1));
        let remember = |denied: &mut Denied, subjects: std::ops::RangeInclusive<usize>| {
            subjects.for_each(|subject| denied.remember(&check(subject), &limits, &finding, ttl, (NOW, NOW)));
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
            let aged = later(standing(retry_after), Micros(elapsed));
            let wanted = LimitStatus { reset: Micros(reset), ..standing(wanted) };
            assert_eq!(aged, wanted, "{retry_after:?}, {elapsed} later");
        }
    }
}
