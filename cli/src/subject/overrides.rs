// SPDX-License-Identifier: Apache-2.0
//! `weir override`: a subject's own counts.

use std::io;
use std::rc::Rc;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::super::store::{Place, Redis};
use super::super::{Ended, Failure, Found, print, words};
use super::ban::span;
use super::change::{Change, Expiry, Reason, Work};
use super::state::{Record, State, record, whole};
use super::{Consent, Selection, Subject};
use weir::config::Config;
use weir::limit::Limit;
use weir::policy::Policy;
use weir::script::Overrides;
use weir::script::records::OVERRIDE_NAME;
use weir::time::Micros;

/// The commands for a subject's own limits.
#[derive(Subcommand)]
pub(in super::super) enum Arguments {
    /// Print the limits of a subject's own.
    Get(Get),
    /// Give a subject limits of its own: other overrides of the subject stay.
    Set(Set),
    /// Remove the limits of a subject's own: all of them, or the named ones.
    Unset(Unset),
}

/// Whose counts.
#[derive(Args)]
pub(in super::super) struct Get {
    #[command(flatten)]
    selection: Selection,
    /// Print a line: `{"policy", "subject", "region", "override", "limits"}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Whose counts, and which.
#[derive(Args)]
pub(in super::super) struct Set {
    #[command(flatten)]
    selection: Selection,
    /// The limit's name in the key (`free/minute.limit=20` with tiers), and a number of its algorithm: `limit`; of a `token_bucket`
    /// `refill`, `capacity` and `overdraft`; of a `leaky_bucket` `rate` and `burst`.
    #[arg(required = true, value_name = "LIMIT.COUNT=N")]
    counts: Vec<String>,
    /// The duration of all overrides of the subject. By default they last as long as the existing ones, or until you remove them.
    #[arg(long = "for", value_name = "DURATION", value_parser = span)]
    duration: Option<Micros>,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
    /// Print a line: `{"policy", "subject", "region", "override", "limits"}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Whose counts, and which of them.
#[derive(Args)]
pub(in super::super) struct Unset {
    #[command(flatten)]
    selection: Selection,
    /// Only the counts of these limits.
    #[arg(value_name = "LIMIT")]
    limits: Vec<String>,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
    /// Print a line: `{"policy", "subject", "region", "override", "limits"}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

pub(in super::super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    match arguments {
        Arguments::Get(of) => get(of, out),
        Arguments::Set(of) => set(of, out),
        Arguments::Unset(of) => unset(of, out),
    }
}

/// The subject of a policy with overrides. If several count the request, the one that has all `limits`.
fn only<'a>(selection: &Selection, config: &'a Config, limits: &[&str]) -> Result<Subject<'a>, Failure> {
    let reads =
        |policy: &Policy| policy.tiers.tiers.iter().any(|tier| tier.plan.overrides() == Overrides::Read);
    let has = |policy: &Policy| {
        let names: Vec<&str> = policy.tiers.tiers.iter().flat_map(|tier| tier.plan.names()).collect();
        reads(policy) && limits.iter().all(|limit| names.contains(limit))
    };
    let lacks = "it has not \"overrides\": true, so weir reads no overrides of its subjects";
    selection.only(config, has, lacks).or_else(|_| selection.only(config, reads, lacks))
}

fn get(arguments: &Get, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    let subject = only(&arguments.selection, &config, &[])?;
    let mut redis = arguments.place.connect()?;
    show(&subject, &mut redis, arguments.json, "", out)
}

/// Prints the counts, as the filter's script uses them.
fn show(
    subject: &Subject<'_>,
    redis: &mut Redis,
    as_json: bool,
    end: &str,
    out: &mut impl io::Write,
) -> Result<Found, Ended> {
    let state = State::read(subject, redis)?;
    let text = if as_json {
        let Value::Object(mut all) = state.json(subject) else { return Ok(Found::Nothing) };
        all.retain(|name, _| {
            matches!(name.as_str(), "policy" | "subject" | "region" | "override" | "limits")
        });
        words::json_line(&Value::Object(all))
    } else {
        let limits = state.tiers.iter().flat_map(|tier| &tier.limits);
        let limits =
            limits.map(|limit| format!("  limit {}: {}\n", limit.name, words::limit(&limit.in_force)));
        let own = state.override_text(subject).into_iter().map(|line| format!("{line}\n"));
        let lines: String = own.chain(limits).collect();
        format!("policy {}, subject {}\n{lines}{end}", subject.policy.name, subject.shown())
    };
    print(&text, out)
}

fn set(arguments: &Set, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    let limits: Vec<&str> = arguments.counts.iter().map(|text| limit_of(text)).collect();
    let subject = only(&arguments.selection, &config, &limits)?;
    let counts =
        arguments.counts.iter().map(|text| Count::parse(text, &subject)).collect::<Result<Vec<_>, _>>()?;
    for (place, count) in counts.iter().enumerate() {
        let is_same = |other: &Count| (&other.limit, other.name) == (&count.limit, count.name);
        if counts.iter().take(place).any(is_same) {
            return Err(format!("{}.{} has two numbers: allowed is one", count.limit, count.name).into());
        }
    }
    let mut redis = arguments.place.connect()?;
    let before = record(&mut redis, &subject.key(OVERRIDE_NAME))?;
    let mut value = read(before.as_ref());
    for count in &counts {
        let limit = value.entry(&count.limit).or_insert_with(|| json!({}));
        if !limit.is_object() {
            *limit = json!({});
        }
        if let Value::Object(limit) = limit {
            limit.insert(count.name.to_owned(), count.value.into());
        }
    }
    check(&subject, &value)?;
    let how_long = match (arguments.duration, before.as_ref().map(|before| before.expires)) {
        (Some(span), _) | (None, Some(Some(span))) => format!("for {}", words::span(span)),
        (None, _) => String::from("until it is removed"),
    };
    let new = Value::Object(value.clone()).to_string();
    let was = match &before {
        Some(before) => format!("; now it has {}", words::shown(&before.value)),
        None => String::new(),
    };
    let question = format!("Give {} the counts {new} {how_long}{was}?", subject.shown());
    if !arguments.consent.ask(&question)? {
        return Ok(Found::Something);
    }
    write(
        &subject,
        &mut redis,
        before.as_ref(),
        (&new, arguments.duration),
        ("override set", &arguments.reason),
    )?;
    // The filter's script says whether it takes effect.
    let state = State::read(&subject, &mut redis)?;
    let mut limits = state.tiers.iter().flat_map(|tier| &tier.limits);
    if let Some(limit) = limits.find(|limit| {
        with_own(&limit.configured, value.get(&limit.name)).ok().as_ref() != Some(&limit.in_force)
    }) {
        let key = subject.key(OVERRIDE_NAME);
        let now = record(&mut redis, &key)?.map(|record| record.value).unwrap_or_default();
        if now != new.as_bytes() {
            return Err(format!(
                "{}: the counts were written, and somebody else has changed them since: now they are {}",
                subject.shown(),
                if now.is_empty() { String::from("none") } else { words::shown(&now) }
            )
            .into());
        }
        return Err(format!(
            "{}: the counts were written, and weir's script uses others for {}: {}",
            subject.shown(),
            limit.name,
            words::limit(&limit.in_force)
        )
        .into());
    }
    show(&subject, &mut redis, arguments.json, &format!("{}\n", subject.delay()), out)
}

fn unset(arguments: &Unset, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    let limits: Vec<&str> = arguments.limits.iter().map(String::as_str).collect();
    let subject = only(&arguments.selection, &config, &limits)?;
    let mut redis = arguments.place.connect()?;
    let before = record(&mut redis, &subject.key(OVERRIDE_NAME))?;
    let Some(found) = &before else {
        return show(&subject, &mut redis, arguments.json, "", out);
    };
    let mut value = read(before.as_ref());
    for limit in &arguments.limits {
        if value.remove(limit).is_none() {
            let has = value.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(
                format!("{limit:?}: the subject has no counts of its own for it, but for: {has}").into()
            );
        }
    }
    let is_empty = arguments.limits.is_empty() || value.is_empty();
    let new = if is_empty { String::new() } else { Value::Object(value).to_string() };
    let rest = if is_empty { String::from("none") } else { new.clone() };
    let question = format!(
        "Take from {} the counts {}, so that it has {rest}?",
        subject.shown(),
        words::shown(&found.value)
    );
    if !arguments.consent.ask(&question)? {
        return Ok(Found::Something);
    }
    write(&subject, &mut redis, before.as_ref(), (&new, None), ("override unset", &arguments.reason))?;
    show(&subject, &mut redis, arguments.json, &format!("{}\n", subject.delay()), out)
}

/// The limit in `LIMIT.COUNT=N`.
fn limit_of(text: &str) -> &str {
    let path = text.split('=').next().unwrap_or_default();
    path.rsplit_once('.').map_or(path, |(limit, _)| limit)
}

struct Count {
    limit: String,
    name: &'static str,
    value: u64,
}

impl Count {
    fn parse(text: &str, subject: &Subject<'_>) -> Result<Self, Failure> {
        let wrong = |why: String| format!("{text:?}: {why}");
        let parts = text.split_once('=').and_then(|(path, value)| Some((path.rsplit_once('.')?, value)));
        let allowed = || {
            wrong(String::from("allowed is LIMIT.COUNT=N, such as minute.limit=1000; N is a whole number"))
        };
        let Some(((limit, count), value)) = parts else { return Err(allowed()) };
        // Of all tiers: the override is for each that the subject may have.
        let tiers = subject.policy.tiers.tiers.iter();
        let limits: Vec<(&str, &Limit)> =
            tiers.flat_map(|tier| tier.plan.names().into_iter().zip(tier.plan.limits())).collect();
        let Some((_, found)) = limits.iter().find(|(name, _)| *name == limit) else {
            let names: Vec<&str> = limits.iter().map(|(name, _)| *name).collect();
            return Err(wrong(format!("the limits are {}", names.join(", "))));
        };
        let Some(name) = found.count_names().iter().find(|name| **name == count) else {
            return Err(wrong(format!("the counts of limit {limit} are {}", found.count_names().join(", "))));
        };
        let value = value.parse().map_err(|_| allowed())?;
        Ok(Self { limit: limit.to_owned(), name, value })
    }
}

/// The counts of a key; none if it has no object.
fn read(of: Option<&Record>) -> Map<String, Value> {
    let value = of.and_then(|record| serde_json::from_slice(&record.value).ok());
    if let Some(Value::Object(value)) = value { value } else { Map::new() }
}

/// The limit with a subject's own counts. Those that the script ignores because of their name or type are ignored.
fn with_own(limit: &Limit, own: Option<&Value>) -> Result<Limit, weir::limit::Invalid> {
    let mut counts = limit.counts();
    for (count, name) in counts.iter_mut().zip(limit.count_names()) {
        if let Some(value) = own.and_then(|own| own.get(name)).and_then(whole) {
            *count = value;
        }
    }
    limit.with_counts(counts)
}

fn check(subject: &Subject<'_>, value: &Map<String, Value>) -> Result<(), Failure> {
    let is_other = |tier: &usize| subject.checks.iter().all(|check| check.tier != *tier);
    let others = subject.policy.tiers.tiers.iter().enumerate().filter(|(tier, _)| is_other(tier));
    let others = others.map(|(_, tier)| Rc::clone(&tier.plan));
    for plan in subject.plans().map(|(_, plan)| plan).chain(others) {
        for (name, limit) in plan.names().into_iter().zip(plan.limits()) {
            with_own(limit, value.get(name)).map_err(|invalid| format!("limit {name}: {invalid}"))?;
        }
    }
    Ok(())
}

/// Writes the override, unless it has changed since it was read.
fn write(
    subject: &Subject<'_>,
    redis: &mut Redis,
    before: Option<&Record>,
    (new, duration): (&str, Option<Micros>),
    (action, reason): (&str, &Reason),
) -> Result<(), Failure> {
    let key = subject.key(OVERRIDE_NAME);
    let expiry = duration.map_or(Expiry::Keep, |span| Expiry::Millis(span.as_millis_ceil()));
    let what = match (new, duration) {
        ("", _) => String::from("none"),
        (new, None) => new.to_owned(),
        (new, Some(span)) => format!("{new} for {}", words::span(span)),
    };
    let change = Change {
        action,
        work: if new.is_empty() {
            Work::Delete(core::slice::from_ref(&key))
        } else {
            Work::Set(core::slice::from_ref(&key), new.as_bytes(), expiry)
        },
        expected: Some(before.map(|before| before.value.as_slice()).unwrap_or_default()),
        what: &what,
        before: before.map(|before| before.value.as_slice()),
        reason: reason.text(),
    };
    if change.make(subject, redis)? {
        return Ok(());
    }
    Err(format!("{}: its counts have changed since they were read: look, and try again", subject.shown()))
}
