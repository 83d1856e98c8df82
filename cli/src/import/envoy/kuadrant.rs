// SPDX-License-Identifier: Apache-2.0
//! Kuadrant's RateLimitPolicy and TokenRateLimitPolicy, as far as their expressions (CEL) are comparisons that weir knows.

use regex_lite::Regex;

use super::super::test::{PathTest, Test};
use super::Writer;
use crate::document::Node;
use crate::tree::{Map, Tree};

/// The policies of a RateLimitPolicy or a TokenRateLimitPolicy.
pub fn import(file: usize, object: &Node, writer: &mut Writer<'_>) {
    let Some(spec) = object.get("spec") else { return };
    let name = object.get("metadata").map(|metadata| metadata.text_of("name")).unwrap_or_default();
    let why = "weir does not know Envoy's names of the routes, so the policies are for all requests";
    writer.note(file, spec, "targetRef", why, "Write the hosts and paths of the target into `match`");
    let is_tokens = object.text_of("kind") == "TokenRateLimitPolicy";
    for level in [Some(spec), spec.get("defaults"), spec.get("overrides")].into_iter().flatten() {
        writer.notes.unread(file, level, "targetRef limits defaults overrides when strategy=atomic");
        let limits = level.get("limits").map(Node::fields).unwrap_or_default();
        for (limit, _, node) in limits {
            policy(file, (&format!("{name}-{limit}"), level, node), is_tokens, writer);
        }
    }
}

fn policy(file: usize, (name, level, node): (&str, &Node, &Node), is_tokens: bool, writer: &mut Writer<'_>) {
    writer.notes.unread(file, node, "when counters rates reservation");
    let mut requests = Test::Always;
    for when in level.list("when").iter().chain(node.list("when")) {
        writer.notes.unread(file, when, "predicate");
        let predicate = when.text_of("predicate");
        match predicate.split("&&").map(test).collect::<Option<Vec<_>>>() {
            Some(tests) => requests = tests.into_iter().fold(requests, Test::and),
            None => {
                let why =
                    format!("weir does not know the expression {predicate:?}, so the limit is not imported");
                return writer.note(file, when, "predicate", &why, "Write the policy by hand");
            }
        }
    }
    let mut parts = Vec::new();
    for counter in node.list("counters") {
        writer.notes.unread(file, counter, "expression");
        let expression = counter.text_of("expression");
        let Some(part) = part(expression) else {
            let why =
                format!("weir does not know the expression {expression:?}, so the limit is not imported");
            return writer.note(
                file,
                counter,
                "expression",
                &why,
                "Name in a `subject` what tells clients apart",
            );
        };
        if part.names().any(|field| field == "credential") {
            let why = "Kuadrant counts what its AuthPolicy names; weir counts each credential";
            writer.note(file, counter, "expression", why, "Behind Envoy's jwt_authn, write `jwt_claim`");
        }
        parts.push(Tree::from(part));
    }
    if parts.is_empty() {
        parts.push(Map::from([("literal", name.into())]).into());
    }
    let mut limits = Vec::new();
    for rate in node.list("rates") {
        writer.notes.unread(file, rate, "limit window");
        let (units, window) =
            (rate.get("limit").and_then(super::super::ratelimit::number), rate.text_of("window"));
        // The window has the form that weir's durations have: 10s, 5m, 1h.
        let Some(units) = units.filter(|_| !window.is_empty()) else {
            writer.note(
                file,
                rate,
                "limit",
                "it needs `limit` and `window`, so it is not imported",
                "Correct it",
            );
            continue;
        };
        let limit = Map::from([
            ("name", format!("per-{window}").into()),
            ("algorithm", "fixed_window".into()),
            ("limit", units.into()),
            ("window", window.into()),
            ("align", "first".into()),
        ]);
        limits.push(Tree::from(limit));
    }
    if limits.is_empty() {
        return writer.note(file, node, "rates", "it has no limit that can be imported", "Correct it");
    }
    let mut made = writer.policy(file, node, name, &requests);
    made.set("subject", parts);
    made.set("limits", limits);
    if is_tokens {
        tokens(file, node, &mut made, writer);
    }
    writer.made.push(made);
}

