// SPDX-License-Identifier: Apache-2.0
//! The rules of Envoy Gateway's BackendTrafficPolicy. A global rule asks the common rate-limit service, and a local one is a token bucket
//! of each Envoy.

use super::super::ratelimit::{Source, header_is, header_source, number, unit};
use super::super::test::{PathTest, Test, network};
use super::super::{Object, address, literal};
use super::{Writer, attribute};
use crate::document::Node;
use crate::tree::{Map, Tree};
use weir::policy::pattern::Pattern;

/// A rule: the requests that it selects, and what tells them apart.
struct Rule<'a> {
    node: &'a Node,
    requests: Test,
    parts: Vec<Tree>,
}

/// The kinds of rules, and the local rule without selectors, which a policy has once.
pub const KINDS: [&str; 3] = ["global", "local", "default"];

/// The targets of policies that Envoy Gateway does not apply there: an earlier policy has the same target, or the policy's status says so.
#[derive(Default)]
pub struct Refused {
    refs: Vec<*const Node>,
}

impl Refused {
    /// Those of these policies.
    pub fn of(objects: &[Object<'_>]) -> Self {
        let created = |object: &Object<'_>| object.metadata("creationTimestamp").to_owned();
        let mut policies: Vec<_> = objects.iter().filter(|object| object.kind() == KIND).collect();
        let are_dated = !policies.iter().any(|object| created(object).is_empty());
        policies.sort_by_cached_key(|object| {
            let created = if are_dated { created(object) } else { String::new() };
            (created, object.namespace(), object.metadata("name"))
        });
        let (mut taken, mut refused) = (Vec::new(), Self::default());
        for object in policies {
            let Some(spec) = object.root.get("spec") else { continue };
            let is_refused = is_refused(object.root);
            for of in all_refs(spec) {
                let target = ["kind", "name", "sectionName"].map(|field| of.text_of(field));
                let target = (object.namespace(), target);
                if is_refused || taken.contains(&target) {
                    refused.refs.push(of);
                } else {
                    taken.push(target);
                }
            }
        }
        refused
    }

    /// The targets at which this `spec` applies.
    fn refs<'a>(&self, spec: &'a Node) -> Vec<&'a Node> {
        all_refs(spec).filter(|of| !self.refs.contains(&core::ptr::from_ref(*of))).collect()
    }
}

/// True if Envoy Gateway says that it applies the policy nowhere.
fn is_refused(object: &Node) -> bool {
    let ancestors = object.get("status").map(|status| status.list("ancestors")).unwrap_or_default();
    let is_accepted = |ancestor: &Node| {
        !ancestor.list("conditions").iter().any(|condition| {
            condition.text_of("type") == "Accepted" && condition.text_of("status") == "False"
        })
    };
    !ancestors.is_empty() && !ancestors.iter().any(is_accepted)
}

const KIND: &str = "BackendTrafficPolicy";

/// Notes the routes that have no limits because their policy has none and replaces that of the Gateway, if weir does not know these routes.
fn note_lifted(spec: &Node, refused: &Refused, writer: &mut Writer<'_>) {
    if !writer.has_limits || !spec.text_of("mergeType").is_empty() {
        return;
    }
    let why = "this policy replaces those of its Gateway for routes that weir does not know, so their limits apply there, too";
    let instead = "Exclude these routes in the `match` of those policies";
    if spec.get("targetSelectors").is_some() {
        writer.note(spec, "targetSelectors", why, instead);
    }
    for of in refused.refs(spec) {
        if of.get("sectionName").is_some() {
            writer.note(of, "sectionName", why, instead);
        } else if of.text_of("kind") == "ListenerSet" {
            writer.note(of, "kind", why, instead);
        }
    }
}

