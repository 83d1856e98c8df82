// SPDX-License-Identifier: Apache-2.0
//! The calls of the host about requests and their responses.

use super::{Engine, Release, StreamId, Submitted};
use crate::body::Ids;
use crate::config::{BeforeBody, Unasked, UnaskedRuling};
use crate::inline_vec::InlineVec;
use crate::policy::settle::{Fields, Settling, Watched};
use crate::policy::{Check, Denial};
use crate::response::{Header, Record};
use crate::time::Micros;

impl Engine {
    /// A request has arrived, and what applies to it cannot be told before its body is there: the host pauses it, and passes its
    /// body on. If it does not come in time, or a policy denies the request meanwhile, [`Engine::next_release`] rejects the request.
    /// Returns false if too many wait already: the host takes the body for one that cannot be read.
    pub fn await_body(&mut self, stream: StreamId, before: BeforeBody, now: Micros) -> bool {
        self.happens(now, |engine, now| engine.requests.await_body(stream, before, now))
    }

    /// The body of the request is there, or is not waited for.
    pub fn body_came(&mut self, stream: StreamId, is_unreadable: bool) {
        self.happens(self.clock.latest().host, |Self { requests, .. }, _| {
            requests.bodies.unreadable = requests.bodies.unreadable.saturating_add(is_unreadable.into());
            requests.body_came(stream);
        });
    }

    /// True if the request waits for its body.
    #[must_use]
    pub fn awaits_body(&self, stream: StreamId) -> bool {
        self.requests.awaits_body(stream)
    }

    /// True if the host has to go on to pause the request: it has not been told yet to let it through.
    #[must_use]
    pub fn is_paused(&self, stream: StreamId) -> bool {
        self.requests.is_paused(stream)
    }

    /// A request arrived, and these checks apply to it.
    pub fn submit(&mut self, stream: StreamId, checks: InlineVec<Check>, now: Micros) -> Submitted {
        self.arrived(stream, checks, false, now)
    }

    /// A rejection of this request in JSON-RPC names these calls.
    pub fn name(&mut self, stream: StreamId, json_rpc_ids: Ids) {
        self.requests.name(stream, json_rpc_ids);
    }

    /// A quota request arrived, and these checks apply to it, if there are any. Its [`Action::Reject`](super::Action::Reject) has the answer.
    pub fn submit_quota_request(
        &mut self,
        stream: StreamId,
        checks: InlineVec<Check>,
        now: Micros,
    ) -> Submitted {
        self.arrived(stream, checks, true, now)
    }

    fn arrived(
        &mut self,
        stream: StreamId,
        checks: InlineVec<Check>,
        is_quota_request: bool,
        now: Micros,
    ) -> Submitted {
        self.happens(now, |Self { requests, stores, .. }, now| {
            if requests.submit(stream, checks, is_quota_request, now) {
                requests.ask(stream, stores, now);
            }
        });
        self.submitted(stream)
    }

    /// A request that was just submitted cannot wait, because no timer runs: `on_failure` decides it now.
    pub fn cannot_wait(&mut self, stream: StreamId, now: Micros) -> Submitted {
        self.happens(now, |engine, now| {
            engine.requests.end_queue(stream, now);
            engine.requests.stop_waiting(stream, &|_, _| true, now);
        });
        self.submitted(stream)
    }

    fn submitted(&mut self, stream: StreamId) -> Submitted {
        match self.requests.just_decided(stream) {
            Some(release) => Submitted::Decided(release.action),
            None => Submitted::Wait,
        }
    }

    /// The configuration decided this about a request without asking the store.
    pub fn note(&mut self, unasked: &Unasked) {
        self.requests.tally.unasked(unasked);
        let is_unreadable = |(_, ruling): &&(_, UnaskedRuling)| *ruling == UnaskedRuling::UnreadableBody;
        let unreadable = unasked.iter().filter(is_unreadable).count() as u64;
        self.requests.bodies.unreadable = self.requests.bodies.unreadable.saturating_add(unreadable);
    }

    /// A request was denied without [`submit`](Self::submit), by the policy of this index or by the global deny list: for the
    /// journal. If the configuration has none, a host need not call this. Otherwise [`next_tick`](Self::next_tick) may be sooner from
    /// now on.
    pub fn denied(&mut self, policy: Option<usize>, denial: Denial, now: Micros) {
        let Some(journal) = self.stores.own().and_then(|store| store.journal.as_mut()) else { return };
        let now = self.clock.at(now);
        let policy = policy.and_then(|policy| self.config.policies.get(policy));
        journal.denied_unasked(policy.map_or("", |policy| &policy.name), denial, now.uptime);
    }

    /// The next request to let through or reject.
    pub fn next_release(&mut self) -> Option<Release> {
        self.requests.next_release()
    }

    /// True if [`next_release`](Self::next_release) has one.
    #[must_use]
    pub fn has_releases(&self) -> bool {
        !self.requests.releases.is_empty()
    }

    /// Returns the headers to add to the response of an admitted request; `None` if the request is not admitted.
    pub fn headers_to_add(&mut self, stream: StreamId) -> Option<&[Header]> {
        self.requests.headers_to_add(stream, &mut self.headers).then_some(self.headers.as_slice())
    }

    /// The record of a decided request for Envoy's filter state, if the configuration asks for it.
    #[must_use]
    pub fn record(&self, stream: StreamId) -> Option<Record<'_>> {
        self.requests.record(stream)
    }

    /// The headers of the response to a request. `fields` reads them. Returns what else the host has to pass on of this response.
    pub fn response_headers(&mut self, stream: StreamId, fields: Fields<'_>, now: Micros) -> Watched {
        self.happens(now, |engine, now| engine.requests.response_headers(stream, fields, now))
    }

    /// A part of the response's body, of this many bytes: for requests with [`Watched::size`] or [`Watched::content`]. `content` is these
    /// bytes; it may be empty if only the size is watched.
    pub fn response_body(&mut self, stream: StreamId, bytes: usize, content: &[u8]) {
        self.requests.settlings(stream).for_each(|settling| settling.body(bytes, content));
    }

    /// This many bytes of the request's body have passed until now: for a configuration that [counts them](crate::config::Config::counts_uploads).
    pub fn uploaded(&mut self, stream: StreamId, bytes: u64) {
        self.requests.settlings(stream).for_each(|settling| settling.uploaded(bytes));
    }

    /// The response has ended by itself, and was not cut off: for requests with [`Watched::is_any`].
    pub fn response_whole(&mut self, stream: StreamId) {
        self.requests.settlings(stream).for_each(Settling::whole);
    }

    /// The trailers of the response: for requests with [`Watched::trailers`]. `fields` reads them.
    pub fn response_trailers(&mut self, stream: StreamId, fields: Fields<'_>, now: Micros) {
        self.happens(now, |engine, now| engine.requests.response_trailers(stream, fields, now));
    }

    /// The stream is over, however it ended.
    pub fn closed(&mut self, stream: StreamId, now: Micros) {
        self.happens(now, |engine, now| engine.requests.closed(stream, now));
    }

    /// The worker or its configuration is about to end: unused leases are refunded with the next batch.
    pub fn retire(&mut self) {
        self.happens(self.clock.latest().host, |engine, _| {
            engine.is_retired = true;
            engine.requests.retire();
            if let Some(journal) = engine.stores.own().and_then(|store| store.journal.as_mut()) {
                journal.retire();
            }
        });
    }

    /// True if [`retire`](Self::retire) was called.
    #[must_use]
    pub const fn is_retired(&self) -> bool {
        self.is_retired
    }
}
