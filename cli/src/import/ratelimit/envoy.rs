// SPDX-License-Identifier: Apache-2.0
//! The actions in Envoy's routes: which descriptors a request has.

use core::cmp::Ordering;

use serde_json::Value;

use super::super::envoy::attribute;
use super::super::notes::Notes;
use super::super::status::of_rejections;
use super::super::test::{PathTest, Test, escaped};
use super::entries::{Address, Entry, MIN_BITS, Source};
use super::istio::{
    Change, Scope, are_apart, changes_filter, is_where, note_chosen, note_differences, note_other,
    note_patched, note_selector, rank,
};
use super::values::{note_unreadable, number, percent};
use crate::document::{Content, Node, Place, is_called};
use crate::tree::{Map, Tree};
use weir::policy::pattern::Pattern;

/// A descriptor that Envoy sends, and for which requests.
#[derive(Clone)]
pub struct Descriptor {
    pub entries: Vec<Entry>,
    pub requests: Test,
    pub hits: Option<u64>,
    /// The domain of its limits, where a route asks for another one than the filter.
    pub domain: Option<String>,
}

#[derive(Default)]
pub struct Filter<'a> {
    pub domain: Option<String>,
    /// The domains of the files that are imported.
    pub domains: Vec<String>,
    /// Its settings.
    pub node: Option<&'a Node>,
    /// The EnvoyFilters that add it; none where it is in a configuration of Envoy.
    pub objects: Vec<Option<&'a Node>>,
    /// Its name among the filters. A route may say under this name that it is disabled.
    name: &'a str,
    /// The names of the others of this kind.
    others: Vec<&'a str>,
    /// True if it is on only where a route has settings for it.
    is_disabled: bool,
    /// True if it rejects nothing.
    pub is_shadow: bool,
    stage: u64,
    /// The requests that it is for, if it is not for all.
    requests: Option<Test>,
    /// Limits of its own, in place of those of routes and virtual hosts.
    limits: Vec<&'a Node>,
    pub denies_on_failure: bool,
    pub status: Option<u64>,
    pub has_headers: bool,
}

/// The fields of the filter that weir reads, or handles in its own way.
const FILTER: &str = "@type domain stage timeout failure_mode_deny rate_limited_as_resource_exhausted rate_limit_service \
    enable_x_ratelimit_headers disable_x_envoy_ratelimited_header rate_limited_status stat_prefix rate_limits \
    request_type=internal request_type=external request_type=both \
    filter_enabled filter_enforced";

/// The type of a value, and its fields. A TypedStruct has those of another type inside.
pub fn typed(node: &Node) -> (&str, &Node) {
    match node.get("value").filter(|_| node.type_name() == "TypedStruct") {
        Some(value) => (node.text_of("type_url"), value),
        None => (node.text_of("@type"), node),
    }
}

/// The types of Envoy that let a matcher choose if a filter runs, or which one.
pub fn chooser(config: &Node) -> Option<&Node> {
    let (kind, inner) = typed(config);
    let kind = kind.rsplit('.').next().unwrap_or_default();
    ["ExtensionWithMatcher", "Composite", "ExecuteFilterAction"].contains(&kind).then_some(inner)
}

/// The settings of the HTTP filter. Filters of other protocols have the same name.
fn settings(node: &Node) -> Option<&Node> {
    let (name, value) = typed(node);
    let is_it = name.contains(".http.") && name.ends_with(".RateLimit");
    is_it.then_some(value).filter(|value| value.get("rate_limit_service").is_some())
}

/// The settings of the filter for a route.
fn of_route(node: &Node) -> Option<&Node> {
    Some(typed(node)).filter(|(name, _)| name.ends_with(".RateLimitPerRoute")).map(|(_, value)| value)
}

/// True if this configuration of Envoy or Istio says which descriptors are sent.
pub fn sends(documents: &[Node]) -> bool {
    let mut found = false;
    for document in documents {
        document.walk(&mut |node| found |= settings(node).is_some() || node.get("rate_limits").is_some());
    }
    found
}

