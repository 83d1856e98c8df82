// SPDX-License-Identifier: Apache-2.0
//! Leases: requests that a worker has taken from the store in advance, and admits without asking again.
//!
//! Leased requests are charged already, so all workers together never admit more than the limit. A worker may deny early,
//! because the other workers hold what is left: at most the policy's `max` each. A request counts from the time at which it was
//! taken: over a time t, a bucket admits at most burst + rate × (t + duration). A lease from a window ends with the window.
//!
//! The size of a lease follows the subject: it doubles after a lease that ran out, and halves after a lease of which less than
//! half was used. What is left when a lease ends is refunded. When the clock is set back all leases end, because their age is
//! then unknown. A lease that is hardly used costs more than it saves. So a subject gets one only after it has asked, within the
//! duration of a lease, about half as many requests as the smallest lease has.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::denied;
use super::pairs::Pairs;
use crate::decision::{Decision, LimitStatus};
use crate::engine::seed::Seed;
use crate::inline_vec::InlineVec;
use crate::limit::{Ask, Limit, LimitOutcome, Outcome, RetryAfter};
use crate::policy::{Check, Lease};
use crate::sorted_map::SortedMap;
use crate::time::Micros;

/// At most this many subjects have leases; the store is asked about each request of the others.
const MAX_LEASED: usize = 16_384;

/// A subject that asks about this many requests within a lease's duration gets a lease, however large the smallest one is.
const ENOUGH: u32 = 8;

/// The leases of one worker.
#[derive(Debug)]
pub(super) struct Leases {
    subjects: HashMap<Rc<Check>, Subject, Seed>,
    /// When to look at each subject again. The number tells apart subjects that are due at the same time.
    ends: SortedMap<(Micros, u64), Rc<Check>>,
    next_end: u64,
    /// How many requests are on lease now.
    held: u64,
    /// Those that other regions have lent.
    pub on_loan: Pairs,
    /// The latest time seen: an earlier one means that the clock was set back.
    latest: Micros,
}

#[derive(Debug)]
struct Subject {
    /// The size of the next lease; 0 until the subject has asked about enough requests.
    size: u32,
    /// How many requests it asked about before its first lease.
    seen: u32,
    /// How many requests in advance the batches in flight ask for.
    asked: u32,
    /// Oldest first. Of the grants that are used up, only the last is kept.
    grants: VecDeque<Grant>,
    /// Its key in [`Leases::ends`].
    due: Option<(Micros, u64)>,
}

impl Subject {
    const fn new() -> Self {
        Self { size: 0, seen: 0, asked: 0, grants: VecDeque::new(), due: None }
    }

    /// How many requests are on lease now.
    fn left(&self, now: Micros) -> u64 {
        let live = self.grants.iter().filter(|grant| grant.until > now);
        live.fold(0, |left, grant| left.saturating_add(grant.left.into()))
    }

    /// The grant that says what the store has left. Answers may overtake each other, so the store's time decides which grant
    /// is the newest.
    fn newest(&self) -> Option<&Grant> {
        self.grants.iter().max_by_key(|grant| grant.receipt.at)
    }

    /// The decision about a request that was just served: from the store's last answer, and what is left here.
    fn decision(&self, check: &Check, limits: &[Limit], now: Micros) -> Option<Decision> {
        let newest = self.newest()?;
        let (left, elapsed) = (self.left(now), now.since(newest.asked));
        let ask = check.ask(1);
        let told = |status: LimitStatus| {
            let aged = denied::later(status, elapsed);
            if left > 0 { LimitStatus { retry_after: RetryAfter::Now, ..aged } } else { aged }
        };
        let limits = statuses(&newest.receipt, limits, left, ask).into_iter().map(told).collect();
        Some(Decision {
            granted: true,
            delay: Micros::ZERO,
            limits,
            ban: RetryAfter::Now,
            own: newest.receipt.own.clone(),
        })
    }
}

/// The status of the limits, for a worker that holds this many requests in addition to what `receipt` left.
pub(super) fn statuses(receipt: &Outcome, limits: &[Limit], held: u64, ask: Ask) -> InlineVec<LimitStatus> {
    let status = |(limit, answer): (&Limit, &LimitOutcome)| {
        let remaining = answer.remaining.saturating_add_unsigned(held.saturating_mul(limit.cost(ask)));
        // The limit may have filled up since the requests were taken: never report more than it can hold.
        let remaining = u64::try_from(remaining).unwrap_or(0).min(limit.quota());
        let window = limit.effective_window(remaining, 0, answer, receipt.at);
        LimitStatus { remaining, retry_after: answer.retry_after, reset: answer.reset, window }
    };
    receipt.in_force(limits).iter().zip(&receipt.limits).map(status).collect()
}

