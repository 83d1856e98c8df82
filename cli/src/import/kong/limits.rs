// SPDX-License-Identifier: Apache-2.0
//! The limits of a plugin, and the keys by which it counts.

use super::super::credential::Places;
use super::super::nginx::unique;
use super::super::notes::{Note, Notes};
use super::super::test::Test;
use super::super::{body, thousandths};
use super::Plugin;
use super::routes::name_of_header;
use crate::document::Node;
use crate::tree::{Map, Tree};
use weir::limit::MAX_UNITS;

/// The periods of rate-limiting, each with weir's window and how it is aligned. Kong's windows are those of the calendar in UTC.
const PERIODS: [(&str, &str, &str); 6] = [
    ("second", "window", "1s"),
    ("minute", "window", "1m"),
    ("hour", "window", "1h"),
    ("day", "window", "1d"),
    ("month", "align", "month"),
    ("year", "window", "365d"),
];

/// The fields of a plugin, and of its `config`, that are imported, or that weir handles in its own way. weir's `store` replaces those for
/// Redis.
const PLUGIN: &str = "name config _config enabled route service protocols id tags created_at updated_at instance_name partials";
const KNOWN: &str = "second minute hour day month year limit window_size window_type identifier limit_by header_name path policy strategy \
    fault_tolerant hide_client_headers error_code error_message sync_rate namespace redis* dictionary_name lock_dictionary_name \
    disable_penalty retry_after_jitter_max=0 enforce_consumer_groups=false";

/// Headers that Kong's authentication writes: they name the consumer.
const CONSUMER_HEADERS: [&str; 5] = [
    "x-consumer-id",
    "x-consumer-custom-id",
    "x-consumer-username",
    "x-credential-identifier",
    "x-anonymous-consumer",
];

/// weir's longest window, in milliseconds.
const LONGEST: u64 = 366 * 86_400_000;

/// True if a plugin counts what authentication names, which is Kong's default.
pub fn is_by_consumer(plugin: &Node) -> bool {
    let of = |field: &str| plugin.at(&["config", field]).and_then(Node::text);
    let header = name_of_header(of("header_name").unwrap_or_default());
    match of("limit_by").or(of("identifier")) {
        Some("header") => CONSUMER_HEADERS.contains(&header.as_str()),
        by => by.is_none_or(|by| ["consumer", "credential"].contains(&by)),
    }
}

/// The policies of a plugin: of requests that lack what Kong counts by, it counts those of an address.
pub fn policies(
    plugin: &Plugin<'_>,
    (name, comment): (&str, String),
    (groups, service): (&[(Places, Test)], Option<&str>),
    take: &mut dyn FnMut(String) -> String,
    notes: &mut Notes,
) -> Vec<Map> {
    let empty = Node::empty();
    let config = plugin.node.get("config").unwrap_or(&empty);
    let kind = plugin.node.text_of("name");
    let is_advanced = kind == "rate-limiting-advanced";
    notes.unread(plugin.file, plugin.node, PLUGIN);
    notes.unread(plugin.file, config, KNOWN);
    let mut note = |field: &str, why: &str, instead: &str| {
        let line = config.field(field).map_or(plugin.node.place.line, |(place, _)| place.line);
        notes.add(Note::at(plugin.file, line, field, why, instead));
    };
    note_others(config, is_advanced, &mut note);
    let protocols = plugin.node.list("protocols");
    let has = |name: &str| protocols.iter().any(|protocol| protocol.text() == Some(name));
    if !(protocols.is_empty() || has("http") && has("https")) {
        let why = "Kong runs the plugin for these protocols only, and weir's policy is for all";
        note("protocols", why, "Load weir only in the listeners of these protocols");
    }
    let limits = if is_advanced { windows(config, &mut note) } else { periods(config, &mut note) };
    if limits.is_empty() {
        note(kind, "it has no limit", "Correct it");
        return Vec::new();
    }
    let response = response(config, &mut note);
    let denies = config.get("fault_tolerant").is_some() && !config.is_true("fault_tolerant");
    // rate-limiting-advanced counts locally, too, where Redis does not answer.
    let is_local = is_advanced || matches!(config.text_of("policy"), "local" | "");
    let on_failure = if is_local { Some("local") } else { denies.then_some("deny") };
    let mut made: Vec<Map> = Vec::new();
    for (part, requests) in subjects(config, is_advanced, (groups, service), &mut note) {
        let mut policy = Map::new();
        let ending = if made.is_empty() || part != address() { "" } else { "-address" };
        policy.commented("name", vec![comment.clone()], take(format!("{name}{ending}")));
        // A consumer may have one credential for several groups.
        let is_credential = part.get("credential").is_some();
        let first = made.first().filter(|_| is_credential).and_then(|first| first.get("name").cloned());
        if requests != Test::Always {
            policy.set("match", requests.condition());
        }
        policy.set("subject", vec![Tree::from(part)]);
        policy.set("limits", limits.iter().cloned().map(Tree::from).collect::<Vec<_>>());
        if let Some(on_failure) = on_failure {
            policy.set("on_failure", on_failure);
        }
        if !response.is_empty() {
            policy.set("response", response.clone());
        }
        if let Some(first) = first {
            policy.set("counters", first);
        }
        made.push(policy);
    }
    made
}

