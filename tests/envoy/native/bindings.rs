// SPDX-License-Identifier: Apache-2.0
//! Every callback that the module imports and every hook that it exports runs in a real Envoy. The instrumented module says which
//! did; the table below says why, and that it names all of them is read from the shipped library.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::support::envoy::{Envoy, Template};
use crate::support::eventually;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::weir::{Host, PATIENT, get, module, template_on, with_trailers};
use crate::{connect, instrumented, without};

pub const TESTS: &[(&str, fn())] =
    &[("bindings: each callback and each hook runs in Envoy, or cannot", each_binding)];

/// The hooks that Envoy calls, and the callbacks that the module calls.
const CALLED: &[(&str, &str)] = &[
    ("on_program_init", "Envoy loads the module"),
    ("callback_is_validation_mode", "it reads the configuration of `weir-store`"),
    ("callback_get_concurrency", "it reads the configuration of `weir-store`"),
    ("callback_log", "a listener does not answer"),
    ("callback_log_enabled", "a listener does not answer"),
    ("on_http_filter_config_new", "Envoy starts"),
    ("callback_http_filter_config_define_counter", "Envoy starts"),
    ("callback_http_filter_config_define_gauge", "Envoy starts"),
    ("callback_http_filter_config_define_histogram", "Envoy starts"),
    ("callback_http_filter_config_set_gauge", "Envoy starts"),
    ("on_http_filter_config_destroy", "Envoy ends"),
    ("callback_http_filter_config_increment_counter", "a request is decided"),
    ("callback_http_filter_config_record_histogram_value", "Redis replies"),
    ("callback_http_filter_config_increment_gauge", "the breaker opens"),
    ("callback_http_filter_config_decrement_gauge", "the breaker closes"),
    ("on_http_filter_new", "a request arrives"),
    ("on_http_filter_request_headers", "a request arrives"),
    ("callback_http_get_headers_size", "a request arrives"),
    ("callback_http_get_headers", "a request arrives"),
    ("callback_http_filter_get_attribute_string", "the subject is a client's address"),
    ("callback_http_get_metadata_string", "the subject is metadata"),
    ("callback_http_get_metadata_keys_count", "the subject is metadata that is no text"),
    ("callback_http_get_metadata_keys", "the subject is metadata that is no text"),
    ("callback_http_get_filter_state_bytes", "the subject is filter state"),
    ("callback_http_get_filter_state_typed", "the subject is filter state that is no text"),
    ("callback_http_has_filter_state", "the subject is filter state that is not there"),
    ("on_http_filter_request_body", "a request has a body"),
    ("on_http_filter_request_trailers", "a request has trailers"),
    ("callback_http_filter_continue_decoding", "Redis admits a request"),
    ("callback_http_set_filter_state_bytes", "a decision is recorded"),
    ("on_http_filter_response_headers", "the upstream answers"),
    ("callback_http_set_header", "the upstream answers, and the policy replaces its headers"),
    ("callback_http_add_header", "the upstream answers, and the policy keeps its headers"),
    ("on_http_filter_response_body", "the upstream answers"),
    ("callback_http_get_body_chunks_size", "the upstream answers, and a policy counts its bytes"),
    ("callback_http_get_body_chunks", "the upstream answers, and a policy counts its bytes"),
    ("on_http_filter_response_trailers", "the upstream answers with trailers"),
    ("on_http_filter_downstream_above_write_buffer_high_watermark", "a client does not read"),
    ("on_http_filter_downstream_below_write_buffer_low_watermark", "a client reads again"),
    ("on_http_filter_stream_complete", "a request ends"),
    ("on_http_filter_destroy", "a request ends"),
    ("callback_http_send_response", "a request is rejected"),
    ("callback_http_filter_scheduler_new", "a request waits, and there is no clock"),
    ("callback_http_filter_scheduler_commit", "a request waits, and there is no clock"),
    ("on_http_filter_scheduled", "a request waits, and there is no clock"),
    ("callback_http_filter_scheduler_delete", "a request that has waited ends"),
    ("on_network_filter_config_new", "Envoy starts"),
    ("on_network_filter_config_destroy", "Envoy ends"),
    ("on_network_filter_new", "the module connects to its listeners"),
    ("callback_network_filter_get_worker_index", "the module connects to its listeners"),
    ("on_network_filter_new_connection", "the module connects to its listeners"),
    ("callback_network_filter_scheduler_new", "the module connects to its listeners"),
    ("callback_network_filter_scheduler_commit", "a connection to Redis begins"),
    ("on_network_filter_scheduled", "a connection to Redis begins"),
    ("callback_network_filter_get_cluster_host_count", "a connection to Redis is open"),
    ("callback_network_filter_inject_read_data", "a batch is sent"),
    ("on_network_filter_write", "Redis replies"),
    ("callback_network_filter_get_write_buffer_chunks_size", "Redis replies"),
    ("callback_network_filter_get_write_buffer_chunks", "Redis replies"),
    ("callback_network_filter_drain_write_buffer", "Redis replies"),
    ("on_network_filter_read", "another process sends something to `weir-store`"),
    ("callback_network_filter_close", "Redis is stopped, so the connection ends"),
    ("on_network_filter_event", "Redis is stopped, so the connection ends"),
    ("on_network_filter_destroy", "Redis is stopped, so the connection ends"),
    ("callback_network_filter_scheduler_delete", "Redis is stopped, so the connection ends"),
];

