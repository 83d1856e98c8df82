// SPDX-License-Identifier: Apache-2.0
//! One worker's engine and a store that exists in virtual time only: a distance, a capacity, shards that fail, a freeze.
//! What the host does is done here too: ticks, streams that have to be opened, batches that cannot be sent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir::engine::{Action, BatchId, Engine, Outgoing, StoreFailure, StreamId, Submitted};
use weir::policy::{Check, key};
use weir::random::Random;
use weir::time::Micros;

use crate::worker::{
    BUCKET, Reply, START, Worker, bytes, check_of, commands, error, granted, key_count, noscript, numbers,
    policy, together,
};

/// How many parts of the slots fail by themselves.
pub const SHARDS: usize = 8;
/// How many policies a request may have.
pub const POLICIES: usize = 4;

/// A subject of a policy, on a shard; the number tells subjects apart where they should not share a command.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub policy: usize,
    pub shard: usize,
}

/// How the store behaves now. Times are microseconds.
#[derive(Clone, Debug)]
pub struct Store {
    /// One round trip without any work.
    pub distance: u64,
    /// At most so much more, evenly distributed.
    pub jitter: u64,
    /// How many tasks it does in a second.
    pub capacity: u64,
    /// It answers nothing before this time.
    pub frozen_until: u64,
    /// It answers errors about these shards.
    pub failing: [bool; SHARDS],
    /// It denies what these policies ask.
    pub denies: [bool; POLICIES],
    /// It knows no script.
    pub forgets: bool,
    /// Batches cannot be sent.
    pub refuses: bool,
    /// How many round trips a new connection takes before the first byte can be sent.
    pub handshake: u64,
}

