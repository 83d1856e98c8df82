//! Makes a [`Config`] of JSON that was held against its shape and completed with defaults. What is left to find
//! wrong here is what no shape can say: parameters that do not go together, references to nothing.

use super::check::{Errors, join, nearest};
use super::json::Json;
use super::language::MAX_COUNT;
use super::text;
use super::{Config, Store, Topology};
use crate::limit::{
    Align, Concurrency, FixedWindow, Invalid, LeakyBucket, Limit, Refill, SlidingLog, SlidingWindow,
    TokenBucket,
};
use crate::policy::cost::{Bounds, Cost, CostSource};
use crate::policy::matcher::{Condition, HostTest, PathPattern, PathTest, ValueTest};
use crate::policy::pattern::Pattern;
use crate::policy::response::{Body, Face, Response, Style, Upstream};
use crate::policy::subject::{OnMissing, OnMultiple, Part, Source};
use crate::policy::{Lease, Mode, OnFailure, Policy, Tier, Tiers};
use crate::request::client_ip::{Network, Proxies, Trust, cover_everything};
use crate::request::pairs::Semicolon;
use crate::request::path::TrailingSlash;
use crate::script::{NamedLimit, OVERRIDE, Overrides, Plan};
use crate::time::Micros;

/// A value and where it stands. Getters give the type's zero where the shape already promised better.
#[derive(Clone)]
struct View<'a> {
    json: &'a Json,
    path: String,
}

impl<'a> View<'a> {
    fn get(&self, name: &str) -> Option<Self> {
        self.json.get(name).map(|json| View { json, path: join(&self.path, name) })
    }

    fn items(&self, name: &str) -> Vec<Self> {
        let Some(Json::List(items)) = self.json.get(name) else { return Vec::new() };
        let path = join(&self.path, name);
        let each = items.iter().enumerate();
        each.map(|(index, json)| View { json, path: format!("{path}[{index}]") }).collect()
    }

    fn entries(&self, name: &str) -> Vec<(&'a str, Self)> {
        let Some(Json::Object(entries)) = self.json.get(name) else { return Vec::new() };
        let path = join(&self.path, name);
        entries.iter().map(|(name, json)| (name.as_str(), View { json, path: join(&path, name) })).collect()
    }

    fn text(&self, name: &str) -> &'a str {
        self.json.get(name).map(Json::text).unwrap_or_default()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        self.items(name).iter().map(|item| item.json.text().to_owned()).collect()
    }

    fn count(&self, name: &str) -> u64 {
        if let Some(Json::Count(count)) = self.json.get(name) { *count } else { 0 }
    }

    fn small<T: TryFrom<u64> + Default>(&self, name: &str) -> T {
        T::try_from(self.count(name)).unwrap_or_default()
    }

    fn flag(&self, name: &str) -> Option<bool> {
        if let Some(Json::Flag(flag)) = self.json.get(name) { Some(*flag) } else { None }
    }

    fn span(&self, name: &str) -> Micros {
        text::span(self.text(name)).unwrap_or_default()
    }
}

/// The whole configuration.
pub(super) fn config(json: &Json, errors: &mut Errors) -> Config {
    let root = View { json, path: String::new() };
    let store = store(&root);
    let response = root.get("response").map(|view| response(&view, errors)).unwrap_or_default();
    let mut policies = Vec::new();
    for view in root.items("policies") {
        policies.push(policy(&view, &store, &response, errors));
    }
    name_limits(&mut policies);
    if errors.found.is_empty() {
        tell_limits_apart(&root, &policies, errors);
    }
    Config {
        store,
        trust: trust(&root, errors),
        policies,
        deny: conditions(&root, "deny"),
        exempt: conditions(&root, "exempt"),
        response,
        emit_filter_state: root.flag("emit_filter_state") == Some(true),
    }
}

