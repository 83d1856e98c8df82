// SPDX-License-Identifier: Apache-2.0
//! A panic in the dynamic module: Envoy goes on, it is counted, and `on_failure` decides the requests that it concerns. The module is
//! the instrumented one, which panics where a request asks for it.

use std::io::{BufReader, Write};
use std::net::TcpStream;

use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::upstream::body_account;
use crate::support::weir::{Host, Statuses, World, get, limited, limited_by, module};
use crate::{instrumented, instrumented_module};

pub const TESTS: &[(&str, fn())] = &[
    ("panics: on_failure decides that request, and Redis the next", in_each_place),
    (
        "panics: on_failure decides a request whose body comes, and those that wait for theirs",
        when_a_body_comes,
    ),
    ("panics: on_failure decides those that wait: local counts them", while_others_wait),
    ("panics: a request whose end panics while it waits is decided no more", at_the_end_of_one_that_waits),
    ("panics: a reply behind the panic is not taken for that to another request", a_reply_is_lost),
    ("panics: a request that panics again is decided at last", twice),
    ("panics: the shipped module panics nowhere on purpose", not_shipped),
];

const HEADER: &str = "x-weir-instrumented-fault";

fn fault(places: &str) -> Request {
    get().header(HEADER, places)
}

/// One policy, and what the store and the policy say of failures.
fn world(burst: usize, store: &str, policy: Option<&str>) -> World {
    let mut limiter =
        limited(burst).replace(r#""on_failure": "deny""#, &format!(r#""on_failure": "{store}""#));
    if let Some(policy) = policy {
        limiter = limiter.replace(r#""name": "p","#, &format!(r#""name": "p", "on_failure": "{policy}","#));
    }
    World::on(Host::Native, &limiter, 1, 1, instrumented)
}

fn panics(world: &World, expected: u64) {
    eventually("the panics to be counted", || {
        (world.envoy().stat("wasmcustom.weir.panics") == expected).then_some(())
    });
}

/// By the response's headers: how much is left of a limit of a hundred.
fn left(world: &World) -> String {
    let response = world.send(&get());
    let left =
        response.headers.get("ratelimit").unwrap_or_else(|| panic!("Redis did not decide: {response:?}"));
    left.split(';').nth(1).expect("a number").to_owned()
}

fn in_each_place() {
    // The place, `true` if Redis was asked about the request before the panic, and `true` if it is charged.
    for (place, by_redis, charged) in [
        ("evaluation", false, false),
        ("submission", false, false),
        ("turn", false, false),
        ("reply", false, true),
        ("response", true, true),
        ("end", true, true),
    ] {
        for (store, policy, expected) in [
            ("allow", None, 200),
            ("deny", None, 503),
            ("local", None, 200),
            ("allow", Some("deny"), 503),
            ("deny", Some("allow"), 200),
        ] {
            let case = format!("{place}, {store}, {policy:?}");
            let world = world(100, store, policy);
            assert_eq!(left(&world), "r=99", "{case}");
            let status = world.send(&fault(place)).status;
            assert_eq!(status, if by_redis { 200 } else { expected }, "{case}");
            assert_eq!(left(&world), if charged { "r=97" } else { "r=98" }, "{case}");
            assert_eq!(left(&world), if charged { "r=96" } else { "r=97" }, "{case}");
            panics(&world, 1);
            eventually("who decided it to be counted", || {
                (world.envoy().stat("wasmcustom.weir.fallback") == u64::from(!by_redis)).then_some(())
            });
            let log = world.envoy().log();
            assert!(log.contains(&format!("at {place}, on purpose. `on_failure` decides")), "{case}: {log}");
        }
    }
}

/// A body comes, and the module panics. Two others wait for theirs meanwhile.
fn when_a_body_comes() {
    let body = br#"{"user": "ann"}"#;
    let head = |more: &str| {
        let length = body.len();
        format!(
            "POST / HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\n{more}content-length: {length}\r\n\r\n"
        )
    };
    for (store, expected) in [("allow", 200), ("deny", 503), ("local", 200)] {
        let limiter = limited_by(r#"{"body_json": {"path": "user", "on_unreadable": "missing"}}"#, 100);
        let limiter = limiter.replace(r#""on_failure": "deny""#, &format!(r#""on_failure": "{store}""#));
        let world = World::on(Host::Native, &limiter, 1, 1, instrumented);
        let mut waiting: Vec<_> =
            (0..2).map(|_| TcpStream::connect(world.edge()).expect("a connection")).collect();
        for connection in &mut waiting {
            connection.write_all(&[head("").as_bytes(), &body[..5]].concat()).expect("sent");
        }
        eventually("two to wait", || {
            (world.envoy().stat("http.edge.downstream_rq_active") == 2).then_some(())
        });
        let request = [head(&format!("{HEADER}: body\r\n")).as_bytes(), body].concat();
        let mut third = TcpStream::connect(world.edge()).expect("a connection");
        third.write_all(&request).expect("sent");
        waiting.push(third);
        for (place, mut connection) in waiting.into_iter().enumerate() {
            if place < 2 {
                // A client that is rejected early reads no further.
                let _ = connection.write_all(&body[5..]);
            }
            let message =
                http::read(&mut BufReader::new(connection)).expect("a response").expect("a response");
            let status = message.start.split(' ').nth(1).expect("a status");
            assert_eq!(status, expected.to_string(), "{store}");
            let text = String::from_utf8(message.body).expect("text");
            assert!(expected != 200 || text.contains(&body_account(body)), "{text}");
        }
        panics(&world, 1);
        let response = world.send(&Request::post("/", body));
        assert!(response.headers.get("ratelimit").is_some(), "Redis decides again: {response:?}");
    }
}

fn while_others_wait() {
    for (store, expected) in [
        ("allow", vec![(200, 5)]),
        ("deny", vec![(503, 5)]),
        // The one worker has the whole limit.
        ("local", vec![(200, 2), (429, 3)]),
    ] {
        for place in ["submission", "turn"] {
            let world = world(2, store, None);
            world.redis.freeze();
            let waiting: Vec<_> = (0..4).map(|_| http::begin(world.edge(), &get()).expect("sent")).collect();
            eventually("four to wait", || {
                (world.envoy().stat("http.edge.downstream_rq_active") == 4).then_some(())
            });
            let fifth = http::begin(world.edge(), &fault(place)).expect("sent");
            let all = waiting.into_iter().chain([fifth]);
            let statuses: Statuses = all.map(|one| one.finish().expect("a response").status).collect();
            assert_eq!(statuses, Statuses(expected.clone()), "{store}, {place}");
            panics(&world, 1);
            world.redis.thaw();
            eventually("Redis to decide again", || world.send(&get()).headers.get("ratelimit").map(drop));
        }
    }
}

/// Its client leaves, Envoy destroys its filter, and the hook panics: nothing may be done with that filter any more.
fn at_the_end_of_one_that_waits() {
    for store in ["allow", "deny", "local"] {
        let world = world(100, store, None);
        assert_eq!(left(&world), "r=99");
        world.redis.freeze();
        let active = || world.envoy().stat("http.edge.downstream_rq_active");
        let leaves = http::begin(world.edge(), &fault("end")).expect("sent");
        let stays = http::begin(world.edge(), &get()).expect("sent");
        eventually("two to wait", || (active() == 2).then_some(()));
        leaves.abort();
        panics(&world, 1);
        let status = stays.finish().expect("a response").status;
        assert_eq!(status, if store == "deny" { 503 } else { 200 });
        eventually("who decided it to be counted", || {
            (world.envoy().stat("wasmcustom.weir.fallback") > 0).then_some(())
        });
        assert_eq!(world.envoy().stat("wasmcustom.weir.fallback"), 1, "{store}: only the one that was there");
        world.redis.thaw();
        eventually("Redis to decide again", || world.send(&get()).headers.get("ratelimit").map(drop));
    }
}

/// Redis answers two batches at once, and the first reply makes the module panic.
fn a_reply_is_lost() {
    let world = world(100, "deny", None);
    assert_eq!(left(&world), "r=99");
    let commands = || world.envoy().stat("wasmcustom.weir.commands");
    let before = commands();
    world.redis.freeze();
    let first = http::begin(world.edge(), &fault("reply")).expect("sent");
    eventually("it to wait", || (world.envoy().stat("http.edge.downstream_rq_active") == 1).then_some(()));
    let more = [http::begin(world.edge(), &get()).expect("sent")];
    eventually("another batch to be sent", || (commands() >= before + 2).then_some(()));
    world.redis.thaw();
    let statuses: Statuses =
        std::iter::once(first).chain(more).map(|one| one.finish().expect("a response").status).collect();
    assert!(statuses.0.iter().any(|(status, count)| *status == 503 && *count >= 2), "{statuses:?}");
    panics(&world, 1);
    let mut last = 100;
    for _ in 0..10 {
        let now: u32 = left(&world).strip_prefix("r=").and_then(|left| left.parse().ok()).expect("a number");
        assert!(now < last, "{now} after {last}");
        last = now;
    }
}

fn twice() {
    for (store, expected) in [("allow", 200), ("deny", 503), ("local", 503)] {
        let world = world(100, store, None);
        assert_eq!(left(&world), "r=99");
        assert_eq!(world.send(&fault("evaluation,evaluation")).status, expected, "{store}");
        assert_eq!(left(&world), "r=98", "{store}");
        panics(&world, 2);
        assert_eq!(world.send(&fault("submission,submission")).status, expected, "{store}");
        assert_eq!(left(&world), "r=97", "{store}");
        panics(&world, 4);
    }
}

fn not_shipped() {
    let contains = |library: &std::path::Path| {
        let bytes = std::fs::read(library).expect("a library");
        bytes.windows(HEADER.len()).any(|window| window == HEADER.as_bytes())
    };
    assert!(contains(&instrumented_module()), "the test would see it");
    assert!(!contains(&module()));
}
