// SPDX-License-Identifier: Apache-2.0
//! The connections of one worker to its stores: which connection carries which batch, and when a connection is renewed, proven, retired and
//! closed. Both hosts use it. The plugin's connections are streams to the bridge: they carry one batch at a time. The module's carry many,
//! because RESP answers in order. A host's own rules are in its [`Transport`].
//!
//! ```text
//!          Transport::open, or add           opened                  its successor is proven, judge, retire
//!  (none) ─────────────────────────▶ opening ──────▶ open: idle ⇄ busy ──────────────────────▶ retiring
//!                                       │                       │                                 │ nothing is in flight
//!                                       │ fail, or 1 s          │ fail, abandon                   ▼
//!                                       └───────────────────────┴──────────────────────────▶ Output::Close
//! ```
//!
//! - **In**: [`begin`](Pool::begin) at each callback, [`tick`](Pool::tick), a batch to [`send`](Pool::send), and what happens to a connection.
//! - **Out**: [`poll`](Pool::poll), until it returns `None`. It also renews what is old.
//!
//! **An open connection stays with the address that it was opened to.** When the store's name moves, a connection that stayed open would go
//! on counting at the old Redis. So a connection that is [`AGE`] old gets a successor, make before break: the successor opens beside it, and
//! carries the next batches. When the store has answered one of them well, the successor is proven, and the old connection retires. It stays
//! if the successor does not open, if the store refuses the login on it, or if it leads to a replica.
//!
//! **Suspect slots have a connection of their own** where a connection carries several batches: replies come in order, so a shard that hangs
//! would hold up the replies of the others. The first batch of such slots requests it, and it closes at [`AGE`].
//!
//! What must never happen:
//!
//! - A reply counts for another batch. So the connection of an abandoned batch closes.
//! - A batch waits for a connection that nothing opens, or a batch that was sent goes out again.
//! - A host closes or opens a connection in a callback in which it must not: [`begin`](Pool::begin) says whether it may.
//! - The clock decides: ages are uptime, which never goes back. A connection that a busy worker opens gets some loop time, too.

use std::mem;

use super::clock::{Clock, Now};
use super::failure::StoreFailure;
use super::store::Slots;
use crate::time::Micros;

/// A connection of this age gets a successor.
const AGE: Micros = Micros::from_secs(5);
/// A connection that has not opened after this time is closed. After a connection has failed to open, no other is opened beside the open
/// ones for as long. A successor on which the store answered badly has cost a batch, so another is tried only after [`AGE`].
const RETRY: Micros = Micros::from_secs(1);
/// A busy worker reads late what was answered. So a connection that has not opened closes only when the worker has had this much loop time,
/// too: some turns of its event loop, which read what is there.
const OPEN_LOOP_TIME: Micros = Micros::from_millis(50);

/// The operations of a host on connections.
pub trait Transport {
    /// The number of batches that a connection carries at a time.
    const DEPTH: usize;
    /// True if the store has failed when a connection does not open in time. Otherwise the host has lost that connection, and what waits for
    /// it waits for another.
    const SILENCE_FAILS: bool;
    /// Names a batch.
    type Batch: Copy + PartialEq;
    /// Names a connection.
    type Id: Copy + PartialEq;
    /// The host's part of a connection.
    type Connection;

    /// The name of this connection.
    fn id(connection: &Self::Connection) -> Self::Id;

    /// Requests a connection to a store, and returns it if it opens now; otherwise [`Pool::add`] may come later.
    ///
    /// # Errors
    /// None can be expected soon.
    fn open(&mut self, store: usize, purpose: Purpose) -> Result<Option<Self::Connection>, NoConnection>;

    /// True if a connection to this store that opens now was perhaps requested for suspect slots.
    fn expects_suspect(&self, _store: usize) -> bool {
        false
    }
}

/// The reason for which a connection is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A batch waits for it.
    Batch,
    /// It is to replace one that is old.
    Successor,
    /// A batch of suspect slots waits for it.
    Suspect,
}

/// The host cannot open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoConnection;

/// An action for the host.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<B, C> {
    /// Close this connection. The pool has forgotten it.
    Close(C),
    /// This batch can be sent now. Nothing of it was sent, and the host makes it anew.
    Connected(B),
    /// This batch gets no answer.
    Failed(B, StoreFailure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening,
    Open,
    /// It gets no further batch, and closes when nothing is in flight on it.
    Retiring,
}

