// SPDX-License-Identifier: Apache-2.0
//! The requests of each route, as Kong's traditional router decides.

use core::cmp::Reverse;

use super::super::nginx::host_test;
use super::super::notes::Notes;
use super::super::test::{PathTest, Test, whole, without_port};
use super::super::{are_apart, note_port};
use crate::document::Node;
use crate::tree::{Map, Tree};

/// The fields of a route that are imported, or that do not say which requests have it.
const ROUTE: &str = "id name -class tags created_at updated_at hosts methods headers paths snis expression priority regex_priority service plugins \
    protocols strip_path preserve_host path_handling https_redirect_status_code request_buffering response_buffering";

/// One path of a route, or a route without paths. It gets the requests that match it and no earlier entry.
pub struct Entry {
    /// The number of its route.
    pub route: usize,
    pub requests: Test,
    /// True if it is for some of `requests` only, by a condition that is not read.
    pub is_partial: bool,
    rank: Rank,
}

/// Routes are tried in this order: expressions of the router by their priority, then with more kinds of tests first, then with hosts that
/// have no `*`, then with more headers, then regular expressions by their priority, then longer paths.
pub type Rank = Reverse<(Option<i64>, usize, bool, usize, Option<i64>, usize)>;

/// Says something of the files, or of the routes, by their numbers.
type Says<'a> = &'a dyn Fn(usize) -> bool;

/// The entries of all routes, in the order in which they are tried. `is_old` says which files have the paths of Kong before 3.0, and `is_off`
/// which routes Kong does not know.
pub fn entries(
    routes: &[(usize, &Node)],
    (is_old, is_off): (Says<'_>, Says<'_>),
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    for (number, (file, node)) in routes.iter().enumerate().filter(|(number, _)| !is_off(*number)) {
        all.extend(of_route(number, *file, node, is_old(*file), notes));
    }
    all.sort_by_key(|entry| entry.rank);
    note_ties(routes, &all, notes);
    all
}

/// The first entries of a rank that are compared with each later one.
const MAX_COMPARED: usize = 64;

/// Notes routes that have one rank and may have the same requests, and those that Kong's router tries before others of a higher rank.
/// Values of one header are taken for different ones.
fn note_ties(routes: &[(usize, &Node)], all: &[Entry], notes: &mut Notes) {
    let known: Vec<&Entry> = all.iter().filter(|entry| !entry.is_partial).collect();
    for (place, entry) in known.iter().enumerate() {
        let (Reverse((.., headers, priority, _)), shipped) = (entry.rank, entry.shipped());
        let is_apart = |other: &Entry| {
            let nodes = (routes.get(other.route), routes.get(entry.route));
            matches!(nodes, (Some((_, one)), Some((_, other))) if are_apart(one, other))
        };
        let before = || known.iter().take(place).rev().filter(move |other| other.route != entry.route);
        let mut same = before().take_while(|other| other.rank == entry.rank).take(MAX_COMPARED);
        let is_known = headers == 0 || priority.is_some();
        let is_tie = |other: &Entry| {
            (other.requests == entry.requests || is_known && other.requests.overlaps(&entry.requests))
                && !is_apart(other)
        };
        let said = if same.any(|other| is_tie(other)) {
            if entry.has_expression() {
                let why = "Kong does not say which of two routes has a request that both match; weir counts it for both";
                Some((why, "Let them differ by their `priority`"))
            } else {
                let why = "Kong does not say which of two routes has a request that both match; here it is the first one";
                Some((why, "Let them differ, expressions by their `regex_priority`"))
            }
        } else if before().any(|other| {
            let is_tried_later = other.rank.0.0 == entry.rank.0.0 && other.shipped() < shipped;
            is_tried_later && other.requests.overlaps(&entry.requests) && !is_apart(other)
        }) {
            let why = "Kong's router `traditional_compatible` tries it before a route with more conditions, although Kong documents the opposite; \
                weir does as documented";
            Some((why, "Send a request that both match to Kong, and let the routes differ"))
        } else {
            None
        };
        if let (Some((why, instead)), Some((file, node))) = (said, routes.get(entry.route)) {
            let mut why = why.to_owned();
            if node.text_of("id").starts_with("HTTPRoute ") {
                why.push_str(
                    "; with `router_flavor: expressions` the longer path of two HTTPRoutes comes first",
                );
            }
            let field = if entry.has_expression() { "expression" } else { "paths" };
            notes.field(*file, node, field, why, instead);
        }
    }
}

