// SPDX-License-Identifier: Apache-2.0
//! The stream of a request is closed. The engine settles what the request took, and forgets it as soon as no batch in flight asks
//! about it.

use super::state::{AwaitsBody, PolicyCheck, Receipt, Request, State, Waiting};
use super::{Effect, Requests};
use crate::engine::StreamId;
use crate::engine::clock::Now;
use crate::engine::store::Due;

impl Requests {
    /// The stream is closed, however it ended.
    pub fn closed(&mut self, stream: StreamId, now: Now) {
        let Some(mut request) = self.requests.remove(&stream) else { return };
        match request.state {
            State::AwaitsBody(AwaitsBody { client, .. }) => {
                self.awaited.leave((request.arrived.0, stream), client);
                self.effects.push_back(Effect::NoLongerWaits(stream));
            }
            State::Waiting(Waiting { queued, .. }) => {
                if let Some(queued) = queued {
                    self.permit_queues.leave(stream, &queued, Some(false), now.uptime);
                }
                self.stopped_waiting(stream);
            }
            State::Queued(queued) => self.permit_queues.leave(stream, &queued, None, now.uptime),
            State::Held { due, .. } => {
                self.held.remove(&(due, stream));
            }
            State::Admitted | State::Ended(_) => {}
            State::Rejected | State::Closed => {
                // Within twice the deadline, no batch in flight asks about it any more.
                if request.in_flight() {
                    request.state = State::Closed;
                    self.requests.insert(stream, request);
                }
                return;
            }
        }
        let mut late = Vec::new();
        for (place, PolicyCheck { check, receipt, settling, in_flight, renews, .. }) in
            request.checks.iter_mut().enumerate()
        {
            let settle = self.config.settle(check);
            let cost = settling.as_mut().map(|settling| settling.at_end(settle, check.cost, now.uptime));
            // A loan has served it: then a late grant of its own store is of no use.
            let is_lent = matches!(receipt, Some(Receipt::Store(_)));
            if *in_flight && (cost.is_some() || is_lent) {
                late.resize(place, None);
                late.push(cost);
            }
            let Some(receipt) = receipt else { continue };
            if let Some(cost) = cost {
                self.settle_cost(check, cost, receipt, now);
            }
            // What the renewal replies is released then: until it is known which permits these are, they could be those of another request.
            if !*renews {
                self.settle(check, Due::Release(1), receipt, now);
            }
        }
        if !late.is_empty() {
            request.state = State::Ended(late);
            self.requests.insert(stream, request);
        }
    }

    /// Forgets a request whose stream is closed, if no batch in flight has a check of it.
    pub(super) fn forget_closed(&mut self, stream: StreamId) {
        let is_closed = |request: &Request| matches!(request.state, State::Closed | State::Ended(_));
        let over = |request: &Request| is_closed(request) && !request.in_flight();
        if self.requests.get(&stream).is_some_and(over) {
            self.requests.remove(&stream);
        }
    }
}