#[derive(Debug)]
struct Grant {
    taken: u32,
    left: u32,
    /// When the store was asked.
    asked: Micros,
    until: Micros,
    receipt: Rc<Outcome>,
}

/// A request served from a lease.
pub(super) struct Served {
    pub decision: Decision,
    pub receipt: Rc<Outcome>,
}

impl Leases {
    pub fn new(on_loan: Pairs, seed: Seed) -> Self {
        Self {
            on_loan,
            subjects: HashMap::with_hasher(seed),
            ends: SortedMap::default(),
            next_end: 0,
            held: 0,
            latest: Micros::ZERO,
        }
    }

    /// How many requests are on lease now.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// How many requests of this subject are on lease now, and what the store said when it granted the last of them.
    pub fn known(&self, check: &Check, now: Micros) -> Option<(u64, Rc<Outcome>)> {
        let subject = self.subjects.get(check)?;
        Some((subject.left(now), Rc::clone(&subject.newest()?.receipt)))
    }

    /// Serves a request from the lease of its subject, if there is one. `limits` are the limits of its policy.
    pub fn serve(&mut self, check: &Check, limits: &[Limit], now: Micros) -> Option<Served> {
        let subject = self.subjects.get_mut(check)?;
        if now < self.latest {
            // The clock was set back: all leases end with the next tick.
            return None;
        }
        self.latest = now;
        while subject.grants.len() > 1 && subject.grants.front().is_some_and(|grant| grant.left == 0) {
            subject.grants.pop_front();
        }
        let grant = subject.grants.iter_mut().find(|grant| grant.left > 0 && grant.until > now)?;
        grant.left = grant.left.saturating_sub(1);
        self.held = self.held.saturating_sub(1);
        self.on_loan.take((check.policy, check.store), 1);
        let receipt = Rc::clone(&grant.receipt);
        Some(Served { decision: subject.decision(check, limits, now)?, receipt })
    }

    /// How many requests to ask for in addition to those that wait. With those on lease, they are at most the maximum of the
    /// lease. Call [`Leases::arrived`] when the answer arrives.
    pub fn take(&mut self, check: &Rc<Check>, lease: &Lease, waiting: u32, now: Micros) -> u32 {
        self.latest = self.latest.max(now);
        if !self.subjects.contains_key(check) {
            if self.subjects.len() >= MAX_LEASED {
                return 0;
            }
            self.subjects.insert(Rc::clone(check), Subject::new());
            self.remind(now.plus(lease.duration), check);
        }
        let Some(subject) = self.subjects.get_mut(check) else { return 0 };
        if subject.size == 0 {
            subject.seen = subject.seen.saturating_add(waiting);
            if subject.seen < lease.min.div_ceil(2).min(ENOUGH) {
                return 0;
            }
            subject.size = lease.min;
        } else if !subject.grants.is_empty() {
            // The subject asks again before its lease has ended, so the lease ran out.
            subject.size = subject.size.saturating_mul(2).min(lease.max);
        }
        let held = subject.grants.iter().fold(subject.asked, |held, grant| held.saturating_add(grant.left));
        let advance = subject.size.min(lease.max.saturating_sub(held));
        subject.asked = subject.asked.saturating_add(advance);
        advance
    }

    /// The answer to what [`Leases::take`] asked for has arrived, or will not come.
    pub fn arrived(&mut self, check: &Check, advance: u32) {
        let Some(subject) = self.subjects.get_mut(check) else { return };
        subject.asked = subject.asked.saturating_sub(advance);
        if subject.asked == 0 && subject.due.is_none() {
            self.subjects.remove(check);
        }
    }

    /// Keeps `surplus` requests of the grant `receipt`, which was asked for at `asked`.
    pub fn keep(
        &mut self,
        check: &Rc<Check>,
        lease: &Lease,
        limits: &[Limit],
        (surplus, receipt): (u32, &Rc<Outcome>),
        (asked, now): (Micros, Micros),
    ) {
        // If the clock was set back meanwhile, the age of the answer is unknown: the lease ends at once.
        let until = if now < asked { now } else { asked.plus(ends_within(lease, limits, receipt)) };
        let subject = self.subjects.entry(Rc::clone(check)).or_insert_with(Subject::new);
        let (taken, left) = (surplus, surplus);
        subject.grants.push_back(Grant { taken, left, asked, until, receipt: Rc::clone(receipt) });
        if subject.due.is_none_or(|(due, _)| until < due) {
            self.remind(until, check);
        }
        self.held = self.held.saturating_add(u64::from(surplus));
        self.on_loan.add((check.policy, check.store), u64::from(surplus));
    }

    /// When the next lease ends.
    pub fn next_end(&self) -> Option<Micros> {
        self.ends.first().map(|((until, _), _)| *until)
    }

