// SPDX-License-Identifier: Apache-2.0
//! A policy: which requests are limited, by which subject, and how much is allowed.

use super::ban::{self, BAN, BanFields};
use super::condition::{self, CONDITION, ConditionFields};
use super::cost::{self, COST, CostCaseFields, CostFields};
use super::lease::{self, LEASE, LeaseFields};
use super::limits::{self, MAX_PARTS};
use super::priority::{self, ClassFields};
use super::regions::{self, Regions, WAY, WayFields};
use super::response::{self, RESPONSE, ResponseFields};
use super::scale::{self, SCALE, ScaleFields};
use super::schema::{
    Count, Errors, Flag, List, NAME, Nested, Tagged, Text, Variant, View, Word, WordOr, Words, count, flag,
    list, nested, object, text, word, word_or, words,
};
use super::settle::{self, CaseFields};
use super::store::{ON_FAILURE, Store};
use super::subject::{self, PART, PartFields};
use super::tiers::{self, Beside, TIERS, TiersFields};
use super::usage::{self, Tables};
use crate::limit::Limit;
use crate::policy::list::Conditions;
use crate::policy::settle::{Case, TrueCost};
use crate::policy::{self, Mode, OnFailure, Policy};
use crate::response::{Counts, Settings};
use crate::script::{Classes, Options, Overrides};

