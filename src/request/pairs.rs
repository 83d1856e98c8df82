//! Names and values inside one string: query parameters and cookies.

use super::path::{Plus, percent_decode};

/// The values of the parameter `name` in a query, names and values percent-decoded and `+` read as a space.
#[must_use]
pub fn query(query: &[u8], name: &[u8]) -> Vec<Vec<u8>> {
    query
        .split(|&byte| byte == b'&')
        .filter_map(|pair| {
            let (key, value) = halves(pair);
            (percent_decode(key, Plus::IsSpace) == name).then(|| percent_decode(value, Plus::IsSpace))
        })
        .collect()
}

/// The values of the cookie `name` in a `cookie` header (RFC 6265 §5.4), without the quotes around them. A comma
/// also ends a cookie: that is how several header lines arrive as one value.
#[must_use]
pub fn cookie(header: &[u8], name: &[u8]) -> Vec<Vec<u8>> {
    header
        .split(|&byte| byte == b';' || byte == b',')
        .filter_map(|pair| {
            let (key, value) = halves(pair);
            let value = value.trim_ascii();
            let unquoted =
                value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
            (key.trim_ascii() == name).then(|| unquoted.to_vec())
        })
        .collect()
}

fn halves(pair: &[u8]) -> (&[u8], &[u8]) {
    let mut halves = pair.splitn(2, |&byte| byte == b'=');
    (halves.next().unwrap_or_default(), halves.next().unwrap_or_default())
}
