// SPDX-License-Identifier: Apache-2.0
//! The resources that weir needs: of Redis, bytes for each subject, and CPU time for each check, of each algorithm; of Envoy, memory and the
//! CPU time to start. The figures go to `target/capacity/summary.json`; `docs/sizing.md` shows a copy.
//!
//! Each case checks 250,000 subjects once, on an empty Redis of its own. Redis's hash table is then as full as with a million subjects (95
//! % of a power of two), so bytes for each subject are those of a million. Memory is `used_memory` and CPU time `used_cpu_user` and
//! `used_cpu_sys` of `INFO`, after the checks less before them. Each check is one command, 64 of them pipelined.
//!
//! An Envoy has started when its listeners accept and each worker has answered a request. Each figure is the median of nine starts.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use weir_support::envoy::{Template, resident};
use weir_support::http;
use weir_support::redis;
use weir_support::table;
use weir_support::upstream::Upstream;
use weir_support::weir::{Host, get, limited, template_on, without_weir};

use redis::{Connection, Redis};
use weir::limit::{
    Align, Ask, Concurrency, Distinct, FixedWindow, LeakyBucket, Limit, Member, Refill, SlidingLog,
    SlidingWindow, TokenBucket,
};
use weir::resp;
use weir::script::{Form, NamedLimit, Options, Plan};
use weir::time::Micros;

const SUBJECTS: usize = 250_000;
/// Commands sent before the first reply is read.
const PIPELINE: usize = 64;

/// A policy's limits, and how often each subject is checked.
struct Case {
    name: &'static str,
    limits: Vec<Limit>,
    checks: usize,
}

/// Limits that no check exhausts, and whose keys outlive the run.
fn cases() -> Vec<Case> {
    let hour = Micros::from_secs(3_600);
    let minute = Micros::from_secs(60);
    let fixed = || FixedWindow::new(10_000, hour, Align::Clock).unwrap().into();
    let leaky = || LeakyBucket::new(10, hour, 100, Micros::ZERO).unwrap().into();
    let token = TokenBucket::new(100, 10, hour, Refill::Continuous, 0).unwrap();
    let window = SlidingWindow::new(10_000, hour, minute).unwrap();
    let log = || SlidingLog::new(1_000, hour).unwrap().into();
    let distinct = || Distinct::new(100, hour).unwrap().into();
    let case = |name, limits, checks| Case { name, limits, checks };
    vec![
        case("`fixed_window`", vec![fixed()], 1),
        case("`token_bucket`", vec![token.into()], 1),
        case("`leaky_bucket`", vec![leaky()], 1),
        case("`sliding_window`, 60 slots", vec![window.into()], 1),
        case("`concurrency`", vec![Concurrency::new(100, hour).unwrap().into()], 1),
        case("`sliding_log`, 1 grant", vec![log()], 1),
        case("`sliding_log`, 10 grants", vec![log()], 10),
        case("`distinct`, 1 value", vec![distinct()], 1),
        case("`distinct`, 10 values", vec![distinct()], 10),
        case("`leaky_bucket` and `fixed_window` in one policy", vec![leaky(), fixed()], 1),
    ]
}

fn main() {
    let (mut rows, mut version) = (Vec::new(), String::new());
    for case in cases() {
        let Some(server) = Redis::start() else { return println!("skipped: no redis-server") };
        let mut redis = server.connect();
        let info = redis.call(&[b"INFO", b"server"]);
        let info = String::from_utf8_lossy(&info).into_owned();
        version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("?").to_owned();
        let (bytes, seconds) = measure(&mut redis, &case);
        let (bytes, micros) = (bytes.round(), (seconds * 1e7).round() / 10.0);
        println!("{:<50} {bytes:>6} bytes {micros:>6.1} µs", case.name);
        rows.push(serde_json::json!({"limits": case.name, "bytes": bytes, "check_us": micros}));
    }
    let summary =
        serde_json::json!({"redis": version, "subjects": SUBJECTS, "cases": rows, "proxies": proxies()});
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/capacity");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("summary.json"), table::rows(&summary)).unwrap();
}

