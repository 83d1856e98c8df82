// SPDX-License-Identifier: Apache-2.0
//! The regions of weir: workers with real engines, stores, and clocks that differ.

use std::collections::VecDeque;

use super::{Run, Setup, Way, clients};
use crate::worker::check_of;
use crate::world::{Network, World};

/// One way from a worker to the store of its own region, in microseconds.
const NEAR: u64 = 200;

/// The clocks of two neighbouring regions differ by this, in microseconds.
const SKEW: i64 = 1_700_000;

/// How far what a worker keeps for other regions moves in an interval, in percent, if it is granted twice its fair part.
const KEEPS_MORE: f64 = 10.0;

/// A worker is granted its fair part if it has so many times it.
const FAIR_ENOUGH: f64 = 1.05;

/// What a new interval counts in the averages of a worker.
const NEW: f64 = 0.25;

/// What a worker knows of demand, if shares are to follow it.
#[derive(Clone, Default)]
struct Demand {
    /// Since it was published last.
    came: u64,
    granted: u64,
    /// The averages, a second.
    demand: f64,
    grants: f64,
    /// How many percent of its region's part it keeps for other regions.
    kept: f64,
}

impl Demand {
    fn publish(&mut self, setup: &Setup) -> f64 {
        let rate = |count: &mut u64| std::mem::take(count) as f64 * 1_000_000.0 / setup.sync_interval as f64;
        self.demand += NEW * (rate(&mut self.came) - self.demand);
        self.grants += NEW * (rate(&mut self.granted) - self.grants);
        self.demand
    }

    /// The demand of all workers is known.
    fn adjust(&mut self, all: f64, setup: &Setup) {
        let fair = self.demand * (setup.rate as f64 / all.max(1.0)).min(1.0);
        let more = if fair > 0.0 { (self.grants / fair - FAIR_ENOUGH).clamp(-1.0, 1.0) } else { -1.0 };
        self.kept = (self.kept + KEEPS_MORE * more).clamp(0.0, 90.0);
    }
}

pub fn run(setup: &Setup) -> Run {
    let configs: Vec<_> = (0..setup.regions).map(|region| setup.config(region)).collect();
    let mut world = World::new(&configs, setup.workers, setup.seed);
    let network = |trip| Network { trip, jitter: 0, lost_percent: 0, breaks: false };
    (world.near, world.far) = (network(NEAR), network(setup.delay));
    for host in &mut world.workers {
        host.skew = SKEW * host.region as i64;
    }
    for (store, region) in world.stores.iter_mut().zip(0..) {
        store.skew = SKEW * region;
    }
    let mut demands = vec![Demand::default(); world.workers.len()];
    let mut published = VecDeque::new();
    let (mut flows, mut random, mut run) =
        (clients::flows(setup), clients::random(setup.seed), Run::default());
    // Each flow has a number, and so have the events that all regions publish their demand, and that it is known.
    let (publish, known) = (flows.len(), flows.len() + 1);
    for flow in 0..flows.len() {
        world.call(random.below(100_000), flow);
    }
    if setup.way == Way::Following {
        world.call(setup.sync_interval, publish);
    }
    loop {
        let called = world.next(setup.micros() - 1);
        for (at, stream, admitted) in world.ledger.decisions.drain(..) {
            let flow = run.sent[stream as usize - 1].1;
            flows[usize::from(flow)].decided(admitted, at);
            if admitted {
                demands[world.ledger.requests[&stream].worker].granted += 1;
                run.admitted.push((at, flow));
            }
        }
        match called {
            None => break,
            Some(number) if number == publish => {
                published.push_back(demands.iter_mut().map(|demand| demand.publish(setup)).sum());
                run.messages += (setup.regions * (setup.regions - 1)) as u64;
                world.call(world.time + setup.delay, known);
                world.call(world.time + setup.sync_interval, publish);
            }
            Some(number) if number == known => {
                let all = published.pop_front().expect("a demand");
                demands.iter_mut().for_each(|demand| demand.adjust(all, setup));
            }
            Some(flow) => {
                let (sends, next) = flows[flow].next(world.time, &mut random);
                if let Some(next) = next {
                    world.call(next, flow);
                }
                if !sends {
                    continue;
                }
                let worker = flows[flow].region * setup.workers + random.below(setup.workers as u64) as usize;
                let mut check = check_of(0, "{p|all}", 1);
                if setup.way == Way::Home {
                    check.store = world.workers[worker]
                        .stores
                        .iter()
                        .position(|region| *region == 0)
                        .expect("the home") as u8;
                }
                demands[worker].came += 1;
                if setup.way == Way::Following {
                    check.kept_percent = demands[worker].kept as u8;
                }
                run.sent.push((world.time, u16::try_from(flow).expect("few flows")));
                world.arrive(worker, vec![check]);
            }
        }
    }
    assert!(world.failures.is_empty(), "{:?}", world.failures);
    run.messages += world.messages;
    run
}
