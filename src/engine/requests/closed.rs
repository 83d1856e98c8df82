// SPDX-License-Identifier: Apache-2.0
//! The stream of a request is closed. The engine settles what the request took, and forgets it as soon as no batch in flight asks
//! about it.

use super::Requests;
use super::request::{Part, Request, State};
use crate::engine::StreamId;
use crate::engine::clock::Now;
use crate::engine::dispatch::Due;

impl Requests {
    /// The stream is closed, however it ended.
    pub fn closed(&mut self, stream: StreamId, now: Now) {
        let Some(mut request) = self.requests.remove(&stream) else { return };
        if let Some(queued) = request.queued.take() {
            self.lines.leave(stream, *queued, false, now.uptime);
        }
        match request.state {
            State::AwaitsBody { client, .. } => {
                self.awaited.leave((request.arrived.0, stream), client);
                self.no_longer_waiting.push(stream);
            }
            State::Waiting => self.stopped_waiting(stream),
            State::Held { due, .. } => {
                self.held.remove(&(due, stream));
            }
            State::Queued | State::Admitted(_) => {}
            State::Rejected | State::Closed => {
                // Within twice the deadline, no batch in flight asks about it any more.
                if request.in_flight() {
                    request.state = State::Closed;
                    self.requests.insert(stream, request);
                }
                return;
            }
        }
        for Part { check, receipt, settling, .. } in &mut request.parts {
            let Some(receipt) = receipt else { continue };
            if let Some(settling) = settling {
                let cost = settling.at_end(self.config.settle(check), check.cost, now.uptime);
                self.settle_cost(check, cost, receipt, now);
            }
            self.settle(check, Due::Release(1), receipt, now);
        }
    }

    /// Forgets a request whose stream is closed, if no batch in flight asks about it.
    pub(super) fn forget_closed(&mut self, stream: StreamId) {
        let over = |request: &Request| matches!(request.state, State::Closed) && !request.in_flight();
        if self.requests.get(&stream).is_some_and(over) {
            self.requests.remove(&stream);
        }
    }
}
