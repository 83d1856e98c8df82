// SPDX-License-Identifier: Apache-2.0
//! Units come back to a bucket in time, and to one request only: under constant demand by all workers of two Envoys, as many pass as the
//! bucket held and has been given since, by Redis's own clock. So the machine may be as slow as it likes.

use std::time::Duration;

use crate::support::clients::Clients;
use crate::support::eventually;
use crate::support::http::{self, Response};
use crate::support::redis::Connection;
use crate::support::weir::{PATIENT, Statuses, World, get, template};

pub const TESTS: &[(&str, fn())] = &[
    ("refill: constant demand gets what a token bucket is given, and no more", || {
        demand_gets_the_refill(&Bucket { limit: TOKENS, step: 1, every: 20_000 });
    }),
    ("refill: constant demand gets what a leaky bucket is given, and no more", || {
        demand_gets_the_refill(&Bucket { limit: LEAKY, step: 1, every: 20_000 });
    }),
    ("refill: constant demand gets what a stepwise bucket is given, and no more", || {
        demand_gets_the_refill(&Bucket { limit: STEPS, step: 10, every: 200_000 });
    }),
    (
        "refill: who comes back when told to, to the millisecond, passes",
        who_comes_back_in_time_passes::<GRPC>,
    ),
    ("refill: who comes back when told to, in seconds, passes", who_comes_back_in_time_passes::<HTTP>),
    ("refill: after t as much is there again as r said", after_t_as_much_is_there_again),
];

/// 20 s to fill. The first units used take 10 s to come back: by then the demand has begun, so that nothing given to a bucket is lost.
const CAPACITY: u64 = 1_000;
/// The number of first bursts, and the requests in each.
const FIRST: (usize, usize) = (5, 100);
const TOKENS: &str =
    r#"{"name": "l", "algorithm": "token_bucket", "capacity": 1000, "refill": 50, "interval": "1s"}"#;
const LEAKY: &str = r#"{"name": "l", "algorithm": "leaky_bucket", "burst": 1000, "rate": "50/s"}"#;
const STEPS: &str = r#"{"name": "l", "algorithm": "token_bucket", "capacity": 1000, "refill": 10, "interval": "200ms",
    "mode": "stepwise"}"#;

/// A limit, and what it is given: `step` units each time that so many microseconds have passed.
struct Bucket {
    limit: &'static str,
    step: u64,
    every: u64,
}

impl Bucket {
    /// The number of requests that may have passed, so many microseconds after the first.
    fn given(&self, micros: u64) -> u64 {
        CAPACITY + micros / self.every * self.step
    }
}

/// The duration of the demand, in microseconds.
const LASTS: u64 = 2_000_000;

fn limiter(limit: &str) -> String {
    format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [{limit}]}}]}}"#
    )
}

fn demand_gets_the_refill(bucket: &Bucket) {
    let world = World::of(&limiter(bucket.limit), 2, 2);
    // A worker that was denied may not know yet what has come back: this one asks only in the end.
    let last = template(&limiter(bucket.limit), world.redis.address(), world.upstream.address()).start();
    let mut redis = world.redis.connect();
    let before_the_first = time(&mut redis);
    for _ in 0..FIRST.0 {
        assert_eq!(world.burst(FIRST.1, &get()), Statuses(vec![(200, FIRST.1)]));
    }
    let mut admitted = (FIRST.0 * FIRST.1) as u64;
    let after_the_first = time(&mut redis);
    let clients: Vec<_> = world.envoys.iter().map(|envoy| Clients::start(4, envoy.address("edge"))).collect();
    let has_lasted = |clients: &Clients| clients.so_far().statuses.contains(&429);
    eventually("the demand to have lasted, and to have been too high", || {
        (time(&mut redis) > after_the_first + LASTS && clients.iter().all(has_lasted)).then_some(())
    });
    for clients in clients {
        let told = clients.end();
        assert_eq!((&told.broken, told.unanswered), (&Vec::new(), 0));
        assert!(told.statuses.iter().all(|status| [200, 429].contains(status)), "{:?}", told.statuses());
        admitted += told.statuses.iter().filter(|status| **status == 200).count() as u64;
    }
    // The units that no client has asked for since then. Many ask at once: one after the other may take as long as another unit takes to
    // come back.
    let before_the_last = loop {
        let before = time(&mut redis);
        let told = http::burst(last.address("edge"), (0..100).map(|_| get())).expect("responses");
        let with = |status: u16| told.iter().filter(|response| response.status == status).count();
        admitted += with(200) as u64;
        if with(429) > 0 {
            break before;
        }
    };
    let (least, most) =
        (bucket.given(before_the_last - after_the_first), bucket.given(time(&mut redis) - before_the_first));
    println!("admitted {admitted}, of at least {least} and at most {most}");
    assert!(admitted >= least, "{admitted} were admitted, and one denied when {least} could have been");
    assert!(admitted <= most, "{admitted} were admitted, {most} may be");
    assert_eq!(world.upstream.requests() as u64, admitted);
    for envoy in &world.envoys {
        assert_eq!(envoy.stat("wasmcustom.weir.fallback"), 0, "Redis decided");
    }
}

