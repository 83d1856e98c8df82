// SPDX-License-Identifier: Apache-2.0
//! The number of events over time, in steps of equal length.

use weir::time::Micros;

const MOST: u64 = 60;

/// The lengths that people read at once: in milliseconds, and from a second to a year in seconds.
const MILLIS: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const SECONDS: [u64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 2_592_000, 31_536_000,
];

/// The outcome of a request: what happens to it, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is admitted at once.
    Admitted,
    /// It is admitted later.
    Delayed,
    /// A limit rejects it.
    Rejected,
    /// A ban rejects it.
    Banned,
    /// It is denied without asking the store: by a list, or because the subject is missing.
    Denied,
    /// A policy in shadow would reject or deny it.
    Shadow,
}

impl Outcome {
    /// All of them, in the order in which tables have them.
    pub const ALL: [Self; 6] =
        [Self::Admitted, Self::Delayed, Self::Rejected, Self::Banned, Self::Denied, Self::Shadow];

    /// All of them, in the order in which charts stack them: what passes is below.
    pub const STACKED: [Self; 6] =
        [Self::Admitted, Self::Delayed, Self::Shadow, Self::Rejected, Self::Banned, Self::Denied];

    /// The heading of its column.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Delayed => "delayed",
            Self::Rejected => "rejected",
            Self::Banned => "banned",
            Self::Denied => "denied unasked",
            Self::Shadow => "would be rejected",
        }
    }

    const fn place(self) -> usize {
        self as usize
    }
}

/// The number of times that each of [`Outcome::ALL`] happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; 6]);

impl Counts {
    pub fn add(&mut self, outcome: Outcome) {
        if let Some(count) = self.0.get_mut(outcome.place()) {
            *count = count.saturating_add(1);
        }
    }

    pub fn of(&self, outcome: Outcome) -> u64 {
        self.0.get(outcome.place()).copied().unwrap_or(0)
    }

    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The requests that reach the upstream, also if a policy in shadow would reject them.
    pub fn passed(&self) -> u64 {
        [Outcome::Admitted, Outcome::Delayed, Outcome::Shadow]
            .into_iter()
            .fold(0, |sum, outcome| sum.saturating_add(self.of(outcome)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    pub first: Micros,
    pub length: Micros,
    pub count: usize,
}

impl Steps {
    /// The steps from the request that came first to the one that came last.
    pub fn of((first, last): (Micros, Micros)) -> Self {
        let span = last.since(first);
        let lengths = MILLIS.map(Micros::from_millis).into_iter().chain(SECONDS.map(Micros::from_secs));
        let widest = Micros::from_millis(span.0.div_ceil(1_000 * (MOST - 2)).max(1));
        let fits = |length: &Micros| span.0 / length.0.max(1) < MOST - 1;
        let length = lengths.into_iter().find(fits).unwrap_or(widest);
        let first = Micros(first.0 - first.0 % length.0.max(1));
        let count = usize::try_from(last.since(first).0 / length.0.max(1)).unwrap_or(0).saturating_add(1);
        Self { first, length, count }
    }

    fn place(&self, at: Micros) -> usize {
        usize::try_from(at.since(self.first).0 / self.length.0.max(1)).unwrap_or(usize::MAX)
    }

    pub fn start(&self, place: usize) -> Micros {
        let place = u64::try_from(place).unwrap_or(u64::MAX);
        self.first.plus(Micros(self.length.0.saturating_mul(place)))
    }
}

#[derive(Clone, Debug)]
pub struct Timeline {
    pub steps: Steps,
    /// For each step.
    pub counts: Vec<Counts>,
}

impl Timeline {
    pub fn new(steps: Steps) -> Self {
        Self { steps, counts: vec![Counts::default(); steps.count] }
    }

    pub fn add(&mut self, at: Micros, outcome: Outcome) {
        if let Some(counts) = self.counts.get_mut(self.steps.place(at)) {
            counts.add(outcome);
        }
    }

    /// The first step with the most requests, and how many they are.
    pub fn peak(&self) -> (usize, u64) {
        let sums = self.counts.iter().map(Counts::sum).enumerate();
        sums.fold((0, 0), |(place, most), (step, sum)| if sum > most { (step, sum) } else { (place, most) })
    }

    /// The most requests that pass in one step.
    pub fn most_passed(&self) -> u64 {
        self.counts.iter().map(Counts::passed).max().unwrap_or(0)
    }

    /// The counts of all steps together.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for counts in &self.counts {
            for (sum, count) in total.0.iter_mut().zip(counts.0) {
                *sum = sum.saturating_add(count);
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        let at = Micros::from_secs(1_700_000_003);
        for (span, length) in [
            (Micros::ZERO, Micros::from_millis(1)),
            (Micros::from_millis(700), Micros::from_millis(20)),
            (Micros::from_secs(50), Micros::from_secs(1)),
            (Micros::from_secs(3_600), Micros::from_secs(120)),
            (Micros::from_secs(86_400), Micros::from_secs(1_800)),
            (Micros::from_secs(365 * 86_400), Micros::from_secs(7 * 86_400)),
        ] {
            let steps = Steps::of((at, at.plus(span)));
            assert_eq!(steps.length, length, "{span}");
            assert_eq!(steps.first.0 % length.0, 0, "{span}");
            assert!((1..=60).contains(&steps.count), "{span}: {}", steps.count);
            let mut timeline = Timeline::new(steps);
            timeline.add(at, Outcome::Admitted);
            timeline.add(at.plus(span), Outcome::Denied);
            timeline.add(at.plus(span), Outcome::Shadow);
            let total = timeline.total();
            assert_eq!(Outcome::ALL.map(|outcome| total.of(outcome)), [1, 0, 0, 0, 1, 1], "{span}");
            let (place, most) = if steps.count == 1 { (0, 3) } else { (steps.count - 1, 2) };
            assert_eq!(timeline.peak(), (place, most), "{span}");
            assert_eq!(timeline.most_passed(), if steps.count == 1 { 2 } else { 1 }, "{span}");
        }
        let ages = Steps::of((Micros(1), Micros::from_secs(253_402_300_799)));
        assert!(ages.count <= 60, "{ages:?}");
    }
}
