// SPDX-License-Identifier: Apache-2.0
//! The usage of subjects that is not in the usage journal yet.
//!
//! The worker adds up usage for [`DELAY`], and then writes it, at most [`MAX_SUBJECTS`] subjects at once. It repeats a write until the
//! store has answered. So nothing is lost and nothing counts twice, unless the worker crashes.
//!
//! **One write at a time**, also when the worker ends. If a later write arrived first on a second connection, the store would believe that
//! it has already made the earlier one, which has a lower number.
//!
//! A request counts in the interval in which the store granted it, by the store's clock, and so does what is refunded or charged later.
//!
//! **Bounded**: at most [`MAX_WAITING`] subjects wait. The usage of further subjects counts for the others of their policy.

use std::collections::HashMap;
use std::mem;

use crate::config::{self, Config};
use crate::engine::generations::Seed;
use crate::inline_vec::InlineVec;
use crate::policy::Check;
use crate::script::usage::{Interval, Used, Write, others};
use crate::time::Micros;

/// The time for which usage is added up before it is written.
const DELAY: Micros = Micros::from_secs(5);

/// After a write that failed, the writer waits for this long, and after each further failure twice as long, up to [`MAX_PAUSE`].
const PAUSE: Micros = Micros::from_secs(1);
const MAX_PAUSE: Micros = Micros::from_secs(8);

/// A worker that ends waits for this long for the store's next answer. Usage that is not written then is lost.
const PATIENCE: Micros = Micros::from_secs(60);

/// At most this many subjects in one write.
const MAX_SUBJECTS: usize = 128;

/// At most this many subjects are added up at once.
const MAX_WAITING: usize = 16_384;

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Usage {
    settings: config::UsageJournal,
    prefix: String,
    worker: u64,
    /// True for each policy whose usage is written.
    policies: Vec<bool>,
    /// The usage of each tag, by interval. That is one interval, and two for a moment when another begins.
    subjects: HashMap<Vec<u8>, InlineVec<(Interval, Used)>, Seed>,
    /// The usage that is being written, by intervals.
    leaving: Vec<(Interval, (Vec<u8>, Used))>,
    /// The write that the store has not answered, and how many subjects it has.
    write: Option<(Vec<u8>, usize)>,
    is_in_flight: bool,
    /// If the last attempt to write failed: the uptime of the next, and how long this pause is.
    pause: Option<(Micros, Micros)>,
    /// The uptime at which a worker that ends drops the rest.
    gives_up: Option<Micros>,
    /// The uptime at which `subjects` is written; absent while nothing waits, and before the first [`look`](Self::look).
    due: Option<Micros>,
    /// The number of the last write.
    number: u64,
    /// The number of times that usage was counted for others, because too many subjects waited.
    pub merged: u64,
    /// The number of subjects whose usage was dropped, because the worker ended and the store did not answer.
    pub dropped: u64,
}

impl Usage {
    /// The usage of one worker, if the configuration asks for it.
    pub fn new(config: &Config, seed: u64) -> Option<Self> {
        let policies: Vec<_> = config.policies.iter().map(|policy| policy.usage_journal).collect();
        policies.contains(&true).then(|| Self {
            settings: config.usage_journal,
            prefix: config.store.key_prefix.clone(),
            worker: seed,
            policies,
            subjects: HashMap::with_hasher(Seed(seed)),
            leaving: Vec::new(),
            write: None,
            is_in_flight: false,
            pause: None,
            gives_up: None,
            due: None,
            number: 0,
            merged: 0,
            dropped: 0,
        })
    }

    /// Adds what the subject of a check has used of a grant that the store made at `granted_at`.
    pub fn add(&mut self, check: &Check, granted_at: Micros, used: Used) {
        if self.policies.get(check.policy) != Some(&true) {
            return;
        }
        let interval = Interval::of(granted_at, self.settings.interval);
        let is_full = self.subjects.len() >= MAX_WAITING && !self.subjects.contains_key(&check.tag);
        self.merged = self.merged.wrapping_add(is_full.into());
        // There are at most as many of these as policies.
        let others = is_full.then(|| others(&check.tag));
        let tag = others.as_ref().unwrap_or(&check.tag);
        let Some(known) = self.subjects.get_mut(tag) else {
            if used != Used::default() {
                self.subjects.insert(tag.clone(), InlineVec::One((interval, used)));
            }
            return;
        };
        match known.iter_mut().find(|(of, _)| *of == interval) {
            Some((_, sum)) => *sum = sum.plus(used),
            None => known.push((interval, used)),
        }
        // A request that was denied after all leaves nothing to write.
        known.retain(|(_, used)| *used != Used::default());
        if known.is_empty() {
            self.subjects.remove(tag);
        }
    }

