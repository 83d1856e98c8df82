//! Request attributes, asked of Envoy when a policy reads them.

use core::cell::OnceCell;

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;

use crate::request::Attributes;

/// Those of the request whose callback is running.
pub(super) struct HostAttributes;

/// The same, in the callback of its headers, which is told whether a body follows.
pub(super) struct RequestAttributes {
    has_body: bool,
    /// The names of all header lines. Envoy copies all of them for each question about one.
    lines: OnceCell<Vec<String>>,
}

impl RequestAttributes {
    pub(super) const fn new(end_of_stream: bool) -> Self {
        Self { has_body: !end_of_stream, lines: OnceCell::new() }
    }
}

impl Attributes for RequestAttributes {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        HostAttributes.header(name)
    }

    fn header_lines(&self, name: &str) -> usize {
        let lines = self.lines.get_or_init(|| {
            let headers = hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default();
            headers.into_iter().map(|(header, _)| header).collect()
        });
        lines.iter().filter(|header| *header == name).count()
    }

    fn has_body(&self) -> bool {
        self.has_body
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        HostAttributes.property(path)
    }
}

impl Attributes for HostAttributes {
    // The header map answers with the first line alone; the attribute joins them all. A client that sends a header
    // twice must not choose which line counts. (The attribute, for its part, cannot tell an empty value from none.)
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        let all = if name.starts_with(':') { None } else { self.property(&["request", "headers", name]) };
        all.or_else(|| hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten())
    }

    fn header_lines(&self, name: &str) -> usize {
        let headers = hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default();
        headers.iter().filter(|(header, _)| header == name).count()
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        hostcalls::get_property(path.to_vec()).ok().flatten()
    }
}
