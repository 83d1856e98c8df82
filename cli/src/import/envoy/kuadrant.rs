// SPDX-License-Identifier: Apache-2.0
//! Kuadrant's RateLimitPolicy and TokenRateLimitPolicy, as far as their expressions (CEL) are comparisons that weir knows.

use regex_lite::Regex;

use super::super::ratelimit::{header_is, number, pseudo_header};
use super::super::test::{PathTest, Test};
use super::super::{address, literal};
use super::Writer;
use crate::document::Node;
use crate::tree::{Map, Tree};

/// The policies of a RateLimitPolicy or a TokenRateLimitPolicy.
pub fn import(object: &Node, writer: &mut Writer<'_>) {
    let Some(spec) = object.get("spec") else { return };
    let name = object.get("metadata").map(|metadata| metadata.text_of("name")).unwrap_or_default();
    let why = "weir does not know Envoy's names of the routes, so the policies are for all requests, and count those of all routes together";
    writer.note(spec, "targetRef", why, "Write the hosts and paths of the target into `match`");
    let is_tokens = object.text_of("kind") == "TokenRateLimitPolicy";
    // The `limits` of a Gateway are defaults.
    let is_gateway = spec.get("targetRef").is_some_and(|target| target.text_of("kind") == "Gateway");
    let why = "a policy of a route replaces them in Kuadrant, and weir applies both";
    for (field, why) in [
        ("limits", why),
        ("defaults", why),
        ("overrides", "they replace the policies of routes in Kuadrant, and weir applies both"),
    ] {
        if spec.get(field).is_some() && (field != "limits" || is_gateway) {
            writer.note(spec, field, why, "Remove what does not apply");
        }
    }
    for level in [Some(spec), spec.get("defaults"), spec.get("overrides")].into_iter().flatten() {
        writer.unread(level, "targetRef limits defaults overrides when strategy=atomic");
        let limits = level.get("limits").map(Node::fields).unwrap_or_default();
        for (limit, _, node) in limits {
            policy(&format!("{name}-{limit}"), level, node, is_tokens, writer);
        }
    }
}

fn policy(name: &str, level: &Node, node: &Node, is_tokens: bool, writer: &mut Writer<'_>) {
    writer.unread(node, "when counters rates reservation");
    let mut requests = Test::Always;
    for when in level.list("when").iter().chain(node.list("when")) {
        writer.unread(when, "predicate selector operator value");
        let predicate = predicate(when);
        let predicate = predicate.as_str();
        match condition(predicate) {
            Some(test) => {
                requests = requests.and(test);
                differences(when, "predicate", predicate, writer);
            }
            None => {
                let why =
                    format!("weir does not know the expression {predicate:?}, so the limit is not imported");
                return writer.note(when, "predicate", &why, "Write the policy by hand");
            }
        }
    }
    let mut parts = Vec::new();
    for counter in node.list("counters") {
        writer.unread(counter, "expression");
        let expression = counter.text().map_or(counter.text_of("expression").to_owned(), selected);
        let expression = expression.as_str();
        let Some(part) = part(expression) else {
            let why =
                format!("weir does not know the expression {expression:?}, so the limit is not imported");
            let instead = "Name in a `subject` what tells clients apart";
            return writer.note(counter, "expression", &why, instead);
        };
        differences(counter, "expression", expression, writer);
        if part.names().any(|field| field == "credential") {
            let why = "Kuadrant counts what its AuthPolicy names; weir counts each credential";
            writer.note(counter, "expression", why, "Behind Envoy's jwt_authn, write `jwt_claim`");
        }
        parts.push(Tree::from(part));
    }
    if parts.is_empty() {
        parts.push(literal(name).into());
    }
    let (mut limits, mut denies) = (Vec::new(), false);
    for rate in node.list("rates") {
        writer.unread(rate, "limit window duration unit");
        let window = match rate.get("duration").and_then(number) {
            Some(days) if rate.text_of("unit") == "day" => format!("{}h", days.saturating_mul(24)),
            Some(count) => format!("{count}{}", rate.text_of("unit").get(..1).unwrap_or_default()),
            None => rate.text_of("window").to_owned(),
        };
        // Limitador counts in whole seconds.
        let window = window.as_str();
        let seconds = duration(window).filter(|seconds| *seconds > 0);
        let (Some(units), Some(seconds)) = (rate.get("limit").and_then(max), seconds) else {
            let why = "it needs `limit`, and a `window` of at least one second, so it is not imported";
            writer.note(rate, "limit", why, "Correct it");
            continue;
        };
        let is_short = window.bytes().filter(u8::is_ascii_alphabetic).count() == 1;
        let window = if is_short { window.to_owned() } else { format!("{seconds}s") };
        denies |= units == 0;
        let limit = Map::from([
            ("name", format!("per-{window}").into()),
            ("algorithm", "fixed_window".into()),
            ("limit", units.max(1).into()),
            ("window", window.into()),
            ("align", "first".into()),
        ]);
        limits.push(Tree::from(limit));
    }
    if limits.is_empty() {
        return writer.note(node, "rates", "it has no limit that can be imported", "Correct it");
    }
    let mut made = writer.policy(node, name, &requests);
    made.set("subject", parts);
    made.set("limits", limits);
    // By default, Limitador sends no headers.
    let mut response = Map::from([("headers", "none".into())]);
    if denies {
        made.set("deny", vec![Tree::from(Map::new())]);
        response.set("deny_status", 429_u64);
    }
    made.set("response", response);
    if is_tokens {
        tokens(node, &mut made, writer);
    }
    writer.made.push(made);
}

