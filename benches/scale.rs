// SPDX-License-Identifier: Apache-2.0
//! The scale of weir, in virtual time: up to 10,000 workers, each with its real engine, and up to 64 nodes of Redis. `docs/scale.md` shows
//! the results.
//!
//! - A node does one thing after the other. The time of each was measured: `docs/scale/service.json` is from `make bench-lua`. A subject
//!   that is not the only one takes the time of `make bench-capacity`, with keys that are new and not in the processor's cache.
//! - The network delays each batch and each answer, with jitter. It loses nothing.
//! - A worker's own CPU time is not simulated: a request reaches its engine when it arrives.
//! - The same seed gives the same run.
//!
//! Without arguments the spans are short and there are up to 1,000 workers. `--long` runs all of docs/scale.md. Words run the cases whose
//! title has one of them (`uniform`, `4000 workers`). The figures go to `target/scale/summary.json`.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use weir_support::table;
use weir_support::worker;
use weir_support::world;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use weir::engine::StreamId;
use weir::limit::{Align, Ask, FixedWindow, LeakyBucket, Limit, Subject};
use weir::random::Random;
use weir::time::Micros;

use worker::{START, check_of};
use world::store::{Node, Service};
use world::{Network, World};

/// The network from a worker to Redis; one way, in microseconds.
const NETWORK: Network = Network { trip: 250, jitter: 100, lost_percent: 0, breaks: false };
/// The time from an answer to the client's next request, in microseconds.
const CLIENT: u64 = 500;
/// `store.deadline`, in microseconds.
const DEADLINE: u64 = 50_000;
/// No worker has more requests a second than a real one could serve.
const MOST_OF_A_WORKER: u64 = 20_000;
const MILLION: u64 = 1_000_000;
/// A hot subject's requests a second, where more would only gather in the same commands.
const FEWER: u64 = 300_000;

/// The subjects and the number of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Traffic {
    /// All requests have one subject.
    Hot,
    /// Each request has any one of a million subjects.
    Uniform,
    /// The same, but the k-th subject has about a k-th of the first one's requests; that has 5 % of all.
    Zipf,
    /// Uniform; while figures are taken there are ten times as many requests as before.
    Flash,
    /// Nine requests of ten have a subject that no other request has.
    Invented,
    /// Each client has a subject and sends its next request as soon as it has the answer to the last one.
    Retry,
}

/// The limit of a subject.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// A `leaky_bucket` of this rate a second and this burst.
    Bucket(u64, u64),
    /// A `fixed_window` of a second.
    Window(u64),
}

#[derive(Clone, Debug)]
struct Case {
    name: &'static str,
    traffic: Traffic,
    workers: usize,
    nodes: usize,
    /// Requests a second.
    rate: u64,
    bound: Bound,
    lease: Option<&'static str>,
    /// The trip from a worker to Redis; one way, in microseconds.
    trip: u64,
    /// Milliseconds before figures are taken, and while they are; and for how long the traffic grows until it is whole.
    warm: u64,
    span: u64,
    grows: u64,
}

impl Case {
    const fn new(name: &'static str, traffic: Traffic, workers: usize, nodes: usize, rate: u64) -> Self {
        let most = MOST_OF_A_WORKER * workers as u64;
        let rate = if rate < most { rate } else { most };
        let bound = Bound::Bucket(10, 20);
        let (lease, trip) = (None, NETWORK.trip);
        Self { name, traffic, workers, nodes, rate, bound, lease, trip, warm: 300, span: 500, grows: 0 }
    }

    /// One subject, whose limit admits all.
    const fn hot(name: &'static str, workers: usize, rate: u64) -> Self {
        let case = Self::new(name, Traffic::Hot, workers, 1, rate);
        // Where waits are long, congestion control takes longer to settle.
        let (warm, span) = if workers <= 1_000 { (300, 300) } else { (1_500, 500) };
        Self { bound: Bound::Bucket(2 * MILLION, MILLION), warm, span, ..case }
    }

    /// The limit admits a tenth of the requests.
    const fn tenth(name: &'static str, workers: usize, rate: u64) -> Self {
        let case = Self::hot(name, workers, rate);
        Self { bound: Bound::Bucket(case.rate / 10, case.rate / 100), ..case }
    }

