// SPDX-License-Identifier: Apache-2.0
//! The promises of `docs/threats.md` that no other test shows.
// The tests measure another process with a real clock.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Instant;

use weir::resp;

use crate::cluster;
use crate::support::cluster::{Cluster, call};
use crate::support::envoy::{Envoy, Template};
use crate::support::eventually;
use crate::support::http::{self, Exchange, Request};
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{
    Host, PATIENT, Statuses, World, get, limited, limited_by, reading_bodies, template,
};
use crate::support::without;

pub const TESTS: &[(&str, fn())] = &[
    ("threat: commands for Redis inside a subject stay text", commands_in_a_subject_stay_text),
    ("threat: aborting requests admits no more of them", aborting_is_no_way_in),
    ("threat: nothing listens but the edge", nothing_listens_but_the_edge),
    ("threat: answers of another filter in place of the bridge's are refused", an_impostor_is_not_believed),
    ("threat: a million items in Redis's place cost a worker nothing", a_million_items_cost_nothing),
    ("threat: a peer that is never right fills no log", a_false_peer_fills_no_log),
    ("threat: every log line and statistic is free of what clients send", secrets_stay_secret),
    ("threat: a credential is neither in Redis nor in what Envoy says", credentials_stay_secret),
    ("threat: what two servers read differently is no second value", two_readings_are_no_second_value),
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
        "%09",
        "%7d:l%09%0a",
        "%22%3bredis.call('FLUSHALL')--",
        "$-1%0d%0a",
    ];
    for expected in [200, 429] {
        for subject in subjects {
            assert_eq!(world.send(&Request::get(&format!("/?user={subject}"))).status, expected, "{subject}");
        }
    }
    // Some upstreams end a value at a zero byte, or take other control characters for spaces.
    for subject in ["ann%00", "%01"] {
        assert_eq!(world.send(&Request::get(&format!("/?user={subject}"))).status, 403, "{subject}");
    }
    assert_eq!(call(&mut redis, &["GET", "witness"]), "$4\r\nhere\r\n");
    assert!(!call(&mut redis, &["INFO", "commandstats"]).contains("flushall"));
    assert_eq!(call(&mut redis, &["DBSIZE"]), format!(":{}\r\n", 1 + subjects.len()));
}

