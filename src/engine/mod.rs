//! The state machine of one worker: which requests wait, what to ask the store about them, and how they are decided. Plain
//! values in, plain values out. The host owns the sockets, the timers and the clock.
//!
//! ```text
//!  submit ──▶ waiting ──▶ next_batch ──▶ (the store) ──▶ replied ──▶ decided ──▶ next_release
//!                │                           │               │          │
//!                │ deadline (tick)           │ NOSCRIPT      │ failed   │ delay: held until it is due (tick)
//!                └─▶ on_failure: allow|deny ◀┼───────────────┘          │
//!                                            └─▶ sent again with EVAL   └─▶ denied: the grants of other policies are refunded
//!
//!  response_*: the response shows what the request has cost. The difference to what it reserved is charged or refunded.
//!  closed: the stream is over. A waiting request leaves its task, permits are released, and the cost is settled. The engine keeps a
//!          rejected request while batches in flight ask about it, so that a late grant is refunded.
//! ```
//!
//! | room | what is inside |
//! |---|---|
//! | `requests` | the requests' life: submitted, decided, held, released, closed; what is known without asking |
//! | `dispatch` | the store: queues, batches in flight, congestion window, breakers, replies |
//! | `streams`, `timer` | the host's connections to the bridge, and its timer |
//! | `pipeline` | a host's connection to the store itself |
//! | `report` | statistics and log |
//! | `failure` | what can go wrong with the store, and what to do about it |
//! | `clock`, `generations`, `seed` | what the rooms share |
//!
//! The interface between the first two is small. The dispatch reports `Event`s. The requests report refunds,
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
//! let check = Check { policy: 0, tier: 0, tag: b"{api|192.0.2.1}".to_vec(), cost: 1, mode: Mode::Enforce };
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
mod pipeline;
mod report;
mod requests;
mod seed;
mod streams;
mod timer;

use std::rc::Rc;

use crate::config::Config;
use crate::inline_vec::InlineVec;
use crate::policy::Check;
use crate::policy::settle::{Fields, Watched};
use crate::response::{Admission, Record, Rejection};
use crate::time::Micros;

use clock::{Clock, Now, TICK};
use dispatch::{Completed, Dispatch};
use requests::Requests;

pub use dispatch::{Outage, Slots};
pub use failure::StoreFailure;
pub use greeting::{greeting, refusal};
pub use pipeline::{Pipeline, Unexpected};
pub use report::{COUNTERS, Export, GAUGES, MetricName, Metrics, Report, UNREADABLE, store_counter};
pub use streams::{Began, Closed, Sent, Streams, Token, Transport};
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

/// What to do with a request.
#[derive(Debug)]
pub enum Action {
    /// Let it through. [`Engine::admission`] has the headers for its response.
    Admit,
    /// Answer it instead of the upstream.
    Reject(Rejection),
}

/// What to do with a request that was paused.
#[derive(Debug)]
pub struct Release {
    /// Which request.
    pub stream: StreamId,
    /// What to do with it.
    pub action: Action,
}

/// A batch to send to the store now.
#[derive(Debug)]
pub struct Outgoing {
    /// The host passes it back with the reply.
    pub id: BatchId,
    /// The RESP commands.
    pub body: Vec<u8>,
    /// How many commands these are, and so how many RESP replies answer them. A host that speaks RESP needs it, because
    /// nothing in the replies says which batch they answer; the bridge counts the commands by itself.
    pub replies: usize,
    /// Which slots it is about. A host that has several batches on one connection needs a connection for each of these: otherwise
    /// batches wait behind a shard that hangs.
    pub slots: Slots,
}

/// Counts since the worker began. The host exports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests let through.
    pub admitted: u64,
    /// Requests rejected.
    pub rejected: u64,
    /// Those of the rejected requests that a ban denied.
    pub banned: u64,
    /// Requests of which at least one policy was decided without the store, because it failed, was late, or was not asked.
    pub fallback: u64,
    /// Batches sent.
    pub batches: u64,
    /// Commands sent.
    pub commands: u64,
    /// Units charged after responses, because requests cost more than they had reserved.
    pub units_charged: u64,
    /// Units refunded after responses, because requests cost less than they had reserved.
    pub units_refunded: u64,
    /// Responses whose body a policy needed to tell the cost, and could not read.
    pub bodies_unreadable: u64,
    /// Refunds, charges and releases that the store may not have made: too many waited, or it did not answer.
    pub settlements_lost: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Engine {
    config: Rc<Config>,
    clock: Clock,
    requests: Requests,
    dispatch: Dispatch,
    is_retired: bool,
    /// Settlements for which there was no room, or that got no answer.
    lost_settlements: u64,
}

