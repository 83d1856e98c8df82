// SPDX-License-Identifier: Apache-2.0
//! The limits of a plugin, and the keys by which it counts.

use super::super::credential::Places;
use super::super::nginx::{SKELETON, duration, unique};
use super::super::notes::Notes;
use super::super::test::{PathTest, Test};
use super::super::{address, body, is_among, is_template, literal, policy, thousandths};
use super::routes::name_of_header;
use super::{Plugin, is_false};
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

/// The fields of a plugin that are imported, or that weir handles in its own way.
const PLUGIN: &str = "name config _config -class enabled route service protocols id tags created_at updated_at instance_name partials \
    run_on=first";

/// The fields of its `config` that are imported.
pub const READ: &str = "second minute hour day month year limit window_size window_type identifier compound_identifier limit_by header_name path \
    policy strategy fault_tolerant hide_client_headers error_code error_message sync_rate namespace disable_penalty";

/// Those that weir handles in its own way. weir's `store` replaces those for Redis.
const HANDLED: &str = "redis* dictionary_name lock_dictionary_name retry_after_jitter_max=0 enforce_consumer_groups=false throttling";

/// Headers that Kong's authentication writes: they name the consumer.
const CONSUMER_HEADERS: &str =
    "x-consumer-id x-consumer-custom-id x-consumer-username x-credential-identifier x-anonymous-consumer";

/// weir's longest window, in milliseconds.
const LONGEST: u64 = 366 * 86_400_000;

/// The field that says by what a plugin counts.
fn identifier(plugin: &Node) -> &'static str {
    if is_advanced(plugin) { "identifier" } else { "limit_by" }
}

fn is_advanced(plugin: &Node) -> bool {
    plugin.text_of("name") == "rate-limiting-advanced"
}

/// The words for what a plugin counts by. `compound_identifier` replaces `identifier`, and Kong's default is the consumer.
pub fn identifiers(plugin: &Node) -> Vec<&str> {
    let config = plugin.get("config").unwrap_or(plugin);
    let several = config.list("compound_identifier").iter().filter_map(Node::text);
    let several: Vec<&str> = several.filter(|_| is_advanced(plugin)).collect();
    let one = Some(config.text_of(identifier(plugin))).filter(|word| !word.is_empty());
    if several.is_empty() { vec![one.unwrap_or("consumer")] } else { several }
}

/// True if a plugin counts what authentication names.
pub fn is_by_consumer(plugin: &Node) -> bool {
    let header = plugin.get("config").map(|config| name_of_header(config.text_of("header_name")));
    let names = |word: &str| match word {
        "header" => header.as_deref().is_some_and(|header| is_among(header, CONSUMER_HEADERS)),
        word => ["consumer", "credential"].contains(&word),
    };
    identifiers(plugin).into_iter().any(names)
}