    /// The limit admits half of the requests, and the round trip to Redis is 2 ms. Traffic grows for half a second.
    const fn half(name: &'static str, workers: usize, rate: u64) -> Self {
        let case = Self::hot(name, workers, rate);
        let bound = Bound::Bucket(case.rate / 2, case.rate / 100);
        Self { bound, trip: 1_000, warm: 1_500, span: 500, grows: 500, ..case }
    }

    const fn window(name: &'static str, workers: usize, rate: u64) -> Self {
        let case = Self::hot(name, workers, rate);
        Self { bound: Bound::Window(case.rate / 10), warm: 500, span: 1_000, ..case }
    }

    fn title(&self) -> String {
        format!("{}, {} workers, {} nodes", self.name, self.workers, self.nodes)
    }

    fn limit(&self) -> Limit {
        let second = Micros::from_secs(1);
        match self.bound {
            Bound::Bucket(rate, burst) => LeakyBucket::new(rate, second, burst, Micros::ZERO).unwrap().into(),
            Bound::Window(limit) => FixedWindow::new(limit, second, Align::Clock).unwrap().into(),
        }
    }

    fn config(&self) -> String {
        let limit = match self.bound {
            Bound::Bucket(rate, burst) => {
                format!(r#""algorithm": "leaky_bucket", "rate": "{rate}/s", "burst": {burst}"#)
            }
            Bound::Window(limit) => {
                format!(r#""algorithm": "fixed_window", "limit": {limit}, "window": "1s", "align": "clock""#)
            }
        };
        let topology = if self.nodes == 1 { "single" } else { "any" };
        let lease = self.lease.map_or(String::new(), |lease| format!(r#""lease": {lease}, "#));
        format!(
            r#"{{"store": {{"deadline": "{DEADLINE}us", "on_failure": "allow", "topology": "{topology}"}},
                "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], {lease}"limits": [{{"name": "l", {limit}}}]}}]}}"#
        )
    }

    const fn end(&self) -> u64 {
        (self.warm + self.span) * 1_000
    }
}

fn cases(long: bool) -> Vec<Case> {
    const AUTO: &str = r#""auto""#;
    const LEASE: &str = r#"{"max": 100}"#;
    const LONG_LEASE: &str = r#"{"max": 1000, "min": 100, "duration": "10s"}"#;
    type Hot =
        (&'static str, fn(&'static str, usize, u64) -> Case, Option<&'static str>, u64, &'static [usize]);
    let most = if long { 10_000 } else { 1_000 };
    let hot: [Hot; 8] = [
        ("hot subject, a tenth admitted", Case::tenth, None, MILLION, &[1, 10, 100, 1_000]),
        ("hot subject, a tenth admitted", Case::tenth, None, FEWER, &[1_000, 1_500, 2_000, 4_000, 10_000]),
        ("hot subject, all admitted, lease 100", Case::hot, Some(LEASE), MILLION, &[100, 1_000, 10_000]),
        ("hot subject, all admitted, lease 1000 for 10 s", Case::hot, Some(LONG_LEASE), MILLION, &[10_000]),
        ("hot subject, a tenth admitted, lease 100", Case::tenth, Some(LEASE), FEWER, &[1_000, 10_000]),
        ("hot subject, half admitted", Case::half, None, MILLION, &[10, 100, 1_000]),
        (
            "hot subject, half admitted, lease auto",
            Case::half,
            Some(AUTO),
            MILLION,
            &[10, 100, 1_000, 10_000],
        ),
        ("hot subject, a tenth admitted, fixed_window", Case::window, None, FEWER, &[10_000]),
    ];
    let mut cases = Vec::new();
    for (name, case, lease, rate, workers) in hot {
        let workers = workers.iter().filter(|workers| **workers <= most);
        let case = |workers: &usize| Case { lease, ..case(name, *workers, rate) };
        cases.extend(workers.map(case));
    }
    let uniform = |workers, nodes, rate| Case::new("uniform", Traffic::Uniform, workers, nodes, rate);
    let workers = [1, 10, 1_000, 10_000].into_iter().filter(|workers| *workers <= most);
    cases.extend(workers.map(|workers| uniform(workers, 4, 100_000)));
    cases.extend([1, 2, 4, 8, 16].map(|nodes| uniform(100, nodes, 100_000)));
    let others = [
        ("Zipf", Traffic::Zipf, 100_000),
        ("flash crowd", Traffic::Flash, 20_000),
        ("invented subjects", Traffic::Invented, 200_000),
        ("retry at once", Traffic::Retry, 200_000),
    ];
    for (name, traffic, rate) in others {
        let sizes = [(100, 1), (100, 4), (1_000, 4)];
        cases.extend(sizes.map(|(workers, nodes)| Case::new(name, traffic, workers, nodes, rate)));
    }
    if !long {
        cases.iter_mut().for_each(|case| (case.warm, case.span) = (100, 200));
        cases.retain(|case| !matches!(case.bound, Bound::Window(_)));
        return cases;
    }
    let many = [("uniform", Traffic::Uniform, &[8, 16, 32, 64][..]), ("Zipf", Traffic::Zipf, &[64])];
    for (name, traffic, nodes) in many {
        let case = |nodes: &usize| Case::new(name, traffic, 10_000, *nodes, MILLION);
        cases.extend(nodes.iter().map(|nodes| Case { warm: 100, span: 200, ..case(nodes) }));
    }
    cases
}

// --- What was measured ------------------------------------------------------------------------------------------------

/// The times of a node for one subject, and for many.
fn services() -> [Service; 2] {
    let rows = read("docs/scale/service.json");
    let row =
        |name: &str| rows.as_array().unwrap().iter().find(|row| row["name"] == name).expect("a row").clone();
    let micros = |name: &str| row(name)["cpu_us_per_call"].as_f64().unwrap();
    // With 16 calls at a time: a 16th of what a batch takes, a command, a subject. With one at a time: all of the batch.
    let (piped, ten, alone) = (
        micros("leaky_bucket"),
        10.0 * micros("leaky_bucket, one of ten"),
        micros("leaky_bucket, one on each of 64 connections"),
    );
    let subject = (ten - piped) / 9.0;
    let batch = (alone - piped) * 16.0 / 15.0;
    let command = alone - batch - subject;
    let nanos = |micros: f64| (micros * 1_000.0).round() as u64;
    let of = |name: &str| row("leaky_bucket")["call_us"][name].as_f64().unwrap();
    let (p50, p99, p999) = (of("p50"), of("p99"), of("p999"));
    // Straight lines between what is known of the distribution; the shortest call takes four fifths of the median.
    let known = [(0.0, 0.8 * p50), (0.5, p50), (0.99, p99), (0.999, p999), (1.0, p999)];
    let quantile = |at: f64| {
        let next = known.iter().position(|(part, _)| at < *part).expect("a part");
        let ((low, from), (high, to)) = (known[next - 1], known[next]);
        from + (to - from) * (at - low) / (high - low)
    };
    let drawn: Vec<f64> = (0..2_000).map(|place| quantile((f64::from(place) + 0.5) / 2_000.0)).collect();
    let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
    let percent = drawn.iter().map(|time| (100.0 * time / mean).round() as u64).collect();
    let one = Service { batch: nanos(batch), command: nanos(command), subject: nanos(subject), percent };
    let (_, cold) = capacity("leaky_bucket");
    let many = Service { subject: one.subject + nanos((cold - piped).max(0.0)), ..one.clone() };
    [one, many]
}

/// Bytes of a subject in Redis, and microseconds of a check: as `make bench-capacity` has measured them.
fn capacity(name: &str) -> (f64, f64) {
    let summary = read("docs/sizing/capacity.json");
    let cases = summary["cases"].as_array().expect("cases");
    let case = cases.iter().find(|case| case["limits"] == format!("`{name}`")).expect("a case");
    let of = |field: &str| case[field].as_f64().expect("a number");
    (of("bytes"), of("check_us"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join(name)).expect(name)).expect(name)
}

// --- A run ------------------------------------------------------------------------------------------------------------

/// The grants to a subject by one store that all requests reach at once, and its real grants.
#[derive(Default)]
struct Account {
    ideal: Subject,
    /// The level of a bucket filled with the admitted requests, at that time; and its maximum.
    level: f64,
    at: u64,
    most: f64,
}

#[derive(Default)]
struct Run {
    sent: u64,
    admitted: u64,
    ideal: u64,
    /// Decided without a wait; and not before the deadline.
    at_once: u64,
    late: u64,
    /// The others' waits.
    waits: Vec<u64>,
    accounts: HashMap<Vec<u8>, Account>,
}

struct Driver<'a> {
    case: &'a Case,
    world: World,
    random: Random,
    limits: [Limit; 1],
    run: Run,
    before: Option<Done>,
    /// The number of invented subjects.
    invented: u64,
    client_of: HashMap<StreamId, usize>,
}

impl Driver<'_> {
    fn unit(&mut self) -> f64 {
        (self.random.below(1 << 40) as f64 + 0.5) / (1_u64 << 40) as f64
    }

    fn is_warm(&self, at: u64) -> bool {
        at >= self.case.warm * 1_000
    }

    fn subject(&mut self) -> u64 {
        match self.case.traffic {
            Traffic::Hot => 0,
            Traffic::Invented if self.random.below(10) > 0 => {
                self.invented += 1;
                MILLION + self.invented
            }
            Traffic::Zipf => ((MILLION as f64).ln() * self.unit()).exp() as u64,
            _ => self.random.below(MILLION),
        }
    }

    fn arrive(&mut self, subject: u64, worker: usize) -> StreamId {
        let tag = format!("{{p|k_{subject:018}}}").into_bytes();
        let now = Micros(START.0 + self.world.time);
        let account = self.run.accounts.entry(tag.clone()).or_default();
        let ideal = account.ideal.check(&self.limits, None, now, Ask::new(1, 1)).granted;
        if self.is_warm(self.world.time) {
            self.run.sent += 1;
            self.run.ideal += u64::from(ideal);
        }
        self.world.arrive(worker, vec![check_of(0, tag, 1)])
    }

    /// Notes what was decided.
    fn note(&mut self) {
        if self.before.is_none() && self.is_warm(self.world.time) {
            self.before = Some(Done::of(&self.world));
        }
        let decisions = std::mem::take(&mut self.world.ledger.decisions);
        for (at, stream, admitted) in &decisions {
            let request = self.world.ledger.requests.remove(stream).expect("a request");
            if let Some(client) = self.client_of.remove(stream) {
                self.world.call(at + CLIENT, client);
            }
            if *admitted {
                let account = self.run.accounts.get_mut(&request.checks[0].tag).expect("a subject");
                if let Bound::Bucket(rate, _) = self.case.bound {
                    let gone = (at - account.at) as f64 * rate as f64 / 1e6;
                    (account.level, account.at) = ((account.level - gone).max(0.0) + 1.0, *at);
                    account.most = account.most.max(account.level);
                }
            }
            if !self.is_warm(request.arrived) {
                continue;
            }
            self.run.admitted += u64::from(*admitted);
            match at - request.arrived {
                0 => self.run.at_once += 1,
                wait => {
                    self.run.late += u64::from(wait >= DEADLINE);
                    self.run.waits.push(wait);
                }
            }
        }
    }

    /// Clients that send whatever becomes of their requests.
    fn open_loop(&mut self) {
        let mut at = 0.0;
        loop {
            let more = self.case.traffic == Traffic::Flash && self.is_warm(at as u64);
            let mut rate = self.case.rate * if more { 10 } else { 1 };
            if at < self.case.grows as f64 * 1e3 {
                rate = rate * (at as u64 + 10_000) / (self.case.grows * 1_000 + 10_000);
            }
            at -= self.unit().ln() * 1e6 / rate as f64;
            if at as u64 >= self.case.end() {
                return;
            }
            self.world.run(at as u64 - self.world.time);
            let (subject, worker) = (self.subject(), self.random.below(self.case.workers as u64) as usize);
            self.arrive(subject, worker);
            self.note();
        }
    }

    /// Clients that send again when they have an answer. Each has a connection to one worker.
    fn closed_loop(&mut self) {
        let clients = (self.case.rate * CLIENT / MILLION) as usize;
        for client in 0..clients {
            let at = self.random.below(100_000);
            self.world.call(at, client);
        }
        while let Some(client) = self.world.next(self.case.end() - 1) {
            self.note();
            let stream = self.arrive(client as u64, client % self.case.workers);
            self.client_of.insert(stream, client);
            self.note();
        }
    }
}

/// The work of nodes in nanoseconds and commands, and the number of requests that `on_failure` has decided.
struct Done {
    nodes: Vec<(u64, u64)>,
    fallback: u64,
}

impl Done {
    fn of(world: &World) -> Self {
        let node = |node: &Node| (node.worked(world.time), node.commands);
        let fallback = world.workers.iter().map(|host| host.worker.engine.counters().fallback).sum();
        Self { nodes: world.stores[0].nodes.iter().map(node).collect(), fallback }
    }
}

fn run(case: &Case, services: &[Service; 2]) -> Value {
    let mut world = World::new(&[case.config()], case.workers, 1);
    world.near = Network { trip: case.trip, ..NETWORK };
    world.ledger.forgets = true;
    world.stores[0].nodes = vec![Node::default(); case.nodes];
    world.stores[0].service = Some(services[usize::from(case.traffic != Traffic::Hot)].clone());
    let (random, limits) = (Random::new(7), [case.limit()]);
    let (run, before, client_of) = (Run::default(), None, HashMap::new());
    let mut driver = Driver { case, world, random, limits, run, before, invented: 0, client_of };
    match case.traffic {
        Traffic::Retry => driver.closed_loop(),
        _ => driver.open_loop(),
    }
    while driver.world.next(case.end()).is_some() {}
    driver.note();
    let nodes = Done::of(&driver.world).nodes;
    // The requests that are still in flight.
    driver.client_of.clear();
    while driver.world.next(case.end() + 3 * DEADLINE).is_some() {}
    driver.note();
    let fallback = Done::of(&driver.world).fallback;
    summary(driver, &Done { nodes, fallback })
}

fn summary(driver: Driver<'_>, after: &Done) -> Value {
    let Driver { case, world, run, before, .. } = driver;
    let before = before.expect("a warm world");
    let seconds = case.span as f64 / 1_000.0;
    let each = || after.nodes.iter().zip(&before.nodes);
    let busy = each().map(|(after, before)| after.0 - before.0).max().unwrap() as f64 / 1e9 / seconds;
    let commands = each().map(|(after, before)| after.1 - before.1).max().unwrap() as f64 / seconds;
    let all = each().map(|(after, before)| after.1 - before.1).sum::<u64>() as f64 / seconds;
    let mut waits = run.waits;
    waits.sort_unstable();
    let wait = |part: f64| waits.get((waits.len() as f64 * part) as usize).map_or(0, |wait| *wait);
    let decided = run.at_once + waits.len() as u64;
    let fallback = (after.fallback - before.fallback).min(decided);
    let known = run.at_once.saturating_sub(fallback.saturating_sub(run.late));
    let percent = |part: u64, whole: u64| rounded(100.0 * part as f64 / whole.max(1) as f64);
    let burst = match case.bound {
        Bound::Bucket(_, burst) => burst,
        Bound::Window(_) => 0,
    };
    let most = run.accounts.values().map(|account| account.most).fold(0.0, f64::max);
    let excess = (most - burst as f64).max(0.0).ceil();
    let (bytes, _) = capacity(if burst > 0 { "leaky_bucket" } else { "fixed_window" });
    json!({
        "name": case.name,
        "workers": case.workers,
        "nodes": case.nodes,
        "requests_per_s": (run.sent as f64 / seconds).round(),
        "commands_per_s": all.round(),
        "hottest": { "commands_per_s": commands.round(), "busy_percent": rounded(100.0 * busy) },
        "decided_percent": {
            "redis": percent(decided - fallback - known, decided),
            "worker": percent(known, decided),
            "on_failure": percent(fallback, decided),
            "in_time": percent(decided - fallback, decided),
        },
        "wait_ms": { "p50": wait(0.5) as f64 / 1e3, "p99": wait(0.99) as f64 / 1e3 },
        "admitted_percent": percent(run.admitted, run.ideal),
        "excess": if burst > 0 { json!(excess) } else { Value::Null },
        "redis_mb": rounded(world.stores[0].subjects() as f64 * bytes / 1e6),
    })
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn main() {
    let (flags, words): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let long = flags.contains(&"--long".to_owned());
    let (mut cases, services) = (cases(long), services());
    let is_meant = |case: &Case| words.is_empty() || words.iter().any(|word| case.title().contains(word));
    cases.retain(is_meant);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(vec![Value::Null; cases.len()]));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let place = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(case) = cases.get(place)
                {
                    let begun = std::time::Instant::now();
                    let result = run(case, &services);
                    eprintln!("{:.1} s {result}", begun.elapsed().as_secs_f64());
                    results.lock().unwrap()[place] = result;
                }
            });
        }
    });
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let [one, many] = &services;
    let service = json!({
        "batch_us": micros(one.batch),
        "command_us": micros(one.command),
        "subject_us": micros(one.subject),
        "new_subject_us": micros(many.subject),
    });
    let summary = json!({ "service": service, "cases": results.into_inner().unwrap() });
    let folder = root().join("target/scale");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("summary.json"), table::rows(&summary)).expect("the file");
}
