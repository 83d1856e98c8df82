// SPDX-License-Identifier: Apache-2.0
//! Envoy's filter local_ratelimit: its own token bucket, and those that routes and virtual hosts have in its place.

use core::cmp::Reverse;

use super::super::nginx::duration;
use super::super::notes::Notes;
use super::super::ratelimit::{
    Change, Proxies, Scope, changes_filter, chooser, clusters, domains, is_where, note_chosen, note_cluster,
    note_differences, note_other, note_patched, note_selector, note_unreadable, number, only_cluster,
    percent, rank, replaced_filter, routes, typed,
};
use super::super::status::of_rejections;
use super::super::test::Test;
use super::super::{Object, literal};
use super::{Writer, attribute};
use crate::document::{Node, Place};
use crate::tree::{Map, Tree};

/// The fields of the filter that are imported, or that weir handles in its own way.
const KNOWN: &str = "@type stat_prefix status token_bucket filter_enabled filter_enforced enable_x_ratelimit_headers response_headers_to_add \
    descriptors rate_limits stage always_consume_default_token_bucket local_rate_limit_per_downstream_connection local_cluster_rate_limit \
    rate_limited_as_resource_exhausted=true";

const TYPE: &str = "LocalRateLimit";

/// Settings that routes and their tables have in place of a filter's own.
struct Own<'a> {
    /// The name of the filter.
    filter: &'a str,
    /// None where they disable it, and an empty object where they switch it on: then its own settings count.
    config: Option<&'a Node>,
    requests: Test,
    name: String,
    /// Several routes, virtual hosts or tables have these settings, each with a bucket of its own.
    is_each: bool,
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
    let (filters, mut changes) = (Filters::of(objects, writer.notes), Changes::default());
    for (number, object) in objects.iter().enumerate() {
        let is_patch = object.kind() == "EnvoyFilter";
        let name = if is_patch { object.metadata("name") } else { "all" };
        let root = object.root;
        let mut found = Found { file: object.file, name, root, filters: Vec::new(), own: Vec::new() };
        let known = patches.len();
        let has_settings = |patches: &[Patch<'_>], known: usize| {
            patches.iter().skip(known).any(|patch| patch.filter.is_some())
        };
        object.root.walk(&mut |node| {
            let config = filter_in(node, writer.notes).filter(|config| !filters.is_chosen(config));
            if is_patch {
                changes.read(object, node, &filters, writer.notes);
            }
            if let Some(config) = config.filter(|config| changes.are_partial(config)) {
                return writer.notes.read(config);
            }
            let (filter, is_disabled) = (node.text_of("name"), node.truth("disabled") == Some(true));
            found.filters.extend(config.map(|config| (filter, config, is_disabled)));
            let hosts = node.each("virtual_hosts");
            let own = of_table(object.file, (Some(node), hosts), &filters, writer.notes);
            note_listener(object.file, node, !own.is_empty(), &mut places, writer.notes);
            found.own.extend(own);
            if is_patch && let Some(value) = node.at(&["patch", "value"]) {
                let known = patches.len();
                patch((object.file, number), node, &filters, &mut patches, writer);
                if has_settings(&patches, known) || filter_in(value, writer.notes).is_some() {
                    limited.push((object.file, root, node));
                }
            }
        });
        let has_none = found.filters.is_empty() && found.own.is_empty() && !has_settings(&patches, known);
        if is_patch && !has_none {
            note_selector(object.root, object.file, writer.notes);
        }
        all.push(found);
    }
    note_differences(&limited, writer.notes);
    changes.apply(&mut all, writer.notes);
    let requests = selected(&patches, &all, &filters);
    for (patch, requests) in patches.iter().zip(requests) {
        if let (Some(found), Some(filter)) = (all.get_mut(patch.object), patch.filter) {
            let name = found.name.to_owned();
            let (config, is_each) = (patch.config, patch.is_each);
            found.own.push(Own { filter, config, requests, name, is_each });
        }
    }
    let rest = |of: &Found<'_>, filter: &str, is_disabled: bool| {
        let own = all.iter().filter(|by| !by.own.is_empty() && is_where(by.root, of.root));
        // Of a disabled filter, the requests for which it is switched on; else all but those that have other settings.
        let own = own.flat_map(|by| &by.own).filter(|own| is_on(own.config) == is_disabled);
        let rest = filters.rest(own, filter);
        if is_disabled { rest.negated() } else { rest }
    };
    let of_each = |of: &Found<'_>| {
        of.filters.iter().map(|(name, _, is_disabled)| rest(of, name, *is_disabled)).collect()
    };
    let rests = all.iter().map(of_each);
    let rests: Vec<Vec<Test>> = rests.collect();
    // What Envoy has (`/config_dump`) names each of them twice.
    let mut seen = Vec::new();
    let mut is_new = |config: &Node, requests: &Test, root: &Node| {
        let one = (config.json(), requests.clone(), Proxies::of(root));
        let is_new = !seen.contains(&one);
        seen.push(one);
        is_new
    };
    for (Found { file, name, filters, own, root }, rests) in all.into_iter().zip(rests) {
        writer.file = file;
        for ((_, filter, is_disabled), rest) in filters.into_iter().zip(rests) {
            writer.notes.read(filter);
            if is_disabled && rest.is_never() {
                let why = "the filter is disabled where a route has no settings of its own, so its own are not imported";
                writer.note(filter, "token_bucket", why, "");
            } else if is_new(filter, &rest, root) {
                policy(filter, name, &rest, false, writer);
            }
        }
        for Own { config, requests, name, is_each, .. } in own {
            let Some(config) = config.filter(|config| !is_on(Some(config))) else { continue };
            writer.notes.read(config);
            if is_new(config, &requests, root) {
                policy(config, &name, &requests, is_each, writer);
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
            notes.at(*file, config.place.line, TYPE, why, instead);
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

/// The changes that patches of Istio make in filters that are elsewhere.
#[derive(Default)]
struct Changes<'a> {
    /// Settings that are not all that a filter needs.
    partial: Vec<*const Node>,
    /// The names of the other filters, with the new settings and their EnvoyFilter.
    whole: Vec<(&'a str, &'a Node, &'a Node)>,
}

impl<'a> Changes<'a> {
    fn read(&mut self, object: &Object<'a>, patch: &'a Node, filters: &Filters<'_>, notes: &mut Notes) {
        let value = patch.at(&["patch", "value"]);
        let config = value.and_then(|value| filter_in(value, notes));
        if value.is_some() && config.is_none() {
            return;
        }
        let is_whole = config.is_some_and(|config| {
            let bucket = config.get("token_bucket");
            bucket.is_some_and(|bucket| bucket.get("max_tokens").is_some() && interval(bucket).is_some())
                && ["filter_enabled", "filter_enforced"].iter().all(|field| percent(config, field).is_some())
        });
        let replaced = config.and_then(|config| {
            Some((replaced_filter(patch, is_whole, object.file, notes)?, config, object.root))
        });
        if let Some(replaced) = replaced {
            self.whole.push(replaced);
        } else if changes_filter(patch, object.file, &filters.names, notes) {
            self.partial.extend(config.map(core::ptr::from_ref));
        }
    }

    fn are_partial(&self, config: &Node) -> bool {
        self.partial.contains(&core::ptr::from_ref(config))
    }

    /// Leaves out the filters that have new settings.
    fn apply(&self, all: &mut [Found<'_>], notes: &mut Notes) {
        for Found { filters, root, .. } in all {
            filters.retain(|(name, config, _)| {
                let is_new = self.whole.iter().any(|(_, new, _)| core::ptr::eq(*new, *config));
                let is_old = |(of, _, by): &(&str, &Node, &Node)| of == name && is_where(by, root);
                let is_left_out = !is_new && self.whole.iter().any(is_old);
                if is_left_out {
                    notes.read(config);
                }
                !is_left_out
            });
        }
    }
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
    let mut configs = node.each("http_filters").iter().filter_map(|filter| filter.get("typed_config"));
    if is_table || configs.any(|config| settings(config, notes).is_some()) {
        let place = (is_table, node.json());
        let is_second = places.iter().any(|other| other.0 == is_table && *other != place);
        if is_second && !places.contains(&place) {
            let why = "weir does not know which listener a request comes from, so the limits of all of them may apply to it";
            let (field, instead) =
                (if is_table { "virtual_hosts" } else { "http_filters" }, "Import one listener at a time");
            notes.field(file, node, field, why, instead);
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

/// True if this configuration of a filter for a route is none, which switches the filter on.
fn is_on(config: Option<&Node>) -> bool {
    config.is_some_and(Node::is_empty_object)
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
        let is_disabled = is_wrapped && config.truth("disabled") == Some(true);
        let is_filter = name.contains("local_ratelimit") || filters.names.contains(&name.as_str());
        let found = found.or(inner.filter(|inner| is_filter && is_on(Some(inner))));
        let is_it = found.is_some() || is_disabled && is_filter;
        if is_it {
            notes.read(config);
        }
        is_it.then_some((name.as_str(), found.filter(|_| !is_disabled)))
    };
    configs.iter().filter_map(of).collect()
}

/// The settings at a route: those of its only cluster replace its own. A note says if several clusters have some.
fn of_route<'a>(
    file: usize,
    route: &'a Node,
    filters: &Filters<'_>,
    notes: &mut Notes,
) -> Vec<(&'a str, Option<&'a Node>)> {
    let only = only_cluster(route);
    for cluster in if only.is_none() { clusters(route) } else { &[] } {
        if !all_settings(cluster, filters, notes).is_empty() {
            note_cluster(cluster, file, notes);
        }
    }
    let mut found = only.map(|cluster| all_settings(cluster, filters, notes)).unwrap_or_default();
    let mut own = all_settings(route, filters, notes);
    own.retain(|(filter, _)| found.iter().all(|(closer, _)| !filters.may_be_one(closer, filter)));
    found.extend(own);
    found
}

/// The settings in a table of routes: those of a route replace those of its virtual host, and these those of the table.
fn of_table<'a>(
    file: usize,
    (table, hosts): (Option<&'a Node>, &'a [Node]),
    filters: &Filters<'_>,
    notes: &mut Notes,
) -> Vec<Own<'a>> {
    let (mut own, mut all_domains): (Vec<Own<'_>>, _) = (Vec::new(), None);
    // Several routes may have one name, also in different virtual hosts.
    let all_routes = || hosts.iter().flat_map(|host| host.each("routes"));
    let is_repeated =
        |name: &str| all_routes().filter(|route| route.text_of("name") == name).nth(1).is_some();
    for (place, host) in hosts.iter().enumerate() {
        let (above, mut by_match) = (own.len(), None);
        for (number, route) in host.each("routes").iter().enumerate() {
            for (filter, config) in of_route(file, route, filters, notes) {
                let mut name = route.text_of("name").to_owned();
                let requests = if name.is_empty() || is_repeated(&name) {
                    // Envoy does not say which route it is, so its `match` does.
                    if name.is_empty() {
                        name = format!("{}-route", host.text_of("name"));
                    }
                    let tests = by_match.get_or_insert_with(|| {
                        let all =
                            all_domains.get_or_insert_with(|| hosts.iter().map(domains).collect::<Vec<_>>());
                        routes(host, (place, all), file, notes)
                    });
                    tests.get(number).cloned().unwrap_or(Test::NEVER)
                } else {
                    attribute(["xds", "route_name"], "exact", &name)
                };
                own.push(Own { filter, config, requests, name, is_each: false });
            }
        }
        let level = own.len();
        for (filter, config) in all_settings(host, filters, notes) {
            let name = host.text_of("name").to_owned();
            let routes = own.iter().take(level).skip(above);
            let requests = attribute(["xds", "virtual_host_name"], "exact", &name);
            let requests = requests.and(filters.rest(routes, filter));
            own.push(Own { filter, config, requests, name, is_each: false });
        }
    }
    let level = own.len();
    let table = table.filter(|_| !hosts.is_empty());
    for (filter, config) in table.map(|table| all_settings(table, filters, notes)).unwrap_or_default() {
        let requests = filters.rest(own.iter().take(level), filter);
        own.push(Own { filter, config, requests, name: String::from("routes"), is_each: false });
    }
    own
}

/// The settings that a patch of Istio gives to routes or virtual hosts. Empty names stand for all.
#[derive(Clone)]
struct Patch<'a> {
    /// The number of its document.
    object: usize,
    rank: u8,
    /// None for what a route or a virtual host that it adds takes from others.
    filter: Option<&'a str>,
    config: Option<&'a Node>,
    host: &'a str,
    route: &'a str,
    scope: Scope,
    /// It may be for several routes, virtual hosts or tables.
    is_each: bool,
}

fn patch<'a>(
    (file, object): (usize, usize),
    node: &'a Node,
    filters: &Filters<'_>,
    found: &mut Vec<Patch<'a>>,
    writer: &mut Writer<'_>,
) {
    let Some(value) = node.at(&["patch", "value"]) else { return };
    let change = Change::of(node);
    let is_host = change == Change::Add && rank(node) == 1;
    let hosts = if is_host { core::slice::from_ref(value) } else { &[] };
    let inner = of_table(file, (None, hosts), filters, writer.notes);
    let own = if is_host { Vec::new() } else { of_route(file, value, filters, writer.notes) };
    let has_none = inner.is_empty() && own.is_empty();
    if has_none && change != Change::Add {
        return;
    }
    if change == Change::Other {
        return note_other(node, file, writer.notes);
    }
    // Of a route that is added without settings, the requests matter.
    let mut unused = Notes::default();
    let scope = Scope::of(node, file, if has_none { &mut unused } else { writer.notes });
    if !has_none {
        note_patched(node, file, writer.notes);
    }
    let table = node.at(&["match", "routeConfiguration"]);
    let host = table.and_then(|table| table.get("vhost"));
    let route = if scope.is_new { Some(value) } else { host.and_then(|host| host.get("route")) };
    let (host, route) = if is_host { (Some(value), None) } else { (host, route) };
    let [table, host, route] =
        [table, host, route].map(|of| of.map(|of| of.text_of("name")).unwrap_or_default());
    let rank = rank(node);
    let is_each = match rank {
        0 => host.is_empty() || route.is_empty() && !scope.is_new,
        1 => host.is_empty() && !scope.is_new,
        _ => table.is_empty(),
    };
    let new = Patch { object, rank, filter: None, config: None, host, route, scope, is_each };
    let settings = own.into_iter().map(|(filter, config)| (filter, config, Test::Always));
    let inner = inner.into_iter().map(|own| (own.filter, own.config, own.requests));
    for (filter, config, requests) in settings.chain(inner) {
        let Scope { own, taken, is_new } = new.scope.clone();
        let scope = Scope { own: requests.clone().and(own), taken: requests.and(taken), is_new };
        found.push(Patch { filter: Some(filter), config, scope, ..new });
    }
    if new.scope.is_new {
        found.push(new);
    }
}

/// The requests of each patch: the settings of a route replace those of its virtual host, and these those of the table; a later patch replaces
/// an earlier one.
fn selected(patches: &[Patch<'_>], all: &[Found<'_>], filters: &Filters<'_>) -> Vec<Test> {
    let is_where = |one: &Patch<'_>, other: &Patch<'_>| {
        let objects = all.get(one.object).zip(all.get(other.object));
        objects.is_some_and(|(one, other)| is_where(one.root, other.root))
    };
    let are_one = |one: &str, other: &str| one == other || one.is_empty() || other.is_empty();
    let requests = |(number, own): (usize, &Patch<'_>)| {
        let wins = |(other_number, other): &(usize, &Patch<'_>)| {
            let is_same = other.filter.zip(own.filter).is_some_and(|(one, of)| filters.may_be_one(one, of));
            let is_later = (Reverse(other.rank), *other_number) > (Reverse(own.rank), number);
            // Istio patches what exists before it adds.
            let is_apart = other.scope.is_new && other.filter.is_none() && other.rank >= own.rank;
            let is_closer = if other.scope.is_new { other.rank < own.rank } else { is_later };
            !own.scope.is_new
                && (is_apart || is_closer && is_same)
                && are_one(other.host, own.host)
                && are_one(other.route, own.route)
                && is_where(other, own)
        };
        let others = || patches.iter().enumerate().filter(wins).map(|(_, other)| &other.scope.taken);
        if others().any(|taken| *taken == own.scope.own) {
            return Test::NEVER;
        }
        own.scope.own.clone().and(Test::any_of(others().cloned()).negated())
    };
    patches.iter().enumerate().map(requests).collect()
}

fn policy(config: &Node, name: &str, requests: &Test, is_each: bool, writer: &mut Writer<'_>) {
    writer.unread(config, KNOWN);
    note_unreadable(writer.notes, writer.file, config);
    for field in ["descriptors", "rate_limits"] {
        if !config.each(field).is_empty() {
            let why = "limits by descriptors are not imported here";
            let instead = "Write a policy for each: its entries are `match` and `subject`";
            writer.note(config, field, why, instead);
        }
    }
    let Some(bucket) = config.get("token_bucket") else {
        let why = "it has no `token_bucket`, so it limits nothing by itself";
        return writer.note(config, "token_bucket", why, "");
    };
    writer.unread(bucket, "max_tokens tokens_per_fill fill_interval");
    // Without `filter_enabled` the filter does nothing, and without `filter_enforced` it rejects nothing.
    let [enabled, enforced] =
        ["filter_enabled", "filter_enforced"].map(|field| percent(config, field).unwrap_or(0));
    if enabled == 0 {
        let why = "the filter is off by default, because it has no `filter_enabled` above 0 %, so it is not imported";
        let instead = "If the runtime switches it on, write the value";
        return writer.note(config, "filter_enabled", why, instead);
    }
    for (field, percent) in [("filter_enabled", enabled), ("filter_enforced", enforced)] {
        if (1..100).contains(&percent) {
            let why = "Envoy draws a part of the requests, and the policy is for all";
            writer.note(config, field, why, "`enforce_percent` draws a part of the subjects");
        }
    }
    let (Some(capacity), Some(interval)) = (bucket.get("max_tokens").and_then(number), interval(bucket))
    else {
        let why = "it needs `max_tokens` and `fill_interval`, so it is not imported";
        return writer.note(bucket, "token_bucket", why, "Correct it");
    };
    let why = "each Envoy counts for itself, and all proxies with weir count together";
    if requests.is_never() {
        let why = "all routes have a limit of their own in its place, so it is not imported";
        return writer.note(config, "token_bucket", why, "");
    }
    // With it, the Envoys of a cluster divide the bucket.
    if config.get("local_cluster_rate_limit").is_none() {
        let instead = "Multiply it by the number of Envoys if it was meant for one of them";
        writer.note(config, "token_bucket", why, instead);
    }
    if is_each {
        let why = "each route, virtual host or table of this patch has a bucket of its own in Envoy, and in the policy they count together";
        writer.note(config, "token_bucket", why, "Give what Envoy has (`/config_dump`)");
    }
    note_others(config, writer);
    let mut made = writer.policy(config, name, requests);
    made.set("subject", vec![Tree::from(literal(name))]);
    let refill = bucket.get("tokens_per_fill").and_then(number).unwrap_or(1);
    let limit = Map::from([
        ("name", "tokens".into()),
        ("algorithm", "token_bucket".into()),
        ("capacity", capacity.max(1).into()),
        ("refill", refill.into()),
        ("interval", interval.into()),
    ]);
    made.set("limits", vec![Tree::from(limit)]);
    made.set("on_failure", "local");
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
        Err(why) => writer.note(config, "status", why, "Write the number"),
    }
    let headers = config.get("enable_x_ratelimit_headers").and_then(Node::text_or_number);
    let has_headers = headers.is_some_and(|headers| ["DRAFT_VERSION_03", "1"].contains(&headers.as_str()));
    response.set("headers", if has_headers { "x_ratelimit" } else { "none" });
    made.set("response", response);
    writer.made.push(made);
}

/// Notes settings that weir does not support, where they are not the default.
fn note_others(config: &Node, writer: &mut Writer<'_>) {
    if !config.each("response_headers_to_add").is_empty() {
        let why = "weir adds no headers of one's own to a rejection";
        let instead = "Envoy's `local_reply_config` adds headers by the status";
        writer.note(config, "response_headers_to_add", why, instead);
    }
    if config.get("stage").and_then(number).is_some_and(|stage| stage != 0) {
        let why =
            "it chooses among the `rate_limits` of routes, and limits by descriptors are not imported here";
        writer.note(config, "stage", why, "");
    }
    let name = "local_rate_limit_per_downstream_connection";
    if config.truth(name) == Some(true) {
        let why = "Envoy has a bucket for each connection, and in the policy all connections count together";
        writer.note(config, name, why, "Count clients: `subject: [{client_address: {}}]`");
    }
    let name = "always_consume_default_token_bucket";
    let has_descriptors = !config.each("descriptors").is_empty();
    if has_descriptors && config.truth(name) == Some(false) {
        let why = "requests with a limit by descriptors do not count in Envoy's `token_bucket`, and do in the policy";
        writer.note(config, name, why, "Exclude them in its `match`");
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
    (millis > 0).then(|| duration(u128::from(millis) * 1_000))
}
