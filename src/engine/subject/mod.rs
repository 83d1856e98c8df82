// SPDX-License-Identifier: Apache-2.0
//! A worker keeps facts about subjects. With them it decides requests without asking the store.
//!
//! In: what requests ask, what the store answered, and the time. Out: an answer, or what is due to a store. It knows neither the requests
//! nor the stores themselves. Each table has a bound of its own, and its module says what happens to the oldest when it is full.
//!
//! | file | what is inside |
//! |---|---|
//! | `denied.rs` | until when a subject is denied |
//! | `lease.rs` | units reserved in advance |
//! | `loans.rs`, `debits.rs` | what this worker has borrowed from other regions, and what it has to charge there |
//! | `local.rs` | what it counts by itself while the store is unavailable |
//! | `permit_queue.rs` | the requests that wait for a permit of a `concurrency` limit |

pub(super) mod debits;
pub(super) mod denied;
pub(super) mod lease;
pub(super) mod loans;
pub(super) mod local;
pub(super) mod permit_queue;

use crate::config::Config;

/// Units of each policy in each other region.
#[derive(Debug, Default)]
pub(in crate::engine) struct RegionUnits {
    stores: usize,
    /// For each policy those of each store; empty if the configuration has one region.
    values: Vec<u64>,
    /// The number of changes.
    pub changes: u64,
}

impl RegionUnits {
    pub fn new(config: &Config) -> Self {
        let stores = config.regions.all.len();
        let count = if stores > 1 { config.policies.len().saturating_mul(stores) } else { 0 };
        Self { stores, values: vec![0; count], changes: 0 }
    }

    fn place(&self, (policy, store): (usize, u8)) -> usize {
        policy.saturating_mul(self.stores).saturating_add(store.into())
    }

    /// The number of a policy and a store.
    pub fn get(&self, of: (usize, u8)) -> u64 {
        self.values.get(self.place(of)).copied().unwrap_or(0)
    }

    pub fn add(&mut self, of: (usize, u8), more: u64) {
        self.change(of, |value| value.saturating_add(more));
    }

    pub fn take(&mut self, of: (usize, u8), less: u64) {
        self.change(of, |value| value.saturating_sub(less));
    }

    fn change(&mut self, of: (usize, u8), to: impl FnOnce(u64) -> u64) {
        let place = self.place(of);
        if let Some(value) = self.values.get_mut(place) {
            *value = to(*value);
            self.changes = self.changes.wrapping_add(1);
        }
    }
}
