// SPDX-License-Identifier: Apache-2.0
//! The ways in which a decision reaches Envoy: a local reply, headers on the upstream's response, a record in the filter state.

use weir_core::response::{DETAILS, Header, Rejection, Upstream};

use crate::abi::HeaderMap;
use crate::envoy::{Headers, HttpFilter};

/// Answers a request in the upstream's place. Envoy calls further hooks of the request, `destroy` too, before this returns.
pub fn reject(filter: HttpFilter, rejection: &Rejection) {
    write_state(filter, DETAILS, &rejection.details);
    // SAFETY: `respond` reads no header of the request, and nothing before it changes one.
    let request = unsafe { filter.headers(HeaderMap::Request) };
    let reply = rejection.reply(&|name| Some(request.get(name)?.0.into_owned()));
    let headers = reply.headers.iter().map(|(name, value)| (*name, value.as_ref()));
    filter.respond(reply.status, headers, reply.body.as_bytes(), &rejection.details);
}

/// Adds headers to the response, or replaces the upstream's. `upstream` has the headers as they are; the names are different ones.
pub fn add_headers(filter: HttpFilter, upstream: &Headers, headers: &[Header]) {
    // Envoy may move its headers as soon as one is written. To add one costs it less than to look for one that it replaces.
    let present: Vec<_> = headers.iter().map(|header| upstream.get(header.name).is_some()).collect();
    for (header, is_present) in headers.iter().zip(present) {
        let (name, value) = (header.name, header.value.as_str());
        let is_written = match (header.upstream, is_present) {
            (Upstream::Replace, true) => filter.set_header(name, value),
            (Upstream::Keep, true) => true,
            (Upstream::Append, _) | (_, false) => filter.add_header(name, value),
        };
        if !is_written {
            log::error!("the response header {name} cannot be written");
        }
    }
}

/// Writes to the filter state of a request.
pub fn write_state(filter: HttpFilter, name: &str, value: &str) {
    if !filter.set_filter_state(name, value) {
        log::error!("the filter state {name} cannot be written");
    }
}
