// SPDX-License-Identifier: Apache-2.0
//! The actions in Envoy's routes: which descriptors a request has.

use serde_json::Value;

use super::super::notes::{Note, Notes};
use super::super::status::of_rejections;
use super::super::test::{PathTest, Test, escaped};
use super::entries::{Entry, Source};
use crate::document::{Content, Node};
use crate::tree::{Map, Tree};
use weir::policy::pattern::Pattern;

/// A descriptor that Envoy sends, and for which requests.
pub struct Descriptor {
    pub entries: Vec<Entry>,
    pub requests: Test,
    pub hits: Option<u64>,
}

#[derive(Default)]
pub struct Filter<'a> {
    pub domain: Option<String>,
    stage: u64,
    /// Limits of its own, in place of those of routes and virtual hosts.
    limits: Vec<&'a Node>,
    pub denies_on_failure: bool,
    pub status: Option<u64>,
    pub has_headers: bool,
}

pub fn number(node: &Node) -> Option<u64> {
    match &node.content {
        Content::Scalar(value) => value.as_u64().or_else(|| value.as_str()?.parse().ok()),
        _ => None,
    }
}

/// The fields of the filter that weir reads, or handles in its own way.
const FILTER: &str = "@type domain stage timeout failure_mode_deny rate_limited_as_resource_exhausted rate_limit_service \
    enable_x_ratelimit_headers disable_x_envoy_ratelimited_header rate_limited_status stat_prefix rate_limits";

/// The filter in an Envoy configuration; `file` is the number of its file.
pub fn filter<'a>(documents: &'a [Node], file: usize, notes: &mut Notes) -> Filter<'a> {
    let mut found = Filter::default();
    for document in documents {
        document.walk(&mut |node| {
            if node.type_name() == "RateLimit" && node.get("rate_limit_service").is_some() {
                notes.unread(file, node, FILTER);
                notes.read(node);
                if found.domain.is_some() {
                    let why = "it is a second filter of this kind, and one is imported: this one";
                    note(notes, file, node, "RateLimit", why, "Import one filter at a time");
                }
                found.stage = node.get("stage").and_then(number).unwrap_or(0);
                found.limits = node.list("rate_limits").iter().collect();
                if let Some(own) = found.limits.first() {
                    let why = "the filter's own limits are imported for all routes that have no RateLimitPerRoute with limits, in place of the \
                        rate_limits of routes and virtual hosts";
                    note(notes, file, own, "rate_limits", why, "Check that your version of Envoy does so");
                }
                found.domain = Some(node.text_of("domain").to_owned());
                found.denies_on_failure = node.is_true("failure_mode_deny");
                match of_rejections(node, "rate_limited_status") {
                    Ok(status) => found.status = status,
                    Err(why) => note(notes, file, node, "rate_limited_status", why, "Write the number"),
                }
                let headers = node.text_of("enable_x_ratelimit_headers");
                found.has_headers = !headers.is_empty() && headers != "OFF";
            }
        });
    }
    found
}

/// The descriptors of all routes; `file` is the number of the file that they are in.
pub fn descriptors(
    documents: &[Node],
    filter: &Filter<'_>,
    file: usize,
    notes: &mut Notes,
) -> Vec<Descriptor> {
    let mut found = Vec::new();
    for document in documents {
        document.walk(&mut |node| {
            let hosts = node.list("virtual_hosts");
            let domains: Vec<_> = hosts.iter().map(|host| domains(host, file, notes)).collect();
            for (number, host) in hosts.iter().enumerate() {
                let own = virtual_host(number, &domains);
                of_host(&Levels { table: node, host, filter, file }, &own, notes, &mut found);
            }
        });
        elsewhere(document, file, notes);
    }
    found
}

/// Notes about limits at places that are not read, such as clusters with a weight, patches and other filters.
fn elsewhere(document: &Node, file: usize, notes: &mut Notes) {
    let mut read: Vec<*const Node> = Vec::new();
    document.walk(&mut |node| {
        if node.type_name() == "RateLimit" && node.get("rate_limit_service").is_some() {
            read.extend(node.get("rate_limits").map(core::ptr::from_ref));
        }
        let hosts = node.list("virtual_hosts");
        let routes = hosts.iter().flat_map(|host| host.list("routes"));
        let table = (!hosts.is_empty()).then_some(node);
        for level in table.into_iter().chain(hosts).chain(routes) {
            let lists = [Some(level), level.get("route"), per_route(level)];
            read.extend(
                lists.into_iter().flatten().filter_map(|at| at.get("rate_limits")).map(core::ptr::from_ref),
            );
        }
    });
    document.walk(&mut |node| {
        if node.type_name() == "RateLimitPerRoute" {
            notes.read(node);
        }
        // Around a RateLimitPerRoute.
        if let Some(config) = node.get("config").filter(|config| config.type_name() == "RateLimitPerRoute") {
            notes.read(node);
            notes.read(config);
        }
        if let Some(list) = node.get("rate_limits") {
            notes.read(list);
        }
        if let Some((place, list)) = node.field("rate_limits")
            && !read.contains(&core::ptr::from_ref(list))
        {
            let why = "limits are read in the filter, and in virtual hosts, their routes and RateLimitPerRoute only, so these are not imported";
            notes.add(Note::at(file, place.line, "rate_limits", why, "Give the routes that Envoy has (`/config_dump`), or write the policy by hand"));
        }
    });
}