struct Connection<T: Transport> {
    host: T::Connection,
    store: usize,
    state: State,
    created: Now,
    /// The uptime at which it last got a batch.
    used_at: Micros,
    /// It replaces older ones as soon as the store has answered a batch well on it.
    is_successor: bool,
    slots: Slots,
    /// In the order in which they were sent.
    in_flight: Vec<T::Batch>,
}

impl<T: Transport> Connection<T> {
    fn is_open(&self, store: usize) -> bool {
        self.store == store && self.state == State::Open
    }

    fn is_old(&self, now: Now) -> bool {
        self.state == State::Open && now.uptime.since(self.created.uptime) >= AGE
    }

    fn is_stuck(&self, now: Now) -> bool {
        self.state == State::Opening
            && now.uptime.since(self.created.uptime) >= RETRY
            && now.loop_time.since(self.created.loop_time) >= OPEN_LOOP_TIME
    }
}

/// A batch that was not sent yet.
struct Waiting<B> {
    store: usize,
    batch: B,
    /// It waits for a connection for suspect slots.
    for_suspect: bool,
}

#[derive(Default)]
struct ToStore {
    /// Until then no connection is opened beside the open ones, in uptime.
    retry_at: Micros,
    /// Until then none is requested for suspect slots, in uptime.
    suspect_retry_at: Micros,
    /// The host opens a connection for the batches that wait: [`Pool::add`] comes.
    is_requested: bool,
}

/// The connections of one worker: which connection carries which batch, and when it is renewed and closed.
pub struct Pool<T: Transport> {
    /// The host's part.
    pub transport: T,
    clock: Clock,
    stores: Vec<ToStore>,
    /// In the order in which they were opened.
    connections: Vec<Connection<T>>,
    waiting: Vec<Waiting<T::Batch>>,
    /// They get no answer. The host is to be told.
    failed: Vec<(T::Batch, StoreFailure)>,
    /// They wait for a callback in which the host may close them.
    closing: Vec<T::Connection>,
    /// In this callback a connection may still be opened, or closed.
    may_act: bool,
    is_renewed: bool,
    /// Nothing is sent on it in this callback.
    resting: Option<T::Id>,
}

impl<T: Transport> Pool<T> {
    /// It has no stores yet.
    pub fn new(transport: T) -> Self {
        Self {
            transport,
            clock: Clock::default(),
            stores: Vec::new(),
            connections: Vec::new(),
            waiting: Vec::new(),
            failed: Vec::new(),
            closing: Vec::new(),
            may_act: false,
            is_renewed: false,
            resting: None,
        }
    }

    /// Adds a store, and returns its number.
    pub fn add_store(&mut self) -> usize {
        self.stores.push(ToStore::default());
        self.stores.len() - 1
    }

    // --- In: time --------------------------------------------------------------------------------------------------

    /// A callback begins at this time of the host's clock. If it `may_act`, the pool may close connections in it, then open one, then send.
    pub const fn begin(&mut self, host: Micros, may_act: bool) {
        self.clock.at(host);
        (self.may_act, self.is_renewed, self.resting) = (may_act, false, None);
    }

    /// The worker's event loop ticks.
    pub fn tick(&mut self, host: Micros) {
        self.clock.tick(host);
    }

    // --- In: batches -----------------------------------------------------------------------------------------------

    /// A batch is to be sent. Returns the connection on which the host has to send it; `None` if it waits.
    ///
    /// # Errors
    /// The host cannot open a connection.
    pub fn send(
        &mut self,
        store: usize,
        batch: T::Batch,
        slots: Slots,
    ) -> Result<Option<T::Id>, StoreFailure> {
        // A connection with one batch at a time holds up no other batch.
        let slots = if T::DEPTH > 1 { slots } else { Slots::Normal };
        let Some(index) = self.newest(store, slots) else {
            return self.wait(store, batch).map(|()| None);
        };
        let is_for_them = self.connections.get(index).is_some_and(|connection| connection.slots == slots);
        if slots == Slots::Suspect && !is_for_them && self.requests_suspect(store) {
            self.waiting.push(Waiting { store, batch, for_suspect: true });
            return Ok(None);
        }
        let Some(connection) = self.connections.get_mut(index) else { return Err(StoreFailure::NotSent) };
        if slots == Slots::Normal {
            // It may be a connection for suspect slots, because the normal one was lost.
            connection.slots = Slots::Normal;
        }
        connection.used_at = self.clock.latest().uptime;
        connection.in_flight.push(batch);
        self.may_act = false;
        Ok(Some(T::id(&connection.host)))
    }