impl Engine {
    /// An engine for one worker under one configuration. `seed` is any number that clients cannot know.
    #[must_use]
    pub fn new(config: Rc<Config>, seed: u64) -> Self {
        Self {
            clock: Clock::default(),
            requests: Requests::new(Rc::clone(&config), seed),
            dispatch: Dispatch::new(Rc::clone(&config), seed),
            is_retired: false,
            lost_settlements: 0,
            config,
        }
    }

    /// The configuration this engine decides under.
    #[must_use]
    pub fn config(&self) -> &Rc<Config> {
        &self.config
    }

    // --- Requests --------------------------------------------------------------------------------------------------

    /// A request arrived, and these checks apply to it.
    pub fn submit(&mut self, stream: StreamId, checks: InlineVec<Check>, now: Micros) -> Submitted {
        let now = self.clock.at(now);
        if self.requests.submit(stream, checks, now) {
            let (gate, deadline) = (self.dispatch.gate(now), self.dispatch.deadline(now));
            let admits = |check: &Check| self.dispatch.admits(&gate, check, now);
            let (questions, overloaded) = self.requests.wait(stream, deadline, &admits, now);
            if overloaded {
                self.dispatch.count_failure(StoreFailure::Overloaded);
            }
            for (check, waiter, slots) in questions {
                self.dispatch.ask(&check, waiter, slots, now);
            }
        }
        self.carry(now);
        self.decided(stream)
    }

    /// A request that was just submitted cannot wait, because no timer runs: `on_failure` decides it now.
    pub fn cannot_wait(&mut self, stream: StreamId, now: Micros) -> Submitted {
        let now = self.clock.at(now);
        self.requests.stop_waiting(stream, now);
        self.carry(now);
        self.decided(stream)
    }

    /// If the request was decided just now, its release is the newest. A request that is held has none yet.
    fn decided(&mut self, stream: StreamId) -> Submitted {
        match self.requests.releases.pop_back_if(|release| release.stream == stream) {
            Some(release) => Submitted::Decided(release.action),
            None => Submitted::Wait,
        }
    }

    /// The next request to let through or reject.
    pub fn next_release(&mut self) -> Option<Release> {
        self.requests.releases.pop_front()
    }

    /// Whether [`next_release`](Self::next_release) has one.
    #[must_use]
    pub fn has_releases(&self) -> bool {
        !self.requests.releases.is_empty()
    }

    /// What to add to the response of an admitted request.
    #[must_use]
    pub fn admission(&self, stream: StreamId) -> Option<&Admission> {
        self.requests.admission(stream)
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

    /// A part of the response's body, of so many bytes: for the requests of which [`Watched::size`] or [`Watched::content`] is set.
    /// `content` is these bytes; it may be empty if only the size is watched.
    pub fn response_body(&mut self, stream: StreamId, bytes: usize, content: &[u8]) {
        self.requests.response_body(stream, bytes, content);
    }

    /// The trailers of the response: for the requests of which [`Watched::trailers`] is set. `fields` reads them.
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
        self.requests.end_all_leases();
        self.carry(self.clock.latest());
    }

    /// Whether [`retire`](Self::retire) was called.
    #[must_use]
    pub const fn is_retired(&self) -> bool {
        self.is_retired
    }

    // --- Batches ---------------------------------------------------------------------------------------------------

