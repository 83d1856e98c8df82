// SPDX-License-Identifier: Apache-2.0
//! The attributes that the dynamic module reads of a request, one by one, in a real Envoy: each value that the table of
//! `src/request/module.rs` names arrives in a key in Redis, and the plugin reads the same.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, string::Ia5String,
};
use weir::request::module::TEXTS;

use crate::support::envoy::{Envoy, Template};
use crate::support::http::{self, Request};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::{Host, PATIENT, World, get, limited_by, template_on};
use crate::support::{TempFolder, eventually};

pub const TESTS: &[(&str, fn())] = &[
    ("native: each attribute has the value that the plugin reads", each_attribute),
    ("native: a value that is no text is unreadable, not absent", no_text),
];

/// An authority, and a certificate for each side.
struct Certificates(TempFolder);

impl Certificates {
    fn new() -> Self {
        let folder = TempFolder::new("attributes");
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("a CA");
        write(folder.path(), "ca.crt", &authority.pem());
        for side in ["server", "client"] {
            let key = KeyPair::generate().expect("a key");
            let mut certificate =
                CertificateParams::new([format!("{side}.test"), format!("other.{side}.test")])
                    .expect("names");
            let uri = Ia5String::try_from(format!("spiffe://test/{side}")).expect("a URI");
            certificate.subject_alt_names.push(SanType::URI(uri));
            certificate.distinguished_name = rcgen::DistinguishedName::new();
            certificate.distinguished_name.push(DnType::CommonName, side);
            let certificate = certificate.signed_by(&key, &authority).expect("a certificate");
            write(folder.path(), &format!("{side}.crt"), &certificate.pem());
            write(folder.path(), &format!("{side}.key"), &key.serialize_pem());
        }
        Self(folder)
    }

    /// Both sides of a connection show their certificates, and verify the other's.
    fn context(&self, side: &str) -> String {
        let file = |name: &str| self.0.path().join(name).display().to_string();
        let kind = if side == "server" { "Downstream" } else { "Upstream" };
        let rest = if side == "server" { "require_client_certificate: true" } else { "sni: server.test" };
        format!(
            "transport_socket: {{name: tls, typed_config: {{\"@type\": \
             type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.{kind}TlsContext, {rest}, \
             common_tls_context: {{tls_params: {{tls_maximum_protocol_version: TLSv1_3}}, tls_certificates: \
             [{{certificate_chain: {{filename: {}}}, private_key: {{filename: {}}}}}], validation_context: \
             {{trusted_ca: {{filename: {}}}}}}}}}}}",
            file(&format!("{side}.crt")),
            file(&format!("{side}.key")),
            file("ca.crt"),
        )
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("a file");
}

/// Takes connections and passes their bytes on through TLS.
fn through_tls(certificates: &Certificates, to: SocketAddr) -> Envoy {
    let context = certificates.context("client");
    Template::new(&format!(
        "static_resources:
  listeners:
  - name: front
    address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
    filter_chains:
    - filters:
      - name: tcp
        typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, \
         stat_prefix: front, cluster: edge}}
  clusters:
  - name: edge
    type: STATIC
    connect_timeout: 10s
    {context}
    load_assignment:
      cluster_name: edge
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}}}]}}]
",
        to.port()
    ))
    .start()
}

/// Filters before weir that write metadata and the filter state.
pub const FILTERS: &str = r#"          http_filters:
          - name: metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata: [{metadata_namespace: account, value: {plan: gold, seats: 7, trial: true, owner: {name: ann}, nothing: null}}]
          - name: state
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config
              on_request_headers:
              - {object_key: weir.copy, factory_key: envoy.string, format_string: {text_format_source: {inline_string: "%DYNAMIC_METADATA(account:plan)%"}}}
              - {object_key: weir.opaque, factory_key: envoy.network.application_protocols, format_string: {text_format_source: {inline_string: "a.test"}}}
              - {object_key: weir.object, factory_key: envoy.tcp_proxy.cluster, format_string: {text_format_source: {inline_string: "%DYNAMIC_METADATA(account:plan)%"}}}
"#;

/// Attributes beside those of the table, as their words, and their values.
const OTHERS: &[(&[&str], &str)] = &[
    (&["request", "headers", "x-user"], "ann"),
    (&["request", "headers", "host"], "weir.test"),
    (&["filter_state", "weir.copy"], "gold"),
    (&["filter_state", "weir.object"], "gold"),
    (&["filter_state", "weir.absent"], "%-"),
    (&["metadata", "filter_metadata", "account", "plan"], "gold"),
    (&["metadata", "filter_metadata", "account", "absent"], "%-"),
];

/// Stands for any port of this machine.
const ADDRESS: &str = "an address";
/// Stands for a digest, the same in both hosts.
const DIGEST: &str = "a digest";

/// The values of this test's request, by the names of the table.
fn expected(name: &str) -> &'static str {
    match name {
        "request.path" => "/a/b?c=d",
        "request.url_path" => "/a/b",
        "request.host" => "weir.test",
        "request.scheme" => "https",
        "request.method" => "GET",
        "request.referer" => "http://from.test/",
        "request.useragent" => "test/1",
        "request.id" => "11111111-2222-4333-8444-555555555555",
        "request.protocol" => "HTTP/1.1",
        "request.query" => "c=d",
        "source.address" | "destination.address" => ADDRESS,
        "connection.requested_server_name" => "server.test",
        "connection.tls_version" => "TLSv1.3",
        "connection.subject_local_certificate" => "CN=server",
        "connection.subject_peer_certificate" => "CN=client",
        "connection.dns_san_local_certificate" => "server.test",
        "connection.dns_san_peer_certificate" => "client.test",
        "connection.uri_san_local_certificate" => "spiffe://test/server",
        "connection.uri_san_peer_certificate" => "spiffe://test/client",
        "connection.sha256_peer_certificate_digest" => DIGEST,
        "xds.cluster_name" => "upstream",
        "xds.route_name" => "route",
        "xds.virtual_host_name" => "all",
        "xds.filter_chain_name" => "chain",
        other => panic!("{other} has no value in this test"),
    }
}

