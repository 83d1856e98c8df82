// SPDX-License-Identifier: Apache-2.0
//! Warnings about policies: what loads, and does not do what it seems to do.

use core::ops::RangeInclusive;

use super::conditions::{contradiction, covers, exclude, leaves};
use super::regexes::Place;
use super::warning::{code, note, warning};
use super::{against, credentials, limits, regexes};
use crate::describe;
use crate::finding::Finding;
use crate::words;
use weir::config::{Config, Quota};
use weir::limit::{Ask, Limit, RetryAfter, Subject};
use weir::policy::cost::{Cost, CostSource};
use weir::policy::list::Conditions;
use weir::policy::matcher::{Condition, HostTest, PathTest, ValueTest};
use weir::policy::pattern::Pattern;
use weir::policy::settle::{TrueCost, When};
use weir::policy::subject::{OnMissing, Source, SubjectPart};
use weir::policy::{Across, Mode, OnFailure, Policy, Tier};
use weir::request::Property;
use weir::request::body::json;
use weir::request::client_ip::{Network, Proxies};
use weir::request::path::TrailingSlash;
use weir::script::Overrides;
use weir::time::Micros;

/// `authenticates`: a filter before weir verifies who a client is. `is_written`: the configuration has the field at this path.
pub fn warnings(config: &Config, authenticates: bool, is_written: &dyn Fn(&[&str]) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    store(config, &mut found);
    trust(config, is_written(&["client_address", "header"]), &mut found);
    let bills = config.policies.iter().any(|policy| policy.usage_journal);
    let reads_bodies = config.request_body.wanted.is_some();
    for (field, is_used, reason, advice) in [
        (
            "usage_journal",
            bills,
            "no policy has `usage_journal: true`, so weir writes no usage",
            "Write `usage_journal: true` into the policies to bill, or remove this",
        ),
        (
            "request_body",
            reads_bodies,
            "no policy and no list reads a body, so weir reads none",
            "Write a condition or a part of a subject on the body, or remove this",
        ),
    ] {
        if !is_used && is_written(&[field]) {
            found.push(warning(code::UNUSED_SETTING, field, reason, advice));
        }
    }
    for (index, policy) in config.policies.iter().enumerate() {
        let at = format!("policies[{index}]");
        costs(policy, &at, &mut found);
        unused(policy, &at, &mut found);
        free(config, policy, &at, &mut found);
        regions(config, policy, &at, &mut found);
        models(policy, &at, &mut found);
        limits::warnings(policy, &at, &mut found);
        unverified(config, policy, authenticates, &at, &mut found);
        shadowed(config, index, &at, &mut found);
        counters(config, index, &at, &mut found);
        never_met(policy, &at, &mut found);
        held_permits(config, policy, &at, &mut found);
    }
    shared_regions(config, &mut found);
    credentials::warnings(config, &mut found);
    found.extend(limits::notes(config));
    batches(config, &mut found);
    quota(config, &mut found);
    let mut patterns = Vec::new();
    let free: Vec<String> = free_cases(config).collect();
    for (path, condition) in conditions(config) {
        patterns.extend(
            leaves(condition).into_iter().filter_map(regexes::of_condition).map(|of| (path.clone(), of)),
        );
        if let Some(reason) = contradiction(&[condition]) {
            let advice = "Remove it. If one condition is enough, write them under `any`";
            found.push(warning(code::IMPOSSIBLE_MATCH, path.clone(), reason, advice));
        }
        let is_exempt = path.contains("exempt[") || free.contains(&path);
        if let Some(part) = (!authenticates && is_exempt).then(|| chosen(condition)).flatten() {
            let reason = format!("a client that sends {part} has no limit");
            let advice = "Compare it with a secret (`exact`), or use what clients cannot write, such as `client_address` or `jwt_claim`";
            found.push(warning(code::UNVERIFIED_EXEMPTION, path.clone(), reason, advice));
        }
        let literal = leaves(condition).into_iter().find_map(|leaf| literal(&path, leaf));
        found.extend(literal.map(literal_pattern));
    }
    for (index, policy) in config.policies.iter().enumerate() {
        for (place, case) in policy.settle.cases.iter().enumerate() {
            let at = format!("policies[{index}].settle[{place}].when");
            let Some((_, test)) = &case.when.header else { continue };
            patterns.extend(regexes::of_value(test).map(|of| (at.clone(), of)));
            found.extend(literal_value(&at, test, Place::Value).map(literal_pattern));
        }
    }
    regexes::warnings(&patterns, &mut found);
    found
}

/// The places of conditions by which a request costs nothing.
fn free_cases(config: &Config) -> impl Iterator<Item = String> {
    let policies = config.policies.iter().enumerate().filter(|(_, policy)| policy.settle.is_empty());
    policies.flat_map(|(index, policy)| {
        let free = policy.costs.iter().enumerate().filter(|(_, (_, cost))| *cost == Cost::Constant(0));
        free.map(move |(place, _)| format!("policies[{index}].costs[{place}].when"))
    })
}

fn literal_pattern((path, reason, advice): Literal) -> Finding {
    warning(code::LITERAL_PATTERN, path, reason, advice)
}

/// Each condition of the configuration, and where it is.
fn conditions(config: &Config) -> Vec<(String, &Condition)> {
    let mut all: Vec<_> = lists("", &config.deny, &config.exempt).collect();
    for (index, policy) in config.policies.iter().enumerate() {
        let at = format!("policies[{index}]");
        all.push((format!("{at}.match"), &policy.matcher));
        all.extend(within(policy, &at));
    }
    all
}

fn lists<'a>(
    before: &str,
    deny: &'a Conditions,
    exempt: &'a Conditions,
) -> impl Iterator<Item = (String, &'a Condition)> {
    [("deny", deny), ("exempt", exempt)].into_iter().flat_map(move |(name, list)| {
        let each = list.conditions().iter().enumerate();
        each.map(move |(place, condition)| (format!("{before}{name}[{place}]"), condition))
    })
}

