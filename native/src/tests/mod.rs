// SPDX-License-Identifier: Apache-2.0
//! The module without Envoy: an Envoy of its own calls the hooks and provides the callbacks. It enters the module again from within
//! callbacks, and frees streams, connections and configurations as soon as the ABI allows it. `make miri` runs these tests under Miri, which
//! sees each access to freed memory and each data race.
//!
//! | file | what is inside |
//! |---|---|
//! | `cases.rs`, `panics.rs` | the tests; those in which hooks panic |
//! | `world.rs` | a worker with its event loop, and what tests do on it |
//! | `envoy.rs` | Envoy's objects, and the callbacks that the module calls |
//! | `redis.rs` | what Redis answers |
//! | `sockets.rs` | the module's connections to its listeners |
//! | `clock.rs`, `connector.rs` | their threads under Shuttle, with the feature `interleaved` |
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used
)]
#![cfg_attr(feature = "interleaved", allow(dead_code))]

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// The time by which an operator has set the clock of this worker's host back.
    pub static SET_BACK: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

#[cfg(not(feature = "interleaved"))]
mod cases;
mod envoy;
#[cfg(not(feature = "interleaved"))]
mod panics;
mod redis;
pub mod sockets;
mod world;
