// SPDX-License-Identifier: Apache-2.0
//! What people have: the limiter's configuration in each kind of file, and the places in it.

use super::{File, check};
use crate::support::root;

/// The configuration of a limiter with a mistake: `burts`.
const WRONG: &str = r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burts": 3}]}]}"#;

/// The same as YAML, each line behind `indent`, and the first not.
fn block(indent: usize) -> String {
    let lines = [
        "policies:",
        "- name: p",
        "  limits:",
        "  - {name: l, algorithm: leaky_bucket, rate: 1/s, burts: 3}",
    ];
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// The places at which `burts` is in a file.
fn places(text: &str, path: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(line, text)| {
        let column = text.find("burts")?;
        // In JSON, the name begins with its quotes.
        let quoted =
            text[..column].ends_with("\\\"").then_some(2).or(text[..column].ends_with('"').then_some(1));
        Some(format!(
            "{path}:{}:{}: error: ",
            line + 1,
            text[..column - quoted.unwrap_or(0)].chars().count() + 1
        ))
    });
    found.collect()
}

#[test]
fn the_limiter_is_found_in_each_kind_of_file() {
    let string = serde_json::Value::from(WRONG).to_string();
    let wasm = |configuration: &str| {
        format!(
            "{{\"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm, config: {{root_id: weir.limiter, configuration: {configuration}}}}}"
        )
    };
    let as_struct = format!("{{\"@type\": type.googleapis.com/google.protobuf.Struct, value: {WRONG}}}");
    let as_string =
        format!("{{\"@type\": type.googleapis.com/google.protobuf.StringValue, value: {string}}}");
    let filter = wasm(&as_struct);
    let listener = format!(
        "{{\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener, name: edge, filter_chains: [{{filters: [{{typed_config: \
         {{stat_prefix: x, stream_idle_timeout: 30s, http_filters: [{{typed_config:\n      {filter}}}]}}}}]}}]}}"
    );
    let dump = r#"{"configs": [
        {"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"static_resources": {"listeners": []}, "x": {"root_id": "weir.limiter", "configuration": {}}}},
        {"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [{"active_state": {"listener": {
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "filter_chains": [{"filters": [{"typed_config": {"stat_prefix": "x",
            "stream_idle_timeout": "30s", "http_filters": [{"typed_config": {"config": {"rootId": "weir.limiter", "configuration": {"value":
            WRONG}}}}]}}]}]}}}]}]}"#;
    let kubernetes = |kind: &str, spec: &str| {
        format!("apiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: weir}}\nspec:\n{spec}")
    };
    let rows = [
        ("a plugin's configuration", ".yaml", block(0)),
        ("a plugin's configuration", ".json", WRONG.to_owned()),
        ("a bootstrap", ".yaml", format!("static_resources:\n  listeners:\n  - {listener}\n")),
        ("listeners of LDS", ".yaml", format!("resources:\n- {listener}\n")),
        (
            "a filter of ECDS",
            ".yaml",
            format!(
                "resources:\n- {{\"@type\": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig, name: weir, typed_config: {filter}}}\n"
            ),
        ),
        (
            "a filter as a string",
            ".yaml",
            format!("resources:\n- {{typed_config:\n   {}}}\n", wasm(&as_string)),
        ),
        (
            "a filter as a block",
            ".yaml",
            format!(
                "resources:\n- typed_config:\n    config:\n      root_id: weir.limiter\n      configuration:\n        value: |\n          {}\n",
                WRONG.replace("[{\"name\"", "[\n            {\"name\"")
            ),
        ),
        ("a dump", ".json", dump.replace("WRONG", WRONG)),
        ("a dump of strings", ".json", dump.replace("WRONG", &string)),
        (
            "a dynamic module",
            ".yaml",
            format!("resources:\n- {{filter_name: weir.limiter, filter_config: {as_struct}}}\n"),
        ),
        (
            "Istio's WasmPlugin",
            ".yaml",
            kubernetes(
                "WasmPlugin",
                &format!(
                    "  url: oci://example.com/weir\n  pluginName: weir.limiter\n  pluginConfig:\n    {}\n",
                    block(4)
                ),
            ),
        ),
        (
            "Istio's EnvoyFilter",
            ".yaml",
            kubernetes(
                "EnvoyFilter",
                &format!(
                    "  configPatches:\n  - applyTo: HTTP_FILTER\n    patch:\n      operation: INSERT_BEFORE\n      value: {{typed_config: {filter}}}\n"
                ),
            ),
        ),
        (
            "Envoy Gateway's EnvoyExtensionPolicy",
            ".yaml",
            kubernetes(
                "EnvoyExtensionPolicy",
                &format!(
                    "  wasm:\n  - name: weir\n    rootID: weir.limiter\n    config:\n      {}\n",
                    block(6)
                ),
            ),
        ),
        (
            "Envoy Gateway's EnvoyPatchPolicy",
            ".yaml",
            kubernetes(
                "EnvoyPatchPolicy",
                &format!(
                    "  jsonPatches:\n  - type: type.googleapis.com/envoy.config.listener.v3.Listener\n    operation: {{op: add, path: \"\", value: {listener}}}\n"
                ),
            ),
        ),
        (
            "several resources",
            ".yaml",
            format!(
                "{}---\n{}",
                kubernetes("ConfigMap", "  a: b\n"),
                kubernetes(
                    "WasmPlugin",
                    &format!("  pluginName: weir.limiter\n  pluginConfig:\n    {}\n", block(4))
                )
            ),
        ),
    ];
    for (name, ending, text) in rows {
        let file = File::new(&format!("kind{ending}"), &text);
        let (status, out, error) = check(&[file.path()]);
        let wanted = places(&text, file.path());
        assert_eq!(wanted.len(), 1, "{name}: {text}");
        let first = out.lines().next().unwrap_or_default();
        assert!(
            first.starts_with(&wanted[0]) && first.contains(".burts: found an unknown field"),
            "{name}: {wanted:?}\n{out}{error}"
        );
        assert_eq!((status, out.lines().count()), (1, 1), "{name}: {out}{error}");
    }
}

