// SPDX-License-Identifier: Apache-2.0
//! The attributes that a dynamic module can read. Envoy's ABI for dynamic modules has a number for each attribute, and reads metadata only
//! at the top of a namespace. The host reads by this table, and a configuration that needs any other attribute is refused by it.

/// The way in which a dynamic module reads an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// A request header.
    Header(&'a str),
    /// Text in the filter state.
    FilterState(&'a str),
    /// Text in the dynamic metadata: the namespace, and the key at its top.
    Metadata(&'a str, &'a str),
    /// The attribute of this number in the ABI, which is text.
    Text(u32),
}

/// Attributes that are text, and their numbers in the ABI. `tests/envoy/native/attributes.rs` reads each of them in a real Envoy.
pub const TEXTS: &[(&str, u32)] = &[
    ("request.path", 0),
    ("request.url_path", 1),
    ("request.host", 2),
    ("request.scheme", 3),
    ("request.method", 4),
    ("request.referer", 6),
    ("request.useragent", 7),
    ("request.id", 9),
    ("request.protocol", 10),
    ("request.query", 11),
    ("source.address", 24),
    ("destination.address", 26),
    ("connection.requested_server_name", 30),
    ("connection.tls_version", 31),
    ("connection.subject_local_certificate", 32),
    ("connection.subject_peer_certificate", 33),
    ("connection.dns_san_local_certificate", 34),
    ("connection.dns_san_peer_certificate", 35),
    ("connection.uri_san_local_certificate", 36),
    ("connection.uri_san_peer_certificate", 37),
    ("connection.sha256_peer_certificate_digest", 38),
    ("xds.cluster_name", 57),
    ("xds.route_name", 61),
    ("xds.virtual_host_name", 63),
    ("xds.filter_chain_name", 66),
];

/// Returns the way in which a dynamic module reads the attribute at `path`; `None` if it cannot.
#[must_use]
pub fn reading<'a>(path: &[&'a str]) -> Option<Reading<'a>> {
    match path {
        ["request", "headers", name] => Some(Reading::Header(name)),
        ["filter_state", key] => Some(Reading::FilterState(key)),
        ["metadata", "filter_metadata", namespace, key] => Some(Reading::Metadata(namespace, key)),
        _ => {
            let known = TEXTS.iter().find(|(name, _)| name.split('.').eq(path.iter().copied()));
            known.map(|(_, number)| Reading::Text(*number))
        }
    }
}

/// True if the attribute at `path` is metadata inside another value of its namespace.
#[must_use]
pub fn is_nested(path: &[&str]) -> bool {
    matches!(path, ["metadata", "filter_metadata", _, _, _, ..])
}
