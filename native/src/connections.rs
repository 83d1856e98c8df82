// SPDX-License-Identifier: Apache-2.0
//! The connections of one worker to Redis, as the [pool](weir_core::engine::Pool) uses them. Envoy gives them to the worker. A connection is
//! open when Redis has answered the greeting on it: what a worker sends before may be lost, because `tcp_proxy` has no connection yet. If
//! Redis refuses the login, the connection closes.

use std::mem;
use std::sync::Mutex;

use weir_core::engine::{
    BatchId, NoConnection, Outgoing, Pipeline, Purpose, StoreFailure, Transport, Unexpected, refusal,
};
use weir_core::time::Micros;

use crate::connector::{self, ListenerId};
use crate::envoy::{NetworkFilter, Scheduler};
use crate::now;
use crate::panics::locked;

/// The number of the event that closes a connection.
pub const CLOSE: u64 = 2;

/// Requests of several workers within this time count as one.
const REQUEST_INTERVAL: Micros = Micros::from_secs(1);
/// A batch waits for a connection that a worker has requested within this time.
const EXPECTED_WITHIN: Micros = Micros::from_millis(50);

/// A batch of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    pub engine: u64,
    pub batch: BatchId,
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

/// A connection to Redis.
pub struct Connection {
    pub filter: NetworkFilter,
    /// Closes the connection later: Envoy still uses it after the hook that has brought the reply.
    scheduler: Scheduler,
    pipeline: Pipeline,
    /// Redis has answered the greeting.
    is_open: bool,
}

impl Connection {
    /// The caller has to inject the greeting.
    pub fn new(filter: NetworkFilter, scheduler: Scheduler) -> Self {
        let mut pipeline = Pipeline::default();
        pipeline.sent(1);
        Self { filter, scheduler, pipeline, is_open: false }
    }

    pub fn close(self) {
        self.scheduler.commit(CLOSE);
    }
}

/// The connections of one worker to Redis.
pub type Pool = weir_core::engine::Pool<Clusters>;

/// The clusters of Redis, in the order in which this worker came to know them. Each is a store of the pool.
#[derive(Default)]
pub struct Clusters(Vec<String>);

/// The store of the pool behind this cluster.
pub fn store(pool: &mut Pool, cluster: &str) -> usize {
    let known = pool.transport.0.iter().position(|other| other == cluster);
    known.unwrap_or_else(|| {
        pool.transport.0.push(cluster.to_owned());
        pool.add_store()
    })
}

/// Sends a batch. Returns the connection on which the caller has to inject it; `None` if it waits for one.
///
/// # Errors
/// No listener leads to this cluster.
pub fn send(
    pool: &mut Pool,
    cluster: &str,
    engine: u64,
    outgoing: &Outgoing,
) -> Result<Option<NetworkFilter>, StoreFailure> {
    let store = store(pool, cluster);
    let filter = pool.send(store, BatchKey { engine, batch: outgoing.id }, outgoing.slots)?;
    if let Some(connection) = filter.and_then(|filter| pool.get_mut(filter)) {
        connection.pipeline.sent(outgoing.replies);
    }
    Ok(filter)
}

/// A connection whose cluster Envoy has removed. Envoy leaves it open.
pub fn first_without_cluster(pool: &Pool) -> Option<NetworkFilter> {
    let has_cluster = |filter: NetworkFilter, store: usize| {
        pool.transport.0.get(store).is_some_and(|cluster| filter.has_cluster(cluster))
    };
    let mut connections = pool.iter().map(|(connection, store)| (connection.filter, store));
    connections.find(|(filter, store)| !has_cluster(*filter, *store)).map(|(filter, _)| filter)
}

/// Reads bytes that Redis has sent, up to the end of a reply.
///
/// # Errors
/// The connection expects other bytes: close it.
pub fn read(pool: &mut Pool, filter: NetworkFilter, bytes: &mut &[u8]) -> Result<Option<Reply>, Unexpected> {
    let Some(connection) = pool.get_mut(filter) else { return Ok(None) };
    let Some(replies) = connection.pipeline.next(bytes)? else { return Ok(None) };
    if mem::replace(&mut connection.is_open, true) {
        return Ok(pool.answered(filter).map(|key| Reply::Batch(key, replies)));
    }
    Ok(Some(match refusal(&replies) {
        Some(failure) => Reply::Refused(failure),
        None => {
            pool.opened(filter);
            Reply::Opened
        }
    }))
}

impl Transport for Clusters {
    const DEPTH: usize = usize::MAX;
    // Redis has not answered the greeting.
    const SILENCE_FAILS: bool = true;
    type Batch = BatchKey;
    type Id = NetworkFilter;
    type Connection = Connection;

    fn id(connection: &Connection) -> NetworkFilter {
        connection.filter
    }

    /// Requests one more connection of each worker to this cluster: what one worker needs, the others need soon, and Envoy chooses the
    /// worker of a connection. If a worker has none, the connector opens one anyway, and is only told to hurry.
    fn open(&mut self, store: usize, purpose: Purpose) -> Result<Option<Connection>, NoConnection> {
        let request = |destination: &mut Destination| {
            let requested_at = match purpose {
                Purpose::Batch => {
                    connector::batch_waits(destination.listener);
                    return true;
                }
                Purpose::Successor => &mut destination.normal_requested_at,
                Purpose::Suspect => &mut destination.suspect_requested_at,
            };
            if !is_within(*requested_at, REQUEST_INTERVAL) {
                *requested_at = now();
                connector::open_successors(destination.listener);
            }
            is_within(*requested_at, EXPECTED_WITHIN)
        };
        let is_expected = self.with_destination(store, request).unwrap_or_default();
        if is_expected { Ok(None) } else { Err(NoConnection) }
    }

    fn expects_suspect(&self, store: usize) -> bool {
        let requested_at = self.with_destination(store, |destination| destination.suspect_requested_at);
        requested_at.is_some_and(|requested_at| is_within(requested_at, REQUEST_INTERVAL))
    }
}

/// True if this is less than `span` ago. A time that is still to come is of a clock that was set back, and long ago.
fn is_within(time: Micros, span: Micros) -> bool {
    let now = now();
    time <= now && now.since(time) < span
}

/// A listener that leads to a cluster of Redis.
struct Destination {
    cluster: String,
    listener: ListenerId,
    /// The time at which a worker last requested successors of all normal connections.
    normal_requested_at: Micros,
    /// The time at which a worker last requested connections for suspect slots.
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

impl Clusters {
    /// Calls `act` with the newest listener that leads to the cluster of this store.
    fn with_destination<T>(&self, store: usize, act: impl FnOnce(&mut Destination) -> T) -> Option<T> {
        let cluster = self.0.get(store)?;
        locked(&DESTINATIONS).iter_mut().rfind(|destination| destination.cluster == *cluster).map(act)
    }
}
