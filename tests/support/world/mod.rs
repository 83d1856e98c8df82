// SPDX-License-Identifier: Apache-2.0
//! Workers and their stores in virtual time. A worker is a real engine; the work of its host is done here: ticks, batches, connections,
//! releases. Each region has a store and some workers. Between them is a network that delays, and loses. A [`Ledger`] notes the work of
//! each store, and the result of each request.
//!
//! The same seed gives the same run. Times are microseconds since the beginning, but for those that an engine sees.

mod asked;
pub mod ledger;
mod steered;
pub mod store;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::rc::Rc;

use weir::engine::{Action, BatchId, Engine, Release, StoreFailure, StreamId, Submitted};
use weir::policy::Check;
use weir::random::Random;
use weir::time::Micros;

use crate::worker::{Batch, Known, START, Worker, bytes};
use ledger::{Ledger, Request};
use store::{Mood, Store};

/// The network between a worker and a store.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// One way. A trip takes so much more or less, at most.
    pub trip: u64,
    pub jitter: u64,
    /// The number of lost batches of a hundred. As many replies are lost.
    pub lost_percent: u64,
    /// A loss breaks its connection, so the worker knows that no reply comes.
    pub breaks: bool,
}

/// A worker in its region.
pub struct Host {
    pub worker: Worker,
    known: Rc<Known>,
    pub region: usize,
    /// The error of its clock.
    pub skew: i64,
    /// It has crashed, or has ended: it does nothing any more.
    pub is_dead: bool,
    /// It ends when it may.
    is_ending: bool,
    /// The regions of the engine's stores. Its own is the first.
    pub stores: Vec<usize>,
    timer: Option<u64>,
    /// Connections that no batch uses, to each region.
    idle: Vec<usize>,
}

impl Host {
    fn new(known: &Rc<Known>, (region, regions): (usize, usize), seed: u64) -> Self {
        let stores = std::iter::once(region).chain((0..regions).filter(|other| *other != region));
        Self {
            worker: Worker::of(known, seed),
            known: Rc::clone(known),
            region,
            skew: 0,
            is_dead: false,
            is_ending: false,
            stores: stores.collect(),
            timer: None,
            idle: vec![0; regions],
        }
    }
}

/// An intentional mistake of a world, so that a search has something to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A store does not charge what it lends to another region.
    LendsForFree,
    /// A host sends a batch once more if its connection breaks.
    SendsAgain,
    /// A store releases each permit twice.
    ReleasesTwice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// An event that the test itself has scheduled.
    Own(usize),
    Tick(usize),
    /// A connection that was opened for a batch is there.
    Connected(usize, BatchId),
    /// A batch reaches its store, unless it is lost.
    Reached(usize, BatchId),
    /// Its replies reach the worker, unless they are lost.
    Answered(usize, BatchId),
}

/// A batch on its way, and then its replies.
struct InFlight {
    batch: Batch,
    to: usize,
    is_lost: bool,
    is_abandoned: bool,
    /// Nothing more comes of it.
    is_over: bool,
    replies: Vec<u8>,
    /// The place in the ledger of the store's work on it.
    entries: Range<usize>,
}

/// See the [module](self).
pub struct World {
    pub time: u64,
    pub workers: Vec<Host>,
    /// A store for each region.
    pub stores: Vec<Store>,
    /// Between regions, and within one.
    pub far: Network,
    pub near: Network,
    /// The number of round trips of a new connection before the first byte can be sent.
    pub handshake: u64,
    /// A request that is decided stays open until it is closed. Otherwise it is over at once.
    pub stays_open: bool,
    pub ledger: Ledger,
    pub failures: Vec<StoreFailure>,
    /// Batches that were sent from one region to another.
    pub messages: u64,
    pub defect: Option<Defect>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    in_flight: BTreeMap<(usize, BatchId), InFlight>,
    next_stream: StreamId,
    random: Random,
}

