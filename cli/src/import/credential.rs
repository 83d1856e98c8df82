// SPDX-License-Identifier: Apache-2.0
//! The places in which a gateway's plugins look for the credential of a consumer, as weir's `credential`.

use crate::tree::{Map, Tree};

/// The most headers, and the most query parameters, that weir's `credential` has.
const MAX_NAMES: usize = 8;

/// Headers in lower case, and query parameters.
#[derive(Clone, Default, PartialEq)]
pub struct Places {
    headers: Vec<String>,
    query: Vec<String>,
    /// A plugin reads signatures.
    pub is_signed: bool,
    /// A plugin reads the certificate of the client.
    pub reads_certificate: bool,
    /// There are more names than weir's `credential` has.
    is_cut: bool,
    /// They are those of several plugins. A credential for one of them is enough.
    is_joined: bool,
    /// A plugin finds consumers, wherever it looks.
    pub finds_consumers: bool,
    /// Requests without a credential pass as one consumer.
    pub is_anonymous: bool,
}

impl Places {
    /// Adds a header and a query parameter, unless they are empty or known.
    pub fn add(&mut self, header: &str, parameter: &str) {
        let header = header.to_ascii_lowercase();
        for (list, name) in [(&mut self.headers, header.as_str()), (&mut self.query, parameter)] {
            if name.is_empty() || list.iter().any(|known| known == name) {
                continue;
            }
            if list.len() < MAX_NAMES {
                list.push(name.to_owned());
            } else {
                self.is_cut = true;
            }
        }
    }

    fn has_names(&self) -> bool {
        !self.headers.is_empty() || !self.query.is_empty()
    }

    /// The differences in weir, each with what to do.
    pub fn notes(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let tell = "Name in the `subject` what tells clients apart";
        let signed = "with hmac-auth each request has a signature of its own, and weir's `credential` denies signatures";
        let cut =
            "weir's `credential` has at most 8 headers and 8 parameters, so those after them are left out";
        let certificate = "beside other credentials weir reads no certificate, so clients that send only one count together";
        let joined = "weir rejects a request that has credentials for two of these plugins with 403";
        let all = [
            (self.is_signed, signed, tell),
            (self.is_cut, cut, tell),
            (self.reads_certificate && self.has_names(), certificate, tell),
            (
                self.is_joined,
                joined,
                "If clients send two, name one place in the `credential`, or write `on_multiple: first`",
            ),
        ];
        all.into_iter().filter(|(is_so, ..)| *is_so).map(|(_, why, instead)| (why, instead))
    }

    /// The places of several plugins. A credential for one of them is enough.
    pub fn joined(all: &[Self]) -> Self {
        let mut whole = Self::default();
        for one in all {
            one.headers.iter().for_each(|name| whole.add(name, ""));
            one.query.iter().for_each(|name| whole.add("", name));
            whole.is_signed |= one.is_signed;
            whole.reads_certificate |= one.reads_certificate;
            whole.is_cut |= one.is_cut;
            whole.finds_consumers |= one.finds_consumers;
        }
        let named = |of: &Self| [of.headers.clone(), of.query.clone()];
        let is_part = |one: &Self| named(one).concat() != [""; 0] && named(one) != named(&whole);
        whole.is_joined = all.iter().any(is_part);
        whole
    }

    /// The part of a subject; where no place is known it is weir's own places.
    pub fn part(&self) -> Map {
        if self.reads_certificate && !self.has_names() {
            return Map::from([("tls_subject", Map::new().into())]);
        }
        let list = |names: &[String]| names.iter().map(|name| Tree::from(name.as_str())).collect::<Vec<_>>();
        let mut places = Map::new();
        if self.has_names() {
            places.set("headers", list(&self.headers)).set("query", list(&self.query));
        }
        Map::from([("credential", places.into())])
    }
}
