// SPDX-License-Identifier: Apache-2.0
//! Values of request bodies, as Envoy passes the bodies on: in pieces, late, large, while Redis is slow. Whatever is admitted reaches the
//! upstream as it was sent.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::{self, Request};
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::upstream::{Upstream, body_account};
use crate::support::weir::{Host, PATIENT, Statuses, World, reading_bodies, template};
use crate::support::{PATIENCE, eventually};

pub const TESTS: &[(&str, fn())] = &[
    ("request bodies: users are limited by their names, across two envoys", users),
    ("request bodies: in pieces, chunked, with trailers", pieces),
    ("request bodies: a form, in pieces and with trailers", forms),
    ("request bodies: what cannot be read", unreadable),
    ("request bodies: one that is late is rejected, and nobody else waits for it", late),
    ("request bodies: a megabyte that comes while redis is slow passes unchanged", slow_store),
    ("request bodies: nothing passes before the decision, whatever comes of its body", nothing_passes),
    ("request bodies: they cost what they ask for", costs),
    ("request bodies: each call of a batch costs", calls_of_a_batch),
    ("request bodies: each call of a batch gets an error", errors_of_a_batch),
    ("request bodies: a model without a price is denied, with and without redis", models),
    ("request bodies: one client whose bodies never come takes no place from others", no_bodies),
    ("request bodies: without envoy's setting a request is rejected in time, not hung", without_the_setting),
];

fn world(limiter: &str, envoys: usize) -> World {
    World::with(limiter, envoys, 1, reading_bodies)
}

/// Two logins a day for each user.
fn logins(more: &str) -> String {
    format!(
        r#"{{{PATIENT}, "request_body": {{"max_bytes": 1048576, "timeout": "10s"}}, "policies": [{{"name": "login",
            "match": {{"method": ["POST"], "path": {{"exact": "/login"}}}}, "subject": [{{"body_json": {{"path": "user.name"}}}}]{more},
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 2}}]}}]}}"#
    )
}

