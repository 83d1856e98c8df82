// SPDX-License-Identifier: Apache-2.0
//! `weir import apisix`: the plugins limit-count, limit-req and limit-conn of APISIX's files as policies.
//!
//! | file | what is inside |
//! |---|---|
//! | `routes.rs` | which route a request has |
//! | `limits.rs` | what a plugin limits, and by what |

mod limits;
mod routes;

use std::path::PathBuf;

use clap::Args;

use super::nginx::name_of;
use super::notes::{Note, Notes};
use super::test::Test;
use super::{Imported, Output};
use crate::document::{Node, Place};
use crate::tree::{Map, Tree};
use limits::Writer;

/// What to import.
#[derive(Args)]
pub struct Arguments {
    /// `apisix.yaml` of the standalone mode, or what `adc dump` prints.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// The plugins that are imported.
const KINDS: [&str; 3] = ["limit-count", "limit-req", "limit-conn"];

/// Plugins that limit, too.
const OTHERS: [&str; 5] =
    ["ai-rate-limiting", "graphql-limit-count", "workflow", "api-breaker", "traffic-split"];

/// A route, and what it takes from elsewhere.
struct Route<'a> {
    file: usize,
    node: &'a Node,
    service: Option<&'a Node>,
}

/// A plugin, by its name, and who has it.
#[derive(Clone, Copy)]
struct Plugin<'a> {
    file: usize,
    name: &'a str,
    place: Place,
    config: &'a Node,
    owner: &'a Node,
}

pub fn import(arguments: &Arguments) -> Result<Imported, String> {
    let mut notes = Notes::default();
    let files = super::read(&arguments.files)?;
    let roots: Vec<(usize, &Node)> = files
        .iter()
        .enumerate()
        .flat_map(|(number, file)| file.documents.iter().map(move |root| (number, root)))
        .collect();
    let routes = all_routes(&roots);
    let run: Vec<Vec<Plugin<'_>>> = routes.iter().map(|route| run_by(route, &roots, &mut notes)).collect();
    let entries = routes::entries(&routes, &run, &mut notes);
    let mut found: Vec<(Plugin<'_>, Test)> = Vec::new();
    // Global rules run beside the plugins of routes.
    for (file, root) in &roots {
        for owner in global_rules(root) {
            let plugins = plugins(*file, owner, &mut notes);
            found.extend(plugins.into_iter().map(|plugin| (plugin, Test::Always)));
        }
        for owner in root.list("consumers").iter().chain(root.list("consumer_groups")) {
            note_consumer(*file, owner, &mut notes);
        }
    }
    // Each plugin of a route, a plugin configuration or a service, once, with the routes that run it.
    let mut seen: Vec<&Node> = Vec::new();
    for plugin in run.iter().flatten() {
        if seen.iter().any(|other| core::ptr::eq(*other, plugin.config)) {
            continue;
        }
        seen.push(plugin.config);
        let runs = |route: usize| {
            run.get(route).is_some_and(|of| of.iter().any(|other| core::ptr::eq(other.config, plugin.config)))
        };
        // Where it is not known that a route has a request, another's limits stay.
        let known = entries.iter().filter(|entry| !entry.is_partial || runs(entry.route));
        let requests = Test::first_match(known.map(|entry| (&entry.requests, runs(entry.route))));
        found.push((*plugin, requests));
    }
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let mut writer = Writer::new(&mut notes);
    for (plugin, requests) in found {
        let scope = name(plugin.owner);
        let file = names.get(plugin.file).map(String::as_str).unwrap_or_default();
        let comment = format!("{file}:{}: {} of {scope}", plugin.place.line, plugin.name);
        writer.add(&plugin, (&name_of(&scope), &comment), &requests);
    }
    let policies: Vec<Tree> = writer.finish().into_iter().map(Tree::from).collect();
    if policies.is_empty() {
        return Err(super::nothing(&names, &notes, "plugin limit-count, limit-req or limit-conn"));
    }
    Ok(Imported { configuration: Map::from([("policies", policies.into())]), files: names, notes })
}

/// The routes of all files: those of a service have it, and others name it.
fn all_routes<'a>(roots: &[(usize, &'a Node)]) -> Vec<Route<'a>> {
    let mut found = Vec::new();
    for &(file, root) in roots {
        for service in root.list("services") {
            let routes = service.list("routes").iter();
            found.extend(routes.map(|node| Route { file, node, service: Some(service) }));
        }
        found.extend(root.list("routes").iter().map(|node| {
            let service = by_id(roots, "services", &node.get("service_id"));
            Route { file, node, service }
        }));
    }
    found.retain(|route| !matches!(route.node.get("status").and_then(number), Some(0)));
    found
}

