// SPDX-License-Identifier: Apache-2.0
//! Leases: units for requests that a worker has reserved in the store in advance. It admits requests with them without asking again.
//!
//! Leased units are charged already, so all workers together never admit more than the limit. A worker may deny early, because the other
//! workers hold what is left: at most the policy's `max` each, at the cost of the most expensive request. A request counts from the time at
//! which it was reserved: over a time t, a bucket admits at most burst + rate × (t + duration). A lease from a window ends with the window.
//!
//! The size of a lease follows the subject: it doubles after a lease that ran out, and halves if less than half of a lease was used. Unused
//! units are refunded when a lease ends. When the clock is set back all leases end, because their age is then unknown. A lease that is
//! hardly used costs more than it saves. So a subject gets one only after it has asked, within the duration of a lease, about half as many
//! requests as the smallest lease has.
//!
//! Under `auto` the limits say how large a lease is at most ([`Lease::auto`]), and three more rules apply:
//!
//! - A batch with as many requests as a lease has reserves nothing in advance: the next batch is sent before the lease would be used up.
//! - If the store grants less than it was asked for, because other workers got the units that had just come back, the worker **pauses**: it
//!   denies requests of the subject by itself once it has used its grant. Otherwise each worker would ask in each round trip, and would get
//!   hardly anything.
//! - A pause begins with a round trip. It doubles if less than half was granted, and halves if all was.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::rc::Rc;

use super::RegionUnits;
use super::denied;
use crate::decision::{Decision, LimitStatus};
use crate::engine::generations::Seed;
use crate::limit::{Limit, LimitOutcome, Outcome, RetryAfter};
use crate::policy::{Check, Lease, Subject};
use crate::sorted_map::SortedMap;
use crate::time::Micros;

/// At most this many subjects have leases; the store is asked about each request of the others.
const MAX_LEASED: usize = 16_384;

/// A subject that asks about this many requests within a lease's duration gets a lease, however large the smallest one is.
const ENOUGH: u32 = 8;

/// Under `auto` it is this many. So 10,000 workers without a lease ask about a subject 80,000 times a second at most.
const ENOUGH_FOR_AUTO: u32 = 4;

/// The longest pause.
const MAX_PAUSE: Micros = Micros::from_millis(250);

/// The leases of one worker.
#[derive(Debug)]
pub(in crate::engine) struct Leases {
    subjects: HashMap<Subject, Leased, Seed>,
    /// The time at which to look at each subject again. The number distinguishes subjects that are due at the same time.
    ends: SortedMap<(Micros, u64), Subject>,
    next_end: u64,
    /// The number of units on lease now.
    held: u64,
    /// The units that other regions have lent.
    pub on_loan: RegionUnits,
    /// The latest time seen: an earlier one means that the clock was set back.
    latest: Micros,
    /// The worker is about to end: it reserves nothing in advance.
    pub is_retired: bool,
}

/// The leases of one subject.
#[derive(Debug)]
struct Leased {
    /// The number of requests of the next lease; 0 until the subject has asked about enough requests.
    size: u32,
    /// The number of requests that it asked about before its first lease.
    seen: u32,
    /// The units that the batches in flight ask for in advance.
    asked: u64,
    /// Oldest first. Of the grants that are used up, only the last is kept.
    grants: VecDeque<Grant>,
    /// The length of the last pause, if it has not become shorter since.
    pause: Micros,
    /// The end of the pause.
    paused_until: Micros,
    /// Its key in [`Leases::ends`].
    due: Option<(Micros, u64)>,
}

impl Leased {
    const fn new() -> Self {
        let (pause, paused_until) = (Micros::ZERO, Micros::ZERO);
        Self { size: 0, seen: 0, asked: 0, grants: VecDeque::new(), pause, paused_until, due: None }
    }

    /// The number of units on lease now.
    fn left(&self, now: Micros) -> u64 {
        let live = self.grants.iter().filter(|grant| grant.until > now);
        live.fold(0, |left, grant| left.saturating_add(grant.left))
    }

