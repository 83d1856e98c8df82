//! What becomes of each request: its grants are charged or refunded exactly once, whenever they arrive; what is known of
//! its subject is used no longer than it holds; and what the client is told counts what the worker holds for it.
//!
//! The store is modelled: it executes a batch when it is sent, and keeps a ledger of what each subject was granted and
//! what came back. That Redis does the same is what the tests on a real Redis show.
#![allow(missing_docs, clippy::expect_used, clippy::panic, clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use weir::config::Config;
use weir::engine::{Action, BatchId, Engine, Outgoing, StoreFailure, StreamId, Submitted};
use weir::limit::Limit;
use weir::policy::{Check, Mode};
use weir::resp::{self, Reply};
use weir::time::Micros;

const START: Micros = Micros::from_secs(1_700_000_000);

const NOSCRIPT: &[u8] = b"-NOSCRIPT No matching script.\r\n";

/// The microseconds that the model's replies name, by default.
const RESET: i64 = 1_000_000;

/// What one command asks of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Check,
    Refund,
    Release,
}

/// One task of a batch, as the store reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Task {
    verb: Verb,
    /// The tag of the subject: `{policy|subject}`.
    tag: String,
    /// Requests asked for; requests refunded; places released.
    requests: i64,
    /// Units per request of a check, units in all of a refund, the permit's number of a release.
    number: i64,
}

/// One command and its tasks.
#[derive(Clone, Debug)]
struct Command {
    by_source: bool,
    tasks: Vec<Task>,
}

fn task(verb: Verb, tag: &str, requests: i64, number: i64) -> Task {
    Task { verb, tag: tag.into(), requests, number }
}

/// An engine and the host's clock.
struct Worker {
    engine: Engine,
    config: Rc<Config>,
    now: Micros,
    /// By source and by SHA-1, what a script does.
    scripts: HashMap<String, Verb>,
    /// The number of the next request that only looks whether it is decided at once.
    next: StreamId,
}

/// What became of a request: its number, and whether it went through.
type Outcome = (StreamId, bool);

impl Worker {
    fn new(store: &str, policies: &str) -> Self {
        let text = format!(r#"{{"emit_filter_state": true, "store": {store}, "policies": [{policies}]}}"#);
        let config = Config::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}"));
        let config = Rc::new(config);
        let mut scripts = HashMap::new();
        for tier in config.policies.iter().flat_map(|policy| &policy.tiers.tiers) {
            let verbs = [Verb::Check, Verb::Check, Verb::Refund, Verb::Release];
            for (source, verb) in tier.plan.sources().into_iter().zip(verbs) {
                scripts.insert(source.to_owned(), verb);
                scripts.insert(sha1_smol::Sha1::from(source).digest().to_string(), verb);
            }
        }
        let mut engine = Engine::new(Rc::clone(&config), 1);
        engine.tick(START);
        Self { engine, config, now: START, scripts, next: 1_000 }
    }

    /// A request of this number and cost, checked by policies 0, 1, … for these subjects.
    fn submit_cost(&mut self, stream: StreamId, subjects: &[&str], cost: u64) -> Option<bool> {
        let checks = subjects.iter().enumerate().map(|(policy, subject)| Check {
            policy,
            tier: 0,
            tag: format!("{{p{policy}|{subject}}}").into_bytes(),
            cost,
            mode: Mode::Enforce,
        });
        match self.engine.submit(stream, checks.collect(), self.now) {
            Submitted::Wait => None,
            Submitted::Decided(action) => Some(matches!(action, Action::Admit)),
        }
    }

    fn submit(&mut self, stream: StreamId, subjects: &[&str]) -> Option<bool> {
        self.submit_cost(stream, subjects, 1)
    }

    fn batch(&mut self) -> (Outgoing, Vec<Task>) {
        let outgoing = self.engine.next_batch(self.now).expect("a batch");
        let tasks = self.read(&outgoing).into_iter().flat_map(|command| command.tasks).collect();
        (outgoing, tasks)
    }

    /// All that waits to be sent, batch after batch; each is refused.
    fn drain(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        while let Some(outgoing) = self.engine.next_batch(self.now) {
            let commands = self.read(&outgoing);
            let replies: Vec<_> = commands.iter().map(|_| b":0\r\n".to_vec()).collect();
            tasks.extend(commands.into_iter().flat_map(|command| command.tasks));
            self.engine.replied(outgoing.id, &replies.concat(), self.now);
        }
        tasks
    }

    fn read(&self, outgoing: &Outgoing) -> Vec<Command> {
        let (mut rest, mut commands) = (outgoing.body.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (command, length) = resp::decode(rest).expect("RESP").expect("a whole command");
            rest = &rest[length..];
            let Reply::Array(Some(words)) = command else { panic!("a command is an array: {command:?}") };
            let word = |word: &Reply<'_>| match word {
                Reply::Bulk(Some(bytes)) => bytes.to_vec(),
                other => panic!("a word is a bulk string: {other:?}"),
            };
            commands.push(self.command(&words.iter().map(word).collect::<Vec<_>>()));
        }
        commands
    }

    fn command(&self, words: &[Vec<u8>]) -> Command {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let verb = self.scripts[&text(&words[1])];
        let keys: usize = text(&words[2]).parse().expect("a number of keys");
        let tag_of = |key: &[u8]| {
            let key = text(key);
            key[key.find('{').expect("a tag")..=key.find('}').expect("a tag")].to_owned()
        };
        let (keys, arguments) = words[3..].split_at(keys);
        let numbers = |word: &[u8]| -> Vec<i64> {
            word.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
        };
        let first = numbers(&arguments[0]);
        let tag = tag_of(&keys[0]);
        let tasks = match verb {
            Verb::Check if arguments.len() == 1 => vec![task(verb, &tag, first[1], first[2])],
            Verb::Check => {
                let questions = numbers(&arguments[1]);
                let each = keys.len() / (questions.len() / 2);
                let subjects = keys.chunks(each).zip(questions.chunks(2));
                subjects.map(|(keys, ask)| task(verb, &tag_of(&keys[0]), ask[0], ask[1])).collect()
            }
            Verb::Refund => vec![task(verb, &tag, 0, -first[1])],
            Verb::Release => vec![task(verb, &tag, first[2], first[1])],
        };
        Command { by_source: words[0] == b"EVAL", tasks }
    }

    fn reply(&mut self, to: &Outgoing, replies: &[Vec<u8>]) -> Vec<Outcome> {
        self.engine.replied(to.id, &replies.concat(), self.now);
        self.released()
    }

    fn released(&mut self) -> Vec<Outcome> {
        std::iter::from_fn(|| self.engine.next_release())
            .map(|release| (release.stream, matches!(release.action, Action::Admit)))
            .collect()
    }

    /// Lets the worker's loop run on for this long, in steps that a loop with nothing else to do takes.
    fn idle(&mut self, span: Micros) {
        let end = self.now.plus(span);
        while self.now < end {
            self.now = self.now.plus(Micros::from_millis(1));
            self.engine.tick(self.now);
        }
    }

    fn remaining(&self, stream: StreamId) -> u64 {
        self.engine.record(stream).expect("a record").remaining.expect("a number")
    }

    /// Which algorithm and parameters the policy of this tag has, in the order of the script's reply.
    fn limits(&self, tag: &str) -> &[Limit] {
        let policy: usize = tag[2..tag.find('|').expect("a tag")].parse().expect("a policy");
        self.config.policies[policy].tiers.tiers[0].plan.limits()
    }
}