/// An expression for a selector of the versions before 1, such as `request.headers.x-user`.
fn selected(selector: &str) -> String {
    let header = selector.strip_prefix("request.headers.");
    header.map_or(selector.to_owned(), |name| format!("request.headers['{name}']"))
}

/// The expression of a condition, also of one that has three fields, as before version 1.
fn predicate(when: &Node) -> String {
    let (selector, value) = (selected(when.text_of("selector")), when.text_of("value"));
    match when.text_of("operator") {
        "eq" => format!("{selector} == '{value}'"),
        "neq" => format!("{selector} != '{value}'"),
        "startswith" => format!("{selector}.startsWith('{value}')"),
        "" => when.text_of("predicate").to_owned(),
        other => format!("{selector} {other} '{value}'"),
    }
}

/// Lets the tokens of a response count. A request reserves what `reservation` says, and one token at least: a response without usage costs
/// what was reserved, and Kuadrant counts it as one request.
fn tokens(node: &Node, made: &mut Map, writer: &mut Writer<'_>) {
    let amount = node.at(&["reservation", "amount"]);
    let units = amount.and_then(number);
    if let Some(reservation) = node.get("reservation") {
        writer.unread(reservation, "amount");
        if amount.is_some() && units.is_none() {
            let why = "weir does not know this expression, so a request reserves one token";
            writer.note(reservation, "amount", why, "Write the number");
        }
    }
    let units = units.unwrap_or(0).max(1);
    made.set("cost", Map::from([("constant", units.into())]));
    let usage = Map::from([("usage", Map::new().into())]);
    made.set("settle", vec![Tree::from(Map::from([("cost", usage.into())]))]);
    if units == 1 {
        let why = "requests at one time pass the limit together, because their tokens count when they end";
        writer.note(node, "rates", why, "`cost: {usage: {}}` reserves what each may use");
    }
}

/// The limit of a rate. A negative one is 0.
fn max(limit: &Node) -> Option<u64> {
    number(limit).or_else(|| limit.text_or_number()?.starts_with('-').then_some(0))
}

