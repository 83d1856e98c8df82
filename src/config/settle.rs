// SPDX-License-Identifier: Apache-2.0
//! `settle`: the rules by which the true cost of a request is read from its response.

use std::rc::Rc;

use super::condition::{HEADER_TEST, HeaderTestFields, header_test};
use super::schema::{
    BODY_PATH, Count, Draft, Duration, Errors, HEADER, Items, List, Nested, STATUS, Text, Typed, View,
    WEIGHT, count, duration, list, nested, object, statuses, text,
};
use super::subject::{EMPTY, EmptyFields};
use super::usage::{self, Tables, USAGE, UsageFields};
use crate::body::{MAX_PATHS, MAX_TERMS, Paths, Sum, Weight};
use crate::limit::{MAX_UNITS, MAX_WINDOW};
use crate::policy::settle::{Case, OnMissing, Settle, Shown, Source, TrueCost, When};
use crate::time::Micros;

/// The most cases of one policy.
const MAX_CASES: usize = 16;

object! {
    static CASE: CaseFields = "settle_case", "What requests cost whose responses meet a condition.";
    when: Nested<WhenFields> = nested(&WHEN).default("{}", "Which responses. By default all."),
    cost: Nested<TrueCostFields> = nested(&TRUE_COST).required("What such a request has cost."),
}

/// The cases of one policy.
pub(super) const fn list_of() -> Typed<List<Nested<CaseFields>>> {
    list(const { &nested(&CASE) }, 0, MAX_CASES)
}

object! {
    static WHEN: WhenFields = "response_condition",
        "Holds when all of its fields hold; without fields it always does, also when there was no response.";
    status: Option<List<Text>> = list(&text(&STATUS), 1, 32)
        .optional("The status is one of these: `404`, `4xx` or `500-503`."),
    grpc_status: Option<List<Count<u32>>> = list(&count(0, 16), 1, 17)
        .optional("The gRPC status is one of these numbers; 0 is success. A response that has none meets no such condition."),
    header: Option<Nested<HeaderTestFields>> = nested(&HEADER_TEST)
        .optional("A line of a header of the response meets this: a `location`, a `set-cookie`."),
}

object! {
    static TRUE_COST: TrueCostFields = "true_cost",
        exactly_one(reserved, constant, header, trailer, request_bytes, response_bytes, duration, body_json, usage),
        "How many units a request has cost. What it has reserved above that is refunded, and what is missing is charged.";
    reserved: Option<Nested<EmptyFields>> = nested(&EMPTY).optional("As many as it has reserved."),
    constant: Option<Count<u64>> = count(0, MAX_UNITS)
        .optional("This many; 0 refunds all. A request that ends before its response begins costs no less than it has reserved."),
    header: Option<Nested<FieldCostFields>> = nested(&FIELD_COST).optional("The number in a header of the response."),
    trailer: Option<Nested<FieldCostFields>> = nested(&FIELD_COST).optional("The number in a trailer of the response."),
    request_bytes: Option<Nested<RequestBytesFields>> = nested(&REQUEST_BYTES)
        .optional("By the size of the request's body, as far as it came: chunked uploads too."),
    response_bytes: Option<Nested<BytesCostFields>> = nested(&BYTES_COST).optional("By the size of the response's body."),
    duration: Option<Nested<DurationCostFields>> = nested(&DURATION_COST)
        .optional("By the time from the request's admission to the end of its response."),
    body_json: Option<Nested<BodyCostFields>> = nested(&BODY_COST).optional("By numbers in the JSON body of the response."),
    usage: Option<Nested<UsageFields>> = nested(&USAGE)
        .optional("By the tokens that a language model says it has used. See [language models](language-models.md)."),
}

object! {
    static FIELD_COST: FieldCostFields = "field_cost",
        "The cost is a whole number in a header or trailer. Of several numbers the largest counts.";
    name: Text = text(&HEADER).required("The name, in lower case."),
    on_missing: Nested<OnMissingFields> = on_missing(),
    max: Count<u64> = max(),
}

