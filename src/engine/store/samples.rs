// SPDX-License-Identifier: Apache-2.0
//! The values for the histograms of each tick. Each value costs Envoy a call of its own, and a busy worker completes hundreds of batches in
//! a tick. So a bounded number is drawn at random: each batch of the tick with the same chance.

use crate::random::Random;
use crate::time::Micros;

/// At most this many batches of one tick are in the histograms.
const MAX: usize = 16;

/// A batch that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Sample {
    /// The time that the store took.
    pub took: Micros,
    /// The number of its tasks.
    pub tasks: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Samples {
    drawn: Vec<Sample>,
    /// The number of batches answered in this tick.
    seen: u64,
    random: Random,
}

impl Samples {
    pub const fn new(seed: u64) -> Self {
        Self { drawn: Vec::new(), seen: 0, random: Random::new(seed) }
    }

    /// A batch was answered.
    pub fn add(&mut self, took: Micros, tasks: usize) {
        let sample = Sample { took, tasks: tasks as u64 };
        self.seen = self.seen.saturating_add(1);
        if self.drawn.len() < MAX {
            return self.drawn.push(sample);
        }
        let place = usize::try_from(self.random.below(self.seen)).ok();
        if let Some(drawn) = place.and_then(|place| self.drawn.get_mut(place)) {
            *drawn = sample;
        }
    }

    /// Returns the batches drawn since the last call.
    pub fn take(&mut self) -> Vec<Sample> {
        self.seen = 0;
        std::mem::take(&mut self.drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_batches_are_all_there_and_of_many_each_has_the_same_chance() {
        let mut samples = Samples::new(7);
        (0..5).for_each(|took| samples.add(Micros(took), 1));
        assert_eq!(samples.take().iter().map(|sample| sample.took.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(samples.take().len(), 0);
        let mut drawn = [0_u32; 4];
        for _ in 0..500 {
            (0..400).for_each(|took| samples.add(Micros(took), 1));
            let taken = samples.take();
            assert_eq!(taken.len(), MAX);
            taken.iter().for_each(|sample| drawn[usize::try_from(sample.took.0 / 100).unwrap()] += 1);
        }
        // 2,000 of each quarter are expected; six standard deviations are 233.
        assert!(drawn.iter().all(|count| count.abs_diff(2_000) < 233), "{drawn:?}");
    }
}
