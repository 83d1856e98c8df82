// SPDX-License-Identifier: Apache-2.0
//! A random history of one worker, and a store that keeps a ledger: it executes a batch when it is sent, and notes what each
//! subject was granted, and what came back. In the end both must agree.
//! The tests on a real Redis show that Redis does the same.

use std::collections::{BTreeMap, HashMap};

use weir::engine::{BatchId, StoreFailure, StreamId};
use weir::limit::Limit;
use weir::random::Random;
use weir::time::Micros;

use crate::worker::*;

/// What the modelled store knows of a subject, in requests of cost `unit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Account {
    granted: i64,
    refunded: i64,
    /// Granted in batches whose reply the worker never saw.
    unknown: i64,
    /// Refunds that were lost with their batch.
    lost: i64,
    /// Places held, by permit.
    places: BTreeMap<i64, i64>,
}

impl Account {
    fn release(&mut self, task: &Task) {
        let places = self.places.get_mut(&task.number).expect("a permit that is held");
        *places -= task.requests;
        assert!(*places >= 0, "{task:?} releases more than is held");
    }
}

/// How a batch in flight ends, when it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Replied,
    /// The connection breaks before the store has read it.
    LostUnread,
    /// The connection breaks before the reply is read.
    LostReply,
}

/// What a random history does next.
#[derive(Clone, Debug)]
pub enum Step {
    Arrive { policies: usize, subject: usize },
    Send { fate: Fate, dice: u64 },
    Reply { which: usize },
    Close { which: usize },
    Pass { millis: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Waiting,
    Admitted,
    Rejected,
    Left,
}

/// A request of the history.
#[derive(Debug)]
struct User {
    tags: Vec<String>,
    status: Status,
    open: bool,
}

/// A worker, the store that it asks, and the requests that ask it.
pub struct History {
    worker: Worker,
    /// Each request has subjects of its own; otherwise three subjects are shared by all.
    apart: bool,
    accounts: HashMap<String, Account>,
    users: BTreeMap<StreamId, User>,
    in_flight: Vec<InFlight>,
    next: StreamId,
    permit: i64,
    random: Random,
    /// The store does what it is asked, and nothing is lost.
    calm: bool,
    deny: bool,
}

/// A batch whose reply has not arrived yet.
#[derive(Debug)]
struct InFlight {
    id: BatchId,
    fate: Fate,
    replies: Vec<Reply>,
    /// Requests asked for.
    asked: i64,
    /// Requests granted, by tag and permit.
    grants: Vec<(String, i64, i64)>,
    /// Answered with NOSCRIPT: done only when they are sent again.
    to_repeat: Vec<Task>,
}

impl History {
    pub fn new(apart: bool, topology: &str, deny: bool, lease: bool, queue: bool) -> Self {
        let on_failure = if deny { "deny" } else { "allow" };
        let store =
            format!(r#"{{"deadline": "20ms", "on_failure": "{on_failure}", "topology": "{topology}"}}"#);
        let short = r#"{"max": 8, "min": 2, "duration": "100ms"}"#;
        let first = if lease { leased(short, WINDOW) } else { policy(BUCKET) };
        let both = format!("{}, {PLACES}", BUCKET.replace(r#""l""#, r#""b""#));
        let places = if queue { queued(PLACES, "80ms", 3) } else { PLACES.to_owned() };
        let policies = [first, policy(&delayed("30s")), policy(&places), policy(&both)];
        Self {
            worker: Worker::new(&store, policies),
            apart,
            accounts: HashMap::new(),
            users: BTreeMap::new(),
            in_flight: Vec::new(),
            next: 1,
            permit: 100,
            random: Random::new(1),
            calm: false,
            deny,
        }
    }

    /// From 0 to below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.random.below(sides)
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive { policies, subject } => {
                self.arrive(policies, format!("s{}", subject % 3));
            }
            Step::Send { fate, dice } => {
                self.random = Random::new(dice);
                self.send(fate);
            }
            Step::Reply { which } if !self.in_flight.is_empty() => self.reply(which % self.in_flight.len()),
            Step::Reply { .. } => {}
            Step::Close { which } => {
                let open: Vec<_> =
                    self.users.iter().filter(|(_, user)| user.open).map(|(id, _)| *id).collect();
                if !open.is_empty() {
                    self.close(open[which % open.len()]);
                }
            }
            Step::Pass { millis } => self.pass(millis),
        }
        self.released();
        let open = self.users.values().filter(|user| user.open).count();
        let asked: i64 = self.in_flight.iter().map(|batch| batch.asked).sum();
        let bound = open + usize::try_from(asked).expect("a count");
        assert!(self.worker.engine.request_count() <= bound, "what is remembered is open or in flight");
    }

    fn arrive(&mut self, policies: usize, shared: String) -> StreamId {
        let stream = self.next;
        self.next += 1;
        let name = if self.apart { stream.to_string() } else { shared };
        let tags = (0..policies).map(|policy| format!("p{policy}|{name}")).collect();
        self.users.insert(stream, User { tags, status: Status::Waiting, open: true });
        let subjects = vec![name.as_str(); policies];
        if let Some(admitted) = self.worker.arrive(stream, &subjects) {
            self.decided(stream, admitted);
        }
        stream
    }

    fn decided(&mut self, stream: StreamId, admitted: bool) {
        let user = self.users.get_mut(&stream).expect("a request of this history");
        assert!(user.open && user.status == Status::Waiting, "{stream} is decided once, while it is there");
        user.status = if admitted { Status::Admitted } else { Status::Rejected };
    }

    fn released(&mut self) {
        for (stream, admitted) in self.worker.released() {
            // A request that left between its decision and its release is the host's to skip.
            if self.users[&stream].open {
                self.decided(stream, admitted);
            }
        }
    }

    fn close(&mut self, stream: StreamId) {
        let user = self.users.get_mut(&stream).expect("a request of this history");
        user.open = false;
        if user.status == Status::Waiting {
            user.status = Status::Left;
        }
        self.worker.close(stream);
    }

    fn pass(&mut self, millis: u64) {
        self.worker.idle(ms(millis));
        while let Some(id) = self.worker.engine.next_abandoned() {
            let place = self.in_flight.iter().position(|batch| batch.id == id).expect("it was in flight");
            let abandoned = self.in_flight.remove(place);
            self.unheard(abandoned);
        }
    }

    /// The reply is lost: what the store granted stays charged, and places end with their ttl.
    fn unheard(&mut self, InFlight { grants, to_repeat, .. }: InFlight) {
        to_repeat.iter().for_each(|task| self.lose(task));
        for (tag, requests, permit) in grants {
            let account = self.accounts.get_mut(&tag).expect("an account");
            account.unknown += requests;
            account.places.remove(&permit);
        }
    }

    /// A batch leaves. The store executes it now, unless it never gets there.
    fn send(&mut self, fate: Fate) {
        let Some(Batch { id, commands, .. }) = self.worker.next_batch() else { return };
        let (mut replies, mut asked, mut grants, mut to_repeat) = (Vec::new(), 0, Vec::new(), Vec::new());
        for command in commands {
            let checks = command.tasks.iter().filter(|task| task.verb == Verb::Check);
            asked += checks.map(|task| task.requests).sum::<i64>();
            let dice = if self.calm { 15 } else { self.roll(16) };
            if fate == Fate::LostUnread {
                command.tasks.iter().for_each(|task| self.lose(task));
                continue;
            }
            if dice == 0 && !command.by_source() {
                replies.push(noscript());
                to_repeat.extend(command.tasks);
                continue;
            }
            if dice == 1 {
                // An error: nothing was done. A refund that fails is lost.
                command.tasks.iter().for_each(|task| self.lose(task));
                replies.push(error("OOM command not allowed"));
                continue;
            }
            let mut each: Vec<_> = command.tasks.iter().map(|task| self.execute(task, &mut grants)).collect();
            replies.push(if each.len() == 1 { each.remove(0) } else { together(each) });
        }
        self.in_flight.push(InFlight { id, fate, replies, asked, grants, to_repeat });
    }

    /// The store does not do this task. A place that is not released ends with its ttl.
    fn lose(&mut self, task: &Task) {
        let account = self.accounts.entry(task.tag.clone()).or_default();
        match task.verb {
            Verb::Check => {}
            Verb::Refund => account.lost += task.number,
            Verb::Release => account.release(task),
        }
    }

    fn execute(&mut self, task: &Task, grants: &mut Vec<(String, i64, i64)>) -> Reply {
        let granted = if task.verb == Verb::Check { self.grants(task.requests) } else { 0 };
        self.permit += 1;
        let (permit, delay) = (self.permit, i64::try_from(self.roll(2) * 40_000).expect("a delay"));
        let limits = self.worker.limits(&task.tag).to_vec();
        let account = self.accounts.entry(task.tag.clone()).or_default();
        match task.verb {
            Verb::Check => {
                account.granted += granted;
                grants.push((task.tag.clone(), granted, permit));
                if granted > 0 && limits.iter().any(|limit| matches!(limit, Limit::Concurrency(_))) {
                    account.places.insert(permit, granted);
                }
                let mut numbers = vec![granted, micros(START)];
                // Buckets go before concurrency in the script.
                for limit in &limits {
                    let extra = match limit {
                        Limit::Concurrency(_) if granted > 0 => permit,
                        Limit::LeakyBucket(bucket) if bucket.max_delay() > Micros::ZERO => delay,
                        _ => 0,
                    };
                    let wait = if granted < task.requests { 30_000 } else { 0 };
                    numbers.extend([5, wait, 60_000_000, extra]);
                }
                Reply::Numbers(numbers)
            }
            Verb::Refund => {
                account.refunded += task.number;
                assert!(account.refunded <= account.granted, "{}: {account:?}", task.tag);
                Reply::Bytes(b"$0\r\n\r\n".to_vec())
            }
            Verb::Release => {
                account.release(task);
                done()
            }
        }
    }

    /// Mostly all, sometimes some or none.
    fn grants(&mut self, requests: i64) -> i64 {
        match self.roll(4) {
            0 if !self.calm => {
                i64::try_from(self.roll(u64::try_from(requests).expect("a count") + 1)).expect("few")
            }
            _ => requests,
        }
    }

    fn reply(&mut self, place: usize) {
        let batch = self.in_flight.remove(place);
        let now = self.worker.now;
        if batch.fate == Fate::Replied {
            self.worker.engine.replied(batch.id, &bytes(batch.replies), now);
        } else {
            self.worker.engine.failed(batch.id, &StoreFailure::Refused, now);
            self.unheard(batch);
        }
    }

    /// All batches are resolved, all streams are closed, and nothing is left to send.
    pub fn end(&mut self) {
        self.calm = true;
        self.pass(60);
        self.released();
        let open: Vec<_> = self.users.iter().filter(|(_, user)| user.open).map(|(id, _)| *id).collect();
        open.into_iter().for_each(|stream| self.close(stream));
        for round in 0..100 {
            // While a breaker is open nothing is sent before a request asks.
            let stream = self.arrive(1, format!("last{round}"));
            self.drain();
            self.worker.engine.retire();
            self.drain();
            self.released();
            let decided = self.worker.engine.record(stream).map(|record| record.source);
            self.close(stream);
            if decided == Some("redis") && self.worker.engine.on_lease() == 0 {
                return;
            }
            self.pass(60);
            self.released();
        }
        panic!("the store answers, and no request is decided by it");
    }

    fn drain(&mut self) {
        loop {
            self.send(Fate::Replied);
            if self.in_flight.is_empty() {
                return;
            }
            self.reply(0);
        }
    }

    /// Units that the store charged and that were not refunded are those of requests that were admitted, or whose client
    /// left while they waited. No place is held.
    pub fn judge(&self) {
        assert_eq!(self.worker.engine.request_count(), 0, "nothing is remembered of requests that are over");
        let mut users: HashMap<&str, [i64; 2]> = HashMap::new();
        for user in self.users.values() {
            for tag in &user.tags {
                let [admitted, left] = users.entry(tag).or_default();
                match user.status {
                    Status::Admitted => *admitted += 1,
                    Status::Left => *left += 1,
                    Status::Waiting | Status::Rejected => {}
                }
            }
        }
        for (tag, account) in &self.accounts {
            let Account { granted, refunded, unknown, lost, places } = account;
            let [admitted, left] = users.get(tag.as_str()).copied().unwrap_or_default();
            let charged = granted - refunded;
            let most = admitted + left + unknown + lost;
            let least = if self.deny { admitted } else { 0 };
            assert!(
                (least..=most).contains(&charged),
                "{tag}: {charged} of {admitted} + {left}, {account:?}"
            );
            if self.apart && admitted + left > 0 {
                assert_eq!(charged, *granted, "{tag}: an admitted request was refunded");
            }
            assert_eq!(places.values().sum::<i64>(), 0, "{tag}: {account:?}");
        }
    }
}
