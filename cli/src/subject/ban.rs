// SPDX-License-Identifier: Apache-2.0
//! `weir ban` and `weir unban`: bans that an operator imposes, and lifts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::super::store::Place;
use super::super::{Ended, Failure, Found, date, failed, print, source, words};
use super::change::{Change, Expiry, MAX_REASON, Reason, Work};
use super::state::{LimitState, Record, State, record};
use super::{Consent, Selection, Subject, also};
use weir::config::Config;
use weir::limit::{Limit, MAX_WINDOW, MIN_WINDOW, RetryAfter};
use weir::policy::{Mode, Policy, key};
use weir::script::records::{BAN_NAME, BanRecord};
use weir::time::Micros;

/// Whom to ban.
#[derive(Args)]
pub(in super::super) struct BanArguments {
    #[command(flatten)]
    selection: Selection,
    /// Ban the subject of each line of this file: `{}` in the flags of the request is the line, as in `--client '{}'`. If a line is wrong,
    /// no subject is banned. Empty lines, and lines that begin with `#`, are skipped. A longer ban stays. Up to 10,000 subjects, and one
    /// entry of the audit.
    #[arg(long, value_name = "LIST", requires = "policy", conflicts_with = "subject")]
    from: Option<PathBuf>,
    /// The duration of the ban, also if this replaces a longer one. By default it lasts until `weir unban`.
    #[arg(long = "for", value_name = "DURATION", value_parser = span)]
    duration: Option<Micros>,
    /// The reason, for operators and for the audit: up to 1,024 bytes.
    #[arg(long, value_name = "TEXT", default_value = "no reason given", value_parser = reason)]
    reason: String,
    #[command(flatten)]
    consent: Consent,
    /// Print a line for each subject: `{"policy", "subject", "region", "banned", "for_ms", "reason", "scope", "replaced"}`. `scope` lists
    /// the other policies.
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
    let allowed = "allowed is a duration from 1ms to 366d, such as 90s, 15m or 12h";
    date::duration(text, MIN_WINDOW..=MAX_WINDOW, allowed)
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

/// True if a policy that counts a subject enforces its denials: they have one ban.
fn is_enforced(subject: &Subject<'_>) -> bool {
    let percentile = key::percentile(subject.tag());
    let mut all = subject.config.policies.iter().filter(|of| of.counters == subject.policy.counters);
    all.any(|of| of.mode == Mode::Enforce && percentile < of.enforce_percent)
}

fn only<'a>(selection: &Selection, config: &'a Config) -> Result<Subject<'a>, Failure> {
    selection.only(config, has_ban, "it has no `ban`, so weir reads no bans of its subjects")
}

/// The most subjects of a list.
const MAX_LISTED: usize = 10_000;

/// The subjects of the lines of a file, each once.
fn listed<'a>(selection: &Selection, config: &'a Config, list: &Path) -> Result<Vec<Subject<'a>>, Failure> {
    let name = words::file(list);
    let text = source::open(list).and_then(io::read_to_string).map_err(|error| format!("{name}: {error}"))?;
    let lines = (1..).zip(text.trim_start_matches(source::MARK).lines().map(str::trim));
    let mut subjects = BTreeMap::new();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let filled =
            selection.filled(line).ok_or("--from: no flag of the request has {}, as --client '{}'")?;
        let subject = only(&filled, config).map_err(|failure| format!("{name}:{number}: {failure}"))?;
        subjects.insert(subject.key(BAN_NAME), subject);
        if subjects.len() > MAX_LISTED {
            return Err(format!("{name}:{number}: allowed are up to {MAX_LISTED} subjects"));
        }
    }
    Ok(subjects.into_values().collect())
}

