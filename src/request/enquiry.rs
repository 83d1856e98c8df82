// SPDX-License-Identifier: Apache-2.0
//! Quota requests: a client asks what is left of its quota, without spending any. A quota request has a method and path that the operator
//! has reserved for this. It never reaches the upstream. Its query names the request that it asks for:
//! `/.well-known/quota?path=/v1/items&method=POST`.

use std::borrow::Cow;

use super::pairs::{self, Semicolon};
use super::{Attributes, Request, Unreadable, is_grpc};
use crate::time::Micros;

/// The method and the path of quota requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Their method, in capitals.
    pub method: Vec<u8>,
    /// Their path, without query, exactly as it is sent: another spelling is another request.
    pub path: Vec<u8>,
}

impl Endpoint {
    /// The request that `request` asks for; `None` if it is no quota request. A gRPC call is none: it could not read the answer.
    #[must_use]
    pub fn asked<'r>(&self, request: &'r Request<'_>) -> Option<Asked<'r>> {
        let (target, split) = request.target();
        let is_quota_request = target.get(split.path.clone()?) == Some(self.path.as_slice())
            && request.method() == Ok(Some(self.method.as_slice()))
            && !is_grpc(&|name| request.attributes.header(name).ok().flatten().map(Cow::into_owned));
        is_quota_request.then(|| Asked {
            attributes: request.attributes,
            method: parameter(request, b"method").unwrap_or_else(|| self.method.clone()),
            target: parameter(request, b"path").unwrap_or_else(|| target.to_vec()),
        })
    }
}

/// The first value of a parameter of the query, if there is one.
fn parameter(request: &Request<'_>, name: &[u8]) -> Option<Vec<u8>> {
    let (text, query) = request.query()?;
    let pairs = query.readings(Semicolon::Literal).next()?;
    let named = pairs::all_parameters(pairs, text).find(|(other, _)| other.equals(name));
    named.map(|(_, value)| value.value().into_owned()).filter(|value| !value.is_empty())
}

/// The attributes of the request that a quota request asks for: those of the quota request, with another method and another path, and
/// without a body.
pub struct Asked<'r> {
    attributes: &'r dyn Attributes,
    method: Vec<u8>,
    target: Vec<u8>,
}

impl Asked<'_> {
    /// The method.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        &self.method
    }

    /// The path and query.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        &self.target
    }
}

impl Attributes for Asked<'_> {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        match name {
            ":method" => Ok(Some(Cow::Borrowed(&self.method))),
            ":path" => Ok(Some(Cow::Borrowed(&self.target))),
            _ => self.attributes.header(name),
        }
    }

    fn header_lines(&self, name: &str) -> Result<usize, Unreadable> {
        if name.starts_with(':') { Ok(1) } else { self.attributes.header_lines(name) }
    }

    fn now(&self) -> Option<Micros> {
        self.attributes.now()
    }

    fn has_body(&self) -> bool {
        false
    }

    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        let (before, query) = match self.target.iter().position(|&byte| byte == b'?') {
            Some(at) => (self.target.get(..at), self.target.get(at.saturating_add(1)..)),
            None => (Some(self.target.as_slice()), None),
        };
        match path {
            ["request", "method"] => Ok(Some(Cow::Borrowed(&self.method))),
            ["request", "path"] => Ok(Some(Cow::Borrowed(&self.target))),
            ["request", "url_path"] => Ok(before.map(Cow::Borrowed)),
            ["request", "query"] => Ok(query.map(Cow::Borrowed)),
            ["request", "headers", name @ (":method" | ":path")] => self.header(name),
            _ => self.attributes.property(path),
        }
    }
}