type Domains = (Vec<(String, Test)>, bool);

/// The levels of configuration that set the limits of a route.
struct Levels<'a> {
    table: &'a Node,
    host: &'a Node,
    filter: &'a Filter<'a>,
    file: usize,
}

/// Notes about a value of Envoy's configuration.
fn note(notes: &mut Notes, file: usize, node: &Node, what: &str, why: &str, instead: &str) {
    notes.add(Note::at(file, node.place.line, what, why, instead));
}

/// The domains of a virtual host: names with their tests, and whether it takes all others.
fn domains(host: &Node, file: usize, notes: &mut Notes) -> Domains {
    let (mut names, mut takes_rest) = (Vec::new(), false);
    for domain in host.list("domains") {
        match domain.text().unwrap_or_default() {
            "*" => takes_rest = true,
            name if name.ends_with('*') => {
                note(notes, file, domain, name, "weir has no names that end in `*`", "List the hosts");
            }
            name => {
                let name = name.split(':').next().unwrap_or_default().to_ascii_lowercase();
                names.push((name.clone(), Test::Host(vec![name])));
            }
        }
    }
    (names, takes_rest)
}

/// The hosts that come to a virtual host.
fn virtual_host(number: usize, domains: &[Domains]) -> Test {
    let mut names = Vec::new();
    for (other, (of_host, _)) in domains.iter().enumerate() {
        names.extend(of_host.iter().map(|(name, test)| (name.as_str(), test, other == number)));
    }
    Test::of_server(names, domains.get(number).is_some_and(|(_, takes_rest)| *takes_rest))
}

fn of_host(levels: &Levels<'_>, domain: &Test, notes: &mut Notes, found: &mut Vec<Descriptor>) {
    let file = levels.file;
    let routes = levels.host.list("routes");
    let tests: Vec<_> = routes
        .iter()
        .map(|route| route.get("match").map_or(Test::Always, |test| route_test(test, file, notes)))
        .collect();
    let limits: Vec<Vec<&Node>> = routes.iter().map(|route| limits_of(route, levels, notes)).collect();
    let mut seen: Vec<Value> = Vec::new();
    for limit in limits.iter().flatten() {
        let json = limit.json();
        if seen.contains(&json) {
            continue;
        }
        let list =
            tests.iter().zip(&limits).map(|(test, all)| (test, all.iter().any(|other| other.json() == json)));
        let requests = domain.clone().and(Test::first_match(list));
        seen.push(json);
        notes.unread(file, limit, "actions stage limit apply_on_stream_done hits_addend");
        if limit.get("stage").and_then(number).unwrap_or(0) != levels.filter.stage {
            let why = "the filter has another stage, so it does not send this descriptor";
            note(notes, file, limit, "stage", why, "");
            continue;
        }
        if limit.get("limit").is_some() {
            let why = "a limit that a request brings in its metadata is not read";
            note(notes, file, limit, "limit", why, "Use `scale`");
        }
        if limit.is_true("apply_on_stream_done") {
            let why = "it counts when the response is complete, and weir counts before";
            let instead = "Write the policy by hand, with `settle` for what the response says";
            note(notes, file, limit, "apply_on_stream_done", why, instead);
            continue;
        }
        let hits = limit.at(&["hits_addend", "number"]).and_then(number);
        if hits == Some(0) {
            let why = "each request costs 0, so the policy would deny none: it is in shadow";
            let instead = "Write `settle`, by which a response has a cost, and remove `mode`";
            note(notes, file, limit, "hits_addend", why, instead);
        }
        if limit.get("hits_addend").is_some() && hits.is_none() {
            let why = "a number made of a format is not read";
            note(notes, file, limit, "hits_addend", why, "Write the policy's `cost`");
        }
        let entries: Option<Vec<Entry>> =
            limit.list("actions").iter().map(|action| entry(action, file, notes)).collect();
        if let Some(entries) = entries.filter(|entries| !entries.is_empty() && !requests.is_never()) {
            found.push(Descriptor { entries, requests, hits });
        }
    }
}

