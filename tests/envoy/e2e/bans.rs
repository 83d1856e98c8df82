// SPDX-License-Identifier: Apache-2.0
//! Subjects that their limits deny too often are banned: everywhere, for longer each time, until the ban ends or an operator lifts
//! it.

use crate::support::eventually;
use crate::support::http::{self, Response};
use crate::support::weir::{World, get};

pub const TESTS: &[(&str, fn())] = &[
    ("a ban is shared: begun through one envoy, in force in the other", a_ban_is_shared),
    ("a ban costs redis nothing, and each is longer than the last", each_ban_is_longer),
    ("an operator lists, lifts and imposes bans", an_operator_rules),
    ("a known ban lasts without redis, and others are let in", a_known_ban_lasts_without_redis),
    ("a ban closes the policies in its scope, through each envoy, until it is lifted", a_ban_closes_others),
];

/// A policy by the header `x-user`, with this ban; its limit comes back at once, and workers ask again after `denial_ttl`.
fn banning(ban: &str, denial_ttl: &str, on_failure: &str) -> String {
    format!(
        r#"{{"store": {{"deadline": "10s", "on_failure": "{on_failure}", "denial_ttl": "{denial_ttl}"}},
            "response": {{"ban_status": 403}},
            "policies": [{{"name": "p", "subject": [{{"header": {{"name": "x-user"}}}}], "ban": {ban},
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "50/s", "burst": 1}}]}}]}}"#
    )
}

fn ann() -> http::Request {
    get().header("x-user", "ann")
}

/// The seconds in the `Retry-After` of a rejected client.
fn seconds(response: &Response) -> Option<u64> {
    response.headers.get("retry-after").map(|seconds| seconds.parse().expect("seconds"))
}