fn store(root: &View<'_>) -> Store {
    let Some(store) = root.get("store") else { return Store::default() };
    Store {
        cluster: store.text("cluster").to_owned(),
        deadline: store.span("deadline"),
        on_failure: on_failure(store.text("on_failure")),
        topology: match store.text("topology") {
            "single" => Topology::Single,
            _ => Topology::Any,
        },
        workers: u32::try_from(store.count("workers")).unwrap_or(u32::MAX),
        denial_ttl: store.span("denial_ttl"),
    }
}

fn on_failure(word: &str) -> OnFailure {
    match word {
        "deny" => OnFailure::Deny,
        "local" => OnFailure::Local,
        _ => OnFailure::Allow,
    }
}

fn trust(root: &View<'_>, errors: &mut Errors) -> Trust {
    let Some(view) = root.get("client_address") else { return Trust::default() };
    let proxies = if view.get("trusted_networks").is_some() {
        let networks = networks(&view, "trusted_networks");
        if cover_everything(&networks) {
            errors.add(
                &join(&view.path, "trusted_networks"),
                "networks of every address",
                "the networks of your proxies: if every address is trusted, the client is the left end of the chain, which it wrote itself",
            );
        }
        Proxies::Networks(networks)
    } else {
        Proxies::Hops(view.small("trusted_hops"))
    };
    Trust::new(view.text("header").to_owned(), proxies)
}

fn networks(view: &View<'_>, name: &str) -> Vec<Network> {
    view.texts(name).iter().filter_map(|text| Network::parse(text).ok()).collect()
}

fn policy(view: &View<'_>, store: &Store, response_of_all: &Response, errors: &mut Errors) -> Policy {
    let overrides = if view.flag("overrides") == Some(true) { Overrides::Read } else { Overrides::Ignored };
    let tiers = tiers(view, store.workers, overrides, errors);
    let own_failure = view.get("on_failure").map(|word| on_failure(word.json.text()));
    Policy {
        name: view.text("name").to_owned(),
        matcher: view.get("match").map_or_else(|| Condition::All(Vec::new()), |view| condition(&view)),
        deny: conditions(view, "deny"),
        exempt: conditions(view, "exempt"),
        subject: view.items("subject").iter().map(part).collect(),
        cost: view.get("cost").map_or(Cost::Constant(1), |view| cost(&view, errors)),
        lease: view.get("lease").map(|view| lease(&view, &tiers, errors)),
        tiers,
        mode: if view.text("mode") == "shadow" { Mode::Shadow } else { Mode::Enforce },
        enforce_percent: view.small("enforce_percent"),
        on_failure: own_failure.unwrap_or(store.on_failure),
        response: view
            .get("response")
            .map_or_else(|| response_of_all.clone(), |view| response(&view, errors)),
    }
}

fn conditions(view: &View<'_>, name: &str) -> Vec<Condition> {
    view.items(name).iter().map(condition).collect()
}

fn bytes(view: &View<'_>, name: &str) -> Vec<Vec<u8>> {
    view.texts(name).into_iter().map(String::into_bytes).collect()
}

/// Cheap tests first, those that read more of the request after them.
fn condition(view: &View<'_>) -> Condition {
    let mut all = Vec::new();
    if view.get("method").is_some() {
        all.push(Condition::Method(bytes(view, "method")));
    }
    if let Some(test) = view.get("path").and_then(|test| path_test(&test)) {
        all.push(Condition::Path(test));
    }
    if view.get("host").is_some() {
        all.push(Condition::Host(view.texts("host").iter().map(|host| host_test(host)).collect()));
    }
    if let Some(test) = view.get("header") {
        all.push(Condition::Header(test.text("name").to_owned(), value_test(&test)));
    }
    if let Some(test) = view.get("query") {
        all.push(Condition::Query(test.text("name").into(), semicolon(&test), value_test(&test)));
    }
    if view.get("client_address").is_some() {
        all.push(Condition::ClientAddress(networks(view, "client_address")));
    }
    if view.get("route").is_some() {
        all.push(Condition::Route(bytes(view, "route")));
    }
    all.extend(conditions(view, "all"));
    if view.get("any").is_some() {
        all.push(Condition::Any(conditions(view, "any")));
    }
    if let Some(not) = view.get("not") {
        all.push(Condition::Not(Box::new(condition(&not))));
    }
    match <[Condition; 1]>::try_from(all) {
        Ok([only]) => only,
        Err(all) => Condition::All(all),
    }
}

