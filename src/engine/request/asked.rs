// SPDX-License-Identifier: Apache-2.0
//! A batch before it is sent to the store: requests that already have an answer leave it, and policies that lease ask for requests in
//! advance.

use std::mem;
use std::rc::Rc;

use super::Requests;
use super::submitted::{deny_in_pause, enforced};
use crate::decision::CheckAnswer;
use crate::engine::clock::Now;
use crate::engine::store::{Batch, Task, Waiter, Work, count, tasks};
use crate::engine::subject::lease::Served;

impl Requests {
    /// Decides the requests of a batch that have an answer by now, because their subject was denied meanwhile or a lease was granted.
    /// Removes them from the batch.
    pub fn serve(&mut self, batch: &mut Batch, now: Now) {
        if self.leases.is_empty() && self.denied.is_empty(now.host) {
            return;
        }
        let (config, leases, denied) = (&self.config, &mut self.leases, &mut self.denied);
        let mut served = Vec::new();
        batch.retain_mut(|command| {
            command.tasks.retain(|Task { check, plan, work }| {
                let Work::Ask { waiters, .. } = work else { return true };
                let mut denial = denied.look_up(&enforced(check), now.host);
                if denial.is_none() {
                    if config.lease(check).is_none() {
                        return true;
                    }
                    waiters.retain(|waiter| {
                        let found = leases.serve(check, check.cost, plan.limits(), now.host);
                        let left = found.is_none();
                        served.extend(found.map(|Served { decision, receipt }| {
                            (*waiter, Rc::clone(check), CheckAnswer::Lease(decision), Some(receipt))
                        }));
                        left
                    });
                    if !waiters.is_empty() {
                        denial = deny_in_pause(check, plan.limits(), config, (leases, denied), now);
                    }
                }
                if let Some(decision) = denial {
                    let denied =
                        |waiter| (waiter, Rc::clone(check), CheckAnswer::DeniedUntil(decision.clone()), None);
                    served.extend(mem::take(waiters).into_iter().map(denied));
                }
                !waiters.is_empty()
            });
            !command.tasks.is_empty()
        });
        for (waiter, check, answer, receipt) in served {
            self.deliver(waiter, &check, answer, receipt, now);
        }
    }

    /// Makes a task ask for requests in advance, just before it is sent, if its policy leases.
    pub fn ask_in_advance(&mut self, task: &mut Task, now: Now) {
        let Task { check, work: Work::Ask { waiters, advance }, .. } = task else { return };
        if let Some(lease) = self.config.lease(check) {
            *advance = self.leases.take(check, lease, count(waiters), now.host);
        }
    }

    /// Undoes that for a task that is not sent now. It asks for requests in advance again when it is sent.
    pub fn not_sent(&mut self, task: &Task) {
        if let Work::Ask { advance, .. } = task.work {
            self.leases.arrived(&task.check, advance);
        }
    }

    /// Notes that a batch is sent. From now on the store may grant its checks.
    pub fn sent(&mut self, batch: &Batch) {
        for task in tasks(batch) {
            task.waiters().iter().for_each(|waiter| self.mark(*waiter, true));
        }
    }

    /// Notes whether a batch in flight asks about this check of a request.
    pub(super) fn mark(&mut self, waiter: Waiter, in_flight: bool) {
        let request = self.requests.get_mut(&waiter.stream);
        if let Some(policy_check) = request.and_then(|request| request.checks.get_mut(waiter.place)) {
            policy_check.in_flight = in_flight;
        }
        if !in_flight {
            self.forget_closed(waiter.stream);
        }
    }
}
