// SPDX-License-Identifier: Apache-2.0
//! The limits of a plugin, and the keys by which it counts.

use super::super::credential::Places;
use super::super::nginx::unique;
use super::super::notes::{Note, Notes};
use super::super::test::Test;
use super::super::thousandths;
use super::{Plugin, number};
use crate::document::Node;
use crate::tree::{Map, Tree};

/// The fields of a plugin that are imported, or that weir handles in its own way. weir's `store` replaces those for Redis.
const KNOWN: &str = "count time_window window_type rate burst nodelay conn default_conn_delay only_use_default_delay key key_type rejected_code \
    rejected_msg policy allow_degradation show_limit_quota_header group sync_interval _meta rules redis_* sentinel_*";

/// The longest `max_delay`, and the longest `max_wait` of a queue, in milliseconds.
const LONGEST: u64 = 60_000;

/// The policies, while they are made.
pub struct Writer<'n> {
    notes: &'n mut Notes,
    names: Vec<String>,
    made: Vec<Map>,
    /// Groups of limit-count, each with the name of its first policy.
    groups: Vec<(String, String)>,
}

/// The subject of a plugin's limits.
struct Key {
    parts: Vec<Tree>,
    /// Requests that have what `parts` name. Of the others, APISIX counts those of an address.
    is_there: Test,
}

impl<'n> Writer<'n> {
    pub const fn new(notes: &'n mut Notes) -> Self {
        Self { notes, names: Vec::new(), made: Vec::new(), groups: Vec::new() }
    }

    pub fn finish(self) -> Vec<Map> {
        self.made
    }

    /// The policies of a plugin, for these requests.
    pub fn add(
        &mut self,
        plugin: &Plugin<'_>,
        (name, comment): (&str, &str),
        (requests, places): (&Test, &Places),
    ) {
        self.note_others(plugin);
        let Some(limit) = self.limit(plugin) else { return };
        let Some(key) = self.key(plugin, places) else { return };
        let address = Map::from([("client_address", Map::from([("ipv6_prefix", 128_u64.into())]).into())]);
        let others = requests.clone().and(key.is_there.clone().negated());
        let kind = plugin.name.trim_start_matches("limit-");
        for (ending, parts, requests) in
            [("", key.parts, requests.clone().and(key.is_there)), ("-address", vec![address.into()], others)]
        {
            if requests.is_never() {
                continue;
            }
            let own = unique(format!("{name}-{kind}{ending}"), &self.names);
            let mut policy = Map::new();
            policy.commented("name", vec![comment.to_owned()], own.as_str());
            if requests != Test::Always {
                policy.set("match", requests.condition());
            }
            policy.set("subject", parts);
            if let Some(first) = self.group(plugin, ending, &own) {
                policy.set("counters", first);
            }
            policy.set("limits", vec![Tree::from(limit.clone())]);
            if !plugin.config.is_true("allow_degradation") {
                policy.set("on_failure", "deny");
            }
            policy.set("response", response(plugin.config));
            self.names.push(own);
            self.made.push(policy);
        }
    }

    fn note(&mut self, plugin: &Plugin<'_>, field: &str, why: impl Into<String>, instead: &str) {
        let line = plugin.config.field(field).map_or(plugin.place.line, |(place, _)| place.line);
        self.notes.add(Note::at(plugin.file, line, field, why, instead));
    }

    fn note_others(&mut self, plugin: &Plugin<'_>) {
        if matches!(plugin.config.text_of("policy"), "local" | "") {
            let why = "each node of APISIX counts for itself, and all proxies with weir count together";
            let instead = "If the limit was meant for one node of several, multiply it by their number";
            self.note(plugin, "policy", why, instead);
        }
        if plugin.config.get("sync_interval").and_then(number).is_some() {
            let why = "APISIX counts in the background, and may admit more; weir counts each request exactly";
            self.note(plugin, "sync_interval", why, "");
        }
        if plugin.config.at(&["_meta", "filter"]).is_some() {
            let why = "its `filter` is not read, so the limit applies to all requests of its routes";
            self.note(plugin, "_meta", why, "Write it into the `match` of its policy");
        }
        self.notes.unread(plugin.file, plugin.config, KNOWN);
        if let Some(meta) = plugin.config.get("_meta") {
            self.notes.unread(plugin.file, meta, "disable filter priority");
        }
    }

