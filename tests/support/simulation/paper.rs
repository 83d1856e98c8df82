// SPDX-License-Identifier: Apache-2.0
//! Two schemes to compare with, after B. Raghavan, K. Vishwanath, S. Ramabhadran, K. Yocum, A. Snoeren, *Cloud control with distributed
//! rate limiting*, SIGCOMM 2007. They are short versions, written from what is known of the paper and not checked against its text: the
//! constants are ours, and each limiter tells all others instead of some. So they show the ideas, and not what the authors measured.
//!
//! A limiter in each region knows what the others have told it. Nothing is counted together, so they may admit more than the limit for as
//! long as their estimates are old.
//!
//! - **Global random drop**: the sum of all demands is D. If that is above the limit L, each limiter drops a request with the probability
//!   (D − L) / D.
//! - **Flow proportional share**: each limiter has a token bucket with a share of L in proportion to its weight. If a limiter's demand
//!   fills its share, its weight is the number of flows of the rate of its fastest flow that fit into the share. Otherwise it has the
//!   weight by which its share would be its demand.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weir::random::Random;

use super::clients;
use super::{Run, Setup, Way};

/// The interval at which a limiter makes an estimate, and sends it, in microseconds.
const INTERVAL: u64 = 50_000;

/// The weight of a new estimate in the average.
const NEW: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Sends(usize),
    /// All limiters make their estimates.
    Estimate,
    /// The estimates that were made so long ago have reached all others.
    Arrive,
}

#[derive(Clone, Debug)]
struct Limiter {
    /// Requests since the last estimate.
    came: u64,
    /// The same, of each flow, those that were admitted.
    admitted: Vec<u64>,
    /// Requests a second, and those admitted of each flow.
    demand: f64,
    flows: Vec<f64>,
    weight: f64,
    /// The sum of what the others have said.
    others: f64,
    /// Its part of the rate, and what is in its bucket, at that time.
    part: f64,
    tokens: f64,
    filled: u64,
}

pub fn run(setup: &Setup) -> Run {
    let mut flows = clients::flows(setup);
    let (limit, regions) = (setup.rate as f64, setup.regions as f64);
    let limiter = Limiter {
        came: 0,
        admitted: vec![0; flows.len()],
        demand: 0.0,
        flows: vec![0.0; flows.len()],
        weight: 1.0,
        others: if setup.way == Way::FlowShare { regions - 1.0 } else { 0.0 },
        part: limit / regions,
        tokens: setup.burst as f64 / regions,
        filled: 0,
    };
    let mut limiters = vec![limiter; setup.regions];
    let (mut run, mut random) = (Run::default(), clients::random(setup.seed));
    let (mut events, mut number, mut on_the_way) = (BinaryHeap::new(), 0_u64, VecDeque::new());
    let mut schedule = |events: &mut BinaryHeap<_>, at: u64, event| {
        number += 1;
        events.push(Reverse((at, number, event)));
    };
    for flow in 0..flows.len() {
        schedule(&mut events, random.below(100_000), Event::Sends(flow));
    }
    schedule(&mut events, INTERVAL, Event::Estimate);
    while let Some(Reverse((now, _, event))) = events.pop()
        && now < setup.micros()
    {
        match event {
            Event::Sends(flow) => {
                let (sends, next) = flows[flow].next(now, &mut random);
                if let Some(next) = next {
                    schedule(&mut events, next, event);
                }
                if sends {
                    run.sent.push((now, flow as u16));
                    let admits = limiters[flows[flow].region].admits(flow, setup, now, &mut random);
                    flows[flow].decided(admits, now);
                    if admits {
                        run.admitted.push((now, flow as u16));
                    }
                }
            }
            Event::Estimate => {
                limiters.iter_mut().for_each(|limiter| limiter.estimate(setup));
                let said: Vec<f64> = limiters.iter().map(|limiter| limiter.says(setup.way)).collect();
                on_the_way.push_back(said);
                run.messages += setup.regions as u64 * (setup.regions as u64 - 1);
                schedule(&mut events, now + setup.delay, Event::Arrive);
                schedule(&mut events, now + INTERVAL, Event::Estimate);
            }
            Event::Arrive => {
                let said = on_the_way.pop_front().expect("estimates");
                let all: f64 = said.iter().sum();
                for (limiter, own) in limiters.iter_mut().zip(said) {
                    limiter.others = all - own;
                }
            }
        }
    }
    run
}

impl Limiter {
    fn says(&self, way: Way) -> f64 {
        if way == Way::FlowShare { self.weight } else { self.demand }
    }

    fn admits(&mut self, flow: usize, setup: &Setup, now: u64, random: &mut Random) -> bool {
        self.came += 1;
        let limit = setup.rate as f64;
        let admits = if setup.way == Way::RandomDrop {
            let demand = self.demand + self.others;
            let surplus = (demand - limit).max(0.0);
            random.below(1_000_000) as f64 >= surplus / demand.max(1.0) * 1_000_000.0
        } else {
            let most = setup.burst as f64 * self.part / limit;
            let more = (now - self.filled) as f64 * self.part / 1_000_000.0;
            (self.tokens, self.filled) = ((self.tokens + more).min(most.max(1.0)), now);
            let admits = self.tokens >= 1.0;
            self.tokens -= if admits { 1.0 } else { 0.0 };
            admits
        };
        self.admitted[flow] += u64::from(admits);
        admits
    }

    fn estimate(&mut self, setup: &Setup) {
        let rate = |count: &mut u64| std::mem::take(count) as f64 * 1_000_000.0 / INTERVAL as f64;
        let average = |before: &mut f64, new: f64| *before += NEW * (new - *before);
        average(&mut self.demand, rate(&mut self.came));
        for (flow, admitted) in self.flows.iter_mut().zip(&mut self.admitted) {
            average(flow, rate(admitted));
        }
        if setup.way == Way::FlowShare {
            let limit = setup.rate as f64;
            let fastest = self.flows.iter().copied().fold(0.0, f64::max);
            let ideal = if self.demand >= self.part {
                self.part / fastest.max(1.0)
            } else {
                self.demand * self.others / (limit - self.demand).max(1.0)
            };
            average(&mut self.weight, ideal.max(0.01));
            self.part = self.weight * limit / (self.weight + self.others);
        }
    }
}
