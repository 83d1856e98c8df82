// SPDX-License-Identifier: Apache-2.0
//! `weir import envoy`: what it makes limits as Envoy's own filter does, on the routes that it names. weir knows a route by its name.
//! And what `docs/beside.md` says of weir and other filters in one chain.

use std::fs;
use std::net::SocketAddr;

use crate::platforms::weir;
use crate::support::envoy::Template;
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, PATIENT, limited, template_on};
use crate::support::{TempFolder, eventually};

pub const TESTS: [(&str, fn()); 5] = [
    ("import envoy: local_ratelimit, its routes in the plugin", || of_envoys_filter(Host::Wasm)),
    ("import envoy: local_ratelimit, its routes in the dynamic module", || of_envoys_filter(Host::Native)),
    ("import envoy: BackendTrafficPolicy, on the names that Envoy Gateway gives to routes", of_a_gateway),
    ("beside: local_ratelimit before weir, and behind it", beside_envoys_filter),
    ("beside: compressor before weir, and behind it", beside_the_compressor),
];

/// Routes as Envoy's administrators name them, and as Envoy Gateway does.
const ROUTES: [(&str, &str); 4] = [
    ("slow", "/slow"),
    ("httproute/shop/orders/rule/0/match/0/any", "/orders"),
    ("httproute/shop/orders-old/rule/0/match/0/any", "/old"),
    ("rest", "/"),
];

/// The routes. One of them has a filter of its own.
fn routes(of_slow: &str) -> String {
    let indent = " ".repeat(14);
    let route = |(name, prefix): &(&str, &str)| {
        let own = if *name == "slow" { of_slow } else { "" };
        format!(
            "{indent}- {{name: {name:?}, match: {{prefix: {prefix}}}, route: {{cluster: upstream}}{own}}}\n"
        )
    };
    ROUTES.iter().map(route).collect()
}

/// Envoy's own filter, with so many tokens for an hour.
fn local(prefix: &str, tokens: u32) -> String {
    format!(
        "{{\"@type\": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: {prefix}, \
         token_bucket: {{max_tokens: {tokens}, tokens_per_fill: 1, fill_interval: 3600s}}, \
         filter_enabled: {{default_value: {{numerator: 100}}}}, filter_enforced: {{default_value: {{numerator: 100}}}}}}"
    )
}

/// An Envoy with its own filter: six requests, and three in `slow`.
fn with_envoys_filter(upstream: SocketAddr) -> String {
    let slow = format!(", typed_per_filter_config: {{local: {}}}", local("slow", 3));
    format!(
        r#"static_resources:
  listeners:
  - name: edge
    address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: edge
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
{}          http_filters:
          - {{name: local, typed_config: {}}}
          - {{name: router, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}
  clusters:
  - name: upstream
    load_assignment: {{cluster_name: upstream, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}}}]}}]}}
"#,
        routes(&slow),
        local("all", 6),
        upstream.port(),
    )
}

/// The number of requests that pass, of eight for each path.
fn passed(edge: SocketAddr) -> [usize; 4] {
    ROUTES.map(|(_, path)| {
        let send = |_: &usize| http::send(edge, &Request::get(path)).expect("a response").status;
        (0..8).filter(|number| send(number) == 200).count()
    })
}

/// The number of requests that pass under the output of `weir import envoy` for a file.
fn imported(host: Host, text: &str, upstream: &Upstream) -> [usize; 4] {
    let folder = TempFolder::new("routes");
    let file = folder.path().join("old.yaml");
    fs::write(&file, text).expect("a file");
    let (status, made, said) = weir(&["import", "envoy", file.to_str().expect("UTF-8")]);
    assert_eq!(status, 0, "{said}");
    let limiter =
        format!("# imported\nstore: {{cluster: weir-bridge, deadline: 10s, on_failure: deny}}\n{made}");
    let redis = Redis::start().expect("a redis-server");
    let shipped =
        "              - match: {prefix: /}\n                route: {cluster: upstream, timeout: 0s}\n";
    let envoy =
        template_on(host, &limiter, redis.address(), upstream.address()).with(shipped, routes("")).start();
    passed(envoy.address("edge"))
}

fn of_envoys_filter(host: Host) {
    let upstream = Upstream::start();
    let config = with_envoys_filter(upstream.address());
    let theirs = passed(Template::new(&config).start().address("edge"));
    // Six in all other routes together.
    assert_eq!(theirs, [3, 6, 0, 0]);
    assert_eq!(imported(host, &config, &upstream), theirs);
}

fn of_a_gateway() {
    let policy = "apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: orders, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: orders}]
  rateLimit: {type: Global, global: {rules: [{limit: {requests: 5, unit: Day}}]}}
";
    assert_eq!(imported(Host::chosen(), policy, &Upstream::start()), [8, 5, 8, 8]);
}

/// The place before weir's filter, and the one behind it, in the shipped configuration.
const PLACES: [&str; 2] = ["          - name: weir\n", "          - name: router\n"];

fn beside_envoys_filter() {
    let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
    // weir admits five; Envoy's filter, three. The number of requests that weir asks Redis for.
    for (place, asked) in PLACES.into_iter().zip([3, 5]) {
        redis.connect().call(&[b"FLUSHALL"]);
        let filter = format!("          - {{name: local, typed_config: {}}}\n{place}", local("flood", 3));
        let envoy = template_on(Host::chosen(), &limited(5), redis.address(), upstream.address())
            .with(place, filter)
            .start();
        let edge = envoy.address("edge");
        let statuses: Vec<_> =
            (0..8).map(|_| http::send(edge, &Request::get("/")).expect("a response").status).collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429, 429, 429, 429], "{place}");
        eventually("the counters", || (envoy.stat("wasmcustom.weir.admitted") == asked).then_some(()));
    }
}

/// A response that costs what its body says: five. Behind weir's filter, the compressor has the body first, and weir reads no cost.
fn beside_the_compressor() {
    let limiter = format!(
        r#"{{{PATIENT}, "policies": [{{"name": "p", "subject": [{{"literal": "all"}}],
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 10}}],
            "settle": [{{"cost": {{"body_json": {{"sum": [{{"paths": ["cost"]}}]}}}}}}]}}]}}"#
    );
    let compressor = r#"          - name: compressor
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor
              response_direction_config: {common_config: {min_content_length: 10}}
              compressor_library: {name: gzip, typed_config: {"@type": type.googleapis.com/envoy.extensions.compression.gzip.compressor.v3.Gzip}}
"#;
    let body = format!("{{\"cost\": 5, \"text\": \"{}\"}}", "a".repeat(2_000));
    let says = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for (place, charged, unreadable) in [(PLACES[0], 4, 0), (PLACES[1], 0, 1)] {
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        let filter = format!("{compressor}{place}");
        let envoy = template_on(Host::chosen(), &limiter, redis.address(), upstream.address())
            .with(place, filter)
            .start();
        let request = Request::post("/say", says.as_bytes()).header("accept-encoding", "gzip");
        let response = http::send(envoy.address("edge"), &request).expect("a response");
        assert_eq!(response.headers.get("content-encoding"), Some("gzip"), "{place}");
        let stats = || {
            ["units_charged", "bodies_unreadable"].map(|name| envoy.stat(&format!("wasmcustom.weir.{name}")))
        };
        eventually("what it has cost", || (stats() == [charged, unreadable]).then_some(()));
    }
}
