// SPDX-License-Identifier: Apache-2.0
//! Requests under limits that several regions share: what is borrowed for them, and what the other regions are to know of them.

use std::rc::Rc;

use super::state::{PolicyCheck, Receipt};
use super::{Effect, Requests};
use crate::decision::CheckAnswer;
use crate::engine::clock::Now;
use crate::engine::store::{Charges, Due, Settlement};
use crate::engine::stores::Stores;
use crate::engine::subject::debits;
use crate::engine::subject::lease::Served;
use crate::engine::subject::loans::Loan;
use crate::engine::tally::UnitKind;
use crate::limit::{Limit, Outcome};
use crate::policy::{Across, Check, Mode};
use crate::time::Micros;

/// The debits and loans between this region and another one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// Units charged there: sent, known to be charged, dropped, and yet to be sent.
    pub debits_sent: u64,
    pub debits_answered: u64,
    pub debits_dropped: u64,
    pub debits_waiting: u64,
    /// The age of the oldest grant that it is not known to have charged.
    pub lag: Micros,
    pub is_late: bool,
    /// Requests admitted with what it has lent.
    pub borrowed: u64,
}

impl Requests {
    /// Some checks of a request exceed the shares of this region. If other regions have lent something for each of them, that counts. A
    /// request that is rejected all the same borrows nothing.
    pub(super) fn borrow(&mut self, checks: &mut [PolicyCheck], now: Now) {
        // Hardly any request needs a loan.
        if !checks.iter().any(|policy_check| policy_check.exceeds(&self.config)) {
            return;
        }
        let config = Rc::clone(&self.config);
        let exceeds = |policy_check: &&mut PolicyCheck| policy_check.exceeds(&config);
        let is_enforced = |policy_check: &PolicyCheck| policy_check.check.mode == Mode::Enforce;
        let rejects = |policy_check: &PolicyCheck| {
            policy_check.denies(&config) && is_enforced(policy_check) && !policy_check.exceeds(&config)
        };
        if checks.iter().any(rejects) {
            return;
        }
        let leases = &self.leases;
        let mut is_missing = false;
        for policy_check in checks.iter_mut().filter(exceeds) {
            let serves = |lent: &Rc<Check>| leases.serves(lent, policy_check.check.cost, now.host);
            is_missing |= !self.loans.want(&policy_check.check, &serves) && is_enforced(policy_check);
        }
        for policy_check in checks.iter_mut().filter(exceeds).filter(|_| !is_missing) {
            let Some(plan) = config.plan(&policy_check.check) else { continue };
            let serve =
                |lent: &Rc<Check>| self.leases.serve(lent, policy_check.check.cost, plan.limits(), now.host);
            if let Some((Served { decision, receipt }, pays)) = self.loans.serve(&policy_check.check, serve) {
                self.borrowed = self.borrowed.saturating_add(1);
                self.tally.units(&pays, UnitKind::Reserved, pays.cost, receipt.at);
                if let Some(borrowed) = self.borrowed_of.get_mut(usize::from(pays.store)) {
                    *borrowed = borrowed.saturating_add(1);
                }
                policy_check.answer = Some(CheckAnswer::Lease(decision));
                (policy_check.receipt, policy_check.check) = (Some(Receipt::Store(receipt)), pays);
            }
        }
    }

    /// This region has granted this many units, which the others do not know of.
    pub(super) fn owe(&mut self, check: &Rc<Check>, units: u64, now: Now) {
        if self.config.regions_of(check) == Across::Debit
            && let Some(plan) = self.config.plan(check)
        {
            let limits = plan.limits();
            let most = limits.iter().map(Limit::quota).max().unwrap_or_default().saturating_mul(2);
            // In debt, a limit takes so much longer to be whole.
            let span = |limit: &Limit| {
                let times = u64::from(limit.debt()).saturating_add(1);
                Micros(limit.whole_within().0.saturating_mul(times))
            };
            let span = limits.iter().map(span).max().unwrap_or_default();
            self.debits.granted(check, units, (most, span), now.uptime);
        }
    }

    /// Asks other regions for loans, and charges them with what this one has granted.
    pub fn sync(&mut self, stores: &mut Stores, now: Now) {
        let leases = &self.leases;
        let held = |check: &Rc<Check>| leases.known(check, now.host).map_or(0, |(held, _)| held);
        for Loan { asks, subject, units } in self.loans.take(&held, now.uptime) {
            if let Some(store) = stores.of_mut(&asks) {
                store.lend(asks, subject, units, now);
            }
        }
        let takes = |store: u8| stores.peek(store).map_or(Charges::None, |store| store.takes_charges(now));
        let charges = self.debits.take(&takes, now.uptime).into_iter();
        self.effects.extend(charges.map(|debits::Charge { check, units }| {
            Effect::Settle(Settlement { check, due: Due::Charge(units), receipt: Rc::new(Outcome::NONE) })
        }));
    }

    /// A charge is no longer in flight, and was perhaps made.
    pub fn charge_ended(&mut self, check: &Check, units: u64, is_answered: bool) {
        if self.config.regions_of(check) == Across::Debit {
            self.debits.ended(check, units, is_answered);
        }
    }

    /// Returns the debits and loans between this region and the region of a store.
    pub fn peer(&self, store: u8, now: Now) -> Peer {
        let debits::Owed { counts, waiting, lag, is_late } = self.debits.owed(store, now.uptime);
        Peer {
            debits_sent: counts.sent,
            debits_answered: counts.answered,
            debits_dropped: counts.dropped,
            debits_waiting: waiting,
            lag,
            is_late,
            borrowed: self.borrowed_of.get(usize::from(store)).copied().unwrap_or(0),
        }
    }

    /// The units by which a policy may exceed its limits, or that may count at another time, because of the region of this store.
    pub fn outstanding(&self, policy: usize, store: u8) -> u64 {
        match self.config.policies.get(policy).map(|policy| policy.regions) {
            Some(Across::Debit) => self.debits.unanswered(policy, store),
            Some(Across::Share) => self.leases.on_loan.get((policy, store)),
            _ => 0,
        }
    }

    /// The number of changes to the values of [`Self::peer`] and [`Self::outstanding`].
    pub const fn synced(&self) -> u64 {
        self.debits.changes().wrapping_add(self.leases.on_loan.changes)
    }

    /// The uptime at which other regions are to be asked or charged.
    pub fn next_sync(&self) -> Option<Micros> {
        Micros::earliest([self.loans.due(), self.debits.due()])
    }
}
