// SPDX-License-Identifier: Apache-2.0
//! Envoy's filter local_ratelimit: its own token bucket, and those that routes and virtual hosts have in its place.

use core::cmp::Reverse;

use super::super::Object;
use super::super::notes::{Note, Notes};
use super::super::ratelimit::{
    is_where, note_chosen, note_differences, note_patched, note_selector, number, patched, percent, rank,
    routes, typed,
};
use super::super::status::of_rejections;
use super::super::test::Test;
use super::{Writer, attribute};
use crate::document::{Node, Place};
use crate::tree::{Map, Tree};

/// The fields of the filter that are imported, or that weir handles in its own way.
const KNOWN: &str = "@type stat_prefix status token_bucket filter_enabled filter_enforced enable_x_ratelimit_headers response_headers_to_add \
    descriptors rate_limits stage always_consume_default_token_bucket local_rate_limit_per_downstream_connection=false local_cluster_rate_limit";

const TYPE: &str = "LocalRateLimit";

/// Settings that routes and their tables have in place of a filter's own.
struct Own<'a> {
    /// The name of the filter.
    filter: &'a str,
    /// None where they disable it.
    config: Option<&'a Node>,
    requests: Test,
    name: String,
}

/// The filters and settings of one document of Envoy, or of one EnvoyFilter of Istio.
struct Found<'a> {
    file: usize,
    name: &'a str,
    root: &'a Node,
    /// Their names and settings, and whether they are disabled.
    filters: Vec<(&'a str, &'a Node, bool)>,
    own: Vec<Own<'a>>,
}

/// The policies of the filters in documents of Envoy, and in EnvoyFilters of Istio. The settings that replace a filter's own may be in another
/// document.
pub fn import(objects: &[Object<'_>], writer: &mut Writer<'_>) {
    let (mut all, mut patches, mut places, mut limited) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let filters = Filters::of(objects, writer.notes);
    for (number, object) in objects.iter().enumerate() {
        let is_patch = object.kind() == "EnvoyFilter";
        let name = if is_patch { object.metadata("name") } else { "all" };
        let root = object.root;
        let mut found = Found { file: object.file, name, root, filters: Vec::new(), own: Vec::new() };
        let known = patches.len();
        object.root.walk(&mut |node| {
            let config = filter_in(node, writer.notes).filter(|config| !filters.is_chosen(config));
            let (filter, is_disabled) = (node.text_of("name"), node.is_true("disabled"));
            found.filters.extend(config.map(|config| (filter, config, is_disabled)));
            let is_table = !node.list("virtual_hosts").is_empty();
            let own = if is_table { of_table(object.file, node, &filters, writer.notes) } else { Vec::new() };
            note_listener(object.file, node, !own.is_empty(), &mut places, writer.notes);
            found.own.extend(own);
            if is_patch && let Some(value) = node.at(&["patch", "value"]) {
                let known = patches.len();
                patch((object.file, number), node, &filters, &mut patches, writer);
                if patches.len() > known || filter_in(value, writer.notes).is_some() {
                    limited.push((object.file, root, node));
                }
            }
        });
        if is_patch && !(found.filters.is_empty() && found.own.is_empty() && patches.len() == known) {
            note_selector(object.root, object.file, writer.notes);
        }
        all.push(found);
    }
    note_differences(&limited, writer.notes);
    let requests = selected(&patches, &all, &filters);
    for (patch, requests) in patches.iter().zip(requests) {
        if let Some(found) = all.get_mut(patch.object) {
            let name = found.name.to_owned();
            found.own.push(Own { filter: patch.filter, config: patch.config, requests, name });
        }
    }
    let rest = |of: &Found<'_>, filter: &str| {
        let own = all.iter().filter(|by| !by.own.is_empty() && is_where(by.root, of.root));
        let own = own.flat_map(|by| &by.own);
        filters.rest(own, filter)
    };
    let rests = all.iter().map(|of| of.filters.iter().map(|(name, ..)| rest(of, name)).collect());
    let rests: Vec<Vec<Test>> = rests.collect();
    // What Envoy has (`/config_dump`) names each of them twice.
    let mut seen = Vec::new();
    let mut is_new = |config: &Node, requests: &Test| {
        let one = (config.json(), requests.clone());
        let is_new = !seen.contains(&one);
        seen.push(one);
        is_new
    };
    for (Found { file, name, filters, own, .. }, rests) in all.into_iter().zip(rests) {
        for ((_, filter, is_disabled), rest) in filters.into_iter().zip(rests) {
            writer.notes.read(filter);
            if is_disabled {
                let why = "the filter is disabled where a route has no settings of its own, so its own are not imported";
                writer.note(file, filter, "token_bucket", why, "");
            } else if is_new(filter, &rest) {
                policy(file, filter, (name, &rest), writer);
            }
        }
        for Own { config, requests, name, .. } in own {
            let Some(config) = config else { continue };
            writer.notes.read(config);
            if is_new(config, &requests) {
                policy(file, config, (&name, &requests), writer);
            }
        }
    }
}

