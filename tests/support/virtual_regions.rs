// SPDX-License-Identifier: Apache-2.0
//! Workers of several regions, one in each, and their stores, in virtual time. A store does what Redis does: it is the pure limits,
//! which `tests/redis/scripts/on_redis.rs` shows to answer as the scripts do. What is between a worker and a store delays and loses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::rc::Rc;

use weir::config::{Config, Evaluation};
use weir::engine::{Action, BatchId, Engine, Outgoing, Slots, StoreFailure, StreamId, Submitted};
use weir::limit::{Ask, Limit, LimitOutcome, Outcome, RetryAfter, Subject};
use weir::policy::{Across, Check};
use weir::random::Random;
use weir::request::sample::Sample;
use weir::time::Micros;

use crate::worker::{Reply, START, bytes, commands, numbers};

/// How a store behaves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Answers,
    /// It answers nothing, and does nothing of what it is sent.
    Hangs,
    /// Nothing can be sent to it.
    Refuses,
}

/// What lies between a worker and a store. Times are microseconds, of one trip.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    pub trip: u64,
    pub jitter: u64,
    /// How many of a hundred batches do not arrive; as many replies are lost.
    pub lost_percent: u64,
}

/// A worker of a region, and its store.
pub struct Region {
    pub engine: Engine,
    pub mood: Mood,
    /// By how much the clocks of the worker and of the store are wrong, in microseconds.
    pub skew: i64,
    pub store_skew: i64,
    subjects: HashMap<Vec<u8>, Subject>,
    timer: Option<u64>,
}

/// A request that was decided. Times are microseconds since the beginning.
#[derive(Clone, Debug)]
pub struct Decision {
    pub region: usize,
    pub subject: String,
    pub cost: u64,
    pub arrived: u64,
    pub at: u64,
    pub admitted: bool,
}

/// A request that waits.
struct Arrived {
    region: usize,
    subject: String,
    cost: u64,
    at: u64,
}

/// What a store did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: u64,
    /// Who asked, and which store did it.
    pub by: usize,
    pub store: usize,
    pub tag: String,
    /// Granted if positive in `Grant`; charged if positive in `Settle`, otherwise refunded.
    pub did: Did,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Grant(u64),
    Settle(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick(usize),
    Reached(usize, BatchId),
    Answered(usize, BatchId),
}

/// See the [module](self).
pub struct World {
    pub regions: Vec<Region>,
    pub network: Network,
    /// Between a worker and its own store.
    pub near: Network,
    /// The most that a request costs. Its header and its body say what it costs.
    pub costs: u64,
    /// Microseconds since the beginning.
    pub time: u64,
    pub decisions: BTreeMap<StreamId, Decision>,
    pub ledger: Vec<Entry>,
    waiting: BTreeMap<StreamId, Arrived>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    in_flight: BTreeMap<(usize, BatchId), (usize, Vec<u8>)>,
    replies: BTreeMap<(usize, BatchId), Vec<u8>>,
    next_stream: StreamId,
    random: Random,
}

pub const NAMES: [&str; 3] = ["ams", "bom", "cle"];

