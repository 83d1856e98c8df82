// SPDX-License-Identifier: Apache-2.0
//! The connections of one worker to Redis. A connection is open when Redis has answered the greeting on it: what a worker sends before
//! may be lost, because `tcp_proxy` has no connection yet. If Redis refuses the login, the connection closes.
//!
//! Batches follow each other on the newest open connection. At [`MAX_AGE`] it gets a successor, because an open connection stays with
//! the address that it was opened to. When Redis has answered a batch well on the successor, the old connection closes.
//!
//! **Suspect slots have a connection of their own**, because replies come in order on a connection: a shard that hangs would hold up the
//! replies of the others. The first batch of such slots requests it, and it closes at [`MAX_AGE`].

use std::sync::Mutex;

use weir_core::engine::{BatchId, Clock, Outgoing, Pipeline, Sent, Slots, StoreFailure, Unexpected, refusal};
use weir_core::time::Micros;

use crate::connector::{self, ListenerId};
use crate::envoy::{NetworkFilter, Scheduler};
use crate::panics::locked;

/// The number of the event that closes a connection.
pub const CLOSE: u64 = 2;

/// A connection of this age gets a successor as soon as there is traffic.
const MAX_AGE: Micros = Micros::from_secs(5);
/// A connection that has not opened after this time is closed, so that the connector opens another.
const OPEN_TIMEOUT: Micros = Micros::from_secs(1);
/// A busy worker reads late what Redis has answered. So such a connection closes only when the worker has had this much loop time, too:
/// some turns of its event loop, which read what is there.
const OPEN_LOOP_TIME: Micros = Micros::from_millis(50);
/// A batch waits for a connection that a worker has requested within this time.
const EXPECTED_WITHIN: Micros = Micros::from_millis(50);

/// A batch of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    pub engine: u64,
    pub batch: BatchId,
}

/// An entry in flight on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Greeting,
    Batch(BatchKey),
}

/// An answer of Redis.
pub enum Reply {
    /// To the greeting: the connection is open.
    Opened,
    /// To the greeting: Redis has refused the login.
    Refused(StoreFailure),
    /// To a batch: these are the replies.
    Batch(BatchKey, Vec<u8>),
}

/// A connection that was removed.
pub struct Removed {
    pub cluster: String,
    /// These batches get no answer.
    pub lost: Vec<BatchKey>,
    /// True if the worker has another connection to the cluster, or gets one soon.
    pub is_replaced: bool,
}

struct Connection {
    filter: NetworkFilter,
    /// Closes the connection later: Envoy still uses it after the hook that has brought the reply.
    scheduler: Scheduler,
    cluster: String,
    created_at: Micros,
    /// The worker's loop time when it was created.
    created_at_loop_time: Micros,
    is_open: bool,
    /// The slots of its batches, if the other slots have a connection, too.
    slots: Slots,
    /// Redis has answered a batch well on it.
    is_proven: bool,
    /// Its successor is in use, or Redis has answered badly on it. It closes when nothing is in flight on it.
    is_retiring: bool,
    pipeline: Pipeline<InFlight>,
}

impl Connection {
    fn is_idle(&self) -> bool {
        self.pipeline.in_flight().next().is_none()
    }

    fn is_usable(&self, cluster: &str) -> bool {
        self.cluster == cluster && self.is_open && !self.is_retiring
    }
}

/// The connections of one worker to Redis, oldest first.
#[derive(Default)]
pub struct Connections {
    connections: Vec<Connection>,
    /// When this worker last requested a connection for suspect slots, by cluster.
    suspect_requested_at: Vec<(String, Micros)>,
    /// The worker's clock, for its loop time.
    clock: Clock,
}

/// A listener that leads to a cluster of Redis.
struct Destination {
    cluster: String,
    listener: ListenerId,
    /// When a worker last requested successors of all normal connections.
    normal_requested_at: Micros,
    /// When a worker last requested connections for suspect slots.
    suspect_requested_at: Micros,
}

/// The destinations of this process.
static DESTINATIONS: Mutex<Vec<Destination>> = Mutex::new(Vec::new());

/// Connections of this listener lead to this cluster.
pub fn register(cluster: &str, listener: ListenerId) {
    locked(&DESTINATIONS).push(Destination {
        cluster: cluster.to_owned(),
        listener,
        normal_requested_at: Micros::ZERO,
        suspect_requested_at: Micros::ZERO,
    });
}

/// Envoy has removed the listener.
pub fn unregister(listener: ListenerId) {
    locked(&DESTINATIONS).retain(|destination| destination.listener != listener);
}

/// Calls `act` with the newest listener that leads to this cluster.
fn with_destination<T>(cluster: &str, act: impl FnOnce(&mut Destination) -> T) -> Option<T> {
    locked(&DESTINATIONS).iter_mut().rfind(|destination| destination.cluster == cluster).map(act)
}