/// The filter in an Envoy configuration; `file` is the number of its file.
pub fn filter<'a>(documents: &'a [Node], file: usize, notes: &mut Notes) -> Filter<'a> {
    let (mut found, mut changes) = (Filter::default(), Vec::new());
    for document in documents {
        let mut object = None;
        document.walk(&mut |entry| {
            if entry.text_of("kind") == "EnvoyFilter" {
                object = Some(entry);
            }
            let mut is_chosen = false;
            if let Some(inner) = chooser(entry) {
                inner.walk(&mut |node| is_chosen |= settings(node).is_some());
            }
            if is_chosen {
                let why = "weir does not read the matcher that chooses the filter's requests, so the policies apply to more requests";
                note(notes, file, entry, "RateLimit", why, "Write it into the `match` of each policy");
            }
            let inner = entry.at(&["patch", "value", "typed_config"]);
            let is_filter = inner.and_then(settings).is_some();
            if is_filter {
                note_chosen(entry, file, notes);
            }
            if (is_filter || inner.is_none()) && changes_filter(entry, file, &[found.name], notes) {
                changes.extend(inner.map(core::ptr::from_ref));
            }
            let config = entry.get("typed_config");
            if let Some((config, node)) = config.and_then(|config| Some((config, settings(config)?))) {
                if changes.contains(&core::ptr::from_ref(config)) {
                    return notes.read(config);
                }
                notes.unread(file, node, FILTER);
                note_unreadable(notes, file, node);
                notes.read(config);
                found.others.push(found.name);
                (found.name, found.is_disabled) =
                    (entry.text_of("name"), entry.truth("disabled") == Some(true));
                found.others.retain(|other| *other != found.name);
                found.note_drawn(node, file, notes);
                // What Envoy has (`/config_dump`) names a filter twice.
                let is_other = found.node.replace(node).is_some_and(|last| last.json() != node.json());
                if is_other {
                    let why = "it is a second filter of this kind, and one is imported: this one";
                    note(notes, file, node, "RateLimit", why, "Import one filter at a time");
                    found.objects.clear();
                }
                found.objects.push(object);
                found.stage = node.get("stage").and_then(number).unwrap_or(0);
                let internal = header_is("x-envoy-internal", "exact", "true");
                found.requests = match node.text_of("request_type") {
                    "internal" => Some(internal),
                    "external" => Some(internal.negated()),
                    _ => None,
                };
                found.limits = node.each("rate_limits").iter().collect();
                if let Some(own) = found.limits.first() {
                    let why = "the filter's own limits are imported for all routes that have no RateLimitPerRoute with limits, in place of the \
                        rate_limits of routes and virtual hosts";
                    note(notes, file, own, "rate_limits", why, "Check that your version of Envoy does so");
                }
                found.domain = Some(node.text_of("domain").to_owned());
                found.denies_on_failure = node.truth("failure_mode_deny") == Some(true);
                match of_rejections(node, "rate_limited_status") {
                    Ok(status) => found.status = status,
                    Err(why) => note(notes, file, node, "rate_limited_status", why, "Write the number"),
                }
                let headers = node.get("enable_x_ratelimit_headers").and_then(Node::text_or_number);
                found.has_headers = headers.is_some_and(|headers| !["", "OFF", "0"].contains(&headers.as_str()));
            }
        });
    }
    found
}

impl Filter<'_> {
    /// Sets whether it rejects nothing, and notes that it draws requests.
    fn note_drawn(&mut self, node: &Node, file: usize, notes: &mut Notes) {
        let [enabled, enforced] = ["filter_enabled", "filter_enforced"].map(|field| percent(node, field));
        self.is_shadow = enabled == Some(0) || enforced == Some(0);
        if enabled == Some(0) {
            let why = "the filter is off by default, so the policies are in shadow mode";
            note(notes, file, node, "filter_enabled", why, "If the runtime switches it on, remove `mode`");
        }
        for (field, percent) in [("filter_enabled", enabled), ("filter_enforced", enforced)] {
            if percent.is_some_and(|percent| (1..100).contains(&percent)) {
                let why = "Envoy draws a part of the requests, and the policies are for all";
                note(notes, file, node, field, why, "`enforce_percent` draws a part of the subjects");
            }
        }
    }

    /// True if a patch may be for proxies that have the filter.
    fn is_near(&self, object: &Node) -> bool {
        let is_near = |own: &Option<&Node>| own.is_none_or(|own| !are_apart(own, object));
        self.objects.is_empty() || self.objects.iter().any(is_near)
    }
}

/// Says that the limits of routes in these documents are not imported; why, another note says.
pub fn skip(documents: &[Node], notes: &mut Notes) {
    for document in documents {
        document.walk(&mut |node| {
            if let Some(list) = node.get("rate_limits") {
                notes.read(list);
            }
            if of_route(node).is_some() {
                notes.read(node);
            }
        });
    }
}

/// The descriptors of all routes in files, which have their numbers.
pub fn descriptors(files: &[(usize, &[Node])], filter: &Filter<'_>, notes: &mut Notes) -> Vec<Descriptor> {
    let (mut found, mut tables, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let documents = files.iter().flat_map(|(file, all)| all.iter().map(|document| (*file, document)));
    for (file, document) in documents {
        let mut strips_ports = false;
        document.walk(&mut |node| {
            strips_ports |= ["strip_any_host_port", "ignore_port_in_host_matching"]
                .iter()
                .any(|field| node.truth(field) == Some(true));
            let hosts = node.each("virtual_hosts");
            let domains: Vec<_> = hosts.iter().map(domains).collect();
            let is_plain = |(names, _): &Domains| names.iter().any(|(name, _)| !name.contains(':'));
            if hosts.len() > 1 && domains.iter().any(is_plain) && !strips_ports {
                let why = "weir compares hosts without their port, and Envoy with it: there, `a.test:8080` is not the domain `a.test`";
                let instead = "Set `strip_any_host_port` in Envoy's connection manager";
                note(notes, file, node, "virtual_hosts", why, instead);
            }
            let table = node.get("virtual_hosts").filter(|_| !hosts.is_empty()).map(Node::json);
            if let Some(table) = table.filter(|table| !tables.contains(table)) {
                if !tables.is_empty() {
                    let why = "weir does not know which listener a request comes from, so the limits of all these tables apply to it";
                    note(notes, file, node, "virtual_hosts", why, "Import one table at a time");
                }
                tables.push(table);
                hosts.iter().for_each(|host| note_unreadable(notes, file, host));
            }
            for (number, host) in hosts.iter().enumerate() {
                let own = || virtual_host(number, &domains);
                of_host(&Levels { table: node, host, filter, file }, own, notes, &mut found);
            }
        });
        let patches = patches(document, file, filter, notes);
        elsewhere(document, &patches, (filter, file), notes);
        all.extend(patches);
    }
    let (all, far): (Vec<_>, Vec<_>) = all.into_iter().partition(|patch| filter.is_near(patch.object));
    for patch in far.iter().filter(|patch| patch.has_limits) {
        let why = "it is for other proxies than the filter that is imported, so its limits are not imported";
        note(notes, patch.file, patch.node, "applyTo", why, "Import one filter at a time");
    }
    all.iter().for_each(|patch| of_patch(patch, &all, filter, notes, &mut found));
    let places = all.iter().filter(|patch| patch.has_limits);
    let places: Vec<_> = places.map(|patch| (patch.file, patch.object, patch.node)).collect();
    note_differences(&places, notes);
    if let Some(requests) = &filter.requests {
        let of = |one: &mut Descriptor| one.requests = one.requests.clone().and(requests.clone());
        found.iter_mut().for_each(of);
    }
    found
}

/// A patch of Istio that gives limits to routes or virtual hosts, or adds some.
struct Patch<'a> {
    file: usize,
    object: &'a Node,
    node: &'a Node,
    value: &'a Node,
    has_limits: bool,
    scope: Scope,
}

