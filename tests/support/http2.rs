// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 for tests: an Envoy that takes HTTP/1.1 and passes it on over HTTP/2 as it comes, trailers too, and WebSockets as an extended CONNECT
//! (RFC 8441). So the clients of [`http`](super::http) reach an edge over both, and requests at once share one connection.

use std::net::SocketAddr;

use super::envoy::{Envoy, Template};

/// An Envoy before `edge`. Its listener is `front`.
pub fn front(edge: SocketAddr) -> Envoy {
    Template::new(CONFIG).with("EDGE", edge.port()).start()
}

const CONFIG: &str = r#"
static_resources:
  listeners:
  - name: front
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          http_protocol_options: {enable_trailers: true}
          upgrade_configs: [{upgrade_type: websocket}]
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: edge, timeout: 0s}
          http_filters:
          - name: router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: edge
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {allow_connect: true}}
    load_assignment:
      cluster_name: edge
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: EDGE}}}
"#;
