// SPDX-License-Identifier: Apache-2.0
//! `weir hot`: which subjects are denied most, from the journal; or which have used most of their limits, from the limits themselves.

mod used;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::journal::{Id, backwards, denied_at, empty, prefix};
use super::region::InRegion;
use super::store::{Entry, Place, Redis};
use super::{Ended, Failure, Found, date, print, words};
use weir::policy::key;
use weir::time::Micros;

/// The entries of the journal to count.
#[derive(Args)]
pub(super) struct Arguments {
    /// Read so many entries of the journal, the newest ones.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
    /// Only denials within this time before the newest entry: `10m`, `1h`.
    #[arg(long, value_name = "DURATION", value_parser = since)]
    since: Option<Micros>,
    /// Only in this policy.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Print so many subjects.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    top: u16,
    /// Without the journal: print the subjects of this configuration that have used most of their limits. It reads all keys of Redis with
    /// `SCAN`, about 500 at a time, and stops after 100,000 keys of these policies.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["count", "since", "prefix"])]
    used: Option<PathBuf>,
    /// The `store.key_prefix` of the configuration.
    #[arg(long, default_value = "weir", value_parser = prefix)]
    prefix: String,
    /// Print a line for each subject: `{"policy", "subject", "denials", "of", "skipped", "last", "outcome", "limit"}`. A denial without a
    /// subject has `reason` instead. With `--used`: `{"policy", "subject", "limit", "used_percent", "remaining", "quota"}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    in_region: InRegion,
    #[command(flatten)]
    place: Place,
}

fn since(text: &str) -> Result<Micros, String> {
    date::duration(text, Micros(1)..=Micros(u64::MAX), "allowed is a duration such as 90s, 10m or 1h")
}

/// Counts, and prints the subjects with the most.
pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    if let Some(file) = &arguments.used {
        return used::run(arguments, file, out);
    }
    arguments.in_region.without_file("--used FILE")?;
    let journal = format!("{}:{}", arguments.prefix, key::JOURNAL);
    let mut redis = arguments.place.connect()?;
    let count = usize::try_from(arguments.count).unwrap_or(usize::MAX);
    let (policy, since) = (arguments.policy.as_deref(), arguments.since);
    let hot = Hot::of(&mut redis, journal.as_bytes(), count, policy, since)?;
    let text = if arguments.json { hot.json(arguments.top) } else { hot.text(arguments.top, &journal) };
    print(&text, out)
}

/// The denials of the journal, by subject.
#[derive(Default)]
pub(super) struct Hot {
    subjects: HashMap<(Vec<u8>, Vec<u8>), Denied>,
    /// The number of entries counted; `skipped` is the number of denials without an entry.
    pub entries: u64,
    pub skipped: u64,
    /// The journal has entries, perhaps of other policies, or older ones.
    is_there: bool,
    /// The times at which the first and the last of them were denied.
    first: Micros,
    last: Micros,
}

pub(super) struct Denied {
    pub count: u64,
    /// The time of the newest of them, its outcome and its limits.
    pub last: Micros,
    pub outcome: Vec<u8>,
    pub limit: Vec<u8>,
    /// They have a reason in place of a subject: a list denied them, or a part of the subject was missing.
    has_reason: bool,
}

impl Denied {
    /// The field of JSON: a reason has the place of the subject.
    pub const fn field(&self) -> &'static str {
        if self.has_reason { "reason" } else { "subject" }
    }
}

impl Hot {
    /// Counts so many of the newest entries of a journal: those of this policy, and of the last so long before the newest.
    pub fn of(
        redis: &mut Redis,
        journal: &[u8],
        count: usize,
        policy: Option<&str>,
        since: Option<Micros>,
    ) -> Result<Self, Failure> {
        let (mut hot, mut from) = (Self::default(), None);
        backwards(redis, journal, count, |entry| {
            hot.is_there = true;
            let id = Id::of(&entry)?;
            let at = denied_at(&entry, id);
            let from = *from.get_or_insert_with(|| since.map_or(Micros::ZERO, |since| at.since(since)));
            let is_denial = entry.get("outcome") != Some(b"warned");
            let is_of_policy = policy.is_none_or(|policy| entry.get("policy") == Some(policy.as_bytes()));
            if at >= from {
                // They may have been of any policy.
                hot.skipped = hot.skipped.saturating_add(entry.number("skipped").unwrap_or(0));
            }
            if is_denial && is_of_policy && at >= from {
                hot.add(&entry, at);
            }
            // An entry is written after its denial.
            Ok(id.written_at() >= from)
        })?;
        Ok(hot)
    }