/// What the script answers for one limit.
fn answer(requests: i64, remaining: i64, wait: i64, reset: i64, extra: i64) -> Vec<u8> {
    let mut reply = Vec::new();
    let time = i64::try_from(START.0).expect("a time");
    resp::bulk(&mut reply, &[requests, time, remaining, wait, reset, extra].map(i64::to_le_bytes).concat());
    reply
}

/// So many are granted; whoever is not may come again after a day.
fn granted(requests: i64) -> Vec<u8> {
    answer(requests, 5, 86_400_000_000, RESET, 0)
}

const DENY: &str = r#"{"deadline": "50ms", "on_failure": "deny"}"#;
const ALLOW: &str = r#"{"deadline": "50ms", "on_failure": "allow"}"#;

fn policy(name: &str, limits: &str) -> String {
    format!(r#"{{"name": "{name}", "subject": [{{"literal": "s"}}], "limits": [{limits}]}}"#)
}

const BUCKET: &str = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10}"#;
const DELAYED: &str =
    r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10, "max_delay": "30s"}"#;
const PLACES: &str = r#"{"name": "l", "algorithm": "concurrency", "limit": 5, "ttl": "60s"}"#;

/// Lets the deadline of all that waits pass, and no batch be abandoned.
fn miss_the_deadline(worker: &mut Worker) {
    worker.idle(Micros::from_millis(60));
}

// --- Grants that arrive late ------------------------------------------------------------------------------------------

#[test]
fn a_grant_that_arrives_after_its_rejected_request_has_closed_is_refunded() {
    let mut worker = Worker::new(DENY, &policy("p0", BUCKET));
    worker.submit(1, &["ann"]);
    let (late, _) = worker.batch();
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, false)]);
    worker.engine.closed(1, worker.now);
    assert_eq!(worker.reply(&late, &[granted(1)]), []);
    assert_eq!(worker.batch().1, [task(Verb::Refund, "{p0|ann}", 0, 1)]);
    assert_eq!(worker.engine.request_count(), 0, "nothing of it stays");
}

#[test]
fn a_permit_that_arrives_after_its_rejected_request_has_closed_is_refunded() {
    let mut worker = Worker::new(DENY, &policy("p0", PLACES));
    worker.submit(1, &["ann"]);
    let (late, _) = worker.batch();
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, false)]);
    worker.engine.closed(1, worker.now);
    worker.reply(&late, &[answer(1, 4, 0, RESET, 77)]);
    assert!(worker.drain().contains(&task(Verb::Release, "{p0|ann}", 1, 77)), "its place is free again");
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn of_several_who_share_a_late_answer_each_gets_what_is_its_own() {
    let mut worker = Worker::new(DENY, &policy("p0", BUCKET));
    (1..=4).for_each(|stream| assert_eq!(worker.submit(stream, &["ann"]), None));
    let (late, _) = worker.batch();
    // The first leaves while it waits and stays charged; the others are rejected, and only the last stream stays open.
    worker.engine.closed(1, worker.now);
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(2, false), (3, false), (4, false)]);
    worker.engine.closed(2, worker.now);
    worker.engine.closed(3, worker.now);
    // Three are granted: to the one that left, and to two of the rejected.
    worker.reply(&late, &[granted(3)]);
    assert_eq!(worker.batch().1, [task(Verb::Refund, "{p0|ann}", 0, 2)]);
    assert_eq!(worker.engine.request_count(), 1, "the stream that is open");
    worker.engine.closed(4, worker.now);
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn a_late_grant_of_one_policy_is_refunded_where_another_had_denied() {
    // Admitted by `on_failure`, were it not for the denial.
    let policies = [policy("p0", BUCKET), policy("p1", BUCKET)].join(",");
    let mut worker = Worker::new(ALLOW, &policies);
    worker.submit(1, &["ann", "all"]);
    let (first, _) = worker.batch();
    assert_eq!(worker.reply(&first, &[granted(0), NOSCRIPT.to_vec()]), []);
    let (again, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Check, "{p1|all}", 1, 1)]);
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, false)]);
    worker.engine.closed(1, worker.now);
    worker.reply(&again, &[granted(1)]);
    assert_eq!(worker.batch().1, [task(Verb::Refund, "{p1|all}", 0, 1)]);
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn a_late_grant_is_refunded_where_there_was_no_room_to_hold_the_request() {
    let policies = [policy("p0", DELAYED), policy("p1", BUCKET)].join(",");
    let mut worker = Worker::new(ALLOW, &policies);
    let hold = 1_000_000;
    for stream in 0..4_096 {
        assert_eq!(worker.submit(stream, &["ann"]), None);
    }
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[answer(4_096, 0, RESET, RESET, hold)]), []);
    worker.submit(5_000, &["ann", "all"]);
    let (first, _) = worker.batch();
    worker.reply(&first, &[answer(1, 0, RESET, RESET, hold), NOSCRIPT.to_vec()]);
    let (again, _) = worker.batch();
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(5_000, false)]);
    worker.engine.closed(5_000, worker.now);
    let (refund, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Refund, "{p0|ann}", 0, 1)]);
    worker.reply(&refund, &[granted(0)]);
    worker.reply(&again, &[granted(1)]);
    assert_eq!(worker.batch().1, [task(Verb::Refund, "{p1|all}", 0, 1)]);
    assert_eq!(worker.engine.request_count(), 4_096);
}

