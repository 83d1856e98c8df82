//! The connections of one worker to Redis. A way is open when Redis has answered a `PING` on it: before that, what is sent may be
//! lost, because `tcp_proxy` has no connection yet.
//!
//! Batches follow each other on the newest open way. One that is [`AGE`] old gets a successor, because an open connection stays
//! with the address that it was opened to. When the store has answered a batch well on the successor, the old way closes.

use std::sync::Mutex;

use weir_core::engine::{BatchId, Outgoing, Pipeline, Sent, StoreFailure, Unexpected};
use weir_core::resp;
use weir_core::time::Micros;

use crate::anchors::{self, ListenerId};
use crate::clock::locked;
use crate::envoy::{Connection, Scheduler};

/// The number of the event that closes a connection.
pub const CLOSE: u64 = 2;

/// A way of this age gets a successor as soon as there is traffic.
const AGE: Micros = Micros::from_secs(5);
/// A way that has not opened after this is closed, so that another is tried.
const PATIENCE: Micros = Micros::from_secs(1);

/// A batch of one limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub limiter: u64,
    pub batch: BatchId,
}

/// What is in flight on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Greeting,
    Batch(Ticket),
}

/// What the store has answered.
pub enum Answer {
    /// The way is open.
    Opened,
    /// These are the replies to a batch.
    Replies(Ticket, Vec<u8>),
}

struct Way {
    connection: Connection,
    /// Closes the connection later: Envoy goes on with a connection after the hook that has brought the reply.
    scheduler: Scheduler,
    cluster: String,
    opened: Micros,
    is_open: bool,
    /// The store has answered a batch well on it.
    is_proven: bool,
    /// Its successor is in use: it closes when nothing is in flight on it.
    retires: bool,
    pipeline: Pipeline<InFlight>,
}

impl Way {
    fn is_idle(&self) -> bool {
        self.pipeline.in_flight().next().is_none()
    }
}

/// The ways of one worker, in the order in which they were opened.
#[derive(Default)]
pub struct Ways {
    ways: Vec<Way>,
    /// When successors were last asked for.
    renewed: Micros,
}

/// The listeners that lead to clusters of Redis, in this process.
static LISTENERS: Mutex<Vec<(String, ListenerId)>> = Mutex::new(Vec::new());

/// Connections of this listener lead to this cluster.
pub fn register(cluster: &str, listener: ListenerId) {
    locked(&LISTENERS).push((cluster.to_owned(), listener));
}

/// The listener is gone.
pub fn unregister(listener: ListenerId) {
    locked(&LISTENERS).retain(|(_, other)| *other != listener);
}

/// The newest listener that leads to this cluster.
fn listener(cluster: &str) -> Option<ListenerId> {
    locked(&LISTENERS).iter().rev().find(|(other, _)| other == cluster).map(|(_, id)| *id)
}

impl Ways {
    /// A connection has arrived, and the next filter is ready. The caller has to inject the bytes.
    pub fn begin(
        &mut self,
        connection: Connection,
        scheduler: Scheduler,
        cluster: &str,
        now: Micros,
    ) -> Vec<u8> {
        let mut greeting = Vec::new();
        resp::array_header(&mut greeting, 1);
        resp::bulk(&mut greeting, b"PING");
        let mut pipeline = Pipeline::new();
        pipeline.sent(InFlight::Greeting, 1);
        let cluster = cluster.to_owned();
        let (is_open, is_proven, retires) = (false, false, false);
        self.ways.push(Way {
            connection,
            scheduler,
            cluster,
            opened: now,
            is_open,
            is_proven,
            retires,
            pipeline,
        });
        greeting
    }

