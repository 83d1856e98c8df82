// SPDX-License-Identifier: Apache-2.0
//! Requests that wait for their bodies, because a policy needs a value in them. Places are few, and a client occupies one with a few bytes:
//!
//! - A request that is denied whatever its body contains gets no place: the worker looks up what it knows when the request comes. If the
//!   body is not there after [`ASK_AFTER`], weir asks the store without charging, as for a quota request. So a denied request loses its
//!   place.
//! - The requests of one client occupy at most half of the places that are left for others. So many clients share all places evenly, and a
//!   new client finds some.
//! - If more than half of the places are occupied, each request waits for less time: for [`SHORTEST`], when all are occupied.
//!
//! A request whose body does not come in time is rejected, unless only policies in shadow need the body: then its other policies decide.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::rc::Rc;

use super::state::{AwaitsBody, PolicyCheck, Request, State, Waiting};
use super::submitted::enforced;
use super::{Effect, Requests};
use crate::config::{BeforeBody, Config};
use crate::decision::{CheckAnswer, Decision};
use crate::engine::clock::Now;
use crate::engine::generations::Seed;
use crate::engine::store::{Task, Waiter};
use crate::engine::stores::Stores;
use crate::engine::{Action, Release, StreamId};
use crate::limit::{Outcome, RetryAfter};
use crate::policy::{Across, Check, Mode};
use crate::request::client_ip::Network;
use crate::response;
use crate::sorted_map::SortedMap;
use crate::time::Micros;

/// At most this many requests of one worker wait for their bodies; one more is decided as if its body could not be read.
const MAX_BODIES: usize = 4_096;

/// One client has at most one place for this many that are left.
const LEFT_FOR_EACH: usize = 2;

/// While at most this many requests wait, each may wait for the configured time.
const CROWDED: usize = MAX_BODIES / 2;

/// Each request may wait for at least this long (or for the configured time, if that is shorter), however many wait.
const SHORTEST: Micros = Micros::from_millis(500);

/// After this time without the body, weir asks the store about the request. Most bodies come at once.
const ASK_AFTER: Micros = Micros::from_millis(50);

/// The first number of a check that weir asks before the body has come. Other checks have lower numbers, so an answer that comes after the
/// body belongs to no other check.
const BEFORE_BODY: usize = 1 << 16;

/// The requests that wait for their bodies.
#[derive(Debug)]
pub(super) struct Awaited {
    /// By the uptime at which they came.
    requests: SortedMap<(Micros, StreamId), ()>,
    /// The requests that weir still has to ask the store about.
    unasked: SortedMap<(Micros, StreamId), ()>,
    /// The number of places of each client, by its hash.
    clients: HashMap<u64, usize, foldhash::fast::FixedState>,
    seed: Seed,
}

impl Awaited {
    pub fn new(seed: Seed) -> Self {
        let (requests, unasked) = (SortedMap::default(), SortedMap::default());
        Self { requests, unasked, clients: HashMap::default(), seed }
    }

    fn left(&self) -> usize {
        MAX_BODIES.saturating_sub(self.requests.len())
    }

    /// Clients without an address share the places of one.
    fn client(&self, of: Option<Network>) -> u64 {
        self.seed.hash_one(of)
    }

    fn is_over_share(&self, client: u64) -> bool {
        self.clients.get(&client).is_some_and(|places| places.saturating_mul(LEFT_FOR_EACH) >= self.left())
    }

    fn join(&mut self, place: (Micros, StreamId), client: u64, is_to_be_asked: bool) {
        self.requests.insert(place, ());
        if is_to_be_asked {
            self.unasked.insert(place, ());
        }
        let places = self.clients.entry(client).or_default();
        *places = places.saturating_add(1);
    }

    pub fn leave(&mut self, place: (Micros, StreamId), client: u64) {
        // A request that was denied at once has had no place.
        if self.requests.remove(&place).is_none() {
            return;
        }
        self.unasked.remove(&place);
        if let Some(places) = self.clients.get_mut(&client) {
            *places = places.saturating_sub(1);
            if *places == 0 {
                self.clients.remove(&client);
            }
        }
    }

