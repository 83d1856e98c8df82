// SPDX-License-Identifier: Apache-2.0
//! The loans that this worker asks of other regions, under policies with `regions: share`.
//!
//! Each region has an equal share of every limit. A request that exceeds the share of this region is admitted if the worker has borrowed
//! units for its subject. Borrowed units are a lease: the lender has charged them to its own share, so all regions together never grant
//! more than the limit. Unused units are given back when the lease ends.
//!
//! A worker asks as soon as a request exceeds the share, and then once every sync interval for the cost of the requests that exceeded it in
//! the last one. It divides these units among the other regions, in proportion to what each can be expected to lend by its last answer.
//! For a few requests it asks only some regions, in rotation. A lender keeps [`KEPT_PERCENT`] of its share, so that the first requests of
//! its own clients need no loan.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::engine::generations::Seed;
use crate::inline_vec::InlineVec;
use crate::policy::{Check, Mode, Subject};
use crate::time::Micros;

/// The percentage of its share that a region never lends.
pub(in crate::engine) const KEPT_PERCENT: u8 = 5;

/// Loans are asked for at most this many subjects; the others have the share of this region.
const MAX_SUBJECTS: usize = 4_096;

/// In one sync, at most about this many loans are asked for; other subjects wait for the next.
const MAX_LOANS: usize = 512;

/// A loan to ask of one region.
pub(in crate::engine) struct Loan {
    /// The check of one unit, of the store that is asked.
    pub asks: Rc<Check>,
    /// The subject of the requests that it is for.
    pub subject: Subject,
    pub units: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Loans {
    stores: u8,
    interval: Micros,
    subjects: HashMap<Subject, Demand, Seed>,
    /// Subjects that are asked for now.
    now: Vec<Subject>,
    /// The others, and the uptime at which they are looked at again.
    later: VecDeque<(Micros, Subject)>,
    /// The uptime until which no loan is asked for.
    paused_until: Micros,
}

/// The demand of one subject's requests on other regions.
#[derive(Debug)]
struct Demand {
    /// The cost of the requests that have exceeded this region's share since the last sync: of all of them, and of the most expensive one.
    wanted: u64,
    max_cost: u64,
    lenders: InlineVec<Lender>,
    /// The lender whose loan is used first. It changes with each request, so that all loans are used evenly.
    first: usize,
}

/// Another region.
#[derive(Debug)]
struct Lender {
    /// The check that asks for a loan, unit by unit.
    asks: Rc<Check>,
    /// The check that is charged with a request, so that it is settled there.
    pays: Rc<Check>,
    /// The number of units that it can be expected to lend.
    expected: u32,
}

impl Demand {
    fn new(check: &Check, stores: u8) -> Self {
        let lender = |store| {
            let pays = Check { store, ..check.clone() };
            let asks = Check { cost: 1, kept_percent: KEPT_PERCENT, mode: Mode::Enforce, ..pays.clone() };
            Lender { asks: Rc::new(asks), pays: Rc::new(pays), expected: u32::MAX }
        };
        Self { wanted: 0, max_cost: 0, lenders: (1..stores).map(lender).collect(), first: 0 }
    }

    /// Divides this many requests of `cost` among the lenders, by what can be expected of them. Where there are more lenders than
    /// requests, it is the turn of others each time. Returns the units of each.
    fn divide(&mut self, requests: u32, cost: u64) -> Vec<(Rc<Check>, u32)> {
        let units = u32::try_from(cost.saturating_mul(requests.into())).unwrap_or(u32::MAX);
        self.first = self.first.saturating_add(1).checked_rem(self.lenders.len()).unwrap_or(0);
        // None is written off: a region that had nothing to lend is asked for an eighth at least.
        let weight =
            |lender: &Lender| u128::from(lender.expected.clamp(units.div_ceil(8), units.max(1)).max(1));
        let all: u128 = self.lenders.iter().map(weight).sum();
        let (mut sum, mut divided) = (0_u128, 0_u128);
        let (before, from) = self.lenders.split_at_checked(self.first).unwrap_or_default();
        let part = |lender: &Lender| {
            sum = sum.saturating_add(weight(lender));
            let until = u128::from(requests).saturating_mul(sum).checked_div(all).unwrap_or(0);
            let part = until.saturating_sub(divided);
            divided = until;
            (Rc::clone(&lender.asks), u32::try_from(part.saturating_mul(cost.into())).unwrap_or(u32::MAX))
        };
        from.iter().chain(before).map(part).filter(|(_, part)| *part > 0).collect()
    }
}

impl Loans {
    pub fn new(stores: usize, interval: Micros, seed: Seed) -> Self {
        let (subjects, stores) = (HashMap::with_hasher(seed), u8::try_from(stores).unwrap_or(u8::MAX));
        Self {
            stores,
            interval,
            subjects,
            now: Vec::new(),
            later: VecDeque::new(),
            paused_until: Micros::ZERO,
        }
    }

