// SPDX-License-Identifier: Apache-2.0
//! The load: a fixed number of connections from one thread, each with one request in flight at any time (a closed loop). A
//! connection sends the next request when the response is complete.
//!
//! Latency is the time from the write of a request to the last byte of its response. A closed loop sends less while the edge
//! is slow. So it counts a stall once per connection, and not once per request that independent clients would have sent
//! meanwhile (coordinated omission). The percentiles compare edges under the same load. They do not predict the latency of
//! independent clients.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use weir::random::Random;

/// With more errors than this, the figures would not be about the edge.
const MAX_ERRORS: u64 = 10_000;

/// Without any answer for so long, a run ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// The requests of a load, and their target.
pub struct Load {
    pub to: SocketAddr,
    pub connections: usize,
    pub subjects: Subjects,
    /// Any other status is an error.
    pub expected: u16,
    pub warm_up: Duration,
    pub measured: Duration,
}

/// The subjects of the requests, in the header `x-user`.
#[derive(Clone, Copy)]
pub enum Subjects {
    /// One request of each subject. The run ends then, without regard to warm-up and measured time.
    EachOnce(u32),
    /// Each request gets a random subject. The same seed gives the same sequence.
    Random { of: u32, seed: u64 },
}

/// The result of one run.
#[derive(Default)]
pub struct Sample {
    /// Responses in the measured time.
    pub requests: u64,
    pub elapsed: Duration,
    /// Responses with another status than expected, and broken connections.
    pub errors: u64,
    /// In nanoseconds, of the requests that began and ended in the measured time.
    latencies: Vec<u32>,
}

impl Sample {
    /// The latency that this percentage of the requests do not exceed, in microseconds.
    pub fn percentile(&mut self, percent: usize) -> f64 {
        self.latencies.sort_unstable();
        let rank = (self.latencies.len() * percent).div_ceil(100).saturating_sub(1);
        self.latencies.get(rank).map_or(f64::NAN, |&latency| f64::from(latency) / 1e3)
    }
}

/// Sends the load. Calls `look` when the measured time begins and when it ends, while requests are in flight.
///
/// # Errors
/// The edge cannot be reached, does nothing for seconds (`TimedOut`), or causes too many errors; or `stop` is set.
pub fn run<T>(
    load: &Load,
    stop: &AtomicBool,
    mut look: impl FnMut() -> io::Result<T>,
) -> io::Result<(Sample, T, T)> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(load.connections.max(16));
    let mut users = Users::of(load.subjects);
    let mut connections = Vec::with_capacity(load.connections);
    for index in 0..load.connections {
        let mut connection = Connection::open(load.to, &poll, Token(index))?;
        if let Some(user) = users.next() {
            connection.send(user)?;
        }
        connections.push(connection);
    }

    let started = Instant::now();
    let mut begun: Option<(Instant, T)> = None;
    let (mut sample, mut answered, mut last) = (Sample::default(), 0, started);
    loop {
        poll.poll(&mut events, Some(Duration::from_millis(100))).or_else(|error| match error.kind() {
            // The signal has set `stop`.
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        })?;
        let now = Instant::now();
        for event in &events {
            let connection = &mut connections[event.token().0];
            match connection.read() {
                Ok(None) => continue,
                Ok(Some(status)) => {
                    let ended = Instant::now();
                    if let Some((begin, _)) = &begun {
                        sample.requests += 1;
                        sample.errors += u64::from(status != load.expected);
                        if connection.sent >= *begin {
                            let nanos = ended.duration_since(connection.sent).as_nanos();
                            sample.latencies.push(u32::try_from(nanos).unwrap_or(u32::MAX));
                        }
                    }
                }
                Err(_) => {
                    sample.errors += 1;
                    *connection = Connection::open(load.to, &poll, event.token())?;
                }
            }
            (answered, last) = (answered + 1, now);
            if let Some(user) = users.next() {
                connection.send(user)?;
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        if sample.errors > MAX_ERRORS {
            return Err(io::Error::other(format!("too many errors of {}", load.to)));
        }
        if now.duration_since(last) > PATIENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer of {}", load.to)));
        }
        match begun.take() {
            None if users.is_over(answered) => return Ok((sample, look()?, look()?)),
            None if matches!(load.subjects, Subjects::Random { .. }) && started.elapsed() >= load.warm_up => {
                sample.errors = 0;
                let seen = look()?;
                begun = Some((Instant::now(), seen));
            }
            None => {}
            Some((begin, seen)) if begin.elapsed() >= load.measured => {
                sample.elapsed = begin.elapsed();
                return Ok((sample, seen, look()?));
            }
            open => begun = open,
        }
    }
}

/// Chooses the subject of the next request.
struct Users {
    subjects: Subjects,
    /// The number of subjects that were chosen one after the other.
    chosen: u32,
    random: Random,
}

impl Users {
    fn of(subjects: Subjects) -> Self {
        let seed = match subjects {
            Subjects::EachOnce(_) => 0,
            Subjects::Random { seed, .. } => seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15),
        };
        Self { subjects, chosen: 0, random: Random::new(seed) }
    }

    fn next(&mut self) -> Option<u32> {
        match self.subjects {
            Subjects::EachOnce(of) => {
                let user = Some(self.chosen).filter(|&user| user < of)?;
                self.chosen += 1;
                Some(user)
            }
            Subjects::Random { of, .. } => Some(self.random.draw_high() as u32 % of),
        }
    }

    fn is_over(&self, answered: u64) -> bool {
        matches!(self.subjects, Subjects::EachOnce(of) if answered >= u64::from(of))
    }
}

struct Connection {
    stream: TcpStream,
    /// The part of the response that has arrived.
    input: Vec<u8>,
    /// The time at which it sent its last request.
    sent: Instant,
}

impl Connection {
    fn open(to: SocketAddr, poll: &Poll, token: Token) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, token, Interest::READABLE)?;
        Ok(Self { stream, input: Vec::with_capacity(4096), sent: Instant::now() })
    }

    fn send(&mut self, user: u32) -> io::Result<()> {
        let mut request = [0; 64];
        let mut rest = &mut request[..];
        write!(rest, "GET / HTTP/1.1\r\nhost: weir.bench\r\nx-user: {user:08}\r\n\r\n")?;
        let unused = rest.len();
        let length = request.len() - unused;
        self.sent = Instant::now();
        // One write is enough: the request is far smaller than the socket's buffer, which is empty.
        self.stream.write_all(&request[..length])
    }

    /// The status of the response, if the response is complete.
    fn read(&mut self) -> io::Result<Option<u16>> {
        let mut chunk = [0; 16_384];
        loop {
            let read = match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            self.input.extend_from_slice(&chunk[..read]);
            let status = whole(&self.input)?;
            if status.is_some() {
                self.input.clear();
            }
            // The event is edge-triggered: after a read that filled the chunk, more may be there. Nothing follows a response before the
            // next request, and what arrives later raises another event.
            if status.is_some() || read < chunk.len() {
                return Ok(status);
            }
        }
    }
}

/// The status of the response, if these bytes are all of it.
fn whole(bytes: &[u8]) -> io::Result<Option<u16>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) =
        response.parse(bytes).map_err(|error| io::Error::other(error.to_string()))?
    else {
        return Ok(None);
    };
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.parse::<usize>().ok())
        .ok_or_else(|| io::Error::other("a response without content-length"))?;
    Ok(response.code.filter(|_| bytes.len() >= head + length))
}
