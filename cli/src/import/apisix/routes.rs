// SPDX-License-Identifier: Apache-2.0
//! Which route a request has, as APISIX's router decides it: by priority, then exact paths, then longer ones.

use core::cmp::Reverse;

use super::super::notes::{Note, Notes};
use super::super::test::{PathTest, Test, network};
use super::{Route, number};
use crate::document::Node;

/// A path of a route: the requests that it is for, if no earlier one is.
pub struct Entry {
    /// The number of its route.
    pub route: usize,
    pub requests: Test,
    rank: (Reverse<u64>, Reverse<bool>, Reverse<usize>, Reverse<bool>),
}

/// The entries of all routes, in the order in which they are tried.
pub fn entries(routes: &[Route<'_>], notes: &mut Notes) -> Vec<Entry> {
    let mut all: Vec<Entry> =
        routes.iter().enumerate().flat_map(|(number, route)| of_route(number, route, notes)).collect();
    all.sort_by_key(|entry| entry.rank);
    all
}

fn of_route(route: usize, Route { file, node, service }: &Route<'_>, notes: &mut Notes) -> Vec<Entry> {
    let mut requests = Test::Always;
    let own = texts(node, "host", "hosts");
    let hosts = if own.is_empty() {
        service.map(|service| texts(service, "host", "hosts")).unwrap_or_default()
    } else {
        own
    };
    if !hosts.is_empty() && hosts.iter().all(|host| host != "*") {
        requests = requests.and(Test::Host(hosts.iter().map(|host| host.to_ascii_lowercase()).collect()));
    }
    let methods = texts(node, "method", "methods");
    if !methods.is_empty() {
        requests = requests.and(Test::Method(methods));
    }
    let addresses = texts(node, "remote_addr", "remote_addrs");
    if !addresses.is_empty() {
        requests = requests.and(Test::Address(addresses.iter().filter_map(|text| network(text)).collect()));
    }
    for name in ["vars", "filter_func"] {
        if let Some((place, _)) = node.field(name) {
            let why = "it is not read, so the route is imported for all requests of its path";
            notes.add(Note::at(*file, place.line, name, why, "Write it into the `match` of its policies"));
        }
    }
    let priority = node.get("priority").and_then(number).unwrap_or(0);
    let entry = |path: &str| {
        let (test, is_exact) = match path.split_once('*') {
            Some((prefix, _)) => (PathTest::Prefix(prefix.to_owned()), false),
            None => (PathTest::Exact(path.to_owned()), true),
        };
        let rank = (Reverse(priority), Reverse(is_exact), Reverse(path.len()), Reverse(!hosts.is_empty()));
        Entry { route, requests: requests.clone().and(Test::path(test)), rank }
    };
    let paths = texts(node, "uri", "uris");
    if let Some(path) = paths.iter().find(|path| path.contains("/:")) {
        let why = "a name in a path is not read, so the path is imported as it is written";
        notes.add(Note::at(*file, node.place_of("uri").line, path, why, "Write a `regex` into the `match`"));
    }
    paths.iter().map(|path| entry(path)).collect()
}

/// The texts of a field, or of the list of its plural.
fn texts(node: &Node, one: &str, many: &str) -> Vec<String> {
    let one = node.get(one).and_then(Node::text_or_number);
    one.into_iter().chain(node.list(many).iter().filter_map(Node::text_or_number)).collect()
}
