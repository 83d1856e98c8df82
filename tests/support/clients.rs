// SPDX-License-Identifier: Apache-2.0
//! Clients that ask again and again, each over a connection that it keeps for as long as Envoy does.
//!
//! A connection that ends before the first byte of an answer was not necessarily a loss: where Envoy closes a connection that
//! rests, a request may cross with that, and HTTP has the client ask again (RFC 9112, 9.3.1). Whether Envoy had taken the
//! request, only Envoy can say: it counts it (`downstream_rq_total`). So nothing is lost where as many requests were
//! answered as Envoy has counted, and none was answered in part.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::weir::Statuses;
use super::{PATIENCE, eventually, http};

/// The answers to clients.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// In the order of the answers.
    pub statuses: Vec<u16>,
    /// Every `ratelimit-policy` that they saw.
    pub policies: BTreeSet<String>,
    /// The number of connections that ended without an answer.
    pub unanswered: usize,
    /// Other failures: an answer in part, or none in [`PATIENCE`].
    pub broken: Vec<String>,
}

impl Told {
    pub fn statuses(&self) -> Statuses {
        self.statuses.iter().copied().collect()
    }
}

/// They ask until [`Self::end`] is called, or no server listens any more.
pub struct Clients {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    told: Mutex<Told>,
}

impl Clients {
    pub fn start(count: usize, to: SocketAddr) -> Self {
        let shared = Arc::new(Shared::default());
        let client = |_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.ask(to))
        };
        Self { threads: (0..count).map(client).collect(), shared }
    }

    pub fn so_far(&self) -> Told {
        self.shared.told().clone()
    }

    /// Waits until so many more were answered.
    pub fn go_on(&self, more: usize) {
        let before = self.so_far().statuses.len();
        eventually(&format!("{more} more answers"), || {
            (self.so_far().statuses.len() >= before + more).then_some(())
        });
    }

    /// Waits until each has found the door closed.
    pub fn leave(self) -> Told {
        eventually("every client to find no server", || {
            self.threads.iter().all(JoinHandle::is_finished).then_some(())
        });
        self.end()
    }

    /// No client begins another request. Returns when every answer under way has arrived.
    pub fn end(mut self) -> Told {
        self.stop();
        self.so_far()
    }

    fn stop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that has panicked has said why.
            let _ = thread.join();
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, to: SocketAddr) {
        let mut kept = None;
        while !self.stopped.load(Ordering::Relaxed) {
            let Some(mut connection) = kept.take().or_else(|| connect(to).ok()) else { return };
            let answer = exchange(&mut connection);
            let mut told = self.told();
            match answer {
                Ok(Some(answer)) => {
                    let status = answer.start.split(' ').nth(1).and_then(|status| status.parse().ok());
                    told.statuses.push(status.expect("a status"));
                    told.policies.extend(answer.headers.get("ratelimit-policy").map(String::from));
                    let closes = answer.headers.get("connection").is_some_and(|told| told == "close");
                    kept = (!closes).then_some(connection);
                }
                Ok(None) => told.unanswered += 1,
                Err(error) => told.broken.push(error.to_string()),
            }
        }
    }
}

fn connect(to: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let connection = TcpStream::connect(to)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(connection))
}

/// `None` where the connection ended in place of an answer.
fn exchange(connection: &mut BufReader<TcpStream>) -> io::Result<Option<http::Message>> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    let sent = connection.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: weir.test\r\n\r\n");
    match sent.and_then(|()| http::has_ended(connection)) {
        Err(error) if [BrokenPipe, ConnectionReset].contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
        Ok(true) => Ok(None),
        Ok(false) => http::read(connection),
    }
}
