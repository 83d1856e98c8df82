// SPDX-License-Identifier: Apache-2.0
//! The permits of requests that run for longer than a permit lives, such as WebSockets. Each third of its `ttl` the permit of a running request
//! is renewed, so that one renewal may be lost. The permits of a proxy that has crashed end with their `ttl`.
//!
//! Permits have no names: the store has their number for each expiry. So the worker must know the expiry of the permit that it releases. While
//! a renewal is on its way it does not: the permit of a request that ends meanwhile is released when the renewal is answered, and ends with
//! its `ttl` if it is not. Then it counts for too long, and never too shortly.

use std::rc::Rc;

use super::state::{PolicyCheck, Receipt};
use super::{Effect, Requests};
use crate::config::Config;
use crate::engine::clock::Now;
use crate::engine::store::{Due, End, Settlement, Waiter};
use crate::limit::Outcome;
use crate::policy::Check;
use crate::time::Micros;

/// A permit is renewed this often in its `ttl`.
const SHARE: u64 = 3;

/// At most this many renewals leave together; the others follow after [`PAUSE`]. They must not take the room of refunds and releases.
const TOGETHER: usize = 1_024;
const PAUSE: Micros = Micros::from_millis(100);

/// The times at which this worker looks for permits to renew.
#[derive(Debug)]
pub(super) struct Renewals {
    /// The interval, if there are permits: the shortest of all limits.
    interval: Option<Micros>,
    /// The uptime at which it looks next; `None` if no request has been admitted since there was none to renew.
    next: Option<Micros>,
}

impl Renewals {
    pub fn new(config: &Config) -> Self {
        let tiers = config.policies.iter().flat_map(|policy| &policy.tiers.tiers);
        let ttls =
            tiers.flat_map(|tier| (0..tier.plan.limits().len()).filter_map(|limit| tier.plan.ttl(limit)));
        Self { interval: ttls.min().map(interval), next: None }
    }

    /// A request is admitted, or queued with the permits of other policies. They have to be renewed one day.
    pub fn begin(&mut self, now: Now) {
        self.next = self.next.or_else(|| Some(now.uptime.plus(self.interval?)));
    }
}

fn interval(ttl: Micros) -> Micros {
    Micros((ttl.0 / SHARE).max(1))
}

impl Requests {
    /// The uptime at which [`renew`](Self::renew) is due next.
    pub fn next_renewal(&self) -> Option<Micros> {
        self.permits.next.filter(|_| !self.requests.is_empty())
    }

    /// Renews the permits of requests that run, if it is time.
    pub fn renew(&mut self, now: Now) {
        if self.next_renewal().is_none_or(|due| due > now.uptime) {
            return;
        }
        let (mut any, mut sent) = (false, 0_usize);
        let running = self.requests.iter_mut().filter(|(_, request)| request.state.holds());
        let checks = running.flat_map(|(&stream, request)| {
            let arrived = request.arrived.0;
            request
                .checks
                .iter_mut()
                .enumerate()
                .map(move |(place, policy_check)| (stream, arrived, place, policy_check))
        });
        for (stream, arrived, place, policy_check) in checks {
            let Some(Receipt::Store(held) | Receipt::Local(held)) = &policy_check.receipt else { continue };
            let Some(plan) = self.config.plan(&policy_check.check) else { continue };
            let ttl = held.permits(1).filter_map(|permits| plan.ttl(permits.limit)).min();
            let Some(interval) = ttl.map(interval) else { continue };
            any = true;
            if policy_check.renews || policy_check.renewed.max(arrived).plus(interval) > now.uptime {
                continue;
            }
            match &mut policy_check.receipt {
                Some(Receipt::Store(held)) => {
                    sent = sent.saturating_add(1);
                    if sent > TOGETHER {
                        break;
                    }
                    policy_check.renews = true;
                    let due = Due::Renew(Waiter { stream, place });
                    let (check, receipt) = (Rc::clone(&policy_check.check), Rc::clone(held));
                    self.effects.push_back(Effect::Settle(Settlement { check, due, receipt }));
                }
                Some(Receipt::Local(held)) => {
                    let local = self.local.get_mut(usize::from(policy_check.check.store));
                    if let Some((local, shares)) = local.zip(self.config.shares(&policy_check.check)) {
                        *held = local.renew(&policy_check.check, &shares, held, now.host);
                    }
                }
                None => {}
            }
            policy_check.renewed = now.uptime;
        }
        let pause = if sent > TOGETHER { Some(PAUSE) } else { self.permits.interval };
        self.permits.next = pause.filter(|_| any).map(|pause| now.uptime.plus(pause));
    }

    /// Notes whether a batch renews the permits of this check of a request, or is about to.
    pub fn renews(&mut self, waiter: Waiter, renews: bool) {
        if let Some(policy_check) = self.running(waiter) {
            policy_check.renews = renews;
        }
    }

    fn running(&mut self, waiter: Waiter) -> Option<&mut PolicyCheck> {
        let request = self.requests.get_mut(&waiter.stream)?;
        let holds = request.state.holds();
        request.checks.get_mut(waiter.place).filter(|_| holds)
    }

    /// A renewal has ended. `receipt` has the permits as they were before.
    pub(super) fn renewed(
        &mut self,
        waiter: Waiter,
        (check, receipt): (&Rc<Check>, &Rc<Outcome>),
        end: &End,
        now: Now,
    ) {
        let renewed = match end {
            End::Answered(renewed) | End::Unacknowledged(renewed) => Some(renewed),
            _ => None,
        };
        let policy_check = self.running(waiter).map(|policy_check| {
            policy_check.renews = false;
            &mut policy_check.receipt
        });
        match (policy_check, renewed) {
            (Some(Some(Receipt::Store(held))), Some(renewed)) if held.permits(1).eq(receipt.permits(1)) => {
                *held = Rc::clone(renewed);
            }
            (_, Some(renewed)) => {
                self.settle(check, Due::Release(1), &Receipt::Store(Rc::clone(renewed)), now);
            }
            (_, None) => {}
        }
    }
}
