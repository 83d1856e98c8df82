// SPDX-License-Identifier: Apache-2.0
//! A request as the core reads it: headers and Envoy's attributes.

use core::cell::RefCell;
use std::borrow::Cow;

use weir_core::request::module::{self, Reading};
use weir_core::request::{Attributes, Unreadable};
use weir_core::session::Exchange;
use weir_core::time::Micros;

use crate::abi::HeaderMap;
use crate::envoy::{Headers, HttpFilter};
use crate::now;
use crate::reply;

/// The attributes of one request, in a hook of that request that changes none of its headers.
pub struct HostAttributes {
    filter: HttpFilter,
    headers: Headers,
    has_body: bool,
    failures: RefCell<Vec<String>>,
}

impl HostAttributes {
    /// For a hook of the request; the hook of its headers says whether the stream ends with them.
    ///
    /// # Safety
    /// Nothing uses them after the hook has returned to Envoy, or after something has changed the request's headers.
    pub const unsafe fn new(filter: HttpFilter, end_of_stream: bool) -> Self {
        // SAFETY: the caller promises the same.
        let headers = unsafe { filter.headers(HeaderMap::Request) };
        Self { filter, headers, has_body: !end_of_stream, failures: RefCell::new(Vec::new()) }
    }

    fn unreadable(&self, path: &[&str]) -> Unreadable {
        let path = path.join(".");
        let failure =
            format!("the attribute {path} cannot be read by a dynamic module: it may have any value");
        self.failures.borrow_mut().push(failure);
        Unreadable
    }
}

impl Attributes for HostAttributes {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(self.headers.get(name).map(|(value, _)| value))
    }

    fn header_lines(&self, name: &str) -> Result<usize, Unreadable> {
        Ok(self.headers.get(name).map_or(0, |(_, lines)| lines))
    }

    fn now(&self) -> Option<Micros> {
        Some(now())
    }

    fn has_body(&self) -> bool {
        self.has_body
    }

    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        let value = match module::reading(path).ok_or_else(|| self.unreadable(path))? {
            Reading::Header(name) => return self.header(name),
            Reading::FilterState(key) => {
                let value = self.filter.filter_state(key);
                if value.is_none() && self.filter.has_filter_state(key) {
                    return Err(self.unreadable(path));
                }
                value
            }
            Reading::Metadata(namespace, key) => {
                let value = self.filter.metadata(namespace, key);
                if value.is_none() && self.filter.has_metadata(namespace, key) {
                    return Err(self.unreadable(path));
                }
                value
            }
            Reading::Text(attribute) => self.filter.attribute(attribute),
        };
        Ok(value.map(Cow::Owned))
    }
}

impl Exchange for HostAttributes {
    fn write_state(&self, name: &str, value: &str) {
        reply::write_state(self.filter, name, value);
    }

    fn take_failures(&self) -> Vec<String> {
        self.failures.take()
    }
}
