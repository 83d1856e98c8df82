// SPDX-License-Identifier: Apache-2.0
//! The plugin that ships exports each callback that `src/host` implements. `scripts/plugin` strips the SDK's other callbacks, and
//! Envoy skips a callback that is missing without a word: it then goes on with a request that weir has paused.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The exports that the ABI and the SDK need, whatever weir implements.
const ALWAYS: [&str; 7] = [
    "memory",
    "_initialize",
    "proxy_abi_version_0_2_1",
    "malloc",
    "proxy_on_context_create",
    "proxy_on_vm_start",
    "proxy_on_delete",
];

/// The SDK's methods, and the export through which Envoy calls each.
const CALLBACKS: [(&str, &str); 25] = [
    ("on_vm_start", "proxy_on_vm_start"),
    ("on_configure", "proxy_on_configure"),
    ("on_tick", "proxy_on_tick"),
    ("on_queue_ready", "proxy_on_queue_ready"),
    ("on_done", "proxy_on_done"),
    ("on_log", "proxy_on_log"),
    ("on_http_request_headers", "proxy_on_request_headers"),
    ("on_http_request_body", "proxy_on_request_body"),
    ("on_http_request_trailers", "proxy_on_request_trailers"),
    ("on_http_response_headers", "proxy_on_response_headers"),
    ("on_http_response_body", "proxy_on_response_body"),
    ("on_http_response_trailers", "proxy_on_response_trailers"),
    ("on_http_call_response", "proxy_on_http_call_response"),
    // The answer to a gRPC call is a message, or the end of the call.
    ("on_grpc_call_response", "proxy_on_grpc_receive"),
    ("on_grpc_call_response", "proxy_on_grpc_close"),
    ("on_grpc_stream_initial_metadata", "proxy_on_grpc_receive_initial_metadata"),
    ("on_grpc_stream_message", "proxy_on_grpc_receive"),
    ("on_grpc_stream_trailing_metadata", "proxy_on_grpc_receive_trailing_metadata"),
    ("on_grpc_stream_close", "proxy_on_grpc_close"),
    ("on_foreign_function", "proxy_on_foreign_function"),
    ("on_new_connection", "proxy_on_new_connection"),
    ("on_downstream_data", "proxy_on_downstream_data"),
    ("on_downstream_close", "proxy_on_downstream_connection_close"),
    ("on_upstream_data", "proxy_on_upstream_data"),
    ("on_upstream_close", "proxy_on_upstream_connection_close"),
];

/// The parts of a message, in the order in which Envoy shows them. After a pause at one, the filter has to hold the later ones, too.
const PHASES: [[&str; 3]; 2] = [
    ["on_http_request_headers", "on_http_request_body", "on_http_request_trailers"],
    ["on_http_response_headers", "on_http_response_body", "on_http_response_trailers"],
];

#[test]
fn what_ships_exports_what_is_implemented() {
    let needed = needed();
    let shipped = exports(&fs::read(plugin()).expect("target/weir.wasm, which `make plugin` builds"));
    let stripped: Vec<_> = needed.difference(&shipped).collect();
    assert!(stripped.is_empty(), "src/host implements {stripped:?}, and the plugin does not export them");
}

#[test]
fn the_plugin_is_small() {
    // A ConfigMap of Kubernetes holds 1,048,576 bytes.
    const MOST: usize = 1_040_000;
    if std::process::Command::new("wasm-opt").arg("--version").output().is_err() {
        return weir_support::not_tested("no wasm-opt here, without which the plugin is larger");
    }
    let bytes = fs::read(plugin()).expect("target/weir.wasm, which `make plugin` builds").len();
    assert!(bytes <= MOST, "{bytes} bytes, at most {MOST}");
}