#[test]
fn a_late_denial_of_a_request_that_has_closed_refunds_nothing() {
    let mut worker = Worker::new(DENY, &policy("p0", BUCKET));
    worker.submit(1, &["ann"]);
    let (late, _) = worker.batch();
    miss_the_deadline(&mut worker);
    worker.engine.closed(1, worker.now);
    worker.reply(&late, &[granted(0)]);
    assert!(!worker.engine.wants_to_send());
    assert_eq!(worker.engine.request_count(), 0);
}

#[test]
fn a_closed_request_is_forgotten_when_its_batch_fails_or_is_abandoned_or_never_ran() {
    type End = fn(&mut Worker, &Outgoing);
    let ends: [(&str, End); 5] = [
        ("failed", |worker, late| worker.engine.failed(late.id, &StoreFailure::Refused, worker.now)),
        ("abandoned", |worker, _| worker.idle(Micros::from_millis(60))),
        ("an error", |worker, late| drop(worker.reply(late, &[b"-OOM used\r\n".to_vec()]))),
        ("no script", |worker, late| drop(worker.reply(late, &[NOSCRIPT.to_vec()]))),
        ("no reply", |worker, late| drop(worker.reply(late, &[]))),
    ];
    for (row, end) in ends {
        let mut worker = Worker::new(DENY, &policy("p0", BUCKET));
        worker.submit(1, &["ann"]);
        let (late, _) = worker.batch();
        miss_the_deadline(&mut worker);
        worker.engine.closed(1, worker.now);
        assert_eq!(worker.engine.request_count(), 1, "{row}: its grant may still come");
        end(&mut worker, &late);
        assert_eq!(worker.engine.request_count(), 0, "{row}");
        assert!(worker.engine.next_batch(worker.now).is_none(), "{row}: nobody asks for it again");
    }
}

#[test]
fn a_rejected_request_that_was_never_sent_is_forgotten_at_once() {
    let mut worker = Worker::new(DENY, &policy("p0", BUCKET));
    worker.submit(1, &["ann"]);
    let (_first, _) = worker.batch();
    worker.submit(2, &["bob"]);
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, false), (2, false)]);
    worker.engine.closed(2, worker.now);
    assert_eq!(worker.engine.request_count(), 1, "only the one that was sent can still be granted");
    assert!(worker.engine.next_batch(worker.now).is_none());
}

#[test]
fn who_leaves_while_it_waits_stays_charged_and_gives_up_its_place() {
    let mut worker = Worker::new(DENY, &[policy("p0", PLACES), policy("p1", BUCKET)].join(","));
    worker.submit(1, &["ann", "all"]);
    let (batch, _) = worker.batch();
    worker.engine.closed(1, worker.now);
    assert_eq!(worker.engine.request_count(), 0);
    worker.reply(&batch, &[answer(1, 4, 0, RESET, 77), granted(1)]);
    assert_eq!(worker.batch().1, [task(Verb::Release, "{p0|ann}", 1, 77)]);
    assert!(!worker.engine.wants_to_send(), "aborting is no way to ask for free");
}

#[test]
fn a_late_permit_of_an_admitted_request_is_released_when_the_request_ends() {
    let mut worker = Worker::new(ALLOW, &policy("p0", PLACES));
    worker.submit(1, &["ann"]);
    let (late, _) = worker.batch();
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, true)]);
    worker.reply(&late, &[answer(1, 4, 0, RESET, 77)]);
    assert!(!worker.engine.wants_to_send(), "it is in flight: it holds its place");
    worker.engine.closed(1, worker.now);
    assert_eq!(worker.batch().1, [task(Verb::Release, "{p0|ann}", 1, 77)]);
}

#[test]
fn a_late_permit_of_a_request_that_was_counted_locally_is_released_at_once() {
    let store = r#"{"deadline": "50ms", "on_failure": "local"}"#;
    let mut worker = Worker::new(store, &policy("p0", PLACES));
    worker.submit(1, &["ann"]);
    let (late, _) = worker.batch();
    miss_the_deadline(&mut worker);
    assert_eq!(worker.released(), [(1, true)]);
    worker.reply(&late, &[answer(1, 4, 0, RESET, 77)]);
    assert_eq!(worker.batch().1, [task(Verb::Release, "{p0|ann}", 1, 77)]);
    worker.engine.closed(1, worker.now);
    assert!(worker.engine.next_batch(worker.now).is_none(), "once");
}

// --- Denials that are remembered --------------------------------------------------------------------------------------

/// Until its reply says otherwise, a denial of a day; `store` adds to the store's settings.
fn denied(store: &str, policies: &str) -> Worker {
    let mut worker = Worker::new(store, policies);
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[granted(0)]), [(1, false)]);
    worker.engine.closed(1, worker.now);
    worker
}

/// When the subject is asked about again, to the millisecond, by requests that come all the time.
fn asked_again(worker: &mut Worker) -> Micros {
    let begun = worker.now;
    loop {
        worker.idle(Micros::from_millis(1));
        worker.next += 1;
        let stream = worker.next;
        let decided = worker.submit(stream, &["ann"]);
        if decided.is_none() {
            return worker.now.since(begun);
        }
        worker.engine.closed(stream, worker.now);
        assert_eq!(decided, Some(false));
        assert!(worker.now.since(begun) < Micros::from_secs(10), "it is never asked about again");
    }
}

#[test]
fn a_denied_subject_is_asked_about_again_after_one_to_two_seconds() {
    let mut worker = denied(DENY, &policy("p0", BUCKET));
    let mut ages = Vec::new();
    for _ in 0..8 {
        let age = asked_again(&mut worker);
        assert!((Micros::from_secs(1)..=Micros::from_secs(2)).contains(&age), "after {age}");
        ages.push(age);
        let (batch, tasks) = worker.batch();
        assert_eq!(tasks, [task(Verb::Check, "{p0|ann}", 1, 1)]);
        worker.reply(&batch, &[granted(0)]);
    }
    // Whoever was unblocked is admitted.
    asked_again(&mut worker);
    let (batch, _) = worker.batch();
    assert_eq!(
        worker.reply(&batch, &[answer(1, 9, 0, RESET, 0)]).last().map(|released| released.1),
        Some(true)
    );
    ages.dedup();
    assert!(ages.len() > 4, "workers and subjects do not ask in step: {ages:?}");
}

