// SPDX-License-Identifier: Apache-2.0
//! The requests of each route, as APISIX's router decides: by the most particular host, then exact paths, then longer ones, and among
//! routes of one path by priority.

use core::cmp::Reverse;

use super::super::notes::{Note, Notes};
use super::super::ratelimit::pseudo_header;
use super::super::test::{PathTest, RankOfHost, Test, escaped, network, rank_of_host, without_port};
use super::super::{are_apart, note_port};
use super::{Plugin, Route};
use crate::document::Node;
use weir::request::client_ip::Network;

/// The fields of a route that are imported, or that do not say which requests have it.
const ROUTE: &str = "id name -class desc description labels uri uris host hosts remote_addr remote_addrs method methods vars exprs filter_func headers queryParams priority plugins \
    status service_id service_protocol plugin_config_id upstream upstream_id timeout enable_websocket create_time update_time";

/// The same of a service.
pub const SERVICE: &str = "id name desc description labels host hosts strip_path_prefix routes stream_routes plugins upstream upstreams upstream_id \
    enable_websocket create_time update_time";

/// A path of a route: the requests that it is for, if no earlier one is.
pub struct Entry {
    /// The number of its route.
    pub route: usize,
    pub requests: Test,
    /// True if it is for some of `requests` only, by a condition that is not read.
    pub is_partial: bool,
    rank: Rank,
}

/// The longest text before a `*` comes first; of two with one, the priority decides, and then the longer path.
type Rank = (RankOfHost, Reverse<(bool, usize, i64, usize)>);

/// The entries of all routes, in the order in which they are tried. `run` are the plugins of each route.
pub fn entries(routes: &[Route<'_>], run: &[Vec<Plugin<'_>>], notes: &mut Notes) -> Vec<Entry> {
    let of_route =
        |(number, (route, run)): (usize, (_, &Vec<_>))| of_route(number, route, !run.is_empty(), notes);
    let mut all: Vec<Entry> = routes.iter().zip(run).enumerate().flat_map(of_route).collect();
    all.sort_by_key(|entry| entry.rank);
    note_ties(routes, run, &all, notes);
    all
}

/// Notes routes of one rank that may have the same requests and have other limits.
fn note_ties(routes: &[Route<'_>], run: &[Vec<Plugin<'_>>], all: &[Entry], notes: &mut Notes) {
    let limits = |entry: &Entry| {
        let plugins = run.get(entry.route).into_iter().flatten();
        plugins.map(|plugin| core::ptr::from_ref(plugin.config)).collect::<Vec<_>>()
    };
    for same in all.chunk_by(|one, other| one.rank == other.rank) {
        for (place, entry) in same.iter().enumerate() {
            let Some(route) = routes.get(entry.route) else { continue };
            let is_tie = |other: &&Entry| {
                other.route != entry.route
                    && !(other.is_partial || entry.is_partial)
                    && other.requests.overlaps(&entry.requests)
                    && limits(other) != limits(entry)
                    && routes.get(other.route).is_some_and(|other| !are_apart(other.node, route.node))
            };
            if same.iter().take(place).any(|other| is_tie(&other)) {
                let why = "another route of its host, path and priority may have the same request, and APISIX runs the one that it loaded first; \
                    here it is the first one";
                let what =
                    ["uri", "uris"].into_iter().find(|name| route.node.get(name).is_some()).unwrap_or("uri");
                notes.field(route.file, route.node, what, why, "Let them differ by their `priority`");
            }
        }
    }
}

