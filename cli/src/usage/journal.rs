// SPDX-License-Identifier: Apache-2.0
//! `weir usage --from`: what subjects used in a span of time, from the usage journal.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Arguments, TOP, csv};
use crate::store::Redis;
use crate::subject::policy_named;
use crate::{Ended, Failure, date, tell, words};
use weir::config::{Config, UsageJournal};
use weir::policy::Policy;
use weir::script::usage::{Interval, Used, index_key, others};
use weir::time::Micros;

/// The usage of one subject.
struct Row {
    /// One interval, or all of the span of time.
    from: Micros,
    to: Micros,
    policy: String,
    /// Its tag.
    subject: Vec<u8>,
    used: Used,
}

impl Row {
    fn is_of_others(&self) -> bool {
        others(&self.subject) == self.subject
    }
}

/// Returns the usage from this time on, as text.
pub(super) fn text(arguments: &Arguments, from: Micros, config: &Config) -> Result<String, Ended> {
    if let Some(to) = arguments.to.filter(|to| *to <= from) {
        let (from, to) = (date::text(from), date::text(to));
        return Err(Ended::from(format!("--to {to}: allowed is a time after --from {from}")));
    }
    let wanted = Wanted::of(arguments, config)?;
    let mut redis = arguments.place.connect()?;
    let prefix = &config.store.key_prefix;
    let intervals = intervals(&mut redis, prefix, from, arguments.to)?;
    tell_incomplete(config.usage_journal, from);
    if intervals.is_empty() && !config.policies.iter().any(|policy| policy.usage_journal) {
        return Err(Ended::from(String::from(
            "no policy has `usage_journal: true`, and nothing was written for this time",
        )));
    }
    let span =
        (from, arguments.to.unwrap_or_else(|| intervals.iter().map(|of| ends(*of)).max().unwrap_or(from)));
    let mut sums: BTreeMap<(Micros, Micros, Vec<u8>), Used> = BTreeMap::new();
    for interval in intervals {
        let (from, to) = if arguments.each { (begins(interval), ends(interval)) } else { span };
        for [tag, value] in redis.hash(interval.key(prefix).as_bytes())? {
            if let Some(used) = Used::read(&value).filter(|_| wanted.has(&tag)) {
                let sum = sums.entry((from, to, tag)).or_default();
                *sum = sum.plus(used);
            }
        }
    }
    let row = |((from, to, subject), used): ((Micros, Micros, Vec<u8>), Used)| {
        let policy = others(&subject);
        let policy = policy.strip_prefix(b"{").and_then(|name| name.strip_suffix(b"}")).unwrap_or(&policy);
        Row { from, to, policy: words::shown(policy), subject, used }
    };
    let mut rows: Vec<Row> = sums.into_iter().map(row).filter(|row| row.used != Used::default()).collect();
    rows.sort_by(|a, b| {
        let key = |row: &Row| (row.from, row.policy.clone(), Reverse(row.used.units), row.subject.clone());
        key(a).cmp(&key(b))
    });
    let most = arguments.top.or((!arguments.json && !arguments.csv).then_some(TOP));
    let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let policies = rows.chunk_by(|a, b| (a.from, &a.policy) == (b.from, &b.policy));
    let policies = policies.map(|of| of.split_at(of.len().min(most)));
    Ok(if arguments.json {
        policies.flat_map(|(first, _)| first).map(|row| words::json_line(&json(row))).collect()
    } else if arguments.csv {
        let head = ["from", "to", "policy", "subject", "units", "requests"];
        csv(&head, policies.flat_map(|(first, _)| first).map(json))
    } else {
        table(policies, arguments.each)
    })
}

/// Says from which time on the usage journal is complete, if that is later. Each interval expires by itself.
fn tell_incomplete(UsageJournal { interval, keep, .. }: UsageJournal, from: Micros) {
    let oldest = date::now().since(keep);
    let complete = Micros(oldest.0.saturating_sub(oldest.0.checked_rem(interval.0).unwrap_or(0)));
    if from < complete {
        tell(&format!(
            "weir: Redis keeps the usage of an interval for {} (`usage_journal.keep`): it is complete from {} on",
            words::span(keep),
            date::text(complete)
        ));
    }
}

