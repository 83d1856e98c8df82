// SPDX-License-Identifier: Apache-2.0
//! How a decision reaches Envoy: a local reply, headers on the upstream's response, a record in the filter state.

use weir_core::response::{DETAILS, Header, Rejection, Upstream};

use crate::abi::HeaderMap;
use crate::envoy::HttpFilter;

/// Answers a request in the upstream's place. Envoy calls further hooks of the request, `destroy` too, before this returns.
pub fn reject(filter: HttpFilter, rejection: &Rejection) {
    write_state(filter, DETAILS, &rejection.details);
    let reply = rejection.reply(&|name| Some(filter.header(HeaderMap::Request, name)?.0));
    let headers = reply.headers.iter().map(|(name, value)| (*name, value.as_ref()));
    filter.respond(reply.status, headers, reply.body.as_bytes(), &rejection.details);
}

/// Adds a header to the response, or replaces the upstream's.
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

/// Writes to the filter state of a request.
pub fn write_state(filter: HttpFilter, name: &str, value: &str) {
    if !filter.set_filter_state(name, value) {
        log::error!("the filter state {name} cannot be written");
    }
}
