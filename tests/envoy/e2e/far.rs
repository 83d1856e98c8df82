// SPDX-License-Identifier: Apache-2.0
//! A distant store, though within the deadline: it is asked from the first requests on, and does not count as overloaded.
// Requests are sent at a pace.
#![allow(clippy::disallowed_methods)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::clients::Clients;
use crate::support::dynamic::{Dynamic, Part};
use crate::support::proxy::{Network, Proxy, Way};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Statuses, get, template};
use crate::support::{eventually, http};

pub const TESTS: &[(&str, fn())] = &[
    ("far: 280 ms of a deadline of 500 ms", || is_asked_from_the_start(140, "500ms")),
    ("far: 800 ms of a deadline of 1 s", || is_asked_from_the_start(400, "1s")),
    (
        "far: redis decides from the first second on, and after an update of the configuration",
        is_asked_after_an_update,
    ),
];

const CLIENTS: usize = 32;
const ADMITTED: usize = 300;

/// A request that the store does not decide is refused at once, so clients that are refused ask far more often.
fn is_asked_from_the_start(each_way: u64, deadline: &str) {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let proxy = Proxy::start(redis.address());
    proxy.set(Network::Slow(Duration::from_millis(each_way)));
    let limiter = format!(
        r#"{{"store": {{"deadline": {deadline:?}, "on_failure": "deny"}}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}],
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1000000}}]}}]}}"#,
    );
    let envoy = template(&limiter, proxy.address(), upstream.address()).concurrency(2).start();
    let clients = Clients::start(CLIENTS, envoy.address("edge"));
    let admitted = || clients.so_far().statuses.iter().filter(|status| **status == 200).count();
    eventually("redis to decide", || (admitted() >= ADMITTED).then_some(()));
    let told = clients.end();
    let Statuses(statuses) = told.statuses();
    let refused = statuses.iter().find(|(status, _)| *status == 503).map_or(0, |found| found.1);
    // A few where the machine does nothing else. A worker that takes the distance for load refuses thousands before so many pass.
    assert!(refused < 10 * ADMITTED, "{statuses:?}");
    println!("{each_way} ms each way, {deadline}: {statuses:?}");
}

/// When Envoy starts, and after each update, the workers know nothing of the store. `on_failure` decides until the store does, so with
/// `allow` the limit would be open. A new connection and the first reply take 320 ms of a deadline of 500 ms.
fn is_asked_after_an_update() {
    /// The number of requests that are judged after the start, and after the update is in force: a second of them.
    const AFTER: usize = 200;
    const PACE: Duration = Duration::from_millis(5);
    let limiter = |burst: usize| {
        format!(
            r#"{{"store": {{"deadline": "500ms", "on_failure": "deny"}}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": {burst}}}]}}]}}"#,
        )
    };
    let world = Dynamic::start(Part::Filter, &limiter(1_000_000), 2, &[]);
    world.network.set(Network::Far(Way { trip: Duration::from_millis(80), jitter: Duration::ZERO, lost: 0 }));
    let edge = world.envoy.address("edge");
    let updates = || world.envoy.stat("extension_config_discovery.http_filter.weir.update_success");
    let (sent, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let has_sent = |count: usize| {
        eventually("the requests to be sent", || (sent.load(Ordering::Relaxed) >= count).then_some(()));
    };
    let (requests, updated, in_force) = thread::scope(|scope| {
        // However its requests fare, the next one is sent at its time.
        let sender = scope.spawn(|| {
            let mut requests = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                requests.push(http::begin(edge, &get()).expect("sent"));
                sent.fetch_add(1, Ordering::Relaxed);
                thread::sleep(PACE);
            }
            requests
        });
        has_sent(AFTER);
        let (before, updated) = (updates(), sent.load(Ordering::Relaxed));
        world.update(&limiter(1_000_001));
        eventually("the update", || (updates() > before).then_some(()));
        let in_force = sent.load(Ordering::Relaxed);
        has_sent(in_force + AFTER);
        stopped.store(true, Ordering::Relaxed);
        (sender.join().expect("the sender"), updated, in_force)
    });
    let responses: Vec<_> =
        requests.into_iter().map(|request| request.finish().expect("a response")).collect();
    let undecided =
        |responses: &[http::Response]| responses.iter().filter(|response| response.status != 200).count();
    let by_the_new = |response: &&http::Response| {
        response.headers.get("ratelimit-policy").is_some_and(|policy| policy.contains("q=1000001;"))
    };
    let (first, after) = (&responses[..AFTER], &responses[updated..in_force + AFTER]);
    let new = after.iter().filter(by_the_new).count();
    let (at_first, undecided) = (undecided(first), undecided(after));
    println!(
        "not decided by redis: {at_first} of the first {AFTER}, {undecided} of {} after the update",
        after.len()
    );
    assert!(at_first * 5 <= AFTER, "{at_first} of the first {AFTER} are not decided by redis");
    assert!(undecided * 5 <= AFTER, "{undecided} of {} are not decided by redis", after.len());
    assert!(new * 5 >= AFTER * 4, "{new} of {} are decided by the new limit", after.len());
}
