// SPDX-License-Identifier: Apache-2.0
//! `--for envoy-gateway`: the resources, applied as Envoy Gateway applies them to the configuration of a Gateway.
//!
//! Envoy Gateway (`internal/xds/translator`) makes of an EnvoyExtensionPolicy a filter that is disabled, with a `vm_id` of its own, the
//! configuration as a `StringValue` and `fail_open`, and each route enables it. An EnvoyPatchPolicy without a path adds whole resources.
//! With a path, it patches the resource of its name where `jsonPath` finds something; the resource is JSON with the names of protobuf's
//! fields.

use serde_json::{Value, json};

use super::stored::Stored;
use super::{documents, limiter, limits, of_kind, render, two_regions, walk};
use crate::support::envoy::Template;
use crate::support::http::{self, Request};
use crate::support::root;
use crate::support::weir::plugin;

pub const TESTS: &[(&str, fn())] = &[
    ("gateway: with one Redis", || patched("redis", "1.9", "default/eg/http")),
    ("gateway: over TLS with a password", || patched("tls", "1.9", "default/eg/http")),
    ("gateway: with Sentinel", || patched("sentinel", "1.9", "default/eg/http")),
    ("gateway: with a Redis Cluster", || patched("cluster", "1.9", "default/eg/http")),
    ("gateway: two regions over TLS with a password", || regions("tls")),
    ("gateway: two regions, each with a Redis Cluster", || regions("cluster")),
    ("gateway: with the names of version 1.10", || patched("redis", "1.10", "tcp-80")),
    ("gateway: the limiter as an EnvoyExtensionPolicy", extended),
    ("gateway: a policy that reads bodies", bodies),
    ("gateway: two listeners, one of them with two filter chains", several_listeners),
];

/// The configuration that Envoy Gateway makes for a Gateway with one listener and one route.
fn generated(listener: &str, upstream: std::net::SocketAddr) -> Value {
    json!({
        // Arguments of Envoy there.
        "node": {"id": "envoy-default-eg-0", "cluster": "default/eg"},
        "static_resources": {
            "listeners": [generated_listener(listener)],
            "clusters": [{
                "name": "httproute/default/web/rule/0",
                "type": "STATIC",
                "load_assignment": {
                    "cluster_name": "httproute/default/web/rule/0",
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": upstream.port()}}}}]}],
                },
            }],
        },
    })
}

fn generated_listener(name: &str) -> Value {
    json!({
        "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "max_connections_to_accept_per_socket_event": 1,
        "per_connection_buffer_limit_bytes": 32768,
        "default_filter_chain": {"name": name, "filters": [manager(name)]},
    })
}

fn manager(name: &str) -> Value {
    json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "http-10080",
            "use_remote_address": true,
            "normalize_path": true,
            "merge_slashes": true,
            "path_with_escaped_slashes_action": "UNESCAPE_AND_REDIRECT",
            "server_header_transformation": "PASS_THROUGH",
            "common_http_protocol_options": {"headers_with_underscores_action": "REJECT_REQUEST"},
            "route_config": {
                "name": name,
                "ignore_port_in_host_matching": true,
                "virtual_hosts": [{
                    "name": "weir_test",
                    "domains": ["*"],
                    "routes": [{
                        "name": "httproute/default/web/rule/0/match/0/weir_test",
                        "match": {"prefix": "/"},
                        "route": {"cluster": "httproute/default/web/rule/0", "upgrade_configs": [{"upgrade_type": "websocket"}]},
                    }],
                }],
            },
            "http_filters": [{
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                    "suppress_envoy_headers": true,
                },
            }],
        },
    })
}

/// Applies an EnvoyPatchPolicy. Returns the number of filters that it has inserted.
fn apply_patches(policy: &Value, config: &mut Value) -> usize {
    let spec = &policy["spec"];
    assert_eq!(
        spec["targetRef"],
        json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eg"})
    );
    assert_eq!(spec["type"], "JSONPatch");
    let mut inserted = 0;
    for patch in spec["jsonPatches"].as_array().expect("patches") {
        let (operation, kind) = (&patch["operation"], patch["type"].as_str().expect("a type"));
        let list = match kind {
            "type.googleapis.com/envoy.config.cluster.v3.Cluster" => "clusters",
            "type.googleapis.com/envoy.config.listener.v3.Listener" => "listeners",
            other => panic!("{other}"),
        };
        let all = config["static_resources"][list].as_array_mut().expect("a list");
        assert_eq!(operation["op"], "add");
        if operation["path"] == "" {
            assert_eq!(operation["value"]["name"], patch["name"]);
            all.push(operation["value"].clone());
            continue;
        }
        let resource = all.iter_mut().find(|resource| resource["name"] == patch["name"]);
        let resource = resource.unwrap_or_else(|| panic!("no listener {}", patch["name"]));
        if let Some(field) = operation["path"].as_str().and_then(|path| path.strip_prefix('/')) {
            resource[field] = operation["value"].clone();
            continue;
        }
        // The only expression: the router of each chain. To add there is to insert before it.
        assert_eq!(operation["jsonPath"], "..http_filters[?(@.name=='envoy.filters.http.router')]");
        walk(resource, &mut |value| {
            let Some(filters) = value.get_mut("http_filters").and_then(Value::as_array_mut) else { return };
            let router = filters
                .iter()
                .position(|filter| filter["name"] == "envoy.filters.http.router")
                .expect("a router");
            if filters.iter().all(|filter| filter["name"] != operation["value"]["name"]) {
                filters.insert(router, operation["value"].clone());
                inserted += 1;
            }
        });
    }
    inserted
}

