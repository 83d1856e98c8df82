// SPDX-License-Identifier: Apache-2.0
//! The connector: a thread that connects to the module's listeners, until each worker has a connection of each listener, and again when
//! one closes.
//!
//! A listener with `exact_balance` gives a connection to the worker that has the fewest. So the thread opens as many connections as
//! there are workers without one. It sends nothing over these sockets. It only reads whether Envoy has closed one.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::descriptors;
use crate::login::Login;
use crate::sockets::{Address, Socket};
use crate::threads::{self, Instant, Receiver, RecvTimeoutError, Sender, channel, instant, receive};

/// Names a listener under one configuration.
pub type ListenerId = u64;

/// The interval between attempts while the listener refuses connections, for the first [`RETRY`]; after that, as for any other.
const RETRY_REFUSED: Duration = Duration::from_millis(5);
/// The interval between attempts while a batch waits for a connection...
const RETRY_WANTED: Duration = Duration::from_millis(50);
/// ... and while none waits.
const RETRY: Duration = Duration::from_secs(1);
/// A closed connection gets no successor for this long: when Envoy ends, it closes all connections.
const PAUSE_AFTER_CLOSE: Duration = Duration::from_millis(10);
/// The most connections for each worker. A worker has three at once: for normal slots, a successor, and for suspect slots. The others
/// are those that Envoy does not accept at the moment.
const MAX_PER_WORKER: usize = 8;

enum Event {
    Added(Box<Listener>),
    Removed(ListenerId),
    Accepted(ListenerId, u32),
    Closed(ListenerId, u32),
    BatchWaits(ListenerId),
    SuccessorsWanted(ListenerId),
}

/// Opens a connection of each worker to the listener at this address, and again when one closes; `None` if the address cannot exist.
/// The thread reads `login` again before each connection.
pub fn add(address: &str, workers: u32, login: Option<Arc<Login>>) -> Option<ListenerId> {
    static LISTENERS: AtomicU64 = AtomicU64::new(0);
    let id = LISTENERS.fetch_add(1, Ordering::Relaxed);
    let listener = Listener::new(id, address, workers, login)?;
    send(Event::Added(Box::new(listener)));
    Some(id)
}

/// Envoy has removed the listener's configuration.
pub fn remove(listener: ListenerId) {
    send(Event::Removed(listener));
}

/// Envoy has given a connection of this listener to this worker.
pub fn accepted(listener: ListenerId, worker: u32) {
    send(Event::Accepted(listener, worker));
}

/// A worker's connection of this listener is closed.
pub fn closed(listener: ListenerId, worker: u32) {
    send(Event::Closed(listener, worker));
}

/// A batch waits for a connection.
pub fn batch_waits(listener: ListenerId) {
    send(Event::BatchWaits(listener));
}

/// Opens one more connection for each worker, beside the one that it has.
pub fn open_successors(listener: ListenerId) {
    send(Event::SuccessorsWanted(listener));
}

fn send(event: Event) {
    static THREAD: OnceLock<Sender<Event>> = OnceLock::new();
    let events = THREAD.get_or_init(|| {
        let (sender, thread) = start();
        if let Err(error) = thread {
            log::error!("the thread that connects to weir's listeners cannot start: {error}");
        }
        sender
    });
    // It fails if the thread could not start. The log says so.
    let _ = events.send(event);
}

/// Starts a thread, and returns how to send it events.
fn start() -> (Sender<Event>, io::Result<threads::Thread>) {
    let (sender, events) = channel();
    (sender, threads::start("weir-connector", move || run(&events)))
}

