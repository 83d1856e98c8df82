// SPDX-License-Identifier: Apache-2.0
//! `weir usage`: how much of their limits subjects use now; with `--from`, what they used then. The filter's script says what each limit
//! has left.

mod journal;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;

use clap::Args;
use serde_json::{Value, json};

use super::region::counted_here;
use super::scan::{pattern, progress, scan};
use super::store::{Place, Redis};
use super::subject::{Selection, State, Subject, policy_named};
use super::{Ended, Failure, Found, date, failed, print, tell, words};
use weir::config::Config;
use weir::limit::Limit;
use weir::policy::key::tag_of;
use weir::time::Micros;

/// The most keys that are looked at.
pub(super) const MOST_KEYS: usize = 100_000;

/// The number of subjects of a policy that are printed, unless `--top` says otherwise.
const TOP: u32 = 20;

/// Whose usage.
#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    /// Print the usage from this time on, from the usage journal: a day such as 2026-11-01, from 0:00 UTC, or a time such as
    /// 2026-11-01T12:00:00Z. If it is inside an interval of the journal, the command fails and names the interval.
    #[arg(long, value_name = "TIME", value_parser = date::time)]
    from: Option<Micros>,
    /// Only usage before this time.
    #[arg(long, value_name = "TIME", value_parser = date::time, requires = "from")]
    to: Option<Micros>,
    /// Print each interval of the usage journal separately.
    #[arg(long, requires = "from")]
    each: bool,
    /// Print so many subjects of each policy. By default 20; with `--from` and `--json` or `--csv` all. `(all others)` are subjects beyond
    /// an interval's `max_subjects`: in JSON and CSV the subject `{policy}`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    top: Option<u32>,
    /// Print a line for each subject and limit: `{"policy", "subject", "limit", "used", "quota", "remaining", "used_percent", "reset_ms"}`.
    /// `remaining` of a subject in debt is below 0. With `--from`: `{"from", "to", "policy", "subject", "units", "requests"}`.
    #[arg(long)]
    json: bool,
    /// Print the same as CSV (RFC 4180).
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    place: Place,
}

/// The usage of a limit by a subject.
pub(super) struct Used {
    pub policy: String,
    pub subject: String,
    /// By its name in the key.
    pub limit: String,
    pub units: u64,
    pub left: i64,
    pub quota: u64,
    /// The time until the limit is full again; for permits the longest time.
    pub reset: Micros,
    /// True if the units are permits. A worker renews those of requests that run.
    are_permits: bool,
}

impl Used {
    pub fn percent(&self) -> u64 {
        self.units.saturating_mul(100).checked_div(self.quota).unwrap_or(0)
    }

    fn json(&self) -> Value {
        json!({
            "policy": self.policy,
            "subject": self.subject,
            "limit": self.limit,
            "used": self.units,
            "quota": self.quota,
            "remaining": self.left,
            "used_percent": self.percent(),
            "reset_ms": self.reset.as_millis_ceil(),
        })
    }
}

/// Returns the usage of each limit of a subject. A subject in debt uses more than the limit.
pub(super) fn of(subject: &Subject<'_>, redis: &mut Redis) -> Result<Vec<Used>, Failure> {
    let state = State::read(subject, redis)?;
    let limits = state.tiers.iter().flat_map(|tier| &tier.limits);
    let used = |quota: u64, left: i64| {
        u64::try_from(i128::from(quota).saturating_sub(left.into())).unwrap_or_default()
    };
    let limits = limits.map(|limit| Used {
        policy: subject.policy.name.clone(),
        subject: subject.shown(),
        limit: limit.name.clone(),
        units: used(limit.in_force.quota(), limit.left),
        left: limit.left,
        quota: limit.in_force.quota(),
        reset: limit.reset,
        are_permits: matches!(limit.in_force, Limit::Concurrency(_)),
    });
    Ok(limits.collect())
}

/// Returns the usage of all subjects of these policies; and `true` if some are missing, because there are more than [`MOST_KEYS`] keys.
pub(super) fn of_all(
    config: &Config,
    wanted: Option<&str>,
    connect: impl FnOnce() -> Result<Redis, Failure>,
) -> Result<(Vec<Used>, bool), Failure> {
    let policies = match wanted {
        Some(name) => vec![policy_named(config, name)?],
        None => config.policies.iter().collect(),
    };
    let here = counted_here(config, policies, |policy| policy)?;
    let counted: BTreeSet<&str> = here.iter().map(|policy| policy.counters.as_str()).collect();
    let patterns: Vec<_> =
        counted.iter().map(|name| pattern(&config.store.key_prefix, Some(name), "*")).collect();
    let mut redis = connect()?;
    let found = scan(&mut redis, &patterns, MOST_KEYS)?;
    let tags: BTreeSet<&[u8]> = found.keys.iter().filter_map(|key| tag_of(key)).collect();
    let bar = progress(u64::try_from(tags.len()).unwrap_or(u64::MAX), "subjects");
    let mut all = Vec::new();
    for tag in tags {
        bar.inc(1);
        let is_here = |policy: &weir::policy::Policy| here.iter().any(|one| one.name == policy.name);
        if let Some(subject) = Subject::of_tag(config, &words::shown(tag), is_here) {
            all.extend(of(&subject, &mut redis)?);
        }
    }
    bar.finish_and_clear();
    for policy in here.iter().filter(|policy| all.iter().any(|used| used.policy == policy.name)) {
        if let Some(scale) = &policy.scale {
            tell(&format!(
                "weir: policy {} has a `scale`: its limits are those of the default, {}. With a request, such as `-H NAME:VALUE`, they are the \
                 subject's own",
                policy.name, scale.default
            ));
        }
    }
    Ok((all, found.is_partial))
}

