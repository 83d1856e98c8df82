// SPDX-License-Identifier: Apache-2.0
//! One store: what waits to be sent ([`TaskQueue`]), which batches are in flight ([`InFlight`]), how many tasks
//! may be in flight ([`congestion`]), and whether to ask at all ([`Breakers`]). It knows requests only by their numbers. It
//! reports what has become of each task as an [`End`], for [`Requests`](super::request::Requests).

mod batch;
mod breaker;
mod breakers;
mod congestion;
mod in_flight;
mod journal;
mod journal_batches;
mod queue;
mod replicas;
mod samples;
mod trials;

use std::mem;
use std::rc::Rc;

use super::clock::{Now, TICK};
use super::failure::StoreFailure;
use super::generations::Seed;
use super::{BatchId, Outgoing, StreamId};
use crate::bridge;
use crate::config::{Config, Region, Topology};
use crate::inline_vec::InlineVec;
use crate::limit::Outcome;
use crate::policy::{Check, Subject};
use crate::resp;
use crate::script::{self, BadReply, Form};
use crate::time::Micros;

use breaker::Carrier;
use breakers::Breakers;
use in_flight::InFlight;
use journal::{Entry, Journal};
use queue::TaskQueue;
use replicas::Replicas;
use samples::Samples;

pub(super) use batch::{Batch, Body, Command, Due, Settlement, Task, Waiter, Work, count, tasks};
pub(super) use breakers::BySlots;
pub use breakers::{Outage, Slots};
pub(super) use in_flight::store_of;

/// A probe finds out whether the store answers again. Its tasks may be lost, so it carries at most this many settlements.
const PROBE_SETTLEMENTS: usize = 1;

/// While this many settlements wait, no charges of other regions are taken.
const MAX_CHARGES: usize = 1_024;

/// The charges that a store accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charges {
    None,
    /// A single unit, which finds out whether the store answers again. It may be lost.
    Probe,
    All,
}

/// The reason for which the store is not asked for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAsked {
    BreakerOpen,
    Overloaded,
}

/// The end of a task.
pub(super) enum End {
    /// The store answered.
    Answered(Rc<Outcome>),
    /// The store granted, but too few replicas have the grant.
    Unacknowledged(Rc<Outcome>),
    /// The store has settled what it was to settle.
    Settled,
    /// No usable answer will come.
    Failed,
}

impl Command {
    /// Reads what the store replied, and adds the end of each task. The reply to a settlement matters only to the breaker.
    fn replied(&self, reply: &resp::Reply<'_>, ends: &mut InlineVec<End>) -> Result<(), BadReply> {
        let answered = |outcome| End::Answered(Rc::new(outcome));
        match &*self.tasks {
            [] => {}
            [Task { work: Work::Settle { due: Due::Renew(_), receipt }, plan, .. }] => {
                ends.push(answered(plan.renewed(receipt, reply)?));
            }
            [Task { work: Work::Settle { .. }, .. }] => ends.push(End::Settled),
            tasks @ [first, ..] => {
                first.plan.outcomes(reply, tasks.len(), |outcome| ends.push(answered(outcome)))?;
            }
        }
        Ok(())
    }
}

/// The end of a write of the usage journal.
#[derive(Clone, Copy, Debug)]
pub(super) enum UsageEnd {
    Written,
    /// It was not sent.
    NotSent,
    /// The store refused it, or it is not known whether the store has made it.
    Lost,
}

/// A task that the store has not run. It waits in the queue again.
pub(super) struct NotRun {
    pub check: Rc<Check>,
    pub waiters: InlineVec<Waiter>,
    pub advance: u32,
}

