// SPDX-License-Identifier: Apache-2.0
//! The requests of each route, as Kong's traditional router decides.

use core::cmp::Reverse;

use super::super::notes::{Note, Notes};
use super::super::test::{PathTest, Test, whole};
use crate::document::Node;
use crate::tree::{Map, Tree};

/// The fields of a route that are imported, or that do not say which requests have it.
const ROUTE: &str = "id name tags created_at updated_at hosts methods headers paths snis expression priority regex_priority service plugins \
    protocols strip_path preserve_host path_handling https_redirect_status_code request_buffering response_buffering";

/// One path of a route, or a route without paths. It gets the requests that match it and no earlier entry.
pub struct Entry {
    /// The number of its route.
    pub route: usize,
    pub requests: Test,
    rank: Rank,
}

/// Routes are tried in this order: with more kinds of tests first, then with hosts that have no `*`, then with more headers, then expressions,
/// then longer paths.
type Rank = (Reverse<usize>, Reverse<bool>, Reverse<usize>, Reverse<bool>, Reverse<u64>, Reverse<usize>);

/// The entries of all routes, in the order in which they are tried.
pub fn entries(routes: &[(usize, &Node)], notes: &mut Notes) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    for (number, (file, node)) in routes.iter().enumerate() {
        all.extend(of_route(number, *file, node, notes));
    }
    all.sort_by_key(|entry| entry.rank);
    all
}

fn of_route(route: usize, file: usize, node: &Node, notes: &mut Notes) -> Vec<Entry> {
    notes.unread(file, node, ROUTE);
    let mut requests = Test::Always;
    let mut kinds = 0_usize;
    let mut add = |requests: &mut Test, test: Test| {
        kinds = kinds.saturating_add(1);
        *requests = core::mem::replace(requests, Test::Always).and(test);
    };
    let hosts = texts(node, "hosts");
    if !hosts.is_empty() && hosts.iter().all(|host| host != "*") {
        add(&mut requests, Test::Host(of_hosts(node, file, &hosts, notes)));
    }
    let has_plain_hosts = !hosts.is_empty() && hosts.iter().all(|host| !host.contains('*'));
    let methods = texts(node, "methods");
    if !methods.is_empty() {
        add(&mut requests, Test::Method(methods.iter().map(|method| method.to_ascii_uppercase()).collect()));
    }
    let headers = node.get("headers").map(Node::fields).unwrap_or_default();
    if !headers.is_empty() {
        let tests = headers.iter().map(|(name, place, values)| {
            header(name, values).unwrap_or_else(|| {
                let why = "it is an expression, so the route is imported for all values of the header";
                notes.add(Note::at(
                    file,
                    place.line,
                    name,
                    why,
                    "Write the expression as `regex` into the `match`",
                ));
                Test::Always
            })
        });
        let test = tests.fold(Test::Always, Test::and);
        add(&mut requests, test);
    }
    if let Some((place, _)) = node.field("snis") {
        let why = "weir sees the name of the TLS handshake as an attribute only, so the route is imported for all names";
        notes.add(Note::at(
            file,
            place.line,
            "snis",
            why,
            "Test `attribute: {path: [connection, requested_server_name]}`",
        ));
    }
    if let Some((place, _)) = node.field("expression") {
        let why = "an expression of Kong's router is not read, so the route is imported for all requests";
        notes.add(Note::at(file, place.line, "expression", why, "Write it into the `match` of its policies"));
    }
    let paths = texts(node, "paths");
    let kinds = kinds.saturating_add((!paths.is_empty()).into());
    let entry = |requests: Test, is_expression: bool, length: usize| {
        let priority = node.get("regex_priority").and_then(super::number).filter(|_| is_expression);
        let expression = Reverse(is_expression);
        let rank = (
            Reverse(kinds),
            Reverse(has_plain_hosts),
            Reverse(headers.len()),
            expression,
            Reverse(priority.unwrap_or(0)),
            Reverse(length),
        );
        Entry { route, requests, rank }
    };
    if paths.is_empty() {
        return vec![entry(requests, false, 0)];
    }
    let mut found = Vec::new();
    for path in paths {
        let (test, is_expression) = match path.strip_prefix('~') {
            None => (Ok(PathTest::Prefix(path.clone())), false),
            Some(pattern) => (whole(&format!("^{pattern}"), false).map(PathTest::regex), true),
        };
        match test {
            Ok(test) => found.push(entry(requests.clone().and(Test::path(test)), is_expression, path.len())),
            Err(said) => {
                let line = node.place_of("paths").line;
                notes.add(Note::at(
                    file,
                    line,
                    &path,
                    format!("weir cannot read the expression: {said}"),
                    "Write the policy by hand",
                ));
            }
        }
    }
    found
}

/// Names, and names that begin with `*.`. Those that end with `.*` are not told apart.
fn of_hosts(node: &Node, file: usize, hosts: &[String], notes: &mut Notes) -> Vec<String> {
    let (ends, known): (Vec<&String>, _) = hosts.iter().partition(|host| host.ends_with('*'));
    if let Some(host) = ends.first() {
        let why = "weir knows a `*` only at the beginning of a name, so this name is not imported";
        notes.add(Note::at(file, node.place_of("hosts").line, host, why, "Write the names that there are"));
    }
    known.into_iter().map(|host| host.to_ascii_lowercase()).collect()
}

/// A header with one of these values; `None` if it is tested by an expression.
fn header(name: &str, values: &Node) -> Option<Test> {
    let values: Vec<String> = values.items().iter().filter_map(Node::text_or_number).collect();
    if values.iter().any(|value| value.starts_with("~*")) {
        return None;
    }
    let mut test = Map::from([("name", name.to_ascii_lowercase().into())]);
    match <[String; 1]>::try_from(values) {
        Ok([only]) => test.set("exact", only),
        Err(values) => test.set("in", values.into_iter().map(Tree::from).collect::<Vec<_>>()),
    };
    Some(Test::Value("header", test))
}

fn texts(node: &Node, name: &str) -> Vec<String> {
    node.list(name).iter().filter_map(Node::text_or_number).collect()
}
