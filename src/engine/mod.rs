// SPDX-License-Identifier: Apache-2.0
//! The state machine of one worker: which requests wait, what to ask the store about them, and how they are decided. Plain
//! values in, plain values out. The host owns the sockets, the timers and the clock.
//!
//! ```text
//!  submit ──▶ waiting ──▶ next_batch ──▶ (the store) ──▶ replied ──▶ decided ──▶ next_release
//!                │                           │               │          │
//!                │ deadline (tick)           │ NOSCRIPT      │ failed   │ delay: held until it is due (tick)
//!                │                           │               │          │ denied by a limit with a queue: asks again (tick)
//!                └─▶ on_failure: allow|deny ◀┼───────────────┘          │
//!                                            └─▶ sent again with EVAL   └─▶ denied: the grants of other policies are refunded
//!
//!  response_*: the response shows what the request has cost. The difference to what it reserved is charged or refunded.
//!  closed: the stream is over. A waiting request leaves its task, permits are released, and the cost is settled. The engine keeps a
//!          rejected request while batches in flight ask about it, so that a late grant is refunded.
//! ```
//!
//! | module | what is inside |
//! |---|---|
//! | `requests` | the requests' life: submitted, decided, held, released, closed; what is known without asking |
//! | `dispatch` | a store: queues, batches in flight, congestion window, breakers, replies |
//! | `stores` | the dispatches to all stores |
//! | `pool`, `pipeline`, `greeting` | the host's connections to the stores |
//! | `timer` | the timer of the plugin |
//! | `metrics`, `report` | what is measured; when it is exported, and the log |
//! | `failure` | what can go wrong with the store, and what to do about it |
//! | `clock`, `generations` | what the modules share |
//!
//! The interface between the first two is small. The dispatch reports the `End` of each task. The requests report refunds,
//! and which requests no longer wait. [`Engine`] only carries these from one to the other.
//!
//! A request is decided exactly once. If its grant arrives after that, the charge stays if the request was admitted, and is
//! refunded if it was rejected.
//!
//! ```
//! # use std::rc::Rc;
//! # use weir::{config::Config, resp, time::Micros};
//! # use weir::engine::{Action, Engine, Submitted};
//! # use weir::policy::{Check, Mode};
//! let config = Config::parse(br#"{"policies": [{
//!     "name": "api", "subject": [{"client_address": {}}],
//!     "limits": [{"name": "burst", "algorithm": "leaky_bucket", "rate": "5/s", "burst": 10}]
//! }]}"#).unwrap();
//! let mut engine = Engine::new(Rc::new(config), 4711);
//! let now = Micros::from_secs(1_800_000_000);
//!
//! // A request arrives, and waits.
//! let check = Check::one(0, b"{api|192.0.2.1}");
//! assert!(matches!(engine.submit(7, [check].into_iter().collect(), now), Submitted::Wait));
//!
//! // The host sends the batch, and passes the reply back: one request is granted, nine units remain.
//! let batch = engine.next_batch(now).unwrap();
//! let mut reply = Vec::new();
//! resp::bulk(&mut reply, &[1, 1_800_000_000_000_000_i64, 9, 0, 200_000, 0].map(i64::to_le_bytes).concat());
//! engine.replied(batch.id, &reply, now);
//!
//! // The request is admitted. When its stream ends, the engine forgets it.
//! let release = engine.next_release().unwrap();
//! assert!(matches!((release.stream, release.action), (7, Action::Admit)));
//! engine.closed(7, now);
//! assert_eq!(engine.request_count(), 0);
//! ```

mod clock;
mod dispatch;
mod failure;
mod generations;
mod greeting;
mod metrics;
mod pipeline;
mod pool;
mod report;
mod requests;
mod stores;
mod timer;

use std::rc::Rc;

