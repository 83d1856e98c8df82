// SPDX-License-Identifier: Apache-2.0
//! The clients: when each sends a request. The gaps between requests are drawn from a seed.

use weir::random::Random;

use super::{Clients, Setup};

/// The round trip between a flow's client and its edge, in microseconds.
const ROUND_TRIP: u64 = 100_000;

/// The random numbers of this seed.
pub const fn random(seed: u64) -> Random {
    Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// One that sends requests.
#[derive(Debug)]
pub struct Flow {
    pub region: usize,
    pace: Pace,
}

#[derive(Debug)]
enum Pace {
    /// Requests a second: first, and from this time on.
    Given { first: u64, then: u64, at: u64 },
    /// One request more in each round trip, until one is denied; then half as many.
    Adapted {
        /// Requests in a round trip.
        window: f64,
        /// The time at which it last slowed down.
        slowed: u64,
    },
}

/// The flows of a setup.
pub fn flows(setup: &Setup) -> Vec<Flow> {
    let given = |region, first, then, at| Flow { region, pace: Pace::Given { first, then, at } };
    match &setup.clients {
        Clients::Rates(rates) => {
            rates.iter().enumerate().map(|(region, rate)| given(region, *rate, *rate, 0)).collect()
        }
        Clients::Moving { first, then, at } => {
            let rates = first.iter().zip(then).enumerate();
            rates.map(|(region, (first, then))| given(region, *first, *then, at * 1_000_000)).collect()
        }
        Clients::Flows(counts) => {
            let regions = counts.iter().enumerate().flat_map(|(region, count)| vec![region; *count]);
            regions.map(|region| Flow { region, pace: Pace::Adapted { window: 2.0, slowed: 0 } }).collect()
        }
    }
}

impl Flow {
    /// Returns true if it sends a request now, and the time of the next one. If it sends nothing now, this is the time to look again.
    pub fn next(&self, now: u64, random: &mut Random) -> (bool, Option<u64>) {
        let mean = match self.pace {
            Pace::Given { first, then, at } => {
                let rate = if now < at { first } else { then };
                if rate == 0 {
                    return (false, (now < at).then_some(at));
                }
                let gap = 1_000_000 / rate;
                if now < at && now + gap > at {
                    return (true, Some(at));
                }
                gap
            }
            Pace::Adapted { window, .. } => (ROUND_TRIP as f64 / window) as u64,
        };
        // Between nothing and twice the mean.
        (true, Some(now + 1 + random.below(2 * mean)))
    }

    /// Its request was admitted, or not.
    pub fn decided(&mut self, admitted: bool, now: u64) {
        if let Pace::Adapted { window, slowed } = &mut self.pace {
            if admitted {
                *window += 1.0 / *window;
            } else if now >= *slowed + ROUND_TRIP {
                *window = (*window / 2.0).max(1.0);
                *slowed = now;
            }
        }
    }
}
