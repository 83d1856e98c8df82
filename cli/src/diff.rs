// SPDX-License-Identifier: Apache-2.0
//! `weir diff OLD NEW`: what a change of the configuration means, in words.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::source::load_with_text;
use super::{Ended, Found, check, describe, failed, words};
use weir::config::{Config, duration, duration_text, json_schema};
use weir::limit::Limit;
use weir::policy::subject::SubjectPart;
use weir::policy::{Policy, Tier};
use weir::response::LimitView;

/// The two configurations to compare.
#[derive(Args)]
pub(super) struct Arguments {
    /// The present configuration.
    old: PathBuf,
    /// The new one.
    new: PathBuf,
    /// Print a line for each change: `{"policy", "change"}`. `policy` is empty for the configuration as a whole.
    #[arg(long)]
    json: bool,
}

/// The name of a policy, empty for the configuration as a whole; and what has changed.
type Change = (String, String);

/// Fields of a policy that are said in words below.
const WORDED: &[&str] = &["name", "match", "subject", "limits"];

/// Fields of a part of a subject that its words do not say, and that change which requests have it.
const UNSAID: [&str; 3] = ["on_missing", "on_multiple", "normalize"];

/// Fields of a limit that its words say.
const OF_LIMIT: &[&str] = &[
    "name",
    "algorithm",
    "limit",
    "window",
    "align",
    "utc_offset",
    "anchor",
    "rate",
    "burst",
    "max_delay",
    "capacity",
    "refill",
    "interval",
    "mode",
    "overdraft",
    "ttl",
];

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let ((old, old_text), (new, new_text)) =
        (load_with_text(&arguments.old)?, load_with_text(&arguments.new)?);
    let shapes: Value = serde_json::from_str(&json_schema()).unwrap_or_default();
    let [old_text, new_text] = [old_text, new_text].map(|text| normal(&text, &shapes, &shapes));
    let changes = changes((&old, &old_text), (&new, &new_text), &shapes);
    for (policy, what) in &changes {
        let line = match (arguments.json, policy.as_str()) {
            (true, _) => {
                words::json(&serde_json::json!({"policy": policy, "change": words::printable(what)}))
            }
            (false, "") => words::printable(what),
            (false, policy) => words::printable(&format!("policy {policy}: {what}")),
        };
        writeln!(out, "{line}").map_err(failed)?;
    }
    Ok(if changes.is_empty() { Found::Nothing } else { Found::Something })
}

type Read<'a> = (&'a Config, &'a Value);

fn changes((old, old_text): Read<'_>, (new, new_text): Read<'_>, shapes: &Value) -> Vec<Change> {
    let whole = fields(old_text, new_text, &["$schema", "policies"]).into_iter();
    let subject_by_default = shapes.pointer("/$defs/policy/properties/subject/default");
    let mut changes: Vec<Change> =
        whole.map(|(field, what)| (String::new(), format!("{field}: {what}"))).collect();
    let order = |of: &Config, other: &Config| {
        let names = of.policies.iter().map(|policy| policy.name.clone());
        names.filter(|name| other.policies.iter().any(|policy| policy.name == *name)).collect::<Vec<_>>()
    };
    if order(old, new) != order(new, old) {
        let what =
            String::from("policies: are in another order: the first that denies without Redis decides");
        changes.push((String::new(), what));
    }
    for policy in &old.policies {
        if !new.policies.iter().any(|other| other.name == policy.name) {
            let what = format!("is gone: {} apply to nobody any more", all_limits(policy));
            changes.push((policy.name.clone(), what));
        }
    }
    for policy in &new.policies {
        let mut add = |what| changes.push((policy.name.clone(), what));
        match old.policies.iter().find(|other| other.name == policy.name) {
            None => add(format!("is new: {}, for each {}", all_limits(policy), subject(policy))),
            Some(before) => {
                let texts = [old_text, new_text]
                    .map(|text| named_in(text.get("policies").unwrap_or(&Value::Null), &policy.name));
                let within = |field: &str| texts.map(|text| text.get(field).unwrap_or(&Value::Null));
                if format!("{:?}", before.matcher) != format!("{:?}", policy.matcher) {
                    let [is, was] = [policy, before].map(|policy| describe::condition(&policy.matcher));
                    if is == was {
                        let [was, is] = within("match");
                        fields(was, is, &[])
                            .iter()
                            .for_each(|(field, what)| add(format!("match.{field}: {what}")));
                    } else {
                        add(format!("applies if {is}, and did if {was}"));
                    }
                }
                if subject(before) != subject(policy) {
                    add(format!("counts for each {}, and did for each {}", subject(policy), subject(before)));
                }
                let [was, is] = within("subject").map(|parts| {
                    parts.as_array().or(subject_by_default.and_then(Value::as_array)).into_iter().flatten()
                });
                for (at, (was, is)) in was.zip(is).enumerate() {
                    let found = fields(was, is, &[]).into_iter();
                    let found = found.filter(|(field, _)| UNSAID.contains(&field.as_str()));
                    found.for_each(|(field, what)| add(format!("subject[{at}].{field}: {what}")));
                }
                limits(before, policy, within("limits"), &mut add);
                for (field, what) in fields(texts[0], texts[1], WORDED) {
                    add(format!("{field}: {what}"));
                }
            }
        }
    }
    for finding in check::begins_anew(new, old) {
        let place =
            finding.path.strip_prefix("policies[").and_then(|rest| rest.split(']').next()?.parse().ok());
        let policy = place.and_then(|place: usize| new.policies.get(place));
        let policy = policy.map(|policy| policy.name.clone()).unwrap_or_default();
        changes.push((policy, finding.reason));
    }
    changes
}