impl World {
    /// So many regions. `policies` is the list of the configuration's, `deadline` that of far stores.
    pub fn new(count: usize, sync_interval: &str, deadline: &str, policies: &str) -> Self {
        let all: Vec<_> = NAMES[..count]
            .iter()
            .map(|name| format!(r#"{{"name": "{name}", "cluster": "c-{name}", "deadline": "{deadline}"}}"#))
            .collect();
        let start = |here: &&str| {
            let config = format!(
                r#"{{"store": {{"deadline": "50ms", "on_failure": "deny", "denial_ttl": "100ms"}}, "regions": {{"here": "{here}",
                "sync_interval": "{sync_interval}", "all": [{}]}}, "policies": {policies}}}"#,
                all.join(", ")
            );
            let config = Config::parse(config.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}"));
            let mut engine = Engine::new(Rc::new(config), 1);
            engine.tick(START);
            let subjects = HashMap::new();
            Region { engine, mood: Mood::Answers, skew: 0, store_skew: 0, subjects, timer: None }
        };
        Self {
            regions: NAMES[..count].iter().map(start).collect(),
            network: Network { trip: 50_000, jitter: 20_000, lost_percent: 0 },
            near: Network { trip: 250, jitter: 0, lost_percent: 0 },
            costs: 1,
            time: 0,
            decisions: BTreeMap::new(),
            ledger: Vec::new(),
            waiting: BTreeMap::new(),
            events: BinaryHeap::new(),
            number: 0,
            in_flight: BTreeMap::new(),
            replies: BTreeMap::new(),
            next_stream: 0,
            random: Random::new(0x9e37_79b9_7f4a_7c15),
        }
    }

    pub fn seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn now(&self, region: usize) -> Micros {
        Micros((START.0 + self.time).saturating_add_signed(self.regions[region].skew))
    }

    /// A request arrives in a region, of one policy.
    pub fn arrive(&mut self, region: usize, policy: usize, subject: &str) -> StreamId {
        self.arrive_under(region, &[policy], subject)
    }

    /// The same, of several policies.
    pub fn arrive_under(&mut self, region: usize, policies: &[usize], subject: &str) -> StreamId {
        self.next_stream += 1;
        let (stream, now) = (self.next_stream, self.now(region));
        let cost = if self.costs > 1 { 1 + self.random(self.costs) } else { 1 };
        let checks = policies.iter().map(|policy| self.check(region, *policy, subject, cost)).collect();
        self.waiting.insert(stream, Arrived { region, subject: subject.to_owned(), cost, at: self.time });
        if let Submitted::Decided(action) = self.regions[region].engine.submit(stream, checks, now) {
            self.decide(stream, &action);
        }
        self.turn(region);
        stream
    }

    fn check(&self, region: usize, policy: usize, subject: &str, cost: u64) -> Check {
        let config = self.regions[region].engine.config();
        let request = Sample::default().header("x-cost", cost.to_string());
        let request = request.with_body(format!(r#"{{"cost": {cost}}}"#));
        let Evaluation::Check(checks) = config.evaluate(&request) else { panic!("no check") };
        let mut check = checks.into_iter().find(|check| check.policy == policy).expect("the policy");
        assert_eq!(check.cost, cost);
        check.tag = format!("{{{}|{subject}}}", config.policies[policy].name).into();
        check
    }

    /// A client leaves that may wait.
    pub fn close(&mut self, which: usize) {
        let waiting: Vec<_> = self.waiting.keys().copied().collect();
        if waiting.is_empty() {
            return;
        }
        let stream = waiting[which % waiting.len()];
        let region = self.waiting.remove(&stream).expect("it waits").region;
        let now = self.now(region);
        self.regions[region].engine.closed(stream, now);
        self.turn(region);
    }

    /// Requests arrive in these regions, one in each every so many microseconds, while time passes.
    pub fn load(&mut self, regions: &[usize], (policy, subject): (usize, &str), every: u64, span: u64) {
        let end = self.time + span;
        while self.time < end {
            for region in regions {
                self.arrive(*region, policy, subject);
            }
            self.run(every);
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
                Event::Tick(region) => {
                    if self.regions[region].timer != Some(at) {
                        continue;
                    }
                    self.regions[region].timer = None;
                    let now = self.now(region);
                    let engine = &mut self.regions[region].engine;
                    engine.tick(now);
                    while let Some(batch) = engine.next_abandoned() {
                        // Its connection is closed. What is on its way to the store still arrives.
                        self.replies.insert((region, batch), Vec::new());
                    }
                    self.turn(region);
                }
                Event::Reached(region, batch) => self.reached(region, batch),
                Event::Answered(region, batch) => {
                    let Some(replies) = self.replies.remove(&(region, batch)).filter(|all| !all.is_empty())
                    else {
                        continue;
                    };
                    let now = self.now(region);
                    self.regions[region].engine.replied(batch, &replies, now);
                    self.turn(region);
                }
            }
        }
        self.time = end;
    }

    fn reached(&mut self, region: usize, batch: BatchId) {
        let Some((store, body)) = self.in_flight.remove(&(region, batch)) else { return };
        if self.regions[store].mood != Mood::Answers {
            return;
        }
        let network = self.between(region, store);
        let replies: Vec<_> =
            commands(&body).iter().map(|words| self.execute(region, store, words)).collect();
        let is_abandoned = self.replies.remove(&(region, batch)).is_some();
        if is_abandoned || self.random(100) < network.lost_percent {
            return;
        }
        self.replies.insert((region, batch), bytes(replies));
        let trip = self.trip(network);
        self.schedule(self.time + trip, Event::Answered(region, batch));
    }

    const fn between(&self, region: usize, store: usize) -> Network {
        if region == store { self.near } else { self.network }
    }

    fn trip(&mut self, Network { trip, jitter, .. }: Network) -> u64 {
        (trip - jitter) + self.random(2 * jitter + 1)
    }

    /// What the host does after each event.
    pub fn turn(&mut self, region: usize) {
        let now = self.now(region);
        while let Some(Outgoing { id, store, body, slots, .. }) = self.regions[region].engine.next_batch(now)
        {
            let store = store_at(region, store.into());
            let network = self.between(region, store);
            assert!(slots == Slots::Normal || slots == Slots::Suspect);
            if self.regions[store].mood == Mood::Refuses {
                self.regions[region].engine.failed(id, &StoreFailure::Refused, now);
            } else if self.random(100) >= network.lost_percent {
                self.in_flight.insert((region, id), (store, body));
                let trip = self.trip(network);
                self.schedule(self.time + trip, Event::Reached(region, id));
            }
        }
        while let Some(release) = self.regions[region].engine.next_release() {
            self.decide(release.stream, &release.action);
        }
        self.regions[region].engine.take_failures();
        if let Some(due) = self.regions[region].engine.next_tick(now) {
            // Whole milliseconds, as the host's timers.
            let at = self.time + due.since(now).as_millis_ceil().max(1) * 1_000;
            if self.regions[region].timer.is_none_or(|timer| at < timer) {
                self.regions[region].timer = Some(at);
                self.schedule(at, Event::Tick(region));
            }
        }
    }

    fn decide(&mut self, stream: StreamId, action: &Action) {
        let Some(Arrived { region, subject, cost, at: arrived }) = self.waiting.remove(&stream) else {
            return;
        };
        let admitted = matches!(action, Action::Admit);
        self.decisions.insert(stream, Decision { region, subject, cost, arrived, at: self.time, admitted });
        let now = self.now(region);
        self.regions[region].engine.closed(stream, now);
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// A store runs the script of a command.
    fn execute(&mut self, by: usize, store: usize, words: &[Vec<u8>]) -> Reply {
        let key = String::from_utf8(words[3].clone()).expect("text");
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).expect("a tag").0.to_owned();
        let config = Rc::clone(self.regions[store].engine.config());
        let name = tag.split_once('|').expect("a policy").0;
        let policy = config.policies.iter().find(|policy| policy.name == name).expect("a policy");
        let plan = &policy.tiers.tiers[0].plan;
        let script = String::from_utf8_lossy(&words[1]);
        let verb = plan.sources().into_iter().position(|source| {
            source == script || sha1_smol::Sha1::from(source).digest().to_string() == script
        });
        let at = &mut self.regions[store];
        let now = Micros((START.0 + self.time).saturating_add_signed(at.store_skew));
        let subject = at.subjects.entry(words[3].clone()).or_default();
        let question = numbers(&words[words.len() - 1]);
        let (outcome, did) = match verb {
            Some(0) => {
                let kept = if policy.regions == Across::Share { question[3] } else { 0 };
                let ask = Ask {
                    requests: u32::try_from(question[1]).expect("a count"),
                    cost: u64::try_from(question[2]).expect("a cost"),
                    kept_percent: u8::try_from(kept).expect("percent"),
                };
                let outcome = subject.check(plan.limits(), None, now, ask);
                let did = Did::Grant(u64::from(outcome.granted) * ask.cost);
                (outcome, did)
            }
            Some(2) => {
                let receipt = receipt(&question, plan.limits());
                (subject.settle(plan.limits(), None, now, question[1], &receipt), Did::Settle(question[1]))
            }
            other => panic!("script {other:?} of {tag}"),
        };
        self.ledger.push(Entry { at: self.time, by, store, tag, did });
        reply(&outcome)
    }

    /// When each of the requests of a subject was admitted, and what it costs.
    pub fn admitted(&self, subject: &str) -> Vec<(u64, u64)> {
        let of = self.decisions.values().filter(|of| of.admitted && of.subject == subject);
        let mut at: Vec<_> = of.map(|of| (of.at, of.cost)).collect();
        at.sort_unstable();
        at
    }

    /// What a store has granted a worker, beyond what this gave back.
    pub fn granted(&self, by: usize, store: usize) -> i64 {
        let entries = self.ledger.iter().filter(|entry| entry.by == by && entry.store == store);
        entries
            .map(|entry| match entry.did {
                Did::Grant(units) => units.cast_signed(),
                Did::Settle(units) => units.min(0),
            })
            .sum()
    }

    /// What a worker has charged in a store that is not its own.
    pub fn charged(&self, by: usize, store: usize) -> i64 {
        let entries = self.ledger.iter().filter(|entry| entry.by == by && entry.store == store);
        entries
            .map(|entry| match entry.did {
                Did::Settle(units) => units.max(0),
                Did::Grant(_) => 0,
            })
            .sum()
    }
}

