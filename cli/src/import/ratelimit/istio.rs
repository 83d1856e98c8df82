// SPDX-License-Identifier: Apache-2.0
//! Istio's EnvoyFilters: their order, the proxies that they are for, and the requests of the routes and virtual hosts that a patch changes or
//! adds.

use serde_json::{Map, Value};

use super::super::Object;
use super::super::envoy::attribute;
use super::super::notes::Notes;
use super::super::test::Test;
use super::envoy::{domains, note, route_test, virtual_host};
use crate::document::Node;

/// The change that a patch makes to routes or virtual hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Merge,
    Add,
    /// It removes or replaces some, or Istio does nothing.
    Other,
}

impl Change {
    pub fn of(patch: &Node) -> Self {
        match (patch.text_of("applyTo"), operation(patch)) {
            (_, "" | "MERGE") => Self::Merge,
            ("VIRTUAL_HOST", "ADD")
            | ("HTTP_ROUTE", "ADD" | "INSERT_FIRST" | "INSERT_BEFORE" | "INSERT_AFTER") => Self::Add,
            _ => Self::Other,
        }
    }
}

fn operation(patch: &Node) -> &str {
    patch.get("patch").map(|inner| inner.text_of("operation")).unwrap_or_default()
}

/// The requests that a patch is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Those of its own limits.
    pub own: Test,
    /// Those for which the limits of others do not count.
    pub taken: Test,
    /// True if it adds a route or a virtual host, to which Istio applies no patch of its level.
    pub is_new: bool,
}

impl Scope {
    /// The requests of the routes or virtual hosts that a patch changes, or of those that it adds.
    pub fn of(patch: &Node, file: usize, notes: &mut Notes) -> Self {
        let value = patch.at(&["patch", "value"]).filter(|_| Change::of(patch) == Change::Add);
        let Some(value) = value else {
            let own = patched(patch);
            return Self { taken: own.clone(), own, is_new: false };
        };
        let [host, route] = matched(patch);
        let (own, taken) = match (rank(patch), value.text_of("name")) {
            (0, "") => {
                let (own, taken) = route_test(value, file, notes);
                let is_first = operation(patch) == "INSERT_FIRST"
                    || operation(patch) == "INSERT_BEFORE" && route.is_none();
                if !is_first {
                    let why = "weir does not know the routes before it, so its policies are for their requests, too";
                    note(notes, file, value, "match", why, "Give the route a name");
                }
                (own, if is_first { taken } else { Test::NEVER })
            }
            (0, name) => (named("route_name", name), named("route_name", name)),
            (_, "") => {
                let own = virtual_host(0, &[domains(value)]);
                (own.clone(), own)
            }
            (_, name) => (named("virtual_host_name", name), named("virtual_host_name", name)),
        };
        let host = host.filter(|_| rank(patch) == 0);
        let host = host.map_or(Test::Always, |host| named("virtual_host_name", host));
        Self { own: host.clone().and(own), taken: host.and(taken), is_new: true }
    }
}

/// A test on a name that Envoy gives.
fn named(attribute_name: &'static str, name: &str) -> Test {
    attribute(["xds", attribute_name], "exact", name)
}

/// The names of the virtual host and of the route that a patch selects.
fn matched(patch: &Node) -> [Option<&str>; 2] {
    let host = patch.at(&["match", "routeConfiguration", "vhost"]);
    let route = host.and_then(|host| host.get("route"));
    [host, route].map(|of| of.map(|of| of.text_of("name")).filter(|name| !name.is_empty()))
}

/// The requests of the routes or virtual hosts that a patch names.
fn patched(patch: &Node) -> Test {
    let [host, route] = matched(patch);
    let host = host.map_or(Test::Always, |name| named("virtual_host_name", name));
    host.and(route.map_or(Test::Always, |name| named("route_name", name)))
}

/// The level of a patch. What is closer to a route counts first.
pub fn rank(patch: &Node) -> u8 {
    match patch.text_of("applyTo") {
        "VIRTUAL_HOST" => 1,
        "ROUTE_CONFIGURATION" => 2,
        _ => 0,
    }
}

