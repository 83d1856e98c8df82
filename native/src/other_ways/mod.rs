// SPDX-License-Identifier: Apache-2.0
//! For `make bench-ways` only (the cargo feature `other_ways`): other ways to Redis, to compare with the way that is shipped.
//! `other_way` in the configuration of `weir.store` names one.
//!
//! | `other_way` | what carries a batch | what it gives up |
//! |---|---|---|
//! | `{kind: thread, to: ADDRESS}` | a socket of the worker; a thread reads the replies and wakes the worker | all that Envoy's clusters give: TLS, DNS, health checks, time-outs, a store that moves |
//! | `{kind: main, to: CLUSTER}` | a stream of Envoy's main thread, one for each worker | the worker's own loop: a batch and its replies change the thread, and all workers share one |
//! | `{kind: request, to: CLUSTER}` | a stream of one of the requests that wait | the connection that stays open, and batches that outlive a client |
//!
//! A `CLUSTER` has a TCP connection for each stream (`TcpConnectionPoolProto`), as the bridge of the plugin has. None of these ways knows
//! logins, suspect slots or a second store.

pub mod main_thread;
pub mod own_thread;
pub mod request;

use std::sync::OnceLock;

use serde_json::Value;
use weir_core::engine::{Outgoing, StoreFailure};

use crate::abi::{Buffer, Envoy, Header};
use crate::clock::Handle;
use crate::envoy::HttpFilter;
use crate::ways::Ticket;

/// What carries batches.
#[derive(Clone, Copy)]
enum Kind {
    Thread,
    Main,
    Request,
}

/// A batch with its replies, or without, if it gets none.
pub type Answer = (Ticket, Option<Vec<u8>>);

/// The way that is used, and where it leads.
static WAY: OnceLock<(Kind, String)> = OnceLock::new();

/// Reads `other_way`.
pub fn register(config: &Value) {
    let text = |field: &str| config.get("other_way")?.get(field)?.as_str();
    let kind = match text("kind") {
        Some("thread") => Kind::Thread,
        Some("main") => Kind::Main,
        Some("request") => Kind::Request,
        _ => return,
    };
    let _ = WAY.set((kind, text("to").unwrap_or_default().to_owned()));
}

/// Whether one of these ways is used.
pub fn is_used() -> bool {
    WAY.get().is_some()
}

/// Sends a batch. `clock` wakes this worker, and `carrier` is a request that waits.
pub fn send(
    clock: Handle,
    carrier: Option<HttpFilter>,
    ticket: Ticket,
    outgoing: &Outgoing,
) -> Result<(), StoreFailure> {
    let (kind, to) = WAY.get().ok_or(StoreFailure::NotSent)?;
    match kind {
        Kind::Thread => own_thread::send(to, clock, ticket, outgoing),
        Kind::Main => main_thread::send(clock, ticket, outgoing),
        Kind::Request => request::send(to, carrier.ok_or(StoreFailure::NotSent)?, ticket, outgoing),
    }
}

/// What was answered since.
pub fn take_answers() -> Vec<Answer> {
    match WAY.get() {
        Some((Kind::Thread, _)) => own_thread::take_answers(),
        Some((Kind::Main, _)) => main_thread::take_answers(),
        Some((Kind::Request, _)) => request::take_answers(),
        None => Vec::new(),
    }
}

/// The headers of a stream. They never leave Envoy.
fn headers() -> [Header; 3] {
    let line = |key: &'static str, value: &'static str| Header {
        key: Buffer::of(key.as_bytes()),
        value: Buffer::of(value.as_bytes()),
    };
    [line(":method", "POST"), line(":path", "/"), line(":authority", "redis")]
}

/// The bytes of these chunks but for the first ones.
///
/// # Safety
/// Envoy has handed them out to the current hook.
unsafe fn joined(chunks: *const Buffer, count: usize, mut skipped: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for place in 0..count {
        // SAFETY: the ABI says that there are so many chunks, readable until the hook returns.
        let chunk = unsafe { *chunks.add(place) };
        if chunk.length > skipped {
            // SAFETY: as above.
            bytes.extend(unsafe { crate::envoy::copy(chunk) }.into_iter().skip(skipped));
        }
        skipped = skipped.saturating_sub(chunk.length);
    }
    bytes
}

/// A stream lasts for as long as the benchmark.
const NO_TIMEOUT_MS: u64 = 3_600_000;

/// The callback that began a stream succeeded.
const SUCCESS: u32 = 0;

macro_rules! callbacks {
    ($($name:ident = $symbol:literal ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $(#[link_name = concat!("envoy_dynamic_module_callback_", $symbol)]
            fn $name($($argument: $type),*) $(-> $result)?;)*
        }
    };
}

callbacks! {
    start_stream_of_request = "http_filter_start_http_stream"(
        filter: Envoy, id: *mut u64, cluster: Buffer, headers: *mut Header, header_count: usize, body: Buffer,
        end_of_stream: bool, timeout_ms: u64) -> u32;
    start_stream = "http_filter_config_start_http_stream"(
        config: Envoy, id: *mut u64, cluster: Buffer, headers: *mut Header, header_count: usize, body: Buffer,
        end_of_stream: bool, timeout_ms: u64) -> u32;
    send_on_stream = "http_filter_config_stream_send_data"(
        config: Envoy, id: u64, data: Buffer, end_of_stream: bool) -> bool;
    reset_stream = "http_filter_config_reset_http_stream"(config: Envoy, id: u64);
    new_main_scheduler = "http_filter_config_scheduler_new"(config: Envoy) -> Envoy;
    commit_to_main = "http_filter_config_scheduler_commit"(scheduler: Envoy, event: u64);
    delete_main_scheduler = "http_filter_config_scheduler_delete"(scheduler: Envoy);
}