/// The policies of a plugin: of requests that lack what Kong counts by, it counts those of an address.
pub fn policies(
    plugin: &Plugin<'_>,
    (name, comment): (&str, String),
    (groups, counted): (&[(Places, Test)], Option<&str>),
    names: &mut Vec<String>,
    notes: &mut Notes,
) -> Vec<Map> {
    let empty = Node::empty();
    let config = plugin.node.get("config").unwrap_or(&empty);
    let kind = plugin.name();
    let is_advanced = is_advanced(plugin.node);
    notes.unread(plugin.file, plugin.node, PLUGIN);
    notes.unread(plugin.file, config, &[READ, HANDLED].join(" "));
    let mut note = |field: &str, why: &str, instead: &str| {
        let line = config.field(field).map_or(plugin.node.place.line, |(place, _)| place.line);
        notes.at(plugin.file, line, field, why, instead);
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
    let denies = is_false(config, "fault_tolerant");
    // rate-limiting-advanced counts locally, too, where Redis does not answer.
    let is_local = is_advanced || matches!(config.text_of("policy"), "local" | "");
    let on_failure = if is_local { Some("local") } else { denies.then_some("deny") };
    let mut made: Vec<Map> = Vec::new();
    let (all, is_unknown) = subjects(plugin.node, config, (groups, counted), &mut note);
    for (parts, requests) in all {
        let ending = if made.is_empty() || parts != [address()] { "" } else { "-address" };
        let own = unique(format!("{name}{ending}"), names);
        let mut policy = policy(&own, vec![comment.clone()], &requests);
        names.push(own);
        // A consumer may have one credential for several groups.
        let is_credential = parts.iter().any(|part| part.get("credential").is_some());
        let first = made.first().filter(|_| is_credential).and_then(|first| first.get("name").cloned());
        policy.set("subject", parts.into_iter().map(Tree::from).collect::<Vec<_>>());
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
        if is_unknown {
            policy.set("mode", "shadow");
        }
        made.push(policy);
    }
    made
}

const MULTIPLY: &str = "If the limit was meant for one node of several, multiply it by their number";

fn note_others(config: &Node, is_advanced: bool, note: &mut dyn FnMut(&str, &str, &str)) {
    let local = if is_advanced { "strategy" } else { "policy" };
    if matches!(config.text_of(local), "local" | "") {
        let why = "each node of Kong counts for itself, and all proxies with weir count together";
        note(local, why, MULTIPLY);
    }
    let is_apart = config.get("sync_rate").and_then(Node::text_or_number).as_deref() == Some("-1");
    if is_advanced && is_apart && config.text_of("strategy") == "redis" {
        let why = "with -1 each node of Kong counts for itself, and all proxies with weir count together";
        note("sync_rate", why, MULTIPLY);
    }
    if config.get("sync_rate").and_then(thousandths).is_some_and(|rate| rate > 0) {
        let why = "Kong counts in the background, and may admit more; weir counts each request exactly";
        note("sync_rate", why, "");
    }
    if config.get("throttling").is_some_and(|throttling| throttling.is_true("enabled")) {
        let why = "Kong holds requests that are over the limit and tries them again, and weir rejects them";
        note("throttling", why, "");
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
        let why = "it has not as many numbers as `limit`, so those without a pair are not imported";
        note("window_size", why, "Correct it");
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
        let size = duration(u128::from(millis) * 1_000);
        let algorithm = if is_fixed { "fixed_window" } else { "sliding_window" };
        let name = unique(format!("per-{size}"), &names);
        let mut limit = window(&name, algorithm, units);
        limit.set("window", size);
        names.push(name);
        found.push(limit);
    }
    found
}

/// Requests that have a header.
pub fn present(header: &str) -> Test {
    Test::Value("header", Map::from([("name", header.into()), ("present", true.into())]))
}

/// Returns the subjects that the plugin counts by, each with its requests, and whether a word in it is unknown. `counted` is the name of the
/// service or the route.
fn subjects(
    plugin: &Node,
    config: &Node,
    (groups, counted): (&[(Places, Test)], Option<&str>),
    note: &mut dyn FnMut(&str, &str, &str),
) -> (Vec<(Vec<Map>, Test)>, bool) {
    let words = identifiers(plugin);
    let [word] = words.as_slice() else { return compound(&words, (groups, counted), note) };
    let field = identifier(plugin);
    // Only a plugin that counts consumers has several groups.
    let Some((_, requests)) = groups.first() else { return (Vec::new(), false) };
    let finds_consumers = groups.iter().any(|(places, _)| places.finds_consumers);
    let or_address = |part: Map, is_there: Test| {
        let others = is_there.clone().negated();
        vec![(part, requests.clone().and(is_there)), (address(), requests.clone().and(others))]
    };
    let found = match *word {
        "ip" => vec![(address(), requests.clone())],
        "service" | "route" => vec![(counted.map_or_else(address, literal), requests.clone())],
        "header" if config.text_of("header_name").eq_ignore_ascii_case("host") => {
            vec![(Map::from([("host", Map::new().into())]), requests.clone())]
        }
        "header" if !finds_consumers => {
            let name = name_of_header(config.text_of("header_name"));
            if let Some(why) = Notes::of_header(&format!("http_{}", name.replace('-', "_"))) {
                note("header_name", why, "Name in the `subject` what tells clients apart");
            }
            let is_there = present(&name);
            let header = Map::from([("name", name.into())]);
            let part = Map::from([("header", header.into()), ("on_multiple", "first".into())]);
            or_address(part, is_there)
        }
        "path" => {
            let path = config.text_of("path");
            or_address(literal(path), Test::path(PathTest::Exact(path.to_owned())))
        }
        "consumer-group" => {
            let why = "weir knows no consumer groups: all requests count together";
            note(field, why, "Name what tells them apart in the `subject`");
            vec![(literal("consumer-group"), requests.clone())]
        }
        "consumer" | "credential" | "header" => {
            note_consumers(field, *word == "credential", groups, note);
            groups.iter().map(|(places, requests)| (part_of(places), requests.clone())).collect()
        }
        _ => {
            note_unknown(field, word, note);
            return (vec![(vec![address()], requests.clone())], true);
        }
    };
    (found.into_iter().map(|(part, requests)| (vec![part], requests)).collect(), false)
}

/// The subjects of a plugin that counts each combination of these.
fn compound(
    words: &[&str],
    (groups, counted): (&[(Places, Test)], Option<&str>),
    note: &mut dyn FnMut(&str, &str, &str),
) -> (Vec<(Vec<Map>, Test)>, bool) {
    const FIELD: &str = "compound_identifier";
    let is_of_consumer = |word: &&str| ["consumer", "credential"].contains(word);
    let mut is_unknown = false;
    for word in
        words.iter().filter(|word| !is_of_consumer(word) && !["ip", "service", "route"].contains(word))
    {
        is_unknown = true;
        note_unknown(FIELD, word, note);
    }
    if words.iter().any(is_of_consumer) {
        note_consumers(FIELD, words.contains(&"credential"), groups, note);
    }
    let subject = |places: &Places| {
        let mut parts: Vec<Map> = Vec::new();
        for word in words {
            let part = match *word {
                "consumer" | "credential" => part_of(places),
                "service" | "route" => counted.map_or_else(address, literal),
                _ => address(),
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts
    };
    (groups.iter().map(|(places, requests)| (subject(places), requests.clone())).collect(), is_unknown)
}

/// Kong counts an address where no authentication runs.
fn part_of(places: &Places) -> Map {
    if places.finds_consumers { places.part() } else { address() }
}

fn note_unknown(field: &str, word: &str, note: &mut dyn FnMut(&str, &str, &str)) {
    let why = format!("weir does not read the word {word:?} here, and counts addresses for it");
    note(field, &why, SKELETON);
}

/// Says how consumers differ in weir.
fn note_consumers(
    field: &str,
    is_credential: bool,
    groups: &[(Places, Test)],
    note: &mut dyn FnMut(&str, &str, &str),
) {
    if groups.iter().any(|(places, _)| !places.finds_consumers) {
        let why = "Kong counts an address where no authentication names a consumer, and these files have none for (some of) its requests";
        note(field, why, "If another file has it, import both");
    }
    if groups.iter().any(|(places, _)| places.finds_consumers) {
        let why = "Kong counts each consumer, and a request without a credential for the `anonymous` one, or rejects it; weir counts each \
            credential, and requests without one together";
        let instead = "If a consumer has several credentials, name what is the same, such as `jwt_claim`";
        note(field, why, instead);
    }
    if is_credential && groups.iter().any(|(places, _)| places.is_anonymous) {
        let why = "Kong counts the address of a request that `anonymous` lets pass without a credential, and weir counts such requests together";
        note(field, why, "Write a policy of its own for requests without the credential");
    }
    for (why, instead) in groups.iter().flat_map(|(places, _)| places.notes()) {
        note(field, why, instead);
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
    let message = config.get("error_message").and_then(Node::text);
    if let Some(text) = message.filter(|text| !is_template(text)) {
        let body = body(&serde_json::json!({"message": text}).to_string());
        response.set("format", "json").set("body", body);
    }
    response.set("headers", if config.is_true("hide_client_headers") { "none" } else { "x_ratelimit" });
    response
}
