//! One worker's engine and a store that exists in virtual time only: a distance, a capacity, shards that fail, a freeze.
//! What the host does is done here too: ticks, streams that have to be opened, batches that cannot be sent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use weir::config::Config;
use weir::engine::{Action, BatchId, Engine, Outgoing, StoreFailure, StreamId, Submitted};
use weir::policy::{Check, Mode, key};
use weir::resp::{self, Reply};
use weir::time::Micros;

/// How many parts of the slots fail by themselves.
pub const SHARDS: usize = 8;
/// How many policies a request may have.
pub const POLICIES: usize = 4;

const START: u64 = 1_700_000_000_000_000;

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
    flying: BTreeMap<BatchId, Vec<u8>>,
    idle_streams: usize,
    next_stream: StreamId,
    random: u64,
}

impl World {
    pub fn new(store: &str, behaves: Store) -> Self {
        let policy = |number: usize| {
            format!(
                r#"{{"name": "p{number}", "subject": [{{"literal": "s"}}], "limits":
                    [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10}}]}}"#
            )
        };
        let policies = (0..POLICIES).map(policy).collect::<Vec<_>>().join(", ");
        let config = format!(r#"{{"store": {store}, "policies": [{policies}]}}"#);
        let config = Config::parse(config.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}"));
        let mut engine = Engine::new(Rc::new(config), 1);
        engine.tick(Micros(START));
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
            flying: BTreeMap::new(),
            idle_streams: 0,
            next_stream: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// The host's clock.
    pub fn now(&self) -> Micros {
        Micros((START + self.time).saturating_add_signed(self.skew))
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if below == 0 { 0 } else { self.random % below }
    }

    /// A request arrives.
    pub fn submit(&mut self, subjects: &[Subject]) -> StreamId {
        let checks = subjects.iter().map(|subject| check(subject.policy, tag(*subject)));
        self.submit_checks(checks.collect())
    }

    /// A request arrives that waits, and the worker's root is not woken yet.
    pub fn submit_only(&mut self, stream: StreamId, subject: Subject) {
        let checks = [check(subject.policy, tag(subject))];
        let submitted = self.engine.submit(stream, checks.into_iter().collect(), self.now());
        assert!(matches!(submitted, Submitted::Wait));
    }

    /// A request arrives whose subject no other has.
    pub fn submit_alone(&mut self) -> StreamId {
        let subject = self.next_stream;
        self.submit_checks(vec![check(0, format!("{{p0|u{subject}}}").into_bytes())])
    }

    fn submit_checks(&mut self, checks: Vec<Check>) -> StreamId {
        self.next_stream += 1;
        let stream = self.next_stream;
        let now = self.now();
        match self.engine.submit(stream, checks.into_iter().collect(), now) {
            Submitted::Wait => self.waiting.push(stream),
            Submitted::Decided(action) => self.decide(stream, &action),
        }
        self.turn();
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
                        self.flying.remove(&batch);
                    }
                }
                Event::Tick => continue,
                Event::Connected(batch) => {
                    self.idle_streams += 1;
                    if self.flying.remove(&batch).is_some() {
                        let now = self.now();
                        self.engine.connected(batch, now);
                    }
                }
                Event::Reached(batch) => {
                    let Some(body) = self.flying.get(&batch) else { continue };
                    let tasks: u64 = commands(body).iter().map(|words| subjects(words) as u64).sum();
                    let begins = self.time.max(self.busy_until).max(self.store.frozen_until);
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
                    let Some(body) = self.flying.remove(&batch) else { continue };
                    self.idle_streams += 1;
                    let replies: Vec<u8> =
                        commands(&body).iter().flat_map(|words| self.reply(words)).collect();
                    let now = self.now();
                    self.engine.replied(batch, &replies, now);
                }
            }
            self.turn();
        }
        self.time = end;
    }

    fn reply(&self, words: &[Vec<u8>]) -> Vec<u8> {
        let tag = words[3].split(|byte| *byte == b':').nth(1).expect("a key with a tag");
        let shard = usize::from(key::slot(tag) >> 8) / (64 / SHARDS);
        if self.store.failing[shard] {
            return b"-upstream failure\r\n".to_vec();
        }
        if self.store.forgets && words[0] == b"EVALSHA" {
            return b"-NOSCRIPT No matching script.\r\n".to_vec();
        }
        let policy = usize::from(tag[2] - b'0');
        let mut reply = Vec::new();
        let subjects = subjects(words);
        if subjects > 1 {
            reply = format!("*{subjects}\r\n").into_bytes();
        }
        let questions = &words[words.len() - 1];
        for subject in 0..subjects {
            let requests = questions
                .get(if subjects > 1 { 16 * subject..16 * subject + 8 } else { 8..16 })
                .map_or(1, |bytes| i64::from_le_bytes(bytes.try_into().expect("eight bytes")));
            let granted = if self.store.denies[policy] { 0 } else { requests.max(0) };
            let numbers = [granted, START.cast_signed(), 5, 0, 1_000_000, 0];
            resp::bulk(&mut reply, &numbers.map(i64::to_le_bytes).concat());
        }
        reply
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
        let failures = self.engine.take_failures();
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

    fn send(&mut self, Outgoing { id, body }: Outgoing) {
        if self.store.refuses {
            let now = self.now();
            self.engine.failed(id, &StoreFailure::Refused, now);
            return;
        }
        self.flying.insert(id, body);
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
    pub const fn submitted(&self) -> u32 {
        self.next_stream
    }

    /// How many requests some policy has decided without the store.
    pub fn without_store(&self) -> u64 {
        self.engine.counters().fallback
    }
}

fn check(policy: usize, tag: Vec<u8>) -> Check {
    Check { policy, tier: 0, tag, cost: 1, mode: Mode::Enforce }
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

/// How many subjects a command asks about: each has one key.
fn subjects(words: &[Vec<u8>]) -> usize {
    let keys = std::str::from_utf8(&words[2]).ok().and_then(|keys| keys.parse().ok());
    keys.expect("the number of keys")
}

/// The words of each command of a batch.
pub fn commands(body: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (mut rest, mut commands) = (body, Vec::new());
    while !rest.is_empty() {
        let (command, length) = resp::decode(rest).expect("RESP").expect("a whole command");
        rest = &rest[length..];
        let Reply::Array(Some(words)) = command else { panic!("a command is an array: {command:?}") };
        let word = |word: &Reply<'_>| match word {
            Reply::Bulk(Some(bytes)) => bytes.to_vec(),
            other => panic!("a word is a bulk string: {other:?}"),
        };
        commands.push(words.iter().map(word).collect());
    }
    commands
}
