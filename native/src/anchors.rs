// SPDX-License-Identifier: Apache-2.0
//! The thread that connects to the module's listeners, until each worker has a connection of each, and again when one closes.
//!
//! A listener with `exact_balance` gives a connection to the worker that has the fewest, so as many connections as workers lack one
//! suffice. Nothing is sent over these sockets. The thread only learns from its end that Envoy has closed one.

use std::io::{self, ErrorKind, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::descriptors;
use crate::login::Login;

/// Names a listener under one configuration.
pub type ListenerId = u64;

/// While the listener does not accept yet, it is tried again after this, for [`UNWANTED`]; later less often.
const NOT_LISTENING: Duration = Duration::from_millis(5);
/// A connection that was lost on its way to a worker, or that did not last, is tried again after this while a batch waits for it...
const WANTED: Duration = Duration::from_millis(50);
/// ... and after this while none does.
const UNWANTED: Duration = Duration::from_secs(1);
/// A connection that closes gets no successor at once: when Envoy ends, it closes all of them.
const REST: Duration = Duration::from_millis(10);
/// The most connections for each worker, which has three at once: for normal slots, a successor, and for suspect slots. The others
/// are those that Envoy does not accept at the moment.
const MAX_PER_WORKER: usize = 8;

enum Event {
    Listener(Box<Listener>),
    Removed(ListenerId),
    Arrived(ListenerId, u32),
    Gone(ListenerId, u32),
    Wanted(ListenerId),
    Successors(ListenerId),
}

/// Keeps a connection of each worker to the listener at this address; `None` where there is no such address.
/// `login` is read again before each connection.
pub fn add(address: &str, workers: u32, login: Option<Arc<Login>>) -> Option<ListenerId> {
    static LISTENERS: AtomicU64 = AtomicU64::new(0);
    let name = address.strip_prefix('@').filter(|name| !name.is_empty())?;
    let (socket, address) = (SocketAddr::from_abstract_name(name).ok()?, address.to_owned());
    let id = LISTENERS.fetch_add(1, Ordering::Relaxed);
    let workers = vec![0; usize::try_from(workers).ok()?];
    let (peers, tried, refuses, is_wanted, rests) = (Vec::new(), None, None, false, None);
    let listener = Listener { id, address, socket, login, workers, peers, tried, refuses, is_wanted, rests };
    tell(Event::Listener(Box::new(listener)));
    Some(id)
}

/// The listener's configuration is gone.
pub fn remove(listener: ListenerId) {
    tell(Event::Removed(listener));
}

/// A worker has a connection of this listener.
pub fn arrived(listener: ListenerId, worker: u32) {
    tell(Event::Arrived(listener, worker));
}

/// A worker's connection of this listener is closed.
pub fn gone(listener: ListenerId, worker: u32) {
    tell(Event::Gone(listener, worker));
}

/// A batch waits for a connection.
pub fn wanted(listener: ListenerId) {
    tell(Event::Wanted(listener));
}

/// Each worker is to get one more connection, beside the one it has.
pub fn successors(listener: ListenerId) {
    tell(Event::Successors(listener));
}

fn tell(event: Event) {
    static THREAD: OnceLock<Sender<Event>> = OnceLock::new();
    let events = THREAD.get_or_init(|| {
        let (sender, events) = channel();
        let thread = thread::Builder::new().name("weir-anchors".into()).spawn(move || keep(&events));
        if let Err(error) = thread {
            log::error!("no thread to connect to weir's listeners: {error}");
        }
        sender
    });
    // It fails when the thread could not be started, which was logged.
    let _ = events.send(event);
}

#[allow(clippy::disallowed_methods)]
fn keep(events: &Receiver<Event>) {
    let mut listeners: Vec<Listener> = Vec::new();
    loop {
        let now = Instant::now();
        let wait = listeners.iter().filter_map(|listener| listener.wait(now)).min();
        let event = match wait {
            Some(wait) => events.recv_timeout(wait),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Listener(listener)) => listeners.push(*listener),
            Ok(Event::Removed(id)) => listeners.retain(|listener| listener.id != id),
            Ok(Event::Arrived(id, worker)) => with(&mut listeners, id, |listener| listener.count(worker, 1)),
            Ok(Event::Gone(id, worker)) => with(&mut listeners, id, |listener| {
                listener.count(worker, -1);
                listener.rests = Some(Instant::now());
                listener.peers.retain_mut(is_open);
            }),
            Ok(Event::Wanted(id)) => with(&mut listeners, id, |listener| listener.is_wanted = true),
            Ok(Event::Successors(id)) => with(&mut listeners, id, |listener| {
                let opened = listener.connect(listener.workers.len());
                listener.note(opened, Instant::now());
            }),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        listeners.iter_mut().for_each(|listener| listener.step(now));
    }
}

fn with(listeners: &mut [Listener], id: ListenerId, change: impl FnOnce(&mut Listener)) {
    if let Some(listener) = listeners.iter_mut().find(|listener| listener.id == id) {
        change(listener);
    }
}

struct Listener {
    id: ListenerId,
    /// As it is configured.
    address: String,
    socket: SocketAddr,
    /// Of Redis behind it.
    login: Option<Arc<Login>>,
    /// How many connections each worker has.
    workers: Vec<i64>,
    /// This side of the connections.
    peers: Vec<UnixStream>,
    /// When this thread last tried to connect.
    tried: Option<Instant>,
    /// The listener does not accept; `None` while it does.
    refuses: Option<Refusal>,
    /// A batch waits.
    is_wanted: bool,
    /// When a connection last closed.
    rests: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Refusal {
    since: Instant,
    /// The log says so.
    is_told: bool,
}

impl Listener {
    fn count(&mut self, worker: u32, by: i64) {
        let worker = usize::try_from(worker).ok().and_then(|worker| self.workers.get_mut(worker));
        if let Some(connections) = worker {
            *connections = connections.saturating_add(by);
        }
    }

    fn missing(&self) -> usize {
        self.workers.iter().filter(|connections| **connections <= 0).count()
    }

    /// How long until this listener is to be tried; `None` when each worker has a connection.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let interval = match self.refuses {
            Some(Refusal { since, .. }) if now.duration_since(since) < UNWANTED => NOT_LISTENING,
            _ if self.is_wanted => WANTED,
            _ => UNWANTED,
        };
        let left = |since: Option<Instant>, interval: Duration| {
            since.map_or(Duration::ZERO, |since| (since + interval).saturating_duration_since(now))
        };
        (self.missing() > 0).then(|| left(self.tried, interval).max(left(self.rests, REST)))
    }

    fn step(&mut self, now: Instant) {
        match self.wait(now) {
            None => self.is_wanted = false,
            Some(Duration::ZERO) => {
                self.tried = Some(now);
                let opened = self.connect(self.missing());
                self.note(opened, now);
            }
            Some(_) => {}
        }
    }

    fn note(&mut self, opened: io::Result<()>, now: Instant) {
        let Err(error) = opened else {
            self.refuses = None;
            return;
        };
        let refusal = self.refuses.get_or_insert(Refusal { since: now, is_told: false });
        if !refusal.is_told && now.duration_since(refusal.since) >= UNWANTED {
            refusal.is_told = true;
            let address = &self.address;
            match error.kind() {
                ErrorKind::ConnectionRefused => {
                    log::warn!("nothing listens at {address}, where weir expects a listener of this Envoy");
                }
                _ => log::error!("weir cannot connect to the listener {address} of this Envoy: {error}"),
            }
        }
    }

    /// Opens this many connections, or as many as it may.
    ///
    /// # Errors
    /// Why one could not be opened.
    fn connect(&mut self, count: usize) -> io::Result<()> {
        // Those that Envoy has closed: this side keeps its socket until then.
        self.peers.retain_mut(is_open);
        let most = self.workers.len().saturating_mul(MAX_PER_WORKER).saturating_sub(self.peers.len());
        if !descriptors::counted() {
            return Err(io::Error::other("few file descriptors are left, raise `ulimit -n`"));
        }
        if let Some(login) = &self.login {
            login.refresh();
        }
        for _ in 0..count.min(most) {
            let peer = UnixStream::connect_addr(&self.socket)?;
            peer.set_nonblocking(true)?;
            self.peers.push(peer);
        }
        Ok(())
    }
}

/// Whether Envoy has not closed it.
fn is_open(peer: &mut UnixStream) -> bool {
    let idle = [ErrorKind::WouldBlock, ErrorKind::Interrupted];
    peer.read(&mut [0; 16]).is_err_and(|error| idle.contains(&error.kind()))
}
