// SPDX-License-Identifier: Apache-2.0
//! Headers of a response.

use super::settings::Upstream;

/// The capacity that a value begins with, in bytes.
const USUAL_LENGTH: usize = 64;

/// A header of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The treatment of the upstream's header of that name.
    pub upstream: Upstream,
}

impl Header {
    pub(super) const fn new(name: &'static str, value: String) -> Self {
        Self { name, value, upstream: Upstream::Replace }
    }
}

/// The headers of a response. The next response uses the memory of their values again.
#[derive(Debug, Default)]
pub struct Headers {
    all: Vec<Header>,
    spare: Vec<String>,
}

impl Headers {
    /// The headers of this response.
    #[must_use]
    pub fn as_slice(&self) -> &[Header] {
        &self.all
    }

    pub(super) fn into_vec(self) -> Vec<Header> {
        self.all
    }

    /// Removes all headers, for the next response.
    pub(super) fn clear(&mut self) {
        while let Some(header) = self.all.pop() {
            self.spare.push(header.value);
        }
    }

    /// An empty value, for [`Headers::add`].
    pub(super) fn value(&mut self) -> String {
        let mut value = self.spare.pop().unwrap_or_else(|| String::with_capacity(USUAL_LENGTH));
        value.clear();
        value
    }

    pub(super) fn add(&mut self, name: &'static str, value: String, upstream: Upstream) {
        self.all.push(Header { name, value, upstream });
    }
}
