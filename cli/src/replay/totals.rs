// SPDX-License-Identifier: Apache-2.0
//! The decisions of a configuration in the whole trace: for each policy, and the table of it.

use std::io;

use super::decision::Decision;
use super::heaviest::Heaviest;
use super::timeline::{Counts, Outcome, Steps, Timeline};
use crate::words;
use weir::config::Config;
use weir::decision;
use weir::policy::{Check, Mode};
use weir::time::Micros;

/// The most denied subjects of a policy that are printed.
pub const TOP: usize = 10;

#[derive(Default)]
pub struct Total {
    /// About the subjects for which it is enforced.
    pub enforced: Counts,
    /// About those for which it is not.
    pub shadow: Counts,
    pub rejected: Heaviest,
    pub banned: Heaviest,
    pub would_be_rejected: Heaviest,
    /// Over time, for `--html`.
    pub over_time: Option<Timeline>,
}

impl Total {
    fn add(&mut self, is_enforced: bool, outcome: Outcome, at: Micros) {
        if is_enforced { &mut self.enforced } else { &mut self.shadow }.add(outcome);
        if let Some(timeline) = &mut self.over_time {
            timeline.add(at, outcome);
        }
    }

    /// The subjects that are counted, and what they are.
    const fn heaviest(&self) -> [(&Heaviest, &'static str); 3] {
        [
            (&self.rejected, "most rejected subjects"),
            (&self.banned, "subjects whose bans rejected most"),
            (&self.would_be_rejected, "subjects that would be rejected most (shadow)"),
        ]
    }
}

pub struct Totals {
    /// In the order of the configuration.
    pub policies: Vec<Total>,
    /// The timeline of all requests, for `--html`.
    pub over_time: Option<Timeline>,
    pub requests: u64,
    /// The number of requests that no policy applies to.
    pub unmatched: u64,
    pub globally_denied: u64,
}

impl Totals {
    /// The totals before the first decision. `steps` are those of the timelines, if there are to be any.
    pub fn new(config: &Config, steps: Option<Steps>) -> Self {
        let total = |_| Total { over_time: steps.map(Timeline::new), ..Total::default() };
        let policies = config.policies.iter().map(total).collect();
        Self { policies, over_time: steps.map(Timeline::new), requests: 0, unmatched: 0, globally_denied: 0 }
    }

    /// A policy denies a request without asking the store.
    pub fn deny(&mut self, policy: usize, is_enforced: bool, at: Micros) {
        if let Some(total) = self.policies.get_mut(policy) {
            total.add(is_enforced, if is_enforced { Outcome::Denied } else { Outcome::Shadow }, at);
        }
    }

    pub fn checked(&mut self, check: &Check, decision: &decision::Decision, at: Micros) {
        let Some(total) = self.policies.get_mut(check.policy) else { return };
        let is_enforced = check.mode == Mode::Enforce;
        let outcome = match (decision.granted, is_enforced) {
            (true, true) if decision.delay > Micros::ZERO => Outcome::Delayed,
            (true, _) => Outcome::Admitted,
            (false, true) if decision.is_banned() => Outcome::Banned,
            (false, true) => Outcome::Rejected,
            (false, false) => Outcome::Shadow,
        };
        total.add(is_enforced, outcome, at);
        match outcome {
            Outcome::Rejected => total.rejected.add(&check.tag),
            Outcome::Banned => total.banned.add(&check.tag),
            Outcome::Shadow => total.would_be_rejected.add(&check.tag),
            Outcome::Admitted | Outcome::Delayed | Outcome::Denied => {}
        }
    }

    /// All policies together decided about a request.
    pub fn decided(&mut self, decision: &Decision) {
        self.requests = self.requests.saturating_add(1);
        if let Some(timeline) = &mut self.over_time {
            let outcome = match decision.outcome {
                "shadow" => Outcome::Shadow,
                "banned" => Outcome::Banned,
                "denied" => Outcome::Denied,
                _ if !decision.allowed => Outcome::Rejected,
                _ if decision.in_shadow => Outcome::Shadow,
                _ if decision.delay > Micros::ZERO => Outcome::Delayed,
                _ => Outcome::Admitted,
            };
            timeline.add(decision.at, outcome);
        }
    }

