// SPDX-License-Identifier: Apache-2.0
//! A request arrives. If the worker knows enough without the store, it decides the request at once. Otherwise it asks the store about the
//! checks without an answer. If it cannot ask about one, `on_failure` decides that check.

use std::borrow::Cow;
use std::rc::Rc;

use super::Requests;
use super::state::{PolicyCheck, Receipt, Request, State, Waiting};
use crate::config::Config;
use crate::decision::{CheckAnswer, Decision};
use crate::engine::StreamId;
use crate::engine::clock::Now;
use crate::engine::failure::StoreFailure;
use crate::engine::store::{NotAsked, Slots, Waiter};
use crate::engine::stores::Stores;
use crate::engine::subject::denied::Denied;
use crate::engine::subject::lease::{Leases, Served};
use crate::engine::subject::local::Local;
use crate::engine::tally::{Tally, UnitKind};
use crate::inline_vec::InlineVec;
use crate::limit::Limit;
use crate::policy::{Check, Mode};
use crate::response::{Cause, Verdict};
use crate::time::Micros;

/// At most this many requests of one worker wait for the store; one more is decided as if the store were unavailable.
const MAX_WAITING: usize = 16_384;

impl Requests {
    /// Decides a new request at once, if the worker knows enough without the store. Returns whether it has to ask the store.
    pub fn submit(
        &mut self,
        stream: StreamId,
        checks: InlineVec<Check>,
        is_quota_request: bool,
        now: Now,
    ) -> bool {
        let policy_check = |check: Check| {
            let answer = self.denied.look_up(&enforced(&check), now.host).map(CheckAnswer::DeniedUntil);
            PolicyCheck::new(check, answer)
        };
        let mut checks = checks.map(policy_check);
        self.borrow(&mut checks, now);
        // One enforced denial is enough: then no lease is used for the other checks. A check that a loan admits is no denial.
        let denies = |policy_check: &PolicyCheck| {
            policy_check.denies(&self.config) && policy_check.check.mode == Mode::Enforce
        };
        let denied = checks.iter().any(denies);
        if !denied && !self.leases.is_empty() {
            // A quota request uses nothing.
            let asks = |of: &&mut PolicyCheck| of.answer.is_none() && of.check.is_charged();
            for policy_check in checks.iter_mut().filter(asks) {
                let plan = self.config.plan(&policy_check.check);
                let limits = plan.as_ref().map_or(&[][..], |plan| plan.limits());
                let served =
                    self.leases.serve(&policy_check.check, policy_check.check.cost, limits, now.host);
                if let Some(Served { decision, receipt }) = served {
                    self.tally.units(
                        &policy_check.check,
                        UnitKind::Reserved,
                        policy_check.check.cost,
                        receipt.at,
                    );
                    (policy_check.answer, policy_check.receipt) =
                        (Some(CheckAnswer::Lease(decision)), Some(Receipt::Store(receipt)));
                } else {
                    let (known, check) = ((&self.leases, &mut self.denied), &policy_check.check);
                    let denied = deny_in_pause(check, limits, &self.config, known, now);
                    policy_check.answer = denied.map(CheckAnswer::DeniedUntil);
                }
            }
        }
        if !denied {
            // It may not overtake the requests that wait for a permit already.
            for policy_check in checks.iter_mut().filter(|policy_check| policy_check.answer.is_none()) {
                policy_check.answer = self.permit_queues.denial(&policy_check.check).map(CheckAnswer::Store);
            }
        }
        let known = denied || checks.iter().all(|policy_check| policy_check.answer.is_some());
        self.came = self.came.wrapping_add(1);
        let request = Request {
            is_quota_request,
            ..Request::new(checks, State::Waiting(Waiting::default()), (now.uptime, self.came))
        };
        self.requests.insert(stream, request);
        self.waiting = self.waiting.saturating_add(1);
        if known {
            self.decide(stream, now);
        }
        !known
    }

