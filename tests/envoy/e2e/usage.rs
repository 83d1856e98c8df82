// SPDX-License-Identifier: Apache-2.0
//! All workers of all Envoys add up the usage of subjects in Redis, to the unit, whatever becomes of the connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use weir::resp::{self, Reply};
use weir::script::usage::{Interval, Used, index_key};

use crate::support::dynamic::{Dynamic, Part};
use crate::support::eventually;
use crate::support::http;
use crate::support::redis::Connection;
use crate::support::weir::{PATIENT, World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("usage: two envoys, two workers, costs and refunds, connections that break", each_unit_is_written_once),
    ("usage: redis was away when it was written", redis_was_away),
    ("usage: twenty configurations, one after the other", a_reload_loses_nothing),
    ("usage: thousands of subjects, and a drain of six seconds", a_drain_loses_nothing),
];

/// A request reserves what a header says, and has used 3 units in the end.
fn limiter() -> String {
    let policy = |name: &str, limit: u32| {
        format!(
            r#"{{"name": "{name}", "subject": [{{"header": {{"name": "x-user"}}, "on_missing": "deny"}}],
            "cost": {{"header": {{"name": "x-cost"}}}}, "usage_journal": true,
            "settle": [{{"when": {{"status": [200]}}, "cost": {{"constant": 3}}}}],
            "limits": [{{"name": "l", "algorithm": "fixed_window", "limit": {limit}, "window": "1d"}}]}}"#
        )
    };
    format!(
        r#"{{{PATIENT}, "usage_journal": {{"interval": "1h"}}, "policies": [{}, {}]}}"#,
        policy("wide", 1_000_000),
        policy("narrow", 550)
    )
}

/// The usage of each subject, over all intervals.
fn usage(redis: &mut Connection) -> BTreeMap<String, Used> {
    let mut all = BTreeMap::<String, Used>::new();
    for name in list(&redis.call(&[b"ZRANGE", index_key("weir").as_bytes(), b"0", b"-1"])) {
        let interval = Interval::read(&name).expect("an interval");
        let fields = list(&redis.call(&[b"HGETALL", interval.key("weir").as_bytes()]));
        for [tag, used] in fields.as_chunks().0 {
            let sum = all.entry(tag.clone()).or_default();
            *sum = sum.plus(Used::read(used.as_bytes()).expect("what was used"));
        }
    }
    all
}

fn list(reply: &[u8]) -> Vec<String> {
    let Ok(Some((Reply::Array(Some(items)), _))) = resp::decode(reply) else { panic!("{reply:?}") };
    let text = |item: &Reply<'_>| match item {
        Reply::Bulk(Some(bytes)) => String::from_utf8(bytes.to_vec()).expect("text"),
        other => panic!("{other:?}"),
    };
    items.iter().map(text).collect()
}

/// Sends requests of three users to these edges in turn; how many passed, for each user.
fn requests(edges: &[SocketAddr], count: usize) -> BTreeMap<String, i64> {
    let mut passed = BTreeMap::new();
    for number in 0..count {
        let user = format!("u{}", number % 3);
        let request = get().header("x-user", &user).header("x-cost", &(number % 5 + 1).to_string());
        let response = http::send(edges[number % edges.len()], &request).expect("a response");
        *passed.entry(user).or_default() += i64::from(response.status == 200);
    }
    passed
}

/// Every request costs 3 in the end, in both policies, or nothing.
fn each_unit_is_written_once() {
    let world = World::of(&limiter(), 2, 2);
    let mut redis = world.redis.connect();
    let edges: Vec<_> = world.envoys.iter().map(|envoy| envoy.address("edge")).collect();
    let mut passed = requests(&edges, 200);
    // Longer than usage is added up for.
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        redis.say("CLIENT KILL TYPE normal SKIPME yes");
        thread::sleep(Duration::from_millis(20));
    }
    for (user, more) in requests(&edges, 400) {
        *passed.entry(user).or_default() += more;
    }
    let wanted: BTreeMap<_, _> = passed
        .iter()
        .flat_map(|(user, count)| {
            ["narrow", "wide"]
                .map(|policy| (format!("{{{policy}|{user}}}"), Used { units: count * 3, requests: *count }))
        })
        .collect();
    let total: i64 = passed.values().sum();
    assert!((500..600).contains(&total), "most passed, and not all: {passed:?}");
    let found = eventually("all usage", || {
        let found = usage(&mut redis);
        let requests: i64 = found.values().map(|used| used.requests).sum();
        (requests >= 2 * total && world.total("wasmcustom.weir.usage_waiting") == 0).then_some(found)
    });
    assert_eq!(found, wanted);
    assert_eq!(world.total("wasmcustom.weir.usage_merged"), 0);
}

