// SPDX-License-Identifier: Apache-2.0
//! Requests with bodies and trailers, over HTTP/1.1 and HTTP/2, in every way in which weir pauses a request: no part of a request passes
//! before its decision, and the upstream receives an admitted request whole and once.
//!
//! The plugin that once shipped lacked the callback of trailers, so Envoy went on with every paused request whose trailers came.
// The tests measure the time of a hold with a real clock.
#![allow(clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::envoy::{Envoy, Template, resident};
use crate::support::http;
use crate::support::http2::front;
use crate::support::proxy::{Network, Proxy};
use crate::support::redis::Redis;
use crate::support::tried::is_full;
use crate::support::upstream::{Upstream, body_account};
use crate::support::weir::{Statuses, World, reading_bodies, template, with_trailers};
use crate::support::{PATIENCE, eventually};

pub const TESTS: &[(&str, fn())] = &[
    ("trailers: a request that waits for its body", for_its_body),
    ("trailers: a request that waits for redis", for_redis),
    ("trailers: a request that waits for its body, then for redis, under two policies", for_both),
    ("trailers: a request that is held", held),
    ("trailers: a request that waits for its body, and is held", held_with_its_body),
    ("trailers: a request in the queue of a concurrency limit", queued),
    ("trailers: a request that waits for its body, and for a permit", queued_with_its_body),
    ("trailers: without redis, on_failure decides", frozen),
    ("trailers and bodies: a client that expects 100-continue", continues),
    ("uploads: files pass, however weir pauses their requests", uploads),
    ("uploads: a body that is too large to be read", too_large),
    ("uploads: prompts of 32 MB are metered, and not held", prompts),
];

const BODY: &str = r#"{"user": {"name": "ann"}, "text": "some"}"#;

/// The way in which a client sends its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sends {
    /// All of it at once.
    AtOnce,
    /// In pieces, so that Envoy passes them on one by one.
    InPieces,
}

use Sends::{AtOnce, InPieces};

/// A World, and an Envoy before it that speaks HTTP/2 to it.
struct Both {
    world: World,
    front: Envoy,
    network: Proxy,
}

impl Both {
    fn start(limiter: &str) -> Self {
        Self::with(limiter, with_trailers)
    }

    fn with(limiter: &str, change: impl FnOnce(Template) -> Template) -> Self {
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        let network = Proxy::start(redis.address());
        let template = template(limiter, network.address(), upstream.address());
        let world = World { envoys: vec![change(reading_bodies(template)).start()], redis, upstream };
        Self { front: front(world.edge()), world, network }
    }

    /// The addresses for clients, by protocol.
    fn edges(&self) -> [(&'static str, SocketAddr); 2] {
        [("HTTP/1.1", self.world.edge()), ("HTTP/2", self.front.address("front"))]
    }

    /// Requests that begin at once, over both protocols and in both ways, one of each.
    fn four(&self, path: &str) -> Vec<Sent> {
        let ways = self.edges().into_iter().flat_map(|edge| [AtOnce, InPieces].map(|sends| (edge, sends)));
        let threads: Vec<_> = ways
            .map(|((protocol, edge), sends)| {
                let path = path.to_owned();
                thread::spawn(move || Sent::new(protocol, edge, &path, sends))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it is sent")).collect()
    }
}

/// A request that was sent.
struct Sent {
    how: String,
    number: String,
    connection: TcpStream,
}

impl Sent {
    /// A POST with a body in two chunks, and a trailer that no other request has.
    fn new(protocol: &str, edge: SocketAddr, path: &str, sends: Sends) -> Self {
        let number = format!("{protocol}-{sends:?}");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\ntransfer-encoding: chunked\r\nte: trailers\r\n\r\n"
        );
        let (first, second) = BODY.split_at(20);
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
        let end = format!("0\r\nx-number: {number}\r\n\r\n");
        let pieces = [head, chunk(first), chunk(second), end];
        let mut connection = TcpStream::connect(edge).expect("a connection");
        connection.set_nodelay(true).expect("a socket");
        connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
        match sends {
            AtOnce => connection.write_all(pieces.concat().as_bytes()).expect("it is sent"),
            InPieces => {
                for piece in pieces {
                    // Envoy may have closed the connection of a request that was rejected early.
                    if connection.write_all(piece.as_bytes()).is_err() {
                        break;
                    }
                    thread::sleep(Duration::from_millis(30));
                }
            }
        }
        Self { how: format!("{protocol}, {sends:?}"), number, connection }
    }

    /// The status of the response. If the upstream has answered, it has received all of this request.
    fn status(self) -> u16 {
        let (status, text) = response(&self.connection, &self.how);
        if status == 200 {
            let end = format!("\n{}\nx-number: {}\n", body_account(BODY.as_bytes()), self.number);
            assert!(text.ends_with(&end), "{}: {text}", self.how);
        }
        status
    }
}

/// The status and the body of the response that comes on a connection. `how` says of what.
fn response(connection: &TcpStream, how: &str) -> (u16, String) {
    let message = http::read(&mut BufReader::new(connection)).expect(how).expect(how);
    let status = message.start.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), String::from_utf8(message.body).expect("text"))
}

