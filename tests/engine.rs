//! One worker's state machine, driven without a host and without a store: what goes out is looked into, what comes back
//! is made up here. That the store answers so is what the tests on a real Redis show.
#![allow(missing_docs, clippy::expect_used, clippy::panic, clippy::unwrap_used, clippy::indexing_slicing)]

use std::rc::Rc;

use weir::config::Config;
use weir::engine::{Action, Engine, Outgoing, Release, StoreFailure, StreamId, Submitted};
use weir::policy::{Check, Mode};
use weir::resp::{self, Reply};
use weir::time::Micros;

const START: Micros = Micros::from_secs(1_700_000_000);

/// An engine, the host's clock, and what it has been told to do.
struct Worker {
    engine: Engine,
    now: Micros,
}

/// A command of a batch, as the store would see it.
#[derive(Debug, PartialEq, Eq)]
struct Command {
    verb: String,
    key: String,
    requests: i64,
}

/// What became of a request: its number, and whether it went through.
type Outcome = (StreamId, bool);

impl Worker {
    fn new(policies: &str) -> Self {
        Self::with_store(r#"{"deadline": "50ms", "on_failure": "allow"}"#, policies)
    }

    fn with_store(store: &str, policies: &str) -> Self {
        let config = format!(r#"{{"store": {store}, "policies": [{policies}]}}"#);
        let config = Config::parse(config.as_bytes()).unwrap_or_else(|errors| panic!("{errors:?}"));
        let mut engine = Engine::new(Rc::new(config), 1);
        // The host ticks once before anything happens, so that the clock knows the time.
        engine.tick(START);
        Self { engine, now: START }
    }

    /// A request of this number, checked by policies 0, 1, … for these subjects.
    fn submit(&mut self, stream: StreamId, subjects: &[&str]) -> Option<bool> {
        let checks = subjects.iter().enumerate().map(|(policy, subject)| Check {
            policy,
            tier: 0,
            tag: format!("{{p{policy}|{subject}}}").into_bytes(),
            cost: 1,
            mode: Mode::Enforce,
        });
        match self.engine.submit(stream, checks.collect(), self.now) {
            Submitted::Wait => None,
            Submitted::Decided(action) => Some(matches!(action, Action::Admit)),
        }
    }

    fn batch(&mut self) -> (Outgoing, Vec<Command>) {
        let outgoing = self.engine.next_batch(self.now).expect("a batch");
        let command = |words: &Vec<Vec<u8>>| Command {
            verb: text(&words[0]),
            key: text(&words[3]),
            requests: i64::from_le_bytes(words[words.len() - 1][8..16].try_into().expect("a number")),
        };
        let commands = commands(&outgoing).iter().map(command).collect();
        (outgoing, commands)
    }

    fn reply(&mut self, to: &Outgoing, replies: &[Vec<u8>]) -> Vec<Outcome> {
        self.engine.replied(to.id, &replies.concat(), self.now);
        self.released()
    }

    fn released(&mut self) -> Vec<Outcome> {
        std::iter::from_fn(|| self.engine.next_release())
            .map(|Release { stream, action }| (stream, matches!(action, Action::Admit)))
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
}

/// What the script answers for one limit: so many granted, held for `turn`, under `lease`.
fn granted(requests: i64) -> Vec<u8> {
    answer(requests, 0, 0)
}

fn answer(requests: i64, wait: i64, extra: i64) -> Vec<u8> {
    let time = i64::try_from(START.0).expect("a time");
    let numbers = [requests, time, 5, wait, 1_000_000, extra];
    let mut reply = Vec::new();
    resp::bulk(&mut reply, &numbers.map(i64::to_le_bytes).concat());
    reply
}

const ONE: &str = r#"{"name": "p0", "subject": [{"literal": "s"}], "limits":
    [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10}]}"#;

fn two() -> String {
    format!("{ONE}, {}", ONE.replace("p0", "p1"))
}

fn ask(key: &str, requests: i64) -> Command {
    Command { verb: "EVALSHA".into(), key: format!("weir:{{p0|{key}}}:l"), requests }
}

#[test]
fn requests_of_one_subject_share_a_command_first_come_first_served() {
    let mut worker = Worker::new(ONE);
    for stream in [7, 3, 9] {
        assert_eq!(worker.submit(stream, &["ann"]), None);
    }
    worker.submit(4, &["bob"]);
    let (batch, commands) = worker.batch();
    assert_eq!(commands, [ask("ann", 3), ask("bob", 1)]);
    let outcomes = worker.reply(&batch, &[granted(2), granted(1)]);
    assert_eq!(outcomes, [(7, true), (3, true), (9, false), (4, true)]);
}

#[test]
fn what_arrives_while_a_batch_flies_is_the_next_batch() {
    let mut worker = Worker::new(ONE);
    worker.submit(1, &["ann"]);
    let (first, _) = worker.batch();
    worker.submit(2, &["ann"]);
    worker.submit(3, &["ann"]);
    assert!(worker.engine.next_batch(worker.now).is_none() && !worker.engine.wants_to_send());
    assert_eq!(worker.reply(&first, &[granted(1)]), [(1, true)]);
    assert!(worker.engine.wants_to_send());
    assert_eq!(worker.batch().1, [ask("ann", 2)]);
}

#[test]
fn a_store_that_forgot_the_script_is_told_it_and_nobody_notices() {
    let mut worker = Worker::new(ONE);
    worker.submit(1, &["ann"]);
    worker.submit(2, &["bob"]);
    let (first, _) = worker.batch();
    let noscript = b"-NOSCRIPT No matching script.\r\n".to_vec();
    assert_eq!(worker.reply(&first, &[noscript, granted(1)]), [(2, true)]);
    let (second, commands) = worker.batch();
    assert_eq!(commands, [Command { verb: "EVAL".into(), ..ask("ann", 1) }]);
    assert_eq!(worker.reply(&second, &[granted(1)]), [(1, true)]);
    assert_eq!(worker.engine.take_failures(), []);
}

/// The words of each command of a batch.
fn commands(outgoing: &Outgoing) -> Vec<Vec<Vec<u8>>> {
    let (mut rest, mut commands) = (outgoing.body.as_slice(), Vec::new());
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

/// About how many subjects each command of a batch asks.
fn subjects(outgoing: &Outgoing) -> Vec<usize> {
    commands(outgoing).iter().map(|words| text(&words[2]).parse().expect("a number")).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The words of a batch that is one command.
fn words(outgoing: &Outgoing) -> Vec<Vec<u8>> {
    let [words] = commands(outgoing).try_into().expect("one command");
    words
}

fn together(replies: &[Vec<u8>]) -> Vec<u8> {
    let mut reply = Vec::new();
    resp::array_header(&mut reply, replies.len());
    reply.extend(replies.concat());
    reply
}

#[test]
fn where_one_redis_has_all_keys_one_command_asks_about_all_subjects_of_a_policy() {
    let mut worker = Worker::with_store(r#"{"topology": "single"}"#, &two());
    let ask = |worker: &mut Worker| {
        for (stream, subject) in [(1, "ann"), (2, "bob"), (3, "ann"), (4, "eve")] {
            assert_eq!(worker.submit(stream, &[subject]), None);
        }
    };
    ask(&mut worker);
    let first = worker.engine.next_batch(worker.now).expect("a batch");
    let asked = words(&first);
    assert_eq!(asked[0], b"EVALSHA");
    assert_eq!(asked[2..6], [b"3".to_vec(), key("ann"), key("bob"), key("eve")]);
    let questions: Vec<i64> =
        asked[7].as_chunks().0.iter().map(|number| i64::from_le_bytes(*number)).collect();
    assert_eq!(questions, [2, 1, 1, 1, 1, 1], "requests and cost of each");

    // It is told the script, all subjects again.
    let noscript = b"-NOSCRIPT No matching script.\r\n".to_vec();
    assert_eq!(worker.reply(&first, &[noscript]), []);
    let second = worker.engine.next_batch(worker.now).expect("a batch");
    assert_eq!((words(&second)[0].as_slice(), &words(&second)[2..]), (b"EVAL".as_slice(), &asked[2..]));
    let reply = together(&[granted(1), granted(1), granted(0)]);
    assert_eq!(worker.reply(&second, &[reply]), [(1, true), (3, false), (2, true), (4, false)]);

    // What is not a reply for each is a reply for none, and an error is everybody's.
    for (reply, failure) in [
        (together(&[granted(1), granted(1)]), StoreFailure::BadReply),
        (granted(1), StoreFailure::BadReply),
        (b"-OOM used\r\n".to_vec(), StoreFailure::Error("OOM used".into())),
    ] {
        let mut worker = Worker::with_store(r#"{"topology": "single", "on_failure": "deny"}"#, ONE);
        ask(&mut worker);
        let batch = worker.engine.next_batch(worker.now).expect("a batch");
        let denied = worker.reply(&batch, &[reply]);
        assert_eq!(denied, [(1, false), (3, false), (2, false), (4, false)], "{failure:?}");
        assert_eq!(worker.engine.take_failures()[..3], std::array::from_fn::<_, 3, _>(|_| failure.clone()));
    }
}

#[test]
fn a_command_asks_about_64_subjects_at_most_and_about_one_policy() {
    let mut worker = Worker::with_store(r#"{"topology": "single"}"#, &two());
    for subject in 0..100 {
        worker.submit(subject, &[&subject.to_string(), "s"]);
    }
    let batch = worker.engine.next_batch(worker.now).expect("a batch");
    assert_eq!(subjects(&batch), [64, 1, 36]);
}

/// Redis does nothing else while a script runs: where one subject may take long, a command asks about fewer.
#[test]
fn a_command_asks_about_fewer_subjects_whose_limits_may_take_long() {
    let logged = r#"{"name": "p0", "subject": [{"literal": "s"}], "limits":
        [{"name": "l", "algorithm": "sliding_log", "limit": 100000, "window": "1h"}]}"#;
    let mut worker = Worker::with_store(r#"{"topology": "single"}"#, logged);
    for subject in 0..12 {
        worker.submit(subject, &[&subject.to_string()]);
    }
    let batch = worker.engine.next_batch(worker.now).expect("a batch");
    assert_eq!(subjects(&batch), [5, 5, 2]);
}

fn key(subject: &str) -> Vec<u8> {
    format!("weir:{{p0|{subject}}}:l").into_bytes()
}

#[test]
fn the_deadline_decides_by_on_failure() {
    for (on_failure, admitted) in [("allow", true), ("deny", false)] {
        let store = format!(r#"{{"deadline": "50ms", "on_failure": "{on_failure}"}}"#);
        let mut worker = Worker::with_store(&store, ONE);
        worker.submit(1, &["ann"]);
        let (late, _) = worker.batch();
        worker.idle(Micros::from_millis(50));
        assert_eq!(worker.released(), [], "{on_failure}: not before the deadline");
        worker.idle(Micros::from_millis(10));
        assert_eq!(worker.released(), [(1, admitted)], "{on_failure}");
        assert_eq!(worker.engine.take_failures(), [StoreFailure::Timeout]);
        assert_eq!(worker.reply(&late, &[granted(1)]), [], "{on_failure}: decided once");
    }
}

#[test]
fn what_is_twice_too_late_is_given_up() {
    let mut worker = Worker::with_store(r#"{"deadline": "50ms"}"#, ONE);
    worker.submit(1, &["ann"]);
    let (late, _) = worker.batch();
    worker.idle(Micros::from_millis(100));
    assert_eq!(worker.engine.next_abandoned(), None, "its answer still says what was taken");
    assert!(worker.engine.next_tick(worker.now).is_some(), "nobody waits, but it flies");
    worker.idle(Micros::from_millis(10));
    assert_eq!(worker.engine.next_abandoned(), Some(late.id));
    assert!(!worker.engine.in_flight());
    worker.released();
    assert_eq!(worker.engine.take_failures(), [StoreFailure::Timeout], "counted once");
    assert_eq!(worker.reply(&late, &[granted(1)]), []);
    assert_eq!(worker.engine.next_tick(worker.now), None);
}

#[test]
fn a_worker_that_was_busy_does_not_take_it_for_the_stores_fault() {
    let mut worker = Worker::new(ONE);
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    worker.now = worker.now.plus(Micros::from_secs(10));
    worker.engine.tick(worker.now);
    assert_eq!(worker.released(), []);
    assert_eq!(worker.reply(&batch, &[granted(0)]), [(1, false)]);
}

#[test]
fn an_overdue_batch_does_not_hold_up_the_next() {
    let mut worker = Worker::new(ONE);
    worker.submit(1, &["ann"]);
    worker.batch();
    worker.idle(Micros::from_millis(60));
    worker.submit(2, &["ann"]);
    assert_eq!(worker.batch().1, [ask("ann", 1)]);
}

#[test]
fn every_failure_of_the_store_is_one_event_to_a_request() {
    let error = |text: &str| (text.as_bytes().to_vec(), StoreFailure::Error(text[1..text.len() - 2].into()));
    let replies = [
        error("-READONLY You can't write against a read only replica.\r\n"),
        error("-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
        (b"-upstream failure\r\n".to_vec(), StoreFailure::Refused),
        (b":1\r\n".to_vec(), StoreFailure::BadReply),
        (b"$3\r\nabc\r\n".to_vec(), StoreFailure::BadReply),
        (b"$16\r\nab".to_vec(), StoreFailure::BadReply),
        (b"HTTP/1.1 200 OK\r\n".to_vec(), StoreFailure::BadReply),
        (Vec::new(), StoreFailure::BadReply),
    ];
    for (reply, failure) in replies {
        let mut worker = Worker::new(ONE);
        worker.submit(1, &["ann"]);
        let (batch, _) = worker.batch();
        let shown = String::from_utf8_lossy(&reply).into_owned();
        assert_eq!(worker.reply(&batch, &[reply]), [(1, true)], "{shown}");
        assert_eq!(worker.engine.take_failures(), [failure], "{shown}");
        assert_eq!(worker.engine.counters().fallback, 1, "{shown}");
    }
    for failure in [StoreFailure::NotSent, StoreFailure::Refused, StoreFailure::NotTheBridge] {
        let mut worker = Worker::new(ONE);
        worker.submit(1, &["ann"]);
        let (batch, _) = worker.batch();
        worker.engine.failed(batch.id, &failure, worker.now);
        assert_eq!(worker.released(), [(1, true)], "{failure:?}");
        assert_eq!(worker.engine.take_failures(), [failure]);
    }
}

/// Who weir is was asked when the connection began, and where it leads to was chosen then: another may do better.
#[test]
fn an_error_that_lasts_as_long_as_the_connection_says_so() {
    let rows = [
        ("NOAUTH Authentication required.", false),
        ("WRONGPASS invalid username-password pair", false),
        ("READONLY You can't write against a read only replica.", false),
        ("MASTERDOWN Link with MASTER is down", false),
        ("NOREPLICAS Not enough good replicas to write.", false),
        ("NOPERM this user has no permissions", true),
        ("OOM command not allowed", true),
        ("LOADING Redis is loading the dataset in memory", true),
        ("NOSCRIPT No matching script.", true),
        ("upstream failure", true),
    ];
    for (text, well) in rows {
        let error = format!("-{text}\r\n").into_bytes();
        for replies in [[error.clone(), granted(1)], [granted(1), error]] {
            let mut worker = Worker::new(ONE);
            worker.submit(1, &["ann"]);
            worker.submit(2, &["bob"]);
            let (batch, _) = worker.batch();
            assert_eq!(worker.engine.replied(batch.id, &replies.concat(), worker.now), well, "{text}");
        }
    }
}

#[test]
fn a_reply_that_envoy_waited_for_in_vain_is_told_from_one_it_could_not_ask_for() {
    for (waited, failure) in
        [(0, StoreFailure::Refused), (5, StoreFailure::Refused), (40, StoreFailure::Slow)]
    {
        let mut worker = Worker::new(ONE);
        worker.submit(1, &["ann"]);
        let (batch, _) = worker.batch();
        worker.idle(Micros::from_millis(waited));
        worker.reply(&batch, &[b"-upstream failure\r\n".to_vec()]);
        assert_eq!(worker.engine.take_failures(), [failure], "{waited} ms");
    }
}

#[test]
fn a_store_that_fails_again_and_again_is_left_alone_and_tried_with_one_request() {
    let mut worker = Worker::new(ONE);
    for stream in 1..=3 {
        assert_eq!(worker.submit(stream, &["ann"]), None);
        let (batch, _) = worker.batch();
        worker.submit(stream + 10, &["bob"]);
        worker.engine.failed(batch.id, &StoreFailure::Refused, worker.now);
        worker.engine.closed(stream + 10, worker.now);
    }
    assert_eq!(worker.released(), [(1, true), (2, true), (3, true), (13, true)], "nobody waits any longer");
    assert!(worker.engine.take_failures().contains(&StoreFailure::BreakerOpen));
    assert_eq!([worker.submit(20, &["ann"]), worker.submit(21, &["eve"])], [Some(true); 2]);
    assert!(!worker.engine.wants_to_send());

    worker.idle(Micros::from_millis(130));
    assert_eq!([worker.submit(30, &["ann"]), worker.submit(31, &["ann"])], [None, Some(true)], "one probe");
    let (probe, commands) = worker.batch();
    assert_eq!(commands, [ask("ann", 1)]);
    assert_eq!(worker.reply(&probe, &[granted(1)]), [(30, true)]);
    assert_eq!([worker.submit(40, &["ann"]), worker.submit(41, &["ann"])], [None; 2], "in use again");
}

#[test]
fn a_probe_that_is_sent_again_is_still_the_only_one() {
    let mut worker = Worker::new(ONE);
    for stream in 1..=3 {
        worker.submit(stream, &["ann"]);
        let (batch, _) = worker.batch();
        worker.reply(&batch, &[b"-OOM used\r\n".to_vec()]);
    }
    worker.idle(Micros::from_millis(130));
    assert_eq!(worker.submit(10, &["ann"]), None);
    let (probe, _) = worker.batch();
    assert_eq!(worker.reply(&probe, &[b"-NOSCRIPT No matching script.\r\n".to_vec()]), []);
    assert_eq!(worker.submit(11, &["ann"]), Some(true), "before it leaves again");
    let (again, commands) = worker.batch();
    assert_eq!(commands, [Command { verb: "EVAL".into(), ..ask("ann", 1) }]);
    assert_eq!(worker.submit(12, &["ann"]), Some(true), "and after that");
    assert_eq!(worker.reply(&again, &[granted(1)]), [(10, true)]);
    assert_eq!(worker.submit(13, &["ann"]), None);
}

/// The store's breaker, and that of a shard.
#[test]
fn a_probe_that_fails_is_followed_by_a_longer_pause() {
    for is_store in [true, false] {
        let mut worker = Worker::new(ONE);
        let fail = |worker: &mut Worker, stream| {
            assert_eq!(worker.submit(stream, &["ann"]), None);
            let (batch, _) = worker.batch();
            if is_store {
                worker.engine.failed(batch.id, &StoreFailure::Refused, worker.now);
            } else {
                worker.engine.replied(batch.id, b"-OOM used\r\n", worker.now);
            }
            assert_eq!(worker.released(), [(stream, true)]);
        };
        (1..=3).for_each(|stream| fail(&mut worker, stream));
        for (stream, longest) in [(10, 125), (20, 250), (30, 500)] {
            worker.idle(Micros::from_millis(longest * 4 / 5 - 1));
            assert_eq!(worker.submit(stream, &["ann"]), Some(true), "{longest} ms, {is_store}");
            worker.idle(Micros::from_millis(longest / 5 + 1));
            fail(&mut worker, stream + 1);
        }
    }
}

#[test]
fn a_shard_that_fails_is_left_alone_and_the_others_are_not() {
    let mut worker = Worker::new(ONE);
    let error = b"-upstream failure\r\n".to_vec();
    for stream in 1..=3 {
        assert_eq!(worker.submit(stream, &["ann"]), None);
        let (batch, _) = worker.batch();
        assert_eq!(worker.reply(&batch, std::slice::from_ref(&error)), [(stream, true)]);
    }
    assert_eq!(worker.submit(4, &["ann"]), Some(true), "it is not asked");
    assert_eq!(worker.submit(5, &["bob"]), None, "another slot is");
    let (batch, _) = worker.batch();
    worker.reply(&batch, &[granted(1)]);
    worker.idle(Micros::from_millis(130));
    assert_eq!([worker.submit(6, &["ann"]), worker.submit(7, &["ann"])], [None, Some(true)], "one probe");
    let (probe, _) = worker.batch();
    worker.reply(&probe, &[granted(1)]);
    assert_eq!([worker.submit(8, &["ann"]), worker.submit(9, &["ann"])], [None; 2]);
}

#[test]
fn a_shard_that_hangs_holds_up_nobody_but_its_own() {
    let mut worker = Worker::new(ONE);
    worker.submit(1, &["ann"]);
    worker.submit(2, &["bob"]);
    let (first, _) = worker.batch();
    // Before anything is known of it, both wait; what comes meanwhile does not for long.
    worker.submit(3, &["ann"]);
    worker.submit(4, &["bob"]);
    assert!(!worker.engine.wants_to_send());
    worker.idle(Micros::from_millis(11));
    let (second, commands) = worker.batch();
    assert_eq!(commands, [ask("ann", 1), ask("bob", 1)], "a slow batch does not hold up the next");
    let error = b"-upstream failure\r\n".to_vec();
    assert_eq!(worker.reply(&first, &[error.clone(), granted(1)]), [(1, true), (2, true)]);
    worker.reply(&second, &[error.clone(), granted(1)]);

    // Now they fly apart, also those that had gathered together.
    worker.submit(5, &["ann"]);
    worker.submit(6, &["bob"]);
    let (main, commands) = worker.batch();
    assert_eq!(commands, [ask("bob", 1)]);
    let (doubtful, commands) = worker.batch();
    assert_eq!(commands, [ask("ann", 1)]);
    assert_eq!(worker.reply(&main, &[granted(1)]), [(6, true)], "the one is not waited for");
    // Once it answers, all is as before.
    assert_eq!(worker.reply(&doubtful, &[granted(1)]), [(5, true)]);
    worker.submit(7, &["ann"]);
    worker.submit(8, &["bob"]);
    assert_eq!(worker.batch().1, [ask("ann", 1), ask("bob", 1)]);
}

#[test]
fn who_gave_up_does_not_keep_others_from_asking() {
    let mut worker = Worker::new(ONE);
    // First it is near, then it gets so slow that a few tasks at a time are asked about,…
    for (stream, takes) in [1, 1, 40, 40, 40, 40].into_iter().enumerate() {
        let stream = u32::try_from(stream).expect("few") * 10;
        (0..8).for_each(|more| {
            worker.submit(stream + more, &[&more.to_string()]);
        });
        while let Some(batch) = worker.engine.next_batch(worker.now) {
            worker.idle(Micros::from_millis(takes));
            let (replies, _) = all_granted(&batch);
            worker.reply(&batch, &replies);
        }
    }
    // …and some wait behind them, until the rest are too many.
    let waits =
        |worker: &mut Worker, stream: StreamId| worker.submit(stream, &[&stream.to_string()]).is_none();
    assert!(waits(&mut worker, 100));
    let (slow, _) = worker.batch();
    let waiting = (101..200).take_while(|stream| waits(&mut worker, *stream)).count();
    assert!(waiting < 50, "{waiting}");
    worker.idle(Micros::from_millis(70));
    assert!(worker.released().len() > waiting, "all of them have given up");
    let (replies, _) = all_granted(&slow);
    worker.reply(&slow, &replies);
    assert!(waits(&mut worker, 200));
    assert_eq!(worker.batch().1, [ask("200", 1)]);
}

/// Grants of one request each, for all subjects of a batch; how many they are.
fn all_granted(outgoing: &Outgoing) -> (Vec<Vec<u8>>, usize) {
    let subjects = subjects(outgoing);
    let reply = |&count: &usize| if count == 1 { granted(1) } else { together(&vec![granted(1); count]) };
    (subjects.iter().map(reply).collect(), subjects.iter().sum())
}

#[test]
fn a_slow_store_is_asked_about_less_at_a_time_and_nobody_waits_in_vain() {
    for topology in ["any", "single"] {
        let mut worker = Worker::with_store(&format!(r#"{{"topology": "{topology}"}}"#), ONE);
        let mut subjects = 0..;
        // Forty requests come, a batch leaves, and it is answered after so long. How large it was.
        let mut round = |worker: &mut Worker, takes: u64| {
            for subject in subjects.by_ref().take(40) {
                worker.submit(subject, &[&subject.to_string()]);
            }
            let batch = worker.engine.next_batch(worker.now).expect("a batch");
            worker.idle(Micros::from_millis(takes));
            let (replies, size) = all_granted(&batch);
            worker.reply(&batch, &replies);
            size
        };
        assert_eq!([1, 1].map(|takes| round(&mut worker, takes)), [40, 40], "{topology}: it is near");
        assert_eq!(round(&mut worker, 40), 40, "{topology}");
        assert_eq!(round(&mut worker, 40), 40, "{topology}: one slow answer says little");
        // The store does twenty of forty in nineteen milliseconds, which is what it should take.
        let less = round(&mut worker, 20);
        assert!((10..30).contains(&less), "{topology}: {less}");
        let batch = worker.engine.next_batch(worker.now).expect("what was left");
        for subject in subjects.by_ref().take(200) {
            worker.submit(subject, &[&subject.to_string()]);
        }
        assert!(worker.engine.replied(batch.id, b"", worker.now), "{topology}");
        assert!(
            worker.engine.take_failures().contains(&StoreFailure::Overloaded),
            "{topology}: not all of them wait"
        );
    }
}

#[test]
fn what_gathered_before_a_shard_failed_flies_apart_too() {
    let mut worker = Worker::new(ONE);
    worker.submit(1, &["ann"]);
    let (first, _) = worker.batch();
    worker.submit(2, &["ann"]);
    worker.submit(3, &["bob"]);
    worker.reply(&first, &[b"-upstream failure\r\n".to_vec()]);
    assert_eq!(worker.batch().1, [ask("bob", 1)]);
    assert_eq!(worker.batch().1, [ask("ann", 1)]);
    assert!(!worker.engine.wants_to_send());
}

#[test]
fn an_answer_that_nobody_awaits_any_more_is_no_new_beginning() {
    let store = r#"{"deadline": "1s", "on_failure": "local", "workers": 5}"#;
    let mut worker = Worker::with_store(store, ONE);
    worker.submit(1, &["ann"]);
    let (slow, _) = worker.batch();
    worker.idle(Micros::from_millis(11));
    let fail = |worker: &mut Worker, stream| {
        worker.submit(stream, &["ann"]);
        let (batch, _) = worker.batch();
        worker.engine.failed(batch.id, &StoreFailure::Refused, worker.now);
        worker.released()
    };
    // The limit is ten, a fifth of which is this worker's. With the third failure it stops waiting for the first batch as well.
    let decided = [2, 3, 4].map(|stream| fail(&mut worker, stream));
    assert_eq!(decided, [vec![(2, true)], vec![(3, true)], vec![(4, false), (1, false)]]);
    assert_eq!(worker.reply(&slow, &[granted(1)]), []);
    assert_eq!(fail(&mut worker, 5), [(5, false)], "what it admitted by itself counts still");
}

#[test]
fn a_worker_limits_by_itself_while_the_store_is_away_and_begins_anew_after_that() {
    let store = r#"{"deadline": "50ms", "on_failure": "local", "workers": 5}"#;
    let mut worker = Worker::with_store(store, ONE);
    let mut stream = 0;
    let mut fail = |worker: &mut Worker| {
        stream += 1;
        match worker.submit(stream, &["ann"]) {
            Some(admitted) => admitted,
            None => {
                let (batch, _) = worker.batch();
                worker.engine.failed(batch.id, &StoreFailure::Refused, worker.now);
                worker.released()[0].1
            }
        }
    };
    // The limit is ten, a fifth of which is this worker's.
    assert_eq!(
        [fail(&mut worker), fail(&mut worker), fail(&mut worker), fail(&mut worker)],
        [true, true, false, false]
    );
    worker.idle(Micros::from_secs(5));
    assert_eq!(
        [fail(&mut worker), fail(&mut worker)],
        [true, false],
        "one a second, a fifth of which is its"
    );

    worker.idle(Micros::from_secs(1));
    assert_eq!(worker.submit(100, &["ann"]), None);
    let (probe, _) = worker.batch();
    worker.reply(&probe, &[granted(1)]);
    assert_eq!([fail(&mut worker), fail(&mut worker), fail(&mut worker)], [true, true, false]);
}

/// A cost that the limit holds passes when the store is back, whatever this worker's share is: nobody is told never.
#[test]
fn only_what_the_whole_limit_cannot_hold_is_rejected_for_good() {
    let store = r#"{"deadline": "50ms", "on_failure": "local", "workers": 5}"#;
    // The limit is ten, a fifth of which is this worker's.
    for (cost, retry_after, pushback) in
        [(2, Some("10"), Some("10000")), (3, None, None), (10, None, None), (11, None, Some("-1"))]
    {
        let mut worker = Worker::with_store(store, ONE);
        let mut ask = |stream| {
            let check = Check { policy: 0, tier: 0, tag: b"{p0|ann}".to_vec(), cost, mode: Mode::Enforce };
            worker.engine.submit(stream, [check].into_iter().collect(), worker.now);
            let (batch, _) = worker.batch();
            worker.engine.failed(batch.id, &StoreFailure::Refused, worker.now);
            worker.engine.next_release().expect("decided").action
        };
        if cost == 2 {
            assert!(matches!(ask(1), Action::Admit));
        }
        let Action::Reject(rejection) = ask(2) else { panic!("a cost of {cost} is admitted") };
        let header = rejection.headers.iter().find(|header| header.name == "retry-after");
        assert_eq!(header.map(|header| header.value.as_ref()), retry_after, "a cost of {cost}");
        assert_eq!(rejection.grpc.pushback.as_deref(), pushback, "a cost of {cost}");
    }
}

#[test]
fn a_truncated_reply_fails_only_what_it_lacks() {
    let mut worker = Worker::new(ONE);
    worker.submit(1, &["ann"]);
    worker.submit(2, &["bob"]);
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[granted(0)]), [(1, false), (2, true)]);
    assert_eq!(worker.engine.take_failures(), [StoreFailure::BadReply]);
}

#[test]
fn a_client_that_leaves_loses_its_seat() {
    let mut worker = Worker::new(ONE);
    for stream in [1, 2, 3] {
        worker.submit(stream, &["ann"]);
    }
    worker.submit(4, &["bob"]);
    worker.engine.closed(2, worker.now);
    worker.engine.closed(4, worker.now);
    let (batch, commands) = worker.batch();
    assert_eq!(commands, [ask("ann", 2)]);
    worker.engine.closed(1, worker.now);
    assert_eq!(worker.reply(&batch, &[granted(1)]), [(3, false)], "the one that left was first in line");
}

#[test]
fn a_denial_gives_back_what_other_policies_granted() {
    let mut worker = Worker::new(&two());
    worker.submit(1, &["ann", "all"]);
    let (batch, commands) = worker.batch();
    assert_eq!(
        commands.iter().map(|command| command.key.as_str()).collect::<Vec<_>>(),
        ["weir:{p0|ann}:l", "weir:{p1|all}:l"]
    );
    assert_eq!(worker.reply(&batch, &[granted(1), granted(0)]), [(1, false)]);
    let (_, refund) = worker.batch();
    assert_eq!(refund.len(), 1);
    assert_eq!(refund[0].key, "weir:{p0|ann}:l");
}

#[test]
fn a_denied_subject_is_denied_here_until_the_time_the_store_said() {
    let mut worker = Worker::new(ONE);
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    worker.idle(Micros::from_millis(5));
    assert_eq!(worker.reply(&batch, &[answer(0, 20_000, 0)]), [(1, false)]);
    // 20 ms from when the store was asked, not from when it answered.
    worker.idle(Micros::from_millis(14));
    assert_eq!(worker.submit(2, &["ann"]), Some(false));
    assert_eq!(worker.submit(3, &["bob"]), None, "others are asked about");
    worker.idle(Micros::from_millis(1));
    assert_eq!(worker.submit(4, &["ann"]), None, "the store may say something else now");
}

#[test]
fn what_one_policy_is_known_to_deny_no_other_is_asked() {
    let mut worker = Worker::new(&two());
    worker.submit(1, &["ann", "all"]);
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[answer(0, 1_000_000, 0), answer(0, 1_000_000, 0)]), [(1, false)]);
    assert_eq!(worker.submit(2, &["ann", "all"]), Some(false));
    assert!(!worker.engine.wants_to_send());
}

#[test]
fn what_a_concurrency_limit_denies_is_always_asked_again() {
    let limit = r#"{"name": "l", "algorithm": "concurrency", "limit": 5, "ttl": "60s"}"#;
    let policy = format!(r#"{{"name": "p0", "subject": [{{"literal": "s"}}], "limits": [{limit}]}}"#);
    let mut worker = Worker::new(&policy);
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[answer(0, 60_000_000, 0)]), [(1, false)]);
    assert_eq!(worker.submit(2, &["ann"]), None, "a place may have become free");
}

const LEASED: &str = r#"{"name": "p0", "subject": [{"literal": "s"}], "lease": {"max": 8, "min": 2, "duration": "100ms"},
    "limits": [{"name": "l", "algorithm": "fixed_window", "limit": 100, "window": "1d"}]}"#;

/// Asks for one request and what goes with it, and grants all of it.
fn lease_to(worker: &mut Worker, stream: StreamId) -> i64 {
    assert_eq!(worker.submit(stream, &["ann"]), None, "nothing is on lease");
    let (batch, commands) = worker.batch();
    assert_eq!(worker.reply(&batch, &[granted(commands[0].requests)]), [(stream, true)]);
    commands[0].requests - 1
}

#[test]
fn what_is_on_lease_is_admitted_without_asking_and_grows_with_use() {
    let mut worker = Worker::new(LEASED);
    let mut stream = 0;
    let sizes = [2, 2, 4, 8, 8].map(|expected| {
        stream += 1;
        let taken = lease_to(&mut worker, stream);
        assert_eq!(worker.engine.on_lease(), u64::try_from(taken).expect("a count"), "{expected}");
        for _ in 0..taken {
            stream += 1;
            assert_eq!(worker.submit(stream, &["ann"]), Some(true));
        }
        assert_eq!(worker.engine.on_lease(), 0);
        taken
    });
    assert_eq!(sizes, [2, 4, 8, 8, 8]);
}

/// What was left on lease is on its way back, and arrives.
fn takes_back(worker: &mut Worker) {
    let (batch, returned) = worker.batch();
    assert_eq!((worker.engine.on_lease(), returned.len()), (0, 1));
    worker.reply(&batch, &[b":1\r\n".to_vec()]);
}

#[test]
fn who_would_hardly_use_a_lease_gets_none() {
    const TEN: &str = r#"{"name": "p0", "subject": [{"literal": "s"}], "lease": {"max": 100, "min": 10, "duration": "1s"},
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1000}]}"#;
    let mut worker = Worker::new(TEN);
    let mut stream = 0;
    let mut asks = |worker: &mut Worker, count: u32| {
        stream += 1;
        let admitted = (0..count).map(|more| worker.submit(stream * 100 + more, &["ann"]));
        assert!(admitted.filter(Option::is_none).count() > 0, "nothing is on lease");
        let (batch, commands) = worker.batch();
        worker.reply(&batch, &[granted(commands[0].requests)]);
        commands[0].requests
    };
    // Half of the least, within a lease's duration: one by one, or at once.
    let one_by_one = [1; 5].map(|count| asks(&mut worker, count));
    assert_eq!(one_by_one, [1, 1, 1, 1, 11]);
    // It rests. What it did not use goes back, and it is a stranger again.
    worker.idle(Micros::from_secs(1));
    takes_back(&mut worker);
    assert_eq!([4, 1].map(|count| asks(&mut worker, count)), [4, 11]);
    worker.idle(Micros::from_secs(1));
    takes_back(&mut worker);
    // Too slowly.
    for _ in 0..4 {
        assert_eq!(asks(&mut worker, 4), 4);
        worker.idle(Micros::from_millis(1_001));
    }
    // It uses its lease, and keeps it.
    assert_eq!(asks(&mut worker, 5), 15);
    for round in 0..3 {
        (0..6).for_each(|more| assert_eq!(worker.submit(9_000 + round * 10 + more, &["ann"]), Some(true)));
        worker.idle(Micros::from_secs(1));
        takes_back(&mut worker);
        assert_eq!(asks(&mut worker, 1), 11, "round {round}");
    }
}

#[test]
fn who_came_while_a_lease_was_on_its_way_is_served_from_it() {
    let mut worker = Worker::new(LEASED);
    worker.submit(1, &["ann"]);
    let (first, _) = worker.batch();
    for stream in [2, 3, 4] {
        assert_eq!(worker.submit(stream, &["ann"]), None);
    }
    assert_eq!(worker.reply(&first, &[granted(3)]), [(1, true)]);
    // The two on lease are for two of them; what the third asks for in advance is twice as much, for they have run out.
    let (second, commands) = worker.batch();
    assert_eq!((worker.released(), commands), (vec![(2, true), (3, true)], vec![ask("ann", 1 + 4)]));
    assert_eq!(worker.reply(&second, &[granted(5)]), [(4, true)]);
    assert_eq!(worker.engine.on_lease(), 4);
    // When all can be served nothing is asked.
    worker.submit(5, &["bob"]);
    let (other, _) = worker.batch();
    worker.reply(&other, &[granted(1)]);
    assert!(!worker.engine.wants_to_send());
}

#[test]
fn a_worker_never_holds_more_than_most_on_lease() {
    const ALL: &str = r#"{"name": "p0", "subject": [{"literal": "s"}], "lease": {"max": 8, "min": 8},
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1000}]}"#;
    let mut worker = Worker::new(ALL);
    for stream in 21..25 {
        worker.submit(stream, &["ann"]);
    }
    let (first, commands) = worker.batch();
    assert_eq!(commands, [ask("ann", 4 + 8)]);
    // Two batches ask about the subject at once: what the first asks for counts already, and again if it has to repeat it.
    worker.submit(2, &["ann"]);
    worker.idle(Micros::from_millis(11));
    let (second, commands) = worker.batch();
    assert_eq!(commands, [ask("ann", 1)]);
    worker.reply(&second, &[granted(1)]);
    worker.reply(&first, &[b"-NOSCRIPT No matching script.\r\n".to_vec()]);
    let (again, commands) = worker.batch();
    assert_eq!(commands, [Command { verb: "EVAL".into(), ..ask("ann", 4 + 8) }]);
    worker.reply(&again, &[granted(4 + 8)]);
    assert_eq!(worker.engine.on_lease(), 8);
    // One that fails counts no more.
    (3..11).for_each(|stream| assert_eq!(worker.submit(stream, &["ann"]), Some(true)));
    worker.submit(11, &["ann"]);
    let (lost, _) = worker.batch();
    worker.engine.failed(lost.id, &StoreFailure::Refused, worker.now);
    worker.submit(12, &["ann"]);
    assert_eq!(worker.batch().1, [ask("ann", 9)]);
}

