// SPDX-License-Identifier: Apache-2.0
//! Medians, their spread, and ratios with an interval: what can be said of figures that were measured in rounds on a noisy machine.

use weir::random::Random;

/// The number of times that the rounds are drawn again for an interval.
const DRAWS: usize = 2_000;

/// With fewer rounds than this, an interval says little, so nothing is decided.
const ENOUGH: usize = 8;

pub fn median(figures: &[f64]) -> f64 {
    quantile(figures, 0.5)
}

/// Half the distance between the quartiles: half of the rounds were about this close to the median.
pub fn spread(figures: &[f64]) -> f64 {
    (quantile(figures, 0.75) - quantile(figures, 0.25)) / 2.0
}

fn quantile(figures: &[f64], part: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = part * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) if low == high => *low,
        (Some(low), Some(high)) => low + (high - low) * place.fract(),
        _ => f64::NAN,
    }
}

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub is: f64,
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
}

/// A pair of each round, measured shortly after one another: the median of the first by the median of the second.
///
/// The interval is a bootstrap: the rounds are drawn again, whole, with replacement. A disturbance of a whole round slows down both figures
/// of its pair, so it does not widen the interval. The seed is fixed, so the same rounds always give the same interval.
pub fn ratio(rounds: &[[f64; 2]]) -> Option<Estimate> {
    if rounds.is_empty() {
        return None;
    }
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut drawn = Vec::with_capacity(DRAWS);
    let mut again = rounds.to_vec();
    for _ in 0..DRAWS {
        for place in &mut again {
            *place = rounds[random.draw_high() as usize % rounds.len()];
        }
        drawn.push(of_medians(&again));
    }
    Some(Estimate {
        is: of_medians(rounds),
        low: quantile(&drawn, 0.025),
        high: quantile(&drawn, 0.975),
        rounds: rounds.len(),
    })
}

/// A figure without a counterpart.
pub fn single(rounds: impl Iterator<Item = f64>) -> Option<Estimate> {
    ratio(&rounds.map(|figure| [figure, 1.0]).collect::<Vec<_>>())
}

/// Infinite when the second is not positive: then the noise is larger than what was to be measured.
fn of_medians(rounds: &[[f64; 2]]) -> f64 {
    let [first, second] =
        [0, 1].map(|which| median(&rounds.iter().map(|pair| pair[which]).collect::<Vec<_>>()));
    if second > 0.0 { first / second } else { f64::INFINITY }
}

impl Estimate {
    /// Says something only when the whole interval is on one side of the bound.
    pub fn verdict(&self, at_most: f64) -> &'static str {
        if self.rounds < ENOUGH {
            "not decided: too few rounds"
        } else if self.high <= at_most {
            "met"
        } else if self.low > at_most {
            "missed"
        } else {
            "not decided"
        }
    }
}
