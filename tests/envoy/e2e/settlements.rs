// SPDX-License-Identifier: Apache-2.0
//! The true costs of requests, by the responses of a real upstream: the store has counted them to the unit, across Envoys and workers, and
//! the responses are untouched.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use weir::limit::{Align, Ask, FixedWindow, Limit};
use weir::time::Micros;

use crate::subject::Store;
use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::PIECE;
use crate::support::weir::{PATIENT, World, reading_bodies, with_trailers};

pub const TESTS: &[(&str, fn())] = &[
    ("settle: what each response says in a header is what was charged, across two envoys", headers),
    ("settle: tokens in json and in event streams are charged to the unit, across two envoys", bodies),
    ("settle: ten megabytes pass unchanged, and are read to the end", ten_megabytes),
    ("settle: a compressed body is not read", compressed),
    ("settle: trailers", trailers),
    ("settle: only failed logins count", logins),
    ("settle: a client that leaves pays for what it has seen", a_client_leaves),
    ("settle: a model's stream that is cut off costs what it has delivered", a_stream_is_cut_off),
    ("settle: what was uploaded is what was charged", uploads),
    ("settle: what was open when envoy is killed has cost what it reserved", envoy_is_killed),
    ("settle: cheap and expensive requests share a limit", cheap_and_expensive),
];

const LIMIT: u64 = 1_000_000;
const WINDOW: Micros = Micros::from_secs(366 * 86_400);

/// A policy `p` with a limit that nothing comes back to, and these fields.
fn limiter(fields: &str) -> String {
    format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "s"}}], {fields}, "limits": [
            {{"name": "l", "algorithm": "fixed_window", "limit": {LIMIT}, "window": "366d", "align": "first"}}]}}]}}"#
    )
}

/// The units that the subject has used, as Redis has it now.
fn used(redis: &Redis) -> u64 {
    let window: Limit = FixedWindow::new(LIMIT, WINDOW, Align::First).expect("a limit").into();
    let mut store = Store::named(redis, vec![("l".into(), window)], b"{p|s}");
    let ask = Ask::new(0, 1);
    let told = store.check(None, ask);
    LIMIT - told.remaining(store.plan.limits(), 0, 0, ask)
}

fn is_used(world: &World, units: u64) {
    let mut found = u64::MAX;
    eventually(&format!("{units} units to be used"), || {
        found = used(&world.redis);
        (found == units).then_some(())
    });
    assert_eq!(world.total("wasmcustom.weir.settlements_lost"), 0);
}

/// A request whose response is this.
fn say(path: &str, response: &str) -> Request {
    Request::post(path, response.as_bytes())
}

fn responds(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

/// Sends these requests by `clients` clients at once, in turn to each Envoy; all are admitted.
fn send_all(world: &World, clients: usize, requests: &[Request]) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let edge = world.envoys[client % world.envoys.len()].address("edge");
            let next = &next;
            scope.spawn(move || {
                while let Some(request) =
                    usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok().and_then(|at| requests.get(at))
                {
                    let response = http::send(edge, request).expect("a response");
                    assert_ne!(response.status, 429, "{}", response.text());
                }
            });
        }
    });
}

fn headers() {
    let settle = r#""cost": {"constant": 10}, "settle": [{"when": {"status": ["5xx"]}, "cost": {"constant": 0}},
        {"cost": {"header": {"name": "x-used", "on_missing": {"constant": 3}}}}]"#;
    let world = World::of(&limiter(settle), 2, 2);
    let (mut requests, mut sum) = (Vec::new(), 0);
    for number in 0..200_u64 {
        let (status, headers, cost) = match number % 5 {
            0 => ("200 OK", String::new(), 3),
            1 => ("503 Service Unavailable", format!("x-used: {number}\r\n"), 0),
            2 => ("200 OK", "x-used: 10\r\n".into(), 10),
            3 => ("200 OK", format!("x-used: 1\r\nx-used: {number}\r\n"), number),
            _ => ("404 Not Found", format!("x-used: {number}\r\n"), number),
        };
        requests.push(say("/say", &responds(status, &headers, "body")));
        sum += cost;
    }
    send_all(&world, 8, &requests);
    is_used(&world, sum);
    world.counts_cost("the counters", 2_000, sum);
}