impl Patch<'_> {
    /// True if the limits of another patch are not for the requests of this one.
    fn replaces(&self, other: &Patch<'_>, filter: &Filter<'_>) -> bool {
        let [own, others] = [self, other].map(|of| per_route(of.value, filter));
        let has_limits =
            |of: Option<(&Node, bool)>| of.is_some_and(|(of, _)| !of.each("rate_limits").is_empty());
        let is_instead = has_limits(own) || own.is_some_and(|(_, is_disabled)| is_disabled);
        // Only the closest settings of the filter count.
        let replaces = match rank(self.node).cmp(&rank(other.node)) {
            Ordering::Less if has_limits(others) => own.is_some(),
            Ordering::Less => is_instead || !includes(self.value.get("route"), own),
            // Istio patches what exists before it adds.
            _ if self.scope.is_new => true,
            Ordering::Equal => false,
            Ordering::Greater => is_instead && others.is_none(),
        };
        let is_read = Change::of(self.node) != Change::Other;
        let is_applied = !other.scope.is_new || !self.scope.is_new && rank(self.node) > rank(other.node);
        replaces && is_read && is_applied && is_where(self.object, other.object)
    }
}

/// The patches of the EnvoyFilters in a document.
fn patches<'a>(document: &'a Node, file: usize, filter: &Filter<'_>, notes: &mut Notes) -> Vec<Patch<'a>> {
    let mut found = Vec::new();
    document.walk(&mut |object| {
        let patches =
            object.at(&["spec", "configPatches"]).filter(|_| object.text_of("kind") == "EnvoyFilter");
        found.extend(patches.map(Node::items).unwrap_or_default().iter().filter_map(|node| {
            let value = node.at(&["patch", "value"])?;
            let has_limits = levels(node, value).any(|level| {
                lists(level, filter).next().is_some()
                    || core::iter::once(level)
                        .chain(clusters(level))
                        .any(|level| per_route(level, filter).is_some())
            });
            // Of a route that is added without limits, the requests matter.
            let mut unused = Notes::default();
            let scope = Scope::of(node, file, if has_limits { notes } else { &mut unused });
            (has_limits || scope.is_new).then_some(Patch { file, object, node, value, has_limits, scope })
        }));
    });
    found
}

/// The limits that a patch gives to a route or a virtual host, and the routes of a virtual host that it adds.
fn levels<'a>(patch: &Node, value: &'a Node) -> impl Iterator<Item = &'a Node> {
    let is_new = Change::of(patch) == Change::Add;
    core::iter::once(value).chain(if is_new { value.each("routes") } else { &[] })
}

/// The clusters among which Envoy draws one for each request of a route.
pub fn clusters(route: &Node) -> &[Node] {
    route.at(&["route", "weighted_clusters"]).map(|of| of.each("clusters")).unwrap_or_default()
}

/// The cluster that gets all requests of a route.
pub fn only_cluster(route: &Node) -> Option<&Node> {
    let [only] = clusters(route) else { return None };
    Some(only)
}

/// Notes that settings of a cluster, which is one of several, are not imported.
pub fn note_cluster(cluster: &Node, file: usize, notes: &mut Notes) {
    let why = "Envoy draws a cluster for each request, and these settings of one of them are not imported";
    note(notes, file, cluster, "weighted_clusters", why, "Write a policy by hand");
}

/// The limits of a route, or of a virtual host.
fn lists<'a>(level: &'a Node, filter: &Filter<'_>) -> impl Iterator<Item = &'a Node> {
    let own = per_route(level, filter).map(|(own, _)| own);
    [Some(level), level.get("route"), own].into_iter().flatten().filter_map(|at| at.get("rate_limits"))
}

