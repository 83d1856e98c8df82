// SPDX-License-Identifier: Apache-2.0
//! `topology: single`: one script for the subjects of a batch, and each of them exactly as by a script of its own.

use std::collections::HashMap;

use crate::support::weir::{World, get, limited_by};
use crate::support::{eventually, http};

pub const TESTS: &[(&str, fn())] = &[
    (
        "one script for many subjects, two envoys of two workers: each subject gets its 10",
        each_gets_its_limit,
    ),
    ("one script for many subjects, and redis forgets it under load", redis_forgets_it),
];

const USERS: usize = 20;
/// For each user. The limit is 10.
const ASKED: usize = 16;

fn single() -> String {
    let limiter = limited_by(r#"{"header": {"name": "x-user"}}"#, 10);
    limiter.replace(r#""store": {"#, r#""store": {"topology": "single", "#)
}

/// A worker has asked Redis. Requests that come while it connects for the first time may be decided without Redis on a busy machine.
fn is_connected(world: &World) {
    for envoy in &world.envoys {
        let edge = envoy.address("edge");
        eventually("each worker to be connected", || {
            let sent = || http::send(edge, &get().header("x-user", "nobody")).expect("a response").status;
            let statuses: Vec<_> = (0..8).map(|_| sent()).collect();
            statuses.iter().all(|status| [200, 429].contains(status)).then_some(())
        });
    }
}

/// Users without a request before this round, in turn, so that each batch has requests of many; how many of each
/// user's passed.
fn admitted(world: &World, round: usize, meanwhile: impl FnOnce()) -> HashMap<usize, usize> {
    let users: Vec<usize> = (0..USERS * ASKED).map(|n| n % USERS).collect();
    let edges: Vec<_> = world.envoys.iter().map(|envoy| envoy.address("edge")).collect();
    let held: Vec<_> = edges
        .iter()
        .enumerate()
        .map(|(nth, edge)| {
            let users = users.iter().skip(nth * users.len() / edges.len()).take(users.len() / edges.len());
            let requests = users.map(|user| get().header("x-user", &format!("{round}-{user}")));
            http::burst_held(*edge, requests).expect("sent")
        })
        .collect();
    meanwhile();
    let responses = held.into_iter().flatten().map(|held| held.finish().expect("a response").status);
    let mut admitted = HashMap::new();
    for (user, status) in users.iter().zip(responses) {
        assert!([200, 429].contains(&status), "user {user}: {status}");
        *admitted.entry(*user).or_default() += usize::from(status == 200);
    }
    admitted
}

/// The number of requests that were decided without Redis.
fn counted(world: &World) -> u64 {
    world.total("wasmcustom.weir.fallback")
}

fn expected() -> HashMap<usize, usize> {
    (0..USERS).map(|user| (user, 10)).collect()
}

fn each_gets_its_limit() {
    let world = World::of(&single(), 2, 2);
    is_connected(&world);
    let (requests, fallback) = (world.upstream.requests(), counted(&world));
    for round in 0..5 {
        assert_eq!(admitted(&world, round, || ()), expected(), "round {round}");
    }
    assert_eq!((world.upstream.requests() - requests, counted(&world) - fallback), (5 * 10 * USERS, 0));
    let scripts = world.total("wasmcustom.weir.commands");
    assert!(scripts < 6 * USERS as u64, "{scripts} scripts for {USERS} users, of whom four workers asked");
}

fn redis_forgets_it() {
    let world = World::of(&single(), 1, 2);
    is_connected(&world);
    let fallback = counted(&world);
    let mut redis = world.redis.connect();
    for round in 0..10 {
        let mut forget = || assert_eq!(redis.call(&[b"SCRIPT", b"FLUSH"]), b"+OK\r\n");
        assert_eq!(admitted(&world, round, &mut forget), expected(), "round {round}");
    }
    assert_eq!(counted(&world), fallback);
}