#[test]
fn a_worker_ends_while_a_lease_is_on_its_way() {
    let mut worker = Worker::new(LEASED);
    lease_to(&mut worker, 1);
    assert_eq!([worker.submit(2, &["ann"]), worker.submit(3, &["ann"])], [Some(true); 2]);
    worker.submit(4, &["ann"]);
    let (late, _) = worker.batch();
    worker.engine.retire();
    worker.reply(&late, &[granted(5)]);
    assert_eq!(worker.engine.on_lease(), 4);
    worker.engine.retire();
    assert_eq!((worker.engine.on_lease(), worker.batch().1.len()), (0, 1), "what it took goes back");
}

#[test]
fn what_is_left_goes_back_when_the_lease_ends() {
    let mut worker = Worker::new(LEASED);
    assert_eq!(lease_to(&mut worker, 1), 2);
    let end = worker.now.plus(Micros::from_millis(100));
    assert_eq!(worker.engine.next_tick(worker.now), Some(end), "that somebody looks at it");
    worker.idle(Micros::from_millis(99));
    assert!(!worker.engine.wants_to_send() && worker.engine.on_lease() == 2);
    worker.idle(Micros::from_millis(1));
    assert_eq!(worker.engine.on_lease(), 0);
    let (batch, returned) = worker.batch();
    assert_eq!(returned.len(), 1);
    assert_eq!(returned[0].key, "weir:{p0|ann}:l");
    worker.reply(&batch, &[b":1\r\n".to_vec()]);
    assert_eq!(worker.engine.next_tick(worker.now), None);
}

