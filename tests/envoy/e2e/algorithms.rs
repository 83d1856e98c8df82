// SPDX-License-Identifier: Apache-2.0
//! Every algorithm, through the filter, on the clock of a real Redis. The tables of `support/spec.rs` have the answers to the microsecond;
//! these tests show the part of them that a client sees.

use std::time::{Duration, Instant};

use crate::support::eventually;
use crate::support::http::{self, Exchange, Request};
use crate::support::weir::{PATIENT, Statuses, World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("each algorithm admits its limit and no more", each_admits_its_limit),
    ("a policy of several limits charges all of them or none", several_limits_are_all_or_nothing),
    (
        "distinct: of many values the limit passes, and these pass again, through both envoys",
        values_pass_again,
    ),
    ("a fixed window of 2: true, true, false, and again", fixed_window_comes_back),
    ("a sliding log of 1 a moment and 3 a day", a_log_of_two_limits),
    ("a request that costs more than a limit holds is never told to retry", an_impossible_cost),
    ("max_delay holds requests until their turn", max_delay_holds),
    ("a client that leaves frees the place it was held in", a_held_client_leaves),
    ("concurrency: a place is free again when its request ends: by a response", places_return::<RESPONSE>),
    ("concurrency: a place is free again when its request ends: by a timeout", places_return::<TIMEOUT>),
    ("concurrency: a place is free again when its request ends: by a reset", places_return::<RESET>),
    ("concurrency: a place is free again when its request ends: by its client", places_return::<CLIENT>),
    ("concurrency: an open request keeps its place for longer than the ttl", an_open_request_keeps_its_place),
    ("concurrency: what a killed envoy held comes back after the ttl", a_killed_envoy_leaks_nothing),
];

/// A policy of these limits for one subject.
fn policy(limits: &str) -> String {
    format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], "limits": [{limits}]}}]}}"#
    )
}

