// SPDX-License-Identifier: Apache-2.0
//! The connections of one worker to Redis. A way is open when Redis has answered the greeting on it: before that, what is sent may
//! be lost, because `tcp_proxy` has no connection yet. If Redis refuses the login, the way closes.
//!
//! Batches follow each other on the newest open way. One that is [`AGE`] old gets a successor, because an open connection stays
//! with the address that it was opened to. When the store has answered a batch well on the successor, the old way closes.
//!
//! **Suspect slots have a way of their own**, because the replies on a connection come in order, and a shard that hangs would hold up
//! those of the others. It is opened for the first batch about such slots, and closes when it is [`AGE`] old.

use std::sync::Mutex;

use weir_core::engine::{BatchId, Outgoing, Pipeline, Sent, Slots, StoreFailure, Unexpected, refusal};
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
/// A way that was asked for within this time is on its way.
const SOON: Micros = Micros::from_millis(50);

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
    /// The store has refused the login.
    Refused(StoreFailure),
    /// These are the replies to a batch.
    Replies(Ticket, Vec<u8>),
}

/// A way that has ended.
pub struct Ended {
    pub cluster: String,
    /// These batches get no answer.
    pub lost: Vec<Ticket>,
    /// Whether another way to the cluster is left, or is opened in its place.
    pub others: bool,
}

struct Way {
    connection: Connection,
    /// Closes the connection later: Envoy goes on with a connection after the hook that has brought the reply.
    scheduler: Scheduler,
    cluster: String,
    opened: Micros,
    is_open: bool,
    /// The slots that its batches are about, if there is a way for the others, too.
    slots: Slots,
    /// The store has answered a batch well on it.
    is_proven: bool,
    /// Its successor is in use, or the store has answered badly on it: it closes when nothing is in flight on it.
    retires: bool,
    pipeline: Pipeline<InFlight>,
}

impl Way {
    fn is_idle(&self) -> bool {
        self.pipeline.in_flight().next().is_none()
    }

    fn is_usable(&self, cluster: &str) -> bool {
        self.cluster == cluster && self.is_open && !self.retires
    }
}

/// The ways of one worker, in the order in which they were opened.
#[derive(Default)]
pub struct Ways {
    ways: Vec<Way>,
    /// The clusters to which a way for suspect slots was asked for, and when.
    parted: Vec<(String, Micros)>,
}

/// A listener that leads to a cluster of Redis.
struct Destination {
    cluster: String,
    listener: ListenerId,
    /// When a worker last asked for successors of all normal ways, and for ways for suspect slots.
    renewed: Micros,
    parted: Micros,
}

/// Those of this process.
static DESTINATIONS: Mutex<Vec<Destination>> = Mutex::new(Vec::new());

/// Connections of this listener lead to this cluster.
pub fn register(cluster: &str, listener: ListenerId) {
    let (cluster, renewed, parted) = (cluster.to_owned(), Micros::ZERO, Micros::ZERO);
    locked(&DESTINATIONS).push(Destination { cluster, listener, renewed, parted });
}

/// The listener is gone.
pub fn unregister(listener: ListenerId) {
    locked(&DESTINATIONS).retain(|destination| destination.listener != listener);
}

/// What `act` makes of the newest listener that leads to this cluster.
fn with_destination<T>(cluster: &str, act: impl FnOnce(&mut Destination) -> T) -> Option<T> {
    locked(&DESTINATIONS).iter_mut().rfind(|destination| destination.cluster == cluster).map(act)
}

/// Asks for one more way of each worker to this cluster. What one worker needs, the others need soon, and Envoy chooses the worker of
/// a connection. Returns whether one is on its way: several workers that ask at about the same time ask once.
fn ask_for_more(cluster: &str, slots: Slots, now: Micros) -> bool {
    let ask = |destination: &mut Destination| {
        let last = match slots {
            Slots::Normal => &mut destination.renewed,
            Slots::Suspect => &mut destination.parted,
        };
        if now.since(*last) >= PATIENCE {
            *last = now;
            anchors::successors(destination.listener);
        }
        now.since(*last) < SOON
    };
    with_destination(cluster, ask).unwrap_or_default()
}