fn path_test(view: &View<'_>) -> Option<PathTest> {
    if let Some(exact) = view.get("exact") {
        return Some(PathTest::Exact(exact.json.text().into(), trailing_slash(view)));
    }
    if let Some(prefix) = view.get("prefix") {
        return Some(PathTest::Prefix(prefix.json.text().trim_end_matches('/').into()));
    }
    let exact = Pattern::new(view.text("regex")).ok()?;
    let with_slash = match trailing_slash(view) {
        TrailingSlash::Ambiguous => exact.with_slash(),
        TrailingSlash::Distinct => None,
    };
    Some(PathTest::Regex(PathPattern { exact, with_slash }))
}

fn trailing_slash(view: &View<'_>) -> TrailingSlash {
    if view.text("trailing_slash") == "distinct" { TrailingSlash::Distinct } else { TrailingSlash::Ambiguous }
}

fn semicolon(view: &View<'_>) -> Semicolon {
    if view.text("semicolon") == "literal" { Semicolon::Literal } else { Semicolon::Ambiguous }
}

fn host_test(host: &str) -> HostTest {
    let below = host.strip_prefix('*');
    below.map_or_else(|| HostTest::Exact(host.into()), |suffix| HostTest::Below(suffix.into()))
}

fn value_test(view: &View<'_>) -> ValueTest {
    if let Some(wanted) = view.get("exact") {
        return ValueTest::Exact(wanted.json.text().into());
    }
    if let Some(prefix) = view.get("prefix") {
        return ValueTest::Prefix(prefix.json.text().into());
    }
    if let Some(regex) = view.get("regex").and_then(|regex| Pattern::new(regex.json.text()).ok()) {
        return ValueTest::Regex(regex);
    }
    if view.flag("present") == Some(false) { ValueTest::Absent } else { ValueTest::Present }
}

fn part(view: &View<'_>) -> Part {
    let attribute = |path: &[&str]| Source::Attribute(path.iter().map(|&name| name.to_owned()).collect());
    let source = if let Some(address) = view.get("client_address") {
        Source::ClientAddress {
            ipv4_prefix: address.small("ipv4_prefix"),
            ipv6_prefix: address.small("ipv6_prefix"),
        }
    } else if let Some(header) = view.get("header") {
        Source::Header(header.text("name").to_owned())
    } else if let Some(cookie) = view.get("cookie") {
        Source::Cookie(cookie.text("name").into())
    } else if let Some(query) = view.get("query") {
        Source::Query(query.text("name").into(), semicolon(&query))
    } else if let Some(path) = view.get("path") {
        Source::Path(trailing_slash(&path))
    } else if let Some(segment) = view.get("path_segment") {
        Source::PathSegment(segment.small("index"))
    } else if view.get("method").is_some() {
        Source::Method
    } else if view.get("host").is_some() {
        Source::Host
    } else if view.get("route").is_some() {
        attribute(&["xds", "route_name"])
    } else if let Some(claim) = view.get("jwt_claim") {
        let mut path = vec![
            String::from("metadata"),
            String::from("filter_metadata"),
            String::from("envoy.filters.http.jwt_authn"),
            claim.text("payload").to_owned(),
        ];
        path.extend(claim.texts("claim"));
        Source::Attribute(path)
    } else if view.get("tls_subject").is_some() {
        attribute(&["connection", "subject_peer_certificate"])
    } else if let Some(attribute) = view.get("attribute") {
        Source::Attribute(attribute.texts("path"))
    } else {
        Source::Literal(view.text("literal").into())
    };
    Part {
        source,
        on_missing: match view.text("on_missing") {
            "skip" => OnMissing::Skip,
            "deny" => OnMissing::Deny,
            _ => OnMissing::Share,
        },
        on_multiple: match view.text("on_multiple") {
            "first" => OnMultiple::First,
            "last" => OnMultiple::Last,
            "join" => OnMultiple::Join,
            _ => OnMultiple::Deny,
        },
    }
}

