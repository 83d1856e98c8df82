// SPDX-License-Identifier: Apache-2.0
//! A rollout and a downgrade under load: connections of an earlier version and of this one ask, refund and write at the same time, on
//! the same keys. Together they grant exactly what the limits allow, and no write is lost.
//!
//! `tests/states/VERSION/load.json` has the commands of that version. A check is recorded for each of [`TIMES`]; the earlier version
//! sends it again and again.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Barrier};

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use weir::config::Config;
use weir::engine::Engine;
use weir::limit::{Ask, Limit, Outcome, Subject};
use weir::policy::Denial;
use weir::script::Form;
use weir::script::usage::{Interval, Used, Write, index_key};
use weir::time::Micros;

use crate::on_redis::crowds;
use crate::redis::{Connection, Redis, Shared};
use crate::spec;
use crate::states::{self, RECORDED, bytes, eval, lines, recorded, renamed, text, words};
use crate::store::Store;

/// The times of the phases of a rollout: within a window of 100 ms, and after it.
const TIMES: [Micros; 3] =
    [spec::START, spec::START.plus(Micros::from_millis(40)), spec::START.plus(Micros::from_millis(110))];
/// The number of connections of each version, and the number of checks of each in a phase.
const CONNECTIONS: usize = 4;
const ASKS: usize = 60;
/// More than any of the limits grants.
const ALL: Ask = Ask::new(10_000, 1);
const ONE: Ask = Ask::new(1, 1);

/// The versions that ask in the three phases: the earlier one, this one; and `true` if this one refunds every second unit.
const ORDERS: [(&str, [(bool, bool); 3], bool); 3] = [
    ("a rollout", [(true, false), (true, true), (false, true)], false),
    ("a downgrade", [(false, true), (true, true), (true, false)], false),
    ("with refunds", [(true, true), (true, true), (true, true)], true),
];

/// Refunds that cross each other are exact here. A bucket or a log may keep some of the units charged: `docs/bounds.md`.
fn refunds_exactly(limits: &[Limit]) -> bool {
    use Limit::{Concurrency, FixedWindow, SlidingWindow};
    limits.iter().all(|limit| matches!(limit, FixedWindow(_) | SlidingWindow(_) | Concurrency(_)))
}

/// An interval of the usage journal that is not over.
const INTERVAL: Interval = Interval { start: 3_999_999_600, length: 3_600 };
const WRITERS: u64 = 3;
const WRITES: u64 = 40;
const ENTRIES: usize = 200;

pub fn trials(server: &Arc<Shared>) -> Vec<Trial> {
    if states::is_recording() {
        std::fs::write(states::this_version().join("load.json"), recording(server)).expect("the folder");
    }
    let mut trials = Vec::new();
    for folder in states::versions() {
        let number = folder.file_name().and_then(|name| name.to_str()).expect("a version").to_owned();
        let version = Arc::new(Version::read(&folder));
        let mut add = |name: String, run: Box<dyn Fn(&Redis, &Version) -> Result<(), Failed> + Send>| {
            let (server, version) = (Arc::clone(server), Arc::clone(&version));
            trials.push(Trial::test(
                format!("versions: {number} and this one under load, {name}"),
                move || run(&server, &version),
            ));
        };
        for (name, limits) in crowds() {
            for (order, phases, refunds) in ORDERS {
                let limits = limits.clone();
                add(
                    format!("{order}: {name}"),
                    Box::new(move |server, version| {
                        rollout(server, version, (name, &limits), phases, refunds)
                    }),
                );
            }
        }
        add("the usage journal".into(), Box::new(usage));
        add("the usage journal with a shorter `keep`".into(), Box::new(shorter));
        add("the journal".into(), Box::new(journal));
    }
    trials
}

/// The commands of an earlier version.
struct Version {
    scripts: Vec<String>,
    /// For each of [`TIMES`] the script of a check of one request and its arguments, and how a reply begins that grants it.
    checks: BTreeMap<String, Vec<(usize, Vec<Vec<u8>>, Vec<u8>)>>,
    /// The writes of each worker to the usage journal.
    usage: Vec<Vec<(usize, Vec<Vec<u8>>)>>,
    /// An entry of the journal.
    entry: Vec<Vec<u8>>,
}