/// Redis's clock, in microseconds.
fn time(redis: &mut Connection) -> u64 {
    let told = redis.say("TIME");
    let mut numbers = told.lines().filter_map(|line| line.parse::<u64>().ok());
    let mut next = || numbers.next().expect("a number");
    next() * 1_000_000 + next()
}

const GRPC: bool = true;
const HTTP: bool = false;

fn who_comes_back_in_time_passes<const BY: bool>() {
    let (rate, rounds) = if BY == GRPC { ("10/s", 20) } else { ("1/s", 3) };
    let limits = [
        format!(r#"{{"name": "l", "algorithm": "leaky_bucket", "burst": 1, "rate": "{rate}"}}"#),
        format!(
            r#"{{"name": "l", "algorithm": "token_bucket", "capacity": 1, "refill": {}, "interval": "1s"}}"#,
            rate.trim_end_matches("/s")
        ),
    ];
    for limit in limits {
        let world = World::of(&limiter(&limit), 2, 2);
        let edges: Vec<_> = world.envoys.iter().map(|envoy| envoy.address("edge")).collect();
        let request = if BY == GRPC { get().header("content-type", "application/grpc") } else { get() };
        let asks = |edge: usize| http::send(edges[edge % 2], &request).expect("a response");
        for round in 0..rounds {
            // Denied by the one, and passed by the other or by the same.
            let wait = eventually("a denial", || wait(&asks(round)));
            // The client waits as the response says. Waking up late does no harm.
            std::thread::sleep(wait);
            let back = asks(round + round / 2);
            assert_eq!(
                (back.status, self::wait(&back)),
                (200, None),
                "{limit}, round {round}, after {wait:?}: {back:?}"
            );
        }
    }
}

fn after_t_as_much_is_there_again() {
    let limits = [
        r#"{"name": "l", "algorithm": "leaky_bucket", "burst": 5, "rate": "4/s"}"#,
        r#"{"name": "l", "algorithm": "token_bucket", "capacity": 5, "refill": 4, "interval": "1s"}"#,
        r#"{"name": "l", "algorithm": "token_bucket", "capacity": 5, "refill": 4, "interval": "1s", "mode": "stepwise"}"#,
    ];
    for limit in limits {
        let world = World::of(&limiter(limit), 2, 2);
        let told = world.send(&get());
        assert_eq!(told.headers.get("ratelimit"), Some(r#""l";r=4;t=1"#), "{limit}");
        assert_eq!(world.burst(4, &get()), Statuses(vec![(200, 4)]), "{limit}");
        // As above.
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(world.burst(4, &get()), Statuses(vec![(200, 4)]), "{limit}");
    }
}

/// The time for which a response says to wait; `None` if the request has passed.
fn wait(response: &Response) -> Option<Duration> {
    let header = |name| response.headers.get(name).map(|value| value.parse::<u64>().expect("a number"));
    header("grpc-retry-pushback-ms")
        .map(Duration::from_millis)
        .or(header("retry-after").map(Duration::from_secs))
}
