// SPDX-License-Identifier: Apache-2.0
//! Warnings about Envoy's configuration around the limiter: what is missing between it and Redis, and what clients could reach.
//!
//! | file | what is inside |
//! |---|---|
//! | `picture.rs` | the clusters and listeners of a file |
//! | `bridge.rs` | the plugin's connection to Redis |
//! | `edge.rs` | the HTTP connection manager that has the limiter |
//! | `listeners.rs` | the dynamic module's connection to Redis, and its clock |
//! | `exposed.rs` | what leads clients to Redis, and passwords that others can read |
//! | `shared.rs` | limiters that count in the same keys |

mod bridge;
mod edge;
mod exposed;
mod listeners;
mod picture;
mod shared;

use crate::document::Node;
use crate::finding::Finding;
use crate::source::{Carrier, Kind, Limiter, Source};
pub use edge::{CHOSEN_IN_SIDECAR, authenticates, longest_wait, reads_address};
pub use picture::{Picture, inside};
pub use shared::warnings as shared;
use weir::config::Config;

/// A limiter in Envoy's configuration, and what the files show around it.
pub struct Wired<'a> {
    limiter: &'a Limiter<'a>,
    carrier: &'a Carrier<'a>,
    config: &'a Config,
    own: &'a Picture<'a>,
    others: Vec<&'a Picture<'a>>,
}

impl<'a> Wired<'a> {
    /// The limiter of the file that shows `own`. A file that shows all is not completed by others.
    pub fn new(
        limiter: &'a Limiter<'a>,
        config: &'a Config,
        own: &'a Picture<'a>,
        all: &'a [Picture<'a>],
    ) -> Option<Self> {
        let carrier = limiter.carrier.as_ref()?;
        let is_other = |other: &&Picture<'_>| !core::ptr::eq(*other, own) && !other.has_all_clusters;
        let others = if own.has_all_clusters { Vec::new() } else { all.iter().filter(is_other).collect() };
        Some(Self { limiter, carrier, config, own, others })
    }

    /// The file that shows the cluster of one of the limiter's stores.
    fn store(&self, name: &str) -> Option<&'a Picture<'a>> {
        let mut shown = core::iter::once(self.own).chain(self.others.iter().copied());
        shown.find(|picture| picture.cluster(name).is_some())
    }

    pub fn warnings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let follows = "all requests of the worker pass without limits";
        bridge::fail_open(self.carrier.node, "the limiter", follows, &mut found);
        if self.carrier.kind == Kind::Native {
            listeners::clock(self, &mut found);
        }
        for region in &self.config.regions.all {
            match self.carrier.kind {
                Kind::Native => listeners::warnings(self, region, &mut found),
                _ => bridge::warnings(self, region, &mut found),
            }
        }
        edge::warnings(self, &mut found);
        found
    }
}

/// Warns of problems of the connection managers of a file that get one of these limiters from another file (ECDS).
pub fn discovered<'a>(
    source: &'a Source,
    own: &'a Picture<'a>,
    limiters: &[&'a Limiter<'a>],
    host: weir::config::Host,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for limiter in limiters {
        let Some(carrier) = &limiter.carrier else { continue };
        let Some(extension) = carrier.around.iter().rev().find(|node| node.get("typed_config").is_some())
        else {
            continue;
        };
        let name = extension.text_of("name");
        let is_it = |node: &Node| node.get("config_discovery").is_some() && node.text_of("name") == name;
        let paths: Vec<_> =
            source.documents.iter().flat_map(|document| picture::paths(document, &is_it)).collect();
        if paths.is_empty() {
            continue;
        }
        let Ok(config) = limiter.config(host) else { continue };
        for around in paths {
            let carrier = &Carrier { around, ..carrier.clone() };
            edge::warnings(&Wired { limiter, carrier, config: &config, own, others: Vec::new() }, &mut found);
        }
    }
    found
}

/// Warns of problems of a file with bridges and listeners that lead to Redis. `stores` are those of the file's limiters.
pub fn warnings(
    own: &Picture<'_>,
    documents: &[Node],
    mut stores: Vec<String>,
    all: &[Picture<'_>],
) -> Vec<Finding> {
    let mut found = Vec::new();
    for cluster in &own.clusters {
        bridge::cluster(cluster, &mut found);
    }
    // A file that does not show all belongs to the same Envoy as the others.
    let shown = all
        .iter()
        .filter(|other| core::ptr::eq(*other, own) || !(own.has_all_clusters || other.has_all_clusters));
    let with_bridge =
        shown.flat_map(|picture| &picture.clusters).filter(|cluster| !picture::bridges(cluster).is_empty());
    stores.extend(with_bridge.map(|cluster| cluster.text_of("name").to_owned()));
    exposed::warnings(own, documents, &stores, &mut found);
    found
}
