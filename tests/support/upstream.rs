//! The service behind Envoy: it answers every request with 200 and an account of what it received, and holds those
//! to `/hold…` back until the test lets go, so that requests are in flight for as long as a test needs them to be.

use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use super::http::{self, Message};

/// A running upstream; it is gone when dropped, its held requests unanswered.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: usize,
    held: usize,
    open: bool,
    stopped: bool,
    resets: usize,
}

impl Upstream {
    /// Starts on a free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("its number");
        let shared = Arc::new(Shared::default());
        let accepted = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if accepted.state().stopped {
                    break;
                }
                let shared = Arc::clone(&accepted);
                thread::spawn(move || shared.serve(connection));
            }
        });
        Self { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests have arrived whole.
    pub fn requests(&self) -> usize {
        self.shared.state().requests
    }

    /// How many of them are being held back.
    pub fn held(&self) -> usize {
        self.shared.state().held
    }

    /// Lets all held requests go, and holds none from now on.
    pub fn release(&self) {
        self.shared.state().open = true;
        self.shared.changed.notify_all();
    }

    /// Closes the connections of all held requests, unanswered.
    pub fn reset(&self) {
        self.shared.state().resets += 1;
        self.shared.changed.notify_all();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        // Wakes the accepting thread up, which then sees that it has been stopped.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds this")
    }

    fn serve(&self, mut connection: TcpStream) {
        let Ok(reading) = connection.try_clone() else { return };
        let mut reading = BufReader::new(reading);
        while let Ok(Some(request)) = http::read(&mut reading) {
            if !self.pass(&request) {
                break;
            }
            let account = account(&request);
            let length = account.len();
            let response = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{account}"
            );
            if connection.write_all(response.as_bytes()).is_err() {
                break;
            }
        }
        // A client that has gone first is no error.
        let _ = connection.shutdown(Shutdown::Both);
    }

    /// Counts a request and holds it back if it is to be held; whether it is to be answered.
    fn pass(&self, request: &Message) -> bool {
        let mut state = self.state();
        state.requests += 1;
        if request.start.split(' ').nth(1).is_some_and(|path| path.starts_with("/hold")) {
            state.held += 1;
            let resets = state.resets;
            let held = |state: &mut State| !state.open && !state.stopped && state.resets == resets;
            state = self.changed.wait_while(state, held).expect("as above");
            state.held -= 1;
            return !state.stopped && state.resets == resets;
        }
        !state.stopped
    }
}

/// What the upstream answers: the request line, the header fields as they came, and the body's length and SHA-1.
fn account(request: &Message) -> String {
    let fields: String = request.headers.0.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    format!("{}\n{fields}\n{}\n", request.start, body_account(&request.body))
}

/// The last line of the answer to a request with this body.
pub fn body_account(body: &[u8]) -> String {
    format!("{} bytes, sha1 {}", body.len(), sha1_smol::Sha1::from(body).digest())
}