/// The conditions of a policy on requests that its `match` holds for.
fn within<'a>(policy: &'a Policy, at: &str) -> Vec<(String, &'a Condition)> {
    let cases = policy.costs.iter().enumerate();
    let cases = cases.map(|(place, (when, _))| (format!("{at}.costs[{place}].when"), when));
    let classes = policy.priority.iter().enumerate();
    let classes = classes.map(|(place, (when, _))| (format!("{at}.priority[{place}].when"), when));
    lists(&format!("{at}."), &policy.deny, &policy.exempt).chain(cases).chain(classes).collect()
}

/// Conditions of a policy that its `match` excludes.
fn never_met(policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    if contradiction(&[&policy.matcher]).is_some() {
        return;
    }
    for (path, condition) in within(policy, at) {
        if contradiction(&[condition]).is_none()
            && let Some(reason) = contradiction(&[&policy.matcher, condition])
        {
            let advice = "Remove it, or write a `match` that holds for these requests, too";
            found.push(warning(code::IMPOSSIBLE_MATCH, path, reason, advice));
        }
    }
}

/// A policy for quota requests that does not apply to them.
fn quota(config: &Config, found: &mut Vec<Finding>) {
    let Some(Quota { endpoint, policy: Some(index) }) = &config.quota else { return };
    let Some(policy) = config.policies.get(*index) else { return };
    let path = Condition::Path(PathTest::Exact(endpoint.path.clone(), TrailingSlash::Distinct));
    let method = Condition::Method(vec![endpoint.method.clone()]);
    if let Some(reason) = contradiction(&[&path, &method, &policy.matcher]) {
        let advice = "Let the `match` of this policy hold for quota requests, or name another policy";
        found.push(warning(code::IMPOSSIBLE_MATCH, "quota.policy", reason, advice));
    }
}

/// Policies that count under one name, for other subjects.
fn counters(config: &Config, index: usize, at: &str, found: &mut Vec<Finding>) {
    let Some((policy, earlier)) = config.policies.get(..=index).and_then(<[Policy]>::split_last) else {
        return;
    };
    let Some(other) = earlier.iter().find(|other| other.counters == policy.counters) else { return };
    if against::parts(&policy.subject, &other.subject).is_none() {
        return;
    }
    let words = |policy: &Policy| policy.subject.iter().map(describe::part).collect::<Vec<_>>().join(" and ");
    let (own, others) = (words(policy), words(other));
    let how = if own == others {
        format!("reads the {own} in another way")
    } else {
        format!("has another subject: {others}, and not {own}")
    };
    let field = if policy.counters == policy.name { "name" } else { "counters" };
    let reason = format!(
        "policy {:?}, which counts under {:?} too, {how}: the two count together only where these have the same text in keys",
        other.name, policy.counters
    );
    let advice = "Write the same `subject` in both, or another name";
    found.push(note(code::SHARED_COUNTS, format!("{at}.{field}"), reason, advice));
}

/// The part that a client has to send to meet the condition, if any value will do, or one that it guesses.
fn chosen(condition: &Condition) -> Option<String> {
    match condition {
        Condition::All(all) => match all.as_slice() {
            [one] => chosen(one),
            _ => None,
        },
        Condition::Any(any) => any.iter().find_map(chosen),
        Condition::Header(name, _) if name == "user-agent" => Some(format!("such a header {name}")),
        Condition::Header(name, test) if !is_of_envoy(name) => {
            guessed(test).map(|a| format!("{a} header {name}"))
        }
        Condition::Cookie(name, test) => guessed(test).map(|a| format!("{a} cookie {}", name.escape_ascii())),
        Condition::Query(name, _, test) => {
            guessed(test).map(|a| format!("{a} query parameter {}", name.escape_ascii()))
        }
        _ => None,
    }
}

/// `a` if any value meets the test, `such a` if a word does: `true`, `1`, `admin`.
fn guessed(test: &ValueTest) -> Option<&'static str> {
    let is_short = |text: &Vec<u8>| text.len() < GUESSED;
    match test {
        ValueTest::Present => Some("a"),
        ValueTest::Exact(text) if is_short(text) => Some("such a"),
        ValueTest::In(texts) if texts.iter().any(is_short) => Some("such a"),
        ValueTest::Normalized(_, test) => guessed(test),
        _ => None,
    }
}

