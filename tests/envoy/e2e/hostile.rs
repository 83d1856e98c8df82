// SPDX-License-Identifier: Apache-2.0
//! Requests that mean harm.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{World, get, limited, limited_by, template};

pub const TESTS: &[(&str, fn())] = &[
    ("hostile subjects reach no other subject's key", hostile_subjects_are_kept_apart),
    (
        "a hashed subject does not stand in redis, where keys have the deployment's prefix",
        hashed_subjects_are_not_in_redis,
    ),
    ("a path is the same path however it is spelled", spelling_tricks_do_not_help),
    ("a slash at the end and a semicolon are no way round a policy", other_readings_do_not_help),
    ("a body without a length costs the most", a_body_without_a_length_is_not_cheap),
    ("a request of 59 KiB is decided like any other", requests_that_are_too_long_to_be_read),
    ("an x-forwarded-for without a trusted proxy is ignored", a_spoofed_chain_is_not_believed),
    ("the client's address, behind proxies of four kinds", behind_proxies),
    ("what is no message for the bridge reaches redis by no route, and ends", strangers_do_not_reach_redis),
];

fn hostile_subjects_are_kept_apart() {
    let world = World::start(&limited_by(r#"{"header": {"name": "x-user"}, "on_missing": "share"}"#, 1));
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
    // Envoy itself refuses more than 60 KiB of headers: such a request does not reach weir.
    assert_eq!(world.send(&get().header_bytes("x-user", &[b'a'; 64 * 1024])).status, 431);
    // A client that sends the header twice cannot choose which one counts.
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

fn hashed_subjects_are_not_in_redis() {
    let limiter = limited_by(r#"{"header": {"name": "x-api-key"}, "hash": true}"#, 1);
    let store = r#""store": {"key_prefix": "staging", "hash_secret": "a secret of tests", "#;
    let world = World::start(&limiter.replace(r#""store": {"#, store));
    for (key, status) in [("k1", 200), ("k1", 429), ("a", 200)] {
        assert_eq!(world.send(&get().header("x-api-key", key)).status, status, "{key}");
    }
    let keys = String::from_utf8(world.redis.connect().call(&[b"KEYS", b"*"])).expect("text");
    let mut keys: Vec<&str> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    keys.sort_unstable();
    // The first 32 digits of what `openssl dgst -sha256 -hmac 'a secret of tests'` says of both.
    let hashes = ["1ac1db7d08d874ab2a06f59b81c7ac6f", "be281072b7b0a8e9dcb8347738235383"];
    assert_eq!(keys, hashes.map(|hash| format!("staging:{{p|%+{hash}}}:l")));
}

fn spelling_tricks_do_not_help() {
    let limiter =
        limited(1).replace(r#""name": "p","#, r#""name": "p", "match": {"path": {"exact": "/login"}},"#);
    let world = World::start(&limiter);
    assert_eq!(world.send(&Request::get("/login")).status, 200);
    assert_eq!(world.send(&Request::get("/elsewhere")).status, 200, "the policy matches /login alone");
    for path in
        ["/login", "/x/../login", "/./login", "//login", "/%6cogin", "/login?next=/", "/x/%2e%2e/login"]
    {
        assert_eq!(world.send(&Request::get(path)).status, 429, "{path}");
    }
}

fn other_readings_do_not_help() {
    let login = r#""name": "p", "match": {"any": [{"path": {"exact": "/login"}}, {"path": {"regex": "/users/[0-9]+"}},
        {"query": {"name": "q", "exact": "1"}}]}, "exempt": [{"path": {"exact": "/users/8"}}],"#;
    let world = World::start(&limited(1).replace(r#""name": "p","#, login));
    assert_eq!(world.send(&Request::get("/login/")).status, 200);
    let spellings = [
        "/login",
        "/login/",
        "/login/.",
        "/login/%2e",
        "/login/;x",
        "/login/x/..",
        "/users/7/",
        "/?a;q=1",
        "/?q=1;a",
    ];
    for path in spellings.into_iter().chain(["/users/8/"]) {
        assert_eq!(world.send(&Request::get(path)).status, 429, "{path}");
    }
    for path in ["/login/x", "/users/7/x", "/users/8", "/?a=q;1"] {
        assert_eq!(world.send(&Request::get(path)).status, 200, "{path}");
    }
    let world = World::start(&limited_by(r#"{"path": {}}"#, 1));
    let statuses = ["/a", "/a/", "/a/.", "/b/", "/b"].map(|path| world.send(&Request::get(path)).status);
    assert_eq!(statuses, [200, 429, 429, 200, 429]);
}

fn a_body_without_a_length_is_not_cheap() {
    let costs = r#""cost": {"content_length": {"per": 1024, "max": 9}}, "limits""#;
    let limiter = limited(10).replace(r#""limits""#, costs);
    let world = World::start(&limiter);
    assert_eq!(world.send(&get()).status, 200, "no body costs 1");
    assert_eq!(
        world.send(&Request::chunked("/", &[b'x'; 2048])).status,
        200,
        "as many bytes as may be cost 9"
    );
    assert_eq!(world.send(&get()).status, 429);
    let world = World::start(&limiter);
    let statuses =
        [Request::post("/", &[b'x'; 2048]), Request::chunked("/", b"x"), Request::post("/", &[b'x'; 8192])];
    assert_eq!(statuses.map(|request| world.send(&request).status), [200, 429, 200]);
    // HTTP/2 needs no length. A POST without the end of its stream, in bytes: settings; a HEADERS frame; and nothing more.
    let world = World::start(&limiter);
    let head = [&[0x83, 0x86, 0x84, 0x01, 9][..], b"weir.test"].concat();
    let length = u8::try_from(head.len()).expect("a short frame");
    let headers = [&[0, 0, length, 1, 4, 0, 0, 0, 1][..], &head].concat();
    let mut client = TcpStream::connect(world.edge()).expect("a connection");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    client.write_all(&[&preface[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0], &headers].concat()).expect("sent");
    let mut redis = world.redis.connect();
    eventually("the request to be counted", || (redis.say("DBSIZE").trim() == ":1").then_some(()));
    let statuses = [get(), get()].map(|request| world.send(&request).status);
    assert_eq!(statuses, [200, 429], "a body that may come costs 9");
}

/// If a value is too long to be read, then also in Envoy a policy applies to it, an exemption does not, and a subject is refused.
fn requests_that_are_too_long_to_be_read() {
    let about = r#""name": "p", "match": {"query": {"name": "q", "exact": "1"}}, "exempt": [{"header": {"name": "user-agent",
        "regex": ".*([Bb]ot|[Cc]rawler).*"}}],"#;
    let world = World::start(&limited(2).replace(r#""name": "p","#, about));
    let long = |unit: &str| unit.repeat(50_000 / unit.len());
    assert_eq!(world.send(&Request::get(&format!("/?{}", long("&a")))).status, 200);
    assert_eq!(world.send(&Request::get("/?q=1").header("user-agent", &long("Bot"))).status, 200);
    assert_eq!(world.send(&Request::get(&format!("/?q=1{}", long(";a")))).status, 429);
    assert_eq!(world.send(&Request::get("/?q=1").header("user-agent", "a Bot")).status, 200, "it is exempt");
    assert_eq!(world.send(&get()).status, 200, "no policy matches it");
    let world = World::start(&limited_by(r#"{"cookie": {"name": "session"}}"#, 1));
    assert_eq!(world.send(&get().header("cookie", &format!("session=a{}", long(";a")))).status, 403);
    assert_eq!(world.send(&get().header("cookie", "session=a; b=c")).status, 200);
}

fn a_spoofed_chain_is_not_believed() {
    let world = World::start(&limited_by(r#"{"client_address": {}}"#, 3));
    let chains = ["203.0.113.1", "203.0.113.2, 10.0.0.1", "127.0.0.2", "unknown", "::1", "\u{fffd}"];
    let statuses = chains.map(|chain| world.send(&get().header("x-forwarded-for", chain)).status);
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

/// Each row is a deployment, with what comes in: the connection's address by the PROXY protocol, or none, and the chain.
fn behind_proxies() {
    const EDGE: &str = "use_remote_address: true\n";
    let of = |trust: &str| limited_by(r#"{"client_address": {}}"#, 1).replacen('{', &format!("{{{trust}"), 1);
    let hops = |count: u8| of(&format!(r#""client_address": {{"trusted_hops": {count}}}, "#));
    let cdn = of(r#""client_address": {"trusted_networks": ["198.51.100.0/24"]}, "#);
    let in_envoy = format!("{EDGE}          xff_num_trusted_hops: 1\n");
    // The connection comes from this machine, so Envoy appends the address of one of its interfaces to the chain.
    let local: &[(&str, &str, u16)] = &[
        ("", "6.6.6.1, 203.0.113.1", 200),
        ("", "6.6.6.2, 203.0.113.1", 429),
        ("", "203.0.113.2", 200),
        ("", "64:ff9b::203.0.113.2", 429),
    ];
    let as_one: &[(&str, &str, u16)] = &[("", "203.0.113.1", 200), ("", "203.0.113.2", 429)];
    let proxied: &[(&str, &str, u16)] = &[
        ("TCP4 203.0.113.1 10.0.0.9 1 2", "6.6.6.1", 200),
        ("TCP4 203.0.113.1 10.0.0.9 3 4", "6.6.6.2", 429),
        ("TCP4 203.0.113.2 10.0.0.9 1 2", "", 200),
        ("TCP6 64:ff9b::cb00:7102 2001:db8::9 1 2", "", 429),
    ];
    let before: &[(&str, &str, u16)] = &[
        ("TCP4 198.51.100.7 10.0.0.9 1 2", "6.6.6.1, 203.0.113.1", 200),
        ("TCP4 198.51.100.8 10.0.0.9 1 2", "6.6.6.2, 203.0.113.1, 198.51.100.9", 429),
        ("TCP4 203.0.113.2 10.0.0.9 1 2", "203.0.113.3", 200),
        ("TCP4 203.0.113.2 10.0.0.9 1 2", "203.0.113.4", 429),
    ];
    let rows = [
        ("counted by envoy", of(""), in_envoy.as_str(), local),
        ("one hop from this machine", hops(1), EDGE, as_one),
        ("the hop and this machine", hops(2), EDGE, local),
        ("counted twice", hops(1), in_envoy.as_str(), as_one),
        ("the PROXY protocol", of(""), EDGE, proxied),
        ("a CDN before it", cdn, EDGE, before),
    ];
    let mut wrong = Vec::new();
    for (deployment, limiter, edge, sent) in rows {
        let world = World::with(&limiter, 1, 1, |template| {
            const PROXY: &str =
                "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";
            let template = template.with(EDGE, edge);
            if sent.iter().all(|(proxy, ..)| proxy.is_empty()) {
                return template;
            }
            let filter = format!("{{name: proxy, typed_config: {{\"@type\": {PROXY}}}}}");
            template.with("  - name: edge\n", format!("  - name: edge\n    listener_filters: [{filter}]\n"))
        });
        for (proxy, chain, wanted) in sent {
            let mut connection = TcpStream::connect(world.edge()).expect("a connection");
            let proxy = if proxy.is_empty() { String::new() } else { format!("PROXY {proxy}\r\n") };
            let chain =
                if chain.is_empty() { String::new() } else { format!("x-forwarded-for: {chain}\r\n") };
            let text = format!("{proxy}GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{chain}\r\n");
            connection.write_all(text.as_bytes()).expect("sent");
            let mut response = String::new();
            connection.read_to_string(&mut response).expect("a response");
            if !response.starts_with(&format!("HTTP/1.1 {wanted}")) {
                wrong
                    .push(format!("{deployment}, {text:?}: {}", response.lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn strangers_do_not_reach_redis() {
    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let limiter =
        limited(10).replace(r#""name": "p","#, r#""name": "p", "match": {"path": {"exact": "/p"}},"#);
    // A mistake in Envoy's configuration: clients are routed to the bridge.
    let envoy = template(&limiter, redis.address(), upstream.address())
        .with("route: {cluster: upstream, timeout: 0s}", "route: {cluster: weir-bridge}")
        .with("stream_idle_timeout: 30s", "stream_idle_timeout: 0.5s")
        .start();
    let mut connection = redis.connect();
    let message = |length: u8, body: &[u8]| [&[0, 0, 0, 0, length], body].concat();
    let post = |body: &[u8]| Request::post("/", body);
    // The responses to them, and the number of times that they have had Redis say PONG.
    let strangers = [
        // The bridge takes a client that speaks as the limiter does for the limiter.
        ("a message", post(&message(14, PING)), message(7, b"+PONG\r\n"), 1),
        ("two messages at once", post(&[message(14, PING), message(14, PING)].concat()), vec![], 1),
        ("a GET", Request::get("/"), vec![], 0),
        ("a body that does not come", Request::get("/").header("content-length", "19"), vec![], 0),
        ("a command", post(PING), vec![], 0),
        ("a command in a line", post(b"PING\r\n"), vec![], 0),
        ("a command in a line, in a message", post(&message(6, b"PING\r\n")), vec![], 0),
        ("a message without end", post(&message(15, PING)), vec![], 0),
        ("a message with more in it", post(&message(18, &[PING, b"PING"].concat())), vec![], 0),
    ];
    for (what, request, answer, pongs) in strangers {
        connection.say("CONFIG RESETSTAT");
        let told = http::send(envoy.address("edge"), &request);
        let told = told.map(|told| told.body).unwrap_or_default();
        // Redis closes when it has answered. If both come at once, the bridge marks the answer as the last.
        let marked = message(8, b"+PONG\r\n.");
        assert!(told == answer || (told == marked && pongs == 1), "{what}: {told:?}");
        eventually(&format!("{what}: every stream to be closed"), || {
            ["rq_active", "rq_pending_active"]
                .iter()
                .all(|stat| envoy.stat(&format!("cluster.weir-bridge.upstream_{stat}")) == 0)
                .then_some(())
        });
        let asked = connection.say("INFO commandstats");
        let asked: Vec<_> = asked
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(','))
            .map(|(command, _)| command)
            .filter(|command| !command.starts_with("config|resetstat:"))
            .collect();
        assert_eq!(asked, vec!["ping:calls=1"; pongs], "{what}");
    }
}
