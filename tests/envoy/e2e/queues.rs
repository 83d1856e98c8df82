// SPDX-License-Identifier: Apache-2.0
//! Queues of `concurrency` limits: requests wait for a permit, whichever proxy has it.

use crate::support::eventually;
use crate::support::http::{self, Exchange, Request};
use crate::support::weir::{PATIENT, World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("queues: one after the other, through two envoys, and none is rejected", one_after_the_other),
    ("queues: a request that has waited for max_wait is rejected", too_long),
    ("queues: a client that leaves makes room", a_client_leaves),
    ("queues: what a killed envoy held comes back to those that wait", a_killed_envoy),
    ("queues: without redis, on_failure decides those that wait", without_redis),
];

/// One place for which requests wait.
fn limiter(max_wait: &str, max_waiting: usize, ttl: &str) -> String {
    format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [{{"name": "l",
            "algorithm": "concurrency", "limit": 1, "ttl": "{ttl}",
            "queue": {{"max_wait": "{max_wait}", "max_waiting": {max_waiting}}}}}]}}]}}"#
    )
}

fn hold() -> Request {
    Request::get("/hold")
}

fn begin(world: &World, envoy: usize, request: &Request) -> Exchange {
    http::begin(world.envoys[envoy].address("edge"), request).expect("sent")
}

fn status(exchange: Exchange) -> u16 {
    exchange.finish().expect("a response").status
}

/// Waits until this number of requests wait, in all Envoys.
fn waiting(world: &World, count: u64) {
    eventually(&format!("{count} to wait"), || {
        (world.total("wasmcustom.weir.waiting") == count).then_some(())
    });
}

fn held(world: &World, requests: usize) {
    eventually("one at the upstream", || {
        (world.upstream.held() == 1 && world.upstream.requests() == requests).then_some(())
    });
}

fn one_after_the_other() {
    let world = World::of(&limiter("60s", 100, "1h"), 2, 1);
    let first = begin(&world, 0, &hold());
    held(&world, 1);
    let rest: Vec<_> = (0..8).map(|place| begin(&world, place % 2, &hold())).collect();
    waiting(&world, 8);
    let mut statuses = Vec::new();
    for (requests, exchange) in (2..).zip(std::iter::once(first).chain(rest)) {
        // The one at the upstream ends, and one of those that wait takes its place.
        world.upstream.reset();
        if requests <= 9 {
            held(&world, requests);
            waiting(&world, 9 - u64::try_from(requests).expect("few"));
        }
        statuses.push(exchange);
    }
    assert!(statuses.into_iter().map(status).all(|status| status == 503), "all have reached the upstream");
    eventually("the place", || (world.send(&get()).status == 200).then_some(()));
    assert!(world.total("wasmcustom.weir.queued") >= 8);
    assert_eq!(world.total("wasmcustom.weir.rejected"), 0);
}

fn too_long() {
    let world = World::start(&limiter("300ms", 1, "1h"));
    let first = begin(&world, 0, &hold());
    held(&world, 1);
    for _ in 0..3 {
        assert_eq!(status(begin(&world, 0, &get())), 429);
    }
    waiting(&world, 0);
    world.upstream.release();
    assert_eq!(status(first), 200);
    eventually("the place", || (world.send(&get()).status == 200).then_some(()));
}

fn a_client_leaves() {
    let world = World::start(&limiter("60s", 1, "1h"));
    let first = begin(&world, 0, &hold());
    held(&world, 1);
    let second = begin(&world, 0, &get());
    waiting(&world, 1);
    assert_eq!(status(begin(&world, 0, &get())), 429, "one may wait");
    second.abort();
    waiting(&world, 0);
    let third = begin(&world, 0, &get());
    waiting(&world, 1);
    // One that leaves while it holds the place makes room, too.
    first.abort();
    assert_eq!(status(third), 200);
}

fn a_killed_envoy() {
    let mut world = World::of(&limiter("60s", 100, "6s"), 2, 1);
    let _held = begin(&world, 0, &hold());
    held(&world, 1);
    let doomed = world.envoys.remove(0);
    let second = begin(&world, 0, &get());
    waiting(&world, 1);
    // Dropping it kills it: nothing is released.
    drop(doomed);
    assert_eq!(status(second), 200);
}

fn without_redis() {
    for (on_failure, wanted) in [("allow", 200), ("deny", 503)] {
        let limiter = limiter("60s", 100, "1h").replace("deny", on_failure);
        let mut world = World::start(&limiter);
        let _first = begin(&world, 0, &hold());
        held(&world, 1);
        let second = begin(&world, 0, &get());
        waiting(&world, 1);
        world.redis.stop();
        assert_eq!(status(second), wanted, "{on_failure}");
    }
}