/// Hooks that Envoy requires and never calls: weir begins no calls and no streams.
const NEVER: &[&str] = &[
    "on_http_filter_http_callout_done",
    "on_http_filter_http_stream_headers",
    "on_http_filter_http_stream_data",
    "on_http_filter_http_stream_trailers",
    "on_http_filter_http_stream_complete",
    "on_http_filter_http_stream_reset",
];

fn each_binding() {
    let named: BTreeSet<_> = CALLED.iter().map(|(name, _)| *name).chain(NEVER.iter().copied()).collect();
    let names = symbols();
    assert_eq!(
        names.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        named,
        "the library and the tables"
    );
    let ran = &with_a_clock() | &without_a_clock();
    let missing: Vec<_> = CALLED.iter().filter(|(name, _)| !ran.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:#?} did not run, only {ran:?}");
    let known: Vec<_> = NEVER.iter().filter(|name| ran.contains(**name)).collect();
    assert!(known.is_empty(), "{known:?} ran");
}

/// The names in the shipped library, without what all of them begin with.
fn symbols() -> BTreeSet<String> {
    const PREFIX: &[u8] = b"envoy_dynamic_module_";
    let library = std::fs::read(module()).expect("the module");
    let at = library.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let name = |at: usize| {
        let rest = &library[at + PREFIX.len()..];
        let end = rest.iter().position(|byte| *byte == 0).expect("its end");
        String::from_utf8_lossy(&rest[..end]).into_owned()
    };
    // A library with debug information has names of closures, too.
    let is_whole = |name: &String| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    at.map(|(at, _)| name(at)).filter(is_whole).collect()
}

/// The names of what ran, as the log says.
fn ran(log: &str) -> BTreeSet<String> {
    let names = log.lines().filter_map(|line| line.strip_prefix("ran: ")?.strip_suffix('.'));
    let name = |name: &str| match name.strip_prefix("callback ") {
        Some(callback) => format!("callback_{callback}"),
        None => format!("on_{}", name.trim_start_matches("envoy_dynamic_module_on_")),
    };
    names.map(name).collect()
}

/// Each subject that is read in a way of its own; a gRPC call and a POST find a limit of one.
fn limiter() -> String {
    let limit = |burst: u32| {
        format!(
            r#""limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": {burst}}}]"#
        )
    };
    let attribute = |name: &str, path: &str| {
        format!(
            r#"{{"name": "{name}", "match": {{"path": {{"exact": "/{name}"}}}}, "subject": [{{"attribute": {{"path": {path}}}}}], {}}}"#,
            limit(9)
        )
    };
    let policies = [
        format!(
            r#"{{"name": "all", "match": {{"path": {{"exact": "/"}}}}, "response": {{"upstream_headers": "append"}}, "settle": [{{"cost": {{"response_bytes": {{"per": 1000000000}}}}}}], {}}}"#,
            limit(99)
        ),
        format!(r#"{{"name": "few", "match": {{"path": {{"exact": "/few"}}}}, {}}}"#, limit(1)),
        attribute("text", r#"["metadata", "filter_metadata", "account", "plan"]"#),
        attribute("number", r#"["metadata", "filter_metadata", "account", "seats"]"#),
        attribute("object", r#"["filter_state", "weir.object"]"#),
        attribute("nothing", r#"["filter_state", "weir.nothing"]"#),
    ];
    format!(r#"{{"emit_filter_state": true, {PATIENT}, "policies": [{}]}}"#, policies.join(", "))
}

fn template(redis: SocketAddr, upstream: SocketAddr) -> Template {
    with_trailers(instrumented(template_on(Host::Native, &limiter(), redis, upstream)))
        .with("          http_filters:\n", crate::attributes::FILTERS)
        .with(
            "route: {cluster: upstream, timeout: 0s}",
            "route: {cluster: upstream}\n                response_headers_to_add: [{header: {key: ratelimit, value: theirs}}]",
        )
        .with("  - name: edge\n", "  - name: edge\n    per_connection_buffer_limit_bytes: 4096\n")
}

fn with_a_clock() -> BTreeSet<String> {
    let (mut redis, upstream) = (Redis::start().expect("a redis-server"), upstream());
    let envoy = template(redis.address(), upstream).start();
    let edge = envoy.address("edge");
    let status = |request: &Request| http::send(edge, request).expect("a response").status;
    assert_eq!(status(&get()), 200);
    assert_eq!([(); 2].map(|()| status(&Request::get("/few"))), [200, 429]);
    let call = Request::post("/few", b"").header("content-type", "application/grpc");
    let call = http::send(edge, &call).expect("a response");
    assert_eq!(call.headers.get("grpc-status"), Some("8"));
    for (path, expected) in [("/text", 200), ("/number", 403), ("/object", 200), ("/nothing", 200)] {
        assert_eq!(status(&Request::get(path)), expected, "{path}");
    }
    trailers(edge);
    slow(edge, &envoy);
    connect(&envoy).write_all(b"PING\r\n").expect("it is sent");
    eventually("Envoy to read it", || ran(&envoy.log()).contains("on_network_filter_read").then_some(()));
    redis.stop();
    eventually("the connection to end", || {
        ran(&envoy.log()).contains("callback_network_filter_close").then_some(())
    });
    let is_open = || {
        status(&get());
        envoy.stat("wasmcustom.weir.breaker_open") > 0
    };
    eventually("the breaker to open", || is_open().then_some(()));
    redis.restart();
    eventually("the breaker to close", || (!is_open()).then_some(()));
    end(&envoy)
}

fn without_a_clock() -> BTreeSet<String> {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), upstream());
    let envoy = without("weir-clock")(template(redis.address(), upstream)).start();
    let admitted = http::send(envoy.address("edge"), &get()).expect("a response");
    assert_eq!(admitted.status, 200);
    eventually("the operator to be told", || envoy.log().contains("nothing listens at @").then_some(()));
    end(&envoy)
}

/// Envoy ends by itself, and what it has is destroyed.
fn end(envoy: &Envoy) -> BTreeSet<String> {
    assert!(crate::support::signal("-TERM", envoy.pid()));
    eventually("Envoy to end", || ran(&envoy.log()).contains("on_http_filter_config_destroy").then_some(()));
    eventually("its listeners to end", || {
        ran(&envoy.log()).contains("on_network_filter_config_destroy").then_some(())
    });
    ran(&envoy.log())
}

/// A request with a body and trailers, and a response with both.
fn trailers(edge: SocketAddr) {
    let mut client = TcpStream::connect(edge).expect("a connection");
    let request = "POST / HTTP/1.1\r\nhost: weir.test\r\ntransfer-encoding: chunked\r\nte: trailers\r\ntrailer: x-end\r\n\r\n\
                   3\r\nabc\r\n0\r\nx-end: 1\r\n\r\n";
    client.write_all(request.as_bytes()).expect("it is sent");
    let mut response = BufReader::new(client).lines().map(|line| line.expect("a line"));
    assert!(response.any(|line| line == "x-end: 1"), "the response's trailer");
}

/// A client that asks for much and reads nothing until Envoy's buffer is full.
fn slow(edge: SocketAddr, envoy: &Envoy) {
    let mut client = TcpStream::connect(edge).expect("a connection");
    client
        .write_all(b"GET /large HTTP/1.1\r\nhost: weir.test\r\nconnection: close\r\n\r\n")
        .expect("it is sent");
    let mark = |name: &str| ran(&envoy.log()).contains(&format!("on_http_filter_downstream_{name}"));
    eventually("a full buffer", || mark("above_write_buffer_high_watermark").then_some(()));
    let mut response = Vec::new();
    client.read_to_end(&mut response).expect("a response");
    assert!(response.len() > LARGE);
    eventually("an empty buffer", || mark("below_write_buffer_low_watermark").then_some(()));
}

/// More than the buffers of all sockets between.
const LARGE: usize = 32 * 1024 * 1024;

/// Answers with trailers, or at length. It lives as long as the process.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || answer(connection));
        }
    });
    address
}

fn answer(mut connection: TcpStream) {
    let mut lines = BufReader::new(connection.try_clone().expect("a second handle")).lines();
    while let Some(Ok(first)) = lines.next() {
        let head: Vec<_> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        if head.iter().any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked")) {
            lines.by_ref().map_while(Result::ok).find(String::is_empty);
        }
        let sent = if first.contains("/large") {
            let begin = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n");
            connection.write_all(begin.as_bytes()).and_then(|()| connection.write_all(&vec![b'x'; LARGE]))
        } else {
            connection.write_all(
                b"HTTP/1.1 200 OK\r\nratelimit: theirs\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n\r\n\
                  3\r\nabc\r\n0\r\nx-end: 1\r\n\r\n",
            )
        };
        if sent.is_err() {
            return;
        }
    }
}
