// SPDX-License-Identifier: Apache-2.0
//! When wake-ups fail, no request waits past the deadline, and none is held longer than its delay. weir's wake-ups are not known to
//! fail: the plugin that was built is sabotaged, in that its root never hears of one, or cannot register its queue.
// The tests measure another process with a real clock.
#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::http::{self, Exchange, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Statuses, World, get, limited, limited_by, reading_bodies};
use crate::support::{PATIENCE, eventually};
use crate::traps::Sabotaged;

pub const TESTS: &[(&str, fn())] = &[
    ("wake-up: when none arrives, no request waits past the deadline", || {
        wake_ups_fail(&Sabotaged::deaf("proxy_on_queue_ready"), "");
    }),
    ("wake-up: when no queue can be registered, no request waits past the deadline", || {
        // It has the same arguments, and no queue for a result: every wake-up then fails.
        let sabotaged = Sabotaged::misled("proxy_register_shared_queue", "proxy_get_status");
        wake_ups_fail(&sabotaged, "waking the worker failed: NotFound");
    }),
    ("wake-up: a body that comes after its request was late is not counted", after_it_was_late),
    ("wake-up: a long hold does not delay a short one", a_long_hold_does_not_delay_a_short_one),
];

/// Long after a deadline of 50 ms, and before a hold of 20 s or a time-out of Envoy's own ends.
const SOON: Duration = Duration::from_secs(10);

fn all_by(exchanges: Vec<Exchange>, since: Instant, what: &str) -> Statuses {
    let statuses = exchanges.into_iter().map(|exchange| exchange.finish().expect("a response").status);
    let statuses: Statuses = statuses.collect();
    assert!(since.elapsed() < SOON, "{what}: {:?}", since.elapsed());
    statuses
}

fn wake_ups_fail(sabotaged: &Sabotaged, says: &str) {
    for workers in [2, 4] {
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        // Of the first round Redis decides, however slow the machine is; the second is about the deadline.
        for (deadline, frozen, expected) in [("10s", false, (200, 24)), ("50ms", true, (503, 24))] {
            let limiter = limited(1_000).replace("10s", deadline);
            let envoy = sabotaged.limiter(&limiter, &redis, &upstream).concurrency(workers).start();
            let edge = envoy.address("edge");
            if frozen {
                redis.freeze();
            }
            for round in 0..5 {
                let began = Instant::now();
                let waiting = http::burst_held(edge, (0..24).map(|_| get())).expect("sent");
                let what = format!("{workers} workers, a deadline of {deadline}, round {round}");
                assert_eq!(all_by(waiting, began, &what), Statuses(vec![expected]), "{what}");
            }
            let fallbacks = envoy.stat("wasmcustom.weir.fallback");
            assert_eq!(fallbacks, if frozen { 5 * 24 } else { 0 }, "{workers} workers");
            assert!(envoy.log().contains(says), "{}", envoy.log());
            let lines = envoy.log().matches("waking the worker").count();
            assert!(lines <= workers * 10, "{lines} lines");
        }
        redis.thaw();
    }
}

/// A turn releases some of the requests that are late. When no wake-up arrives, bodies of others come before the next turn.
fn after_it_was_late() {
    const CLIENTS: usize = 1_200;
    const BURST: usize = 2_000;
    const TIMEOUT: Duration = Duration::from_secs(5);
    const BODY: &str = r#"{"user": "ann"}"#;
    let limiter = limited_by(r#"{"body_json": {"path": "user"}}"#, BURST);
    let limiter = limiter.replacen('{', r#"{"request_body": {"timeout": "5s"}, "#, 1);
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let sabotaged = Sabotaged::deaf("proxy_on_queue_ready");
    let envoy = reading_bodies(sabotaged.limiter(&limiter, &redis, &upstream)).start();
    let edge = envoy.address("edge");
    let head = format!(
        "POST / HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    let open = |_| {
        let mut connection = TcpStream::connect(edge).expect("a connection");
        connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
        connection.write_all(head.as_bytes()).expect("it is sent");
        connection
    };
    let mut waiting: Vec<_> = (0..CLIENTS).map(open).collect();
    eventually("all to wait", || {
        (envoy.stat("http.edge.downstream_rq_active") == CLIENTS as u64).then_some(())
    });
    // All are late at once, however long it took to open them.
    let signal = |name: &str| assert!(crate::support::signal(name, envoy.pid()));
    signal("-STOP");
    std::thread::sleep(TIMEOUT);
    signal("-CONT");
    // The bodies of those that are released last.
    for connection in waiting.iter_mut().skip(CLIENTS / 2) {
        // Envoy has closed the connections of those that it has answered.
        let _ = connection.write_all(BODY.as_bytes());
    }
    for connection in &mut waiting {
        let _ = connection.read_to_end(&mut Vec::new());
    }
    let late = envoy.stat("wasmcustom.weir.request_bodies_late");
    let admitted = upstream.requests();
    assert_eq!(late as usize + admitted, CLIENTS);
    let response = http::send(edge, &Request::post("/", BODY.as_bytes())).expect("a response");
    let left = response.headers.get("ratelimit").expect("its headers");
    let wanted = format!("r={}", BURST - admitted - 1);
    assert!(left.contains(&wanted), "{left}, after {late} were late and {admitted} were admitted");
}

fn a_long_hold_does_not_delay_a_short_one() {
    let policy = |name: &str, rate: &str| {
        format!(
            r#"{{"name": "{name}", "match": {{"path": {{"exact": "/{name}"}}}}, "subject": [{{"literal": "s"}}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "{rate}", "burst": 1, "max_delay": "1m"}}]}}"#
        )
    };
    // If Redis is unavailable, the worker decides by itself, and only the hold makes it look at the clock.
    let limiter = format!(
        r#"{{"store": {{"deadline": "10s", "on_failure": "local"}}, "policies": [{}, {}]}}"#,
        policy("late", "3/m"),
        policy("soon", "20/s")
    );
    let mut world = World::start(&limiter);
    world.redis.stop();
    let late = http::burst_held(world.edge(), (0..2).map(|_| Request::get("/late"))).expect("sent");
    eventually("one to pass, and one to be held", || {
        (world.envoy().stat("http.edge.downstream_rq_completed") == 1).then_some(())
    });
    for round in 0..10 {
        let began = Instant::now();
        let soon = http::burst_held(world.edge(), (0..2).map(|_| Request::get("/soon"))).expect("sent");
        assert_eq!(all_by(soon, began, &format!("round {round}")), Statuses(vec![(200, 2)]));
    }
    assert_eq!(world.envoy().stat("http.edge.downstream_rq_active"), 1, "the other one is held still");
    drop(late);
}