/// The names of the filters in all objects, and the settings that a matcher chooses, which are not imported.
struct Filters<'a> {
    names: Vec<&'a str>,
    /// Each with the number of its file.
    chosen: Vec<(usize, &'a Node)>,
}

impl<'a> Filters<'a> {
    fn of(objects: &[Object<'a>], notes: &mut Notes) -> Self {
        let (mut names, mut chosen, mut around) = (Vec::new(), Vec::new(), Vec::new());
        for object in objects {
            object.root.walk(&mut |node| {
                if filter_in(node, notes).is_some() {
                    names.push(node.text_of("name"));
                }
                if let Some(inner) = chooser(node) {
                    inner.walk(&mut |node| {
                        chosen.extend(filter_in(node, notes).map(|config| (object.file, config)));
                    });
                }
                let Some(config) = node.get("typed_config") else { return };
                let only =
                    chooser(config).and_then(|of| of.get("extension_config").or(of.get("typed_config")));
                if only.and_then(|only| filter_in(only, notes)).is_some() {
                    around.push(node.text_of("name"));
                    notes.read(config);
                }
            });
        }
        // What routes have in place of such a filter's settings is for the requests that the matcher chooses, too.
        for object in objects {
            object.root.walk(&mut |node| {
                let configs = node.get("typed_per_filter_config").map(Node::fields).unwrap_or_default();
                for (_, _, config) in configs.iter().filter(|(name, ..)| around.contains(&name.as_str())) {
                    let inner = config.get("config").unwrap_or(config);
                    chosen.extend(settings(inner, notes).map(|config| (object.file, config)));
                }
            });
        }
        for (file, config) in &chosen {
            notes.read(config);
            let why =
                "it is for the requests that a matcher chooses, which is not read, so it is not imported";
            let instead = "Write the policy by hand, with what the matcher says as its `match`";
            notes.add(Note::at(*file, config.place.line, TYPE, why, instead));
        }
        Self { names, chosen }
    }

    /// True if settings under these names may be for one filter: that of both, or one that is not known.
    fn may_be_one(&self, one: &str, other: &str) -> bool {
        one == other || !(self.names.contains(&one) && self.names.contains(&other))
    }

    /// The requests without settings of their own for this filter.
    fn rest<'b>(&self, own: impl Iterator<Item = &'b Own<'b>>, filter: &str) -> Test {
        let own = own.filter(|own| self.may_be_one(own.filter, filter));
        Test::any_of(own.map(|own| own.requests.clone())).negated()
    }

    fn is_chosen(&self, config: &Node) -> bool {
        self.chosen.iter().any(|(_, other)| core::ptr::eq(*other, config))
    }
}

/// The types of Envoy that let a matcher choose if a filter runs, or which one.
fn chooser(config: &Node) -> Option<&Node> {
    let (kind, inner) = typed(config);
    let kind = kind.rsplit('.').next().unwrap_or_default();
    ["ExtensionWithMatcher", "Composite", "ExecuteFilterAction"].contains(&kind).then_some(inner)
}