    /// The newest connection to a store that can carry a batch now: of those for these slots, if there is any.
    fn newest(&self, store: usize, slots: Slots) -> Option<usize> {
        let newest = |any_slots: bool| {
            self.connections.iter().rposition(|connection| {
                connection.is_open(store)
                    && connection.in_flight.len() < T::DEPTH
                    && self.resting != Some(T::id(&connection.host))
                    && (any_slots || connection.slots == slots)
            })
        };
        [T::DEPTH == 1, true].into_iter().find_map(newest)
    }

    /// A batch waits for a connection that opens anyway, or for a new one. While new ones fail, it waits for one that is open.
    fn wait(&mut self, store: usize, batch: T::Batch) -> Result<(), StoreFailure> {
        if self.stores.get(store).is_none() {
            return Err(StoreFailure::NotSent);
        }
        self.waiting.push(Waiting { store, batch, for_suspect: false });
        if self.has_unmet(store)
            && self.may_act
            && self.can_open(store)
            && self.open(store, Purpose::Batch).is_err()
        {
            if !self.is_open(store) {
                self.waiting.pop();
                return Err(StoreFailure::NotSent);
            }
            self.pause(store, RETRY);
        }
        Ok(())
    }

    /// A batch of suspect slots has no connection for these. Returns whether it has to wait for one. If none comes, the next batch takes the
    /// normal connection.
    fn requests_suspect(&mut self, store: usize) -> bool {
        let now = self.clock.latest().uptime;
        let Some(state) = self.stores.get_mut(store).filter(|state| state.suspect_retry_at <= now) else {
            return false;
        };
        state.suspect_retry_at = now.plus(AGE);
        self.open(store, Purpose::Suspect).is_ok()
    }

    /// The engine has abandoned this batch. If it was sent, its connection closes: the reply must not count for another batch.
    pub fn abandon(&mut self, batch: T::Batch) {
        self.waiting.retain(|waiting| waiting.batch != batch);
        let carrier = self.connections.iter().find_map(|connection| {
            connection.in_flight.iter().find(|other| **other == batch).map(|_| connection)
        });
        let Some(connection) = carrier else { return };
        let (id, store) = (T::id(&connection.host), connection.store);
        if connection.is_successor {
            self.pause(store, AGE);
        }
        self.fail(id, &StoreFailure::Refused);
    }

    // --- In: connections -------------------------------------------------------------------------------------------

    /// The host has got a connection, which opens now.
    pub fn add(&mut self, connection: T::Connection, store: usize) {
        if let Some(state) = self.stores.get_mut(store) {
            state.is_requested = false;
        }
        self.push(connection, store, true);
    }

    fn push(&mut self, host: T::Connection, store: usize, is_successor: bool) {
        let created = self.clock.latest();
        self.connections.push(Connection {
            host,
            store,
            state: State::Opening,
            created,
            used_at: created.uptime,
            is_successor,
            slots: Slots::Normal,
            in_flight: Vec::new(),
        });
    }

    /// A connection is open: it can carry batches.
    pub fn opened(&mut self, id: T::Id) {
        let Some(index) = self.index(id) else { return };
        let Some(&Connection { store, is_successor, .. }) = self.connections.get(index) else { return };
        let has = |slots| self.connections.iter().any(|other| other.is_open(store) && other.slots == slots);
        let is_suspect = T::DEPTH > 1
            && has(Slots::Normal)
            && !has(Slots::Suspect)
            && self.transport.expects_suspect(store);
        let slots = if is_suspect { Slots::Suspect } else { Slots::Normal };
        for (place, connection) in self.connections.iter_mut().enumerate() {
            if place == index {
                (connection.state, connection.slots) = (State::Open, slots);
            } else if is_successor
                && connection.is_successor
                && connection.is_open(store)
                && connection.slots == slots
            {
                // A worker without traffic would collect successors.
                connection.state = State::Retiring;
            }
        }
        self.end_wait_for_suspect(store);
    }

    /// A connection, or its host's part.
    pub fn get_mut(&mut self, id: T::Id) -> Option<&mut T::Connection> {
        self.connections.iter_mut().find(|other| T::id(&other.host) == id).map(|found| &mut found.host)
    }

    /// The connections, each with its store.
    pub fn iter(&self) -> impl Iterator<Item = (&T::Connection, usize)> {
        self.connections.iter().map(|connection| (&connection.host, connection.store))
    }

    /// A connection has brought all replies to a batch: the oldest on it. When the engine has read them, the host calls
    /// [`judge`](Self::judge).
    pub fn answered(&mut self, id: T::Id) -> Option<T::Batch> {
        let in_flight = &mut self.find(id)?.in_flight;
        (!in_flight.is_empty()).then(|| in_flight.remove(0))
    }

