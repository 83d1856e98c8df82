// SPDX-License-Identifier: Apache-2.0
//! Request attributes, read from Envoy when a policy needs them.
//!
//! Envoy reports an absent attribute as *not found*. It reports a failure when the attribute is there and cannot be read: a value
//! without a form in bytes, such as a claim that is null. The SDK panics at any other status. Envoy has none for these calls,
//! while the request's headers exist; so they are read in callbacks of requests that are not over, and nowhere else.

use core::cell::{OnceCell, RefCell};
use std::borrow::Cow;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType, Status};

use super::super::{now, read};
use super::reply;
use crate::request::{Attributes, Unreadable};
use crate::session::Exchange;
use crate::time::Micros;

/// The attributes of the request whose stream is effective.
pub(super) struct HostAttributes {
    has_body: bool,
    /// The names of all header lines. Envoy copies all headers each time that it is asked for them.
    lines: OnceCell<Result<Vec<String>, Unreadable>>,
    failures: RefCell<Vec<String>>,
}

/// A header or trailer of the response whose stream is effective, all of its lines joined by line feeds.
pub(super) fn response_field(map: MapType, name: &str) -> Option<Vec<u8>> {
    let attribute = if map == MapType::HttpResponseTrailers { "trailers" } else { "headers" };
    let lines = match name.starts_with(':') {
        true => None,
        false => hostcalls::get_property(vec!["response", attribute, name]).ok().flatten(),
    };
    // Envoy has joined several lines by commas, which a line may have, too.
    if lines.as_ref().is_some_and(|lines| lines.contains(&b',')) {
        let mut joined = Vec::new();
        for (line, value) in &hostcalls::get_map_bytes(map).unwrap_or_default() {
            if line == name {
                joined.extend((!joined.is_empty()).then_some(b'\n'));
                joined.extend_from_slice(value);
            }
        }
        return Some(joined);
    }
    lines.or_else(|| hostcalls::get_map_value_bytes(map, name).ok().flatten())
}

/// Returns this number of bytes of the response's body, in the callback of its body.
pub(super) fn response_body(size: usize) -> Vec<u8> {
    read(BufferType::HttpResponseBody, size).unwrap_or_default()
}

/// Returns this number of bytes of the request's body, in the callback of its body.
pub(super) fn request_body(size: usize) -> Vec<u8> {
    if size == 0 {
        return Vec::new();
    }
    read(BufferType::HttpRequestBody, size).unwrap_or_default()
}

impl HostAttributes {
    /// In the callback of the request's headers, which says whether the stream ends with them.
    pub(super) const fn new(end_of_stream: bool) -> Self {
        Self { has_body: !end_of_stream, lines: OnceCell::new(), failures: RefCell::new(Vec::new()) }
    }

    fn read<T>(
        &self,
        result: Result<T, Status>,
        attribute: impl FnOnce() -> String,
    ) -> Result<T, Unreadable> {
        result.map_err(|status| {
            let attribute = attribute();
            let failure =
                format!("the attribute {attribute} cannot be read ({status:?}): it may have any value");
            self.failures.borrow_mut().push(failure);
            Unreadable
        })
    }
}

impl Attributes for HostAttributes {
    // The header map has the first line alone; the attribute joins them all. A client that sends a header twice must not
    // choose which line counts. (The attribute, for its part, cannot tell an empty value from none.)
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        if !name.starts_with(':')
            && let Some(lines) = self.property(&["request", "headers", name])?
        {
            return Ok(Some(lines));
        }
        let line = hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name);
        Ok(self.read(line, || name.to_owned())?.map(Cow::Owned))
    }

    fn header_lines(&self, name: &str) -> Result<usize, Unreadable> {
        let lines = self.lines.get_or_init(|| {
            let headers = hostcalls::get_map_bytes(MapType::HttpRequestHeaders);
            let headers = self.read(headers, || String::from("request.headers"))?;
            Ok(headers.into_iter().map(|(header, _)| header).collect())
        });
        let lines = lines.as_ref().map_err(|unreadable| *unreadable)?;
        Ok(lines.iter().filter(|header| *header == name).count())
    }

    fn now(&self) -> Option<Micros> {
        Some(now())
    }

    fn has_body(&self) -> bool {
        self.has_body
    }

    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(self.read(hostcalls::get_property(path.to_vec()), || path.join("."))?.map(Cow::Owned))
    }
}

impl Exchange for HostAttributes {
    fn write_state(&self, name: &str, value: &str) {
        reply::write_state(name, value);
    }

    fn take_failures(&self) -> Vec<String> {
        self.failures.take()
    }
}