#[test]
fn the_first_document_is_read_of_a_file_that_is_not_kubernetes() {
    let text = "policies:\n- name: p\n  limits:\n  - {name: l, algorithm: leaky_bucket, rate: 1/s}\n---\npolicies: []\n";
    let file = File::new("two.yaml", text);
    let (status, out, _) = check(&[file.path()]);
    let said = "Envoy reads only the first document of a file, and not this one. Write it in a file of its own [ignored-document]";
    let path = file.path();
    assert_eq!(
        (status, out),
        (0, format!("{path}:6:1: warning: {said}\n{path}: 1 policy, no errors, 1 warning\n"))
    );
    let file = File::new("one.yaml", text.replace("---\npolicies: []\n", "---\n"));
    assert_eq!(check(&[file.path(), "--deny-warnings"]).0, 0);
}

#[test]
fn a_name_is_written_once() {
    let text =
        "policies:\n- name: p\n  limits:\n  - {name: l, algorithm: leaky_bucket, rate: 1/s, rate: 2/s}\n";
    let file = File::new("twice.yaml", text);
    let (status, out, _) = check(&[file.path()]);
    let said = "rate: the same name is here twice, and the last one counts. Write it once [duplicate-name]";
    let path = file.path();
    assert_eq!(
        (status, out),
        (0, format!("{path}:4:51: warning: {said}\n{path}: 1 policy, no errors, 1 warning\n"))
    );
    // The filter refuses it in JSON.
    for name in ["twice.json", "twice"] {
        let text = r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "rate": "2/s"}]}]}"#;
        let file = File::new(name, text);
        let (status, out, _) = check(&[file.path()]);
        let said = "error: policies[0].limits[0].rate: found the same name twice, allowed: each name once";
        assert_eq!((status, out.lines().count(), out.contains(said)), (1, 1, true), "{out}");
    }
    // Envoy refuses it in JSON.
    let file = File::new("twice.json", r#"{"admin": {}, "x": {"root_id": "weir.bridge", "a": 1, "a": 2}}"#);
    let (status, out, _) = check(&[file.path()]);
    assert_eq!(
        (status, out),
        (1, format!("{}:1:55: error: a: found the same name twice, allowed: each name once\n", file.path()))
    );
}