    /// The store has answered a batch on this connection. If it has not answered `well`, the connection gets no further batch.
    pub fn judge(&mut self, id: T::Id, well: bool) {
        let Some(index) = self.index(id) else { return };
        let (older, newer) = self.connections.split_at_mut(index);
        let Some(judged) = newer.first_mut() else { return };
        let (store, was_successor) = (judged.store, mem::take(&mut judged.is_successor));
        if !well {
            judged.state = State::Retiring;
        }
        match (was_successor, well) {
            // It replaces as many as it can carry the batches of.
            (true, true) => older
                .iter_mut()
                .filter(|old| old.is_open(store) && old.slots == judged.slots)
                .take(T::DEPTH)
                .for_each(|old| old.state = State::Retiring),
            (true, false) => self.pause(store, AGE),
            (false, _) => {}
        }
    }

    /// Nothing is sent on this connection before the next callback.
    pub const fn rest(&mut self, id: T::Id) {
        self.resting = Some(id);
    }

    /// This connection gets no further batch.
    pub fn retire(&mut self, id: T::Id) {
        if let Some(connection) = self.find(id) {
            connection.state = State::Retiring;
        }
    }

    /// A connection has failed: it closes, and what is in flight on it gets no answer.
    pub fn fail(&mut self, id: T::Id, failure: &StoreFailure) {
        self.remove(id, failure, true);
    }

    /// The host has closed a connection, or its peer has.
    pub fn closed(&mut self, id: T::Id, failure: &StoreFailure) {
        self.fail(id, failure);
        self.closing.retain(|connection| T::id(connection) != id);
    }

    /// A connection has failed before the host got it.
    pub fn not_opened(&mut self, store: usize, failure: &StoreFailure) {
        if let Some(state) = self.stores.get_mut(store) {
            state.is_requested = false;
        }
        self.pause(store, RETRY);
        if self.is_open(store) {
            log::warn!(
                "store: a fresh connection could not be opened; the one that is open stays in use, where the store's name led to before: {failure}"
            );
            return;
        }
        // It would have carried these.
        for _ in 0..T::DEPTH {
            let index = self.waiting.iter().position(|waiting| waiting.store == store);
            let Some(index) = index.filter(|_| self.has_unmet(store)) else { return };
            self.failed.push((self.waiting.remove(index).batch, failure.clone()));
        }
    }

    fn remove(&mut self, id: T::Id, failure: &StoreFailure, fails_waiting: bool) {
        let Some(index) = self.index(id) else { return };
        let Connection { host, store, state, is_successor, in_flight, .. } = self.connections.remove(index);
        self.closing.push(host);
        for batch in in_flight {
            self.failed.push((batch, failure.clone()));
        }
        self.end_wait_for_suspect(store);
        if is_successor || state == State::Opening {
            self.pause(store, RETRY);
        }
        if state == State::Opening && (fails_waiting || self.is_open(store)) {
            self.not_opened(store, failure);
        }
    }

    // --- Out -------------------------------------------------------------------------------------------------------

    /// The next action for the host. The host calls it after each input until it returns `None`.
    pub fn poll(&mut self) -> Option<Output<T::Batch, T::Connection>> {
        loop {
            if self.may_act
                && let Some(connection) = self.closing.pop()
            {
                return Some(Output::Close(connection));
            }
            if mem::replace(&mut self.is_renewed, true) {
                break;
            }
            self.renew();
        }
        if let Some((batch, failure)) = self.failed.pop() {
            return Some(Output::Failed(batch, failure));
        }
        let can_send = |waiting: &Waiting<T::Batch>| {
            let can_open = self.may_act && self.may_request(waiting.store);
            !waiting.for_suspect && (can_open || self.newest(waiting.store, Slots::Normal).is_some())
        };
        let index = self.waiting.iter().rposition(can_send)?;
        Some(Output::Connected(self.waiting.remove(index).batch))
    }

    /// True if a batch waits for a callback in which it can be sent, or a connection may be opened for it.
    pub fn waits_for_callback(&self) -> bool {
        self.waiting.iter().any(|waiting| {
            self.may_request(waiting.store) || self.resting.is_some() && self.has_unmet(waiting.store)
        })
    }