impl Ways {
    /// A connection has arrived, and the next filter is ready. The caller has to inject the greeting.
    pub fn begin(&mut self, connection: Connection, scheduler: Scheduler, cluster: &str, now: Micros) {
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
            slots: Slots::Normal,
            is_proven,
            retires,
            pipeline,
        });
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
        let newest = |ways: &[Way], is_fit: &dyn Fn(&Way) -> bool| {
            ways.iter().rposition(|way| way.is_usable(cluster) && is_fit(way))
        };
        let own = newest(&self.ways, &|way| way.slots == outgoing.slots);
        let Some(index) = own.or_else(|| newest(&self.ways, &|_| true)) else {
            let listener = with_destination(cluster, |destination| destination.listener);
            anchors::wanted(listener.ok_or(StoreFailure::NotSent)?);
            return Ok((Sent::Connecting, None));
        };
        if outgoing.slots == Slots::Suspect && own.is_none() && self.parts(cluster, now) {
            return Ok((Sent::Connecting, None));
        }
        let Some(way) = self.ways.get_mut(index) else { return Err(StoreFailure::NotSent) };
        if outgoing.slots == Slots::Normal {
            if now.since(way.opened) >= AGE {
                ask_for_more(cluster, Slots::Normal, now);
            }
            // If it was a way for suspect slots, the normal one is lost.
            way.slots = Slots::Normal;
        }
        way.pipeline.sent(InFlight::Batch(Ticket { limiter, batch: outgoing.id }), outgoing.replies);
        Ok((Sent::Now, Some(way.connection)))
    }

    /// A batch is about suspect slots, and these have no way of their own. Returns whether one is on its way. If none comes, the next batch
    /// takes the normal one.
    fn parts(&mut self, cluster: &str, now: Micros) -> bool {
        let known = self.parted.iter().position(|(other, _)| other == cluster);
        let known = known.unwrap_or_else(|| {
            self.parted.push((cluster.to_owned(), Micros::ZERO));
            self.parted.len() - 1
        });
        let last = self.parted.get_mut(known).map(|(_, last)| last).filter(|last| now.since(**last) >= AGE);
        last.is_some_and(|last| {
            *last = now;
            ask_for_more(cluster, Slots::Suspect, now)
        })
    }

    /// Takes bytes that the store has sent, up to the end of an answer.
    ///
    /// # Errors
    /// They are not expected: close the connection.
    pub fn answer(
        &mut self,
        connection: Connection,
        bytes: &mut &[u8],
        now: Micros,
    ) -> Result<Option<Answer>, Unexpected> {
        let Some(way) = self.find(connection) else { return Ok(None) };
        Ok(match way.pipeline.next(bytes)? {
            None => None,
            Some((InFlight::Batch(ticket), replies)) => Some(Answer::Replies(ticket, replies)),
            Some((InFlight::Greeting, reply)) => Some(match refusal(&reply) {
                Some(failure) => Answer::Refused(failure),
                None => {
                    self.open(connection, now);
                    Answer::Opened
                }
            }),
        })
    }

    fn open(&mut self, connection: Connection, now: Micros) {
        let Some(cluster) = self.cluster(connection) else { return };
        let has = |slots| self.ways.iter().any(|way| way.is_usable(&cluster) && way.slots == slots);
        let is_asked = with_destination(&cluster, |destination| now.since(destination.parted) < PATIENCE);
        let parts = has(Slots::Normal) && !has(Slots::Suspect) && is_asked.unwrap_or_default();
        let slots = if parts { Slots::Suspect } else { Slots::Normal };
        for way in self.ways.iter_mut().filter(|way| way.cluster == cluster) {
            if way.connection == connection {
                (way.is_open, way.slots) = (true, slots);
            } else if way.is_open && way.slots == slots && !way.is_proven {
                // A worker without traffic would collect successors.
                way.retires = true;
            }
        }
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
        let is_same = |old: &&mut Way| old.cluster == way.cluster && old.slots == way.slots;
        older.iter_mut().filter(is_same).for_each(|old| old.retires = true);
    }

    /// One of the connections.
    pub fn any(&self) -> Option<Connection> {
        self.ways.first().map(|way| way.connection)
    }

    /// A connection whose cluster is gone: Envoy leaves it open.
    pub fn without_a_cluster(&self) -> Option<Connection> {
        self.ways.iter().find(|way| !way.connection.has_cluster(&way.cluster)).map(|way| way.connection)
    }

    /// No further batch is sent on this connection.
    pub fn retire(&mut self, connection: Connection) {
        if let Some(way) = self.find(connection) {
            way.retires = true;
        }
    }

    /// A connection that is no longer needed, or that does not open.
    pub fn next_to_close(&self, now: Micros) -> Option<Connection> {
        let is_over = |way: &&Way| match (way.is_open, way.slots) {
            (false, _) => now.since(way.opened) >= PATIENCE,
            (true, Slots::Suspect) => way.is_idle() && (way.retires || now.since(way.opened) >= AGE),
            (true, Slots::Normal) => way.is_idle() && way.retires,
        };
        self.ways.iter().find(is_over).map(|way| way.connection)
    }

    /// The connection that carries this batch.
    pub fn carrier(&self, ticket: Ticket) -> Option<Connection> {
        let carries = |way: &&Way| way.pipeline.in_flight().any(|other| *other == InFlight::Batch(ticket));
        self.ways.iter().find(carries).map(|way| way.connection)
    }

    /// A connection is closed, or will be, because of this failure.
    pub fn end(&mut self, connection: Connection, failure: &StoreFailure) -> Option<Ended> {
        let index = self.ways.iter().position(|way| way.connection == connection)?;
        let Way { scheduler, cluster, pipeline, is_open, retires, .. } = self.ways.remove(index);
        scheduler.commit(CLOSE);
        let lost = pipeline.close().filter_map(|in_flight| match in_flight {
            InFlight::Greeting => None,
            InFlight::Batch(ticket) => Some(ticket),
        });
        let others = self.has(&cluster) || retires;
        if others && !is_open {
            log::warn!(
                "store: a fresh connection could not be opened; the one that is open stays in use, where the store's name led to before: {failure}"
            );
        }
        Some(Ended { cluster, lost: lost.collect(), others })
    }

    /// Whether there is a way to this cluster, or will be one soon.
    pub fn has(&self, cluster: &str) -> bool {
        self.ways.iter().any(|way| way.cluster == cluster && !way.retires)
    }

    fn find(&mut self, connection: Connection) -> Option<&mut Way> {
        self.ways.iter_mut().find(|way| way.connection == connection)
    }
}
