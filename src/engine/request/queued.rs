// SPDX-License-Identifier: Apache-2.0
//! A request that only a `concurrency` limit denies waits in the [permit queue](crate::engine::subject::permit_queue) of its subject, asks
//! again with others, and is rejected when its `max_wait` is over.

use std::mem;
use std::rc::Rc;

use super::Requests;
use super::state::{Request, State, Waiting};
use crate::config::Config;
use crate::decision::{CheckAnswer, Decision};
use crate::engine::StreamId;
use crate::engine::clock::Now;
use crate::engine::store::NotAsked;
use crate::engine::stores::Stores;
use crate::engine::subject::permit_queue::{ASK_TOGETHER, Queued};
use crate::limit::RetryAfter;
use crate::policy::{Check, Mode, OnFailure, QueueSettings};
use crate::time::Micros;

impl Requests {
    /// Puts a request that is about to be decided into a permit queue, if only such a limit denies it. Returns true if it waits there.
    pub(super) fn queue(&mut self, stream: StreamId, now: Now) -> bool {
        if !self.config.queues {
            return false;
        }
        let Some(request) = self.requests.get_mut(&stream) else { return false };
        let denied = denied_by_queue(request, &self.config);
        let (came, number) = request.arrived;
        let State::Waiting(waiting) = &mut request.state else { return false };
        // If it has waited in a queue before, it has asked again.
        let former = waiting.queued.take();
        let until =
            |queue: &QueueSettings| former.as_ref().map_or(came.plus(queue.max_wait), |queued| queued.until);
        let denied = denied.filter(|(_, queue, _)| until(queue) > now.uptime);
        let Some((place, queue, denial)) = denied else {
            if let Some(queued) = former {
                let answer =
                    request.checks.get(queued.place).and_then(|policy_check| policy_check.answer.as_ref());
                let granted = answer.and_then(CheckAnswer::decision).is_none_or(|decision| decision.granted);
                self.permit_queues.leave(stream, &queued, Some(granted), now.uptime);
            }
            return false;
        };
        let Some(policy_check) = request.checks.get_mut(place) else { return false };
        let until = until(&queue);
        let is_new = former.is_none();
        let queued = match former {
            Some(queued) => Box::new(Queued { denial, ..*queued }),
            None => {
                let key = Rc::clone(&policy_check.check);
                Box::new(Queued { key, place, denial, until })
            }
        };
        if is_new && !self.permit_queues.join((number, stream), &queued, queue.max_waiting) {
            return false;
        }
        policy_check.answer = None;
        self.permit_queues.denied(&queued, !is_new, now.uptime);
        request.state = State::Queued(queued);
        true
    }

    /// Asks the stores again about the requests at the heads of the queues that are due.
    pub fn ask_again(&mut self, stores: &mut Stores, now: Now) {
        while let Some(key) = self.permit_queues.pop_due(now.uptime) {
            if let Err(NotAsked::Overloaded) = stores.admits(&key, now) {
                // It waits for another pause.
                self.permit_queues.plan(&key, now.uptime);
                continue;
            }
            for stream in self.resume(&key) {
                self.ask(stream, stores, now);
            }
        }
    }

    /// The requests at the head of a queue ask again. Returns them.
    fn resume(&mut self, key: &Check) -> Vec<StreamId> {
        let Some(queue) = self.permit_queues.queue_of(key) else { return Vec::new() };
        let mut first = None::<Rc<Check>>;
        let mut streams = Vec::new();
        for &(_, stream) in queue.requests.iter().take(ASK_TOGETHER) {
            let Some(request) = self.requests.get_mut(&stream) else { continue };
            let State::Queued(queued) = &request.state else { continue };
            let Some(of) = request.checks.get(queued.place) else { continue };
            // Requests with one check share a task, and get its grants in their order.
            if **first.get_or_insert_with(|| Rc::clone(&of.check)) != *of.check {
                break;
            }
            let asks = State::Waiting(Waiting::default());
            if let State::Queued(queued) = mem::replace(&mut request.state, asks) {
                request.state = State::Waiting(Waiting { queued: Some(queued), ..Waiting::default() });
            }
            streams.push(stream);
        }
        if streams.is_empty() {
            self.permit_queues.remove(key);
            return streams;
        }
        queue.asks(streams.len());
        self.waiting = self.waiting.saturating_add(streams.len());
        streams
    }

    /// Rejects the requests that have waited for long enough.
    pub fn expire_queued(&mut self, now: Now) {
        while let Some((until, stream)) = self.permit_queues.expired(now.uptime) {
            self.end_queue(stream, now);
            self.permit_queues.forget((until, stream));
        }
    }

    /// A request in a queue, if it is in one, waits no longer: it is rejected by the last denial.
    pub fn end_queue(&mut self, stream: StreamId, now: Now) {
        let Some(request) = self.requests.get_mut(&stream) else { return };
        let (queued, asked) = match mem::replace(&mut request.state, State::Waiting(Waiting::default())) {
            State::Queued(queued) => (queued, false),
            State::Waiting(Waiting { queued: Some(queued), .. }) => (queued, true),
            other => return request.state = other,
        };
        if let Some(policy_check) = request.checks.get_mut(queued.place) {
            policy_check.answer = Some(CheckAnswer::Store(queued.denial.clone()));
        }
        if !asked {
            self.waiting = self.waiting.saturating_add(1);
        }
        // It came too long ago to join a permit queue again.
        request.arrived.0 = Micros::ZERO;
        self.permit_queues.leave(stream, &queued, asked.then_some(false), now.uptime);
        self.decide(stream, now);
    }
}

/// Returns the check for whose permit a request may wait: the only one that rejects it, and only because of limits that have a queue. The
/// stricter of their settings apply.
fn denied_by_queue(request: &Request, config: &Config) -> Option<(usize, QueueSettings, Decision)> {
    if request.is_quota_request {
        return None;
    }
    let mut denied = None;
    for (place, policy_check) in request.checks.iter().enumerate() {
        match policy_check.answer.as_ref()? {
            _ if policy_check.check.mode != Mode::Enforce => {}
            CheckAnswer::Unavailable if config.on_failure(&policy_check.check) != OnFailure::Deny => {}
            CheckAnswer::Store(decision) if !decision.granted && denied.is_none() => {
                denied = Some((place, &policy_check.check, decision));
            }
            answer if answer.decision().is_some_and(|decision| decision.granted) => {}
            _ => return None,
        }
    }
    let (place, check, decision) = denied.filter(|(_, _, decision)| !decision.is_banned())?;
    let mut strictest = None::<QueueSettings>;
    let violated = decision.limits.iter().zip(config.queues_of(check));
    for (_, queue) in violated.filter(|(status, _)| status.retry_after != RetryAfter::Now) {
        let queue = (*queue)?;
        strictest = Some(strictest.map_or(queue, |other| other.stricter(queue)));
    }
    Some((place, strictest?, decision.clone()))
}