/// The result of a batch.
#[derive(Default)]
pub(super) struct Completed {
    /// The commands that have ended, in the order in which they were sent, and what has become of each of their tasks.
    pub commands: Batch,
    pub ends: InlineVec<End>,
    pub not_run: Vec<NotRun>,
    /// The host's time at which the batch was sent.
    pub asked: Micros,
    /// The store's breaker has opened, so no request waits any longer.
    pub opened: bool,
    /// The store answers requests again, and no breaker remembers a failure.
    pub recovered: bool,
    /// Every batch on this connection will fail in the same way.
    pub bad_connection: bool,
    /// The batch was the write of the usage journal, and this has become of it.
    pub usage: Option<UsageEnd>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Store {
    config: Rc<Config>,
    topology: Topology,
    deadline: Micros,
    queues: BySlots<TaskQueue>,
    in_flight: InFlight,
    breakers: Breakers,
    /// A batch or a command has failed since the store was last well.
    has_failed: bool,
    replicas: Replicas,
    /// The entries to write to the journal, if there is one.
    pub journal: Option<Journal>,
    /// The batch that is the write of the usage journal, while it is in flight.
    usage: Option<BatchId>,
    failures: Vec<StoreFailure>,
    abandoned: Vec<BatchId>,
    /// The numbers of batches and commands that were sent.
    sent: (u64, u64),
    /// The batches that were answered, for the histograms.
    pub samples: Samples,
}

impl Store {
    /// The store of this number, which is at `region`.
    pub fn new(config: Rc<Config>, store: u8, region: &Region, seed: u64) -> Self {
        let (topology, deadline) = (region.topology, region.deadline);
        let queue = || TaskQueue::new(topology, Seed(seed));
        Self {
            topology,
            deadline,
            queues: BySlots { normal: queue(), suspect: queue() },
            in_flight: InFlight::new(store, deadline),
            breakers: Breakers::new(seed),
            has_failed: false,
            replicas: Replicas::new(region.min_replicas, deadline),
            journal: if store == 0 { Journal::new(&config, seed) } else { None },
            usage: None,
            failures: Vec::new(),
            abandoned: Vec::new(),
            sent: (0, 0),
            samples: Samples::new(seed),
            config,
        }
    }

    // --- What requests ask -----------------------------------------------------------------------------------------

    /// The slots of a check, if the store is asked about it now.
    pub fn admits(&self, check: &Check, now: Now) -> Result<Slots, NotAsked> {
        if !self.breakers.store_admits(now.uptime) || !self.breakers.slots_admit(&check.tag, now.uptime) {
            return Err(NotAsked::BreakerOpen);
        }
        let slots = self.breakers.slots(&check.tag);
        let queue = self.queues.of(slots);
        // A request that joins a waiting task adds no work for the store.
        let has_room = !self.in_flight.is_crowded(slots, queue.len()) || queue.asks_about(check);
        if has_room { Ok(slots) } else { Err(NotAsked::Overloaded) }
    }

    /// A request waits for the store's answer.
    pub fn ask(&mut self, check: &Rc<Check>, waiter: Waiter, slots: Slots, now: Now) {
        self.breakers.request_waits(&check.tag, waiter.stream, now.uptime);
        if let Some(plan) = self.config.plan(check) {
            self.queues.of_mut(slots).ask(check, &plan, waiter);
        }
    }

    /// Asks the store of another region for a loan. Does nothing while its breaker is open, or while its answers come late.
    pub fn lend(&mut self, asks: Rc<Check>, of: Subject, units: u32, now: Now) {
        let slots = self.breakers.slots(&asks.tag);
        // Units that a probe asks for in advance may be lost.
        let units = if self.breakers.is_open() { units.min(1) } else { units };
        let is_crowded = self.in_flight.is_crowded(slots, self.queues.of(slots).len());
        if let Some(plan) = self.config.plan(&asks).filter(|_| self.sends(now) && !is_crowded) {
            self.queues.of_mut(slots).lend(asks, plan, (units, of));
        }
    }

    /// True if anything is sent to the store now. Otherwise its breaker is open.
    fn sends(&self, now: Now) -> bool {
        self.breakers.sends(now.uptime)
    }