fn login(user: &str) -> Request {
    Request::post("/login", format!(r#"{{"password": "x", "user": {{"name": "{user}"}}}}"#).as_bytes())
}

fn users() {
    let world = world(&logins(""), 2);
    let statuses = |user: &str| -> Statuses {
        let edges = world.envoys.iter().map(|envoy| envoy.address("edge")).cycle();
        edges.take(5).map(|edge| http::send(edge, &login(user)).expect("a response").status).collect()
    };
    assert_eq!(statuses("ann"), Statuses(vec![(200, 2), (429, 3)]));
    assert_eq!(statuses("bob"), Statuses(vec![(200, 2), (429, 3)]));
    // Spelled otherwise, she is the same.
    assert_eq!(statuses(r"\u0061nn"), Statuses(vec![(429, 5)]));
    // Others do not wait for bodies.
    assert_eq!(world.send(&Request::post("/other", b"no json")).status, 200);
    assert_eq!(world.total("wasmcustom.weir.request_bodies_unreadable"), 0);
}

/// Sends a request in pieces, with a pause after each, so that Envoy passes them on one by one.
fn in_pieces(edge: SocketAddr, pieces: &[&[u8]]) -> TcpStream {
    let mut connection = TcpStream::connect(edge).expect("a connection");
    connection.set_nodelay(true).expect("a socket");
    connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
    for piece in pieces {
        // A client that is rejected early reads no further.
        if connection.write_all(piece).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    connection
}

/// The status of a response, and its body.
fn finish(connection: TcpStream) -> (String, String) {
    let message = http::read(&mut BufReader::new(connection)).expect("a response").expect("a response");
    let status = message.start.split(' ').nth(1).expect("a status").to_owned();
    (status, String::from_utf8(message.body).expect("text"))
}

const CHUNKED: &[u8] =
    b"POST /login HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";

fn pieces() {
    let world = world(&logins(""), 1);
    let body = br#"{"user": {"name": "ann"}}"#;
    for end in [&b"0\r\n\r\n"[..], b"0\r\nx-end: 1\r\n\r\n"] {
        let chunks = body
            .chunks(5)
            .map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        let pieces: Vec<_> = [CHUNKED.to_vec()].into_iter().chain(chunks).chain([end.to_vec()]).collect();
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        let (status, text) = finish(in_pieces(world.edge(), &pieces));
        assert_eq!((status.as_str(), text.contains(&body_account(body))), ("200", true), "{text}");
    }
    assert_eq!(world.send(&login("ann")).status, 429, "both were hers");
}

fn forms() {
    let limiter =
        logins("").replace(r#"{"body_json": {"path": "user.name"}}"#, r#"{"body_form": {"field": "user"}}"#);
    let world = world(&limiter, 1);
    let parts = |user: &str| {
        let head = "Content-Disposition: form-data; name=";
        format!(
            "--x-y\r\n{head}\"a\"; filename=\"a\"\r\nContent-Type: image/png\r\n\r\n\0\r\n--x-\r\n--x-y\r\n{head}\"user\"\r\n\r\n{user}\r\n--x-y--\r\n"
        )
    };
    let in_parts = "multipart/form-data; boundary=x-y";
    let rows = [
        ("application/x-www-form-urlencoded;charset=utf-8", b"password=a%26b&us%65r=%61nn+b".to_vec()),
        (in_parts, parts("bob").into_bytes()),
    ];
    for (content_type, body) in rows {
        let head = [
            CHUNKED.strip_suffix(b"\r\n").expect("an end"),
            format!("content-type: {content_type}\r\n\r\n").as_bytes(),
        ]
        .concat();
        for end in [&b"0\r\n\r\n"[..], b"0\r\nx-end: 1\r\n\r\n"] {
            let chunks = body
                .chunks(7)
                .map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
            let pieces: Vec<_> = [head.clone()].into_iter().chain(chunks).chain([end.to_vec()]).collect();
            let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            let (status, text) = finish(in_pieces(world.edge(), &pieces));
            assert_eq!((status.as_str(), text.contains(&body_account(&body))), ("200", true), "{text}");
        }
    }
    let form = |body: &[u8]| {
        Request::post("/login", body).header("content-type", "application/x-www-form-urlencoded")
    };
    let of_parts = |body: &str| Request::post("/login", body.as_bytes()).header("content-type", in_parts);
    assert_eq!(world.send(&form(b"user=ann%20b")).status, 429, "both were hers");
    assert_eq!(world.send(&of_parts(&parts("ann b"))).status, 429, "the same user");
    assert_eq!(world.send(&of_parts(&parts("bob"))).status, 429, "both were his");
    assert_eq!(
        world.send(&of_parts(&parts("eve").replace("\r\n", "\n"))).status,
        403,
        "no line ends as it has to"
    );
    assert_eq!(world.send(&form(b"user=ann&user=eve")).status, 403, "two users");
    assert_eq!(world.send(&login("ann")).status, 403, "JSON");
}

fn unreadable() {
    let world = world(&logins("").replace("1048576", "500000"), 1);
    let rows = [
        ("no json", Request::post("/login", b"user=ann"), 403),
        ("twice", Request::post("/login", br#"{"user": {"name": "a"}, "user": {"name": "b"}}"#), 403),
        ("compressed", login("ann").header("content-encoding", "gzip"), 403),
        ("in utf-7", login("ann").header("content-type", "application/json; charset=utf-7"), 403),
        (
            "in utf-7, on a second line",
            login("ann")
                .header("content-type", "application/json")
                .header("content-type", "a/b;charset=\"UTF-7\""),
            403,
        ),
        ("a form", login("ann").header("content-type", "application/x-www-form-urlencoded"), 403),
        ("in utf-8", login("kim").header("content-type", "application/json; charset=utf-8"), 200),
        ("too large", Request::post("/login", &vec![b' '; 500_001]), 403),
        ("too large, as it turns out", Request::chunked("/login", &vec![b' '; 500_001]), 403),
        ("an empty one", Request::post("/login", b""), 200),
        ("shared by those without", Request::post("/login", b"{}"), 200),
    ];
    for (name, request, status) in rows {
        assert_eq!(world.send(&request).status, status, "{name}");
    }
    assert_eq!(finish(in_pieces(world.edge(), &[CHUNKED, b"0\r\n\r\n"])).0, "429", "an empty chunked one");
    // Five of them the headers tell already.
    eventually("the count", || (world.total("wasmcustom.weir.request_bodies_unreadable") == 7).then_some(()));
}

fn late() {
    let style = r#", "response": {"style": "anthropic"}"#;
    let limiter = logins(style).replace("\"timeout\": \"10s\"", "\"timeout\": \"300ms\"");
    let world = world(&limiter, 1);
    let begun = Instant::now();
    let slow: Vec<_> = (0..20).map(|_| in_pieces(world.edge(), &[CHUNKED, b"5\r\n{\"use\r\n"])).collect();
    assert_eq!(world.send(&login("ann")).status, 200);
    for connection in slow {
        let (status, text) = finish(connection);
        assert_eq!((status.as_str(), text.contains("timeout_error")), ("408", true), "{text}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
    eventually("the count", || (world.total("wasmcustom.weir.request_bodies_late") == 20).then_some(()));
    assert_eq!(world.upstream.requests(), 1);
    assert_eq!(world.send(&login("ann")).status, 200, "who is late is not counted");
    assert_eq!(world.send(&login("ann")).status, 429);
}

/// An Envoy whose Redis answers late, after one request on which it was near: a connection that opens slowly while the machine stands still
/// does not open.
fn far(limiter: &str, delay: Duration, first: &Request) -> (World, Proxy) {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    let network = Proxy::start(redis.address());
    let envoys = vec![reading_bodies(template(limiter, network.address(), upstream.address())).start()];
    let world = World { envoys, redis, upstream };
    assert_eq!(world.send(first).status, 200);
    network.set(Network::Slow(delay));
    (world, network)
}

fn slow_store() {
    let (world, _network) = far(&logins(""), Duration::from_millis(150), &login("bob"));
    // All of it is read before Redis is asked, and all of it is kept meanwhile.
    let text = "x".repeat(900_000);
    let body = format!(r#"{{"text": "{text}", "user": {{"name": "ann"}}}}"#);
    let head = format!(
        "POST /login HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut pieces = vec![head.as_bytes()];
    pieces.extend(body.as_bytes().chunks(300_000));
    for _ in 0..2 {
        let (status, text) = finish(in_pieces(world.edge(), &pieces));
        assert_eq!((status.as_str(), text.contains(&body_account(body.as_bytes()))), ("200", true), "{text}");
    }
    assert_eq!(finish(in_pieces(world.edge(), &pieces)).0, "429");
    assert_eq!(world.upstream.requests(), 3);
}

/// A request of another policy waits for Redis, and its body comes meanwhile.
fn nothing_passes() {
    let limiter = format!(
        r#"{{{PATIENT}, "policies": [
            {{"name": "login", "match": {{"path": {{"exact": "/login"}}}}, "subject": [{{"body_json": {{"path": "user.name"}}}}],
              "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}}]}},
            {{"name": "all", "subject": [{{"literal": "all"}}],
              "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 3}}]}}]}}"#
    );
    let (world, _network) = far(&limiter, Duration::from_millis(200), &Request::get("/"));
    let head: &[u8] =
        b"POST /other HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ncontent-length: 12\r\n\r\n";
    let passes = |wanted: &str, arrived: usize| {
        let connection = in_pieces(world.edge(), &[head, b"some", b"body"]);
        assert_eq!(world.upstream.requests(), arrived, "before the decision");
        let mut connection = connection;
        connection.write_all(b"more").expect("sent");
        let (status, text) = finish(connection);
        assert_eq!(status, wanted, "{text}");
        if wanted == "200" {
            assert!(text.contains(&body_account(b"somebodymore")), "{text}");
        }
    };
    passes("200", 1);
    passes("200", 2);
    passes("429", 3);
    // Pieces that come after the decision.
    assert_eq!(world.upstream.requests(), 3);
}

fn costs() {
    let limiter = format!(
        r#"{{{PATIENT}, "policies": [{{"name": "llm", "subject": [{{"header": {{"name": "x-key"}}}}],
            "cost": {{"body_json": {{"paths": ["max_tokens", "max_completion_tokens"], "on_missing": 50, "max": 100}}}},
            "limits": [{{"name": "tokens", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 100}}]}}]}}"#
    );
    let world = world(&limiter, 1);
    let ask = |key: &str, body: &str| {
        let response = world.send(&Request::post("/v1", body.as_bytes()).header("x-key", key));
        (response.status, response.headers.get("ratelimit").unwrap_or_default().to_owned())
    };
    for (key, body, left) in [
        ("a", r#"{"max_tokens": 30}"#, 70),
        ("b", "{}", 50),
        ("c", "no", 0),
        ("d", r#"{"max_completion_tokens": 99}"#, 1),
    ] {
        let (status, header) = ask(key, body);
        assert_eq!((status, header.contains(&format!("r={left}"))), (200, true), "{body}: {header}");
    }
    assert_eq!(ask("a", r#"{"max_tokens": 71}"#).0, 429);
    assert_eq!(ask("a", r#"{"max_tokens": 70}"#).0, 200);
}

fn calls_of_a_batch() {
    let limiter = format!(
        r#"{{{PATIENT}, "policies": [{{"name": "rpc", "cost": {{"calls": {{"on_unreadable": 6}}}},
            "limits": [{{"name": "calls", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 5}}]}}]}}"#
    );
    let world = world(&limiter, 1);
    let statuses = ["{", "[{}, {}, {}]", "[{}, {}, {}]", "{}", "{}", "{}"]
        .map(|body| world.send(&Request::post("/rpc", body.as_bytes())).status);
    assert_eq!(statuses, [429, 200, 429, 200, 200, 429]);
}

fn errors_of_a_batch() {
    let limiter = format!(
        r#"{{{PATIENT}, "response": {{"style": "json_rpc"}}, "deny": [{{"body_json": {{"path": "[*].admin", "present": true}}}}], "policies": [{{"name": "rpc", "cost": {{"calls": {{}}}},
            "limits": [{{"name": "calls", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 2}}]}}]}}"#
    );
    let world = world(&limiter, 1);
    let send = |body: &str| world.send(&Request::post("/rpc", body.as_bytes()));
    assert_eq!(send("[{}, {}]").status, 200);
    let many = format!("[{}]", vec![r#"{"id": 1}"#; 65].join(","));
    let batch = r#"[{"id": 1}, {"method": "a"}, {"id": "b\\\u0022c"}, {"id": null}]"#;
    let rows = [
        ("a batch", batch, 429, json!([[1, -32029], ["b\\\"c", -32029], [null, -32029]])),
        ("a call", r#"{"id": "a\"b"}"#, 429, json!(["a\"b", -32029])),
        ("a notification", r#"{"method": "a"}"#, 429, json!([null, -32029])),
        ("notifications", r#"[{"method": "a"}, {"method": "b"}]"#, 429, json!(null)),
        ("too many", &many, 429, json!([null, -32029])),
        ("no json, which is denied in doubt", "[", 403, json!([null, -32043])),
        ("denied before redis is asked", r#"[{"id": 1, "admin": true}]"#, 403, json!([[1, -32043]])),
    ];
    for (name, body, status, wanted) in rows {
        let response = send(body);
        let error = |error: &Value| json!([error["id"], error["error"]["code"]]);
        let found = match response.text() {
            "" => Value::Null,
            text => match serde_json::from_str(text).expect(text) {
                Value::Array(errors) => errors.iter().map(error).collect(),
                one => error(&one),
            },
        };
        assert_eq!((response.status, found), (status, wanted), "{name}: {}", response.text());
        assert_eq!(response.headers.get("content-type").is_none(), response.text().is_empty(), "{name}");
    }
}

/// `on_failure` admits what Redis does not answer: a denial for the model is none of its answers.
fn models() {
    let limiter = r#"{"emit_filter_state": true, "journal": {}, "store": {"deadline": "100ms", "on_failure": "allow"},
        "prices": {"usd": {"on_unknown_model": "deny", "models": [{"model": ["known*"], "input": 1, "output": 1}]}}, "policies": [
            {"name": "money", "match": {"not": {"path": {"prefix": "/trial"}}}, "cost": {"usage": {"prices": "usd"}},
             "response": {"style": "openai", "deny_status": 404},
             "limits": [{"name": "day", "algorithm": "fixed_window", "limit": 1000000, "window": "1d"}]},
            {"name": "trial", "mode": "shadow", "match": {"path": {"prefix": "/trial"}}, "cost": {"usage": {"prices": "usd"}},
             "limits": [{"name": "day", "algorithm": "fixed_window", "limit": 1000000, "window": "1d"}]}]}"#;
    let mut world = world(limiter, 1);
    let rows = [
        ("known", Request::post("/v1/chat", br#"{"model": "known-1"}"#), 200),
        ("unknown", Request::post("/v1/chat", br#"{"model": "new"}"#), 404),
        ("none", Request::post("/v1/chat", br#"{"messages": []}"#), 404),
        ("no json", Request::post("/v1/chat", b"model"), 404),
        ("known in the path", Request::post("/model/known-2/converse", b"{}"), 200),
        ("unknown in the path", Request::post("/model/new/converse", b"{}"), 404),
        ("in shadow", Request::post("/trial", br#"{"model": "new"}"#), 200),
    ];
    for redis in ["with redis", "without redis"] {
        for (name, request, status) in &rows {
            let response = world.send(request);
            assert_eq!(response.status, *status, "{name}, {redis}");
            if *status == 404 {
                assert!(response.text().contains("request_denied"), "{name}: {}", response.text());
                assert!(response.headers.get("retry-after").is_none(), "{name}");
            }
        }
        if redis == "with redis" {
            world.redis.stop();
        }
    }
    eventually("the counts", || {
        let total = |name: &str| world.total(&format!("wasmcustom.weir.{name}"));
        let counts = [
            total("model_unknown"),
            total("shadow_denied"),
            total("policy.money.requests.denied.model"),
            total("policy.trial.requests.shadow_denied.model"),
            total("policy.money.requests.denied.redis"),
        ];
        (counts == [8, 2, 8, 2, 0]).then_some(())
    });
}

/// More requests than there are places, of one client. The address that a proxy before Envoy has seen distinguishes clients.
fn no_bodies() {
    let limiter = format!(
        r#"{{{PATIENT}, "client_address": {{"header": "x-chain", "trusted_hops": 1}}, "request_body": {{"timeout": "20s"}}, "policies": [
            {{"name": "user", "subject": [{{"body_json": {{"path": "user.name"}}}}],
              "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 100}}]}},
            {{"name": "address", "subject": [{{"client_address": {{}}}}],
              "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 2}}]}}]}}"#
    );
    let world = world(&limiter, 2);
    let begin = |edge: SocketAddr, client: &str| {
        let mut connection = TcpStream::connect(edge).expect("a connection");
        connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let head = "POST /login HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ncontent-length: 20";
        let head = format!("{head}\r\nx-chain: {client}\r\n\r\n");
        connection.write_all(head.as_bytes()).expect("sent");
        connection
    };
    let edges: Vec<_> = world.envoys.iter().map(|envoy| envoy.address("edge")).collect();
    let flood: Vec<_> = (0..4_200).map(|_| begin(edges[0], "203.0.113.7")).collect();
    let of_another = login("ann").header("x-chain", "203.0.113.8");
    let statuses: Statuses = (0..3).map(|_| world.send(&of_another).status).collect();
    assert_eq!(statuses, Statuses(vec![(200, 2), (429, 1)]), "it has a place");
    // It is denied at once, and where another Envoy knows nothing of that, soon: weir does not wait for its body.
    for edge in edges {
        assert_eq!(finish(begin(edge, "203.0.113.8")).0, "429", "and not 408, because its body was late");
    }
    eventually("the counts", || {
        let total = |name: &str| world.total(&format!("wasmcustom.weir.request_bodies_{name}"));
        let counts = (total("over_share"), total("denied"), total("no_place"));
        (counts == (4_200 - 1_366, 2, 0)).then_some(())
    });
    drop(flood);
}

fn without_the_setting() {
    let limiter = logins("").replace("\"timeout\": \"10s\"", "\"timeout\": \"300ms\"");
    let world = World::start(&limiter);
    let wanted = if Host::chosen() == Host::Wasm { 408 } else { 200 };
    assert_eq!(world.send(&login("ann")).status, wanted);
    assert_eq!(world.send(&Request::get("/other")).status, 200);
}
