// SPDX-License-Identifier: Apache-2.0
//! All checks of a request are answered: it is admitted, held or rejected.

use std::collections::VecDeque;
use std::rc::Rc;

use super::state::{PolicyCheck, State};
use super::{Effect, Requests};
use crate::decision::CheckAnswer;
use crate::engine::clock::Now;
use crate::engine::store::Due;
use crate::engine::{Action, Release, StreamId};
use crate::inline_vec::InlineVec;
use crate::response::{self, Cause, Verdict};
use crate::time::Micros;

/// At most this many requests of one worker are held for `max_delay`; one more is rejected.
const MAX_HELD: usize = 4_096;

impl Requests {
    /// The last check of a request that waited is answered.
    pub(super) fn conclude(&mut self, stream: StreamId, now: Now) {
        self.borrow_for(stream, now);
        self.decide(stream, now);
    }

    /// Uses loans of other regions for the checks of a request that exceed the limits of this region.
    pub(super) fn borrow_for(&mut self, stream: StreamId, now: Now) {
        let config = &self.config;
        let Some(request) = self.requests.get_mut(&stream) else { return };
        // To move the checks costs more than to look at them, and hardly any request needs a loan.
        if !request.checks.iter().any(|policy_check| policy_check.exceeds(config)) {
            return;
        }
        let mut checks = std::mem::take(&mut request.checks);
        self.borrow(&mut checks, now);
        if let Some(request) = self.requests.get_mut(&stream) {
            request.checks = checks;
        }
    }

    /// All checks are answered: the request is admitted, held or rejected.
    pub(super) fn decide(&mut self, stream: StreamId, now: Now) {
        self.stopped_waiting(stream);
        if self.queue(stream, now) {
            self.permits.begin(now);
            return;
        }
        let Some(request) = self.requests.get_mut(&stream) else { return };
        let fell_back = |policy_check: &PolicyCheck| {
            matches!(policy_check.answer, Some(CheckAnswer::Unavailable | CheckAnswer::Local(_)))
        };
        if request.checks.iter().any(fell_back) {
            self.decided.fallback = self.decided.fallback.saturating_add(1);
        }
        if self.config.journal.is_some() {
            self.effects.push_back(Effect::Denied(stream));
        }
        let mut has_no_place = false;
        let verdict = match request.decide(&self.config) {
            Verdict::Admit(delay) if delay > Micros::ZERO => {
                if self.held.len() < MAX_HELD {
                    let due = now.uptime.plus(delay);
                    self.held.insert((due, stream), ());
                    self.tally.totals.delayed = self.tally.totals.delayed.saturating_add(1);
                    request.tally(&mut self.tally, false);
                    request.state = State::Held { due };
                    self.permits.begin(now);
                    return;
                }
                has_no_place = true;
                let rejection = response::no_room_to_hold(&request.answers(&self.config.policies));
                rejection.map_or(Verdict::Admit(delay), |rejection| Verdict::Reject(rejection.into()))
            }
            verdict => verdict,
        };
        request.tally(&mut self.tally, has_no_place);
        let action = match verdict {
            Verdict::Admit(_) => {
                request.admit(&self.config, now.uptime);
                self.permits.begin(now);
                self.decided.admitted = self.decided.admitted.saturating_add(1);
                Action::Admit
            }
            Verdict::Reject(answer) if answer.cause == Cause::Answered => {
                request.state = State::Admitted;
                self.decided.enquiries = self.decided.enquiries.saturating_add(1);
                Action::Reject(answer)
            }
            Verdict::Reject(mut rejection) => {
                request.state = State::Rejected;
                self.decided.rejected = self.decided.rejected.saturating_add(1);
                let is_banned = rejection.cause == Cause::Banned;
                self.decided.banned = self.decided.banned.saturating_add(is_banned.into());
                rejection.name_calls(request.json_rpc_ids.as_deref());
                // Refund the grants of the policies that did not deny it.
                let granted = request.checks.iter_mut();
                let granted = granted.filter_map(|policy_check| {
                    Some((Rc::clone(&policy_check.check), policy_check.receipt.take()?, policy_check.renews))
                });
                for (check, receipt, renews) in granted.collect::<InlineVec<_>>() {
                    self.refund(&check, &receipt, now);
                    // Otherwise the permit is released when the renewal is answered.
                    if !renews {
                        self.settle(&check, Due::Release(1), &receipt, now);
                    }
                }
                Action::Reject(rejection)
            }
        };
        self.releases.push_back(Release { stream, action });
    }

    /// A request no longer waits for the store.
    pub(super) fn stopped_waiting(&mut self, stream: StreamId) {
        self.effects.push_back(Effect::NoLongerWaits(stream));
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            // Everything left in it is decided, and no tick would remove it.
            self.deadlines.iter_mut().filter(|of| !of.is_empty()).for_each(VecDeque::clear);
        }
    }

    /// Releases the held requests that are due.
    pub fn release_held(&mut self, now: Now) {
        while let Some(&((_, stream), ())) = self.held.first().filter(|((due, _), ())| *due <= now.uptime) {
            self.held.pop_first();
            let Some(request) = self.requests.get_mut(&stream) else { continue };
            if let State::Held { .. } = request.state {
                request.admit(&self.config, now.uptime);
                self.decided.admitted = self.decided.admitted.saturating_add(1);
                self.releases.push_back(Release { stream, action: Action::Admit });
            }
        }
    }
}
