// SPDX-License-Identifier: Apache-2.0
//! The units that this worker has granted under policies with `regions: debit`, and has not charged in the other regions yet.
//!
//! Once every sync interval the sum of each subject is charged in each other region, at most once: if the answer does not come, the charge
//! is not sent again, because the store may have made it. If a charge is lost, other regions admit too much. If a charge were made twice,
//! they would deny requests within the limit. While a breaker is open, a single unit finds out whether the store answers again, and the
//! others wait.
//!
//! **What no longer matters is dropped**: charges of a subject that had no grants for as long as its limits need to become whole, and units
//! above the maximum debt of a limit. When a worker ends, the units left after its last sync are dropped, too.
//!
//! **The lag** of a region is the age of the oldest grant whose charge is not confirmed there: it waits, or is in flight. Charges are told
//! apart by the sync that sent them, and those of an earlier sync are assumed to be answered first.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::RegionUnits;
use crate::config::Config;
use crate::engine::generations::Seed;
use crate::engine::store::Charges;
use crate::inline_vec::InlineVec;
use crate::policy::{Check, Subject};
use crate::time::Micros;

/// Charges of at most this many subjects wait; those of further ones are dropped.
const MAX_SUBJECTS: usize = 16_384;

/// At most about this many charges are made in one sync; the others wait for the next.
const MAX_CHARGES: usize = 512;

/// At most this many syncs are distinguished while they are in flight; further ones count as the last of these.
const MAX_SYNCS: usize = 64;

/// A region is late when its lag is this many times the sync interval and its deadline. A batch that is lost is abandoned after two
/// deadlines, so a single one makes no region late.
const LATE: u64 = 3;

/// A charge of one subject.
pub(in crate::engine) struct Charge {
    /// The check, of the store that is charged.
    pub check: Rc<Check>,
    pub units: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Debits {
    /// The other regions, in the order of their stores.
    peers: Vec<PeerDebts>,
    interval: Micros,
    subjects: HashMap<Subject, Debt, Seed>,
    /// The subjects, in the order in which they are charged.
    queue: VecDeque<Subject>,
    /// The uptime of the next sync, while any charge waits or is in flight.
    due: Option<Micros>,
    waiting: u64,
    pub counts: Counts,
    /// The units whose charge is not confirmed, of each policy in each region.
    unanswered: RegionUnits,
    is_retired: bool,
}

/// The units charged in other regions, each region counted.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Counts {
    pub sent: u64,
    pub answered: u64,
    pub dropped: u64,
}

/// Another region.
#[derive(Debug)]
struct PeerDebts {
    store: u8,
    /// The lag from which on it is late.
    late: Micros,
    waiting: u64,
    counts: Counts,
    /// The earliest time at which the oldest waiting unit can have been granted.
    since: Option<Micros>,
    /// The time at which it last did not accept all waiting charges.
    refused_at: Micros,
    /// The units of each sync that are in flight, and when the oldest of them was granted.
    in_flight: VecDeque<(Micros, u64)>,
}

impl PeerDebts {
    fn lag(&self, now: Micros) -> Micros {
        let oldest = self.in_flight.front().map(|(since, _)| *since).into_iter().chain(self.since).min();
        oldest.map_or(Micros::ZERO, |oldest| now.since(oldest))
    }

    fn dropped(&mut self, units: u64) {
        self.counts.dropped = self.counts.dropped.saturating_add(units);
    }

    /// Subtracts this number of units from those that wait.
    fn subtract_waiting(&mut self, units: u64) {
        self.waiting = self.waiting.saturating_sub(units);
        if self.waiting == 0 {
            self.since = None;
        }
    }

    /// A sync has sent this many units, the oldest granted at this time.
    fn sent(&mut self, since: Micros, units: u64) {
        self.counts.sent = self.counts.sent.saturating_add(units);
        let is_full = self.in_flight.len() >= MAX_SYNCS;
        match self.in_flight.back_mut().filter(|_| is_full) {
            Some((_, last)) => *last = last.saturating_add(units),
            None => self.in_flight.push_back((since, units)),
        }
    }
}

/// The debt of a subject.
#[derive(Debug)]
struct Debt {
    /// For each of the peers.
    owed: InlineVec<u64>,
    /// The time at which it was put at its place in the queue of charges.
    queued: Micros,
    /// The time at which it was last granted something.
    latest: Micros,
    /// The most that it may owe each of them.
    most: u64,
    /// The time for which it matters.
    span: Micros,
}