/// The policies of a BackendTrafficPolicy. `own` are the requests of routes that have rules of their own, in place of the Gateway's, for each
/// kind.
pub fn import(object: &Node, own: &[Test; 3], refused: &Refused, writer: &mut Writer<'_>) {
    let Some(spec) = object.get("spec") else { return };
    let Some(limit) = spec.get("rateLimit") else { return note_lifted(spec, refused, writer) };
    for of in all_refs(spec).filter(|of| refused.refs.contains(&core::ptr::from_ref(*of))) {
        let (why, instead) = if is_refused(object) {
            ("its `status` says that Envoy Gateway does not apply it, so it is not imported", "")
        } else {
            (
                "another policy has this target, and Envoy Gateway applies the older one only, or the first by its name: so this one is not \
                 imported for it",
                "Remove one of both",
            )
        };
        writer.note(of, "name", why, instead);
    }
    let is_selected = spec.get("targetSelectors").is_some() && !is_refused(object);
    if !is_selected && refused.refs(spec).is_empty() && all_refs(spec).next().is_some() {
        return writer.notes.read(limit);
    }
    writer.unread(limit, "type global local");
    let name = object.at(&["metadata"]).map(|metadata| metadata.text_of("name")).unwrap_or_default();
    let kind_only = limit.text_of("type").to_ascii_lowercase();
    let [global, local, default] = own.each_ref().map(|own| target(object, own, refused, writer));
    for (kind, target) in [("global", &global), ("local", &local)] {
        let is_local = kind == "local";
        // With `type`, Envoy Gateway reads only this kind.
        if !kind_only.is_empty() && kind_only != kind {
            if limit.get(kind).is_some_and(|of| !of.list("rules").is_empty()) {
                let why = "Envoy Gateway reads only the rules that `type` names, so these are not imported";
                writer.note(limit, kind, why, "Correct `type` if they should apply");
            }
            continue;
        }
        if let Some(of) = limit.get(kind) {
            writer.unread(of, "rules");
        }
        let rules = limit.get(kind).map(|of| of.list("rules")).unwrap_or_default();
        let rules: Vec<Rule<'_>> = rules.iter().map(|node| rule(node, is_local, writer)).collect();
        if is_local && !rules.is_empty() {
            let why = "each Envoy counts for itself, and all proxies with weir count together";
            let instead = "Multiply the limits by the number of Envoys if they were meant for one of them";
            writer.note(limit, "local", why, instead);
        } else if rules.iter().any(|rule| !rule.node.is_true("shared")) {
            let why =
                "Envoy Gateway counts a rule without `shared` for each listener, and weir for all together";
            writer.note(limit, "global", why, "Multiply the limit if a route has several listeners");
        }
        let is_rest = |rule: &Rule<'_>| selectors(rule.node).is_empty();
        let keeps = |spec: &&Node| match spec.text_of("mergeType") {
            "StrategicMerge" => true,
            "JSONMerge" => rules.iter().all(is_rest),
            _ => false,
        };
        if let Some(spec) = object.get("spec").filter(keeps).filter(|_| is_local && rules.iter().any(is_rest))
        {
            let why = "requests that a rule of the Gateway selects do not count in the local rule without `clientSelectors`, and do in weir";
            writer.note(spec, "mergeType", why, "Exclude them in its `match`");
        }
        // A local rule without selectors is for the requests that no other rule selects.
        let selected = rules.iter().filter(|rule| !selectors(rule.node).is_empty());
        let selected = Test::any_of(selected.map(|rule| rule.requests.clone()));
        for rule in &rules {
            let requests = if is_local && is_rest(rule) {
                default.clone().and(selected.clone().negated())
            } else {
                target.clone().and(rule.requests.clone())
            };
            policy(name, rule, is_local, &requests, writer);
        }
    }
}

/// True if requests fail without the rate-limit service, by the configuration of Envoy Gateway.
pub fn fails_closed(object: &Node, writer: &mut Writer<'_>) -> bool {
    let Some(limit) = object.get("rateLimit") else { return false };
    writer.unread(limit, "backend timeout failClosed telemetry");
    limit.is_true("failClosed")
}

/// Notes a ClientTrafficPolicy that switches off the headers of limits.
pub fn note_headers(object: &Node, writer: &mut Writer<'_>) {
    let headers =
        object.at(&["spec", "headers"]).filter(|headers| headers.is_true("disableRateLimitHeaders"));
    if let Some(headers) = headers {
        let why = "Envoy Gateway then sends none, and weir sends them";
        writer.note(headers, "disableRateLimitHeaders", why, "Write `response: {headers: none}`");
    }
}