/// The descriptors of a patch, as those of a virtual host with one route.
fn of_patch(
    patch: &Patch<'_>,
    all: &[Patch<'_>],
    filter: &Filter<'_>,
    notes: &mut Notes,
    found: &mut Vec<Descriptor>,
) {
    let file = patch.file;
    if !patch.has_limits {
        return;
    }
    note_selector(patch.object, file, notes);
    if Change::of(patch.node) == Change::Other {
        return note_other(patch.node, file, notes);
    }
    note_patched(patch.node, file, notes);
    note_unreadable(notes, file, patch.value);
    let place = patch.value.place;
    let with = |node: Option<&Node>, name: &str, value: Node| {
        let own = node.map(Node::fields).unwrap_or_default();
        let is_new = own.iter().all(|(other, ..)| other != name);
        let more = is_new.then(|| (name.to_owned(), place, value));
        Node::new(place, Content::Object(own.iter().cloned().chain(more).collect()))
    };
    let is_of_host = rank(patch.node) == 1;
    let own = Some(patch.value).filter(|_| !is_of_host);
    let mut route = match own {
        // Envoy limits only what it sends to a cluster.
        Some(value) if patch.scope.is_new => value.clone(),
        _ => with(own, "route", with(None, "", Node::empty())),
    };
    if patch.scope.is_new
        && let Content::Object(fields) = &mut route.content
    {
        // The scope tests it, or the name.
        fields.retain(|(name, ..)| name != "match");
    }
    let routes = Node::new(place, Content::List(vec![route]));
    let host = with(Some(patch.value).filter(|_| is_of_host), "routes", routes);
    // Those of a virtual host are for the routes without limits of their own.
    let others = || all.iter().filter(|other| other.replaces(patch, filter)).map(|other| &other.scope.taken);
    if others().any(|taken| *taken == patch.scope.own) {
        return;
    }
    let requests = patch.scope.own.clone().and(Test::any_of(others().cloned()).negated());
    of_host(&Levels { table: &Node::empty(), host: &host, filter, file }, || requests, notes, found);
}

/// Notes about limits at places that are not read, such as clusters with a weight, patches and other filters.
fn elsewhere(
    document: &Node,
    patches: &[Patch<'_>],
    (filter, file): (&Filter<'_>, usize),
    notes: &mut Notes,
) {
    let mut read: Vec<*const Node> = Vec::new();
    for level in patches.iter().flat_map(|patch| levels(patch.node, patch.value)) {
        let all = core::iter::once(level).chain(clusters(level));
        read.extend(all.flat_map(|level| lists(level, filter)).map(core::ptr::from_ref));
    }
    // The walk shows outer values first, so `read` has a list before the walk comes to it.
    document.walk(&mut |node| {
        read.extend(settings(node).and_then(|node| node.get("rate_limits")).map(core::ptr::from_ref));
        let hosts = node.each("virtual_hosts");
        let routes = hosts.iter().flat_map(|host| host.each("routes"));
        let routes = routes.flat_map(|route| core::iter::once(route).chain(clusters(route)));
        let table = (!hosts.is_empty()).then_some(node);
        for level in table.into_iter().chain(hosts).chain(routes) {
            read.extend(lists(level, filter).map(core::ptr::from_ref));
        }
        if of_route(node).is_some() {
            notes.read(node);
        }
        // Around a RateLimitPerRoute, or without one: an empty one switches the filter on.
        let is_filter = node.type_name() == "FilterConfig";
        let is_it = |config: &&Node| of_route(config).is_some() || is_filter && config.is_empty_object();
        let config = node.get("config").filter(is_it);
        if config.is_some() || is_filter && node.truth("disabled") == Some(true) {
            notes.read(node);
            config.into_iter().for_each(|config| notes.read(config));
        }
        let Some((place, list)) = node.field("rate_limits") else { return };
        notes.read(list);
        if !read.contains(&core::ptr::from_ref(list)) {
            let why = "limits are read in the filter, in virtual hosts, their routes and RateLimitPerRoute, and in patches of these, so these are not imported";
            notes.at(file, place.line, "rate_limits", why, "Give the routes that Envoy has (`/config_dump`), or write the policy by hand");
        }
    });
}

pub type Domains = (Vec<(String, Test)>, bool);

/// The levels of configuration that set the limits of a route.
struct Levels<'a> {
    table: &'a Node,
    host: &'a Node,
    filter: &'a Filter<'a>,
    file: usize,
}

/// Notes about a value of Envoy's configuration.
pub fn note(notes: &mut Notes, file: usize, node: &Node, what: &str, why: &str, instead: &str) {
    notes.at(file, node.place.line, what, why, instead);
}

/// The domains of a virtual host: names with their tests, and whether it takes all others.
pub fn domains(host: &Node) -> Domains {
    let (mut names, mut takes_rest) = (Vec::new(), false);
    let alone = host.get("domains").filter(|domains| domains.text().is_some());
    for domain in host.list("domains").iter().chain(alone) {
        match domain.text().unwrap_or_default() {
            "*" => takes_rest = true,
            name => names.push((name.to_owned(), domain_test(&name.to_ascii_lowercase()))),
        }
    }
    (names, takes_rest)
}

/// A domain without port is for all ports. weir's own test of hosts knows `*` only before a dot, and no ports.
fn domain_test(name: &str) -> Test {
    let has_port = name.contains(':') || !name.is_ascii();
    if !has_port && !name.strip_prefix("*.").unwrap_or(name).contains('*') {
        return Test::Host(vec![name.to_owned()]);
    }
    let port = if has_port { "" } else { "(?::[0-9]+)?" };
    let text = name.split('*').map(escaped).collect::<Vec<_>>().join(".+");
    pseudo_header("host", "regex", &format!("(?i){text}{port}"))
}

/// A test on an attribute of the request that Envoy has as a header with a colon.
pub fn pseudo_header(name: &str, field: &str, text: &str) -> Test {
    attribute(["request", name], field, text)
}

/// The hosts that come to a virtual host.
pub fn virtual_host(number: usize, domains: &[Domains]) -> Test {
    let mut names = Vec::new();
    for (other, (of_host, _)) in domains.iter().enumerate() {
        names.extend(of_host.iter().map(|(name, test)| (name.as_str(), test, other == number)));
    }
    // One with a port is more particular than the same name for all ports.
    names.sort_by_key(|(name, ..)| !name.contains(':'));
    Test::of_server(names, domains.get(number).is_some_and(|(_, takes_rest)| *takes_rest))
}

/// The requests of each route of a virtual host, which has these of all domains.
pub fn routes(
    host: &Node,
    (place, domains): (usize, &[Domains]),
    file: usize,
    notes: &mut Notes,
) -> Vec<Test> {
    let tests = route_tests(host, file, notes);
    let domain = virtual_host(place, domains);
    let of = |own: usize| domain.clone().and(requests_of(&tests, |number| number == own));
    (0..tests.len()).map(of).collect()
}

fn route_tests(host: &Node, file: usize, notes: &mut Notes) -> Vec<(Test, Test)> {
    host.each("routes").iter().map(|route| route_test(route, file, notes)).collect()
}

/// The requests of the routes for whose numbers `is_own` is true.
fn requests_of(tests: &[(Test, Test)], is_own: impl Fn(usize) -> bool) -> Test {
    let list = tests.iter().enumerate();
    Test::first_match(list.map(|(number, (own, taken))| match is_own(number) {
        true => (own, true),
        false => (taken, false),
    }))
}

/// The descriptors of a virtual host, to which the requests of `domain` come.
fn of_host(
    levels: &Levels<'_>,
    domain: impl FnOnce() -> Test,
    notes: &mut Notes,
    found: &mut Vec<Descriptor>,
) {
    let file = levels.file;
    let routes = levels.host.each("routes");
    if levels.host.get("matcher").is_some() && !levels.host.each("rate_limits").is_empty() {
        let why = "weir does not read the matcher that chooses the route, so the limits of this virtual host are not imported for its routes";
        notes.field(file, levels.host, "matcher", why, "Write the policies by hand");
    }
    // A limit means the same at each place, unless it has a stage, a cost or another domain.
    let limits: Vec<Vec<(&Node, Meaning)>> = routes
        .iter()
        .map(|route| {
            let (all, is_embedded, domain) = limits_of(route, levels, notes);
            let of = |limit: &Node| {
                let differs =
                    levels.filter.stage != 0 || limit.get("stage").or(limit.get("hits_addend")).is_some();
                (limit.json(), is_embedded && differs, domain.clone())
            };
            all.into_iter().map(|limit| (limit, of(limit))).collect()
        })
        .collect();
    // What Envoy has (`/config_dump`) may have thousands without limits.
    if limits.iter().all(Vec::is_empty) {
        return;
    }
    let (domain, tests) = (domain(), route_tests(levels.host, file, notes));
    let mut seen: Vec<&Meaning> = Vec::new();
    for (limit, own) in limits.iter().flatten() {
        if seen.contains(&own) {
            continue;
        }
        seen.push(own);
        let is_embedded = own.1;
        let times = |all: &Vec<(&Node, Meaning)>| all.iter().filter(|(_, other)| other == own).count();
        if limits.iter().any(|all| times(all) > 1) {
            let why = "a route has it twice, so the service counts its requests twice, and weir once";
            note(notes, file, limit, "actions", why, "Remove one of both, or write `cost`");
        }
        let has_it = |number: usize| limits.get(number).is_some_and(|all| times(all) > 0);
        let requests = domain.clone().and(requests_of(&tests, has_it));
        notes.unread(file, limit, "actions stage limit apply_on_stream_done hits_addend");
        // Envoy reads stages only in the limits of routes and virtual hosts, and costs only elsewhere.
        let stage = limit.get("stage").and_then(number).unwrap_or(0);
        if !is_embedded && stage != levels.filter.stage {
            if levels.filter.node.is_some() {
                let why = "the filter has another stage, so it does not send this descriptor";
                note(notes, file, limit, "stage", why, "");
                continue;
            }
            let why = "the file has no filter, so the descriptors of all stages are imported";
            let instead = "Remove those of the stages that your filter does not have";
            note(notes, file, limit, "stage", why, instead);
        }
        if limit.get("limit").is_some() {
            let why = "a limit that Envoy sends in place of the service's is not read";
            note(notes, file, limit, "limit", why, "Use `scale`");
        }
        if limit.truth("apply_on_stream_done") == Some(true) {
            let why = "it counts when the response is complete, and weir counts before";
            let instead = "Write the policy by hand, with `settle` for what the response says";
            note(notes, file, limit, "apply_on_stream_done", why, instead);
            continue;
        }
        let addend = limit.get("hits_addend").filter(|addend| {
            let has_effect = is_embedded && addend.truth("is_negative_hits") != Some(true);
            if !has_effect {
                let why = "Envoy sends it from a RateLimitPerRoute or the filter only, and weir subtracts nothing, so a request costs 1";
                note(notes, file, limit, "hits_addend", why, "Write the policy's `cost`");
            }
            has_effect
        });
        let hits = addend.and_then(|addend| addend.get("number")).and_then(number);
        if hits == Some(0) {
            let why = "each request costs 0, so the policy would deny none: it is in shadow";
            let instead = "Write `settle`, by which a response has a cost, and remove `mode`";
            note(notes, file, limit, "hits_addend", why, instead);
        }
        if addend.is_some() && hits.is_none() {
            let why = "a number made of a format is not read";
            note(notes, file, limit, "hits_addend", why, "Write the policy's `cost`");
        }
        let actions: Option<Vec<Action>> =
            limit.each("actions").iter().map(|action| entry(action, file, notes)).collect();
        let mut made = vec![Descriptor { entries: Vec::new(), requests, hits, domain: own.2.clone() }];
        for Action { entry, absent } in actions.unwrap_or_default() {
            let is_missing = entry.source.is_there().negated();
            let without = made.iter().map(|one| {
                let mut one = one.clone();
                one.requests = one.requests.and(is_missing.clone());
                match &absent {
                    Absent::Nothing => one.requests = Test::NEVER,
                    Absent::Skipped => {}
                    Absent::Default(text) => {
                        let source = Source::Fixed(Some(text.clone()), Test::Always);
                        one.entries.push(Entry { key: entry.key.clone(), source });
                    }
                }
                one
            });
            let without: Vec<_> = without.collect();
            made.iter_mut().for_each(|one| one.entries.push(entry.clone()));
            made.extend(without);
            made.retain(|one| !one.requests.is_never());
        }
        found.extend(made.into_iter().filter(|one| !one.entries.is_empty()));
    }
}

/// A limit, whether it is not one of routes and virtual hosts and differs there, and its domain.
type Meaning = (Value, bool, Option<String>);

/// The limits that hold for a route: of the closest `RateLimitPerRoute`, of the filter, or else its own and those of its virtual host.
/// Also returns whether they are other limits than those of routes and virtual hosts, and the route's domain if it is not the filter's.
fn limits_of<'a>(
    route: &'a Node,
    levels: &Levels<'a>,
    notes: &mut Notes,
) -> (Vec<&'a Node>, bool, Option<String>) {
    let none = (Vec::new(), false, None);
    // Envoy limits only what it sends to a cluster.
    let Some(action) = route.get("route") else { return none };
    let only = only_cluster(route);
    let drawn = if only.is_none() { clusters(route) } else { &[] };
    for cluster in drawn.iter().filter(|cluster| per_route(cluster, levels.filter).is_some()) {
        note_cluster(cluster, levels.file, notes);
    }
    let closest = only.into_iter().chain([route, levels.host, levels.table]);
    let closest = closest.into_iter().find_map(|level| per_route(level, levels.filter));
    match closest {
        Some((own, false)) => {
            notes.unread(levels.file, own, "@type vh_rate_limits rate_limits domain");
            note_unreadable(notes, levels.file, own);
        }
        Some((_, true)) => return none,
        None if levels.filter.is_disabled => return none,
        None => {}
    }
    let domain = closest.and_then(|(own, _)| domain_of(own, levels, notes));
    let own = closest.map(|(own, _)| own.each("rate_limits")).unwrap_or_default();
    if !own.is_empty() {
        return (own.iter().collect(), true, domain);
    }
    if !levels.filter.limits.is_empty() {
        return (levels.filter.limits.clone(), true, domain);
    }
    let own = action.each("rate_limits");
    let outer = if includes(Some(action), closest) { levels.host.each("rate_limits") } else { &[] };
    (own.iter().chain(outer).collect(), false, domain)
}

/// The domain of a `RateLimitPerRoute`, if it is another one than the filter's. A note says if no file has it.
fn domain_of(own: &Node, levels: &Levels<'_>, notes: &mut Notes) -> Option<String> {
    let domain = own.get("domain").and_then(Node::text).filter(|domain| !domain.is_empty())?;
    if levels.filter.domain.as_deref() == Some(domain) {
        return None;
    }
    if levels.filter.domains.iter().all(|known| known != domain) {
        let why = "no file that is imported has this domain, so what is sent to it is not limited";
        let place = own.place_of("domain");
        let what = format!("domain: {domain}");
        notes.at(levels.file, place.line, &what, why, "Import its file, too");
    }
    Some(domain.to_owned())
}

/// True if a route with this action and these settings of the filter has the limits of its virtual host, too.
fn includes(action: Option<&Node>, own: Option<(&Node, bool)>) -> bool {
    let option = own.and_then(|(own, _)| own.get("vh_rate_limits")?.text_or_number());
    match option.as_deref() {
        _ if action.is_some_and(|action| action.truth("include_vh_rate_limits") == Some(true)) => true,
        Some("INCLUDE" | "1") => true,
        Some("IGNORE" | "2") => false,
        _ => action.is_none_or(|action| action.each("rate_limits").is_empty()),
    }
}

/// Returns the settings of a filter in a route, a virtual host or a table of them, and whether they disable it: those under its name, or
/// else under one that no other filter has.
fn per_route<'a>(level: &'a Node, filter: &Filter<'_>) -> Option<(&'a Node, bool)> {
    let configs = level.get("typed_per_filter_config")?.fields();
    let of = |(name, _, config): &'a (String, Place, Node)| {
        let is_wrapped = config.type_name() == "FilterConfig";
        let inner = if is_wrapped { config.get("config").unwrap_or(config) } else { config };
        let is_named = is_wrapped && (name == filter.name || name == "envoy.filters.http.ratelimit");
        let own = of_route(inner).or(is_named.then_some(inner));
        let own = own.filter(|_| !filter.others.contains(&name.as_str()));
        own.map(|own| (own, config.truth("disabled") == Some(true)))
    };
    let own = configs.iter().filter(|(name, ..)| name == filter.name).find_map(of);
    own.or_else(|| configs.iter().find_map(of))
}