    /// The time for which a request may wait now.
    fn patience(&self, timeout: Micros) -> Micros {
        let shortened = timeout.0.saturating_mul(self.left() as u64) / CROWDED as u64;
        Micros(shortened).max(SHORTEST).min(timeout)
    }
}

/// True if a denial of this check rejects the request, whatever its body has. A share is not certain: other regions may lend what it lacks.
fn is_certain(config: &Config, check: &Check) -> bool {
    check.mode == Mode::Enforce && config.regions_of(check) != Across::Share
}

impl Requests {
    /// Lets a request wait for its body, or denies it at once. False if no place is free, or its client has too many.
    pub fn await_body(&mut self, stream: StreamId, before: BeforeBody, now: Now) -> bool {
        let client = self.awaited.client(before.client);
        let BeforeBody { waits_for, is_enough, .. } = before;
        let state = State::AwaitsBody(AwaitsBody { client, asks: false, waits_for, is_enough });
        let checks = before.checks.map(|check| PolicyCheck::new(check, None));
        let request = Request::new(checks, state, (now.uptime, 0));
        let is_to_be_asked = request.checks.iter().any(|of| is_certain(&self.config, &of.check));
        self.requests.insert(stream, request);
        // A request that is denied needs no place.
        if self.deny_without_body(stream, now) {
            return true;
        }
        let refused = if self.awaited.left() == 0 {
            Some(&mut self.bodies.no_place)
        } else if self.awaited.is_over_share(client) {
            Some(&mut self.bodies.over_share)
        } else {
            None
        };
        if let Some(refused) = refused {
            *refused = refused.saturating_add(1);
            self.requests.remove(&stream);
            return false;
        }
        self.awaited.join((now.uptime, stream), client, is_to_be_asked);
        true
    }

    pub fn awaits_body(&self, stream: StreamId) -> bool {
        let awaits = |request: &Request| matches!(request.state, State::AwaitsBody(_));
        self.requests.get(&stream).is_some_and(awaits)
    }

    /// Notes that the request no longer waits for its body.
    pub fn body_came(&mut self, stream: StreamId) {
        let Some(request) = self.requests.get(&stream) else { return };
        if let State::AwaitsBody(AwaitsBody { client, .. }) = request.state {
            self.awaited.leave((request.arrived.0, stream), client);
            self.requests.remove(&stream);
            self.effects.push_back(Effect::NoLongerWaits(stream));
        }
    }

    /// Asks the stores about requests whose bodies have not come yet. If a store does not answer, nothing changes.
    pub fn ask_without_bodies(&mut self, stores: &mut Stores, now: Now) {
        let is_due = |came: Micros| came.plus(ASK_AFTER) <= now.uptime;
        while let Some(&((_, stream), ())) =
            self.awaited.unasked.first().filter(|((came, _), ())| is_due(*came))
        {
            self.awaited.unasked.pop_first();
            let Some(request) = self.requests.get_mut(&stream) else { continue };
            let State::AwaitsBody(awaits) = &mut request.state else { continue };
            awaits.asks = true;
            // The store would deny what is on lease here.
            let on_lease = |check: &Rc<Check>| self.leases.serves(check, check.cost, now.host);
            let is_asked = |of: &&PolicyCheck| is_certain(&self.config, &of.check) && !on_lease(&of.check);
            let certain = request.checks.iter().filter(is_asked);
            for (place, policy_check) in (BEFORE_BODY..).zip(certain) {
                if let Ok(slots) = stores.admits(&policy_check.check, now) {
                    let check = Rc::new(Check { mode: Mode::QuotaRequest, ..(*policy_check.check).clone() });
                    stores.ask(&check, Waiter { stream, place }, slots, now);
                }
            }
        }
    }