/// One row of each kind of `what_servers_read_in_several_ways_is_unreadable` and of the tables of bodies.
fn two_readings_are_no_second_value() {
    let policy = |name: &str, part: &str| {
        format!(
            r#"{{"name": "{name}", "match": {{"path": {{"exact": "/{name}"}}}}, "subject": [{part}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}}]}}"#
        )
    };
    let policies = [
        policy("cookie", r#"{"cookie": {"name": "session"}}"#),
        policy("query", r#"{"query": {"name": "user_id"}}"#),
        policy("header", r#"{"header": {"name": "x-user"}}"#),
        policy("json", r#"{"body_json": {"path": "user"}}"#),
        policy("form", r#"{"body_form": {"field": "user"}}"#),
    ];
    let limiter = format!(r#"{{{PATIENT}, "policies": [{}]}}"#, policies.join(","));
    let world = World::with(&limiter, 1, 1, reading_bodies);
    let cookie = |value: &str| Request::get("/cookie").header("cookie", &format!("session={value}"));
    let query = |query: &str| Request::get(&format!("/query?{query}"));
    let user = |user: &str| Request::get("/header").header("x-user", user);
    let json =
        |body: &str| Request::post("/json", body.as_bytes()).header("content-type", "application/json");
    let form = |query: &str, body: &str| {
        Request::post(&format!("/form{query}"), body.as_bytes())
            .header("content-type", "application/x-www-form-urlencoded")
    };
    let rows = [
        ("a cookie", cookie("secret7"), 200),
        ("in quotes it is the same", cookie("\"secret7\""), 429),
        ("decoded it is the same", cookie("s%65cret7"), 429),
        ("with an escape of Python", cookie("\"s\\145cret7\""), 403),
        ("of another name in PHP", cookie("a; session[b=c"), 403),
        ("a parameter", query("user_id=ann"), 200),
        ("a name of PHP", query("user_id=r1&user.id=ann"), 403),
        ("with a space before it", query("+user_id=ann"), 403),
        ("with a zero byte", query("user_id=ann%00N"), 403),
        ("a header", user("ann"), 200),
        ("with one that CGI reads in its place", user("r1").header("x_user", "ann"), 400),
        ("a value of JSON", json(r#"{"user": "ann"}"#), 200),
        ("with a zero character", json(r#"{"user": "ann\u0000N"}"#), 403),
        ("with a zero character behind the key", json(r#"{"user\u0000": "ann", "user": "r1"}"#), 403),
        ("of another case", json(r#"{"user": "r1", "User": "ann"}"#), 403),
        ("a field", form("", "user=ann"), 200),
        ("that the query has, too", form("?user=ann", "user=r1"), 403),
        ("of another case", form("", "user=r1&User=ann"), 403),
    ];
    let wrong: Vec<_> = rows
        .iter()
        .map(|(row, request, wanted)| (row, world.send(request).status, wanted))
        .filter(|(_, found, wanted)| found != *wanted)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn aborting_is_no_way_in() {
    let world = World::of(&limited(10), 1, 2);
    // Some are aborted before their check is sent, some while it is in flight, some after.
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

fn nothing_listens_but_the_edge() {
    let upstream = Upstream::start();
    let cluster = Cluster::start(3, false).expect("a redis-server");
    let nodes: Vec<_> = cluster.nodes.iter().map(Redis::address).collect();
    // The bridge is a filter of a cluster, and where there is a `redis_proxy`, only this process reaches it.
    let inside: [&[&str]; 2] = match Host::chosen() {
        Host::Wasm => [&[], &["redis-proxy::envoy://redis-proxy/"]],
        // Abstract sockets: other processes in its network namespace reach them, other machines do not.
        Host::Native => [&["weir-clock::@envoy-", "weir-store::@envoy-"]; 2],
    };
    let templates = [
        template(&limited(1), nodes[0], upstream.address()),
        cluster::template(&nodes, &limited(1), &upstream),
    ];
    for (template, inside) in templates.into_iter().zip(inside) {
        let envoy = template.start();
        let edge = format!("edge::{}", envoy.address("edge"));
        let mut listeners: Vec<_> = envoy.admin("/listeners").lines().map(String::from).collect();
        listeners.sort();
        let expected = [&[edge.as_str()], inside].concat();
        assert_eq!(listeners.len(), expected.len(), "{listeners:?}");
        let is_expected = |(listener, expected): (&String, &&str)| listener.starts_with(*expected);
        assert!(listeners.iter().zip(&expected).all(is_expected), "{listeners:?}");
        // The edge, and the admin interface of this test.
        assert_eq!(listening(&envoy).len(), 2, "{:?}", listening(&envoy));
    }
}

/// The ports that a process accepts connections at, as the kernel has them.
fn listening(envoy: &Envoy) -> BTreeSet<String> {
    let links = std::fs::read_dir(format!("/proc/{}/fd", envoy.pid())).expect("its files");
    let files = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    let sockets: BTreeSet<_> = files
        .filter_map(|file| Some(file.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/net/{table}")));
    let tables: Vec<_> = tables.into_iter().flatten().collect();
    // Number, local address, remote address, state (0A is LISTEN); the tenth is the socket.
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let columns = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    columns.filter(|it| it[3] == "0A" && sockets.contains(it[9])).map(|it| it[1].to_owned()).collect()
}

/// The best reply for a limiter that asks for one unit.
const GRANTED: [i64; 4] = [1, 1_700_000_000_000_000, 5, 1_000_000];

fn an_impostor_is_not_believed() {
    let mut reply = Vec::new();
    resp::bulk(&mut reply, &GRANTED.map(i64::to_le_bytes).concat());
    let length = u32::try_from(reply.len()).expect("a length").to_be_bytes();
    let message = [&[0], length.as_slice(), &reply].concat();
    let http = |body: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    type Change = fn(Template) -> Template;
    type Case = (&'static str, Change, Vec<u8>, u16);
    let as_shipped: Change = |template| template;
    let without_both: Change = |template| without::upstream_config(without::the_bridge(template));
    let both: Vec<Case> = vec![
        // It is believed as it is: the answer is a good one.
        ("redis", as_shipped, reply.clone(), 200),
        ("a server that speaks gRPC, where RESP is expected", as_shipped, message.clone(), 503),
        ("a server that speaks HTTP, where RESP is expected", as_shipped, http(b"ok"), 503),
    ];
    let of_the_bridge: Vec<Case> = vec![
        ("a server that speaks gRPC without HTTP", without::the_bridge, message.clone(), 503),
        ("a server that speaks gRPC", without_both, http(&message), 503),
        ("a server that answers 200 to everything", without_both, http(b"ok"), 503),
    ];
    let here = if Host::chosen() == Host::Wasm { of_the_bridge } else { Vec::new() };
    for (who, change, says, expected) in both.into_iter().chain(here) {
        let upstream = Upstream::start();
        let proxy = Proxy::start(upstream.address());
        proxy.set(Network::Foreign(Vec::leak(says)));
        let envoy = change(template(&limited(10), proxy.address(), upstream.address())).start();
        let status = || http::send(envoy.address("edge"), &get()).expect("a response").status;
        assert_eq!(status(), expected, "{who}");
        if expected == 503 {
            assert_eq!(upstream.requests(), 0, "{who}: `on_failure` decides");
            eventually("the operator to be told", || envoy.log().contains("store: ").then_some(()));
            // It is asked again, with care, and goes on not being believed.
            assert_eq!([(); 20].map(|()| status()), [503; 20], "{who}");
        }
    }
}

/// An Envoy of one worker, with a peer in Redis's place that says this to whatever it is asked.
fn with_a_peer(says: &[u8], limiter: &str) -> (Envoy, Proxy, Upstream) {
    let upstream = Upstream::start();
    let proxy = Proxy::start(upstream.address());
    proxy.set(Network::Foreign(Vec::leak(says.to_vec())));
    let envoy = template(limiter, proxy.address(), upstream.address()).start();
    (envoy, proxy, upstream)
}

fn a_million_items_cost_nothing() {
    const ROUNDS: usize = 5;
    let million = [b"*1000000\r\n".as_slice(), &b":1\r\n".repeat(1_000_000)].concat();
    let says = [b"*2\r\n", &*million, &*million].concat();
    let (envoy, _proxy, _upstream) = with_a_peer(&says, &limited(10));
    let failures =
        || envoy.stat("wasmcustom.weir.store.refused") + envoy.stat("wasmcustom.weir.store.bad_reply");
    for round in 1..=ROUNDS {
        // While the breaker is open nothing is asked.
        eventually("its answer to be refused", || {
            let response = http::send(envoy.address("edge"), &get()).expect("a response");
            assert_eq!(response.status, 503, "`on_failure` decides");
            (failures() >= round as u64).then_some(())
        });
    }
    // weir works through as much of an answer as is read, and the first line says that it is none.
    let read = envoy.stat("cluster.weir-bridge.upstream_cx_rx_bytes_total");
    let answers = envoy.stat("cluster.weir-bridge.upstream_cx_total");
    assert!(
        read < answers * 2 * 1024 * 1024,
        "{read} bytes were read of {answers} answers of {}",
        says.len()
    );
}

fn a_false_peer_fills_no_log() {
    let (envoy, _proxy, _upstream) = with_a_peer(b"HTTP/1.1 400 Bad Request\r\n\r\n", &limited(10));
    let (line, more) = match Host::chosen() {
        Host::Wasm => ("the bridge closes a stream", "more streams since"),
        Host::Native => ("the store has sent a reply that no batch expects", "more connections since"),
    };
    let lines = || envoy.log().matches(line).count();
    let streams = || envoy.stat("cluster.weir-bridge.upstream_cx_total");
    let began = Instant::now();
    eventually("many more streams to be closed than seconds to pass", || {
        let told = http::burst(envoy.address("edge"), (0..5).map(|_| get())).expect("responses");
        assert!(told.iter().all(|response| response.status == 503), "`on_failure` decides");
        (streams() >= began.elapsed().as_secs() + 8).then_some(())
    });
    let lines = lines();
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("seconds");
    assert!((1..=seconds + 2).contains(&lines), "{lines} lines, {} streams in {seconds} s", streams());
    assert!(envoy.log().contains(more), "{}", envoy.log());
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
    // All of these values are in the subject, and the policy matches one of them.
    let limiter = format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "match": {{"header": {{"name": "x-api-key", "prefix": "hunter"}}}},
            "subject": [{{"header": {{"name": "authorization"}}}}, {{"header": {{"name": "x-api-key"}}}},
                {{"cookie": {{"name": "session"}}}}, {{"query": {{"name": "token"}}}}, {{"path": {{}}}}],
            "limits": [{{"name": "l", "algorithm": "token_bucket", "capacity": 2, "refill": 1, "interval": "1d"}}],
            "cost": {{"header": {{"name": "x-cost", "max": 1}}}}}}]}}"#
    );
    // A fault of Redis, and the message that the operator must have got.
    type Words = &'static [&'static str];
    let faults: [(&str, Words, &[Words], &str); 6] = [
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
        let send = || {
            let response = http::send(envoy.address("edge"), &secretive()).expect("a response");
            assert!([200, 429, 503].contains(&response.status), "{what}: {}", response.status);
        };
        (0..5).for_each(|_| send());
        // A worker asks Redis again some time after a failure, so requests go on until Redis has answered one.
        let told = eventually(what, || {
            send();
            Some(told(&envoy)).filter(|told| told.contains(expected))
        });
        assert!(!told.contains(SECRET) && !told.contains("hunter2"), "{what}:\n{told}");
    }
}

/// A credential as clients of several providers send it, and a session that is hashed: denied, banned, in the journal and in the list of
/// the most denied subjects, with a Redis that quotes what it was asked.
fn credentials_stay_secret() {
    let policy = |name: &str, subject: &str| {
        format!(
            r#"{{"name": "{name}", "subject": [{subject}], "ban": {{"after": 3, "window": "10m", "duration": "1h"}},
            "limits": [{{"name": "l", "algorithm": "token_bucket", "capacity": 2, "refill": 1, "interval": "1d"}}]}}"#
        )
    };
    let limiter = format!(
        r#"{{{PATIENT}, "journal": {{}}, "top_denied": {{"interval": "1s"}}, "emit_filter_state": true, "policies": [{}, {}, {}]}}"#,
        policy("key", r#"{"credential": {"query": ["key", "token"]}}"#),
        policy("session", r#"{"cookie": {"name": "session"}, "hash": true}"#),
        // Longer than the longest part that keys have unchanged.
        policy("both", r#"{"credential": {}}, {"cookie": {"name": "session"}, "hash": true}, {"path": {}}"#),
    );
    for arguments in [&[][..], &["--rename-command", "XADD", ""]] {
        let (redis, upstream) = (Redis::start_with(arguments).expect("a redis-server"), Upstream::start());
        let envoy = template(&limiter, redis.address(), upstream.address())
            .argument("--component-log-level")
            .argument("wasm:info,dynamic_modules:info")
            .start();
        let request = |place: &str| {
            let request = Request::get(if place == "query" { "/path?key=hunter2-c0ffee" } else { "/path" });
            let request = request.header("cookie", &format!("session={SECRET}"));
            match place {
                "query" => request,
                "authorization" => request.header(place, &format!("Bearer {SECRET}")),
                _ => request.header(place, SECRET),
            }
        };
        let mut statuses = Vec::new();
        for place in ["authorization", "x-api-key", "api-key", "x-goog-api-key", "query"].repeat(2) {
            statuses.push(http::send(envoy.address("edge"), &request(place)).expect("a response").status);
        }
        assert_eq!(&statuses[..3], [200, 200, 429], "all places have one subject: {statuses:?}");
        let expected = if arguments.is_empty() { "top denied: " } else { "unknown command" };
        let told = eventually(expected, || {
            http::send(envoy.address("edge"), &request("query")).expect("a response");
            Some(told(&envoy)).filter(|told| told.contains(expected))
        });
        assert!(!told.contains("hunter2"), "{told}");
        let mut admin = redis.connect();
        let mut all = call(&mut admin, &["KEYS", "*"]);
        assert!(all.contains("weir:{key|%+") && all.contains("weir:{both|%"), "{all}");
        if arguments.is_empty() {
            all = eventually("the journal", || {
                Some(call(&mut admin, &["XRANGE", "weir:{journal}", "-", "+"]))
                    .filter(|all| all.contains("{key|%+"))
            }) + &all;
        }
        assert!(!all.contains("hunter2"), "{all}");
    }
}

fn its_own_headers_mean_nothing() {
    let world = World::start(&limited_by(r#"{"client_address": {}}"#, 1));
    let forged = |address: &str| {
        get()
            .header("x-weir-bridge", "1")
            .header("authorization", "weir:password")
            .header("ratelimit", r#""l";r=99;t=1"#)
            .header("x-envoy-internal", "true")
            .header("x-envoy-external-address", address)
    };
    assert_eq!(
        ["203.0.113.9", "203.0.113.10"].map(|address| world.send(&forged(address)).status),
        [200, 429]
    );
}