/// The tests of a route's `match`: the requests for its own limits, and those that it takes from the routes after it. If it has a condition
/// that weir does not know, it takes none.
pub fn route_test(route: &Node, file: usize, notes: &mut Notes) -> (Test, Test) {
    let (mut test, mut is_exact) = (Test::Always, true);
    let Some(node) = route.get("match") else { return (Test::Always, Test::Always) };
    let ignores_case = node.truth("case_sensitive") == Some(false);
    for (name, place, value) in node.fields() {
        let text = value.text().unwrap_or_default().to_owned();
        let folded = |end: &str| Some(Test::Path(PathTest::regex(format!("(?i){}{end}", escaped(&text)))));
        let part = match name.as_str() {
            "case_sensitive" | "caseSensitive" => Some(Test::Always),
            "prefix" if text == "/" => Some(Test::Always),
            "prefix" if ignores_case => folded(".*"),
            "path" if ignores_case => folded(""),
            "path_separated_prefix" | "pathSeparatedPrefix" if ignores_case => folded("(?:/.*)?"),
            "prefix" => Some(Test::Path(PathTest::Prefix(text))),
            "path" => Some(Test::Path(PathTest::Exact(text))),
            "path_separated_prefix" | "pathSeparatedPrefix" => Some(Test::Path(PathTest::Below(text))),
            "safe_regex" | "safeRegex" => {
                let regex = value.text_of("regex").to_owned();
                Pattern::new(&regex).ok().map(|_| Test::Path(PathTest::regex(regex)))
            }
            "headers" => all_of(node, "headers", header_test),
            "query_parameters" | "queryParameters" => all_of(node, "query_parameters", query_test),
            _ => None,
        };
        match part {
            Some(part) => test = test.and(part),
            None => {
                is_exact = false;
                let why = "weir does not have this condition, so the policies of this route, and of those after it, are for more requests";
                let instead = "Give the route a name, and add the condition `route`";
                notes.at(file, place.line, &format!("match: {name}"), why, instead);
            }
        }
    }
    let taken = if is_exact { test.clone() } else { Test::NEVER };
    (test, taken)
}

