// SPDX-License-Identifier: Apache-2.0
//! Subjects: requests with the same subject share limits. A subject consists of one or several parts of the request.

use std::borrow::Cow;

use super::credential::Credential;
use super::key::{self, LONGEST_HIDDEN, LONGEST_SUBJECT, Tag, ValueHasher};
use super::normal::Normal;
use crate::request::client_ip::Network;
use crate::request::pairs::{self, LONGEST_PAIRS, Semicolon, Sent};
use crate::request::path::TrailingSlash;
use crate::request::{Property, Request, Unreadable, ValueId};

/// One part of a subject.
#[derive(Debug)]
pub struct SubjectPart {
    /// The place of its value.
    pub source: Source,
    /// The rule for a request that does not have it.
    pub on_missing: OnMissing,
    /// The rule for a request that has several values of it.
    pub on_multiple: OnMultiple,
    /// Makes equal the spellings of one value.
    pub normalize: Normal,
    /// Hashes its value, if that must not be in the store in clear.
    pub hash: Option<ValueHasher>,
}

/// The place of a part's value.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    /// The first bits of the client's address.
    ClientAddress {
        /// The prefix for IPv4.
        ipv4_prefix: u8,
        /// The prefix for IPv6.
        ipv6_prefix: u8,
    },
    /// The header of this name, in lower case.
    Header(String),
    /// The cookie of this name.
    Cookie(Vec<u8>),
    /// The query parameter of this name.
    Query(Vec<u8>, Semicolon),
    /// The resolved path, without the slash at its end unless that makes another path.
    Path(TrailingSlash),
    /// One segment of the resolved path, from 1.
    PathSegment(usize),
    /// The method, in capitals.
    Method,
    /// The host, in lower case, without its port.
    Host,
    /// This Envoy attribute: route names, JWT claims and certificates are some of them.
    Attribute(Property),
    /// The value at this path of the JSON body.
    Body(String, OnUnreadable),
    /// The credential, wherever it is.
    Credential(Credential),
    /// This text.
    Literal(Vec<u8>),
}

impl Source {
    /// Its value in `request`.
    pub(super) fn read<'a: 'r, 'r>(
        &'a self,
        on_multiple: OnMultiple,
        request: &'r Request<'a>,
    ) -> Result<Value<'r>, Unreadable> {
        let one = match self {
            Self::ClientAddress { ipv4_prefix, ipv6_prefix } => request.client()?.map(|client| {
                let prefix = if client.is_ipv4() { *ipv4_prefix } else { *ipv6_prefix };
                Cow::Owned(Network::around(client, prefix).to_string().into_bytes())
            }),
            Self::Header(name) => return header(name, on_multiple, request),
            Self::Cookie(name) => {
                let Some((header, pairs)) = request.cookies()? else { return Ok(Value::Absent) };
                if pairs.truncated() {
                    return Ok(Value::Ambiguous);
                }
                request.count(|effort| effort.pairs = effort.pairs.saturating_add(pairs.count()));
                return Ok(pick(on_multiple, &pairs::cookie(pairs, &header.value, name)?));
            }
            Self::Query(name, semicolon) => return Ok(query(name, *semicolon, on_multiple, request)),
            Self::Path(slash) => match (request.path(), slash) {
                (None, _) => return Ok(Value::Ambiguous),
                (Some(path), TrailingSlash::Ambiguous) => Some(Cow::Borrowed(path.without_slash())),
                (Some(path), TrailingSlash::Distinct) => Some(Cow::Borrowed(path.resolved())),
            },
            Self::PathSegment(index) => match request.path() {
                None => return Ok(Value::Ambiguous),
                Some(path) => path.segment(*index).map(Cow::Borrowed),
            },
            Self::Method => request.method()?.map(Cow::Borrowed),
            Self::Host => request.host()?.map(Cow::Borrowed),
            Self::Attribute(property) => {
                request.property(property)?.filter(|value| !value.is_empty()).map(Cow::Borrowed)
            }
            Self::Body(path, on_unreadable) => match (request.body_text(path), on_unreadable) {
                (Err(Unreadable), OnUnreadable::Missing) => None,
                (text, _) => text?,
            },
            Self::Credential(credential) => return credential.read(on_multiple, request),
            Self::Literal(text) => Some(Cow::Borrowed(text.as_slice())),
        };
        Ok(one.map_or(Value::Absent, Value::Is))
    }

    /// True if its value begins with a scheme, as in `Bearer TOKEN`.
    pub(super) fn has_scheme(&self) -> bool {
        matches!(self, Self::Header(name) if matches!(name.as_str(), "authorization" | "proxy-authorization"))
    }

    /// True if the part describes what the client requests: the method, the path, the body, or what Envoy has chosen by these. The query
    /// does not count, because a quota request has its own query, with the parameters that name a subject.
    pub(super) fn is_of_target(&self) -> bool {
        match self {
            Self::Path(_) | Self::PathSegment(_) | Self::Method | Self::Body(..) => true,
            Self::Attribute(property) => {
                match property.path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                    ["request", "headers", name] => name.starts_with(':'),
                    ["request", name, ..] => !matches!(*name, "host" | "useragent" | "scheme" | "protocol"),
                    [first, ..] => *first == "xds",
                    [] => false,
                }
            }
            _ => false,
        }
    }
}

