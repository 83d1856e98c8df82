// SPDX-License-Identifier: Apache-2.0
//! What a decision looks like to Envoy: a local reply, headers on the upstream's response, a record in the filter state.

use weir_core::engine::Engine;
use weir_core::request;
use weir_core::response::{DETAILS, Header, Rejection, Upstream};

use crate::abi::HeaderMap;
use crate::envoy::HttpFilter;

/// Answers a request in the upstream's place. Envoy calls further hooks of it, `destroy` too, before this returns.
pub fn reject(filter: HttpFilter, rejection: &Rejection) {
    write_record(filter, [(DETAILS, &rejection.details)]);
    if request::is_grpc(&|name| Some(filter.header(HeaderMap::Request, name)?.0)) {
        return reject_grpc(filter, rejection);
    }
    let headers = rejection.headers.iter().map(|header| (header.name, header.value.as_str()));
    filter.respond(rejection.status, headers, rejection.body.as_bytes(), &rejection.details);
}

/// Envoy would make UNAVAILABLE of a local reply with 429. So the response is written out: headers alone, the status among them.
/// Such a response has no response code details.
fn reject_grpc(filter: HttpFilter, rejection: &Rejection) {
    let grpc = &rejection.grpc;
    let code = grpc.code.to_string();
    let status = [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", code.as_str()),
        ("grpc-message", grpc.message),
    ];
    let headers = rejection.headers.iter().filter(|header| header.name != "content-type");
    let headers = headers.map(|header| (header.name, header.value.as_str()));
    let pushback = grpc.pushback.iter().map(|millis| ("grpc-retry-pushback-ms", millis.as_str()));
    filter.respond_with_headers(status.into_iter().chain(headers).chain(pushback));
}

/// Adds a header to the response, beside or in place of the upstream's.
pub fn add_header(filter: HttpFilter, header: &Header) {
    let (name, value) = (header.name, header.value.as_str());
    let set = match header.upstream {
        Upstream::Replace => filter.set_header(name, value),
        Upstream::Append => filter.add_header(name, value),
        Upstream::Keep => {
            filter.header(HeaderMap::Response, name).is_some() || filter.set_header(name, value)
        }
    };
    if !set {
        log::error!("the response header {name} cannot be set");
    }
}

/// Writes the record of a request where access logs and later filters can read it.
pub fn record(engine: &Engine, stream: u32, filter: HttpFilter) {
    let Some(record) = engine.record(stream) else { return };
    let remaining = record.remaining.map(|remaining| remaining.to_string()).unwrap_or_default();
    write_record(
        filter,
        [
            ("weir.policy", record.policy),
            ("weir.limit", record.limit),
            ("weir.outcome", record.outcome),
            ("weir.remaining", &remaining),
            ("weir.source", record.source),
        ],
    );
}

/// Writes to the filter state of a request.
pub fn write_record<const N: usize>(filter: HttpFilter, values: [(&str, &str); N]) {
    for (name, value) in values {
        if !filter.set_filter_state(name, value) {
            log::error!("the filter state {name} cannot be written");
        }
    }
}
