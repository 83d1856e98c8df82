// SPDX-License-Identifier: Apache-2.0
//! The limits: which parameters they may have, and the laws that the pure ones and the Lua on a real Redis keep. Their tables are in
//! `limit_tables.rs`, and what only a real Redis can show is in `limit_redis.rs`.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[cfg(not(target_arch = "wasm32"))]
#[path = "../support/redis.rs"]
#[allow(dead_code)]
mod redis;
#[path = "../support/spec.rs"]
#[allow(dead_code)]
mod spec;
#[cfg(not(target_arch = "wasm32"))]
#[path = "../support/store.rs"]
#[allow(dead_code)]
mod store;
#[cfg(not(target_arch = "wasm32"))]
#[path = "../support/tried.rs"]
mod tried;

#[cfg(not(target_arch = "wasm32"))]
mod histories;
mod parameters;
