// SPDX-License-Identifier: Apache-2.0
//! Envoy's ABI for dynamic modules, as far as weir uses it, written by hand after the ABI `v0.2.0` of Envoy 1.40.
//!
//! Envoy exports the callbacks, and the dynamic linker finds them when Envoy loads the module. The hooks that a module exports are
//! in `http.rs` and `network.rs`. Envoy looks them up by name when it reads a configuration, and refuses the configuration if
//! one is missing.
//!
//! The ABI says of all pointers: Envoy owns its own objects, and reports the end of each by a `destroy` hook. A buffer that Envoy
//! returns is valid until the hook returns, or until something calls a setter. Envoy reads a buffer that the module passes only
//! during the call.

use core::ffi::{c_char, c_void};

/// The version of these bindings. If Envoy has another version, it only logs a warning.
pub const VERSION: &core::ffi::CStr = c"v0.2.0";

/// A configuration, filter or scheduler in Envoy.
pub type Envoy = *mut c_void;
/// A configuration or filter of this module, as Envoy holds it.
pub type Module = *const c_void;

/// Bytes of Envoy or of this module.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buffer {
    pub ptr: *const c_char,
    pub length: usize,
}

impl Buffer {
    pub const NULL: Self = Self { ptr: core::ptr::null(), length: 0 };

    pub const fn of(bytes: &[u8]) -> Self {
        Self { ptr: bytes.as_ptr().cast(), length: bytes.len() }
    }
}

/// A line of a header: of a response that this module sends, or of a map in Envoy.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    pub key: Buffer,
    pub value: Buffer,
}

/// The maps of headers.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum HeaderMap {
    Request = 0,
    Response = 2,
    ResponseTrailers = 3,
}

/// The bodies that a hook may read.
#[repr(u32)]
#[derive(Clone, Copy)]
pub enum Body {
    /// The chunk that the hook of the request's body has just received.
    ReceivedRequest = 0,
    /// The chunk that the hook of the response's body has just received.
    ReceivedResponse = 2,
}

/// The status that a hook of headers returns.
pub mod headers_status {
    pub const CONTINUE: u32 = 0;
    pub const STOP_ITERATION: u32 = 1;
    pub const STOP_ALL_AND_WATERMARK: u32 = 4;
}

/// The status with which a hook of a body stops the iteration.
pub mod data_status {
    pub const STOP_AND_WATERMARK: u32 = 2;
    pub const STOP_NO_BUFFER: u32 = 3;
}

/// The status with which other hooks continue.
pub const CONTINUE: u32 = 0;
/// The status with which a hook of a connection's bytes withholds them from the next filter.
pub const STOP_ITERATION: u32 = 1;

/// Events of a connection up to this number say that it is closed, by the peer (0) or by Envoy (1).
pub const LAST_CLOSE_EVENT: u32 = 1;

/// Closes a connection without sending what is buffered.
pub const CLOSE_NO_FLUSH: u32 = 1;

/// The metadata that filters set for a request.
pub const DYNAMIC_METADATA: u32 = 0;

/// A callback of metrics succeeded.
pub const METRIC_SUCCESS: u32 = 0;

macro_rules! callbacks {
    ($($name:ident = $symbol:literal ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        mod imported {
            use super::{Body, Buffer, Envoy, Header, HeaderMap};

            unsafe extern "C" {
                $(#[link_name = concat!("envoy_dynamic_module_callback_", $symbol)]
                pub fn $name($($argument: $type),*) $(-> $result)?;)*
            }
        }

        #[cfg(not(feature = "instrumented"))]
        pub use imported::*;

        $(#[cfg(feature = "instrumented")]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            ran!(concat!("callback ", $symbol));
            // SAFETY: the caller promises what the callback requires.
            unsafe { imported::$name($($argument),*) }
        })*
    };
}

