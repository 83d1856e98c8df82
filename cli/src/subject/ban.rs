// SPDX-License-Identifier: Apache-2.0
//! `weir ban` and `weir unban`: bans that an operator imposes, and lifts.

use std::io;

use clap::Args;
use serde_json::json;

use super::super::store::{Place, Redis};
use super::super::{Ended, Failure, Found, failed, words};
use super::change::{Change, Expiry, MAX_REASON, Reason, Work};
use super::inspect::line;
use super::state::{LimitState, State, record};
use super::{Consent, Selection, Subject, also};
use weir::config::{Config, duration};
use weir::limit::{Limit, MAX_WINDOW, MIN_WINDOW, RetryAfter};
use weir::policy::Policy;
use weir::script::records::{BAN_NAME, BanRecord};
use weir::time::Micros;

/// Whom to ban.
#[derive(Args)]
pub(in super::super) struct BanArguments {
    #[command(flatten)]
    selection: Selection,
    /// The duration of the ban. By default it lasts until `weir unban`.
    #[arg(long = "for", value_name = "DURATION", value_parser = span)]
    duration: Option<Micros>,
    /// The reason, for operators and for the audit: up to 1,024 bytes.
    #[arg(long, value_name = "TEXT", default_value = "no reason given", value_parser = reason)]
    reason: String,
    #[command(flatten)]
    consent: Consent,
    /// Print a line: `{"policy", "subject", "region", "banned", "for_ms", "reason", "scope"}`. `scope` lists the other policies.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Whose ban to lift.
#[derive(Args)]
pub(in super::super) struct UnbanArguments {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
    /// Print a line: `{"policy", "subject", "region", "lifted"}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Reads a duration for which a key may live.
pub(super) fn span(text: &str) -> Result<Micros, String> {
    let found = duration(text).filter(|span| (MIN_WINDOW..=MAX_WINDOW).contains(span));
    found.ok_or_else(|| String::from("allowed is a duration from 1ms to 366d, such as 90s, 15m or 12h"))
}

fn reason(text: &str) -> Result<String, String> {
    let fits = (1..=MAX_REASON).contains(&text.len());
    match BanRecord::read(text.as_bytes()) {
        BanRecord::Imposed(_) if fits => Ok(text.to_owned()),
        BanRecord::Imposed(_) => Err(format!("allowed are 1 to {MAX_REASON} bytes")),
        BanRecord::Until(_) => Err(String::from("weir's own bans have such a text: write another")),
    }
}

fn has_ban(policy: &Policy) -> bool {
    policy.tiers.tiers.iter().any(|tier| tier.plan.ban().is_some())
}

fn only<'a>(selection: &Selection, config: &'a Config) -> Result<Subject<'a>, Failure> {
    selection.only(config, has_ban, "it has no `ban`, so weir reads no bans of its subjects")
}

/// Asks, and imposes a ban.
pub(in super::super) fn run(arguments: &BanArguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    let subject = only(&arguments.selection, &config)?;
    let mut redis = arguments.place.connect()?;
    let shown = subject.shown();
    let how_long = match arguments.duration {
        Some(span) => format!("for {}", words::span(span)),
        None => String::from("until it is lifted"),
    };
    let before = match rest(&subject, &mut redis)? {
        RetryAfter::Now => None,
        _ => record(&mut redis, &subject.key(BAN_NAME))?,
    };
    let replaces = before.as_ref().map_or("", |_| " This replaces the ban that it has.");
    let scope: Vec<_> = config.closed_with(&subject.policy.counters).collect();
    let also = also(&scope);
    let question = format!("Deny all requests of {shown} {how_long}{also}?{replaces}");
    if !arguments.consent.ask(&question)? {
        return Ok(Found::Something);
    }
    let (key, text) = (subject.key(BAN_NAME), arguments.reason.as_bytes());
    let expiry = arguments.duration.map_or(Expiry::Never, |span| Expiry::Millis(span.as_millis_ceil()));
    let change = Change {
        action: "ban",
        work: Work::Set(&key, text, expiry),
        expected: None,
        what: &how_long,
        before: before.as_ref().map(|before| before.value.as_slice()),
        reason: Some(&arguments.reason),
    };
    change.make(&subject, &mut redis)?;
    // The filter's script says whether it takes effect.
    if rest(&subject, &mut redis)? == RetryAfter::Now {
        return Err(format!("{shown}: the ban was written, and weir's script does not see it").into());
    }
    let text = if arguments.json {
        line(&json!({
            "policy": subject.policy.name,
            "subject": shown,
            "region": subject.region(),
            "banned": true,
            "for_ms": arguments.duration.map(Micros::as_millis_ceil),
            "reason": arguments.reason,
            "scope": scope,
        }))
    } else {
        format!("{shown}: banned {how_long}{also}. {}\n", subject.delay())
    };
    out.write_all(text.as_bytes()).map_err(failed)?;
    Ok(Found::Nothing)
}

/// Asks, and lifts a ban.
pub(in super::super) fn lift(arguments: &UnbanArguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    let subject = only(&arguments.selection, &config)?;
    let mut redis = arguments.place.connect()?;
    let (shown, key) = (subject.shown(), subject.key(BAN_NAME));
    let found = record(&mut redis, &key)?;
    if let Some(ban) = &found {
        let what = match BanRecord::read(&ban.value) {
            BanRecord::Until(_) => String::from("that weir began"),
            BanRecord::Imposed(text) => format!("that an operator imposed ({})", words::shown(&text)),
        };
        if !arguments.consent.ask(&format!("Lift the ban of {shown} {what}?"))? {
            return Ok(Found::Something);
        }
        let change = Change {
            action: "unban",
            work: Work::Delete(core::slice::from_ref(&key)),
            expected: None,
            what: &format!("the ban {what}"),
            before: Some(&ban.value),
            reason: arguments.reason.text(),
        };
        change.make(&subject, &mut redis)?;
    }
    let text = if arguments.json {
        line(
            &json!({ "policy": subject.policy.name, "subject": shown, "region": subject.region(), "lifted": found.is_some() }),
        )
    } else if found.is_some() {
        let state = State::read(&subject, &mut redis)?;
        let mut limits = state.tiers.iter().flat_map(|tier| &tier.limits);
        // A permit is free when its request ends.
        let denies = |limit: &&LimitState| {
            limit.retry_after != RetryAfter::Now && !matches!(limit.in_force, Limit::Concurrency(_))
        };
        let still = limits.find(denies).map_or_else(String::new, |limit| {
            format!(
                " Its limit {} still denies it: use `weir reset`, or it may soon be banned again.",
                limit.name
            )
        });
        format!("{shown}: the ban is lifted. {}{still}\n", subject.delay())
    } else {
        format!("{shown}: it is not banned\n")
    };
    out.write_all(text.as_bytes()).map_err(failed)?;
    Ok(Found::Nothing)
}

/// The remaining time of the subject's ban, as the filter's script says.
fn rest(subject: &Subject<'_>, redis: &mut Redis) -> Result<RetryAfter, Failure> {
    let state = State::read(subject, redis)?;
    Ok(state.tiers.first().map_or(RetryAfter::Now, |tier| tier.outcome.ban))
}