    /// True if a grant is enough for a request of this cost. A single grant must suffice, because one receipt settles the request.
    fn serves(&self, cost: u64, now: Micros) -> bool {
        self.grants.iter().any(|grant| grant.serves(cost, now))
    }

    /// The grant that says what the store has left. Answers may overtake each other, so the store's time decides which grant
    /// is the newest.
    fn newest(&self) -> Option<&Grant> {
        self.grants.iter().max_by_key(|grant| grant.receipt.at)
    }

    /// The decision about a request that was just served: from the store's last answer, and what is left here.
    fn decision(&self, cost: u64, limits: &[Limit], now: Micros) -> Option<Decision> {
        let newest = self.newest()?;
        let (serves, elapsed) = (self.serves(cost, now), now.since(newest.asked));
        Some(Decision {
            granted: true,
            delay: Micros::ZERO,
            limits: statuses(&newest.receipt, limits, self.left(now), serves)
                .map(|status| denied::later(status, elapsed))
                .collect(),
            ban: RetryAfter::Now,
            own: newest.receipt.own.clone(),
            at: newest.receipt.at.plus(elapsed),
        })
    }
}

/// The status of the limits, for a worker that holds this many units in addition to what `receipt` left, and `serves` one more request with
/// them. None of the limits is of permits: these are not leased.
pub(in crate::engine) fn statuses<'a>(
    receipt: &'a Outcome,
    limits: &'a [Limit],
    held: u64,
    serves: bool,
) -> impl Iterator<Item = LimitStatus> + 'a {
    let status = move |(limit, answer): (&'a Limit, &'a LimitOutcome)| {
        let remaining = answer.remaining.saturating_add_unsigned(held);
        // The limit may have filled up since the units were taken: never report more than it can hold.
        let remaining = u64::try_from(remaining).unwrap_or(0).min(limit.quota());
        let window = limit.effective_window(remaining, 0, answer, receipt.at);
        let retry_after = if serves { RetryAfter::Now } else { answer.retry_after };
        LimitStatus { remaining, retry_after, reset: answer.reset, window }
    };
    receipt.in_force(limits).iter().zip(&receipt.limits).map(status)
}

#[derive(Debug)]
struct Grant {
    /// Units.
    taken: u64,
    left: u64,
    /// The time at which the store was asked.
    asked: Micros,
    until: Micros,
    receipt: Rc<Outcome>,
}

impl Grant {
    /// A request that costs nothing passes where one of cost 1 would.
    const fn serves(&self, cost: u64, now: Micros) -> bool {
        self.left > cost.saturating_sub(1) && self.until.0 > now.0
    }
}

/// A request served from a lease.
pub(in crate::engine) struct Served {
    pub decision: Decision,
    pub receipt: Rc<Outcome>,
}

impl Leases {
    pub fn new(on_loan: RegionUnits, seed: Seed) -> Self {
        Self {
            on_loan,
            subjects: HashMap::with_hasher(seed),
            ends: SortedMap::default(),
            next_end: 0,
            held: 0,
            latest: Micros::ZERO,
            is_retired: false,
        }
    }

    /// The number of units on lease now.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// True if there are no leases, and none are about to be granted.
    pub fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    fn leased(&self, check: &Rc<Check>) -> Option<&Leased> {
        if self.is_empty() { None } else { self.subjects.get(&check.subject()) }
    }

    /// Returns the units of this subject that are on lease now, and the store's answer when it granted the last of them.
    pub fn known(&self, check: &Rc<Check>, now: Micros) -> Option<(u64, Rc<Outcome>)> {
        let leased = self.leased(check)?;
        Some((leased.left(now), Rc::clone(&leased.newest()?.receipt)))
    }

    /// True if a lease is enough for a request of this subject and this cost.
    pub fn serves(&self, check: &Rc<Check>, cost: u64, now: Micros) -> bool {
        self.leased(check).is_some_and(|leased| leased.serves(cost, now))
    }