/// Kubernetes takes for numbers what Envoy leaves texts, and the filter is given what Kubernetes took them for.
#[test]
fn resources_of_kubernetes_are_read_as_kubernetes_does() {
    let limit = "limits: [{name: l, algorithm: fixed_window, window: 1s, limit: LIMIT}]";
    let policies = format!("policies:\n    - name: p\n      {limit}\n");
    let plugin = format!(
        "apiVersion: x\nkind: WasmPlugin\nspec:\n  pluginName: weir.limiter\n  pluginConfig:\n    {policies}"
    );
    let envoy = format!("x:\n  root_id: weir.limiter\n  configuration:\n    {policies}");
    for (written, by_kubernetes, by_envoy) in [
        ("1e1", None, Some("found \"1e1\"")),
        ("1.0", None, Some("found \"1.0\"")),
        ("1.5", Some("found 1.5"), Some("found \"1.5\"")),
        ("\"1.5\"", Some("found \"1.5\""), Some("found \"1.5\"")),
        ("010", None, None),
        ("3000000000", None, None),
        ("1_000", None, None),
    ] {
        for (text, wanted) in [(&plugin, by_kubernetes), (&envoy, by_envoy)] {
            let file = File::new("numbers.yaml", text.replace("LIMIT", written));
            let (status, out, _) = check(&[file.path()]);
            let said = wanted.is_none_or(|wanted| out.contains(wanted));
            assert_eq!((status == 1, said), (wanted.is_some(), true), "{text}, {written}: {out}");
        }
    }
}

/// A control plane's way of saying that a filter may be left out.
#[test]
fn a_resource_that_fails_open_has_a_warning() {
    let policies = block(6).replace("burts", "burst");
    for (kind, spec) in [
        (
            "WasmPlugin",
            format!(
                "  pluginName: weir.limiter\n  failStrategy: FAIL_OPEN\n  pluginConfig:\n      {policies}\n"
            ),
        ),
        (
            "EnvoyExtensionPolicy",
            format!("  wasm:\n  - rootID: weir.limiter\n    failOpen: true\n    config:\n      {policies}\n"),
        ),
    ] {
        let text = format!("apiVersion: x\nkind: {kind}\nspec:\n{spec}");
        for (text, warns) in [
            (text.clone(), true),
            (text.replace("FAIL_OPEN", "FAIL_RELOAD").replace("failOpen: true", "failOpen: false"), false),
        ] {
            let file = File::new("open.yaml", &text);
            let (status, out, _) = check(&[file.path()]);
            assert_eq!((status, out.contains("[fail-open]")), (0, warns), "{text}: {out}");
        }
    }
}

#[test]
fn a_limiter_without_a_configuration_is_an_error() {
    let file = File::new("none.yaml", "x:\n  root_id: weir.limiter\n  vm_config: {vm_id: a}\n");
    let (status, out, _) = check(&[file.path()]);
    assert_eq!(
        (status, out.starts_with(&format!("{}:2:3: error: configuration: found nothing", file.path()))),
        (1, true),
        "{out}"
    );
}

/// What belongs to one Envoy may be in several files.
#[test]
fn files_are_checked_together() {
    let shipped = std::fs::read_to_string(root().join("envoy/weir.yaml")).expect("a file");
    let (head, rest) = shipped.split_once("static_resources:\n  listeners:\n").expect("listeners");
    assert!(head.contains("admin"));
    let (listeners, clusters) = rest.split_once("\n  clusters:\n").expect("clusters");
    let code = "&weir_wasm {local: {filename: /etc/weir/weir.wasm}}";
    let typed = |text: &str, kind: &str, name: &str| {
        let item = format!("  - name: {name}\n");
        let typed = format!("  - \"@type\": type.googleapis.com/envoy.config.{kind}\n    name: {name}\n");
        text.replace(&item, &typed)
    };
    let listeners = format!("resources:\n{}\n", typed(listeners, "listener.v3.Listener", "edge"));
    let clusters = format!(
        "resources:\n{}\n",
        typed(&clusters.replace("*weir_wasm", code), "cluster.v3.Cluster", "weir-bridge")
    );
    let check_both = |listeners: &str, clusters: &str| {
        let (lds, cds) = (File::new("lds.yaml", listeners), File::new("cds.yaml", clusters));
        let (_, out, error) = check(&[lds.path(), cds.path()]);
        format!("{out}{error}").replace(lds.path(), "lds").replace(cds.path(), "cds")
    };
    let right = "lds: 1 policy, no errors\ncds: 0 policies, no errors\n";
    assert_eq!(check_both(&listeners, &clusters), right);
    let shared = check_both(&listeners, &clusters.replace("vm_id: weir-bridge", "vm_id: weir"));
    assert!(shared.starts_with("lds:") && shared.contains("[shared-vm]"), "{shared}");
    let open = check_both(&listeners.replace("{cluster: upstream}", "{cluster: weir-bridge}"), &clusters);
    assert!(open.starts_with("lds:") && open.contains("[open-bridge]"), "{open}");
    let none = check_both(&listeners, &clusters.replace("weir.bridge", "other"));
    assert!(none.contains("[bridge-missing]") || none.contains("error"), "{none}");
}

