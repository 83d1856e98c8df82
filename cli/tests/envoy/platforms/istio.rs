// SPDX-License-Identifier: Apache-2.0
//! `--for istio`: the resources, applied as istiod applies them to the configuration of a gateway.
//!
//! In istiod (`pilot/pkg/networking/core/envoyfilter`), an EnvoyFilter adds clusters and listeners, and inserts filters. A WasmPlugin,
//! which only `--image` makes, needs a registry, and is not applied here.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::envoy::head;
use super::stored::Stored;
use super::{documents, limiter, limits, of_kind, render, two_regions, weir};
use crate::support::envoy::Template;
use crate::support::eventually;

pub const TESTS: &[(&str, fn())] = &[
    ("istio: with one Redis", || gateway("redis", &limiter())),
    ("istio: over TLS with a password", || gateway("tls", &limiter())),
    ("istio: with Sentinel", || gateway("sentinel", &limiter())),
    ("istio: with a Redis Cluster", || gateway("cluster", &limiter())),
    ("istio: two regions over TLS with a password", || {
        two_regions("tls", "istio", "wasm", &[], "0.0.0.0_8080", apply)
    }),
    ("istio: two regions, each with a Redis Cluster", || {
        two_regions("cluster", "istio", "wasm", &[], "0.0.0.0_8080", apply)
    }),
    ("istio: a policy that reads bodies", bodies),
    ("istio: behind cors, preflights cost nothing and rejections are shown", behind_cors),
    ("istio: fields by version, image and selector", fields),
];

/// The configuration that istiod makes for an ingress gateway, without the filters that only Istio's Envoy has.
fn generated(upstream: std::net::SocketAddr) -> Value {
    let filter = |name: &str, kind: &str| json!({"name": name, "typed_config": {"@type": format!("type.googleapis.com/{kind}")}});
    json!({
        "node": {"id": "router~10.0.0.1~gateway.istio-system~istio-system.svc.cluster.local", "cluster": "istio-ingressgateway.istio-system"},
        "bootstrap_extensions": [filter("envoy.bootstrap.internal_listener", "envoy.extensions.bootstrap.internal_listener.v3.InternalListener")],
        "static_resources": {
            "listeners": [{
                "name": "0.0.0.0_8080",
                "traffic_direction": "OUTBOUND",
                "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
                "filter_chains": [{"filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                        "stat_prefix": "outbound_0.0.0.0_8080",
                        "use_remote_address": true,
                        "normalize_path": true,
                        "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
                        "forward_client_cert_details": "SANITIZE_SET",
                        "server_name": "istio-envoy",
                        "route_config": {
                            "name": "http.8080",
                            "virtual_hosts": [{
                                "name": "*:80",
                                "domains": ["*"],
                                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "outbound|80||web.default.svc.cluster.local", "timeout": "0s"}}],
                            }],
                        },
                        "http_filters": [
                            filter("envoy.filters.http.grpc_stats", "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig"),
                            filter("envoy.filters.http.fault", "envoy.extensions.filters.http.fault.v3.HTTPFault"),
                            filter("envoy.filters.http.cors", "envoy.extensions.filters.http.cors.v3.Cors"),
                            filter("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router"),
                        ],
                    },
                }]}],
            }],
            "clusters": [{
                "name": "outbound|80||web.default.svc.cluster.local",
                "type": "STATIC",
                "load_assignment": {
                    "cluster_name": "outbound|80||web.default.svc.cluster.local",
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": upstream.port()}}}}]}],
                },
            }],
        },
    })
}

/// The HTTP filters of the gateway.
fn filters(config: &mut Value) -> &mut Vec<Value> {
    config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
        .as_array_mut()
        .expect("a list")
}