    /// Takes out the grants that have ended by now; all of them, if the clock was set back.
    pub fn ended(&mut self, now: Micros, lease: impl Fn(&Check) -> Option<Lease>) -> Vec<Unused> {
        let set_back = now < self.latest;
        self.latest = now;
        if set_back {
            return self.end_all(lease);
        }
        let mut unused = Vec::new();
        while self.ends.first().is_some_and(|((until, _), _)| *until <= now)
            && let Some((_, check)) = self.ends.pop_first()
        {
            self.end(&check, lease(&check), |grant| grant.until <= now, &mut unused);
        }
        unused
    }

    /// Takes out everything.
    pub fn end_all(&mut self, lease: impl Fn(&Check) -> Option<Lease>) -> Vec<Unused> {
        let mut unused = Vec::new();
        for (_, check) in self.ends.drain() {
            self.end(&check, lease(&check), |_| true, &mut unused);
        }
        unused
    }

    /// Ends the grants of a subject that are over, and enters when to look at it again.
    fn end(
        &mut self,
        check: &Rc<Check>,
        lease: Option<Lease>,
        is_over: impl Fn(&Grant) -> bool,
        unused: &mut Vec<Unused>,
    ) {
        let Some(subject) = self.subjects.get_mut(check) else { return };
        subject.due = None;
        let (least, duration) = lease.map_or((1, Micros::ZERO), |lease| (lease.min, lease.duration));
        let (over, going_on): (VecDeque<_>, _) = subject.grants.drain(..).partition(is_over);
        subject.grants = going_on;
        // A subject without requests for the duration of a lease has not used half of it either.
        let rested = over.is_empty() && subject.grants.is_empty();
        if rested || over.iter().any(|grant| grant.left > grant.taken / 2) {
            subject.size /= 2;
        }
        for Grant { left: requests, receipt, .. } in over.into_iter().filter(|grant| grant.left > 0) {
            self.held = self.held.saturating_sub(u64::from(requests));
            self.on_loan.take((check.policy, check.store), u64::from(requests));
            unused.push(Unused { check: Rc::clone(check), receipt, requests });
        }
        if let Some(until) = subject.grants.iter().map(|grant| grant.until).min() {
            self.remind(until, check);
        } else if subject.asked > 0 {
            // The answer enters the subject again.
        } else if subject.size < least {
            // Nothing is lost: a new subject has the same size.
            self.subjects.remove(check);
        } else {
            self.remind(self.latest.plus(duration), check);
        }
    }

    fn remind(&mut self, end: Micros, check: &Rc<Check>) {
        self.next_end = self.next_end.wrapping_add(1);
        let due = (end, self.next_end);
        if let Some(before) = self.subjects.get_mut(check).and_then(|subject| subject.due.replace(due)) {
            self.ends.remove(&before);
        }
        self.ends.insert(due, Rc::clone(check));
    }
}

/// Requests of a grant that were not used.
pub(super) struct Unused {
    pub check: Rc<Check>,
    pub receipt: Rc<Outcome>,
    pub requests: u32,
}

/// How long a grant lasts. A request counts in the window that it was taken from, so a lease cannot outlast that window.
fn ends_within(lease: &Lease, limits: &[Limit], receipt: &Outcome) -> Micros {
    let windows =
        limits.iter().zip(&receipt.limits).filter(|(limit, _)| matches!(limit, Limit::FixedWindow(_)));
    windows.map(|(_, answer)| answer.reset).fold(lease.duration, Micros::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::LeakyBucket;

    #[test]
    fn grants_that_are_used_up_are_not_gathered() {
        let hour = Micros::from_secs(3_600);
        let limits = [LeakyBucket::new(1, hour, 9, Micros::ZERO).unwrap().into()];
        let (check, lease) = (Rc::new(Check::one(0, b"{p|s}")), Lease { max: 4, min: 4, duration: hour });
        let mut leases = Leases::new(Pairs::default(), Seed(1));
        for second in 0..100 {
            let now = Micros::from_secs(second);
            let mut advance = leases.take(&check, &lease, 2, now);
            let limits_after = vec![LimitOutcome::default()];
            let receipt = Rc::new(Outcome {
                granted: advance + 2,
                at: now,
                limits: limits_after,
                own: None,
                ban: RetryAfter::Now,
            });
            if advance > 0 {
                leases.keep(&check, &lease, &limits, (advance, &receipt), (now, now));
            }
            leases.arrived(&check, advance);
            while leases.serve(&check, &limits, now).is_some() {
                advance -= 1;
            }
            assert_eq!((advance, leases.held()), (0, 0), "all are used");
            let grants = leases.subjects.get(&check).map_or(0, |subject| subject.grants.len());
            assert!(grants <= 2, "{grants} grants after {second} s");
        }
    }
}
