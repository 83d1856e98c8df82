// SPDX-License-Identifier: Apache-2.0
//! What a decision looks like to the host: a local reply, headers on the upstream's response, a record in the filter state.

use proxy_wasm::hostcalls;
use proxy_wasm::types::{self, GrpcStatusCode, MapType};

use super::super::done;
use crate::engine::Engine;
use crate::request;
use crate::response::{DETAILS, Header, Rejection, Upstream};

/// Sends a local reply to the effective stream's request. The SDK's calls pass no response code details on, so these are in the filter
/// state.
pub(super) fn reject(rejection: &Rejection) {
    write_record([(DETAILS, &rejection.details)]);
    let sent = if request::is_grpc(&header) {
        reject_grpc(rejection)
    } else {
        let headers = rejection.headers.iter().map(|header| (header.name, header.value.as_str())).collect();
        let body = rejection.body.as_bytes();
        hostcalls::send_http_response(u32::from(rejection.status), headers, Some(body))
    };
    done("rejecting a request", sent);
}

/// A header of the effective stream's request as Envoy has it, in one host call: of two lines of a content type it has made one.
fn header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
}

fn reject_grpc(rejection: &Rejection) -> Result<(), types::Status> {
    let grpc = &rejection.grpc;
    let code = match grpc.code {
        7 => GrpcStatusCode::PermissionDenied,
        14 => GrpcStatusCode::Unavailable,
        4 => GrpcStatusCode::DeadlineExceeded,
        _ => GrpcStatusCode::ResourceExhausted,
    };
    let headers = rejection.headers.iter().filter(|header| header.name != "content-type");
    let pushback = grpc.pushback.iter().map(|millis| ("grpc-retry-pushback-ms", millis.as_bytes()));
    let metadata = headers.map(|header| (header.name, header.value.as_bytes())).chain(pushback).collect();
    hostcalls::send_grpc_response(code, Some(grpc.message), metadata)
}

/// Adds a header to the effective stream's response, beside or in place of the upstream's.
pub(super) fn add_header(header: &Header) {
    let (map, name, value) = (MapType::HttpResponseHeaders, header.name, header.value.as_str());
    let set = match header.upstream {
        Upstream::Replace => hostcalls::set_map_value(map, name, Some(value)),
        Upstream::Append => hostcalls::add_map_value(map, name, value),
        Upstream::Keep => match hostcalls::get_map_value_bytes(map, name) {
            Ok(Some(_)) => Ok(()),
            _ => hostcalls::set_map_value(map, name, Some(value)),
        },
    };
    done("setting a response header", set);
}

/// Writes the record of the effective stream's request where access logs and later filters can read it.
pub(super) fn record(engine: &Engine, stream: u32) {
    let Some(record) = engine.record(stream) else { return };
    let remaining = record.remaining.map(|remaining| remaining.to_string()).unwrap_or_default();
    write_record([
        ("weir.policy", record.policy),
        ("weir.limit", record.limit),
        ("weir.outcome", record.outcome),
        ("weir.remaining", &remaining),
        ("weir.source", record.source),
    ]);
}

/// Writes to the filter state of the effective stream.
pub(super) fn write_record<const N: usize>(values: [(&str, &str); N]) {
    for (name, value) in values {
        done("recording a decision", hostcalls::set_property(vec![name], Some(value.as_bytes())));
    }
}