object! {
    static POLICY: PolicyFields = "policy", exactly_one(limits, tiers),
        "Which requests are limited, which of them share a limit, and how much is allowed.";
    name: Text = text(&NAME).required("Its name: in keys, headers, metrics and logs."),
    matches as "match": Nested<ConditionFields> = nested(&CONDITION)
        .default("{}", "The requests that the policy applies to. By default all. It also applies to a request that can be read \
            in two ways (see [readings](readings.md)) when one of them matches."),
    subject: List<Nested<PartFields>> = list(&nested(&PART), 1, MAX_PARTS)
        .default(r#"[{"client_address": {}}]"#, "Requests with the same parts share the limits. By default each client address \
            has limits of its own."),
    counters: Option<Text> = text(&NAME)
        .optional("The name under which the limits count in Redis, by default the policy's. Policies that count under one name share their \
            counters, and need the same limits. See [shared counters](policies.md#shared-counters)."),
    limits: Option<List<Tagged>> = limits::list_of()
        .optional("How much is allowed. All-or-nothing: a request that one limit denies is charged to none."),
    tiers: Option<Nested<TiersFields>> = nested(&TIERS).optional("Limits that depend on the request."),
    cost: Nested<CostFields> = nested(&COST)
        .default(r#"{"constant": 1}"#, "How many units a request takes; with `settle`, how many it reserves."),
    costs: List<Nested<CostCaseFields>> = cost::list_of()
        .default("[]", "Costs of requests that meet a condition; the first that holds counts. `cost` is that of all others."),
    priority: List<Nested<ClassFields>> = priority::list_of()
        .default("[]", "Shares of each limit that are kept for classes of requests; a request belongs to the first class that holds. When \
            less is left, requests of no class are denied first. See [priority](bans.md#priority)."),
    scale: Option<Nested<ScaleFields>> = nested(&SCALE)
        .optional("How many times the limits a subject has, told by a claim or another trusted value. See [scales](policies.md#scales)."),
    settle: List<Nested<CaseFields>> = settle::list_of()
        .default("[]", "What a request turned out to cost, told from its response; the first case that holds counts. The difference \
            to what it reserved is charged or refunded. See [true costs](costs.md#true-costs)."),
    deny: List<Nested<ConditionFields>> = condition::list_of()
        .default("[]", "Matching requests that meet one of these conditions are denied without Redis."),
    exempt: List<Nested<ConditionFields>> = condition::list_of()
        .default("[]", "Matching requests that meet one of these conditions, and are not denied, pass this policy without \
            Redis."),
    mode: Word<Mode> = word(&MODE).default("\"enforce\"", "What a denial leads to."),
    enforce_percent: Count<u8> = count(0, 100)
        .default("100", "For how many of a hundred subjects denials are enforced; the others are in shadow. What denies without a \
            subject is enforced for all: `deny`, `on_missing`, `on_multiple`. Stable: when the number grows, a subject that is enforced \
            stays enforced."),
    overrides: Flag = flag()
        .default("false", "Whether limits of single subjects can be changed in Redis, without a new configuration."),
    ban: Option<Nested<BanFields>> = nested(&BAN)
        .optional("After how many denials a subject is denied for a time. See [bans](bans.md#bans)."),
    lease: Option<WordOr<LeaseFields>> = word_or(&lease::AUTO, &LEASE)
        .optional("Whether workers take requests in advance, to admit them without asking Redis. See [leases](policies.md#leases)."),
    regions: Option<Nested<WayFields>> = nested(&WAY)
        .optional("How the limits hold across regions. By default each region counts for itself. See [regions](policies.md#regions)."),
    usage_journal: Flag = flag()
        .default("false", "Whether what each subject uses is added up in Redis, for bills. See [the usage journal](costs.md#the-usage-journal)."),
    on_failure: Option<Word<OnFailure>> = word(&ON_FAILURE).optional("Replaces the store's, for this policy."),
    response: Option<Nested<ResponseFields>> = nested(&RESPONSE).optional("Replaces the configuration's `response`, as a whole."),
}

static MODE: Words<Mode> = words! {
    "enforce" => Mode::Enforce, "The request is rejected.";
    "shadow" => Mode::Shadow, "Everything is counted and reported, nothing is rejected.";
};

pub(super) fn read(
    view: &View<'_, PolicyFields>,
    (store, all, tables): (&Store, &Regions, &Tables),
    default_response: &Settings,
    errors: &mut Errors,
) -> Policy {
    let overrides = if view.get(&POLICY.overrides) { Overrides::Read } else { Overrides::Ignored };
    let ban = view.get(&POLICY.ban).and_then(|ban| ban::read(&ban, errors));
    if view.get(&POLICY.ban).is_some() && view.get(&POLICY.lease).is_some() {
        let allowed = "no lease with a ban: a worker would admit a banned subject from its lease";
        errors.add(&view.path_of(&POLICY.lease), "a lease", allowed);
    }
    let priority = priority::read(&view.get(&POLICY.priority), errors);
    if !priority.is_empty() && view.get(&POLICY.lease).is_some() {
        let allowed = "no lease with a priority: a worker would hold requests in advance that are for others";
        errors.add(&view.path_of(&POLICY.lease), "a lease", allowed);
    }
    let way = view.get(&POLICY.regions);
    let regions = way.as_ref().map(|way| regions::read_way(way, all, errors)).unwrap_or_default();
    // A region that lends keeps a part for itself.
    let one_class = priority.is_empty() && regions != policy::Across::Share;
    let classes = if one_class { Classes::One } else { Classes::Several };
    let options = Options { overrides, ban, classes };
    let beside = Beside { store, options, regions: (regions, all.all.len()) };
    let tiers = match view.get(&POLICY.tiers) {
        Some(tiers) => tiers::read(&tiers, &beside, errors),
        None => {
            let limits = view.get(&POLICY.limits).unwrap_or_default();
            tiers::read_only(&limits, &beside, errors)
        }
    };
    let has_queue = tiers.tiers.iter().flat_map(|tier| &tier.queues).any(Option::is_some);
    if view.get(&POLICY.ban).is_some() && has_queue {
        let allowed = "no ban with a queue: a request that waits asks again and again, and each time would count as a denial";
        errors.add(&view.path_of(&POLICY.ban), "a ban", allowed);
    }
    let (members, members_path) = limits::members(&limits_of(view), &store.hasher, errors);
    if !members.is_empty() && has_queue {
        let allowed = "no distinct limit beside a queue: requests of one subject wait in one queue, whatever their values";
        errors.add(&members_path, "a value", allowed);
    }
    if !priority.is_empty() {
        priority::check(&view.get(&POLICY.priority), &tiers, errors);
    }
    if let Some(way) = way {
        regions::check(&way, view, (regions, all), &tiers, errors);
    }
    let response = view.get(&POLICY.response);
    let name = view.get(&POLICY.name);
    let mut costs = cost::read_all(&view.get(&POLICY.costs), tables, errors);
    let mut cost = cost::read(&view.get(&POLICY.cost), tables, errors);
    let cases = view.get(&POLICY.settle);
    let settle = settle::read(&cases, tables, errors);
    usage::complete(costs.iter_mut().map(|(_, cost)| cost).chain([&mut cost]), &settle);
    let all_costs = costs.iter().map(|(_, cost)| cost).chain([&cost]);
    let prices = usage::prices_of(all_costs, &settle, &cases, errors);
    let on_failure = view.get(&POLICY.on_failure).unwrap_or(store.on_failure);
    if !members.is_empty() && on_failure == OnFailure::Local {
        let allowed = "allow or deny in a policy with a distinct limit: a worker has no memory for the values of all subjects";
        errors.add(&view.path_of(&POLICY.on_failure), "\"local\"", allowed);
    }
    let pays_one = |cost: &policy::cost::Cost| matches!(cost, policy::cost::Cost::Constant(1));
    let is_kept_or_refunded =
        |case: &Case| matches!(case.cost, TrueCost::Reserved | TrueCost::Constant(0 | 1));
    let is_whole = pays_one(&cost) && costs.is_empty() && settle.cases.iter().all(is_kept_or_refunded);
    if !members.is_empty() && !settle.cases.is_empty() && !is_whole {
        let allowed = "with a distinct limit, a `cost` of 1, no `costs`, and cases of cost 0 or 1: a value counts, or does not";
        errors.add(&view.path_of(&POLICY.settle), "a true cost", allowed);
    }
    let guesses = [
        cost.guesses_size().then(|| view.path_of(&POLICY.cost)),
        costs.iter().any(|(_, cost)| cost.guesses_size()).then(|| view.path_of(&POLICY.costs)),
    ];
    for field in guesses.iter().flatten().filter(|_| !settle.counts_uploads()) {
        let allowed = "with a `settle` by `request_bytes`: otherwise a body of any size would cost this";
        errors.add(field, "on_unknown", allowed);
    }
    // The place of the policy is looked for only if it is needed.
    let members_path = match members.is_empty() {
        true => String::new(),
        false => members_path.strip_prefix(&format!("{}.", view.path())).unwrap_or_default().to_owned(),
    };
    let mut policy = Policy {
        name: name.to_owned(),
        counters: view.get(&POLICY.counters).unwrap_or(name).to_owned(),
        matcher: condition::read(&view.get(&POLICY.matches)),
        deny: Conditions::new(condition::read_all(&view.get(&POLICY.deny))),
        exempt: Conditions::new(condition::read_all(&view.get(&POLICY.exempt))),
        subject: view
            .get(&POLICY.subject)
            .iter()
            .map(|part| subject::read(&part, &store.hasher, errors))
            .collect(),
        members,
        members_path,
        costs,
        cost,
        priority,
        scale: view.get(&POLICY.scale).map(|scale| scale::read(&scale, &tiers, errors)),
        settle,
        prices,
        closed_by: Vec::new(),
        lease: match view.get(&POLICY.lease) {
            Some(lease) => Some(lease::read(lease, &view.path_of(&POLICY.lease), &tiers, errors)),
            None => (regions == policy::Across::Share).then(|| all.loan()),
        },
        regions,
        tiers,
        mode: view.get(&POLICY.mode),
        enforce_percent: view.get(&POLICY.enforce_percent),
        usage_journal: view.get(&POLICY.usage_journal),
        on_failure,
        response: response.map_or_else(|| default_response.clone(), |view| response::read(&view, errors)),
    };
    let (counts, counts_bytes) = (policy.counts(), policy.counts_bytes());
    for tier in &mut policy.tiers.tiers {
        for (limit_view, limit) in tier.views.iter_mut().zip(tier.plan.limits()) {
            // Values are neither requests nor bytes.
            let is_distinct = matches!(limit, Limit::Distinct(_));
            if counts_bytes && !is_distinct {
                *limit_view = limit_view.in_bytes();
            }
            limit_view.counts = if is_distinct { Counts::Values } else { counts };
        }
    }
    policy
}

/// The path of the name under which the limits of a policy count.
pub(super) fn path_of_counters(policy: &View<'_, PolicyFields>) -> String {
    match policy.get(&POLICY.counters) {
        Some(_) => policy.path_of(&POLICY.counters),
        None => policy.path_of(&POLICY.name),
    }
}

/// The limits of a policy, of all of its tiers.
pub(super) fn limits_of<'a>(policy: &View<'a, PolicyFields>) -> Vec<Variant<'a>> {
    match policy.get(&POLICY.tiers) {
        Some(tiers) => tiers::limits_of(&tiers),
        None => policy.get(&POLICY.limits).unwrap_or_default().iter().collect(),
    }
}
