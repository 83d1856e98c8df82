// SPDX-License-Identifier: Apache-2.0
//! `usage` and `prices`: what the tokens of language models cost, before the response and by it.

use std::rc::Rc;

use super::schema::{
    Count, Draft, Entries, Errors, Field, Items, List, MODEL, Map, NAME, Nested, Text, Typed, View, WEIGHT,
    Word, Words, count, list, map, nearest, nested, object, text, word, words,
};
use super::settle::{self, CaseFields, OnMissingFields};
use crate::body::Weight;
use crate::limit::MAX_UNITS;
use crate::policy::cost::Cost;
use crate::policy::settle::Settle;
use crate::policy::usage::{
    ANTHROPIC, AUTO, BEDROCK, Estimate, GEMINI, OLLAMA, OPENAI, Prices, Providers, Usage, Weights,
};

object! {
    static USAGE: UsageFields = "usage_cost", at_most_one(weights, prices),
        "The cost is that of the tokens that the response of a language model says it has used, rounded up. See \
         [language models](language-models.md).";
    provider: Word<Providers> = word(&PROVIDER).default("\"auto\"", "Whose responses they are."),
    weights: Option<Nested<WeightsFields>> = weights(),
    prices: Option<Text> = prices(),
    on_missing: Nested<OnMissingFields> = settle::on_missing_number(),
    max: Count<u64> = settle::max(),
}

static PROVIDER: Words<Providers> = words! {
    "auto" => AUTO, "Any of those below, by what the response says.";
    "openai" => OPENAI, "Chat completions, responses and embeddings of OpenAI, and what sends the same, such as vLLM.";
    "anthropic" => ANTHROPIC, "Anthropic's messages.";
    "gemini" => GEMINI, "Gemini's `generateContent` and `streamGenerateContent`.";
    "bedrock" => BEDROCK, "Bedrock's `Converse` and `ConverseStream`; not `InvokeModelWithResponseStream`, whose events hold a string in base64.";
    "ollama" => OLLAMA, "Ollama's own API.";
};

object! {
    static ESTIMATE: EstimateFields = "cost_usage", at_most_one(weights, prices),
        "The cost is that of the tokens that a language model may use for the request: of its input by the size of its JSON body, of its \
         output by the most that it takes, both at the highest price that such tokens may have. The request waits for its body. See \
         [language models](language-models.md).";
    provider: Option<Word<Providers>> = word(&PROVIDER)
        .optional("Whose API requests are for: only the fields of that count. By default as in `settle`, or `auto`: any of them."),
    weights: Option<Nested<WeightsFields>> = weights(),
    prices: Option<Text> = prices(),
    bytes_per_token: Count<u64> = count(1, 1000)
        .default("3", "So many bytes of the body are one token of input. With 1, hardly any text has more tokens than are reserved."),
    max_input_tokens: Count<u64> = count(0, MAX_UNITS)
        .default("200000", "The most tokens of input that a request reserves, and how many one reserves whose body cannot be read, if its length is unknown, too."),
    output_tokens: Count<u64> = count(0, MAX_UNITS)
        .default("4096", "The tokens of output that a request reserves which does not state how many it takes at most, where its API reads it."),
    max_output_tokens: Count<u64> = count(1, MAX_UNITS)
        .default("128000", "The most tokens of output that a request reserves, and how many one reserves whose body cannot be read."),
}

object! {
    static WEIGHTS: WeightsFields = "token_weights", "How many units a token of each kind is.";
    input: Text = text(&WEIGHT).default("\"1\"", "Input that is not from a cache."),
    cached_input: Option<Text> = cached_input(),
    cache_write: Option<Text> = cache_write(),
    cache_write_1h: Option<Text> = cache_write_1h(),
    output: Text = text(&WEIGHT).default("\"1\"", "Output."),
    reasoning: Option<Text> = reasoning(),
}

object! {
    static TABLE: TableFields = "price_table", "What tokens cost, by model.";
    per: Count<u64> = count(1, 1_000_000_000).default("1000", "The prices are those of so many tokens."),
    models: List<Nested<PriceFields>> = list(&nested(&PRICE), 1, 256)
        .required("The prices. A name counts before the beginning of a name, and a longer beginning before a shorter one."),
    on_unknown_model: Word<bool> = word(&UNKNOWN)
        .default("\"max\"", "The prices of a model that is not among them, or that is not known."),
}