use crate::body::Ids;
use crate::config::{BeforeBody, Config, Unasked, UnaskedRuling};
use crate::inline_vec::InlineVec;
use crate::policy::settle::{Fields, Watched};
use crate::policy::{Check, Denial, Mode, OnFailure, Policy};
use crate::response::{Header, Headers, PolicyDenial, Record, Rejection};
use crate::time::Micros;

use clock::{LOOK, TICK};
use dispatch::{Batch, Charges, Completed, Dispatch, Due, End, NotAsked, UsageEnd, Work, tasks};
use metrics::Usage;
use requests::{Loan, Requests};
use stores::Stores;

pub use clock::{Clock, Now};
pub use dispatch::{Outage, Slots};
pub use failure::StoreFailure;
pub use greeting::{greeting, refusal};
pub use metrics::{
    BUILD_INFO, CONFIG_HASH, COUNTERS, Catalogue, Counters, Definition, Fixed, GAUGES, HISTOGRAMS, Kind,
    LIMIT_OUTCOMES, MAX_LIMIT_SERIES, MAX_POLICY_PEERS, Metric, Metrics, PANICS, PEERS, POLICY_PEERS,
    PeerMetric, UNREADABLE, escaped,
};
pub use pipeline::{Pipeline, Unexpected};
pub use pool::{NoConnection, Output, Pool, Purpose, Transport};
pub use report::{Export, Report};
pub use timer::Timer;

/// The host's name for one request.
pub type StreamId = u32;

/// Names one batch in flight.
pub type BatchId = u32;

/// The answer to a request that was just submitted.
#[derive(Debug)]
pub enum Submitted {
    /// Pause it: its verdict comes from [`Engine::next_release`].
    Wait,
    /// It is decided already.
    Decided(Action),
}

/// The action for a request.
#[derive(Debug)]
pub enum Action {
    /// Let it through. [`Engine::headers_to_add`] has the headers for its response.
    Admit,
    /// Answer it instead of the upstream.
    Reject(Box<Rejection>),
}

/// The action for a request that was paused.
#[derive(Debug)]
pub struct Release {
    /// The request.
    pub stream: StreamId,
    /// The action.
    pub action: Action,
}

/// A batch to send to the store now.
#[derive(Debug)]
pub struct Outgoing {
    /// The host passes it back with the reply.
    pub id: BatchId,
    /// The store that it is for: an index into the configuration's regions.
    pub store: u8,
    /// The RESP commands.
    pub body: Vec<u8>,
    /// The number of commands, and so of the RESP replies that answer them. A host that speaks RESP needs it, because nothing in the
    /// replies says which batch they answer; the bridge counts the commands by itself.
    pub replies: usize,
    /// Its slots. A host that has several batches on one connection needs a connection for each of these: otherwise batches wait behind a
    /// shard that hangs.
    pub slots: Slots,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Engine {
    config: Rc<Config>,
    clock: Clock,
    requests: Requests,
    stores: Stores,
    is_retired: bool,
    /// Settlements for which there was no room, or that got no answer.
    lost_settlements: u64,
    /// The headers of the last response.
    headers: Headers,
}

impl Engine {
    /// An engine for one worker under one configuration. `seed` is any number that clients cannot know.
    #[must_use]
    pub fn new(config: Rc<Config>, seed: u64) -> Self {
        Self {
            clock: Clock::default(),
            requests: Requests::new(Rc::clone(&config), seed),
            stores: Stores::new(&config, seed),
            is_retired: false,
            lost_settlements: 0,
            headers: Headers::default(),
            config,
        }
    }

    /// The configuration this engine decides under.
    #[must_use]
    pub fn config(&self) -> &Rc<Config> {
        &self.config
    }

    // --- Requests --------------------------------------------------------------------------------------------------

    /// A request has arrived, and what applies to it cannot be told before its body is there: the host pauses it, and passes its
    /// body on. If it does not come in time, or a policy denies the request meanwhile, [`Engine::next_release`] rejects the request.
    /// Returns false if too many wait already: the host takes the body for one that cannot be read.
    pub fn await_body(&mut self, stream: StreamId, before: BeforeBody, now: Micros) -> bool {
        let now = self.clock.at(now);
        let may = self.requests.await_body(stream, before, now);
        self.carry(now);
        may
    }