impl Version {
    fn read(folder: &Path) -> Self {
        let file = std::fs::read_to_string(folder.join("load.json")).expect("a file");
        let file: Value = serde_json::from_str(&file).expect("JSON");
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let all = |value: &Value| list(value).iter().map(bytes).collect::<Vec<_>>();
        let place = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("a script");
        let check = |row: &Value| (place(&row[0]), all(&row[1]), bytes(&row[2]));
        let checks = file["checks"].as_object().expect("checks").iter();
        Self {
            scripts: list(&file["scripts"])
                .iter()
                .map(|text| text.as_str().expect("a script").to_owned())
                .collect(),
            checks: checks
                .map(|(name, rows)| (name.clone(), list(rows).iter().map(check).collect()))
                .collect(),
            usage: list(&file["usage"])
                .iter()
                .map(|writes| list(writes).iter().map(|write| (place(&write[0]), all(&write[1]))).collect())
                .collect(),
            entry: all(&file["entry"]),
        }
    }
}

// --- Limits -----------------------------------------------------------------------------------------------------------

fn rollout(
    server: &Redis,
    version: &Version,
    (name, limits): (&str, &[Limit]),
    phases: [(bool, bool); 3],
    refunds: bool,
) -> Result<(), Failed> {
    let checks = version
        .checks
        .get(name)
        .ok_or("there is no such limit any more: the earlier version still has it")?;
    let tag = Store::new(server, limits.to_vec()).tag;
    let store =
        || Store { plan: crate::store::plan(limits.to_vec()), tag: tag.clone(), redis: server.connect() };
    let mut subject = Subject::default();
    let mut granted_by = [0; 2];
    for ((now, is_there), (script, arguments, grant)) in TIMES.into_iter().zip(phases).zip(checks) {
        let wanted = i64::from(subject.check(limits, None, now, ALL).granted);
        let counts = [if is_there.0 { CONNECTIONS } else { 0 }, if is_there.1 { CONNECTIONS } else { 0 }];
        let start = &Barrier::new(counts[0] + counts[1]);
        let arguments: Vec<_> =
            arguments.iter().map(|argument| renamed(argument, &String::from_utf8_lossy(&tag))).collect();
        let (script, arguments) = (&version.scripts[*script], &arguments);
        let net: [i64; 2] = std::thread::scope(|scope| {
            let earlier: Vec<_> = (0..counts[0])
                .map(|_| scope.spawn(|| earlier(server.connect(), start, script, arguments, grant)))
                .collect();
            let present: Vec<_> =
                (0..counts[1]).map(|_| scope.spawn(|| present(store(), start, now, refunds))).collect();
            [earlier, present].map(|all| all.into_iter().map(|one| one.join().unwrap()).sum())
        });
        granted_by = [granted_by[0] + net[0], granted_by[1] + net[1]];
        // The units that were refunded last, and that no check asked for since.
        let rest = i64::from(store().check(Some(now), ALL).granted);
        let granted = net[0] + net[1] + rest;
        if granted > wanted || granted < wanted && (!refunds || refunds_exactly(limits)) {
            return Err(format!(
                "at {} ms {granted} of {wanted} units are granted",
                now.since(spec::START).0 / 1_000
            )
            .into());
        }
    }
    assert!(granted_by.iter().all(|units| *units > 0), "both versions have granted some: {granted_by:?}");
    Ok(())
}

/// A connection of the earlier version: how many of its requests are granted. Each connection has asked once when all
/// go on, so that no version takes everything before the other begins.
fn earlier(mut redis: Connection, start: &Barrier, script: &str, arguments: &[Vec<u8>], grant: &[u8]) -> i64 {
    let mut ask = || i64::from(eval(&mut redis, script, arguments).starts_with(grant));
    let first = ask();
    start.wait();
    first + (1..ASKS).map(|_| ask()).sum::<i64>()
}

/// A connection of this version: how many of its requests are granted and not refunded.
fn present(mut store: Store, start: &Barrier, now: Micros, refunds: bool) -> i64 {
    let (mut granted, mut refunded) = (0, 0);
    for asked in 0..ASKS {
        if asked == 1 {
            start.wait();
        }
        let receipt = store.check(Some(now), ONE);
        granted += i64::from(receipt.granted);
        if refunds && receipt.granted > 0 && granted % 2 == 0 {
            refunded += 1;
            give_back(&mut store, now, &receipt);
        }
    }
    granted - refunded
}

fn give_back(store: &mut Store, now: Micros, receipt: &Outcome) {
    let permits: Vec<_> = receipt.permits(1).collect();
    if !permits.is_empty() {
        store.release(Some(now), &permits);
    }
    store.settle(Some(now), -1, receipt);
}

// --- The journals -----------------------------------------------------------------------------------------------------

