// SPDX-License-Identifier: Apache-2.0
//! The CPU time of the Redis process per call, for each algorithm, in microseconds: its user and system time (`INFO cpu`),
//! with calls pipelined by 16. For comparison: `PING`, an empty script, and the `INCR` + `PEXPIRE` script of a simple limiter; and one call
//! at a time on each of 64 connections, as from 64 workers. Beside it, how the times of single calls are spread, as Redis counts them
//! (`INFO latencystats`).
//!
//! Then the longest time of one call: on the largest state that a configuration allows, after a long rest, after the clock
//! went back, and with a refund. The state is restored before each call. The time is the one that Redis reports (`SLOWLOG`).
//!
//! All cases take turns on one server, many times, and the median counts. So whatever else the machine does affects all cases
//! alike. The tables go to stdout, the figures to `target/bench/lua.json` and `target/bench/lua_worst.json`.
//!
//! With the argument `instructions` it counts Redis's instructions in place of its time: see `scripts/bench-core redis`.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_support::redis;
use weir_support::table;

use redis::{Connection, Redis};
use weir::limit::{
    Align, Ask, Ban, Concurrency, Distinct, FixedWindow, LeakyBucket, Limit, MAX_LOG, Member, Period, Refill,
    SlidingLog, SlidingWindow, TokenBucket, UtcOffset,
};
use weir::resp;
use weir::script::usage::{Interval, Used, Write, index_key};
use weir::script::{Form, NamedLimit, Options, Overrides, Plan};
use weir::time::Micros;

/// Calls sent before the first reply is read.
const PIPELINE: usize = 16;
/// Connections of a case that sends one call on each.
const CONNECTIONS: usize = 64;
/// Calls in one turn of a case.
const CALLS: usize = 3_200;
/// Turns of each case.
const TURNS: usize = 15;

const SECOND: Micros = Micros::from_secs(1);
const MINUTE: Micros = Micros::from_secs(60);
const HOUR: Micros = Micros::from_secs(3_600);
const MANY: u64 = 1_000_000_000;

struct Case {
    name: String,
    /// One command, as it is sent, or several.
    command: Vec<u8>,
    /// The number of replies to it.
    replies: usize,
    /// The number of its subjects.
    subjects: usize,
    /// One call goes on each of these at a time. If there are none, [`PIPELINE`] calls go on one connection.
    connections: Vec<Connection>,
    /// Microseconds per call, of each turn.
    turns: Vec<f64>,
    /// The spread in each turn: the median of the times of single calls, and the 99th and 99.9th of a hundred, in microseconds.
    spread: [Vec<f64>; 3],
    /// The largest acceptable cost, as a multiple of `INCR` + `PEXPIRE`.
    target: Option<f64>,
}

fn main() {
    let Some(server) = Redis::start() else { return println!("skipped: no redis-server") };
    let mut redis = server.connect();
    if std::env::args().any(|argument| argument == "instructions") {
        return instructions(&server, &mut redis);
    }
    let mut cases = baselines(&mut redis);
    cases.extend(checks(&mut redis));
    cases.extend(batches(&mut redis));
    cases.push(usage());
    cases.push(apart(&server, &cases));
    for _ in 0..TURNS {
        for case in &mut cases {
            redis.call(&[b"CONFIG", b"RESETSTAT"]);
            let took = turn(&mut redis, case) / case.subjects as f64;
            case.turns.push(took);
            let spread = spread(&mut redis);
            case.spread.iter_mut().zip(spread).for_each(|(turns, of)| turns.push(of));
        }
    }
    report(&mut cases);
    worst(&server);
}

fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    resp::array_header(&mut out, arguments.len());
    for argument in arguments {
        resp::bulk(&mut out, argument);
    }
    out
}

fn case(name: &str, command: Vec<u8>, target: Option<f64>) -> Case {
    let (connections, turns, spread) = (Vec::new(), Vec::new(), Default::default());
    Case { name: name.to_owned(), command, replies: 1, subjects: 1, connections, turns, spread, target }
}

fn baselines(redis: &mut Connection) -> Vec<Case> {
    let mut script = |source: &[u8], arguments: &[&[u8]]| {
        let sha = redis.call(&[b"SCRIPT", b"LOAD", source]);
        command(&[&[b"EVALSHA".as_slice(), &sha[5..45]], arguments].concat())
    };
    let window = b"redis.call('INCR', KEYS[1]) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return 1";
    vec![
        case("PING", command(&[b"PING"]), None),
        case("return 1", script(b"return 1", &[b"0"]), None),
        case("INCR+PEXPIRE", script(window, &[b"1", b"weir:{policy|subject}:limit", b"60000"]), None),
    ]
}

