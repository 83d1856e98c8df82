// SPDX-License-Identifier: Apache-2.0
//! A decision as the host sees it: a local reply, headers on the upstream's response, a record in the filter state.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;

use super::super::done;
use crate::response::{DETAILS, Header, Rejection, Upstream};

/// Sends a local reply to the effective stream's request. The SDK's calls pass no response code details on, so these are in the filter
/// state.
pub(super) fn reject(rejection: &Rejection) {
    write_state(DETAILS, &rejection.details);
    let reply = rejection.reply(&header);
    let headers = reply.headers.iter().map(|(name, value)| (*name, value.as_ref())).collect();
    let sent = hostcalls::send_http_response(u32::from(reply.status), headers, Some(reply.body.as_bytes()));
    done("rejecting a request", sent);
}

/// A header of the effective stream's request as Envoy has it, in one host call: of two lines of a content type it has made one.
fn header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
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

/// Writes to the filter state of the effective stream.
pub(super) fn write_state(name: &str, value: &str) {
    done("recording a decision", hostcalls::set_property(vec![name], Some(value.as_bytes())));
}