/// The place of something that does not match what it seems to, the reason, and the advice.
type Literal = (String, String, &'static str);

/// A path or an expression that looks like a pattern of another program, and is compared as it is.
fn literal(at: &str, condition: &Condition) -> Option<Literal> {
    match condition {
        Condition::Path(PathTest::Exact(path, _) | PathTest::Prefix(path)) => {
            let path = String::from_utf8_lossy(path);
            let mut segments = path.split('/');
            let part = segments.find(|part| part.contains(['*', '{']) || part.starts_with(':'))?;
            let reason = format!("`{part}` in a path stands for itself, and for no other text");
            let advice = "Write `prefix` with what is before it, or a `regex` such as `/users/[^/]+`";
            Some((at.to_owned(), reason, advice))
        }
        Condition::Path(PathTest::Regex(pattern)) => partial(at, &pattern.exact, Place::Path),
        Condition::Header(name, test) if name == "user-agent" => literal_value(at, test, Place::UserAgent),
        Condition::Attribute(property, test) if names(property) == ["request", "useragent"] => {
            literal_value(at, test, Place::UserAgent)
        }
        Condition::Header(_, test)
        | Condition::Attribute(_, test)
        | Condition::Query(_, _, test)
        | Condition::Cookie(_, test)
        | Condition::Body(_, test) => literal_value(at, test, Place::Value),
        _ => None,
    }
}

/// The same for the expression of a test on a value.
fn literal_value(at: &str, test: &ValueTest, place: Place) -> Option<Literal> {
    regexes::of_value(test).and_then(|pattern| partial(at, pattern, place))
}

fn partial(at: &str, pattern: &Pattern, place: Place) -> Option<Literal> {
    regexes::partial(pattern, place).map(|(reason, advice)| (at.to_owned(), reason, advice))
}

/// A table of prices that denies unknown models, although no request says which model it is for.
fn models(policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    let is_asked = all_costs(policy).any(Cost::may_deny_models);
    if policy.prices.as_ref().is_some_and(|(prices, _)| prices.denies_unknown()) && !is_asked {
        let reason = "the table of prices has `on_unknown_model: deny`, and only `settle` has the table: which model a request is for is \
                      not known before its response, so none is denied";
        let advice =
            "Write `cost: {usage: {prices: …}}`, too: weir then reads the model in the path or in the body";
        found.push(warning(code::UNSEEN_MODEL, format!("{at}.settle"), reason, advice));
    }
}

/// In a batch of JSON-RPC, which is an array of calls, nothing is where a policy looks for the method of a call, or for a parameter.
fn batches(config: &Config, found: &mut Vec<Finding>) {
    let denied = |policy: &Policy| {
        let mut lists = [&config.deny, &policy.deny].into_iter().flat_map(|list| list.conditions());
        lists.any(|condition| denies_batches(condition, &policy.matcher))
    };
    let policies: Vec<_> = config.policies.iter().enumerate().filter(|(_, policy)| !denied(policy)).collect();
    let of_match = policies.iter().find(|(_, policy)| tests_body(&policy.matcher, &is_of_call));
    let of_match =
        of_match.map(|(index, _)| (format!("policies[{index}].match"), "this policy does not apply to it"));
    let others = policies.iter().filter_map(|(index, policy)| uncounted(*index, policy));
    if let Some((path, but)) = of_match.into_iter().chain(others).next() {
        let reason = format!(
            "clients of JSON-RPC may send a batch, an array of calls: their methods and parameters are one level deeper, so {but}"
        );
        let advice = "If the upstream takes batches, deny them: `deny: [{body_json: {path: '[*]'}}]`. Or let the policy apply to all \
                      methods, and count each call: `cost: {calls: {}}`";
        found.push(warning(code::UNCOUNTED_BATCH, path, reason, advice));
    }
}

/// True if a condition of `deny` holds for all batches among the requests that a `match` is about.
fn denies_batches(denied: &Condition, matcher: &Condition) -> bool {
    let is_of_batch = |path: &str| path.starts_with('[');
    match denied {
        Condition::Any(any) => any.iter().any(|one| denies_batches(one, matcher)),
        Condition::All(all) => {
            let (of_batch, others): (Vec<_>, Vec<_>) =
                all.iter().partition(|one| denies_batches(one, matcher));
            !of_batch.is_empty() && others.iter().all(|one| covers(one, matcher))
        }
        Condition::Body(..) => tests_body(denied, &is_of_batch),
        _ => false,
    }
}

/// True if this is the path of the method of a call of JSON-RPC, or of a parameter.
fn is_of_call(path: &str) -> bool {
    path == "method" || path.starts_with("params.") || path.starts_with("params[")
}

/// Finds a field by which a policy that applies to a batch does not count its calls, and says what it does instead.
fn uncounted(index: usize, policy: &Policy) -> Option<(String, &'static str)> {
    // This is the cost of requests for which no condition on a call holds.
    if matches!(policy.cost, Cost::Calls(_)) {
        return None;
    }
    if let Some(case) = policy.costs.iter().position(|(when, _)| tests_body(when, &is_of_call)) {
        let path = format!("policies[{index}].costs[{case}].when");
        return Some((path, "this is no case for it, and all of its calls cost what one call does"));
    }
    let part = policy.subject.iter().position(|part| {
        matches!(&part.source, Source::Body(path, _) if is_of_call(json(path)))
            && part.on_missing != OnMissing::Deny
    })?;
    let path = format!("policies[{index}].subject[{part}]");
    Some((path, "it lacks this part, and all of its calls count as one request at most"))
}

/// True if a condition, or one inside of it, tests a value of the body at such a path.
fn tests_body(condition: &Condition, is: &dyn Fn(&str) -> bool) -> bool {
    leaves(condition).iter().any(|leaf| matches!(leaf, Condition::Body(path, _) if is(json(path))))
}

fn store(config: &Config, found: &mut Vec<Finding>) {
    let store = &config.store;
    if store.deadline < Micros::from_millis(2) {
        let reason = format!(
            "in {} µs many answers of a Redis that is well do not come back, and `on_failure` decides those requests",
            store.deadline.0
        );
        let advice = "Write at least 2ms; the default is 50ms";
        found.push(warning(code::SHORT_DEADLINE, "store.deadline", reason, advice));
    }
    if store.workers > 1 {
        return;
    }
    let is_local = |policy: &Policy| policy.on_failure == OnFailure::Local;
    let reason = "with `workers: 1`, each worker admits the whole limit by itself while Redis is unavailable: N workers admit N \
                  times the limit";
    let advice = "Write in store.workers how many workers there are: proxies times their worker threads";
    if store.on_failure == OnFailure::Local && config.policies.iter().any(is_local) {
        found.push(warning(code::LOCAL_ONE_WORKER, "store.on_failure", reason, advice));
    } else if let Some(index) = config.policies.iter().position(is_local) {
        let path = format!("policies[{index}].on_failure");
        found.push(warning(code::LOCAL_ONE_WORKER, path, reason, advice));
    }
}

/// Warns of regions that share a Redis: what a region tells another is then counted twice.
fn shared_regions(config: &Config, found: &mut Vec<Finding>) {
    let all = &config.regions.all;
    for (place, region) in all.iter().enumerate() {
        if let Some(first) = all.iter().take(place).find(|first| first.cluster == region.cluster) {
            let reason = format!(
                "regions {:?} and {:?} have the same cluster, so both count in one Redis, and what one tells the other counts twice",
                first.name, region.name
            );
            let advice = "Write the cluster of a Redis that no other region has";
            found.push(warning(code::SHARED_COUNTS, format!("{}.cluster", region.path), reason, advice));
        }
    }
}

/// Compares the interval at which regions exchange usage with what their limits admit meanwhile.
fn regions(config: &Config, policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    let (interval, others) =
        (config.regions.sync_interval, config.regions.all.len().saturating_sub(1) as u64);
    for (limit, view) in policy.tiers.tiers.iter().flat_map(|tier| tier.plan.limits().iter().zip(&tier.views))
    {
        let (full, name) = (limit.whole_within(), view.name());
        let reason = match policy.regions {
            Across::Debit if interval.0.saturating_mul(others) > full.0 => format!(
                "limit {name} is full again within {} ms, and charges come every {} ms: before they come, {others} other \
                 regions admit more than the whole limit again",
                full.as_millis_ceil(),
                interval.as_millis_ceil()
            ),
            Across::Share if interval > full => format!(
                "limit {name} is full again within {} ms, and regions lend every {} ms: what a region does not need flows off \
                 before it is lent",
                full.as_millis_ceil(),
                interval.as_millis_ceil()
            ),
            _ => continue,
        };
        let advice = "Write a shorter `regions.sync_interval`, or give the limit a larger burst or window";
        found.push(warning(code::RARE_SYNC, format!("{at}.regions"), reason, advice));
    }
}

/// True if a network is so wide that it cannot be one operator's: of IPv4 wider than a /8, of IPv6 wider than a /16 and not private
/// (`fc00::/7`).
fn is_too_wide(network: &Network) -> bool {
    if network.is_ipv4() {
        return network.prefix() < 8;
    }
    let is_private =
        Network::parse("fc00::/7").is_ok_and(|private| network.bits().starts_with(&private.bits()));
    network.prefix() < 16 && !is_private
}

fn trust(config: &Config, names_header: bool, found: &mut Vec<Finding>) {
    if config.trust.header() == "forwarded" {
        let reason = "an entry of `Forwarded` (RFC 7239) is no plain address, as in `for=192.0.2.1;proto=https`, and weir does not read it: \
                      every client has the address of the connection";
        let advice = "Let your proxies append to X-Forwarded-For, and name that header";
        found.push(warning(code::FORWARDED_HEADER, "client_address.header", reason, advice));
    } else if names_header && config.trust.is_connection() {
        let reason = "without `trusted_hops` or `trusted_networks` weir reads no header: every client has the address of the connection";
        let advice = "Say which proxies you trust, or remove `header`";
        found.push(warning(code::UNREAD_HEADER, "client_address.header", reason, advice));
    }
    let Proxies::Networks(networks) = config.trust.proxies() else { return };
    for (place, network) in networks.iter().enumerate().filter(|(_, network)| is_too_wide(network)) {
        let reason = format!(
            "{network} holds addresses of clients, and each client with one of them may write any address into {}",
            config.trust.header()
        );
        let path = format!("client_address.trusted_networks[{place}]");
        let advice = "Write the networks of your own proxies only";
        found.push(warning(code::TRUSTS_EVERYBODY, path, reason, advice));
    }
}

/// The first limit of a tier that never grants so many units: its name, what it grants at most, and to whom. So many percent of it are kept for
/// other classes.
fn refuses<'a>(policy: &Policy, tier: &'a Tier, cost: u64, kept: u8) -> Option<(&'a str, u64, &'static str)> {
    // Where a subject may have limits of its own, one of them may be large enough.
    if tier.plan.overrides() == Overrides::Read {
        return None;
    }
    // No subject has a smaller scale.
    let plan = tier.plan_at(policy.scale.as_ref().map_or(1, |scale| scale.min));
    let limits = plan.limits();
    let now = Micros::from_secs(1_700_000_000);
    [(0, ""), (kept, " without a higher class")].into_iter().find_map(|(kept_percent, whose)| {
        let ask = Ask { kept_percent, ..Ask::new(1, cost) };
        let answer = Subject::default().check(limits, None, now, ask);
        let never = answer.limits.iter().position(|limit| limit.retry_after == RetryAfter::Never)?;
        let granted = |limit: &Limit| match limit.kept(ask) {
            0 => most(limit),
            kept => limit.quota().saturating_sub(kept),
        };
        Some((tier.views.get(never)?.name(), limits.get(never).map_or(0, granted), whose))
    })
}

