// SPDX-License-Identifier: Apache-2.0
//! The requests' life: submitted, decided, perhaps held, released, closed. It decides by what is known without asking
//! ([`Denied`], [`Leases`], [`Local`]) and by what the stores report. It reports what others have to do: [`Release`]s to the
//! host, [`Effect`]s to the stores.
//!
//! | file | what is inside |
//! |---|---|
//! | `state.rs` | one request: its checks, and its state |
//! | `submitted.rs`, `asked.rs`, `answered.rs`, `decided.rs`, `closed.rs` | the stages of its life, in this order |
//! | `bodies.rs`, `queued.rs` | what a request may wait for before or after it is decided: its body, a permit |
//! | `settling.rs` | refunds, and the true cost of a request |
//! | `renewals.rs` | the permits of requests that run longer than a permit lives |
//! | `across.rs` | limits that several regions share |

mod across;
mod answered;
mod asked;
mod bodies;
mod closed;
mod decided;
mod queued;
mod renewals;
mod settling;
mod state;
mod submitted;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::generations::Seed;
use super::store::Settlement;
use super::subject::RegionUnits;
use super::subject::debits::Debits;
use super::subject::denied::Denied;
use super::subject::lease::Leases;
use super::subject::loans::Loans;
use super::subject::local::Local;
use super::subject::permit_queue::PermitQueues;
use super::tally::Tally;
use super::{Release, StreamId};
use crate::body::Ids;
use crate::config::Config;
use crate::decision::CheckAnswer;
use crate::inline_vec::InlineVec;
use crate::response::{self, Headers, PolicyDenial, Record, Warning};
use crate::sorted_map::SortedMap;
use crate::time::Micros;

pub(super) use across::Peer;
use bodies::Awaited;
use renewals::Renewals;
use state::{AwaitsBody, Request, State};

/// The number of decided requests, by decision.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decided {
    /// Quota requests that were answered.
    pub enquiries: u64,
    pub admitted: u64,
    pub rejected: u64,
    /// The rejected requests that a ban denied.
    pub banned: u64,
    /// At least one policy was decided without the store, because it failed, was late, or was not asked.
    pub fallback: u64,
}

/// The settlements after responses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settled {
    /// Units charged, because requests cost more than they had reserved.
    pub charged: u64,
    /// Units refunded, because requests cost less than they had reserved.
    pub refunded: u64,
    /// Responses whose body a policy needed and could not read.
    pub unreadable: u64,
    /// The requests whose true cost was read.
    pub requests: u64,
}

/// The bodies of requests, by outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bodies {
    /// The bodies that a policy needed and could not read.
    pub unreadable: u64,
    /// The bodies that did not come in time, so that the request was rejected.
    pub late: u64,
    /// The late bodies that had less time than is configured, because many waited.
    pub hurried: u64,
    /// The bodies that were not waited for, because a policy denied the request whatever its body had.
    pub denied: u64,
    /// The bodies that were not waited for, because all places were occupied.
    pub no_place: u64,
    /// The bodies that were not waited for, because their client had its share of the places.
    pub over_share: u64,
}

/// An effect of requests for the stores.
#[derive(Debug)]
pub(super) enum Effect {
    /// This request was decided: its denials, if it has any, are for the journal. None if there is no journal.
    Denied(StreamId),
    /// This request no longer waits for any store.
    NoLongerWaits(StreamId),
    /// This is for the store of its check.
    Settle(Settlement),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Requests {
    config: Rc<Config>,
    /// The host chooses the numbers, so they need no [`Seed`].
    requests: HashMap<StreamId, Request, foldhash::fast::FixedState>,
    /// Requests in the order of their deadlines, in loop time. A request is listed under the store with the longest deadline of those that
    /// it waits for. Requests that are already decided are skipped.
    deadlines: Vec<VecDeque<(Micros, StreamId)>>,
    /// The number of requests that wait for the store.
    waiting: usize,
    /// Held requests and the uptime at which they are released, soonest first.
    held: SortedMap<(Micros, StreamId), ()>,
    awaited: Awaited,
    denied: Denied,
    leases: Leases,
    loans: Loans,
    pub debits: Debits,
    /// The number of requests that were admitted with a loan of another region, and with loans of each store.
    pub borrowed: u64,
    borrowed_of: Vec<u64>,
    /// For each store what workers count by themselves without it.
    local: Vec<Local>,
    pub permit_queues: PermitQueues,
    permits: Renewals,
    /// The number of requests that arrived.
    came: u64,
    pub bodies: Bodies,
    pub decided: Decided,
    pub settled: Settled,
    pub tally: Tally,
    pub releases: VecDeque<Release>,
    /// The effects for the stores of what has happened, in its order.
    pub effects: VecDeque<Effect>,
}

impl Requests {
    pub fn new(config: Rc<Config>, seed: u64) -> Self {
        let permits = Renewals::new(&config);
        let (stores, interval) = (config.regions.all.len(), config.regions.sync_interval);
        Self {
            tally: Tally::new(&config, seed),
            requests: HashMap::default(),
            deadlines: vec![VecDeque::new(); stores],
            waiting: 0,
            held: SortedMap::default(),
            awaited: Awaited::new(Seed(seed)),
            denied: Denied::new(Seed(seed)),
            leases: Leases::new(RegionUnits::new(&config), Seed(seed)),
            loans: Loans::new(stores, interval, Seed(seed)),
            debits: Debits::new(&config, Seed(seed)),
            config,
            borrowed: 0,
            borrowed_of: vec![0; stores],
            local: (0..stores).map(|_| Local::new(Seed(seed))).collect(),
            permit_queues: PermitQueues::new(Seed(seed)),
            permits,
            came: 0,
            bodies: Bodies::default(),
            decided: Decided::default(),
            settled: Settled::default(),
            releases: VecDeque::new(),
            effects: VecDeque::new(),
        }
    }

