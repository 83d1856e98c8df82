// SPDX-License-Identifier: Apache-2.0
//! The bindings, compiled to wasm32 and run on Node: `scripts/cargo-wasm test --package weir-playground`.
#![cfg(target_arch = "wasm32")]
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

use wasm_bindgen::JsValue;
use wasm_bindgen_test::wasm_bindgen_test;
use weir_playground::{Lab, check, replay};

const CONFIG: &str =
    "policies:\n- name: p\n  limits:\n  - {name: l, algorithm: leaky_bucket, rate: 1/s, burst: 2}\n";

fn text<T>(answer: Result<T, wasm_bindgen::JsError>) -> Result<T, String> {
    answer.map_err(|error| format!("{:?}", JsValue::from(error)))
}

#[wasm_bindgen_test]
fn what_is_wrong_has_its_place() {
    let wrong = CONFIG.replace("leaky_bucket", "leeky_bucket");
    let found = text(check("weir.yaml", &wrong)).unwrap();
    assert!(found.contains("\"line\":4") && found.contains("leaky_bucket"), "{found}");
    let error = text(Lab::new("weir.yaml", &wrong)).err().unwrap();
    assert!(error.contains("weir.yaml:4:"), "{error}");
    assert!(text(check("weir.yaml", CONFIG)).unwrap().contains("\"findings\":[]"));
}

#[wasm_bindgen_test]
fn requests_are_decided_and_explained() {
    let mut lab = text(Lab::new("weir.yaml", CONFIG)).unwrap();
    let line = "{\"t_ms\": 1000}";
    let explained = text(lab.explain(line, false)).unwrap();
    assert!(explained.contains("2 left, full"), "{explained}");
    let allowed: Vec<bool> =
        (0..3).map(|_| text(lab.decide(line)).unwrap().contains("\"allowed\":true")).collect();
    assert_eq!(allowed, [true, true, false]);
    let explained = text(lab.explain(line, true)).unwrap();
    assert!(explained.contains("\"status\":429") && explained.contains("\"remaining\":0"), "{explained}");
    assert!(text(lab.report()).unwrap().starts_with("3 requests"));
    let error = text(lab.decide("{\"t\": 1}")).unwrap_err();
    assert!(error.contains("unknown field"), "{error}");
}

#[wasm_bindgen_test]
fn a_log_is_replayed() {
    let log =
        "192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n".repeat(4);
    let page =
        text(replay("weir.yaml", CONFIG, Some(CONFIG.replace("burst: 2", "burst: 3")), "access.log", &log));
    let page = page.unwrap();
    assert!(page.contains("Replay of access.log") && page.contains("compared.yaml"), "{page}");
    let error = text(replay("weir.yaml", CONFIG, None, "access.log", "no log\n")).unwrap_err();
    assert!(error.contains("access.log"), "{error}");
}
