// SPDX-License-Identifier: Apache-2.0
//! The permits of requests that run for longer than a permit lives, such as WebSockets. Each third of its `ttl` the permit of a running request
//! is renewed, so that one renewal may be lost. The permits of a proxy that has crashed end with their `ttl`.
//!
//! Permits have no names: the store has their number for each expiry. So the worker must know the expiry of the permit that it releases. While
//! a renewal is on its way it does not: the permit of a request that ends meanwhile is released when the renewal is answered, and ends with
//! its `ttl` if it is not. Then it counts for too long, and never too shortly.

use std::rc::Rc;

use super::Requests;
use super::request::{Part, Receipt, State};
use crate::config::Config;
use crate::engine::clock::Now;
use crate::engine::dispatch::{Due, End, Settlement, Waiter};
use crate::limit::Outcome;
use crate::policy::Check;
use crate::time::Micros;

/// A permit is renewed this often in its `ttl`.
const SHARE: u64 = 3;

/// When this worker looks for permits to renew.
#[derive(Debug)]
pub(super) struct Renewals {
    /// The interval, if there are permits: the shortest of all limits.
    interval: Option<Micros>,
    /// The uptime at which it has looked last; `None` if no request has been admitted since there was none to renew.
    looked: Option<Micros>,
}

impl Renewals {
    pub fn new(config: &Config) -> Self {
        let tiers = config.policies.iter().flat_map(|policy| &policy.tiers.tiers);
        let ttls =
            tiers.flat_map(|tier| (0..tier.plan.limits().len()).filter_map(|limit| tier.plan.ttl(limit)));
        Self { interval: ttls.min().map(interval), looked: None }
    }

    /// A request is admitted. If it has permits, they have to be renewed one day.
    pub fn admitted(&mut self, now: Now) {
        if self.looked.is_none() && self.interval.is_some() {
            self.looked = Some(now.uptime);
        }
    }
}

fn interval(ttl: Micros) -> Micros {
    Micros((ttl.0 / SHARE).max(1))
}

impl Requests {
    /// The uptime at which [`renew`](Self::renew) is due next.
    pub fn next_renewal(&self) -> Option<Micros> {
        let looked = self.permits.looked.filter(|_| !self.requests.is_empty())?;
        Some(looked.plus(self.permits.interval?))
    }

    /// Renews the permits of requests that run, if it is time.
    pub fn renew(&mut self, now: Now) {
        let Some(before) =
            self.permits.looked.filter(|_| self.next_renewal().is_some_and(|due| due <= now.uptime))
        else {
            return;
        };
        let mut any = false;
        for (&stream, request) in &mut self.requests {
            if !matches!(request.state, State::Admitted | State::Held { .. }) {
                continue;
            }
            for (part, Part { check, receipt, renews, .. }) in request.parts.iter_mut().enumerate() {
                let Some(Receipt::Store(held) | Receipt::Local(held)) = receipt else { continue };
                let Some(plan) = self.config.plan(check) else { continue };
                let ttl = held.permits(1).filter_map(|permits| plan.ttl(permits.limit)).min();
                let Some(interval) = ttl.map(interval) else { continue };
                any = true;
                let intervals = |until: Micros| until.since(request.arrived.0).0.checked_div(interval.0);
                if intervals(now.uptime) <= intervals(before) || *renews {
                    continue;
                }
                if let Some(Receipt::Store(held)) = receipt {
                    *renews = true;
                    let due = Due::Renew(Waiter { stream, part });
                    let (check, receipt) = (Rc::clone(check), Rc::clone(held));
                    self.settlements.push(Settlement { check, due, receipt });
                } else if let Some(Receipt::Local(held)) = receipt
                    && let Some(local) = self.local.get_mut(usize::from(check.store))
                    && let Some(shares) = self.config.shares(check)
                {
                    *held = local.renew(check, &shares, held, now.host);
                }
            }
        }
        self.permits.looked = any.then_some(now.uptime);
    }

    /// Notes whether a batch renews the permits of this part of a request, or is about to.
    pub fn renews(&mut self, waiter: Waiter, renews: bool) {
        if let Some(part) = self.running(waiter) {
            part.renews = renews;
        }
    }

    fn running(&mut self, waiter: Waiter) -> Option<&mut Part> {
        let request = self.requests.get_mut(&waiter.stream)?;
        let runs = matches!(request.state, State::Admitted | State::Held { .. });
        request.parts.get_mut(waiter.part).filter(|_| runs)
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
        let part = self.running(waiter).map(|part| {
            part.renews = false;
            &mut part.receipt
        });
        match (part, renewed) {
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