/// Requests one more connection of each worker to this cluster: what one worker needs, the others need soon, and Envoy chooses the worker
/// of a connection. Requests of several workers at about the same time count as one. Returns whether to expect a connection soon.
fn request(cluster: &str, slots: Slots, now: Micros) -> bool {
    let request = |destination: &mut Destination| {
        let requested_at = match slots {
            Slots::Normal => &mut destination.normal_requested_at,
            Slots::Suspect => &mut destination.suspect_requested_at,
        };
        if now.since(*requested_at) >= OPEN_TIMEOUT {
            *requested_at = now;
            connector::open_successors(destination.listener);
        }
        now.since(*requested_at) < EXPECTED_WITHIN
    };
    with_destination(cluster, request).unwrap_or_default()
}

impl Connections {
    /// Envoy has given a connection to this worker, and the next filter is ready. The caller has to inject the greeting.
    pub fn add(&mut self, filter: NetworkFilter, scheduler: Scheduler, cluster: &str, now: Micros) {
        let mut pipeline = Pipeline::new();
        pipeline.sent(InFlight::Greeting, 1);
        self.connections.push(Connection {
            filter,
            scheduler,
            cluster: cluster.to_owned(),
            created_at: now,
            created_at_loop_time: self.clock.latest().loop_time,
            is_open: false,
            slots: Slots::Normal,
            is_proven: false,
            is_retiring: false,
            pipeline,
        });
    }

    /// Notes that a batch is in flight. If the caller can send it now, returns the connection on which it has to inject it.
    ///
    /// # Errors
    /// No listener leads to this cluster.
    pub fn send(
        &mut self,
        cluster: &str,
        engine: u64,
        outgoing: &Outgoing,
        now: Micros,
    ) -> Result<(Sent, Option<NetworkFilter>), StoreFailure> {
        let newest = |connections: &[Connection], is_fit: &dyn Fn(&Connection) -> bool| {
            connections.iter().rposition(|connection| connection.is_usable(cluster) && is_fit(connection))
        };
        let of_slots = newest(&self.connections, &|connection| connection.slots == outgoing.slots);
        let Some(index) = of_slots.or_else(|| newest(&self.connections, &|_| true)) else {
            let listener = with_destination(cluster, |destination| destination.listener);
            connector::batch_waits(listener.ok_or(StoreFailure::NotSent)?);
            return Ok((Sent::Connecting, None));
        };
        if outgoing.slots == Slots::Suspect && of_slots.is_none() && self.request_suspect(cluster, now) {
            return Ok((Sent::Connecting, None));
        }
        let Some(connection) = self.connections.get_mut(index) else { return Err(StoreFailure::NotSent) };
        if outgoing.slots == Slots::Normal {
            if now.since(connection.created_at) >= MAX_AGE {
                request(cluster, Slots::Normal, now);
            }
            // It may be a connection for suspect slots, because the normal one was lost.
            connection.slots = Slots::Normal;
        }
        let key = BatchKey { engine, batch: outgoing.id };
        connection.pipeline.sent(InFlight::Batch(key), outgoing.replies);
        Ok((Sent::Now, Some(connection.filter)))
    }

    /// A batch of suspect slots has no connection for these. Requests one at most once in [`MAX_AGE`]. Returns whether the batch has to
    /// wait for it. If none comes, the next batch takes the normal connection.
    fn request_suspect(&mut self, cluster: &str, now: Micros) -> bool {
        let index = self.suspect_requested_at.iter().position(|(other, _)| other == cluster);
        let index = index.unwrap_or_else(|| {
            self.suspect_requested_at.push((cluster.to_owned(), Micros::ZERO));
            self.suspect_requested_at.len() - 1
        });
        let Some((_, requested_at)) = self.suspect_requested_at.get_mut(index) else { return false };
        if now.since(*requested_at) < MAX_AGE {
            return false;
        }
        *requested_at = now;
        request(cluster, Slots::Suspect, now)
    }

    /// Reads bytes that Redis has sent, up to the end of a reply.
    ///
    /// # Errors
    /// The connection expects other bytes: close it.
    pub fn read(
        &mut self,
        filter: NetworkFilter,
        bytes: &mut &[u8],
        now: Micros,
    ) -> Result<Option<Reply>, Unexpected> {
        let Some(connection) = self.find(filter) else { return Ok(None) };
        Ok(match connection.pipeline.next(bytes)? {
            None => None,
            Some((InFlight::Batch(key), replies)) => Some(Reply::Batch(key, replies)),
            Some((InFlight::Greeting, reply)) => Some(match refusal(&reply) {
                Some(failure) => Reply::Refused(failure),
                None => {
                    self.open(filter, now);
                    Reply::Opened
                }
            }),
        })
    }

