// SPDX-License-Identifier: Apache-2.0
//! The journal: each denial, with its subject, policy, limit and time, in a Redis stream of bounded length. It also has warnings: a
//! subject has nearly used up a limit. It repeats a warning only when the limit would be full again.
//!
//! A worker writes a denial after it has decided the request, and no request waits for that. It sends the waiting entries behind the
//! commands of the next batch. Without a batch within [`DELAY`], they get one of their own, which the breakers and the congestion window
//! ignore.
//!
//! - **Bounded**: entries by their rate and by how many wait, the stream by its length: one `XADD` adds an entry and removes the oldest.
//! - **Nothing is lost unnoticed**: each entry says how many denials its worker did not write since its last one.
//! - **An entry is sent once.** If that fails, the journal waits, and the next entries do not share a batch with requests: the store may
//!   refuse the command, or the journal's shard may hang, and requests must not wait for that.

use std::mem;

use crate::config::{self, Config};
use crate::engine::generations::Generations;
use crate::engine::generations::Seed;
use crate::policy::{Denial, key, part_place};
use crate::random::Random;
use crate::resp;
use crate::response::{PolicyDenial, Warning};
use crate::time::Micros;

/// The time for which an entry waits for a batch that is sent anyway.
const DELAY: Micros = Micros::from_millis(100);

/// At most this many entries wait; further denials are only counted.
const MAX_WAITING: usize = 1_024;

/// At most this many entries in one batch.
const MAX_SENT: usize = 32;

/// The maximum number of bytes that [`Journal::take`] adds to an entry: the name of the command, the key, numbers.
const ADDED: usize = 256;

/// At most this many warnings are remembered, so that they are not written again.
const MAX_WARNED: usize = 16_384;

/// A warning is remembered for at least this long.
const LEAST_WARNED: Micros = Micros::from_secs(1);

/// After a failure nothing is written for this long.
const PAUSE: Micros = Micros::from_secs(1);

/// One denial or warning.
#[derive(Debug)]
pub(in crate::engine) struct Entry {
    /// The uptime at which it was made.
    at: Micros,
    /// The number of denials that were not written before it, since the last entry.
    skipped: u64,
    /// The number of fields, and their names and values, as bulk strings.
    fields: usize,
    bytes: Vec<u8>,
}

