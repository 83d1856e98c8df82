// SPDX-License-Identifier: Apache-2.0
//! `weir render`: what it refuses, and its output for one case of each platform. What Envoy makes of it is tested in
//! `cli/tests/envoy/platforms/`.

use std::fs;

use super::Folder;

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
        let wanted = if arguments[0] == "wrong.yaml" { 1 } else { 2 };
        assert!(status == wanted && out.is_empty() && error.contains(said), "{arguments:?}: {out}{error}");
    }
    // What loads and goes wrong is said, too.
    let (status, _, error) = folder.weir(&["render", "single.yaml", "--for", "envoy", "--store", "cluster"]);
    assert!(status == 0 && error.contains("[single-before-cluster]"), "{error}");
}

#[test]
fn the_admin_port_is_where_it_is_wanted() {
    let folder = Folder::with(&[("weir.yaml", WEIR)]);
    let admin = |more: &[&str]| {
        let (status, out, error) = folder.weir(&[&["render", "weir.yaml", "--for", "envoy"], more].concat());
        assert_eq!((status, error.as_str()), (0, ""), "{more:?}");
        weir_cli::envoys_reading("a.yaml", &out).expect("YAML")["admin"]["address"]["socket_address"].clone()
    };
    assert_eq!(admin(&[]), serde_json::json!({"address": "127.0.0.1", "port_value": 9901}));
    assert_eq!(
        admin(&["--admin", "[::1]:15000"]),
        serde_json::json!({"address": "::1", "port_value": 15000})
    );
}

/// What somebody has written is not lost: neither an edited bootstrap nor a listener with a certificate.
#[test]
fn edited_files_are_overwritten_by_force_only() {
    let folder = Folder::with(&[("weir.yaml", WEIR)]);
    let render = |more: &[&str]| {
        let (status, out, error) =
            folder.weir(&[&["render", "weir.yaml", "--for", "envoy", "--files", "f"], more].concat());
        (status, out + &error)
    };
    let file = |name: &str| folder.0.join("f").join(name);
    let read = |name: &str| fs::read_to_string(file(name)).expect("a file");
    assert_eq!(render(&[]).0, 0);
    // Other options make other files, and nobody has edited these.
    assert_eq!(render(&["--listen", "0.0.0.0:7", "--admin", "127.0.0.1:2"]).0, 0);
    let (bootstrap, lds) = (read("bootstrap.yaml"), read("lds.yaml"));
    assert!(bootstrap.contains("port_value: 2") && lds.contains("port_value: 7"), "{bootstrap}{lds}");
    for name in ["bootstrap.yaml", "lds.yaml"] {
        let (made, edited) = (read(name), read(name) + "# mine\n");
        fs::write(file(name), &edited).expect("a file");
        let (status, said) = render(&[]);
        assert!(status == 2 && said.contains(&format!("f/{name}: edited, or not made by")), "{said}");
        assert_eq!(
            (read(name), read("lds.yaml").contains("port_value: 7")),
            (edited, true),
            "nothing is written"
        );
        fs::write(file(name), made).expect("a file");
    }
    fs::write(file("cds.yaml"), "").expect("a file");
    assert_eq!(render(&[]).0, 2);
    assert_eq!(render(&["--force"]).0, 0);
    assert!(!read("lds.yaml").contains("port_value: 7"));
}

/// Two regions and the policies of each way.
fn regions() -> String {
    String::from(
        "store: {cluster: redis-ams, deadline: 50ms}\n\
         regions:\n  here: ams\n  all: [{name: ams, cluster: x}, {name: bom, cluster: redis-bom, deadline: 400ms}]\n\
         policies:\n- name: p\n  regions: {home: bom}\n  limits: [{name: l, algorithm: leaky_bucket, rate: 1/s, burst: 10}]\n",
    )
}

#[test]
fn mistakes_about_regions_are_named() {
    let folder = Folder::with(&[
        ("weir.yaml", WEIR),
        ("regions.yaml", &regions()),
        ("taken.yaml", &regions().replace("redis-bom", "upstream")),
        ("same.yaml", &regions().replace("redis-bom", "redis-ams")),
    ]);
    let rows: [(&[&str], &str); 6] = [
        (&["regions.yaml"], "--redis: found no address of region bom, allowed: --redis bom=HOST:PORT"),
        (
            &["regions.yaml", "--redis", "b:1", "--redis", "cle=c:1"],
            "--redis: found region \"cle\", and the configuration has ams, bom",
        ),
        (
            &["weir.yaml", "--redis", "bom=b:1"],
            "--redis: found region \"bom\", and the configuration has no `regions`",
        ),
        (&["regions.yaml", "--redis", "bom=b:1", "--redis", "bom=c:1"], "--redis: found several nodes"),
        (
            &["taken.yaml", "--redis", "bom=b:1"],
            "regions.all[1].cluster is \"upstream\", and another cluster is called so",
        ),
        (
            &["same.yaml", "--redis", "bom=b:1"],
            "regions.all[1].cluster is \"redis-ams\", and another cluster is called so",
        ),
    ];
    for (arguments, said) in rows {
        let (status, out, error) = folder.weir(&[&["render", "--for", "envoy"], arguments].concat());
        assert!(status == 2 && out.is_empty() && error.contains(said), "{arguments:?}: {out}{error}");
    }
}

