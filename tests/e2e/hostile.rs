//! Requests that mean harm.

use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{World, get, limited, limited_by, template};

pub const TESTS: &[(&str, fn())] = &[
    ("hostile subjects reach no other subject's key", hostile_subjects_are_kept_apart),
    ("a path is the same path however it is spelled", spelling_tricks_do_not_help),
    ("an x-forwarded-for that nobody vouches for is not believed", a_spoofed_chain_is_not_believed),
    ("what is not the bridge's gets a 400 and a closed connection", the_bridge_refuses_strangers),
];

fn hostile_subjects_are_kept_apart() {
    let world = World::start(&limited_by(r#"{"header": {"name": "x-user"}, "absent": "share"}"#, 1));
    let long = [b'a'; 40_000];
    let mut longer = long;
    longer[39_999] = b'b';
    let subjects: &[(&str, &[u8])] = &[
        ("plain", b"ann"),
        ("another slot's tag", b"}:x:{p|bob"),
        ("braces", b"{ann}"),
        ("a separator", b"ann|bob"),
        ("a limit's name", b"ann}:l"),
        ("an escape", b"%7Bann%7D"),
        ("an escaped escape", b"%257Bann%257D"),
        ("RESP", b"$3 ann *2"),
        ("a tab", b"an\tn"),
        ("no UTF-8", b"\xff\xfe\x80ann"),
        ("other bytes that are no UTF-8", b"\xff\xfe\x81ann"),
        ("the replacement character", "\u{fffd}\u{fffd}\u{fffd}ann".as_bytes()),
        ("40,000 bytes", &long),
        ("40,000 bytes, the last one another", &longer),
        ("nothing", b""),
    ];
    for round in [200, 429] {
        for (what, subject) in subjects {
            let response = world.send(&get().header_bytes("x-user", subject));
            assert_eq!(response.status, round, "{what}: a bucket of its own, with one unit in it");
        }
        assert_eq!(world.send(&get()).status, round, "those without the header share a bucket");
    }
    // What Envoy itself refuses does not reach weir: more than 60 KiB of headers.
    assert_eq!(world.send(&get().header_bytes("x-user", &[b'a'; 64 * 1024])).status, 431);
    // Who sends the header twice does not get to choose which one counts.
    let twice = get().header("x-user", "someone").header("x-user", "else");
    assert_eq!(world.send(&twice).status, 403);
    let keys = world.redis.connect().call(&[b"KEYS", b"*"]);
    let keys = String::from_utf8(keys).expect("keys are text, whatever the subjects are");
    let keys: Vec<&str> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    assert!(keys.len() >= subjects.len(), "{keys:#?}");
    for key in keys {
        let tag = key.strip_prefix("weir:{p|").and_then(|key| key.strip_suffix("}:l"));
        assert!(tag.is_some_and(|tag| !tag.contains(['{', '}', ' '])), "{key}");
        assert!(key.len() <= weir::policy::key::LONGEST_KEY, "{key}");
    }
}

fn spelling_tricks_do_not_help() {
    let limiter =
        limited(1).replace(r#""name": "p","#, r#""name": "p", "match": {"path": {"exact": "/login"}},"#);
    let world = World::start(&limiter);
    assert_eq!(world.send(&Request::get("/login")).status, 200);
    assert_eq!(world.send(&Request::get("/elsewhere")).status, 200, "the policy is about /login alone");
    for path in
        ["/login", "/x/../login", "/./login", "//login", "/%6cogin", "/login?next=/", "/x/%2e%2e/login"]
    {
        assert_eq!(world.send(&Request::get(path)).status, 429, "{path}");
    }
}

fn a_spoofed_chain_is_not_believed() {
    let world = World::start(&limited_by(r#"{"client_address": {}}"#, 3));
    let chains = ["203.0.113.1", "203.0.113.2, 10.0.0.1", "127.0.0.2", "unknown", "::1", "\u{fffd}"];
    let statuses = chains.map(|chain| world.send(&get().header("x-forwarded-for", chain)).status);
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

fn the_bridge_refuses_strangers() {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    // The bridge as shipped, but where strangers can reach it.
    let envoy = template(&limited(10), redis.address(), upstream.address())
        .with("internal_listener: {}", "address: {socket_address: {address: 127.0.0.1, port_value: 0}}")
        .start();
    let ping = b"*1\r\n$4\r\nPING\r\n";
    let asked = |request: Request| http::send(envoy.address("weir-bridge"), &request).expect("a response");
    let ours = asked(Request::post("/", ping).header("x-weir-commands", "1"));
    assert_eq!((ours.status, ours.headers.get("x-weir-bridge"), ours.text()), (200, Some("1"), "+PONG\r\n"));
    let strangers = [
        ("another method", Request::get("/").header("x-weir-commands", "1")),
        ("no x-weir-commands", Request::post("/", ping)),
        ("a number that is none", Request::post("/", ping).header("x-weir-commands", "many")),
        ("more commands than announced", Request::post("/", ping).header("x-weir-commands", "0")),
        ("fewer commands than announced", Request::post("/", ping).header("x-weir-commands", "2")),
        ("no RESP", Request::post("/", b"PING").header("x-weir-commands", "1")),
    ];
    for (what, request) in strangers {
        let refused = asked(request);
        assert_eq!((refused.status, refused.headers.get("connection")), (400, Some("close")), "{what}");
        assert!(refused.text().starts_with("weir"), "{what}: {}", refused.text());
    }
    eventually("every connection to close", || {
        (envoy.stat("redis.weir.downstream_cx_active") == 0).then_some(())
    });
}
