// SPDX-License-Identifier: Apache-2.0
//! Names in the service's configuration that are not read. Each is a note: what is left out without a word may be a limit.

use super::super::notes::{Notes, Reader};
use super::policies::Service;
use crate::document::Node;

/// The fields of each level of the service's configuration.
const DESCRIPTOR: &str = "key value rate_limit descriptors shadow_mode quota_mode detailed_metric value_to_metric share_threshold metadata";
const RATE_LIMIT: &str = "unit requests_per_unit unlimited name replaces";

/// Adds a note for each name that the service does not have at its place.
pub fn note(service: &Service<'_>, notes: &mut Notes) {
    notes.unread_by(&SERVICE, service.file, service.root, "domain descriptors");
    let mut open: Vec<&Node> = service.root.list("descriptors").iter().collect();
    while let Some(descriptor) = open.pop() {
        notes.unread_by(&SERVICE, service.file, descriptor, DESCRIPTOR);
        if let Some(limit) = descriptor.get("rate_limit") {
            notes.unread_by(&SERVICE, service.file, limit, RATE_LIMIT);
            for replaced in limit.list("replaces") {
                notes.unread_by(&SERVICE, service.file, replaced, "name");
            }
        }
        open.extend(descriptor.list("descriptors"));
    }
}

const SERVICE: Reader = Reader {
    why: "the service does not have it here, so it is not imported",
    instead: "If your service reads it, write the policy by hand; else remove it",
    camel: false,
};
