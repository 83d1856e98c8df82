//! Request attributes, asked of Envoy when a policy reads them.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;

use crate::request::Attributes;

/// Those of the request whose callback is running.
pub(super) struct HostAttributes;

impl Attributes for HostAttributes {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        if name.starts_with(':') {
            return hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten();
        }
        // The header map gives a header's first line only; the attribute joins all lines by commas.
        self.property(&["request", "headers", name])
    }

    fn header_lines(&self, name: &str) -> usize {
        let headers = hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default();
        headers.iter().filter(|(header, _)| header == name).count()
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        hostcalls::get_property(path.to_vec()).ok().flatten()
    }
}
