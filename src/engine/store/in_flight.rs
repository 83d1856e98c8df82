// SPDX-License-Identifier: Apache-2.0
//! The batches that are in flight, and when the next one may be sent.
//!
//! While a batch is in flight, everything that arrives gathers in the next one (group commit). A batch that takes unusually
//! long no longer delays the next. An overloaded store would take ever longer for ever larger batches, until all answers
//! come too late. So a [congestion window](super::congestion) bounds the tasks in flight, and a request that could not be
//! answered in time is decided without the store at once.
//!
//! A batch that needs a new connection to the store is not sent yet. When the connection is open, its commands are queued
//! again, and those for which no request waits any more are dropped. So the time to connect does not count as the store's.

use super::batch::{Batch, tasks};
use super::breakers::{BySlots, Slots};
use super::congestion::{Congestion, MAX_BATCHES, Sample};
use super::journal::Entry;
use super::queue::TaskQueue;
use crate::engine::BatchId;
use crate::engine::clock::Now;
use crate::policy::Check;
use crate::time::Micros;

/// The numbers of a store's batches begin with the number of the store, and grow by this.
const STORES: BatchId = 32;

/// The store that a batch was sent to: an index into the configuration's.
pub(in crate::engine) const fn store_of(id: BatchId) -> BatchId {
    id % STORES
}

/// Connecting may take this many deadlines before it counts as a failure of the store. TCP and TLS take two round trips,
/// three with an old TLS, and the store may be nearly a deadline away.
const CONNECTING: u64 = 4;

/// A batch in flight.
#[derive(Debug)]
pub(super) struct InFlightBatch {
    pub id: BatchId,
    pub slots: Slots,
    pub commands: Batch,
    /// The entries of the journal behind the commands. A batch without commands is the journal's own.
    pub journal: Vec<Entry>,
    /// With the entries of the journal.
    pub tasks: usize,
    /// The number of tasks in flight when it was sent, including its own.
    in_flight: usize,
    /// The number of tasks of its slots that had been answered when it was sent, and the time of the last of those answers.
    done: (usize, Now),
    pub sent: Now,
    /// The time at which it becomes overdue, in loop time.
    overdue: Micros,
    /// It is overdue, and has counted as a failure in the breaker.
    pub late: bool,
    /// It waits for its connection, and was not sent.
    pub connecting: bool,
    /// The breaker was open, so it is a probe, and says nothing about congestion.
    is_probe: bool,
}

impl InFlightBatch {
    /// True if it has only entries of the journal, or the write of the usage journal. Then it says nothing about requests.
    pub const fn is_journal(&self) -> bool {
        self.commands.is_empty()
    }

    fn asks_about(&self, check: &Check) -> bool {
        tasks(&self.commands).any(|task| task.asks_about(check))
    }
}

/// The load in flight of the normal or the suspect slots, without the journal's own batches.
#[derive(Clone, Copy, Default)]
struct Load {
    /// The number of batches, with those that wait for their connection.
    batches: usize,
    /// The number of batches that were sent.
    sent: usize,
    /// The number of tasks of these.
    tasks: usize,
}

/// The batches in flight of one worker.
#[derive(Debug)]
pub(super) struct InFlight {
    batches: Vec<InFlightBatch>,
    next_id: BatchId,
    congestion: BySlots<Congestion>,
    /// The number of tasks that have been answered, and the time of the last answer.
    done: BySlots<(usize, Now)>,
    deadline: Micros,
    /// The uptime of the store's last answer.
    answered: Micros,
}

