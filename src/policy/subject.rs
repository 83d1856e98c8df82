//! Who is limited: a subject made of one or several parts of the request.

use crate::request::Request;
use crate::request::client_ip::Network;

/// One part of a subject, and what happens when a request does not have it, or has several.
#[derive(Debug)]
pub struct Part {
    /// Where its value comes from.
    pub source: Source,
    /// When the request does not have it.
    pub absent: Absent,
    /// When the request has several.
    pub several: Several,
}

/// Where the value of a part comes from.
#[derive(Debug)]
pub enum Source {
    /// The client's address, in so many bits.
    ClientAddress {
        /// Of IPv4.
        ipv4_prefix: u8,
        /// Of IPv6.
        ipv6_prefix: u8,
    },
    /// The header of this name, in lower case.
    Header(String),
    /// The cookie of this name.
    Cookie(Vec<u8>),
    /// The query parameter of this name.
    Query(Vec<u8>),
    /// The resolved path.
    Path,
    /// One segment of the resolved path, from 1.
    PathSegment(usize),
    /// The method, in capitals.
    Method,
    /// The host, in lower case, without its port.
    Host,
    /// The Envoy attribute at this path: route names, JWT claims and certificates are some of them.
    Property(Vec<String>),
    /// This text.
    Literal(Vec<u8>),
}

/// What happens when a request does not have a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// All requests without it share one subject.
    Share,
    /// The policy does not apply.
    Skip,
    /// The request is denied.
    Deny,
}

/// What happens when a request has several values where one is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Several {
    /// The request is denied.
    Deny,
    /// The first counts.
    First,
    /// The last counts.
    Last,
    /// All count, joined by commas.
    Join,
}

/// What a part is in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// This.
    Is(Vec<u8>),
    /// Not there.
    Absent,
    /// There several times, and the part wants one.
    Ambiguous,
}

impl Part {
    /// What this part is in `request`.
    #[must_use]
    pub fn value(&self, request: &Request<'_>) -> Value {
        let one = match &self.source {
            Source::ClientAddress { ipv4_prefix, ipv6_prefix } => request.client().map(|client| {
                let prefix = if client.is_ipv4() { *ipv4_prefix } else { *ipv6_prefix };
                Network::around(client, prefix).to_string().into_bytes()
            }),
            Source::Header(name) => {
                return match request.header(name) {
                    None => Value::Absent,
                    Some(value) if request.header_lines(name, &value) > 1 => {
                        let lines = value.split(|&byte| byte == b',').map(|line| line.trim_ascii().to_vec());
                        self.pick(lines.collect())
                    }
                    Some(value) => Value::Is(value),
                };
            }
            Source::Cookie(name) => return self.pick(request.cookie(name)),
            Source::Query(name) => return self.pick(request.query(name)),
            Source::Path => Some(request.path().resolved().to_vec()),
            Source::PathSegment(index) => request.path().segment(*index).map(<[u8]>::to_vec),
            Source::Method => request.method(),
            Source::Host => request.host(),
            Source::Property(path) => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                request.property(&path).filter(|value| !value.is_empty())
            }
            Source::Literal(text) => Some(text.clone()),
        };
        one.map_or(Value::Absent, Value::Is)
    }

    fn pick(&self, values: Vec<Vec<u8>>) -> Value {
        match (values.as_slice(), self.several) {
            ([], _) => Value::Absent,
            ([one], _) | ([one, ..], Several::First) | ([.., one], Several::Last) => Value::Is(one.clone()),
            (_, Several::Deny) => Value::Ambiguous,
            (values, Several::Join) => Value::Is(values.join(&b',')),
        }
    }
}