fn checks(redis: &mut Connection) -> Vec<Case> {
    let clock = || FixedWindow::new(MANY, HOUR, Align::Clock).unwrap().into();
    let first = || FixedWindow::new(MANY, HOUR, Align::First).unwrap().into();
    let month =
        || FixedWindow::new(MANY, HOUR, Align::Calendar(Period::MONTH, UtcOffset::UTC)).unwrap().into();
    let leaky = || LeakyBucket::new(1_000_000, SECOND, 1_000_000, Micros::ZERO).unwrap().into();
    let queue = || LeakyBucket::new(1_000_000, SECOND, 1_000_000, SECOND).unwrap().into();
    let wide = || LeakyBucket::new(999_999_999_989, HOUR, MANY, Micros::ZERO).unwrap().into();
    let token = |how| TokenBucket::new(1_000_000, 1_000_000, SECOND, how, 0).unwrap().into();
    let window = |n| SlidingWindow::new(MANY, Micros(MINUTE.0 * n), MINUTE).unwrap().into();
    // No permit expires while the bench runs: how many would, depends on how long it runs.
    let in_flight = || Concurrency::new(MANY, HOUR).unwrap().into();
    let distinct = || Distinct::new(20, HOUR).unwrap().into();
    // A call takes about ten microseconds, so a window of one millisecond holds about a hundred grants.
    let log = || SlidingLog::new(MAX_LOG, Micros::from_millis(1)).unwrap().into();
    let full = || SlidingLog::new(100, HOUR).unwrap().into();
    let one = Ask::new(1, 1);
    let many = Ask::new(7, 1);
    let rows: Vec<(&str, Vec<Limit>, Ask, Option<f64>)> = vec![
        ("fixed_window", vec![clock()], one, Some(1.6)),
        ("fixed_window, n = 7", vec![clock()], many, None),
        ("fixed_window, first", vec![first()], one, None),
        ("fixed_window, month", vec![month()], one, None),
        ("leaky_bucket", vec![leaky()], one, Some(2.2)),
        ("leaky_bucket, n = 7", vec![leaky()], many, None),
        ("leaky_bucket, max_delay", vec![queue()], one, None),
        ("leaky_bucket, wide numbers", vec![wide()], one, None),
        ("token_bucket", vec![token(Refill::Continuous)], one, Some(2.5)),
        ("token_bucket, stepwise", vec![token(Refill::Stepwise)], one, Some(2.5)),
        ("sliding_window, 1 slot", vec![window(1)], one, Some(3.5)),
        ("sliding_window, 10 slots", vec![window(10)], one, Some(3.5)),
        ("sliding_window, 60 slots", vec![window(60)], one, Some(3.5)),
        ("concurrency", vec![in_flight()], one, Some(4.0)),
        ("concurrency, n = 7", vec![in_flight()], many, None),
        // Each call after the first finds its value counted.
        ("distinct, a value that counts", vec![distinct()], one, Some(3.0)),
        ("sliding_log, 100 members", vec![log()], one, Some(5.0)),
        ("sliding_log, 100 members, denied", vec![full()], Ask::new(1, 1), Some(5.0)),
        ("leaky_bucket + fixed_window", vec![leaky(), clock()], one, None),
        ("leaky_bucket + concurrency", vec![leaky(), in_flight()], one, None),
        ("two leaky_buckets", vec![leaky(), leaky()], one, None),
    ];
    let mut cases = Vec::new();
    let overrides =
        [("leaky_bucket, overrides read, none set", None), ("leaky_bucket, overridden", Some("77"))];
    for (name, burst) in overrides {
        let named = NamedLimit { name: "limit0".to_owned(), limit: leaky() };
        let plan =
            Plan::new(vec![named], Options { overrides: Overrides::Read, ..Options::default() }).unwrap();
        redis.call(&[b"SCRIPT", b"LOAD", plan.source().as_bytes()]);
        let tag = format!("{{policy|{name}}}");
        if let Some(burst) = burst {
            let key = format!("weir:{tag}:override");
            let text = format!(r#"{{"limit0": {{"burst": {burst}}}}}"#);
            redis.call(&[b"SET", key.as_bytes(), text.as_bytes()]);
        }
        let mut command = Vec::new();
        plan.check(tag.as_bytes(), one, None, Form::Evalsha, &mut command);
        cases.push(case(name, command, None));
    }
    for (name, imposed) in [("leaky_bucket with a ban, not banned", false), ("leaky_bucket, banned", true)] {
        let named = NamedLimit { name: "limit0".to_owned(), limit: leaky() };
        let ban = Ban::new(1, HOUR, HOUR, 1, HOUR).unwrap();
        let plan = Plan::new(vec![named], Options { ban: Some(ban), ..Options::default() }).unwrap();
        redis.call(&[b"SCRIPT", b"LOAD", plan.source().as_bytes()]);
        let tag = format!("{{policy|{name}}}");
        if imposed {
            let key = format!("weir:{tag}:ban");
            redis.call(&[b"SET", key.as_bytes(), b"x", b"EX", b"3600"]);
        }
        let mut command = Vec::new();
        plan.check(tag.as_bytes(), one, None, Form::Evalsha, &mut command);
        cases.push(case(name, command, None));
    }
    for (i, (name, limits, ask, target)) in rows.into_iter().enumerate() {
        let named = |(i, limit)| NamedLimit { name: format!("limit{i}"), limit };
        let plan =
            Plan::new(limits.into_iter().enumerate().map(named).collect(), Options::default()).unwrap();
        redis.call(&[b"SCRIPT", b"LOAD", plan.source().as_bytes()]);
        let mut command = Vec::new();
        plan.check(format!("{{policy|subject{i}}}").as_bytes(), ask, None, Form::Evalsha, &mut command);
        let reply = redis.pipeline(&command, 1).remove(0);
        let (reply, _) = resp::decode(&reply).unwrap().unwrap();
        assert_eq!(plan.outcome(&reply).map(|outcome| outcome.granted), Ok(ask.requests), "{name}");
        cases.push(case(name, command, target));
    }
    cases
}

/// Commands about ten subjects; the time is that of one of them.
fn batches(redis: &mut Connection) -> Vec<Case> {
    let leaky = || LeakyBucket::new(1_000_000, SECOND, 1_000_000, Micros::ZERO).unwrap().into();
    let clock = || FixedWindow::new(MANY, HOUR, Align::Clock).unwrap().into();
    let rows: [(&str, Limit); 2] =
        [("fixed_window, one of ten", clock()), ("leaky_bucket, one of ten", leaky())];
    let cases = rows.into_iter().map(|(name, limit)| {
        let named = NamedLimit { name: "l".to_owned(), limit };
        let plan = Plan::new(vec![named], Options::default()).unwrap();
        redis.call(&[b"SCRIPT", b"LOAD", plan.source().as_bytes()]);
        let tags: Vec<String> = (0..10).map(|subject| format!("{{{name}|{subject}}}")).collect();
        let asked = tags.iter().map(|tag| (tag.as_bytes(), Ask::new(1, 1)));
        let mut command = Vec::new();
        plan.check_all(asked, None, Form::Evalsha, &mut command);
        let reply = redis.pipeline(&command, 1).remove(0);
        assert_eq!(reply[0], b'$', "{name}: {}", String::from_utf8_lossy(&reply));
        Case { subjects: 10, ..case(name, command, None) }
    });
    cases.collect()
}

/// The instructions of Redis for one of ten subjects with a `leaky_bucket`, which are checked many times a second: by the script of another
/// version, if `WEIR_BENCH_LUA_BASE` names its file; by this version's; and by scripts that do only what no script can leave out.
/// Redis runs under callgrind, whose dumps begin with `WEIR_BENCH_CALLGRIND`.
fn instructions(server: &Redis, redis: &mut Connection) {
    const BATCHES: usize = 300;
    let this = batches(redis).pop().expect("the case").command;
    let older = std::env::var_os("WEIR_BENCH_LUA_BASE").map(|file| std::fs::read(file).expect("the script"));
    let mut rows = Vec::new();
    rows.extend(older.map(|source| ("the older version", with_script(redis, &this, &source))));
    rows.push(("this version", this.clone()));
    let floors = [
        ("the command: keys, TIME, a reply", "answers[i] = state"),
        ("and GET of each state", "answers[i] = call('GET', KEYS[i])"),
        (
            "and SETRANGE of each state",
            "local state = call('GET', KEYS[i]) call('SETRANGE', KEYS[i], '0', state) answers[i] = state",
        ),
        (
            "and two numbers of a state, three of an answer",
            "local tat, part = unpack('<I8I5', call('GET', KEYS[i])) call('SETRANGE', KEYS[i], '0', pack('<I8I5', tat, part)) \
             answers[i] = pack('<i8i8i8', tat, part, i)",
        ),
    ];
    for (name, body) in floors {
        let source = format!(
            "local call, pack, unpack, answers, state = redis.call, struct.pack, struct.unpack, {{}}, ('.'):rep(24) \
             call('TIME') for i = 1, #KEYS do {body} end return table.concat(answers)"
        );
        rows.push((name, with_script(redis, &this, source.as_bytes())));
    }
    let mut counts = Vec::new();
    for (name, command) in &rows {
        // The states that the parts read expire no more.
        redis.pipeline(&this, 1);
        words(&this)[3..13].iter().for_each(|key| drop(redis.call(&[b"PERSIST", key])));
        let reply = redis.pipeline(command, 1).remove(0);
        assert!(matches!(reply[0], b'$' | b'*'), "{name}: {}", String::from_utf8_lossy(&reply));
        dump(server);
        (0..BATCHES).for_each(|_| drop(redis.pipeline(command, 1)));
        counts.push(dump(server) / (BATCHES * 10) as u64);
    }
    let ratio = |count: u64| (count as f64 / counts[0] as f64 * 1_000.0).round() / 1_000.0;
    println!("{:<50} {:>8}", "instructions of Redis for each subject", "ratio");
    let rows = rows.iter().zip(&counts).map(|((name, _), &count)| {
        println!("{name:<50} {count:>8} {:>8.3}", ratio(count));
        serde_json::json!({"name": name, "instructions": count, "ratio": ratio(count)})
    });
    write("lua_instructions.json", &rows.collect::<Vec<_>>());
}

fn words(command: &[u8]) -> Vec<Vec<u8>> {
    let (resp::Reply::Array(Some(words)), _) = resp::decode(command).unwrap().unwrap() else {
        panic!("no command")
    };
    let word = |word: &resp::Reply<'_>| match word {
        resp::Reply::Bulk(Some(word)) => word.to_vec(),
        other => panic!("no word: {other:?}"),
    };
    words.iter().map(word).collect()
}