    /// Serves a request of this cost from the lease of its subject, if that has enough. `limits` are the limits of its policy.
    pub fn serve(&mut self, check: &Rc<Check>, cost: u64, limits: &[Limit], now: Micros) -> Option<Served> {
        let leased = self.subjects.get_mut(&check.subject())?;
        if now < self.latest {
            // The clock was set back: all leases end with the next tick.
            return None;
        }
        self.latest = now;
        while leased.grants.len() > 1 && leased.grants.front().is_some_and(|grant| grant.left == 0) {
            leased.grants.pop_front();
        }
        let grant = leased.grants.iter_mut().find(|grant| grant.serves(cost, now))?;
        grant.left = grant.left.saturating_sub(cost);
        self.held = self.held.saturating_sub(cost);
        self.on_loan.take((check.policy, check.store), cost);
        let receipt = Rc::clone(&grant.receipt);
        Some(Served { decision: leased.decision(cost, limits, now)?, receipt })
    }

    /// Returns the number of requests to ask for in addition to those that wait. With what is on lease, they are at most the maximum of the
    /// lease, at the cost of `check`. Call [`Leases::arrived`] when the answer arrives.
    pub fn take(&mut self, check: &Rc<Check>, lease: Lease, waiting: u32, now: Micros) -> u32 {
        self.latest = self.latest.max(now);
        let subject = check.subject();
        let own = self.subjects.get(&subject).and_then(|leased| leased.newest()?.receipt.own.clone());
        let lease = match own {
            Some(limits) if lease.is_auto => Lease::auto(&limits, check.cost),
            _ => Some(lease),
        };
        let Some(lease) = lease.filter(|lease| !lease.is_auto || waiting < lease.max) else { return 0 };
        if !self.subjects.contains_key(&subject) {
            if self.subjects.len() >= MAX_LEASED || self.is_retired {
                return 0;
            }
            self.subjects.insert(subject.clone(), Leased::new());
            self.remind(now.plus(lease.duration), &subject);
        }
        let Some(leased) = self.subjects.get_mut(&subject).filter(|_| !self.is_retired) else { return 0 };
        if leased.size == 0 {
            leased.seen = leased.seen.saturating_add(waiting);
            let enough = if lease.is_auto { ENOUGH_FOR_AUTO } else { lease.min.div_ceil(2).min(ENOUGH) };
            if leased.seen < enough {
                return 0;
            }
            leased.size = lease.min;
        } else if !leased.grants.is_empty() {
            // The subject asks again before its lease has ended, so the lease ran out.
            leased.size = leased.size.saturating_mul(2).min(lease.max);
        }
        let held = leased.grants.iter().fold(leased.asked, |held, grant| held.saturating_add(grant.left));
        let room = units(lease.max, check).saturating_sub(held);
        // Requests that cost nothing take no room.
        let room =
            room.checked_div(check.cost).map_or(u32::MAX, |room| u32::try_from(room).unwrap_or(u32::MAX));
        let advance = leased.size.min(room);
        leased.asked = leased.asked.saturating_add(units(advance, check));
        advance
    }

    /// The answer to what [`Leases::take`] asked for has arrived, or will not come.
    pub fn arrived(&mut self, check: &Rc<Check>, advance: u32) {
        if self.is_empty() {
            return;
        }
        let subject = check.subject();
        let Some(leased) = self.subjects.get_mut(&subject) else { return };
        leased.asked = leased.asked.saturating_sub(units(advance, check));
        if leased.asked == 0 && leased.due.is_none() {
            self.subjects.remove(&subject);
        }
    }