fn of_route(
    route: usize,
    Route { file, node, service }: &Route<'_>,
    has_limits: bool,
    notes: &mut Notes,
) -> Vec<Entry> {
    notes.unread(*file, node, ROUTE);
    let mut requests = Test::Always;
    let own = texts(node, "host", "hosts");
    let hosts = if own.is_empty() {
        service.map(|(_, service)| texts(service, "host", "hosts")).unwrap_or_default()
    } else {
        own
    };
    let methods = texts(node, "method", "methods");
    if !methods.is_empty() {
        requests = requests.and(Test::Method(methods));
    }
    let addresses = texts(node, "remote_addr", "remote_addrs");
    let networks: Option<Vec<Network>> = addresses.iter().map(|text| network(text)).collect();
    let unread = unread(node, networks.is_some());
    if let Some(networks) = networks.filter(|networks| !networks.is_empty()) {
        requests = requests.and(Test::Address(networks));
    }
    for name in &unread {
        notes.add(note_unread(*file, node, name, has_limits));
    }
    let is_partial = note_port(*file, node, &hosts, notes) || !unread.is_empty();
    let priority = node.get("priority").and_then(Node::text_or_number);
    let priority = priority.and_then(|text| text.parse().ok()).unwrap_or(0);
    let entry = |path: &str, hosts: &Test, rank_of_hosts| {
        let (test, length) = match path.split_once('*') {
            None => (PathTest::Exact(path.to_owned()), None),
            // A segment that begins with `*` is any text, also with slashes.
            Some((before, _)) if path.trim_end_matches('*').contains("/*") => {
                let any = |part: &str| if part.starts_with('*') { String::from(".*") } else { escaped(part) };
                let parts: Vec<String> = path.split('/').map(any).collect();
                (PathTest::regex(parts.join("/")), Some(before.len()))
            }
            Some((before, _)) => (PathTest::Prefix(before.to_owned()), Some(before.len())),
        };
        let rank = Reverse((length.is_none(), length.unwrap_or(0), priority, path.len()));
        let rank = (rank_of_hosts, rank);
        Entry { route, requests: hosts.clone().and(requests.clone()).and(Test::path(test)), is_partial, rank }
    };
    let paths = texts(node, "uri", "uris");
    if let Some(path) = paths.iter().find(|path| path.contains("/:")) {
        let why = "a name in a path is not read, so the path is imported as it is written";
        notes.at(*file, node.place_of("uri").line, path, why, "Write a `regex` into the `match`");
    }
    let hosts = by_rank(&hosts);
    paths.iter().flat_map(|path| hosts.iter().map(|(rank, test)| entry(path, test, *rank))).collect()
}

/// The hosts of a route: those that are looked for at once, and when. `*` comes before a route without hosts.
fn by_rank(hosts: &[String]) -> Vec<(RankOfHost, Test)> {
    if hosts.is_empty() {
        return vec![(RankOfHost::Rest, Test::Always)];
    }
    let mut hosts: Vec<String> = hosts.iter().map(|host| without_port(host).to_ascii_lowercase()).collect();
    hosts.sort_by_key(|host| rank_of_host(host));
    let same = hosts.chunk_by(|one, other| rank_of_host(one) == rank_of_host(other));
    let test = |host: &String| match host.strip_prefix('*') {
        Some("") => Test::Always,
        // The end of a name, which need not be a whole label.
        Some(end) if !end.starts_with('.') => {
            pseudo_header("host", "regex", &format!("(?i).*{}(?::[0-9]+)?", escaped(end)))
        }
        _ => Test::Host(vec![host.clone()]),
    };
    same.filter_map(|same| Some((rank_of_host(same.first()?), Test::any_of(same.iter().map(test))))).collect()
}

/// The conditions of a route that are not read.
fn unread(node: &Node, are_addresses_read: bool) -> Vec<&'static str> {
    let addresses = if node.get("remote_addr").is_some() { "remote_addr" } else { "remote_addrs" };
    let has = |name: &str| node.get(name).is_some_and(|vars| vars.children().next().is_some());
    let all = [
        (addresses, !are_addresses_read),
        ("vars", has("vars")),
        ("exprs", has("exprs")),
        ("headers", has("headers")),
        ("queryParams", has("queryParams")),
        ("filter_func", node.get("filter_func").is_some()),
    ];
    all.into_iter().filter(|(_, is_unread)| *is_unread).map(|(name, _)| name).collect()
}

fn note_unread(file: usize, node: &Node, name: &str, has_limits: bool) -> Note {
    let (why, instead) = if has_limits {
        (
            "it is not read, so the route's limits apply to all requests of its path, beside those of other routes",
            "Write it into the `match` of its policies, and under `not` into that of the others",
        )
    } else {
        (
            "it is not read, so the limits of other routes apply to the route's requests, too",
            "Write it under `not` into the `match` of their policies",
        )
    };
    Note::at(file, node.place_of(name).line, name, why, instead)
}

/// The texts of a field, or of the list of its plural.
fn texts(node: &Node, one: &str, many: &str) -> Vec<String> {
    let one = node.get(one).and_then(Node::text_or_number);
    one.into_iter().chain(node.list(many).iter().filter_map(Node::text_or_number)).collect()
}
