// SPDX-License-Identifier: Apache-2.0
//! Requests that wait for their bodies, because a policy needs a value in them. One whose body does not come in time is rejected.

use super::Requests;
use super::request::{Request, State};
use crate::engine::clock::Now;
use crate::engine::{Action, Release, StreamId};
use crate::inline_vec::InlineVec;
use crate::response;
use crate::time::Micros;

/// At most this many requests of one worker wait for their bodies; one more is decided as if its body could not be read.
const MAX_BODIES: usize = 4_096;

impl Requests {
    /// A request has to wait for its body. Returns whether it may.
    pub fn await_body(&mut self, stream: StreamId, now: Now) -> bool {
        let may = self.awaited.len() < MAX_BODIES;
        if may {
            let due = now.uptime.plus(self.config.request_body.timeout);
            self.awaited.insert((due, stream), ());
            let (parts, state) = (InlineVec::new(), State::AwaitsBody { due });
            let request = Request::new(parts, state, (now.uptime, 0));
            self.requests.insert(stream, request);
        }
        may
    }

    pub fn awaits_body(&self, stream: StreamId) -> bool {
        self.body_due(stream).is_some()
    }

    fn body_due(&self, stream: StreamId) -> Option<Micros> {
        match self.requests.get(&stream)?.state {
            State::AwaitsBody { due } => Some(due),
            _ => None,
        }
    }

    /// The request waits for its body no longer.
    pub fn body_came(&mut self, stream: StreamId) {
        if let Some(due) = self.body_due(stream) {
            self.awaited.remove(&(due, stream));
            self.requests.remove(&stream);
        }
    }

    /// Rejects the requests whose bodies did not come in time.
    pub fn expire_bodies(&mut self, now: Now) {
        while let Some(&((_, stream), ())) = self.awaited.first().filter(|((due, _), ())| *due <= now.uptime)
        {
            self.awaited.pop_first();
            if let Some(request) = self.requests.get_mut(&stream) {
                request.state = State::Rejected;
                self.decided.rejected = self.decided.rejected.saturating_add(1);
                self.bodies.late = self.bodies.late.saturating_add(1);
                let action = Action::Reject(response::late(&self.config.response));
                self.releases.push_back(Release { stream, action });
            }
        }
    }

    /// The uptime at which the next body is late.
    pub fn next_late_body(&self) -> Option<Micros> {
        self.awaited.first().map(|((due, _), ())| *due)
    }
}
