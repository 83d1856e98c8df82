// SPDX-License-Identifier: Apache-2.0
//! Which subjects have used most of their limits. Their keys are found by looking through all keys; what is left says the filter's
//! script.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde_json::json;

use super::super::region::counted_here;
use super::super::scan::{pattern, progress, scan};
use super::super::subject::{State, Subject};
use super::super::{Ended, Found, failed, tell, words};
use super::Arguments;
use weir::policy::key::tag_of;

const MOST_KEYS: usize = 100_000;

/// How much of a limit a subject has used.
struct Used {
    percent: u64,
    policy: String,
    subject: String,
    limit: String,
    left: i64,
    quota: u64,
}

/// Looks, and prints those with the largest share.
pub(super) fn run(arguments: &Arguments, file: &Path, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.in_region.load(file)?;
    let is_wanted = |name: &str| arguments.policy.as_ref().is_none_or(|wanted| wanted == name);
    let wanted = config.policies.iter().filter(|policy| is_wanted(&policy.name)).collect();
    let here = counted_here(&config, wanted, |policy| policy)?;
    let counted: BTreeSet<&str> = here.iter().map(|policy| policy.counters.as_str()).collect();
    if counted.is_empty() {
        return Err(format!(
            "--policy: the configuration has no policy {:?}",
            arguments.policy.as_deref().unwrap_or("")
        )
        .into());
    }
    let patterns: Vec<_> =
        counted.iter().map(|name| pattern(&config.store.key_prefix, Some(name), "*")).collect();
    let mut redis = arguments.place.connect()?;
    let found = scan(&mut redis, &patterns, MOST_KEYS)?;
    let tags: BTreeSet<&[u8]> = found.keys.iter().filter_map(|key| tag_of(key)).collect();
    let bar = progress(u64::try_from(tags.len()).unwrap_or(u64::MAX), "subjects");
    let mut all = Vec::new();
    for tag in tags {
        bar.inc(1);
        let Some(subject) = Subject::of_tag(&config, &words::shown(tag), |policy| {
            here.iter().any(|one| one.name == policy.name)
        }) else {
            continue;
        };
        let state = State::read(&subject, &mut redis)?;
        for limit in state.tiers.iter().flat_map(|tier| &tier.limits) {
            let quota = limit.in_force.quota();
            let left = u64::try_from(limit.left).unwrap_or(0);
            let percent = quota.saturating_sub(left).saturating_mul(100).checked_div(quota).unwrap_or(0);
            if percent > 0 {
                all.push(Used {
                    percent,
                    policy: subject.policy.name.clone(),
                    subject: subject.shown(),
                    limit: limit.name.clone(),
                    left: limit.left,
                    quota,
                });
            }
        }
    }
    bar.finish_and_clear();
    all.sort_by(|a, b| {
        (Reverse(a.percent), &a.subject, &a.limit).cmp(&(Reverse(b.percent), &b.subject, &b.limit))
    });
    if all.is_empty() && !arguments.json {
        writeln!(out, "no subject has used any of its limits").map_err(failed)?;
    }
    for used in all.iter().take(arguments.top.into()) {
        let Used { percent, policy, subject, limit, left, quota } = used;
        if arguments.json {
            let line = json!({
                "policy": policy, "subject": subject, "limit": limit, "used_percent": percent, "remaining": left, "quota": quota,
            });
            writeln!(out, "{line}").map_err(failed)?;
        } else {
            writeln!(
                out,
                "{percent:>4} %  {subject}  limit {limit}: {left} of {quota} left (policy {policy})"
            )
            .map_err(failed)?;
        }
    }
    if found.is_partial {
        out.flush().map_err(failed)?;
        tell(&format!(
            "weir: only {MOST_KEYS} keys of these policies were looked at: choose one policy with --policy"
        ));
    }
    Ok(Found::Nothing)
}