    /// The policies that apply to a request, each with its name, its mode in words, and its counts.
    pub fn rows<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = (&'a str, &'static str, Counts)> {
        config.policies.iter().zip(&self.policies).flat_map(|(policy, total)| {
            let name = policy.name.as_str();
            let rows = [(name, "enforce", total.enforced), (name, "shadow", total.shadow)];
            rows.into_iter().filter(|(_, _, counts)| counts.sum() > 0)
        })
    }

    /// The names of the policies that apply to no request, each with its index.
    pub fn never<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = (usize, &'a str)> {
        self.named(config, false)
    }

    pub fn applied<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = (usize, &'a str)> {
        self.named(config, true)
    }

    fn named<'a>(&'a self, config: &'a Config, applied: bool) -> impl Iterator<Item = (usize, &'a str)> {
        let applies = |total: &Total| total.enforced.sum() > 0 || total.shadow.sum() > 0;
        let all = config.policies.iter().zip(&self.policies).enumerate();
        all.filter(move |(_, (_, total))| applies(total) == applied)
            .map(|(index, (policy, _))| (index, policy.name.as_str()))
    }

    /// Prints the table, and the subjects that were denied most.
    pub fn report(&self, config: &Config, out: &mut impl io::Write) -> io::Result<()> {
        let requests = words::count(self.requests, "request");
        writeln!(out, "{requests}, {} of them admitted without a check", self.unmatched)?;
        if self.globally_denied > 0 {
            writeln!(out, "{} denied by the global deny list", self.globally_denied)?;
        }
        let rows: Vec<_> = self.rows(config).collect();
        if !rows.is_empty() {
            write!(out, "\n{}", table(&rows))?;
        }
        let never: Vec<_> = self.never(config).map(|(_, name)| name).collect();
        if !never.is_empty() {
            writeln!(out, "\napplied to no request: {}", never.join(", "))?;
        }
        for (policy, total) in config.policies.iter().zip(&self.policies) {
            for (subjects, what) in total.heaviest() {
                let top = subjects.top(TOP);
                if top.is_empty() {
                    continue;
                }
                let exact = match subjects.missed() {
                    0 => String::new(),
                    missed => format!(" (counts may be up to {missed} too low)"),
                };
                writeln!(out, "\n{}, {what}{exact}:", policy.name)?;
                for (tag, times) in top {
                    writeln!(out, "{times:>10}  {}", tag.escape_ascii())?;
                }
            }
        }
        Ok(())
    }
}

/// The outcomes that happened in a row.
pub fn happened(rows: &[(&str, &'static str, Counts)]) -> Vec<Outcome> {
    let happened = |outcome: &Outcome| rows.iter().any(|(.., counts)| counts.of(*outcome) > 0);
    Outcome::ALL.into_iter().filter(happened).collect()
}

/// A row for each policy and mode, a column for each outcome that happened.
fn table(rows: &[(&str, &'static str, Counts)]) -> String {
    let columns = happened(rows);
    let head = ["policy", "mode", "requests"].into_iter().chain(columns.iter().map(|outcome| outcome.word()));
    let mut table: Vec<Vec<String>> = vec![head.map(String::from).collect()];
    for (name, mode, counts) in rows {
        let numbers = columns.iter().map(|outcome| counts.of(*outcome));
        let numbers = numbers.map(|count| if count == 0 { String::from("-") } else { count.to_string() });
        let row =
            [(*name).to_owned(), (*mode).to_owned(), counts.sum().to_string()].into_iter().chain(numbers);
        table.push(row.collect());
    }
    let numbers: Vec<usize> = (2..columns.len().saturating_add(3)).collect();
    words::table(&table, &numbers)
}
