// SPDX-License-Identifier: Apache-2.0
//! The core by itself, in virtual time: no store, no Envoy, no clock.
//!
//! `scripts/cargo-wasm test --package weir --test core` runs the tables once more, compiled to wasm32 as the plugin is, on Node.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod body;
mod bridge;
mod config;
mod policy;
mod request;
mod resp;
mod response;

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

#[path = "../support/documented.rs"]
mod documented;
#[path = "../support/frames.rs"]
mod frames;
#[cfg(not(target_arch = "wasm32"))]
#[path = "../support/plot.rs"]
mod plot;
#[path = "../support/spec.rs"]
#[allow(dead_code)]
mod spec;
#[path = "../support/table.rs"]
mod table;
#[cfg(not(target_arch = "wasm32"))]
#[path = "../support/tried.rs"]
mod tried;
#[cfg(not(target_arch = "wasm32"))]
#[path = "../support/worker.rs"]
mod worker;
#[cfg(not(target_arch = "wasm32"))]
#[path = "../support/world/mod.rs"]
#[allow(dead_code)]
mod world;
#[path = "../support/request.rs"]
mod written;