/// The most that a limit grants one request.
fn most(limit: &Limit) -> u64 {
    let overdraft = if let Limit::TokenBucket(bucket) = limit { bucket.overdraft() } else { 0 };
    limit.quota().saturating_add(overdraft)
}

fn costs(policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    let everything = Condition::All(Vec::new());
    let unreached = covered(&policy.costs, |(wide, _), (narrow, _)| covers(wide, narrow));
    let reached = policy.costs.iter().enumerate().filter(|(place, _)| !unreached.contains(place));
    for (place, (when, cost)) in reached {
        cost_passes(policy, (when, cost), format!("{at}.costs[{place}].cost"), found);
    }
    if !policy.costs.iter().any(|(when, _)| covers(when, &everything)) {
        cost_passes(policy, (&everything, &policy.cost), format!("{at}.cost"), found);
    } else if policy.cost != Cost::Constant(1) {
        let reason = "no request has this cost, because all of them meet a case of `costs`";
        found.push(warning(code::UNREACHABLE_COST, format!("{at}.cost"), reason, "Remove it, or the case"));
    }
    let classes = covered(&policy.priority, |(wide, _), (narrow, _)| covers(wide, narrow));
    let settled = covered(&policy.settle.cases, |wide, narrow| covers_response(&wide.when, &narrow.when));
    for (field, what, places) in
        [("costs", "request", unreached), ("priority", "request", classes), ("settle", "response", settled)]
    {
        found.extend(places.into_iter().map(|place| {
            let reason =
                format!("no {what} comes to this case, because all of its {what}s meet an earlier one");
            let path = format!("{at}.{field}[{place}]");
            warning(code::UNREACHABLE_COST, path, reason, "Remove it, or write it earlier")
        }));
    }
}