/// A duration such as `1h30m`, in whole seconds.
fn duration(text: &str) -> Option<u64> {
    let whole = Regex::new("^(?:[0-9]{1,5}(?:h|ms|m|s))+$").ok()?;
    let part = Regex::new("([0-9]+)(h|ms|m|s)").ok().filter(|_| whole.is_match(text))?;
    let millis = part.captures_iter(text).map(|found| {
        let [number, unit] = [1, 2].map(|group| found.get(group).map_or("", |of| of.as_str()));
        let unit = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)]
            .into_iter()
            .find(|(name, _)| *name == unit);
        number.parse::<u64>().ok()?.checked_mul(unit?.1)
    });
    Some(millis.sum::<Option<u64>>()? / 1_000)
}

/// Notes where an expression of Kuadrant differs from what weir makes of it.
fn differences(of: &Node, field: &str, expression: &str, writer: &mut Writer<'_>) {
    if expression.contains("request.path") && !expression.contains("request.path.startsWith") {
        let why = "Kuadrant's `request.path` has the query, and weir's path does not";
        writer.note(of, field, why, "If that matters, use the attribute `request.path`");
    }
    if expression.contains("request.headers") {
        let why = "without this header the expression fails, and Kuadrant's failure mode decides";
        let instead = "Write what weir does without it: `on_missing`, or a `header` in `match`";
        writer.note(of, field, why, instead);
    }
    if expression.contains("source.address") {
        let why = "Kuadrant's `source.address` has the port, so that each connection counts by itself, and weir counts each address";
        writer.note(of, field, why, "");
    }
}

/// Comparisons, joined by `||` and `&&`.
fn condition(expression: &str) -> Option<Test> {
    let all = |all: &str| all.split("&&").try_fold(Test::Always, |all, one| Some(all.and(test(one)?)));
    Some(Test::any_of(expression.split("||").map(all).collect::<Option<Vec<_>>>()?))
}

/// A comparison, or one with each value of a list, such as `!(request.method in ['GET', 'HEAD'])`.
fn test(expression: &str) -> Option<Test> {
    let inner = expression.trim_start_matches(|next: char| next == '!' || next.is_whitespace());
    let signs = expression.strip_suffix(inner).unwrap_or_default().matches('!').count();
    let within = inner.strip_prefix('(').and_then(|rest| rest.trim_end().strip_suffix(')'));
    let inner = within.unwrap_or(inner);
    let in_list = |(field, list): (&str, &str)| {
        let values = list.trim().strip_prefix('[')?.strip_suffix(']')?.split(',');
        let each = values.map(|value| comparison(&format!("{field} == {value}")));
        Some(each.collect::<Option<Vec<_>>>().map(Test::any_of))
    };
    let test = inner.split_once(" in ").and_then(in_list).unwrap_or_else(|| comparison(inner))?;
    Some(if signs % 2 == 1 { test.negated() } else { test })
}

/// A comparison, such as `request.method == 'GET'` or `request.path.startsWith('/internal')`.
fn comparison(expression: &str) -> Option<Test> {
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
    if is_prefix != expression.trim_end().ends_with(')') {
        return None;
    }
    let test = match (field, get(2)) {
        ("request.method", None) if !is_prefix => header_is(":method", "exact", &text),
        ("request.host", None) if !is_prefix && text.contains(':') => pseudo_header("host", "exact", &text),
        ("request.host", None) if !is_prefix && !text.is_empty() => {
            Test::Host(vec![text.to_ascii_lowercase()])
        }
        ("request.path", None) if text.contains('?') => {
            pseudo_header("path", if is_prefix { "prefix" } else { "exact" }, &text)
        }
        ("request.path" | "request.url_path", None) if text.starts_with('/') => Test::path(match is_prefix {
            true => PathTest::Prefix(text),
            false => PathTest::Exact(text),
        }),
        ("request.headers", Some(name)) => {
            header_is(&name.to_ascii_lowercase(), if is_prefix { "prefix" } else { "exact" }, &text)
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
        "request.path" | "request.url_path" => {
            Map::from([("path", Map::from([("trailing_slash", "distinct".into())]).into())])
        }
        "source.address" | "source.remote_address" => address(),
        other if other.starts_with("auth.identity") => plain("credential"),
        _ => return None,
    })
}
