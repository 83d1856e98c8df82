// SPDX-License-Identifier: Apache-2.0
//! The service behind Envoy: it answers every request with 200 and an account of what it received, and holds those
//! to `/hold…` or with a header `x-hold` back until the test releases them, so that requests are in flight for as long as a test needs them to be. A request with a header
//! `x-answer` gets the status that it names. A request to `/say` brings the response itself as its body, byte for byte; where a [`PIECE`] ends, the upstream waits until the test lets it go
//! on, if the path is `/say/slowly`. A header `x-say` brings the response in hexadecimal digits, so that the body may be anything. A request to `:generateContent` or `:streamGenerateContent` brings its response, too.

use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use super::http::{self, Headers, Message};
use super::server::{Server, Shared};

/// The end of a piece of what a request to `/say` brings.
pub const PIECE: u8 = 0x1e;

/// A running upstream; it stops when dropped, without an answer to its held requests.
#[derive(Debug)]
pub struct Upstream(Server<Requests>);

#[derive(Debug, Default)]
struct Requests {
    arrived: usize,
    held: usize,
    open: bool,
    resets: usize,
}

impl Upstream {
    /// Starts on a free port.
    pub fn start() -> Self {
        Self(Server::start(Requests::default(), serve))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The number of requests that have arrived whole.
    pub fn requests(&self) -> usize {
        self.0.state().own.arrived
    }

    /// The number of requests that are being held back.
    pub fn held(&self) -> usize {
        self.0.state().own.held
    }

    /// Lets all held requests go, and holds none from now on.
    pub fn release(&self) {
        self.0.change(|state| state.own.open = true);
    }

    /// Closes the connections of all held requests, unanswered.
    pub fn reset(&self) {
        self.0.change(|state| state.own.resets += 1);
    }
}

fn serve(shared: &Arc<Shared<Requests>>, mut connection: TcpStream) {
    let Ok(reading) = connection.try_clone() else { return };
    let mut reading = BufReader::new(reading);
    while let Ok(Some(request)) = http::read(&mut reading) {
        if !shared.pass(&request) {
            break;
        }
        let says = request.headers.get("x-say").is_some();
        if says
            || request.start.split(' ').nth(1).is_some_and(|path| {
                ["/say", "/v1/say"].iter().any(|begin| path.starts_with(begin))
                    || path.contains("GenerateContent")
                    || path.contains(":generateContent")
            })
        {
            if !say(shared, &request, &mut connection) {
                break;
            }
            continue;
        }
        let account = account(&request);
        let length = account.len();
        let status = match (request.headers.get("x-answer"), request.start.split(' ').nth(1)) {
            (Some(status), _) => status,
            (None, Some("/moved")) => "302 Found\r\nlocation: http://weir.test/there",
            (None, _) => "200 OK",
        };
        let response = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{account}"
        );
        if connection.write_all(response.as_bytes()).is_err() {
            break;
        }
    }
    // A client that has disconnected first is no error.
    let _ = connection.shutdown(Shutdown::Both);
}

/// Answers with the body of the request, piece by piece. Returns whether the connection can go on.
fn say(shared: &Shared<Requests>, request: &Message, connection: &mut TcpStream) -> bool {
    let slowly = request.start.contains("/say/slowly");
    let said = request.headers.get("x-say").map(hex);
    let mut pieces = said.as_deref().unwrap_or(&request.body).split(|byte| *byte == PIECE).peekable();
    while let Some(piece) = pieces.next() {
        if connection.write_all(piece).and_then(|()| connection.flush()).is_err() {
            return false;
        }
        if slowly && pieces.peek().is_some() && !shared.hold() {
            return false;
        }
    }
    !request.start.contains("close")
}

/// The bytes of hexadecimal digits.
fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok());
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

impl Shared<Requests> {
    /// Holds a response back; whether it is to go on.
    fn hold(&self) -> bool {
        let mut state = self.state();
        state.own.held += 1;
        let resets = state.own.resets;
        state = self.wait_while(state, |requests| !requests.open && requests.resets == resets);
        state.own.held -= 1;
        !state.stopped && state.own.resets == resets
    }

    /// Counts a request and holds it back if it is to be held; whether it is to be answered.
    fn pass(&self, request: &Message) -> bool {
        let mut state = self.state();
        state.own.arrived += 1;
        if request.start.split(' ').nth(1).is_some_and(|path| path.starts_with("/hold"))
            || request.headers.get("x-hold").is_some()
        {
            drop(state);
            return self.hold();
        }
        !state.stopped
    }
}

/// The upstream's answer: the request line, the header fields as they came, the body's length and SHA-1, and the trailers.
fn account(request: &Message) -> String {
    let text = |fields: &Headers| -> String {
        fields.0.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    };
    let (fields, trailers) = (text(&request.headers), text(&request.trailers));
    format!("{}\n{fields}\n{}\n{trailers}", request.start, body_account(&request.body))
}

/// The line about the body in the answer to a request; its trailers follow.
pub fn body_account(body: &[u8]) -> String {
    format!("{} bytes, sha1 {}", body.len(), sha1_smol::Sha1::from(body).digest())
}