/// Applies an EnvoyFilter.
fn apply_filter(filter: &Value, config: &mut Value) {
    assert_eq!(filter["spec"]["workloadSelector"]["labels"], json!({"istio": "ingressgateway"}));
    for patch in filter["spec"]["configPatches"].as_array().expect("patches") {
        let (operation, value) =
            (patch["patch"]["operation"].as_str().expect("one"), &patch["patch"]["value"]);
        assert_eq!(patch["match"]["context"], "GATEWAY");
        match (patch["applyTo"].as_str().expect("one"), operation) {
            ("CLUSTER", "ADD") => {
                config["static_resources"]["clusters"].as_array_mut().expect("a list").push(value.clone())
            }
            ("LISTENER", "ADD") => {
                config["static_resources"]["listeners"].as_array_mut().expect("a list").push(value.clone())
            }
            ("HTTP_FILTER", "INSERT_BEFORE") => {
                let named = &patch["match"]["listener"]["filterChain"]["filter"];
                assert_eq!(named["name"], "envoy.filters.network.http_connection_manager");
                let filters = filters(config);
                let place = filters
                    .iter()
                    .position(|filter| filter["name"] == named["subFilter"]["name"])
                    .expect("the filter");
                filters.insert(place, value.clone());
            }
            ("NETWORK_FILTER", "MERGE") => {
                let manager = &mut config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]
                    [0]["typed_config"];
                for (name, field) in value["typed_config"].as_object().expect("fields") {
                    manager[name] = field.clone();
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Applies all, with files where they would be mounted.
pub fn apply(stored: &Stored, text: &str) -> Value {
    let sds = stored.folder.path().join("redis-password.yaml");
    let text = text.replace("/etc/weir-config/redis-password.yaml", &sds.display().to_string());
    let text = text.replace("path: /etc/weir-config", &format!("path: {}", stored.folder.path().display()));
    let documents = documents(&text);
    if let Some(map) = of_kind(&documents, "ConfigMap") {
        fs::write(&sds, map["data"]["redis-password.yaml"].as_str().expect("a text")).expect("a file");
    }
    configured(stored, &documents)
}

/// The configuration of a gateway, with an EnvoyFilter.
pub fn configured(stored: &Stored, documents: &[Value]) -> Value {
    let mut config = generated(stored.upstream.address());
    apply_filter(of_kind(documents, "EnvoyFilter").expect("an EnvoyFilter"), &mut config);
    config
}

fn gateway(store: &'static str, limiter: &str) {
    let stored = Stored::start(store);
    let text = render(stored.folder.path(), limiter, &stored.arguments("istio", "wasm"));
    limits(&apply(&stored, &text), "0.0.0.0_8080");
    assert!(stored.asked(), "Redis has run no script");
}

fn behind_cors() {
    let stored = Stored::start("redis");
    let text = render(stored.folder.path(), &limiter(), &stored.arguments("istio", "wasm"));
    let mut config = apply(&stored, &text);
    let route = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes/0";
    config.pointer_mut(route).expect("the route")["typed_per_filter_config"] = json!({"envoy.filters.http.cors": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy",
        "allow_origin_string_match": [{"exact": "https://page.test"}],
        "allow_methods": "PUT",
    }});
    let envoy = Template::new(&config.to_string()).start();
    let edge = envoy.address("0.0.0.0_8080");
    let send = |method: &str| {
        let mut socket = TcpStream::connect(edge).expect("a connection");
        let request = format!(
            "{method} / HTTP/1.1\r\nhost: a\r\norigin: https://page.test\r\naccess-control-request-method: PUT\r\nconnection: close\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).expect("sent");
        let head = head(&mut socket);
        let is_shown = head.contains("\r\naccess-control-allow-origin: https://page.test\r\n");
        (head.get(9..12).unwrap_or_default().to_owned(), is_shown)
    };
    eventually("the store to answer", || (send("GET").0 == "200").then_some(()));
    for _ in 0..9 {
        assert_eq!(send("OPTIONS"), ("200".into(), true));
    }
    let responses: Vec<_> = (0..4).map(|_| send("GET")).collect();
    assert_eq!(
        responses,
        ["200", "200", "429", "429"].map(|status| (status.into(), true)),
        "{}",
        envoy.log()
    );
}

/// The filter itself says that Envoy shows bodies. A WasmPlugin cannot.
fn bodies() {
    let limiter = limiter().replace(
        r#""policies": ["#,
        r#""policies": [{"name": "b", "match": {"method": ["POST"]}, "subject": [{"body_json": {"path": "user"}}, {"client_address": {}}],
            "limits": [{"name": "m", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 3}]}, "#,
    );
    gateway("redis", &limiter);
    let stored = Stored::start("redis");
    let file = stored.folder.path().join("weir.json");
    fs::write(&file, &limiter).expect("a file");
    let (status, _, error) =
        weir(&["render", file.to_str().expect("UTF-8"), "--for", "istio", "--image", "oci://r/weir:1"]);
    assert!(status == 2 && error.contains("reads bodies"), "{error}");
}

fn fields() {
    let stored = Stored::start("redis");
    let file = stored.folder.path().join("weir.json");
    fs::write(&file, limiter()).expect("a file");
    let image = ["--image", "oci://registry.test/weir:1"];
    let before_reload = [image[0], image[1], "--version", "1.26"];
    let rows: [(&[&str], &str, &str, &str); 4] = [
        (&image, "spec/failStrategy", "FAIL_RELOAD", "WasmPlugin"),
        (&before_reload, "spec/failStrategy", "FAIL_CLOSE", "WasmPlugin"),
        (&image, "spec/url", "oci://registry.test/weir:1", "WasmPlugin"),
        (
            &["--selector", "app=web", "--namespace", "web"],
            "spec/workloadSelector/labels/app",
            "web",
            "EnvoyFilter",
        ),
    ];
    for (more, path, value, kind) in rows {
        let mut arguments = vec!["render", file.to_str().expect("UTF-8"), "--for", "istio"];
        arguments.extend(more);
        let (status, out, error) = weir(&arguments);
        // Istio 1.26 has an older Envoy than those that weir was run with.
        let warned = more
            .contains(&"1.26")
            .then_some("weir was not run with Envoy 1.34, which is older than 1.36: try it first\n");
        assert_eq!((status, error.as_str()), (0, warned.unwrap_or_default()), "{more:?}");
        let documents = documents(&out);
        let found = of_kind(&documents, kind).and_then(|document| document.pointer(&format!("/{path}")));
        assert_eq!(found, Some(&Value::from(value)), "{more:?}: {out}");
    }
}
