// SPDX-License-Identifier: Apache-2.0
//! How often something happened over time, in steps of equal length.

use weir::time::Micros;

const MOST: u64 = 60;

/// The lengths that people read at once: in milliseconds, and from a second to a year in seconds.
const MILLIS: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const SECONDS: [u64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 2_592_000, 31_536_000,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is admitted at once.
    Admitted,
    /// It is admitted later.
    Delayed,
    /// It is rejected.
    Denied,
    /// A policy in shadow would reject it.
    Shadow,
}

impl Outcome {
    /// All of them, in the order in which charts have them.
    pub const ALL: [Self; 4] = [Self::Admitted, Self::Delayed, Self::Denied, Self::Shadow];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Delayed => "delayed",
            Self::Denied => "denied",
            Self::Shadow => "would be denied (shadow)",
        }
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
    /// For each step, a count for each of [`Outcome::ALL`].
    pub counts: Vec<[u64; 4]>,
}

impl Timeline {
    pub fn new(steps: Steps) -> Self {
        Self { steps, counts: vec![[0; 4]; steps.count] }
    }

    pub fn add(&mut self, at: Micros, outcome: Outcome) {
        let place = Outcome::ALL.iter().position(|each| *each == outcome).unwrap_or(0);
        if let Some(count) =
            self.counts.get_mut(self.steps.place(at)).and_then(|counts| counts.get_mut(place))
        {
            *count = count.saturating_add(1);
        }
    }

    /// The most that happened in one step.
    pub fn most(&self) -> u64 {
        let sum = |counts: &[u64; 4]| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        self.counts.iter().map(sum).max().unwrap_or(0)
    }

    /// How often it happened in all steps.
    pub fn total(&self, outcome: Outcome) -> u64 {
        let place = Outcome::ALL.iter().position(|each| *each == outcome).unwrap_or(0);
        self.counts.iter().filter_map(|counts| counts.get(place)).sum()
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
            assert_eq!(
                (timeline.total(Outcome::Admitted), timeline.total(Outcome::Denied)),
                (1, 1),
                "{span}"
            );
        }
        let ages = Steps::of((Micros(1), Micros::from_secs(253_402_300_799)));
        assert!(ages.count <= 60, "{ages:?}");
    }
}
