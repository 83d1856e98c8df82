// SPDX-License-Identifier: Apache-2.0
//! `weir reset`: makes the limits of a subject full again.

use std::io;

use clap::Args;
use redis::Value as Reply;
use serde_json::json;

use super::super::store::Place;
use super::super::{Ended, Found, failed, words};
use super::change::{Change, Reason, Work};
use super::state::State;
use super::{Consent, Selection, Subject};
use weir::limit::RetryAfter;
use weir::script::records::DENIALS_NAME;

/// Whose limits.
#[derive(Args)]
pub(in super::super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    /// Reset only this limit, by its name in the key: `minute`, or with tiers `gold/minute`. Repeat it for several.
    #[arg(long = "limit", value_name = "NAME")]
    limits: Vec<String>,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    consent: Consent,
    /// Print a line for each subject: `{"policy", "subject", "region", "deleted", "banned"}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Asks, and deletes.
pub(in super::super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    let subjects = arguments.selection.find_here(&config)?;
    let plans: Vec<_> = subjects.iter().flat_map(|subject| subject.plans().map(|(_, plan)| plan)).collect();
    let known: Vec<&str> = plans.iter().flat_map(|plan| plan.names()).collect();
    for limit in &arguments.limits {
        if !known.contains(&limit.as_str()) {
            return Err(format!("--limit {limit:?}: the subject has {}", known.join(", ")).into());
        }
    }
    let mut redis = arguments.place.connect()?;
    for subject in &subjects {
        let keys = keys(subject, &arguments.limits);
        let mut existing = Vec::new();
        for key in keys {
            if !matches!(redis.ask(&[b"EXISTS", &key])?, Reply::Int(0)) {
                existing.push(key);
            }
        }
        let names: Vec<String> = existing.iter().map(|key| words::shown(key)).collect();
        let banned = State::read(subject, &mut redis)?.rest_of_ban() != RetryAfter::Now;
        let question = format!("Delete what is counted of {}: {}?", subject.shown(), names.join(", "));
        let deleted = !existing.is_empty() && arguments.consent.ask(&question)?;
        if !deleted && !existing.is_empty() {
            return Ok(Found::Something);
        }
        if deleted {
            let change = Change {
                action: "reset",
                work: Work::Delete(&existing),
                expected: None,
                what: &names.join(" "),
                before: None,
                reason: arguments.reason.text(),
            };
            change.make(subject, &mut redis)?;
        }
        let text = if arguments.json {
            words::json_line(&json!({
                "policy": subject.policy.name,
                "subject": subject.shown(),
                "region": subject.region(),
                "deleted": if deleted { names } else { Vec::new() },
                "banned": banned,
            }))
        } else if deleted {
            let still = if banned { " It is still banned: use `weir unban`." } else { "" };
            format!("{}: limits are full again. {}{still}\n", subject.shown(), subject.delay())
        } else {
            format!("{}: nothing is counted\n", subject.shown())
        };
        out.write_all(text.as_bytes()).map_err(failed)?;
    }
    Ok(Found::Nothing)
}

/// The keys of the limits, and of the denials unless some limits are chosen.
fn keys(subject: &Subject<'_>, limits: &[String]) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for (_, plan) in subject.plans() {
        let names = plan.names().into_iter();
        let names = names.filter(|name| limits.is_empty() || limits.iter().any(|limit| limit == name));
        keys.extend(names.map(|name| subject.key(name)));
        if limits.is_empty() && plan.ban().is_some() {
            keys.push(subject.key(DENIALS_NAME));
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}
