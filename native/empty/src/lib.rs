// SPDX-License-Identifier: Apache-2.0
//! The control of `make bench`: what any filter in a dynamic module costs in Envoy. It exports every hook that Envoy requires of a
//! module with an HTTP filter, and does nothing in any of them.

use core::ffi::{c_char, c_void};
use core::ptr;

/// An object of Envoy, or of this module. No hook looks at one.
type Object = *const c_void;

/// The ABI's buffer, which Envoy passes by value.
#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    bytes: *const c_char,
    length: usize,
}

macro_rules! hooks {
    ($($hook:ident($($argument:ty),*) $(-> $result:ty = $value:expr)?;)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $hook($(_: $argument),*) $(-> $result)? {
            $($value)?
        })*
    };
}

/// Every hook's "go on".
const CONTINUE: u32 = 0;

// A configuration or filter that is null would mean an error.
hooks! {
    envoy_dynamic_module_on_program_init() -> *const c_char = c"v0.2.0".as_ptr();
    envoy_dynamic_module_on_http_filter_config_new(Object, Buffer, Buffer) -> Object = ptr::dangling();
    envoy_dynamic_module_on_http_filter_config_destroy(Object);
    envoy_dynamic_module_on_http_filter_new(Object, Object) -> Object = ptr::dangling();
    envoy_dynamic_module_on_http_filter_request_headers(Object, Object, bool) -> u32 = CONTINUE;
    envoy_dynamic_module_on_http_filter_request_body(Object, Object, bool) -> u32 = CONTINUE;
    envoy_dynamic_module_on_http_filter_request_trailers(Object, Object) -> u32 = CONTINUE;
    envoy_dynamic_module_on_http_filter_response_headers(Object, Object, bool) -> u32 = CONTINUE;
    envoy_dynamic_module_on_http_filter_response_body(Object, Object, bool) -> u32 = CONTINUE;
    envoy_dynamic_module_on_http_filter_response_trailers(Object, Object) -> u32 = CONTINUE;
    envoy_dynamic_module_on_http_filter_stream_complete(Object, Object);
    envoy_dynamic_module_on_http_filter_scheduled(Object, Object, u64);
    envoy_dynamic_module_on_http_filter_destroy(Object);
    envoy_dynamic_module_on_http_filter_http_callout_done(Object, Object, u64, u32, Object, usize, Object, usize);
    envoy_dynamic_module_on_http_filter_http_stream_headers(Object, Object, u64, Object, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_data(Object, Object, u64, Object, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_trailers(Object, Object, u64, Object, usize);
    envoy_dynamic_module_on_http_filter_http_stream_complete(Object, Object, u64);
    envoy_dynamic_module_on_http_filter_http_stream_reset(Object, Object, u64, u32);
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(Object, Object);
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(Object, Object);
}