    /// The store has granted this many of the `wanted` requests, including those in advance. If the worker pauses now, returns when the
    /// pause ends.
    pub fn granted(
        &mut self,
        check: &Rc<Check>,
        wanted: u32,
        outcome: &Outcome,
        (asked, now): (Micros, Micros),
    ) -> Option<Micros> {
        let leased = self.subjects.get_mut(&check.subject())?;
        if outcome.granted >= wanted {
            leased.pause = Micros(leased.pause.0 / 2);
            return None;
        }
        let trip = now.since(asked);
        let wait = outcome.limits.iter().map(|limit| limit.retry_after).max()?;
        // A wait that is longer than a round trip is due to the limit, and not to other workers.
        if wait == RetryAfter::Now || wait > RetryAfter::After(trip) {
            return None;
        }
        if outcome.granted < wanted / 2 {
            leased.pause = leased.pause.plus(leased.pause).max(trip).min(MAX_PAUSE);
        }
        leased.paused_until = now.plus(leased.pause);
        (leased.pause > Micros::ZERO).then_some(leased.paused_until)
    }

    /// While the worker pauses: what the store said last about this subject, when it was asked, and when the pause ends.
    pub fn paused(&self, check: &Rc<Check>, now: Micros) -> Option<(Rc<Outcome>, Micros, Micros)> {
        let leased = self.leased(check).filter(|leased| self.latest <= now && now < leased.paused_until)?;
        let newest = leased.newest()?;
        Some((Rc::clone(&newest.receipt), newest.asked, leased.paused_until))
    }

    /// Keeps `surplus` requests of the grant `receipt`, which was asked for at `asked`: the units that they cost.
    pub fn keep(
        &mut self,
        check: &Rc<Check>,
        lease: Lease,
        limits: &[Limit],
        (surplus, receipt): (u32, &Rc<Outcome>),
        (asked, now): (Micros, Micros),
    ) {
        // If the clock was set back meanwhile, the age of the answer is unknown: the lease ends at once.
        let until = if now < asked { now } else { asked.plus(ends_within(&lease, limits, receipt)) };
        let (subject, left) = (check.subject(), units(surplus, check));
        let leased = self.subjects.entry(subject.clone()).or_insert_with(Leased::new);
        leased.grants.push_back(Grant { taken: left, left, asked, until, receipt: Rc::clone(receipt) });
        if leased.due.is_none_or(|(due, _)| until < due) {
            self.remind(until, &subject);
        }
        self.held = self.held.saturating_add(left);
        self.on_loan.add((check.policy, check.store), left);
    }

    /// The time at which the next lease ends.
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
            && let Some((_, subject)) = self.ends.pop_first()
        {
            self.end(&subject, lease(&subject.0), |grant| grant.until <= now, &mut unused);
        }
        unused
    }

    /// Takes out everything.
    pub fn end_all(&mut self, lease: impl Fn(&Check) -> Option<Lease>) -> Vec<Unused> {
        let mut unused = Vec::new();
        for (_, subject) in self.ends.drain() {
            if let Some(leased) = self.subjects.get_mut(&subject) {
                leased.paused_until = Micros::ZERO;
            }
            self.end(&subject, lease(&subject.0), |_| true, &mut unused);
        }
        unused
    }

    /// Ends the grants of a subject that are over, and enters when to look at it again.
    fn end(
        &mut self,
        subject: &Subject,
        lease: Option<Lease>,
        is_over: impl Fn(&Grant) -> bool,
        unused: &mut Vec<Unused>,
    ) {
        let Some(leased) = self.subjects.get_mut(subject) else { return };
        leased.due = None;
        let (least, duration) = lease.map_or((1, Micros::ZERO), |lease| (lease.min, lease.duration));
        let (over, going_on): (VecDeque<_>, _) = mem::take(&mut leased.grants).into_iter().partition(is_over);
        leased.grants = going_on;
        // A subject without requests for the duration of a lease has not used half of it either. One that has paused had requests.
        let has_paused = leased.paused_until.plus(duration) > self.latest;
        let rested = over.is_empty() && leased.grants.is_empty() && !has_paused;
        if rested || over.iter().any(|grant| grant.left > grant.taken / 2) {
            leased.size /= 2;
        }
        let check = &subject.0;
        for Grant { left: units, receipt, .. } in over.into_iter().filter(|grant| grant.left > 0) {
            self.held = self.held.saturating_sub(units);
            self.on_loan.take((check.policy, check.store), units);
            unused.push(Unused { check: Rc::clone(check), receipt, units });
        }
        if let Some(until) = leased.grants.iter().map(|grant| grant.until).min() {
            self.remind(until, subject);
        } else if leased.asked > 0 {
            // The answer enters the subject again.
        } else if leased.size < least {
            // Nothing is lost: a new subject has the same size.
            self.subjects.remove(subject);
        } else {
            self.remind(self.latest.plus(duration), subject);
        }
    }

    fn remind(&mut self, end: Micros, subject: &Subject) {
        self.next_end = self.next_end.wrapping_add(1);
        let due = (end, self.next_end);
        if let Some(before) = self.subjects.get_mut(subject).and_then(|leased| leased.due.replace(due)) {
            self.ends.remove(&before);
        }
        self.ends.insert(due, subject.clone());
    }
}