#[test]
fn denial_ttl_says_how_long_a_denial_is_remembered() {
    let with = |ttl: &str| format!(r#"{{"deadline": "50ms", "on_failure": "deny", "denial_ttl": "{ttl}"}}"#);
    let mut always = denied(&with("0s"), &policy("p0", BUCKET));
    assert_eq!(always.submit(2, &["ann"]), None, "with 0s it is always asked about");
    let mut shortly = denied(&with("20ms"), &policy("p0", BUCKET));
    let age = asked_again(&mut shortly);
    assert!((Micros::from_millis(20)..=Micros::from_millis(41)).contains(&age), "after {age}");
    let mut long = denied(&with("1h"), &policy("p0", BUCKET));
    long.now = long.now.plus(Micros::from_secs(3_599));
    assert_eq!(long.submit(2, &["ann"]), Some(false));
    long.now = long.now.plus(Micros::from_secs(3_602));
    assert_eq!(long.submit(3, &["ann"]), None);
}

#[test]
fn what_holds_for_less_is_remembered_for_less() {
    let overrides = policy("p0", BUCKET).replace(r#""name": "p0""#, r#""name": "p0", "overrides": true"#);
    let store = DENY.replace('}', r#", "denial_ttl": "1h"}"#);
    let mut worker = Worker::new(&store, &overrides);
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    let mut reply = Vec::new();
    let numbers = [0, i64::try_from(START.0).expect("a time"), 0, 86_400_000_000, RESET, 0, 1, 10, 0];
    resp::bulk(&mut reply, &numbers.map(i64::to_le_bytes).concat());
    assert_eq!(worker.reply(&batch, &[reply]), [(1, false)]);
    assert_eq!(asked_again(&mut worker), Micros::from_secs(1), "an override is seen within a second");
    // The limit itself says 20 ms.
    let mut worker = Worker::new(&store, &policy("p0", BUCKET));
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    worker.reply(&batch, &[answer(0, 0, 20_000, RESET, 0)]);
    assert_eq!(asked_again(&mut worker), Micros::from_millis(20));
}

#[test]
fn when_a_denial_is_old_one_question_is_in_flight() {
    let mut worker = denied(DENY, &policy("p0", BUCKET));
    worker.now = worker.now.plus(Micros::from_secs(2));
    (10..20).for_each(|stream| assert_eq!(worker.submit(stream, &["ann"]), None));
    let (question, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Check, "{p0|ann}", 10, 1)]);
    // Who comes meanwhile is decided by its answer, and asks nothing.
    (20..30).for_each(|stream| assert_eq!(worker.submit(stream, &["ann"]), None));
    worker.submit(40, &["bob"]);
    let denied = worker.reply(&question, &[granted(0)]);
    assert_eq!(denied, (10..20).map(|stream| (stream, false)).collect::<Vec<_>>());
    let (_, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Check, "{p0|bob}", 1, 1)]);
    assert_eq!(worker.released(), (20..30).map(|stream| (stream, false)).collect::<Vec<_>>());
}

#[test]
fn a_subject_that_redis_denied_stays_denied_while_redis_is_away() {
    let mut worker = denied(ALLOW, &policy("p0", BUCKET));
    worker.now = worker.now.plus(Micros::from_secs(2));
    assert_eq!([worker.submit(2, &["ann"]), worker.submit(3, &["bob"])], [None, None]);
    let (lost, _) = worker.batch();
    worker.engine.failed(lost.id, &StoreFailure::Refused, worker.now);
    assert_eq!(worker.released(), [(2, false), (3, true)]);
    // The day is over.
    worker.now = worker.now.plus(Micros::from_secs(86_400));
    worker.submit(4, &["ann"]);
    let (lost, _) = worker.batch();
    worker.engine.failed(lost.id, &StoreFailure::Refused, worker.now);
    assert_eq!(worker.released(), [(4, true)]);
}

#[test]
fn what_one_policy_is_known_to_deny_is_not_asked_of_another() {
    let policies = [policy("p0", BUCKET), policy("p1", BUCKET)].join(",");
    let mut worker = denied(DENY, &policies);
    assert_eq!(worker.submit(2, &["ann", "all"]), Some(false));
    assert!(!worker.engine.wants_to_send(), "nothing is known of the other policy's subject");
}

#[test]
fn a_refund_makes_the_subject_worth_asking_about_again() {
    let policies = [policy("p0", BUCKET), policy("p1", BUCKET)].join(",");
    let mut worker = Worker::new(DENY, &policies);
    worker.submit(1, &["ann", "all"]);
    worker.submit(2, &["ann"]);
    let (batch, _) = worker.batch();
    // The one unit goes to the first request, which the other policy denies.
    assert_eq!(worker.reply(&batch, &[granted(1), granted(0)]), [(2, false), (1, false)]);
    assert_eq!(worker.submit(3, &["ann"]), None);
}

#[test]
fn a_clock_that_was_set_back_does_not_prolong_a_denial() {
    let mut worker = denied(DENY, &policy("p0", BUCKET));
    worker.now = worker.now.since(Micros(1));
    assert_eq!(worker.submit(2, &["ann"]), None);
}

#[test]
fn a_denial_of_unknown_age_is_not_remembered() {
    let mut worker = Worker::new(DENY, &policy("p0", BUCKET));
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    let sent = worker.now;
    worker.now = worker.now.since(Micros::from_secs(3_600));
    assert_eq!(worker.reply(&batch, &[granted(0)]), [(1, false)]);
    // An hour later.
    worker.now = sent.plus(Micros(1));
    assert_eq!(worker.submit(2, &["ann"]), None);
}

#[test]
fn what_holds_for_less_is_not_relied_on_for_longer_while_redis_is_away() {
    let mut worker = Worker::new(ALLOW, &leased(SHORT, WINDOW));
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[granted(0)]), [(1, false)]);
    // What other workers held on lease may be back by now.
    worker.idle(Micros::from_millis(100));
    assert_eq!(worker.submit(2, &["ann"]), None);
    let (lost, _) = worker.batch();
    worker.engine.failed(lost.id, &StoreFailure::Refused, worker.now);
    assert_eq!(worker.released(), [(2, true)]);
}

// --- Leases -----------------------------------------------------------------------------------------------------------