    /// Asks the store about requests whose bodies are late.
    fn ask_without_bodies(&mut self, now: Now) {
        let admits = |check: &Check| self.stores.admits(check, now);
        for (check, waiter, slots) in self.requests.ask_without_bodies(&admits, now) {
            if let Some(store) = self.stores.of_mut(&check) {
                store.ask(&check, waiter, slots, now);
            }
        }
    }

    /// The body of the request is there, or is not waited for.
    pub fn body_came(&mut self, stream: StreamId, is_unreadable: bool) {
        let bodies = &mut self.requests.bodies;
        bodies.unreadable = bodies.unreadable.saturating_add(is_unreadable.into());
        self.requests.body_came(stream);
        self.carry(self.clock.latest());
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

    /// A quota request arrived, and these checks apply to it, if there are any. Its [`Action::Reject`] has the answer.
    pub fn enquire(&mut self, stream: StreamId, checks: InlineVec<Check>, now: Micros) -> Submitted {
        self.arrived(stream, checks, true, now)
    }

    fn arrived(
        &mut self,
        stream: StreamId,
        checks: InlineVec<Check>,
        is_enquiry: bool,
        now: Micros,
    ) -> Submitted {
        let now = self.clock.at(now);
        if self.requests.submit(stream, checks, is_enquiry, now) {
            self.ask(stream, now);
        }
        self.carry(now);
        self.submitted(stream)
    }

    /// Asks the store about a request that waits.
    fn ask(&mut self, stream: StreamId, now: Now) {
        let admits = |check: &Check| self.stores.admits(check, now);
        let deadline = |check: &Check| self.stores.of(check).map(|store| store.deadline(now));
        let (questions, overloaded) = self.requests.wait(stream, &deadline, &admits, now);
        if let Some(store) = overloaded {
            self.stores.count_failure(store, StoreFailure::Overloaded);
        }
        for (check, waiter, slots) in questions {
            if let Some(store) = self.stores.of_mut(&check) {
                store.ask(&check, waiter, slots, now);
            }
        }
    }

    /// Asks the store again about the requests at the heads of the queues that are due.
    fn ask_again(&mut self, now: Now) {
        while let Some(line) = self.requests.lines.pop_due(now.uptime) {
            if let Err(NotAsked::Overloaded) = self.stores.admits(&line, now) {
                self.requests.lines.postpone(&line, now.uptime);
                continue;
            }
            for stream in self.requests.resume(&line) {
                self.ask(stream, now);
            }
        }
        self.carry(now);
    }

    /// A request that was just submitted cannot wait, because no timer runs: `on_failure` decides it now.
    pub fn cannot_wait(&mut self, stream: StreamId, now: Micros) -> Submitted {
        let now = self.clock.at(now);
        self.requests.end_queue(stream, now);
        self.requests.stop_waiting(stream, &|_, _| true, now);
        self.carry(now);
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
        let now = self.clock.at(now);
        let watched = self.requests.response_headers(stream, fields, now);
        self.carry(now);
        watched
    }

    /// A part of the response's body, of this many bytes: for requests with [`Watched::size`] or [`Watched::content`]. `content` is these
    /// bytes; it may be empty if only the size is watched.
    pub fn response_body(&mut self, stream: StreamId, bytes: usize, content: &[u8]) {
        self.requests.response_body(stream, bytes, content);
    }

    /// The response has ended by itself, and was not cut off: for requests with [`Watched::is_any`].
    pub fn response_whole(&mut self, stream: StreamId) {
        self.requests.response_whole(stream);
    }

    /// The trailers of the response: for requests with [`Watched::trailers`]. `fields` reads them.
    pub fn response_trailers(&mut self, stream: StreamId, fields: Fields<'_>, now: Micros) {
        let now = self.clock.at(now);
        self.requests.response_trailers(stream, fields, now);
        self.carry(now);
    }

    /// The stream is over, however it ended.
    pub fn closed(&mut self, stream: StreamId, now: Micros) {
        let now = self.clock.at(now);
        self.requests.closed(stream, now);
        self.carry(now);
    }

    /// The worker or its configuration is about to end: unused leases are refunded with the next batch.
    pub fn retire(&mut self) {
        self.is_retired = true;
        self.requests.retire();
        if let Some(journal) = self.stores.own().and_then(|store| store.journal.as_mut()) {
            journal.retire();
        }
        self.carry(self.clock.latest());
    }

    /// True if [`retire`](Self::retire) was called.
    #[must_use]
    pub const fn is_retired(&self) -> bool {
        self.is_retired
    }

    // --- Batches ---------------------------------------------------------------------------------------------------

    /// True if a batch could be sent now.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        let now = self.clock.latest();
        let usage = self.requests.tally.usage.as_ref().and_then(Usage::due);
        usage.is_some_and(|due| due <= now.uptime) || self.stores.iter().any(|store| store.wants_to_send(now))
    }

