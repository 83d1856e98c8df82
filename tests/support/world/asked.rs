// SPDX-License-Identifier: Apache-2.0
//! Questions of a single test to a world, and its requests.

use weir::config::Evaluation;
use weir::engine::{StoreFailure, StreamId};
use weir::policy::Check;
use weir::request::sample::Sample;

use super::World;
use crate::worker::check_of;

impl World {
    pub fn behaves(&mut self, distance: u64, jitter: u64, capacity: u64) {
        self.near.trip = distance / 2;
        self.stores[0].jitter = jitter;
        self.stores[0].capacity = capacity;
    }

    /// A check of a subject that no other request has.
    pub fn alone(&self) -> Vec<Check> {
        vec![check_of(0, format!("{{p0|u{}}}", self.arrived()), 1)]
    }

    /// So many requests a second arrive until this time. Returns how many have arrived then.
    pub fn arrive_until(&mut self, end: u64, rate: u64) -> u32 {
        while self.time < end {
            self.arrive(0, self.alone());
            let pause = self.random(2 * 1_000_000 / rate);
            self.run(pause.min(end - self.time));
        }
        self.arrived()
    }

    /// The number of these requests that the store has decided.
    pub fn decided(&self, from: u32, to: u32) -> u64 {
        self.ledger.requests.range(from + 1..=to).filter(|(_, request)| request.is_rejected()).count() as u64
    }

    /// The number of requests that some policy has decided without the store.
    pub fn without_store(&self) -> u64 {
        self.engine(0).counters().fallback
    }

    /// The number of requests that were refused a place in the queue.
    pub fn overloaded(&self) -> usize {
        self.failures.iter().filter(|failure| matches!(failure, StoreFailure::Overloaded)).count()
    }

    /// The number of slots that are not asked about, if the store is not asked.
    pub fn outage(&mut self) -> Option<Option<u32>> {
        let worker = self.worker(0);
        worker.engine.outage(worker.now).map(|(_, outage)| outage.slots)
    }

    /// A request arrives in a region, of one policy.
    pub fn arrive_in(&mut self, region: usize, policy: usize, subject: &str) -> StreamId {
        self.arrive_under(region, &[policy], (subject, 1))
    }

    /// A request arrives, of several policies. It costs so much, as its header and its body say.
    pub fn arrive_under(
        &mut self,
        region: usize,
        policies: &[usize],
        (subject, cost): (&str, u64),
    ) -> StreamId {
        let config = self.engine(region).config();
        let request = Sample::default().header("x-cost", cost.to_string());
        let request = request.with_body(format!(r#"{{"cost": {cost}}}"#));
        let Evaluation::Check(checks) = config.evaluate(&request) else { panic!("no check") };
        let checks = checks.into_iter().filter(|check| policies.contains(&check.policy));
        let tagged = |check: Check| {
            let tag = format!("{{{}|{subject}}}", config.policies[check.policy].name).into();
            Check { tag, ..check }
        };
        let checks: Vec<_> = checks.map(tagged).collect();
        assert!(checks.len() == policies.len() && checks.iter().all(|check| check.cost == cost));
        self.arrive(region, checks)
    }

    /// One that costs at most so much.
    pub fn cost(&mut self, most: u64) -> u64 {
        1 + self.random(most)
    }

    /// Requests arrive in these regions, one in each every so many microseconds, while time passes. Each costs at most so much.
    pub fn load_of(&mut self, regions: &[usize], most: u64, every: u64, span: u64) {
        let end = self.time + span;
        while self.time < end {
            for region in regions {
                let cost = self.cost(most);
                self.arrive_under(*region, &[0], ("ann", cost));
            }
            self.run(every);
        }
    }

    pub fn load(&mut self, regions: &[usize], every: u64, span: u64) {
        self.load_of(regions, 1, every, span);
    }
}
