// SPDX-License-Identifier: Apache-2.0
//! `weir import envoy`: the limits of Envoy's filter local_ratelimit, also in Istio's EnvoyFilter, of Envoy Gateway's BackendTrafficPolicy and of
//! Kuadrant's RateLimitPolicy and TokenRateLimitPolicy, as policies.
//!
//! | file | what is inside |
//! |---|---|
//! | `local.rs` | the filter, and what routes and virtual hosts have in its place |
//! | `traffic.rs` | the rules of a BackendTrafficPolicy |
//! | `kuadrant.rs` | the limits of a RateLimitPolicy or a TokenRateLimitPolicy |

mod kuadrant;
mod local;
mod traffic;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;

use super::nginx::{name_of, unique};
use super::notes::Notes;
use super::ratelimit;
use super::test::Test;
use super::{Imported, Output};
use crate::document::Node;
use crate::tree::{Map, Tree};

/// The files to import.
#[derive(Args)]
pub struct Arguments {
    /// Envoy's configuration, or manifests with BackendTrafficPolicies of Envoy Gateway, EnvoyFilters of Istio, or RateLimitPolicies and
    /// TokenRateLimitPolicies of Kuadrant.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

pub fn import(arguments: &Arguments) -> Result<Imported, String> {
    let mut notes = Notes::default();
    let files = super::read(&arguments.files, 0, &mut notes)?;
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let objects = super::objects(&files);
    let refused = traffic::Refused::of(&objects);
    let gateways: BTreeSet<_> =
        objects.iter().flat_map(|object| traffic::gateways(object, &refused)).collect();
    let has_gateways = gateways.len() > 1;
    let mut writer = Writer {
        notes: &mut notes,
        files: &names,
        file: 0,
        names: Vec::new(),
        made: Vec::new(),
        has_gateways,
        has_limits: objects.iter().any(|object| traffic::limited(object).is_some()),
        fails_closed: false,
    };
    let own = traffic::KINDS.map(|kind| {
        Test::any_of(objects.iter().flat_map(|object| traffic::replaced(object, &refused, kind)))
    });
    let is_policy = |kind: &str| {
        let limits = ["BackendTrafficPolicy", "RateLimitPolicy", "TokenRateLimitPolicy"];
        limits.contains(&kind) || ["ClientTrafficPolicy", "EnvoyGateway"].contains(&kind)
    };
    let (mut of_policies, mut others): (Vec<_>, Vec<_>) =
        // NGINX Gateway Fabric has a RateLimitPolicy, too.
        objects.into_iter().partition(|object| {
            is_policy(object.kind()) && !object.root.text_of("apiVersion").contains("nginx.org")
        });
    ratelimit::sort(&mut others);
    // It says what the global rules of all policies do without the rate-limit service.
    of_policies.sort_by_key(|object| object.kind() != "EnvoyGateway");
    for object in of_policies {
        writer.file = object.file;
        match object.kind() {
            "EnvoyGateway" => writer.fails_closed |= traffic::fails_closed(object.root, &mut writer),
            "ClientTrafficPolicy" => traffic::note_headers(object.root, &mut writer),
            "BackendTrafficPolicy" => traffic::import(object.root, &own, &refused, &mut writer),
            _ => kuadrant::import(object.root, &mut writer),
        }
        writer.notes.read(object.root);
    }
    local::import(&others, &mut writer);
    let policies: Vec<Tree> = writer.made.into_iter().map(Tree::from).collect();
    notes.rest(&files);
    if policies.is_empty() {
        return Err(super::nothing(
            &names,
            &notes,
            "filter local_ratelimit, BackendTrafficPolicy, RateLimitPolicy or TokenRateLimitPolicy with a limit",
        ));
    }
    let configuration = Map::from([("policies", policies.into())]);
    Ok(Imported { configuration, files: names, notes })
}

/// The policies, while they are made.
struct Writer<'a> {
    notes: &'a mut Notes,
    files: &'a [String],
    /// The number of the file of the object that is read.
    file: usize,
    names: Vec<String>,
    made: Vec<Map>,
    /// Several Gateways have policies of their own.
    has_gateways: bool,
    /// A BackendTrafficPolicy limits.
    has_limits: bool,
    /// Envoy Gateway denies requests without the rate-limit service.
    fails_closed: bool,
}

impl Writer<'_> {
    /// Adds a note about a field of an object.
    fn note(&mut self, node: &Node, field: &str, why: &str, instead: &str) {
        self.notes.field(self.file, node, field, why, instead);
    }

    fn unread(&mut self, node: &Node, known: &str) {
        self.notes.unread(self.file, node, known);
    }

    /// The beginning of a policy: its name, where it comes from, and which requests it is for.
    fn policy(&mut self, node: &Node, name: &str, requests: &Test) -> Map {
        let name = unique(name_of(name), &self.names);
        let from = self.files.get(self.file).map(String::as_str).unwrap_or_default();
        let policy = super::policy(&name, vec![format!("{from}:{}", node.place.line)], requests);
        self.names.push(name);
        policy
    }
}

/// A test on an attribute of Envoy.
pub fn attribute(path: [&str; 2], field: &str, text: &str) -> Test {
    let path: Vec<Tree> = path.into_iter().map(Tree::from).collect();
    Test::Value("attribute", Map::from([("path", path.into()), (field, text.into())]))
}
