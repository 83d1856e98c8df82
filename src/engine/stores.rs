// SPDX-License-Identifier: Apache-2.0
//! The stores of a worker. Each [`Store`] has task queues, a congestion window, breakers and a deadline of its own. So a store that is slow or unavailable does not affect the others.

use std::rc::Rc;

use super::BatchId;
use super::clock::Now;
use super::failure::StoreFailure;
use super::store::{NotAsked, Outage, Slots, Store, Waiter, store_of};
use crate::config::Config;
use crate::policy::Check;
use crate::time::Micros;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Stores {
    /// In the order of the configuration: the first is that of this region.
    all: Vec<Store>,
    /// The store that is asked first for a batch to send. It changes, so that none always comes last.
    first: u8,
}

impl Stores {
    pub fn new(config: &Rc<Config>, seed: u64) -> Self {
        let regions = config.regions.all.iter().zip(0_u8..);
        let store = |(region, number): (_, u8)| {
            Store::new(Rc::clone(config), number, region, seed.rotate_left(number.into()))
        };
        Self { all: regions.map(store).collect(), first: 0 }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Store> {
        self.all.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Store> {
        self.all.iter_mut()
    }

    /// The store of this region, which has the journal.
    pub fn own(&mut self) -> Option<&mut Store> {
        self.all.first_mut()
    }

    pub fn get(&mut self, store: u8) -> Option<&mut Store> {
        self.all.get_mut(usize::from(store))
    }

    pub fn peek(&self, store: u8) -> Option<&Store> {
        self.all.get(usize::from(store))
    }

    /// The store that this check is about.
    pub fn of(&self, check: &Check) -> Option<&Store> {
        self.peek(check.store)
    }

    /// The same.
    pub fn of_mut(&mut self, check: &Check) -> Option<&mut Store> {
        self.get(check.store)
    }

    /// The store that a batch was sent to, and its number.
    pub fn of_batch(&mut self, id: BatchId) -> Option<(u8, &mut Store)> {
        let store = u8::try_from(store_of(id)).ok()?;
        Some((store, self.get(store)?))
    }

    /// The numbers of the stores in rotation, beginning with the next one.
    pub fn turns(&mut self) -> impl Iterator<Item = u8> + use<> {
        // There are 32 at most.
        let (first, count) = (self.first, u8::try_from(self.all.len()).unwrap_or(u8::MAX));
        let next = first.saturating_add(1);
        self.first = if next < count { next } else { 0 };
        (first..count).chain(0..first.min(count))
    }

    /// The slots of a check, if its store is asked about it now.
    pub fn admits(&self, check: &Check, now: Now) -> Result<Slots, NotAsked> {
        self.of(check).map_or(Err(NotAsked::BreakerOpen), |store| store.admits(check, now))
    }

    /// Asks the store of a check about it, for a request that waits.
    pub fn ask(&mut self, check: &Rc<Check>, waiter: Waiter, slots: Slots, now: Now) {
        if let Some(store) = self.of_mut(check) {
            store.ask(check, waiter, slots, now);
        }
    }

    /// Counts why a request was decided without this store.
    pub fn count_failure(&mut self, store: u8, failure: StoreFailure) {
        if let Some(store) = self.get(store) {
            store.count_failure(failure);
        }
    }

    /// Returns the failures, each with its store.
    pub fn take_failures(&mut self) -> Vec<(u8, StoreFailure)> {
        let mut failures = Vec::new();
        for (store, number) in self.all.iter_mut().zip(0..) {
            failures.extend(store.take_failures().into_iter().map(|failure| (number, failure)));
        }
        failures
    }

    /// Returns the longest outage, with its store.
    pub fn outage(&self, uptime: Micros) -> Option<(u8, Outage)> {
        let outages =
            self.all.iter().zip(0..).filter_map(|(store, number)| Some((number, store.outage(uptime)?)));
        outages.max_by_key(|(_, outage)| outage.lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_comes_first_in_its_turn() {
        let region = |name: &&str| format!(r#"{{"name": "{name}", "cluster": "{name}"}}"#);
        let policy = r#"{"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}]}"#;
        for (names, turns) in [
            (vec![], [vec![0], vec![0], vec![0], vec![0]]),
            (vec!["a", "b"], [vec![0, 1], vec![1, 0], vec![0, 1], vec![1, 0]]),
            (vec!["a", "b", "c"], [vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1], vec![0, 1, 2]]),
        ] {
            let all = names.iter().map(region).collect::<Vec<_>>().join(",");
            let regions = match names.is_empty() {
                true => String::new(),
                false => format!(r#""regions": {{"here": "a", "all": [{all}]}},"#),
            };
            let config = format!(r#"{{{regions} "policies": [{policy}]}}"#);
            let mut stores = Stores::new(&Rc::new(Config::parse(config.as_bytes()).unwrap()), 1);
            assert_eq!([(); 4].map(|()| stores.turns().collect::<Vec<_>>()), turns, "{names:?}");
        }
    }
}