impl World {
    /// A world with one region for each of `configs`, and `workers` workers in each region.
    pub fn new(configs: &[String], workers: usize, seed: u64) -> Self {
        Self::of(&configs.iter().map(|config| Known::new(config)).collect::<Vec<_>>(), workers, seed)
    }

    pub fn of(configs: &[Rc<Known>], workers: usize, seed: u64) -> Self {
        let regions = configs.len();
        let host = |place: usize| {
            let region = place / workers;
            Host::new(&configs[region], (region, regions), seed + place as u64)
        };
        let near = Network { trip: 500, jitter: 0, lost_percent: 0, breaks: false };
        Self {
            time: 0,
            workers: (0..regions * workers).map(host).collect(),
            stores: (0..regions).map(|_| Store::default()).collect(),
            far: near,
            near,
            handshake: 0,
            stays_open: false,
            ledger: Ledger::default(),
            failures: Vec::new(),
            messages: 0,
            defect: None,
            events: BinaryHeap::new(),
            number: 0,
            in_flight: BTreeMap::new(),
            next_stream: 0,
            random: Random::new(0x9e37_79b9_7f4a_7c15),
        }
    }

    pub fn seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    pub fn engine(&self, worker: usize) -> &Engine {
        &self.workers[worker].worker.engine
    }

    /// A worker, whose host has looked at the clock.
    pub fn worker(&mut self, worker: usize) -> &mut Worker {
        let Host { worker, skew, .. } = &mut self.workers[worker];
        worker.now = clock(self.time, *skew);
        worker
    }

    // --- Requests -----------------------------------------------------------------------------------------------------

    /// A request arrives.
    pub fn arrive(&mut self, worker: usize, checks: Vec<Check>) -> StreamId {
        let stream = self.submit(worker, checks);
        self.turn(worker);
        stream
    }

    /// As [`World::arrive`], but the worker sends nothing before its next [turn](World::turn).
    pub fn submit(&mut self, worker: usize, checks: Vec<Check>) -> StreamId {
        self.next_stream += 1;
        let stream = self.next_stream;
        let host = self.worker(worker);
        let submitted = host.engine.submit(stream, checks.iter().cloned().collect(), host.now);
        let arrived = self.time;
        self.ledger.requests.insert(stream, Request { worker, checks, arrived, decided: None });
        self.ledger.open.insert(stream);
        if let Submitted::Decided(action) = submitted {
            self.decide(Release { stream, action });
        }
        stream
    }

    /// The number of requests that have arrived.
    pub const fn arrived(&self) -> StreamId {
        self.next_stream
    }

    /// A client leaves.
    pub fn close(&mut self, stream: StreamId) {
        self.ledger.open.remove(&stream);
        let place = self.ledger.requests[&stream].worker;
        self.worker(place).close(stream);
        self.turn(place);
    }

    /// A client leaves, if there is any.
    pub fn close_one(&mut self, which: usize) {
        let open = &self.ledger.open;
        if let Some(stream) = open.iter().nth(which % open.len().max(1)) {
            self.close(*stream);
        }
    }

    fn decide(&mut self, Release { stream, action }: Release) {
        // The host skips one that left between its decision and its release.
        if !self.ledger.open.contains(&stream) {
            return;
        }
        let request = self.ledger.requests.get_mut(&stream).expect("a request");
        assert_eq!(request.decided, None, "{stream} is decided once");
        let admitted = matches!(action, Action::Admit);
        request.decided = Some((self.time, admitted));
        self.ledger.decisions.push((self.time, stream, admitted));
        if !self.stays_open {
            let worker = request.worker;
            self.ledger.open.remove(&stream);
            self.worker(worker).close(stream);
        }
    }

    // --- Time ---------------------------------------------------------------------------------------------------------

    /// Time passes.
    pub fn run(&mut self, span: u64) {
        assert_eq!(self.next(self.time + span), None, "the test has scheduled nothing");
    }