    /// The next batch to send, if one may be sent now.
    pub fn next_batch(&mut self, now: Micros) -> Option<Outgoing> {
        let now = self.clock.at(now);
        let batch = self.stores.turns().find_map(|store| self.next_batch_to(store, now));
        batch.or_else(|| self.usage_batch(now))
    }

    /// The next batch to this store.
    fn next_batch_to(&mut self, store: u8, now: Now) -> Option<Outgoing> {
        loop {
            let dispatch = self.stores.get(store)?;
            let taken = dispatch.take(&|stream| self.requests.waits(stream), now);
            let Some((slots, mut batch)) = taken else { return self.journal_batch(store, now) };
            self.requests.serve(&mut batch, now);
            self.carry(now);
            if batch.is_empty() {
                continue;
            }
            let dispatch = self.stores.get(store)?;
            let mut prepare = |task: &mut _| self.requests.ask_in_advance(task, now);
            let (mut body, unfit) = dispatch.encode(&mut batch, &mut prepare, now);
            // Of those that do not fit, only the first was prepared.
            let prepared = unfit.first().into_iter().flat_map(|command| &command.tasks);
            prepared.for_each(|task| self.requests.not_sent(task));
            dispatch.requeue_unfit(slots, unfit);
            self.requests.sent(&batch);
            let journal = dispatch.add_journal(slots, &batch, &mut body.bytes, now);
            let overdue = dispatch.deadline(now);
            return Some(dispatch.send((store, slots), (batch, journal), body.bytes, overdue, now));
        }
    }

    /// A batch that has only entries of the journal, if it is time for one.
    fn journal_batch(&mut self, store: u8, now: Now) -> Option<Outgoing> {
        let dispatch = self.stores.get(store)?;
        let slots = dispatch.journal_slots(now)?;
        let (batch, mut body) = (Batch::new(), Vec::new());
        let journal = dispatch.add_journal(slots, &batch, &mut body, now);
        let overdue = dispatch.deadline(now);
        Some(dispatch.send((store, slots), (batch, journal), body, overdue, now))
    }

    /// The next write of the usage journal, if it is time for one. Breakers do not stop it: they ask again only about requests, and there
    /// may be none any more.
    fn usage_batch(&mut self, now: Now) -> Option<Outgoing> {
        let write = self.requests.tally.usage.as_mut()?.next_write(now.uptime)?;
        Some(self.stores.own()?.send_usage(0, write, now))
    }

    /// The batch needs a new connection, and the host has begun to open it. Nothing was sent. When the connection is open, the
    /// host calls [`connected`](Self::connected), and the next batch uses it.
    pub fn connecting(&mut self, id: BatchId) {
        if let Some((_, store)) = self.stores.of_batch(id) {
            store.connecting(id);
        }
    }