/// The test for all items of a list; none if weir does not have one of them.
fn all_of(node: &Node, list: &str, test: fn(&Node) -> Option<Test>) -> Option<Test> {
    node.each(list).iter().try_fold(Test::Always, |all, item| Some(all.and(test(item)?)))
}

/// The field of a condition for a matcher of texts, and its text. Without a matcher, the condition is that there is a value.
fn text_test(node: &Node) -> Option<Option<(&'static str, String)>> {
    let matcher = node.get("string_match").unwrap_or(node);
    let ignores_case = matcher.truth("ignore_case") == Some(true);
    let flags = if ignores_case { "(?i)" } else { "" };
    for (names, before, after) in [
        (["exact", "exact_match"], "", ""),
        (["prefix", "prefix_match"], "", ".*"),
        (["suffix", "suffix_match"], ".*", ""),
        (["contains", "contains_match"], ".*", ".*"),
    ] {
        let Some(text) = names.iter().find_map(|name| matcher.get(name)?.text()) else { continue };
        return Some(Some(match (before, after) {
            ("", "") if !ignores_case && !text.is_empty() => ("exact", text.to_owned()),
            ("", ".*") if !ignores_case => ("prefix", text.to_owned()),
            _ => ("regex", format!("{flags}{before}{}{after}", escaped(text))),
        }));
    }
    if let Some(regex) = ["safe_regex", "safe_regex_match"].iter().find_map(|name| matcher.get(name)) {
        let regex = regex.text_of("regex");
        Pattern::new(regex).ok()?;
        return Some(Some(("regex", regex.to_owned())));
    }
    node.get("string_match").is_none().then_some(None)
}

