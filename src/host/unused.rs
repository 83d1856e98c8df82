// SPDX-License-Identifier: Apache-2.0
//! Empty bodies for the methods that the SDK gives each context to call the host with. weir calls none of them, but each context has a
//! table of all its methods, so the SDK's bodies would stay in the plugin: 16 KB.

pub(super) use std::time::{Duration, SystemTime};

use proxy_wasm::types::Status;
pub(super) use proxy_wasm::types::{Bytes, GrpcStatusCode};

pub(super) type Texts = Vec<(String, String)>;
pub(super) type Maps = Vec<(String, Bytes)>;
pub(super) type Text<'a> = Vec<(&'a str, &'a str)>;
pub(super) type Map<'a> = Vec<(&'a str, &'a [u8])>;
pub(super) type Value<'a> = Option<&'a [u8]>;
pub(super) type Token = Result<u32, Status>;
pub(super) type Done = Result<(), Status>;
pub(super) type Found = Result<Option<Bytes>, Status>;

/// What a method does that nothing calls.
pub(super) fn unused() -> ! {
    unreachable!()
}

/// Methods with these arguments and this result, by name.
macro_rules! methods {
    ($($arguments:tt -> $result:ty: $($name:ident)+;)+) => {
        $($(fn $name $arguments -> $result { unused::unused() })+)+
    };
}

/// Those of a `Context`.
macro_rules! context {
    () => {
        unused::methods! {
            (&self) -> unused::SystemTime: get_current_time;
            (&self, _: Vec<&str>) -> Option<unused::Bytes>: get_property;
            (&self, _: Vec<&str>, _: unused::Value) -> (): set_property;
            (&self, _: &str) -> (Option<unused::Bytes>, Option<u32>): get_shared_data;
            (&self, _: &str, _: unused::Value, _: Option<u32>) -> unused::Done: set_shared_data;
            (&self, _: &str, _: Option<u32>) -> unused::Done: remove_shared_data;
            (&self, _: &str) -> u32: register_shared_queue;
            (&self, _: &str, _: &str) -> Option<u32>: resolve_shared_queue;
            (&self, _: u32) -> unused::Found: dequeue_shared_queue;
            (&self, _: u32, _: unused::Value) -> unused::Done: enqueue_shared_queue;
            (&self, _: &str, _: unused::Text, _: unused::Value, _: unused::Text,
                _: unused::Duration) -> unused::Token: dispatch_http_call;
            (&self, _: &str, _: &str, _: &str, _: unused::Map, _: unused::Value,
                _: unused::Duration) -> unused::Token: dispatch_grpc_call;
            (&self, _: &str, _: &str, _: &str, _: unused::Map) -> unused::Token: open_grpc_stream;
            (&self, _: &str, _: unused::Value) -> unused::Found: call_foreign_function;
            (&self, _: u32, _: unused::Value, _: bool) -> (): send_grpc_stream_message;
            (&self, _: u32) -> (): cancel_grpc_call cancel_grpc_stream close_grpc_stream;
            (&self) -> (u32, Option<String>): get_grpc_status;
            (&self) -> (): done;
            (&self) -> unused::Texts: get_http_call_response_headers get_http_call_response_trailers;
            (&self) -> unused::Maps: get_http_call_response_headers_bytes get_http_call_response_trailers_bytes
                get_grpc_stream_initial_metadata get_grpc_stream_trailing_metadata;
            (&self, _: &str) -> Option<String>: get_http_call_response_header get_http_call_response_trailer;
            (&self, _: &str) -> Option<unused::Bytes>: get_http_call_response_header_bytes get_http_call_response_trailer_bytes
                get_grpc_stream_initial_metadata_value get_grpc_stream_trailing_metadata_value;
            (&self, _: usize, _: usize) -> Option<unused::Bytes>: get_http_call_response_body get_grpc_call_response_body;
            (&mut self, _: usize, _: usize) -> Option<unused::Bytes>: get_grpc_stream_message;
        }
    };
}

/// Those of a `RootContext`.
macro_rules! root {
    () => {
        unused::methods! {
            (&self) -> Option<unused::Bytes>: get_vm_configuration get_plugin_configuration;
            (&self, _: unused::Duration) -> (): set_tick_period;
        }
    };
}

/// Those of an `HttpContext`.
macro_rules! http {
    () => {
        unused::methods! {
            (&self) -> unused::Texts: get_http_request_headers get_http_request_trailers get_http_response_headers
                get_http_response_trailers;
            (&self) -> unused::Maps: get_http_request_headers_bytes get_http_request_trailers_bytes
                get_http_response_headers_bytes get_http_response_trailers_bytes;
            (&self, _: unused::Text) -> (): set_http_request_headers set_http_request_trailers
                set_http_response_headers set_http_response_trailers;
            (&self, _: unused::Map) -> (): set_http_request_headers_bytes set_http_request_trailers_bytes
                set_http_response_headers_bytes set_http_response_trailers_bytes;
            (&self, _: &str) -> Option<String>: get_http_request_header get_http_request_trailer get_http_response_header
                get_http_response_trailer;
            (&self, _: &str) -> Option<unused::Bytes>: get_http_request_header_bytes get_http_request_trailer_bytes
                get_http_response_header_bytes get_http_response_trailer_bytes;
            (&self, _: &str, _: Option<&str>) -> (): set_http_request_header set_http_request_trailer set_http_response_header
                set_http_response_trailer;
            (&self, _: &str, _: unused::Value) -> (): set_http_request_header_bytes
                set_http_request_trailer_bytes set_http_response_header_bytes set_http_response_trailer_bytes;
            (&self, _: &str, _: &str) -> (): add_http_request_header add_http_request_trailer add_http_response_header
                add_http_response_trailer;
            (&self, _: &str, _: &[u8]) -> (): add_http_request_header_bytes add_http_request_trailer_bytes
                add_http_response_header_bytes add_http_response_trailer_bytes;
            (&self, _: &str) -> (): remove_http_request_header remove_http_request_trailer remove_http_response_header
                remove_http_response_trailer;
            (&self, _: usize, _: usize) -> Option<unused::Bytes>: get_http_request_body get_http_response_body;
            (&self, _: usize, _: usize, _: &[u8]) -> (): set_http_request_body set_http_response_body;
            (&self) -> (): resume_http_request reset_http_request resume_http_response reset_http_response;
            (&self, _: u32, _: unused::Text, _: unused::Value) -> (): send_http_response;
            (&self, _: unused::GrpcStatusCode, _: Option<&str>, _: unused::Map) -> (): send_grpc_response;
        }
    };
}

pub(super) use {context, http, methods, root};