/// The numbers of several providers' responses, added up.
const TOKENS: &str = r#""cost": {"constant": 50}, "settle": [{"cost": {"body_json": {"sum": [
    {"paths": ["usage.prompt_tokens", "message.usage.input_tokens", "usageMetadata.promptTokenCount"]},
    {"paths": ["usage.completion_tokens", "usage.output_tokens", "usageMetadata.candidatesTokenCount"], "weight": 2}],
    "on_missing": {"constant": 7}}}}]"#;

const JSON: &str = "content-type: application/json\r\n";
const EVENTS: &str = "content-type: text/event-stream\r\n";

/// Chunks of a body, each written by itself.
fn chunked(headers: &str, chunks: &[String], trailers: &str) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\n{headers}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for chunk in chunks {
        response.push(PIECE);
        response.extend(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes());
    }
    response.push(PIECE);
    response.extend(format!("0\r\n{trailers}\r\n").as_bytes());
    response
}

/// The same body in chunks of so many bytes.
fn cut(body: &str, size: usize) -> Vec<String> {
    body.as_bytes().chunks(size).map(|chunk| String::from_utf8(chunk.to_vec()).expect("ASCII")).collect()
}

fn bodies() {
    let world = World::of(&limiter(TOKENS), 2, 2);
    let (mut requests, mut sum) = (Vec::new(), 0);
    for number in 1..=120_u64 {
        let more = number + 5;
        let size = usize::try_from(number).expect("small") % 40 + 1;
        let (headers, body, cost) = match number % 4 {
            0 => (
                JSON,
                format!(
                    r#"{{"choices": [{{"text": "\u00e9\"usage\""}}], "usage": {{"prompt_tokens": {number}, "completion_tokens": {more}}}}}"#
                ),
                number + 2 * more,
            ),
            1 => (
                EVENTS,
                format!(
                    "event: message_start\ndata: {{\"message\": {{\"usage\": {{\"input_tokens\": {number}, \"output_tokens\": 1}}}}}}\n\nevent: message_delta\ndata: {{\"usage\": {{\"output_tokens\": {more}}}}}\n\n"
                ),
                number + 2 * more,
            ),
            2 => (
                EVENTS,
                format!(
                    "data: {{\"usageMetadata\": {{\"promptTokenCount\": {number}}}}}\r\n\r\ndata: {{\"usageMetadata\": {{\"promptTokenCount\": {number}, \"candidatesTokenCount\": {more}}}}}\r\n\r\n"
                ),
                number + 2 * more,
            ),
            // Without `include_usage`.
            _ => (EVENTS, "data: {\"choices\": [], \"usage\": null}\n\ndata: [DONE]\n\n".to_owned(), 7),
        };
        requests.push(Request::post("/say", &chunked(headers, &cut(&body, size), "")));
        sum += cost;
    }
    send_all(&world, 8, &requests);
    is_used(&world, sum);
}

