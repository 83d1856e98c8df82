// SPDX-License-Identifier: Apache-2.0
//! The batches with entries of the journal and writes of the usage journal: the times to send them, and the meaning of their replies.

use super::batch::{self, Batch, tasks};
use super::breakers::Slots;
use super::journal::Entry;
use super::{Completed, Store, StoreFailure, UsageEnd};
use crate::bridge;
use crate::engine::clock::Now;
use crate::engine::{BatchId, Outgoing};
use crate::policy::key;
use crate::resp;
use crate::time::Micros;

impl Store {
    /// The uptime at which the journal gets a batch of its own, if that is only a matter of time.
    pub(super) fn journal_due(&self) -> Option<Micros> {
        let journal = self.journal.as_ref()?;
        let due = journal.due()?;
        let is_free = !self.in_flight.has_journal() || journal.is_retired();
        (!self.breakers.is_open() && is_free).then_some(due)
    }

    /// The slots of the next batch of the journal's own, if it is sent now.
    pub fn journal_slots(&self, now: Now) -> Option<Slots> {
        let is_due = self.journal_due().is_some_and(|due| due <= now.uptime);
        let slots = if self.may_share() { Slots::Normal } else { Slots::Suspect };
        is_due.then_some(slots)
    }

    /// True if entries of the journal may be sent behind requests.
    fn may_share(&self) -> bool {
        let is_well = self.journal.as_ref().is_some_and(|journal| !journal.is_suspect());
        is_well
            && !self.breakers.is_open()
            && !self.in_flight.is_journal_late()
            && self.breakers.slots(key::JOURNAL.as_bytes()) == Slots::Normal
    }

    /// Appends entries of the journal to a batch, behind its commands, as many as there is room for.
    pub fn add_journal(&mut self, slots: Slots, batch: &Batch, body: &mut Vec<u8>, now: Now) -> Vec<Entry> {
        let most = match slots {
            _ if batch.is_empty() => usize::MAX,
            Slots::Normal if self.may_share() => {
                self.in_flight.room(slots, self.queues.of(slots), now).saturating_sub(tasks(batch).count())
            }
            _ => 0,
        };
        let Some(journal) = &mut self.journal else { return Vec::new() };
        journal.take(most, batch::MAX_BYTES, now.uptime, body)
    }

    /// The store's replies to the entries of the journal. Returns whether the connection is bad.
    pub(super) fn journal_replied(
        &mut self,
        entries: Vec<Entry>,
        mut replies: &[u8],
        took: Micros,
        now: Now,
    ) -> bool {
        let Some(journal) = &mut self.journal else { return false };
        let mut failure = None;
        for entry in entries {
            match failure_in(&mut replies, took, self.deadline) {
                // An entry refused earlier in this batch matters more: the journal stays paused.
                None => journal.written(failure.is_none()),
                found => {
                    journal.lost(vec![entry], now.uptime);
                    failure = failure.or(found);
                }
            }
        }
        let is_bad = failure.as_ref().is_some_and(StoreFailure::is_connection_scoped);
        self.failures.extend(failure);
        is_bad
    }

    /// The next write of the usage journal is sent, in a batch of its own: it may take the store longer than what requests wait for.
    pub fn send_usage(&mut self, store: u8, (command, is_suspect): (Vec<u8>, bool), now: Now) -> Outgoing {
        let slots = if is_suspect { Slots::Suspect } else { self.breakers.slots(key::JOURNAL.as_bytes()) };
        let overdue = self.deadline(now);
        let batch = self.send((store, slots), (Batch::new(), Vec::new()), command, overdue, now);
        self.sent.1 = self.sent.1.saturating_add(1);
        self.usage = Some(batch.id);
        Outgoing { replies: 1, ..batch }
    }

    /// A batch has ended so. If it was the write of the usage journal, that has.
    pub(super) fn end_usage(&mut self, id: BatchId, end: UsageEnd) -> Option<UsageEnd> {
        self.usage.take_if(|of| *of == id).map(|_| end)
    }

    /// The store's reply to a write of the usage journal.
    pub(super) fn usage_replied(&mut self, mut reply: &[u8], took: Micros, completed: &mut Completed) {
        let failure = failure_in(&mut reply, took, self.deadline);
        completed.bad_connection |= failure.as_ref().is_some_and(StoreFailure::is_connection_scoped);
        completed.usage = Some(if failure.is_none() { UsageEnd::Written } else { UsageEnd::Lost });
        self.failures.extend(failure);
    }

    /// The entries of the journal in a batch may not have been written.
    pub(super) fn lose_journal(&mut self, entries: Vec<Entry>, now: Now) {
        if let Some(journal) = &mut self.journal {
            journal.lost(entries, now.uptime);
        }
    }

    /// The number of denials that are not in the journal although they were drawn.
    pub const fn journal_dropped(&self) -> u64 {
        match &self.journal {
            Some(journal) => journal.dropped(),
            None => 0,
        }
    }
}

/// Returns the failure in the next reply, if there is one.
fn failure_in(replies: &mut &[u8], took: Micros, deadline: Micros) -> Option<StoreFailure> {
    let Ok(Some((reply, length))) = resp::decode_within(replies, bridge::REPLY) else {
        return Some(StoreFailure::BadReply);
    };
    *replies = replies.get(length..).unwrap_or_default();
    match reply {
        resp::Reply::Error(text) => Some(StoreFailure::answered(text, took, deadline)),
        _ => None,
    }
}
