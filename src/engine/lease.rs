//! Leases: requests that a worker has taken from the store in advance, and admits without asking again.
//!
//! What is on lease is charged already, so all workers together never admit more than the limit; one may deny early
//! because another holds what is left, by at most the policy's `most` for each other worker. A request counts from when it
//! was taken: over a time t, a bucket admits at most burst + rate × (t + duration). Those of a window end with it.
//!
//! How many are taken follows the subject: twice as many after a lease that ran out, half as many after one that was
//! not half used. What is left when a lease ends goes back to the store. A lease that is hardly used costs more than it saves,
//! the way back included, so there is none for a subject
//! that has not shown, within a lease's duration, that it would use half of the least.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use super::seed::Seed;
use crate::decision::Finding;
use crate::limit::{Limit, Outcome};
use crate::policy::{Check, Lease};
use crate::time::Micros;

/// At most this many subjects have leases; requests of others are asked about one by one.
const MAX_LEASED: usize = 16_384;

/// A subject that asks about so many requests within a lease's duration is leased to, however large the least lease is.
const SHOWN: u32 = 8;

/// The leases of one worker.
#[derive(Debug)]
pub(super) struct Leases {
    subjects: HashMap<Rc<Check>, Subject, Seed>,
    /// When to look at whom: each subject once. The number tells apart those that are due together.
    ends: BTreeMap<(Micros, u64), Rc<Check>>,
    next_end: u64,
    /// How many requests are on lease now.
    held: u64,
}

#[derive(Debug)]
struct Subject {
    /// How many to take next time; none yet of a subject that has not shown that it would use them.
    size: u32,
    /// Until then: how many requests it has asked about.
    seen: u32,
    /// How many are asked for now.
    asked: u32,
    /// Oldest first; of those that are used up only the last.
    grants: VecDeque<Grant>,
    /// Where in [`Leases::ends`] it stands.
    due: Option<(Micros, u64)>,
}

impl Subject {
    const fn new() -> Self {
        Self { size: 0, seen: 0, asked: 0, grants: VecDeque::new(), due: None }
    }
}

#[derive(Debug)]
struct Grant {
    taken: u32,
    left: u32,
    until: Micros,
    paid: Rc<Outcome>,
    finding: Finding,
}

/// A request served from a lease.
pub(super) struct Served {
    pub finding: Finding,
    pub paid: Rc<Outcome>,
}

impl Leases {
    pub fn new(seed: Seed) -> Self {
        Self { subjects: HashMap::with_hasher(seed), ends: BTreeMap::new(), next_end: 0, held: 0 }
    }

    /// How many requests are on lease now.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Serves a request, if one of its subject is on lease.
    pub fn serve(&mut self, check: &Check, now: Micros) -> Option<Served> {
        let subject = self.subjects.get_mut(check)?;
        while subject.grants.len() > 1 && subject.grants.front().is_some_and(|grant| grant.left == 0) {
            subject.grants.pop_front();
        }
        let grant = subject.grants.iter_mut().find(|grant| grant.left > 0 && grant.until > now)?;
        grant.left = grant.left.saturating_sub(1);
        self.held = self.held.saturating_sub(1);
        Some(Served { finding: grant.finding.clone(), paid: Rc::clone(&grant.paid) })
    }

    /// How many requests to ask for beyond those that wait: with what is held already, `most` at most. To be told of the
    /// answer by [`Leases::arrived`].
    pub fn take(&mut self, check: &Rc<Check>, lease: &Lease, waiting: u32, now: Micros) -> u32 {
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
            if subject.seen < lease.least.div_ceil(2).min(SHOWN) {
                return 0;
            }
            subject.size = lease.least;
        } else if !subject.grants.is_empty() {
            // Asked again before a lease has ended: it ran out.
            subject.size = subject.size.saturating_mul(2).min(lease.most);
        }
        let held = subject.grants.iter().fold(subject.asked, |held, grant| held.saturating_add(grant.left));
        let advance = subject.size.min(lease.most.saturating_sub(held));
        subject.asked = subject.asked.saturating_add(advance);
        advance
    }

    /// So many that [`Leases::take`] asked for were granted and are kept, or were not.
    pub fn arrived(&mut self, check: &Check, advance: u32) {
        let Some(subject) = self.subjects.get_mut(check) else { return };
        subject.asked = subject.asked.saturating_sub(advance);
        if subject.asked == 0 && subject.due.is_none() {
            self.subjects.remove(check);
        }
    }

    /// Keeps `surplus` of what `paid` granted, asked for at `asked`.
    pub fn keep(
        &mut self,
        check: &Rc<Check>,
        lease: &Lease,
        limits: &[Limit],
        (surplus, paid, finding): (u32, &Rc<Outcome>, Finding),
        asked: Micros,
    ) {
        let until = asked.plus(ends_within(lease, limits, paid));
        let subject = self.subjects.entry(Rc::clone(check)).or_insert_with(Subject::new);
        let (taken, left) = (surplus, surplus);
        subject.grants.push_back(Grant { taken, left, until, paid: Rc::clone(paid), finding });
        if subject.due.is_none_or(|(due, _)| until < due) {
            self.remind(until, check);
        }
        self.held = self.held.saturating_add(u64::from(surplus));
    }

    /// When the next lease ends.
    pub fn next_end(&self) -> Option<Micros> {
        self.ends.first_key_value().map(|((until, _), _)| *until)
    }

    /// Takes out what has ended by now: for each grant, how many of its requests go back.
    pub fn ended(&mut self, now: Micros, lease: impl Fn(&Check) -> Option<Lease>) -> Vec<Returned> {
        let mut returned = Vec::new();
        while let Some(end) = self.ends.first_entry().filter(|end| end.key().0 <= now) {
            let check = end.remove();
            let Some(subject) = self.subjects.get_mut(&check) else { continue };
            subject.due = None;
            let (least, duration) =
                lease(&check).map_or((1, Micros::ZERO), |lease| (lease.least, lease.duration));
            let (over, going_on): (VecDeque<_>, _) =
                subject.grants.drain(..).partition(|grant| grant.until <= now);
            subject.grants = going_on;
            // A subject that has rested for a lease's duration has not used half of it either.
            let rested = over.is_empty() && subject.grants.is_empty();
            if rested || over.iter().any(|grant| grant.left > grant.taken / 2) {
                subject.size /= 2;
            }
            for Grant { left: requests, paid, .. } in over.into_iter().filter(|grant| grant.left > 0) {
                self.held = self.held.saturating_sub(u64::from(requests));
                returned.push(Returned { check: Rc::clone(&check), paid, requests });
            }
            if let Some(until) = subject.grants.iter().map(|grant| grant.until).min() {
                self.remind(until, &check);
            } else if subject.asked > 0 {
                // The answer will see to it.
            } else if subject.size < least {
                // What is known of it is what is assumed of a stranger.
                self.subjects.remove(&check);
            } else {
                self.remind(now.plus(duration), &check);
            }
        }
        returned
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

/// What goes back to the store.
pub(super) struct Returned {
    pub check: Rc<Check>,
    pub paid: Rc<Outcome>,
    pub requests: u32,
}

/// A request taken from a window is a request of that window: it cannot be kept beyond its end.
fn ends_within(lease: &Lease, limits: &[Limit], paid: &Outcome) -> Micros {
    let windows = limits.iter().zip(&paid.limits).filter(|(limit, _)| matches!(limit, Limit::FixedWindow(_)));
    windows.map(|(_, answer)| answer.reset).fold(lease.duration, Micros::min)
}