fn header_test(header: &Node) -> Option<Test> {
    if ["range_match", "treat_missing_header_as_empty"].iter().any(|field| header.get(field).is_some()) {
        return None;
    }
    let (name, inverts) =
        (header.text_of("name").to_ascii_lowercase(), header.truth("invert_match") == Some(true));
    let there = match pseudo_of(&name) {
        Some(_) => Test::Always,
        None if name.starts_with(':') => return None,
        None => Test::Value("header", Map::from([("name", name.as_str().into())])),
    };
    let Some((field, text)) = text_test(header)? else {
        return Some(if inverts != (header.truth("present_match") == Some(false)) {
            there.negated()
        } else {
            there
        });
    };
    let test = header_is(&name, field, &text);
    // A header that is missing does not match, not even inversely.
    Some(if inverts { there.and(test.negated()) } else { test })
}

/// A test on the value of a header, whose name is in lower case.
pub fn header_is(name: &str, field: &'static str, text: &str) -> Test {
    match pseudo_of(name) {
        Some("method") if field == "exact" && text.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            Test::Method(vec![text.to_owned()])
        }
        Some(name) => pseudo_header(name, field, text),
        // An empty text is a value, too.
        None => {
            let (field, text) = if text.is_empty() { ("regex", "") } else { (field, text) };
            Test::Value("header", Map::from([("name", name.into()), (field, text.into())]))
        }
    }
}