/// The command by another script.
fn with_script(redis: &mut Connection, this: &[u8], source: &[u8]) -> Vec<u8> {
    let sha = redis.call(&[b"SCRIPT", b"LOAD", source]);
    let mut words = words(this);
    words[1] = sha[5..45].to_vec();
    if source.windows(7).any(|part| part == b"ARGV[2]") {
        // Older versions had an argument of their own for the questions of the ten subjects.
        let question: Vec<u8> = words.last_mut().expect("the numbers").drain(8..24).collect();
        words.push(question.repeat(10));
    }
    command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// The number of instructions that Redis has executed since the last dump.
fn dump(server: &Redis) -> u64 {
    static DUMPS: AtomicU32 = AtomicU32::new(1);
    let pid = server.pid();
    let dumped = Command::new("vgdb").arg(format!("--pid={pid}")).arg("dump").output().expect("vgdb");
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    let begin = std::env::var("WEIR_BENCH_CALLGRIND").expect("where dumps are");
    let file = format!("{begin}.{}", DUMPS.fetch_add(1, Ordering::Relaxed));
    let text = std::fs::read_to_string(file).expect("a dump");
    text.lines().find_map(|line| line.strip_prefix("totals: ")?.parse().ok()).expect("its total")
}

/// Writes figures to a file in `target/bench`.
fn write(name: &str, rows: &[serde_json::Value]) {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(name), table::rows(&rows.into())).unwrap();
}