/// The object of a list that has this id.
fn by_id<'a>(roots: &[(usize, &'a Node)], list: &str, id: &Option<&Node>) -> Option<&'a Node> {
    let id = id.and_then(Node::text_or_number)?;
    let all = roots.iter().flat_map(|(_, root)| root.list(list));
    let is = |node: &&Node| node.get("id").and_then(Node::text_or_number).as_deref() == Some(id.as_str());
    all.into_iter().find(is)
}

/// The plugins that a route runs: its own, then those of its plugin configuration and of its service that have other names.
fn run_by<'a>(route: &Route<'a>, roots: &[(usize, &'a Node)], notes: &mut Notes) -> Vec<Plugin<'a>> {
    let shared = by_id(roots, "plugin_configs", &route.node.get("plugin_config_id"));
    let mut run: Vec<Plugin<'a>> = Vec::new();
    for owner in [Some(route.node), shared, route.service].into_iter().flatten() {
        for plugin in plugins(route.file, owner, notes) {
            if run.iter().all(|other| other.name != plugin.name) {
                run.push(plugin);
            }
        }
    }
    run
}

/// The global rules of a file: a list of them, or an object of plugins.
fn global_rules(root: &Node) -> Vec<&Node> {
    let listed = root.list("global_rules");
    if listed.is_empty() { root.get("global_rules").into_iter().collect() } else { listed.iter().collect() }
}

/// The plugins of an object that limit.
fn plugins<'a>(file: usize, owner: &'a Node, notes: &mut Notes) -> Vec<Plugin<'a>> {
    let fields = owner.get("plugins").unwrap_or(owner).fields();
    let mut found = Vec::new();
    for (name, place, config) in fields {
        if OTHERS.contains(&name.as_str()) {
            let why = "this plugin is not imported";
            notes.add(Note::at(file, place.line, name, why, "Write the policy by hand"));
        }
        let is_off = config
            .at(&["_meta", "disable"])
            .is_some_and(|flag| flag.text_or_number().as_deref() == Some("true"))
            || config.get("_meta").is_some_and(|meta| meta.is_true("disable"));
        if KINDS.contains(&name.as_str()) && !is_off {
            found.push(Plugin { file, name, place: *place, config, owner });
        }
    }
    found
}

fn note_consumer(file: usize, owner: &Node, notes: &mut Notes) {
    for (name, place, _) in owner.get("plugins").map(Node::fields).unwrap_or_default() {
        if KINDS.contains(&name.as_str()) || OTHERS.contains(&name.as_str()) {
            let why = "it is for one consumer or group, and weir knows no consumers, so it is not imported";
            let instead = "Write `tiers`: a header or a claim that names the plan chooses the limits";
            notes.add(Note::at(file, place.line, name, why, instead));
        }
    }
}

/// What a policy is named after.
fn name(owner: &Node) -> String {
    let names =
        ["name", "id", "uri"].map(|name| owner.get(name).and_then(Node::text_or_number).unwrap_or_default());
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| String::from("all"))
}

pub use super::ratelimit::number;
