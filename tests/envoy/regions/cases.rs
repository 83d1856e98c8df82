// SPDX-License-Identifier: Apache-2.0
//! The events in the regions, case by case.

use std::time::Duration;

use crate::support::proxy;
use crate::world::BETWEEN;

/// The demand on each region, in percent of the limit's rate.
pub type Demand = [u32; 3];

/// A phase of a case.
#[derive(Debug)]
pub struct Phase {
    /// In the full form.
    pub lasts: Duration,
    pub demand: Demand,
    pub event: Event,
    /// True if the limit is to be used up meanwhile.
    pub is_steady: bool,
}

/// The event at the beginning of a phase.
#[derive(Debug)]
pub enum Event {
    None,
    /// Each region is asked for twice the burst at once.
    Burst,
    /// All ways between regions become like this.
    Ways(proxy::Way),
    /// The ways to and from the last region become like this.
    SlowRegion(proxy::Way),
    /// The last region is cut off from the others, but not from its clients.
    Cut,
    /// The last region's Redis stops.
    Lost,
    /// It starts again, empty.
    Back,
}

/// A case begins with regions that are whole and a subject that is new.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub phases: &'static [Phase],
    pub has_skewed_clocks: bool,
    /// The phase after which the time until the limit is used again is measured.
    pub converges_after: Option<usize>,
    /// True if `share` and `debit` have to use the limit up in the steady phases.
    pub uses_the_limit: bool,
}

const fn phase(seconds: u64, demand: Demand, event: Event) -> Phase {
    Phase { lasts: Duration::from_secs(seconds), demand, event, is_steady: false }
}

const fn steady(seconds: u64, demand: Demand) -> Phase {
    Phase { is_steady: true, ..phase(seconds, demand, Event::None) }
}

const EVERYWHERE: Demand = [80; 3];

/// In all three times the limit.
const MUCH: Demand = [100; 3];

/// A way on which one packet in a hundred is lost.
const LOSSY: proxy::Way = proxy::Way { lost: 10, ..BETWEEN };
const SLOW: proxy::Way = proxy::Way { trip: Duration::from_millis(300), ..BETWEEN };

const CASE: Case =
    Case { name: "", phases: &[], has_skewed_clocks: false, converges_after: None, uses_the_limit: true };

pub const CASES: &[Case] = &[
    Case {
        name: "a burst everywhere at once",
        phases: &[phase(6, [0; 3], Event::Burst)],
        uses_the_limit: false,
        ..CASE
    },
    Case {
        name: "one subject everywhere",
        phases: &[phase(3, EVERYWHERE, Event::None), steady(12, EVERYWHERE)],
        ..CASE
    },
    Case {
        name: "one subject, unevenly",
        phases: &[phase(3, [20, 150, 10], Event::None), steady(12, [20, 150, 10])],
        ..CASE
    },
    Case {
        name: "in one region only",
        phases: &[phase(3, [0, 200, 0], Event::None), steady(12, [0, 200, 0])],
        ..CASE
    },
    Case {
        name: "moving from region to region",
        phases: &[
            phase(6, [200, 0, 0], Event::None),
            phase(6, [0, 200, 0], Event::None),
            phase(6, [0, 0, 200], Event::None),
        ],
        converges_after: Some(1),
        uses_the_limit: false,
        ..CASE
    },
    Case {
        name: "a region cut off and healed",
        phases: &[
            phase(6, MUCH, Event::None),
            phase(10, MUCH, Event::Cut),
            phase(10, MUCH, Event::Ways(BETWEEN)),
        ],
        converges_after: Some(2),
        uses_the_limit: false,
        ..CASE
    },
    Case {
        name: "a slow region",
        phases: &[phase(4, EVERYWHERE, Event::SlowRegion(SLOW)), steady(12, EVERYWHERE)],
        ..CASE
    },
    Case {
        name: "a region's Redis lost, and back empty",
        phases: &[phase(6, MUCH, Event::None), phase(6, MUCH, Event::Lost), phase(6, MUCH, Event::Back)],
        uses_the_limit: false,
        ..CASE
    },
    Case {
        name: "1 % of packets lost",
        phases: &[phase(3, [20, 150, 10], Event::Ways(LOSSY)), steady(12, [20, 150, 10])],
        ..CASE
    },
    Case {
        name: "clocks that differ by seconds",
        phases: &[phase(3, [20, 150, 10], Event::None), steady(12, [20, 150, 10])],
        has_skewed_clocks: true,
        ..CASE
    },
];