/// The requests of the routes whose policy replaces the Gateway's rules of this kind: merged as JSON, a list that is not empty replaces the other;
/// merged strategically, both apply. The local rule without selectors is in no list.
pub fn replaced(object: &Object<'_>, refused: &Refused, kind: &str) -> Vec<Test> {
    let spec = object.root.get("spec").filter(|spec| {
        let limit = spec.get("rateLimit");
        let only = limit.map(|limit| limit.text_of("type").to_ascii_lowercase()).unwrap_or_default();
        let of = |kind: &str| limit?.get(kind).filter(|_| only.is_empty() || only == kind);
        match spec.text_of("mergeType") {
            "" => true,
            _ if kind == "default" => of("local").is_some(),
            "JSONMerge" => of(kind).is_some_and(|of| {
                of.list("rules").iter().any(|rule| kind == "global" || !selectors(rule).is_empty())
            }),
            _ => false,
        }
    });
    let spec = spec.filter(|_| object.kind() == KIND);
    let refs = spec.map(|spec| refused.refs(spec)).unwrap_or_default();
    let whole = refs.into_iter().filter(|of| of.get("sectionName").is_none());
    whole.filter_map(|of| route(of, object.namespace())).collect()
}

/// The Gateways that have this policy, each with its namespace.
pub fn gateways<'a>(object: &Object<'a>, refused: &Refused) -> Vec<(&'a str, &'a str)> {
    let spec = limited(object);
    let all = spec.map(|spec| refused.refs(spec)).unwrap_or_default().into_iter();
    let all = all.filter(|of| of.text_of("kind") == "Gateway");
    all.map(|of| (object.namespace(), of.text_of("name"))).collect()
}

/// The `spec` of a policy with limits.
pub fn limited<'a>(object: &Object<'a>) -> Option<&'a Node> {
    let spec = object.root.get("spec").filter(|_| object.kind() == KIND);
    spec.filter(|spec| spec.get("rateLimit").is_some())
}

fn all_refs(spec: &Node) -> impl Iterator<Item = &Node> {
    spec.get("targetRef").into_iter().chain(spec.list("targetRefs"))
}

/// The requests of a route. Envoy Gateway names Envoy's routes after them.
fn route(of: &Node, namespace: &str) -> Option<Test> {
    let kind = of.text_of("kind").to_ascii_lowercase();
    let prefix = format!("{kind}/{namespace}/{}/", of.text_of("name"));
    ["httproute", "grpcroute"]
        .contains(&kind.as_str())
        .then(|| attribute(["xds", "route_name"], "prefix", &prefix))
}

/// The requests of the routes that the policy is for.
fn target(object: &Node, own: &Test, refused: &Refused, writer: &mut Writer<'_>) -> Test {
    let Some(spec) = object.get("spec") else { return Test::Always };
    if spec.get("targetSelectors").is_some() {
        let why = "weir does not know which routes have these labels, so the policies are for all, and apply beside those of their Gateway";
        writer.note(spec, "targetSelectors", why, "Test the `route` in `match`");
        return Test::Always;
    }
    let namespace = Object { file: writer.file, root: object }.namespace();
    let mut routes = Vec::new();
    for of in refused.refs(spec) {
        writer.unread(of, "group kind name namespace sectionName");
        if of.get("sectionName").is_some() {
            let why = "weir does not know the number of a section, so the policies are for all of the target, and apply beside those of its Gateway";
            writer.note(of, "sectionName", why, "Test the whole name of Envoy's route in `match`");
        }
        if of.text_of("kind") == "Gateway" && writer.has_gateways {
            let why = "weir does not know the Gateway of a request, so the policies are for those of the other Gateways, too";
            let instead = "Import the policies of each Gateway alone, and load weir in it";
            writer.note(of, "name", why, instead);
        }
        let route = route(of, namespace);
        if route.is_none() && of.text_of("kind") != "Gateway" {
            let why = "weir does not know which requests belong to this kind, so the policies are for all";
            writer.note(of, "kind", why, "Test the `route` in `match`");
        }
        routes.push(route.unwrap_or_else(|| own.clone().negated()));
    }
    if routes.is_empty() { Test::Always } else { Test::any_of(routes) }
}

fn selectors(rule: &Node) -> &[Node] {
    rule.list("clientSelectors")
}