/// The limits that hold for a route: of the closest `RateLimitPerRoute` that has any, of the filter, or else its own and those of its
/// virtual host.
fn limits_of<'a>(route: &'a Node, levels: &Levels<'a>, notes: &mut Notes) -> Vec<&'a Node> {
    // Envoy limits only what it sends to a cluster.
    let Some(action) = route.get("route") else { return Vec::new() };
    let closest: Vec<&Node> = [route, levels.host, levels.table].into_iter().filter_map(per_route).collect();
    for own in &closest {
        notes.unread(levels.file, own, "@type vh_rate_limits rate_limits");
    }
    if let Some(own) = closest.iter().map(|own| own.list("rate_limits")).find(|limits| !limits.is_empty()) {
        return own.iter().collect();
    }
    if !levels.filter.limits.is_empty() {
        return levels.filter.limits.clone();
    }
    let own = action.list("rate_limits");
    let outer = match closest.first().map(|own| own.text_of("vh_rate_limits")) {
        _ if action.is_true("include_vh_rate_limits") => levels.host.list("rate_limits"),
        Some("INCLUDE") => levels.host.list("rate_limits"),
        Some("IGNORE") => &[],
        _ if own.is_empty() => levels.host.list("rate_limits"),
        _ => &[],
    };
    own.iter().chain(outer).collect()
}

/// Returns the filter's settings in a route, a virtual host or a table of them.
fn per_route(level: &Node) -> Option<&Node> {
    let configs = level.get("typed_per_filter_config")?;
    let configs = configs.children().map(|config| match config.type_name() {
        "FilterConfig" => config.get("config").unwrap_or(config),
        _ => config,
    });
    configs.into_iter().find(|config| config.type_name() == "RateLimitPerRoute")
}

/// A route's `match`.
fn route_test(node: &Node, file: usize, notes: &mut Notes) -> Test {
    let mut test = Test::Always;
    let Content::Object(fields) = &node.content else { return test };
    for (name, place, value) in fields {
        let text = value.text().unwrap_or_default().to_owned();
        let part = match name.as_str() {
            "prefix" if text == "/" => Some(Test::Always),
            "prefix" => Some(Test::Path(PathTest::Prefix(text))),
            "path" => Some(Test::Path(PathTest::Exact(text))),
            "path_separated_prefix" | "pathSeparatedPrefix" => Some(Test::Path(PathTest::Below(text))),
            "safe_regex" | "safeRegex" => {
                let regex = value.text_of("regex").to_owned();
                Pattern::new(&regex).ok().map(|_| Test::Path(PathTest::regex(regex)))
            }
            "headers" => {
                value.items().iter().try_fold(Test::Always, |all, header| Some(all.and(header_test(header)?)))
            }
            "query_parameters" | "queryParameters" => {
                value.items().iter().try_fold(Test::Always, |all, query| Some(all.and(query_test(query)?)))
            }
            _ => None,
        };
        match part {
            Some(part) => test = test.and(part),
            None => notes.add(Note::at(
                file,
                place.line,
                &format!("match: {name}"),
                "weir does not have this condition, so the policies of this route are for more requests",
                "Give the route a name, and add the condition `route`",
            )),
        }
    }
    test
}

/// Adds what a matcher of texts says to the test on a value.
fn text_test(node: &Node, mut test: Map) -> Option<Map> {
    let matcher = node.get("string_match").unwrap_or(node);
    let ignores_case = matcher.is_true("ignore_case");
    let flags = if ignores_case { "(?i)" } else { "" };
    for (names, before, after) in [
        (["exact", "exact_match"], "", ""),
        (["prefix", "prefix_match"], "", ".*"),
        (["suffix", "suffix_match"], ".*", ""),
        (["contains", "contains_match"], ".*", ".*"),
    ] {
        let Some(text) = names.iter().find_map(|name| matcher.get(name)?.text()) else { continue };
        match (before, after) {
            ("", "") if !ignores_case => test.set("exact", text),
            ("", ".*") if !ignores_case => test.set("prefix", text),
            _ => test.set("regex", format!("{flags}{before}{}{after}", escaped(text))),
        };
        return Some(test);
    }
    if let Some(regex) = ["safe_regex", "safe_regex_match"].iter().find_map(|name| matcher.get(name)) {
        let regex = regex.text_of("regex");
        Pattern::new(regex).ok()?;
        test.set("regex", regex);
    }
    Some(test)
}

fn is_false(node: &Node, name: &str) -> bool {
    matches!(node.get(name).map(|node| &node.content), Some(Content::Scalar(Value::Bool(false))))
}

fn header_test(header: &Node) -> Option<Test> {
    let name = header.text_of("name").to_ascii_lowercase();
    let is_absent = is_false(header, "present_match");
    let test = text_test(header, Map::from([("name", name.as_str().into())]))?;
    if ["range_match", "treat_missing_header_as_empty"].iter().any(|field| header.get(field).is_some()) {
        return None;
    }
    let test = match name.as_str() {
        ":method" => match test.get("exact") {
            Some(Tree::Scalar(method)) => Test::Method(vec![method.as_str()?.to_owned()]),
            _ => return None,
        },
        _ if name.starts_with(':') => return None,
        _ => Test::Value("header", test),
    };
    Some(if header.is_true("invert_match") != is_absent { test.negated() } else { test })
}

