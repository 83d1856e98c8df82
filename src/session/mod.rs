// SPDX-License-Identifier: Apache-2.0
//! One request, from its headers to its end: evaluates the policies, submits the request to the [engine](crate::engine), and passes on what
//! the engine needs of its body and of the response. A host translates between Envoy and a [`Session`]: it calls the session in each
//! callback of Envoy, and does what the session returns.
//!
//! ```text
//!  headers ──┬─▶ Continue    no policy applies, or the engine admits the request at once
//!            ├─▶ Reject      a list, a policy or the engine rejects it at once, or the engine answers its quota request
//!            ├─▶ AwaitBody   a policy needs its body ──▶ body, trailers ──▶ Continue, Reject or Pause, as for headers
//!            └─▶ Pause       it waits, until Engine::next_release says whether it continues or is rejected
//!
//!  body, trailers             a request that waits or is rejected stays paused
//!  response_*                 headers to add; the engine reads the true cost of the request
//!  closed                     the stream is over, however it ended
//! ```

mod table;
mod worker;

use std::rc::Rc;

use crate::body::Ids;
use crate::config::{BeforeBody, Config, Evaluation, Unasked};
use crate::engine::{Action, Engine, StreamId, Submitted};
use crate::policy::Denial;
use crate::policy::settle::{Fields, Watched};
use crate::request::body::Body;
use crate::response::{self, Header, Rejection};
use crate::time::Micros;

pub use table::{Entry, RequestTable};
pub use worker::{Exchange, Worker};

/// Envoy's action for a request after a callback.
#[derive(Debug)]
pub enum Next {
    /// The request continues.
    Continue,
    /// It waits, and so does what comes of it. If it was rejected already, nothing of it passes either.
    Pause,
    /// The request waits for its body. Envoy calls back with each part of the body, and keeps it.
    AwaitBody,
    /// The client gets this response in the upstream's place.
    Reject(Box<Rejection>),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Session {
    stream: StreamId,
    phase: Phase,
    /// The parts of the response that the engine has to see.
    watched: Watched,
    /// The bytes of the request's body that have passed, if the configuration counts them.
    uploaded: u64,
}

#[derive(Debug)]
enum Phase {
    /// The engine does not know it. A request that no policy applies to costs nothing more after its headers.
    Unknown,
    /// The engine knows it, and it waits for its body. This is the part that has arrived.
    AwaitsBody(Body),
    /// The engine knows it.
    Known,
    /// It was rejected, and the engine does not know it.
    Denied,
}

/// A chunk of a request's body, or its trailers.
pub struct Chunk<'a> {
    /// Its number of bytes.
    pub size: &'a dyn Fn() -> usize,
    /// Shows the bytes to the body's reader. It is called only if the request waits for its body.
    pub feed: &'a mut dyn FnMut(&mut Body),
    /// True if the body ends here.
    pub is_end: bool,
}

/// Shows how many bytes of a body there are, and these bytes, in parts.
pub type Show<'a> = &'a mut dyn FnMut(usize, &[u8]);

/// Writes to the filter state, name by name.
type Write<'a> = &'a dyn Fn(&str, &str);

/// Writes the record of a decided request to the filter state, if the configuration asks for it.
pub fn record(engine: &Engine, stream: StreamId, write: Write<'_>) {
    let Some(record) = engine.record(stream) else { return };
    let mut digits = itoa::Buffer::new();
    write("weir.policy", record.policy);
    write("weir.limit", record.limit);
    write("weir.outcome", record.outcome);
    write("weir.remaining", record.remaining.map_or("", |remaining| digits.format(remaining)));
    write("weir.source", record.source);
}

/// A rejection in JSON-RPC names the calls that it answers.
fn answering(next: Next, ids: Option<&Ids>) -> Next {
    match next {
        Next::Reject(mut rejection) => {
            rejection.name_calls(ids);
            Next::Reject(rejection)
        }
        next => next,
    }
}

impl Session {
    /// A request has arrived. The host names it, and no other request that the engine knows has this name.
    #[must_use]
    pub const fn new(stream: StreamId) -> Self {
        let watched = Watched { size: false, content: false, trailers: false, unreadable: false };
        Self { stream, phase: Phase::Unknown, watched, uploaded: 0 }
    }