fn statuses(sent: Vec<Sent>) -> Statuses {
    sent.into_iter().map(Sent::status).collect()
}

/// A configuration whose Redis has to answer in this time.
fn limiter(deadline: &str, policies: &[&str]) -> String {
    format!(
        r#"{{"store": {{"deadline": "{deadline}", "on_failure": "deny"}}, "policies": [{}]}}"#,
        policies.join(", ")
    )
}

/// A policy of these limits.
fn policy(name: &str, subject: &str, limits: &str) -> String {
    format!(r#"{{"name": "{name}", "subject": [{subject}], "limits": [{{"name": "l", {limits}}}]}}"#)
}

const USER: &str = r#"{"body_json": {"path": "user.name"}}"#;
const ALL: &str = r#"{"literal": "all"}"#;

fn bucket(burst: u32) -> String {
    format!(r#""algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}"#)
}

/// Three of four requests are admitted, and so many arrive.
fn three_of_four(policies: &[&str]) {
    let both = Both::start(&limiter("10s", policies));
    both.network.set(Network::Slow(Duration::from_millis(100)));
    assert_eq!(statuses(both.four("/")), Statuses(vec![(200, 3), (429, 1)]));
    assert_eq!(statuses(both.four("/")), Statuses(vec![(429, 4)]));
    assert_eq!(both.world.upstream.requests(), 3);
    let protocols = ["http1", "http2"].map(|name| format!("http.edge.downstream_rq_{name}_total"));
    assert_eq!(protocols.map(|name| both.world.total(&name)), [4, 4], "both protocols");
}

fn for_its_body() {
    three_of_four(&[&policy("login", USER, &bucket(3))]);
}

fn for_redis() {
    three_of_four(&[&policy("all", ALL, &bucket(3))]);
}

fn for_both() {
    three_of_four(&[&policy("all", ALL, &bucket(99)), &policy("login", USER, &bucket(3))]);
    three_of_four(&[&policy("all", ALL, &bucket(3)), &policy("login", USER, &bucket(99))]);
}

/// Each is let through half a second after the one before it.
fn in_turn(subject: &str, path: &str) {
    let held = r#""algorithm": "leaky_bucket", "rate": "2/s", "burst": 1, "max_delay": "10s""#;
    let both = Both::start(&limiter("10s", &[&policy("p", subject, held)]));
    let begun = Instant::now();
    let sent = both.four(path);
    let early = both.world.upstream.requests();
    let most = 1 + usize::try_from(begun.elapsed().as_millis() / 500).expect("few");
    assert!(early <= most, "{early} of {most} have passed");
    assert_eq!(statuses(sent), Statuses(vec![(200, 4)]));
    assert!(begun.elapsed() >= Duration::from_millis(1_500), "{:?}", begun.elapsed());
    assert_eq!(both.world.upstream.requests(), 4);
    assert_eq!(both.world.total("wasmcustom.weir.delayed"), 3);
}

fn held() {
    in_turn(ALL, "/");
}

fn held_with_its_body() {
    in_turn(USER, "/");
}

/// One is at the upstream, and three wait.
fn one_at_a_time(policies: &[&str]) {
    let both = Both::start(&limiter("10s", policies));
    let upstream = &both.world.upstream;
    let sent = both.four("/hold");
    eventually("three to wait", || (both.world.total("wasmcustom.weir.waiting") == 3).then_some(()));
    // Time enough for what does not wait.
    thread::sleep(Duration::from_millis(200));
    assert_eq!((upstream.requests(), upstream.held()), (1, 1));
    upstream.release();
    assert_eq!(statuses(sent), Statuses(vec![(200, 4)]));
    assert_eq!(upstream.requests(), 4);
}

const PERMIT: &str =
    r#""algorithm": "concurrency", "limit": 1, "ttl": "1h", "queue": {"max_wait": "20s", "max_waiting": 9}"#;

fn queued() {
    one_at_a_time(&[&policy("permits", ALL, PERMIT)]);
}

fn queued_with_its_body() {
    one_at_a_time(&[&policy("permits", USER, PERMIT)]);
    one_at_a_time(&[&policy("permits", ALL, PERMIT), &policy("login", USER, &bucket(99))]);
}

fn frozen() {
    let held = r#""algorithm": "leaky_bucket", "rate": "1/s", "burst": 1, "max_delay": "10s""#;
    for policies in [
        vec![policy("login", USER, &bucket(9))],
        vec![policy("all", ALL, &bucket(9))],
        vec![policy("held", ALL, held), policy("login", USER, &bucket(9))],
        vec![policy("permits", ALL, PERMIT)],
    ] {
        let policies: Vec<_> = policies.iter().map(String::as_str).collect();
        let both = Both::start(&limiter("300ms", &policies));
        both.network.set(Network::Cut);
        assert_eq!(statuses(both.four("/")), Statuses(vec![(503, 4)]), "{policies:?}");
        assert_eq!(both.world.upstream.requests(), 0, "{policies:?}");
    }
}

fn continues() {
    let limiter = limiter(
        "10s",
        &[
            &policy("login", USER, &bucket(9)).replacen(
                '{',
                r#"{"match": {"path": {"exact": "/login"}}, "#,
                1,
            ),
            &policy("all", ALL, &bucket(9)),
        ],
    );
    let (redis, upstream) = (Redis::start().expect("a redis-server"), continuing_upstream());
    for is_proxied in [false, true] {
        let template = reading_bodies(template(&limiter, redis.address(), upstream));
        let manager = "          stat_prefix: edge\n";
        let envoy =
            template.with(manager, format!("{manager}          proxy_100_continue: {is_proxied}\n")).start();
        let edge = envoy.address("edge");
        assert_eq!(waits_for_100(edge, "/other"), (true, 200), "proxied: {is_proxied}");
        // A client that waits for the upstream's 100 sends no body before the upstream has the request.
        let wanted = if is_proxied { (false, 403) } else { (true, 200) };
        assert_eq!(waits_for_100(edge, "/login"), wanted, "proxied: {is_proxied}");
        let login = http::Request::post("/login", BODY.as_bytes());
        assert_eq!(http::send(edge, &login).expect("a response").status, 200, "proxied: {is_proxied}");
    }
}

/// Sends a request whose body waits for a 100. Returns whether one came, and the final status.
fn waits_for_100(edge: SocketAddr, path: &str) -> (bool, u16) {
    let mut connection = TcpStream::connect(edge).expect("a connection");
    connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let length = BODY.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).expect("it is sent");
    let mut reading = BufReader::new(connection.try_clone().expect("a socket"));
    let mut line = String::new();
    reading.read_line(&mut line).expect("a line");
    let continued = line.starts_with("HTTP/1.1 100 ");
    if continued {
        connection.write_all(BODY.as_bytes()).expect("it is sent");
        while line != "\r\n" {
            line.clear();
            reading.read_line(&mut line).expect("a line");
        }
        line.clear();
        reading.read_line(&mut line).expect("a line");
    }
    (continued, line.split(' ').nth(1).expect("a status").parse().expect("a number"))
}

/// Answers each request with 200 when its body has come. If the client waits, it lets the client go on. It lives as long as the process.
fn continuing_upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut reading = BufReader::new(connection.try_clone().expect("a socket"));
                loop {
                    let lines = reading.by_ref().lines().map_while(Result::ok);
                    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
                    if head.is_empty() {
                        break;
                    }
                    if head.iter().any(|line| line.eq_ignore_ascii_case("expect: 100-continue")) {
                        connection.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").expect("it is sent");
                    }
                    reading.read_exact(&mut [0; BODY.len()]).expect("a body");
                    connection
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                        .expect("it is sent");
                }
            });
        }
    });
    address
}