/// The fields that differ, but for some, each with what it is and was.
fn fields(old: &Value, new: &Value, but: &[&str]) -> Vec<(String, String)> {
    let keys = |of: &Value| {
        of.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect::<BTreeSet<_>>()
    };
    let all: BTreeSet<String> = keys(old).union(&keys(new)).cloned().collect();
    let mut found = Vec::new();
    for key in all.iter().filter(|key| !but.contains(&key.as_str())) {
        let shown = |value: &Value| if key == "exempt" { closed(value, false) } else { shown(value) };
        let what = match (old.get(key), new.get(key)) {
            (Some(before), Some(now)) if before == now => continue,
            (Some(before), Some(now)) if before.is_object() && now.is_object() => {
                let inner = fields(before, now, &[]).into_iter();
                found.extend(inner.map(|(inner, what)| (format!("{key}.{inner}"), what)));
                continue;
            }
            (Some(_), Some(_)) if key.contains("secret") => String::from("is another one"),
            (Some(_), None) if key.contains("secret") => String::from("is gone"),
            (Some(before), Some(now)) if shown(before) == shown(now) => {
                format!("is {}, with another value that clients send", shown(now))
            }
            (Some(before), Some(now)) => format!("is {}, and was {}", shown(now), shown(before)),
            (Some(before), None) => format!("is the default, and was {}", shown(before)),
            (None, Some(_)) if key.contains("secret") => String::from("is there, and was not"),
            (None, Some(now)) => format!("is {}, and was the default", shown(now)),
            (None, None) => continue,
        };
        found.push((key.clone(), what));
    }
    found
}

/// A value of this shape in its only spelling: without fields that have their default, `1000ms` as `1s`, and `1k` as 1000. `shapes` is the
/// schema.
fn normal(value: &Value, shape: &Value, shapes: &Value) -> Value {
    let named = |shape: &Value| shapes.pointer(shape.get("$ref")?.as_str()?.strip_prefix('#')?);
    let shape = named(shape).unwrap_or(shape);
    let list = |name: &str| shape.get(name).and_then(Value::as_array).into_iter().flatten();
    match value {
        Value::Object(fields) => {
            let is_tagged = |case: &&Value| {
                let tag = case.pointer("/if/properties").and_then(Value::as_object);
                tag.is_some_and(|tag| tag.iter().all(|(name, of)| fields.get(name) == of.get("const")))
            };
            let of_tag = list("allOf").find(is_tagged).and_then(|case| case.get("then"));
            // A word, or an object.
            let shape = of_tag.into_iter().chain(list("oneOf")).find_map(named).unwrap_or(shape);
            let properties = shape.get("properties").and_then(Value::as_object);
            let shape_of = |name: &str| {
                let property = properties.and_then(|properties| properties.get(name));
                property.or_else(|| shape.get("additionalProperties")).unwrap_or(&Value::Null)
            };
            // With these on both sides, the fields in them are compared.
            let empty = Value::Object(Map::new());
            let is_empty = |shape: &Value| shape.get("default") == Some(&empty);
            let empties = properties.into_iter().flatten().filter(|(_, shape)| is_empty(shape));
            let empties = empties.map(|(name, _)| (name.clone(), empty.clone()));
            let each = fields.iter().filter_map(|(name, value)| {
                let shape = shape_of(name);
                let value = normal(value, shape, shapes);
                let default = shape.get("default").map(|default| normal(default, shape, shapes));
                (default.as_ref() != Some(&value)).then(|| (name.clone(), value))
            });
            empties.chain(each).collect()
        }
        Value::Array(items) => {
            let shape = shape.get("items").unwrap_or(&Value::Null);
            items.iter().map(|item| normal(item, shape, shapes)).collect()
        }
        // Only durations have bounds that no pattern says.
        Value::String(text) if shape.get("$comment").is_some() => {
            duration(text).map_or_else(|| value.clone(), |span| duration_text(span).into())
        }
        Value::String(text) if list("type").any(|of| of == "integer") => {
            count(text).map_or_else(|| value.clone(), Value::from)
        }
        Value::Number(number) if list("type").any(|of| of == "number") => number.to_string().into(),
        _ => value.clone(),
    }
}

