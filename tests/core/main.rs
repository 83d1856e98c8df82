// SPDX-License-Identifier: Apache-2.0
//! The core by itself, in virtual time: no store, no Envoy, no clock.
//!
//! `scripts/cargo-wasm test --package weir --test core` runs the tables once more, compiled to wasm32 as the plugin is, on Node.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::type_complexity
)]

mod body;
mod bridge;
mod config;
mod policy;
/// The parts of a request: its path, the address of its client.
mod request {
    mod address;
    mod path;
    mod values;
}
mod resp;
/// The responses to clients: a client that follows them is never denied.
mod response {
    mod answers;
    mod apis;
    #[cfg(not(target_arch = "wasm32"))]
    mod client;
}

#[cfg(not(target_arch = "wasm32"))]
mod engine;
mod limit;
#[cfg(not(target_arch = "wasm32"))]
mod script;
#[cfg(not(target_arch = "wasm32"))]
mod search;
#[cfg(not(target_arch = "wasm32"))]
mod session;
#[cfg(not(target_arch = "wasm32"))]
mod simulation;

use weir_support::documented;
use weir_support::frames;
use weir_support::request as written;
use weir_support::spec;
use weir_support::table;
#[cfg(not(target_arch = "wasm32"))]
use weir_support::tried;
#[cfg(not(target_arch = "wasm32"))]
use weir_support::worker;
#[cfg(not(target_arch = "wasm32"))]
use weir_support::world;