    /// True if a request still waits for the store.
    pub fn waits(&self, stream: StreamId) -> bool {
        let asks =
            |request: &Request| matches!(request.state, State::AwaitsBody(AwaitsBody { asks: true, .. }));
        self.requests.get(&stream).is_some_and(|request| request.waits() || asks(request))
    }

    pub const fn any_waits(&self) -> bool {
        self.waiting > 0
    }

    /// The number of requests that wait for the store.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The number of requests that are held for `max_delay`.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The number of units that this worker has on lease.
    pub const fn on_lease(&self) -> u64 {
        self.leases.held()
    }

    /// The number of entries of local logs that count together with later ones.
    pub fn local_merged(&self) -> u64 {
        self.local.iter().map(|local| local.merged).sum()
    }

    /// The time at which the next lease ends, by the host's clock.
    pub fn next_lease_end(&self) -> Option<Micros> {
        self.leases.next_end()
    }

    /// The uptime at which the next held request is released.
    pub fn next_held(&self) -> Option<Micros> {
        self.held.first().map(|((due, _), ())| *due)
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Writes what to add to the response of a request. Returns whether the request is admitted.
    pub fn headers_to_add(&self, stream: StreamId, headers: &mut Headers) -> bool {
        let admitted = |request: &&Request| matches!(request.state, State::Admitted);
        let Some(request) = self.requests.get(&stream).filter(admitted) else { return false };
        // The answer to a quota request has its headers already.
        let answers =
            if request.is_quota_request { InlineVec::new() } else { request.answers(&self.config.policies) };
        response::headers(&answers, headers);
        true
    }

    /// A rejection of this request in JSON-RPC names these calls.
    pub fn name(&mut self, stream: StreamId, json_rpc_ids: Ids) {
        if let Some(request) = self.requests.get_mut(&stream) {
            request.json_rpc_ids = Some(Box::new(json_rpc_ids));
        }
    }

    /// True if the host has not been told yet to let the request through.
    pub fn is_paused(&self, stream: StreamId) -> bool {
        // A quota request that is answered never reaches the upstream.
        let is_admitted =
            |request: &Request| matches!(request.state, State::Admitted) && !request.is_quota_request;
        self.requests.get(&stream).is_some_and(|request| !is_admitted(request) || !request.host_knows)
    }

    /// The next request that waited and is decided. One whose stream has ended since is left out: Envoy keeps an ended stream for a moment,
    /// in which a host could still release it.
    pub fn next_release(&mut self) -> Option<Release> {
        loop {
            let release = self.releases.pop_front()?;
            if let Some(request) = self.requests.get_mut(&release.stream)
                && matches!(request.state, State::Admitted | State::Rejected)
            {
                request.host_knows = true;
                return Some(release);
            }
        }
    }

    /// The decision about this request, if it was the last to be decided. One that is held has none yet.
    pub fn just_decided(&mut self, stream: StreamId) -> Option<Release> {
        let release = self.releases.pop_back_if(|release| release.stream == stream)?;
        self.host_knows(stream);
        Some(release)
    }

    fn host_knows(&mut self, stream: StreamId) {
        if let Some(request) = self.requests.get_mut(&stream) {
            request.host_knows = true;
        }
    }

    /// Shows what each policy denied about a request that is decided, in shadow mode too, and what the request costs there.
    pub fn denials(&self, stream: StreamId, show: &mut dyn FnMut(&PolicyDenial<'_>, u64)) {
        let Some(request) = self.requests.get(&stream) else { return };
        let is_rejected = matches!(request.state, State::Rejected | State::Closed);
        let answered = || {
            request
                .checks
                .iter()
                .filter_map(|policy_check| Some((policy_check.check.cost, policy_check.answer.as_ref()?)))
        };
        let denies = |answer: &CheckAnswer| answer.decision().is_some_and(|decision| !decision.granted);
        if is_rejected || answered().any(|(_, answer)| denies(answer)) {
            let answers = request.answers(&self.config.policies);
            for (denied, (cost, _)) in response::denials(&answers, is_rejected).zip(answered()) {
                denied.iter().for_each(|denied| show(denied, cost));
            }
        }
    }

    /// Shows the warnings about a request that is decided.
    pub fn warnings(&self, stream: StreamId, show: &mut dyn FnMut(&Warning<'_>)) {
        let Some(request) = self.requests.get(&stream) else { return };
        let is_rejected = matches!(request.state, State::Rejected | State::Closed);
        if !is_rejected && request.checks.iter().any(|policy_check| self.config.may_warn(&policy_check.check))
        {
            response::warnings(&request.answers(&self.config.policies)).for_each(|warning| show(&warning));
        }
    }

    pub fn record(&self, stream: StreamId) -> Option<Record<'_>> {
        let request = self.config.emit_filter_state.then(|| self.requests.get(&stream))??;
        if request.is_quota_request && matches!(request.state, State::Admitted) {
            return Some(Record::QUOTA_REQUEST);
        }
        let is_rejected = matches!(request.state, State::Rejected | State::Closed);
        response::record(&request.answers(&self.config.policies), is_rejected)
    }
}
