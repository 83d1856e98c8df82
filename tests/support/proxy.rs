//! What lies between Envoy and Redis, as a TCP proxy that can be told to misbehave: to delay, to swallow, or to answer
//! in Redis's place.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How what was sent to Redis fares, and what comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// It arrives.
    Sound,
    /// It arrives, this much later; so do the replies.
    Slow(Duration),
    /// Nothing arrives, in either direction, until the network is another one: then all of it does.
    Cut,
    /// It arrives; of each reply only so many bytes come back, and then the end of the connection.
    Truncating(usize),
    /// It does not arrive, and this comes back.
    Foreign(&'static [u8]),
}

/// A running proxy; when dropped it accepts nothing more, and its connections end.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    to: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    network: Network,
    stopped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    There,
    Back,
}

impl Proxy {
    /// Starts on a free port, with a sound network to `to`.
    pub fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("its number");
        let state = Mutex::new(State { network: Network::Sound, stopped: false });
        let shared = Arc::new(Shared { to, state, changed: Condvar::new() });
        let accepted = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepted.state().stopped {
                    break;
                }
                accepted.connect(client);
            }
        });
        Self { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the network is like this, for connections that exist already too.
    pub fn set(&self, network: Network) {
        self.shared.state().network = network;
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        // Wakes the accepting thread up, which then sees that it has been stopped.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network as it is once it is not cut; `None` when there will be none any more.
    fn network(&self) -> Option<Network> {
        let cut = |state: &mut State| state.network == Network::Cut && !state.stopped;
        let state = self.changed.wait_while(self.state(), cut).unwrap_or_else(PoisonError::into_inner);
        (!state.stopped).then(|| state.network.clone())
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        // Where Redis refuses, so does this, as nearly as a connection that was accepted can.
        let Ok(redis) = TcpStream::connect(self.to) else { return };
        let both = || Some((client.try_clone().ok()?, redis.try_clone().ok()?));
        let (Some((client_there, redis_there)), Some((client_back, redis_back))) = (both(), both()) else {
            return;
        };
        let (there, back) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || there.carry(client_there, redis_there, Direction::There));
        thread::spawn(move || back.carry(redis_back, client_back, Direction::Back));
    }

    /// Until either end closes, which closes the other; that is no error here.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, direction: Direction) {
        let _ = to.set_nodelay(true);
        let mut chunk = [0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let Some(network) = self.network() else { break };
            let carried = match (network, direction) {
                (Network::Slow(delay), _) => {
                    thread::sleep(delay);
                    to.write_all(&chunk[..length])
                }
                (Network::Foreign(reply), Direction::There) => from.write_all(reply),
                (Network::Truncating(most), Direction::Back) => {
                    let _ = to.write_all(&chunk[..length.min(most)]);
                    break;
                }
                _ => to.write_all(&chunk[..length]),
            };
            if carried.is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
