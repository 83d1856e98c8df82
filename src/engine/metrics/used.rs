// SPDX-License-Identifier: Apache-2.0
//! What subjects have used and what is not in the usage journal yet.
//!
//! It is added up for [`DELAY`], and then written: at most [`MAX_SUBJECTS`] subjects at once, and the next only when the store has answered
//! the last write, which is sent again until then. So nothing is lost and nothing counts twice, unless the worker crashes.
//!
//! A request counts in the interval in which the store granted it, by the store's clock, and so does what is refunded or charged later.
//!
//! **Bounded**: at most [`MAX_WAITING`] subjects wait. What further ones use counts for the others of their policy.

use std::collections::HashMap;
use std::mem;

use crate::config::{self, Config};
use crate::engine::seed::Seed;
use crate::inline_vec::InlineVec;
use crate::policy::Check;
use crate::script::usage::{Interval, Used, Write, others};
use crate::time::Micros;

/// How long usage is added up before it is written.
const DELAY: Micros = Micros::from_secs(5);

/// At most so many subjects in one write.
const MAX_SUBJECTS: usize = 128;

/// At most so many subjects are added up at once.
const MAX_WAITING: usize = 16_384;

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Usage {
    settings: config::UsageJournal,
    prefix: String,
    worker: u64,
    /// Whether it is written, for each policy.
    policies: Vec<bool>,
    /// What each tag has used in which intervals: in one, but for the moment in which another begins.
    subjects: HashMap<Vec<u8>, InlineVec<(Interval, Used)>, Seed>,
    /// What is written now, after it was added up.
    leaving: Vec<(Interval, (Vec<u8>, Used))>,
    /// The uptime at which `subjects` is written; absent while nothing waits, and before that was looked at.
    due: Option<Micros>,
    /// The number of the last write.
    number: u64,
    /// How often usage was counted for others, because too many subjects waited.
    pub merged: u64,
}

impl Usage {
    /// Of one worker, if the configuration asks for it.
    pub fn new(config: &Config, seed: u64) -> Option<Self> {
        let policies: Vec<_> = config.policies.iter().map(|policy| policy.usage_journal).collect();
        policies.contains(&true).then(|| Self {
            settings: config.usage_journal,
            prefix: config.store.key_prefix.clone(),
            worker: seed,
            policies,
            subjects: HashMap::with_hasher(Seed(seed)),
            leaving: Vec::new(),
            due: None,
            number: 0,
            merged: 0,
        })
    }

    /// The subject of a check has used this, of what was granted at this time of the store.
    pub fn add(&mut self, check: &Check, granted_at: Micros, used: Used) {
        if self.policies.get(check.policy) != Some(&true) {
            return;
        }
        let interval = Interval::of(granted_at, self.settings.interval);
        let is_full = self.subjects.len() >= MAX_WAITING;
        let known = match self.subjects.get_mut(check.tag.as_slice()) {
            Some(known) => known,
            None if is_full => {
                self.merged = self.merged.wrapping_add(1);
                // There are at most as many of these as policies.
                self.subjects.entry(others(&check.tag)).or_default()
            }
            None => self.subjects.entry(check.tag.clone()).or_default(),
        };
        match known.iter_mut().find(|(of, _)| *of == interval) {
            Some((_, sum)) => *sum = sum.plus(used),
            None => known.push((interval, used)),
        }
    }

    /// How many subjects wait.
    pub fn waiting(&self) -> usize {
        self.subjects.len().saturating_add(self.leaving.len())
    }

    /// The uptime at which something is to be written.
    pub fn due(&self) -> Option<Micros> {
        if self.leaving.is_empty() { self.due } else { Some(Micros::ZERO) }
    }

    /// What is added up from now on is written after [`DELAY`]; at once if the worker `ends`.
    pub fn look(&mut self, uptime: Micros, ends: bool) {
        if !self.subjects.is_empty() {
            let due = self.due.get_or_insert_with(|| uptime.plus(DELAY));
            if ends {
                *due = Micros::ZERO;
            }
        }
    }

    /// The next command, if something is to be written now.
    pub fn next_write(&mut self, uptime: Micros) -> Option<Vec<u8>> {
        if self.leaving.is_empty() && self.due.is_some_and(|due| due <= uptime) {
            self.due = None;
            // The new table has the seed of this one: clients choose the tags.
            let empty = HashMap::with_hasher(*self.subjects.hasher());
            for (tag, sums) in mem::replace(&mut self.subjects, empty) {
                for (interval, used) in sums {
                    if used != Used::default() {
                        self.leaving.push((interval, (tag.clone(), used)));
                    }
                }
            }
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
        Some(command)
    }
}