/// A count that is written as text: `10k`, `50_000`.
fn count(text: &str) -> Option<u64> {
    let multiples = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let multiple = multiples.iter().find_map(|(letter, times)| Some((text.strip_suffix(*letter)?, *times)));
    let (digits, times) = multiple.unwrap_or((text, 1_u64));
    digits.replace('_', "").parse::<u64>().ok()?.checked_mul(times)
}

/// A value without its secrets.
fn shown(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(shown).collect(),
        Value::Object(fields) => {
            let each = fields.iter().map(|(name, value)| {
                let value = if name.contains("secret") { Value::from("…") } else { shown(value) };
                (name.clone(), value)
            });
            each.collect()
        }
        other => other.clone(),
    }
}

/// The conditions of an exemption without what a client sends to meet them: that may be a secret.
fn closed(value: &Value, is_sent: bool) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| closed(item, is_sent)).collect(),
        Value::Object(fields) => {
            let each = fields.iter().map(|(name, value)| {
                let is_test =
                    ["exact", "in", "prefix", "suffix", "contains", "regex"].contains(&name.as_str());
                let sent = ["header", "cookie", "query", "body_json", "body_form"];
                let of_sent = is_sent || sent.contains(&name.as_str());
                let value = if is_sent && is_test { Value::from("…") } else { closed(value, of_sent) };
                (name.clone(), value)
            });
            each.collect()
        }
        other => other.clone(),
    }
}

/// The object of this name in a list.
fn named_in<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().into_iter().flatten().find(|of| of.get("name").is_some_and(|of| of == name));
    found.unwrap_or(&Value::Null)
}

fn subject(policy: &Policy) -> String {
    let part = |part: &SubjectPart| {
        let hashed = if part.hash.is_some() { " (hashed)" } else { "" };
        format!("{}{hashed}", describe::part(part))
    };
    policy.subject.iter().map(part).collect::<Vec<_>>().join(" and ")
}

/// The limits that are others, and whether they admit more or less. `written` are the lists of them in the files; tiers have none.
fn limits(old: &Policy, new: &Policy, written: [&Value; 2], add: &mut impl FnMut(String)) {
    let [before, now] =
        [old, new].map(|policy| policy.tiers.tiers.iter().flat_map(named).collect::<Vec<_>>());
    for (name, limit, view) in &now {
        let words = words::limit(limit);
        match before.iter().find(|(other, ..)| other == name) {
            None => add(format!("limit {name} is new: {words}")),
            Some((_, other, was)) if limit != other => {
                let [now, before] = [*limit, *other].map(overdraft);
                let how = match (now <= before && fits(view, was), before <= now && fits(was, view)) {
                    _ if unit(limit) != unit(other) => "is another one",
                    (true, true) => "is another one",
                    (true, false) => "is tighter",
                    (false, true) => "is looser",
                    (false, false) => "is tighter in one way, and looser in another",
                };
                add(format!("limit {name} {how}: {words}, and was {}", words::limit(other)));
            }
            Some(_) => {}
        }
        let [was, is] = written.map(|of| named_in(of, name));
        if !was.is_null() && !is.is_null() {
            fields(was, is, OF_LIMIT)
                .iter()
                .for_each(|(field, what)| add(format!("limit {name}: {field}: {what}")));
        }
    }
    for (name, limit, _) in before.iter().filter(|(name, ..)| !now.iter().any(|(other, ..)| other == name)) {
        add(format!("limit {name} is gone: it was {}", words::limit(limit)));
    }
}

/// True if `one` admits no more than `other`, neither at once nor over time.
fn fits(one: &LimitView, other: &LimitView) -> bool {
    let quotas = [one, other].map(|view| u128::from(view.quota(1, 0)));
    let windows = [one, other].map(|view| u128::from(view.window().map_or(1, |window| window.0)));
    let [one_long, other_long] = [quotas[0].saturating_mul(windows[1]), quotas[1].saturating_mul(windows[0])];
    quotas[0] <= quotas[1] && one_long <= other_long
}

/// The kind of unit that a limit counts: units of different kinds are neither more nor fewer.
const fn unit(of: &Limit) -> u8 {
    match of {
        Limit::Concurrency(_) => 1,
        Limit::Distinct(_) => 2,
        _ => 0,
    }
}

/// The units that a limit grants beyond its quota.
fn overdraft(of: &Limit) -> u64 {
    if let Limit::TokenBucket(bucket) = of { bucket.overdraft() } else { 0 }
}

/// All limits in words.
fn all_limits(policy: &Policy) -> String {
    let each = policy
        .tiers
        .tiers
        .iter()
        .flat_map(|tier| named(tier).map(|(name, limit, _)| format!("{name} ({})", words::limit(limit))));
    each.collect::<Vec<_>>().join(", ")
}

fn named(tier: &Tier) -> impl Iterator<Item = (String, &Limit, &LimitView)> {
    let names = tier.plan.names().into_iter().map(str::to_owned);
    names.zip(tier.plan.limits()).zip(&tier.views).map(|((name, limit), view)| (name, limit, view))
}
