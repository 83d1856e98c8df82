// SPDX-License-Identifier: Apache-2.0
//! The simulations for the documents and for the test, with their bounds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Clients, Figures, Run, Setup, Shape, Way};

/// One row: a setup, and the least that it admits of what one store would, in percent.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub setup: Setup,
    pub least: f64,
}

/// The most units by which the admitted requests may exceed the limit, over any span.
///
/// - `home`: none as its store counts. At the edges requests of a far region are admitted one trip later, so requests sent within one trip
///   there and back may come together.
/// - `debit`: each other region may grant its whole limit, and what flows back in one interval and one trip, before it is charged.
/// - `share`: none as the stores count. Borrowed units may be used two intervals and one trip later.
///
/// A `sliding_window` counts in slots: there is one slot's part more.
pub fn bound(setup: &Setup) -> u64 {
    let flows_in = |span: u64| (setup.rate * span).div_ceil(1_000_000);
    let (others, trip) = (setup.regions as u64 - 1, 2 * setup.delay);
    // A batch waits for 10 ms at most for the one before it.
    let interval = setup.sync_interval + 10_000;
    let slot = if setup.shape == Shape::SlidingWindow { setup.burst / 20 } else { 0 };
    let later = |span: u64| if setup.shape.is_bucket() { flows_in(span) } else { sent_in(setup, span) };
    slot + match setup.way {
        Way::One | Way::RandomDrop | Way::FlowShare => 0,
        Way::Home => later(trip),
        Way::Share => later(2 * interval + trip),
        Way::Debit if setup.shape.is_bucket() => others * (setup.burst + flows_in(interval + trip)),
        Way::Debit if setup.shape == Shape::FixedWindow => 2 * others * setup.burst,
        Way::Debit => others * setup.burst,
    }
}

/// The most that clients send in a span.
fn sent_in(setup: &Setup, span: u64) -> u64 {
    let sum = |rates: &[u64]| rates.iter().sum::<u64>();
    let rate = match &setup.clients {
        Clients::Rates(rates) => sum(rates),
        Clients::Moving { first, then, .. } => sum(first).max(sum(then)),
        Clients::Flows(_) => setup.rate * 4,
    };
    (rate * span).div_ceil(1_000_000)
}

const WAYS: [Way; 3] = [Way::Home, Way::Debit, Way::Share];

/// The cases of the table.
pub fn table() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add =
        |name: &str, setup: Setup, least: f64| cases.push(Case { name: name.to_owned(), setup, least });
    for way in WAYS {
        let usual = Setup::usual(way);
        for shape in Shape::ALL {
            add(shape.name(), Setup { shape, clients: Clients::zipf(200, 3), ..usual.clone() }, 90.0);
        }
        add("the same demand everywhere", usual.clone(), 97.0);
        add(
            "10 % more than the limit",
            Setup { clients: Clients::zipf(110, 3), burst: 50, ..usual.clone() },
            95.0,
        );
        add("all in one region", Setup { clients: Clients::Rates(vec![200, 0, 0]), ..usual.clone() }, 97.0);
        add("5 ms apart", Setup { delay: 5_000, clients: Clients::zipf(200, 3), ..usual.clone() }, 97.0);
        add("300 ms apart", Setup { delay: 300_000, clients: Clients::zipf(200, 3), ..usual.clone() }, 97.0);
        if way != Way::Home {
            let every =
                |sync_interval| Setup { sync_interval, clients: Clients::zipf(200, 3), ..usual.clone() };
            add("sync_interval 50 ms", every(50_000), 97.0);
            add("sync_interval 1 s", every(1_000_000), 90.0);
        }
        if way == Way::Share {
            let short = Setup { shape: Shape::FixedWindow, burst: 10, ..usual.clone() };
            add("fixed_window of 100 ms", short, 30.0);
            add(
                "sync_interval 5 s",
                Setup { sync_interval: 5_000_000, clients: Clients::zipf(200, 3), ..usual.clone() },
                95.0,
            );
        }
        add("2 regions", Setup { regions: 2, clients: Clients::zipf(200, 2), ..usual.clone() }, 97.0);
        add("8 regions", Setup { regions: 8, clients: Clients::zipf(200, 8), ..usual.clone() }, 95.0);
    }
    for (interval, sync_interval, least) in
        [("200 ms", 200_000, 90.0), ("1 s", 1_000_000, 70.0), ("5 s", 5_000_000, 10.0)]
    {
        let mut rates = vec![0; 8];
        rates[0] = 200;
        let clients = Clients::Rates(rates);
        let setup =
            Setup { regions: 8, sync_interval, clients, seconds: 16, from: 6, ..Setup::usual(Way::Share) };
        add(&format!("8 regions, all in one, sync_interval {interval}"), setup, least);
    }
    cases
}

/// Demand that moves from one region to another after four seconds.
pub fn moving(way: Way) -> Setup {
    Setup { clients: Clients::moving(200, 3, 4), seconds: 8, ..Setup::usual(way) }
}

/// The workload of the paper: flows that adapt, three at one limiter and seven at the other.
pub fn flows(way: Way) -> Setup {
    let usual = Setup::usual(way);
    Setup {
        regions: 2,
        workers: 1,
        clients: Clients::Flows(vec![3, 7]),
        rate: 300,
        burst: 100,
        seconds: 14,
        from: 5,
        ..usual
    }
}

/// Three regions that all demand more than their share: 109, 54 and 36 requests a second. The limit admits 100 in all.
pub fn unequal(way: Way) -> Setup {
    Setup { clients: Clients::zipf(200, 3), burst: 50, ..Setup::usual(way) }
}

/// Regions that wake up at the same time, to measure what they admit beyond the limit, by the sync interval in milliseconds.
pub fn woken(regions: usize, sync_interval_ms: u64) -> Setup {
    let clients = Clients::uniform(600, regions);
    let sync_interval = sync_interval_ms * 1_000;
    Setup { regions, clients, sync_interval, seconds: 3, from: 1, ..Setup::usual(Way::Debit) }
}

/// A number of regions, with most of the demand in few of them, and a burst.
pub fn spread(regions: usize, burst: u64) -> Setup {
    let clients = Clients::zipf(200, regions);
    Setup { regions, clients, burst, seconds: 6, from: 3, ..Setup::usual(Way::Share) }
}

/// Runs all of these, on as many threads as there are processors.
pub fn run_all(setups: &[Setup]) -> Vec<(Run, Figures)> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((place, setup)) = {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    setups.get(place).map(|setup| (place, setup))
                } {
                    let run = super::run(setup);
                    let figures = Figures::new(setup, &run);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((place, run, figures));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(results.len(), setups.len(), "a run has failed");
    results.sort_by_key(|(place, ..)| *place);
    results.into_iter().map(|(_, run, figures)| (run, figures)).collect()
}