/// A write of the usage journal about as many subjects as it may have; the time is that of one of them. So that Redis does not take it for
/// one that it has made, the number of the last write is deleted before.
fn usage() -> Case {
    const SUBJECTS: usize = 128;
    let used = |subject| {
        (format!("{{policy|subject{subject:07}}}").into_bytes(), Used { units: 1_234, requests: 5 })
    };
    let used: Vec<_> = (0..SUBJECTS).map(used).collect();
    let worker = format!("{}:worker:{:016x}", index_key("weir"), 1);
    let mut command = command(&[b"DEL", worker.as_bytes()]);
    Write {
        prefix: "weir",
        worker: 1,
        number: 1,
        interval: Interval { start: 4_000_000_000, length: 86_400 },
        keep: HOUR,
        max_subjects: 100_000,
        used: &used,
    }
    .encode(&mut command);
    Case { replies: 2, subjects: SUBJECTS, ..case("usage journal, one of 128 subjects", command, None) }
}

/// The check of a `leaky_bucket`, one on each connection.
fn apart(server: &Redis, cases: &[Case]) -> Case {
    let of = cases.iter().find(|case| case.name == "leaky_bucket").expect("a case");
    let connections = (0..CONNECTIONS).map(|_| server.connect()).collect();
    Case { connections, ..case("leaky_bucket, one on each of 64 connections", of.command.clone(), None) }
}