    fn open(&mut self, filter: NetworkFilter, now: Micros) {
        let Some(cluster) = self.cluster(filter) else { return };
        let has = |slots| {
            self.connections
                .iter()
                .any(|connection| connection.is_usable(&cluster) && connection.slots == slots)
        };
        let is_requested = with_destination(&cluster, |destination| {
            now.since(destination.suspect_requested_at) < OPEN_TIMEOUT
        });
        let is_suspect = has(Slots::Normal) && !has(Slots::Suspect) && is_requested.unwrap_or_default();
        let slots = if is_suspect { Slots::Suspect } else { Slots::Normal };
        for connection in self.connections.iter_mut().filter(|connection| connection.cluster == cluster) {
            if connection.filter == filter {
                (connection.is_open, connection.slots) = (true, slots);
            } else if connection.is_open && connection.slots == slots && !connection.is_proven {
                // A worker without traffic would collect successors.
                connection.is_retiring = true;
            }
        }
    }

    /// The cluster that a connection leads to.
    pub fn cluster(&mut self, filter: NetworkFilter) -> Option<String> {
        self.find(filter).map(|connection| connection.cluster.clone())
    }

    /// Redis has answered a batch well on this connection: older ones retire.
    pub fn prove(&mut self, filter: NetworkFilter) {
        let Some(index) = self.connections.iter().position(|connection| connection.filter == filter) else {
            return;
        };
        let (older, newer) = self.connections.split_at_mut(index);
        let Some(proven) = newer.first_mut().filter(|connection| !connection.is_proven) else { return };
        proven.is_proven = true;
        let is_replaced = |old: &&mut Connection| old.cluster == proven.cluster && old.slots == proven.slots;
        older.iter_mut().filter(is_replaced).for_each(|old| old.is_retiring = true);
    }

    /// The worker ticks.
    pub fn tick(&mut self, now: Micros) {
        self.clock.tick(now);
    }

    /// The oldest connection.
    pub fn first(&self) -> Option<NetworkFilter> {
        self.connections.first().map(|connection| connection.filter)
    }

    /// A connection whose cluster Envoy has removed. Envoy leaves it open.
    pub fn first_without_cluster(&self) -> Option<NetworkFilter> {
        let mut connections = self.connections.iter();
        connections
            .find(|connection| !connection.filter.has_cluster(&connection.cluster))
            .map(|connection| connection.filter)
    }

    /// Sends no further batch on this connection.
    pub fn retire(&mut self, filter: NetworkFilter) {
        if let Some(connection) = self.find(filter) {
            connection.is_retiring = true;
        }
    }

    /// A connection that the worker no longer needs, or that does not open.
    pub fn next_to_close(&self, now: Micros) -> Option<NetworkFilter> {
        let is_over = |connection: &&Connection| {
            let age = now.since(connection.created_at);
            let loop_time = self.clock.latest().loop_time.since(connection.created_at_loop_time);
            match (connection.is_open, connection.slots) {
                (false, _) => age >= OPEN_TIMEOUT && loop_time >= OPEN_LOOP_TIME,
                (true, Slots::Suspect) => connection.is_idle() && (connection.is_retiring || age >= MAX_AGE),
                (true, Slots::Normal) => connection.is_idle() && connection.is_retiring,
            }
        };
        self.connections.iter().find(is_over).map(|connection| connection.filter)
    }

    /// The connection that this batch was sent on.
    pub fn carrying(&self, key: BatchKey) -> Option<NetworkFilter> {
        let carries = |connection: &&Connection| {
            connection.pipeline.in_flight().any(|other| *other == InFlight::Batch(key))
        };
        self.connections.iter().find(carries).map(|connection| connection.filter)
    }

    /// A connection is closed, or closes soon, because of this failure.
    pub fn remove(&mut self, filter: NetworkFilter, failure: &StoreFailure) -> Option<Removed> {
        let index = self.connections.iter().position(|connection| connection.filter == filter)?;
        let Connection { scheduler, cluster, pipeline, is_open, is_retiring, .. } =
            self.connections.remove(index);
        scheduler.commit(CLOSE);
        let lost = pipeline.close().filter_map(|in_flight| match in_flight {
            InFlight::Greeting => None,
            InFlight::Batch(key) => Some(key),
        });
        let is_replaced = self.has(&cluster) || is_retiring;
        if is_replaced && !is_open {
            log::warn!(
                "store: a fresh connection could not be opened; the one that is open stays in use, where the store's name led to before: {failure}"
            );
        }
        Some(Removed { cluster, lost: lost.collect(), is_replaced })
    }

    /// True if the worker has a connection to this cluster that does not retire, open or not.
    pub fn has(&self, cluster: &str) -> bool {
        self.connections.iter().any(|connection| connection.cluster == cluster && !connection.is_retiring)
    }

    fn find(&mut self, filter: NetworkFilter) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.filter == filter)
    }
}
