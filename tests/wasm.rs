// SPDX-License-Identifier: Apache-2.0
//! The tables of the pure rooms once more, compiled to wasm32 as the plugin is, and run on Node:
//! `scripts/cargo-wasm test --package weir --test wasm`.
#![cfg(target_arch = "wasm32")]
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "request/address.rs"]
mod address;
#[path = "body/main.rs"]
mod body;
mod bridge;
#[path = "config/main.rs"]
mod config;
#[path = "request/path.rs"]
mod path;
mod policy;
mod resp;
#[path = "response/answers.rs"]
mod response;
#[path = "support/spec.rs"]
#[allow(dead_code)]
mod spec;
#[path = "support/table.rs"]
mod table;

use wasm_bindgen_test::wasm_bindgen_test;

#[wasm_bindgen_test]
fn the_tables_of_the_limits_hold_in_wasm() {
    for table in spec::tables().into_iter().chain(spec::debts()) {
        table.holds_purely().unwrap();
    }
}