/// Microseconds of CPU time per call.
fn turn(redis: &mut Connection, case: &mut Case) -> f64 {
    let batch = case.command.repeat(PIPELINE);
    let mut round = |redis: &mut Connection| {
        if case.connections.is_empty() {
            redis.pipeline(&batch, PIPELINE * case.replies);
            return PIPELINE;
        }
        case.connections.iter_mut().for_each(|one| drop(one.pipeline(&case.command, 0)));
        case.connections.iter_mut().for_each(|one| drop(one.pipeline(&[], case.replies)));
        case.connections.len()
    };
    round(redis);
    let before = redis.cpu_seconds();
    let mut calls = 0;
    while calls < CALLS {
        calls += round(redis);
    }
    (redis.cpu_seconds() - before) * 1e6 / calls as f64
}

/// The spread of the times of scripts since Redis's statistics began; zeros if none ran.
fn spread(redis: &mut Connection) -> [f64; 3] {
    let text = redis.say("INFO latencystats");
    let of = text.lines().find_map(|line| line.strip_prefix("latency_percentiles_usec_evalsha:"));
    let mut values = of.into_iter().flat_map(|of| of.split(',')).filter_map(|of| of.split('=').nth(1));
    std::array::from_fn(|_| values.next().and_then(|value| value.trim().parse().ok()).unwrap_or(0.0))
}

fn median(turns: &mut [f64]) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}

fn report(cases: &mut [Case]) {
    let medians: Vec<f64> = cases.iter_mut().map(|case| median(&mut case.turns)).collect();
    let unit = medians[2];
    let mut rows = Vec::new();
    println!("{:<40} {:>10} {:>8} {:>8}", "", "us/call", "ratio", "target");
    for (case, cost) in cases.iter_mut().zip(medians) {
        let [p50, p99, p999] = case.spread.each_mut().map(|turns| median(turns));
        let ratio = cost / unit;
        let target = case.target.map_or(String::new(), |target| {
            format!("{target:>8.1} {}", if ratio <= target { "" } else { "MISSED" })
        });
        println!("{:<40} {cost:>10.2} {ratio:>8.2} {target}", case.name);
        rows.push(serde_json::json!({
            "name": case.name,
            "cpu_us_per_call": (cost * 1000.0).round() / 1000.0,
            "ratio_to_incr_expire": (ratio * 1000.0).round() / 1000.0,
            "call_us": { "p50": p50, "p99": p99, "p999": p999 },
        }));
    }
    write("lua.json", &rows);
}

/// Writes the call to measure. The state is restored before each call.
type Act<'a> = &'a dyn Fn(&Plan, &[u8], &mut Vec<u8>);

/// A call on a large state, under the limit that made the state or another one.
struct Worst {
    name: &'static str,
    limit: Limit,
    /// The number of such limits in the policy.
    times: usize,
    /// The checks that make the state, in this order.
    asked: Vec<(Micros, Ask)>,
    /// The limit of the measured call.
    then: Limit,
    now: Micros,
    ask: Ask,
    call: Call,
}

/// The action of the measured call.
#[derive(Clone, Copy)]
enum Call {
    Check,
    /// It refunds a grant: 0 is the last one, 1 the one before it.
    Refund(usize),
    /// It releases the permits of the last grant.
    Release,
    /// It renews the permits of the last grant.
    Renew,
}