/// Settings of a policy that others make useless.
fn unused(policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    let mut warn = |field: &str, reason: &str, advice: &str| {
        found.push(warning(code::UNUSED_SETTING, format!("{at}.{field}"), reason, advice));
    };
    if policy.mode == Mode::Shadow && policy.enforce_percent < 100 {
        let reason = "with `mode: shadow` no denial is enforced, of whatever subject";
        warn("enforce_percent", reason, "Remove one of the two");
    }
    let mut limits = policy.tiers.tiers.iter().flat_map(|tier| tier.plan.limits());
    let has_cost = !policy.settle.is_empty() || !policy.costs.is_empty() || policy.cost != Cost::Constant(1);
    if has_cost && !policy.usage_journal && limits.all(|limit| matches!(limit, Limit::Concurrency(_))) {
        let field = if policy.settle.is_empty() { "cost" } else { "settle" };
        let reason =
            "the policy has `concurrency` limits only, and to these each request is one, whatever it costs";
        warn(field, reason, "Remove it, or add another limit");
    }
    for (place, cost) in all_costs(policy).enumerate() {
        if matches!(cost, Cost::Usage(estimate) if estimate.output > estimate.max_output) {
            let is_case = place < policy.costs.len();
            let at = if is_case { format!("costs[{place}].cost") } else { String::from("cost") };
            let reason =
                "it is more than `max_output_tokens`, so a request that states no maximum reserves that";
            let advice = "Write a smaller number, or a larger `max_output_tokens`";
            warn(&format!("{at}.usage.output_tokens"), reason, advice);
        }
    }
    for (tier, ban) in policy.tiers.tiers.iter().filter_map(|tier| Some((tier, tier.plan.ban()?))) {
        let [_, _, duration, factor, max] = ban.numbers();
        if tier.name.is_empty() && factor > 1 && max == duration {
            warn(
                "ban.factor",
                "no ban is longer than the first one, because of `max`",
                "Write a longer `max`",
            );
        } else if tier.name.is_empty() && factor == 1 && max > duration {
            warn("ban.max", "without a `factor`, each ban is as long as the first one", "Write a `factor`");
        }
    }
}

/// The places of cases that an earlier one covers.
fn covered<T>(cases: &[T], covers: impl Fn(&T, &T) -> bool) -> Vec<usize> {
    let is_covered =
        |(place, case): &(usize, &T)| cases.iter().take(*place).any(|earlier| covers(earlier, case));
    cases.iter().enumerate().filter(is_covered).map(|(place, _)| place).collect()
}

/// True if each response that meets `narrow` meets `wide`.
fn covers_response(wide: &When, narrow: &When) -> bool {
    let is_within = |status: &RangeInclusive<u16>| {
        wide.status.iter().any(|wide| wide.contains(status.start()) && wide.contains(status.end()))
    };
    let holds = |is_any: bool, is_within: bool, is_narrow: bool| is_any || is_narrow && is_within;
    wide.header.is_none()
        && holds(wide.status.is_empty(), narrow.status.iter().all(is_within), !narrow.status.is_empty())
        && holds(
            wide.grpc_status.is_empty(),
            narrow.grpc_status.iter().all(|status| wide.grpc_status.contains(status)),
            !narrow.grpc_status.is_empty(),
        )
}

/// The costs that requests of a policy may have.
fn all_costs(policy: &Policy) -> impl Iterator<Item = &Cost> + Clone {
    policy.costs.iter().map(|(_, cost)| cost).chain([&policy.cost])
}

/// True if a client may make a request cost nothing.
fn may_be_free(cost: &Cost) -> bool {
    match cost {
        Cost::Stated(CostSource::ContentLength { .. }, _) => false,
        Cost::Stated(CostSource::Header(name), _) if is_of_envoy(name) => false,
        Cost::Stated(_, bounds) => bounds.min == 0 || bounds.on_missing == 0,
        Cost::Calls(on_unreadable) => *on_unreadable == 0,
        Cost::Constant(_) | Cost::Usage(_) => false,
    }
}

/// A policy that never takes anything from a limit: no limit of it is ever used up.
fn free(config: &Config, policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    let mut costs = all_costs(policy);
    let mut settled = policy.settle.cases.iter().map(|case| &case.cost);
    let settles_none = settled.all(|cost| matches!(cost, TrueCost::Reserved | TrueCost::Constant(0)));
    let may_be_free = costs.clone().any(may_be_free);
    let takes_none = settles_none && costs.all(|cost| *cost == Cost::Constant(0));
    let mut limits = policy.tiers.tiers.iter().flat_map(|tier| tier.plan.limits());
    // Permits are requests, whatever these cost; and another policy may use up the same counts.
    let is_used = limits.any(|limit| matches!(limit, Limit::Concurrency(_)))
        || config.policies.iter().filter(|other| other.counters == policy.counters).count() > 1;
    if takes_none && !is_used {
        let reason = "each request costs 0, and no response costs more, so the policy never denies a request";
        let advice = "Write a cost of at least 1, or `settle`";
        found.push(warning(code::FREE_POLICY, format!("{at}.cost"), reason, advice));
    } else if may_be_free && settles_none && !is_used {
        let reason =
            "a client that states a cost of 0, or none, uses up nothing, so the policy never denies it";
        let advice = "Write at least 1 for `min`, `on_missing` and `on_unreadable`, or write `settle`";
        found.push(warning(code::FREE_POLICY, format!("{at}.cost"), reason, advice));
    }
    let is_one =
        |part: &SubjectPart| policy.subject.iter().any(|own| is_same_source(own, part)) || is_fixed(part);
    if !policy.members.is_empty() && policy.members.iter().all(is_one) {
        let reason = "all requests of a subject have the same value, so the limit never denies one";
        let advice = "Write another `subject`: whose values are counted";
        found.push(warning(code::FREE_POLICY, format!("{at}.{}", policy.members_path), reason, advice));
    }
}

/// Warns if a request reserves more than a tenth of a limit for a language model.
fn reservation(policy: &Policy, units: u64, path: &str, found: &mut Vec<Finding>) {
    for tier in &policy.tiers.tiers {
        let plan = tier.plan_at(policy.scale.as_ref().map_or(1, |scale| scale.min));
        let mut limits = plan.limits().iter().zip(&tier.views).filter(|(_, view)| !view.is_in_flight());
        let Some((limit, view)) = limits.find(|(limit, _)| units > most(limit) / 10) else { continue };
        let of_tier = if tier.name.is_empty() { String::new() } else { format!(" of tier {:?}", tier.name) };
        let reason = format!(
            "a request whose body cannot be read reserves {units} units until its response has passed, and limit {:?}{of_tier} has {}",
            view.name(),
            most(limit)
        );
        let advice = "Let weir read larger bodies (`request_body.max_bytes`), or lower `max_input_tokens` and `max_output_tokens`";
        return found.push(note(code::LARGE_RESERVATION, path, reason, advice));
    }
}