fn run(events: &Receiver<Event>) {
    let mut listeners: Vec<Listener> = Vec::new();
    loop {
        let now = instant();
        let wait = listeners.iter().filter_map(|listener| listener.wait(now)).min();
        match receive(events, wait) {
            Ok(Event::Added(listener)) => {
                listeners.push(*listener);
                supersede(&mut listeners);
            }
            Ok(Event::Removed(id)) => {
                listeners.retain(|listener| listener.id != id);
                supersede(&mut listeners);
            }
            Ok(Event::Accepted(id, worker)) => {
                change(&mut listeners, id, |listener| listener.count(worker, 1))
            }
            Ok(Event::Closed(id, worker)) => change(&mut listeners, id, |listener| {
                listener.count(worker, -1);
                listener.closed_at = Some(instant());
                listener.sockets.retain_mut(Socket::is_open);
            }),
            Ok(Event::BatchWaits(id)) => change(&mut listeners, id, |listener| listener.batch_waits = true),
            Ok(Event::SuccessorsWanted(id)) => change(&mut listeners, id, |listener| {
                if !listener.is_superseded {
                    listener.connect(listener.workers.len(), instant());
                }
            }),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = instant();
        listeners.iter_mut().for_each(|listener| listener.step(now));
    }
}

/// While an updated listener drains, Envoy gives new connections at its address to the newer one. Those that the older one opened would
/// close under the workers of the newer one at its end.
fn supersede(listeners: &mut [Listener]) {
    let mut newer: Vec<String> = Vec::new();
    for listener in listeners.iter_mut().rev() {
        listener.is_superseded = newer.contains(&listener.address);
        newer.push(listener.address.clone());
    }
}

fn change(listeners: &mut [Listener], id: ListenerId, change: impl FnOnce(&mut Listener)) {
    if let Some(listener) = listeners.iter_mut().find(|listener| listener.id == id) {
        change(listener);
    }
}

struct Listener {
    id: ListenerId,
    /// As the configuration has it.
    address: String,
    socket_address: Address,
    /// The login of the Redis behind the listener.
    login: Option<Arc<Login>>,
    /// The number of connections of each worker.
    workers: Vec<i64>,
    /// This side of the connections.
    sockets: Vec<Socket>,
    /// The time at which this thread last tried to connect.
    tried_at: Option<Instant>,
    /// The listener refuses connections; `None` while it accepts them.
    refusal: Option<Refusal>,
    batch_waits: bool,
    /// The time at which a connection last closed.
    closed_at: Option<Instant>,
    /// A newer listener has its address.
    is_superseded: bool,
}

#[derive(Clone, Copy)]
struct Refusal {
    since: Instant,
    is_logged: bool,
}

impl Listener {
    /// `None` if the address cannot exist.
    fn new(id: ListenerId, address: &str, workers: u32, login: Option<Arc<Login>>) -> Option<Self> {
        let name = address.strip_prefix('@').filter(|name| !name.is_empty())?;
        Some(Self {
            id,
            address: address.to_owned(),
            socket_address: Address::of(name)?,
            login,
            workers: vec![0; usize::try_from(workers).ok()?],
            sockets: Vec::new(),
            tried_at: None,
            refusal: None,
            batch_waits: false,
            closed_at: None,
            is_superseded: false,
        })
    }

    fn count(&mut self, worker: u32, by: i64) {
        let worker = usize::try_from(worker).ok().and_then(|worker| self.workers.get_mut(worker));
        if let Some(connections) = worker {
            *connections = connections.saturating_add(by);
        }
    }

    fn missing(&self) -> usize {
        self.workers.iter().filter(|connections| **connections <= 0).count()
    }

    /// The time until the thread connects to this listener again; `None` if each worker has a connection.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let interval = match self.refusal {
            Some(Refusal { since, .. }) if now.duration_since(since) < RETRY => RETRY_REFUSED,
            _ if self.batch_waits => RETRY_WANTED,
            _ => RETRY,
        };
        let left = |since: Option<Instant>, interval: Duration| {
            since.map_or(Duration::ZERO, |since| (since + interval).saturating_duration_since(now))
        };
        let wait = left(self.tried_at, interval).max(left(self.closed_at, PAUSE_AFTER_CLOSE));
        (!self.is_superseded && self.missing() > 0).then_some(wait)
    }

    fn step(&mut self, now: Instant) {
        match self.wait(now) {
            None => self.batch_waits = false,
            Some(Duration::ZERO) => {
                self.tried_at = Some(now);
                self.connect(self.missing(), now);
            }
            Some(_) => {}
        }
    }

    /// Opens this many connections, or as many as it may. Logs why it cannot, if that lasts.
    fn connect(&mut self, count: usize, now: Instant) {
        let Err(error) = self.try_connect(count) else {
            self.refusal = None;
            return;
        };
        let refusal = self.refusal.get_or_insert(Refusal { since: now, is_logged: false });
        if !refusal.is_logged && now.duration_since(refusal.since) >= RETRY {
            refusal.is_logged = true;
            let address = &self.address;
            match error.kind() {
                ErrorKind::ConnectionRefused => {
                    log::warn!("nothing listens at {address}, where weir expects a listener of this Envoy");
                }
                _ => log::error!("weir cannot connect to the listener {address} of this Envoy: {error}"),
            }
        }
    }

    fn try_connect(&mut self, count: usize) -> io::Result<()> {
        // Envoy may have closed connections: this side still has their sockets.
        self.sockets.retain_mut(Socket::is_open);
        let max = self.workers.len().saturating_mul(MAX_PER_WORKER).saturating_sub(self.sockets.len());
        if !descriptors::are_left_by_count() {
            return Err(io::Error::other("few file descriptors are left, raise `ulimit -n`"));
        }
        if let Some(login) = &self.login {
            login.refresh();
        }
        for _ in 0..count.min(max) {
            self.sockets.push(Socket::connect(&self.socket_address)?);
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "interleaved"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#[path = "tests/connector.rs"]
mod interleaved;