/// Applies all, with files where they would be mounted.
pub fn apply(stored: &Stored, text: &str, listener: &str) -> Value {
    let sds = stored.folder.path().join("redis-password.yaml");
    let text = text.replace("/etc/weir-config/redis-password.yaml", &sds.display().to_string());
    let text = text.replace("path: /etc/weir-config", &format!("path: {}", stored.folder.path().display()));
    let documents = documents(&text);
    if let Some(map) = of_kind(&documents, "ConfigMap") {
        std::fs::write(&sds, map["data"]["redis-password.yaml"].as_str().expect("a text")).expect("a file");
    }
    configured(stored, &documents, listener)
}

/// The configuration of a gateway, with these resources.
pub fn configured(stored: &Stored, documents: &[Value], listener: &str) -> Value {
    let mut config = generated(listener, stored.upstream.address());
    let proxy = of_kind(documents, "EnvoyProxy").expect("an EnvoyProxy");
    if proxy["spec"]["bootstrap"]["type"] == "Merge" {
        let more = proxy["spec"]["bootstrap"]["value"].as_str().expect("a text");
        let more = weir_cli::envoys_reading("a.yaml", more).expect("YAML");
        for (name, value) in more.as_object().expect("an object") {
            config[name] = value.clone();
        }
    }
    if let Some(policy) = of_kind(documents, "EnvoyExtensionPolicy") {
        apply_extension(policy, &mut config);
    }
    apply_patches(of_kind(documents, "EnvoyPatchPolicy").expect("an EnvoyPatchPolicy"), &mut config);
    config
}

fn patched(store: &'static str, version: &str, listener: &str) {
    let stored = Stored::start(store);
    let mut arguments = stored.arguments("envoy-gateway", "wasm");
    arguments.extend(["--version".into(), version.into()]);
    let text = render(stored.folder.path(), &limiter(), &arguments);
    let applied = apply(&stored, &text, listener);
    let shipped = std::fs::read_to_string(root().join("envoy/weir.yaml")).expect("a file");
    let shipped = weir_cli::envoys_reading("weir.yaml", &shipped).expect("YAML");
    assert_eq!(applied["stats_config"], shipped["stats_config"], "the labels of metrics");
    limits(&applied, listener);
    assert!(stored.asked(), "Redis has run no script");
}

fn regions(store: &'static str) {
    let listener = "default/eg/http";
    two_regions(store, "envoy-gateway", "wasm", &[], listener, |stored, text| apply(stored, text, listener));
}

/// Envoy Gateway fetches the image itself, and serves it to Envoy; here Envoy reads the same code from a file.
fn apply_extension(policy: &Value, config: &mut Value) {
    let wasm = &policy["spec"]["wasm"][0];
    assert_eq!(wasm["code"], json!({"type": "Image", "image": {"url": "registry.test/weir:1"}}));
    let id = "envoyextensionpolicy/default/weir/wasm/0";
    let name = format!("envoy.filters.http.wasm/{id}");
    let filter = json!({
        "name": name,
        "disabled": true,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": wasm["name"],
                "root_id": wasm["rootID"],
                "fail_open": wasm["failOpen"],
                "configuration": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": wasm["config"].to_string()},
                "vm_config": {"vm_id": id, "runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": plugin()}}},
            },
        },
    });
    walk(config, &mut |value| {
        if let Some(filters) = value.get_mut("http_filters").and_then(Value::as_array_mut)
            && filters.iter().any(|filter| filter["name"] == "envoy.filters.http.router")
        {
            filters.insert(0, filter.clone());
        }
        if value.get("match").is_some() && value.get("route").is_some() {
            value["typed_per_filter_config"][&name] =
                json!({"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}});
        }
    });
}

fn extended() {
    let stored = Stored::start("redis");
    let mut arguments = stored.arguments("envoy-gateway", "wasm");
    arguments.extend(["--image".into(), "oci://registry.test/weir:1".into()]);
    let text = render(stored.folder.path(), &limiter(), &arguments);
    assert!(!text.contains("jsonPath"), "the limiter is there twice: {text}");
    limits(&apply(&stored, &text, "default/eg/http"), "default/eg/http");
    assert!(stored.asked(), "Redis has run no script");
}

/// Its listeners keep half as much of a body as a policy may read.
fn bodies() {
    let stored = Stored::start("redis");
    let limiter = limiter()
        .replace(r#"{"literal": "all"}"#, r#"{"body_json": {"path": "user"}, "on_missing": "deny"}"#);
    let text = render(stored.folder.path(), &limiter, &stored.arguments("envoy-gateway", "wasm"));
    let envoy = Template::new(&apply(&stored, &text, "default/eg/http").to_string()).start();
    let body = format!(r#"{{"text": "{}", "user": "ann"}}"#, "x".repeat(60_000));
    for status in [200, 200, 200, 429] {
        let request = Request::post("/", body.as_bytes());
        assert_eq!(
            http::send(envoy.address("default/eg/http"), &request).expect("a response").status,
            status
        );
    }
}

fn several_listeners() {
    let stored = Stored::start("redis");
    let mut arguments = stored.arguments("envoy-gateway", "wasm");
    arguments.extend(["--listener".into(), "http:80".into(), "--listener".into(), "https:443".into()]);
    let text = render(stored.folder.path(), &limiter(), &arguments);
    let documents = documents(&text);
    let mut config = generated("default/eg/http", stored.upstream.address());
    let mut https = generated_listener("default/eg/https");
    https["filter_chains"] =
        json!([{"name": "a", "filter_chain_match": {"server_names": ["a.test"]}, "filters": [manager("a")]}]);
    config["static_resources"]["listeners"].as_array_mut().expect("a list").push(https);
    let policy = of_kind(&documents, "EnvoyPatchPolicy").expect("an EnvoyPatchPolicy");
    assert_eq!(apply_patches(policy, &mut config), 3, "{config}");
}
