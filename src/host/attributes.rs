//! Request attributes, asked of Envoy when a policy reads them.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;

use crate::request::Attributes;

/// Those of the request whose callback is running.
pub(super) struct HostAttributes;

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
