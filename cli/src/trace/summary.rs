// SPDX-License-Identifier: Apache-2.0
//! The summary of a trace, and what it lacks: an operator must know this before trusting the result of a replay.

use std::collections::BTreeMap;

use super::{Entry, Reason};
use crate::{Failure, date, words};
use weir::time::Micros;

/// The lines that cannot be read are skipped if they are at most one in so many.
const TOLERATED: u64 = 100;

/// If none of so many lines is in a known format, the rest is not read.
const TRIED: u64 = 1_000;

#[derive(Debug, Default)]
pub struct Summary {
    pub format: String,
    pub requests: u64,
    /// The times at which the first one and the last one came.
    pub span: Option<(Micros, Micros)>,
    /// The last line, if it has no end and cannot be read.
    pub cut_off: Option<u64>,
    skipped: BTreeMap<Reason, u64>,
    unreadable: u64,
    first_unreadable: Option<(u64, String)>,
    without_client: u64,
    first_without_client: Option<(u64, String)>,
    without_host: u64,
    without_duration: u64,
}

impl Summary {
    pub(super) fn add(&mut self, entry: &Entry, line: u64) {
        let count = |count: &mut u64, one: bool| *count = count.saturating_add(one.into());
        count(&mut self.requests, true);
        count(&mut self.without_host, !entry.names_host());
        count(&mut self.without_duration, entry.took.is_none());
        if !entry.has_client() {
            count(&mut self.without_client, true);
            self.first_without_client.get_or_insert_with(|| {
                let client = entry.client.as_deref().unwrap_or_default();
                (line, client.get(..80).unwrap_or(client).escape_ascii().to_string())
            });
        }
    }

    pub(super) fn add_time(&mut self, at: Micros) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
    }

    pub(super) fn skip(&mut self, reason: Reason) {
        let count = self.skipped.entry(reason).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts a line that cannot be read.
    ///
    /// # Errors
    /// None of many can be read.
    pub(super) fn add_unreadable(&mut self, line: u64, why: Failure, no_format: bool) -> Result<(), Failure> {
        self.unreadable = self.unreadable.saturating_add(1);
        self.first_unreadable.get_or_insert((line, why));
        if no_format && self.unreadable >= TRIED { self.check("the trace") } else { Ok(()) }
    }

    /// # Errors
    /// Too little of it can be read, or it has no request.
    pub(super) fn check(&self, name: &str) -> Result<(), Failure> {
        let lines = self.requests.saturating_add(self.unreadable).saturating_add(self.skipped.values().sum());
        if let Some((line, why)) = &self.first_unreadable
            && self.unreadable > lines / TOLERATED
        {
            let others = match self.unreadable.saturating_sub(1) {
                0 => String::new(),
                others => format!(", and {others} more of {lines} lines cannot be read"),
            };
            return Err(format!(
                "{name}: line {line}: {why}{others}. Allowed: JSON, other JSON with --map, nginx combined or main, Envoy's \
                 or Istio's default; at most one line in {TOLERATED} that is in no format"
            ));
        }
        if self.requests > 0 {
            return Ok(());
        }
        let skipped = self.skipped();
        let skipped = if skipped.is_empty() { String::from("it is empty") } else { skipped.join("; ") };
        Err(format!("{name}: no request in it: {skipped}"))
    }

    /// Returns the skipped lines, by reason.
    fn skipped(&self) -> Vec<String> {
        let reasons = self.skipped.iter().map(|(reason, count)| {
            let why = match reason {
                Reason::TlsHandshake => "a TLS handshake on a port without TLS",
                Reason::NoRequestLine => "the connection ended before a request",
                Reason::NotHttp => "not HTTP",
                Reason::TimedOut => "the request did not come in time (408)",
            };
            format!("skipped {}: {why}", words::count(*count, "line"))
        });
        let mut all: Vec<String> = reasons.collect();
        if let Some((line, why)) = &self.first_unreadable {
            all.push(format!(
                "skipped {} that cannot be read: line {line}: {why}",
                words::count(self.unreadable, "line")
            ));
        }
        all.extend(self.cut_off.map(|line| format!("skipped line {line}: the trace ends within it")));
        all
    }

    /// Describes the trace, and what was skipped, for people.
    pub fn notes(&self) -> Vec<String> {
        let requests = words::count(self.requests, "request");
        let span =
            self.span.map(|(first, last)| format!(" from {} to {}", date::text(first), date::text(last)));
        let mut notes = vec![format!("format: {}; {requests}{}", self.format, span.unwrap_or_default())];
        notes.extend(self.skipped());
        notes
    }

    /// Warns of what the trace lacks, so that the replay may differ from what the filter did. `host` and `duration` are the operator's
    /// replacements for what is missing.
    pub fn warnings(&self, host: Option<&str>, duration: Option<Micros>) -> Vec<String> {
        let mut all = Vec::new();
        let lack = |count: u64, what: &str| {
            if count == self.requests {
                format!("no request has a {what}")
            } else {
                let have = if count == 1 { "has" } else { "have" };
                format!("{} {have} no {what}", words::count(count, "request"))
            }
        };
        if let Some((line, client)) = &self.first_without_client {
            all.push(format!(
                "{} that can be read (line {line}: \"{client}\"); the policies that read the address take it as missing",
                lack(self.without_client, "client address")
            ));
        }
        if self.without_host > 0 && host.is_none() {
            all.push(format!(
                "{}: replayed on localhost; --host names another",
                lack(self.without_host, "host")
            ));
        }
        if self.without_duration > 0 && duration.is_none() {
            all.push(format!(
                "{}: replayed as if they end when they come, so limits of concurrency do not deny them; --duration gives one",
                lack(self.without_duration, "duration")
            ));
        }
        all
    }
}