fn query_test(query: &Node) -> Option<Test> {
    let test = Map::from([("name", query.text_of("name").into())]);
    Some(Test::Value("query", text_test(query, test)?))
}

/// One action; nothing if weir cannot tell what it makes.
fn entry(action: &Node, file: usize, notes: &mut Notes) -> Option<Entry> {
    let Content::Object(fields) = &action.content else { return None };
    let (kind, place, value) = fields.first()?;
    let key = |default: &str| match value.text_of("descriptor_key") {
        "" => default.to_owned(),
        key => key.to_owned(),
    };
    let fixed = |test| Source::Fixed(Some(value.text_of("descriptor_value").to_owned()), test);
    let inverts = is_false(value, "expect_match");
    let expected = |test: Test| if inverts { test.negated() } else { test };
    let all = |name: &str, test: fn(&Node) -> Option<Test>| {
        value.list(name).iter().try_fold(Test::Always, |all, node| Some(all.and(test(node)?)))
    };
    let known = match kind.as_str() {
        "header_value_match" | "headerValueMatch" => "descriptor_key descriptor_value expect_match headers",
        "query_parameter_value_match" | "queryParameterValueMatch" => {
            "descriptor_key descriptor_value expect_match query_parameters"
        }
        "generic_key" | "genericKey" => "descriptor_key descriptor_value",
        "masked_remote_address" | "maskedRemoteAddress" => "v4_prefix_mask_len v6_prefix_mask_len",
        "request_headers" | "requestHeaders" => "descriptor_key skip_if_absent header_name",
        "query_parameters" | "queryParameters" => "descriptor_key query_parameter_name",
        "metadata" => "descriptor_key metadata_key source",
        _ => "",
    };
    notes.unread(file, value, known);
    let made = match kind.as_str() {
        "generic_key" | "genericKey" => Some((key("generic_key"), fixed(Test::Always))),
        "remote_address" | "remoteAddress" => {
            Some((String::from("remote_address"), Source::Address(None, None)))
        }
        "masked_remote_address" | "maskedRemoteAddress" => {
            let bits = |name| value.get(name).and_then(number);
            let source = Source::Address(bits("v4_prefix_mask_len"), bits("v6_prefix_mask_len"));
            Some((String::from("masked_remote_address"), source))
        }
        "request_headers" | "requestHeaders" => {
            if value.is_true("skip_if_absent") {
                let why = "where the header is missing, Envoy leaves out only this entry, and weir the whole policy";
                let instead = "Write a policy for requests without the header";
                notes.add(Note::at(file, place.line, "skip_if_absent", why, instead));
            }
            header_source(value.text_of("header_name")).map(|source| (key(""), source))
        }
        "header_value_match" | "headerValueMatch" => {
            all("headers", header_test).map(|test| (key("header_match"), fixed(expected(test))))
        }
        "query_parameter_value_match" | "queryParameterValueMatch" => {
            all("query_parameters", query_test).map(|test| (key("query_match"), fixed(expected(test))))
        }
        "query_parameters" | "queryParameters" => {
            let name = Map::from([("name", value.text_of("query_parameter_name").into())]);
            Some((key(""), Source::Value("query", name)))
        }
        "metadata" if value.text_of("source") != "ROUTE_ENTRY" => {
            let names = value.get("metadata_key").map(|metadata| {
                let path = metadata.list("path").iter().map(|segment| segment.text_of("key"));
                ["metadata", "filter_metadata", metadata.text_of("key")]
                    .into_iter()
                    .chain(path)
                    .map(Tree::from)
                    .collect::<Vec<_>>()
            });
            names.map(|names| (key(""), Source::Value("attribute", Map::from([("path", names.into())]))))
        }
        _ => None,
    };
    if made.is_none() {
        let why = "weir cannot tell what this action makes of a request, so the descriptor is not imported";
        notes.add(Note::at(file, place.line, kind, why, "Write the policy by hand"));
    }
    made.map(|(key, source)| Entry { key, source })
}

/// A header, or what Envoy writes as one.
fn header_source(name: &str) -> Option<Source> {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        ":path" => {
            let path: Vec<Tree> = vec!["request".into(), "path".into()];
            Some(Source::Value("attribute", Map::from([("path", path.into())])))
        }
        ":method" => Some(Source::Method),
        ":authority" => Some(Source::Host),
        _ if name.starts_with(':') || name.is_empty() => None,
        _ => Some(Source::Value("header", Map::from([("name", name.into())]))),
    }
}
