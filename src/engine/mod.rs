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
//! A module imports only modules of lower layers (`tests/repository/layers.rs`).
//!
//! | layer | module | what is inside |
//! |---|---|---|
//! | 6 | `inputs`, `batches`, `exports` | the calls of the host: about requests, about batches, for its statistics |
//! | 6 | `report` | when the host exports statistics, and the log |
//! | 5 | `metrics` | each metric, and how it is read |
//! | 4 | `request` | the life of requests: submitted, decided, held, released, closed |
//! | 3 | `subject` | what is known of a subject without asking |
//! | 3 | `stores` | the stores of a worker |
//! | 3 | `pool` | the host's connections to the stores |
//! | 2 | `store` | one store: queues, batches in flight, congestion window, breakers, replies |
//! | 2 | `tally` | counts the decisions of each policy and limit, and the usage of subjects |
//! | 1 | `failure` | what can go wrong with the store, and what to do about it |
//! | 1 | `pipeline`, `greeting`, `timer` | RESP on a connection; the timer of the plugin |
//! | 1 | `clock`, `generations` | what the modules share |
//!
//! The interface between `request` and `store` is small. The store reports the `End` of each task. The requests report refunds,
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

mod batches;
mod clock;
mod exports;
mod failure;
mod generations;
mod greeting;
mod inputs;
mod metrics;
mod pipeline;
mod pool;
mod report;
mod request;
mod store;
mod stores;
mod subject;
mod tally;
mod timer;

use std::rc::Rc;

use crate::config::Config;
use crate::response::{Headers, PolicyDenial, Rejection};
use crate::time::Micros;

use clock::{LOOK, TICK};
use request::{Effect, Requests};
use store::{Due, Settlement, Store};
use stores::Stores;
use tally::Usage;

pub use clock::{Clock, Now};
pub use failure::StoreFailure;
pub use greeting::{greeting, refusal};
pub use metrics::{Catalogue, Counters, Event, Kind, MAX_POLICY_PEERS, Metric, Metrics, Row};
pub use pipeline::{Pipeline, Unexpected};
pub use pool::{NoConnection, Output, Pool, Purpose, Transport};
pub use report::{EXPORT_INTERVAL, Export, Report};
pub use store::{Outage, Slots};
pub use tally::{MAX_LIMIT_SERIES, escaped};
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

    /// Time passed: held requests that are due are released, and requests that wait past their deadline are decided without
    /// the store.
    pub fn tick(&mut self, now: Micros) {
        let now = self.clock.tick(now);
        self.requests.release_held(now);
        if self.requests.next_of_bodies().is_some_and(|due| due <= now.uptime) {
            self.requests.expire_bodies(&mut self.stores, now);
            self.requests.ask_without_bodies(&mut self.stores, now);
        }
        self.requests.expire_queued(now);
        self.requests.end_leases(now);
        self.requests.renew(now);
        for number in self.stores.turns() {
            let Some(store) = self.stores.get(number) else { continue };
            let completed = store.tick(now);
            self.complete(number, completed, now);
            // The breakers learn which requests no longer wait before a request asks again.
            self.carry(now);
        }
        self.requests.expire(&mut self.stores, now);
        self.requests.ask_again(&mut self.stores, now);
        self.carry(now);
    }

    /// The time at which [`tick`](Self::tick) is due next; `None` while nothing waits for time to pass.
    #[must_use]
    pub fn next_tick(&self, now: Micros) -> Option<Micros> {
        // The host sends a wake-up for what is ready. If the wake-up is lost, the tick does its work.
        let waiting =
            self.requests.any_waits() || self.in_flight() || self.has_releases() || self.wants_to_send();
        let on_uptime = Micros::earliest([
            self.requests.next_held(),
            self.requests.next_of_bodies(),
            self.requests.permit_queues.next(),
            self.stores.iter().filter_map(Store::due).min(),
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

    /// Something happens at this time of the host's clock. What `change` does to the requests may have effects for the stores. None is left when
    /// this returns. Each call of the host that may have effects comes here, except [`tick`](Self::tick) and the making of a batch.
    fn happens<T>(&mut self, now: Micros, change: impl FnOnce(&mut Self, Now) -> T) -> T {
        let now = self.clock.at(now);
        let result = change(self, now);
        self.carry(now);
        result
    }

    /// Carries the effects of what has happened to the stores.
    fn carry(&mut self, now: Now) {
        if self.requests.next_sync().is_some_and(|due| due <= now.uptime) {
            self.requests.sync(&mut self.stores, now);
        }
        while let Some(effect) = self.requests.effects.pop_front() {
            match effect {
                Effect::Denied(stream) => self.write_journal(stream, now),
                Effect::NoLongerWaits(stream) => {
                    self.stores.iter_mut().for_each(|store| store.no_longer_waits(stream, now));
                }
                Effect::Settle(settlement) => self.settle(settlement),
            }
        }
        if let Some(usage) = &mut self.requests.tally.usage {
            usage.look(now.uptime, self.is_retired);
        }
    }

    /// Writes the denials of a decided request to the journal.
    fn write_journal(&mut self, stream: StreamId, now: Now) {
        let Some(journal) = self.stores.own().and_then(|store| store.journal.as_mut()) else { return };
        let mut show = |denied: &PolicyDenial<'_>, cost| journal.denied(denied, cost, now.uptime);
        self.requests.denials(stream, &mut show);
        self.requests.warnings(stream, &mut |warning| journal.warned(warning, now.uptime));
    }

    /// Gives a settlement to its store, if that has room for it.
    fn settle(&mut self, settlement: Settlement) {
        let (check, due) = (Rc::clone(&settlement.check), settlement.due);
        if self.stores.of_mut(&check).is_some_and(|store| store.settle(settlement)) {
            return;
        }
        match due {
            // It is due again a third of the `ttl` later.
            Due::Renew(waiter) => return self.requests.renews(waiter, false),
            Due::Charge(units) => self.requests.charge_ended(&check, units, false),
            Due::Refund(_) | Due::Release(_) => {}
        }
        self.lost_settlements = self.lost_settlements.saturating_add(1);
    }
}