object! {
    static BYTES_COST: BytesCostFields = "bytes_cost", "The cost is the number of bytes divided by `per`, rounded up.";
    per: Count<u64> = count(1, MAX_UNITS).default("1", "How many bytes are one unit."),
    on_missing: Nested<OnMissingFields> = on_missing(),
    max: Count<u64> = max(),
}

object! {
    static REQUEST_BYTES: RequestBytesFields = "request_bytes_cost",
        "The cost is the number of bytes of the request's body that weir has let through, divided by `per`, rounded up. It is charged \
         when the stream ends.";
    per: Count<u64> = count(1, MAX_UNITS).default("1", "How many bytes are one unit."),
    max: Count<u64> = max(),
}

object! {
    static DURATION_COST: DurationCostFields = "duration_cost", "The cost is the time divided by `per`, rounded up.";
    per: Duration = duration(Micros::from_millis(1), MAX_WINDOW).default("\"1ms\"", "How long one unit is."),
    max: Count<u64> = max(),
}

object! {
    static BODY_COST: BodyCostFields = "body_cost",
        "The cost is a sum of numbers in the response's body, rounded up: of a JSON document, of the documents in an event stream \
         (`text/event-stream` or `application/vnd.amazon.eventstream`), or of JSON lines. Of several numbers at one path the last counts; a string or another value after it \
         changes nothing. If the response is cut off before its end, the request costs no less than it has reserved. A negative number is none. A number with more than six decimal places is rounded up to the sixth before it \
         is weighed, which adds less than one unit for each term.";
    sum: List<Nested<TermFields>> = list(&nested(&TERM), 1, MAX_TERMS).required("What is added up."),
    on_missing: Nested<OnMissingFields> = on_missing_number(),
    max: Count<u64> = max(),
}

object! {
    static TERM: TermFields = "term", "One number of a body, times its weight. It counts as 0 when it is not there.";
    paths: List<Text> = list(&text(&BODY_PATH), 1, MAX_PATHS)
        .required("Where it stands: the first of these paths that has a number counts. `usage.total_tokens`, `items[0].n`, `items[*].n`; \
            a key with other characters is quoted: `['a.b']`."),
    weight: Text = text(&WEIGHT).default("\"1\"", "Its factor."),
}

object! {
    static ON_MISSING: OnMissingFields = "on_missing", exactly_one(reserved, constant),
        "What a request has cost whose response does not say it. If the response was cut off, it costs no less than it has reserved.";
    reserved: Option<Nested<EmptyFields>> = nested(&EMPTY).optional("As many as it has reserved."),
    constant: Option<Count<u64>> = count(0, MAX_UNITS).optional("This many; 0 refunds all."),
}

pub(super) const fn on_missing_number() -> Draft<Nested<OnMissingFields>> {
    nested(&ON_MISSING).default(
        r#"{"reserved": {}}"#,
        "The cost when no number of the sum is there: the body says none, is not JSON, is compressed, or \
            ended too early. Text that begins like a number, such as `012` or `1_000`, is not JSON.",
    )
}

const fn on_missing() -> Draft<Nested<OnMissingFields>> {
    nested(&ON_MISSING).default(
        r#"{"reserved": {}}"#,
        "The cost when the response does not say it: the number is missing or is not whole, or there was no response.",
    )
}

pub(super) const fn max() -> Draft<Count<u64>> {
    count(1, MAX_UNITS).default("1000000000000", "A stated cost is at most this.")
}

pub(super) fn read(cases: &Items<'_, Nested<CaseFields>>, tables: &Tables, errors: &mut Errors) -> Settle {
    Settle { cases: cases.iter().map(|view| case(&view, tables, errors)).collect() }
}