/// The memory and the start of an Envoy without weir, and with it in both hosts.
fn proxies() -> Vec<serde_json::Value> {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let weir = |host| template_on(host, &limited(10), redis.address(), upstream.address());
    let templates = [
        ("without weir", without_weir("", upstream.address())),
        ("`weir.wasm`", weir(Host::Wasm)),
        ("`libweir.so`", weir(Host::Native)),
    ];
    let mut rows = Vec::new();
    for (name, template) in templates {
        for workers in [1, 4] {
            let mut starts: Vec<_> = (0..9).map(|_| start(&template.clone().concurrency(workers))).collect();
            starts.sort_unstable();
            let seconds = starts[4].0 as f64 / 1e9;
            starts.sort_unstable_by_key(|(_, kibibytes)| *kibibytes);
            let megabytes = (starts[4].1 as f64 * 1_024.0 / 1e6).round();
            let seconds = (seconds * 100.0).round() / 100.0;
            println!("Envoy {name:<40} {workers} workers {seconds:>6.2} s {megabytes:>6} MB");
            rows.push(
                serde_json::json!({"proxy": name, "workers": workers, "start_s": seconds, "mb": megabytes}),
            );
        }
    }
    rows
}

/// The CPU time of an Envoy until it has started, in nanoseconds, and its memory then, in KiB.
fn start(template: &Template) -> (u64, u64) {
    let envoy = template.start();
    // The kernel gives each connection to some worker.
    for _ in 0..100 {
        http::send(envoy.address("edge"), &get()).expect("a response");
    }
    let threads = std::fs::read_dir(format!("/proc/{}/task", envoy.pid())).expect("a running process");
    let used = threads.map(|thread| {
        let schedstat =
            std::fs::read_to_string(thread.expect("a thread").path().join("schedstat")).expect("its times");
        schedstat.split(' ').next().and_then(|used| used.parse::<u64>().ok()).expect("nanoseconds")
    });
    (used.sum(), resident(envoy.pid()))
}

/// Bytes for each subject, and seconds of CPU time for each check.
fn measure(redis: &mut Connection, case: &Case) -> (f64, f64) {
    let named = |(i, limit): (usize, &Limit)| NamedLimit { name: format!("limit{i}"), limit: limit.clone() };
    let plan = Plan::new(case.limits.iter().enumerate().map(named).collect(), Options::default()).unwrap();
    for source in plan.sources() {
        redis.call(&[b"SCRIPT", b"LOAD", source.as_bytes()]);
    }
    // The first call of a script allocates, and counts for no subject.
    check(redis, &plan, 0, 0..PIPELINE);
    redis.call(&[b"FLUSHALL"]);
    let (memory, cpu) = (redis.info("memory", "used_memory"), redis.cpu_seconds());
    for round in 0..case.checks {
        for first in (0..SUBJECTS).step_by(PIPELINE) {
            check(redis, &plan, round, first..(first + PIPELINE).min(SUBJECTS));
        }
    }
    let (more, spent) = (redis.info("memory", "used_memory") - memory, redis.cpu_seconds() - cpu);
    let keys = redis.integer(&[b"DBSIZE"]);
    assert_eq!(keys, (SUBJECTS * case.limits.len()) as i64, "{}: a key has expired", case.name);
    (more / SUBJECTS as f64, spent / (SUBJECTS * case.checks) as f64)
}

/// Checks each subject once. A `distinct` limit counts another value in each round.
fn check(redis: &mut Connection, plan: &Plan, round: usize, subjects: std::ops::Range<usize>) {
    let (mut commands, count) = (Vec::new(), subjects.len());
    let ask = Ask { member: Member([u8::try_from(round).unwrap(); 12]), ..Ask::new(1, 1) };
    for subject in subjects {
        // As long as a policy's name and an API key of 20 characters.
        let tag = format!("{{per-key|k_{subject:018}}}");
        plan.check(tag.as_bytes(), ask, None, Form::Evalsha, &mut commands);
    }
    for reply in redis.pipeline(&commands, count) {
        let (reply, _) = resp::decode(&reply).unwrap().unwrap();
        assert_eq!(plan.outcome(&reply).map(|outcome| outcome.granted), Ok(1));
    }
}