impl Entry {
    /// Its place in the order. Kong breaks a tie of expressions by their ids, so it may be later than others of its rank.
    pub fn order(&self, is_later: bool) -> (Rank, bool) {
        (self.rank, is_later && self.has_expression())
    }

    /// True if its route has an expression of Kong's router.
    fn has_expression(&self) -> bool {
        self.rank.0.0.is_some()
    }

    /// The priority that Kong's `traditional_compatible` computes in fact (Kong's issue 14457): most parts of it are numbers of 32 bits, so they
    /// are shifted by too few bits, and large ones are negative.
    fn shipped(&self) -> (bool, bool, u64) {
        let Reverse((_, kinds, has_plain_hosts, headers, priority, length)) = self.rank;
        let part = |number: usize, bits: u32| u64::try_from(number).unwrap_or(0).wrapping_shl(bits);
        let priority_part = priority.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
        let low = part(kinds, 29) | part(headers, 20) | part(priority_part, 19) | part(length, 0);
        let low = low & u64::from(u32::MAX);
        let is_negative = low > u64::from(i32::MAX.unsigned_abs());
        (is_negative || has_plain_hosts, is_negative || priority.is_some(), low)
    }
}

fn of_route(route: usize, file: usize, node: &Node, is_old: bool, notes: &mut Notes) -> Vec<Entry> {
    let protocols = texts(node, "protocols");
    if !protocols.is_empty()
        && protocols.iter().all(|name| ["tcp", "tls", "tls_passthrough", "udp"].contains(&name.as_str()))
    {
        // It has no requests.
        return Vec::new();
    }
    notes.unread(file, node, ROUTE);
    let mut requests = Test::Always;
    let mut kinds = 0_usize;
    let mut add = |requests: &mut Test, test: Test| {
        kinds = kinds.saturating_add(1);
        *requests = core::mem::replace(requests, Test::Always).and(test);
    };
    let mut is_partial = false;
    let hosts = texts(node, "hosts");
    if !hosts.is_empty() && hosts.iter().all(|host| host != "*") {
        add(&mut requests, Test::any_of(hosts.iter().map(|host| host_test(without_port(host), true))));
        is_partial |= note_port(file, node, &hosts, notes);
    }
    let has_plain_hosts = !hosts.is_empty() && hosts.iter().all(|host| !host.contains('*'));
    let methods = texts(node, "methods");
    if !methods.is_empty() {
        add(&mut requests, Test::Method(methods.iter().map(|method| method.to_ascii_uppercase()).collect()));
    }
    let headers = node.get("headers").map(Node::fields).unwrap_or_default();
    if !headers.is_empty() {
        let tests = headers.iter().map(|(name, place, values)| {
            header(name, values).unwrap_or_else(|said| {
                is_partial = true;
                let why = format!(
                    "weir cannot read its expression ({said}), so the route's limits apply to all values, beside those of other routes"
                );
                notes.at(file, place.line, name, why, "Test the header in the `match`");
                Test::Always
            })
        });
        let test = tests.fold(Test::Always, Test::and);
        add(&mut requests, test);
    }
    for name in ["snis", "sources", "destinations"] {
        if !node.list(name).is_empty() {
            is_partial = true;
            add(&mut requests, Test::Always);
        }
    }
    if !node.list("snis").is_empty() {
        let why = "weir sees the name of the TLS handshake as an attribute only, so the route's limits apply to all names, beside those of \
            other routes";
        let instead = "Test `attribute: {path: [connection, requested_server_name]}`";
        notes.field(file, node, "snis", why, instead);
    }
    let has_expression = !node.text_of("expression").is_empty();
    let (test, is_read) = expression(node.text_of("expression"));
    requests = requests.and(test);
    if has_expression && !is_read {
        is_partial = true;
        let why = "not all conditions of the expression are read, so the route's limits apply to all requests that meet the others, beside those \
            of other routes";
        notes.field(file, node, "expression", why, "Write it into the `match` of its policies");
    }
    let (paths, line) = (texts(node, "paths"), node.place_of("paths").line);
    let kinds = kinds.saturating_add((!paths.is_empty()).into());
    let priority_of = |field: &str| node.get(field).and_then(Node::text_or_number)?.parse().ok();
    let entry = |requests: Test, is_regex: bool, length: usize| {
        let priority = has_expression.then(|| priority_of("priority").unwrap_or(0));
        let of_regex = is_regex.then(|| priority_of("regex_priority").unwrap_or(0));
        let rank = Reverse((priority, kinds, has_plain_hosts, headers.len(), of_regex, length));
        Entry { route, requests, is_partial, rank }
    };
    if paths.is_empty() {
        return vec![entry(requests, false, 0)];
    }
    let mut found = Vec::new();
    for path in paths {
        let regex =
            path.strip_prefix('~').or_else(|| Some(path.as_str()).filter(|path| is_old && !is_plain(path)));
        let (test, length) = match regex {
            None => (Ok(PathTest::Prefix(path.clone())), path.len()),
            // Their lengths do not count.
            Some(pattern) => (whole(&format!("^{pattern}"), false).map(PathTest::regex), 0),
        };
        if regex.is_none() && path.contains('%') {
            let why = "weir decodes a path before it compares it, so no request has this one";
            notes.at(file, line, &path, why, "Write the decoded path into the `match`");
        }
        match test {
            Ok(test) => found.push(entry(requests.clone().and(Test::path(test)), regex.is_some(), length)),
            Err(said) => {
                let why = format!("weir cannot read the expression: {said}");
                notes.at(file, line, &path, why, "Write the policy by hand");
            }
        }
    }
    found
}