impl Entry {
    pub(super) fn new(at: Micros) -> Self {
        Self { at, skipped: 0, fields: 0, bytes: Vec::new() }
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.fields = self.fields.saturating_add(1);
            resp::bulk(&mut self.bytes, name.as_bytes());
            resp::bulk(&mut self.bytes, value);
        }
    }

    fn number(&mut self, name: &str, number: u64) {
        self.field(name, itoa::Buffer::new().format(number).as_bytes());
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Journal {
    settings: config::Journal,
    key: String,
    random: Random,
    /// The uptime at which the current second began, and how many entries were made in it.
    second: (Micros, u32),
    /// In the order in which they are sent.
    waiting: Vec<Entry>,
    /// The hash of each subject and limit that a warning was written about, and the uptime until which none is written again.
    warned: Generations<u64, Micros>,
    /// The number of denials that were not written since the last entry.
    skipped: u64,
    /// The number of denials that were drawn for the journal and not written.
    dropped: u64,
    /// The uptime until which nothing is written, if the last entries could not be.
    paused: Option<Micros>,
    /// True if the worker ends: then no entry waits for another batch.
    is_retired: bool,
}

impl Journal {
    /// The journal of one worker, if the configuration asks for it.
    pub fn new(config: &Config, seed: u64) -> Option<Self> {
        config.journal.map(|settings| Self {
            settings,
            key: format!("{}:{}", config.store.key_prefix, key::JOURNAL),
            random: Random::new(seed),
            second: (Micros::ZERO, 0),
            waiting: Vec::new(),
            warned: Generations::new(MAX_WARNED, Seed(seed)),
            skipped: 0,
            dropped: 0,
            paused: None,
            is_retired: false,
        })
    }

    // --- Denials ---------------------------------------------------------------------------------------------------

    /// Notes that limits, a ban or `on_failure` have denied a request of this `cost`.
    pub fn denied(&mut self, denied: &PolicyDenial<'_>, cost: u64, uptime: Micros) {
        if denied.outcome == "shadow" && !self.settings.shadow {
            return;
        }
        if let Some(mut entry) = self.entry(uptime) {
            entry.field("policy", denied.policy.as_bytes());
            entry.field("limit", denied.limits.join(",").as_bytes());
            entry.field("outcome", denied.outcome.as_bytes());
            entry.field("source", denied.source.as_bytes());
            entry.field("subject", denied.subject);
            entry.number("cost", cost);
            self.waiting.push(entry);
        }
    }

    /// Notes that a request was denied by a list, or because its subject or price is missing. `policy` is empty for the global deny list.
    pub fn denied_unasked(&mut self, policy: &str, denial: Denial, uptime: Micros) {
        if let Some(mut entry) = self.entry(uptime) {
            entry.field("policy", policy.as_bytes());
            entry.field("outcome", b"denied");
            let mut digits = itoa::Buffer::new();
            let mut part = |number, end| {
                let (list, place) = part_place(number);
                [list, "[", digits.format(place), end].concat()
            };
            let reason = match denial {
                Denial::Listed(index) => ["deny[", digits.format(index), "]"].concat(),
                Denial::Absent(number) => part(number, "] missing"),
                Denial::Ambiguous(number) => part(number, "] ambiguous"),
                Denial::UnknownModel(_) => String::from("model unknown"),
            };
            entry.field("reason", reason.as_bytes());
            self.waiting.push(entry);
        }
    }

    /// Notes that a request leaves a limit nearly full. If too many entries wait, the next such request causes the warning.
    pub fn warned(&mut self, warning: &Warning<'_>, uptime: Micros) {
        let subject = self.warned.hash((warning.subject, warning.limit));
        let is_known = self.warned.get(&subject).is_some_and(|until| uptime < *until);
        if is_known || !(warning.is_enforced || self.settings.shadow) || !self.has_room(uptime) {
            return;
        }
        self.warned.insert(subject, uptime.plus(warning.reset.max(LEAST_WARNED)));
        let mut entry = Entry { skipped: mem::take(&mut self.skipped), ..Entry::new(uptime) };
        entry.field("policy", warning.policy.as_bytes());
        entry.field("limit", warning.limit.as_bytes());
        entry.field("outcome", b"warned");
        entry.field("source", warning.source.as_bytes());
        entry.field("subject", warning.subject);
        entry.number("used_percent", warning.used_percent);
        self.waiting.push(entry);
    }

    /// Begins an entry for a denial, if the journal may write one.
    fn entry(&mut self, uptime: Micros) -> Option<Entry> {
        let is_drawn = self.draws();
        if !is_drawn || !self.has_room(uptime) {
            self.skipped = self.skipped.saturating_add(1);
            self.dropped = self.dropped.saturating_add(is_drawn.into());
            return None;
        }
        let skipped = mem::take(&mut self.skipped);
        Some(Entry { skipped, ..Entry::new(uptime) })
    }

    /// True if the sample (`sample_percent`) contains this denial.
    fn draws(&mut self) -> bool {
        self.random.draw_high() % 100 < u64::from(self.settings.sample_percent)
    }

    /// Counts one more entry. False if there are too many already.
    fn has_room(&mut self, uptime: Micros) -> bool {
        let (began, count) = &mut self.second;
        if uptime.since(*began) >= Micros::from_secs(1) {
            (*began, *count) = (uptime, 0);
        }
        let has_room = *count < self.settings.max_per_second && self.waiting.len() < MAX_WAITING;
        *count = count.saturating_add(has_room.into());
        has_room
    }

    /// The number of denials that were drawn for the journal and not written.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    // --- Batches ---------------------------------------------------------------------------------------------------

    /// Sends all waiting entries at once, because the worker ends.
    pub const fn retire(&mut self) {
        self.is_retired = true;
    }

    pub const fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// The uptime at which the waiting entries get a batch of their own; `None` while none waits.
    pub fn due(&self) -> Option<Micros> {
        let delay = if self.is_retired { Micros::ZERO } else { DELAY };
        let due = self.waiting.first()?.at.plus(delay);
        Some(self.paused.map_or(due, |until| until.max(due)))
    }

    /// True if entries must not share a batch with requests, because the last ones could not be written.
    pub const fn is_suspect(&self) -> bool {
        self.paused.is_some()
    }

    /// Removes the first waiting entries, at most `most`, and appends their commands to `body`, at most `max_bytes`.
    pub fn take(&mut self, most: usize, max_bytes: usize, uptime: Micros, body: &mut Vec<u8>) -> Vec<Entry> {
        let mut room = max_bytes.saturating_sub(body.len());
        let fits = |entry: &&Entry| match room.checked_sub(entry.bytes.len().saturating_add(ADDED)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        let count = self.waiting.iter().take(most.min(MAX_SENT)).take_while(fits).count();
        let rest = self.waiting.split_off(count);
        let entries = mem::replace(&mut self.waiting, rest);
        entries.iter().for_each(|entry| self.encode(entry, uptime, body));
        entries
    }

    fn encode(&self, entry: &Entry, uptime: Micros, body: &mut Vec<u8>) {
        let Entry { at, skipped, fields, bytes } = entry;
        let more = 1_usize.saturating_add((*skipped > 0).into()).saturating_add(*fields);
        resp::array_header(body, more.saturating_mul(2).saturating_add(5));
        resp::bulk(body, b"XADD");
        resp::bulk(body, self.key.as_bytes());
        resp::bulk(body, b"MAXLEN");
        resp::bulk_int(body, self.settings.max_entries.into());
        resp::bulk(body, b"*");
        body.extend_from_slice(bytes);
        let mut number = |name: &str, number: u64| {
            resp::bulk(body, name.as_bytes());
            resp::bulk(body, itoa::Buffer::new().format(number).as_bytes());
        };
        number("age_ms", uptime.since(*at).0 / 1_000);
        if *skipped > 0 {
            number("skipped", *skipped);
        }
    }

    /// Puts back the entries of a batch that was not sent.
    pub fn put_back(&mut self, mut entries: Vec<Entry>) {
        entries.append(&mut self.waiting);
        self.waiting = entries;
    }

    /// Notes that Redis has written an entry. `is_well`: it has also written all entries before it in the batch.
    pub fn written(&mut self, is_well: bool) {
        self.paused = self.paused.filter(|_| !is_well);
    }

    /// Notes that Redis has not, or perhaps not, written these entries. The journal does not send them again.
    pub fn lost(&mut self, entries: Vec<Entry>, uptime: Micros) {
        for entry in entries {
            self.paused = Some(uptime.plus(PAUSE));
            self.skipped = self.skipped.saturating_add(entry.skipped).saturating_add(1);
            self.dropped = self.dropped.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests;