    /// Counts an entry; the newest come first.
    fn add(&mut self, entry: &Entry, at: Micros) {
        self.first = if self.entries == 0 { at } else { self.first.min(at) };
        self.last = self.last.max(at);
        self.entries = self.entries.saturating_add(1);
        let policy = entry.get("policy").unwrap_or_default();
        let has_reason = entry.get("subject").is_none();
        let subject = entry.get("subject").or_else(|| entry.get("reason")).unwrap_or_default();
        let bytes = |name: &str| entry.get(name).unwrap_or_default().to_vec();
        let newest = || {
            let (outcome, limit) = (bytes("outcome"), bytes("limit"));
            Denied { count: 0, last: at, outcome, limit, has_reason }
        };
        let denied = self.subjects.entry((policy.to_vec(), subject.to_vec())).or_insert_with(newest);
        denied.count = denied.count.saturating_add(1);
    }

    /// The subjects with the most denials: policy, subject, denials.
    pub fn top(&self, most: usize) -> Vec<(&[u8], &[u8], &Denied)> {
        let each = self.subjects.iter();
        let mut all: Vec<_> =
            each.map(|((policy, subject), denied)| (policy.as_slice(), subject.as_slice(), denied)).collect();
        all.sort_unstable_by(|a, b| b.2.count.cmp(&a.2.count).then_with(|| (a.0, a.1).cmp(&(b.0, b.1))));
        all.truncate(most);
        all
    }

    fn text(&self, top: u16, journal: &str) -> String {
        if self.entries == 0 && self.is_there {
            return format!("no such denials in {journal}\n{}", self.skipped_text());
        }
        if self.entries == 0 {
            return format!(
                "{}. Without it, `weir hot --used FILE` shows who has used most of the limits\n",
                empty(journal)
            );
        }
        let span = words::span(self.last.since(self.first));
        let mut lines = vec![format!(
            "{} denials within {span}, {} to {}",
            self.entries,
            date::text(self.first),
            date::text(self.last)
        )];
        let shown = self.top(top.into());
        for (policy, subject, denied) in &shown {
            let percent = denied.count.saturating_mul(100).checked_div(self.entries).unwrap_or(0);
            let by = if denied.limit.is_empty() {
                String::new()
            } else {
                format!(" by {}", words::shown(&denied.limit))
            };
            lines.push(format!(
                "{:>8} {percent:>3} %  {}  {}{by} (policy {})",
                denied.count,
                words::shown(subject),
                words::shown(&denied.outcome),
                words::shown(policy)
            ));
        }
        let more = self.subjects.len().saturating_sub(shown.len());
        if more > 0 {
            lines.push(format!("and {more} more subjects"));
        }
        lines.into_iter().map(|line| line + "\n").collect::<String>() + &self.skipped_text()
    }

    fn skipped_text(&self) -> String {
        match self.skipped {
            0 => String::new(),
            skipped => format!(
                "{skipped} more denials are not in the journal (skipped), so the shares are those of a sample\n"
            ),
        }
    }

    fn json(&self, top: u16) -> String {
        let line = |(policy, subject, denied): (&[u8], &[u8], &Denied)| {
            let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes));
            words::json_line(&json!({
                "policy": text(policy),
                (denied.field()): text(subject),
                "denials": denied.count,
                "of": self.entries,
                "skipped": self.skipped,
                "last": date::text(denied.last),
                "outcome": text(&denied.outcome),
                "limit": text(&denied.limit),
            }))
        };
        self.top(top.into()).into_iter().map(line).collect()
    }
}