/// The attribute of what Envoy has as a header with a colon.
fn pseudo_of(header: &str) -> Option<&'static str> {
    match header {
        ":method" => Some("method"),
        ":path" => Some("path"),
        ":authority" | "host" => Some("host"),
        ":scheme" => Some("scheme"),
        _ => None,
    }
}

fn query_test(query: &Node) -> Option<Test> {
    let mut test = Map::from([("name", query.text_of("name").into())]);
    if let Some((field, text)) = text_test(query)? {
        test.set(field, text);
    }
    let test = Test::Value("query", test);
    Some(if query.truth("present_match") == Some(false) { test.negated() } else { test })
}

/// The result of an action for a request, and for one without its value.
struct Action {
    entry: Entry,
    absent: Absent,
}

#[derive(PartialEq)]
enum Absent {
    /// No descriptor.
    Nothing,
    /// A descriptor without this entry.
    Skipped,
    /// An entry with this value.
    Default(String),
}

/// The actions that weir knows, each with its default key and its fields.
const ACTIONS: [(&str, &str, &str); 8] = [
    ("generic_key", "generic_key", "descriptor_key descriptor_value"),
    ("remote_address", "remote_address", ""),
    ("masked_remote_address", "masked_remote_address", "v4_prefix_mask_len v6_prefix_mask_len"),
    ("request_headers", "", "descriptor_key skip_if_absent header_name"),
    ("header_value_match", "header_match", "descriptor_key descriptor_value expect_match headers"),
    (
        "query_parameter_value_match",
        "query_match",
        "descriptor_key descriptor_value expect_match query_parameters",
    ),
    ("query_parameters", "", "descriptor_key query_parameter_name skip_if_absent"),
    ("metadata", "", "descriptor_key metadata_key source default_value skip_if_absent"),
];

/// One action; nothing if weir cannot tell what it makes.
fn entry(action: &Node, file: usize, notes: &mut Notes) -> Option<Action> {
    let Content::Object(fields) = &action.content else { return None };
    let (kind, place, value) = fields.first()?;
    let named = |name: &str| Some(value.text_of(name)).filter(|text| !text.is_empty());
    let fixed = |test| Some(Source::Fixed(Some(named("descriptor_value")?.to_owned()), test));
    let inverts = value.truth("expect_match") == Some(false);
    let expected = |test: Test| fixed(if inverts { test.negated() } else { test });
    let known = ACTIONS.into_iter().find(|(name, ..)| is_called(kind, name));
    let (action, key, known) = known.unwrap_or_default();
    let source = match action {
        "generic_key" => fixed(Test::Always),
        "remote_address" => Some(Source::Address(Address::Whole)),
        "masked_remote_address" => {
            let bits =
                ["v4_prefix_mask_len", "v6_prefix_mask_len"].map(|name| value.get(name).and_then(number));
            if bits.iter().zip(MIN_BITS).any(|(bits, min)| bits.is_some_and(|bits| bits < min)) {
                let why = "weir counts networks of at least 8 bits, or 16 of IPv6, so fewer clients together";
                notes.at(file, place.line, kind, why, "");
            }
            Some(Source::Address(Address::Masked(bits[0], bits[1])))
        }
        "request_headers" => header_source(value.text_of("header_name")),
        "header_value_match" => all_of(value, "headers", header_test).and_then(expected),
        "query_parameter_value_match" => all_of(value, "query_parameters", query_test).and_then(expected),
        "query_parameters" => named("query_parameter_name")
            .map(|name| Source::Value("query", Map::from([("name", name.into())]))),
        "metadata"
            if value.get("source").is_none_or(|source| {
                ["", "DYNAMIC", "0"].contains(&source.text_or_number().unwrap_or_default().as_str())
            }) =>
        {
            value.get("metadata_key").map(|metadata| {
                let path = metadata.each("path").iter().map(|segment| segment.text_of("key"));
                let path = ["metadata", "filter_metadata", metadata.text_of("key")].into_iter().chain(path);
                let path: Vec<Tree> = path.map(Tree::from).collect();
                Source::Value("attribute", Map::from([("path", path.into())]))
            })
        }
        _ => None,
    };
    let Some(source) = source else {
        let why = "weir cannot tell what this action makes of a request, so the descriptor is not imported";
        notes.at(file, place.line, kind, why, "Write the policy by hand");
        return None;
    };
    notes.unread(file, value, known);
    if value.text_of("descriptor_value").matches('%').count() > 1 {
        let why = "with `enable_formatter_for_ratelimit_action_descriptor_value`, Envoy fills in values, and weir takes the text as it is";
        notes.at(file, place.line, kind, why, "Name the value in the policy's `subject`");
    }
    let absent = match named("default_value").filter(|_| action == "metadata") {
        Some(text) => Absent::Default(text.to_owned()),
        None if value.truth("skip_if_absent") == Some(true) => Absent::Skipped,
        None => Absent::Nothing,
    };
    let key = named("descriptor_key").unwrap_or(key).to_owned();
    Some(Action { entry: Entry { key, source }, absent })
}

/// A header, or what Envoy writes as one.
pub fn header_source(name: &str) -> Option<Source> {
    let name = name.to_ascii_lowercase();
    match pseudo_of(&name) {
        Some("method") => Some(Source::Method),
        Some(name) => {
            let path = vec![Tree::from("request"), name.into()];
            Some(Source::Value("attribute", Map::from([("path", path.into())])))
        }
        None if name.starts_with(':') || name.is_empty() => None,
        None => Some(Source::Value("header", Map::from([("name", name.into())]))),
    }
}