/// The comparisons of a path, a host or a method that an expression of Kong's router joins by one kind of operator, for then brackets change
/// nothing; and whether it has no others.
fn expression(text: &str) -> (Test, bool) {
    if text.contains("||") {
        let all: Option<Vec<Test>> = text.split("||").map(comparison).collect();
        return all.map_or((Test::Always, false), |all| (Test::any_of(all), true));
    }
    let all: Vec<Option<Test>> = text.split("&&").map(comparison).collect();
    let is_read = all.iter().all(Option::is_some);
    // A `!` may stand before several conditions in brackets.
    let is_negated = text.replace("!=", "").contains('!');
    let known = all.into_iter().flatten().filter(|_| is_read || !is_negated);
    (known.fold(Test::Always, Test::and), is_read)
}

fn comparison(text: &str) -> Option<Test> {
    let text = text.trim_matches(|next: char| next.is_whitespace() || ['(', ')'].contains(&next));
    let (field, rest) = text.split_once(char::is_whitespace)?;
    let (operator, value) = rest.trim_start().split_once(char::is_whitespace)?;
    let value = value.trim_start();
    let raw = value.strip_prefix("r#\"").and_then(|value| value.strip_suffix("\"#"));
    // The escapes of other strings are those of JSON.
    let value = raw.map(str::to_owned).or_else(|| serde_json::from_str::<String>(value).ok())?;
    match (field, operator) {
        _ if value.is_empty() || value.contains(['"', '%']) => None,
        ("http.path", "==") => Some(Test::path(PathTest::Exact(value))),
        ("http.path", "^=") => Some(Test::path(PathTest::Prefix(value))),
        ("http.path", "~") => Some(Test::path(PathTest::regex(whole(&value, false).ok()?))),
        ("http.host", "==") => Some(host_test(&value, false)),
        ("http.host", "=^") if value.starts_with('.') => Some(host_test(&format!("*{value}"), true)),
        ("http.method", "==") if !value.contains(|letter: char| letter.is_ascii_lowercase()) => {
            Some(Test::Method(vec![value]))
        }
        _ => None,
    }
}

/// True if Kong before 3.0 reads a path as plain text, and not as an expression.
fn is_plain(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_~/%".contains(&byte))
}

/// A header with one of these values, in whatever case. Those that begin with `~*` are expressions.
///
/// # Errors
/// weir cannot read an expression.
fn header(name: &str, values: &Node) -> Result<Test, String> {
    let test = |field: &str, value: Tree| {
        let mut test = Map::from([("name", name_of_header(name).into())]);
        test.set(field, value);
        test
    };
    let (mut texts, mut tests) = (Vec::new(), Vec::new());
    for value in values.items().iter().filter_map(Node::text_or_number) {
        match value.strip_prefix("~*") {
            Some(expression) => {
                tests.push(Test::Value("header", test("regex", whole(expression, true)?.into())));
            }
            None => texts.push(Tree::from(value.to_lowercase())),
        }
    }
    if !texts.is_empty() || tests.is_empty() {
        let mut test = match <[Tree; 1]>::try_from(texts) {
            Ok([only]) => test("exact", only),
            Err(texts) => test("in", texts.into()),
        };
        test.set("normalize", vec![Tree::from("lowercase")]);
        tests.push(Test::Value("header", test));
    }
    Ok(Test::any_of(tests))
}

/// The name of a header as nginx and so Kong know it: `_` and `-` are the same.
pub fn name_of_header(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

fn texts(node: &Node, name: &str) -> Vec<String> {
    node.list(name).iter().filter_map(Node::text_or_number).collect()
}