fn leased(lease: &str, limit: &str) -> String {
    policy("p0", limit).replace(r#""name": "p0""#, &format!(r#""name": "p0", "lease": {lease}"#))
}

const SHORT: &str = r#"{"max": 8, "min": 2, "duration": "100ms"}"#;
const LONG: &str = r#"{"max": 8, "min": 2, "duration": "5s"}"#;
const WINDOW: &str = r#"{"name": "l", "algorithm": "fixed_window", "limit": 100, "window": "1d"}"#;

/// One request asks, and all it asks for is granted: it leaves so much on lease, of a limit that has so much left then.
fn lease_to(worker: &mut Worker, stream: StreamId, remaining: i64, reset: i64) -> i64 {
    assert_eq!(worker.submit(stream, &["ann"]), None, "nothing is on lease");
    let (batch, tasks) = worker.batch();
    assert_eq!(tasks.len(), 1);
    let released = worker.reply(&batch, &[answer(tasks[0].requests, remaining, 0, reset, 0)]);
    assert_eq!(released, [(stream, true)]);
    tasks[0].requests - 1
}

#[test]
fn what_is_told_as_remaining_counts_what_is_on_lease() {
    let mut worker = Worker::new(DENY, &leased(LONG, WINDOW));
    assert_eq!(lease_to(&mut worker, 1, 97, 60_000_000), 2);
    assert_eq!(worker.submit(2, &["ann"]), Some(true));
    assert_eq!(worker.submit(3, &["ann"]), Some(true));
    // Asked for again: more is taken in advance, and nobody else used any.
    assert_eq!(lease_to(&mut worker, 4, 92, 60_000_000), 4);
    assert_eq!(worker.submit(5, &["ann"]), Some(true));
    let told: Vec<_> = (1..=5).map(|stream| worker.remaining(stream)).collect();
    assert_eq!(told, [99, 98, 97, 96, 95]);
    // The last of them, of a limit that is used up.
    assert_eq!([6, 7].map(|stream| worker.submit(stream, &["ann"])), [Some(true); 2]);
    assert_eq!(worker.submit(8, &["ann"]), Some(true));
    assert_eq!(worker.remaining(8), 92);
}

#[test]
fn what_several_grants_hold_is_counted_once_each_and_no_longer_than_they_last() {
    let mut worker = Worker::new(DENY, &leased(r#"{"max": 8, "min": 4, "duration": "1s"}"#, WINDOW));
    worker.submit(1, &["ann"]);
    worker.submit(2, &["ann"]);
    let (first, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Check, "{p0|ann}", 2 + 4, 1)]);
    worker.submit(3, &["ann"]);
    worker.idle(Micros::from_millis(11));
    let (second, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Check, "{p0|ann}", 1 + 4, 1)]);
    // 100, of which 6 and then 5 are taken; 4 + 4 of them are on lease. The answers overtake each other.
    let mut reply = answer(5, 89, 0, 60_000_000, 0);
    let at = reply.len() - 2 - 48 + 8;
    reply[at..at + 8].copy_from_slice(&i64::try_from(START.0 + 11_000).expect("a time").to_le_bytes());
    worker.reply(&second, &[reply]);
    assert_eq!(worker.remaining(3), 93);
    worker.reply(&first, &[answer(6, 94, 0, 60_000_000, 0)]);
    // The store had 89 left after both, whichever answer is read last.
    assert_eq!([1, 2].map(|stream| worker.remaining(stream)), [89 + 9, 89 + 8]);
    assert_eq!(worker.submit(4, &["ann"]), Some(true));
    assert_eq!(worker.remaining(4), 89 + 7);
    // The first lease ends at this very microsecond: what was left of it serves nobody, and is told no more.
    worker.now = START.plus(Micros::from_secs(1));
    assert_eq!(worker.submit(5, &["ann"]), Some(true));
    assert_eq!(worker.remaining(5), 89 + 2);
}

#[test]
fn what_is_told_under_a_lease_is_as_old_as_it_is() {
    const TWO: &str = r#"{"name": "a", "algorithm": "fixed_window", "limit": 100, "window": "1d"},
        {"name": "b", "algorithm": "fixed_window", "limit": 3, "window": "1d"}"#;
    let mut worker = Worker::new(DENY, &leased(r#"{"max": 8, "min": 6, "duration": "5s"}"#, TWO));
    (1..=3).for_each(|stream| assert_eq!(worker.submit(stream, &["ann"]), None));
    let (batch, _) = worker.batch();
    // The first has nothing left in Redis, and six on lease here; the second has filled up.
    let numbers =
        [9, i64::try_from(START.0).expect("a time"), 0, 60_000_000, 60_000_000, 0, 3, 0, 60_000_000, 0];
    let mut reply = Vec::new();
    resp::bulk(&mut reply, &numbers.map(i64::to_le_bytes).concat());
    worker.reply(&batch, &[reply]);
    worker.now = worker.now.plus(Micros::from_secs(2));
    assert_eq!(worker.submit(4, &["ann"]), Some(true));
    let told = worker.engine.record(4).expect("a record");
    // Neither stands in the way of the next request: the one nearer its end is named.
    assert_eq!((told.limit, told.remaining), ("b", Some(3)));
    let mut worker = Worker::new(DENY, &leased(LONG, WINDOW));
    lease_to(&mut worker, 1, 97, 60_000_000);
    worker.now = worker.now.plus(Micros::from_secs(2));
    assert_eq!(worker.submit(2, &["ann"]), Some(true));
    let reset = worker.engine.record(2).expect("a record").reset;
    assert_eq!(reset, Some(Micros::from_secs(58)), "two seconds after the store said a minute");
}

#[test]
fn a_debt_is_told_as_nothing_left_and_a_limit_as_no_more_than_it_holds() {
    const DEBT: &str = r#"{"name": "l", "algorithm": "token_bucket", "capacity": 10, "refill": 1, "interval": "1d", "overdraft": 5}"#;
    let mut worker = Worker::new(DENY, &leased(LONG, DEBT));
    assert_eq!(lease_to(&mut worker, 1, -3, 60_000_000), 2);
    assert_eq!(worker.submit(2, &["ann"]), Some(true));
    assert_eq!(worker.remaining(2), 0, "one is on lease, and three are owed");
    // It has filled up since the first lease was taken.
    const FAST: &str = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "10/s", "burst": 10}"#;
    let mut worker = Worker::new(DENY, &leased(LONG, FAST));
    assert_eq!(lease_to(&mut worker, 1, 10, 60_000_000), 2);
    assert_eq!(worker.submit(2, &["ann"]), Some(true));
    assert_eq!(worker.remaining(2), 10);
}

/// What the response of an admitted request says of the limit.
fn ratelimit(worker: &Worker, stream: StreamId) -> &str {
    let headers = &worker.engine.admission(stream).expect("admitted").headers;
    headers.iter().find(|header| header.name == "ratelimit").expect("a header").value.as_str()
}

#[test]
fn the_last_request_of_a_lease_is_told_when_redis_has_more() {
    let mut worker = Worker::new(DENY, &leased(LONG, WINDOW));
    assert_eq!(worker.submit(1, &["ann"]), None);
    let (batch, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Check, "{p0|ann}", 3, 1)]);
    // Redis has none left for a minute; two are on lease here.
    worker.reply(&batch, &[answer(3, 0, 60_000_000, 60_000_000, 0)]);
    worker.now = worker.now.plus(Micros::from_secs(1));
    assert_eq!([2, 3].map(|stream| worker.submit(stream, &["ann"])), [Some(true); 2]);
    assert_eq!([2, 3].map(|stream| ratelimit(&worker, stream)), ["\"l\";r=1;t=60", "\"l\";r=0;t=59"]);
}