    /// A number that is written, in thousandths. A variable, and a rule of several, are not.
    fn number(&mut self, plugin: &Plugin<'_>, field: &str) -> Option<u64> {
        let found = plugin.config.get(field).and_then(thousandths);
        if found.is_none() {
            let why = "it is no number, so the plugin is not imported";
            self.note(plugin, field, why, "Write the policy by hand; `tiers` choose limits by the request");
        }
        found
    }

    fn limit(&mut self, plugin: &Plugin<'_>) -> Option<Map> {
        if plugin.config.get("rules").is_some() {
            let why = "a list of rules is not read, so the plugin is not imported";
            self.note(plugin, "rules", why, "Write a policy for each");
            return None;
        }
        match plugin.name {
            "limit-count" => self.count(plugin),
            "limit-req" => self.rate(plugin),
            _ => self.connections(plugin),
        }
    }

    fn count(&mut self, plugin: &Plugin<'_>) -> Option<Map> {
        let (count, window) = (self.number(plugin, "count")?, self.number(plugin, "time_window")?);
        let is_sliding = plugin.config.text_of("window_type") == "sliding";
        let mut limit = limit("count", if is_sliding { "sliding_window" } else { "fixed_window" });
        limit.set("limit", whole(count)).set("window", format!("{}s", whole(window)));
        if !is_sliding {
            limit.set("align", "first");
        }
        Some(limit)
    }

    fn rate(&mut self, plugin: &Plugin<'_>) -> Option<Map> {
        let (rate, burst) = (self.number(plugin, "rate")?, self.number(plugin, "burst")?);
        let mut limit = limit("requests", "leaky_bucket");
        limit.set("rate", rate_of(rate));
        if plugin.config.is_true("nodelay") {
            limit.set("burst", whole(burst).saturating_add(1));
            return Some(limit);
        }
        let delay = burst.saturating_mul(1_000).checked_div(rate).unwrap_or(0);
        if delay > LONGEST {
            self.note(plugin, "burst", "weir holds a request for at most a minute", "");
        }
        if delay > 0 {
            limit.set("max_delay", format!("{}ms", delay.min(LONGEST)));
        }
        Some(limit)
    }

    fn connections(&mut self, plugin: &Plugin<'_>) -> Option<Map> {
        let (conn, burst) = (self.number(plugin, "conn")?, self.number(plugin, "burst")?);
        let mut limit = limit("connections", "concurrency");
        limit.set("limit", whole(conn)).set("ttl", "10m");
        if burst > 0 {
            let why = "APISIX delays so many more connections and then lets them pass; in weir they wait until one ends";
            self.note(plugin, "burst", why, "Choose `max_wait` by how long clients wait");
            let wait = self.number(plugin, "default_conn_delay")?.clamp(1_000, LONGEST);
            let queue =
                [("max_wait", format!("{wait}ms").into()), ("max_waiting", whole(burst).min(4_096).into())];
            limit.set("queue", Map::from(queue));
        }
        Some(limit)
    }

    /// The key by which it counts; `None` if weir does not know it.
    fn key(&mut self, plugin: &Plugin<'_>, places: &Places) -> Option<Key> {
        let config = plugin.config;
        let text = config.text_of("key");
        let text = if text.is_empty() { "remote_addr" } else { text };
        if config.text_of("key_type") == "constant" {
            let literal = Map::from([("literal", text.into())]);
            return Some(Key { parts: vec![literal.into()], is_there: Test::Always });
        }
        let names: Vec<&str> = if config.text_of("key_type") == "var_combination" {
            text.split(|next: char| !(next.is_ascii_alphanumeric() || next == '_'))
                .filter(|name| !name.is_empty())
                .collect()
        } else {
            vec![text]
        };
        let mut key = Key { parts: Vec::new(), is_there: Test::NEVER };
        for name in names {
            let Some((part, is_there)) = part(name, places) else {
                let why = format!("weir does not know the variable {name:?}, so the plugin is not imported");
                self.note(plugin, "key", why, "Name in the `subject` what tells clients apart");
                return None;
            };
            if name == "consumer_name" {
                let why = "APISIX counts what its authentication names; weir counts each credential";
                self.note(
                    plugin,
                    "key",
                    why,
                    "If a consumer has several credentials, name what is the same, such as `jwt_claim`",
                );
            }
            if let Some(unreadable) = Notes::of_pair(name) {
                let why = format!("to weir {unreadable}: such a request gets 403");
                self.note(plugin, "key", why, "Try the policy with `mode: shadow` first");
            }
            if let Some(why) = Notes::of_header(name) {
                self.note(plugin, "key", why, "Name in the `subject` what tells clients apart");
            }
            key.parts.push(part.into());
            // The address counts if all of them are empty.
            key.is_there = key.is_there.or(is_there);
        }
        Some(key)
    }