/// Notes a second connection manager with the filter, or a second table of routes with settings, and what a patch of Istio selects besides
/// names.
fn note_listener(
    file: usize,
    node: &Node,
    is_table: bool,
    places: &mut Vec<(bool, serde_json::Value)>,
    notes: &mut Notes,
) {
    let mut configs = node.list("http_filters").iter().filter_map(|filter| filter.get("typed_config"));
    if is_table || configs.any(|config| settings(config, notes).is_some()) {
        let place = (is_table, node.json());
        let is_second = places.iter().any(|other| other.0 == is_table && *other != place);
        if is_second && !places.contains(&place) {
            let why = "weir does not know which listener a request comes from, so the limits of all of them may apply to it";
            let (field, instead) =
                (if is_table { "virtual_hosts" } else { "http_filters" }, "Import one listener at a time");
            notes.add(Note::at(file, node.place_of(field).line, field, why, instead));
        }
        places.push(place);
    }
    let value = node.at(&["patch", "value", "typed_config"]);
    if value.and_then(|config| settings(config, notes)).is_some() {
        note_chosen(node, file, notes);
    }
}

/// The settings in an entry of a list of filters.
fn filter_in<'a>(entry: &'a Node, notes: &mut Notes) -> Option<&'a Node> {
    entry.get("typed_config").and_then(|config| settings(config, notes))
}

/// The settings of the filter: this value, or what a TypedStruct has inside. Filters of other protocols have the same name.
fn settings<'a>(config: &'a Node, notes: &mut Notes) -> Option<&'a Node> {
    let (kind, inner) = typed(config);
    let is_it = kind.contains(".http.") && kind.rsplit('.').next() == Some(TYPE);
    if is_it && !core::ptr::eq(inner, config) {
        notes.read(config);
    }
    is_it.then_some(inner)
}

/// The settings of filters at a route, a virtual host or a table of them, with the filters' names; none if they disable it.
fn all_settings<'a>(
    node: &'a Node,
    filters: &Filters<'_>,
    notes: &mut Notes,
) -> Vec<(&'a str, Option<&'a Node>)> {
    let configs = node.get("typed_per_filter_config").map(Node::fields).unwrap_or_default();
    let of = |(name, _, config): &'a (String, Place, Node)| {
        let is_wrapped = config.type_name() == "FilterConfig";
        let inner = config.get("config").filter(|_| is_wrapped);
        let found = settings(inner.unwrap_or(config), notes).filter(|config| !filters.is_chosen(config));
        let is_disabled = is_wrapped && config.is_true("disabled");
        let is_filter = name.contains("local_ratelimit") || filters.names.contains(&name.as_str());
        let is_it = found.is_some() || is_disabled && is_filter;
        if is_it {
            notes.read(config);
        }
        is_it.then_some((name.as_str(), found.filter(|_| !is_disabled)))
    };
    configs.iter().filter_map(of).collect()
}

/// The settings in a table of routes: those of a route replace those of its virtual host, and these those of the table.
fn of_table<'a>(file: usize, table: &'a Node, filters: &Filters<'_>, notes: &mut Notes) -> Vec<Own<'a>> {
    let (mut own, mut by_match): (Vec<Own<'_>>, Option<Vec<Vec<Test>>>) = (Vec::new(), None);
    // Several routes may have one name, also in different virtual hosts.
    let all_routes = || table.list("virtual_hosts").iter().flat_map(|host| host.list("routes"));
    let is_repeated =
        |name: &str| all_routes().filter(|route| route.text_of("name") == name).nth(1).is_some();
    for (place, host) in table.list("virtual_hosts").iter().enumerate() {
        let above = own.len();
        for (number, route) in host.list("routes").iter().enumerate() {
            for (filter, config) in all_settings(route, filters, notes) {
                let mut name = route.text_of("name").to_owned();
                let requests = if name.is_empty() || is_repeated(&name) {
                    // Envoy does not say which route it is, so its `match` does.
                    if name.is_empty() {
                        name = format!("{}-route", host.text_of("name"));
                    }
                    let tests = by_match.get_or_insert_with(|| routes(table, file, notes));
                    tests.get(place).and_then(|tests| tests.get(number)).cloned().unwrap_or(Test::NEVER)
                } else {
                    attribute(["xds", "route_name"], "exact", &name)
                };
                own.push(Own { filter, config, requests, name });
            }
        }
        let level = own.len();
        for (filter, config) in all_settings(host, filters, notes) {
            let name = host.text_of("name").to_owned();
            let routes = own.iter().take(level).skip(above);
            let requests = attribute(["xds", "virtual_host_name"], "exact", &name);
            let requests = requests.and(filters.rest(routes, filter));
            own.push(Own { filter, config, requests, name });
        }
    }
    let level = own.len();
    for (filter, config) in all_settings(table, filters, notes) {
        let requests = filters.rest(own.iter().take(level), filter);
        own.push(Own { filter, config, requests, name: String::from("routes") });
    }
    own
}

/// The settings that a patch of Istio gives to routes or virtual hosts. Empty names stand for all.
struct Patch<'a> {
    /// The number of its document.
    object: usize,
    node: &'a Node,
    filter: &'a str,
    config: Option<&'a Node>,
    host: &'a str,
    route: &'a str,
}