fn rule<'a>(node: &'a Node, is_local: bool, writer: &mut Writer<'_>) -> Rule<'a> {
    let mut rule = Rule { node, requests: Test::Always, parts: Vec::new() };
    writer.unread(node, "clientSelectors limit cost shared shadowMode xRateLimitHeaders name");
    // Each route counts for itself, and in each Envoy always.
    if is_local || !node.is_true("shared") {
        // It limits in routes only.
        rule.parts.push(Map::from([("route", Map::new().into()), ("on_missing", "skip".into())]).into());
    }
    for selector in selectors(node) {
        writer.unread(selector, "headers queryParams methods path sourceCIDR");
        for (list, field) in [("headers", "header"), ("queryParams", "query")] {
            for value in selector.list(list) {
                writer.unread(value, "name type value invert");
                rule.value(value, field, writer);
            }
        }
    }
    // Envoy Gateway joins the methods of all selectors, and takes the path and the network of the last one that has any.
    let methods: Vec<&Node> = selectors(node).iter().flat_map(|selector| selector.list("methods")).collect();
    if !methods.is_empty() {
        let each = methods.iter().map(|method| {
            let test = header_is(":method", "exact", method.text_of("value"));
            if method.is_true("invert") { test.negated() } else { test }
        });
        rule.requests = rule.requests.and(Test::any_of(each));
    }
    let last = |field: &str| selectors(node).iter().rev().find_map(|selector| selector.get(field));
    if let Some(path) = last("path") {
        rule.path(path, writer);
    }
    if let Some(source) = last("sourceCIDR") {
        rule.source(source, writer);
    }
    rule
}

/// An expression for a whole value. A note says if weir cannot read it.
fn expression<'a>(of: &'a Node, writer: &mut Writer<'_>) -> Option<&'a str> {
    let value = of.text_of("value");
    let said = Pattern::new(value).err();
    if let Some(said) = &said {
        let why = format!("weir cannot read the expression, so the policy is for more requests: {said}");
        writer.note(of, "value", &why, "Write the `match` by hand");
    }
    said.is_none().then_some(value)
}

impl Rule<'_> {
    fn add(&mut self, test: Test, of: &Node) {
        let test = if of.is_true("invert") { test.negated() } else { test };
        self.requests = core::mem::replace(&mut self.requests, Test::Always).and(test);
    }

    /// A header or a query parameter.
    fn value(&mut self, of: &Node, field: &'static str, writer: &mut Writer<'_>) {
        let name = of.text_of("name");
        let (header, kind) = (name.to_ascii_lowercase(), of.text_of("type"));
        if kind == "Distinct" {
            if of.is_true("invert") {
                let why = "Envoy Gateway refuses it with `type: Distinct`, so it counts as not set";
                writer.note(of, "invert", why, "Correct it");
            }
            let source = match field {
                "header" => header_source(name),
                _ => Some(Source::Value(field, Map::from([("name", name.into())]))),
            };
            let Some(source) = source else { return };
            self.requests = self.requests.clone().and(source.is_there());
            return self.parts.extend(source.part());
        }
        let (test, text) = match kind {
            "RegularExpression" => ("regex", expression(of, writer)),
            _ => ("exact", of.get("value").and_then(Node::text)),
        };
        match text {
            Some(text) if field == "header" => self.add(header_is(&header, test, text), of),
            Some(text) if !text.is_empty() => {
                self.add(Test::Value(field, Map::from([("name", name.into()), (test, text.into())])), of);
            }
            _ if test == "regex" => {}
            _ => {
                let why = "it needs a `value`, so this condition is not imported";
                writer.note(of, "name", why, "Correct it");
            }
        }
    }

    fn path(&mut self, of: &Node, writer: &mut Writer<'_>) {
        writer.unread(of, "type value invert");
        let (value, kind) = (of.text_of("value"), of.text_of("type"));
        let test = match kind {
            "Exact" => PathTest::Exact(value.to_owned()),
            "RegularExpression" => match expression(of, writer) {
                Some(regex) => PathTest::regex(regex),
                None => return,
            },
            _ if value.trim_matches('/').is_empty() => PathTest::Prefix(String::from("/")),
            _ => PathTest::Below(value.trim_end_matches('/').to_owned()),
        };
        if ["Exact", "RegularExpression"].contains(&kind) {
            let why = "Envoy Gateway compares the path with its query, and weir without";
            writer.note(of, "value", why, "If that matters, test the attribute `request.path`");
        }
        self.add(Test::path(test), of);
    }

    fn source(&mut self, of: &Node, writer: &mut Writer<'_>) {
        writer.unread(of, "type value invert");
        let value = of.text_of("value");
        let Some(network) = network(value) else {
            return writer.note(of, "value", "it is no network, so it is not imported", "Correct it");
        };
        // All addresses of version 4 stand for all.
        if matches!(value, "0.0.0.0/0" | "::/0") && !of.is_true("invert") {
            let why = "Envoy Gateway limits clients of this version of IP only, and weir those of both";
            let instead = "Name the networks in `match: {client_address}` if the others have no limit";
            writer.note(of, "value", why, instead);
        } else {
            self.add(Test::Address(vec![network]), of);
        }
        if of.text_of("type") == "Distinct" {
            self.parts.push(address().into());
        }
    }
}