fn each_attribute() {
    let certificates = Certificates::new();
    let table = TEXTS.iter().map(|(name, _)| (name.split('.').collect::<Vec<_>>(), expected(name)));
    let others = OTHERS.iter().map(|(path, value)| (path.to_vec(), *value));
    let attributes: Vec<_> = table.chain(others).collect();
    let limit = r#"{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 100}"#;
    let policies = attributes.iter().enumerate().map(|(number, (path, _))| {
        let path = serde_json::Value::from(path.clone());
        format!(r#"{{"name": "p{number}", "subject": [{{"attribute": {{"path": {path}}}}}], "limits": [{limit}]}}"#)
    });
    let limiter = format!("{{{PATIENT}, \"policies\": [{}]}}", policies.collect::<Vec<_>>().join(", "));
    let mut digests = None;
    for host in [Host::Native, Host::Wasm] {
        let (redis, upstream) = (Redis::start().expect("a redis-server"), Upstream::start());
        let chain = format!(
            "    listener_filters: [{{name: tls, typed_config: {{\"@type\": \
             type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}}}]\n    filter_chains:\n    \
             - name: chain\n      {}\n      filters:\n      - name: http\n",
            certificates.context("server"),
        );
        let edge = template_on(host, &limiter, redis.address(), upstream.address())
            .with("    filter_chains:\n    - filters:\n      - name: http\n", chain)
            .with(
                "              - match: {prefix: /}\n",
                "              - name: route\n                match: {prefix: /}\n",
            )
            .with("          http_filters:\n", FILTERS)
            .with(
                "          stat_prefix: edge\n",
                "          stat_prefix: edge\n          preserve_external_request_id: true\n",
            )
            .start();
        let front = through_tls(&certificates, edge.address("edge"));
        let request = Request::get("/a/b?c=d")
            .header("x-user", "ann")
            .header("referer", "http://from.test/")
            .header("user-agent", "test/1")
            .header("x-request-id", "11111111-2222-4333-8444-555555555555");
        let response = http::send(front.address("front"), &request).expect("a response");
        assert_eq!(response.status, 200, "{host:?}: {response:?}\n{}", edge.log());
        let keys = redis.connect().call(&[b"KEYS", b"*"]);
        let keys = String::from_utf8(keys).expect("text");
        for (number, (path, expected)) in attributes.iter().enumerate() {
            let begin = format!("weir:{{p{number}|");
            let value = keys.lines().find_map(|line| line.strip_prefix(&begin)?.strip_suffix("}:l"));
            let value = decoded(value.unwrap_or_else(|| panic!("{path:?} has no key in {keys}")));
            let is_right = match *expected {
                // With its port.
                ADDRESS => value.strip_prefix("127.0.0.1:").is_some_and(|port| port.parse::<u16>().is_ok()),
                DIGEST => digests.get_or_insert_with(|| value.clone()) == &value && value.len() == 64,
                expected => value == expected,
            };
            assert!(is_right, "{host:?}: {} is {value:?}, not {expected:?}", path.join("."));
        }
    }
}

/// A value that the plugin hands over as bytes has no text to compare with: the dynamic module does not take it for absent.
fn no_text() {
    let limiter = |path: &[&str]| {
        let path = serde_json::Value::from(path.to_vec());
        limited_by(&format!(r#"{{"attribute": {{"path": {path}}}, "on_missing": "skip"}}"#), 1)
    };
    let account = |key: &'static str| ["metadata", "filter_metadata", "account", key];
    for (path, expected, unreadable) in [
        (&account("plan")[..], [200, 429], 0),
        (&account("absent"), [200, 200], 0),
        (&account("seats"), [403, 403], 2),
        (&account("trial"), [403, 403], 2),
        (&account("owner"), [403, 403], 2),
        (&account("nothing"), [403, 403], 2),
        (&["filter_state", "weir.copy"], [200, 429], 0),
        (&["filter_state", "weir.absent"], [200, 200], 0),
        (&["filter_state", "weir.opaque"], [403, 403], 2),
    ] {
        let key = path.join(".");
        let world = World::on(Host::Native, &limiter(path), 1, 1, |envoy| {
            envoy.with("          http_filters:\n", FILTERS)
        });
        let began = Instant::now();
        assert_eq!([(); 2].map(|()| world.send(&get()).status), expected, "{key}");
        let most = 1 + began.elapsed().as_secs();
        eventually("each to be counted", || {
            (world.envoy().stat("wasmcustom.weir.attribute_unreadable") == unreadable).then_some(())
        });
        let line = format!("the attribute {key} cannot be read");
        let lines = world.envoy().log().matches(&line).count() as u64;
        let wanted = if unreadable > 0 { 1..=most } else { 0..=0 };
        assert!(wanted.contains(&lines), "one line a second: {lines}");
    }
}

/// A part of a key as the value that it was.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part;
    while let Some(at) = rest.find('%') {
        bytes.extend(rest[..at].bytes());
        match u8::from_str_radix(rest.get(at + 1..at + 3).unwrap_or(""), 16) {
            Ok(byte) => {
                bytes.push(byte);
                rest = &rest[at + 3..];
            }
            Err(_) => {
                bytes.push(b'%');
                rest = &rest[at + 1..];
            }
        }
    }
    bytes.extend(rest.bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}
