// SPDX-License-Identifier: Apache-2.0
//! The proxy-wasm adapters: they make the host calls, and decide nothing.
//!
//! One module, two plugins; Envoy's configuration selects one by `root_id`. They must run in VMs of
//! their own (a `vm_id` each): what the limiter sends enters the bridge inside the limiter's own call, and a VM cannot be
//! entered twice.
//!
//! Only `hostcalls` are used: the SDK's trait methods panic where those answer with a `Result`, and a panic strands every
//! paused request of the worker. Some of them panic too at a status that they do not expect, so nothing is read that does not
//! exist: the headers of a stream that has none, a request that is closed.

mod bridge;
mod limiter;

use std::time::{Duration, UNIX_EPOCH};

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, RootContext};
use proxy_wasm::types::{BufferType, LogLevel, Status};

use crate::time::Micros;

/// `root_id` of the HTTP filter.
const LIMITER: &str = "weir.limiter";
/// `root_id` of the filter in Redis's cluster.
const BRIDGE: &str = "weir.bridge";

proxy_wasm::main! {{
    start();
}}

/// Called by Envoy when the module is loaded.
fn start() {
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|id| {
        let root_id = hostcalls::get_property(vec!["plugin_root_id"]).ok().flatten().unwrap_or_default();
        match std::str::from_utf8(&root_id) {
            Ok(LIMITER) => Box::new(limiter::Root::new(id)),
            Ok(BRIDGE) => Box::new(bridge::Root::default()),
            _ => Box::new(Unknown { root_id: String::from_utf8_lossy(&root_id).into_owned() }),
        }
    });
}

/// True if a call to the host succeeded. A failure is logged: no such call should fail.
fn done(what: &str, done: Result<(), Status>) -> bool {
    done.inspect_err(|status| log::error!("{what} failed: {status:?}")).is_ok()
}

/// The first `size` bytes of a buffer of the host.
fn read(buffer: BufferType, size: usize) -> Option<Vec<u8>> {
    hostcalls::get_buffer(buffer, 0, size).ok().flatten()
}

/// The host's time.
fn now() -> Micros {
    Micros(u64::try_from(time_since_epoch().as_micros()).unwrap_or(u64::MAX))
}

/// The host's time, in its full resolution.
fn time_since_epoch() -> Duration {
    let time = hostcalls::get_current_time().ok();
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default()
}

/// The context of an unknown `root_id`: refuses the configuration, and logs what is allowed.
struct Unknown {
    root_id: String,
}

impl Context for Unknown {}

impl RootContext for Unknown {
    fn on_configure(&mut self, _size: usize) -> bool {
        log::error!("root_id: {:?} is not one of {LIMITER:?}, {BRIDGE:?}", self.root_id);
        false
    }
}
