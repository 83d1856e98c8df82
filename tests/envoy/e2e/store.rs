// SPDX-License-Identifier: Apache-2.0
//! A store that is absent, frozen or forgetful.

use crate::leases::used;
use crate::support::envoy::resident;
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Statuses, World, get, limited, template};
use crate::support::{eventually, http};

pub const TESTS: &[(&str, fn())] = &[
    ("redis is absent at the start, then it is there", redis_comes_later),
    ("redis is frozen: on_failure allow lets everybody in by the deadline", frozen_redis::<true>),
    ("redis is frozen: on_failure deny rejects every request", frozen_redis::<false>),
    ("redis is frozen past the deadline: what it grants late comes back", late_grants_come_back),
    ("a subject that is denied until tomorrow is admitted soon after FLUSHALL, and after DEL", unblocked),
    ("redis forgets the script under load", redis_forgets_the_script),
    ("redis closes a stream that rests: the next request opens another", redis_closes_a_stream),
    ("redis closes streams under load, again and again: envoy keeps nothing of them", streams_leave_nothing),
];

fn redis_comes_later() {
    let upstream = Upstream::start();
    let mut redis = Redis::absent();
    let envoy = template(&limited(10).replace("deny", "allow"), redis.address(), upstream.address()).start();
    let edge = envoy.address("edge");
    let request = get();
    let status = || http::send(edge, &request).expect("a response").status;
    assert_eq!([status(), status()], [200; 2], "without a store, on_failure decides");
    redis.restart();
    let fallbacks = || envoy.stat("wasmcustom.weir.fallback");
    eventually("a request that Redis decides", || {
        let before = fallbacks();
        assert_eq!(status(), 200);
        (fallbacks() == before).then_some(())
    });
    let statuses: Statuses = http::burst(edge, (0..40).map(|_| get()))
        .expect("responses")
        .iter()
        .map(|response| response.status)
        .collect();
    assert_eq!(statuses, Statuses(vec![(200, 9), (429, 31)]));
}