    /// Asks the stores about the checks of a request that have no answer. Decides the checks that no store may be asked about. The request
    /// waits until the latest deadline of the asked stores.
    pub fn ask(&mut self, stream: StreamId, stores: &mut Stores, now: Now) {
        let is_full = self.waiting > MAX_WAITING;
        let (mut asked, mut overloaded, mut fell_back) = (InlineVec::<(usize, Slots)>::new(), None, false);
        let mut latest = (Micros::ZERO, 0);
        let Some(request) = self.requests.get_mut(&stream) else { return };
        let unanswered =
            request.checks.iter_mut().enumerate().filter(|(_, policy_check)| policy_check.answer.is_none());
        for (index, policy_check) in unanswered {
            match stores.admits(&policy_check.check, now) {
                Ok(slots) if !is_full => {
                    let deadline = stores.of(&policy_check.check).map(|store| store.deadline(now));
                    latest = latest.max((deadline.unwrap_or_default(), policy_check.check.store));
                    asked.push((index, slots));
                    continue;
                }
                Ok(_) | Err(NotAsked::Overloaded) => overloaded = Some(policy_check.check.store),
                Err(NotAsked::BreakerOpen) => {}
            }
            fell_back = true;
            fall_back(policy_check, &self.config, &mut self.denied, (&mut self.local, &mut self.tally), now);
        }
        if let Some(store) = overloaded {
            stores.count_failure(store, StoreFailure::Overloaded);
        }
        if fell_back {
            self.borrow_for(stream, now);
        }
        let Some(request) = self.requests.get_mut(&stream) else { return };
        // If `on_failure` rejects the request, the store must not charge it for its other policies.
        let is_rejected = fell_back
            && matches!(request.decide(&self.config), Verdict::Reject(of) if of.cause != Cause::Answered);
        if asked.is_empty() || is_rejected {
            return self.decide(stream, now);
        }
        for (index, slots) in asked {
            if let Some(policy_check) = request.checks.get(index) {
                stores.ask(&policy_check.check, Waiter { stream, place: index }, slots, now);
            }
        }
        let (deadline, store) = latest;
        if let State::Waiting(waiting) = &mut request.state {
            waiting.deadline = deadline;
        }
        if let Some(deadlines) = self.deadlines.get_mut(usize::from(store)) {
            deadlines.push_back((deadline, stream));
        }
    }
}

/// The check under which the worker remembers a denial. A quota request has the same one as a request that is to be limited.
pub(super) fn enforced(check: &Check) -> Cow<'_, Check> {
    match check.mode {
        Mode::QuotaRequest => Cow::Owned(Check { mode: Mode::Enforce, ..check.clone() }),
        Mode::Enforce | Mode::Shadow => Cow::Borrowed(check),
    }
}

/// Denies a request of this subject while the worker pauses, and remembers that until the end of the pause, as any other denial.
pub(super) fn deny_in_pause(
    check: &Rc<Check>,
    limits: &[Limit],
    config: &Config,
    (leases, denied): (&Leases, &mut Denied),
    now: Now,
) -> Option<Decision> {
    let (receipt, asked, until) = leases.paused(check, now.host)?;
    config.lease(check)?;
    let mut decision = Decision::new(&receipt, limits, receipt.granted, check.ask(1));
    decision.denies_for(until.since(asked));
    denied.remember(check, limits, &decision, config.denial_ttl(check, &decision), (asked, now.host));
    denied.look_up(check, now.host)
}

/// Decides one check of a request without the store.
pub(super) fn fall_back(
    PolicyCheck { check, answer, receipt, .. }: &mut PolicyCheck,
    config: &Config,
    denied: &mut Denied,
    (local, tally): (&mut [Local], &mut Tally),
    now: Now,
) {
    *answer = Some(CheckAnswer::Unavailable);
    if let Some(decision) = denied.look_up_unanswered(&enforced(check), now.host) {
        *answer = Some(CheckAnswer::DeniedUntil(decision));
    } else if let Some((local, shares)) = local.get_mut(usize::from(check.store)).zip(config.shares(check)) {
        let plan = config.plan(check);
        let whole = plan.as_ref().map_or(&[][..], |plan| plan.limits());
        let outcome = local.check(check, &shares, whole, now.host);
        let decision = Decision::new(&outcome, &shares, 0, check.ask(1));
        if decision.granted {
            tally.units(check, UnitKind::Reserved, check.cost, outcome.at);
            *receipt = Some(Receipt::Local(outcome));
        }
        *answer = Some(CheckAnswer::Local(decision));
    }
}