    /// Returns the policy whose counters this one shares: the first of its group.
    fn group(&mut self, plugin: &Plugin<'_>, ending: &str, name: &str) -> Option<String> {
        let group = plugin.config.text_of("group");
        if group.is_empty() {
            return None;
        }
        let group = format!("{group}{ending}");
        if let Some((_, first)) = self.groups.iter().find(|(other, _)| *other == group) {
            return Some(first.clone());
        }
        self.groups.push((group, name.to_owned()));
        None
    }
}

/// A variable of nginx as a part of the subject, and the requests that have it.
fn part(name: &str, places: &Places) -> Option<(Map, Test)> {
    let plain = |field: &str| (Map::from([(field, Map::new().into())]), Test::Always);
    let named = |field: &'static str, name: String| {
        let is_there = Map::from([("name", name.as_str().into()), ("present", true.into())]);
        let part =
            Map::from([(field, Map::from([("name", name.into())]).into()), ("on_multiple", "first".into())]);
        (part, Test::Value(field, is_there))
    };
    if let Some(header) = name.strip_prefix("http_") {
        return Some(named("header", header.replace('_', "-")));
    }
    if let Some(query) = name.strip_prefix("arg_") {
        return Some(named("query", query.to_owned()));
    }
    if let Some(cookie) = name.strip_prefix("cookie_") {
        return Some(named("cookie", cookie.to_owned()));
    }
    Some(match name {
        "remote_addr" | "binary_remote_addr" => {
            let address = Map::from([("ipv6_prefix", 128_u64.into())]);
            (Map::from([("client_address", address.into())]), Test::Always)
        }
        "host" => plain("host"),
        "uri" => {
            let distinct = Map::from([("trailing_slash", "distinct".into())]);
            (Map::from([("path", distinct.into())]), Test::Always)
        }
        "request_method" | "method" => plain("method"),
        "consumer_name" => (places.part(), Test::Always),
        "server_addr" | "route_id" | "service_id" => (Map::from([("literal", name.into())]), Test::Always),
        _ => return None,
    })
}

fn limit(name: &str, algorithm: &str) -> Map {
    Map::from([("name", name.into()), ("algorithm", algorithm.into())])
}

/// The whole number that is not less than these thousandths.
const fn whole(thousandths: u64) -> u64 {
    thousandths.div_ceil(1_000)
}

/// A rate of this number of thousandths of a request a second, as whole requests in a time.
fn rate_of(rate: u64) -> String {
    let units = [("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let whole = units.into_iter().find_map(|(unit, millis)| {
        let units = rate.saturating_mul(millis);
        (units > 0 && units.is_multiple_of(1_000_000)).then(|| format!("{}/{unit}", units / 1_000_000))
    });
    whole.unwrap_or_else(|| format!("{}/1000s", rate.max(1)))
}

/// Returns the response for clients: APISIX's headers are those of X-RateLimit.
fn response(config: &Node) -> Map {
    let mut response = Map::new();
    response.set(
        "status",
        config.get("rejected_code").and_then(number).filter(|status| *status >= 400).unwrap_or(503),
    );
    if let Some(text) = config.get("rejected_msg").and_then(Node::text) {
        let body = serde_json::json!({"error_msg": text}).to_string();
        response.set("format", "json").set("body", body);
    }
    let is_hidden =
        config.get("show_limit_quota_header").is_some() && !config.is_true("show_limit_quota_header");
    response.set("headers", if is_hidden { "none" } else { "x_ratelimit" });
    response
}
