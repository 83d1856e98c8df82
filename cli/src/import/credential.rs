// SPDX-License-Identifier: Apache-2.0
//! The places in which a gateway's plugins look for the credential of a consumer, as weir's `credential`.

use crate::tree::{Map, Tree};

/// Headers in lower case, and query parameters.
#[derive(Clone, Default)]
pub struct Places {
    headers: Vec<String>,
    query: Vec<String>,
    is_signed: bool,
    /// A plugin finds consumers, wherever it looks.
    pub finds_consumers: bool,
}

impl Places {
    /// Adds a header and a query parameter, unless they are empty or known.
    pub fn add(&mut self, header: &str, parameter: &str) {
        let header = header.to_ascii_lowercase();
        for (list, name) in [(&mut self.headers, header.as_str()), (&mut self.query, parameter)] {
            if !name.is_empty() && !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
        }
    }

    /// Says that a plugin reads signatures.
    pub const fn sign(&mut self) {
        self.is_signed = true;
    }

    /// Says what weir does with signatures, if there may be some, and what to do.
    pub fn note(&self) -> Option<(&'static str, &'static str)> {
        let why = "with hmac-auth each request has a signature of its own, and weir's `credential` denies signatures";
        self.is_signed.then_some((why, "Name in the `subject` what tells clients apart"))
    }

    /// The places of several plugins or routes.
    pub fn joined<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        all.into_iter().fold(Self::default(), |mut whole, one| {
            one.headers.iter().for_each(|name| whole.add(name, ""));
            one.query.iter().for_each(|name| whole.add("", name));
            whole.is_signed |= one.is_signed;
            whole.finds_consumers |= one.finds_consumers;
            whole
        })
    }

    /// The part of a subject; where no place is known it is weir's own places.
    pub fn part(&self) -> Map {
        let list = |names: &[String]| names.iter().map(|name| Tree::from(name.as_str())).collect::<Vec<_>>();
        let mut places = Map::new();
        if !self.headers.is_empty() || !self.query.is_empty() {
            places.set("headers", list(&self.headers)).set("query", list(&self.query));
        }
        Map::from([("credential", places.into())])
    }
}