/// Warns of costs that no limit ever grants. Requests that meet `when` have this cost, unless they meet an earlier condition.
fn cost_passes(policy: &Policy, (when, cost): (&Condition, &Cost), path: String, found: &mut Vec<Finding>) {
    // Behind other conditions, the class of a request is not known.
    let is_sure = policy.costs.first().is_none_or(|(first, _)| core::ptr::eq(first, when));
    let is_in = |class: &Condition| covers(class, when) || covers(class, &policy.matcher);
    let class = policy.priority.iter().position(|(class, _)| is_in(class));
    let kept = if is_sure { policy.kept_from(class) } else { 0 };
    let may_pass = |units| policy.tiers.tiers.iter().all(|tier| refuses(policy, tier, units, kept).is_none());
    let (mut cases, fields) = (Vec::new(), |field: &str, kind: &str| format!("{path}.{kind}.{field}"));
    match cost {
        Cost::Constant(units) => cases.push((path.clone(), "a request", *units)),
        Cost::Usage(estimate) => {
            let (who, units) = ("a request whose body cannot be read", estimate.of_unreadable());
            let path = fields("max_output_tokens", "usage");
            if may_pass(units) {
                reservation(policy, units, &path, found);
            }
            cases.push((path, who, units));
        }
        Cost::Calls(units) => {
            cases.push((path.clone(), "one call", 1));
            cases.push((fields("on_unreadable", "calls"), "a request whose body cannot be read", *units));
        }
        Cost::Stated(source, bounds) => {
            let (kind, missing, unknown) = match source {
                CostSource::Header(_) => ("header", "a request without the header", None),
                CostSource::Query(_) => ("query", "a request without the parameter", None),
                CostSource::Body(_) => {
                    ("body_json", "a request without the value", Some("a request whose body cannot be read"))
                }
                CostSource::ContentLength { .. } => (
                    "content_length",
                    "a request without a body",
                    Some("a body without `content-length` (chunked, HTTP/2, a WebSocket)"),
                ),
            };
            cases.push((fields("min", kind), "a request that states a cost", bounds.min));
            cases.push((fields("on_missing", kind), missing, bounds.on_missing));
            // No cost is below `min`: where that is too much already, `max` says nothing new.
            let unknown = unknown.filter(|_| may_pass(bounds.min));
            let (field, units) = match source {
                CostSource::ContentLength { on_unknown: Some(units), .. } => {
                    ("on_unknown", (*units).clamp(bounds.min, bounds.max))
                }
                _ => ("max", bounds.max),
            };
            cases.extend(unknown.map(|unknown| (fields(field, kind), unknown, units)));
        }
    }
    for (path, who, units) in cases {
        for tier in &policy.tiers.tiers {
            let Some((limit, quota, whose)) = refuses(policy, tier, units, kept) else { continue };
            let tier = if tier.name.is_empty() { String::new() } else { format!(" of tier {:?}", tier.name) };
            let reason = format!(
                "{who} costs {units}, and can never pass{whose}: limit {limit:?}{tier} never grants more than {quota}"
            );
            let advice = format!("Write a cost of at most {quota}, or a larger limit");
            found.push(warning(code::IMPOSSIBLE_COST, path, reason, advice));
            break;
        }
    }
}

/// True if Envoy removes this header from what clients send, or writes it itself.
fn is_of_envoy(name: &str) -> bool {
    name.starts_with("x-envoy-") || ["x-forwarded-client-cert", "x-forwarded-proto"].contains(&name)
}

/// A part that the client writes as it likes.
fn is_unverified(part: &SubjectPart) -> Option<String> {
    let is_chosen = match &part.source {
        Source::Header(name) => !is_of_envoy(name),
        Source::Cookie(_) | Source::Query(..) | Source::Body(..) | Source::Credential(_) => true,
        Source::Attribute(property) => matches!(
            names(property).as_slice(),
            ["request", "headers", ..]
                | ["request", "useragent" | "referer" | "query" | "path" | "id"]
                // They have the port of the connection, or its number.
                | ["source", "address" | "port"]
                | ["connection", "id"]
        ),
        _ => false,
    };
    let connection = matches!(&part.source, Source::Attribute(of) if matches!(names(of)[..], ["source" | "connection", _]));
    let why = if connection { ", which differs by connection," } else { "" };
    is_chosen.then(|| describe::part(part) + why)
}

fn names(property: &Property) -> Vec<&str> {
    property.path.iter().map(String::as_str).collect()
}

/// The part of a request that says what is requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Path,
    Segment(usize),
    Host,
}

impl Target {
    fn of(part: &SubjectPart) -> Option<Self> {
        match &part.source {
            Source::Path(_) => Some(Self::Path),
            Source::PathSegment(index) => Some(Self::Segment(*index)),
            Source::Host => Some(Self::Host),
            Source::Attribute(property) => match names(property).as_slice() {
                ["request", "url_path"] => Some(Self::Path),
                ["request", "host"] => Some(Self::Host),
                _ => None,
            },
            _ => None,
        }
    }

    /// True if a condition holds only for a few values of it.
    fn is_one_of_few(self, condition: &Condition) -> bool {
        match (condition, self) {
            (Condition::All(all), _) => all.iter().any(|each| self.is_one_of_few(each)),
            (Condition::Any(any), _) => !any.is_empty() && any.iter().all(|each| self.is_one_of_few(each)),
            (Condition::Path(PathTest::Exact(..)), Self::Path | Self::Segment(_)) => true,
            (Condition::Path(PathTest::Regex(pattern)), Self::Path | Self::Segment(_)) => {
                !pattern.exact.text().contains(['*', '+'])
            }
            (Condition::Path(PathTest::Prefix(prefix)), Self::Segment(index)) => {
                prefix.split(|byte| *byte == b'/').count() > index
            }
            (Condition::Host(hosts), Self::Host) => {
                hosts.iter().all(|host| matches!(host, HostTest::Exact(_)))
            }
            _ => false,
        }
    }
}