impl InFlight {
    /// For the store of this number. Requests wait for at most `deadline`.
    pub fn new(store: u8, deadline: Micros) -> Self {
        let congestion = BySlots { normal: Congestion::new(deadline), suspect: Congestion::new(deadline) };
        let done = BySlots { normal: (0, Now::default()), suspect: (0, Now::default()) };
        Self {
            batches: Vec::new(),
            next_id: store.into(),
            congestion,
            done,
            deadline,
            answered: Micros::ZERO,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// The batches about these slots, but for the journal's own.
    fn of(&self, slots: Slots) -> impl Iterator<Item = &InFlightBatch> {
        self.batches.iter().filter(move |batch| batch.slots == slots && !batch.is_journal())
    }

    fn load(&self, slots: Slots) -> Load {
        let mut load = Load::default();
        for batch in self.of(slots) {
            load.batches = load.batches.saturating_add(1);
            if !batch.connecting {
                load.sent = load.sent.saturating_add(1);
                load.tasks = load.tasks.saturating_add(batch.tasks);
            }
        }
        load
    }

    /// True if one more task than the `waiting` ones could not be answered in time. Never while nothing is in flight, because then the next
    /// batch is sent at once, and the requests that wait may have been decided meanwhile.
    pub fn is_crowded(&self, slots: Slots, waiting: usize) -> bool {
        let in_flight = self.load(slots).tasks;
        if in_flight == 0 {
            return false;
        }
        let congestion = self.congestion.of(slots);
        let places = congestion.may_wait(in_flight, congestion.cwnd().saturating_sub(in_flight));
        places < usize::MAX && waiting >= places
    }

    /// The number of further tasks that may be in flight beside these, without regard to when they are sent.
    fn free(&self, slots: Slots, load: Load) -> usize {
        if load.batches >= MAX_BATCHES {
            return 0;
        }
        // A late batch still keeps the store busy.
        self.congestion.of(slots).cwnd().saturating_sub(load.tasks)
    }

    /// True if tasks of the queue may be sent now.
    pub fn has_room(&self, slots: Slots, queue: &TaskQueue, now: Now) -> bool {
        let load = self.load(slots);
        self.free(slots, load) > 0 && !self.waits(slots, load, queue, now)
    }

    /// The number of tasks of the queue that may be sent now.
    pub fn room(&self, slots: Slots, queue: &TaskQueue, now: Now) -> usize {
        let load = self.load(slots);
        if self.waits(slots, load, queue, now) {
            return 0;
        }
        self.free(slots, load).min(self.congestion.of(slots).batch(load.tasks, load.batches))
    }

    /// True if the last batch was sent so short a time ago that the next one waits for its answer.
    fn waits(&self, slots: Slots, load: Load, queue: &TaskQueue, now: Now) -> bool {
        let waits = |pace| self.of(slots).any(|batch| now.since(batch.sent) < pace);
        load.batches > 0 && (waits(self.congestion.of(slots).pace()) || waits(self.pace(slots, queue)))
    }

    /// The uptime at which the next batch may be sent, if that is only a matter of time.
    pub fn opens(&self, slots: Slots, queue: &TaskQueue) -> Option<Micros> {
        let youngest = self.of(slots).map(|batch| batch.sent.uptime).max()?;
        (self.free(slots, self.load(slots)) > 0).then(|| youngest.plus(self.pace(slots, queue)))
    }

    /// The interval after a batch in which the next is not sent unless the answer comes.
    fn pace(&self, slots: Slots, queue: &TaskQueue) -> Micros {
        let congestion = self.congestion.of(slots);
        let (pace, of_repeats) = (congestion.pace(), congestion.pace_of_repeats());
        let is_asked = |check: &Check| self.of(slots).any(|batch| batch.asks_about(check));
        // Mostly the two are equal, and the batches in flight need not be searched.
        if of_repeats > pace && queue.only_asks(&is_asked) { of_repeats } else { pace }
    }

    /// The name of the batch that is sent next.
    pub const fn next_id(&self) -> BatchId {
        self.next_id
    }

    /// A batch is sent. It is overdue at this loop time.
    pub fn send(
        &mut self,
        slots: Slots,
        (commands, journal): (Batch, Vec<Entry>),
        now: Now,
        overdue: Micros,
        is_probe: bool,
    ) {
        let id = self.next_id;
        // The lowest bits stay: they say which store it is.
        self.next_id = id.wrapping_add(STORES);
        let tasks =
            commands.iter().map(|command| command.tasks.len()).fold(journal.len(), usize::saturating_add);
        let in_flight = self.load(slots).tasks.saturating_add(tasks);
        let (count, last) = *self.done.of(slots);
        // If the store had nothing to do, its time counts from this batch.
        let done = (count, if in_flight > tasks { last } else { now });
        let (late, connecting) = (false, false);
        self.batches.push(InFlightBatch {
            id,
            slots,
            commands,
            journal,
            tasks,
            in_flight,
            done,
            sent: now,
            overdue,
            late,
            connecting,
            is_probe,
        });
    }

    /// A batch that was just sent has to wait for its connection. Returns how many commands it has.
    pub fn connecting(&mut self, id: BatchId) -> Option<usize> {
        let batch = self.batches.iter_mut().find(|batch| batch.id == id)?;
        batch.connecting = true;
        let more = self.deadline.0.saturating_mul(CONNECTING.saturating_sub(1));
        batch.overdue = batch.overdue.plus(Micros(more));
        Some(batch.commands.len().saturating_add(batch.journal.len()))
    }

    /// True if a batch of the journal's own is in flight.
    pub fn has_journal(&self) -> bool {
        self.batches.iter().any(|batch| batch.is_journal() && !batch.journal.is_empty())
    }

    /// True if a batch with entries of the journal is overdue.
    pub fn is_journal_late(&self) -> bool {
        self.batches.iter().any(|batch| batch.late && !batch.journal.is_empty())
    }

    /// A batch is no longer in flight.
    pub fn complete(&mut self, id: BatchId) -> Option<InFlightBatch> {
        let index = self.batches.iter().position(|batch| batch.id == id)?;
        Some(self.batches.swap_remove(index))
    }

    /// The measurement of a batch that is answered now.
    pub fn sample(&self, id: BatchId, now: Now) -> Option<Sample> {
        let InFlightBatch { slots, sent, in_flight, tasks, done: (before, since), .. } =
            self.batches.iter().find(|batch| batch.id == id)?;
        let batches = self.load(*slots).sent;
        let done = self.done.of(*slots).0.wrapping_add(*tasks).wrapping_sub(*before);
        let done = (done, now.since(*since));
        let (took, in_flight, tasks) = (now.answered_after(*sent), *in_flight, *tasks);
        Some(Sample { took, sent: sent.uptime, in_flight, batches, done, tasks })
    }

    /// The store itself answered, with these measurements.
    pub fn learn(&mut self, slots: Slots, tasks: usize, sample: Sample, now: Now) {
        let done = self.done.of_mut(slots);
        *done = (done.0.wrapping_add(tasks), now);
        self.congestion.of_mut(slots).answered(sample, now);
        self.answered = now.uptime;
    }

    /// Batches that have become overdue. If the store has answered another batch meanwhile, slow connecting is not its failure.
    pub fn become_late(&mut self, now: Now) -> Vec<BatchId> {
        let late = self.batches.iter_mut().filter(|batch| !batch.late && batch.overdue <= now.loop_time);
        let late = late.filter_map(|batch| {
            batch.late = !(batch.connecting && self.answered > batch.sent.uptime);
            (batch.late && !batch.is_journal()).then_some(batch.id)
        });
        late.collect()
    }

    /// A batch that is not answered within twice the deadline. Its answer is of no use any more.
    pub fn abandon(&mut self, now: Now) -> Option<InFlightBatch> {
        let expired = self.batches.iter().find(|batch| batch.overdue.plus(self.deadline) <= now.loop_time)?;
        let batch = self.complete(expired.id)?;
        if !batch.connecting && !batch.is_probe && !batch.is_journal() {
            self.congestion.of_mut(batch.slots).unanswered(batch.in_flight);
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests;