    /// Time passes until what the test has scheduled, or until the end.
    pub fn next(&mut self, end: u64) -> Option<usize> {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.time = self.time.max(at);
            if let Event::Own(number) = event {
                return Some(number);
            }
            self.happens(event, at);
        }
        self.time = end;
        None
    }

    fn happens(&mut self, event: Event, at: u64) {
        match event {
            Event::Own(_) => {}
            Event::Tick(place) => self.tick(place, at),
            Event::Connected(place, batch) => self.connected(place, batch),
            Event::Reached(place, batch) => self.reached(place, batch, at),
            Event::Answered(place, batch) => self.answered(place, batch),
        }
    }

    /// [`World::next`] returns this number at that time.
    pub fn call(&mut self, at: u64, number: usize) {
        self.schedule(at, Event::Own(number));
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// The host's work after each event.
    pub fn turn(&mut self, place: usize) {
        while let Some(batch) = self.worker(place).next_batch() {
            self.send(place, batch);
        }
        while let Some(release) = self.workers[place].worker.engine.next_release() {
            self.decide(release);
        }
        let time = self.time;
        let worker = self.worker(place);
        let failures = worker.failures();
        if let Some(due) = worker.next_tick() {
            // Whole milliseconds, as the host's timers.
            let at = time + due.since(worker.now).as_millis_ceil().max(1) * 1_000;
            let timer = &mut self.workers[place].timer;
            if timer.is_none_or(|timer| at < timer) {
                *timer = Some(at);
                self.schedule(at, Event::Tick(place));
            }
        }
        self.failures.extend(failures);
        let host = &mut self.workers[place];
        if host.is_ending && host.worker.engine.may_end() {
            (host.is_dead, host.timer) = (true, None);
        }
    }

    fn tick(&mut self, place: usize, at: u64) {
        let host = &mut self.workers[place];
        if host.timer != Some(at) {
            return;
        }
        host.timer = None;
        let worker = self.worker(place);
        worker.engine.tick(worker.now);
        while let Some(batch) = self.workers[place].worker.engine.next_abandoned() {
            // Its connection is closed. Bytes on their way to the store still arrive.
            let sent = self.in_flight.get_mut(&(place, batch)).expect("a batch");
            sent.is_abandoned = true;
            if sent.is_over {
                self.in_flight.remove(&(place, batch));
            }
        }
        self.turn(place);
    }

    /// A worker gets another configuration: it ends when it may. Another one starts in its place: its number.
    pub fn reload(&mut self, place: usize) -> usize {
        let (regions, number) = (self.stores.len(), self.workers.len());
        let Host { known, region, .. } = &self.workers[place];
        self.workers.push(Host::new(known, (*region, regions), 1_000 + number as u64));
        self.worker(place).engine.retire();
        self.workers[place].is_ending = true;
        self.turn(place);
        number
    }

    // --- Batches ------------------------------------------------------------------------------------------------------

    const fn between(&self, region: usize, store: usize) -> Network {
        if region == store { self.near } else { self.far }
    }

    fn trip(&mut self, Network { trip, jitter, .. }: Network) -> u64 {
        if jitter == 0 { trip } else { trip - jitter + self.random(2 * jitter + 1) }
    }

    fn loses(&mut self, Network { lost_percent, .. }: Network) -> bool {
        lost_percent > 0 && self.random(100) < lost_percent
    }

    fn send(&mut self, place: usize, batch: Batch) {
        let host = &self.workers[place];
        let (id, from, to) = (batch.id, host.region, host.stores[usize::from(batch.store)]);
        let network = self.between(from, to);
        if self.stores[to].mood == Mood::Refuses {
            self.ledger.undone(self.time, place, to, &batch);
            return self.fail(place, id);
        }
        let is_lost = if self.workers[place].idle[to] > 0 {
            self.workers[place].idle[to] -= 1;
            self.messages += u64::from(from != to);
            let trip = self.trip(network);
            self.schedule(self.time + trip, Event::Reached(place, id));
            self.loses(network)
        } else {
            self.workers[place].worker.engine.connecting(id);
            self.schedule(self.time + self.handshake * 2 * network.trip, Event::Connected(place, id));
            false
        };
        let sent = InFlight {
            batch,
            to,
            is_lost,
            is_abandoned: false,
            is_over: false,
            replies: Vec::new(),
            entries: 0..0,
        };
        self.in_flight.insert((place, id), sent);
    }

    fn fail(&mut self, place: usize, batch: BatchId) {
        let worker = self.worker(place);
        worker.engine.failed(batch, &StoreFailure::Refused, worker.now);
    }

    /// The engine offers the batch again.
    fn connected(&mut self, place: usize, batch: BatchId) {
        let InFlight { to, is_abandoned, .. } = self.in_flight.remove(&(place, batch)).expect("a batch");
        self.workers[place].idle[to] += 1;
        if !is_abandoned {
            let worker = self.worker(place);
            worker.engine.connected(batch, worker.now);
        }
        self.turn(place);
    }

    fn reached(&mut self, place: usize, id: BatchId, at: u64) {
        let mut sent = self.in_flight.remove(&(place, id)).expect("a batch");
        let network = self.between(self.workers[place].region, sent.to);
        if sent.is_lost || self.stores[sent.to].mood == Mood::Hangs {
            self.ledger.undone(self.time, place, sent.to, &sent.batch);
            return self.lost(place, id, sent);
        }
        self.execute(place, &mut sent);
        let store = &mut self.stores[sent.to];
        let done = store.done(&sent.batch, at, &mut self.random);
        sent.is_lost = self.loses(network);
        let trip = self.trip(network);
        self.in_flight.insert((place, id), sent);
        self.schedule(done + trip, Event::Answered(place, id));
    }

    /// The store does what a batch asks.
    fn execute(&mut self, place: usize, sent: &mut InFlight) {
        let store = &mut self.stores[sent.to];
        let (begin, now) = (self.ledger.entries.len(), clock(self.time, store.skew));
        let replies = store.run(&sent.batch, now, (&mut self.random, self.defect), |task, did| {
            self.ledger.note(self.time, place, sent.to, task, did);
        });
        (sent.replies, sent.entries) = (bytes(replies), begin..self.ledger.entries.len());
    }

    fn answered(&mut self, place: usize, id: BatchId) {
        let frozen_until = self.stores[self.in_flight[&(place, id)].to].frozen_until;
        if self.time < frozen_until {
            return self.schedule(frozen_until, Event::Answered(place, id));
        }
        let sent = self.in_flight.remove(&(place, id)).expect("a batch");
        if sent.is_lost {
            return self.lost(place, id, sent);
        }
        if !sent.is_abandoned {
            self.workers[place].idle[sent.to] += 1;
            self.ledger.entries[sent.entries].iter_mut().for_each(|entry| entry.is_heard = true);
            let worker = self.worker(place);
            assert!(worker.engine.replied(id, &sent.replies, worker.now), "good replies");
            self.turn(place);
        }
    }

    /// No reply comes. If the worker does not notice, it waits until it abandons the batch.
    fn lost(&mut self, place: usize, id: BatchId, sent: InFlight) {
        if sent.is_abandoned {
            return;
        }
        if self.between(self.workers[place].region, sent.to).breaks {
            self.fail(place, id);
            self.turn(place);
        } else {
            self.in_flight.insert((place, id), InFlight { is_over: true, ..sent });
        }
    }

    /// The units left to a subject by its first limit in a region's store.
    pub fn left(&mut self, region: usize, tag: &str) -> i64 {
        let limits = self.workers[region].worker.limits(tag);
        let Store { skew, .. } = self.stores[region];
        self.stores[region].left(tag, limits, clock(self.time, skew))
    }

    /// The number of requests that are asked for in batches that are not answered.
    pub fn asked_in_flight(&self) -> i64 {
        let waits_for = self.in_flight.values().filter(|sent| !sent.is_abandoned);
        let tasks = waits_for.flat_map(|sent| sent.batch.tasks());
        tasks.map(|task| task.requests).sum()
    }
}

/// The time of a clock that is wrong by so much.
fn clock(time: u64, skew: i64) -> Micros {
    Micros((START.0 + time).saturating_add_signed(skew))
}