    /// The connection of a batch is open: what waits can be sent.
    pub fn connected(&mut self, id: BatchId, now: Micros) {
        let now = self.clock.at(now);
        let Some((store, dispatch)) = self.stores.of_batch(id) else { return };
        let completed = dispatch.connected(id, &|stream| self.requests.waits(stream), now);
        self.complete(store, completed, now);
    }

    /// The bridge answered a batch with these RESP replies. Returns whether the connection is good enough for the next batch.
    pub fn replied(&mut self, id: BatchId, replies: &[u8], now: Micros) -> bool {
        let now = self.clock.at(now);
        let waits = |stream| self.requests.waits(stream);
        let Some((store, dispatch)) = self.stores.of_batch(id) else { return false };
        let completed = dispatch.replied((id, replies), &waits, now);
        let well = !completed.bad_connection;
        self.complete(store, completed, now);
        well
    }

    /// A batch got no answer, or could not be sent.
    pub fn failed(&mut self, id: BatchId, failure: &StoreFailure, now: Micros) {
        let now = self.clock.at(now);
        let Some((store, dispatch)) = self.stores.of_batch(id) else { return };
        let completed = dispatch.failed(id, failure, now);
        self.complete(store, completed, now);
    }

    /// A batch that the engine has abandoned. The host must not pass on its reply, if one still comes.
    pub fn next_abandoned(&mut self) -> Option<BatchId> {
        self.stores.iter_mut().find_map(|store| store.next_abandoned())
    }

    /// True if batches are in flight.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        self.stores.iter().any(|store| store.any_in_flight())
    }

    /// True if a worker that is [retired](Self::retire) may end: no batch is in flight, and the usage of its subjects is written. If the
    /// store does not answer, the worker drops that usage after a minute.
    #[must_use]
    pub fn may_end(&self) -> bool {
        !self.in_flight() && self.usage_waiting() == 0
    }

    // --- Time ------------------------------------------------------------------------------------------------------

    /// Time passed: held requests that are due are released, and requests that wait past their deadline are decided without
    /// the store.
    pub fn tick(&mut self, now: Micros) {
        let now = self.clock.tick(now);
        self.requests.release_held(now);
        if self.requests.next_of_bodies().is_some_and(|due| due <= now.uptime) {
            self.requests.expire_bodies(now);
            self.ask_without_bodies(now);
        }
        self.requests.expire_queued(now);
        self.requests.end_leases(now);
        self.requests.renew(now);
        for store in self.stores.turns() {
            let Some(dispatch) = self.stores.get(store) else { continue };
            let completed = dispatch.tick(now);
            self.complete(store, completed, now);
        }
        for store in self.requests.expire(now) {
            self.stores.count_failure(store, StoreFailure::Timeout);
        }
        self.ask_again(now);
    }

    /// When [`tick`](Self::tick) is due next; `None` while nothing waits for time to pass.
    #[must_use]
    pub fn next_tick(&self, now: Micros) -> Option<Micros> {
        // The host sends a wake-up for what is ready. If the wake-up is lost, the tick does its work.
        let waiting =
            self.requests.any_waits() || self.in_flight() || self.has_releases() || self.wants_to_send();
        let on_uptime = Micros::earliest([
            self.requests.next_held(),
            self.requests.next_of_bodies(),
            self.requests.lines.next(),
            self.stores.iter().filter_map(Dispatch::opens).min(),
            self.requests.next_sync(),
            self.requests.next_renewal(),
            self.requests.tally.usage.as_ref().and_then(Usage::due),
        ]);
        let due = Micros::earliest([
            on_uptime.map(|due| now.plus(due.since(self.clock.uptime(now)))),
            self.requests.next_lease_end(),
            waiting.then(|| now.plus(TICK)),
        ]);
        Micros::earliest([due.map(|due| due.min(now.plus(LOOK))), self.top_due()])
    }

    // --- What the host exports -------------------------------------------------------------------------------------

