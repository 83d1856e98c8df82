// SPDX-License-Identifier: Apache-2.0
//! Hooks that do nothing. Envoy refuses the configuration of a module that lacks them.

use crate::abi::{Buffer, Envoy, Header, Module};

macro_rules! ignore {
    ($($hook:ident($($argument:ty),*);)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $hook($(_: $argument),*) {
            ran!(stringify!($hook));
        })*
    };
}

// They report on streams and calls that a filter can begin. weir begins none.
ignore! {
    envoy_dynamic_module_on_http_filter_stream_complete(Envoy, Module);
    envoy_dynamic_module_on_http_filter_http_callout_done(
        Envoy, Module, u64, u32, *const Header, usize, *const Buffer, usize);
    envoy_dynamic_module_on_http_filter_http_stream_headers(Envoy, Module, u64, *const Header, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_data(Envoy, Module, u64, *const Buffer, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_trailers(Envoy, Module, u64, *const Header, usize);
    envoy_dynamic_module_on_http_filter_http_stream_complete(Envoy, Module, u64);
    envoy_dynamic_module_on_http_filter_http_stream_reset(Envoy, Module, u64, u32);
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(Envoy, Module);
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(Envoy, Module);
}
