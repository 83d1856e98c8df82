// SPDX-License-Identifier: Apache-2.0
//! `weir render`: what it refuses, and its output for one case of each platform. What Envoy makes of it is tested in
//! `tests/platforms/`.

use crate::Folder;

const WEIR: &str =
    "policies:\n- name: p\n  limits: [{name: l, algorithm: leaky_bucket, rate: 1/s, burst: 10}]\n";

#[test]
fn mistakes_are_named() {
    let folder = Folder::with(&[
        ("weir.yaml", WEIR),
        ("wrong.yaml", "policies: []\n"),
        ("taken.yaml", &format!("store: {{cluster: upstream}}\n{WEIR}")),
        ("single.yaml", &format!("store: {{topology: single}}\n{WEIR}")),
        (
            "body.yaml",
            "policies:\n- name: p\n  subject: [{body_json: {path: a}}, {client_address: {}}]\n  limits: [{name: l, algorithm: leaky_bucket, rate: 1/s}]\n",
        ),
    ]);
    let rows: [(&[&str], &str); 11] = [
        (
            &["wrong.yaml", "--for", "envoy"],
            "wrong.yaml:1:1: error: policies: found a list of 0, allowed: a list of 1 to 256",
        ),
        (&["none.yaml", "--for", "envoy"], "none.yaml: No such file"),
        (
            &["taken.yaml", "--for", "envoy"],
            "store.cluster is \"upstream\", and another cluster is called so",
        ),
        (
            &["weir.yaml", "--for", "envoy", "--redis", "redis"],
            "--redis: found \"redis\", allowed: HOST:PORT",
        ),
        (
            &["weir.yaml", "--for", "envoy", "--redis", "a b:1"],
            "--redis: found \"a b:1\", allowed: HOST:PORT",
        ),
        (
            &["weir.yaml", "--for", "envoy", "--redis", "a:1", "--redis", "b:1"],
            "--redis: found several nodes, allowed: one",
        ),
        (&["weir.yaml", "--for", "istio", "--host", "native"], "--host native is for --for envoy"),
        (
            &["weir.yaml", "--for", "istio", "--version", "new"],
            "--version: found \"new\", allowed: two numbers",
        ),
        (
            &["weir.yaml", "--for", "istio", "--selector", "app"],
            "--selector: found \"app\", allowed: KEY=VALUE",
        ),
        (
            &["weir.yaml", "--for", "envoy-gateway", "--listener", "http"],
            "--listener: found \"http\", allowed: NAME:PORT",
        ),
        (&["body.yaml", "--for", "envoy-gateway", "--image", "r/weir:1"], "--image: a policy reads bodies"),
    ];
    for (arguments, said) in rows {
        let (status, out, error) = folder.weir(&[&["render"], arguments].concat());
        assert!(status == 2 && out.is_empty() && error.contains(said), "{arguments:?}: {out}{error}");
    }
    // What loads and goes wrong is said, too.
    let (status, _, error) = folder.weir(&["render", "single.yaml", "--for", "envoy", "--store", "cluster"]);
    assert!(status == 0 && error.contains("[single-before-cluster]"), "{error}");
}

/// The end of what is rendered for Istio: all of it that depends on the configuration.
#[test]
fn istio() {
    let folder = Folder::with(&[("weir.yaml", WEIR)]);
    let (status, out, error) = folder.weir(&[
        "render",
        "weir.yaml",
        "--for",
        "istio",
        "--image",
        "oci://registry.test/weir:1",
        "--redis",
        "redis.default:6379",
    ]);
    assert_eq!((status, error.as_str()), (0, ""));
    let plugin = r#"# Made by `weir render --for istio`. Apply with `kubectl apply -f`.
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata:
  name: weir
  namespace: istio-system
spec:
  selector:
    matchLabels: {istio: ingressgateway}
  url: "oci://registry.test/weir:1"
  pluginName: weir.limiter
  phase: AUTHZ
  failStrategy: FAIL_RELOAD
  pluginConfig:
    policies:
    - {name: p, limits: [{name: l, algorithm: leaky_bucket, rate: 1/s, burst: 10}]}
---
"#;
    assert!(out.starts_with(plugin), "{out}");
    let end = r#"        load_assignment:
          cluster_name: weir-bridge
          endpoints:
          - lb_endpoints:
            - endpoint: {address: {socket_address: {address: redis.default, port_value: 6379}}}
"#;
    assert!(out.ends_with(end), "{out}");
}

#[test]
fn envoy_gateway() {
    let folder = Folder::with(&[("weir.yaml", WEIR)]);
    let (status, out, error) = folder.weir(&[
        "render",
        "weir.yaml",
        "--for",
        "envoy-gateway",
        "--image",
        "oci://registry.test/weir:1",
    ]);
    assert_eq!((status, error.as_str()), (0, ""));
    let policy = r#"apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata:
  name: weir
  namespace: default
spec:
  targetRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: eg}
  wasm:
  - name: weir
    rootID: weir.limiter
    failOpen: false
    code: {type: Image, image: {url: "registry.test/weir:1"}}
    config:
      policies:
      - {name: p, limits: [{name: l, algorithm: leaky_bucket, rate: 1/s, burst: 10}]}
---
"#;
    assert!(out.contains(policy), "{out}");
    assert!(
        out.contains(
            "  - type: type.googleapis.com/envoy.config.cluster.v3.Cluster\n    name: weir-bridge\n"
        ),
        "{out}"
    );
}

/// No text of a configuration becomes another part of YAML.
#[test]
fn texts_are_data() {
    let text = "yes\u{7}: #[] \u{2028} no";
    let weir = serde_json::json!({"policies": [{"name": "p", "subject": [{"literal": text}, {"literal": "010"}, {"literal": "off"}],
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]});
    let folder = Folder::with(&[("weir.json", &weir.to_string())]);
    for platform in ["envoy", "istio", "envoy-gateway"] {
        let (status, out, error) = folder.weir(&["render", "weir.json", "--for", platform]);
        assert_eq!((status, error.as_str()), (0, ""), "{platform}");
        let document =
            out.split("\n---\n").find(|document| document.contains("literal")).expect("the limiter");
        let read = weir::cli::envoys_reading("a.yaml", document).expect("YAML").to_string();
        let expected = weir["policies"].to_string();
        assert!(read.contains(&expected), "{platform}: {read}");
    }
}