/// True if the part tells clients apart, and not what they request.
fn is_of_client(part: &SubjectPart) -> bool {
    match &part.source {
        Source::Method | Source::Literal(_) => false,
        Source::Attribute(property) if matches!(names(property).as_slice(), ["xds", ..]) => false,
        _ => Target::of(part).is_none(),
    }
}

/// Notes that a client has a limit for each path or host, if it can invent these, and no other policy limits the client.
fn any_target(config: &Config, policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    if !policy.subject.iter().any(is_of_client) {
        return;
    }
    let may_be_any =
        |part: &SubjectPart| Target::of(part).is_some_and(|target| !target.is_one_of_few(&policy.matcher));
    let Some(place) = policy.subject.iter().position(may_be_any) else { return };
    let is_of_few = |part: &SubjectPart| {
        Target::of(part).is_none_or(|target| target.is_one_of_few(&policy.matcher))
            && (!is_of_client(part) || policy.subject.iter().any(|own| is_same_source(own, part)))
    };
    let bounds = |other: &Policy| {
        (bounds_addresses(other) || other.mode == Mode::Enforce && other.subject.iter().all(is_of_few))
            && holds_for_all(other, policy)
    };
    if config.policies.iter().any(bounds) {
        return;
    }
    let part = policy.subject.get(place).map(describe::part).unwrap_or_default();
    found.push(note(
        code::UNVERIFIED_SUBJECT,
        format!("{at}.subject[{place}]"),
        format!("a client may write another {part} in each request, and has the whole limit each time"),
        "If the upstream does the same work for any, write a second policy without this part, or name the values in `match`",
    ));
}

/// True if the part is the same for every request.
const fn is_fixed(part: &SubjectPart) -> bool {
    matches!(part.source, Source::Literal(_))
}

/// True if no client can choose the subjects of the policy, and each of its requests has one.
fn bounds_addresses(policy: &Policy) -> bool {
    let is_address = |part: &SubjectPart| matches!(part.source, Source::ClientAddress { .. });
    policy.mode == Mode::Enforce
        && policy.enforce_percent > 0
        && !all_costs(policy).any(may_be_free)
        && policy.subject.iter().all(|part| is_address(part) || is_fixed(part))
}

/// True if `other` is enforced for each request that `policy` applies to.
fn holds_for_all(other: &Policy, policy: &Policy) -> bool {
    other.enforce_percent >= 100 && covers(&other.matcher, &policy.matcher)
}

fn unverified(config: &Config, policy: &Policy, authenticates: bool, at: &str, found: &mut Vec<Finding>) {
    if policy.mode != Mode::Enforce {
        return;
    }
    let parts = policy.subject.iter().enumerate();
    let unverified = parts.filter_map(|(place, part)| Some((place, is_unverified(part)?))).next();
    if unverified.is_none() {
        any_target(config, policy, at, found);
    }
    if authenticates {
        return;
    }
    chosen_class(policy, at, found);
    let others = config.policies.iter().filter(|other| !core::ptr::eq(*other, policy));
    let mut bounds = others.filter(|other| bounds_addresses(other));
    if bounds.clone().any(|other| holds_for_all(other, policy)) {
        return;
    }
    chosen_limits(policy, at, found);
    let Some((place, part)) = unverified else { return };
    let (path, code) = (format!("{at}.subject[{place}]"), code::UNVERIFIED_SUBJECT);
    let reason =
        format!("a client may send another {part} with each request, and has the whole limit each time");
    found.push(match bounds.find(|other| !exclude(&other.matcher, &policy.matcher)) {
        Some(other) => {
            let name = &other.name;
            let reason = format!("{reason}: policy {name:?} limits its address, for some of these requests");
            note(code, path, reason, format!("Let {name:?} apply to all of them, and enforce it for all addresses"))
        }
        None => warning(
            code,
            path,
            reason,
            "Write a second policy with `subject: [{client_address: {}}]`, or a subject that Envoy verifies, such as `jwt_claim`",
        ),
    });
}

/// Warns where a client writes which of a policy's limits it has.
fn chosen_limits(policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    let tier = policy.tiers.by.as_ref().map(|part| ("tiers.by", part, "tier"));
    let scale = policy.scale.as_ref().map(|scale| ("scale.from", &scale.from, "scale"));
    for (field, part, what) in tier.into_iter().chain(scale) {
        let part = is_unverified(part).map(|part| format!("the {part}"));
        found.extend(part.map(|part| chosen_by_client(format!("{at}.{field}"), &part, what)));
    }
}

/// Warns where a client writes to which class of `priority` its requests belong.
fn chosen_class(policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    let parts = policy.priority.iter().enumerate();
    let parts = parts.filter_map(|(place, (when, _))| Some((place, written(when)?)));
    found.extend(
        parts.map(|(place, part)| chosen_by_client(format!("{at}.priority[{place}].when"), &part, "class")),
    );
}

fn chosen_by_client(path: String, part: &str, what: &str) -> Finding {
    let reason = format!("a client that writes {part} chooses its own {what}");
    let advice = "Write what Envoy verifies, such as `jwt_claim`, or let a filter before weir write it";
    warning(code::UNVERIFIED_SUBJECT, path, reason, advice)
}

/// The part that a client can write as the condition wants it. A long `exact` is a secret.
fn written(condition: &Condition) -> Option<String> {
    match condition {
        Condition::All(all) if !all.iter().any(is_verified) => all.iter().find_map(written),
        Condition::Any(any) => any.iter().find_map(written),
        one if is_verified(one) => None,
        Condition::Header(_, test) | Condition::Cookie(_, test) | Condition::Query(_, _, test) => {
            (!matches!(test, ValueTest::Absent)).then(|| describe::tested(condition))
        }
        _ => None,
    }
}

/// True if a client cannot meet the condition by what it writes.
fn is_verified(condition: &Condition) -> bool {
    match condition {
        Condition::Header(_, ValueTest::Exact(secret)) if secret.len() >= SECRET => true,
        Condition::Header(name, _) => is_of_envoy(name),
        Condition::Attribute(..) | Condition::ClientAddress(_) => true,
        _ => false,
    }
}

