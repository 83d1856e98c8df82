// SPDX-License-Identifier: Apache-2.0
//! `cost`: how many units a request takes.

use super::condition::{self, CONDITION, ConditionFields};
use super::schema::{
    BODY_PATH, Count, Draft, Errors, Field, HEADER, Items, List, Nested, TEXT, Text, Typed, View, count,
    list, nested, object, text,
};
use super::usage::{self, ESTIMATE, EstimateFields, Tables};
use crate::limit::MAX_UNITS;
use crate::policy::cost::{Bounds, Cost, CostSource};
use crate::policy::matcher::Condition;
use crate::request::body::MAX_BODY_PATHS;

object! {
    static COST: CostFields = "cost", exactly_one(constant, header, query, body_json, content_length, usage, calls),
        "How many units a request takes from every limit of the policy.";
    constant: Option<Count<u64>> = count(0, MAX_UNITS).optional("This many; 0 asks without taking."),
    header: Option<Nested<CostHeaderFields>> = nested(&COST_HEADER).optional("The number in a header."),
    query: Option<Nested<CostQueryFields>> = nested(&COST_QUERY).optional("The number in a query parameter."),
    body_json: Option<Nested<CostBodyFields>> = nested(&COST_BODY)
        .optional("The number in the request's JSON body, for which the request waits. See [request bodies](bodies.md)."),
    content_length: Option<Nested<CostLengthFields>> = nested(&COST_LENGTH).optional("By the size of the request's body."),
    usage: Option<Nested<EstimateFields>> = nested(&ESTIMATE)
        .optional("By the tokens that a language model may use. See [language models](language-models.md)."),
    calls: Option<Nested<CostCallsFields>> = nested(&COST_CALLS)
        .optional("By the calls of a JSON-RPC batch, for which the request waits. See [request bodies](bodies.md#calls-in-a-batch)."),
}

const fn units() -> Typed<Count<u64>> {
    count(0, MAX_UNITS)
}

const fn on_missing() -> Draft<Count<u64>> {
    units().default("1", "The cost when it is missing.")
}

const fn min() -> Draft<Count<u64>> {
    units().default("1", "A stated cost is at least this.")
}

const fn max() -> Draft<Count<u64>> {
    count(1, MAX_UNITS).default(
        "1000000",
        "A stated cost is at most this. It is also the cost when it is there and is no clean number.",
    )
}

object! {
    static COST_HEADER: CostHeaderFields = "cost_header", "The cost is a whole number in a header: digits only. Of several numbers, separated by commas, the largest counts.";
    name: Text = text(&HEADER).required("The header's name, in lower case."),
    on_missing: Count<u64> = on_missing(),
    min: Count<u64> = min(),
    max: Count<u64> = max(),
}

object! {
    static COST_QUERY: CostQueryFields = "cost_query", "The cost is a whole number in a query parameter: digits only. Of several numbers the largest counts.";
    name: Text = text(&TEXT).required("The parameter's name."),
    on_missing: Count<u64> = on_missing(),
    min: Count<u64> = min(),
    max: Count<u64> = max(),
}

object! {
    static COST_BODY: CostBodyFields = "cost_body_json",
        "The cost is a number in the request's JSON body, rounded up. A body that cannot be read costs `max`, and so does a value that is a \
         string, an array, an object, `true`, `false` or a negative number. `null` is no value.";
    paths: List<Text> = list(&text(&BODY_PATH), 1, MAX_BODY_PATHS)
        .required("Where it stands: `max_tokens`. The largest of the numbers at these paths counts. A path that leads to several values cannot be read."),
    on_missing: Count<u64> = units().default("1", "The cost when there is none at any of them."),
    min: Count<u64> = min(),
    max: Count<u64> = max(),
}

object! {
    static COST_LENGTH: CostLengthFields = "cost_length",
        "The cost is `content-length` divided by `per`, rounded up. A body without `content-length` (chunked, HTTP/2, a \
         WebSocket) costs `max`, unless `on_unknown` says less.";
    per: Count<u64> = count(1, MAX_UNITS).default("1", "How many bytes are one unit."),
    on_unknown: Option<Count<u64>> = units()
        .optional("What a body without `content-length` reserves, between `min` and `max`. Only in a policy that settles by `request_bytes`, \
         which charges the rest."),
    on_missing: Count<u64> = units()
        .default("1", "The cost of a request that has neither `content-length` nor a body."),
    min: Count<u64> = min(),
    max: Count<u64> = max(),
}