static UNKNOWN: Words<bool> = words! {
    "max" => false, "Of each kind of tokens the highest price of the table.";
    "deny" => true, "A request is denied with `deny_status` before Redis is asked, also if it names no model, or if its body cannot be read. This is so \
                     where these prices are those of the policy's cost. A response has the highest prices.";
};

object! {
    static PRICE: PriceFields = "price", "What the tokens of some models cost, in any unit of yours.";
    model: List<Text> = list(&text(&MODEL), 1, 8)
        .required("The names of the models, as responses or requests have them; `gpt-5*` is every name that begins so."),
    input: Text = text(&WEIGHT).required("The price of input that is not from a cache."),
    cached_input: Option<Text> = cached_input(),
    cache_write: Option<Text> = cache_write(),
    cache_write_1h: Option<Text> = cache_write_1h(),
    output: Text = text(&WEIGHT).required("The price of output."),
    reasoning: Option<Text> = reasoning(),
}

const fn cached_input() -> Draft<Option<Text>> {
    text(&WEIGHT).optional("Input that was read from a cache; by default as `input`.")
}

const fn cache_write() -> Draft<Option<Text>> {
    text(&WEIGHT).optional("Input that was written to a cache; by default as `input`.")
}

const fn cache_write_1h() -> Draft<Option<Text>> {
    text(&WEIGHT).optional(
        "Input that was written to a cache for an hour, as Anthropic states it; by default as `cache_write`.",
    )
}

const fn reasoning() -> Draft<Option<Text>> {
    text(&WEIGHT)
        .optional("Output that is reasoning, which clients mostly do not see; by default as `output`.")
}

const fn weights() -> Draft<Option<Nested<WeightsFields>>> {
    nested(&WEIGHTS).optional("How many units a token of each kind is. By default one unit each.")
}

const fn prices() -> Draft<Option<Text>> {
    text(&NAME).optional("The name of a table of `prices`: units by model.")
}

/// The tables of prices of a configuration.
pub(super) const fn tables() -> Typed<Map<Nested<TableFields>>> {
    map(const { &nested(&TABLE) }, 0, 16)
}

type Optional<F, T> = Field<F, Option<T>>;

/// Tables of prices, by their names.
pub(super) type Tables = Vec<(String, Rc<Prices>)>;

pub(super) fn read_tables(tables: &Entries<'_, Nested<TableFields>>, errors: &mut Errors) -> Tables {
    let table = |(name, view): (&str, View<'_, TableFields>)| {
        let mut known = Vec::new();
        let mut rows = Vec::new();
        for price in view.get(&TABLE.models).iter() {
            let models = price.get(&PRICE.model).iter().map(str::to_owned).collect::<Vec<_>>();
            for model in &models {
                if known.contains(model) {
                    errors.add(&price.path_of(&PRICE.model), format_args!("{model:?}"), "each model once");
                }
                known.push(model.clone());
            }
            let others = [&PRICE.cached_input, &PRICE.cache_write, &PRICE.cache_write_1h, &PRICE.reasoning];
            rows.push((models, read_weights(&price, &PRICE.input, &PRICE.output, others)?));
        }
        let (per, denies) = (view.get(&TABLE.per), view.get(&TABLE.on_unknown_model));
        Some((name.to_owned(), Rc::new(Prices::by_model(rows, per, denies)?)))
    };
    tables.iter().filter_map(table).collect()
}

fn read_weights<F>(
    view: &View<'_, F>,
    input: &Field<F, Text>,
    output: &Field<F, Text>,
    others: [&Optional<F, Text>; 4],
) -> Option<Weights> {
    let [input, output] = [input, output].map(|field| Weight::parse(view.get(field)));
    let (input, output) = (input?, output?);
    let [cached_input, cache_write, cache_write_1h, reasoning] =
        others.map(|field| view.get(field).and_then(Weight::parse));
    Some(Weights {
        input,
        cached_input: cached_input.unwrap_or(input),
        cache_write: cache_write.unwrap_or(input),
        cache_write_1h: cache_write_1h.or(cache_write).unwrap_or(input),
        output,
        reasoning: reasoning.unwrap_or(output),
    })
}