/// The length of a value that no client guesses.
const SECRET: usize = 16;

/// A client guesses a shorter value, because it is a word. A value between both may be a weak secret.
const GUESSED: usize = 8;

/// Requests that are held for a `max_delay` have their permit of a `concurrency` limit already.
fn held_permits(config: &Config, policy: &Policy, at: &str, found: &mut Vec<Finding>) {
    if policy.mode != Mode::Enforce {
        return;
    }
    let permits = |other: &&Policy| other.mode == Mode::Enforce && !exclude(&other.matcher, &policy.matcher);
    let permits = config.policies.iter().filter(permits).flat_map(|other| &other.tiers.tiers);
    let mut permits = permits.flat_map(|tier| tier.plan.limits().iter().zip(&tier.views));
    let Some((_, permits)) = permits.find(|(limit, _)| matches!(limit, Limit::Concurrency(_))) else {
        return;
    };
    for tier in &policy.tiers.tiers {
        for (place, limit) in tier.plan.limits().iter().enumerate() {
            let Limit::LeakyBucket(bucket) = limit else { continue };
            let (delay, per) = (bucket.max_delay(), bucket.per().0.max(1));
            let held = u128::from(delay.0).saturating_mul(bucket.rate().into()).div_ceil(per.into());
            if held == 0 {
                continue;
            }
            let requests = words::count(u64::try_from(held).unwrap_or(u64::MAX), "request");
            found.push(warning(
                code::HELD_PERMITS,
                format!("{}[{place}].max_delay", limits::list(tier, at)),
                format!(
                    "up to {requests} of a subject may be held for up to {}, and each has its permit of limit {:?} while it waits: so \
                     fewer run at the upstream, and others are rejected",
                    weir::config::duration_text(delay),
                    permits.name()
                ),
                format!("Add {held} to the limit {:?}, or write its `queue` in place of `max_delay`", permits.name()),
            ));
        }
    }
}

fn shadowed(config: &Config, index: usize, at: &str, found: &mut Vec<Finding>) {
    let Some(policy) = config.policies.get(index) else { return };
    for (list, conditions, done) in [
        (String::from("deny"), &config.deny, "denied"),
        (String::from("exempt"), &config.exempt, "exempt"),
        (format!("{at}.exempt"), &policy.exempt, "exempt"),
    ] {
        let place = conditions.conditions().iter().position(|condition| covers(condition, &policy.matcher));
        // Quota requests take from the policy that `quota` names, also where it exempts them.
        let is_of_quota =
            done == "exempt" && config.quota.as_ref().is_some_and(|quota| quota.policy == Some(index));
        let Some(place) = place.filter(|_| !is_of_quota) else { continue };
        let list = format!("{list}[{place}]");
        let name = &policy.name;
        let reason = format!(
            "policy {name:?} limits nothing: {list} holds for all of its requests, so they are {done}"
        );
        let advice = format!("Narrow {list}, or remove the policy");
        return found.push(warning(code::SHADOWED_POLICY, format!("{at}.name"), reason, advice));
    }
    let stricter = config.policies.iter().enumerate().find(|(other, stricter)| {
        // Of two that are the same, the later one is superfluous.
        let same = is_stricter(policy, stricter);
        *other != index && is_stricter(stricter, policy) && (!same || *other < index)
    });
    if let Some((_, stricter)) = stricter {
        let reason = format!(
            "policy {:?} never denies anything: {:?} counts the same requests of the same subjects, and allows no more",
            policy.name, stricter.name
        );
        let advice = "Remove one of the two, or narrow the `match` of the stricter one";
        found.push(warning(code::SHADOWED_POLICY, format!("{at}.name"), reason, advice));
    }
}

/// True if `strict` denies each request that `loose` would deny, because it counts at least as much under limits that are no larger.
fn is_stricter(strict: &Policy, loose: &Policy) -> bool {
    let is_plain = |policy: &Policy| {
        policy.mode == Mode::Enforce
            && policy.enforce_percent >= 100
            && policy.exempt.conditions().is_empty()
            && policy.costs.is_empty()
            && policy.settle.is_empty()
            && policy.lease.is_none()
            && policy.scale.is_none()
            && policy.priority.is_empty()
            && policy.members.is_empty()
            && policy.closed_by.is_empty()
            && policy.counters == policy.name
            && policy.tiers.by.is_none()
    };
    let ([strict_tier], [loose_tier]) = (strict.tiers.tiers.as_slice(), loose.tiers.tiers.as_slice()) else {
        return false;
    };
    let is_beside = |tier: &Tier| tier.plan.overrides() == Overrides::Ignored && tier.plan.ban().is_none();
    is_plain(strict)
        && is_plain(loose)
        && is_beside(strict_tier)
        && is_beside(loose_tier)
        && loose.deny.conditions().is_empty()
        && strict.cost == loose.cost
        && strict.regions == loose.regions
        && strict.on_failure == loose.on_failure
        && same_subjects(&strict.subject, &loose.subject)
        && covers(&strict.matcher, &loose.matcher)
        && loose_tier
            .plan
            .limits()
            .iter()
            .all(|loose| strict_tier.plan.limits().iter().any(|strict| limits_no_less(strict, loose)))
}

fn is_same_source(one: &SubjectPart, other: &SubjectPart) -> bool {
    format!("{:?}", one.source) == format!("{:?}", other.source)
}

fn same_subjects(one: &[SubjectPart], other: &[SubjectPart]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            is_same_source(one, other)
                && (one.on_missing, one.on_multiple) == (other.on_missing, other.on_multiple)
                && one.normalize == other.normalize
        })
}

/// True if both are the same kind of limit over the same times, and `strict` allows no more.
fn limits_no_less(strict: &Limit, loose: &Limit) -> bool {
    let (counts, larger) = (strict.counts(), loose.counts());
    strict.with_counts(larger).as_ref() == Ok(loose)
        && counts.iter().zip(larger).all(|(count, larger)| *count <= larger)
}