    /// A request exceeds the share of this region, so other regions are asked for loans. `serves` says whether the loan of one of them
    /// suffices for it. Returns whether one does.
    pub fn want(&mut self, check: &Rc<Check>, serves: &dyn Fn(&Rc<Check>) -> bool) -> bool {
        let subject = check.subject();
        if !self.subjects.contains_key(&subject) {
            if self.subjects.len() >= MAX_SUBJECTS {
                return false;
            }
            self.subjects.insert(subject.clone(), Demand::new(check, self.stores));
            self.now.push(subject.clone());
        }
        let Some(demand) = self.subjects.get_mut(&subject) else { return false };
        // One that reserves nothing passes while a unit is left.
        let need = check.cost.max(1);
        demand.wanted = demand.wanted.saturating_add(need);
        demand.max_cost = demand.max_cost.max(need);
        demand.lenders.iter().any(|lender| serves(&lender.asks))
    }

    /// Serves a request that exceeds the share of this region: `serve` takes it from what one region has lent, if there is anything.
    /// Returns what that returned, and the check that pays for the request.
    pub fn serve<T>(
        &mut self,
        check: &Rc<Check>,
        mut serve: impl FnMut(&Rc<Check>) -> Option<T>,
    ) -> Option<(T, Rc<Check>)> {
        let demand = self.subjects.get_mut(&check.subject())?;
        let count = demand.lenders.len();
        for place in 0..count {
            let lender = demand.lenders.get_mut(demand.first.saturating_add(place).checked_rem(count)?)?;
            if let Some(served) = serve(&lender.asks) {
                // Requests of one subject may differ in these.
                let kind = |check: &Check| {
                    (check.cost, check.kept_percent, check.mode, check.requested, check.is_many)
                };
                if kind(&lender.pays) != kind(check) {
                    lender.pays = Rc::new(Check { store: lender.pays.store, ..Check::clone(check) });
                }
                demand.first = demand.first.saturating_add(place).saturating_add(1).checked_rem(count)?;
                return Some((served, Rc::clone(&lender.pays)));
            }
        }
        None
    }

    /// The uptime at which something is to be asked for; zero for now.
    pub fn due(&self) -> Option<Micros> {
        let next = if self.now.is_empty() { self.later.front().map(|(due, _)| *due)? } else { Micros::ZERO };
        Some(next.max(self.paused_until))
    }

    /// Returns the loans to ask for now. `held` says how much of a subject is borrowed from one region already.
    pub fn take(&mut self, held: &dyn Fn(&Rc<Check>) -> u64, now: Micros) -> Vec<Loan> {
        let mut loans = Vec::new();
        while loans.len() < MAX_LOANS {
            let later = || self.later.pop_front_if(|(due, _)| *due <= now).map(|(_, subject)| subject);
            let Some(subject) = self.now.pop().or_else(later) else { break };
            let Some(demand) = self.subjects.get_mut(&subject) else { continue };
            let (wanted, max_cost) =
                (std::mem::take(&mut demand.wanted), std::mem::take(&mut demand.max_cost));
            if wanted == 0 {
                self.subjects.remove(&subject);
                continue;
            }
            // A quarter more, so that a loan does not run out just before the next one comes. Each loan is enough for the most expensive request.
            let held: u64 = demand.lenders.iter().map(|lender| held(&lender.asks)).sum();
            let enough = wanted.saturating_add(wanted.div_ceil(4));
            let more = enough.saturating_sub(held).div_ceil(max_cost.max(1));
            for (asks, units) in demand.divide(u32::try_from(more).unwrap_or(u32::MAX), max_cost) {
                loans.push(Loan { asks, subject: subject.clone(), units });
            }
            self.later.push_back((now.plus(self.interval), subject));
        }
        // If these were too many, the others wait.
        self.paused_until = if loans.len() < MAX_LOANS { Micros::ZERO } else { now.plus(self.interval) };
        loans
    }

