//! A request as the core reads it: headers and Envoy's attributes.

use core::cell::RefCell;
use core::fmt;

use weir_core::request::{Attributes, Unreadable};

use crate::abi::{HeaderMap, attribute};
use crate::envoy::HttpFilter;

/// The attributes of one request, in the hook of its headers.
pub struct HostAttributes {
    filter: HttpFilter,
    has_body: bool,
    failures: RefCell<Vec<Failure>>,
}

/// An attribute that this host cannot read.
pub struct Failure {
    attribute: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the attribute {} cannot be read by a dynamic module: it may have any value",
            self.attribute
        )
    }
}

impl HostAttributes {
    /// In the hook of the request's headers, which says whether the stream ends with them.
    pub const fn new(filter: HttpFilter, end_of_stream: bool) -> Self {
        Self { filter, has_body: !end_of_stream, failures: RefCell::new(Vec::new()) }
    }

    fn unreadable(&self, path: &[&str]) -> Unreadable {
        self.failures.borrow_mut().push(Failure { attribute: path.join(".") });
        Unreadable
    }

    /// The attributes that could not be read until now.
    pub fn into_failures(self) -> Vec<Failure> {
        self.failures.into_inner()
    }
}

impl Attributes for HostAttributes {
    fn header(&self, name: &str) -> Result<Option<Vec<u8>>, Unreadable> {
        Ok(self.filter.header(HeaderMap::Request, name).map(|(value, _)| value))
    }

    fn header_lines(&self, name: &str) -> Result<usize, Unreadable> {
        Ok(self.filter.header(HeaderMap::Request, name).map_or(0, |(_, lines)| lines))
    }

    fn has_body(&self) -> bool {
        self.has_body
    }

    fn property(&self, path: &[&str]) -> Result<Option<Vec<u8>>, Unreadable> {
        let known = |(name, _): &&(&str, u32)| name.split('.').eq(path.iter().copied());
        match path {
            ["request", "headers", name] => self.header(name),
            ["filter_state", key] => Ok(self.filter.filter_state(key)),
            // The ABI reads texts only, and nothing inside a value.
            ["metadata", "filter_metadata", namespace, key, inside @ ..] => {
                let text = self.filter.metadata(namespace, key).filter(|_| inside.is_empty());
                if text.is_none() && self.filter.has_metadata(namespace, key) {
                    return Err(self.unreadable(path));
                }
                Ok(text)
            }
            _ => match attribute::TEXTS.iter().find(known) {
                Some((_, attribute)) => Ok(self.filter.attribute(*attribute)),
                None => Err(self.unreadable(path)),
            },
        }
    }
}