object! {
    static COST_CALLS: CostCallsFields = "cost_calls",
        "The cost is the number of calls in a JSON-RPC batch, which is a JSON array; of a body that is no array, and of a request without a \
         body, it is 1.";
    on_unreadable: Count<u64> = units().default("100", "The cost of a request whose body cannot be read."),
}

object! {
    static COST_CASE: CostCaseFields = "cost_case",
        "The cost of the requests that meet a condition. A request that can be read in several ways costs the most that it does in \
         any of them (see [readings](readings.md)).";
    when: Nested<ConditionFields> = nested(&CONDITION).required("Which requests."),
    cost: Nested<CostFields> = nested(&COST).required("How many units such a request takes."),
}

/// The costs of one policy.
pub(super) const fn list_of() -> Typed<List<Nested<CostCaseFields>>> {
    list(const { &nested(&COST_CASE) }, 0, 64)
}

pub(super) fn read_all(
    cases: &Items<'_, Nested<CostCaseFields>>,
    tables: &Tables,
    errors: &mut Errors,
) -> Vec<(Condition, Cost)> {
    let case = |view: View<'_, CostCaseFields>| {
        (condition::read(&view.get(&COST_CASE.when)), read(&view.get(&COST_CASE.cost), tables, errors))
    };
    cases.iter().map(case).collect()
}

pub(super) fn read(view: &View<'_, CostFields>, tables: &Tables, errors: &mut Errors) -> Cost {
    if let Some(header) = view.get(&COST.header) {
        let source = CostSource::Header(header.get(&COST_HEADER.name).to_owned());
        let fields = (&COST_HEADER.on_missing, &COST_HEADER.min, &COST_HEADER.max);
        Cost::Stated(source, bounds(&header, fields, errors))
    } else if let Some(query) = view.get(&COST.query) {
        let source = CostSource::Query(query.get(&COST_QUERY.name).into());
        let fields = (&COST_QUERY.on_missing, &COST_QUERY.min, &COST_QUERY.max);
        Cost::Stated(source, bounds(&query, fields, errors))
    } else if let Some(body) = view.get(&COST.body_json) {
        let source = CostSource::Body(body.get(&COST_BODY.paths).iter().map(str::to_owned).collect());
        let fields = (&COST_BODY.on_missing, &COST_BODY.min, &COST_BODY.max);
        Cost::Stated(source, bounds(&body, fields, errors))
    } else if let Some(length) = view.get(&COST.content_length) {
        let source = CostSource::ContentLength {
            per: length.get(&COST_LENGTH.per),
            on_unknown: length.get(&COST_LENGTH.on_unknown),
        };
        let fields = (&COST_LENGTH.on_missing, &COST_LENGTH.min, &COST_LENGTH.max);
        Cost::Stated(source, bounds(&length, fields, errors))
    } else if let Some(view) = view.get(&COST.usage)
        && let Some(estimate) = usage::read_estimate(&view, tables, errors)
    {
        Cost::Usage(estimate)
    } else if let Some(calls) = view.get(&COST.calls) {
        Cost::Calls(calls.get(&COST_CALLS.on_unreadable))
    } else {
        Cost::Constant(view.get(&COST.constant).unwrap_or(1))
    }
}

type Units<F> = Field<F, Count<u64>>;

fn bounds<F>(
    view: &View<'_, F>,
    (on_missing, min, max): (&Units<F>, &Units<F>, &Units<F>),
    errors: &mut Errors,
) -> Bounds {
    let bounds = Bounds { on_missing: view.get(on_missing), min: view.get(min), max: view.get(max) };
    if bounds.min > bounds.max {
        let allowed = format!("a whole number from {} to {MAX_UNITS}: at least `min`", bounds.min);
        errors.add(&view.path_of(max), bounds.max, allowed);
    }
    bounds
}