/// A write of a worker of the usage journal: always the same subjects.
fn write(worker: u64, number: u64) -> Vec<u8> {
    let used = |units| Used { units, requests: 1 };
    let used = [(b"{p|ann}".to_vec(), used(3)), (b"{p|bob}".to_vec(), used(-1))];
    let (prefix, keep, mut command) = (PREFIX, Micros::from_secs(86_400), Vec::new());
    Write { prefix, worker, number, interval: INTERVAL, keep, max_subjects: 10, used: &used }
        .encode(&mut command);
    command
}

/// The prefix of keys of the recorded journals.
const PREFIX: &str = "recorded";

/// Workers of both versions write at the same time. Each unit counts once, and what comes twice does not count again.
fn usage(server: &Redis, version: &Version) -> Result<(), Failed> {
    let earlier = |writes: &[(usize, Vec<Vec<u8>>)]| {
        let mut redis = server.connect();
        for (script, arguments) in writes {
            for reply in [&b":1\r\n"[..], b":0\r\n"] {
                assert_eq!(eval(&mut redis, &version.scripts[*script], arguments), reply);
            }
        }
    };
    let present = |worker: u64| {
        let mut redis = server.connect();
        for number in 1..=WRITES {
            for reply in [&b":1\r\n"[..], b":0\r\n"] {
                assert_eq!(redis.pipeline(&write(1_000 + worker, number), 1), [reply.to_vec()]);
            }
        }
    };
    let mut redis = server.connect();
    let key = INTERVAL.key(PREFIX);
    redis.call(&[b"DEL", key.as_bytes()]);
    for worker in 0..WRITERS {
        for worker in [worker, 1_000 + worker] {
            redis.call(&[b"DEL", format!("{PREFIX}:{{journal}}:usage:worker:{worker:016x}").as_bytes()]);
        }
    }
    std::thread::scope(|scope| {
        let writers: Vec<_> = version.usage.iter().map(|writes| scope.spawn(|| earlier(writes))).collect();
        let others: Vec<_> = (0..WRITERS).map(|worker| scope.spawn(move || present(worker))).collect();
        writers.into_iter().chain(others).for_each(|writer| writer.join().unwrap());
    });
    let writes = version.usage.iter().map(Vec::len).sum::<usize>() as i64 + (WRITERS * WRITES) as i64;
    for (tag, units) in [("{p|ann}", 3), ("{p|bob}", -1)] {
        let found = text(&redis.call(&[b"HGET", key.as_bytes(), tag.as_bytes()]));
        let wanted = format!("{} {writes}", units * writes);
        if !found.ends_with(&format!("\r\n{wanted}\r\n")) {
            return Err(format!("{tag}: {found:?}, not {wanted:?}").into());
        }
    }
    Ok(())
}

/// The earlier version keeps an hour, this one 62 days: the list loses no interval, and the next write of this version gives the interval
/// and the list their 62 days again. Until then both expire when the earlier version says.
fn shorter(server: &Redis, version: &Version) -> Result<(), Failed> {
    const PREFIX: &str = "shorter";
    let (mut redis, hour) = (server.connect(), INTERVAL.length);
    let now = redis.say("TIME").lines().nth(2).and_then(|text| text.trim().parse::<u64>().ok());
    let this = now.expect("a time") / hour * hour;
    let (day, index) = (86_400, index_key(PREFIX));
    redis.call(&[b"DEL", index.as_bytes()]);
    let interval = |start| Interval { start, length: hour };
    let (script, recorded) = version.usage.first().and_then(|writes| writes.first()).expect("a write");
    let used = recorded.get(9..).expect("three keys, five numbers, and the usage");
    let earlier = |redis: &mut Connection, number: u64, start| {
        let numbers = [number, start, hour, hour, 10].map(|number| number.to_string().into_bytes());
        let worker = format!("{index}:worker:earlier").into_bytes();
        let keys =
            [b"3".to_vec(), interval(start).key(PREFIX).into_bytes(), worker, index.clone().into_bytes()];
        let arguments: Vec<_> = keys.into_iter().chain(numbers).chain(used.iter().cloned()).collect();
        assert_eq!(eval(redis, &version.scripts[*script], &arguments), b":1\r\n");
    };
    let present = |redis: &mut Connection, number: u64, start| {
        let (used, mut command) = ([(b"{p|ann}".to_vec(), Used { units: 1, requests: 1 })], Vec::new());
        let (interval, keep) = (interval(start), Micros::from_secs(62 * day));
        Write { prefix: PREFIX, worker: 1, number, interval, keep, max_subjects: 10, used: &used }
            .encode(&mut command);
        assert_eq!(redis.pipeline(&command, 1), [b":1\r\n".to_vec()]);
    };
    // The days for which the interval and the list live on.
    let days = |redis: &mut Connection| {
        let key = interval(this).key(PREFIX);
        [key.as_bytes(), index.as_bytes()].map(|key| redis.integer(&[b"TTL", key]) / 86_400)
    };
    let past = [this - 20 * day, this - day];
    for (number, start) in (1..).zip([past[0], past[1], this]) {
        present(&mut redis, number, start);
    }
    assert_eq!(days(&mut redis), [62, 62]);
    earlier(&mut redis, 1, this);
    earlier(&mut redis, 2, this + hour);
    assert_eq!(days(&mut redis), [0, 0]);
    for start in [past[0], past[1], this, this + hour] {
        let name = format!("{start}:{hour}");
        let score = redis.call(&[b"ZSCORE", index.as_bytes(), name.as_bytes()]);
        assert!(score.len() > 8, "{name} is not listed any more");
    }
    present(&mut redis, 4, this);
    assert_eq!(days(&mut redis), [62, 62]);
    Ok(())
}

