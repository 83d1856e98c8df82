// SPDX-License-Identifier: Apache-2.0
//! The limits of a plugin, and the keys by which it counts.

use core::ops::RangeInclusive;

use serde_json::Value;

use super::super::credential::Places;
use super::super::nginx::{SKELETON, duration, unique};
use super::super::notes::Notes;
use super::super::test::Test;
use super::super::{address, body, decimal, is_among, is_template, literal, policy, thousandths};
use super::{Plugin, number};
use crate::document::Node;
use crate::tree::{Map, Tree};
use weir::limit::MAX_UNITS;

/// The fields of a plugin that are imported, or that weir handles in its own way. weir's `store` replaces those for Redis.
pub const KNOWN: &str = "count time_window window_type rate burst nodelay conn default_conn_delay only_use_default_delay key key_type rejected_code \
    rejected_msg policy allow_degradation show_limit_quota_header group sync_interval _meta rules key_ttl redis_* sentinel_*";
const RULE: &str = "count time_window conn burst key header_prefix";

/// The longest `max_delay`, and the longest `max_wait` of a queue, in milliseconds.
const LONGEST: u64 = 60_000;

/// The most requests in a queue.
const MOST_WAITING: u64 = 4_096;

/// Numbers from 1, in thousandths, and numbers from 0.
const POSITIVE: RangeInclusive<u64> = 1_000..=MAX_UNITS * 1_000;
const NOT_NEGATIVE: RangeInclusive<u64> = 0..=MAX_UNITS * 1_000;
/// The lengths of weir's windows, in milliseconds.
const WINDOW: RangeInclusive<u64> = 1_000..=366 * 86_400_000;

/// The name of a group; without one, the index of the plugin.
type Group = Result<String, usize>;

/// The policies, while they are made.
pub struct Writer<'n> {
    notes: &'n mut Notes,
    names: Vec<String>,
    made: Vec<Map>,
    /// Groups of limit-count with the number and the kind of a subject, the first policy of each, and what its plugin says. A plugin whose routes
    /// have different authentication is a group, too.
    groups: Vec<(Group, (usize, bool), String, Value)>,
}

/// The subject of a plugin's limits.
struct Key {
    parts: Vec<Tree>,
    /// Requests that have what `parts` name. Of the others, APISIX counts those of an address.
    is_there: Test,
    /// weir does not know one of its variables.
    is_unknown: bool,
}

impl<'n> Writer<'n> {
    pub const fn new(notes: &'n mut Notes) -> Self {
        Self { notes, names: Vec::new(), made: Vec::new(), groups: Vec::new() }
    }

    pub fn finish(self) -> Vec<Map> {
        self.made
    }