fn each_admits_its_limit() {
    let limits = [
        r#"{"name": "l", "algorithm": "fixed_window", "limit": 7, "window": "300d"}"#,
        r#"{"name": "l", "algorithm": "fixed_window", "limit": 7, "window": "1d", "align": "first"}"#,
        r#"{"name": "l", "algorithm": "sliding_log", "limit": 7, "window": "1d"}"#,
        r#"{"name": "l", "algorithm": "sliding_window", "limit": 7, "window": "1d", "precision": "1h"}"#,
        r#"{"name": "l", "algorithm": "token_bucket", "capacity": 7, "refill": 1, "interval": "1d"}"#,
        r#"{"name": "l", "algorithm": "token_bucket", "capacity": 7, "refill": 1, "interval": "1d", "mode": "stepwise"}"#,
        r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 7}"#,
    ];
    for limit in limits {
        let world = World::start(&policy(limit));
        assert_eq!(world.burst(20, &get()), Statuses(vec![(200, 7), (429, 13)]), "{limit}");
        let rejected = world.send(&get());
        assert_eq!(rejected.status, 429, "{limit}");
        assert!(rejected.headers.get("ratelimit").is_some_and(|limits| limits.starts_with(r#""l";r=0;t="#)));
        assert!(rejected.headers.get("retry-after").is_some(), "{limit}");
    }
}

fn several_limits_are_all_or_nothing() {
    let world = World::start(&policy(
        r#"{"name": "wide", "algorithm": "sliding_window", "limit": 10, "window": "1d"},
           {"name": "narrow", "algorithm": "token_bucket", "capacity": 4, "refill": 1, "interval": "1d"},
           {"name": "log", "algorithm": "sliding_log", "limit": 6, "window": "1d"}"#,
    ));
    assert_eq!(world.burst(20, &get()), Statuses(vec![(200, 4), (429, 16)]));
    let headers = world.send(&get()).headers;
    let left = headers.get("ratelimit").expect("it").to_owned();
    for expected in [r#""wide";r=6,"#, r#""narrow";r=0;"#, r#""log";r=2"#] {
        assert!(left.contains(expected), "{expected} is not in {left}");
    }
}

fn values_pass_again() {
    let limits = r#"{"name": "values", "algorithm": "distinct", "limit": 7, "window": "1d", "of": [{"header": {"name": "x-value"}}]},
                    {"name": "rate", "algorithm": "fixed_window", "limit": 1000, "window": "300d"}"#;
    let world = World::of(&policy(limits), 2, 2);
    let request = |value: usize| get().header("x-value", &value.to_string());
    // All at once, each value through both.
    let held: Vec<_> = world
        .envoys
        .iter()
        .flat_map(|envoy| {
            let all = (0..60).map(|number| request(number % 20));
            http::burst_held(envoy.address("edge"), all).expect("sent")
        })
        .collect();
    let mut passed = [0; 20];
    for (number, exchange) in held.into_iter().enumerate() {
        let response = exchange.finish().expect("a response");
        match response.status {
            200 => passed[number % 60 % 20] += 1,
            status => assert_eq!(status, 429),
        }
    }
    let values: Vec<usize> = (0..20).filter(|value| passed[*value] > 0).collect();
    assert_eq!(values.len(), 7, "{passed:?}");
    assert!(
        values.iter().all(|value| passed[*value] == 6),
        "a value passes with each of its requests: {passed:?}"
    );
    for envoy in &world.envoys {
        for value in 0..20 {
            let response = http::send(envoy.address("edge"), &request(value)).expect("a response");
            assert_eq!(response.status == 200, values.contains(&value), "{value}");
            let left = response.headers.get("ratelimit").expect("it");
            assert!(left.contains(r#""values";r=0"#), "{left}");
            // A value that counts passes, so nothing is known of when it would.
            let is_denied = response.status == 429;
            assert_eq!(left.contains(r#""values";r=0;t="#), is_denied, "{left}");
            assert_eq!(response.headers.get("retry-after").is_some(), is_denied);
        }
    }
    // What was denied has used no rate: seven values passed six times, and once more through each.
    let left = world.send(&request(values[0])).headers.get("ratelimit").expect("it").to_owned();
    assert!(left.contains(r#""rate";r=943"#), "{left}");
}

fn fixed_window_comes_back() {
    let limit = r#"{"name": "l", "algorithm": "fixed_window", "limit": 2, "window": "3s", "align": "first"}"#;
    let world = World::start(&policy(limit));
    let passes = || world.send(&get()).status == 200;
    assert_eq!([passes(), passes(), passes()], [true, true, false]);
    eventually("the next window", || passes().then_some(()));
    assert_eq!([passes(), passes()], [true, false]);
}

fn a_log_of_two_limits() {
    let world = World::start(&policy(
        r#"{"name": "moment", "algorithm": "sliding_log", "limit": 1, "window": "3s"},
           {"name": "day", "algorithm": "sliding_log", "limit": 3, "window": "1d"}"#,
    ));
    let passes = || world.send(&get()).status == 200;
    assert_eq!([passes(), passes()], [true, false]);
    for _ in 0..2 {
        eventually("the next moment", || passes().then_some(()));
    }
    let rejected = world.send(&get());
    let seconds: u64 = rejected.headers.get("retry-after").expect("it").parse().expect("seconds");
    assert!(seconds > 86_000, "it is the day's limit that denies now, not the moment's: {seconds}");
}

fn an_impossible_cost() {
    let limit = r#"{"name": "l", "algorithm": "token_bucket", "capacity": 5, "refill": 5, "interval": "1d"}"#;
    let cost = r#""cost": {"header": {"name": "x-cost"}}, "limits""#;
    let world = World::start(&policy(limit).replace(r#""limits""#, cost));
    let costs = |cost: &str| world.send(&get().header("x-cost", cost));
    let impossible = costs("6");
    assert_eq!((impossible.status, impossible.headers.get("retry-after")), (429, None));
    assert_eq!([costs("3").status, costs("3").status, costs("2").status], [200, 429, 200]);
}

fn max_delay_holds() {
    let limit = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1, "max_delay": "3s"}"#;
    let world = World::start(&policy(limit));
    // One goes at once, three wait for 1, 2 and 3 s, and there is no place for more.
    assert_eq!(world.burst(10, &get()), Statuses(vec![(200, 4), (429, 6)]));
    assert_eq!(world.upstream.requests(), 4);
}

fn a_held_client_leaves() {
    let limit = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "4/m", "burst": 1, "max_delay": "1m"}"#;
    let world = World::start(&policy(limit));
    let held = http::burst_held(world.edge(), (0..5).map(|_| get())).expect("sent");
    let active = |expected| {
        eventually(&format!("{expected} requests in flight"), || {
            (world.envoy().stat("http.edge.downstream_rq_active") == expected).then_some(())
        });
    };
    eventually("the first one to go through", || (world.upstream.requests() == 1).then_some(()));
    active(4);
    held.into_iter().for_each(Exchange::abort);
    active(0);
    assert_eq!(world.upstream.requests(), 1, "who has left is not let through later");
}

const RESPONSE: usize = 0;
const TIMEOUT: usize = 1;
const RESET: usize = 2;
const CLIENT: usize = 3;

const IN_FLIGHT: &str = r#"{"name": "l", "algorithm": "concurrency", "limit": 3, "ttl": "1h"}"#;

fn places_return<const END: usize>() {
    let shipped = "{cluster: upstream, timeout: 0s}";
    let timeout = if END == TIMEOUT { "{cluster: upstream, timeout: 0.4s}" } else { shipped };
    let world = World::with(&policy(IN_FLIGHT), 1, 1, |envoy| envoy.with(shipped, timeout));
    let hold = || Request::get("/hold");
    let mut held = http::burst_held(world.edge(), (0..3).map(|_| hold())).expect("sent");
    eventually("three requests at the upstream", || (world.upstream.held() == 3).then_some(()));
    if END != TIMEOUT {
        assert_eq!(world.burst(5, &hold()), Statuses(vec![(429, 5)]), "there are three places");
    }
    let statuses = |held: Vec<Exchange>| -> Statuses {
        held.into_iter().map(|held| held.finish().expect("a response").status).collect()
    };
    match END {
        RESPONSE => {
            world.upstream.release();
            assert_eq!(statuses(held), Statuses(vec![(200, 3)]));
        }
        TIMEOUT => assert_eq!(statuses(held), Statuses(vec![(504, 3)])),
        RESET => {
            world.upstream.reset();
            assert_eq!(statuses(held), Statuses(vec![(503, 3)]));
        }
        _ => held.drain(..).for_each(Exchange::abort),
    }
    // The places go back with the next batch; the one that this request takes is the only one missing.
    eventually("all places to be free", || {
        let left = world.send(&get()).headers.get("ratelimit")?.to_owned();
        left.starts_with(r#""l";r=2"#).then_some(())
    });
}

/// Its permit is renewed, also when another Envoy asks; the renewals of two places end with their requests.
fn an_open_request_keeps_its_place() {
    let ttl = Duration::from_secs(4);
    let world = World::of(&policy(&IN_FLIGHT.replace("1h", "4s")), 2, 2);
    let held = http::burst_held(world.edge(), (0..3).map(|_| Request::get("/hold"))).expect("sent");
    eventually("three requests at the upstream", || (world.upstream.held() == 3).then_some(()));
    let (begun, other) = (Instant::now(), world.envoys[1].address("edge"));
    while begun.elapsed() < ttl * 2 {
        assert_eq!(http::send(other, &get()).expect("a response").status, 429, "{:?}", begun.elapsed());
        std::thread::sleep(ttl / 20);
    }
    world.upstream.release();
    held.into_iter().for_each(|held| assert_eq!(held.finish().expect("a response").status, 200));
    eventually("all places to be free", || {
        let left = world.send(&get()).headers.get("ratelimit")?.to_owned();
        left.starts_with(r#""l";r=2"#).then_some(())
    });
}

fn a_killed_envoy_leaks_nothing() {
    let mut world = World::of(&policy(&IN_FLIGHT.replace("1h", "6s")), 2, 1);
    let doomed = world.envoys.remove(0);
    let _held =
        http::burst_held(doomed.address("edge"), (0..3).map(|_| Request::get("/hold"))).expect("sent");
    eventually("three requests at the upstream", || (world.upstream.held() == 3).then_some(()));
    assert_eq!(world.send(&get()).status, 429, "all places are taken");
    // Dropping it kills it: nothing is released.
    drop(doomed);
    eventually("the ttl", || (world.send(&get()).status == 200).then_some(()));
}
