// SPDX-License-Identifier: Apache-2.0
//! `weir bans`: the subjects that are banned.

use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::super::journal::prefix;
use super::super::region::{InRegion, counted_here};
use super::super::scan::{pattern, scan};
use super::super::store::Place;
use super::super::{Ended, Found, failed, tell, words};
use super::also;
use super::state::record;
use weir::policy::key::tag_of;
use weir::script::records::{BAN_NAME, BanRecord};
use weir::time::Micros;

/// Whose bans.
#[derive(Args)]
pub(in super::super) struct Arguments {
    /// The configuration: only bans of its policies that have a `ban`, under its `store.key_prefix`.
    file: Option<PathBuf>,
    /// Only in this policy, by the name under which it counts.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// The `store.key_prefix`, without a configuration.
    #[arg(long, default_value = "weir", value_parser = prefix, conflicts_with = "file")]
    prefix: String,
    #[command(flatten)]
    in_region: InRegion,
    /// Print so many, in the order of their keys.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
    /// Print a line for each ban: `{"subject", "by", "text", "rest_ms", "scope"}`. With FILE, `scope` lists the other policies that it is for.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

pub(in super::super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.file.as_ref().map(|file| arguments.in_region.load(file)).transpose()?;
    let (prefix, policies) = match &config {
        None => {
            arguments.in_region.without_file("FILE")?;
            (arguments.prefix.clone(), vec![arguments.policy.clone()])
        }
        Some(config) => {
            let has_ban = config.policies.iter().filter(|policy| {
                policy.tiers.tiers.iter().any(|tier| tier.plan.ban().is_some())
                    && arguments
                        .policy
                        .as_ref()
                        .is_none_or(|name| [&policy.name, &policy.counters].contains(&name))
            });
            let here = counted_here(config, has_ban.collect(), |policy| policy)?;
            let mut names: Vec<_> = here.iter().map(|policy| Some(policy.counters.clone())).collect();
            names.sort_unstable();
            names.dedup();
            if names.is_empty() {
                let which = arguments.policy.as_ref().map_or_else(
                    || String::from("no policy has"),
                    |name| format!("the configuration has no policy {name:?} with"),
                );
                return Err(format!("{which} a `ban`, so weir bans no subject there").into());
            }
            (config.store.key_prefix.clone(), names)
        }
    };
    let mut redis = arguments.place.connect()?;
    let patterns: Vec<_> =
        policies.iter().map(|policy| pattern(&prefix, policy.as_deref(), BAN_NAME)).collect();
    let found = scan(&mut redis, &patterns, usize::try_from(arguments.count).unwrap_or(usize::MAX))?;
    let mut count = 0_usize;
    for key in found.keys.iter().filter(|key| !is_of_replay(key)) {
        // A ban may have ended since.
        let Some(ban) = record(&mut redis, key)? else { continue };
        count = count.saturating_add(1);
        let subject = words::shown(tag_of(key).unwrap_or(key));
        let counters = subject.trim_start_matches('{').split('|').next().unwrap_or_default();
        let scope: Vec<_> = config.iter().flat_map(|config| config.closed_with(counters)).collect();
        let text = if arguments.json {
            words::json_line(&json!({
                "subject": subject,
                "by": if matches!(BanRecord::read(&ban.value), BanRecord::Until(_)) { "weir" } else { "operator" },
                "text": String::from_utf8_lossy(&ban.value),
                "rest_ms": ban.expires.map(Micros::as_millis_ceil),
                "scope": scope,
            }))
        } else {
            let rest = match ban.expires {
                Some(rest) => format!("for another {}", words::span(rest)),
                None => String::from("until it is lifted"),
            };
            format!("{subject} {rest}{}, {}\n", also(&scope), ban.banned_by())
        };
        out.write_all(text.as_bytes()).map_err(failed)?;
    }
    if !arguments.json && count == 0 {
        writeln!(out, "no subject is banned").map_err(failed)?;
    }
    if found.is_partial {
        out.flush().map_err(failed)?;
        let count = arguments.count;
        tell(&format!(
            "weir: there are more bans than {count}: choose a policy with --policy, or raise --count"
        ));
    }
    Ok(Found::Nothing)
}

/// True for a ban within a replay (`{replay-RUN:policy|subject}`), which holds for no request.
fn is_of_replay(key: &[u8]) -> bool {
    let run = tag_of(key).and_then(|tag| tag.strip_prefix(b"{replay-")?.split(|next| *next == b'|').next());
    run.is_some_and(|run| run.contains(&b':'))
}
