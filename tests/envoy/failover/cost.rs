// SPDX-License-Identifier: Apache-2.0
//! The cost of `store.min_replicas` while nothing fails: the duration of a request, and the CPU time of the primary for it.

use std::time::{Duration, Instant};

use crate::measure::World;
use crate::support::cluster::call;
use crate::support::{eventually, http, weir};
use crate::watched::Watched;
use crate::{CASES, Case, Fault, Form};

/// The cost of so many replicas that must acknowledge.
#[derive(Debug)]
pub struct Cost {
    pub min_replicas: u32,
    pub median: Duration,
    /// CPU time of the primary for each request.
    pub primary: Duration,
}

/// Requests of one at a time, in rounds: each round has some of each.
const ROUND: usize = 50;

pub fn measure(form: Form) -> Vec<Cost> {
    let worlds = [0, 1, 2].map(|min_replicas| {
        Watched::start(&Case { min_replicas, fault: Fault::Killed, refuses_writes: false, ..CASES[0] })
    });
    let cpu = |world: &Watched| Duration::from_secs_f64(world.primary().connect().cpu_seconds());
    // So that what is done once is not measured: each worker opens its connections.
    for world in &worlds {
        eventually("grants without an exception", || {
            let mut times = Vec::new();
            assert_eq!(call(&mut world.primary().connect(), &["FLUSHALL"]), "+OK\r\n");
            send(world, 0..ROUND, &mut times);
            (times.len() == ROUND).then_some(())
        });
    }
    let before = worlds.each_ref().map(cpu);
    let mut times = [const { Vec::new() }; 3];
    for round in 1..=form.cost_of / ROUND {
        for (world, times) in worlds.iter().zip(&mut times) {
            send(world, round * ROUND..(round + 1) * ROUND, times);
        }
    }
    let each = worlds.iter().zip(before).zip(times).zip(0..);
    let cost = |(((world, before), mut times), min_replicas): (((&Watched, _), Vec<Duration>), u32)| {
        times.sort_unstable();
        let primary = (cpu(world) - before) / u32::try_from(times.len()).expect("a number of requests");
        Cost { min_replicas, median: times[times.len() / 2], primary }
    };
    each.map(cost).collect()
}

/// Adds how long each request took that was granted.
fn send(world: &Watched, numbers: std::ops::Range<usize>, times: &mut Vec<Duration>) {
    for number in numbers {
        let request = weir::get().header("x-user", &Watched::user(number));
        let sent = Instant::now();
        let response = http::send(world.envoy().address("edge"), &request).expect("a response");
        times.extend((response.status == 200).then(|| sent.elapsed()));
    }
}