fn worst_cases() -> Vec<Worst> {
    let one = Ask::new(1, 1);
    let start = Micros::from_secs(1_789_999_200);
    let every = |step: u64, count: u64| -> Vec<(Micros, Ask)> {
        (0..count).map(|i| (start.plus(Micros(i * step)), one)).collect()
    };
    let case = |name, limit: &Limit, asked: &[(Micros, Ask)], now: Micros| Worst {
        name,
        limit: limit.clone(),
        times: 1,
        asked: asked.to_vec(),
        then: limit.clone(),
        now,
        ask: one,
        call: Call::Check,
    };
    let log: Limit = SlidingLog::new(MAX_LOG, HOUR).unwrap().into();
    let logged = every(1_000, MAX_LOG);
    let log_end = start.plus(Micros::from_secs(100));
    let half = Ask::new(1, MAX_LOG / 2);
    let window: Limit = SlidingWindow::new(100, Micros(100 * SECOND.0), SECOND).unwrap().into();
    let slots = every(SECOND.0, 100);
    let slots_end = start.plus(Micros::from_secs(99));
    let all = Ask::new(1, 100);
    let in_flight: Limit = Concurrency::new(MANY, Micros::from_secs(16)).unwrap().into();
    let permits = every(SECOND.0, 17);
    // As many expiries as a script reads: of now, and from before the clock went back by a ttl three times.
    let later = |round: u64| {
        let moved = move |(at, ask): (Micros, Ask)| (at.plus(Micros::from_secs(16 * round)), ask);
        every(SECOND.0, 16).into_iter().map(moved)
    };
    let twice: Vec<_> = (0..4).rev().flat_map(later).collect();
    let wide: Limit = LeakyBucket::new(999_999_999_989, HOUR, MANY, Micros::ZERO).unwrap().into();
    let leaky: Limit = LeakyBucket::new(3, SECOND, 100, Micros::ZERO).unwrap().into();
    let flows: Limit = TokenBucket::new(100, 3, SECOND, Refill::Continuous, 0).unwrap().into();
    let steps: Limit = TokenBucket::new(100, 3, SECOND, Refill::Stepwise, 0).unwrap().into();
    let first: Limit = FixedWindow::new(100, HOUR, Align::First).unwrap().into();
    let clock: Limit = FixedWindow::new(100, HOUR, Align::Clock).unwrap().into();
    let months = Align::Calendar(Period::Month { anchor: 31 }, UtcOffset::UTC);
    let month: Limit = FixedWindow::new(100, HOUR, months).unwrap().into();
    let back = start.since(HOUR);
    let mut cases = vec![
        case("fixed_window: usual", &clock, &every(1, 2), start.plus(SECOND)),
        case("fixed_window: clock went back", &clock, &every(1, 2), back),
        Worst {
            call: Call::Refund(0),
            ..case("fixed_window: refund", &clock, &every(1, 2), start.plus(SECOND))
        },
        case("fixed_window, first: clock went back", &first, &every(1, 2), back),
        case("fixed_window, month: usual", &month, &every(1, 2), start.plus(SECOND)),
        case(
            "fixed_window, month: clock went back",
            &month,
            &every(1, 2),
            start.since(Micros(40 * 24 * HOUR.0)),
        ),
        case("leaky_bucket: usual", &leaky, &every(1, 2), start.plus(SECOND)),
        case("leaky_bucket: clock went back", &leaky, &every(1, 2), back),
        Worst {
            call: Call::Refund(0),
            ..case("leaky_bucket: refund", &leaky, &every(1, 2), start.plus(Micros(2)))
        },
        case("leaky_bucket, wide numbers: usual", &wide, &every(1, 2), start.plus(SECOND)),
        case("leaky_bucket, wide numbers: clock went back", &wide, &every(1, 2), back),
        case("token_bucket: usual", &flows, &every(1, 2), start.plus(SECOND)),
        case("token_bucket: clock went back", &flows, &every(1, 2), back),
        Worst {
            call: Call::Refund(0),
            ..case("token_bucket: refund", &flows, &every(1, 2), start.plus(Micros(2)))
        },
        case("token_bucket, stepwise: usual", &steps, &every(1, 2), start.plus(SECOND)),
        case("token_bucket, stepwise: clock went back", &steps, &every(1, 2), back),
        Worst {
            call: Call::Refund(0),
            ..case("token_bucket, stepwise: refund", &steps, &every(1, 2), start.plus(Micros(2)))
        },
        case("sliding_window, 100 slots: usual", &window, &slots[..99], slots_end),
        Worst { ask: all, ..case("sliding_window, 100 slots: denied", &window, &slots, slots_end) },
        case("sliding_window, 100 slots: long rest", &window, &slots, slots_end.plus(Micros(99 * SECOND.0))),
        case("sliding_window, 100 slots: clock went back", &window, &slots, back),
        Worst {
            call: Call::Refund(99),
            ..case("sliding_window, 100 slots: refund", &window, &slots, slots_end)
        },
        case("concurrency: usual", &in_flight, &permits, start.plus(Micros(16 * SECOND.0 + 1))),
        case("concurrency: clock went back", &in_flight, &twice, start.plus(Micros(15 * SECOND.0 + 1))),
        Worst {
            then: Concurrency::new(1, Micros::from_secs(16)).unwrap().into(),
            ..case(
                "concurrency: limit lowered, clock went back",
                &in_flight,
                &twice,
                start.plus(Micros(15 * SECOND.0 + 1)),
            )
        },
        Worst {
            call: Call::Release,
            ..case(
                "concurrency: release, clock went back",
                &in_flight,
                &twice,
                start.plus(Micros(15 * SECOND.0 + 1)),
            )
        },
        Worst {
            call: Call::Renew,
            ..case(
                "concurrency: renewal, clock went back",
                &in_flight,
                &twice,
                start.plus(Micros(15 * SECOND.0 + 1)),
            )
        },
        case("sliding_log, 100,000: usual", &log, &logged[1..], log_end),
        Worst { ask: half, ..case("sliding_log, 100,000: denied", &log, &logged, log_end) },
        case("sliding_log, 100,000: long rest", &log, &logged, log_end.plus(HOUR).since(Micros(1_001))),
        case("sliding_log, 100,000: long rest, all expired", &log, &logged, log_end.plus(HOUR)),
        case("sliding_log, 100,000: clock went back", &log, &logged, start.plus(SECOND)),
        case("sliding_log, 100,000: clock went back before all", &log, &logged, back),
        Worst { call: Call::Refund(0), ..case("sliding_log, 100,000: refund", &log, &logged, log_end) },
        Worst {
            call: Call::Refund(63),
            ..case("sliding_log, 100,000: refund behind 63", &log, &logged, log_end)
        },
    ];
    for (size, names) in [
        (
            32,
            ["distinct, 32: usual", "distinct, 32: clock went back", "distinct, 32: refund, clock went back"],
        ),
        (
            200,
            [
                "distinct, 200: usual",
                "distinct, 200: clock went back",
                "distinct, 200: refund, clock went back",
            ],
        ),
        (
            1_000,
            [
                "distinct, 1,000: usual",
                "distinct, 1,000: clock went back",
                "distinct, 1,000: refund, clock went back",
            ],
        ),
    ] {
        let distinct: Limit = Distinct::new(size, HOUR).unwrap().into();
        let of = |value: u64| {
            let mut bytes = [b'%'; 12];
            bytes.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
            Ask { member: Member(bytes), ..one }
        };
        let values: Vec<_> =
            every(1_000, size).into_iter().zip(0..).map(|((at, _), value)| (at, of(value))).collect();
        let last = usize::try_from(size).unwrap() - 1;
        let call = Call::Refund(last);
        let [usual, went_back, refund] = names;
        // A check that adds the last value, and a refund of the first one. Those of the future count as used now.
        let new = |name, now| Worst { ask: of(size), ..case(name, &distinct, &values[1..], now) };
        cases.extend([
            new(usual, start.plus(SECOND)),
            new(went_back, back),
            Worst { call, ..case(refund, &distinct, &values, start) },
        ]);
    }
    let lowered = Worst {
        then: SlidingLog::new(1, HOUR).unwrap().into(),
        ..case("sliding_log, 100,000: limit lowered", &log, &logged, log_end)
    };
    cases.push(lowered);
    // Smaller logs, and as many of each size as one policy may have. The names are those of the clock that goes back, and of the
    // refund that corrects as many entries as it may.
    for (times, size, back, behind) in [
        (1, 32, "sliding_log, 32: clock went back", "sliding_log, 32: refund behind 31"),
        (1, 10_000, "sliding_log, 10,000: clock went back", "sliding_log, 10,000: refund behind 63"),
        (8, 32, "8 sliding_logs, 32: clock went back", "8 sliding_logs, 32: refund behind 31"),
        (6, 10_000, "6 sliding_logs, 10,000: clock went back", "6 sliding_logs, 10,000: refund behind 63"),
        (4, MAX_LOG, "4 sliding_logs, 100,000: clock went back", "4 sliding_logs, 100,000: refund behind 63"),
    ] {
        let log: Limit = SlidingLog::new(size, HOUR).unwrap().into();
        let (logged, end) = (every(1_000, size), start.plus(Micros(1_000 * size)));
        let early = start.plus(Micros(1_000 * size / 100));
        cases.push(Worst { times, ..case(back, &log, &logged, early) });
        let last = usize::try_from(size).unwrap().min(64) - 1;
        cases.push(Worst { times, call: Call::Refund(last), ..case(behind, &log, &logged, end) });
    }
    let late = start.plus(Micros(15 * SECOND.0 + 1));
    let lowered = Concurrency::new(1, Micros::from_secs(16)).unwrap().into();
    let long_rest = slots_end.plus(Micros(99 * SECOND.0));
    for case in [
        Worst {
            then: lowered,
            ..case("8 concurrency: limit lowered, clock went back", &in_flight, &twice, late)
        },
        Worst {
            call: Call::Release,
            ..case("8 concurrency: release, clock went back", &in_flight, &twice, late)
        },
        Worst {
            call: Call::Renew,
            ..case("8 concurrency: renewal, clock went back", &in_flight, &twice, late)
        },
        case("8 sliding_windows, 100 slots: long rest", &window, &slots, long_rest),
        Worst {
            call: Call::Refund(99),
            ..case("8 sliding_windows, 100 slots: refund", &window, &slots, slots_end)
        },
    ] {
        cases.push(Worst { times: 8, ..case });
    }
    cases
}