    /// True if a connection waits for a callback in which it can be closed.
    pub const fn any_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Closes connections that do not open or are no longer needed, and opens a successor.
    fn renew(&mut self) {
        let now = self.clock.latest();
        while let Some(stuck) = self.connections.iter().find(|connection| connection.is_stuck(now)) {
            self.remove(T::id(&stuck.host), &StoreFailure::Refused, T::SILENCE_FAILS);
        }
        while let Some(index) = self.connections.iter().position(|connection| self.is_over(connection, now)) {
            self.closing.push(self.connections.remove(index).host);
        }
        let needs_successor = |connection: &&Connection<T>| {
            connection.is_old(now)
                && connection.slots == Slots::Normal
                && !self.is_paused(connection.store)
                && !self.has_successor(connection)
        };
        if self.may_act
            && let Some(store) = self.connections.iter().find(needs_successor).map(|old| old.store)
            && self.open(store, Purpose::Successor) != Ok(true)
        {
            self.pause(store, RETRY);
        }
    }

    fn is_over(&self, connection: &Connection<T>, now: Now) -> bool {
        let is_needed = match (connection.state, connection.slots) {
            (State::Opening, _) => true,
            (State::Retiring, _) => false,
            (State::Open, Slots::Suspect) => !connection.is_old(now),
            // A connection that was opened while the store was slow, and has been idle since, needs no successor.
            (State::Open, Slots::Normal) => {
                let is_spare =
                    |other: &&Connection<T>| other.is_open(connection.store) && other.in_flight.is_empty();
                !connection.is_old(now)
                    || now.uptime.since(connection.used_at) < AGE
                    || self.has_successor(connection)
                    || self.connections.iter().filter(is_spare).nth(1).is_none()
            }
        };
        !is_needed && connection.in_flight.is_empty()
    }

    // --- The stores ------------------------------------------------------------------------------------------------

    /// Opens a connection. Returns whether it opens now.
    fn open(&mut self, store: usize, purpose: Purpose) -> Result<bool, NoConnection> {
        self.may_act = false;
        let opens = self.transport.open(store, purpose)?;
        let opens_now = opens.is_some();
        if let Some(connection) = opens {
            self.push(connection, store, purpose == Purpose::Successor);
        } else if purpose == Purpose::Batch
            && let Some(state) = self.stores.get_mut(store)
        {
            state.is_requested = true;
        }
        Ok(opens_now)
    }

    fn is_open(&self, store: usize) -> bool {
        self.connections.iter().any(|connection| connection.is_open(store))
    }

    /// True if another connection replaces this one, or one that is older: one at a time.
    fn has_successor(&self, connection: &Connection<T>) -> bool {
        self.connections.iter().any(|other| {
            other.store == connection.store
                && other.is_successor
                && other.state != State::Retiring
                && T::id(&other.host) != T::id(&connection.host)
        })
    }

    /// True if more batches wait than the connections that are opening can carry.
    fn has_unmet(&self, store: usize) -> bool {
        let is_opening =
            |connection: &&Connection<T>| connection.store == store && connection.state == State::Opening;
        let mut places = self.connections.iter().filter(is_opening).flat_map(|_| 0..T::DEPTH);
        self.waiting.iter().any(|waiting| waiting.store == store && places.next().is_none())
    }

    /// True if a connection may be requested for batches that wait for none.
    fn may_request(&self, store: usize) -> bool {
        let is_requested = self.stores.get(store).is_some_and(|state| state.is_requested);
        !is_requested && self.can_open(store) && self.has_unmet(store)
    }

    /// True if one more connection may be opened: none is open, or no new one failed a moment ago.
    fn can_open(&self, store: usize) -> bool {
        !self.is_paused(store) || !self.is_open(store)
    }

    fn is_paused(&self, store: usize) -> bool {
        self.stores.get(store).is_some_and(|state| self.clock.latest().uptime < state.retry_at)
    }

    fn pause(&mut self, store: usize, pause: Micros) {
        let until = self.clock.latest().uptime.plus(pause);
        if let Some(state) = self.stores.get_mut(store) {
            state.retry_at = state.retry_at.max(until);
        }
    }

    /// Batches of suspect slots that wait for a connection take any.
    fn end_wait_for_suspect(&mut self, store: usize) {
        if T::DEPTH > 1 {
            let waiting = self.waiting.iter_mut().filter(|waiting| waiting.store == store);
            waiting.for_each(|waiting| waiting.for_suspect = false);
        }
    }

    fn index(&self, id: T::Id) -> Option<usize> {
        self.connections.iter().position(|connection| T::id(&connection.host) == id)
    }

    fn find(&mut self, id: T::Id) -> Option<&mut Connection<T>> {
        self.connections.iter_mut().find(|connection| T::id(&connection.host) == id)
    }
}

#[cfg(test)]
mod tests;