fn note_others(config: &Node, is_advanced: bool, note: &mut dyn FnMut(&str, &str, &str)) {
    let local = if is_advanced { "strategy" } else { "policy" };
    if matches!(config.text_of(local), "local" | "") {
        let why = "each node of Kong counts for itself, and all proxies with weir count together";
        note(local, why, "If the limit was meant for one node of several, multiply it by their number");
    }
    if config.get("sync_rate").and_then(thousandths).is_some_and(|rate| rate > 0) {
        note(
            "sync_rate",
            "Kong counts in the background, and may admit more; weir counts each request exactly",
            "",
        );
    }
    if is_advanced && config.text_of("window_type") != "fixed" && !config.is_true("disable_penalty") {
        let why = "Kong counts the requests that it rejects in a sliding window, and weir does not";
        note("window_type", why, "");
    }
}

fn window(name: &str, algorithm: &str, units: u64) -> Map {
    Map::from([("name", name.into()), ("algorithm", algorithm.into()), ("limit", units.into())])
}

/// Kong takes fractions: what is left of one admits a request, too.
fn units(node: &Node) -> Option<u64> {
    let units = thousandths(node)?.div_ceil(1_000);
    (1..=MAX_UNITS).contains(&units).then_some(units)
}

fn periods(config: &Node, note: &mut dyn FnMut(&str, &str, &str)) -> Vec<Map> {
    let mut found = Vec::new();
    for (period, field, length) in PERIODS {
        let Some(node) = config.get(period) else { continue };
        let Some(units) = units(node) else {
            if node.text_or_number().is_some() {
                note(period, "it is no number from 1 to 10^12, so it is not imported", "Correct it");
            }
            continue;
        };
        if period == "year" {
            note("year", "Kong's year is that of the calendar, and weir's window has 365 days", "");
        }
        let mut limit = window(period, "fixed_window", units);
        limit.set(field, length);
        found.push(limit);
    }
    found
}

/// The limits of rate-limiting-advanced: of each number, a window of so many seconds.
fn windows(config: &Node, note: &mut dyn FnMut(&str, &str, &str)) -> Vec<Map> {
    let is_fixed = config.text_of("window_type") == "fixed";
    if config.list("window_size").len() != config.list("limit").len() {
        note(
            "window_size",
            "it has not as many numbers as `limit`, so those without a pair are not imported",
            "Correct it",
        );
    }
    let sizes = config.list("window_size").iter().map(thousandths);
    let limits = config.list("limit").iter().map(units);
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for (size, units) in sizes.zip(limits) {
        let (Some(millis @ 1..=LONGEST), Some(units)) = (size, units) else {
            let why = "one of its numbers is none from 1 to 10^12, or its window none of 1ms to 366d, so it is not imported";
            note("limit", why, "Correct it");
            continue;
        };
        let size =
            if millis.is_multiple_of(1_000) { format!("{}s", millis / 1_000) } else { format!("{millis}ms") };
        let algorithm = if is_fixed { "fixed_window" } else { "sliding_window" };
        let name = unique(format!("per-{size}"), &names);
        let mut limit = window(&name, algorithm, units);
        limit.set("window", size);
        names.push(name);
        found.push(limit);
    }
    found
}

