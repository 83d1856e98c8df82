// SPDX-License-Identifier: Apache-2.0
//! One worker's engine in scenarios, without a host and without a store. Each step is one line: requests arrive, a batch leaves,
//! the store replies or fails, time passes, streams close. A test reads what was sent, and makes up what comes back.
//! The tests on a real Redis show that Redis replies so.
//!
//! ```
//! let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
//! assert_eq!(worker.arrive(1, &["ann"]), None);
//! let batch = worker.batch();
//! assert_eq!(batch.tasks(), [check("p0|ann", 1)]);
//! assert_eq!(worker.reply(&batch, [granted(1)]), [(1, true)]);
//! worker.close(1);
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter;
use std::rc::Rc;

use weir::config::Config;
use weir::engine::{Action, BatchId, Engine, Outgoing, Release, StoreFailure, StreamId, Submitted};
use weir::limit::{Ask, Limit, LimitOutcome, Outcome as LimitsOutcome, RetryAfter};
use weir::policy::Check;
use weir::resp;
use weir::script::usage::{Interval, Used};
use weir::script::{Form, Plan};
use weir::time::Micros;

/// The time at which every scenario begins.
pub const START: Micros = Micros::from_secs(1_700_000_000);
pub const DAY: Micros = Micros::from_secs(86_400);
pub const MINUTE: Micros = Micros::from_secs(60);

pub const fn ms(millis: u64) -> Micros {
    Micros::from_millis(millis)
}

pub const fn secs(secs: u64) -> Micros {
    Micros::from_secs(secs)
}

// --- Configurations ---------------------------------------------------------------------------------------------------

/// Settings of the store, by what `on_failure` does.
pub const ALLOW: &str = r#"{"deadline": "50ms", "on_failure": "allow"}"#;
pub const DENY: &str = r#"{"deadline": "50ms", "on_failure": "deny"}"#;
pub const LOCAL: &str = r#"{"deadline": "50ms", "on_failure": "local"}"#;
/// One Redis that has all keys.
pub const SINGLE: &str = r#"{"topology": "single"}"#;

pub const BUCKET: &str = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10}"#;
/// `lease: auto` takes twenty requests in advance at most.
pub const LARGE: &str = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "500k/s", "burst": 10000}"#;
pub const WINDOW: &str = r#"{"name": "l", "algorithm": "fixed_window", "limit": 100, "window": "1d"}"#;
pub const PLACES: &str = r#"{"name": "l", "algorithm": "concurrency", "limit": 5, "ttl": "60s"}"#;