/// Lets the tokens of a response count. A request reserves what `reservation` says, and one token at least: a response without usage costs
/// what was reserved, and Kuadrant counts it as one request.
fn tokens(file: usize, node: &Node, made: &mut Map, writer: &mut Writer<'_>) {
    let amount = node.at(&["reservation", "amount"]);
    let units = amount.and_then(super::super::ratelimit::number);
    if let Some(reservation) = node.get("reservation") {
        writer.notes.unread(file, reservation, "amount");
        if amount.is_some() && units.is_none() {
            let why = "weir does not know this expression, so a request reserves one token";
            writer.note(file, reservation, "amount", why, "Write the number");
        }
    }
    let units = units.unwrap_or(0).max(1);
    made.set("cost", Map::from([("constant", units.into())]));
    let usage = Map::from([("usage", Map::new().into())]);
    made.set("settle", vec![Tree::from(Map::from([("cost", usage.into())]))]);
    if units == 1 {
        let why = "requests at one time pass the limit together, because their tokens count when they end";
        writer.note(file, node, "rates", why, "`cost: {usage: {}}` reserves what each may use");
    }
}

/// A comparison, such as `request.method == 'GET'` or `!request.path.startsWith('/internal')`.
fn test(expression: &str) -> Option<Test> {
    if let Some(inner) = expression.trim().strip_prefix('!') {
        return test(inner).map(Test::negated);
    }
    let body = r#"^\s*requestBodyJSON\(\s*['"]/([A-Za-z_]\w*)['"]\s*\)\s*(==|!=)\s*['"]([^'"]*)['"]\s*$"#;
    if let Some(found) = Regex::new(body).ok()?.captures(expression) {
        let [path, sign, text] = [1, 2, 3].map(|group| found.get(group).map_or("", |of| of.as_str()));
        let test = Test::Value("body_json", Map::from([("path", path.into()), ("exact", text.into())]));
        return Some(if sign == "!=" { test.negated() } else { test });
    }
    let shape = r#"^\s*([a-z_.]+)(?:\[['"]([^'"]+)['"]\])?\s*(?:(==|!=)\s*|\.(startsWith)\(\s*)['"]([^'"]*)['"]\s*\)?\s*$"#;
    let found = Regex::new(shape).ok()?.captures(expression)?;
    let get = |group| found.get(group).map(|of| of.as_str());
    let (field, text) = (get(1)?, get(5)?.to_owned());
    let is_prefix = get(4).is_some();
    let test = match (field, get(2)) {
        ("request.method", None) if !is_prefix => Test::Method(vec![text]),
        ("request.host", None) if !is_prefix => Test::Host(vec![text.to_ascii_lowercase()]),
        ("request.path" | "request.url_path", None) if text.starts_with('/') => Test::path(match is_prefix {
            true => PathTest::Prefix(text),
            false => PathTest::Exact(text),
        }),
        ("request.headers", Some(name)) => {
            let value = if is_prefix { "prefix" } else { "exact" };
            Test::Value(
                "header",
                Map::from([("name", name.to_ascii_lowercase().into()), (value, text.into())]),
            )
        }
        _ => return None,
    };
    Some(if get(3) == Some("!=") { test.negated() } else { test })
}

/// Returns the part of the subject for an expression that a counter is keyed by.
fn part(expression: &str) -> Option<Map> {
    let plain = |field: &str| Map::from([(field, Map::new().into())]);
    let header = r#"^\s*request\.headers\[['"]([^'"]+)['"]\]\s*$"#;
    if let Some(found) = Regex::new(header).ok()?.captures(expression) {
        let name = found.get(1)?.as_str().to_ascii_lowercase();
        return Some(Map::from([("header", Map::from([("name", name.into())]).into())]));
    }
    Some(match expression.trim() {
        "request.host" => plain("host"),
        "request.method" => plain("method"),
        "request.path" | "request.url_path" => plain("path"),
        "source.address" | "source.remote_address" => {
            Map::from([("client_address", Map::from([("ipv6_prefix", 128_u64.into())]).into())])
        }
        other if other.starts_with("auth.identity") => plain("credential"),
        _ => return None,
    })
}