    /// Notes that a batch is in flight. If it is sent now, also says on which connection the caller has to inject it.
    ///
    /// # Errors
    /// No listener leads to this cluster.
    pub fn send(
        &mut self,
        cluster: &str,
        limiter: u64,
        outgoing: &Outgoing,
        now: Micros,
    ) -> Result<(Sent, Option<Connection>), StoreFailure> {
        let usable = |way: &&mut Way| way.cluster == cluster && way.is_open && !way.retires;
        if let Some(way) = self.ways.iter_mut().rfind(usable) {
            let ticket = Ticket { limiter, batch: outgoing.id };
            way.pipeline.sent(InFlight::Batch(ticket), outgoing.replies);
            if now.since(way.opened) >= AGE
                && now.since(self.renewed) >= AGE
                && let Some(listener) = listener(cluster)
            {
                self.renewed = now;
                anchors::successors(listener);
            }
            return Ok((Sent::Now, Some(way.connection)));
        }
        anchors::wanted(listener(cluster).ok_or(StoreFailure::NotSent)?);
        Ok((Sent::Connecting, None))
    }

    /// Takes bytes that the store has sent, up to the end of an answer.
    ///
    /// # Errors
    /// They are not expected: close the connection.
    pub fn answer(
        &mut self,
        connection: Connection,
        bytes: &mut &[u8],
    ) -> Result<Option<Answer>, Unexpected> {
        let Some(way) = self.find(connection) else { return Ok(None) };
        Ok(way.pipeline.next(bytes)?.map(|(in_flight, replies)| match in_flight {
            InFlight::Greeting => {
                way.is_open = true;
                Answer::Opened
            }
            InFlight::Batch(ticket) => Answer::Replies(ticket, replies),
        }))
    }

    /// The cluster that a connection leads to.
    pub fn cluster(&mut self, connection: Connection) -> Option<String> {
        self.find(connection).map(|way| way.cluster.clone())
    }

    /// The store has answered a batch well on this connection: older ones retire.
    pub fn prove(&mut self, connection: Connection) {
        let Some(index) = self.ways.iter().position(|way| way.connection == connection) else { return };
        let (older, newer) = self.ways.split_at_mut(index);
        let Some(way) = newer.first_mut().filter(|way| !way.is_proven) else { return };
        way.is_proven = true;
        older.iter_mut().filter(|old| old.cluster == way.cluster).for_each(|old| old.retires = true);
    }

    /// One of the connections.
    pub fn any(&self) -> Option<Connection> {
        self.ways.first().map(|way| way.connection)
    }

    /// A connection whose cluster is gone: Envoy leaves it open.
    pub fn without_a_cluster(&self) -> Option<Connection> {
        self.ways.iter().find(|way| !way.connection.has_cluster(&way.cluster)).map(|way| way.connection)
    }

    /// A connection that is no longer needed, or that does not open.
    pub fn next_to_close(&self, now: Micros) -> Option<Connection> {
        let is_over =
            |way: &&Way| way.retires && way.is_idle() || !way.is_open && now.since(way.opened) >= PATIENCE;
        self.ways.iter().find(is_over).map(|way| way.connection)
    }

    /// The connection that carries this batch.
    pub fn carrier(&self, ticket: Ticket) -> Option<Connection> {
        let carries = |way: &&Way| way.pipeline.in_flight().any(|other| *other == InFlight::Batch(ticket));
        self.ways.iter().find(carries).map(|way| way.connection)
    }

    /// A connection is closed, or will be. Returns its cluster, the batches that get no answer, and whether another way there is left.
    pub fn end(&mut self, connection: Connection) -> Option<(String, Vec<Ticket>, bool)> {
        let index = self.ways.iter().position(|way| way.connection == connection)?;
        let Way { scheduler, cluster, pipeline, is_open, .. } = self.ways.remove(index);
        scheduler.commit(CLOSE);
        let lost = pipeline.close().filter_map(|in_flight| match in_flight {
            InFlight::Greeting => None,
            InFlight::Batch(ticket) => Some(ticket),
        });
        let others = self.ways.iter().any(|way| way.cluster == cluster && !way.retires);
        if others && !is_open {
            log::warn!(
                "store: a fresh connection could not be opened; the one that is open stays in use, where the store's name led to before"
            );
        }
        Some((cluster, lost.collect(), others))
    }

    fn find(&mut self, connection: Connection) -> Option<&mut Way> {
        self.ways.iter_mut().find(|way| way.connection == connection)
    }
}
