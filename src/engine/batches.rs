// SPDX-License-Identifier: Apache-2.0
//! Batches: made, sent, and answered or lost.

use super::clock::Now;
use super::failure::StoreFailure;
use super::store::{Batch, Completed, Due, End, UsageEnd, Work, tasks};
use super::tally::Usage;
use super::{BatchId, Engine, Outgoing};
use crate::time::Micros;

impl Engine {
    /// True if a batch could be sent now.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        let now = self.clock.latest();
        let usage = self.requests.tally.usage.as_ref().and_then(Usage::due);
        usage.is_some_and(|due| due <= now.uptime) || self.stores.iter().any(|store| store.wants_to_send(now))
    }

    /// The next batch to send, if one may be sent now.
    pub fn next_batch(&mut self, now: Micros) -> Option<Outgoing> {
        let now = self.clock.at(now);
        let batch = self.stores.turns().find_map(|number| self.next_batch_to(number, now));
        batch.or_else(|| self.usage_batch(now))
    }

    /// The next batch to the store of this number.
    fn next_batch_to(&mut self, number: u8, now: Now) -> Option<Outgoing> {
        loop {
            let store = self.stores.get(number)?;
            let taken = store.take(&|stream| self.requests.waits(stream), now);
            let Some((slots, mut batch)) = taken else { return self.journal_batch(number, now) };
            self.requests.serve(&mut batch, now);
            self.carry(now);
            if batch.is_empty() {
                continue;
            }
            let store = self.stores.get(number)?;
            let mut prepare = |task: &mut _| self.requests.ask_in_advance(task, now);
            let (mut body, unfit) = store.encode(&mut batch, &mut prepare, now);
            // Of those that do not fit, only the first was prepared.
            let prepared = unfit.first().into_iter().flat_map(|command| &command.tasks);
            prepared.for_each(|task| self.requests.not_sent(task));
            store.requeue_unfit(slots, unfit);
            self.requests.sent(&batch);
            let journal = store.add_journal(slots, &batch, &mut body.bytes, now);
            let overdue = store.deadline(now);
            return Some(store.send((number, slots), (batch, journal), body.bytes, overdue, now));
        }
    }

    /// A batch that has only entries of the journal, if it is time for one.
    fn journal_batch(&mut self, number: u8, now: Now) -> Option<Outgoing> {
        let store = self.stores.get(number)?;
        let slots = store.journal_slots(now)?;
        let (batch, mut body) = (Batch::new(), Vec::new());
        let journal = store.add_journal(slots, &batch, &mut body, now);
        let overdue = store.deadline(now);
        Some(store.send((number, slots), (batch, journal), body, overdue, now))
    }

    /// The next write of the usage journal, if it is time for one. Breakers do not stop it: they ask again only about requests, and there
    /// may be none any more.
    fn usage_batch(&mut self, now: Now) -> Option<Outgoing> {
        let write = self.requests.tally.usage.as_mut()?.next_write(now.uptime)?;
        Some(self.stores.own()?.send_usage(0, write, now))
    }

    /// The batch needs a new connection, and the host has begun to open it. Nothing was sent. When the connection is open, the
    /// host calls [`connected`](Self::connected), and the next batch uses it.
    pub fn connecting(&mut self, id: BatchId) {
        if let Some((_, store)) = self.stores.of_batch(id) {
            store.connecting(id);
        }
    }

    /// The connection of a batch is open: what waits can be sent.
    pub fn connected(&mut self, id: BatchId, now: Micros) {
        self.happens(now, |engine, now| {
            let Some((number, store)) = engine.stores.of_batch(id) else { return };
            let completed = store.connected(id, &|stream| engine.requests.waits(stream), now);
            engine.complete(number, completed, now);
        });
    }

    /// The bridge answered a batch with these RESP replies. Returns whether the connection is good enough for the next batch.
    pub fn replied(&mut self, id: BatchId, replies: &[u8], now: Micros) -> bool {
        self.happens(now, |engine, now| {
            let Some((number, store)) = engine.stores.of_batch(id) else { return false };
            let completed = store.replied((id, replies), &|stream| engine.requests.waits(stream), now);
            let is_good = !completed.bad_connection;
            engine.complete(number, completed, now);
            is_good
        })
    }

    /// A batch got no answer, or could not be sent.
    pub fn failed(&mut self, id: BatchId, failure: &StoreFailure, now: Micros) {
        self.happens(now, |engine, now| {
            let Some((number, store)) = engine.stores.of_batch(id) else { return };
            let completed = store.failed(id, failure, now);
            engine.complete(number, completed, now);
        });
    }

    /// A batch that the engine has abandoned. The host must not pass on its reply, if one still comes.
    pub fn next_abandoned(&mut self) -> Option<BatchId> {
        self.stores.iter_mut().find_map(|store| store.next_abandoned())
    }

    /// True if batches are in flight.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        self.stores.iter().any(|store| store.any_in_flight())
    }

    /// True if a worker that is [retired](Self::retire) may end: no batch is in flight, and the usage of its subjects is written. If the
    /// store does not answer, the worker drops that usage after a minute.
    #[must_use]
    pub fn may_end(&self) -> bool {
        !self.in_flight() && self.usage_waiting() == 0
    }

    /// Carries the result of a batch to the store of this number to its requests.
    pub(super) fn complete(&mut self, number: u8, completed: Completed, now: Now) {
        let Completed { commands, ends, not_run, asked, .. } = completed;
        if let Some((usage, end)) = self.requests.tally.usage.as_mut().zip(completed.usage) {
            match end {
                UsageEnd::Written => usage.written(),
                UsageEnd::NotSent => usage.not_sent(),
                UsageEnd::Lost => usage.lost(now.uptime),
            }
        }
        for (task, end) in tasks(&commands).zip(ends) {
            let is_renewal = matches!(task.work, Work::Settle { due: Due::Renew(_), .. });
            if matches!((&task.work, &end), (Work::Settle { .. }, End::Failed)) && !is_renewal {
                self.lost_settlements = self.lost_settlements.saturating_add(1);
            }
            self.requests.ended(task, &end, (asked, now));
        }
        for not_run in not_run {
            self.requests.not_run(not_run);
        }
        if let Some(store) = self.stores.get(number) {
            store.recycle(commands);
        }
        if completed.opened {
            self.requests.stop_all_waiting(number, now);
        }
        if completed.recovered {
            self.requests.store_recovered(number);
        }
        self.requests.ask_again(&mut self.stores, now);
    }
}