fn policy(name: &str, rule: &Rule<'_>, is_local: bool, requests: &Test, writer: &mut Writer<'_>) {
    let Some(limit) = rule.node.get("limit") else {
        let why = "the rule has none, so it is not imported";
        return writer.note(rule.node, "limit", why, "Correct it");
    };
    writer.unread(limit, "requests unit fromMetadata");
    let (units, unit) = (limit.get("requests").and_then(number), unit(limit.text_of("unit")));
    let (Some(units), Some((window, unit))) = (units, unit) else {
        let why = "it needs `requests` and a `unit`, so it is not imported";
        return writer.note(limit, "limit", why, "Correct it");
    };
    if limit.get("fromMetadata").is_some() {
        let why = "weir reads no metadata, so the limit is the one that is written";
        writer.note(limit, "fromMetadata", why, "`tiers` and `scale` choose limits by the request");
    }
    if requests.is_never() {
        let why = "no request meets its selectors, so it is not imported";
        return writer.note(rule.node, "limit", why, "");
    }
    let mut made = writer.policy(rule.node, &format!("{name}-{unit}"), requests);
    let parts = if rule.parts.is_empty() { vec![literal(name).into()] } else { rule.parts.clone() };
    made.set("subject", parts);
    let mut own = Map::from([("name", format!("per-{unit}").into())]);
    if is_local {
        own.set("algorithm", "token_bucket").set("capacity", units.max(1));
        own.set("refill", units.max(1)).set("interval", window);
        made.set("limits", vec![Tree::from(own)]).set("on_failure", "local");
        if rule.node.get("cost").is_some() {
            let why = "Envoy Gateway does not apply it to a local rule, so a request costs 1";
            writer.note(rule.node, "cost", why, "");
        }
    } else {
        own.set("algorithm", "fixed_window").set("limit", units.max(1)).set("window", window);
        made.set("limits", vec![Tree::from(own)]);
        if writer.fails_closed {
            made.set("on_failure", "deny");
        }
        cost(rule.node, &mut made, writer);
    }
    let mut response = Map::new();
    if units == 0 {
        made.set("deny", vec![Tree::from(Map::new())]);
        response.set("deny_status", 429_u64);
    }
    if is_local && selectors(rule.node).is_empty() && rule.node.is_true("shadowMode") {
        let why =
            "Envoy Gateway does not apply it to a local rule without `clientSelectors`, so the policy denies";
        writer.note(rule.node, "shadowMode", why, "Write `mode: shadow`");
    } else if rule.node.is_true("shadowMode") {
        made.set("mode", "shadow");
    }
    let is_off = rule.node.text_of("xRateLimitHeaders") == "Off";
    response.set("headers", if is_off { "none" } else { "x_ratelimit" });
    made.set("response", response);
    writer.made.push(made);
}

fn cost(rule: &Node, made: &mut Map, writer: &mut Writer<'_>) {
    let Some(cost) = rule.get("cost") else { return };
    match cost.at(&["request", "number"]).and_then(number) {
        Some(units) => {
            made.set("cost", Map::from([("constant", units.into())]));
            if units == 0 {
                made.set("mode", "shadow");
                let why = "each request costs 0, so the policy would deny none: it is in shadow";
                let instead = "Write `settle`, by which a response has a cost, and remove `mode`";
                writer.note(cost, "request", why, instead);
            }
        }
        None if cost.get("request").is_some() => {
            let why = "weir reads no metadata, so a request costs 1";
            writer.note(cost, "request", why, "Write a `cost` from a header, the query or the body");
        }
        None => {}
    }
    if cost.get("response").is_some() {
        let why = "weir reads no metadata, so the response costs nothing";
        let instead = "Write `settle`: it reads headers, trailers, JSON and the usage of language models";
        writer.note(cost, "response", why, instead);
    }
}