fn worst(server: &Redis) {
    let mut redis = server.connect();
    redis.call(&[b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0"]);
    redis.call(&[b"CONFIG", b"SET", b"slowlog-max-len", b"1"]);
    let plan = |limit: &Limit, times: usize| {
        let named = |i| NamedLimit { name: format!("limit{i}"), limit: limit.clone() };
        Plan::new((0..times).map(named).collect(), Options::default()).unwrap()
    };
    let mut rows = Vec::new();
    println!("\n{:<52} {:>10} {:>10} {:>10}", "one call, microseconds in Redis", "least", "median", "most");
    for (i, case) in worst_cases().into_iter().enumerate() {
        let (asks, then) = (plan(&case.limit, case.times), plan(&case.then, case.times));
        let tag = format!("{{worst|{i}}}").into_bytes();
        for source in asks.sources().iter().chain(&then.sources()) {
            redis.call(&[b"SCRIPT", b"LOAD", source.as_bytes()]);
        }
        let mut granted = Vec::new();
        for chunk in case.asked.chunks(1_000) {
            let mut commands = Vec::new();
            for &(now, ask) in chunk {
                asks.check(&tag, ask, Some(now), Form::Evalsha, &mut commands);
            }
            for reply in redis.pipeline(&commands, chunk.len()) {
                granted.push(asks.outcome(&resp::decode(&reply).unwrap().unwrap().0).unwrap());
            }
        }
        assert!(granted.iter().all(|outcome| outcome.granted == 1), "{}", case.name);
        let act = |plan: &Plan, tag: &[u8], out: &mut Vec<u8>| match case.call {
            Call::Check => plan.check(tag, case.ask, Some(case.now), Form::Evalsha, out),
            Call::Refund(behind) => {
                let receipt = granted.iter().rev().nth(behind).unwrap();
                plan.settle(tag, -1, receipt, Some(case.now), Form::Evalsha, out);
            }
            Call::Release => {
                let permits: Vec<_> = granted.last().unwrap().permits(1).collect();
                assert!(plan.release(tag, &permits, Some(case.now), Form::Evalsha, out));
            }
            Call::Renew => {
                let permits: Vec<_> = granted.last().unwrap().permits(1).collect();
                assert!(plan.renew(tag, &permits, Some(case.now), Form::Evalsha, out));
            }
        };
        let read = |reply: &resp::Reply<'_>| match (case.call, reply) {
            // The number of permits that were released.
            (Call::Release, resp::Reply::Integer(released)) => assert!(*released > 0),
            (Call::Renew, reply) => drop(then.renewed(granted.last().unwrap(), reply).unwrap()),
            (_, reply) => drop(then.outcome(reply).unwrap()),
        };
        let [least, median, most] = single(&mut redis, &tag, &then, &act, &read);
        println!("{:<52} {least:>10} {median:>10} {most:>10}", case.name);
        rows.push(serde_json::json!({
            "name": case.name,
            "least_us": least,
            "median_us": median,
        }));
    }
    write("lua_worst.json", &rows);
}

/// The shortest, the median and the longest time of one command, on the same state each time.
fn single(
    redis: &mut Connection,
    tag: &[u8],
    plan: &Plan,
    act: Act<'_>,
    read: &dyn Fn(&resp::Reply<'_>),
) -> [u64; 3] {
    const TIMES: usize = 51;
    let keys: Vec<_> = (0..plan.limits().len())
        .map(|i| {
            let key = [b"weir:", tag, format!(":limit{i}").as_bytes()].concat();
            (key, format!("kept{i}").into_bytes())
        })
        .collect();
    for (key, kept) in &keys {
        redis.call(&[b"COPY", key, kept]);
    }
    let mut command = Vec::new();
    act(plan, tag, &mut command);
    let mut times: Vec<u64> = (0..TIMES)
        .map(|_| {
            for (key, kept) in &keys {
                redis.call(&[b"COPY", kept, key, b"REPLACE"]);
            }
            let reply = redis.pipeline(&command, 1).remove(0);
            read(&resp::decode(&reply).unwrap().unwrap().0);
            let slow = redis.call(&[b"SLOWLOG", b"GET", b"1"]);
            let (reply, _) = resp::decode(&slow).unwrap().unwrap();
            let resp::Reply::Array(Some(entries)) = reply else { panic!("no SLOWLOG") };
            let resp::Reply::Array(Some(fields)) = &entries[0] else { panic!("no entry") };
            let resp::Reply::Integer(time) = fields[2] else { panic!("no time") };
            time as u64
        })
        .collect();
    for (key, kept) in &keys {
        redis.call(&[b"DEL", key]);
        redis.call(&[b"DEL", kept]);
    }
    times.sort_unstable();
    [times[0], times[TIMES / 2], times[TIMES - 1]]
}