    /// Says which charges of other regions the store accepts now. The others wait in the debits of this worker, where they are added up.
    pub fn takes_charges(&self, now: Now) -> Charges {
        let waiting = self.queues.normal.settlements().saturating_add(self.queues.suspect.settlements());
        match (self.sends(now) && waiting < MAX_CHARGES, self.breakers.is_open()) {
            (false, _) => Charges::None,
            (true, true) => Charges::Probe,
            (true, false) => Charges::All,
        }
    }

    /// A request no longer waits.
    pub fn no_longer_waits(&mut self, stream: StreamId, now: Now) {
        self.breakers.ended(Carrier::Request(stream), now.uptime);
    }

    /// Sends a settlement with one of the next batches. Returns whether there is room for it.
    pub fn settle(&mut self, settlement: Settlement) -> bool {
        let slots = self.breakers.slots(&settlement.check.tag);
        let plan = self.config.plan(&settlement.check);
        plan.is_some_and(|plan| self.queues.of_mut(slots).settle(settlement, &plan))
    }

    // --- Batches that are sent -------------------------------------------------------------------------------------

    /// True if a batch could be sent now.
    pub fn wants_to_send(&self, now: Now) -> bool {
        let could = |slots| {
            let queue = self.queues.of(slots);
            !queue.is_empty() && self.in_flight.has_room(slots, queue, now)
        };
        let is_due = self.journal_due().is_some_and(|due| due <= now.uptime);
        is_due || self.breakers.sends(now.uptime) && (could(Slots::Normal) || could(Slots::Suspect))
    }

    /// The uptime at which the next batch may be sent, or an outage about which no request asks ends, if that is only a matter of time.
    pub fn due(&self) -> Option<Micros> {
        let opens = |slots| match self.queues.of(slots).is_empty() {
            true => None,
            false => self.in_flight.opens(slots, self.queues.of(slots)),
        };
        let unasked = self.breakers.next_unasked();
        Micros::earliest([opens(Slots::Normal), opens(Slots::Suspect), self.journal_due(), unasked])
    }

    /// Takes the tasks of the next batch, if one may be sent now. `waits` says which requests still wait.
    pub fn take(&mut self, waits: &dyn Fn(StreamId) -> bool, now: Now) -> Option<(Slots, Batch)> {
        if !self.breakers.sends(now.uptime) {
            return None;
        }
        let take = |store: &mut Self, slots| Some((slots, store.take_of(slots, waits, now)?));
        take(self, Slots::Normal).or_else(|| take(self, Slots::Suspect))
    }