fn frozen_redis<const ALLOW: bool>() {
    let (on_failure, expected) = if ALLOW { ("allow", 200) } else { ("deny", 503) };
    let limiter = limited(100)
        .replace(r#""deadline": "10s""#, r#""deadline": "50ms""#)
        .replace(r#""deny""#, &format!("{on_failure:?}"));
    let world = World::start(&limiter);
    let patient = eventually("an answer of Redis within the deadline", || {
        let response = world.send(&get());
        response.headers.get("ratelimit").is_some().then_some(response)
    });
    assert_eq!(patient.status, 200);
    world.redis.freeze();
    assert_eq!(world.burst(100, &get()), Statuses(vec![(expected, 100)]));
    world.redis.thaw();
    eventually("redis decides again", || world.send(&get()).headers.get("ratelimit").map(drop));
}

/// Rejected at the deadline, and closed, before Redis charges it: no request used the units.
fn late_grants_come_back() {
    const CLIENTS: usize = 20;
    let world = World::start(&limited(100).replace(r#""deadline": "10s""#, r#""deadline": "5s""#));
    assert_eq!(world.send(&get()).status, 200);
    world.redis.freeze();
    // All of them ride in one batch, or in two; Redis has as much time again before weir abandons it.
    assert_eq!(world.burst(CLIENTS, &get()), Statuses(vec![(503, CLIENTS)]));
    let commands = || world.envoy().stat("wasmcustom.weir.commands");
    let asked = commands();
    world.redis.thaw();
    eventually("a refund", || (commands() > asked).then_some(()));
    eventually("every unused unit to be back", || {
        (used(&world.redis, "everybody", 100, 24) == 1).then_some(())
    });
    assert_eq!(world.upstream.requests(), 1);
    // No more can be admitted than if it had never been charged. One at a time: a worker that has just seen such delays lets few wait.
    let told: Statuses = (0..120).map(|_| world.send(&get()).status).collect();
    assert_eq!(told, Statuses(vec![(200, 99), (429, 21)]));
}

fn unblocked() {
    let world = World::of(&limited(1), 1, 2);
    let mut redis = world.redis.connect();
    let blocked = || {
        eventually("every worker to deny it", || {
            (world.burst(20, &get()) == Statuses(vec![(429, 20)])).then_some(())
        });
    };
    assert_eq!(world.send(&get()).status, 200);
    for unblock in ["FLUSHALL", "DEL weir:{p|everybody}:l"] {
        blocked();
        redis.say(unblock);
        // Its Retry-After says a day.
        eventually("it to be admitted", || (world.send(&get()).status == 200).then_some(()));
    }
}

fn redis_forgets_the_script() {
    let world = World::of(&limited(150), 1, 2);
    let mut redis = world.redis.connect();
    let mut total = Vec::new();
    for _ in 0..10 {
        let held = http::burst_held(world.edge(), (0..20).map(|_| get())).expect("sent");
        assert_eq!(redis.call(&[b"SCRIPT", b"FLUSH"]), b"+OK\r\n");
        total.extend(held.into_iter().map(|held| held.finish().expect("a response").status));
    }
    assert_eq!(total.into_iter().collect::<Statuses>(), Statuses(vec![(200, 150), (429, 50)]));
    assert_eq!(world.envoy().stat("wasmcustom.weir.fallback"), 0);
}

fn redis_closes_a_stream() {
    let world = World::start(&limited(10));
    let (mut redis, open) = (world.redis.connect(), "cluster.weir-bridge.upstream_cx_active");
    for round in 1..=5 {
        assert_eq!(world.send(&get()).status, 200, "round {round}");
        eventually("one connection", || (world.envoy().stat(open) == 1).then_some(()));
        redis.say("CLIENT KILL TYPE normal");
        eventually("envoy to notice", || (world.envoy().stat(open) == 0).then_some(()));
    }
    assert_eq!(world.envoy().stat("wasmcustom.weir.fallback"), 0);
    // One in each round, and a second one where the answer was late.
    assert!((5..=10).contains(&world.envoy().stat("cluster.weir-bridge.upstream_cx_total")));
}

fn streams_leave_nothing() {
    const ROUNDS: usize = 1_000;
    let world = World::of(&limited(50 * ROUNDS).replace("1/d", "1/h"), 1, 2);
    let (mut redis, total) = (world.redis.connect(), "cluster.weir-bridge.upstream_cx_total");
    let mut round = || {
        let held = http::burst_held(world.edge(), (0..3).map(|_| get())).expect("sent");
        redis.say("CLIENT KILL TYPE normal");
        held.into_iter().map(|held| held.finish().expect("a response").status).collect::<Vec<_>>()
    };
    // Memory that Envoy keeps from the first rounds does not count.
    let mut statuses: Vec<_> = (0..ROUNDS / 5).flat_map(|_| round()).collect();
    let (before, streams) = (resident(world.envoy().pid()), world.envoy().stat(total));
    // While the breaker is open no stream is opened.
    eventually("as many streams as there are to be", || {
        statuses.extend((0..100).flat_map(|_| round()));
        (world.envoy().stat(total) - streams > ROUNDS as u64 / 4).then_some(())
    });
    let sent = statuses.len();
    let grown = resident(world.envoy().pid()).saturating_sub(before);
    let streams = world.envoy().stat(total) - streams;
    assert!(grown < streams, "grown by {grown} KiB in {streams} streams");
    // Requests that were on the way then are refused, and no others.
    let Statuses(statuses) = statuses.into_iter().collect();
    let refused = statuses.iter().find(|(status, _)| *status == 503).map_or(0, |found| found.1);
    assert_eq!(statuses.first(), Some(&(200, sent - refused)));
    eventually("each refusal to be counted", || {
        (world.envoy().stat("wasmcustom.weir.fallback") == refused as u64).then_some(())
    });
    assert!(!world.envoy().log().contains("[error][wasm]"), "{}", world.envoy().log());
}