    /// Counts since the worker began.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::of(self)
    }

    /// Returns the failures since the last call, each with its store.
    pub fn take_failures(&mut self) -> Vec<(u8, StoreFailure)> {
        self.stores.take_failures()
    }

    /// The number of open breakers: that of the store counts as one, as does that of each 64th of its slots.
    #[must_use]
    pub fn open_breakers(&self) -> u64 {
        // The gauge adds up all workers and outlives this engine, so a retired engine must not count in it.
        if self.is_retired { 0 } else { self.stores.iter().map(|store| store.open_breakers()).sum() }
    }

    /// The number of policies that do not limit now: a breaker of their store is open, and their `on_failure` is `allow`.
    #[must_use]
    pub fn policies_off(&self) -> u64 {
        if self.open_breakers() == 0 {
            return 0;
        }
        let is_open = |policy: &Policy| {
            self.stores.peek(policy.regions.store()).is_some_and(|store| store.open_breakers() > 0)
        };
        let is_off = |policy: &&Policy| {
            policy.mode == Mode::Enforce && policy.on_failure == OnFailure::Allow && is_open(policy)
        };
        self.config.policies.iter().filter(is_off).count() as u64
    }

    /// Returns the store with an open breaker, the slots that are not asked about, and for how long; `None` while all breakers are closed.
    /// If breakers of several stores are open, it is the store with the longest outage.
    #[must_use]
    pub fn outage(&self, now: Micros) -> Option<(u8, Outage)> {
        self.stores.outage(self.clock.uptime(now))
    }

    /// The number of units that this worker has on lease.
    #[must_use]
    pub const fn on_lease(&self) -> u64 {
        self.requests.on_lease()
    }

    /// The number of requests that wait for a permit of a `concurrency` limit.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.requests.lines.len() as u64
    }

    /// The units that this region has granted, and has yet to charge in others, each of them counted.
    #[must_use]
    pub fn debits_waiting(&self) -> u64 {
        if self.is_retired { 0 } else { self.requests.debits.waiting() }
    }

    /// The number of requests that the engine keeps: their stream is open, or a batch in flight asks about them.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// The number of counted decisions of policies.
    const fn decided(&self) -> u64 {
        self.requests.tally.count
    }

    /// The number of changes that concern other regions.
    const fn synced(&self) -> u64 {
        self.requests.synced()
    }

    fn value_of_peer(&self, series: &metrics::PeerSeries) -> u64 {
        let peer = |store| self.requests.peer(store, self.clock.latest());
        series.value(peer, |policy, store| self.requests.outstanding(policy, store))
    }

    fn value(&self, series: &metrics::Series) -> u64 {
        self.requests.tally.value(series)
    }

    /// Returns the values for the histograms, each with the place of its histogram.
    fn take_samples(&mut self) -> impl Iterator<Item = (usize, u64)> + use<> {
        let samples: Vec<_> = self.stores.iter_mut().flat_map(|store| store.samples.take()).collect();
        samples.into_iter().flat_map(|sample| [(0, sample.took.0), (1, sample.tasks)])
    }

    /// When the next list of subjects is due, by the host's clock.
    fn top_due(&self) -> Option<Micros> {
        let tally = &self.requests.tally;
        [&tally.top_denied, &tally.top_used].into_iter().flatten().filter_map(metrics::Top::due).min()
    }

    /// Shows the subjects that are denied most and those that use most, each if it is time, and for how long they were counted.
    fn take_top(&mut self, now: Micros, show: &dyn Fn(&str, &metrics::Listed, Micros)) {
        let tally = &mut self.requests.tally;
        for (what, top) in [("denied", &mut tally.top_denied), ("used", &mut tally.top_used)] {
            let Some(top) = top else { continue };
            if let Some((lasted, subjects)) = top.take(now) {
                subjects.iter().for_each(|subject| show(what, subject, lasted));
            }
            top.look(now);
        }
    }

    // --- Between requests and dispatch ------------------------------------------------------------------------------

    /// Carries the result of a batch to this store to its requests.
    fn complete(&mut self, store: u8, completed: Completed, now: Now) {
        let Completed { commands, ends, not_run, asked, .. } = completed;
        if let Some((usage, end)) = self.requests.tally.usage.as_mut().zip(completed.usage) {
            match end {
                UsageEnd::Written => usage.written(),
                UsageEnd::NotSent => usage.not_sent(),
                UsageEnd::Lost => usage.lost(now.uptime),
            }
        }
        for (task, end) in tasks(&commands).zip(ends) {
            let is_renewal = matches!(task.work, Work::Settle { due: Due::Renew(_), .. });
            if matches!((&task.work, &end), (Work::Settle { .. }, End::Failed)) && !is_renewal {
                self.lost_settlements = self.lost_settlements.saturating_add(1);
            }
            self.requests.ended(task, &end, (asked, now));
        }
        for not_run in not_run {
            self.requests.not_run(not_run);
        }
        if let Some(store) = self.stores.get(store) {
            store.recycle(commands);
        }
        if completed.opened {
            self.requests.stop_all_waiting(store, now);
        }
        if completed.recovered {
            self.requests.store_recovered(store);
        }
        self.ask_again(now);
    }

    /// Asks other regions for loans, and charges them with what this one has granted.
    fn sync(&mut self, now: Now) {
        for Loan { asks, subject, units } in self.requests.loans(now) {
            if let Some(store) = self.stores.of_mut(&asks) {
                store.lend(asks, subject, units, now);
            }
        }
        let takes =
            |store: u8| self.stores.peek(store).map_or(Charges::None, |store| store.takes_charges(now));
        let charges = self.requests.charges(&takes, now);
        self.requests.settlements.extend(charges);
    }

    /// Carries what the requests report to the dispatch.
    fn carry(&mut self, now: Now) {
        if !self.requests.journaled.is_empty() {
            self.write_journal(now);
        }
        while let Some(stream) = self.requests.no_longer_waiting.pop() {
            self.stores.iter_mut().for_each(|store| store.no_longer_waits(stream, now));
        }
        if self.requests.next_sync().is_some_and(|due| due <= now.uptime) {
            self.sync(now);
        }
        if !self.requests.settlements.is_empty() {
            self.settle();
        }
        if let Some(usage) = &mut self.requests.tally.usage {
            usage.look(now.uptime, self.is_retired);
        }
    }

    /// Carries the denials of decided requests to the journal.
    fn write_journal(&mut self, now: Now) {
        let journaled = std::mem::take(&mut self.requests.journaled);
        let Some(journal) = self.stores.own().and_then(|store| store.journal.as_mut()) else { return };
        for stream in journaled {
            let mut show = |denied: &PolicyDenial<'_>, cost| journal.denied(denied, cost, now.uptime);
            self.requests.denials(stream, &mut show);
            self.requests.warnings(stream, &mut |warning| journal.warned(warning, now.uptime));
        }
    }

    /// The number of subjects that wait for the usage journal.
    fn usage_waiting(&self) -> u64 {
        self.requests.tally.usage.as_ref().map_or(0, |usage| usage.waiting() as u64)
    }

    /// Carries settlements to their stores.
    fn settle(&mut self) {
        let mut lost = Vec::new();
        for settlement in self.requests.settlements.drain(..) {
            let (check, due) = (Rc::clone(&settlement.check), settlement.due);
            let store = self.stores.of_mut(&check);
            if !store.is_some_and(|store| store.settle(settlement)) {
                lost.push((check, due));
            }
        }
        for (check, due) in lost {
            match due {
                // It is due again a third of the `ttl` later.
                Due::Renew(waiter) => {
                    self.requests.renews(waiter, false);
                    continue;
                }
                Due::Charge(units) => self.requests.charge_ended(&check, units, false),
                Due::Refund(_) | Due::Release(_) => {}
            }
            self.lost_settlements = self.lost_settlements.saturating_add(1);
        }
    }
}