/// The rule for a request that does not have a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// All requests without it share one subject.
    Share,
    /// The policy does not apply.
    Skip,
    /// The request is denied.
    Deny,
}

/// The rule for a part whose value cannot be read from the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnreadable {
    /// The request is denied.
    Deny,
    /// It counts as a request without the part.
    Missing,
}

/// The rule for a request that has several values of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMultiple {
    /// The request is denied.
    Deny,
    /// The first counts.
    First,
    /// The last counts.
    Last,
    /// All count, joined by commas.
    Join,
}

/// The value of a part in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'r> {
    /// The value.
    Is(Cow<'r, [u8]>),
    /// The value is missing.
    Absent,
    /// The value is not known: there are several values and the part allows only one, it is too long to be read, or the host cannot read
    /// it.
    Ambiguous,
}

impl SubjectPart {
    /// The value of this part in `request`.
    #[must_use]
    pub fn value<'a: 'r, 'r>(&'a self, request: &'r Request<'a>) -> Value<'r> {
        match self.source.read(self.on_multiple, request) {
            Ok(Value::Is(value)) if self.hash.is_some() || !self.normalize.is_none() => {
                if value.len() > LONGEST_HIDDEN {
                    return Value::Ambiguous;
                }
                self.normalize.apply(value).map_or(Value::Ambiguous, Value::Is)
            }
            Ok(value) => value,
            Err(Unreadable) => Value::Ambiguous,
        }
    }

    /// True if both have the same text in keys for a request that has the value.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let read = |part: &Self| (part.on_multiple, part.normalize, part.hash.is_some());
        self.source == other.source && read(self) == read(other)
    }

    /// Adds the digest of this part to `tag`, if `request` has stored it ([`Request::digest`]). Returns whether it has.
    pub(super) fn add_kept(&self, request: &Request<'_>, tag: &mut Tag) -> bool {
        if !request.has_digests() {
            return false;
        }
        let digest = self.id().and_then(|id| request.digest(id));
        if let Some(digest) = &digest {
            tag.hashed(digest);
        }
        digest.is_some()
    }

    /// Adds the value of this part to `tag`: in clear, or its digest, which `request` then stores for further policies.
    pub(super) fn add<'a>(&'a self, value: &[u8], request: &Request<'a>, tag: &mut Tag) {
        if self.hash.is_none() && value.len() <= LONGEST_SUBJECT {
            return tag.part(Some(value));
        }
        request.count(|effort| effort.hashed = effort.hashed.saturating_add(value.len()));
        let digest = self.hash.as_ref().map_or_else(|| key::digest(value), |hasher| hasher.digest(value));
        if let Some(id) = self.id() {
            request.keep_digest(id, digest);
        }
        tag.hashed(&digest);
    }

    /// Names the digest of this part among those that a request stores. Another policy may have the same part, and all hashes have the same
    /// secret.
    fn id(&self) -> Option<ValueId<'_>> {
        let hidden: u16 = if self.hash.is_some() { 32 } else { 0 };
        let (kind, name) = self.value_id()?;
        Some((kind | hidden | self.normalize.number() << 6, name))
    }

    /// Shows the path in the body, if this part is a value of the body.
    pub(super) fn body_paths<'a>(&'a self, show: &mut dyn FnMut(&'a str)) {
        if let Source::Body(path, _) = &self.source {
            show(path);
        }
    }

    fn value_id(&self) -> Option<ValueId<'_>> {
        let on_multiple: u16 = match self.on_multiple {
            OnMultiple::Deny => 0,
            OnMultiple::First => 1,
            OnMultiple::Last => 2,
            OnMultiple::Join => 3,
        };
        match &self.source {
            Source::Header(name) => Some((on_multiple, name.as_bytes())),
            Source::Cookie(name) => Some((on_multiple | 4, name)),
            Source::Query(name, Semicolon::Ambiguous) => Some((on_multiple | 8, name)),
            Source::Query(name, Semicolon::Literal) => Some((on_multiple | 12, name)),
            Source::Path(TrailingSlash::Ambiguous) => Some((16, &[])),
            Source::Path(TrailingSlash::Distinct) => Some((17, &[])),
            Source::Body(path, _) => Some((18, path.as_bytes())),
            Source::Credential(credential) => Some((on_multiple | 20, credential.names())),
            _ => None,
        }
    }
}