fn patch<'a>(
    (file, object): (usize, usize),
    node: &'a Node,
    filters: &Filters<'_>,
    found: &mut Vec<Patch<'a>>,
    writer: &mut Writer<'_>,
) {
    let Some(value) = node.at(&["patch", "value"]) else { return };
    let host = node.at(&["match", "routeConfiguration", "vhost"]);
    let route = host.and_then(|host| host.get("route"));
    let name = |of: Option<&'a Node>| of.map(|of| of.text_of("name")).unwrap_or_default();
    for (filter, config) in all_settings(value, filters, writer.notes) {
        note_patched(node, file, writer.notes);
        found.push(Patch { object, node, filter, config, host: name(host), route: name(route) });
    }
}

/// The requests of each patch: the settings of a route replace those of its virtual host, and these those of the table; a later patch replaces
/// an earlier one.
fn selected(patches: &[Patch<'_>], all: &[Found<'_>], filters: &Filters<'_>) -> Vec<Test> {
    let is_where = |one: &Patch<'_>, other: &Patch<'_>| {
        let objects = all.get(one.object).zip(all.get(other.object));
        objects.is_some_and(|(one, other)| is_where(one.root, other.root))
    };
    let requests = |of: &Patch<'_>| patched(of.node);
    let are_one = |one: &str, other: &str| one == other || one.is_empty() || other.is_empty();
    let all = patches.iter().enumerate().map(|(number, own)| {
        let wins = |(other_number, other): &(usize, &Patch<'_>)| {
            (Reverse(rank(other.node)), *other_number) > (Reverse(rank(own.node)), number)
                && filters.may_be_one(other.filter, own.filter)
                && are_one(other.host, own.host)
                && are_one(other.route, own.route)
                && is_where(other, own)
        };
        let others = Test::any_of(patches.iter().enumerate().filter(wins).map(|(_, of)| requests(of)));
        requests(own).and(others.negated())
    });
    all.collect()
}

