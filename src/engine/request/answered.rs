// SPDX-License-Identifier: Apache-2.0
//! The checks of a request get their answers: those of the store, or, if it does not answer, those of `on_failure`.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Requests;
use super::state::{Receipt, Request, State};
use super::submitted::{enforced, fall_back};
use crate::decision::{CheckAnswer, Decision};
use crate::engine::StreamId;
use crate::engine::clock::Now;
use crate::engine::failure::StoreFailure;
use crate::engine::store::{Due, End, NotRun, Task, Waiter, Work, count};
use crate::engine::stores::Stores;
use crate::engine::subject::lease;
use crate::engine::subject::lease::Unused;
use crate::engine::tally::UnitKind;
use crate::limit::{Limit, Outcome, RetryAfter};
use crate::policy::{Check, Lease, Mode};
use crate::time::Micros;

impl Requests {
    /// A task has ended. `asked` is the host's time at which its batch was sent.
    pub fn ended(&mut self, task: &Task, end: &End, (asked, now): (Micros, Now)) {
        let check = &task.check;
        match (&task.work, end) {
            (Work::Settle { due: Due::Renew(waiter), receipt }, end) => {
                self.renewed(*waiter, (check, receipt), end, now);
            }
            (_, End::Answered(outcome)) => self.answered(task, outcome, true, (asked, now)),
            (Work::Ask { waiters, .. }, End::Unacknowledged(outcome)) => {
                // `on_failure` decides these requests. After that, the grant is one that comes too late.
                let granted = usize::try_from(outcome.granted).unwrap_or(usize::MAX);
                for waiter in waiters.iter().take(granted) {
                    self.stop_waiting(waiter.stream, &|index, _| index == waiter.place, now);
                }
                self.answered(task, outcome, false, (asked, now));
            }
            (Work::Ask { waiters, advance }, _) => {
                self.leases.arrived(check, *advance);
                for waiter in waiters {
                    self.mark(*waiter, false);
                    self.stop_waiting(waiter.stream, &|index, _| index == waiter.place, now);
                }
            }
            (Work::Settle { due: Due::Charge(units), .. }, end) => {
                self.charge_ended(check, *units, matches!(end, End::Settled));
            }
            // Requests may wait for these permits.
            (Work::Settle { due: Due::Release(_), .. }, End::Settled) if self.config.queues => {
                self.permit_queues.released(check, now.uptime);
            }
            // No request may rely on such a loan, so it goes back.
            (Work::Lend { .. }, End::Unacknowledged(outcome)) => {
                let (check, receipt) = (Rc::clone(check), Rc::clone(outcome));
                self.refund_unused(vec![Unused { check, receipt, units: outcome.granted.into() }]);
            }
            (Work::Lend { .. } | Work::Settle { .. }, _) => {}
        }
    }

    /// The store has not run a task.
    pub fn not_run(&mut self, NotRun { check, waiters, advance }: NotRun) {
        self.leases.arrived(&check, advance);
        waiters.into_iter().for_each(|waiter| self.mark(waiter, false));
    }