/// A file without any part of weir is the wrong file.
#[test]
fn a_file_without_weir_is_an_error() {
    for (text, said) in [
        ("admin: {}\n", ":1:1: error: an Envoy configuration without a weir.limiter in it"),
        ("a: 1\n", ":1:1: error: a: found an unknown field"),
        ("", ":1:1: error: the file is empty"),
    ] {
        let file = File::new("none.yaml", text);
        let (status, out, _) = check(&[file.path()]);
        assert!(status == 1 && out.starts_with(&format!("{}{said}", file.path())), "{text}: {out}");
    }
}

/// A file that shows a whole Envoy is the wrong file, also beside one with weir. A part of an Envoy need not have the limiter.
#[test]
fn a_part_of_an_envoy_need_not_have_the_limiter() {
    let weir = File::new(
        "ecds.yaml",
        "resources:\n- name: weir\n  typed_config:\n    config: {root_id: weir.limiter, vm_config: {}, configuration: {value: {policies: [{name: p, limits: [{name: l, algorithm: leaky_bucket, rate: 1/s}]}]}}}\n",
    );
    for (text, status) in [
        ("resources: []\n", 0),
        ("dynamic_resources: {cds_config: {}, lds_config: {}}\n", 0),
        ("static_resources: {clusters: []}\n", 1),
        ("a: 1\n", 1),
    ] {
        let other = File::new("other.yaml", text);
        let (found, out, _) = check(&[weir.path(), other.path()]);
        assert_eq!(found, status, "{text}: {out}");
    }
}

/// Neither a deep nor a large file ends the command otherwise than with a message.
#[test]
fn depth_and_size_are_bounded() {
    let deep =
        |open: &str, close: &str| format!("policies: {}{}\n", open.repeat(100_000), close.repeat(100_000));
    let lines: String = (0..3_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let laughs: String = (1..30).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1)).collect();
    let rows = [
        ("lists.yaml", deep("[", "]")),
        ("objects.yaml", deep("{a: ", "}")),
        ("lists.json", deep("[", "]").replace("policies: ", "")),
        ("json", format!("{{\"policies\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000))),
        (
            "string.yaml",
            format!("x: {{root_id: weir.limiter, configuration: {{value: '{}'}}}}\n", "[".repeat(100_000)),
        ),
        ("lines.yaml", lines),
        ("aliases.yaml", format!("a0: &a0 [x, x]\n{laughs}")),
        ("large.yaml", format!("# {}\n", "x".repeat(17 * 1024 * 1024))),
        ("quotes.yaml", "\"".to_owned()),
        ("nul.yaml", "a: \0\n".to_owned()),
    ];
    for (name, text) in rows {
        let file = File::new(name, &text);
        let (status, out, error) = check(&[file.path()]);
        assert_eq!(
            (status, out.contains("error: ")),
            (1, true),
            "{name}: {}{error}",
            out.chars().take(300).collect::<String>()
        );
    }
}

/// Places in JSON, and inside a string.
#[test]
fn mistakes_of_syntax_have_places() {
    for (name, text, said) in [
        (
            "x.json",
            "{\n  \"policies\": [\n    1,,\n  ]\n}\n",
            ":3:7: error: $: found no JSON (expected value at line 3 column 7), allowed: a JSON object",
        ),
        ("x.json", "{", ":1:1: error: $: found no JSON (EOF while parsing an object at line 1 column 1)"),
        ("x.yaml", "a: [1\nb: 2\n", ":2:2: error: "),
        (
            "x.yaml",
            "x:\n  root_id: weir.limiter\n  configuration:\n    value: \"{ \\\"policies\\\": [}\"\n",
            ":4:30: error: $: found no JSON (expected value at line 1 column 16)",
        ),
        (
            "x.yaml",
            "x:\n  root_id: weir.limiter\n  configuration:\n    value: |\n      {\n        \"policies\": [}\n      }\n",
            ":6:22: error: $: found no JSON (expected value at line 2 column 16)",
        ),
        (
            "x.yaml",
            "x:\n  root_id: weir.limiter\n  configuration:\n    value: '{\"policies\": [], \"it''s\": 1}'\n",
            ":4:14: error: policies: found a list of 0, allowed: a list of 1 to 256",
        ),
    ] {
        let file = File::new(name, text);
        let (status, out, _) = check(&[file.path()]);
        assert!(status == 1 && out.starts_with(&format!("{}{said}", file.path())), "{text}\n{said}\n{out}");
    }
}
