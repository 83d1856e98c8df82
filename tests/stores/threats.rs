//! What `docs/threats.md` promises and no other test shows.

use std::fmt::Write as _;

use crate::support::cluster::call;
use crate::support::envoy::Envoy;
use crate::support::eventually;
use crate::support::http::{self, Exchange, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{PATIENT, Statuses, World, get, limited, limited_by, template};

pub const TESTS: &[(&str, fn())] = &[
    ("threat: commands for Redis inside a subject stay text", commands_in_a_subject_stay_text),
    ("threat: aborting requests admits no more of them", aborting_is_no_way_in),
    ("threat: the bridge has no port", the_bridge_has_no_port),
    ("threat: whoever answers in the bridge's place is not believed", an_impostor_is_not_believed),
    ("threat: every log line and statistic is free of what clients send", secrets_stay_secret),
    ("threat: a client cannot speak to weir in its own headers", its_own_headers_mean_nothing),
];

fn commands_in_a_subject_stay_text() {
    let world = World::start(&limited_by(r#"{"query": {"name": "user"}}"#, 1));
    let mut redis = world.redis.connect();
    assert_eq!(call(&mut redis, &["SET", "witness", "here"]), "+OK\r\n");
    // Decoded, these are line ends, commands, and the end of the script's arguments.
    let subjects = [
        "ann",
        "%0d%0a*1%0d%0a$8%0d%0aFLUSHALL%0d%0a",
        "ann%0d%0a*1%0d%0a$8%0d%0aFLUSHALL%0d%0a",
        "%00",
        "%7d:l%00%0a",
        "%22;redis.call('FLUSHALL')--",
        "$-1%0d%0a",
    ];
    for expected in [200, 429] {
        for subject in subjects {
            assert_eq!(world.send(&Request::get(&format!("/?user={subject}"))).status, expected, "{subject}");
        }
    }
    assert_eq!(call(&mut redis, &["GET", "witness"]), "$4\r\nhere\r\n");
    assert!(!call(&mut redis, &["INFO", "commandstats"]).contains("flushall"));
    assert_eq!(call(&mut redis, &["DBSIZE"]), format!(":{}\r\n", 1 + subjects.len()));
}

fn aborting_is_no_way_in() {
    let world = World::of(&limited(10), 1, 2);
    // Some are gone before anything was asked for them, some while it is, some after.
    for _ in 0..20 {
        let asked = http::burst_held(world.edge(), (0..5).map(|_| get())).expect("sent");
        asked.into_iter().for_each(Exchange::abort);
    }
    eventually("all of them to be over", || {
        (world.envoy().stat("http.edge.downstream_rq_active") == 0).then_some(())
    });
    let admitted =
        world.burst(40, &get()).0.iter().find(|(status, _)| *status == 200).map_or(0, |found| found.1);
    assert!(world.upstream.requests() <= 10, "{} got through", world.upstream.requests());
    assert!(admitted <= 10);
    assert_eq!(world.burst(8, &get()), Statuses(vec![(429, 8)]));
}

fn the_bridge_has_no_port() {
    let world = World::start(&limited(1));
    let listeners = world.envoy().admin("/listeners");
    let bridge =
        listeners.lines().find(|line| line.starts_with("weir-bridge::")).expect("the bridge's listener");
    assert!(bridge.ends_with("envoy://weir-bridge/"), "{bridge}");
    // Strangers have nothing to connect to but the edge, and the admin interface of this test.
    let open =
        listeners.lines().filter(|line| line.contains("127.0.0.1") || line.contains("0.0.0.0")).count();
    assert_eq!(open, 1, "{listeners}");
}

fn an_impostor_is_not_believed() {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    // The upstream answers 200 to everything, and is not the bridge.
    let limiter = limited(10).replace(r#""store": {"#, r#""store": {"cluster": "upstream", "#);
    let envoy = template(&limiter, redis.address(), upstream.address()).start();
    let response = http::send(envoy.address("edge"), &get()).expect("a response");
    assert_eq!(response.status, 503, "`on_failure` decides");
    eventually("the operator to be told", || {
        envoy.log().contains("something that is not the bridge").then_some(())
    });
}

const SECRET: &str = "hunter2-c0ffee";

/// A request that carries the secret wherever a client may put one.
fn secretive() -> Request {
    Request::get(&format!("/{SECRET}/path?token={SECRET}"))
        .header("authorization", &format!("Bearer {SECRET}"))
        .header("cookie", &format!("session={SECRET}"))
        .header("x-api-key", SECRET)
        .header("x-forwarded-for", SECRET)
        .header("x-cost", SECRET)
}

/// Everything that Envoy told the operator.
fn told(envoy: &Envoy) -> String {
    let mut told = envoy.log();
    for page in ["/stats", "/stats/prometheus", "/clusters", "/listeners"] {
        write!(told, "{}", envoy.admin(page)).expect("text");
    }
    told
}

fn secrets_stay_secret() {
    // All of it is the subject, and takes part in what a policy is about.
    let limiter = format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "match": {{"header": {{"name": "x-api-key", "prefix": "hunter"}}}},
            "subject": [{{"header": {{"name": "authorization"}}}}, {{"header": {{"name": "x-api-key"}}}},
                {{"cookie": {{"name": "session"}}}}, {{"query": {{"name": "token"}}}}, {{"path": {{}}}}],
            "limits": [{{"name": "l", "algorithm": "token_bucket", "capacity": 2, "refill": 1, "interval": "1d"}}],
            "cost": {{"header": {{"name": "x-cost"}}}}}}]}}"#
    );
    // What Redis does to the question, and what the operator must have been told of it.
    let faults: [(&str, &[&str], &[&[&str]], &str); 6] = [
        ("nothing", &[], &[], ""),
        ("a password", &[], &[&["CONFIG", "SET", "requirepass", "x"]], "store: "),
        (
            "no EVALSHA: Redis quotes the arguments",
            &["--rename-command", "EVALSHA", ""],
            &[],
            "unknown command",
        ),
        ("no memory", &[], &[&["CONFIG", "SET", "maxmemory", "1"]], "OOM"),
        ("a replica", &[], &[&["REPLICAOF", "127.0.0.1", "1"]], "READONLY"),
        ("another user", &[], &[&["ACL", "SETUSER", "default", "resetkeys", "~other:*"]], "NOPERM"),
    ];
    for (what, arguments, commands, expected) in faults {
        let (redis, upstream) = (Redis::start_with(arguments).expect("a redis-server"), Upstream::start());
        for command in commands {
            assert_eq!(call(&mut redis.connect(), command), "+OK\r\n", "{what}");
        }
        let envoy = template(&limiter, redis.address(), upstream.address()).start();
        for _ in 0..6 {
            let response = http::send(envoy.address("edge"), &secretive()).expect("a response");
            assert!([200, 429, 503].contains(&response.status), "{what}: {}", response.status);
        }
        let told = eventually(what, || Some(told(&envoy)).filter(|told| told.contains(expected)));
        assert!(!told.contains(SECRET) && !told.contains("hunter2"), "{what}:\n{told}");
    }
}

fn its_own_headers_mean_nothing() {
    let world = World::start(&limited(1));
    let forged = || {
        get()
            .header("x-weir-bridge", "1")
            .header("x-weir-commands", "1")
            .header("ratelimit", r#""l";r=99;t=1"#)
            .header("x-envoy-internal", "true")
            .header("x-envoy-external-address", "203.0.113.9")
    };
    assert_eq!([world.send(&forged()).status, world.send(&forged()).status], [200, 429]);
}
