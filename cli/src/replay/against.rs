// SPDX-License-Identifier: Apache-2.0
//! The differences between two configurations in the whole trace.

use std::io;

use super::decision::Decision;
use super::heaviest::Heaviest;
use super::totals::TOP;

#[derive(Default)]
pub struct Differences {
    pub same: u64,
    pub only_first_rejects: u64,
    pub only_second_rejects: u64,
    /// The number of requests that both admit, with other delays.
    pub other_delay: u64,
    /// The number of requests that both decide alike, but that a policy in shadow would reject under the first only.
    pub only_first_would: u64,
    pub only_second_would: u64,
    /// The subjects that the first rejects and the second admits, and the other way round.
    pub released: Heaviest,
    pub hit: Heaviest,
    examples: Vec<(Decision, Decision)>,
}

impl Differences {
    /// Compares two decisions about one request. Returns whether they are the same.
    pub fn compare(&mut self, first: &Decision, second: &Decision) -> bool {
        let count = match (first.allowed, second.allowed) {
            (false, true) => {
                self.released.add(subject(first));
                &mut self.only_first_rejects
            }
            (true, false) => {
                self.hit.add(subject(second));
                &mut self.only_second_rejects
            }
            _ if first.delay != second.delay => &mut self.other_delay,
            _ if first.in_shadow && !second.in_shadow => &mut self.only_first_would,
            _ if !first.in_shadow && second.in_shadow => &mut self.only_second_would,
            _ => {
                self.same = self.same.saturating_add(1);
                return true;
            }
        };
        *count = count.saturating_add(1);
        if self.examples.len() < TOP {
            self.examples.push((first.clone(), second.clone()));
        }
        false
    }

    /// Prints the differences, under the names of the two files.
    pub fn report(&self, [one, other]: &[String; 2], out: &mut impl io::Write) -> io::Result<()> {
        let Self { same, only_first_rejects, only_second_rejects, other_delay, .. } = self;
        let (first_would, second_would) = (self.only_first_would, self.only_second_would);
        writeln!(
            out,
            "{same} decided the same, {only_first_rejects} rejected by {one} only, {only_second_rejects} by {other} only, \
             {other_delay} delayed differently"
        )?;
        if first_would > 0 || second_would > 0 {
            writeln!(
                out,
                "in shadow: {first_would} would be rejected by {one} only, {second_would} by {other} only"
            )?;
        }
        for (subjects, what) in [(&self.released, one), (&self.hit, other)] {
            let top = subjects.top(TOP);
            if !top.is_empty() {
                writeln!(out, "\nsubjects by how often only {what} rejects them:")?;
            }
            for (tag, times) in top {
                writeln!(out, "{times:>10}  {}", tag.escape_ascii())?;
            }
        }
        if !self.examples.is_empty() {
            writeln!(out, "\nthe first of these requests:")?;
        }
        for (first, second) in &self.examples {
            let width = one.chars().count().max(other.chars().count()).min(usize::from(u16::MAX));
            writeln!(out, "  {one:<width$} {}\n  {other:<width$} {}", first.json(), second.json())?;
        }
        Ok(())
    }
}

/// The subject that was rejected; a list denies requests without a subject.
fn subject(decision: &Decision) -> &[u8] {
    if !decision.subject.is_empty() {
        return &decision.subject;
    }
    if decision.policy.is_empty() { b"(the global deny list)" } else { decision.policy.as_bytes() }
}
