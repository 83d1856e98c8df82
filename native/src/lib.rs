// SPDX-License-Identifier: Apache-2.0
//! weir as a dynamic module of Envoy: `libweir.so`, the second host of the core. It translates between the core and Envoy's ABI,
//! and decides nothing.
//!
//! ```text
//!  client ─▶ listener `edge` ─▶ [weir.limiter] ─▶ router ─▶ upstream
//!                                   │  ▲
//!                 batch of commands ▼  │ replies            all on the worker's own thread
//!            this worker's connection to the listener `weir-store` ─▶ [weir.store] ─▶ tcp_proxy ─▶ Redis's cluster
//!            this worker's connection to the listener `weir-clock` ─▶ [weir.clock]
//! ```
//!
//! A filter of a request has no connection to Redis and no timer of its own. So the module connects to two listeners of its Envoy,
//! until each worker has one connection of each (`connector.rs`). The module never sends anything over these sockets:
//!
//! - On a **connection to Redis**, the module's filter injects commands, as if its peer had sent them, and `tcp_proxy` carries them to
//!   Redis's cluster. The filter takes the replies before they reach the peer. So TLS, DNS, time-outs and health checks are the cluster's.
//! - The **clock** is a scheduler that lives as long as its connection. A thread commits to it when something is due. It has a
//!   listener of its own, because a connection to Redis closes when Redis is unavailable.
//!
//! | file | what is inside |
//! |---|---|
//! | `http.rs`, `network.rs` | the hooks that Envoy calls |
//! | `pointers.rs` | the configurations and filters that Envoy holds for the module |
//! | `limiter.rs` | one configuration on one worker: its engine, and its turn |
//! | `worker.rs`, `connections.rs` | what one worker thread has: its limiters and its clock; its connections to Redis |
//! | `connector.rs`, `clock.rs` | the thread that connects to the listeners; the thread that wakes workers |
//! | `threads.rs`, `sockets.rs` | what these threads share and how they wait; this side of the connections |
//! | `login.rs`, `descriptors.rs` | the file with the login of Redis; whether descriptors are left for a connection |
//! | `attributes.rs`, `reply.rs`, `report.rs` | a request as the core reads it; local replies; metrics |
//! | `envoy.rs`, `abi.rs`, `logger.rs` | Envoy's objects behind safe methods; the ABI; Envoy's log |
//! | `panics.rs` | no panic crosses the boundary |
//! | `instrumented.rs` | panics on purpose, for tests; never shipped |

/// A test can make the module panic here. Elsewhere it does nothing.
macro_rules! fault {
    ($place:literal) => {
        #[cfg(any(test, feature = "instrumented"))]
        crate::instrumented::panic_if_armed($place);
    };
}

/// A test can see that this hook or callback ran. Elsewhere it does nothing.
macro_rules! ran {
    ($name:expr) => {
        #[cfg(any(test, feature = "instrumented"))]
        crate::instrumented::log_run($name);
    };
}

mod abi;
mod attributes;
mod clock;
mod connections;
mod connector;
mod descriptors;
mod envoy;
mod http;
#[cfg(any(test, feature = "instrumented"))]
mod instrumented;
mod limiter;
mod logger;
mod login;
mod network;
mod panics;
mod pointers;
mod reply;
mod report;
mod sockets;
#[cfg(test)]
mod tests;
mod threads;
mod worker;

use core::ffi::c_char;
use weir_core::time::Micros;

/// Envoy calls it on the main thread when it has loaded the module.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    panics::caught("program_init", logger::start);
    abi::VERSION.as_ptr()
}

/// The wall clock, for the core. Redis has a clock of its own; this one decides what is due in this process.
#[allow(clippy::disallowed_methods)]
#[cfg(not(any(miri, all(test, feature = "interleaved"))))]
fn now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    #[cfg(test)]
    let since = since.saturating_sub(tests::SET_BACK.get());
    Micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The time of Shuttle's model, or of Miri, where it passes with what is done.
#[cfg(any(miri, all(test, feature = "interleaved")))]
fn now() -> Micros {
    threads::model_time()
}