/// The policy and the subjects whose usage is printed.
struct Wanted<'a> {
    policy: Option<&'a Policy>,
    tags: Option<BTreeSet<Vec<u8>>>,
}

impl<'a> Wanted<'a> {
    fn of(arguments: &Arguments, config: &'a Config) -> Result<Self, Failure> {
        let selection = &arguments.selection;
        let policy = selection.policy().map(|name| policy_named(config, name)).transpose()?;
        let tags = match selection.is_open() {
            true => None,
            false => Some(selection.find(config)?.iter().map(|subject| subject.tag().to_vec()).collect()),
        };
        Ok(Self { policy, tags })
    }

    fn has(&self, tag: &[u8]) -> bool {
        let is_of_policy = |policy: &Policy| {
            others(tag)
                .get(1..)
                .is_some_and(|rest| rest.strip_suffix(b"}") == Some(policy.counters.as_bytes()))
        };
        self.tags.as_ref().is_none_or(|tags| tags.contains(tag)) && self.policy.is_none_or(is_of_policy)
    }
}

/// The intervals from one time to another, which none of them may contain.
fn intervals(
    redis: &mut Redis,
    prefix: &str,
    from: Micros,
    to: Option<Micros>,
) -> Result<Vec<Interval>, Failure> {
    let known: Vec<Interval> = redis
        .sorted_set(index_key(prefix).as_bytes())?
        .iter()
        .filter_map(|name| Interval::read(core::str::from_utf8(name).ok()?))
        .collect();
    for (flag, time) in [("--from", Some(from)), ("--to", to)] {
        let Some(time) = time else { continue };
        if let Some(cut) = known.iter().find(|interval| begins(**interval) < time && time < ends(**interval))
        {
            return Err(format!(
                "{flag} {} is within an interval of the usage journal, which begins at {} and ends at {}: choose one of these",
                date::text(time),
                date::text(begins(*cut)),
                date::text(ends(*cut))
            ));
        }
    }
    let is_within =
        |interval: &Interval| begins(*interval) >= from && to.is_none_or(|to| begins(*interval) < to);
    Ok(known.into_iter().filter(is_within).collect())
}

const fn begins(interval: Interval) -> Micros {
    Micros::from_secs(interval.start)
}

const fn ends(interval: Interval) -> Micros {
    Micros::from_secs(interval.start.saturating_add(interval.length))
}

fn json(row: &Row) -> Value {
    json!({
        "from": date::text(row.from),
        "to": date::text(row.to),
        "policy": row.policy,
        "subject": words::shown(&row.subject),
        "units": row.used.units,
        "requests": row.used.requests,
    })
}

/// A row for each of the first subjects of each policy, and one for all others of it.
fn table<'a>(policies: impl Iterator<Item = (&'a [Row], &'a [Row])>, each: bool) -> String {
    let mut rows = vec![["FROM", "POLICY", "SUBJECT", "UNITS", "REQUESTS"].map(String::from)];
    let cells = |row: &Row, subject: String, used: Used| {
        [date::text(row.from), row.policy.clone(), subject, used.units.to_string(), used.requests.to_string()]
    };
    for (first, rest) in policies {
        rows.extend(first.iter().map(|row| {
            let subject = if row.is_of_others() { "(all others)".into() } else { words::shown(&row.subject) };
            cells(row, subject, row.used)
        }));
        if let Some(row) = rest.first() {
            let used = rest.iter().fold(Used::default(), |sum, row| sum.plus(row.used));
            rows.push(cells(row, format!("({} more)", rest.len()), used));
        }
    }
    if rows.len() == 1 {
        return String::from("nothing was used in this time\n");
    }
    if each {
        return words::table(&rows, &[3, 4]);
    }
    let rows: Vec<_> = rows
        .into_iter()
        .map(|[_, policy, subject, units, requests]| [policy, subject, units, requests])
        .collect();
    words::table(&rows, &[2, 3])
}