fn case(view: &View<'_, CaseFields>, tables: &Tables, errors: &mut Errors) -> Case {
    let when = view.get(&CASE.when);
    let status = when.get(&WHEN.status).map(|texts| texts.iter().filter_map(statuses).collect());
    let grpc_status = when.get(&WHEN.grpc_status).map(|numbers| numbers.iter().collect());
    Case {
        when: When {
            status: status.unwrap_or_default(),
            grpc_status: grpc_status.unwrap_or_default(),
            header: when.get(&WHEN.header).map(|header| header_test(&header)),
        },
        cost: true_cost(&view.get(&CASE.cost), tables, errors),
    }
}

fn true_cost(view: &View<'_, TrueCostFields>, tables: &Tables, errors: &mut Errors) -> TrueCost {
    let shown = |source, on_missing, max| TrueCost::Shown(Shown { source, on_missing, max });
    if let Some(header) = view.get(&TRUE_COST.header) {
        let source = Source::Header(header.get(&FIELD_COST.name).to_owned());
        return shown(source, missing(&header.get(&FIELD_COST.on_missing)), header.get(&FIELD_COST.max));
    }
    if let Some(trailer) = view.get(&TRUE_COST.trailer) {
        let source = Source::Trailer(trailer.get(&FIELD_COST.name).to_owned());
        return shown(source, missing(&trailer.get(&FIELD_COST.on_missing)), trailer.get(&FIELD_COST.max));
    }
    if let Some(bytes) = view.get(&TRUE_COST.request_bytes) {
        let source = Source::RequestBytes(bytes.get(&REQUEST_BYTES.per));
        return shown(source, OnMissing::Reserved, bytes.get(&REQUEST_BYTES.max));
    }
    if let Some(bytes) = view.get(&TRUE_COST.response_bytes) {
        let source = Source::Bytes(bytes.get(&BYTES_COST.per));
        return shown(source, missing(&bytes.get(&BYTES_COST.on_missing)), bytes.get(&BYTES_COST.max));
    }
    if let Some(duration) = view.get(&TRUE_COST.duration) {
        let source = Source::Duration(duration.get(&DURATION_COST.per));
        return shown(source, OnMissing::Reserved, duration.get(&DURATION_COST.max));
    }
    if let Some(body) = view.get(&TRUE_COST.body_json)
        && let Some((paths, sum)) = read_sum(&body, errors)
    {
        let source = Source::Body(Rc::new(paths), sum);
        return shown(source, missing(&body.get(&BODY_COST.on_missing)), body.get(&BODY_COST.max));
    }
    if let Some(view) = view.get(&TRUE_COST.usage)
        && let Some(usage) = usage::read(&view, tables, errors)
    {
        return shown(Source::Usage(usage), missing(&view.get(&USAGE.on_missing)), view.get(&USAGE.max));
    }
    view.get(&TRUE_COST.constant).map_or(TrueCost::Reserved, TrueCost::Constant)
}

/// The paths of a sum, all in one table, and the sum. An error if they are too many together.
fn read_sum(view: &View<'_, BodyCostFields>, errors: &mut Errors) -> Option<(Paths, Sum)> {
    let (mut paths, mut terms) = (Vec::<String>::new(), Vec::new());
    for term in view.get(&BODY_COST.sum).iter() {
        let mut places = Vec::new();
        for path in term.get(&TERM.paths).iter() {
            let known = paths.iter().position(|other| other == path);
            places.push(known.unwrap_or(paths.len()));
            if known.is_none() {
                paths.push(path.to_owned());
            }
        }
        terms.push((Weight::parse(term.get(&TERM.weight))?, places));
    }
    if paths.len() > MAX_PATHS {
        let allowed = format!("up to {MAX_PATHS} different paths in one sum");
        errors.add(&view.path_of(&BODY_COST.sum), format_args!("{} paths", paths.len()), allowed);
        return None;
    }
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    Some((Paths::new(&paths).ok()?, Sum::new(terms)?))
}

fn missing(view: &View<'_, OnMissingFields>) -> OnMissing {
    view.get(&ON_MISSING.constant).map_or(OnMissing::Reserved, OnMissing::Constant)
}
