// SPDX-License-Identifier: Apache-2.0
//! `--for istio`: the resources, applied as istiod applies them to the configuration of a gateway.
//!
//! What istiod does (`pilot/pkg/model/extensions.go`, `pilot/pkg/networking/core/envoyfilter`): a WasmPlugin becomes a filter with
//! `config_discovery` in the place of its phase, and a resource of ECDS whose `root_id` is `pluginName`, with the configuration as a
//! `StringValue` and without a `vm_id`. An EnvoyFilter adds clusters and listeners, and inserts filters.

use std::fs;

use serde_json::{Value, json};

use super::stored::Stored;
use super::{documents, limiter, limits, of_kind, render, two_regions, weir};

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
    ("istio: fields by version, image and selector", fields),
];

/// What istiod makes for an ingress gateway, without the filters that only Istio's Envoy has.
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

fn router(filters: &[Value]) -> usize {
    filters.iter().position(|filter| filter["name"] == "envoy.filters.http.router").expect("a router")
}

/// Applies a WasmPlugin: ECDS is a file here.
fn apply_plugin(plugin: &Value, config: &mut Value, ecds: &std::path::Path) {
    let spec = &plugin["spec"];
    assert_eq!((spec["pluginName"].as_str(), spec["phase"].as_str()), (Some("weir.limiter"), Some("AUTHZ")));
    let name = "extensions.istio.io/wasmplugin/istio-system.weir";
    let policy = match spec["failStrategy"].as_str() {
        Some("FAIL_RELOAD") => "FAIL_RELOAD",
        other => panic!("{other:?}"),
    };
    let file = spec["url"].as_str().and_then(|url| url.strip_prefix("file://")).expect("a file");
    let resource = json!({
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": name,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "istio-system.weir",
                "root_id": spec["pluginName"],
                "configuration": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": spec["pluginConfig"].to_string()},
                "failure_policy": policy,
                "vm_config": {
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": file}},
                    "environment_variables": {"key_values": {"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "1"}},
                },
            },
        },
    });
    fs::write(ecds, json!({"resources": [resource]}).to_string()).expect("a file");
    let filters = filters(config);
    let place = router(filters);
    filters.insert(
        place,
        json!({
            "name": name,
            "config_discovery": {
                "config_source": {"path_config_source": {"path": ecds}, "resource_api_version": "V3"},
                "type_urls": [
                    "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
                    "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
                ],
            },
        }),
    );
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
    let mut config = generated(stored.upstream.address());
    if let Some(plugin) = of_kind(&documents, "WasmPlugin") {
        apply_plugin(plugin, &mut config, &stored.folder.path().join("ecds.json"));
    }
    apply_filter(of_kind(&documents, "EnvoyFilter").expect("an EnvoyFilter"), &mut config);
    config
}

fn gateway(store: &'static str, limiter: &str) {
    let stored = Stored::start(store);
    let text = render(stored.folder.path(), limiter, &stored.arguments("istio", "wasm"));
    limits(&apply(&stored, &text), "0.0.0.0_8080");
    assert!(stored.asked(), "Redis has run no script");
}

/// A WasmPlugin cannot say that Envoy shows bodies, so an EnvoyFilter inserts the limiter.
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
    let rows: [(&[&str], &str, &str, &str); 4] = [
        (&[], "spec/failStrategy", "FAIL_RELOAD", "WasmPlugin"),
        (&["--version", "1.26"], "spec/failStrategy", "FAIL_CLOSE", "WasmPlugin"),
        (&["--image", "oci://registry.test/weir:1"], "spec/url", "oci://registry.test/weir:1", "WasmPlugin"),
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
        assert_eq!((status, error.as_str()), (0, ""), "{more:?}");
        let documents = documents(&out);
        let found = of_kind(&documents, kind).and_then(|document| document.pointer(&format!("/{path}")));
        assert_eq!(found, Some(&Value::from(value)), "{more:?}: {out}");
    }
}
