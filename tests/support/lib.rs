// SPDX-License-Identifier: Apache-2.0
//! The parts that all tests, benches and examples share.
//!
//! | modules | what they are |
//! |---|---|
//! | `documented`, `frames`, `hostile`, `request`, `spec`, `table`, `core` | inputs and tables, which are tried as WebAssembly too |
//! | `tried`, `worker`, `world`, `search`, `simulation`, `plot`, `bars` | the core in virtual time, and drawings of what it does |
//! | `redis`, `store`, `leases`, `cluster`, `sentinel` | a real Redis, several, and the scripts on it |
//! | the others | a real Envoy, an upstream, and a client that decides when it sends what |
//!
//! Each real part is private to the test that starts it, and ends when it is dropped.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
// Waiting for another process takes a real clock; nothing here is linked into the filter.
#![allow(clippy::disallowed_methods)]

pub mod core;
pub mod documented;
pub mod frames;
pub mod hostile;
pub mod request;
pub mod spec;
pub mod table;

/// The modules that need threads, processes or files.
#[cfg(not(target_arch = "wasm32"))]
mod machine;
#[cfg(not(target_arch = "wasm32"))]
pub use machine::*;
#[cfg(not(target_arch = "wasm32"))]
pub use tried::{is_full, sized, tried};

#[cfg(not(target_arch = "wasm32"))]
pub mod bars;
#[cfg(not(target_arch = "wasm32"))]
pub mod certificates;
#[cfg(not(target_arch = "wasm32"))]
pub mod clients;
#[cfg(not(target_arch = "wasm32"))]
pub mod cluster;
#[cfg(not(target_arch = "wasm32"))]
pub mod dynamic;
#[cfg(not(target_arch = "wasm32"))]
pub mod envoy;
#[cfg(not(target_arch = "wasm32"))]
pub mod http;
#[cfg(not(target_arch = "wasm32"))]
pub mod http2;
#[cfg(not(target_arch = "wasm32"))]
pub mod leases;
#[cfg(not(target_arch = "wasm32"))]
pub mod load;
#[cfg(not(target_arch = "wasm32"))]
pub mod plot;
#[cfg(not(target_arch = "wasm32"))]
pub mod proxy;
#[cfg(not(target_arch = "wasm32"))]
pub mod queries;
#[cfg(not(target_arch = "wasm32"))]
pub mod redis;
#[cfg(not(target_arch = "wasm32"))]
pub mod regions;
#[cfg(not(target_arch = "wasm32"))]
pub mod search;
#[cfg(not(target_arch = "wasm32"))]
pub mod sentinel;
#[cfg(not(target_arch = "wasm32"))]
pub mod server;
#[cfg(not(target_arch = "wasm32"))]
pub mod simulation;
#[cfg(not(target_arch = "wasm32"))]
pub mod store;
#[cfg(not(target_arch = "wasm32"))]
pub mod tried;
#[cfg(not(target_arch = "wasm32"))]
pub mod upstream;
#[cfg(not(target_arch = "wasm32"))]
pub mod weir;
#[cfg(not(target_arch = "wasm32"))]
pub mod without;
#[cfg(not(target_arch = "wasm32"))]
pub mod worker;
#[cfg(not(target_arch = "wasm32"))]
pub mod world;