#[test]
fn a_worker_that_ends_holds_nothing_back() {
    let mut worker = Worker::new(LEASED);
    lease_to(&mut worker, 1);
    worker.engine.retire();
    assert_eq!((worker.engine.on_lease(), worker.batch().1.len()), (0, 1));
}

#[test]
fn what_others_hold_on_lease_is_asked_for_again_when_it_may_be_back() {
    let mut worker = Worker::new(LEASED);
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[answer(0, 86_400_000_000, 0)]), [(1, false)]);
    worker.idle(Micros::from_millis(99));
    assert_eq!(worker.submit(2, &["ann"]), Some(false));
    worker.idle(Micros::from_millis(1));
    assert_eq!(worker.submit(3, &["ann"]), None);
}

#[test]
fn a_partial_lease_serves_those_who_wait_first() {
    let mut worker = Worker::new(LEASED);
    for stream in 1..=3 {
        worker.submit(stream, &["ann"]);
    }
    let (batch, commands) = worker.batch();
    assert_eq!(commands[0].requests, 5);
    assert_eq!(worker.reply(&batch, &[answer(2, 1_000_000, 0)]), [(1, true), (2, true), (3, false)]);
    assert_eq!(worker.engine.on_lease(), 0);
}

#[test]
fn a_grant_that_comes_after_the_denial_goes_back() {
    let store = r#"{"deadline": "50ms", "on_failure": "deny"}"#;
    let mut worker = Worker::with_store(store, ONE);
    worker.submit(1, &["ann"]);
    let (late, _) = worker.batch();
    worker.idle(Micros::from_millis(60));
    assert_eq!(worker.released(), [(1, false)]);
    assert_eq!(worker.reply(&late, &[granted(1)]), []);
    assert_eq!(worker.batch().1[0].key, "weir:{p0|ann}:l");
}

