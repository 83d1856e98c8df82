// SPDX-License-Identifier: Apache-2.0
//! Describes what a policy reads in the responses of language models: the paths of a preset, and by how much a response may cost more than
//! its request reserves.

use std::io;

use serde_json::{Map, Value, json};

use crate::words::shown;
use weir::policy::cost::Cost;
use weir::policy::settle::{OnMissing, Shown};
use weir::policy::usage::{self, Count, Prices, Usage};
use weir::policy::{Check, Policy};
use weir::request::{Request, Unreadable};

/// The tokens that a request reserves, if that is its cost.
pub fn reserved<'a>(policy: &'a Policy, request: &Request<'a>) -> String {
    match &policy.cost {
        Cost::Usage(estimate) if policy.costs.is_empty() => {
            let (input, output) = estimate.tokens(request);
            format!(" (for {input} tokens of input and {output} of output)")
        }
        _ => String::new(),
    }
}

/// Says why no price is known for the model of a request, where `on_unknown_model` is `deny`.
pub fn unknown_model(request: &Request<'_>) -> String {
    let why = match usage::requested_model(request, true) {
        Ok(Some(model)) => format!("the table of prices has no model {:?}", shown(&model)),
        Ok(None) => String::from("the request names no model"),
        Err(Unreadable) => String::from("the model of the request cannot be read"),
    };
    format!("{why} (on_unknown_model)")
}

/// Prints what weir reads in a response, and how much it may cost.
pub fn print(policy: &Policy, check: &Check, out: &mut impl io::Write) -> io::Result<()> {
    for (usage, shown) in policy.settle.usages() {
        let most = most(shown, check);
        let later = most.saturating_sub(check.cost);
        if is_free(check) {
            writeln!(
                out,
                "  this path uses no tokens: in the end the request costs 0, or what its response says was used, at most {most} units"
            )?;
        } else {
            writeln!(
                out,
                "  the response says what was used, at most {most} units: up to {later} of them are charged after it"
            )?;
        }
        for (name, paths) in paths(usage) {
            writeln!(out, "    {name}: {}", paths.join(", "))?;
        }
        if usage.prices.is_by_model() {
            writeln!(out, "    {}", priced(&usage.prices, check.requested))?;
        }
    }
    Ok(())
}

/// The most that a request costs: a response that says nothing may cost more than `max`.
fn most(shown: &Shown, check: &Check) -> u64 {
    let unsaid = match shown.on_missing {
        OnMissing::Reserved => check.cost,
        OnMissing::Constant(units) => units,
    };
    shown.max.max(unsaid)
}

/// True if a response without usage costs nothing.
fn is_free(check: &Check) -> bool {
    check.requested == Some(usage::NO_MODEL)
}

/// The same for programs.
pub fn json(policy: &Policy, check: &Check) -> Vec<Value> {
    let each = policy.settle.usages().map(|(usage, shown)| {
        let paths: Map<String, Value> =
            paths(usage).into_iter().map(|(name, paths)| (name, paths.into())).collect();
        json!({
            "max": most(shown, check),
            "charged_after": most(shown, check).saturating_sub(check.cost),
            "uses_no_tokens": is_free(check),
            "paths": paths,
            "prices": usage.prices.is_by_model().then(|| priced(&usage.prices, check.requested)),
        })
    });
    each.collect()
}

/// The paths of each count, in the order of the preset.
fn paths(usage: &Usage) -> Vec<(String, Vec<&'static str>)> {
    let mut found: Vec<(Count, Vec<&'static str>)> = Vec::new();
    for (count, path) in usage::paths(usage.providers, &usage.prices) {
        let count = match count {
            Count::Begun | Count::StepOutput => Count::Output,
            Count::StepInput => Count::Input,
            Count::StepCached => Count::CachedBeside,
            Count::StepWritten => Count::Written,
            Count::FirstWritten => Count::WrittenHour,
            // It says which of the parts that is.
            Count::FirstStays => continue,
            count => count,
        };
        match found.iter_mut().find(|(other, _)| *other == count) {
            Some((_, paths)) => paths.push(path),
            None => found.push((count, vec![path])),
        }
    }
    found.into_iter().map(|(count, paths)| (name(count, &usage.prices), paths)).collect()
}

fn name(count: Count, prices: &Prices) -> String {
    let weights = prices.weights(None);
    let (name, weight) = match count {
        Count::Input | Count::StepInput => ("input", weights.input),
        Count::CachedWithin => ("cached input, which is part of input", weights.cached_input),
        Count::CachedBeside | Count::StepCached => {
            ("cached input, which is no part of input", weights.cached_input)
        }
        Count::Written | Count::StepWritten => ("input written to a cache", weights.cache_write),
        Count::WrittenWithin => ("input written to a cache, which is part of input", weights.cache_write),
        Count::WrittenHour | Count::FirstWritten => ("of that, for an hour", weights.cache_write_1h),
        Count::Total => ("output, as what a total has beyond input", weights.output),
        Count::Tools => ("input made by tools", weights.input),
        Count::Output | Count::Begun | Count::StepOutput => ("output", weights.output),
        Count::ReasonedWithin => ("reasoning, which is part of output", weights.reasoning),
        Count::ReasonedBeside => ("reasoning, which is no part of output", weights.reasoning),
        Count::Model | Count::Said | Count::Ended | Count::Hidden | Count::FirstStays => {
            return String::from("model");
        }
    };
    if prices.is_by_model() { name.to_owned() } else { format!("{weight} x {name}") }
}

/// The prices of the model that the request names, in words.
fn priced(prices: &Prices, row: Option<u16>) -> String {
    let whose = match row {
        Some(usage::NO_MODEL) => "the highest prices, if the response names no model of the table",
        Some(_) => "prices of the model that the request names",
        _ => "the request names no model of the table, so the highest prices",
    };
    let each: Vec<_> =
        prices.weights(row).named().iter().map(|(name, weight)| format!("{name} {weight}")).collect();
    format!("{whose}, for {} tokens: {}", prices.per(), each.join(", "))
}