/// The debt to one region.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Owed {
    pub counts: Counts,
    pub waiting: u64,
    pub lag: Micros,
    pub is_late: bool,
}

impl Debits {
    pub fn new(config: &Config, seed: Seed) -> Self {
        let interval = config.regions.sync_interval;
        let others = config.regions.all.iter().zip(0_u8..).skip(1);
        let peers = others.map(|(region, store)| PeerDebts {
            store,
            late: Micros(interval.plus(region.deadline).0.saturating_mul(LATE)),
            waiting: 0,
            counts: Counts::default(),
            since: None,
            refused_at: Micros::ZERO,
            in_flight: VecDeque::new(),
        });
        Self {
            peers: peers.collect(),
            interval,
            subjects: HashMap::with_hasher(seed),
            queue: VecDeque::new(),
            due: None,
            waiting: 0,
            counts: Counts::default(),
            unanswered: RegionUnits::new(config),
            is_retired: false,
        }
    }

    /// This region's store has granted this many units. A subject owes at most `most` to each region, and no longer than for `span`.
    pub fn granted(&mut self, check: &Rc<Check>, units: u64, (most, span): (u64, Micros), now: Micros) {
        let count = self.peers.len();
        if units == 0 {
            return;
        }
        let subject = check.subject();
        if self.subjects.len() >= MAX_SUBJECTS && !self.subjects.contains_key(&subject) {
            self.counts.dropped = self.counts.dropped.saturating_add(units.saturating_mul(count as u64));
            return self.peers.iter_mut().for_each(|peer| peer.dropped(units));
        }
        let due = if self.is_retired { now } else { now.plus(self.interval) };
        // Charges that are only in flight do not hasten the next sync.
        if self.queue.is_empty() {
            self.due = Some(due);
        }
        let queue = &mut self.queue;
        let debt = self.subjects.entry(subject).or_insert_with_key(|subject| {
            queue.push_back(subject.clone());
            Debt { owed: InlineVec::repeat(0, count), queued: now, latest: now, most, span }
        });
        debt.latest = now;
        for (peer, owed) in self.peers.iter_mut().zip(&mut debt.owed) {
            let (before, sum) = (*owed, owed.saturating_add(units));
            *owed = sum.min(debt.most);
            let (more, over) = (owed.saturating_sub(before), sum.saturating_sub(debt.most));
            peer.waiting = peer.waiting.saturating_add(more);
            peer.since.get_or_insert(now);
            peer.dropped(over);
            self.unanswered.add((check.policy, peer.store), more);
            self.waiting = self.waiting.saturating_add(more);
            self.counts.dropped = self.counts.dropped.saturating_add(over);
        }
    }

    /// So many units were refunded. Units that have been charged elsewhere already stay charged.
    pub fn refunded(&mut self, check: &Rc<Check>, units: u64) {
        let Some(debt) = self.subjects.get_mut(&check.subject()) else { return };
        for (peer, owed) in self.peers.iter_mut().zip(&mut debt.owed) {
            let less = units.min(*owed);
            *owed = owed.saturating_sub(less);
            peer.subtract_waiting(less);
            self.unanswered.take((check.policy, peer.store), less);
            self.waiting = self.waiting.saturating_sub(less);
        }
    }

    /// The worker is about to end: what waits is due now, and what is not sent then is dropped.
    pub fn retire(&mut self) {
        self.is_retired = true;
        self.due = self.due.map(|_| Micros::ZERO);
        self.unanswered.changes = self.unanswered.changes.wrapping_add(1);
    }

    /// The uptime of the next sync.
    pub const fn due(&self) -> Option<Micros> {
        self.due
    }

    /// The number of units that wait, each region counted.
    pub const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns the debt to the region of this store.
    pub fn owed(&self, store: u8, now: Micros) -> Owed {
        let Some(peer) = self.peer(store) else { return Owed::default() };
        if self.is_retired {
            return Owed { counts: peer.counts, ..Owed::default() };
        }
        let lag = peer.lag(now);
        Owed { counts: peer.counts, waiting: peer.waiting, lag, is_late: lag > peer.late }
    }

    /// The units of a policy whose charge the region of this store has not confirmed.
    pub fn unanswered(&self, policy: usize, store: u8) -> u64 {
        if self.is_retired { 0 } else { self.unanswered.get((policy, store)) }
    }

    /// The number of changes to any of this.
    pub const fn changes(&self) -> u64 {
        self.unanswered.changes
    }