/// Usage from before Redis froze is kept until it answers, and is written once although it may have been sent often.
fn redis_was_away() {
    let world = World::of(&limiter(), 1, 1);
    let mut redis = world.redis.connect();
    let passed = requests(&[world.edge()], 30);
    assert_eq!(passed.values().sum::<i64>(), 30);
    world.redis.freeze();
    thread::sleep(Duration::from_secs(8));
    world.redis.thaw();
    let found = eventually("all usage", || {
        let found = usage(&mut redis);
        (found.values().map(|used| used.requests).sum::<i64>() >= 60).then_some(found)
    });
    assert!(found.values().all(|used| *used == Used { units: 30, requests: 10 }), "{found:?}");
}

/// Each configuration replaces the one before long before that would have written what its workers have added up.
fn a_reload_loses_nothing() {
    const RELOADS: usize = 20;
    // More than one write of each worker has, in the worker's first seconds.
    const MANY: usize = 1_000;
    let world = Dynamic::start(Part::Filter, &limiter(), 2, &[]);
    let mut redis = world.redis.connect();
    let edge = world.envoy.address("edge");
    for number in 0..MANY {
        let request = get().header("x-user", &format!("r{number}")).header("x-cost", "1");
        assert_eq!(http::send(edge, &request).expect("a response").status, 200);
    }
    for reload in 0..RELOADS {
        assert_eq!(requests(&[edge], 6).values().sum::<i64>(), 6);
        world.update(&limiter().replace("1h", &format!("{}h", [1, 2, 3, 4][reload % 4])));
        let updates = || world.envoy.stat("extension_config_discovery.http_filter.weir.update_success");
        eventually("the update", || (updates() == reload as u64 + 2).then_some(()));
    }
    let found = eventually("all usage", || {
        let found = usage(&mut redis);
        let requests = found.values().map(|used| used.requests).sum::<i64>();
        (requests >= (12 * RELOADS + 2 * MANY) as i64).then_some(found)
    });
    let each = |tag: &str| if tag.contains("|r") { 1 } else { i64::try_from(2 * RELOADS).expect("small") };
    let is_right =
        |(tag, used): (&String, &Used)| *used == Used { units: 3 * each(tag), requests: each(tag) };
    assert!(found.len() == 2 * (3 + MANY) && found.iter().all(is_right), "{found:?}");
}

/// As docs/costs.md asks for: Envoy drains for six seconds, and exits.
fn a_drain_loses_nothing() {
    const MANY: usize = 6_000;
    const AT_ONCE: usize = 50;
    let mut world = World::of(&limiter(), 1, 2);
    let mut redis = world.redis.connect();
    for first in (0..MANY).step_by(AT_ONCE) {
        let requests = (first..first + AT_ONCE)
            .map(|number| get().header("x-user", &format!("r{number}")).header("x-cost", "1"));
        let responses = http::burst(world.edge(), requests).expect("responses");
        assert!(responses.iter().all(|response| response.status == 200));
    }
    let drain = http::send(world.envoy().admin_address(), &http::Request::post("/drain_listeners", b""));
    assert_eq!(drain.expect("a response").status, 200);
    thread::sleep(Duration::from_secs(6));
    world.envoys.clear();
    let found = usage(&mut redis);
    assert_eq!(found.len(), 2 * MANY);
    assert!(found.values().all(|used| *used == Used { units: 3, requests: 1 }), "{found:?}");
}