/// A way for each region, with names and times of its own. `here` chooses among addresses, so all regions give the same.
#[test]
fn each_region_has_a_way() {
    let folder = Folder::with(&[("ams.yaml", &regions())]);
    for (host, store, wanted) in [
        (
            "wasm",
            "redis",
            &["name: redis-ams", "name: redis-bom", "connect_timeout: 1.2s", "cluster_name: redis-bom"][..],
        ),
        (
            "wasm",
            "cluster",
            &[
                "name: redis-bom",
                "name: redis-proxy-bom",
                "name: redis-bom-nodes",
                "op_timeout: 0.04s",
                "op_timeout: 0.32s",
            ],
        ),
        ("native", "redis", &["name: weir-store-bom", "\"@weir-store-bom\"", "cluster: redis-bom"]),
        ("wasm", "tls", &["sni: redis.ams", "sni: redis.bom", "exact: redis.bom"]),
    ] {
        let (status, out, error) = folder.weir(&[
            "render",
            "ams.yaml",
            "--for",
            "envoy",
            "--store",
            store,
            "--host",
            host,
            "--redis",
            "ams=redis.ams:6379",
            "--redis",
            "bom=redis.bom:6380",
        ]);
        assert_eq!((status, error.as_str()), (0, ""), "{host}, {store}: {out}");
        let out = out.replace('"', "");
        for wanted in wanted.iter().map(|wanted| wanted.replace('"', "")) {
            assert!(out.contains(&wanted), "{host}, {store}: {wanted}\n{out}");
        }
        let addresses = |host: &str| out.matches(host).count();
        assert!(
            addresses("address: redis.ams") == 1 && addresses("address: redis.bom") == 1,
            "{host}, {store}: {out}"
        );
        assert!(!out.contains("address: redis,") && !out.contains("redis-1"), "{host}, {store}: {out}");
    }
}

/// Istio reads the annotations for volumes in sidecars only.
#[test]
fn istio_is_told_what_to_mount() {
    let folder = Folder::with(&[("weir.yaml", WEIR)]);
    let render = |more: &[&str]| {
        let (status, out, error) = folder.weir(
            &[&["render", "weir.yaml", "--for", "istio", "--store", "tls", "--namespace", "edge"], more]
                .concat(),
        );
        assert_eq!((status, error.as_str()), (0, ""));
        out
    };
    let json = |out: &str, before: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(&format!("#   {before} '"))).expect(before);
        serde_json::from_str::<serde_json::Value>(line.trim_end_matches('\'')).expect("JSON")
    };
    let gateway = render(&[]);
    let pod = json(&gateway, "kubectl -n edge patch deployment DEPLOYMENT --patch");
    let pod = &pod["spec"]["template"]["spec"];
    let sidecar = render(&["--context", "sidecar-inbound"]);
    let volumes = json(&sidecar, "sidecar.istio.io/userVolume:");
    let mounts = json(&sidecar, "sidecar.istio.io/userVolumeMount:");
    assert!(!gateway.contains("userVolume") && !sidecar.contains("patch deployment"));
    assert_eq!((&pod["volumes"], &pod["containers"][0]["volumeMounts"]), (&volumes, &mounts));
    assert_eq!(pod["containers"][0]["name"], "istio-proxy");
    let names = |of: &serde_json::Value| {
        of.as_array().expect("a list").iter().map(|one| one["name"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&volumes), ["\"weir-wasm\"", "\"weir\"", "\"weir-redis\""]);
    assert_eq!(names(&volumes), names(&mounts));
    assert_eq!(volumes[2]["secret"]["secretName"], "weir-redis");
    assert_eq!(mounts[1]["mountPath"], "/etc/weir-config");
}

#[test]
fn a_warning_about_a_policy_has_its_place_in_the_file_that_was_given() {
    let folder = Folder::with(&[("given.yaml", &format!("{WEIR}  cost: {{constant: 11}}\n"))]);
    let (_, checked, _) = folder.weir(&["check", "given.yaml", "--format", "text"]);
    let warning = checked.lines().find(|line| line.ends_with("[impossible-cost]")).expect("a warning");
    assert!(warning.starts_with("given.yaml:4:"), "{warning}");
    for platform in ["envoy", "istio", "envoy-gateway"] {
        let (status, _, error) = folder.weir(&["render", "given.yaml", "--for", platform]);
        assert_eq!((status, error), (0, format!("{warning}\n")), "{platform}");
    }
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
        let read = weir_cli::envoys_reading("a.yaml", document).expect("YAML").to_string();
        let expected = weir["policies"].to_string();
        assert!(read.contains(&expected), "{platform}: {read}");
    }
}