#[test]
fn the_list_of_exports_is_what_is_implemented() {
    let list: serde_json::Value = serde_json::from_str(include_str!("../../scripts/exports.json")).unwrap();
    let list = list.as_array().expect("a list").iter();
    let listed: BTreeSet<_> = list.map(|row| row["export"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(listed, needed());
}

#[test]
fn whatever_pauses_implements_what_follows() {
    let mut impls = 0;
    for (file, text) in sources() {
        for implemented in text.split("impl HttpContext for ").skip(1) {
            let implemented = implemented.split("\n}\n").next().expect("its block");
            impls += 1;
            assert_eq!(unguarded(implemented), Vec::<&str>::new(), "{}", file.display());
        }
    }
    assert_eq!(impls, 2, "the limiter and the bridge");
}

#[test]
fn what_counts_as_a_pause() {
    let callback =
        |name: &str, body: &str| format!("    fn {name}(&mut self) -> Action {{\n        {body}\n    }}\n");
    let (headers, body) = ("on_http_request_headers", "on_http_request_body");
    let rows: [(String, &[&str]); 6] = [
        (callback(headers, "Action::Continue"), &[]),
        (callback(headers, "Action::Pause"), &["on_http_request_body", "on_http_request_trailers"]),
        (callback(headers, "self.decide()"), &["on_http_request_body", "on_http_request_trailers"]),
        (
            callback(headers, "if a { return Action::Pause; }\n        Action::Continue"),
            &["on_http_request_body", "on_http_request_trailers"],
        ),
        (callback(headers, "self.a()") + &callback(body, "self.b()"), &["on_http_request_trailers"]),
        (callback("on_http_response_body", "self.a()"), &["on_http_response_trailers"]),
    ];
    for (text, wanted) in rows {
        assert_eq!(unguarded(&text), wanted, "{text}");
    }
}

/// The callbacks that an implementation lacks, although it may pause what Envoy shows to an earlier one.
fn unguarded(text: &str) -> Vec<&'static str> {
    let body = |name: &str| {
        let (_, rest) = text.split_once(&format!("    fn {name}("))?;
        rest.split_once("\n    }\n").map(|(body, _)| body)
    };
    let may_pause = |body: &str| body.contains("Pause") || !body.trim_end().ends_with("Action::Continue");
    let missing = |phase: [&'static str; 3]| {
        let paused = phase.into_iter().position(|name| body(name).is_some_and(may_pause));
        let later = phase.into_iter().skip(paused.map_or(phase.len(), |at| at + 1));
        later.filter(|name| body(name).is_none()).collect::<Vec<_>>()
    };
    PHASES.into_iter().flat_map(missing).collect()
}

/// The exports that the plugin needs.
fn needed() -> BTreeSet<String> {
    let mut needed: BTreeSet<_> = ALWAYS.map(str::to_owned).into();
    for (file, text) in sources() {
        for method in text.split("    fn on_").skip(1) {
            let method = format!("on_{}", method.split('(').next().expect("a name"));
            let exports: Vec<_> = CALLBACKS.iter().filter(|(name, _)| *name == method).collect();
            assert!(!exports.is_empty(), "{}: which export calls {method}?", file.display());
            needed.extend(exports.into_iter().map(|(_, export)| (*export).to_owned()));
        }
    }
    needed
}

/// The sources of the adapters.
fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/host")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path, text));
            }
        }
    }
    sources
}

/// The plugin that was built, as the tests in Envoy find it.
fn plugin() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/weir.wasm");
    std::env::var_os("WEIR_PLUGIN").map_or(built, PathBuf::from)
}

/// The names in the export section of a WebAssembly module.
fn exports(module: &[u8]) -> BTreeSet<String> {
    const EXPORTS: u8 = 7;
    assert_eq!(module[..8], *b"\0asm\x01\0\0\0");
    let mut rest = &module[8..];
    loop {
        let id = byte(&mut rest);
        let length = number(&mut rest);
        let (section, after) = rest.split_at(length);
        if id == EXPORTS {
            rest = section;
            break;
        }
        rest = after;
    }
    let count = number(&mut rest);
    let name = |_| {
        let length = number(&mut rest);
        let (name, after) = rest.split_at(length);
        rest = after;
        // Its kind and its index.
        byte(&mut rest);
        number(&mut rest);
        String::from_utf8(name.to_vec()).expect("text")
    };
    (0..count).map(name).collect()
}

fn byte(rest: &mut &[u8]) -> u8 {
    let (first, after) = rest.split_first().expect("more bytes");
    *rest = after;
    *first
}

/// An unsigned LEB128.
fn number(rest: &mut &[u8]) -> usize {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let next = byte(rest);
        number |= usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            break;
        }
    }
    number
}