    /// The policies of a plugin, which has this index, for these requests.
    pub fn add(
        &mut self,
        (index, plugin): (usize, &Plugin<'_>),
        (name, comment): (&str, &str),
        (requests, places): (&Test, &Places),
    ) {
        self.note_others(plugin);
        let kind = plugin.name.trim_start_matches("limit-");
        let rules = plugin.config.list("rules");
        let mut has_rest = !rules.is_empty();
        let mut made = Vec::new();
        for rule in rules {
            self.notes.unread(plugin.file, rule, RULE);
            let of = Plugin { config: rule, ..*plugin };
            let key = self.key(&of, true, places);
            has_rest &= key.is_there != Test::Always;
            made.extend(self.limit(&of, plugin).map(|limit| ("", limit, key)));
        }
        if rules.is_empty() {
            let Some(limit) = self.limit(plugin, plugin) else { return };
            let key = self.key(plugin, false, places);
            let others = key.is_there.clone().negated();
            let others = Key { parts: vec![address().into()], is_there: others, is_unknown: false };
            made.push(("", limit.clone(), key));
            made.push(("-address", limit, others));
        }
        // Where it may degrade, APISIX lets such a request pass, too.
        if has_rest && !plugin.config.is_true("allow_degradation") {
            let why =
                "APISIX answers 500 to a request that has the key of no rule, and weir does not limit it";
            self.note(plugin, "rules", why, "");
        }
        for (number, (ending, limit, Key { parts, is_there, is_unknown })) in made.into_iter().enumerate() {
            let requests = requests.clone().and(is_there);
            if requests.is_never() {
                continue;
            }
            let own = unique(format!("{name}-{kind}{ending}"), &self.names);
            let mut policy = policy(&own, vec![comment.to_owned()], &requests);
            let kind = (number, parts == [Tree::from(address())]);
            policy.set("subject", parts);
            if let Some(first) = self.group((index, plugin), kind, &own) {
                policy.set("counters", first);
            }
            policy.set("limits", vec![Tree::from(limit)]);
            if is_local(plugin) {
                policy.set("on_failure", "local");
            } else if !plugin.config.is_true("allow_degradation") {
                policy.set("on_failure", "deny");
            }
            policy.set("response", self.response(plugin));
            if is_unknown {
                policy.set("mode", "shadow");
            }
            self.names.push(own);
            self.made.push(policy);
        }
    }

    fn note(&mut self, plugin: &Plugin<'_>, field: &str, why: impl Into<String>, instead: &str) {
        let line = plugin.config.field(field).map_or(plugin.place.line, |(place, _)| place.line);
        self.notes.at(plugin.file, line, field, why, instead);
    }

    fn note_others(&mut self, plugin: &Plugin<'_>) {
        if is_local(plugin) {
            let why = "each node of APISIX counts for itself, and all proxies with weir count together";
            let instead = "If the limit was meant for one node of several, multiply it by their number";
            self.note(plugin, "policy", why, instead);
        }
        if plugin.config.get("sync_interval").and_then(thousandths).is_some() {
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

    /// A number that is written, in thousandths. A variable is not.
    fn number(&mut self, plugin: &Plugin<'_>, field: &str, allowed: RangeInclusive<u64>) -> Option<u64> {
        let found = plugin.config.get(field).and_then(thousandths).filter(|number| allowed.contains(number));
        self.noted(plugin, field, found)
    }

    fn noted<T>(&mut self, plugin: &Plugin<'_>, field: &str, found: Option<T>) -> Option<T> {
        if found.is_none() {
            let why = "it is no number, or none that weir has for it, so its limit is not imported";
            self.note(plugin, field, why, "Write the policy by hand; `tiers` choose limits by the request");
        }
        found
    }

    /// The limit of a plugin, or of one of its rules: `whole` has the fields that all rules share.
    fn limit(&mut self, plugin: &Plugin<'_>, whole: &Plugin<'_>) -> Option<Map> {
        match plugin.name {
            "limit-count" => self.count(plugin, whole),
            "limit-req" => self.rate(plugin),
            _ => self.connections(plugin, whole),
        }
    }

    fn count(&mut self, plugin: &Plugin<'_>, whole_plugin: &Plugin<'_>) -> Option<Map> {
        let count = self.number(plugin, "count", POSITIVE)?;
        let window = self.number(plugin, "time_window", WINDOW)?;
        let is_sliding = whole_plugin.config.text_of("window_type") == "sliding";
        let mut limit = limit("count", if is_sliding { "sliding_window" } else { "fixed_window" });
        limit.set("limit", whole(count)).set("window", format!("{}s", whole(window)));
        if !is_sliding {
            limit.set("align", "first");
        }
        Some(limit)
    }

    fn rate(&mut self, plugin: &Plugin<'_>) -> Option<Map> {
        let burst = self.number(plugin, "burst", NOT_NEGATIVE)?;
        let rate = plugin.config.get("rate").and_then(decimal).as_deref().and_then(fraction);
        let (count, seconds) = self.noted(plugin, "rate", rate)?;
        let is_short = |rate: u64| burst.saturating_add(rate) < 1_000;
        if plugin.config.text_of("policy").starts_with("redis")
            && plugin.config.get("rate").and_then(thousandths).is_some_and(is_short)
        {
            let why = "since 3.15 APISIX forgets in Redis after burst ÷ rate + 1 seconds, and so admits a request in each such time; weir keeps to \
                the rate";
            self.note(plugin, "rate", why, "If clients need as much, write that as the rate");
        }
        let mut limit = limit("requests", "leaky_bucket");
        limit.set("rate", rate_of(count, seconds));
        if plugin.config.is_true("nodelay") {
            if !burst.is_multiple_of(1_000) {
                self.note(plugin, "burst", "weir's burst is a whole number, so it is rounded down", "");
            }
            limit.set("burst", (burst / 1_000).saturating_add(1));
            return Some(limit);
        }
        let micros = u128::from(burst).saturating_mul(1_000).saturating_mul(seconds.into());
        let micros = micros.div_ceil(u128::from(count).max(1));
        let longest = u128::from(LONGEST) * 1_000;
        if micros > longest {
            self.note(plugin, "burst", "weir holds a request for at most a minute", "");
        }
        if micros > 0 {
            limit.set("max_delay", duration(micros.min(longest)));
        }
        Some(limit)
    }

    fn connections(&mut self, plugin: &Plugin<'_>, whole_plugin: &Plugin<'_>) -> Option<Map> {
        let conn = self.number(plugin, "conn", POSITIVE)?;
        let burst = self.number(plugin, "burst", NOT_NEGATIVE)?;
        let mut limit = limit("connections", "concurrency");
        limit.set("limit", whole(conn)).set("ttl", "10m");
        if burst > 0 {
            let why = "APISIX delays so many more connections and then lets them pass; in weir they wait until one ends";
            self.note(plugin, "burst", why, "Choose `max_wait` by how long clients wait");
            let delay = self.number(whole_plugin, "default_conn_delay", NOT_NEGATIVE)?;
            let (wait, waiting) = (delay.clamp(1_000, LONGEST), whole(burst).min(MOST_WAITING));
            if delay > LONGEST || whole(burst) > MOST_WAITING {
                let why =
                    "in weir at most 4096 requests wait, and each at most a minute, so its numbers are cut";
                self.note(plugin, "burst", why, "");
            }
            let queue = [("max_wait", format!("{wait}ms").into()), ("max_waiting", waiting.into())];
            limit.set("queue", Map::from(queue));
        }
        Some(limit)
    }

    /// The key by which it counts.
    fn key(&mut self, plugin: &Plugin<'_>, is_rule: bool, places: &Places) -> Key {
        let config = plugin.config;
        let text = config.text_of("key");
        let text = if text.is_empty() { "remote_addr" } else { text };
        let is_template = is_rule || config.text_of("key_type") == "var_combination";
        if config.text_of("key_type") == "constant" {
            return Key { parts: vec![literal(text).into()], is_there: Test::Always, is_unknown: false };
        }
        let mut names = if is_template { variables(text) } else { vec![(text, false)] };
        if !is_template && text.contains('$') {
            names = vec![("remote_addr", false)];
            let why = "no variable of APISIX has a name with `$`, so it counts an address, and so does weir";
            self.note(plugin, "key", why, "If its value was meant, name it without `$`");
        }
        for (name, _) in
            names.iter_mut().filter(|(name, _)| places.finds_consumers && is_among(name, OF_CONSUMER))
        {
            *name = "consumer_name";
        }
        let is_nobody = |(name, has_default): &(&str, bool)| {
            *name == "consumer_name" && !places.finds_consumers && !has_default
        };
        if names.iter().any(is_nobody) {
            names.retain(|of| !is_nobody(of));
            let why = if names.is_empty() && !is_rule {
                names.push(("remote_addr", false));
                "APISIX counts an address where no authentication names a consumer, and these files have none for (some of) its requests"
            } else {
                "the consumer's name is empty where no authentication says it, and these files have none for (some of) its requests"
            };
            self.note(plugin, "key", why, "If another file has it, import both");
        }
        if is_rule && names.is_empty() {
            let why = "APISIX skips a rule whose key has no variable, so it is not imported";
            self.note(plugin, "key", why, "");
        }
        // Without a variable, all are empty.
        let mut key = Key { parts: Vec::new(), is_there: Test::NEVER, is_unknown: false };
        for (name, has_default) in names {
            let Some((part, is_there)) = part(name, places) else {
                let why = format!(
                    "weir does not know the variable {name:?}. APISIX counts an address where it has no value"
                );
                self.note(plugin, "key", why, SKELETON);
                (key.is_there, key.is_unknown) = (Test::Always, true);
                continue;
            };
            let is_of_route =
                name == "route_id" && ["uri", "uris"].iter().any(|name| plugin.owner.get(name).is_some());
            if ["server_addr", "route_id", "service_id"].contains(&name) && !is_of_route {
                let why = "APISIX counts each value of this variable for itself, and weir counts all requests of the plugin together";
                self.note(plugin, "key", why, "Name in the `subject` what tells them apart, such as `route`");
            }
            if name == "consumer_name" {
                let why = "APISIX counts each consumer, and a request without a credential for the `anonymous_consumer`, or rejects it; weir \
                    counts each credential, and requests without one together";
                let instead =
                    "If a consumer has several credentials, name what is the same, such as `jwt_claim`";
                self.note(plugin, "key", why, instead);
            }
            for (why, instead) in places.notes().filter(|_| name == "consumer_name") {
                self.note(plugin, "key", why, instead);
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
            key.is_there = if has_default { Test::Always } else { key.is_there.or(is_there) };
        }
        if key.is_unknown && key.parts.is_empty() {
            key.parts.push(address().into());
        }
        key
    }

    /// Returns the policy whose counters this one shares: the first of its group.
    fn group(
        &mut self,
        (index, plugin): (usize, &Plugin<'_>),
        kind: (usize, bool),
        name: &str,
    ) -> Option<String> {
        let group = Some(plugin.config.text_of("group")).filter(|name| !name.is_empty());
        let group = group.map(str::to_owned).ok_or(index);
        let config = plugin.config.json();
        if self.groups.iter().any(|(other, .., of_other)| *other == group && *of_other != config) {
            let why = "APISIX refuses a plugin that differs from another one of its group, so this one counts by itself";
            self.note(plugin, "group", why, "Make them the same, or name another group");
            return None;
        }
        let is_it = |(other, of, ..): &&(Group, (usize, bool), String, Value)| *other == group && *of == kind;
        if let Some((_, _, first, _)) = self.groups.iter().find(is_it) {
            return Some(first.clone());
        }
        self.groups.push((group, kind, name.to_owned(), config));
        None
    }

    /// Returns the response for clients: the headers of limit-count are those of X-RateLimit.
    fn response(&mut self, plugin: &Plugin<'_>) -> Map {
        let config = plugin.config;
        let mut response = Map::new();
        let status = config.get("rejected_code").and_then(number).unwrap_or(503);
        let is_allowed = (400..600).contains(&status);
        if !is_allowed {
            let why = "weir rejects with 400 to 599, so it is 503";
            self.note(plugin, "rejected_code", why, "Choose a status");
        }
        response.set("status", if is_allowed { status } else { 503 });
        let message = config.get("rejected_msg").and_then(Node::text);
        if let Some(text) = message.filter(|text| !is_template(text)) {
            let body = body(&serde_json::json!({"error_msg": text}).to_string());
            response.set("format", "json").set("body", body);
        }
        let is_shown = plugin.name == "limit-count"
            && (config.get("show_limit_quota_header").is_none() || config.is_true("show_limit_quota_header"));
        response.set("headers", if is_shown { "x_ratelimit" } else { "none" });
        response
    }
}

/// The variables in a template, each with whether it has a default: `$name`, `${name}`, `${name ?? default}`. After a backslash, `$` is none.
fn variables(template: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for (place, _) in template.match_indices('$') {
        let (before, rest) = template.split_at(place);
        let rest = rest.get(1..).unwrap_or_default();
        let braced = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(inner, _)| inner);
        let inner = braced.unwrap_or_else(|| {
            let is_end = |next: char| !(next.is_alphanumeric() || next == '_' || next == '.');
            rest.find(is_end).map_or(rest, |end| rest.split_at(end).0)
        });
        let (name, has_default) = inner.split_once("??").map_or((inner, false), |(name, _)| (name, true));
        if !before.ends_with('\\') && !name.trim().is_empty() {
            found.push((name.trim(), has_default));
        }
    }
    found
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
    if name.eq_ignore_ascii_case("http_host") {
        return Some(plain("host"));
    }
    if let Some(header) = name.strip_prefix("http_") {
        return Some(named("header", header.to_ascii_lowercase().replace('_', "-")));
    }
    if let Some(query) = name.strip_prefix("arg_") {
        return Some(named("query", query.to_owned()));
    }
    if let Some(cookie) = name.strip_prefix("cookie_") {
        return Some(named("cookie", cookie.to_owned()));
    }
    Some(match name {
        "remote_addr" | "binary_remote_addr" => (address(), Test::Always),
        "host" => plain("host"),
        "uri" => {
            let distinct = Map::from([("trailing_slash", "distinct".into())]);
            (Map::from([("path", distinct.into())]), Test::Always)
        }
        "request_method" | "method" => plain("method"),
        "consumer_name" => (places.part(), Test::Always),
        "server_addr" | "route_id" | "service_id" => (literal(name), Test::Always),
        _ => return None,
    })
}

/// True if it counts in each node by itself, which is the default.
fn is_local(plugin: &Plugin<'_>) -> bool {
    matches!(plugin.config.text_of("policy"), "local" | "")
}

/// Variables that authentication sets, also by the headers that it writes.
const OF_CONSUMER: &str =
    "consumer_name http_x_consumer_username http_x_consumer_custom_id http_x_credential_identifier";

/// True if a plugin counts what authentication names.
pub fn is_by_consumer(config: &Node) -> bool {
    let all = config.list("rules").iter().chain([config]);
    let names = |of: &Node| OF_CONSUMER.split(' ').any(|name| of.text_of("key").contains(name));
    all.into_iter().any(names)
}

fn limit(name: &str, algorithm: &str) -> Map {
    Map::from([("name", name.into()), ("algorithm", algorithm.into())])
}

/// The whole number that is not less than these thousandths.
const fn whole(thousandths: u64) -> u64 {
    thousandths.div_ceil(1_000)
}

/// A decimal number as so many requests in so many seconds. What is beyond the seventh decimal is cut off: weir's longest time is 366 days.
fn fraction(text: &str) -> Option<(u64, u64)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part = part.get(..7).unwrap_or(part).trim_end_matches('0');
    let count = format!("{whole}{part}").parse().ok()?;
    let seconds = 10_u64.checked_pow(part.len().try_into().ok()?)?;
    (1..=MAX_UNITS).contains(&count).then_some((count, seconds))
}

/// A rate in the shortest unit that makes its count a whole number.
fn rate_of(count: u64, seconds: u64) -> String {
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let whole = units.into_iter().find_map(|(unit, length)| {
        let units = count.saturating_mul(length);
        units.is_multiple_of(seconds).then(|| format!("{}/{unit}", units / seconds))
    });
    whole.unwrap_or_else(|| format!("{count}/{seconds}s"))
}