    /// The number of subjects that wait.
    pub fn waiting(&self) -> usize {
        let unanswered = self.write.as_ref().map_or(0, |(_, subjects)| *subjects);
        self.subjects.len().saturating_add(self.leaving.len()).saturating_add(unanswered)
    }

    /// The uptime of the next write; `None` if nothing waits, and while the store has not answered the last write.
    pub fn due(&self) -> Option<Micros> {
        let is_ready = self.write.is_some() || !self.leaving.is_empty();
        let due = if is_ready { Some(Micros::ZERO) } else { self.due };
        let due = due.filter(|_| !self.is_in_flight)?;
        Some(self.pause.map_or(due, |(until, _)| until.max(due)))
    }

    /// Sets the time of the next write: [`DELAY`] after usage was first added; at once if the worker `ends`.
    pub fn look(&mut self, uptime: Micros, ends: bool) {
        if !self.subjects.is_empty() {
            let due = self.due.get_or_insert_with(|| uptime.plus(DELAY));
            if ends {
                *due = Micros::ZERO;
            }
        }
        if !ends {
            // It continues.
        } else if self.waiting() == 0 {
            self.gives_up = None;
        } else if *self.gives_up.get_or_insert_with(|| uptime.plus(PATIENCE)) <= uptime {
            self.dropped = self.dropped.saturating_add(self.waiting() as u64);
            self.subjects.clear();
            self.leaving.clear();
            self.write = None;
        }
    }

    /// The next command, if a write is due, and whether the last attempt failed. The write is in flight from now on.
    pub fn next_write(&mut self, uptime: Micros) -> Option<(Vec<u8>, bool)> {
        if self.due().is_none_or(|due| due > uptime) {
            return None;
        }
        if self.write.is_none() {
            self.write = self.make();
        }
        let (command, _) = self.write.as_ref()?;
        self.is_in_flight = true;
        Some((command.clone(), self.pause.is_some()))
    }

    /// Notes that the store has made the write.
    pub fn written(&mut self) {
        (self.write, self.is_in_flight, self.pause, self.gives_up) = (None, false, None, None);
    }

    /// Notes that the write has to wait for a connection.
    pub const fn not_sent(&mut self) {
        self.is_in_flight = false;
    }

    /// Notes that the store may have made the write or not.
    pub fn lost(&mut self, uptime: Micros) {
        let span = self.pause.map_or(PAUSE, |(_, span)| Micros(span.0.saturating_mul(2)).min(MAX_PAUSE));
        (self.is_in_flight, self.pause) = (false, Some((uptime.plus(span), span)));
    }

    /// The next write, and how many subjects it has.
    fn make(&mut self) -> Option<(Vec<u8>, usize)> {
        if self.leaving.is_empty() {
            self.due = None;
            // The new table has the seed of this one: clients choose the tags.
            let empty = HashMap::with_hasher(*self.subjects.hasher());
            for (tag, sums) in mem::replace(&mut self.subjects, empty) {
                self.leaving.extend(sums.into_iter().map(|(interval, used)| (interval, (tag.clone(), used))));
            }
            // A write is for one interval.
            self.leaving.sort_unstable_by_key(|(interval, _)| *interval);
        }
        let (interval, _) = self.leaving.last()?;
        let interval = *interval;
        let is_of_it = |(of, _): &(Interval, _)| *of == interval;
        let count = self.leaving.iter().rev().take(MAX_SUBJECTS).take_while(|entry| is_of_it(entry)).count();
        let first = self.leaving.len().saturating_sub(count);
        let used: Vec<_> = self.leaving.drain(first..).map(|(_, used)| used).collect();
        self.number = self.number.saturating_add(1);
        let mut command = Vec::new();
        let Self { worker, number, .. } = *self;
        let config::UsageJournal { keep, max_subjects, .. } = self.settings;
        Write { prefix: &self.prefix, worker, number, interval, keep, max_subjects, used: &used }
            .encode(&mut command);
        Some((command, used.len()))
    }
}