    /// The host's name for it.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// True if the engine knows it: the session has to learn of its response and of its end.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        matches!(self.phase, Phase::AwaitsBody(_) | Phase::Known)
    }

    // --- The request -----------------------------------------------------------------------------------------------

    /// Its headers are there.
    pub fn headers(&mut self, worker: &mut impl Worker, exchange: &impl Exchange) -> Next {
        self.decide(worker, exchange, None)
    }

    /// A chunk of its body is there, or its trailers, which end the body.
    pub fn body(
        &mut self,
        worker: &mut impl Worker,
        exchange: &impl Exchange,
        Chunk { size, feed, is_end }: Chunk<'_>,
    ) -> Next {
        let engine = worker.engine();
        if engine.config().counts_uploads && self.is_known() {
            self.uploaded = self.uploaded.saturating_add(size() as u64);
        }
        match std::mem::replace(&mut self.phase, Phase::Known) {
            // One that is late, or denied meanwhile, waits for its body no longer.
            Phase::AwaitsBody(mut body) if engine.awaits_body(self.stream) => {
                feed(&mut body);
                if is_end {
                    body.end();
                }
                if !body.is_read() {
                    self.phase = Phase::AwaitsBody(body);
                    return Next::AwaitBody;
                }
                engine.body_came(self.stream, body.is_unreadable());
                let now = worker.now();
                worker.report(now);
                self.phase = Phase::Unknown;
                self.decide(worker, exchange, Some(&body))
            }
            Phase::AwaitsBody(_) | Phase::Known => match engine.is_paused(self.stream) {
                true => Next::Pause,
                false => Next::Continue,
            },
            Phase::Unknown => {
                self.phase = Phase::Unknown;
                Next::Continue
            }
            Phase::Denied => {
                self.phase = Phase::Denied;
                Next::Pause
            }
        }
    }

    /// Decides the request, if what is known of it is enough: its headers, and its body where that has come.
    fn decide(&mut self, worker: &mut impl Worker, exchange: &impl Exchange, body: Option<&Body>) -> Next {
        let config = Rc::clone(worker.engine().config());
        let mut unasked = Unasked::new();
        let mut evaluation = config.evaluate_and_note(exchange, body, &mut unasked);
        let mut next = None;
        if let Evaluation::AwaitBody(before) = evaluation {
            next = self.await_body(worker, exchange, *before);
            evaluation = match config.unreadable_body().filter(|_| next.is_none()) {
                Some(body) => config.evaluate_and_note(exchange, Some(&body), &mut unasked),
                None => Evaluation::Admit,
            };
        }
        let failures = exchange.take_failures();
        if !failures.is_empty() {
            let now = worker.now();
            let (_, report, metrics) = worker.parts();
            report.unreadable(&failures, metrics, now);
        }
        if !unasked.is_empty() {
            let (engine, report, _) = worker.parts();
            engine.note(&unasked);
            // An export that is due already counts these, too.
            if report.due().is_none() {
                let now = worker.now();
                worker.report(now);
            }
        }
        if let Some(next) = next {
            return next;
        }
        let ids = body.and_then(Body::json_rpc_ids);
        let (checks, is_quota_request) = match evaluation {
            Evaluation::Admit | Evaluation::AwaitBody(_) => return Next::Continue,
            Evaluation::Deny(policy, denial) => {
                let next = self.deny(worker, exchange, (policy, denial), &config);
                return answering(next, ids.as_ref());
            }
            Evaluation::Check(checks) => (checks, false),
            Evaluation::QuotaRequest(checks) => (checks, true),
        };
        self.phase = Phase::Known;
        let now = worker.now();
        let mut submitted = match is_quota_request {
            true => worker.engine().submit_quota_request(self.stream, checks, now),
            false => worker.engine().submit(self.stream, checks, now),
        };
        if let Submitted::Wait = submitted {
            // The timer decides the request at its deadline if no reply arrives.
            if !worker.wait(now) {
                submitted = worker.engine().cannot_wait(self.stream, now);
            } else if worker.engine().wants_to_send() {
                // Otherwise a batch is in flight, and its reply is the wake-up.
                worker.wake(now);
            }
        }
        match submitted {
            // One that is held waits in any event.
            Submitted::Wait => {
                if let Some(ids) = ids {
                    worker.engine().name(self.stream, ids);
                }
                Next::Pause
            }
            Submitted::Decided(action) => {
                answering(self.decided(worker, exchange, action, now), ids.as_ref())
            }
        }
    }

    /// Its body has to come first. Returns `None` if it cannot wait for it: then the body is one that cannot be read.
    fn await_body(
        &mut self,
        worker: &mut impl Worker,
        exchange: &impl Exchange,
        before: BeforeBody,
    ) -> Option<Next> {
        let now = worker.now();
        if worker.engine().await_body(self.stream, before, now) {
            if worker.wait(now) {
                self.phase = Phase::AwaitsBody(worker.engine().config().body(exchange)?);
                return Some(Next::AwaitBody);
            }
            // A policy may have denied it already, whatever its body has.
            if let Submitted::Decided(action) = worker.engine().cannot_wait(self.stream, now) {
                self.phase = Phase::Known;
                return Some(self.decided(worker, exchange, action, now));
            }
        }
        worker.engine().body_came(self.stream, true);
        None
    }

    /// A list or a policy denies it without a check.
    fn deny(
        &mut self,
        worker: &mut impl Worker,
        exchange: &impl Exchange,
        (policy, denial): (Option<usize>, Denial),
        config: &Config,
    ) -> Next {
        if config.journal.is_some() {
            let now = worker.now();
            worker.engine().denied(policy, denial, now);
            worker.arm(now);
        }
        let name = policy.and_then(|policy| config.policies.get(policy)).map_or("", |policy| &policy.name);
        if config.emit_filter_state {
            exchange.write_state("weir.policy", name);
            exchange.write_state("weir.outcome", "denied");
        }
        self.phase = Phase::Denied;
        Next::Reject(response::deny(config.response(policy), name).into())
    }

    /// The engine has decided it at once. No wake-up is sent for it, so no turn of the worker reports it.
    fn decided(
        &self,
        worker: &mut impl Worker,
        exchange: &impl Exchange,
        action: Action,
        now: Micros,
    ) -> Next {
        record(worker.engine(), self.stream, &|name, value| exchange.write_state(name, value));
        worker.report(now);
        match action {
            Action::Admit => Next::Continue,
            Action::Reject(rejection) => Next::Reject(rejection),
        }
    }

    // --- The response ----------------------------------------------------------------------------------------------

    /// The headers of the response are there; `fields` reads them. Returns the headers to add. `is_end`: nothing follows.
    pub fn response_headers<'w>(
        &mut self,
        worker: &'w mut impl Worker,
        fields: Fields<'_>,
        is_end: bool,
    ) -> &'w [Header] {
        if !self.is_known() {
            return &[];
        }
        if worker.engine().config().settles {
            let now = worker.now();
            self.watched = worker.engine().response_headers(self.stream, fields, now);
            worker.follow_up(now);
            self.response_ends(worker, is_end);
        }
        worker.engine().headers_to_add(self.stream).unwrap_or(&[])
    }

    /// A part of the response's body is there. If the engine has to see it, `show` passes on how many bytes these are. It passes on the
    /// bytes, too, if its first argument says so; otherwise they may be empty. `is_end`: nothing follows.
    pub fn response_body(&self, worker: &mut impl Worker, show: &dyn Fn(bool, Show<'_>), is_end: bool) {
        if self.watched.size || self.watched.content {
            let engine = worker.engine();
            show(self.watched.content, &mut |size, bytes| engine.response_body(self.stream, size, bytes));
        }
        self.response_ends(worker, is_end);
    }

    fn response_ends(&self, worker: &mut impl Worker, is_end: bool) {
        if is_end && self.watched.is_any() {
            worker.engine().response_whole(self.stream);
        }
    }

    /// The trailers of the response are there; `fields` reads them.
    pub fn response_trailers(&self, worker: &mut impl Worker, fields: Fields<'_>) {
        self.response_ends(worker, true);
        if self.watched.trailers {
            let now = worker.now();
            worker.engine().response_trailers(self.stream, fields, now);
            worker.follow_up(now);
        }
    }

    /// The stream is over, however it ended.
    pub fn closed(&mut self, worker: &mut impl Worker) {
        if self.is_known() {
            self.phase = Phase::Unknown;
            let now = worker.now();
            if self.uploaded > 0 {
                worker.engine().uploaded(self.stream, self.uploaded);
            }
            worker.engine().closed(self.stream, now);
            worker.follow_up(now);
        }
    }
}
