//! What a request is, to the limiter: attributes fetched on first use and kept for the request. The host
//! answers two questions (a header, an Envoy property); everything else is worked out here, the same in the
//! filter, in tests and in the native command.

pub mod client_ip;
pub mod pairs;
pub mod path;
pub mod sample;

use core::cell::OnceCell;
use std::borrow::Cow;
use std::net::IpAddr;

use client_ip::Trust;

/// Where attributes come from: Envoy's host calls, or a map in tests and on the command line.
pub trait Attributes {
    /// The value of the header `name`, which is in lower case; `:method`, `:path`, `:authority` and `:scheme`
    /// count. A header sent on several lines is one value, its lines joined by a comma (RFC 9110 §5.3).
    /// `None` when the request has no such header.
    fn header(&self, name: &str) -> Option<Vec<u8>>;

    /// How many lines [`Attributes::header`] joined. Asked only when the value contains a comma, so that the
    /// usual request pays nothing for it.
    fn header_lines(&self, name: &str) -> usize;

    /// The Envoy attribute at `path`, for example `["source", "address"]`; `None` when it is not set.
    fn property(&self, path: &[&str]) -> Option<Vec<u8>>;
}

/// Whether this is a gRPC call, which is answered in its own way.
#[must_use]
pub fn is_grpc(attributes: &dyn Attributes) -> bool {
    attributes.header("content-type").is_some_and(|kind| {
        kind.strip_prefix(b"application/grpc")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    })
}

/// One request: its [`Attributes`], and what was already worked out from them.
pub struct Request<'a> {
    attributes: &'a dyn Attributes,
    trust: &'a Trust,
    path: OnceCell<path::Path>,
    target: OnceCell<Vec<u8>>,
    client: OnceCell<Option<IpAddr>>,
}

impl<'a> Request<'a> {
    /// A request whose client address is found with `trust`.
    #[must_use]
    pub fn new(attributes: &'a dyn Attributes, trust: &'a Trust) -> Self {
        Self { attributes, trust, path: OnceCell::new(), target: OnceCell::new(), client: OnceCell::new() }
    }

    /// A header's value, all of its lines; see [`Attributes::header`].
    #[must_use]
    pub fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.attributes.header(name)
    }

    /// On how many lines the header `name` with this `value` was sent.
    #[must_use]
    pub fn header_lines(&self, name: &str, value: &[u8]) -> usize {
        if value.contains(&b',') { self.attributes.header_lines(name) } else { 1 }
    }

    /// Any Envoy attribute.
    #[must_use]
    pub fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        self.attributes.property(path)
    }

    /// The request method, in capitals.
    #[must_use]
    pub fn method(&self) -> Option<Vec<u8>> {
        let mut method = self.attributes.header(":method")?;
        method.make_ascii_uppercase();
        Some(method)
    }

    /// The host asked for: lower case, without port, without the root's dot.
    #[must_use]
    pub fn host(&self) -> Option<Vec<u8>> {
        let mut host = self.attributes.header(":authority")?;
        let port = host.iter().rposition(|&byte| byte == b':').filter(|&at| {
            let port = host.get(at.saturating_add(1)..).unwrap_or_default();
            port.iter().all(u8::is_ascii_digit)
                && !host.get(..at).unwrap_or_default().contains(&b':') | (host.first() == Some(&b'['))
        });
        if let Some(at) = port {
            host.truncate(at);
        }
        if host.last() == Some(&b'.') {
            host.pop();
        }
        host.make_ascii_lowercase();
        Some(host)
    }

    /// The path, in the spelling policies are matched on, and as it was sent.
    #[must_use]
    pub fn path(&self) -> &path::Path {
        self.path.get_or_init(|| path::Path::new(path::split(self.target()).0))
    }

    /// The values of the query parameter `name`, decoded, in order.
    #[must_use]
    pub fn query(&self, name: &[u8]) -> Vec<Vec<u8>> {
        pairs::query(path::split(self.target()).1, name)
    }

    /// The values of the cookie `name`, in order.
    #[must_use]
    pub fn cookie(&self, name: &[u8]) -> Vec<Vec<u8>> {
        self.attributes.header("cookie").map_or_else(Vec::new, |cookies| pairs::cookie(&cookies, name))
    }

    /// The client's address, IPv4-mapped IPv6 as IPv4; `None` when the connection has no IP address (a unix
    /// socket).
    #[must_use]
    pub fn client(&self) -> Option<IpAddr> {
        *self.client.get_or_init(|| {
            let connection = client_ip::connection(&self.attributes.property(&["source", "address"])?)?;
            if self.trust.is_connection() {
                return Some(connection);
            }
            let chain =
                self.attributes.header(self.trust.header()).map_or(Cow::Borrowed(&[][..]), Cow::Owned);
            Some(self.trust.client(connection, &chain))
        })
    }

    /// The name of the route that Envoy chose.
    #[must_use]
    pub fn route(&self) -> Option<Vec<u8>> {
        self.attributes.property(&["xds", "route_name"])
    }

    fn target(&self) -> &[u8] {
        self.target.get_or_init(|| self.attributes.header(":path").unwrap_or_default())
    }
}