/// Asks, and imposes a ban.
pub(in super::super) fn run(arguments: &BanArguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    let subjects = match &arguments.from {
        Some(list) => listed(&arguments.selection, &config, list)?,
        None => vec![only(&arguments.selection, &config)?],
    };
    let Some(first) = subjects.first() else {
        if !arguments.json {
            let policy = arguments.selection.policy().unwrap_or_default();
            writeln!(out, "0 subjects of {}", words::printable(policy)).map_err(failed)?;
        }
        return Ok(Found::Nothing);
    };
    let mut redis = arguments.place.connect()?;
    let is_list = arguments.from.is_some();
    let shown = match subjects.len() {
        1 => first.shown(),
        count => format!("{count} subjects of {}", first.policy.name),
    };
    let how_long = match arguments.duration {
        Some(span) if is_list => format!("for at least {}", words::span(span)),
        Some(span) => format!("for {}", words::span(span)),
        None => String::from("until it is lifted"),
    };
    let replaces_one = !is_list && State::read(first, &mut redis)?.rest_of_ban() != RetryAfter::Now;
    let before = if replaces_one { record(&mut redis, &first.key(BAN_NAME))? } else { None };
    let replaced = before.as_ref().map(replaced);
    let replaces = replaced.as_ref().map_or_else(String::new, |ban| format!(" This replaces {ban}."));
    let scope: Vec<_> = config.closed_with(&first.policy.counters).collect();
    let also = also(&scope);
    let shadow = match subjects.iter().filter(|subject| !is_enforced(subject)).count() {
        0 => String::new(),
        all if all == subjects.len() => {
            format!(" Policy {} is in shadow for it: no request is rejected.", first.policy.name)
        }
        some => format!(
            " Policy {} is in shadow for {some} of them: their requests are not rejected.",
            first.policy.name
        ),
    };
    let question = format!("Deny all requests of {shown} {how_long}{also}?{replaces}{shadow}");
    if !arguments.consent.ask(&question)? {
        return Ok(Found::Something);
    }
    let keys: Vec<Vec<u8>> = subjects.iter().map(|subject| subject.key(BAN_NAME)).collect();
    let expires = if is_list { Expiry::AtLeast } else { Expiry::Millis };
    let expiry = arguments.duration.map_or(Expiry::Never, |span| expires(span.as_millis_ceil()));
    let instead = replaced.map_or_else(String::new, |ban| format!(", instead of {ban}"));
    let change = Change {
        action: "ban",
        work: Work::Set(&keys, arguments.reason.as_bytes(), expiry),
        expected: None,
        what: &if is_list { format!("{how_long}: {shown}") } else { format!("{how_long}{instead}") },
        before: before.as_ref().map(|before| before.value.as_slice()),
        reason: Some(&arguments.reason),
    };
    change.make(first, &mut redis)?;
    // The filter's script says whether it takes effect.
    if State::read(first, &mut redis)?.rest_of_ban() == RetryAfter::Now {
        return Err(format!("{shown}: the ban was written, and weir's script does not see it").into());
    }
    let in_json = |subject: &Subject<'_>| {
        words::json_line(&json!({
            "policy": subject.policy.name,
            "subject": subject.shown(),
            "region": subject.region(),
            "banned": true,
            "for_ms": arguments.duration.map(Micros::as_millis_ceil),
            "reason": arguments.reason,
            "scope": scope,
            "replaced": before.as_ref().map(|ban| json!({
                "text": String::from_utf8_lossy(&ban.value),
                "rest_ms": ban.expires.map(Micros::as_millis_ceil),
            })),
        }))
    };
    let text = if arguments.json {
        subjects.iter().map(in_json).collect()
    } else {
        format!("{shown}: banned {how_long}{also}{instead}. {}{shadow}\n", first.delay())
    };
    print(&text, out)
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
            BanRecord::Imposed(text) => {
                format!("that an operator imposed ({})", String::from_utf8_lossy(&text))
            }
        };
        if !arguments.consent.ask(&format!("Lift the ban of {shown} {what}?"))? {
            return Ok(Found::Something);
        }
        let change = Change {
            action: "unban",
            work: Work::Delete(core::slice::from_ref(&key)),
            expected: Some(&ban.value),
            what: &format!("the ban {what}"),
            before: Some(&ban.value),
            reason: arguments.reason.text(),
        };
        if !change.make(&subject, &mut redis)? {
            return Err(format!("{shown}: its ban has changed since it was read: look, and try again").into());
        }
    }
    let text = if arguments.json {
        words::json_line(
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
    print(&text, out)
}

/// The ban that a subject has, in words.
fn replaced(ban: &Record) -> String {
    let by = ban.banned_by();
    match ban.expires {
        Some(rest) => format!("a ban for another {} ({by})", words::span(rest)),
        None => format!("a ban until it is lifted ({by})"),
    }
}