fn cost(view: &View<'_>, errors: &mut Errors) -> Cost {
    let said = if let Some(header) = view.get("header") {
        (CostSource::Header(header.text("name").to_owned()), header)
    } else if let Some(query) = view.get("query") {
        (CostSource::Query(query.text("name").into()), query)
    } else if let Some(length) = view.get("content_length") {
        (CostSource::ContentLength(length.count("per")), length)
    } else {
        return Cost::Constant(view.count("constant"));
    };
    let (said, view) = said;
    let bounds =
        Bounds { on_missing: view.count("on_missing"), min: view.count("min"), max: view.count("max") };
    if bounds.min > bounds.max {
        let allowed =
            format_args!("a whole number from {} to {MAX_COUNT}: at least `min`", bounds.min).to_string();
        errors.add(&join(&view.path, "max"), bounds.max, allowed);
    }
    Cost::Stated(said, bounds)
}

fn tiers(view: &View<'_>, workers: u32, overrides: Overrides, errors: &mut Errors) -> Tiers {
    let Some(choice) = view.get("tiers") else {
        let tier = tier("", &view.items("limits"), workers, overrides, errors);
        return Tiers { by: None, default: 0, tiers: tier.into_iter().collect() };
    };
    let mut tiers = Vec::new();
    for (name, list) in choice.entries("limits") {
        let Json::List(items) = list.json else { continue };
        let each = items.iter().enumerate();
        let limits: Vec<_> =
            each.map(|(index, json)| View { json, path: format!("{}[{index}]", list.path) }).collect();
        tiers.extend(tier(name, &limits, workers, overrides, errors));
    }
    let wanted = choice.text("default");
    let names = || choice.entries("limits").into_iter().map(|(name, _)| name);
    let default = tiers.iter().position(|tier| tier.name == wanted);
    if names().all(|name| name != wanted) {
        let allowed = format!("the name of a tier: {}", names().collect::<Vec<_>>().join(", "));
        errors.suggest(
            &join(&choice.path, "default"),
            format_args!("{wanted:?}"),
            allowed,
            nearest(wanted, names()),
        );
    }
    Tiers { by: choice.get("by").map(|by| part(&by)), default: default.unwrap_or(0), tiers }
}

fn lease(view: &View<'_>, tiers: &Tiers, errors: &mut Errors) -> Lease {
    let (max, min) = (view.count("max"), view.count("min"));
    if min > max {
        errors.add(&join(&view.path, "min"), min, format_args!("1 to {max}, which is `max`"));
    }
    let holds = |limit: &Limit| match limit {
        Limit::Concurrency(_) => true,
        Limit::LeakyBucket(bucket) => bucket.max_delay() > Micros::ZERO,
        _ => false,
    };
    if tiers.tiers.iter().any(|tier| tier.plan.limits().iter().any(holds)) {
        let allowed = "no lease with a concurrency limit or a max_delay: their requests take turns";
        errors.add(&view.path, "a lease", allowed);
    }
    let requests = |count| u32::try_from(count).unwrap_or(u32::MAX);
    Lease { max: requests(max), min: requests(min), duration: view.span("duration") }
}

