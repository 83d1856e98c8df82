// SPDX-License-Identifier: Apache-2.0
//! A share of each limit is kept for the requests of a class.

use crate::support::eventually;
use crate::support::http::{self, Response};
use crate::support::weir::{World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("priority: what is kept is there for the class, through both envoys", what_is_kept_is_there),
    ("priority: however they are mixed, all classes together get the limit", they_get_the_limit_together),
    ("priority: permits are kept, and come back", permits_are_kept),
];

/// A policy for all requests, with these limits. Three tenths are kept for `/health`.
fn ranked(limits: &str) -> String {
    format!(
        r#"{{"store": {{"deadline": "10s", "on_failure": "deny"}},
            "policies": [{{"name": "p", "subject": [{{"literal": "all"}}], "limits": [{limits}],
            "priority": [{{"when": {{"path": {{"exact": "/health"}}}}, "percent": 30}}]}}]}}"#
    )
}

/// Ten requests an hour, from the first.
const TEN: &str =
    r#"{"name": "l", "algorithm": "fixed_window", "limit": 10, "window": "1h", "align": "first"}"#;

fn health() -> http::Request {
    http::Request::get("/health")
}

fn field(response: &Response, name: &str) -> String {
    response.headers.get(name).unwrap_or_default().to_owned()
}

fn what_is_kept_is_there() {
    let world = World::of(&ranked(TEN), 2, 1);
    let edges = [0, 1].map(|envoy| world.envoys[envoy].address("edge"));
    let send =
        |place: usize, request: &http::Request| http::send(edges[place % 2], request).expect("a response");
    for number in 0..7 {
        let response = send(number, &get());
        assert_eq!(response.status, 200, "{number}: {response:?}");
        assert!(
            field(&response, "ratelimit").starts_with(&format!("\"l\";r={}", 6 - number)),
            "{response:?}"
        );
        assert_eq!(field(&response, "ratelimit-policy"), "\"l\";q=7;w=3600");
    }
    for number in 0..4 {
        let response = send(number, &get());
        assert_eq!(response.status, 429);
        assert!(field(&response, "ratelimit").starts_with("\"l\";r=0;t="), "{response:?}");
        let wait: u64 = field(&response, "retry-after").parse().expect("seconds");
        assert!((3_500..=3_600).contains(&wait), "{response:?}");
    }
    for number in 0..3 {
        let response = send(number, &health());
        assert_eq!(response.status, 200, "{number}: {response:?}");
        assert!(
            field(&response, "ratelimit").starts_with(&format!("\"l\";r={}", 2 - number)),
            "{response:?}"
        );
        assert_eq!(field(&response, "ratelimit-policy"), "\"l\";q=10;w=3600");
    }
    assert_eq!([0, 1].map(|place| send(place, &health()).status), [429; 2]);
}

fn they_get_the_limit_together() {
    let world = World::of(&ranked(&TEN.replace("10,", "100,")), 2, 2);
    let clients = (0..4).map(|client| {
        let edge = world.envoys[client % 2].address("edge");
        std::thread::spawn(move || {
            let requests = (0..100).map(|number| if number % 3 == 0 { health() } else { get() });
            let responses = http::burst(edge, requests).expect("responses");
            let passed = responses.iter().enumerate().filter(|(_, response)| response.status == 200);
            let (favoured, ordinary): (Vec<_>, Vec<_>) = passed.partition(|(number, _)| number % 3 == 0);
            (favoured.len(), ordinary.len())
        })
    });
    let clients: Vec<_> = clients.collect();
    let passed: Vec<_> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
    let [favoured, ordinary] = [
        passed.iter().map(|(favoured, _)| favoured).sum::<usize>(),
        passed.iter().map(|(_, ordinary)| ordinary).sum::<usize>(),
    ];
    assert_eq!(favoured + ordinary, 100, "{favoured} of the class");
    assert!(favoured >= 30, "{favoured} of the class");
}

fn permits_are_kept() {
    let limits = r#"{"name": "c", "algorithm": "concurrency", "limit": 10, "ttl": "10m"}"#;
    let world = World::of(&ranked(limits), 2, 1);
    // A permit comes back when its request has ended, so one after the other all pass.
    for number in 0..20 {
        let edge = world.envoys[number % 2].address("edge");
        let request = if number % 5 == 0 { health() } else { get() };
        assert_eq!(http::send(edge, &request).expect("a response").status, 200, "{number}");
    }
    // A release comes after its response: one that is still on its way would free a permit of the others.
    let mut redis = world.redis.connect();
    eventually("no permit to be held", || (redis.say("EXISTS weir:{p|all}:c") == ":0\r\n").then_some(()));
    // Seven are held by others.
    let ends = 4_000_000_000_000_000_u64.to_le_bytes();
    let held = [&ends[..7], &[7, 0, 0, 0, 0]].concat();
    let _ = redis.call(&[b"SET", b"weir:{p|all}:c", &held]);
    let status = |request: &http::Request| world.send(request).status;
    assert_eq!([status(&get()), status(&health()), status(&get()), status(&health())], [429, 200, 429, 200]);
}