    /// The store's answer about a subject, for all requests that wait for it. Grants in advance are kept if `is_certain`.
    fn answered(
        &mut self,
        task: &Task,
        outcome: &Rc<Outcome>,
        is_certain: bool,
        (asked, now): (Micros, Now),
    ) {
        let Task { check, plan, work } = task;
        let Work::Ask { waiters, advance } = work else { return self.lent(task, outcome, (asked, now)) };
        self.owe(check, u64::from(outcome.granted).saturating_mul(check.cost), now);
        let (ask, waiting, config) = (task.ask(), count(waiters), Rc::clone(&self.config));
        let paused = self.pause(task, outcome, (asked, now.host));
        let told = |decision: &mut Decision| {
            if let Some(until) = paused
                && !decision.granted
            {
                decision.denies_for(until.since(asked));
            }
        };
        if plan.ban().is_some() && outcome.ban == RetryAfter::Now {
            self.denied.lifted(&enforced(check), asked);
        }
        if check.mode == Mode::QuotaRequest {
            self.learn_without_body(task, outcome, (asked, now));
        } else if outcome.granted < waiting {
            let mut decision = check.decision(outcome, plan.limits(), outcome.granted, ask);
            told(&mut decision);
            let ttl = config.denial_ttl(check, &decision);
            self.denied.remember(check, plan.limits(), &decision, ttl, (asked, now.host));
        }
        // The units on lease from other grants. The surplus of this grant is added for each waiting request below.
        let known = self.leases.known(check, now.host);
        if let Some(surplus @ 1..) = outcome.granted.checked_sub(waiting)
            && let Some(lease) = config.lease(check)
        {
            match is_certain {
                true => self.keep(check, lease, plan.limits(), (surplus, outcome), (asked, now)),
                false => {
                    let units = u64::from(surplus).saturating_mul(check.cost);
                    let (check, receipt) = (Rc::clone(check), Rc::clone(outcome));
                    self.refund_unused(vec![Unused { check, receipt, units }]);
                }
            }
        }
        self.leases.arrived(check, *advance);
        for (index, waiter) in (0..).zip(waiters) {
            let mut decision = check.decision(outcome, plan.limits(), index, ask);
            told(&mut decision);
            if let Some((on_lease, newest)) = known.as_ref().filter(|_| decision.granted) {
                let latest = if newest.at > outcome.at { newest } else { outcome };
                let later = outcome.granted.saturating_sub(index.saturating_add(1));
                let held = on_lease.saturating_add(check.cost.saturating_mul(later.into()));
                let serves = held >= check.cost.max(1);
                decision.limits = lease::statuses(latest, plan.limits(), held, serves).collect();
            }
            let receipt = (decision.granted && check.is_charged()).then(|| Rc::clone(outcome));
            self.deliver(*waiter, check, CheckAnswer::Store(decision), receipt, now);
        }
    }

    /// Another region's answer to what it was asked to lend.
    fn lent(&mut self, task: &Task, outcome: &Rc<Outcome>, (asked, now): (Micros, Now)) {
        let Task { check, plan, work: Work::Lend { units, of } } = task else { return };
        self.loans.answered(of, check.store, (*units, outcome.granted));
        if let (lent @ 1.., Some(lease)) = (outcome.granted, self.config.lease(check)) {
            // The time of the answer's way back does not shorten the loan.
            let duration = lease.duration.plus(now.host.since(asked));
            let lease = Lease { duration, ..lease };
            self.keep(check, lease, plan.limits(), (lent, outcome), (asked, now));
        }
    }

    /// The end of the pause after this answer, if there is one. A batch that has asked for nothing in advance begins none.
    fn pause(&mut self, task: &Task, outcome: &Outcome, times: (Micros, Micros)) -> Option<Micros> {
        let Task { check, work: Work::Ask { advance: 1.., .. }, .. } = task else { return None };
        self.config.lease(check).filter(|lease| lease.is_auto)?;
        self.leases.granted(check, task.ask().requests, outcome, times)
    }

    /// Keeps the requests that were granted in advance; if the worker is about to end, they are refunded.
    fn keep(
        &mut self,
        check: &Rc<Check>,
        lease: Lease,
        limits: &[Limit],
        granted: (u32, &Rc<Outcome>),
        (asked, now): (Micros, Now),
    ) {
        self.leases.keep(check, lease, limits, granted, (asked, now.host));
        if self.leases.is_retired {
            self.end_all_leases();
        }
    }

