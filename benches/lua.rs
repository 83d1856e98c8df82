//! CPU time of the redis process for each algorithm, in microseconds a call: its user and system time (`INFO
//! cpu`) over calls pipelined by 16, next to PING, the emptiest script, and the INCR + PEXPIRE script that
//! everybody starts with.
//!
//! All cases take turns on one server, many times over, and the median counts, so that whatever else the
//! machine does falls on all alike. The table goes to stdout, the figures to `target/bench/lua.json`.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

#[path = "../tests/support/redis.rs"]
#[allow(dead_code)]
mod redis;

use redis::{Connection, Redis};
use weir::limit::{
    Align, Ask, Concurrency, FixedWindow, LeakyBucket, Limit, Refill, SlidingLog, SlidingWindow, TokenBucket,
};
use weir::resp;
use weir::script::{Form, NamedLimit, Overrides, Plan};
use weir::time::Micros;

/// Calls sent before the first reply is read.
const PIPELINE: usize = 16;
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
    /// One command, as it is sent.
    command: Vec<u8>,
    /// Microseconds a call, turn by turn.
    turns: Vec<f64>,
    /// The most that it may cost, as a multiple of INCR + PEXPIRE.
    target: Option<f64>,
}

fn main() {
    let Some(server) = Redis::start() else { return println!("skipped: no redis-server") };
    let mut redis = server.connect();
    let mut cases = baselines(&mut redis);
    cases.extend(checks(&mut redis));
    for _ in 0..TURNS {
        for case in &mut cases {
            case.turns.push(turn(&mut redis, &case.command));
        }
    }
    report(&mut cases);
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
    Case { name: name.to_owned(), command, turns: Vec::new(), target }
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
    let leaky = || LeakyBucket::new(1_000_000, SECOND, 1_000_000, Micros::ZERO).unwrap().into();
    let queue = || LeakyBucket::new(1_000_000, SECOND, 1_000_000, SECOND).unwrap().into();
    let wide = || LeakyBucket::new(999_999_999_989, HOUR, MANY, Micros::ZERO).unwrap().into();
    let token = |how| TokenBucket::new(1_000_000, 1_000_000, SECOND, how, 0).unwrap().into();
    let window = |n| SlidingWindow::new(MANY, Micros(MINUTE.0 * n), MINUTE).unwrap().into();
    let in_flight = || Concurrency::new(MANY, MINUTE).unwrap().into();
    // A call takes some ten microseconds, so that about a hundred grants are in a window of one millisecond.
    let log = || SlidingLog::new(MANY, Micros::from_millis(1)).unwrap().into();
    let full = || SlidingLog::new(100, HOUR).unwrap().into();
    let one = Ask { requests: 1, cost: 1 };
    let many = Ask { requests: 7, cost: 1 };
    let rows: Vec<(&str, Vec<Limit>, Ask, Option<f64>)> = vec![
        ("fixed_window", vec![clock()], one, Some(1.6)),
        ("fixed_window, n = 7", vec![clock()], many, None),
        ("fixed_window, first", vec![first()], one, None),
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
        ("sliding_log, 100 members", vec![log()], one, Some(5.0)),
        ("sliding_log, 100 members, denied", vec![full()], Ask { requests: 1, cost: 1 }, Some(5.0)),
        ("leaky_bucket + fixed_window", vec![leaky(), clock()], one, None),
        ("leaky_bucket + concurrency", vec![leaky(), in_flight()], one, None),
        ("two leaky_buckets", vec![leaky(), leaky()], one, None),
    ];
    let mut cases = Vec::new();
    let overrides =
        [("leaky_bucket, overrides read, none set", None), ("leaky_bucket, overridden", Some("77"))];
    for (name, burst) in overrides {
        let named = NamedLimit { name: "limit0".to_owned(), limit: leaky() };
        let plan = Plan::with(vec![named], Overrides::Read).unwrap();
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
    for (i, (name, limits, ask, target)) in rows.into_iter().enumerate() {
        let named = |(i, limit)| NamedLimit { name: format!("limit{i}"), limit };
        let plan = Plan::new(limits.into_iter().enumerate().map(named).collect()).unwrap();
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

/// Microseconds of CPU a call.
fn turn(redis: &mut Connection, command: &[u8]) -> f64 {
    let batch = command.repeat(PIPELINE);
    redis.pipeline(&batch, PIPELINE);
    let before = cpu(redis);
    for _ in 0..CALLS / PIPELINE {
        redis.pipeline(&batch, PIPELINE);
    }
    (cpu(redis) - before) * 1e6 / CALLS as f64
}

/// Seconds of user and system time that Redis has used.
fn cpu(redis: &mut Connection) -> f64 {
    let reply = redis.call(&[b"INFO", b"cpu"]);
    let text = String::from_utf8(reply).unwrap();
    let field = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.strip_prefix(':')).unwrap().parse().unwrap()
    };
    field("used_cpu_user") + field("used_cpu_sys")
}

fn median(turns: &mut [f64]) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}

fn report(cases: &mut [Case]) {
    let medians: Vec<f64> = cases.iter_mut().map(|case| median(&mut case.turns)).collect();
    let unit = medians[2];
    let mut rows = Vec::new();
    println!("{:<40} {:>10} {:>8} {:>8}", "", "us a call", "ratio", "target");
    for (case, cost) in cases.iter().zip(medians) {
        let ratio = cost / unit;
        let target = case.target.map_or(String::new(), |target| {
            format!("{target:>8.1} {}", if ratio <= target { "" } else { "MISSED" })
        });
        println!("{:<40} {cost:>10.2} {ratio:>8.2} {target}", case.name);
        rows.push(serde_json::json!({
            "name": case.name,
            "cpu_us_per_call": (cost * 1000.0).round() / 1000.0,
            "ratio_to_incr_expire": (ratio * 1000.0).round() / 1000.0,
        }));
    }
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&directory).unwrap();
    let json = serde_json::to_string_pretty(&rows).unwrap();
    std::fs::write(directory.join("lua.json"), json + "\n").unwrap();
}