/// The namespace of the EnvoyFilters that are for all namespaces.
const ROOT: &str = "istio-system";

/// Sorts EnvoyFilters in the order in which Istio applies them: the later one wins.
pub fn sort(objects: &mut [Object<'_>]) {
    let is_patch = |object: &Object<'_>| object.kind() == "EnvoyFilter";
    let created = |object: &Object<'_>| object.metadata("creationTimestamp").to_owned();
    let are_dated = objects.iter().all(|object| !is_patch(object) || !created(object).is_empty());
    objects.sort_by_cached_key(|object| {
        let priority = object.root.at(&["spec", "priority"]).and_then(Node::text_or_number);
        let priority: i64 = priority.and_then(|text| text.parse().ok()).unwrap_or(0);
        let created = if are_dated { created(object) } else { String::new() };
        let name = format!("{}.{}", object.metadata("name"), object.metadata("namespace"));
        is_patch(object).then(|| (priority, object.metadata("namespace") != ROOT, created, name))
    });
}

/// The proxies of an EnvoyFilter: its namespace, the labels that they have, and the objects that it names as targets.
#[derive(PartialEq)]
pub struct Proxies {
    /// Empty for all namespaces, or for one that the file does not name.
    namespace: String,
    labels: Map<String, Value>,
    targets: Vec<Value>,
}

impl Proxies {
    pub fn of(object: &Node) -> Self {
        let namespace = object.at(&["metadata", "namespace"]).and_then(Node::text).unwrap_or_default();
        let labels = object.at(&["spec", "workloadSelector", "labels"]).map(Node::json);
        let targets = object.at(&["spec", "targetRefs"]).map(Node::items).unwrap_or_default();
        Self {
            namespace: if namespace == ROOT { String::new() } else { namespace.to_owned() },
            labels: labels.as_ref().and_then(Value::as_object).cloned().unwrap_or_default(),
            targets: targets.iter().map(Node::json).collect(),
        }
    }
}

/// True if one EnvoyFilter is for all proxies that another one is for.
pub fn is_where(one: &Node, other: &Node) -> bool {
    let (own, others) = (Proxies::of(one), Proxies::of(other));
    (own.namespace.is_empty() || own.namespace == others.namespace)
        && own.labels.iter().all(|(name, value)| others.labels.get(name) == Some(value))
        && (own.targets.is_empty()
            || !others.targets.is_empty() && others.targets.iter().all(|target| own.targets.contains(target)))
}

/// True if no proxy has both EnvoyFilters: their namespaces differ, or the value of a label, or they name other targets.
pub fn are_apart(one: &Node, other: &Node) -> bool {
    let (own, others) = (Proxies::of(one), Proxies::of(other));
    let differs = |(name, value): (&String, &Value)| others.labels.get(name).is_some_and(|of| of != value);
    let have_namespaces = !own.namespace.is_empty() && !others.namespace.is_empty();
    let have_targets = !own.targets.is_empty() && !others.targets.is_empty();
    have_namespaces && own.namespace != others.namespace
        || own.labels.iter().any(differs)
        || have_targets && !others.targets.iter().any(|target| own.targets.contains(target))
}

/// Notes what says where the limits of Istio's patches are, if they differ in it: each patch with its file and its EnvoyFilter.
pub fn note_differences(patches: &[(usize, &Node, &Node)], notes: &mut Notes) {
    for field in ["namespace", "context", "proxy"] {
        let of = |(file, object, node): &(usize, &Node, &Node)| {
            let above = if field == "namespace" { object.get("metadata") } else { node.get("match") };
            let (place, value) = above?.field(field)?;
            (![Some(ROOT), Some("ANY")].contains(&value.text())).then(|| (*file, place.line, value.json()))
        };
        let found: Vec<Option<(usize, usize, Value)>> = patches.iter().map(of).collect();
        let values = || found.iter().map(|found| found.as_ref().map(|(.., value)| value));
        if values().any(|value| Some(value) != values().next()) {
            let why = "limits have different ones, which weir does not read, so the policies are for the requests of all";
            let instead = "Import those of each place alone, and load weir there";
            for (file, line, _) in found.iter().flatten() {
                notes.at(*file, *line, field, why, instead);
            }
        }
    }
}

/// Says that the limits of an EnvoyFilter are those of some proxies.
pub fn note_selector(object: &Node, file: usize, notes: &mut Notes) {
    for field in ["workloadSelector", "targetRefs"] {
        if let Some(selector) = object.at(&["spec", field]) {
            let why = "it says which proxies have the limit; the policy is for all that load it";
            note(notes, file, selector, field, why, "Load it in those only");
        }
    }
}

/// Notes about what a patch selects besides names.
pub fn note_patched(node: &Node, file: usize, notes: &mut Notes) {
    let routes = node.at(&["match", "routeConfiguration"]);
    let host = routes.and_then(|routes| routes.get("vhost"));
    let route = host.and_then(|host| host.get("route"));
    for (level, known) in [(routes, "vhost"), (host, "name route"), (route, "name action=ANY action=ROUTE")] {
        level.into_iter().for_each(|level| notes.unread(file, level, known));
    }
}

/// Notes about what a patch that adds a filter selects.
pub fn note_chosen(node: &Node, file: usize, notes: &mut Notes) {
    let listener = node.at(&["match", "listener"]);
    let chain = listener.and_then(|of| of.get("filterChain"));
    for (level, known) in [(listener, "filterChain"), (chain, "filter")] {
        level.into_iter().for_each(|level| notes.unread(file, level, known));
    }
}

/// Says that limits which a patch brings are not imported, because it neither merges nor adds them.
pub fn note_other(patch: &Node, file: usize, notes: &mut Notes) {
    let why = "only what is merged with routes and virtual hosts, or added to them, is read, so these limits are not imported";
    note_operation(patch, file, why, notes);
}

/// Notes a patch that changes or removes a filter. True if it changes one: what it says is not all that the filter has.
pub fn changes_filter(patch: &Node, file: usize, names: &[&str], notes: &mut Notes) -> bool {
    let Some(name) = changed_filter(patch) else { return false };
    match operation(patch) {
        "REMOVE" if names.contains(&name) || name.ends_with("ratelimit") => {
            let why = "it removes the filter from some proxies, and the policies are for all that load them";
            note_operation(patch, file, why, notes);
            false
        }
        "MERGE" | "REPLACE" => {
            let why =
                "it changes a filter that is elsewhere, which weir does not follow, so it is not imported";
            note_operation(patch, file, why, notes);
            true
        }
        _ => false,
    }
}

/// The name of the filter that a patch changes or removes.
fn changed_filter(patch: &Node) -> Option<&str> {
    let filter = patch.at(&["match", "listener", "filterChain", "filter", "subFilter"]);
    let name = filter.or(patch.at(&["patch", "value"])).map(|named| named.text_of("name"));
    let is_change = ["MERGE", "REMOVE", "REPLACE"].contains(&operation(patch));
    name.filter(|_| is_change && patch.text_of("applyTo") == "HTTP_FILTER")
}

/// The name of the filter that a patch changes so that what it says counts alone: it says `all` that a filter needs, or replaces the filter.
pub fn replaced_filter<'a>(patch: &'a Node, all: bool, file: usize, notes: &mut Notes) -> Option<&'a str> {
    let name = changed_filter(patch).filter(|_| all || operation(patch) == "REPLACE")?;
    let why = "it changes the filter of this name, and is imported in its place: what only the other one says does not count";
    note_operation(patch, file, why, notes);
    Some(name)
}

fn note_operation(patch: &Node, file: usize, why: &str, notes: &mut Notes) {
    let operation = patch.at(&["patch", "operation"]).unwrap_or(patch);
    note(notes, file, operation, "operation", why, "Give what Envoy has (`/config_dump`)");
}