#[test]
fn a_delay_holds_a_request_until_its_turn() {
    let mut worker = Worker::new(&ONE.replace(r#""burst""#, r#""max_delay": "1s", "burst""#));
    for stream in [1, 2] {
        worker.submit(stream, &["ann"]);
    }
    let (batch, _) = worker.batch();
    let held = worker.reply(&batch, &[answer(2, 0, 100_000)]);
    assert_eq!(held, []);
    assert_eq!(worker.engine.next_tick(worker.now), Some(worker.now.plus(Micros::from_millis(100))));
    worker.idle(Micros::from_millis(99));
    assert_eq!(worker.released(), []);
    worker.idle(Micros::from_millis(1));
    assert_eq!(worker.released(), [(1, true)]);
    // The second one's turn would be a second later; its client does not wait for it.
    worker.engine.closed(2, worker.now);
    worker.idle(Micros::from_secs(2));
    assert_eq!(worker.released(), []);
    assert_eq!(worker.engine.next_tick(worker.now), None, "nothing waits for time to pass");
}

#[test]
fn a_clock_that_is_set_back_does_not_prolong_a_hold() {
    let mut worker = Worker::new(&ONE.replace(r#""burst""#, r#""max_delay": "1s", "burst""#));
    worker.submit(1, &["ann"]);
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[answer(1, 0, 100_000)]), []);
    worker.now = worker.now.since(Micros::from_secs(3_600));
    assert_eq!(worker.engine.next_tick(worker.now), Some(worker.now.plus(Micros::from_millis(100))));
    worker.engine.tick(worker.now);
    worker.idle(Micros::from_millis(99));
    assert_eq!(worker.released(), []);
    worker.idle(Micros::from_millis(1));
    assert_eq!(worker.released(), [(1, true)]);
}

#[test]
fn a_command_that_fails_is_one_failure_however_many_subjects_it_asks_about() {
    let mut worker = Worker::with_store(r#"{"topology": "single"}"#, ONE);
    // Among so many there are several in the same part of the slots.
    let ask = |worker: &mut Worker, first: StreamId| {
        (first..first + 64).all(|stream| worker.submit(stream, &[&(stream - first).to_string()]).is_none())
    };
    for round in 0..3 {
        assert!(ask(&mut worker, round * 100), "round {round}: all are asked about");
        while let Some(batch) = worker.engine.next_batch(worker.now) {
            let errors = vec![b"-OOM used\r\n".to_vec(); subjects(&batch).len()];
            worker.reply(&batch, &errors);
        }
        let opened = worker.engine.take_failures().contains(&StoreFailure::BreakerOpen);
        assert_eq!(opened, round == 2, "round {round}");
    }
}

#[test]
fn what_was_sent_is_bounded_in_tasks_and_bytes() {
    let limits = (0..8).map(|limit| {
        format!(
            r#"{{"name": "{}{limit}", "algorithm": "sliding_window", "limit": 5, "window": "1m"}}"#,
            "n".repeat(60)
        )
    });
    let policy = format!(
        r#"{{"name": "{}", "subject": [{{"literal": "s"}}], "overrides": true, "limits": [{}]}}"#,
        "p".repeat(64),
        limits.collect::<Vec<_>>().join(", ")
    );
    for topology in ["single", "any"] {
        let mut worker = Worker::with_store(&format!(r#"{{"topology": "{topology}"}}"#), &policy);
        for stream in 0..1_000 {
            let tag = format!("{{{}|{stream:0>128}}}", "p".repeat(64)).into_bytes();
            let check = Check { policy: 0, tier: 0, tag, cost: 1, mode: Mode::Enforce };
            worker.engine.submit(stream, [check].into_iter().collect(), worker.now);
        }
        let (mut asked, mut sources) = (0, 0);
        while let Some(batch) = worker.engine.next_batch(worker.now) {
            let (commands, subjects) = (commands(&batch), subjects(&batch));
            let tasks: usize = subjects.iter().map(|keys| keys / 9).sum();
            assert!(
                tasks <= 256 && batch.body.len() <= 1024 * 1024,
                "{topology}: {tasks}, {}",
                batch.body.len()
            );
            if commands[0][0] == b"EVAL" {
                let told = commands.iter().filter(|words| words[0] == b"EVAL").count();
                sources += told;
                asked += tasks;
                assert!(topology == "any" || told == 1, "one Redis is told a source once");
            }
            let forgot = |words: &Vec<Vec<u8>>| words[0] == b"EVALSHA" && asked == 0;
            let replies: Vec<_> = commands
                .iter()
                .map(|words| {
                    let known = b"-OOM used\r\n".to_vec();
                    if forgot(words) { b"-NOSCRIPT No matching script.\r\n".to_vec() } else { known }
                })
                .collect();
            worker.reply(&batch, &replies);
        }
        assert!(asked > 0 && sources > 0, "{topology}: {asked}, {sources}");
    }
}

#[test]
fn checks_go_before_refunds_and_refunds_are_bounded() {
    let limit = r#"{"name": "l", "algorithm": "concurrency", "limit": 100000, "ttl": "60s"}"#;
    let policy = format!(r#"{{"name": "p0", "subject": [{{"literal": "s"}}], "limits": [{limit}]}}"#);
    let mut worker = Worker::new(&policy);
    // Each holds a place of its own, and all end at once.
    let (mut stream, mut held) = (0, Vec::new());
    while held.len() < 17_000 {
        for _ in 0..100 {
            stream += 1;
            worker.submit(stream, &[&stream.to_string()]);
        }
        while let Some(batch) = worker.engine.next_batch(worker.now) {
            let replies: Vec<_> = subjects(&batch).iter().map(|_| answer(1, 0, i64::from(stream))).collect();
            held.extend(worker.reply(&batch, &replies).into_iter().map(|(stream, _)| stream));
        }
    }
    held.iter().for_each(|stream| worker.engine.closed(*stream, worker.now));
    stream += 1;
    assert_eq!(worker.submit(stream, &["ann"]), None);
    let (mut refunds, mut batches) = (0, 0);
    while let Some(batch) = worker.engine.next_batch(worker.now) {
        let commands = commands(&batch);
        assert!(commands.len() <= 256);
        if batches == 0 {
            assert_eq!(commands[0][3], b"weir:{p0|ann}:l", "the check goes first");
            refunds -= 1;
        }
        batches += 1;
        refunds += i64::try_from(commands.len()).expect("few");
        worker.reply(&batch, &vec![b":1\r\n".to_vec(); commands.len()]);
    }
    assert_eq!(refunds, 16_384, "what is more is dropped");
}

#[test]
fn refunds_go_at_last_however_much_there_is_to_ask() {
    let mut worker = Worker::new(&two());
    worker.submit(1, &["ann", "all"]);
    let (batch, _) = worker.batch();
    assert_eq!(worker.reply(&batch, &[granted(1), granted(0)]), [(1, false)]);
    (10..310).for_each(|stream| assert_eq!(worker.submit(stream, &[&stream.to_string()]), None));
    let (_, commands) = worker.batch();
    assert_eq!(commands.last().map(|command| command.key.as_str()), Some("weir:{p0|ann}:l"));
    assert!(commands.len() > 100, "most are checks");
}

#[test]
fn too_many_waiting_requests_are_decided_at_once() {
    let mut worker = Worker::new(ONE);
    let mut stream = 0;
    let decided = loop {
        stream += 1;
        if let Some(admitted) = worker.submit(stream, &["ann"]) {
            break admitted;
        }
        assert!(stream < 100_000, "the number of waiting requests must be bounded");
    };
    assert_eq!((decided, stream), (true, 16_385), "by on_failure");
    assert_eq!(worker.engine.take_failures(), [StoreFailure::Overloaded]);
    worker.engine.closed(1, worker.now);
    assert_eq!(worker.submit(stream + 1, &["ann"]), None, "one that left makes room");
    assert!(worker.submit(stream + 2, &["ann"]).is_some(), "for one");
}

/// Whatever is ready to go has a tick coming, for the wake-up that it was promised may be lost.
#[test]
fn what_is_ready_does_not_depend_on_a_wake_up() {
    let mut worker = Worker::new(&LEASED.replace("100ms", "1m"));
    assert_eq!(worker.engine.next_tick(worker.now), None, "nothing is ready");
    lease_to(&mut worker, 1);
    worker.engine.retire();
    assert!(worker.engine.wants_to_send() && !worker.engine.in_flight(), "a refund is");
    let soon = worker.now.plus(Micros::from_millis(5));
    assert!(worker.engine.next_tick(worker.now).is_some_and(|tick| tick <= soon));
    let (batch, _) = worker.batch();
    worker.reply(&batch, &[b":1\r\n".to_vec()]);
    assert_eq!(worker.engine.next_tick(worker.now), None, "it is done");
}

#[test]
fn who_cannot_wait_is_decided_by_on_failure_and_asked_about_no_more() {
    for (on_failure, admitted) in [("allow", true), ("deny", false)] {
        let store = format!(r#"{{"deadline": "50ms", "on_failure": "{on_failure}"}}"#);
        let mut worker = Worker::with_store(&store, ONE);
        assert_eq!(worker.submit(1, &["ann"]), None);
        let Submitted::Decided(action) = worker.engine.cannot_wait(1, worker.now) else {
            panic!("{on_failure}: it waits")
        };
        assert_eq!(matches!(action, Action::Admit), admitted, "{on_failure}");
        assert_eq!((worker.engine.counters().fallback, worker.released()), (1, vec![]), "{on_failure}: once");
        assert!(worker.engine.next_batch(worker.now).is_none(), "{on_failure}");
        assert_eq!(worker.engine.next_tick(worker.now), None, "{on_failure}");
    }
}

/// While the breaker is open, a batch without an answer says that the store is still unavailable. It says nothing about how much
/// the store can do when it has recovered.
#[test]
fn probes_without_an_answer_leave_the_congestion_window_as_it_was() {
    let mut worker = Worker::new(&two());
    for stream in 0..3 {
        assert_eq!(worker.submit(stream, &["ann", "bob"]), None);
        let (batch, _) = worker.batch();
        worker.engine.failed(batch.id, &StoreFailure::Refused, worker.now);
    }
    assert_eq!(worker.engine.open_breakers(), 1);
    for probe in 10..12 {
        worker.idle(Micros::from_millis(501));
        assert_eq!(worker.submit(probe, &["ann", "bob"]), None);
        let (batch, _) = worker.batch();
        worker.idle(Micros::from_millis(110));
        assert_eq!(worker.engine.next_abandoned(), Some(batch.id));
    }
    worker.idle(Micros::from_millis(501));
    assert_eq!(worker.submit(20, &["ann", "bob"]), None);
    let (batch, _) = worker.batch();
    worker.reply(&batch, &[granted(1), granted(1)]);
    let subjects: Vec<_> = (0..64).map(|subject| format!("s{subject}")).collect();
    for (stream, subject) in (100..).zip(&subjects) {
        assert_eq!(worker.submit(stream, &[subject]), None);
    }
    assert_eq!(worker.batch().1.len(), 64);
}
