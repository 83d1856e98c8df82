// SPDX-License-Identifier: Apache-2.0
//! The regions of weir: workers with real engines, stores, and clocks that differ.

use super::{Run, Setup, Way, clients};
use crate::worker::check_of;
use crate::world::{Network, World};

/// One way from a worker to the store of its own region, in microseconds.
const NEAR: u64 = 200;

/// The clocks of two neighbouring regions differ by this, in microseconds.
const SKEW: i64 = 1_700_000;

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
    let (mut flows, mut random, mut run) =
        (clients::flows(setup), clients::random(setup.seed), Run::default());
    for flow in 0..flows.len() {
        world.call(random.below(100_000), flow);
    }
    loop {
        let called = world.next(setup.micros() - 1);
        for (at, stream, admitted) in world.ledger.decisions.drain(..) {
            let flow = run.sent[stream as usize - 1].1;
            flows[usize::from(flow)].decided(admitted, at);
            if admitted {
                run.admitted.push((at, flow));
            }
        }
        let Some(flow) = called else { break };
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
            check.store =
                world.workers[worker].stores.iter().position(|region| *region == 0).expect("the home") as u8;
        }
        run.sent.push((world.time, u16::try_from(flow).expect("few flows")));
        world.arrive(worker, vec![check]);
    }
    assert!(world.failures.is_empty(), "{:?}", world.failures);
    run.messages += world.messages;
    run
}
