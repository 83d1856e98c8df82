// SPDX-License-Identifier: Apache-2.0
//! The base of the servers that tests bring themselves: they accept on a free port, give each connection a thread of its own, share a state
//! with the test, and stop when they are dropped.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use socket2::{Domain, Socket, Type};

/// A running server; when dropped it accepts nothing more, and whatever waits for its state to change goes on.
#[derive(Debug)]
pub struct Server<T> {
    address: SocketAddr,
    shared: Arc<Shared<T>>,
}

/// The state that the test and the connections' threads share.
#[derive(Debug)]
pub struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
pub struct State<T> {
    /// The server's own.
    pub own: T,
    /// The server has stopped.
    pub stopped: bool,
}

impl<T: Send + 'static> Server<T> {
    /// Starts on a free port, and serves each connection on a thread.
    pub fn start(own: T, serve: fn(&Arc<Shared<T>>, TcpStream)) -> Self {
        let listener = listener();
        let address = listener.local_addr().expect("its number");
        let state = Mutex::new(State { own, stopped: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if accepting.state().stopped {
                    break;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || serve(&shared, connection));
            }
        });
        Self { address, shared }
    }
}

/// On a free port. More connections can wait for a busy machine than `TcpListener::bind` allows: where they are too many, Linux drops
/// them, and Envoy connects again seconds later.
fn listener() -> TcpListener {
    const WAITING: i32 = 4_096;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    socket.listen(WAITING).expect("a listener");
    socket.into()
}

impl<T> Server<T> {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The state as it is now.
    pub fn state(&self) -> MutexGuard<'_, State<T>> {
        self.shared.state()
    }

    /// Changes the state, for connections that exist already too.
    pub fn change(&self, change: impl FnOnce(&mut State<T>)) {
        change(&mut self.state());
        self.shared.changed.notify_all();
    }
}

impl<T> Drop for Server<T> {
    fn drop(&mut self) {
        self.change(|state| state.stopped = true);
        // Wakes the accepting thread up, which then sees that it has been stopped.
        let _ = TcpStream::connect(self.address);
    }
}

impl<T> Shared<T> {
    pub fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as the state is such, and the server is there; what it is then.
    pub fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        such: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, State<T>> {
        let waits = |state: &mut State<T>| !state.stopped && such(&state.own);
        self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner)
    }
}