/// A bucket that holds requests until their turn, for so long at most.
pub fn delayed(max_delay: &str) -> String {
    BUCKET.replace(r#""burst""#, &format!(r#""max_delay": "{max_delay}", "burst""#))
}

/// Places for which requests wait.
pub fn queued(places: &str, max_wait: &str, max_waiting: usize) -> String {
    let queue = format!(r#", "queue": {{"max_wait": "{max_wait}", "max_waiting": {max_waiting}}}}}"#);
    format!("{}{queue}", places.strip_suffix('}').expect("an object"))
}

/// A configuration with these settings of the store. A policy is named by its place: `p0`, `p1`, …
pub fn configuration(store: &str, policies: impl IntoIterator<Item = String>) -> String {
    let named = |(place, policy)| format!(r#"{{"name": "p{place}", {policy}}}"#);
    let policies: Vec<_> = policies.into_iter().enumerate().map(named).collect();
    format!(r#"{{"emit_filter_state": true, "store": {store}, "policies": [{}]}}"#, policies.join(", "))
}

/// A policy with these limits.
pub fn policy(limits: &str) -> String {
    format!(r#""subject": [{{"literal": "s"}}], "limits": [{limits}]"#)
}

/// A policy that tells true costs from responses.
pub fn settled(cases: &str, limits: &str) -> String {
    format!(r#""settle": {cases}, {}"#, policy(limits))
}

/// A policy with a lease.
pub fn leased(lease: &str, limits: &str) -> String {
    format!(r#""lease": {lease}, {}"#, policy(limits))
}

// --- The worker -------------------------------------------------------------------------------------------------------

/// The outcome of a request: its number, and `true` if it was admitted.
pub type Outcome = (StreamId, bool);

/// An engine and the host's clock.
pub struct Worker {
    pub engine: Engine,
    pub now: Micros,
    known: Rc<Known>,
}

/// A configuration, and what its scripts do.
pub struct Known {
    config: Rc<Config>,
    /// By source and by SHA-1: what a script does, and whether its check says how much it keeps for others.
    scripts: HashMap<String, (Verb, bool)>,
    /// By the name of the counters.
    plans: HashMap<String, Rc<Plan>>,
}

impl Known {
    pub fn new(config: &str) -> Rc<Self> {
        let config = Config::parse(config.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}"));
        let (mut scripts, mut plans) = (HashMap::new(), HashMap::new());
        for policy in &config.policies {
            plans.insert(policy.counters.clone(), Rc::clone(&policy.tiers.tiers[0].plan));
            for tier in &policy.tiers.tiers {
                let verbs = [Verb::Check, Verb::Refund, Verb::Release];
                for (source, verb) in tier.plan.sources().into_iter().zip(verbs) {
                    let script = (verb, source.contains("kept_percent"));
                    scripts.insert(source.to_owned(), script);
                    scripts.insert(sha1_smol::Sha1::from(source).digest().to_string(), script);
                }
            }
        }
        Rc::new(Self { config: Rc::new(config), scripts, plans })
    }
}

impl Worker {
    pub fn new(store: &str, policies: impl IntoIterator<Item = String>) -> Self {
        Self::configured(&configuration(store, policies))
    }

    pub fn configured(config: &str) -> Self {
        Self::seeded(config, 1)
    }

    pub fn seeded(config: &str, seed: u64) -> Self {
        Self::of(&Known::new(config), seed)
    }

    pub fn of(known: &Rc<Known>, seed: u64) -> Self {
        let mut engine = Engine::new(Rc::clone(&known.config), seed);
        // The host ticks once before the first request, so that the engine knows the time.
        engine.tick(START);
        Self { engine, now: START, known: Rc::clone(known) }
    }

    /// Returns the failures of the stores since the last call.
    pub fn failures(&mut self) -> Vec<StoreFailure> {
        self.engine.take_failures().into_iter().map(|(_, failure)| failure).collect()
    }

    /// A request with this number arrives. Policies 0, 1, … check it for these subjects. `None` while it waits.
    pub fn arrive(&mut self, stream: StreamId, subjects: &[&str]) -> Option<bool> {
        self.arrive_costing(1, stream, subjects)
    }

    pub fn arrive_costing(&mut self, cost: u64, stream: StreamId, subjects: &[&str]) -> Option<bool> {
        let checks = subjects.iter().enumerate();
        let checks = checks
            .map(|(policy, subject)| check_of(policy, format!("{{p{policy}|{subject}}}"), cost))
            .collect();
        match self.engine.submit(stream, checks, self.now) {
            Submitted::Wait => None,
            Submitted::Decided(action) => Some(matches!(action, Action::Admit)),
        }
    }

    /// Requests of one subject arrive, and all wait.
    pub fn all_wait(&mut self, streams: impl IntoIterator<Item = StreamId>, subject: &str) {
        streams.into_iter().for_each(|stream| assert_eq!(self.arrive(stream, &[subject]), None, "{stream}"));
    }

    /// A request arrives whose subject no other request has. Returns `true` if it waits.
    pub fn waits_alone(&mut self, stream: StreamId) -> bool {
        self.arrive(stream, &[&stream.to_string()]).is_none()
    }

    /// The headers of its response, with status 200.
    pub fn respond(&mut self, stream: StreamId) {
        let status = |name: &str| (name == ":status").then(|| b"200".to_vec());
        self.engine.response_headers(stream, &status, self.now);
    }

    pub fn close(&mut self, stream: StreamId) {
        self.engine.closed(stream, self.now);
    }

    /// The next batch leaves.
    pub fn batch(&mut self) -> Batch {
        self.next_batch().expect("a batch")
    }

    pub fn next_batch(&mut self) -> Option<Batch> {
        let Outgoing { id, store, body, replies, .. } = self.engine.next_batch(self.now)?;
        let commands = commands(&body);
        assert_eq!(replies, commands.len(), "each command has one reply");
        let (waits, commands): (Vec<_>, Vec<_>) = commands.into_iter().partition(|words| words[0] == b"WAIT");
        let (journal, commands): (Vec<_>, Vec<_>) =
            commands.into_iter().partition(|words| words[0] == b"XADD");
        let (usage, scripts): (Vec<_>, Vec<_>) =
            commands.into_iter().partition(|words| words[3].starts_with(b"weir:{journal}:usage:"));
        let commands = scripts.into_iter().map(|words| self.command(words)).collect();
        Some(Batch {
            id,
            store,
            bytes: body.len(),
            commands,
            replicas: waits.first().map(|words| {
                let number = |place: usize| text(&words[place]).parse().expect("a number");
                (number(1), number(2))
            }),
            journal: journal.iter().map(|words| entry(words)).collect(),
            usage: usage.iter().map(|words| UsageWrite::read(words)).collect(),
        })
    }

    /// The store replies to a batch.
    /// The journal is written.
    pub fn reply(&mut self, to: &Batch, replies: impl IntoIterator<Item = Reply>) -> Vec<Outcome> {
        self.reply_journal(to, replies, &written())
    }

    /// The store replies to a batch, and so to each entry of the journal in it.
    pub fn reply_journal(
        &mut self,
        to: &Batch,
        replies: impl IntoIterator<Item = Reply>,
        entry: &Reply,
    ) -> Vec<Outcome> {
        let entries = (0..to.journal.len() + to.usage.len()).map(|_| entry.clone());
        self.engine.replied(to.id, &bytes(replies.into_iter().chain(entries)), self.now);
        self.released()
    }

    /// The next batch leaves, and the store replies to it.
    pub fn answer(&mut self, replies: impl IntoIterator<Item = Reply>) -> Vec<Outcome> {
        let batch = self.batch();
        self.reply(&batch, replies)
    }

    /// A batch is lost.
    pub fn fail(&mut self, batch: &Batch) -> Vec<Outcome> {
        self.engine.failed(batch.id, &StoreFailure::Refused, self.now);
        self.released()
    }

    /// The next batch leaves, and is lost.
    pub fn lose(&mut self) -> Vec<Outcome> {
        let batch = self.batch();
        self.fail(&batch)
    }

    /// Sends all that is ready, batch after batch. The store does not run it.
    pub fn drain(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        while let Some(batch) = self.next_batch() {
            tasks.extend(batch.tasks());
            let replies = vec![Reply::Bytes(b":0\r\n".to_vec()); batch.commands.len()];
            self.engine.replied(batch.id, &bytes(replies), self.now);
        }
        tasks
    }

    pub fn released(&mut self) -> Vec<Outcome> {
        std::iter::from_fn(|| self.engine.next_release())
            .map(|Release { stream, action }| (stream, matches!(action, Action::Admit)))
            .collect()
    }

    /// The worker's loop runs on for this long, with a tick each millisecond.
    pub fn idle(&mut self, span: Micros) {
        let end = self.now.plus(span);
        while self.now < end {
            self.now = self.now.plus(ms(1));
            self.engine.tick(self.now);
        }
    }

    /// The clock goes on, and the worker has not ticked since.
    pub fn skip(&mut self, span: Micros) {
        self.now = self.now.plus(span);
    }

    pub fn set_back(&mut self, span: Micros) {
        self.now = self.now.since(span);
    }

    pub fn next_tick(&self) -> Option<Micros> {
        self.engine.next_tick(self.now)
    }

    /// The remaining amount of this request's limit in an access log.
    pub fn remaining(&self, stream: StreamId) -> u64 {
        self.engine.record(stream).expect("a record").remaining.expect("a number")
    }

    /// The limits of the policy that this tag names, in the order of the script's reply.
    pub fn limits(&self, tag: &str) -> &[Limit] {
        self.plan(tag).limits()
    }

    fn plan(&self, tag: &str) -> &Rc<Plan> {
        &self.known.plans[tag.split('|').next().expect("a policy")]
    }

    fn command(&self, words: Vec<Vec<u8>>) -> Command {
        let (verb, keeps) = self.known.scripts[&text(&words[1])];
        let (keys, arguments) = words[3..].split_at(key_count(&words));
        let task = |key: &[u8], requests, number| Task { verb, tag: tag_of(key), requests, number };
        let first = numbers(&arguments[0]);
        let tasks = match verb {
            Verb::Check => {
                let ends: BTreeSet<_> =
                    keys.iter().map(|key| key.rsplit(|byte| *byte == b':').next()).collect();
                // The further questions, unless all subjects share the first one, follow what a check of one subject has.
                let mut one = Vec::new();
                self.plan(&tag_of(&keys[0])).check(b"{p|s}", Ask::new(1, 1), None, Form::Evalsha, &mut one);
                let one = numbers(commands(&one)[0].last().expect("an argument")).len();
                let size = if keeps { 3 } else { 2 };
                let others = first[one..].chunks(size).chain(iter::repeat(&first[1..]));
                let questions = iter::once(&first[1..]).chain(others);
                let subjects = keys.chunks(ends.len()).zip(questions);
                subjects.map(|(keys, question)| task(&keys[0], question[0], question[1])).collect()
            }
            Verb::Refund => vec![task(&keys[0], 0, -first[1])],
            Verb::Release | Verb::Renew => {
                let verb = if first[3] > 0 { Verb::Renew } else { Verb::Release };
                vec![Task { verb, ..task(&keys[0], first[2], first[1]) }]
            }
        };
        Command { plan: Rc::clone(self.plan(&tasks[0].tag)), keeps, words, tasks }
    }
}

/// The question that a policy has about one subject.
pub fn check_of(policy: usize, tag: impl Into<Vec<u8>>, cost: u64) -> Check {
    Check { cost, ..Check::one(policy, tag) }
}

// --- What leaves ------------------------------------------------------------------------------------------------------

/// A batch, as the store reads it.
pub struct Batch {
    pub id: BatchId,
    /// As the engine numbers the stores: its own is the first.
    pub store: u8,
    pub bytes: usize,
    pub commands: Vec<Command>,
    /// The number of replicas that must have it, and the milliseconds for which Redis waits for them.
    pub replicas: Option<(u32, u32)>,
    /// The entries of the journal behind the commands: their fields.
    pub journal: Vec<Entry>,
    /// The writes of the usage journal.
    pub usage: Vec<UsageWrite>,
}

/// A write of the usage journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageWrite {
    pub worker: String,
    pub number: u64,
    pub interval: Interval,
    /// The usage of each subject.
    pub used: Vec<(String, Used)>,
}

impl UsageWrite {
    fn read(words: &[Vec<u8>]) -> Self {
        let words: Vec<_> = words.iter().map(|word| text(word)).collect();
        let name = words[3].strip_prefix("weir:{journal}:usage:").expect("an interval");
        assert_eq!((words[2].as_str(), words[5].as_str()), ("3", "weir:{journal}:usage"));
        let (used, rest) = words[11..].as_chunks();
        assert!(rest.is_empty() && !used.is_empty(), "{words:?}");
        let number = |word: &String| word.parse().expect("a number");
        let used = used.iter().map(|[tag, units, requests]| {
            (tag.clone(), Used { units: number(units), requests: number(requests) })
        });
        Self {
            worker: words[4].clone(),
            number: words[6].parse().expect("a number"),
            interval: Interval::read(name).expect("an interval"),
            used: used.collect(),
        }
    }
}

/// The fields of an entry of the journal.
pub type Entry = BTreeMap<String, String>;

/// One command of a batch.
#[derive(Clone, Debug)]
pub struct Command {
    pub plan: Rc<Plan>,
    pub keeps: bool,
    pub words: Vec<Vec<u8>>,
    pub tasks: Vec<Task>,
}

/// One thing that a command asks of the store, for one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub verb: Verb,
    /// The tag of the subject: `policy|subject`.
    pub tag: String,
    /// Requests asked for; places released.
    pub requests: i64,
    /// Units per request of a check, units in all of a refund (below 0: of a charge), the permit's number of a release.
    pub number: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Check,
    Refund,
    Release,
    Renew,
}

/// A check for this number of requests of one unit each.
pub fn check(tag: &str, requests: i64) -> Task {
    Task { verb: Verb::Check, tag: tag.into(), requests, number: 1 }
}

/// A refund of this number of units.
pub fn refund(tag: &str, units: i64) -> Task {
    Task { verb: Verb::Refund, tag: tag.into(), requests: 0, number: units }
}

/// A charge of this number of further units.
pub fn charge(tag: &str, units: i64) -> Task {
    refund(tag, -units)
}

/// One place goes back.
pub fn release(tag: &str, permit: i64) -> Task {
    Task { verb: Verb::Release, tag: tag.into(), requests: 1, number: permit }
}

/// The permit of a request that still runs is renewed.
pub fn renew(tag: &str, permit: i64) -> Task {
    Task { verb: Verb::Renew, ..release(tag, permit) }
}

impl Batch {
    pub fn tasks(&self) -> Vec<Task> {
        self.commands.iter().flat_map(|command| command.tasks.clone()).collect()
    }

    pub fn task_count(&self) -> usize {
        self.commands.iter().map(|command| command.tasks.len()).sum()
    }

    /// The number of subjects in each command.
    pub fn sizes(&self) -> Vec<usize> {
        self.commands.iter().map(|command| command.tasks.len()).collect()
    }

    /// True if each command brings the source of its script.
    pub fn by_source(&self) -> bool {
        self.commands.iter().all(Command::by_source)
    }

    /// The same reply to each command.
    pub fn each(&self, reply: Reply) -> Vec<Reply> {
        vec![reply; self.commands.len()]
    }

    /// One request is granted to each subject.
    pub fn all_granted(&self) -> Vec<Reply> {
        let reply = |count| if count == 1 { granted(1) } else { together(vec![granted(1); count]) };
        self.sizes().into_iter().map(reply).collect()
    }
}

impl Command {
    pub fn by_source(&self) -> bool {
        match self.words[0].as_slice() {
            b"EVAL" => true,
            b"EVALSHA" => false,
            other => panic!("a script is run by {}", text(other)),
        }
    }
}

/// The words of each command of a batch.
pub fn commands(body: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (mut rest, mut commands) = (body, Vec::new());
    while !rest.is_empty() {
        let (command, length) = resp::decode(rest).expect("RESP").expect("a whole command");
        rest = &rest[length..];
        let resp::Reply::Array(Some(words)) = command else { panic!("a command is an array: {command:?}") };
        let word = |word: &resp::Reply<'_>| match word {
            resp::Reply::Bulk(Some(bytes)) => bytes.to_vec(),
            other => panic!("a word is a bulk string: {other:?}"),
        };
        commands.push(words.iter().map(word).collect());
    }
    commands
}

/// The number of keys that a command names.
pub fn key_count(words: &[Vec<u8>]) -> usize {
    text(&words[2]).parse().expect("the number of keys")
}

/// Numbers of an argument.
pub fn numbers(word: &[u8]) -> Vec<i64> {
    word.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

fn entry(words: &[Vec<u8>]) -> Entry {
    let words: Vec<_> = words.iter().map(|word| text(word)).collect();
    assert_eq!(words[..3], ["XADD", "weir:{journal}", "MAXLEN"]);
    assert!(words[3].parse::<u64>().is_ok() && words[4] == "*", "{words:?}");
    let (fields, rest) = words[5..].as_chunks();
    assert!(rest.is_empty(), "{words:?}");
    fields.iter().map(|[name, value]| (name.clone(), value.clone())).collect()
}

fn tag_of(key: &[u8]) -> String {
    let key = text(key);
    let tag = key.strip_prefix("weir:{").and_then(|key| key.split_once("}:"));
    tag.unwrap_or_else(|| panic!("{key} is no key of weir")).0.to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// --- What comes back --------------------------------------------------------------------------------------------------

/// The store's reply to one command.
#[derive(Clone, Debug)]
pub enum Reply {
    Check(Vec<Answer>),
    Numbers(Vec<i64>),
    Bytes(Vec<u8>),
}

/// The answer of a check for one subject.
#[derive(Clone, Debug)]
pub struct Answer {
    pub granted: i64,
    /// The store's time.
    pub at: i64,
    pub limits: Vec<LimitAnswer>,
    /// For how long the subject is banned, if it may be.
    pub ban: Option<i64>,
}

/// The rest of a limit, when one more request would pass, when the limit is full again, the delay or the permit, and how much a bucket
/// has refunded.
#[derive(Clone, Debug)]
pub struct LimitAnswer {
    pub left: i64,
    pub wait: i64,
    pub reset: i64,
    pub extra: i64,
    pub refunded: i64,
    /// The counts in force, if subjects may have overrides.
    pub counts: Vec<i64>,
}

impl Answer {
    /// As the script packs it.
    fn numbers(&self) -> Vec<i64> {
        let mut numbers = vec![self.granted, self.at];
        for LimitAnswer { left, wait, reset, extra, refunded, counts } in &self.limits {
            let rare = [*wait, *extra, *refunded];
            let is_short = rare == [0; 3];
            numbers.extend([*left, if is_short { *reset } else { -1 - reset }]);
            numbers.extend(counts);
            numbers.extend(rare.iter().filter(|_| !is_short));
        }
        numbers.extend(self.ban);
        numbers
    }
}

/// Grants this number of requests, now; the limit has five units left, and is full again in a second.
pub fn granted(requests: i64) -> Reply {
    answer(requests, &[5, 0, micros(secs(1)), 0])
}

/// Grants this number of requests, now. Each limit has four numbers: what is left, the wait, the reset, and the extra.
pub fn answer(granted: i64, limits: &[i64]) -> Reply {
    Reply::Check(vec![Answer { granted, at: micros(START), limits: Vec::new(), ban: None }]).and(limits)
}

/// The script's reply for this outcome of the pure limits.
pub fn as_script(outcome: &LimitsOutcome) -> Reply {
    let limit = |answer: &LimitOutcome| LimitAnswer {
        left: answer.remaining,
        wait: match answer.retry_after {
            RetryAfter::Now => 0,
            RetryAfter::After(span) => micros(span),
            RetryAfter::Unknown | RetryAfter::Never => -1,
        },
        reset: micros(answer.reset),
        extra: if answer.permit_expiry > 0 { answer.permit_expiry.cast_signed() } else { answer.first_delay },
        refunded: answer.refunded.cast_signed(),
        counts: Vec::new(),
    };
    let limits = outcome.limits.iter().map(limit).collect();
    let granted = i64::from(outcome.granted);
    Reply::Check(vec![Answer { granted, at: micros(outcome.at), limits, ban: None }])
}

/// Grants none for this time.
pub fn denied(wait: Micros) -> Reply {
    granted(0).wait(wait)
}

/// The reply to a command for several subjects.
pub fn together(replies: impl IntoIterator<Item = Reply>) -> Reply {
    let answers = |reply| match reply {
        Reply::Check(answers) => answers,
        other => panic!("{other:?} is no answer of a check"),
    };
    Reply::Check(replies.into_iter().flat_map(answers).collect())
}

pub fn error(text: &str) -> Reply {
    Reply::Bytes(format!("-{text}\r\n").into_bytes())
}

/// The store does not know the script.
pub fn noscript() -> Reply {
    error("NOSCRIPT No matching script.")
}

/// This number of replicas have acknowledged the writes of the batch.
pub fn acknowledged(replicas: u32) -> Reply {
    Reply::Bytes(format!(":{replicas}\r\n").into_bytes())
}

/// A refund or a release is done.
pub fn done() -> Reply {
    Reply::Bytes(b":1\r\n".to_vec())
}

impl Reply {
    pub fn at(mut self, time: Micros) -> Self {
        self.only().at = micros(time);
        self
    }

    pub fn remaining(mut self, units: i64) -> Self {
        self.only().limits[0].left = units;
        self
    }

    pub fn wait(mut self, span: Micros) -> Self {
        self.only().limits[0].wait = micros(span);
        self
    }

    pub fn reset(mut self, span: Micros) -> Self {
        self.only().limits[0].reset = micros(span);
        self
    }

    pub fn delay(self, span: Micros) -> Self {
        self.permit(micros(span))
    }

    pub fn permit(mut self, number: i64) -> Self {
        self.only().limits[0].extra = number;
        self
    }

    /// Adds what follows: four numbers for each further limit, the three counts in force of the last one, or the time of a ban.
    pub fn and(mut self, more: &[i64]) -> Self {
        let answer = self.only();
        match (more, answer.limits.last_mut()) {
            ([ban], _) => answer.ban = Some(*ban),
            ([_, _, _], Some(last)) => last.counts = more.to_vec(),
            _ => answer.limits.extend(more.chunks(4).map(|of| LimitAnswer {
                left: of[0],
                wait: of[1],
                reset: of[2],
                extra: of[3],
                refunded: 0,
                counts: Vec::new(),
            })),
        }
        self
    }

    fn only(&mut self) -> &mut Answer {
        let Self::Check(answers) = self else { panic!("{self:?} is no answer of a check") };
        assert_eq!(answers.len(), 1, "{answers:?}");
        &mut answers[0]
    }
}

/// A permit is renewed, and this is its number from then on.
pub fn renewed(permit: i64) -> Reply {
    Reply::Numbers(vec![permit])
}

/// An entry of the journal is written.
pub fn written() -> Reply {
    Reply::Bytes(b"$15\r\n1700000000000-0\r\n".to_vec())
}

/// The replies of a batch, as the store writes them.
pub fn bytes(replies: impl IntoIterator<Item = Reply>) -> Vec<u8> {
    let mut all = Vec::new();
    for reply in replies {
        let numbers = match reply {
            Reply::Check(answers) => answers.iter().flat_map(Answer::numbers).collect(),
            Reply::Numbers(numbers) => numbers,
            Reply::Bytes(bytes) => {
                all.extend(bytes);
                continue;
            }
        };
        resp::bulk(&mut all, &numbers.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>());
    }
    all
}

pub fn micros(span: Micros) -> i64 {
    i64::try_from(span.0).expect("a time")
}

impl Worker {
    /// The subject exceeds the part of this region, and each other region lends one request.
    pub fn borrow_two(&mut self, policy: usize) {
        let asked = self.ask_for_two(policy);
        assert_eq!(asked.len(), 2);
        for batch in &asked {
            self.reply(batch, [granted(1)]);
        }
        assert_eq!(self.engine.on_lease(), 2);
    }

    /// Asks each of the two other regions for one request on loan; returns the batches that ask.
    pub fn ask_for_two(&mut self, policy: usize) -> Vec<Batch> {
        let tag = format!("p{policy}|ann");
        for stream in [901, 902] {
            assert_eq!(self.arrive_under(stream, &[policy]), None);
        }
        // Other batches may be in flight.
        self.idle(ms(10));
        let own = self.batch();
        assert_eq!(own.tasks(), [check(&tag, 2)]);
        assert_eq!(self.reply(&own, [denied(secs(9))]), [(901, false), (902, false)]);
        let asked: Vec<_> = std::iter::from_fn(|| self.next_batch()).collect();
        for batch in &asked {
            assert_eq!(batch.tasks()[0].tag, tag);
        }
        asked
    }

    /// A request of one subject arrives, to which these policies apply.
    pub fn arrive_under(&mut self, stream: u32, policies: &[usize]) -> Option<bool> {
        let store = |policy: usize| self.engine.config().policies[policy].regions.store();
        let check = |&policy: &usize| Check {
            store: store(policy),
            ..check_of(policy, format!("{{p{policy}|ann}}"), 1)
        };
        let checks = policies.iter().map(check).collect();
        match self.engine.submit(stream, checks, self.now) {
            Submitted::Wait => None,
            Submitted::Decided(action) => Some(matches!(action, Action::Admit)),
        }
    }
}
