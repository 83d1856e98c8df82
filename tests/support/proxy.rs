// SPDX-License-Identifier: Apache-2.0
//! A TCP proxy between Envoy and Redis. It can misbehave as a network does: delay, lose, swallow, be narrow, or answer in Redis's place.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use weir::random::Random;

use super::server::{Server, Shared};

/// The behaviour of the network to Redis and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// It arrives.
    Sound,
    /// It arrives, this much later; so do the replies.
    Slow(Duration),
    /// It arrives, as over a way between two regions.
    Far(Way),
    /// It arrives, at most so many bytes of it a second, over all connections together; what comes back is not slowed.
    Narrow(u32),
    /// Nothing arrives, in either direction, until the network is another one: then all of it does.
    Cut,
    /// Nothing arrives, not even what is under way, as if the machine at one end had lost power. The connections end.
    Lost,
    /// It arrives; of each reply only so many bytes come back, and then the end of the connection.
    Truncating(usize),
    /// It arrives. Each connection ends together with the first reply on it: one segment carries both.
    Closing,
    /// It does not arrive, and this comes back.
    Foreign(&'static [u8]),
}

/// A way between two regions, in each direction. Bytes arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The duration of one trip, at most `jitter` less or more.
    pub trip: Duration,
    pub jitter: Duration,
    /// The number of lost packets of a thousand. TCP sends a lost one again when its time-out is over, and the packets after it wait for
    /// it.
    pub lost: u64,
}

impl Way {
    /// The time for which TCP waits for an acknowledgement before it sends again: at least 200 ms, and at least a round trip.
    pub fn time_out(&self) -> Duration {
        Duration::from_millis(200) + 2 * self.trip
    }

    /// The longest trip of a packet that is lost no more than once.
    pub fn longest_trip(&self) -> Duration {
        let again = if self.lost > 0 { self.time_out() } else { Duration::ZERO };
        self.trip + self.jitter + again
    }

    fn draw(&self, random: &mut Random) -> Duration {
        let number = random.draw();
        let (loss, place) = (number % 1_000, (number >> 16) % 1_001);
        let again = if loss < self.lost { self.time_out() } else { Duration::ZERO };
        self.trip.saturating_sub(self.jitter)
            + 2 * self.jitter * u32::try_from(place).expect("at most 1000") / 1_000
            + again
    }
}

/// A running proxy; when dropped it accepts nothing more, and its connections end.
#[derive(Debug)]
pub struct Proxy(Server<Path>);

#[derive(Debug)]
struct Path {
    to: SocketAddr,
    network: Network,
    /// The time at which a narrow network has carried all that it was given.
    free: Instant,
    carried: Carried,
}

/// The traffic of a proxy, in both directions together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// The number of reads. Each counts as one message.
    pub messages: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    There,
    Back,
}

/// The bytes that each connection carries in its turn, if several share a narrow network.
const TURN: usize = 256;

impl Proxy {
    /// Starts on a free port, with a sound network to `to`.
    pub fn start(to: SocketAddr) -> Self {
        Self(Server::start(
            Path { to, network: Network::Sound, free: Instant::now(), carried: Carried::default() },
            connect,
        ))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub fn carried(&self) -> Carried {
        self.0.state().own.carried
    }

    /// Changes the network from now on, also for existing connections.
    pub fn set(&self, network: Network) {
        self.0.change(|state| state.own.network = network);
    }
}

fn connect(shared: &Arc<Shared<Path>>, client: TcpStream) {
    let to = shared.state().own.to;
    // Where Redis refuses, so does this, as nearly as a connection that was accepted can.
    let Ok(redis) = TcpStream::connect(to) else { return };
    let (Ok(client_back), Ok(redis_back)) = (client.try_clone(), redis.try_clone()) else { return };
    let back = Arc::clone(shared);
    thread::spawn(move || back.carry(redis_back, client_back, Direction::Back));
    shared.carry(client, redis, Direction::There);
}

impl Shared<Path> {
    /// The network as it is once it is not cut; `None` when there will be none any more.
    fn network(&self) -> Option<Network> {
        let state = self.wait_while(self.state(), |path| path.network == Network::Cut);
        (!state.stopped).then(|| state.own.network.clone())
    }

    /// Until either end closes, which closes the other; that is no error here.
    fn carry(&self, from: TcpStream, mut to: TcpStream, direction: Direction) {
        let _ = to.set_nodelay(true);
        let Ok(mut end) = to.try_clone() else { return };
        let (line, waiting) = mpsc::channel::<(Instant, Vec<u8>)>();
        thread::scope(|scope| {
            // Bytes on a slow network do not delay the bytes after them.
            scope.spawn(move || {
                for (due, bytes) in waiting {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    if self.state().own.network == Network::Lost || end.write_all(&bytes).is_err() {
                        // Then the other direction ends, and with it this one.
                        let _ = end.shutdown(Shutdown::Both);
                    }
                }
            });
            self.carry_along(&from, &mut to, direction, &line);
            drop(line);
        });
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn carry_along(
        &self,
        mut from: &TcpStream,
        to: &mut TcpStream,
        direction: Direction,
        line: &mpsc::Sender<(Instant, Vec<u8>)>,
    ) {
        let mut chunk = [0; 64 * 1024];
        let (mut random, mut latest) = (Random::new(seed()), Instant::now());
        if let (Some(Network::Far(way)), Direction::There) = (self.network(), direction) {
            // Only then is the connection there.
            latest += 2 * way.trip;
        }
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let Some(network) = self.network() else { break };
            self.count(length);
            let carried = match (network, direction) {
                (Network::Slow(delay), _) => {
                    let _ = line.send((Instant::now() + delay, chunk[..length].to_vec()));
                    Ok(())
                }
                (Network::Far(way), _) => {
                    latest = latest.max(Instant::now() + way.draw(&mut random));
                    let _ = line.send((latest, chunk[..length].to_vec()));
                    Ok(())
                }
                (Network::Narrow(rate), Direction::There) => {
                    chunk[..length].chunks(TURN).try_for_each(|turn| {
                        thread::sleep(self.turn(turn.len(), rate));
                        to.write_all(turn)
                    })
                }
                (Network::Lost, _) => break,
                (Network::Foreign(reply), Direction::There) => from.write_all(reply),
                (Network::Truncating(most), Direction::Back) => {
                    let _ = to.write_all(&chunk[..length.min(most)]);
                    break;
                }
                (Network::Closing, Direction::Back) => {
                    // Requests gather behind the batch that this answers.
                    thread::sleep(Duration::from_millis(2));
                    // Linux keeps the bytes back until the socket is shut down, and sends both in one segment.
                    let _ = SockRef::from(&*to).set_tcp_cork(true);
                    let _ = to.write_all(&chunk[..length]);
                    let _ = to.shutdown(Shutdown::Write);
                    break;
                }
                _ => to.write_all(&chunk[..length]),
            };
            if carried.is_err() {
                break;
            }
        }
    }

    fn count(&self, bytes: usize) {
        let carried = &mut self.state().own.carried;
        carried.messages += 1;
        carried.bytes += bytes as u64;
    }

    /// The time until so many bytes have passed, after those before them, of all connections.
    fn turn(&self, bytes: usize, rate: u32) -> Duration {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let (now, mut state) = (Instant::now(), self.state());
        let free = state.own.free.max(now) + Duration::from_secs(1) * bytes / rate;
        state.own.free = free;
        free - now
    }
}

/// The seed from which one direction of a connection draws its delays.
fn seed() -> u64 {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    DRAWN.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