/// The region whose store has this number in the configuration of a worker: its own is the first.
fn store_at(here: usize, store: usize) -> usize {
    match store {
        0 => here,
        store if store <= here => store - 1,
        store => store,
    }
}

/// The receipt that a settlement brings.
fn receipt(question: &[i64], limits: &[Limit]) -> Outcome {
    let unsigned = |number: i64| u64::try_from(number).expect("not negative");
    let limits = question[3..].chunks(3).take(limits.len()).map(|answer| LimitOutcome {
        remaining: answer[0],
        reset: Micros(unsigned(answer[1])),
        refunded: unsigned(answer[2]),
        ..LimitOutcome::default()
    });
    Outcome { granted: 0, at: Micros(unsigned(question[2])), limits: limits.collect(), ..Outcome::NONE }
}

/// As the script answers.
fn reply(outcome: &Outcome) -> Reply {
    let mut reply = vec![i64::from(outcome.granted), outcome.at.0.cast_signed()];
    for answer in &outcome.limits {
        let wait = match answer.retry_after {
            RetryAfter::Now => 0,
            RetryAfter::After(span) => span.0.cast_signed(),
            RetryAfter::Unknown | RetryAfter::Never => -1,
        };
        reply.extend([answer.remaining, wait, answer.reset.0.cast_signed(), answer.first_delay]);
    }
    let refunds = outcome.limits.iter().enumerate().filter(|(_, answer)| answer.refunded > 0);
    reply.extend(refunds.map(|(place, answer)| (answer.refunded | (place as u64) << 56).cast_signed()));
    Reply::Numbers(reply)
}