/// Limits of different tiers have different keys: what one tier counted means nothing to another, and a client
/// that can choose its tier gains no more than the sum of them.
fn tier(
    tier: &str,
    limits: &[View<'_>],
    workers: u32,
    overrides: Overrides,
    errors: &mut Errors,
) -> Option<Tier> {
    let mut plan = Vec::new();
    let mut faces = Vec::new();
    for view in limits {
        let name = view.text("name");
        let key = if tier.is_empty() { name.to_owned() } else { format!("{tier}/{name}") };
        if overrides == Overrides::Read && key == OVERRIDE {
            let allowed = "another name: this one is the key of overrides";
            errors.add(&join(&view.path, "name"), format_args!("{name:?}"), allowed);
            continue;
        }
        let Some((limit, quota, window)) = limit(view, errors) else { continue };
        plan.push(NamedLimit { name: key, limit });
        let estimate = view.get("retry_after").map(|_| view.span("retry_after"));
        faces.push(Face::new(name.to_owned(), quota, window).estimated(estimate));
    }
    if plan.len() < limits.len() {
        return None;
    }
    let plan = Plan::with(plan, overrides).map_err(|invalid| {
        // The shape has seen to all of this.
        errors.add(tier, invalid.value, invalid.allowed);
    });
    let plan = plan.ok()?;
    let shares = plan.limits().iter().map(|limit| limit.share_of(workers)).collect();
    Some(Tier { name: tier.to_owned(), plan, shares, faces })
}

/// A limit, its quota, and the time in which that comes back.
fn limit(view: &View<'_>, errors: &mut Errors) -> Option<(Limit, u64, Option<Micros>)> {
    let (limit, window) = (view.count("limit"), view.span("window"));
    let made = match view.text("algorithm") {
        "fixed_window" => {
            let align = if view.text("align") == "first" { Align::First } else { Align::Clock };
            FixedWindow::new(limit, window, align).map(|made| (made.into(), limit, Some(window)))
        }
        "sliding_log" => SlidingLog::new(limit, window).map(|made| (made.into(), limit, Some(window))),
        "sliding_window" => {
            let precision = view.get("precision").map_or(window, |_| view.span("precision"));
            SlidingWindow::new(limit, window, precision).map(|made| (made.into(), limit, Some(window)))
        }
        "token_bucket" => {
            let (capacity, refill, interval) =
                (view.count("capacity"), view.count("refill"), view.span("interval"));
            let how = if view.text("mode") == "stepwise" { Refill::Stepwise } else { Refill::Continuous };
            TokenBucket::new(capacity, refill, interval, how, view.count("overdraft"))
                .map(|made| (made.into(), capacity, Some(time_for(capacity, refill, interval))))
        }
        "leaky_bucket" => {
            let (rate, burst) = (text::rate(view.text("rate"))?, view.count("burst"));
            LeakyBucket::new(rate.count, rate.per, burst, view.span("max_delay"))
                .map(|made| (made.into(), burst, Some(time_for(burst, rate.count, rate.per))))
        }
        _ => Concurrency::new(limit, view.span("ttl")).map(|made| (made.into(), limit, None)),
    };
    let wrong = |invalid: Invalid| {
        // What the limit calls a period is half of what the configuration calls a rate.
        let field = if invalid.parameter == "per" { "rate" } else { invalid.parameter };
        let found = view.get(field).map_or(invalid.value, |value| value.json.to_string());
        errors.add(&join(&view.path, field), found, invalid.allowed);
    };
    made.map_err(wrong).ok()
}

/// The time in which `units` come back at `count` per `per`.
fn time_for(units: u64, count: u64, per: Micros) -> Micros {
    let time = u128::from(units).saturating_mul(u128::from(per.0)).div_ceil(u128::from(count.max(1)));
    Micros(u64::try_from(time).unwrap_or(u64::MAX))
}

/// The names of all limits, as clients know them, each with its policy; in order.
fn names_of_limits(policies: &[Policy]) -> Vec<(String, usize)> {
    let mut names: Vec<(String, usize)> = Vec::new();
    for (index, policy) in policies.iter().enumerate() {
        let faces = policy.tiers.tiers.iter().flat_map(|tier| &tier.faces);
        names.extend(faces.map(|face| (face.name().to_owned(), index)));
    }
    names.sort_unstable();
    names
}

/// The first and the last policy that have a limit of this name.
fn policies_with(names: &[(String, usize)], name: &str) -> Option<(usize, usize)> {
    let from = names.partition_point(|(other, _)| other.as_str() < name);
    let till = names.partition_point(|(other, _)| other.as_str() <= name);
    let same = names.get(from..till)?;
    Some((same.first()?.1, same.last()?.1))
}

/// Clients know a limit by its name alone where no other policy has one of the same name.
fn name_limits(policies: &mut [Policy]) {
    let names = names_of_limits(policies);
    for policy in policies {
        for face in policy.tiers.tiers.iter_mut().flat_map(|tier| &mut tier.faces) {
            if policies_with(&names, face.name()).is_some_and(|(first, last)| first != last) {
                *face = face.renamed(format!("{}.{}", policy.name, face.name()));
            }
        }
    }
}

/// What clients know a limit by must not be what they know another policy's by. (Tiers of one policy may have limits of one
/// name: a request has one tier.)
fn tell_limits_apart(root: &View<'_>, policies: &[Policy], errors: &mut Errors) {
    let names = names_of_limits(policies);
    let views: Vec<_> = root.items("policies").iter().map(limits_of).collect();
    let limits = |index: usize| {
        let tiers = policies.get(index).map(|policy| policy.tiers.tiers.as_slice()).unwrap_or_default();
        views.get(index).into_iter().flatten().zip(tiers.iter().flat_map(|tier| &tier.faces))
    };
    for index in 0..policies.len() {
        for (view, face) in limits(index) {
            let first = policies_with(&names, face.name()).map_or(index, |(first, _)| first);
            if first == index {
                continue;
            }
            if let Some((other, _)) = limits(first).find(|(_, other)| other.name() == face.name()) {
                let (found, place) = (view.text("name"), &other.path);
                let allowed = format!("another name: clients see {:?}, as they do for {place}", face.name());
                errors.add(&join(&view.path, "name"), format_args!("{found:?}"), allowed);
            }
        }
    }
}

/// The limits of a policy, of all of its tiers.
fn limits_of<'a>(policy: &View<'a>) -> Vec<View<'a>> {
    let Some(of) = policy.get("tiers").and_then(|tiers| tiers.get("limits")) else {
        return policy.items("limits");
    };
    let tiers = policy.get("tiers").map(|tiers| tiers.entries("limits")).unwrap_or_default();
    tiers.into_iter().flat_map(|(name, _)| of.items(name)).collect()
}

fn response(view: &View<'_>, errors: &mut Errors) -> Response {
    let body = view.get("body").map(|body| body.json.text().to_owned());
    let format = view.text("format");
    if let Some(text) = &body {
        let at = join(&view.path, "body");
        match format {
            "json" => {
                if let Err(wrong) = Json::parse(text.as_bytes()) {
                    errors.add(&at, format_args!("no JSON ({wrong})"), "JSON, because `format` is `json`");
                }
            }
            "text" => {}
            _ => errors.add(&at, "a body", "none, because `format` is neither `json` nor `text`"),
        }
    }
    Response {
        status: view.small("status"),
        deny_status: view.small("deny_status"),
        body: match format {
            "json" => Body::Json(body),
            "text" => Body::Text(body),
            "empty" => Body::Empty,
            _ => Body::Problem,
        },
        style: match view.text("headers") {
            "x_ratelimit" => Style::XRateLimit,
            "none" => Style::None,
            _ => Style::Draft11,
        },
        upstream: match view.text("upstream_headers") {
            "keep" => Upstream::Keep,
            "append" => Upstream::Append,
            _ => Upstream::Replace,
        },
        retry_jitter: view.span("retry_jitter"),
    }
}