fn a_ban_is_shared() {
    let limiter = banning(r#"{"after": 20, "window": "1h", "duration": "1h"}"#, "1h", "deny");
    let world = World::of(&limiter, 2, 1);
    let [first, second] = [0, 1].map(|envoy| world.envoys[envoy].address("edge"));
    let through = |edge| http::send(edge, &ann()).expect("a response");
    assert_eq!(through(second).status, 200);
    // Each denial counts: the worker asks about every request until the subject is banned.
    eventually("a ban", || {
        let statuses = http::burst(first, std::iter::repeat_n(ann(), 4)).expect("responses");
        statuses.iter().any(|response| response.status == 403).then_some(())
    });
    for (edge, other) in [(first, "bob"), (second, "eve")] {
        let banned = through(edge);
        assert_eq!(banned.status, 403);
        assert!(seconds(&banned).is_some_and(|seconds| (3_500..=3_600).contains(&seconds)), "{banned:?}");
        assert_eq!(banned.headers.get("ratelimit"), None, "what the limit has left says nothing");
        assert!(
            String::from_utf8_lossy(&banned.body).contains("#abnormal-usage-detected"),
            "{:?}",
            String::from_utf8_lossy(&banned.body)
        );
        assert_eq!(http::send(edge, &get().header("x-user", other)).expect("a response").status, 200);
        // The limit has come back long since.
        std::iter::repeat_n((), 50).for_each(|()| assert_eq!(through(edge).status, 403));
    }
    let denials = world.redis.connect().say("STRLEN weir:{p|ann}:denials");
    assert_eq!(denials, ":27\r\n");
    eventually("its metric", || (world.total("wasmcustom.weir.banned") >= 102).then_some(()));
}

fn each_ban_is_longer() {
    let ban = r#"{"after": 1, "window": "1h", "duration": "3s", "factor": 2, "max": "6s"}"#;
    let world = World::start(&banning(ban, "1h", "deny"));
    let ban = || {
        eventually("a ban", || {
            let responses = http::burst(world.edge(), std::iter::repeat_n(ann(), 4)).expect("responses");
            responses.iter().filter(|response| response.status == 403).filter_map(seconds).max()
        })
    };
    assert_eq!(ban(), 3);
    let commands = || world.envoy().stat("wasmcustom.weir.commands");
    assert_eq!(world.send(&ann()).status, 403);
    let before = commands();
    // It ends although the client keeps trying.
    eventually("its end", || (world.send(&ann()).status == 200).then_some(()));
    assert!(commands() <= before + 3, "the worker answered by itself");
    assert_eq!(ban(), 6);
    eventually("its end", || (world.send(&ann()).status == 200).then_some(()));
    assert_eq!(ban(), 6, "the longest");
}

fn an_operator_rules() {
    let ban = r#"{"after": 1, "window": "1h", "duration": "1h"}"#;
    let world = World::start(&banning(ban, "50ms", "deny"));
    let mut redis = world.redis.connect();
    let mut listed = || {
        let reply = redis.say("SCAN 0 MATCH weir:{p|*}:ban COUNT 1000");
        reply.lines().filter(|line| line.starts_with("weir:")).map(str::to_owned).collect::<Vec<_>>()
    };
    let status = |wanted: u16| {
        eventually(&format!("{wanted}"), || Some(world.send(&ann())).filter(|got| got.status == wanted))
    };
    let mut operator = world.redis.connect();
    assert_eq!((world.send(&ann()).status, listed()), (200, vec![]));

    assert_eq!(operator.say("SET weir:{p|ann}:ban scraper EX 1000"), "+OK\r\n");
    let banned = status(403);
    assert!(seconds(&banned).is_some_and(|seconds| (900..=1_001).contains(&seconds)), "{banned:?}");
    assert_eq!(listed(), ["weir:{p|ann}:ban"]);
    assert_eq!(world.send(&get().header("x-user", "bob")).status, 200);
    assert_eq!(operator.say("DEL weir:{p|ann}:ban"), ":1\r\n");
    status(200);

    assert_eq!(operator.say("SET weir:{p|ann}:ban for-ever"), "+OK\r\n");
    let banned = status(403);
    assert_eq!(seconds(&banned), None, "no time is known");
    assert_eq!(operator.say("DEL weir:{p|ann}:ban"), ":1\r\n");
    status(200);

    // One that weir has begun.
    eventually("a ban", || {
        http::burst(world.edge(), std::iter::repeat_n(ann(), 4)).expect("responses");
        (listed() == ["weir:{p|ann}:ban"]).then_some(())
    });
    assert!((3_500..=3_600).contains(&operator.integer(&[b"TTL", b"weir:{p|ann}:ban"])));
    assert_eq!(operator.say("DEL weir:{p|ann}:ban"), ":1\r\n");
    status(200);
}

fn a_known_ban_lasts_without_redis() {
    let limiter = banning(r#"{"after": 1, "window": "1h", "duration": "1h"}"#, "50ms", "allow");
    let mut world = World::start(&limiter.replace("10s", "500ms"));
    eventually("a ban", || {
        let responses = http::burst(world.edge(), std::iter::repeat_n(ann(), 4)).expect("responses");
        responses.iter().any(|response| response.status == 403).then_some(())
    });
    world.redis.stop();
    let fallback = || world.envoy().stat("wasmcustom.weir.fallback");
    eventually("a request that redis does not answer", || {
        assert_eq!(world.send(&ann()).status, 403);
        assert_eq!(world.send(&get().header("x-user", "bob")).status, 200);
        (fallback() > 0).then_some(())
    });
    assert_eq!(world.send(&ann()).status, 403);
}

fn a_ban_closes_others() {
    let limiter = r#"{"store": {"deadline": "10s", "on_failure": "deny", "denial_ttl": "50ms"}, "response": {"ban_status": 403}, "policies": [
        {"name": "login", "match": {"path": {"exact": "/login"}}, SUBJECT, "limits": [{"name": "tries", "algorithm": "sliding_log", "limit": 1, "window": "1h"}],
         "ban": {"after": 1, "window": "1h", "duration": "1h", "scope": ["api"]}},
        {"name": "api", "match": {"path": {"prefix": "/api"}}, SUBJECT, "limits": [{"name": "calls", "algorithm": "sliding_log", "limit": 100, "window": "1h"}]}]}"#;
    let limiter = limiter.replace("SUBJECT", r#""subject": [{"header": {"name": "x-user"}}]"#);
    let world = World::of(&limiter, 2, 1);
    let send = |envoy: usize, path: &str, user: &str| {
        let request = http::Request::get(path).header("x-user", user);
        http::send(world.envoys[envoy].address("edge"), &request).expect("a response")
    };
    assert_eq!([send(0, "/login", "ann").status, send(1, "/api", "ann").status], [200, 200]);
    assert_eq!(send(0, "/login", "ann").status, 403);
    for envoy in [0, 1, 0, 1] {
        let banned = send(envoy, "/api", "ann");
        assert_eq!(banned.status, 403);
        assert!(seconds(&banned).is_some_and(|seconds| (3_500..=3_600).contains(&seconds)), "{banned:?}");
        assert_eq!([send(envoy, "/api", "bob").status, send(envoy, "/other", "ann").status], [200, 200]);
    }
    assert_eq!(world.redis.connect().say("DEL weir:{login|ann}:ban"), ":1\r\n");
    for envoy in [0, 1] {
        eventually("an end", || (send(envoy, "/api", "ann").status == 200).then_some(()));
    }
}