    /// Notes the answer to a check that charges nothing. If it denies a request that waits for its body, the worker remembers the denial, and
    /// denies the request by it.
    pub(super) fn learn_without_body(&mut self, task: &Task, outcome: &Outcome, (asked, now): (Micros, Now)) {
        let is_before_body = |waiter: &Waiter| waiter.place >= BEFORE_BODY;
        // Of a policy whose ban alone counts, the limits deny nothing.
        let denies = if task.check.ban_only { outcome.ban } else { outcome.retry_after() };
        if denies == RetryAfter::Now || !task.waiters().iter().any(is_before_body) {
            return;
        }
        let (check, limits) = (Rc::new(enforced(&task.check).into_owned()), task.plan.limits());
        let decision = Decision { granted: false, ..check.decision(outcome, limits, 0, task.ask()) };
        let ttl = self.config.denial_ttl(&check, &decision);
        self.denied.remember(&check, limits, &decision, ttl, (asked, now.host));
    }

    /// Rejects a request that waits for its body, if the worker knows that a policy denies it. Returns whether it does.
    pub(super) fn deny_without_body(&mut self, stream: StreamId, now: Now) -> bool {
        let Some(request) = self.requests.get_mut(&stream) else { return false };
        let State::AwaitsBody(AwaitsBody { client, .. }) = request.state else { return false };
        let config = &self.config;
        for policy_check in request.checks.iter_mut().filter(|of| is_certain(config, &of.check)) {
            policy_check.answer =
                self.denied.look_up(&policy_check.check, now.host).map(CheckAnswer::DeniedUntil);
        }
        let is_denied = request.checks.iter().any(|of| of.answer.is_some());
        if is_denied {
            let came = request.arrived.0;
            request.state = State::Waiting(Waiting::default());
            self.waiting = self.waiting.saturating_add(1);
            self.awaited.leave((came, stream), client);
            self.bodies.denied = self.bodies.denied.saturating_add(1);
            self.decide(stream, now);
        }
        is_denied
    }

    /// Rejects the requests whose bodies did not come in time, or decides them without their bodies.
    pub fn expire_bodies(&mut self, stores: &mut Stores, now: Now) {
        let timeout = self.config.request_body.timeout;
        while let Some(&((came, stream), ())) = self.awaited.requests.first() {
            if came.plus(self.awaited.patience(timeout)) > now.uptime {
                return;
            }
            let is_hurried = came.plus(timeout) > now.uptime;
            if let Some((client, checks)) = self.requests.get(&stream).and_then(Request::checks_without_body)
            {
                // It waits on, perhaps as the probe of a breaker, so the breakers are told nothing.
                self.awaited.leave((came, stream), client);
                self.requests.remove(&stream);
                self.bodies.late = self.bodies.late.saturating_add(1);
                self.bodies.hurried = self.bodies.hurried.saturating_add(is_hurried.into());
                if self.submit(stream, checks, false, now) {
                    self.ask(stream, stores, now);
                }
                continue;
            }
            let late = self.requests.get_mut(&stream).and_then(Request::reject_late);
            let Some(AwaitsBody { client, waits_for: policy, .. }) = late else {
                // No request has this place: without this, no other body would ever be late.
                self.awaited.requests.pop_first();
                continue;
            };
            self.awaited.leave((came, stream), client);
            self.decided.rejected = self.decided.rejected.saturating_add(1);
            self.bodies.late = self.bodies.late.saturating_add(1);
            self.bodies.hurried = self.bodies.hurried.saturating_add(is_hurried.into());
            self.effects.push_back(Effect::NoLongerWaits(stream));
            let action = Action::Reject(response::late(self.config.response(policy)).into());
            self.releases.push_back(Release { stream, action });
        }
    }

    /// The uptime at which the next body is late, or weir asks the store about its request.
    pub fn next_of_bodies(&self) -> Option<Micros> {
        let timeout = self.config.request_body.timeout;
        let late =
            self.awaited.requests.first().map(|((came, _), ())| came.plus(self.awaited.patience(timeout)));
        let asks = self.awaited.unasked.first().map(|((came, _), ())| came.plus(ASK_AFTER));
        Micros::earliest([late, asks])
    }
}