callbacks! {
    log = "log"(level: u32, message: Buffer);
    log_enabled = "log_enabled"(level: u32) -> bool;
    concurrency = "get_concurrency"() -> u32;
    is_validation_mode = "is_validation_mode"() -> bool;

    define_counter = "http_filter_config_define_counter"(
        config: Envoy, name: Buffer, labels: *mut Buffer, label_count: usize, id: *mut usize) -> u32;
    define_gauge = "http_filter_config_define_gauge"(
        config: Envoy, name: Buffer, labels: *mut Buffer, label_count: usize, id: *mut usize) -> u32;
    define_histogram = "http_filter_config_define_histogram"(
        config: Envoy, name: Buffer, labels: *mut Buffer, label_count: usize, id: *mut usize) -> u32;
    record_value = "http_filter_config_record_histogram_value"(
        config: Envoy, id: usize, labels: *mut Buffer, label_count: usize, value: u64) -> u32;
    increment_counter = "http_filter_config_increment_counter"(
        config: Envoy, id: usize, labels: *mut Buffer, label_count: usize, by: u64) -> u32;
    set_gauge = "http_filter_config_set_gauge"(
        config: Envoy, id: usize, labels: *mut Buffer, label_count: usize, value: u64) -> u32;
    increment_gauge = "http_filter_config_increment_gauge"(
        config: Envoy, id: usize, labels: *mut Buffer, label_count: usize, by: u64) -> u32;
    decrement_gauge = "http_filter_config_decrement_gauge"(
        config: Envoy, id: usize, labels: *mut Buffer, label_count: usize, by: u64) -> u32;

    header_count = "http_get_headers_size"(filter: Envoy, map: HeaderMap) -> usize;
    headers = "http_get_headers"(filter: Envoy, map: HeaderMap, headers: *mut Header) -> bool;
    add_header = "http_add_header"(filter: Envoy, map: HeaderMap, name: Buffer, value: Buffer) -> bool;
    set_header = "http_set_header"(filter: Envoy, map: HeaderMap, name: Buffer, value: Buffer) -> bool;
    send_response = "http_send_response"(
        filter: Envoy, status: u32, headers: *mut Header, header_count: usize, body: Buffer, details: Buffer);
    continue_decoding = "http_filter_continue_decoding"(filter: Envoy);
    attribute_string = "http_filter_get_attribute_string"(filter: Envoy, attribute: u32, value: *mut Buffer) -> bool;
    metadata_string = "http_get_metadata_string"(
        filter: Envoy, source: u32, namespace: Buffer, key: Buffer, value: *mut Buffer) -> bool;
    metadata_key_count = "http_get_metadata_keys_count"(filter: Envoy, source: u32, namespace: Buffer) -> usize;
    metadata_keys = "http_get_metadata_keys"(
        filter: Envoy, source: u32, namespace: Buffer, keys: *mut Buffer) -> bool;
    filter_state = "http_get_filter_state_bytes"(filter: Envoy, key: Buffer, value: *mut Buffer) -> bool;
    has_filter_state = "http_has_filter_state"(filter: Envoy, key: Buffer) -> bool;
    filter_state_typed = "http_get_filter_state_typed"(filter: Envoy, key: Buffer, value: *mut Buffer) -> bool;
    body_chunk_count = "http_get_body_chunks_size"(filter: Envoy, body: Body) -> usize;
    body_chunks = "http_get_body_chunks"(filter: Envoy, body: Body, chunks: *mut Buffer) -> bool;
    new_request_scheduler = "http_filter_scheduler_new"(filter: Envoy) -> Envoy;
    commit_to_request = "http_filter_scheduler_commit"(scheduler: Envoy, event: u64);
    delete_request_scheduler = "http_filter_scheduler_delete"(scheduler: Envoy);
    set_filter_state = "http_set_filter_state_bytes"(filter: Envoy, key: Buffer, value: Buffer) -> bool;

    worker_index = "network_filter_get_worker_index"(filter: Envoy) -> u32;
    cluster_host_count = "network_filter_get_cluster_host_count"(
        filter: Envoy, cluster: Buffer, priority: u32, total: *mut usize, healthy: *mut usize, degraded: *mut usize) -> bool;
    inject_read_data = "network_filter_inject_read_data"(filter: Envoy, data: Buffer, end_of_stream: bool);
    write_buffer_chunk_count = "network_filter_get_write_buffer_chunks_size"(filter: Envoy) -> usize;
    write_buffer_chunks = "network_filter_get_write_buffer_chunks"(filter: Envoy, chunks: *mut Buffer) -> bool;
    drain_write_buffer = "network_filter_drain_write_buffer"(filter: Envoy, length: usize) -> bool;
    close_connection = "network_filter_close"(filter: Envoy, how: u32);
    new_scheduler = "network_filter_scheduler_new"(filter: Envoy) -> Envoy;
    commit = "network_filter_scheduler_commit"(scheduler: Envoy, event: u64);
    delete_scheduler = "network_filter_scheduler_delete"(scheduler: Envoy);
}