    /// A check of a request gets this answer, and the grant if there is one. A grant that comes too late is kept or refunded.
    pub(super) fn deliver(
        &mut self,
        to: Waiter,
        check: &Rc<Check>,
        answer: CheckAnswer,
        receipt: Option<Rc<Outcome>>,
        now: Now,
    ) {
        if let Some(receipt) = &receipt {
            self.tally.units(check, UnitKind::Reserved, check.cost, receipt.at);
        }
        let receipt = receipt.map(Receipt::Store);
        let Some(request) = self.requests.get_mut(&to.stream) else {
            // The client left before its request was decided. The units stay charged. Otherwise clients could abort requests to
            // send them for free. But a permit must not outlive its request.
            return receipt.iter().for_each(|receipt| self.settle(check, Due::Release(1), receipt, now));
        };
        let Some(policy_check) = request.checks.get_mut(to.place) else {
            // The check was asked before the request's body came.
            self.deny_without_body(to.stream, now);
            return;
        };
        policy_check.in_flight = false;
        match request.state {
            // Nothing was asked but what is answered above.
            State::AwaitsBody(_) => {}
            State::Waiting(_) if policy_check.answer.is_none() => {
                (policy_check.answer, policy_check.receipt) = (Some(answer), receipt);
                if request.is_answered() {
                    self.conclude(to.stream, now);
                }
            }
            // This check was decided without this store, and is charged there now. The charge to its local share or to a loan is refunded.
            // Permits are released when the request ends.
            State::Waiting(_) | State::Queued(_) | State::Held { .. } | State::Admitted => {
                let Some(grant) = receipt else { return };
                let before = policy_check.receipt.replace(grant);
                let paid = std::mem::replace(&mut policy_check.check, Rc::clone(check));
                if let Some(before) = before {
                    self.refund_all(&paid, &before, now);
                }
            }
            State::Ended(ref costs) => {
                let (cost, before) = (costs.get(to.place).copied().flatten(), policy_check.receipt.take());
                self.forget_closed(to.stream);
                let Some(grant) = receipt else { return };
                match (cost, before) {
                    // A loan was charged instead.
                    (_, Some(Receipt::Store(_))) => return self.refund_all(check, &grant, now),
                    // The local share was charged, too.
                    (Some(cost), Some(Receipt::Local(_))) => self.settle_difference(check, cost, &grant, now),
                    (Some(cost), None) => self.settle_cost(check, cost, &grant, now),
                    (None, _) => {}
                }
                self.settle(check, Due::Release(1), &grant, now);
            }
            State::Rejected | State::Closed => {
                self.forget_closed(to.stream);
                receipt.iter().for_each(|receipt| self.refund_all(check, receipt, now));
            }
        }
    }

    /// Decides checks of a waiting request without the store: those that have no answer yet and that `stops` selects. The others go on
    /// waiting.
    pub fn stop_waiting(&mut self, stream: StreamId, stops: &dyn Fn(usize, &Check) -> bool, now: Now) {
        let Some(request) = self.requests.get_mut(&stream).filter(|request| request.waits()) else { return };
        for (index, policy_check) in request.checks.iter_mut().enumerate() {
            if policy_check.answer.is_none() && stops(index, &policy_check.check) {
                fall_back(
                    policy_check,
                    &self.config,
                    &mut self.denied,
                    (&mut self.local, &mut self.tally),
                    now,
                );
            }
        }
        if request.is_answered() {
            self.conclude(stream, now);
        }
    }

    /// No request waits for this store any more. Some go on to wait for another.
    pub fn stop_all_waiting(&mut self, store: u8, now: Now) {
        let waiting: Vec<_> = self.deadlines.iter().flatten().map(|(_, stream)| *stream).collect();
        for stream in waiting {
            self.stop_waiting(stream, &|_, check| check.store == store, now);
        }
    }

    /// Decides the requests whose deadline has passed, without the stores.
    pub fn expire(&mut self, stores: &mut Stores, now: Now) {
        for place in 0..self.deadlines.len() {
            while let Some(&(deadline, stream)) = self.deadlines.get(place).and_then(VecDeque::front) {
                // A request may have asked again since: then this entry is of its earlier deadline, and is skipped.
                let waits = |of: &&Request| matches!(&of.state, State::Waiting(waiting) if waiting.deadline == deadline);
                let waiting = self.requests.get(&stream).filter(waits);
                if waiting.is_some() && deadline > now.loop_time {
                    break;
                }
                if let Some(late) =
                    waiting.and_then(|of| of.checks.iter().find(|policy_check| policy_check.answer.is_none()))
                {
                    stores.count_failure(late.check.store, StoreFailure::Timeout);
                }
                let is_waiting = waiting.is_some();
                self.deadlines.get_mut(place).and_then(VecDeque::pop_front);
                if is_waiting {
                    self.stop_waiting(stream, &|_, _| true, now);
                }
            }
        }
    }

    /// The store has recovered. The local shares begin unused when it fails again.
    pub fn store_recovered(&mut self, store: u8) {
        if let Some(local) = self.local.get_mut(usize::from(store)) {
            local.forget();
        }
    }
}
