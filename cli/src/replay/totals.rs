// SPDX-License-Identifier: Apache-2.0
//! What a configuration decided in the whole trace: for each policy, and the table of it.

use std::io;

use comfy_table::{CellAlignment, Table, presets};

use super::decision::Decision;
use super::heaviest::Heaviest;
use super::timeline::{Outcome, Steps, Timeline};
use weir::config::Config;
use weir::decision;
use weir::policy::{Check, Mode};
use weir::time::Micros;

/// The most denied subjects of a policy that are printed.
pub const TOP: usize = 10;

/// What was decided about the requests of one policy in one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Its limits let them pass.
    pub admitted: u64,
    /// Its limits let them pass later.
    pub delayed: u64,
    /// Its limits reject them.
    pub rejected: u64,
    /// It denies them without asking the store: by a list, or because the subject is missing.
    pub denied: u64,
    /// It would reject or deny them, if it were enforced.
    pub shadow: u64,
}

impl Counts {
    pub fn sum(&self) -> u64 {
        let Self { admitted, delayed, rejected, denied, shadow } = self;
        [admitted, delayed, rejected, denied, shadow]
            .into_iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }
}

pub struct Total {
    /// About the subjects for which it is enforced.
    pub enforced: Counts,
    /// About those for which it is not.
    pub shadow: Counts,
    pub rejected: Heaviest,
    pub would_be_rejected: Heaviest,
    /// Over time, for `--html`.
    pub over_time: Option<Timeline>,
}

pub struct Totals {
    /// In the order of the configuration.
    pub policies: Vec<Total>,
    /// Of all requests over time, for `--html`.
    pub over_time: Option<Timeline>,
    pub requests: u64,
    /// How many of them no policy applies to.
    pub unmatched: u64,
    pub globally_denied: u64,
}

impl Totals {
    /// Nothing is decided. `steps` are those of the timelines, if there are to be any.
    pub fn new(config: &Config, steps: Option<Steps>) -> Self {
        let total = |_| Total {
            enforced: Counts::default(),
            shadow: Counts::default(),
            rejected: Heaviest::default(),
            would_be_rejected: Heaviest::default(),
            over_time: steps.map(Timeline::new),
        };
        let policies = config.policies.iter().map(total).collect();
        Self { policies, over_time: steps.map(Timeline::new), requests: 0, unmatched: 0, globally_denied: 0 }
    }

    /// A policy denies a request without asking the store.
    pub fn deny(&mut self, policy: usize, is_enforced: bool, at: Micros) {
        let Some(total) = self.policies.get_mut(policy) else { return };
        let (count, outcome) = match is_enforced {
            true => (&mut total.enforced.denied, Outcome::Denied),
            false => (&mut total.shadow.shadow, Outcome::Shadow),
        };
        *count = count.saturating_add(1);
        if let Some(timeline) = &mut total.over_time {
            timeline.add(at, outcome);
        }
    }

    pub fn checked(&mut self, check: &Check, decision: &decision::Decision, at: Micros) {
        let Some(total) = self.policies.get_mut(check.policy) else { return };
        let is_enforced = check.mode == Mode::Enforce;
        let counts = if is_enforced { &mut total.enforced } else { &mut total.shadow };
        let (count, outcome) = match (decision.granted, is_enforced) {
            (true, true) if decision.delay > Micros::ZERO => (&mut counts.delayed, Outcome::Delayed),
            (true, _) => (&mut counts.admitted, Outcome::Admitted),
            (false, true) => (&mut counts.rejected, Outcome::Denied),
            (false, false) => (&mut counts.shadow, Outcome::Shadow),
        };
        *count = count.saturating_add(1);
        if let Some(timeline) = &mut total.over_time {
            timeline.add(at, outcome);
        }
        match outcome {
            Outcome::Denied => total.rejected.add(&check.tag),
            Outcome::Shadow => total.would_be_rejected.add(&check.tag),
            Outcome::Admitted | Outcome::Delayed => {}
        }
    }

    /// All policies together decided about a request.
    pub fn decided(&mut self, decision: &Decision) {
        self.requests = self.requests.saturating_add(1);
        if let Some(timeline) = &mut self.over_time {
            let outcome = match decision.outcome {
                "shadow" => Outcome::Shadow,
                _ if !decision.allowed => Outcome::Denied,
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

    /// Prints the table, and who was denied most.
    pub fn report(&self, config: &Config, out: &mut impl io::Write) -> io::Result<()> {
        writeln!(out, "{} requests, {} of them admitted without a check", self.requests, self.unmatched)?;
        if self.globally_denied > 0 {
            writeln!(out, "{} denied by the global deny list", self.globally_denied)?;
        }
        let rows: Vec<_> = self.rows(config).collect();
        if !rows.is_empty() {
            writeln!(out, "\n{}", table(&rows).trim_fmt())?;
        }
        let never: Vec<_> = self.never(config).map(|(_, name)| name).collect();
        if !never.is_empty() {
            writeln!(out, "\napplied to no request: {}", never.join(", "))?;
        }
        for (policy, total) in config.policies.iter().zip(&self.policies) {
            for (subjects, what) in [
                (&total.rejected, "most rejected subjects"),
                (&total.would_be_rejected, "subjects that would be rejected most (shadow)"),
            ] {
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

/// A row for each policy and mode, a column for each outcome that happened.
fn table(rows: &[(&str, &str, Counts)]) -> Table {
    type Column = (&'static str, fn(&Counts) -> u64);
    let columns: [Column; 5] = [
        ("admitted", |counts| counts.admitted),
        ("delayed", |counts| counts.delayed),
        ("rejected", |counts| counts.rejected),
        ("denied unasked", |counts| counts.denied),
        ("would be rejected", |counts| counts.shadow),
    ];
    let happened = columns.into_iter().filter(|(_, of)| rows.iter().any(|(_, _, counts)| of(counts) > 0));
    let columns: Vec<Column> = happened.collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let head = ["policy", "mode", "requests"].into_iter().chain(columns.iter().map(|(name, _)| *name));
    table.set_header(head);
    for (name, mode, counts) in rows {
        let numbers = columns.iter().map(|(_, of)| of(counts));
        let numbers = numbers.map(|count| if count == 0 { String::from("-") } else { count.to_string() });
        let row =
            [(*name).to_owned(), (*mode).to_owned(), counts.sum().to_string()].into_iter().chain(numbers);
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        let alignment = if column.index < 2 { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(alignment);
        column.set_padding((0, 2));
    }
    table
}