pub fn address() -> Map {
    Map::from([("client_address", Map::from([("ipv6_prefix", 128_u64.into())]).into())])
}

/// Returns the subjects that the plugin counts by, each with its requests.
fn subjects(
    config: &Node,
    is_advanced: bool,
    (groups, service): (&[(Places, Test)], Option<&str>),
    note: &mut dyn FnMut(&str, &str, &str),
) -> Vec<(Map, Test)> {
    let field = if is_advanced { "identifier" } else { "limit_by" };
    // Only a plugin that counts consumers has several groups.
    let Some((_, requests)) = groups.first() else { return Vec::new() };
    let finds_consumers = groups.iter().any(|(places, _)| places.finds_consumers);
    let literal = |text: &str| Map::from([("literal", text.into())]);
    match config.text_of(field) {
        "ip" => vec![(address(), requests.clone())],
        "service" => vec![(service.map_or_else(address, literal), requests.clone())],
        "header" if config.text_of("header_name").eq_ignore_ascii_case("host") => {
            vec![(Map::from([("host", Map::new().into())]), requests.clone())]
        }
        "header" if !finds_consumers => {
            let name = name_of_header(config.text_of("header_name"));
            if let Some(why) = Notes::of_header(&format!("http_{}", name.replace('-', "_"))) {
                note("header_name", why, "Name in the `subject` what tells clients apart");
            }
            let is_there = Map::from([("name", name.as_str().into()), ("present", true.into())]);
            let is_there = Test::Value("header", is_there);
            let header = Map::from([("name", name.into())]);
            let part = Map::from([("header", header.into()), ("on_multiple", "first".into())]);
            vec![
                (part, requests.clone().and(is_there.clone())),
                (address(), requests.clone().and(is_there.negated())),
            ]
        }
        "path" => {
            let path = config.text_of("path").to_owned();
            let is_it = Test::path(super::super::test::PathTest::Exact(path.clone()));
            vec![
                (literal(&path), requests.clone().and(is_it.clone())),
                (address(), requests.clone().and(is_it.negated())),
            ]
        }
        "consumer-group" => {
            note(
                field,
                "weir knows no consumer groups: all requests count together",
                "Name what tells them apart in the `subject`",
            );
            vec![(literal("consumer-group"), requests.clone())]
        }
        // Kong's default is the consumer.
        _ => {
            if groups.iter().any(|(places, _)| !places.finds_consumers) {
                let why = "Kong counts an address where no authentication names a consumer, and these files have none for (some of) its requests";
                note(field, why, "If another file has it, import both");
            }
            if finds_consumers {
                let why = "Kong counts what its authentication names, and an address without it; weir counts each credential, and those without one \
                    together";
                let instead =
                    "If a consumer has several credentials, name what is the same, such as `jwt_claim`";
                note(field, why, instead);
            }
            for (why, instead) in groups.iter().flat_map(|(places, _)| places.notes()) {
                note(field, why, instead);
            }
            let part = |places: &Places| if places.finds_consumers { places.part() } else { address() };
            groups.iter().map(|(places, requests)| (part(places), requests.clone())).collect()
        }
    }
}

/// Returns the response for clients: Kong's headers are those of X-RateLimit, with a name for each period.
fn response(config: &Node, note: &mut dyn FnMut(&str, &str, &str)) -> Map {
    let mut response = Map::new();
    match config.get("error_code").and_then(thousandths) {
        None | Some(429_000) => {}
        Some(status) if (400_000..600_000).contains(&status) && status.is_multiple_of(1_000) => {
            response.set("status", status / 1_000);
        }
        Some(_) => note("error_code", "a status for rejections is 400 to 599, so it is 429", "Correct it"),
    }
    if let Some(text) = config.get("error_message").and_then(Node::text) {
        let body = body(&serde_json::json!({"message": text}).to_string());
        response.set("format", "json").set("body", body);
    }
    response.set("headers", if config.is_true("hide_client_headers") { "none" } else { "x_ratelimit" });
    response
}