/// The prices that a `usage` names, or the weights that it has.
fn read_prices<F: 'static>(
    view: &View<'_, F>,
    (weights, prices): (&Optional<F, Nested<WeightsFields>>, &Optional<F, Text>),
    tables: &Tables,
    errors: &mut Errors,
) -> Option<Rc<Prices>> {
    if let Some(name) = view.get(prices) {
        let table = tables.iter().find(|(table, _)| table == name);
        if table.is_none() {
            let names = || tables.iter().map(|(table, _)| table.as_str());
            let allowed = match tables.is_empty() {
                true => String::from("none, because the configuration has no `prices`"),
                false => {
                    format!("the name of a table of `prices`: {}", names().collect::<Vec<_>>().join(", "))
                }
            };
            let hint = nearest(name, names());
            errors.add_with_hint(&view.path_of(prices), format_args!("{name:?}"), allowed, hint);
        }
        return table.map(|(_, prices)| Rc::clone(prices));
    }
    let weights = match view.get(weights) {
        Some(view) => {
            let others =
                [&WEIGHTS.cached_input, &WEIGHTS.cache_write, &WEIGHTS.cache_write_1h, &WEIGHTS.reasoning];
            read_weights(&view, &WEIGHTS.input, &WEIGHTS.output, others)?
        }
        None => {
            let one = Weight::parse("1")?;
            Weights {
                input: one,
                cached_input: one,
                cache_write: one,
                cache_write_1h: one,
                output: one,
                reasoning: one,
            }
        }
    };
    Some(Rc::new(Prices::of_all(weights)))
}

pub(super) fn read(view: &View<'_, UsageFields>, tables: &Tables, errors: &mut Errors) -> Option<Usage> {
    let prices = read_prices(view, (&USAGE.weights, &USAGE.prices), tables, errors)?;
    Usage::new(view.get(&USAGE.provider), prices)
}

pub(super) fn read_estimate(
    view: &View<'_, EstimateFields>,
    tables: &Tables,
    errors: &mut Errors,
) -> Option<Estimate> {
    Some(Estimate {
        providers: view.get(&ESTIMATE.provider).unwrap_or_default(),
        prices: read_prices(view, (&ESTIMATE.weights, &ESTIMATE.prices), tables, errors)?,
        bytes_per_token: view.get(&ESTIMATE.bytes_per_token),
        max_input: view.get(&ESTIMATE.max_input_tokens),
        output: view.get(&ESTIMATE.output_tokens),
        max_output: view.get(&ESTIMATE.max_output_tokens),
    })
}

/// Adds the providers to costs that name none: the providers whose responses are read.
pub(super) fn complete<'a>(costs: impl Iterator<Item = &'a mut Cost>, settle: &Settle) {
    let all = settle.usages().map(|(usage, _)| usage.providers).reduce(|all, others| all | others);
    for cost in costs {
        if let Cost::Usage(estimate) = cost
            && estimate.providers == 0
        {
            estimate.providers = all.unwrap_or(AUTO);
        }
    }
}

/// The table of prices by which a policy settles, and whether it reads the bodies of requests, which name the model. All of a policy's
/// tables have to be one: a request has one row.
pub(super) fn prices_of<'a>(
    costs: impl Iterator<Item = &'a Cost>,
    settle: &Settle,
    cases: &Items<'_, Nested<CaseFields>>,
    errors: &mut Errors,
) -> Option<(Rc<Prices>, bool)> {
    let reserved = costs.filter_map(|cost| match cost {
        Cost::Usage(estimate) => Some(&estimate.prices),
        Cost::Constant(_) | Cost::Stated(..) | Cost::Calls(_) => None,
    });
    let reserved: Vec<_> = reserved.filter(|prices| prices.is_by_model()).collect();
    let settled = settle.usages().map(|(usage, _)| &usage.prices).filter(|prices| prices.is_by_model());
    let mut all = reserved.iter().copied().chain(settled);
    let first = all.next()?;
    if all.any(|prices| !Rc::ptr_eq(prices, first)) {
        errors.add(&cases.path(), "several tables of prices", "one table of prices in all costs of a policy");
    }
    let settles = settle.usages().next().is_some();
    settles.then(|| (Rc::clone(first), !reserved.is_empty()))
}
