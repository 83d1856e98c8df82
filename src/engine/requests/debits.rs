// SPDX-License-Identifier: Apache-2.0
//! What this worker has granted under policies with `regions: debit`, and has not charged in the other regions yet.
//!
//! Once every sync interval the sum of each subject is charged in each other region, at most once: if the answer does not come, the
//! charge is not sent again, because it may have been made. So a charge that is lost lets other regions admit what they would not have
//! otherwise; one that was made twice would deny what they owe. While a breaker is open, a single unit finds out whether the store answers
//! again, and the others wait.
//!
//! **What no longer matters is dropped**: charges of a subject that has been at rest for as long as its limits take to be whole again, and
//! what is above the most that a limit can be in debt.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::engine::dispatch::Charges;
use crate::engine::seed::Seed;
use crate::inline_vec::InlineVec;
use crate::policy::Check;
use crate::time::Micros;

/// Charges of at most this many subjects wait; those of further ones are dropped.
const MAX_SUBJECTS: usize = 16_384;

/// At most about this many charges are made in one sync; the others wait for the next.
const MAX_CHARGES: usize = 512;

/// A charge of one subject.
pub(in crate::engine) struct Charge {
    /// The check, of the store that is charged.
    pub check: Rc<Check>,
    pub units: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Debits {
    /// The stores of the other regions.
    peers: InlineVec<u8>,
    interval: Micros,
    subjects: HashMap<Rc<Check>, Subject, Seed>,
    /// The subjects, in the order in which they are charged.
    line: VecDeque<Rc<Check>>,
    /// The uptime of the next sync, while any charge waits.
    due: Option<Micros>,
    waiting: u64,
    pub counts: Counts,
}

/// How many units were charged in other regions, each region counted.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Counts {
    pub sent: u64,
    pub dropped: u64,
}

#[derive(Debug)]
struct Subject {
    /// For each of the peers.
    owed: InlineVec<u64>,
    /// When it was last granted something.
    latest: Micros,
    /// The most that it may owe each of them.
    most: u64,
    /// It matters for so long.
    span: Micros,
}

impl Debits {
    pub fn new(stores: usize, interval: Micros, seed: Seed) -> Self {
        let peers = (1..stores).filter_map(|store| u8::try_from(store).ok()).collect();
        let subjects = HashMap::with_hasher(seed);
        let line = VecDeque::new();
        Self { peers, interval, subjects, line, due: None, waiting: 0, counts: Counts::default() }
    }

    /// This region's store has granted so many units. A subject owes at most `most` to each region, and no longer than for `span`.
    pub fn granted(&mut self, check: &Rc<Check>, units: u64, (most, span): (u64, Micros), now: Micros) {
        let peers = self.peers.len();
        if units == 0 || peers == 0 {
            return;
        }
        if self.subjects.len() >= MAX_SUBJECTS && !self.subjects.contains_key(check) {
            self.counts.dropped = self.counts.dropped.saturating_add(units.saturating_mul(peers as u64));
            return;
        }
        let line = &mut self.line;
        let subject = self.subjects.entry(Rc::clone(check)).or_insert_with(|| {
            line.push_back(Rc::clone(check));
            Subject { owed: smallvec::smallvec![0; peers], latest: now, most, span }
        });
        subject.latest = now;
        for owed in &mut subject.owed {
            let (before, sum) = (*owed, owed.saturating_add(units));
            *owed = sum.min(subject.most);
            self.waiting = self.waiting.saturating_add(owed.saturating_sub(before));
            self.counts.dropped = self.counts.dropped.saturating_add(sum.saturating_sub(subject.most));
        }
        self.due.get_or_insert(now.plus(self.interval));
    }

    /// So many units were refunded. What has been charged elsewhere already stays charged.
    pub fn refunded(&mut self, check: &Check, units: u64) {
        if let Some(subject) = self.subjects.get_mut(check) {
            for owed in &mut subject.owed {
                self.waiting = self.waiting.saturating_sub(units.min(*owed));
                *owed = owed.saturating_sub(units);
            }
        }
    }

    /// The worker is about to end: what waits is due now.
    pub fn retire(&mut self) {
        self.due = self.due.map(|_| Micros::ZERO);
    }

    /// The uptime of the next sync.
    pub const fn due(&self) -> Option<Micros> {
        self.due
    }

    /// How many units wait, each region counted.
    pub const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// What is to be charged now. `takes` says which charges a store takes; the others wait.
    pub fn take(&mut self, takes: &dyn Fn(u8) -> Charges, now: Micros) -> Vec<Charge> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut ready: InlineVec<_> = self.peers.iter().map(|store| (*store, takes(*store))).collect();
        let mut charges = Vec::new();
        for _ in 0..self.line.len() {
            let Some(check) = self.line.pop_front_if(|_| charges.len() < MAX_CHARGES) else { break };
            let Some(Subject { owed, latest, span, .. }) = self.subjects.get_mut(&check) else { continue };
            let is_over = now.since(*latest) > *span;
            for ((store, takes), owed) in ready.iter_mut().zip(owed.iter_mut()) {
                let units = match *takes {
                    _ if is_over => *owed,
                    Charges::None => 0,
                    Charges::Probe => (*owed).min(1),
                    Charges::All => *owed,
                };
                if units == 0 {
                    continue;
                }
                if *takes == Charges::Probe && !is_over {
                    *takes = Charges::None;
                }
                *owed = owed.saturating_sub(units);
                self.waiting = self.waiting.saturating_sub(units);
                if is_over {
                    self.counts.dropped = self.counts.dropped.saturating_add(units);
                } else {
                    self.counts.sent = self.counts.sent.saturating_add(units);
                    charges.push(Charge {
                        check: Rc::new(Check { store: *store, ..Check::clone(&check) }),
                        units,
                    });
                }
            }
            if owed.iter().any(|owed| *owed > 0) {
                self.line.push_back(check);
            } else {
                self.subjects.remove(&check);
            }
        }
        self.due = (!self.line.is_empty()).then(|| now.plus(self.interval));
        charges
    }
}
