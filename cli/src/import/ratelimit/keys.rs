// SPDX-License-Identifier: Apache-2.0
//! Names in the service's configuration and in Envoy's that are not read. Each is a note: what is left out without a word may be a limit.

use super::super::notes::{Note, Notes};
use super::policies::Service;
use crate::document::Node;

/// What each level of the service's configuration has.
const DESCRIPTOR: &str = "key value rate_limit descriptors shadow_mode quota_mode detailed_metric value_to_metric share_threshold metadata";
const RATE_LIMIT: &str = "unit requests_per_unit unlimited name replaces";

/// Adds a note for each name that the service does not have at its place.
pub fn note(service: &Service<'_>, notes: &mut Notes) {
    unknown(service.root, "domain descriptors", service.file, notes, &SERVICE);
    let mut open: Vec<&Node> = service.root.list("descriptors").iter().collect();
    while let Some(descriptor) = open.pop() {
        unknown(descriptor, DESCRIPTOR, service.file, notes, &SERVICE);
        if let Some(limit) = descriptor.get("rate_limit") {
            unknown(limit, RATE_LIMIT, service.file, notes, &SERVICE);
            for replaced in limit.list("replaces") {
                unknown(replaced, "name", service.file, notes, &SERVICE);
            }
        }
        open.extend(descriptor.list("descriptors"));
    }
}

/// What a note says of a name that is not read.
pub struct Reader {
    why: &'static str,
    instead: &'static str,
    /// Whether names may be in camel case.
    camel: bool,
}

const SERVICE: Reader = Reader {
    why: "the service does not have it here, so it is not imported",
    instead: "If your service reads it, write the policy by hand; else remove it",
    camel: false,
};

pub const ENVOY: Reader = Reader {
    why: "it is not read",
    instead: "If it changes which requests count, write the policy by hand",
    camel: true,
};

/// Adds a note for each field of an object that is none of these, which are separated by blanks.
pub fn unknown(node: &Node, known: &str, file: usize, notes: &mut Notes, reader: &Reader) {
    for (name, place, value) in node.fields() {
        let is_read = |known: &str| {
            known == name || reader.camel && node.get(known).is_some_and(|found| core::ptr::eq(found, value))
        };
        if !known.split(' ').any(is_read) {
            notes.add(Note::at(file, place.line, name, reader.why, reader.instead));
        }
    }
}
