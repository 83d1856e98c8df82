// SPDX-License-Identifier: Apache-2.0
//! Redis, and the counts of `weir replay`: in memory, with the pure limits, or in a Redis, with the scripts of the filter.

#[cfg(target_arch = "wasm32")]
mod absent;
#[cfg(not(target_arch = "wasm32"))]
mod failure;
#[cfg(not(target_arch = "wasm32"))]
mod login;
mod memory;
#[cfg(not(target_arch = "wasm32"))]
mod redis;
#[cfg(not(target_arch = "wasm32"))]
mod stream;

#[cfg(target_arch = "wasm32")]
pub(super) use absent::{Login, Redis};
#[cfg(not(target_arch = "wasm32"))]
pub(super) use login::{Login, Place};
pub(super) use memory::Memory;
#[cfg(not(target_arch = "wasm32"))]
pub(super) use redis::{Redis, bytes};
#[cfg(not(target_arch = "wasm32"))]
pub(super) use stream::Entry;

use super::Failure;
use weir::limit::{Outcome, Permits};
use weir::policy::Check;
use weir::script::Plan;
use weir::time::Micros;

pub(super) enum Store {
    Memory(Memory),
    /// In Redis, under tags of this run.
    Redis(Redis, String),
}

impl Store {
    /// Asks for one request at `now`.
    pub fn check(&mut self, plan: &Plan, check: &Check, now: Micros) -> Result<Outcome, Failure> {
        let ask = check.ask(check.is_charged().into());
        match self {
            Self::Memory(memory) => memory.check(plan, check, now),
            Self::Redis(redis, run) => redis.check(plan, &tag_of(run, &check.tag), ask, Some(now)),
        }
    }

    /// Refunds what this policy charged for a request, because another policy denied it.
    pub fn refund(
        &mut self,
        plan: &Plan,
        check: &Check,
        now: Micros,
        receipt: &Outcome,
    ) -> Result<(), Failure> {
        let units = i64::try_from(check.cost).unwrap_or(i64::MAX).saturating_neg();
        match self {
            Self::Memory(memory) => memory.settle(plan, check, units, receipt, now),
            Self::Redis(redis, run) => {
                redis.settle(plan, &tag_of(run, &check.tag), units, receipt, now)?;
            }
        }
        self.release(plan, check, now, receipt)
    }

    /// Renews the permits of a request that still runs. Returns its receipt from then on.
    pub fn renew(
        &mut self,
        plan: &Plan,
        check: &Check,
        now: Micros,
        receipt: &Outcome,
    ) -> Result<Outcome, Failure> {
        match self {
            Self::Memory(memory) => Ok(memory.renew(plan, check, receipt, now)),
            Self::Redis(redis, run) => redis.renew(plan, &tag_of(run, &check.tag), receipt, now),
        }
    }

    /// Releases the permits of a request that has ended.
    pub fn release(
        &mut self,
        plan: &Plan,
        check: &Check,
        now: Micros,
        receipt: &Outcome,
    ) -> Result<(), Failure> {
        let permits: Vec<Permits> = receipt.permits(1).collect();
        match self {
            Self::Memory(memory) => memory.release(check, &permits),
            Self::Redis(redis, run) => redis.release(plan, &tag_of(run, &check.tag), &permits, now)?,
        }
        Ok(())
    }
}

/// A tag that no live filter uses: `{run:policy|subject}`.
fn tag_of(run: &str, tag: &[u8]) -> Vec<u8> {
    let inner = tag.strip_prefix(b"{").unwrap_or(tag);
    [b"{", run.as_bytes(), b":", inner].concat()
}