const MIB: usize = 1024 * 1024;

/// A listener that keeps little of a body, as Envoy Gateway's does.
fn keeping_little(template: Template) -> Template {
    template.with("  - name: edge\n", "  - name: edge\n    per_connection_buffer_limit_bytes: 32768\n")
}

/// `policy`, for paths with this prefix.
fn below(prefix: &str, policy: &str) -> String {
    policy.replacen('{', &format!(r#"{{"match": {{"path": {{"prefix": "{prefix}"}}}}, "#), 1)
}

/// Sends a request while it reads the response: a request may be rejected before all of it was sent.
fn upload(edge: SocketAddr, request: http::Request) -> (u16, String) {
    let connection = TcpStream::connect(edge).expect("a connection");
    connection.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut writer = connection.try_clone().expect("a socket");
    let sending = thread::spawn(move || {
        let _ = writer.write_all(&request.into_bytes());
    });
    let response = response(&connection, "an upload");
    let _ = connection.shutdown(Shutdown::Both);
    sending.join().expect("it is sent");
    response
}

/// One policy reads bodies, and files of other paths pass: Envoy stops reading from a client whose request waits.
fn uploads() {
    let held = r#""algorithm": "leaky_bucket", "rate": "10/s", "burst": 1, "max_delay": "10s""#;
    let policies = [
        below("/login", &policy("login", USER, &bucket(9))),
        below("/held", &policy("held", ALL, held)),
        below("/queued", &policy("permits", ALL, PERMIT)),
        policy("all", ALL, &bucket(999)),
    ];
    let both = Both::with(&limiter("10s", &policies.each_ref().map(String::as_str)), keeping_little);
    both.network.set(Network::Slow(Duration::from_millis(100)));
    let rows =
        [("/files", 8), ("/held", 2), ("/queued", 2)].into_iter().chain(is_full().then_some(("/files", 64)));
    for (path, mib) in rows {
        let body = vec![b'x'; mib * MIB];
        let account = body_account(&body);
        let before = resident(both.world.envoy().pid());
        thread::scope(|scope| {
            for (protocol, edge) in both.edges() {
                for request in [http::Request::post(path, &body), http::Request::chunked(path, &body)] {
                    let (account, how) = (&account, format!("{protocol}, {path}, {mib} MiB"));
                    scope.spawn(move || {
                        let (status, text) = upload(edge, request);
                        assert_eq!((status, text.contains(account)), (200, true), "{how}: {text}");
                    });
                }
            }
        });
        let grown = resident(both.world.envoy().pid()).saturating_sub(before);
        assert!(grown < 64 * 1024, "{path}, {mib} MiB: Envoy has taken {grown} KiB more");
    }
}

/// A policy needs a body that is larger than it may be: the body is one that cannot be read.
fn too_large() {
    let limiter = limiter("10s", &[&policy("login", USER, &bucket(99))]).replacen(
        '{',
        r#"{"request_body": {"max_bytes": 16384}, "#,
        1,
    );
    let both = Both::with(&limiter, keeping_little);
    for (protocol, edge) in both.edges() {
        for (size, status) in [(16_384, 200), (16_385, 403), (40_000, 403), (2 * MIB, 403)] {
            let (start, end) = (r#"{"user": {"name": "ann"}, "text": ""#, r#""}"#);
            let text = "x".repeat(size - start.len() - end.len());
            let body = [start, &text, end].concat();
            for request in
                [http::Request::post("/", body.as_bytes()), http::Request::chunked("/", body.as_bytes())]
            {
                assert_eq!(upload(edge, request).0, status, "{protocol}, {size} bytes");
            }
        }
    }
}

/// They reserve their input by `content-length`, or the most that a policy says, and cost what the response says.
fn prompts() {
    let tokens = |name: &str, output: u32| {
        let weights = format!(r#""weights": {{"input": 1, "output": {output}}}"#);
        format!(
            r#"{{"name": "{name}", "subject": [{ALL}], "settle": [{{"cost": {{"usage": {{{weights}}}}}}}], "cost": {{"usage": {{{weights},
                "bytes_per_token": 4, "max_input_tokens": 20000000, "max_output_tokens": 1000}}}},
                "limits": [{{"name": "day", "algorithm": "fixed_window", "limit": 99000000, "window": "1d"}}]}}"#
        )
    };
    let limiter = limiter("10s", &[&tokens("tokens", 5), &tokens("money", 9)]);
    let limiter = limiter.replacen('{', r#"{"request_body": {"max_bytes": 16384}, "#, 1);
    let both = Both::with(&limiter, keeping_little);
    let answer = r#"{"usage": {"input_tokens": 900, "output_tokens": 10}}"#;
    let said = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
        answer.len()
    );
    let digits: String = said.bytes().map(|byte| format!("{byte:02x}")).collect();
    let (mut reserved, mut used) = (0, 0);
    // The small ones first: the code of the module takes memory when it runs for the first time.
    for mib in [1, 32] {
        let body = vec![b' '; mib * MIB];
        let (path, stated) = ("/v1/messages", (mib * MIB / 4) as u64);
        let before = resident(both.world.envoy().pid());
        for (protocol, edge) in both.edges() {
            for (request, input) in [
                (http::Request::post(path, &body), stated),
                (http::Request::chunked(path, &body), 20_000_000),
            ] {
                let how = format!("{protocol}, {mib} MiB, which reserves {input}");
                assert_eq!(upload(edge, request.header("x-say", &digits)), (200, answer.to_owned()), "{how}");
                (reserved, used) = (reserved + 2 * input + 14 * 1_000, used + 2 * 900 + 14 * 10);
                both.world.counts_cost(&how, reserved, used);
            }
        }
        let grown = resident(both.world.envoy().pid()).saturating_sub(before);
        assert!(mib == 1 || grown < 16 * 1024, "Envoy has taken {grown} KiB more");
    }
}