fn ten_megabytes() {
    let world = World::start(&limiter(TOKENS));
    let text = "x\\\"{[]}".repeat(10 * 1_048_576 / 7);
    let body = format!(r#"{{"text": "{text}", "usage": {{"prompt_tokens": 41, "completion_tokens": 1}}}}"#);
    let response = world.send(&say("/say", &responds("200 OK", JSON, &body)));
    assert_eq!((response.status, response.text() == body), (200, true), "the body is unchanged");
    is_used(&world, 43);
}

fn compressed() {
    let world = World::start(&limiter(TOKENS));
    let headers = format!("{JSON}content-encoding: gzip\r\n");
    world.send(&say("/say", &responds("200 OK", &headers, r#"{"usage": {"prompt_tokens": 41}}"#)));
    world.send(&say(
        "/say",
        &responds("200 OK", "content-type: text/html\r\n", r#"{"usage": {"prompt_tokens": 41}}"#),
    ));
    is_used(&world, 14);
    eventually("unreadable bodies to be counted", || {
        (world.total("wasmcustom.weir.bodies_unreadable") == 2).then_some(())
    });
}

fn trailers() {
    let settle = r#""cost": {"constant": 10}, "settle": [{"cost": {"trailer": {"name": "x-used", "on_missing": {"constant": 1}}}}]"#;
    let world = World::with(&limiter(settle), 1, 1, with_trailers);
    for trailers in ["x-used: 25\r\n", "x-other: 25\r\n"] {
        let response = chunked("trailer: x-used\r\n", &["body".into()], trailers);
        assert_eq!(world.send(&Request::post("/say", &response)).text(), "body");
    }
    is_used(&world, 26);
}

fn logins() {
    let settle =
        r#""settle": [{"when": {"status": [401, 403]}, "cost": {"constant": 1}}, {"cost": {"constant": 0}}]"#;
    let limiter = limiter(settle).replace(&format!("\"limit\": {LIMIT}"), "\"limit\": 5");
    let world = World::of(&limiter, 2, 1);
    let attempt = |envoy: usize, status: &str| {
        let request = say("/say", &responds(status, "", ""));
        http::send(world.envoys[envoy].address("edge"), &request).expect("a response").status
    };
    let settled = |units: u64| {
        eventually("the attempts to be settled", || {
            let left = world.total("wasmcustom.weir.units_refunded");
            (left == units).then_some(())
        });
    };
    for number in 0..12 {
        assert_eq!(attempt(number % 2, "200 OK"), 200, "a success costs nothing");
        settled(number as u64 + 1);
    }
    for number in 0..5 {
        assert_eq!(attempt(number % 2, "401 Unauthorized"), 401);
    }
    assert_eq!([attempt(0, "200 OK"), attempt(1, "200 OK")], [429, 429], "not even with the right password");
}

/// The cost that was not stated stays reserved; the stated cost counts if it is more.
fn a_client_leaves() {
    let world = World::start(&limiter(TOKENS));
    for (said, units) in [(30, 50), (80, 50 + 80)] {
        let event = |tokens: u64| format!("data: {{\"usage\": {{\"prompt_tokens\": {tokens}}}}}\n\n");
        let mut response = chunked(EVENTS, &[event(said), event(99)], "");
        // The first chunk goes with the headers; the upstream waits before the second.
        let first = response.iter().position(|byte| *byte == PIECE).expect("a piece");
        response.remove(first);
        let mut client = TcpStream::connect(world.edge()).expect("connected");
        let request = Request::post("/say/slowly", &response);
        client.write_all(&request.into_bytes()).expect("sent");
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(&format!("{said}}}}}")) {
            let mut buffer = [0; 1024];
            let length = client.read(&mut buffer).expect("a response");
            assert!(length > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend(&buffer[..length]);
        }
        client.shutdown(Shutdown::Both).expect("closed");
        is_used(&world, units);
    }
}

/// The client leaves before the last number of the stream, and then the upstream closes the connection there.
fn a_stream_is_cut_off() {
    let usage = r#""cost": {"constant": 9000}, "settle": [{"cost": {"usage": {"provider": "anthropic"}}}]"#;
    let world = World::start(&limiter(usage));
    let begin = "data: {\"message\": {\"usage\": {\"input_tokens\": 30, \"output_tokens\": 1}}}\n\n";
    let seen = format!("{begin}{}", "data: {\"delta\": {\"text\": \"Hello\"}}\n\n".repeat(20));
    let end = "data: {\"delta\": {\"stop_reason\": \"end_turn\"}, \"usage\": {\"output_tokens\": 600}}\n\n";
    let mut response = chunked(EVENTS, &[seen.clone(), end.to_owned()], "");
    let first = response.iter().position(|byte| *byte == PIECE).expect("a piece");
    response.remove(first);
    let begun = || {
        let mut client = TcpStream::connect(world.edge()).expect("connected");
        client.write_all(&Request::post("/say/slowly", &response).into_bytes()).expect("sent");
        let mut bytes = Vec::new();
        while String::from_utf8_lossy(&bytes).matches("Hello").count() < 20 {
            let mut buffer = [0; 4096];
            let length = client.read(&mut buffer).expect("a response");
            assert!(length > 0, "{}", String::from_utf8_lossy(&bytes));
            bytes.extend(&buffer[..length]);
        }
        client
    };
    let each = 31 + seen.len() as u64;
    begun().shutdown(Shutdown::Both).expect("closed");
    is_used(&world, each);
    let client = begun();
    eventually("both to be held", || (world.upstream.held() == 2).then_some(()));
    world.upstream.reset();
    is_used(&world, 2 * each);
    drop(client);
    // A whole one, whose bytes do not count.
    world.upstream.release();
    drop(world.send(&Request::post("/say", &chunked(EVENTS, &[seen, end.to_owned()], ""))));
    is_used(&world, 2 * each + 630);
}

fn envoy_is_killed() {
    let mut world = World::of(&limiter(TOKENS), 2, 1);
    let done = responds("200 OK", JSON, r#"{"usage": {"prompt_tokens": 1}}"#);
    send_all(&world, 2, &vec![say("/say", &done); 10]);
    is_used(&world, 10);
    let open = 6;
    let held: Vec<_> =
        (0..open).map(|_| http::begin(world.edge(), &Request::get("/hold")).expect("sent")).collect();
    eventually("the requests to arrive", || (world.upstream.held() == open).then_some(()));
    let first = world.envoys.remove(0);
    drop(first);
    drop(held);
    // The open requests have cost 50 each; the other Envoy goes on.
    assert_eq!(used(&world.redis), 10 + 50 * open as u64);
    world.send(&say("/say", &done));
    is_used(&world, 11 + 50 * open as u64);
}

/// Uploads whose sizes are stated and not, that weir reads itself and does not, and one that its client breaks off.
fn uploads() {
    let by_bytes = r#""cost": {"content_length": {"per": 1000, "on_unknown": 7, "max": 1000000}},
        "settle": [{"cost": {"request_bytes": {"per": 1000}}}]"#;
    let config = limiter(by_bytes);
    let reads = config.replacen(
        r#""policies": ["#,
        r#""policies": [{"name": "reads", "match": {"path": {"prefix": "/read"}}, "subject": [{"body_json": {"path": "user"}, "on_missing": "skip"}],
            "limits": [{"name": "l", "algorithm": "fixed_window", "limit": 1000, "window": "1d"}]}, "#,
        1,
    );
    let world = World::with(&reads, 2, 2, reading_bodies);
    let body = format!(r#"{{"pad": "{}"}}"#, "x".repeat(10_489));
    let body = body.as_bytes();
    let (mut requests, mut sum) = (Vec::new(), 0);
    for (request, kilobytes) in [
        (Request::get("/"), 0),
        (Request::post("/", body), 11),
        (Request::chunked("/", body), 11),
        (Request::chunked("/", b"four"), 1),
        (Request::chunked("/", &vec![b' '; 3_000_000]), 3_000),
        (Request::post("/read", body).header("content-type", "application/json"), 11),
        (Request::chunked("/read", body).header("content-type", "application/json"), 11),
    ] {
        requests.push(request);
        sum += kilobytes;
    }
    send_all(&world, 3, &requests);
    is_used(&world, sum);
    // The client states 100,000 bytes, sends 25,000 and leaves.
    let mut client = TcpStream::connect(world.edge()).expect("Envoy");
    let head = b"POST / HTTP/1.1\r\nhost: weir.test\r\ncontent-length: 100000\r\n\r\n";
    client.write_all(&[head.as_slice(), &vec![b' '; 20_000]].concat()).expect("sent");
    is_used(&world, sum + 100);
    client.write_all(&[b' '; 5_000]).expect("sent");
    client.shutdown(Shutdown::Both).expect("closed");
    is_used(&world, sum + 25);
}

fn cheap_and_expensive() {
    let costs = r#""costs": [{"when": {"path": {"prefix": "/search"}}, "cost": {"constant": 20}},
        {"when": {"method": ["GET"]}, "cost": {"constant": 1}}], "cost": {"constant": 5}"#;
    let world = World::start(&limiter(costs));
    for (request, units) in [
        (Request::get("/"), 1),
        (Request::get("/search/all"), 21),
        (Request::post("/", b"x"), 26),
        (Request::get("/%73earch"), 46),
    ] {
        world.send(&request);
        is_used(&world, units);
    }
}