/// An engine that writes each denial to the journal.
fn journaling() -> Engine {
    let config = format!(
        r#"{{"journal": {{"max_entries": 1000, "max_per_second": 10000}}, "store": {{"key_prefix": "{PREFIX}"}}, "policies":
            [{{"name": "p", "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}}]}}]}}"#
    );
    Engine::new(Rc::new(Config::parse(config.as_bytes()).expect("a configuration")), 1)
}

/// The commands of its next denial.
fn denied(engine: &mut Engine, now: Micros) -> Vec<u8> {
    engine.denied(None, Denial::Listed(0), now);
    let now = now.plus(Micros::from_millis(100));
    engine.tick(now);
    let batch = engine.next_batch(now).expect("a batch");
    engine.replied(batch.id, &b"$3\r\n1-1\r\n".repeat(batch.replies), now);
    batch.body
}

/// Both versions write entries at the same time: all are there, and each has the fields of its version.
fn journal(server: &Redis, version: &Version) -> Result<(), Failed> {
    let mut redis = server.connect();
    let key = format!("{PREFIX}:{{journal}}");
    redis.call(&[b"DEL", key.as_bytes()]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut redis = server.connect();
            let words: Vec<&[u8]> = version.entry.iter().map(Vec::as_slice).collect();
            (0..ENTRIES).for_each(|_| assert!(redis.call(&words).starts_with(b"$")));
        });
        scope.spawn(|| {
            let (mut redis, mut engine) = (server.connect(), journaling());
            let mut now = spec::START;
            for _ in 0..ENTRIES {
                assert!(redis.pipeline(&denied(&mut engine, now), 1)[0].starts_with(b"$"));
                now = now.plus(Micros::from_millis(200));
            }
        });
    });
    let length = redis.integer(&[b"XLEN", key.as_bytes()]);
    if length == 2 * ENTRIES as i64 { Ok(()) } else { Err(format!("{length} entries").into()) }
}

// --- Recording --------------------------------------------------------------------------------------------------------

fn recording(server: &Redis) -> String {
    let mut scripts = Vec::new();
    let mut checks = Vec::new();
    for (name, limits) in crowds() {
        let mut store = Store::new(server, limits);
        store.tag = RECORDED.as_bytes().to_vec();
        let row = |now: Micros| {
            let mut command = Vec::new();
            store.plan.check(&store.tag, ONE, Some(now), Form::Eval, &mut command);
            let (script, arguments) = recorded(&command, &mut scripts);
            let reply = store.redis.pipeline(&command, 1).remove(0);
            let header = reply.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
            // A reply begins with how many requests it grants.
            json!([script, arguments, text(&reply[..header + 8])])
        };
        let rows: Vec<Value> = TIMES.into_iter().map(row).collect();
        checks.push(format!("{}: [\n{}\n]", Value::from(name), lines(&rows)));
        store.redis.say("FLUSHALL");
    }
    let mut writes = |worker| -> Value {
        (1..=WRITES).map(|number| json!(recorded(&write(worker, number), &mut scripts))).collect()
    };
    let usage: Vec<Value> = (0..WRITERS).map(&mut writes).collect();
    let entry: Vec<String> =
        words(&denied(&mut journaling(), spec::START)).iter().map(|word| text(word)).collect();
    let scripts: Vec<Value> = scripts.into_iter().map(Value::from).collect();
    format!(
        "{{\"scripts\": [\n{}\n],\n\"checks\": {{\n{}\n}},\n\"usage\": [\n{}\n],\n\"entry\": {}}}\n",
        lines(&scripts),
        checks.join(",\n"),
        lines(&usage),
        json!(entry)
    )
}