    fn take_of(&mut self, slots: Slots, waits: &dyn Fn(StreamId) -> bool, now: Now) -> Option<Batch> {
        if self.queues.of(slots).is_empty() {
            return None;
        }
        let room = self.in_flight.room(slots, self.queues.of(slots), now);
        if room == 0 {
            return None;
        }
        loop {
            let settlements = if self.breakers.is_open() { PROBE_SETTLEMENTS } else { usize::MAX };
            let mut batch = self.queues.of_mut(slots).take(room, settlements, waits)?;
            if slots == Slots::Normal && self.breakers.any_suspect() {
                // Some slots have become suspect since these tasks were queued.
                let is_suspect = |command: &mut Command| {
                    let first = command.tasks.first();
                    first.is_some_and(|task| self.breakers.slots(&task.check.tag) == Slots::Suspect)
                };
                let suspect = batch.extract_if(.., is_suspect).collect();
                self.queues.suspect.requeue(suspect);
            }
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    /// Writes the commands of a batch, and calls `prepare` with each task before. Returns the commands that do not fit, for
    /// [`requeue_unfit`](Self::requeue_unfit).
    pub fn encode(&self, batch: &mut Batch, prepare: &mut dyn FnMut(&mut Task), now: Now) -> (Body, Batch) {
        let mut body = Body::new(self.topology);
        let unfit = batch.iter_mut().position(|command| {
            command.tasks.iter_mut().for_each(&mut *prepare);
            !body.push(command)
        });
        let unfit = batch.split_off(unfit.unwrap_or(batch.len()));
        if self.replicas.are_awaited(batch) {
            self.replicas.wait(&mut body.bytes, now);
        }
        (body, unfit)
    }

    /// Commands that did not fit wait for the next batch.
    pub fn requeue_unfit(&mut self, slots: Slots, commands: Batch) {
        self.queues.of_mut(slots).requeue(commands);
    }

    /// Sends a batch: it is in flight from now on.
    pub fn send(
        &mut self,
        (store, slots): (u8, Slots),
        (batch, journal): (Batch, Vec<Entry>),
        body: Vec<u8>,
        overdue: Micros,
        now: Now,
    ) -> Outgoing {
        let (id, commands) = (self.in_flight.next_id(), batch.len().saturating_add(journal.len()));
        let replies = commands.saturating_add(usize::from(self.replicas.are_awaited(&batch)));
        self.sent.0 = self.sent.0.saturating_add(1);
        self.sent.1 = self.sent.1.saturating_add(commands as u64);
        self.breakers.batch_sent(id, batch::asks(&batch), now.uptime);
        self.in_flight.send(slots, (batch, journal), now, overdue, self.breakers.is_open());
        Outgoing { id, store, body, replies, slots }
    }

    /// A batch that was just sent needs a new connection.
    pub fn connecting(&mut self, id: BatchId) {
        let Some(commands) = self.in_flight.connecting(id) else { return };
        self.sent.0 = self.sent.0.saturating_sub(1);
        let commands = commands.saturating_add((self.usage == Some(id)).into());
        self.sent.1 = self.sent.1.saturating_sub(commands as u64);
    }

    // --- Batches that are completed --------------------------------------------------------------------------------

    /// The connection of a batch is open: its commands go back to the queue, and can be sent.
    pub fn connected(&mut self, id: BatchId, waits: &dyn Fn(StreamId) -> bool, now: Now) -> Completed {
        let usage = self.end_usage(id, UsageEnd::NotSent);
        let mut completed = Completed { usage, ..Completed::default() };
        if let Some(batch) = self.in_flight.complete(id) {
            if let Some(journal) = &mut self.journal {
                journal.put_back(batch.journal);
            }
            self.requeue(id, batch.slots, batch.commands, waits, &mut completed.not_run);
            self.breakers.ended(Carrier::Batch(id), now.uptime);
        }
        completed
    }

    /// Commands of a batch that the store has not run go to the head of the queue.
    fn requeue(
        &mut self,
        id: BatchId,
        slots: Slots,
        commands: Batch,
        waits: &dyn Fn(StreamId) -> bool,
        not_run: &mut Vec<NotRun>,
    ) {
        // Only a request that still waits can carry the probe.
        let asks = batch::asks(&commands).filter(|(_, stream)| waits(*stream));
        self.breakers.batch_requeued(id, asks);
        for Task { check, work, .. } in tasks(&commands) {
            if let Work::Ask { waiters, advance } = work {
                let (check, waiters, advance) = (Rc::clone(check), waiters.clone(), *advance);
                not_run.push(NotRun { check, waiters, advance });
            }
        }
        self.queues.of_mut(slots).requeue(commands);
    }

    /// The bridge answered a batch with these RESP replies.
    pub fn replied(
        &mut self,
        (id, replies): (BatchId, &[u8]),
        waits: &dyn Fn(StreamId) -> bool,
        now: Now,
    ) -> Completed {
        let mut completed = Completed::default();
        let sample = self.in_flight.sample(id, now);
        let Some((sample, batch)) = sample.zip(self.in_flight.complete(id)) else { return completed };
        (completed.commands, completed.asked) = (batch.commands, batch.sent.host);
        let mut rest = replies;
        let mut not_run = Batch::new();
        let is_journal = completed.commands.is_empty();
        let awaits_replicas = self.replicas.are_awaited(&completed.commands);
        let (mut usable, mut intact) = (false, true);
        // If no request waits any more, the answer decides none.
        let waits_for = |task: &Task| task.waiters().iter().any(|waiter| waits(waiter.stream));
        let awaited = completed.commands.iter().any(|command| command.tasks.iter().any(waits_for));
        for command in &mut completed.commands {
            let ended = completed.ends.len();
            let Ok(Some((reply, length))) = resp::decode_within(rest, bridge::REPLY) else {
                // The rest of the replies is missing or not RESP, so no reply can be assigned to a command.
                (rest, intact) = (&[], false);
                self.fail(command, &StoreFailure::BadReply, &mut completed.ends);
                continue;
            };
            rest = rest.get(length..).unwrap_or_default();
            match reply {
                resp::Reply::Error(text) if command.form == Form::Evalsha && script::is_noscript(text) => {
                    not_run.push(Command { form: Form::Eval, tasks: mem::take(&mut command.tasks) });
                    usable = true;
                }
                resp::Reply::Error(text) => {
                    self.has_failed = true;
                    let tags = command.tasks.iter().map(|task| task.check.tag.as_slice());
                    let opened = self.breakers.refused(tags, id, now.uptime);
                    self.failures.extend((0..opened).map(|_| StoreFailure::BreakerOpen));
                    let failure = StoreFailure::answered(text, sample.took, self.deadline);
                    completed.bad_connection |= failure.is_connection_scoped();
                    self.fail(command, &failure, &mut completed.ends);
                }
                reply => match command.replied(&reply, &mut completed.ends) {
                    Ok(()) => {
                        usable = true;
                        command.tasks.iter().for_each(|task| self.breakers.answered(&task.check.tag));
                    }
                    Err(_) => {
                        intact = false;
                        let mut before = 0..ended;
                        completed.ends.retain(|_| before.next().is_some());
                        self.fail(command, &StoreFailure::BadReply, &mut completed.ends);
                    }
                },
            }
        }
        if awaits_replicas && let Err(failure) = self.replicas.replied(&mut rest, now) {
            // The other replies stand. The time that Redis took is that of its replicas.
            (usable, intact) = (false, intact && failure.is_some());
            let failure = failure.unwrap_or(StoreFailure::BadReply);
            completed.bad_connection |= failure.is_connection_scoped();
            for end in &mut completed.ends {
                if let End::Answered(outcome) = end
                    && outcome.granted > 0
                {
                    *end = End::Unacknowledged(Rc::clone(outcome));
                    self.failures.push(failure.clone());
                }
            }
        }
        completed.bad_connection |= self.journal_replied(batch.journal, rest, sample.took, now);
        if self.end_usage(id, UsageEnd::Lost).is_some() {
            self.usage_replied(rest, sample.took, &mut completed);
        }
        if !not_run.is_empty() {
            self.requeue(id, batch.slots, not_run, waits, &mut completed.not_run);
        }
        if usable {
            // Errors do not count: a proxy on the way may answer one at once.
            self.samples.add(sample.took, batch.tasks);
            self.in_flight.learn(batch.slots, batch.tasks, sample, now);
        }
        if is_journal {
            // It says nothing about requests.
        } else if batch.late {
            // It has counted as a failure already, and is of no use to requests.
        } else if !intact {
            completed.opened = self.lost(id, now);
        } else {
            self.breakers.store_answered();
            // Overload is no failure: while it lasts, local shares go on counting.
            let is_well = usable && awaited && self.breakers.all_healthy();
            completed.recovered = is_well && mem::take(&mut self.has_failed);
        }
        self.breakers.ended(Carrier::Batch(id), now.uptime);
        completed
    }

    /// Takes back the memory of a batch that has ended, for one that is sent later.
    pub fn recycle(&mut self, commands: Batch) {
        self.queues.normal.recycle(commands);
    }

    /// A batch got no answer, or could not be sent.
    pub fn failed(&mut self, id: BatchId, failure: &StoreFailure, now: Now) -> Completed {
        let mut completed = Completed { usage: self.end_usage(id, UsageEnd::Lost), ..Completed::default() };
        if let Some(mut batch) = self.in_flight.complete(id) {
            let is_journal = batch.is_journal();
            self.lose_journal(mem::take(&mut batch.journal), now);
            if batch.connecting || *failure == StoreFailure::NotSent {
                self.put_back_settlements(&mut batch.commands);
            }
            for command in &batch.commands {
                self.fail(command, failure, &mut completed.ends);
            }
            completed.commands = batch.commands;
            if is_journal {
                self.failures.push(failure.clone());
            } else if !batch.late {
                completed.opened = self.lost(id, now);
            }
            self.breakers.ended(Carrier::Batch(id), now.uptime);
        }
        completed
    }

    /// Time passed: batches become late, and later are abandoned.
    pub fn tick(&mut self, now: Now) -> Completed {
        let mut completed = Completed::default();
        self.breakers.tick(now.uptime);
        for id in self.in_flight.become_late(now) {
            completed.opened |= self.lost(id, now);
        }
        while let Some(mut batch) = self.in_flight.abandon(now) {
            self.lose_journal(mem::take(&mut batch.journal), now);
            completed.usage = completed.usage.or(self.end_usage(batch.id, UsageEnd::Lost));
            // Requests that wait count this by themselves.
            self.failures.extend(batch.is_journal().then_some(StoreFailure::Timeout));
            if batch.connecting {
                self.put_back_settlements(&mut batch.commands);
            }
            completed.ends.extend(tasks(&batch.commands).map(|_| End::Failed));
            completed.commands.append(&mut batch.commands);
            self.breakers.ended(Carrier::Batch(batch.id), now.uptime);
            self.abandoned.push(batch.id);
        }
        completed
    }

    /// A batch was not sent, so its settlements are still due. They leave the batch, and go back into the queue unless it is full.
    fn put_back_settlements(&mut self, commands: &mut Batch) {
        let settles =
            |command: &mut Command| matches!(command.tasks[..], [Task { work: Work::Settle { .. }, .. }]);
        let settlements: Vec<_> = commands.extract_if(.., settles).collect();
        for task in settlements.into_iter().rev().flat_map(|command| command.tasks) {
            let slots = self.breakers.slots(&task.check.tag);
            if let Err(task) = self.queues.of_mut(slots).put_back(task) {
                commands.push(Command { form: Form::Evalsha, tasks: InlineVec::One(task) });
            }
        }
    }

    fn fail(&mut self, command: &Command, failure: &StoreFailure, ends: &mut InlineVec<End>) {
        for _ in &command.tasks {
            self.failures.push(failure.clone());
            ends.push(End::Failed);
        }
    }

    /// A batch got no answer, or none that can be read. Returns whether that opened the breaker.
    fn lost(&mut self, id: BatchId, now: Now) -> bool {
        self.has_failed = true;
        let opened = self.breakers.store_failed(id, now.uptime);
        self.failures.extend(opened.then_some(StoreFailure::BreakerOpen));
        opened
    }

    // --- What the host reads ---------------------------------------------------------------------------------------

    /// Counts why a request was decided without the store.
    pub fn count_failure(&mut self, failure: StoreFailure) {
        self.failures.push(failure);
    }

    pub fn take_failures(&mut self) -> Vec<StoreFailure> {
        mem::take(&mut self.failures)
    }

    pub fn next_abandoned(&mut self) -> Option<BatchId> {
        self.abandoned.pop()
    }

    pub fn any_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The numbers of batches and commands that were sent.
    pub const fn sent(&self) -> (u64, u64) {
        self.sent
    }

    /// True if the store as a whole is not asked.
    pub const fn is_not_asking(&self) -> bool {
        self.breakers.is_open()
    }

    pub fn batches_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub fn open_breakers(&self) -> u64 {
        self.breakers.open()
    }

    pub fn outage(&self, uptime: Micros) -> Option<Outage> {
        self.breakers.outage(uptime)
    }

    /// The loop time until which a request that arrives now waits. One tick is added, because the next tick may advance loop
    /// time for time that has passed already.
    pub fn deadline(&self, now: Now) -> Micros {
        now.loop_time.plus(self.deadline).plus(TICK)
    }
}

#[cfg(test)]
mod tests;
