// SPDX-License-Identifier: Apache-2.0
//! A request made of given values: for tests, and for `weir explain` and `weir replay`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Attributes, Unreadable};
use crate::time::Micros;

/// A request made of given values. Starts as a GET of `/` on `localhost` from no address.
#[derive(Clone, Debug)]
pub struct Sample {
    headers: Vec<(String, Vec<u8>)>,
    properties: BTreeMap<String, Vec<u8>>,
    unreadable: BTreeSet<String>,
    body: Option<Vec<u8>>,
    at: Option<Micros>,
}

impl Default for Sample {
    fn default() -> Self {
        let empty = Self {
            headers: Vec::new(),
            properties: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            body: None,
            at: None,
        };
        empty.header(":method", "GET").header(":path", "/").header(":authority", "localhost")
    }
}

impl Sample {
    /// With one more line of the header `name`; of a pseudo-header, the only one.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name = name.to_ascii_lowercase();
        if name.starts_with(':') {
            self.headers.retain(|(line, _)| *line != name);
        }
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    /// At this time.
    #[must_use]
    pub const fn at(mut self, at: Micros) -> Self {
        self.at = Some(at);
        self
    }

    /// Without the header `name`.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(line, _)| line != name);
        self
    }

    /// With this method.
    #[must_use]
    pub fn method(self, method: &str) -> Self {
        self.header(":method", method)
    }

    /// With this path and query.
    #[must_use]
    pub fn path(self, path: impl AsRef<[u8]>) -> Self {
        self.header(":path", path)
    }

    /// On this host.
    #[must_use]
    pub fn host(self, host: &str) -> Self {
        self.header(":authority", host)
    }

    /// Over a connection from this address, with or without a port.
    #[must_use]
    pub fn from(self, address: &str) -> Self {
        self.property(&["source", "address"], address)
    }

    /// With an Envoy attribute.
    #[must_use]
    pub fn property(mut self, path: &[&str], value: impl AsRef<[u8]>) -> Self {
        if let ["request", "headers", name] = path
            && !name.starts_with(':')
        {
            return self.without(&name.to_ascii_lowercase()).header(name, value);
        }
        self.properties.insert(path.join("\0"), value.as_ref().to_vec());
        self
    }

    /// With an attribute that the host fails to read: a header's name, or the path of an Envoy attribute joined by dots.
    #[must_use]
    pub fn unreadable(mut self, name: &str) -> Self {
        self.unreadable.insert(name.to_ascii_lowercase());
        self
    }

    /// With this body.
    #[must_use]
    pub fn with_body(self, body: impl AsRef<[u8]>) -> Self {
        Self { body: Some(body.as_ref().to_vec()), ..self }
    }

    /// True if it says whether the request has this attribute: the attribute was given, or follows from the request itself. Of the others
    /// only Envoy knows.
    #[must_use]
    pub fn knows(&self, path: &[&str]) -> bool {
        !matches!(self.property(path), Ok(None))
            || matches!(path, ["request", "headers", _] | ["request", "referer" | "useragent"])
    }

    /// The length of its body in bytes, as Envoy knows it after the headers.
    fn size(&self) -> Option<i64> {
        let stated = self.headers.iter().find(|(name, _)| name == "content-length");
        match (stated, &self.body) {
            (Some((_, length)), _) => core::str::from_utf8(length).ok()?.parse().ok(),
            (None, Some(body)) => i64::try_from(body.len()).ok(),
            (None, None) => (!self.has_body()).then_some(0),
        }
    }

    fn read<T>(&self, name: &str, value: T) -> Result<T, Unreadable> {
        if self.unreadable.contains(name) { Err(Unreadable) } else { Ok(value) }
    }
}

impl Attributes for Sample {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        let lines: Vec<&[u8]> =
            self.headers.iter().filter(|(line, _)| line == name).map(|(_, value)| value.as_slice()).collect();
        let value = match lines.as_slice() {
            [] => None,
            [line] => Some(Cow::Borrowed(*line)),
            lines => Some(Cow::Owned(lines.join(&b','))),
        };
        self.read(name, value)
    }

    fn header_lines(&self, name: &str) -> Result<usize, Unreadable> {
        self.read(name, self.headers.iter().filter(|(line, _)| line == name).count())
    }

    /// A body follows where there is one, or where the headers say so.
    fn has_body(&self) -> bool {
        self.body.is_some()
            || self.headers.iter().any(|(name, value)| match name.as_str() {
                "transfer-encoding" => true,
                "content-length" => value != b"0",
                _ => false,
            })
    }

    fn now(&self) -> Option<Micros> {
        self.at
    }

    fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// Returns the given attribute; for attributes of the request itself, what Envoy derives from its headers. A number or a time is eight
    /// bytes in Envoy's order, the lowest first.
    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        let target = || self.header(":path").map(|path| path.unwrap_or_default());
        let number = |number: i64| Cow::Owned(number.to_le_bytes().to_vec());
        let cut = |target: &Cow<'_, [u8]>| target.iter().position(|byte| *byte == b'?');
        let value = match (self.properties.get(&path.join("\0")), path) {
            (Some(value), _) => Some(Cow::Borrowed(value.as_slice())),
            (None, ["request", "method"]) => self.header(":method")?,
            (None, ["request", "path"]) => self.header(":path")?,
            (None, ["request", "host"]) => self.header(":authority")?,
            (None, ["request", "referer"]) => self.header("referer")?,
            (None, ["request", "useragent"]) => self.header("user-agent")?,
            (None, ["request", "scheme"]) => self.header(":scheme")?,
            (None, ["request", "size"]) => self.size().map(number),
            // Nanoseconds.
            (None, ["request", "time"]) => {
                self.at.and_then(|at| Some(number(i64::try_from(at.0).ok()?.saturating_mul(1_000))))
            }
            (None, ["request", "id"]) => self.header("x-request-id")?,
            (None, ["request", "headers", name]) => self.header(&name.to_ascii_lowercase())?,
            (None, ["request", "url_path"]) => {
                let target = target()?;
                let end = cut(&target).unwrap_or(target.len());
                Some(Cow::Owned(target.get(..end).unwrap_or_default().to_vec()))
            }
            (None, ["request", "query"]) => {
                let target = target()?;
                let start = cut(&target).map_or(target.len(), |at| at.saturating_add(1));
                Some(Cow::Owned(target.get(start..).unwrap_or_default().to_vec()))
            }
            (None, _) => None,
        };
        self.read(&path.join("."), value)
    }
}
