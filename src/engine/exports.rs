// SPDX-License-Identifier: Apache-2.0
//! Values for the statistics and the log of the host.

use super::Engine;
use super::failure::StoreFailure;
use super::metrics::{Counters, Event};
use super::store::Outage;
use super::tally::{Listed, Top};
use crate::config::Config;
use crate::policy::{Mode, OnFailure, Policy};
use crate::time::Micros;

impl Engine {
    /// The counts since it began, and the values of its gauges now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::of(self)
    }

    /// Returns the failures since the last call, each with its store.
    pub fn take_failures(&mut self) -> Vec<(u8, StoreFailure)> {
        self.stores.take_failures()
    }

    /// The number of open breakers of all stores. A store has one for all of its slots, and one for each 64th of them.
    #[must_use]
    pub fn open_breakers(&self) -> u64 {
        self.stores.iter().map(|store| store.open_breakers()).sum()
    }

    /// The same, of the stores that decide requests. Others are only charged, or lend.
    pub(super) fn breakers_open(&self) -> u64 {
        // The gauge adds up all workers and outlives this engine, so a retired engine must not count in it.
        if self.is_retired {
            return 0;
        }
        let deciding = self.stores.iter().zip(0_u8..).filter(|(_, number)| decides(&self.config, *number));
        deciding.map(|(store, _)| store.open_breakers()).sum()
    }

    /// The number of policies that do not limit now: a breaker of their store is open, and their `on_failure` is `allow`.
    #[must_use]
    pub fn policies_off(&self) -> u64 {
        if self.breakers_open() == 0 {
            return 0;
        }
        let is_open = |policy: &Policy| {
            self.stores.peek(policy.regions.store()).is_some_and(|store| store.open_breakers() > 0)
        };
        let is_off = |policy: &&Policy| {
            policy.mode == Mode::Enforce && policy.on_failure == OnFailure::Allow && is_open(policy)
        };
        self.config.policies.iter().filter(is_off).count() as u64
    }

    /// Returns the store with an open breaker, the slots that are not asked about, and for how long; `None` while all breakers are closed.
    /// If breakers of several stores are open, it is the store with the longest outage.
    #[must_use]
    pub fn outage(&self, now: Micros) -> Option<(u8, Outage)> {
        self.stores.outage(self.clock.uptime(now))
    }

    /// The number of units that this worker has on lease.
    #[must_use]
    pub const fn on_lease(&self) -> u64 {
        self.requests.on_lease()
    }

    /// The number of requests that wait for a permit of a `concurrency` limit.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.requests.permit_queues.len() as u64
    }

    /// The number of requests that the engine keeps: their stream is open, or a batch in flight asks about them.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// The number of changes to the metrics that are not in [`counters`](Self::counters).
    pub(super) const fn changes(&self) -> u64 {
        self.requests.tally.count.wrapping_add(self.requests.synced())
    }

    /// Returns the values for the histograms, each with what it is of.
    pub(super) fn take_samples(&mut self) -> impl Iterator<Item = (Event, u64)> + use<> {
        // The way to a store that is only charged may be long, and no request waits for it.
        let Self { stores, config, .. } = self;
        let deciding = stores.iter_mut().zip(0_u8..).filter(|(_, number)| decides(config, *number));
        let samples: Vec<_> = deciding.flat_map(|(store, _)| store.samples.take()).collect();
        samples.into_iter().flat_map(|sample| [(Event::Latency, sample.took.0), (Event::Tasks, sample.tasks)])
    }

    /// The time at which the next list of subjects is due, by the host's clock.
    pub(super) fn top_due(&self) -> Option<Micros> {
        let tally = &self.requests.tally;
        [&tally.top_denied, &tally.top_used].into_iter().flatten().filter_map(Top::due).min()
    }

    /// Shows the subjects that are denied most and those that use most, each if it is time, and for how long they were counted.
    pub(super) fn take_top(&mut self, now: Micros, show: &dyn Fn(&str, &Listed, Micros)) {
        let tally = &mut self.requests.tally;
        for (what, top) in [("denied", &mut tally.top_denied), ("used", &mut tally.top_used)] {
            let Some(top) = top else { continue };
            if let Some((lasted, subjects)) = top.take(now) {
                subjects.iter().for_each(|subject| show(what, subject, lasted));
            }
            top.look(now);
        }
    }

    /// The number of subjects that wait for the usage journal.
    pub(super) fn usage_waiting(&self) -> u64 {
        self.requests.tally.usage.as_ref().map_or(0, |usage| usage.waiting() as u64)
    }
}

/// True if requests are decided by this store: that of this region, or one in which a policy is at home.
fn decides(config: &Config, store: u8) -> bool {
    store == 0 || config.policies.iter().any(|policy| policy.regions.store() == store)
}