/// The size of a lease follows the subject: see `engine/requests/lease.rs`.
#[test]
fn a_lease_that_is_half_used_is_kept_and_one_that_is_used_less_is_halved() {
    for (used, size) in [(0, 4), (3, 4), (4, 8), (5, 8), (8, 8)] {
        let mut worker = Worker::new(DENY, &leased(r#"{"max": 8, "min": 2, "duration": "1s"}"#, WINDOW));
        let mut stream = 0;
        let mut serve = |worker: &mut Worker, requests: i64| {
            for _ in 0..requests {
                stream += 1;
                assert_eq!(worker.submit(stream, &["ann"]), Some(true));
            }
        };
        // It runs out of two, then of four, and has eight.
        for wanted in [2, 4, 8] {
            let taken = lease_to(&mut worker, 100 + StreamId::try_from(wanted).expect("few"), 50, 60_000_000);
            assert_eq!(taken, wanted);
            serve(&mut worker, if wanted == 8 { used } else { taken });
        }
        let left = i64::try_from(worker.engine.on_lease()).expect("few");
        worker.idle(Micros::from_secs(1));
        let returned: i64 = worker.drain().iter().map(|task| task.number).sum();
        assert_eq!(returned, left, "{used} of 8 used");
        assert_eq!(left, 8 - used);
        assert_eq!(lease_to(&mut worker, 200, 50, 60_000_000), size, "{used} of 8 used");
    }
}

#[test]
fn a_tick_at_the_moment_of_a_grant_ends_no_lease() {
    let mut worker = Worker::new(DENY, &leased(LONG, WINDOW));
    lease_to(&mut worker, 1, 97, 60_000_000);
    worker.engine.tick(worker.now);
    worker.engine.tick(worker.now);
    assert_eq!(worker.engine.on_lease(), 2);
}

#[test]
fn a_lease_that_has_ended_serves_nobody_before_the_tick_that_returns_it() {
    let mut worker = Worker::new(DENY, &leased(LONG, WINDOW));
    lease_to(&mut worker, 1, 97, 60_000_000);
    worker.now = worker.now.plus(Micros::from_secs(5)).since(Micros(1));
    assert_eq!(worker.submit(2, &["ann"]), Some(true));
    worker.now = worker.now.plus(Micros(1));
    assert_eq!(worker.submit(3, &["ann"]), None);
}

#[test]
fn a_subject_whose_lease_never_came_has_to_show_again_that_it_would_use_one() {
    let store = r#"{"deadline": "1s", "on_failure": "allow"}"#;
    let mut worker = Worker::new(store, &leased(r#"{"max": 8, "min": 8, "duration": "100ms"}"#, WINDOW));
    (1..=4).for_each(|stream| assert_eq!(worker.submit(stream, &["ann"]), None));
    let (lost, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Check, "{p0|ann}", 4 + 8, 1)]);
    // For as long as a lease lasts it gets none; then it is known that it will not.
    worker.idle(Micros::from_millis(101));
    (5..=8).for_each(|stream| assert_eq!(worker.submit(stream, &["ann"]), None));
    let (next, tasks) = worker.batch();
    assert_eq!(tasks, [task(Verb::Check, "{p0|ann}", 4, 1)], "eight may still come: no more are asked for");
    worker.engine.failed(next.id, &StoreFailure::Refused, worker.now);
    worker.engine.failed(lost.id, &StoreFailure::Refused, worker.now);
    assert_eq!(worker.submit(9, &["ann"]), None);
    assert_eq!(worker.batch().1, [task(Verb::Check, "{p0|ann}", 1, 1)]);
}

#[test]
fn a_lease_of_a_window_ends_with_it() {
    let mut worker = Worker::new(DENY, &leased(LONG, WINDOW));
    lease_to(&mut worker, 1, 97, RESET);
    worker.idle(Micros::from_millis(999));
    assert_eq!(worker.engine.on_lease(), 2);
    worker.idle(Micros::from_millis(1));
    assert_eq!(worker.engine.on_lease(), 0);
    assert_eq!(worker.batch().1, [task(Verb::Refund, "{p0|ann}", 0, 2)]);
    // A bucket has no window: its lease goes on.
    let mut worker = Worker::new(DENY, &leased(LONG, BUCKET));
    lease_to(&mut worker, 1, 7, RESET);
    worker.idle(Micros::from_millis(1_001));
    assert_eq!(worker.engine.on_lease(), 2);
}

#[test]
fn a_clock_that_was_set_back_prolongs_no_lease() {
    for back in [Micros(1), Micros::from_millis(50), Micros::from_secs(3_600), START] {
        let mut worker = Worker::new(DENY, &leased(SHORT, WINDOW));
        lease_to(&mut worker, 1, 97, 60_000_000);
        worker.idle(Micros::from_millis(10));
        worker.now = worker.now.since(back);
        assert_eq!(worker.submit(2, &["ann"]), None, "back by {back}: nobody knows how old it is");
        worker.engine.tick(worker.now);
        assert_eq!(worker.engine.on_lease(), 0, "back by {back}: it is not stranded");
        let (batch, tasks) = worker.batch();
        let returned: i64 =
            tasks.iter().filter(|task| task.verb == Verb::Refund).map(|task| task.number).sum();
        assert_eq!(returned, 2, "back by {back}: {tasks:?}");
        // And leases go on as before, in the time that is now.
        let replies: Vec<_> = tasks.iter().map(|task| answer(task.requests, 90, 0, 60_000_000, 0)).collect();
        worker.reply(&batch, &replies);
        assert!(worker.engine.on_lease() > 0, "back by {back}");
        worker.idle(Micros::from_millis(101));
        assert_eq!(worker.engine.on_lease(), 0, "back by {back}");
        worker.released();
        while let Some(batch) = worker.engine.next_batch(worker.now) {
            let replies = worker.read(&batch).iter().map(|_| granted(0)).collect::<Vec<_>>();
            worker.reply(&batch, &replies);
        }
        worker.idle(Micros::from_secs(1));
        assert_eq!(
            worker.engine.next_tick(worker.now),
            None,
            "back by {back}: nothing is remembered for ever"
        );
    }
}

#[test]
fn what_was_on_its_way_when_the_clock_was_set_back_is_not_kept() {
    let mut worker = Worker::new(DENY, &leased(LONG, WINDOW));
    worker.submit(1, &["ann"]);
    let (batch, tasks) = worker.batch();
    worker.now = worker.now.since(Micros::from_secs(3_600));
    worker.engine.tick(worker.now);
    assert_eq!(worker.reply(&batch, &[answer(tasks[0].requests, 97, 0, 60_000_000, 0)]), [(1, true)]);
    worker.engine.tick(worker.now);
    assert_eq!(worker.engine.on_lease(), 0);
    assert_eq!(worker.batch().1, [task(Verb::Refund, "{p0|ann}", 0, 2)]);
}

#[test]
fn what_rests_without_a_lease_is_forgotten_after_the_clock_was_set_back() {
    let mut worker = Worker::new(DENY, &leased(SHORT, WINDOW));
    lease_to(&mut worker, 1, 97, 60_000_000);
    assert_eq!([2, 3].map(|stream| worker.submit(stream, &["ann"])), [Some(true); 2], "used up");
    worker.now = worker.now.since(Micros::from_secs(3_600));
    worker.idle(Micros::from_secs(1));
    assert_eq!(worker.engine.next_tick(worker.now), None);
}

// --- Scripts that the store has forgotten ------------------------------------------------------------------------------

/// One Redis that is told a script knows it from then on, and is not told it again in the same batch; but the scripts that
/// ask about one subject, ask about several, refund, and release are four.
#[test]
fn one_redis_is_told_each_script_that_it_has_forgotten_once() {
    let store = r#"{"deadline": "50ms", "topology": "single"}"#;
    let policies =
        [policy("p0", &[BUCKET, &PLACES.replace(r#""l""#, r#""m""#)].join(",")), policy("p1", BUCKET)];
    let mut worker = Worker::new(store, &policies.join(","));
    worker.submit(1, &["ann", "all"]);
    let (batch, _) = worker.batch();
    let mut both = Vec::new();
    let time = i64::try_from(START.0).expect("a time");
    resp::bulk(&mut both, &[1, time, 5, 0, RESET, 0, 4, 0, RESET, 7].map(i64::to_le_bytes).concat());
    assert_eq!(worker.reply(&batch, &[both, granted(0)]), [(1, false)]);
    // Of nine subjects eight share a command.
    (100..109).for_each(|stream| assert_eq!(worker.submit(stream, &[&stream.to_string()]), None));
    let forgets = |worker: &mut Worker| {
        let batch = worker.engine.next_batch(worker.now).expect("a batch");
        let commands = worker.read(&batch);
        let told: Vec<_> = commands
            .iter()
            .map(|command| (command.by_source, command.tasks[0].verb, command.tasks.len()))
            .collect();
        worker.reply(&batch, &vec![NOSCRIPT.to_vec(); commands.len()]);
        told
    };
    let kinds = [(Verb::Check, 8), (Verb::Check, 1), (Verb::Refund, 1), (Verb::Release, 1)];
    assert_eq!(forgets(&mut worker), kinds.map(|(verb, tasks)| (false, verb, tasks)));
    assert_eq!(forgets(&mut worker), kinds.map(|(verb, tasks)| (true, verb, tasks)));
}

/// A command relies on the source that an earlier one of its batch brings. When Redis refuses the earlier one before it reads the
/// script, the later one is not lost: the batch after brings the source for it.
#[test]
fn one_redis_is_sent_a_script_again_when_the_command_that_brought_it_was_refused() {
    let policies = [policy("p0", BUCKET), policy("p1", BUCKET), policy("p2", BUCKET)].join(",");
    let mut worker = Worker::new(r#"{"deadline": "50ms", "topology": "single"}"#, &policies);
    assert_eq!(worker.submit(1, &["ann", "ann", "ann"]), None);
    let (batch, _) = worker.batch();
    let replies = [granted(1), granted(1), granted(0)];
    assert_eq!(worker.reply(&batch, &replies), [(1, false)]);
    let mut send = |replies: &[&[u8]]| -> Vec<(bool, String)> {
        let batch = worker.engine.next_batch(worker.now).expect("a batch");
        let commands = worker.read(&batch);
        worker.reply(&batch, &replies.iter().map(|reply| reply.to_vec()).collect::<Vec<_>>());
        commands.into_iter().map(|command| (command.by_source, command.tasks[0].tag.clone())).collect()
    };
    let (ann0, ann1) = ("{p0|ann}".to_owned(), "{p1|ann}".to_owned());
    let both = [(false, ann0.clone()), (false, ann1.clone())];
    assert_eq!(send(&[NOSCRIPT, NOSCRIPT]), both);
    assert_eq!(send(&[b"-LOADING dataset in memory\r\n", NOSCRIPT]), [(true, ann0), (false, ann1.clone())]);
    assert_eq!(send(&[b"$0\r\n\r\n"]), [(true, ann1)]);
}

// --- Quota is conserved -----------------------------------------------------------------------------------------------

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
enum Fate {
    Replied,
    /// The connection breaks before the store has read it.
    LostUnread,
    /// The connection breaks before the reply is read.
    LostReply,
}

/// What a random history does next.
#[derive(Clone, Debug)]
enum Step {
    Submit { policies: usize, subject: usize },
    Send { fate: Fate, dice: u64 },
    Arrive { which: usize },
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

/// A worker, the store it asks, and everybody who asks it.
struct World {
    worker: Worker,
    /// Each request has subjects of its own; otherwise three subjects are shared by all.
    apart: bool,
    accounts: HashMap<String, Account>,
    users: BTreeMap<StreamId, User>,
    in_flight: Vec<InFlight>,
    next: StreamId,
    permit: i64,
    random: u64,
    /// The store does what it is asked, and nothing is lost.
    calm: bool,
    deny: bool,
}

/// A batch that the worker has not heard of yet.
#[derive(Debug)]
struct InFlight {
    id: BatchId,
    fate: Fate,
    replies: Vec<u8>,
    /// Requests asked for.
    asked: i64,
    /// Requests granted, by tag and permit.
    grants: Vec<(String, i64, i64)>,
    /// Answered with NOSCRIPT: done only when they are sent again.
    to_repeat: Vec<Task>,
}

impl World {
    fn new(apart: bool, topology: &str, deny: bool, lease: bool) -> Self {
        let on_failure = if deny { "deny" } else { "allow" };
        let store =
            format!(r#"{{"deadline": "20ms", "on_failure": "{on_failure}", "topology": "{topology}"}}"#);
        let first = if lease { leased(SHORT, WINDOW) } else { policy("p0", BUCKET) };
        let both = format!("{}, {PLACES}", BUCKET.replace(r#""l""#, r#""b""#));
        let policies = [first, policy("p1", DELAYED), policy("p2", PLACES), policy("p3", &both)].join(",");
        Self {
            worker: Worker::new(&store, &policies),
            apart,
            accounts: HashMap::new(),
            users: BTreeMap::new(),
            in_flight: Vec::new(),
            next: 1,
            permit: 100,
            random: 1,
            calm: false,
            deny,
        }
    }

    /// From 0 to below `sides` (xorshift).
    fn roll(&mut self, sides: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % sides
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Submit { policies, subject } => {
                self.submit(policies, format!("s{}", subject % 3));
            }
            Step::Send { fate, dice } => {
                self.random = dice | 1;
                self.send(fate);
            }
            Step::Arrive { which } if !self.in_flight.is_empty() => self.arrive(which % self.in_flight.len()),
            Step::Arrive { .. } => {}
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

    fn submit(&mut self, policies: usize, shared: String) -> StreamId {
        let stream = self.next;
        self.next += 1;
        let name = if self.apart { stream.to_string() } else { shared };
        let tags = (0..policies).map(|policy| format!("{{p{policy}|{name}}}")).collect();
        self.users.insert(stream, User { tags, status: Status::Waiting, open: true });
        let subjects = vec![name.as_str(); policies];
        if let Some(admitted) = self.worker.submit(stream, &subjects) {
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
        self.worker.engine.closed(stream, self.worker.now);
    }

    fn pass(&mut self, millis: u64) {
        self.worker.idle(Micros::from_millis(millis));
        while let Some(id) = self.worker.engine.next_abandoned() {
            let place = self.in_flight.iter().position(|batch| batch.id == id).expect("it was in flight");
            let abandoned = self.in_flight.remove(place);
            self.unheard(abandoned);
        }
    }

    /// Nobody will hear what the store granted: it stays charged, and places end with their ttl.
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
        let Some(outgoing) = self.worker.engine.next_batch(self.worker.now) else { return };
        let (mut replies, mut asked, mut grants, mut to_repeat) = (Vec::new(), 0, Vec::new(), Vec::new());
        for command in self.worker.read(&outgoing) {
            let checks = command.tasks.iter().filter(|task| task.verb == Verb::Check);
            asked += checks.map(|task| task.requests).sum::<i64>();
            let dice = if self.calm { 15 } else { self.roll(16) };
            if fate == Fate::LostUnread {
                command.tasks.iter().for_each(|task| self.lose(task));
                continue;
            }
            if dice == 0 && !command.by_source {
                replies.extend(NOSCRIPT);
                to_repeat.extend(command.tasks);
                continue;
            }
            if dice == 1 {
                // An error: nothing was done. A refund that fails is lost.
                command.tasks.iter().for_each(|task| self.lose(task));
                replies.extend(b"-OOM command not allowed\r\n");
                continue;
            }
            if command.tasks.len() > 1 {
                resp::array_header(&mut replies, command.tasks.len());
            }
            for task in &command.tasks {
                let reply = self.execute(task, &mut grants);
                replies.extend(reply);
            }
        }
        self.in_flight.push(InFlight { id: outgoing.id, fate, replies, asked, grants, to_repeat });
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

    fn execute(&mut self, task: &Task, grants: &mut Vec<(String, i64, i64)>) -> Vec<u8> {
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
                let mut numbers = vec![granted, i64::try_from(START.0).expect("a time")];
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
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                let mut reply = Vec::new();
                resp::bulk(&mut reply, &bytes);
                reply
            }
            Verb::Refund => {
                account.refunded += task.number;
                assert!(account.refunded <= account.granted, "{}: {account:?}", task.tag);
                b"$0\r\n\r\n".to_vec()
            }
            Verb::Release => {
                account.release(task);
                b":1\r\n".to_vec()
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

    fn arrive(&mut self, place: usize) {
        let batch = self.in_flight.remove(place);
        let now = self.worker.now;
        if batch.fate == Fate::Replied {
            self.worker.engine.replied(batch.id, &batch.replies, now);
        } else {
            self.worker.engine.failed(batch.id, &StoreFailure::Refused, now);
            self.unheard(batch);
        }
    }

    /// All batches are resolved, all streams are closed, and nothing is left to send.
    fn end(&mut self) {
        self.calm = true;
        self.pass(60);
        self.released();
        let open: Vec<_> = self.users.iter().filter(|(_, user)| user.open).map(|(id, _)| *id).collect();
        open.into_iter().for_each(|stream| self.close(stream));
        for round in 0..100 {
            // While a breaker is open nothing is sent before a request asks.
            let stream = self.submit(1, format!("last{round}"));
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
            self.arrive(0);
        }
    }

    /// Units that the store charged and that were not refunded are those of requests that were admitted, or whose client
    /// left while they waited. Places are held by nobody.
    fn judge(&self) {
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

#[cfg(not(target_arch = "wasm32"))]
mod conservation {
    use proptest::prelude::*;

    use super::*;

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![12 => Just(Fate::Replied), 1 => Just(Fate::LostUnread), 1 => Just(Fate::LostReply)]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1..=4usize, 0..3usize).prop_map(|(policies, subject)| Step::Submit { policies, subject }),
            4 => (fate(), any::<u64>()).prop_map(|(fate, dice)| Step::Send { fate, dice }),
            3 => any::<usize>().prop_map(|which| Step::Arrive { which }),
            3 => any::<usize>().prop_map(|which| Step::Close { which }),
            3 => (1..15u64).prop_map(|millis| Step::Pass { millis }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_charged_and_not_refunded_was_admitted_or_left(
            steps in prop::collection::vec(step(), 1..120),
            apart in any::<bool>(),
            deny in any::<bool>(),
            single in any::<bool>(),
            lease in any::<bool>(),
        ) {
            let topology = if single { "single" } else { "any" };
            let mut world = World::new(apart, topology, deny, lease && !apart);
            steps.iter().for_each(|step| world.step(step));
            world.end();
            world.judge();
        }
    }
}
