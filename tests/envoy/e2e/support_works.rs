// SPDX-License-Identifier: Apache-2.0
//! What the other tests stand on, seen working on its own: Envoy in front of the upstream, and nothing of weir.
#![allow(missing_docs, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod support;

use std::net::TcpStream;
use std::process::ExitCode;
use std::thread;

use support::envoy::{Envoy, Template};
use support::eventually;
use support::http::{self, Exchange, Request};
use support::upstream::{Upstream, body_account};

const DIRECT: &str = r#"
static_resources:
  listeners:
  - name: ingress
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: upstream}}]}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: upstream
    circuit_breakers: {thresholds: [{max_connections: 4096, max_pending_requests: 4096, max_requests: 4096}]}
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ${UPSTREAM_PORT}}}}
"#;

fn main() -> ExitCode {
    support::run_with_envoy(&[
        ("a body arrives whole", a_body_arrives_whole),
        ("a burst reaches every worker and all of it is answered", a_burst_is_answered),
        (
            "held requests stay in flight until released, and clients may leave before",
            held_requests_stay_in_flight,
        ),
        ("envoy outlives the thread that started it and nothing else", envoy_lives_as_long_as_its_owner),
        ("an envoy that cannot start says why", an_envoy_that_cannot_start_says_why),
    ])
}

fn direct(upstream: &Upstream) -> Template {
    Template::new(DIRECT).with("${UPSTREAM_PORT}", upstream.address().port())
}

fn a_body_arrives_whole() {
    let upstream = Upstream::start();
    let envoy = direct(&upstream).start();
    let body = b"0123456789abcdef\r\n".repeat(64 * 1024);
    let request = Request::post("/echo", &body).header("x-asked", "for");
    let response = http::send(envoy.address("ingress"), &request).expect("a response");
    assert_eq!(response.status, 200);
    assert_eq!(response.headers.get("Content-Type"), Some("text/plain"));
    assert!(response.text().starts_with("POST /echo HTTP/1.1\n"), "{}", response.text());
    assert!(response.text().contains("\nx-asked: for\n"), "{}", response.text());
    assert_eq!(response.text().lines().last(), Some(body_account(&body).as_str()));
    assert_eq!(upstream.requests(), 1);
}

fn a_burst_is_answered() {
    let upstream = Upstream::start();
    let envoy = direct(&upstream).concurrency(2).start();
    assert_eq!(envoy.stat("server.concurrency"), 2);
    let requests = (0..1_000).map(|n| Request::get(&format!("/{n}")));
    let responses = http::burst(envoy.address("ingress"), requests).expect("responses");
    for (n, response) in responses.iter().enumerate() {
        assert_eq!(response.status, 200);
        assert!(response.text().starts_with(&format!("GET /{n} ")), "{n}: {}", response.text());
    }
    assert_eq!((responses.len(), upstream.requests()), (1_000, 1_000));
    for worker in 0..2 {
        let connections = envoy.stat(&format!("listener.127.0.0.1_0.worker_{worker}.downstream_cx_total"));
        assert!(connections > 0, "worker {worker} had none of the connections");
    }
}

fn held_requests_stay_in_flight() {
    let upstream = Upstream::start();
    let envoy = direct(&upstream).start();
    let active = |expected: u64| {
        eventually(&format!("{expected} requests in flight"), || {
            (envoy.stat("http.ingress.downstream_rq_active") == expected).then_some(())
        });
    };
    let mut held =
        http::burst_held(envoy.address("ingress"), (0..5).map(|_| Request::get("/hold"))).expect("sent");
    eventually("all requests to be held", || (upstream.held() == 5).then_some(()));
    active(5);
    held.drain(..2).for_each(Exchange::abort);
    active(3);
    assert_eq!(http::send(envoy.address("ingress"), &Request::get("/")).expect("a response").status, 200);
    upstream.release();
    let statuses: Vec<u16> = held.into_iter().map(|held| held.finish().expect("a response").status).collect();
    assert_eq!(statuses, [200, 200, 200]);
    active(0);
}

fn envoy_lives_as_long_as_its_owner() {
    let upstream = Upstream::start();
    let template = direct(&upstream);
    let envoy: Envoy = thread::spawn(move || template.start()).join().expect("an Envoy");
    let ingress = envoy.address("ingress");
    assert_eq!(http::send(ingress, &Request::get("/")).expect("a response").status, 200);
    drop(envoy);
    assert!(TcpStream::connect(ingress).is_err(), "it must be gone when its owner is");
}

fn an_envoy_that_cannot_start_says_why() {
    let broken = Template::new(DIRECT).with("${UPSTREAM_PORT}", "no-port");
    let log = broken.try_start().expect_err("it cannot start");
    assert!(log.contains("no-port"), "{log}");
}
