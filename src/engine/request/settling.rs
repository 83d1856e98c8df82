// SPDX-License-Identifier: Apache-2.0
//! Settles what was charged: all of it is refunded if the request is rejected, its true cost is charged when its response shows it, and
//! unused units of a lease are refunded.

use std::rc::Rc;

use super::state::{PolicyCheck, Receipt};
use super::{Effect, Requests};
use crate::engine::StreamId;
use crate::engine::clock::Now;
use crate::engine::store::{Due, Settlement};
use crate::engine::subject::lease::Unused;
use crate::engine::tally::UnitKind;
use crate::inline_vec::InlineVec;
use crate::policy::Check;
use crate::policy::settle::{Fields, Settle, Settling, Watched};

impl Requests {
    /// Refunds a grant of a request that is rejected all the same.
    pub(super) fn refund_all(&mut self, check: &Rc<Check>, receipt: &Receipt, now: Now) {
        self.refund(check, receipt, now);
        self.settle(check, Due::Release(1), receipt, now);
    }

    /// The same, but for its permits.
    pub(super) fn refund(&mut self, check: &Rc<Check>, receipt: &Receipt, now: Now) {
        self.settle(check, Due::Refund(check.cost), receipt, now);
        self.tally.rejected(check, receipt.at());
        self.denied.forget(check);
    }

    pub(super) fn settle(&mut self, check: &Rc<Check>, due: Due, receipt: &Receipt, now: Now) {
        if matches!(receipt, Receipt::Store(_)) {
            match due {
                Due::Charge(units) => self.owe(check, units, now),
                Due::Refund(units) => self.debits.refunded(check, units),
                Due::Release(_) | Due::Renew(_) => {}
            }
        }
        match due {
            Due::Charge(units) => self.tally.units(check, UnitKind::Charged, units, receipt.at()),
            Due::Refund(units) => self.tally.units(check, UnitKind::Refunded, units, receipt.at()),
            Due::Release(_) | Due::Renew(_) => {}
        }
        match receipt {
            // A policy without `concurrency` limits holds no permits.
            Receipt::Store(receipt)
                if matches!(due, Due::Release(_)) && receipt.permits(1).next().is_none() => {}
            Receipt::Store(receipt) => {
                let (check, receipt) = (Rc::clone(check), Rc::clone(receipt));
                self.effects.push_back(Effect::Settle(Settlement { check, due, receipt }));
            }
            Receipt::Local(receipt) => {
                let local = self.local.get_mut(usize::from(check.store));
                if let Some((local, shares)) = local.zip(self.config.shares(check)) {
                    local.settle(check, &shares, due, receipt, now.host);
                }
            }
        }
    }

    /// Refunds what is left of the leases that have ended.
    pub fn end_leases(&mut self, now: Now) {
        let config = &self.config;
        let unused = self.leases.ended(now.host, |check| config.lease(check));
        self.refund_unused(unused);
    }

    /// The worker is about to end: what is left of all leases is refunded, also of those that are granted later.
    pub fn retire(&mut self) {
        self.leases.is_retired = true;
        self.end_all_leases();
        self.debits.retire();
    }

    pub(super) fn end_all_leases(&mut self) {
        let config = &self.config;
        let unused = self.leases.end_all(|check| config.lease(check));
        self.refund_unused(unused);
    }

    pub(super) fn refund_unused(&mut self, unused: Vec<Unused>) {
        for Unused { check, receipt, units } in unused {
            self.debits.refunded(&check, units);
            self.effects.push_back(Effect::Settle(Settlement { check, due: Due::Refund(units), receipt }));
        }
    }

    /// The headers of the response to an admitted request. Returns what else the host has to pass on of it.
    pub fn response_headers(&mut self, stream: StreamId, fields: Fields<'_>, now: Now) -> Watched {
        self.watch(stream, now, |settling, settle| settling.headers(settle, fields))
    }

    /// The readers of the response to a request.
    pub fn settlings(&mut self, stream: StreamId) -> impl Iterator<Item = &mut Settling> {
        let checks = self.requests.get_mut(&stream).into_iter().flat_map(|request| &mut request.checks);
        checks.filter_map(|policy_check| policy_check.settling.as_deref_mut())
    }

    /// The trailers of the response.
    pub fn response_trailers(&mut self, stream: StreamId, fields: Fields<'_>, now: Now) {
        self.watch(stream, now, |settling, settle| {
            settling.trailers(settle, fields);
            Watched::default()
        });
    }

    /// Shows a part of the response to each policy that settles, and settles what is known then.
    fn watch(
        &mut self,
        stream: StreamId,
        now: Now,
        mut show: impl FnMut(&mut Settling, &Settle) -> Watched,
    ) -> Watched {
        let config = Rc::clone(&self.config);
        let Some(request) = self.requests.get_mut(&stream) else { return Watched::default() };
        let (mut watched, mut known) = (Watched::default(), InlineVec::<(Rc<Check>, u64, Receipt)>::new());
        for PolicyCheck { check, receipt, settling, in_flight, .. } in &mut request.checks {
            let Some(state) = settling else { continue };
            let settle = config.settle(check);
            let wants = show(state, settle);
            // If the store may still grant it, it is settled when the stream ends: only then is it known what was charged.
            match receipt
                .as_ref()
                .filter(|_| !*in_flight)
                .and_then(|receipt| Some((receipt, state.known(settle, check.cost)?)))
            {
                Some((receipt, cost)) => {
                    known.push((Rc::clone(check), cost, receipt.clone()));
                    *settling = None;
                }
                None => watched = watched.or(wants),
            }
        }
        self.settled.unreadable = self.settled.unreadable.saturating_add(watched.unreadable.into());
        for (check, cost, receipt) in known {
            self.settle_cost(&check, cost, &receipt, now);
        }
        watched
    }

    /// A request has reserved `check.cost`, and turned out to cost this.
    pub(super) fn settle_cost(&mut self, check: &Rc<Check>, cost: u64, receipt: &Receipt, now: Now) {
        self.settled.requests = self.settled.requests.saturating_add(1);
        self.settled.charged = self.settled.charged.saturating_add(cost.saturating_sub(check.cost));
        self.settled.refunded = self.settled.refunded.saturating_add(check.cost.saturating_sub(cost));
        self.settle_difference(check, cost, receipt, now);
    }

    /// The same, of a request that has been counted.
    pub(super) fn settle_difference(&mut self, check: &Rc<Check>, cost: u64, receipt: &Receipt, now: Now) {
        let (more, less) = (cost.saturating_sub(check.cost), check.cost.saturating_sub(cost));
        if more > 0 {
            self.settle(check, Due::Charge(more), receipt, now);
        }
        if less > 0 {
            self.settle(check, Due::Refund(less), receipt, now);
            self.denied.forget(check);
        }
    }
}