fn header<'a: 'r, 'r>(
    name: &'a str,
    on_multiple: OnMultiple,
    request: &'r Request<'a>,
) -> Result<Value<'r>, Unreadable> {
    let Some(header) = request.header(name)? else { return Ok(Value::Absent) };
    if header.lines <= 1 {
        return Ok(Value::Is(Cow::Borrowed(&header.value)));
    }
    let mut lines = header.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    Ok(match on_multiple {
        OnMultiple::First => lines.next().map_or(Value::Absent, |line| Value::Is(Cow::Borrowed(line))),
        OnMultiple::Last => lines.next_back().map_or(Value::Absent, |line| Value::Is(Cow::Borrowed(line))),
        OnMultiple::Join if header.value.len() <= LONGEST_PAIRS => {
            Value::Is(Cow::Owned(lines.collect::<Vec<_>>().join(&b',')))
        }
        OnMultiple::Deny | OnMultiple::Join => Value::Ambiguous,
    })
}

/// Ambiguous if the readings of a query differ; otherwise the client could choose its subject.
fn query<'r>(
    name: &[u8],
    semicolon: Semicolon,
    on_multiple: OnMultiple,
    request: &'r Request<'_>,
) -> Value<'r> {
    let Some((text, query)) = request.query() else { return Value::Ambiguous };
    let mut found = None;
    for pairs in query.readings(semicolon) {
        if pairs.truncated() {
            return Value::Ambiguous;
        }
        request.count(|effort| effort.pairs = effort.pairs.saturating_add(pairs.count()));
        let Ok(values) = pairs::parameters(pairs, text, name) else { return Value::Ambiguous };
        if found.get_or_insert_with(|| values.clone()) != &values {
            return Value::Ambiguous;
        }
    }
    found.map_or(Value::Absent, |values| pick(on_multiple, &values))
}

fn pick<'r>(on_multiple: OnMultiple, values: &[Sent<'r>]) -> Value<'r> {
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return Value::Absent };
    match on_multiple {
        OnMultiple::First => Value::Is(first.value()),
        OnMultiple::Last => Value::Is(last.value()),
        _ if values.len() == 1 => Value::Is(first.value()),
        OnMultiple::Deny => Value::Ambiguous,
        OnMultiple::Join => {
            let values: Vec<_> = values.iter().map(Sent::value).collect();
            Value::Is(Cow::Owned(values.join(&b',')))
        }
    }
}