    /// Whether a batch could be sent now.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        self.dispatch.wants_to_send(self.clock.latest())
    }

    /// The next batch to send, if one may be sent now.
    pub fn next_batch(&mut self, now: Micros) -> Option<Outgoing> {
        let now = self.clock.at(now);
        loop {
            let (slots, mut batch) = self.dispatch.take(&|stream| self.requests.waits(stream), now)?;
            self.requests.serve(&mut batch, now);
            self.carry(now);
            if batch.is_empty() {
                continue;
            }
            let mut prepare = |task: &mut _| self.requests.ask_in_advance(task, now);
            let (body, unfit) = self.dispatch.encode(&mut batch, &mut prepare);
            // Of those that do not fit, only the first was prepared.
            let prepared = unfit.first().into_iter().flat_map(|command| &command.tasks);
            prepared.for_each(|task| self.requests.not_sent(task));
            self.dispatch.requeue_unfit(slots, unfit);
            self.requests.sent(&batch);
            let overdue = self.dispatch.deadline(now);
            return Some(self.dispatch.send(slots, batch, body.bytes, overdue, now));
        }
    }

    /// The batch needs a new connection, and the host has begun to open it. Nothing was sent. When the connection is open, the
    /// host calls [`connected`](Self::connected), and the next batch uses it.
    pub fn connecting(&mut self, id: BatchId) {
        self.dispatch.connecting(id);
    }

    /// The connection of a batch is open: what waits can be sent.
    pub fn connected(&mut self, id: BatchId, now: Micros) {
        let now = self.clock.at(now);
        let completed = self.dispatch.connected(id, &|stream| self.requests.waits(stream), now);
        self.complete(completed, now);
    }

    /// The bridge answered a batch with these RESP replies. Returns whether the connection is good enough for the next batch.
    pub fn replied(&mut self, id: BatchId, replies: &[u8], now: Micros) -> bool {
        let now = self.clock.at(now);
        let waits = |stream| self.requests.waits(stream);
        let completed = self.dispatch.replied((id, replies), &waits, now);
        let well = !completed.bad_connection;
        self.complete(completed, now);
        well
    }

    /// A batch got no answer, or could not be sent.
    pub fn failed(&mut self, id: BatchId, failure: &StoreFailure, now: Micros) {
        let now = self.clock.at(now);
        let completed = self.dispatch.failed(id, failure, now);
        self.complete(completed, now);
    }

    /// A batch that the engine has abandoned. The host must not pass on its reply, if one still comes.
    pub fn next_abandoned(&mut self) -> Option<BatchId> {
        self.dispatch.next_abandoned()
    }

    /// Whether batches are in flight.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        self.dispatch.any_in_flight()
    }

    // --- Time ------------------------------------------------------------------------------------------------------

    /// Time passed: held requests that are due are released, and requests that wait past their deadline are decided without
    /// the store.
    pub fn tick(&mut self, now: Micros) {
        let now = self.clock.tick(now);
        self.requests.release_held(now);
        self.requests.end_leases(now);
        let completed = self.dispatch.tick(now);
        self.complete(completed, now);
        for _ in 0..self.requests.expire(now) {
            self.dispatch.count_failure(StoreFailure::Timeout);
        }
        self.carry(now);
    }

    /// When [`tick`](Self::tick) is due next; `None` while nothing waits for time to pass.
    #[must_use]
    pub fn next_tick(&self, now: Micros) -> Option<Micros> {
        let at = |uptime: Micros| now.plus(uptime.since(self.clock.uptime(now)));
        // The host sends a wake-up for what is ready. If the wake-up is lost, the tick does its work.
        let ready = self.has_releases() || self.wants_to_send();
        let waiting = self.requests.any_waits() || self.in_flight() || ready;
        let held = self.requests.next_held().map(at);
        let opens = self.dispatch.opens().map(at);
        let lease_ends = self.requests.next_lease_end();
        held.into_iter().chain(opens).chain(lease_ends).chain(waiting.then(|| now.plus(TICK))).min()
    }

    // --- What the host exports -------------------------------------------------------------------------------------

    /// Counts since the worker began.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        let requests::Decided { admitted, rejected, banned, fallback } = self.requests.decided;
        let requests::Settled { charged, refunded, unreadable } = self.requests.settled;
        let (batches, commands) = self.dispatch.sent();
        Counters {
            admitted,
            rejected,
            banned,
            fallback,
            batches,
            commands,
            units_charged: charged,
            units_refunded: refunded,
            bodies_unreadable: unreadable,
            settlements_lost: self.lost_settlements,
        }
    }

    /// Whether [`take_failures`](Self::take_failures) has one.
    #[must_use]
    pub const fn has_failures(&self) -> bool {
        self.dispatch.has_failures()
    }

    /// What went wrong with the store since this was last asked.
    pub fn take_failures(&mut self) -> Vec<StoreFailure> {
        self.dispatch.take_failures()
    }

    /// How many breakers are open: that of the store counts as one, as does that of each 64th of its slots.
    #[must_use]
    pub fn open_breakers(&self) -> u64 {
        // The gauge adds up all workers and outlives this engine, so a retired engine must not count in it.
        if self.is_retired { 0 } else { self.dispatch.open_breakers() }
    }

    /// What is not asked about because a breaker is open, and for how long; `None` while all are closed.
    #[must_use]
    pub fn outage(&self, now: Micros) -> Option<Outage> {
        self.dispatch.outage(self.clock.uptime(now))
    }

    /// How many requests this worker has on lease.
    #[must_use]
    pub const fn on_lease(&self) -> u64 {
        self.requests.on_lease()
    }

    /// How many requests the engine keeps: their stream is open, or a batch in flight asks about them.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    // --- Between requests and dispatch ------------------------------------------------------------------------------

    /// Carries the result of a batch to its requests.
    fn complete(&mut self, completed: Completed, now: Now) {
        for event in completed.events {
            if event.is_lost_settlement() {
                self.lost_settlements = self.lost_settlements.saturating_add(1);
            }
            self.requests.handle(event, now);
        }
        if completed.opened {
            self.requests.stop_all_waiting(now);
        }
        if completed.recovered {
            self.requests.store_recovered();
        }
        self.carry(now);
    }

    /// Carries what the requests report to the dispatch.
    fn carry(&mut self, now: Now) {
        while let Some(stream) = self.requests.no_longer_waiting.pop() {
            self.dispatch.no_longer_waits(stream, now);
        }
        for settlement in self.requests.settlements.drain(..) {
            if !self.dispatch.settle(settlement) {
                self.lost_settlements = self.lost_settlements.saturating_add(1);
            }
        }
    }
}