    fn peer(&self, store: u8) -> Option<&PeerDebts> {
        self.peers.get(usize::from(store).checked_sub(1)?)
    }

    /// Returns the charges to make now. `takes` says which charges a store accepts; the others wait.
    pub fn take(&mut self, takes: &dyn Fn(u8) -> Charges, now: Micros) -> Vec<Charge> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let ready = self.peers.iter_mut().map(|peer| {
            let takes = takes(peer.store);
            if takes != Charges::All {
                peer.refused_at = now;
            }
            (takes, 0_u64)
        });
        let mut ready: InlineVec<_> = ready.collect();
        let mut charges = Vec::new();
        let mut left = self.queue.len();
        while left > 0
            && let Some(subject) = self.queue.pop_front_if(|_| charges.len() < MAX_CHARGES)
        {
            left = left.saturating_sub(1);
            let Some(Debt { owed, latest, span, queued, .. }) = self.subjects.get_mut(&subject) else {
                continue;
            };
            let check = &*subject.0;
            let is_over = now.since(*latest) > *span;
            *queued = now;
            for ((peer, (takes, sent)), owed) in self.peers.iter_mut().zip(&mut ready).zip(owed.iter_mut()) {
                let units = match *takes {
                    _ if is_over => *owed,
                    Charges::None => 0,
                    Charges::Probe => (*owed).min(1),
                    Charges::All => *owed,
                };
                if units == 0 {
                    continue;
                }
                *owed = owed.saturating_sub(units);
                peer.waiting = peer.waiting.saturating_sub(units);
                self.waiting = self.waiting.saturating_sub(units);
                if is_over {
                    peer.dropped(units);
                    self.counts.dropped = self.counts.dropped.saturating_add(units);
                    self.unanswered.take((check.policy, peer.store), units);
                    continue;
                }
                if *takes == Charges::Probe {
                    *takes = Charges::None;
                }
                *sent = sent.saturating_add(units);
                charges.push(Charge { check: Rc::new(Check { store: peer.store, ..check.clone() }), units });
            }
            if owed.iter().any(|owed| *owed > 0) {
                self.queue.push_back(subject);
            } else {
                self.subjects.remove(&subject);
            }
        }
        // The subjects that were not looked at are first in the queue.
        let next = self.queue.front().filter(|_| left > 0).and_then(|subject| self.subjects.get(subject));
        for (peer, (_, sent)) in self.peers.iter_mut().zip(ready) {
            if sent > 0 {
                peer.sent(peer.since.unwrap_or(now), sent);
                self.counts.sent = self.counts.sent.saturating_add(sent);
            }
            // The region has taken all that is owed by a subject that came to its place later.
            let queued = next.map(|next| next.queued).filter(|queued| *queued > peer.refused_at);
            peer.since = peer.since.map(|since| queued.map_or(since, |queued| queued.max(since)));
            peer.subtract_waiting(0);
        }
        if self.is_retired {
            self.drop_all();
        }
        let goes_on = self.waiting > 0 || self.peers.iter().any(|peer| !peer.in_flight.is_empty());
        self.due = (goes_on && !self.is_retired).then(|| now.plus(self.interval));
        self.unanswered.changes = self.unanswered.changes.wrapping_add(1);
        charges
    }

    /// Drops all waiting charges.
    fn drop_all(&mut self) {
        for peer in &mut self.peers {
            peer.dropped(peer.waiting);
            self.counts.dropped = self.counts.dropped.saturating_add(peer.waiting);
            peer.subtract_waiting(peer.waiting);
        }
        self.waiting = 0;
        self.queue.clear();
        self.subjects.clear();
    }

    /// A charge of this many units is no longer in flight: the store has answered it, or no answer will come.
    pub fn ended(&mut self, check: &Check, units: u64, is_answered: bool) {
        let place = usize::from(check.store).checked_sub(1);
        let Some(peer) = place.and_then(|place| self.peers.get_mut(place)) else { return };
        if is_answered {
            peer.counts.answered = peer.counts.answered.saturating_add(units);
        }
        let mut left = units;
        while left > 0
            && let Some((_, of)) = peer.in_flight.front_mut()
        {
            let part = left.min(*of);
            (left, *of) = (left.saturating_sub(part), of.saturating_sub(part));
            peer.in_flight.pop_front_if(|(_, of)| *of == 0);
        }
        self.unanswered.take((check.policy, check.store), units);
    }
}

#[cfg(test)]
mod tests;