/// The cost of this many requests like this one.
fn units(requests: u32, check: &Check) -> u64 {
    check.cost.saturating_mul(requests.into())
}

/// Units of a grant that were not used.
pub(in crate::engine) struct Unused {
    pub check: Rc<Check>,
    pub receipt: Rc<Outcome>,
    pub units: u64,
}

/// The time for which a grant lasts. A request counts in the window in which it was reserved, so a lease cannot outlast that window.
fn ends_within(lease: &Lease, limits: &[Limit], receipt: &Outcome) -> Micros {
    let windows =
        limits.iter().zip(&receipt.limits).filter(|(limit, _)| matches!(limit, Limit::FixedWindow(_)));
    windows.map(|(_, answer)| answer.reset).fold(lease.duration, Micros::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inline_vec::InlineVec;
    use crate::limit::LeakyBucket;

    #[test]
    fn a_subject_has_one_place_whatever_its_requests_cost() {
        let (now, duration) = (Micros(1), Micros::from_secs(1));
        let lease = Lease { max: 4, min: 4, duration, is_auto: false };
        let mut leases = Leases::new(RegionUnits::default(), Seed(1));
        let check = |cost| Rc::new(Check { cost, ..Check::one(0, b"{p|s}") });
        // At most four requests at the cost of the one that asks, with what has been asked for already. Those that cost nothing take none.
        let taken = [5, 3, 10, 0].map(|cost| leases.take(&check(cost), lease, 2, now));
        assert_eq!((taken, leases.subjects.len(), leases.ends.len()), ([4, 0, 2, 4], 1, 1));
        for (cost, advance) in [(5, 4), (10, 2), (0, 4)] {
            leases.arrived(&check(cost), advance);
        }
        assert_eq!(leases.subjects[&check(1).subject()].asked, 0);
    }

    #[test]
    fn grants_that_are_used_up_are_not_gathered() {
        let hour = Micros::from_secs(3_600);
        let limits = [LeakyBucket::new(1, hour, 9, Micros::ZERO).unwrap().into()];
        let lease = Lease { max: 4, min: 4, duration: hour, is_auto: false };
        let check = Rc::new(Check::one(0, b"{p|s}"));
        let mut leases = Leases::new(RegionUnits::default(), Seed(1));
        for second in 0..100 {
            let now = Micros::from_secs(second);
            let mut advance = leases.take(&check, lease, 2, now);
            let limits_after = InlineVec::One(LimitOutcome::default());
            let receipt =
                Rc::new(Outcome { granted: advance + 2, at: now, limits: limits_after, ..Outcome::NONE });
            if advance > 0 {
                leases.keep(&check, lease, &limits, (advance, &receipt), (now, now));
            }
            leases.arrived(&check, advance);
            while leases.serve(&check, 1, &limits, now).is_some() {
                advance -= 1;
            }
            assert_eq!((advance, leases.held()), (0, 0), "all are used");
            let grants = leases.subjects.get(&check.subject()).map_or(0, |leased| leased.grants.len());
            assert!(grants <= 2, "{grants} grants after {second} s");
        }
    }
}