    /// A region was asked for `units` of this subject, and has lent `lent` of them.
    pub fn answered(&mut self, subject: &Subject, store: u8, (units, lent): (u32, u32)) {
        let lenders = self.subjects.get_mut(subject).map(|demand| &mut demand.lenders);
        if let Some(lender) = lenders.into_iter().flatten().find(|lender| lender.asks.store == store) {
            lender.expected = if lent >= units { u32::MAX } else { lent };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(subject: u32) -> Rc<Check> {
        Rc::new(Check::one(0, format!("{{p|{subject}}}")))
    }

    fn demand(stores: u8, expected: &[u32]) -> Demand {
        let mut demand = Demand::new(&check(0), stores);
        demand.lenders.iter_mut().zip(expected).for_each(|(lender, expected)| lender.expected = *expected);
        demand
    }

    #[test]
    fn no_more_is_asked_for_than_is_wanted_and_each_lender_has_its_turn() {
        const ALL: u32 = u32::MAX;
        let rows: [(&str, u8, &[u32], u32); 8] = [
            ("nothing", 3, &[], 0),
            ("one of one", 2, &[], 1),
            ("one of two", 3, &[], 1),
            ("one of 31", 32, &[], 1),
            ("ten of 31", 32, &[], 10),
            ("a thousand of 31", 32, &[], 1_000),
            ("the most", 32, &[], u32::MAX),
            ("some that had little to lend", 5, &[0, 3, ALL, 0], 100),
        ];
        for (name, stores, expected, wanted) in rows {
            let mut demand = demand(stores, expected);
            let mut asked = vec![0_u64; stores.into()];
            for _ in 1..stores {
                let parts = demand.divide(wanted, 1);
                assert!(parts.iter().all(|(_, part)| *part > 0), "{name}: {parts:?}");
                assert_eq!(
                    parts.iter().map(|(_, part)| u64::from(*part)).sum::<u64>(),
                    u64::from(wanted),
                    "{name}"
                );
                parts.iter().for_each(|(asks, part)| asked[usize::from(asks.store)] += u64::from(*part));
            }
            assert_eq!(asked[0], 0, "{name}: none is asked of this region");
            assert!(wanted == 0 || asked[1..].iter().all(|asked| *asked > 0), "{name}: {asked:?}");
        }
    }

    /// The number of loans that are asked for in each sync, for this many subjects and one other region.
    #[test]
    fn a_sync_asks_for_so_many_loans_and_the_next_one_for_the_others() {
        const INTERVAL: Micros = Micros::from_millis(100);
        let now = Micros::from_secs(1_000);
        let nothing = |_: &Rc<Check>| 0;
        for (subjects, first) in [(511, 511), (512, 512), (513, 512), (600, 512)] {
            let mut loans = Loans::new(2, INTERVAL, Seed(1));
            (0..subjects).for_each(|subject| assert!(!loans.want(&check(subject), &|_| false)));
            assert_eq!(loans.due(), Some(Micros::ZERO));
            assert_eq!(loans.take(&nothing, now).len(), first, "{subjects}");
            let next = now.plus(INTERVAL);
            assert_eq!(loans.due(), Some(next), "{subjects}");
            assert_eq!(loans.take(&nothing, next).len(), subjects as usize - first, "{subjects}");
            // The subjects of the first loans are forgotten there, because no request needs them any more.
            let last = (subjects as usize > first).then(|| next.plus(INTERVAL));
            assert_eq!(loans.due(), last, "{subjects}");
            // A few are not too many: a subject that comes now need not wait for the others' time.
            loans.want(&check(1_000), &|_| false);
            assert_eq!(loans.due(), Some(Micros::ZERO), "{subjects}");
        }
    }

    /// Each loan is enough for the most expensive request.
    #[test]
    fn a_subject_has_one_place_whatever_its_requests_cost() {
        let mut loans = Loans::new(3, Micros::from_millis(100), Seed(1));
        for cost in 1..=100 {
            loans.want(&Rc::new(Check { cost, ..Check::clone(&check(0)) }), &|_| false);
        }
        assert_eq!((loans.subjects.len(), loans.now.len()), (1, 1));
        let asked = loans.take(&|_| 0, Micros::from_secs(1_000));
        let asked: Vec<_> = asked.iter().map(|loan| (loan.asks.cost, loan.asks.store, loan.units)).collect();
        // 5,050 and a quarter, in requests of 100.
        assert_eq!(asked, [(1, 2, 3_200), (1, 1, 3_200)]);
    }

    #[test]
    fn a_lender_is_expected_to_lend_what_it_lent_last_or_anything_if_it_lent_all_it_was_asked_for() {
        let mut loans = Loans::new(3, Micros::from_millis(100), Seed(1));
        loans.want(&check(0), &|_| false);
        let expected_of = |loans: &Loans| -> Vec<_> {
            loans.subjects[&check(0).subject()].lenders.iter().map(|lender| lender.expected).collect()
        };
        for (answer, expected) in [((10, 3), 3), ((3, 3), u32::MAX), ((3, 0), 0), ((3, 4), u32::MAX)] {
            loans.answered(&check(0).subject(), 2, answer);
            assert_eq!(expected_of(&loans), [u32::MAX, expected], "{answer:?}");
        }
        loans.answered(&check(7).subject(), 1, (10, 3));
        assert_eq!(expected_of(&loans)[0], u32::MAX, "another subject");
    }
}
