// SPDX-License-Identifier: Apache-2.0
//! Open-loop load: a request leaves when its time has come, whether or not those before it have been answered, each over
//! a connection of its own. So what is slow to answer is not asked less.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::http::{self, Request, Response};

/// Requests of one kind, to one address, evenly spaced.
#[derive(Clone, Debug)]
pub struct Lane {
    pub to: SocketAddr,
    pub request: Request,
}

/// One request and what became of it. Times count from the beginning of the load.
#[derive(Debug)]
pub struct Exchange {
    /// The index of the [`Lane`], or of the request if each request has its own.
    pub lane: usize,
    /// The time at which its connection was begun.
    pub sent: Duration,
    /// The time at which its response was complete, or its connection failed.
    pub ended: Duration,
    pub response: io::Result<Response>,
}

impl Exchange {
    pub fn took(&self) -> Duration {
        self.ended - self.sent
    }
}

/// A load that runs until it is [ended](Self::end) or dropped.
#[derive(Debug)]
pub struct Load {
    began: Instant,
    shared: Arc<Shared>,
    pacer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    sent: AtomicUsize,
    exchanges: Mutex<Vec<Exchange>>,
}

impl Load {
    /// Starts the load: `rate` requests per second for each [`Lane`], in rotation.
    pub fn start(lanes: Vec<Lane>, rate: u32) -> Self {
        let interval = Duration::from_secs(1) / rate / u32::try_from(lanes.len()).expect("a few lanes");
        Self::of_each(interval, move |number| {
            let lane = number % lanes.len();
            (lane, lanes[lane].clone())
        })
    }

    /// Starts the load: a request in each interval, of the [`Lane`] that `lane_of` returns.
    pub fn of_each(
        interval: Duration,
        mut lane_of: impl FnMut(usize) -> (usize, Lane) + Send + 'static,
    ) -> Self {
        let (began, shared) = (Instant::now(), Arc::new(Shared::default()));
        let paced = Arc::clone(&shared);
        let pacer = thread::spawn(move || {
            // Ends when every request has: that is what the scope waits for.
            thread::scope(|scope| {
                let mut due = began;
                for number in 0.. {
                    due += interval;
                    // Late is late: what was held up leaves at once, and none is left out.
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    if paced.stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    paced.sent.fetch_add(1, Ordering::Relaxed);
                    let (paced, (lane, Lane { to, request })) = (&paced, lane_of(number));
                    scope.spawn(move || {
                        let sent = began.elapsed();
                        let response = http::send(to, &request);
                        let ended = began.elapsed();
                        paced.exchanges().push(Exchange { lane, sent, ended, response });
                    });
                }
            });
        });
        Self { began, shared, pacer: Some(pacer) }
    }

    /// The time for which it has run.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// True if `such` is true for any exchange that has ended so far.
    pub fn any(&self, such: impl Fn(&Exchange) -> bool) -> bool {
        // The youngest are the likeliest.
        self.shared.exchanges().iter().rev().any(such)
    }

    /// Sends no more, and waits for nothing.
    pub fn stop_sending(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
    }

    /// Sends no more, waits for what is under way, and says how many requests were sent and what became of each.
    pub fn end(mut self) -> (usize, Vec<Exchange>) {
        self.stop();
        let exchanges = std::mem::take(&mut *self.shared.exchanges());
        (self.shared.sent.load(Ordering::Relaxed), exchanges)
    }

    fn stop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // It has panicked only if a request's thread has, and then that request is missing among the exchanges.
        let _ = self.pacer.take().map(JoinHandle::join);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn exchanges(&self) -> MutexGuard<'_, Vec<Exchange>> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