impl Store {
    pub const fn near() -> Self {
        Self {
            distance: 1_000,
            jitter: 0,
            capacity: 1_000_000,
            frozen_until: 0,
            failing: [false; SHARDS],
            denies: [false; POLICIES],
            forgets: false,
            refuses: false,
            handshake: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick,
    /// A connection that was opened for a batch is there.
    Connected(BatchId),
    /// A batch reaches the store.
    Reached(BatchId),
    Answered(BatchId),
}

pub struct World {
    pub engine: Engine,
    pub store: Store,
    /// Microseconds since the beginning.
    pub time: u64,
    /// What the host's clock shows beyond that.
    pub skew: i64,
    pub waiting: Vec<StreamId>,
    /// Requests decided, and rejected.
    pub decided: u64,
    pub rejected: u64,
    /// Which requests were rejected.
    pub rejects: Vec<bool>,
    /// How many requests were refused a place in the queue.
    pub overloaded: usize,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    timer: Option<u64>,
    /// When the store has done what it was asked up to now.
    pub busy_until: u64,
    in_flight: BTreeMap<BatchId, Vec<u8>>,
    idle_streams: usize,
    next_stream: StreamId,
    random: Random,
}

impl World {
    pub fn new(store: &str, behaves: Store) -> Self {
        let Worker { engine, .. } = Worker::new(store, [(); POLICIES].map(|()| policy(BUCKET)));
        Self {
            engine,
            store: behaves,
            time: 0,
            skew: 0,
            waiting: Vec::new(),
            decided: 0,
            rejected: 0,
            rejects: Vec::new(),
            overloaded: 0,
            events: BinaryHeap::new(),
            number: 0,
            timer: None,
            busy_until: 0,
            in_flight: BTreeMap::new(),
            idle_streams: 0,
            next_stream: 0,
            random: Random::new(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// The host's clock.
    pub fn now(&self) -> Micros {
        Micros((START.0 + self.time).saturating_add_signed(self.skew))
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    /// A request arrives.
    pub fn arrive(&mut self, subjects: &[Subject]) -> StreamId {
        let checks = subjects.iter().map(|subject| check_of(subject.policy, tag(*subject), 1));
        self.arrive_checked(checks.collect())
    }

    /// A request arrives that waits, and the worker's root is not woken yet.
    pub fn arrive_before_the_turn(&mut self, stream: StreamId, subject: Subject) {
        let checks = [check_of(subject.policy, tag(subject), 1)];
        let submitted = self.engine.submit(stream, checks.into_iter().collect(), self.now());
        assert!(matches!(submitted, Submitted::Wait));
    }

    /// A request arrives whose subject no other has.
    pub fn arrive_alone(&mut self) -> StreamId {
        let stream = self.arrive_alone_before_the_turn();
        self.turn();
        stream
    }

    /// The same, and the worker's root is not woken yet.
    pub fn arrive_alone_before_the_turn(&mut self) -> StreamId {
        let subject = self.next_stream;
        self.submit(vec![check_of(0, format!("{{p0|u{subject}}}"), 1)])
    }

    fn arrive_checked(&mut self, checks: Vec<Check>) -> StreamId {
        let stream = self.submit(checks);
        self.turn();
        stream
    }

    fn submit(&mut self, checks: Vec<Check>) -> StreamId {
        self.next_stream += 1;
        let stream = self.next_stream;
        let now = self.now();
        match self.engine.submit(stream, checks.into_iter().collect(), now) {
            Submitted::Wait => self.waiting.push(stream),
            Submitted::Decided(action) => self.decide(stream, &action),
        }
        stream
    }

    /// A client leaves that may wait.
    pub fn close(&mut self, index: usize) {
        if !self.waiting.is_empty() {
            let stream = self.waiting.swap_remove(index % self.waiting.len());
            let now = self.now();
            self.engine.closed(stream, now);
            self.turn();
        }
    }

    /// Time passes.
    pub fn run(&mut self, span: u64) {
        let end = self.time + span;
        while let Some(Reverse((at, _, event))) =
            self.events.peek().copied().filter(|Reverse(next)| next.0 <= end)
        {
            self.events.pop();
            self.time = self.time.max(at);
            match event {
                Event::Tick if self.timer == Some(at) => {
                    self.timer = None;
                    let now = self.now();
                    self.engine.tick(now);
                    while let Some(batch) = self.engine.next_abandoned() {
                        self.in_flight.remove(&batch);
                    }
                }
                Event::Tick => continue,
                Event::Connected(batch) => {
                    self.idle_streams += 1;
                    if self.in_flight.remove(&batch).is_some() {
                        let now = self.now();
                        self.engine.connected(batch, now);
                    }
                }
                Event::Reached(batch) => {
                    let Some(body) = self.in_flight.get(&batch) else { continue };
                    let tasks: u64 = commands(body).iter().map(|words| key_count(words) as u64).sum();
                    // The store does not wait for a worker that is busy.
                    let begins = at.max(self.busy_until).max(self.store.frozen_until);
                    self.busy_until = begins + tasks * 1_000_000 / self.store.capacity;
                    let jitter = self.store.jitter;
                    let at = self.busy_until + self.store.distance / 2 + self.random(jitter + 1);
                    self.schedule(at, Event::Answered(batch));
                    continue;
                }
                Event::Answered(batch) => {
                    if self.time < self.store.frozen_until {
                        self.schedule(self.store.frozen_until, event);
                        continue;
                    }
                    let Some(body) = self.in_flight.remove(&batch) else { continue };
                    self.idle_streams += 1;
                    let replies = bytes(commands(&body).iter().map(|words| self.reply(words)));
                    let now = self.now();
                    self.engine.replied(batch, &replies, now);
                }
            }
            self.turn();
        }
        self.time = end;
    }

    fn reply(&self, words: &[Vec<u8>]) -> Reply {
        let tag = words[3].split(|byte| *byte == b':').nth(1).expect("a key with a tag");
        let shard = usize::from(key::slot(tag) >> 8) / (64 / SHARDS);
        if self.store.failing[shard] {
            return error("upstream failure");
        }
        if self.store.forgets && words[0] == b"EVALSHA" {
            return noscript();
        }
        let policy = usize::from(tag[2] - b'0');
        let grant = |requests: i64| granted(if self.store.denies[policy] { 0 } else { requests.max(0) });
        let questions = numbers(&words[words.len() - 1]);
        match key_count(words) {
            1 => grant(questions.get(1).copied().unwrap_or(1)),
            // Requests and cost of each subject; once, if they are the same of all. Policies here have one limit.
            subjects => {
                together(questions.chunks(2).cycle().take(subjects).map(|question| grant(question[0])))
            }
        }
    }

    /// What the host does after each event.
    pub fn turn(&mut self) {
        let now = self.now();
        while let Some(outgoing) = self.engine.next_batch(now) {
            self.send(outgoing);
        }
        while let Some(release) = self.engine.next_release() {
            if let Some(place) = self.waiting.iter().position(|stream| *stream == release.stream) {
                self.waiting.remove(place);
            }
            self.decide(release.stream, &release.action);
        }
        let failures: Vec<_> = self.engine.take_failures().into_iter().map(|(_, failure)| failure).collect();
        self.overloaded +=
            failures.iter().filter(|failure| matches!(failure, StoreFailure::Overloaded)).count();
        if let Some(due) = self.engine.next_tick(now) {
            // Whole milliseconds, as the host's timers.
            let at = self.time + due.since(now).as_millis_ceil().max(1) * 1_000;
            if self.timer.is_none_or(|timer| at < timer) {
                self.timer = Some(at);
                self.schedule(at, Event::Tick);
            }
        }
    }

    fn send(&mut self, Outgoing { id, body, .. }: Outgoing) {
        if self.store.refuses {
            let now = self.now();
            self.engine.failed(id, &StoreFailure::Refused, now);
            return;
        }
        self.in_flight.insert(id, body);
        if self.idle_streams > 0 {
            self.idle_streams -= 1;
            self.schedule(self.time + self.store.distance / 2, Event::Reached(id));
        } else {
            self.engine.connecting(id);
            self.schedule(self.time + self.store.handshake * self.store.distance, Event::Connected(id));
        }
    }

    fn decide(&mut self, stream: StreamId, action: &Action) {
        self.decided += 1;
        let rejects = matches!(action, Action::Reject(_));
        self.rejected += u64::from(rejects);
        self.rejects.resize(self.rejects.len().max(stream as usize + 1), false);
        self.rejects[stream as usize] = rejects;
        let now = self.now();
        self.engine.closed(stream, now);
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// How many requests have arrived.
    pub const fn arrived(&self) -> u32 {
        self.next_stream
    }

    /// How many requests some policy has decided without the store.
    pub fn without_store(&self) -> u64 {
        self.engine.counters().fallback
    }
}

/// The tag of a subject: one that is in this shard's part of the slots.
fn tag(Subject { policy, shard }: Subject) -> Vec<u8> {
    thread_local! {
        static TAGS: Vec<Vec<u8>> = (0..POLICIES * SHARDS).map(|place| {
            let (policy, shard) = (place / SHARDS, place % SHARDS);
            let mut tags = (0..).map(|number| format!("{{p{policy}|s{number}}}").into_bytes());
            tags.find(|tag| usize::from(key::slot(tag) >> 8) == shard * (64 / SHARDS)).expect("a subject")
        }).collect();
    }
    TAGS.with(|tags| tags[policy * SHARDS + shard].clone())
}