fn policy(file: usize, config: &Node, (name, requests): (&str, &Test), writer: &mut Writer<'_>) {
    writer.notes.unread(file, config, KNOWN);
    for field in ["descriptors", "rate_limits"] {
        if !config.list(field).is_empty() {
            let why = "limits by descriptors are not imported here";
            writer.note(
                file,
                config,
                field,
                why,
                "Write a policy for each: its entries are `match` and `subject`",
            );
        }
    }
    let Some(bucket) = config.get("token_bucket") else {
        let why = "it has no `token_bucket`, so it limits nothing by itself";
        return writer.note(file, config, "token_bucket", why, "");
    };
    writer.notes.unread(file, bucket, "max_tokens tokens_per_fill fill_interval");
    // Without `filter_enabled` the filter does nothing, and without `filter_enforced` it rejects nothing.
    let [enabled, enforced] =
        ["filter_enabled", "filter_enforced"].map(|field| percent(config, field).unwrap_or(0));
    if enabled == 0 {
        let why = "the filter is off by default, because it has no `filter_enabled` above 0 %, so it is not imported";
        return writer.note(
            file,
            config,
            "filter_enabled",
            why,
            "If the runtime switches it on, write the value",
        );
    }
    for (field, percent) in [("filter_enabled", enabled), ("filter_enforced", enforced)] {
        if (1..100).contains(&percent) {
            let why = "Envoy draws a part of the requests, and the policy is for all";
            writer.note(file, config, field, why, "`enforce_percent` draws a part of the subjects");
        }
    }
    let (Some(capacity), Some(interval)) = (bucket.get("max_tokens").and_then(number), interval(bucket))
    else {
        let why = "it needs `max_tokens` and `fill_interval`, so it is not imported";
        return writer.note(file, bucket, "token_bucket", why, "Correct it");
    };
    let why = "each Envoy counts for itself, and all proxies with weir count together";
    if requests.is_never() {
        let why = "all routes have a limit of their own in its place, so it is not imported";
        return writer.note(file, config, "token_bucket", why, "");
    }
    // With it, the Envoys of a cluster divide the bucket.
    if config.get("local_cluster_rate_limit").is_none() {
        let instead = "Multiply it by the number of Envoys if it was meant for one of them";
        writer.note(file, config, "token_bucket", why, instead);
    }
    note_others(file, config, writer);
    let mut made = writer.policy(file, config, name, requests);
    made.set("subject", vec![Tree::from(Map::from([("literal", name.into())]))]);
    let refill = bucket.get("tokens_per_fill").and_then(number).unwrap_or(1);
    let limit = Map::from([
        ("name", "tokens".into()),
        ("algorithm", "token_bucket".into()),
        ("capacity", capacity.max(1).into()),
        ("refill", refill.into()),
        ("interval", interval.into()),
    ]);
    made.set("limits", vec![Tree::from(limit)]);
    if enforced == 0 {
        made.set("mode", "shadow");
    }
    let mut response = Map::new();
    if capacity == 0 {
        made.set("deny", vec![Tree::from(Map::new())]);
        response.set("deny_status", 429_u64);
    }
    match of_rejections(config, "status") {
        Ok(Some(code)) => {
            response.set(if capacity == 0 { "deny_status" } else { "status" }, code);
        }
        Ok(None) => {}
        Err(why) => writer.note(file, config, "status", why, "Write the number"),
    }
    let has_headers = config.text_of("enable_x_ratelimit_headers") == "DRAFT_VERSION_03";
    response.set("headers", if has_headers { "x_ratelimit" } else { "none" });
    made.set("response", response);
    writer.made.push(made);
}

/// Notes settings that weir does not support, where they are not the default.
fn note_others(file: usize, config: &Node, writer: &mut Writer<'_>) {
    if !config.list("response_headers_to_add").is_empty() {
        let why = "weir adds no headers of one's own to a rejection";
        let instead = "Envoy's `local_reply_config` adds headers by the status";
        writer.note(file, config, "response_headers_to_add", why, instead);
    }
    if config.get("stage").and_then(number).is_some_and(|stage| stage != 0) {
        let why =
            "it chooses among the `rate_limits` of routes, and limits by descriptors are not imported here";
        writer.note(file, config, "stage", why, "");
    }
    let name = "always_consume_default_token_bucket";
    let has_descriptors = !config.list("descriptors").is_empty();
    if has_descriptors && config.get(name).is_some() && !config.is_true(name) {
        let why = "requests with a limit by descriptors do not count in Envoy's `token_bucket`, and do in the policy";
        writer.note(file, config, name, why, "Exclude them in its `match`");
    }
}

/// `fill_interval`: `1s`, `0.250s`, or an object with `seconds` and `nanos`.
fn interval(bucket: &Node) -> Option<String> {
    let interval = bucket.get("fill_interval")?;
    let millis = match interval.text() {
        Some(text) => super::super::thousandths_of(text.strip_suffix('s')?)?,
        None => {
            let seconds = interval.get("seconds").and_then(number).unwrap_or(0);
            let nanos = interval.get("nanos").and_then(number).unwrap_or(0);
            seconds.checked_mul(1_000)?.checked_add(nanos / 1_000_000)?
        }
    };
    Some(if millis.is_multiple_of(1_000) { format!("{}s", millis / 1_000) } else { format!("{millis}ms") })
}
