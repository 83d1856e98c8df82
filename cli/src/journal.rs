// SPDX-License-Identifier: Apache-2.0
//! `weir journal`: prints the denials and warnings that weir has written to the journal, and those that it writes from now on.

use std::io;

use clap::Args;
use serde_json::{Map, Value};

use super::store::{Entry, Place, Redis};
use super::{Ended, Failure, Found, date, failed, words};
use weir::policy::key::{self, LONGEST_PREFIX};
use weir::time::Micros;

const PAGE: usize = 500;

/// Numbers, in lines of JSON.
const NUMBERS: [&str; 4] = ["cost", "used_percent", "age_ms", "skipped"];

/// The entries to print.
#[derive(Args)]
pub(super) struct Arguments {
    /// The `store.key_prefix` of the configuration.
    #[arg(long, default_value = "weir", value_parser = prefix)]
    prefix: String,
    /// Print so many entries, the newest ones.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
    /// Then print each new entry, until Ctrl-C, or until it prints an entry into a closed pipe (`| head`).
    #[arg(long)]
    follow: bool,
    /// Print a line for each entry: `{"id", "time", "policy", "limit", "outcome", "source", "subject", "cost", "reason", "age_ms",
    /// "skipped"}`, without fields that the entry lacks. `time` is when the request was denied, in UTC.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

pub(super) fn prefix(text: &str) -> Result<String, String> {
    let fits = (1..=LONGEST_PREFIX).contains(&text.len());
    if fits { Ok(text.to_owned()) } else { Err(format!("allowed are 1 to {LONGEST_PREFIX} bytes")) }
}

/// Prints the journal, oldest entries first.
pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let key = format!("{}:{}", arguments.prefix, key::JOURNAL);
    let mut redis = arguments.place.connect()?;
    let mut newest = Vec::new();
    backwards(&mut redis, key.as_bytes(), usize::try_from(arguments.count).unwrap_or(usize::MAX), |entry| {
        newest.push(entry);
        Ok(true)
    })?;
    newest.reverse();
    let mut last = Id::default();
    if newest.is_empty() && !arguments.json {
        writeln!(out, "{}", empty(&key)).map_err(failed)?;
    }
    while !newest.is_empty() || arguments.follow {
        for entry in &newest {
            last = Id::of(entry)?;
            let line = if arguments.json { json(entry, last) } else { text(entry, last) };
            writeln!(out, "{line}").map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        if !arguments.follow {
            break;
        }
        newest = redis.newer(key.as_bytes(), &last.text(), PAGE, redis.patience())?;
    }
    Ok(Found::Nothing)
}

/// Says why a journal may have no entry.
pub(super) fn empty(journal: &str) -> String {
    format!(
        "no denials in {journal}. If requests are denied, the journal is off, or has another prefix: write \"journal\": {{}} into the \
         configuration, or its `store.key_prefix` as --prefix"
    )
}

/// Shows so many of the newest entries, the newest first, until `show` says that it is enough. Holds a page of them at a time.
pub(super) fn backwards(
    redis: &mut Redis,
    key: &[u8],
    count: usize,
    mut show: impl FnMut(Entry) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (mut left, mut until) = (count, Some(String::from("+")));
    while let Some(end) = until.take()
        && left > 0
    {
        let page = PAGE.min(left);
        let read = redis.older(key, &end, page)?;
        left = left.saturating_sub(read.len());
        if read.len() == page {
            until = read.last().map(Id::of).transpose()?.and_then(Id::before).map(|id| id.text());
        }
        for entry in read {
            if !show(entry)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The id of an entry: Redis's time in milliseconds, and the number within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Id {
    millis: u64,
    number: u64,
}

impl Id {
    pub fn of(entry: &Entry) -> Result<Self, Failure> {
        let parts = entry.id.split_once('-').and_then(|(millis, number)| {
            Some(Self { millis: millis.parse().ok()?, number: number.parse().ok()? })
        });
        parts.ok_or_else(|| format!("{:?} is no id of a stream's entry", entry.id))
    }

    pub fn written_at(self) -> Micros {
        Micros::from_millis(self.millis)
    }

    fn text(self) -> String {
        format!("{}-{}", self.millis, self.number)
    }

    /// The greatest id that is less.
    fn before(self) -> Option<Self> {
        match self.number.checked_sub(1) {
            Some(number) => Some(Self { number, ..self }),
            None => Some(Self { millis: self.millis.checked_sub(1)?, number: u64::MAX }),
        }
    }
}

/// The time at which the request was denied: Redis's time, without the time for which the entry waited.
pub(super) fn denied_at(entry: &Entry, id: Id) -> Micros {
    Micros::from_millis(id.millis.saturating_sub(entry.number("age_ms").unwrap_or(0)))
}

fn json(entry: &Entry, id: Id) -> String {
    let mut object = Map::new();
    object.insert("id".into(), entry.id.as_str().into());
    object.insert("time".into(), date::text(denied_at(entry, id)).into());
    for (name, value) in &entry.fields {
        let name = String::from_utf8_lossy(name).into_owned();
        let number = entry.number(&name).filter(|_| NUMBERS.contains(&name.as_str()));
        let value = number.map_or_else(|| Value::from(String::from_utf8_lossy(value)), Value::from);
        object.insert(name, value);
    }
    words::json(&Value::Object(object))
}

/// One line of text: the time and the outcome, then the other fields as they are.
fn text(entry: &Entry, id: Id) -> String {
    let outcome = entry.get("outcome").unwrap_or(b"-").escape_ascii();
    let mut line = format!("{} {outcome}", date::text(denied_at(entry, id)));
    for (name, value) in &entry.fields {
        if !matches!(name.as_slice(), b"outcome" | b"age_ms") {
            line.push_str(&format!(" {}={}", name.escape_ascii(), value.escape_ascii()));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_before_another_is_the_greatest_that_is_less() {
        let id = |millis, number| Id { millis, number };
        assert_eq!(id(5, 7).before(), Some(id(5, 6)));
        assert_eq!(id(5, 0).before(), Some(id(4, u64::MAX)));
        assert_eq!(id(0, 0).before(), None);
    }
}
