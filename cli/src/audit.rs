// SPDX-License-Identifier: Apache-2.0
//! `weir audit`: the changes that operators have made with this command, with the person, the time and the reason.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::journal::{Id, backwards, prefix};
use super::region::InRegion;
use super::store::{Entry, Place};
use super::subject::change::AUDIT;
use super::{Ended, Found, date, print, words};

/// The changes to show.
#[derive(Args)]
pub(super) struct Arguments {
    /// The configuration, for its `store.key_prefix`.
    file: Option<PathBuf>,
    /// The `store.key_prefix`, without a configuration.
    #[arg(long, default_value = "weir", value_parser = prefix, conflicts_with = "file")]
    prefix: String,
    #[command(flatten)]
    in_region: InRegion,
    /// Only of this policy.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Only of this subject, as Redis has it: `{policy|subject}`.
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// Read so many entries, the newest ones.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
    /// Print a line for each change: `{"id", "time", "action", "policy", "subject", "by", "from", "change", "before", "reason"}`, without
    /// fields that the entry lacks. `before` is the previous ban or override. A failed change is `{"id", "time", "failed", "error"}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Prints the changes, oldest first.
pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let prefix = match &arguments.file {
        Some(file) => arguments.in_region.load(file)?.store.key_prefix,
        None => {
            arguments.in_region.without_file("FILE")?;
            arguments.prefix.clone()
        }
    };
    let key = format!("{prefix}:{AUDIT}");
    let mut redis = arguments.place.connect()?;
    let mut entries: Vec<(Id, Entry)> = Vec::new();
    let is = |entry: &Entry, name: &str, wanted: &Option<String>| {
        wanted.as_ref().is_none_or(|wanted| entry.get(name) == Some(wanted.as_bytes()))
    };
    backwards(&mut redis, key.as_bytes(), usize::try_from(arguments.count).unwrap_or(usize::MAX), |entry| {
        // It names the entry of the change that failed, which comes later here.
        let is_failure = entry.get("failed").is_some();
        if is_failure || is(&entry, "policy", &arguments.policy) && is(&entry, "subject", &arguments.subject)
        {
            entries.push((Id::of(&entry)?, entry));
        }
        Ok(true)
    })?;
    entries.reverse();
    if arguments.policy.is_some() || arguments.subject.is_some() {
        let kept: BTreeSet<String> = entries.iter().map(|(_, entry)| entry.id.clone()).collect();
        let is_kept = |of: &[u8]| core::str::from_utf8(of).is_ok_and(|of| kept.contains(of));
        entries.retain(|(_, entry)| entry.get("failed").is_none_or(is_kept));
    }
    let text = if arguments.json { json(&entries) } else { table(&entries) };
    print(&text, out)
}

fn json(entries: &[(Id, Entry)]) -> String {
    let line = |(id, entry): &(Id, Entry)| {
        let mut object = Map::new();
        object.insert("id".into(), entry.id.as_str().into());
        object.insert("time".into(), date::text(id.written_at()).into());
        for (name, value) in &entry.fields {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            object.insert(text(name), text(value).into());
        }
        words::json_line(&Value::Object(object))
    };
    entries.iter().map(line).collect()
}

/// A row for each change. An entry about a change that failed names the entry of that change.
fn table(entries: &[(Id, Entry)]) -> String {
    if entries.is_empty() {
        return String::from("no changes\n");
    }
    let head = ["TIME", "BY", "FROM", "ACTION", "SUBJECT", "CHANGE", "REASON"].map(String::from);
    let row = |(id, entry): &(Id, Entry)| {
        let shown = |name: &str| entry.get(name).map(words::written).unwrap_or_else(|| String::from("-"));
        let (action, change) = match entry.get("failed") {
            Some(of) => {
                let change = entries.iter().find(|(_, other)| other.id.as_bytes() == of);
                let when = change.map_or_else(|| words::shown(of), |(id, _)| date::text(id.written_at()));
                (String::from("failed"), format!("that of {when}: {}", shown("error")))
            }
            None => (shown("action"), shown("change")),
        };
        let [by, from, subject, reason] = ["by", "from", "subject", "reason"].map(shown);
        [date::text(id.written_at()), by, from, action, subject, change, reason]
    };
    let rows: Vec<[String; 7]> = core::iter::once(head).chain(entries.iter().map(row)).collect();
    words::table(&rows, &[])
}