/// Says that only some of the subjects were looked at.
pub(super) fn tell_partial() {
    tell(&format!(
        "weir: only {MOST_KEYS} keys of these policies were looked at: choose one policy with --policy"
    ));
}

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    if let Some(from) = arguments.from {
        return print(&journal::text(arguments, from, &config)?, out);
    }
    let (all, is_partial) = if arguments.selection.is_open() {
        let (mut all, is_partial) =
            of_all(&config, arguments.selection.policy(), || arguments.place.connect())?;
        all.retain(|used| used.units > 0);
        (top(all, arguments.top.unwrap_or(TOP)), is_partial)
    } else {
        let subjects = arguments.selection.find_here(&config)?;
        let mut redis = arguments.place.connect()?;
        let mut all = Vec::new();
        for subject in &subjects {
            all.extend(of(subject, &mut redis)?);
        }
        (all, false)
    };
    let text = if arguments.json {
        all.iter().map(|used| words::json_line(&used.json())).collect()
    } else if arguments.csv {
        csv(&HEAD, all.iter().map(Used::json))
    } else {
        table(&all)
    };
    out.write_all(text.as_bytes()).map_err(failed)?;
    if is_partial {
        out.flush().map_err(failed)?;
        tell_partial();
    }
    Ok(Found::Nothing)
}

/// The subjects of each policy that use the most units of one of its limits, the most first, with all their limits.
fn top(mut all: Vec<Used>, most: u32) -> Vec<Used> {
    let of = |used: &Used| (used.policy.clone(), used.subject.clone());
    let mut largest = std::collections::BTreeMap::new();
    for used in &all {
        let units: &mut u64 = largest.entry(of(used)).or_default();
        *units = used.units.max(*units);
    }
    let mut ranked: Vec<_> = largest.into_iter().collect();
    ranked.sort_by(|(a, more), (b, less)| (&a.0, Reverse(more), &a.1).cmp(&(&b.0, Reverse(less), &b.1)));
    let mut places = std::collections::BTreeMap::new();
    let mut in_policy: (String, u32) = (String::new(), 0);
    for (place, (of, _)) in ranked.into_iter().enumerate() {
        let count = if in_policy.0 == of.0 { in_policy.1.saturating_add(1) } else { 1 };
        in_policy = (of.0.clone(), count);
        if count <= most {
            places.insert(of, place);
        }
    }
    all.retain(|used| places.contains_key(&of(used)));
    all.sort_by_key(|used| (places.get(&of(used)).copied(), used.limit.clone()));
    all
}

const HEAD: [&str; 8] =
    ["policy", "subject", "limit", "used", "quota", "remaining", "used_percent", "reset_ms"];

/// Objects as records of CSV (RFC 4180) behind a header, which names their fields.
fn csv(head: &[&str], records: impl Iterator<Item = Value>) -> String {
    let field = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text.contains([',', '"', '\r', '\n']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text
        }
    };
    let record = |of: Value| {
        let fields: Vec<String> = head.iter().filter_map(|name| of.get(name)).map(field).collect();
        fields.join(",") + "\r\n"
    };
    head.join(",") + "\r\n" + &records.map(record).collect::<String>()
}

fn table(all: &[Used]) -> String {
    if all.is_empty() {
        return String::from("no subject uses any of its limits\n");
    }
    let head = ["POLICY", "SUBJECT", "LIMIT", "USED", "OF", "SHARE", "FULL AGAIN"].map(String::from);
    let row = |used: &Used| {
        let again = match used.reset {
            Micros::ZERO => String::from("-"),
            _ if used.are_permits => String::from("when its requests end"),
            rest => format!("in {}", words::span(rest)),
        };
        let [policy, subject, limit] = [&used.policy, &used.subject, &used.limit].map(String::clone);
        let [units, quota] = [used.units, used.quota].map(|of| of.to_string());
        [policy, subject, limit, units, quota, format!("{} %", used.percent()), again]
    };
    let rows: Vec<[String; 7]> = core::iter::once(head).chain(all.iter().map(row)).collect();
    words::table(&rows, &[3, 4, 5])
}
